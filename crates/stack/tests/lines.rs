//! A thread and its lane, stepped in one thread.
//!
//! How many cache lines that a sending thread and its lane share, those of the data aside, go from core to core for a batch of
//! sends: the two are stepped in one thread, and what stands on the lines is compared between the steps. That each step
//! touches every shared line is assumed, so what is counted is the most that can be. And that neither is forgotten, whatever the
//! order of their steps.

#[path = "lines/stream.rs"]
mod stream;

use laneway_device::memory::{LinkConfig, link};
use laneway_proto::time::Instant;
use laneway_stack::app::{App, ConnId, Context};
use laneway_stack::config::Config;
use laneway_stack::control::Network;
use laneway_stack::entropy::BootSecrets;
use laneway_stack::host::Host;
use laneway_stack::runtime::Bells;
use laneway_stack::threads::Server;
use laneway_stack::threads::desk::Desk;
use laneway_stack::threads::look_fence;
use laneway_stack::threads::words::{CONNECTED, FULL, Talk};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

const WARM_UP: usize = 64;
const BATCHES: usize = 500;
/// Bytes of the other end.
const ALL: usize = 512 << 14;

/// Reads, and forgets; and sends so many bytes.
struct Far {
    left: usize,
}

impl App for Far {
    fn on_accept(&mut self, cx: &mut Context<'_>, id: ConnId) {
        self.on_writable(cx, id);
    }
    fn on_writable(&mut self, cx: &mut Context<'_>, id: ConnId) {
        while self.left > 0 {
            match cx.send(id, &[7; 16_384][..self.left.min(16_384)]) {
                0 => break,
                n => self.left -= n,
            }
        }
    }
    fn on_data(&mut self, _: &mut Context<'_>, _: ConnId, data: &[u8]) -> usize {
        data.len()
    }
}

/// What the thread does in the middle of a turn, if anything.
type Meanwhile = Rc<RefCell<Option<Box<dyn FnMut()>>>>;

/// The lane's side of the thread's socket, with a thread that comes between two steps of a turn.
struct Near {
    server: Server,
    meanwhile: Meanwhile,
}

impl App for Near {
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        if let Some(act) = &mut *self.meanwhile.borrow_mut() {
            act();
        }
        self.server.on_poll(cx);
    }
    fn on_connect(&mut self, cx: &mut Context<'_>, id: ConnId) {
        self.server.on_connect(cx, id);
    }
    fn on_data(&mut self, cx: &mut Context<'_>, id: ConnId, data: &[u8]) -> usize {
        self.server.on_data(cx, id, data)
    }
    fn on_writable(&mut self, cx: &mut Context<'_>, id: ConnId) {
        self.server.on_writable(cx, id);
    }
    fn on_poll_end(&mut self) {
        self.server.on_poll_end();
    }
    fn is_busy(&self) -> bool {
        self.server.is_busy()
    }
}

/// A connection between a far end and a thread: what takes a turn of both lanes, and the thread's part.
fn connected(sends: usize) -> (impl FnMut(), Arc<Desk>, Talk, Meanwhile) {
    let mut now = Instant::from_us(3_600_000_000);
    let (first, second) = link(LinkConfig::default().with_offloads());
    let network = |ip: &str| Network { addresses: vec![ip.parse().unwrap()], gateways: vec![] };
    let secrets = BootSecrets::from_seed;
    let far = |_| Far { left: sends };
    let mut far =
        Host::<_, _, _>::new(Config::default(), &network("10.0.0.1/24"), &secrets(1), first, now, far).unwrap();
    far.listen("0.0.0.0:80".parse().unwrap(), 16, now).unwrap();
    let (desk, servers) = Desk::new(1, Bells::new(1).unwrap());
    let mut servers = servers.into_iter();
    let meanwhile = Meanwhile::default();
    // What TCP keeps for the thread fills its ring more than once.
    let mut config = Config::default();
    config.tcp.tcp_rmem = (1 << 20, 1 << 20);
    let app = |_| Near { server: servers.next().unwrap(), meanwhile: meanwhile.clone() };
    let mut host = Host::<_, _, _>::new(config, &network("10.0.0.2/24"), &secrets(2), second, now, app).unwrap();
    let mut turn = move || {
        now = now.after_us(20);
        host.turn(now);
        far.turn(now);
    };
    turn();
    let talk = desk.connect("10.0.0.1:80".parse().unwrap());
    (0..10).for_each(|_| turn());
    assert_ne!(talk.lane().status.load(Acquire) & CONNECTED, 0);
    (turn, desk, talk, meanwhile)
}

/// Lines for a batch of `sends` calls of `write` bytes between two turns of the lane, both ways.
fn per_batch(write: usize, sends: usize) -> f64 {
    let (mut turn, desk, talk, _) = connected(0);
    let text = vec![7; write];
    let (mut seen, mut lines) = ([desk.lines(&talk), desk.lines(&talk)], 0);
    let mut step = |side: usize, act: &mut dyn FnMut()| {
        let travelled = desk.lines(&talk).iter().zip(&seen[side]).filter(|(now, then)| now != then).count();
        act();
        seen[side] = desk.lines(&talk);
        travelled
    };
    for batch in 0..WARM_UP + BATCHES {
        let mut send = || {
            for _ in 0..sends {
                assert_eq!(talk.send(&text), write, "the lane keeps up");
                desk.serve(&talk);
            }
        };
        let travelled = step(0, &mut send) + step(1, &mut turn);
        if batch >= WARM_UP {
            lines += travelled;
        }
    }
    lines as f64 / BATCHES as f64
}

#[test]
fn a_batch_of_sends_costs_a_line_each_way() {
    // The last two do not fit the first block that a conversation is given.
    for (write, sends) in [(100, 1), (100, 8), (1_000, 8), (4_000, 12)] {
        let lines = per_batch(write, sends);
        println!("{sends} x {write} bytes: {lines} lines");
        assert!((1.0..=2.0).contains(&lines), "{sends} x {write} bytes: {lines} lines");
    }
}

/// A lane that has filled the ring waits to be told of room; the thread tells it by the list. If the lane keeps the conversation,
/// fills the ring again, and the thread reads that before it is released, the list says nothing new.
#[test]
fn who_has_read_what_there_was_is_given_more() {
    for in_the_middle in [false, true] {
        let (mut turn, desk, talk, meanwhile) = connected(ALL);
        let (reader, bytes) = (talk.clone(), Rc::new(Cell::new(0)));
        let (mut buf, read) = (vec![0; 65_536], bytes.clone());
        let mut reads = move || {
            loop {
                let n = reader.recv(&mut buf);
                if n == 0 {
                    break;
                }
                read.set(read.get() + n);
                look_fence();
                if reader.flags().get(FULL) != 0 && reader.readable() <= reader.receive_limit() / 3 * 2 {
                    desk.serve(&reader);
                }
            }
        };
        (0..1_000).for_each(|_| turn());
        assert_ne!(talk.flags().get(FULL), 0, "the ring is full");
        reads();
        if in_the_middle {
            *meanwhile.borrow_mut() = Some(Box::new(reads));
            (0..5_000).for_each(|_| turn());
        } else {
            (0..5_000).for_each(|_| {
                turn();
                reads();
            });
        }
        assert_eq!(bytes.get(), ALL, "all that the far end has sent has come");
    }
}
