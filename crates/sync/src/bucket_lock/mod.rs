//! A lock of four bytes for things that are held for a few dozen instructions, such as one bucket of a table.
//!
//! # How it is used
//!
//! ```
//! use laneway_sync::bucket_lock::{Bucket, BucketLock};
//! use laneway_sync::site;
//! let buckets: Vec<Bucket<Vec<u32>>> = (0..8).map(|_| Bucket::new("reservations", Vec::new())).collect();
//! buckets[3].lock(site!("reserve")).push(7); // the guard is gone at the end of the statement
//! assert_eq!(*buckets[3].lock(site!("list")), [7]);
//! ```
//!
//! [`BucketLock`] is the bare lock, a [`RawLock`]; [`Bucket`] is a value and its lock on a cache line of their own.
//! [`Lock`] is the same without the line, for values that are padded already or stand alone.
//!
//! # Why not the obvious thing
//!
//! `std::sync::Mutex` has four bytes too, and sleeps in the kernel when it is contended. What a bucket protects is held
//! for less time than it takes to fall asleep, and whoever waits for it has a queue of packets behind it. And a table of
//! `Mutex<T>` puts as many locks on one line as fit: illumos once had four of the locks of one such table on each, and cores
//! that worked on different buckets wrote the same line. A [`Bucket`] is as large as its line, always.
//!
//! # Theory
//!
//! Test and test-and-set: whoever finds the word held reads it (which every core can do in its own cache) until it is
//! free, and only then tries to write. After 128 looks the holder is thought to have lost its core, and the waiter gives
//! its own away for a while: on a machine with fewer cores than threads, spinning on would keep the holder from running.
//!
//! It is not fair: a waiter can be overtaken. Where a queue matters, this is the wrong lock.
//!
//! # The bad interleavings
//!
//! ```text
//!   holder                               next
//!   value := 2 (in the store buffer)
//!   word := FREE                         takes the word
//!                                        reads value: 1                        ← the release must be Release
//!
//!                                        reads value: 1 (speculated)
//!   value := 2; word := FREE
//!                                        takes the word, believes 1            ← the take must be Acquire
//! ```
//!
//! # Memory ordering
//!
//! * FREE → HELD is Acquire: everything that the last holder did comes before what this one does.
//! * HELD → FREE is Release, a plain store: nobody else writes the word while it is held.
//! * The looks while waiting are Relaxed: they decide nothing, the take does.

#[cfg(all(test, laneway_loom))]
mod loom;
#[cfg(all(test, not(laneway_loom)))]
mod tests;

use crate::met;
use crate::primitive::{AtomicU32, UnsafeCell, order, relax};
use crate::profiled_lock::Site;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering::Relaxed;

/// What a lock must do, so that [`Lock`] and [`Profiled`](crate::profiled_lock::Profiled) can be made of it.
///
/// # Safety
/// Between a `lock` or `wait` (or a `try_lock` that was true) and its `unlock` no other `lock` returns and no other `try_lock` is
/// true; and what happened before an `unlock` happens before what follows the next `lock`.
pub unsafe trait RawLock {
    /// Free. `class` is what the lock protects, the same for all locks of a table.
    fn new(class: &'static str) -> Self;

    /// Takes it if it is free.
    fn try_lock(&self, site: &'static Site) -> bool;

    /// Takes it, whatever that costs.
    #[inline]
    fn lock(&self, site: &'static Site) {
        if !self.try_lock(site) {
            self.wait(site);
        }
    }

    /// Takes it after a [`try_lock`](Self::try_lock) that failed: one contended acquisition ([`met`]).
    fn wait(&self, site: &'static Site);

    /// Gives it back.
    ///
    /// # Safety
    /// The caller holds it.
    unsafe fn unlock(&self);
}

const FREE: u32 = 0;
const HELD: u32 = 1;

/// The bare lock.
pub struct BucketLock(AtomicU32);

// SAFETY: only the thread that moved the word from FREE to HELD returns from `lock`, and the word is FREE again only after
// its `unlock`; the orders are those of the essay, and the model fails without either.
unsafe impl RawLock for BucketLock {
    fn new(_: &'static str) -> Self {
        BucketLock(AtomicU32::new(FREE))
    }

    #[inline]
    fn try_lock(&self, _: &'static Site) -> bool {
        self.0.compare_exchange(FREE, HELD, order::observe(), Relaxed).is_ok()
    }

    #[cold]
    #[inline(never)]
    fn wait(&self, site: &'static Site) {
        met::contended();
        let mut looks = 0;
        loop {
            if self.0.load(Relaxed) == FREE {
                if self.try_lock(site) {
                    return;
                }
                met::retried();
            }
            relax(looks);
            looks += 1;
        }
    }

    #[inline]
    unsafe fn unlock(&self) {
        self.0.store(FREE, order::publish());
    }
}

/// A value that one thread at a time may touch.
pub struct Lock<T, L = BucketLock> {
    raw: L,
    value: UnsafeCell<T>,
}

// SAFETY: a `&Lock` gives access to the value only through a guard, of which there is one at a time (`RawLock`'s
// contract); handing the value from thread to thread needs `T: Send`.
unsafe impl<T: Send, L: RawLock + Sync> Sync for Lock<T, L> {}

impl<T, L: RawLock> Lock<T, L> {
    /// `class` is what the value is, for lists of locks.
    pub fn new(class: &'static str, value: T) -> Self {
        Lock { raw: L::new(class), value: UnsafeCell::new(value) }
    }

    /// Waits for the value. `site` says who wants it, and why: [`site!`](crate::site).
    #[inline]
    pub fn lock(&self, site: &'static Site) -> Guard<'_, T, L> {
        self.raw.lock(site);
        Guard { lock: self, _here: PhantomData }
    }

    /// The value, if nobody else has it.
    #[inline]
    pub fn try_lock(&self, site: &'static Site) -> Option<Guard<'_, T, L>> {
        self.raw.try_lock(site).then(|| Guard { lock: self, _here: PhantomData })
    }

    #[cfg(all(test, not(laneway_loom)))]
    pub(crate) fn raw(&self) -> &L {
        &self.raw
    }

    /// The value: whoever has the lock mutably is alone with it.
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: `&mut self` is proof that there is no guard.
        self.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T, L> fmt::Debug for Lock<T, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").finish_non_exhaustive()
    }
}

/// The right to touch what a [`Lock`] protects. Dropping it gives the lock back, in a panic too: what it protects must
/// be whole between any two statements that can panic.
#[must_use = "a guard that is dropped at once protects nothing"]
pub struct Guard<'a, T, L: RawLock = BucketLock> {
    lock: &'a Lock<T, L>,
    /// Neither `Send` nor `Sync` by itself. A reference to a lock may be shared if its value may be sent; one to a guard shows the value.
    /// And a lock is given back where it was taken: whoever counts who waits for whom counts by thread.
    _here: PhantomData<*const ()>,
}

// SAFETY: a `&Guard` gives `&T` to several threads, so `T: Sync`; nobody has `&mut T` meanwhile, which only a `&mut Guard` gives.
unsafe impl<T: Sync, L: RawLock + Sync> Sync for Guard<'_, T, L> {}

impl<T, L: RawLock> Deref for Guard<'_, T, L> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one.
        self.lock.value.with(|value| unsafe { &*value })
    }
}

impl<T, L: RawLock> DerefMut for Guard<'_, T, L> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the only one.
        self.lock.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T, L: RawLock> Drop for Guard<'_, T, L> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the guard was made by whoever took the lock, and is dropped once.
        unsafe { self.lock.raw.unlock() }
    }
}

/// A value and its lock on lines of their own: 64 bytes, so that a bucket is one line, or a multiple.
#[repr(align(64))]
pub struct Bucket<T, L = BucketLock>(Lock<T, L>);

const _: () = assert!(size_of::<Bucket<u64>>() == 64 && align_of::<Bucket<u64>>() == 64);

impl<T, L: RawLock> Bucket<T, L> {
    /// See [`Lock::new`].
    pub fn new(class: &'static str, value: T) -> Self {
        Bucket(Lock::new(class, value))
    }
}

impl<T, L> Deref for Bucket<T, L> {
    type Target = Lock<T, L>;
    #[inline]
    fn deref(&self) -> &Lock<T, L> {
        &self.0
    }
}

impl<T, L> DerefMut for Bucket<T, L> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Lock<T, L> {
        &mut self.0
    }
}
