//! How many handshakes are under way at most, also of those that take over flows in TIME_WAIT: spoken to in packets.

use laneway_device::memory::{LinkConfig, LinkQueue, LinkRx, LinkTx, link};
use laneway_device::{Rx, Tx, TxMeta};
use laneway_proto::discard::Discard;
use laneway_proto::ip::output::{HeaderSpec, Marks, emit};
use laneway_proto::time::Instant;
use laneway_stack::app::{App, ConnId, Context, ListenerId};
use laneway_stack::binding::BindOptions;
use laneway_stack::config::Config;
use laneway_stack::control::Network;
use laneway_stack::counters::Mib;
use laneway_stack::entropy::BootSecrets;
use laneway_stack::host::Host;
use laneway_wire::checksum::{Sum, pseudo_header};
use laneway_wire::flow::Address;
use laneway_wire::protocol;
use laneway_wire::tcp::Flags;
use std::ops::RangeInclusive;

const HERE: Address = Address::from_v4([10, 0, 0, 1]);
const THERE: Address = Address::from_v4([10, 0, 0, 2]);
const BACKLOG: usize = 4;
/// Peers whose connections are in TIME_WAIT, each at its port.
const FORMER: RangeInclusive<u16> = 1_001..=1_200;
/// As many as the backlog, or 64, may those begin who have completed a handshake lately.
const KNOWN: usize = 64;
/// And as many those who come back to a flow.
const RETURNING: usize = 64;
/// All of them.
const ALL: usize = BACKLOG + KNOWN + RETURNING;

/// Closes whatever it accepts.
struct Closing;
impl App for Closing {
    fn on_accept(&mut self, cx: &mut Context<'_>, id: ConnId) {
        cx.close(id);
    }
    fn on_data(&mut self, _: &mut Context<'_>, _: ConnId, data: &[u8]) -> usize {
        data.len()
    }
}

/// What the host has said to one of the ports.
struct Said {
    port: u16,
    seq: u32,
    flags: Flags,
    hop_limit: u8,
}

struct World {
    wire: LinkQueue,
    host: Host<LinkRx, LinkTx, Closing>,
    listener: ListenerId,
    now: Instant,
}

impl World {
    /// A host that has all of [`FORMER`] in TIME_WAIT.
    fn new() -> World {
        let now = Instant::from_us(3_600_000_000);
        let (mut here, there) = link(LinkConfig { mtu: 576, ..LinkConfig::default() });
        let network = Network { addresses: vec!["10.0.0.1/24".parse().unwrap()], gateways: vec![] };
        let config = Config { tcp_max_syn_backlog: BACKLOG, ..Config::default() };
        let mut host = Host::new(config, &network, &BootSecrets::from_seed(7), there, now, |_| Closing).unwrap();
        let listener = host.listen("0.0.0.0:80".parse().unwrap(), 256, now).unwrap();
        let mut world = World { wire: here.remove(0), host, listener, now };
        for port in FORMER {
            let Said { seq, .. } = world.say(port, 0, 0, Flags::SYN).pop().expect("a SYN-ACK");
            let end = world.say(port, 1, seq + 1, Flags::ACK).pop().expect("a FIN");
            assert!(end.flags.fin());
            world.say(port, 1, seq + 2, Flags::FIN | Flags::ACK);
        }
        assert_eq!(world.under_way(), (0, FORMER.count()));
        world.now = world.now.after_us(1_000_000);
        world
    }

    /// Says something from a port, and hears the answers.
    fn say(&mut self, port: u16, seq: u32, ack: u32, flags: Flags) -> Vec<Said> {
        let packet = segment(port, seq, ack, flags);
        let LinkQueue { tx, rx } = &mut self.wire;
        tx.reserve(packet.len()).expect("there is room").copy_from_slice(&packet);
        tx.commit(packet.len(), TxMeta::default());
        tx.flush();
        for _ in 0..2 {
            self.host.turn(self.now);
            self.now = self.now.after_us(100);
        }
        let read = |packet: &[u8]| {
            let word = |at| u32::from_be_bytes(*packet[at..].first_chunk().unwrap());
            let flags = Flags::from_bits(packet[33]);
            Said { port: word(20) as u16, seq: word(24), flags, hop_limit: packet[8] }
        };
        let count = rx.poll(64);
        let said = (0..count).map(|at| read(rx.frame(at).bytes)).collect();
        rx.release();
        said
    }

    /// Half-open entries, and records.
    fn under_way(&mut self) -> (usize, usize) {
        let half_open = self.host.seats[0].lane.tables(|tables| tables.half_open.len());
        (half_open, self.host.counters().get(Mib::TcpExtTW) as usize - self.recycled())
    }

    fn recycled(&mut self) -> usize {
        self.host.counters().get(Mib::TcpExtTWRecycled) as usize
    }

    /// Whoever was in TIME_WAIT comes back, beyond what was received: the ports that are answered.
    fn come_back(&mut self) -> Vec<u16> {
        let answers = FORMER.flat_map(|port| self.say(port, 1_000_000, 0, Flags::SYN)).collect::<Vec<_>>();
        answers.iter().filter(|said| said.flags.syn()).map(|said| said.port).collect()
    }
}

fn segment(port: u16, seq: u32, ack: u32, flags: Flags) -> Vec<u8> {
    let mut packet = vec![0; 40];
    let segment = &mut packet[20..];
    segment[..2].copy_from_slice(&port.to_be_bytes());
    segment[2..4].copy_from_slice(&80u16.to_be_bytes());
    segment[4..8].copy_from_slice(&seq.to_be_bytes());
    segment[8..12].copy_from_slice(&ack.to_be_bytes());
    (segment[12], segment[13]) = (5 << 4, flags.bits());
    segment[14..16].copy_from_slice(&8_192u16.to_be_bytes());
    let sum = pseudo_header(&THERE, &HERE, protocol::TCP, 20) + Sum::of(segment);
    segment[16..18].copy_from_slice(&sum.checksum());
    emit(&HeaderSpec::new(THERE, HERE, protocol::TCP), &mut packet, 20);
    packet
}

#[test]
fn those_who_come_back_have_a_bound_too() {
    let mut world = World::new();
    let former = FORMER.count();
    assert_eq!(world.come_back(), FORMER.take(ALL).collect::<Vec<_>>());
    assert_eq!(world.under_way(), (ALL, former - ALL), "the records of the others are kept");
    let counters = world.host.counters();
    let dropped = (former - ALL) as u64;
    assert_eq!(counters.discarded(Discard::TcpSynDropped), dropped);
    assert_eq!((counters.get(Mib::TcpExtListenDrops), counters.get(Mib::TcpExtTCPReqQFullDrop)), (dropped, dropped));
    assert_eq!(counters.get(Mib::TcpExtSyncookiesSent), 0);
    // Once the first have gone, who asks again is answered.
    FORMER.take(ALL).for_each(|port| drop(world.say(port, 1_000_001, 0, Flags::RST)));
    let (counters, gone) = (world.host.counters(), (ALL) as u64);
    assert_eq!((counters.get(Mib::TcpAttemptFails), counters.get(Mib::TcpExtEmbryonicRsts)), (gone, gone));
    let next = *FORMER.start() + (ALL) as u16;
    assert_eq!(world.say(next, 1_000_000, 0, Flags::SYN).pop().map(|said| said.port), Some(next));
}

#[test]
fn whoever_begins_keeps_nobody_from_coming_back() {
    let mut world = World::new();
    for port in 2_001..=2_100 {
        assert!(world.say(port, 0, 0, Flags::SYN).pop().expect("an answer").flags.syn());
    }
    assert_eq!(world.under_way().0, BACKLOG + KNOWN, "the others have had a cookie");
    assert_eq!(world.come_back(), FORMER.take(RETURNING).collect::<Vec<_>>());
}

/// `tcpEstabResets` of RFC 4022 are of those in ESTABLISHED or CLOSE-WAIT.
#[test]
fn who_is_reset_after_its_own_fin_was_not_cut_off() {
    let mut world = World::new();
    let port = *FORMER.end() + 1;
    let Said { seq, .. } = world.say(port, 0, 0, Flags::SYN).pop().expect("a SYN-ACK");
    assert!(world.say(port, 1, seq + 1, Flags::ACK).pop().expect("a FIN").flags.fin());
    world.say(port, 1, 0, Flags::RST);
    assert_eq!(world.host.seats[0].lane.tables(|tables| tables.slots.len()), 0);
    assert_eq!(world.host.counters().get(Mib::TcpEstabResets), 0);
}

/// Its SYN has come twice, and it believes in the first answer, which was a cookie: the entry that the second has made is not waited for.
#[test]
fn who_answers_a_cookie_leaves_no_entry() {
    let mut world = World::new();
    let most = BACKLOG + KNOWN;
    let crowd = 2_001..2_001 + most as u16;
    crowd.for_each(|port| drop(world.say(port, 0, 0, Flags::SYN)));
    let cookie = world.say(3_000, 0, 0, Flags::SYN).pop().expect("a cookie");
    world.say(2_001, 1, 0, Flags::RST);
    let other = world.say(3_000, 0, 0, Flags::SYN).pop().expect("a SYN-ACK");
    assert!(cookie.seq != other.seq && world.under_way().0 == most, "there was room for an entry by then");
    assert!(world.say(3_000, 1, cookie.seq + 1, Flags::ACK).pop().expect("a FIN").flags.fin());
    assert_eq!(world.under_way().0, most - 1);
}

/// What was wished of a listener before a SYN was sent holds for its answer, although the lane hears of both in the same turn.
#[test]
fn a_syn_is_answered_as_was_wished_before_it_came() {
    let mut world = World::new();
    for (port, wished, is) in [(2_001, 255, 255), (2_002, 1, 1), (2_003, 0, 64)] {
        world.host.control.mark(world.listener, Marks { hop_limit: wished, dscp_ecn: 0 });
        let said = world.say(port, 0, 0, Flags::SYN);
        assert_eq!((said[0].flags, said[0].hop_limit), (Flags::SYN | Flags::ACK, is));
    }
}

/// What was wished of a socket before it listened holds from the first SYN on.
#[test]
fn who_listens_with_a_wish_answers_the_first_syn_so() {
    let mut world = World::new();
    world.host.control.unlisten(world.listener);
    world.host.turn(world.now);
    let options = BindOptions { reuse_address: true, ..BindOptions::default() };
    let (bound, _) = world.host.bind("10.0.0.1:80".parse().unwrap(), options, world.now).unwrap();
    world.host.control.listen_on(bound, 16, Marks { hop_limit: 255, dscp_ecn: 0 }).unwrap();
    let said = world.say(2_001, 0, 0, Flags::SYN);
    assert_eq!((said[0].flags, said[0].hop_limit), (Flags::SYN | Flags::ACK, 255));
}
