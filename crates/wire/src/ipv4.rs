//! Owns the IPv4 header (RFC 791).
//!
//! path: `device::rx → ingress → ethernet → [ip::input] → demux → tcp::input → tcp::state → tcp::output → ip::output → egress → device::tx`

use crate::checksum::Sum;
use crate::error::{Layer, Malformed, Why};
use crate::flow::Address;

#[cfg(test)]
mod tests;

/// Bytes of a header without options, the only kind that we send.
pub const HEADER_LEN: usize = 20;
/// Bytes of the longest header.
pub const HEADER_LEN_MAX: usize = 60;

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET_MASK: u16 = 0x1fff;

/// These two options have no length.
const END_OF_LIST: u8 = 0;
const NO_OPERATION: u8 = 1;

const LOOSE_SOURCE_ROUTE: u8 = 131;
const STRICT_SOURCE_ROUTE: u8 = 137;

/// An IPv4 packet whose lengths and header checksum are right, cut to its total length.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    fixed: &'a [u8; HEADER_LEN],
    header: &'a [u8],
    payload: &'a [u8],
}

const fn malformed(why: Why) -> Malformed {
    Malformed::new(Layer::Ipv4, why)
}

impl<'a> View<'a> {
    /// Checks the packet at the front of `bytes`, header checksum included. What is behind the packet (padding of the
    /// link) is cut off.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<Self, Malformed> {
        Self::check(bytes, /* verify= */ true)
    }

    /// As [`View::new`], for a packet whose header checksum the device has verified.
    #[inline]
    pub fn new_checksum_verified(bytes: &'a [u8]) -> Result<Self, Malformed> {
        Self::check(bytes, /* verify= */ false)
    }

    #[inline(always)]
    fn check(bytes: &'a [u8], verify: bool) -> Result<Self, Malformed> {
        let Some(fixed) = bytes.first_chunk::<HEADER_LEN>() else {
            return Err(malformed(Why::Truncated));
        };
        // Version 4 and no options, in one comparison.
        if fixed[0] != 0x45 {
            return Self::check_with_options(bytes, fixed, verify);
        }
        let total_len = total_len(fixed);
        if total_len < HEADER_LEN || total_len > bytes.len() {
            return Err(malformed(Why::TotalLength));
        }
        if verify && !Sum::of_array(fixed).is_valid() {
            return Err(malformed(Why::Checksum));
        }
        let (header, payload) = bytes[..total_len].split_at(HEADER_LEN);
        Ok(View { fixed, header, payload })
    }

    #[cold]
    #[inline(never)]
    fn check_with_options(bytes: &'a [u8], fixed: &'a [u8; HEADER_LEN], verify: bool) -> Result<Self, Malformed> {
        if fixed[0] >> 4 != 4 {
            return Err(malformed(Why::Version));
        }
        let header_len = usize::from(fixed[0] & 0xf) * 4;
        if header_len < HEADER_LEN || header_len > bytes.len() {
            return Err(malformed(Why::HeaderLength));
        }
        let total_len = total_len(fixed);
        if total_len < header_len || total_len > bytes.len() {
            return Err(malformed(Why::TotalLength));
        }
        let (header, payload) = bytes[..total_len].split_at(header_len);
        if verify && !Sum::of(header).is_valid() {
            return Err(malformed(Why::Checksum));
        }
        Ok(View { fixed, header, payload })
    }

    /// The source address.
    #[inline]
    pub fn src(&self) -> Address {
        let h = self.fixed;
        Address::from_v4([h[12], h[13], h[14], h[15]])
    }

    /// The destination address.
    #[inline]
    pub fn dst(&self) -> Address {
        let h = self.fixed;
        Address::from_v4([h[16], h[17], h[18], h[19]])
    }

    /// The protocol of the payload.
    #[inline]
    pub fn protocol(&self) -> u8 {
        self.fixed[9]
    }

    /// Time to live.
    #[inline]
    pub fn ttl(&self) -> u8 {
        self.fixed[8]
    }

    /// The two ECN bits (RFC 3168).
    #[inline]
    pub fn ecn(&self) -> u8 {
        self.fixed[1] & 3
    }

    /// Is this a fragment, and not a whole datagram?
    #[inline]
    pub fn is_fragment(&self) -> bool {
        u16::from_be_bytes([self.fixed[6], self.fixed[7]]) & (MORE_FRAGMENTS | OFFSET_MASK) != 0
    }

    /// What the header says.
    #[inline]
    pub fn header(&self) -> Header {
        let h = self.fixed;
        let fragment = u16::from_be_bytes([h[6], h[7]]);
        Header {
            dscp: h[1] >> 2,
            ecn: h[1] & 3,
            id: u16::from_be_bytes([h[4], h[5]]),
            dont_fragment: fragment & DONT_FRAGMENT != 0,
            more_fragments: fragment & MORE_FRAGMENTS != 0,
            fragment_offset: (fragment & OFFSET_MASK) << 3,
            ttl: h[8],
            protocol: h[9],
            src: self.src(),
            dst: self.dst(),
            payload_len: self.payload.len() as u16,
        }
    }

    /// The header as bytes, its options included.
    #[inline]
    pub fn header_bytes(&self) -> &'a [u8] {
        self.header
    }

    /// The options as bytes. We skip them: but for a source route that is [incomplete](Self::has_incomplete_source_route), none of them does anything
    /// for an end host.
    #[inline]
    pub fn options(&self) -> &'a [u8] {
        self.header.get(HEADER_LEN..).unwrap_or_default()
    }

    /// Whether the packet is on its way to another host, and its destination only the next of those that its source route names.
    #[inline]
    pub fn has_incomplete_source_route(&self) -> bool {
        let options = self.options();
        !options.is_empty() && leads_on(options)
    }

    /// The bytes between the header and the end of the packet.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// Whether there is a source route among these options that is not used up. What is malformed says nothing.
//= https://www.rfc-editor.org/rfc/rfc791#section-3.1
//# If the pointer is greater than the length, the source route is empty (and the recorded route full) and the routing is to be based on the
//# destination address field.
#[cold]
fn leads_on(mut options: &[u8]) -> bool {
    loop {
        options = match *options {
            [NO_OPERATION, ref rest @ ..] => rest,
            [LOOSE_SOURCE_ROUTE | STRICT_SOURCE_ROUTE, len, pointer, ..] if pointer <= len => return true,
            [kind, len, ..] if kind != END_OF_LIST && len >= 2 => options.get(usize::from(len)..).unwrap_or_default(),
            _ => return false,
        }
    }
}

#[inline(always)]
fn total_len(fixed: &[u8; HEADER_LEN]) -> usize {
    usize::from(u16::from_be_bytes([fixed[2], fixed[3]]))
}

/// The meaning of an IPv4 header, its options apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Header {
    /// Differentiated services code point, 6 bits (RFC 2474).
    pub dscp: u8,
    /// Explicit congestion notification, 2 bits (RFC 3168).
    pub ecn: u8,
    /// Identification; significant for fragments only (RFC 6864).
    pub id: u16,
    /// Routers must not fragment the packet.
    pub dont_fragment: bool,
    /// This is not the last fragment.
    pub more_fragments: bool,
    /// Where in the datagram the payload belongs: bytes, a multiple of 8.
    pub fragment_offset: u16,
    /// Time to live.
    pub ttl: u8,
    /// The protocol of the payload.
    pub protocol: u8,
    /// From whom; an IPv4 address.
    pub src: Address,
    /// To whom; an IPv4 address.
    pub dst: Address,
    /// Bytes behind the header; at most 65515.
    pub payload_len: u16,
}

impl Header {
    /// Checks and reads in one go: the header and the payload.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Header, &[u8]), Malformed> {
        let view = View::new(bytes)?;
        Ok((view.header(), view.payload()))
    }

    /// Writes the header and its checksum to the first [`HEADER_LEN`] bytes of `buf`.
    ///
    /// # Panics
    /// If `buf` is shorter.
    #[inline]
    pub fn emit(&self, buf: &mut [u8]) {
        debug_assert!(usize::from(self.payload_len) + HEADER_LEN <= 0xffff, "an IPv4 packet is at most 65535 bytes");
        let [l0, l1] = self.payload_len.wrapping_add(HEADER_LEN as u16).to_be_bytes();
        let [i0, i1] = self.id.to_be_bytes();
        let mut fragment = self.fragment_offset >> 3;
        if self.dont_fragment {
            fragment |= DONT_FRAGMENT;
        }
        if self.more_fragments {
            fragment |= MORE_FRAGMENTS;
        }
        let [f0, f1] = fragment.to_be_bytes();
        let tos = self.dscp << 2 | self.ecn & 3;
        let [s0, s1, s2, s3] = self.src.octets_v4();
        let [d0, d1, d2, d3] = self.dst.octets_v4();
        let mut header =
            [0x45, tos, l0, l1, i0, i1, f0, f1, self.ttl, self.protocol, 0, 0, s0, s1, s2, s3, d0, d1, d2, d3];
        let [c0, c1] = Sum::of_array(&header).checksum();
        header[10] = c0;
        header[11] = c1;
        buf[..HEADER_LEN].copy_from_slice(&header);
    }
}
