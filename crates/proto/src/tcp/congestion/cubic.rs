//! Owns CUBIC: after a loss the window returns to where it was along a cubic curve of time (RFC 9438).
//!
//! All in integers, so that a simulated run is the same on every machine. Time on the curve is counted in *ticks* of
//! 1/1024 s. Only the time in which the window was in use counts: an application that pauses does not find the window
//! grown when it comes back (section 5.8).

use super::Controller;
use super::window::{WINDOW_MAX, Window};
use crate::time::Instant;

/// Ticks per second, as a power of two.
const TICK_BITS: u32 = 10;
/// Farthest point of the curve that is looked at, in ticks either side of its middle: 256 s, where the curve is
/// 6.7 million segments away. Beyond it nothing fits a TCP window, and the cube would not fit 64 bits.
const TICKS_MAX: u64 = 1 << 18;
/// The window is recomputed each time this part of it has been acknowledged (as a shift: 1/32): often enough to follow
/// the curve, seldom enough that most ACKs cost an addition.
const STEP_BITS: u32 = 5;

/// The controller of RFC 9438, with fast convergence. First stands what each acknowledgement asks for, since a line of
/// [`Connection`](crate::tcp::Connection) ends behind that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Cubic {
    pub(super) window: Window,
    /// When `epoch_us` was last brought up to date; `NEVER`: no epoch is running.
    clock: Instant,
    /// Where the curve is flat, in bytes: the window before the last reduction. 0: unknown (before any loss, and after a
    /// time-out); then the next epoch starts on the flat point.
    w_max: u32,
    prior_w_max: u32,
    /// Time from the start of the epoch to the flat point (K), in ticks.
    k_ticks: u32,
    /// What Reno would have reached since the start of the epoch, in bytes.
    w_est: u32,
    /// Acknowledged bytes, weighted by α, that have not yet moved `w_est`.
    est_credit: u32,
    /// Time since the start of the epoch in which the window was in use, in microseconds.
    epoch_us: u32,
}

const _: () = assert!(core::mem::offset_of!(Cubic, w_max) == 32);

impl Cubic {
    /// A controller for segments of `mss` bytes.
    #[inline]
    pub const fn new(mss: u32) -> Self {
        Self::from_window(Window::new(mss))
    }

    /// One that takes a window over.
    #[inline]
    pub(super) const fn from_window(window: Window) -> Self {
        Cubic {
            window,
            w_max: 0,
            prior_w_max: 0,
            k_ticks: 0,
            w_est: 0,
            est_credit: 0,
            epoch_us: 0,
            clock: Instant::NEVER,
        }
    }

    /// Starts a congestion avoidance stage at the present window.
    fn start_epoch(&mut self, now: Instant) {
        let cwnd = self.window.cwnd;
        if self.w_max <= cwnd {
            // Section 4.8 and 4.10: no maximum to return to, so the curve starts on its flat point, upwards.
            self.w_max = cwnd;
        }
        self.k_ticks = ticks_to_climb(self.w_max - cwnd, self.window.mss());
        self.w_est = cwnd;
        self.est_credit = 0;
        self.epoch_us = 0;
        self.window.credit = 0;
        self.clock = now;
    }

    fn end_epoch(&mut self) {
        self.clock = Instant::NEVER;
    }

    /// W_cubic in bytes, `us` microseconds into the epoch (section 4.2).
    #[inline]
    fn curve(&self, us: u64) -> u32 {
        let ticks = us_to_ticks(us);
        let k = u64::from(self.k_ticks);
        let away = climb(ticks.abs_diff(k), self.window.mss());
        if ticks < k { self.w_max.saturating_sub(away) } else { self.w_max.saturating_add(away) }.min(WINDOW_MAX)
    }

    /// Moves the window for `window.credit` acknowledged bytes.
    fn step(&mut self, srtt_us: u32) {
        let acked = self.window.credit;
        let cwnd = self.window.cwnd;
        self.window.credit = 0;

        // Section 4.3: W_est grows by α segments per window, and by one once it is back where the loss was.
        let weighted = if self.w_est < self.window.prior_cwnd { (u64::from(acked) * 9 / 17) as u32 } else { acked };
        self.est_credit = self.est_credit.saturating_add(weighted);
        let whole = self.window.whole_segments();
        if self.est_credit >= whole {
            self.est_credit = (self.est_credit - whole).min(whole);
            self.w_est = self.w_est.saturating_add(self.window.mss()).min(WINDOW_MAX);
        }

        let epoch_us = u64::from(self.epoch_us);
        if self.curve(epoch_us) < self.w_est {
            self.window.cwnd = cwnd.max(self.w_est);
            return;
        }
        // Sections 4.4 and 4.5: aim at where the curve will be in one round trip, and go there in one round trip; but
        // never by more than half a window.
        let target = self.curve(epoch_us + u64::from(srtt_us)).clamp(cwnd, cwnd.saturating_add(cwnd / 2));
        // `cwnd` is at least one segment; `acked` counts for no more than the window that it answers.
        let grown = u64::from(target - cwnd) * u64::from(acked.min(whole)) / u64::from(whole);
        self.window.grow(grown as u32);
    }

    /// Section 4.6: β = 0.7.
    fn reduced(&self, in_flight: u32) -> u32 {
        (u64::from(self.window.flight(in_flight)) * 7 / 10) as u32
    }
}

impl Controller for Cubic {
    #[inline]
    fn window(&self) -> u32 {
        self.window.cwnd
    }

    #[inline]
    fn slow_start_threshold(&self) -> u32 {
        self.window.ssthresh
    }

    #[inline(always)]
    fn may_grow(&mut self, now: Instant, in_flight: u32, is_cwnd_limited: bool) -> bool {
        let grows = self.window.may_grow(is_cwnd_limited, in_flight);
        if !grows && self.clock != Instant::NEVER {
            // What an application leaves unused is not on the curve.
            self.clock = self.clock.max(now);
        }
        grows
    }

    fn grow(&mut self, now: Instant, bytes: u32, srtt_us: u32) {
        if self.clock != Instant::NEVER {
            let used_us = now.since_us(self.clock).min(u64::from(u32::MAX)) as u32;
            self.epoch_us = self.epoch_us.saturating_add(used_us);
            self.clock = self.clock.max(now);
        }
        let bytes = self.window.slow_start(bytes);
        if bytes == 0 {
            return;
        }
        if self.clock == Instant::NEVER {
            self.start_epoch(now);
        }
        self.window.credit = self.window.credit.saturating_add(bytes);
        if self.window.credit >= self.window.cwnd >> STEP_BITS {
            self.step(srtt_us);
        }
    }

    fn on_congestion(&mut self, _now: Instant, in_flight: u32) {
        if self.window.remember() {
            self.prior_w_max = self.w_max;
        }
        let cwnd = self.window.cwnd;
        // Section 4.7, fast convergence: who lost before getting back to the old maximum gives room to a newcomer.
        self.w_max = if cwnd < self.w_max { (u64::from(cwnd) * 17 / 20) as u32 } else { cwnd };
        self.window.enter_recovery(self.reduced(in_flight));
        self.end_epoch();
    }

    fn on_timeout(&mut self, _now: Instant, in_flight: u32) {
        if self.window.remember() {
            self.prior_w_max = self.w_max;
        }
        self.w_max = 0;
        self.window.collapse(self.reduced(in_flight));
        self.end_epoch();
    }

    fn on_recovered(&mut self, _now: Instant) {
        self.window.recovered();
    }

    fn undo(&mut self) -> bool {
        let undone = self.window.undo();
        if undone {
            self.w_max = self.prior_w_max;
            // Section 4.9 would restore the epoch as well. Below the maximum, a new epoch starts at the same place of the
            // same curve; above it we begin on the flat point again, which is slower and never wrong.
            self.end_epoch();
        }
        undone
    }

    fn confirm(&mut self) {
        self.window.confirm();
    }

    fn on_idle(&mut self, idle_us: u64, rto_us: u32) -> bool {
        let restarts = self.window.restart_if_idle(idle_us, rto_us);
        if restarts {
            self.end_epoch();
        } else if self.clock != Instant::NEVER {
            // The idle time is not on the curve.
            self.clock = self.clock.after_us(idle_us);
        }
        restarts
    }

    fn on_mss(&mut self, mss: u32) {
        self.window.set_mss(mss);
        // The curve is one of segments: K no longer fits.
        self.end_epoch();
    }

    #[inline(always)]
    fn on_syn_lost(&mut self) {
        self.window.syn_lost();
    }

    fn leave_slow_start(&mut self) {
        self.window.leave_slow_start();
    }
}

/// Microseconds to ticks, up to a bound that [`climb`] does not look beyond for any K.
#[inline]
fn us_to_ticks(us: u64) -> u64 {
    // 1024 / 1_000_000; the largest `us` is two u32, so nothing overflows.
    us * 16 / 15_625
}

/// C·t³ with C = 0.4 segments/s³, in bytes, for `ticks` from the flat point.
#[inline]
fn climb(ticks: u64, mss: u32) -> u32 {
    let t = ticks.min(TICKS_MAX);
    // t³ ≤ 2^54; without its low ten bits 2^44; times a segment of 16 bits 2^60; times two 2^61.
    let bytes = (((t * t * t) >> TICK_BITS) * u64::from(mss) * 2 / 5) >> (2 * TICK_BITS);
    bytes.min(u64::from(u32::MAX)) as u32
}

/// K: the ticks that the curve needs for the last `bytes` below its flat point.
fn ticks_to_climb(bytes: u32, mss: u32) -> u32 {
    // t³ = bytes / mss / 0.4 in s³, which is 2^30 ticks³. `bytes` ≤ 2^30: the product stays below 2^62.
    let cube = ((u64::from(bytes.min(WINDOW_MAX)) * 5) << (3 * TICK_BITS - 1)) / u64::from(mss.max(1));
    cube_root(cube)
}

/// The largest `r` with `r³ ≤ n`, bit by bit.
fn cube_root(n: u64) -> u32 {
    let mut root = 0u64;
    for bit in (0..21).rev() {
        let next = root | (1 << bit);
        if next * next * next <= n {
            root = next;
        }
    }
    root as u32
}

#[cfg(test)]
mod tests;
