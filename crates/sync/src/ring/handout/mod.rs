//! A ring from which any number of threads take, each with one exchange.
//!
//! # How it is used
//!
//! ```
//! use laneway_sync::ring::handout::handout;
//! use std::sync::Arc;
//! let (mut offers, takers) = handout::<u32>(8);
//! offers.offer(Arc::new(1)).expect("room");
//! offers.offer(Arc::new(2)).expect("room");
//! let other = takers.clone();
//! assert_eq!(other.take().as_deref(), Some(&1));
//! assert_eq!(takers.take().as_deref(), Some(&2));
//! assert!(takers.take().is_none());
//! ```
//!
//! # Why not the obvious thing
//!
//! A queue under a lock would be taken by the lane that fills it as well as by those who take. A queue for many producers
//! pays for producers that do not exist: each lane has a ring of its own. And [`items`](super::items) lets a taker move the
//! value out *before* it says so, which only a single taker may.
//!
//! # Theory
//!
//! `offered` belongs to the one producer. `taken` is moved by whoever takes, from n to n + 1. A taker first copies what is in
//! slot n, a word, and then moves `taken`; if that succeeds, nobody else has taken slot n, and the producer has not
//! written it again, because it writes slot n only when `taken` is beyond n. If it fails, the copied word is
//! forgotten: it was never an owner.
//!
//! # The bad interleavings
//!
//! ```text
//!   taker A                      taker B                      producer
//!   copies slot 0                copies slot 0
//!   taken := 1 by a store        taken := 1 by a store                              ← the same value twice: exchange
//!
//!   copies slot 0, sleeps        takes 0, 1, … all round                 writes slot 0 again
//!   taken is 8 now: its exchange from 0 fails                                       ← and so the old word is not used
//! ```
//!
//! The position has 32 bits: a taker that sleeps between its copy and its exchange while exactly 2³² values are taken would be
//! fooled.
//!
//! # Memory ordering
//!
//! * `offered`: stored Release after the slot is written, loaded Acquire before it is read.
//! * `taken`: moved AcqRel, after the slot is read; loaded Acquire by the producer before it writes the slot again.

#[cfg(all(test, laneway_loom))]
mod loom;
#[cfg(all(test, not(laneway_loom)))]
mod tests;

use crate::met;
use crate::padded::Padded;
use crate::primitive::{Arc, AtomicPtr, AtomicU32, order};
use std::fmt;
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;

struct Shared<T> {
    offered: Padded<AtomicU32>,
    taken: Padded<AtomicU32>,
    slots: Box<[AtomicPtr<T>]>,
}

// SAFETY: the words in the slots are `Arc`s on their way from one thread to another.
unsafe impl<T: Send + Sync> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Shared<T> {}

impl<T> Shared<T> {
    #[inline]
    fn slot(&self, position: u32) -> &AtomicPtr<T> {
        &self.slots[position as usize & (self.slots.len() - 1)]
    }

    #[inline]
    fn take(&self) -> Option<Arc<T>> {
        let mut position = self.taken.load(order::observe());
        loop {
            if position == self.offered.load(order::observe()) {
                return None;
            }
            let value = self.slot(position).load(Relaxed);
            let next = position.wrapping_add(1);
            match self.taken.compare_exchange_weak(position, next, order::exchange(), order::observe()) {
                Ok(_) if value.is_null() => unreachable!("a value was offered before it was written"),
                // SAFETY: it came from `Arc::into_raw`, was in slot `position` while that was the oldest, and whoever moves
                // `taken` over it owns it.
                Ok(_) => return Some(unsafe { Arc::from_raw(value) }),
                Err(now) => {
                    met::retried();
                    position = now;
                }
            }
        }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        while let Some(value) = self.take() {
            drop(value);
        }
    }
}

/// A ring of at least `capacity` slots, rounded up to a power of two.
///
/// # Panics
/// If more than 2²⁰ slots are asked for.
pub fn handout<T: Send + Sync>(capacity: usize) -> (Offers<T>, Takers<T>) {
    assert!(capacity <= 1 << 20, "a handout holds at most 2^20 values; {capacity} were asked for");
    let slots = (0..capacity.max(1).next_power_of_two()).map(|_| AtomicPtr::new(ptr::null_mut())).collect();
    let shared = Arc::new(Shared { offered: Padded(AtomicU32::new(0)), taken: Padded(AtomicU32::new(0)), slots });
    (Offers { shared: shared.clone(), offered: 0, taken_seen: 0 }, Takers(shared))
}

/// The side that fills the ring: one.
pub struct Offers<T: Send + Sync> {
    shared: Arc<Shared<T>>,
    offered: u32,
    taken_seen: u32,
}

impl<T: Send + Sync> Offers<T> {
    /// Offers a value to whoever takes first. Full: it comes back.
    pub fn offer(&mut self, value: Arc<T>) -> Result<(), Arc<T>> {
        if !self.has_room() {
            return Err(value);
        }
        self.shared.slot(self.offered).store(Arc::into_raw(value).cast_mut(), Relaxed);
        self.offered = self.offered.wrapping_add(1);
        self.shared.offered.store(self.offered, order::publish());
        Ok(())
    }

    /// Whether `offer` would succeed.
    pub fn has_room(&mut self) -> bool {
        let capacity = self.shared.slots.len() as u32;
        if self.offered.wrapping_sub(self.taken_seen) == capacity {
            self.taken_seen = self.shared.taken.load(order::observe());
        }
        self.offered.wrapping_sub(self.taken_seen) < capacity
    }

    /// Takes one back.
    pub fn take_back(&mut self) -> Option<Arc<T>> {
        self.shared.take()
    }
}

/// The side that takes. Any number of clones, on any threads.
pub struct Takers<T: Send + Sync>(Arc<Shared<T>>);

impl<T: Send + Sync> Clone for Takers<T> {
    fn clone(&self) -> Self {
        Takers(self.0.clone())
    }
}

impl<T: Send + Sync> Takers<T> {
    /// The oldest value, if there is one: one exchange, and another for each other thread that was faster.
    #[inline]
    pub fn take(&self) -> Option<Arc<T>> {
        self.0.take()
    }

    /// Nothing is offered.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.taken.load(order::observe()) == self.0.offered.load(order::observe())
    }
}

impl<T: Send + Sync> fmt::Debug for Offers<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offers").field("offered", &self.offered).finish_non_exhaustive()
    }
}

impl<T: Send + Sync> fmt::Debug for Takers<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Takers").field("taken", &self.0.taken.load(Relaxed)).finish_non_exhaustive()
    }
}
