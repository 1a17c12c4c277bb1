//! Who is told of what: several that watch one socket, many sockets that one watches.

mod common;

use common::{FEW, pair, rounds, stacks, stacks_with_few_blocks, stuck};
use laneway::{Event, Interest, Mode, Poller, TcpListener, TcpStream, UdpSocket};
use std::io::{ErrorKind, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

fn keys(poller: &Poller, patience: u64) -> Vec<usize> {
    let mut events: Vec<Event> = Vec::new();
    poller.wait(&mut events, Some(Duration::from_millis(patience))).unwrap();
    events.iter().map(|event| event.key).collect()
}

#[test]
fn a_socket_moves_from_one_poller_to_another() {
    let (server, client) = stacks();
    let (mut stream, mut other) = pair(&server, &client);
    let (from, to) = (Poller::new().unwrap(), Poller::new().unwrap());
    from.add(&stream, 1, Interest::READABLE, Mode::Level).unwrap();
    to.add(&stream, 2, Interest::READABLE, Mode::Level).unwrap();
    from.delete(&stream, 1).unwrap();
    assert!(keys(&to, 100).is_empty(), "and the lane has heard of it all");
    other.write_all(b"x").unwrap();
    assert_eq!(keys(&to, 5_000), [2]);
    assert!(keys(&from, 0).is_empty());
    stream.read_exact(&mut [0]).unwrap();
}

/// What is refused says which name it is about, and what to do.
#[test]
fn a_name_that_cannot_be_is_said() {
    let (server, client) = stacks();
    let (stream, other) = pair(&server, &client);
    let poller = Poller::new().unwrap();
    let add = |key| poller.add(&stream, key, Interest::READABLE, Mode::Level);
    let says = |result: std::io::Result<()>| result.unwrap_err().to_string();
    add(7).unwrap();
    assert_eq!(says(add(7)), "a socket is watched under the name 7 already: delete it, or choose another name");
    assert_eq!(
        says(poller.modify(8, Interest::BOTH, Mode::Level)),
        "no socket is watched under the name 8: add it first"
    );
    let no_such =
        |key| format!("this socket is not watched under the name {key}: give the name that it was added under");
    assert_eq!(says(poller.delete(&stream, 8)), no_such(8));
    assert_eq!(says(poller.delete(&other, 7)), no_such(7));
}

/// A name is deleted with its own socket, by any handle of it, and with no other, of whatever kind.
#[test]
fn who_has_another_name_is_not_deleted_by_this_one() {
    let (server, client) = stacks();
    let (stream, mut other) = pair(&server, &client);
    let listener = TcpListener::bind_on(&server, "10.0.0.1:80").unwrap();
    let udp = [53, 54].map(|port| UdpSocket::bind_on(&server, ("10.0.0.1", port)).unwrap());
    let poller = Poller::new().unwrap();
    poller.add(&stream, 1, Interest::READABLE, Mode::Level).unwrap();
    poller.add(&udp[0], 2, Interest::READABLE, Mode::Level).unwrap();
    let not_found = |result: std::io::Result<()>| result.unwrap_err().kind() == std::io::ErrorKind::NotFound;
    assert!(not_found(poller.delete(&other, 1)) && not_found(poller.delete(&listener, 1)));
    assert!(not_found(poller.delete(&udp[0], 1)) && not_found(poller.delete(&stream, 2)));
    assert!(not_found(poller.delete(&udp[1], 2)) && not_found(poller.delete(&stream, 3)));
    other.write_all(b"x").unwrap();
    assert_eq!(keys(&poller, 5_000), [1], "nothing has changed");
    let sender = UdpSocket::bind_on(&client, "10.0.0.2:0").unwrap();
    sender.send_to(b"x", "10.0.0.1:53").unwrap();
    poller.delete(&stream.try_clone().unwrap(), 1).unwrap();
    assert_eq!(keys(&poller, 5_000), [2]);
    poller.delete(&udp[0].try_clone().unwrap(), 2).unwrap();
    assert!(keys(&poller, 20).is_empty() && not_found(poller.delete(&stream, 1)));
}

#[test]
fn each_poller_that_watches_a_socket_is_told() {
    let (server, client) = stacks();
    let listener = TcpListener::bind_on(&server, "10.0.0.1:80").unwrap();
    let pollers = [(); 3].map(|()| Poller::new().unwrap());
    for poller in &pollers {
        poller.add(&listener, 1, Interest::READABLE, Mode::Edge).unwrap();
    }
    let _one = TcpStream::connect_on(&client, "10.0.0.1:80").unwrap();
    assert!(pollers.iter().all(|poller| keys(poller, 5_000) == [1]));
    // One that is dropped takes nothing with it.
    let [first, second, third] = pollers;
    drop((first, third));
    let _two = TcpStream::connect_on(&client, "10.0.0.1:80").unwrap();
    assert_eq!(keys(&second, 5_000), [1]);
}

#[test]
fn a_socket_is_watched_by_so_many_and_no_more() {
    let (server, client) = stacks();
    let (stream, mut other) = pair(&server, &client);
    let poller = Poller::new().unwrap();
    for key in 0..256 {
        poller.add(&stream, key, Interest::READABLE, Mode::Edge).unwrap();
    }
    let refused = poller.add(&stream, 256, Interest::READABLE, Mode::Edge).unwrap_err();
    assert_eq!(refused.to_string(), "256 watch this socket already: delete it under a name that nobody needs");
    // Who does not watch any more makes room, whichever way he has left.
    poller.delete(&stream, 7).unwrap();
    poller.add(&stream, 256, Interest::READABLE, Mode::Edge).unwrap();
    drop(poller);
    let poller = Poller::new().unwrap();
    for key in 0..256 {
        poller.add(&stream, key, Interest::READABLE, Mode::Edge).unwrap();
    }
    other.write_all(b"x").unwrap();
    let mut told = Vec::new();
    while told.len() < 256 {
        let some = keys(&poller, 5_000);
        assert!(!some.is_empty(), "{} were told", told.len());
        told.extend(some);
    }
    told.sort();
    assert!(told.into_iter().eq(0..256));
}

/// Whose name is another's is not watched, and takes the place of nobody who would be.
#[test]
fn who_is_refused_for_its_name_takes_no_place() {
    let (server, client) = stacks();
    let (stream, _other) = pair(&server, &client);
    let poller = Poller::new().unwrap();
    poller.add(&stream, 1, Interest::READABLE, Mode::Level).unwrap();
    for _ in 0..300 {
        let refused = poller.add(&stream, 1, Interest::READABLE, Mode::Level).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
    }
    poller.add(&stream, 2, Interest::READABLE, Mode::Level).unwrap();
}

/// What is asked for while the poller looks is not forgotten with what was asked for before.
#[test]
fn who_asks_for_something_else_while_he_is_told_is_told_of_that() {
    let (server, client) = stacks();
    let (stream, mut other) = pair(&server, &client);
    other.write_all(b"x").unwrap();
    let poller = Poller::new().unwrap();
    poller.add(&stream, 1, Interest::default(), Mode::Oneshot).unwrap();
    let (told, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut events: Vec<Event> = Vec::new();
            while !over.load(Relaxed) {
                poller.wait(&mut events, Some(Duration::ZERO)).unwrap();
                told.fetch_add(events.drain(..).filter(|event| event.writable).count(), Relaxed);
            }
        });
        let enough = Instant::now() + Duration::from_secs(2);
        for round in (0..20_000).take_while(|_| Instant::now() < enough) {
            let before = told.load(Relaxed);
            poller.modify(1, Interest::READABLE, Mode::Oneshot).unwrap();
            poller.modify(1, Interest::WRITABLE, Mode::Oneshot).unwrap();
            let until = Instant::now() + Duration::from_secs(5);
            while told.load(Relaxed) == before && !over.load(Relaxed) {
                if Instant::now() > until {
                    over.store(true, Relaxed);
                    panic!("round {round}: nobody is told");
                }
            }
        }
        over.store(true, Relaxed);
    });
}

/// One `wait` tells of so many, however many its caller has kept.
#[test]
fn who_keeps_what_he_was_told_is_told_more() {
    let (_server, client) = stacks();
    let socket = UdpSocket::bind_on(&client, "10.0.0.2:0").unwrap();
    let poller = Poller::new().unwrap();
    poller.add(&socket, 1, Interest::WRITABLE, Mode::Level).unwrap();
    let mut events = Vec::new();
    for _ in 0..1_100 {
        assert_eq!(poller.wait(&mut events, Some(Duration::from_secs(5))).unwrap(), 1);
    }
    assert_eq!(events.len(), 1_100);
}

/// More that are always ready than one `wait` tells of: all have their turn, and so has one to which something happens meanwhile.
#[test]
fn those_that_are_always_ready_take_turns() {
    let (server, client) = stacks();
    let poller = Poller::new().unwrap();
    const ALL: usize = 1_100;
    let all: Vec<_> = (0..ALL).map(|_| UdpSocket::bind_on(&client, "10.0.0.2:0").unwrap()).collect();
    for (key, socket) in all.iter().enumerate() {
        poller.add(socket, key, Interest::WRITABLE, Mode::Level).unwrap();
    }
    let mut told = vec![0; ALL];
    for _ in 0..22 {
        keys(&poller, 0).into_iter().for_each(|key| told[key] += 1);
    }
    assert!(told.iter().all(|times| (15..=22).contains(times)), "{told:?}");
    let (stream, mut other) = pair(&server, &client);
    poller.add(&stream, ALL, Interest::READABLE, Mode::Level).unwrap();
    other.write_all(b"x").unwrap();
    let until = Instant::now() + Duration::from_secs(5);
    while !keys(&poller, 0).contains(&ALL) {
        assert!(Instant::now() < until, "nobody was told of the one that had something to read");
    }
    // From then on it takes turns with the others.
    let again = (0..4).filter(|_| keys(&poller, 0).contains(&ALL)).count();
    assert!(again >= 2, "{again} of 4");
}

/// There was room and no memory, nothing comes for it, and nobody but its lane knows that it would write.
#[test]
fn who_was_refused_memory_is_told_when_there_is_some() {
    let (server, client) = stacks_with_few_blocks();
    let (mut hog, mut idle) = pair(&server, &client);
    let (_near, far) = pair(&server, &client);
    let poller = Poller::new().unwrap();
    far.set_nonblocking(true).unwrap();
    poller.add(&far, 1, Interest::WRITABLE, Mode::Edge).unwrap();
    hog.write_all(&[7; FEW]).unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    while server.memory().unwrap().1 < FEW {
        assert!(Instant::now() < until, "{:?} are held", server.memory());
    }
    let _stuck = stuck(&server, &client);
    rounds([&server, &client]);
    while !keys(&poller, 0).is_empty() {}
    assert_eq!((&far).write(b"x").unwrap_err().kind(), ErrorKind::WouldBlock);
    idle.read_exact(&mut vec![0; FEW]).unwrap();
    assert_eq!(keys(&poller, 5_000), [1]);
    assert_eq!((&far).write(b"x").unwrap(), 1);
}
