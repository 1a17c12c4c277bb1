//! Owns the Ethernet II header.
//!
//! path: `device::rx → ingress → [ethernet] → ip::input → demux → tcp::input → tcp::state → tcp::output → ip::output → egress → device::tx`

use crate::error::{Layer, Malformed, Why};
use core::fmt;

#[cfg(test)]
mod tests;

/// Bytes of an Ethernet header without VLAN tag.
pub const HEADER_LEN: usize = 14;

/// An Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// `ff:ff:ff:ff:ff:ff`.
    pub const BROADCAST: Mac = Mac([0xff; 6]);

    /// Is this the broadcast address?
    #[inline]
    pub const fn is_broadcast(&self) -> bool {
        matches!(self.0, [0xff, 0xff, 0xff, 0xff, 0xff, 0xff])
    }

    /// Is this a group address (broadcast included)?
    #[inline]
    pub const fn is_multicast(&self) -> bool {
        self.0[0] & 1 != 0
    }

    /// May this be the address of one station: neither a group nor all zeroes?
    #[inline]
    pub const fn is_unicast(&self) -> bool {
        !self.is_multicast() && !matches!(self.0, [0, 0, 0, 0, 0, 0])
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What an Ethernet frame carries, in host order.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4.
    pub const IPV4: EtherType = EtherType(0x0800);
    /// ARP.
    pub const ARP: EtherType = EtherType(0x0806);
    /// IPv6.
    pub const IPV6: EtherType = EtherType(0x86dd);
}

impl fmt::Debug for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            EtherType::IPV4 => f.write_str("IPv4"),
            EtherType::ARP => f.write_str("ARP"),
            EtherType::IPV6 => f.write_str("IPv6"),
            EtherType(other) => write!(f, "{other:#06x}"),
        }
    }
}

/// A frame known to hold a whole header.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    header: &'a [u8; HEADER_LEN],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Checks `frame`.
    #[inline]
    pub fn new(frame: &'a [u8]) -> Result<Self, Malformed> {
        match frame.split_first_chunk() {
            Some((header, payload)) => Ok(View { header, payload }),
            None => Err(Malformed::new(Layer::Ethernet, Why::Truncated)),
        }
    }

    /// What the header says.
    #[inline]
    pub fn header(&self) -> Header {
        let h = self.header;
        Header {
            dst: Mac([h[0], h[1], h[2], h[3], h[4], h[5]]),
            src: Mac([h[6], h[7], h[8], h[9], h[10], h[11]]),
            ethertype: self.ethertype(),
        }
    }

    /// What the frame carries.
    #[inline]
    pub fn ethertype(&self) -> EtherType {
        EtherType(u16::from_be_bytes([self.header[12], self.header[13]]))
    }

    /// The bytes after the header, padding included.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// The meaning of an Ethernet header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Header {
    /// To whom.
    pub dst: Mac,
    /// From whom.
    pub src: Mac,
    /// Of what kind.
    pub ethertype: EtherType,
}

impl Header {
    /// Checks and reads in one go: the header and what it carries.
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<(Header, &[u8]), Malformed> {
        let view = View::new(frame)?;
        Ok((view.header(), view.payload()))
    }

    /// The header as bytes: also the template that is copied before each packet to one neighbour.
    #[inline]
    pub const fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let (d, s, t) = (self.dst.0, self.src.0, self.ethertype.0.to_be_bytes());
        [d[0], d[1], d[2], d[3], d[4], d[5], s[0], s[1], s[2], s[3], s[4], s[5], t[0], t[1]]
    }

    /// Writes the header to the first [`HEADER_LEN`] bytes of `buf`.
    ///
    /// # Panics
    /// If `buf` is shorter.
    #[inline]
    pub fn emit(&self, buf: &mut [u8]) {
        buf[..HEADER_LEN].copy_from_slice(&self.to_bytes());
    }
}
