//! Owns the TCP segment: its checked view, its meaning and its bytes (RFC 9293 section 3.1).
//!
//! path: `device::rx → ingress → ethernet → ip::input → demux → [tcp::input] → tcp::state → tcp::output → ip::output → egress → device::tx`
//!
//! `view` reads, `emit` writes; `seq` and `window` are the numbers that are not plain numbers, `options` the options.

mod emit;
mod flags;
mod options;
mod seq;
mod view;
mod window;

pub use emit::{Header, UsualSyn, fill_checksum, fill_partial};
pub use flags::Flags;
pub use options::{Options, SackBlocks, Timestamps};
pub use seq::{SeqNum, SeqRange};
pub use view::{Segment, Usual, View};
pub use window::{UnscaledWindow, Window, WindowScale};

#[cfg(test)]
pub(crate) mod tests;

/// Bytes of a header without options.
pub const HEADER_LEN: usize = 20;
/// Bytes of the longest header: the data offset is four bits of 32-bit words.
pub const HEADER_LEN_MAX: usize = 60;
/// Bytes of options that fit behind the fixed header.
pub const OPTIONS_LEN_MAX: usize = HEADER_LEN_MAX - HEADER_LEN;
/// Where in the header the checksum field lies: what an offload device is told.
pub const CHECKSUM_OFFSET: usize = 16;
