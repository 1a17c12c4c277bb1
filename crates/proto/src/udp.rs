//! Owns UDP (RFC 768): which datagrams are good, and the bytes of those that we send.

use crate::discard::Discard;
use crate::ip::input::Packet;
use laneway_wire::checksum::{RxChecksum, pseudo_header};
use laneway_wire::flow::FlowKey;
pub use laneway_wire::udp::{CHECKSUM_OFFSET, HEADER_LEN};
use laneway_wire::{protocol, udp};

#[cfg(test)]
mod tests;

/// A datagram that may be given to the socket on its port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagram<'a> {
    /// Seen from this host: the datagram's destination is `local`. `remote_port` 0 wants no answer.
    pub key: FlowKey,
    /// What it carries.
    pub payload: &'a [u8],
}

/// Checks the UDP datagram in `packet`, which is whole. `checksum` is what the device knows about it.
#[inline]
pub fn input<'a>(packet: &Packet<'a>, checksum: RxChecksum) -> Result<Datagram<'a>, Discard> {
    let view = udp::View::new(packet.payload).map_err(|_| Discard::UdpMalformed)?;
    let header = view.header();
    let verified = match view.checksum() {
        //= https://www.rfc-editor.org/rfc/rfc8200#section-8.1
        //# IPv6 receivers must discard UDP packets containing a zero checksum and should log the error.
        None => packet.src.is_v4(),
        Some(_) => checksum == RxChecksum::Verified || view.checksum_is_valid(&packet.src, &packet.dst),
    };
    if !verified {
        return Err(Discard::UdpChecksum);
    }
    let key =
        FlowKey { local: packet.dst, remote: packet.src, local_port: header.dst_port, remote_port: header.src_port };
    Ok(Datagram { key, payload: view.payload() })
}

/// The most payload that one datagram holds, bytes; over IPv4, whose length field counts the IP header, too, 20 less.
pub const PAYLOAD_MAX: usize = 65_535 - HEADER_LEN;

/// Bytes of the datagram that [`emit`] writes.
#[inline]
pub const fn len(payload_len: usize) -> usize {
    HEADER_LEN + payload_len
}

/// Writes a datagram from `key.local` to `key.remote`, checksum included, to the first [`len`] bytes of `buf`: the IP header goes
/// before it.
///
/// # Panics
/// If `buf` is shorter, or the payload longer than [`PAYLOAD_MAX`]: sockets refuse such payloads with an error.
#[inline]
pub fn emit(key: &FlowKey, payload: &[u8], buf: &mut [u8]) {
    let datagram = place(key, payload, buf);
    let pseudo = pseudo_header(&key.local, &key.remote, protocol::UDP, datagram.len() as u32);
    udp::fill_checksum(datagram, pseudo);
}

#[inline]
fn place<'b>(key: &FlowKey, payload: &[u8], buf: &'b mut [u8]) -> &'b mut [u8] {
    assert!(payload.len() <= PAYLOAD_MAX, "a UDP payload longer than PAYLOAD_MAX was not refused by its socket");
    let datagram = &mut buf[..len(payload.len())];
    let header = udp::Header { src_port: key.local_port, dst_port: key.remote_port, payload_len: payload.len() as u16 };
    header.emit(datagram);
    datagram[HEADER_LEN..].copy_from_slice(payload);
    datagram
}
