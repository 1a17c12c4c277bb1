//! Whoever waits is told in the end: for memory to send with, for bytes that lie together.

use laneway_device::memory::{LinkConfig, LinkQueue, LinkRx, LinkTx, link};
use laneway_proto::time::Instant;
use laneway_stack::app::{App, ConnId, Context};
use laneway_stack::config::Config;
use laneway_stack::control::Network;
use laneway_stack::entropy::BootSecrets;
use laneway_stack::host::Host;
use laneway_wire::flow::Address;
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
}

impl App for Told {
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        while let Some(mut verb) = self.verbs.pop_front() {
            verb(cx);
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
    let mut world = World::new(&Config { tcp_mem: 8_192 + 2_048, ..Config::default() }, connections);
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
