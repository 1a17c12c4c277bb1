//! Who waits, for how long, and what wakes him.

use crate::world::*;

story!(timeouts, |world, log| {
    let (a, b) = world.pair();
    log.say("zero", a.set_read_timeout(Some(Duration::ZERO)));
    log.say("set", a.set_read_timeout(Some(Duration::from_millis(40))));
    log.say("get", a.read_timeout());
    log.say("read", (&a).read(&mut [0; 4]));
    log.say("peek", a.peek(&mut [0; 4]));
    log.say("set", a.set_write_timeout(Some(Duration::from_millis(400))));
    let mut total = 0;
    let last = loop {
        match (&a).write(&[7; 65_536]) {
            Ok(n) => total += n,
            error => break error,
        }
    };
    log.say("a full pipe", last);
    log.say("took something first", Ok(total > 100_000));
    log.say("unset", a.set_read_timeout(None));
    log.say("get", a.read_timeout());
    drop(b);
});

story!(timeouts_from_the_shortest_to_the_longest, |world, log| {
    let (mut a, _b) = world.pair();
    log.say("shortest", a.set_read_timeout(Some(Duration::from_nanos(1))));
    log.say("get", a.read_timeout().map(|timeout| timeout.is_some()));
    log.say("read", a.read(&mut [0; 2]));
    log.say("long", a.set_read_timeout(Some(Duration::from_secs(1_000_000))));
    log.say("get", a.read_timeout());
    log.say("a clone's", a.try_clone().unwrap().read_timeout());
    log.say("longest", a.set_read_timeout(Some(Duration::MAX)));
    log.say("get", a.read_timeout());
    log.say("writes have another", a.write_timeout());
    log.say("zero", a.set_write_timeout(Some(Duration::ZERO)));
    let socket = world.udp_client();
    log.say("longest of a socket", socket.set_read_timeout(Some(Duration::MAX)));
    log.say("get", socket.read_timeout());
    log.say("zero", socket.set_write_timeout(Some(Duration::ZERO)));
    log.say("connect", world.connect_timeout(world.closed(), Duration::MAX).map(drop));
});

story!(without_waiting, |world, log| {
    let listener = world.listen();
    log.say("set", listener.set_nonblocking(true));
    log.say("accept", listener.accept().map(drop));
    let a = world.connect(listener.local_addr().unwrap()).unwrap();
    world.settle();
    let b = listener.accept().unwrap().0;
    log.say("accept again", listener.accept().map(drop));
    log.say("set", a.set_nonblocking(true));
    log.say("read", (&a).read(&mut [0; 4]));
    log.say("peek", a.peek(&mut [0; 4]));
    log.say("accepted ones wait", b.set_read_timeout(Some(Duration::from_millis(30))));
    log.say("and say so", (&b).read(&mut [0; 4]));
    let last = loop {
        match (&a).write(&[7; 65_536]) {
            Ok(_) => {}
            error => break error,
        }
    };
    log.say("a full pipe", last);
    log.say("unset", a.set_nonblocking(false));
    world.settle(); // the bytes have a way to go: what arrives after the close is answered by FIN and RST, here and there
    drop(b);
    world.settle();
    log.say("reset by unread bytes", (&a).read(&mut [0; 4]));
});

story!(a_reader_that_waits_is_told, |world, log| {
    let (a, b) = world.pair();
    let waits = a.try_clone().unwrap();
    let reader = std::thread::spawn(move || (&waits).read(&mut [0; 4]));
    world.settle();
    log.say("shut", a.shutdown(Shutdown::Read));
    log.say("the reader", reader.join().unwrap());
    drop(b);
});

/// However long the machine takes to begin with it; that it waits takes a moment more.
fn until_it_writes(reader: &impl Polled) {
    while !reader.ready().0 {
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(300));
}

story!(a_writer_that_waits_is_told, |world, log| {
    // told by shutdown
    let (a, b) = world.pair();
    let w = a.try_clone().unwrap();
    let t = std::thread::spawn(move || {
        let first = (&w).write(&vec![1; 30_000_000]).map(|n| n < 30_000_000);
        (first, (&w).write(b"x"))
    });
    until_it_writes(&b);
    log.say("shut", a.shutdown(Shutdown::Write));
    let (first, next) = t.join().unwrap();
    log.say("first", first);
    log.say("next", next);
    drop(b);
    // told by reset
    let (a, b) = world.pair();
    let t = std::thread::spawn(move || {
        let first = (&a).write(&vec![1; 30_000_000]).map(|n| n < 30_000_000);
        (first, (&a).write(b"x"), (&a).write(b"x"), (&a).read(&mut [0; 3]))
    });
    until_it_writes(&b);
    drop(b);
    let (first, next, n2, r) = t.join().unwrap();
    log.say("first", first);
    log.say("next", next);
    log.say("next", n2);
    log.say("read", r);
});

story!(
    /// Whatever has come, or if nothing has, and what has come stays.
    who_asks_for_nothing_waits_and_has_it, |world, log| {
    let (a, mut b) = world.pair();
    log.say("for so long", a.set_read_timeout(Some(Duration::from_millis(20))));
    log.say("read", (&a).read(&mut []));
    log.say("peek", a.peek(&mut []));
    log.say("read something", (&a).read(&mut [0; 4]));
    log.say("for ever", a.set_read_timeout(None));
    let waits = || {
        let a = a.try_clone().unwrap();
        let reader = std::thread::spawn(move || (&a).read(&mut []));
        world.settle();
        reader
    };
    let reader = waits();
    log.say("write", b.write(b"x"));
    log.say("the reader", reader.join().unwrap());
    log.say("read something", (&a).read(&mut [0; 4]));
    let reader = waits();
    log.say("unread", (&a).write(b"unread"));
    world.settle();
    drop(b);
    log.say("the reader", reader.join().unwrap());
    log.say("and who asks now", (&a).read(&mut []));
    log.say("read", (&a).read(&mut [0; 4]));
});

story!(two_readers_and_one_reset, |world, log| {
    let (a, b) = world.pair();
    let ts: Vec<_> = (0..2)
        .map(|_| {
            let a = a.try_clone().unwrap();
            std::thread::spawn(move || (&a).read(&mut [0; 3]))
        })
        .collect();
    (&a).write_all(b"unread").unwrap();
    world.settle();
    drop(b);
    let mut all: Vec<_> = ts.into_iter().map(|t| t.join().unwrap().map_err(|e| e.kind())).collect();
    all.sort_by_key(|x| x.is_ok());
    log.say("both", Ok(all));
});

story!(what_a_poller_says, |world, log| {
    let listener = world.listen();
    log.say("a listener", Ok(listener.ready()));
    let mut a = world.connect(listener.local_addr().unwrap()).unwrap();
    world.settle();
    log.say("a listener", Ok(listener.ready()));
    let mut b = listener.accept().unwrap().0;
    log.say("a listener", Ok(listener.ready()));
    log.say("a stream", Ok(a.ready()));
    b.write_all(b"x").unwrap();
    world.settle();
    log.say("with bytes", Ok(a.ready()));
    log.say("peek", a.peek(&mut [0; 4]));
    log.say("still", Ok(a.ready()));
    log.say("read", a.read(&mut [0; 4]));
    log.say("without", Ok(a.ready()));
    a.set_nonblocking(true).unwrap();
    // A lane that has no core at the first refusal takes more a moment later.
    while a.write(&[7; 65_536]).is_ok() {
        while a.write(&[7; 65_536]).is_ok() {}
        world.settle();
    }
    log.say("full", Ok(a.ready()));
    a.shutdown(Shutdown::Write).unwrap();
    log.say("full and shut", Ok(a.ready()));
    a.shutdown(Shutdown::Read).unwrap();
    log.say("shut both", Ok(a.ready()));
    for how in [Shutdown::Read, Shutdown::Write, Shutdown::Both] {
        let (a, b) = world.pair();
        a.shutdown(how).unwrap();
        world.settle();
        log.say("has shut", Ok((a.ready(), b.ready())));
        drop(a);
        world.settle();
        log.say("and is gone", Ok(b.ready()));
    }
    let (mut a, b) = world.pair();
    a.write_all(b"unread").unwrap();
    world.settle();
    drop(b);
    world.settle();
    log.say("reset", Ok(a.ready()));
    log.say("error", error_of(a.take_error()));
    log.say("error is taken", Ok(a.ready()));

    let (socket, other) = (world.udp_server(), world.udp_client());
    log.say("a socket", Ok(socket.ready()));
    other.send_to(b"", socket.local_addr().unwrap()).unwrap();
    world.settle();
    log.say("an empty one", Ok(socket.ready()));
    log.say("peek", socket.peek(&mut [0; 4]));
    log.say("still", Ok(socket.ready()));
    log.say("recv", socket.recv(&mut [0; 4]));
    log.say("without", Ok(socket.ready()));
    other.connect(world.closed()).unwrap();
    other.send(b"x").unwrap();
    world.settle();
    log.say("refused", Ok(other.ready()));
    log.say("error", error_of(other.take_error()));
    log.say("error is taken", Ok(other.ready()));
});

story!(one_of_two_readers_has_the_byte, |world, log| {
    let (a, b) = world.pair();
    let (said, hear) = std::sync::mpsc::channel();
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (a, said) = (a.try_clone().unwrap(), said.clone());
            std::thread::spawn(move || said.send((&a).read(&mut [0; 4])).unwrap())
        })
        .collect();
    world.settle();
    drop(a); // the clones wait on
    for _ in 0..2 {
        (&b).write_all(b"x").unwrap();
        log.say("one", hear.recv().unwrap());
        log.say("one alone", Ok(hear.recv_timeout(MOMENT).is_err()));
    }
    readers.into_iter().for_each(|reader| reader.join().unwrap());
});

story!(who_waits_is_not_disturbed, |world, log| {
    let listener = world.listen();
    let other = listener.try_clone().unwrap();
    let acceptor = std::thread::spawn(move || other.accept().map(|(stream, _)| stream));
    world.settle();
    log.say("do not wait", listener.set_nonblocking(true));
    log.say("accept", listener.accept().map(drop));
    let at = listener.local_addr().unwrap();
    drop(listener);
    let a = world.connect(at).unwrap();
    let b = acceptor.join().unwrap().unwrap();
    let reader = {
        let b = b.try_clone().unwrap();
        std::thread::spawn(move || (&b).read(&mut [0; 4]))
    };
    world.settle();
    log.say("do not wait", b.set_nonblocking(true));
    log.say("a timeout", b.set_read_timeout(Some(Duration::from_millis(1))));
    log.say("read", (&b).read(&mut [0; 4]));
    log.say("write", (&b).write(b"x"));
    drop(b);
    world.settle();
    log.say("it waits", Ok(!reader.is_finished()));
    log.say("write", (&a).write(b"yes"));
    log.say("the reader", reader.join().unwrap());
});

story!(
    /// Who waits has begun to before the others were told not to, and goes on, even if he is woken for nothing.
    who_waits_goes_on_when_others_do_not, |world, log| {
    let listener = world.listen();
    let at = listener.local_addr().unwrap();
    let a = world.connect(at).unwrap();
    let mut b = listener.accept().unwrap().0;
    let reader = {
        let a = a.try_clone().unwrap();
        std::thread::spawn(move || (&a).read(&mut [0; 4]))
    };
    // Two of them have one that comes: the other is woken for nothing.
    let acceptors: Vec<_> = (0..2)
        .map(|_| {
            let listener = listener.try_clone().unwrap();
            std::thread::spawn(move || listener.accept().map(drop))
        })
        .collect();
    let socket = world.udp_server();
    let receivers: Vec<_> = (0..2)
        .map(|_| {
            let socket = socket.try_clone().unwrap();
            std::thread::spawn(move || socket.recv(&mut [0; 4]))
        })
        .collect();
    world.settle();
    log.say("do not wait", a.set_nonblocking(true));
    log.say("do not wait", listener.set_nonblocking(true));
    log.say("do not wait", socket.set_nonblocking(true));
    log.say("shut", a.shutdown(Shutdown::Write));
    let _c = world.connect(at).unwrap();
    let sender = world.udp_client();
    log.say("send", sender.send_to(b"x", socket.local_addr().unwrap()));
    world.settle();
    log.say("it waits", Ok(!reader.is_finished()));
    log.say("one waits", Ok(acceptors.iter().filter(|one| !one.is_finished()).count()));
    log.say("one waits", Ok(receivers.iter().filter(|one| !one.is_finished()).count()));
    log.say("write", b.write(b"yes"));
    log.say("the reader", reader.join().unwrap());
    let _d = world.connect(at).unwrap();
    acceptors.into_iter().for_each(|one| log.say("an acceptor", one.join().unwrap()));
    log.say("send", sender.send_to(b"x", socket.local_addr().unwrap()));
    receivers.into_iter().for_each(|one| log.say("a receiver", one.join().unwrap()));
});

story!(
    /// The same of a writer, who has room, though not for all of it.
    a_writer_goes_on_when_others_do_not, |world, log| {
    const MUCH: usize = 30_000_000;
    let (a, b) = world.pair();
    let writer = {
        let (a, much) = (a.try_clone().unwrap(), vec![7; MUCH]);
        std::thread::spawn(move || (&a).write(&much))
    };
    world.settle();
    log.say("do not wait", a.set_nonblocking(true));
    let mut much = vec![0; MUCH];
    b.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    log.say("read all", (&b).read_exact(&mut much));
    log.say("the writer", writer.join().unwrap());
});
