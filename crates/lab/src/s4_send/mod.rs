//! The fourth wall: FreeBSD's sender waited three quarters of its time for the lock of its own connection.
//!
//! One application thread sends as fast as it can on one connection, one thread receives the acknowledgements, each on a
//! core of its own; the far end is a [`sink`]. The variants differ in how the two threads share the connection:
//! [`t0`] one lock across everything, [`t1`] an owner and a backlog, [`lane`] not at all: the product's sockets.

mod lane;
mod lines;
mod sender;
mod sink;
mod t0;
mod t1;

use crate::bench::failure::Failure;
use crate::bench::machine;
use crate::bench::report::median;
use crate::wall::page::{Chart, Page, Picture};
use crate::wall::rows::{Row, Rows};
use crate::wall::{self, WallOptions};
use clap::Args;
use laneway_proto::time::Instant;
use laneway_stack::clock::Clock;
use laneway_stack::worker::Turn;
use laneway_sync::met;
use sender::{Signs, Stack};
use sink::{Answers, FarEnd, Wire};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Rounds of each variant, in turn with those of the others.
const ROUNDS: usize = 5;
/// Not measured, at the start of each round.
const WARM_UP: Duration = Duration::from_millis(100);
/// Nothing has happened for this long: something is wrong.
const STUCK_AFTER: Duration = Duration::from_secs(10);
/// Timers are looked at this often while nothing arrives, in microseconds.
const TIMERS_EVERY_US: u64 = 1_000;
/// Lines that go from core to core each time the connection changes hands: the lock, the control block, the buffer's
/// indices (the least; SEEDS counts the same three).
const LINES_PER_HANDOVER: f64 = 3.0;

/// Where a sender waits: one thread sends, one receives, and both want the connection
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Example:\n  laneway-lab s4 --seconds 2 --report s4.html\n  laneway-lab s4 --mtu 1280 --variant t0,t1 --json"
)]
pub struct S4 {
    #[command(flatten)]
    wall: WallOptions,
    /// Largest IP packet: 1280 is what the tunnels of the wall had
    #[arg(long, default_value_t = 1_500, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(576..=9_000))]
    mtu: u16,
    /// Bytes that one send() is given: 64 KiB is nuttcp's
    #[arg(long, default_value_t = 65_536, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    write: u32,
}

/// How two threads share a connection.
trait Variant: Send + Sync {
    /// `send`, from the application's thread: how many bytes were taken, and the nanoseconds waited for the connection.
    fn send(&self, bytes: usize, now: &dyn Fn() -> Instant) -> (usize, u64);

    /// Acknowledgements, from the receiving thread. `None`: they were left to the other.
    fn input(&self, answers: &mut Answers, now: &dyn Fn() -> Instant) -> Option<Turn>;

    /// How often the connection went from one thread to the other.
    fn handovers(&self) -> u64;
}

/// What one round came to.
#[derive(Clone, Copy, Default, Debug)]
struct Outcome {
    seconds: f64,
    sends: u64,
    /// In `send`, waiting for the connection, and waiting for room in its buffer, in nanoseconds.
    send_ns: u64,
    wait_ns: u64,
    room_ns: u64,
    packets: u64,
    octets: u64,
    answers: u64,
    handovers: u64,
    /// Locks that the sender found held.
    contended: u64,
    sender_cpu_s: f64,
    receiver_cpu_s: f64,
}

impl Outcome {
    fn mbit_s(&self) -> f64 {
        self.octets as f64 * 8e-6 / self.seconds
    }
}

/// `laneway-lab s4`.
pub fn run(options: &S4) -> Result<(), Failure> {
    let time = options.wall.time(1.0, 0.2)?;
    let variants = options.wall.variants(&["t0", "t1", "lane", "lane-aa"])?;
    options.wall.check_report()?;
    let rounds = if options.wall.quick { 1 } else { ROUNDS };
    let mut outcomes: Vec<Vec<Outcome>> = vec![Vec::new(); variants.len()];
    // Asked before a thread is pinned: afterwards it is one.
    let cores = machine::cores();
    let bar = wall::progress(rounds * variants.len());
    for _ in 0..rounds {
        for (name, outcomes) in variants.iter().zip(&mut outcomes) {
            bar.set_message((*name).to_owned());
            outcomes.push(round(name, options, time, cores)?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let mut rows = Rows::new(Some("send"));
    if cores < 2 {
        rows.remark("this machine gives one core: the two threads take turns, and the shape of the wall is not seen");
    }
    for (name, outcomes) in variants.iter().zip(&outcomes) {
        report(name, options, outcomes, &mut rows)?;
    }
    let page = page(&rows);
    wall::finish(&options.wall, &rows, &page)
}

fn round(name: &str, options: &S4, time: Duration, cores: usize) -> Result<Outcome, Failure> {
    let (write, mtu) = (options.write as usize, usize::from(options.mtu));
    if name.starts_with("lane") {
        return lane::round(mtu, write, time, cores);
    }
    let (tx, far, wire) = sink::sink(mtu);
    let (signs, clock) = (Arc::new(Signs::default()), Clock::start());
    let stack = Stack::new(tx, Arc::clone(&signs), write, clock.now())?;
    let variant: Box<dyn Variant> = match name {
        "t1" => Box::new(t1::T1::new(stack)),
        _ => Box::new(t0::T0::new(stack)),
    };
    let rig = Rig { variant: &*variant, wire: &wire, signs: &signs, clock, write, time };
    duel(&rig, far, cores)
}

/// What both threads work on.
struct Rig<'a> {
    variant: &'a dyn Variant,
    wire: &'a Wire,
    signs: &'a Signs,
    clock: Clock,
    write: usize,
    time: Duration,
}

/// The two threads, for one round.
fn duel(rig: &Rig<'_>, far: FarEnd, cores: usize) -> Result<Outcome, Failure> {
    let (stop, measuring) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (stop, measuring) = (&stop, &measuring);
        let receiver = scope.spawn(move || {
            machine::pin(1 % cores);
            receive(rig, far, stop, measuring)
        });
        let sender = scope.spawn(move || {
            machine::pin(0);
            send(rig, measuring)
        });
        let outcome = sender.join().map_err(|_| Failure::Stuck("the sending thread panicked".into()));
        measuring.store(false, Ordering::Release);
        stop.store(true, Ordering::Release);
        let cpu_s = receiver.join().map_err(|_| Failure::Stuck("the receiving thread panicked".into()))?;
        Ok(Outcome { receiver_cpu_s: cpu_s, ..outcome?? })
    })
}

/// The application's thread.
fn send(rig: &Rig<'_>, measuring: &AtomicBool) -> Result<Outcome, Failure> {
    let now = || rig.clock.now();
    until(rig.signs, || rig.signs.connected.load(Ordering::Acquire))?;
    let before = AtomicU64::new(0);
    let mut outcome = pump(
        rig.write,
        rig.time,
        rig.wire,
        |is_measured| {
            before.store(rig.variant.handovers(), Ordering::Relaxed);
            measuring.store(is_measured, Ordering::Release);
        },
        |left| {
            rig.signs.writable.store(false, Ordering::Relaxed);
            Ok(rig.variant.send(left, &now))
        },
        || until(rig.signs, || rig.signs.writable.load(Ordering::Acquire)),
    )?;
    outcome.handovers = rig.variant.handovers() - before.load(Ordering::Relaxed);
    Ok(outcome)
}

/// Sends as fast as it can, piece by piece, for a time, after a warm-up. `send` says how many bytes were taken and for how
/// long it waited for the connection, in nanoseconds; `room` is called when not all were taken; `mark` when the measurement
/// begins.
fn pump(
    write: usize,
    time: Duration,
    wire: &Wire,
    mark: impl Fn(bool),
    mut send: impl FnMut(usize) -> Result<(usize, u64), Failure>,
    mut room: impl FnMut() -> Result<(), Failure>,
) -> Result<Outcome, Failure> {
    let mut outcome = Outcome::default();
    let (mut began, mut cpu, mut before) = (std::time::Instant::now(), 0.0, [0; 3]);
    let mut met = met::here();
    let mut is_warm = false;
    while !is_warm || began.elapsed() < time {
        if !is_warm && began.elapsed() >= WARM_UP {
            is_warm = true;
            mark(true);
            (outcome, began) = (Outcome::default(), std::time::Instant::now());
            (cpu, before, met) = (machine::thread_cpu_s(), wire.tally(), met::here());
        }
        let mut left = write;
        while left > 0 {
            let entered = std::time::Instant::now();
            let (taken, waited) = send(left)?;
            let passed = entered.elapsed().as_nanos() as u64;
            left -= taken;
            if taken == 0 {
                outcome.room_ns += passed; // it only found that there was no room
            } else {
                outcome.send_ns += passed;
                outcome.wait_ns += waited;
                outcome.sends += 1;
            }
            if left > 0 {
                let full = std::time::Instant::now();
                room()?;
                outcome.room_ns += full.elapsed().as_nanos() as u64;
            }
        }
    }
    outcome.seconds = began.elapsed().as_secs_f64();
    outcome.sender_cpu_s = machine::thread_cpu_s() - cpu;
    outcome.contended = met::here().since(&met).contended;
    let [packets, octets, answers] = wire.tally();
    (outcome.packets, outcome.octets, outcome.answers) = (packets - before[0], octets - before[1], answers - before[2]);
    Ok(outcome)
}

/// The receiving thread; the answer is its processor time while it was measured.
fn receive(rig: &Rig<'_>, mut far: FarEnd, stop: &AtomicBool, measuring: &AtomicBool) -> f64 {
    let now = || rig.clock.now();
    let mut answers = Answers::default();
    let mut timers_at = rig.clock.now();
    let (mut began, mut cpu) = (None, 0.0);
    while !stop.load(Ordering::Acquire) {
        match (measuring.load(Ordering::Acquire), began) {
            (true, None) => began = Some(machine::thread_cpu_s()),
            (false, Some(from)) => (cpu, began) = (machine::thread_cpu_s() - from, None),
            _ => {}
        }
        let mut heard = false;
        if rig.wire.take_interrupt() {
            while far.answer(&mut answers) {
                rig.variant.input(&mut answers, &now);
                heard = true;
            }
        }
        let time = rig.clock.now();
        if time >= timers_at {
            timers_at = time.after_us(TIMERS_EVERY_US);
            rig.variant.input(&mut answers, &now);
        } else if !heard {
            std::hint::spin_loop();
        }
    }
    began.map_or(cpu, |from| machine::thread_cpu_s() - from)
}

/// Turns until something has come about.
fn until(signs: &Signs, come: impl Fn() -> bool) -> Result<(), Failure> {
    let began = std::time::Instant::now();
    let mut looks = 0u32;
    while !come() {
        if signs.broken.load(Ordering::Acquire) || began.elapsed() > STUCK_AFTER {
            return Err(Failure::Stuck("the connection to the sink has failed, or nothing moves on it".into()));
        }
        looks = looks.wrapping_add(1);
        match looks % 256 {
            0 => std::thread::yield_now(),
            _ => std::hint::spin_loop(),
        }
    }
    Ok(())
}

fn at(row: Row, options: &S4) -> Row {
    row.at("mtu", u32::from(options.mtu)).at("write", options.write)
}

fn report(name: &str, options: &S4, outcomes: &[Outcome], rows: &mut Rows) -> Result<(), Failure> {
    let each = |of: &dyn Fn(&Outcome) -> f64| outcomes.iter().map(of).collect::<Vec<f64>>();
    let ratio = |a: f64, b: f64| if b > 0.0 { a / b } else { 0.0 };
    let mut rounds = |all: [Row; 3]| rows.rows.extend(all.map(|row| at(row, options)));
    let measured = |metric, values: Vec<f64>, unit| Row::measured(name, metric, f64::NAN, unit).of_rounds(&values);
    let is_lane = name.starts_with("lane");
    // In the product there is nothing before which a clock could be read: what can be said is how often a lock was met that was held.
    if !is_lane {
        rounds(measured("send_wait_share", each(&|o| ratio(o.wait_ns as f64, o.send_ns as f64)), ""));
    }
    rounds(measured("contended_locks_per_send", each(&|o| ratio(o.contended as f64, o.sends as f64)), "locks"));
    rounds(measured("room_wait_share", each(&|o| ratio(o.room_ns as f64 * 1e-9, o.seconds)), ""));
    rounds(measured("mbit_s", each(&Outcome::mbit_s), "Mbit/s"));
    let cpu = |o: &Outcome| (o.sender_cpu_s + o.receiver_cpu_s) * 1e6;
    rounds(measured("cpu_us_per_packet", each(&|o| ratio(cpu(o), o.packets as f64)), "us"));
    rounds(measured("cpu_us_per_kb", each(&|o| ratio(cpu(o), o.octets as f64 / 1_000.0)), "us"));
    rounds(measured("sender_cpu_us_per_packet", each(&|o| ratio(o.sender_cpu_s * 1e6, o.packets as f64)), "us"));
    rounds(measured("acks_per_mb", each(&|o| ratio(o.answers as f64, o.octets as f64 * 1e-6)), "acks"));
    if is_lane {
        let transfers = lines::per_batch(usize::from(options.mtu), options.write as usize, 1)?;
        rows.push(at(Row::counted(name, "line_transfers_per_send", transfers, "lines"), options));
        return Ok(());
    }
    let handovers = each(&|o| ratio(o.handovers as f64, o.sends as f64));
    let lines = median(handovers.iter().copied()) * LINES_PER_HANDOVER;
    rounds(measured("handovers_per_send", handovers, "handovers"));
    rows.push(at(Row::model(name, "line_transfers_per_send", lines, "lines"), options));
    Ok(())
}

fn page(rows: &Rows) -> Page {
    let bars = |metric: &str| {
        rows.only(&[metric]).iter().map(|row| (row.variant.clone(), row.value)).collect::<Vec<(String, f64)>>()
    };
    let mut shares = bars("send_wait_share");
    shares.push(("seed (FreeBSD, 2018, as published)".to_owned(), 0.75));
    let picture = |title: &str, caption: &str, x: &str, bars, metrics: &[&str]| Picture {
        title: title.to_owned(),
        caption: caption.to_owned(),
        chart: Chart::Bars { x: x.to_owned(), bars },
        rows: rows.only(metrics).into_iter().cloned().collect(),
    };
    Page {
        title: "The sender waits for its own connection".to_owned(),
        words: vec![
            "One thread sends, one takes in the acknowledgements. What they share is the connection.".to_owned(),
        ],
        pictures: vec![
            picture(
                "Share of send() spent waiting for the connection",
                "The seed's figure was taken with a profiler on a slower machine, through a tunnel. Laneway's sender has no lock of the connection to wait for.",
                "share",
                shares,
                &["send_wait_share", "contended_locks_per_send", "handovers_per_send"],
            ),
            picture("What gets through", "One stream.", "Mbit/s", bars("mbit_s"), &["mbit_s", "cpu_us_per_kb"]),
        ],
    }
}
