//! Owns the receive window: what the peer is told that it may send, what a full segment of its is, and how large our buffer becomes.
//!
//! Whoever only receives learns all that from what arrives: the largest segments are full ones, and what they answer is a round trip old.

use super::Cx;
use super::connection::{Connection, Facts};
use crate::time::Instant;
use laneway_wire::tcp::{SeqNum, UnscaledWindow};

/// What answers something older than this is no round trip; or it was forged.
const LONGEST_ROUND_MS: u32 = 60_000;

/// A window has room for so many segments, though there is no memory for one: as Linux has it under memory pressure.
const LEAST_SEGMENTS: u32 = 4;

/// And so many segments more than what it is tuned to, as Linux has it: the round that is measured is not quite the sender's.
const HEADROOM_SEGMENTS: u32 = 16;

/// The buffer is to hold what is read in so many round trips.
const PACED_ROUNDS: u64 = 3;

impl Connection {
    /// What the window field says next, and the right edge that this means. RFC 9293 section 3.8.6.2.2: the edge moves
    /// only by steps worth moving (RCV.BUFF is all of the buffer, of which it may open less, of a tiny one less than half); rounding by the scale is upwards, so that the edge
    /// never moves left.
    #[inline]
    pub(super) fn advertise(&self) -> (UnscaledWindow, SeqNum) {
        let scale = self.rcv.scale.get();
        let most = self.widest();
        let target = self.rcv.nxt + most.saturating_sub(self.rcv.buf.len());
        let step = u32::from(self.rcv.mss).min(self.rcv.buf_max / 2).min(most) as i32;
        let edge = if target.offset_from(self.rcv.adv) >= step { target } else { self.rcv.adv };
        let open = (edge.offset_from(self.rcv.nxt).max(0) as u32).min(65_535 << scale);
        let field = (open + ((1 << scale) - 1)) >> scale;
        // The edge that is remembered is not the rounded one: else every small segment would push it a little further.
        let told = self.rcv.nxt + open;
        (UnscaledWindow::new(field as u16), told.latest(self.rcv.adv))
    }

    /// What the window field said last, for one that says it again: the edge has not moved since.
    #[inline]
    pub(super) fn shown(&self) -> UnscaledWindow {
        let open = self.rcv.adv.offset_from(self.rcv.nxt).max(0) as u32;
        let scale = self.rcv.scale.get();
        UnscaledWindow::new(((open + ((1 << scale) - 1)) >> scale) as u16)
    }

    /// The widest window: what rounding may promise beyond the edge has room in the buffer, too, which would become four times as large for it. (Only the
    /// window of a SYN, which is not rounded, may leave too little.)
    #[inline]
    pub(super) fn widest(&self) -> u32 {
        self.rcv.buf_max.saturating_sub((1 << self.rcv.scale.get()) - 1)
    }

    /// The farthest right edge that any ACK of ours can have meant.
    ///
    //= https://www.rfc-editor.org/rfc/rfc7323#section-2.4
    //# The receiver MUST honor, as in window, any segment that would have been in window for any <ACK> sent by the
    //# receiver.
    #[inline]
    pub(super) fn right_edge(&self) -> SeqNum {
        self.rcv.adv + ((1u32 << self.rcv.scale.get()) - 1)
    }

    /// How many bytes from RCV.NXT on can be kept: what rounding by the scale may have promised is kept, too, but once and not with each
    /// segment again.
    #[inline]
    pub(super) fn most_ahead(&self) -> i32 {
        let most = self.rcv.buf_max.saturating_add((1 << self.rcv.scale.get()) - 1);
        most.saturating_sub(self.rcv.buf.len()).min(i32::MAX as u32) as i32
    }

    /// Bookkeeping after the application has taken `n` bytes: the window may open, the buffer may grow.
    #[inline(always)]
    pub(super) fn on_read(&mut self, n: u32, cx: &Cx<'_>) {
        self.rcv.read = self.rcv.read.saturating_add(n);
        if self.rcv.read > self.rcv.buf_max / 4 {
            self.tune(cx);
        }
    }

    /// There was no memory for what the window had asked for, be it beyond a gap, where less is lent. From now on it asks for no more than there is memory
    /// for, which is what the buffer has or the pool has `available`, until the buffer grows again: the peer would send as much again, as much would be lost
    /// again, and without timestamps it waits twice as long for each loss as for the one before it (RFC 6298 section 5). What was asked for stays so; the
    /// right edge never moves left.
    #[cold]
    #[inline(never)]
    pub(super) fn clamp_window(&mut self, available: usize) {
        self.rcv.buf_max = self.rcv.buf_max.min(self.affordable(available));
    }

    /// What the buffer may be asked to hold: as much as it has or the pool has `available`, and some segments in any case.
    fn affordable(&self, available: usize) -> u32 {
        let least = LEAST_SEGMENTS * u32::from(self.rcv.mss.max(536));
        (self.rcv.buf.lent().max(available) as u32).max(least)
    }

    /// Dynamic right-sizing (Fisk and Feng, 2001): a buffer of what was read in a round trip, several times, so that slow start is never held back by us.
    /// Twice would do if a flight came all at once. Where a line sets the pace, slow start has twice of the last round under way when the next begins,
    /// and three times when half of it is over; by then as much was read as in all of the last. So it is three times, and until the round is over it
    /// grows with each read. A round begins late, when a quarter has been read.
    /// Memory is lent only when something is in the buffer; but that there is none is no time to ask for more.
    #[inline(never)]
    fn tune(&mut self, cx: &Cx<'_>) {
        // An urgent mark that was passed would lie ahead again after half of the circle. Here it is noticed long before.
        if self.urgent_ahead().is_none() {
            self.facts.clear(Facts::URGENT_IN);
        }
        if let Some(bytes) = self.told.as_ref().map(|told| told.receive_buffer).filter(|bytes| *bytes > 0) {
            return self.keep_to(bytes, cx);
        }
        let (now_ms, round_ms) = (cx.now.as_ms() as u32, self.round_ms());
        let age_ms = now_ms.wrapping_sub(self.rcv.tuned_ms);
        let most = cx.config.tcp_rmem.1.min(self.affordable(cx.pool.largest())).max(self.rcv.buf_max);
        // What a reader leaves who lags only grows old in a larger buffer, and out of the cache: he has room enough. But who comes now and then
        // leaves something each time until he has caught up, and all that counts.
        let lags = self.rcv.buf.len() > self.rcv.buf_max / 4;
        let grown = self.rcv.buf_max >= most;
        if !lags && !grown {
            let in_a_round = u64::from(self.rcv.read) * u64::from(round_ms) / u64::from(age_ms.max(round_ms));
            let room = PACED_ROUNDS * in_a_round + u64::from(HEADROOM_SEGMENTS) * u64::from(self.rcv.mss);
            self.rcv.buf_max = room.clamp(self.rcv.buf_max.into(), most.into()) as u32;
        }
        if grown || age_ms > round_ms {
            (self.rcv.read, self.rcv.tuned_ms) = (0, now_ms);
        }
    }

    /// The buffer is to have this size, which it was told. What the window has promised beyond that is waited for, and has room; and more than there is
    /// memory for is not asked for, as in autotuning. From now on each read comes here.
    #[cold]
    #[inline(never)]
    pub(super) fn keep_to(&mut self, bytes: u32, cx: &Cx<'_>) {
        let promised = self.rcv.adv.offset_from(self.rcv.nxt).max(0) as u32 + self.rcv.buf.len();
        self.rcv.buf_max = bytes.min(self.affordable(cx.pool.largest())).max(promised.min(self.rcv.buf_max));
        self.rcv.read = u32::MAX;
    }

    /// The round trip that autotuning goes by, in milliseconds, at least one. What is received tells it best; what was sent may be long ago.
    /// If nothing does it is taken for long: too large a buffer costs memory, too small a one the rate, for as long as the connection lives.
    fn round_ms(&self) -> u32 {
        const UNKNOWN_US: u32 = 100_000;
        match self.rcv.round_ms {
            0 => (self.rtt.srtt_us().unwrap_or(UNKNOWN_US) / 1_000).max(1),
            measured => measured.into(),
        }
    }

    /// Text came in segments of this size. From those that are full, and from those that are not though their sender had more to say, it is
    /// learned what a full one is. `echo`: the timestamp of ours that they answer.
    #[inline(always)]
    pub(super) fn note_size(&mut self, size: usize, pushed: bool, echo: Option<u32>, now: Instant) {
        let all = || size.min(u16::MAX.into()) as u16;
        if size >= self.rcv.mss.into() {
            self.note_full(all(), echo, now);
        } else if !pushed {
            self.note_smaller(all());
        }
    }

    /// A full segment: who sends those fills a window each round trip, and what they answer is as old as that (RFC 7323 section 4.1 is
    /// of the sender, who alone may time his retransmissions by it; this is for the size of our buffer).
    #[inline(never)]
    fn note_full(&mut self, size: u16, echo: Option<u32>, now: Instant) {
        self.rcv.mss = size;
        let Some(echo) = echo else { return };
        let age_ms = self.ts_now(now).wrapping_sub(echo);
        if age_ms <= LONGEST_ROUND_MS {
            let (known, age_ms) = (u32::from(self.rcv.round_ms), age_ms.max(1));
            self.rcv.round_ms = if known == 0 { age_ms } else { (7 * known + age_ms).div_ceil(8) } as u16;
        }
    }

    /// A segment that is smaller than full ones were, and not the last of what was written. Twice the same size: the path became
    /// narrower, and this is a full one now.
    #[cold]
    #[inline(never)]
    fn note_smaller(&mut self, size: u16) {
        if size == self.rcv.smaller && size >= 536 {
            self.rcv.mss = size;
        }
        self.rcv.smaller = size;
    }
}

#[cfg(test)]
mod tests;
