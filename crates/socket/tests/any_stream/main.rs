//! Streams between threads over links that lose, double, reorder and damage what they carry: whatever is written arrives, once and in order.
//!
//! Chance, out of a seed, says what the link is, how small memory is, and how each end goes about it: in one thread that waits for what its poller
//! tells, or in two that wait in their calls, in pieces of any length, at its own pace. What the threads do to each other is the machine's business,
//! so a seed is a setting and not a run:
//!
//! ```text
//! LANEWAY_SEEDS=4711..4712 cargo test -p laneway --test any_stream
//! ```

#[path = "../common/mod.rs"]
mod common;
#[allow(dead_code, reason = "any_story uses all of it")]
#[path = "../any_story/dice.rs"]
mod dice;

mod end;
mod plan;

use common::seeds;
use end::End;
use laneway::{Device, Stack, TcpListener, TcpStream};
use plan::Plan;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

/// Settings that are tried at the same time: where something is lost, nearly all of the time is waited.
const TRIED: usize = 32;

/// What a plan says, to its end. Whatever is wrong is a panic.
fn run(plan: &Plan) {
    let (here, there) = Device::memory_pair_with(plan.link()).unwrap();
    let start = |device, end: usize| {
        let builder = Stack::builder(device).address(["10.0.0.1/24", "10.0.0.2/24"][end]).unwrap();
        builder.config(plan.config.clone()).fault(plan.rates(end), plan.seed + end as u64).start().unwrap()
    };
    let stacks = [start(here, 0), start(there, 1)];
    let listener = TcpListener::bind_on(&stacks[0], "10.0.0.1:0").unwrap();
    thread::scope(|scope| {
        for (number, pair) in plan.pairs.iter().enumerate() {
            let stream = TcpStream::connect_on(&stacks[1], listener.local_addr().unwrap()).unwrap();
            let other = listener.accept().unwrap().0;
            for (side, stream) in [stream, other].into_iter().enumerate() {
                let end = End::new(stream, pair, (number, side));
                scope.spawn(move || end.run());
            }
        }
    });
}

#[test]
fn whatever_is_written_arrives_once_and_in_order() {
    let seeds = seeds(0..40);
    let (next, failed) = (AtomicU64::new(seeds.start), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..TRIED {
            scope.spawn(|| {
                while let Some(seed) = Some(next.fetch_add(1, Relaxed)).filter(|seed| *seed < seeds.end) {
                    let plan = Plan::from_seed(seed);
                    if catch_unwind(AssertUnwindSafe(|| run(&plan))).is_err() {
                        eprintln!("seed {seed}, tried again by LANEWAY_SEEDS={seed}..{}\n{plan:#?}\n", seed + 1);
                        failed.lock().unwrap().push(seed);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "of the seeds {seeds:?} these failed: {failed:?}");
}
