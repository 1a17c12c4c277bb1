//! Owns the benchmarks: which contenders do which work, in which order, and what is said about it.

pub(crate) mod contender;
pub(crate) mod crew;
pub(crate) mod crr;
pub(crate) mod deterministic;
pub(crate) mod failure;
mod idle;
pub mod latency;
pub(crate) mod machine;
pub mod options;
pub(crate) mod ours;
pub(crate) mod outlet;
mod peer_linux;
mod peer_smoltcp;
pub(crate) mod report;
pub(crate) mod rr;
mod siege;
mod stream;
mod threads;

use crate::output;
use contender::{Contender, Round};
use crew::{Shape, Work};
use failure::Failure;
use indicatif::{ProgressBar, ProgressStyle};
use laneway_device::memory::LinkTx;
use laneway_stack::sharing::{Accept, Decomposed, Epoch, Global, LaneOwned, Plain, TimeWaitApart};
use options::{Api, Bench, Checksums, Cores, Peer, ReferencesName as Name, SharingName, Unit};
use ours::Ours;
use outlet::AnyWay;
use peer_linux::Linux;
use peer_smoltcp::Smoltcp;
use report::Report;
use siege::Answers;

/// Linux's default range of ephemeral ports, and ours.
const PORTS: (u16, u16) = (32_768, 60_999);
/// Ports per address where operations are counted: few, so that every tuple comes round soon.
const PORTS_COUNTED: u16 = 1_024;
/// Buffers of a stream, the same for everybody whose buffers we can choose.
const STREAM_BUFFER: u32 = 65_536;
/// Those of threads' sockets: what a conversation's ring holds. The kernel's are what the kernel makes them, a few mebibytes.
const THREAD_BUFFER: u32 = laneway_stack::threads::RING;

fn shape(bench: &Bench, conns: usize) -> Result<Shape, Failure> {
    let count = bench.ports_per_address.or(bench.ops.map(|_| PORTS_COUNTED));
    // The kernel's loopback leaves super-packets whole; whoever leaves checksums out may do that too.
    let segmentation = bench.api == Api::Thread && bench.unit == Unit::Stream && bench.checksums == Checksums::Offload;
    let ports = count.map_or(PORTS, |count| (5_000, 5_000 + (count - 1)));
    Ok(Shape {
        conns,
        cores: bench.cores()?,
        checksums: bench.checksums,
        mtu: bench.mtu,
        msl_us: bench.msl,
        ports,
        choice: bench.ports,
        ring_bytes: bench.ring(conns).max(if segmentation { 1 << 21 } else { 0 }),
        counters: bench.counters,
        buffer: buffer(bench),
        ipv6: bench.ipv6,
        presized: bench.unit == Unit::Crr && bench.ops.is_none(),
        is_virtual: bench.ops.is_some(),
        segmentation,
        references: bench.references,
        // Of what is counted it is a part; of what is timed, a contender.
        attack: if bench.ops.is_some() { bench.attack.unwrap_or(0) } else { 0 },
        attack_arrives: true,
    })
}

fn buffer(bench: &Bench) -> Option<u32> {
    let usual = if bench.api == Api::Thread { THREAD_BUFFER } else { STREAM_BUFFER };
    bench.buffer.or((bench.unit == Unit::Stream).then_some(usual))
}

/// Runs what was asked for, and prints it.
pub fn run(bench: &Bench) -> Result<(), Failure> {
    bench.check()?;
    bench.idle_words().into_iter().for_each(|words| output::remark(format_args!("{words}")));
    if bench.ops.is_some() {
        return count(bench);
    }
    let unit = match bench.unit {
        Unit::Crr => "connections (connect, 92-byte request, 206-byte response, close)",
        Unit::Rr => "requests with response",
        Unit::Stream => "MiB",
        Unit::Idle => "idle connections",
    };
    let mut report = Report::new(unit);
    for &conns in &bench.conns {
        if bench.unit == Unit::Idle {
            idle::run(&shape(bench, conns)?, &mut report)?;
        } else {
            compare(bench, conns, &mut report)?;
        }
    }
    if bench.json {
        output::show(format_args!("{}\n", report.json()))
    } else {
        output::show(format_args!("{}", report.table()))
    }
}

/// A fixed number of operations.
fn count(bench: &Bench) -> Result<(), Failure> {
    let ops = bench.ops.unwrap_or(1);
    let shape = shape(bench, bench.conns[0])?;
    match bench.unit {
        Unit::Crr => {
            // Every tuple once: from then on most connections take one over.
            let warm_up = bench.warm_up.unwrap_or(shape.tuples() as u64 + 4 * shape.conns as u64);
            counted_crr(bench, &shape, ops, warm_up)
        }
        Unit::Rr => {
            counted(bench, &rr::Rr::new(bench.message), &shape, ops, bench.warm_up.unwrap_or(20 * shape.conns as u64))
        }
        Unit::Stream | Unit::Idle => Err(Failure::Misuse("--ops counts crr and rr only".into())),
    }
}

/// All variants make connections; the first and the last do everything else too.
fn counted_crr(bench: &Bench, shape: &Shape, ops: u64, warm_up: u64) -> Result<(), Failure> {
    let us = bench.turn_us;
    match bench.sharing {
        SharingName::Lane | SharingName::Global => counted(bench, &crr::Crr, shape, ops, warm_up),
        SharingName::Accept => deterministic::run::<_, Accept<Plain>, LinkTx>(&crr::Crr, shape, ops, warm_up, us),
        SharingName::TimeWait => {
            deterministic::run::<_, TimeWaitApart<Plain>, LinkTx>(&crr::Crr, shape, ops, warm_up, us)
        }
        SharingName::Decomposed => {
            deterministic::run::<_, Decomposed<Plain>, LinkTx>(&crr::Crr, shape, ops, warm_up, us)
        }
        SharingName::Epoch => deterministic::run::<_, Epoch<Plain>, LinkTx>(&crr::Crr, shape, ops, warm_up, us),
    }
}

fn counted<W: Work>(bench: &Bench, work: &W, shape: &Shape, ops: u64, warm_up: u64) -> Result<(), Failure> {
    if bench.sharing == SharingName::Global {
        deterministic::run::<W, Global<Plain>, LinkTx>(work, shape, ops, warm_up, bench.turn_us)
    } else if bench.attack.is_some() {
        deterministic::run::<W, LaneOwned, Answers>(work, shape, ops, warm_up, bench.turn_us)
    } else {
        deterministic::run::<W, LaneOwned, LinkTx>(work, shape, ops, warm_up, bench.turn_us)
    }
}

/// Ours twice, and whom else the caller named.
fn contenders(bench: &Bench, conns: usize) -> Result<Vec<Box<dyn Contender>>, Failure> {
    let shape = shape(bench, conns)?;
    if bench.api == Api::Thread {
        return threaded(bench, conns, &shape);
    }
    let mut all: Vec<Box<dyn Contender>> = Vec::new();
    for who in ["laneway", "laneway-aa"] {
        all.push(match bench.unit {
            Unit::Crr if bench.references != Name::Lane => {
                Box::new(Ours::<_, LaneOwned, LaneOwned, AnyWay>::new(who, &crr::Crr, &shape, true)?)
            }
            Unit::Crr => ours_crr(bench, who, &shape)?,
            Unit::Rr if bench.references != Name::Lane => {
                Box::new(Ours::<_, LaneOwned, LaneOwned, AnyWay>::new(who, &rr::Rr::new(bench.message), &shape, false)?)
            }
            Unit::Rr => ours(bench, who, &rr::Rr::new(bench.message), &shape)?,
            Unit::Stream | Unit::Idle => ours(bench, who, &stream::Stream, &shape)?,
        });
    }
    if let Some(attack) = bench.attack {
        for (who, attack_arrives) in [("blackholed", false), ("attacked", true)] {
            let shape = Shape { attack, attack_arrives, ..shape.clone() };
            all.push(match bench.unit {
                Unit::Crr => Box::new(Ours::<_, LaneOwned, LaneOwned, Answers>::new(who, &crr::Crr, &shape, true)?),
                _ => {
                    let work = rr::Rr::new(bench.message);
                    Box::new(Ours::<_, LaneOwned, LaneOwned, Answers>::new(who, &work, &shape, false)?)
                }
            });
        }
    }
    for peer in &bench.peer {
        match peer {
            Peer::Smoltcp => all.push(Box::new(Smoltcp::new(
                bench.unit,
                conns,
                bench.checksums,
                bench.mtu,
                bench.message,
                buffer(bench),
            ))),
            Peer::Linux => {
                if linux_has_room(conns) {
                    all.push(Box::new(Linux::new(bench.unit, conns, bench.message)));
                }
            }
        }
    }
    Ok(all)
}

/// All variants make connections; the first and the last do everything else too.
fn ours_crr(bench: &Bench, who: &'static str, shape: &Shape) -> Result<Box<dyn Contender>, Failure> {
    Ok(match bench.sharing {
        SharingName::Lane | SharingName::Global => return ours(bench, who, &crr::Crr, shape),
        SharingName::Accept => Box::new(Ours::<_, Accept<Plain>>::new(who, &crr::Crr, shape, true)?),
        SharingName::TimeWait => Box::new(Ours::<_, TimeWaitApart<Plain>>::new(who, &crr::Crr, shape, true)?),
        SharingName::Decomposed => Box::new(Ours::<_, Decomposed<Plain>>::new(who, &crr::Crr, shape, true)?),
        SharingName::Epoch => Box::new(Ours::<_, Epoch<Plain>>::new(who, &crr::Crr, shape, true)?),
    })
}

/// Application threads with our sockets, twice; the same work on the lanes; and application threads with the kernel's sockets.
fn threaded(bench: &Bench, conns: usize, shape: &Shape) -> Result<Vec<Box<dyn Contender>>, Failure> {
    let job = threads::Job::new(bench.unit, conns, bench.threads(conns), bench.message);
    let mut all: Vec<Box<dyn Contender>> = Vec::new();
    for who in ["laneway", "laneway-aa"] {
        all.push(Box::new(threads::Threads::new(who, threads::Laneway::new(shape)?, job.clone())));
    }
    all.push(on_lane(bench, "on-lane", shape)?);
    if machine::cores() > 1 {
        // A lane at each end, as the sockets have: what of the difference is that frames cross cores, and that both are busy.
        all.push(on_lane(bench, "on-lane-split", &Shape { cores: Cores::Split, ..shape.clone() })?);
    }
    if bench.peer.contains(&Peer::Linux) && linux_has_room(conns) {
        all.push(Box::new(threads::Threads::new("linux", threads::Kernel::new(), job)));
    }
    Ok(all)
}

/// The work of application threads, done on the lanes.
fn on_lane(bench: &Bench, who: &'static str, shape: &Shape) -> Result<Box<dyn Contender>, Failure> {
    fn of<W: Work>(who: &'static str, work: &W, shape: &Shape, opens: bool) -> Result<Box<dyn Contender>, Failure> {
        Ok(Box::new(Ours::<W, LaneOwned>::new(who, work, shape, opens)?.beside_threads()))
    }
    match bench.unit {
        Unit::Crr => of(who, &crr::Crr, shape, true),
        Unit::Rr => of(who, &rr::Rr::new(bench.message), shape, false),
        Unit::Stream | Unit::Idle => of(who, &stream::Stream, shape, false),
    }
}

/// Says so if the kernel's descriptors do not suffice.
fn linux_has_room(conns: usize) -> bool {
    let most = Linux::conns_max();
    if conns > most {
        output::remark(format_args!(
            "linux is left out at {conns} connections: this process may open {most} with both ends ('ulimit -Hn')"
        ));
    }
    conns <= most
}

fn ours<W: Work>(bench: &Bench, who: &'static str, work: &W, shape: &Shape) -> Result<Box<dyn Contender>, Failure> {
    let opens = bench.unit == Unit::Crr;
    Ok(if bench.sharing == SharingName::Global {
        Box::new(Ours::<W, Global<Plain>>::new(who, work, shape, opens)?)
    } else {
        Box::new(Ours::<W, LaneOwned>::new(who, work, shape, opens)?)
    })
}

/// All contenders at one number of connections, round by round in turn.
fn compare(bench: &Bench, conns: usize, report: &mut Report) -> Result<(), Failure> {
    let mut all = contenders(bench, conns)?;
    let (time, rounds_each) = bench.course();
    let progress = progress(all.len() * (rounds_each + 1));
    for contender in &mut all {
        progress.set_message(format!("{conns} connections: {} warms up", contender.who()));
        contender.warm_up()?;
        progress.inc(1);
    }
    let mut rounds: Vec<Vec<Round>> = all.iter().map(|_| Vec::new()).collect();
    for number in 1..=rounds_each {
        for (contender, rounds) in all.iter_mut().zip(&mut rounds) {
            progress.set_message(format!("{conns} connections: round {number} of {rounds_each}, {}", contender.who()));
            rounds.push(contender.round(time)?);
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    let payload = match bench.unit {
        Unit::Crr => crr::REQUEST.len() + crr::RESPONSE.len(),
        Unit::Rr => rr::Rr::new(bench.message).bytes(),
        Unit::Stream | Unit::Idle => stream::MEBIBYTE as usize,
    };
    for (contender, rounds) in all.iter_mut().zip(&rounds) {
        let account = contender.account();
        report.add(contender.as_ref(), conns, payload, rounds, &account);
    }
    Ok(())
}

/// On stderr, and only where that is a terminal.
pub(crate) fn progress(steps: usize) -> ProgressBar {
    let style =
        ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(steps as u64).with_style(style)
}
