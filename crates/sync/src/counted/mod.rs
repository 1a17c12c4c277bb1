//! An object that many find through a table and each keeps for a while, with the count of those who keep it beside it or
//! on a line of its own.
//!
//! # How it is used
//!
//! ```
//! use laneway_sync::counted::Shared;
//! use laneway_sync::epoch::Domain;
//! use laneway_sync::rcuref::RcuRef;
//! let (domain, mut limbo) = Domain::new(/* seats */ 1);
//! let mut seat = Domain::seat(&domain).expect("there is one");
//! seat.online();
//! let entry = Shared::<u32, RcuRef>::new(&domain, 1500); // the table's reference
//! let (held, _) = entry.get().expect("the table's reference keeps it alive");
//! drop(entry); // the table has another now
//! assert_eq!(*held, 1500);
//! held.put(&seat.pin()); // it was the last
//! assert_eq!(limbo.collect(), 0); // the seat may still look
//! seat.quiescent();
//! assert_eq!(limbo.collect(), 1);
//! ```
//!
//! # Why not the obvious thing
//!
//! `Arc` keeps its counts before the value, in the value's first line, and leaves no choice of how it counts. What is to be
//! compared here are exactly these two choices: how to count ([`Count`]: [`RcuRef`], or [`CasRef`] as everybody did
//! before), and where (`C`, or [`Padded<C>`](Padded)).
//!
//! # Theory
//!
//! The value comes first, then the count. Without padding, and for values of up to 48 bytes, both are in one line of 64
//! bytes: whoever reads a field waits for whoever counts. With [`Padded`] the count is 128 bytes further on.
//!
//! [`Shared`] is the table's reference; [`Held`] is one that was taken through it, and keeps the object alive without a
//! borrow of anything. The last to be given back leaves the object to the [`Domain`], which frees it after a grace period.
//! A `Held` that is dropped and not given back is never freed: giving it back needs a pin, which a drop does not have.
//!
//! # The bad interleavings
//!
//! ```text
//!   the table's owner                    a reader
//!   put: 1 → 0, frees
//!                                        get: 0 → 1, reads what was freed      ← CasRef: never from 0
//!                                        (RcuRef: see there)
//!
//!   put: 1 → 0, tears down
//!   (its core still waits for            last use of the value, put: 2 → 1
//!   the reader's writes)                                                       ← Release at each put, an
//!                                                                                Acquire fence after the last
//! ```
//!
//! # Memory ordering
//!
//! * `get` is Relaxed: whoever finds the object was given it by what he found it in.
//! * `put` is Release; the one that comes to zero has an Acquire fence behind it.

#[cfg(all(test, laneway_loom))]
mod loom;
#[cfg(all(test, not(laneway_loom)))]
mod tests;

use crate::epoch::{Domain, Pinned};
use crate::met;
use crate::padded::Padded;
use crate::primitive::{Arc, AtomicU32, order};
use crate::rcuref::RcuRef;
use std::fmt;
use std::mem::offset_of;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::Relaxed;

/// A way of counting references.
pub trait Count: Send + Sync + 'static {
    /// One reference.
    fn one() -> Self;

    /// One more, and how many attempts were in vain. `None`: the object is dead, look again.
    fn get(&self) -> Option<u32>;

    /// One less. True: it was the last, and the caller must see to the object's end.
    fn put(&self, pinned: &Pinned<'_>) -> bool;
}

impl Count for RcuRef {
    fn one() -> Self {
        RcuRef::new(1)
    }
    #[inline]
    fn get(&self) -> Option<u32> {
        RcuRef::get(self).then_some(0)
    }
    #[inline]
    fn put(&self, pinned: &Pinned<'_>) -> bool {
        RcuRef::put(self, pinned)
    }
}

impl<C: Count> Count for Padded<C> {
    fn one() -> Self {
        Padded(C::one())
    }
    #[inline]
    fn get(&self) -> Option<u32> {
        self.0.get()
    }
    #[inline]
    fn put(&self, pinned: &Pinned<'_>) -> bool {
        self.0.put(pinned)
    }
}

/// As Linux counted routes until 6.4: a loop of compare-exchange that adds one to anything but zero, and a subtraction
/// that says what came out. Of N cores that try at once, one succeeds, and the others have fetched the line in vain.
pub struct CasRef(AtomicU32);

/// More references than this are a leak, and one more is refused aloud before the number comes round.
const CAS_MOST: u32 = 1 << 31;

impl Count for CasRef {
    fn one() -> Self {
        CasRef(AtomicU32::new(1))
    }

    #[inline]
    fn get(&self) -> Option<u32> {
        let mut retries = 0;
        let mut value = self.0.load(Relaxed);
        loop {
            if value == 0 {
                return None;
            }
            assert!(value < CAS_MOST, "2^31 references to one object are a leak");
            match self.0.compare_exchange(value, value + 1, Relaxed, Relaxed) {
                Ok(_) => return Some(retries),
                Err(now) => value = now,
            }
            met::retried();
            retries += 1;
        }
    }

    #[inline]
    fn put(&self, pinned: &Pinned<'_>) -> bool {
        let _ = pinned;
        let last = self.0.fetch_sub(1, order::publish()) == 1;
        if last {
            order::observe_fence();
        }
        last
    }
}

impl fmt::Debug for CasRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CasRef").field(&self.0.load(Relaxed)).finish()
    }
}

/// The object. It begins a line, so that what its offsets say of lines is true.
#[repr(C, align(64))]
struct Inner<T, C> {
    value: T,
    /// Whose grace period it is freed after: compared, and never followed.
    domain: *const Domain,
    count: C,
}

// SAFETY: the pointer is compared and never followed; the rest is shared as far as its own types allow.
unsafe impl<T: Send + Sync, C: Count> Send for Inner<T, C> {}

/// The reference of whatever the object is found in.
pub struct Shared<T: Send + Sync + 'static, C: Count> {
    inner: NonNull<Inner<T, C>>,
    domain: Arc<Domain>,
}

// SAFETY: it hands out `&T` and `Held`, to any thread, and whichever thread is last drops the value.
unsafe impl<T: Send + Sync, C: Count> Send for Shared<T, C> {}
// SAFETY: as above; the count is made for that.
unsafe impl<T: Send + Sync, C: Count> Sync for Shared<T, C> {}

impl<T: Send + Sync, C: Count> Shared<T, C> {
    /// Where the count is, in bytes from the beginning of the value, which begins a line.
    pub const COUNT_AT: usize = offset_of!(Inner<T, C>, count);

    /// An object with one reference, to be freed after a grace period of `domain`.
    pub fn new(domain: &Arc<Domain>, value: T) -> Self {
        let inner = Box::new(Inner { value, domain: &raw const **domain, count: C::one() });
        Shared { inner: NonNull::from(Box::leak(inner)), domain: domain.clone() }
    }

    /// A reference of one's own, and how many attempts at it were in vain. `None`: the object is dead, look again.
    #[inline]
    pub fn get(&self) -> Option<(Held<T, C>, u32)> {
        // SAFETY: the reference that this is keeps the object alive.
        let retries = unsafe { self.inner.as_ref() }.count.get()?;
        Some((Held { inner: self.inner }, retries))
    }
}

impl<T: Send + Sync, C: Count> Deref for Shared<T, C> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the reference that this is keeps the object alive.
        &unsafe { self.inner.as_ref() }.value
    }
}

impl<T: Send + Sync, C: Count> Drop for Shared<T, C> {
    fn drop(&mut self) {
        let guard = self.domain.guard();
        Held { inner: self.inner }.put(&guard.pin());
    }
}

impl<T: Send + Sync + fmt::Debug, C: Count> fmt::Debug for Shared<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shared").field(&**self).finish()
    }
}

/// A reference that was taken. It must be [put](Self::put); dropped, it keeps the object for ever.
#[must_use = "a reference that is not given back keeps its object for ever"]
pub struct Held<T: Send + Sync + 'static, C: Count> {
    inner: NonNull<Inner<T, C>>,
}

// SAFETY: it hands out `&T`, and whichever thread is last drops the value.
unsafe impl<T: Send + Sync, C: Count> Send for Held<T, C> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync, C: Count> Sync for Held<T, C> {}

impl<T: Send + Sync, C: Count> Held<T, C> {
    /// Gives it back. The last one leaves the object to the domain, to be freed after a grace period.
    ///
    /// # Panics
    /// If the pin is another domain's than the object's.
    #[inline]
    pub fn put(self, pinned: &Pinned<'_>) {
        // SAFETY: the reference that this is keeps the object alive, and the pin keeps its memory until the end of this call.
        let inner = unsafe { self.inner.as_ref() };
        assert!(std::ptr::eq(inner.domain, pinned.domain()), "pinned in another domain");
        if inner.count.put(pinned) {
            // SAFETY: it came from a box; exactly one `put` is told that it was the last, and nobody gets one any more.
            pinned.domain().leave(unsafe { Box::from_raw(self.inner.as_ptr()) });
        }
    }
}

impl<T: Send + Sync, C: Count> Deref for Held<T, C> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the reference that this is keeps the object alive.
        &unsafe { self.inner.as_ref() }.value
    }
}
