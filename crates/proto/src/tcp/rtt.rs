//! Owns the round-trip estimate of one connection: smoothed RTT, its variation, the retransmission time-out and the
//! smallest RTT seen (RFC 6298).
//!
//! Karn's rule is the caller's: an ACK of data that was sent twice gives no sample, unless a timestamp says which
//! transmission it answers.

use crate::time::Instant;

/// Time-out before anything was measured: RFC 6298 section 2.1.
pub const RTO_INITIAL_US: u32 = 1_000_000;
/// Least distance kept between the smoothed RTT and the time-out.
///
/// RFC 6298 section 2.4 asks for a floor of one second below the whole RTO. Like Linux we use 200 ms, and put it below
/// the variation term instead: on a long and steady path the variation goes to zero, and a floor below the sum would
/// leave no room for the peer's delayed ACK.
pub const RTO_MARGIN_US: u32 = 200_000;
/// Largest time-out, backed off or not: RFC 6298 section 2.5 wants at least 60 s; this is Linux's `TCP_RTO_MAX`.
pub const RTO_MAX_US: u32 = 120_000_000;
/// Time-out with which data starts when a SYN was lost and nothing was measured: RFC 6298 section 5.7.
pub const RTO_AFTER_LOST_SYN_US: u32 = 3_000_000;

/// What is added to a time that is only a matter of round trips, or is the least of it, in microseconds: on a short one it is the other end's scheduler that
/// an ACK waits for, and not the path. As much as two ticks of a common kernel, which Linux adds.
pub const PTO_MARGIN_US: u32 = 10_000;

/// In 64ths of a round trip: a quarter of one, and one.
const PATIENCE_LEAST: u8 = 16;
const PATIENCE_MOST: u8 = 64;

/// Doublings after which every time-out has reached [`RTO_MAX_US`]; counting on would tell nothing.
const BACKOFFS_MAX: u8 = 16;
/// How long a SYN or SYN-ACK that was sent again so many times is waited for: a second, doubled with each retry (RFC 6298 section 2.1),
/// up to 64 s. In microseconds.
#[inline]
pub const fn syn_timeout_us(retries: u8) -> u64 {
    1_000_000 << if retries < 6 { retries } else { 6 }
}

/// No sample yet. A real sample is at most [`RTO_MAX_US`].
const NEVER: u32 = u32::MAX;

/// Round-trip estimator of one connection. Plain arithmetic, no clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RttEstimator {
    /// SRTT, µs × 8, so that the gain of 1/8 loses no fraction. 0: no sample yet.
    srtt_x8: u32,
    /// RTTVAR, µs × 4, for its gain of 1/4; also the `K = 4` that the time-out wants.
    rttvar_x4: u32,
    /// Time-out before back-off, µs.
    rto_us: u32,
    min_rtt_us: u32,
    backoffs: u8,
    is_stale: bool,
    /// How long a gap may be mere reordering, in 64ths of SRTT; 0: none was ever seen.
    patience: u8,
}

const _: () = assert!(size_of::<RttEstimator>() <= 24);

impl Default for RttEstimator {
    fn default() -> Self {
        Self::new()
    }
}

impl RttEstimator {
    /// An estimator that has seen nothing: the time-out is one second.
    #[inline]
    pub const fn new() -> Self {
        RttEstimator {
            srtt_x8: 0,
            rttvar_x4: 0,
            rto_us: RTO_INITIAL_US,
            min_rtt_us: NEVER,
            backoffs: 0,
            is_stale: false,
            patience: 0,
        }
    }

    /// A round trip took `rtt_us` microseconds. Ends any back-off.
    ///
    /// 0 is taken for 1 µs: a memory device is faster than the clock. What exceeds [`RTO_MAX_US`] is taken for that: an
    /// echoed timestamp is the peer's to forge.
    #[inline]
    pub fn on_sample(&mut self, rtt_us: u32) {
        self.take(rtt_us.clamp(1, RTO_MAX_US));
    }

    /// [`on_sample`](Self::on_sample) of what left at `sent` and is acknowledged now.
    #[inline(always)]
    pub fn on_round_trip(&mut self, sent: Instant, now: Instant) {
        self.take(now.since_us(sent).clamp(1, RTO_MAX_US.into()) as u32);
    }

    /// A round trip of which a timestamp tells, beside the one that is measured in each: it counts if it is longer by an eighth. A window that doubles fills
    /// a queue within a round trip, and the time-out would be that of the round trip before.
    ///
    /// Nothing beyond two time-outs is believed, nor without a sample of our own clock: what is echoed is the peer's to forge.
    #[inline]
    pub fn on_longer(&mut self, rtt_us: u32) {
        let srtt_us = self.srtt_x8 / 8;
        if rtt_us > srtt_us + srtt_us / 8 && rtt_us / 2 < self.rto_us && self.srtt_x8 != 0 && self.backoffs == 0 {
            self.take(rtt_us);
        }
    }

    #[inline(always)]
    fn take(&mut self, rtt: u32) {
        if self.srtt_x8 == 0 {
            // Section 2.2: SRTT <- R, RTTVAR <- R/2.
            self.srtt_x8 = rtt * 8;
            self.rttvar_x4 = rtt * 2;
        } else {
            // Section 2.3: RTTVAR first, with the SRTT from before this sample.
            let error = (self.srtt_x8 / 8).abs_diff(rtt);
            self.rttvar_x4 = self.rttvar_x4 - self.rttvar_x4 / 4 + error;
            self.srtt_x8 = self.srtt_x8 - self.srtt_x8 / 8 + rtt; // at least 1, as `rtt` is
        }
        self.min_rtt_us = self.min_rtt_us.min(rtt);
        self.rto_us = (self.srtt_x8 / 8 + self.rttvar_x4.max(RTO_MARGIN_US)).min(RTO_MAX_US);
        (self.backoffs, self.is_stale) = (0, false);
    }

    /// A tail loss probe has left. It takes the sample with it if it repeats what was timed.
    #[inline]
    pub fn on_probe(&mut self) {
        self.is_stale = true;
    }

    /// When an ACK is overdue, in microseconds after something was sent (RFC 8985 section 7.2): two round trips, of which
    /// one is for what delays an ACK on its way, and [`PTO_MARGIN_US`]. `None` while nothing is known of the path: no sample, none since the
    /// last probe, or the timer backs off.
    //= https://www.rfc-editor.org/rfc/rfc8985#section-7.3
    //# Second, the sender has obtained an RTT measurement since the last loss probe transmission
    #[inline]
    pub fn pto_us(&self) -> Option<u32> {
        self.is_fresh().then(|| (self.srtt_x8 / 4).saturating_add(PTO_MARGIN_US))
    }

    /// How long a gap may be mere reordering, in microseconds (RFC 8985 section 6.2, step 4): a quarter of a round trip at the
    /// least and a whole one at the most. Who has heard nothing meanwhile waits for [`PTO_MARGIN_US`] at the least. `None` as for [`pto_us`](Self::pto_us).
    #[inline]
    pub fn reordering_us(&self) -> Option<u32> {
        let patience = u64::from(self.patience.max(PATIENCE_LEAST));
        let window = || u64::from(self.srtt_x8 / 8) * patience / u64::from(PATIENCE_MOST);
        self.is_fresh().then(|| window() as u32)
    }

    /// Whether what was sent later has ever come before what was sent earlier: then it is for the clock to say what is lost.
    #[inline]
    pub fn has_seen_reordering(&self) -> bool {
        self.patience > 0
    }

    /// What was reported missing has come late.
    pub fn on_reordering(&mut self) {
        self.patience = self.patience.max(PATIENCE_LEAST);
    }

    /// What was taken for lost was only late: the next gap has longer, by a quarter of a round trip.
    pub fn on_impatience(&mut self) {
        self.patience = (self.patience + PATIENCE_LEAST).min(PATIENCE_MOST);
    }

    /// What was taken for lost was lost: of sixteen times that this is so, one mistake is forgotten.
    pub fn on_patience(&mut self) {
        if self.patience > PATIENCE_LEAST {
            self.patience -= 1;
        }
    }

    #[inline]
    fn is_fresh(&self) -> bool {
        self.srtt_x8 != 0 && self.backoffs == 0 && !self.is_stale
    }

    /// The retransmission timer fired: the next time-out is twice as long (section 5.5).
    #[inline]
    pub fn on_timeout(&mut self) {
        self.backoffs = (self.backoffs + 1).min(BACKOFFS_MAX);
    }

    /// The peer's closed window has opened: the back-off was that of its probes, and ends. (After a retransmission only
    /// a sample ends it: section 5, and Karn's rule.)
    #[inline]
    pub fn on_window_open(&mut self) {
        self.backoffs = 0;
    }

    /// What was not answered may have been too large for its path, and a smaller segment was: so it was no congestion, and the back-off ends.
    pub fn on_small_answered(&mut self) {
        self.backoffs = 0;
    }

    /// The handshake is complete, but its SYN (or SYN-ACK) had to be sent again. Without a sample, data then starts
    /// with a time-out of three seconds (section 5.7): one second was evidently too short, or the path is lossy.
    pub fn on_syn_lost(&mut self) {
        self.backoffs = 0;
        if self.srtt_x8 == 0 {
            self.rto_us = RTO_AFTER_LOST_SYN_US;
        }
    }

    /// The time-out to arm now, back-off included, in microseconds: 200 ms to 120 s.
    #[inline]
    pub fn rto_us(&self) -> u32 {
        if self.backoffs == 0 {
            return self.rto_us;
        }
        let backed_off = u64::from(self.rto_us) << self.backoffs;
        backed_off.min(u64::from(RTO_MAX_US)) as u32
    }

    /// The smoothed round trip in microseconds (at least 1), once there is one.
    #[inline]
    pub fn srtt_us(&self) -> Option<u32> {
        (self.srtt_x8 != 0).then(|| (self.srtt_x8 / 8).max(1))
    }

    /// The mean deviation of the round trip in microseconds; 0 without a sample.
    #[inline]
    pub fn rttvar_us(&self) -> u32 {
        self.rttvar_x4 / 4
    }

    /// The smallest round trip seen in microseconds (at least 1), once there is one.
    #[inline]
    pub fn min_rtt_us(&self) -> Option<u32> {
        (self.min_rtt_us != NEVER).then_some(self.min_rtt_us)
    }

    /// How often in a row the timer fired without an answer (saturates at 16, when the time-out has long been 120 s).
    #[inline]
    pub fn backoffs(&self) -> u8 {
        self.backoffs
    }
}

#[cfg(test)]
mod tests;
