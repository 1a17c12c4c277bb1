//! One bucket of a hash table, exactly one cache line; and the array of them.
//!
//! A bucket holds ten handles, each with a 16-bit tag of its hash, so that a look-up compares ten tags at once and asks
//! the caller (who holds the keys) only about handles whose tag matches: one time in 65536 in vain.
//!
//! The unsafe code of this crate is here: the array is allocated by hand, because it must be
//! aligned to lines *and* zeroed lazily by the operating system, and the global allocator does only one at a time. What it asks of the operating system
//! beyond that is huge pages for a large array, because it is read at random.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::ptr::NonNull;

/// Handles per bucket.
pub(crate) const SLOTS: usize = 10;

/// A tag says "empty" when it is zero; [`tag_of`] never returns that.
const EMPTY: u16 = 0;

/// The tag of a hash: its upper 16 bits, but never zero. The lower bits choose the bucket.
#[inline(always)]
pub(crate) const fn tag_of(hash: u64) -> u16 {
    let tag = (hash >> 48) as u16;
    tag | (tag == EMPTY) as u16
}

#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Bucket {
    tags: [u16; SLOTS],
    /// How many entries wanted to be here or passed through, found no room, and live in a later bucket. At `u16::MAX`
    /// it has lost count and stays there.
    overflow: u16,
    _spare: u16,
    handles: [u32; SLOTS],
}

const _: () = assert!(size_of::<Bucket>() == 64 && align_of::<Bucket>() == 64);

/// A set of slots, one bit each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slots(u32);

impl Slots {
    pub(crate) const ALL: u32 = (1 << SLOTS) - 1;

    /// The lowest slot of the set.
    #[inline(always)]
    pub(crate) fn first(self) -> Option<usize> {
        (self.0 != 0).then(|| self.0.trailing_zeros() as usize)
    }
}

impl Iterator for Slots {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        let slot = self.first()?;
        self.0 &= self.0 - 1;
        Some(slot)
    }
}

impl Bucket {
    /// The slots whose tag is `tag`, exactly.
    #[inline(always)]
    pub(crate) fn matching(&self, tag: u16) -> Slots {
        Slots(equal_tags(&self.tags, tag))
    }

    #[inline(always)]
    pub(crate) fn vacant(&self) -> Slots {
        self.matching(EMPTY)
    }

    #[inline(always)]
    pub(crate) fn occupied(&self) -> Slots {
        Slots(!equal_tags(&self.tags, EMPTY) & Slots::ALL)
    }

    #[inline(always)]
    pub(crate) fn handle(&self, slot: usize) -> u32 {
        self.handles[slot]
    }

    #[inline(always)]
    pub(crate) fn set_handle(&mut self, slot: usize, handle: u32) {
        self.handles[slot] = handle;
    }

    #[inline(always)]
    pub(crate) fn fill(&mut self, slot: usize, tag: u16, handle: u32) {
        self.tags[slot] = tag;
        self.handles[slot] = handle;
    }

    #[inline(always)]
    pub(crate) fn clear(&mut self, slot: usize) {
        self.tags[slot] = EMPTY;
    }

    /// Some entry that passed here lives further on, so a search must go on.
    #[inline(always)]
    pub(crate) fn overflows(&self) -> bool {
        self.overflow != 0
    }

    #[inline]
    pub(crate) fn count_passed(&mut self) {
        self.overflow = self.overflow.saturating_add(1);
    }

    #[inline]
    pub(crate) fn uncount_passed(&mut self) {
        if self.overflow != u16::MAX {
            self.overflow = self.overflow.saturating_sub(1);
        }
    }
}

/// The positions of `tag` in `tags`, as bits. Two comparisons of eight lanes each: no branch, no loop.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn equal_tags(tags: &[u16; SLOTS], tag: u16) -> u32 {
    use std::arch::x86_64::{
        _mm_cmpeq_epi16, _mm_loadu_si128, _mm_movemask_epi8, _mm_packs_epi16, _mm_set_epi16, _mm_set1_epi16,
    };
    // SAFETY: SSE2 belongs to the x86_64 baseline; the load reads the first 16 of the array's 20 bytes.
    unsafe {
        let wanted = _mm_set1_epi16(tag as i16);
        let low = _mm_loadu_si128(tags.as_ptr().cast());
        let high = _mm_set_epi16(0, 0, 0, 0, 0, 0, tags[9] as i16, tags[8] as i16);
        // Saturation keeps -1 and 0, so 16 lanes of 16 bits become 16 of 8, whose sign bits are the answer.
        let equal = _mm_packs_epi16(_mm_cmpeq_epi16(low, wanted), _mm_cmpeq_epi16(high, wanted));
        _mm_movemask_epi8(equal) as u32 & Slots::ALL
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn equal_tags(tags: &[u16; SLOTS], tag: u16) -> u32 {
    equal_tags_portable(tags, tag)
}

/// What [`equal_tags`] means, lane by lane; compilers turn it into vector code where they can.
#[cfg(any(test, not(target_arch = "x86_64")))]
#[inline(always)]
fn equal_tags_portable(tags: &[u16; SLOTS], tag: u16) -> u32 {
    let mut equal = 0;
    for (i, &other) in tags.iter().enumerate() {
        equal |= u32::from(other == tag) << i;
    }
    equal
}

/// A power of two of buckets, on line boundaries, zeroed (so: empty) by the operating system when first touched.
pub(crate) struct Buckets {
    first: NonNull<Bucket>,
    mask: usize,
    allocation: NonNull<u8>,
    owns: PhantomData<Bucket>,
}

// SAFETY: plain memory that this value owns alone.
unsafe impl Send for Buckets {}
// SAFETY: `&Buckets` only reads.
unsafe impl Sync for Buckets {}

impl Buckets {
    /// At least `count` buckets.
    ///
    /// # Panics
    /// If they would not fit the address space.
    pub(crate) fn zeroed(count: usize) -> Self {
        let count = count.max(1).next_power_of_two();
        let layout = Self::layout(count);
        // SAFETY: the layout's size is positive.
        let Some(allocation) = NonNull::new(unsafe { alloc_zeroed(layout) }) else { handle_alloc_error(layout) };
        let padding = allocation.as_ptr().align_offset(align_of::<Bucket>());
        assert!(padding < align_of::<Bucket>(), "an address can be rounded up to a line");
        prefer_huge_pages(allocation.as_ptr(), layout.size());
        // SAFETY: the layout has room for one more line than `count`, and `padding` is less than a line.
        let first = unsafe { allocation.add(padding) }.cast::<Bucket>();
        Self { first, mask: count - 1, allocation, owns: PhantomData }
    }

    /// Aligned to 16 only: that is the most for which the system allocator zeroes by `calloc`, that is, lazily.
    fn layout(count: usize) -> Layout {
        count
            .checked_add(1)
            .and_then(|lines| lines.checked_mul(size_of::<Bucket>()))
            .and_then(|size| Layout::from_size_align(size, 16).ok())
            .expect("a table fits the address space")
    }

    /// Number of buckets, less one: a power of two less one.
    #[inline(always)]
    pub(crate) fn mask(&self) -> usize {
        self.mask
    }

    pub(crate) fn bytes(&self) -> usize {
        Self::layout(self.mask + 1).size()
    }

    /// Where a bucket lies; any index, taken modulo their number.
    #[inline(always)]
    pub(crate) fn address(&self, index: usize) -> *const Bucket {
        self.first.as_ptr().wrapping_add(index & self.mask)
    }

    /// The bucket at `index` modulo their number.
    #[inline(always)]
    pub(crate) fn at(&self, index: usize) -> &Bucket {
        // SAFETY: masked, so inside the allocation; aligned; zeroed at first, and all zeroes are a valid bucket.
        unsafe { self.first.add(index & self.mask).as_ref() }
    }

    /// As [`at`](Self::at), to change it.
    #[inline(always)]
    pub(crate) fn at_mut(&mut self, index: usize) -> &mut Bucket {
        // SAFETY: as in `at`; exclusive, since `self` is.
        unsafe { self.first.add(index & self.mask).as_mut() }
    }
}

/// Asks for memory of this place and size in huge pages, if it is large. It is read at random: in pages of 4 KiB each look is one into the page table, too.
#[cfg(all(target_os = "linux", not(miri)))]
fn prefer_huge_pages(start: *mut u8, size: usize) {
    use rustix::mm::{Advice, madvise};
    const PAGE: usize = 4 << 10;
    const HUGE: usize = 2 << 20;
    if size < 2 * HUGE {
        return;
    }
    let before = start.addr() % PAGE;
    // SAFETY: a hint about pages that are mapped, since each holds some of this allocation. It changes no contents; where there are no huge pages, or
    // pages are larger, it fails, and nothing is lost.
    let _ = unsafe { madvise(start.wrapping_sub(before).cast(), size + before, Advice::LinuxHugepage) };
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn prefer_huge_pages(_: *mut u8, _: usize) {}

impl Drop for Buckets {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with this layout, freed once; buckets have no drop of their own.
        unsafe { dealloc(self.allocation.as_ptr(), Self::layout(self.mask + 1)) }
    }
}

#[cfg(test)]
mod tests;
