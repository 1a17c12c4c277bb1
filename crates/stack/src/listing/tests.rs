//! A server and a client in one thread: what each tells of the connections between them.

use super::*;
use crate::app::{App, ConnId, Context};
use crate::config::Config;
use crate::control::Network;
use crate::counters::Mib;
use crate::entropy::BootSecrets;
use crate::host::Host;
use laneway_device::memory::{self, LinkConfig, LinkRx, LinkTx};
use std::collections::HashMap;

/// Opens as many connections as it is told to, says something on each, and closes those that it is told to.
pub(crate) struct Talker {
    /// Ports of the server that are called in turn.
    pub(crate) ports: std::ops::RangeInclusive<u16>,
    /// Bytes to be said on each open connection, once.
    pub(crate) to_say: usize,
    pub(crate) to_open: usize,
    pub(crate) to_close: usize,
    /// What comes is left unread, and who is closed hears only that all has been said.
    leaves: bool,
    open: Vec<ConnId>,
}

impl Default for Talker {
    fn default() -> Self {
        Talker { ports: 80..=80, to_say: 0, to_open: 0, to_close: 0, leaves: false, open: Vec::new() }
    }
}

impl App for Talker {
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        while self.to_open > 0 {
            self.to_open -= 1;
            let port = *self.ports.start() + (self.to_open % self.ports.len()) as u16;
            cx.connect(None, Address::from_v4([10, 0, 0, 1]), port, 0).expect("there are ports");
        }
        let to_say = std::mem::take(&mut self.to_say);
        for id in self.open.iter().filter(|_| to_say > 0) {
            assert_eq!(cx.send(*id, &vec![7; to_say]), to_say);
        }
        while self.to_close > 0
            && let Some(id) = self.open.pop()
        {
            self.to_close -= 1;
            if self.leaves { cx.shutdown(id) } else { cx.close(id) }
        }
    }
    fn on_connect(&mut self, cx: &mut Context<'_>, id: ConnId) {
        cx.send(id, &[7; 100]);
        self.open.push(id);
    }
    fn on_accept(&mut self, _: &mut Context<'_>, id: ConnId) {
        self.open.push(id);
    }
    fn on_data(&mut self, _: &mut Context<'_>, _: ConnId, data: &[u8]) -> usize {
        if self.leaves { 0 } else { data.len() }
    }
}

pub(crate) type TestHost = Host<LinkRx, LinkTx, Talker>;

pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) server: TestHost,
    pub(crate) client: TestHost,
}

impl World {
    pub(crate) fn new() -> Self {
        World::steered(1, None)
    }

    /// With a server of so many lanes. `steer` says to which of them a frame comes; the client has one.
    pub(crate) fn steered(lanes: usize, steer: Option<memory::Steer>) -> Self {
        let now = Instant::from_us(3_600_000_000);
        let mut link =
            LinkConfig { ring_bytes: 8 << 20, queues: lanes, second_queues: Some(1), ..LinkConfig::default() };
        link.steer[0] = steer;
        let (first, second) = memory::link(link);
        let mut config = Config::default();
        config.tcp.msl_us = 10_000_000;
        config.ip_local_port_range = (1_024, 65_535);
        let host = |seed, ip: &str, queues| {
            let network = Network { addresses: vec![ip.parse().unwrap()], gateways: vec![] };
            let secrets = BootSecrets::from_seed(seed);
            Host::new(config.clone(), &network, &secrets, queues, now, |_| Talker::default()).unwrap()
        };
        let mut server: TestHost = host(1, "10.0.0.1/24", first);
        let client = host(2, "10.0.0.2/24", second);
        server.listen("0.0.0.0:80".parse().unwrap(), 4_096, now).unwrap();
        World { now, server, client }
    }

    /// With a connection on which the server has said something, and the client has not read it.
    pub(crate) fn with_unread() -> Self {
        let mut world = World::new();
        world.client.seats[0].app.leaves = true;
        world.client.seats[0].app.to_open = 1;
        world.turn(20);
        world.server.seats[0].app.to_say = 100;
        world.turn(20);
        world
    }

    pub(crate) fn turn(&mut self, times: usize) {
        for _ in 0..times {
            self.now = self.now.after_us(50);
            self.client.turn(self.now);
            self.server.turn(self.now);
        }
    }
}

/// One page of the only lane.
fn ask(host: &mut TestHost, now: Instant, page: Box<Page>) -> Box<Page> {
    host.control.ask_page(0, page);
    for _ in 0..10 {
        host.turn(now);
        if let Some(page) = host.control.take_pages().pop() {
            return page;
        }
    }
    panic!("the lane does not answer");
}

fn list(host: &mut TestHost, now: Instant, states: States) -> Vec<Row> {
    let mut page = Page::new(states);
    let mut rows = Vec::new();
    for _ in 0..1_000 {
        page = ask(host, now, page);
        assert!(page.rows.len() <= ROWS_MAX && page.rows.capacity() == ROWS_MAX, "a lane made a page larger");
        rows.extend(page.rows.iter().cloned());
        if page.place.is_end() {
            return rows;
        }
    }
    panic!("the listing does not end");
}

fn info(row: &Row) -> &Info {
    match &row.what {
        What::Synchronized(info) => info,
        other => panic!("{other:?}"),
    }
}

#[test]
fn both_ends_tell_the_same_story() {
    let mut world = World::new();
    world.client.seats[0].app.to_open = 3;
    world.turn(20);
    let ours = list(&mut world.client, world.now, States::ALL);
    let theirs = list(&mut world.server, world.now, States::ALL);
    assert_eq!((ours.len(), theirs.len()), (3, 4));
    assert!(matches!(theirs[0].what, What::Listener { queued: 0, .. }) && theirs[0].flow.local_port == 80);
    let there: HashMap<u16, &Info> = theirs[1..].iter().map(|row| (row.flow.remote_port, info(row))).collect();
    for row in &ours {
        let (here, there) = (info(row), there[&row.flow.local_port]);
        assert_eq!((here.bytes_sent, here.bytes_acked, here.bytes_received), (100, 100, 0));
        assert_eq!((there.bytes_sent, there.bytes_acked, there.bytes_received), (0, 0, 100));
        // What one counts as sent the other counts as received, but for what the handshake's shapes took in.
        assert_eq!((here.segs_out, there.segs_in), (1, 1));
        assert_eq!((there.segs_out, here.segs_in), (1, 1));
        assert_eq!((here.state, there.state), (State::Established, State::Established));
        assert!(here.timestamps && here.sack && here.wscale.0 > 0);
        assert_eq!((here.mss, here.unread, here.queued, here.retransmitted), (there.mss, 0, 0, 0));
    }
}

/// Nine segments of one poll go through the receiver's TCP as one, and are nine all the same.
#[test]
fn segments_are_counted_as_the_network_carried_them() {
    let mut world = World::new();
    world.client.seats[0].app.to_open = 1;
    world.turn(20);
    world.client.seats[0].app.to_say = 12_900;
    world.turn(20);
    assert_eq!(world.server.counters().get(Mib::TcpInMerged), 8, "they were not merged");
    let ours = list(&mut world.client, world.now, States::ALL);
    let theirs = list(&mut world.server, world.now, States::NONE.with(State::Established));
    let (here, there) = (info(&ours[0]), info(&theirs[0]));
    assert_eq!((there.bytes_received, there.segs_in, here.segs_out), (13_000, 10, 10));
    assert_eq!(there.segs_out, here.segs_in);
}

/// Acknowledgements that wait for a lane that was away go through TCP as one, and are as many as they are all the same.
#[test]
fn acknowledgements_that_say_no_more_than_the_next_are_counted_and_not_looked_at() {
    let mut world = World::new();
    world.client.seats[0].app.to_open = 1;
    world.turn(20);
    world.client.seats[0].app.to_say = 500_000;
    for _ in 0..200 {
        world.client.turn(world.now);
        // A batch each.
        for _ in 0..8 {
            world.now = world.now.after_us(50);
            world.server.turn(world.now);
        }
    }
    world.turn(20);
    let merged = world.client.counters().get(Mib::TcpInMerged);
    assert!(merged > 0, "{merged} were not looked at");
    let ours = list(&mut world.client, world.now, States::ALL);
    let theirs = list(&mut world.server, world.now, States::NONE.with(State::Established));
    let (here, there) = (info(&ours[0]), info(&theirs[0]));
    assert_eq!((here.bytes_acked, there.bytes_received), (500_100, 500_100));
    assert_eq!((there.segs_out, here.retransmitted), (here.segs_in, 0));
}

#[test]
fn half_open_and_time_wait_are_shown_with_their_time() {
    let mut world = World::new();
    world.client.seats[0].app.to_open = 1;
    world.now = world.now.after_us(50);
    world.client.turn(world.now);
    let ours = list(&mut world.client, world.now, States::ALL);
    assert!(matches!(
        ours[..],
        [Row { what: What::Handshaking { state: State::SynSent, retries: 0, due_ms: 1_000 }, .. }]
    ));
    world.server.turn(world.now);
    let syn_received = States::NONE.with(State::SynReceived);
    let theirs = list(&mut world.server, world.now, syn_received);
    assert!(matches!(theirs[..], [Row { what: What::HalfOpen { retries: 0, due_ms: 1_000 }, .. }]), "{theirs:?}");

    world.turn(20);
    assert!(list(&mut world.server, world.now, syn_received).is_empty());
    world.client.seats[0].app.to_close = 1;
    world.turn(20);
    world.now = world.now.after_us(5_000_000);
    let ours = list(&mut world.client, world.now, States::ALL);
    assert_eq!(ours.len(), 1);
    let What::TimeWait { left_ms } = ours[0].what else { panic!("{:?}", ours[0]) };
    assert!((14_990..=15_000).contains(&left_ms), "{left_ms}");
    assert!(list(&mut world.client, world.now, States::ALL.without(State::TimeWait)).is_empty());
}

/// As the kernel has it: a socket that only waits to be read is not in its tables, and the flow is that of its record, if it has one.
#[test]
fn what_is_over_and_unread_is_no_row_beside_its_record() {
    for server_closes_first in [true, false] {
        let mut world = World::with_unread();
        // Of one that has closed second the peer has the record.
        if server_closes_first {
            world.server.seats[0].app.to_close = 1;
            world.turn(20);
        }
        world.client.seats[0].app.to_close = 1;
        world.turn(20);
        let kept = world.client.seats[0].lane.tables(|tables| (tables.slots.len(), tables.time_waits));
        assert_eq!(kept, (1, usize::from(!server_closes_first)), "it is kept for who has yet to read it");
        let rows = list(&mut world.client, world.now, States::ALL);
        match &rows[..] {
            [] => assert!(server_closes_first, "there is a record"),
            [Row { what: What::TimeWait { .. }, .. }] => assert!(!server_closes_first),
            rows => panic!("more than its flow has: {rows:?}"),
        }
    }
}

#[test]
fn who_is_there_all_the_time_is_shown_whatever_the_others_do() {
    let mut world = World::new();
    world.client.seats[0].app.to_open = 2_000;
    world.turn(200);
    let established = States::NONE.with(State::Established);
    let before = list(&mut world.client, world.now, established);
    assert_eq!(before.len(), 2_000);

    let mut page = Page::new(States::ALL);
    let mut seen: HashMap<u16, usize> = HashMap::new();
    let mut pages = 0;
    loop {
        page = ask(&mut world.client, world.now, page);
        page.rows.iter().for_each(|row| *seen.entry(row.flow.local_port).or_default() += 1);
        if page.place.is_end() {
            break;
        }
        pages += 1;
        assert!(pages < 100, "the listing runs after what is appended to the queue");
        // Between two pages some go to TIME_WAIT and new ones come.
        world.client.seats[0].app.to_close = 50;
        world.client.seats[0].app.to_open = 50;
        world.turn(20);
    }
    let missed: Vec<u16> =
        before.iter().map(|row| row.flow.local_port).filter(|port| !seen.contains_key(port)).collect();
    assert!(missed.is_empty(), "not shown, though there in one state or another: {missed:?}");
    assert!(seen.values().all(|times| *times <= 2));
}

#[test]
fn a_vacant_table_is_walked_in_bounded_steps() {
    let mut world = World::new();
    world.client.seats[0].app.to_open = 3_000;
    world.turn(300);
    world.client.seats[0].app.to_close = 3_000;
    world.turn(300);
    let mut page = Page::new(States::NONE.with(State::Established));
    for pages in 1.. {
        page = ask(&mut world.client, world.now, page);
        assert!(page.rows.is_empty());
        if page.place.is_end() {
            assert!((3..=8).contains(&pages), "{pages} pages for 3,000 vacant slots");
            break;
        }
    }
}

/// A destination for each of so many ports of the server.
fn destinations(host: &mut TestHost, now: Instant) -> (Vec<Slice>, Tallies) {
    let (mut page, mut all) = (Page::of_ports(), Vec::new());
    for _ in 0..100 {
        page = ask(host, now, page);
        assert!(page.rows.is_empty());
        assert!(page.ports.len() <= ROWS_MAX && page.ports.capacity() == ROWS_MAX, "a lane made a page larger");
        all.extend(page.ports.iter().cloned());
        if page.place.is_end() {
            return (all, page.tallies);
        }
    }
    panic!("the listing does not end");
}

#[test]
fn destinations_are_listed_page_by_page() {
    const MANY: u16 = 1_000;
    let mut world = World::new();
    world.client.seats[0].app.ports = 1..=MANY;
    world.client.seats[0].app.to_open = usize::from(MANY) * 2;
    world.client.turn(world.now);
    let (slices, tallies) = destinations(&mut world.client, world.now);
    let mut ports: Vec<u16> = slices.iter().map(|slice| slice.remote_port).collect();
    ports.sort_unstable();
    assert_eq!(ports, (1..=MANY).collect::<Vec<_>>(), "each once");
    assert!(slices.iter().all(|slice| slice.in_use == 2));
    assert_eq!(tallies.asks, u64::from(MANY) * 2);
    assert_eq!(destinations(&mut world.server, world.now).0, []);
}

#[test]
fn a_lane_fills_one_page_a_poll_however_many_ask() {
    let mut world = World::new();
    world.client.seats[0].app.to_open = 10;
    world.turn(20);
    for _ in 0..3 {
        world.client.control.ask_page(0, Page::new(States::ALL));
    }
    world.client.control.request_counters();
    for asked in 0..3 {
        assert_eq!(world.client.control.counters().is_some(), asked > 0, "all else is answered in the first poll");
        assert!(world.client.turn(world.now).busy, "the lane went to sleep over its mail");
        let pages = world.client.control.take_pages();
        assert_eq!(pages.len(), 1, "in poll {asked}");
        assert_eq!(pages[0].rows.len(), 10);
    }
    assert!(!world.client.turn(world.now).busy);
}
