//! Owns one decision: whether the partial last segment of what is queued waits for an acknowledgement.

/// What the decision may look at: the sub-MSS tail of the queued data, and what is in flight.
#[derive(Clone, Copy, Debug)]
pub struct Tail {
    /// Bytes in the tail, less than a full segment and more than none.
    pub partial: u32,
    /// Unacknowledged bytes.
    pub in_flight: u32,
    /// A sub-MSS segment of new data is still unacknowledged (Minshall's SND.SML).
    pub small_in_flight: bool,
    /// TCP_NODELAY is set.
    pub nodelay: bool,
    /// FIN or urgent data follows: nothing may be held.
    pub last: bool,
}

/// Whether to hold the tail back. Laneway always sends: an application here writes whole messages, and the
/// acknowledgement that Nagle's rule waits for rides on the answer. `tail` is everything a stricter rule needs.
#[inline]
pub fn hold(tail: Tail) -> bool {
    let _ = tail;
    false
}
