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

/// So many of the ranges are known by how lately they grew: more than a SACK option names, for some will merge.
const NEWEST_MAX: usize = 8;

/// The ranges are used up, or the range ends beyond what an offset can say: the segment must be dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Early {
    start: u32,
    /// One past the last byte; always greater than `start`.
    end: u32,
}

/// The out-of-order ranges of one connection: sorted, disjoint, never adjacent. A connection that sees no
/// reordering and no repetition needs none, so keep it in an `Option<Box<Assembler>>`.
#[derive(Clone, Debug)]
pub struct Assembler {
    ranges: Vec<Early>,
    /// Bytes in all ranges together.
    held: u32,
    /// Where those begin that grew last, the newest first: who has many is not looked through for each ACK.
    newest: Vec<u32>,
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
        Assembler { ranges: Vec::new(), held: 0, newest: Vec::new(), repeated: None }
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
    #[inline]
    pub fn bytes(&self) -> u32 {
        self.held
    }

    /// One past the farthest byte held, from rcv.nxt; 0 if nothing is held.
    #[inline]
    pub fn end(&self) -> u32 {
        self.ranges.last().map_or(0, |r| r.end)
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
        let new = Early { start, end };

        // The segment after the last one: what follows a single loss.
        if let Some(last) = self.ranges.last_mut()
            && last.end == start
        {
            last.end = end;
            self.held += len;
            let grown = *last;
            self.note_newest(grown);
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
            self.held -= bytes(&self.ranges[first..last]);
            self.ranges[first] = new;
            self.ranges.drain(first + 1..last);
        }
        self.held += new.end - new.start;
        self.note_newest(new);
        Ok(())
    }

    /// This one has just grown, or is new. What it has merged with is no range of its own any more.
    fn note_newest(&mut self, grown: Early) {
        self.newest.retain(|at| !(grown.start..grown.end).contains(at));
        self.newest.insert(0, grown.start);
        self.newest.truncate(NEWEST_MAX);
    }

    /// No range more, unless it begins at rcv.nxt.
    fn is_full(&self) -> bool {
        let beyond = (self.len() + 2).saturating_sub(RANGES_LEAST);
        beyond > (self.held / BYTES_A_RANGE) as usize
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
        self.held -= bytes(&self.ranges[..gone]);
        self.ranges.drain(..gone);
        self.held -= self.ranges.first().map_or(0, |r| n.saturating_sub(r.start));
        for r in &mut self.ranges {
            r.start = r.start.saturating_sub(n);
            r.end -= n;
        }
        self.newest.retain(|at| *at >= n);
        for at in &mut self.newest {
            *at -= n;
        }
    }

    /// The first of the `len` bytes from `offset` that lie in a range already, as far as they do without a gap.
    pub fn known(&self, offset: u32, len: u32) -> Option<Range<u32>> {
        let range = self.ranges.get(self.ranges.partition_point(|r| r.end <= offset))?;
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

    /// How many blocks there are for the next ACK, at most `max`: without looking at the ranges, of which there may be many.
    #[inline]
    pub fn blocks_len(&self, max: usize) -> usize {
        (self.beyond().len() + usize::from(self.repeated.is_some())).min(max)
    }

    /// The ranges but for one at rcv.nxt, which is not out of order: the acknowledgment number is about to cover it.
    #[inline]
    fn beyond(&self) -> &[Early] {
        &self.ranges[usize::from(self.contiguous() > 0)..]
    }

    /// The SACK option of the next ACK: at most `max` blocks, of which four fit, and three next to timestamps. What came twice is the first; then the ranges, that which grew last before the others,
    /// and behind those that grew lately the lowest.
    ///
    /// RFC 2018 section 4 asks for this order: the first block names the segment that caused the ACK, and the further
    /// ones repeat what was reported most recently, so that every block is sent several times and a lost ACK costs
    /// nothing.
    pub fn blocks_up_to(&self, rcv_nxt: SeqNum, max: usize) -> SackBlocks {
        let mut blocks = SackBlocks::default();
        //= https://www.rfc-editor.org/rfc/rfc2883#section-4
        //# When D-SACK is used, the first block of the SACK option should be a D-SACK block specifying the sequence numbers
        //# for the duplicate segment that triggers the acknowledgement.
        if let Some(repeated) = self.repeated {
            blocks.push(repeated);
        }
        let most = max.min(4);
        let newest = self.newest.iter().filter_map(|at| {
            let found = self.beyond().binary_search_by_key(at, |r| r.start).ok()?;
            self.beyond().get(found)
        });
        let others = self.beyond().iter().filter(|r| !self.newest.contains(&r.start));
        for r in newest.chain(others).take(most.saturating_sub(blocks.len())) {
            blocks.push(SeqRange { start: rcv_nxt + r.start, end: rcv_nxt + r.end });
        }
        blocks
    }
}

/// Bytes in these ranges together.
fn bytes(ranges: &[Early]) -> u32 {
    ranges.iter().map(|r| r.end - r.start).sum()
}

#[cfg(test)]
mod tests;
