//! Owns references by themselves: one object, one or two threads on cores of their own, get and put over and over; and
//! what that does to somebody who only reads what lies beside the count.

use super::{S5, VARIANTS};
use crate::bench::failure::Failure;
use crate::bench::machine;
use crate::wall;
use crate::wall::rows::{Row, Rows, Source};
use laneway_sync::Padded;
use laneway_sync::counted::{CasRef, Count, Shared};
use laneway_sync::epoch::{Domain, Published, Seat};
use laneway_sync::rcuref::RcuRef;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

/// Rounds of each in turn; the median counts.
const ROUNDS: usize = 5;
/// How much more often two cores shall succeed without the loop.
const RCUREF_MIN: f64 = 1.2;
/// Pairs between two looks at the clock.
const BATCH: u64 = 256;

/// The object: what a packet reads of a route.
type Fields = [AtomicU64; 6];

/// One way of referring to an object.
trait Way: Send + Sync + Sized {
    fn new(domain: &Arc<Domain>) -> Self;
    /// Takes a reference, reads a field, gives it back; says how many attempts were in vain.
    fn pair(&self, seat: &mut Seat) -> u32;
    /// Reads a field, and no more.
    fn read(&self) -> u64;
}

struct ByCount<C: Count>(Shared<Fields, C>);

impl<C: Count> Way for ByCount<C> {
    fn new(domain: &Arc<Domain>) -> Self {
        ByCount(Shared::new(domain, Fields::default()))
    }
    #[inline]
    fn pair(&self, seat: &mut Seat) -> u32 {
        let Some((held, retries)) = self.0.get() else { return 0 };
        black_box(held[0].load(Ordering::Relaxed));
        held.put(&seat.pin());
        retries
    }
    #[inline]
    fn read(&self) -> u64 {
        self.0[5].load(Ordering::Relaxed)
    }
}

impl Way for Arc<Fields> {
    fn new(_: &Arc<Domain>) -> Self {
        Arc::new(Fields::default())
    }
    #[inline]
    fn pair(&self, _: &mut Seat) -> u32 {
        let held = Arc::clone(self);
        black_box(held[0].load(Ordering::Relaxed));
        0
    }
    #[inline]
    fn read(&self) -> u64 {
        self[5].load(Ordering::Relaxed)
    }
}

/// As a lane does: it says that it holds nothing any more, and borrows. That is one pair for each packet, which is more than a
/// lane does: it says so once a poll.
struct ByEpoch(Published<Fields>);

impl Way for ByEpoch {
    fn new(domain: &Arc<Domain>) -> Self {
        ByEpoch(Published::new(domain, Fields::default()))
    }
    #[inline]
    fn pair(&self, seat: &mut Seat) -> u32 {
        seat.quiescent();
        let pinned = seat.pin();
        black_box(self.0.load(&pinned)[0].load(Ordering::Relaxed));
        0
    }
    #[inline]
    fn read(&self) -> u64 {
        0
    }
}

/// What a round came to.
#[derive(Clone, Copy, Default)]
struct Outcome {
    pairs_per_s: f64,
    retries_per_pair: f64,
    reads_per_s: f64,
}

/// So many threads at pairs, and one more that reads beside them if `reader`.
fn round<W: Way>(threads: usize, reader: bool, time: Duration) -> Outcome {
    let (domain, _limbo) = Domain::new(threads + 1);
    let way = W::new(&domain);
    let (stop, start) = (AtomicBool::new(false), Barrier::new(threads + usize::from(reader) + 1));
    let mut outcome = Outcome::default();
    std::thread::scope(|scope| {
        let (way, stop, start, domain) = (&way, &stop, &start, &domain);
        let pairs: Vec<_> = (0..threads)
            .map(|core| {
                scope.spawn(move || {
                    machine::pin(core);
                    let mut seat = Domain::seat(domain).expect("one for each thread");
                    seat.online();
                    let (mut pairs, mut retries) = (0, 0);
                    start.wait();
                    let began = Instant::now();
                    while !stop.load(Ordering::Relaxed) {
                        for _ in 0..BATCH {
                            retries += u64::from(way.pair(&mut seat));
                        }
                        pairs += BATCH;
                    }
                    (pairs as f64 / began.elapsed().as_secs_f64(), retries as f64 / pairs as f64)
                })
            })
            .collect();
        let reading = reader.then(|| {
            scope.spawn(move || {
                machine::pin(threads);
                let mut reads = 0u64;
                start.wait();
                let began = Instant::now();
                while !stop.load(Ordering::Relaxed) {
                    for _ in 0..BATCH {
                        black_box(way.read());
                    }
                    reads += BATCH;
                }
                reads as f64 / began.elapsed().as_secs_f64()
            })
        });
        start.wait();
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        for thread in pairs {
            let (rate, retries) = thread.join().expect("it only counts");
            outcome.pairs_per_s += rate;
            outcome.retries_per_pair += retries / threads as f64;
        }
        outcome.reads_per_s = reading.map_or(0.0, |thread| thread.join().expect("it only reads"));
    });
    outcome
}

fn one(name: &str, threads: usize, reader: bool, time: Duration) -> Outcome {
    match name {
        "r0" => round::<ByCount<CasRef>>(threads, reader, time),
        "r1" => round::<ByCount<Padded<CasRef>>>(threads, reader, time),
        "r2" => round::<ByCount<RcuRef>>(threads, reader, time),
        "r3" => round::<ByCount<Padded<RcuRef>>>(threads, reader, time),
        "arc" => round::<Arc<Fields>>(threads, reader, time),
        _ => round::<ByEpoch>(threads, reader, time),
    }
}

fn median(outcomes: &[Outcome], of: impl Fn(&Outcome) -> f64) -> f64 {
    let mut all: Vec<f64> = outcomes.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Every variant with one thread, with two, and with one beside a reader, in turn.
pub fn run(s5: &S5, rows: &mut Rows) -> Result<(), Failure> {
    let time = s5.wall.time(0.5, 0.02)?;
    let variants = s5.wall.variants(&VARIANTS)?;
    let most = machine::cores().min(2);
    if most < 2 {
        rows.remark("this machine gives one core: what two do to each other is not measured");
    }
    let mut plans: Vec<(usize, bool)> = vec![(1, false)];
    if most == 2 {
        plans.extend([(2, false), (1, true)]);
    }
    let rounds = if s5.wall.quick { 1 } else { ROUNDS };
    let mut outcomes = vec![vec![Vec::new(); plans.len()]; variants.len()];
    let bar = wall::progress(rounds * variants.len() * plans.len());
    for _ in 0..rounds {
        for (plan, (threads, reader)) in plans.iter().enumerate() {
            for (name, outcomes) in variants.iter().zip(&mut outcomes) {
                bar.set_message(format!("{name}, {threads} thread(s)"));
                outcomes[plan].push(one(name, *threads, *reader, time));
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    for (name, outcomes) in variants.iter().zip(&outcomes) {
        for ((threads, reader), outcomes) in plans.iter().zip(outcomes) {
            if *reader {
                // In `lane` nobody writes what others read: there is nothing to read beside.
                if !name.starts_with("lane") {
                    let rate = median(outcomes, |o| o.reads_per_s);
                    rows.push(Row::measured(name, "neighbour_reads_per_s", rate, "reads").at("writers", *threads));
                }
                continue;
            }
            let rate = median(outcomes, |o| o.pairs_per_s);
            rows.push(Row::measured(name, "ops_per_s", rate, "pairs").at("threads", *threads));
            let retries = median(outcomes, |o| o.retries_per_pair);
            rows.push(Row::counted(name, "retries_per_op", retries, "retries").at("threads", *threads));
        }
    }
    let both = |metric: &str, axis: &str, a: &str, b: &str, at: usize, rows: &Rows| {
        Some(rows.value(a, metric, axis, at)? / rows.value(b, metric, axis, at)?)
    };
    if let Some(times) = both("ops_per_s", "threads", "r2", "r0", 2, rows) {
        rows.push(Row::measured("r2", "ops_times_r0", times, "").at("threads", 2usize));
        let words = format!("{times:.2} x the pairs of r0, references by themselves");
        if !s5.wall.quick {
            rows.bar("r2", "at least 1.2 x r0 on two cores", times >= RCUREF_MIN, Source::Measured, &words);
        }
    }
    if let Some(times) = both("neighbour_reads_per_s", "writers", "r1", "r0", 1, rows) {
        rows.remark(format!(
            "a reader of what lies beside the count reads {times:.2} x as fast with padding (r1 to r0)"
        ));
    }
    Ok(())
}

/// What is counted under callgrind, by `s5_pairs.sh`: `plain N` or the name of a variant.
pub fn pairs(asked: &[String]) -> Result<(), Failure> {
    let [name, count] = asked else { return Err(Failure::Misuse("--pairs wants a name and a number".into())) };
    let count: u64 =
        count.parse().map_err(|_| Failure::Misuse(format!("--pairs {name} {count}: that is no number")))?;
    let (domain, _limbo) = Domain::new(1);
    let mut seat = Domain::seat(&domain).expect("there is one");
    seat.online();
    match name.as_str() {
        "plain" => counted_plain(&AtomicU32::new(1), count),
        "rcuref" => counted_rcuref(&RcuRef::new(1), &seat, count),
        "r0" => counted_cas(&CasRef::one(), &seat, count),
        other => return Err(Failure::Misuse(format!("--pairs {other}: take plain, rcuref or r0"))),
    }
    println!("pairs {count}");
    Ok(())
}

/// What is compared with: an unconditional pair that looks at what came out, as whoever frees must.
#[inline(never)]
fn counted_plain(count: &AtomicU32, pairs: u64) {
    for _ in 0..pairs {
        let before = count.fetch_add(1, Ordering::Relaxed);
        assert!(before != 0);
        let last = count.fetch_sub(1, Ordering::Release) == 1;
        assert!(!last);
    }
}

#[inline(never)]
fn counted_rcuref(count: &RcuRef, seat: &Seat, pairs: u64) {
    // The pin is the poll's, not the packet's.
    let pinned = seat.pin();
    for _ in 0..pairs {
        assert!(count.get());
        assert!(!count.put(&pinned));
    }
}

#[inline(never)]
fn counted_cas(count: &CasRef, seat: &Seat, pairs: u64) {
    let pinned = seat.pin();
    for _ in 0..pairs {
        assert!(count.get().is_some());
        assert!(!count.put(&pinned));
    }
}
