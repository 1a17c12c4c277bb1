//! Owns a whole stack in one thread: control plane and lanes, stepped by whoever holds it.
//!
//! The simulator, the tests and the one-core benchmarks drive this; the product's [`crate::runtime`] gives each part a
//! thread of its own. Both call the same [`worker::turn`](crate::worker::turn) and [`Control::turn`].

use crate::app::{App, ListenerId};
use crate::binding::BindOptions;
use crate::config::Config;
use crate::control::{BindId, Control, Network, PortRange};
use crate::counters::Counters;
use crate::entropy::{BootSecrets, KeptKey};
use crate::error::Error;
use crate::lane::{Lane, LaneParts};
use crate::mail;
use crate::ports::{LanePorts, PortChoice, PortParts};
use crate::sharing::{Product, Sharing};
use crate::steering::Steering;
use crate::tables::Tables;
use crate::trace;
use crate::worker::Turn;
use laneway_device::{Queue, Rx, Tx};
use laneway_proto::ip::output::Marks;
use laneway_proto::time::Instant;
use std::net::SocketAddr;
use std::sync::Arc;

/// One lane with what it works on.
pub struct Seat<S: Sharing, R, T, A> {
    /// The lane.
    pub lane: Lane<S>,
    /// Its queue of the device.
    pub queue: Queue<R, T>,
    /// The application that lives on it.
    pub app: A,
}

impl<S: Sharing, R: Rx, T: Tx, A: App> Seat<S, R, T, A> {
    /// One poll of this lane.
    pub fn turn(&mut self, now: Instant) -> Turn {
        trace::turn(self, now)
    }
}

/// A stack: its control plane and its lanes.
pub struct Host<R, T, A, S: Sharing = Product> {
    /// The control plane.
    pub control: Control,
    /// The lanes.
    pub seats: Vec<Seat<S, R, T, A>>,
}

/// What a stack is told of itself and of the world.
struct Given<'a> {
    config: Config,
    network: &'a Network,
    secrets: &'a BootSecrets,
    now: Instant,
}

impl<R: Rx, T: Tx, A: App, S: Sharing> Host<R, T, A, S> {
    /// A stack with one lane per queue. `app` makes the application of each lane.
    pub fn new(
        config: Config,
        network: &Network,
        secrets: &BootSecrets,
        queues: Vec<Queue<R, T>>,
        now: Instant,
        app: impl FnMut(usize) -> A,
    ) -> Result<Self, Error> {
        Self::new_with(config, network, secrets, queues, now, |parts| Box::new(LanePorts::new(parts)), app)
    }

    /// As [`new`](Self::new), with another choice of local ports than the product's: `ports` makes one for each set of
    /// tables.
    pub fn new_with(
        config: Config,
        network: &Network,
        secrets: &BootSecrets,
        queues: Vec<Queue<R, T>>,
        now: Instant,
        ports: impl FnMut(PortParts) -> Box<dyn PortChoice>,
        app: impl FnMut(usize) -> A,
    ) -> Result<Self, Error> {
        let given = Given { config, network, secrets, now };
        Self::of(given, queues, ports, |lanes, make| S::spread(lanes, make), app)
    }

    /// As [`new`](Self::new), with a way of sharing that is chosen at run time: `spread` makes one value per lane, with tables of
    /// the given making. See [`Chosen::spread_as`](crate::sharing::Chosen::spread_as).
    pub fn new_shared(
        config: Config,
        network: &Network,
        secrets: &BootSecrets,
        queues: Vec<Queue<R, T>>,
        now: Instant,
        spread: impl FnOnce(usize, &mut dyn FnMut() -> Tables) -> Vec<S>,
        app: impl FnMut(usize) -> A,
    ) -> Result<Self, Error> {
        let given = Given { config, network, secrets, now };
        Self::of(given, queues, |parts| Box::new(LanePorts::new(parts)), spread, app)
    }

    fn of(
        given: Given<'_>,
        queues: Vec<Queue<R, T>>,
        mut ports: impl FnMut(PortParts) -> Box<dyn PortChoice>,
        spread: impl FnOnce(usize, &mut dyn FnMut() -> Tables) -> Vec<S>,
        mut app: impl FnMut(usize) -> A,
    ) -> Result<Self, Error> {
        let Given { config, network, secrets, now } = given;
        config.check()?;
        let lanes = queues.len();
        let snapshot = network.snapshot()?;
        let steering = Steering::new(secrets.steering, lanes);
        let config = Arc::new(Config { tcp: config.tcp.clone().bounded(), ..config });
        let mac = queues.first().map_or([0; 6], |queue| queue.tx.capabilities().mac);
        let (control_mail, lane_mail) = mail::exchange(lanes);
        let parts = PortParts {
            range: config.ip_local_port_range,
            reserved: config.ip_local_reserved_ports.as_slice().into(),
            key: KeptKey::new(secrets.port),
            steering: steering.clone(),
        };
        let shared = spread(lanes, &mut || {
            Tables::new(secrets.flow, config.connections, config.lane_mem, now, ports(parts.clone()))
        });
        let seats = queues.into_iter().zip(lane_mail).zip(shared).enumerate().map(|(id, ((queue, mail), shared))| {
            let lane_parts = LaneParts {
                id,
                shared,
                config: Arc::clone(&config),
                secrets: secrets.clone(),
                steering: steering.clone(),
                capabilities: *queue.tx.capabilities(),
                mail,
                snapshot: snapshot.clone(),
            };
            Seat { lane: Lane::new(lane_parts), queue, app: app(id) }
        });
        let seats = seats.collect();
        let ports = PortRange { range: parts.range, reserved: parts.reserved, key: parts.key };
        Ok(Host { control: Control::new(control_mail, snapshot, mac, ports), seats })
    }

    /// Listens, and returns when every lane does.
    pub fn listen(&mut self, at: SocketAddr, backlog: usize, now: Instant) -> Result<ListenerId, Error> {
        let id = self.control.listen(at, backlog)?;
        self.await_outcome(id.0, now).map(|_| id)
    }

    /// Listens with options. The answer tells the port, if `at` had port 0.
    pub fn listen_with(
        &mut self,
        at: SocketAddr,
        backlog: usize,
        options: BindOptions,
        now: Instant,
    ) -> Result<(ListenerId, SocketAddr), Error> {
        let id = self.control.listen_with(at, backlog, options)?;
        self.await_outcome(id.0, now).map(|at| (id, at))
    }

    /// Binds, and returns when every lane agrees. The answer tells the port, if `at` had port 0.
    pub fn bind(&mut self, at: SocketAddr, options: BindOptions, now: Instant) -> Result<(BindId, SocketAddr), Error> {
        let id = self.control.bind(at, options)?;
        self.await_outcome(id.0, now).map(|at| (id, at))
    }

    /// Makes a bound socket listen.
    pub fn listen_on(&mut self, bound: BindId, backlog: usize, now: Instant) -> Result<ListenerId, Error> {
        let id = self.control.listen_on(bound, backlog, Marks::NONE)?;
        self.await_outcome(id.0, now).map(|_| id)
    }

    fn await_outcome(&mut self, id: u16, now: Instant) -> Result<SocketAddr, Error> {
        loop {
            if let Some(outcome) = self.control.outcome(id) {
                return outcome;
            }
            self.turn(now);
        }
    }

    /// One poll of every lane and of the control plane. The answer is what all lanes together did. They are busy, too, if the control plane
    /// has left them something: what it says to a neighbour leaves by a lane.
    pub fn turn(&mut self, now: Instant) -> Turn {
        let mut all = Turn { frames: 0, busy: false, deadline: Instant::NEVER };
        for seat in &mut self.seats {
            let turn = seat.turn(now);
            all.frames += turn.frames;
            all.busy |= turn.busy;
            all.deadline = all.deadline.min(turn.deadline);
        }
        all.deadline = all.deadline.min(self.control.turn(now));
        all.busy |= self.control.undelivered().next().is_some();
        all
    }

    /// The counters of all lanes, and of the control plane.
    pub fn counters(&mut self) -> Counters {
        let mut sum = self.control.own_counters().clone();
        self.seats.iter_mut().for_each(|seat| sum.merge(&seat.lane.counters()));
        sum
    }
}
