//! Owns the wall S3: choosing a port for `connect` as the range fills up. What was found in 2011, what came of it, what we
//! do, and what this machine's kernel does, on the same axes. `docs/walls/s3.md` tells it in order.

pub mod kernel;
mod model;
mod occupancy;
mod picture;
mod rig;
mod seed;
mod series;
pub mod sharing;

use crate::bench::failure::Failure;
use crate::s3_ports::Ports;
use crate::wall::page::Page;
use crate::wall::rows::Rows;
use crate::wall::{self, WallOptions};
use clap::Args;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  # A connect at 0 to 100 % of the ports taken, beside this machine's kernel:
  laneway-lab s3
  laneway-lab s3 --variant lane,b3 --destinations 1
  laneway-lab s3 --series  # 37 seconds of one client hammering one server
  laneway-lab s3 --false-sharing  # two cores on adjacent locks, a model of 24
  laneway-lab s3 --all --report report.html  # everything, with pictures

The kernel is measured in a network namespace of its own, which needs root or
the right to make one (user namespaces); without it everything else is measured.
Times include two readings of the clock, which are said.
What each metric means is in docs/walls/s3.md.";

/// Everything that can be asked for by name, in the order in which it takes its turns.
const VARIANTS: [&str; 7] = ["lane", "lane-aa", "b0", "b1", "b2", "b3", "kernel"];
/// In percent of the ports.
const LEVELS: [u32; 9] = [0, 10, 25, 50, 75, 90, 95, 99, 100];
/// The first port of a range that is given by its size; Linux's default begins there too.
const FIRST: u16 = 32_768;

/// `laneway-lab s3`
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct S3 {
    #[command(flatten)]
    options: WallOptions,
    /// Ports from 32768 on [default: 28232 as Linux, shared out among several destinations; with --quick 2048]
    #[arg(long, value_name = "PORTS")]
    range: Option<u32>,
    /// Ports that the kernel gets, because connections are files [default: 16000, shared out among several destinations]
    #[arg(long, value_name = "PORTS")]
    kernel_range: Option<u32>,
    /// Destinations to connect to; several numbers make several measurements
    #[arg(long, value_name = "N[,N…]", value_delimiter = ',', default_value = "1,4")]
    destinations: Vec<usize>,
    /// Occupancies in percent [default: 0,10,25,50,75,90,95,99,100]
    #[arg(long, value_name = "P[,P…]", value_delimiter = ',')]
    occupancy: Vec<u32>,
    /// Connects that are timed at each occupancy, if --seconds (1) are enough for them [default: 2000; with --quick 100]
    #[arg(long, value_name = "N")]
    samples: Option<usize>,
    /// Which connection makes room after a connect was timed
    #[arg(long, value_enum, default_value_t = occupancy::Closing::Random)]
    closing: occupancy::Closing,
    /// One client hammers one server that closes first, for 37 seconds or --seconds: lane, or each --variant
    #[arg(long)]
    series: bool,
    /// Connections per second of the series [default: 0.8 × ports / reuse delay]
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// Least age of a TIME_WAIT record that gives way to a new connection, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1_000)]
    reuse_delay: u32,
    /// Two pinned threads on adjacent locks, and a model of 24 cores
    #[arg(long)]
    false_sharing: bool,
    /// Occupancy, series and false sharing, one after the other
    #[arg(long)]
    all: bool,
}

/// An even number for each, so that there are as many even ports as odd ones.
fn shared_out(all: u32, destinations: usize) -> u32 {
    ((all / destinations.max(1) as u32) & !1).max(64)
}

fn misuse<T>(text: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::Misuse(text.into()))
}

impl S3 {
    /// What clap cannot check.
    fn check(&self) -> Result<(), Failure> {
        for (option, range) in [("--range", self.range), ("--kernel-range", self.kernel_range)] {
            if let Some(range) = range
                && !(64..=32_768).contains(&range)
            {
                return misuse(format!("{option} must be 64 to 32768 ports (they begin at {FIRST}), not {range}"));
            }
        }
        if let Some(wrong) = self.destinations.iter().find(|n| !(1..=rig::DESTINATIONS_MAX).contains(*n)) {
            return misuse(format!("--destinations must be 1 to {}, not {wrong}", rig::DESTINATIONS_MAX));
        }
        let connections = self.destinations.iter().map(|most| most * self.ports(*most) as usize).max().unwrap_or(0);
        if connections > 500_000 {
            return misuse(format!(
                "--destinations times --range is {connections} connections; take at most 500000, every variant has its own"
            ));
        }
        if let Some(wrong) = self.occupancy.iter().find(|percent| **percent > 100) {
            return misuse(format!("--occupancy must be 0 to 100 percent, not {wrong}"));
        }
        if self.samples.is_some_and(|samples| !(1..=1_000_000).contains(&samples)) {
            return misuse("--samples must be 1 to 1000000");
        }
        if let Some(rate) = self.rate
            && !(1.0..=1e6).contains(&rate)
        {
            return misuse(format!("--rate must be 1 to 1000000 connections per second, not {rate}"));
        }
        if !(1..=60_000).contains(&self.reuse_delay) {
            return misuse(format!("--reuse-delay must be 1 to 60000 milliseconds, not {}", self.reuse_delay));
        }
        if self.series && self.ours()?.is_empty() {
            return misuse(
                "--series hammers a server of ours, not the kernel's: take one of lane, lane-aa, b0, b1, b2, b3",
            );
        }
        if self.false_sharing && !self.all && !self.series && !self.options.variant.is_empty() {
            return misuse("--false-sharing is of b0 and b1, side by side: leave out --variant");
        }
        self.options.variants(&VARIANTS).map(drop)
    }

    /// Ports towards each of so many destinations. The old ways take a time that grows with the square of it to fill.
    fn ports(&self, destinations: usize) -> u32 {
        let all = if self.options.quick { 2_048 } else { 28_232 };
        self.range.unwrap_or_else(|| shared_out(all, destinations))
    }

    fn range(&self, destinations: usize) -> (u16, u16) {
        (FIRST, (u32::from(FIRST) + self.ports(destinations) - 1) as u16)
    }

    fn levels(&self) -> Vec<u32> {
        let mut levels = if self.occupancy.is_empty() { LEVELS.to_vec() } else { self.occupancy.clone() };
        levels.sort_unstable();
        levels.dedup();
        levels
    }

    fn samples(&self) -> usize {
        self.samples.unwrap_or(if self.options.quick { 100 } else { 2_000 })
    }

    /// The variants that are of our own making.
    fn ours(&self) -> Result<Vec<(&'static str, Ports)>, Failure> {
        let names = self.options.variants(&VARIANTS)?;
        let of = |name: &'static str| Some((name, Ports::named(name.strip_suffix("-aa").unwrap_or(name))?));
        Ok(names.into_iter().filter_map(of).collect())
    }

    fn wants_kernel(&self) -> Result<bool, Failure> {
        Ok(self.options.variants(&VARIANTS)?.contains(&"kernel"))
    }
}

/// Runs what was asked for, and gives it out.
pub fn run(s3: &S3) -> Result<(), Failure> {
    s3.check()?;
    s3.options.check_report()?;
    let mut rows = Rows::new(Some("connects"));
    let mut page = Page::new("S3: choosing a port for connect()");
    page.words = picture::words();
    if s3.all || !(s3.series || s3.false_sharing) {
        occupancy(s3, &mut rows, &mut page)?;
    }
    if s3.all || s3.series {
        series(s3, &mut rows, &mut page)?;
    }
    if s3.all || s3.false_sharing {
        sharing(s3, &mut rows, &mut page)?;
    }
    wall::finish(&s3.options, &rows, &page)
}

fn occupancy(s3: &S3, rows: &mut Rows, page: &mut Page) -> Result<(), Failure> {
    let mut plans = occupancy::Plans {
        variants: s3.ours()?,
        levels: s3.levels(),
        range: s3.range(1),
        samples: s3.samples(),
        time: s3.options.time(1.0, 0.2)?,
        closing: s3.closing,
    };
    let kernel = s3.wants_kernel()?;
    let steps = (plans.variants.len() + usize::from(kernel)) * plans.levels.len() * s3.destinations.len();
    let progress = wall::progress(steps);
    let clock_ns = occupancy::clock_ns();
    for &destinations in &s3.destinations {
        plans.range = s3.range(destinations);
        if !plans.variants.is_empty() {
            occupancy::run(&plans, destinations, rows, &progress)?;
        }
        if kernel {
            let all = if s3.options.quick { 1_024 } else { 16_000 };
            let asked = kernel::Asked {
                range: s3.kernel_range.unwrap_or_else(|| shared_out(all, destinations)),
                destinations,
                levels: plans.levels.clone(),
                samples: plans.samples,
                time: plans.time,
                closing: plans.closing,
            };
            if let Err(why) = progress.suspend(|| kernel::measure(&asked, rows)) {
                progress.suspend(|| rows.remark(format!("the kernel is left out: {why}")));
            }
            progress.inc(plans.levels.len() as u64);
        }
    }
    progress.finish_and_clear();
    rows.remark(format!("every time contains two readings of the clock, {clock_ns:.0} ns together"));
    for remark in picture::findings(rows, &s3.destinations) {
        rows.remark(remark);
    }
    picture::occupancy(rows, &s3.destinations, page);
    Ok(())
}

fn series(s3: &S3, rows: &mut Rows, page: &mut Page) -> Result<(), Failure> {
    let seconds = s3.options.time(37.0, 3.0)?;
    let asked = series::Asked {
        variants: s3
            .ours()?
            .into_iter()
            .filter(|(name, _)| !s3.options.variant.is_empty() || *name == "lane")
            .collect(),
        range: s3.range(1),
        reuse_delay_ms: s3.reuse_delay,
        rate: s3.rate.unwrap_or(0.8 * f64::from(s3.ports(1)) * 1e3 / f64::from(s3.reuse_delay)),
        seconds: (seconds.as_secs_f64().round() as usize).max(2),
    };
    series::run(&asked, rows)?;
    picture::series(rows, asked.rate, page);
    Ok(())
}

fn sharing(s3: &S3, rows: &mut Rows, page: &mut Page) -> Result<(), Failure> {
    let time: Duration = s3.options.time(1.0, 0.05)?;
    let measured = sharing::run(time, rows);
    model::run(&measured, rows);
    picture::sharing(rows, page);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        s3: S3,
    }

    fn said(line: &str) -> Result<S3, String> {
        let s3 = Line::try_parse_from(format!("s3 {line}").split_whitespace()).map_err(|e| e.to_string())?.s3;
        s3.check().map(|()| s3).map_err(|e| e.to_string())
    }

    #[test]
    fn misuse_is_refused_with_a_sentence_that_says_what_would_be_right() {
        for (line, says) in [
            ("--range 10", "64 to 32768"),
            ("--kernel-range 40000", "64 to 32768"),
            ("--destinations 0", "1 to 200"),
            ("--destinations 200 --range 28232", "at most 500000"),
            ("--occupancy 101", "0 to 100"),
            ("--samples 0", "1 to 1000000"),
            ("--rate 0", "1 to 1000000"),
            ("--reuse-delay 0", "1 to 60000"),
            ("--variant b4", "take one of lane, lane-aa, b0"),
        ] {
            let message = said(line).expect_err(line);
            assert!(message.contains(says), "{line}: {message}");
        }
    }

    #[test]
    fn what_is_not_asked_for_is_as_in_the_seed_and_in_linux() {
        let s3 = said("").expect("no options are fine");
        assert_eq!((s3.range(1), s3.levels().len()), ((32_768, 60_999), 9));
        assert_eq!(s3.ours().expect("all").len(), 6);
        assert!(s3.wants_kernel().expect("all"));
        assert_eq!((s3.ports(4), said("--range 1000").map(|s3| s3.ports(4))), (7_058, Ok(1_000)));
        let one = said("--variant b2 --occupancy 90,50,90").expect("one variant");
        assert_eq!((one.ours().expect("one"), one.levels()), (vec![("b2", Ports::B2)], vec![50, 90]));
        assert!(!one.wants_kernel().expect("one"));
    }
}
