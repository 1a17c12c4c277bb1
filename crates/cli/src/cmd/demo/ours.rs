//! Owns Laneway's half of the demo: two stacks on one memory link, both in one thread.

use super::{REQUEST, RESPONSE, Tally};
use crate::failure::Failure;
use laneway::on_lane::{Address, App, Cidr, CloseReason, Config, ConnId, Context, Mib};
use laneway_stack::clock::Clock;
use laneway_stack::control::Network;
use laneway_stack::device::memory::{self, LinkConfig, LinkRx, LinkTx};
use laneway_stack::device::pcap::{Capture, Tap};
use laneway_stack::device::{Queue, Rx, Tx};
use laneway_stack::entropy::BootSecrets;
use laneway_stack::host::Host;
use rustix::time::{ClockId, clock_gettime};
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The client's addresses: an address has 28,232 ports, and a port that the server keeps in TIME_WAIT is better not asked for.
const SOURCES: u8 = 200;

/// What every core's pair is made with.
#[derive(Clone)]
pub struct Settings {
    /// Connections at a time.
    pub conns: usize,
    /// Tunables.
    pub config: Config,
    /// Where frames are written down.
    pub capture: Option<Capture>,
}

/// Begins a capture.
pub fn capture(path: &Path) -> Result<Capture, Failure> {
    Capture::to_file(path).map_err(|error| {
        Failure::Misuse(format!("the capture file {} cannot be written: {error}; choose another place", path.display()))
    })
}

/// What stands beside a rate.
#[derive(Clone, Copy, Default, Debug)]
pub struct Facts {
    packets: u64,
    /// All that were made, those that ended behind a turn too.
    pub connections: u64,
    /// TIME_WAIT records that went early.
    pub evicted: u64,
    /// Tuples that were used again while in TIME_WAIT.
    pub reused: u64,
    /// The most TIME_WAIT records at a time, summed over cores.
    pub peak: u64,
    /// Segments sent again.
    pub retransmitted: u64,
    /// The client's addresses.
    pub sources: u64,
}

impl Facts {
    /// Adds another core's.
    pub fn merge(&mut self, other: &Facts) {
        self.packets += other.packets;
        self.connections += other.connections;
        self.evicted += other.evicted;
        self.reused += other.reused;
        self.peak += other.peak;
        self.retransmitted += other.retransmitted;
        self.sources = self.sources.max(other.sources);
    }

    /// Packets on the wire for each connection, both ways.
    pub fn packets_per_connection(&self) -> f64 {
        self.packets as f64 / self.connections.max(1) as f64
    }
}

/// Both sides' application.
#[derive(Default)]
struct Crr {
    is_server: bool,
    /// Start connections.
    open: bool,
    running: usize,
    most: usize,
    source: u8,
    done: u64,
    failed: u64,
}

impl App for Crr {
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        while self.open && self.running < self.most {
            self.source = self.source % SOURCES + 1;
            let from = Address::from_v4([10, 0, 1, self.source]);
            if cx.connect(Some(from), Address::from_v4([10, 0, 0, 1]), 80, 0).is_err() {
                return; // every port of this address is in use: the next one has some
            }
            self.running += 1;
        }
    }
    fn on_connect(&mut self, cx: &mut Context<'_>, id: ConnId) {
        cx.send(id, &[b'q'; REQUEST]);
    }
    fn on_data(&mut self, cx: &mut Context<'_>, id: ConnId, data: &[u8]) -> usize {
        let seen = cx.token(id) + data.len() as u64;
        cx.set_token(id, seen);
        if self.is_server && seen == REQUEST as u64 {
            cx.send(id, &[b'r'; RESPONSE]);
            cx.close(id);
        }
        data.len()
    }
    fn on_closed(&mut self, _: &mut Context<'_>, _: ConnId, seen: u64, reason: CloseReason) {
        let want = if self.is_server { REQUEST } else { RESPONSE } as u64;
        if reason == CloseReason::Normal && seen == want {
            self.done += 1
        } else {
            self.failed += 1
        }
        self.running = self.running.saturating_sub(1);
    }
}

/// The server's side may be captured: it sees every frame of both.
struct Hosts<R, T> {
    server: Host<R, T, Crr>,
    client: Host<LinkRx, LinkTx, Crr>,
}

/// Two stacks and the link between them.
enum Kind {
    Plain(Hosts<LinkRx, LinkTx>),
    Captured(Hosts<Tap<LinkRx>, Tap<LinkTx>>),
}

/// One core's share.
pub struct Pair {
    kind: Kind,
    clock: Clock,
    capture: Option<Capture>,
    peak: u64,
}

impl Pair {
    /// The pair of one core.
    pub fn new(core: usize, settings: &Settings) -> Self {
        let (first, second) = memory::link(LinkConfig::default());
        let clock = Clock::start();
        let kind = match &settings.capture {
            None => Kind::Plain(Hosts::new(first, second, &clock, settings)),
            Some(capture) => {
                let server = first.into_iter().map(|queue| capture.tap(&format!("core{core}"), queue)).collect();
                Kind::Captured(Hosts::new(server, second, &clock, settings))
            }
        };
        Pair { kind, clock, capture: settings.capture.clone(), peak: 0 }
    }

    /// Makes connections for so long, and lets the last ones end.
    pub fn run(&mut self, turn: Duration) -> Tally {
        match &mut self.kind {
            Kind::Plain(hosts) => hosts.run(turn, &self.clock, self.capture.as_ref(), &mut self.peak),
            Kind::Captured(hosts) => hosts.run(turn, &self.clock, self.capture.as_ref(), &mut self.peak),
        }
    }

    /// What stands beside the rate.
    pub fn facts(mut self) -> Facts {
        let peak = self.peak;
        match &mut self.kind {
            Kind::Plain(hosts) => hosts.facts(peak),
            Kind::Captured(hosts) => hosts.facts(peak),
        }
    }
}

impl<R: Rx, T: Tx> Hosts<R, T> {
    fn new(server: Vec<Queue<R, T>>, client: Vec<Queue<LinkRx, LinkTx>>, clock: &Clock, settings: &Settings) -> Self {
        let config = Config { software_checksums: true, connections: settings.conns, ..settings.config.clone() };
        let cidr = |address: [u8; 4]| Cidr { address: Ipv4Addr::from(address).into(), prefix: 16 };
        let network = |addresses| Network { addresses, gateways: Vec::new() };
        let (here, there) =
            (network(vec![cidr([10, 0, 0, 1])]), network((1..=SOURCES).map(|i| cidr([10, 0, 1, i])).collect()));
        let app = |is_server| move |_lane| Crr { is_server, most: settings.conns, ..Crr::default() };
        let secrets = BootSecrets::from_system;
        let server = Host::new(config.clone(), &here, &secrets(), server, clock.now(), app(true));
        let client = Host::new(config.clone(), &there, &secrets(), client, clock.now(), app(false));
        let (mut server, client) = (server.expect("the address is right"), client.expect("the addresses are right"));
        let at = "10.0.0.1:80".parse().expect("an address");
        server.listen(at, 4_096, clock.now()).expect("nobody else listens");
        Hosts { server, client }
    }

    fn run(&mut self, turn: Duration, clock: &Clock, capture: Option<&Capture>, peak: &mut u64) -> Tally {
        let (done, failed) = (self.done(), self.failed());
        let begin = Instant::now();
        let cpu = thread_cpu();
        self.client.seats[0].app.open = true;
        let mut polls = 0u32;
        loop {
            if let Some(capture) = capture {
                capture
                    .set_time(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64));
            }
            let now = clock.now();
            self.client.turn(now);
            self.server.turn(now);
            polls = polls.wrapping_add(1);
            if polls.is_multiple_of(64) && begin.elapsed() >= turn {
                break;
            }
        }
        let tally = Tally {
            done: self.done() - done,
            failed: self.failed() - failed,
            seconds: begin.elapsed().as_secs_f64(),
            cpu_seconds: thread_cpu() - cpu,
        };
        // The rest is not counted, but it is not left lying about either.
        self.client.seats[0].app.open = false;
        let patience = Instant::now();
        while self.client.seats[0].app.running > 0 && patience.elapsed() < Duration::from_secs(2) {
            let now = clock.now();
            self.client.turn(now);
            self.server.turn(now);
        }
        let waiting = self.server.seats[0].lane.tables(|tables| tables.time_waits as u64);
        *peak = (*peak).max(waiting);
        tally
    }

    fn done(&self) -> u64 {
        self.client.seats[0].app.done
    }

    fn failed(&self) -> u64 {
        self.client.seats[0].app.failed + self.server.seats[0].app.failed
    }

    fn facts(&mut self, peak: u64) -> Facts {
        let (client, server) = (self.client.counters(), self.server.counters());
        let both = |mib| client.get(mib) + server.get(mib);
        Facts {
            packets: both(Mib::IpOutRequests),
            connections: self.done() + self.client.seats[0].app.failed,
            evicted: both(Mib::TcpExtTCPTimeWaitOverflow),
            reused: both(Mib::TcpExtTWRecycled),
            peak,
            retransmitted: both(Mib::TcpRetransSegs),
            sources: SOURCES.into(),
        }
    }
}

/// CPU time of this thread, in seconds.
pub fn thread_cpu() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
