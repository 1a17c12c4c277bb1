//! Streams between threads over links that lose, double, reorder and damage what they carry: whatever is written arrives, once and in order.
//!
//! Chance, out of a seed, says what the link is, how small memory is, and how each end goes about it: in one thread that waits for what its poller
//! tells, in two that wait in their calls, or as tasks, in pieces of any length, at its own pace. What they do to each other is the machine's business,
//! so a seed is a setting and not a run:
//!
//! ```text
//! LANEWAY_SEEDS=4711..4712 cargo test -p laneway --all-features --test any_stream
//! ```
//!
//! With `-- --ignored`, and as root, the other end of each connection is the kernel's, with settings of the seed's; `LANEWAY_PCAP=FILE` keeps the
//! packets of one.

#[path = "../common/mod.rs"]
mod common;
#[allow(dead_code, reason = "any_story uses all of it")]
#[path = "../any_story/dice.rs"]
mod dice;

mod end;
mod kernel;
mod plan;
mod tasks;
mod turns;

use common::{in_namespace_of, is_in_namespace, try_seeds};
use end::End;
use kernel::Kernel;
use laneway::{Config, Device, Stack, TcpListener, TcpStream};
use plan::Plan;
use std::net::SocketAddr;
use std::thread;

/// Settings that are tried at the same time: where something is lost, nearly all of the time is waited.
const AT_ONCE: usize = 32;

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

/// The same between a stack and the kernel, through a TUN interface. Each connects to the other. The kernel has settings of
/// its own, the MTU among them, which may change meanwhile, and its ends wait in two threads each.
fn run_with_the_kernel(plan: &Plan) {
    let kernel = Kernel::from_seed(plan);
    eprintln!("{plan:?}\n{kernel:?}");
    kernel.set();
    let [ours, kernels] = if kernel.v6 { ["fd77::2", "fd77::1"] } else { ["10.77.0.2", "10.77.0.1"] };
    let cidr = format!("{ours}/{}", if kernel.v6 { 64 } else { 24 });
    let builder = Stack::builder(Device::tun_with_mtu("lwstream", kernel.mtu)).address(&cidr).unwrap();
    let config = Config { software_checksums: !plan.offloads, ..plan.config.clone() };
    let builder = builder.lanes(plan.lanes).config(config).fault(plan.rates(0), plan.seed);
    let builder = match std::env::var_os("LANEWAY_PCAP") {
        Some(file) => builder.pcap(file),
        None => builder,
    };
    let stack = &builder.start().unwrap();
    let at = |ip: &str| SocketAddr::new(ip.parse().unwrap(), 0);
    let here = TcpListener::bind_on(stack, at(ours)).unwrap();
    let there = std::net::TcpListener::bind(at(kernels)).unwrap();
    thread::scope(|scope| {
        for (number, pair) in plan.pairs.iter().enumerate() {
            let (stream, other) = if number % 2 == 0 {
                let stream = TcpStream::connect_on(stack, there.local_addr().unwrap()).unwrap();
                (stream, there.accept().unwrap().0)
            } else {
                let other = std::net::TcpStream::connect(here.local_addr().unwrap()).unwrap();
                (here.accept().unwrap().0, other)
            };
            let end = End::new(stream, pair, (number, 0));
            let other = End::new(other, pair, (number, 1)).urging(kernel.urges);
            scope.spawn(move || end.run());
            scope.spawn(move || other.in_threads(None));
        }
        kernel.change("lwstream");
    });
}

#[test]
fn whatever_is_written_arrives_once_and_in_order() {
    try_seeds(0..40, AT_ONCE, Plan::from_seed, run);
}

#[test]
#[ignore = "needs root: makes a network namespace and TUN interfaces"]
fn so_it_does_from_the_kernel_and_to_it() {
    let test = "so_it_does_from_the_kernel_and_to_it";
    if is_in_namespace() {
        return try_seeds(0..1, 1, Plan::from_seed, run_with_the_kernel);
    }
    // What is set of the kernel is set of a whole namespace.
    try_seeds(0..40, AT_ONCE, Plan::from_seed, |plan| in_namespace_of(plan.seed, test));
}
