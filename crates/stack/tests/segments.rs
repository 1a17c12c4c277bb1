//! Super-segments between two whole hosts, in virtual time, with a tap on the wire: what leaves in one piece, what is cut
//! where, and that nobody but the device can tell the difference.

use laneway_device::memory::{LinkConfig, LinkQueue, LinkRx, LinkTx, link, offload};
use laneway_device::{Medium, PartialChecksum, Rx, RxChecksum, Tx, TxMeta};
use laneway_proto::tcp::CloseReason;
use laneway_proto::time::Instant;
use laneway_stack::app::{App, ConnId, Context};
use laneway_stack::config::Config;
use laneway_stack::control::Network;
use laneway_stack::counters::Mib;
use laneway_stack::entropy::BootSecrets;
use laneway_stack::host::Host;
use laneway_wire::flow::Address;
use laneway_wire::tcp::Segment;

/// What the client writes in each transaction: each piece in a turn of its own, or all in one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Writes {
    /// One piece of so many bytes.
    One(usize),
    /// Two pieces in one turn.
    TwoAtOnce(usize, usize),
    /// Two pieces, the second some turns after the first.
    TwoApart(usize, usize),
}

impl Writes {
    fn bytes(self) -> usize {
        match self {
            Writes::One(a) => a,
            Writes::TwoAtOnce(a, b) | Writes::TwoApart(a, b) => a + b,
        }
    }
}

fn byte(at: usize) -> u8 {
    (at ^ (at >> 8) ^ (at >> 16)) as u8
}

/// One end of request and response.
struct End {
    is_server: bool,
    writes: Writes,
    response: usize,
    to_do: usize,
    started: bool,
    connection: Option<ConnId>,
    heard: usize,
    said: usize,
    /// The second piece, and the turns until it is written.
    second: Option<(usize, u32)>,
    began: Instant,
    now: Instant,
    took_us: Vec<u64>,
    ended: Option<CloseReason>,
}

impl End {
    fn new(is_server: bool, writes: Writes, response: usize, to_do: usize) -> Self {
        End {
            is_server,
            writes,
            response,
            to_do,
            started: false,
            connection: None,
            heard: 0,
            said: 0,
            second: None,
            began: Instant::ZERO,
            now: Instant::ZERO,
            took_us: Vec::new(),
            ended: None,
        }
    }

    fn say(&mut self, cx: &mut Context<'_>, bytes: usize) {
        let text: Vec<u8> = (self.said..self.said + bytes).map(byte).collect();
        self.said += cx.send(self.connection.unwrap(), &text);
    }

    fn ask(&mut self, cx: &mut Context<'_>) {
        self.began = self.now;
        match self.writes {
            Writes::One(a) => self.say(cx, a),
            Writes::TwoAtOnce(a, b) => {
                self.say(cx, a);
                self.say(cx, b);
            }
            Writes::TwoApart(a, b) => {
                self.say(cx, a);
                self.second = Some((b, 3));
            }
        }
    }
}

impl App for End {
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        if !self.is_server && !self.started {
            self.started = true;
            self.connection = Some(cx.connect(None, Address::from_v4([10, 0, 0, 1]), 80, 0).unwrap());
        }
        match &mut self.second {
            Some((bytes, 0)) => {
                let bytes = *bytes;
                self.second = None;
                self.say(cx, bytes);
            }
            Some((_, turns)) => *turns -= 1,
            None => {}
        }
    }
    fn on_accept(&mut self, _: &mut Context<'_>, id: ConnId) {
        self.connection = Some(id);
    }
    fn on_connect(&mut self, cx: &mut Context<'_>, _: ConnId) {
        self.ask(cx);
    }
    fn on_data(&mut self, cx: &mut Context<'_>, id: ConnId, data: &[u8]) -> usize {
        for (i, got) in data.iter().enumerate() {
            assert_eq!(*got, byte(self.heard + i), "byte {} is wrong", self.heard + i);
        }
        let before = self.heard;
        self.heard += data.len();
        let whole = if self.is_server { self.writes.bytes() } else { self.response };
        for _ in before / whole..self.heard / whole {
            if self.is_server {
                self.say(cx, self.response);
                continue;
            }
            self.took_us.push(self.now.since_us(self.began));
            self.to_do -= 1;
            if self.to_do == 0 {
                cx.close(id);
            } else {
                self.ask(cx);
            }
        }
        data.len()
    }
    fn on_closed(&mut self, _: &mut Context<'_>, _: ConnId, _: u64, reason: CloseReason) {
        self.ended = Some(reason);
    }
}

/// One segment as it was on the wire.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Seen {
    from: usize,
    seq: u32,
    ack: u32,
    len: usize,
    flags: u8,
}

/// What devices can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Offload {
    /// Nothing.
    None,
    /// They cut what is sent.
    Sender,
    /// They hand super-packets over whole.
    Both,
}

struct World {
    hosts: [Host<LinkRx, LinkTx, End>; 2],
    wires: [LinkQueue; 2],
    offload: Offload,
    now: Instant,
    seen: Vec<Seen>,
    /// Frames that crossed the wire, super-packets whole.
    frames: usize,
    longest: usize,
    /// Frames arrive on lanes that do not own them.
    lane_mail: bool,
}

fn world(offload: Offload, lanes: usize, writes: Writes, response: usize, to_do: usize) -> World {
    let now = Instant::from_us(3_600_000_000);
    let network = |ip: &str| Network { addresses: vec![ip.parse().unwrap()], gateways: vec![] };
    let config = || LinkConfig {
        queues: lanes,
        second_queues: Some(1),
        tx_checksum: offload != Offload::None,
        rx_checksum: offload == Offload::Both,
        tso_max: if offload == Offload::None { 0 } else { 65_535 },
        rx_super: offload == Offload::Both,
        ..LinkConfig::default()
    };
    let mut wires = Vec::new();
    let mut host = |host: usize| {
        let (queues, mut wire) = link(config());
        wires.append(&mut wire);
        let ip = ["10.0.0.1/24", "10.0.0.2/24"][host];
        Host::new(Config::default(), &network(ip), &BootSecrets::from_seed(host as u64), queues, now, |_| {
            End::new(host == 0, writes, response, to_do)
        })
        .unwrap()
    };
    let (mut server, client) = (host(0), host(1));
    server.listen("0.0.0.0:80".parse().unwrap(), 16, now).unwrap();
    let wires = <[LinkQueue; 2]>::try_from(wires).ok().unwrap();
    World {
        hosts: [server, client],
        wires,
        offload,
        now,
        seen: Vec::new(),
        frames: 0,
        longest: 0,
        lane_mail: lanes > 1,
    }
}

const TCP_AT: u16 = 20;

impl World {
    fn turn(&mut self) -> bool {
        let mut busy = false;
        for host in &mut self.hosts {
            for seat in &mut host.seats {
                seat.app.now = self.now;
            }
            busy |= host.turn(self.now).busy;
        }
        for from in 0..2 {
            let [a, b] = &mut self.wires;
            let (source, target) = if from == 0 { (&mut a.rx, &mut b.tx) } else { (&mut b.rx, &mut a.tx) };
            let count = source.poll(64);
            for i in 0..count {
                let frame = source.frame(i);
                self.frames += 1;
                self.longest = self.longest.max(frame.bytes.len());
                let vouched = frame.meta.checksum == RxChecksum::Verified;
                assert!(!vouched || self.offload == Offload::Both);
                let partial = vouched.then_some(PartialChecksum { start: TCP_AT, offset: 16 });
                let header_len = TCP_AT + 32;
                let meta = TxMeta { checksum_partial: partial, gso_size: frame.meta.gso_size, header_len };
                offload::finish(Medium::Ip, frame.bytes, &meta, |len, write| {
                    let mut bytes = vec![0; len];
                    write(&mut bytes);
                    assert!(len <= 1_500, "{len} bytes on a wire of 1500");
                    let segment = Segment::parse(&bytes[usize::from(TCP_AT)..]).unwrap();
                    self.seen.push(Seen {
                        from,
                        seq: segment.seq.raw(),
                        ack: segment.ack.raw(),
                        len: segment.payload.len(),
                        flags: segment.flags.bits(),
                    });
                });
                let into = target.reserve(frame.bytes.len()).expect("the ring is large enough");
                into.copy_from_slice(frame.bytes);
                target.commit(frame.bytes.len(), meta);
            }
            source.release();
            target.flush();
            busy |= count > 0;
        }
        busy
    }

    fn run(&mut self) {
        let mut idle = 0;
        while idle < 3 {
            let busy = self.turn();
            idle = if busy { 0 } else { idle + 1 };
            self.now = self.now.after_us(10);
            if idle == 3 && !self.is_done() {
                // Only a timer can move it now.
                self.now = self.now.after_us(1_000);
                idle = 0;
            }
            assert!(
                self.now.as_us() < 3_660_000_000,
                "not over after a minute: {:?}",
                &self.seen[self.seen.len() - 4..]
            );
        }
        for host in &self.hosts {
            assert!(host.seats.iter().any(|seat| seat.app.ended == Some(CloseReason::Normal)));
        }
        assert_eq!(self.sum(Mib::TcpRetransSegs), 0);
        assert!(!self.lane_mail || self.sum(Mib::SteerMailed) > 0);
    }

    fn is_done(&self) -> bool {
        self.hosts.iter().all(|host| host.seats.iter().any(|seat| seat.app.ended.is_some()))
    }

    fn sum(&mut self, mib: Mib) -> u64 {
        self.hosts.iter_mut().map(|host| host.counters().get(mib)).sum()
    }
}

#[test]
fn a_transaction_of_4096_bytes_is_one_packet_each_way() {
    for offload in [Offload::None, Offload::Sender, Offload::Both] {
        let transactions = 500;
        let mut world = world(offload, 1, Writes::One(4_096), 4_096, transactions);
        world.run();
        for host in &mut world.hosts {
            let counters = host.counters();
            let packets = counters.get(Mib::IpOutRequests) as f64;
            let per_transaction = packets / transactions as f64;
            assert!(per_transaction <= 1.05, "{offload:?}: {per_transaction} packets");
            let octets = counters.get(Mib::IpExtOutOctets) as f64 / packets;
            assert!(octets >= 4_100.0, "{offload:?}: {octets} octets a packet");
            assert_eq!(counters.get(Mib::TcpSuperSegs), transactions as u64);
            assert_eq!(counters.get(Mib::TcpSuperSegsPieces), 3 * transactions as u64);
        }
        let super_packets = world.longest > 1_500;
        assert_eq!(super_packets, offload == Offload::Both, "{offload:?}: a frame of {}", world.longest);
        // Without offload the pieces of each message go through TCP together.
        let merged = world.sum(Mib::TcpInMerged);
        if offload == Offload::Both {
            assert_eq!(merged, 0);
        } else {
            // All but those of the request that came with the end of the handshake.
            assert!(merged >= 4 * (transactions as u64 - 1), "{merged} of {}", 4 * transactions);
        }
    }
}

/// The same work with and without offload: the same bytes (which the applications check), the same segments, the same ACKs.
#[test]
fn nobody_can_tell_who_cuts() {
    let sizes = [1, 536, 1_448, 1_449, 2_896, 4_096, 13_032, 14_000, 40_000];
    for (i, request) in sizes.into_iter().enumerate() {
        let response = sizes[(i * 5 + 3) % sizes.len()];
        for writes in [Writes::One(request), Writes::TwoAtOnce(100, request), Writes::TwoApart(100, request)] {
            let [plain, cut, whole] = [Offload::None, Offload::Sender, Offload::Both].map(|offload| {
                let mut world = world(offload, 1, writes, response, 12);
                world.run();
                world.seen
            });
            assert_eq!(plain, cut, "{request} and {response} bytes");
            assert_eq!(plain, whole, "{request} and {response} bytes");
        }
    }
}

#[test]
fn write_write_read_waits_for_no_timer() {
    for offload in [Offload::None, Offload::Both] {
        for writes in [Writes::TwoAtOnce(100, 400), Writes::TwoApart(100, 400), Writes::TwoApart(1_448, 10)] {
            let mut world = world(offload, 1, writes, 300, 200);
            world.run();
            let took = &world.hosts[1].seats[0].app.took_us;
            assert_eq!(took.len(), 200);
            let worst = took.iter().max().unwrap();
            assert!(*worst < 1_000, "{worst} us");
        }
    }
}

/// Super-packets that arrive on the wrong lane go to the right one whole, with what the device said of them.
#[test]
fn super_packets_change_lanes() {
    for offload in [Offload::None, Offload::Both] {
        // Without steering all arrives at the first of three lanes.
        let mut world = world(offload, 3, Writes::One(4_096), 20_000, 40);
        for seat in &mut world.hosts[1].seats {
            seat.app.started = seat.lane.id() != 1; // the second lane's client asks
        }
        world.run();
    }
}
