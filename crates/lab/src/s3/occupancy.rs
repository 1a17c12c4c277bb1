//! Owns what a connect costs when so many of the ports are taken: real connections of the product's own tables, every
//! variant filled by its own connects, and the time of one call of [`Context::connect`].

use super::rig::{self, PORT, Plan, Rig, destination};
use crate::bench::failure::Failure;
use crate::s3_ports::Ports;
use crate::wall::rows::{Row, Rows};
use clap::ValueEnum;
use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use laneway_proto::tcp::CloseReason;
use laneway_proto::time::Instant;
use laneway_stack::app::{App, ConnId, Context};
use laneway_stack::config::Config;
use laneway_stack::entropy::Entropy;
use laneway_stack::ports::Tallies;
use laneway_wire::flow::Address;
use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Duration;

/// Virtual time of one turn of both hosts.
const TURN_US: u64 = 10;
/// Turns without progress after which something must be wrong.
const TURNS_MAX: usize = 100_000;
/// Connects in one poll while the ports are being filled.
const FILL_BATCH: usize = 64;
/// Connects in one poll while they are timed: so many more than the occupancy says are open for a moment.
const BATCH: usize = 8;
/// Rounds that every variant gets in turn, at each occupancy.
pub const ROUNDS: usize = 5;

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Plans {
    /// Names and what they stand for, in the order of their turns.
    pub variants: Vec<(&'static str, Ports)>,
    /// In percent, rising.
    pub levels: Vec<u32>,
    /// First and last port.
    pub range: (u16, u16),
    /// Connects that are timed at each occupancy.
    pub samples: usize,
    /// But no longer than this for each variant at each occupancy.
    pub time: Duration,
    /// Which connection makes room.
    pub closing: Closing,
}

/// Which connection makes room after a connect was timed, so that the occupancy stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Closing {
    /// Any: connections live as long as they like
    Random,
    /// The one that is open for longest: all live equally long
    Oldest,
    /// The one just opened: what was there before stays
    Newest,
}

impl Closing {
    /// Takes one out.
    pub fn choose<T>(self, open: &mut VecDeque<T>, entropy: &mut Entropy) -> Option<T> {
        match self {
            Closing::Random => open.swap_remove_back((entropy.next_u64() % open.len().max(1) as u64) as usize),
            Closing::Oldest => open.pop_front(),
            Closing::Newest => open.pop_back(),
        }
    }
}

/// For times of one nanosecond to a hundred seconds.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 100_000_000_000, 3).expect("1 ns to 100 s in three digits is a valid histogram")
}

/// How many of so many ports are taken at so many percent.
pub fn share(ports: usize, percent: u32) -> usize {
    ports * percent as usize / 100
}

/// What the client shall do in its next poll, and what came of it.
struct Opener {
    connects: usize,
    aborts: usize,
    timed: bool,
    closing: Closing,
    entropy: Entropy,
    /// Whose turn it is.
    next: usize,
    /// Open connections towards each destination, the newest at the end.
    open: Vec<VecDeque<ConnId>>,
    opening: usize,
    refused: usize,
    failed: usize,
    ns: Histogram<u64>,
    ns_sum: u64,
    timed_calls: u64,
}

impl Opener {
    fn new(destinations: usize, closing: Closing) -> Self {
        Opener {
            connects: 0,
            aborts: 0,
            timed: false,
            closing,
            entropy: Entropy::from_seed(5),
            next: 0,
            open: vec![VecDeque::new(); destinations],
            opening: 0,
            refused: 0,
            failed: 0,
            ns: histogram(),
            ns_sum: 0,
            timed_calls: 0,
        }
    }

    fn connect(&mut self, cx: &mut Context<'_>) {
        let (to, timed): (Address, bool) = (destination(self.next), self.timed);
        let began = timed.then(std::time::Instant::now);
        let done = black_box(cx.connect(None, to, PORT, self.next as u64));
        if let Some(began) = began {
            let ns = began.elapsed().as_nanos() as u64;
            self.ns.saturating_record(ns.max(1));
            self.ns_sum += ns;
            self.timed_calls += 1;
        }
        match done {
            Ok(id) => {
                self.open[self.next].push_back(id);
                self.opening += 1;
            }
            Err(_) => self.refused += 1,
        }
        self.next = (self.next + 1) % self.open.len();
    }
}

impl App for Opener {
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        for _ in 0..std::mem::take(&mut self.connects) {
            self.connect(cx);
        }
        for _ in 0..std::mem::take(&mut self.aborts) {
            // Of those who have most: as many stay open towards each.
            let longest = (0..self.open.len()).max_by_key(|number| self.open[*number].len()).unwrap_or(0);
            if let Some(id) = self.closing.choose(&mut self.open[longest], &mut self.entropy) {
                cx.abort(id);
            }
        }
    }
    fn on_connect(&mut self, _: &mut Context<'_>, _: ConnId) {
        self.opening -= 1;
    }
    fn on_data(&mut self, _: &mut Context<'_>, _: ConnId, data: &[u8]) -> usize {
        data.len()
    }
    fn on_closed(&mut self, _: &mut Context<'_>, id: ConnId, token: u64, _: CloseReason) {
        // Those that were aborted have left the queue already.
        let open = &mut self.open[token as usize];
        if let Some(at) = open.iter().position(|one| *one == id) {
            open.remove(at);
            self.failed += 1;
        }
    }
}

/// Accepts everything.
struct Acceptor;

impl App for Acceptor {
    fn on_data(&mut self, _: &mut Context<'_>, _: ConnId, data: &[u8]) -> usize {
        data.len()
    }
}

/// One variant with its connections.
struct Subject {
    name: &'static str,
    rig: Rig<Acceptor, Opener>,
    now: Instant,
    /// Costs of the timed connects alone.
    spent: Tallies,
}

impl Subject {
    fn new(name: &'static str, ports: Ports, plans: &Plans, destinations: usize, seed: u64) -> Result<Self, Failure> {
        let now = Instant::from_us(3_600_000_000);
        let count = usize::from(plans.range.1 - plans.range.0) + 1;
        let config = Config { connections: count * destinations, lane_mem: 8 << 30, ..Config::default() };
        let plan = Plan { ports, range: plans.range, destinations, config, seed };
        let rig = rig::build(&plan, now, Acceptor, Opener::new(destinations, plans.closing))?;
        Ok(Subject { name, rig, now, spent: Tallies::default() })
    }

    fn opener(&mut self) -> &mut Opener {
        &mut self.rig.client.seats[0].app
    }

    fn open(&mut self) -> usize {
        self.opener().open.iter().map(VecDeque::len).sum()
    }

    fn tallies(&mut self) -> Tallies {
        self.rig.client.seats[0].lane.tables(|tables| tables.ports.tallies())
    }

    /// One poll of the client alone: what it was told happens in it, and nothing else of note.
    fn client_poll(&mut self) {
        self.now = self.now.after_us(TURN_US);
        self.rig.client.turn(self.now);
    }

    /// Turns both until nothing moves.
    fn settle(&mut self) -> Result<(), Failure> {
        let mut quiet = 0;
        for _ in 0..TURNS_MAX {
            self.now = self.now.after_us(TURN_US);
            let frames = self.rig.server.turn(self.now).frames + self.rig.client.turn(self.now).frames;
            quiet = if frames == 0 { quiet + 1 } else { 0 };
            if quiet >= 3 && self.opener().opening == 0 {
                return match self.opener().failed {
                    0 => Ok(()),
                    failed => Err(Failure::Stuck(format!("{}: {failed} connections ended by themselves", self.name))),
                };
            }
        }
        Err(Failure::stuck(&self.rig.client.counters()))
    }

    /// Opens connections until so many are open.
    fn fill(&mut self, target: usize) -> Result<(), Failure> {
        while self.open() < target {
            let missing = target - self.open();
            self.opener().connects = missing.min(FILL_BATCH);
            self.client_poll();
            self.settle()?;
            if std::mem::take(&mut self.opener().refused) > 0 {
                let (name, open) = (self.name, self.open());
                return Err(Failure::Stuck(format!("{name}: refused with {open} of {target} connections open")));
            }
        }
        Ok(())
    }

    /// Times so many connects while `base` connections are open and `room` more could be, or what there is time for.
    fn sample(&mut self, samples: usize, time: Duration, base: usize, room: usize) -> Result<(), Failure> {
        let (mut left, began) = (samples, std::time::Instant::now());
        while left > 0 && (left == samples || began.elapsed() < time) {
            // Where there is no room at all, what is timed is being refused.
            let batch = left.min(if room == 0 { BATCH } else { BATCH.min((room / 4).max(1)) });
            let before = self.tallies();
            let opener = self.opener();
            (opener.connects, opener.timed) = (batch, true);
            self.client_poll();
            let after = self.tallies();
            spend(&mut self.spent, &before, &after);
            let opener = self.opener();
            opener.timed = false;
            let refused = std::mem::take(&mut opener.refused);
            if (room == 0) != (refused == batch) || (room > 0 && refused > 0) {
                return Err(Failure::Stuck(format!(
                    "{}: {refused} of {batch} connects were refused with room for {room}",
                    self.name
                )));
            }
            self.settle()?;
            let over = self.open() - base;
            self.opener().aborts = over;
            self.client_poll();
            self.settle()?;
            left -= batch;
        }
        Ok(())
    }

    /// What the samples since the last call came to.
    fn account(&mut self) -> Measured {
        let opener = self.opener();
        let ns = std::mem::replace(&mut opener.ns, histogram());
        let mean_ns = std::mem::take(&mut opener.ns_sum) as f64 / std::mem::take(&mut opener.timed_calls).max(1) as f64;
        Measured { ns, mean_ns, spent: std::mem::take(&mut self.spent) }
    }
}

/// Adds what happened between two moments.
fn spend(sum: &mut Tallies, before: &Tallies, after: &Tallies) {
    sum.asks += after.asks - before.asks;
    sum.locks += after.locks - before.locks;
    sum.probes += after.probes - before.probes;
    sum.flow_hashes += after.flow_hashes - before.flow_hashes;
    sum.destination_hashes += after.destination_hashes - before.destination_hashes;
    sum.words += after.words - before.words;
    sum.shared_lines_written += after.shared_lines_written - before.shared_lines_written;
    sum.probes_max = after.probes_max;
    sum.words_max = after.words_max;
}

/// One variant at one occupancy.
struct Measured {
    ns: Histogram<u64>,
    mean_ns: f64,
    spent: Tallies,
}

/// What two readings of the clock take, which is in every time.
pub fn clock_ns() -> f64 {
    let mut times: Vec<u64> = (0..10_001)
        .map(|_| {
            let began = std::time::Instant::now();
            black_box(began.elapsed().as_nanos() as u64)
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2] as f64
}

/// Measures every variant at every occupancy, towards so many destinations.
pub fn run(plans: &Plans, destinations: usize, rows: &mut Rows, progress: &ProgressBar) -> Result<(), Failure> {
    let count = usize::from(plans.range.1 - plans.range.0) + 1;
    let mut subjects = Vec::new();
    for (name, ports) in &plans.variants {
        subjects.push(Subject::new(name, *ports, plans, destinations, 3)?);
    }
    for &level in &plans.levels {
        let base = share(count, level) * destinations;
        let room = count * destinations - base;
        for subject in &mut subjects {
            progress.set_message(format!("{} fills {level} % of {destinations} × {count} ports", subject.name));
            subject.fill(base)?;
            // What filling cost is not what a connect costs now.
            subject.account();
        }
        for _ in 0..ROUNDS {
            for subject in &mut subjects {
                progress.set_message(format!("{} connects at {level} %", subject.name));
                subject.sample(plans.samples.div_ceil(ROUNDS), plans.time / ROUNDS as u32, base, room)?;
            }
        }
        for subject in &mut subjects {
            let measured = subject.account();
            report(rows, subject.name, (level, destinations, count), &measured);
            progress.inc(1);
        }
    }
    Ok(())
}

fn report(rows: &mut Rows, name: &str, (level, destinations, range): (u32, usize, usize), measured: &Measured) {
    let mut push = |row: Row| rows.push(row.at("occupancy", level).at("destinations", destinations).at("range", range));
    let asks = measured.spent.asks.max(1) as f64;
    let spent = &measured.spent;
    for (metric, value) in [
        ("locks_per_connect", spent.locks),
        ("probes_per_connect", spent.probes),
        ("hashes_per_connect", spent.flow_hashes),
        ("destination_hashes_per_connect", spent.destination_hashes),
        ("bitmap_words_per_connect", spent.words),
        ("shared_lines_written_per_connect", spent.shared_lines_written),
    ] {
        push(Row::counted(name, metric, value as f64 / asks, ""));
    }
    // The most in any connect since the first one, those that filled the ports among them.
    push(Row::counted(name, "probes_max", spent.probes_max as f64, ""));
    push(Row::counted(name, "bitmap_words_max", spent.words_max as f64, ""));
    for (metric, quantile) in [("p50_us", 0.5), ("p99_us", 0.99)] {
        push(Row::measured(name, metric, measured.ns.value_at_quantile(quantile) as f64 / 1e3, "us"));
    }
    push(Row::measured(name, "calls_per_s", 1e9 / measured.mean_ns.max(1.0), "calls/s"));
}
