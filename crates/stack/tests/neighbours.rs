//! A host on an Ethernet whose other end is a script: who is asked for, who is given up, and who is asked whether it is still there.

use laneway_device::memory::{self, LinkConfig, LinkQueue, LinkRx, LinkTx};
use laneway_device::{Medium, Rx, Tx, TxMeta};
use laneway_proto::discard::Discard;
use laneway_proto::ethernet;
use laneway_proto::ip::fragment::Fragments;
use laneway_proto::ip::input;
use laneway_proto::ip::output::{self, HeaderSpec};
use laneway_proto::ip::reassembly::Reassembly;
use laneway_proto::ip::route::{Prefix, Route, RouteTable};
use laneway_proto::tcp::CloseReason;
use laneway_proto::time::Instant;
use laneway_stack::app::{App, ConnId, Context};
use laneway_stack::config::Config;
use laneway_stack::control::Network;
use laneway_stack::counters::Mib;
use laneway_stack::entropy::BootSecrets;
use laneway_stack::host::Host;
use laneway_stack::trace::{self, Filter};
use laneway_wire::arp::{Operation, Packet};
use laneway_wire::checksum::{Sum, pseudo_header};
use laneway_wire::ethernet::{EtherType, Mac};
use laneway_wire::flow::Address;
use laneway_wire::icmpv4::Echo;
use laneway_wire::tcp::{Flags, Header, Options, SeqNum, UnscaledWindow};
use laneway_wire::{icmpv6, ndp, protocol};
use std::net::IpAddr;

/// Says something each second on a connection that it opens, for ten seconds of fifty, and sends back what it hears.
struct Talker {
    connects: bool,
    at: Instant,
    connection: Option<ConnId>,
    heard: usize,
}

impl App for Talker {
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        if std::mem::take(&mut self.connects) {
            cx.connect(None, HERE, 80, 0).expect("there are ports");
        }
        let talks = cx.now().as_ms() / 1_000 % 50 < 10 && cx.now() >= self.at;
        if let Some(id) = self.connection.filter(|_| talks) {
            self.at = cx.now().after_us(1_000_000);
            assert_eq!(cx.send(id, b"still there?"), 12);
        }
    }
    fn on_connect(&mut self, _: &mut Context<'_>, id: ConnId) {
        self.connection = Some(id);
    }
    fn on_data(&mut self, cx: &mut Context<'_>, id: ConnId, data: &[u8]) -> usize {
        self.heard += data.len();
        if self.connection.is_none() {
            cx.send(id, data);
        }
        data.len()
    }
}

struct Nobody;
impl App for Nobody {
    fn on_data(&mut self, _: &mut Context<'_>, _: ConnId, data: &[u8]) -> usize {
        data.len()
    }
}

const HERE: Address = Address::from_v4([10, 0, 0, 1]);
const NEIGHBOUR: Address = Address::from_v4([10, 0, 0, 2]);

/// What the host says.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    /// Who has this address? To all, or to one.
    Who(Address, bool),
    /// An echo reply, to this link address.
    Echo(Address, Mac),
}

struct World {
    host: Host<LinkRx, LinkTx, Nobody>,
    other: LinkQueue,
    mac: Mac,
    now: Instant,
    /// Of the datagram that was sent in fragments last.
    id: u16,
}

impl World {
    fn new() -> Self {
        World::with(&["10.0.0.1/16"])
    }

    fn with(addresses: &[&str]) -> Self {
        World::behind(&[], addresses)
    }

    fn behind(gateways: &[&str], addresses: &[&str]) -> Self {
        let (queues, mut other) = memory::link(LinkConfig { medium: Medium::Ethernet, ..LinkConfig::default() });
        let (now, mac) = (Instant::from_us(3_600_000_000), Mac(queues[0].tx.capabilities().mac));
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        let gateways = gateways.iter().map(|gateway| gateway.parse().unwrap()).collect();
        let network = Network { addresses, gateways };
        let secrets = BootSecrets::from_seed(1);
        let host = Host::new(Config::default(), &network, &secrets, queues, now, |_| Nobody).unwrap();
        World { host, other: other.remove(0), mac, now, id: 0 }
    }

    fn send(&mut self, ethertype: EtherType, from: Mac, bytes: &[u8]) {
        self.send_to(self.mac, ethertype, from, bytes);
    }

    fn send_to(&mut self, to: Mac, ethertype: EtherType, from: Mac, bytes: &[u8]) {
        let frame = [&ethernet::template(to, from, ethertype)[..], bytes].concat();
        let tx = &mut self.other.tx;
        tx.reserve(frame.len()).expect("there is room").copy_from_slice(&frame);
        tx.commit(frame.len(), TxMeta::default());
        tx.flush();
    }

    fn ping(&mut self, from: Address) {
        self.ping_to(from, HERE);
    }

    fn ping_to(&mut self, from: Address, to: Address) {
        let mut echo = [8, 0, 0, 0, 0, 1, 0, 1];
        let sum = Sum::of(&echo).checksum();
        echo[2..4].copy_from_slice(&sum);
        let spec = HeaderSpec::new(from, to, protocol::ICMPV4);
        let mut packet = vec![0; spec.len() + echo.len()];
        output::emit(&spec, &mut packet, echo.len());
        packet[spec.len()..].copy_from_slice(&echo);
        self.send(EtherType::IPV4, Mac([2, 0, 0, 0, 0, 9]), &packet);
    }

    /// With so much data that it comes in fragments.
    fn ping_long(&mut self, from: Address, data: usize) {
        let mut echo = vec![0; 8 + data];
        (echo[0], echo[5], echo[7]) = (8, 1, 1);
        let sum = Sum::of(&echo).checksum();
        echo[2..4].copy_from_slice(&sum);
        self.id += 1;
        let spec = HeaderSpec { dont_fragment: false, id: self.id, ..HeaderSpec::new(from, HERE, protocol::ICMPV4) };
        let mut pieces = Fragments::new(&spec, self.id.into(), &echo, 1_500).expect("it may be fragmented");
        while let Some(len) = pieces.next_len() {
            let mut piece = vec![0; len];
            pieces.write_next(&mut piece);
            self.send(EtherType::IPV4, Mac([2, 0, 0, 0, 0, 9]), &piece);
        }
    }

    fn send_v6(&mut self, from: Address, to: Address, message: &icmpv6::Message<'_>) {
        let packet = packet_v6((from, to), (protocol::ICMPV6, &[]), message);
        self.send(EtherType::IPV6, MAC, &packet);
    }

    fn arp(&mut self, operation: Operation, sender: Address, sender_mac: Mac) {
        let mut bytes = [0; 28];
        Packet { operation, sender_mac, sender, target_mac: self.mac, target: HERE }.emit(&mut bytes);
        self.send(EtherType::ARP, sender_mac, &bytes);
    }

    /// Time passes in steps of a millisecond, or of a tenth of a second where nothing is due sooner.
    fn wait(&mut self, ms: u64) -> Vec<Said> {
        self.frames(ms).iter().filter_map(|frame| heard(frame)).collect()
    }

    /// The same, as it leaves.
    fn frames(&mut self, ms: u64) -> Vec<Vec<u8>> {
        let (until, mut said) = (self.now.after_us(ms * 1_000), Vec::new());
        while self.now < until {
            for _ in 0..4 {
                self.host.turn(self.now);
            }
            let frames = self.other.rx.poll(64);
            said.extend((0..frames).map(|i| self.other.rx.frame(i).bytes.to_vec()));
            self.other.rx.release();
            self.now = self.now.after_us(if until.since_us(self.now) > 1_000_000 { 100_000 } else { 1_000 });
        }
        said
    }

    fn discarded(&mut self, discard: Discard) -> u64 {
        self.host.counters().discarded(discard)
    }
}

/// A message behind other headers, of which the first is of this kind.
fn packet_v6((from, to): (Address, Address), (kind, headers): (u8, &[u8]), message: &icmpv6::Message<'_>) -> Vec<u8> {
    let spec = HeaderSpec { hop_limit: 255, ..HeaderSpec::new(from, to, kind) };
    let mut packet = vec![0; spec.len()];
    output::emit(&spec, &mut packet, headers.len() + message.len());
    packet.extend_from_slice(headers);
    let at = packet.len();
    packet.resize(at + message.len(), 0);
    message.emit(&mut packet[at..], &from, &to);
    packet
}

fn heard(frame: &[u8]) -> Option<Said> {
    let (to, bytes) = (Mac(frame[..6].try_into().expect("a header")), &frame[14..]);
    if frame[12..14] == [8, 6] {
        let packet = Packet::parse(bytes).expect("we can write ARP");
        return (packet.operation == Operation::Request).then_some(Said::Who(packet.target, to == Mac::BROADCAST));
    }
    if frame[12..14] == [0x86, 0xdd] {
        let at = |from: usize| Address::from_v6(bytes[from..from + 16].try_into().expect("a header"));
        return match (bytes[6] == protocol::ICMPV6).then(|| bytes[40])? {
            129 => Some(Said::Echo(at(24), to)),
            135 => Some(Said::Who(at(48), !to.is_unicast())),
            _ => None,
        };
    }
    let at = Address::from_v4(bytes[16..20].try_into().expect("a header"));
    (bytes[9] == protocol::ICMPV4).then_some(Said::Echo(at, to))
}

fn stranger(number: u16) -> Address {
    let [upper, lower] = (1_000 + number).to_be_bytes();
    Address::from_v4([10, 0, upper, lower])
}

const MAC: Mac = Mac([2, 0, 0, 0, 0, 2]);

/// A neighbour that was asked for, has answered, and has had its echo.
fn acquainted() -> World {
    let mut world = World::new();
    world.ping(NEIGHBOUR);
    assert_eq!(world.wait(50), [Said::Who(NEIGHBOUR, true)]);
    world.arp(Operation::Reply, NEIGHBOUR, MAC);
    assert_eq!(world.wait(50), [Said::Echo(NEIGHBOUR, MAC)]);
    world
}

#[test]
fn who_does_not_answer_is_asked_three_times_and_given_up() {
    let mut world = World::new();
    world.ping(stranger(1));
    let asked = world.wait(2_900);
    assert_eq!(asked, [0; 3].map(|_| Said::Who(stranger(1), true)));
    assert_eq!(world.discarded(Discard::NeighbourUnreachable), 0, "the third may still be answered");
    assert_eq!(world.wait(400), []);
    assert_eq!(world.discarded(Discard::NeighbourUnreachable), 1, "what waited for it is gone");
    // It comes to life hours later: nothing that is that old is said to it.
    assert_eq!(world.wait(5_000), []);
    world.arp(Operation::Request, stranger(1), MAC);
    assert_eq!(world.wait(50), []);
}

/// The answers were lost. What is said to it after that is asked for at once, and is not lost as well.
#[test]
fn who_was_given_up_a_moment_ago_is_asked_again_for_what_is_said_next() {
    let mut world = World::new();
    world.ping(NEIGHBOUR);
    world.wait(3_100);
    assert_eq!(world.discarded(Discard::NeighbourUnreachable), 1);
    world.ping(NEIGHBOUR);
    assert_eq!(world.wait(900), [Said::Who(NEIGHBOUR, true)], "not more than once a second");
    world.arp(Operation::Reply, NEIGHBOUR, MAC);
    assert_eq!(world.wait(50), [Said::Echo(NEIGHBOUR, MAC)]);
    assert_eq!(world.discarded(Discard::NeighbourUnreachable), 1);
}

/// Anybody can write a source address that nobody has, and each is asked for.
#[test]
fn strangers_that_nobody_is_do_not_keep_a_neighbour_out() {
    let mut world = World::new();
    let mut asked = 0;
    for number in 0..600 {
        world.ping(stranger(number));
        asked += world.wait(1).len();
    }
    assert!((256..300).contains(&asked), "{asked}: as many as may be waited for, and those asked again");
    world.wait(1_000);
    world.ping(NEIGHBOUR);
    assert!(world.wait(50).contains(&Said::Who(NEIGHBOUR, true)), "nobody else is asked for any more");
    world.arp(Operation::Reply, NEIGHBOUR, MAC);
    assert!(world.wait(50).contains(&Said::Echo(NEIGHBOUR, MAC)));
}

/// RFC 4861 section 7.3: what was true half a minute ago is used, and asked about where nothing else says that it still is.
#[test]
fn a_neighbour_that_is_used_is_asked_whether_it_is_still_there() {
    let mut world = acquainted();
    world.wait(31_000);
    world.ping(NEIGHBOUR);
    assert_eq!(world.wait(4_900), [Said::Echo(NEIGHBOUR, MAC)], "it is believed for five seconds more");
    assert_eq!(world.wait(500), [Said::Who(NEIGHBOUR, false)]);
    world.arp(Operation::Reply, NEIGHBOUR, MAC);
    assert_eq!(world.wait(10_000), [], "it has answered");
    // The next time it has gone, and somebody else has its address.
    world.wait(31_000);
    world.ping(NEIGHBOUR);
    let said = world.wait(9_000);
    assert_eq!(said[1..], [0; 3].map(|_| Said::Who(NEIGHBOUR, false)), "{said:?}");
    world.ping(NEIGHBOUR);
    assert_eq!(world.wait(50), [Said::Who(NEIGHBOUR, true)]);
    let other = Mac([2, 0, 0, 0, 0, 7]);
    world.arp(Operation::Reply, NEIGHBOUR, other);
    assert_eq!(world.wait(50), [Said::Echo(NEIGHBOUR, other)]);
}

/// The same of one to whom nothing goes but answers after which none follow: to strangers beyond a router there may be no others, and if nobody asked
/// they would go astray for ever once the router has another link address.
#[test]
fn a_router_by_which_only_strangers_are_answered_is_asked_whether_it_is_still_there() {
    let mut world = World::behind(&["10.0.0.2"], &["10.0.0.1/16"]);
    let knock = |world: &mut World, number: u8| {
        let from = Address::from_v4([192, 0, 2, number]);
        let syn = Header {
            src_port: 1_024,
            dst_port: 80,
            seq: SeqNum::new(7),
            ack: SeqNum::default(),
            flags: Flags::SYN,
            window: UnscaledWindow::default(),
            urgent: 0,
            options: Options::default(),
        };
        let spec = HeaderSpec::new(from, HERE, protocol::TCP);
        let mut packet = vec![0; spec.len() + syn.len()];
        output::emit(&spec, &mut packet, syn.len());
        syn.emit(&mut packet[spec.len()..]);
        let pseudo = pseudo_header(&from, &HERE, protocol::TCP, syn.len() as u32);
        let sum = (pseudo + Sum::of(&packet[spec.len()..])).checksum();
        packet[spec.len() + 16..][..2].copy_from_slice(&sum);
        world.send(EtherType::IPV4, MAC, &packet);
    };
    knock(&mut world, 1);
    assert_eq!(world.wait(50), [Said::Who(NEIGHBOUR, true)]);
    world.arp(Operation::Reply, NEIGHBOUR, MAC);
    world.wait(31_000);
    let mut asked = Vec::new();
    for number in 2..12 {
        knock(&mut world, number);
        asked.extend(world.wait(1_000));
    }
    assert_eq!(asked[..3], [0; 3].map(|_| Said::Who(NEIGHBOUR, false)), "{asked:?}");
    assert_eq!(asked[3], Said::Who(NEIGHBOUR, true), "{asked:?}");
}

/// RFC 4861 section 7.3.1: who acknowledges what is said to him need not be asked whether he is there.
#[test]
fn a_conversation_vouches_for_its_neighbour() {
    let (first, second) = memory::link(LinkConfig { medium: Medium::Ethernet, ..LinkConfig::default() });
    let mut now = Instant::from_us(3_600_000_000);
    let mut ends = [first, second].into_iter();
    let [mut server, mut client] = [("10.0.0.1/16", false), ("10.0.0.2/16", true)].map(|(address, connects)| {
        let network = Network { addresses: vec![address.parse().unwrap()], gateways: vec![] };
        let app = |_| Talker { connects, at: Instant::ZERO, connection: None, heard: 0 };
        let (secrets, end) = (BootSecrets::from_seed(connects.into()), ends.next().unwrap());
        Host::<_, _, Talker>::new(Config::default(), &network, &secrets, end, now, app).unwrap()
    });
    server.listen("10.0.0.1:80".parse().unwrap(), 16, now).unwrap();
    let (tap, mut reader) = trace::tap(Filter::default(), 64);
    server.control.tap(0, tap);
    let (mut asked, mut of_arp) = (Vec::new(), 0);
    for _ in 0..4 {
        for _ in 0..5_000 {
            client.turn(now);
            server.turn(now);
            now = now.after_us(10_000);
            reader.read(64, |frame| of_arp += u64::from(frame.bytes[12..14] == [8, 6]));
        }
        asked.push(of_arp);
    }
    assert_eq!(client.counters().get(Mib::IpOutRequests), server.counters().get(Mib::IpInReceives));
    assert!(client.seats[0].app.heard > 30 * 12, "{} bytes came back", client.seats[0].app.heard);
    assert!(
        asked[0] > 0 && asked[1..].iter().all(|all| *all == asked[0]),
        "asked until the end of each round: {asked:?}"
    );
}

/// RFC 6864 section 4.2: fragments of two datagrams that have the same number would be joined.
#[test]
fn no_two_datagrams_to_one_host_have_the_same_number_within_seconds() {
    let mut world = acquainted();
    let mut numbers = Vec::new();
    for _ in 0..3_000 {
        world.ping(NEIGHBOUR);
        numbers
            .extend(world.frames(1).iter().filter(|frame| heard(frame).is_some()).map(|frame| [frame[18], frame[19]]));
    }
    let all = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    assert!(all > 1_000 && numbers.len() == all, "{} numbers of {all} datagrams", numbers.len());
}

/// The bytes of each datagram that is whole once these frames have come.
fn whole(frames: &[Vec<u8>], now: Instant) -> Vec<usize> {
    let mut reassembly = Reassembly::new(Default::default());
    let secret = BootSecrets::from_seed(2).flow;
    let packets = frames.iter().filter_map(|frame| input::input(frame.get(14..)?, false).ok());
    packets
        .filter_map(|packet| match packet.fragment {
            None => Some(packet.header.len() + packet.payload.len()),
            Some(_) => reassembly.on_fragment(&packet, &secret, now).unwrap().map(|whole| whole.packet.len()),
        })
        .collect()
}

/// The most data that an echo over IPv4 has.
const LONGEST: usize = 65_535 - 20 - 8;

#[test]
fn the_longest_datagram_waits_for_its_neighbour_whole() {
    let mut world = World::new();
    world.ping_long(NEIGHBOUR, LONGEST);
    assert_eq!(world.wait(50), [Said::Who(NEIGHBOUR, true)]);
    world.arp(Operation::Reply, NEIGHBOUR, MAC);
    let frames = world.frames(50);
    assert_eq!((frames.len(), whole(&frames, world.now)), (45, vec![65_535]));
    assert_eq!(world.discarded(Discard::NeighbourQueueFull), 0);
}

/// RFC 4861 section 7.2.2: what is new takes the place of what is oldest, and that is counted.
#[test]
fn what_has_waited_longest_for_a_neighbour_makes_room() {
    let mut world = World::new();
    for _ in 0..4 {
        world.ping_long(NEIGHBOUR, LONGEST);
        world.wait(50);
    }
    world.arp(Operation::Reply, NEIGHBOUR, MAC);
    let frames = world.frames(50);
    assert_eq!(whole(&frames, world.now), [65_535; 3], "the last three");
    let lost = world.discarded(Discard::NeighbourQueueFull);
    assert!((1..=45).contains(&lost), "{lost}");
    assert_eq!(frames.len() as u64 + lost, 4 * 45);
}

/// RFC 4293: IP is asked for a datagram once, whatever it makes of it and whoever that waits for.
#[test]
fn what_waits_for_its_neighbour_is_counted_once() {
    let mut world = World::new();
    let counted = |world: &mut World| {
        let counters = world.host.counters();
        [Mib::IpOutRequests, Mib::IpFragOKs, Mib::IpFragFails, Mib::IpFragCreates].map(|mib| counters.get(mib))
    };
    world.ping_long(NEIGHBOUR, 4_000);
    world.wait(50);
    assert_eq!(counted(&mut world), [1, 1, 0, 3]);
    world.arp(Operation::Reply, NEIGHBOUR, MAC);
    assert_eq!(world.frames(50).len(), 3);
    assert_eq!(counted(&mut world), [1, 1, 0, 3]);
    assert_eq!(world.host.counters().get(Mib::IpExtOutOctets), 4_008 + 3 * 20);
    // More are waited for than can be.
    for number in 0..300 {
        world.ping(stranger(number));
        world.wait(1);
    }
    let [requests, ..] = counted(&mut world);
    world.ping_long(stranger(300), 4_000);
    world.wait(1);
    assert_eq!(counted(&mut world), [requests + 1, 1, 1, 3]);
}

#[test]
fn somebody_else_who_has_our_address_is_counted() {
    let mut world = acquainted();
    world.arp(Operation::Request, HERE, MAC);
    world.wait(50);
    assert_eq!(world.discarded(Discard::NeighbourConflict), 1);
    assert_eq!(world.host.counters().get(Mib::IcmpOutMsgs), 1);
}

/// RFC 4293: a packet of neighbour discovery is one of IP and a message of ICMP, in and out, though no lane answers it. A question of ARP is neither.
#[test]
fn neighbour_discovery_is_counted_as_icmp() {
    let mut world = World::with(&["10.0.0.1/16", "fd00::1/64"]);
    let address = |text: &str| Address::from(text.parse::<std::net::IpAddr>().unwrap());
    let (ours, theirs) = (address("fd00::1"), address("fd00::2"));
    let counted = |world: &mut World| {
        let counters = world.host.counters();
        let (received, sent) = (Mib::IpInReceives, Mib::IpOutRequests);
        [received, Mib::IcmpInMsgs, Mib::IcmpInErrors, sent, Mib::IcmpOutMsgs].map(|mib| counters.get(mib))
    };
    world.arp(Operation::Request, NEIGHBOUR, MAC);
    assert_eq!(world.frames(10).len(), 1);
    assert_eq!(counted(&mut world), [0; 5]);
    let asks = ndp::Message::NeighbourSolicit { target: ours, source_link: Some(MAC) };
    world.send_v6(theirs, ours, &icmpv6::Message::Ndp(asks));
    assert_eq!(world.frames(10).len(), 1);
    assert_eq!(counted(&mut world), [1, 1, 0, 1, 1]);
    assert_eq!(world.host.counters().get(Mib::IpExtOutOctets), 40 + 32);
    // A redirect is heard and ignored.
    let redirect = icmpv6::Message::Other { kind: 137, code: 0, rest: [0; 4], data: &[0; 32] };
    world.send_v6(theirs, ours, &redirect);
    assert_eq!(world.frames(10).len(), 0);
    assert_eq!(counted(&mut world), [2, 2, 1, 1, 1]);
}

/// The control plane is late, and everybody on the link asks for us.
#[test]
fn a_flood_of_questions_leaves_room_for_answers_of_the_lane() {
    let mut world = World::new();
    for number in 0..2_000 {
        world.arp(Operation::Request, stranger(number), MAC);
        world.host.seats[0].turn(world.now);
    }
    let passed_over = world.discarded(Discard::SteerRingFull);
    assert!((1_000..1_500).contains(&passed_over), "{passed_over}");
    world.host.listen("0.0.0.0:80".parse().unwrap(), 16, world.now).expect("the lane says that it listens");
}

/// A router of IPv6 may be known by the address that it has on the link alone, to which no route leads. What has waited for it goes there,
/// whatever it is.
#[test]
fn what_has_waited_for_a_router_is_sent_to_it() {
    let address = |text: &str| Address::from(text.parse::<IpAddr>().unwrap());
    let (here, router, far) = (address("fd00::1"), address("fe80::1"), address("2001:db8::7"));
    let mut world = World::with(&["fd00::1/64"]);
    let prefix = Prefix::of(far, 32).unwrap();
    let route = Route { prefix, next_hop: Some(router), interface: 0, mtu: None, source: Some(here) };
    world.host.control.replace_routes(RouteTable::builder().add(route).build().unwrap()).unwrap();
    world.wait(10);
    world.send_v6(far, here, &icmpv6::Message::EchoRequest(Echo { id: 1, seq: 1, data: b"who waits" }));
    assert_eq!(world.wait(50), [Said::Who(router, true)]);
    let (target_link, solicited) = (Some(MAC), true);
    let advert =
        ndp::Message::NeighbourAdvert { target: router, router: true, solicited, override_entry: true, target_link };
    world.send_v6(router, here, &icmpv6::Message::Ndp(advert));
    assert_eq!(world.wait(50), [Said::Echo(far, MAC)]);
}

/// Who has addresses in several networks asks by the one in that of the neighbour, as the kernel does: who is asked by another may have no way back to
/// it, and then does not answer.
#[test]
fn a_neighbour_is_asked_by_the_address_that_is_in_its_network() {
    let address = |text: &str| Address::from(text.parse::<IpAddr>().unwrap());
    let mut world = World::with(&["10.0.0.1/16", "192.168.5.2/24", "2001:db8::2/64", "fd00:5::2/64", "fe80::2/64"]);
    for (neighbour, ours) in [("10.0.0.9", "10.0.0.1"), ("192.168.5.9", "192.168.5.2")] {
        world.ping_to(address(neighbour), address(ours));
        let asked: Vec<Packet> = world.frames(50).iter().map(|frame| Packet::parse(&frame[14..]).unwrap()).collect();
        let who: Vec<(Address, Address)> = asked.iter().map(|packet| (packet.sender, packet.target)).collect();
        assert_eq!(who, [(address(ours), address(neighbour))]);
    }
    let all = address("ff02::1");
    let echo = icmpv6::Message::EchoRequest(Echo { id: 1, seq: 1, data: b"who is there" });
    for (neighbour, ours) in [("2001:db8::9", "2001:db8::2"), ("fd00:5::9", "fd00:5::2"), ("fe80::9", "fe80::2")] {
        let (neighbour, ours) = (address(neighbour), address(ours));
        let source = |frame: &Vec<u8>| Address::from_v6(frame[22..38].try_into().unwrap());
        world.send_v6(neighbour, all, &echo);
        let asked = world.frames(50);
        assert_eq!(asked.iter().map(source).collect::<Vec<_>>(), [ours], "the question");
        let (target_link, solicited) = (Some(MAC), true);
        let advert = ndp::Message::NeighbourAdvert {
            target: neighbour,
            router: false,
            solicited,
            override_entry: true,
            target_link,
        };
        world.send_v6(neighbour, ours, &icmpv6::Message::Ndp(advert));
        assert_eq!(world.frames(50).iter().map(source).collect::<Vec<_>>(), [ours], "what was said to all");
    }
}

/// RFC 4861 section 5.1: the link-local prefix is on the link, whatever else is known of it. A router may not hand on what is for there (RFC 4291
/// section 2.5.6).
#[test]
fn an_address_of_the_link_is_asked_for_on_the_link() {
    let address = |text: &str| Address::from(text.parse::<IpAddr>().unwrap());
    let (here, neighbour) = (address("fd00::1"), address("fe80::7"));
    for gateways in [&[][..], &["fd00::9"], &["fe80::9"]] {
        let mut world = World::behind(gateways, &["fd00::1/64"]);
        let echo = icmpv6::Message::EchoRequest(Echo { id: 1, seq: 1, data: b"from beside you" });
        world.send_v6(neighbour, here, &echo);
        assert_eq!(world.wait(50), [Said::Who(neighbour, true)], "behind {gateways:?}");
    }
}

/// RFC 4443 sections 2.2 and 4.2: what was said to one of our addresses is answered from it, however the link has brought it.
#[test]
fn what_came_to_one_of_our_addresses_by_multicast_is_answered_from_it() {
    let address = |text: &str| Address::from(text.parse::<IpAddr>().unwrap());
    let (first, second, neighbour) = (address("fd00::1"), address("fd00::2"), address("fd00::7"));
    let mut world = World::with(&["fd00::1/64", "fd00::2/64"]);
    let ask = ndp::Message::NeighbourSolicit { target: first, source_link: Some(MAC) };
    world.send_v6(neighbour, first, &icmpv6::Message::Ndp(ask));
    world.wait(50);
    let echo = icmpv6::Message::EchoRequest(Echo { id: 1, seq: 1, data: b"all of a cluster hear it" });
    for (to, headers) in [(first, (protocol::ICMPV6, &[][..])), (second, (protocol::ICMPV6, &[]))] {
        let packet = packet_v6((neighbour, to), headers, &echo);
        world.send_to(Mac([3, 0, 0, 0, 0, 1]), EtherType::IPV6, MAC, &packet);
        let sources: Vec<Address> =
            world.frames(50).iter().map(|frame| Address::from_v6(frame[22..38].try_into().unwrap())).collect();
        assert_eq!(sources, [to]);
    }
}

/// RFC 8200 section 4 has headers in any order, and RFC 4861 section 7.1.1 refuses a question for none of them; RFC 6980 section 5 for that of a
/// fragment.
#[test]
fn a_question_behind_extension_headers_is_answered() {
    let address = |text: &str| Address::from(text.parse::<IpAddr>().unwrap());
    let (here, neighbour) = (address("fd00::1"), address("fd00::7"));
    let mut world = World::with(&["fd00::1/64"]);
    let ask = icmpv6::Message::Ndp(ndp::Message::NeighbourSolicit { target: here, source_link: Some(MAC) });
    let (options, atomic) = ([58, 0, 1, 4, 0, 0, 0, 0], [58, 0, 0, 0, 0, 0, 0, 1]);
    let both = [[44, 0, 1, 4, 0, 0, 0, 0], atomic].concat();
    for (kind, headers, is_answered) in
        [(58, &[][..], true), (60, &options, true), (0, &options, true), (44, &atomic, false), (60, &both, false)]
    {
        let packet = packet_v6((neighbour, here), (kind, headers), &ask);
        world.send(EtherType::IPV6, MAC, &packet);
        assert_eq!(world.frames(50).len(), usize::from(is_answered), "{kind}, {headers:?}");
    }
}

/// What was said to another host is none of our business, and be it about us, or to our link address.
#[test]
fn neighbour_discovery_that_is_for_another_host_changes_nothing() {
    let address = |text: &str| Address::from(text.parse::<IpAddr>().unwrap());
    let (here, neighbour) = (address("fd00::1"), address("fd00::7"));
    let ask = icmpv6::Message::Ndp(ndp::Message::NeighbourSolicit { target: here, source_link: Some(MAC) });
    for (to, is_answered) in
        [("fd00::1", true), ("ff02::1:ff00:1", true), ("fd00::8", false), ("ff02::1:ff00:8", false)]
    {
        let mut world = World::with(&["fd00::1/64"]);
        world.send_v6(neighbour, address(to), &ask);
        assert_eq!(world.frames(50).len(), usize::from(is_answered), "{to}");
        assert_eq!(world.discarded(Discard::IpNotLocal), u64::from(!is_answered), "{to}");
    }
}

/// Connects to whom it is told to, once a second, and keeps what becomes of it.
#[derive(Default)]
struct Caller {
    calls: Vec<Address>,
    at: Instant,
    ended: Vec<(u64, CloseReason)>,
}

impl App for Caller {
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        if cx.now() >= self.at
            && let Some(to) = self.calls.pop()
        {
            self.at = cx.now().after_us(1_000_000);
            cx.connect(None, to, 80, cx.now().as_ms()).expect("there is a way");
        }
    }
    fn on_data(&mut self, _: &mut Context<'_>, _: ConnId, data: &[u8]) -> usize {
        data.len()
    }
    fn on_closed(&mut self, cx: &mut Context<'_>, _: ConnId, began: u64, reason: CloseReason) {
        self.ended.push((cx.now().as_ms() - began, reason));
    }
}

/// RFC 4861 section 7.2.2, and of ARP the same: a connect to an address that nobody has fails when the questions were in vain, as the kernel's does,
/// and not when the last SYN was.
#[test]
fn a_connect_to_nobody_fails_when_nobody_answers() {
    let address = |text: &str| Address::from(text.parse::<IpAddr>().unwrap());
    for (ours, gateway, to) in [
        ("10.0.0.1/16", None, "10.0.0.7"),
        ("fd00::1/64", None, "fd00::7"),
        ("10.0.0.1/16", Some("10.0.0.9"), "192.0.2.1"), // it is the router that is not there
    ] {
        let (queues, mut other) = memory::link(LinkConfig { medium: Medium::Ethernet, ..LinkConfig::default() });
        let mut now = Instant::from_us(3_600_000_000);
        let network = Network {
            addresses: vec![ours.parse().unwrap()],
            gateways: gateway.iter().map(|gateway| gateway.parse().unwrap()).collect(),
        };
        let app = |_| Caller { calls: vec![address(to); 2], ..Caller::default() };
        let secrets = BootSecrets::from_seed(1);
        let mut host = Host::<_, _, Caller>::new(Config::default(), &network, &secrets, queues, now, app).unwrap();
        for _ in 0..1_000 {
            host.turn(now);
            now = now.after_us(10_000);
            other[0].rx.poll(64);
            other[0].rx.release();
        }
        let ended = &host.seats[0].app.ended;
        let is_soon = |(ms, reason): &(u64, CloseReason)| *reason == CloseReason::HostUnreachable && *ms <= 3_100;
        assert!(ended.len() == 2 && ended.iter().all(is_soon), "{to}: {ended:?}");
        assert_eq!(host.counters().get(Mib::TcpAttemptFails), 2);
    }
}

/// So does one whose questions nobody answers and nobody gives up, for the thread that asks them does not run: the lane waits for it no longer than that.
#[test]
fn a_connect_fails_though_nobody_asks() {
    let (queues, _other) = memory::link(LinkConfig { medium: Medium::Ethernet, ..LinkConfig::default() });
    let mut now = Instant::from_us(3_600_000_000);
    let network = Network { addresses: vec!["10.0.0.1/16".parse().unwrap()], gateways: vec![] };
    let app = |_| Caller { calls: vec![NEIGHBOUR], ..Caller::default() };
    let secrets = BootSecrets::from_seed(1);
    let mut host = Host::<_, _, Caller>::new(Config::default(), &network, &secrets, queues, now, app).unwrap();
    for _ in 0..600 {
        host.seats[0].turn(now);
        now = now.after_us(10_000);
    }
    let ended = &host.seats[0].app.ended;
    assert!(matches!(ended[..], [(_, CloseReason::HostUnreachable)]), "{ended:?}");
}
