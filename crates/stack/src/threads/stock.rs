//! Owns the conversations that a lane has made, that have ended, and that it hands out again.
//!
//! A conversation that is made for each connection by the lane and freed by whoever is last costs two calls of the heap, in which what
//! one thread allocates another frees, and its lines come from wherever the heap has them. One that comes back with its
//! close is in the lane's cache already, with the blocks that it needs.
//!
//! The stock is bounded by [`STOCK_MAX`], and given back when it is not needed: in each [`PERIOD_US`] the half of what nobody has taken
//! in it. A lane that has nothing to do has none after a second.

#[cfg(test)]
mod tests;

use super::words::TalkEnd;
use laneway_proto::time::Instant;
use laneway_wire::flow::FlowKey;
use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;

/// Conversations that a lane keeps for others. With their blocks that is 2 MiB.
pub(super) const STOCK_MAX: usize = 256;
/// How often it is looked whether all of them are needed, in microseconds.
const PERIOD_US: u64 = 100_000;
/// How often it is looked whether somebody still holds one that has ended. Between his last word and his letting go lie a few
/// instructions; who has it for longer keeps it.
const LOOKS_MAX: u8 = 4;
/// Conversations that are looked at in one poll.
const LOOK_MAX: usize = 64;

#[derive(Default)]
pub(super) struct Stock {
    /// As new.
    free: Vec<TalkEnd>,
    /// Ended; perhaps still in somebody's hands. How often that was looked at.
    ended: VecDeque<(TalkEnd, u8)>,
    /// The fewest that were free since it was last looked whether all are needed.
    least: usize,
    due: Option<Instant>,
}

impl Stock {
    /// One for a connection that is established, if there is one.
    pub(super) fn take(&mut self, flow: FlowKey) -> Option<TalkEnd> {
        let mut end = self.free.pop()?;
        self.least = self.least.min(self.free.len());
        // Nobody has had it since it was made as new.
        end.beside()?.1.renew(flow);
        Some(end)
    }

    /// One that has ended.
    pub(super) fn give(&mut self, end: TalkEnd) {
        if self.free.len() + self.ended.len() < STOCK_MAX {
            self.ended.push_back((end, 0));
        }
    }

    /// Looks at those that have ended, at the end of a poll: nobody of the lane holds them any more.
    pub(super) fn settle(&mut self, now: Instant) {
        for _ in 0..self.ended.len().min(LOOK_MAX) {
            let Some((mut end, looks)) = self.ended.pop_front() else { break };
            let is_quiet = end.pipe().said().is_empty();
            if !end.is_alone() {
                // Whoever lets go of it last frees it, in the end.
                if looks < LOOKS_MAX {
                    self.ended.push_back((end, looks + 1));
                }
            } else if is_quiet && end.renew() {
                // The lane asks what was shut before an application takes the next connection, and that one has shut nothing.
                end.pipe().app().state.store(0, Relaxed);
                self.free.push(end);
            }
        }
        if self.due.is_none() && !self.free.is_empty() {
            self.least = self.free.len();
            self.due = Some(now.after_us(PERIOD_US));
        }
    }

    /// Gives back what is not needed.
    pub(super) fn shrink(&mut self, now: Instant) {
        if self.due.is_none_or(|due| now < due) {
            return;
        }
        let surplus = self.least.min(self.free.len()).div_ceil(2);
        self.free.drain(..surplus);
        self.least = self.free.len();
        self.due = (!self.free.is_empty()).then(|| now.after_us(PERIOD_US));
    }

    /// When to call [`shrink`](Self::shrink) again.
    pub(super) fn due(&self) -> Instant {
        self.due.unwrap_or(Instant::NEVER)
    }
}
