use super::*;
use proptest::prelude::*;
use std::{vec, vec::Vec};

fn any_header(payload_len: u16) -> impl Strategy<Value = Header> {
    (any::<([u8; 16], [u8; 16], u8, u8)>(), (0u8..64, 0u8..4, 0u32..1 << 20)).prop_map(
        move |((src, dst, next_header, hop_limit), (dscp, ecn, flow_label))| Header {
            dscp,
            ecn,
            flow_label,
            payload_len,
            next_header,
            hop_limit,
            src: Address::from_v6(src),
            dst: Address::from_v6(dst),
        },
    )
}

fn any_packet() -> impl Strategy<Value = (Header, Vec<u8>)> {
    prop::collection::vec(any::<u8>(), 0..100)
        .prop_flat_map(|payload| (any_header(payload.len() as u16), Just(payload)))
}

proptest! {
    #[test]
    fn parse_is_the_inverse_of_emit((header, payload) in any_packet(), padding: Vec<u8>) {
        let mut bytes = vec![0xaa; HEADER_LEN];
        header.emit(&mut bytes);
        bytes.extend(&payload);
        bytes.extend(&padding);
        prop_assert_eq!(Header::parse(&bytes), Ok((header, &payload[..])));
        let view = View::new(&bytes).unwrap();
        prop_assert_eq!((view.next_header(), view.hop_limit()), (header.next_header, header.hop_limit));

        let (oracle, _) = etherparse::Ipv6Header::from_slice(&bytes).unwrap();
        prop_assert_eq!((oracle.source, oracle.destination), (header.src.octets(), header.dst.octets()));
        prop_assert_eq!((oracle.dscp().value(), oracle.ecn().value()), (header.dscp, header.ecn));
        prop_assert_eq!(oracle.flow_label.value(), header.flow_label);
        prop_assert_eq!((oracle.payload_length, oracle.next_header.0, oracle.hop_limit), (header.payload_len, header.next_header, header.hop_limit));
    }

    #[test]
    fn no_walk_harms_us(next_header in prop::sample::select(&[0u8, 43, 44, 60][..]), bytes in prop::collection::vec(prop::sample::select(&[0u8, 1, 2, 4, 6, 43, 44, 60, 0xc2][..]), 0..200)) {
        if let Ok(upper) = walk(next_header, &bytes) {
            prop_assert!(upper.offset <= bytes.len());
        }
    }

    #[test]
    fn a_fragment_header_is_read_as_written(offset in 0u32..0x2000, more: bool, id: u32, next: u8) {
        let fragment = Fragment { offset: offset * 8, more, id };
        prop_assume!(!fragment.is_atomic());
        let mut bytes = [0xaa; FRAGMENT_HEADER_LEN];
        fragment.emit(next, &mut bytes);
        prop_assert_eq!((bytes[1], bytes[3] & 6), (0, 0), "reserved");
        prop_assert_eq!(walk(44, &bytes), Ok(Upper { protocol: next, offset: 8, fragment: Some(fragment) }));
        let (oracle, _) = etherparse::Ipv6FragmentHeader::from_slice(&bytes).unwrap();
        prop_assert_eq!((u32::from(oracle.fragment_offset.value()) * 8, oracle.more_fragments, oracle.identification, oracle.next_header.0), (fragment.offset, more, id, next));
    }
}

fn why(result: Result<Upper, Malformed>) -> Why {
    let malformed = result.unwrap_err();
    assert_eq!(malformed.layer, Layer::Ipv6);
    malformed.why
}

/// An options header of eight bytes before `next` with six bytes of options.
fn options(next: u8, options: [u8; 6]) -> Vec<u8> {
    [&[next, 0][..], &options].concat()
}

const PADDED: [u8; 6] = [1, 4, 0, 0, 0, 0];

#[test]
fn a_plain_packet_has_nothing_to_walk() {
    assert_eq!(walk(6, b"tcp"), Ok(Upper { protocol: 6, offset: 0, fragment: None }));
    assert_eq!(walk(59, b""), Ok(Upper { protocol: 59, offset: 0, fragment: None }));
}

#[test]
fn the_recommended_order_is_walked_to_its_end() {
    let bytes = [
        options(60, PADDED),                // hop-by-hop
        options(43, [0, 0, 0, 1, 1, 0]),    // destination options
        vec![60, 0, 2, 0, 0, 0, 0, 0],      // routing, used up
        options(17, [0x1e, 1, 9, 1, 1, 0]), // destination options, one unknown that may be skipped
        b"udp".to_vec(),
    ]
    .concat();
    assert_eq!(walk(0, &bytes), Ok(Upper { protocol: 17, offset: 32, fragment: None }));
}

#[test]
fn the_piece_of_a_fragment_is_not_looked_into() {
    let bytes = [options(44, PADDED), vec![60, 0, 0, 1, 0, 0, 0, 7], vec![0xff; 3]].concat();
    let fragment = Some(Fragment { offset: 0, more: true, id: 7 });
    assert_eq!(walk(0, &bytes), Ok(Upper { protocol: 60, offset: 16, fragment }));
}

#[test]
fn an_atomic_fragment_is_walked_on() {
    let atomic = |next| vec![next, 0, 0, 0, 0, 0, 0, 7];
    let bytes = [atomic(60), options(6, PADDED)].concat();
    let fragment = Some(Fragment { offset: 0, more: false, id: 7 });
    assert_eq!(walk(44, &bytes), Ok(Upper { protocol: 6, offset: 16, fragment }));
    assert_eq!(why(walk(44, &[atomic(44), atomic(6)].concat())), Why::ExtensionOrder);
    assert_eq!(why(walk(44, &[0, 0, 0, 1, 0, 0, 0, 7])), Why::ExtensionOrder, "nor hop-by-hop options");
    // The last fragment of several is none.
    let bytes = [vec![60, 0, 0, 8, 0, 0, 0, 7], options(6, PADDED)].concat();
    let fragment = Some(Fragment { offset: 8, more: false, id: 7 });
    assert_eq!(walk(44, &bytes), Ok(Upper { protocol: 60, offset: 8, fragment }));
}

#[test]
fn what_we_refuse_has_a_name() {
    assert_eq!(why(walk(43, &[6, 0, 0, 1, 0, 0, 0, 0])), Why::RoutingType0);
    assert_eq!(why(walk(43, &[6, 0, 4, 1, 0, 0, 0, 0])), Why::RoutingHeader);
    assert_eq!(why(walk(0, &options(6, [0xc2, 4, 0, 1, 0, 0]))), Why::OptionReportUnicast);
    assert_eq!(why(walk(0, &[])), Why::Jumbogram);
    assert_eq!(why(walk(60, &[options(0, PADDED), options(6, PADDED)].concat())), Why::ExtensionOrder);
    assert_eq!(why(walk(60, &options(6, [0x41, 0, 1, 2, 0, 0]))), Why::OptionDiscard);
    assert_eq!(why(walk(60, &options(6, [0x81, 0, 1, 2, 0, 0]))), Why::OptionReport);
    assert_eq!(why(walk(60, &options(6, [0xc1, 0, 1, 2, 0, 0]))), Why::OptionReportUnicast);
    assert_eq!(why(walk(60, &options(6, [1, 5, 0, 0, 0, 0]))), Why::OptionLength);
    assert_eq!(why(walk(60, &options(6, [1, 3, 0, 0, 0, 9]))), Why::OptionLength);
    assert_eq!(why(walk(60, &[6])), Why::Truncated);
    assert_eq!(why(walk(60, &[6, 1, 1, 4, 0, 0, 0, 0])), Why::Truncated);
    assert_eq!(why(walk(44, &[6, 0, 0, 0, 0, 0, 0])), Why::Truncated);
    let mut padding = vec![6, 3];
    padding.extend([0; 30]);
    assert_eq!(why(walk(60, &padding)), Why::TooManyOptions);
}

/// Counted from the beginning of the fixed header, as ICMP counts.
#[test]
fn what_we_refuse_has_a_place() {
    let behind = |first: Vec<u8>, next: &[u8]| [&first, next].concat();
    for (next, bytes, at) in [
        (43, vec![6, 0, 4, 1, 0, 0, 0, 0], 42),
        (60, behind(options(43, PADDED), &[6, 0, 0, 1, 0, 0, 0, 0]), 50),
        (60, options(6, [0, 0x81, 0, 0, 0, 0]), 43),
        (0, behind(options(60, PADDED), &options(6, [1, 1, 0, 0xc1, 0, 0])), 53),
        // The field that names a header which may not stand there.
        (60, behind(options(0, PADDED), &options(6, PADDED)), 40),
        (
            43,
            behind(vec![44, 0, 0, 0, 0, 0, 0, 0], &[[44, 0, 0, 0, 0, 0, 0, 1], [44, 0, 0, 0, 0, 0, 0, 1]].concat()),
            48,
        ),
    ] {
        assert_eq!(refused(next, &bytes).map(|(_, at)| at), Some(at), "{next}, {bytes:?}");
    }
    assert_eq!(refused(60, &options(6, PADDED)), None);
    assert_eq!(refused(6, b"tcp"), None);
}

#[test]
fn the_upper_protocol_is_found_behind_what_we_refuse() {
    let unknown = options(58, [0x81, 0, 1, 2, 0, 0]);
    assert_eq!(skip(60, &unknown), Some((58, 8)));
    assert_eq!(skip(43, &[[44, 0, 0, 9, 0, 0, 0, 0], [58, 0, 0, 1, 0, 0, 0, 1]].concat()), Some((58, 16)));
    assert_eq!(skip(44, &[58, 0, 0, 9, 0, 0, 0, 1]), None, "a later fragment has nothing of it");
    assert_eq!(skip(58, b""), Some((58, 0)));
    assert_eq!(skip(60, &[58]), None);
    assert_eq!(skip(60, &[60, 0, 1, 4, 0, 0, 0, 0].repeat(9)), None);
    // As far as the walk goes.
    let chain = |n: usize| [options(60, PADDED).repeat(n - 1), options(6, PADDED)].concat();
    assert_eq!((skip(60, &chain(8)), skip(60, &chain(9))), (Some((6, 64)), None));
}

/// Whatever its type: also of type 0, which is no more than a type that nobody knows.
#[test]
fn a_routing_header_that_is_used_up_is_passed() {
    for kind in [0, 2, 4, 253] {
        let upper = Upper { protocol: 6, offset: 8, fragment: None };
        assert_eq!(walk(43, &[6, 0, kind, 0, 0, 0, 0, 0]), Ok(upper), "type {kind}");
    }
}

#[test]
fn the_walk_is_bounded() {
    let chain = |n: usize| [options(60, PADDED).repeat(n - 1), options(6, PADDED)].concat();
    assert_eq!(walk(60, &chain(8)), Ok(Upper { protocol: 6, offset: 64, fragment: None }));
    assert_eq!(why(walk(60, &chain(9))), Why::TooManyExtensions);
}

#[test]
fn lengths_and_the_version_are_checked() {
    let mut packet = [0; 44];
    packet[0] = 0x60;
    packet[5] = 4;
    assert_eq!(View::new(&packet).unwrap().payload().len(), 4);
    assert_eq!(View::new(&packet[..39]).unwrap_err().why, Why::Truncated);
    assert_eq!(View::new(&packet[..43]).unwrap_err().why, Why::TotalLength);
    packet[0] = 0x45;
    assert_eq!(View::new(&packet).unwrap_err().why, Why::Version);
}
