//! A stream that is sent out of its conversation's ring: what its thread has sent arrives whole and in order whatever the network
//! does to it, each way of ending is an end, and then the ring's memory is free.

use laneway_device::fault::{FaultConfig, Rates, wrap};
use laneway_device::memory::{LinkConfig, link};
use laneway_device::{Rx, Tx};
use laneway_proto::tcp::CloseReason;
use laneway_proto::time::Instant;
use laneway_stack::app::{App, ConnId, Context};
use laneway_stack::config::Config;
use laneway_stack::control::Network;
use laneway_stack::entropy::BootSecrets;
use laneway_stack::host::Host;
use laneway_stack::runtime::Bells;
use laneway_stack::threads::desk::Desk;
use laneway_stack::threads::look_fence;
use laneway_stack::threads::words::{CONNECTED, GONE, Op, Talk, WRITE};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

/// A turn on a short path, where the ring keeps what is sent; and on one so long that the ring is given back before.
const NEAR_US: u64 = 20;
const FAR_US: u64 = 2_000;
/// Bytes of a stream, some rings full.
const ALL: usize = 2 << 20;
/// Turns after which something must have happened.
const TURNS_MAX: usize = 400_000;

fn byte(position: usize) -> u8 {
    (position ^ position >> 8 ^ position >> 16) as u8
}

/// What the far end has heard.
#[derive(Default)]
struct Heard {
    bytes: usize,
    ended: bool,
    closed: Option<CloseReason>,
}

/// The far end: compares, and now and then does not listen.
struct Far {
    heard: Rc<RefCell<Heard>>,
    /// After so many polls it stops listening, and begins again.
    pauses: Option<u32>,
    polls: u32,
    /// After so many bytes it ends the connection with a reset.
    resets_at: usize,
    connection: Option<ConnId>,
}

impl Far {
    fn is_pausing(&self) -> bool {
        self.pauses.is_some_and(|pauses| self.polls / pauses % 2 == 1)
    }
}

impl App for Far {
    fn on_accept(&mut self, _: &mut Context<'_>, id: ConnId) {
        self.connection = Some(id);
    }
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        self.polls += 1;
        if let Some(id) = self.connection
            && !self.is_pausing()
        {
            cx.resume(id);
        }
    }
    fn on_data(&mut self, cx: &mut Context<'_>, id: ConnId, data: &[u8]) -> usize {
        if self.is_pausing() {
            return 0;
        }
        let mut heard = self.heard.borrow_mut();
        for (i, found) in data.iter().enumerate() {
            assert_eq!(*found, byte(heard.bytes + i), "byte {} of the stream", heard.bytes + i);
        }
        heard.bytes += data.len();
        if heard.bytes >= self.resets_at {
            cx.abort(id);
        }
        data.len()
    }
    fn on_peer_closed(&mut self, cx: &mut Context<'_>, id: ConnId) {
        self.heard.borrow_mut().ended = true;
        cx.close(id);
    }
    fn on_closed(&mut self, _: &mut Context<'_>, _: ConnId, _: u64, reason: CloseReason) {
        self.connection = None;
        self.heard.borrow_mut().closed = Some(reason);
    }
    fn is_busy(&self) -> bool {
        self.connection.is_some() && self.pauses.is_some()
    }
}

type Any = Host<Box<dyn Rx + Send>, Box<dyn Tx + Send>, Box<dyn App>>;

/// Two hosts, and the thread of the first, which has a conversation with the second.
struct World {
    near: Any,
    far: Any,
    now: Instant,
    turn_us: u64,
    desk: Arc<Desk>,
    talk: Talk,
    heard: Rc<RefCell<Heard>>,
    dice: u64,
    sent: usize,
    /// It sleeps until it is told of room: what its event said before.
    sleeps: Option<u32>,
}

/// How bad the network is, and the far end.
#[derive(Clone, Copy)]
struct Bad {
    rates: Rates,
    turn_us: u64,
    pauses: Option<u32>,
    resets_at: usize,
}

const GOOD: Bad = Bad {
    rates: Rates { loss_ppm: 0, duplicate_ppm: 0, reorder_ppm: 0, corrupt_ppm: 0, mark_ppm: 0 },
    turn_us: NEAR_US,
    pauses: None,
    resets_at: usize::MAX,
};

impl World {
    fn new(bad: Bad, seed: u64) -> World {
        let now = Instant::from_us(3_600_000_000);
        let (first, second) = link(LinkConfig::default().with_offloads());
        let faults = FaultConfig { rx: bad.rates, tx: bad.rates };
        let first = first.into_iter().map(|queue| wrap(queue, faults, seed).boxed()).collect();
        let second = second.into_iter().map(|queue| queue.boxed()).collect();
        let network = |ip: &str| Network { addresses: vec![ip.parse().unwrap()], gateways: vec![] };
        let secrets = BootSecrets::from_seed;
        let heard = Rc::new(RefCell::new(Heard::default()));
        let end = |_| -> Box<dyn App> {
            let heard = heard.clone();
            Box::new(Far { heard, pauses: bad.pauses, polls: 0, resets_at: bad.resets_at, connection: None })
        };
        let mut far = Any::new(Config::default(), &network("10.0.0.1/24"), &secrets(1), second, now, end).unwrap();
        far.listen("0.0.0.0:80".parse().unwrap(), 16, now).unwrap();
        let (desk, servers) = Desk::new(1, Bells::new(1).unwrap());
        let mut servers = servers.into_iter();
        let app = |_| -> Box<dyn App> { Box::new(servers.next().unwrap()) };
        let near = Any::new(Config::default(), &network("10.0.0.2/24"), &secrets(2), first, now, app).unwrap();
        let talk = desk.connect("10.0.0.1:80".parse().unwrap());
        let mut world =
            World { near, far, now, turn_us: bad.turn_us, desk, talk, heard, dice: seed, sent: 0, sleeps: None };
        world.until("it is connected", |world| world.talk.lane().status.load(Acquire) & (CONNECTED | GONE) != 0);
        assert_ne!(world.talk.lane().status.load(Acquire) & CONNECTED, 0);
        world
    }

    /// A turn of both hosts. If nothing came of it, time goes on to what is due next.
    fn turn(&mut self) {
        let [near, far] = [self.near.turn(self.now), self.far.turn(self.now)];
        let next = self.now.after_us(self.turn_us);
        let is_idle = near.frames + far.frames == 0 && !near.busy && !far.busy;
        let due = near.deadline.min(far.deadline);
        self.now = if is_idle && due != Instant::NEVER { next.max(due) } else { next };
    }

    fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut World) -> bool) {
        for _ in 0..TURNS_MAX {
            if is_so(self) {
                return;
            }
            self.turn();
        }
        panic!("{what}: not after {TURNS_MAX} turns; {} of {} bytes were heard", self.heard.borrow().bytes, self.sent);
    }

    fn below(&mut self, bound: usize) -> usize {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.dice >> 33) as usize % bound
    }

    /// What the thread does between two turns: it sends until the ring is full, and then sleeps until it is told of room.
    fn send(&mut self, all: usize) {
        if let Some(seen) = self.sleeps {
            if self.talk.lane().event.now() == seen {
                return;
            }
            self.sleeps = None;
        }
        while self.sent < all {
            let len = (1 + self.below(150_000)).min(all - self.sent);
            let text: Vec<u8> = (self.sent..self.sent + len).map(byte).collect();
            let n = self.talk.send(&text);
            self.sent += n;
            if n > 0 {
                self.desk.serve(&self.talk);
            }
            if n < len {
                let seen = self.talk.lane().event.now();
                self.talk.flags().want(WRITE);
                look_fence();
                if self.talk.writable() < self.talk.send_limit() / 3 {
                    self.sleeps = Some(seen);
                    return;
                }
            }
            if self.below(4) == 0 {
                return;
            }
        }
    }

    /// Everything has ended: nothing of the conversation is left anywhere.
    fn is_over(&mut self) {
        self.until("the conversation is over", |world| world.talk.lane().status.load(Acquire) & GONE != 0);
        self.until("its memory is free", |world| world.talk.holders() == 1);
        let (desk, talk) = (self.desk.clone(), self.talk.clone());
        self.talk = desk.connect("10.0.0.9:9".parse().unwrap()); // another one
        drop(talk);
        assert_eq!(desk.block_bytes_in_use(), 0, "its blocks have gone home");
    }
}

fn seeds() -> impl Iterator<Item = u64> {
    let seeds = std::env::var("STREAM_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(12);
    1..=seeds
}

/// Worse with each seed, near and far in turn.
fn bad(seed: u64) -> Bad {
    let ppm = (seed % 6) as u32 * 6_000;
    Bad {
        rates: Rates { loss_ppm: ppm, duplicate_ppm: ppm / 2, reorder_ppm: ppm, corrupt_ppm: ppm / 8, mark_ppm: 0 },
        turn_us: if seed.is_multiple_of(3) { FAR_US } else { NEAR_US },
        pauses: seed.is_multiple_of(2).then_some(50 + seed as u32),
        ..GOOD
    }
}

#[test]
fn a_near_stream_stays_in_its_ring_until_it_is_acknowledged() {
    let mut world = World::new(GOOD, 1);
    let limit = world.talk.send_limit();
    let text: Vec<u8> = (0..100_000).map(byte).collect();
    assert_eq!(world.talk.send(&text), text.len());
    world.desk.serve(&world.talk);
    for _ in 0..5 {
        world.near.turn(world.now);
    }
    assert_eq!(world.talk.writable(), limit - text.len(), "it was sent, and nobody has said that it has come");
    world.until("it has come", |world| world.heard.borrow().bytes == 100_000 && world.talk.writable() == limit);
}

#[test]
fn a_far_stream_and_short_words_are_copied() {
    for (turn_us, len) in [(FAR_US, 100_000), (NEAR_US, 1_000)] {
        let mut world = World::new(Bad { turn_us, ..GOOD }, 1);
        let text: Vec<u8> = (0..len).map(byte).collect();
        assert_eq!(world.talk.send(&text), text.len());
        world.desk.serve(&world.talk);
        world.near.turn(world.now);
        assert_eq!(world.talk.writable(), world.talk.send_limit(), "the ring is free at once");
        world.until("it has come", |world| world.heard.borrow().bytes == len);
    }
}

#[test]
fn what_was_sent_before_a_close_arrives() {
    for seed in seeds() {
        let mut world = World::new(bad(seed), seed);
        world.until("all is sent", |world| {
            world.send(ALL);
            world.sent == ALL
        });
        assert!(world.desk.note(&world.talk, Op::Close), "it closes behind bytes that nobody has acknowledged");
        world.until("the far end has seen the end", |world| world.heard.borrow().ended);
        assert_eq!(world.heard.borrow().bytes, ALL, "seed {seed}");
        world.is_over();
    }
}

#[test]
fn a_reset_by_either_end_frees_what_was_not_acknowledged() {
    for seed in seeds() {
        let most = 300_000 + 1_000 * seed as usize;
        let mut world = World::new(Bad { resets_at: most, ..bad(seed) }, seed);
        world.until("the far end has reset it", |world| {
            world.send(usize::MAX);
            world.talk.lane().status.load(Acquire) & GONE != 0
        });
        assert!(world.heard.borrow().bytes >= most);
        world.is_over();

        let mut world = World::new(bad(seed), seed);
        world.until("much is sent", |world| {
            world.send(usize::MAX);
            world.heard.borrow().bytes >= most
        });
        world.desk.note(&world.talk, Op::Abort);
        world.is_over();
    }
}

#[test]
fn who_leaves_a_dead_path_leaves_nothing_behind() {
    for turn_us in [NEAR_US, FAR_US] {
        let mut world = World::new(Bad { turn_us, ..GOOD }, 7);
        world.until("much is sent", |world| {
            world.send(usize::MAX);
            world.heard.borrow().bytes >= 1 << 20
        });
        // Nobody is there any more. The thread sends what there is room for, and leaves.
        world.send(usize::MAX);
        world.desk.note(&world.talk, Op::Close);
        let mut turns = 0;
        while world.talk.holders() > 1 {
            let turn = world.near.turn(world.now);
            let next = world.now.after_us(turn_us);
            world.now = if turn.busy || turn.deadline == Instant::NEVER { next } else { next.max(turn.deadline) };
            turns += 1;
            assert!(turns < TURNS_MAX, "it is never given up");
        }
        assert!(world.heard.borrow().closed.is_none(), "the far end has not had a turn");
        world.is_over();
    }
}
