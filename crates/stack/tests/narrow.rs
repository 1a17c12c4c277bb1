//! A path that carries less than it seems: a byte stream arrives. Over IPv4 one that carries less than is believed of any, 552 bytes, where routers cut what
//! is sent; and one that swallows what is too long for it.

use laneway_device::memory::{LinkConfig, LinkQueue, LinkRx, LinkTx, link, offload};
use laneway_device::{Medium, Rx, Tx, TxMeta};
use laneway_proto::icmp::{self, Problem};
use laneway_proto::ip::fragment::Fragments;
use laneway_proto::ip::input;
use laneway_proto::ip::output::HeaderSpec;
use laneway_proto::tcp::CloseReason;
use laneway_proto::time::Instant;
use laneway_stack::app::{App, ConnId, Context};
use laneway_stack::config::Config;
use laneway_stack::control::Network;
use laneway_stack::counters::Mib;
use laneway_stack::entropy::BootSecrets;
use laneway_stack::host::Host;
use laneway_wire::flow::Address;
use laneway_wire::protocol;
use std::collections::HashSet;

const BYTES: usize = 200_000;
const DARK_US: u64 = 5_000_000;

fn byte(at: usize) -> u8 {
    (at ^ (at >> 8) ^ (at >> 16)) as u8
}

/// The second host sends, and the first takes.
#[derive(Default)]
struct End {
    sends: bool,
    began: bool,
    said: usize,
    heard: usize,
    ended: Option<CloseReason>,
}

impl End {
    fn say(&mut self, cx: &mut Context<'_>, id: ConnId) {
        let text: Vec<u8> = (self.said..BYTES).map(byte).collect();
        self.said += cx.send(id, &text);
        if self.said == BYTES {
            cx.close(id);
        }
    }
}

impl App for End {
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        if self.sends && !self.began {
            self.began = true;
            cx.connect(None, Address::from_v4([10, 0, 0, 1]), 80, 0).unwrap();
        }
    }
    fn on_connect(&mut self, cx: &mut Context<'_>, id: ConnId) {
        self.say(cx, id);
    }
    fn on_writable(&mut self, cx: &mut Context<'_>, id: ConnId) {
        self.say(cx, id);
    }
    fn on_accept(&mut self, _: &mut Context<'_>, _: ConnId) {
        self.heard = 0;
    }
    fn on_data(&mut self, _: &mut Context<'_>, _: ConnId, data: &[u8]) -> usize {
        assert!(data.iter().enumerate().all(|(i, got)| *got == byte(self.heard + i)), "behind byte {}", self.heard);
        self.heard += data.len();
        data.len()
    }
    fn on_peer_closed(&mut self, cx: &mut Context<'_>, id: ConnId) {
        cx.close(id);
    }
    fn on_closed(&mut self, _: &mut Context<'_>, _: ConnId, _: u64, reason: CloseReason) {
        self.ended = Some(reason);
    }
}

/// Two hosts, and a router between them that carries `mtu` bytes.
struct World {
    hosts: [Host<LinkRx, LinkTx, End>; 2],
    wires: [LinkQueue; 2],
    mtu: usize,
    /// Nobody is told of what is too long.
    is_silent: bool,
    /// Nothing passes from this time on, for [`DARK_US`].
    dark_from: Instant,
    /// The longest packet that has passed behind that.
    longest: usize,
    now: Instant,
    /// Packets that were too long and might not be cut.
    refused: usize,
    /// By what the pieces of those that were cut are known.
    cut: Vec<u16>,
}

fn world(mtu: usize, cuts: bool, lanes: usize) -> World {
    let now = Instant::from_us(3_600_000_000);
    let mut wires = Vec::new();
    let hosts = ["10.0.0.1/24", "10.0.0.2/24"].map(|ip| {
        let config = LinkConfig {
            queues: lanes,
            second_queues: Some(1),
            tx_checksum: cuts,
            tso_max: if cuts { 65_535 } else { 0 },
            ..LinkConfig::default()
        };
        let (queues, mut wire) = link(config);
        wires.append(&mut wire);
        let network = Network { addresses: vec![ip.parse().unwrap()], gateways: vec![] };
        let app = |lane| End { sends: lane == 0 && ip.contains(".2/"), ..End::default() };
        Host::new(Config::default(), &network, &BootSecrets::from_seed(ip.len() as u64), queues, now, app).unwrap()
    });
    let mut world = World {
        hosts,
        wires: wires.try_into().ok().unwrap(),
        mtu,
        is_silent: false,
        dark_from: Instant::NEVER,
        longest: 0,
        now,
        refused: 0,
        cut: Vec::new(),
    };
    world.hosts[0].listen("0.0.0.0:80".parse().unwrap(), 16, now).unwrap();
    world
}

fn put(tx: &mut LinkTx, len: usize, write: impl FnOnce(&mut [u8])) {
    write(tx.reserve(len).expect("the ring is large enough"));
    tx.commit(len, TxMeta::default());
}

impl World {
    /// The router takes what the host `from` has sent.
    fn carry(&mut self, from: usize) {
        let [a, b] = &mut self.wires;
        let (source, back, target) =
            if from == 0 { (&mut a.rx, &mut a.tx, &mut b.tx) } else { (&mut b.rx, &mut b.tx, &mut a.tx) };
        let count = source.poll(64);
        for i in 0..count {
            let frame = source.frame(i);
            let checksum_partial = None;
            let meta = TxMeta { checksum_partial, gso_size: frame.meta.gso_size, header_len: 52 };
            offload::finish(Medium::Ip, frame.bytes, &meta, |len, write| {
                let mut bytes = vec![0; len];
                write(&mut bytes);
                if self.now >= self.dark_from && self.now < self.dark_from.after_us(DARK_US) {
                    return;
                }
                if self.now > self.dark_from.after_us(DARK_US) {
                    self.longest = self.longest.max(len);
                }
                if len <= self.mtu {
                    return put(target, len, |into| into.copy_from_slice(&bytes));
                }
                let packet = input::input(&bytes, false).expect("a right checksum");
                if bytes[6] & 0x40 != 0 {
                    self.refused += 1;
                    if self.is_silent {
                        return;
                    }
                    let problem = Problem::PacketTooBig { mtu: self.mtu as u32 };
                    let reply = icmp::error_reply(&packet, problem).expect("it may be told of");
                    return put(back, reply.len(), |into| reply.emit(into));
                }
                let id = u16::from_be_bytes([bytes[4], bytes[5]]);
                self.cut.push(id);
                let ends = [&bytes[12..16], &bytes[16..20]].map(|end| Address::from_v4(end.try_into().unwrap()));
                let spec = HeaderSpec { dont_fragment: false, id, ..HeaderSpec::new(ends[0], ends[1], protocol::TCP) };
                let mut pieces = Fragments::new(&spec, id.into(), &bytes[20..], self.mtu).unwrap();
                while let Some(len) = pieces.next_len() {
                    put(target, len, |into| pieces.write_next(into));
                }
            });
        }
        source.release();
        target.flush();
        back.flush();
    }

    /// Bytes of the last connections of the server's lanes.
    fn heard(&self) -> usize {
        self.hosts[0].seats.iter().map(|seat| seat.app.heard).sum()
    }

    /// Until a connection of this lane of the client has sent all and has ended.
    fn run(&mut self, lane: usize) {
        self.hosts[1].seats[lane].app.sends = true;
        while self.hosts[1].seats[lane].app.ended.is_none() {
            for from in 0..2 {
                self.hosts[from].turn(self.now);
                self.carry(from);
            }
            self.now = self.now.after_us(100);
            assert!(self.now.as_us() < 3_610_000_000, "not over after ten seconds");
        }
    }
}

#[test]
fn what_a_narrow_path_cannot_carry_whole_is_cut_on_the_way() {
    for cuts in [false, true] {
        for mtu in [68, 296, 551] {
            let mut world = world(mtu, cuts, 1);
            world.run(0);
            let [server, client] = &mut world.hosts;
            assert_eq!((server.seats[0].app.heard, client.seats[0].app.ended), (BYTES, Some(CloseReason::Normal)));
            assert!(world.refused <= 10, "{} were refused: the first flight", world.refused);
            let ids: HashSet<u16> = world.cut.iter().copied().collect();
            assert_eq!(ids.len(), world.cut.len(), "two packets had pieces of one name");
            assert_eq!(client.counters().get(Mib::TcpExtTCPTimeouts), 0);
        }
    }
}

/// Nobody is cut to whom a path carries as much as is believed of it.
#[test]
fn what_fits_may_not_be_cut() {
    for mtu in [552, 1_006] {
        let mut world = world(mtu, false, 1);
        world.run(0);
        assert_eq!((world.cut.len(), world.hosts[0].seats[0].app.heard), (0, BYTES));
    }
}

/// What one lane has heard of a path holds for the others.
#[test]
fn a_lane_is_told_of_what_another_has_heard() {
    for mtu in [296, 1_006] {
        let mut world = world(mtu, false, 2);
        world.run(0);
        let refused = world.refused;
        assert!(refused > 0);
        world.run(1);
        assert_eq!(world.refused, refused);
    }
}

/// And it is found once, whoever sends to that peer next.
#[test]
fn a_path_that_swallows_what_is_long_is_found() {
    for (mtu, cuts, seconds) in [(1_499, false, 4), (1_280, true, 4), (1_000, false, 8), (576, true, 8)] {
        let mut world = world(mtu, cuts, 2);
        world.is_silent = true;
        let began = world.now;
        world.run(0);
        assert_eq!(world.heard(), BYTES);
        let us = world.now.since_us(began);
        assert!((3_000_000..seconds * 1_000_000).contains(&us), "over {mtu} bytes it took {us} us");
        assert_eq!(world.hosts[1].counters().get(Mib::TcpExtTCPMTUPFail), 1);
        let (refused, began) = (world.refused, world.now);
        world.run(1);
        let ended = world.hosts[1].seats[1].app.ended;
        assert_eq!((world.refused, ended), (refused, Some(CloseReason::Normal)));
        assert!(world.now.since_us(began) < 1_000_000, "the next one had to find out, too");
    }
}

/// Where nothing passes for a time, nothing is learnt of what passes afterwards.
#[test]
fn an_outage_is_no_black_hole() {
    for cuts in [false, true] {
        let mut world = world(1_500, cuts, 1);
        world.dark_from = world.now.after_us(500);
        world.run(0);
        let (heard, longest, counters) = (world.heard(), world.longest, world.hosts[1].counters());
        assert!(counters.get(Mib::TcpExtTCPTimeouts) >= 4, "too short to suspect anything");
        assert_eq!((heard, counters.get(Mib::TcpExtTCPMTUPFail)), (BYTES, 0));
        assert!(longest > 1_400, "{longest} bytes at the most were sent afterwards");
    }
}
