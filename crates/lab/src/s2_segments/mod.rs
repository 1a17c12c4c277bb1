//! The second wall: Linux cut the last super-segment of every message in two, and half of what a small RPC cost went into
//! the second packet and its acknowledgement. Taking the cut out nearly took Nagle's rule with it.
//!
//! Request and response of 4096 bytes on many connections, under each of the [`rules`] that there have been and the
//! product's: counted and measured in [`memory`], counted for [`blocking`] sockets, drawn packet by packet by [`trace`], and against kernel sockets through a
//! TUN interface in [`kernel`].

mod blocking;
pub mod kernel;
mod memory;
mod rules;
mod trace;

use crate::bench::contender::Round;
use crate::bench::failure::Failure;
use crate::wall::page::{Chart, Page, Picture};
use crate::wall::rows::{Row, Rows};
use crate::wall::{self, WallOptions};
use clap::Args;
use laneway_proto::tcp::nagle::vectors;
use std::process::Command;

/// In the order of history, and the product once more: what differs between those two means nothing.
const VARIANTS: [&str; 6] = ["split", "v1", "v2", "refined", "lane", TWIN];
const TWIN: &str = "lane-aa";
/// As the seed's table has them: packets, octets of each, instructions, microseconds and context switches, for
/// each transaction at one host. 200 connections, 4096 bytes each way, on [`SEED_MACHINE`] with its network card.
const SEED: [(&str, [f64; 5]); 2] =
    [("before", [3.00, 1_417.0, 29_577.0, 36.6, 1.505]), ("after", [2.00, 2_099.0, 16_952.0, 19.1, 1.003])];

const SEED_MACHINE: &str = "Linux, 2013";

/// Packets of a small message: super-segments, and what holds their tail
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Example:\n  laneway-lab s2 --report s2.html\n  sudo laneway-lab s2 --conns 200 --json  # also through TUN, beside the kernel"
)]
pub struct S2 {
    #[command(flatten)]
    wall: WallOptions,
    /// Connections, each with one request under way
    #[arg(long, default_value_t = 200, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    conns: u32,
    /// Bytes of a request and of a response
    #[arg(long, default_value_t = 4_096, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    message: u32,
    /// The link in memory takes no super-packets: the lane cuts what it sends, and merges what arrives
    #[arg(long)]
    no_offload: bool,
    /// Leave out what runs under valgrind
    #[arg(long)]
    no_instructions: bool,
    /// Leave out the kernel as a peer, which needs root
    #[arg(long)]
    no_kernel: bool,
    /// Only these many operations in virtual time, for counting instructions
    #[arg(long, hide = true)]
    ops: Option<u64>,
}

impl S2 {
    fn conns(&self) -> usize {
        self.conns as usize
    }
    fn message(&self) -> usize {
        self.message as usize
    }
}

/// What is counted, for each transaction at one host.
pub struct Facts {
    packets: f64,
    octets_per_packet: f64,
    segments: f64,
    pure_acks: f64,
    piggybacked: f64,
    held: f64,
}

/// `laneway-lab s2`.
pub fn run(options: &S2) -> Result<(), Failure> {
    if let Some(ops) = options.ops {
        return memory::only_operations(options, ops);
    }
    let variants = options.wall.variants(&VARIANTS)?;
    let time = options.wall.time(1.0, 0.1)?;
    options.wall.check_report()?;
    let (ops, rounds) = if options.wall.quick { (2_000, 1) } else { (20_000, 5) };
    let unit = format!("transactions of {} bytes each way, {} connections", options.message, options.conns);
    let mut rows = Rows::new(Some(&unit));
    rows.remark("packets, octets, instructions and microseconds are those of one host for each transaction; in memory both hosts share a core, and through the kernel microseconds and switches are those of the whole machine, client included");

    // What is counted comes out the same of the twin.
    let counted: Vec<&'static str> = variants.iter().copied().filter(|name| *name != TWIN).collect();
    for name in &counted {
        let facts = memory::counted(options, name, ops)?;
        let mut push = |metric, value, unit| rows.push(Row::counted(name, metric, value, unit).at("device", "memory"));
        push("ip_packets_per_txn", facts.packets, "packets");
        push("octets_per_packet", facts.octets_per_packet, "octets");
        push("segments_per_txn", facts.segments, "segments");
        push("pure_acks_per_txn", facts.pure_acks, "packets");
        push("piggybacked_acks_per_txn", facts.piggybacked, "acks");
        push("held_per_txn", facts.held, "segments");
        push("vectors_failed", vectors_failed(name) as f64, "vectors");
    }
    if variants.contains(&"lane") {
        let (packets, octets) = blocking::counted(options.conns(), options.message(), ops)?;
        let at = |row: Row| row.at("device", "memory").at("sockets", "blocking");
        rows.push(at(Row::counted("lane", "ip_packets_per_txn", packets, "packets")));
        rows.push(at(Row::counted("lane", "octets_per_packet", octets, "octets")));
    }
    count_instructions(options, &counted, &mut rows);
    let results = memory::measured(options, &variants, time, rounds)?;
    for (name, rounds) in variants.iter().zip(&results) {
        let mut push = |metric, of: fn(&Round) -> f64, unit| {
            let row = Row::measured(name, metric, f64::NAN, unit).at("device", "memory");
            rows.rows.extend(row.of_rounds(&each(rounds, of)));
        };
        push("txns_per_s", Round::rate, "transactions/s");
        push("cpu_us_per_txn", |round| round.cpu_us_per_op() / 2.0, "us");
    }
    let through_the_kernel = through_the_kernel(options, &variants, time.as_secs_f64(), rounds, &mut rows);
    for (name, seed) in SEED {
        // Processor counters, clocks and nstat: all of it measured, and not here.
        let metrics = [
            ("ip_packets_per_txn", "packets"),
            ("octets_per_packet", "octets"),
            ("instructions_per_txn", "instructions"),
            ("cpu_us_per_txn", "us"),
            ("context_switches_per_txn", "switches"),
        ];
        for ((metric, unit), value) in metrics.into_iter().zip(seed) {
            let row = Row::measured(name, metric, value, unit).at("device", "network card");
            rows.push(row.published(SEED_MACHINE));
        }
    }
    let mut traces = Vec::new();
    for name in variants.iter().filter(|name| ["split", "refined", "lane"].contains(name)) {
        let lines = trace::of(name, options.message())?;
        traces.push(format!("One transaction under {name}:\n  {}", lines.join("\n  ")));
    }
    rows.remarks.extend(traces.iter().cloned());
    let page = page(&rows, &traces);
    wall::finish(&options.wall, &rows, &page)?;
    through_the_kernel
}

fn vectors_failed(name: &str) -> usize {
    match name {
        "split" => vectors::failures::<rules::Split>().len(),
        "v1" => vectors::failures::<rules::V1>().len(),
        "v2" => vectors::failures::<rules::V2>().len(),
        "refined" => vectors::failures::<rules::Refined>().len(),
        _ => vectors::failures::<laneway_proto::tcp::nagle::Lane>().len(),
    }
}

fn count_instructions(options: &S2, variants: &[&'static str], rows: &mut Rows) {
    if options.no_instructions {
        return;
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        return rows.remark("instructions are not counted: valgrind is missing ('apt-get install valgrind')");
    }
    let ops = if options.wall.quick { 500 } else { 5_000 };
    let bar = wall::progress(variants.len());
    for name in variants {
        bar.set_message(format!("{name} under callgrind"));
        match memory::instructions(options, name, ops) {
            Ok(n) => rows.push(Row::counted(name, "instructions_per_txn", n, "instructions").at("device", "memory")),
            Err(why) => return rows.remark(format!("instructions are not counted: {why}")),
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
}

fn through_the_kernel(
    options: &S2,
    variants: &[&str],
    seconds: f64,
    rounds: usize,
    rows: &mut Rows,
) -> Result<(), Failure> {
    if options.no_kernel {
        return Ok(());
    }
    let all = match kernel::measure(options.conns(), options.message(), seconds, rounds, variants)? {
        Ok(all) => all,
        Err(why) => {
            rows.remark(why);
            return Ok(());
        }
    };
    for one in all {
        let most = |value: fn(&kernel::Outcome) -> f64| one.rounds.iter().map(value).fold(0.0, f64::max);
        let device = if one.variant == "kernel" { "veth" } else { "tun" };
        let measured = |metric, value, unit| Row::measured(&one.variant, metric, value, unit).at("device", device);
        let mut push = |metric, of: fn(&kernel::Outcome) -> f64, unit| {
            rows.rows.extend(measured(metric, f64::NAN, unit).of_rounds(&each(&one.rounds, of)));
        };
        push("ip_packets_per_txn", |o| o.packets, "packets");
        push("octets_per_packet", |o| o.octets, "octets");
        push("txns_per_s", |o| o.txns_per_s, "transactions/s");
        push("txns_per_busy_cpu_s", |o| o.txns_per_s / o.busy.max(1e-9), "transactions/s");
        push("cpu_us_per_txn", |o| o.busy * 1e6 / o.txns_per_s, "us");
        push("context_switches_per_txn", |o| o.switches, "switches");
        push("stream_in_mbytes_per_s", |o| o.sink * 1e-6, "MB/s");
        push("stream_out_mbytes_per_s", |o| o.source * 1e-6, "MB/s");
        rows.push(measured("longest_ms", most(|o| o.longest_ms), "ms"));
        rows.push(measured("longest_write_write_read_ms", most(|o| o.longest_in_two_ms), "ms"));
    }
    Ok(())
}

fn each<T>(all: &[T], of: impl Fn(&T) -> f64) -> Vec<f64> {
    all.iter().map(of).collect()
}

fn page(rows: &Rows, traces: &[String]) -> Page {
    let bars = |metric: &str| -> Vec<(String, f64)> {
        let name = |row: &Row| {
            let axes: Vec<String> = row.axes.iter().map(|(_, at)| at.to_string()).collect();
            format!("{}, {}", row.variant, axes.join(", "))
        };
        rows.only(&[metric]).into_iter().map(|row| (name(row), row.value)).collect()
    };
    let picture = |title: &str, caption: &str, x: &str, metrics: &[&str]| Picture {
        title: title.to_owned(),
        caption: caption.to_owned(),
        chart: Chart::Bars { x: x.to_owned(), bars: bars(metrics[0]) },
        rows: rows.only(metrics).into_iter().cloned().collect(),
    };
    let mut words = vec![
        "A message of a few segments used to leave as two packets: its full segments, and the rest. Each packet is a walk through both stacks, and the first one is worth an acknowledgement of its own.".to_owned(),
        "The rules differ in what they do with the rest; the product's also lets the acknowledgement wait for the answer that the application gives in the same turn.".to_owned(),
    ];
    words.extend(traces.iter().cloned());
    let mut pictures = vec![picture(
        "IP packets for each transaction",
        "Sent by one host, super-segments whole. The seed's figures are those of its own machine.",
        "packets",
        &["ip_packets_per_txn", "octets_per_packet", "pure_acks_per_txn", "segments_per_txn"],
    )];
    if !rows.only(&["instructions_per_txn"]).is_empty() {
        pictures.push(picture(
            "Instructions for each transaction",
            "One host's, in user space where it is ours; the seed's are the kernel's.",
            "instructions",
            &["instructions_per_txn"],
        ));
    }
    pictures.push(picture(
        "Processor time for each transaction",
        "In memory: of one host. Through TUN and veth: of the whole machine, client included.",
        "us",
        &["cpu_us_per_txn", "txns_per_s", "context_switches_per_txn"],
    ));
    Page { title: "One packet for a small message".to_owned(), words, pictures }
}
