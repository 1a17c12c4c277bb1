//! A stream between two threads through two lanes, stepped in one thread: for `stream.sh`, which counts what each of the four does
//! for a mebibyte.
//!
//! `stream MEBIBYTES TURN_US` sends so many, 64 KiB at a time, over a memory link that takes super-segments, in virtual time. Where a turn
//! is so long that the path is no near one, the sending lane copies once more.

use laneway_device::memory::{LinkConfig, LinkRx, LinkTx, link};
use laneway_proto::time::Instant;
use laneway_stack::config::Config;
use laneway_stack::control::Network;
use laneway_stack::entropy::BootSecrets;
use laneway_stack::host::Host;
use laneway_stack::runtime::Bells;
use laneway_stack::threads::Server;
use laneway_stack::threads::accept::Acceptors;
use laneway_stack::threads::desk::Desk;
use laneway_stack::threads::look_fence;
use laneway_stack::threads::words::{CONNECTED, FULL, Talk};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

const CHUNK: usize = 65_536;
const WARM_UP: usize = 8 << 20;
const TURNS_MAX: usize = 1_000;

struct End {
    host: Host<LinkRx, LinkTx, Server>,
    desk: Arc<Desk>,
}

fn end(ip: &str, seed: u64, queues: Vec<laneway_device::Queue<LinkRx, LinkTx>>, now: Instant) -> End {
    let (desk, servers) = Desk::new(1, Bells::new(1).expect("a bell"));
    let mut servers = servers.into_iter();
    let network = Network { addresses: vec![ip.parse().expect("an address")], gateways: vec![] };
    let mut config = Config::default();
    // As `laneway-lab bench stream --api thread` has it.
    config.tcp.tcp_rmem = (256 << 10, 256 << 10);
    let app = |_| servers.next().expect("one for each lane");
    let host = Host::new(config, &network, &BootSecrets::from_seed(seed), queues, now, app).expect("a host");
    End { host, desk }
}

#[inline(never)]
fn counted_writer(desk: &Desk, talk: &Talk, text: &[u8]) -> usize {
    let mut sent = 0;
    loop {
        let n = talk.send(text);
        sent += n;
        if n > 0 {
            desk.serve(talk);
        }
        if n < text.len() {
            return sent;
        }
    }
}

#[inline(never)]
fn counted_sending_lane(end: &mut End, now: Instant) {
    black_box("not the same function as the next");
    end.host.turn(now);
}

#[inline(never)]
fn counted_receiving_lane(end: &mut End, now: Instant) {
    end.host.turn(now);
}

#[inline(never)]
fn counted_reader(desk: &Desk, talk: &Talk, text: &mut [u8]) -> usize {
    let mut received = 0;
    loop {
        let n = talk.recv(text);
        received += n;
        look_fence();
        if talk.flags().get(FULL) != 0 && talk.readable() <= talk.receive_limit() / 3 * 2 {
            desk.serve(talk);
        }
        if n < text.len() {
            return received;
        }
    }
}

/// The conversations of a new connection: the sender's, the receiver's.
fn introduce(near: &mut End, far: &mut End, now: &mut Instant, turn_us: u64) -> (Talk, Talk) {
    let at = "10.0.0.1:80".parse().expect("an address");
    let id = far.host.listen(at, 16, *now).expect("it listens");
    let acceptors: Arc<Acceptors> = far.desk.listen(id, at, 16);
    let sender = near.desk.connect(at);
    for _ in 0..TURNS_MAX {
        *now = now.after_us(turn_us);
        near.host.turn(*now);
        far.host.turn(*now);
        if sender.lane().status.load(Acquire) & CONNECTED != 0
            && let Some((newcomer, _)) = acceptors.take()
        {
            return (sender, newcomer.talk);
        }
    }
    panic!("the connection does not come about");
}

fn main() {
    let mut numbers = std::env::args().skip(1).map_while(|n| n.parse().ok());
    let (mebibytes, turn_us) = (numbers.next().unwrap_or(64) as usize, numbers.next().unwrap_or(20));
    let mut now = Instant::from_us(3_600_000_000);
    let (first, second) = link(LinkConfig::default().with_offloads());
    let (mut far, mut near) = (end("10.0.0.1/24", 1, first, now), end("10.0.0.2/24", 2, second, now));
    let (sender, receiver) = introduce(&mut near, &mut far, &mut now, turn_us);
    let mut text = vec![b's'; CHUNK];
    let (mut sent, mut received) = (0, 0);
    while received < WARM_UP + (mebibytes << 20) {
        now = now.after_us(turn_us);
        sent += counted_writer(&near.desk, &sender, &text);
        counted_sending_lane(&mut near, now);
        counted_receiving_lane(&mut far, now);
        received += counted_reader(&far.desk, &receiver, &mut text);
    }
    println!("mebibytes {}", received >> 20);
    assert!(sent >= received, "more has come than was sent");
}
