//! Owns the rig: servers and clients of our own stack over memory links, shared out to cores, and the loops that drive them.
//!
//! A [`Crew`] is what one core runs. By default there is one, with both ends of one link: it turns the server, then the
//! client, with the time read once for both.

use super::failure::Failure;
use super::latency::Stopwatch;
use super::options::{Checksums, Cores, ReferencesName};
use super::outlet::Way;
use crate::s3_ports::Ports;
use laneway_device::Medium;
use laneway_device::memory::{self, LinkConfig, LinkTx};
use laneway_proto::tcp::CloseReason;
use laneway_proto::time::Instant;
use laneway_stack::app::{App, Context};
use laneway_stack::config::Config;
use laneway_stack::control::{Cidr, Control, Network};
use laneway_stack::counters::{Counters, Mib};
use laneway_stack::entropy::BootSecrets;
use laneway_stack::error::Error;
use laneway_stack::host::{Host, Seat};
use laneway_stack::references::Tally;
use laneway_stack::sharing::Sharing;
use laneway_stack::steering::Steering;
use laneway_stack::tables::Tables;
use laneway_wire::flow::Address;
use std::any::Any;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;

/// Source addresses of the clients.
pub const ADDRESSES: usize = 64;
/// The port that servers listen on.
pub const PORT: u16 = 80;
/// Connections that a client begins in one poll at the most, so that a start does not fill the link with SYNs.
const OPENS_MAX: usize = 64;
/// How often the control plane has its turn.
const CONTROL_EVERY_US: u64 = 1_000;

/// A kind of work: what lives on the lanes of both ends.
pub trait Work: Clone + Send + 'static {
    /// On the server's lanes.
    type Server: Server + Send;
    /// On the client's lanes.
    type Client: Client + Send;
    /// One for a lane.
    fn server(&self) -> Self::Server;
    /// One for a lane, with what it is to do.
    fn client(&self, load: Load) -> Self::Client;
}

/// A server that can be asked what it did.
pub trait Server: App {
    /// Operations that only the server can count, because they end with it.
    fn ops(&self) -> u64 {
        0
    }
}

/// A client that can be told how much to do and asked what it did.
pub trait Client: App {
    /// Its load.
    fn load(&mut self) -> &mut Load;
}

/// What one client is to keep up, and what it has done.
pub struct Load {
    sources: Arc<[Address]>,
    next_source: usize,
    server: Address,
    /// Connections to keep open.
    pub target: usize,
    /// Connections open or opening.
    pub running: usize,
    /// Connections established so far.
    pub established: u64,
    /// Operations done.
    pub ops: u64,
    /// Connections that ended in any other way than they should.
    pub failed: u64,
    /// Times operations.
    pub stopwatch: Stopwatch,
}

impl Load {
    /// To keep `target` connections to `server` open, from `sources` in turn; untimed.
    pub fn new(sources: Arc<[Address]>, server: Address, target: usize) -> Self {
        Load {
            sources,
            next_source: 0,
            server,
            target,
            running: 0,
            established: 0,
            ops: 0,
            failed: 0,
            stopwatch: Stopwatch::off(),
        }
    }

    /// Opens what is missing, up to a bound per call.
    #[inline]
    pub fn open_missing(&mut self, cx: &mut Context<'_>) {
        if self.running < self.target {
            self.open(cx);
        }
    }

    fn open(&mut self, cx: &mut Context<'_>) {
        for _ in 0..OPENS_MAX.min(self.target - self.running) {
            let source = self.sources[self.next_source];
            self.next_source = (self.next_source + 1) % self.sources.len();
            let token = self.stopwatch.start();
            match cx.connect(Some(source), self.server, PORT, token) {
                Ok(_) => self.running += 1,
                Err(_) => return, // every port towards the server is in use: again in the next poll
            }
        }
    }

    /// A connection is over that was one operation.
    #[inline]
    pub fn closed(&mut self, reason: CloseReason) {
        self.running -= 1;
        if reason == CloseReason::Normal {
            self.ops += 1;
        } else {
            self.failed += 1;
        }
    }
}

/// What a rig is like.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Connections at a time, over all lanes.
    pub conns: usize,
    /// How ends and lanes are shared out to cores.
    pub cores: Cores,
    /// Who computes checksums.
    pub checksums: Checksums,
    /// Largest IP packet.
    pub mtu: usize,
    /// Maximum segment lifetime.
    pub msl_us: u64,
    /// Ephemeral ports per source address.
    pub ports: (u16, u16),
    /// How clients choose among them.
    pub choice: Ports,
    /// Bytes of each ring of a link.
    pub ring_bytes: usize,
    /// Largest receive and send buffer of a connection; `None`: the stack's default.
    pub buffer: Option<u32>,
    /// IPv6 instead of IPv4.
    pub ipv6: bool,
    /// Room for every TIME_WAIT record from the start, so that no table grows while it is measured.
    pub presized: bool,
    /// No clock is read.
    pub is_virtual: bool,
    /// The link takes super-packets whole, as a card with TSO does and one that merges hands them in.
    pub segmentation: bool,
    /// Say everything that was counted.
    pub counters: bool,
    /// What a packet does to its route.
    pub references: ReferencesName,
    /// Packets of an attacker's for each request, where the link's way has one ([`Answers`](super::siege::Answers)).
    pub attack: u32,
    /// They arrive. If not, they are made and nobody sees them: what is then measured is the rig's share.
    pub attack_arrives: bool,
}

impl Shape {
    /// How many lanes work, each with a core of its own where there are several.
    pub fn crews(&self) -> usize {
        match self.cores {
            Cores::Same => 1,
            Cores::Split | Cores::Pairs | Cores::Hashed => 2,
        }
    }

    /// How many 4-tuples there are between all clients and servers.
    pub fn tuples(&self) -> usize {
        let links = if self.cores == Cores::Pairs { 2 } else { 1 };
        links * ADDRESSES * (usize::from(self.ports.1 - self.ports.0) + 1)
    }

    /// The settings of one end.
    pub fn config(&self, end: End) -> Config {
        let mut config = Config::default();
        config.tcp.msl_us = self.msl_us;
        config.software_checksums = self.checksums == Checksums::Software;
        config.ip_local_port_range = self.ports;
        config.tcp_max_tw_buckets = self.tuples() + 65_536;
        config.tcp_max_syn_backlog = (2 * self.conns).max(4_096);
        config.somaxconn = (2 * self.conns).max(4_096);
        // TIME_WAIT is where the connection was closed first: at the server.
        let time_waits = if end == End::Server && self.presized { self.tuples() / config_lanes(self) } else { 0 };
        config.connections = self.conns + time_waits;
        config.lane_mem = 8 << 30;
        if let Some(buffer) = self.buffer {
            config.tcp.tcp_rmem = (buffer, buffer);
            config.tcp.tcp_wmem = buffer;
        }
        config
    }
}

/// Which end of a link.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// That listens.
    Server,
    /// That connects.
    Client,
}

fn config_lanes(shape: &Shape) -> usize {
    if matches!(shape.cores, Cores::Hashed | Cores::Pairs) { 2 } else { 1 }
}

/// What one core runs. `S` is how its servers' lanes share connections, `C` how its clients' do.
pub struct Crew<W: Work, S: Sharing, C: Sharing = S, T: Way = LinkTx> {
    servers: Vec<Seat<S, T::In, T, W::Server>>,
    clients: Vec<Seat<C, T::In, T, W::Client>>,
    controls: Vec<Control>,
    control_at: Instant,
}

/// One that runs nothing.
impl<W: Work, S: Sharing, C: Sharing, T: Way> Default for Crew<W, S, C, T> {
    fn default() -> Self {
        Crew { servers: Vec::new(), clients: Vec::new(), controls: Vec::new(), control_at: Instant::ZERO }
    }
}

/// The address of the server, and those of the clients.
pub fn addresses(ipv6: bool) -> (IpAddr, Vec<IpAddr>) {
    let at = |subnet: u8, host: u8| -> IpAddr {
        if ipv6 {
            Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, subnet.into(), host.into()).into()
        } else {
            Ipv4Addr::new(10, 0, subnet, host).into()
        }
    };
    (at(0, 1), (1..=ADDRESSES as u8).map(|host| at(1, host)).collect())
}

/// Builds everything: `crews.len()` cores, all ends listening.
pub fn build<W: Work, S: Sharing, C: Sharing, T: Way>(
    work: &W,
    shape: &Shape,
    now: Instant,
) -> Result<Vec<Crew<W, S, C, T>>, Error> {
    build_on(work, shape, now, &|link| link)
}

/// The same, on links that were changed before they were made.
pub fn build_on<W: Work, S: Sharing, C: Sharing, T: Way>(
    work: &W,
    shape: &Shape,
    now: Instant,
    change: &dyn Fn(LinkConfig) -> LinkConfig,
) -> Result<Vec<Crew<W, S, C, T>>, Error> {
    let crews = shape.crews();
    let mut built: Vec<Crew<W, S, C, T>> = (0..crews).map(|_| Crew::default()).collect();
    let (links, lanes) = match shape.cores {
        Cores::Same | Cores::Split => (1, 1),
        Cores::Pairs => (2, 1),
        Cores::Hashed => (1, 2),
    };
    for link in 0..links {
        let (server, client) = hosts::<W, S, C, T>(work, shape, lanes, link as u64, now, change)?;
        let home = |end: usize, lane: usize| match shape.cores {
            Cores::Same => 0,
            Cores::Split => end,
            Cores::Pairs => link,
            Cores::Hashed => lane,
        };
        for (lane, seat) in server.seats.into_iter().enumerate() {
            built[home(0, lane)].servers.push(seat);
        }
        for (lane, seat) in client.seats.into_iter().enumerate() {
            built[home(1, lane)].clients.push(seat);
        }
        built[home(0, 0)].controls.push(server.control);
        built[home(1, 0)].controls.push(client.control);
    }
    Ok(built)
}

type Hosts<W, S, C, T> =
    (Host<<T as Way>::In, T, <W as Work>::Server, S>, Host<<T as Way>::In, T, <W as Work>::Client, C>);

/// The two ends of one link.
fn hosts<W: Work, S: Sharing, C: Sharing, T: Way>(
    work: &W,
    shape: &Shape,
    lanes: usize,
    seed: u64,
    now: Instant,
    change: &dyn Fn(LinkConfig) -> LinkConfig,
) -> Result<Hosts<W, S, C, T>, Error> {
    let secrets =
        |end| if shape.is_virtual { BootSecrets::from_seed(2 * seed + end) } else { BootSecrets::from_system() };
    let (server_secrets, client_secrets) = (secrets(0), secrets(1));
    let medium = Medium::Ethernet;
    let steer = |secrets: &BootSecrets| {
        let steering = Steering::new(secrets.steering, lanes);
        Arc::new(move |frame: &[u8]| steering.queue_of_frame(frame, medium.header_len())) as memory::Steer
    };
    let steer_flow = |secrets: &BootSecrets| {
        let steering = Steering::new(secrets.steering, lanes);
        Arc::new(move |flow: &dyn Any| steering.lane_of_sent(flow)) as memory::SteerFlow
    };
    let offload = shape.checksums == Checksums::Offload;
    let link = LinkConfig {
        queues: lanes,
        medium,
        mtu: shape.mtu,
        ring_bytes: shape.ring_bytes,
        tx_checksum: offload,
        rx_checksum: offload,
        tso_max: if shape.segmentation { 65_535 } else { 0 },
        rx_super: shape.segmentation,
        steer: [Some(steer(&server_secrets)), Some(steer(&client_secrets))],
        steer_flow: [Some(steer_flow(&server_secrets)), Some(steer_flow(&client_secrets))],
        ..LinkConfig::default()
    };
    let (server_queues, client_queues) = memory::link(change(link));
    let (server_queues, client_queues) =
        (T::attach(server_queues, shape, End::Server), T::attach(client_queues, shape, End::Client));
    let (server_ip, client_ips) = addresses(shape.ipv6);
    let prefix = if shape.ipv6 { 64 } else { 16 };
    let network = |ips: &[IpAddr]| Network {
        addresses: ips.iter().map(|ip| Cidr { address: *ip, prefix }).collect(),
        // The world of an attacker lies behind the first client.
        gateways: if shape.attack > 0 { vec![client_ips[0]] } else { Vec::new() },
    };
    let sources: Arc<[Address]> = client_ips.iter().map(|ip| Address::from(*ip)).collect();
    let lanes_in_all = if shape.cores == Cores::Pairs { 2 } else { lanes };
    let mut server =
        Host::new(shape.config(End::Server), &network(&[server_ip]), &server_secrets, server_queues, now, |_| {
            work.server()
        })?;
    let (config, ports) = (shape.config(End::Client), shape.choice.maker());
    let client = Host::new_with(config, &network(&client_ips), &client_secrets, client_queues, now, ports, |lane| {
        let number = if shape.cores == Cores::Pairs { seed as usize } else { lane };
        let share = shape.conns / lanes_in_all + usize::from(number < shape.conns % lanes_in_all);
        let mut load = Load::new(Arc::clone(&sources), Address::from(server_ip), share);
        if !shape.is_virtual {
            load.stopwatch = Stopwatch::sampling();
        }
        work.client(load)
    })?;
    server.listen(SocketAddr::new(server_ip, PORT), (2 * shape.conns).max(4_096), now)?;
    Ok((server, client))
}

impl<W: Work, S: Sharing, C: Sharing, T: Way> Crew<W, S, C, T> {
    /// One turn of everything that this core runs.
    #[inline]
    pub fn turn(&mut self, now: Instant) {
        self.turn_lanes(now);
        self.turn_control(now);
    }

    /// One turn of its lanes, and none of its control planes.
    #[inline]
    pub fn turn_lanes(&mut self, now: Instant) {
        for seat in &mut self.servers {
            seat.turn(now);
        }
        for seat in &mut self.clients {
            seat.turn(now);
        }
    }

    /// A turn of its control planes, if it is time.
    #[inline]
    pub fn turn_control(&mut self, now: Instant) {
        if now >= self.control_at {
            self.control_turn(now);
        }
    }

    /// Its servers alone, its clients alone, and what controls them: for a thread of its own each.
    pub fn apart(mut self) -> [Self; 3] {
        let control_at = self.control_at;
        let part = || Crew { control_at, ..Crew::default() };
        let (servers, clients) = (std::mem::take(&mut self.servers), std::mem::take(&mut self.clients));
        [Crew { servers, ..part() }, Crew { clients, ..part() }, self]
    }

    /// Moves its lanes into memory that the calling thread asks for, as a runtime moves them into their threads.
    pub fn settle(&mut self) {
        fn moved<T>(from: Vec<T>) -> Vec<T> {
            let mut to = Vec::with_capacity(from.len());
            to.extend(from);
            to
        }
        self.servers = moved(std::mem::take(&mut self.servers));
        self.clients = moved(std::mem::take(&mut self.clients));
    }

    #[cold]
    fn control_turn(&mut self, now: Instant) {
        for control in &mut self.controls {
            control.turn(now);
        }
        self.control_at = now.after_us(CONTROL_EVERY_US);
    }

    /// The loads of its clients.
    pub fn loads(&mut self) -> impl Iterator<Item = &mut Load> {
        self.clients.iter_mut().map(|seat| seat.app.load())
    }

    /// Operations done.
    pub fn ops(&mut self) -> u64 {
        let at_servers: u64 = self.servers.iter().map(|seat| seat.app.ops()).sum();
        at_servers + self.loads().map(|load| load.ops).sum::<u64>()
    }

    /// Live TIME_WAIT records, and how many the rings that hold them have room for or keep until their time.
    pub fn time_waits(&mut self) -> (usize, usize) {
        let mut sum = (0, 0);
        let mut add = |live, queued| sum = (sum.0 + live, sum.1 + queued);
        self.servers.iter_mut().for_each(|seat| seat.lane.tables(|t| add(t.time_waits, t.tw4.len() + t.tw6.len())));
        self.clients.iter_mut().for_each(|seat| seat.lane.tables(|t| add(t.time_waits, t.tw4.len() + t.tw6.len())));
        sum
    }

    /// Bytes that its lanes' tables and buffers hold.
    pub fn table_bytes(&mut self) -> usize {
        let servers: usize = self.servers.iter_mut().map(|seat| seat.lane.tables(|t| t.bytes())).sum();
        servers + self.clients.iter_mut().map(|seat| seat.lane.tables(|t| t.bytes())).sum::<usize>()
    }

    /// Bytes of its servers' TIME_WAIT records and of the index that leads to them.
    pub fn time_wait_bytes(&mut self) -> (usize, usize) {
        let of = |t: &mut Tables| (t.tw4.bytes() + t.tw6.bytes(), t.flows.bytes());
        self.servers.iter_mut().map(|seat| seat.lane.tables(of)).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// The applications of its clients.
    pub fn client_apps(&mut self) -> impl Iterator<Item = &mut W::Client> {
        self.clients.iter_mut().map(|seat| &mut seat.app)
    }

    /// Bytes that connections hold: slots, half-open entries, buffers, timers, but neither the index nor TIME_WAIT.
    pub fn connection_bytes(&mut self) -> usize {
        let of = |t: &mut Tables| t.bytes() - t.flows.bytes() - t.tw4.bytes() - t.tw6.bytes();
        let servers: usize = self.servers.iter_mut().map(|seat| seat.lane.tables(of)).sum();
        servers + self.clients.iter_mut().map(|seat| seat.lane.tables(of)).sum::<usize>()
    }

    /// What packets did to routes, at both ends.
    pub fn tally(&self) -> Tally {
        let mut sum = Tally::default();
        self.servers.iter().for_each(|seat| sum.merge(&seat.queue.tx.tally()));
        self.clients.iter().for_each(|seat| sum.merge(&seat.queue.tx.tally()));
        sum
    }

    /// Its control planes, for a thread of their own: the crew does not turn them any more.
    pub fn take_controls(&mut self) -> Vec<Control> {
        std::mem::take(&mut self.controls)
    }

    /// Polls of its servers' lanes that did something, and that found nothing.
    pub fn server_polls(&mut self) -> (u64, u64) {
        let counters = self.servers.iter_mut().map(|seat| seat.lane.counters());
        counters.fold((0, 0), |sum, one| (sum.0 + one.get(Mib::PollsBusy), sum.1 + one.get(Mib::PollsIdle)))
    }

    /// What its lanes have counted.
    pub fn counters(&mut self) -> Counters {
        let mut sum = Counters::default();
        self.servers.iter_mut().for_each(|seat| sum.merge(&seat.lane.counters()));
        self.clients.iter_mut().for_each(|seat| sum.merge(&seat.lane.counters()));
        sum
    }
}

impl<W: Work, S: Sharing, C: Sharing> Crew<W, S, C, LinkTx> {
    /// Where the rings of its links lie in memory.
    pub fn device_memory(&self) -> Vec<Range<usize>> {
        let servers = self.servers.iter().flat_map(|seat| seat.queue.tx.memory());
        servers.chain(self.clients.iter().flat_map(|seat| seat.queue.tx.memory())).collect()
    }
}

/// Turns without progress after which a start has failed.
const INTRODUCTION_TURNS_MAX: usize = 20_000_000;

/// Makes every host known to its neighbours, one connection and then one per source address at a time, and only then lets
/// the clients open all that they shall: a link address that is being asked for has room for few waiting packets.
pub fn introduce<W: Work, S: Sharing, C: Sharing, T: Way>(
    crews: &mut [Crew<W, S, C, T>],
    mut step: impl FnMut(&mut [Crew<W, S, C, T>]),
) -> Result<(), Failure> {
    let full: Vec<usize> = crews.iter_mut().flat_map(Crew::loads).map(|load| load.target).collect();
    for most in [1, ADDRESSES] {
        for (load, full) in crews.iter_mut().flat_map(Crew::loads).zip(&full) {
            load.target = most.min(*full);
        }
        let mut turns = 0;
        while crews.iter_mut().flat_map(Crew::loads).any(|load| load.established < load.target as u64) {
            step(crews);
            turns += 1;
            if turns > INTRODUCTION_TURNS_MAX {
                return Err(Failure::stuck(&counters(crews)));
            }
        }
    }
    for (load, full) in crews.iter_mut().flat_map(Crew::loads).zip(full) {
        load.target = full;
    }
    Ok(())
}

/// What all lanes have counted.
pub fn counters<W: Work, S: Sharing, C: Sharing, T: Way>(crews: &mut [Crew<W, S, C, T>]) -> Counters {
    let mut sum = Counters::default();
    crews.iter_mut().for_each(|crew| sum.merge(&crew.counters()));
    sum
}
