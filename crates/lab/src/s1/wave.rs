//! Owns the wave: many TIME_WAIT records whose time is over at once, while connections are made. Time is virtual, so that the
//! wave is the same for every variant; what a turn costs is measured with a clock.

use crate::bench::crew::{Crew, Shape, build, introduce};
use crate::bench::crr::Crr;
use crate::bench::failure::Failure;
use laneway_proto::time::Instant;
use laneway_stack::counters::Mib;
use laneway_stack::sharing::{LaneOwned, Sharing};

/// Virtual microseconds of a turn.
const TURN_US: u64 = 4;
/// Turns without progress after which something is wrong.
const TURNS_MAX: u64 = 4_000_000;
/// Turns that are measured beyond those that the wave needs at 64 records each.
const TURNS_MORE: u64 = 2_000;

/// What was seen.
pub struct Wave {
    /// The most records that one poll reaped.
    pub reaped_max: u64,
    /// All of them.
    pub reaped: u64,
    /// Nanoseconds of each turn of both ends, sorted.
    turns_ns: Vec<u64>,
}

impl Wave {
    /// The turn at a place between the shortest (0) and the longest (1), in microseconds.
    pub fn poll_us(&self, quantile: f64) -> f64 {
        let last = self.turns_ns.len().saturating_sub(1);
        self.turns_ns.get((last as f64 * quantile).ceil() as usize).map_or(0.0, |ns| *ns as f64 / 1e3)
    }
}

/// Makes `records`, lets all of them expire at once, and looks at the turns that `wave` records would need.
pub fn run<S: Sharing>(shape: &Shape, records: u64, wave: u64) -> Result<Wave, Failure> {
    let mut now = Instant::from_us(3_600_000_000);
    let mut crews: Vec<Crew<Crr, S, LaneOwned>> = build(&Crr, shape, now)?;
    introduce(&mut crews, |crews| step(&mut crews[0], &mut now))?;
    let crew = &mut crews[0];
    let mut turns = 0;
    while (crew.time_waits().0 as u64) < records || crew.ops() < 1_000 {
        for _ in 0..64 {
            step(crew, &mut now);
        }
        turns += 64;
        if turns > TURNS_MAX {
            return Err(Failure::stuck(&crew.counters()));
        }
    }
    // Nothing is under way while the clock jumps, so nothing is sent twice for it.
    let target: Vec<usize> = crew.loads().map(|load| std::mem::take(&mut load.target)).collect();
    while crew.loads().any(|load| load.running > 0) {
        step(crew, &mut now);
    }
    (0..64).for_each(|_| step(crew, &mut now));
    if records > 0 {
        now = now.after_us(2 * shape.msl_us);
    }
    for (load, target) in crew.loads().zip(target) {
        load.target = target;
    }
    let mut seen = Wave { reaped_max: 0, reaped: 0, turns_ns: Vec::new() };
    let mut before = crew.counters().get(Mib::TcpExtTWKilled);
    for _ in 0..wave.div_ceil(64) + TURNS_MORE {
        let began = std::time::Instant::now();
        step(crew, &mut now);
        seen.turns_ns.push(began.elapsed().as_nanos() as u64);
        let killed = crew.counters().get(Mib::TcpExtTWKilled);
        seen.reaped_max = seen.reaped_max.max(killed - before);
        seen.reaped += killed - before;
        before = killed;
    }
    seen.turns_ns.sort_unstable();
    Ok(seen)
}

fn step<S: Sharing>(crew: &mut Crew<Crr, S, LaneOwned>, now: &mut Instant) {
    *now = now.after_us(TURN_US);
    crew.turn(*now);
}
