//! Owns what is settled before a stack starts.

use super::device::Kind;
use super::{AnyQueue, App, Cidr, Config, Device, Error, Queue, Rates, Rx, Stack, Tx};
use crate::control::{About, Claimed, ControlServer, ControlSocket, OpenError};
use laneway_stack::clock::Clock;
use laneway_stack::control::Network;
use laneway_stack::device::fault::{self, FaultConfig};
use laneway_stack::device::pcap::Capture;
use laneway_stack::device::tun::{Prefix, SteeringConfig, Tun, TunConfig, TunError};
use laneway_stack::entropy::BootSecrets;
use laneway_stack::host::Host;
use laneway_stack::references;
use laneway_stack::runtime::{Bells, Options, Runtime, cores};
use laneway_stack::sharing::{self, LaneOwned};
use laneway_stack::snapshot::Snapshot;
use laneway_stack::steering::{Source, Steering};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Why a stack does not start. Each says in one sentence what is wrong and what to do, under [`Debug`](std::fmt::Debug) too: a `main`
/// that returns it prints that.
pub enum StartError {
    /// The settings do not fit together.
    Misuse(String),
    /// The stack refuses an address or a listener.
    Refused(Error),
    /// The TUN interface cannot be had.
    Tun(TunError),
    /// The capture file cannot be written.
    Capture(PathBuf, std::io::Error),
    /// The control socket cannot be opened.
    Control(OpenError),
    /// The system gives no thread or descriptor.
    System(std::io::Error),
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StartError::Misuse(what) => f.write_str(what),
            StartError::Refused(error) => error.fmt(f),
            StartError::Tun(error) => error.fmt(f),
            StartError::Capture(path, error) => {
                write!(f, "the capture file {} cannot be written: {error}; choose another place", path.display())
            }
            StartError::Control(error) => error.fmt(f),
            StartError::System(error) => {
                write!(f, "the system refuses a thread or descriptor: {error}; look at `ulimit -u` and `ulimit -n`")
            }
        }
    }
}

impl std::fmt::Debug for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for StartError {}

impl From<Error> for StartError {
    fn from(error: Error) -> Self {
        StartError::Refused(error)
    }
}

impl From<std::io::Error> for StartError {
    fn from(error: std::io::Error) -> Self {
        StartError::System(error)
    }
}

impl From<TunError> for StartError {
    fn from(error: TunError) -> Self {
        StartError::Tun(error)
    }
}

/// How lanes share their connections: the product's way, or one of those that it is compared with. Those have locks, and
/// remember who waited for whom: see [`LockRow`](crate::control::LockRow).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sharing {
    /// Every lane owns its own.
    #[default]
    Lane,
    /// One lock around nearly everything.
    Global,
    /// The same, but accept does without it.
    Accept,
    /// The same, and TIME_WAIT has a lock of its own.
    TimeWait,
    /// The lock is only read, but for walks over all connections.
    Decomposed,
    /// A lock for each lane's connections.
    Epoch,
}

impl Sharing {
    /// All of them, in the order of history.
    pub const ALL: [Sharing; 6] =
        [Sharing::Global, Sharing::Accept, Sharing::TimeWait, Sharing::Decomposed, Sharing::Epoch, Sharing::Lane];

    /// The name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Sharing::Lane => "lane",
            Sharing::Global => "global",
            Sharing::Accept => "accept",
            Sharing::TimeWait => "timewait",
            Sharing::Decomposed => "decomposed",
            Sharing::Epoch => "epoch",
        }
    }
}

/// What a packet does to the route that it uses: the product's way, or one that it is compared with. See
/// [`laneway_stack::references`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum References {
    /// A loop of compare-exchange, in the line that packets read.
    R0,
    /// The same, on a line of its own.
    R1,
    /// A count without a loop, in the line that packets read.
    R2,
    /// The same, on a line of its own.
    R3,
    /// `std::sync::Arc`.
    Arc,
    /// Nothing: routes are borrowed for a poll.
    #[default]
    Lane,
}

impl References {
    /// All of them, in the order of history.
    pub const ALL: [References; 6] =
        [References::R0, References::R1, References::R2, References::R3, References::Arc, References::Lane];

    /// The name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            References::R0 => "r0",
            References::R1 => "r1",
            References::R2 => "r2",
            References::R3 => "r3",
            References::Arc => "arc",
            References::Lane => "lane",
        }
    }
}

/// What is settled before a stack starts. Made by [`Stack::builder`].
pub struct Builder {
    device: Device,
    config: Config,
    network: Network,
    host: Vec<Cidr>,
    lanes: Option<usize>,
    spin: Option<Duration>,
    pin: Option<bool>,
    sharing: Sharing,
    references: References,
    options: Options,
    fault: Option<Rates>,
    fault_seed: u64,
    pcap: Option<PathBuf>,
    control: Option<ControlSocket>,
    /// The same when it is ours.
    claimed: Option<Claimed>,
    /// What steers frames to lanes, once the device is open.
    source: Option<Box<dyn Source>>,
    /// Gets the addresses and routes that the stack begins with, for whoever asks.
    world: Option<Arc<OnceLock<Snapshot>>>,
    clock: Clock,
}

impl Stack {
    /// Begins to settle what a stack on this device shall be like.
    pub fn builder(device: Device) -> Builder {
        Builder {
            device,
            config: Config::default(),
            network: Network::default(),
            host: Vec::new(),
            lanes: None,
            spin: None,
            pin: None,
            sharing: Sharing::default(),
            references: References::default(),
            options: Options::default(),
            fault: None,
            fault_seed: 1,
            pcap: None,
            control: None,
            claimed: None,
            source: None,
            world: None,
            clock: Clock::start(),
        }
    }
}

impl Builder {
    /// Adds an address of ours with its network, as text: `10.0.0.2/24`, `fd00::2/64`.
    pub fn address(self, cidr: &str) -> Result<Self, StartError> {
        let cidr = cidr.parse().map_err(StartError::Misuse)?;
        Ok(self.cidr(cidr))
    }

    /// Adds an address of ours with its network.
    pub fn cidr(mut self, cidr: Cidr) -> Self {
        self.network.addresses.push(cidr);
        self
    }

    /// Where everything goes that is in none of our networks; one of each family. On a TUN interface the kernel is that
    /// unless you say otherwise.
    pub fn gateway(mut self, gateway: IpAddr) -> Self {
        self.network.gateways.push(gateway);
        self
    }

    /// An address for the kernel's end of a TUN interface. Without any, each of our networks gives it one: see
    /// [`other_usable`].
    pub fn host_address(mut self, cidr: Cidr) -> Self {
        self.host.push(cidr);
        self
    }

    /// How many lanes. A device of given queues has as many; a TUN interface one for every second core unless this says
    /// otherwise: the kernel's side of each packet, and often the client, need the others.
    pub fn lanes(mut self, lanes: usize) -> Self {
        self.lanes = Some(lanes);
        self
    }

    /// Settings of TCP and of the tables.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// How lanes share their connections.
    pub fn sharing(mut self, sharing: Sharing) -> Self {
        self.sharing = sharing;
        self
    }

    /// What a packet does to its route. Any other way than the product's is there to be compared with it.
    pub fn references(mut self, references: References) -> Self {
        self.references = references;
        self
    }

    /// How long a lane that has nothing to do keeps looking before it sleeps. 50 µs; on a TUN interface with as many
    /// lanes as cores nothing, because whoever is to bring work would have to wait for the core.
    pub fn spin(mut self, spin: Duration) -> Self {
        self.spin = Some(spin);
        self
    }

    /// Whether each lane is bound to a core of its own. It is, if there are enough; but not on a TUN interface with as many lanes as cores: each
    /// program on this machine would share its core with a lane, which takes it whenever a packet comes, and could not go to another.
    pub fn pin(mut self, pin: bool) -> Self {
        self.pin = Some(pin);
        self
    }

    /// How long [`Stack::stop`] waits for connections to end before it resets them. 1 s.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.options.grace_us = grace.as_micros() as u64;
        self
    }

    /// Called once with a sentence when a thread of the stack has failed: on a thread of its own, and with the stack already stopping.
    /// So it may call anything, [`Stack::stop`] too, and drop the stack; what asks the lanes may be told that they have ended. A
    /// `stop` on another thread waits for it. If it panics, nothing else comes of that.
    pub fn on_failure(mut self, tell: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.options.on_failure = Some(Arc::new(tell));
        self
    }

    /// Mistreats frames in both directions, by a seed.
    pub fn fault(mut self, rates: Rates, seed: u64) -> Self {
        self.fault = Some(rates);
        self.fault_seed = seed;
        self
    }

    /// Writes every frame that the stack receives or sends into a pcapng file.
    pub fn pcap(mut self, path: impl Into<PathBuf>) -> Self {
        self.pcap = Some(path.into());
        self
    }

    /// Opens a control socket, so that `laneway ss` and its kin, and [`Client`](crate::control::Client)s of your own, can
    /// ask the running stack what it is doing. Without this there is none.
    pub fn control(mut self, socket: ControlSocket) -> Self {
        self.control = Some(socket);
        self
    }

    /// Starts the threads. `app` makes the application of each lane.
    pub fn start<A: App + Send + 'static>(mut self, app: impl FnMut(usize) -> A) -> Result<Stack, StartError> {
        self.check()?;
        // Before anything else is touched: if another stack has the place, the interface and the capture file may be its own, too.
        self.claimed = self.control.as_ref().map(Claimed::at).transpose().map_err(StartError::Control)?;
        match std::mem::replace(&mut self.device, Device(Kind::Queues(Vec::new()))).0 {
            Kind::Memory { queues, secrets, bells, table } => {
                self.options.bells = Some(bells);
                self.source = Some(Box::new(table));
                self.run(queues, *secrets, "memory".into(), Vec::new(), app)
            }
            Kind::Tun { name, mtu } => {
                let secrets = BootSecrets::from_system();
                let tun = self.open_tun(name, mtu, &secrets)?;
                self.options.tun = tun.counters;
                self.source = tun.steering.map(|program| Box::new(program) as Box<dyn Source>);
                self.run(tun.queues, secrets, format!("TUN interface {}", tun.name), tun.notes, app)
            }
            Kind::Queues(queues) => {
                if queues.iter().any(|queue| queue.rx.readiness().is_none()) {
                    self.options.park_max_us = self.options.park_max_us.min(1_000);
                }
                self.run(queues, BootSecrets::from_system(), "queues".into(), Vec::new(), app)
            }
        }
    }

    /// As [`start`](Self::start), for applications that must know the lanes' bells before there are lanes. Says, too, which addresses and
    /// routes it begins with.
    pub(crate) fn start_beside<A: App + Send + 'static>(
        mut self,
        make: impl FnOnce(usize, Bells) -> Vec<A>,
    ) -> Result<(Stack, Snapshot), StartError> {
        self.check()?;
        let lanes = self.lanes.unwrap_or(1);
        let bells = match &self.device.0 {
            Kind::Memory { bells, .. } => bells.clone(),
            Kind::Tun { .. } | Kind::Queues(_) => Bells::new(lanes)?,
        };
        self.options.bells = Some(bells.clone());
        let mut apps = make(lanes, bells).into_iter();
        let world: Arc<OnceLock<Snapshot>> = Arc::default();
        self.world = Some(world.clone());
        let stack = self.start(move |_| apps.next().expect("one for each lane"))?;
        Ok((stack, world.get().cloned().unwrap_or_default()))
    }

    /// Whether other threads may take the turns of a lane that sleeps.
    pub(crate) fn stand_in(mut self, stand_in: bool) -> Self {
        self.options.stand_in = stand_in;
        self
    }

    /// Largest backlog that a listener may have.
    pub(crate) fn somaxconn(&self) -> usize {
        self.config.somaxconn
    }

    /// Hop limit of what it sends.
    pub(crate) fn ip_default_ttl(&self) -> u8 {
        self.config.ip_default_ttl
    }

    fn check(&mut self) -> Result<(), StartError> {
        if self.network.addresses.is_empty() {
            return Err(StartError::Misuse(
                "a stack needs an address: give it one as ADDRESS/BITS, for example 10.0.0.2/24".into(),
            ));
        }
        check_addresses(&self.network.addresses)?;
        check_gateways(&self.network.addresses, &self.network.gateways)?;
        self.config.check()?;
        let queues = match &self.device.0 {
            Kind::Memory { queues, .. } => queues.len(),
            Kind::Queues(queues) => queues.len(),
            Kind::Tun { .. } => *self.lanes.get_or_insert_with(|| (cores().len() / 2).clamp(1, 64)),
        };
        let lanes = self.lanes.unwrap_or(queues);
        if lanes != queues || !(1..=256).contains(&lanes) {
            return Err(StartError::Misuse(format!(
                "{lanes} lanes on a device with {queues} queues: a stack has one lane per queue, 1 to 256"
            )));
        }
        self.lanes = Some(lanes);
        let crowded = matches!(self.device.0, Kind::Tun { .. }) && lanes >= cores().len();
        let spin = self.spin.unwrap_or(Duration::from_micros(if crowded { 0 } else { 50 }));
        self.options.spin_us = spin.as_micros() as u64;
        self.options.pin = self.pin.unwrap_or(!crowded);
        Ok(())
    }

    fn open_tun(&mut self, name: String, mtu: Option<usize>, secrets: &BootSecrets) -> Result<Tun, StartError> {
        if self.host.is_empty() {
            for cidr in &self.network.addresses {
                let given = self.host.iter().any(|host| same_network(host, cidr));
                if given {
                    continue;
                }
                let taken: Vec<IpAddr> = self.network.addresses.iter().map(|cidr| cidr.address).collect();
                let other = other_usable(cidr, &taken).ok_or_else(|| {
                    StartError::Misuse(format!("the network of {cidr} has no second address for the kernel's end of the interface: choose a shorter prefix"))
                })?;
                self.host.push(other);
            }
        }
        check_host_addresses(&self.network.addresses, &self.host, &self.network.gateways)?;
        if self.network.gateways.is_empty() {
            self.network.gateways = host_gateways(&self.host);
        }
        let lanes = self.lanes.unwrap_or(1);
        let steering = Steering::new(secrets.steering, lanes);
        let config = TunConfig {
            name,
            queues: lanes,
            mtu,
            // Super-packets both ways, and checksums left to whoever needs them at last: the kernel's side of the interface
            // is on this machine.
            offload: !self.config.software_checksums,
            receive_super: true,
            addresses: self.host.iter().map(|host| Prefix::new(host.address, host.prefix)).collect(),
            steering: (lanes > 1).then(|| SteeringConfig { key: *steering.key(), table: *steering.indirection() }),
            ..TunConfig::default()
        };
        Ok(Tun::open(&config)?)
    }

    fn run<R, T, A>(
        mut self,
        queues: Vec<Queue<R, T>>,
        secrets: BootSecrets,
        device: String,
        notes: Vec<String>,
        mut app: impl FnMut(usize) -> A,
    ) -> Result<Stack, StartError>
    where
        R: Rx + Send + 'static,
        T: Tx + Send + 'static,
        A: App + Send + 'static,
    {
        let capture = match &self.pcap {
            Some(path) => Some(Capture::to_file(path).map_err(|error| StartError::Capture(path.clone(), error))?),
            None => None,
        };
        self.options.capture = capture.clone();
        let runtime = if self.is_plain() && capture.is_none() {
            let host: Host<R, T, A, LaneOwned> = self.host(queues, &secrets, app)?;
            Runtime::start(host, self.clock, self.options)?
        } else {
            let wrapped =
                queues.into_iter().enumerate().map(|(lane, queue)| self.wrap(lane, queue, capture.as_ref())).collect();
            if self.fault.is_some() {
                // A frame that is held back announces itself in no other way than by being asked for.
                self.options.park_max_us = self.options.park_max_us.min(2_000);
            }
            self.run_wrapped(wrapped, &secrets, &mut move |lane| Box::new(app(lane)))?
        };
        if let Some(source) = self.source.take() {
            runtime.set_source(source);
        }
        let control = match self.claimed.take() {
            Some(place) => {
                let about =
                    About { device: device.clone(), sharing: self.sharing.name(), began: std::time::Instant::now() };
                Some(ControlServer::open(place, runtime.asker(), about).map_err(StartError::Control)?)
            }
            None => None,
        };
        tracing::info!(device, lanes = self.lanes, "the device is open");
        for note in &notes {
            // Whoever started the stack is given them too, to show.
            tracing::info!("{note}");
        }
        if let Some(world) = &self.world {
            let _ = world.set(self.network.snapshot()?); // with the gateways that the device brought
        }
        Ok(Stack { control, runtime, lanes: self.lanes.unwrap_or(1), device, notes, capture })
    }

    /// The product's own ways, and nothing on top of the device.
    fn is_plain(&self) -> bool {
        self.fault.is_none() && self.sharing == Sharing::Lane && self.references == References::Lane
    }

    /// What is for trying out or for comparing takes the application by its vtable: else every program would be compiled with a stack for each
    /// of the variants.
    fn run_wrapped(
        &self,
        queues: Vec<AnyQueue>,
        secrets: &BootSecrets,
        app: &mut dyn FnMut(usize) -> Box<dyn App + Send>,
    ) -> Result<Runtime, StartError> {
        let options = self.options.clone();
        match (self.sharing, self.references) {
            (Sharing::Lane, References::Lane) => self.run_shared::<LaneOwned>(queues, secrets, app, options),
            (Sharing::Global, References::Lane) => self.run_shared::<sharing::Global>(queues, secrets, app, options),
            (Sharing::Accept, References::Lane) => self.run_shared::<sharing::Accept>(queues, secrets, app, options),
            (Sharing::TimeWait, References::Lane) => {
                self.run_shared::<sharing::TimeWaitApart>(queues, secrets, app, options)
            }
            (Sharing::Decomposed, References::Lane) => {
                self.run_shared::<sharing::Decomposed>(queues, secrets, app, options)
            }
            (Sharing::Epoch, References::Lane) => self.run_shared::<sharing::Epoch>(queues, secrets, app, options),
            (Sharing::Lane, References::R0) => self.run_referring::<references::R0>(queues, secrets, app, options),
            (Sharing::Lane, References::R1) => self.run_referring::<references::R1>(queues, secrets, app, options),
            (Sharing::Lane, References::R2) => self.run_referring::<references::R2>(queues, secrets, app, options),
            (Sharing::Lane, References::R3) => self.run_referring::<references::R3>(queues, secrets, app, options),
            (Sharing::Lane, References::Arc) => self.run_referring::<references::ByArc>(queues, secrets, app, options),
            (_, _) => {
                let text = "another way of referring to routes is compared with the product's own sharing of connections: leave one of the two out";
                Err(StartError::Misuse(text.to_owned()))
            }
        }
    }

    fn run_shared<S: sharing::Sharing>(
        &self,
        queues: Vec<AnyQueue>,
        secrets: &BootSecrets,
        app: &mut dyn FnMut(usize) -> Box<dyn App + Send>,
        options: Options,
    ) -> Result<Runtime, StartError> {
        Ok(Runtime::start(self.host::<_, _, _, S>(queues, secrets, app)?, self.clock, options)?)
    }

    fn run_referring<F: references::References>(
        &self,
        queues: Vec<AnyQueue>,
        secrets: &BootSecrets,
        app: &mut dyn FnMut(usize) -> Box<dyn App + Send>,
        options: Options,
    ) -> Result<Runtime, StartError>
    where
        F::Outlet<Box<dyn Tx + Send>>: Send,
    {
        let host: Host<_, _, Box<dyn App + Send>, LaneOwned> = self.host(F::attach(queues), secrets, app)?;
        Ok(Runtime::start(host, self.clock, options)?)
    }

    fn host<R: Rx, T: Tx, A: App, S: laneway_stack::sharing::Sharing>(
        &self,
        queues: Vec<Queue<R, T>>,
        secrets: &BootSecrets,
        app: impl FnMut(usize) -> A,
    ) -> Result<Host<R, T, A, S>, StartError> {
        Ok(Host::new(self.config.clone(), &self.network, secrets, queues, self.clock.now(), app)?)
    }

    /// The faults are on the wire, and the capture sees what the stack sees.
    fn wrap<R: Rx + Send + 'static, T: Tx + Send + 'static>(
        &self,
        lane: usize,
        queue: Queue<R, T>,
        capture: Option<&Capture>,
    ) -> AnyQueue {
        let mut queue = queue.boxed();
        if let Some(rates) = self.fault {
            queue = fault::wrap(queue, FaultConfig { rx: rates, tx: rates }, self.fault_seed.wrapping_add(lane as u64))
                .boxed();
        }
        match capture {
            Some(capture) => capture.tap(&format!("lane{lane}"), queue).boxed(),
            None => queue,
        }
    }
}

/// Whether a stack can have these addresses; the error is what [`Builder::start`] would say.
pub fn check_addresses(addresses: &[Cidr]) -> Result<(), StartError> {
    for (i, cidr) in addresses.iter().enumerate() {
        check_own(cidr)?;
        if addresses[..i].iter().any(|other| other.address == cidr.address) {
            return Err(StartError::Misuse(format!("the address {} is given twice: remove one", cidr.address)));
        }
    }
    Ok(())
}

/// Whether the kernel's end of a TUN interface can have the addresses `host`, beside a stack with these; without gateways
/// of its own the stack takes them for gateways. The error is what [`Builder::start`] would say.
pub fn check_host_addresses(addresses: &[Cidr], host: &[Cidr], gateways: &[IpAddr]) -> Result<(), StartError> {
    if let Some(both) = host.iter().find(|host| addresses.iter().any(|ours| ours.address == host.address)) {
        return Err(StartError::Misuse(format!(
            "{} is given to both ends of the interface: the stack and the kernel need different ones",
            both.address
        )));
    }
    if !gateways.is_empty() {
        return Ok(());
    }
    let gateways = host_gateways(host);
    if let Some(away) = gateways.iter().find(|ip| !is_beside(addresses, **ip)) {
        return Err(StartError::Misuse(format!(
            "{away} cannot be the kernel's end of the interface, because it is in no network of the stack's ({}): choose an address that is",
            networks(addresses)
        )));
    }
    check_gateways(addresses, &gateways)
}

/// Whether a stack with these addresses can have these gateways; without addresses it is not known which it reaches. The
/// error is what [`Builder::start`] would say.
pub fn check_gateways(addresses: &[Cidr], gateways: &[IpAddr]) -> Result<(), StartError> {
    for (i, gateway) in gateways.iter().enumerate() {
        if let Some(other) = gateways[..i].iter().find(|other| other.is_ipv4() == gateway.is_ipv4()) {
            return Err(StartError::Misuse(format!(
                "{other} and {gateway} cannot both be the gateway: a stack has one of each family, so leave one out"
            )));
        }
        if !is_beside(addresses, *gateway) {
            return Err(StartError::Misuse(format!(
                "{gateway} cannot be the gateway, because it is in no network of the stack's ({}): choose an address that is",
                networks(addresses)
            )));
        }
        let own = addresses.iter().any(|cidr| cidr.address == *gateway).then_some("it is the stack's own address");
        let network = addresses.iter().find(|cidr| contains(cidr, *gateway));
        let here = Cidr { address: *gateway, prefix: network.map_or(u8::MAX, |network| network.prefix) };
        if let Some(why) = own.or_else(|| no_host(&here)) {
            return Err(StartError::Misuse(format!(
                "{gateway} cannot be the gateway, because {why}: choose the address of a router beside the stack"
            )));
        }
    }
    if !addresses.is_empty() {
        Network { addresses: addresses.to_vec(), gateways: gateways.to_vec() }.snapshot()?;
    }
    Ok(())
}

/// Whether a stack with these addresses reaches this one on its link; without addresses it is not known.
fn is_beside(addresses: &[Cidr], ip: IpAddr) -> bool {
    // A router of IPv6 may be known by the address that it has on the link alone.
    let is_on_link = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    addresses.is_empty() || is_on_link || addresses.iter().any(|cidr| contains(cidr, ip))
}

/// These networks, for a sentence.
fn networks(addresses: &[Cidr]) -> String {
    addresses.iter().map(Cidr::to_string).collect::<Vec<_>>().join(", ")
}

/// The gateways of a stack that was given none: the kernel's end, one of each family.
fn host_gateways(host: &[Cidr]) -> Vec<IpAddr> {
    let first = |v4: bool| host.iter().map(|host| host.address).find(|ip| ip.is_ipv4() == v4);
    first(true).into_iter().chain(first(false)).collect()
}

/// What cannot be an address of a host.
fn check_own(cidr: &Cidr) -> Result<(), StartError> {
    no_host(cidr).map_or(Ok(()), |why| {
        Err(StartError::Misuse(format!(
            "{cidr} cannot be the stack's address, because {why}: choose a host's address, for example 10.0.0.2/24 or fd00::2/64"
        )))
    })
}

/// Why an address of a network is none of a host's.
fn no_host(cidr: &Cidr) -> Option<&'static str> {
    Some(match cidr.address {
        ip if ip.is_unspecified() => "it means any address",
        ip if ip.is_loopback() => "it is the loopback address, which never leaves a host",
        ip if ip.is_multicast() => "it names a group",
        IpAddr::V4(Ipv4Addr::BROADCAST) => "it means every host",
        // What comes from there is taken for nobody's.
        IpAddr::V4(ip) if matches!(ip.octets()[0], 0 | 240..) => {
            "no host has an address of its range, which is reserved"
        }
        IpAddr::V4(ip) if cidr.prefix <= 30 && ip == first_v4(ip, cidr.prefix) => "it is the name of its network",
        IpAddr::V4(ip) if cidr.prefix <= 30 && ip == last_v4(ip, cidr.prefix) => {
            "it is the broadcast address of its network"
        }
        IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some() => "it is an IPv4 address in disguise: write it as IPv4",
        _ => return None,
    })
}

fn mask_v4(prefix: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0)
}

fn first_v4(ip: Ipv4Addr, prefix: u8) -> Ipv4Addr {
    Ipv4Addr::from_bits(ip.to_bits() & mask_v4(prefix))
}

fn last_v4(ip: Ipv4Addr, prefix: u8) -> Ipv4Addr {
    Ipv4Addr::from_bits(ip.to_bits() | !mask_v4(prefix))
}

fn mask_v6(prefix: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(prefix.min(128))).unwrap_or(0)
}

/// Whether an address lies in the network of another.
pub fn contains(network: &Cidr, address: IpAddr) -> bool {
    match (network.address, address) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()) & mask_v4(network.prefix) == 0,
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()) & mask_v6(network.prefix) == 0,
        _ => false,
    }
}

fn same_network(a: &Cidr, b: &Cidr) -> bool {
    a.prefix == b.prefix && contains(a, b.address)
}

/// The first address of a network that a host may have and that is not `taken`: what the kernel's end of a TUN interface
/// gets. `None` if there is none.
///
/// ```
/// use laneway::on_lane::{other_usable, Cidr};
/// let ours: Cidr = "10.0.0.1/30".parse().unwrap();
/// assert_eq!(other_usable(&ours, &[ours.address]).unwrap().to_string(), "10.0.0.2/30");
/// ```
pub fn other_usable(network: &Cidr, taken: &[IpAddr]) -> Option<Cidr> {
    let prefix = network.prefix;
    // More are never needed than are taken already, and one.
    let candidates: Vec<IpAddr> = match network.address {
        IpAddr::V4(ip) => {
            let (first, last) = (first_v4(ip, prefix).to_bits(), last_v4(ip, prefix).to_bits());
            // RFC 3021: of two addresses both are hosts.
            let (first, last) = if prefix >= 31 { (first, last) } else { (first + 1, last - 1) };
            (first..=last).take(taken.len() + 1).map(|bits| Ipv4Addr::from_bits(bits).into()).collect()
        }
        IpAddr::V6(ip) => {
            let (first, last) = (ip.to_bits() & mask_v6(prefix), ip.to_bits() | !mask_v6(prefix));
            // The first address of a network is the routers' anycast address (RFC 4291 section 2.6.1).
            let first = if prefix >= 127 { first } else { first + 1 };
            (first..=last).take(taken.len() + 1).map(|bits| Ipv6Addr::from_bits(bits).into()).collect()
        }
    };
    candidates.into_iter().find(|ip| !taken.contains(ip)).map(|address| Cidr { address, prefix })
}
