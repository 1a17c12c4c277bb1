//! Datagrams to all hosts of a network, which IPv6 has not.

use crate::world::*;

story!(
    /// It is asked for first, as the kernel has it: `SO_BROADCAST`.
    who_may_send_to_all_hosts over [ipv4 V4], |world, log| {
    let all = SocketAddr::new(world.everybody(), world.closed().port());
    for socket in [world.udp_client(), world.udp_any()] {
        log.say("may", socket.broadcast());
        log.say("send_to", socket.send_to(b"x", all));
        log.say("too long", socket.send_to(&vec![0; world.longest() + 1], all));
        log.say("connect", socket.connect(all));
        log.say("peer", socket.peer_addr());
        log.say("allow", socket.try_clone().unwrap().set_broadcast(true));
        log.say("may", socket.broadcast());
        log.say("send_to", socket.send_to(b"x", all));
        log.say("too long", socket.send_to(&vec![0; world.longest() + 1], all));
        log.say("connect", socket.connect(all));
        log.say("peer", socket.peer_addr().map(|peer| peer == all));
        log.say("named", socket.local_addr().map(|name| name.ip() == world.client()));
        log.say("send", socket.send(b"x"));
        log.say("forbid", socket.set_broadcast(false));
        log.say("may", socket.broadcast());
        log.say("to the peer all the same", socket.send(b"x"));
        log.say("send_to", socket.send_to(b"x", all));
        world.settle();
        log.say("nobody has it, and nobody says so", error_of(socket.take_error()));
    }
    let mapped = |at: SocketAddr| match at.ip() {
        IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), at.port()),
        IpAddr::V6(_) => at,
    };
    let both = world.udp_client_at("[::]:0".parse().unwrap()).unwrap();
    log.say("of both families", both.send_to(b"x", mapped(all)));
    log.say("allow", both.set_broadcast(true));
    log.say("of both families", both.send_to(b"x", mapped(all)));
});

story!(
    /// Such a socket hears what is sent to that address, and sends from one of its host's.
    who_is_bound_to_the_address_of_all_hosts over [ipv4 V4], |world, log| {
    let (all, client, other) = (world.everybody(), world.udp_client(), world.udp_client());
    let at = client.local_addr().unwrap();
    for ip in ["255.255.255.255", "::ffff:255.255.255.255"] {
        log.say("bind", world.udp_server_at((ip.parse::<IpAddr>().unwrap(), 0).into()).map(|s| s.local_addr().unwrap().ip()));
    }
    let bound = world.udp_server_at((all, 0).into());
    log.say("bind", bound.as_ref().map(|socket| socket.local_addr().unwrap().ip() == all).map_err(|e| e.kind().into()));
    let bound = bound.unwrap();
    bound.set_nonblocking(true).unwrap();
    let port = bound.local_addr().unwrap().port();
    let [to_all, to_one] = [all, world.server()].map(|ip| SocketAddr::new(ip, port));
    log.say("beside one for any", world.udp_server_at(("0.0.0.0".parse::<IpAddr>().unwrap(), port).into()).map(drop));
    log.say("beside one for an address", world.udp_server_at(to_one).map(drop));
    let mut buf = [0; 16];
    for socket in [&client, &other] {
        log.say("allow", socket.set_broadcast(true));
        log.say("to all", socket.send_to(b"all", to_all));
        log.say("to one", socket.send_to(b"one", to_one));
        world.settle();
        for _ in 0..2 {
            log.say("recv", bound.recv_from(&mut buf).map(|(n, from)| (buf[..n].to_vec(), from == at)));
        }
    }
    log.say("back", bound.send_to(b"yes", at));
    log.say("from", client.recv_from(&mut buf).map(|(n, from)| (n, from == to_one)));
    log.say("connect", bound.connect(at));
    log.say("named", bound.local_addr().map(|name| name == to_all));
    for socket in [&client, &other] {
        log.say("to all", socket.send_to(b"all", to_all));
        log.say("to one", socket.send_to(b"one", to_one));
        world.settle();
        for _ in 0..2 {
            log.say("recv", bound.recv_from(&mut buf).map(|(n, from)| (buf[..n].to_vec(), from == at)));
        }
    }
    log.say("send", bound.send(b"yes"));
    log.say("from", client.recv_from(&mut buf).map(|(n, from)| (n, from == to_one)));
});

story!(
    /// Each that is bound to where it was sent, or to any address, and is not connected to somebody else, or at another address.
    each_of_several_hears_what_is_for_all over [ipv4 V4], |world, log| {
    let (client, stranger) = (world.udp_client(), world.udp_client());
    let from = client.local_addr().unwrap();
    let any = world.udp_shared("0.0.0.0:0".parse().unwrap());
    let port = any.local_addr().unwrap().port();
    let shared = |ip: IpAddr| world.udp_shared((ip, port).into());
    let bound = [world.everybody(), world.everybody(), world.server(), Ipv6Addr::UNSPECIFIED.into(), "0.0.0.0".parse().unwrap()];
    let bound = bound.map(shared);
    let connected = [world.everybody(), world.everybody(), "0.0.0.0".parse().unwrap()].map(shared);
    for (socket, peer) in connected.iter().zip([from, stranger.local_addr().unwrap(), from]) {
        log.say("connect", socket.connect(peer));
    }
    client.set_broadcast(true).unwrap();
    let sockets: Vec<_> = [any].into_iter().chain(bound).chain(connected).collect();
    let mut buf = [0; 16];
    for socket in &sockets {
        socket.set_nonblocking(true).unwrap();
    }
    for (ip, what) in [(world.everybody(), "all"), (world.server(), "one"), (world.everybody(), "all again")] {
        log.say("send", client.send_to(what.as_bytes(), (ip, port)));
        world.settle();
        for (number, socket) in sockets.iter().enumerate() {
            for _ in 0..2 {
                let heard = socket.recv_from(&mut buf).map(|(n, from)| (buf[..n].to_vec(), from.ip() == client.local_addr().unwrap().ip()));
                log.say(&number.to_string(), heard);
            }
        }
    }
});
