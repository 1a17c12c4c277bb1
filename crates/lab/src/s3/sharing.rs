//! Owns false sharing by itself: two threads, each on a core of its own, each taking and giving back a lock of its own,
//! which lie side by side as `b0` has them or a line apart as `b1` has them.

use crate::bench::machine;
use crate::s3_ports::b0::{Bucket, Packed};
use crate::s3_ports::b1::Padded;
use crate::s3_ports::common::LINE;
use crate::wall::rows::{Row, Rows};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Locks taken between two looks at the clock: some microseconds.
const BATCH: u64 = 256;
/// Throws of the ball between two looks at the clock.
const THROWS: u64 = 32;
/// A line between two cores of one socket, for the model where it cannot be measured.
const USUAL_TRANSFER_NS: f64 = 60.0;
/// Rounds of each in turn; the median counts.
const ROUNDS: usize = 5;

/// What the model needs.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// A lock taken and given back with its line in the cache.
    pub local_ns: f64,
    /// A line fetched from the core that wrote it last.
    pub transfer_ns: f64,
}

/// The first of two neighbours on one cache line, if there are such.
fn first_of_a_line<B>(buckets: &[B]) -> usize {
    let line = |bucket: &B| std::ptr::from_ref(bucket) as usize / LINE;
    buckets.windows(2).position(|pair| line(&pair[0]) == line(&pair[1])).unwrap_or(0)
}

/// How far a thread has come, on a line of its own.
#[repr(align(64))]
#[derive(Default)]
struct Progress(AtomicU64);

/// Nanoseconds of one lock and unlock by `threads` threads, each with a bucket of its own beside the other's: the median
/// of all batches during which the other thread was at work too. (It may have lost its processor to somebody else.)
fn locking<B: Bucket>(threads: usize, time: Duration) -> f64 {
    let buckets: Vec<B> = (0..B::BUCKETS).map(|_| B::default()).collect();
    let first = first_of_a_line(&buckets);
    let progress: [Progress; 2] = Default::default();
    let start = Barrier::new(threads);
    let times = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|number| {
                let (lock, start, progress) = (&buckets[first + number].slot().lock, &start, &progress);
                scope.spawn(move || {
                    // There are as many cores as threads.
                    machine::pin(number);
                    let (mine, other) = (&progress[number].0, &progress[1 - number].0);
                    let mut times = Vec::new();
                    start.wait();
                    let began = Instant::now();
                    while began.elapsed() < time {
                        let (seen, batch) = (other.load(Ordering::Relaxed), Instant::now());
                        for _ in 0..4 {
                            for _ in 0..BATCH {
                                drop(lock.lock());
                            }
                            mine.fetch_add(1, Ordering::Relaxed);
                        }
                        let ns = batch.elapsed().as_nanos() as f64 / (4 * BATCH) as f64;
                        if threads == 1 || other.load(Ordering::Relaxed) - seen >= 2 {
                            times.push(ns);
                        }
                    }
                    times
                })
            })
            .collect();
        running.into_iter().flat_map(|thread| thread.join().expect("it only locks")).collect::<Vec<f64>>()
    });
    median(times)
}

/// A line with one word that is thrown to and fro.
#[repr(align(64))]
#[derive(Default)]
struct Ball(AtomicU64);

/// Nanoseconds until the other core has seen what one core has written, which is one transfer of the line to look and,
/// where the line was only lent for reading, one more to write. The calling thread stays on core 0.
pub fn transfer(time: Duration) -> f64 {
    let ball = Ball::default();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (ball, stop) = (&ball, &stop);
        scope.spawn(move || {
            machine::pin(1);
            while !stop.load(Ordering::Relaxed) {
                let seen = ball.0.load(Ordering::Acquire);
                if seen % 2 == 1 {
                    ball.0.store(seen + 1, Ordering::Release);
                }
                std::hint::spin_loop();
            }
        });
        machine::pin(0);
        let (began, mut times) = (Instant::now(), Vec::new());
        while began.elapsed() < time {
            let batch = Instant::now();
            for _ in 0..THROWS {
                let seen = ball.0.load(Ordering::Relaxed);
                ball.0.store(seen + 1, Ordering::Release);
                let mut waits = 0u32;
                while ball.0.load(Ordering::Acquire) == seen + 1 {
                    std::hint::spin_loop();
                    waits += 1;
                    // The other may have to wait for the processor.
                    if waits.is_multiple_of(1 << 16) {
                        std::thread::yield_now();
                    }
                }
            }
            // There and back.
            times.push(batch.elapsed().as_nanos() as f64 / THROWS as f64 / 2.0);
        }
        stop.store(true, Ordering::Relaxed);
        median(times)
    })
}

/// Of nothing it is no number.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// In a thread of its own, so that the one that calls is left as free to move as it was.
pub fn apart<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| scope.spawn(work).join().expect("it only measures"))
}

/// Measures both, in turn, alone and with company.
pub fn run(time: Duration, rows: &mut Rows) -> Costs {
    let round = time / ROUNDS as u32;
    let threads = machine::cores().min(2);
    let mut times: [Vec<f64>; 6] = Default::default();
    for _ in 0..ROUNDS {
        for (list, ns) in times.iter_mut().zip([
            locking::<Packed>(1, round),
            locking::<Padded>(1, round),
            locking::<Packed>(threads, round),
            locking::<Padded>(threads, round),
            locking::<Padded>(threads, round),
            if threads == 2 { apart(|| transfer(round)) } else { f64::NAN },
        ]) {
            list.push(ns);
        }
    }
    let [packed_alone, padded_alone, packed, padded, twin, transfer] = times.map(median);
    if threads < 2 {
        rows.remark("false sharing needs two cores, and this process may use one: only single threads were measured");
    }
    for (name, count, ns) in
        [("b0", 1, packed_alone), ("b1", 1, padded_alone), ("b0", 2, packed), ("b1", 2, padded), ("b1-aa", 2, twin)]
    {
        if count <= threads && ns.is_finite() {
            rows.push(Row::measured(name, "ns_per_lock", ns, "ns").at("threads", count));
        }
    }
    if transfer.is_finite() {
        rows.push(Row::measured("machine", "line_transfer_ns", transfer, "ns").at("threads", 2usize));
    }
    // Where it cannot be measured the model takes what is usual between two cores of one socket.
    Costs { local_ns: padded_alone, transfer_ns: if transfer.is_finite() { transfer } else { USUAL_TRANSFER_NS } }
}
