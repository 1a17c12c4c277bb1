//! Two hosts, the link between them, and their time.

use crate::load::{CLIENT, Load, SERVER};
use crate::source::{AtOnce, Rss, WhenTold};
use crate::spy::Spy;
use laneway_device::memory::{self, Indirection, LinkConfig, LinkRx};
use laneway_device::{Queue, Tx, TxMeta};
use laneway_proto::discard::Discard;
use laneway_proto::time::Instant;
use laneway_stack::binding::BindOptions;
use laneway_stack::config::Config;
use laneway_stack::control::{BindId, Network};
use laneway_stack::counters::{Counters, Mib};
use laneway_stack::entropy::{BootSecrets, Entropy};
use laneway_stack::host::Host;
use laneway_stack::steering::Steering;
use laneway_wire::flow::{Address, FlowKey};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

pub type End = Host<LinkRx, Spy, Load>;

pub struct World {
    pub ends: [End; 2],
    pub steering: [Steering; 2],
    /// Sources that switch when they are told to may.
    pub told: Arc<AtomicBool>,
    pub sacks: Arc<AtomicU64>,
    pub now: Instant,
    pub chance: Entropy,
}

impl World {
    pub fn new(lanes: usize, rss: Rss, config: &Config) -> Self {
        let secrets = [BootSecrets::from_seed(3), BootSecrets::from_seed(4)];
        // A queue that lends fewer frames than asked for is empty, as the kernel's is: one that gathers from several senders need not be.
        let lanes = [lanes, if matches!(rss, Rss::AtOnce | Rss::WhenTold) { 1 } else { lanes }];
        let steering = [0, 1].map(|end: usize| Steering::new(secrets[end].steering, lanes[end]));
        let tables = [0, 1].map(|end: usize| Indirection::new(steering[end].indirection(), lanes[1 - end]));
        let at_once = [0, 1].map(|end: usize| AtOnce(Arc::new(steering[end].indirection().map(AtomicU8::new))));
        let steer = |end: usize| -> memory::Steer {
            let (steering, at_once) = (steering[end].clone(), at_once[end].clone());
            match rss {
                Rss::Follows => Arc::new(move |frame: &[u8]| steering.bucket_of_frame(frame, 0)),
                _ => Arc::new(move |frame: &[u8]| {
                    at_once.0[steering.bucket_of_frame(frame, 0)].load(Ordering::Relaxed).into()
                }),
            }
        };
        let mut link = LinkConfig { queues: lanes[0], second_queues: Some(lanes[1]), ..LinkConfig::default() };
        if rss != Rss::Absent {
            link.steer = [Some(steer(0)), Some(steer(1))];
        }
        if rss == Rss::Follows {
            link.tables = tables.clone().map(Some);
        }
        let (first, second) = memory::link(link);
        let now = Instant::from_us(3_600_000_000);
        let sacks = Arc::new(AtomicU64::new(0));
        let told = Arc::new(AtomicBool::new(false));
        let host = |end: usize, queues: Vec<memory::LinkQueue>, ip: &str| {
            let network = Network { addresses: vec![ip.parse().expect("an address")], gateways: vec![] };
            let spy = |queue: memory::LinkQueue| Queue {
                rx: queue.rx,
                tx: Spy { inner: queue.tx, frame: Vec::new(), sacks: sacks.clone() },
            };
            let queues = queues.into_iter().map(spy).collect();
            let app = |_| Load { is_server: end == 0, ..Load::default() };
            let mut host: End = Host::new(config.clone(), &network, &secrets[end], queues, now, app).expect("a host");
            match rss {
                Rss::Follows => host.control.set_source(Box::new(tables[end].clone())),
                Rss::AtOnce => host.control.set_source(Box::new(at_once[end].clone())),
                Rss::WhenTold => {
                    let (table, told) = (at_once[end].clone(), told.clone());
                    host.control.set_source(Box::new(WhenTold { table, told, next: None }));
                }
                Rss::Absent => {}
            }
            host
        };
        let mut ends = [host(0, first, "10.0.0.1/24"), host(1, second, "10.0.0.2/24")];
        for port in [7, 80] {
            ends[0].listen(format!("0.0.0.0:{port}").parse().expect("an address"), 1_024, now).expect("it listens");
        }
        World { ends, steering, told, sacks, now, chance: Entropy::from_seed(7) }
    }

    /// Every part has its turn.
    pub fn turn(&mut self, times: usize) {
        for _ in 0..times {
            let busy = self.ends.iter_mut().fold(false, |busy, end| end.turn(self.now).busy | busy);
            self.now = self.now.after_us(if busy { 5 } else { 500 });
        }
    }

    /// Some parts have their turn, in some order, and for a while one lane of each end is far behind the others.
    pub fn some_turns(&mut self, round: usize) {
        for end in &mut self.ends {
            let slow = round / 32 % end.seats.len();
            for (lane, seat) in end.seats.iter_mut().enumerate() {
                let chosen = self.chance.next_u64() % if lane == slow { 12 } else { 3 } < 2 - u64::from(lane == slow);
                // Not behind for as long as a peer waits before it asks what became of its segments.
                if chosen || round.is_multiple_of(24) {
                    seat.turn(self.now);
                }
            }
            if !self.chance.next_u64().is_multiple_of(2) {
                end.control.turn(self.now);
            }
        }
        // Not faster: a port that is chosen again within the same tick of the clocks for timestamps and sequence numbers would
        // have to wait for the record of its last use.
        self.now = self.now.after_us(100);
    }

    pub fn sum(&mut self, mib: Mib) -> u64 {
        self.ends.iter_mut().map(|end| end.counters().get(mib)).sum()
    }

    pub fn is_settled(&self) -> bool {
        self.ends.iter().all(|end| end.control.buckets().iter().all(|bucket| bucket.from.is_none()))
    }

    /// Flows that a lane of an end has: connections, half-open entries, records.
    pub fn flows(&mut self, end: usize, lane: usize) -> (usize, usize, usize) {
        self.ends[end].seats[lane].lane.tables(|t| (t.slots.len(), t.half_open.len(), t.time_waits))
    }

    /// Nothing is wrong with either end.
    pub fn check(&mut self) -> [Counters; 2] {
        self.check_but_probes(0)
    }

    /// The same, but that each end may have asked so often what became of something whose answer was late.
    pub fn check_but_probes(&mut self, most: u64) -> [Counters; 2] {
        let counters = [0, 1].map(|end: usize| self.ends[end].counters());
        let say = || counters.iter().map(|c| c.iter().collect::<Vec<_>>()).collect::<Vec<_>>();
        let wrong: Vec<String> =
            self.ends.iter().flat_map(|end| &end.seats).flat_map(|s| s.app.wrong.clone()).collect();
        assert!(wrong.is_empty(), "{wrong:?} {:?}", say());
        for c in &counters {
            let probes = c.get(Mib::TcpExtTCPLossProbes);
            assert!(probes <= most, "{probes} probes: {:?}", say());
            let again = c.get(Mib::TcpRetransSegs).saturating_sub(probes);
            assert_eq!((again, c.get(Mib::TcpOutRsts)), (0, 0), "{:?}", say());
            assert_eq!(c.discarded(Discard::SteerRingFull), 0, "{:?}", say());
        }
        assert_eq!(self.sacks.load(Ordering::Relaxed), 0, "a segment was overtaken: {:?}", say());
        counters
    }
}

/// Puts a packet into a queue of the server.
pub fn put(world: &mut World, queue: usize, packet: &[u8]) {
    let tx = &mut world.ends[1].seats[queue].queue.tx.inner;
    tx.reserve(packet.len()).expect("there is room").copy_from_slice(packet);
    tx.commit(packet.len(), TxMeta::default());
    tx.flush();
}

/// The same, and the server's parts have a few turns then; the client has none.
pub fn inject(world: &mut World, queue: usize, packet: &[u8]) {
    put(world, queue, packet);
    for _ in 0..6 {
        world.ends[0].turn(world.now);
        world.now = world.now.after_us(5);
    }
}

/// The one connection of a client's bound port, and the server's bucket of it.
pub fn one(world: &mut World, port: u16) -> (BindId, usize) {
    let at = format!("10.0.0.2:{port}").parse().expect("an address");
    let (bound, _) = world.ends[1].bind(at, BindOptions::default(), world.now).expect("it is free");
    let of = Address::from_v4;
    let key = FlowKey { local: of(SERVER), remote: of(CLIENT), local_port: 7, remote_port: port };
    (bound, world.steering[0].bucket(&key))
}

/// Opens it on whichever lane of the client has it.
pub fn open(world: &mut World, bound: BindId) {
    for lane in 0..world.ends[1].seats.len() {
        world.ends[1].seats[lane].app.from = Some(bound);
        world.turn(1);
        if world.ends[1].seats[lane].app.refused.take().is_none() {
            return world.turn(100);
        }
    }
    panic!("no lane opens it");
}

pub fn bucket(world: &World, number: usize) -> (usize, Option<usize>, Option<usize>) {
    let bucket = world.ends[0].control.buckets()[number];
    (bucket.lane, bucket.from, bucket.then)
}

/// A flow of the server's lane `owner` whose frames come to the queue of its lane `queue`.
pub fn one_that_comes_to(world: &mut World, queue: usize, owner: usize) -> (BindId, usize) {
    let of = Address::from_v4;
    let key = |port| FlowKey { local: of(SERVER), remote: of(CLIENT), local_port: 7, remote_port: port };
    let is_one = |port: &u16| {
        let there = FlowKey { local: of(CLIENT), remote: of(SERVER), local_port: *port, remote_port: 7 };
        (world.steering[0].lane(&key(*port)), world.steering[1].lane(&there)) == (owner, queue)
    };
    let port = (20_100..).find(is_one).expect("every ninth one");
    one(world, port)
}

/// Nobody says anything more by itself.
pub fn pause(world: &mut World) {
    world.ends[1].seats.iter_mut().for_each(|seat| seat.app.pausing = true);
    world.turn(50);
}

/// The client's streams send so many segments, and the server has not had its turn.
pub fn say(world: &mut World, segments: usize) {
    world.ends[1].seats.iter_mut().for_each(|seat| seat.app.burst = segments * 1_448);
    world.ends[1].turn(world.now);
}

pub fn received(world: &World, lane: usize) -> usize {
    world.ends[0].seats[lane].app.seen.values().sum()
}
