//! Connections that are opened, or are not.

use crate::world::*;

story!(nobody_listens, |world, log| {
    log.say("connect", world.connect(world.closed()).map(drop));
    log.say("connect in time", world.connect_timeout(world.closed(), Duration::from_secs(5)).map(drop));
    log.say("no time at all", world.connect_timeout(world.closed(), Duration::ZERO).map(drop));
});

story!(
    /// No socket can have port 0, so nobody listens there. What is sent there goes all the same, unless the call names it.
    port_zero, |world, log| {
    let nobody = SocketAddr::new(world.closed().ip(), 0);
    log.say("connect", world.connect(nobody).map(drop));
    log.say("connect in time", world.connect_timeout(nobody, Duration::from_secs(5)).map(drop));
    let socket = world.udp_client();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    log.say("send to", socket.send_to(b"x", nobody));
    log.say("connect", socket.connect(nobody));
    log.say("peer", socket.peer_addr().map(drop));
    for _ in 0..2 {
        log.say("send", socket.send(b"x"));
        world.settle();
        log.say("recv", socket.recv(&mut [0; 4]));
    }
    log.say("send to", socket.send_to(b"x", nobody));
});

story!(nobody_connects_to_all_or_to_a_group, |world, log| {
    for to in
        ["255.255.255.255:9", "224.0.0.251:9", "[ff02::fb]:9", "[::ffff:255.255.255.255]:9", "[::ffff:224.0.0.251]:9"]
    {
        log.say(to, world.connect(to).map(drop));
        log.say(to, world.connect_timeout(to.parse().unwrap(), Duration::from_secs(5)).map(drop));
    }
});

/// Which the kernel has, so that there is nothing to compare.
#[test]
fn there_is_no_loopback() {
    let world = Ours::new(Family::V4);
    let _listener = world.listen_at("0.0.0.0:80".parse().unwrap()).unwrap();
    let udp = world.udp_server();
    for own in ["10.0.0.1:80", "127.0.0.1:80", "[::1]:80"] {
        let connected = laneway::TcpStream::connect_on(&world.server, own).map(drop);
        assert_eq!(connected.unwrap_err().kind(), io::ErrorKind::NetworkUnreachable, "{own}");
    }
    for own in ["10.0.0.1:80", "127.0.0.1:80"] {
        assert_eq!(udp.send_to(b"x", own).unwrap_err().kind(), io::ErrorKind::NetworkUnreachable, "{own}");
    }
    for own in ["127.0.0.1:80", "[::1]:80"] {
        let listens = world.listen_at(own.parse().unwrap()).map(drop);
        assert_eq!(listens.unwrap_err().kind(), io::ErrorKind::AddrNotAvailable, "{own}");
    }
}

story!(a_connect_that_does_not_wait, |world, log| {
    let listener = world.listen();
    let mut a = world.begin_connect(listener.local_addr().unwrap());
    world.settle();
    log.say("ready", Ok(a.ready()));
    log.say("error", error_of(a.take_error()));
    log.say("peer", a.peer_addr().map(|peer| peer == listener.local_addr().unwrap()));
    log.say("read", a.read(&mut [0; 4]));
    log.say("write", a.write(b"abc"));
    let (mut b, from) = listener.accept().unwrap();
    log.say("local", a.local_addr().map(|at| at == from));
    log.say("hear it", b.read(&mut [0; 8]));
});

story!(a_connect_that_does_not_wait_and_is_refused, |world, log| {
    let refused = || {
        let stream = world.begin_connect(world.closed());
        world.settle();
        stream
    };
    let mut a = refused();
    log.say("ready", Ok(a.ready()));
    log.say("peer", a.peer_addr().map(drop));
    log.say("error", error_of(a.take_error()));
    log.say("error", error_of(a.take_error()));
    log.say("ready", Ok(a.ready()));
    log.say("peer", a.peer_addr().map(drop));
    log.say("nodelay", a.set_nodelay(true));
    log.say("read", a.read(&mut [0; 4]));
    log.say("write", a.write(b"x"));
    log.say("shut", a.shutdown(Shutdown::Both));
    let mut a = refused();
    log.say("read nothing", a.read(&mut []));
    log.say("peek", a.peek(&mut [0; 4]));
    log.say("read", a.read(&mut [0; 4]));
    log.say("write", a.write(b"x"));
    let mut a = refused();
    log.say("write nothing", a.write(b""));
    log.say("write", a.write(b"x"));
    log.say("read", a.read(&mut [0; 4]));
    let mut a = refused();
    log.say("shut", a.shutdown(Shutdown::Write));
    log.say("wait", a.set_nonblocking(false));
    log.say("read", a.read(&mut [0; 4]));
    log.say("read", a.read(&mut [0; 4]));
    log.say("error", error_of(a.take_error()));
});

story!(a_connect_that_nobody_answers, |world, log| {
    let (mut a, _kept) = world.begin_connect_unanswered();
    world.settle();
    log.say("ready", Ok(a.ready()));
    log.say("peer", a.peer_addr().map(drop));
    log.say("ours", a.local_addr().map(|at| at.port() != 0));
    log.say("error", error_of(a.take_error()));
    log.say("read", a.read(&mut [0; 4]));
    log.say("read nothing", a.read(&mut []));
    log.say("peek", a.peek(&mut [0; 4]));
    log.say("write", a.write(b"x"));
    log.say("write nothing", a.write(b""));
    log.say("pieces", a.write_vectored(&[io::IoSlice::new(b"x"), io::IoSlice::new(b"y")]));
    log.say("nodelay", a.set_nodelay(true));
    log.say("keepalive", a.set_keeps_alive(true));
    log.say("gives up after", a.set_gives_up_after(60_000));
    log.say("ready", Ok(a.ready()));
    log.say("wait", a.set_nonblocking(false));
    log.say("for so long", a.set_read_timeout(Some(Duration::from_millis(20))));
    log.say("and so long", a.set_write_timeout(Some(Duration::from_millis(20))));
    log.say("read", a.read(&mut [0; 4]));
    log.say("write", a.write(b"x"));
    log.say("write nothing", a.write(b""));
    log.say("error", error_of(a.take_error()));
});

story!(a_connect_that_is_not_answered_in_time, |world, log| {
    let (at, _kept) = world.unanswered();
    log.say("connect", world.connect_timeout(at, Duration::from_millis(50)).map(drop));
});

story!(
    /// Whatever is shut, it is called off, and fails as if it had been reset.
    a_connect_that_is_shut_before_it_is_answered, |world, log| {
    for how in [Shutdown::Read, Shutdown::Write, Shutdown::Both] {
        let begun = || {
            let (a, kept) = world.begin_connect_unanswered();
            world.settle();
            (a, kept)
        };
        let (mut a, _kept) = begun();
        let port = a.local_addr().unwrap().port();
        log.say("shut", a.shutdown(how));
        log.say("ready", Ok(a.ready()));
        log.say("peer", a.peer_addr().map(drop));
        log.say("ours", a.local_addr().map(|at| (at.ip().is_unspecified(), at.port() == port)));
        log.say("error", error_of(a.take_error()));
        log.say("error", error_of(a.take_error()));
        log.say("ready", Ok(a.ready()));
        log.say("read", a.read(&mut [0; 4]));
        log.say("read nothing", a.read(&mut []));
        log.say("peek", a.peek(&mut [0; 4]));
        log.say("write", a.write(b"x"));
        log.say("write nothing", a.write(b""));
        log.say("nodelay", a.set_nodelay(true));
        log.say("keepalive", a.set_keeps_alive(true));
        log.say("gives up after", a.set_gives_up_after(60_000));
        log.say("linger", a.set_lingers(None));
        log.say("wait", a.set_nonblocking(false));
        log.say("for so long", a.set_read_timeout(Some(Duration::from_secs(10))));
        log.say("read", a.read(&mut [0; 4]));
        log.say("write", a.write(b"x"));
        // There is nothing to shut any more, but it is.
        log.say("shut again", a.shutdown(how));
        log.say("error", error_of(a.take_error()));
        log.say("read", a.read(&mut [0; 4]));
        log.say("read nothing", a.read(&mut []));
        log.say("peek", a.peek(&mut [0; 4]));
        log.say("write", a.write(b"x"));
        log.say("write nothing", a.write(b""));
        log.say("clone", a.try_clone().and_then(|clone| clone.peer_addr()).map(drop));
        world.settle();
        log.say("ready", Ok(a.ready()));
        log.say("read", a.read(&mut [0; 4]));
        // Whoever asks first is told why.
        let (mut a, _kept) = begun();
        log.say("shut", a.shutdown(how));
        log.say("read", a.read(&mut [0; 4]));
        log.say("read", a.read(&mut [0; 4]));
        log.say("write", a.write(b"x"));
        let (mut a, _kept) = begun();
        log.say("shut", a.shutdown(how));
        log.say("write", a.write(b"x"));
        log.say("write", a.write(b"x"));
        log.say("read", a.read(&mut [0; 4]));
        let (mut a, _kept) = begun();
        log.say("shut", a.shutdown(how));
        log.say("write nothing", a.write(b""));
        log.say("error", error_of(a.take_error()));
        let (mut a, _kept) = begun();
        log.say("shut", a.shutdown(how));
        log.say("read nothing", a.read(&mut []));
        log.say("peek", a.peek(&mut [0; 4]));
        let (mut a, _kept) = begun();
        log.say("shut", a.shutdown(how));
        log.say("shut again", a.shutdown(how));
        log.say("shut both", a.shutdown(Shutdown::Both));
        log.say("read", a.read(&mut [0; 4]));
        log.say("read", a.read(&mut [0; 4]));
        log.say("write", a.write(b"x"));
    }
});

story!(
    /// Whoever waits is told.
    a_connect_that_is_shut_while_others_wait, |world, log| {
    for how in [Shutdown::Read, Shutdown::Write, Shutdown::Both] {
        for writes in [false, true] {
            let (a, _kept) = world.begin_connect_unanswered();
            a.set_nonblocking(false).unwrap();
            a.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            a.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
            let mut b = a.try_clone().unwrap();
            let waits = std::thread::spawn(move || if writes { b.write(b"x") } else { b.read(&mut [0; 4]) });
            world.settle();
            log.say("shut", a.shutdown(how));
            log.say(if writes { "write" } else { "read" }, waits.join().unwrap());
            log.say("error", error_of(a.take_error()));
            log.say("read", (&a).read(&mut [0; 4]));
        }
    }
});

story!(
    /// As soon as it can.
    a_write_waits_for_a_connect, |world, log| {
    let listener = world.listen();
    let a = world.begin_connect(listener.local_addr().unwrap());
    log.say("wait", a.set_nonblocking(false));
    log.say("write", (&a).write(b"abc"));
    let (mut b, _) = listener.accept().unwrap();
    log.say("hear it", b.read(&mut [0; 8]));
    let a = world.begin_connect(world.closed());
    log.say("wait", a.set_nonblocking(false));
    log.say("write", (&a).write(b"abc"));
    log.say("write", (&a).write(b"abc"));
});

story!(one_of_several_addresses_will_do, |world, log| {
    let listener = world.listen();
    let at = listener.local_addr().unwrap();
    let nobody = SocketAddr::new(at.ip(), 0);
    log.say("none", world.connect(&[][..]).map(drop));
    log.say("the last", world.connect(&[world.closed(), nobody, at][..]).map(|a| a.peer_addr().unwrap() == at));
    log.say("no one", world.connect(&[nobody, world.closed()][..]).map(drop));
});

/// Nobody answers at all: the kernel's loopback has no such address, so this is ours alone.
#[test]
fn silence_is_a_timeout() {
    let world = Ours::new(Family::V4);
    let start = std::time::Instant::now();
    let error = world.connect_timeout("10.0.0.77:80".parse().unwrap(), Duration::from_millis(100)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert!(start.elapsed() >= Duration::from_millis(100));
    let error = world.connect("192.0.2.7:80").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NetworkUnreachable);
}

/// What a thread has entered it leaves in any order. The kernel has but one stack, so this is ours alone.
#[test]
fn stacks_are_left_in_any_order() {
    let world = Ours::new(Family::V4);
    let bind = |at: &str| laneway::UdpSocket::bind(at).map(drop).map_err(|error| error.kind());
    let (server, client) = (world.server.enter(), world.client.enter());
    assert_eq!(bind("10.0.0.2:0"), Ok(()));
    drop(server);
    assert_eq!(bind("10.0.0.2:0"), Ok(()), "the client's is the one that was entered last");
    let again = world.server.enter();
    assert_eq!(bind("10.0.0.1:0"), Ok(()));
    drop(again);
    assert_eq!(bind("10.0.0.2:0"), Ok(()));
    drop(client);
    assert!(bind("10.0.0.2:0").is_err());
}
