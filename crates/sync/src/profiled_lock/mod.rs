//! A lock that remembers, for each place that takes it, how often, for how long, how long it was waited for, and for whom.
//!
//! # How it is used
//!
//! ```
//! use laneway_sync::bucket_lock::{BucketLock, Lock};
//! use laneway_sync::profiled_lock::{Profiled, rows};
//! use laneway_sync::site;
//! // The type is the switch: `Lock<u32>` is not profiled, and costs nothing for that.
//! let value = Lock::<u32, Profiled<BucketLock>>::new("counter", 0);
//! for _ in 0..3 {
//!     *value.lock(site!("count one more")) += 1;
//! }
//! let row = rows().into_iter().find(|row| row.why == "count one more").expect("the site has been passed");
//! assert_eq!((row.count, row.cnt_lock), (3, 0));
//! assert!(row.name.ends_with("(counter)"));
//! ```
//!
//! [`rows`] has the nine columns of FreeBSD's `debug.lock.prof.stats` (LOCK_PROFILING(9)), in its order and its unit, one
//! row for each place in the source; [`Table`] prints them. [`meetings`] says which place waited for which: "the other
//! party of this contention", which the nine columns cannot name.
//!
//! # Why not the obvious thing
//!
//! A sampling profiler shows the waiter, who is on a core, and not the holder, who is why. Counting in the lock itself
//! says that it is contended and not by what. And a profiler that is a flag would have to be asked at each lock.
//!
//! # Theory
//!
//! Each place has a [`Site`], a static made by [`site!`](crate::site). The first time that it takes a profiled lock it
//! is given a number and 64 cells, one for each thread (by turns, if there are more), on lines of their own, so that
//! counting makes no contention where there was none. The lock notes the number of the site that holds it. Whoever
//! finds the lock held reads that note, and enters his wait in a matrix under (himself, the holder).
//!
//! The note may be one holder old, since it is read without the lock: a meeting is then entered for the holder before.
//! Waits that see several holders are entered for the first. Sums are exact.
//!
//! Profiling costs two looks at the clock an acquisition and makes what is held be held for longer: rates that were
//! measured with it are not to be quoted.
//!
//! # Memory ordering
//!
//! All of it is Relaxed. The numbers are sums and greatest values, each by itself; the lock beneath orders what it
//! protects, and is not touched otherwise. `holder` and `since` are written by the holder alone; a waiter's read of
//! `holder` may be stale, and is a name, not a pointer.

#[cfg(all(test, laneway_loom))]
mod loom;
mod record;
mod site;
mod table;
#[cfg(all(test, not(laneway_loom)))]
mod tests;

pub use record::{Meeting, meetings, reset, rows};
pub use site::Site;
pub use table::{Row, Table};

use crate::bucket_lock::RawLock;
use crate::primitive::AtomicU32;
use crate::rw_lock::RawRwLock;
use record::Record;
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// What the time is, for profiles.
pub trait Clock {
    /// Nanoseconds since some moment.
    fn now_ns() -> u64;
}

/// The machine's monotonic clock.
pub struct Monotonic;

impl Clock for Monotonic {
    fn now_ns() -> u64 {
        static BASE: OnceLock<Instant> = OnceLock::new();
        BASE.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }
}

/// Any lock, with a profile of it.
pub struct Profiled<L, C = Monotonic> {
    inner: L,
    class: &'static str,
    /// The number of the site that holds it, or held it last; 0 before the first.
    holder: AtomicU32,
    /// Who came while it was held, since it was last given back.
    arrived: AtomicU32,
    /// When it was taken.
    since: AtomicU64,
    clock: PhantomData<fn() -> C>,
}

// SAFETY: `try_lock`, `wait` and `unlock` each call the inner lock's once; all else is counting.
unsafe impl<L: RawLock, C: Clock> RawLock for Profiled<L, C> {
    fn new(class: &'static str) -> Self {
        Profiled {
            inner: L::new(class),
            class,
            holder: AtomicU32::new(0),
            arrived: AtomicU32::new(0),
            since: AtomicU64::new(0),
            clock: PhantomData,
        }
    }

    fn try_lock(&self, site: &'static Site) -> bool {
        let taken = self.inner.try_lock(site);
        if taken {
            self.taken(site.record(self.class));
        }
        taken
    }

    fn wait(&self, site: &'static Site) {
        let record = site.record(self.class);
        let holder = self.holder.load(Relaxed);
        self.arrived.fetch_add(1, Relaxed);
        let began = C::now_ns();
        self.inner.wait(site);
        record.on_wait(holder, C::now_ns().saturating_sub(began));
        self.taken(record);
    }

    unsafe fn unlock(&self) {
        let held = C::now_ns().saturating_sub(self.since.load(Relaxed));
        let arrived = self.arrived.swap(0, Relaxed);
        if let Some(record) = Record::of(self.holder.load(Relaxed)) {
            record.on_release(held, arrived);
        }
        // SAFETY: the caller holds it.
        unsafe { self.inner.unlock() }
    }
}

/// A holder's share of a profiled lock for readers and writers: whose, and since when.
#[derive(Clone, Copy)]
pub struct Share<H> {
    inner: H,
    record: &'static Record,
    since: u64,
}

// SAFETY: each method calls the inner lock's of the same name once; all else is counting.
unsafe impl<L: RawRwLock, C: Clock> RawRwLock for Profiled<L, C> {
    type Held = Share<L::Held>;

    fn new(class: &'static str) -> Self {
        Profiled {
            inner: L::new(class),
            class,
            holder: AtomicU32::new(0),
            arrived: AtomicU32::new(0),
            since: AtomicU64::new(0),
            clock: PhantomData,
        }
    }

    fn try_read(&self, site: &'static Site) -> Option<Self::Held> {
        self.inner.try_read(site).map(|inner| self.shared(inner, site.record(self.class)))
    }

    fn wait_read(&self, site: &'static Site) -> Self::Held {
        self.waited(site, L::wait_read)
    }

    fn try_write(&self, site: &'static Site) -> Option<Self::Held> {
        self.inner.try_write(site).map(|inner| self.shared(inner, site.record(self.class)))
    }

    fn wait_write(&self, site: &'static Site) -> Self::Held {
        self.waited(site, L::wait_write)
    }

    unsafe fn try_upgrade(&self, held: Self::Held, site: &'static Site) -> Option<Self::Held> {
        // SAFETY: the caller has it for reading.
        let inner = unsafe { self.inner.try_upgrade(held.inner, site) }?;
        held.record.on_release(C::now_ns().saturating_sub(held.since), 0);
        Some(self.shared(inner, site.record(self.class)))
    }

    unsafe fn unlock_read(&self, held: Self::Held) {
        self.left(&held);
        // SAFETY: the caller has it for reading.
        unsafe { self.inner.unlock_read(held.inner) }
    }

    unsafe fn unlock_write(&self, held: Self::Held) {
        self.left(&held);
        // SAFETY: the caller has it for writing.
        unsafe { self.inner.unlock_write(held.inner) }
    }
}

impl<L: RawRwLock, C: Clock> Profiled<L, C> {
    fn shared<H>(&self, inner: H, record: &'static Record) -> Share<H> {
        self.holder.store(record.number(), Relaxed);
        record.on_take();
        Share { inner, record, since: C::now_ns() }
    }

    fn waited<H>(&self, site: &'static Site, wait: impl FnOnce(&L, &'static Site) -> H) -> Share<H> {
        let record = site.record(self.class);
        let holder = self.holder.load(Relaxed);
        self.arrived.fetch_add(1, Relaxed);
        let began = C::now_ns();
        let inner = wait(&self.inner, site);
        record.on_wait(holder, C::now_ns().saturating_sub(began));
        self.shared(inner, record)
    }

    fn left<H>(&self, held: &Share<H>) {
        held.record.on_release(C::now_ns().saturating_sub(held.since), self.arrived.swap(0, Relaxed));
    }
}

impl<L: RawLock, C: Clock> Profiled<L, C> {
    fn taken(&self, record: &'static Record) {
        self.holder.store(record.number(), Relaxed);
        self.since.store(C::now_ns(), Relaxed);
        record.on_take();
    }
}
