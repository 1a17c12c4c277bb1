//! Owns how long the server waits for whom.

/// How long what may take, in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// A connection between two requests.
    pub idle_us: u64,
    /// The head of a request.
    pub head_us: u64,
    /// An answer of which the peer acknowledges nothing.
    pub stall_us: u64,
    /// The peer's close, once it has all of the last answer.
    pub drain_us: u64,
}

impl Default for Patience {
    fn default() -> Self {
        Patience { idle_us: 75_000_000, head_us: 15_000_000, stall_us: 60_000_000, drain_us: 5_000_000 }
    }
}
