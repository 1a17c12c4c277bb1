//! What is written and read, and nothing of it.

use crate::world::*;

story!(a_question_and_an_answer, |world, log| {
    let (mut a, mut b) = world.pair();
    log.say(
        "names",
        Ok(a.local_addr().unwrap() == b.peer_addr().unwrap() && a.peer_addr().unwrap() == b.local_addr().unwrap()),
    );
    log.say("write", a.write(b"question"));
    let mut buf = [0; 64];
    world.settle();
    log.say("peek", b.peek(&mut buf));
    log.say("peek a little", b.peek(&mut buf[..3]));
    log.say("read a little", b.read(&mut buf[..3]));
    log.say("read nothing of what is there", b.read(&mut []));
    log.say("read the rest", b.read(&mut buf));
    log.say("do not wait", b.set_nonblocking(true));
    log.say("read nothing of nothing", b.read(&mut []));
    log.say("wait", b.set_nonblocking(false));
    log.say("write nothing", b.write(&[]));
    log.say("several pieces", b.write_vectored(&[io::IoSlice::new(b"an"), io::IoSlice::new(b"swer")]));
    let (mut x, mut y) = ([0; 2], [0; 10]);
    world.settle();
    log.say("into several", a.read_vectored(&mut [io::IoSliceMut::new(&mut x), io::IoSliceMut::new(&mut y)]));
    log.say("which are", Ok((x, y)));
});

story!(a_clone_keeps_it_open, |world, log| {
    let (mut a, mut b) = world.pair();
    let mut clone = a.try_clone().unwrap();
    log.say("write", a.write(b"one"));
    drop(a);
    log.say("clone writes", clone.write(b"two"));
    world.settle();
    let mut buf = [0; 16];
    log.say("read", b.read(&mut buf));
    drop(clone);
    log.say("end", b.read(&mut buf));
});

story!(much_both_ways, |world, log| {
    let (a, b) = world.pair();
    const N: usize = 3_000_000;
    let sender = std::thread::spawn(move || {
        let data: Vec<u8> = (0..N).map(|i| (i / 251) as u8).collect();
        (&a).write_all(&data).unwrap();
        a.shutdown(Shutdown::Write).unwrap();
        let mut back = Vec::new();
        (&a).read_to_end(&mut back).unwrap();
        back == data
    });
    let mut data = Vec::new();
    log.say("read", (&b).read_to_end(&mut data));
    log.say("write", (&b).write_all(&data));
    drop(b);
    log.say("the same", Ok(sender.join().unwrap()));
});

story!(nothing_is_asked_for_at_the_end, |world, log| {
    let (mut a, mut b) = world.pair();
    log.say("write", b.write(b"x"));
    log.say("shut", b.shutdown(Shutdown::Write));
    world.settle();
    for _ in 0..2 {
        log.say("read", a.read(&mut []));
        log.say("peek", a.peek(&mut []));
        log.say("no pieces", a.read_vectored(&mut []));
        log.say("empty pieces", a.read_vectored(&mut [io::IoSliceMut::new(&mut []), io::IoSliceMut::new(&mut [])]));
        let mut piece = [0; 4];
        log.say("pieces", a.read_vectored(&mut [io::IoSliceMut::new(&mut []), io::IoSliceMut::new(&mut piece)]));
    }
    log.say("write", a.write(b"unread"));
    world.settle();
    drop(b);
    world.settle();
    log.say("empty pieces", a.read_vectored(&mut [io::IoSliceMut::new(&mut [])]));
    log.say("read", a.read(&mut []));
    log.say("peek", a.peek(&mut []));
    log.say("read", a.read(&mut [0; 2]));
    log.say("no pieces", a.write_vectored(&[]));
    log.say("write", a.write(&[]));
});

story!(
    /// What is there takes less than a buffer for more, and so who gets less knows that there is no more.
    a_read_takes_all_that_is_there, |world, log| {
    let (mut a, mut b) = world.pair();
    let mut buf = [0; 64];
    for _ in 0..2 {
        log.say("write", b.write(b"abc"));
        world.settle();
        log.say("a little", a.read(&mut buf[..1]));
        log.say("write", b.write(b"defg"));
        world.settle();
        log.say("all", a.read(&mut buf).map(|n| buf[..n].to_vec()));
    }
    for _ in 0..2 {
        let (a, mut b) = world.pair();
        log.say("write", b.write(b"abc"));
        world.settle();
        log.say("peek", a.peek(&mut buf[..1]));
        log.say("write", b.write(b"defg"));
        world.settle();
        let (mut x, mut y) = ([0; 5], [0; 5]);
        log.say("all", (&a).read_vectored(&mut [io::IoSliceMut::new(&mut x), io::IoSliceMut::new(&mut y)]));
        log.say("which is", Ok((x, y)));
    }
});

story!(
    /// However many read at once, what each is given in pieces lies together.
    two_read_into_several_pieces, |world, log| {
    const N: usize = 2_000_000;
    let (a, b) = world.pair();
    let sender = std::thread::spawn(move || {
        let data: Vec<u8> = (0..N).map(|i| i as u8).collect();
        (&a).write_all(&data).unwrap();
    });
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let b = b.try_clone().unwrap();
            std::thread::spawn(move || {
                let (mut all, mut torn) = (0, 0);
                loop {
                    let (mut x, mut y) = ([0; 3], [0; 3]);
                    let n = (&b).read_vectored(&mut [io::IoSliceMut::new(&mut x), io::IoSliceMut::new(&mut y)]).unwrap();
                    if n == 0 {
                        return (all, torn);
                    }
                    all += n;
                    torn += usize::from([x, y].concat()[..n].windows(2).any(|two| two[1] != two[0].wrapping_add(1)));
                }
            })
        })
        .collect();
    sender.join().unwrap();
    let (all, torn) = readers.into_iter().map(|reader| reader.join().unwrap()).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
    log.say("all of it", Ok(all == N));
    log.say("torn", Ok(torn));
});
