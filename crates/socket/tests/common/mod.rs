//! What several of these tests need.

#![allow(dead_code, reason = "each of them uses some of it")]

use laneway::{Config, Device, Stack, TcpListener, TcpStream};
use std::fmt::Debug;
use std::fs;
use std::io::Write;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// Two stacks of one lane each on a link, 10.0.0.1 and 10.0.0.2.
pub fn stacks() -> (Stack, Stack) {
    let (here, there) = Device::memory_pair(1).unwrap();
    let server = Stack::builder(here).address("10.0.0.1/24").unwrap().start().unwrap();
    let client = Stack::builder(there).address("10.0.0.2/24").unwrap().start().unwrap();
    (server, client)
}

/// A connection from the second to the first, and its other end.
pub fn pair(server: &Stack, client: &Stack) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind_on(server, "10.0.0.1:0").unwrap();
    let stream = TcpStream::connect_on(client, listener.local_addr().unwrap()).unwrap();
    (stream, listener.accept().unwrap().0)
}

/// Two stacks as [`stacks`] makes them, of which the first has [so many](FEW) bytes of blocks beside what is in reserve.
pub fn stacks_with_few_blocks() -> (Stack, Stack) {
    let (here, there) = Device::memory_pair(1).unwrap();
    let mut config = Config::default();
    config.tcp.tcp_wmem = 65_536;
    let server = Stack::builder(here).address("10.0.0.1/24").unwrap().blocks(FEW / 3).config(config).start().unwrap();
    let client = Stack::builder(there).address("10.0.0.2/24").unwrap().start().unwrap();
    (server, client)
}

/// Of three sizes 64 KiB each. In each reserve is one block.
pub const FEW: usize = 3 * 65_536;

/// A connection that holds what is in reserve to write to when the server has no other block: its other end does not read, and every buffer
/// on the way is full.
pub fn stuck(server: &Stack, client: &Stack) -> (TcpStream, TcpStream) {
    let (near, far) = pair(server, client);
    far.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    while (&far).write(&[7; 65_536]).is_ok() {}
    (near, far)
}

/// Has the lanes look at their mail and at the link until nothing is on its way. One that answers has looked.
pub fn rounds(stacks: [&Stack; 2]) {
    for _ in 0..4 {
        for stack in stacks {
            stack.counters().unwrap();
        }
    }
}

/// What each call of `make` leaves behind, all of it kept, holds no eventfd of the process. (In a test binary that has this test alone.)
pub fn assert_no_eventfd_is_kept<T>(stacks: [&Stack; 2], mut make: impl FnMut() -> T) {
    const MANY: usize = 50;
    let eventfds = || {
        rounds(stacks);
        let is_one = |to: PathBuf| to.to_string_lossy().contains("eventfd");
        let all = fs::read_dir("/proc/self/fd").unwrap();
        all.filter(|fd| fs::read_link(fd.as_ref().unwrap().path()).is_ok_and(is_one)).count()
    };
    let first = make();
    let before = eventfds();
    let all: Vec<T> = (0..MANY).map(|_| make()).collect();
    let more = eventfds().saturating_sub(before);
    assert!(more < MANY / 2, "{more} eventfds more for {MANY}");
    drop((first, all));
}

/// The seeds of a test that is given some, or those that somebody asks for.
pub fn seeds(usual: Range<u64>) -> Range<u64> {
    let Ok(asked) = std::env::var("LANEWAY_SEEDS") else { return usual };
    let range = asked.split_once("..").and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    range.unwrap_or_else(|| panic!("LANEWAY_SEEDS is {asked}, and not as 0..300 is"))
}

/// Tries what each seed plans, so many at once. Those that fail are named in the end, and shown.
pub fn try_seeds<P: Debug>(usual: Range<u64>, at_once: usize, plan: impl Fn(u64) -> P + Sync, run: impl Fn(&P) + Sync) {
    let seeds = seeds(usual);
    let (next, failed) = (AtomicU64::new(seeds.start), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while let Some(seed) = Some(next.fetch_add(1, Relaxed)).filter(|seed| *seed < seeds.end) {
                    let plan = plan(seed);
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

const INSIDE: &str = "LANEWAY_TEST_NAMESPACE";

/// True in a network namespace of the test's own. Outside of one, runs the test there.
pub fn is_inside(test: &str) -> bool {
    if is_in_namespace() {
        return true;
    }
    let status = in_namespace(test).status().expect("unshare, of util-linux, makes the namespace");
    assert!(status.success(), "inside of the namespace it failed");
    false
}

/// Whether this is what [`in_namespace`] has started.
pub fn is_in_namespace() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Runs a test with one seed in a network namespace of that seed's own.
pub fn in_namespace_of(seed: u64, test: &str) {
    let mut command = in_namespace(test);
    let output = command.env("LANEWAY_SEEDS", format!("{seed}..{}", seed + 1)).output();
    let output = output.expect("unshare, of util-linux, makes the namespace");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// What runs a test in a network namespace of its own.
fn in_namespace(test: &str) -> Command {
    let this = std::env::current_exe().expect("the test's own program");
    let mut command = Command::new("unshare");
    command.arg("--net").arg(this).args(["--ignored", "--nocapture", "--exact", test]).env(INSIDE, "1");
    command
}
