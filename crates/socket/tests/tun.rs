//! Through a real TUN interface with two queues, to a listener of the kernel: the reply to every connection comes to the lane that
//! opened it, because the port was chosen so and the kernel steers with our program.
//!
//! Needs root, so it runs only when asked for: `cargo test -p laneway --test tun -- --ignored`. It works in a network
//! namespace that ends with it.

use laneway::on_lane::{Address, App, CloseReason, ConnId, Context, Device, Mib, Stack};
use std::io::Read;
use std::net::TcpListener;
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

const CONNECTS: usize = 10_000;
const AT_ONCE: usize = 64;
const INSIDE: &str = "LANEWAY_TEST_NAMESPACE";

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
    if std::env::var_os(INSIDE).is_none() {
        let this = std::env::current_exe().expect("the test's own program");
        let status = Command::new("unshare")
            .arg("--net")
            .arg(this)
            .args(["--ignored", "--nocapture", "--exact", "replies_to_ten_thousand_connects_come_home"])
            .env(INSIDE, "1")
            .status()
            .expect("unshare, of util-linux, makes the namespace");
        assert!(status.success(), "inside of the namespace it failed");
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
