//! Owns the IPv6 header (RFC 8200 section 3).
//!
//! path: `device::rx → ingress → ethernet → [ip::input] → demux → tcp::input → tcp::state → tcp::output → ip::output → egress → device::tx`

use crate::error::{Layer, Malformed, Why};
use crate::flow::Address;

mod extensions;
#[cfg(test)]
mod tests;

pub use extensions::{FRAGMENT_HEADER_LEN, Fragment, Upper, is_extension, names_upper, refused, skip, walk};

/// Bytes of the fixed header.
pub const HEADER_LEN: usize = 40;

/// An IPv6 packet whose lengths are right, cut to its payload length.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    fixed: &'a [u8; HEADER_LEN],
    payload: &'a [u8],
}

const fn malformed(why: Why) -> Malformed {
    Malformed::new(Layer::Ipv6, why)
}

impl<'a> View<'a> {
    /// Checks the packet at the front of `bytes`. What is behind the packet (padding of the link) is cut off.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let Some((fixed, rest)) = bytes.split_first_chunk::<HEADER_LEN>() else {
            return Err(malformed(Why::Truncated));
        };
        if fixed[0] >> 4 != 6 {
            return Err(malformed(Why::Version));
        }
        let payload_len = usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
        match rest.get(..payload_len) {
            Some(payload) => Ok(View { fixed, payload }),
            None => Err(malformed(Why::TotalLength)),
        }
    }

    /// The source address.
    #[inline]
    pub fn src(&self) -> Address {
        address::<8>(self.fixed)
    }

    /// The destination address.
    #[inline]
    pub fn dst(&self) -> Address {
        address::<24>(self.fixed)
    }

    /// The kind of the first header behind the fixed one: an extension or the upper protocol.
    #[inline]
    pub fn next_header(&self) -> u8 {
        self.fixed[6]
    }

    /// Hop limit.
    #[inline]
    pub fn hop_limit(&self) -> u8 {
        self.fixed[7]
    }

    /// The two ECN bits (RFC 3168).
    #[inline]
    pub fn ecn(&self) -> u8 {
        self.fixed[1] >> 4 & 3
    }

    /// What the header says.
    #[inline]
    pub fn header(&self) -> Header {
        let h = self.fixed;
        Header {
            dscp: (h[0] << 4 | h[1] >> 4) >> 2 & 0x3f,
            ecn: self.ecn(),
            flow_label: u32::from_be_bytes([0, h[1] & 0xf, h[2], h[3]]),
            payload_len: self.payload.len() as u16,
            next_header: h[6],
            hop_limit: h[7],
            src: self.src(),
            dst: self.dst(),
        }
    }

    /// The fixed header as bytes.
    #[inline]
    pub fn header_bytes(&self) -> &'a [u8; HEADER_LEN] {
        self.fixed
    }

    /// The bytes between the fixed header and the end of the packet, extension headers included.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Walks the extension headers to the upper protocol; [`Upper::offset`] counts from [`View::payload`].
    #[inline]
    pub fn upper(&self) -> Result<Upper, Malformed> {
        walk(self.fixed[6], self.payload)
    }
}

#[inline(always)]
fn address<const AT: usize>(fixed: &[u8; HEADER_LEN]) -> Address {
    let mut octets = [0; 16];
    octets.copy_from_slice(&fixed[AT..AT + 16]);
    Address::from_v6(octets)
}

/// The meaning of an IPv6 header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Header {
    /// Differentiated services code point, 6 bits (RFC 2474).
    pub dscp: u8,
    /// Explicit congestion notification, 2 bits (RFC 3168).
    pub ecn: u8,
    /// Flow label, 20 bits (RFC 6437).
    pub flow_label: u32,
    /// Bytes behind the fixed header.
    pub payload_len: u16,
    /// The kind of the first header behind the fixed one.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// From whom.
    pub src: Address,
    /// To whom.
    pub dst: Address,
}

impl Header {
    /// Checks and reads in one go: the header and what is behind it, extension headers included.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Header, &[u8]), Malformed> {
        let view = View::new(bytes)?;
        Ok((view.header(), view.payload()))
    }

    /// Writes the header to the first [`HEADER_LEN`] bytes of `buf`.
    ///
    /// # Panics
    /// If `buf` is shorter.
    #[inline]
    pub fn emit(&self, buf: &mut [u8]) {
        let Some(out) = buf.first_chunk_mut::<HEADER_LEN>() else {
            panic!("an IPv6 header of {HEADER_LEN} bytes was emitted to a shorter buffer");
        };
        let class = u32::from(self.dscp & 0x3f) << 2 | u32::from(self.ecn & 3);
        let first = 6 << 28 | class << 20 | self.flow_label & 0xf_ffff;
        out[0..4].copy_from_slice(&first.to_be_bytes());
        out[4..6].copy_from_slice(&self.payload_len.to_be_bytes());
        out[6] = self.next_header;
        out[7] = self.hop_limit;
        out[8..24].copy_from_slice(&self.src.octets());
        out[24..40].copy_from_slice(&self.dst.octets());
    }
}
