//! Owns what is settled before a stack starts.

use super::addresses::{
    check_addresses, check_gateways, check_host_addresses, host_gateways, other_usable, same_network,
};
use super::device::Kind;
use super::{AnyQueue, App, Cidr, Config, Device, Queue, Rates, Rx, Stack, StartError, Tx};
use crate::control::{About, Claimed, ControlServer, ControlSocket};
use laneway_stack::clock::Clock;
use laneway_stack::control::Network;
use laneway_stack::device::fault::{self, FaultConfig};
use laneway_stack::device::pcap::Capture;
use laneway_stack::device::tun::{Prefix, SteeringConfig, Tun, TunConfig};
use laneway_stack::entropy::BootSecrets;
use laneway_stack::host::Host;
use laneway_stack::references;
use laneway_stack::runtime::{Bells, Options, Runtime, cores};
use laneway_stack::sharing::{self, LaneOwned};
use laneway_stack::snapshot::Snapshot;
use laneway_stack::steering::{Source, Steering};
use laneway_stack::threads::usual::Usual;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

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

    /// Writes every frame that the stack receives or sends into a pcapng file. Where that cannot go on, mostly for want of room, the capture ends
    /// with a warning and the stack does not. But a limit of the length of files (`ulimit -f`) is a signal first, which ends a process unless it is
    /// ignored or handled: SIGXFSZ.
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

    /// What holds for a socket that is told nothing else.
    pub(crate) fn usual(&self) -> Usual {
        Usual::of(&self.config)
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
            let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
            let (lanes, queues) = (count(lanes, "lane"), count(queues, "queue"));
            return Err(StartError::Misuse(match self.device.0 {
                Kind::Tun { .. } => format!("{lanes}: a TUN interface has one queue for each, 1 to 256"),
                _ => format!("{lanes} on a device with {queues}: a stack has one lane for each queue, 1 to 256"),
            }));
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
            steering: Some(SteeringConfig { key: *steering.key(), table: *steering.indirection() }),
            // A lane that has a core to itself takes nothing from others.
            strangers_apart: Some(if lanes < cores().len() { 2 } else { 16 }),
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
