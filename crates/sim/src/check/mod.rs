//! Owns the properties that hold in every world, one per file. A property looks; it never touches.

pub mod byte_stream;
pub mod liveness;
pub mod loss;
pub mod no_leak;
pub mod rfc;
pub mod silly;
pub mod sought;
