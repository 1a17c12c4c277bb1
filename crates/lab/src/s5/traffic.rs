//! Owns the table of S5 over real traffic: a server of memcached's protocol and a closed loop of clients, both on our stack, with a
//! memory link between them; the variants take turns, round by round.

use super::{S5, VARIANTS};
use crate::bench::contender::Contender;
use crate::bench::crew::Shape;
use crate::bench::failure::Failure;
use crate::bench::machine;
use crate::bench::options::{Checksums, Cores, ReferencesName as Name};
use crate::bench::ours::Ours;
use crate::bench::outlet::AnyWay;
use crate::kv::Kv;
use crate::s3_ports::Ports;
use crate::wall;
use crate::wall::rows::{Row, Rows};
use laneway_stack::sharing::LaneOwned;
use std::time::Duration;

/// Rounds of each variant.
const ROUNDS: usize = 7;

/// Every variant, the product's too, through one indirect call.
type One = Ours<Kv, LaneOwned, LaneOwned, AnyWay>;

/// The rig of all variants: with two cores every host has two lanes, one on each, and both lanes use the same route.
pub fn shape(s5: &S5, cores: Cores) -> Shape {
    Shape {
        conns: s5.conns,
        cores,
        checksums: Checksums::Software,
        mtu: 1_500,
        msl_us: 1_000_000,
        ports: (32_768, 60_999),
        choice: Ports::Lane,
        ring_bytes: (s5.conns * 512).next_power_of_two().max(1 << 17),
        counters: false,
        buffer: None,
        ipv6: false,
        presized: false,
        is_virtual: false,
        segmentation: false,
        references: Name::Lane,
        attack: 0,
        attack_arrives: false,
    }
}

fn named(name: &str) -> Name {
    match name {
        "r0" => Name::R0,
        "r1" => Name::R1,
        "r2" => Name::R2,
        "r3" => Name::R3,
        "arc" => Name::Arc,
        _ => Name::Lane,
    }
}

/// All variants in turn.
pub fn run(s5: &S5, rows: &mut Rows) -> Result<(), Failure> {
    let time: Duration = s5.wall.time(1.0, 0.1)?;
    let names = s5.wall.variants(&VARIANTS)?;
    let cores = if machine::cores() < 2 { Cores::Same } else { Cores::Hashed };
    let lanes = if cores == Cores::Same { 1usize } else { 2 };
    let (kv, shape) = (Kv { gets: s5.ratio }, shape(s5, cores));
    let mut all: Vec<One> = Vec::new();
    for name in &names {
        all.push(One::new(name, &kv, &Shape { references: named(name), ..shape.clone() }, false)?);
    }
    let rounds = if s5.wall.quick { 1 } else { ROUNDS };
    let bar = wall::progress(names.len() * (rounds + 1));
    let mut before = Vec::new();
    for contender in &mut all {
        bar.set_message(format!("{} warms up", contender.who()));
        contender.warm_up()?;
        before.push(contender.tally());
        bar.inc(1);
    }
    let mut rates = vec![Vec::new(); all.len()];
    // By variant, in all rounds: compare-exchanges tried again, and seconds.
    let mut again = vec![(0, 0.0); all.len()];
    for _ in 0..rounds {
        for ((contender, rates), again) in all.iter_mut().zip(&mut rates).zip(&mut again) {
            bar.set_message(contender.who().to_owned());
            let round = contender.round(time)?;
            rates.push(round.rate());
            again.0 += round.shares.iter().map(|share| share.met.retries).sum::<u64>();
            again.1 += round.shares.iter().map(|share| share.wall_s).fold(0.0, f64::max);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let ratio = |a: u64, b: u64| if b > 0 { a as f64 / b as f64 } else { 0.0 };
    let base = names.iter().position(|name| *name == "r0").map(|at| rates[at].clone());
    let both = rates.into_iter().zip(again);
    for (((name, contender), (before, packets_before)), (rates, again)) in
        names.iter().zip(&mut all).zip(before).zip(both)
    {
        let (tally, packets) = contender.tally();
        let tally = tally.since(&before);
        let failed = contender.account().failed;
        if failed > 0 {
            return Err(Failure::Stuck(format!("{name}: {failed} requests were answered wrongly or not at all")));
        }
        let mut push = |row: Row| rows.push(row.at("lanes", lanes).at("ratio", format!("1:{}", s5.ratio).as_str()));
        Row::measured(name, "requests_per_s", f64::NAN, "requests").of_rounds(&rates).into_iter().for_each(&mut push);
        push(Row::counted(
            name,
            "shared_writes_per_packet",
            ratio(tally.shared_writes, packets - packets_before),
            "writes",
        ));
        push(Row::measured(name, "retries_per_op", ratio(tally.retries, tally.taken), "retries"));
        push(Row::measured(name, "cas_retries_per_s", again.0 as f64 / again.1, "retries"));
        if let Some(base) = &base {
            // Round by round, because what else the machine does changes between them.
            let times: Vec<f64> = rates.iter().zip(base).map(|(rate, base)| rate / base).collect();
            let row = Row::measured(name, "times_r0", f64::NAN, "").at("lanes", lanes);
            rows.rows.extend(row.of_rounds(&times));
        }
    }
    Ok(())
}
