//! `storm`: runs worlds by their seeds, and prints the seed of any in which something happens that must not.
#![forbid(unsafe_code)]

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use laneway_sim::{SharingName, Verdict, storm};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Run worlds by their seeds; exit with 1 at the first in which something happens that must not.
#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    /// Run this one world, and say more about it
    #[arg(long, conflicts_with_all = ["seeds", "minutes"])]
    seed: Option<u64>,
    /// Run these worlds: A..B, without B
    #[arg(long, value_parser = range, default_value = "0..10000")]
    seeds: Range<u64>,
    /// Go on for so long, beginning with the first of --seeds
    #[arg(long, allow_negative_numbers = true, value_parser = minutes)]
    minutes: Option<f64>,
    /// Go on after a finding, and list all of them at the end
    #[arg(long)]
    all: bool,
    /// How the lanes of each host share their connections: global, accept, timewait, decomposed, epoch, or as the product
    #[arg(long, value_name = "NAME", default_value = SharingName::LANE.name())]
    sharing: SharingName,
    /// Threads
    #[arg(long, value_parser = threads, default_value_t = std::thread::available_parallelism().map_or(1, usize::from))]
    threads: usize,
    /// With --seed: print every segment
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Print one JSON object with the result
    #[arg(long)]
    json: bool,
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let right = "write it as A..B, for example 0..10000";
    let (a, b) = text.split_once("..").ok_or_else(|| right.to_owned())?;
    let number = |n: &str| n.trim().parse::<u64>().map_err(|_| format!("'{n}' is no number; {right}"));
    let range = number(a)?..number(b)?;
    if range.is_empty() { Err(format!("there is no seed in {text}; {right}")) } else { Ok(range) }
}

fn minutes(text: &str) -> Result<f64, String> {
    let right = |minutes: &f64| *minutes > 0.0 && *minutes <= 60.0 * 24.0 * 365.0;
    text.parse()
        .ok()
        .filter(right)
        .ok_or_else(|| "it must be a number of minutes, more than 0 and a year at the most".into())
}

fn threads(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|threads| *threads > 0).ok_or_else(|| "it must be a whole number, at least 1".into())
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    storm::catch_panics();
    match arguments.seed {
        Some(seed) => one(seed, &arguments),
        None => many(&arguments),
    }
}

fn one(seed: u64, arguments: &Arguments) -> ExitCode {
    let began = Instant::now();
    let verdict = storm::run_shared(seed, arguments.sharing, arguments.trace);
    for line in &verdict.trace {
        println!("{line}");
    }
    if arguments.json {
        println!(
            "{}",
            json(std::slice::from_ref(&verdict), 1, began.elapsed(), &Sums::of(&verdict), arguments.sharing)
        );
    } else {
        eprintln!(
            "seed {seed}: {}, {} conversations, {} frames, {} sent again, {:.3} s of virtual time in {:.1} ms",
            verdict.kind,
            verdict.talks,
            verdict.frames,
            verdict.retransmitted,
            verdict.virtual_us as f64 / 1e6,
            began.elapsed().as_secs_f64() * 1e3
        );
    }
    report(std::slice::from_ref(&verdict), arguments)
}

#[derive(Default)]
struct Sums {
    frames: u64,
    talks: u64,
    retransmitted: u64,
    cookies: u64,
    answered: u64,
    turned_away: u64,
    virtual_us: u64,
    kinds: BTreeMap<&'static str, u64>,
}

impl Sums {
    fn of(verdict: &Verdict) -> Self {
        let mut sums = Sums::default();
        sums.add(verdict);
        sums
    }
    fn add(&mut self, verdict: &Verdict) {
        self.frames += verdict.frames;
        self.talks += verdict.talks as u64;
        self.retransmitted += verdict.retransmitted;
        self.cookies += verdict.cookies;
        self.answered += verdict.answered;
        self.turned_away += verdict.turned_away;
        self.virtual_us += verdict.virtual_us;
        *self.kinds.entry(verdict.kind).or_default() += 1;
    }
}

fn many(arguments: &Arguments) -> ExitCode {
    let began = Instant::now();
    let next = AtomicU64::new(arguments.seeds.start);
    let stop = AtomicBool::new(false);
    let until = arguments.minutes.map(|m| began + Duration::from_secs_f64(m * 60.0));
    let end = if until.is_some() { u64::MAX } else { arguments.seeds.end };
    let progress = progress(arguments, until.is_some());
    let (to_main, verdicts) = mpsc::channel();
    let mut findings = Vec::new();
    let mut sums = Sums::default();
    let mut runs = 0u64;
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads {
            let (to_main, next, stop) = (to_main.clone(), &next, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) && until.is_none_or(|until| Instant::now() < until) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end || to_main.send(storm::run_shared(seed, arguments.sharing, false)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(to_main);
        for verdict in verdicts {
            runs += 1;
            sums.add(&verdict);
            progress.inc(1);
            if verdict.finding.is_some() {
                findings.push(verdict);
                progress.set_message(format!("{} findings", findings.len()));
                stop.store(!arguments.all, Ordering::Relaxed);
            }
        }
    });
    progress.finish_and_clear();
    findings.sort_by_key(|v| v.seed);
    if arguments.json {
        println!("{}", json(&findings, runs, began.elapsed(), &sums, arguments.sharing));
    } else {
        let seconds = began.elapsed().as_secs_f64();
        eprintln!(
            "{runs} worlds, {} conversations, {} frames, {} sent again, {:.1} hours of virtual time in {seconds:.1} s ({:.2} ms each)",
            sums.talks,
            sums.frames,
            sums.retransmitted,
            sums.virtual_us as f64 / 3.6e9,
            seconds * 1e3 * arguments.threads as f64 / runs.max(1) as f64,
        );
    }
    report(&findings, arguments)
}

fn progress(arguments: &Arguments, endless: bool) -> ProgressBar {
    if arguments.json || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = if endless {
        ProgressBar::new_spinner()
    } else {
        ProgressBar::new(arguments.seeds.end - arguments.seeds.start)
    };
    let style = if endless {
        "{spinner} {pos} worlds, {per_sec} {msg}"
    } else {
        "{bar:40} {pos}/{len} worlds, {per_sec}, {eta} {msg}"
    };
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    bar
}

/// Says what was found: nothing but the command that shows it again goes to standard output.
fn report(verdicts: &[Verdict], arguments: &Arguments) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for verdict in verdicts {
        if let Some(finding) = &verdict.finding {
            code = ExitCode::from(1);
            eprintln!("{} at {:.6} s ({}): {}", finding.check, finding.at_us as f64 / 1e6, verdict.kind, finding.what);
            if !arguments.json {
                println!("{}", replay(verdict, arguments.sharing));
            }
        }
    }
    code
}

/// The command that shows it again.
fn replay(verdict: &Verdict, sharing: SharingName) -> String {
    match sharing {
        SharingName::LANE => format!("storm --seed {}", verdict.seed),
        other => format!("storm --seed {} --sharing {}", verdict.seed, other.name()),
    }
}

fn json(verdicts: &[Verdict], runs: u64, took: Duration, sums: &Sums, sharing: SharingName) -> serde_json::Value {
    let findings = verdicts.iter().filter_map(|v| {
        let finding = v.finding.as_ref()?;
        Some(serde_json::json!({
            "seed": v.seed, "kind": v.kind, "check": finding.check, "what": finding.what,
            "at_us": finding.at_us, "replay": replay(v, sharing),
        }))
    });
    serde_json::json!({
        "sharing": sharing.name(), "worlds": runs, "seconds": took.as_secs_f64(), "conversations": sums.talks, "frames": sums.frames,
        "retransmitted": sums.retransmitted, "cookies": sums.cookies, "answered": sums.answered, "turned_away": sums.turned_away,
        "virtual_s": sums.virtual_us as f64 / 1e6, "kinds": sums.kinds,
        "findings": findings.collect::<Vec<_>>(),
    })
}
