//! Streams between threads over links that lose, double, reorder and damage what they carry: whatever is written arrives, once and in order.
//!
//! Chance, out of a seed, says what the link is, how small memory is, and how each end goes about it: in one thread that waits for what its poller
//! tells, or in two that wait in their calls, in pieces of any length, at its own pace. What the threads do to each other is the machine's business,
//! so a seed is a setting and not a run:
//!
//! ```text
//! LANEWAY_SEEDS=4711..4712 cargo test -p laneway --test any_stream
//! ```
//!
//! With `-- --ignored`, and as root, the other end of each connection is the kernel's.

#[path = "../common/mod.rs"]
mod common;
#[allow(dead_code, reason = "any_story uses all of it")]
#[path = "../any_story/dice.rs"]
mod dice;

mod end;
mod plan;

use common::{is_inside, seeds};
use end::End;
use laneway::{Device, Stack, TcpListener, TcpStream};
use plan::Plan;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

/// Settings that are tried at the same time: where something is lost, nearly all of the time is waited.
const TRIED: usize = 32;

/// What a plan says, to its end, between two stacks. Whatever is wrong is a panic.
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

/// The same between a stack and the kernel, through a TUN interface that is the network `net`. Each connects to the other. MTU and offloads are the
/// interface's, and not the plan's; the kernel's ends wait in two threads each.
fn run_with_the_kernel(plan: &Plan, net: usize) {
    let (ours, kernels) = (format!("10.77.{net}.2:0"), format!("10.77.{net}.1:0"));
    let builder = Stack::builder(Device::tun(format!("lwstream{net}"))).address(&format!("10.77.{net}.2/24")).unwrap();
    let builder = builder.lanes(plan.lanes).config(plan.config.clone()).fault(plan.rates(0), plan.seed);
    let stack = builder.start().unwrap();
    let here = TcpListener::bind_on(&stack, ours).unwrap();
    let there = std::net::TcpListener::bind(kernels).unwrap();
    thread::scope(|scope| {
        for (number, pair) in plan.pairs.iter().enumerate() {
            let (stream, other) = if number % 2 == 0 {
                let stream = TcpStream::connect_on(&stack, there.local_addr().unwrap()).unwrap();
                (stream, there.accept().unwrap().0)
            } else {
                let other = std::net::TcpStream::connect(here.local_addr().unwrap()).unwrap();
                (here.accept().unwrap().0, other)
            };
            let (end, other) = (End::new(stream, pair, (number, 0)), End::new(other, pair, (number, 1)));
            scope.spawn(move || end.run());
            scope.spawn(move || other.in_two_threads(None));
        }
    });
}

/// Tries them all, or those that somebody asks for.
fn try_all(usual: Range<u64>, run: impl Fn(&Plan, usize) + Sync) {
    let seeds = seeds(usual);
    let (next, failed) = (AtomicU64::new(seeds.start), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for at_once in 0..TRIED {
            let (run, next, failed) = (&run, &next, &failed);
            scope.spawn(move || {
                while let Some(seed) = Some(next.fetch_add(1, Relaxed)).filter(|seed| *seed < seeds.end) {
                    let plan = Plan::from_seed(seed);
                    if catch_unwind(AssertUnwindSafe(|| run(&plan, at_once))).is_err() {
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

#[test]
fn whatever_is_written_arrives_once_and_in_order() {
    try_all(0..40, |plan, _| run(plan));
}

#[test]
#[ignore = "needs root: makes a network namespace and TUN interfaces"]
fn so_it_does_from_the_kernel_and_to_it() {
    if is_inside("so_it_does_from_the_kernel_and_to_it") {
        try_all(0..40, run_with_the_kernel);
    }
}
