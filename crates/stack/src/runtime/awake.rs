//! Owns where lanes are awake, core by core: a hint to threads of the application that could be in the way of one.
//!
//! A thread that sleeps is woken *in front of* who has its core, and a thread that looks keeps it. Where that is a lane, either keeps the lane
//! from bringing what the thread waits for. So a thread asks first whether one [is here](is_here): then it does not look, or it lets
//! the lane go first ([`give_way`]).
//!
//! All stacks of a process are counted together, since whose lane is kept from its work makes no difference. Nothing depends on the
//! answer but time: a lane says where it is when it wakes and every so many turns, and may have been moved since.

use laneway_sync::Padded;
use rustix::thread::sched_getcpu;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Cores that are told apart; what is beyond shares a place with another.
const CORES: usize = 256;
/// After so many turns a lane looks where it is.
const TURNS: u32 = 64;

/// How many lanes are awake on each core. A line of its own each: it is written by who runs there.
struct Cores([Padded<AtomicU32>; CORES]);

static AWAKE: Cores = Cores::new();

impl Cores {
    const fn new() -> Self {
        Cores([const { Padded(AtomicU32::new(0)) }; CORES])
    }

    fn at(&self, core: usize) -> &AtomicU32 {
        &self.0[core % CORES]
    }
}

/// A lane's mark on the core where it is awake, for its thread to keep.
pub(super) struct Mark {
    cores: &'static Cores,
    core: Option<usize>,
    turns: u32,
}

impl Mark {
    /// Of a lane that sleeps.
    pub(super) fn new() -> Self {
        Mark { cores: &AWAKE, core: None, turns: 0 }
    }

    /// The lane is awake, on the core of the calling thread.
    pub(super) fn wakes(&mut self) {
        self.is_on(Some(sched_getcpu()));
    }

    /// It begins another turn.
    #[inline]
    pub(super) fn turns(&mut self) {
        self.turns += 1;
        if self.turns == TURNS {
            self.wakes();
        }
    }

    /// It is about to sleep.
    pub(super) fn sleeps(&mut self) {
        self.is_on(None);
    }

    fn is_on(&mut self, core: Option<usize>) {
        self.turns = 0;
        if core == self.core {
            return;
        }
        if let Some(left) = std::mem::replace(&mut self.core, core) {
            self.cores.at(left).fetch_sub(1, Relaxed);
        }
        if let Some(core) = core {
            self.cores.at(core).fetch_add(1, Relaxed);
        }
    }
}

/// However the lane ends.
impl Drop for Mark {
    fn drop(&mut self) {
        self.sleeps();
    }
}

/// A lane is awake on the core of the calling thread, as far as can be told.
pub fn is_here() -> bool {
    AWAKE.at(sched_getcpu()).load(Relaxed) > 0
}

/// Lets a lane that is awake on this core go first, for as long as the system gives it. False: there is none.
pub fn give_way() -> bool {
    let is_here = is_here();
    if is_here {
        std::thread::yield_now();
    }
    is_here
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_is_counted_where_it_is_awake_and_nowhere_else() {
        static CORES_HERE: Cores = Cores::new();
        let awake = || CORES_HERE.0.iter().map(|core| core.load(Relaxed)).collect::<Vec<_>>();
        let of = |core: usize, n: u32| (0..CORES).map(|i| if i == core { n } else { 0 }).collect::<Vec<_>>();
        let mark = || Mark { cores: &CORES_HERE, core: None, turns: 0 };
        let (mut one, mut other) = (mark(), mark());
        assert_eq!(awake(), of(0, 0), "both sleep");
        one.is_on(Some(3));
        other.is_on(Some(3));
        assert_eq!(awake(), of(3, 2));
        one.is_on(Some(3));
        assert_eq!(awake(), of(3, 2), "where it was");
        one.is_on(Some(CORES + 7));
        other.sleeps();
        assert_eq!(awake(), of(7, 1), "it was moved to a core beyond, and the other sleeps");
        other.sleeps();
        assert_eq!(awake(), of(7, 1), "one who sleeps leaves nothing");
        drop(one);
        assert_eq!(awake(), of(0, 0), "it has ended");
    }

    #[test]
    fn a_lane_that_never_sleeps_says_where_it_is_now_and_then() {
        static CORES_HERE: Cores = Cores::new();
        let mut mark = Mark { cores: &CORES_HERE, core: Some(200), turns: 0 };
        CORES_HERE.at(200).store(1, Relaxed);
        (1..TURNS).for_each(|_| mark.turns());
        assert_eq!(mark.core, Some(200), "it does not ask in each turn");
        mark.turns();
        assert_ne!(mark.core, Some(200), "no machine that tests run on has that core");
        assert_eq!(CORES_HERE.at(200).load(Relaxed), 0);
    }
}
