//! Owns the cutting of a datagram that is larger than its path into fragments (RFC 791 section 3.2, RFC 8200 section 4.5).
//!
//! For UDP and ICMP only: TCP cuts its stream to fit, and sets "don't fragment".

use crate::ip::output::{self, HEADER_LEN_V4, HEADER_LEN_V6, HeaderSpec};
use core::fmt;
use laneway_wire::{ipv4, ipv6};

#[cfg(test)]
mod tests;

/// The IPv6 next header value of the fragment header.
const FRAGMENT: u8 = 44;

/// Why a datagram cannot be cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Uncuttable {
    /// The sender forbade it.
    DontFragment,
    /// The MTU leaves no room for eight bytes of payload.
    MtuTooSmall,
    /// More than an IP datagram can hold.
    TooLong,
}

impl fmt::Display for Uncuttable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Uncuttable::DontFragment => "the datagram is larger than the path MTU and must not be fragmented",
            Uncuttable::MtuTooSmall => "the MTU leaves no room for a fragment",
            Uncuttable::TooLong => "the datagram is longer than 65535 bytes",
        })
    }
}

impl std::error::Error for Uncuttable {}

/// The fragments of one datagram, in order. Allocates nothing: each is written into the caller's buffer.
#[derive(Clone, Debug)]
pub struct Fragments<'a> {
    spec: HeaderSpec,
    id: u32,
    payload: &'a [u8],
    /// Payload bytes of every fragment but the last; a multiple of 8.
    step: usize,
    offset: usize,
}

impl<'a> Fragments<'a> {
    /// Cuts `payload`, which `spec` would head as a whole, to IP packets of at most `mtu` bytes. `id` must differ from that of
    /// other datagrams to the same destination for a minute or two, and should not be guessable (RFC 7739); IPv4 uses its lower 16 bits.
    pub fn new(spec: &HeaderSpec, id: u32, payload: &'a [u8], mtu: usize) -> Result<Self, Uncuttable> {
        let v4 = spec.src.is_v4();
        if v4 && spec.dont_fragment {
            return Err(Uncuttable::DontFragment);
        }
        // The length field of IPv6 does not count the header.
        let counted = if v4 { output::header_len(v4) } else { 0 };
        if counted + payload.len() > usize::from(u16::MAX) {
            return Err(Uncuttable::TooLong);
        }
        let step = mtu.saturating_sub(overhead(v4)) & !7;
        if step == 0 {
            return Err(Uncuttable::MtuTooSmall);
        }
        Ok(Fragments { spec: *spec, id, payload, step, offset: 0 })
    }

    /// The length of the next fragment, IP header included; `None` when all are written.
    pub fn next_len(&self) -> Option<usize> {
        let left = self.payload.len().checked_sub(self.offset)?;
        (left > 0).then(|| overhead(self.spec.src.is_v4()) + left.min(self.step))
    }

    /// Writes the next fragment to the first [`Fragments::next_len`] bytes of `buf` and moves on. Does nothing at the end.
    ///
    /// # Panics
    /// If `buf` is shorter.
    pub fn write_next(&mut self, buf: &mut [u8]) {
        let Some(len) = self.next_len() else { return };
        let buf = &mut buf[..len];
        let v4 = self.spec.src.is_v4();
        let (headers, out) = buf.split_at_mut(overhead(v4));
        let piece = &self.payload[self.offset..self.offset + out.len()];
        let more = self.offset + out.len() < self.payload.len();
        if v4 {
            self.head_v4(headers, piece.len(), more)
        } else {
            self.head_v6(headers, piece.len(), more)
        }
        out.copy_from_slice(piece);
        self.offset += piece.len();
    }

    fn head_v4(&self, headers: &mut [u8], len: usize, more: bool) {
        let spec = &self.spec;
        let header = ipv4::Header {
            dscp: spec.dscp_ecn >> 2,
            ecn: spec.dscp_ecn & 3,
            id: self.id as u16,
            dont_fragment: false,
            more_fragments: more,
            fragment_offset: self.offset as u16,
            ttl: spec.hop_limit,
            protocol: spec.protocol,
            src: spec.src,
            dst: spec.dst,
            payload_len: len as u16,
        };
        header.emit(headers);
    }

    fn head_v6(&self, headers: &mut [u8], len: usize, more: bool) {
        let spec = HeaderSpec { protocol: FRAGMENT, ..self.spec };
        output::emit(&spec, headers, ipv6::FRAGMENT_HEADER_LEN + len);
        let fragment = ipv6::Fragment { offset: self.offset as u32, more, id: self.id };
        fragment.emit(self.spec.protocol, &mut headers[HEADER_LEN_V6..]);
    }
}

/// Bytes of headers in each fragment.
const fn overhead(v4: bool) -> usize {
    if v4 { HEADER_LEN_V4 } else { HEADER_LEN_V6 + ipv6::FRAGMENT_HEADER_LEN }
}
