//! Owns the indirection table of a memory link's virtual RSS: which queue gets which bucket, and which sender goes by it yet.
//!
//! Whoever moves a bucket writes the table. Each sending queue has a copy of its own, and follows: **a sender switches a
//! bucket only when the old queue's reader has given back the last frame of that bucket that this sender put there.** So a
//! flow's next frame is never in one queue while its last is still in another, and nobody has to wait for anybody: until then
//! frames go where they went. That is the rule of Linux's receive flow steering (`rps_dev_flow`, its `last_qtail`), with a bucket for a flow.
//!
//! A sender that has nothing to send follows when it flushes next, and one that is gone has followed.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use crate::BUCKETS;
use laneway_sync::{Padded, RecordProducer};

/// The table of one end of a link.
pub struct Indirection {
    wanted: [AtomicU8; BUCKETS],
    /// Grows after `wanted` has changed.
    generation: AtomicU64,
    /// By sending queue: each written by it alone.
    senders: Box<[Padded<Using>]>,
}

/// What one sender goes by.
struct Using {
    table: [AtomicU8; BUCKETS],
    gone: AtomicBool,
}

fn atomics(table: &[u8; BUCKETS]) -> [AtomicU8; BUCKETS] {
    std::array::from_fn(|bucket| AtomicU8::new(table[bucket]))
}

impl Indirection {
    /// A table for the queues of one end; `senders` is the number of queues of the other.
    pub fn new(table: &[u8; BUCKETS], senders: usize) -> Arc<Self> {
        let using = || Padded(Using { table: atomics(table), gone: AtomicBool::new(false) });
        Arc::new(Indirection {
            wanted: atomics(table),
            generation: AtomicU64::new(0),
            senders: (0..senders).map(|_| using()).collect(),
        })
    }

    /// Wants other queues for buckets. One thread at a time.
    pub fn set(&self, table: &[u8; BUCKETS]) {
        for (wanted, queue) in self.wanted.iter().zip(table) {
            wanted.store(*queue, Ordering::Relaxed);
        }
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Every sender goes by what is wanted for this bucket, and the queues that it left have been read to the end of it.
    ///
    /// # Panics
    /// If there is no such bucket.
    pub fn has_switched(&self, bucket: usize) -> bool {
        let wanted = self.wanted[bucket].load(Ordering::Relaxed);
        let follows =
            |using: &Using| using.table[bucket].load(Ordering::Acquire) == wanted || using.gone.load(Ordering::Acquire);
        self.senders.iter().all(|using| follows(using))
    }
}

impl fmt::Debug for Indirection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Indirection").field("senders", &self.senders.len()).finish_non_exhaustive()
    }
}

/// One sending queue, following a table.
pub(super) struct Follower {
    table: Arc<Indirection>,
    sender: usize,
    using: [u8; BUCKETS],
    generation: u64,
    /// Buckets that have yet to be switched.
    behind: u128,
    /// For each of those: where its last frame ends, in the ring that it still goes to.
    last: Box<[u32; BUCKETS]>,
}

impl Follower {
    pub(super) fn new(table: Arc<Indirection>, sender: usize) -> Self {
        assert!(sender < table.senders.len(), "the table was made for {} senders", table.senders.len());
        let using = std::array::from_fn(|bucket| table.senders[sender].table[bucket].load(Ordering::Relaxed));
        // What was set before comes with the first look.
        Follower { table, sender, using, generation: u64::MAX, behind: 0, last: Box::new([0; BUCKETS]) }
    }

    /// The queue for a frame of this bucket, which is to be sent now.
    #[inline]
    pub(super) fn queue(&mut self, bucket: usize, rings: &[RecordProducer]) -> usize {
        let bucket = bucket % BUCKETS;
        if self.behind >> bucket & 1 != 0 {
            // Asked for each frame: a busy flow may have none on the way only at this moment.
            self.try_switch(bucket, rings);
        }
        usize::from(self.using[bucket])
    }

    /// A frame of this bucket was put into its ring, which ends there now.
    #[inline]
    pub(super) fn sent(&mut self, bucket: usize, end: u32) {
        if self.behind != 0 {
            self.last[bucket % BUCKETS] = end;
        }
    }

    /// Looks whether something is wanted, and whether it can be had yet.
    #[inline]
    pub(super) fn follow(&mut self, rings: &[RecordProducer]) {
        if self.generation != self.table.generation.load(Ordering::Acquire) || self.behind != 0 {
            self.catch_up(rings);
        }
    }

    #[cold]
    fn catch_up(&mut self, rings: &[RecordProducer]) {
        self.generation = self.table.generation.load(Ordering::Acquire);
        for bucket in 0..BUCKETS {
            let bit = 1u128 << bucket;
            if self.table.wanted[bucket].load(Ordering::Relaxed) == self.using[bucket] {
                self.behind &= !bit;
                continue;
            }
            if self.behind & bit == 0 {
                self.behind |= bit;
                self.last[bucket] = rings[usize::from(self.using[bucket]) % rings.len()].position();
            }
            self.try_switch(bucket, rings);
        }
    }

    /// A bucket that is behind is so no more, if its last frame has been read.
    #[cold]
    fn try_switch(&mut self, bucket: usize, rings: &[RecordProducer]) {
        if rings[usize::from(self.using[bucket]) % rings.len()].has_released(self.last[bucket]) {
            let wanted = self.table.wanted[bucket].load(Ordering::Relaxed);
            self.using[bucket] = wanted;
            self.behind &= !(1 << bucket);
            // Release: who sees it sees that the old ring has been read so far.
            self.table.senders[self.sender].table[bucket].store(wanted, Ordering::Release);
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.table.senders[self.sender].gone.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
