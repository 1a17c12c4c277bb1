//! Conversations for which there is no memory, because others hold all of it: stepped in one thread. Once the others let go of it, nothing
//! else happens to those who wait, neither a segment nor a call, and yet they go on. And who holds how much of it, when all is quiet.

use laneway_device::memory::{LinkConfig, link};
use laneway_proto::time::Instant;
use laneway_stack::app::{App, ConnId, Context};
use laneway_stack::config::Config;
use laneway_stack::control::Network;
use laneway_stack::entropy::BootSecrets;
use laneway_stack::host::Host;
use laneway_stack::runtime::Bells;
use laneway_stack::threads::desk::Desk;
use laneway_stack::threads::words::{CONNECTED, Fault, GONE, Op, ROOM, Talk, WRITE};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

/// Of each size of block a lane may hold so much here: one large, 16 of a page, 256 small ones.
const POOL: usize = 65_536;
/// And beside them in reserve, to show what has come when nothing else is left: one of a page. And one to write to.
const RESERVE: usize = POOL / 16;
/// More than that.
const MUCH: usize = 4 * POOL;
const LITTLE: usize = 1_000;
/// In the place of what is sent: a reset.
const RESET: usize = usize::MAX;

/// Sends the first who come, or say something, so much each, and forgets what it reads.
struct Far {
    gifts: VecDeque<usize>,
    left: Vec<(ConnId, usize)>,
}

impl Far {
    fn go_on(&mut self, cx: &mut Context<'_>) {
        for (id, left) in &mut self.left {
            while *left > 0 {
                match cx.send(*id, &[7; 4_096][..(*left).min(4_096)]) {
                    0 => break,
                    n => *left -= n,
                }
            }
        }
    }
}

impl App for Far {
    fn on_accept(&mut self, cx: &mut Context<'_>, id: ConnId) {
        match self.gifts.pop_front().unwrap_or(0) {
            RESET => return cx.abort(id),
            gift => self.left.push((id, gift)),
        }
        self.go_on(cx);
    }
    fn on_writable(&mut self, cx: &mut Context<'_>, _: ConnId) {
        self.go_on(cx);
    }
    fn on_data(&mut self, cx: &mut Context<'_>, id: ConnId, data: &[u8]) -> usize {
        self.on_accept(cx, id);
        data.len()
    }
}

/// What lets both stacks run for so many milliseconds, or for one turn if that is 0, and says in how many turns the near one was busy; and
/// the desk of that one.
fn world(gifts: &[usize]) -> (impl FnMut(u64) -> usize + use<>, Arc<Desk>) {
    let mut now = Instant::from_us(3_600_000_000);
    let (first, second) = link(LinkConfig::default());
    let network = |ip: &str| Network { addresses: vec![ip.parse().unwrap()], gateways: vec![] };
    let secrets = BootSecrets::from_seed;
    let far = |_| Far { gifts: gifts.iter().copied().collect(), left: Vec::new() };
    let mut far =
        Host::<_, _, _>::new(Config::default(), &network("10.0.0.1/24"), &secrets(1), first, now, far).unwrap();
    far.listen("0.0.0.0:80".parse().unwrap(), 16, now).unwrap();
    let (desk, servers) = Desk::with_pool(1, Bells::new(1).unwrap(), POOL);
    let mut servers = servers.into_iter();
    // TCP itself has room for all that is sent: what does not go on waits for blocks, and for nothing else.
    let mut config = Config::default();
    config.tcp.tcp_rmem = (1 << 20, 1 << 20);
    let app = |_| servers.next().unwrap();
    let mut near = Host::<_, _, _>::new(config, &network("10.0.0.2/24"), &secrets(2), second, now, app).unwrap();
    let mut run = move |ms: u64| {
        let mut busy = 0;
        for _ in 0..(ms * 10).max(1) {
            now = now.after_us(100);
            busy += usize::from(near.turn(now).busy);
            far.turn(now);
        }
        busy
    };
    run(1);
    (run, desk)
}

fn connected(desk: &Desk, run: &mut impl FnMut(u64) -> usize) -> Talk {
    let talk = desk.connect("10.0.0.1:80".parse().unwrap());
    run(5);
    assert_ne!(talk.lane().status.load(Acquire) & CONNECTED, 0);
    talk
}

/// Reads until nothing has come for a while.
fn read_all(desk: &Desk, talk: &Talk, run: &mut impl FnMut(u64) -> usize) -> usize {
    let (mut all, mut some) = (0, vec![0; POOL]);
    for _ in 0..100 {
        match talk.recv(&mut some) {
            0 => _ = run(1),
            n => {
                all += n;
                desk.serve(talk);
            }
        }
    }
    all
}

/// Two conversations, of which the first holds all blocks but the reserve; so much comes for the second.
fn famine(gift: usize) -> (impl FnMut(u64) -> usize + use<>, Arc<Desk>, [Talk; 2]) {
    let (mut run, desk) = world(&[MUCH, gift]);
    let first = connected(&desk, &mut run);
    run(50);
    assert!(first.readable() < MUCH && desk.block_bytes_in_use() == 3 * POOL, "the first holds all blocks");
    let second = connected(&desk, &mut run);
    (run, desk, [first, second])
}

/// One that is refused nothing but what another has: the block in reserve to write to. Its lane is not told of what lies in it.
fn holds_what_is_to_write_to(desk: &Desk, run: &mut impl FnMut(u64) -> usize) -> Talk {
    let talk = connected(desk, run);
    assert_eq!(talk.send(&[7; POOL]), RESERVE);
    talk
}

/// As a write does that does not wait.
fn asks_for_room(desk: &Desk, talk: &Talk) {
    assert_eq!(talk.send(b"x"), 0, "there is no block for a byte");
    talk.flags().want(WRITE | ROOM);
    desk.serve(talk);
}

#[test]
fn what_has_come_is_shown_when_there_is_memory_again() {
    let (mut run, desk, [first, second]) = famine(RESERVE + LITTLE);
    run(500);
    assert_eq!(second.readable(), RESERVE, "there is no block for the rest of what has come");
    assert_eq!(read_all(&desk, &first, &mut run), MUCH);
    assert_eq!(second.readable(), RESERVE + LITTLE);
}

#[test]
fn who_would_write_is_told_when_there_is_memory_again() {
    let (mut run, desk, [first, second]) = famine(0);
    let _third = holds_what_is_to_write_to(&desk, &mut run);
    asks_for_room(&desk, &second);
    run(500);
    assert_ne!(second.flags().get(WRITE), 0, "nobody says that there is memory before there is");
    assert_eq!(read_all(&desk, &first, &mut run), MUCH);
    assert_eq!(second.flags().get(WRITE), 0, "it was told");
    assert_eq!(second.send(b"x"), 1);
}

/// The lane looks at one who has just said something without being told again. Asking for memory is saying something, too.
#[test]
fn who_asks_for_memory_in_the_turn_after_another_word_is_heard() {
    let (mut run, desk, [first, second]) = famine(0);
    let _third = holds_what_is_to_write_to(&desk, &mut run);
    desk.note(&second, Op::Nodelay(true));
    run(0);
    asks_for_room(&desk, &second);
    run(500);
    assert_eq!(read_all(&desk, &first, &mut run), MUCH);
    assert_eq!(second.flags().get(WRITE), 0, "it was told");
}

/// Who is refused again and again says nothing by that: what it does not use goes back all the same, and may be all that there is.
#[test]
fn who_waits_for_memory_gives_back_what_it_does_not_use() {
    let small = 256;
    let (mut run, desk) = world(&[3 * POOL - small, 0, RESERVE, LITTLE]);
    let first = connected(&desk, &mut run);
    run(50);
    assert_eq!((first.readable(), desk.block_bytes_in_use()), (3 * POOL - small, 3 * POOL - small));
    let second = connected(&desk, &mut run);
    assert_eq!(second.send(b"x"), 1, "in the last block");
    let third = connected(&desk, &mut run);
    assert_eq!((third.readable(), desk.block_bytes_in_use()), (RESERVE, 3 * POOL + RESERVE));
    desk.serve(&second);
    run(5);
    let all = (second.readable(), desk.block_bytes_in_use());
    assert_eq!(all, (0, 3 * POOL + RESERVE), "the last block was for what it said");
    run(500);
    assert_eq!(second.readable(), small, "nobody needs that block but the answer");
}

/// What was written to a peer that is not there, or that resets, will never be sent. Its writer may be long in finding out, and others need
/// the memory: as the kernel has it, what waits to be sent goes with the connection.
#[test]
fn what_nobody_will_send_any_more_holds_no_memory() {
    // A word, which the ring would lend for a moment; and a stream, which it keeps until it is acknowledged.
    for (port, bytes, fault) in [(81, 40_000, Fault::Refused), (80, 150_000, Fault::Reset)] {
        let (mut run, desk) = world(&[RESET]);
        let talk = desk.connect(SocketAddr::from(([10, 0, 0, 1], port)));
        assert_eq!(talk.send(&vec![7; bytes]), bytes);
        assert!(desk.block_bytes_in_use() >= bytes);
        desk.serve(&talk);
        run(50);
        assert_ne!(talk.lane().status.load(Acquire) & GONE, 0);
        assert_eq!(talk.lane().take_error(), Some(fault));
        assert_eq!(desk.block_bytes_in_use(), 0, "of {bytes} bytes");
    }
}

/// The lane tries again once in a while, and does not stay awake for it: nor for those that it looks at without being told.
#[test]
fn a_lane_that_has_no_memory_for_anybody_sleeps() {
    let (mut run, desk, [_first, second]) = famine(RESERVE + LITTLE);
    run(20);
    desk.note(&second, Op::Nodelay(true));
    run(20);
    let busy = run(1_000);
    assert!(busy < 1_000, "busy in {busy} turns of 10000");
}

/// One after the other has the reserve, although no other block is ever free: for whom something has come goes on when it is, and who would
/// write is not told.
#[test]
fn what_has_come_goes_on_in_the_reserve() {
    let (mut run, desk) = world(&[MUCH, 10 * RESERVE, 10 * RESERVE]);
    let _first = connected(&desk, &mut run);
    run(50);
    let [second, third] = [(); 2].map(|()| connected(&desk, &mut run));
    run(500);
    assert_eq!((second.readable(), third.readable()), (RESERVE, 0), "there is one block for both");
    let _fourth = holds_what_is_to_write_to(&desk, &mut run);
    asks_for_room(&desk, &second);
    assert_eq!(read_all(&desk, &second, &mut run), 10 * RESERVE);
    assert_eq!(read_all(&desk, &third, &mut run), 10 * RESERVE);
    run(500);
    assert_ne!(second.flags().get(WRITE), 0, "it is not for what is written");
    assert_eq!(desk.block_bytes_in_use(), 3 * POOL + RESERVE);
}

/// What has come and is not read holds everything, the lane's reserve too, and those who are to read it write first. One after the other has
/// what is in reserve for that, although no other block is ever free; and who is refused does nothing before he is told.
#[test]
fn what_is_written_goes_on_in_its_own_reserve() {
    let (mut run, desk) = world(&[MUCH, 10 * RESERVE]);
    let first = connected(&desk, &mut run);
    run(50);
    let all: Vec<_> = (0..5).map(|_| connected(&desk, &mut run)).collect();
    run(500);
    assert_eq!((all[0].readable(), desk.block_bytes_in_use()), (RESERVE, 3 * POOL + RESERVE));
    let mut writers: Vec<_> = all.iter().map(|talk| (talk, 10 * RESERVE)).collect();
    let mut most = 0;
    for _ in 0..2_000 {
        for (talk, left) in &mut writers {
            if *left == 0 || talk.flags().get(WRITE) != 0 {
                continue;
            }
            let mut n = talk.send(&[7; 10 * RESERVE][..*left]);
            if n == 0 {
                talk.flags().want(WRITE | ROOM);
                n = talk.send(&[7; 10 * RESERVE][..*left]);
            }
            *left -= n;
            desk.serve(talk);
        }
        most = most.max(desk.block_bytes_in_use());
        run(1);
    }
    assert_eq!(writers.iter().map(|(_, left)| *left).collect::<Vec<_>>(), [0; 5], "are left to be written");
    assert_eq!((first.readable() / RESERVE, most), (3 * POOL / RESERVE, 3 * POOL + 2 * RESERVE), "nobody has read");
    run(500);
    assert_eq!(desk.block_bytes_in_use(), 3 * POOL + RESERVE, "and it went back");
}

/// What nobody uses goes back, and what the next word will need not at once.
#[test]
fn a_word_keeps_its_block_for_a_while_and_a_speech_does_not() {
    let (mut run, desk) = world(&[0]);
    let talk = connected(&desk, &mut run);
    let mut says = |bytes: &[u8], ms: u64| {
        assert_eq!(talk.send(bytes), bytes.len());
        desk.serve(&talk);
        run(ms);
        desk.block_bytes_in_use()
    };
    // Ten times a second, and then no more.
    assert_eq!([says(b"x", 100), says(b"y", 100), says(b"z", 300)], [256, 256, 0]);
    assert_eq!([says(&[7; 10_000], 2), says(&[7; 1], 2), says(&[7; 1], 20)], [65_536, 65_536, 0]);
}

/// Two hosts whose threads say more than there is memory for, at both ends of each conversation, and then hear all that comes: neither has
/// a buffer left for what the other says, and what it says itself holds every block. What is written leaves something for what is to be
/// read, or neither would go on before TCP gives up.
#[test]
fn two_that_have_written_all_their_memory_full_hear_each_other() {
    const CONVERSATIONS: usize = 40;
    let mut now = Instant::from_us(3_600_000_000);
    let (first, second) = link(LinkConfig::default());
    let mut ends = [("10.0.0.1/24", first), ("10.0.0.2/24", second)].map(|(ip, queues)| {
        let network = Network { addresses: vec![ip.parse().unwrap()], gateways: vec![] };
        let (desk, servers) = Desk::with_pool(1, Bells::new(1).unwrap(), POOL);
        let mut servers = servers.into_iter();
        let config = Config { lane_mem: 100_000, ..Config::default() };
        let secrets = BootSecrets::from_seed(1);
        let host = Host::<_, _, _>::new(config, &network, &secrets, queues, now, |_| servers.next().unwrap()).unwrap();
        (host, desk)
    });
    let id = ends[0].0.listen("10.0.0.1:80".parse().unwrap(), CONVERSATIONS, now).unwrap();
    let listener = ends[0].1.listen(id, "10.0.0.1:80".parse().unwrap(), CONVERSATIONS);
    let mut talks = [Vec::new(), Vec::new()];
    talks[1].extend((0..CONVERSATIONS).map(|_| ends[1].1.connect("10.0.0.1:80".parse().unwrap())));
    let mut run = |turns: usize| {
        for _ in 0..turns {
            now = now.after_us(100);
            ends.iter_mut().for_each(|(host, _)| _ = host.turn(now));
        }
        ends.each_ref().map(|(_, desk)| desk.clone())
    };
    while talks[0].len() < CONVERSATIONS {
        run(1);
        while let Some((newcomer, starved)) = listener.take() {
            starved.into_iter().for_each(|lane| run(0)[0].refill(lane, id));
            talks[0].push(newcomer.talk);
        }
    }
    // A long while in which nobody hears.
    let (mut said, mut heard) = (0, 0);
    for _ in 0..200 {
        for (talks, desk) in talks.iter().zip(run(10)) {
            for talk in talks {
                said += talk.send(&[7; 5_000]);
                desk.serve(talk);
            }
        }
    }
    let mut some = vec![0; POOL];
    for _ in 0..2_000 {
        for (talks, desk) in talks.iter().zip(run(10)) {
            for talk in talks {
                heard += talk.recv(&mut some);
                desk.serve(talk);
            }
        }
    }
    assert_eq!(heard, said, "in 2 s");
}
