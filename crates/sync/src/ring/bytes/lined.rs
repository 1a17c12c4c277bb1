//! Owns where a conversation lies: on lines of its own, in memory of which the heap was not told so.
//!
//! A heap that is asked for an alignment beyond its own looks for a place in something larger and keeps what is left beside it:
//! glibc's (2.36) takes 459 bytes for each of ten thousand values of 320 that lie on a line. Of one that is asked for 48 more, and for
//! no alignment, it takes 384.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// What every heap aligns to.
const ALIGN: usize = 16;

/// As much as a `T`, and what is needed to align it.
fn layout<T>() -> Layout {
    const { assert!(align_of::<T>() - ALIGN < 256, "the way back to the beginning is a byte") };
    // A type is smaller than the address space by much more than an alignment.
    #[expect(clippy::expect_used, reason = "of a type that exists")]
    Layout::from_size_align(size_of::<T>() + align_of::<T>() - ALIGN, ALIGN).expect("a value fits the address space")
}

/// A place for a `T`, not written yet, and how far behind the beginning of its memory it lies.
pub(super) fn place<T>() -> (NonNull<T>, u8) {
    let layout = layout::<T>();
    // SAFETY: the layout has a size, as a value on a line does.
    let Some(begin) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
    let behind = begin.addr().get().next_multiple_of(align_of::<T>()) - begin.addr().get();
    // SAFETY: what lies before an aligned place is at most what was asked for beyond the size of a `T`.
    (unsafe { begin.add(behind) }.cast(), behind as u8)
}

/// Drops what lies there and gives its memory back.
///
/// # Safety
/// Both are from [`place`], a `T` has been written there, and nobody uses it any more.
pub(super) unsafe fn give_back<T>(at: NonNull<T>, behind: u8) {
    // SAFETY: as the caller promises.
    unsafe {
        at.drop_in_place();
        dealloc(at.cast::<u8>().sub(behind as usize).as_ptr(), layout::<T>());
    }
}
