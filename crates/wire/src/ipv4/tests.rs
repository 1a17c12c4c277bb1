use super::*;
use proptest::prelude::*;
use std::{vec, vec::Vec};

pub(crate) fn any_header(payload_len: u16) -> impl Strategy<Value = Header> {
    (any::<([u8; 4], [u8; 4], u16, bool, bool)>(), (0u8..64, 0u8..4, any::<u8>(), any::<u8>(), 0u16..0x2000)).prop_map(
        move |((src, dst, id, dont_fragment, more_fragments), (dscp, ecn, ttl, protocol, offset))| Header {
            dscp,
            ecn,
            id,
            dont_fragment,
            more_fragments,
            fragment_offset: offset * 8,
            ttl,
            protocol,
            src: Address::from_v4(src),
            dst: Address::from_v4(dst),
            payload_len,
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
        let whole = bytes.len();
        bytes.extend(&padding);
        prop_assert_eq!(Header::parse(&bytes), Ok((header, &payload[..])));
        let view = View::new(&bytes).unwrap();
        prop_assert_eq!((view.src(), view.dst(), view.protocol()), (header.src, header.dst, header.protocol));
        prop_assert_eq!((view.ttl(), view.ecn()), (header.ttl, header.ecn));
        prop_assert_eq!(view.is_fragment(), header.more_fragments || header.fragment_offset > 0);
        prop_assert_eq!((view.header_bytes(), view.options()), (&bytes[..20], &[][..]));

        let (oracle, _) = etherparse::Ipv4Header::from_slice(&bytes).unwrap();
        prop_assert_eq!(oracle.calc_header_checksum(), oracle.header_checksum);
        prop_assert_eq!(usize::from(oracle.total_len), whole);
        prop_assert_eq!((oracle.source, oracle.destination), (header.src.octets_v4(), header.dst.octets_v4()));
        prop_assert_eq!((oracle.dscp.value(), oracle.ecn.value()), (header.dscp, header.ecn));
        prop_assert_eq!((oracle.identification, oracle.time_to_live, oracle.protocol.0), (header.id, header.ttl, header.protocol));
        prop_assert_eq!((oracle.dont_fragment, oracle.more_fragments), (header.dont_fragment, header.more_fragments));
        prop_assert_eq!(oracle.fragment_offset.value() * 8, header.fragment_offset);
    }

    #[test]
    fn options_are_passed_over((header, payload) in any_packet(), words in 1usize..11) {
        let mut oracle = etherparse::Ipv4Header::new(
            payload.len() as u16, header.ttl, etherparse::IpNumber(header.protocol),
            header.src.octets_v4(), header.dst.octets_v4(),
        ).unwrap();
        oracle.options = (&[1u8; 40][..words * 4]).try_into().unwrap();
        oracle.set_payload_len(payload.len()).unwrap();
        oracle.header_checksum = oracle.calc_header_checksum();
        let mut bytes = oracle.to_bytes().to_vec();
        bytes.extend(&payload);
        let view = View::new(&bytes).unwrap();
        prop_assert_eq!(view.options(), &[1u8; 40][..words * 4]);
        prop_assert_eq!(view.payload(), &payload[..]);
        let mut verified = bytes.clone();
        verified[10] ^= 0x10;
        prop_assert!(View::new_checksum_verified(&verified).is_ok(), "the device has looked at it");
        // Nor may a packet end among its options.
        verified[2..4].copy_from_slice(&(16 + words as u16 * 4).to_be_bytes());
        prop_assert_eq!(View::new_checksum_verified(&verified).unwrap_err().why, Why::TotalLength);
        bytes[30 % (20 + words * 4)] ^= 0x10;
        prop_assert!(View::new(&bytes).is_err());
    }

    #[test]
    fn one_wrong_bit_is_seen((header, payload) in any_packet(), bit in 0usize..160) {
        let mut bytes = vec![0; HEADER_LEN];
        header.emit(&mut bytes);
        bytes.extend(payload);
        bytes[bit / 8] ^= 0x80 >> (bit % 8);
        prop_assert!(View::new(&bytes).is_err());
    }

    #[test]
    fn no_bytes_harm_us(first in 0x40u8..0x50, mut bytes in prop::collection::vec(any::<u8>(), 1..80)) {
        bytes[0] = first;
        if let Ok(view) = View::new_checksum_verified(&bytes) {
            prop_assert_eq!(view.header_bytes().len() + view.payload().len(), usize::from(u16::from_be_bytes([bytes[2], bytes[3]])));
        }
    }
}

#[test]
fn each_wrong_field_has_its_name() {
    let mut packet = [0; 24];
    Header {
        dscp: 0,
        ecn: 0,
        id: 0,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        ttl: 64,
        protocol: 6,
        src: Address::from_v4([10, 0, 0, 1]),
        dst: Address::from_v4([10, 0, 0, 2]),
        payload_len: 4,
    }
    .emit(&mut packet);
    assert!(View::new(&packet).is_ok());
    let why = |at: usize, value: u8| {
        let mut bytes = packet;
        bytes[at] = value;
        View::new(&bytes).unwrap_err().why
    };
    assert_eq!(why(0, 0x55), Why::Version);
    assert_eq!(why(0, 0x44), Why::HeaderLength);
    assert_eq!(why(0, 0x47), Why::HeaderLength);
    assert_eq!(why(3, 19), Why::TotalLength);
    assert_eq!(why(3, 25), Why::TotalLength);
    assert_eq!(why(8, 63), Why::Checksum);
    assert_eq!(View::new(&packet[..19]).unwrap_err().why, Why::Truncated);
}
