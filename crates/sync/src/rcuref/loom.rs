//! No interleaving frees an object twice, or under somebody's hands, or not at all; and the two known-broken variants are
//! caught: the `put` of 2023, which read the count again, and a `put` without a pin.
//!
//! What this does not cover: more than two preemptions per schedule and more than two threads; saturation, which is
//! arithmetic and in `tests.rs`; the epoch itself, which has models of its own: here a grace period is "both have said that
//! they hold nothing", so that the models stay small.

use super::*;
use crate::epoch::{Domain, Pinned};
use crate::primitive::{Arc, RACE, Unless, UnsafeCell, Weakness, caught, explore, relax};

/// An object with a count, and the flags of two readers: up while one is pinned.
struct Object {
    count: RcuRef,
    /// Freed by writing: a reader that still looks is a race that loom reports.
    text: UnsafeCell<u32>,
    pinned: [AtomicU32; 2],
    frees: AtomicU32,
    alarms: AtomicU32,
}

/// How a reference is given back.
#[derive(Clone, Copy)]
enum Put {
    /// As shipped.
    Ours,
    /// As in 2023: the slow way goes by what it reads, not by what it subtracted.
    ReadsAgain,
    /// As shipped, by somebody who holds no pin.
    Unpinned,
}

fn object(references: u32) -> Unless<Arc<Object>> {
    Unless::panicking(Arc::new(Object {
        count: RcuRef::new(references),
        text: UnsafeCell::new(1),
        pinned: [AtomicU32::new(0), AtomicU32::new(0)],
        frees: AtomicU32::new(0),
        alarms: AtomicU32::new(0),
    }))
}

impl Object {
    /// `true`: it was the last.
    fn put(&self, how: Put, witness: &Pinned<'_>) -> bool {
        let last = self.give_back(how, witness);
        if !last {
            // The count is a part of the object: a `put` that is under way looks at its memory.
            self.look();
        }
        last
    }

    fn look(&self) {
        // SAFETY: a reference or a pin is held; that nobody frees meanwhile is what the model is for.
        self.text.with(|text| assert_eq!(unsafe { *text }, 1));
    }

    fn give_back(&self, how: Put, witness: &Pinned<'_>) -> bool {
        match how {
            Put::Ours | Put::Unpinned => self.count.put(witness),
            Put::ReadsAgain => {
                if self.count.0.fetch_sub(1, order::publish()).wrapping_sub(1) <= MAXREF {
                    return false;
                }
                let again = self.count.0.load(Relaxed);
                if again == NOREF {
                    return self.count.0.compare_exchange(NOREF, DEAD, order::publish(), Relaxed).is_ok();
                }
                if again >= RELEASED {
                    self.alarms.fetch_add(1, Relaxed);
                    self.count.0.store(DEAD, Relaxed);
                }
                false
            }
        }
    }

    /// One reader: takes a reference if it can, looks, gives it back, and frees if it was the last.
    fn visit(&self, me: usize, how: Put) {
        // The witness is for the compiler here; what it stands for is `pinned`.
        let (domain, _limbo) = Domain::new(0);
        let guard = domain.guard();
        let pins = !matches!(how, Put::Unpinned);
        self.pinned[me].store(u32::from(pins), Relaxed);
        order::announce_fence();
        if self.count.get() {
            self.look();
            let last = self.put(how, &guard.pin());
            self.pinned[me].store(0, order::publish());
            if last {
                self.free(1 - me);
            }
        }
        self.pinned[me].store(0, order::publish());
    }

    /// A holder of a reference looks, and gives it back; the last one tears down.
    fn finish(&self) -> bool {
        let (domain, _limbo) = Domain::new(0);
        let guard = domain.guard();
        self.look();
        let last = self.count.put(&guard.pin());
        if last {
            // SAFETY: nobody has a reference, and nobody can get one.
            self.text.with_mut(|text| unsafe { *text = 0 });
        }
        last
    }

    /// After a grace period.
    fn free(&self, other: usize) {
        order::announce_fence();
        let mut looks = 0;
        while self.pinned[other].load(order::observe()) != 0 {
            relax(looks);
            looks += 1;
        }
        assert_eq!(self.frees.fetch_add(1, Relaxed), 0, "freed twice");
        self.text.with_mut(|text| {
            // SAFETY: as above.
            unsafe { *text = 0 }
        });
    }
}

/// The table gives its reference up while a reader takes one.
fn revive_against_kill(how: Put) {
    let object = object(1);
    let there = Unless::panicking(Arc::clone(&object));
    let (domain, _limbo) = Domain::new(0);
    let guard = domain.guard();
    let reader = ::loom::thread::spawn(move || there.visit(1, how));
    object.pinned[0].store(u32::from(!matches!(how, Put::Unpinned)), Relaxed);
    order::announce_fence();
    let last = object.put(how, &guard.pin());
    object.pinned[0].store(0, order::publish());
    if last {
        object.free(1);
    }
    reader.join().expect("no panic");
    assert_eq!(object.frees.load(Relaxed), 1, "freed once");
    assert_eq!(object.alarms.load(Relaxed), 0, "a false alarm");
    assert!(object.count.is_dead());
}

/// Two give back the last two references; whoever is told that it was the last sees what the other did.
fn two_last_puts() {
    let object = object(2);
    let there = Unless::panicking(Arc::clone(&object));
    let other = ::loom::thread::spawn(move || there.finish());
    let mine = object.finish();
    let his = other.join().expect("no panic");
    assert!(mine ^ his, "one is told that it was the last");
}

#[test]
fn one_frees_and_after_everybody() {
    for model in [|| revive_against_kill(Put::Ours), two_last_puts] {
        let schedules = explore(model);
        assert!(schedules > 1, "only {schedules} schedule was explored");
    }
}

#[test]
fn the_put_that_reads_again_is_caught() {
    caught(Weakness::None, "a false alarm", || revive_against_kill(Put::ReadsAgain));
}

#[test]
fn a_put_without_a_pin_is_caught() {
    caught(Weakness::None, RACE, || revive_against_kill(Put::Unpinned));
}

#[test]
fn a_relaxed_put_is_caught() {
    caught(Weakness::PublishRelaxed, RACE, two_last_puts);
}
