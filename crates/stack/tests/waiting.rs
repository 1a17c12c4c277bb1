//! Whoever waits is told in the end: for memory to send with, for bytes that lie together, for fragments that
//! never came, for room in a device.

use laneway_device::memory::{LinkConfig, LinkQueue, LinkRx, LinkTx, link};
use laneway_device::{Medium, Rx, Tx};
use laneway_proto::discard::Discard;
use laneway_proto::tcp;
use laneway_proto::time::Instant;
use laneway_stack::app::{App, ConnId, Context, ListenerId};
use laneway_stack::config::Config;
use laneway_stack::control::Network;
use laneway_stack::counters::Mib;
use laneway_stack::entropy::BootSecrets;
use laneway_stack::host::Host;
use laneway_wire::checksum::{Sum, pseudo_header};
use laneway_wire::flow::Address;
use laneway_wire::{icmpv4, icmpv6, ipv4, ipv6, protocol};
use std::collections::VecDeque;

type Verb = Box<dyn FnMut(&mut Context<'_>)>;

/// An application that does what it is told, and takes messages of a fixed size.
#[derive(Default)]
struct Told {
    verbs: VecDeque<Verb>,
    connections: Vec<ConnId>,
    /// Takes only as many bytes as make whole messages of this size; 0: none at all.
    message: usize,
    taken: Vec<u8>,
    writable: Vec<ConnId>,
    /// Accepts nobody.
    is_deaf: bool,
}

impl App for Told {
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        while let Some(mut verb) = self.verbs.pop_front() {
            verb(cx);
        }
    }
    fn on_acceptable(&mut self, cx: &mut Context<'_>, listener: ListenerId) {
        while let Some(id) = if self.is_deaf { None } else { cx.accept(listener) } {
            self.on_accept(cx, id);
        }
    }
    fn on_connect(&mut self, _: &mut Context<'_>, id: ConnId) {
        self.connections.push(id);
    }
    fn on_accept(&mut self, _: &mut Context<'_>, id: ConnId) {
        self.connections.push(id);
    }
    fn on_data(&mut self, _: &mut Context<'_>, _: ConnId, data: &[u8]) -> usize {
        let n = data.len().checked_div(self.message).unwrap_or(0) * self.message;
        self.taken.extend_from_slice(&data[..n]);
        n
    }
    fn on_writable(&mut self, cx: &mut Context<'_>, id: ConnId) {
        self.writable.push(id);
        assert!(cx.send(id, b"at last") > 0, "told that there is room, and there is none");
    }
}

struct World {
    client: Host<LinkRx, LinkTx, Told>,
    server: Host<LinkRx, LinkTx, Told>,
    now: Instant,
}

fn host(config: &Config, ip: &[&str], queues: Vec<LinkQueue>, now: Instant) -> Host<LinkRx, LinkTx, Told> {
    let network = Network { addresses: ip.iter().map(|ip| ip.parse().unwrap()).collect(), gateways: vec![] };
    Host::new(config.clone(), &network, &BootSecrets::from_seed(7), queues, now, |_| Told::default()).unwrap()
}

impl World {
    /// A client with so many connections to a server that has its own settings.
    fn new(config: &Config, connections: usize) -> World {
        let now = Instant::from_us(3_600_000_000);
        let (a, b) = link(LinkConfig::default());
        let mut world = World {
            client: host(&Config::default(), &["10.0.0.2/24"], a, now),
            server: host(config, &["10.0.0.1/24"], b, now),
            now,
        };
        world.server.listen("0.0.0.0:80".parse().unwrap(), 64, now).unwrap();
        for n in 1..=connections {
            let connect = |cx: &mut Context<'_>| _ = cx.connect(None, Address::from_v4([10, 0, 0, 1]), 80, 0).unwrap();
            world.client.seats[0].app.verbs.push_back(Box::new(connect));
            world.turn(20);
            assert_eq!(world.server.seats[0].app.connections.len(), n);
        }
        world
    }

    fn turn(&mut self, turns: usize) {
        for _ in 0..turns {
            self.client.turn(self.now);
            self.server.turn(self.now);
            self.now = self.now.after_us(100);
        }
    }

    fn tell_client(&mut self, verb: impl FnMut(&mut Context<'_>) + 'static) {
        self.client.seats[0].app.verbs.push_back(Box::new(verb));
        self.turn(20);
    }

    fn tell_server(&mut self, verb: impl FnMut(&mut Context<'_>) + 'static) {
        self.server.seats[0].app.verbs.push_back(Box::new(verb));
        self.turn(20);
    }
}

/// A server without memory: what it does not read on its first two connections is all that it has.
fn without_memory(connections: usize) -> World {
    let mut world = World::new(&Config { lane_mem: 8_192 + 2_048, ..Config::default() }, connections);
    for (n, bytes) in [5_000, 1_000].into_iter().enumerate() {
        let id = world.client.seats[0].app.connections[n];
        world.tell_client(move |cx| assert_eq!(cx.send(id, &[1; 5_000][..bytes]), bytes));
    }
    world
}

#[test]
fn who_was_refused_memory_to_send_hears_when_there_is_some() {
    let mut world = without_memory(5);
    let ids = world.server.seats[0].app.connections.clone();
    let others = [ids[2], ids[3], ids[4]];
    for _ in 0..3 {
        world.tell_server(move |cx| others.iter().for_each(|id| assert_eq!(cx.send(*id, b"no memory"), 0)));
    }
    world.turn(100);
    assert!(world.server.seats[0].app.writable.is_empty());
    // It reads, and has memory again; the others have nothing in flight, so no acknowledgement of theirs will say so.
    world.server.seats[0].app.message = 1;
    world.tell_server(move |cx| cx.resume(ids[0]));
    assert_eq!(world.server.seats[0].app.taken.len(), 5_000);
    assert_eq!(world.server.seats[0].app.writable, others, "each once, in the order in which they asked");
    assert!(!world.server.turn(world.now).busy, "and then nothing is left to do");
}

#[test]
fn who_left_before_there_was_memory_is_not_told() {
    let mut world = without_memory(4);
    let ids = world.server.seats[0].app.connections.clone();
    let (third, fourth) = (ids[2], ids[3]);
    world.tell_server(move |cx| assert_eq!((cx.send(third, b"a"), cx.send(fourth, b"b")), (0, 0)));
    world.tell_server(move |cx| cx.abort(third));
    world.tell_server(move |cx| cx.shutdown(fourth));
    world.server.seats[0].app.message = 1;
    world.tell_server(move |cx| cx.resume(ids[0]));
    assert_eq!(world.server.seats[0].app.taken.len(), 5_000);
    assert!(world.server.seats[0].app.writable.is_empty());
}

#[test]
fn a_message_that_wraps_in_the_kept_bytes_is_shown_whole() {
    let mut world = World::new(&Config::default(), 1);
    let id = world.client.seats[0].app.connections[0];
    world.server.seats[0].app.message = 3_000;
    let byte = |at: usize| (at ^ (at >> 8)) as u8;
    for n in 0..60 {
        // So that there is always something left, and the ring is never given back.
        let piece: Vec<u8> = (n * 1_700..(n + 1) * 1_700).map(byte).collect();
        world.tell_client(move |cx| assert_eq!(cx.send(id, &piece), piece.len()));
        let whole = (n + 1) * 1_700 / 3_000 * 3_000;
        assert_eq!(world.server.seats[0].app.taken.len(), whole, "after {n} pieces");
    }
    let taken = &world.server.seats[0].app.taken;
    assert!(taken.iter().enumerate().all(|(at, got)| *got == byte(at)));
}

/// A lane that is stopped with its process, or gets no core.
#[test]
fn an_acknowledgement_that_came_while_the_lane_was_stopped_is_not_late() {
    const CONNECTIONS: usize = 200;
    let mut world = World::new(&Config::default(), CONNECTIONS);
    let ids = world.server.seats[0].app.connections.clone();
    let say = move |cx: &mut Context<'_>| {
        for id in &ids {
            cx.set_user_timeout_ms(*id, 3_000);
            assert_eq!(cx.send(*id, b"word"), 4);
        }
    };
    world.server.seats[0].app.verbs.push_back(Box::new(say));
    while world.server.turn(world.now).busy {}
    world.client.seats[0].app.message = 1;
    while world.client.turn(world.now).busy {}
    assert_eq!(world.client.seats[0].app.taken.len(), 4 * CONNECTIONS);

    world.now = world.now.after_us(5_000_000);
    world.turn(20);
    let counters = world.server.counters();
    let late = [Mib::TcpRetransSegs, Mib::TcpExtTCPTimeouts, Mib::TcpExtTCPAbortOnTimeout];
    assert_eq!(late.map(|mib| counters.get(mib)), [0; 3]);
}

const FROM_V4: Address = Address::from_v4([10, 0, 0, 2]);
const TO_V4: Address = Address::from_v4([10, 0, 0, 1]);

fn v6(last: u8) -> Address {
    Address::from_v6([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last])
}

/// A fragment of a UDP datagram, not the last.
fn fragment_v4(id: u16, fragment_offset: u16) -> Vec<u8> {
    let mut packet = vec![0; 20];
    let (src, dst) = (FROM_V4, TO_V4);
    let (dont_fragment, more_fragments, protocol) = (false, true, protocol::UDP);
    ipv4::Header {
        dscp: 0,
        ecn: 0,
        id,
        dont_fragment,
        more_fragments,
        fragment_offset,
        ttl: 64,
        protocol,
        src,
        dst,
        payload_len: 800,
    }
    .emit(&mut packet);
    packet.extend((0..800).map(|i| i as u8));
    packet
}

fn fragment_v6() -> Vec<u8> {
    use laneway_proto::ip::output::{HeaderSpec, emit};
    let mut packet = vec![0; 48];
    ipv6::Fragment { offset: 0, more: true, id: 9 }.emit(protocol::UDP, &mut packet[40..]);
    packet.extend([5; 80]);
    emit(&HeaderSpec::new(v6(2), v6(1), 44), &mut packet, 88);
    packet
}

fn send(queue: &mut LinkQueue, packet: &[u8]) {
    queue.tx.reserve(packet.len()).unwrap().copy_from_slice(packet);
    queue.tx.commit(packet.len(), Default::default());
    queue.tx.flush();
}

fn received(queue: &mut LinkQueue) -> Vec<Vec<u8>> {
    let n = queue.rx.poll(64);
    let all = (0..n).map(|i| queue.rx.frame(i).bytes.to_vec()).collect();
    queue.rx.release();
    all
}

#[test]
fn a_sender_is_told_that_the_rest_of_its_fragments_did_not_come() {
    let mut now = Instant::from_us(3_600_000_000);
    let (mut a, b) = link(LinkConfig::default());
    let wire = &mut a[0];
    let mut host = host(&Config::default(), &["10.0.0.1/24", "fd00::1/64"], b, now);
    host.turn(now);
    received(wire);
    send(wire, &fragment_v4(1, 0));
    send(wire, &fragment_v4(2, 800)); // of this one the first is missing
    send(wire, &fragment_v6());
    host.turn(now);
    // It wakes up for that by itself.
    let turn = host.turn(now);
    assert!(!turn.busy && turn.deadline.since_us(now) <= 30_000_000, "{turn:?}");
    now = now.after_us(29_000_000);
    host.turn(now);
    assert_eq!(received(wire), [[0u8; 0]; 0]);

    now = now.after_us(1_100_000);
    host.turn(now);
    let told = received(wire);
    assert_eq!(told.len(), 1, "one for the first datagram, and none for the second");
    let (header, message) = ipv4::Header::parse(&told[0]).unwrap();
    assert_eq!((header.src, header.dst, header.protocol), (TO_V4, FROM_V4, protocol::ICMPV4));
    let quoted = &fragment_v4(1, 0)[..548]; // RFC 1812: the whole message has at most 576 bytes
    assert_eq!(icmpv4::Message::parse(message).unwrap(), icmpv4::Message::TimeExceeded { code: 1, quoted });

    now = now.after_us(30_000_000);
    host.turn(now);
    let told = received(wire);
    assert_eq!(told.len(), 1);
    let message = icmpv6::View::new(&told[0][40..], &v6(1), &v6(2)).unwrap();
    let quoted = &fragment_v6()[..];
    assert_eq!(message.message().unwrap(), icmpv6::Message::TimeExceeded { code: 1, quoted });
    assert_eq!(host.counters().discarded(Discard::FragmentTimeout), 3);

    // Whoever sends many is told of some: the limit is that of every other error.
    (0..200).for_each(|id| send(wire, &fragment_v4(id, 0)));
    (0..8).for_each(|_| _ = host.turn(now));
    now = now.after_us(31_000_000);
    host.turn(now);
    let told = received(wire).len();
    assert!((20..=60).contains(&told), "{told} messages");
    assert_eq!(host.counters().discarded(Discard::FragmentTimeout), 203);
    assert_eq!(host.counters().discarded(Discard::IcmpRateLimited), 200 - told as u64);
}

/// A SYN without options.
fn syn(from_port: u16) -> Vec<u8> {
    use laneway_proto::ip::output::{HeaderSpec, emit};
    let mut packet = vec![0; 40];
    let segment = &mut packet[20..];
    segment[..2].copy_from_slice(&from_port.to_be_bytes());
    segment[2..4].copy_from_slice(&80u16.to_be_bytes());
    (segment[12], segment[13]) = (5 << 4, 2);
    let sum = pseudo_header(&FROM_V4, &TO_V4, protocol::TCP, 20) + Sum::of(segment);
    segment[16..18].copy_from_slice(&sum.checksum());
    emit(&HeaderSpec::new(FROM_V4, TO_V4, protocol::TCP), &mut packet, 20);
    packet
}

#[test]
fn who_has_much_to_take_in_after_a_stop_looks_at_what_is_due_all_the_same() {
    let mut now = Instant::from_us(3_600_000_000);
    let (mut a, b) = link(LinkConfig::default());
    let wire = &mut a[0];
    let mut host = host(&Config::default(), &["10.0.0.1/24"], b, now);
    host.listen("0.0.0.0:80".parse().unwrap(), 256, now).unwrap();
    send(wire, &syn(1_001));
    host.turn(now);
    assert_eq!(received(wire).len(), 1);
    now = now.after_us(5_000_000);
    let repeated = (1..).find(|_| {
        (0..64).for_each(|_| send(wire, &[0x45; 20]));
        host.turn(now);
        !received(wire).is_empty()
    });
    assert_eq!(repeated, Some(33), "the answer is repeated, and behind what may have lain in the device");
}

/// A hundred peers, each at its port.
const PORTS: std::ops::RangeInclusive<u16> = 1_001..=1_100;

/// A host with a ring that does not hold an answer for each of [`PORTS`], all of which have asked so many times.
fn full(times: usize) -> (LinkQueue, Host<LinkRx, LinkTx, Told>, Instant) {
    let now = Instant::from_us(3_600_000_000);
    let (mut a, b) = link(LinkConfig { ring_bytes: 4_096, mtu: 576, ..LinkConfig::default() });
    let mut wire = a.remove(0);
    let mut host = host(&Config { tcp_max_syn_backlog: 128, ..Config::default() }, &["10.0.0.1/24"], b, now);
    host.listen("0.0.0.0:80".parse().unwrap(), 256, now).unwrap();
    for some in PORTS.collect::<Vec<_>>().repeat(times).chunks(25) {
        some.iter().for_each(|port| send(&mut wire, &syn(*port)));
        host.turn(now);
    }
    assert!(host.counters().get(Mib::TxBusy) > 0, "there was room for all of them, and nobody had to wait");
    (wire, host, now)
}

/// The ports that are answered, now that somebody takes the answers.
fn answered((mut wire, mut host, now): (LinkQueue, Host<LinkRx, LinkTx, Told>, Instant)) -> Vec<u16> {
    let mut ports = Vec::new();
    loop {
        let some = received(&mut wire);
        if some.is_empty() {
            assert!(!host.turn(now).busy, "and then nothing is left to do");
            return ports;
        }
        ports.extend(some.iter().map(|packet| u16::from_be_bytes([packet[22], packet[23]])));
        host.turn(now);
    }
}

#[test]
fn who_asked_while_the_device_was_full_is_answered_when_it_is_not() {
    assert_eq!(answered(full(1)), PORTS.collect::<Vec<_>>(), "each once, in the order in which they asked");
}

#[test]
fn who_asks_again_and_again_while_the_device_is_full_is_not_remembered_each_time() {
    let answered = answered(full(20));
    assert!(answered.len() <= 64 + 128, "the ring and as many as the backlog, not {}", answered.len());
    assert!(PORTS.into_iter().all(|port| answered.contains(&port)));
}

/// Who gives up before he is accepted leaves his place to the next.
#[test]
fn who_waits_to_be_accepted_and_goes_takes_no_room() {
    let mut world = World::new(&Config::default(), 0);
    world.server.listen("0.0.0.0:81".parse().unwrap(), 1, world.now).unwrap();
    world.server.seats[0].app.is_deaf = true;
    for n in 1..=60 {
        world.tell_client(|cx| _ = cx.connect(None, Address::from_v4([10, 0, 0, 1]), 81, 0).unwrap());
        let connected = world.client.seats[0].app.connections.clone();
        assert_eq!(connected.len(), n);
        world.tell_client(move |cx| cx.abort(connected[n - 1]));
    }
    let counters = world.server.counters();
    assert_eq!((counters.get(Mib::TcpPassiveOpens), counters.get(Mib::TcpExtListenOverflows)), (60, 0));
}

/// A lane that has nothing but TIME_WAIT records sleeps, and wakes for them.
#[test]
fn a_lane_asleep_looks_after_its_time_wait_records() {
    let mut world = World::new(&Config::default(), 1);
    let id = world.client.seats[0].app.connections[0];
    world.tell_client(move |cx| cx.close(id));
    assert_eq!(world.client.counters().get(Mib::TcpExtTW), 1);
    let began = world.now;
    loop {
        let turn = world.client.turn(world.now);
        if world.client.counters().get(Mib::TcpExtTWKilled) > 0 {
            break;
        }
        world.now = if turn.busy { world.now.after_us(100) } else { turn.deadline };
        assert!(world.now.since_us(began) < 61_000_000, "it would sleep until somebody wakes it");
    }
    assert!(world.now.since_us(began) >= 59_000_000, "2·MSL");
}

/// A lane on an Ethernet, with a connection that has grown and has a megabyte to send, and more to a host that nobody is than may wait for it.
fn with_a_host_that_nobody_is() -> World {
    let now = Instant::from_us(3_600_000_000);
    let buffers = tcp::Config { tcp_rmem: (1 << 20, 1 << 20), tcp_wmem: 1 << 20, ..tcp::Config::default() };
    let config = Config { tcp: buffers, ..Config::default() };
    let (a, b) = link(LinkConfig { medium: Medium::Ethernet, ring_bytes: 4 << 20, ..LinkConfig::default() });
    let mut world =
        World { client: host(&config, &["10.0.0.2/24"], a, now), server: host(&config, &["10.0.0.1/24"], b, now), now };
    world.server.listen("0.0.0.0:80".parse().unwrap(), 64, now).unwrap();
    world.server.seats[0].app.message = 1;
    world.tell_client(|cx| _ = cx.connect(None, Address::from_v4([10, 0, 0, 1]), 80, 0).unwrap());
    world.turn(20);
    let id = world.client.seats[0].app.connections[0];
    for sent in (1..=10).map(|n| n * 300_000) {
        world.tell_client(move |cx| assert_eq!((0..3).map(|_| cx.send(id, &[1; 100_000])).sum::<usize>(), 300_000));
        world.turn(40);
        assert_eq!(world.server.seats[0].app.taken.len(), sent);
    }
    let nobody = Address::from_v4([10, 0, 0, 99]);
    world.tell_client(move |cx| (0..2_000).for_each(|_| _ = cx.connect(None, nobody, 80, 0).unwrap()));
    world
}

/// Whoever waits for a neighbour is looked at once a millisecond. Those who do not wait are not kept from sending for that long.
#[test]
fn who_waits_for_a_neighbour_holds_nobody_up() {
    let mut world = with_a_host_that_nobody_is();
    let turn = world.client.turn(world.now);
    assert!(!turn.busy && turn.deadline <= world.now.after_us(1_000), "it waits, and for a moment: {turn:?}");
    let id = world.client.seats[0].app.connections[0];
    let send = move |cx: &mut Context<'_>| assert!((0..8).map(|_| cx.send(id, &[1; 100_000])).sum::<usize>() > 400_000);
    world.client.seats[0].app.verbs.push_back(Box::new(send));
    let sent = |world: &mut World| world.client.counters().get(Mib::TcpOutSegs);
    let (before, turn) = (sent(&mut world), world.client.turn(world.now));
    let first = sent(&mut world) - before;
    assert!(turn.busy, "it had its share of {first} segments, and has more to send");
    world.client.turn(world.now);
    assert!(sent(&mut world) > before + first, "which leave at once");
}

/// `tcpEstabResets` of RFC 4022 counts at both ends: at whoever gives a connection up, and at whoever hears of it.
#[test]
fn who_aborts_has_cut_a_connection_off_too() {
    let mut world = World::new(&Config::default(), 1);
    let id = world.client.seats[0].app.connections[0];
    world.tell_client(move |cx| cx.abort(id));
    for host in [&mut world.client, &mut world.server] {
        assert_eq!(host.counters().get(Mib::TcpEstabResets), 1);
    }
}
