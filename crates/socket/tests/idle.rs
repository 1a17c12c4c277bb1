//! What an idle connection of a thread costs, both ends included. Alone in its program, because it asks how large that is.

use laneway::{Device, Stack, TcpListener, TcpStream};
use std::io::{Read, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Bytes of memory that this process has.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1_024
}

/// `IDLE_CONNECTIONS=10000 cargo test --release -p laneway --test idle -- --nocapture` prints the figure.
#[test]
fn an_idle_connection_costs_at_most_a_kibibyte() {
    let all: usize = std::env::var("IDLE_CONNECTIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(10_000);
    const THREADS: usize = 4;
    let (here, there) = Device::memory_pair(1).unwrap();
    let server = Stack::builder(here).address("10.0.0.1/24").unwrap().start().unwrap();
    let client = Stack::builder(there).address("10.0.0.2/24").unwrap().start().unwrap();
    let listener = TcpListener::bind_on(&server, "10.0.0.1:80").unwrap();
    // Each is kept in one place, which is there before: a second copy of the handles, for a moment, is the test's and not a connection's.
    let open = |n: usize, all: &Mutex<Vec<(TcpStream, TcpStream)>>| {
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..n / THREADS {
                        let mut mine = TcpStream::connect_on(&client, "10.0.0.1:80").unwrap();
                        // Perhaps another thread's: what matters is that each is used.
                        let mut theirs = listener.accept().unwrap().0;
                        mine.write_all(b"?").unwrap();
                        theirs.write_all(b"!").unwrap();
                        mine.read_exact(&mut [0]).unwrap();
                        theirs.read_exact(&mut [0]).unwrap();
                        all.lock().unwrap().push((mine, theirs));
                    }
                });
            }
        });
    };
    // Threads, tables, blocks, and the rings of the link from end to end: what is there once.
    let warm = Mutex::default();
    open(4_000, &warm);
    std::thread::sleep(Duration::from_millis(200));
    let blocks = || server.memory().unwrap().1 + client.memory().unwrap().1;
    let (before, blocks_before) = (resident(), blocks());
    let start = Instant::now();
    let opened = Mutex::new(Vec::with_capacity(all));
    open(all, &opened);
    let took = start.elapsed();
    std::thread::sleep(Duration::from_millis(500)); // the lanes take their blocks back
    // The blocks that the lanes have taken back wait for whoever speaks next; they are no connection's.
    let blocks = blocks() - blocks_before;
    let opened = opened.into_inner().unwrap();
    let each = (resident() - before).saturating_sub(blocks) as f64 / (2 * opened.len()) as f64;
    println!(
        "{} connections in {took:.1?}: {each:.0} bytes for each end, and {blocks} of blocks for all",
        opened.len()
    );
    assert!(each <= 1_024.0, "an idle connection costs {each:.0} bytes at each end");
    assert!(blocks < 16 << 20, "{blocks} bytes of blocks were needed by connections that said a byte each");
    drop((warm, opened));
}
