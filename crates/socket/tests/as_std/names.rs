//! IPv4 addresses and the sockets of IPv6.

use crate::world::*;
use std::net::SocketAddrV6;

/// A name with the address of either world's server or client in the place of a word, and without the port.
fn family(name: SocketAddr) -> String {
    let ip = name.ip().to_string();
    ["127.0.0.1", "10.0.0.1", "10.0.0.2"].into_iter().fold(ip, |ip, host| ip.replace(host, "host"))
}

story!(
    /// Sockets that are bound to IPv6 name everybody as IPv6 does.
    ipv4_peers_of_ipv6_sockets over [ipv4 V4], |world, log| {
    let mapped = |port: u16| {
        let host = world.closed().ip();
        SocketAddr::new(format!("::ffff:{host}").parse().unwrap(), port)
    };
    for at in ["[::]:0".parse().unwrap(), mapped(0), "[::ffff:0.0.0.0]:0".parse().unwrap()] {
        let listener = world.listen_at(at).unwrap();
        let port = listener.local_addr().unwrap().port();
        log.say("listens", listener.local_addr().map(family));
        for to in [SocketAddr::new(world.closed().ip(), port), mapped(port)] {
            let stream = world.connect(to).unwrap();
            log.say("connected", stream.local_addr().map(family));
            log.say("to", stream.peer_addr().map(family));
            let (accepted, peer) = listener.accept().unwrap();
            log.say("accepted", Ok(family(peer)));
            log.say("peer", accepted.peer_addr().map(family));
            log.say("clone's peer", accepted.try_clone().unwrap().peer_addr().map(family));
            log.say("ours", accepted.local_addr().map(family));
        }

        let socket = world.udp_server_at(at).unwrap();
        let port = socket.local_addr().unwrap().port();
        log.say("bound", socket.local_addr().map(family));
        if at != "[::]:0".parse().unwrap() {
            log.say("to IPv6", socket.send_to(b"x", "[::1]:9"));
        }
        let client = world.udp_client();
        client.send_to(b"a", SocketAddr::new(world.closed().ip(), port)).unwrap();
        let mut buf = [0; 8];
        log.say("peek", socket.peek_from(&mut buf).map(|(_, from)| family(from)));
        let (_, from) = socket.recv_from(&mut buf).unwrap();
        log.say("from", Ok(family(from)));
        for peer in [from, client.local_addr().unwrap()] {
            log.say("answer", socket.send_to(b"b", peer));
            log.say("heard", client.recv_from(&mut buf).map(|(n, from)| (n, family(from))));
            log.say("connect", socket.connect(peer));
            log.say("peer", socket.peer_addr().map(family));
            log.say("ours", socket.local_addr().map(family));
            log.say("send", socket.send(b"c"));
            log.say("heard", client.recv_from(&mut buf).map(|(n, from)| (n, family(from))));
            client.send_to(b"d", SocketAddr::new(world.closed().ip(), port)).unwrap();
            log.say("from", socket.recv_from(&mut buf).map(|(n, from)| (n, family(from))));
        }
    }
});

story!(
    /// Bound to an address of IPv6, a socket reaches no address of IPv4, whatever its name.
    ipv4_peers_of_sockets_of_ipv6_alone over [ipv6 V6], |world, log| {
    let (server, client) = (world.udp_server(), world.udp_client());
    let at = server.local_addr().unwrap();
    let (long, longer) = (&[0; 65_508][..], &[0; 65_536][..]);
    for (name, group) in [("127.0.0.1", "224.0.0.251"), ("::ffff:127.0.0.1", "::ffff:224.0.0.251")] {
        for (ip, port) in [(name, 9), (name, 0), (group, 9)] {
            let peer = SocketAddr::new(ip.parse().unwrap(), port);
            log.say("connect", client.connect(peer));
            for what in [b"x", long, longer] {
                log.say("send", client.send_to(what, peer));
            }
            log.say("peer", client.peer_addr().map(drop));
            log.say("the second will do", client.connect(&[peer, at][..]));
            log.say("connect", client.connect(peer));
            log.say("peer", client.peer_addr().map(|peer| peer == at));
            log.say("send", client.send_to(b"x", peer));
        }
    }
    let only = world.udp_v6_only();
    for peer in ["127.0.0.1:9", "[::ffff:127.0.0.1]:9", "[::ffff:127.0.0.1]:0"] {
        log.say("connect", only.connect(peer));
        log.say("send", only.send_to(b"x", peer));
    }
    log.say("send", only.send_to(b"x", at));
    for what in [long, &[0; 65_527], &[0; 65_528], longer] {
        log.say("long", client.send(what));
        log.say("no port", client.send_to(what, SocketAddr::new(at.ip(), 0)));
        log.say("without a peer", world.udp_client().send(what));
    }
});

story!(
    /// Whoever asks with a flow label, or with the zone of an address that needs none, has neither in a name.
    flow_labels_and_zones over [ipv6 V6], |world, log| {
    let marked = |ip: IpAddr, port, flow, zone| match ip {
        IpAddr::V6(ip) => SocketAddr::V6(SocketAddrV6::new(ip, port, flow, zone)),
        IpAddr::V4(ip) => unreachable!("{ip} has neither"),
    };
    let marks = |name: SocketAddr| match name {
        SocketAddr::V6(name) => (name.flowinfo(), name.scope_id()),
        SocketAddr::V4(name) => unreachable!("{name} has neither"),
    };
    for (flow, zone) in [(0, 0), (5, 0), (0, 9), (u32::MAX, 77)] {
        for own in [world.server(), Ipv6Addr::UNSPECIFIED.into()] {
            let listener = world.listen_at(marked(own, 0, flow, zone)).unwrap();
            log.say("listens", listener.local_addr().map(marks));
            log.say("clone", listener.try_clone().unwrap().local_addr().map(marks));
            let port = listener.local_addr().unwrap().port();
            let stream = world.connect(marked(world.server(), port, flow, zone)).unwrap();
            log.say("connected", stream.local_addr().map(marks));
            log.say("to", stream.peer_addr().map(marks));
            let (accepted, peer) = listener.accept().unwrap();
            log.say("accepted", Ok(marks(peer)));
            log.say("ours", accepted.local_addr().map(marks));
            log.say("peer", accepted.peer_addr().map(marks));

            let server = world.udp_server_at(marked(own, 0, flow, zone)).unwrap();
            log.say("bound", server.local_addr().map(marks));
            let at = marked(world.server(), server.local_addr().unwrap().port(), flow, zone);
            let client = world.udp_client_at(marked(world.client(), 0, flow, zone)).unwrap();
            log.say("send", client.send_to(b"a", at));
            log.say("from", server.recv_from(&mut [0; 8]).map(|(_, from)| marks(from)));
            log.say("connect", client.connect(at));
            log.say("peer", client.peer_addr().map(marks));
            log.say("ours", client.local_addr().map(marks));
        }
    }
});
