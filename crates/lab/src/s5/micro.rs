//! Owns references by themselves: one object, one or two threads on cores of their own, get and put over and over; and
//! what that does to somebody who only reads what lies beside the count.

use super::{S5, VARIANTS};
use crate::bench::failure::Failure;
use crate::bench::machine;
use crate::bench::report::median;
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
const ROUNDS: usize = 11;
/// How much more often two cores shall succeed without the loop.
const RCUREF_MIN: f64 = 1.2;
/// Turns of an empty loop between get and put where a reference is kept, about a quarter of a microsecond: as long as the way of a packet
/// through the stack. Two cores then seldom want the line at the same time.
const KEPT: u32 = 250;
/// Pairs between two looks at the clock.
const BATCH: u64 = 256;

/// The object: what a packet reads of a route.
type Fields = [AtomicU64; 6];

/// One way of referring to an object.
trait Way: Send + Sync + Sized {
    fn new(domain: &Arc<Domain>) -> Self;
    /// Takes a reference, reads a field, keeps it for so many steps, gives it back; says how many attempts were in vain.
    fn pair(&self, seat: &mut Seat, kept: u32) -> u32;
    /// Reads a field, and no more.
    fn read(&self) -> u64;
}

struct ByCount<C: Count>(Shared<Fields, C>);

impl<C: Count> Way for ByCount<C> {
    fn new(domain: &Arc<Domain>) -> Self {
        ByCount(Shared::new(domain, Fields::default()))
    }
    #[inline]
    fn pair(&self, seat: &mut Seat, kept: u32) -> u32 {
        let Some((held, retries)) = self.0.get() else { return 0 };
        black_box(held[0].load(Ordering::Relaxed));
        keep(kept);
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
    fn pair(&self, _: &mut Seat, kept: u32) -> u32 {
        let held = Arc::clone(self);
        black_box(held[0].load(Ordering::Relaxed));
        keep(kept);
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
    fn pair(&self, seat: &mut Seat, kept: u32) -> u32 {
        seat.quiescent();
        let pinned = seat.pin();
        black_box(self.0.load(&pinned)[0].load(Ordering::Relaxed));
        keep(kept);
        0
    }
    #[inline]
    fn read(&self) -> u64 {
        0
    }
}

/// Holds an object that nobody counts: what remains of a pair without any counting, whoever counts how.
struct Uncounted(Fields);

impl Way for Uncounted {
    fn new(_: &Arc<Domain>) -> Self {
        Uncounted(Fields::default())
    }
    #[inline]
    fn pair(&self, _: &mut Seat, kept: u32) -> u32 {
        black_box(self.0[0].load(Ordering::Relaxed));
        keep(kept);
        0
    }
    #[inline]
    fn read(&self) -> u64 {
        self.0[5].load(Ordering::Relaxed)
    }
}

#[inline]
fn keep(steps: u32) {
    for step in 0..steps {
        black_box(step);
    }
}

/// What the threads of a round do.
#[derive(Clone, Copy)]
struct Plan {
    /// So many have pairs of get and put.
    threads: usize,
    /// One more reads beside them.
    reader: bool,
    /// For so many steps each reference is kept.
    kept: u32,
}

/// What a round came to.
#[derive(Clone, Copy, Default)]
struct Outcome {
    pairs_per_s: f64,
    retries_per_pair: f64,
    reads_per_s: f64,
}

impl Outcome {
    /// What a pair takes one of so many threads.
    fn pair_ns(&self, threads: usize) -> f64 {
        1e9 * threads as f64 / self.pairs_per_s
    }
}

fn round<W: Way>(plan: Plan, time: Duration) -> Outcome {
    let Plan { threads, reader, kept } = plan;
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
                            retries += u64::from(way.pair(&mut seat, kept));
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

fn one(name: &str, plan: Plan, time: Duration) -> Outcome {
    match name {
        "r0" => round::<ByCount<CasRef>>(plan, time),
        "r1" => round::<ByCount<Padded<CasRef>>>(plan, time),
        "r2" => round::<ByCount<RcuRef>>(plan, time),
        "r3" => round::<ByCount<Padded<RcuRef>>>(plan, time),
        "arc" => round::<Arc<Fields>>(plan, time),
        _ => round::<ByEpoch>(plan, time),
    }
}

/// Every variant with one thread, with two, with two that keep what they take for a while, and with one beside a reader, in turn.
pub fn run(s5: &S5, rows: &mut Rows) -> Result<(), Failure> {
    let time = s5.wall.time(0.25, 0.02)?;
    let variants = s5.wall.variants(&VARIANTS)?;
    let most = machine::cores().min(2);
    if most < 2 {
        rows.remark("this machine gives one core: what two do to each other is not measured");
    }
    let mut plans = vec![Plan { threads: 1, reader: false, kept: 0 }];
    if most == 2 {
        plans.push(Plan { threads: 2, reader: false, kept: 0 });
        plans.push(Plan { threads: 2, reader: false, kept: KEPT });
        plans.push(Plan { threads: 1, reader: true, kept: 0 });
    }
    let rounds = if s5.wall.quick { 1 } else { ROUNDS };
    // By variant and plan, the rounds.
    let mut outcomes = vec![vec![Vec::new(); plans.len()]; variants.len()];
    // By plan, if references are kept in it: the rounds without any counting.
    let mut uncounted = vec![Vec::new(); plans.len()];
    let bar = wall::progress(rounds * variants.len() * plans.len());
    for _ in 0..rounds {
        for (number, plan) in plans.iter().enumerate() {
            if plan.kept > 0 {
                uncounted[number].push(round::<Uncounted>(*plan, time));
            }
            for (name, outcomes) in variants.iter().zip(&mut outcomes) {
                bar.set_message(format!("{name}, {} thread(s)", plan.threads));
                outcomes[number].push(one(name, *plan, time));
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    for (name, outcomes) in variants.iter().zip(&outcomes) {
        for (plan, outcomes) in plans.iter().zip(outcomes) {
            if plan.reader {
                // In `lane` nobody writes what others read: there is nothing to read beside.
                if !name.starts_with("lane") {
                    let row = Row::measured(name, "neighbour_reads_per_s", f64::NAN, "reads");
                    let rates: Vec<f64> = outcomes.iter().map(|o| o.reads_per_s).collect();
                    rows.rows.extend(row.at("writers", plan.threads).of_rounds(&rates));
                }
                continue;
            }
            let (ops, in_vain) = if plan.kept == 0 {
                ("ops_per_s", "retries_per_op")
            } else {
                ("kept_ops_per_s", "kept_retries_per_op")
            };
            for (metric, of, unit) in [
                (ops, (|o| o.pairs_per_s) as fn(&Outcome) -> f64, "pairs"),
                (in_vain, |o| o.retries_per_pair, "retries"),
            ] {
                let row = Row::measured(name, metric, f64::NAN, unit).at("threads", plan.threads);
                rows.rows.extend(row.of_rounds(&outcomes.iter().map(of).collect::<Vec<f64>>()));
            }
        }
    }
    let place = |name: &str| variants.iter().position(|variant| *variant == name);
    let (r0, r2) = (place("r0"), place("r2"));
    for (number, plan) in plans.iter().enumerate().filter(|(_, plan)| plan.threads == 2) {
        let (Some(r0), Some(r2)) = (r0, r2) else { break };
        // Round by round, because what else the machine does changes between them.
        let rounds = outcomes[r2][number].iter().zip(&outcomes[r0][number]);
        let times = median(rounds.clone().map(|(r2, r0)| r2.pairs_per_s / r0.pairs_per_s));
        // Neither speaks for the other: how long a reference is kept decides how often two cores want its line at the same time.
        let judged = if plan.kept == 0 {
            rows.push(Row::measured("r2", "ops_times_r0", times, "").at("threads", 2usize));
            (times, format!("{times:.2} x the pairs of r0, references by themselves, each given back at once"))
        } else {
            // The time for which it is kept is the same whoever counts, so it is also taken away: what is left is counting. Judged is the whole.
            let pair_ns = |of: &Outcome| of.pair_ns(plan.threads);
            let counting = median(
                rounds
                    .zip(&uncounted[number])
                    .map(|((r2, r0), without)| (pair_ns(r0) - pair_ns(without)) / (pair_ns(r2) - pair_ns(without))),
            );
            let without = median(uncounted[number].iter().map(pair_ns));
            rows.push(Row::measured("r2", "kept_ops_times_r0", times, "").at("threads", 2usize));
            rows.push(Row::measured("r2", "kept_counting_times_r0", counting, "").at("threads", 2usize));
            rows.push(Row::measured("uncounted", "kept_ns_per_op", without, "ns").at("threads", 2usize));
            let words = format!(
                "{times:.2} x the pairs of r0, each reference kept for as long as a packet's way; without that time ({without:.0} ns, whoever counts) r0's counting takes {counting:.2} x as long"
            );
            (times, words)
        };
        if !s5.wall.quick {
            let held = if plan.kept == 0 { "given back at once" } else { "kept for as long as a packet's way" };
            let what = format!("at least 1.2 x r0 on two cores, {held}");
            rows.bar("r2", &what, judged.0 >= RCUREF_MIN, Source::Measured, &judged.1);
        }
    }
    let reads = |name: &str| rows.value(name, "neighbour_reads_per_s", "writers", 1usize);
    if let (Some(r0), Some(r1)) = (reads("r0"), reads("r1")) {
        rows.remark(format!(
            "a reader of what lies beside the count reads {:.2} x as fast with padding (r1 to r0)",
            r1 / r0
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
