//! Replaces what others read without a lock, and says when nobody reads the old any more.
//!
//! # How it is used
//!
//! ```
//! use laneway_sync::epoch::{Domain, Published};
//! let (domain, mut limbo) = Domain::new(/* seats */ 1);
//! let world = Published::new(&domain, "old");
//! let mut seat = Domain::seat(&domain).expect("there is one");
//! seat.online();
//! {
//!     let pinned = seat.pin();
//!     let seen = world.load(&pinned);
//!     world.publish("new", &mut limbo);
//!     assert_eq!(limbo.collect(), 0); // somebody may still look at the old one …
//!     assert_eq!(*seen, "old"); // … as we do
//! }
//! seat.quiescent(); // once a round: "I hold nothing from before"
//! assert_eq!(limbo.collect(), 1);
//! assert_eq!(*world.load(&domain.guard().pin()), "new"); // a thread that has no rounds uses a guard
//! ```
//!
//! # Why not the obvious thing
//!
//! A lock for readers is a line that all cores write. A reference count is the same line with fewer waits: a route that
//! every packet uses is counted up and down by every core. Hazard pointers cost a fence per read. A lane has rounds, and
//! between two of them it holds nothing: that it passed one says all that reclamation must know, at a store per round.
//!
//! # Theory
//!
//! A global epoch only grows. A reader's seat holds the epoch that it last saw, or OFFLINE. To replace a value, the writer
//! puts the new one in place, then advances the epoch to e, and keeps the old one with the tag e. A reader whose seat says
//! e or more saw the epoch after the new value was in place, so what it has loaded since is not the old one. When every seat
//! that is not offline says e or more, the old one is freed.
//!
//! A seat is OFFLINE while its thread sleeps, or else one sleeping lane would keep everything. Coming back is the only moment
//! that needs a fence: seat := e, fence, load the value; against new value, fence, look at the seats.
//!
//! [`Pinned`] is the right to load: a borrow of a seat or a guard, so the compiler refuses to keep a reference over
//! [`Seat::quiescent`].
//!
//! # The bad interleavings
//!
//! ```text
//!   reader                                writer
//!   seat := 5 (in the store buffer)
//!   loads the old value                   new value; epoch := 6; sees the seat OFFLINE, frees the old   ← fences
//!
//!   loads the old value
//!   quiescent: seat := 6 (moves up)       sees 6, frees while the load's user is not done               ← Release
//!
//!   sees epoch 6, but not the new value   (its store came after)
//!   loads the old value, seat says 6      frees it                          ← first the value, then the epoch
//! ```
//!
//! # Memory ordering
//!
//! * The value: swapped AcqRel by the writer, loaded Acquire.
//! * The epoch: stored Release after the value, loaded Acquire before the seat is written.
//! * A seat: stored Release (uses of old values come before), loaded Acquire by the writer before it frees.
//! * One fence in `online`, and one in the writer between the swap and its look at the seats.

#[cfg(all(test, laneway_loom))]
mod loom;
#[cfg(all(test, not(laneway_loom)))]
mod tests;

use crate::padded::Padded;
use crate::primitive::{Arc, AtomicPtr, AtomicU64, free, order, own};
use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::{Mutex, PoisonError};

/// Nobody sits here.
const FREE: u64 = 0;
/// Its owner sleeps, and holds nothing.
const OFFLINE: u64 = u64::MAX;
/// The first epoch.
const FIRST: u64 = 1;
/// Guards that can be held at the same time. One more waits for one of these.
const GUARDS: usize = if cfg!(laneway_loom) { 1 } else { 64 };

/// Values that are dropped when nobody can read them any more.
type Retired = Box<dyn Send>;

/// Readers and a writer that replaces what they read.
pub struct Domain {
    epoch: Padded<AtomicU64>,
    seats: Box<[Padded<AtomicU64>]>,
    guards: Box<[Padded<AtomicU64>]>,
    /// What readers have left for the [`Limbo`] to free.
    bin: Mutex<Vec<Retired>>,
    /// What a dropped [`Limbo`] has left.
    left: Mutex<Vec<Retired>>,
}

impl Domain {
    /// A domain with places for `seats` readers that have rounds, and its one writer's side.
    pub fn new(seats: usize) -> (Arc<Domain>, Limbo) {
        let places = |n| (0..n).map(|_| Padded(AtomicU64::new(FREE))).collect();
        let domain = Arc::new(Domain {
            epoch: Padded(AtomicU64::new(FIRST)),
            seats: places(seats),
            guards: places(GUARDS),
            bin: Mutex::default(),
            left: Mutex::default(),
        });
        (domain.clone(), Limbo { domain, waiting: VecDeque::new(), retired: 0, freed: 0 })
    }

    /// A place for a reader that has rounds. It is offline at first. `None`: all are taken.
    pub fn seat(domain: &Arc<Self>) -> Option<Seat> {
        let at = domain
            .seats
            .iter()
            .position(|seat| seat.compare_exchange(FREE, OFFLINE, order::exchange(), Relaxed).is_ok())?;
        Some(Seat { domain: domain.clone(), at })
    }

    /// The right to read for a thread that has no rounds, until it is dropped. Waits if 64 others have one.
    pub fn guard(&self) -> Guard<'_> {
        loop {
            for place in &self.guards {
                let now = self.epoch.load(order::observe());
                // AcqRel is more than is needed: an exchange carries on the release of whoever has let go, and the fence orders what follows.
                if place.load(Relaxed) == FREE && place.compare_exchange(FREE, now, order::exchange(), Relaxed).is_ok()
                {
                    order::announce_fence();
                    return Guard { domain: self, place };
                }
            }
            crate::primitive::yield_now();
        }
    }

    /// Leaves a value that nobody can find any more to the writer, who frees it after a grace period. From any thread, and
    /// with a lock: it is for the rare case that a reader is the last to give something back.
    pub fn leave(&self, old: Box<dyn Send>) {
        self.bin.lock().unwrap_or_else(PoisonError::into_inner).push(old);
    }

    /// Every reader that may hold something has seen `epoch`.
    fn all_have_seen(&self, epoch: u64) -> bool {
        self.seats.iter().chain(&self.guards).all(|seat| match seat.load(Acquire) {
            FREE | OFFLINE => true,
            seen => seen >= epoch,
        })
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Domain").field("epoch", &self.epoch.load(Relaxed)).finish_non_exhaustive()
    }
}

/// A reader that has rounds.
pub struct Seat {
    domain: Arc<Domain>,
    at: usize,
}

impl Seat {
    fn word(&self) -> &AtomicU64 {
        &self.domain.seats[self.at]
    }

    /// The reader is awake. Needed before [`pin`](Self::pin), and after each [`offline`](Self::offline).
    pub fn online(&mut self) {
        let now = self.domain.epoch.load(order::observe());
        // Release: the writer may have missed that we slept, and what we looked at before comes before this too.
        self.word().store(now, order::publish());
        order::announce_fence();
    }

    /// Between two rounds: it holds nothing that it loaded before. One load and one store.
    #[inline]
    pub fn quiescent(&mut self) {
        let now = self.domain.epoch.load(order::observe());
        let seen = own(self.word());
        // Who sleeps holds nothing and sleeps on: to come back without the fence is to look at what the writer frees, who saw nobody.
        if seen != now && seen != OFFLINE {
            self.word().store(now, order::publish());
        }
    }

    /// The reader is going to sleep, and holds nothing.
    pub fn offline(&mut self) {
        self.word().store(OFFLINE, order::publish());
    }

    /// The right to read until the next of the calls above.
    ///
    /// # Panics
    /// If it is offline.
    #[inline]
    pub fn pin(&self) -> Pinned<'_> {
        assert_ne!(own(self.word()), OFFLINE, "a reader that said that it sleeps reads nothing");
        Pinned { domain: &self.domain, _not_send: PhantomData }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.word().store(FREE, order::publish());
    }
}

/// The right to read of a thread that has no rounds.
pub struct Guard<'a> {
    domain: &'a Domain,
    place: &'a AtomicU64,
}

impl Guard<'_> {
    /// The right to read for as long as the guard lives.
    pub fn pin(&self) -> Pinned<'_> {
        Pinned { domain: self.domain, _not_send: PhantomData }
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.place.store(FREE, order::publish());
    }
}

/// The witness that its holder may load what is [`Published`].
#[derive(Clone, Copy)]
pub struct Pinned<'a> {
    domain: &'a Domain,
    _not_send: PhantomData<*const ()>,
}

impl<'a> Pinned<'a> {
    /// Whose right it is.
    #[inline]
    pub fn domain(&self) -> &'a Domain {
        self.domain
    }
}

/// A value that is replaced whole.
pub struct Published<T> {
    domain: Arc<Domain>,
    now: AtomicPtr<T>,
}

// SAFETY: the value is owned by this cell and read from any thread; it is dropped on the writer's.
unsafe impl<T: Send + Sync> Send for Published<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Published<T> {}

impl<T: Send + Sync + 'static> Published<T> {
    /// With a first value.
    pub fn new(domain: &Arc<Domain>, value: T) -> Self {
        Published { domain: domain.clone(), now: AtomicPtr::new(Box::into_raw(Box::new(value))) }
    }

    /// The value of now, to be looked at for as long as the right to do so lasts.
    ///
    /// # Panics
    /// If that right is another domain's.
    #[inline]
    pub fn load<'p>(&'p self, pinned: &'p Pinned<'_>) -> &'p T {
        assert!(std::ptr::eq(pinned.domain, &*self.domain), "pinned in another domain");
        // SAFETY: the pointer is never null and was loaded while pinned, so it is not freed before the reader says that it is
        // done, which the borrow of `pinned` delays.
        unsafe { &*self.now.load(Acquire) }
    }

    /// Puts a new value in place. The old one is freed by `limbo` when nobody can look at it any more.
    ///
    /// # Panics
    /// If `limbo` is another domain's.
    pub fn publish(&self, value: T, limbo: &mut Limbo) {
        assert!(Arc::ptr_eq(&limbo.domain, &self.domain), "retired in another domain");
        let old = self.now.swap(Box::into_raw(Box::new(value)), order::exchange());
        // SAFETY: it came from `Box::into_raw`, and whoever swaps it out owns it.
        limbo.retire(unsafe { Box::from_raw(old) });
    }
}

impl<T> Drop for Published<T> {
    fn drop(&mut self) {
        // SAFETY: it came from `Box::into_raw`; every load borrows this value, so nobody looks any more.
        drop(unsafe { Box::from_raw(self.now.load(Acquire)) });
    }
}

/// The writer's side: what was replaced and may still be looked at. One per domain.
pub struct Limbo {
    domain: Arc<Domain>,
    waiting: VecDeque<(u64, Retired)>,
    retired: u64,
    freed: u64,
}

impl Limbo {
    /// Keeps a value that has just been made unreachable until nobody can look at it any more.
    fn retire(&mut self, old: Retired) {
        let epoch = own(&self.domain.epoch) + 1;
        self.domain.epoch.store(epoch, order::publish());
        self.waiting.push_back((epoch, old));
        self.retired += 1;
    }

    /// Frees what nobody can look at any more; says how many values that were.
    pub fn collect(&mut self) -> usize {
        let left = std::mem::take(&mut *self.domain.bin.lock().unwrap_or_else(PoisonError::into_inner));
        left.into_iter().for_each(|old| self.retire(old));
        if self.waiting.is_empty() {
            return 0;
        }
        order::announce_fence();
        let mut n = 0;
        while let Some((epoch, _)) = self.waiting.front()
            && self.domain.all_have_seen(*epoch)
        {
            if let Some((_, old)) = self.waiting.pop_front() {
                free(old);
            }
            n += 1;
        }
        self.freed += n as u64;
        n
    }

    /// How many values were replaced so far.
    pub fn retired(&self) -> u64 {
        self.retired
    }

    /// How many of those are freed.
    pub fn freed(&self) -> u64 {
        self.freed
    }
}

impl Drop for Limbo {
    fn drop(&mut self) {
        self.collect();
        // The rest is freed with the domain, when there is no reader left.
        let left = self.waiting.drain(..).map(|(_, old)| old);
        self.domain.left.lock().unwrap_or_else(PoisonError::into_inner).extend(left);
    }
}

impl fmt::Debug for Limbo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limbo").field("retired", &self.retired).field("freed", &self.freed).finish_non_exhaustive()
    }
}
