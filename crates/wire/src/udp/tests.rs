use super::*;
use proptest::prelude::*;
use std::{vec, vec::Vec};

proptest! {
    #[test]
    fn parse_is_the_inverse_of_emit(src_port: u16, dst_port: u16, payload: Vec<u8>, padding: Vec<u8>, v4: ([u8; 4], [u8; 4]), v6: ([u8; 16], [u8; 16])) {
        let header = Header { src_port, dst_port, payload_len: payload.len() as u16 };
        let mut bytes = vec![0xaa; HEADER_LEN];
        header.emit(&mut bytes);
        bytes.extend(&payload);
        let len = bytes.len();
        prop_assert_eq!(Header::parse(&bytes), Ok((header, &payload[..])));
        prop_assert_eq!(View::new(&bytes).unwrap().checksum(), None);

        for (src, dst) in [
            (Address::from_v4(v4.0), Address::from_v4(v4.1)),
            (Address::from_v6(v6.0), Address::from_v6(v6.1)),
        ] {
            let mut bytes = bytes.clone();
            fill_checksum(&mut bytes, pseudo_header(&src, &dst, protocol::UDP, len as u32));
            bytes.extend(&padding);
            let view = View::new(&bytes).unwrap();
            prop_assert_eq!(view.payload(), &payload[..]);
            prop_assert!(view.checksum().is_some() && view.checksum_is_valid(&src, &dst));
            let (oracle, _) = etherparse::UdpHeader::from_slice(&bytes).unwrap();
            let checksum = if src.is_v4() {
                oracle.calc_checksum_ipv4_raw(v4.0, v4.1, &payload).unwrap()
            } else {
                oracle.calc_checksum_ipv6_raw(v6.0, v6.1, &payload).unwrap()
            };
            prop_assert_eq!(oracle.checksum, checksum);
            prop_assert_eq!((oracle.source_port, oracle.destination_port, usize::from(oracle.length)), (src_port, dst_port, len));
        }
    }

    #[test]
    fn no_bytes_harm_us(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        if let Ok(view) = View::new(&bytes) {
            prop_assert!(view.payload().len() + HEADER_LEN <= bytes.len());
        }
    }
}

#[test]
fn a_checksum_of_zero_is_sent_as_ones() {
    let (src, dst) = (Address::from_v4([10, 0, 0, 1]), Address::from_v4([10, 0, 0, 2]));
    let pseudo = pseudo_header(&src, &dst, protocol::UDP, 10);
    // Choose the payload so that all sums to ffff, whose complement is zero.
    let mut bytes = [0; 10];
    Header { src_port: 1, dst_port: 2, payload_len: 2 }.emit(&mut bytes);
    let rest = (pseudo + Sum::of(&bytes)).checksum();
    bytes[8..].copy_from_slice(&rest);
    fill_checksum(&mut bytes, pseudo);
    assert_eq!(bytes[6..8], [0xff, 0xff]);
    assert!(View::new(&bytes).unwrap().checksum_is_valid(&src, &dst));
    bytes[6..8].fill(0);
    assert!(!View::new(&bytes).unwrap().checksum_is_valid(&src, &dst), "it is none, though the sum is the same");
}

#[test]
fn the_length_is_checked() {
    let with = |len: u8| {
        let mut bytes = [0; 12];
        bytes[5] = len;
        View::new(&bytes).map(|view| view.payload().len()).map_err(|m| m.why)
    };
    assert_eq!(with(7), Err(Why::TotalLength));
    assert_eq!(with(8), Ok(0));
    assert_eq!(with(12), Ok(4));
    assert_eq!(with(13), Err(Why::TotalLength));
    assert_eq!(View::new(&[0; 7]).unwrap_err().why, Why::Truncated);
}

#[test]
fn a_wrong_checksum_is_none() {
    let (src, dst) = (Address::from_v4([10, 0, 0, 1]), Address::from_v4([10, 0, 0, 2]));
    let mut bytes = [0; 10];
    Header { src_port: 1, dst_port: 2, payload_len: 2 }.emit(&mut bytes);
    let is_valid = |bytes: &[u8]| View::new(bytes).unwrap().checksum_is_valid(&src, &dst);
    assert!(!is_valid(&bytes), "there is none");
    fill_checksum(&mut bytes, pseudo_header(&src, &dst, protocol::UDP, 10));
    assert_eq!(View::new(&bytes).unwrap().checksum(), Some([bytes[6], bytes[7]]));
    for at in 0..10 {
        let mut spoilt = bytes;
        spoilt[at] ^= 0x10;
        // The length cannot be spoilt and the datagram still be one.
        assert!(matches!(at, 4 | 5) || !is_valid(&spoilt), "byte {at}");
    }
}
