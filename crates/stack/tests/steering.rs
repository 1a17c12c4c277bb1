//! Steering buckets move under load: over a link whose senders follow the table, and over one that switches at once with
//! frames still in the old queue, as the kernel's TUN does. Nothing is lost, nothing is overtaken, and every move ends.

use laneway_device::memory::{self, Indirection, LinkConfig, LinkRx, LinkTx};
use laneway_device::{Capabilities, Queue, Tx, TxMeta};
use laneway_proto::discard::Discard;
use laneway_proto::ip::fragment::Fragments;
use laneway_proto::ip::output::{self, HeaderSpec};
use laneway_proto::tcp::CloseReason;
use laneway_proto::time::Instant;
use laneway_stack::app::{App, ConnId, Context};
use laneway_stack::binding::BindOptions;
use laneway_stack::config::Config;
use laneway_stack::control::{BindId, Network};
use laneway_stack::counters::{Counters, Mib};
use laneway_stack::entropy::{BootSecrets, Entropy};
use laneway_stack::error::Error;
use laneway_stack::host::Host;
use laneway_stack::steering::{BUCKETS, Source, Steering};
use laneway_stack::tables::Tcb;
use laneway_wire::checksum::{Sum, pseudo_header};
use laneway_wire::flow::{Address, FlowKey};
use laneway_wire::icmpv4::{Message, unreachable};
use laneway_wire::protocol;
use laneway_wire::tcp::SeqNum;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// Bytes of a round trip on a stream: so many segments that a lane which is behind has more in its queue than it takes in one poll,
/// and there is something to overtake.
const ROUND: usize = 30_000;
const STREAM: u64 = 1;
const SHORT: u64 = 2;
const SERVER: [u8; 4] = [10, 0, 0, 1];
const CLIENT: [u8; 4] = [10, 0, 0, 2];

fn pattern(at: usize) -> u8 {
    (at * 7 + at / 251) as u8
}

/// Server: sends everything back, and on port 80 closes after 100 bytes. Client: streams that say something and wait until all of
/// it has come back, and short connections one after the other.
#[derive(Default)]
struct Load {
    is_server: bool,
    streams: usize,
    /// Short connections to make, and how many at a time.
    short: usize,
    at_once: usize,
    running: usize,
    /// Streams go on, until they are told to pause or to end after the round.
    pausing: bool,
    ending: bool,
    /// So many bytes more are said at once on each stream.
    burst: usize,
    /// One active open from a bound port.
    from: Option<BindId>,
    refused: Option<Error>,
    seen: HashMap<ConnId, usize>,
    to_send: HashMap<ConnId, (usize, usize)>,
    open: Vec<ConnId>,
    rounds: usize,
    done: usize,
    wrong: Vec<String>,
}

impl Load {
    /// Sends on; of a stream what is still missing of the round.
    fn send(&mut self, cx: &mut Context<'_>, id: ConnId) {
        let Some((at, until)) = self.to_send.get_mut(&id) else { return };
        while at < until {
            let bytes: Vec<u8> = (*at..*until).map(pattern).collect();
            match cx.send(id, &bytes) {
                0 => return,
                sent => *at += sent,
            }
        }
    }
}

impl App for Load {
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        let server = Address::from_v4(SERVER);
        while self.streams > 0 {
            cx.connect(None, server, 7, STREAM).expect("there are ports");
            self.streams -= 1;
        }
        while self.short > 0 && self.running < self.at_once {
            match cx.connect(None, server, 80, SHORT) {
                Ok(_) => (self.short, self.running) = (self.short - 1, self.running + 1),
                Err(Error::LaneExhausted(_)) => break,
                Err(other) => panic!("{other}"),
            }
        }
        if let Some(bound) = self.from.take() {
            self.refused = cx.connect_from(bound, server, 7, STREAM).err();
        }
        for id in if self.burst > 0 { self.open.clone() } else { Vec::new() } {
            self.to_send.entry(id).and_modify(|(_, until)| *until += self.burst);
            self.send(cx, id);
        }
        self.burst = 0;
        if self.ending && self.pausing {
            self.ending = false;
            self.open.clone().into_iter().for_each(|id| cx.close(id));
        }
    }
    fn on_accept(&mut self, cx: &mut Context<'_>, id: ConnId) {
        let port = cx.flow(id).expect("it is there").local_port;
        cx.set_token(id, if port == 80 { SHORT } else { STREAM });
        self.to_send.insert(id, (0, 0));
        self.open.push(id);
    }
    fn on_connect(&mut self, cx: &mut Context<'_>, id: ConnId) {
        let first = if cx.token(id) == SHORT { 100 } else { ROUND };
        self.to_send.insert(id, (0, first));
        self.open.push(id);
        self.send(cx, id);
    }
    fn on_data(&mut self, cx: &mut Context<'_>, id: ConnId, data: &[u8]) -> usize {
        let seen = self.seen.entry(id).or_default();
        if let Some(at) = data.iter().enumerate().position(|(i, byte)| *byte != pattern(*seen + i)) {
            self.wrong.push(format!("byte {} of {id:?} is wrong", *seen + at));
        }
        *seen += data.len();
        let (seen, short) = (*seen, cx.token(id) == SHORT);
        let Some((_, until)) = self.to_send.get_mut(&id) else { return data.len() };
        if self.is_server {
            *until = seen;
        } else if !short && seen == *until {
            self.rounds += 1;
            if self.ending {
                cx.close(id);
            } else if !self.pausing {
                *until += ROUND;
            }
        }
        self.send(cx, id);
        if self.is_server && short && seen == 100 {
            cx.close(id);
        }
        data.len()
    }
    fn on_writable(&mut self, cx: &mut Context<'_>, id: ConnId) {
        self.send(cx, id);
    }
    fn on_closed(&mut self, _: &mut Context<'_>, id: ConnId, token: u64, reason: CloseReason) {
        let seen = self.seen.remove(&id).unwrap_or(0);
        self.to_send.remove(&id);
        self.open.retain(|open| *open != id);
        if reason != CloseReason::Normal || (token == SHORT && seen != 100) {
            self.wrong.push(format!("{id:?} ended with {reason:?} after {seen} bytes"));
        }
        if token == SHORT {
            self.done += 1;
            self.running = self.running.saturating_sub(1);
        }
    }
}

/// A sender that counts the segments which tell that one before them was overtaken: those that carry SACK blocks.
struct Spy {
    inner: LinkTx,
    frame: Vec<u8>,
    sacks: Arc<AtomicU64>,
}

impl Tx for Spy {
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }
    fn reserve(&mut self, len: usize) -> Option<&mut [u8]> {
        self.inner.reserve(len)?;
        self.frame.resize(len, 0);
        Some(&mut self.frame)
    }
    fn commit(&mut self, len: usize, meta: TxMeta) {
        let frame = &self.frame[..len];
        let tcp = &frame[20..];
        let mut options = &tcp[20..usize::from(tcp[12] >> 4) * 4];
        while let [kind, rest @ ..] = options {
            if *kind == 5 {
                let number = |at: &[u8]| SeqNum::new(u32::from_be_bytes(at.try_into().expect("four bytes")));
                // What comes before the acknowledgement has come twice, and was not overtaken.
                let ack = number(&tcp[8..12]);
                let blocks = rest[1..usize::from(rest[0]) - 1].chunks(8);
                self.sacks.fetch_add(blocks.filter(|b| number(&b[..4]).after(ack)).count() as u64, Ordering::Relaxed);
            }
            let skip = if *kind <= 1 { 0 } else { usize::from(rest[0]) - 1 };
            options = &rest[skip..];
        }
        self.inner.reserve(self.frame.len()).expect("it was granted").copy_from_slice(&self.frame);
        self.inner.commit(len, meta);
    }
    fn flush(&mut self) {
        self.inner.flush();
    }
}

/// What a ring of the link holds of the shortest frames that are sent here.
const CAPACITY: usize = (1 << 20) / 48;

/// A table that the very next frame goes by.
#[derive(Clone)]
struct AtOnce(Arc<[AtomicU8; BUCKETS]>);

impl Source for AtOnce {
    fn steer(&mut self, table: &[u8; BUCKETS]) -> Result<(), String> {
        self.0.iter().zip(table).for_each(|(place, queue)| place.store(*queue, Ordering::Relaxed));
        Ok(())
    }
    fn has_switched(&mut self, _: usize) -> bool {
        true
    }
    fn is_abrupt(&self) -> bool {
        true
    }
    fn capacity(&self) -> usize {
        CAPACITY
    }
}

/// The same, when the test says so.
struct WhenTold {
    table: AtOnce,
    told: Arc<AtomicBool>,
    next: Option<[u8; BUCKETS]>,
}

impl Source for WhenTold {
    fn steer(&mut self, table: &[u8; BUCKETS]) -> Result<(), String> {
        self.next = Some(*table);
        Ok(())
    }
    fn has_switched(&mut self, _: usize) -> bool {
        if !self.told.load(Ordering::Relaxed) {
            return false;
        }
        self.next.take().is_none_or(|table| self.table.steer(&table).is_ok())
    }
    fn is_abrupt(&self) -> bool {
        false
    }
}

/// How the link chooses queues.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Rss {
    /// Each sender follows the table when the reader has read.
    Follows,
    /// At once.
    AtOnce,
    /// When it is told to, which it is not.
    WhenTold,
    /// There is none: frames stay on the queue number that they were sent on, and lanes pass on what is not theirs.
    Absent,
}

type End = Host<LinkRx, Spy, Load>;

struct World {
    ends: [End; 2],
    steering: [Steering; 2],
    /// Sources that switch when they are told to may.
    told: Arc<AtomicBool>,
    sacks: Arc<AtomicU64>,
    now: Instant,
    chance: Entropy,
}

impl World {
    fn new(lanes: usize, rss: Rss, config: &Config) -> Self {
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
    fn turn(&mut self, times: usize) {
        for _ in 0..times {
            let busy = self.ends.iter_mut().fold(false, |busy, end| end.turn(self.now).busy | busy);
            self.now = self.now.after_us(if busy { 5 } else { 500 });
        }
    }

    /// Some parts have their turn, in some order, and for a while one lane of each end is far behind the others.
    fn some_turns(&mut self, round: usize) {
        for end in &mut self.ends {
            let slow = round / 32 % end.seats.len();
            for (lane, seat) in end.seats.iter_mut().enumerate() {
                if self.chance.next_u64() % if lane == slow { 12 } else { 3 } < 2 - u64::from(lane == slow) {
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

    fn sum(&mut self, mib: Mib) -> u64 {
        self.ends.iter_mut().map(|end| end.counters().get(mib)).sum()
    }

    fn is_settled(&self) -> bool {
        self.ends.iter().all(|end| end.control.buckets().iter().all(|bucket| bucket.from.is_none()))
    }

    /// Flows that a lane of an end has: connections, half-open entries, records.
    fn flows(&mut self, end: usize, lane: usize) -> (usize, usize, usize) {
        self.ends[end].seats[lane].lane.tables(|t| (t.slots.len(), t.half_open.len(), t.time_waits))
    }

    /// Nothing is wrong with either end.
    fn check(&mut self) -> [Counters; 2] {
        self.check_but_probes(0)
    }

    /// The same, but that each end may have asked so often what became of something whose answer was late.
    fn check_but_probes(&mut self, most: u64) -> [Counters; 2] {
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

/// Moves so many buckets of both ends under load, some of them again before they have settled.
fn move_under_load(lanes: usize, rss: Rss, moves: usize, cookies: bool) {
    let mut config = Config::default();
    config.tcp.msl_us = 20_000;
    if cookies {
        config.tcp_max_syn_backlog = 0;
    }
    let mut world = World::new(lanes, rss, &config);
    let total = 1_500;
    let clients = world.ends[1].seats.len();
    for seat in &mut world.ends[1].seats {
        (seat.app.streams, seat.app.short, seat.app.at_once) = (12 / clients, total / clients, 30 / clients);
    }
    let mut turns = 0;
    let (mut moved, mut again) = (0, 0);
    while world.ends[1].seats.iter().map(|seat| seat.app.done).sum::<usize>() < total / clients * clients
        || moved < moves
    {
        world.some_turns(turns);
        turns += 1;
        if turns % 8 == 0 && moved < moves {
            let end = world.chance.next_u64() as usize % 2;
            // One right after the other: no lane has heard of the first when the second is asked for.
            for _ in 0..2 {
                let bucket = world.chance.next_u64() as usize % BUCKETS;
                let lane = world.chance.next_u64() as usize % world.ends[end].seats.len();
                let was = world.ends[end].control.buckets()[bucket];
                world.ends[end].control.move_bucket(bucket, lane).expect("it can be moved");
                moved += usize::from(was.lane != lane && was.then != Some(lane));
                again += usize::from(was.from.is_some() && was.lane != lane);
            }
        }
        assert!(turns < 40_000, "no progress after {moved} moves: {:?}", world.check());
    }
    assert!(lanes == 2 || again > 0, "none was moved again while it moved");
    world.check();
    let rounds: usize = world.ends[1].seats.iter().map(|seat| seat.app.rounds).sum();
    assert!(rounds > 100, "the streams have gone on: {rounds} rounds");
    let [server, client] = world.check();
    let opened = (total / clients * clients + 12 / clients * clients) as u64;
    assert_eq!((server.get(Mib::TcpPassiveOpens), client.get(Mib::TcpActiveOpens)), (opened, opened));
    let noticed = (server.get(Mib::SteerAsked), server.get(Mib::SteerReturned));
    assert!(noticed.0 > 0 && noticed.1 > 0, "moves were noticed: {noticed:?} {:?}", world.ends[0].control.buckets());
    if cookies {
        assert!(server.get(Mib::TcpExtSyncookiesRecv) > 0);
    }
    assert!(!world.is_settled(), "the streams hold up the moves of their buckets");
    // When they have ended, everything settles.
    world.ends[1].seats.iter_mut().for_each(|seat| seat.app.ending = true);
    let mut turns = 0;
    while !world.is_settled() {
        world.turn(1);
        turns += 1;
        assert!(turns < 20_000, "some move does not end: {:?}", world.ends[0].control.buckets());
    }
    world.turn(500);
    world.check();
    for end in 0..2 {
        for lane in 0..world.ends[end].seats.len() {
            assert_eq!(world.flows(end, lane), (0, 0, 0), "nothing is left over");
        }
    }
}

#[test]
fn a_hundred_moves_under_load_over_a_link_that_follows() {
    move_under_load(2, Rss::Follows, 100, false);
}

#[test]
fn a_hundred_moves_under_load_over_a_link_that_switches_at_once() {
    move_under_load(2, Rss::AtOnce, 100, false);
}

#[test]
fn a_hundred_moves_between_three_lanes_over_a_link_that_switches_at_once() {
    move_under_load(3, Rss::AtOnce, 100, false);
}

#[test]
fn a_hundred_moves_between_three_lanes_that_get_frames_at_random() {
    move_under_load(3, Rss::Absent, 100, false);
}

#[test]
fn a_hundred_moves_between_three_lanes_while_handshakes_are_cookies() {
    move_under_load(3, Rss::Follows, 100, true);
}

/// The new owner of a bucket sends the cookie, and the former one decides about the ACK for it, as about all that finds nothing while it
/// has a flow of the bucket left. It has sent no cookie for minutes.
#[test]
fn a_cookie_of_the_new_owner_is_believed_by_the_old_one() {
    let mut config = Config::default();
    config.tcp.msl_us = 20_000;
    config.tcp_max_syn_backlog = 0;
    let mut world = World::new(2, Rss::Follows, &config);
    for seat in &mut world.ends[1].seats {
        (seat.app.streams, seat.app.pausing) = (12, true);
    }
    world.turn(500);
    assert!(world.flows(0, 0).0 > 0, "some streams are the first lane's, and hold up the moves of their buckets");
    world.now = world.now.after_us(130_000_000);
    for bucket in 0..BUCKETS {
        world.ends[0].control.move_bucket(bucket, 1).expect("it can be moved");
    }
    world.turn(2_000);
    assert!(world.ends[0].control.buckets().iter().all(|bucket| bucket.lane == 1), "all are the second lane's");
    assert!(!world.is_settled());
    let asked = world.sum(Mib::SteerAsked);
    for seat in &mut world.ends[1].seats {
        (seat.app.short, seat.app.at_once) = (400, 20);
    }
    world.turn(8_000);
    let [server, _] = world.check();
    assert!(server.get(Mib::SteerAsked) > asked, "some came to buckets that move");
    assert_eq!((server.get(Mib::TcpPassiveOpens), world.ends[1].seats[0].app.done), (24 + 800, 400));
}

/// A lane that is given more than it can take keeps up with the flows of a bucket that it gives away as with the others: it
/// reads what its queue held, however long the queue stays full.
#[test]
fn a_bucket_leaves_a_lane_whose_queue_is_never_empty() {
    let mut world = World::new(2, Rss::AtOnce, &Config::default());
    let (bound, number) = one(&mut world, 20_007);
    open(&mut world, bound);
    let from: usize = world.steering[0].indirection()[number].into();
    // Datagrams for nobody, that come to the same queue before and after.
    let header = HeaderSpec::new(Address::from_v4(CLIENT), Address::from_v4([10, 0, 0, 9]), protocol::UDP);
    let mut datagram = [0; 28];
    output::emit(&header, &mut datagram, 8);
    let stays = |bucket: usize| bucket != number && usize::from(world.steering[0].indirection()[bucket]) == from;
    let port = (1..u16::MAX).find(|port| {
        datagram[20..22].copy_from_slice(&port.to_be_bytes());
        stays(world.steering[0].bucket_of_frame(&datagram, 0))
    });
    port.expect("every second one");
    let flood = |world: &mut World, frames: usize| {
        let tx = &mut world.ends[1].seats[0].queue.tx.inner;
        for _ in 0..frames {
            if let Some(frame) = tx.reserve(datagram.len()) {
                frame.copy_from_slice(&datagram);
                tx.commit(datagram.len(), TxMeta::default());
            }
        }
        tx.flush();
    };
    let rounds = |world: &World| world.ends[1].seats.iter().map(|seat| seat.app.rounds).sum::<usize>();
    flood(&mut world, 128);
    world.ends[0].control.move_bucket(number, 1 - from).unwrap();
    let mut in_tenths = [0; 10];
    for tenth in &mut in_tenths {
        let before = rounds(&world);
        for _ in 0..1_000 {
            flood(&mut world, 64);
            world.ends.iter_mut().for_each(|end| _ = end.turn(world.now));
            world.now = world.now.after_us(100);
        }
        *tenth = rounds(&world) - before;
    }
    assert_eq!(bucket(&world, number), (1 - from, Some(from), None), "the connection is still there");
    assert!(in_tenths.iter().all(|rounds| *rounds > 10), "round trips in each tenth of a second: {in_tenths:?}");
    world.check_but_probes(1); // the queue fills, and the first answer behind it is late
}

/// Of a flow 36 segments lie in the old owner's queue, behind as many of another, and it takes 64 in a poll; 4 more lie in the new
/// owner's, which mails them at once.
#[test]
fn what_the_new_owner_mails_waits_for_what_is_in_the_queue() {
    let mut world = World::new(2, Rss::AtOnce, &Config::default());
    let (other, stays) = one(&mut world, 20_004);
    let from: usize = world.steering[0].indirection()[stays].into();
    open(&mut world, other);
    let of = Address::from_v4;
    let key = |port| FlowKey { local: of(SERVER), remote: of(CLIENT), local_port: 7, remote_port: port };
    let beside =
        |port: &u16| world.steering[0].bucket(&key(*port)) != stays && world.steering[0].lane(&key(*port)) == from;
    let port = (20_005..).find(beside).expect("every second one");
    let (bound, number) = one(&mut world, port);
    open(&mut world, bound);
    world.turn(500); // the window has grown
    world.ends[1].seats.iter_mut().for_each(|seat| seat.app.pausing = true);
    world.turn(50);
    let say = |world: &mut World, bytes: usize| {
        world.ends[1].seats.iter_mut().for_each(|seat| seat.app.burst = bytes);
        world.ends[1].turn(world.now);
    };
    world.ends[0].control.move_bucket(number, 1 - from).unwrap();
    for seat in &mut world.ends[0].seats {
        seat.turn(world.now);
    }
    let sent = world.ends[1].counters().get(Mib::TcpOutSegs);
    say(&mut world, 36 * 1_448);
    world.ends[0].control.turn(world.now); // every lane has answered, and the device switches
    say(&mut world, 4 * 1_448);
    world.now = world.now.after_us(2_000);
    world.ends[0].seats[1 - from].turn(world.now);
    let asked = world.ends[0].counters().get(Mib::SteerAsked);
    let received = |world: &mut World| world.ends[0].seats[from].app.seen.values().sum::<usize>();
    let before = received(&mut world);
    world.ends[0].seats[from].turn(world.now);
    let taken = received(&mut world) - before;
    let sent = world.ends[1].counters().get(Mib::TcpOutSegs) - sent;
    assert_eq!(
        (sent, asked, taken),
        (80, 4, 64 * 1_448),
        "what was in the queue was more than one poll takes, and comes first"
    );
    world.turn(200);
    assert_eq!(received(&mut world) - before, 80 * 1_448);
    world.check();
}

/// The one connection of a client's bound port, and the server's bucket of it.
fn one(world: &mut World, port: u16) -> (BindId, usize) {
    let at = format!("10.0.0.2:{port}").parse().expect("an address");
    let (bound, _) = world.ends[1].bind(at, BindOptions::default(), world.now).expect("it is free");
    let of = Address::from_v4;
    let key = FlowKey { local: of(SERVER), remote: of(CLIENT), local_port: 7, remote_port: port };
    (bound, world.steering[0].bucket(&key))
}

/// Opens it on whichever lane of the client has it.
fn open(world: &mut World, bound: BindId) {
    for lane in 0..world.ends[1].seats.len() {
        world.ends[1].seats[lane].app.from = Some(bound);
        world.turn(1);
        if world.ends[1].seats[lane].app.refused.take().is_none() {
            return world.turn(100);
        }
    }
    panic!("no lane opens it");
}

fn bucket(world: &World, number: usize) -> (usize, Option<usize>, Option<usize>) {
    let bucket = world.ends[0].control.buckets()[number];
    (bucket.lane, bucket.from, bucket.then)
}

#[test]
fn a_second_move_waits_for_the_drain() {
    let mut world = World::new(2, Rss::Follows, &Config::default());
    let (bound, number) = one(&mut world, 20_000);
    open(&mut world, bound);
    let from = world.steering[0].indirection()[number].into();
    let to = 1 - from;
    assert_eq!((world.flows(0, from).0, world.flows(0, to).0), (1, 0));
    world.ends[0].control.move_bucket(number, to).unwrap();
    world.turn(1_000);
    assert_eq!(bucket(&world, number), (to, Some(from), None), "the connection is still there");
    world.ends[0].control.move_bucket(number, from).unwrap();
    world.turn(1_000);
    assert_eq!(bucket(&world, number), (to, Some(from), Some(from)));
    let rounds = |world: &World| world.ends[1].seats.iter().map(|seat| seat.app.rounds).sum::<usize>();
    let before = rounds(&world);
    world.turn(1_000);
    assert!(rounds(&world) > before && world.flows(0, from).0 == 1, "it stays where it is, and lives");
    // It ends, and with it the first move and then the second.
    world.ends[1].seats.iter_mut().for_each(|seat| seat.app.ending = true);
    world.turn(2_000);
    assert_eq!(bucket(&world, number), (from, None, None));
    assert_eq!(world.ends[0].control.move_bucket(number, from), Ok(()), "moving it to where it is does nothing");
    assert_eq!(bucket(&world, number), (from, None, None));
    for (bucket, lane, says) in [(128, 0, "0 to 127"), (0, 2, "0 to 1")] {
        let refused = world.ends[0].control.move_bucket(bucket, lane).unwrap_err().to_string();
        assert!(refused.contains(says), "{refused}");
    }
    world.check();
}

/// The server closes, and keeps the record; its bucket moves; the client comes from the same port again.
#[test]
fn a_record_of_the_old_owner_is_asked_before_a_syn_takes_its_flow_over() {
    let mut world = World::new(2, Rss::Follows, &Config::default());
    let (bound, number) = one(&mut world, 20_001);
    let from: usize = world.steering[0].indirection()[number].into();
    let to = 1 - from;
    open(&mut world, bound);
    // The client says no more, and then the server closes.
    world.ends[1].seats.iter_mut().for_each(|seat| seat.app.pausing = true);
    world.turn(20);
    world.ends[0].seats.iter_mut().for_each(|seat| (seat.app.pausing, seat.app.ending) = (true, true));
    world.turn(20);
    assert_eq!((world.flows(0, from), world.flows(0, to)), ((0, 0, 1), (0, 0, 0)), "the server waits");
    world.ends[0].control.move_bucket(number, to).unwrap();
    world.turn(1_000);
    assert_eq!(bucket(&world, number), (to, Some(from), None), "the record holds it up");
    let record = |world: &mut World| {
        world.ends[0].seats[from].lane.tables(|t| t.tw4.front().map(|(_, record)| *record)).expect("it is there")
    };
    use laneway_proto::tcp::TimeWait;
    let beyond = record(&mut world).reusable(world.now.after_us(60_000_000), 1).expect("both ends send timestamps");
    open(&mut world, bound);
    assert_eq!(world.flows(0, to), (1, 0, 0), "the flow is with the new owner");
    assert_eq!(world.flows(0, from).2, 0, "the record has ended");
    let begun = world.ends[0].seats[to].lane.tables(|t| {
        let slot = t.slots.iter().next().expect("it is there").1;
        match &slot.tcb {
            Tcb::Synchronized(connection) => connection.sequence().0,
            Tcb::Handshaking(_) => panic!("it is established"),
        }
    });
    assert!(begun.after(beyond), "it begins beyond what the record remembers");
    let counters = world.ends[0].counters();
    assert_eq!((counters.get(Mib::TcpExtTWRecycled), counters.get(Mib::SteerReturned)), (1, 1));
    world.turn(100);
    assert_eq!(bucket(&world, number), (to, None, None), "and so has the move");
    world.check();
}

/// While a bucket of the client moves, only its former owner may open flows of it from a bound port, and nobody chooses its ports.
#[test]
fn the_former_owner_opens_what_a_bound_port_asks_for() {
    let mut world = World::new(2, Rss::Follows, &Config::default());
    let (bound, _) = one(&mut world, 20_002);
    let of = Address::from_v4;
    let key = FlowKey { local: of(CLIENT), remote: of(SERVER), local_port: 20_002, remote_port: 7 };
    let number = world.steering[1].bucket(&key);
    let from: usize = world.steering[1].indirection()[number].into();
    // Something that holds the move up.
    let hold = FlowKey { local_port: 0, ..key };
    let port = (20_003..).find(|port| world.steering[1].bucket(&FlowKey { local_port: *port, ..hold }) == number);
    let (holds, _) = one(&mut world, port.expect("one in 128"));
    open(&mut world, holds);
    world.ends[1].control.move_bucket(number, 1 - from).unwrap();
    world.turn(200);
    world.ends[1].seats[1 - from].app.from = Some(bound);
    world.turn(1);
    assert_eq!(world.ends[1].seats[1 - from].app.refused.take(), Some(Error::OtherLane(from)));
    open(&mut world, bound);
    assert_eq!(world.flows(1, from).0, 2, "it was opened where the bucket was");
    let rounds = |world: &World| world.ends[1].seats[from].app.rounds;
    let before = rounds(&world);
    world.turn(500);
    assert!(rounds(&world) > before + 2, "and its replies find it");
    // Neither lane chooses a port of the bucket.
    for seat in &mut world.ends[1].seats {
        (seat.app.short, seat.app.at_once) = (3_000, 50);
    }
    let mut busy = true;
    while busy {
        world.turn(1);
        for lane in 0..2 {
            let steering = &world.steering[1];
            world.ends[1].seats[lane].lane.tables(|t| {
                let chosen = t.slots.iter().filter(|(_, slot)| slot.key().remote_port == 80);
                let mut buckets = chosen.map(|(_, slot)| steering.bucket(slot.key()));
                assert!(buckets.all(|bucket| bucket != number), "a port of a moving bucket was chosen");
            });
        }
        busy = world.ends[1].seats.iter().any(|seat| seat.app.done < 3_000);
    }
    assert!(world.sum(Mib::SteerAsked) > 0);
    world.check();
}

/// A SYN that comes while frames are still put into the old owner's queue is accepted there, and what follows it does not overtake it.
#[test]
fn the_old_owner_decides_until_every_source_has_switched() {
    let mut world = World::new(2, Rss::WhenTold, &Config::default());
    let (bound, number) = one(&mut world, 20_006);
    let from: usize = world.steering[0].indirection()[number].into();
    let to = 1 - from;
    world.ends[0].control.move_bucket(number, to).unwrap();
    world.turn(50);
    assert_eq!(bucket(&world, number), (to, Some(from), None), "every lane goes by the table, and the source does not");
    open(&mut world, bound);
    assert_eq!((world.flows(0, from).0, world.flows(0, to)), (1, (0, 0, 0)));
    assert_eq!(world.ends[0].counters().get(Mib::SteerAsked), 0, "nobody else had a say in it");
    world.turn(500); // the window has grown
    pause(&mut world);
    let before = received(&world, from);
    say(&mut world, 20);
    world.ends[0].seats[from].turn(world.now);
    world.told.store(true, Ordering::Relaxed);
    world.ends[0].control.turn(world.now);
    say(&mut world, 20);
    for lane in [to, from] {
        world.ends[0].seats[lane].turn(world.now);
    }
    assert_eq!(received(&world, from) - before, 40 * 1_448);
    assert_eq!(world.ends[0].counters().get(Mib::SteerAsked), 20, "the latter came to the new owner");
    world.turn(200);
    world.check();
}

/// Frames come to a lane that is neither owner. What it has mailed to the old one is there before anything goes by way of the new one.
#[test]
fn a_third_lane_goes_by_the_table_when_what_it_mailed_has_been_read() {
    let mut world = World::new(3, Rss::Absent, &Config::default());
    let (third, from, to) = (2, 1, 0); // the old owner reads the new one's mail before the third's
    let (bound, number) = one_that_comes_to(&mut world, third, from);
    open(&mut world, bound);
    assert_eq!(world.flows(0, from).0, 1);
    world.turn(500); // the window has grown
    pause(&mut world);
    let before = received(&world, from);
    say(&mut world, 30);
    world.ends[0].seats[third].turn(world.now);
    world.ends[0].control.move_bucket(number, to).unwrap();
    for lane in [third, to] {
        world.ends[0].seats[lane].turn(world.now);
    }
    say(&mut world, 4);
    for lane in [third, to] {
        world.ends[0].seats[lane].turn(world.now);
    }
    assert_eq!(received(&world, from), before, "the old owner is behind");
    assert_eq!(world.ends[0].counters().get(Mib::SteerAsked), 0, "and nothing goes another way meanwhile");
    world.ends[0].seats[from].turn(world.now);
    assert_eq!(received(&world, from) - before, 34 * 1_448);
    say(&mut world, 4);
    for lane in [third, to, from] {
        world.ends[0].seats[lane].turn(world.now);
    }
    assert_eq!(received(&world, from) - before, 38 * 1_448);
    assert_eq!(world.ends[0].counters().get(Mib::SteerAsked), 4, "then it goes by way of the new owner");
    world.turn(200);
    world.check();
}

/// A flow of the server's lane `owner` whose frames come to the queue of its lane `queue`.
fn one_that_comes_to(world: &mut World, queue: usize, owner: usize) -> (BindId, usize) {
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
fn pause(world: &mut World) {
    world.ends[1].seats.iter_mut().for_each(|seat| seat.app.pausing = true);
    world.turn(50);
}

/// The client's streams send so many segments, and the server has not had its turn.
fn say(world: &mut World, segments: usize) {
    world.ends[1].seats.iter_mut().for_each(|seat| seat.app.burst = segments * 1_448);
    world.ends[1].turn(world.now);
}

fn received(world: &World, lane: usize) -> usize {
    world.ends[0].seats[lane].app.seen.values().sum()
}

/// Puts a packet into a queue of the server, whose parts then have a few turns; the client has none.
fn inject(world: &mut World, queue: usize, packet: &[u8]) {
    let tx = &mut world.ends[1].seats[queue].queue.tx.inner;
    tx.reserve(packet.len()).expect("there is room").copy_from_slice(packet);
    tx.commit(packet.len(), TxMeta::default());
    tx.flush();
    for _ in 0..6 {
        world.ends[0].turn(world.now);
        world.now = world.now.after_us(5);
    }
}

fn spec(protocol: u8) -> HeaderSpec {
    HeaderSpec::new(Address::from_v4(CLIENT), Address::from_v4(SERVER), protocol)
}

/// "Fragmentation needed", about a segment of the server's that carried `seq`.
fn too_big(key: &FlowKey, seq: u32, mtu: u16) -> Vec<u8> {
    let mut quoted = vec![0; 28];
    output::emit(&HeaderSpec::new(key.local, key.remote, protocol::TCP), &mut quoted, 1_480);
    quoted[20..22].copy_from_slice(&key.local_port.to_be_bytes());
    quoted[22..24].copy_from_slice(&key.remote_port.to_be_bytes());
    quoted[24..28].copy_from_slice(&seq.to_be_bytes());
    let code = unreachable::FRAGMENTATION_NEEDED;
    let message = Message::DestinationUnreachable { code, next_hop_mtu: mtu, quoted: &quoted };
    let spec = spec(protocol::ICMPV4);
    let mut packet = vec![0; spec.len() + message.len()];
    output::emit(&spec, &mut packet, message.len());
    message.emit(&mut packet[spec.len()..]);
    packet
}

/// A SYN of the flow with so much text that it comes in fragments.
fn syn_in_fragments(key: &FlowKey, id: u16) -> Vec<Vec<u8>> {
    let mut segment = vec![0; 1_020];
    segment[0..2].copy_from_slice(&key.remote_port.to_be_bytes());
    segment[2..4].copy_from_slice(&key.local_port.to_be_bytes());
    (segment[12], segment[13]) = (5 << 4, 2);
    let sum = pseudo_header(&key.remote, &key.local, protocol::TCP, segment.len() as u32) + Sum::of(&segment);
    segment[16..18].copy_from_slice(&sum.checksum());
    let spec = HeaderSpec { dont_fragment: false, id, ..spec(protocol::TCP) };
    let mut pieces = Fragments::new(&spec, id.into(), &segment, 576).expect("it may be fragmented");
    std::iter::from_fn(|| {
        let mut piece = vec![0; pieces.next_len()?];
        pieces.write_next(&mut piece);
        Some(piece)
    })
    .collect()
}

/// What is about a flow and not from it, and what has no ports, may come to any lane: to the old owner, the new one, or a third.
#[test]
fn icmp_errors_and_fragments_find_what_has_stayed() {
    let (from, to) = (1, 0);
    for queue in 0..3 {
        let mut world = World::new(3, Rss::Absent, &Config::default());
        let (bound, number) = one_that_comes_to(&mut world, 2, from);
        open(&mut world, bound);
        world.turn(200);
        pause(&mut world);
        world.ends[0].control.move_bucket(number, to).unwrap();
        world.turn(200);
        assert_eq!(bucket(&world, number), (to, Some(from), None));
        let asked = |world: &mut World| world.ends[0].counters().get(Mib::SteerAsked);
        // A SYN in fragments is one for a connection that there is: it begins nothing, and is not refused.
        let key = world.ends[0].seats[from].lane.tables(|t| *t.slots.iter().next().expect("it is there").1.key());
        let before = asked(&mut world);
        for id in 0..12 {
            for piece in syn_in_fragments(&key, id) {
                inject(&mut world, queue, &piece);
            }
        }
        let counters = world.ends[0].counters();
        assert_eq!((counters.get(Mib::IpReasmOKs), counters.get(Mib::TcpOutRsts)), (12, 0));
        assert!(asked(&mut world) > before, "the new owner did not know it");
        let flows = [0, 1, 2].map(|lane| world.flows(0, lane));
        assert_eq!((flows[from], flows[to], flows[2]), ((1, 0, 0), (0, 0, 0), (0, 0, 0)));
        world.turn(50);
        // Something of the server's is under way, and too big.
        say(&mut world, 4);
        for _ in 0..6 {
            world.ends[0].turn(world.now);
        }
        let look = |world: &mut World| {
            world.ends[0].seats[from].lane.tables(|t| match &t.slots.iter().next().expect("it is there").1.tcb {
                Tcb::Synchronized(connection) => (connection.sequence(), connection.mss()),
                Tcb::Handshaking(_) => panic!("it is established"),
            })
        };
        let ((una, nxt, _), mss) = look(&mut world);
        assert!(una.before(nxt) && mss == 1_448, "the client has acknowledged nothing: {una:?} {nxt:?}");
        let before = asked(&mut world);
        inject(&mut world, queue, &too_big(&key, una.raw(), 1_000));
        assert_eq!(look(&mut world).1, 1_000 - 52, "it was heard of by the connection, through lane {queue}");
        assert_eq!(world.ends[0].counters().discarded(Discard::IcmpUnverified), 0);
        assert_eq!(asked(&mut world) - before, 1, "by the new owner, through lane {queue}");
        let all = received(&world, from);
        world.turn(2_000);
        let heard: usize = world.ends[1].seats[2].app.seen.values().sum();
        assert_eq!(heard, all, "all of it has come back");
        assert!(world.ends.iter().flat_map(|end| &end.seats).all(|seat| seat.app.wrong.is_empty()));
    }
}
