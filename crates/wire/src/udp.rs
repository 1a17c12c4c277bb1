//! Owns the UDP header (RFC 768).

use crate::checksum::{Sum, pseudo_header};
use crate::error::{Layer, Malformed, Why};
use crate::flow::Address;
use crate::protocol;

#[cfg(test)]
mod tests;

/// Bytes of a header.
pub const HEADER_LEN: usize = 8;
/// Where in the header the checksum field lies: what an offload device is told.
pub const CHECKSUM_OFFSET: usize = 6;

/// A datagram whose length is right, cut to it.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    header: &'a [u8; HEADER_LEN],
    datagram: &'a [u8],
}

impl<'a> View<'a> {
    /// Checks the datagram at the front of `bytes`.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let Some(header) = bytes.first_chunk::<HEADER_LEN>() else {
            return Err(Malformed::new(Layer::Udp, Why::Truncated));
        };
        let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
        match bytes.get(..len) {
            Some(datagram) if len >= HEADER_LEN => Ok(View { header, datagram }),
            _ => Err(Malformed::new(Layer::Udp, Why::TotalLength)),
        }
    }

    /// What the header says.
    #[inline]
    pub fn header(&self) -> Header {
        let h = self.header;
        Header {
            src_port: u16::from_be_bytes([h[0], h[1]]),
            dst_port: u16::from_be_bytes([h[2], h[3]]),
            payload_len: self.payload().len() as u16,
        }
    }

    /// The checksum as it is on the wire, or `None` if the sender made none: all zeroes, which IPv4 allows and IPv6
    /// does not (RFC 8200 section 8.1).
    #[inline]
    pub fn checksum(&self) -> Option<[u8; 2]> {
        let field = [self.header[6], self.header[7]];
        (field != [0, 0]).then_some(field)
    }

    /// Does the checksum match? A datagram without one does not.
    #[inline]
    pub fn checksum_is_valid(&self, src: &Address, dst: &Address) -> bool {
        let pseudo = pseudo_header(src, dst, protocol::UDP, self.datagram.len() as u32);
        self.checksum().is_some() && (pseudo + Sum::of(self.datagram)).is_valid()
    }

    /// What the datagram carries.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.datagram.get(HEADER_LEN..).unwrap_or_default()
    }
}

/// The meaning of a header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Header {
    /// The sender's port; 0 if it wants no answer.
    pub src_port: u16,
    /// The receiver's port.
    pub dst_port: u16,
    /// Bytes behind the header; at most 65527.
    pub payload_len: u16,
}

impl Header {
    /// Checks and reads in one go: the header and the payload.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Header, &[u8]), Malformed> {
        let view = View::new(bytes)?;
        Ok((view.header(), view.payload()))
    }

    /// Writes the header to the first [`HEADER_LEN`] bytes of `buf`, the checksum field zero.
    ///
    /// # Panics
    /// If `buf` is shorter.
    #[inline]
    pub fn emit(&self, buf: &mut [u8]) {
        let [s0, s1] = self.src_port.to_be_bytes();
        let [d0, d1] = self.dst_port.to_be_bytes();
        let [l0, l1] = self.payload_len.wrapping_add(HEADER_LEN as u16).to_be_bytes();
        buf[..HEADER_LEN].copy_from_slice(&[s0, s1, d0, d1, l0, l1, 0, 0]);
    }
}

/// Sums `buf`, an emitted header and its payload, and fills in its checksum. `pseudo` is the sum of the
/// [`pseudo_header`], which counts `buf.len()` bytes.
///
/// # Panics
/// If `buf` is shorter than a header.
#[inline]
pub fn fill_checksum(buf: &mut [u8], pseudo: Sum) {
    //= https://www.rfc-editor.org/rfc/rfc768
    //# If the computed  checksum  is zero,  it is transmitted  as all ones
    let checksum = match (pseudo + Sum::of(buf)).checksum() {
        [0, 0] => [0xff, 0xff],
        checksum => checksum,
    };
    buf[CHECKSUM_OFFSET..HEADER_LEN].copy_from_slice(&checksum);
}
