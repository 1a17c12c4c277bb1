//! UDP.

use crate::world::*;

story!(a_refusal_wakes_who_waits, |world, log| {
    let client = world.udp_client();
    client.connect(world.closed()).unwrap();
    let c = client.try_clone().unwrap();
    let t = std::thread::spawn(move || c.recv(&mut [0; 3]));
    world.settle();
    log.say("s", client.send(b"x"));
    log.say("t", t.join().unwrap());
    log.say("b", client.set_broadcast(false));
});

story!(datagrams, |world, log| {
    let (server, client) = (world.udp_server(), world.udp_client());
    let at = server.local_addr().unwrap();
    log.say("send without a peer", client.send(b"x"));
    log.say("no peer", client.peer_addr().map(drop));
    log.say("send_to", client.send_to(b"hello", at));
    let mut buf = [0; 64];
    world.settle();
    log.say("peek", server.peek_from(&mut buf).map(|(n, _)| n));
    log.say("peek a little", server.peek_from(&mut buf[..2]).map(|(n, _)| n));
    log.say("cut off", server.recv_from(&mut buf[..2]).map(|(n, from)| (n, from == client.local_addr().unwrap())));
    log.say("timeout", server.set_read_timeout(Some(Duration::from_millis(30))));
    log.say("the rest is gone", server.recv_from(&mut buf).map(drop));
    log.say("an empty one", client.send_to(b"", at));
    log.say("arrives", server.recv_from(&mut buf).map(|(n, _)| n));
    log.say("too long", client.send_to(&vec![0; world.longest() + 1], at));
    log.say("port 0", client.send_to(b"x", SocketAddr::new(at.ip(), 0)));
    log.say("connect", client.connect(at));
    log.say("peer", client.peer_addr().map(|peer| peer == at));
    log.say("send", client.send(b"abc"));
    log.say("recv", server.recv(&mut buf));
    log.say("zero", server.set_read_timeout(Some(Duration::ZERO)));
    log.say("do not wait", server.set_nonblocking(true));
    log.say("recv", server.recv(&mut buf));
    // Only the peer is heard.
    let stranger = world.udp_server();
    stranger.send_to(b"boo", client.local_addr().unwrap()).unwrap();
    server.send_to(b"yes", client.local_addr().unwrap()).unwrap();
    world.settle();
    log.say("hears", client.recv(&mut buf).map(|n| buf[..n].to_vec()));
});

story!(
    /// Of several things that are wrong the one is said that the kernel says.
    datagrams_with_several_faults over [ipv4 V4], |world, log| {
    let (server, six) = (world.udp_server(), world.udp_server_at("[::]:0".parse().unwrap()).unwrap());
    let at = server.local_addr().unwrap();
    let without_port = SocketAddr::new(at.ip(), 0);
    let mapped = SocketAddr::new(format!("::ffff:{}", at.ip()).parse().unwrap(), at.port());
    let (long, longer) = (&[0; 65_508][..], &[0; 65_536][..]);
    for client in [world.udp_client(), world.udp_any()] {
        for what in [b"x", long, longer] {
            log.say("nobody", client.send(what));
            log.say("no port", client.send_to(what, without_port));
            log.say("all", client.send_to(what, "255.255.255.255:9"));
            log.say("IPv6", client.send_to(what, "[::1]:9"));
            log.say("IPv6 without a port", client.send_to(what, "[::1]:0"));
            log.say("IPv4 in its clothes", client.send_to(what, mapped));
        }
        log.say("connect", client.connect("[::1]:9"));
        log.say("connect", client.connect(mapped));
        log.say("no address", client.connect(&[][..]));
        log.say("no address", client.send_to(b"x", &[][..]));
        log.say("the second will do", client.connect(&["[::1]:9".parse().unwrap(), at][..]));
        log.say("peer", client.peer_addr().map(|peer| peer == at));
        log.say("too long", client.send(long));
    }
    let client = world.udp_client().local_addr().unwrap();
    for what in [long, longer] {
        log.say("nobody", six.send(what));
        log.say("somebody", six.send_to(what, client));
    }
    log.say("no port", six.send_to(b"x", without_port));
});

story!(
    /// The longest there can be, and the shortest, also into buffers without a byte.
    lengths_of_datagrams, |world, log| {
    let (server, client) = (world.udp_server(), world.udp_client());
    server.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let longest = world.longest();
    log.say("longest", client.send_to(&vec![7; longest], server.local_addr().unwrap()));
    let mut buf = vec![0; 70_000];
    log.say("recv", server.recv_from(&mut buf).map(|(n, _)| (n, buf[longest - 1], buf[longest])));
    log.say("connect", client.connect(server.local_addr().unwrap()));
    log.say("shortest", client.send(b""));
    log.say("into nothing", server.recv(&mut []));
    log.say("one byte", client.send(b"x"));
    log.say("peek into nothing", server.peek(&mut []));
    log.say("into nothing", server.recv(&mut []));
    server.set_nonblocking(true).unwrap();
    log.say("it is gone", server.recv(&mut buf));
    log.say("to peek at, too", server.peek(&mut buf));
});

story!(
    /// What was sent before the close goes out after it.
    many_datagrams_and_a_close, |world, log| {
    let (server, client) = (world.udp_server(), world.udp_client());
    server.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    for i in 0..200 {
        client.send_to(&[i; 10], server.local_addr().unwrap()).unwrap();
    }
    drop(client);
    let mut buf = [0; 20];
    log.say("recv", (0..200).map(|_| server.recv(&mut buf).map(|_| buf[0])).collect::<io::Result<Vec<_>>>());
});

story!(a_datagram_for_nobody, |world, log| {
    let client = world.udp_client();
    client.connect(world.closed()).unwrap();
    log.say("send", client.send(b"x"));
    world.settle();
    log.say("recv", client.recv(&mut [0; 4]));
    log.say("send again", client.send(b"x"));
    world.settle();
    log.say("error", error_of(client.take_error()));
});

story!(
    /// It is said to who was connected to the one who refused when he did.
    whom_a_refusal_concerns, |world, log| {
    let (client, server, closed) = (world.udp_client(), world.udp_server(), world.closed());
    let at = server.local_addr().unwrap();
    client.set_nonblocking(true).unwrap();
    log.say("without a peer", client.send_to(b"x", closed));
    world.settle();
    log.say("connect", client.connect(closed));
    log.say("recv", client.recv(&mut [0; 4]));
    log.say("send", client.send(b"x"));
    world.settle();
    log.say("connect to another", client.connect(at));
    log.say("recv", client.recv(&mut [0; 4]));
    log.say("recv", client.recv(&mut [0; 4]));
    log.say("to one who is not the peer", client.send_to(b"x", closed));
    world.settle();
    log.say("error", error_of(client.take_error()));
    log.say("connect back", client.connect(closed));
    log.say("recv", client.recv(&mut [0; 4]));
    log.say("send", client.send(b"x"));
    world.settle();
    log.say("to another", client.send_to(b"x", at));
    log.say("again", client.send_to(b"x", at));
    log.say("connect to any port", client.connect(SocketAddr::new(at.ip(), 0)));
    log.say("send", client.send_to(b"x", closed));
    world.settle();
    log.say("peek", client.peek(&mut [0; 4]));
    log.say("recv", client.recv(&mut [0; 4]));
});

story!(
    /// Said before what had come.
    a_refusal_and_a_datagram, |world, log| {
    let (client, server) = (world.udp_client(), world.udp_server());
    client.set_nonblocking(true).unwrap();
    client.connect(server.local_addr().unwrap()).unwrap();
    log.say("send", server.send_to(b"data", client.local_addr().unwrap()));
    world.settle();
    drop(server);
    world.settle();
    log.say("send", client.send(b"x"));
    world.settle();
    for _ in 0..3 {
        log.say("recv", client.recv(&mut [0; 4]));
    }
});

story!(
    /// Who is connected to port 0 hears all of its peer's ports.
    any_port_of_one_host, |world, log| {
    let (client, server) = (world.udp_client(), world.udp_server());
    let (here, at) = (client.local_addr().unwrap(), server.local_addr().unwrap());
    client.set_nonblocking(true).unwrap();
    for to in [SocketAddr::new(at.ip(), 0), at] {
        log.say("connect", client.connect(to));
        log.say("from one port", server.send_to(b"one", here));
        world.settle();
        log.say("recv", client.recv_from(&mut [0; 4]).map(|(n, from)| (n, from == at)));
        log.say("from another", world.udp_server().send_to(b"other", here));
        world.settle();
        log.say("recv", client.recv_from(&mut [0; 8]).map(|(n, from)| (n, from == at)));
    }
});

story!(a_connect_gives_a_name, |world, log| {
    let (server, client) = (world.udp_server(), world.udp_any());
    let at = server.local_addr().unwrap();
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    log.say("any", client.local_addr().map(|here| here.ip()));
    log.say("connect", client.connect(at));
    let here = client.local_addr().unwrap();
    log.say("a name", Ok((here.ip().is_unspecified(), here.port() == 0)));
    log.say("send", client.send(b"x"));
    log.say("from there", server.recv_from(&mut [0; 4]).map(|(n, from)| (n, from == here)));
    log.say("back", server.send_to(b"yes", here));
    log.say("recv", client.recv(&mut [0; 4]));
});

story!(
    /// Who is bound to any address has one from the first connect on, and hears what is sent to that one alone.
    a_connect_gives_an_address over [ipv4 V4], |world, log| {
    let (any, server, other) = (world.udp_any(), world.udp_server(), world.udp_server());
    let port = any.local_addr().unwrap().port();
    let [here, beside] = [world.client(), world.another_of_client()].map(|ip| SocketAddr::new(ip, port));
    any.set_nonblocking(true).unwrap();
    server.set_nonblocking(true).unwrap();
    let mut buf = [0; 16];
    for to in [here, beside] {
        log.say("before", server.send_to(b"before", to));
        world.settle();
    }
    log.say("connect", any.connect(server.local_addr().unwrap()));
    log.say("named", any.local_addr().map(|name| name == here));
    for to in [here, beside] {
        log.say("after", server.send_to(b"after", to));
        world.settle();
    }
    for _ in 0..4 {
        log.say("recv", any.recv(&mut buf).map(|n| buf[..n].to_vec()));
    }
    log.say("the other way", server.connect(beside));
    log.say("send", server.send(b"x"));
    world.settle();
    log.say("nobody is there", error_of(server.take_error()));
    log.say("to another", any.send_to(b"x", other.local_addr().unwrap()));
    log.say("from there", other.recv_from(&mut buf).map(|(n, from)| (n, from == here)));
    log.say("connect to another", any.connect(other.local_addr().unwrap()));
    log.say("named", any.local_addr().map(|name| name == here));
    for to in [here, beside] {
        log.say("send", other.send_to(b"again", to));
        world.settle();
        log.say("recv", any.recv(&mut buf).map(|n| buf[..n].to_vec()));
    }
});

story!(
    /// An address that a connect gave is of one family, which a socket of both keeps.
    a_connect_gives_an_address_of_one_family over [ipv6 V6], |world, log| {
    let (v4, v6) = (world.server_of(Family::V4), world.server());
    let mapped = match v4 {
        IpAddr::V4(ip) => IpAddr::V6(ip.to_ipv6_mapped()),
        IpAddr::V6(_) => v4,
    };
    let servers = [v4, v6].map(|ip| world.udp_server_at((ip, 0).into()).unwrap());
    let ports = servers.each_ref().map(|server| server.local_addr().unwrap().port());
    let at = [SocketAddr::new(mapped, ports[0]), SocketAddr::new(v6, ports[1])];
    let mut buf = [0; 16];
    for first in [0, 1] {
        let any = world.udp_any();
        log.say("connect", any.connect(at[first]));
        let name = any.local_addr().unwrap();
        log.say("named", Ok((name.ip().to_canonical().is_ipv4(), name.ip().is_unspecified())));
        for second in [1 - first, first] {
            log.say("to another", any.send_to(b"x", at[second]));
            log.say("connect to another", any.connect(at[second]));
            log.say("peer", any.peer_addr().map(|peer| at.iter().position(|at| *at == peer)));
            log.say("named as before", any.local_addr().map(|now| now == name));
        }
    }
    log.say("from IPv6", servers[0].recv_from(&mut buf).map(|(n, from)| (n, from.is_ipv4())));
});

story!(
    /// It is handed out after the connect, and nothing that they send from then on.
    what_came_from_others_before_a_connect, |world, log| {
    let (client, server, first, other) = (world.udp_client(), world.udp_server(), world.udp_server(), world.udp_server());
    let here = client.local_addr().unwrap();
    let at = [&server, &first, &other].map(|socket| socket.local_addr().unwrap());
    let who = |from: SocketAddr| at.iter().position(|at| *at == from);
    client.set_nonblocking(true).unwrap();
    let mut buf = [0; 16];
    for (socket, what) in [(&other, "a"), (&first, "bc"), (&server, "def"), (&other, "ghij"), (&first, "klmno")] {
        log.say("send", socket.send_to(what.as_bytes(), here));
        world.settle(); // between those of several senders there is no order
    }
    log.say("connect", client.connect(at[0]));
    log.say("ready", Ok(client.ready()));
    log.say("peek", client.peek_from(&mut buf).map(|(n, from)| (n, who(from))));
    log.say("peek", client.peek(&mut buf).map(|n| buf[..n].to_vec()));
    log.say("recv", client.recv_from(&mut buf).map(|(n, from)| (buf[..n].to_vec(), who(from))));
    log.say("recv", client.recv(&mut buf).map(|n| buf[..n].to_vec()));
    for socket in [&other, &server, &first] {
        log.say("send", socket.send_to(b"after", here));
    }
    world.settle();
    log.say("connect to another", client.connect(at[1]));
    for socket in [&other, &server, &first] {
        log.say("send", socket.send_to(b"later", here));
    }
    world.settle();
    for _ in 0..8 {
        log.say("ready", Ok(client.ready()));
        log.say("peek", client.peek(&mut buf).map(|n| buf[..n].to_vec()));
        log.say("recv", client.recv_from(&mut buf).map(|(n, from)| (buf[..n].to_vec(), who(from))));
    }
});

/// Where a datagram cannot go, who sends it is told. What the kernel says depends on its machine's routes, so this is ours alone: what it
/// says with such routes.
#[test]
fn a_datagram_that_can_go_nowhere_is_refused() {
    let world = Ours::new(Family::V4);
    let (any, bound) = (world.udp_any(), world.udp_client());
    let kinds = |socket: &laneway::UdpSocket, to: &str| {
        let kind = |error: io::Error| error.kind();
        (socket.send_to(b"x", to).map_err(kind), socket.connect(to).map_err(kind))
    };
    for (to, kind) in [
        ("192.0.2.1:9", io::ErrorKind::NetworkUnreachable),
        ("255.255.255.255:9", io::ErrorKind::PermissionDenied),
        ("10.0.0.255:9", io::ErrorKind::PermissionDenied),
        // Groups the kernel does, and we do not.
        ("224.0.0.251:5353", io::ErrorKind::Unsupported),
    ] {
        assert_eq!(kinds(&any, to), (Err(kind), Err(kind)), "{to}");
        assert_eq!(kinds(&bound, to), (Err(kind), Err(kind)), "{to}");
    }
    // A connect that comes to nothing leaves everything as it was.
    any.connect("10.0.0.1:9").unwrap();
    any.connect("192.0.2.1:9").unwrap_err();
    assert_eq!(any.peer_addr().unwrap(), "10.0.0.1:9".parse().unwrap());
    assert_eq!(any.local_addr().unwrap().ip().to_string(), "10.0.0.2");
    assert_eq!(any.send(b"x").unwrap(), 1);
}

/// The address that the first connect has chosen stays, however far the next peer is from it. The kernel does the same (it lets go of it only when
/// it is told to forget the peer, for which `std` has no call); to see it takes hosts in two networks, and so this is ours alone.
#[test]
fn another_peer_finds_the_address_that_was_chosen_for_the_first() {
    let (here, there) = laneway::Device::memory_pair(1).unwrap();
    let [stack, other] = [(here, 2), (there, 1)].map(|(device, host)| {
        let builder = laneway::Stack::builder(device).address(&format!("10.0.0.{host}/24")).unwrap();
        builder.address(&format!("10.1.0.{host}/24")).unwrap().start().unwrap()
    });
    let any = laneway::UdpSocket::bind_on(&stack, "0.0.0.0:9").unwrap();
    for at in ["10.1.0.1:9", "10.0.0.1:9"] {
        let peer = laneway::UdpSocket::bind_on(&other, at).unwrap();
        let chosen = "10.1.0.2:9".parse().unwrap();
        for connects in [false, true] {
            if connects {
                any.connect(at).unwrap();
                any.send(b"x").unwrap();
            } else {
                any.send_to(b"x", at).unwrap();
            }
            let (_, from) = peer.recv_from(&mut [0; 4]).unwrap();
            assert_eq!(from, chosen, "to {at}");
        }
        assert_eq!(any.local_addr().unwrap(), chosen);
        peer.send_to(b"x", chosen).unwrap();
        assert_eq!(any.recv_from(&mut [0; 4]).unwrap().1, at.parse().unwrap());
    }
}
