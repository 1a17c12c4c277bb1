//! Wakes a consumer that went to sleep, without a lost wake-up and without a lock.
//!
//! # How it is used
//!
//! ```
//! use laneway_sync::{doorbell::doorbell, Wake};
//! let (bell, sleeper) = doorbell();
//! let (mut producer, mut consumer) = laneway_sync::items::<u32>(8);
//! let worker = std::thread::spawn(move || loop {
//!     if let Some(item) = consumer.pop() {
//!         break item;
//!     }
//!     sleeper.park(None, || !consumer.is_empty()); // looks once more before it sleeps
//! });
//! producer.push(7).expect("room"); // first the work …
//! bell.ring(); // … then the bell
//! assert_eq!(worker.join().expect("no panic"), 7);
//! ```
//!
//! A consumer that sleeps in a system call of its own (it waits for a file descriptor too) uses the [`ParkFlag`] alone.
//!
//! # Why not the obvious thing
//!
//! `unpark` (or a write to an eventfd) after each batch costs a system call or a shared read-modify-write although the
//! consumer is awake nearly always. A condition variable costs a lock on either side. A flag "asleep" that is merely
//! read costs nothing, and loses wake-ups.
//!
//! # Theory
//!
//! Dekker's pattern. Each side stores its own thing and then looks at the other's: the producer stores *work* and reads
//! *flag*, the sleeper stores *flag* and reads *work*. With a sequentially consistent fence between store and load on
//! **both** sides at least one of them sees the other: either the sleeper sees the work and stays awake, or the ringer
//! sees the flag and wakes it (or both, which is harmless).
//!
//! The flag has two values, AWAKE and PARKED. Only the sleeper sets PARKED. Whoever moves it from PARKED to AWAKE by
//! a compare-exchange owes the wake-up: so of many ringers one pays for the system call. A ringer that comes too late
//! writes nothing, so no AWAKE of his can be taken for an answer to a later PARKED.
//!
//! # The bad interleavings
//!
//! ```text
//!   ringer                                sleeper
//!   (work in the store buffer)            flag := PARKED (in the store buffer)
//!   reads flag: AWAKE, does not wake      reads work: none, sleeps                  ← both fences are needed
//!
//!                                         reads work: none
//!   work; reads flag: AWAKE               flag := PARKED; sleeps                    ← look *after* announcing
//!
//!   takes flag PARKED → AWAKE
//!                                         wakes for no reason, sees AWAKE, goes on, announces PARKED again
//!   unparks                               sleeps … and wakes at once: sees PARKED,
//!                                         sleeps on                                 ← a token too many is harmless
//! ```
//!
//! # Memory ordering
//!
//! * flag := PARKED is Relaxed; the fence after it orders it before the look at the work.
//! * The work's own hand-over (Release/Acquire of a ring) is the work's business; the bell adds only the fence.
//! * The take PARKED → AWAKE is AcqRel: of two ringers the second sees what the first did, and the sleeper, which loads
//!   it Acquire, sees the work of the one that woke it.
//! * The thread handle is written once, before the first PARKED, and read by a ringer only after it has taken PARKED:
//!   `OnceLock` orders that too.

#[cfg(all(test, laneway_loom))]
mod loom;
#[cfg(all(test, not(laneway_loom)))]
mod tests;

use crate::padded::Padded;
use crate::primitive::{Arc, AtomicU32, Thread, current_thread, order, park};
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::time::{Duration, Instant};

const AWAKE: u32 = 0;
const PARKED: u32 = 1;

/// The flag alone: "the consumer sleeps, whoever brings work must wake it".
pub struct ParkFlag(Padded<AtomicU32>);

impl Default for ParkFlag {
    fn default() -> Self {
        Self::new()
    }
}

impl ParkFlag {
    /// Awake.
    pub fn new() -> Self {
        Self(Padded(AtomicU32::new(AWAKE)))
    }

    /// The sleeper's first step. It must now look for work once more, and then sleep, or [`retract`](Self::retract).
    #[inline]
    pub fn announce(&self) {
        self.0.store(PARKED, Relaxed);
        order::announce_fence();
    }

    /// The sleeper's last step: it is awake, for whatever reason. `true`: a ringer had taken the flag.
    #[inline]
    pub fn retract(&self) -> bool {
        self.0.swap(AWAKE, AcqRel) == AWAKE
    }

    /// A ringer has taken the flag since [`announce`](Self::announce).
    #[inline]
    pub fn was_taken(&self) -> bool {
        self.0.load(Acquire) == AWAKE
    }

    /// The ringer's step, after its work is published. `true`: the sleeper sleeps, and it is on you to wake it.
    #[must_use = "on true, the caller owes the sleeper a wake-up"]
    #[inline]
    pub fn take(&self) -> bool {
        order::announce_fence();
        self.0.load(Relaxed) == PARKED && (self.0).compare_exchange(PARKED, AWAKE, AcqRel, Relaxed).is_ok()
    }
}

impl fmt::Debug for ParkFlag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parked = self.0.load(Relaxed) == PARKED;
        f.debug_struct("ParkFlag").field("parked", &parked).finish()
    }
}

struct Shared {
    flag: ParkFlag,
    /// The thread that parks here; known from its first park on.
    thread: OnceLock<Thread>,
}

/// A bell and the one who sleeps beside it.
pub fn doorbell() -> (Doorbell, Sleeper) {
    let shared = Arc::new(Shared { flag: ParkFlag::new(), thread: OnceLock::new() });
    (Doorbell(shared.clone()), Sleeper(shared))
}

/// The side that wakes. Any number of clones, on any threads.
#[derive(Clone)]
pub struct Doorbell(Arc<Shared>);

impl Doorbell {
    /// Wakes the sleeper if it sleeps. Call it after the work is published: once per batch.
    #[inline]
    pub fn ring(&self) {
        if self.0.flag.take() {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        let thread = self.0.thread.get();
        thread.expect("the flag says PARKED only after the thread is known").unpark();
    }
}

impl fmt::Debug for Doorbell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Doorbell").field(&self.0.flag).finish()
    }
}

/// Why a [`Sleeper::park`] came back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wake {
    /// There was work before it could fall asleep.
    Work,
    /// Somebody rang.
    Rung,
    /// The time was up and nobody had rung.
    TimedOut,
}

/// The side that sleeps: one, and always on the same thread.
pub struct Sleeper(Arc<Shared>);

impl Sleeper {
    /// Sleeps until the bell rings or `timeout` has passed (`None`: no limit), unless `has_work` says, once the bell is
    /// armed, that there is something to do.
    ///
    /// # Panics
    /// If it is called on another thread than the first time: the bell would wake the wrong one.
    pub fn park(&self, timeout: Option<Duration>, has_work: impl FnOnce() -> bool) -> Wake {
        let me = current_thread();
        let known = self.0.thread.get_or_init(|| me.clone());
        assert_eq!(known.id(), me.id(), "a sleeper parks on one thread only");

        let flag = &self.0.flag;
        flag.announce();
        if has_work() {
            flag.retract();
            return Wake::Work;
        }
        let deadline = timeout.map(|timeout| (Instant::now(), timeout));
        loop {
            if flag.was_taken() {
                return Wake::Rung;
            }
            let left = deadline.map(|(start, timeout)| timeout.saturating_sub(start.elapsed()));
            if left == Some(Duration::ZERO) {
                return if flag.retract() { Wake::Rung } else { Wake::TimedOut };
            }
            park(left);
        }
    }
}

impl fmt::Debug for Sleeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sleeper").field(&self.0.flag).finish()
    }
}
