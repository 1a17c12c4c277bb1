//! A ring of values of one type, from one thread to one other.
//!
//! # How it is used
//!
//! ```
//! let (mut producer, mut consumer) = laneway_sync::items::<u32>(128);
//! producer.push(1).expect("room");
//! producer.stage(2).expect("room"); // not yet visible
//! producer.stage(3).expect("room");
//! producer.publish(); // once per batch
//!
//! assert_eq!(consumer.peek(), Some(&1));
//! assert_eq!(consumer.pop(), Some(1));
//! let mut rest = Vec::new();
//! consumer.drain(64, |item| rest.push(item));
//! assert_eq!(rest, [2, 3]);
//! ```
//!
//! # Why not the obvious thing
//!
//! A general channel has many producers in mind: a compare-and-swap per item, a waiting list, a lock somewhere. With
//! one party on either side a plain store per batch is enough, and there is nothing to retry.
//!
//! # Theory
//!
//! Positions count items and only ever grow (modulo 2³²); the slot is the position modulo the number of slots, a power
//! of two. Slots in `popped..pushed` hold a value and belong to the consumer, all others are empty and belong to the
//! producer. The indices move values across that border and nothing else does.
//!
//! # The bad interleavings
//!
//! Those of [`records`](super::records), with "value" for "bytes":
//!
//! ```text
//!   producer                          consumer
//!   writes slot s
//!   pushed := s + 1   (Relaxed)       sees s + 1, moves out a value that has not arrived
//!
//!                                     moves out the value of slot s
//!                                     popped := s + 1   (Relaxed), the move drifts below
//!   sees s + 1, writes slot s         … and moves out half of the new one
//! ```
//!
//! # Memory ordering
//!
//! * `pushed`: stored Release after the slots are written; loaded Acquire before they are read.
//! * `popped`: stored Release after the values are moved out; loaded Acquire before the slots are written again.
//! * `gone`: stored Release after the last publication; loaded Acquire.
//! * The drop of the ring itself runs after both sides are gone, ordered by `Arc`.

#[cfg(all(test, laneway_loom))]
mod loom;
#[cfg(all(test, not(laneway_loom)))]
mod tests;

use super::End;
use crate::padded::Padded;
use crate::primitive::{Arc, UnsafeCell, order};
use std::fmt;
use std::mem::MaybeUninit;

struct Shared<T> {
    producer: Padded<End>,
    consumer: Padded<End>,
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
}

// SAFETY: a slot is touched by one side at a time, as the positions say; values cross threads, hence `T: Send`.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as above. No `&T` is shared between threads, so `T: Sync` is not needed.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    #[inline(always)]
    fn slot(&self, position: u32) -> &UnsafeCell<MaybeUninit<T>> {
        &self.slots[position as usize & (self.slots.len() - 1)]
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        let end = self.producer.position.load(order::observe());
        let mut position = self.consumer.position.load(order::observe());
        while position != end {
            self.slot(position).with_mut(|slot| {
                // SAFETY: both sides are gone and slots in `popped..pushed` hold a value; each is dropped once.
                unsafe { (*slot).assume_init_drop() }
            });
            position = position.wrapping_add(1);
        }
    }
}

/// A ring of at least `capacity` slots (rounded up to a power of two, at most 2³⁰).
///
/// # Panics
/// If more than 2³⁰ slots are asked for.
pub fn items<T: Send>(capacity: usize) -> (ItemProducer<T>, ItemConsumer<T>) {
    items_from(capacity, 0)
}

/// As [`items`], with the positions starting at `start`, to test their wrap-around.
fn items_from<T: Send>(capacity: usize, start: u32) -> (ItemProducer<T>, ItemConsumer<T>) {
    assert!(capacity <= 1 << 30, "an item ring holds at most 2^30 items; {capacity} were asked for");
    let slots = (0..capacity.max(1).next_power_of_two()).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect();
    let shared = Arc::new(Shared { producer: Padded(End::at(start)), consumer: Padded(End::at(start)), slots });
    let producer = ItemProducer { shared: shared.clone(), staged: start, published: start, popped_seen: start };
    let consumer = ItemConsumer { shared, popped: start, pushed_seen: start };
    (producer, consumer)
}

/// The writing side.
pub struct ItemProducer<T: Send> {
    shared: Arc<Shared<T>>,
    /// End of the items written.
    staged: u32,
    /// What the consumer has been told.
    published: u32,
    /// What the consumer was last seen to have taken.
    popped_seen: u32,
}

impl<T: Send> ItemProducer<T> {
    /// Number of slots.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.shared.slots.len()
    }

    /// Writes an item that the consumer sees after the next [`publish`](Self::publish). Full: the item comes back.
    #[inline]
    pub fn stage(&mut self, item: T) -> Result<(), T> {
        if self.room() == 0 {
            return Err(item);
        }
        self.shared.slot(self.staged).with_mut(|slot| {
            // SAFETY: there is room, so this slot is empty and ours until it is published.
            unsafe { (*slot).write(item) };
        });
        self.staged = self.staged.wrapping_add(1);
        Ok(())
    }

    /// Shows the consumer all that is staged: one store, however many items.
    #[inline]
    pub fn publish(&mut self) {
        if self.published != self.staged {
            self.published = self.staged;
            let end = &self.shared.producer;
            end.position.store(self.published, order::publish());
        }
    }

    /// Stages and publishes. Full: the item comes back.
    #[inline]
    pub fn push(&mut self, item: T) -> Result<(), T> {
        let outcome = self.stage(item);
        self.publish();
        outcome
    }

    /// Free slots, at least. Looks at the consumer's index only if the last look says that there are none.
    #[inline]
    pub fn room(&mut self) -> usize {
        self.has_room(1);
        self.seen_room()
    }

    /// Whether so many slots are free. Looks at the consumer's index only if the last look says that they are not.
    #[inline]
    pub fn has_room(&mut self, slots: usize) -> bool {
        self.seen_room() >= slots || {
            self.popped_seen = self.shared.consumer.position.load(order::observe());
            self.seen_room() >= slots
        }
    }

    fn seen_room(&self) -> usize {
        self.shared.slots.len() - self.staged.wrapping_sub(self.popped_seen) as usize
    }

    /// The consumer has been dropped: what is pushed now, nobody takes.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.shared.consumer.gone.load(order::observe())
    }

    /// The consumer has taken everything that was ever staged.
    #[inline]
    pub fn is_drained(&self) -> bool {
        self.shared.consumer.position.load(order::observe()) == self.staged
    }
}

impl<T: Send> Drop for ItemProducer<T> {
    fn drop(&mut self) {
        // What was staged was meant to be seen; and the ring's own drop finds it by the published index.
        self.publish();
        self.shared.producer.gone.store(true, order::publish());
    }
}

impl<T: Send> fmt::Debug for ItemProducer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ItemProducer")
            .field("capacity", &self.capacity())
            .field("staged", &self.staged)
            .field("published", &self.published)
            .finish_non_exhaustive()
    }
}

/// The reading side.
pub struct ItemConsumer<T: Send> {
    shared: Arc<Shared<T>>,
    /// Everything before this has been taken.
    popped: u32,
    /// What the producer was last seen to have published.
    pushed_seen: u32,
}

impl<T: Send> ItemConsumer<T> {
    /// The oldest item, left in its place.
    #[inline]
    pub fn peek(&mut self) -> Option<&T> {
        if self.waiting() == 0 {
            return None;
        }
        // SAFETY: published and not yet popped, so it holds a value that the producer leaves alone; the reference
        // borrows this consumer, so the value stays.
        Some(self.shared.slot(self.popped).with(|slot| unsafe { (*slot).assume_init_ref() }))
    }

    /// Takes the oldest item.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.waiting() == 0 {
            return None;
        }
        let item = self.take();
        self.give_back();
        Some(item)
    }

    /// Takes up to `max` items, oldest first, and gives their slots back with one store. Returns how many.
    #[inline]
    pub fn drain(&mut self, max: usize, mut each: impl FnMut(T)) -> usize {
        /// Gives back also when `each` panics: the items taken so far are out.
        struct GiveBack<'a, T: Send>(&'a mut ItemConsumer<T>);
        impl<T: Send> Drop for GiveBack<'_, T> {
            fn drop(&mut self) {
                self.0.give_back();
            }
        }
        let mut n = self.waiting();
        if n < max {
            self.look();
            n = self.waiting();
        }
        let n = n.min(max);
        if n == 0 {
            return 0;
        }
        let guard = GiveBack(self);
        for _ in 0..n {
            each(guard.0.take_next());
        }
        n
    }

    /// Items that wait, at least. Looks at the producer's index only if the last look says that there are none.
    #[inline]
    pub fn waiting(&mut self) -> usize {
        if self.pushed_seen == self.popped {
            self.look();
        }
        self.pushed_seen.wrapping_sub(self.popped) as usize
    }

    /// Nothing waits. Asks the producer's index.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.shared.producer.position.load(order::observe()) == self.popped
    }

    /// The producer has been dropped. It may have pushed before: after a `true`, pop until nothing comes.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.shared.producer.gone.load(order::observe())
    }

    #[inline(always)]
    fn look(&mut self) {
        self.pushed_seen = self.shared.producer.position.load(order::observe());
    }

    #[inline(always)]
    fn take_next(&mut self) -> T {
        debug_assert_ne!(self.popped, self.pushed_seen);
        self.take()
    }

    /// Moves the oldest item out. Called only when one waits.
    #[inline(always)]
    fn take(&mut self) -> T {
        let item = self.shared.slot(self.popped).with(|slot| {
            // SAFETY: published and not yet popped, so it holds a value; the index moves on, so it is read once.
            unsafe { (*slot).assume_init_read() }
        });
        self.popped = self.popped.wrapping_add(1);
        item
    }

    #[inline(always)]
    fn give_back(&mut self) {
        let end = &self.shared.consumer;
        end.position.store(self.popped, order::publish());
    }
}

impl<T: Send> Drop for ItemConsumer<T> {
    fn drop(&mut self) {
        self.shared.consumer.gone.store(true, order::publish());
    }
}

impl<T: Send> fmt::Debug for ItemConsumer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ItemConsumer")
            .field("capacity", &self.shared.slots.len())
            .field("popped", &self.popped)
            .finish_non_exhaustive()
    }
}
