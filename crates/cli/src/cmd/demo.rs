//! `laneway demo`: connections made and closed on an in-memory network, beside the kernel doing the same over its loopback.
//!
//! Both do the same work in turn, 1.5 s at a time: connect, send a request of 92 bytes, receive a response of 206, close; the
//! server closes first. On each core one thread holds both ends. Every rule is on, and `TIME_WAIT` is kept.

mod kernel;
mod ours;

use crate::ask::Out;
use crate::failure::Failure;
use crate::parse;
use crate::settings;
use indicatif::{ProgressBar, ProgressStyle};
use laneway::on_lane::Config;
use laneway_stack::runtime::cores;
use serde_json::json;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::time::Duration;

/// What a client asks, in bytes: what `curl` sends for a short address.
pub const REQUEST: usize = 92;
/// What a server answers, in bytes.
pub const RESPONSE: usize = 206;

/// Shows connections being made on an in-memory network, both ends, beside Linux doing the same over its loopback.
///
/// Takes less than a minute and no privileges.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  laneway demo\n  laneway demo --conns 1000 --rounds 3 --json\n  laneway demo --pcap demo.pcapng --seconds 0.1"
)]
pub struct Args {
    /// Connections open at a time, on each core.
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = parse::number::<u32>(1..=20_000))]
    conns: u32,
    /// Cores to use, each with both ends on it [default: all]
    #[arg(long, value_name = "N", value_parser = parse::number::<usize>(1..=u64::MAX))]
    cores: Option<usize>,
    /// Rounds: in each, Laneway and the kernel have their turn.
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = parse::number::<u32>(1..=100))]
    rounds: u32,
    /// Seconds of each turn.
    #[arg(long, default_value_t = 1.5, value_name = "S", value_parser = parse::turn_seconds)]
    seconds: f64,
    /// Maximum segment lifetime of Laneway: TIME_WAIT lasts twice as long [default: 1s, or what --config says]
    #[arg(long, value_name = "TIME", value_parser = parse::msl_us, allow_hyphen_values = true)]
    msl: Option<u64>,
    /// Settings of Laneway; see `laneway config --help`. What it says of the interface is not used here.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Write every frame of the in-memory network into this pcapng file. Slow, and large.
    #[arg(long, value_name = "FILE", value_parser = parse::capture())]
    pcap: Option<PathBuf>,
    /// Only Laneway: leave the kernel out.
    #[arg(long)]
    alone: bool,
    /// Say the result as JSON.
    #[arg(long)]
    json: bool,
}

/// What one thread did in one turn.
#[derive(Clone, Copy, Default, Debug)]
pub struct Tally {
    /// Connections that ended as they should.
    pub done: u64,
    /// Connections that did not.
    pub failed: u64,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// CPU time of the thread, in seconds; for the kernel its softirq work on this thread included.
    pub cpu_seconds: f64,
}

/// Runs the rounds, and says who did how much.
pub fn run(mut args: Args) -> Result<(), Failure> {
    let usable = cores();
    let count = args.cores.unwrap_or(usable.len()).max(1);
    if count > usable.len().max(1) {
        return Err(Failure::Misuse(format!("{count} cores are not there: this process may use {}", usable.len())));
    }
    if !args.alone
        && let Err((needed, most)) = kernel::make_room(count, args.conns as usize)
    {
        return Err(Failure::Misuse(format!(
            "the kernel's half needs {needed} open files, and this process may have {most}: choose fewer with --conns or --cores, raise the limit with `ulimit -n`, or leave that half out with --alone"
        )));
    }
    let mut config = Config::default();
    config.tcp.msl_us = 1_000_000;
    if let Some(path) = &args.config {
        let settings = settings::read(path)?;
        let has_msl = settings.lines.contains_key("msl");
        let msl_us = if has_msl { settings.config.tcp.msl_us } else { config.tcp.msl_us };
        config = settings.config;
        config.tcp.msl_us = msl_us;
    }
    if let Some(msl) = args.msl {
        config.tcp.msl_us = msl;
    }
    args.msl = Some(config.tcp.msl_us);
    let bar = progress(&args);
    let turn = Duration::from_secs_f64(args.seconds);
    let capture = match &args.pcap {
        Some(path) => Some(ours::capture(path)?),
        None => None,
    };
    let settings = ours::Settings { conns: args.conns as usize, config, capture: capture.clone() };
    let mut workers = Vec::new();
    for core in 0..count {
        let settings = settings.clone();
        let ((order, orders), (tell, told)) = (channel(), channel());
        let (alone, pin) = (args.alone, usable.get(core).copied());
        let worker = std::thread::Builder::new().name(format!("core-{core}"));
        let worker = worker.spawn(move || {
            if let Some(pin) = pin {
                laneway_stack::runtime::pin_to(pin);
            }
            let mut ours = ours::Pair::new(core, &settings);
            let mut kernel = (!alone).then(|| kernel::Pair::new(core, settings.conns));
            for who in orders {
                let tally = match &mut kernel {
                    Some(kernel) if who == KERNEL => {
                        kernel.as_mut().map_err(|e| e.clone()).and_then(|pair| pair.run(turn))
                    }
                    _ => Ok(ours.run(turn)),
                };
                let _ = tell.send(tally);
            }
            ours.facts()
        });
        let worker = worker.map_err(|error| Failure::Failed(format!("no thread can be had: {error}")))?;
        workers.push((worker, order, told));
    }

    let mut rounds: [Vec<f64>; 2] = Default::default();
    let mut totals = [Tally::default(); 2];
    let mut kernel_error = None;
    let mut out = Out::new();
    for round in 0..args.rounds {
        for who in 0..if args.alone { KERNEL } else { KERNEL + 1 } {
            bar.set_message(format!("round {} of {}: {}", round + 1, args.rounds, NAMES[who]));
            let mut rate = 0.0;
            // A turn begins on all cores at once, and when it has ended on all: nobody disturbs the other's. One who cannot hear has ended.
            workers.iter().for_each(|(_, order, _)| _ = order.send(who));
            for (_, _, told) in &workers {
                match wait_for(told, &bar) {
                    Ok(tally) => {
                        rate += tally.done as f64 / tally.seconds;
                        totals[who].done += tally.done;
                        totals[who].failed += tally.failed;
                        totals[who].seconds += tally.seconds;
                        totals[who].cpu_seconds += tally.cpu_seconds;
                    }
                    Err(error) => kernel_error = Some(error),
                }
            }
            rounds[who].push(rate);
            if kernel_error.is_none() {
                let line = format!("  round {}  {:<22} {:>12} connections/s", round + 1, NAMES[who], thousands(rate));
                match (args.json, bar.is_hidden()) {
                    (true, _) => {}
                    (false, true) => {
                        out.line(line)?;
                        out.flush()?;
                    }
                    (false, false) => bar.println(line),
                }
            }
        }
    }
    let mut facts = ours::Facts::default();
    for (worker, order, _) in workers {
        drop(order);
        let more = worker
            .join()
            .map_err(|_| Failure::Failed("a worker of the demo failed; what it said stands above".into()))?;
        facts.merge(&more);
    }
    bar.finish_and_clear();
    if let Some(capture) = capture {
        capture.flush().map_err(|error| Failure::Failed(format!("the capture could not be written: {error}")))?;
    }
    if let Some(error) = kernel_error {
        return Err(Failure::Failed(format!(
            "the kernel's half could not be run: {error}; `laneway demo --alone` leaves it out"
        )));
    }
    report(&args, count, &rounds, &totals, &facts, &mut out)?;
    let failed: u64 = totals.iter().map(|t| t.failed).sum();
    if failed > 0 {
        return Err(Failure::Failed(format!("{failed} connections did not end as they should")));
    }
    if totals[0].done == 0 {
        return Err(Failure::Failed(
            "Laneway has made no connection: take longer turns with --seconds, or look at what --config says of local ports".into(),
        ));
    }
    Ok(())
}

const NAMES: [&str; 2] = ["Laneway", "Linux loopback"];
/// Its place among them.
const KERNEL: usize = 1;

fn progress(args: &Args) -> ProgressBar {
    if args.json || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let turns = if args.alone { 1.0 } else { 2.0 };
    let bar = ProgressBar::new((args.seconds * 1e3 * turns * f64::from(args.rounds)) as u64);
    if let Ok(style) = ProgressStyle::with_template("{spinner} [{bar:40}] {msg}") {
        bar.set_style(style.progress_chars("█▌ "));
    }
    bar
}

fn wait_for(told: &std::sync::mpsc::Receiver<Result<Tally, String>>, bar: &ProgressBar) -> Result<Tally, String> {
    const STEP: Duration = Duration::from_millis(50);
    loop {
        match told.recv_timeout(STEP) {
            Ok(tally) => return tally,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => bar.inc(STEP.as_millis() as u64),
            Err(_) => return Err("a worker has ended early".into()),
        }
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

fn report(
    args: &Args,
    cores: usize,
    rounds: &[Vec<f64>; 2],
    totals: &[Tally; 2],
    facts: &ours::Facts,
    out: &mut Out,
) -> Result<(), Failure> {
    let shown = if args.alone { 1 } else { 2 };
    let per_conn = |who: usize| totals[who].cpu_seconds * 1e6 / totals[who].done.max(1) as f64;
    if args.json {
        let rows: Vec<_> = (0..shown)
            .map(|who| {
                json!({"who": if who == 0 { "laneway" } else { "linux" }, "cores": cores, "conns": args.conns, "ops_per_s": median(&rounds[who]),
                    "ops_per_s_per_core": median(&rounds[who]) / cores as f64, "cpu_us_per_op": per_conn(who), "done": totals[who].done,
                    "failed": totals[who].failed, "rounds": rounds[who]})
            })
            .collect();
        let facts = json!({"connections": facts.connections, "packets_per_op": facts.packets_per_connection(), "tw_evicted": facts.evicted, "tw_reused": facts.reused, "tw_peak": facts.peak, "msl_us": args.msl.unwrap_or_default(), "retransmitted": facts.retransmitted, "source_addresses": facts.sources, "checksums": "software"});
        out.line(json!({"unit": "connections/s", "rows": rows, "laneway": facts}))?;
        return out.flush();
    }
    out.line("")?;
    out.line(format_args!(
        "Connect, {REQUEST} bytes there, {RESPONSE} bytes back, close; {} at a time on each of {cores} cores, both ends on the same core:",
        args.conns
    ))?;
    out.line("")?;
    out.line(format_args!("  {:<22} {:>16} {:>16} {:>22}", "", "connections/s", "per core", "CPU µs per connection"))?;
    for who in 0..shown {
        let rate = median(&rounds[who]);
        out.line(format_args!(
            "  {:<22} {:>16} {:>16} {:>22.2}",
            NAMES[who],
            thousands(rate),
            thousands(rate / cores as f64),
            per_conn(who)
        ))?;
    }
    if !args.alone {
        out.line(format_args!("  {:<22} {:>15.1}×", "", median(&rounds[0]) / median(&rounds[1]).max(1.0)))?;
    }
    out.line("")?;
    out.line(format_args!(
        "  Laneway: {:.2} packets per connection, checksums in software, {} connections in all, {} retransmitted,",
        facts.packets_per_connection(),
        thousands(facts.connections as f64),
        facts.retransmitted
    ))?;
    out.line(format_args!(
        "  TIME_WAIT for {} ms: at most {} records, {} evicted early, {} tuples used again (RFC 6191), {} source addresses.",
        2 * args.msl.unwrap_or_default() / 1_000,
        thousands(facts.peak as f64),
        facts.evicted,
        thousands(facts.reused as f64),
        facts.sources
    ))?;
    out.flush()
}

fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
