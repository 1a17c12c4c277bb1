//! A poller that is dropped closes its descriptor, as an `epoll` does, though what it watched goes on.

mod common;

use laneway::{Interest, Mode, Poller, TcpListener, TcpStream};
use std::fs;
use std::time::Duration;

fn descriptors() -> usize {
    let all = fs::read_dir("/proc/self/fd").unwrap();
    let is_eventfd = |to: std::path::PathBuf| to.to_string_lossy().contains("eventfd");
    all.filter(|fd| fs::read_link(fd.as_ref().unwrap().path()).is_ok_and(is_eventfd)).count()
}

/// Each connect is waited for with a poller of its own.
#[test]
fn a_poller_that_is_dropped_closes_its_descriptor() {
    const MANY: usize = 50;
    let (server, client) = common::stacks();
    let listener = TcpListener::bind_on(&server, "10.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let connect = || {
        let stream = TcpStream::begin_connect_on(&client, &at).unwrap();
        let poller = Poller::new().unwrap();
        poller.add(&stream, 0, Interest::WRITABLE, Mode::Level).unwrap();
        assert_eq!(poller.wait(&mut Vec::new(), Some(Duration::from_secs(5))).unwrap(), 1);
        drop(poller);
        (stream, listener.accept().unwrap())
    };
    let first = connect();
    common::rounds([&server, &client]);
    let before = descriptors();
    let all: Vec<_> = (0..MANY).map(|_| connect()).collect();
    common::rounds([&server, &client]);
    let more = descriptors().saturating_sub(before);
    assert!(more < MANY / 2, "{more} descriptors more for {MANY} connections that no poller watches");
    drop((first, all));
}
