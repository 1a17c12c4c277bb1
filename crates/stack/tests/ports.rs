//! Two lanes, few ports, and everything that can happen to a connection: no four-tuple is ever on both lanes or on the wrong one,
//! none comes back within 2·MSL but by the timestamp rule, and when all is over every port is there again.

use laneway_device::memory::{self, LinkConfig, LinkRx, LinkTx};
use laneway_proto::tcp::{CloseReason, TimeWait};
use laneway_proto::time::Instant;
use laneway_stack::app::{App, ConnId, Context};
use laneway_stack::control::Network;
use laneway_stack::counters::Mib;
use laneway_stack::entropy::{BootSecrets, Entropy};
use laneway_stack::host::Host;
use laneway_stack::steering::Steering;
use laneway_stack::{Config, Error};
use laneway_wire::flow::{Address, FlowKey};
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;

const RANGE: (u16, u16) = (40_000, 40_599);
const DELAY_MS: u32 = 50;
const SERVER: Address = Address::from_v4([10, 0, 0, 1]);

/// Opens, and ends each connection in a way of its own.
struct Client {
    entropy: Entropy,
    open: Vec<ConnId>,
    stopping: bool,
    exhausted: usize,
    opened: usize,
}

impl App for Client {
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        for _ in 0..4 {
            let random = self.entropy.next_u64();
            if !self.stopping {
                match cx.connect(None, SERVER, 80 + (random % 3 / 2) as u16, 0) {
                    Ok(_) => self.opened += 1,
                    Err(Error::LaneExhausted(_)) => self.exhausted += 1,
                    Err(other) => panic!("{other}"),
                }
            }
            // About as many as there are ports, so that they run out now and then.
            if !self.open.is_empty() && (self.stopping || self.open.len() > 200 || random.is_multiple_of(5)) {
                let id = self.open.swap_remove((random >> 8) as usize % self.open.len());
                match (random >> 16) % 4 {
                    0 => cx.abort(id),
                    1 => {
                        cx.send(id, b"close");
                    }
                    _ => cx.close(id),
                }
            }
        }
    }
    fn on_connect(&mut self, _: &mut Context<'_>, id: ConnId) {
        self.open.push(id);
    }
    fn on_data(&mut self, _: &mut Context<'_>, _: ConnId, data: &[u8]) -> usize {
        data.len()
    }
    fn on_closed(&mut self, _: &mut Context<'_>, id: ConnId, _: u64, _: CloseReason) {
        self.open.retain(|open| *open != id);
    }
}

/// Closes first when it is told to, and else second.
struct Server;

impl App for Server {
    fn on_data(&mut self, cx: &mut Context<'_>, id: ConnId, data: &[u8]) -> usize {
        cx.close(id);
        data.len()
    }
}

#[test]
fn a_storm_over_two_lanes_leaves_no_port_twice_and_none_behind() {
    for seed in 0..2 {
        storm(seed);
    }
}

fn storm(seed: u64) {
    const LANES: usize = 2;
    let secrets = [BootSecrets::from_seed(100 + seed), BootSecrets::from_seed(200 + seed)];
    let steering = |i: usize| Steering::new(secrets[i].steering, LANES);
    let steer = |i: usize| {
        let steering = steering(i);
        Some(Arc::new(move |frame: &[u8]| steering.queue_of_frame(frame, 0)) as memory::Steer)
    };
    let (here, there) =
        memory::link(LinkConfig { queues: LANES, steer: [steer(0), steer(1)], ..LinkConfig::default() });
    let mut now = Instant::from_us(3_600_000_000);
    let mut config = Config { ip_local_port_range: RANGE, tcp_tw_reuse_delay_ms: DELAY_MS, ..Config::default() };
    config.tcp.msl_us = 500_000;
    let network = |ip: &str| Network { addresses: vec![ip.parse().unwrap()], gateways: vec![] };
    let mut server: Host<LinkRx, LinkTx, Server> =
        Host::new(config.clone(), &network("10.0.0.1/24"), &secrets[0], here, now, |_| Server).unwrap();
    let mut client: Host<LinkRx, LinkTx, Client> =
        Host::new(config, &network("10.0.0.2/24"), &secrets[1], there, now, |lane| Client {
            entropy: Entropy::from_seed(seed * 10 + lane as u64),
            open: Vec::new(),
            stopping: false,
            exhausted: 0,
            opened: 0,
        })
        .unwrap();
    for port in [80, 81] {
        server.listen(SocketAddr::from(([0, 0, 0, 0], port)), 4_096, now).unwrap();
    }
    let owner = steering(1);
    let mut waits: HashMap<FlowKey, Instant> = HashMap::new();
    let mut taken_over = 0;
    for _ in 0..1_500 {
        client.turn(now);
        server.turn(now);
        let mut seen = HashSet::new();
        let mut waiting = HashMap::new();
        for (lane, seat) in client.seats.iter_mut().enumerate() {
            seat.lane.tables(|tables| {
                for (_, slot) in tables.slots.iter() {
                    let flow = *slot.key();
                    assert!(seen.insert(flow), "{flow:?} is there twice");
                    assert_eq!(owner.lane(&flow), lane, "{flow:?} is on the wrong lane");
                    if let Some(since) = waits.get(&flow) {
                        assert!(
                            now.since_us(*since) >= u64::from(DELAY_MS - 1) * 1_000,
                            "{flow:?} came back too early"
                        );
                        taken_over += 1;
                    }
                }
                for (_, record) in tables.tw4.iter().filter(|(_, record)| !record.is_dead()) {
                    let flow = record.key();
                    assert!(seen.insert(flow), "{flow:?} is there twice");
                    waiting.insert(flow, waits.get(&flow).copied().unwrap_or(now));
                }
            });
        }
        waits = waiting;
        now = now.after_us(300);
    }
    let counters = client.counters();
    assert_eq!(taken_over, counters.get(Mib::TcpExtTWRecycled), "each by the timestamp rule");
    assert!(taken_over > 100, "the storm is no storm: {taken_over} taken over");
    let exhausted: usize = client.seats.iter().map(|seat| seat.app.exhausted).sum();
    let opened: usize = client.seats.iter().map(|seat| seat.app.opened).sum();
    assert!(
        exhausted > 100 && opened > 2_000,
        "the storm is no storm: {opened} opened, {exhausted} times none was left"
    );
    assert_eq!(client.counters().get(Mib::SteerMiss), 0);
    // It ends, and after 2·MSL everything is free.
    client.seats.iter_mut().for_each(|seat| seat.app.stopping = true);
    for _ in 0..3_000 {
        client.turn(now);
        server.turn(now);
        now = now.after_us(1_000);
    }
    let mut free = 0;
    for seat in &mut client.seats {
        seat.app.stopping = true;
        seat.lane.tables(|tables| {
            assert_eq!((tables.slots.len(), tables.time_waits), (0, 0));
            let left = (0..tables.ports.slices_end()).filter_map(|place| tables.ports.slice(place)).count();
            assert_eq!(left, 0, "a destination is remembered that nobody uses");
            let tallies = tables.ports.tallies();
            assert!(tallies.words_max <= 4 && tallies.probes_max <= 2, "{tallies:?}");
            assert_eq!((tallies.locks, tallies.shared_lines_written), (0, 0));
        });
        free += usize::from(seat.app.open.is_empty());
    }
    assert_eq!(free, LANES);
}

/// Connects as often as it can.
#[derive(Default)]
struct Glutton {
    flows: Vec<(ConnId, FlowKey)>,
    refused: Option<Error>,
    close: Option<ConnId>,
}

impl App for Glutton {
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        if let Some(id) = self.close.take() {
            cx.close(id);
            self.refused = None;
        }
        while self.refused.is_none() {
            match cx.connect(None, SERVER, 80, 0) {
                Ok(id) => self.flows.push((id, cx.flow(id).expect("it is there"))),
                Err(error) => self.refused = Some(error),
            }
        }
    }
    fn on_data(&mut self, _: &mut Context<'_>, _: ConnId, data: &[u8]) -> usize {
        data.len()
    }
}

#[test]
fn every_port_of_1024_to_65535_can_be_had_towards_one_destination() {
    for lanes in [1, 2, 3] {
        let (here, _there) = memory::link(LinkConfig { queues: lanes, ..LinkConfig::default() });
        let now = Instant::from_us(3_600_000_000);
        let config = Config { ip_local_port_range: (1_024, 65_535), ..Config::default() };
        let network = Network { addresses: vec!["10.0.0.2/24".parse().unwrap()], gateways: vec![] };
        let mut client: Host<LinkRx, LinkTx, Glutton> =
            Host::new(config, &network, &BootSecrets::from_seed(7), here, now, |_| Glutton::default()).unwrap();
        client.turn(now);
        let mut ports = HashSet::new();
        for seat in &client.seats {
            let to = SocketAddr::new(SERVER.to_ip(), 80);
            let exhausted = if lanes == 1 { Error::PortsExhausted(to) } else { Error::LaneExhausted(to) };
            assert_eq!(seat.app.refused, Some(exhausted));
            ports.extend(seat.app.flows.iter().map(|(_, flow)| flow.local_port));
        }
        let flows: usize = client.seats.iter().map(|seat| seat.app.flows.len()).sum();
        assert_eq!((flows, ports.len()), (64_512, 64_512), "{lanes} lanes");
        // One that is given up frees one port: its own.
        let (id, flow) = client.seats[0].app.flows[1_234];
        client.seats[0].app.close = Some(id);
        client.turn(now);
        let app = &client.seats[0].app;
        assert_eq!(app.flows.last().map(|(_, last)| *last), Some(flow));
        assert_eq!(client.seats.iter().map(|seat| seat.app.flows.len()).sum::<usize>(), 64_513);
    }
}
