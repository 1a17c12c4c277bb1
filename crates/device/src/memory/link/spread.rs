//! Owns what is sent into several rings: which of them a frame goes to, and when that is known.

use super::{GRANTED, MetaWord, Steer, SteerFlow};
use crate::memory::indirection::Follower;
use laneway_sync::RecordProducer;
use std::any::Any;

/// What one sending queue sends to several receiving queues.
pub(super) struct Spread {
    /// By receiving queue.
    pub(super) rings: Box<[RecordProducer]>,
    /// The ring that the last frame went to, and the next one is written into.
    pub(super) guess: usize,
    /// The ring for frames that nothing steers.
    pub(super) home: usize,
    /// It is for a frame that goes there, being in this bucket.
    pub(super) aimed: Option<usize>,
    pub(super) steer: Option<Steer>,
    pub(super) steer_flow: Option<SteerFlow>,
    /// Turns what `steer` says into a queue.
    pub(super) follower: Option<Follower>,
}

impl Spread {
    #[inline]
    pub(super) fn follow(&mut self) {
        if let Some(follower) = &mut self.follower {
            follower.follow(&self.rings);
        }
    }

    #[inline(never)]
    pub(super) fn reserve_for(&mut self, len: usize, flow: &dyn Any) -> Option<&mut [u8]> {
        let known = self.steer_flow.as_ref().and_then(|steer_flow| steer_flow(flow));
        let Some(bucket) = known else { return self.reserve(len) };
        self.guess = self.chosen(bucket);
        self.aimed = Some(bucket);
        self.rings[self.guess].reserve(len)
    }

    /// The ring of a bucket.
    #[inline]
    fn chosen(&mut self, bucket: usize) -> usize {
        let queue = self.follower.as_mut().map_or(bucket, |follower| follower.queue(bucket, &self.rings));
        // Nearly always there is such a queue, and to divide takes longer than to ask.
        if queue < self.rings.len() { queue } else { queue % self.rings.len() }
    }

    #[inline]
    pub(super) fn reserve(&mut self, len: usize) -> Option<&mut [u8]> {
        self.aimed = None;
        if self.steer.is_none() {
            // Not where the last flow went, whose sender has said which it was.
            self.guess = self.home;
        } else if !self.rings.iter_mut().all(|ring| ring.has_room_for(len)) {
            return None;
        }
        self.rings[self.guess].reserve(len)
    }

    pub(super) fn reserved(&mut self) -> Option<&mut [u8]> {
        self.rings[self.guess].reserved()
    }

    pub(super) fn give_up(&mut self) {
        self.rings[self.guess].give_up();
    }

    /// The frame goes where its flow does; the number of that ring. `None`, with nothing done: not so much is reserved.
    #[inline(never)]
    pub(super) fn commit(&mut self, len: usize, word: MetaWord) -> Option<usize> {
        let bucket = match self.aimed.take() {
            Some(bucket) => {
                #[cfg(debug_assertions)]
                if let Some((steer, written)) = self.steer.as_ref().zip(self.rings[self.guess].reserved())
                    && len <= written.len()
                {
                    debug_assert_eq!(steer(&written[..len]), bucket, "a frame of another flow than its sender said");
                }
                bucket
            }
            None => self.move_to_its_ring(len)?,
        };
        if !self.rings[self.guess].try_commit(len, word.0) {
            return None;
        }
        if let Some(follower) = &mut self.follower {
            follower.sent(bucket, self.rings[self.guess].position());
        }
        Some(self.guess)
    }

    /// Moves what was written to where `steer` says; the bucket. `None`, with nothing done: not so much is reserved.
    #[inline(never)]
    fn move_to_its_ring(&mut self, len: usize) -> Option<usize> {
        let written = self.rings[self.guess].reserved().filter(|room| len <= room.len())?;
        let Some(steer) = &self.steer else { return Some(0) };
        let bucket = steer(&written[..len]);
        let right = self.chosen(bucket);
        if right != self.guess {
            let [from, to] = self.rings.get_disjoint_mut([self.guess, right]).expect("two different rings");
            let from = from.reserved().expect(GRANTED);
            // Every ring was asked for this length when the reservation was made.
            to.reserve(from.len()).expect(GRANTED)[..len].copy_from_slice(&from[..len]);
            self.guess = right;
        }
        Some(bucket)
    }
}
