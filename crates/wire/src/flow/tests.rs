use super::*;
use proptest::prelude::*;
use std::collections::HashSet;
use std::{boxed::Box, format, string::ToString, vec::Vec};

/// The secret key in Microsoft's "Verifying the RSS hash calculation".
const MICROSOFT: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b,
    0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac,
    0x01, 0xfa,
];

static TABLE: ToeplitzTable = ToeplitzTable::new(&MICROSOFT);

fn received(src: &str, sport: u16, dst: &str, dport: u16) -> FlowKey {
    FlowKey {
        local: dst.parse::<IpAddr>().unwrap().into(),
        remote: src.parse::<IpAddr>().unwrap().into(),
        local_port: dport,
        remote_port: sport,
    }
}

#[test]
fn toeplitz_agrees_with_the_vectors_of_microsoft() {
    let vectors = [
        ("66.9.149.187", 2794, "161.142.100.80", 1766, 0x51cc_c178),
        ("199.92.111.2", 14230, "65.69.140.83", 4739, 0xc626_b0ea),
        ("24.19.198.95", 12898, "12.22.207.184", 38024, 0x5c2b_394a),
        ("38.27.205.30", 48228, "209.142.163.6", 2217, 0xafc7_327f),
        ("153.39.163.191", 44251, "202.188.127.2", 1303, 0x10e8_28a2),
        ("3ffe:2501:200:1fff::7", 2794, "3ffe:2501:200:3::1", 1766, 0x4020_7d3d),
        ("3ffe:501:8::260:97ff:fe40:efab", 14230, "ff02::1", 4739, 0xdde5_1bbf),
        ("3ffe:1900:4545:3:200:f8ff:fe21:67cf", 44251, "fe80::200:f8ff:fe21:67cf", 38024, 0x02d1_feef),
    ];
    for (src, sport, dst, dport, hash) in vectors {
        let flow = received(src, sport, dst, dport);
        assert_eq!(toeplitz(&MICROSOFT, &flow), hash, "{flow:?}");
        assert_eq!(TABLE.low_byte(&flow), hash as u8, "{flow:?}");
    }
}

#[test]
fn addresses_print_like_those_of_std() {
    for text in ["10.0.0.1", "::1", "fe80::1", "255.255.255.255", "2001:db8::7"] {
        let ip: IpAddr = text.parse().unwrap();
        assert_eq!(Address::from(ip).to_string(), text);
        assert_eq!(format!("{:?}", Address::from(ip)), format!("{ip:?}"));
    }
    let flow = received("10.0.0.2", 4000, "10.0.0.1", 80);
    assert_eq!(format!("{flow:?}"), "10.0.0.1:80 ↔ 10.0.0.2:4000");
}

#[test]
fn the_default_is_the_unspecified_ipv6_address() {
    assert_eq!(Address::default(), Address::UNSPECIFIED_V6);
    assert!(!Address::default().is_v4());
    assert!(Address::UNSPECIFIED_V4.is_v4() && Address::UNSPECIFIED_V4.is_unspecified());
}

/// Addresses at and beside every border that a predicate has, and random ones.
fn any_ip() -> impl Strategy<Value = IpAddr> {
    let v4 = prop_oneof![
        any::<[u8; 4]>(),
        any::<u8>().prop_map(|b| [169, 254, b, 1]),
        (prop::sample::select(&[0u32, u32::MAX, 0x7f00_0001, 0xa9fe_0001][..]), 0..32u32)
            .prop_map(|(special, bit): (u32, u32)| (special ^ 1 << bit).to_be_bytes()),
        prop::sample::select(&[[0; 4], [255; 4], [127, 0, 0, 1], [224, 0, 0, 1], [239, 9, 9, 9], [240, 0, 0, 1]][..]),
    ];
    let v6 = prop_oneof![
        any::<[u8; 16]>(),
        (any::<u8>(), prop::sample::select(&[0u8, 0xfe, 0xff][..]), any::<u8>()).prop_map(|(a, first, b)| {
            let mut o = [0; 16];
            (o[0], o[1], o[15]) = (first, a, b & 1);
            o
        }),
        // One bit away from those that a predicate means.
        (prop::sample::select(&[0u128, 1, 0xffff << 32, u128::MAX][..]), 0..128u32)
            .prop_map(|(special, bit): (u128, u32)| (special ^ 1 << bit).to_be_bytes()),
    ];
    prop_oneof![v4.prop_map(|o| IpAddr::V4(o.into())), v6.prop_map(|o| IpAddr::V6(o.into())),]
}

fn any_flow() -> impl Strategy<Value = FlowKey> {
    let ports = any::<(u16, u16)>();
    prop_oneof![
        (any::<([u8; 4], [u8; 4])>(), ports).prop_map(|((a, b), (p, q))| (
            Address::from_v4(a),
            Address::from_v4(b),
            p,
            q
        )),
        (any::<([u8; 16], [u8; 16])>(), ports).prop_map(|((a, b), (p, q))| (
            Address::from_v6(a),
            Address::from_v6(b),
            p,
            q
        )),
    ]
    .prop_map(|(local, remote, local_port, remote_port)| FlowKey { local, remote, local_port, remote_port })
}

proptest! {
    #[test]
    fn addresses_agree_with_std(ip in any_ip()) {
        let address = Address::from(ip);
        prop_assume!(!matches!(ip, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some()));
        prop_assert_eq!(address.to_ip(), ip);
        prop_assert_eq!(IpAddr::from(address), ip);
        prop_assert_eq!(address.is_v4(), ip.is_ipv4());
        prop_assert_eq!(address.is_unspecified(), ip.is_unspecified());
        prop_assert_eq!(address.is_multicast(), ip.is_multicast());
        prop_assert_eq!(address.is_loopback(), ip.is_loopback());
        prop_assert_eq!(address.is_broadcast(), ip == IpAddr::V4(Ipv4Addr::BROADCAST));
        prop_assert_eq!(address.is_link_local(), match ip {
            IpAddr::V4(v4) => v4.is_link_local(),
            IpAddr::V6(v6) => v6.is_unicast_link_local(),
        });
        let v6 = match ip { IpAddr::V4(v4) => v4.to_ipv6_mapped(), IpAddr::V6(v6) => v6 };
        prop_assert_eq!(address.octets(), v6.octets());
    }

    #[test]
    fn the_table_is_the_hash(key in any::<[u8; 32]>(), end in any::<[u8; 8]>(), flow in any_flow()) {
        let mut whole = [0; 40];
        whole[..32].copy_from_slice(&key);
        whole[32..].copy_from_slice(&end);
        let table = Box::new(ToeplitzTable::new(&whole));
        prop_assert_eq!(table.low_byte(&flow), toeplitz(&whole, &flow) as u8);
    }

    #[test]
    fn hash_words_tell_flows_apart(a in any_flow(), b in any_flow()) {
        let words = |flow: &FlowKey| { let (words, n) = flow.hash_words(); words[..n].to_vec() };
        prop_assert_eq!(a == b, words(&a) == words(&b));
        prop_assert_eq!(a.hash_words().1, if a.is_v4() { 2 } else { 5 });
        prop_assert_eq!(a.reversed().reversed(), a);
        if a != a.reversed() {
            prop_assert_ne!(words(&a), words(&a.reversed()));
        }
    }
}

#[test]
fn hash_words_use_every_bit_of_the_key() {
    let flow = received("2001:db8::1", 1, "2001:db8::2", 2);
    let mut seen = HashSet::new();
    for bit in 0..256 {
        let mut bytes = [flow.local.octets(), flow.remote.octets()].concat();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let key = FlowKey {
            local: Address::from_v6(bytes[..16].try_into().unwrap()),
            remote: Address::from_v6(bytes[16..].try_into().unwrap()),
            ..flow
        };
        assert!(seen.insert(key.hash_words()));
    }
}

#[test]
fn who_differs_in_one_bit_is_another_flow_and_hashes_so() {
    let secret = HashKey::new(1, 2);
    for flow in [received("2001:db8::1", 1, "2001:db8::2", 2), received("10.0.0.1", 1, "10.0.0.2", 2)] {
        let (local, remote) = (flow.local.octets(), flow.remote.octets());
        let flipped = |octets, bit: usize| Address::from_v6((u128::from_be_bytes(octets) ^ (1 << bit)).to_be_bytes());
        let mut others = Vec::new();
        // In IPv4 the upper bits are no part of an address.
        for bit in 0..if flow.is_v4() { 32 } else { 128 } {
            others.push(FlowKey { local: flipped(local, bit), ..flow });
            others.push(FlowKey { remote: flipped(remote, bit), ..flow });
        }
        for bit in 0..16 {
            others.push(FlowKey { local_port: flow.local_port ^ 1 << bit, ..flow });
            others.push(FlowKey { remote_port: flow.remote_port ^ 1 << bit, ..flow });
        }
        let mut hashes = HashSet::from([flow.hash(&secret)]);
        for other in others {
            assert!(other != flow && other.is_v4() == flow.is_v4(), "{other:?}");
            assert!(hashes.insert(other.hash(&secret)) && other.mix() != flow.mix(), "{other:?}");
        }
    }
}
