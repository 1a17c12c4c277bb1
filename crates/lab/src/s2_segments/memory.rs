//! Owns the wall in memory: both ends on one core, request and response on open connections, each rule in the product's
//! place; packets counted in virtual time, processor time measured, instructions under callgrind.

use super::rules::{Refined, Ruled, Split, V1, V2};
use super::{Facts, S2};
use crate::bench::contender::{Contender, Round};
use crate::bench::crew::Shape;
use crate::bench::deterministic::{self, Counted};
use crate::bench::failure::Failure;
use crate::bench::options::{Checksums, Cores};
use crate::bench::ours::Ours;
use crate::bench::rr::Rr;
use crate::s3_ports::Ports;
use crate::wall;
use laneway_device::memory::LinkTx;
use laneway_stack::counters::Mib;
use laneway_stack::sharing::LaneOwned;
use std::process::Command;
use std::time::Duration;

/// Operations before those that are counted, for each connection: until every connection has used up its quick ACKs.
const WARM_UP: u64 = 40;
/// Virtual microseconds of a turn.
const TURN_US: u64 = 4;

/// Runs generic code for a variant by its name.
macro_rules! by_name {
    ($name:expr, $call:ident ( $($argument:expr),* )) => {
        match $name {
            "split" => $call::<Ruled<Split>>($($argument),*),
            "v1" => $call::<Ruled<V1>>($($argument),*),
            "v2" => $call::<Ruled<V2>>($($argument),*),
            "refined" => $call::<Ruled<Refined>>($($argument),*),
            _ => $call::<LaneOwned>($($argument),*),
        }
    };
}
pub(super) use by_name;

fn shape(options: &S2, is_virtual: bool) -> Shape {
    Shape {
        conns: options.conns(),
        cores: Cores::Same,
        checksums: Checksums::Offload,
        mtu: 1_500,
        msl_us: 30_000_000,
        ports: (32_768, 60_999),
        // Every connection's message may be under way at once.
        ring_bytes: ((options.message() + 8_192) * options.conns() * 2).next_power_of_two().max(1 << 20),
        buffer: None,
        counters: false,
        ipv6: false,
        presized: false,
        is_virtual,
        segmentation: !options.no_offload,
        references: crate::bench::options::ReferencesName::Lane,
        attack: 0,
        attack_arrives: false,
        choice: Ports::Lane,
    }
}

fn count<S: laneway_stack::sharing::Sharing>(options: &S2, ops: u64) -> Result<Counted, Failure> {
    let warm_up = WARM_UP * u64::from(options.conns);
    deterministic::count::<Rr, S, LinkTx>(
        &Rr::new(Some(options.message())),
        &shape(options, true),
        ops,
        warm_up,
        TURN_US,
    )
}

/// What is the same on every machine: packets, octets, segments, acknowledgements.
pub fn counted(options: &S2, variant: &str, ops: u64) -> Result<Facts, Failure> {
    let counted = by_name!(variant, count(options, ops))?;
    // Both ends were counted, and both do the same.
    let per_host = |mib| counted.grown(mib) as f64 / counted.ops as f64 / 2.0;
    let packets = counted.grown(Mib::IpOutRequests) as f64;
    Ok(Facts {
        packets: per_host(Mib::IpOutRequests),
        octets_per_packet: counted.grown(Mib::IpExtOutOctets) as f64 / packets,
        segments: per_host(Mib::TcpOutSegs),
        pure_acks: per_host(Mib::TcpAcksPure),
        piggybacked: per_host(Mib::TcpAcksPiggybacked),
        held: per_host(Mib::TcpHeldSmall),
    })
}

/// For `--ops`: only what callgrind is to count.
pub fn only_operations(options: &S2, ops: u64) -> Result<(), Failure> {
    let variant = options.wall.variant.first().map_or("lane", String::as_str);
    let counted = by_name!(variant, count(options, ops))?;
    println!("ops {}", counted.ops);
    Ok(())
}

/// Instructions of a transaction at one end, by starting this program again under callgrind.
pub fn instructions(options: &S2, variant: &str, ops: u64) -> Result<f64, Failure> {
    let exe =
        std::env::current_exe().map_err(|error| Failure::Machine(format!("cannot find this program: {error}")))?;
    let out = std::env::temp_dir().join(format!("laneway-lab-{}-{variant}.callgrind", std::process::id()));
    let mut command = Command::new("valgrind");
    command.args(["--quiet", "--tool=callgrind", "--toggle-collect=*counted_operations*"]);
    command.arg(format!("--callgrind-out-file={}", out.display())).arg(exe);
    command.args(["s2", "--variant", variant, "--ops", &ops.to_string()]);
    command.args(["--conns", &options.conns.to_string(), "--message", &options.message.to_string()]);
    if options.no_offload {
        command.arg("--no-offload");
    }
    let output = command.output().map_err(|error| Failure::Machine(format!("valgrind cannot be started: {error}")))?;
    let text = std::fs::read_to_string(&out).unwrap_or_default();
    let _ = std::fs::remove_file(&out);
    let total = text.lines().find_map(|line| line.strip_prefix("summary: ").or_else(|| line.strip_prefix("totals: ")));
    let total = total.and_then(|n| n.trim().parse::<u64>().ok());
    let done: Option<u64> =
        String::from_utf8_lossy(&output.stdout).lines().find_map(|line| line.strip_prefix("ops ")?.parse().ok());
    match (total, done) {
        (Some(total), Some(done)) if done > 0 => Ok(total as f64 / done as f64 / 2.0),
        _ => Err(Failure::Machine(format!(
            "valgrind counted nothing: {}",
            String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or("it said nothing")
        ))),
    }
}

fn contender<S: laneway_stack::sharing::Sharing>(
    options: &S2,
    name: &'static str,
) -> Result<Box<dyn Contender>, Failure> {
    let work = Rr::new(Some(options.message()));
    Ok(Box::new(Ours::<Rr, S>::new(name, &work, &shape(options, false), false)?))
}

/// Rounds of every variant, in turn.
pub fn measured(
    options: &S2,
    variants: &[&'static str],
    time: Duration,
    rounds: usize,
) -> Result<Vec<Vec<Round>>, Failure> {
    let mut all = Vec::new();
    for name in variants.iter().copied() {
        all.push(by_name!(name, contender(options, name))?);
    }
    let bar = wall::progress(variants.len() * (rounds + 1));
    for contender in &mut all {
        bar.set_message(format!("{} warms up", contender.who()));
        contender.warm_up()?;
        bar.inc(1);
    }
    let mut results: Vec<Vec<Round>> = all.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        for (contender, results) in all.iter_mut().zip(&mut results) {
            bar.set_message(contender.who().to_owned());
            results.push(contender.round(time)?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(results)
}
