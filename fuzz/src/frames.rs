//! Owns frames by hand: what a target needs to get past the checksums, and what reads the host's answers.

use laneway_wire::checksum::{Sum, pseudo_header, verify_transport};
use laneway_wire::flow::Address;
use laneway_wire::tcp::{Header, Segment};
use laneway_wire::{ipv4, ipv6, protocol};

/// Link addresses of the host and of the hand at the other end.
pub const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

/// Puts an IP header before `payload`, and fills in the transport's checksum if the protocol has one.
pub fn packet(src: Address, dst: Address, kind: u8, mut payload: Vec<u8>) -> Vec<u8> {
    payload.truncate(1_400);
    let field = match kind {
        protocol::TCP => Some(16),
        protocol::UDP => Some(6),
        protocol::ICMPV6 | protocol::ICMPV4 => Some(2),
        _ => None,
    };
    if let Some(at) = field
        && payload.len() >= at + 2
    {
        payload[at..at + 2].fill(0);
        let pseudo =
            if kind == protocol::ICMPV4 { Sum::ZERO } else { pseudo_header(&src, &dst, kind, payload.len() as u32) };
        let sum = (pseudo + Sum::of(&payload)).checksum();
        payload[at..at + 2].copy_from_slice(&sum);
    }
    let payload_len = payload.len() as u16;
    let mut packet = if src.is_v4() {
        let header = ipv4::Header {
            dscp: 0,
            ecn: 0,
            id: 0,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            ttl: 64,
            protocol: kind,
            src,
            dst,
            payload_len,
        };
        let mut buf = vec![0; ipv4::HEADER_LEN];
        header.emit(&mut buf);
        buf
    } else {
        let header =
            ipv6::Header { dscp: 0, ecn: 0, flow_label: 0, payload_len, next_header: kind, hop_limit: 255, src, dst };
        let mut buf = vec![0; ipv6::HEADER_LEN];
        header.emit(&mut buf);
        buf
    };
    packet.extend(payload);
    packet
}

/// A TCP segment as an IP packet.
pub fn segment(src: Address, dst: Address, header: &Header, payload: &[u8]) -> Vec<u8> {
    let mut tcp = vec![0; header.len()];
    header.emit(&mut tcp);
    tcp.extend(payload);
    packet(src, dst, protocol::TCP, tcp)
}

/// Reads a packet of the host's, which must be right in every respect: the TCP segment, if it is one.
pub fn read(packet: &[u8]) -> Option<Segment<'_>> {
    let (src, dst, kind, payload) = if packet[0] >> 4 == 4 {
        let (header, payload) = ipv4::Header::parse(packet).expect("an IPv4 packet of ours");
        (header.src, header.dst, header.protocol, payload)
    } else {
        let (header, payload) = ipv6::Header::parse(packet).expect("an IPv6 packet of ours");
        (header.src, header.dst, header.next_header, payload)
    };
    if kind != protocol::TCP {
        return None;
    }
    assert!(verify_transport(&src, &dst, kind, payload), "the checksum of a segment of ours is wrong");
    Some(Segment::parse(payload).expect("a segment of ours"))
}
