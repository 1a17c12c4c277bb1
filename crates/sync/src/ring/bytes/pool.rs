//! Blocks of memory by number: what a [`Pipe`](super::Pipe) is made of while there is something in it.
//!
//! A number and not an address names a block, so what is written into shared memory means the same to everyone who has the
//! pool. Free blocks are on a stack with a version beside its head (a block that is taken and given back between a
//! thread's look and its exchange changes the version). A thread that finds the stack empty makes a new block, until the
//! pool has as many as it may. Nobody ever waits for anybody.

use super::super::block::Block;
use crate::met;
use crate::padded::Padded;
use crate::primitive::{AtomicU32, AtomicU64, order};
use std::fmt;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

/// Places in the first piece of the table; each further piece doubles the table.
const FIRST_PIECE: u32 = 64;
const PIECES: usize = 20;

/// A block's number. The lowest bit is its size class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::ring) struct BlockId(pub(super) u32);

/// A block, and the number of the one behind it in its chain (or on the free list).
pub(in crate::ring) struct Room {
    pub(super) next: AtomicU32,
    pub(super) block: Block,
}

/// Two sizes of blocks, and at most so many bytes of them.
pub struct BlockPool {
    classes: [Class; 2],
}

struct Class {
    /// Version << 32 | number of the first free block plus one.
    free: Padded<AtomicU64>,
    made: Padded<AtomicU32>,
    most: u32,
    size: u32,
    pieces: [OnceLock<Box<[OnceLock<Room>]>>; PIECES],
}

impl BlockPool {
    /// Blocks of 4 KiB and of 64 KiB; at most `bytes` of each.
    pub fn new(bytes: usize) -> Self {
        Self::with_sizes([4_096, 65_536], bytes)
    }

    pub(super) fn with_sizes(sizes: [u32; 2], bytes: usize) -> Self {
        BlockPool { classes: sizes.map(|size| Class::new(size, bytes)) }
    }

    /// Bytes of blocks that exist, in use or free.
    pub fn bytes(&self) -> usize {
        self.classes.iter().map(|class| class.made() as usize * class.size as usize).sum()
    }

    /// There is a free block, or one could be made. It may be gone by the time that one asks for it.
    pub fn has_some(&self) -> bool {
        self.classes.iter().any(|class| class.free.load(Relaxed) as u32 != 0 || class.made() < class.most)
    }

    /// Bytes of blocks that are in use. Walks the free lists, so for tests and listings while nobody else uses the pool.
    pub fn in_use(&self) -> usize {
        self.bytes() - self.classes.iter().map(|class| class.free_blocks() * class.size as usize).sum::<usize>()
    }

    /// What stands on the lines that all users of the pool share: the heads of its free lists, the counts of its blocks. For
    /// counting how often they travel, while nobody else uses the pool.
    pub fn lines(&self) -> [u64; 4] {
        let [small, large] = &self.classes;
        let of = |class: &Class| (class.free.load(Relaxed), u64::from(class.made.load(Relaxed)));
        let ((a, b), (c, d)) = (of(small), of(large));
        [a, b, c, d]
    }

    /// Where the blocks that were made lie in memory, as addresses. For instruments that tell the lines of what is said from
    /// those of how it is said.
    pub fn memory(&self) -> Vec<Range<usize>> {
        let of =
            |class: &'_ Class| (0..class.made()).filter_map(|index| Some(class.room(index)?.block.memory())).collect();
        self.classes.iter().flat_map(|class| -> Vec<_> { of(class) }).collect()
    }

    #[inline]
    fn class(&self, id: BlockId) -> (&Class, u32) {
        (&self.classes[(id.0 & 1) as usize], id.0 >> 1)
    }

    /// Bytes of a small block.
    #[inline]
    pub(super) fn small(&self) -> usize {
        self.classes[0].size as usize
    }

    /// Bytes of a block.
    #[inline]
    pub(super) fn size(&self, id: BlockId) -> u32 {
        self.class(id).0.size
    }

    #[inline]
    pub(super) fn room(&self, id: BlockId) -> &Room {
        let (class, index) = self.class(id);
        class.room(index).expect("a number that the pool gave out")
    }

    /// A small block, or a large one; of the other size if only that can be had; `None` if the pool is used up.
    #[inline]
    pub(super) fn take(&self, large: bool) -> Option<BlockId> {
        let first = usize::from(large);
        [first, 1 - first].into_iter().find_map(|class| {
            let index = self.classes[class].take()?;
            Some(BlockId(index << 1 | class as u32))
        })
    }

    #[inline]
    pub(super) fn give(&self, id: BlockId) {
        let (class, index) = self.class(id);
        class.give(index);
    }
}

impl Class {
    fn new(size: u32, bytes: usize) -> Self {
        let most = (bytes / size as usize).max(1).min((FIRST_PIECE as usize) << (PIECES - 1)) as u32;
        Class {
            free: Padded(AtomicU64::new(0)),
            made: Padded(AtomicU32::new(0)),
            most,
            size,
            pieces: std::array::from_fn(|_| OnceLock::new()),
        }
    }

    fn made(&self) -> u32 {
        self.made.load(Relaxed).min(self.most)
    }

    /// Piece, place in it, and places of it.
    fn place(index: u32) -> (usize, u32, u32) {
        if index < FIRST_PIECE {
            return (0, index, FIRST_PIECE);
        }
        let piece = (index / FIRST_PIECE).ilog2();
        let first = FIRST_PIECE << piece;
        (piece as usize + 1, index - first, first)
    }

    #[inline]
    fn room(&self, index: u32) -> Option<&Room> {
        let (piece, at, _) = Self::place(index);
        self.pieces[piece].get()?.get(at as usize)?.get()
    }

    #[inline]
    fn take(&self) -> Option<u32> {
        let mut head = self.free.load(order::observe());
        loop {
            let Some(index) = (head as u32).checked_sub(1) else { return self.make() };
            let room = self.room(index)?;
            let next = u64::from(room.next.load(Relaxed));
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
        let Some(room) = self.room(index) else { return };
        let mut head = self.free.load(Relaxed);
        loop {
            room.next.store(head as u32, Relaxed);
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
        let index = loop {
            if made >= self.most {
                return None;
            }
            let (piece, _, places) = Self::place(made);
            // Whoever needs a piece that is not there makes it, and one of those who do so at once has made it in vain: to wait for
            // the first would be to wait for a thread that may be asleep, and to do without a block, to say that there is no memory.
            if self.pieces[piece].get().is_none() {
                let _ = self.pieces[piece].set((0..places).map(|_| OnceLock::new()).collect());
            }
            match self.made.compare_exchange_weak(made, made + 1, order::exchange(), Relaxed) {
                Ok(_) => break made,
                Err(now) => {
                    met::retried();
                    made = now;
                }
            }
        };
        let (piece, at, _) = Self::place(index);
        let room = Room { next: AtomicU32::new(0), block: Block::zeroed(self.size as usize) };
        // Nobody else has this index, so the place is empty.
        let _ = self.pieces[piece].get()?.get(at as usize)?.set(room);
        Some(index)
    }

    fn free_blocks(&self) -> usize {
        let mut head = self.free.load(order::observe()) as u32;
        let mut n = 0;
        while let Some(room) = head.checked_sub(1).and_then(|index| self.room(index)) {
            head = room.next.load(Relaxed);
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
