//! One direction ends, or both one after the other.

use crate::world::*;

story!(half_a_close, |world, log| {
    let (mut a, mut b) = world.pair();
    log.say("write", a.write(b"all there is"));
    log.say("shut", a.shutdown(Shutdown::Write));
    log.say("shut twice", a.shutdown(Shutdown::Write));
    log.say("write after FIN", a.write(b"more"));
    log.say("write nothing", a.write(&[]));
    log.say("no pieces", a.write_vectored(&[]));
    log.say("empty pieces", a.write_vectored(&[io::IoSlice::new(&[]), io::IoSlice::new(&[])]));
    log.say("pieces", a.write_vectored(&[io::IoSlice::new(&[]), io::IoSlice::new(b"x")]));
    let mut all = String::new();
    log.say("read to the end", b.read_to_string(&mut all));
    log.say("which is", Ok(all));
    log.say("read at the end", b.read(&mut [0; 4]));
    log.say("answer", b.write(b"answer"));
    let mut buf = [0; 16];
    log.say("hear it", a.read(&mut buf));
    drop(b);
    log.say("the end", a.read(&mut buf));
    log.say("the end again", a.read(&mut buf));
    world.settle();
    log.say("shut when all is over", a.shutdown(Shutdown::Write));
    log.say("peer's name", a.peer_addr().map(drop));
});

story!(reading_is_shut, |world, log| {
    let (mut a, mut b) = world.pair();
    log.say("shut", a.shutdown(Shutdown::Read));
    log.say("read", a.read(&mut [0; 4]));
    log.say("write still", a.write(b"abc"));
    let mut buf = [0; 8];
    log.say("hear it", b.read(&mut buf));
    log.say("both", a.shutdown(Shutdown::Both));
    log.say("write", a.write(b"abc"));
    log.say("the end", b.read(&mut buf));
});

story!(bytes_for_one_who_has_shut, |world, log| {
    let (mut a, mut b) = world.pair();
    log.say("w", b.write(b"before"));
    world.settle();
    log.say("shut", a.shutdown(Shutdown::Read));
    let mut buf = [0; 8];
    log.say("peek", a.peek(&mut buf));
    log.say("read", a.read(&mut buf));
    log.say("read", a.read(&mut buf));
    log.say("w", b.write(b"after"));
    world.settle();
    log.say("peek", a.peek(&mut buf));
    log.say("read", a.read(&mut buf));
    log.say("read", a.read(&mut buf));
    log.say("shut", a.shutdown(Shutdown::Read));
    log.say("nb", a.set_nonblocking(true));
    log.say("read", a.read(&mut buf));
    log.say("w", b.write(b"unread"));
    world.settle();
    drop(a);
    world.settle();
    log.say("b", b.read(&mut buf));
    log.say("b", b.read(&mut buf));
});

story!(the_second_to_close, |world, log| {
    let (mut a, b) = world.pair();
    let (la, pa) = (a.local_addr().unwrap(), a.peer_addr().unwrap());
    drop(b);
    world.settle();
    log.say("shut", a.shutdown(Shutdown::Read));
    log.say("shut", a.shutdown(Shutdown::Write));
    world.settle();
    log.say("peer", a.peer_addr().map(|x| x == pa));
    log.say("local", a.local_addr().map(|x| x == la));
    log.say("shut", a.shutdown(Shutdown::Both));
    log.say("read", a.read(&mut [0; 3]));
    log.say("write", a.write(b"x"));
    log.say("write nothing", a.write(b""));
    log.say("error", error_of(a.take_error()));
});

story!(a_clone_shuts, |world, log| {
    let (mut a, mut b) = world.pair();
    let mut c = a.try_clone().unwrap();
    log.say("s", c.shutdown(Shutdown::Write));
    drop(c.try_clone());
    log.say("w", a.write(b"x"));
    log.say("b", b.read(&mut [0; 2]));
    log.say("b w", b.write(b"hello"));
    log.say("c", c.read(&mut [0; 2]));
    log.say("a", a.read(&mut [0; 9]));
    drop(b);
    log.say("c", c.read(&mut [0; 9]));
    world.settle();
    log.say("a w", a.write(b"x"));
    log.say("a", error_of(a.take_error()));
});

story!(both_shut_both, |world, log| {
    let (mut a, mut b) = world.pair();
    log.say("both", a.shutdown(Shutdown::Both));
    log.say("both", a.shutdown(Shutdown::Both));
    log.say("r", a.read(&mut [0; 3]));
    log.say("w", a.write(b""));
    log.say("r b", b.read(&mut [0; 3]));
    log.say("peer", a.peer_addr().map(drop));
    log.say("shut b", b.shutdown(Shutdown::Both));
    world.settle();
    log.say("peer", a.peer_addr().map(drop));
    log.say("peer b", b.peer_addr().map(drop));
    log.say("local b", b.local_addr().map(drop));
    log.say("shut b", b.shutdown(Shutdown::Both));
    log.say("w b", b.write(b"x"));
    log.say("r b", b.read(&mut [0; 3]));
    log.say("e", error_of(a.take_error()));
    log.say("nd", b.set_nodelay(true));
    log.say("nd", b.nodelay());
});
