//! A ring from which any number of threads take, each with one exchange.
//!
//! # How it is used
//!
//! ```
//! use laneway_sync::ring::handout::handout;
//! use std::sync::Arc;
//! let (mut offers, takers) = handout::<Arc<u32>, 1>(8);
//! offers.offer(Arc::new(1), [10]).expect("room"); // a value, and a note that goes with it
//! offers.offer(Arc::new(2), [20]).expect("room");
//! assert!(takers.is_empty());
//! offers.publish(); // both at once
//! let other = takers.clone();
//! assert_eq!(other.take(), Some((Arc::new(1), [10])));
//! assert_eq!(takers.take(), Some((Arc::new(2), [20])));
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
//! slot n, some words, and then moves `taken`; if that succeeds, nobody else has taken slot n, and the producer has not
//! written it again, because it writes slot n only when `taken` is beyond n. If it fails, the copied words are
//! forgotten: they were never an owner.
//!
//! A note of some words goes with each value, and what the value's own type has to say ([`Carried`]): who takes it learns from the
//! slot, of which one line holds more than one, what he would else have to look up on lines of the value. What is offered is
//! published when the producer has offered all that it has: the word that says so then travels once, and what happened to a value
//! meanwhile is in its slot.
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
//! * `offered`: stored Release after the slots are written, loaded Acquire before they are read.
//! * `taken`: moved AcqRel, after the slot is read; loaded Acquire by the producer before it writes the slot again.

#[cfg(all(test, laneway_loom))]
mod loom;
#[cfg(all(test, not(laneway_loom)))]
mod tests;

use crate::met;
use crate::padded::Padded;
pub use crate::pointer::Carried;
use crate::pointer::{Bare, Pointer};
use crate::primitive::{Arc, AtomicPtr, AtomicU32, AtomicU64, order};
use std::fmt;
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;

struct Slot<P: Pointer, const N: usize> {
    pointer: AtomicPtr<<P as Pointer>::Target>,
    word: AtomicU64,
    note: [AtomicU64; N],
}

struct Shared<P: Carried, const N: usize> {
    offered: Padded<AtomicU32>,
    taken: Padded<AtomicU32>,
    slots: Box<[Slot<P, N>]>,
}

// SAFETY: what is in the slots are values on their way from one thread to another.
unsafe impl<P: Carried + Send, const N: usize> Send for Shared<P, N> {}
// SAFETY: as above; nobody looks at one there.
unsafe impl<P: Carried + Send, const N: usize> Sync for Shared<P, N> {}

impl<P: Carried, const N: usize> Shared<P, N> {
    #[inline]
    fn slot(&self, position: u32) -> &Slot<P, N> {
        &self.slots[position as usize & (self.slots.len() - 1)]
    }

    #[inline]
    fn take(&self) -> Option<(P, [u64; N])> {
        let mut position = self.taken.load(order::observe());
        loop {
            if position == self.offered.load(order::observe()) {
                return None;
            }
            let slot = self.slot(position);
            let bare = Bare::<P> { pointer: slot.pointer.load(Relaxed), word: slot.word.load(Relaxed) };
            let note = std::array::from_fn(|i| slot.note[i].load(Relaxed));
            let next = position.wrapping_add(1);
            match self.taken.compare_exchange_weak(position, next, order::exchange(), order::observe()) {
                Ok(_) if bare.pointer.is_null() => unreachable!("a value was offered before it was written"),
                // SAFETY: it came from `pack`, was in slot `position` while that was the oldest, and whoever moves `taken` over
                // it owns it.
                Ok(_) => return Some((unsafe { P::unpack(bare) }, note)),
                Err(now) => {
                    met::retried();
                    position = now;
                }
            }
        }
    }
}

impl<P: Carried, const N: usize> Drop for Shared<P, N> {
    fn drop(&mut self) {
        while let Some(value) = self.take() {
            drop(value);
        }
    }
}

/// A ring of at least `capacity` slots, rounded up to a power of two, each for a value and a note of `N` words.
///
/// # Panics
/// If more than 2²⁰ slots are asked for.
pub fn handout<P: Carried + Send, const N: usize>(capacity: usize) -> (Offers<P, N>, Takers<P, N>) {
    assert!(capacity <= 1 << 20, "a handout holds at most 2^20 values; {capacity} were asked for");
    let slot = |_| Slot {
        pointer: AtomicPtr::new(ptr::null_mut()),
        word: AtomicU64::new(0),
        note: std::array::from_fn(|_| AtomicU64::new(0)),
    };
    let slots = (0..capacity.max(1).next_power_of_two()).map(slot).collect();
    let shared = Arc::new(Shared { offered: Padded(AtomicU32::new(0)), taken: Padded(AtomicU32::new(0)), slots });
    (Offers { shared: shared.clone(), offered: 0, taken_seen: 0 }, Takers(shared))
}

/// The side that fills the ring: one.
pub struct Offers<P: Carried, const N: usize> {
    shared: Arc<Shared<P, N>>,
    offered: u32,
    taken_seen: u32,
}

impl<P: Carried, const N: usize> Offers<P, N> {
    /// Offers a value, once it is [published](Self::publish), to whoever takes first. Full: it comes back.
    pub fn offer(&mut self, value: P, note: [u64; N]) -> Result<(), P> {
        if !self.has_room(1) {
            return Err(value);
        }
        let Bare { pointer, word } = value.pack();
        let slot = self.shared.slot(self.offered);
        slot.pointer.store(pointer, Relaxed);
        slot.word.store(word, Relaxed);
        slot.note.iter().zip(note).for_each(|(to, word)| to.store(word, Relaxed));
        self.offered = self.offered.wrapping_add(1);
        Ok(())
    }

    /// From now on what was offered can be taken.
    #[inline]
    pub fn publish(&mut self) {
        self.shared.offered.store(self.offered, order::publish());
    }

    /// Whether `offer` would succeed so many times.
    pub fn has_room(&mut self, values: usize) -> bool {
        let capacity = self.shared.slots.len();
        if self.offered.wrapping_sub(self.taken_seen) as usize + values > capacity {
            self.taken_seen = self.shared.taken.load(order::observe());
        }
        self.offered.wrapping_sub(self.taken_seen) as usize + values <= capacity
    }

    /// How many were published and nobody has taken.
    pub fn published(&self) -> usize {
        self.shared.offered.load(Relaxed).wrapping_sub(self.shared.taken.load(Relaxed)) as usize
    }

    /// Takes one back.
    pub fn take_back(&mut self) -> Option<(P, [u64; N])> {
        self.publish();
        self.shared.take()
    }
}

/// What was not published is for whoever takes, all the same.
impl<P: Carried, const N: usize> Drop for Offers<P, N> {
    fn drop(&mut self) {
        self.publish();
    }
}

/// The side that takes. Any number of clones, on any threads.
pub struct Takers<P: Carried, const N: usize>(Arc<Shared<P, N>>);

impl<P: Carried, const N: usize> Clone for Takers<P, N> {
    fn clone(&self) -> Self {
        Takers(self.0.clone())
    }
}

impl<P: Carried, const N: usize> Takers<P, N> {
    /// The oldest value and its note, if there is one: one exchange, and another for each other thread that was faster.
    #[inline]
    pub fn take(&self) -> Option<(P, [u64; N])> {
        self.0.take()
    }

    /// Nothing is offered.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.taken.load(order::observe()) == self.0.offered.load(order::observe())
    }
}

impl<P: Carried, const N: usize> fmt::Debug for Offers<P, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offers").field("offered", &self.offered).finish_non_exhaustive()
    }
}

impl<P: Carried, const N: usize> fmt::Debug for Takers<P, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Takers").field("taken", &self.0.taken.load(Relaxed)).finish_non_exhaustive()
    }
}
