use super::*;
use crate::ip;
use crate::ip::output::HeaderSpec;
use laneway_wire::flow::Address;
use proptest::prelude::*;

fn key(v4: bool) -> FlowKey {
    let address = |last| {
        if v4 {
            Address::from_v4([192, 0, 2, last])
        } else {
            Address::from_v6([0x20, 1, 13, 184, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last])
        }
    };
    FlowKey { local: address(1), remote: address(2), local_port: 4711, remote_port: 53 }
}

fn packet(key: &FlowKey, datagram: &[u8]) -> Vec<u8> {
    let spec = HeaderSpec::new(key.local, key.remote, protocol::UDP);
    let mut bytes = vec![0; spec.len()];
    ip::output::emit(&spec, &mut bytes, datagram.len());
    bytes.extend_from_slice(datagram);
    bytes
}

fn judge(packet: &[u8], checksum: RxChecksum) -> Result<(FlowKey, Vec<u8>), Discard> {
    let packet = ip::input::input(packet, false).unwrap();
    input(&packet, checksum).map(|datagram| (datagram.key, datagram.payload.to_vec()))
}

proptest! {
    #[test]
    fn input_reads_what_emit_wrote(v4: bool, payload in prop::collection::vec(any::<u8>(), 0..200)) {
        let key = key(v4);
        let mut datagram = vec![0xaa; len(payload.len())];
        emit(&key, &payload, &mut datagram);
        let packet = packet(&key, &datagram);
        prop_assert_eq!(judge(&packet, RxChecksum::Unknown), Ok((key.reversed(), payload)));
    }

    #[test]
    fn no_bytes_panic(v4: bool, datagram in prop::collection::vec(any::<u8>(), 0..60)) {
        let _ = judge(&packet(&key(v4), &datagram), RxChecksum::Verified);
    }
}

#[test]
fn checksum_rules() {
    for v4 in [true, false] {
        let key = key(v4);
        let mut datagram = vec![0; len(4)];
        emit(&key, b"data", &mut datagram);
        let good = packet(&key, &datagram);
        let mut spoilt = good.clone();
        *spoilt.last_mut().unwrap() ^= 1;
        assert_eq!(judge(&spoilt, RxChecksum::Unknown), Err(Discard::UdpChecksum));
        assert!(judge(&spoilt, RxChecksum::Verified).is_ok());
        // What a sender left to an offload device has been verified by nobody.
        let pseudo = pseudo_header(&key.local, &key.remote, protocol::UDP, datagram.len() as u32);
        datagram[CHECKSUM_OFFSET..HEADER_LEN].copy_from_slice(&pseudo.fold().to_ne_bytes());
        assert_eq!(judge(&packet(&key, &datagram), RxChecksum::Partial), Err(Discard::UdpChecksum));
        // No checksum at all: IPv4 may, IPv6 may not, whatever the device says.
        datagram[CHECKSUM_OFFSET..HEADER_LEN].fill(0);
        for checksum in [RxChecksum::Unknown, RxChecksum::Verified] {
            assert_eq!(judge(&packet(&key, &datagram), checksum).is_ok(), v4);
        }
    }
}

/// A port as any other, at which nobody can be: who sends to it is told so.
#[test]
fn port_zero_is_a_port() {
    let key = FlowKey { remote_port: 0, ..key(true) };
    let mut datagram = vec![0; len(4)];
    emit(&key, b"data", &mut datagram);
    let taken = judge(&packet(&key, &datagram), RxChecksum::Unknown).map(|(key, _)| key.local_port);
    assert_eq!(taken, Ok(0));
}

#[test]
fn lengths_that_lie() {
    let key = key(true);
    let mut datagram = vec![0; len(4)];
    emit(&key, b"data", &mut datagram);
    for claimed in [0u16, 7, 13, u16::MAX] {
        datagram[4..6].copy_from_slice(&claimed.to_be_bytes());
        assert_eq!(judge(&packet(&key, &datagram), RxChecksum::Verified), Err(Discard::UdpMalformed));
    }
}
