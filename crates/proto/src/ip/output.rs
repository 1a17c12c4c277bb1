//! Owns the bytes of the IP headers that we send.
//!
//! path: `device::rx → ingress → ethernet → ip::input → demux → tcp::input → tcp::state → tcp::output → [ip::output] → egress → device::tx`

use crate::ethernet;
use laneway_wire::checksum::{Sum, pseudo_header};
use laneway_wire::flow::Address;
use laneway_wire::{ipv4, ipv6};

#[cfg(test)]
mod tests;

/// Bytes of an IPv4 header without options.
pub const HEADER_LEN_V4: usize = ipv4::HEADER_LEN;
/// Bytes of an IPv6 header without extension headers.
pub const HEADER_LEN_V6: usize = ipv6::HEADER_LEN;

/// What is to stand in an IP header. Both addresses are of one family, and it decides the version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeaderSpec {
    /// Our address.
    pub src: Address,
    /// The peer's address.
    pub dst: Address,
    /// Of the payload.
    pub protocol: u8,
    /// Time to live or hop limit.
    pub hop_limit: u8,
    /// DSCP in the upper six bits, ECN in the lower two.
    pub dscp_ecn: u8,
    /// IPv4 identification. Means nothing while `dont_fragment` is set (RFC 6864 section 4.1).
    pub id: u16,
    /// IPv4: routers must report instead of cutting.
    pub dont_fragment: bool,
    /// IPv6 flow label, 20 bits (RFC 6437).
    pub flow_label: u32,
}

impl HeaderSpec {
    /// A header as a host sends it by default: hop limit 64, no fragmentation on the way.
    #[inline]
    pub const fn new(src: Address, dst: Address, protocol: u8) -> Self {
        HeaderSpec { src, dst, protocol, hop_limit: 64, dscp_ecn: 0, id: 0, dont_fragment: true, flow_label: 0 }
    }

    /// Bytes of this header.
    #[inline]
    pub const fn len(&self) -> usize {
        header_len(self.src.is_v4())
    }

    /// Never: a header has bytes.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        false
    }
}

/// What a socket says of the IP header of its packets. What is 0 is as the host has it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Marks {
    /// `IP_TTL`, or `IPV6_UNICAST_HOPS`.
    pub hop_limit: u8,
    /// `IP_TOS`, or `IPV6_TCLASS`: DSCP in the upper six bits, ECN in the lower two.
    pub dscp_ecn: u8,
}

impl Marks {
    /// Says nothing.
    pub const NONE: Marks = Marks { hop_limit: 0, dscp_ecn: 0 };

    /// As nearly all are.
    #[inline(always)]
    pub const fn is_none(self) -> bool {
        u16::from_ne_bytes([self.hop_limit, self.dscp_ecn]) == 0
    }
}

/// The header of many packets, written once, and the link header in front of it, if there is one: only the length is filled in, and the
/// checksum with it.
#[derive(Clone, Copy)]
pub struct Template {
    bytes: [u8; ethernet::HEADER_LEN + HEADER_LEN_V6],
    /// Bytes of both headers, and of the first.
    len: u8,
    link_len: u8,
    /// The folded sum of an IPv4 header, length and checksum zero.
    header_sum: u16,
    /// That of the pseudo-header, length zero.
    pseudo_sum: u16,
}

impl Template {
    /// For packets as `spec` says.
    pub fn new(spec: &HeaderSpec) -> Self {
        let mut bytes = [0; ethernet::HEADER_LEN + HEADER_LEN_V6];
        emit(spec, &mut bytes, 0);
        if spec.src.is_v4() {
            bytes[2..4].fill(0);
            bytes[10..12].fill(0);
        }
        let header_sum = Sum::of(&bytes[..HEADER_LEN_V4]).fold();
        let pseudo_sum = pseudo_header(&spec.src, &spec.dst, spec.protocol, 0).fold();
        Template { bytes, len: spec.len() as u8, link_len: 0, header_sum, pseudo_sum }
    }

    /// The same behind this link header: behind none if it is empty, else it is one of Ethernet.
    #[must_use]
    pub fn behind(&self, link: &[u8]) -> Self {
        debug_assert!(link.is_empty() || link.len() == ethernet::HEADER_LEN);
        let (_, ip) = self.parts();
        let (len, link_len) = (link.len() + ip.len(), link.len());
        let mut bytes = [0; ethernet::HEADER_LEN + HEADER_LEN_V6];
        bytes[..link_len].copy_from_slice(link);
        bytes[link_len..len].copy_from_slice(ip);
        Template { bytes, len: len as u8, link_len: link_len as u8, ..*self }
    }

    /// The same with these marks.
    #[must_use]
    pub fn marked(&self, marks: Marks) -> Self {
        let Marks { hop_limit, dscp_ecn } = marks;
        self.but(|header, v4| {
            if hop_limit != 0 {
                header[if v4 { 8 } else { 7 }] = hop_limit;
            }
            match (dscp_ecn, v4) {
                (0, _) => {}
                (_, true) => header[1] = dscp_ecn,
                // Between the version and the flow label, over two bytes.
                (_, false) => {
                    header[0] = header[0] & 0xf0 | dscp_ecn >> 4;
                    header[1] = header[1] & 0x0f | dscp_ecn << 4;
                }
            }
        })
    }

    /// The same for one packet that routers may cut, and that its pieces are known by. (IPv6 has no such thing: nothing changes.)
    #[must_use]
    pub fn to_be_cut(&self, id: u16) -> Self {
        self.but(|header, v4| {
            if v4 {
                header[4..6].copy_from_slice(&id.to_be_bytes());
                header[6..8].fill(0);
            }
        })
    }

    fn but(mut self, change: impl FnOnce(&mut [u8], /* v4: */ bool)) -> Self {
        let (ip, v4) = (self.link_len()..self.len(), self.len() - self.link_len() == HEADER_LEN_V4);
        change(&mut self.bytes[ip.clone()], v4);
        if v4 {
            self.header_sum = Sum::of(&self.bytes[ip]).fold();
        }
        self
    }

    fn parts(&self) -> (&[u8], &[u8]) {
        self.bytes[..self.len()].split_at(self.link_len())
    }

    /// Bytes of the header, and of that in front of it.
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "a header is never empty")]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Bytes of the header in front of it.
    #[inline]
    pub const fn link_len(&self) -> usize {
        self.link_len as usize
    }

    /// The header in front of it.
    #[inline]
    pub fn link(&self) -> &[u8] {
        self.parts().0
    }

    /// The sum of the pseudo-header before `payload_len` bytes.
    #[inline]
    pub fn pseudo(&self, payload_len: usize) -> Sum {
        Sum::of_u16(self.pseudo_sum.to_ne_bytes()) + Sum::of_u16((payload_len as u16).to_be_bytes())
    }

    /// Writes the header before `payload_len` bytes (at most 65,535 with it) to the first [`Template::len`] bytes of `buf`, and says
    /// where those go.
    ///
    /// # Panics
    /// If `buf` is shorter.
    #[inline(always)]
    pub fn emit<'a>(&self, buf: &'a mut [u8], payload_len: usize) -> &'a mut [u8] {
        self.lay_any(buf, None, payload_len)
    }

    /// The same of a template for the unspecified address, to `dst`, and the sum of the pseudo-header with it.
    ///
    /// # Panics
    /// As [`emit`](Self::emit).
    #[inline(always)]
    pub fn emit_to<'a>(&self, dst: &Address, buf: &'a mut [u8], payload_len: usize) -> (&'a mut [u8], Sum) {
        (self.lay_any(buf, Some(dst), payload_len), self.pseudo(payload_len) + Sum::of_address(dst))
    }

    #[inline(always)]
    fn lay_any<'a>(&self, buf: &'a mut [u8], dst: Option<&Address>, payload_len: usize) -> &'a mut [u8] {
        const LINK: usize = ethernet::HEADER_LEN;
        const V4_BEHIND: usize = LINK + HEADER_LEN_V4;
        const V6_BEHIND: usize = LINK + HEADER_LEN_V6;
        match self.len() {
            V4_BEHIND => self.lay::<V4_BEHIND, LINK>(buf, dst, payload_len),
            V6_BEHIND => self.lay::<V6_BEHIND, LINK>(buf, dst, payload_len),
            HEADER_LEN_V4 => self.lay::<HEADER_LEN_V4, 0>(buf, dst, payload_len),
            _ => self.lay::<HEADER_LEN_V6, 0>(buf, dst, payload_len),
        }
    }

    /// The same of so many bytes, of which so many are the link's: a few wide stores.
    #[inline(always)]
    fn lay<'a, const LEN: usize, const LINK: usize>(
        &self,
        buf: &'a mut [u8],
        dst: Option<&Address>,
        payload_len: usize,
    ) -> &'a mut [u8] {
        let (Some((out, rest)), Some(bytes)) = (buf.split_first_chunk_mut::<LEN>(), self.bytes.first_chunk::<LEN>())
        else {
            panic!("no room for the header of a packet");
        };
        *out = *bytes;
        if LEN - LINK == HEADER_LEN_V4 {
            let total = ((HEADER_LEN_V4 + payload_len) as u16).to_be_bytes();
            [out[LINK + 2], out[LINK + 3]] = total;
            let mut sum = Sum::of_u16(self.header_sum.to_ne_bytes()) + Sum::of_u16(total);
            if let Some(dst) = dst {
                out[LINK + 16..LINK + HEADER_LEN_V4].copy_from_slice(&dst.octets_v4());
                sum = sum + Sum::of_address(dst);
            }
            [out[LINK + 10], out[LINK + 11]] = sum.checksum();
        } else {
            [out[LINK + 4], out[LINK + 5]] = (payload_len as u16).to_be_bytes();
            if let Some(dst) = dst {
                out[LINK + 24..LINK + HEADER_LEN_V6].copy_from_slice(&dst.octets());
            }
        }
        rest
    }
}

/// Bytes of the header that [`emit`] writes.
#[inline]
pub const fn header_len(v4: bool) -> usize {
    if v4 { HEADER_LEN_V4 } else { HEADER_LEN_V6 }
}

/// Writes the header before a payload of `payload_len` bytes to the first [`header_len`] bytes of `buf`, IPv4 checksum included.
///
/// # Panics
/// If `buf` is shorter than the header, or the payload too long for its length field: whoever cut the payload is mistaken.
#[inline]
pub fn emit(spec: &HeaderSpec, buf: &mut [u8], payload_len: usize) {
    let (dscp, ecn) = (spec.dscp_ecn >> 2, spec.dscp_ecn & 3);
    let HeaderSpec { src, dst, hop_limit, flow_label, .. } = *spec;
    if src.is_v4() {
        let header = ipv4::Header {
            dscp,
            ecn,
            id: spec.id,
            dont_fragment: spec.dont_fragment,
            more_fragments: false,
            fragment_offset: 0,
            ttl: hop_limit,
            protocol: spec.protocol,
            src,
            dst,
            payload_len: length_field(payload_len, usize::from(u16::MAX) - HEADER_LEN_V4),
        };
        header.emit(buf);
    } else {
        let payload_len = length_field(payload_len, usize::from(u16::MAX));
        let header =
            ipv6::Header { dscp, ecn, flow_label, payload_len, next_header: spec.protocol, hop_limit, src, dst };
        header.emit(buf);
    }
}

#[inline(always)]
fn length_field(len: usize, max: usize) -> u16 {
    assert!(len <= max, "a payload too long for the IP length field was cut for sending");
    len as u16
}
