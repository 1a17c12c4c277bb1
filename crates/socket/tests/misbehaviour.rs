//! Threads that misbehave: what they do is bounded, is told to them, and does not reach anybody else.

mod common;

use common::{FEW, pair, rounds, stacks, stacks_with_few_blocks, stuck};
use laneway::{Device, Interest, Mode, Poller, Stack, TcpKeepalive, TcpListener, TcpStream, UdpSocket};
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
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

/// Each lane has some of the ports, and one that has none left asks the next: none is left when all are taken.
#[test]
fn who_takes_all_ports_has_all_lanes_ports() {
    const PORTS: u16 = 20;
    let (here, there) = Device::memory_pair(2).unwrap();
    let config = laneway::Config { ip_local_port_range: (40_000, 40_000 + PORTS - 1), ..Default::default() };
    let server = Stack::builder(here).address("10.0.0.1/24").unwrap().start().unwrap();
    let client = Stack::builder(there).address("10.0.0.2/24").unwrap().config(config).start().unwrap();
    let listener = TcpListener::bind_on(&server, "10.0.0.1:80").unwrap();
    let connect = || TcpStream::connect_on(&client, listener.local_addr().unwrap());
    let connected: Vec<TcpStream> = (0..PORTS).map(|_| connect().expect("one is left")).collect();
    assert_eq!(connect().unwrap_err().kind(), ErrorKind::AddrNotAvailable);
    drop(connected);
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
        let times = (ours.tcp_keepalive_time().unwrap(), ours.tcp_keepalive_interval().unwrap());
        assert_eq!(times, (Duration::from_secs(7200), Duration::from_secs(75)));
        assert_eq!((ours.tcp_keepalive_retries().unwrap(), ours.ttl().unwrap()), (9, 64));
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
            let times = TcpKeepalive::new().with_time(Duration::from_secs(60)).with_interval(Duration::from_secs(7));
            ours.set_tcp_keepalive(&times.with_retries(3)).unwrap();
            ours.set_ttl(9).unwrap();
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
