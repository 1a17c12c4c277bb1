//! Owns the seed's time series: a client hammers one server, which closes first, at a rate that comes from the clock and
//! not from the server; what each second saw, in the seed's columns.
//!
//! A second is a second of the clock on the wall. Whether such a second can be believed is measured in the same run: a loop
//! with the same pace and no stack in it is spread too if the machine took its processor away.

use super::rig::{self, PORT, Plan, Rig, destination};
use super::seed::{self, ACCEPTS, COLUMNS};
use crate::bench::failure::Failure;
use crate::bench::machine;
use crate::s3_ports::Ports;
use crate::wall;
use crate::wall::rows::{Row, Rows};
use indicatif::ProgressBar;
use laneway_device::memory::{LinkRx, LinkTx};
use laneway_proto::tcp::CloseReason;
use laneway_proto::time::Instant;
use laneway_stack::app::{App, ConnId, Context, ListenerId};
use laneway_stack::config::Config;
use laneway_stack::counters::Mib;
use laneway_stack::host::Host;
use std::time::Duration;

/// A sleep between two looks at the clock when nothing is to be done.
const NAP: Duration = Duration::from_micros(100);
/// Connects of one poll, should the loop have been kept waiting.
const BURST: u64 = 256;
/// The time at the start of a run.
const EPOCH_US: u64 = 3_600_000_000;
/// A null loop more uneven than this says that the wall clock is not to be believed.
pub const NULL_CV_MAX: f64 = 0.02;

/// What is asked for.
pub struct Asked {
    /// One after the other.
    pub variants: Vec<(&'static str, Ports)>,
    /// First and last port.
    pub range: (u16, u16),
    /// Least age of a TIME_WAIT record that gives way, in milliseconds.
    pub reuse_delay_ms: u32,
    /// Connections per second.
    pub rate: f64,
    /// Rows.
    pub seconds: usize,
}

/// Counts calls of `accept` as `tcpaccept.d` does, and closes first.
#[derive(Default)]
struct Closer {
    accepted: u64,
    calls: u64,
    failed: u64,
}

impl App for Closer {
    fn on_acceptable(&mut self, cx: &mut Context<'_>, listener: ListenerId) {
        loop {
            self.calls += 1;
            let Some(connection) = cx.accept(listener) else { break };
            self.accepted += 1;
            cx.close(connection);
        }
        self.failed += 1;
    }
    fn on_data(&mut self, _: &mut Context<'_>, _: ConnId, data: &[u8]) -> usize {
        data.len()
    }
}

/// Opens what is due, and closes when the server has.
struct Hammer {
    pace: Pace,
    opened: u64,
    /// Due, but without a port.
    refused: u64,
    failed: u64,
    due_now: u64,
}

impl App for Hammer {
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        for _ in 0..std::mem::take(&mut self.due_now) {
            match cx.connect(None, destination(0), PORT, 0) {
                Ok(_) => self.opened += 1,
                Err(_) => self.refused += 1,
            }
        }
    }
    fn on_data(&mut self, _: &mut Context<'_>, _: ConnId, data: &[u8]) -> usize {
        data.len()
    }
    fn on_closed(&mut self, _: &mut Context<'_>, _: ConnId, _: u64, reason: CloseReason) {
        self.failed += u64::from(reason != CloseReason::Normal);
    }
}

/// An open loop: what is due depends on the time alone.
#[derive(Clone, Copy)]
struct Pace {
    per_us: f64,
    done: u64,
}

impl Pace {
    fn new(rate: f64) -> Self {
        Pace { per_us: rate / 1e6, done: 0 }
    }

    /// What has become due since the last call.
    fn due(&mut self, elapsed: Duration) -> u64 {
        let all = (elapsed.as_micros() as f64 * self.per_us) as u64;
        let due = all.saturating_sub(self.done).min(BURST);
        self.done += due;
        due
    }
}

/// One second of one run.
struct Second {
    columns: [f64; 6],
    cpu_s: f64,
}

/// Something that is stepped at a pace and asked every second what it did so far.
trait Paced {
    /// One step, with the time since the start. True if there is more to do at once.
    fn step(&mut self, elapsed: Duration) -> bool;
    /// The columns since the start.
    fn columns(&mut self) -> [u64; 6];
}

/// The loop: the same for a stack and for nothing.
fn run_paced(paced: &mut impl Paced, seconds: usize, progress: &ProgressBar) -> Vec<Second> {
    let began = std::time::Instant::now();
    let mut all = Vec::with_capacity(seconds);
    let (mut columns, mut cpu) = (paced.columns(), machine::thread_cpu_s());
    while all.len() < seconds {
        let elapsed = began.elapsed();
        if elapsed.as_secs() > all.len() as u64 {
            let (now, cpu_now) = (paced.columns(), machine::thread_cpu_s());
            let mut second = Second { columns: [0.0; 6], cpu_s: cpu_now - cpu };
            for (value, (after, before)) in second.columns.iter_mut().zip(now.iter().zip(&columns)) {
                *value = (after - before) as f64;
            }
            (columns, cpu) = (now, cpu_now);
            all.push(second);
            progress.inc(1);
        }
        if !paced.step(elapsed) {
            std::thread::sleep(NAP);
        }
    }
    all
}

/// The pace alone.
struct Null {
    pace: Pace,
    done: u64,
}

impl Paced for Null {
    fn step(&mut self, elapsed: Duration) -> bool {
        let due = self.pace.due(elapsed);
        self.done += due;
        due == BURST
    }
    fn columns(&mut self) -> [u64; 6] {
        let mut columns = [0; 6];
        columns[ACCEPTS] = self.done;
        columns
    }
}

impl Paced for Rig<Closer, Hammer> {
    fn step(&mut self, elapsed: Duration) -> bool {
        let hammer = &mut self.client.seats[0].app;
        let due = hammer.pace.due(elapsed);
        hammer.due_now = due;
        let now = Instant::from_us(EPOCH_US + elapsed.as_micros() as u64);
        let frames = self.client.turn(now).frames + self.server.turn(now).frames;
        frames > 0 || due > 0
    }

    fn columns(&mut self) -> [u64; 6] {
        let counters = self.server.counters();
        let server = &self.server.seats[0].app;
        [
            counters.get(Mib::TcpExtListenOverflows),
            // SYNs that found the queue of half-open connections full: not dropped but answered with a cookie.
            counters.get(Mib::TcpExtSyncookiesSent),
            server.accepted,
            counters.get(Mib::TcpOutRsts),
            server.calls,
            server.failed,
        ]
    }
}

/// One row of the seed's table.
pub fn push_second(rows: &mut Rows, variant: &str, second: usize, values: &[f64; 6]) {
    for (name, value) in COLUMNS.iter().zip(values) {
        rows.push(Row::measured(variant, name, *value, "per s").at("second", second));
    }
}

/// Runs the null loop and every variant.
pub fn run(asked: &Asked, rows: &mut Rows) -> Result<(), Failure> {
    let progress = wall::progress((asked.variants.len() + 1) * asked.seconds);
    progress.set_message("null loop");
    let mut null = Null { pace: Pace::new(asked.rate), done: 0 };
    let null: Vec<f64> =
        run_paced(&mut null, asked.seconds, &progress).iter().map(|second| second.columns[ACCEPTS]).collect();
    let (null_cv, _) = seed::spread(&null);
    seed::push_spread(rows, "null", "wall", &null);
    let believed = null_cv <= NULL_CV_MAX;
    for (name, ports) in &asked.variants {
        progress.set_message(format!("{name}: {:.0} connections per second", asked.rate));
        one(asked, name, *ports, believed, rows, &progress)?;
    }
    progress.finish_and_clear();
    seed::push(rows);
    rows.remark(format!(
        "series: {:.0} connections per second for {} s, open loop; the null loop's cv is {null_cv:.4}, so {}",
        asked.rate,
        asked.seconds,
        if believed {
            "seconds of the wall clock may be believed"
        } else {
            "what counts is operations per second of processor time: the machine gave its processors to others"
        }
    ));
    Ok(())
}

fn one(
    asked: &Asked,
    name: &str,
    ports: Ports,
    believed: bool,
    rows: &mut Rows,
    progress: &ProgressBar,
) -> Result<(), Failure> {
    let config = Config { tcp_tw_reuse_delay_ms: asked.reuse_delay_ms, connections: 65_536, ..Config::default() };
    let plan = Plan { ports, range: asked.range, destinations: 1, config, seed: 11 };
    let hammer = Hammer { pace: Pace::new(asked.rate), opened: 0, refused: 0, failed: 0, due_now: 0 };
    let mut rig = rig::build(&plan, Instant::from_us(EPOCH_US), Closer::default(), hammer)?;
    let seconds = run_paced(&mut rig, asked.seconds, progress);
    let client = &rig.client.seats[0].app;
    let (opened, refused, failed) = (client.opened, client.refused, client.failed);
    let accepted: Vec<f64> = seconds.iter().map(|second| second.columns[ACCEPTS]).collect();
    if accepted.iter().sum::<f64>() == 0.0 {
        return Err(Failure::stuck(&counters(&mut rig.server)));
    }
    for (number, second) in seconds.iter().enumerate() {
        push_second(rows, name, number, &second.columns);
    }
    if believed {
        seed::push_spread(rows, name, "wall", &accepted);
    }
    let per_cpu: Vec<f64> =
        seconds.iter().map(|second| second.columns[ACCEPTS] / second.cpu_s.max(f64::MIN_POSITIVE)).collect();
    seed::push_spread(rows, name, "cpu", &per_cpu);
    let all = counters(&mut rig.server);
    progress.suspend(|| {
        rows.remark(format!(
            "series, {name}: {opened} opened, {refused} found no port, {failed} failed; server: {} TIME_WAIT records taken over, {} evicted early",
            all.get(Mib::TcpExtTWRecycled),
            all.get(Mib::TcpExtTCPTimeWaitOverflow),
        ));
    });
    Ok(())
}

fn counters<A: App>(host: &mut Host<LinkRx, LinkTx, A>) -> laneway_stack::counters::Counters {
    host.counters()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_makes_up_for_lost_time_in_bursts() {
        let mut pace = Pace::new(1e6);
        assert_eq!(pace.due(Duration::from_micros(10)), 10);
        assert_eq!(pace.due(Duration::from_micros(10)), 0);
        assert_eq!(pace.due(Duration::from_micros(1_000)), BURST);
        let rest: u64 = (0..3).map(|_| pace.due(Duration::from_micros(1_000))).sum();
        assert_eq!(rest, 1_000 - 10 - BURST);
    }
}
