//! Owns the threads of a stack: one per lane, one for the control plane. What they run is in [`crate::worker`] and
//! [`crate::control`]; here is only when they run, when they sleep, and how they end.
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
//! and takes the whole stack down with it: the flows that hash to it would be lost without a word otherwise. So does a lane
//! whose queue has come to an end ([`Rx::failed`]), as that of a TUN interface that is deleted.

use crate::app::{App, Context, ListenerId, UdpId};
use crate::binding::BindOptions;
use crate::clock::Clock;
use crate::control::{self, BindId, Bucket, Control, Tables};
use crate::counters::{Counters, Mib};
use crate::error::Error;
use crate::host::{Host, Seat};
use crate::listing::Page;
use crate::ports::{Slice, Tallies};
use crate::sharing::{Sharing, Site};
use crate::steering::{Source, Steering};
use crate::trace::Tap;
use crate::worker::{SLOW_US, Turn};
use laneway_device::pcap::Capture;
use laneway_device::tun::TunCounters;
use laneway_device::{Medium, Rx, Tx};
use laneway_proto::ip::route::RouteTable;
use laneway_proto::time::Instant;
use laneway_sync::doorbell::{Doorbell, Sleeper, doorbell};
use rustix::fd::OwnedFd;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

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

/// Where the number and the address of what was bound go.
type Reply = SyncSender<Result<(u16, SocketAddr), Error>>;

/// What the control thread is asked for.
enum Command {
    Bind {
        at: SocketAddr,
        options: BindOptions,
        then_listen: Option<usize>,
        reply: Reply,
    },
    ListenOn {
        bound: BindId,
        backlog: usize,
        reply: Reply,
    },
    Unbind(BindId),
    BindUdp {
        at: SocketAddr,
        options: BindOptions,
        reply: SyncSender<Result<(UdpId, SocketAddr), Error>>,
    },
    UnbindUdp(UdpId),
    ReplaceRoutes(Box<RouteTable>, SyncSender<()>),
    Tables(SyncSender<Tables>),
    MoveBucket {
        bucket: usize,
        lane: usize,
        reply: SyncSender<Result<(), Error>>,
    },
    Buckets(SyncSender<Vec<Bucket>>),
    Source(Box<dyn Source>),
    Counters(SyncSender<Vec<(Counters, usize)>>),
    Page {
        lane: usize,
        page: Box<Page>,
        reply: SyncSender<Box<Page>>,
    },
    #[expect(clippy::vec_box, reason = "the box itself travels on: nothing is moved or allocated on a lane")]
    Taps(Vec<Box<Tap>>),
    Stop,
}

/// What all threads of a stack know of each other.
struct Shared {
    bells: Bells,
    /// `None` once nobody takes them any more.
    commands: Mutex<Option<VecDeque<Command>>>,
    control_bell: Doorbell,
    /// Lanes shall end.
    stop: AtomicBool,
    /// Lanes that have not ended.
    running: AtomicUsize,
    failure: Mutex<Option<String>>,
    on_failure: Option<Tell>,
    /// The thread that calls `on_failure`.
    telling: Mutex<Option<JoinHandle<()>>>,
    clock: Clock,
    medium: Medium,
    /// Which flow is in which bucket; who owns that, the control plane knows.
    steering: Option<Steering>,
    /// Traces that are running.
    traces: Arc<AtomicUsize>,
}

impl Shared {
    fn lock_commands(&self) -> MutexGuard<'_, Option<VecDeque<Command>>> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the control thread. If it has ended, the command is dropped, and whoever waits for an answer learns it by that.
    fn say(&self, command: Command) {
        if let Some(commands) = &mut *self.lock_commands() {
            commands.push_back(command);
        }
        self.control_bell.ring();
    }

    fn begin_stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.bells.ring_all();
        self.control_bell.ring();
    }

    fn panicked(&self, who: &str, panic: &(dyn std::any::Any + Send)) {
        let what = panic.downcast_ref::<&str>().copied();
        let what = what.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        self.fail(who, what.unwrap_or("no message"));
    }

    fn fail(&self, who: &str, what: &str) {
        let sentence = format!("{who} failed, and the stack stops: {what}");
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        let first = failure.is_none();
        failure.get_or_insert_with(|| sentence.clone());
        drop(failure);
        if first {
            tracing::error!("{sentence}");
        }
        self.begin_stop();
        if first && let Some(tell) = &self.on_failure {
            self.tell(Arc::clone(tell), sentence);
        }
    }

    /// On a thread that nobody but [`Runtime::stop`] waits for: whoever is told may ask the lanes, and wait for them to end.
    fn tell(&self, tell: Tell, sentence: String) {
        let here = (Arc::clone(&tell), sentence.clone());
        let told = move |(tell, sentence): (Tell, String)| _ = catch_unwind(AssertUnwindSafe(|| tell(&sentence)));
        match thread::Builder::new().name("failure".into()).spawn(move || told((tell, sentence))) {
            Ok(telling) => *self.telling.lock().unwrap_or_else(PoisonError::into_inner) = Some(telling),
            Err(_) => told(here),
        }
    }

    /// Waits until it has been told, unless the caller is who is told.
    fn await_told(&self) {
        let telling = self.telling.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(telling) = telling.filter(|telling| telling.thread().id() != thread::current().id()) {
            let _ = telling.join();
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
            let seat = Seat { lane, queue, app: guard::Guarded(app) };
            let core = (options.pin && lanes <= cores.len()).then(|| cores[id]);
            let readiness = seat.queue.rx.readiness().map(|fd| fd.try_clone_to_owned()).transpose();
            let readiness = readiness.inspect_err(|_| shared.begin_stop())?;
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

    /// Makes a bound socket listen, and returns when every lane does.
    pub fn listen_on(&self, bound: BindId, backlog: usize) -> Result<ListenerId, Error> {
        self.ask(|reply| Command::ListenOn { bound, backlog, reply }).map(|(id, _)| ListenerId(id))
    }

    /// Stops listening. Connections that nobody has accepted are reset.
    pub fn unlisten(&self, id: ListenerId) {
        self.shared.say(Command::Unbind(BindId(id.0)));
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

    /// Puts other routes in the place of all that there are; see [`Control::replace_routes`]. Waits for the
    /// control thread, and not for lanes.
    pub fn replace_routes(&self, routes: RouteTable) -> Result<(), Error> {
        let (reply, answer) = sync_channel(1);
        self.shared.say(Command::ReplaceRoutes(Box::new(routes), reply));
        answer.recv().map_err(|_| Error::Closed)
    }

    /// How many route tables were replaced, and how many of those are freed.
    pub fn tables(&self) -> Result<Tables, Error> {
        let (reply, answer) = sync_channel(1);
        self.shared.say(Command::Tables(reply));
        answer.recv().map_err(|_| Error::Closed)
    }

    /// Says what steers frames to lanes, so that it can be told when buckets move; see [`Control::set_source`].
    pub fn set_source(&self, source: Box<dyn Source>) {
        self.shared.say(Command::Source(source));
    }

    /// Gives the flows of a steering bucket that begin from now on to a lane; see [`Control::move_bucket`]. Waits for the control
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

    fn end(&mut self) -> Counters {
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

/// Counts a lane as ended when it is dropped, however that comes about.
struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::AcqRel);
        self.0.control_bell.ring();
    }
}

/// A lane, and what its turns need.
struct LaneWork<S: Sharing, R, T, A> {
    seat: Seat<S, R, T, A>,
    id: usize,
    clock: Clock,
    shared: Arc<Shared>,
    capture: Option<Capture>,
    aloud: Aloud,
    /// When its thread, which sleeps, wakes by itself.
    sleeps_until: Instant,
    /// It has panicked on a thread that stood in for its own, or its queue has come to an end.
    failed: bool,
}

/// Where a lane's work lies. Nobody ever waits for this mutex: whose turn it is, the lane's bell says.
struct Place<W>(Mutex<Option<W>>);

impl<W> Place<W> {
    fn lock(&self) -> MutexGuard<'_, Option<W>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lane's thread.
struct LaneThread<S: Sharing, R, T, A> {
    place: Arc<Place<LaneWork<S, R, T, A>>>,
    id: usize,
    clock: Clock,
    shared: Arc<Shared>,
    /// What tells that a frame waits.
    readiness: Option<OwnedFd>,
    spin_us: u64,
    park_max_us: u64,
    grace_us: u64,
    ended: Ending,
}

impl<S: Sharing, R: Rx, T: Tx, A: App> LaneThread<S, R, T, A> {
    fn run(self, core: Option<usize>) -> Option<Counters> {
        let pinned = core.is_some_and(pin_to);
        match core {
            Some(core) if !pinned => {
                tracing::warn!(lane = self.id, core, "the lane cannot be bound to its core, and may be moved about")
            }
            _ => tracing::debug!(lane = self.id, core, "the lane runs"),
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| self.turn_until_stopped()));
        if let Err(panic) = outcome {
            self.shared.panicked(&format!("lane {}", self.id), &*panic);
        }
        // The queue is closed before the lane counts as ended.
        let LaneThread { place, readiness, ended, .. } = self;
        let work = place.lock().take();
        let counters = work.and_then(LaneWork::end);
        drop(readiness);
        drop(ended);
        counters
    }

    fn turn_until_stopped(&self) {
        if self.readiness.is_none() {
            self.shared.bells.0[self.id].sleeps_alone();
        }
        let mut place = self.place.lock();
        let mut busy_at = self.clock.now();
        let mut stopping = None;
        while let Some(work) = place.as_mut()
            && !work.failed
        {
            let now = self.clock.now();
            let turn = work.turn(now);
            if self.shared.stop.load(Ordering::Acquire) {
                let until = *stopping.get_or_insert_with(|| {
                    let Seat { lane, app, .. } = &mut work.seat;
                    let mut tables = lane.shared.enter(Site::Walk);
                    app.on_stop(&mut Context { tables: &mut tables, local: &mut lane.local });
                    now.after_us(self.grace_us)
                });
                if !turn.busy && work.connections() == 0 {
                    work.turn(now); // the last segments of the last connection
                    return;
                }
                if now >= until {
                    work.abort_all();
                    work.turn(now);
                    return;
                }
            }
            if turn.busy {
                busy_at = now;
            } else if now.since_us(busy_at) < self.spin_us {
                std::hint::spin_loop();
            } else {
                place = self.park(place, stopping);
                busy_at = self.clock.now();
            }
        }
    }

    /// Sleeps until somebody brings work, unless somebody already has.
    fn park<'a>(
        &'a self,
        mut place: WorkGuard<'a, S, R, T, A>,
        stopping: Option<Instant>,
    ) -> WorkGuard<'a, S, R, T, A> {
        let Some(work) = place.as_mut() else { return place };
        let bell = &self.shared.bells.0[self.id];
        bell.duty.announce();
        let now = self.clock.now();
        let turn = work.turn(now);
        let stop_is_news = stopping.is_none() && self.shared.stop.load(Ordering::Acquire);
        let mut until = work.due(&turn).min(now.after_us(self.park_max_us));
        if stopping.is_some() {
            until = until.min(now.after_us(1_000));
        }
        let sleep_us = until.since_us(now);
        if turn.busy || stop_is_news || sleep_us == 0 {
            bell.duty.stay();
            return place;
        }
        work.sleeps_until = until;
        let stood_in = |work: &LaneWork<S, R, T, A>| work.seat.lane.local.counters.get(Mib::StandInUs);
        let before = stood_in(work);
        let asleep = self.clock.now();
        drop(place); // for whoever stands in
        bell.sleep(self.readiness.as_ref(), Duration::from_micros(sleep_us));
        let mut place = self.place.lock();
        if let Some(work) = place.as_mut() {
            let worked = stood_in(work) - before;
            let slept = self.clock.now().since_us(asleep).saturating_sub(worked);
            work.seat.lane.local.counters.add(Mib::LaneSleepUs, slept);
        }
        place
    }
}

type WorkGuard<'a, S, R, T, A> = MutexGuard<'a, Option<LaneWork<S, R, T, A>>>;

impl<S: Sharing, R: Rx, T: Tx, A: App> LaneWork<S, R, T, A> {
    fn turn(&mut self, now: Instant) -> Turn {
        if let Some(capture) = &self.capture {
            capture.set_time(Clock::wall_us());
        }
        let local = &mut self.seat.lane.local;
        if local.now != Instant::ZERO {
            let took_us = now.since_us(local.now);
            local.counters.add(if local.busy { Mib::LaneBusyUs } else { Mib::LaneIdleUs }, took_us);
            if local.busy && took_us > SLOW_US {
                self.aloud.slow_poll(now, took_us);
            }
        }
        let turn = self.seat.turn(now);
        let aloud = self.aloud.is_due(now);
        if aloud {
            self.seat.lane.tables(|tables| self.aloud.look(now, &tables.counters));
            self.capture.iter().for_each(|capture| self.aloud.look_at_capture(capture));
        }
        // A queue that has come to an end lends nothing. The application may keep the lane busy all the same.
        if (aloud || !turn.busy)
            && !self.failed
            && let Some(why) = self.seat.queue.rx.failed()
        {
            self.failed = true;
            self.shared.fail(&format!("lane {}", self.id), why);
        }
        let mail = &self.seat.lane.local.mail;
        for (other, ring) in mail.to_lanes.iter().enumerate() {
            if ring.as_ref().is_some_and(|ring| !ring.is_drained()) {
                self.shared.bells.ring(other);
            }
        }
        if !mail.to_control.is_drained() {
            self.shared.control_bell.ring();
        }
        turn
    }

    /// When the next turn is due after one that found nothing to do.
    fn due(&self, turn: &Turn) -> Instant {
        turn.deadline.min(self.seat.app.poll_timeout())
    }

    /// Connections of this lane that are not over.
    fn connections(&mut self) -> usize {
        self.seat.lane.tables(|tables| tables.slots.len())
    }

    fn abort_all(&mut self) {
        let lane = &mut self.seat.lane;
        let mut tables = lane.shared.enter(Site::Walk);
        let left: Vec<u32> = tables.slots.iter().map(|(index, _)| index).collect();
        for index in left {
            let id = tables.id(index);
            Context { tables: &mut tables, local: &mut lane.local }.abort(id);
        }
    }

    /// What it has counted.
    fn end(mut self) -> Option<Counters> {
        let seat = &mut self.seat;
        let counters = catch_unwind(AssertUnwindSafe(|| {
            let mut counters = seat.lane.counters();
            counters.add_met_here();
            counters
        }));
        let _ = catch_unwind(AssertUnwindSafe(|| drop(self.seat)));
        counters.ok()
    }
}

impl<S: Sharing, R: Rx + Send, T: Tx + Send, A: App + Send> bells::Work for Place<LaneWork<S, R, T, A>> {
    fn stand_in(&self) -> bool {
        // Free, as the bell has said.
        let Ok(mut place) = self.0.try_lock() else { return false };
        let Some(work) = place.as_mut() else { return false };
        let began = work.clock.now();
        let (mut now, mut done) = (began, false);
        for _ in 0..bells::TURNS_MAX {
            let turn = match catch_unwind(AssertUnwindSafe(|| work.turn(now))) {
                Ok(turn) => turn,
                Err(panic) => {
                    work.failed = true;
                    work.shared.panicked(&format!("lane {}", work.id), &*panic);
                    return false;
                }
            };
            if work.failed {
                return false;
            }
            now = work.clock.now();
            if !turn.busy {
                done = work.due(&turn) >= work.sleeps_until && !work.shared.stop.load(Ordering::Acquire);
                break;
            }
        }
        let counters = &mut work.seat.lane.local.counters;
        counters.count(Mib::StandIns);
        counters.add(Mib::StandInUs, now.since_us(began));
        done
    }
}

/// The control plane and what its thread needs.
struct ControlThread {
    control: Control,
    clock: Clock,
    shared: Arc<Shared>,
    sleeper: Sleeper,
    /// Who waits for lanes to agree, or to listen.
    binding: Vec<(u16, Reply)>,
    /// Who waits for counters.
    counting: Vec<SyncSender<Vec<(Counters, usize)>>>,
    /// Who waits for a page of a listing, by the page's number.
    paging: Vec<(u64, SyncSender<Box<Page>>)>,
    pages: u64,
    /// What the queues of a TUN interface count themselves, by lane.
    tun: Vec<Arc<TunCounters>>,
}

impl ControlThread {
    /// Until the stack has stopped. The answer is what it and the device have counted themselves.
    fn run(mut self) -> Counters {
        let shared = Arc::clone(&self.shared);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.turn_until_stopped())) {
            shared.panicked("the control thread", &*panic);
        }
        *shared.lock_commands() = None;
        let mut counters = self.control.own_counters().clone();
        self.tun.iter().for_each(|queue| counters.add_tun(queue));
        counters
    }

    fn turn_until_stopped(&mut self) {
        loop {
            let commands = self.shared.lock_commands().replace(VecDeque::new());
            for command in commands.into_iter().flatten() {
                self.on_command(command);
            }
            let now = self.clock.now();
            let until = self.control.turn(now);
            self.answer();
            for lane in self.control.undelivered() {
                self.shared.bells.ring(lane);
            }
            let stopping = self.shared.stop.load(Ordering::Acquire);
            if stopping && self.shared.running.load(Ordering::Acquire) == 0 {
                return;
            }
            let timeout = (until != Instant::NEVER).then(|| Duration::from_micros(until.since_us(self.clock.now())));
            let timeout = if stopping { Some(timeout.unwrap_or(STOP_CHECK).min(STOP_CHECK)) } else { timeout };
            let (control, shared) = (&self.control, &self.shared);
            let stop_is_news = || !stopping && shared.stop.load(Ordering::Acquire);
            self.sleeper.park(timeout, || {
                control.has_mail() || shared.lock_commands().as_ref().is_some_and(|c| !c.is_empty()) || stop_is_news()
            });
        }
    }

    fn on_command(&mut self, command: Command) {
        match command {
            Command::Bind { reply, .. } | Command::ListenOn { reply, .. }
                if self.shared.stop.load(Ordering::Acquire) =>
            {
                drop(reply.send(Err(Error::Closed)))
            }
            Command::Bind { at, options, then_listen, reply } => {
                let begun = match then_listen {
                    Some(backlog) => self.control.listen_with(at, backlog, options).map(|id| id.0),
                    None => self.control.bind(at, options).map(|id| id.0),
                };
                self.wait_for(begun, reply);
            }
            Command::ListenOn { bound, backlog, reply } => {
                let begun = self.control.listen_on(bound, backlog).map(|id| id.0);
                self.wait_for(begun, reply);
            }
            Command::Unbind(id) => {
                if self.control.is_listening(ListenerId(id.0))
                    && let Some(Ok(at)) = self.control.outcome(id.0)
                {
                    tracing::info!(%at, id = id.0, "listens no more");
                }
                self.control.unbind(id);
            }
            Command::BindUdp { at, options, reply } => drop(reply.send(self.control.bind_udp_with(at, options))),
            Command::UnbindUdp(id) => self.control.unbind_udp(id),
            Command::ReplaceRoutes(routes, reply) => {
                self.control.replace_routes(*routes);
                let _ = reply.send(());
            }
            Command::MoveBucket { bucket, lane, reply } => {
                let outcome = self.control.move_bucket(bucket, lane);
                if outcome.is_ok() {
                    tracing::info!(bucket, lane, "new flows of this steering bucket go to this lane");
                }
                let _ = reply.send(outcome);
            }
            Command::Buckets(reply) => drop(reply.send(self.control.buckets())),
            Command::Source(source) => self.control.set_source(source),
            Command::Tables(reply) => drop(reply.send(self.control.tables())),
            Command::Counters(reply) => {
                if self.counting.is_empty() {
                    self.control.request_counters();
                }
                self.counting.push(reply);
            }
            Command::Page { lane, mut page, reply } => {
                self.pages += 1;
                page.id = self.pages;
                if self.paging.len() >= PAGES_MAX {
                    self.paging.remove(0); // a page that never came back, or too many at once: the oldest is told so
                }
                self.paging.push((page.id, reply));
                self.control.ask_page(lane, page);
            }
            Command::Taps(taps) => {
                taps.into_iter().enumerate().for_each(|(lane, tap)| self.control.tap(lane, tap));
            }
            Command::Stop => {
                tracing::info!("the stack is to stop: every listener is closed");
                self.control.unlisten_all();
                self.shared.begin_stop();
            }
        }
    }

    fn wait_for(&mut self, begun: Result<u16, Error>, reply: Reply) {
        match begun {
            Ok(id) => self.binding.push((id, reply)),
            Err(error) => drop(reply.send(Err(error))),
        }
    }

    /// Gives answers that have become possible, or impossible.
    fn answer(&mut self) {
        for page in self.control.take_pages() {
            if let Some(at) = self.paging.iter().position(|(id, _)| *id == page.id) {
                let _ = self.paging.swap_remove(at).1.send(page);
            }
        }
        let control = &mut self.control;
        let stopping = self.shared.stop.load(Ordering::Acquire);
        self.binding.retain(|(id, reply)| {
            if let Some(outcome) = control.outcome(*id) {
                match &outcome {
                    Ok(at) if control.is_listening(ListenerId(*id)) => tracing::info!(%at, id, "listens"),
                    Ok(at) => tracing::debug!(%at, id, "is bound"),
                    Err(why) => tracing::info!(%why, "cannot be bound"),
                }
                let _ = reply.send(outcome.map(|at| (*id, at)));
                return false;
            }
            if stopping {
                let _ = reply.send(Err(Error::Closed));
            }
            !stopping
        });
        if stopping {
            self.paging.clear();
        }
        if !self.counting.is_empty()
            && let Some(mut counters) = control.counters_by_lane()
        {
            counters.iter_mut().zip(&self.tun).for_each(|((lane, _), queue)| lane.add_tun(queue));
            for reply in self.counting.drain(..) {
                let _ = reply.send(counters.clone());
            }
        } else if stopping {
            self.counting.clear();
        }
    }
}

/// Pages of listings that may be under way at once.
const PAGES_MAX: usize = 64;

/// While a stack stops, its control thread looks this often whether the lanes have ended.
const STOP_CHECK: Duration = Duration::from_millis(10);

mod aloud;
mod asker;
mod bells;
mod guard;
use aloud::Aloud;
pub use asker::{Asker, Trace, Unanswered};
pub use bells::Bells;

#[cfg(test)]
mod tests;
