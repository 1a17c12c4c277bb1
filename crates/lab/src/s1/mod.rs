//! The first wall: FreeBSD made 52,000 connections a second on one receive queue and 56,000 on four, because one lock guarded all
//! of TCP.
//!
//! Real connections (connect, request, response, close) are made with the product's stack; the variants of its seam of sharing
//! stand in the server, the client is always the product. Rates are measured with bare locks, profiles with locks that
//! remember; the two are never mixed, because a profiled lock is held for longer.

mod profiled;
mod seed;
mod wave;

use crate::bench::contender::{Contender, Round, Share};
use crate::bench::crew::Shape;
use crate::bench::crr::Crr;
use crate::bench::failure::Failure;
use crate::bench::machine;
use crate::bench::options::{Checksums, Cores};
use crate::bench::ours::Ours;
use crate::bench::report::median;
use crate::output;
use crate::s3_ports::Ports;
use crate::wall::page::{Chart, Page, Picture};
use crate::wall::rows::{Row, Rows, Source};
use crate::wall::{self, WallOptions};
use clap::Args;
use laneway_stack::sharing::{
    Accept, Decomposed, Epoch, Global, LaneOwned, NAMES, Plain, Sharing, TimeWaitApart, Watched,
};
use std::thread;
use std::time::Duration;

/// Rounds of each variant, in turn with those of the others.
const ROUNDS: usize = 5;
/// Parts that a round is taken in where two are compared closely.
const PARTS: usize = 4;
/// Times that what is compared closely is built.
const BUILDS: usize = 8;
/// Connections under way at a time.
const CONNS: usize = 100;
/// TIME_WAIT lasts twice this, so that records expire while it is measured.
const MSL_US: u64 = 500_000;
/// The ways of sharing in the order of history, and the product once more under another name: what differs between those two means
/// nothing.
const VARIANTS: [&str; NAMES.len() + 1] = {
    let mut all = ["lane-aa"; NAMES.len() + 1];
    let mut at = 0;
    while at < NAMES.len() {
        all[at] = NAMES[at];
        at += 1;
    }
    all
};
/// How much more processor time a connection may cost when a second lane works beside the first.
const BESIDE_MAX: f64 = 1.05;
/// The classes of locks, as profiles name them.
pub const CLASSES: [&str; 4] = [INFO, SHARD, TIME_WAIT, LIST];
/// INP_INFO.
pub const INFO: &str = "rw:info";
/// The connections of a lane: one lock for each lane.
pub const SHARD: &str = "pcb";
/// What is known of all TIME_WAIT records.
pub const TIME_WAIT: &str = "timewait";
/// The list of all connections.
pub const LIST: &str = "list";

/// One lock for all of TCP, and what was done about it
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  laneway-lab s1                       # all variants, one lane and two\n  laneway-lab s1 --variant global,lane --lanes 2 --json\n  # With a million TIME_WAIT records expiring:\n  laneway-lab s1 --records 1000000 --report s1.html"
)]
pub struct S1 {
    #[command(flatten)]
    wall: WallOptions,
    /// Lanes of the server [default: 1, and 2 if this process may use two cores]
    #[arg(long, value_name = "L", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(1..=2))]
    lanes: Vec<u8>,
    /// TIME_WAIT records that expire at once while connections are made [default: 100000; 2000 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_500_000))]
    records: Option<u32>,
}

/// Runs generic code for a variant by its name, with a kind of locks.
macro_rules! by_name {
    ($name:expr, $kit:ty, $call:ident ( $($argument:expr),* )) => {
        match $name {
            "global" => $call::<Global<$kit>>($($argument),*),
            "accept" => $call::<Accept<$kit>>($($argument),*),
            "timewait" => $call::<TimeWaitApart<$kit>>($($argument),*),
            "decomposed" => $call::<Decomposed<$kit>>($($argument),*),
            "epoch" => $call::<Epoch<$kit>>($($argument),*),
            _ => $call::<LaneOwned>($($argument),*),
        }
    };
}

fn shape(lanes: u8) -> Shape {
    Shape {
        conns: CONNS,
        cores: if lanes == 1 { Cores::Same } else { Cores::Hashed },
        checksums: Checksums::Offload,
        mtu: 1_500,
        msl_us: MSL_US,
        ports: (32_768, 60_999),
        choice: Ports::Lane,
        ring_bytes: 1 << 18,
        buffer: None,
        ipv6: false,
        presized: false,
        is_virtual: false,
        segmentation: false,
        counters: false,
        references: crate::bench::options::ReferencesName::Lane,
        attack: 0,
        attack_arrives: false,
    }
}

fn contender<S: Sharing>(name: &'static str, shape: &Shape) -> Result<Box<dyn Contender>, Failure> {
    Ok(Box::new(Ours::<Crr, S, LaneOwned>::new(name, &Crr, shape, /* opens= */ false)?))
}

/// `laneway-lab s1`.
pub fn run(options: &S1) -> Result<(), Failure> {
    let time = options.wall.time(1.0, 0.1)?;
    let variants = options.wall.variants(&VARIANTS)?;
    options.wall.check_report()?;
    let cores = machine::cores();
    let lanes = match &options.lanes[..] {
        [] if cores < 2 => vec![1],
        [] => vec![1, 2],
        some if some.contains(&2) && cores < 2 => {
            return Err(Failure::Misuse("--lanes 2 needs two cores, and this process may use one".into()));
        }
        some => some.to_vec(),
    };
    let mut rows = Rows::new(Some("connections (connect, 92-byte request, 206-byte response, close)"));
    let mut tables = Vec::new();
    let rounds = if options.wall.quick { 1 } else { ROUNDS };
    for &lanes in &lanes {
        tables.extend(sharing(&variants, lanes, rounds, time, &mut rows)?);
    }
    if variants.contains(&"lane") && lanes.contains(&2) {
        beside(options, time, &mut rows)?;
    }
    let records = options.records.unwrap_or(if options.wall.quick { 2_000 } else { 100_000 });
    for name in variants.iter().copied().filter(|name| *name != "lane-aa") {
        by_name!(name, Plain, wave(name, u64::from(records), options.wall.quick, &mut rows))?;
    }
    seed::remarks(&mut rows);
    if !options.wall.json {
        tables.iter().try_for_each(|table| output::show(format_args!("{table}\n")))?;
    }
    let page = page(&rows, &tables);
    wall::finish(&options.wall, &rows, &page)
}

/// What so many lanes of each variant come to, with bare locks and then with locks that remember; the answer is a table of the
/// nine columns for each.
pub fn sharing(
    variants: &[&'static str],
    lanes: u8,
    rounds: usize,
    time: Duration,
    rows: &mut Rows,
) -> Result<Vec<String>, Failure> {
    rates(variants, lanes, rounds, time, rows)?;
    profiles(variants, lanes, rounds, time, rows)
}

/// Connections a second with bare locks, round by round in turn.
fn rates(variants: &[&'static str], lanes: u8, rounds: usize, time: Duration, rows: &mut Rows) -> Result<(), Failure> {
    let mut all = Vec::new();
    for name in variants.iter().copied() {
        all.push(by_name!(name, Plain, contender(name, &shape(lanes)))?);
    }
    let bar = wall::progress(all.len() * (rounds + 1));
    for contender in &mut all {
        bar.set_message(format!("{lanes} lanes: {} warms up", contender.who()));
        contender.warm_up()?;
        bar.inc(1);
    }
    let mut seen = vec![Vec::new(); all.len()];
    let mut shares = vec![vec![Share::default(); usize::from(lanes)]; all.len()];
    for _ in 0..rounds {
        for ((contender, seen), shares) in all.iter_mut().zip(&mut seen).zip(&mut shares) {
            let round = contender.round(time)?;
            seen.push((round.rate(), round.cpu_us_per_op()));
            shares.iter_mut().zip(&round.shares).for_each(|(sum, share)| sum.add(share));
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    for (name, seen) in variants.iter().zip(seen) {
        let lanes = u32::from(lanes);
        let (rates, costs): (Vec<f64>, Vec<f64>) = seen.into_iter().unzip();
        for (metric, values, unit) in [("conns_per_s", rates, "1/s"), ("cpu_us_per_conn", costs, "us")] {
            let row = Row::measured(name, metric, f64::NAN, unit).at("lanes", lanes);
            rows.rows.extend(row.of_rounds(&values));
        }
    }
    for (name, shares) in variants.iter().zip(shares) {
        for (lane, share) in shares.iter().enumerate() {
            let (busy, idle) = share.polls;
            let a_second = |count: u64| count as f64 / share.wall_s;
            for row in [
                Row::measured(name, "busy_polls_share", busy as f64 / (busy + idle).max(1) as f64, ""),
                Row::measured(name, "smtx_per_s", a_second(share.met.contended), "1/s"),
                Row::measured(name, "cas_retries_per_s", a_second(share.met.retries), "1/s"),
            ] {
                rows.push(row.at("lanes", u32::from(lanes)).at("lane", lane));
            }
        }
    }
    Ok(())
}

/// What the product's connection costs the processor when a second lane works beside the first: with both lanes of a stack, in turns with
/// each of the two alone, which are the same lanes in the same memory. Each core has a lane of the server and that lane of the client which
/// it serves: so no frame goes from core to core, which the ring that stands for the wire would charge to TCP. A lane has as many
/// connections whether it is alone or not.
///
/// Two cores that are busy take something from each other on most machines, whatever runs on them: clock frequency, the last cache, what the
/// host of a virtual machine gives both together. So two stacks of one lane, which have nothing in common, do the same in the same turns: what
/// they lose to each other is the machine's, and what the lanes of one stack lose beyond that is the stack's. Stacks that are built alike may
/// differ by a tenth, by where their memory lies: so all of it is built anew a few times.
fn beside(options: &S1, time: Duration, rows: &mut Rows) -> Result<(), Failure> {
    let quick = options.wall.quick;
    let pairs = Shape { cores: Cores::Pairs, conns: 2 * CONNS, ..shape(2) };
    // Many short rounds: what else goes on in the machine changes within a second.
    let part = time / PARTS as u32;
    let builds = if quick { 1 } else { BUILDS };
    let turns = if quick { 1 } else { PARTS * 2 * ROUNDS / BUILDS };
    let bar = wall::progress(builds * turns);
    bar.set_message("two lanes beside one");
    let mut rounds = Vec::new();
    for build in 0..builds {
        let lane = |shape: &Shape| Ours::<Crr, LaneOwned>::new("lane", &Crr, shape, /* opens= */ false);
        let (mut lanes, mut one, mut other);
        // Which comes first into a heap is luck, too.
        if build % 2 == 0 {
            lanes = lane(&pairs)?;
            (one, other) = (lane(&shape(1))?, lane(&shape(1))?.on_cores_from(1));
        } else {
            (one, other) = (lane(&shape(1))?, lane(&shape(1))?.on_cores_from(1));
            lanes = lane(&pairs)?;
        }
        for cold in [&mut lanes, &mut one, &mut other] {
            cold.warm_up()?;
            // Until the first records of TIME_WAIT expire.
            cold.round(time)?;
        }
        for _ in 0..turns {
            let alone = [lanes.round_alone(0, part)?, lanes.round_alone(1, part)?];
            let both = lanes.round(part)?;
            let apart = together(&mut one, &mut other, part)?;
            let apart_alone = [one.round(part)?, other.round(part)?];
            rounds.push(Beside { both, alone: sum(alone), apart, apart_alone: sum(apart_alone) });
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let each = |of: &dyn Fn(&Beside) -> f64| rounds.iter().map(of).collect::<Vec<f64>>();
    let cost = Round::cpu_us_per_op;
    let times = each(&|round| cost(&round.both) / cost(&round.alone));
    let control = each(&|round| cost(&round.apart) / cost(&round.apart_alone));
    let beyond = each(&|round| cost(&round.both) / cost(&round.alone) * cost(&round.apart_alone) / cost(&round.apart));
    let stacks = each(&|round| cost(&round.both) / cost(&round.apart));
    let one = each(&|round| cost(&round.both) / cost(&round.apart_alone));
    let rates = each(&|round| 2.0 * round.both.rate() / round.alone.rate());
    let at = |lanes: f64| rows.value("lane", "cpu_us_per_conn", "lanes", lanes);
    let hashed = at(1.0).zip(at(2.0)).map(|(one, two)| two / one);
    for (values, what) in [
        (&times, "pairs"),
        (&one, "pairs, one built apart"),
        (&control, "two stacks"),
        (&beyond, "pairs, beyond two stacks"),
        (&stacks, "pairs, against two stacks"),
    ] {
        let row = Row::measured("lane", "cpu_us_per_conn_times", f64::NAN, "").at("cores", what);
        rows.rows.extend(row.of_rounds(values));
    }
    // A ratio of two medians has no rounds of its own.
    rows.rows
        .extend(hashed.map(|value| Row::measured("lane", "cpu_us_per_conn_times", value, "").at("cores", "hashed")));
    let row = Row::measured("lane", "conns_per_s_times", f64::NAN, "").at("cores", "pairs");
    rows.rows.extend(row.of_rounds(&rates));
    let [times, one, control, beyond, stacks, rates] =
        [times, one, control, beyond, stacks, rates].map(|values| median(values.into_iter()));
    if !quick {
        for (value, what, words) in [
            (
                times,
                "two lanes at most 1.05 x the CPU of each alone",
                format!("x {times:.3} at x {rates:.2} the rate; two stacks that share nothing cost x {control:.3}"),
            ),
            (
                one,
                "two lanes at most 1.05 x the CPU of one",
                format!("x {one:.3}, against a stack of one lane that is built apart"),
            ),
            (
                beyond,
                "two lanes at most 1.05 x what two stacks lose to each other",
                format!("x {beyond:.3}: x {times:.3} by x {control:.3}"),
            ),
            (
                stacks,
                "two lanes at most 1.05 x the CPU of two stacks of one",
                format!("x {stacks:.3}, both cores busy both times"),
            ),
        ] {
            rows.bar("lane", what, value <= BESIDE_MAX, Source::Measured, &words);
        }
    }
    Ok(())
}

/// A turn of what is compared closely.
struct Beside {
    /// Both lanes of a stack.
    both: Round,
    /// Each of them alone.
    alone: Round,
    /// Two stacks of one lane.
    apart: Round,
    /// Each of them alone.
    apart_alone: Round,
}

fn sum(rounds: [Round; 2]) -> Round {
    Round { shares: rounds.into_iter().flat_map(|round| round.shares).collect(), ..Round::default() }
}

/// A round of both at once.
fn together<A: Contender + Send, B: Contender + Send>(
    one: &mut A,
    other: &mut B,
    time: Duration,
) -> Result<Round, Failure> {
    let (one, other) = thread::scope(|scope| {
        let one = scope.spawn(|| one.round(time));
        (other.round(time), one.join().expect("a crew does not panic"))
    });
    Ok(sum([one?, other?]))
}

/// The same with locks that remember; the answer is the nine columns of each.
fn profiles(
    variants: &[&'static str],
    lanes: u8,
    rounds: usize,
    time: Duration,
    rows: &mut Rows,
) -> Result<Vec<String>, Failure> {
    let mut all = Vec::new();
    for name in variants.iter().copied() {
        all.push(by_name!(name, Watched, contender(name, &shape(lanes)))?);
    }
    for contender in &mut all {
        contender.warm_up()?;
    }
    let mut seen: Vec<Vec<profiled::Seen>> = all.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        for (contender, seen) in all.iter_mut().zip(&mut seen) {
            seen.push(profiled::round(&mut **contender, time)?);
        }
    }
    for (name, seen) in variants.iter().zip(&seen) {
        rows.rows.extend(profiled::rows(name, seen).into_iter().map(|row| row.at("lanes", u32::from(lanes))));
    }
    let last = |(name, seen): (&&str, &Vec<profiled::Seen>)| Some(seen.last()?.table(name, lanes));
    Ok(variants.iter().zip(&seen).filter_map(last).collect())
}

/// The most records that a poll may reap where it reaps by the product's rule.
const REAP_MAX: u64 = 64;
/// How much longer the longest connections of a thousand may take while records expire.
const SLOWER_MAX: f64 = 2.0;

/// A wave of TIME_WAIT records whose time is over, and the same without.
fn wave<S: Sharing>(name: &'static str, records: u64, quick: bool, rows: &mut Rows) -> Result<(), Failure> {
    let shape = Shape { is_virtual: true, msl_us: 30_000_000, ..shape(1) };
    let mut waves = Vec::new();
    for n in [0, records] {
        let seen = wave::run::<S>(&shape, n, records)?;
        for row in [
            Row::counted(name, "reaped_per_poll_max", seen.reaped_max as f64, ""),
            Row::counted(name, "reaped", seen.reaped as f64, ""),
            Row::measured(name, "conn_us_p50", seen.conn_us(0.5), "us"),
            Row::measured(name, "conn_us_p999", seen.conn_us(0.999), "us"),
            Row::measured(name, "conn_us_max", seen.conn_us(1.0), "us"),
            Row::measured(name, "conn_us_p999_before", seen.conn_us_p999_before, "us"),
            Row::measured(name, "poll_us_p999", seen.poll_us(0.999), "us"),
            Row::measured(name, "poll_us_max", seen.poll_us(1.0), "us"),
        ] {
            rows.push(row.at("time_wait", n as f64));
        }
        waves.push(seen);
    }
    let [without, with] = &waves[..] else { return Ok(()) };
    let most = with.reaped_max;
    let words = format!("{most} at the most, {} in all", with.reaped);
    if by_scan(name) {
        rows.remark(format!(
            "{name}, beside it: a scan takes {words}; the poll that does it takes {:.0} us, and the longest connection {:.0} us",
            with.poll_us(1.0),
            with.conn_us(1.0)
        ));
        return Ok(());
    }
    let all = with.reaped >= records;
    rows.bar(name, "at most 64 records reaped a poll", most <= REAP_MAX && all, Source::Counted, &words);
    // A thousandth of a few connections is none.
    if !quick {
        let (now, no_records) = (with.conn_us(0.999), without.conn_us(0.999));
        let least = no_records.min(with.conn_us_p999_before);
        let times = now / least;
        rows.push(Row::measured(name, "conn_us_p999_times", times, "").at("time_wait", records as f64));
        rows.bar(
            name,
            "p99.9 of a connection at most 2 x without",
            times <= SLOWER_MAX,
            Source::Measured,
            &format!(
                "{now:.1} us while {records} records expire, {no_records:.1} us without any, {:.1} us while as many wait for their time: x {times:.2}",
                with.conn_us_p999_before
            ),
        );
    }
    Ok(())
}

/// FreeBSD's scan, which takes all records that are over at once.
fn by_scan(name: &str) -> bool {
    ["global", "accept"].contains(&name)
}

fn page(rows: &Rows, tables: &[String]) -> Page {
    let mut page = Page::new("S1: one lock for all of TCP");
    page.words = vec![
        "FreeBSD made 52,000 short connections a second on one receive queue and 56,000 on four. Here are the stages by which \
         that lock went, and then none, each as a configuration of the same stack, making real connections in memory."
            .into(),
        "Rates: bare locks. Acquisitions, waits: locks that remember, which are slower; the two are never mixed.".into(),
    ];
    page.words.extend(tables.iter().cloned());
    let bars = |metric: &str, axis: &str, at: f64| -> Vec<(String, f64)> {
        let of = |name: &&str| Some(((*name).to_owned(), rows.value(name, metric, axis, at)?));
        VARIANTS.iter().filter_map(of).collect()
    };
    let chosen = |metric: &str| rows.only(&[metric]).into_iter().cloned().collect::<Vec<_>>();
    let two = rows.only(&["conns_per_s"]).iter().any(|row| row.axis("lanes").and_then(|at| at.number()) == Some(2.0));
    let (lanes, cores) = if two { (2.0, "two lanes on two cores") } else { (1.0, "one lane on one core") };
    let higher = format!("Higher is better. With {cores}.");
    let taken = |name: &&str| {
        let of_all = rows.rows.iter().filter(|row| row.variant == **name && row.metric == "lock_acquisitions_per_conn");
        let here = of_all.filter(|row| row.axis("lanes").and_then(|at| at.number()) == Some(lanes));
        let info = here.filter(|row| row.axis("lock") == Some(&"rw:info".into())).map(|row| row.value);
        ((*name).to_owned(), info.sum::<f64>())
    };
    let info = VARIANTS.iter().filter(|name| rows.rows.iter().any(|row| row.variant == **name)).map(taken).collect();
    let records = rows.rows.iter().filter_map(|row| row.axis("time_wait")?.number()).fold(0.0, f64::max);
    let pictures = [
        ("Connections a second", higher.as_str(), "conns_per_s", bars("conns_per_s", "lanes", lanes)),
        (
            "How often a connection takes INFO",
            "FreeBSD 9.2 took it 7.16 times, 10.0 6.70 times.",
            "lock_acquisitions_per_conn",
            info,
        ),
        (
            "The longest poll while records expire",
            "Microseconds. A scan holds the lock for all of them; the others look at 64 records a poll at the most.",
            "poll_us_max",
            bars("poll_us_max", "time_wait", records),
        ),
    ];
    for (title, caption, metric, bars) in pictures {
        page.pictures.push(Picture {
            title: title.into(),
            caption: caption.into(),
            chart: Chart::Bars { x: metric.into(), bars },
            rows: chosen(metric),
        });
    }
    page
}
