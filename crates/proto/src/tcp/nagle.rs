//! Owns one decision: how much of the data that waits leaves now, when its last segment would be a small one.
//!
//! Nagle (RFC 9293 section 3.7.4) lets no small segment leave while anything is unacknowledged; Minshall's refinement,
//! which is ours, while another *small* one is. What is asked is always the end of the queue, however many full segments
//! lie before it: a super-segment whose tail must wait goes without its tail.
//!
//! The rule is a type, because there is a history of it: super-segments were once split in two to have the tail tested,
//! then not split and the tail not tested. The product is [`Lane`]; what came before is in the laboratory.

pub mod vectors;

/// The end of the queue, which would leave as full segments and one small one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tail {
    /// Bytes that both windows let go, up to the end of the queue; not a multiple of `mss`.
    pub needed: u32,
    /// Payload bytes of a full segment.
    pub mss: u32,
    /// Unacknowledged sequence numbers.
    pub in_flight: u32,
    /// A small segment of new data is unacknowledged (Minshall's SND.SML lies beyond SND.UNA).
    pub small_in_flight: bool,
    /// TCP_NODELAY is set.
    pub nodelay: bool,
    /// TCP_CORK is set, or more was announced by MSG_MORE; neither for longer than 200 ms, nor where there is no room for more.
    pub corked: bool,
    /// FIN or urgent data follows: nothing may be held.
    pub last: bool,
}

impl Tail {
    /// Bytes of the small segment.
    #[inline]
    pub fn partial(&self) -> u32 {
        if self.needed < self.mss { self.needed } else { self.needed % self.mss }
    }

    /// Whether a small segment has to wait: for the acknowledgement of the one before it, or for the cork.
    #[inline]
    pub fn is_held(&self) -> bool {
        !self.last && (self.corked || (!self.nodelay && self.in_flight > 0 && self.small_in_flight))
    }
}

/// A rule for the end of the queue.
pub trait Segmentation: Send + 'static {
    /// The name on the command line and in results.
    const NAME: &'static str;

    /// Whether an acknowledgement waits for the application's turn, so that it rides on an answer given in the same
    /// poll. Otherwise it is decided as soon as a segment is taken in.
    const ACK_AFTER_TURN: bool;

    /// How many bytes leave now: at most `tail.needed`; 0 holds all of it back.
    fn cut(tail: &Tail) -> u32;

    /// `len` bytes of new data left in segments of `mss`: does the rule take note of a small one (SND.SML)?
    fn notes_small(len: u32, mss: u32) -> bool;
}

/// `lane`: one super-segment with its tail, or without it if that must wait; acknowledgements ride on answers.
pub struct Lane;

impl Segmentation for Lane {
    const NAME: &'static str = "lane";
    const ACK_AFTER_TURN: bool = true;

    #[inline(always)]
    fn cut(tail: &Tail) -> u32 {
        if tail.is_held() { tail.needed - tail.partial() } else { tail.needed }
    }

    #[inline(always)]
    fn notes_small(len: u32, mss: u32) -> bool {
        if len < mss { len > 0 } else { !len.is_multiple_of(mss) }
    }
}

#[cfg(test)]
mod tests;
