//! A poller that is dropped closes its descriptor, as an `epoll` does, though what it watched goes on.

mod common;

use laneway::{Interest, Mode, Poller, TcpListener, TcpStream};
use std::time::Duration;

/// Each connect is waited for with a poller of its own.
#[test]
fn a_poller_that_is_dropped_closes_its_descriptor() {
    let (server, client) = common::stacks();
    let listener = TcpListener::bind_on(&server, "10.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    common::assert_no_eventfd_is_kept([&server, &client], || {
        let stream = TcpStream::begin_connect_on(&client, &at).unwrap();
        let poller = Poller::new().unwrap();
        poller.add(&stream, 0, Interest::WRITABLE, Mode::Level).unwrap();
        assert_eq!(poller.wait(&mut Vec::new(), Some(Duration::from_secs(5))).unwrap(), 1);
        drop(poller);
        (stream, listener.accept().unwrap())
    });
}
