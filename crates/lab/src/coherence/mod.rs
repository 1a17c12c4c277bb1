//! `laneway-lab coherence`: what a connection, and a request, costs the coherence of caches, counted from outside.
//!
//! A register of known locks and lines can be cheated, by forgetting to register. So nothing in the stack takes part: [`executed`] joins
//! what callgrind saw executed with the disassembly, [`lines`] traces every access to memory while lanes take turns. What they must
//! find is [`planted`], one thing at a time, and looked for in the same run. Only the class of a lock nobody outside can
//! know: those are counted by locks that count themselves, and stand beside the number of all locked instructions.

mod executed;
mod lines;
pub mod part;
mod planted;
mod rig;
mod stage;
mod threads;
mod tools;

use crate::bench::failure::Failure;
use crate::wall::page::{Chart, Page, Picture};
use crate::wall::rows::{Row, Rows};
use crate::wall::{self, WallOptions};
use clap::Args;
use executed::{Disassembled, Executed};
use lines::Shared;
use part::{Aside, Part, Plant, Unit, Variant};

/// Every four-tuple once and more: from then on nothing grows.
const WARM_UP: u64 = 8_000;
const OPS: u64 = 4_000;
/// Of the trace, which is slow: each access is a line of text.
const WARM_UP_TRACED: u64 = 1_000;
const OPS_TRACED: u64 = 400;
/// For a look, and for what is planted. Before them come as many as it takes until every source address has been heard of: until
/// then lanes are told of new neighbours.
const FEW: (u64, u64) = (300, 64);
/// The bar for a thread of the application: a place among the accepted, a request, a response, a close.
const THREAD_TRANSFERS_MAX: f64 = 4.0;

/// What a connection costs in locks, atomic operations, shared lines and calls of the heap: counted, not timed
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  # All variants, and what is planted and must be found:
  laneway-lab coherence
  laneway-lab coherence --variant lane --json
  # The product and what is planted, few connections:
  laneway-lab coherence --quick

It needs valgrind, objdump and addr2line, and symbols in this program. Exit code
1: lane has something that it must not have, or something planted was not found.")]
pub struct Coherence {
    #[command(flatten)]
    wall: WallOptions,
}

/// How many operations, before and counted: for callgrind, for the trace.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    executed: (u64, u64),
    traced: (u64, u64),
}

/// Runs it.
pub fn run(options: &Coherence) -> Result<(), Failure> {
    if options.wall.seconds.is_some() {
        return Err(Failure::Misuse("--seconds: coherence counts, and takes as long as that takes".into()));
    }
    let names = options.wall.variants(&Variant::ALL.map(Variant::name))?;
    options.wall.check_report()?;
    let quick = options.wall.quick;
    let is_asked = |variant: &Variant| {
        let is_short = *variant == Variant::Lane || variant.plant().is_some();
        names.contains(&variant.name()) && (is_short || !quick || !options.wall.variant.is_empty())
    };
    let variants: Vec<Variant> = Variant::ALL.into_iter().filter(is_asked).collect();
    let units: &[Unit] = if quick { &[Unit::Crr] } else { &[Unit::Crr, Unit::Rr, Unit::Threads] };
    let mut out = Outcome { rows: Rows::new(None), wrong: Vec::new(), disassembled: Disassembled::default() };
    let bar = wall::progress(variants.len() * units.len());
    for unit in units {
        for variant in &variants {
            bar.set_message(format!("{} {}", variant.name(), unit.name()));
            match variant.plant() {
                Some(plant) if *unit == Unit::Crr => look_for(plant, *variant, &mut out)?,
                None if variant.has(*unit) => count(*variant, *unit, sizes(quick), &mut out)?,
                _ => {}
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let Outcome { rows, wrong, .. } = out;
    let mut page = Page::new("What a connection costs the coherence of caches");
    page.words.push(
        "Counted by valgrind from outside: nothing in the stack takes part. Two lanes of a server and two of a client; the \
         rings of the device between them aside."
            .into(),
    );
    for unit in ["conn", "request"] {
        page.pictures.extend(picture(unit, &rows));
    }
    wall::finish(&options.wall, &rows, &page)?;
    if wrong.is_empty() { Ok(()) } else { Err(Failure::Machine(wrong.join("; "))) }
}

fn sizes(quick: bool) -> Sizes {
    if quick {
        Sizes { executed: (WARM_UP, OPS / 4), traced: FEW }
    } else {
        Sizes { executed: (WARM_UP, OPS), traced: (WARM_UP_TRACED, OPS_TRACED) }
    }
}

/// Whose thread the application has.
fn app(unit: Unit) -> &'static str {
    if unit == Unit::Threads { "thread" } else { "lane" }
}

/// What was found so far.
struct Outcome {
    rows: Rows,
    /// What must not be, a sentence each.
    wrong: Vec<String>,
    disassembled: Disassembled,
}

/// By both oracles.
fn count(variant: Variant, unit: Unit, sizes: Sizes, out: &mut Outcome) -> Result<(), Failure> {
    let executed = executed::count(unit, variant, sizes.executed, &mut out.disassembled)?;
    let shared = lines::count(unit, variant, sizes.traced)?;
    if unit == Unit::Crr {
        for (class, taken) in classes(variant, sizes.executed)? {
            let row = Row::counted(variant.name(), "lock_acquisitions_per_conn", taken, "");
            out.rows.push(row.at("app", app(unit)).at("lock", class.as_str()));
        }
    }
    say(variant, unit, &executed, &shared, &mut out.rows);
    judge(variant, unit, &executed, &shared, &mut out.wrong);
    Ok(())
}

/// Acquisitions of each class of lock for an operation, by locks that count themselves.
fn classes(variant: Variant, (warm_up, ops): (u64, u64)) -> Result<Vec<(String, f64)>, Failure> {
    let part = Part { unit: Unit::Crr, variant, ops, warm_up, traced: false, watched: true };
    let said = tools::output(&mut tools::alone(&part)?, "the counted part", "nothing else")?;
    let done = tools::number(&said, "ops")?.max(1) as f64;
    let of = |class: &str| {
        let taken: u64 = tools::lines_of(&said, &format!("lock {class}")).flatten().sum();
        (class.to_owned(), taken as f64 / done)
    };
    Ok(crate::s1::CLASSES.iter().map(|class| of(class)).collect())
}

fn say(variant: Variant, unit: Unit, executed: &Executed, shared: &Shared, rows: &mut Rows) {
    let (done, traced, name) = (executed.ops.max(1) as f64, shared.ops.max(1) as f64, variant.name());
    let [device, data] = Aside::ALL.map(|why| shared.aside[why as usize].transfers as f64 / traced);
    let mut all = vec![
        ("atomic_rmw", executed.locked as f64 / done),
        ("shared_lines_written", shared.own.written as f64 / traced),
        ("line_transfers", shared.own.transfers as f64 / traced),
        ("line_transfers_device", device),
        ("heap_calls", executed.heap_calls as f64 / done),
        ("instructions", executed.instructions as f64 / done),
    ];
    if unit == Unit::Threads {
        all.push(("line_transfers_data", data));
    }
    for (metric, value) in all {
        let row = Row::counted(name, &format!("{metric}_per_{}", unit.per()), value, "");
        rows.push(row.at("app", app(unit)));
    }
    let what = format!("{name}, {}", unit.name());
    tell(rows, &format!("{what}: locked instructions of {} operations", executed.ops), &executed.sites);
    tell(rows, &format!("{what}: calls of the heap of {} operations", executed.ops), &executed.heap_sites);
    let lines = format!("{what}: {} lines shared in {} operations, transfers", shared.own.lines, shared.ops);
    tell(rows, &lines, &shared.sites);
}

/// The busiest places of something, if there are any.
fn tell(rows: &mut Rows, what: &str, sites: &[(String, u64)]) {
    if !sites.is_empty() {
        let first: Vec<String> = sites.iter().take(6).map(|(site, count)| format!("\n  {count:>7}  {site}")).collect();
        rows.remark(format!("{what}{}", first.concat()));
    }
}

/// What must be nothing for `lane`, and at most so much for an application on a thread.
fn judge(variant: Variant, unit: Unit, executed: &Executed, shared: &Shared, wrong: &mut Vec<String>) {
    if variant != Variant::Lane {
        return;
    }
    if unit == Unit::Threads {
        let transfers = shared.own.transfers as f64 / shared.ops.max(1) as f64;
        if transfers > THREAD_TRANSFERS_MAX {
            wrong.push(format!(
                "lane, threads: {transfers:.2} lines travel for a connection, and {THREAD_TRANSFERS_MAX} may"
            ));
        }
        return;
    }
    for (what, count) in [
        ("locked instructions", executed.locked),
        ("shared lines", shared.own.lines),
        ("calls of the heap", executed.heap_calls),
    ] {
        if count > 0 {
            wrong.push(format!("lane, {}: {count} {what}, and there must be none", unit.name()));
        }
    }
}

/// Has the oracle that must find a plant look for it.
fn look_for(plant: Plant, variant: Variant, out: &mut Outcome) -> Result<(), Failure> {
    let (metric, found, ops, least) = match plant {
        Plant::Counter => {
            let shared = lines::count(Unit::Crr, variant, FEW)?;
            ("shared_lines_written", shared.own.written, shared.ops, 0.0)
        }
        Plant::Lock => {
            let executed = executed::count(Unit::Crr, variant, FEW, &mut out.disassembled)?;
            ("atomic_rmw", executed.locked, executed.ops, PLANTED_MIN)
        }
        Plant::Heap => {
            let executed = executed::count(Unit::Crr, variant, FEW, &mut out.disassembled)?;
            ("heap_calls", executed.heap_calls, executed.ops, PLANTED_MIN)
        }
    };
    let value = found as f64 / ops.max(1) as f64;
    out.rows.push(Row::counted(variant.name(), &format!("{metric}_per_conn"), value, "").at("app", "lane"));
    missed(variant, value, least, &mut out.wrong);
    Ok(())
}

/// Frames of a connection that come by where something is planted, at the least: SYN, request, FIN; SYN and ACK, response and FIN,
/// ACK. A line is written once a turn, however many frames there are.
const PLANTED_MIN: f64 = 6.0;

fn missed(variant: Variant, found: f64, least: f64, wrong: &mut Vec<String>) {
    if found <= 0.0 || found < least {
        let name = variant.name();
        wrong.push(format!("{name}: {found:.2} were found for a connection, and at least {least} were planted"));
    }
}

fn picture(unit: &str, rows: &Rows) -> Option<Picture> {
    let is_shown = |row: &&Row| {
        row.metric.ends_with(&format!("_per_{unit}"))
            && !row.metric.starts_with("instructions")
            && row.axis("lock").is_none()
            && row.axis("app") == Some(&"lane".into())
    };
    let shown: Vec<Row> = rows.rows.iter().filter(is_shown).cloned().collect();
    let bars: Vec<_> = shown.iter().map(|row| (format!("{} {}", row.variant, row.metric), row.value)).collect();
    (!bars.is_empty()).then(|| Picture {
        title: format!("Per {unit}"),
        caption: "Executed instructions that lock, lines that one lane wrote and another touched, calls of the heap."
            .into(),
        chart: Chart::Bars { x: format!("per {unit}"), bars },
        rows: shown,
    })
}

#[cfg(test)]
mod tests {
    use super::lines::Sum;
    use super::*;

    fn wrong(variant: Variant, unit: Unit, executed: &Executed, shared: &Shared) -> usize {
        let mut wrong = Vec::new();
        judge(variant, unit, executed, shared, &mut wrong);
        wrong.len()
    }

    #[test]
    fn lane_must_have_nothing() {
        let (clean, alone) = (Executed { ops: 1, ..Executed::default() }, Shared { ops: 1, ..Shared::default() });
        assert_eq!(wrong(Variant::Lane, Unit::Crr, &clean, &alone), 0);
        let locked = Executed { locked: 1, ..clean.clone() };
        let heap = Executed { heap_calls: 1, ..clean.clone() };
        let shared = Shared { own: Sum { lines: 1, ..Sum::default() }, ..alone.clone() };
        for (executed, shared) in [(&locked, &alone), (&heap, &alone), (&clean, &shared)] {
            assert_eq!(wrong(Variant::Lane, Unit::Crr, executed, shared), 1);
            assert_eq!(wrong(Variant::Lane, Unit::Rr, executed, shared), 1);
            assert_eq!(wrong(Variant::Global, Unit::Crr, executed, shared), 0);
        }
        let device = Shared { aside: [Sum { lines: 9, written: 9, transfers: 9 }; 2], ..alone };
        assert_eq!(wrong(Variant::Lane, Unit::Crr, &clean, &device), 0, "device rings aside");
    }

    #[test]
    fn a_thread_may_cost_few_lines() {
        let transfers =
            |transfers| Shared { ops: 10, own: Sum { lines: 1, written: 1, transfers }, ..Shared::default() };
        let executed = Executed { locked: 7, heap_calls: 7, ..Executed::default() };
        assert_eq!(wrong(Variant::Lane, Unit::Threads, &executed, &transfers(40)), 0);
        assert_eq!(wrong(Variant::Lane, Unit::Threads, &executed, &transfers(41)), 1);
    }

    #[test]
    fn what_is_planted_must_be_found_for_each_frame() {
        let found = |value, least| {
            let mut wrong = Vec::new();
            missed(Variant::PlantedLock, value, least, &mut wrong);
            wrong.len()
        };
        assert_eq!([found(0.0, 6.0), found(5.9, 6.0), found(6.0, 6.0)], [1, 1, 0]);
        assert_eq!([found(0.0, 0.0), found(0.1, 0.0)], [1, 0], "a line that many frames share in a turn");
    }
}
