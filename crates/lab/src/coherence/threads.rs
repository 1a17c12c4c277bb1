//! Owns what is counted where the application has a thread of its own: one lane, one thread that accepts, reads, answers
//! and closes, as `TcpListener` and `TcpStream` do it. The client beside them is nobody's turn.

use super::part::{Aside, aside, is_traced, ready};
use super::rig::{BEGIN, CONNS, TURN_US, TURNS_PER_OP};
use super::stage::{Actor, Stage};
use crate::bench::crew::{Load, Work as _};
use crate::bench::crr::{Crr, CrrClient, REQUEST, RESPONSE};
use crate::bench::failure::Failure;
use laneway_device::memory::{LinkConfig, LinkRx, LinkTx, link};
use laneway_device::{Queue, Rx, Tx};
use laneway_proto::time::Instant;
use laneway_stack::config::Config;
use laneway_stack::control::{Cidr, Control, Network};
use laneway_stack::entropy::BootSecrets;
use laneway_stack::host::{Host, Seat};
use laneway_stack::runtime::Bells;
use laneway_stack::sharing::Product;
use laneway_stack::threads::accept::Acceptors;
use laneway_stack::threads::desk::Desk;
use laneway_stack::threads::words::{FULL, OVER, SHUT_WRITE, Talk};
use laneway_stack::threads::{Server, look_fence};
use laneway_wire::flow::Address;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

/// Where the server listens.
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PORT: u16 = 80;
/// Turns in which hosts become known to each other.
const INTRODUCTION_TURNS: usize = 64;

type LaneSeat = Seat<Product, Box<dyn Rx + Send>, Box<dyn Tx + Send>, Server>;

/// Who takes turns.
#[derive(Default)]
enum Side {
    #[default]
    Nobody,
    Lane(Box<LaneSeat>),
    Application(Application),
}

impl Actor for Side {
    fn settle(&mut self) {
        *self = match std::mem::take(self) {
            Side::Lane(seat) => Side::Lane(Box::new(*seat)),
            other => other,
        };
    }

    fn turn(&mut self, now: Instant) {
        match self {
            Side::Nobody => {}
            Side::Lane(seat) => _ = seat.turn(now),
            Side::Application(application) => application.turn(),
        }
    }
}

/// Accepts what there is, and answers whoever has asked.
struct Application {
    desk: Arc<Desk>,
    acceptors: Arc<Acceptors>,
    open: Vec<Talk>,
    served: u64,
}

impl Application {
    fn turn(&mut self) {
        while let Some((newcomer, starved)) = self.acceptors.take() {
            starved.into_iter().for_each(|lane| self.desk.refill(lane, self.acceptors.id));
            assert!(!newcomer.peer.ip().is_unspecified(), "an accept says who comes");
            self.open.push(newcomer.talk);
        }
        let mut i = 0;
        while let Some(talk) = self.open.get(i) {
            if answered(&self.desk, talk) {
                leave(&self.desk, self.open.swap_remove(i));
                self.served += 1;
            } else {
                i += 1;
            }
        }
    }
}

/// One `read` and one `write` of a stream. False: nothing has come yet.
fn answered(desk: &Desk, talk: &Talk) -> bool {
    let mut request = [0; 2 * REQUEST.len()];
    if talk.recv_known(&mut request, || _ = talk.lane().status.load(Acquire)) < REQUEST.len() {
        return false;
    }
    look_fence();
    assert_eq!(talk.flags().get(FULL), 0, "a request does not fill a ring");
    assert_eq!(talk.app().state.load(Relaxed) & SHUT_WRITE, 0);
    assert_eq!(talk.flags().seen(OVER), 0, "a client waits for its answer");
    assert_eq!(talk.send(&RESPONSE), RESPONSE.len(), "an empty ring has room for a response");
    desk.serve(talk);
    true
}

/// The drop of a stream.
fn leave(desk: &Desk, talk: Talk) {
    if talk.app().handles.fetch_sub(1, AcqRel) == 1 {
        let resets = talk.app().linger_s.load(Relaxed) == 0;
        desk.leave(talk, resets);
    }
}

struct Rig {
    sides: Vec<Side>,
    control: Control,
    client: Host<LinkRx, LinkTx, CrrClient>,
    stage: Stage<Side>,
    now: Instant,
    desk: Arc<Desk>,
}

impl Rig {
    fn new() -> Result<Self, Failure> {
        let (first, second) = link(LinkConfig::default());
        first.iter().chain(&second).flat_map(|queue| queue.tx.memory()).for_each(|memory| aside(Aside::Device, memory));
        let network = |ip: Ipv4Addr| Network {
            addresses: vec![Cidr { address: IpAddr::V4(ip), prefix: 24 }],
            gateways: Vec::new(),
        };
        let client_ip = Ipv4Addr::new(10, 0, 0, 2);
        let bells = Bells::new(1).map_err(|error| Failure::Machine(format!("no bell can be had: {error}")))?;
        let (desk, servers) = Desk::new(1, bells);
        let mut servers = servers.into_iter();
        let queues = first.into_iter().map(Queue::boxed).collect();
        let mut server: Host<Box<dyn Rx + Send>, Box<dyn Tx + Send>, Server> =
            Host::new(Config::default(), &network(SERVER), &BootSecrets::from_seed(1), queues, BEGIN, |_| {
                servers.next().expect("one for the one lane")
            })?;
        let sources = Arc::from([Address::from(IpAddr::V4(client_ip))]);
        let load = Load::new(sources, Address::from(IpAddr::V4(SERVER)), CONNS);
        let mut load = Some(load);
        let client =
            Host::new(Config::default(), &network(client_ip), &BootSecrets::from_seed(2), second, BEGIN, |_| {
                Crr.client(load.take().expect("one for the one lane"))
            })?;
        let at = SocketAddr::new(IpAddr::V4(SERVER), PORT);
        let id = server.listen(at, 4 * CONNS, BEGIN)?;
        let acceptors = desk.listen(id, at, 4 * CONNS);
        let Host { control, seats } = server;
        let application =
            Application { desk: Arc::clone(&desk), acceptors, open: Vec::with_capacity(4 * CONNS), served: 0 };
        let mut sides: Vec<Side> = seats.into_iter().map(|seat| Side::Lane(Box::new(seat))).collect();
        sides.push(Side::Application(application));
        let stage = if is_traced() { Stage::apart(sides.len())? } else { Stage::here() };
        Ok(Rig { sides, control, client, stage, now: BEGIN, desk })
    }

    fn turn(&mut self) {
        self.now = self.now.after_us(TURN_US);
        self.stage.step(&mut self.sides, self.now);
        self.control.turn(self.now);
        self.client.turn(self.now);
    }

    fn served(&self) -> u64 {
        let of = |side: &Side| if let Side::Application(application) = side { application.served } else { 0 };
        self.sides.iter().map(of).sum()
    }

    fn run(&mut self, ops: u64) -> Result<u64, Failure> {
        let before = self.served();
        for _ in 0..TURNS_PER_OP * (ops + 100) {
            let done = self.served() - before;
            if done >= ops {
                return Ok(done);
            }
            self.turn();
        }
        Err(Failure::stuck(&self.client.counters()))
    }
}

/// As [`run`](super::rig::run) of lanes.
pub fn run((warm_up, ops): (u64, u64), begins: impl FnOnce(), ends: impl FnOnce()) -> Result<u64, Failure> {
    let mut rig = Rig::new()?;
    ready()?;
    (0..INTRODUCTION_TURNS).for_each(|_| rig.turn());
    rig.run(warm_up)?;
    rig.stage.counts = true;
    begins();
    let done = rig.run(ops)?;
    ends();
    // Blocks are made when they are needed, so where they are is known only now.
    rig.desk.data_memory().into_iter().for_each(|memory| aside(Aside::Data, memory));
    Ok(done)
}
