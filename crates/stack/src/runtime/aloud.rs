//! Owns what a lane says aloud of itself while it runs: that a poll took too long, that connections are turned away, that the capture has
//! ended. It is looked at once a poll, and said once a second at the most, however often it happens. Nothing is said per packet.

use crate::counters::{Counters, Mib};
use laneway_device::pcap::Capture;
use laneway_proto::time::Instant;

/// Between two sentences on one subject.
const PAUSE_US: u64 = 1_000_000;

/// One lane's voice.
pub(super) struct Aloud {
    lane: usize,
    /// Polls that took too long and have not been spoken of, and the longest of them in microseconds.
    slow: (u64, u64),
    slow_again: Instant,
    /// Connections turned away that have been spoken of: for want of room in an accept queue, and for any reason.
    refused: (u64, u64),
    look: Instant,
    /// It has been said that the capture has ended.
    capture_ended: bool,
}

impl Aloud {
    pub(super) fn new(lane: usize) -> Self {
        let at = Instant::from_us(0);
        Aloud { lane, slow: (0, 0), slow_again: at, refused: (0, 0), look: at, capture_ended: false }
    }

    /// A poll took so long.
    #[cold]
    pub(super) fn slow_poll(&mut self, now: Instant, took_us: u64) {
        self.slow = (self.slow.0 + 1, self.slow.1.max(took_us));
        self.speak_of_slow(now);
    }

    fn speak_of_slow(&mut self, now: Instant) {
        let (polls, longest_us) = self.slow;
        if polls == 0 || now < self.slow_again {
            return;
        }
        tracing::warn!(
            lane = self.lane,
            polls,
            longest_us,
            "a poll took more than 10 ms, and every connection of the lane waited for it: an application that does too \
             much in a callback, or another program on this core"
        );
        self.slow = (0, 0);
        self.slow_again = now.after_us(PAUSE_US);
    }

    /// Whether it is time to [`look`](Self::look).
    #[inline]
    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.look
    }

    /// Looks at what has been counted since the last time.
    pub(super) fn look(&mut self, now: Instant, counters: &Counters) {
        self.look = now.after_us(PAUSE_US);
        self.speak_of_slow(now);
        let refused = (counters.get(Mib::TcpExtListenOverflows), counters.get(Mib::TcpExtListenDrops));
        let (overflows, drops) = (refused.0.saturating_sub(self.refused.0), refused.1.saturating_sub(self.refused.1));
        self.refused = refused;
        if overflows > 0 {
            tracing::warn!(
                lane = self.lane,
                overflows,
                drops,
                "connections were turned away, because nobody accepts those that wait: accept faster, or listen with a \
                 larger backlog"
            );
        } else if drops > 0 {
            tracing::warn!(
                lane = self.lane,
                drops,
                "connections were turned away, because too many are half open: a flood of SYNs, or a \
                 tcp_max_syn_backlog that is too small; tcp_syncookies = true answers all of them"
            );
        }
    }

    /// Looks at the capture, which all lanes have in common: one of them speaks of it.
    pub(super) fn look_at_capture(&mut self, capture: &Capture) {
        if self.capture_ended || self.lane != 0 {
            return;
        }
        if let Some(why) = capture.failure() {
            self.capture_ended = true;
            tracing::warn!("the capture has ended, and packets from now on are missing: {why}");
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
