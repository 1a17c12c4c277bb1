//! Owns the taking of turns. Where memory is traced, every lane has a thread of its own, and only one of them runs at a time.
//!
//! So the trace of memory is one sequence, in which a mark says whose turn it is; and yet each lane has what it has in the product:
//! memory from its thread's part of the heap, its thread's own variables, its own stack. Lanes that took turns in one thread
//! would share these, and an oracle would find lines shared that no two cores ever share.

use super::part::{mark, stack_begins};
use crate::bench::failure::Failure;
use laneway_proto::time::Instant;
use laneway_sync::padded::Padded;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// Bytes of a lane's stack.
pub const STACK: usize = 4 << 20;

/// Somebody who takes turns.
pub trait Actor: Default + Send + 'static {
    /// His thread has got him for the first time.
    fn settle(&mut self) {}
    /// One turn.
    fn turn(&mut self, now: Instant);
}

/// Whose turn it is: one more than his number; 0 is who directs, `usize::MAX` the end.
struct Whose(Padded<AtomicUsize>);

const OVER: usize = usize::MAX;
/// What one's turn leaves behind if it panics is of no use to anybody.
const SOUND: &str = "a lane does not panic";

impl Whose {
    /// Touches nothing but this word and the stack while it waits: what waits beside a lane's turn must not look like its work.
    fn wait(&self, is: impl Fn(usize) -> bool) -> usize {
        loop {
            let whose = self.0.load(Ordering::Acquire);
            if is(whose) {
                return whose;
            }
            thread::yield_now();
        }
    }
}

/// An actor, the time, and whether it counts. No line of it has a neighbour on it: a turn is taken from here.
type Slot<A> = Padded<Mutex<Option<(A, Instant, bool)>>>;

/// Where actors have their turns.
pub struct Stage<A: Actor> {
    whose: Arc<Whose>,
    slots: Vec<Arc<Slot<A>>>,
    threads: Vec<thread::JoinHandle<()>>,
    /// Turns are marked and counted.
    pub counts: bool,
}

impl<A: Actor> Stage<A> {
    /// The calling thread, for those who need no other.
    pub fn here() -> Self {
        let whose = Arc::new(Whose(Padded(AtomicUsize::new(0))));
        Stage { whose, slots: Vec::new(), threads: Vec::new(), counts: false }
    }

    /// Threads for `n` actors, each of whom has said where its stack is.
    pub fn apart(n: usize) -> Result<Self, Failure> {
        let mut stage = Self::here();
        for number in 0..n {
            let slot = Arc::new(Padded(Mutex::new(None)));
            stage.slots.push(Arc::clone(&slot));
            let whose = Arc::clone(&stage.whose);
            let builder = thread::Builder::new().stack_size(STACK);
            let thread = builder.spawn(move || act(number, &whose, &slot));
            let thread =
                thread.map_err(|error| Failure::Machine(format!("a lane's thread cannot be started: {error}")))?;
            stage.threads.push(thread);
            // Until it has said where its stack is: it finds nothing to do.
            stage.whose.0.store(number + 1, Ordering::Release);
            stage.whose.wait(|whose| whose == 0);
        }
        Ok(stage)
    }

    /// Everybody has one turn, in order.
    pub fn step(&mut self, actors: &mut [A], now: Instant) {
        if self.threads.is_empty() {
            for (number, actor) in actors.iter_mut().enumerate() {
                turn(actor, number, now, self.counts);
            }
            return;
        }
        for (number, (actor, slot)) in actors.iter_mut().zip(&self.slots).enumerate() {
            let taken = std::mem::take(actor);
            *slot.lock().expect(SOUND) = Some((taken, now, self.counts));
            self.whose.0.store(number + 1, Ordering::Release);
            self.whose.wait(|whose| whose == 0);
            let back = slot.lock().expect(SOUND).take();
            *actor = back.expect("whoever had his turn comes back").0;
        }
    }
}

impl<A: Actor> Drop for Stage<A> {
    fn drop(&mut self) {
        self.whose.0.store(OVER, Ordering::Release);
        self.threads.drain(..).for_each(|thread| _ = thread.join());
    }
}

/// Hands the turn back, however the turn ended.
struct Back<'a>(&'a Whose);

impl Drop for Back<'_> {
    fn drop(&mut self) {
        self.0.0.store(0, Ordering::Release);
    }
}

fn act<A: Actor>(number: usize, whose: &Whose, slot: &Slot<A>) {
    stack_begins();
    let mut is_settled = false;
    loop {
        if whose.wait(|whose| whose == number + 1 || whose == OVER) == OVER {
            return;
        }
        let _back = Back(whose);
        let mut place = slot.lock().expect(SOUND);
        let Some((actor, now, counts)) = place.as_mut() else { continue };
        if !std::mem::replace(&mut is_settled, true) {
            actor.settle();
        }
        turn(actor, number, *now, *counts);
    }
}

fn turn<A: Actor>(actor: &mut A, number: usize, now: Instant, counts: bool) {
    if counts {
        counted_turn(actor, number, now);
    } else {
        actor.turn(now);
    }
}

/// The name that callgrind is told to look for. Nothing in it may have a name that contains its own, so there is no closure.
#[inline(never)]
fn counted_turn<A: Actor>(actor: &mut A, number: usize, now: Instant) {
    mark(number);
    actor.turn(now);
    mark(super::part::MARK_OTHER);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Noted {
        thread: Option<thread::ThreadId>,
        settled: usize,
        turns: Vec<Instant>,
    }

    impl Actor for Noted {
        fn settle(&mut self) {
            self.settled += 1;
            self.thread = Some(thread::current().id());
        }
        fn turn(&mut self, now: Instant) {
            assert_eq!(self.thread, Some(thread::current().id()));
            self.turns.push(now);
        }
    }

    #[test]
    fn everybody_has_his_turns_in_a_thread_of_his_own() {
        let mut stage = Stage::apart(3).expect("threads");
        let mut actors: Vec<Noted> = (0..3).map(|_| Noted::default()).collect();
        for us in 1..=4 {
            stage.step(&mut actors, Instant::from_us(us));
        }
        for actor in &actors {
            assert_eq!((actor.settled, actor.turns.len()), (1, 4));
        }
        assert!(actors[0].thread != actors[1].thread && actors[1].thread != actors[2].thread);
    }
}
