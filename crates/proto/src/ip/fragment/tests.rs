use super::*;
use crate::ip::input::input;
use crate::ip::reassembly::{Config, Reassembly};
use crate::time::Instant;
use laneway_wire::flow::Address;
use laneway_wire::keyed_hash::HashKey;
use laneway_wire::protocol;
use proptest::prelude::*;

fn spec(v4: bool) -> HeaderSpec {
    let address = |last| {
        if v4 {
            Address::from_v4([192, 0, 2, last])
        } else {
            Address::from_v6([0x20, 1, 13, 184, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last])
        }
    };
    let spec = HeaderSpec::new(address(1), address(2), protocol::UDP);
    HeaderSpec { dont_fragment: false, dscp_ecn: 0b1010_0010, ..spec }
}

fn cut(v4: bool, payload: &[u8], mtu: usize) -> Vec<Vec<u8>> {
    let mut fragments = Fragments::new(&spec(v4), 0xfeed_4711, payload, mtu).unwrap();
    let mut all = Vec::new();
    while let Some(len) = fragments.next_len() {
        assert!(len <= mtu);
        let mut buf = vec![0; len];
        fragments.write_next(&mut buf);
        all.push(buf);
    }
    all
}

#[test]
fn says_why_not() {
    let whole = HeaderSpec { dont_fragment: true, ..spec(true) };
    assert_eq!(Fragments::new(&whole, 1, &[0; 100], 60).unwrap_err(), Uncuttable::DontFragment);
    assert_eq!(Fragments::new(&spec(true), 1, &[0; 100], 27).unwrap_err(), Uncuttable::MtuTooSmall);
    assert_eq!(Fragments::new(&spec(false), 1, &[0; 100], 0).unwrap_err(), Uncuttable::MtuTooSmall);
    assert_eq!(Fragments::new(&spec(true), 1, &vec![0; 65_516], 1500).unwrap_err(), Uncuttable::TooLong);
}

/// Each says of itself what was to be said of the whole, and is as long as it may be.
#[test]
fn a_fragment_has_the_header_of_the_whole() {
    let payload = [7; 3_000];
    for v4 in [true, false] {
        let spec = HeaderSpec { hop_limit: 7, id: 0x0815, flow_label: 0xabcde, ..spec(v4) };
        let mut fragments = Fragments::new(&spec, 0xfeed_4711, &payload, 1_500).unwrap();
        let mut lens = Vec::new();
        while let Some(len) = fragments.next_len() {
            let mut bytes = vec![0; len];
            fragments.write_next(&mut bytes);
            let packet = input(&bytes, false).unwrap();
            let class = if v4 { bytes[1] } else { bytes[0] << 4 | bytes[1] >> 4 };
            assert_eq!((class, packet.hop_limit), (0b1010_0010, 7));
            let id = packet.fragment.expect("it is one").id;
            assert_eq!(id, if v4 { 0x4711 } else { 0xfeed_4711 }, "or those of two datagrams are taken for one's");
            lens.push(len);
        }
        assert_eq!(lens, if v4 { [1_500, 1_500, 60] } else { [1_496, 1_496, 152] });
    }
}

/// Over IPv6 nobody on the way cuts, so there is nothing to forbid.
#[test]
fn only_over_ipv4_can_it_be_forbidden() {
    let whole = |v4| HeaderSpec { dont_fragment: true, ..spec(v4) };
    assert!(Fragments::new(&whole(false), 1, &[0; 100], 96).is_ok());
    assert_eq!(Fragments::new(&whole(true), 1, &[0; 100], 96).unwrap_err(), Uncuttable::DontFragment);
}

proptest! {
    /// What is cut here is joined there, in any order, and the joined packet is what would have been sent whole.
    #[test]
    fn reassembly_undoes_it(v4: bool, len in 8usize..20_000, mtu in 576usize..3000, seed: u64) {
        let payload: Vec<u8> = (0..len).map(|i| (i as u64 ^ seed) as u8).collect();
        let mut fragments = cut(v4, &payload, mtu);
        prop_assume!(fragments.len() > 1);
        let pivot = seed as usize % fragments.len();
        fragments.rotate_left(pivot);
        if seed & 1 == 1 {
            fragments.reverse();
        }
        let mut reassembly = Reassembly::new(Config::default());
        let last = fragments.len() - 1;
        for (i, fragment) in fragments.iter().enumerate() {
            let packet = input(fragment, false).unwrap();
            let joined = reassembly.on_fragment(&packet, &HashKey::new(1, 2), Instant::ZERO).unwrap();
            prop_assert_eq!(joined.is_some(), i == last);
            if let Some(joined) = joined {
                let packet = input(&joined.packet, false).unwrap();
                prop_assert!(packet.fragment.is_none());
                prop_assert_eq!(packet.payload, &payload[..]);
                prop_assert_eq!((packet.src, packet.dst, packet.protocol), (spec(v4).src, spec(v4).dst, protocol::UDP));
                prop_assert_eq!(packet.ecn, 2);
            }
        }
        prop_assert!(reassembly.is_empty());
        prop_assert_eq!(reassembly.bytes(), 0);
    }
}

/// The longest payload that the length field can say, and no byte more.
#[test]
fn the_longest_is_joined_again() {
    for (v4, longest) in [(true, 65_535 - 20), (false, 65_535)] {
        let payload = vec![7; longest + 1];
        assert_eq!(Fragments::new(&spec(v4), 1, &payload, 1_500).unwrap_err(), Uncuttable::TooLong);
        let mut reassembly = Reassembly::new(Config::default());
        let fragments = cut(v4, &payload[1..], 1_500);
        let joined: Vec<_> = fragments
            .iter()
            .filter_map(|fragment| {
                let packet = input(fragment, false).unwrap();
                reassembly.on_fragment(&packet, &HashKey::new(1, 2), Instant::ZERO).unwrap()
            })
            .collect();
        assert_eq!(joined.len(), 1);
        assert_eq!(input(&joined[0].packet, false).unwrap().payload, &payload[1..]);
    }
}
