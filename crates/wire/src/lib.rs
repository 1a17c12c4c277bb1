//! What bytes mean: the formats of Ethernet, ARP, IPv4, IPv6, ICMP, neighbour discovery, UDP and TCP.
//!
//! # The two-step law
//! Bytes are checked once, when a `View` is made of them (`View::new(bytes)?`); all that a view hands out after that
//! is infallible. A view is then read into a *meaning* (`Header`, `Segment`, `Message`), a plain value in which
//! nonsense cannot be written: a window that still lacks its scale has another type than one that met it, a sequence
//! number has no order. A meaning is written by `emit`, and `parse` and `emit` are each other's inverse; the
//! property tests hold them to that, and an independent parser is the outside oracle.
//!
//! ```
//! use laneway_wire::tcp::{Flags, Header, Segment, SeqNum, UnscaledWindow};
//!
//! let bytes = [
//!     0x13, 0x88, 0x00, 0x50, // port 5000 to port 80
//!     0x00, 0x00, 0x00, 0x07, // SEG.SEQ
//!     0x00, 0x00, 0x00, 0x09, // SEG.ACK
//!     0x50, 0x10, 0x04, 0x00, // 20 bytes of header, ACK, SEG.WND
//!     0x00, 0x00, 0x00, 0x00, // checksum, which is verified elsewhere; no urgent pointer
//!     b'h', b'i',
//! ];
//! let segment = Segment::parse(&bytes)?;
//! assert_eq!((segment.seq, segment.ack), (SeqNum::new(7), SeqNum::new(9)));
//! assert_eq!((segment.flags, segment.window), (Flags::ACK, UnscaledWindow::new(1_024)));
//! assert_eq!(segment.payload, b"hi");
//!
//! let header: Header = segment.to_header();
//! let mut written = [0; 20];
//! header.emit(&mut written);
//! assert_eq!(written, bytes[..20]);
//!
//! assert!(Segment::parse(&bytes[..19]).is_err(), "no header is so short");
//! # Ok::<(), laneway_wire::Malformed>(())
//! ```
//!
//! What fails the check is [`error::Malformed`]: always the sender's fault, never ours. Whether well-formed bytes are
//! *acceptable* (a multicast source, a closed port) is not asked here; the protocol core decides that.
//!
//! No clock, no randomness, no atomics, no threads, no allocation, no `unsafe`.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod arp;
pub mod checksum;
pub mod error;
pub mod ethernet;
pub mod flow;
pub mod icmpv4;
pub mod icmpv6;
pub mod ipv4;
pub mod ipv6;
pub mod keyed_hash;
pub mod ndp;
pub mod segmentation;
pub mod tcp;
pub mod udp;

pub use error::{Layer, Malformed, Why};
pub use flow::{Address, FlowKey};

/// Protocol numbers of the IPv4 `protocol` and IPv6 `next header` fields (IANA "Assigned Internet Protocol Numbers").
pub mod protocol {
    /// ICMP for IPv4 (RFC 792).
    pub const ICMPV4: u8 = 1;
    /// TCP (RFC 9293).
    pub const TCP: u8 = 6;
    /// UDP (RFC 768).
    pub const UDP: u8 = 17;
    /// ICMP for IPv6 (RFC 4443).
    pub const ICMPV6: u8 = 58;
    /// "No next header" (RFC 8200 section 4.7).
    pub const NO_NEXT_HEADER: u8 = 59;
}
