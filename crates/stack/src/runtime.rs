//! Owns the threads of a stack: one per lane, one for the control plane. What they run is in [`crate::worker`] and
//! [`crate::control`]; here is only when they run, when they sleep, and how they end: a lane's thread
//! (`runtime/lane_thread.rs`), the control thread (`runtime/control_thread.rs`), and what they know of each other (`runtime/shared.rs`).
//!
//! # When a lane sleeps
//! A lane that finds nothing to do turns for up to 50 µs more, because work usually comes in bursts and falling asleep
//! costs more than that. Then it announces that it sleeps, *turns once more*, and only then waits for its bell, in `poll(2)` if its
//! queue has a descriptor that it waits for too. Whoever brings work publishes it first and rings then; by
//! [`Duty`](laneway_sync::duty)'s argument either the last turn sees the work, or the ringer sees the announcement. A bell costs a
//! system call only when it finds the lane asleep; and not then, if the ringer [works in its stead](Options::stand_in).
//!
//! | who brings work | how the lane learns of it |
//! |---|---|
//! | the network, through a descriptor | `poll(2)` |
//! | the network, through a memory link | the link's interrupt rings: [`Bells::interrupt`] |
//! | another lane (a packet on the wrong queue) | that lane rings after its turn |
//! | the control thread | it rings after its turn |
//! | a timer | the timeout of its sleep |
//! | another thread of the application | it rings: [`Bells::ring`]; or it works itself: [`Bells::attend`] |
//!
//! # How a stack ends
//! [`Runtime::stop`] closes every listener, then tells each lane's application ([`App::on_stop`]), turns until its
//! connections are gone or the grace period is over, resets what is left, and joins the threads. An application that panics
//! about a connection loses that connection (`runtime/guard.rs`). A lane that panics says so
//! and takes the whole stack down with it, listeners first: the flows that hash to it would be lost without a word otherwise. So does a lane
//! whose queue has come to an end ([`Rx::failed`]), as that of a TUN interface that is deleted.

use self::aloud::Aloud;
use self::control_thread::{Command, ControlThread, Reply};
use self::lane_thread::{Ending, LaneThread, LaneWork, Place};
use self::shared::Shared;
use crate::app::{App, ListenerId, UdpId};
use crate::binding::BindOptions;
use crate::clock::Clock;
use crate::control::{self, BindId, Bucket, Tables};
use crate::counters::Counters;
use crate::error::Error;
use crate::host::{Host, Seat};
use crate::listing::Page;
use crate::ports::{Slice, Tallies};
use crate::sharing::Sharing;
use crate::steering::Source;
use laneway_device::pcap::Capture;
use laneway_device::tun::TunCounters;
use laneway_device::{Medium, Rx, Tx};
use laneway_proto::ip::output::Marks;
use laneway_proto::ip::route::RouteTable;
use laneway_proto::time::Instant;
use laneway_sync::doorbell::doorbell;
use laneway_sync::fork::Birth;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// Is told, in a sentence, what has failed.
pub type Tell = Arc<dyn Fn(&str) + Send + Sync>;

/// How the threads of a stack behave.
#[derive(Clone)]
pub struct Options {
    /// How long a lane turns without finding anything before it parks, in microseconds. 50; 0 where another thread needs
    /// the core.
    pub spin_us: u64,
    /// The longest that a lane sleeps, in microseconds. Only devices that can say neither by a descriptor nor by a bell
    /// that a frame waits need it to be short.
    pub park_max_us: u64,
    /// Bind each lane to a core of its own, as long as there are enough.
    pub pin: bool,
    /// While a lane sleeps, threads that bring work may do it in its stead ([`Bells::attend`]). Its application is then called
    /// on their threads too.
    pub stand_in: bool,
    /// How long a stopping lane waits for its connections to end before it resets them, in microseconds.
    pub grace_us: u64,
    /// The bells, if something outside (a memory link's interrupt, another thread) has to ring them.
    pub bells: Option<Bells>,
    /// A capture that wants to know the time.
    pub capture: Option<Capture>,
    /// Called once with a sentence when a thread of the stack has failed: on a thread of its own, and with the stack already stopping.
    /// So it may ask the stack anything, stop it or drop it. [`Runtime::stop`] elsewhere waits for it; if it panics, nothing else comes of that.
    pub on_failure: Option<Tell>,
    /// What the queues of a TUN interface count themselves, by lane: added to the lanes' counters.
    pub tun: Vec<Arc<TunCounters>>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            spin_us: 50,
            park_max_us: 1_000_000,
            pin: true,
            stand_in: false,
            grace_us: 1_000_000,
            bells: None,
            capture: None,
            on_failure: None,
            tun: Vec::new(),
        }
    }
}

/// A running stack. Dropping it stops it.
pub struct Runtime {
    shared: Arc<Shared>,
    lanes: Vec<JoinHandle<Option<Counters>>>,
    control: Option<JoinHandle<Counters>>,
}

/// How a stack ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Everything that the lanes counted.
    pub counters: Counters,
    /// What failed, if something did.
    pub failure: Option<String>,
}

impl Runtime {
    /// Gives each part of a host a thread.
    pub fn start<R, T, A, S>(host: Host<R, T, A, S>, clock: Clock, options: Options) -> io::Result<Self>
    where
        R: Rx + Send + 'static,
        T: Tx + Send + 'static,
        A: App + Send + 'static,
        S: Sharing,
    {
        let Host { control, seats } = host;
        let lanes = seats.len();
        let bells = match &options.bells {
            Some(bells) => bells.clone(),
            None => Bells::new(lanes)?,
        };
        let (control_bell, sleeper) = doorbell();
        let shared = Arc::new(Shared {
            born: Birth::here(),
            bells,
            commands: Mutex::new(Some(VecDeque::new())),
            control_bell,
            stop: AtomicBool::new(false),
            running: AtomicUsize::new(lanes),
            failure: Mutex::new(None),
            on_failure: options.on_failure.clone(),
            telling: Mutex::new(None),
            clock,
            medium: seats.first().map_or(Medium::Ip, |seat| seat.lane.medium()),
            steering: seats.first().map(|seat| seat.lane.local.steering.clone()),
            traces: Arc::default(),
        });
        let cores = cores();
        let mut runtime = Runtime { shared: Arc::clone(&shared), lanes: Vec::new(), control: None };
        for (id, Seat { lane, queue, app }) in seats.into_iter().enumerate() {
            let mut seat = Seat { lane, queue, app: guard::Guarded(app) };
            let core = (options.pin && lanes <= cores.len()).then(|| cores[id]);
            let readiness = seat.queue.rx.readiness().map(|fd| fd.try_clone_to_owned()).transpose();
            let readiness = readiness.inspect_err(|_| shared.begin_stop())?;
            let aside = seat.queue.rx.aside().map(|fd| fd.try_clone_to_owned()).transpose();
            let aside = aside.inspect_err(|_| shared.begin_stop())?;
            if let Some(gate) = seat.queue.rx.floodgate() {
                seat.lane.heed(gate.alarms());
            }
            let work = LaneWork {
                seat,
                id,
                clock,
                shared: Arc::clone(&shared),
                capture: options.capture.clone(),
                aloud: Aloud::new(id),
                sleeps_until: Instant::NEVER,
                failed: false,
            };
            let place = Arc::new(Place(Mutex::new(Some(work))));
            if options.stand_in {
                let work: Arc<dyn bells::Work> = place.clone();
                shared.bells.0[id].lend(Arc::downgrade(&work));
            }
            let lane = LaneThread {
                place,
                id,
                clock,
                shared: Arc::clone(&shared),
                readiness,
                aside,
                spin_us: options.spin_us,
                park_max_us: options.park_max_us,
                grace_us: options.grace_us,
                ended: Ending(Arc::clone(&shared)),
            };
            let spawned = thread::Builder::new().name(format!("lane-{id}")).spawn(move || lane.run(core));
            match spawned {
                Ok(handle) => runtime.lanes.push(handle),
                Err(error) => {
                    // Those that never started have ended: their values are dropped with the vector.
                    shared.begin_stop();
                    return Err(error);
                }
            }
        }
        let control = ControlThread {
            control,
            clock,
            shared: Arc::clone(&shared),
            sleeper,
            binding: Vec::new(),
            counting: Vec::new(),
            counting_next: Vec::new(),
            paging: Vec::new(),
            pages: 0,
            tun: options.tun.clone(),
        };
        let spawned = thread::Builder::new().name("control".into()).spawn(move || control.run());
        runtime.control = Some(spawned.inspect_err(|_| shared.begin_stop())?);
        tracing::info!(lanes, medium = ?shared.medium, sharing = S::NAME, spin_us = options.spin_us, "the stack runs");
        Ok(runtime)
    }

    /// Listens, and returns when every lane does: no SYN that is sent after that can miss it.
    /// `SO_REUSEADDR` is set, as servers do.
    pub fn listen(&self, at: SocketAddr, backlog: usize) -> Result<ListenerId, Error> {
        let options = BindOptions { reuse_address: true, ..BindOptions::default() };
        self.listen_with(at, backlog, options).map(|(id, _)| id)
    }

    /// As [`listen`](Self::listen), with options. The answer tells the port, if `at` had port 0.
    pub fn listen_with(
        &self,
        at: SocketAddr,
        backlog: usize,
        options: BindOptions,
    ) -> Result<(ListenerId, SocketAddr), Error> {
        let bound = self.ask(|reply| Command::Bind { at, options, then_listen: Some(backlog), reply });
        bound.map(|(id, at)| (ListenerId(id), at))
    }

    /// Binds a TCP socket, to listen or to connect from, and returns when every lane agrees. The answer tells the port, if
    /// `at` had port 0.
    pub fn bind(&self, at: SocketAddr, options: BindOptions) -> Result<(BindId, SocketAddr), Error> {
        let bound = self.ask(|reply| Command::Bind { at, options, then_listen: None, reply });
        bound.map(|(id, at)| (BindId(id), at))
    }

    /// Makes a bound socket listen, and answer with these marks, and returns when every lane does.
    pub fn listen_on(&self, bound: BindId, backlog: usize, marks: Marks) -> Result<ListenerId, Error> {
        self.ask(|reply| Command::ListenOn { bound, backlog, marks, reply }).map(|(id, _)| ListenerId(id))
    }

    /// Stops listening. Connections that nobody has accepted are reset.
    pub fn unlisten(&self, id: ListenerId) {
        self.shared.say(Command::Unbind(BindId(id.0)));
    }

    /// Marks the packets with which every lane answers whoever calls a listener: no SYN that is sent after this has returned is answered without. Waits for the
    /// control thread, and not for lanes.
    pub fn mark(&self, id: ListenerId, marks: Marks) {
        let (reply, answer) = sync_channel(1);
        self.shared.say(Command::Mark(id, marks, reply));
        let _ = answer.recv(); // of a stack that has stopped nobody can be called
    }

    /// Gives a bound socket up. Connections from it go on.
    pub fn unbind(&self, bound: BindId) {
        self.shared.say(Command::Unbind(bound));
    }

    /// Binds a UDP socket on every lane.
    pub fn bind_udp(&self, at: SocketAddr) -> Result<UdpId, Error> {
        self.bind_udp_with(at, BindOptions::default()).map(|(id, _)| id)
    }

    /// As [`bind_udp`](Self::bind_udp), with options. The answer tells the port, if `at` had port 0.
    pub fn bind_udp_with(&self, at: SocketAddr, options: BindOptions) -> Result<(UdpId, SocketAddr), Error> {
        let (reply, answer) = sync_channel(1);
        self.shared.say(Command::BindUdp { at, options, reply });
        answer.recv().unwrap_or(Err(Error::Closed))
    }

    /// Gives a UDP socket up.
    pub fn unbind_udp(&self, id: UdpId) {
        self.shared.say(Command::UnbindUdp(id));
    }

    /// Puts other routes in the place of all that there are; see [`Control::replace_routes`](control::Control::replace_routes). Waits for the
    /// control thread, and not for lanes.
    pub fn replace_routes(&self, routes: RouteTable) -> Result<(), Error> {
        let (reply, answer) = sync_channel(1);
        self.shared.say(Command::ReplaceRoutes(Box::new(routes), reply));
        answer.recv().map_err(|_| Error::Closed)?
    }

    /// How many route tables were replaced, and how many of those are freed.
    pub fn tables(&self) -> Result<Tables, Error> {
        let (reply, answer) = sync_channel(1);
        self.shared.say(Command::Tables(reply));
        answer.recv().map_err(|_| Error::Closed)
    }

    /// Says what steers frames to lanes, so that it can be told when buckets move; see [`Control::set_source`](control::Control::set_source).
    pub fn set_source(&self, source: Box<dyn Source>) {
        self.shared.say(Command::Source(source));
    }

    /// Gives the flows of a steering bucket that begin from now on to a lane; see [`Control::move_bucket`](control::Control::move_bucket). Waits for the control
    /// thread, and not for lanes: [`buckets`](Self::buckets) tells how far it has come.
    pub fn move_bucket(&self, bucket: usize, lane: usize) -> Result<(), Error> {
        let (reply, answer) = sync_channel(1);
        self.shared.say(Command::MoveBucket { bucket, lane, reply });
        answer.recv().unwrap_or(Err(Error::Closed))
    }

    /// Every steering bucket, by number: whose it is, and what is under way about it.
    pub fn buckets(&self) -> Result<Vec<Bucket>, Error> {
        let (reply, answer) = sync_channel(1);
        self.shared.say(Command::Buckets(reply));
        answer.recv().map_err(|_| Error::Closed)
    }

    /// The destinations of active opens, `most` from each lane and those with the most connections first, and what choosing their
    /// ports has cost so far. No lane stops for it.
    pub fn ports(&self, most: usize) -> Result<(Vec<Slice>, Tallies), Error> {
        let busiest = |slice: &Slice| Reverse(slice.in_use + slice.time_wait);
        let (asker, mut all, mut sum) = (self.asker(), Vec::new(), Tallies::default());
        for lane in 0..asker.lanes() {
            let (mut slices, mut page) = (Vec::new(), Page::of_ports());
            while !page.place.is_end() {
                page = asker.page(lane, page).map_err(|_| Error::Closed)?;
                // Of a listing that is longer than what is wanted no more is kept than that and a page.
                slices.append(&mut page.ports);
                slices.sort_by_key(busiest);
                slices.truncate(most);
            }
            sum.merge(&page.tallies);
            all.append(&mut slices);
        }
        all.sort_by_key(busiest);
        Ok((all, sum))
    }

    fn ask(&self, command: impl FnOnce(Reply) -> Command) -> Result<(u16, SocketAddr), Error> {
        let (reply, answer) = sync_channel(1);
        self.shared.say(command(reply));
        answer.recv().unwrap_or(Err(Error::Closed))
    }

    /// The sum of all lanes' counters, and the bytes that their tables hold. No lane stops for it.
    pub fn counters(&self) -> Result<(Counters, usize), Error> {
        let (reply, answer) = sync_channel(1);
        self.shared.say(Command::Counters(reply));
        answer.recv().map(|lanes| control::sum(&lanes)).map_err(|_| Error::Closed)
    }

    /// Asks on behalf of threads that only look.
    pub fn asker(&self) -> Asker {
        Asker::new(Arc::clone(&self.shared), self.lanes.len())
    }

    /// What wakes the lanes.
    pub fn bells(&self) -> &Bells {
        &self.shared.bells
    }

    /// Whether a thread of the stack has failed: then the stack is stopping or has stopped.
    pub fn failure(&self) -> Option<String> {
        self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends the stack and waits for its threads.
    pub fn stop(mut self) -> Ended {
        let counters = self.end();
        Ended { counters, failure: self.failure() }
    }

    /// This process has its threads, and is not a child of the one that has.
    pub fn is_here(&self) -> bool {
        self.shared.born.is_here()
    }

    fn end(&mut self) -> Counters {
        if !self.is_here() {
            // Nobody ends here, and waiting for that would be for ever.
            mem::forget((mem::take(&mut self.lanes), self.control.take()));
            return Counters::default();
        }
        match self.control {
            Some(_) => self.shared.say(Command::Stop),
            None => self.shared.begin_stop(),
        }
        let mut sum = Counters::default();
        for lane in self.lanes.drain(..) {
            if let Ok(Some(counters)) = lane.join() {
                sum.merge(&counters);
            }
        }
        if let Some(control) = self.control.take() {
            sum.merge(&control.join().unwrap_or_default());
        }
        self.shared.await_told();
        tracing::info!("the stack has stopped");
        sum
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if self.control.is_some() || !self.lanes.is_empty() {
            self.end();
        }
    }
}

/// The cores that this process may use.
pub fn cores() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else { return Vec::new() };
    (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect()
}

/// Binds the calling thread to a core; false if the system refuses.
pub fn pin_to(core: usize) -> bool {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).is_ok()
}

mod aloud;
mod asker;
pub mod awake;
mod bells;
mod control_thread;
mod guard;
mod lane_thread;
mod shared;
pub use asker::{Asker, Trace, Unanswered};
pub use bells::Bells;

#[cfg(test)]
mod tests;
