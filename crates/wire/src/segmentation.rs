//! Owns the cutting of a TCP super-packet into segments that fit a link: what a device with segmentation offload does.
//!
//! path: `device::rx → ingress → ethernet → ip::input → demux → tcp::input → tcp::state → tcp::output → ip::output → egress → [device::tx]`
//!
//! [`Cut`] cuts a packet that is written already; [`Headers`] writes the headers of pieces that never were one.

use crate::checksum::{Sum, copy_and_sum, pseudo_header};
use crate::error::{Layer, Malformed, Why};
use crate::tcp::{self, Flags, Header};
use crate::{ipv4, ipv6, protocol};

#[cfg(test)]
mod tests;

/// The TCP header of a super-segment, kept as bytes and as a sum, for the headers of its pieces: only the sequence number
/// and the flags differ, so only they are written and summed again.
#[derive(Clone, Copy, Debug)]
pub struct Headers {
    bytes: [u8; tcp::HEADER_LEN_MAX],
    len: usize,
    seq: u32,
    flags: Flags,
    /// Of the header without sequence number, flags and checksum.
    sum: Sum,
}

/// Where a piece lies in its super-segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Bytes of text before it.
    pub forward: u32,
    /// It is the last: it has FIN and PSH, if there are any.
    pub last: bool,
}

impl Headers {
    /// For the pieces of a super-segment with this header.
    pub fn new(header: &Header) -> Self {
        let mut bytes = [0; tcp::HEADER_LEN_MAX];
        header.emit(&mut bytes);
        Self::of(bytes, header.len())
    }

    /// `bytes` begin with a header of `len` bytes.
    fn of(mut bytes: [u8; tcp::HEADER_LEN_MAX], len: usize) -> Self {
        let seq = u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        let flags = Flags::from_bits(bytes[13]);
        bytes[4..8].fill(0);
        bytes[13] = 0;
        bytes[tcp::CHECKSUM_OFFSET..tcp::CHECKSUM_OFFSET + 2].fill(0);
        let sum = Sum::of(&bytes[..len]);
        Headers { bytes, len, seq, flags, sum }
    }

    /// Bytes of each header.
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "a header is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Writes the header of the piece at `place` to the front of `buf`, the checksum field zero, and says what it sums to.
    /// FIN and PSH are on the last piece only, CWR on the first only (RFC 3168 section 6.1.2).
    ///
    /// # Panics
    /// If `buf` is shorter than [`Headers::len`].
    #[inline]
    pub fn write(&self, place: Place, buf: &mut [u8]) -> Sum {
        let buf = &mut buf[..self.len];
        buf.copy_from_slice(&self.bytes[..self.len]);
        let seq = self.seq.wrapping_add(place.forward).to_be_bytes();
        let mut flags = self.flags;
        if !place.last {
            flags = flags.without(Flags::FIN | Flags::PSH);
        }
        if place.forward != 0 {
            flags = flags.without(Flags::CWR);
        }
        buf[4..8].copy_from_slice(&seq);
        buf[13] = flags.bits();
        self.sum + Sum::of_array(&seq) + Sum::of_u16([0, flags.bits()])
    }
}

/// A super-packet on its way to be cut: ask [`Cut::next_len`] for the size of a buffer, hand it to
/// [`Cut::write_next`], until there is no next.
///
/// Each segment has the super-packet's headers, with the IP length, the IPv4 identification (counted up) and header
/// checksum, the sequence number and the TCP checksum made right. FIN and PSH are on the last only, CWR on the first
/// only (RFC 3168 section 6.1.2). All checksums are computed anew, so the super-packet's own may be partial; whoever
/// hands it in vouches for its bytes.
#[derive(Clone, Debug)]
pub struct Cut<'a> {
    ip: &'a [u8],
    tcp: Headers,
    is_v4: bool,
    /// Of the pseudo-header, length zero.
    pseudo: Sum,
    payload: &'a [u8],
    mss: usize,
    /// Bytes of payload, and segments, that are written.
    at: usize,
    written: u16,
    done: bool,
}

impl<'a> Cut<'a> {
    /// To cut `packet`, an IP packet with TCP in it, into segments of at most `mss` (at least 1) bytes of text. What
    /// has extension headers or is a fragment cannot be cut.
    pub fn new(packet: &'a [u8], mss: usize) -> Result<Self, Malformed> {
        let (is_v4, ip_len, protocol, src, dst, body) = match packet.first().map(|first| first >> 4) {
            Some(4) => {
                let view = ipv4::View::new_checksum_verified(packet)?;
                if view.is_fragment() {
                    return Err(Malformed::new(Layer::Ipv4, Why::Fragmented));
                }
                let ip_len = view.header_bytes().len();
                (true, ip_len, view.protocol(), view.src(), view.dst(), view.payload())
            }
            Some(6) => {
                let view = ipv6::View::new(packet)?;
                let ip_len = ipv6::HEADER_LEN;
                (false, ip_len, view.next_header(), view.src(), view.dst(), view.payload())
            }
            Some(_) => return Err(Malformed::new(Layer::Ipv4, Why::Version)),
            None => return Err(Malformed::new(Layer::Ipv4, Why::Truncated)),
        };
        if protocol != protocol::TCP {
            return Err(Malformed::new(Layer::Tcp, Why::Protocol));
        }
        let view = tcp::View::new(body)?;
        let mut header = [0; tcp::HEADER_LEN_MAX];
        let header_len = view.header_len();
        header[..header_len].copy_from_slice(&body[..header_len]);
        Ok(Cut {
            ip: &packet[..ip_len],
            tcp: Headers::of(header, header_len),
            is_v4,
            pseudo: pseudo_header(&src, &dst, protocol::TCP, 0),
            payload: view.payload(),
            mss: mss.max(1),
            at: 0,
            written: 0,
            done: false,
        })
    }

    /// Bytes of the next segment with its headers, or `None` if all is written. A packet without text is one segment.
    #[inline]
    pub fn next_len(&self) -> Option<usize> {
        (!self.done).then(|| self.ip.len() + self.tcp.len() + self.next_payload().len())
    }

    #[inline]
    fn next_payload(&self) -> &'a [u8] {
        let rest = &self.payload[self.at..];
        &rest[..rest.len().min(self.mss)]
    }

    /// Writes the next segment to the front of `buf` and says how many bytes it has; 0 if all is written.
    ///
    /// # Panics
    /// If `buf` is shorter than [`Cut::next_len`].
    pub fn write_next(&mut self, buf: &mut [u8]) -> usize {
        let Some(len) = self.next_len() else { return 0 };
        let text = self.next_payload();
        let (ip, segment) = buf[..len].split_at_mut(self.ip.len());
        ip.copy_from_slice(self.ip);
        let (header, body) = segment.split_at_mut(self.tcp.len());
        let last = self.at + text.len() == self.payload.len();
        let header_sum = self.tcp.write(Place { forward: self.at as u32, last }, header);
        let text_sum = copy_and_sum(body, text);
        let length = Sum::of_u16(((header.len() + text.len()) as u16).to_be_bytes());
        let checksum = (self.pseudo + length + header_sum + text_sum).checksum();
        header[tcp::CHECKSUM_OFFSET..tcp::CHECKSUM_OFFSET + 2].copy_from_slice(&checksum);
        if self.is_v4 {
            patch_ipv4(ip, len as u16, self.written);
        } else {
            ip[4..6].copy_from_slice(&((len - self.ip.len()) as u16).to_be_bytes());
        }

        self.at += text.len();
        self.written = self.written.wrapping_add(1);
        self.done = last;
        len
    }
}

/// Sets the total length, counts the identification up and computes the header checksum.
fn patch_ipv4(ip: &mut [u8], total_len: u16, count: u16) {
    ip[2..4].copy_from_slice(&total_len.to_be_bytes());
    let id = u16::from_be_bytes([ip[4], ip[5]]).wrapping_add(count);
    ip[4..6].copy_from_slice(&id.to_be_bytes());
    ip[10..12].fill(0);
    let checksum = Sum::of(ip).checksum();
    ip[10..12].copy_from_slice(&checksum);
}
