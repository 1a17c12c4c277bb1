//! Packets that come to the wrong one of two lanes, to one host or by broadcast of the link: the lane that gets them by mail must
//! know which.

use crate::app::{App, ConnId, Context, UdpId};
use crate::binding::BindOptions;
use crate::config::Config;
use crate::control::Network;
use crate::counters::{Counters, Mib};
use crate::entropy::BootSecrets;
use crate::host::Host;
use laneway_device::memory::{self, LinkConfig, LinkQueue, LinkRx, LinkTx};
use laneway_device::{Medium, PartialChecksum, Rx, Tx, TxMeta};
use laneway_proto::discard::Discard;
use laneway_proto::ethernet;
use laneway_proto::icmp::{self, Problem};
use laneway_proto::ip::fragment::Fragments;
use laneway_proto::ip::input;
use laneway_proto::ip::output::{self, HeaderSpec};
use laneway_proto::tcp::CloseReason;
use laneway_proto::time::Instant;
use laneway_proto::udp;
use laneway_wire::checksum::{Sum, pseudo_header};
use laneway_wire::ethernet::{EtherType, Mac};
use laneway_wire::flow::{Address, FlowKey};
use laneway_wire::icmpv4::Echo;
use laneway_wire::{icmpv4, icmpv6, protocol};
use std::net::SocketAddr;

/// Says nothing, and keeps what it is told of its datagrams.
#[derive(Default)]
struct Nobody {
    told: Vec<(UdpId, SocketAddr, CloseReason)>,
}
impl App for Nobody {
    fn on_data(&mut self, _: &mut Context<'_>, _: ConnId, data: &[u8]) -> usize {
        data.len()
    }
    fn on_unreachable(&mut self, _: &mut Context<'_>, socket: UdpId, to: SocketAddr, why: CloseReason) {
        self.told.push((socket, to, why));
    }
}

const HERE: Address = Address::from_v4([10, 0, 0, 1]);
const THERE: Address = Address::from_v4([10, 0, 0, 2]);

fn v6(last: u8) -> Address {
    Address::from_v6([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last])
}

/// A host of two lanes, and the other end of its link, which puts frames into the queue that it likes.
struct World {
    host: Host<LinkRx, LinkTx, Nobody>,
    other: Vec<LinkQueue>,
    mac: Mac,
    now: Instant,
}

impl World {
    fn new() -> Self {
        World::on(Medium::Ethernet, 2)
    }

    fn on(medium: Medium, queues: usize) -> Self {
        World::linked(LinkConfig { queues, medium, ..LinkConfig::default() })
    }

    fn linked(config: LinkConfig) -> Self {
        let (queues, other) = memory::link(config);
        let (now, mac) = (Instant::from_us(3_600_000_000), Mac(queues[0].tx.capabilities().mac));
        let addresses = ["10.0.0.1/24", "fd00::1/64"].map(|cidr| cidr.parse().unwrap()).to_vec();
        let network = Network { addresses, gateways: vec![] };
        let secrets = BootSecrets::from_seed(1);
        let config = Config { ip_default_ttl: 5, ..Config::default() };
        let host = Host::new(config, &network, &secrets, queues, now, |_| Nobody::default()).unwrap();
        World { host, other, mac, now }
    }

    fn send(&mut self, queue: usize, packet: &[u8], is_broadcast: bool) {
        let tx = &mut self.other[queue].tx;
        let to = if is_broadcast { Mac::BROADCAST } else { self.mac };
        let link = ethernet::template(to, Mac(tx.capabilities().mac), EtherType::IPV4);
        let frame = [&link[..], packet].concat();
        tx.reserve(frame.len()).expect("there is room").copy_from_slice(&frame);
        tx.commit(frame.len(), TxMeta::default());
        tx.flush();
        for _ in 0..4 {
            self.host.turn(self.now);
            self.now = self.now.after_us(100);
        }
    }

    /// A packet on a link without headers, and what is answered.
    fn ask(&mut self, packet: &[u8]) -> Option<Vec<u8>> {
        let LinkQueue { tx, rx } = &mut self.other[0];
        tx.reserve(packet.len()).expect("there is room").copy_from_slice(packet);
        tx.commit(packet.len(), TxMeta::default());
        tx.flush();
        self.host.turn(self.now);
        (rx.poll(1) == 1).then(|| rx.frame(0).bytes.to_vec())
    }

    fn lane_of(&self, key: &FlowKey) -> usize {
        self.host.seats[0].lane.local.steering.lane(key)
    }
}

/// A flow that belongs to this lane, as the host sees it: to a port where nobody listens.
fn flow(world: &World, lane: usize) -> FlowKey {
    let key = |port| FlowKey { local: HERE, remote: THERE, local_port: 9, remote_port: port };
    (40_000..).map(key).find(|key| world.lane_of(key) == lane).expect("every second one")
}

fn whole(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let spec = HeaderSpec::new(THERE, HERE, protocol);
    let mut packet = vec![0; spec.len() + payload.len()];
    output::emit(&spec, &mut packet, payload.len());
    packet[spec.len()..].copy_from_slice(payload);
    packet
}

fn fragments(protocol: u8, payload: &[u8], id: u16) -> Vec<Vec<u8>> {
    let spec = HeaderSpec { dont_fragment: false, id, ..HeaderSpec::new(THERE, HERE, protocol) };
    let mut pieces = Fragments::new(&spec, id.into(), payload, 576).expect("it may be fragmented");
    std::iter::from_fn(|| {
        let mut piece = vec![0; pieces.next_len()?];
        pieces.write_next(&mut piece);
        Some(piece)
    })
    .collect()
}

fn datagram(key: &FlowKey, len: usize) -> Vec<u8> {
    let sent =
        FlowKey { local: key.remote, remote: key.local, local_port: key.remote_port, remote_port: key.local_port };
    let mut datagram = vec![0; udp::HEADER_LEN + len];
    udp::emit(&sent, &vec![7; len], &mut datagram);
    datagram
}

/// A SYN with text.
fn syn(key: &FlowKey, len: usize) -> Vec<u8> {
    let mut segment = vec![0; 20 + len];
    segment[0..2].copy_from_slice(&key.remote_port.to_be_bytes());
    segment[2..4].copy_from_slice(&key.local_port.to_be_bytes());
    (segment[12], segment[13]) = (5 << 4, 2);
    let sum = pseudo_header(&THERE, &HERE, protocol::TCP, segment.len() as u32) + Sum::of(&segment);
    segment[16..18].copy_from_slice(&sum.checksum());
    segment
}

/// What a host answers to these packets, each of which comes to a lane that is not theirs.
fn answers(packets: impl Fn(&World, usize) -> Vec<Vec<u8>>, is_broadcast: bool) -> Counters {
    let mut world = World::new();
    for lane in 0..2 {
        for packet in packets(&world, lane) {
            world.send(1 - lane, &packet, is_broadcast);
        }
    }
    world.host.counters()
}

#[test]
fn a_lane_answers_nothing_to_a_datagram_that_was_mailed_to_it_and_came_by_broadcast() {
    let packets = |world: &World, lane| vec![whole(protocol::UDP, &datagram(&flow(world, lane), 10))];
    let (one, all) = (answers(packets, false), answers(packets, true));
    for counters in [&one, &all] {
        assert_eq!((counters.get(Mib::SteerMailed), counters.get(Mib::UdpNoPorts)), (2, 2));
    }
    assert_eq!((one.get(Mib::IcmpOutMsgs), all.get(Mib::IcmpOutMsgs)), (2, 0));
}

#[test]
fn nor_to_one_whose_fragments_were() {
    // Both identifications of a pair come to each lane: one of them is the other's to collect.
    let packets = |world: &World, lane| {
        let datagram = datagram(&flow(world, lane), 1_000);
        (0..8).flat_map(|id| fragments(protocol::UDP, &datagram, id)).collect()
    };
    let (one, all) = (answers(packets, false), answers(packets, true));
    for counters in [&one, &all] {
        assert!(counters.get(Mib::SteerMailed) > 0);
        assert_eq!((counters.get(Mib::IpReasmOKs), counters.get(Mib::UdpNoPorts)), (16, 16));
    }
    assert_eq!((one.get(Mib::IcmpOutMsgs), all.get(Mib::IcmpOutMsgs)), (16, 0));
}

#[test]
fn nor_a_reset_to_a_segment_that_was() {
    let packets = |world: &World, lane| {
        let syn = syn(&flow(world, lane), 1_000);
        (0..8).flat_map(|id| fragments(protocol::TCP, &syn, id)).collect()
    };
    let (one, all) = (answers(packets, false), answers(packets, true));
    assert_eq!((one.get(Mib::IpReasmOKs), all.get(Mib::IpReasmOKs)), (16, 16));
    assert_eq!((one.get(Mib::TcpOutRsts), all.get(Mib::TcpOutRsts)), (16, 0));
    assert_eq!(all.discarded(Discard::TcpMalformed), 16);
}

/// The lane in whose queue a packet is counts it, and the one that it is for does not do so again.
#[test]
fn what_was_mailed_is_counted_once() {
    let segments = |world: &World, lane| vec![whole(protocol::TCP, &syn(&flow(world, lane), 10))];
    let counters = answers(segments, false);
    assert_eq!((counters.get(Mib::SteerMailed), counters.get(Mib::TcpOutRsts)), (2, 2));
    assert_eq!((counters.get(Mib::IpInReceives), counters.get(Mib::TcpInSegs)), (2, 2));

    // What the other host says of datagrams that nobody has sent.
    let errors = |world: &World, lane| {
        let FlowKey { local, remote, local_port, remote_port } = flow(world, lane);
        let sent = FlowKey { local: remote, remote: local, local_port: remote_port, remote_port: local_port };
        let datagram = datagram(&sent, 10);
        let mut packet = vec![0; 20 + datagram.len()];
        output::emit(&HeaderSpec::new(HERE, THERE, protocol::UDP), &mut packet, datagram.len());
        packet[20..].copy_from_slice(&datagram);
        let packet = input::input(&packet, true).expect("it is good");
        let error = icmp::error_reply(&packet, Problem::PortUnreachable).expect("it may be told of");
        let mut message = vec![0; error.message_len()];
        error.emit_message(&mut message);
        vec![whole(protocol::ICMPV4, &message)]
    };
    let counters = answers(errors, false);
    assert_eq!((counters.get(Mib::SteerMailed), counters.discarded(Discard::IcmpUnverified)), (2, 2));
    assert_eq!((counters.get(Mib::IcmpInMsgs), counters.get(Mib::IcmpInErrors)), (2, 0));
}

/// A router on the way that carries less must be able to cut it, for what it says instead is not listened to.
#[test]
fn what_is_not_tcp_may_be_cut_by_routers() {
    let mut world = World::on(Medium::Ip, 1);
    let key = flow(&world, 0);
    let mut id = || {
        let answer = world.ask(&whole(protocol::UDP, &datagram(&key, 10))).expect("port unreachable");
        assert_eq!((answer[9], answer[6] & 0x40), (protocol::ICMPV4, 0), "it may be cut");
        assert_eq!(answer[8], 5, "ip_default_ttl is of all that we send");
        u16::from_be_bytes([answer[4], answer[5]])
    };
    assert_ne!(id(), id(), "so its pieces must not be taken for another's (RFC 6864)");
    let reset = world.ask(&whole(protocol::TCP, &syn(&key, 0))).expect("nobody listens");
    assert_eq!((reset[9], reset[8]), (protocol::TCP, 5), "of what strangers are told, too");
}

/// RFC 8200 section 4.7.
#[test]
fn that_nothing_follows_an_ipv6_header_is_no_error() {
    let mut world = World::on(Medium::Ip, 1);
    let address = |last| Address::from_v6([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    let mut ask = |protocol, payload: &[u8]| {
        let spec = HeaderSpec::new(address(2), address(1), protocol);
        let mut packet = vec![0; spec.len() + payload.len()];
        output::emit(&spec, &mut packet, payload.len());
        packet[spec.len()..].copy_from_slice(payload);
        world.ask(&packet)
    };
    assert_eq!((ask(59, &[]), ask(59, b"ignored")), (None, None));
    assert!(ask(200, b"unknown").is_some(), "which is one");
}

/// Of a datagram nobody can tell who has seen it. So what is said of one is believed only if there is a socket that may have sent it.
#[test]
fn a_path_is_no_narrower_for_datagrams_that_nobody_sends() {
    let [here, there] = [1, 2].map(|last| Address::from_v6([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]));
    let packet = |(src, dst), protocol, payload: &[u8]| {
        let spec = HeaderSpec::new(src, dst, protocol);
        let mut packet = vec![0; spec.len() + payload.len()];
        output::emit(&spec, &mut packet, payload.len());
        packet[spec.len()..].copy_from_slice(payload);
        packet
    };
    let icmp = |message: icmpv6::Message<'_>| {
        let mut bytes = vec![0; message.len()];
        message.emit(&mut bytes, &there, &here);
        packet((there, here), protocol::ICMPV6, &bytes)
    };
    let mut sent = vec![0; udp::HEADER_LEN + 10];
    udp::emit(&FlowKey { local: here, remote: there, local_port: 53, remote_port: 7 }, &[7; 10], &mut sent);
    let quoted = packet((here, there), protocol::UDP, &sent);
    let request = icmp(icmpv6::Message::EchoRequest(Echo { id: 1, seq: 1, data: &[7; 1_400] }));
    for is_bound in [false, true] {
        let mut world = World::on(Medium::Ip, 1);
        if is_bound {
            world.host.control.bind_udp("[fd00::1]:53".parse().unwrap()).unwrap();
            world.host.turn(world.now);
        }
        assert_eq!(world.ask(&icmp(icmpv6::Message::PacketTooBig { mtu: 1_280, quoted: &quoted })), None);
        let answer = world.ask(&request).expect("an echo");
        assert_eq!(answer.len() < request.len(), is_bound, "in pieces: {}", answer.len());
        assert_eq!(world.host.counters().discarded(Discard::IcmpUnverified), u64::from(!is_bound));
    }
}

/// Over IPv4 a router cuts a datagram that is too long for it, so what one says of that is believed of none.
#[test]
fn a_path_over_ipv4_is_no_narrower_for_datagrams() {
    let mut world = World::on(Medium::Ip, 1);
    world.host.control.bind_udp("10.0.0.1:53".parse().unwrap()).unwrap();
    world.host.turn(world.now);
    let mut sent = vec![0; udp::HEADER_LEN + 10];
    udp::emit(&FlowKey { local: HERE, remote: THERE, local_port: 53, remote_port: 7 }, &[7; 10], &mut sent);
    let spec = HeaderSpec::new(HERE, THERE, protocol::UDP);
    let mut quoted = vec![0; spec.len()];
    output::emit(&spec, &mut quoted, sent.len());
    quoted.extend_from_slice(&sent);
    let message = icmpv4::Message::DestinationUnreachable { code: 4, next_hop_mtu: 576, quoted: &quoted };
    let mut bytes = vec![0; message.len()];
    message.emit(&mut bytes);
    assert_eq!(world.ask(&whole(protocol::ICMPV4, &bytes)), None);
    assert_eq!(world.host.counters().discarded(Discard::IcmpIgnored), 1);
}

/// RFC 1122 section 4.1.3.3: a hard error is passed on, by the name that the kernel has for it; what may be over soon is not.
#[test]
fn why_a_datagram_did_not_get_there_is_passed_on() {
    use CloseReason::*;
    let v4 = [
        (1, None),
        (2, Some(Refused)),
        (3, Some(Refused)),
        (9, Some(NetworkUnreachable)),
        (10, Some(HostUnreachable)),
        (13, Some(HostUnreachable)),
    ];
    let of_v6 = [(0, None), (2, None), (3, None), (1, Some(Prohibited)), (4, Some(Refused)), (5, Some(Prohibited))];
    for (here, there, cases) in [(HERE, THERE, v4), (v6(1), v6(2), of_v6)] {
        let is_v4 = here.is_v4();
        let packet = |src, dst, protocol, payload: &[u8]| {
            let spec = HeaderSpec::new(src, dst, protocol);
            let mut packet = vec![0; spec.len() + payload.len()];
            output::emit(&spec, &mut packet, payload.len());
            packet[spec.len()..].copy_from_slice(payload);
            packet
        };
        let mut sent = vec![0; udp::HEADER_LEN + 10];
        udp::emit(&FlowKey { local: here, remote: there, local_port: 53, remote_port: 7 }, &[7; 10], &mut sent);
        let quoted = packet(here, there, protocol::UDP, &sent);
        for (code, why) in cases {
            let mut world = World::on(Medium::Ip, 1);
            let at = SocketAddr::new(here.to_ip(), 53);
            let socket = world.host.control.bind_udp(at).unwrap();
            world.host.turn(world.now);
            let message = if is_v4 {
                let message = icmpv4::Message::DestinationUnreachable { code, next_hop_mtu: 0, quoted: &quoted };
                let mut bytes = vec![0; message.len()];
                message.emit(&mut bytes);
                packet(there, here, protocol::ICMPV4, &bytes)
            } else {
                let message = icmpv6::Message::DestinationUnreachable { code, quoted: &quoted };
                let mut bytes = vec![0; message.len()];
                message.emit(&mut bytes, &there, &here);
                packet(there, here, protocol::ICMPV6, &bytes)
            };
            assert_eq!(world.ask(&message), None);
            let told: Vec<_> = why.map(|why| (socket, SocketAddr::new(there.to_ip(), 7), why)).into_iter().collect();
            assert_eq!(world.host.seats[0].app.told, told, "code {code}");
        }
    }
}

/// RFC 8201 section 4: over IPv6 nobody on the way cuts what is too long there. What is said of an answer to an echo request is for such alone, since
/// anybody may have said it; and every lane hears of it.
#[test]
fn an_echo_that_is_too_long_for_its_path_is_answered_in_pieces() {
    let [here, there] = [1, 2].map(v6);
    let icmp = |(src, dst), message: icmpv6::Message<'_>| {
        let spec = HeaderSpec::new(src, dst, protocol::ICMPV6);
        let mut packet = vec![0; spec.len() + message.len()];
        output::emit(&spec, &mut packet, message.len());
        message.emit(&mut packet[spec.len()..], &src, &dst);
        packet
    };
    let echo = Echo { id: 1, seq: 1, data: &[7; 1_400] };
    let request = icmp((there, here), icmpv6::Message::EchoRequest(echo));
    let mut world = World::on(Medium::Ip, 2);
    let answer = world.ask(&request).expect("an echo");
    assert_eq!(answer[40..], icmp((here, there), icmpv6::Message::EchoReply(echo))[40..]);
    // Nobody here asks for echoes.
    let asked = icmp((here, there), icmpv6::Message::EchoRequest(echo));
    for (mtu, quoted, len) in [(1_280, &asked, 1_448), (1_279, &answer, 1_448), (1_300, &answer, 1_296)] {
        let said = icmpv6::Message::PacketTooBig { mtu, quoted: &quoted[..1_232] };
        assert_eq!(world.ask(&icmp((there, here), said)), None);
        assert_eq!(world.ask(&request).expect("an echo").len(), len, "{mtu}");
        while world.other[0].rx.poll(64) > 0 {
            world.other[0].rx.release();
        }
        world.host.turn(world.now);
    }
    for seat in &mut world.host.seats {
        let local = &mut seat.lane.local;
        assert_eq!(local.paths.echo_mtu(there), Some(1_300));
        assert_eq!(local.paths.get(&local.snapshot, there).expect("a path").mtu, 1_500);
    }
}

/// An echo request.
fn echo(number: u16) -> Vec<u8> {
    let mut request = [8, 0, 0, 0, 0, 7, 0, 0];
    request[6..].copy_from_slice(&number.to_be_bytes());
    let sum = Sum::of(&request);
    request[2..4].copy_from_slice(&sum.checksum());
    request.to_vec()
}

#[test]
fn who_asks_for_many_echoes_keeps_nobody_from_being_told_of_errors() {
    let mut world = World::on(Medium::Ip, 1);
    let key = flow(&world, 0);
    let answered = (0..200).filter(|number| world.ask(&whole(protocol::ICMPV4, &echo(*number))).is_some()).count();
    assert!((1..100).contains(&answered), "echoes are limited: {answered} of 200");
    let datagram = whole(protocol::UDP, &datagram(&key, 10));
    assert!(world.ask(&datagram).is_some(), "port unreachable");
    // And the other way round.
    let mut world = World::on(Medium::Ip, 1);
    let answered = (0..200).filter(|_| world.ask(&datagram).is_some()).count();
    assert!((1..100).contains(&answered), "errors are limited: {answered} of 200");
    assert!(world.ask(&whole(protocol::ICMPV4, &echo(1))).is_some());
}

/// A kind is limited for itself: about fifty at once, and then a thousand a second.
#[test]
fn each_kind_of_icmp_message_has_its_own_rate() {
    let mut world = World::on(Medium::Ip, 1);
    let (echo, stray) = (whole(protocol::ICMPV4, &echo(1)), whole(protocol::UDP, &datagram(&flow(&world, 0), 10)));
    let both = |world: &mut World| [&echo, &stray].map(|packet| world.ask(packet).is_some() as usize);
    let mut sums = [0; 2];
    let mut ask = |world: &mut World, times: usize| {
        (0..times).for_each(|_| both(world).into_iter().zip(&mut sums).for_each(|(one, sum)| *sum += one));
        std::mem::take(&mut sums)
    };
    let at_once = ask(&mut world, 200);
    assert!(at_once.iter().all(|count| (25..=90).contains(count)), "{at_once:?} at once");
    let mut in_a_second = [0; 2];
    for _ in 0..500 {
        world.now = world.now.after_us(2_000);
        let more = ask(&mut world, 4);
        in_a_second.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
    }
    assert!(in_a_second.iter().all(|count| (850..=1_150).contains(count)), "{in_a_second:?} in a second");
}

/// From one of our own addresses, from a network as a whole: nobody has sent that, and who was answered would be another.
#[test]
fn nothing_is_answered_to_who_cannot_have_sent_it() {
    let mut world = World::on(Medium::Ip, 1);
    world.host.listen("10.0.0.1:80".parse().unwrap(), 8, world.now).unwrap();
    let mut ask = |src: [u8; 4]| {
        let src = Address::from_v4(src);
        let flow = |port| FlowKey { local: HERE, remote: src, local_port: port, remote_port: 40_000 };
        let segments = [(80, 2), (81, 2), (80, 16)].map(|(port, flags)| {
            let mut segment = syn(&flow(port), 0);
            (segment[13], segment[16], segment[17]) = (flags, 0, 0);
            let sum = pseudo_header(&src, &HERE, protocol::TCP, segment.len() as u32) + Sum::of(&segment);
            segment[16..18].copy_from_slice(&sum.checksum());
            (protocol::TCP, segment)
        });
        let others = [(protocol::UDP, datagram(&flow(9), 10)), (protocol::ICMPV4, echo(1)), (200, vec![0; 8])];
        segments
            .into_iter()
            .chain(others)
            .filter(|(protocol, payload)| {
                let spec = HeaderSpec::new(src, HERE, *protocol);
                let mut packet = vec![0; spec.len() + payload.len()];
                output::emit(&spec, &mut packet, payload.len());
                packet[spec.len()..].copy_from_slice(payload);
                world.ask(&packet).is_some()
            })
            .count()
    };
    let answers = [[10, 0, 0, 2], [10, 0, 0, 1], [10, 0, 0, 255]].map(&mut ask);
    assert_eq!(answers, [6, 0, 0]);
    assert_eq!(world.host.counters().discarded(Discard::IpMartianSource), 12);
}

/// What goes before it was whole is lost like anything else, though nobody looks at the fragment that it makes room for.
#[test]
fn datagrams_that_make_room_for_others_are_counted() {
    let mut world = World::on(Medium::Ip, 1);
    for id in 0..300 {
        assert_eq!(world.ask(&fragments(protocol::UDP, &[7; 600], id)[0]), None);
    }
    let counters = world.host.counters();
    let lost = 300 - world.host.seats[0].lane.local.reassembly.len() as u64;
    assert_eq!((lost, counters.discarded(Discard::FragmentBudget), counters.get(Mib::IpReasmFails)), (44, 44, 44));
    // One that is refused was counted as that, and is forgotten without a word.
    let again = &fragments(protocol::UDP, &[8; 600], 299)[0];
    assert_eq!(world.ask(again), None);
    for id in 300..600 {
        assert_eq!(world.ask(&fragments(protocol::UDP, &[7; 600], id)[0]), None);
    }
    let counters = world.host.counters();
    let discarded = |discard| counters.discarded(discard);
    assert_eq!((discarded(Discard::FragmentOverlap), discarded(Discard::FragmentBudget)), (1, 343));
    assert_eq!(counters.get(Mib::IpReasmFails), 344);
}

/// What the link needs is no part of a packet, and a question of ARP is none.
#[test]
fn packets_are_counted_as_ip_sees_them() {
    let mut world = World::new();
    let packet = whole(protocol::UDP, &[0; 8]);
    world.send(0, &packet, /* is_broadcast= */ false);
    world.send(1, &packet, true);
    let counted = |world: &mut World| {
        let counters = world.host.counters();
        (counters.get(Mib::IpInReceives), counters.get(Mib::IpExtInOctets))
    };
    let two = (2, 2 * packet.len() as u64);
    assert_eq!(counted(&mut world), two);
    let others: [(Mac, EtherType, &[u8]); 4] = [
        (Mac::BROADCAST, EtherType::ARP, &[0; 28]),
        (world.mac, EtherType(0x88cc), &[0; 46]),
        (Mac([2, 0, 0, 0, 0, 9]), EtherType::IPV4, &packet),
        (world.mac, EtherType::IPV4, &[]),
    ];
    for (to, ethertype, bytes) in others {
        let tx = &mut world.other[0].tx;
        let frame = [&ethernet::template(to, Mac([2; 6]), ethertype)[..], bytes].concat();
        // The last is too short for a header.
        let frame = &frame[..frame.len() - usize::from(bytes.is_empty())];
        tx.reserve(frame.len()).expect("there is room").copy_from_slice(frame);
        tx.commit(frame.len(), TxMeta::default());
        tx.flush();
        world.host.turn(world.now);
        assert_eq!(counted(&mut world), two, "{ethertype:?} to {to:?}");
    }
}

/// RFC 894 and 2464: what a frame carries stands in its header, and who filters by that must have seen what we see.
#[test]
fn a_frame_carries_what_its_type_says() {
    let (v4, [here, there]) = (whole(protocol::UDP, &datagram(&flow(&World::new(), 0), 10)), [1, 2].map(v6));
    let spec = HeaderSpec::new(there, here, 200);
    let mut v6 = vec![0; spec.len() + 8];
    output::emit(&spec, &mut v6, 8);
    for (ethertype, packet, is_answered) in [
        (EtherType::IPV4, &v4, true),
        (EtherType::IPV6, &v4, false),
        (EtherType::IPV6, &v6, true),
        (EtherType::IPV4, &v6, false),
    ] {
        let mut world = World::new();
        let frame = [&ethernet::template(world.mac, Mac([2; 6]), ethertype)[..], packet].concat();
        let tx = &mut world.other[0].tx;
        tx.reserve(frame.len()).expect("there is room").copy_from_slice(&frame);
        tx.commit(frame.len(), TxMeta::default());
        tx.flush();
        (0..4).for_each(|_| _ = world.host.turn(world.now));
        let counters = world.host.counters();
        // Over IPv6 its neighbour is asked for first, by ICMP as well.
        let asked = u64::from(is_answered && ethertype == EtherType::IPV6);
        let counted = [counters.get(Mib::IcmpOutMsgs) - asked, counters.discarded(Discard::IpMalformed)];
        assert_eq!(counted, [is_answered, !is_answered].map(u64::from), "{ethertype:?}, version {}", packet[0] >> 4);
    }
}

/// RFC 4293: IP is asked for a datagram once, and what it makes of that is counted by itself; octets are those that leave.
#[test]
fn a_datagram_that_leaves_in_fragments_is_counted_once() {
    let mut world = World::on(Medium::Ip, 1);
    // Zeros change no checksum.
    let request = [echo(1), vec![0; 2_992]].concat();
    for piece in fragments(protocol::ICMPV4, &request, 1) {
        world.ask(&piece);
    }
    let counters = world.host.counters();
    let counted = [Mib::IpOutRequests, Mib::IpFragOKs, Mib::IpFragFails, Mib::IpFragCreates, Mib::IpExtOutOctets];
    assert_eq!(counted.map(|mib| counters.get(mib)), [1, 1, 0, 3, 3_000 + 3 * 20]);
}

/// RFC 1122 section 3.3.6: what is for all hosts of one of our networks is for us as well, and nobody answers it.
#[test]
fn what_is_for_all_hosts_of_our_network_is_heard_and_not_answered() {
    for to in [[255; 4], [10, 0, 0, 255]].map(Address::from_v4) {
        let mut world = World::on(Medium::Ip, 1);
        world.host.control.bind_udp("0.0.0.0:53".parse().unwrap()).unwrap();
        world.host.turn(world.now);
        let flow = |port| FlowKey { local: to, remote: THERE, local_port: port, remote_port: 40_000 };
        let mut segment = syn(&flow(9), 0);
        (segment[16], segment[17]) = (0, 0);
        let sum = pseudo_header(&THERE, &to, protocol::TCP, segment.len() as u32) + Sum::of(&segment);
        segment[16..18].copy_from_slice(&sum.checksum());
        let mut ask = |protocol, payload: &[u8]| {
            let spec = HeaderSpec::new(THERE, to, protocol);
            let mut packet = vec![0; spec.len() + payload.len()];
            output::emit(&spec, &mut packet, payload.len());
            packet[spec.len()..].copy_from_slice(payload);
            assert_eq!(world.ask(&packet), None, "{protocol} to {to:?}");
        };
        ask(protocol::UDP, &datagram(&flow(53), 10));
        ask(protocol::UDP, &datagram(&flow(9), 10));
        ask(protocol::ICMPV4, &echo(1));
        ask(protocol::TCP, &segment);
        ask(200, &[0; 8]);
        let spec = HeaderSpec { dont_fragment: false, id: 7, ..HeaderSpec::new(THERE, to, protocol::UDP) };
        let long = datagram(&flow(53), 2_000);
        let mut pieces = Fragments::new(&spec, 7, &long, 576).expect("it may be fragmented");
        while let Some(len) = pieces.next_len() {
            let mut piece = vec![0; len];
            pieces.write_next(&mut piece);
            assert_eq!(world.ask(&piece), None);
        }
        let counters = world.host.counters();
        let counted = [Mib::UdpInDatagrams, Mib::UdpIgnoredMulti, Mib::UdpNoPorts].map(|mib| counters.get(mib));
        assert_eq!(counted, [2, 1, 0], "to {to:?}");
        let discards = [Discard::IcmpIgnored, Discard::TcpMalformed, Discard::IpUnknownProtocol, Discard::IpNotLocal];
        assert_eq!(discards.map(|discard| counters.discarded(discard)), [1, 1, 1, 0], "to {to:?}");
        assert_eq!(counters.get(Mib::IpOutRequests), 0, "to {to:?}");
    }
    // Of other networks it is not known which of their addresses mean that.
    let mut world = World::on(Medium::Ip, 1);
    let spec = HeaderSpec::new(THERE, Address::from_v4([10, 0, 1, 255]), protocol::UDP);
    let mut packet = vec![0; spec.len() + 8];
    output::emit(&spec, &mut packet, 8);
    assert_eq!(world.ask(&packet), None);
    assert_eq!(world.host.counters().discarded(Discard::IpNotLocal), 1);
}

/// Whichever lane has it: each socket that hears it gets a copy, and no other does.
#[test]
fn what_is_for_all_hosts_comes_once_to_each_socket_that_hears_it() {
    let options = |only_v6| BindOptions { reuse_address: true, only_v6, ..BindOptions::default() };
    let bound = ["0.0.0.0", "0.0.0.0", "10.0.0.255", "255.255.255.255", "10.0.0.1", "::"];
    for (to, copies) in [([10, 0, 0, 255], 4), ([255; 4], 4), ([10, 0, 0, 1], 1)] {
        let mut world = World::new();
        let at = bound.map(|ip| (SocketAddr::new(ip.parse().unwrap(), 53), false));
        for (at, only_v6) in
            at.into_iter().chain([("[::]:53".parse().unwrap(), true), ("10.0.0.255:54".parse().unwrap(), false)])
        {
            world.host.control.bind_udp_with(at, options(only_v6)).unwrap();
        }
        world.host.turn(world.now);
        let to = Address::from_v4(to);
        for port in 40_000..40_032 {
            let key = FlowKey { local: to, remote: THERE, local_port: 53, remote_port: port };
            let spec = HeaderSpec::new(THERE, to, protocol::UDP);
            let datagram = datagram(&key, 10);
            let mut packet = vec![0; spec.len() + datagram.len()];
            output::emit(&spec, &mut packet, datagram.len());
            packet[spec.len()..].copy_from_slice(&datagram);
            world.send(usize::from(port) % 2, &packet, /* is_broadcast= */ true);
        }
        let counters = world.host.counters();
        assert!(counters.get(Mib::SteerMailed) > 4, "both lanes have some that are the other's");
        let counted = [Mib::UdpInDatagrams, Mib::UdpIgnoredMulti, Mib::UdpNoPorts].map(|mib| counters.get(mib));
        assert_eq!(counted, [32 * copies, 0, 0], "to {to:?}");
    }
}

/// RFC 4291 section 2.7.1: all nodes on the link, to whom one says what over IPv4 is for all hosts.
#[test]
fn what_is_for_all_nodes_comes_once_to_each_socket_that_hears_it() {
    let mut world = World::on(Medium::Ip, 1);
    let options = BindOptions { reuse_address: true, ..BindOptions::default() };
    for at in ["[::]:53", "[::]:53", "[fd00::1]:53", "0.0.0.0:53"] {
        world.host.control.bind_udp_with(at.parse().unwrap(), options).unwrap();
    }
    world.host.turn(world.now);
    let address = |text: &str| Address::from(text.parse::<std::net::IpAddr>().unwrap());
    let (from, to) = (address("fd00::2"), address("ff02::1"));
    for port in [53, 54] {
        let spec = HeaderSpec::new(from, to, protocol::UDP);
        let datagram = datagram(&FlowKey { local: to, remote: from, local_port: port, remote_port: 9 }, 10);
        let mut packet = vec![0; spec.len() + datagram.len()];
        output::emit(&spec, &mut packet, datagram.len());
        packet[spec.len()..].copy_from_slice(&datagram);
        assert_eq!(world.ask(&packet), None);
    }
    let counters = world.host.counters();
    let counted = [Mib::UdpInDatagrams, Mib::UdpIgnoredMulti, Mib::UdpNoPorts].map(|mib| counters.get(mib));
    assert_eq!(counted, [2, 1, 0]);
}

/// RFC 1122 section 3.2.2.1.
#[test]
fn icmp_for_ipv6_is_no_protocol_of_ipv4() {
    let mut world = World::on(Medium::Ip, 1);
    let answer = world.ask(&whole(protocol::ICMPV6, &[128, 0, 0, 0, 0, 0, 0, 0])).expect("protocol unreachable");
    assert_eq!((answer[9], &answer[20..22]), (protocol::ICMPV4, &[3, 2][..]));
}

/// Over IPv4 nobody asks to be told of a fragment that is none.
#[test]
fn a_bad_fragment_over_ipv4_is_dropped_without_a_word() {
    let mut world = World::on(Medium::Ip, 1);
    let mut piece = fragments(protocol::UDP, &[7; 600], 1).remove(0);
    piece.truncate(20 + 12);
    piece[2..4].copy_from_slice(&32u16.to_be_bytes());
    piece[10..12].fill(0);
    let checksum = Sum::of(&piece[..20]).checksum();
    piece[10..12].copy_from_slice(&checksum);
    assert_eq!(world.ask(&piece), None);
    assert_eq!(world.host.counters().discarded(Discard::FragmentMalformed), 1);
}

/// RFC 1122 section 3.3.2 and RFC 8200 section 4.5: what was not whole in time is said to who has sent it, if its beginning has come.
#[test]
fn what_was_not_whole_in_time_is_said() {
    let six = |offset_and_more: u16| {
        let [high, low] = offset_and_more.to_be_bytes();
        let payload = [&[protocol::UDP, 0, high, low, 0, 0, 0, 9][..], &[7; 16]].concat();
        let spec = HeaderSpec::new(v6(2), v6(1), 44);
        let mut packet = vec![0; spec.len() + payload.len()];
        output::emit(&spec, &mut packet, payload.len());
        packet[spec.len()..].copy_from_slice(&payload);
        packet
    };
    let four = fragments(protocol::UDP, &[7; 600], 1);
    for (piece, said) in [(&four[0], Some([11, 1])), (&four[1], None), (&six(1), Some([3, 1])), (&six(17), None)] {
        let mut world = World::on(Medium::Ip, 1);
        assert_eq!(world.ask(piece), None);
        world.now = world.now.after_us(61_000_000);
        world.host.turn(world.now);
        let rx = &mut world.other[0].rx;
        let header = if piece[0] >> 4 == 4 { 20 } else { 40 };
        let answer = (rx.poll(1) == 1).then(|| rx.frame(0).bytes[header..header + 2].to_vec());
        assert_eq!(answer.as_deref(), said.as_ref().map(|said| &said[..]));
        let counters = world.host.counters();
        assert_eq!((counters.discarded(Discard::FragmentTimeout), counters.get(Mib::IpReasmFails)), (1, 1));
        assert_eq!(counters.get(Mib::IcmpOutMsgs), u64::from(said.is_some()));
    }
}

/// Whether a datagram is as it was sent is asked, unless the device knows.
#[test]
fn a_damaged_datagram_is_nobodys() {
    let mut world = World::on(Medium::Ip, 1);
    world.host.control.bind_udp("10.0.0.1:53".parse().unwrap()).unwrap();
    world.host.turn(world.now);
    let key = FlowKey { local: HERE, remote: THERE, local_port: 53, remote_port: 9 };
    let good = whole(protocol::UDP, &datagram(&key, 10));
    let mut bad = good.clone();
    bad[30] ^= 1;
    assert_eq!((world.ask(&good), world.ask(&bad)), (None, None));
    let counters = world.host.counters();
    let counted = [Mib::UdpInDatagrams, Mib::UdpInErrors].map(|mib| counters.get(mib));
    assert_eq!((counted, counters.discarded(Discard::UdpChecksum)), ([1, 1], 1));
}

/// Where the link carries it as it is, nobody has filled it in.
#[test]
fn a_checksum_that_the_device_answers_for_is_not_asked_for() {
    let mut world = World::linked(LinkConfig { medium: Medium::Ip, ..LinkConfig::default() }.with_offloads());
    world.host.control.bind_udp("10.0.0.1:53".parse().unwrap()).unwrap();
    world.host.turn(world.now);
    let key = FlowKey { local: HERE, remote: THERE, local_port: 53, remote_port: 9 };
    let mut packet = whole(protocol::UDP, &datagram(&key, 10));
    let pseudo = pseudo_header(&THERE, &HERE, protocol::UDP, 18).checksum();
    packet[26..28].copy_from_slice(&pseudo.map(|byte| !byte));
    let tx = &mut world.other[0].tx;
    tx.reserve(packet.len()).expect("there is room").copy_from_slice(&packet);
    let partial = PartialChecksum { start: 20, offset: 6 };
    tx.commit(packet.len(), TxMeta { checksum_partial: Some(partial), ..TxMeta::default() });
    tx.flush();
    world.host.turn(world.now);
    assert_eq!(world.host.counters().get(Mib::UdpInDatagrams), 1);
}

/// What just fits is not cut.
#[test]
fn a_datagram_as_long_as_the_path_carries_leaves_whole() {
    for (zeros, leaves) in [(1_472, [1, 0]), (1_480, [1, 2])] {
        let mut world = World::on(Medium::Ip, 1);
        for piece in fragments(protocol::ICMPV4, &[echo(1), vec![0; zeros]].concat(), 1) {
            world.ask(&piece);
        }
        let counters = world.host.counters();
        let counted = [Mib::IcmpOutMsgs, Mib::IpFragCreates].map(|mib| counters.get(mib));
        assert_eq!(counted, leaves, "{zeros}");
    }
}
