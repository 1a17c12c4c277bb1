//! Owns Laneway as a contender: crews, a thread and a core for each, and a clock that stands still while others work.

use super::contender::{Account, Contender, Round, Share};
use super::crew::{ADDRESSES, Crew, Shape, Work, build, counters, introduce};
use super::failure::Failure;
use super::machine;
use super::options::{Checksums, Cores, ReferencesName};
use super::outlet::Way;
use crate::s3_ports::Ports;
use hdrhistogram::Histogram;
use laneway_device::memory::LinkTx;
use laneway_proto::time::Instant;
use laneway_stack::control::Control;
use laneway_stack::counters::{Counters, Mib};
use laneway_stack::references::Tally;
use laneway_stack::sharing::Sharing;
use laneway_sync::met;
use std::ops::Range;
use std::sync::{Barrier, OnceLock};
use std::time::Duration;

/// The longest warm-up.
const WARM_UP_MAX: Duration = Duration::from_secs(6);
/// Without a single operation for this long, something is wrong.
const STUCK_AFTER: Duration = Duration::from_secs(10);
/// It is looked at this often whether everything is warm.
const WARM_UP_STEP: Duration = Duration::from_millis(250);

/// The time of one contender. It runs only during that contender's rounds, so that no timer fires and no record expires
/// merely because others had their turn.
#[derive(Clone, Copy)]
struct PausedClock {
    before_us: u64,
    resumed: std::time::Instant,
}

impl PausedClock {
    fn resume(before_us: u64) -> Self {
        PausedClock { before_us, resumed: std::time::Instant::now() }
    }
    #[inline]
    fn now(&self) -> Instant {
        Instant::from_us(self.before_us + self.resumed.elapsed().as_micros() as u64)
    }
}

/// Laneway, doing one kind of work in one shape.
pub struct Ours<W: Work, S: Sharing, C: Sharing = S, T: Way = LinkTx> {
    who: &'static str,
    shape: Shape,
    crews: Vec<Crew<W, S, C, T>>,
    /// Where the first crew works; the others on the cores behind it.
    first_core: usize,
    /// By crew. Those of one link have the same time.
    elapsed_us: Vec<u64>,
    /// Operations of the warm-up: until then memory is new and tuples are unused.
    warm_ops: u64,
    measured_from: Counters,
    peak_time_waits: usize,
    peak_queued: usize,
    /// It is compared with one whose applications have threads of their own.
    tells_lanes: bool,
}

impl<W: Work, S: Sharing, C: Sharing, T: Way> Ours<W, S, C, T> {
    /// Built, but cold. `opens`: each operation is a connection.
    pub fn new(who: &'static str, work: &W, shape: &Shape, opens: bool) -> Result<Self, Failure> {
        let elapsed_us = 3_600_000_000;
        let crews = build(work, shape, Instant::from_us(elapsed_us))?;
        let elapsed_us = vec![elapsed_us; crews.len()];
        let warm_ops = if opens { shape.tuples() as u64 } else { 0 };
        Ok(Ours {
            who,
            shape: shape.clone(),
            crews,
            first_core: 0,
            elapsed_us,
            warm_ops,
            measured_from: Counters::default(),
            peak_time_waits: 0,
            peak_queued: 0,
            tells_lanes: false,
        })
    }

    /// What packets did to routes, and how many packets there were.
    pub fn tally(&mut self) -> (Tally, u64) {
        let mut sum = Tally::default();
        self.crews.iter().for_each(|crew| sum.merge(&crew.tally()));
        (sum, counters(&mut self.crews).get(Mib::IpOutRequests))
    }

    /// The control planes, for a thread of their own. Not before the warm-up, which needs them.
    pub fn take_controls(&mut self) -> Vec<Control> {
        self.crews.iter_mut().flat_map(Crew::take_controls).collect()
    }

    /// Its lanes' processor time is told apart, for one whose applications have threads of their own.
    pub fn beside_threads(mut self) -> Self {
        self.tells_lanes = true;
        self
    }

    /// It works from this core on, and not from the first.
    pub fn on_cores_from(mut self, core: usize) -> Self {
        self.first_core = core;
        self
    }

    /// A round of one core of [pairs](Cores::Pairs) alone, while the other rests.
    pub fn round_alone(&mut self, core: usize, time: Duration) -> Result<Round, Failure> {
        assert_eq!(self.shape.cores, Cores::Pairs, "the others could not rest");
        self.round_of(time, core..core + 1)
    }

    fn round_of(&mut self, time: Duration, which: Range<usize>) -> Result<Round, Failure> {
        let began = std::time::Instant::now();
        loop {
            let round = self.work(time, which.clone());
            // A machine that is busy with other things may leave us too little for even one operation.
            if round.ops() > 0.0 {
                return Ok(round);
            }
            if began.elapsed() > STUCK_AFTER {
                return Err(Failure::stuck(&counters(&mut self.crews)));
            }
        }
    }

    fn established(&mut self) -> u64 {
        self.crews.iter_mut().flat_map(Crew::loads).map(|load| load.established).sum()
    }

    fn ops(&mut self) -> u64 {
        self.crews.iter_mut().map(Crew::ops).sum()
    }

    /// These crews work for `time`, each on its core. Time stands still for the others, so they must have links of their own.
    fn work(&mut self, time: Duration, which: Range<usize>) -> Round {
        let packets = counters(&mut self.crews).get(Mib::IpOutRequests);
        // The time begins when every thread is there: on a busy machine that may take a while.
        let (start, begun) = (Barrier::new(which.len()), OnceLock::new());
        let ended = std::thread::scope(|scope| {
            let crews = self.crews.iter_mut().zip(&self.elapsed_us).enumerate();
            let threads: Vec<_> = crews
                .skip(which.start)
                .take(which.len())
                .map(|(core, (crew, before_us))| {
                    let (start, begun, before_us) = (&start, &begun, *before_us);
                    let core = self.first_core + core;
                    scope.spawn(move || {
                        machine::pin(core);
                        start.wait();
                        let clock = PausedClock { before_us, resumed: *begun.get_or_init(std::time::Instant::now) };
                        let share =
                            crew_round(crew, clock, Instant::from_us(before_us).after_us(time.as_micros() as u64));
                        (share, clock.now().as_us())
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("a crew does not panic")).collect::<Vec<_>>()
        });
        let (shares, mut ended): (Vec<Share>, Vec<u64>) = ended.into_iter().unzip();
        if self.shape.cores != Cores::Pairs {
            let last = ended.iter().copied().max().unwrap_or_default();
            ended.fill(last);
        }
        self.elapsed_us[which].copy_from_slice(&ended);
        // The application lives on the lanes: they have all of it.
        let lane_cpu_s = self.tells_lanes.then(|| shares.iter().map(|share| share.cpu_s).sum());
        let (live, queued) =
            self.crews.iter_mut().map(Crew::time_waits).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        self.peak_time_waits = self.peak_time_waits.max(live);
        self.peak_queued = self.peak_queued.max(queued);
        let packets = counters(&mut self.crews).get(Mib::IpOutRequests) - packets;
        Round { shares, packets: Some(packets), lane_cpu_s }
    }
}

fn crew_round<W: Work, S: Sharing, C: Sharing, T: Way>(
    crew: &mut Crew<W, S, C, T>,
    clock: PausedClock,
    until: Instant,
) -> Share {
    crew.loads().for_each(|load| load.stopwatch.go_on());
    let (met, polls) = (met::here(), crew.server_polls());
    let (ops, began, cpu) = (crew.ops(), std::time::Instant::now(), machine::thread_cpu_s());
    loop {
        let now = clock.now();
        if now >= until {
            break;
        }
        crew.turn(now);
    }
    let share = Share {
        ops: (crew.ops() - ops) as f64,
        wall_s: began.elapsed().as_secs_f64(),
        cpu_s: machine::thread_cpu_s() - cpu,
        met: met::here().since(&met),
        polls: {
            let (busy, idle) = crew.server_polls();
            (busy - polls.0, idle - polls.1)
        },
    };
    crew.loads().for_each(|load| load.stopwatch.hold());
    share
}

impl<W: Work, S: Sharing, C: Sharing, T: Way> Contender for Ours<W, S, C, T> {
    fn who(&self) -> &str {
        self.who
    }
    fn api(&self) -> &'static str {
        "on-lane"
    }
    fn device(&self) -> &'static str {
        "memory"
    }
    fn checksums(&self) -> &'static str {
        match self.shape.checksums {
            Checksums::Software => "software",
            Checksums::Offload => "offload",
        }
    }
    fn lanes(&self) -> usize {
        match self.shape.cores {
            Cores::Same | Cores::Split => 1,
            Cores::Pairs | Cores::Hashed => 2,
        }
    }

    fn warm_up(&mut self) -> Result<(), Failure> {
        let clock = PausedClock::resume(self.elapsed_us[0]);
        introduce(&mut self.crews, |crews| {
            let now = clock.now();
            crews.iter_mut().for_each(|crew| crew.turn(now));
        })?;
        self.elapsed_us.fill(clock.now().as_us());
        self.crews.iter_mut().flat_map(Crew::loads).for_each(|load| load.stopwatch.hold());
        let began = std::time::Instant::now();
        loop {
            self.work(WARM_UP_STEP, 0..self.crews.len());
            let open = self.established() >= self.shape.conns as u64;
            if open && (self.ops() >= self.warm_ops || began.elapsed() >= WARM_UP_MAX) {
                break;
            }
            if began.elapsed() > 10 * WARM_UP_MAX {
                return Err(Failure::stuck(&counters(&mut self.crews)));
            }
        }
        self.measured_from = counters(&mut self.crews);
        for load in self.crews.iter_mut().flat_map(Crew::loads) {
            load.stopwatch.take();
            load.failed = 0;
        }
        Ok(())
    }

    fn round(&mut self, time: Duration) -> Result<Round, Failure> {
        self.round_of(time, 0..self.crews.len())
    }

    fn account(&mut self) -> Account {
        let all = counters(&mut self.crews);
        let grown = |mib| all.get(mib) - self.measured_from.get(mib);
        let evicted = all.get(Mib::TcpExtTCPTimeWaitOverflow);
        let mut remarks = format!(
            "{ADDRESSES} source addresses, {} 4-tuples; TIME_WAIT: peak {} records ({} queued), {} reused (RFC 6191), {} expired, {} evicted early; {} retransmitted, {} cookies, {} device-full",
            self.shape.tuples(),
            self.peak_time_waits,
            self.peak_queued,
            grown(Mib::TcpExtTWRecycled),
            grown(Mib::TcpExtTWKilled),
            evicted,
            grown(Mib::TcpRetransSegs),
            all.get(Mib::TcpExtSyncookiesSent),
            grown(Mib::TxBusy),
        );
        if self.shape.choice != Ports::Lane {
            remarks += &format!("; local ports chosen by {}", self.shape.choice);
        }
        if self.shape.references != ReferencesName::Lane {
            remarks += &format!("; references to routes: {:?}", self.shape.references);
        }
        if self.shape.attack > 0 {
            let fate = if self.shape.attack_arrives { "arrive" } else { "are made, and none arrives" };
            remarks += &format!("; {} attack packets a request {fate}", self.shape.attack);
        }
        if self.shape.counters {
            remarks += &format!("; {:?}", all.iter().collect::<Vec<_>>());
        }
        let ends = 2.0 * self.shape.conns as f64;
        let bytes: usize = self.crews.iter_mut().map(Crew::connection_bytes).sum();
        let mut latency: Option<Histogram<u64>> = None;
        let mut failed = 0;
        for load in self.crews.iter_mut().flat_map(Crew::loads) {
            failed += load.failed;
            let one = load.stopwatch.take();
            match &mut latency {
                Some(all) => all.add(one).expect("histograms of one kind"),
                None => latency = Some(one),
            }
        }
        Account {
            latency: latency.filter(|all| !all.is_empty()),
            bytes_per_conn: Some(bytes as f64 / ends),
            tw_evicted: Some(evicted),
            failed,
            remarks,
        }
    }
}
