//! Threads that misbehave: what they do is bounded, is told to them, and does not reach anybody else.

mod common;

use common::{FEW, pair, rounds, stacks, stacks_with_few_blocks, stuck};
use laneway::{Device, Event, Interest, Mode, Poller, Stack, TcpListener, TcpStream, UdpSocket};
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// One round trip: the lanes still serve others.
fn others_are_served(server: &Stack, client: &Stack) {
    let (mut a, mut b) = pair(server, client);
    a.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    b.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut buf = [0; 4];
    a.write_all(b"ping").unwrap();
    b.read_exact(&mut buf).unwrap();
    b.write_all(b"pong").unwrap();
    a.read_exact(&mut buf).unwrap();
    assert_eq!(&buf, b"pong");
}

#[test]
fn a_reader_that_stops_and_a_writer_that_floods() {
    let (server, client) = stacks();
    let (a, b) = pair(&server, &client);
    a.set_nonblocking(true).unwrap();
    // The flood ends when every buffer on the way is full.
    let mut sent = 0usize;
    let mut quiet = Instant::now();
    while quiet.elapsed() < Duration::from_millis(300) {
        match (&a).write(&[7; 65_536]) {
            Ok(n) => {
                sent += n;
                quiet = Instant::now();
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        others_are_served(&server, &client);
    }
    assert!(sent < 32 << 20, "{sent} bytes were taken from a writer whose reader reads nothing");
    let (_, blocks) = client.memory().unwrap();
    assert!(blocks < 4 << 20, "{blocks} bytes of blocks are held");
    // The reader goes on, and gets all of it.
    let reader = thread::spawn(move || {
        let mut all = Vec::new();
        (&b).read_to_end(&mut all).map(|_| all.len())
    });
    drop(a);
    assert_eq!(reader.join().unwrap().unwrap(), sent);
}

#[test]
fn one_who_does_not_read_holds_all_memory_for_a_while() {
    let (server, client) = stacks_with_few_blocks();
    // These bytes take all of them.
    const MUCH: usize = FEW;
    let (mut hog, mut idle) = pair(&server, &client);
    hog.write_all(&[7; MUCH]).unwrap();
    let began = Instant::now();
    while server.memory().unwrap().1 < MUCH {
        assert!(began.elapsed() < Duration::from_secs(10), "{:?} are held", server.memory());
        thread::sleep(Duration::from_millis(1));
    }
    // What is written then is written by one, and his peer does not read it; what comes is heard by one, who does not read it: of either the
    // lane has one block in reserve.
    let _stuck = stuck(&server, &client);
    let (mut first, last) = pair(&server, &client);
    first.write_all(b"last").unwrap();
    assert_eq!(last.peek(&mut [0; 8]).unwrap(), 4);
    last.set_nonblocking(true).unwrap();
    let refused = (&last).write(b"x").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::WouldBlock, "the reserve is for what comes");
    // Nobody else on that lane is told anything that comes, nor can write.
    let (mut near, far) = pair(&server, &client);
    near.write_all(b"hello").unwrap();
    far.set_nonblocking(true).unwrap();
    let poller = Poller::new().unwrap();
    poller.add(&far, 1, Interest::BOTH, Mode::Edge).unwrap();
    rounds([&client, &server]);
    assert_eq!((&far).read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!((&far).write(b"world").unwrap_err().kind(), ErrorKind::WouldBlock);
    // What was told before now is heard.
    while poller.wait(&mut Vec::new(), Some(Duration::ZERO)).unwrap() > 0 {}
    // The idle one reads. From here on nobody touches the other pair but when the poller says so.
    let reader = thread::spawn(move || idle.read_exact(&mut [0; MUCH]));
    let (mut read, mut written) = (Vec::new(), 0);
    let began = Instant::now();
    while (read.len(), written) != (5, 5) {
        assert!(began.elapsed() < Duration::from_secs(10), "{} bytes read, {written} written", read.len());
        let mut events = Vec::new();
        poller.wait(&mut events, Some(Duration::from_secs(1))).unwrap();
        for event in events {
            let mut buf = [0; 8];
            if event.readable {
                read.extend((&far).read(&mut buf).map_or(&[][..], |n| &buf[..n]));
            }
            if event.writable && written < 5 {
                written += (&far).write(&b"world"[written..]).unwrap_or(0);
            }
        }
    }
    reader.join().unwrap().unwrap();
    let mut buf = [0; 5];
    near.read_exact(&mut buf).unwrap();
    assert_eq!((&read[..], &buf), (&b"hello"[..], b"world"));
}

/// What comes for others and is not read holds all memory, and those others write before they read on.
#[test]
fn threads_that_write_before_they_read_on_share_what_memory_there_is() {
    const EACH: usize = 300_000;
    let (server, client) = stacks_with_few_blocks();
    let pairs: Vec<_> = (0..20).map(|_| pair(&server, &client)).collect();
    thread::scope(|scope| {
        for (i, (near, far)) in pairs.iter().enumerate() {
            for end in [near, far] {
                end.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                end.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
            }
            let (mut writes, mut reads) = (near, near);
            let data: Vec<u8> = (0..EACH).map(|n| (n / 7 + i) as u8).collect();
            let sent = data.clone();
            scope.spawn(move || {
                writes.write_all(&sent).expect("the other end reads on");
                writes.shutdown(Shutdown::Write).unwrap();
            });
            scope.spawn(move || {
                let mut back = vec![0; EACH];
                reads.read_exact(&mut back).expect("it comes back");
                assert!(back == data, "stream {i} came back as another");
            });
        }
        let began = Instant::now();
        while server.memory().unwrap().1 <= FEW {
            assert!(began.elapsed() < Duration::from_secs(10), "{:?} are held", server.memory());
            thread::sleep(Duration::from_millis(1));
        }
        for mut far in pairs.iter().map(|(_, far)| far) {
            scope.spawn(move || {
                let mut piece = [0; 8_192];
                while let n @ 1.. = far.read(&mut piece).unwrap() {
                    far.write_all(&piece[..n]).expect("there is memory when its turn comes");
                }
            });
        }
    });
}

#[test]
fn a_thousand_threads_on_one_pair() {
    const THREADS: usize = 1_000;
    const EACH: usize = 20;
    let (server, client) = stacks();
    let (a, b) = pair(&server, &client);
    let read = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..THREADS)
        .map(|i| {
            let (a, b, read) = (a.try_clone().unwrap(), b.try_clone().unwrap(), read.clone());
            let run = move || {
                for _ in 0..EACH {
                    if i % 2 == 0 {
                        (&a).write_all(&[1; 10]).unwrap();
                    } else {
                        read.fetch_add((&b).read(&mut [0; 10]).unwrap(), Relaxed);
                    }
                }
            };
            thread::Builder::new().stack_size(64 * 1024).spawn(run).unwrap()
        })
        .collect();
    others_are_served(&server, &client);
    drop(a);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let mut rest = Vec::new();
    (&b).read_to_end(&mut rest).unwrap();
    assert_eq!(read.load(Relaxed) + rest.len(), THREADS / 2 * EACH * 10);
}

#[test]
fn whoever_waits_when_the_stack_stops_is_told() {
    let (server, client) = stacks();
    let (a, b) = pair(&server, &client);
    let listener = TcpListener::bind_on(&server, "10.0.0.1:0").unwrap();
    let udp = UdpSocket::bind_on(&server, "10.0.0.1:0").unwrap();
    let poller = Poller::new().unwrap();
    poller.add(&b, 1, Interest::READABLE, Mode::Level).unwrap();
    let _watched = b.try_clone().unwrap();
    let full = pair(&server, &client).1;
    let waits: Vec<(&str, thread::JoinHandle<io::Result<()>>)> = vec![
        ("read", thread::spawn(move || (&b).read(&mut [0; 4]).map(drop))),
        ("accept", thread::spawn(move || listener.accept().map(drop))),
        ("recv", thread::spawn(move || udp.recv(&mut [0; 4]).map(drop))),
        (
            "write",
            thread::spawn(move || {
                loop {
                    (&full).write_all(&[0; 65_536])?;
                }
            }),
        ),
    ];
    thread::sleep(Duration::from_millis(200));
    drop(server); // the last handle
    let deadline = Instant::now() + Duration::from_secs(10);
    for (what, thread) in waits {
        while !thread.is_finished() {
            assert!(Instant::now() < deadline, "{what} hangs");
            thread::sleep(Duration::from_millis(5));
        }
        let error = thread.join().unwrap().expect_err(what);
        let kinds = [ErrorKind::NetworkDown, ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
        assert!(kinds.contains(&error.kind()), "{what} says {error:?}");
    }
    let mut events = Vec::new();
    assert_eq!(poller.wait(&mut events, Some(Duration::from_secs(5))).unwrap(), 1);
    // The other side hears of it as of any peer that leaves.
    a.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    assert!(!matches!((&a).read(&mut [0; 4]), Err(error) if error.kind() == ErrorKind::WouldBlock));
    let stopped = client.stop().expect("not stopped before");
    assert_eq!(stopped.failure, None);
    assert!(client.stop().is_none());
    assert_eq!(TcpStream::connect_on(&client, "10.0.0.1:80").unwrap_err().kind(), ErrorKind::NetworkDown);
}

/// After the stack has stopped, a connection says why once, and from then on that it has ended.
#[test]
fn a_connection_whose_stack_has_stopped_says_so_once() {
    for reads_first in [true, false] {
        let (server, client) = stacks();
        let (mut a, mut b) = pair(&server, &client);
        a.write_all(b"last").unwrap();
        rounds([&client, &server]);
        server.stop().unwrap();
        let mut buf = [0; 8];
        assert_eq!(b.read(&mut buf).unwrap(), 4, "what had come is there");
        let said = if reads_first { b.read(&mut buf) } else { b.write(b"x") };
        assert_eq!(said.unwrap_err().kind(), ErrorKind::NetworkDown);
        for _ in 0..2 {
            assert_eq!(b.read(&mut buf).unwrap(), 0);
            assert_eq!(b.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
        }
        assert_eq!(TcpListener::bind_on(&server, "10.0.0.1:0").unwrap_err().kind(), ErrorKind::NetworkDown);
    }
}

/// After the stack has stopped, what came before can be received, and nothing can be sent, though there is room for it.
#[test]
fn datagrams_of_a_stack_that_has_stopped_are_refused() {
    let (server, client) = stacks();
    let [near, far] =
        [(&client, "10.0.0.2:0"), (&server, "10.0.0.1:0")].map(|(on, at)| UdpSocket::bind_on(on, at).unwrap());
    let at = far.local_addr().unwrap();
    near.connect(at).unwrap();
    far.send_to(b"last", near.local_addr().unwrap()).unwrap();
    rounds([&server, &client]);
    client.stop().unwrap();
    let kind = |done: std::io::Result<usize>| done.map_err(|error| error.kind());
    for nonblocking in [false, true] {
        near.set_nonblocking(nonblocking).unwrap();
        assert_eq!(kind(near.send(b"x")), Err(ErrorKind::NetworkDown));
        assert_eq!(kind(near.send_to(b"x", at)), Err(ErrorKind::NetworkDown));
    }
    assert_eq!(kind(near.recv(&mut [0; 8])), Ok(4), "what had come is there");
    assert_eq!(kind(near.recv(&mut [0; 8])), Err(ErrorKind::NetworkDown));
}

/// As `None` does, a time without end sets none.
#[test]
fn a_time_that_never_comes_is_no_time() {
    let (server, client) = stacks();
    let listener = TcpListener::bind_on(&server, "10.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let a = TcpStream::connect_timeout_on(&client, &at, Duration::MAX).unwrap();
    let b = listener.accept().unwrap().0;
    let poller = Poller::new().unwrap();
    poller.add(&b, 1, Interest::READABLE, Mode::Level).unwrap();
    for stream in [&a, &b] {
        stream.set_read_timeout(Some(Duration::MAX)).unwrap();
        stream.set_write_timeout(Some(Duration::MAX)).unwrap();
    }
    let mut events = Vec::new();
    (&a).write_all(b"x").unwrap();
    assert_eq!(poller.wait(&mut events, Some(Duration::MAX)).unwrap(), 1);
    assert_eq!((&b).read(&mut [0; 4]).unwrap(), 1);
}

#[test]
fn options_and_half_open_sockets_in_a_flood() {
    let (server, client) = stacks();
    let (a, _b) = pair(&server, &client);
    for i in 0..10_000 {
        a.set_nodelay(i % 2 == 0).unwrap(); // waits for the lane when too many are asked for
    }
    // Sockets that are dropped while they connect, to nobody.
    for _ in 0..200 {
        let nobody = "10.0.0.77:1".parse().unwrap();
        TcpStream::connect_timeout_on(&client, &nobody, Duration::from_micros(50)).unwrap_err();
    }
    others_are_served(&server, &client);
}

#[test]
fn a_backlog_that_nobody_takes_is_bounded_and_reset() {
    let (here, there) = Device::memory_pair(1).unwrap();
    let config = laneway::Config { somaxconn: 8, ..Default::default() };
    let server = Stack::builder(here).address("10.0.0.1/24").unwrap().config(config).start().unwrap();
    let client = Stack::builder(there).address("10.0.0.2/24").unwrap().start().unwrap();
    let listener = TcpListener::bind_on(&server, "10.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let soon = Duration::from_secs(1);
    let connected: Vec<TcpStream> =
        (0..120).map_while(|_| TcpStream::connect_timeout_on(&client, &at, soon).ok()).collect();
    assert!((8..100).contains(&connected.len()), "{} connections waited for a backlog of 8", connected.len());
    drop(listener);
    for stream in connected {
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        assert_eq!((&stream).read(&mut [0; 4]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
    others_are_served(&server, &client);
}

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

#[test]
fn a_datagram_sent_just_before_the_close_still_leaves() {
    let (server, client) = stacks();
    let hearer = UdpSocket::bind_on(&client, "10.0.0.2:0").unwrap();
    hearer.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let to = hearer.local_addr().unwrap();
    let mut buf = [0; 8];
    for round in 0..100u64 {
        let speaker = UdpSocket::bind_on(&server, "10.0.0.1:0").unwrap();
        speaker.send_to(&round.to_be_bytes(), to).unwrap();
        drop(speaker);
        assert_eq!(hearer.recv(&mut buf).unwrap_or_else(|error| panic!("round {round}: {error}")), 8);
        assert_eq!(u64::from_be_bytes(buf), round);
    }
}

/// Conversations of connections that ended are used again. Whatever one of them left behind, the next begins with nothing of it.
#[test]
fn a_connection_knows_nothing_of_the_one_before() {
    let (server, client) = stacks();
    let listener = TcpListener::bind_on(&server, "10.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    for round in 0..400u32 {
        let word = round.to_ne_bytes();
        let mut theirs = TcpStream::connect_on(&client, to).unwrap();
        theirs.write_all(&word).unwrap();
        let (mut ours, from) = listener.accept().unwrap();
        assert_eq!((from, ours.peer_addr().unwrap()), (theirs.local_addr().unwrap(), from));
        assert_eq!((ours.read_timeout().unwrap(), ours.write_timeout().unwrap()), (None, None));
        assert_eq!((ours.linger().unwrap(), ours.tcp_user_timeout().unwrap()), (None, None));
        assert!(!ours.nodelay().unwrap() && !ours.keepalive().unwrap());
        assert!(ours.take_error().unwrap().is_none());
        let mut buf = [0; 4];
        ours.read_exact(&mut buf).unwrap();
        assert_eq!(buf, word);
        ours.write_all(&word).unwrap();
        theirs.read_exact(&mut buf).unwrap();
        assert_eq!(buf, word);
        // One leaves like this, another like that.
        if round % 2 == 0 {
            ours.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
            ours.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
            ours.set_nodelay(true).unwrap();
            ours.set_keepalive(true).unwrap();
            ours.set_tcp_user_timeout(Some(Duration::from_secs(9))).unwrap();
        }
        match round % 7 {
            1 => ours.set_linger(Some(Duration::ZERO)).unwrap(),
            2 => theirs.write_all(b"never read").unwrap(),
            3 => ours.shutdown(std::net::Shutdown::Both).unwrap(),
            4 => theirs.set_linger(Some(Duration::ZERO)).unwrap(),
            5 => ours.write_all(&[7; 100_000]).unwrap(),
            6 => drop(ours.try_clone().unwrap()),
            _ => ours.set_nonblocking(true).unwrap(),
        }
        if round % 3 == 0 {
            drop(theirs);
            let _ = ours.read(&mut [0; 64]);
        } else {
            drop(ours);
            let _ = theirs.read_to_end(&mut Vec::new());
        }
    }
    others_are_served(&server, &client);
}

/// One packet has one family, and an IPv4 address is the same in the clothes of IPv6.
#[test]
fn datagrams_keep_to_the_family_of_their_socket() {
    let (here, there) = Device::memory_pair(1).unwrap();
    let both = |device: Device, host: u8| {
        let stack = Stack::builder(device).address(&format!("10.0.0.{host}/24")).unwrap();
        stack.address(&format!("fd00::{host}/64")).unwrap().start().unwrap()
    };
    let (server, client) = (both(here, 1), both(there, 2));
    let v4 = UdpSocket::bind_on(&server, "10.0.0.1:0").unwrap();
    let v6 = UdpSocket::bind_on(&server, "[fd00::1]:0").unwrap();
    let refused = |socket: &UdpSocket, to: &str| socket.send_to(b"?", to).map_err(|error| error.raw_os_error());
    assert_eq!(refused(&v4, "[fd00::2]:7"), Err(Some(97)), "EAFNOSUPPORT, as the kernel says");
    assert_eq!(v4.connect("[fd00::2]:7").map_err(|error| error.raw_os_error()), Err(Some(97)));
    assert_eq!(refused(&v6, "10.0.0.2:7"), Err(Some(101)), "ENETUNREACH");
    assert_eq!(refused(&v6, "[::ffff:10.0.0.2]:7"), Err(Some(101)));
    for (socket, to, most) in [(&v4, "10.0.0.2:7", 65_507), (&v6, "[fd00::2]:7", 65_527)] {
        let long = vec![0; most + 1];
        assert_eq!(socket.send_to(&long, to).map_err(|error| error.raw_os_error()), Err(Some(90)), "EMSGSIZE");
        assert_eq!(socket.send_to(&long[1..], to).unwrap(), most);
    }

    let peer = UdpSocket::bind_on(&client, "10.0.0.2:7").unwrap();
    let wild = UdpSocket::bind_on(&server, "[::]:9").unwrap();
    wild.connect("[::ffff:10.0.0.2]:7").unwrap();
    wild.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut buf = [0; 8];
    for _ in 0..2 {
        wild.send(b"hello").unwrap();
        let (n, from) = peer.recv_from(&mut buf).unwrap();
        let from = if n == 5 { from } else { peer.recv_from(&mut buf).unwrap().1 }; // the long one may have come before
        peer.send_to(b"answer", from).unwrap();
        assert_eq!(wild.recv(&mut buf).unwrap(), 6, "from whom it is connected to");
    }
}
