//! How many cache lines that a sending thread and its lane share, those of the data aside, go from core to core for a batch of
//! sends: the two are stepped in one thread, and what stands on the lines is compared between the steps. That each step
//! touches every shared line is assumed, so what is counted is the most that can be.

use laneway_device::memory::{LinkConfig, link};
use laneway_proto::time::Instant;
use laneway_stack::app::{App, ConnId, Context};
use laneway_stack::config::Config;
use laneway_stack::control::Network;
use laneway_stack::entropy::BootSecrets;
use laneway_stack::host::Host;
use laneway_stack::runtime::Bells;
use laneway_stack::threads::desk::Desk;
use laneway_stack::threads::words::CONNECTED;
use std::sync::atomic::Ordering::Acquire;

const WARM_UP: usize = 64;
const BATCHES: usize = 500;

/// Reads, and forgets.
struct Sink;

impl App for Sink {
    fn on_data(&mut self, _: &mut Context<'_>, _: ConnId, data: &[u8]) -> usize {
        data.len()
    }
}

/// Lines for a batch of `sends` calls of `write` bytes between two turns of the lane, both ways.
fn per_batch(write: usize, sends: usize) -> f64 {
    let mut now = Instant::from_us(3_600_000_000);
    let (first, second) = link(LinkConfig::default().with_offloads());
    let network = |ip: &str| Network { addresses: vec![ip.parse().unwrap()], gateways: vec![] };
    let secrets = BootSecrets::from_seed;
    let mut sink =
        Host::<_, _, _>::new(Config::default(), &network("10.0.0.1/24"), &secrets(1), first, now, |_| Sink).unwrap();
    sink.listen("0.0.0.0:80".parse().unwrap(), 16, now).unwrap();
    let (desk, servers) = Desk::new(1, Bells::new(1).unwrap());
    let mut servers = servers.into_iter();
    let app = |_| servers.next().unwrap();
    let mut host =
        Host::<_, _, _>::new(Config::default(), &network("10.0.0.2/24"), &secrets(2), second, now, app).unwrap();
    let mut turn = || {
        now = now.after_us(20);
        host.turn(now);
        sink.turn(now);
    };
    turn();
    let talk = desk.connect(None, "10.0.0.1:80".parse().unwrap());
    (0..10).for_each(|_| turn());
    assert_ne!(talk.lane().status.load(Acquire) & CONNECTED, 0);
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
