//! How much one `write` takes: as much as the kernel's.

mod common;

use common::{pair, stacks};
use laneway::{Stack, TcpStream};
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::thread;
use std::time::{Duration, Instant};

const MUCH: usize = 4 << 20;

/// Keep the stacks: their connections end with them.
fn connected() -> ((Stack, Stack), TcpStream, TcpStream) {
    let (server, client) = stacks();
    let (stream, other) = pair(&server, &client);
    ((server, client), stream, other)
}

fn pattern() -> Vec<u8> {
    (0..MUCH).map(|n| (n / 251) as u8).collect()
}

#[test]
fn a_write_that_may_wait_takes_all() {
    let (_stacks, mut ours, their_end) = connected();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut kernels = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let kernels_end = listener.accept().unwrap().0;
    fn read_all(mut from: impl Read + Send + 'static) -> thread::JoinHandle<Vec<u8>> {
        thread::spawn(move || {
            let mut all = Vec::new();
            from.read_to_end(&mut all).unwrap();
            all
        })
    }
    let (read_ours, read_kernels) = (read_all(their_end), read_all(kernels_end));
    let data = pattern();
    assert_eq!(kernels.write(&data).unwrap(), MUCH);
    assert_eq!(ours.write(&data).unwrap(), MUCH);
    // Of several buffers, too, one of them empty.
    let (first, rest) = data.split_at(300_000);
    let bufs = [first, &[], &rest[..5], &rest[5..]].map(IoSlice::new);
    assert_eq!(kernels.write_vectored(&bufs).unwrap(), MUCH);
    assert_eq!(ours.write_vectored(&bufs).unwrap(), MUCH);
    drop((ours, kernels));
    let read = read_ours.join().unwrap();
    assert!(read == [&data[..], &data[..]].concat());
    assert!(read == read_kernels.join().unwrap());
}

#[test]
fn a_write_whose_time_is_over_says_what_it_took() {
    let (_stacks, mut stream, mut other) = connected();
    stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let data = pattern();
    let start = Instant::now();
    let mut taken = stream.write(&data).unwrap();
    assert!(start.elapsed() >= Duration::from_millis(200) && (1..MUCH).contains(&taken), "{taken}");
    // What silly-window avoidance holds back leaves after about as long, and there is room for as much once more.
    let refused = loop {
        assert!(taken < MUCH, "nobody reads");
        match stream.write(&data[taken..]) {
            Ok(more) => taken += more,
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused.kind(), ErrorKind::WouldBlock);
    drop(stream);
    let mut read = Vec::new();
    other.read_to_end(&mut read).unwrap();
    assert!(read == data[..taken]);
}

#[test]
fn a_write_during_which_the_connection_fails_says_what_it_took_and_the_next_says_why() {
    let (_stacks, mut stream, other) = connected();
    let resets = thread::spawn(move || {
        thread::sleep(Duration::from_millis(200));
        drop(other); // with bytes that nobody has read
    });
    let taken = stream.write(&pattern()).unwrap();
    assert!((1..MUCH).contains(&taken), "{taken}");
    assert_eq!(stream.write(b"x").unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(stream.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
    resets.join().unwrap();
}

#[test]
fn a_write_that_may_not_wait_takes_what_there_is_room_for() {
    let (_stacks, mut stream, _other) = connected();
    stream.set_nonblocking(true).unwrap();
    assert!((1..MUCH).contains(&stream.write(&pattern()).unwrap()));
    let until = Instant::now() + Duration::from_secs(5);
    while stream.write(&pattern()).is_ok() {
        assert!(Instant::now() < until, "nobody reads");
    }
}
