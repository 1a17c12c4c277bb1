//! Real threads over a memory link: they talk, sleep, wake, stop, and say when they fail.

use super::*;
use crate::app::{ConnId, Context};
use crate::config::Config;
use crate::control::Network;
use crate::counters::Mib;
use crate::entropy::BootSecrets;
use crate::steering::Steering;
use laneway_device::memory::{self, LinkConfig};
use laneway_proto::tcp::CloseReason;
use laneway_sync::bucket_lock::Lock;
use laneway_sync::{met, site};
use laneway_wire::flow::Address;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// Where an application panics.
#[derive(Clone, Copy, Default, PartialEq)]
enum Panics {
    #[default]
    Nowhere,
    OnPoll,
    /// Over every second connection, as it is accepted or as its data arrives.
    OnAccept,
    OnData,
    /// In the next poll after [`PANIC`] was set.
    WhenTold,
}

static PANIC: AtomicBool = AtomicBool::new(false);

/// Echoes, or sends 100 bytes and waits for them to come back; then tells.
#[derive(Default)]
struct Echo {
    to_start: usize,
    panics: Panics,
    accepted: u64,
    done: Option<Sender<CloseReason>>,
    /// Each poll takes so much longer.
    takes: Duration,
}

impl App for Echo {
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        thread::sleep(self.takes);
        assert!(self.panics != Panics::OnPoll || self.accepted == 0, "planted");
        assert!(self.panics != Panics::WhenTold || !PANIC.load(Ordering::Acquire), "planted");
        while self.to_start > 0 {
            cx.connect(None, Address::from_v4([10, 0, 0, 1]), 7, 1).expect("there are ports");
            self.to_start -= 1;
        }
    }
    fn on_accept(&mut self, cx: &mut Context<'_>, id: ConnId) {
        self.accepted += 1;
        cx.set_token(id, 2 + self.accepted % 2);
        assert!(self.panics != Panics::OnAccept || self.accepted.is_multiple_of(2), "planted");
    }
    fn on_connect(&mut self, cx: &mut Context<'_>, id: ConnId) {
        cx.send(id, &[7; 100]);
    }
    fn on_data(&mut self, cx: &mut Context<'_>, id: ConnId, data: &[u8]) -> usize {
        assert!(self.panics != Panics::OnData || cx.token(id) == 2, "planted");
        if cx.token(id) == 1 {
            cx.close(id)
        } else {
            assert_eq!(cx.send(id, data), data.len())
        }
        data.len()
    }
    fn on_closed(&mut self, _: &mut Context<'_>, _: ConnId, _: u64, reason: CloseReason) {
        if let Some(done) = &self.done {
            let _ = done.send(reason);
        }
    }
}

/// Two stacks of `lanes` lanes; the client starts `each` connections on each lane.
fn pair(lanes: usize, each: usize, panics: Panics, done: Sender<CloseReason>, options: Options) -> (Runtime, Runtime) {
    let clock = Clock::start();
    let bells = [Bells::new(lanes).unwrap(), Bells::new(lanes).unwrap()];
    let secrets = [BootSecrets::from_seed(1), BootSecrets::from_seed(2)];
    let steer = |i: usize| {
        let steering = Steering::new(secrets[i].steering, lanes);
        Some(Arc::new(move |frame: &[u8]| steering.queue_of_frame(frame, 0)) as memory::Steer)
    };
    let link = LinkConfig {
        queues: lanes,
        steer: [steer(0), steer(1)],
        wake: [Some(bells[0].interrupt()), Some(bells[1].interrupt())],
        ..LinkConfig::default()
    };
    let (first, second) = memory::link(link);
    let start = |i: usize, queues, ip: &str, app: &dyn Fn() -> Echo| {
        let network = Network { addresses: vec![ip.parse().unwrap()], gateways: vec![] };
        let host: Host<_, _, Echo> =
            Host::new(Config::default(), &network, &secrets[i], queues, clock.now(), |_| app()).unwrap();
        Runtime::start(host, clock, Options { bells: Some(bells[i].clone()), ..options.clone() }).unwrap()
    };
    let server = start(0, first, "10.0.0.1/24", &|| Echo { panics, ..Echo::default() });
    server.listen("0.0.0.0:7".parse().unwrap(), 1_024).unwrap();
    let client =
        start(1, second, "10.0.0.2/24", &|| Echo { to_start: each, done: Some(done.clone()), ..Echo::default() });
    (server, client)
}

#[test]
fn threads_serve_threads() {
    for lanes in [1, 2] {
        let (done, ended) = channel();
        let (server, client) = pair(lanes, 200, Panics::Nowhere, done, Options { pin: false, ..Options::default() });
        for _ in 0..200 * lanes {
            assert_eq!(
                ended.recv_timeout(Duration::from_secs(20)).expect("a connection is stuck"),
                CloseReason::Normal
            );
        }
        let (counters, bytes) = server.counters().unwrap();
        assert_eq!(counters.get(Mib::TcpPassiveOpens), 200 * lanes as u64);
        assert!(bytes > 0);
        assert_eq!(client.stop().failure, None);
        let ended = server.stop();
        assert_eq!((ended.failure, ended.counters.get(Mib::TcpPassiveOpens)), (None, 200 * lanes as u64));
    }
}

#[test]
fn a_sleeping_lane_hears_control_at_once() {
    let (done, _ended) = channel();
    let (server, client) =
        pair(2, 0, Panics::Nowhere, done, Options { pin: false, park_max_us: 10_000_000, ..Options::default() });
    thread::sleep(Duration::from_millis(50));
    let start = std::time::Instant::now();
    let id = server.listen("0.0.0.0:8".parse().unwrap(), 16).unwrap();
    assert_eq!(
        server.listen("10.0.0.1:8".parse().unwrap(), 16),
        Err(Error::AddressInUse("10.0.0.1:8".parse().unwrap()))
    );
    server.unlisten(id);
    server.listen("0.0.0.0:8".parse().unwrap(), 16).unwrap();
    server.counters().unwrap();
    let (idle, _) = client.counters().unwrap();
    drop((server, client));
    assert!(start.elapsed() < Duration::from_secs(5), "somebody slept through a bell");
    assert!(idle.get(Mib::PollsIdle) < 5_000, "a lane with nothing to do did not park");
}

#[test]
fn a_lane_that_panics_takes_the_stack_down_and_says_so() {
    let (done, _ended) = channel();
    let said = Arc::new(Mutex::new(String::new()));
    let hear = Arc::clone(&said);
    let on_failure: Tell = Arc::new(move |what: &str| *hear.lock().unwrap() = what.to_owned());
    let options = Options { pin: false, grace_us: 100_000, on_failure: Some(on_failure), ..Options::default() };
    let (server, client) = pair(2, 1, Panics::OnPoll, done, options);
    let start = std::time::Instant::now();
    while server.failure().is_none() {
        assert!(start.elapsed() < Duration::from_secs(10), "nobody noticed");
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(server.listen("0.0.0.0:9".parse().unwrap(), 1), Err(Error::Closed));
    let failure = server.stop().failure.unwrap();
    assert!(failure.starts_with("lane ") && failure.ends_with("planted"), "{failure}");
    assert_eq!(*said.lock().unwrap(), failure);
    drop(client);
}

/// A stack of two lanes, one of which panics; what `told` does about it, to the stack itself, is done within a few seconds.
fn fails(told: impl Fn(&mut Option<Runtime>) + Send + Sync + 'static) -> Option<Runtime> {
    let (place, (done, ended)) = (Arc::new(Mutex::new(None)), channel());
    let stack = Arc::clone(&place);
    let on_failure: Tell = Arc::new(move |_| {
        let mut stack = stack.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = catch_unwind(AssertUnwindSafe(|| told(&mut stack)));
        drop(stack);
        done.send(()).unwrap();
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    let mut stack = place.lock().unwrap();
    let options = Options { pin: false, grace_us: 100_000, on_failure: Some(on_failure), ..Options::default() };
    let (server, client) = pair(2, 1, Panics::OnPoll, channel().0, options);
    *stack = Some(server);
    drop(stack);
    ended.recv_timeout(Duration::from_secs(10)).expect("who was told is stuck");
    drop(client);
    place.lock().unwrap_or_else(PoisonError::into_inner).take()
}

#[test]
fn who_is_told_of_a_failure_may_stop_the_stack() {
    assert!(fails(|stack| assert!(stack.take().unwrap().stop().failure.is_some())).is_none());
    assert!(fails(|stack| drop(stack.take())).is_none());
}

#[test]
fn who_is_told_of_a_failure_may_ask_the_stack() {
    let stack = fails(|stack| {
        let stack = stack.as_ref().unwrap();
        assert!(stack.failure().is_some());
        let _ = stack.counters(); // as far as the other lane still answers
        let bound = stack.bind("10.0.0.1:0".parse().unwrap(), BindOptions::default());
        assert_eq!(bound, Err(Error::Closed));
    });
    assert!(stack.unwrap().stop().failure.is_some());
}

#[test]
fn who_panics_when_told_of_a_failure_keeps_the_stack_from_nothing() {
    let stack = fails(|_| panic!("planted, by who is told")).unwrap();
    let (stopped, ended) = channel();
    thread::spawn(move || stopped.send((stack.counters().map(drop), stack.stop().failure)));
    let (_, failure) = ended.recv_timeout(Duration::from_secs(10)).expect("the other lane goes on");
    assert!(failure.unwrap().ends_with("planted"));
}

#[test]
fn an_application_that_panics_loses_its_connection_and_not_the_lane() {
    for panics in [Panics::OnAccept, Panics::OnData] {
        let (done, ended) = channel();
        let (server, client) = pair(1, 40, panics, done, Options { pin: false, ..Options::default() });
        let mut reasons = [0; 2];
        for _ in 0..40 {
            match ended.recv_timeout(Duration::from_secs(20)).expect("a connection is stuck") {
                CloseReason::Normal => reasons[0] += 1,
                CloseReason::Reset => reasons[1] += 1,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(reasons, [20, 20], "every second one is reset, and the others are served");
        assert_eq!(server.failure(), None);
        let (counters, _) = server.counters().unwrap();
        assert_eq!(counters.get(Mib::AppPanics), 20);
        let ended = server.stop();
        assert_eq!(ended.failure, None);
        drop(client);
    }
}

#[test]
fn a_bind_is_agreed_on_by_every_lane_and_undone() {
    let (server, client) = pair(2, 0, Panics::Nowhere, channel().0, Options { pin: false, ..Options::default() });
    let none = BindOptions::default();
    let (id, at) = server.bind("10.0.0.1:0".parse().unwrap(), none).unwrap();
    assert!(Config::default().ip_local_port_range.0 <= at.port());
    assert_eq!(server.bind(at, none), Err(Error::AddressInUse(at)));
    assert_eq!(server.listen(at, 8), Err(Error::AddressInUse(at)));
    let listener = server.listen_on(id, 8, Marks::NONE).unwrap();
    assert_eq!(server.listen_on(id, 8, Marks::NONE).map(drop).unwrap_err().errno(), rustix::io::Errno::INVAL);
    server.unlisten(listener);
    let (again, _) = server.bind(at, none).unwrap();
    server.unbind(again);
    let (udp, at) = client.bind_udp_with("10.0.0.2:0".parse().unwrap(), none).unwrap();
    assert_eq!(client.bind_udp(at), Err(Error::AddressInUse(at)));
    client.unbind_udp(udp);
    client.bind_udp(at).unwrap();
    assert_eq!(client.ports(10).unwrap().0, []);
}

#[test]
fn a_listing_shows_each_lanes_share_of_a_destination() {
    let (done, told) = channel();
    let (_server, client) = pair(2, 3, Panics::Nowhere, done, Options { pin: false, ..Options::default() });
    for _ in 0..6 {
        told.recv_timeout(Duration::from_secs(20)).expect("a connection ended");
    }
    let (slices, tallies) = client.ports(10).unwrap();
    // The client closed first: all six are in TIME_WAIT.
    assert_eq!(slices.iter().map(|slice| slice.time_wait).sum::<usize>(), 6);
    assert_eq!(slices.iter().map(|slice| slice.owned).sum::<usize>(), 28_232, "the slices are the range");
    assert_eq!((tallies.asks, tallies.probes, tallies.flow_hashes, tallies.locks), (6, 6, 6, 0));
}

#[test]
fn who_brings_work_to_a_sleeping_lane_does_it() {
    let options = Options { pin: false, stand_in: true, park_max_us: 10_000_000, ..Options::default() };
    let (server, client) = pair(1, 0, Panics::Nowhere, channel().0, options);
    let counted = |mib| server.counters().unwrap().0.get(mib);
    let start = std::time::Instant::now();
    while counted(Mib::StandIns) == 0 {
        assert!(start.elapsed() < Duration::from_secs(10), "the lane never slept");
        thread::sleep(Duration::from_millis(5)); // asking has woken it
        server.bells().attend(0);
    }
    // It still hears everything: from others, of time, and of the end.
    server.listen("0.0.0.0:8".parse().unwrap(), 16).unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..2_000).for_each(|_| server.bells().attend(0)));
        }
        (0..20).for_each(|_| _ = counted(Mib::PollsIdle));
    });
    let start = std::time::Instant::now();
    assert_eq!((server.stop().failure, client.stop().failure), (None, None));
    assert!(start.elapsed() < Duration::from_secs(5), "somebody slept through a bell");
}

/// Who stands in sees to what is due: a lane whose time comes meanwhile sleeps on, and does not want its work back in the middle of that.
#[test]
fn a_lane_whose_time_has_come_leaves_its_work_to_who_is_at_it() {
    const ROUNDS: usize = 20;
    let options = Options { pin: false, stand_in: true, park_max_us: 2_000, ..Options::default() };
    let (server, client) = pair(1, 0, Panics::Nowhere, channel().0, options);
    let (mut rounds, mut slept_on) = (0, 0);
    let start = std::time::Instant::now();
    while rounds < ROUNDS {
        assert!(start.elapsed() < Duration::from_secs(20), "after {rounds} rounds the lane slept no more");
        let began = std::time::Instant::now();
        if server.bells().mind(0, || began.elapsed() >= Duration::from_millis(10)) {
            rounds += 1;
            slept_on += usize::from(!server.bells().is_awake(0));
        }
    }
    assert!(slept_on > ROUNDS / 2, "{slept_on} of {ROUNDS} times");
    assert_eq!((server.stop().failure, client.stop().failure), (None, None));
}

/// Whoever works in a lane's stead has met others elsewhere, which is none of the lane's business.
#[test]
fn what_a_thread_has_met_elsewhere_is_not_counted_for_the_lane_that_it_stands_in_for() {
    let options = Options { pin: false, stand_in: true, park_max_us: 10_000_000, ..Options::default() };
    let (server, client) = pair(1, 0, Panics::Nowhere, channel().0, options);
    let (lock, is_held) = (Lock::<()>::new("elsewhere", ()), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            let held = lock.lock(site!("hold it"));
            is_held.wait();
            thread::sleep(Duration::from_millis(20));
            drop(held);
        });
        is_held.wait();
        drop(lock.lock(site!("want it")));
    });
    assert_eq!(met::here().contended, 1);
    let (stands_in, answered) = (AtomicBool::new(false), AtomicBool::new(false));
    let counters = thread::scope(|scope| {
        let asks = scope.spawn(|| {
            let start = std::time::Instant::now();
            while !stands_in.load(Ordering::Acquire) {
                assert!(start.elapsed() < Duration::from_secs(10), "the lane never slept");
                thread::sleep(Duration::from_millis(1));
            }
            let counters = server.counters().unwrap().0;
            answered.store(true, Ordering::Release);
            counters
        });
        while !asks.is_finished() {
            server.bells().mind(0, || {
                stands_in.store(true, Ordering::Release);
                answered.load(Ordering::Acquire)
            });
            thread::yield_now();
        }
        asks.join().unwrap()
    });
    assert_eq!((counters.get(Mib::LocksContended), counters.get(Mib::CasRetries)), (0, 0));
    assert_eq!((server.stop().failure, client.stop().failure), (None, None));
}

#[test]
fn a_lane_that_panics_on_another_thread_ends_as_on_its_own() {
    let options = Options { pin: false, stand_in: true, grace_us: 100_000, ..Options::default() };
    let (server, client) = pair(1, 0, Panics::WhenTold, channel().0, options);
    PANIC.store(true, Ordering::Release);
    let start = std::time::Instant::now();
    while server.failure().is_none() {
        assert!(start.elapsed() < Duration::from_secs(10), "nobody noticed");
        thread::sleep(Duration::from_millis(1));
        server.bells().attend(0); // here, or the lane itself
    }
    assert_eq!(server.listen("0.0.0.0:9".parse().unwrap(), 1), Err(Error::Closed));
    let failure = server.stop().failure.unwrap();
    assert!(failure.starts_with("lane ") && failure.ends_with("planted"), "{failure}");
    drop(client);
}

/// What no lane sees: the kernel has refused it.
#[test]
fn what_a_tun_interface_loses_is_in_the_counters() {
    let (done, _ended) = channel();
    let tun: Vec<Arc<TunCounters>> = (0..2).map(|_| Arc::default()).collect();
    let options = Options { pin: false, tun: tun.clone(), ..Options::default() };
    let (server, client) = pair(2, 0, Panics::Nowhere, done, options);
    tun[0].tx_full.store(1, Ordering::Relaxed);
    tun[1].tx_full.store(2, Ordering::Relaxed);
    tun[1].tx_refused.store(4, Ordering::Relaxed);
    tun[0].rx_errors.store(8, Ordering::Relaxed);
    tun[1].rx_short.store(16, Ordering::Relaxed);
    let names = [Mib::TunTxFull, Mib::TunTxRefused, Mib::TunRxErrors, Mib::TunRxShort];
    for _ in 0..2 {
        let (counters, _) = server.counters().unwrap();
        assert_eq!(names.map(|name| counters.get(name)), [3, 4, 8, 16], "however often one asks");
    }
    let lanes = server.asker().counters_by_lane().unwrap();
    assert_eq!(lanes.iter().map(|(lane, _)| lane.get(Mib::TunTxFull)).collect::<Vec<_>>(), [1, 2]);
    drop(client);
    let ended = server.stop();
    assert_eq!(names.map(|name| ended.counters.get(name)), [3, 4, 8, 16]);
}

/// A queue to which nothing will come any more, as its descriptor says; and as it says itself, if it does.
struct Ended {
    inner: laneway_device::memory::LinkRx,
    hung_up: std::io::PipeReader,
    says_so: bool,
}

impl Rx for Ended {
    fn poll(&mut self, max: usize) -> usize {
        self.inner.poll(max)
    }
    fn frame(&self, i: usize) -> laneway_device::RxFrame<'_> {
        self.inner.frame(i)
    }
    fn release(&mut self) {
        self.inner.release();
    }
    fn readiness(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        Some(std::os::fd::AsFd::as_fd(&self.hung_up))
    }
    fn failed(&self) -> Option<&str> {
        self.says_so.then_some("the cable is cut")
    }
}

/// A stack of one lane on such a queue.
fn on_ended_queue(says_so: bool) -> Runtime {
    let (hung_up, writer) = std::io::pipe().unwrap();
    drop(writer);
    let (mut first, _second) = memory::link(LinkConfig { queues: 1, ..LinkConfig::default() });
    let queue = first.pop().unwrap();
    let rx = Ended { inner: queue.rx, hung_up, says_so };
    let queues = vec![laneway_device::Queue { rx, tx: queue.tx }];
    let network = Network { addresses: vec!["10.0.0.1/24".parse().unwrap()], gateways: vec![] };
    let (clock, secrets) = (Clock::start(), BootSecrets::from_seed(1));
    let host: Host<_, _, Echo> =
        Host::new(Config::default(), &network, &secrets, queues, clock.now(), |_| Echo::default()).unwrap();
    Runtime::start(host, clock, Options { pin: false, spin_us: 0, ..Options::default() }).unwrap()
}

#[test]
fn a_descriptor_that_has_gone_bad_keeps_no_lane_awake() {
    let stack = on_ended_queue(/* says_so= */ false);
    let idle = || stack.counters().unwrap().0.get(Mib::PollsIdle);
    thread::sleep(Duration::from_millis(100));
    let before = idle();
    thread::sleep(Duration::from_secs(1));
    let polls = idle() - before;
    assert!(polls < 100, "{polls} polls in a second in which nothing happened");
    assert_eq!(stack.stop().failure, None);
}

#[test]
fn a_queue_that_has_come_to_an_end_takes_the_stack_down_and_says_so() {
    let stack = on_ended_queue(/* says_so= */ true);
    let start = std::time::Instant::now();
    while stack.failure().is_none() {
        assert!(start.elapsed() < Duration::from_secs(10), "nobody noticed");
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(stack.stop().failure.unwrap(), "lane 0 failed, and the stack stops: the cable is cut");
}

/// What a queue is told by its lane's thread.
#[derive(Default)]
struct Told {
    vouched_for: Mutex<Vec<std::net::IpAddr>>,
    looks_aside: AtomicUsize,
    /// What waits aside is left alone for so many milliseconds, whenever one asks.
    rests_ms: AtomicUsize,
    /// How often somebody asked and was told to leave it alone.
    left_alone: AtomicUsize,
    /// By how many microseconds the time was past that was said of an endpoint that is overrun.
    late_us: Mutex<Vec<u64>>,
}

/// A queue that wakes its lane by what waits aside, which is bytes in a pipe, and by nothing else.
struct WithAside {
    inner: laneway_device::memory::LinkRx,
    quiet: std::os::fd::OwnedFd,
    aside: std::io::PipeReader,
    told: Arc<Told>,
    clock: Clock,
}

impl Rx for WithAside {
    fn poll(&mut self, max: usize) -> usize {
        self.inner.poll(max)
    }
    fn frame(&self, i: usize) -> laneway_device::RxFrame<'_> {
        self.inner.frame(i)
    }
    fn release(&mut self) {
        self.inner.release();
    }
    fn readiness(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        Some(std::os::fd::AsFd::as_fd(&self.quiet))
    }
    fn aside(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        Some(std::os::fd::AsFd::as_fd(&self.aside))
    }
    fn floodgate(&mut self) -> Option<&mut dyn laneway_device::FloodGate> {
        Some(self)
    }
}

impl laneway_device::FloodGate for WithAside {
    fn rests(&self) -> Duration {
        let rests = Duration::from_millis(self.told.rests_ms.load(Ordering::Relaxed) as u64);
        self.told.left_alone.fetch_add(usize::from(!rests.is_zero()), Ordering::Relaxed);
        rests
    }
    fn look_aside(&mut self) {
        std::io::Read::read_exact(&mut self.aside, &mut [0]).expect("who says that something waits?");
        self.told.looks_aside.fetch_add(1, Ordering::Relaxed);
    }
    fn vouch(&mut self, peer: std::net::IpAddr) {
        self.told.vouched_for.lock().unwrap().push(peer);
    }
    fn overrun(&mut self, how: &laneway_device::CookieAnswer) {
        self.told.late_us.lock().unwrap().push(self.clock.now().as_us() - how.now_us);
    }
    fn alarms(&self) -> laneway_device::Alarms {
        laneway_device::Alarms::default()
    }
    fn answered(&mut self) -> u64 {
        0
    }
}

fn on_queue_with_aside() -> (Runtime, Vec<memory::LinkQueue>, std::io::PipeWriter, Arc<Told>) {
    on_queue_with(Config::default(), Duration::ZERO)
}

/// The same, of whose polls each takes so much longer.
fn on_queue_with(config: Config, takes: Duration) -> (Runtime, Vec<memory::LinkQueue>, std::io::PipeWriter, Arc<Told>) {
    let (aside, writer) = std::io::pipe().unwrap();
    let quiet = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
    let bells = Bells::new(1).unwrap();
    let wake = [Some(bells.interrupt()), None];
    let (mut first, second) = memory::link(LinkConfig { queues: 1, wake, ..LinkConfig::default() });
    let (queue, told) = (first.pop().unwrap(), Arc::new(Told::default()));
    let clock = Clock::start();
    let rx = WithAside { inner: queue.rx, quiet, aside, told: told.clone(), clock };
    let queues = vec![laneway_device::Queue { rx, tx: queue.tx }];
    let network = Network { addresses: vec!["10.0.0.1/24".parse().unwrap()], gateways: vec![] };
    let secrets = BootSecrets::from_seed(1);
    let app = |_| Echo { takes, ..Echo::default() };
    let host: Host<_, _, Echo> = Host::new(config, &network, &secrets, queues, clock.now(), app).unwrap();
    let options = Options { pin: false, spin_us: 0, bells: Some(bells), ..Options::default() };
    (Runtime::start(host, clock, options).unwrap(), second, writer, told)
}

#[test]
fn what_waits_aside_wakes_a_lane_unless_it_rests() {
    let (stack, _far, mut aside, told) = on_queue_with_aside();
    let looks = || told.looks_aside.load(Ordering::Relaxed);
    let wait_until = |what: &dyn Fn() -> bool| {
        let start = std::time::Instant::now();
        while !what() {
            assert!(start.elapsed() < Duration::from_secs(5), "{} looks", looks());
            thread::sleep(Duration::from_millis(1));
        }
    };
    for n in 1..4 {
        thread::sleep(Duration::from_millis(20));
        std::io::Write::write_all(&mut aside, b"x").unwrap();
        wait_until(&|| looks() == n);
    }
    told.rests_ms.store(50, Ordering::Relaxed);
    std::io::Write::write_all(&mut aside, b"x").unwrap();
    // If the lane slept already it looks once more, and rests then.
    wait_until(&|| told.left_alone.load(Ordering::Relaxed) > 0);
    let looked = looks();
    let polls = || stack.counters().unwrap().0.get(Mib::PollsIdle);
    let before = polls();
    std::io::Write::write_all(&mut aside, b"x").unwrap();
    thread::sleep(Duration::from_millis(300));
    assert_eq!(looks(), looked, "it rests");
    assert!(polls() - before < 100, "{} polls", polls() - before);
    told.rests_ms.store(0, Ordering::Relaxed);
    wait_until(&|| looks() == 5);
    assert_eq!(stack.stop().failure, None);
}

#[test]
fn a_device_is_told_once_who_has_completed_a_handshake() {
    let (server, far, _aside, told) = on_queue_with_aside();
    server.listen("10.0.0.1:7".parse().unwrap(), 16).unwrap();
    let (done, closed) = channel();
    let network = Network { addresses: vec!["10.0.0.2/24".parse().unwrap()], gateways: vec![] };
    let (clock, secrets) = (Clock::start(), BootSecrets::from_seed(2));
    let app = |_| Echo { to_start: 5, done: Some(done.clone()), ..Echo::default() };
    let host: Host<_, _, Echo> = Host::new(Config::default(), &network, &secrets, far, clock.now(), app).unwrap();
    let client = Runtime::start(host, clock, Options { pin: false, ..Options::default() }).unwrap();
    for _ in 0..5 {
        closed.recv_timeout(Duration::from_secs(10)).unwrap();
    }
    assert_eq!(*told.vouched_for.lock().unwrap(), ["10.0.0.2".parse::<std::net::IpAddr>().unwrap()]);
    client.stop();
    server.stop();
}

/// The device goes on from there by its own clock, for seconds. By one that is behind it would answer a client with a timestamp that is older than the end
/// of his last connection, who would then be reset.
#[test]
fn a_device_is_told_the_time_at_which_it_is_told_and_not_that_at_which_the_poll_began() {
    const TAKES: Duration = Duration::from_millis(200);
    let config = Config { tcp_max_syn_backlog: 0, ..Config::default() };
    let (server, far, _aside, told) = on_queue_with(config, TAKES);
    server.listen("10.0.0.1:7".parse().unwrap(), 16).unwrap();
    let network = Network { addresses: vec!["10.0.0.2/24".parse().unwrap()], gateways: vec![] };
    let (clock, secrets) = (Clock::start(), BootSecrets::from_seed(2));
    let app = |_| Echo { to_start: 1, ..Echo::default() };
    let host: Host<_, _, Echo> = Host::new(Config::default(), &network, &secrets, far, clock.now(), app).unwrap();
    let client = Runtime::start(host, clock, Options { pin: false, ..Options::default() }).unwrap();
    let start = std::time::Instant::now();
    while told.late_us.lock().unwrap().is_empty() {
        assert!(start.elapsed() < Duration::from_secs(10), "no cookie was sent");
        thread::sleep(Duration::from_millis(1));
    }
    let late_us = told.late_us.lock().unwrap()[0];
    assert!(late_us < TAKES.as_micros() as u64 / 2, "{late_us} us");
    client.stop();
    server.stop();
}

/// The first lane fails when it is told to. The other stays for as long as it may, and says whether somebody listens there.
struct Survivor {
    begins: bool,
    fails: Arc<AtomicBool>,
    listens: Arc<AtomicBool>,
}

impl App for Survivor {
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        assert!(cx.lane() != 0 || !self.fails.load(Ordering::Acquire), "planted");
        if cx.lane() == 0 {
            return;
        }
        self.listens.store(cx.tables.listeners.at_or_after(0).is_some(), Ordering::Release);
        if std::mem::take(&mut self.begins) {
            cx.connect(None, Address::from_v4([10, 0, 0, 2]), 7, 0).expect("there are ports");
        }
    }
    fn on_data(&mut self, _: &mut Context<'_>, _: ConnId, data: &[u8]) -> usize {
        data.len()
    }
    fn on_stop(&mut self, _: &mut Context<'_>) {}
}

/// As when it is told to stop: whoever is connected meanwhile would be reset in the end.
#[test]
fn a_stack_that_has_failed_listens_no_more() {
    let (first, _second) = memory::link(LinkConfig { queues: 2, ..LinkConfig::default() });
    let (fails, listens) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let network = Network { addresses: vec!["10.0.0.1/24".parse().unwrap()], gateways: vec![] };
    let (clock, secrets) = (Clock::start(), BootSecrets::from_seed(1));
    let app = |_| Survivor { begins: true, fails: Arc::clone(&fails), listens: Arc::clone(&listens) };
    let host: Host<_, _, Survivor> = Host::new(Config::default(), &network, &secrets, first, clock.now(), app).unwrap();
    let options = Options { pin: false, park_max_us: 10_000, grace_us: 3_000_000, ..Options::default() };
    let stack = Runtime::start(host, clock, options).unwrap();
    stack.listen("0.0.0.0:7".parse().unwrap(), 16).unwrap();
    let until = |what: &str, is_so: &dyn Fn() -> bool| {
        let start = std::time::Instant::now();
        while !is_so() {
            assert!(start.elapsed() < Duration::from_secs(2), "{what}");
            thread::sleep(Duration::from_millis(1));
        }
    };
    until("nobody listens", &|| listens.load(Ordering::Acquire));
    fails.store(true, Ordering::Release);
    until("nobody has failed", &|| stack.failure().is_some());
    until("it listens still", &|| !listens.load(Ordering::Acquire));
    assert!(stack.stop().failure.unwrap().ends_with("planted"));
}

/// The first lane accepts once, in vain, when it is told to. The other does nothing while it is held.
struct Counting {
    accepts: Arc<AtomicBool>,
    is_held: Arc<Mutex<()>>,
    waits: Arc<AtomicBool>,
}

impl App for Counting {
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        if cx.lane() == 0 {
            if self.accepts.swap(false, Ordering::AcqRel) {
                assert_eq!(cx.accept(ListenerId(0)), None);
            }
        } else if self.is_held.try_lock().is_err() {
            self.waits.store(true, Ordering::Release);
            drop(self.is_held.lock());
        }
    }
    fn on_data(&mut self, _: &mut Context<'_>, _: ConnId, data: &[u8]) -> usize {
        data.len()
    }
}

/// Somebody has asked before, and one lane has answered him, while another takes its time.
#[test]
fn who_asks_for_counters_has_none_from_before_he_asked() {
    let (first, _second) = memory::link(LinkConfig { queues: 2, ..LinkConfig::default() });
    let (accepts, waits) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let is_held = Arc::new(Mutex::new(()));
    let network = Network { addresses: vec!["10.0.0.1/24".parse().unwrap()], gateways: vec![] };
    let (clock, secrets) = (Clock::start(), BootSecrets::from_seed(1));
    let app = |_| Counting { accepts: Arc::clone(&accepts), is_held: Arc::clone(&is_held), waits: Arc::clone(&waits) };
    let host: Host<_, _, Counting> = Host::new(Config::default(), &network, &secrets, first, clock.now(), app).unwrap();
    let options = Options { pin: false, park_max_us: 10_000, ..Options::default() };
    let stack = Runtime::start(host, clock, options).unwrap();
    let is_so = |told: &AtomicBool, so: bool| {
        let start = std::time::Instant::now();
        while told.load(Ordering::Acquire) != so {
            assert!(start.elapsed() < Duration::from_secs(5), "a lane is stuck");
            thread::sleep(Duration::from_millis(1));
        }
    };
    let held = is_held.lock().unwrap();
    is_so(&waits, true);
    thread::scope(|scope| {
        let ask = || stack.counters().unwrap().0.get(Mib::SCAF);
        let before = scope.spawn(ask);
        thread::sleep(Duration::from_millis(100));
        accepts.store(true, Ordering::Release);
        is_so(&accepts, false);
        thread::sleep(Duration::from_millis(20)); // its turn is over
        let after = scope.spawn(ask);
        thread::sleep(Duration::from_millis(100));
        drop(held);
        assert!(before.join().unwrap() <= 1);
        assert_eq!(after.join().unwrap(), 1);
    });
}
