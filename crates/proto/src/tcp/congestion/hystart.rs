//! Owns HyStart++: slow start ends where the queue begins to fill, and not where it overflows (RFC 9406).
//!
//! Where the smallest round trip of one round exceeds that of the round before by an eighth, a queue grows. That may be mere jitter, so
//! the window grows on, at a quarter of the pace, for five rounds ("conservative slow start"); if the round trip becomes shorter again it was, and slow
//! start goes on as before.
//!
//! It does not depend on the controller: it says how much of what was acknowledged counts, and when slow start is over. Round trips are told
//! by timestamps, which tick in milliseconds; the least difference that means anything is four of them.

use laneway_wire::tcp::SeqNum;

/// So much longer, in milliseconds, must a round trip be at least, and so much longer is enough: RFC 9406 section 4.3.
const RTT_THRESH_MS: (u16, u16) = (4, 16);
/// In between it is this part of the round trip.
const RTT_DIVISOR: u16 = 8;
/// Samples of a round that make it worth a judgement.
const SAMPLES: u8 = 8;
/// What conservative slow start divides the growth by.
const GROWTH_DIVISOR: u32 = 4;
/// How many rounds it lasts.
const CONSERVATIVE_ROUNDS: u8 = 5;
/// No sample.
const NEVER: u16 = u16::MAX;

/// What the first slow start of a connection knows of its rounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HyStart {
    /// The present round lasts until this is acknowledged. After the first slow start: the last in which the whole window was used.
    pub(in crate::tcp) window_end: SeqNum,
    /// The smallest round trips of the round before, and of this one, in milliseconds.
    last_ms: u16,
    current_ms: u16,
    /// What began conservative slow start; [`NEVER`] outside of it.
    baseline_ms: u16,
    /// Round trips that were measured in this round, up to as many as count.
    samples: u8,
    /// Rounds of conservative slow start that are left.
    rounds: u8,
}

const _: () = assert!(size_of::<HyStart>() <= 12);

/// What an ACK in slow start is worth.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Growth {
    /// Bytes by which the window may grow.
    pub bytes: u32,
    /// Slow start is over: what the window is now is its threshold.
    pub is_over: bool,
}

impl HyStart {
    /// Before the first round.
    #[inline(always)]
    pub const fn new(una: SeqNum) -> Self {
        HyStart { window_end: una, last_ms: NEVER, current_ms: NEVER, baseline_ms: NEVER, samples: 0, rounds: 0 }
    }

    /// `ack` has acknowledged `bytes` after `rtt_ms` (if a timestamp says so), and what follows `nxt` will be the next round's.
    pub fn on_ack(&mut self, ack: SeqNum, nxt: SeqNum, bytes: u32, rtt_ms: Option<u32>) -> Growth {
        if self.last_ms == NEVER && self.current_ms == NEVER {
            self.window_end = nxt; // nothing was measured: this is the first of its round
        }
        if let Some(rtt_ms) = rtt_ms {
            self.current_ms = self.current_ms.min(rtt_ms.min(u32::from(NEVER) - 1) as u16);
            self.samples = (self.samples + 1).min(SAMPLES);
            self.judge();
        }
        let bytes = if self.is_conservative() { bytes / GROWTH_DIVISOR } else { bytes };
        //= https://www.rfc-editor.org/rfc/rfc9406#section-4.2
        //# When windowEnd is ACKed, the current round ends and windowEnd is set to SND.NXT.
        // (Where nothing follows yet it ends when something does.)
        let ends = ack.at_or_after(self.window_end) && ack.before(nxt);
        let is_over = ends && self.begin_round(nxt);
        Growth { bytes, is_over }
    }

    fn is_conservative(&self) -> bool {
        self.baseline_ms != NEVER
    }

    /// All that was under way when the last round began has been acknowledged. True if this was the last of the conservative ones.
    fn begin_round(&mut self, nxt: SeqNum) -> bool {
        self.window_end = nxt;
        self.last_ms = self.current_ms;
        (self.current_ms, self.samples) = (NEVER, 0);
        self.rounds = self.rounds.saturating_sub(1);
        self.is_conservative() && self.rounds == 0
    }

    fn judge(&mut self) {
        if self.samples < SAMPLES {
            return;
        }
        if self.is_conservative() {
            //= https://www.rfc-editor.org/rfc/rfc9406#section-4.2
            //# For CSS rounds where at least N_RTT_SAMPLE RTT samples have been obtained, check to see if the current round's minRTT drops below baseline (cssBaselineMinRtt) indicating that slow start exit was spurious
            if self.current_ms < self.baseline_ms {
                self.baseline_ms = NEVER;
            }
        } else if self.last_ms != NEVER {
            let thresh = (self.last_ms / RTT_DIVISOR).clamp(RTT_THRESH_MS.0, RTT_THRESH_MS.1);
            if self.current_ms >= self.last_ms.saturating_add(thresh) {
                (self.baseline_ms, self.rounds) = (self.current_ms, CONSERVATIVE_ROUNDS);
            }
        }
    }
}

#[cfg(test)]
mod tests;
