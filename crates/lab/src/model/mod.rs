//! `laneway-lab model`: what more cores than there are here would do. A model, calibrated and tested, never a measurement.
//!
//! [`engine`] simulates, [`seed`] tests it against the documents, [`machine`] measures what it needs of this machine,
//! [`counts`] says what an operation of each variant does, [`counted`] what a file says instead, [`curves`] draws the consequences.

mod counted;
mod counts;
mod curves;
mod engine;
mod machine;
mod seed;

use crate::bench::failure::Failure;
use crate::wall::page::{Chart, Page, Picture, Scale, series};
use crate::wall::rows::{Row, Rows};
use crate::wall::{self, WallOptions};
use clap::Args;
use counts::{Counts, Touch};
use engine::Costs;
use machine::{Measured, Taking};
use std::path::PathBuf;

/// Of a line between two cores of one socket, where it cannot be measured.
const USUAL_TRANSFER_NS: f64 = 100.0;
/// Cores of a curve.
const CORES: [usize; 9] = [1, 2, 4, 8, 16, 32, 64, 96, 112];
/// Times of a transfer that are looked at besides the measured one.
const SWEEP_NS: [f64; 4] = [60.0, 100.0, 150.0, 200.0];
/// Whose lock tables are predicted.
const SEED_MACHINE: &str = "FreeBSD, 2013";
/// The model must be as near to what two cores here do.
const REAL_WITHIN: f64 = 1.15;

/// Why a gate of a table fails that fails: what is known of it, and what the model lacks.
const WHY_PATCHES: &str = "the model's waiting threads are served in order or at random, so processes wait as long as receive threads; the seed's waited longer than those before the patches and a third as long after them. A likely reason, which the document does not state: accept took the lock for reading, behind a reader writers sleep instead of spinning, and with accept gone all of them spin and the nearest has it. 9.2's table does not tell sleep from spinning, so a model calibrated on it cannot know";
/// The same of two lanes.
const WHY_TWO_LANES: &str = "; with two lanes every second frame of a connection comes from the other core through the ring that stands for the wire, which the model does not have: how far `lane` is off, which shares nothing else, says what that is worth";

/// What more cores than these would do, with the model's tests beside it
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  # The model against the tables of the seeds and against two cores here:
  laneway-lab model --gates
  laneway-lab model --curves --report m.html  # 1 to 112 cores, by variant
  laneway-lab s1 --json > s1.json; laneway-lab model --curves --counts s1.json

Every number of it is marked as the model's. A gate that fails is printed as
failed, with the reason, and the exit code stays 0: the model is what it is.")]
pub struct Model {
    #[command(flatten)]
    wall: WallOptions,
    /// Only the tests of the model
    #[arg(long, conflicts_with_all = ["curves", "variant"])]
    gates: bool,
    /// Only the curves
    #[arg(long)]
    curves: bool,
    /// Rows as s1 or coherence print them with --json: their counts instead of the documents'
    #[arg(long, value_name = "FILE")]
    counts: Option<PathBuf>,
    /// Nanoseconds of a transfer of a line, instead of measuring it
    #[arg(long, value_name = "NS", value_parser = nanoseconds)]
    transfer: Option<f64>,
}

fn nanoseconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(ns) if (1.0..=10_000.0).contains(&ns) => Ok(ns),
        _ => Err("a transfer takes 1 to 10000 nanoseconds".into()),
    }
}

/// Runs the command.
pub fn run(options: &Model) -> Result<(), Failure> {
    let names = ["global", "accept", "timewait", "decomposed", "epoch", "lane", "r0", "r1", "r2", "r3", "arc"];
    let wanted = options.wall.variants(&names)?;
    let time = options.wall.time(2.0, 0.2)?;
    options.wall.check_report()?;
    let (mut sharing, references) = (counts::sharing(), counts::references());
    if let Some(file) = &options.counts {
        counted::read(file, &mut sharing)?;
    }
    let mut rows = Rows::new(None);
    let measured = machine::measure(time);
    let costs = said(options, &measured, &mut rows);
    let mut page = Page::new("Many cores from two: the model");
    page.words.push(
        "Nothing on this page but the time of a transfer and the pairs of two threads was measured here. Events of cores, lines and locks are simulated; a line serves one core at a time."
            .into(),
    );
    if !options.curves {
        against_the_seed(&mut rows);
        against_two_cores(&measured, costs, &mut rows);
        with_counts(&sharing, costs, &mut rows);
        retries(costs, &mut rows);
        page.pictures.push(retries_picture(&rows));
    }
    if !options.gates {
        for (title, metric, all) in [
            ("Connections a second, by how lanes share", "conns_per_s", &sharing),
            ("Packets a second, by how a route is held", "packets_per_s", &references),
        ] {
            let all: Vec<&Counts> = all.iter().filter(|counts| wanted.contains(&counts.variant.as_str())).collect();
            curve(metric, &all, costs, &mut rows);
            page.pictures.push(curve_picture(title, metric, &rows));
        }
    }
    wall::finish(&options.wall, &rows, &page)
}

/// The costs that the model is run with, and where they come from.
fn said(options: &Model, measured: &Measured, rows: &mut Rows) -> Costs {
    rows.push(Row::measured("machine", "atomic_there_ns", measured.hit_ns, "ns"));
    if let Some(ns) = measured.transfer_ns {
        rows.push(Row::measured("machine", "line_transfer_ns", ns, "ns"));
    }
    let transfer_ns = options.transfer.or(measured.transfer_ns).unwrap_or(USUAL_TRANSFER_NS);
    if options.transfer.is_none() && measured.transfer_ns.is_none() {
        rows.remark(format!("this process may use one core: a transfer is assumed to take {USUAL_TRANSFER_NS} ns"));
    }
    Costs { hit_ns: measured.hit_ns, transfer_ns, grip: 0.0 }
}

fn verdict(rows: &mut Rows, gate: &str, holds: bool, words: &str) {
    rows.push(Row::model("model", "gate_holds", f64::from(u8::from(holds)), "1 = yes").at("gate", gate));
    rows.remark(format!("gate {gate}: {}: {words}", if holds { "holds" } else { "FAILED" }));
}

/// Gate (b): calibrated on 9.2, three tables predicted.
fn against_the_seed(rows: &mut Rows) {
    let fit = seed::calibrate();
    rows.remark(format!(
        "calibrated on FreeBSD 9.2's table alone: {} ns between two acquisitions of a receive thread, {} ns of a process, lock handed on {:?}",
        fit.receive_ns, fit.serve_ns, fit.queue
    ));
    for kernel in std::iter::once("9.2").chain(seed::PREDICTED) {
        let compared = seed::predict(kernel, fit);
        for row in &compared {
            let place = |row: Row, site: seed::Role| row.at("site", site.name());
            rows.push(place(Row::model(kernel, row.metric, row.model, ""), row.role));
            let seed = place(Row::measured(kernel, &format!("{}_seed", row.metric), row.seed, ""), row.role);
            rows.push(seed.published(SEED_MACHINE));
        }
        let (theirs, ours) = seed::wait_per_connection(kernel, &compared);
        rows.push(Row::model(kernel, "wait_us_per_conn", ours, "us"));
        rows.push(Row::measured(kernel, "wait_us_per_conn_seed", theirs, "us").published(SEED_MACHINE));
        if kernel == "9.2" {
            continue;
        }
        let missed: Vec<String> = compared
            .iter()
            .filter(|row| !row.holds())
            .map(|row| format!("{} of {} × {:.2}", row.metric, row.role.name(), row.factor()))
            .collect();
        let worst = compared.iter().map(seed::Compared::factor).fold(1.0, f64::max);
        let words = if missed.is_empty() {
            format!("all {} numbers within × {}, the worst × {worst:.2}", compared.len(), seed::WITHIN)
        } else {
            let why = if kernel == "10.0+patches" { WHY_PATCHES } else { "not explained" };
            format!(
                "{} of {} numbers outside × {}: {}; {why}",
                missed.len(),
                compared.len(),
                seed::WITHIN,
                missed.join(", ")
            )
        };
        verdict(rows, &format!("s1 {kernel}"), missed.is_empty(), &words);
    }
}

/// Gate (a) for references: one and two threads, measured and modelled.
fn against_two_cores(measured: &Measured, costs: Costs, rows: &mut Rows) {
    let mut worst: (f64, String) = (1.0, "each".into());
    for (taking, threads, rate) in &measured.pairs {
        let (name, touch) = if *taking == Taking::Loop { ("r0", Touch::Loop) } else { ("r2", Touch::Write) };
        let modelled = curves::references_only(*threads, costs, touch).rounds_per_s();
        rows.push(Row::measured(name, "pairs_per_s_here", *rate, "pairs/s").at("cores", *threads));
        rows.push(Row::model(name, "pairs_per_s", modelled, "pairs/s").at("cores", *threads));
        let factor = (modelled / rate).max(rate / modelled);
        if factor > worst.0 {
            worst = (factor, format!("{name} on {threads}, worst,"));
        }
    }
    let words = format!(
        "{} × {:.2} of what was measured here (bar × {REAL_WITHIN}){}",
        worst.1,
        worst.0,
        if worst.0 <= REAL_WITHIN {
            ""
        } else {
            "; a core that has the line does several operations before it is taken away, and the model's lines are taken after each: it is a bound from below, which a saturated line of many cores comes near to and two cores do not"
        }
    );
    verdict(rows, "references on 1 and 2 cores", worst.0 <= REAL_WITHIN, &words);
}

/// Gate (a) for sharing, where a file has measured rates.
fn with_counts(sharing: &[Counts], costs: Costs, rows: &mut Rows) {
    for counts in sharing {
        for (cores, measured) in [1, 2].into_iter().zip(counts.measured) {
            let Some(measured) = measured else { continue };
            let modelled = curves::point(counts, cores, costs).ops_per_s;
            let factor = (modelled / measured).max(measured / modelled);
            let holds = factor <= REAL_WITHIN;
            let why = if holds || cores == 1 { "" } else { WHY_TWO_LANES };
            let words = format!("{modelled:.0} connections a second, measured {measured:.0}: × {factor:.2}{why}");
            verdict(rows, &format!("{} on {cores} lanes", counts.variant), holds, &words);
        }
    }
    if sharing.iter().all(|counts| counts.measured == [None; 2]) {
        rows.remark("gate sharing on 1 and 2 lanes: not judged: give measured rates with --counts (rows conns_per_s, axis lanes)");
    }
}

/// Gate (c): what the seed's eight retries would need.
fn retries(costs: Costs, rows: &mut Rows) {
    let cores = curves::SEED_CORES;
    let here = curves::retries(costs);
    rows.push(
        Row::model("r0", "retries_per_op", here, "").at("cores", cores).at("transfer_ns", costs.transfer_ns.round()),
    );
    for transfer_ns in SWEEP_NS {
        let row = Row::model("r0", "retries_per_op", curves::retries(Costs { transfer_ns, ..costs }), "");
        rows.push(row.at("cores", cores).at("transfer_ns", transfer_ns));
    }
    for cores in CORES {
        let retries = curves::references_only(cores, costs, Touch::Loop).retries_per_op();
        rows.push(Row::model("r0", "retries_per_op", retries, "").at("cores", cores));
    }
    let seed = curves::SEED_RETRIES;
    match curves::transfer_for_the_seed(costs) {
        Some(ns) => {
            rows.push(Row::model("r0", "transfer_ns_for_8_retries", ns, "ns").at("cores", cores));
            rows.remark(format!("s5: {here:.1} retries per reference at {:.0} ns on {cores} cores; {seed} would need {ns:.2} ns", costs.transfer_ns));
        }
        None => rows.remark(format!(
            "s5: {here:.1} retries per reference at {:.0} ns on {cores} cores; no time of a transfer from 0 to 200 ns gives the seed's {seed}: cores that do nothing else saturate the line whatever it costs, and who fails is decided by the order of service",
            costs.transfer_ns
        )),
    }
    if let Some(grip) = curves::grip_for_the_seed(costs) {
        rows.push(Row::model("r0", "second_try_share_for_8_retries", grip, "").at("cores", cores));
        rows.remark(format!("s5: {seed} comes out if {:.1} % of failed attempts get a second try before the line is taken away (two threads of one core share it, and the next core's request takes time)", grip * 100.0));
    }
}

fn curve(metric: &str, all: &[&Counts], costs: Costs, rows: &mut Rows) {
    for counts in all {
        let variant = counts.variant.as_str();
        let unit = metric.split('_').next().unwrap_or("");
        for lock in &counts.locks {
            let row = Row::model(variant, "input_acquisitions_per_conn", lock.per_op, "");
            rows.push(row.at("class", lock.class.as_str()));
            rows.push(Row::model(variant, "input_hold_ns", lock.hold_ns, "ns").at("class", lock.class.as_str()));
        }
        let mut alone = f64::NAN;
        for cores in CORES {
            let point = curves::point(counts, cores, costs);
            if cores == 1 {
                alone = point.ops_per_s;
            }
            let push = |rows: &mut Rows, metric: &str, value: f64, unit: &str| {
                rows.push(Row::model(variant, metric, value, unit).at("cores", cores));
            };
            push(rows, metric, point.ops_per_s, unit);
            push(rows, &format!("{unit}_efficiency"), point.ops_per_s / (alone * cores as f64), "");
            push(rows, &format!("line_transfers_per_{}", unit.trim_end_matches('s')), point.transfers_per_op, "");
            if !counts.locks.is_empty() {
                push(rows, "contended_share", point.contended_share, "");
                push(rows, "wait_us_per_op", point.wait_us_per_op, "us");
            }
        }
        for transfer_ns in SWEEP_NS {
            let point = curves::point(counts, 64, Costs { transfer_ns, ..costs });
            let row = Row::model(variant, &format!("{metric}_64_cores"), point.ops_per_s, "");
            rows.push(row.at("transfer_ns", transfer_ns));
        }
    }
}

fn curve_picture(title: &str, metric: &str, rows: &Rows) -> Picture {
    let shown: Vec<&Row> = rows.rows.iter().filter(|row| row.metric == metric).collect();
    Picture {
        title: title.to_owned(),
        caption: "From the model, not measured: the same work on each core, and what is shared as counted. A line that bends is a line or a lock that is always taken.".into(),
        chart: Chart::Lines { x: "cores".into(), y: metric.replace('_', " "), scale: Scale::Log, series: series(&shown, metric, "cores") },
        rows: shown.into_iter().cloned().collect(),
    }
}

fn retries_picture(rows: &Rows) -> Picture {
    let shown: Vec<&Row> =
        rows.rows.iter().filter(|row| row.metric == "retries_per_op" && row.axis("transfer_ns").is_none()).collect();
    Picture {
        title: "Failed exchanges for each reference taken".into(),
        caption: "From the model, not measured: cores that take and give back one reference by inc_not_zero and do nothing else, a line that serves in the order of asking. The seed counted 8 on 112.".into(),
        chart: Chart::Lines { x: "cores".into(), y: "retries per reference".into(), scale: Scale::Linear, series: series(&shown, "retries_per_op", "cores") },
        rows: shown.into_iter().cloned().collect(),
    }
}
