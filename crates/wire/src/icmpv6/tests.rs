use super::*;
use crate::ethernet::Mac;
use proptest::prelude::*;
use std::{vec, vec::Vec};

proptest! {
    #[test]
    fn parse_is_the_inverse_of_emit(which in 0..8, code: u8, word: u32, data: Vec<u8>, ends: ([u8; 16], [u8; 16])) {
        let (src, dst) = (Address::from_v6(ends.0), Address::from_v6(ends.1));
        let echo = Echo { id: word as u16, seq: (word >> 16) as u16, data: &data };
        let message = match which {
            0 => Message::EchoRequest(echo),
            1 => Message::EchoReply(echo),
            2 => Message::DestinationUnreachable { code, quoted: &data },
            3 => Message::PacketTooBig { mtu: word, quoted: &data },
            4 => Message::TimeExceeded { code, quoted: &data },
            5 => Message::ParameterProblem { code, pointer: word, quoted: &data },
            6 => Message::Ndp(ndp::Message::RouterSolicit { source_link: Some(Mac([2, 0, 0, 0, 0, code])) }),
            _ => Message::Other { kind: 143, code, rest: word.to_be_bytes(), data: &data },
        };
        let mut bytes = vec![0xaa; message.len()];
        message.emit(&mut bytes, &src, &dst);
        prop_assert_eq!(Message::parse(&bytes, &src, &dst), Ok(message));

        let oracle = etherparse::Icmpv6Slice::from_slice(&bytes).unwrap();
        prop_assert!(oracle.is_checksum_valid(ends.0, ends.1));
        use etherparse::Icmpv6Type as T;
        match (message, oracle.icmp_type()) {
            (Message::EchoRequest(e), T::EchoRequest(o)) | (Message::EchoReply(e), T::EchoReply(o)) => {
                prop_assert_eq!((e.id, e.seq), (o.id, o.seq));
            }
            (Message::PacketTooBig { mtu, .. }, T::PacketTooBig { mtu: oracle }) => prop_assert_eq!(mtu, oracle),
            (Message::DestinationUnreachable { code, .. }, T::DestinationUnreachable(oracle)) => prop_assert_eq!(code, oracle.code_u8()),
            (Message::TimeExceeded { code, .. }, T::TimeExceeded(oracle)) => prop_assert_eq!(code, oracle.code_u8()),
            (Message::ParameterProblem { code, pointer, .. }, T::ParameterProblem(oracle)) => {
                prop_assert_eq!((code, pointer), (oracle.code.code_u8(), oracle.pointer));
            }
            _ => {}
        }
    }

    #[test]
    fn no_bytes_harm_us(mut bytes in prop::collection::vec(any::<u8>(), 8..80), kind in prop_oneof![0u8..6, 126u8..140], zero_code: bool) {
        let (src, dst) = (Address::default(), Address::default());
        bytes[0] = kind;
        if zero_code {
            bytes[1] = 0;
        }
        bytes[2..4].fill(0);
        fill_checksum(&mut bytes, &src, &dst);
        if let Ok(message) = Message::parse(&bytes, &src, &dst) {
            let mut again = vec![0; message.len()];
            message.emit(&mut again, &src, &dst);
            prop_assert_eq!(Message::parse(&again, &src, &dst), Ok(message));
        }
    }
}

#[test]
fn the_checksum_covers_the_addresses() {
    let (src, dst) = (Address::from_v6([1; 16]), Address::from_v6([2; 16]));
    let mut bytes = [0; 12];
    Message::EchoRequest(Echo { id: 1, seq: 2, data: b"ping" }).emit(&mut bytes, &src, &dst);
    let wrong = Message::parse(&bytes, &src, &Address::from_v6([3; 16]));
    assert_eq!(wrong, Err(Malformed::new(Layer::Icmpv6, Why::Checksum)));
    assert_eq!(Message::parse(&bytes[..7], &src, &dst).unwrap_err().why, Why::Truncated);
}

#[test]
fn what_has_no_meaning_is_sent_as_zero() {
    let ends = (Address::from_v6([1; 16]), Address::from_v6([2; 16]));
    let sent = |message: Message<'_>| {
        let mut bytes = [0xaa; 8];
        message.emit(&mut bytes, &ends.0, &ends.1);
        (bytes[1], bytes[4..].to_vec())
    };
    let (echo, quoted) = (Echo { id: 0x0102, seq: 0x0304, data: &[] }, &[][..]);
    assert_eq!(sent(Message::EchoRequest(echo)), (0, vec![1, 2, 3, 4]));
    assert_eq!(sent(Message::EchoReply(echo)), (0, vec![1, 2, 3, 4]));
    assert_eq!(sent(Message::DestinationUnreachable { code: 4, quoted }), (4, vec![0; 4]));
    assert_eq!(sent(Message::PacketTooBig { mtu: 1280, quoted }), (0, vec![0, 0, 5, 0]));
    assert_eq!(sent(Message::TimeExceeded { code: 1, quoted }), (1, vec![0; 4]));
}
