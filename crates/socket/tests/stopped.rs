//! A process that is stopped is stopped with its lanes, and what comes meanwhile lies in the device: when it goes on, a wait whose
//! time is over has it all the same, as it has of the kernel.
//!
//! Needs root, so it runs only when asked for: `cargo test -p laneway --test stopped -- --ignored`. It works in a network namespace
//! that ends with it. The client is a program of its own, of the kernel's sockets, which stops this one.

mod common;

use laneway::{Device, Interest, Mode, Poller, Stack, TcpListener, UdpSocket};
use rustix::process::{Signal, getppid, kill_process};
use std::io::{self, Read, Write};
use std::net::{TcpStream, UdpSocket as KernelUdp};
use std::process::Command;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

const TEST: &str = "what_came_while_the_process_was_stopped_is_there";
const CLIENT: &str = "LANEWAY_TEST_CLIENT";
const DATAGRAM: &str = "a receive";
const READ: &str = "a read";
const POLLER: &str = "a poller";
const KINDS: [&str; 3] = [DATAGRAM, READ, POLLER];
/// Of each kind of wait.
const EACH: usize = 6;
const ROUNDS: usize = 3;
/// How long a wait may last, and how long the process is stopped, so that all of them end.
const WAITS: Duration = Duration::from_secs(1);
const STOPPED: Duration = Duration::from_millis(1_500);

#[test]
#[ignore = "needs root: makes a network namespace and a TUN interface"]
fn what_came_while_the_process_was_stopped_is_there() {
    if std::env::var_os(CLIENT).is_some() {
        return client();
    }
    if !common::is_inside(TEST) {
        return;
    }
    thread::scope(|scope| {
        // They are there before the stack is: what goes on first is what was there first.
        let waiters = [(); 3 * EACH].map(|()| {
            let (give, given) = channel();
            let waiter = move || given.recv().map(|(kind, stream, datagrams)| wait_for_each(kind, stream, datagrams));
            (give, scope.spawn(waiter))
        });
        let stack = Stack::builder(Device::tun("lwstop0")).address("10.79.0.2/24").unwrap().start().unwrap();
        let listener = TcpListener::bind_on(&stack, "10.79.0.2:7").unwrap();
        let mut client = Command::new(std::env::current_exe().unwrap());
        let mut client = client.args(["--ignored", "--exact", TEST, "--nocapture"]).env(CLIENT, "1").spawn().unwrap();
        for (number, (give, _)) in waiters.iter().enumerate() {
            let datagrams = UdpSocket::bind_on(&stack, "10.79.0.2:0").unwrap();
            give.send((KINDS[number % 3], listener.accept().unwrap().0, datagrams)).unwrap();
        }
        assert!(client.wait().unwrap().success());
        for (_, waiter) in waiters {
            // Before the stack ends, which would end their waits.
            waiter.join().expect("each has what came").expect("each has been given its sockets");
        }
    });
}

/// Says where it wants its datagrams, if it does, and then each time that it is about to wait.
fn wait_for_each(kind: &str, mut stream: laneway::TcpStream, datagrams: UdpSocket) {
    let port = if kind == DATAGRAM { datagrams.local_addr().unwrap().port() } else { 0 };
    stream.write_all(&port.to_be_bytes()).unwrap();
    let poller = Poller::new().unwrap();
    poller.add(&stream, 1, Interest::READABLE, Mode::Level).unwrap();
    stream.set_read_timeout(Some(WAITS)).unwrap();
    datagrams.set_read_timeout(Some(WAITS)).unwrap();
    for round in 0..ROUNDS {
        stream.write_all(b"?").unwrap();
        let came = match kind {
            DATAGRAM => datagrams.recv(&mut [0]),
            READ => stream.read(&mut [0]),
            _ => poller.wait(&mut Vec::new(), Some(WAITS)).and_then(|_| {
                stream.set_nonblocking(true)?;
                let read = stream.read(&mut [0]);
                stream.set_nonblocking(false)?;
                read
            }),
        };
        assert!(matches!(came, Ok(1)), "round {round}: {kind} says {came:?}");
    }
}

/// Hears of each that it is about to wait, stops them all, speaks to them, and lets them go on.
fn client() {
    let test = getppid().expect("the test has started this one");
    let connect = |_| {
        let mut stream = TcpStream::connect("10.79.0.2:7").expect("the test listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut port = [0; 2];
        stream.read_exact(&mut port).unwrap();
        (stream, u16::from_be_bytes(port))
    };
    let mut waiters: Vec<_> = (0..3 * EACH).map(connect).collect();
    let datagrams = KernelUdp::bind("0.0.0.0:0").unwrap();
    for _ in 0..ROUNDS {
        for (stream, _) in &mut waiters {
            stream.read_exact(&mut [0]).expect("the test waits, and says so");
        }
        thread::sleep(WAITS / 50);
        kill_process(test, Signal::STOP).unwrap();
        let speak = |(stream, port): &mut (TcpStream, u16)| match port {
            0 => stream.write(b"!"),
            port => datagrams.send_to(b"!", ("10.79.0.2", *port)),
        };
        let spoken: io::Result<Vec<_>> = waiters.iter_mut().map(speak).collect();
        thread::sleep(STOPPED);
        kill_process(test, Signal::CONT).unwrap();
        spoken.expect("the device has room");
    }
}
