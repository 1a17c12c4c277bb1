//! Owns the nodes that hold frames back: distance, a queue before a slow line, a detour.

use super::Shelf;
use crate::dice::Dice;
use crate::network::{Node, Out, Way};

/// Every frame takes `delay_us` and up to `jitter_us` more, in order.
pub struct Delay {
    delay_us: u64,
    jitter_us: u64,
    last_us: [u64; 2],
    shelf: Shelf,
    dice: Dice,
}

impl Delay {
    /// The same both ways.
    pub fn new(delay_us: u64, jitter_us: u64, dice: Dice) -> Box<Self> {
        Box::new(Delay { delay_us, jitter_us, last_us: [0; 2], shelf: Shelf::default(), dice })
    }
}

impl Node for Delay {
    fn name(&self) -> &'static str {
        "Delay"
    }
    fn take(&mut self, now_us: u64, way: Way, frame: Vec<u8>, out: Out<'_>) {
        let at = now_us + self.delay_us + self.dice.below(self.jitter_us + 1);
        let last = &mut self.last_us[way.index()];
        *last = at.max(*last);
        // Behind those that are due now and wait to be taken.
        let is_first = self.shelf.due_us().is_none_or(|due_us| due_us > now_us);
        if *last <= now_us && is_first { out(way, frame) } else { self.shelf.put(*last, way, frame) }
    }
    fn step(&mut self, now_us: u64, out: Out<'_>) {
        while let Some((way, frame)) = self.shelf.take(now_us) {
            out(way, frame);
        }
    }
    fn due_us(&self) -> Option<u64> {
        self.shelf.due_us()
    }
}

/// A line of some speed, with a queue before it that loses what does not fit (tail drop).
pub struct Bottleneck {
    bits_per_s: u64,
    queue_bytes: u64,
    free_at_us: [u64; 2],
    shelf: Shelf,
}

impl Bottleneck {
    /// The same both ways.
    pub fn new(bits_per_s: u64, queue_bytes: u64) -> Box<Self> {
        Box::new(Bottleneck { bits_per_s, queue_bytes, free_at_us: [0; 2], shelf: Shelf::default() })
    }
}

impl Node for Bottleneck {
    fn name(&self) -> &'static str {
        "Bottleneck"
    }
    fn take(&mut self, now_us: u64, way: Way, frame: Vec<u8>, _: Out<'_>) {
        let free = &mut self.free_at_us[way.index()];
        let begin = now_us.max(*free);
        let waiting = (begin - now_us) * self.bits_per_s / 8_000_000;
        if waiting + frame.len() as u64 > self.queue_bytes {
            return;
        }
        *free = begin + (frame.len() as u64 * 8_000_000).div_ceil(self.bits_per_s);
        self.shelf.put(*free, way, frame);
    }
    fn step(&mut self, now_us: u64, out: Out<'_>) {
        while let Some((way, frame)) = self.shelf.take(now_us) {
            out(way, frame);
        }
    }
    fn due_us(&self) -> Option<u64> {
        self.shelf.due_us()
    }
}

/// Some frames take a detour of up to `by_us`, and others overtake them.
pub struct Reorder {
    of_thousand: u64,
    by_us: u64,
    shelf: Shelf,
    dice: Dice,
}

impl Reorder {
    /// The same both ways.
    pub fn new(of_thousand: u64, by_us: u64, dice: Dice) -> Box<Self> {
        Box::new(Reorder { of_thousand, by_us, shelf: Shelf::default(), dice })
    }
}

impl Node for Reorder {
    fn name(&self) -> &'static str {
        "Reorder"
    }
    fn take(&mut self, now_us: u64, way: Way, frame: Vec<u8>, out: Out<'_>) {
        if self.dice.chance(self.of_thousand) {
            self.shelf.put(now_us + 1 + self.dice.below(self.by_us), way, frame);
        } else {
            out(way, frame);
        }
    }
    fn step(&mut self, now_us: u64, out: Out<'_>) {
        while let Some((way, frame)) = self.shelf.take(now_us) {
            out(way, frame);
        }
    }
    fn due_us(&self) -> Option<u64> {
        self.shelf.due_us()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_as_another_frame_is_due_does_not_overtake_it() {
        for seed in 0..100 {
            let mut delay = Delay::new(0, 1, Dice::new(seed, "delay"));
            let mut order = Vec::new();
            for now_us in 0..20 {
                delay.take(now_us, Way::Right, vec![now_us as u8], &mut |_, frame| order.push(frame[0]));
                delay.step(now_us, &mut |_, frame| order.push(frame[0]));
            }
            delay.step(20, &mut |_, frame| order.push(frame[0]));
            assert_eq!(order, (0..20).collect::<Vec<_>>(), "seed {seed}");
        }
    }
}
