//! Owns what the model is told of this machine: what a line costs that is there, what one costs that is not, and how fast two
//! threads take and give back one reference.

use crate::bench::machine;
use crate::s3::sharing::{apart, transfer};
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Rounds of each, in turn; the median counts.
const ROUNDS: usize = 5;
/// Pairs between two looks at the clock.
const BATCH: u32 = 256;

/// How a reference is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taking {
    /// A loop of compare-and-exchange that refuses at zero.
    Loop,
    /// One unconditional addition.
    Add,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Measured {
    /// An atomic operation on a line that is there.
    pub hit_ns: f64,
    /// Until the other core has seen a write; `None` with one core.
    pub transfer_ns: Option<f64>,
    /// Pairs a second: how, by how many threads.
    pub pairs: Vec<(Taking, usize, f64)>,
}

#[repr(align(128))]
struct Count(AtomicU32);

fn take(count: &AtomicU32, taking: Taking) {
    match taking {
        Taking::Add => {
            count.fetch_add(1, Ordering::Relaxed);
        }
        Taking::Loop => {
            let mut seen = count.load(Ordering::Relaxed);
            while seen != 0 {
                match count.compare_exchange(seen, seen + 1, Ordering::Relaxed, Ordering::Relaxed) {
                    Ok(_) => break,
                    Err(found) => seen = found,
                }
            }
        }
    }
}

/// Pairs a second of all threads, while all are at work.
fn pairs(taking: Taking, threads: usize, time: Duration) -> f64 {
    let count = Count(AtomicU32::new(1));
    let start = Barrier::new(threads);
    std::thread::scope(|scope| {
        let (count, start) = (&count.0, &start);
        let running: Vec<_> = (0..threads)
            .map(|number| {
                scope.spawn(move || {
                    machine::pin(number);
                    start.wait();
                    let (began, mut done) = (Instant::now(), 0u64);
                    while began.elapsed() < time {
                        for _ in 0..BATCH {
                            take(black_box(count), taking);
                            count.fetch_sub(1, Ordering::Release);
                        }
                        done += u64::from(BATCH);
                    }
                    done as f64 / began.elapsed().as_secs_f64()
                })
            })
            .collect();
        running.into_iter().map(|thread| thread.join().expect("it only counts")).sum()
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Takes `time` in all, more or less.
pub fn measure(time: Duration) -> Measured {
    let threads = machine::cores().min(2);
    let each = time / (ROUNDS * 5) as u32;
    let all: Vec<(Taking, usize)> =
        (1..=threads).flat_map(|threads| [(Taking::Add, threads), (Taking::Loop, threads)]).collect();
    let mut rates = vec![Vec::new(); all.len()];
    let mut transfers = Vec::new();
    for _ in 0..ROUNDS {
        for (list, (taking, threads)) in rates.iter_mut().zip(&all) {
            list.push(pairs(*taking, *threads, each));
        }
        if threads == 2 {
            transfers.push(apart(|| transfer(each)));
        }
    }
    let pairs: Vec<(Taking, usize, f64)> =
        all.into_iter().zip(rates).map(|((taking, threads), rates)| (taking, threads, median(rates))).collect();
    let alone = pairs.first().map_or(f64::NAN, |(.., rate)| *rate);
    Measured { hit_ns: 1e9 / alone / 2.0, transfer_ns: (!transfers.is_empty()).then(|| median(transfers)), pairs }
}
