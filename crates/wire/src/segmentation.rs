//! Owns the cutting of a TCP super-packet into segments that fit a link: what a device with segmentation offload does.
//!
//! path: `device::rx → ingress → ethernet → ip::input → demux → tcp::input → tcp::state → tcp::output → ip::output → egress → [device::tx]`

use crate::checksum::{Sum, copy_and_sum, pseudo_header};
use crate::error::{Layer, Malformed, Why};
use crate::flow::Address;
use crate::tcp::{self, Flags};
use crate::{ipv4, ipv6, protocol};

#[cfg(test)]
mod tests;

/// A super-packet on its way to be cut: ask [`Cut::next_len`] for the size of a buffer, hand it to
/// [`Cut::write_next`], until there is no next.
///
/// Each segment has the super-packet's headers, with the IP length, the IPv4 identification (counted up) and header
/// checksum, the sequence number and the TCP checksum made right. FIN and PSH are on the last only, CWR on the first
/// only (RFC 3168 section 6.1.2). All checksums are computed anew, so the super-packet's own may be partial; whoever
/// hands it in vouches for its bytes.
#[derive(Clone, Debug)]
pub struct Cut<'a> {
    headers: &'a [u8],
    ip_len: usize,
    is_v4: bool,
    src: Address,
    dst: Address,
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
        Ok(Cut {
            headers: &packet[..ip_len + view.header_len()],
            ip_len,
            is_v4,
            src,
            dst,
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
        (!self.done).then(|| self.headers.len() + self.next_payload().len())
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
        let (headers, rest) = buf[..len].split_at_mut(self.headers.len());
        headers.copy_from_slice(self.headers);
        let text_sum = copy_and_sum(rest, text);

        let (ip, tcp) = headers.split_at_mut(self.ip_len);
        let first = self.at == 0;
        let last = self.at + text.len() == self.payload.len();
        patch_tcp(tcp, self.at as u32, first, last);
        let pseudo = pseudo_header(&self.src, &self.dst, protocol::TCP, (tcp.len() + text.len()) as u32);
        let checksum = (pseudo + Sum::of(tcp) + text_sum).checksum();
        tcp[tcp::CHECKSUM_OFFSET..tcp::CHECKSUM_OFFSET + 2].copy_from_slice(&checksum);
        if self.is_v4 {
            patch_ipv4(ip, len as u16, self.written);
        } else {
            ip[4..6].copy_from_slice(&((len - self.ip_len) as u16).to_be_bytes());
        }

        self.at += text.len();
        self.written = self.written.wrapping_add(1);
        self.done = last;
        len
    }
}

/// Moves the sequence number `forward`, leaves each flag where it belongs, and clears the checksum field.
fn patch_tcp(tcp: &mut [u8], forward: u32, first: bool, last: bool) {
    let seq = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]).wrapping_add(forward);
    tcp[4..8].copy_from_slice(&seq.to_be_bytes());
    let mut flags = Flags::from_bits(tcp[13]);
    if !last {
        flags = flags.without(Flags::FIN | Flags::PSH);
    }
    if !first {
        flags = flags.without(Flags::CWR);
    }
    tcp[13] = flags.bits();
    tcp[tcp::CHECKSUM_OFFSET..tcp::CHECKSUM_OFFSET + 2].fill(0);
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
