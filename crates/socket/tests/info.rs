//! What a thread learns of its connection when it asks, and that whoever asks is told, or told that there is nobody to ask.

mod common;

use common::{pair, rounds, stacks};
use laneway::on_lane::State;
use laneway::{Stack, TcpStream};
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

#[test]
fn both_ends_are_told_what_is_so() {
    let (server, client) = stacks();
    let (mut near, mut far) = pair(&server, &client);
    near.write_all(&[7; 5_000]).unwrap();
    far.read_exact(&mut [0; 5_000]).unwrap();
    far.write_all(b"answer").unwrap();
    near.read_exact(&mut [0; 6]).unwrap();
    let [ours, theirs] = [&near, &far].map(|stream| stream.info().unwrap());
    assert_eq!((ours.state, theirs.state), (State::Established, State::Established));
    assert_eq!((ours.bytes_acked, ours.bytes_received), (5_000, 6));
    assert_eq!((theirs.bytes_received, theirs.bytes_sent), (5_000, 6));
    assert!(ours.srtt_us.is_some() && ours.mss == theirs.mss && ours.retransmitted == 0);
    near.set_tcp_congestion(b"reno").unwrap();
    near.set_recv_buffer_size(300_000).unwrap();
    near.set_nodelay(true).unwrap();
    let ours = near.info().unwrap();
    assert_eq!((ours.congestion, ours.rcv_space, ours.nodelay), ("reno", 300_000, true), "what was asked for before");
    drop(far);
    near.read_to_end(&mut Vec::new()).unwrap();
    assert_eq!(near.info().unwrap().state, State::CloseWait);
    near.shutdown(Shutdown::Write).unwrap();
    while near.info().is_ok() {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Bytes that nobody reads are no reason to wait.
#[test]
fn who_has_written_much_is_told_at_once() {
    let (server, client) = stacks();
    let (near, _far) = pair(&server, &client);
    near.set_nonblocking(true).unwrap();
    // Until every buffer on the way is full.
    while (&near).write(&[7; 65_536]).is_ok() {
        rounds([&client, &server]);
    }
    let info = near.info().unwrap();
    assert!(info.queued > 0 && info.bytes_sent > 0, "{info:?}");
}

fn is_nobody_to_ask(stream: &TcpStream) {
    assert_eq!(stream.info().unwrap_err().kind(), ErrorKind::NotConnected);
}

#[test]
fn who_has_no_connection_is_told_that() {
    let (server, client) = stacks();
    let begun = TcpStream::begin_connect_on(&client, &"10.0.0.77:80".parse().unwrap()).unwrap();
    is_nobody_to_ask(&begun);
    let (near, far) = pair(&server, &client);
    far.set_linger(Some(Duration::ZERO)).unwrap();
    drop(far);
    assert_eq!((&near).read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    is_nobody_to_ask(&near);
    let (near, _far) = pair(&server, &client);
    client.stop().unwrap();
    is_nobody_to_ask(&near);
}

/// They ask while it ends: nobody waits for ever.
fn ask_until(ends: impl FnOnce(Stack, Stack, TcpStream)) {
    let (server, client) = stacks();
    let (near, far) = pair(&server, &client);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while near.info().is_ok() {}
                assert!(is_over.load(Relaxed), "it was there");
            });
        }
        thread::sleep(Duration::from_millis(20));
        is_over.store(true, Relaxed);
        ends(server, client, far);
    });
}

#[test]
fn who_asks_while_it_is_reset_is_told() {
    for _ in 0..20 {
        ask_until(|_server, _client, far| {
            far.set_linger(Some(Duration::ZERO)).unwrap();
            drop(far);
            thread::sleep(Duration::from_millis(20));
        });
    }
}

#[test]
fn who_asks_while_the_stack_stops_is_told() {
    for _ in 0..3 {
        ask_until(|_server, client, _far| drop(client.stop()));
    }
}
