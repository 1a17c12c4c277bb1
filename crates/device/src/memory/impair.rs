//! A bad network between two hosts: delay, a bottleneck, loss, reordering, duplication, damage. Deterministic by seed.
//!
//! It is a node in the middle of two links, holds the frames that are under way, and has no clock: [`Impair::step`] is told the time, and
//! [`Impair::next_us`] says when to step again. Weeks of virtual time cost what their frames cost.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::link::{LinkConfig, LinkQueue, LinkRx, LinkTx, link};
use super::offload;
use crate::chance::{Dice, Rates};
use crate::fault::mark;
use crate::{BATCH_MAX, Capabilities, Queue, Rx, Tx, TxMeta};

/// What one direction does to frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Impairments {
    /// Loss, duplication, reordering, damage.
    pub rates: Rates,
    /// How long a frame is under way, in microseconds.
    pub delay_us: u64,
    /// Up to this much longer, evenly distributed, without changing the order.
    pub jitter_us: u64,
    /// How much longer a reordered frame is under way, in microseconds.
    pub reorder_us: u64,
    /// Speed of the bottleneck in bits a second; 0: none.
    pub rate_bps: u64,
    /// What may wait before the bottleneck, in bytes; more is lost (tail drop).
    pub queue_bytes: u64,
}

impl Default for Impairments {
    /// A perfect link, which reorders by a millisecond if it is told to reorder, and queues a quarter of a MiB if it is given a rate.
    fn default() -> Self {
        Impairments {
            rates: Rates::default(),
            delay_us: 0,
            jitter_us: 0,
            reorder_us: 1000,
            rate_bps: 0,
            queue_bytes: 1 << 18,
        }
    }
}

/// What has happened in one direction so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImpairCounters {
    /// Frames that were passed on, copies included.
    pub delivered: u64,
    /// Frames lost by chance.
    pub lost: u64,
    /// Frames lost because the bottleneck's queue, or all that may be held, was full, or because they are longer than the next link carries.
    pub overflowed: u64,
    /// Frames that were doubled.
    pub duplicated: u64,
    /// Frames that were held back.
    pub reordered: u64,
    /// Frames with a flipped bit.
    pub corrupted: u64,
    /// Frames that were marked (ECN).
    pub marked: u64,
}

/// The most bytes that one direction holds, whatever rate and delay ask for.
const HELD_MAX: u64 = 256 << 20;

/// A node in the middle of two links.
#[derive(Debug)]
pub struct Impair<R = LinkRx, T = LinkTx> {
    ends: [Queue<R, T>; 2],
    /// `ways[0]` is from end 0 to end 1.
    ways: [Way; 2],
}

/// Two hosts with a bad network between them: `impairments[0]` is for frames from the first to the second. Offloads of the hosts end at
/// the node: it sees, and damages, what would be on the wire.
pub fn impaired_link(
    config: LinkConfig,
    impairments: [Impairments; 2],
    seed: u64,
) -> (Vec<LinkQueue>, Impair, Vec<LinkQueue>) {
    let second_queues = config.second_queues.unwrap_or(config.queues);
    // The node looks at each frame for itself.
    let wire = LinkConfig { rx_checksum: false, rx_super: false, steer_flow: [None, None], ..config };
    let [first_steer, second_steer] = wire.steer.clone();
    let [first_table, second_table] = wire.tables.clone();
    let [first_wake, second_wake] = wire.wake.clone();
    let (first, middle_first) = link(LinkConfig {
        second_queues: Some(1),
        steer: [first_steer, None],
        tables: [first_table, None],
        wake: [first_wake, None],
        ..wire.clone()
    });
    // The node itself is no host: it leaves nothing to offloads, and the second host's frames come the other way.
    let [a, b] = wire.macs;
    let (second, middle_second) = link(LinkConfig {
        queues: second_queues,
        second_queues: Some(1),
        macs: [b, a],
        steer: [second_steer, None],
        tables: [second_table, None],
        wake: [second_wake, None],
        ..wire
    });
    let only = |mut queues: Vec<LinkQueue>| queues.remove(0);
    (first, Impair::new([only(middle_first), only(middle_second)], impairments, seed), second)
}

impl<R: Rx, T: Tx> Impair<R, T> {
    /// Joins two queues; what comes in at one goes out at the other.
    pub fn new(ends: [Queue<R, T>; 2], impairments: [Impairments; 2], seed: u64) -> Self {
        let [there, back] = impairments;
        // Two sequences from one seed, so that what one direction carries does not change the other's luck.
        Impair { ends, ways: [Way::new(there, seed), Way::new(back, !seed)] }
    }

    /// Takes in what has arrived and passes on what is due. Says how many frames it moved either way.
    ///
    /// Time must not run backwards.
    pub fn step(&mut self, now_us: u64) -> usize {
        let [first, second] = &mut self.ends;
        let [there, back] = &mut self.ways;
        let taken = there.take_in(&mut first.rx, second.tx.capabilities(), now_us)
            + back.take_in(&mut second.rx, first.tx.capabilities(), now_us);
        taken + there.pass_on(&mut second.tx, now_us) + back.pass_on(&mut first.tx, now_us)
    }

    /// When the next frame is due, in microseconds; `None` if none is under way.
    ///
    /// May change with every [`Impair::step`]. A time that has passed means that the receiver was full: step again when it has polled.
    pub fn next_us(&self) -> Option<u64> {
        let due = |way: &Way| way.held.peek().map(|Reverse(frame)| frame.due_us);
        self.ways.iter().filter_map(due).min()
    }

    /// Frames under way, in both directions.
    pub fn held(&self) -> usize {
        self.ways.iter().map(|way| way.held.len()).sum()
    }

    /// What has happened so far, from the first end to the second, and back.
    pub fn counters(&self) -> [ImpairCounters; 2] {
        [self.ways[0].counters, self.ways[1].counters]
    }

    /// Changes what happens to frames that arrive from now on.
    pub fn set(&mut self, impairments: [Impairments; 2]) {
        for (way, new) in self.ways.iter_mut().zip(impairments) {
            way.impairments = new;
        }
    }
}

/// A frame under way. Ordered by when it is due, then by when it came.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    due_us: u64,
    number: u64,
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct Way {
    impairments: Impairments,
    dice: Dice,
    held: BinaryHeap<Reverse<Held>>,
    held_bytes: u64,
    /// When the bottleneck has sent all that waits before it, in nanoseconds: at 100 Gbit/s a frame takes less than a microsecond.
    busy_until_ns: u64,
    /// When the last frame in order is due.
    last_due_us: u64,
    next_number: u64,
    spare: Vec<Vec<u8>>,
    counters: ImpairCounters,
}

impl Way {
    fn new(impairments: Impairments, seed: u64) -> Self {
        Way {
            impairments,
            dice: Dice::new(seed),
            held: BinaryHeap::new(),
            held_bytes: 0,
            busy_until_ns: 0,
            last_due_us: 0,
            next_number: 0,
            spare: Vec::new(),
            counters: ImpairCounters::default(),
        }
    }

    fn take_in(&mut self, rx: &mut impl Rx, onward: &Capabilities, now_us: u64) -> usize {
        let count = rx.poll(BATCH_MAX);
        for i in 0..count {
            let frame = rx.frame(i);
            // Also where the device vouches for the bytes: whoever receives them next hears nothing of that.
            let checksum_partial = offload::unfinished(onward.medium, frame.bytes, frame.meta.checksum);
            let work = TxMeta { checksum_partial, gso_size: frame.meta.gso_size, header_len: 0 };
            offload::finish(onward.medium, frame.bytes, &work, |len, write| {
                // The two links may differ: what the second does not carry ends here, as at any router that may not cut it.
                if len > onward.frame_max() {
                    self.counters.overflowed += 1;
                } else {
                    self.hold(onward.medium, len, write, now_us);
                }
            });
        }
        rx.release();
        count
    }

    fn hold(&mut self, medium: crate::Medium, len: usize, write: &mut dyn FnMut(&mut [u8]), now_us: u64) {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.resize(len, 0);
        write(&mut bytes);
        let fate = self.dice.fate(&self.impairments.rates);
        let jitter = self.dice.below(self.impairments.jitter_us.saturating_add(1));
        if fate.lost {
            self.counters.lost += 1;
            self.spare.push(bytes);
            return;
        }
        let Some(sent_us) = self.through_bottleneck(len as u64, now_us) else {
            self.counters.overflowed += 1;
            self.spare.push(bytes);
            return;
        };
        let in_time = sent_us.saturating_add(self.impairments.delay_us);
        if fate.marked && mark(medium, &mut bytes) {
            self.counters.marked += 1;
        }
        if fate.duplicated {
            self.counters.duplicated += 1;
            self.insert(in_time.max(self.last_due_us), bytes.clone());
        }
        if fate.corrupted {
            self.counters.corrupted += 1;
            self.dice.damage(&mut bytes);
        }
        if fate.reordered {
            self.counters.reordered += 1;
            self.insert(in_time.saturating_add(self.impairments.reorder_us), bytes);
        } else {
            self.last_due_us = in_time.saturating_add(jitter).max(self.last_due_us);
            self.insert(self.last_due_us, bytes);
        }
    }

    /// When the bottleneck has sent a frame that comes now; `None` if there is no room to wait.
    fn through_bottleneck(&mut self, len: u64, now_us: u64) -> Option<u64> {
        if self.held_bytes + len > HELD_MAX {
            return None;
        }
        let rate = self.impairments.rate_bps;
        if rate == 0 {
            return Some(now_us);
        }
        let now_ns = now_us.saturating_mul(1000);
        let begin_ns = self.busy_until_ns.max(now_ns);
        let waiting = u128::from(begin_ns - now_ns) * u128::from(rate) / 8_000_000_000;
        if waiting + u128::from(len) > u128::from(self.impairments.queue_bytes) {
            return None;
        }
        let takes_ns = u128::from(len) * 8_000_000_000 / u128::from(rate);
        self.busy_until_ns = begin_ns.saturating_add(takes_ns.try_into().unwrap_or(u64::MAX));
        Some(self.busy_until_ns.div_ceil(1000))
    }

    fn insert(&mut self, due_us: u64, bytes: Vec<u8>) {
        self.held_bytes += bytes.len() as u64;
        self.held.push(Reverse(Held { due_us, number: self.next_number, bytes }));
        self.next_number += 1;
    }

    fn pass_on(&mut self, tx: &mut impl Tx, now_us: u64) -> usize {
        let mut count = 0;
        while let Some(Reverse(next)) = self.held.peek()
            && next.due_us <= now_us
        {
            let len = next.bytes.len();
            let Some(into) = tx.reserve(len) else { break };
            into.copy_from_slice(&next.bytes);
            tx.commit(len, TxMeta::default());
            self.held_bytes -= len as u64;
            self.counters.delivered += 1;
            count += 1;
            if let Some(Reverse(sent)) = self.held.pop()
                && self.spare.len() < 2 * BATCH_MAX
            {
                self.spare.push(sent.bytes);
            }
        }
        if count > 0 {
            tx.flush();
        }
        count
    }
}

#[cfg(test)]
mod tests;
