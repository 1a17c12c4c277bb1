//! A reference count that many cores can take and give back without a loop, for objects that are freed after a grace
//! period.
//!
//! After `rcuref_t` of Linux 6.4 (Thomas Gleixner, "atomics: Provide rcuref - scalable reference counting", 2023), with
//! the correction of 2025 ("rcuref: Plug slowpath race in rcuref_put()").
//!
//! # How it is used
//!
//! ```
//! use laneway_sync::epoch;
//! use laneway_sync::rcuref::RcuRef;
//! struct Route { references: RcuRef, mtu: u32 }
//! let route = Route { references: RcuRef::new(1), mtu: 1500 }; // one: the table's
//!
//! // A reader has found the route in the table and wants to keep it longer than he is pinned.
//! assert!(route.references.get()); // false: it is dying, look again
//! assert_eq!(route.mtu, 1500);
//!
//! let (domain, _limbo) = epoch::Domain::new(/* seats */ 0);
//! let guard = domain.guard();
//! assert!(!route.references.put(&guard.pin())); // the reader's
//! assert!(route.references.put(&guard.pin())); // the table's: it was the last, now retire the route
//! assert!(!route.references.get()); // nobody can have it any more
//! ```
//!
//! # Why not the obvious thing
//!
//! `Arc` counts with an unconditional add as well, but whoever finds the object must already be sure that it lives. Where
//! it is found through a table that another core may be emptying, the add must fail at zero: `inc_not_zero`, a loop of
//! compare-exchange. When N cores are at it, of N attempts one succeeds, so the work grows with N², and the line with the
//! count travels for each failure. On 112 cores that was eight attempts for one reference (the measurement that led to
//! `rcuref`).
//!
//! Nor does this replace `Arc`: without a grace period the last `put` and the freeing could not be kept apart from a `get`
//! that is under way. That is why [`put`](RcuRef::put) wants a [`Pinned`]: with the pin held, nothing that could be found
//! when it was taken is freed.
//!
//! # Theory
//!
//! Both `get` and `put` add unconditionally, and look at what came out. The number is one less than the references, so
//! that the sign bit alone says whether there is anything to look after:
//!
//! ```text
//!   0x00000000 … 0x7fffffff   1 … 2³¹ references                                 (nothing to do)
//!   0x80000000 … 0xbfffffff   saturated: too many; never freed again             (marker 0xa0000000)
//!   0xc0000000 … 0xfffffffe   dead                                               (marker 0xe0000000)
//!   0xffffffff                NOREF: the last put was done, and nobody has yet declared it dead
//! ```
//!
//! A result in a wrong zone is repaired by storing the marker of the zone, from which 2²⁹ operations that race with the
//! repair do not lead out.
//!
//! | state | `get` | `put` |
//! |---|---|---|
//! | n references | n + 1, true | n − 1, false |
//! | one reference | 2, true | NOREF; tries NOREF → DEAD; whoever succeeds is told true, and frees |
//! | NOREF | one reference again, true: the put that led here fails to declare it dead | one too many: dead, false |
//! | dead | false, dead | one too many: dead, false |
//! | saturated | true, saturated | false, saturated |
//!
//! # The bad interleavings
//!
//! The deconstruction race, against which the pin is:
//!
//! ```text
//!   one                                  another
//!   put: NOREF
//!                                        get: one reference
//!                                        put: NOREF, declares it dead, true
//!                                        retires it; the grace period ends; frees it
//!   tries NOREF → DEAD in freed memory                                          ← pinned, this cannot be
//! ```
//!
//! The bug of 2023 to 2025: the slow way of `put` read the count again, instead of going by what its own subtraction gave:
//!
//! ```text
//!   put: NOREF
//!                                        get; put: NOREF, declares it dead, true
//!   reads DEAD: believes itself to be one put too many, and says so             ← a false alarm
//! ```
//!
//! # Memory ordering
//!
//! * `get` is Relaxed: whoever finds the object is given it by what he finds it in.
//! * `put` is Release, and the declaration of death is Release followed by an Acquire fence: what all the others did
//!   with the object before they gave it back comes before it is torn down.
//! * The repairs are Relaxed: they put back a value that says the same.

#[cfg(all(test, laneway_loom))]
mod loom;
#[cfg(all(test, not(laneway_loom)))]
mod tests;

use crate::epoch::Pinned;
use crate::primitive::{AtomicU32, order};
use std::fmt;
use std::sync::atomic::Ordering::Relaxed;

const MAXREF: u32 = 0x7fff_ffff;
const SATURATED: u32 = 0xa000_0000;
const RELEASED: u32 = 0xc000_0000;
const DEAD: u32 = 0xe000_0000;
const NOREF: u32 = 0xffff_ffff;

/// The count. It is as large as an integer and lies where it is put: give it a line that nobody reads for anything else.
pub struct RcuRef(AtomicU32);

impl RcuRef {
    /// Counts `references`, from 1 to 2³¹.
    ///
    /// # Panics
    /// If there are none, or too many.
    pub fn new(references: u32) -> Self {
        assert!((1..=MAXREF + 1).contains(&references), "an object begins with 1 to 2^31 references, not {references}");
        RcuRef(AtomicU32::new(references - 1))
    }

    /// One reference more. False: the object is dead, and whoever found it must look again.
    #[inline]
    #[must_use = "on false there is no reference"]
    pub fn get(&self) -> bool {
        let new = self.0.fetch_add(1, Relaxed).wrapping_add(1);
        new <= MAXREF || self.get_slow()
    }

    #[cold]
    fn get_slow(&self) -> bool {
        let value = self.0.load(Relaxed);
        if value >= RELEASED {
            self.0.store(DEAD, Relaxed);
            return false;
        }
        if value > MAXREF {
            // It leaks, which is better than being freed under somebody's hands.
            self.0.store(SATURATED, Relaxed);
        }
        true
    }

    /// One reference less. True: it was the last, the object is dead, and the caller must retire it, to be freed after a
    /// grace period. Exactly one caller is told so.
    #[inline]
    #[must_use = "on true the caller must retire the object"]
    pub fn put(&self, pinned: &Pinned<'_>) -> bool {
        let _ = pinned;
        // What is put into place is judged by what was there, and not by a second look. Asked in this way the processor's
        // flags say it without another subtraction.
        let old = self.0.fetch_sub(1, order::publish());
        old.cast_signed() <= 0 && self.put_slow(old.wrapping_sub(1))
    }

    #[cold]
    fn put_slow(&self, new: u32) -> bool {
        if new == NOREF {
            // Somebody may have taken a reference since, or have declared it dead: then it is his.
            let dead = self.0.compare_exchange(NOREF, DEAD, order::publish(), Relaxed).is_ok();
            if dead {
                order::observe_fence();
            }
            return dead;
        }
        self.0.store(if new >= RELEASED { DEAD } else { SATURATED }, Relaxed);
        debug_assert!(new < RELEASED, "a reference was given back that nobody had");
        false
    }

    /// How many references there are just now: 0 once the last was given back, even while a `get` may still revive it.
    pub fn read(&self) -> u32 {
        let value = self.0.load(Relaxed);
        if value >= RELEASED { 0 } else { value + 1 }
    }

    /// Nothing can revive it any more. Not the same as a `read` of 0.
    pub fn is_dead(&self) -> bool {
        (RELEASED..NOREF).contains(&self.0.load(Relaxed))
    }
}

impl fmt::Debug for RcuRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RcuRef").field("references", &self.read()).field("dead", &self.is_dead()).finish()
    }
}
