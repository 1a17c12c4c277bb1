//! Options of sockets, and what they do.

use crate::world::*;

story!(options, |world, log| {
    let (a, _b) = world.pair();
    log.say("nodelay", a.nodelay());
    log.say("set", a.set_nodelay(true));
    log.say("nodelay", a.nodelay());
    log.say("a clone's", a.try_clone().unwrap().nodelay());
    let (listener, socket) = (world.listen(), world.udp_client());
    for ttl in [0, 64, 1, 256, 100] {
        log.say("set TTL", a.set_ttl(ttl));
        log.say("set a listener's", listener.set_ttl(ttl));
        log.say("set a socket's", socket.set_ttl(ttl));
    }
    log.say("TTL", a.ttl());
    log.say("a clone's", a.try_clone().unwrap().ttl());
    log.say("a listener's", listener.ttl());
    log.say("a socket's", socket.ttl());
    log.say("set a listener's", listener.set_ttl(7));
    let _near = world.connect(listener.local_addr().unwrap()).unwrap();
    log.say("an accepted one's", listener.accept().unwrap().0.ttl());
    for timeout_ms in [0, 1, 1 << 31, i32::MAX as u32, u32::MAX] {
        log.say("set a time to give up", a.set_gives_up_after(timeout_ms));
        log.say("gives up after", a.gives_up_after());
    }
    log.say("set broadcast", socket.set_broadcast(false));
    log.say("broadcast", socket.broadcast());
    log.say("error", error_of(a.take_error()));
});

story!(keepalive_s_times, |world, log| {
    let (a, mut b) = world.pair();
    log.say("at first", a.keepalive_times());
    for times in [[60, 10, 3], [32_767, 32_767, 127], [1, 1, 1]] {
        log.say("set", a.set_keepalive_times(times));
        log.say("times", a.try_clone().unwrap().keepalive_times());
        log.say("on", a.keeps_alive());
    }
    for wrong in [[0, 1, 1], [32_768, 1, 1], [1, 0, 1], [1, 32_768, 1], [1, 1, 0], [1, 1, 128], [1, 1, u32::MAX]] {
        log.say("wrong", a.set_keepalive_times(wrong));
        log.say("times", a.keepalive_times());
    }
    log.say("off", a.set_keeps_alive(false));
    log.say("times", a.keepalive_times());
    // The other end answers.
    log.say("set", a.set_keepalive_times([1, 1, 1]));
    world.settle_for(Duration::from_millis(2_500));
    log.say("write", (&a).write(b"x"));
    log.say("read", b.read(&mut [0; 8]));
});

story!(
    /// With linger 0 a drop resets, whatever is under way; of clones the last.
    linger_zero_resets, |world, log| {
    let (a, mut b) = world.pair();
    log.say("not set", a.lingers());
    log.say("set", a.set_lingers(Some(Duration::ZERO)));
    log.say("get", a.lingers());
    let mut clone = a.try_clone().unwrap();
    log.say("a clone's", clone.lingers());
    drop(a);
    log.say("still there", clone.write(b"abc"));
    world.settle();
    drop(clone);
    world.settle();
    log.say("ready", Ok(b.ready()));
    log.say("what had come", b.read(&mut [0; 8]));
    log.say("reset", b.read(&mut [0; 8]));
    log.say("and then", b.read(&mut [0; 8]));
    log.say("write", b.write(b"x"));
    // Behind a FIN.
    let (a, mut b) = world.pair();
    log.say("set", a.set_lingers(Some(Duration::ZERO)));
    log.say("shut", a.shutdown(Shutdown::Write));
    world.settle();
    drop(a);
    world.settle();
    log.say("the end", b.read(&mut [0; 8]));
    log.say("write", b.write(b"x"));
    log.say("write", b.write(b"x"));
    log.say("error", error_of(b.take_error()));
    // Taken back.
    let (mut a, mut b) = world.pair();
    log.say("set", a.set_lingers(Some(Duration::ZERO)));
    log.say("unset", a.set_lingers(None));
    log.say("get", a.lingers());
    log.say("write", a.write(b"abc"));
    drop(a);
    log.say("what was sent", b.read(&mut [0; 8]));
    log.say("the end", b.read(&mut [0; 8]));
});

story!(linger_with_bytes_to_send, |world, log| {
    const MUCH: usize = 200_000;
    for linger in [None, Some(Duration::from_secs(5)), Some(Duration::ZERO)] {
        let (a, b) = world.pair();
        log.say("set", a.set_lingers(linger));
        log.say("get", a.lingers());
        let (has_read, told) = std::sync::mpsc::channel();
        let reader = std::thread::spawn(move || {
            std::thread::sleep(MOMENT);
            let all = (&b).read_exact(&mut [0; MUCH]);
            has_read.send(()).unwrap();
            (all, (&b).read_to_end(&mut Vec::new()).map(|more| assert_eq!(more, 0)))
        });
        log.say("write", (&a).write_all(&[7; MUCH]));
        if linger == Some(Duration::ZERO) {
            told.recv().unwrap(); // what was not read by then would be lost
        }
        drop(a);
        let (all, end) = reader.join().unwrap();
        log.say("all of it", all);
        log.say("end", end);
    }
});

story!(options_after_the_end, |world, log| {
    for unread in [&b""[..], b"unread"] {
        let (mut a, b) = world.pair();
        log.say("write", a.write(unread));
        world.settle();
        drop(b);
        world.settle();
        log.say("shut", a.shutdown(Shutdown::Write));
        world.settle();
        for on in [true, false] {
            log.say("nodelay", a.set_nodelay(on).and_then(|()| a.nodelay()));
            log.say("keepalive", a.set_keeps_alive(on).and_then(|()| a.keeps_alive()));
        }
        log.say("gives up after", a.set_gives_up_after(1_234).and_then(|()| a.gives_up_after()));
        log.say("gives up after", a.set_gives_up_after(0).and_then(|()| a.gives_up_after()));
        log.say("linger", a.set_lingers(Some(Duration::from_secs(3))).and_then(|()| a.lingers()));
        log.say("timeout", a.set_read_timeout(Some(Duration::ZERO)));
        log.say("timeout", a.set_write_timeout(Some(Duration::from_secs(2))).and_then(|()| a.write_timeout()));
        log.say("TTL", a.set_ttl(64).and_then(|()| a.ttl()));
        log.say("do not wait", a.set_nonblocking(true));
        log.say("clone", a.try_clone().map(drop));
    }
});

story!(
    /// None is refused, whether calls may wait or not, also where the peer takes no bytes.
    options_in_a_flood, |world, log| {
    let (mut a, _b) = world.pair();
    log.say("do not wait", a.set_nonblocking(true));
    for is_full in [false, true] {
        if is_full {
            while a.write(&[7; 65_536]).is_ok() {}
        }
        let first = |set: &dyn Fn(u32) -> io::Result<()>| (0..2_000).try_for_each(set);
        log.say("nodelay", first(&|i| a.set_nodelay(i % 2 == 0)));
        log.say("keepalive", first(&|i| a.set_keeps_alive(i % 2 == 0)));
        log.say("gives up after", first(&|i| a.set_gives_up_after(1_000 + i)));
        log.say("nodelay", a.nodelay());
        log.say("keepalive", a.keeps_alive());
        log.say("gives up after", a.gives_up_after());
    }
});
