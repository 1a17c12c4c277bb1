//! Where one listens, and what one accepts.

use crate::world::*;

story!(an_address_that_is_not_ours, |world, log| {
    log.say("listen", world.listen_at(world.foreign()).map(drop));
    log.say("bind", world.udp_server_at(world.foreign()).map(drop));
});

story!(twice_the_same_address, |world, log| {
    let first = world.listen();
    log.say("listen", world.listen_at(first.local_addr().unwrap()).map(drop));
    let udp = world.udp_server();
    log.say("bind", world.udp_server_at(udp.local_addr().unwrap()).map(drop));
    let at = first.local_addr().unwrap();
    drop(first);
    world.settle();
    log.say("listen again", world.listen_at(at).map(drop));
});

story!(an_acceptor_s_peer_left_before_it_came, |world, log| {
    let listener = world.listen();
    let mut a = world.connect(listener.local_addr().unwrap()).unwrap();
    log.say("write", a.write(b"hello"));
    drop(a);
    world.settle();
    let (mut b, _) = listener.accept().unwrap();
    let mut all = Vec::new();
    log.say("all of it", b.read_to_end(&mut all));
});

story!(a_listener_goes_and_some_wait, |world, log| {
    let listener = world.listen();
    let mut a = world.connect(listener.local_addr().unwrap()).unwrap();
    let mut c = world.connect(listener.local_addr().unwrap()).unwrap();
    world.settle();
    log.say("w", c.write(b"x"));
    world.settle();
    drop(listener);
    world.settle();
    log.say("read", a.read(&mut [0; 3]));
    log.say("read", a.read(&mut [0; 3]));
    log.say("write", a.write(b"x"));
    log.say("write", c.write(b"x"));
    log.say("read", c.read(&mut [0; 3]));
});

story!(incoming_without_waiting, |world, log| {
    let listener = world.listen();
    log.say("error", error_of(listener.take_error()));
    let other = listener.try_clone().unwrap();
    log.say("nb", other.set_nonblocking(true));
    log.say("incoming", listener.incoming().next().unwrap().map(drop));
    let a: Vec<_> = (0..3).map(|_| world.connect(listener.local_addr().unwrap()).unwrap()).collect();
    world.settle();
    for (i, s) in listener.incoming().take(4).enumerate() {
        log.say(
            "in",
            s.map(|s| {
                (
                    i,
                    a.iter().position(|a| a.local_addr().unwrap() == s.peer_addr().unwrap()),
                    s.nodelay().unwrap(),
                    s.read_timeout().unwrap(),
                )
            }),
        );
    }
    drop(other);
    log.say("accept", listener.accept().map(drop));
});

story!(an_acceptor_s_peer_has_reset, |world, log| {
    let listener = world.listen();
    for word in [&b"hello"[..], b""] {
        let mut a = world.connect(listener.local_addr().unwrap()).unwrap();
        let at = a.local_addr().unwrap();
        log.say("write", a.write(word));
        world.settle();
        log.say("set", a.set_lingers(Some(Duration::ZERO)));
        drop(a);
        world.settle();
        log.say("ready", Ok(listener.ready()));
        let accepted = listener.accept();
        log.say("accept", accepted.as_ref().map(|(_, from)| *from == at).map_err(|error| error.kind().into()));
        let Ok((mut b, _)) = accepted else { continue };
        log.say("ready", Ok(b.ready()));
        log.say("peer", b.peer_addr().map(drop));
        log.say("ours", b.local_addr().map(|at| at == listener.local_addr().unwrap()));
        log.say("nodelay", b.set_nodelay(true));
        log.say("read", b.read(&mut [0; 8]));
        log.say("read", b.read(&mut [0; 8]));
        log.say("read", b.read(&mut [0; 8]));
        log.say("write", b.write(b"x"));
    }
});
