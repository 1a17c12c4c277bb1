//! A lock that many may share for looking and one may have for changing, and that a lone reader may try to upgrade.
//!
//! # How it is used
//!
//! ```
//! use laneway_sync::rw_lock::RwLock;
//! use laneway_sync::site;
//! let list = RwLock::<Vec<u32>>::new("list", vec![1]);
//! let reading = list.read(site!("look"));
//! assert_eq!(reading.len(), 1);
//! let mut writing = match reading.try_upgrade(site!("look, then change")) {
//!     Ok(writing) => writing,
//!     // Others look too: let go, wait, and look again, because anything may have changed in between.
//!     Err(reading) => {
//!         drop(reading);
//!         list.write(site!("change"))
//!     }
//! };
//! writing.push(2);
//! ```
//!
//! # Why not the obvious thing
//!
//! `std::sync::RwLock` cannot be upgraded, sleeps in the kernel, and cannot say who waited for whom. This one is here to be
//! measured: a baseline for what does without it. A reader still writes the word, and with it the line that all others need;
//! that is what makes readers of one lock on many cores as slow as writers.
//!
//! # Theory
//!
//! One word: the number of readers, and two bits. WRITER: somebody has it alone. WANTED: somebody waits to have it alone, so no
//! new reader comes in; without that bit a stream of readers would keep a writer out for ever. The writer that gets in clears
//! WANTED, and those that still wait set it again.
//!
//! # The bad interleavings
//!
//! ```text
//!   reader A                reader B
//!   read                    read
//!   upgrade: wait for B     upgrade: wait for A          ← so an upgrade is only tried; the loser lets go first
//!
//!   writer                               reader
//!   value := 2 (in the store buffer)
//!   word := 0                            takes the word, reads value: 1            ← the release must be Release
//!
//!   reader                               writer
//!   reads value (delayed)
//!   word := word - 1                     takes the word, value := 2; the read sees 2   ← a reader's release too
//! ```
//!
//! # Memory ordering
//!
//! * Taking it, either way, is Acquire: what the last writer did, and what readers saw, comes before.
//! * Giving it back, either way, is Release.
//! * An upgrade is Acquire: it comes after the releases of the readers that have left.
//! * WANTED is Relaxed: it decides nothing.

#[cfg(all(test, laneway_loom))]
mod loom;
#[cfg(all(test, not(laneway_loom)))]
mod tests;

use crate::met;
use crate::primitive::{AtomicU32, UnsafeCell, order, relax};
use crate::profiled_lock::Site;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering::Relaxed;

/// What a lock for readers and writers must do, so that [`RwLock`] and [`Profiled`](crate::profiled_lock::Profiled) can be
/// made of it.
///
/// # Safety
/// While somebody has it for writing nobody else has it at all; and what happened before an unlock happens before what follows
/// the next lock that it lets in.
pub unsafe trait RawRwLock {
    /// What a holder keeps until the end.
    type Held: Copy;

    /// Free. `class` is what the lock protects.
    fn new(class: &'static str) -> Self;
    /// Takes it for reading, if nobody has it for writing or waits for that.
    fn try_read(&self, site: &'static Site) -> Option<Self::Held>;
    /// Takes it for reading, whatever that costs.
    #[inline]
    fn read(&self, site: &'static Site) -> Self::Held {
        self.try_read(site).unwrap_or_else(|| self.wait_read(site))
    }
    /// The same after a [`try_read`](Self::try_read) that failed: one contended acquisition ([`met`]).
    fn wait_read(&self, site: &'static Site) -> Self::Held;
    /// Takes it for writing, if nobody has it.
    fn try_write(&self, site: &'static Site) -> Option<Self::Held>;
    /// Takes it for writing, whatever that costs.
    #[inline]
    fn write(&self, site: &'static Site) -> Self::Held {
        self.try_write(site).unwrap_or_else(|| self.wait_write(site))
    }
    /// The same after a [`try_write`](Self::try_write) that failed: one contended acquisition.
    fn wait_write(&self, site: &'static Site) -> Self::Held;
    /// Turns the only reader into the writer.
    ///
    /// # Safety
    /// The caller has it for reading, and `held` is of that; if it succeeds, `held` is void.
    unsafe fn try_upgrade(&self, held: Self::Held, site: &'static Site) -> Option<Self::Held>;
    /// Gives back a reader's share.
    ///
    /// # Safety
    /// The caller has it for reading, and `held` is of that.
    unsafe fn unlock_read(&self, held: Self::Held);
    /// Gives it back.
    ///
    /// # Safety
    /// The caller has it for writing, and `held` is of that.
    unsafe fn unlock_write(&self, held: Self::Held);
}

const WRITER: u32 = 1 << 31;
const WANTED: u32 = 1 << 30;
/// Shares that can be out at once. More are not held but forgotten.
const READERS_MAX: u32 = 1 << 29;

/// The bare lock.
pub struct SpinRwLock(AtomicU32);

// SAFETY: a writer returns only from an exchange of "no reader, no writer" (or "one reader", which is the caller) for WRITER;
// readers count themselves only while WRITER is not set, and never beyond what the count holds; the orders are those of the essay.
unsafe impl RawRwLock for SpinRwLock {
    type Held = ();

    fn new(_: &'static str) -> Self {
        SpinRwLock(AtomicU32::new(0))
    }

    #[inline]
    fn try_read(&self, _: &'static Site) -> Option<()> {
        let word = self.0.load(Relaxed);
        let free = word & (WRITER | WANTED) == 0;
        if free && word >= READERS_MAX {
            too_many();
        }
        (free && self.exchange(word, word + 1)).then_some(())
    }

    #[cold]
    #[inline(never)]
    fn wait_read(&self, site: &'static Site) {
        met::contended();
        let mut looks = 0;
        while self.try_read(site).is_none() {
            relax(looks);
            looks += 1;
        }
    }

    #[inline]
    fn try_write(&self, _: &'static Site) -> Option<()> {
        let word = self.0.load(Relaxed);
        let free = word & !WANTED == 0;
        (free && self.exchange(word, WRITER)).then_some(())
    }

    #[cold]
    #[inline(never)]
    fn wait_write(&self, site: &'static Site) {
        met::contended();
        let mut looks = 0;
        while self.try_write(site).is_none() {
            if self.0.load(Relaxed) & WANTED == 0 {
                self.0.fetch_or(WANTED, Relaxed);
            }
            relax(looks);
            looks += 1;
        }
    }

    #[inline]
    unsafe fn try_upgrade(&self, (): (), _: &'static Site) -> Option<()> {
        let word = self.0.load(Relaxed);
        let alone = word & !WANTED == 1;
        let upgraded = (word & WANTED) | WRITER;
        (alone && self.exchange(word, upgraded)).then_some(())
    }

    #[inline]
    unsafe fn unlock_read(&self, (): ()) {
        self.0.fetch_sub(1, order::publish());
    }

    #[inline]
    unsafe fn unlock_write(&self, (): ()) {
        self.0.fetch_and(!WRITER, order::publish());
    }
}

/// One more would be, in the end, one that the count cannot hold: it would run over into WANTED, and a writer would get in.
#[cold]
#[inline(never)]
fn too_many() -> ! {
    panic!("2^29 readers have a lock: somebody forgets what he has taken")
}

impl SpinRwLock {
    /// Takes it, unless the word has changed since it was looked at.
    #[inline]
    fn exchange(&self, word: u32, taken: u32) -> bool {
        let was = self.0.compare_exchange(word, taken, order::observe(), Relaxed).is_ok();
        if !was {
            met::retried();
        }
        was
    }
}

/// A value that many may look at, or one may change.
pub struct RwLock<T, L = SpinRwLock> {
    raw: L,
    value: UnsafeCell<T>,
}

// SAFETY: a `&RwLock` gives `&T` to several threads (so `T: Sync`) or `&mut T` to one (so `T: Send`), never both (`RawRwLock`'s
// contract).
unsafe impl<T: Send + Sync, L: RawRwLock + Sync> Sync for RwLock<T, L> {}

impl<T, L: RawRwLock> RwLock<T, L> {
    /// `class` is what the value is, for lists of locks.
    pub fn new(class: &'static str, value: T) -> Self {
        RwLock { raw: L::new(class), value: UnsafeCell::new(value) }
    }

    /// Waits until nobody changes the value. Not to be called by who has it already: a writer may wait in between.
    #[inline]
    pub fn read(&self, site: &'static Site) -> Reading<'_, T, L> {
        Reading { lock: self, held: self.raw.read(site) }
    }

    /// Waits until nobody else has the value.
    #[inline]
    pub fn write(&self, site: &'static Site) -> Writing<'_, T, L> {
        Writing { lock: self, held: self.raw.write(site) }
    }
}

/// The right to look.
#[must_use = "a guard that is dropped at once protects nothing"]
pub struct Reading<'a, T, L: RawRwLock = SpinRwLock> {
    lock: &'a RwLock<T, L>,
    held: L::Held,
}

impl<'a, T, L: RawRwLock> Reading<'a, T, L> {
    /// The right to change, if nobody else looks.
    pub fn try_upgrade(self, site: &'static Site) -> Result<Writing<'a, T, L>, Self> {
        let reading = ManuallyDrop::new(self);
        // SAFETY: the guard was made by whoever took the lock for reading; if this succeeds it is not dropped.
        match unsafe { reading.lock.raw.try_upgrade(reading.held, site) } {
            Some(held) => Ok(Writing { lock: reading.lock, held }),
            None => Err(ManuallyDrop::into_inner(reading)),
        }
    }
}

impl<T, L: RawRwLock> Deref for Reading<'_, T, L> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: while this guard lives nobody has the value for writing.
        self.lock.value.with(|value| unsafe { &*value })
    }
}

impl<T, L: RawRwLock> Drop for Reading<'_, T, L> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the guard was made by whoever took the lock for reading, and is dropped once.
        unsafe { self.lock.raw.unlock_read(self.held) }
    }
}

/// The right to change.
#[must_use = "a guard that is dropped at once protects nothing"]
pub struct Writing<'a, T, L: RawRwLock = SpinRwLock> {
    lock: &'a RwLock<T, L>,
    held: L::Held,
}

impl<T, L: RawRwLock> Deref for Writing<'_, T, L> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one.
        self.lock.value.with(|value| unsafe { &*value })
    }
}

impl<T, L: RawRwLock> DerefMut for Writing<'_, T, L> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the only one.
        self.lock.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T, L: RawRwLock> Drop for Writing<'_, T, L> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the guard was made by whoever took the lock for writing, and is dropped once.
        unsafe { self.lock.raw.unlock_write(self.held) }
    }
}
