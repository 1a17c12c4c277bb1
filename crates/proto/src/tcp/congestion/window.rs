//! Owns what Reno and CUBIC have in common: the window, the threshold, slow start, and the memory for taking a
//! reduction back (RFC 5681).

/// Largest window in bytes: no peer can offer more (65535 shifted by 14, RFC 7323 section 2.3).
pub const WINDOW_MAX: u32 = 1 << 30;

/// The initial window of RFC 6928 in bytes: ten segments, but about 14600 bytes if segments are large.
pub const fn initial_window(mss: u32) -> u32 {
    let ten = mss.saturating_mul(10);
    let two = mss.saturating_mul(2);
    let bound = if two > 14_600 { two } else { 14_600 };
    if ten < bound { ten } else { bound }
}

/// Where in a loss the connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// Nothing acknowledged and nothing lost: the window may still follow the segment size.
    Initial,
    /// No loss is being repaired.
    Open,
    /// From a fast retransmit to its recovery point: the window stands still.
    Recovery,
    /// The timer fired and nothing was acknowledged since.
    TimedOut,
    /// The timer fired, and ACKs have come since: slow start, repair not complete.
    Repairing,
}

/// Window and threshold in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Window {
    pub cwnd: u32,
    pub ssthresh: u32,
    /// Acknowledged bytes that have not yet moved `cwnd` in congestion avoidance (RFC 3465).
    pub credit: u32,
    /// `cwnd` before the first reduction of the present (or last) loss.
    pub prior_cwnd: u32,
    prior_ssthresh: u32,
    mss: u16,
    pub phase: Phase,
    may_undo: bool,
}

impl Window {
    #[inline]
    pub const fn new(mss: u32) -> Self {
        let mss = clamp_mss(mss);
        Window {
            cwnd: initial_window(mss as u32),
            ssthresh: u32::MAX,
            credit: 0,
            prior_cwnd: 0,
            prior_ssthresh: u32::MAX,
            mss,
            phase: Phase::Initial,
            may_undo: false,
        }
    }

    #[inline]
    pub fn mss(&self) -> u32 {
        u32::from(self.mss)
    }

    /// Takes note that something was acknowledged. False: the window must not grow now.
    #[inline]
    pub fn may_grow(&mut self, is_cwnd_limited: bool, in_flight: u32) -> bool {
        (self.phase == Phase::Open || self.leaves_phase()) && (is_cwnd_limited || self.is_nearly_used(in_flight))
    }

    /// In slow start a window counts as used if more than half of it was lately: it is about to double, and a sender of bursts that
    /// just fit would not find it larger when one does not (RFC 7661; Linux's `tcp_is_cwnd_limited`).
    #[inline]
    fn is_nearly_used(&self, in_flight: u32) -> bool {
        in_flight > self.cwnd / 2 && self.cwnd < self.ssthresh
    }

    /// The same, in a phase that may end with this. (By itself: nearly every ACK comes in [`Phase::Open`].)
    #[inline(never)]
    fn leaves_phase(&mut self) -> bool {
        match self.phase {
            Phase::Recovery => return false,
            Phase::Initial => self.phase = Phase::Open,
            Phase::TimedOut => self.phase = Phase::Repairing,
            Phase::Open | Phase::Repairing => {}
        }
        true
    }

    /// Slow start: the window grows by what was acknowledged, up to the threshold. Returns the bytes left over for
    /// congestion avoidance.
    ///
    /// RFC 3465 section 2.2 limits the growth per ACK to two segments. We do not, as Linux does not: a receiver that
    /// acknowledges once per batch would otherwise open the window by two segments per batch. Counting bytes, and not
    /// ACKs, already takes the gain out of splitting ACKs.
    #[inline]
    pub fn slow_start(&mut self, bytes: u32) -> u32 {
        let room = self.ssthresh.min(WINDOW_MAX).saturating_sub(self.cwnd);
        let grown = bytes.min(room);
        self.cwnd += grown;
        bytes - grown
    }

    /// As much of the window as full segments fill. A round trip acknowledges that; what is left over, of which a loss leaves half a segment, stays
    /// empty, and to wait for its ACK would take more than a round trip (RFC 5681 section 3.1: a segment in each).
    #[inline]
    pub fn whole_segments(&self) -> u32 {
        self.cwnd - self.cwnd % self.mss()
    }

    pub fn leave_slow_start(&mut self) {
        self.ssthresh = self.ssthresh.min(self.cwnd);
    }

    /// Grows by `bytes`, never beyond [`WINDOW_MAX`].
    #[inline]
    pub fn grow(&mut self, bytes: u32) {
        self.cwnd = self.cwnd.saturating_add(bytes).min(WINDOW_MAX);
    }

    /// What a reduction is measured from: what was in flight, but no more than the window. After a time-out the
    /// outstanding data is what the *old* window allowed, and says nothing about the present one.
    pub fn flight(&self, in_flight: u32) -> u32 {
        in_flight.min(self.cwnd)
    }

    /// Remembers window and threshold, unless this loss has already done so. True if it had not.
    pub fn remember(&mut self) -> bool {
        let is_first = matches!(self.phase, Phase::Initial | Phase::Open);
        if is_first {
            self.prior_cwnd = self.cwnd;
            self.prior_ssthresh = self.ssthresh;
            self.may_undo = true;
        }
        is_first
    }

    /// Enters fast recovery with `threshold` as window and threshold, at least two segments (RFC 5681 equation 4); but a window of less than that, as after a
    /// time-out or a lost SYN, becomes no wider by a loss or a mark.
    pub fn enter_recovery(&mut self, threshold: u32) {
        self.ssthresh = threshold.max(2 * self.mss());
        self.cwnd = self.cwnd.min(self.ssthresh);
        self.credit = 0;
        self.phase = Phase::Recovery;
    }

    /// Collapses to one segment after a time-out. A second time-out in a row keeps the threshold.
    pub fn collapse(&mut self, threshold: u32) {
        if self.phase != Phase::TimedOut {
            self.ssthresh = threshold.max(2 * self.mss());
        }
        self.cwnd = self.mss();
        self.credit = 0;
        self.phase = Phase::TimedOut;
    }

    /// The loss is repaired.
    pub fn recovered(&mut self) {
        self.phase = Phase::Open;
    }

    /// Takes the last loss's reductions back. False if there is nothing to take back; its repair is over all the same.
    pub fn undo(&mut self) -> bool {
        if self.phase != Phase::Initial {
            self.phase = Phase::Open;
        }
        if !self.may_undo {
            return false;
        }
        self.may_undo = false;
        self.cwnd = self.cwnd.max(self.prior_cwnd);
        self.ssthresh = self.ssthresh.max(self.prior_ssthresh);
        true
    }

    /// What was reduced so far stays so.
    pub fn confirm(&mut self) {
        self.may_undo = false;
    }

    /// After an idle time: the restart window of RFC 5681 section 4.1, once the time exceeds the time-out. True if so.
    ///
    /// The threshold may be that of a loss long ago, far below what the path has carried since. Slow start is to find that again, but for a quarter
    /// (RFC 2861 section 3), or each pause costs what congestion avoidance had gained since that loss.
    pub fn restart_if_idle(&mut self, idle_us: u64, rto_us: u32) -> bool {
        let is_stale = idle_us > u64::from(rto_us);
        if is_stale {
            self.ssthresh = self.ssthresh.max(self.cwnd - self.cwnd / 4);
            self.cwnd = self.cwnd.min(initial_window(self.mss()));
            self.credit = 0;
            self.confirm(); // who hears only now that it was a mistake would open the window at once to what it was then
        }
        is_stale
    }

    pub fn set_mss(&mut self, mss: u32) {
        self.mss = clamp_mss(mss);
        if self.phase == Phase::Initial {
            self.cwnd = initial_window(self.mss());
        } else {
            // Bytes stay bytes; but a window below one segment could send nothing at all.
            self.cwnd = self.cwnd.max(self.mss());
        }
    }

    #[inline(always)]
    pub fn syn_lost(&mut self) {
        self.cwnd = self.mss();
        // Not `Initial` any more: a later change of the segment size must not give the ten segments back.
        self.phase = Phase::Open;
    }
}

/// A segment size that can be divided by: 1 to 65535 bytes.
const fn clamp_mss(mss: u32) -> u16 {
    if mss == 0 {
        1
    } else if mss > u16::MAX as u32 {
        u16::MAX
    } else {
        mss as u16
    }
}
