//! Owns the run that counts instructions: a fixed number of operations, virtual time, fixed secrets, no clock read.
//!
//! Run it under `valgrind --tool=callgrind --toggle-collect='*counted_operations*'`; `callgrind.sh` beside this crate does.

use super::crew::{ADDRESSES, Crew, Shape, Work, build, introduce};
use super::failure::Failure;
use super::outlet::Way;
use laneway_proto::time::Instant;
use laneway_stack::counters::{Counters, Mib};
use laneway_stack::sharing::Sharing;

/// Turns without an operation after which something must be wrong.
const TURNS_MAX: u64 = 4_000_000;

/// What was done between warm-up and end.
pub struct Counted {
    /// Operations.
    pub ops: u64,
    /// Counters of both ends before and after.
    pub before: Counters,
    /// See `before`.
    pub after: Counters,
}

impl Counted {
    /// By how much a counter has grown.
    pub fn grown(&self, mib: Mib) -> u64 {
        self.after.get(mib) - self.before.get(mib)
    }
}

/// Does `ops` operations after a warm-up. The time advances by `turn_us` with each turn.
pub fn count<W: Work, S: Sharing, T: Way>(
    work: &W,
    shape: &Shape,
    ops: u64,
    warm_up: u64,
    turn_us: u64,
) -> Result<Counted, Failure> {
    let mut now = Instant::from_us(3_600_000_000);
    let mut crews: Vec<Crew<W, S, S, T>> = build(work, shape, now)?;
    introduce(&mut crews, |crews| step(&mut crews[0], &mut now, turn_us))?;
    let crew = &mut crews[0];
    operations(crew, &mut now, warm_up, turn_us)?;
    let (done, before) = (crew.ops(), crew.counters());
    counted_operations(crew, &mut now, ops, turn_us)?;
    Ok(Counted { ops: crew.ops() - done, before, after: crew.counters() })
}

/// Does the same, and prints how many were counted.
pub fn run<W: Work, S: Sharing, T: Way>(
    work: &W,
    shape: &Shape,
    ops: u64,
    warm_up: u64,
    turn_us: u64,
) -> Result<(), Failure> {
    let counted = count::<W, S, T>(work, shape, ops, warm_up, turn_us)?;
    println!("ops {}", counted.ops);
    println!("packets {}", counted.grown(Mib::IpOutRequests));
    println!("retransmitted {}", counted.grown(Mib::TcpRetransSegs));
    println!("reused {}", counted.grown(Mib::TcpExtTWRecycled));
    println!("evicted {}", counted.grown(Mib::TcpExtTCPTimeWaitOverflow));
    println!("polls {} busy, {} idle", counted.grown(Mib::PollsBusy), counted.grown(Mib::PollsIdle));
    if shape.counters {
        println!("counters {:?}", counted.after.iter().collect::<Vec<_>>());
    }
    println!("addresses {ADDRESSES}, 4-tuples {}", shape.tuples());
    Ok(())
}

#[inline]
fn step<W: Work, S: Sharing, T: Way>(crew: &mut Crew<W, S, S, T>, now: &mut Instant, turn_us: u64) {
    *now = now.after_us(turn_us);
    crew.turn(*now);
}

/// The name that callgrind is told to look for.
#[inline(never)]
fn counted_operations<W: Work, S: Sharing, T: Way>(
    crew: &mut Crew<W, S, S, T>,
    now: &mut Instant,
    ops: u64,
    turn_us: u64,
) -> Result<(), Failure> {
    operations(crew, now, ops, turn_us)
}

fn operations<W: Work, S: Sharing, T: Way>(
    crew: &mut Crew<W, S, S, T>,
    now: &mut Instant,
    ops: u64,
    turn_us: u64,
) -> Result<(), Failure> {
    let goal = crew.ops() + ops;
    let mut turns = 0;
    while crew.ops() < goal {
        step(crew, now, turn_us);
        turns += 1;
        if turns > TURNS_MAX + 1_000 * ops {
            return Err(Failure::stuck(&crew.counters()));
        }
    }
    Ok(())
}
