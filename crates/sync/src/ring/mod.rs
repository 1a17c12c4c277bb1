//! Rings with one producer and one consumer, and one with several takers.
//!
//! One principle. Each side owns one index and only reads the other's; each keeps a private copy of what it
//! last read there and looks again only when that copy says "full" or "empty". So in a steady stream the two index
//! lines move between the cores about once per batch, not once per record.

pub(crate) mod block;
pub mod bytes;
pub mod handout;
pub mod items;
pub mod records;

use crate::primitive::{AtomicBool, AtomicU32};

/// The half of a ring's shared state that one side writes and the other reads.
struct End {
    /// Everything before this position (wrapping) has been handed over.
    position: AtomicU32,
    /// This side has been dropped. Set after the last hand-over.
    gone: AtomicBool,
}

impl End {
    fn at(position: u32) -> Self {
        Self { position: AtomicU32::new(position), gone: AtomicBool::new(false) }
    }
}
