//! Owns memory that a child of the process is not given: pages of their own, so that the system can be told.
//!
//! A child has none of the threads that work with such memory, so it has no use for it. To leave it out spares the parent too: what is
//! shared with a child is copied page by page, at the next write of whoever comes first, and that would be a lane in the middle of
//! its work.

use crate::fork::Birth;
use std::ptr::NonNull;

const PROT_READ_WRITE: i32 = 1 | 2;
const MAP_PRIVATE_ANONYMOUS: i32 = 0x02 | 0x20;
const MADV_DONTFORK: i32 = 10;
const MADV_DONTDUMP: i32 = 16;
const MADV_WIPEONFORK: i32 = 18;

unsafe extern "C" {
    fn mmap(at: *mut u8, len: usize, protection: i32, flags: i32, fd: i32, offset: i64) -> *mut u8;
    fn munmap(at: *mut u8, len: usize) -> i32;
    fn madvise(at: *mut u8, len: usize, advice: i32) -> i32;
}

/// Less than this is not worth a page of its own.
pub(crate) const LEAST: usize = 4_096;

/// What a child finds in the place of these pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InAChild {
    /// No memory: who touches it is killed.
    Nothing,
    /// Zeroes. A dump of the process leaves such pages out too.
    Zeroes,
}

/// Zeroed memory, aligned to a page.
pub(crate) struct Pages {
    at: NonNull<u8>,
    len: usize,
    child: InAChild,
    birth: Birth,
}

impl Pages {
    /// At least `len` bytes; `None` if the system has none.
    pub(crate) fn zeroed(len: usize, child: InAChild) -> Option<Self> {
        if len == 0 || cfg!(miri) {
            return None;
        }
        // SAFETY: a new mapping at a place of the system's choice touches nothing that exists.
        let at = unsafe { mmap(std::ptr::null_mut(), len, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS, -1, 0) };
        if at.addr() == usize::MAX {
            return None;
        }
        let pages = Pages { at: NonNull::new(at)?, len, child, birth: Birth::here() };
        let advice: &[i32] = match child {
            InAChild::Nothing => &[MADV_DONTFORK],
            InAChild::Zeroes => &[MADV_WIPEONFORK, MADV_DONTDUMP],
        };
        for advice in advice {
            // SAFETY: our own mapping, of which nothing is said that changes what this process finds in it. A system that does not
            // know the advice leaves a child a copy, as of all other memory.
            let _ = unsafe { madvise(at, len, *advice) };
        }
        Some(pages)
    }

    /// The first byte.
    #[inline]
    pub(crate) fn at(&self) -> NonNull<u8> {
        self.at
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // A child has nothing there, and its system may have put something else in the place since.
        if self.child == InAChild::Nothing && !self.birth.is_here() {
            return;
        }
        // SAFETY: mapped in `zeroed` with this length, in this process or in one of which it has a copy, and unmapped once.
        let _ = unsafe { munmap(self.at.as_ptr(), self.len) };
    }
}

// SAFETY: memory without thread affinity; who may touch it is the owner's business.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

#[cfg(all(test, not(miri), not(laneway_loom)))]
mod tests {
    use super::*;
    use crate::fork::in_a_child;

    /// Where the parent has pages, a child has nothing, and its system may put something there.
    #[test]
    fn a_child_keeps_what_it_has_put_in_the_place() {
        const LEN: usize = 1 << 20;
        let pages = Pages::zeroed(LEN, InAChild::Nothing).expect("a mebibyte");
        let place = pages.at().as_ptr();
        let answer = in_a_child(move || {
            // SAFETY: a new mapping; the place is a wish, which the system grants only if nothing is there.
            let its = unsafe { mmap(place, LEN, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS, -1, 0) };
            if its != place {
                return 1;
            }
            // SAFETY: the child's own, and as long as this.
            unsafe { its.write(7) };
            drop(pages);
            // SAFETY: as above: who has not mapped it does not unmap it.
            unsafe { its.read() }
        });
        assert_eq!(answer.expect("the child was not killed"), 7);
    }
}
