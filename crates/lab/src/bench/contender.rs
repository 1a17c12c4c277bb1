//! Owns what every contender is to the benchmark: something that warms up, does rounds, and then gives account.

use super::failure::Failure;
use hdrhistogram::Histogram;
use laneway_sync::met::Met;
use std::time::Duration;

/// Does the work, in rounds.
pub trait Contender {
    /// Its name in every table.
    fn who(&self) -> &str;
    /// The interface that its applications use.
    fn api(&self) -> &'static str;
    /// What its packets cross.
    fn device(&self) -> &'static str;
    /// Who computes its checksums.
    fn checksums(&self) -> &'static str;
    /// Lanes of each end, or what comes closest.
    fn lanes(&self) -> usize;
    /// Cores that it works on, if its shares do not tell.
    fn cores(&self) -> Option<usize> {
        None
    }
    /// Fills caches, tables and memory until a round is like the next one.
    fn warm_up(&mut self) -> Result<(), Failure>;
    /// Works for about `time`.
    fn round(&mut self, time: Duration) -> Result<Round, Failure>;
    /// Gives account of all rounds.
    fn account(&mut self) -> Account;
}

/// What one core did in a round.
#[derive(Clone, Copy, Debug, Default)]
pub struct Share {
    /// Operations that ended on it.
    pub ops: f64,
    /// Seconds by the clock on the wall.
    pub wall_s: f64,
    /// Seconds of processor time.
    pub cpu_s: f64,
    /// What its thread met at locks and shared words.
    pub met: Met,
    /// Polls of the server's lane that did something, and that found nothing, if they were counted.
    pub polls: (u64, u64),
}

impl Share {
    /// Adds what the same core did in another round.
    pub fn add(&mut self, other: &Share) {
        self.ops += other.ops;
        self.wall_s += other.wall_s;
        self.cpu_s += other.cpu_s;
        self.met.contended += other.met.contended;
        self.met.retries += other.met.retries;
        self.polls = (self.polls.0 + other.polls.0, self.polls.1 + other.polls.1);
    }
}

/// What a round came to: one share for each core that worked.
#[derive(Clone, Debug, Default)]
pub struct Round {
    /// By core.
    pub shares: Vec<Share>,
    /// Packets sent by both ends, if they were counted.
    pub packets: Option<u64>,
    /// Processor time of the lanes alone, in seconds, where applications have threads of their own.
    pub lane_cpu_s: Option<f64>,
}

impl Round {
    /// Operations.
    pub fn ops(&self) -> f64 {
        self.shares.iter().map(|share| share.ops).sum()
    }
    /// Operations per second.
    pub fn rate(&self) -> f64 {
        let wall = self.shares.iter().map(|share| share.wall_s).fold(0.0, f64::max);
        if wall > 0.0 { self.ops() / wall } else { 0.0 }
    }
    /// Processor time of one operation, in microseconds.
    pub fn cpu_us_per_op(&self) -> f64 {
        let cpu: f64 = self.shares.iter().map(|share| share.cpu_s).sum();
        if self.ops() > 0.0 { cpu * 1e6 / self.ops() } else { 0.0 }
    }
    /// What of it the lanes had, where that is known apart.
    pub fn lane_cpu_us_per_op(&self) -> Option<f64> {
        let cpu = self.lane_cpu_s?;
        Some(if self.ops() > 0.0 { cpu * 1e6 / self.ops() } else { 0.0 })
    }
}

/// What is known at the end.
#[derive(Clone, Debug)]
pub struct Account {
    /// How long timed operations took, in nanoseconds.
    pub latency: Option<Histogram<u64>>,
    /// Memory of one connection at one end.
    pub bytes_per_conn: Option<f64>,
    /// TIME_WAIT records that went before their time, from the very start.
    pub tw_evicted: Option<u64>,
    /// Operations that failed.
    pub failed: u64,
    /// One more line for a reader: addresses, TIME_WAIT records, reuses, …
    pub remarks: String,
}
