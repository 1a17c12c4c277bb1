//! Lanes that sleep: whoever asks one for something wakes it, and does not wait until it would have woken by itself.

mod common;

use common::{pair, stacks};
use laneway::{TcpListener, TcpStream, UdpSocket};
use std::io::{ErrorKind, Read};
use std::net::Shutdown;
use std::thread;
use std::time::{Duration, Instant};

/// A lane sleeps for a second at the most. By then it has given back what idle ones give back, and sleeps on.
const IDLE: Duration = Duration::from_millis(400);
/// However slow the machine is, of three it is not late each time.
const SOON: Duration = Duration::from_millis(300);

/// The shortest of some times that it takes from an act of one end of a connection until the other reads what comes of it.
fn is_heard(what: &str, act: impl Fn(TcpStream) -> Option<TcpStream>) {
    let (server, client) = stacks();
    let shortest = (0..3).map(|_| {
        let (near, mut far) = pair(&server, &client);
        thread::sleep(IDLE);
        let began = Instant::now();
        let _kept = act(near);
        let _ = far.read(&mut [0; 4]);
        began.elapsed()
    });
    let shortest = shortest.min().unwrap();
    assert!(shortest < SOON, "{what}: the other end hears of it after {shortest:?}");
}

#[test]
fn a_close_wakes_its_lane() {
    for nonblocking in [false, true] {
        is_heard("a close", |stream| {
            stream.set_nonblocking(nonblocking).unwrap();
            None
        });
    }
}

#[test]
fn a_shutdown_wakes_its_lane() {
    for nonblocking in [false, true] {
        is_heard("a shutdown", |stream| {
            stream.set_nonblocking(nonblocking).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            Some(stream)
        });
    }
}

#[test]
fn a_datagram_wakes_its_lane() {
    let (server, client) = stacks();
    let near = UdpSocket::bind_on(&client, "10.0.0.2:0").unwrap();
    let far = UdpSocket::bind_on(&server, "10.0.0.1:53").unwrap();
    let shortest = (0..3).map(|_| {
        thread::sleep(IDLE);
        let began = Instant::now();
        near.send_to(b"x", "10.0.0.1:53").unwrap();
        far.recv(&mut [0; 4]).unwrap();
        began.elapsed()
    });
    assert!(shortest.min().unwrap() < SOON);
}

#[test]
fn a_connect_and_the_end_of_a_listener_wake_their_lanes() {
    let (server, client) = stacks();
    let shortest = (0..3).map(|_| {
        let listener = TcpListener::bind_on(&server, "10.0.0.1:0").unwrap();
        thread::sleep(IDLE);
        let began = Instant::now();
        let mut stream = TcpStream::connect_on(&client, listener.local_addr().unwrap()).unwrap();
        drop(listener);
        assert_eq!(stream.read(&mut [0; 4]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        began.elapsed()
    });
    assert!(shortest.min().unwrap() < SOON);
}
