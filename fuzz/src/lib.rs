//! Owns what the fuzz targets share: a host with one lane, a hand on the other end of its wire, and what must hold
//! whatever comes over it.
#![forbid(unsafe_code)]

pub mod frames;

use laneway_proto::tcp::CloseReason;
use laneway_proto::time::Instant;
use laneway_stack::app::{App, ConnId, Context};
use laneway_stack::config::Config;
use laneway_stack::control::Network;
use laneway_stack::device::memory::{self, LinkConfig, LinkQueue, LinkRx, LinkTx};
use laneway_stack::device::{Medium, Rx, Tx};
use laneway_stack::entropy::BootSecrets;
use laneway_stack::host::{Host, Seat};
use laneway_wire::flow::Address;

/// The port that every host listens on.
pub const PORT: u16 = 80;
/// Connections that a peer may leave lying about before the application aborts the oldest.
const CONNECTIONS_MAX: usize = 64;
/// Half-open entries that the host holds.
const HALF_OPEN_MAX: usize = 32;
/// TIME_WAIT records that the host holds.
const TIME_WAIT_MAX: usize = 64;
/// Bytes of buffers that the host lends.
const LANE_MEM: usize = 1 << 22;
/// Where the clock stands at the start.
const START_US: u64 = 3_600_000_000;

/// Addresses of host `n` (1 or 2).
pub fn addresses(n: u8) -> (Address, Address) {
    let mut v6 = [0; 16];
    (v6[0], v6[15]) = (0xfd, n);
    (Address::from_v4([192, 0, 2, n]), Address::from_v6(v6))
}

/// The byte at `offset` of a stream.
pub fn pattern(offset: u32) -> u8 {
    let mixed = offset ^ (offset >> 8) ^ (offset >> 17);
    (mixed as u8).wrapping_mul(167).wrapping_add(13)
}

/// What an application of a fuzzed host does on top of taking everything in.
pub trait Mind: Default {
    /// Once a poll.
    fn poll(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }
    /// A new connection, of either kind.
    fn open(&mut self, cx: &mut Context<'_>, id: ConnId) {
        let _ = (cx, id);
    }
    /// Bytes; how many it takes.
    fn data(&mut self, cx: &mut Context<'_>, id: ConnId, data: &[u8]) -> usize {
        let _ = (cx, id);
        data.len()
    }
    /// There is room again.
    fn room(&mut self, cx: &mut Context<'_>, id: ConnId) {
        let _ = (cx, id);
    }
    /// The peer has closed.
    fn peer_closed(&mut self, cx: &mut Context<'_>, id: ConnId) {
        cx.close(id);
    }
    /// It is over.
    fn closed(&mut self, id: ConnId, reason: CloseReason) {
        let _ = (id, reason);
    }
}

/// The application of a fuzzed host: bounded in what it lets a peer hold, and otherwise what its [`Mind`] says.
#[derive(Default)]
pub struct Player<M> {
    /// Its mind.
    pub mind: M,
    /// Connections that it has, the oldest first.
    pub open: Vec<ConnId>,
    /// It aborts all that it has, and whatever it is given.
    pub leaves: bool,
}

impl<M: Mind> App for Player<M> {
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        while self.open.len() > if self.leaves { 0 } else { CONNECTIONS_MAX } {
            cx.abort(self.open.remove(0));
        }
        self.mind.poll(cx);
    }
    fn on_accept(&mut self, cx: &mut Context<'_>, id: ConnId) {
        self.open.push(id);
        self.mind.open(cx, id);
    }
    fn on_connect(&mut self, cx: &mut Context<'_>, id: ConnId) {
        self.open.push(id);
        self.mind.open(cx, id);
    }
    fn on_data(&mut self, cx: &mut Context<'_>, id: ConnId, data: &[u8]) -> usize {
        self.mind.data(cx, id, data)
    }
    fn on_writable(&mut self, cx: &mut Context<'_>, id: ConnId) {
        self.mind.room(cx, id);
    }
    fn on_peer_closed(&mut self, cx: &mut Context<'_>, id: ConnId) {
        self.mind.peer_closed(cx, id);
    }
    fn on_closed(&mut self, _: &mut Context<'_>, id: ConnId, _: u64, reason: CloseReason) {
        self.open.retain(|open| *open != id);
        self.mind.closed(id, reason);
    }
}

/// Sends everything back.
#[derive(Default)]
pub struct Echo;

impl Mind for Echo {
    fn data(&mut self, cx: &mut Context<'_>, id: ConnId, data: &[u8]) -> usize {
        cx.send(id, data)
    }
}

/// A host and the other end of its wire.
pub struct Rig<M> {
    /// The host.
    pub host: Host<LinkRx, LinkTx, Player<M>>,
    /// The other end.
    pub wire: LinkQueue,
    /// Microseconds since the start.
    pub now_us: u64,
}

impl<M: Mind> Rig<M> {
    /// Host `n`, listening on [`PORT`] of an IPv4 and an IPv6 address. `settle` may change the settings.
    pub fn new(n: u8, medium: Medium, settle: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config {
            tcp_max_syn_backlog: HALF_OPEN_MAX,
            tcp_max_tw_buckets: TIME_WAIT_MAX,
            lane_mem: LANE_MEM,
            connections: 16,
            ..Config::default()
        };
        settle(&mut config);
        let (v4, v6) = addresses(n);
        let cidr = |address: Address, bits| format!("{address}/{bits}").parse().expect("an address");
        let network = Network { addresses: vec![cidr(v4, 24), cidr(v6, 64)], gateways: vec![] };
        let (ours, mut theirs) =
            memory::link(LinkConfig { medium, ring_bytes: 1 << 16, macs: frames::MACS, ..LinkConfig::default() });
        let secrets = BootSecrets::from_seed(u64::from(n));
        let now = Instant::from_us(START_US);
        let mut host = Host::new(config, &network, &secrets, ours, now, |_| Player::default()).expect("a host");
        let at = format!("[::]:{PORT}").parse().expect("an address");
        host.listen(at, 8, now).expect("a listener");
        Rig { host, wire: theirs.remove(0), now_us: 0 }
    }

    /// The lane and its application.
    pub fn seat(&mut self) -> &mut Seat<laneway_stack::sharing::Product, LinkRx, LinkTx, Player<M>> {
        &mut self.host.seats[0]
    }

    /// Puts a frame on the wire; false if it is too long for it.
    pub fn inject(&mut self, frame: &[u8]) -> bool {
        if frame.is_empty() || frame.len() > self.wire.tx.capabilities().frame_max() {
            return false;
        }
        let Some(buf) = self.wire.tx.reserve(frame.len()) else { return false };
        buf.copy_from_slice(frame);
        self.wire.tx.commit(frame.len(), Default::default());
        self.wire.tx.flush();
        true
    }

    /// One poll, and what came out. The answer is whether anything moved, and when something will by itself.
    pub fn turn(&mut self, mut out: impl FnMut(&[u8])) -> (bool, u64) {
        let turn = self.host.turn(Instant::from_us(START_US + self.now_us));
        let frames = self.wire.rx.poll(64);
        for i in 0..frames {
            out(self.wire.rx.frame(i).bytes);
        }
        self.wire.rx.release();
        (turn.busy || frames > 0, turn.deadline.as_us().saturating_sub(START_US))
    }

    /// Polls until nothing moves; the answer is when something will by itself.
    pub fn rest(&mut self, mut out: impl FnMut(&[u8])) -> u64 {
        for _ in 0..10_000 {
            let (busy, deadline) = self.turn(&mut out);
            if !busy {
                return deadline;
            }
        }
        panic!("the host never comes to rest");
    }

    /// Lets time pass.
    pub fn pass(&mut self, us: u64, mut out: impl FnMut(&[u8])) {
        let to = self.now_us + us;
        // A bound on the work, not on the time: what is left of the way is made in one step.
        for _ in 0..200 {
            let deadline = self.rest(&mut out);
            if self.now_us >= to {
                return;
            }
            self.now_us = deadline.clamp(self.now_us + 1, to);
        }
        self.now_us = to;
        self.rest(&mut out);
    }

    /// What must hold at every moment.
    pub fn check(&mut self) {
        self.seat().lane.tables(|tables| {
            assert!(tables.half_open.len() <= HALF_OPEN_MAX, "{} half-open entries", tables.half_open.len());
            assert!(tables.time_waits <= TIME_WAIT_MAX, "{} TIME_WAIT records", tables.time_waits);
            assert!(tables.pool.lent() <= LANE_MEM, "{} bytes lent", tables.pool.lent());
            assert!(tables.slots.len() <= 2 * CONNECTIONS_MAX, "{} connections", tables.slots.len());
            // What is over, and only waits to be read, has no flow any more.
            let has_flow = |at: &u32| tables.slots.get(*at).is_some_and(|slot| slot.flow().is_some());
            let connections = (0..tables.slots.end()).filter(has_flow).count();
            let live = tables.half_open.len() + tables.time_waits + connections;
            assert_eq!(tables.flows.len(), live, "the index and what it leads to differ");
        });
    }

    /// Flows, connections, half-open entries, TIME_WAIT records, bytes lent.
    fn left(&mut self) -> [usize; 5] {
        self.seat().lane.tables(|tables| {
            [tables.flows.len(), tables.slots.len(), tables.half_open.len(), tables.time_waits, tables.pool.lent()]
        })
    }

    /// Nothing is left of any connection.
    pub fn is_empty(&mut self) -> bool {
        self.left() == [0; 5]
    }

    /// The application aborts all that it has, and everybody is silent for longer than anything waits: then nothing may be left.
    pub fn check_ends(&mut self) {
        self.seat().app.leaves = true;
        // In small steps: a lane that waits for a neighbour looks each millisecond, and a leap would be one look.
        for _ in 0..4_000 {
            if self.is_empty() {
                return;
            }
            self.pass(100_000, |_| {});
        }
        self.check_empty();
    }

    /// After everything is over nothing may be left.
    pub fn check_empty(&mut self) {
        assert_eq!(self.left(), [0; 5], "flows, connections, half-open, TIME_WAIT, bytes lent");
    }
}
