use super::*;
use crate::ip::output::{HeaderSpec, emit};
use proptest::prelude::*;

fn packet(src: Address, dst: Address, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let spec = HeaderSpec::new(src, dst, protocol);
    let mut bytes = vec![0; spec.len()];
    emit(&spec, &mut bytes, payload.len());
    bytes.extend_from_slice(payload);
    bytes
}

fn v4(octets: [u8; 4]) -> Address {
    Address::from_v4(octets)
}

fn v6(text: &str) -> Address {
    // Not by way of IpAddr: a mapped address is to stay one on the wire.
    Address::from_v6(text.parse::<std::net::Ipv6Addr>().unwrap().octets())
}

const OURS: [u8; 4] = [192, 0, 2, 1];

#[test]
fn martians_v4() {
    let judge = |src, dst| input(&packet(v4(src), v4(dst), 6, b"x"), false).err();
    for src in [[0, 0, 0, 0], [0, 1, 2, 3], [127, 0, 0, 1], [224, 0, 0, 1], [240, 0, 0, 1], [255; 4]] {
        assert_eq!(judge(src, OURS), Some(Discard::IpMartianSource), "{src:?}");
    }
    for dst in [[0, 0, 0, 0], [127, 0, 0, 1]] {
        assert_eq!(judge(OURS, dst), Some(Discard::IpMartianSource), "{dst:?}");
    }
    for good in [[1, 0, 0, 0], [126, 255, 255, 255], [128, 0, 0, 1], [223, 255, 255, 254]] {
        assert_eq!(judge(good, OURS), None);
        assert_eq!(judge(OURS, good), None);
    }
    for group in [[224, 0, 0, 1], [255; 4]] {
        assert!(input(&packet(v4(OURS), v4(group), 17, b"x"), false).unwrap().is_group_addressed());
    }
}

#[test]
fn martians_v6() {
    let judge = |src, dst, protocol| input(&packet(v6(src), v6(dst), protocol, b"x"), false).err();
    // A mapped address cannot be emitted over IPv6, so its packet is patched together.
    let mapped = |at: usize| {
        let mut bytes = packet(v6("2001:db8::1"), v6("2001:db8::2"), 6, b"x");
        bytes[at..at + 16].copy_from_slice(&v4(OURS).octets());
        input(&bytes, false).err()
    };
    let ours = "2001:db8::1";
    assert_eq!(judge("ff02::1", ours, 6), Some(Discard::IpMartianSource));
    assert_eq!(judge("::1", ours, 6), Some(Discard::IpMartianSource));
    assert_eq!(judge(ours, "::1", 6), Some(Discard::IpMartianSource));
    assert_eq!(judge(ours, "::", 6), Some(Discard::IpMartianSource));
    assert_eq!(mapped(8), Some(Discard::IpMartianSource));
    assert_eq!(mapped(24), Some(Discard::IpMartianSource));
    for protocol in [6, 17, 99] {
        assert_eq!(judge("::", ours, protocol), Some(Discard::IpMartianSource));
    }
    assert_eq!(judge("::", "ff02::1:ff00:1", 58), None);
    assert_eq!(judge("fe80::1", ours, 6), None);
}

#[test]
fn a_wrong_header_checksum_counts_unless_the_device_checked_it() {
    let mut bytes = packet(v4(OURS), v4([192, 0, 2, 2]), 6, b"x");
    bytes[10] ^= 1;
    assert_eq!(input(&bytes, false).err(), Some(Discard::IpChecksum));
    assert!(input(&bytes, true).is_ok());
}

#[test]
fn a_hop_limit_that_ran_out_on_arrival_is_no_reason_to_refuse() {
    let spec = HeaderSpec { hop_limit: 0, ..HeaderSpec::new(v4(OURS), v4([192, 0, 2, 2]), 6) };
    let mut bytes = [0; 20];
    emit(&spec, &mut bytes, 0);
    assert_eq!(input(&bytes, false).unwrap().hop_limit, 0);
}

/// A packet with these options, of which there are a multiple of four bytes.
fn with_options(options: &[u8]) -> Vec<u8> {
    let mut bytes = packet(v4(OURS), v4([192, 0, 2, 2]), 6, &[options, b"data"].concat());
    bytes[0] = 0x45 + (options.len() / 4) as u8;
    bytes[10..12].fill(0);
    let checksum = Sum::of(&bytes[..20 + options.len()]).checksum();
    bytes[10..12].copy_from_slice(&checksum);
    bytes
}

#[test]
fn options_are_skipped() {
    let bytes = with_options(&[1, 1, 1, 0]);
    let packet = input(&bytes, false).unwrap();
    assert_eq!((packet.header.len(), packet.payload), (24, &b"data"[..]));
}

/// It has come to us on its way; that we are not the last is known only from its options.
#[test]
fn a_packet_whose_source_route_is_incomplete_is_for_another_host() {
    let route = |kind, pointer| vec![kind, 7, pointer, 192, 0, 2, 3, 1];
    for kind in [131, 137] {
        for (pointer, discard) in [(4, Some(Discard::IpNotLocal)), (7, Some(Discard::IpNotLocal)), (8, None)] {
            let behind = [&[1, 7, 7, 8, 1, 1, 1, 1][..], &route(kind, pointer)].concat();
            for options in [route(kind, pointer), behind] {
                assert_eq!(input(&with_options(&options), false).err(), discard, "{options:?}");
            }
        }
    }
    // Behind the end of the list, or in what is malformed, there is none.
    for first in [[0; 4], [7, 1, 0, 0], [7, 0, 0, 0], [7, 200, 0, 0]] {
        assert_eq!(input(&with_options(&[&first[..], &route(131, 4)].concat()), false).err(), None, "{first:?}");
    }
}

#[test]
fn extension_headers_are_walked() {
    let judge = |next, payload: &[u8]| {
        let bytes = packet(v6("2001:db8::1"), v6("2001:db8::2"), next, payload);
        input(&bytes, false)
            .map(|packet| (packet.protocol, packet.header.len(), packet.payload.to_vec(), packet.fragment))
    };
    let upper = |header: &[u8]| [header, b"data"].concat();
    // Destination options, one PadN.
    let passed = judge(60, &upper(&[6, 0, 1, 4, 0, 0, 0, 0]));
    assert_eq!(passed, Ok((6, 48, b"data".to_vec(), None)));
    // An atomic fragment is whole.
    assert_eq!(judge(44, &upper(&[17, 0, 0, 0, 1, 2, 3, 4])), Ok((17, 48, b"data".to_vec(), None)));
    let info = FragmentInfo { id: 0x0102_0304, offset: 8, more: true };
    assert_eq!(judge(44, &upper(&[17, 0, 0, 9, 1, 2, 3, 4])), Ok((17, 48, b"data".to_vec(), Some(info))));
    // Routing headers, unknown options, too much of everything.
    assert_eq!(judge(43, &upper(&[6, 0, 0, 0, 0, 0, 0, 0])), Ok((6, 48, b"data".to_vec(), None)));
    assert_eq!(judge(43, &upper(&[6, 0, 0, 1, 0, 0, 0, 0])), Err(Discard::Ipv6RoutingHeader));
    assert_eq!(judge(43, &upper(&[6, 0, 2, 1, 0, 0, 0, 0])), Err(Discard::Ipv6RoutingHeader));
    assert_eq!(judge(60, &upper(&[6, 0, 0x80, 4, 0, 0, 0, 0])), Err(Discard::Ipv6ExtensionHeader));
    let chain: Vec<u8> = core::iter::repeat_n([60, 0, 1, 4, 0, 0, 0, 0], 50).flatten().collect();
    assert_eq!(judge(60, &chain), Err(Discard::Ipv6ExtensionHeader));
    assert_eq!(judge(60, &[6]), Err(Discard::IpMalformed));
}

/// RFC 4443 section 2.4 (e): who is no host is told nothing of what is wrong with his packet.
#[test]
fn only_hosts_are_told_what_their_packet_was_refused_for() {
    let unknown = [&[6, 0, 0x80, 4, 0, 0, 0, 0][..], b"data"].concat();
    let told = |src| refused(&packet(src, v6("2001:db8::2"), 60, &unknown)).is_some();
    assert!(told(v6("2001:db8::1")));
    assert!(![v6("ff02::1"), v6("::1"), v4([192, 0, 2, 1])].into_iter().any(told));
}

/// The short way takes nothing that a close look would refuse, or read otherwise: whatever single byte of the header is another.
#[test]
fn what_is_plain_is_what_a_close_look_finds() {
    let good = packet(v4([192, 0, 2, 2]), v4(OURS), protocol::TCP, &[7; 24]);
    assert!(plain_tcp(&good).is_some());
    for (at, value) in (0..20).flat_map(|at| (0..=255).map(move |value| (at, value))) {
        for (mended, len) in [(true, 44), (false, 44), (true, 43), (true, 60)] {
            let mut bytes = good.clone();
            bytes.resize(len, 0);
            bytes[at] = value;
            if mended && !(10..12).contains(&at) {
                bytes[10..12].fill(0);
                let checksum = Sum::of(&bytes[..20]).checksum();
                bytes[10..12].copy_from_slice(&checksum);
            }
            let Some(plain) = plain_tcp(&bytes) else { continue };
            let Ok(close) = input(&bytes, false) else { panic!("byte {at} is {value}, of {len}: it is no packet") };
            let read = (close.src, close.dst, close.payload, close.protocol, close.fragment);
            assert_eq!(read, (plain.src, plain.dst, plain.tcp, protocol::TCP, None), "byte {at} is {value}, of {len}");
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), version in 0u8..3, verified: bool) {
        if let Some(first) = bytes.first_mut() {
            *first = match version { 0 => 0x45, 1 => 0x60, _ => *first };
        }
        if let Ok(packet) = input(&bytes, verified) {
            prop_assert!(packet.header.len() + packet.payload.len() <= bytes.len());
            prop_assert!(!packet.src.is_multicast() && !packet.src.is_loopback());
        }
    }

    /// Bytes that are all but right: a real chain of headers with a few of them spoilt.
    #[test]
    fn nearly_right_bytes_do_not_panic(next in 0u8..70, payload in prop::collection::vec(0u8..70, 0..120)) {
        let bytes = packet(v6("2001:db8::1"), v6("2001:db8::2"), next, &payload);
        let _ = input(&bytes, false);
    }
}
