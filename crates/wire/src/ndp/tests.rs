use super::*;
use proptest::prelude::*;
use std::{vec, vec::Vec};

fn any_message() -> impl Strategy<Value = Message> {
    let link = || prop::option::of(any::<[u8; 6]>().prop_map(Mac));
    let target = || {
        any::<[u8; 16]>().prop_map(|mut o| {
            o[0] = o[0] & 0x7f | 0x20; // not multicast, and none of those that begin with zeroes
            Address::from_v6(o)
        })
    };
    prop_oneof![
        link().prop_map(|source_link| Message::RouterSolicit { source_link }),
        (any::<(u8, bool, bool, u16, u32, u32)>(), link(), any::<Option<u32>>()).prop_map(
            |((hop_limit, managed, other, lifetime_s, reachable_ms, retransmit_ms), source_link, mtu)| {
                Message::RouterAdvert(RouterAdvert {
                    hop_limit,
                    managed,
                    other,
                    lifetime_s,
                    reachable_ms,
                    retransmit_ms,
                    source_link,
                    mtu,
                })
            }
        ),
        (target(), link()).prop_map(|(target, source_link)| Message::NeighbourSolicit { target, source_link }),
        (target(), any::<(bool, bool, bool)>(), link()).prop_map(
            |(target, (router, solicited, override_entry), target_link)| Message::NeighbourAdvert {
                target,
                router,
                solicited,
                override_entry,
                target_link,
            }
        ),
    ]
}

proptest! {
    #[test]
    fn parse_is_the_inverse_of_emit(message in any_message()) {
        let mut bytes = vec![0xaa; message.len()];
        message.emit(&mut bytes);
        prop_assert_eq!(Message::parse(&bytes), Ok(message));
        prop_assert_eq!(&bytes[1..4], &[0, 0, 0]);
        prop_assert_eq!(reserved(&message, &bytes), vec![0; 4]);
        // What is reserved is not looked at.
        let mut filled = bytes.clone();
        match message {
            Message::RouterAdvert(_) => filled[5] |= 0x3f,
            Message::NeighbourAdvert { .. } => filled[4] |= 0x1f,
            _ => filled[4..8].fill(0xff),
        }
        prop_assert_eq!(Message::parse(&filled), Ok(message));
        // An option that we do not know changes nothing.
        bytes.extend([14, 1, 0, 0, 0, 0, 0, 0]);
        prop_assert_eq!(Message::parse(&bytes), Ok(message));

        use etherparse::{Icmpv6Type as T, Icmpv6Slice};
        match (message, Icmpv6Slice::from_slice(&bytes).unwrap().icmp_type()) {
            (Message::RouterSolicit { .. }, T::RouterSolicitation) | (Message::NeighbourSolicit { .. }, T::NeighborSolicitation) => {}
            (Message::RouterAdvert(ours), T::RouterAdvertisement(oracle)) => {
                prop_assert_eq!((ours.hop_limit, ours.managed, ours.other, ours.lifetime_s),
                    (oracle.cur_hop_limit, oracle.managed_address_config, oracle.other_config, oracle.router_lifetime));
            }
            (Message::NeighbourAdvert { router, solicited, override_entry, .. }, T::NeighborAdvertisement(oracle)) => {
                prop_assert_eq!((router, solicited, override_entry), (oracle.router, oracle.solicited, oracle.r#override));
            }
            (_, oracle) => prop_assert!(false, "the oracle sees {:?}", oracle),
        }
    }

    #[test]
    fn no_bytes_harm_us(kind in 132u8..138, bytes: Vec<u8>) {
        let _ = Message::parse(&[&[kind, 0, 0, 0][..], &bytes].concat());
    }
}

/// What has no meaning in these bytes of a message: four of them, fewer padded with zeroes.
fn reserved(message: &Message, bytes: &[u8]) -> Vec<u8> {
    match message {
        Message::RouterAdvert(advert) => {
            let at = 16 + if advert.source_link.is_some() { 8 } else { 0 };
            let of_mtu = if advert.mtu.is_some() { [bytes[at + 2], bytes[at + 3]] } else { [0; 2] };
            vec![bytes[5] & 0x3f, of_mtu[0], of_mtu[1], 0]
        }
        Message::NeighbourAdvert { .. } => vec![bytes[4] & 0x1f, bytes[5], bytes[6], bytes[7]],
        _ => bytes[4..8].to_vec(),
    }
}

fn why(bytes: &[u8]) -> Why {
    let malformed = Message::parse(bytes).unwrap_err();
    assert_eq!(malformed.layer, Layer::Ndp);
    malformed.why
}

#[test]
fn what_we_refuse_has_a_name() {
    let mut solicit = [0; 32];
    Message::NeighbourSolicit { target: Address::from_v6([0x20; 16]), source_link: Some(Mac([2; 6])) }
        .emit(&mut solicit);
    assert!(Message::parse(&solicit).is_ok());
    let with = |at: usize, value: u8| {
        let mut bytes = solicit;
        bytes[at] = value;
        why(&bytes)
    };
    assert_eq!(with(0, 128), Why::Operation);
    assert_eq!(with(1, 1), Why::Field);
    assert_eq!(with(8, 0xff), Why::Field);
    assert_eq!(with(25, 0), Why::OptionLength);
    assert_eq!(with(25, 2), Why::OptionLength);
    assert_eq!(why(&solicit[..23]), Why::Truncated);
    assert_eq!(why(&solicit[..25]), Why::OptionLength);
    assert_eq!(why(&solicit[..7]), Why::Truncated);
    let many = [&solicit[..24], &[14, 1, 0, 0, 0, 0, 0, 0].repeat(33)].concat();
    assert_eq!(why(&many), Why::TooManyOptions);
}

/// The contents of an option that has no place in a message are ignored, and its length is a part of them (RFC 4861 sections 6.1 and 7.1).
#[test]
fn an_option_of_another_message_is_ignored_however_long() {
    let (target, link) = (Address::from_v6([0x20; 16]), Some(Mac([2; 6])));
    let solicit = Message::NeighbourSolicit { target, source_link: link };
    let advert =
        Message::NeighbourAdvert { target, router: false, solicited: true, override_entry: true, target_link: link };
    let router = Message::RouterAdvert(RouterAdvert { source_link: link, mtu: Some(1_280), ..RouterAdvert::default() });
    let used: [(_, &[u8]); 4] = [
        (Message::RouterSolicit { source_link: link }, &[SOURCE_LINK]),
        (router, &[SOURCE_LINK, MTU]),
        (solicit, &[SOURCE_LINK]),
        (advert, &[TARGET_LINK]),
    ];
    for (message, used) in used {
        for kind in [SOURCE_LINK, TARGET_LINK, MTU] {
            let mut bytes = vec![0; message.len()];
            message.emit(&mut bytes);
            bytes.extend([[kind, 2, 0, 0, 0, 0, 0, 0], [0; 8]].concat());
            let expected = if used.contains(&kind) { Err(malformed(Why::OptionLength)) } else { Ok(message) };
            assert_eq!(Message::parse(&bytes), expected, "{message:?} with {kind}");
        }
    }
}

/// What would be taken for an address of the other family, and what no neighbour can have.
#[test]
fn a_target_that_cannot_be_a_neighbour_is_refused() {
    let mapped = Address::from_v4([192, 0, 2, 2]);
    for target in [mapped, Address::UNSPECIFIED_V4, Address::UNSPECIFIED_V6, core::net::Ipv6Addr::LOCALHOST.into()] {
        let solicit = Message::NeighbourSolicit { target, source_link: None };
        let link = Some(Mac([2; 6]));
        let advert = Message::NeighbourAdvert {
            target,
            router: false,
            solicited: true,
            override_entry: true,
            target_link: link,
        };
        for message in [solicit, advert] {
            let mut bytes = vec![0; message.len()];
            message.emit(&mut bytes);
            assert_eq!(why(&bytes), Why::Field, "{message:?}");
        }
    }
}
