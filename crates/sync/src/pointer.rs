//! Owns what lists and rings ask of a pointer: that it can be a bare address while it lies in one.
//!
//! For types of this crate and `Arc`: a list relies on getting back exactly what it was given.

use crate::primitive::Arc;
use std::ops::Deref;

/// Owns a reference, and can be an address for a while.
pub trait Pointer: Deref<Target = <Self as Pointer>::Target> + Clone {
    /// What it points to.
    type Target;

    /// The address; the reference is the caller's to keep.
    fn into_bare(self) -> *mut <Self as Pointer>::Target;

    /// # Safety
    /// From [`into_bare`](Self::into_bare), and once.
    unsafe fn from_bare(bare: *mut <Self as Pointer>::Target) -> Self;
}

/// A pointer and a word that goes with it.
pub struct Bare<P: Pointer> {
    /// The address.
    pub pointer: *mut <P as Pointer>::Target,
    /// What its type has to say to whoever gets it.
    pub word: u64,
}

/// Something that one thread hands to another.
pub trait Carried: Pointer {
    /// Just before it is handed over.
    fn pack(self) -> Bare<Self> {
        Bare { pointer: self.into_bare(), word: 0 }
    }

    /// By whoever got it.
    ///
    /// # Safety
    /// From [`pack`](Self::pack), and once.
    unsafe fn unpack(bare: Bare<Self>) -> Self {
        // SAFETY: as the caller promises.
        unsafe { Self::from_bare(bare.pointer) }
    }
}

impl<T> Pointer for Arc<T> {
    type Target = T;
    #[inline]
    fn into_bare(self) -> *mut T {
        Arc::into_raw(self).cast_mut()
    }
    #[inline]
    unsafe fn from_bare(bare: *mut T) -> Self {
        // SAFETY: from `Arc::into_raw`, and once, as the caller promises.
        unsafe { Arc::from_raw(bare) }
    }
}

impl<T> Carried for Arc<T> {}
