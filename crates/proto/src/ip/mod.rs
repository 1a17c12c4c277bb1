//! Owns the map of the Internet layer: which file does what.
//!
//! path: `device::rx → ingress → ethernet → [ip::input] → demux → tcp::input → tcp::state → tcp::output → [ip::output] → egress → device::tx`
//!
//! | file | owns |
//! |---|---|
//! | `input` | from bytes to a [`input::Packet`]: the checks a host makes on what arrives |
//! | `output` | from a [`output::HeaderSpec`] to header bytes |
//! | `route` | longest prefix match, validated when it is built |
//! | `reassembly` | fragments in, whole datagrams out, under a hard budget |
//! | `identification` | the numbers of datagrams that may be cut |
//! | `fragment` | whole datagrams in, fragments out |
//! | `remote` | which addresses another host can have |
//! | `pmtu` | what ICMP told us about the path to a destination |
pub mod fragment;
pub mod identification;
pub mod input;
pub mod output;
pub mod pmtu;
pub mod reassembly;
pub mod remote;
pub mod route;

pub use laneway_wire::protocol;
