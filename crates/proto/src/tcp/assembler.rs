//! Owns which bytes beyond rcv.nxt have arrived: the ranges that lie out of order in the receive ring (RFC 9293
//! section 3.10.7.4, seventh step), which bytes have arrived twice (RFC 2883), and the SACK blocks that report both (RFC 2018).
//!
//! Only positions are kept here, as offsets from rcv.nxt; the bytes lie in the receive ring. Offsets do not wrap, so
//! this is the one place of the receiver where sequence numbers may be compared as numbers.

use core::ops::Range;
use laneway_wire::tcp::{SackBlocks, SeqNum, SeqRange};

/// How many ranges are kept of however little text. The last one is for a range that begins at rcv.nxt: data in order always finds room.
pub const RANGES_LEAST: usize = 32;
/// One more for so many bytes that are held: a path that reorders has hundreds, and who would have us remember many pays for it with text, whose
/// memory is bounded.
pub const BYTES_A_RANGE: u32 = 512;

/// The ranges are used up, or the range ends beyond what an offset can say: the segment must be dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Early {
    start: u32,
    /// One past the last byte; always greater than `start`.
    end: u32,
    /// The value of `Assembler::touches` when the range last grew.
    touched: u32,
}

/// The out-of-order ranges of one connection: sorted, disjoint, never adjacent. A connection that sees no
/// reordering and no repetition needs none, so keep it in an `Option<Box<Assembler>>`.
#[derive(Clone, Debug)]
pub struct Assembler {
    ranges: Vec<Early>,
    /// Counts insertions, on the circle.
    touches: u32,
    /// What has come twice, until an ACK has said so.
    repeated: Option<SeqRange>,
}

impl Default for Assembler {
    fn default() -> Self {
        Self::new()
    }
}

impl Assembler {
    /// No ranges.
    pub const fn new() -> Self {
        Assembler { ranges: Vec::new(), touches: 0, repeated: None }
    }

    /// Whether nothing is held.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// How many separate ranges are held.
    #[inline]
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Bytes held, all ranges together.
    pub fn bytes(&self) -> u32 {
        self.ranges.iter().map(|r| r.end - r.start).sum()
    }

    /// One past the farthest byte held, from rcv.nxt; 0 if nothing is held.
    #[inline]
    pub fn end(&self) -> u32 {
        self.ranges.last().map_or(0, |r| r.end)
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.ranges.clear();
    }

    /// The `len` bytes from `offset` (counted from rcv.nxt) are now in the ring. What overlaps or touches merges.
    ///
    /// On `Err` nothing has changed. A range at offset 0 fails only if it ends beyond 2³² - 1.
    #[inline]
    pub fn insert(&mut self, offset: u32, len: u32) -> Result<(), Full> {
        let start = offset;
        let end = offset.checked_add(len).ok_or(Full)?;
        if len == 0 {
            return Ok(());
        }
        self.touches = self.touches.wrapping_add(1);
        let new = Early { start, end, touched: self.touches };

        // The segment after the last one: what follows a single loss.
        if let Some(last) = self.ranges.last_mut()
            && last.end == start
        {
            last.end = end;
            last.touched = self.touches;
            return Ok(());
        }
        self.insert_sorted(new)
    }

    fn insert_sorted(&mut self, mut new: Early) -> Result<(), Full> {
        // `first..last` are the ranges that the new one overlaps or touches.
        let first = self.ranges.partition_point(|r| r.end < new.start);
        let last = first + self.ranges[first..].partition_point(|r| r.start <= new.end);
        if first == last {
            if new.start != 0 && self.is_full() {
                return Err(Full);
            }
            self.ranges.insert(first, new);
        } else {
            new.start = new.start.min(self.ranges[first].start);
            new.end = new.end.max(self.ranges[last - 1].end);
            self.ranges[first] = new;
            self.ranges.drain(first + 1..last);
        }
        Ok(())
    }

    /// No range more, unless it begins at rcv.nxt.
    fn is_full(&self) -> bool {
        let beyond = (self.len() + 2).saturating_sub(RANGES_LEAST);
        beyond > (self.bytes() / BYTES_A_RANGE) as usize
    }

    /// How many bytes from rcv.nxt on are there without a gap: what can be delivered now. Then call [`Self::advance`].
    #[inline]
    pub fn contiguous(&self) -> u32 {
        match self.ranges.first() {
            Some(r) if r.start == 0 => r.end,
            _ => 0,
        }
    }

    /// rcv.nxt moved forward by `n`. What it passed is forgotten.
    pub fn advance(&mut self, n: u32) {
        let gone = self.ranges.partition_point(|r| r.end <= n);
        self.ranges.drain(..gone);
        for r in &mut self.ranges {
            r.start = r.start.saturating_sub(n);
            r.end -= n;
        }
    }

    /// The first of the `len` bytes from `offset` that lie in a range already, as far as they do without a gap.
    pub fn known(&self, offset: u32, len: u32) -> Option<Range<u32>> {
        let range = self.ranges.iter().find(|r| r.end > offset)?;
        let known = range.start.max(offset)..range.end.min(offset.saturating_add(len));
        (!known.is_empty()).then_some(known)
    }

    /// These bytes have come twice. The next ACK says so, unless something else comes twice before it.
    pub fn note_repeated(&mut self, bytes: SeqRange) {
        self.repeated = Some(bytes);
    }

    /// An ACK has said what came twice.
    pub fn forget_repeated(&mut self) {
        self.repeated = None;
    }

    /// Whether nothing came twice that no ACK has said.
    pub fn has_reported(&self) -> bool {
        self.repeated.is_none()
    }

    /// The SACK option of the next ACK: up to four blocks. What came twice is the first; then the ranges, that which grew last before the others.
    ///
    /// RFC 2018 section 4 asks for this order: the first block names the segment that caused the ACK, and the further
    /// ones repeat what was reported most recently, so that every block is sent several times and a lost ACK costs
    /// nothing. Next to timestamps only three fit; see [`Self::blocks_up_to`].
    pub fn blocks(&self, rcv_nxt: SeqNum) -> SackBlocks {
        self.blocks_up_to(rcv_nxt, 4)
    }

    /// As [`Self::blocks`], but at most `max` of them.
    pub fn blocks_up_to(&self, rcv_nxt: SeqNum, max: usize) -> SackBlocks {
        let mut blocks = SackBlocks::default();
        //= https://www.rfc-editor.org/rfc/rfc2883#section-4
        //# When D-SACK is used, the first block of the SACK option should be a D-SACK block specifying the sequence numbers
        //# for the duplicate segment that triggers the acknowledgement.
        if let Some(repeated) = self.repeated {
            blocks.push(repeated);
        }
        // The smallest age that has not been taken yet. Ages differ: each insertion touches one range.
        let mut least_age = 0;
        for _ in blocks.len()..max.min(4) {
            let next = self
                .ranges
                .iter()
                // A range at rcv.nxt is not out of order: the acknowledgment number is about to cover it.
                .filter(|r| r.start != 0)
                .map(|r| (self.touches.wrapping_sub(r.touched), r))
                .filter(|(age, _)| *age >= least_age)
                .min_by_key(|(age, _)| *age);
            let Some((age, r)) = next else { break };
            blocks.push(SeqRange { start: rcv_nxt + r.start, end: rcv_nxt + r.end });
            least_age = age.saturating_add(1);
        }
        blocks
    }
}

#[cfg(test)]
mod tests;
