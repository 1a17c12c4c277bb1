//! Blocks of memory by number: what a [`Pipe`](super::Pipe) is made of while there is something in it.
//!
//! A number and not an address names a block, so what is written into shared memory means the same to everyone who has the
//! pool. Free blocks are on a stack with a version beside its head (a block that is taken and given back between a
//! thread's look and its exchange changes the version). A thread that finds the stack empty makes a new block, until the
//! pool has as many as it may. Nobody ever waits for anybody.
//!
//! # Three sizes, out of slabs
//!
//! A short word lies in 256 bytes, what does not fit there in 4 KiB, what does not fit there either in 64 KiB, and who fills a block
//! goes on in the next size. All of them are cut out of slabs of 64 KiB. Blocks of a page each, which begin where a page does, would be the
//! obvious thing. But of ten thousand conversations that speak now and then each would have its first line on a page
//! of its own, at the beginning: a translation for each, and all of those lines in the same few sets of every cache.
//!
//! # And two reserves
//!
//! A sixteenth as much again, in blocks of 4 KiB, is for the lane alone: it takes one when nothing else is left and a conversation has no
//! block for what has come. Without it two hosts whose threads have written all memory full would wait for each other: neither has room
//! to hear what would make room at the other.
//!
//! And as much is for the application alone, in the same way. Without it what has come and is not read could hold all memory while each of
//! those who are to read it waits to write first, as who answers piece by piece does: none of them would ever give a block back.
//!
//! A conversation has one block of a reserve in each direction at the most, as its first, and in a number the class tells whose it
//! is: so it goes back where it came from, and neither can use up the other's.

use super::super::block::Block;
use crate::met;
use crate::padded::Padded;
use crate::prefetch::{prefetch_bytes, prefetch_bytes_to_write};
use crate::primitive::{AtomicU32, AtomicU64, order};
use std::fmt;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

/// Slabs in the first piece of the table; each further piece doubles the table.
const FIRST_PIECE: u32 = 16;
const PIECES: usize = 20;
/// Bytes that are had from the system together.
const SLAB: usize = 65_536;
/// Sizes of blocks.
const SIZES: usize = 3;
/// The class behind those of the sizes: the lane's reserve, …
const TO_SHOW: usize = SIZES;
/// … and the application's.
const TO_WRITE: usize = SIZES + 1;
/// Of how many classes there are blocks.
const IN_USE: usize = SIZES + 2;
/// In a number the class takes so many bits.
const CLASS_BITS: u32 = 3;
/// As many as those bits tell apart, so a number leads to its class without a look whether there is one. Of the last no block is made.
const CLASSES: usize = 1 << CLASS_BITS;
/// A number is the bits of its class, an index, and one more, so that none is a number too.
const INDEX_MAX: u32 = 1 << (31 - CLASS_BITS);

/// A block's number. The lowest [`CLASS_BITS`] are its class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::ring) struct BlockId(pub(super) u32);

impl BlockId {
    fn class(self) -> usize {
        self.0 as usize & (CLASSES - 1)
    }

    /// It is of the smallest size.
    pub(super) fn is_small(self) -> bool {
        self.class() == 0
    }

    /// It is of the largest size.
    pub(super) fn is_large(self) -> bool {
        self.class() == SIZES - 1
    }

    /// It is of a reserve.
    pub(super) fn is_reserve(self) -> bool {
        self.class() >= SIZES
    }
}

/// Blocks that lie together, and for each the number of the one behind it in its chain (or on the free list).
struct Slab {
    memory: Block,
    next: Box<[AtomicU32]>,
}

/// Three sizes of blocks, and at most so many bytes of each; and the reserves.
pub struct BlockPool {
    classes: [Class; CLASSES],
}

struct Class {
    /// Version << 32 | number of the first free block plus one.
    free: Padded<AtomicU64>,
    made: Padded<AtomicU32>,
    most: u32,
    size: u32,
    /// Of how many blocks a slab is, as a power of two.
    slab_log: u32,
    pieces: [OnceLock<Box<[OnceLock<Slab>]>>; PIECES],
}

impl BlockPool {
    /// Blocks of 256 bytes, of 4 KiB and of 64 KiB; at most `bytes` of each, and a sixteenth of that in each reserve.
    pub fn new(bytes: usize) -> Self {
        Self::with_sizes([256, 4_096, SLAB as u32], bytes)
    }

    /// The smallest first; the blocks in reserve are of the second size.
    pub(super) fn with_sizes(sizes: [u32; SIZES], bytes: usize) -> Self {
        let [small, page, large] = sizes;
        let classes = [(small, bytes), (page, bytes), (large, bytes), (page, bytes / 16), (page, bytes / 16)];
        let class =
            |class: usize| classes.get(class).map_or(Class::new(page, 0), |(size, bytes)| Class::new(*size, *bytes));
        BlockPool { classes: std::array::from_fn(class) }
    }

    /// Bytes of blocks that exist, in use or free.
    pub fn bytes(&self) -> usize {
        self.classes.iter().map(|class| class.made() as usize * class.size as usize).sum()
    }

    /// There is a free block, or one could be made, for whoever asks. It may be gone by the time that one does.
    pub fn has_some(&self) -> bool {
        self.classes[..SIZES].iter().any(Class::has_some)
    }

    /// The same of the lane's reserve.
    pub fn has_reserve(&self) -> bool {
        self.classes[TO_SHOW].has_some()
    }

    /// The same of the application's.
    pub fn has_reserve_to_write(&self) -> bool {
        self.classes[TO_WRITE].has_some()
    }

    /// Bytes of blocks that are in use. Walks the free lists, so for tests and listings while nobody else uses the pool.
    pub fn in_use(&self) -> usize {
        self.bytes() - self.classes.iter().map(|class| class.free_blocks() * class.size as usize).sum::<usize>()
    }

    /// What stands on the lines that all users of the pool share: the heads of its free lists, the counts of its blocks. For
    /// counting how often they travel, while nobody else uses the pool.
    pub fn lines(&self) -> [u64; 2 * IN_USE] {
        std::array::from_fn(|i| match (&self.classes[i / 2], i % 2) {
            (class, 0) => class.free.load(Relaxed),
            (class, _) => u64::from(class.made.load(Relaxed)),
        })
    }

    /// Where the blocks lie in memory, as addresses. For instruments that tell the lines of what is said from
    /// those of how it is said.
    pub fn memory(&self) -> Vec<Range<usize>> {
        let of = |class: &'_ Class| {
            let firsts = (0..class.made()).step_by(1 << class.slab_log);
            firsts.filter_map(|index| Some(class.slab(index)?.0.memory.memory())).collect()
        };
        self.classes.iter().flat_map(|class| -> Vec<_> { of(class) }).collect()
    }

    #[inline]
    fn class(&self, id: BlockId) -> (&Class, u32) {
        (&self.classes[id.class()], id.0 >> CLASS_BITS)
    }

    /// Bytes of a block.
    #[inline]
    pub(super) fn size(&self, id: BlockId) -> u32 {
        self.class(id).0.size
    }

    #[inline]
    fn slab(&self, id: BlockId) -> (&Slab, usize) {
        let (class, index) = self.class(id);
        class.slab(index).expect("a number that the pool gave out")
    }

    /// The number of the block behind this one.
    #[inline]
    pub(super) fn next(&self, id: BlockId) -> &AtomicU32 {
        let (slab, at) = self.slab(id);
        &slab.next[at]
    }

    /// Bytes of a block, to be read.
    ///
    /// # Safety
    /// The range is inside the block and nobody writes to it for as long as the slice lives.
    #[inline]
    pub(super) unsafe fn shared(&self, id: BlockId, offset: u32, len: u32) -> &[u8] {
        let (slab, at) = self.slab(id);
        // SAFETY: inside the block, so inside its slab; unwritten, as the caller promises.
        unsafe { slab.memory.shared(at * self.size(id) as usize + offset as usize, len as usize) }
    }

    /// Bytes of a block, to be written.
    ///
    /// # Safety
    /// The range is inside the block and nobody else touches it for as long as the slice lives.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "exclusiveness is the caller's promise")]
    pub(super) unsafe fn exclusive(&self, id: BlockId, offset: u32, len: u32) -> &mut [u8] {
        let (slab, at) = self.slab(id);
        // SAFETY: inside the block, so inside its slab; the caller's alone, as he promises.
        unsafe { slab.memory.exclusive(at * self.size(id) as usize + offset as usize, len as usize) }
    }

    /// Asks for the lines of `len` bytes of a block from `offset` on, as far as they are in it.
    #[inline]
    pub(super) fn prefetch(&self, id: BlockId, offset: u32, len: usize) {
        prefetch_bytes(self.address(id, offset), len.min(self.left(id, offset)));
    }

    /// The same, to write there.
    #[inline]
    pub(super) fn prefetch_to_write(&self, id: BlockId, offset: u32, len: usize) {
        prefetch_bytes_to_write(self.address(id, offset), len.min(self.left(id, offset)));
    }

    /// Bytes of a block from `offset` on.
    #[inline]
    fn left(&self, id: BlockId, offset: u32) -> usize {
        self.size(id).saturating_sub(offset) as usize
    }

    /// Where a byte lies, for those who do not look at it.
    #[inline]
    fn address(&self, id: BlockId, offset: u32) -> *const u8 {
        let (slab, at) = self.slab(id);
        let begin = std::ptr::without_provenance::<u8>(slab.memory.memory().start);
        begin.wrapping_add(at * self.size(id) as usize + offset as usize)
    }

    /// A block for `len` bytes: the smallest in which they lie together, or the largest there is; of another size if only that can be
    /// had; `None` if the pool is used up.
    #[inline]
    pub(super) fn take(&self, len: usize) -> Option<BlockId> {
        let fits = self.classes.iter().take(SIZES - 1).take_while(|class| (class.size as usize) < len).count();
        (fits..SIZES).chain((0..fits).rev()).find_map(|class| self.take_of(class))
    }

    /// One of the lane's reserve, which has found no other to show what has come.
    #[cold]
    pub(super) fn take_to_show(&self) -> Option<BlockId> {
        self.take_of(TO_SHOW)
    }

    /// One of the application's, which has found no other to write to.
    #[cold]
    pub(super) fn take_to_write(&self) -> Option<BlockId> {
        self.take_of(TO_WRITE)
    }

    #[inline]
    fn take_of(&self, class: usize) -> Option<BlockId> {
        let index = self.classes[class].take()?;
        Some(BlockId(index << CLASS_BITS | class as u32))
    }

    #[inline]
    pub(super) fn give(&self, id: BlockId) {
        let (class, index) = self.class(id);
        class.give(index);
    }
}

impl Class {
    fn new(size: u32, bytes: usize) -> Self {
        let wished = (bytes / size as usize).max(1);
        let slab_log = (SLAB / size as usize).clamp(1, wished).ilog2();
        let slabs = (FIRST_PIECE as usize) << (PIECES - 1);
        let most = wished.min(slabs << slab_log).min(INDEX_MAX as usize) as u32;
        Class {
            free: Padded(AtomicU64::new(0)),
            made: Padded(AtomicU32::new(0)),
            most,
            size,
            slab_log,
            pieces: std::array::from_fn(|_| OnceLock::new()),
        }
    }

    fn has_some(&self) -> bool {
        self.free.load(Relaxed) as u32 != 0 || self.made() < self.most
    }

    fn made(&self) -> u32 {
        self.made.load(Relaxed).min(self.most)
    }

    /// Of a slab: its piece, its place there, and how many places that has.
    #[inline]
    fn place(slab: u32) -> (usize, u32, u32) {
        if slab < FIRST_PIECE {
            return (0, slab, FIRST_PIECE);
        }
        let piece = (slab / FIRST_PIECE).ilog2();
        let first = FIRST_PIECE << piece;
        (piece as usize + 1, slab - first, first)
    }

    /// The slab of a block, and its place there.
    #[inline]
    fn slab(&self, index: u32) -> Option<(&Slab, usize)> {
        let (piece, at, _) = Self::place(index >> self.slab_log);
        let slab = self.pieces[piece].get()?.get(at as usize)?.get()?;
        Some((slab, index as usize & ((1 << self.slab_log) - 1)))
    }

    #[inline]
    fn next(&self, index: u32) -> Option<&AtomicU32> {
        let (slab, at) = self.slab(index)?;
        slab.next.get(at)
    }

    #[inline]
    fn take(&self) -> Option<u32> {
        let mut head = self.free.load(order::observe());
        loop {
            let Some(index) = (head as u32).checked_sub(1) else { return self.make() };
            let next = u64::from(self.next(index)?.load(Relaxed));
            let version = (head >> 32).wrapping_add(1) << 32;
            match self.free.compare_exchange_weak(head, version | next, order::exchange(), order::observe()) {
                Ok(_) => return Some(index),
                Err(now) => {
                    met::retried();
                    head = now;
                }
            }
        }
    }

    fn give(&self, index: u32) {
        let Some(next) = self.next(index) else { return };
        let mut head = self.free.load(Relaxed);
        loop {
            next.store(head as u32, Relaxed);
            let version = (head >> 32).wrapping_add(1) << 32;
            match self.free.compare_exchange_weak(head, version | u64::from(index + 1), order::exchange(), Relaxed) {
                Ok(_) => return,
                Err(now) => {
                    met::retried();
                    head = now;
                }
            }
        }
    }

    #[cold]
    fn make(&self) -> Option<u32> {
        let mut made = self.made.load(Relaxed);
        loop {
            if made >= self.most {
                return None;
            }
            self.reach(made);
            match self.made.compare_exchange_weak(made, made + 1, order::exchange(), Relaxed) {
                Ok(_) => return Some(made),
                Err(now) => {
                    met::retried();
                    made = now;
                }
            }
        }
    }

    /// Makes the slab of a block, if it is not there.
    ///
    /// Whoever needs one that is not there makes it, and one of those who do so at once has made it in vain: to wait for the first would be to
    /// wait for a thread that may be asleep, and to do without a block, to say that there is no memory.
    fn reach(&self, index: u32) {
        let (piece, at, places) = Self::place(index >> self.slab_log);
        if self.pieces[piece].get().is_none() {
            let _ = self.pieces[piece].set((0..places).map(|_| OnceLock::new()).collect());
        }
        if let Some(place) = self.pieces[piece].get().and_then(|slabs| slabs.get(at as usize))
            && place.get().is_none()
        {
            let blocks = 1 << self.slab_log;
            let _ = place.set(Slab {
                memory: Block::zeroed(blocks * self.size as usize),
                next: (0..blocks).map(|_| AtomicU32::new(0)).collect(),
            });
        }
    }

    fn free_blocks(&self) -> usize {
        let mut head = self.free.load(order::observe()) as u32;
        let mut n = 0;
        while let Some(next) = head.checked_sub(1).and_then(|index| self.next(index)) {
            head = next.load(Relaxed);
            n += 1;
        }
        n
    }
}

impl fmt::Debug for BlockPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockPool").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}
