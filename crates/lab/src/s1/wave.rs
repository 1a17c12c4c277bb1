//! Owns the wave: many TIME_WAIT records whose time is over at once, while connections are made. Time is virtual, so that the
//! wave is the same for every variant; what a turn and a connection cost is the processor's time, of which other programs take
//! nothing away.

use crate::bench::crew::{Crew, Shape, build, introduce};
use crate::bench::crr::Crr;
use crate::bench::failure::Failure;
use crate::bench::latency::Stopwatch;
use crate::bench::machine;
use hdrhistogram::Histogram;
use laneway_proto::time::Instant;
use laneway_stack::counters::Mib;
use laneway_stack::sharing::{LaneOwned, Sharing};

/// Virtual microseconds of a turn.
const TURN_US: u64 = 4;
/// Turns without progress after which something is wrong.
const TURNS_MAX: u64 = 4_000_000;
/// Turns that are measured beyond those that the wave needs at 64 records each.
const TURNS_MORE: u64 = 64;
/// Turns in which whatever is left must go.
const TURNS_REST: u64 = 100_000;
/// Connections before anything is measured.
const WARM_OPS: u64 = 20_000;

/// What was seen.
pub struct Wave {
    /// The most records that one poll reaped.
    pub reaped_max: u64,
    /// All of them.
    pub reaped: u64,
    /// The time that all but one connection of a thousand took at the most, while the records were there and none was due.
    pub conn_us_p999_before: f64,
    /// Nanoseconds of each turn of both ends, sorted.
    turns_ns: Vec<u64>,
    /// Nanoseconds of each connection, from `connect` to its end at the client.
    conns_ns: Histogram<u64>,
}

impl Wave {
    /// The turn at a place between the shortest (0) and the longest (1), in microseconds.
    pub fn poll_us(&self, quantile: f64) -> f64 {
        let last = self.turns_ns.len().saturating_sub(1);
        self.turns_ns.get((last as f64 * quantile).ceil() as usize).map_or(0.0, |ns| *ns as f64 / 1e3)
    }

    /// The connection at such a place.
    pub fn conn_us(&self, quantile: f64) -> f64 {
        us(&self.conns_ns, quantile)
    }
}

fn us(times: &Histogram<u64>, quantile: f64) -> f64 {
    if times.is_empty() { 0.0 } else { times.value_at_quantile(quantile) as f64 / 1e3 }
}

/// Makes `records`, lets all of them expire at once, and looks at the turns that `wave` records would need.
pub fn run<S: Sharing>(shape: &Shape, records: u64, wave: u64) -> Result<Wave, Failure> {
    let mut now = Instant::from_us(3_600_000_000);
    let mut crews: Vec<Crew<Crr, S, LaneOwned>> = build(&Crr, shape, now)?;
    introduce(&mut crews, |crews| step(&mut crews[0], &mut now))?;
    let crew = &mut crews[0];
    let mut turns = 0;
    while (crew.time_waits().0 as u64) < records || crew.ops() < WARM_OPS.min(wave) {
        for _ in 0..64 {
            step(crew, &mut now);
        }
        turns += 64;
        if turns > TURNS_MAX {
            return Err(Failure::stuck(&crew.counters()));
        }
    }
    let measured = wave.div_ceil(64) + TURNS_MORE;
    let mut seen = Wave {
        reaped_max: 0,
        reaped: 0,
        conn_us_p999_before: 0.0,
        turns_ns: Vec::new(),
        conns_ns: Stopwatch::of_processor().take(),
    };
    // The same turns twice, and between them the clock jumps; the first time is only for comparison.
    let (_, before) = turn(crew, &mut now, measured, &mut seen);
    seen.conn_us_p999_before = us(&before, 0.999);
    (seen.reaped_max, seen.reaped, seen.turns_ns) = (0, 0, Vec::new());
    // Nothing is under way while the clock jumps, so nothing is sent twice for it.
    let target: Vec<usize> = crew.loads().map(|load| std::mem::take(&mut load.target)).collect();
    while crew.loads().any(|load| load.running > 0) {
        step(crew, &mut now);
    }
    (0..64).for_each(|_| step(crew, &mut now));
    let due = if records > 0 { crew.time_waits().0 as u64 } else { 0 };
    if records > 0 {
        now = now.after_us(2 * shape.msl_us);
    }
    for (load, target) in crew.loads().zip(target) {
        load.target = target;
    }
    // A SYN whose flow one of them has takes it over before its turn has come: chance, and a few of them at the most.
    let recycled = |crew: &mut Crew<Crr, S, LaneOwned>| crew.counters().get(Mib::TcpExtTWRecycled);
    let before = recycled(crew);
    let (turns_ns, conns_ns) = turn(crew, &mut now, measured, &mut seen);
    (seen.turns_ns, seen.conns_ns) = (turns_ns, conns_ns);
    let mut rest = 0;
    while seen.reaped + (recycled(crew) - before) < due {
        if rest > TURNS_REST {
            return Err(Failure::stuck(&crew.counters()));
        }
        turn(crew, &mut now, 64, &mut seen);
        rest += 64;
    }
    Ok(seen)
}

/// So many turns, with every connection timed that begins and ends in them: nanoseconds of the turns, sorted, and of the
/// connections. What is reaped is added to what was seen.
fn turn<S: Sharing>(
    crew: &mut Crew<Crr, S, LaneOwned>,
    now: &mut Instant,
    turns: u64,
    seen: &mut Wave,
) -> (Vec<u64>, Histogram<u64>) {
    crew.loads().for_each(|load| load.stopwatch = Stopwatch::of_processor());
    let mut turns_ns = Vec::with_capacity(turns as usize);
    let mut before = crew.counters().get(Mib::TcpExtTWKilled);
    for _ in 0..turns {
        let began = machine::thread_cpu_ns();
        step(crew, now);
        turns_ns.push(machine::thread_cpu_ns() - began);
        let killed = crew.counters().get(Mib::TcpExtTWKilled);
        seen.reaped_max = seen.reaped_max.max(killed - before);
        seen.reaped += killed - before;
        before = killed;
    }
    turns_ns.sort_unstable();
    let mut conns_ns = Stopwatch::of_processor().take();
    for load in crew.loads() {
        conns_ns.add(load.stopwatch.take()).expect("histograms of one kind");
        load.stopwatch = Stopwatch::off();
    }
    (turns_ns, conns_ns)
}

fn step<S: Sharing>(crew: &mut Crew<Crr, S, LaneOwned>, now: &mut Instant) {
    *now = now.after_us(TURN_US);
    crew.turn(*now);
}
