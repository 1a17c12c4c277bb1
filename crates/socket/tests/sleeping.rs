//! Lanes that sleep: whoever asks one for something wakes it, and does not wait until it would have woken by itself. And threads that sleep: their
//! lane wakes them.

mod common;

use common::{pair, rounds, stacks};
use laneway::on_lane::Mib;
use laneway::{Device, Interest, Mode, Poller, Stack, TcpListener, TcpStream, UdpSocket};
use std::io::{ErrorKind, Read, Write};
use std::mem::forget;
use std::net::Shutdown;
use std::thread;
use std::time::{Duration, Instant};

/// By then a lane sleeps, for a second at the most.
const IDLE: Duration = Duration::from_millis(400);
/// However slow the machine is, of three it is not late each time.
const SOON: Duration = Duration::from_millis(300);

/// Whose lanes have their work done by others while they sleep.
#[derive(Clone, Copy, PartialEq)]
enum Lent {
    Server,
    Client,
    Nobody,
}

/// As others, but a thread looks for so long before it sleeps, and does a lane's work only of those that are [lent](Lent).
fn stacks_that_look(look: Duration, lent: Lent) -> (Stack, Stack) {
    let (here, there) = Device::memory_pair(1).unwrap();
    let start = |device, ip: &str, is_lent| {
        let builder = Stack::builder(device).address(ip).unwrap();
        builder.stand_in(is_lent).look(look).start().unwrap()
    };
    (start(here, "10.0.0.1/24", lent == Lent::Server), start(there, "10.0.0.2/24", lent == Lent::Client))
}

/// As others, but no thread looks before it sleeps, nor does a lane's work.
fn stacks_that_nobody_stands_in_for() -> (Stack, Stack) {
    stacks_that_look(Duration::ZERO, Lent::Nobody)
}

/// How often a thread has worked in the stead of a sleeping lane of this stack while it did `act`.
fn stands_in(stack: &Stack, act: impl FnOnce()) -> u64 {
    let stood_in = || stack.counters().unwrap().get(Mib::StandIns);
    let before = stood_in();
    thread::sleep(IDLE); // who asks a lane wakes it
    act();
    stood_in() - before
}

/// The shortest of some times that it takes from an act of one end of a connection until the other reads what comes of it.
fn is_heard(what: &str, act: impl Fn(TcpStream) -> Option<TcpStream>) {
    let shortest = (0..3).map(|_| {
        // A lane that has something to look after wakes more often: these have nothing of the times before.
        let (server, client) = stacks();
        let (near, mut far) = pair(&server, &client);
        thread::sleep(IDLE);
        let began = Instant::now();
        let _kept = act(near);
        let _ = far.read(&mut [0; 4]);
        began.elapsed()
    });
    let shortest = shortest.min().unwrap();
    assert!(shortest < SOON, "{what}: the other end hears of it after {shortest:?}");
}

#[test]
fn a_close_wakes_its_lane() {
    for nonblocking in [false, true] {
        is_heard("a close", |stream| {
            stream.set_nonblocking(nonblocking).unwrap();
            None
        });
    }
}

#[test]
fn a_shutdown_wakes_its_lane() {
    for nonblocking in [false, true] {
        is_heard("a shutdown", |stream| {
            stream.set_nonblocking(nonblocking).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            Some(stream)
        });
    }
}

#[test]
fn a_datagram_wakes_its_lane() {
    let (server, client) = stacks();
    let near = UdpSocket::bind_on(&client, "10.0.0.2:0").unwrap();
    let far = UdpSocket::bind_on(&server, "10.0.0.1:53").unwrap();
    let shortest = (0..3).map(|_| {
        thread::sleep(IDLE);
        let began = Instant::now();
        near.send_to(b"x", "10.0.0.1:53").unwrap();
        far.recv(&mut [0; 4]).unwrap();
        began.elapsed()
    });
    assert!(shortest.min().unwrap() < SOON);
}

#[test]
fn a_connect_wakes_its_lane() {
    let shortest = (0..3).map(|_| {
        let (server, client) = stacks_that_nobody_stands_in_for();
        let listener = TcpListener::bind_on(&server, "10.0.0.1:0").unwrap();
        thread::sleep(IDLE);
        let began = Instant::now();
        TcpStream::connect_on(&client, listener.local_addr().unwrap()).unwrap();
        began.elapsed()
    });
    assert!(shortest.min().unwrap() < SOON);
}

/// Without its lane each of these threads would wait until its time is over.
#[test]
fn who_sleeps_is_woken_by_the_lane() {
    const LONG: Duration = Duration::from_secs(10);
    const MUCH: usize = 8 << 20;
    let (server, client) = stacks_that_nobody_stands_in_for();
    let listener = TcpListener::bind_on(&server, "10.0.0.1:80").unwrap();
    let acceptor = thread::spawn(move || listener.accept().unwrap().0);
    thread::sleep(Duration::from_millis(20));
    let mut near = TcpStream::connect_timeout_on(&client, &"10.0.0.1:80".parse().unwrap(), LONG).unwrap();
    let mut far = acceptor.join().unwrap();
    near.set_write_timeout(Some(LONG)).unwrap();
    far.set_read_timeout(Some(LONG)).unwrap();
    let reader = thread::spawn(move || {
        far.read_exact(&mut [0; 1]).unwrap();
        thread::sleep(Duration::from_millis(50));
        far.read_exact(&mut vec![0; MUCH]).unwrap();
        far.read(&mut [0; 1]).unwrap()
    });
    thread::sleep(Duration::from_millis(20));
    near.write_all(b"x").unwrap();
    near.write_all(&vec![7; MUCH]).unwrap();
    near.shutdown(Shutdown::Write).unwrap();
    assert_eq!(reader.join().unwrap(), 0);
}

/// What a lane has held back for want of room it need not be woken for: its reader takes it in.
#[test]
fn who_makes_room_does_the_work_of_a_lane_that_sleeps() {
    let (server, client) = stacks_that_look(Duration::ZERO, Lent::Server);
    let (mut near, mut far) = pair(&server, &client);
    near.set_nonblocking(true).unwrap();
    let mut sent = 0;
    let mut last = Instant::now();
    while last.elapsed() < IDLE {
        match near.write(&[7; 65_536]) {
            Ok(n) => (sent, last) = (sent + n, Instant::now()),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
    let times = stands_in(&server, || {
        let mut received = 0;
        while received < sent {
            received += far.read(&mut [0; 16_384]).unwrap();
            thread::sleep(Duration::from_millis(1)); // the lane sleeps again if it was woken all the same
        }
    });
    assert!(times > 0, "of {sent} bytes that were more than its ring holds a reader has taken in none himself");
}

/// Who asks and waits has the question sent, and the answer taken in, without anybody being woken on his side.
#[test]
fn who_will_wait_for_an_answer_does_the_work_of_a_lane_that_sleeps() {
    let (server, client) = stacks_that_look(Duration::ZERO, Lent::Client);
    let listener = TcpListener::bind_on(&server, "10.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    // To leave is to stand in, too.
    let connects = stands_in(&client, || forget(TcpStream::connect_on(&client, at).unwrap()));
    assert!(connects > 0);

    let far = UdpSocket::bind_on(&server, "10.0.0.1:53").unwrap();
    let near = UdpSocket::bind_on(&client, "10.0.0.2:0").unwrap();
    let ask = || {
        near.send_to(b"x", "10.0.0.1:53").unwrap();
        assert_eq!(far.recv_from(&mut [0; 4]).unwrap().1, near.local_addr().unwrap());
    };
    let answer = || {
        far.send_to(b"y", near.local_addr().unwrap()).unwrap();
        near.recv(&mut [0; 4]).unwrap();
    };
    assert!(stands_in(&client, ask) > 0, "the first question");
    assert_eq!(stands_in(&client, ask), 0, "who has not waited for an answer has more to say");
    answer();
    assert!(stands_in(&client, ask) > 0, "who has, will again");
}

/// Who was told of many sockets at once has the lane do for all what it would do for each by itself.
#[test]
fn who_does_not_wait_does_the_work_of_a_lane_that_sleeps_unless_there_are_many_others_to_serve() {
    const MANY: usize = 100;
    let (server, client) = stacks_that_look(Duration::ZERO, Lent::Client);
    let (mut near, mut far) = pair(&server, &client);
    near.set_nonblocking(true).unwrap();
    let poller = Poller::new().unwrap();
    let sockets: Vec<_> = (0..MANY).map(|_| UdpSocket::bind_on(&client, "10.0.0.2:0").unwrap()).collect();
    for (key, socket) in sockets.iter().enumerate() {
        poller.add(socket, key, Interest::READABLE, Mode::Edge).unwrap();
    }
    let teller = UdpSocket::bind_on(&server, "10.0.0.1:0").unwrap();
    let is_told_of = |n: usize| {
        for socket in &sockets[..n] {
            teller.send_to(b"x", socket.local_addr().unwrap()).unwrap();
        }
        rounds([&server, &client]);
        let mut events = Vec::new();
        assert_eq!(poller.wait(&mut events, Some(Duration::from_secs(10))).unwrap(), n);
    };
    let mut says = |what: &[u8]| {
        stands_in(&client, || {
            near.write_all(what).unwrap();
            far.read_exact(&mut vec![0; what.len()]).unwrap();
        })
    };
    assert!(says(b"x") > 0, "who was told of nothing");
    is_told_of(MANY);
    assert_eq!(says(b"y"), 0, "who was told of many");
    is_told_of(2);
    assert!(says(b"z") > 0, "who was told of two");

    let listener = TcpListener::bind_on(&server, "10.0.0.1:0").unwrap();
    let begins = || {
        stands_in(&client, || {
            forget(TcpStream::begin_connect_on(&client, &listener.local_addr().unwrap()).unwrap());
            listener.accept().unwrap();
        })
    };
    assert!(begins() > 0, "who was told of two begins a connection");
    is_told_of(MANY);
    assert_eq!(begins(), 0, "who was told of many begins a connection");
}

#[test]
fn who_looks_for_what_comes_does_the_work_of_a_lane_that_sleeps() {
    let (server, client) = stacks_that_look(Duration::from_millis(1), Lent::Server);
    let listener = TcpListener::bind_on(&server, "10.0.0.1:0").unwrap();
    let far = UdpSocket::bind_on(&server, "10.0.0.1:53").unwrap();
    let near = UdpSocket::bind_on(&client, "10.0.0.2:0").unwrap();
    let looks = |what: &str, waits: &mut (dyn FnMut() + Send), comes: &dyn Fn()| {
        let times = stands_in(&server, || {
            thread::scope(|scope| {
                let waiting = scope.spawn(waits);
                thread::sleep(IDLE);
                comes();
                waiting.join().unwrap();
            });
        });
        assert!(times > 0, "{what}");
    };
    looks("a newcomer", &mut || forget(listener.accept().unwrap()), &|| {
        forget(TcpStream::begin_connect_on(&client, &listener.local_addr().unwrap()).unwrap());
    });
    let send = || _ = near.send_to(b"x", "10.0.0.1:53").unwrap();
    looks("a datagram", &mut || _ = far.recv(&mut [0; 4]).unwrap(), &send);

    let poller = Poller::new().unwrap();
    poller.add(&far, 7, Interest::READABLE, Mode::Edge).unwrap();
    let mut is_told = || assert_eq!(poller.wait(&mut Vec::new(), Some(Duration::from_secs(10))).unwrap(), 1);
    send();
    is_told(); // and knows from now on over which lane
    looks("one of many sockets", &mut is_told, &send);
}
