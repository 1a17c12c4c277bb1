use super::*;
use proptest::prelude::*;

proptest! {
    #[test]
    fn parse_is_the_inverse_of_emit(macs: ([u8; 6], [u8; 6]), ips: ([u8; 4], [u8; 4]), reply: bool) {
        let packet = Packet {
            operation: if reply { Operation::Reply } else { Operation::Request },
            sender_mac: Mac(macs.0),
            sender: Address::from_v4(ips.0),
            target_mac: Mac(macs.1),
            target: Address::from_v4(ips.1),
        };
        // A link pads the packet to its shortest frame.
        let mut bytes = [0xaa; 46];
        packet.emit(&mut bytes);
        prop_assert_eq!(Packet::parse(&bytes), Ok(packet));

        let oracle = etherparse::ArpPacketSlice::from_slice(&bytes).unwrap().to_packet();
        let oracle = oracle.try_eth_ipv4().unwrap();
        prop_assert_eq!((oracle.sender_mac, oracle.target_mac), macs);
        prop_assert_eq!((oracle.sender_ipv4, oracle.target_ipv4), ips);
        prop_assert_eq!(oracle.operation.0, if reply { 2 } else { 1 });
    }

    #[test]
    fn no_bytes_harm_us(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let _ = Packet::parse(&bytes);
    }
}

#[test]
fn each_wrong_field_has_its_name() {
    let good = [0, 1, 8, 0, 6, 4, 0, 1].into_iter().chain([0; 20]);
    let mut bytes = [0; LEN];
    bytes.iter_mut().zip(good).for_each(|(to, from)| *to = from);
    assert!(Packet::parse(&bytes).is_ok());
    assert_eq!(Packet::parse(&bytes[..27]).unwrap_err().why, Why::Truncated);
    for (at, why) in [
        (1, Why::AddressType),
        (2, Why::AddressType),
        (4, Why::AddressType),
        (5, Why::AddressType),
        (6, Why::Operation),
        (7, Why::Operation),
    ] {
        let mut bytes = bytes;
        bytes[at] = 9;
        assert_eq!(Packet::parse(&bytes).unwrap_err().why, why, "byte {at}");
    }
}
