//! Connections that fail, and who is told why.

use crate::world::*;

story!(reset_by_a_drop_with_unread_bytes, |world, log| {
    let (mut a, mut b) = world.pair();
    log.say("write", a.write(b"nobody reads this"));
    world.settle();
    drop(b.try_clone().unwrap());
    log.say("still open", b.write(b"x"));
    world.settle();
    drop(b);
    world.settle();
    let mut buf = [0; 8];
    log.say("what came before", a.read(&mut buf));
    log.say("read", a.read(&mut buf));
    log.say("read again", a.read(&mut buf));
    log.say("write", a.write(b"x"));
    log.say("shut", a.shutdown(Shutdown::Both));
    log.say("peer's name", a.peer_addr().map(drop));
    log.say("our name", a.local_addr().map(drop));
    log.say("error", error_of(a.take_error()));
});

// Why it failed does not depend on what was done with the connection before it, whose conversation it may have.
story!(reset_in_the_queue_behind_one_that_was_shut, |world, log| {
    let listener = world.listen();
    let at = listener.local_addr().unwrap();
    for _ in 0..3 {
        let mut near = world.connect(at).unwrap();
        let far = listener.accept().unwrap().0;
        log.say("shut", far.shutdown(Shutdown::Write));
        drop(far);
        log.say("the end", near.read(&mut [0; 4]));
        drop(near);
        world.settle_for(Duration::ZERO);
        let near = world.connect(at).unwrap();
        log.say("shut", near.shutdown(Shutdown::Write));
        log.say("linger", near.set_lingers(Some(Duration::ZERO)));
        world.settle();
        drop(near);
        world.settle();
        let mut far = listener.accept().unwrap().0;
        log.say("error", error_of(far.take_error()));
        log.say("read", far.read(&mut [0; 4]));
        log.say("write", far.write(b"x"));
    }
});

story!(reset_when_a_direction_is_shut, |world, log| {
    for how in [Shutdown::Read, Shutdown::Write, Shutdown::Both] {
        let (mut a, b) = world.pair();
        log.say("write", a.write(b"nobody reads this"));
        world.settle();
        log.say("shut", a.shutdown(how));
        world.settle();
        drop(b);
        world.settle();
        log.say("peek", a.peek(&mut [0; 4]));
        log.say("read", a.read(&mut [0; 4]));
        log.say("write", a.write(b"x"));
        log.say("error", error_of(a.take_error()));
    }
});

story!(reset_behind_what_fills_the_first_of_several, |world, log| {
    let (mut a, mut b) = world.pair();
    log.say("write", a.write(b"nobody reads this"));
    log.say("three bytes", b.write(b"abc"));
    world.settle();
    drop(b);
    world.settle();
    let (mut x, mut y) = ([0; 3], [0; 10]);
    log.say("into several", a.read_vectored(&mut [io::IoSliceMut::new(&mut x), io::IoSliceMut::new(&mut y)]));
    log.say("read", a.read(&mut y));
    log.say("read again", a.read(&mut y));
});

story!(write_after_a_reset, |world, log| {
    let (mut a, b) = world.pair();
    log.say("write", a.write(b"nobody reads this"));
    world.settle();
    drop(b);
    world.settle();
    log.say("write", a.write(b"x"));
    log.say("write again", a.write(b"x"));
    log.say("read", a.read(&mut [0; 4]));
});

story!(the_error_is_taken, |world, log| {
    let (mut a, b) = world.pair();
    log.say("write", a.write(b"nobody reads this"));
    world.settle();
    drop(b);
    world.settle();
    log.say("error", error_of(a.take_error()));
    log.say("once", error_of(a.take_error()));
    log.say("read", a.read(&mut [0; 4]));
    log.say("write", a.write(b"x"));
});

story!(write_to_one_who_has_closed, |world, log| {
    let (mut a, b) = world.pair();
    drop(b);
    world.settle();
    log.say("the end", a.read(&mut [0; 4]));
    log.say("write", a.write(b"x")); // answered by RST
    world.settle();
    log.say("write", a.write(b"x"));
    log.say("read", a.read(&mut [0; 4]));
});

story!(what_can_be_asked_after_a_reset, |world, log| {
    let (mut a, b) = world.pair();
    log.say("write", a.write(b"nobody reads this"));
    world.settle();
    let (la, pa) = (a.local_addr().unwrap(), a.peer_addr().unwrap());
    drop(b);
    world.settle();
    log.say("peer", a.peer_addr().map(|x| x == pa));
    log.say("local", a.local_addr().map(|x| x == la));
    log.say("shut r", a.shutdown(Shutdown::Read));
    log.say("shut w", a.shutdown(Shutdown::Write));
    log.say("write nothing", a.write(&[]));
    log.say("write nothing", a.write(&[]));
    log.say("read nothing", a.read(&mut []));
    log.say("peek nothing", a.peek(&mut []));
    log.say("nodelay", a.set_nodelay(true));
    log.say("nodelay", a.nodelay());
    log.say("ttl", a.set_ttl(64));
    log.say("to", a.set_read_timeout(Some(Duration::from_millis(20))));
    log.say("nb", a.set_nonblocking(true));
    log.say("read", a.read(&mut [0; 4]));
    log.say("clone", a.try_clone().map(drop));
    log.say("flush", a.flush());
    log.say("local", a.local_addr().map(|x| x == la));
});

story!(the_broken_pipe_is_taken, |world, log| {
    let (mut a, b) = world.pair();
    drop(b);
    world.settle();
    log.say("peer", a.peer_addr().map(drop));
    log.say("write", a.write(b"x"));
    world.settle();
    log.say("peer", a.peer_addr().map(drop));
    log.say("shut", a.shutdown(Shutdown::Write));
    log.say("error", error_of(a.take_error()));
    log.say("error", error_of(a.take_error()));
    log.say("write", a.write(b"x"));
    log.say("read", a.read(&mut [0; 3]));
    let (mut a, b) = world.pair();
    drop(b);
    world.settle();
    log.say("write", a.write(b"x"));
    world.settle();
    log.say("read", a.read(&mut [0; 3]));
    log.say("peek", a.peek(&mut [0; 3]));
    log.say("error", error_of(a.take_error()));
});

story!(a_reset_behind_the_end, |world, log| {
    let (mut a, mut b) = world.pair();
    log.say("w", b.write(b"from b"));
    log.say("shut b", b.shutdown(Shutdown::Write));
    log.say("w", a.write(b"to b"));
    world.settle();
    drop(b); // unread
    world.settle();
    let mut buf = [0; 10];
    log.say("peek", a.peek(&mut buf));
    log.say("r", a.read(&mut buf));
    log.say("r", a.read(&mut buf));
    log.say("e", error_of(a.take_error()));
    log.say("w", a.write(b"x"));
});

story!(
    /// It is a reset, and no broken pipe, for who had said all himself, though it was not all heard yet.
    a_reset_behind_both_ends, |world, log| {
    for peer_first in [false, true] {
        for first in ["write", "read", "error"] {
            let (mut a, b) = world.pair();
            log.say("do not wait", a.set_nonblocking(true));
            if peer_first {
                log.say("shut b", b.shutdown(Shutdown::Write));
                world.settle();
            }
            // Until the peer has no room either.
            while a.write(&vec![7; 1 << 20]).is_ok() {
                world.settle_for(Duration::from_millis(5));
            }
            log.say("shut", a.shutdown(Shutdown::Write));
            if !peer_first {
                log.say("shut b", b.shutdown(Shutdown::Write));
            }
            world.settle();
            drop(b); // unread
            world.settle();
            log.say("ready", Ok(a.ready()));
            for ask in [first, "write", "read", "error", "read", "write"] {
                match ask {
                    "write" => log.say(ask, a.write(b"x")),
                    "read" => log.say(ask, a.read(&mut [0; 4])),
                    _ => log.say(ask, error_of(a.take_error())),
                }
            }
        }
    }
});
