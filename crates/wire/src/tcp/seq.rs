//! Owns `SeqNum`, a point on the circle of sequence numbers, with the ranges between two of them.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// A sequence number: a point on a circle of 2^32, not a number.
///
/// One point is before another if the way forward from it is the shorter one, which makes sense while all points in
/// play lie within half the circle of each other; a TCP's windows guarantee that. The relation is not transitive, so
/// there is no `<`, and this does not compile:
///
/// ```compile_fail
/// use laneway_wire::tcp::SeqNum;
/// let _ = SeqNum::new(1) < SeqNum::new(2);
/// ```
/// ```compile_fail
/// use laneway_wire::tcp::SeqNum;
/// let _ = SeqNum::new(1).max(SeqNum::new(2));
/// ```
/// ```
/// use laneway_wire::tcp::SeqNum;
/// assert!(SeqNum::new(u32::MAX).before(SeqNum::new(3)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SeqNum(u32);

impl SeqNum {
    /// The point with this number on the wire.
    #[inline]
    pub const fn new(raw: u32) -> Self {
        SeqNum(raw)
    }

    /// The number on the wire.
    #[inline]
    pub const fn raw(self) -> u32 {
        self.0
    }

    /// How far forward from `other` to here; negative if the shorter way is back.
    #[inline]
    pub const fn offset_from(self, other: SeqNum) -> i32 {
        self.0.wrapping_sub(other.0) as i32
    }

    /// SEG < OTHER on the circle. Points exactly half the circle apart are before each other, both ways.
    #[inline]
    pub const fn before(self, other: SeqNum) -> bool {
        self.offset_from(other) < 0
    }

    /// SEG > OTHER on the circle: `other.before(self)`.
    #[inline]
    pub const fn after(self, other: SeqNum) -> bool {
        other.before(self)
    }

    /// SEG =< OTHER: not after.
    #[inline]
    pub const fn at_or_before(self, other: SeqNum) -> bool {
        !self.after(other)
    }

    /// SEG >= OTHER: not before.
    #[inline]
    pub const fn at_or_after(self, other: SeqNum) -> bool {
        !self.before(other)
    }

    /// Whichever of the two is not after the other.
    #[inline]
    pub const fn earliest(self, other: SeqNum) -> SeqNum {
        if other.before(self) { other } else { self }
    }

    /// Whichever of the two is not before the other.
    #[inline]
    pub const fn latest(self, other: SeqNum) -> SeqNum {
        if self.before(other) { other } else { self }
    }
}

impl Add<u32> for SeqNum {
    type Output = SeqNum;
    #[inline]
    fn add(self, forward: u32) -> SeqNum {
        SeqNum(self.0.wrapping_add(forward))
    }
}

impl AddAssign<u32> for SeqNum {
    #[inline]
    fn add_assign(&mut self, forward: u32) {
        *self = *self + forward;
    }
}

impl Sub<u32> for SeqNum {
    type Output = SeqNum;
    #[inline]
    fn sub(self, back: u32) -> SeqNum {
        SeqNum(self.0.wrapping_sub(back))
    }
}

impl fmt::Debug for SeqNum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

impl fmt::Display for SeqNum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The bytes from `start` up to but not including `end`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SeqRange {
    /// The first byte.
    pub start: SeqNum,
    /// The byte after the last.
    pub end: SeqNum,
}

impl SeqRange {
    /// From `start` up to `end`.
    #[inline]
    pub const fn new(start: SeqNum, end: SeqNum) -> Self {
        SeqRange { start, end }
    }

    /// How many bytes; 0 if `end` is not after `start`.
    #[inline]
    pub const fn len(self) -> u32 {
        if self.is_empty() { 0 } else { self.end.0.wrapping_sub(self.start.0) }
    }

    /// Is there nothing between the two? So it is for a range that ends before it starts, which a peer can send.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.end.at_or_before(self.start)
    }

    /// Is `seq` in it?
    #[inline]
    pub const fn contains(self, seq: SeqNum) -> bool {
        seq.0.wrapping_sub(self.start.0) < self.len()
    }
}

impl fmt::Debug for SeqRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {})", self.start, self.end)
    }
}
