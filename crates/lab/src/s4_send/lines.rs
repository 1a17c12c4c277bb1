//! Owns the count of `line_transfers_per_send`: how many cache lines go from core to core for a batch of `send()`.
//!
//! The product's path is taken step by step in one thread: the application sends, the lane has its turn, and so on. Between
//! the steps it is noted which of the lines that both sides share were written ([`Desk::lines`]: all but those of the
//! data, which must travel). A line travels when one side takes a step after the other has written it. That every step touches
//! every shared line is assumed, so what is counted is the most that can be.

use super::lane::FarRx;
use super::sender::{PORT, TO};
use super::sink::{Answers, sink};
use crate::bench::failure::Failure;
use laneway_device::{Queue, Rx, Tx};
use laneway_proto::time::Instant;
use laneway_stack::config::Config;
use laneway_stack::control::{Cidr, Network};
use laneway_stack::entropy::BootSecrets;
use laneway_stack::host::Host;
use laneway_stack::runtime::Bells;
use laneway_stack::threads::Server;
use laneway_stack::threads::desk::Desk;
use laneway_stack::threads::words::{CONNECTED, Talk};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

/// Turns in which the connection must have come about.
const TURNS_MAX: usize = 1_000;
/// Batches that are not counted: the connection's buffers and window grow.
const WARM_UP: usize = 64;
/// Batches that are counted.
const BATCHES: usize = 1_000;
/// Virtual time of a turn, in microseconds.
const TURN_US: u64 = 20;

/// One lane and one conversation, stepped by hand.
struct Steps {
    host: Host<Box<dyn Rx + Send>, Box<dyn Tx + Send>, Server>,
    desk: Arc<Desk>,
    talk: Talk,
    now: Instant,
    /// What stood on the shared lines when the application, and when the lane, had last looked.
    seen: [Vec<u64>; 2],
}

impl Steps {
    fn new(mtu: usize) -> Result<Self, Failure> {
        let (tx, far, _wire) = sink(mtu);
        let now = Instant::from_us(3_600_000_000);
        let network =
            Network { addresses: vec![Cidr { address: [10, 0, 0, 1].into(), prefix: 24 }], gateways: Vec::new() };
        let bells = Bells::new(1).map_err(|error| Failure::Machine(format!("no bell can be had: {error}")))?;
        let (desk, servers) = Desk::new(1, bells);
        let mut servers = servers.into_iter();
        let queues = vec![Queue { rx: FarRx { far, answers: Answers::default() }, tx }.boxed()];
        let mut host = Host::new(Config::default(), &network, &BootSecrets::from_seed(1), queues, now, |_| {
            servers.next().expect("one for the one lane")
        })?;
        host.turn(now);
        let talk = desk.connect(SocketAddr::new(Ipv4Addr::from(TO).into(), PORT));
        let mut steps = Steps { host, desk, talk, now, seen: [Vec::new(), Vec::new()] };
        for _ in 0..TURNS_MAX {
            steps.turn();
            if steps.talk.lane().status.load(Acquire) & CONNECTED != 0 {
                return Ok(steps);
            }
        }
        Err(Failure::Stuck("the connection to the sink does not come about".into()))
    }

    fn turn(&mut self) {
        self.now = self.now.after_us(TURN_US);
        self.host.turn(self.now);
    }

    /// Lines that were written since this side looked last; and what stands there after its step.
    fn step(&mut self, side: usize, act: impl FnOnce(&mut Self)) -> usize {
        let before = self.desk.lines(&self.talk);
        let travelled = before.iter().zip(&self.seen[side]).filter(|(now, then)| now != then).count();
        act(self);
        self.seen[side] = self.desk.lines(&self.talk);
        travelled
    }
}

/// Lines that travel for a batch of `sends` calls of `write` bytes each, between two turns of the lane: both ways, on the
/// average.
pub fn per_batch(mtu: usize, write: usize, sends: usize) -> Result<f64, Failure> {
    let mut steps = Steps::new(mtu)?;
    let text = vec![b's'; write];
    let (mut lines, mut batches) = (0, 0);
    for batch in 0..WARM_UP + BATCHES {
        let mut sent = 0;
        let mut travelled = steps.step(0, |steps| {
            for _ in 0..sends {
                let n = steps.talk.send(&text);
                if n > 0 {
                    steps.desk.serve(&steps.talk);
                }
                sent += n;
            }
        });
        travelled += steps.step(1, Steps::turn);
        if batch >= WARM_UP && sent > 0 {
            lines += travelled;
            batches += 1;
        }
    }
    if batches < BATCHES / 2 {
        return Err(Failure::Stuck(format!("only {batches} batches of {BATCHES} found room in the ring")));
    }
    Ok(lines as f64 / batches as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_of_sends_costs_a_line_each_way() {
        // The last does not fit the first block that a conversation is given.
        for (write, sends) in [(100, 1), (100, 8), (1_000, 8)] {
            let lines = per_batch(1_500, write, sends).unwrap_or_else(|error| panic!("{error}"));
            // The application's line to the lane, at the least; the lane's back, at the most.
            assert!((1.0..=2.0).contains(&lines), "{sends} x {write} bytes: {lines} lines");
        }
    }
}
