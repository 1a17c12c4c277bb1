use super::*;
use proptest::prelude::*;
use std::{format, vec::Vec};

proptest! {
    #[test]
    fn parse_is_the_inverse_of_emit(dst: [u8; 6], src: [u8; 6], kind: u16, payload: Vec<u8>) {
        let header = Header { dst: Mac(dst), src: Mac(src), ethertype: EtherType(kind) };
        let mut frame = [0xaa; HEADER_LEN].to_vec();
        header.emit(&mut frame);
        frame.extend(&payload);
        prop_assert_eq!(Header::parse(&frame), Ok((header, &payload[..])));

        let (oracle, rest) = etherparse::Ethernet2Header::from_slice(&frame).unwrap();
        prop_assert_eq!((oracle.destination, oracle.source, oracle.ether_type.0), (dst, src, kind));
        prop_assert_eq!(rest, &payload[..]);
    }
}

#[test]
fn a_short_frame_is_refused() {
    for len in 0..HEADER_LEN {
        assert_eq!(View::new(&[0; HEADER_LEN][..len]).unwrap_err().why, Why::Truncated);
    }
    assert!(View::new(&[0; HEADER_LEN]).unwrap().payload().is_empty());
}

#[test]
fn addresses_know_what_they_are() {
    assert!(Mac::BROADCAST.is_broadcast() && Mac::BROADCAST.is_multicast());
    assert!(Mac([0x33, 0x33, 0, 0, 0, 1]).is_multicast());
    assert!(Mac([2, 0, 0, 0, 0, 1]).is_unicast() && !Mac::default().is_unicast());
    assert!(Mac([1, 0, 0, 0, 0, 0]).is_multicast() && !Mac([1, 0, 0, 0, 0, 0]).is_unicast());
    assert!(Mac([2, 1, 1, 1, 1, 1]).is_unicast() && !Mac([0xff; 6].map(|b| b - 2)).is_broadcast());
    assert_eq!(format!("{:?}", Mac([0, 1, 0xab, 3, 4, 0xff])), "00:01:ab:03:04:ff");
}
