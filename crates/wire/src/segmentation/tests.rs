use super::*;
use crate::checksum::verify_transport;
use crate::flow::Address;
use crate::tcp::Segment;
use crate::tcp::tests::any_header;
use proptest::prelude::*;
use std::{vec, vec::Vec};

/// A super-packet whose checksums are right.
fn super_packet(is_v4: bool, header: &tcp::Header, payload: &[u8]) -> Vec<u8> {
    let (src, dst) = if is_v4 {
        (Address::from_v4([10, 0, 0, 1]), Address::from_v4([10, 0, 0, 2]))
    } else {
        (Address::from_v6([0x20; 16]), Address::from_v6([0x21; 16]))
    };
    let body_len = header.len() + payload.len();
    let mut body = vec![0; body_len];
    header.emit(&mut body);
    body[header.len()..].copy_from_slice(payload);
    tcp::fill_checksum(&mut body, pseudo_header(&src, &dst, 6, body_len as u32));
    let mut packet = vec![0; if is_v4 { 20 } else { 40 }];
    let payload_len = body_len as u16;
    if is_v4 {
        let ip = ipv4::Header {
            dscp: 3,
            ecn: 1,
            id: 0xfffe,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            ttl: 64,
            protocol: 6,
            src,
            dst,
            payload_len,
        };
        ip.emit(&mut packet);
    } else {
        let ip = ipv6::Header { dscp: 3, ecn: 1, flow_label: 77, payload_len, next_header: 6, hop_limit: 64, src, dst };
        ip.emit(&mut packet);
    }
    packet.extend(body);
    packet
}

fn cut(packet: &[u8], mss: usize) -> Vec<Vec<u8>> {
    let mut cut = Cut::new(packet, mss).unwrap();
    let mut segments = Vec::new();
    while let Some(len) = cut.next_len() {
        let mut buf = vec![0xaa; len + 3];
        assert_eq!(cut.write_next(&mut buf), len);
        assert_eq!(buf.split_off(len), [0xaa; 3], "wrote past the segment");
        segments.push(buf);
    }
    assert_eq!(cut.write_next(&mut []), 0);
    segments
}

proptest! {
    #[test]
    fn the_pieces_make_the_whole(is_v4: bool, header in any_header(), payload in prop::collection::vec(any::<u8>(), 0..3000), mss in 1usize..1500) {
        let packet = super_packet(is_v4, &header, &payload);
        let segments = cut(&packet, mss);
        prop_assert_eq!(segments.len(), payload.len().div_ceil(mss).max(1));

        let mut joined: Vec<u8> = Vec::new();
        for (i, bytes) in segments.iter().enumerate() {
            let (src, dst, body) = if is_v4 {
                let view = ipv4::View::new(bytes).unwrap();
                prop_assert_eq!(view.header().id, 0xfffeu16.wrapping_add(i as u16));
                prop_assert!(view.header().dont_fragment && view.header().dscp == 3);
                (view.src(), view.dst(), view.payload())
            } else {
                let view = ipv6::View::new(bytes).unwrap();
                prop_assert_eq!(view.header().flow_label, 77);
                (view.src(), view.dst(), view.payload())
            };
            prop_assert!(verify_transport(&src, &dst, 6, body));
            prop_assert!(etherparse::SlicedPacket::from_ip(bytes).is_ok());
            let segment = Segment::parse(body).unwrap();
            prop_assert!(segment.payload.len() <= mss);
            prop_assert_eq!(segment.seq, header.seq + joined.len() as u32);
            let last = i == segments.len() - 1;
            let mut flags = header.flags;
            if !last {
                flags = flags.without(Flags::FIN | Flags::PSH);
                prop_assert_eq!(segment.payload.len(), mss);
            }
            if i > 0 {
                flags = flags.without(Flags::CWR);
            }
            prop_assert_eq!(segment.to_header(), tcp::Header { seq: segment.seq, flags, ..header });
            joined.extend(segment.payload);
        }
        prop_assert_eq!(joined, payload);
        // What fits is left as it was, its right checksum included.
        if segments.len() == 1 {
            prop_assert_eq!(&segments[0], &packet);
        }
    }

    #[test]
    fn no_bytes_harm_us(mut bytes in prop::collection::vec(any::<u8>(), 1..120), v4: bool, mss in 0usize..5) {
        let ip_len = if v4 { 20 } else { 40 };
        bytes[0] = if v4 { 0x45 } else { 0x60 };
        if bytes.len() > ip_len + 20 {
            let len = bytes.len();
            if v4 {
                bytes[2..4].copy_from_slice(&(len as u16).to_be_bytes());
                bytes[6..8].fill(0);
                bytes[9] = 6;
            } else {
                bytes[4..6].copy_from_slice(&((len - 40) as u16).to_be_bytes());
                bytes[6] = 6;
            }
        }
        if let Ok(mut cut) = Cut::new(&bytes, mss) {
            while let Some(len) = cut.next_len() {
                cut.write_next(&mut vec![0; len]);
            }
        }
    }
}

#[test]
fn what_cannot_be_cut_is_refused() {
    let why = |packet: &[u8]| Cut::new(packet, 1000).unwrap_err();
    assert_eq!(why(&[]), Malformed::new(Layer::Ipv4, Why::Truncated));
    assert_eq!(why(&[0x50]), Malformed::new(Layer::Ipv4, Why::Version));
    let mut packet = [0; 40];
    packet[0] = 0x45;
    packet[3] = 40;
    packet[9] = 17;
    assert_eq!(why(&packet), Malformed::new(Layer::Tcp, Why::Protocol));
    packet[6] = 0x20;
    assert_eq!(why(&packet), Malformed::new(Layer::Ipv4, Why::Fragmented));
}
