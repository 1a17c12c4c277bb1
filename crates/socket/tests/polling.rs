//! What a poller tells of its sockets, whatever is done to them and to it.

mod common;

use common::{pair, rounds, stacks};
use laneway::{Event, Interest, Mode, Poller, Stack, TcpListener, TcpStream, UdpSocket};
use std::io::{self, ErrorKind, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn a_poller_tells_in_each_mode() {
    let (server, client) = stacks();
    let (a, b) = pair(&server, &client);
    let poller = Poller::new().unwrap();
    let wait = |ms| {
        let mut events = Vec::new();
        poller.wait(&mut events, Some(Duration::from_millis(ms))).unwrap();
        events
    };
    let readable = |key| Event { key, readable: true, writable: false };
    poller.add(&b, 1, Interest::READABLE, Mode::Level).unwrap();
    assert_eq!(wait(20), []);
    (&a).write_all(b"x").unwrap();
    assert_eq!(wait(5_000), [readable(1)]);
    assert_eq!(wait(5_000), [readable(1)], "level: as long as it is so");
    poller.modify(1, Interest::READABLE, Mode::Oneshot).unwrap();
    assert_eq!(wait(5_000), [readable(1)]);
    assert_eq!(wait(20), [], "oneshot: once");
    poller.modify(1, Interest::READABLE, Mode::Edge).unwrap();
    assert_eq!(wait(5_000), [readable(1)]);
    assert_eq!(wait(20), [], "edge: when something happens");
    (&a).write_all(b"y").unwrap();
    assert_eq!(wait(5_000), [readable(1)]);
    poller.modify(1, Interest::BOTH, Mode::Level).unwrap();
    assert_eq!(wait(5_000), [Event { key: 1, readable: true, writable: true }]);
    assert_eq!(poller.add(&a, 1, Interest::BOTH, Mode::Level).unwrap_err().kind(), ErrorKind::AlreadyExists);
    poller.delete(&b, 1).unwrap();
    assert_eq!(wait(20), []);
    poller.notify();
    let start = Instant::now();
    assert_eq!(wait(10_000), []);
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_poller_that_nobody_asks_any_more_keeps_no_connection() {
    const TIMES: usize = 200;
    let (server, client) = stacks();
    for i in 0..TIMES {
        let (a, b) = pair(&server, &client);
        let poller = Poller::new().unwrap();
        poller.add(&b, 0, Interest::READABLE, Mode::Level).unwrap();
        (&a).write_all(&[7; 100]).unwrap();
        rounds([&client, &server]); // the poller would tell of it now
        if i % 2 == 0 {
            drop(poller);
        } else {
            drop(b);
        }
    }
    rounds([&client, &server]);
    // Each of those connections had a block in either direction.
    let (_, blocks) = server.memory().unwrap();
    assert!(blocks < TIMES / 2 * 4_096, "{blocks} bytes of blocks for connections that are gone");
}

/// Its last handle ends the watching, as `close` ends that of the kernel's descriptors: there is nothing to tell of, and its name is free.
#[test]
fn a_socket_that_is_dropped_is_not_watched_any_more() {
    let (server, client) = stacks();
    let listener = || TcpListener::bind_on(&server, "10.0.0.1:0").unwrap();
    let udp = || UdpSocket::bind_on(&server, "10.0.0.1:0").unwrap();
    let poller = Poller::new().unwrap();
    let wait = |ms| {
        let mut events = Vec::new();
        poller.wait(&mut events, Some(Duration::from_millis(ms))).unwrap();
        events
    };
    let watched = || format!("{poller:?}");
    for mode in [Mode::Level, Mode::Edge, Mode::Oneshot] {
        let nothing = watched();
        let (a, b) = pair(&server, &client);
        let other = b.try_clone().unwrap();
        let (doors, mail) = (listener(), udp());
        poller.add(&b, 1, Interest::READABLE, mode).unwrap();
        poller.add(&doors, 2, Interest::READABLE, mode).unwrap();
        poller.add(&mail, 3, Interest::READABLE, mode).unwrap();
        assert_eq!(wait(20), []);
        (&a).write_all(b"x").unwrap();
        assert_eq!(wait(5_000).len(), 1);
        drop(b);
        if mode == Mode::Level {
            assert_eq!(wait(5_000).len(), 1, "another handle is there");
        }
        drop((other, doors, mail));
        rounds([&server, &client]);
        assert_eq!(wait(20), [], "{mode:?}: nobody has them any more");
        assert_eq!(watched(), nothing, "{mode:?}: and they are forgotten");
        for key in [1, 2, 3] {
            assert_eq!(poller.modify(key, Interest::READABLE, mode).unwrap_err().kind(), ErrorKind::NotFound);
        }
        let (a, b) = pair(&server, &client);
        poller.add(&b, 1, Interest::READABLE, mode).unwrap();
        (&a).write_all(b"x").unwrap();
        assert_eq!(wait(5_000).len(), 1, "{mode:?}: the name is another's");
        drop(b);
        // At once, before anybody has looked; and this one is watched until it is deleted.
        let (a, b) = pair(&server, &client);
        poller.add(&b, 1, Interest::READABLE, mode).unwrap();
        (&a).write_all(b"x").unwrap();
        assert_eq!(wait(5_000).len(), 1, "{mode:?}");
        poller.delete(&b, 1).unwrap();
        assert_eq!(watched(), nothing);
    }
}

/// Each of them had ended before its drop, so that nothing happens to it by which it would be found.
#[test]
fn a_poller_does_not_keep_those_that_ended_before_they_were_dropped() {
    const TIMES: usize = 300;
    let (server, client) = stacks();
    let poller = Poller::new().unwrap();
    let mut events = Vec::new();
    for key in 0..TIMES {
        let (a, b) = pair(&server, &client);
        poller.add(&b, key, Interest::READABLE, Mode::Edge).unwrap();
        a.set_linger(Some(Duration::ZERO)).unwrap();
        drop(a);
        while !(&b).read(&mut [0; 4]).is_err_and(|error| error.kind() == ErrorKind::ConnectionReset) {}
        rounds([&server, &client]);
        while poller.wait(&mut events, Some(Duration::ZERO)).unwrap() > 0 {}
    }
    let watched = format!("{poller:?}");
    let watched: usize = watched.chars().filter(char::is_ascii_digit).collect::<String>().parse().unwrap();
    assert!(watched < TIMES / 2, "{watched} of {TIMES} that are gone are kept");
}

#[test]
fn a_poller_is_told_of_a_shutdown_by_another_handle() {
    let (server, client) = stacks();
    for (how, interest) in [
        (std::net::Shutdown::Read, Interest::READABLE),
        (std::net::Shutdown::Write, Interest::WRITABLE),
        (std::net::Shutdown::Both, Interest::READABLE),
        (std::net::Shutdown::Both, Interest::WRITABLE),
    ] {
        let (a, _b) = pair(&server, &client);
        // Neither readable nor, before it is shut, writable.
        a.set_nonblocking(true).unwrap();
        while interest.writable && (&a).write(&[7; 65_536]).is_ok() {}
        let poller = Poller::new().unwrap();
        let mut events = Vec::new();
        poller.add(&a, 1, interest, Mode::Edge).unwrap();
        loop {
            while interest.writable && (&a).write(&[7; 65_536]).is_ok() {}
            if poller.wait(&mut events, Some(Duration::from_millis(50))).unwrap() == 0 {
                break;
            }
        }
        events.clear();
        a.try_clone().unwrap().shutdown(how).unwrap();
        poller.wait(&mut events, Some(Duration::from_secs(5))).unwrap();
        let Interest { readable, writable } = interest;
        assert_eq!(events, [Event { key: 1, readable, writable }], "{how:?}, for {interest:?}");
    }
}

/// Whatever is asked of a socket while the poller looks at it.
#[test]
fn one_whose_watching_is_changed_all_the_time_is_not_forgotten() {
    let (server, client) = stacks();
    let (a, b) = pair(&server, &client);
    let poller = Poller::new().unwrap();
    poller.add(&b, 1, Interest::READABLE, Mode::Level).unwrap();
    (&a).write_all(b"x").unwrap();
    for round in 0..30 {
        let changing = AtomicBool::new(true);
        thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    poller.modify(1, Interest::READABLE, Mode::Level).unwrap();
                }
                changing.store(false, Relaxed);
            });
            while changing.load(Relaxed) {
                let _ = poller.wait(&mut Vec::new(), Some(Duration::ZERO));
            }
        });
        let mut events = Vec::new();
        for _ in 0..3 {
            poller.wait(&mut events, Some(Duration::from_secs(5))).unwrap();
        }
        assert_eq!(events, [Event { key: 1, readable: true, writable: false }; 3], "round {round}");
    }
}

/// What a writer was told is sent arrives, and then the end: also if another thread says that it is the end.
#[test]
fn what_is_written_while_another_thread_shuts_down_arrives() {
    const WRITERS: usize = 2;
    let (server, client) = stacks();
    for round in 0..1_000 {
        let (a, b) = pair(&server, &client);
        b.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let sent = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..WRITERS {
                scope.spawn(|| {
                    while let Ok(n) = (&a).write(b"some") {
                        sent.fetch_add(n, Relaxed);
                    }
                });
            }
            while sent.load(Relaxed) == 0 {
                thread::yield_now();
            }
            a.shutdown(std::net::Shutdown::Write).unwrap();
        });
        let mut all = Vec::new();
        (&b).read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), sent.load(Relaxed), "round {round}");
    }
}

/// Each keeps its own time, is told by its own `notify`, and goes on waiting where another has left.
#[test]
fn several_threads_wait_with_one_poller() {
    const SOON: Duration = Duration::from_secs(10);
    let (server, client) = stacks();
    let (a, b) = pair(&server, &client);
    let poller = Arc::new(Poller::new().unwrap());
    poller.add(&b, 1, Interest::READABLE, Mode::Edge).unwrap();
    let (tell, told) = mpsc::channel();
    let wait = |timeout| {
        let (poller, tell) = (poller.clone(), tell.clone());
        thread::spawn(move || {
            let mut events = Vec::new();
            poller.wait(&mut events, timeout).unwrap();
            tell.send((timeout, events.len())).unwrap();
        });
    };
    for _ in 0..3 {
        wait(None);
    }
    thread::sleep(Duration::from_millis(20));
    let short = Some(Duration::from_millis(30));
    wait(short);
    assert_eq!(told.recv_timeout(SOON).expect("its time is over"), (short, 0));
    (&a).write_all(b"x").unwrap();
    assert_eq!(told.recv_timeout(SOON).expect("one of them is told"), (None, 1));
    for _ in 0..2 {
        poller.notify();
        assert_eq!(told.recv_timeout(SOON).expect("one of them returns"), (None, 0));
    }
}

/// There was room all the time, so that there is room is no news.
#[test]
fn small_writes_do_not_wake_a_poller_that_would_write() {
    let (server, client) = stacks();
    let (a, b) = pair(&server, &client);
    a.set_nonblocking(true).unwrap();
    let poller = Poller::new().unwrap();
    let wait = |ms| {
        let mut events = Vec::new();
        poller.wait(&mut events, Some(Duration::from_millis(ms))).unwrap();
        events
    };
    poller.add(&a, 1, Interest::BOTH, Mode::Edge).unwrap();
    let writable = Event { key: 1, readable: false, writable: true };
    rounds([&server, &client]); // the lane looks at what is new to it, and says so
    while wait(50) == [writable] {}
    let mut buf = [0; 100];
    for round in 0..50 {
        (&a).write_all(&[round; 100]).unwrap();
        (&b).read_exact(&mut buf).unwrap();
    }
    assert_eq!(wait(50), [], "nothing has happened that it could wait for");
    (&b).write_all(b"x").unwrap();
    assert_eq!(wait(5_000), [Event { key: 1, readable: true, writable: true }]);
    assert_eq!(wait(20), []);
}

/// Whoever was refused is told, whatever the lane does between the look and the wait.
#[test]
fn a_writer_that_was_refused_room_is_told_of_it() {
    let (server, client) = stacks();
    for mode in [Mode::Edge, Mode::Level, Mode::Oneshot] {
        let (a, b) = pair(&server, &client);
        a.set_nonblocking(true).unwrap();
        let poller = Poller::new().unwrap();
        poller.add(&a, 1, Interest::WRITABLE, mode).unwrap();
        let reader = thread::spawn(move || io::copy(&mut &b, &mut io::sink()).unwrap());
        const BYTES: usize = 20 << 20;
        let (mut sent, mut events, piece) = (0, Vec::new(), vec![3; 100_000]);
        while sent < BYTES {
            match (&a).write(&piece[..piece.len().min(BYTES - sent)]) {
                Ok(n) if n == piece.len() => sent += n,
                other => {
                    // Short or refused: both say that it is full.
                    sent += other.unwrap_or(0);
                    if sent < BYTES {
                        let n = poller.wait(&mut events, Some(Duration::from_secs(5))).unwrap();
                        assert!(n == 1, "{mode:?}: nobody tells of room after {sent} bytes");
                        if mode == Mode::Oneshot {
                            poller.modify(1, Interest::WRITABLE, mode).unwrap();
                        }
                    }
                }
            }
        }
        drop(a);
        assert_eq!(reader.join().unwrap(), BYTES as u64);
    }
}

/// The same of datagrams: each is sent by a lane, and that there is room again is no news.
#[test]
fn small_datagrams_do_not_wake_a_poller_that_would_write() {
    let (server, client) = stacks();
    let a = UdpSocket::bind_on(&client, "10.0.0.2:0").unwrap();
    let b = UdpSocket::bind_on(&server, "10.0.0.1:5353").unwrap();
    b.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    a.set_nonblocking(true).unwrap();
    let poller = Poller::new().unwrap();
    let wait = |ms| {
        let mut events = Vec::new();
        poller.wait(&mut events, Some(Duration::from_millis(ms))).unwrap();
        events
    };
    poller.add(&a, 1, Interest::BOTH, Mode::Edge).unwrap();
    let writable = Event { key: 1, readable: false, writable: true };
    rounds([&server, &client]); // the lane looks at what is new to it, and says so
    while wait(50) == [writable] {}
    let mut buf = [0; 100];
    for round in 0..50 {
        assert_eq!(a.send_to(&[round; 100], "10.0.0.1:5353").unwrap(), 100);
        assert_eq!((b.recv(&mut buf).unwrap(), buf), (100, [round; 100]));
    }
    assert_eq!(wait(50), [], "nothing has happened that it could wait for");
    b.send_to(b"x", a.local_addr().unwrap()).unwrap();
    assert_eq!(wait(5_000), [Event { key: 1, readable: true, writable: true }]);
    assert_eq!(wait(20), []);
}

#[test]
fn a_sender_of_datagrams_that_was_refused_room_is_told_of_it() {
    let (_server, client) = stacks();
    for mode in [Mode::Edge, Mode::Level, Mode::Oneshot] {
        let a = UdpSocket::bind_on(&client, "10.0.0.2:0").unwrap();
        a.set_nonblocking(true).unwrap();
        let poller = Poller::new().unwrap();
        poller.add(&a, 1, Interest::WRITABLE, mode).unwrap();
        let (mut refused, mut events, piece) = (0, Vec::new(), vec![3; 60_000]);
        let start = Instant::now();
        while refused < 20 {
            // Nobody listens there, so at times that is what a send says.
            match a.send_to(&piece, "10.0.0.1:9") {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    refused += 1;
                    let n = poller.wait(&mut events, Some(Duration::from_secs(5))).unwrap();
                    assert!(n == 1, "{mode:?}: nobody tells of room");
                    if mode == Mode::Oneshot {
                        poller.modify(1, Interest::WRITABLE, mode).unwrap();
                    }
                }
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused),
            }
            assert!(start.elapsed() < Duration::from_secs(20), "{mode:?}: there is always room");
        }
    }
}

/// Whatever happens to it, and whatever is asked of it, while the poller looks.
#[test]
fn one_wait_tells_of_a_socket_once() {
    let (server, client) = stacks();
    let a = UdpSocket::bind_on(&client, "10.0.0.2:0").unwrap();
    let b = UdpSocket::bind_on(&server, "10.0.0.1:0").unwrap();
    b.set_nonblocking(true).unwrap();
    let poller = Poller::new().unwrap();
    poller.add(&b, 1, Interest::READABLE, Mode::Level).unwrap();
    let to = b.local_addr().unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let sender = thread::spawn({
        let is_over = is_over.clone();
        move || {
            while !is_over.load(Relaxed) {
                let _ = a.send_to(b"x", to);
            }
        }
    });
    let mut events = Vec::new();
    let once = [Event { key: 1, readable: true, writable: false }];
    for round in 0..4_000 {
        poller.wait(&mut events, Some(Duration::from_secs(5))).unwrap();
        assert_eq!(events, once, "round {round}");
        events.clear();
        if round % 100 == 0 {
            poller.modify(1, Interest::READABLE, if round % 200 == 0 { Mode::Edge } else { Mode::Level }).unwrap();
        }
        let _ = (0..1_000).take_while(|_| b.recv(&mut [0; 8]).is_ok()).count();
    }
    is_over.store(true, Relaxed);
    sender.join().unwrap();
}

#[test]
fn a_connection_that_is_begun_becomes_writable_or_says_why() {
    let (server, client) = stacks();
    let listener = TcpListener::bind_on(&server, "10.0.0.1:0").unwrap();
    let poller = Poller::new().unwrap();
    let begin = |key, at: std::net::SocketAddr| {
        let stream = TcpStream::begin_connect_on(&client, &at).unwrap();
        poller.add(&stream, key, Interest::WRITABLE, Mode::Oneshot).unwrap();
        let mut events = Vec::new();
        assert_eq!(poller.wait(&mut events, Some(Duration::from_secs(5))).unwrap(), 1);
        assert_eq!((events[0].key, events[0].writable), (key, true));
        stream
    };
    let at = listener.local_addr().unwrap();
    let open = begin(1, at);
    assert_eq!(open.peer_addr().unwrap(), at);
    assert!(open.take_error().unwrap().is_none());
    assert_eq!((&open).read(&mut [0; 4]).unwrap_err().kind(), ErrorKind::WouldBlock, "it is non-blocking");
    let refused = begin(2, "10.0.0.1:9".parse().unwrap());
    assert_eq!(refused.take_error().unwrap().map(|error| error.kind()), Some(ErrorKind::ConnectionRefused));
}

#[test]
fn a_connection_that_is_begun_has_a_name_before_it_is_connected() {
    let (_server, client) = stacks();
    let silent = "10.0.0.77:80".parse().unwrap();
    let begun = TcpStream::begin_connect_on(&client, &silent).unwrap();
    client.counters().unwrap(); // its lane has been asked
    let until = Instant::now() + Duration::from_secs(5);
    let name = loop {
        match begun.local_addr() {
            Ok(name) => break name,
            Err(error) => assert!(error.kind() == ErrorKind::NotConnected && Instant::now() < until, "{error}"),
        }
        thread::yield_now();
    };
    assert_eq!(begun.peer_addr().unwrap_err().kind(), ErrorKind::NotConnected);
    assert!(name.ip().to_string() == "10.0.0.2" && name.port() != 0, "{name}");
    assert!(begun.take_error().unwrap().is_none());
}

/// The lane looks by itself at those that speak in every poll: it must not forget them when they stop, nor stay awake.
#[test]
fn one_who_speaks_in_fits_and_starts_is_heard() {
    let (server, client) = stacks();
    let (a, b) = pair(&server, &client);
    let reader = thread::spawn(move || {
        let mut all = Vec::new();
        (&b).read_to_end(&mut all).map(|_| all)
    });
    let mut sent = Vec::new();
    for i in 0..3_000u32 {
        let piece = i.to_be_bytes();
        (&a).write_all(&piece).unwrap();
        sent.extend(piece);
        match i % 500 {
            499 => thread::sleep(Duration::from_millis(2)), // the lane has let go of it, and sleeps
            n if n % 50 == 49 => thread::yield_now(),
            _ => {}
        }
    }
    drop(a);
    assert_eq!(reader.join().unwrap().unwrap(), sent);
    thread::sleep(Duration::from_millis(50));
    let idle = |stack: &Stack| stack.counters().unwrap().get(laneway::on_lane::Mib::PollsBusy);
    let before = idle(&client);
    thread::sleep(Duration::from_millis(100));
    assert!(idle(&client) - before < 1_000, "the lane looks at somebody who has gone");
}

#[test]
fn a_poller_s_descriptor_nests_in_the_kernel_s() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let (server, client) = stacks();
    let (a, b) = pair(&server, &client);
    let poller = Poller::new().unwrap();
    poller.add(&b, 9, Interest::READABLE, Mode::Edge).unwrap();
    let mut events = Vec::new();
    rounds([&server, &client]); // the lane looks at what is new to it, and says so
    while poller.wait(&mut events, Some(Duration::ZERO)).unwrap() > 0 {}
    let readable = |ms: i64| {
        let timeout = Timespec { tv_sec: ms / 1_000, tv_nsec: ms % 1_000 * 1_000_000 };
        poll(&mut [PollFd::new(&poller, PollFlags::IN)], Some(&timeout)).unwrap() == 1
    };
    assert!(!readable(20));
    (&a).write_all(b"x").unwrap();
    assert!(readable(5_000));
    assert_eq!(poller.wait(&mut events, Some(Duration::ZERO)).unwrap(), 1);
    // Not armed: nobody waits for the descriptor, and it is not written.
    (&a).write_all(b"y").unwrap();
    rounds([&server, &client]);
    assert!(!readable(20));
    while poller.wait(&mut events, Some(Duration::ZERO)).unwrap() > 0 {}
    (&a).write_all(b"z").unwrap();
    assert!(readable(5_000));
}
