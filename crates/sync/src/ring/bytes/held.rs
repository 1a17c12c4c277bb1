//! Owns who holds a conversation: the application's ends, which are counted, and the lane's, which is one.
//!
//! The count is on the application's line and not before the value, because whoever counts has just used that line or is about to.

use super::pool::{BlockId, BlockPool};
use super::{BUSY, Direction, FRESH, KeptEnd, NONE, Pipe, Reading, Shown, Writing, lined};
use crate::pointer::{Bare, Carried, Pointer};
use crate::primitive::order;
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::Relaxed;

/// Holders beyond which somebody must be forgetting them, as in `Arc`.
const HOLDERS_MAX: u32 = i32::MAX as u32;

/// The application's end of a conversation. Clones are the same end.
pub struct AppEnd<S, K, L>(NonNull<Pipe<S, K, L>>);

// SAFETY: it gives out shared references to a value that is `Sync`, and the last of them drops it, which is `Send`.
unsafe impl<S: Send + Sync, K: Send + Sync, L: Send + Sync> Send for AppEnd<S, K, L> {}
// SAFETY: as above.
unsafe impl<S: Send + Sync, K: Send + Sync, L: Send + Sync> Sync for AppEnd<S, K, L> {}

impl<S, K, L> Deref for AppEnd<S, K, L> {
    type Target = Pipe<S, K, L>;
    #[inline(always)]
    fn deref(&self) -> &Pipe<S, K, L> {
        // SAFETY: it was placed by `pipe`, and is counted, so it lives as long as this does. Nobody has it exclusively meanwhile: see
        // `LaneEnd::renew`.
        unsafe { self.0.as_ref() }
    }
}

impl<S, K, L> Clone for AppEnd<S, K, L> {
    #[inline]
    fn clone(&self) -> Self {
        if self.app.holders.fetch_add(1, Relaxed) > HOLDERS_MAX {
            std::process::abort();
        }
        AppEnd(self.0)
    }
}

impl<S, K, L> Drop for AppEnd<S, K, L> {
    #[inline]
    fn drop(&mut self) {
        if self.app.holders.fetch_sub(1, order::publish()) == 1 {
            order::observe_fence();
            let behind = self.app.behind;
            // SAFETY: it was placed by `pipe`, and nobody else has it any more.
            unsafe { lined::give_back(self.0, behind) };
        }
    }
}

impl<S, K, L> Pointer for AppEnd<S, K, L> {
    type Target = Pipe<S, K, L>;
    #[inline]
    fn into_bare(self) -> *mut Pipe<S, K, L> {
        let bare = self.0.as_ptr();
        std::mem::forget(self);
        bare
    }
    #[inline]
    unsafe fn from_bare(bare: *mut Pipe<S, K, L>) -> Self {
        // SAFETY: from `into_bare`, so not null.
        AppEnd(unsafe { NonNull::new_unchecked(bare) })
    }
}

/// What the lane has said goes with it, so that whoever takes it need not look.
impl<S, K, L> Carried for AppEnd<S, K, L> {
    #[inline]
    fn pack(self) -> Bare<Self> {
        let Shown { bytes, block } = self.shown();
        Bare { pointer: self.into_bare(), word: u64::from(bytes) << 32 | u64::from(block) }
    }
    #[inline]
    unsafe fn unpack(bare: Bare<Self>) -> Self {
        // SAFETY: from `pack`, as the caller promises.
        let end = unsafe { Self::from_bare(bare.pointer) };
        end.begin(Shown { bytes: (bare.word >> 32) as u32, block: bare.word as u32 });
        end
    }
}

impl<S, K, L> Pipe<S, K, L> {
    /// How many have it at the moment, the lane's end included.
    pub fn holders(&self) -> usize {
        self.app.holders.load(Relaxed) as usize
    }
}

/// Holds that a lane takes over before it gives them back.
const SPARE_MAX: u32 = 1 << 16;

/// The lane's end of a conversation: one, so that what it remembers needs no lock.
pub struct LaneEnd<S, K, L> {
    pipe: AppEnd<S, K, L>,
    /// Holds that were [taken over](Self::take_over) and are counted.
    spare: u32,
    /// A [`KeptEnd`] has its reading half.
    is_parted: bool,
}

impl<S, K, L> LaneEnd<S, K, L> {
    /// Of a conversation that has been placed and counts one, which nobody has yet.
    pub(super) fn new(pipe: NonNull<Pipe<S, K, L>>) -> Self {
        LaneEnd { pipe: AppEnd(pipe), spare: 0, is_parted: false }
    }

    /// An end for the application.
    #[inline]
    pub fn share(&self) -> AppEnd<S, K, L> {
        self.pipe.clone()
    }

    /// What both sides have of it.
    #[inline]
    pub fn pipe(&self) -> &Pipe<S, K, L> {
        &self.pipe
    }

    /// Where its blocks come from.
    pub fn pool(&self) -> &BlockPool {
        &self.pipe.lane.pool
    }

    /// Takes over what holds the same conversation. To give back each hold by itself would be a read-modify-write on the application's line
    /// each time that a thread has had the lane look at it, and such a one waits until all that was written before has gone out; so they
    /// are given back many at a time, or with this end.
    ///
    /// # Panics
    /// If it is the end of another conversation.
    #[inline]
    pub fn take_over(&mut self, end: AppEnd<S, K, L>) {
        assert!(end.0 == self.pipe.0, "what it holds is another conversation");
        std::mem::forget(end);
        self.spare += 1;
        if self.spare == SPARE_MAX {
            self.give_back_spare();
        }
    }

    /// Never the last: there is this end's own.
    fn give_back_spare(&mut self) {
        self.pipe.app.holders.fetch_sub(std::mem::take(&mut self.spare), order::publish());
    }

    /// Nobody else has it, and nobody else will: only who has it can share it.
    #[inline]
    pub fn is_alone(&self) -> bool {
        self.pipe.app.holders.load(order::observe()) == 1 + self.spare
    }

    /// What is said beside the bytes, by the application's threads and by the lane, if [nobody else has it](Self::is_alone).
    pub fn beside(&mut self) -> Option<(&mut S, &mut L)> {
        if !self.is_alone() {
            return None;
        }
        // SAFETY: nobody else has it: the count says so, and whoever let go before has released what he did. Nobody gets it while
        // these borrows of us last.
        let pipe = unsafe { self.pipe.0.as_mut() };
        Some((&mut pipe.app.said, &mut pipe.lane.said))
    }

    /// Makes it as new, but for blocks that lie in it ready to be used, for another conversation. What is said [beside](Self::beside) the
    /// bytes is the caller's to renew; what the application's threads keep among themselves, theirs. False: somebody else has it, or
    /// something waits in it, and it was left as it is.
    pub fn renew(&mut self) -> bool {
        let pipe = &*self.pipe;
        let (app, lane) = (&pipe.app, &pipe.lane);
        if !self.is_alone() {
            return false;
        }
        let directions = [(&app.out, &lane.taken), (&lane.out, &app.taken)];
        if directions.iter().any(|(out, taken)| out.produced.load(Relaxed) != taken.load(Relaxed)) {
            return false;
        }
        for (out, taken) in directions {
            // Everything was read, so the chain is its last block.
            let block = (out.hold.load(Relaxed) as u32).checked_sub(1).map(BlockId);
            let stays = block.filter(|block| !block.is_large() && !block.is_reserve());
            if let (Some(block), None) = (block, stays) {
                lane.pool.give(block);
            }
            out.produced.store(0, Relaxed);
            out.chain_start.store(0, Relaxed);
            out.hold.store(stays.map_or(NONE, |block| u64::from(block.0 + 1)), Relaxed);
            taken.store(0, Relaxed);
        }
        app.out.flags.reset(FRESH);
        for limit in [&lane.to_lane_limit, &lane.to_app_limit] {
            if limit.load(Relaxed) != lane.most {
                limit.store(lane.most, Relaxed);
            }
        }
        // SAFETY: only the one `LaneEnd` touches these cells, and it is borrowed mutably.
        lane.writing.with_mut(|cell| unsafe { *cell = Writing::default() });
        // SAFETY: as above.
        lane.reading.with_mut(|cell| unsafe { *cell = Reading::default() });
        // Whoever had the reading half is gone: he would be counted.
        self.is_parted = false;
        app.holders.store(1, Relaxed);
        self.spare = 0;
        true
    }

    /// Appends bytes for the application; says how many.
    #[inline]
    pub fn fill(&mut self, bytes: &[u8]) -> usize {
        let to_app = self.pipe.to_app();
        // SAFETY: only the one `LaneEnd` touches this cell, and it is borrowed mutably.
        self.pipe.lane.writing.with_mut(|cell| to_app.write(unsafe { &mut *cell }, bytes))
    }

    /// The oldest bytes that the application has sent, as far as they lie together. Empty: there are none, or a [`KeptEnd`] has
    /// them.
    #[inline]
    pub fn front(&mut self) -> &[u8] {
        if self.is_parted {
            return &[];
        }
        let to_lane: Direction<'_> = self.pipe.to_lane();
        // SAFETY: as in `fill`.
        let found = self.pipe.lane.reading.with_mut(|cell| to_lane.front(unsafe { &mut *cell }));
        // SAFETY: we are the reader, and the slice borrows us.
        found.map_or(&[], move |found| unsafe { to_lane.bytes(found) })
    }

    /// Asks for the lines of what [`front`](Self::front) will show first, if its application has sent something. The lines of the conversation
    /// that tell where it lies should be at hand.
    #[inline]
    pub fn prefetch_front(&mut self) {
        if self.is_parted {
            return;
        }
        let to_lane = self.pipe.to_lane();
        // SAFETY: as in `fill`.
        self.pipe.lane.reading.with_mut(|cell| to_lane.prefetch_front(unsafe { &*cell }));
    }

    /// The same of those that [`fill`](Self::fill) will write the next `len` bytes to.
    #[inline]
    pub fn prefetch_room(&mut self, len: usize) {
        let to_app = self.pipe.to_app();
        // SAFETY: as in `fill`.
        self.pipe.lane.writing.with_mut(|cell| to_app.prefetch_room(unsafe { &*cell }, len));
    }

    /// Gives back `n` of the bytes that [`front`](Self::front) has shown.
    ///
    /// # Panics
    /// If it has not shown so many.
    #[inline]
    pub fn advance(&mut self, n: usize) {
        assert!(!self.is_parted, "what another end shows is given back there");
        let to_lane = self.pipe.to_lane();
        self.pipe.lane.reading.with_mut(|cell| {
            // SAFETY: as in `fill`.
            let reading = unsafe { &mut *cell };
            let shown = to_lane.front(reading).map_or(0, |(_, _, len)| len);
            assert!(n <= shown as usize, "{n} bytes were given back and {shown} had been shown");
            to_lane.advance(reading, n as u32);
        });
    }

    /// How many bytes the application's have been given back so far.
    #[inline]
    pub fn taken(&self) -> u64 {
        self.pipe.lane.taken.load(Relaxed)
    }

    /// How many bytes were given to the application and not read by it.
    #[inline]
    pub fn unread(&self) -> usize {
        (self.pipe.lane.out.produced.load(Relaxed) - self.pipe.app.taken.load(order::observe())) as usize
    }

    /// Bytes that the application has sent and that were not given back.
    #[inline]
    pub fn waiting(&self) -> usize {
        self.pipe.unsent()
    }

    /// How many bytes the application has sent so far.
    #[inline]
    pub fn sent(&self) -> u64 {
        self.pipe.app.out.produced.load(order::observe())
    }

    /// Parts with the reading half, for somebody on this lane who gives bytes back long after he has seen them. `None`: it is gone
    /// already.
    pub fn part(&mut self) -> Option<KeptEnd<S, K, L>> {
        (!std::mem::replace(&mut self.is_parted, true)).then(|| KeptEnd::new(self.share()))
    }

    /// Takes back the block of each direction in which nothing waits. True if this conversation holds no memory now.
    pub fn retire(&mut self) -> bool {
        self.pipe.to_app().retire();
        self.pipe.to_lane().reclaim();
        !self.holds()
    }

    /// It holds a block that is not of the smallest, as far as can be seen while nobody writes.
    #[inline]
    pub fn holds_more(&self) -> bool {
        let is_more =
            |hold: u64| hold != BUSY && (hold as u32).checked_sub(1).is_some_and(|number| !BlockId(number).is_small());
        is_more(self.pipe.lane.out.hold.load(Relaxed)) || is_more(self.pipe.app.out.hold.load(Relaxed))
    }

    /// It holds a block.
    pub fn holds(&self) -> bool {
        self.pipe.lane.out.hold.load(Relaxed) != NONE || self.pipe.app.out.hold.load(Relaxed) != NONE
    }
}

impl<S, K, L> Drop for LaneEnd<S, K, L> {
    fn drop(&mut self) {
        if self.spare > 0 {
            self.give_back_spare();
        }
    }
}

impl<S, K, L> fmt::Debug for AppEnd<S, K, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AppEnd").field(&**self).finish()
    }
}

impl<S, K, L> fmt::Debug for LaneEnd<S, K, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LaneEnd").field(&*self.pipe).finish()
    }
}
