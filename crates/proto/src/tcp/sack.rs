//! Owns the sender's scoreboard: which of the outstanding bytes the peer has reported by SACK, and what follows from
//! that about loss (RFC 6675).
//!
//! SACK is advice (RFC 2018 section 8): the peer may take a report back, and we may forget one. Both cost a needless
//! retransmission and nothing else, so the scoreboard is bounded and refuses what it cannot hold.
//!
//! Whatever the peer sends, all ranges lie between snd.una and snd.max, sorted, disjoint and never adjacent.

use super::gaps::GapClock;
use crate::time::Instant;
use laneway_wire::tcp::{SackBlocks, SeqNum, SeqRange};

/// How many separate ranges are remembered of however little that is reported. Reports that would need more are ignored until others merge.
pub const RANGES_LEAST: usize = 128;
/// One more for so many bytes that are reported: a path that reorders has hundreds.
pub const BYTES_A_RANGE: u32 = 512;

/// DupThresh of RFC 6675: so many separate reports above a byte, and it is lost.
const DUP_THRESH: u32 = 3;

/// The scoreboard of one connection: one without loss needs none, so keep it in an
/// `Option<Box<Scoreboard>>`.
///
/// Everywhere below, `mss` is the sender's segment size in bytes, and the end of a range is one past its last byte.
#[derive(Clone, Debug)]
pub struct Scoreboard {
    ranges: Vec<SeqRange>,
    /// Bytes in all ranges together.
    sacked: u32,
    /// snd.nxt when something was last sent again: what lies above it left after that.
    repeated_at: Option<SeqNum>,
    clock: GapClock,
    /// Bytes that may be sent in this recovery for those that have arrived in it.
    credit: u32,
    /// One past the highest byte that had been retransmitted when the first of them was sent once more.
    repeated_twice: Option<SeqNum>,
}

impl Default for Scoreboard {
    fn default() -> Self {
        Self::new()
    }
}

impl Scoreboard {
    /// Nothing reported.
    pub const fn new() -> Self {
        Scoreboard {
            ranges: Vec::new(),
            sacked: 0,
            repeated_at: None,
            clock: GapClock::new(),
            credit: 0,
            repeated_twice: None,
        }
    }

    /// Whether no outstanding byte is reported.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// How many outstanding bytes are reported.
    #[inline]
    pub fn sacked_bytes(&self) -> u32 {
        self.sacked
    }

    /// Forgets every report: after a time-out, since the peer may have taken them back (RFC 6675 section 5.1).
    pub fn clear(&mut self) {
        self.ranges.clear();
        self.sacked = 0;
        (self.repeated_at, self.repeated_twice) = (None, None);
        self.clock = GapClock::new();
    }

    /// How many bytes may be sent in this recovery for those that have arrived in it.
    #[inline]
    pub fn credit(&self) -> u32 {
        self.credit
    }

    /// So many more may.
    pub fn earn(&mut self, bytes: u32) {
        self.credit = self.credit.saturating_add(bytes);
    }

    /// So many were.
    pub fn spend(&mut self, bytes: u32) {
        self.credit = self.credit.saturating_sub(bytes);
    }

    /// No recovery is under way: nothing may be sent for what arrives, and nothing was sent again.
    pub fn forget_recovery(&mut self) {
        (self.credit, self.repeated_twice) = (0, None);
    }

    /// Whether the clock says what is lost, and not the number of reports.
    pub fn ask_clock(&mut self, decides: bool) {
        self.clock.decides = decides;
    }

    /// Whether it does.
    pub fn asks_clock(&self) -> bool {
        self.clock.decides
    }

    /// The clock of gaps begins, unless it runs. True if so.
    pub fn watch(&mut self, now: Instant) -> bool {
        let begins = !self.clock.runs();
        if begins {
            self.watch_anew(now);
        }
        begins
    }

    /// The clock of gaps begins.
    pub fn watch_anew(&mut self, now: Instant) {
        self.clock.begin(now, self.highest());
    }

    /// What was missing when the clock began, and is still, is lost.
    pub fn presume_lost(&mut self, now: Instant) {
        self.clock.end(now, self.highest());
    }

    /// The same, if the clock has run for so long, in microseconds.
    pub fn presume_lost_after(&mut self, us: u32, now: Instant) {
        self.clock.end_after(us, now, self.highest());
    }

    /// All that is missing below what was reported is.
    pub fn presume_all_lost(&mut self) {
        self.clock.presume_lost(self.highest());
    }

    /// All that is missing below this is.
    pub fn presume_lost_below(&mut self, edge: SeqNum) {
        self.clock.presume_lost(Some(edge));
    }

    /// Whether the byte at `una`, which is not reported, is lost by the clock.
    #[inline]
    pub fn is_overdue(&self, una: SeqNum) -> bool {
        self.clock.overdue().is_some_and(|edge| una.before(edge))
    }

    /// It was a mistake.
    pub fn presume_nothing(&mut self) {
        self.clock.forgive();
    }

    /// An ACK came: `una` is snd.una with that ACK applied, `snd_max` the highest sequence number ever sent. Returns how
    /// many bytes were reported for the first time.
    ///
    /// Blocks that are not wholly between the two, or are empty or backwards, are ignored; so a D-SACK below `una`
    /// (RFC 2883) is, and one inside a known range changes nothing.
    #[inline]
    pub fn on_ack(&mut self, una: SeqNum, blocks: &SackBlocks, snd_max: SeqNum) -> u32 {
        if !self.ranges.is_empty() {
            self.forget_before(una);
        }
        let mut newly = 0;
        for block in blocks.iter() {
            // As distances from `una`: three comparisons on the circle would not do, because "before" is not
            // transitive, and a block on its far side could pass them all.
            let from = block.start.offset_from(una);
            let to = block.end.offset_from(una);
            if 0 <= from && from < to && to <= snd_max.offset_from(una) {
                newly += self.insert(block);
            }
        }
        newly
    }

    /// Drops what lies below `una`.
    fn forget_before(&mut self, una: SeqNum) {
        let gone = self.ranges.partition_point(|r| r.end.at_or_before(una));
        self.sacked -= bytes_of(&self.ranges[..gone]);
        self.ranges.drain(..gone);
        if let Some(first) = self.ranges.first_mut()
            && first.start.before(una)
        {
            self.sacked -= bytes_between(first.start, una);
            first.start = una;
        }
    }

    /// Adds one valid block, merging. Returns the bytes that were new.
    fn insert(&mut self, mut new: SeqRange) -> u32 {
        // `first..last` are the ranges that the new one overlaps or touches.
        let first = self.ranges.partition_point(|r| r.end.before(new.start));
        let last = first + self.ranges[first..].partition_point(|r| r.start.at_or_before(new.end));
        let mut known = 0;
        if first == last {
            if self.is_full() {
                return 0;
            }
            self.ranges.insert(first, new);
        } else {
            new.start = new.start.earliest(self.ranges[first].start);
            new.end = new.end.latest(self.ranges[last - 1].end);
            known = bytes_of(&self.ranges[first..last]);
            self.ranges[first] = new;
            self.ranges.drain(first + 1..last);
        }
        let newly = new.len() - known;
        self.sacked += newly;
        newly
    }

    /// The edge of loss: every unreported byte below it is lost, none at or above. `None`: nothing is lost.
    ///
    /// IsLost of RFC 6675 section 4 holds for a byte if three separate ranges, or more than two segments of bytes, are
    /// reported above it. Both only become truer downwards, so one position says it all, and it is within the three
    /// highest ranges.
    /// And what is [overdue](Self::presume_lost) is lost as well.
    #[inline]
    pub fn lost_edge(&self, mss: u32) -> Option<SeqNum> {
        match (if self.clock.decides { None } else { self.reported_edge(mss) }, self.clock.overdue()) {
            (Some(edge), Some(overdue)) => Some(edge.latest(overdue)),
            (edge, overdue) => edge.or(overdue),
        }
    }

    /// The edge of loss by the number of reports.
    #[inline]
    fn reported_edge(&self, mss: u32) -> Option<SeqNum> {
        let mut above = 0u32;
        let mut separate = 0;
        for r in self.ranges.iter().rev() {
            above += r.len();
            separate += 1;
            if is_enough(separate, above, mss) {
                return Some(r.start);
            }
        }
        None
    }

    /// Something was sent again, with `snd_nxt` next.
    #[inline]
    pub fn note_repeated(&mut self, snd_nxt: SeqNum) {
        self.repeated_at = Some(snd_nxt);
    }

    /// The first byte that is missing is to be sent once more; everything up to `high_rxt` was, if it had to be.
    pub fn note_repeated_twice(&mut self, high_rxt: SeqNum) {
        self.repeated_twice = Some(high_rxt);
    }

    /// That has arrived. Up to where was everything retransmitted before it? Says so once.
    pub fn take_repeated_twice(&mut self) -> Option<SeqNum> {
        self.repeated_twice.take()
    }

    /// Is what was sent again lost, too, as far as it was not reported? By the rule of IsLost, asked of what left after it; or by the clock, where that
    /// decides: if such was reported before it began. Then it begins anew, once every `patience_us`.
    pub fn is_repetition_lost(&mut self, mss: u32, now: Instant, patience_us: u32) -> bool {
        let by_clock = self.clock.decides.then(|| self.clock.end_after(patience_us, now, self.highest()));
        let Some(after) = self.repeated_at else { return false };
        if let Some(then) = by_clock {
            return then.is_some_and(|then| then.after(after));
        }
        let (mut separate, mut bytes) = (0, 0);
        self.ranges.iter().rev().take_while(|r| r.end.after(after)).any(|r| {
            separate += 1;
            bytes += bytes_between(r.start.latest(after), r.end);
            is_enough(separate, bytes, mss)
        })
    }

    /// IsLost (RFC 6675 section 4): is the byte at `seq` presumed lost? A reported byte is not.
    #[inline]
    pub fn is_lost(&self, seq: SeqNum, mss: u32) -> bool {
        self.lost_edge(mss).is_some_and(|edge| seq.before(edge)) && !self.is_sacked(seq)
    }

    /// Has the peer reported the byte at `seq`?
    #[inline]
    pub fn is_sacked(&self, seq: SeqNum) -> bool {
        let i = self.ranges.partition_point(|r| r.end.at_or_before(seq));
        self.ranges.get(i).is_some_and(|r| r.start.at_or_before(seq))
    }

    /// SetPipe (RFC 6675 section 4): bytes between `una` and `snd_nxt` that are presumed to be in the network. A byte
    /// counts if it is neither reported nor lost, and once more if it was retransmitted.
    ///
    /// `high_rxt` is one past the highest byte retransmitted in this recovery; `una` if there is none.
    pub fn pipe(&self, una: SeqNum, snd_nxt: SeqNum, high_rxt: SeqNum, mss: u32) -> u32 {
        let unsacked = self.unsacked_between(una, snd_nxt);
        let lost = match self.lost_edge(mss) {
            Some(edge) => self.unsacked_between(una, edge.earliest(snd_nxt)),
            None => 0,
        };
        let retransmitted = self.unsacked_between(una, high_rxt.earliest(snd_nxt));
        unsacked.saturating_sub(lost).saturating_add(retransmitted)
    }

    /// Unreported bytes in `from..to`; 0 if that is backwards.
    pub fn unsacked_between(&self, from: SeqNum, to: SeqNum) -> u32 {
        bytes_between(from, to).saturating_sub(self.sacked_between(from, to))
    }

    /// Reported bytes in `from..to`. A path that reorders has hundreds of ranges, and this is asked for each ACK: where most of them lie between
    /// the two, as they do from snd.una on, the others are looked at.
    fn sacked_between(&self, from: SeqNum, to: SeqNum) -> u32 {
        let first = self.ranges.partition_point(|r| r.end.at_or_before(from));
        let end = self.ranges.partition_point(|r| r.start.before(to)).max(first);
        let (below, between, above) = (&self.ranges[..first], &self.ranges[first..end], &self.ranges[end..]);
        let (Some(lowest), Some(highest)) = (between.first(), between.last()) else { return 0 };
        let whole = if between.len() <= below.len() + above.len() {
            bytes_of(between)
        } else {
            self.sacked - bytes_of(below) - bytes_of(above)
        };
        // One may begin before, and one end behind.
        whole.saturating_sub(bytes_between(lowest.start, from) + bytes_between(to, highest.end))
    }

    /// Rule 1 of NextSeg (RFC 6675 section 4): the first run of lost bytes at or above `from`, up to the next reported
    /// byte. The caller sends at most a segment of it, and asks again from there.
    ///
    /// `from` is at or above snd.una: the larger of that and what was retransmitted already.
    #[inline]
    pub fn next_lost(&self, from: SeqNum, snd_max: SeqNum, mss: u32) -> Option<SeqRange> {
        let edge = self.lost_edge(mss)?;
        self.next_unsacked(from, edge.earliest(snd_max))
    }

    /// Rule 3 of NextSeg: the first unreported run at or above `from` and below the highest report, lost or not.
    pub fn next_hole(&self, from: SeqNum, snd_max: SeqNum) -> Option<SeqRange> {
        self.next_unsacked(from, self.highest()?.earliest(snd_max))
    }

    fn next_unsacked(&self, from: SeqNum, limit: SeqNum) -> Option<SeqRange> {
        let first = self.ranges.partition_point(|r| r.end.at_or_before(from));
        let mut start = from;
        let mut end = limit;
        if let Some(r) = self.ranges.get(first) {
            if r.start.after(start) {
                end = limit.earliest(r.start);
            } else {
                // `from` is inside a range. The next one cannot touch it: the run between them is not empty.
                start = r.end;
                if let Some(next) = self.ranges.get(first + 1) {
                    end = limit.earliest(next.start);
                }
            }
        }
        start.before(end).then_some(SeqRange { start, end })
    }

    /// One past the highest reported byte.
    #[inline]
    pub fn highest(&self) -> Option<SeqNum> {
        self.ranges.last().map(|r| r.end)
    }

    /// Has the peer taken a report back? It has if it acknowledges up to a byte that it once reported, and no further.
    /// Then everything must be forgotten, or that byte is never sent again. `una` is snd.una after [`Self::on_ack`].
    #[inline]
    pub fn is_reneged(&self, una: SeqNum) -> bool {
        self.ranges.first().is_some_and(|r| r.start.at_or_before(una))
    }

    /// No range more.
    fn is_full(&self) -> bool {
        let beyond = (self.ranges.len() + 1).saturating_sub(RANGES_LEAST);
        beyond > (self.sacked / BYTES_A_RANGE) as usize
    }
}

/// Whether so many ranges, or bytes, reported above something say that it is lost (RFC 6675 section 4).
#[inline]
fn is_enough(separate: u32, bytes: u32, mss: u32) -> bool {
    separate >= DUP_THRESH || bytes > (DUP_THRESH - 1).saturating_mul(mss)
}

/// Bytes in these ranges together.
fn bytes_of(ranges: &[SeqRange]) -> u32 {
    ranges.iter().map(|r| r.len()).sum()
}

/// Bytes from `from` to `to`; 0 if that is backwards.
#[inline]
fn bytes_between(from: SeqNum, to: SeqNum) -> u32 {
    to.offset_from(from).max(0) as u32
}

#[cfg(test)]
mod tests;
