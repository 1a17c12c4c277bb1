use super::*;
use proptest::prelude::*;
use std::{vec, vec::Vec};

proptest! {
    #[test]
    fn parse_is_the_inverse_of_emit(which in 0..6, code: u8, a: u16, b: u16, data: Vec<u8>) {
        let echo = Echo { id: a, seq: b, data: &data };
        let message = match which {
            0 => Message::EchoRequest(echo),
            1 => Message::EchoReply(echo),
            2 => Message::DestinationUnreachable { code, next_hop_mtu: b, quoted: &data },
            3 => Message::TimeExceeded { code, quoted: &data },
            4 => Message::ParameterProblem { code, pointer: b as u8, quoted: &data },
            _ => Message::Other { kind: 15, code, rest: [1, 2, 3, 4], data: &data },
        };
        let mut bytes = vec![0xaa; message.len()];
        message.emit(&mut bytes);
        prop_assert_eq!(Message::parse(&bytes), Ok(message));

        let oracle = etherparse::Icmpv4Slice::from_slice(&bytes).unwrap();
        prop_assert_eq!(oracle.payload().len() + oracle.header_len(), bytes.len());
        let mut summed = oracle.header();
        summed.update_checksum(oracle.payload());
        // The oracle's meaning of an undefined code may drop bits of the header, and with them the sum.
        if matches!(oracle.icmp_type(), etherparse::Icmpv4Type::EchoRequest(_) | etherparse::Icmpv4Type::EchoReply(_)) {
            prop_assert_eq!(summed.checksum, oracle.checksum());
        }
        use etherparse::{Icmpv4Type as T, icmpv4::DestUnreachableHeader as D};
        match (message, oracle.icmp_type()) {
            (Message::EchoRequest(e), T::EchoRequest(o)) | (Message::EchoReply(e), T::EchoReply(o)) => {
                prop_assert_eq!((e.id, e.seq), (o.id, o.seq));
            }
            (Message::DestinationUnreachable { code: unreachable::FRAGMENTATION_NEEDED, next_hop_mtu, .. },
                T::DestinationUnreachable(D::FragmentationNeeded { next_hop_mtu: oracle })) => prop_assert_eq!(next_hop_mtu, oracle),
            (Message::DestinationUnreachable { code, .. }, T::DestinationUnreachable(oracle)) => {
                prop_assert_eq!(code, oracle.code_u8());
            }
            (_, T::EchoRequest(_) | T::EchoReply(_) | T::DestinationUnreachable(_)) => {
                prop_assert!(false, "the oracle sees another message");
            }
            _ => {}
        }
    }

    #[test]
    fn no_bytes_harm_us(mut bytes in prop::collection::vec(any::<u8>(), 0..40), kind in 0u8..20) {
        if bytes.len() >= HEADER_LEN {
            bytes[0] = kind;
            bytes[2..4].fill(0);
            let checksum = Sum::of(&bytes).checksum();
            bytes[2..4].copy_from_slice(&checksum);
            let message = Message::parse(&bytes).unwrap();
            let mut again = vec![0; message.len()];
            message.emit(&mut again);
            prop_assert_eq!(Message::parse(&again), Ok(message));
        } else {
            prop_assert_eq!(Message::parse(&bytes).unwrap_err().why, Why::Truncated);
        }
    }
}

#[test]
fn a_wrong_checksum_is_refused() {
    let mut bytes = [0; 12];
    Message::EchoRequest(Echo { id: 1, seq: 2, data: b"ping" }).emit(&mut bytes);
    bytes[11] ^= 1;
    assert_eq!(Message::parse(&bytes), Err(Malformed::new(Layer::Icmpv4, Why::Checksum)));
}

#[test]
fn what_has_no_meaning_is_sent_as_zero() {
    let sent = |message: Message<'_>| {
        let mut bytes = [0xaa; HEADER_LEN];
        message.emit(&mut bytes);
        (bytes[1], bytes[4..].to_vec())
    };
    let (echo, quoted) = (Echo { id: 0x0102, seq: 0x0304, data: &[] }, &[][..]);
    assert_eq!(sent(Message::EchoRequest(echo)), (0, vec![1, 2, 3, 4]));
    assert_eq!(sent(Message::EchoReply(echo)), (0, vec![1, 2, 3, 4]));
    let unreachable = Message::DestinationUnreachable { code: 4, next_hop_mtu: 0x0506, quoted };
    assert_eq!(sent(unreachable), (4, vec![0, 0, 5, 6]));
    assert_eq!(sent(Message::TimeExceeded { code: 1, quoted }), (1, vec![0; 4]));
    assert_eq!(sent(Message::ParameterProblem { code: 0, pointer: 7, quoted }), (0, vec![7, 0, 0, 0]));
}
