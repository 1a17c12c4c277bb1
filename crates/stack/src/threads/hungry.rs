//! Owns the list of conversations that were refused a block.
//!
//! Other conversations hold all there is, and who gives a block back knows of nobody. So whoever found none, the lane that has bytes for a
//! reader or a writer who does not wait, is on this list, and tries again every few milliseconds once there is one.
//!
//! What is listed is a place among the lane's records, once, whoever has it by the time that its turn comes: connections that come and go while
//! there is no memory make the list no longer than they were at a time. To try again in vain does no harm.

use laneway_proto::time::Instant;
use std::collections::VecDeque;

/// How long it takes until they try again, in microseconds.
const AGAIN_US: u64 = 4_000;
/// Conversations that try again in one poll.
const FED_MAX: usize = 256;

/// Places of conversations that were refused a block.
pub(super) struct Hungry {
    waiting: VecDeque<u32>,
    /// By place: it is on the list.
    listed: Vec<bool>,
    again_at: Instant,
}

impl Default for Hungry {
    fn default() -> Self {
        Hungry { waiting: VecDeque::new(), listed: Vec::new(), again_at: Instant::NEVER }
    }
}

impl Hungry {
    #[cold]
    pub(super) fn add(&mut self, index: u32, now: Instant) {
        let place = index as usize;
        if place >= self.listed.len() {
            self.listed.resize(place + 1, false);
        }
        if std::mem::replace(&mut self.listed[place], true) {
            return;
        }
        if self.waiting.is_empty() {
            self.again_at = now.after_us(AGAIN_US);
        }
        self.waiting.push_back(index);
    }

    /// Whether one waits for its turn to try again.
    pub(super) fn is_listed(&self, index: u32) -> bool {
        self.listed.get(index as usize).is_some_and(|listed| *listed)
    }

    /// So many may try again now. The others, and those that are refused again, a while later.
    pub(super) fn due(&mut self, now: Instant, has_some: impl FnOnce() -> bool) -> usize {
        if now < self.again_at {
            return 0;
        }
        if self.waiting.is_empty() {
            *self = Hungry::default();
            return 0;
        }
        self.again_at = now.after_us(AGAIN_US);
        if has_some() { self.waiting.len().min(FED_MAX) } else { 0 }
    }

    pub(super) fn pop(&mut self) -> Option<u32> {
        let index = self.waiting.pop_front()?;
        self.listed[index as usize] = false;
        Some(index)
    }

    /// When the lane is to look again, even if nothing arrives.
    pub(super) fn deadline(&self) -> Instant {
        self.again_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_listed_once_and_waits_for_its_time() {
        let at = Instant::from_us;
        let mut hungry = Hungry::default();
        assert_eq!(hungry.deadline(), Instant::NEVER);
        for _ in 0..1_000 {
            hungry.add(7, at(100));
        }
        hungry.add(3, at(200));
        assert_eq!(hungry.deadline(), at(100 + AGAIN_US));
        assert_eq!(hungry.due(at(99 + AGAIN_US), || true), 0, "it is too early");
        assert_eq!(hungry.due(at(100 + AGAIN_US), || false), 0, "there is none");
        assert_eq!(hungry.due(at(100 + 2 * AGAIN_US), || true), 2);
        assert_eq!([hungry.pop(), hungry.pop(), hungry.pop()], [Some(7), Some(3), None]);
        // Refused again.
        hungry.add(7, at(100 + 2 * AGAIN_US));
        assert_eq!(hungry.due(at(100 + 3 * AGAIN_US), || true), 1);
        assert_eq!(hungry.pop(), Some(7));
        assert_eq!(hungry.due(at(100 + 4 * AGAIN_US), || true), 0);
        assert_eq!(hungry.deadline(), Instant::NEVER, "nobody is left, and nothing is kept");
    }
}
