//! A block of zeroed memory, aligned to a cache line, that two threads divide between themselves by agreement. A child of the
//! process does not get it, unless it is smaller than a page.

use crate::pages::{InAChild, LEAST, Pages};
use crate::prefetch::{prefetch_line, prefetch_line_to_write};
use crate::primitive::Shadow;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::Range;
use std::ptr::NonNull;

const ALIGN: usize = 64;

/// Raw bytes. Always initialised; who may touch which range is the owner's protocol, hence the unsafe methods.
pub(crate) struct Block {
    bytes: NonNull<u8>,
    len: usize,
    /// Whose memory it is, if not the heap's.
    pages: Option<Pages>,
    shadow: Shadow,
}

// SAFETY: plain bytes without thread affinity; every access goes through an unsafe method that demands a right to it.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    /// `len` bytes, a positive multiple of 8.
    pub(crate) fn zeroed(len: usize) -> Self {
        let layout = Self::layout(len);
        let shadow = Shadow::new(len / 8);
        if len >= LEAST
            && let Some(pages) = Pages::zeroed(len, InAChild::Nothing)
        {
            return Self { bytes: pages.at(), len, pages: Some(pages), shadow };
        }
        // SAFETY: the layout's size is positive, `layout` has checked it.
        let Some(bytes) = NonNull::new(unsafe { alloc_zeroed(layout) }) else { handle_alloc_error(layout) };
        Self { bytes, len, pages: None, shadow }
    }

    /// Where the bytes lie, as addresses.
    pub(crate) fn memory(&self) -> Range<usize> {
        let from = self.bytes.as_ptr().addr();
        from..from + self.len
    }

    fn layout(len: usize) -> Layout {
        assert!(len > 0 && len.is_multiple_of(8), "a block is some whole words");
        Layout::from_size_align(len, ALIGN).expect("a block fits the address space")
    }

    #[inline(always)]
    fn check(&self, offset: usize, len: usize) {
        debug_assert!(offset + len <= self.len, "access outside the block");
    }

    /// Asks for the line that holds this byte.
    #[inline(always)]
    pub(crate) fn prefetch(&self, offset: usize) {
        prefetch_line(self.bytes.as_ptr().wrapping_add(offset));
    }

    /// Asks for the line that holds this byte, to be written.
    #[inline(always)]
    pub(crate) fn prefetch_to_write(&self, offset: usize) {
        prefetch_line_to_write(self.bytes.as_ptr().wrapping_add(offset));
    }

    /// # Safety
    /// The range is inside the block and nobody writes to it for as long as the slice lives.
    #[inline(always)]
    pub(crate) unsafe fn shared(&self, offset: usize, len: usize) -> &[u8] {
        self.check(offset, len);
        self.shadow.note_read(offset, len);
        // SAFETY: inside the allocation and initialised; unwritten while it lives, as the caller promises.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr().add(offset), len) }
    }

    /// # Safety
    /// The range is inside the block and nobody else touches it for as long as the slice lives.
    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "exclusiveness is the caller's promise")]
    pub(crate) unsafe fn exclusive(&self, offset: usize, len: usize) -> &mut [u8] {
        self.check(offset, len);
        self.shadow.note_write(offset, len);
        // SAFETY: inside the allocation and initialised; exclusive while it lives, as the caller promises.
        unsafe { std::slice::from_raw_parts_mut(self.bytes.as_ptr().add(offset), len) }
    }

    /// # Safety
    /// `offset` is a multiple of 8, the word is inside the block, and nobody writes to it at the same time.
    #[inline(always)]
    pub(crate) unsafe fn word(&self, offset: usize) -> u64 {
        self.check(offset, 8);
        self.shadow.note_read(offset, 8);
        // SAFETY: inside, aligned (the block is to 64, the offset to 8) and not being written, as the caller promises.
        unsafe { self.bytes.as_ptr().add(offset).cast::<u64>().read() }
    }

    /// # Safety
    /// `offset` is a multiple of 8, the word is inside the block, and nobody else touches it at the same time.
    #[inline(always)]
    pub(crate) unsafe fn set_word(&self, offset: usize, value: u64) {
        self.check(offset, 8);
        self.shadow.note_write(offset, 8);
        // SAFETY: inside, aligned and ours alone, as the caller promises.
        unsafe { self.bytes.as_ptr().add(offset).cast::<u64>().write(value) }
    }

    /// Two words, one behind the other.
    ///
    /// # Safety
    /// As [`set_word`](Self::set_word), of both.
    #[inline(always)]
    pub(crate) unsafe fn set_words(&self, offset: usize, values: [u64; 2]) {
        self.check(offset, 16);
        self.shadow.note_write(offset, 16);
        // SAFETY: inside, aligned and ours alone, as the caller promises.
        unsafe { self.bytes.as_ptr().add(offset).cast::<[u64; 2]>().write(values) }
    }

    /// Tells a model that the reads of this range end here (the slices were handed out earlier).
    #[inline(always)]
    pub(crate) fn end_of_reads(&self, offset: usize, len: usize) {
        self.shadow.note_read(offset, len);
    }

    /// Tells a model that the writes to this range end here.
    #[inline(always)]
    pub(crate) fn end_of_writes(&self, offset: usize, len: usize) {
        self.shadow.note_write(offset, len);
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.pages.is_none() {
            // SAFETY: allocated in `zeroed` with the same layout, and dropped once.
            unsafe { dealloc(self.bytes.as_ptr(), Self::layout(self.len)) }
        }
    }
}

#[cfg(all(test, not(miri), not(laneway_loom)))]
mod tests {
    use super::*;
    use crate::fork::in_a_child;

    #[test]
    fn a_child_has_no_part_in_a_block() {
        let block = Block::zeroed(8_192);
        // SAFETY: nobody else has it.
        unsafe { block.exclusive(0, 8_192) }.fill(7);
        // SAFETY: as above, and the child has no other thread.
        let seen = in_a_child(|| unsafe { block.shared(0, 8_192) }[0]);
        assert!(seen.is_err(), "a child has read {seen:?} in memory that is the parent's alone");
        // SAFETY: as above.
        assert_eq!(unsafe { block.shared(8_191, 1) }, [7]);
        // A short one lies among other things on the heap, which a child has: its own copy.
        let short = Block::zeroed(64);
        // SAFETY: as above.
        assert_eq!(in_a_child(|| unsafe { short.shared(0, 64) }[63]).expect("the child answers"), 0);
    }
}
