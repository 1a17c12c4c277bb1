//! The reading half of a lane's end, for one who looks at bytes again and again before he gives them back.

use super::{AppEnd, BlockId, Pipe, Relaxed, order, own};
use std::cell::Cell;
use std::fmt;

/// What an application has sent, for a lane that keeps it where it lies until it is needed no more: see
/// [`LaneEnd::part`](super::LaneEnd::part).
///
/// It may outlive the [`LaneEnd`](super::LaneEnd), and holds the conversation's memory until it is dropped.
pub struct KeptEnd<S, K, L> {
    pipe: AppEnd<S, K, L>,
    /// How far the application was seen to have written, low half.
    seen: Cell<u32>,
    /// Where the last look was.
    last: Cell<Option<Look>>,
}

/// A block of the chain, and the position of its first byte, low half.
#[derive(Clone, Copy)]
struct Look {
    block: BlockId,
    begins: u32,
}

impl<S, K, L> KeptEnd<S, K, L> {
    pub(super) fn new(pipe: AppEnd<S, K, L>) -> Self {
        let seen = Cell::new(own(&pipe.lane.taken) as u32);
        KeptEnd { pipe, seen, last: Cell::new(None) }
    }

    /// What the application's threads have of it.
    pub fn pipe(&self) -> &Pipe<S, K, L> {
        &self.pipe
    }

    /// How many bytes were given back so far.
    #[inline]
    pub fn taken(&self) -> u64 {
        own(&self.pipe.lane.taken)
    }

    /// What lies together from `offset` on, counted from the oldest byte that was not given back. Empty: so many are not there.
    #[inline]
    pub fn bytes(&self, offset: u32) -> &[u8] {
        let to_lane = self.pipe.to_lane();
        let at = own(to_lane.taken) as u32;
        if self.seen.get().wrapping_sub(at) <= offset {
            self.seen.set(to_lane.out.produced.load(order::observe()) as u32);
        }
        let known = self.seen.get().wrapping_sub(at);
        if known <= offset {
            return &[];
        }
        let (block, place) = self.look(at.wrapping_add(offset), offset);
        let len = (to_lane.pool.size(block) - place).min(known - offset);
        // SAFETY: this is the reader, and it has released none of these.
        unsafe { to_lane.bytes((block, place, len)) }
    }

    /// Where the byte at `position` lies, which is `offset` behind the oldest: mostly where the last one did, or in the block behind.
    pub(super) fn look(&self, position: u32, offset: u32) -> (BlockId, u32) {
        let to_lane = self.pipe.to_lane();
        if let Some(last) = self.last.get() {
            let (place, size) = (position.wrapping_sub(last.begins), to_lane.pool.size(last.block));
            if place < size {
                return (last.block, place);
            }
            if place - size < to_lane.limit {
                let block = BlockId(to_lane.pool.next(last.block).load(Relaxed));
                if place - size < to_lane.pool.size(block) {
                    self.last.set(Some(Look { block, begins: last.begins.wrapping_add(size) }));
                    return (block, place - size);
                }
            }
        }
        let (block, place) = self.pipe.lane.reading.with(|cell| {
            // SAFETY: one end has the reading half; this is it, and it cannot be shared.
            to_lane.find(unsafe { &*cell }, offset)
        });
        self.last.set(Some(Look { block, begins: position.wrapping_sub(place) }));
        (block, place)
    }

    /// Gives the oldest `n` bytes back.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn release(&mut self, n: usize) {
        let to_lane = self.pipe.to_lane();
        self.pipe.lane.reading.with_mut(|cell| {
            // SAFETY: as in `look`, and no slice is left.
            let reading = unsafe { &mut *cell };
            let mut left = n as u32;
            while left > 0 {
                let shown = to_lane.front(reading).map_or(0, |(_, _, len)| len).min(left);
                assert!(shown > 0, "{n} bytes were given back, and {left} of them were never there");
                to_lane.advance(reading, shown);
                left -= shown;
            }
        });
        // A block that lies behind is the pool's again. And with the last byte that is known of, the writer may have begun anew in
        // the same block.
        let at = own(to_lane.taken) as u32;
        let is_passed = |last: Look| at.wrapping_sub(last.begins) as i32 > to_lane.pool.size(last.block) as i32;
        let knows_more = self.seen.get().wrapping_sub(at) as i32 > 0;
        if !knows_more {
            self.seen.set(at);
        }
        if !knows_more || self.last.get().is_some_and(is_passed) {
            self.last.set(None);
        }
    }
}

impl<S, K, L> fmt::Debug for KeptEnd<S, K, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeptEnd").field(&*self.pipe).finish()
    }
}
