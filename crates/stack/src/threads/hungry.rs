//! Owns the list of conversations that were refused a block.
//!
//! Other conversations hold all there is, and who gives a block back knows of nobody. So whoever found none, the lane that has bytes for a
//! reader or a writer who does not wait, is on this list, and tries again every few milliseconds once there is one.

use crate::app::ConnId;
use laneway_proto::time::Instant;
use std::collections::VecDeque;

/// How long it takes until they try again, in microseconds.
const AGAIN_US: u64 = 4_000;
/// Conversations that try again in one poll.
const FED_MAX: usize = 256;

/// Conversations that were refused a block: their places, and whose those were. Each is on the list once.
pub(super) struct Hungry {
    waiting: VecDeque<(u32, ConnId)>,
    again_at: Instant,
}

impl Default for Hungry {
    fn default() -> Self {
        Hungry { waiting: VecDeque::new(), again_at: Instant::NEVER }
    }
}

impl Hungry {
    #[cold]
    pub(super) fn add(&mut self, index: u32, id: ConnId, now: Instant) {
        if self.waiting.is_empty() {
            self.again_at = now.after_us(AGAIN_US);
        }
        self.waiting.push_back((index, id));
    }

    /// So many may try again now. The others, and those that are refused again, a while later.
    pub(super) fn due(&mut self, now: Instant, has_some: impl FnOnce() -> bool) -> usize {
        if now < self.again_at {
            return 0;
        }
        self.again_at = if self.waiting.is_empty() { Instant::NEVER } else { now.after_us(AGAIN_US) };
        if has_some() { self.waiting.len().min(FED_MAX) } else { 0 }
    }

    pub(super) fn pop(&mut self) -> Option<(u32, ConnId)> {
        self.waiting.pop_front()
    }

    /// When the lane is to look again, even if nothing arrives.
    pub(super) fn deadline(&self) -> Instant {
        self.again_at
    }
}
