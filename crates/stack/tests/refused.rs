//! IPv6 packets that are refused for their extension headers: whom is told what of them (RFC 8200 section 4, RFC 4443).

use laneway_device::memory::{self, LinkConfig, LinkQueue, LinkRx, LinkTx};
use laneway_device::{Medium, Rx, Tx, TxMeta};
use laneway_proto::discard::Discard;
use laneway_proto::ip::output::{self, HeaderSpec};
use laneway_proto::time::Instant;
use laneway_stack::app::{App, ConnId, Context};
use laneway_stack::config::Config;
use laneway_stack::control::Network;
use laneway_stack::entropy::BootSecrets;
use laneway_stack::host::Host;
use laneway_wire::flow::Address;
use laneway_wire::icmpv4::Echo;
use laneway_wire::icmpv6::Message;
use laneway_wire::{ipv6, protocol};

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const OPTIONS: u8 = 60;

struct Nobody;
impl App for Nobody {
    fn on_data(&mut self, _: &mut Context<'_>, _: ConnId, data: &[u8]) -> usize {
        data.len()
    }
}

struct World {
    host: Host<LinkRx, LinkTx, Nobody>,
    other: LinkQueue,
    now: Instant,
}

fn address(text: &str) -> Address {
    Address::from(text.parse::<std::net::IpAddr>().unwrap())
}

impl World {
    fn new() -> Self {
        let (queues, mut other) = memory::link(LinkConfig { medium: Medium::Ip, ..LinkConfig::default() });
        let gateways = vec!["fd00::9".parse().unwrap()];
        let network = Network { addresses: vec!["fd00::1/64".parse().unwrap()], gateways };
        let now = Instant::from_us(3_600_000_000);
        let secrets = BootSecrets::from_seed(1);
        let host = Host::new(Config::default(), &network, &secrets, queues, now, |_| Nobody).unwrap();
        World { host, other: other.remove(0), now }
    }

    /// A packet comes to `to`, whose first header is of kind `next`. What is said of it: by whom, of which code, and where.
    fn told(&mut self, to: &str, next: u8, payload: &[u8]) -> Option<(Address, u8, u32)> {
        let packet = packet("fd00::2", to, next, payload);
        self.answer(&packet).map(|reply| {
            let reply = ipv6::View::new(&reply).unwrap();
            assert_eq!((reply.dst(), reply.next_header()), (address("fd00::2"), protocol::ICMPV6));
            match Message::parse(reply.payload(), &reply.src(), &reply.dst()).unwrap() {
                Message::ParameterProblem { code, pointer, quoted } => {
                    // Of a datagram that came in fragments it is the whole.
                    assert!(quoted == packet || next == FRAGMENT);
                    (reply.src(), code, pointer)
                }
                other => panic!("{other:?}"),
            }
        })
    }

    /// A packet comes. The one that answers it.
    fn answer(&mut self, packet: &[u8]) -> Option<Vec<u8>> {
        let frame = self.other.tx.reserve(packet.len()).expect("the link is empty");
        frame.copy_from_slice(packet);
        self.other.tx.commit(packet.len(), TxMeta::default());
        self.other.tx.flush();
        self.now = self.now.after_us(1_000_000);
        self.host.turn(self.now);
        self.host.turn(self.now);
        let frames = self.other.rx.poll(8);
        assert!(frames <= 1, "{frames} answers");
        let said = (frames == 1).then(|| self.other.rx.frame(0).bytes.to_vec());
        self.other.rx.release();
        said
    }
}

fn packet(from: &str, to: &str, next: u8, payload: &[u8]) -> Vec<u8> {
    let spec = HeaderSpec::new(address(from), address(to), next);
    let mut packet = vec![0; spec.len() + payload.len()];
    output::emit(&spec, &mut packet, payload.len());
    packet[spec.len()..].copy_from_slice(payload);
    packet
}

/// Options that fill a header, and a header of 8 bytes that is followed by `next`.
fn options(next: u8, options: [u8; 6]) -> Vec<u8> {
    [&[next, 0][..], &options].concat()
}

const HERE: &str = "fd00::1";
const ALL: &str = "ff02::1";

#[test]
fn an_unknown_option_is_reported_as_its_type_asks() {
    let mut world = World::new();
    let of = |kind: u8| [options(protocol::UDP, [1, 0, kind, 2, 0, 0]), vec![0; 8]].concat();
    let ours = address(HERE);
    for (to, kind, said) in [
        (HERE, 0x41, None),
        (HERE, 0x81, Some((ours, 2, 44))),
        (HERE, 0xc1, Some((ours, 2, 44))),
        (ALL, 0x41, None),
        (ALL, 0x81, Some((ours, 2, 44))),
        (ALL, 0xc1, None),
        ("fd00::9", 0x81, None),
    ] {
        for first in [OPTIONS, HOP_BY_HOP] {
            assert_eq!(world.told(to, first, &of(kind)), said, "{kind:#x} to {to}");
        }
    }
    assert_eq!(world.host.counters().discarded(Discard::Ipv6ExtensionHeader), 14);
}

#[test]
fn a_header_that_may_not_stand_there_is_reported() {
    let mut world = World::new();
    let ours = address(HERE);
    for kind in [0, 4, 253] {
        let routing = [vec![protocol::TCP, 0, kind, 1, 0, 0, 0, 0], vec![0; 20]].concat();
        assert_eq!(world.told(HERE, ROUTING, &routing), Some((ours, 0, 42)), "type {kind}");
        assert_eq!(world.told(ALL, ROUTING, &routing), None);
    }
    let late = [options(HOP_BY_HOP, [1, 4, 0, 0, 0, 0]), options(protocol::UDP, [1, 4, 0, 0, 0, 0])].concat();
    assert_eq!(world.told(HERE, OPTIONS, &late), Some((ours, 1, 40)));
}

#[test]
fn a_first_fragment_that_cannot_be_one_is_reported() {
    let mut world = World::new();
    let ours = address(HERE);
    let fragment =
        |offset: u8, next: u8, len: usize| [vec![next, 0, 0, offset | 1, 0, 0, 0, 1], vec![200; len]].concat();
    assert_eq!(world.told(HERE, FRAGMENT, &fragment(0, protocol::UDP, 1_003)), Some((ours, 0, 4)));
    assert_eq!(world.told(HERE, FRAGMENT, &fragment(8, protocol::UDP, 1_003)), None, "of what, nobody knows");
    assert_eq!(world.told(HERE, FRAGMENT, &fragment(0, protocol::TCP, 8)), Some((ours, 3, 0)));
    let of_an_error = [vec![protocol::ICMPV6, 0, 0, 1, 0, 0, 0, 1], vec![1; 1_003]].concat();
    assert_eq!(world.told(HERE, FRAGMENT, &of_an_error), None);
}

/// RFC 4443 section 2.4 (e.1).
#[test]
fn an_error_is_answered_by_none_whatever_stands_before_it() {
    let mut world = World::new();
    let before =
        |kind: u8| [options(protocol::ICMPV6, [0x81, 2, 0, 0, 1, 0]), vec![kind, 0, 0, 0, 0, 0, 0, 0]].concat();
    assert_eq!(world.told(HERE, OPTIONS, &before(1)), None);
    assert_eq!(world.told(HERE, OPTIONS, &before(128)).map(|(_, code, at)| (code, at)), Some((2, 42)));
}

/// What stands behind the fragment header is for whoever has the whole: until then only that all headers are there matters.
#[test]
fn an_option_of_a_datagram_in_fragments_is_reported_as_its_type_asks() {
    let ours = address(HERE);
    for (kind, said) in [(0x41, None), (0x81, Some((ours, 2, 44))), (0xc1, Some((ours, 2, 44)))] {
        let mut world = World::new();
        let first = [
            vec![OPTIONS, 0, 0, 1, 0, 0, 0, 1],
            options(protocol::UDP, [1, 0, kind, 2, 0, 0]),
            vec![0, 9, 0, 9, 0, 16, 0, 0],
        ];
        assert_eq!(world.told(HERE, FRAGMENT, &first.concat()), None, "{kind:#x}");
        let last = [[OPTIONS, 0, 0, 16, 0, 0, 0, 1], [0; 8]].concat();
        assert_eq!(world.told(HERE, FRAGMENT, &last), said, "{kind:#x}");
        assert_eq!(world.host.counters().discarded(Discard::Ipv6ExtensionHeader), 1);
    }
}

/// RFC 8200 section 4: nor may a hop-by-hop header stand behind that of a fragment, where the whole would have it first.
#[test]
fn a_fragment_does_not_begin_with_what_is_for_each_hop() {
    let mut world = World::new();
    let piece = [options(protocol::UDP, [1, 4, 0, 0, 0, 0]), vec![0; 8]].concat();
    for more in [0, 1] {
        let fragment = [&[HOP_BY_HOP, 0, 0, more, 0, 0, 0, 1], &piece[..]].concat();
        assert_eq!(world.told(HERE, FRAGMENT, &fragment), Some((address(HERE), 1, 40)), "more: {more}");
    }
    // What a later one says of it counts for nothing (RFC 8200 section 4.5).
    let first = [vec![protocol::UDP, 0, 0, 1, 0, 0, 0, 2, 0, 9, 0, 9, 0, 16, 0, 0]].concat();
    assert_eq!(world.told(HERE, FRAGMENT, &first), None);
    assert_eq!(world.told(HERE, FRAGMENT, &[[HOP_BY_HOP, 0, 0, 8, 0, 0, 0, 2], [0; 8]].concat()), None);
    assert_eq!(world.host.counters().discarded(Discard::UdpChecksum), 1, "it is whole");
}

/// RFC 8200 section 4.2: its type says what is to be done by who does not know it.
#[test]
fn a_jumbo_payload_option_is_one_that_is_not_known() {
    let mut world = World::new();
    let jumbo = [options(protocol::UDP, [0xc2, 4, 0, 1, 0, 0]), vec![0; 8]].concat();
    assert_eq!(world.told(HERE, HOP_BY_HOP, &jumbo), Some((address(HERE), 2, 42)));
    assert_eq!(world.told(ALL, HOP_BY_HOP, &jumbo), None);
}

/// RFC 8200 section 4.5: what is reserved in a fragment header says nothing; least of all a length.
#[test]
fn an_unknown_protocol_is_found_behind_any_fragment_header() {
    let mut world = World::new();
    for reserved in [0, 0xff] {
        let atomic = [vec![OPTIONS, reserved, 0, 0, 0, 0, 0, 1], options(200, [1, 4, 0, 0, 0, 0])].concat();
        assert_eq!(world.told(HERE, FRAGMENT, &atomic), Some((address(HERE), 1, 48)), "{reserved:#x}");
    }
}

/// ICMP is a protocol of IPv4: over IPv6 it is as unknown as any other.
#[test]
fn icmp_for_ipv4_is_no_protocol_of_ipv6() {
    let mut world = World::new();
    let echo = [8, 0, 0xf7, 0xff, 0, 0, 0, 0];
    assert_eq!(world.told(HERE, protocol::ICMPV4, &echo), Some((address(HERE), 1, 6)));
    assert_eq!(world.host.counters().discarded(Discard::IpUnknownProtocol), 1);
}

/// RFC 4291 section 2.5.2: the unspecified address is nobody's, so nothing is sent there.
#[test]
fn who_has_no_address_gets_no_echo() {
    let mut world = World::new();
    for (from, is_answered) in [("fd00::2", true), ("2001:db8::2", true), ("::", false)] {
        let request = Message::EchoRequest(Echo { id: 1, seq: 1, data: b"who am I?" });
        let mut bytes = vec![0; request.len()];
        request.emit(&mut bytes, &address(from), &address(HERE));
        let answer = world.answer(&packet(from, HERE, protocol::ICMPV6, &bytes));
        assert_eq!(answer.is_some(), is_answered, "from {from}");
    }
    assert_eq!(world.host.counters().discarded(Discard::IcmpIgnored), 1);
}
