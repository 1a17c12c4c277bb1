use super::*;
use crate::ip;
use crate::ip::input::FragmentInfo;
use crate::time::Instant;
use proptest::prelude::*;

fn address(v4: bool, last: u8) -> Address {
    if v4 {
        Address::from_v4([192, 0, 2, last])
    } else {
        Address::from_v6([0x20, 1, 13, 184, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last])
    }
}

fn packet(src: Address, dst: Address, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let spec = HeaderSpec::new(src, dst, protocol);
    let mut bytes = vec![0; spec.len()];
    output::emit(&spec, &mut bytes, payload.len());
    bytes.extend_from_slice(payload);
    bytes
}

fn icmp_packet(src: Address, dst: Address, v4: icmpv4::Message<'_>, v6: icmpv6::Message<'_>) -> Vec<u8> {
    if src.is_v4() {
        let mut message = vec![0; v4.len()];
        v4.emit(&mut message);
        packet(src, dst, protocol::ICMPV4, &message)
    } else {
        let mut message = vec![0; v6.len()];
        v6.emit(&mut message, &src, &dst);
        packet(src, dst, protocol::ICMPV6, &message)
    }
}

fn judge(bytes: &[u8]) -> Result<Incoming<'_>, Discard> {
    input(&ip::input::input(bytes, false).unwrap())
}

const TCP: [u8; 20] = [0x12, 0x34, 0, 80, 0xde, 0xad, 0xbe, 0xef, 0, 0, 0, 0, 0x50, 2, 0, 0, 0, 0, 0, 0];

/// A router's complaint to host 1 about `quoted`.
fn too_big(v4: bool, quoted: &[u8], mtu: u16) -> Vec<u8> {
    let code = icmpv4::unreachable::FRAGMENTATION_NEEDED;
    icmp_packet(
        address(v4, 99),
        address(v4, 1),
        icmpv4::Message::DestinationUnreachable { code, next_hop_mtu: mtu, quoted },
        icmpv6::Message::PacketTooBig { mtu: mtu.into(), quoted },
    )
}

#[test]
fn an_echo_comes_back() {
    for v4 in [true, false] {
        let echo = Echo { id: 7, seq: 9, data: b"are you there" };
        let asked = icmp_packet(
            address(v4, 2),
            address(v4, 1),
            icmpv4::Message::EchoRequest(echo),
            icmpv6::Message::EchoRequest(echo),
        );
        let asked = ip::input::input(&asked, false).unwrap();
        assert_eq!(input(&asked), Ok(Incoming::EchoRequest(echo)));
        let reply = echo_reply(&asked, echo, address(v4, 77));
        let mut bytes = vec![0; reply.len()];
        reply.emit(&mut bytes);
        assert_eq!(judge(&bytes), Ok(Incoming::EchoReply(echo)));
        let packet = ip::input::input(&bytes, false).unwrap();
        assert_eq!((packet.src, packet.dst), (address(v4, 1), address(v4, 2)));
    }
}

/// Who measures how long a class of traffic takes asks in that class, and the way back is half of it. Of marks we make nothing, so none may be set.
#[test]
fn an_echo_comes_back_in_the_class_in_which_it_was_asked_for() {
    for v4 in [true, false] {
        let echo = Echo { id: 7, seq: 9, data: b"" };
        for (asked, answered) in [(0, 0), (0xb8, 0xb8), (0xff, 0xfc), (3, 0)] {
            let protocol = if v4 { protocol::ICMPV4 } else { protocol::ICMPV6 };
            let spec = HeaderSpec { dscp_ecn: asked, ..HeaderSpec::new(address(v4, 2), address(v4, 1), protocol) };
            let mut bytes = vec![0; spec.len()];
            output::emit(&spec, &mut bytes, 0);
            let request = ip::input::input(&bytes, false).unwrap();
            assert_eq!(echo_reply(&request, echo, address(v4, 1)).spec.dscp_ecn, answered, "{asked:#x}");
        }
    }
}

#[test]
fn groups_are_answered_from_one_address_or_not_at_all() {
    let echo = Echo { id: 1, seq: 1, data: b"" };
    let (v4, v6) = (icmpv4::Message::EchoRequest(echo), icmpv6::Message::EchoRequest(echo));
    let broadcast = icmp_packet(address(true, 2), Address::from_v4([255; 4]), v4, v6);
    assert_eq!(judge(&broadcast), Err(Discard::IcmpIgnored));
    let all_nodes = Address::from_v6([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    let multicast = icmp_packet(address(false, 2), all_nodes, v4, v6);
    let asked = ip::input::input(&multicast, false).unwrap();
    assert_eq!(echo_reply(&asked, echo, address(false, 1)).spec.src, address(false, 1));
}

#[test]
fn an_error_is_reduced_to_its_flow() {
    for v4 in [true, false] {
        // 28 bytes of transport or only the promised 8.
        for cut in [0, 12] {
            let ours = packet(address(v4, 1), address(v4, 2), protocol::TCP, &TCP);
            let bytes = too_big(v4, &ours[..ours.len() - cut], 1400);
            let Ok(Incoming::Error(error)) = judge(&bytes) else { panic!("{:?}", judge(&bytes)) };
            assert_eq!((error.kind, error.mtu), (ErrorKind::PacketTooBig, Some(1400)));
            let key = FlowKey { local: address(v4, 1), remote: address(v4, 2), local_port: 0x1234, remote_port: 80 };
            assert_eq!((error.quoted.protocol, error.quoted.key), (protocol::TCP, key));
            assert_eq!(error.quoted.seq, Some(SeqNum::new(0xdead_beef)));
        }
    }
}

#[test]
fn an_error_about_nothing_of_ours_is_unverified() {
    for v4 in [true, false] {
        let quoted = |src, protocol| packet(address(v4, src), address(v4, 2), protocol, &TCP);
        let judged = |quoted: &[u8]| judge(&too_big(v4, quoted, 1400)).err();
        assert_eq!(judged(&quoted(3, protocol::TCP)), Some(Discard::IcmpUnverified), "somebody else's packet");
        assert_eq!(judged(&quoted(1, 47)), Some(Discard::IcmpUnverified), "no flow");
        let ours = quoted(1, protocol::TCP);
        assert_eq!(judged(&ours[..ours.len() - 13]), Some(Discard::IcmpUnverified), "seven bytes");
        assert_eq!(judged(&[]), Some(Discard::IcmpUnverified));
        // The other version inside.
        let other = packet(address(!v4, 1), address(!v4, 2), protocol::TCP, &TCP);
        assert_eq!(judged(&other), Some(Discard::IcmpUnverified));
    }
    // A flow over IPv4 named by a packet over IPv6.
    let mut mapped = packet(address(false, 1), address(false, 2), protocol::TCP, &TCP);
    mapped[24..40].copy_from_slice(&address(true, 2).octets());
    assert_eq!(judge(&too_big(false, &mapped, 1400)).err(), Some(Discard::IcmpUnverified));
    // A later fragment has no ports.
    let mut later = packet(address(true, 1), address(true, 2), protocol::TCP, &TCP);
    later[7] = 1;
    assert_eq!(judge(&too_big(true, &later, 1400)).err(), Some(Discard::IcmpUnverified));
    for (offset, is_first) in [(0, true), (8, false)] {
        let mut fragment = [0; ipv6::FRAGMENT_HEADER_LEN];
        ipv6::Fragment { offset, more: true, id: 9 }.emit(protocol::TCP, &mut fragment);
        let quoted = packet(address(false, 1), address(false, 2), 44, &[&fragment[..], &TCP].concat());
        assert_eq!(judge(&too_big(false, &quoted, 1400)).is_ok(), is_first, "at {offset}");
    }
    // Nor has what says that its ports lie within its own header.
    let mut short = packet(address(true, 1), address(true, 2), protocol::TCP, &TCP);
    short[0] = 0x44;
    assert_eq!(judge(&too_big(true, &short, 1400)).err(), Some(Discard::IcmpUnverified));
}

/// We send from single addresses only, and whoever complains answers there.
#[test]
fn an_error_that_came_to_a_group_is_unverified() {
    for v4 in [true, false] {
        let ours = packet(address(v4, 1), address(v4, 2), protocol::TCP, &TCP);
        let bytes = too_big(v4, &ours, 1400);
        let complaint = ip::input::input(&bytes, false).unwrap();
        assert!(input(&complaint).is_ok());
        assert_eq!(input(&Packet { to_group: true, ..complaint }), Err(Discard::IcmpUnverified));
    }
}

/// RFC 1812 section 5.2.7.1 has three codes for what a filter refuses, of which we send one.
#[test]
fn every_code_of_unreachable_has_its_kind() {
    use icmpv4::unreachable;
    let ours = packet(address(true, 1), address(true, 2), protocol::TCP, &TCP);
    for (code, kind) in [
        (unreachable::NETWORK, ErrorKind::NetworkUnreachable),
        (1, ErrorKind::HostUnreachable),
        (unreachable::PROTOCOL, ErrorKind::ProtocolUnreachable),
        (unreachable::PORT, ErrorKind::PortUnreachable),
        (unreachable::FRAGMENTATION_NEEDED, ErrorKind::PacketTooBig),
        (5, ErrorKind::HostUnreachable),
        (unreachable::NETWORK_UNKNOWN, ErrorKind::NetworkUnreachable),
        (unreachable::NETWORK_FOR_SERVICE, ErrorKind::NetworkUnreachable),
        (unreachable::NETWORK_PROHIBITED, ErrorKind::NetworkProhibited),
        (unreachable::HOST_PROHIBITED, ErrorKind::Prohibited),
        (unreachable::PROHIBITED, ErrorKind::Prohibited),
    ] {
        let message = icmpv4::Message::DestinationUnreachable { code, next_hop_mtu: 0, quoted: &ours };
        let unused = icmpv6::Message::DestinationUnreachable { code, quoted: &ours };
        let bytes = icmp_packet(address(true, 99), address(true, 1), message, unused);
        let Ok(Incoming::Error(error)) = judge(&bytes) else { panic!("code {code}") };
        assert_eq!(error.kind, kind, "code {code}");
    }
}

/// RFC 4443 section 3.1: codes 5 and 6 say more closely what code 1 says.
#[test]
fn every_code_of_unreachable_has_its_kind_over_ipv6() {
    let ours = packet(address(false, 1), address(false, 2), protocol::TCP, &TCP);
    for (code, kind) in [
        (0, ErrorKind::NetworkUnreachable),
        (1, ErrorKind::Prohibited),
        (2, ErrorKind::HostUnreachable),
        (3, ErrorKind::HostUnreachable),
        (4, ErrorKind::PortUnreachable),
        (5, ErrorKind::Prohibited),
        (6, ErrorKind::Prohibited),
        (7, ErrorKind::HostUnreachable),
    ] {
        let unused = icmpv4::Message::DestinationUnreachable { code, next_hop_mtu: 0, quoted: &ours };
        let message = icmpv6::Message::DestinationUnreachable { code, quoted: &ours };
        let bytes = icmp_packet(address(false, 99), address(false, 1), unused, message);
        let Ok(Incoming::Error(error)) = judge(&bytes) else { panic!("code {code}") };
        assert_eq!(error.kind, kind, "code {code}");
    }
}

#[test]
fn icmp_of_the_wrong_version_is_refused() {
    let bytes = packet(address(true, 2), address(true, 1), protocol::ICMPV6, &[128, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(judge(&bytes), Err(Discard::IcmpMalformed));
    let bytes = packet(address(false, 2), address(false, 1), protocol::ICMPV4, &[8, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(judge(&bytes), Err(Discard::IcmpMalformed));
}

#[test]
fn our_errors_quote_within_limits_and_come_back_to_the_sender() {
    for (v4, most) in [(true, 576), (false, 1280)] {
        for len in [8, 100, 1400] {
            let mut payload = vec![0; len];
            payload[..4].copy_from_slice(&[0x11, 0x11, 0x22, 0x22]);
            let theirs = packet(address(v4, 1), address(v4, 2), protocol::UDP, &payload);
            let theirs_read = ip::input::input(&theirs, false).unwrap();
            let reply = error_reply(&theirs_read, Problem::PortUnreachable).unwrap();
            let mut bytes = vec![0; reply.len()];
            reply.emit(&mut bytes);
            assert!(bytes.len() <= most);
            let Ok(Incoming::Error(error)) = judge(&bytes) else { panic!() };
            assert_eq!(error.kind, ErrorKind::PortUnreachable);
            assert_eq!((error.quoted.key.local_port, error.quoted.key.remote_port), (0x1111, 0x2222));
            assert_eq!(error.quoted.key.local, address(v4, 1));
        }
    }
}

#[test]
fn every_problem_arrives_as_its_kind() {
    for v4 in [true, false] {
        for (problem, kind) in [
            (Problem::PortUnreachable, ErrorKind::PortUnreachable),
            (Problem::ProtocolUnreachable { at: 6 }, ErrorKind::ProtocolUnreachable),
            (Problem::Prohibited, ErrorKind::Prohibited),
            (Problem::PacketTooBig { mtu: 1300 }, ErrorKind::PacketTooBig),
            (Problem::HopLimitExceeded, ErrorKind::HopLimitExceeded),
            (Problem::ReassemblyTimeExceeded, ErrorKind::ReassemblyTimeExceeded),
            (Problem::ParameterProblem { at: 1 }, ErrorKind::ParameterProblem),
            (Problem::UnknownOption { at: 1, of_groups: false }, ErrorKind::ParameterProblem),
        ] {
            let theirs = packet(address(v4, 1), address(v4, 2), protocol::TCP, &TCP);
            let theirs = ip::input::input(&theirs, false).unwrap();
            let reply = error_reply(&theirs, problem).unwrap();
            let mut bytes = vec![0; reply.len()];
            reply.emit(&mut bytes);
            let Ok(Incoming::Error(error)) = judge(&bytes) else { panic!("{problem:?}") };
            assert_eq!(error.kind, kind);
            assert_eq!(error.mtu, (kind == ErrorKind::PacketTooBig).then_some(1300));
        }
    }
}

/// By code and place a sender learns what of his packet was not understood, and `traceroute` tells what came too late from what went too far.
#[test]
fn every_problem_is_said_with_its_code_and_place() {
    let (host, unreachable, time, parameter) = (Problem::PortUnreachable, (3, 1), (11, 3), (12, 4));
    for (problem, over_v4, over_v6, place) in [
        (host, (unreachable.0, 3), (unreachable.1, 4), 0),
        (Problem::ProtocolUnreachable { at: 40 }, (unreachable.0, 2), (parameter.1, 1), 40),
        (Problem::Prohibited, (unreachable.0, 13), (unreachable.1, 1), 0),
        (Problem::HopLimitExceeded, (time.0, 0), (time.1, 0), 0),
        (Problem::ReassemblyTimeExceeded, (time.0, 1), (time.1, 1), 0),
        (Problem::ParameterProblem { at: 9 }, (parameter.0, 0), (parameter.1, 0), 9),
        (Problem::UnknownOption { at: 42, of_groups: false }, (parameter.0, 0), (parameter.1, 2), 42),
        (Problem::IncompleteHeaders, (parameter.0, 0), (parameter.1, 3), 0),
    ] {
        for v4 in [true, false] {
            let theirs = packet(address(v4, 1), address(v4, 2), protocol::TCP, &TCP);
            let reply = error_reply(&ip::input::input(&theirs, false).unwrap(), problem).unwrap();
            let mut message = vec![0; reply.message_len()];
            reply.emit_message(&mut message);
            assert_eq!((message[0], message[1]), if v4 { over_v4 } else { over_v6 }, "{problem:?}");
            // That of IPv4 is a byte, and only a parameter has one.
            let said = if v4 {
                message[4].into()
            } else {
                u32::from_be_bytes([message[4], message[5], message[6], message[7]])
            };
            let has_place = message[0] == if v4 { parameter.0 } else { parameter.1 };
            assert_eq!(said, if has_place { place } else { 0 }, "{problem:?}");
        }
    }
}

/// As much of a packet as may be: who has sent it finds in that what he looks for.
#[test]
fn as_much_is_quoted_as_there_is_room_for() {
    for (v4, most) in [(true, 576), (false, 1_280)] {
        let theirs = packet(address(v4, 1), address(v4, 2), protocol::UDP, &[7; 1_400]);
        let reply = error_reply(&ip::input::input(&theirs, false).unwrap(), Problem::PortUnreachable).unwrap();
        let mut bytes = vec![0; reply.len()];
        reply.emit(&mut bytes);
        let quoted = &bytes[reply.spec.len() + 8..];
        assert_eq!((bytes.len(), quoted), (most, &theirs[..quoted.len()]));
    }
}

/// We ask nobody whether he is there, so of ICMP of ours only an answer can be complained of.
#[test]
fn of_our_icmp_an_error_quotes_answers_alone() {
    for (kind, is_ours) in [(128, false), (129, true), (135, false), (1, false)] {
        let quoted = packet(address(false, 1), address(false, 2), protocol::ICMPV6, &[kind, 0, 0, 0, 0, 7, 0, 9]);
        let judged = judge(&too_big(false, &quoted, 1_400)).is_ok();
        assert_eq!(judged, is_ours, "type {kind}");
    }
}

/// Whatever class they are of, which stands in the same byte as the length of a header of IPv4.
#[test]
fn the_flow_of_a_packet_is_that_of_its_version() {
    for v4 in [true, false] {
        let (src, dst) = (address(v4, 1), address(v4, 2));
        let spec = HeaderSpec { dscp_ecn: 0xb8, ..HeaderSpec::new(src, dst, protocol::TCP) };
        let mut bytes = vec![0; spec.len()];
        output::emit(&spec, &mut bytes, TCP.len());
        bytes.extend_from_slice(&TCP);
        let key = FlowKey { local: src, remote: dst, local_port: 0x1234, remote_port: 80 };
        assert_eq!(flow(&bytes).map(|flow| flow.key), Some(key));
        let inside_other = judge(&too_big(!v4, &bytes, 1_400)).err();
        assert_eq!(inside_other, Some(Discard::IcmpUnverified));
    }
}

/// There is nobody to answer.
#[test]
fn an_echo_request_from_nobody_is_ignored() {
    let echo = Echo { id: 1, seq: 1, data: b"" };
    let (v4, v6) = (icmpv4::Message::EchoRequest(echo), icmpv6::Message::EchoRequest(echo));
    assert_eq!(judge(&icmp_packet(Address::UNSPECIFIED_V6, address(false, 1), v4, v6)), Err(Discard::IcmpIgnored));
}

//= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.2
//# An ICMP error message MUST NOT be sent as the result of receiving: * an ICMP error message
#[test]
fn no_error_answers_an_error_a_group_or_a_later_fragment() {
    for v4 in [true, false] {
        let bytes = packet(address(v4, 2), address(v4, 1), protocol::UDP, &[0; 8]);
        let good = ip::input::input(&bytes, false).unwrap();
        let answered = |packet: Packet<'_>| error_reply(&packet, Problem::PortUnreachable).is_some();
        assert!(answered(good));
        assert!(!answered(Packet { to_group: true, ..good }));
        assert!(answered(Packet { fragment: Some(FragmentInfo { id: 1, offset: 0, more: true }), ..good }));
        assert!(!answered(Packet { fragment: Some(FragmentInfo { id: 1, offset: 8, more: true }), ..good }));
        let group = if v4 { Address::from_v4([224, 0, 0, 1]) } else { Address::from_v6([0xff; 16]) };
        assert!(!answered(Packet { dst: group, ..good }));
        let nobody = if v4 { Address::UNSPECIFIED_V4 } else { Address::UNSPECIFIED_V6 };
        assert!(!answered(Packet { src: nobody, ..good }));
        let protocol = if v4 { protocol::ICMPV4 } else { protocol::ICMPV6 };
        // 5 and 137 are redirects.
        for (kind, ok) in [(3, false), (1, false), (5, false), (8, v4), (128, !v4), (137, false), (200, !v4)] {
            assert_eq!(answered(Packet { protocol, payload: &[kind; 8], ..good }), ok, "{kind}");
        }
        // Over IPv4 the errors stand among the queries.
        for (kind, ok) in
            [(0, v4), (4, false), (9, v4), (10, v4), (11, false), (12, false), (13, v4), (18, v4), (19, false)]
        {
            assert_eq!(answered(Packet { protocol, payload: &[kind; 8], ..good }), ok, "{kind}");
        }
        assert!(!answered(Packet { protocol, payload: &[], ..good }));
        // Destination options before it do not hide it: those of a fragment stand in its payload.
        let fragment = Some(FragmentInfo { id: 1, offset: 0, more: true });
        for (kind, ok) in [(1, v4), (3, v4), (128, true)] {
            let payload = &[protocol::ICMPV6, 0, 1, 4, 0, 0, 0, 0, kind, 0, 0, 0, 0, 0, 0, 0];
            assert_eq!(answered(Packet { protocol: 60, payload, fragment, ..good }), ok, "{kind}");
        }
    }
}

/// What the other version of IP takes for ICMP is a protocol like any that nobody speaks.
#[test]
fn an_error_answers_what_is_icmp_in_the_other_version_alone() {
    for (v4, protocol) in [(true, protocol::ICMPV6), (false, protocol::ICMPV4)] {
        for payload in [&[3; 8][..], &[1; 8], &[]] {
            let bytes = packet(address(v4, 2), address(v4, 1), protocol, payload);
            let asked = ip::input::input(&bytes, false).unwrap();
            let reply = error_reply(&asked, Problem::ProtocolUnreachable { at: 6 });
            assert!(reply.is_some(), "protocol {protocol}, {payload:?}");
        }
    }
}

#[test]
fn the_rate_holds_on_average_and_cannot_be_counted() {
    let mut seed = 1u32;
    let mut random = move || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        seed
    };
    let mut bursts = Vec::new();
    for _ in 0..20 {
        let mut limit = RateLimit::new(100, 50);
        bursts.push((0..1000).filter(|_| limit.allow(Instant::from_us(1), random())).count());
    }
    assert!(bursts.iter().all(|burst| (20..110).contains(burst)), "{bursts:?}");
    assert!(bursts.iter().any(|burst| *burst != bursts[0]), "{bursts:?}");
    let mut limit = RateLimit::new(100, 50);
    let allowed = (0..100_000u64).filter(|i| limit.allow(Instant::from_us(i * 1000), random())).count();
    assert!((9_000..11_500).contains(&allowed), "{allowed} in 100 s at 100/s");
    // An hour of silence earns no more than a burst.
    let later = Instant::from_us(3_600_000_000);
    let burst = (0..1000).filter(|_| limit.allow(later, random())).count();
    assert!((20..110).contains(&burst), "{burst}");
}

proptest! {
    #[test]
    fn no_message_panics(v4: bool, kind in prop::sample::select(vec![1u8, 2, 3, 4, 8, 11, 12, 128, 133, 134, 135, 136]),
                         code in 0u8..15, mut body in prop::collection::vec(any::<u8>(), 0..120), version in 0u8..3) {
        match version { 0 => body.get_mut(4..5).map(|b| b.fill(0x45)), 1 => body.get_mut(4..5).map(|b| b.fill(0x60)), _ => None };
        let mut message = [&[kind, code, 0, 0], &body[..]].concat();
        let (src, dst) = (address(v4, 2), address(v4, 1));
        let protocol = if v4 { protocol::ICMPV4 } else { protocol::ICMPV6 };
        use laneway_wire::checksum::{Sum, pseudo_header};
        let pseudo = if v4 { Sum::ZERO } else { pseudo_header(&src, &dst, protocol, message.len() as u32) };
        let checksum = (pseudo + Sum::of(&message)).checksum();
        message[2..4].copy_from_slice(&checksum);
        let bytes = packet(src, dst, protocol, &message);
        let _ = judge(&bytes);
    }
}
