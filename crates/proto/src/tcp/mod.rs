//! tcp (core in preparation)
pub mod assembler;
pub mod congestion;
pub mod cookie;
pub mod isn;
pub mod rtt;
pub mod sack;
