//! Owns routes that are replaced while they are used: both ends on one core, the control planes on another, whole tables put in place
//! so many times a second; rounds without that, with a route that everybody uses changing each time, and with one that nobody uses, in
//! turn, in one run.

use super::S5;
use super::traffic::shape;
use crate::bench::contender::Contender;
use crate::bench::failure::Failure;
use crate::bench::machine;
use crate::bench::options::Cores;
use crate::bench::ours::Ours;
use crate::kv::Kv;
use crate::wall;
use crate::wall::rows::{Row, Rows, Source};
use laneway_proto::ip::route::{Prefix, Route, RouteTable};
use laneway_proto::time::Instant;
use laneway_stack::control::Control;
use laneway_stack::sharing::LaneOwned;
use laneway_wire::flow::Address;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Rounds of each kind.
const ROUNDS: usize = 7;
/// The control planes have their turn this often at the least.
const TURN_EVERY: Duration = Duration::from_millis(1);

/// A table that could not be put in place for so long is left out.
const LATE_MAX: Duration = Duration::from_millis(50);
/// What of the rate with routes that stay is to be left while they are replaced.
const RATE_MIN: f64 = 0.9;
/// What of the rate of replacement is to be reached …
const FLAP_MIN: f64 = 0.99;
/// … and how many of those tables a lane is to find, and not a newer one.
const SEEN_MIN: f64 = 0.9;

/// When the control planes come to their own thread: after the warm-up, by the rig's clock.
const BEGAN_US: u64 = 3_615_000_000;
/// After so many short rounds no lane has anything left to give back.
const LOOKS_MAX: u64 = 100;

/// What changes from table to table: the route that every packet takes, or one that none takes.
const KINDS: [&str; 2] = ["routes replaced", "unused route replaced"];

/// Two tables that differ in that.
type Pair = [RouteTable; 2];

/// The rig's network and so many more that nobody is in; `mtu` is the network's, `unused` that of the first of the others.
fn table(routes: u32, mtu: u32, unused: u32) -> Result<RouteTable, Failure> {
    let prefix =
        |octets, len| Prefix::new(Address::from_v4(octets), len).map_err(|error| Failure::Stuck(error.to_string()));
    let route = |prefix, mtu| Route { prefix, next_hop: None, interface: 0, mtu, source: None };
    let mut builder = RouteTable::builder().add(route(prefix([10, 0, 0, 0], 16)?, Some(mtu)));
    for i in 0..routes.saturating_sub(1) {
        let mtu = (i == 0).then_some(unused);
        builder = builder.add(route(prefix([172, 16 + (i >> 8) as u8, i as u8, 0], 24)?, mtu));
    }
    builder.build().map_err(|error| Failure::Stuck(error.to_string()))
}

fn time_since(began: std::time::Instant) -> Instant {
    Instant::from_us(BEGAN_US + began.elapsed().as_micros() as u64)
}

/// What the thread of the control planes is told, and tells.
struct Flapping {
    began: std::time::Instant,
    rate: u32,
    /// Which of [`KINDS`], from 1; 0: routes stay.
    on: AtomicUsize,
    stop: AtomicBool,
    replaced: AtomicU64,
}

/// What was measured while tables of one kind were replaced.
#[derive(Default)]
struct Replaced {
    rates: Vec<f64>,
    times: Vec<f64>,
    achieved: Vec<f64>,
}

/// Turns control planes, and replaces their routes while it is told to.
fn control(controls: &mut [Control], tables: &[Pair; 2], flapping: &Flapping) {
    machine::pin(1);
    let every = Duration::from_secs(1) / flapping.rate;
    let mut next = std::time::Instant::now();
    let mut turned = next;
    let mut number = 0;
    while !flapping.stop.load(Ordering::Acquire) {
        let now = std::time::Instant::now();
        let kind = flapping.on.load(Ordering::Acquire).checked_sub(1);
        if let Some(kind) = kind
            && now >= next
        {
            for control in controls.iter_mut() {
                control.replace_routes(tables[kind][number % 2].clone()).expect("they name no source");
            }
            number += 1;
            flapping.replaced.fetch_add(1, Ordering::Relaxed);
            // What could not be done in time is made up for, unless it is long ago.
            next = (next + every).max(now - LATE_MAX);
        } else if now - turned < TURN_EVERY && !controls.iter().any(Control::has_mail) {
            if kind.is_none() {
                std::thread::sleep(Duration::from_micros(200));
                next = std::time::Instant::now();
            } else {
                std::hint::spin_loop();
            }
            continue;
        }
        turned = now;
        for control in controls.iter_mut() {
            control.turn(time_since(flapping.began));
        }
    }
}

/// Static and replaced, in turn.
pub fn run(s5: &S5, rate: u32, rows: &mut Rows) -> Result<(), Failure> {
    let time = s5.wall.time(1.0, 0.2)?;
    if machine::cores() < 2 {
        rows.remark("routes that are replaced under load need a core for the control plane: this machine gives one core, left out");
        return Ok(());
    }
    let usual = table(s5.routes, 1_500, 1_500)?;
    let tables = [[usual.clone(), table(s5.routes, 1_400, 1_500)?], [usual, table(s5.routes, 1_500, 1_400)?]];
    let mut ours = Ours::<Kv, LaneOwned>::new("lane", &Kv { gets: s5.ratio }, &shape(s5, Cores::Same), false)?;
    ours.warm_up()?;
    let mut controls = ours.take_controls();
    let flapping = Flapping {
        began: std::time::Instant::now(),
        rate,
        on: AtomicUsize::new(0),
        stop: AtomicBool::new(false),
        replaced: AtomicU64::new(0),
    };
    let rounds = if s5.wall.quick { 1 } else { ROUNDS };
    let bar = wall::progress((1 + KINDS.len()) * rounds);
    let mut fixed = Vec::new();
    let mut kinds: [Replaced; 2] = Default::default();
    let mut flapped = 0.0;
    let measured = std::thread::scope(|scope| {
        let (controls, flapping, tables) = (&mut controls, &flapping, &tables);
        scope.spawn(move || control(controls, tables, flapping));
        let mut measure = || -> Result<(), Failure> {
            for _ in 0..rounds {
                bar.set_message("routes stay");
                let stay = ours.round(time)?.rate();
                fixed.push(stay);
                bar.inc(1);
                for (number, kind) in kinds.iter_mut().enumerate() {
                    bar.set_message(format!("{} routes, {rate} times a second: {}", s5.routes, KINDS[number]));
                    let (before, began) = (flapping.replaced.load(Ordering::Relaxed), std::time::Instant::now());
                    flapping.on.store(1 + number, Ordering::Release);
                    let moving = ours.round(time);
                    let count = flapping.replaced.load(Ordering::Relaxed) - before;
                    let seconds = began.elapsed().as_secs_f64();
                    flapping.on.store(0, Ordering::Release);
                    let moving = moving?.rate();
                    flapped += seconds;
                    bar.inc(1);
                    kind.rates.push(moving);
                    kind.times.push(moving / stay);
                    kind.achieved.push(count as f64 / seconds);
                }
            }
            Ok(())
        };
        let measured = measure();
        flapping.stop.store(true, Ordering::Release);
        measured
    });
    bar.finish_and_clear();
    measured?;
    // The lanes look once more, and give back what they have.
    let hosts = controls.len() as f64;
    let mut sum = (0, 0);
    for _ in 0..LOOKS_MAX {
        for control in &mut controls {
            control.turn(time_since(flapping.began));
        }
        sum = controls.iter().map(Control::tables).fold((0, 0), |sum, one| (sum.0 + one.retired, sum.1 + one.freed));
        if sum.0 == sum.1 {
            break;
        }
        ours.round(Duration::from_millis(5))?;
    }
    let failed = ours.account().failed;
    if failed > 0 {
        return Err(Failure::Stuck(format!(
            "{failed} requests were answered wrongly or not at all while routes were replaced"
        )));
    }
    let median = |values: &mut Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let mut push = |row: Row| rows.push(row.at("routes", s5.routes));
    push(Row::measured("lane, routes stay", "requests_per_s", median(&mut fixed), "requests"));
    let mut achieved = f64::INFINITY;
    let mut all_times = Vec::new();
    for (name, kind) in KINDS.iter().zip(&mut kinds) {
        let variant = format!("lane, {name}");
        push(Row::measured(&variant, "requests_per_s", median(&mut kind.rates), "requests"));
        let reached = median(&mut kind.achieved);
        push(Row::measured(&variant, "tables_per_s", reached, "tables"));
        let times = median(&mut kind.times);
        push(Row::measured(&variant, "times_static", times, ""));
        achieved = achieved.min(reached);
        all_times.push((name, times));
    }
    push(Row::measured("lane, routes replaced", "tables_retired", sum.0 as f64, "tables"));
    push(Row::measured("lane, routes replaced", "tables_freed", sum.1 as f64, "tables"));
    let published = controls.iter().map(|control| control.tables().published).sum::<u64>() as f64 / hosts / flapped;
    push(Row::measured("lane, routes replaced", "tables_published_per_s", published, "tables"));
    let all = sum.0 == sum.1 && sum.0 > 0;
    let words = format!("{} tables of {} routes retired, {} freed", sum.0, s5.routes, sum.1);
    rows.bar("lane", "retired = freed at the end", all, Source::Counted, &words);
    // Moments measure nothing.
    if !s5.wall.quick {
        let wanted = f64::from(rate);
        let reached = achieved >= FLAP_MIN * wanted && published >= SEEN_MIN * wanted;
        let words = format!(
            "{achieved:.0} a second at each end, of which {published:.0} came before its lane; asked for {rate}"
        );
        rows.bar("lane", "tables replaced as often as asked for", reached, Source::Measured, &words);
        for (name, times) in all_times {
            let words =
                format!("{times:.3} x the rate with routes that stay, median of {rounds} pairs of rounds in turn");
            let what = format!("{name}: rate at least {RATE_MIN} x static");
            rows.bar("lane", &what, times >= RATE_MIN, Source::Measured, &words);
        }
    }
    Ok(())
}
