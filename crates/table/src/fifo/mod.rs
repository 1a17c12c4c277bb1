//! A queue whose records can be found and changed by position while they wait.
//!
//! A position is a count of all records ever pushed (modulo 2³²), so it stays true while the record is queued, however
//! the queue grows. The records lie in chunks of 1024 that never move; a chunk that has been emptied is used again, so
//! a queue that stays about as long as it is calls no allocator.
//!
//! ```
//! use laneway_table::Fifo;
//!
//! let mut queue = Fifo::new();
//! let (first, second) = (queue.push("first"), queue.push("second"));
//! *queue.get_mut(second).expect("it waits") = "changed";
//! assert_eq!(queue.pop_front(), Some("first"));
//! assert_eq!((queue.get(first), queue.front()), (None, Some((second, &"changed"))));
//! ```

#[cfg(test)]
mod tests;

use laneway_sync::prefetch::{LINE, prefetch_line, prefetch_lines};
use std::collections::VecDeque;
use std::fmt;

/// Records per chunk.
pub const CHUNK: usize = 1024;

/// A chunked queue. See the [module](self).
pub struct Fifo<T> {
    /// Each allocated with its full capacity; filled from the front to the back. The first holds the record at `head`,
    /// unless the queue is empty.
    chunks: VecDeque<Vec<T>>,
    spare: Vec<Vec<T>>,
    /// Position of slot 0 of the first chunk; a multiple of [`CHUNK`].
    base: u32,
    /// Position of the oldest record.
    head: u32,
    len: u32,
}

impl<T: Copy> Default for Fifo<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Copy> Fifo<T> {
    /// Empty; allocates nothing yet.
    pub fn new() -> Self {
        Self::starting_at(0)
    }

    /// Empty, and as if `base` records had gone through it already: for trying out what happens where positions begin anew. `base` must be
    /// a multiple of [`CHUNK`].
    pub fn starting_at(base: u32) -> Self {
        debug_assert!(base.is_multiple_of(CHUNK as u32), "a chunk begins at a multiple of its length");
        Self { chunks: VecDeque::new(), spare: Vec::new(), base, head: base, len: 0 }
    }

    /// Number of records.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// No records.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Memory that the queue has reserved.
    pub fn bytes(&self) -> usize {
        (self.chunks.len() + self.spare.len()) * CHUNK * size_of::<T>()
            + (self.chunks.capacity() + self.spare.capacity()) * size_of::<Vec<T>>()
    }

    /// Appends a record and returns its position.
    ///
    /// # Panics
    /// If 2³¹ records are queued: positions would begin to repeat.
    #[inline(always)]
    pub fn push(&mut self, record: T) -> u32 {
        assert!(self.len < 1 << 31, "a queue holds fewer than 2^31 records, so that positions stay unique");
        let position = self.head.wrapping_add(self.len);
        // The place comes first: then nothing has to hold the record meanwhile, and it is written there. All chunks but the last are
        // full, so it is the next behind them if that is, too.
        if position.wrapping_sub(self.base) as usize == self.chunks.len() * CHUNK {
            self.add_chunk();
        }
        let Some(chunk) = self.chunks.back_mut() else { unreachable!("a chunk was added if there was none") };
        chunk.push(record);
        self.len += 1;
        position
    }

    #[inline(never)]
    fn add_chunk(&mut self) {
        let chunk = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(CHUNK));
        self.chunks.push_back(chunk);
    }

    /// The record at `position`, if it is (still) queued.
    #[inline]
    pub fn get(&self, position: u32) -> Option<&T> {
        if position.wrapping_sub(self.head) >= self.len {
            return None;
        }
        let (chunk, slot) = self.split(position);
        self.chunks.get(chunk)?.get(slot)
    }

    /// The record at `position`, to change it, if it is (still) queued.
    #[inline]
    pub fn get_mut(&mut self, position: u32) -> Option<&mut T> {
        if position.wrapping_sub(self.head) >= self.len {
            return None;
        }
        let (chunk, slot) = self.split(position);
        self.chunks.get_mut(chunk)?.get_mut(slot)
    }

    /// The position of the oldest record, or, if there is none, that of the next.
    #[inline]
    pub fn head(&self) -> u32 {
        self.head
    }

    /// The position that the next record will get.
    #[inline]
    pub fn end(&self) -> u32 {
        self.head.wrapping_add(self.len)
    }

    /// The oldest record and its position.
    #[inline]
    pub fn front(&self) -> Option<(u32, &T)> {
        Some((self.head, self.get(self.head)?))
    }

    /// Takes the oldest record out.
    #[inline]
    pub fn pop_front(&mut self) -> Option<T> {
        let record = *self.get(self.head)?;
        self.head = self.head.wrapping_add(1);
        self.len -= 1;
        if self.head.wrapping_sub(self.base) as usize == CHUNK {
            self.recycle_first();
        }
        Some(record)
    }

    #[inline(never)]
    fn recycle_first(&mut self) {
        self.base = self.base.wrapping_add(CHUNK as u32);
        let Some(mut chunk) = self.chunks.pop_front() else {
            return;
        };
        // As many spares as chunks in use, and one: enough for any rhythm of pushes and pops that stays below twice
        // its present length; what a burst has left beyond that goes back, one chunk at a time.
        if self.spare.len() <= self.chunks.len() {
            chunk.clear();
            self.spare.push(chunk);
        } else if self.spare.len() > self.chunks.len() + 1 {
            self.spare.pop();
        }
    }

    /// Asks for the lines of the record at `position`: the first four at most, and the last. Records do not begin on lines, so that even a small one may
    /// lie on two.
    #[inline(always)]
    pub fn prefetch(&self, position: u32) {
        let (chunk, slot) = self.split(position);
        if let Some(chunk) = self.chunks.get(chunk) {
            let record = chunk.as_ptr().wrapping_add(slot);
            prefetch_lines(record, size_of::<T>().div_ceil(LINE).clamp(1, 4));
            prefetch_line(record.cast::<u8>().wrapping_add(size_of::<T>().saturating_sub(1)));
        }
    }

    /// All records with their positions, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..self.len).filter_map(|i| {
            let position = self.head.wrapping_add(i);
            Some((position, self.get(position)?))
        })
    }

    #[inline(always)]
    fn split(&self, position: u32) -> (usize, usize) {
        let offset = position.wrapping_sub(self.base) as usize;
        (offset / CHUNK, offset % CHUNK)
    }
}

impl<T> fmt::Debug for Fifo<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fifo")
            .field("len", &self.len)
            .field("head", &self.head)
            .field("chunks", &self.chunks.len())
            .field("spare", &self.spare.len())
            .finish_non_exhaustive()
    }
}
