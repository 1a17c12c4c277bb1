//! Owns `--api thread`: the same work done by application threads through sockets, ours and the kernel's, in one structure.
//!
//! Half of the threads serve, half ask; each has its share of the connections. A thread with one connection uses blocking
//! calls, one with several a poller. What is different between contenders is the [`Net`] that the sockets are of.

mod apps;
mod laneway;
mod linux;
mod net;

use super::contender::{Account, Contender, Round, Share};
use super::failure::Failure;
use super::latency::Stopwatch;
use super::machine;
use super::options::Unit;
use super::rr::Rr;
use super::stream::MEBIBYTE;
use apps::{Ask, Serve};
use hdrhistogram::Histogram;
pub use laneway::Laneway;
use laneway_sync::Padded;
pub use linux::Kernel;
use net::Net;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Where a round is.
const STARTING: u8 = 0;
const MEASURING: u8 = 1;
const ENDING: u8 = 2;

/// Everything is open for this long before the measurement begins.
const SETTLE: Duration = Duration::from_millis(50);
/// Not everything is open after this long: something is wrong.
const STUCK_AFTER: Duration = Duration::from_secs(60);

/// What is done, and by how many.
#[derive(Clone)]
pub struct Job {
    /// The work unit.
    pub unit: Unit,
    /// Connections at a time.
    pub conns: usize,
    /// Application threads; half of them serve.
    pub threads: usize,
    /// What is asked.
    pub request: Vec<u8>,
    /// What is answered.
    pub response: Vec<u8>,
}

impl Job {
    /// Of the sizes that the on-lane work has.
    pub fn new(unit: Unit, conns: usize, threads: usize, message: Option<usize>) -> Self {
        let (request, response) = match unit {
            Unit::Rr => Rr::new(message).messages(),
            _ => Rr::new(None).messages(),
        };
        Job { unit, conns, threads, request, response }
    }

    /// Threads at each end.
    fn pairs(&self) -> usize {
        self.threads / 2
    }

    /// How many connections a pair of threads has.
    fn share(&self, pair: usize) -> usize {
        self.conns / self.pairs() + usize::from(pair < self.conns % self.pairs())
    }

    /// One connection for each pair of threads: blocking calls.
    fn is_blocking(&self) -> bool {
        self.conns <= self.pairs()
    }
}

/// What the threads of a round share with the one that measures.
struct Floor {
    phase: AtomicU8,
    /// Something failed: nobody waits any longer.
    broken: AtomicBool,
    /// Connections that are or were open.
    established: AtomicU64,
    /// Operations, or bytes of a stream, by pair.
    done: Vec<Padded<AtomicU64>>,
    failed: AtomicU64,
    failures: Mutex<Option<String>>,
    latency: Mutex<Vec<Histogram<u64>>>,
}

impl Floor {
    fn phase(&self) -> u8 {
        self.phase.load(Ordering::Relaxed)
    }

    fn is_over(&self) -> bool {
        self.phase() == ENDING
    }

    fn fail(&self, what: String) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(what);
        self.broken.store(true, Ordering::Release);
        self.phase.store(ENDING, Ordering::Release);
    }

    fn done(&self) -> u64 {
        self.done.iter().map(|one| one.load(Ordering::Relaxed)).sum()
    }
}

/// A contender whose applications are threads.
pub struct Threads<N: Net> {
    who: &'static str,
    net: N,
    job: Job,
    latency: Option<Histogram<u64>>,
    failed: u64,
}

impl<N: Net> Threads<N> {
    /// Nothing is opened before the first round.
    pub fn new(who: &'static str, net: N, job: Job) -> Self {
        Threads { who, net, job, latency: None, failed: 0 }
    }

    fn work(&mut self, time: Duration) -> Result<Round, Failure> {
        let (net, job) = (&self.net, &self.job);
        let floor = Floor {
            phase: AtomicU8::new(STARTING),
            broken: AtomicBool::new(false),
            established: AtomicU64::new(0),
            done: (0..job.pairs()).map(|_| Padded(AtomicU64::new(0))).collect(),
            failed: AtomicU64::new(0),
            failures: Mutex::new(None),
            latency: Mutex::default(),
        };
        let listening = Barrier::new(job.pairs() + 1);
        let measured = std::thread::scope(|scope| {
            let (floor, listening) = (&floor, &listening);
            for pair in 0..job.pairs() {
                let serve = Serve { net, job, floor, pair };
                scope.spawn(move || {
                    let listener = net.listen(pair);
                    listening.wait();
                    let served = listener.and_then(|listener| serve.run(&listener));
                    served.unwrap_or_else(|error| floor.fail(format!("a server thread: {error}")));
                });
            }
            listening.wait();
            for pair in 0..job.pairs() {
                // One connection is timed whole; of many operations a sample is enough.
                let stopwatch = if job.conns == 1 { Stopwatch::timing_all() } else { Stopwatch::sampling() };
                let mut ask = Ask { net, job, floor, pair, stopwatch };
                scope.spawn(move || {
                    if let Err(error) = ask.run() {
                        floor.fail(format!("a client thread: {error}"));
                        let _ = net.connect(pair, 0); // its server may be waiting for it
                    }
                    floor.latency.lock().unwrap_or_else(PoisonError::into_inner).push(ask.stopwatch.take());
                });
            }
            let measured = self.measure(floor, time);
            floor.phase.store(ENDING, Ordering::Release);
            measured
        });
        if let Some(what) = floor.failures.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(Failure::Stuck(format!("{}: {what}", self.who)));
        }
        for one in floor.latency.into_inner().unwrap_or_else(PoisonError::into_inner) {
            match &mut self.latency {
                Some(all) => all.add(one).expect("histograms of one kind"),
                None => self.latency = Some(one),
            }
        }
        self.failed += floor.failed.into_inner();
        measured
    }

    /// Waits until everything is open, and then for `time`.
    fn measure(&self, floor: &Floor, time: Duration) -> Result<Round, Failure> {
        let began = Instant::now();
        while floor.established.load(Ordering::Acquire) < self.job.conns as u64 {
            if floor.broken.load(Ordering::Acquire) || began.elapsed() > STUCK_AFTER {
                floor.phase.store(ENDING, Ordering::Release);
                let open = floor.established.load(Ordering::Acquire);
                return Err(Failure::Stuck(format!("{}: only {open} connections came about", self.who)));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(SETTLE);
        let take = || (floor.done(), self.net.lane_cpu_s(), machine::process_cpu_s());
        floor.phase.store(MEASURING, Ordering::Release);
        let (began, (done, lane_cpu, cpu)) = (Instant::now(), take());
        std::thread::sleep(time);
        let (wall_s, (done_then, lane_cpu_then, cpu_then)) = (began.elapsed().as_secs_f64(), take());
        let unit = if self.job.unit == Unit::Stream { MEBIBYTE as f64 } else { 1.0 };
        let share = Share { ops: (done_then - done) as f64 / unit, wall_s, cpu_s: cpu_then - cpu, ..Share::default() };
        let lane_cpu_s = lane_cpu_then.zip(lane_cpu).map(|(then, before)| then - before);
        Ok(Round { shares: vec![share], packets: None, lane_cpu_s })
    }
}

impl<N: Net> Contender for Threads<N> {
    fn who(&self) -> &str {
        self.who
    }
    fn api(&self) -> &'static str {
        if self.job.is_blocking() { N::BLOCKING } else { N::POLLING }
    }
    fn device(&self) -> &'static str {
        N::DEVICE
    }
    fn checksums(&self) -> &'static str {
        self.net.checksums()
    }
    fn lanes(&self) -> usize {
        1
    }
    fn cores(&self) -> Option<usize> {
        Some(machine::cores_for(self.job.threads + N::LANES))
    }
    fn warm_up(&mut self) -> Result<(), Failure> {
        self.work(Duration::from_millis(200))?;
        (self.latency, self.failed) = (None, 0);
        Ok(())
    }
    fn round(&mut self, time: Duration) -> Result<Round, Failure> {
        self.work(time)
    }
    fn account(&mut self) -> Account {
        let way = if self.job.is_blocking() { "blocking calls" } else { "a poller each" };
        let tw_evicted = self.net.tw_evicted();
        let evicted = tw_evicted.map_or_else(|| "an unknown number of".to_owned(), |n| n.to_string());
        let remarks = format!(
            "{} application threads, half of them serve; {way}; {evicted} TIME_WAIT records evicted early{}",
            self.job.threads,
            self.net.remarks()
        );
        Account {
            latency: self.latency.take().filter(|all| !all.is_empty()),
            bytes_per_conn: None,
            tw_evicted,
            failed: self.failed,
            remarks,
        }
    }
}
