//! How much waits in buffers that were told their size, and that whoever waits for room in one hears of it when it becomes larger.

mod common;

use common::{rounds, stacks};
use laneway::{Event, Interest, Mode, Poller, Stack, TcpSocket, TcpStream};
use std::io::{ErrorKind, Read, Write};
use std::thread;
use std::time::{Duration, Instant};

const SMALL: usize = 10_000;
const LARGE: usize = 200_000;
/// The window in a SYN-ACK, which is promised before a buffer is told anything.
const PROMISED: usize = 65_535;

struct World {
    server: Stack,
    client: Stack,
    near: TcpStream,
    far: TcpStream,
}

/// Both buffers of a connection are told their size before there is one: the sender's, and the reader's.
fn world(send: Option<usize>, receive: Option<usize>) -> World {
    let (server, client) = stacks();
    let listens = TcpSocket::new_v4_on(&server);
    receive.into_iter().for_each(|size| listens.set_recv_buffer_size(size).unwrap());
    let listener = listens.listen(8).unwrap();
    let connects = TcpSocket::new_v4_on(&client);
    send.into_iter().for_each(|size| connects.set_send_buffer_size(size).unwrap());
    let port = listener.local_addr().unwrap().port();
    let near = connects.connect(([10, 0, 0, 1], port).into()).unwrap();
    let (far, _) = listener.accept().unwrap();
    World { server, client, near, far }
}

impl World {
    /// Writes until nothing more is taken, of which nothing is read.
    fn fill(&self) -> usize {
        self.near.set_nonblocking(true).unwrap();
        let (mut all, mut refused) = (0, 0);
        while refused < 2 {
            match (&self.near).write(&[7; 1_000]) {
                Ok(n) => (all, refused) = (all + n, 0),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    refused += 1;
                    rounds([&self.client, &self.server]);
                    thread::sleep(Duration::from_millis(250)); // what a silly window holds back leaves
                }
            }
        }
        self.near.set_nonblocking(false).unwrap();
        all
    }

    fn read(&self, n: usize) {
        (&self.far).read_exact(&mut vec![0; n]).unwrap();
    }
}

#[test]
fn no_more_waits_than_four_buffers_of_that_size() {
    let small = world(Some(SMALL), Some(SMALL));
    let all = small.fill();
    assert!((2 * SMALL..=3 * SMALL + PROMISED).contains(&all), "{all}");
    small.read(all);
    let again = small.fill();
    assert!((2 * SMALL..=4 * SMALL).contains(&again), "{again} when the promise had been kept");
    let usual = world(None, None).fill();
    assert!(usual > 10 * all, "{usual} in those that were told nothing");
}

#[test]
fn who_writes_slowly_waits_for_little() {
    let world = world(Some(2_304), None);
    assert_eq!(world.near.send_buffer_size().unwrap(), 4_608);
    let writer = thread::spawn({
        let near = world.near.try_clone().unwrap();
        move || (&near).write_all(&vec![7; 1_000_000])
    });
    world.read(1_000_000);
    writer.join().unwrap().unwrap();
}

/// Whether it does, once there is more room, as a poller has it. Before that it is not.
fn becomes_writable(stream: &TcpStream, larger: impl FnOnce()) -> bool {
    let poller = Poller::new().unwrap();
    poller.add(stream, 7, Interest::WRITABLE, Mode::Edge).unwrap();
    let mut events: Vec<Event> = Vec::new();
    poller.wait(&mut events, Some(Duration::from_millis(100))).unwrap();
    assert!(events.iter().all(|event| !event.writable), "there is no room");
    larger();
    poller.wait(&mut events, Some(Duration::from_secs(10))).unwrap();
    events.iter().any(|event| event.writable)
}

fn a_poller_hears_of(larger: impl Fn(&World)) {
    let world = world(Some(SMALL), Some(SMALL));
    world.fill();
    assert!(becomes_writable(&world.near, || larger(&world)));
    let more = world.fill();
    assert!(more > LARGE - SMALL, "{more}");
}

#[test]
fn a_poller_hears_of_a_larger_buffer_to_send_from() {
    a_poller_hears_of(|world| world.near.set_send_buffer_size(LARGE).unwrap());
}

#[test]
fn a_poller_hears_of_a_larger_buffer_of_its_peer() {
    a_poller_hears_of(|world| world.far.set_recv_buffer_size(LARGE).unwrap());
}

#[test]
fn a_write_that_waits_goes_on_in_a_larger_buffer() {
    for of_reader in [false, true] {
        let world = world(Some(SMALL), Some(SMALL));
        world.fill();
        let writer = thread::spawn({
            let near = world.near.try_clone().unwrap();
            move || (&near).write(&vec![7; LARGE / 2])
        });
        thread::sleep(Duration::from_millis(100));
        assert!(!writer.is_finished());
        match of_reader {
            true => world.far.set_recv_buffer_size(LARGE).unwrap(),
            false => world.near.set_send_buffer_size(LARGE).unwrap(),
        }
        assert_eq!(writer.join().unwrap().unwrap(), LARGE / 2);
    }
}

/// What waits beyond a smaller one stays, and all of it arrives.
#[test]
fn a_smaller_buffer_loses_nothing() {
    let world = world(None, None);
    let all = world.fill();
    world.near.set_send_buffer_size(SMALL).unwrap();
    world.far.set_recv_buffer_size(SMALL).unwrap();
    assert_eq!(world.fill(), 0);
    world.read(all);
    let again = world.fill();
    assert!((2 * SMALL..=4 * SMALL).contains(&again), "{again}");
    world.read(again);
}

/// Of what was filled, as much as was neither taken by the peer's end nor is under way.
fn unsent(world: &World) -> usize {
    world.near.info().unwrap().notsent_bytes as usize
}

#[test]
fn so_much_is_unsent_and_no_more_where_nothing_is_read() {
    const LOWAT: usize = 40_000;
    let unbounded = world(None, Some(SMALL));
    let all = unbounded.fill();
    assert!(unsent(&unbounded) > 2 * LOWAT);
    let bounded = world(None, Some(SMALL));
    bounded.near.set_tcp_notsent_lowat(LOWAT as u32).unwrap();
    let less = bounded.fill();
    // Half of it, with its connection: the other half waits to be taken.
    let with_connection = unsent(&bounded);
    assert!((LOWAT / 2 - 2_000..=LOWAT / 2).contains(&with_connection), "{with_connection}");
    assert!((LOWAT..=LOWAT + PROMISED + 2 * SMALL).contains(&less) && less < all, "{less} of {all}");
    bounded.read(less);
    // Whoever waits for room hears of it when the bound goes.
    bounded.fill();
    assert!(becomes_writable(&bounded.near, || bounded.near.set_tcp_notsent_lowat(0).unwrap()));
    assert!(bounded.fill() > 2 * LOWAT);
}

/// However little may be unsent, what is written arrives, and nobody waits for a timer: each wait of a delayed acknowledgement or a probe would be 40 ms or more.
#[test]
fn who_may_have_little_unsent_is_told_of_room_as_soon_as_there_is_some() {
    const MUCH: usize = 4_000_000;
    for lowat in [1, 5_000, 100_000, u32::MAX] {
        let world = world(None, None);
        world.near.set_tcp_notsent_lowat(lowat).unwrap();
        let began = Instant::now();
        let writer = thread::spawn({
            let near = world.near.try_clone().unwrap();
            move || (&near).write_all(&vec![7; MUCH])
        });
        world.read(MUCH);
        writer.join().unwrap().unwrap();
        let took = began.elapsed();
        assert!(took < Duration::from_secs(20), "{MUCH} bytes took {took:?} with {lowat}");
    }
}
