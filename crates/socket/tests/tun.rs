//! Through a real TUN interface with two queues. To a listener of the kernel: the reply to every connection comes to the lane that
//! opened it, because the port was chosen so and the kernel steers with our program. From clients of the kernel: none is
//! lost while steering buckets move from lane to lane.
//!
//! Needs root, so it runs only when asked for: `cargo test -p laneway --test tun -- --ignored`. Each test works in a network
//! namespace that ends with it.

mod common;

use common::is_inside;
use laneway::on_lane::{Address, App, CloseReason, ConnId, Context, Device, Mib, Stack};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

const CONNECTS: usize = 10_000;
const AT_ONCE: usize = 64;

/// Opens its half of the connections, and closes each when it is established.
struct Opener {
    to_open: usize,
    open: usize,
    established: usize,
    port: u16,
    done: Sender<(usize, usize)>,
}

impl App for Opener {
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        while self.to_open > 0 && self.open < AT_ONCE {
            cx.connect(None, Address::from_v4([10, 77, 0, 1]), self.port, 0).expect("there are ports");
            (self.to_open, self.open) = (self.to_open - 1, self.open + 1);
        }
    }
    fn on_connect(&mut self, cx: &mut Context<'_>, id: ConnId) {
        self.established += 1;
        cx.close(id);
    }
    fn on_data(&mut self, _: &mut Context<'_>, _: ConnId, data: &[u8]) -> usize {
        data.len()
    }
    fn on_closed(&mut self, cx: &mut Context<'_>, _: ConnId, _: u64, _: CloseReason) {
        self.open -= 1;
        if self.open == 0 && self.to_open == 0 {
            let _ = self.done.send((cx.lane(), self.established));
        }
    }
}

#[test]
#[ignore = "needs root: makes a network namespace and a TUN interface"]
fn replies_to_ten_thousand_connects_come_home() {
    if !is_inside("replies_to_ten_thousand_connects_come_home") {
        return;
    }
    // On any address, because the interface with its own is made with the stack.
    let listener = TcpListener::bind("0.0.0.0:0").expect("a listener of the kernel");
    let port = listener.local_addr().expect("its address").port();
    std::thread::spawn(move || {
        let mut wait_for_close = [0];
        while let Ok((mut connection, _)) = listener.accept() {
            let _ = connection.read(&mut wait_for_close);
        }
    });
    let (done, told) = channel();
    let stack = Stack::builder(Device::tun("lwtest0")).address("10.77.0.2/24").expect("an address").lanes(2);
    let opener = |_| Opener { to_open: CONNECTS / 2, open: 0, established: 0, port, done: done.clone() };
    let stack = stack.start(opener).expect("a TUN interface");
    assert!(stack.notes().is_empty(), "the kernel does not steer with our program: {:?}", stack.notes());
    let mut established = [0; 2];
    for _ in 0..2 {
        let (lane, count) = told.recv_timeout(Duration::from_secs(60)).expect("all connections end within a minute");
        established[lane] = count;
    }
    let counters = stack.counters().expect("it runs");
    println!("established on each lane: {established:?}, SteerMiss {}", counters.get(Mib::SteerMiss));
    assert_eq!(established, [CONNECTS / 2; 2]);
    assert_eq!(counters.get(Mib::SteerMiss), 0);
    assert_eq!(counters.get(Mib::TcpActiveOpens), CONNECTS as u64);
    stack.stop();
}

/// Sends back what it gets.
#[derive(Default)]
struct Echo(std::collections::HashMap<ConnId, Vec<u8>>);

impl App for Echo {
    fn on_data(&mut self, cx: &mut Context<'_>, id: ConnId, data: &[u8]) -> usize {
        let waiting = self.0.entry(id).or_default();
        waiting.extend_from_slice(data);
        let sent = cx.send(id, waiting);
        waiting.drain(..sent);
        data.len()
    }
    fn on_writable(&mut self, cx: &mut Context<'_>, id: ConnId) {
        if let Some(waiting) = self.0.get_mut(&id) {
            let sent = cx.send(id, waiting);
            waiting.drain(..sent);
        }
    }
    fn on_closed(&mut self, _: &mut Context<'_>, id: ConnId, _: u64, _: CloseReason) {
        self.0.remove(&id);
    }
}

/// Says `bytes` bytes, of which the first is `first`, and hears the same.
fn round(stream: &mut TcpStream, bytes: usize, first: usize) -> std::io::Result<()> {
    let said: Vec<u8> = (first..first + bytes).map(|i| (i * 7 + i / 251) as u8).collect();
    stream.write_all(&said)?;
    let mut heard = vec![0; bytes];
    stream.read_exact(&mut heard)?;
    if heard == said { Ok(()) } else { Err(std::io::Error::other("other bytes came back")) }
}

const MOVES: usize = 100;
const LONG: usize = 16;

#[test]
#[ignore = "needs root: makes a network namespace and a TUN interface"]
fn clients_of_the_kernel_notice_nothing_of_a_hundred_moves() {
    if !is_inside("clients_of_the_kernel_notice_nothing_of_a_hundred_moves") {
        return;
    }
    let stack = Stack::builder(Device::tun("lwtest1")).address("10.78.0.2/24").expect("an address").lanes(2);
    let stack = stack.start(|_| Echo::default()).expect("a TUN interface");
    assert!(stack.notes().is_empty(), "the kernel does not steer with our program: {:?}", stack.notes());
    stack.listen("0.0.0.0:7".parse().expect("an address"), 1_024).expect("it listens");
    let open = || {
        let stream = TcpStream::connect("10.78.0.2:7")?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        Ok::<_, std::io::Error>(stream)
    };
    let (stop, short, rounds) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let failed = Arc::new(std::sync::Mutex::new(Vec::new()));
    let fail = |error: std::io::Error| failed.lock().expect("no thread has panicked").push(error.to_string());
    thread::scope(|scope| {
        for _ in 0..2 {
            // Short connections, one after the other.
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    match open().and_then(|mut stream| round(&mut stream, 3_000, 0)) {
                        Ok(()) => _ = short.fetch_add(1, Ordering::Relaxed),
                        Err(error) => fail(error),
                    }
                }
            });
        }
        // Connections that are there all the time.
        scope.spawn(|| {
            let mut streams: Vec<TcpStream> = (0..LONG).map(|_| open().expect("a connection")).collect();
            while !stop.load(Ordering::Relaxed) {
                for stream in &mut streams {
                    match round(stream, 30_000, rounds.load(Ordering::Relaxed)) {
                        Ok(()) => _ = rounds.fetch_add(1, Ordering::Relaxed),
                        Err(error) => fail(error),
                    }
                }
            }
        });
        // Enough of both before the first move, and again after the last, however slow the machine is.
        let enough = |least_short: usize, least_rounds: usize| {
            let until = Instant::now() + Duration::from_secs(30);
            let done = || short.load(Ordering::Relaxed) > least_short && rounds.load(Ordering::Relaxed) > least_rounds;
            while !done() && Instant::now() < until {
                thread::sleep(Duration::from_millis(5));
            }
        };
        enough(10, 2 * LONG);
        for bucket in 0..MOVES {
            stack.move_bucket(bucket, 1 - bucket % 2).expect("there is such a bucket and lane");
            thread::sleep(Duration::from_millis(10));
        }
        thread::sleep(Duration::from_millis(200));
        enough(100, 4 * LONG);
        stop.store(true, Ordering::Relaxed);
    });
    let (short, rounds) = (short.into_inner(), rounds.into_inner());
    // The connections have ended, and so every move.
    let until = Instant::now() + Duration::from_secs(20);
    while stack.buckets().expect("it runs").iter().any(|bucket| bucket.from.is_some()) && Instant::now() < until {
        thread::sleep(Duration::from_millis(10));
    }
    let moved = stack.buckets().expect("it runs").iter().filter(|bucket| bucket.from.is_none()).count();
    let counters = stack.counters().expect("it runs");
    let count = |mib| counters.get(mib);
    let failed = failed.lock().expect("no thread has panicked").clone();
    println!(
        "{MOVES} moves beside {short} short connections and {rounds} rounds of {LONG} long ones: {} failed; \
         SteerAsked {}, SteerReturned {}, SteerMiss {}, TcpRetransSegs {}, TcpOutRsts {}",
        failed.len(),
        count(Mib::SteerAsked),
        count(Mib::SteerReturned),
        count(Mib::SteerMiss),
        count(Mib::TcpRetransSegs),
        count(Mib::TcpOutRsts),
    );
    assert!(failed.is_empty(), "{failed:?}");
    assert!(short > 100 && rounds > 4 * LONG, "{short} short connections, {rounds} rounds");
    assert_eq!(count(Mib::TcpPassiveOpens), (short + LONG) as u64);
    assert_eq!(count(Mib::TcpOutRsts), 0, "nobody was refused");
    assert!(count(Mib::SteerAsked) > 0, "some of the long ones had their buckets moved");
    assert_eq!(moved, 128, "every move has ended");
    stack.stop();
}

#[test]
#[ignore = "needs root: makes a network namespace and a TUN interface"]
fn what_the_interface_refuses_is_in_the_counters() {
    if !is_inside("what_the_interface_refuses_is_in_the_counters") {
        return;
    }
    let stack = laneway::Stack::builder(Device::tun("lwtest2")).address("10.79.0.2/24").expect("an address").lanes(1);
    let stack = stack.start().expect("a TUN interface");
    let socket = laneway::UdpSocket::bind_on(&stack, "10.79.0.2:9").expect("a port");
    let down = Command::new("ip").args(["link", "set", "lwtest2", "down"]).status().expect("iproute2 is there");
    assert!(down.success());
    socket.send_to(b"lost", "10.79.0.1:9").expect("the lane takes it");
    let began = Instant::now();
    while stack.counters().expect("it runs").get(Mib::TunTxRefused) == 0 {
        assert!(began.elapsed() < Duration::from_secs(20), "the datagram was lost, and no counter says so");
        thread::sleep(Duration::from_millis(10));
    }
    let ended = stack.stop().expect("it ran");
    assert_eq!(ended.counters.get(Mib::TunTxRefused), 1);
}

#[test]
#[ignore = "needs root: makes a network namespace and a TUN interface"]
fn a_stack_whose_interface_is_deleted_says_so() {
    if !is_inside("a_stack_whose_interface_is_deleted_says_so") {
        return;
    }
    let stack = Stack::builder(Device::tun("lwtest3")).address("10.77.0.2/24").expect("an address").lanes(2);
    let stack = stack.start(|_| Echo::default()).expect("a TUN interface");
    thread::sleep(Duration::from_millis(100));
    assert_eq!(stack.failure(), None);
    let status = Command::new("ip").args(["link", "del", "lwtest3"]).status().expect("ip(8)");
    assert!(status.success());
    let start = Instant::now();
    while stack.failure().is_none() {
        assert!(start.elapsed() < Duration::from_secs(5), "nobody noticed");
        thread::sleep(Duration::from_millis(1));
    }
    let failure = stack.stop().failure.expect("it has failed");
    assert!(failure.contains("the interface lwtest3 is gone"), "{failure}");
}

/// The cores that each lane may run on, as `/proc` has them.
fn cores_of_lanes() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("/proc is mounted");
    let paths = tasks.map(|task| task.expect("an entry").path());
    let lanes = paths.filter(|path| {
        // One that has ended meanwhile has no name.
        std::fs::read_to_string(path.join("comm")).is_ok_and(|name| name.starts_with("lane-"))
    });
    let status = lanes.filter_map(|path| std::fs::read_to_string(path.join("status")).ok());
    let allowed = status.filter_map(|status| {
        status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).map(|list| list.trim().to_owned())
    });
    allowed.collect()
}

#[test]
#[ignore = "needs root: makes a network namespace and a TUN interface"]
fn lanes_on_every_core_are_bound_to_none() {
    if !is_inside("lanes_on_every_core_are_bound_to_none") {
        return;
    }
    let cores = thread::available_parallelism().expect("cores").get();
    // Whoever brings them packets shares his core with one of two lanes on two cores, and with one lane goes to the other.
    for (lanes, is_bound) in [(1, cores > 1), (cores, false)] {
        let stack = Stack::builder(Device::tun("lwtest4")).address("10.77.0.2/24").expect("an address").lanes(lanes);
        let stack = stack.start(|_| Echo::default()).expect("a TUN interface");
        let is_known =
            |allowed: &[String]| allowed.len() == lanes && allowed.iter().all(|list| is_one(list) == is_bound);
        let began = Instant::now();
        // Each binds itself when its thread begins.
        while !is_known(&cores_of_lanes()) {
            let allowed = cores_of_lanes();
            assert!(began.elapsed() < Duration::from_secs(5), "{lanes} lanes on {cores} cores: {allowed:?}");
            thread::sleep(Duration::from_millis(1));
        }
        stack.stop();
    }
}

/// A list of one core.
fn is_one(list: &str) -> bool {
    list.parse::<u32>().is_ok()
}
