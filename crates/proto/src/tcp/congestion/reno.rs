//! Owns Reno: halve on loss, one segment more per window (RFC 5681, counting bytes as RFC 3465).

use super::Controller;
use super::window::Window;
use crate::time::Instant;

/// The controller of RFC 5681.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reno {
    pub(super) window: Window,
}

impl Reno {
    /// A controller for segments of `mss` bytes.
    #[inline(always)]
    pub const fn new(mss: u32) -> Self {
        Reno { window: Window::new(mss) }
    }
}

impl Controller for Reno {
    #[inline]
    fn window(&self) -> u32 {
        self.window.cwnd
    }

    #[inline]
    fn slow_start_threshold(&self) -> u32 {
        self.window.ssthresh
    }

    #[inline(always)]
    fn may_grow(&mut self, _now: Instant, in_flight: u32, is_cwnd_limited: bool) -> bool {
        self.window.may_grow(is_cwnd_limited, in_flight)
    }

    fn grow(&mut self, _now: Instant, bytes: u32, _srtt_us: u32) {
        let window = &mut self.window;
        let bytes = window.slow_start(bytes);
        // RFC 3465 section 2.1: a window of acknowledged bytes is worth one segment; of a window of segments, for no round trip has more. One at a
        // time: an ACK of several windows is the echo of an older, larger window.
        window.credit = window.credit.saturating_add(bytes);
        let whole = window.whole_segments();
        if window.credit >= whole {
            window.credit = (window.credit - whole).min(whole);
            window.grow(window.mss());
        }
    }

    fn on_congestion(&mut self, _now: Instant, in_flight: u32) {
        self.window.remember();
        self.window.enter_recovery(self.window.flight(in_flight) / 2);
    }

    fn on_timeout(&mut self, _now: Instant, in_flight: u32) {
        self.window.remember();
        self.window.collapse(self.window.flight(in_flight) / 2);
    }

    fn on_recovered(&mut self, _now: Instant) {
        self.window.recovered();
    }

    fn undo(&mut self) -> bool {
        self.window.undo()
    }

    fn confirm(&mut self) {
        self.window.confirm();
    }

    fn on_idle(&mut self, idle_us: u64, rto_us: u32) -> bool {
        self.window.restart_if_idle(idle_us, rto_us)
    }

    fn on_mss(&mut self, mss: u32) {
        self.window.set_mss(mss);
    }

    #[inline(always)]
    fn on_syn_lost(&mut self) {
        self.window.syn_lost();
    }

    fn leave_slow_start(&mut self) {
        self.window.leave_slow_start();
    }
}

#[cfg(test)]
mod tests;
