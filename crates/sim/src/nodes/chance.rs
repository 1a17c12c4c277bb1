//! Owns the nodes that lose, double and damage frames.

use super::Shelf;
use crate::dice::Dice;
use crate::network::{Node, Out, Way};
use laneway_device::Medium;

/// Some frames are lost.
pub struct Drop {
    of_thousand: [u64; 2],
    dice: Dice,
}

impl Drop {
    /// So many of a thousand, each way.
    pub fn new(of_thousand: [u64; 2], dice: Dice) -> Box<Self> {
        Box::new(Drop { of_thousand, dice })
    }
}

impl Node for Drop {
    fn name(&self) -> &'static str {
        "Drop"
    }
    fn take(&mut self, _: u64, way: Way, frame: Vec<u8>, out: Out<'_>) {
        if !self.dice.chance(self.of_thousand[way.index()]) {
            out(way, frame);
        }
    }
}

/// Everything is lost for a while.
pub struct Blackout {
    from_us: u64,
    until_us: u64,
}

impl Blackout {
    /// From the one time to the other.
    pub fn new(from_us: u64, until_us: u64) -> Box<Self> {
        Box::new(Blackout { from_us, until_us })
    }
}

impl Node for Blackout {
    fn name(&self) -> &'static str {
        "Blackout"
    }
    fn take(&mut self, now_us: u64, way: Way, frame: Vec<u8>, out: Out<'_>) {
        if !(self.from_us..self.until_us).contains(&now_us) {
            out(way, frame);
        }
    }
}

/// Some frames come twice, the second time up to `later_us` later.
pub struct Duplicate {
    of_thousand: u64,
    later_us: u64,
    shelf: Shelf,
    dice: Dice,
}

impl Duplicate {
    /// The same both ways.
    pub fn new(of_thousand: u64, later_us: u64, dice: Dice) -> Box<Self> {
        Box::new(Duplicate { of_thousand, later_us, shelf: Shelf::default(), dice })
    }
}

impl Node for Duplicate {
    fn name(&self) -> &'static str {
        "Duplicate"
    }
    fn take(&mut self, now_us: u64, way: Way, frame: Vec<u8>, out: Out<'_>) {
        if self.dice.chance(self.of_thousand) {
            self.shelf.put(now_us + self.dice.below(self.later_us + 1), way, frame.clone());
        }
        out(way, frame);
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

/// In some packets one bit is flipped, which the hosts' checksums must notice. (A link header would be protected by the
/// link's own; so is ARP, which has no checksum: such a frame is lost.)
pub struct Corrupt {
    medium: Medium,
    of_thousand: u64,
    dice: Dice,
}

impl Corrupt {
    /// The same both ways.
    pub fn new(medium: Medium, of_thousand: u64, dice: Dice) -> Box<Self> {
        Box::new(Corrupt { medium, of_thousand, dice })
    }
}

impl Node for Corrupt {
    fn name(&self) -> &'static str {
        "Corrupt"
    }
    fn take(&mut self, _: u64, way: Way, mut frame: Vec<u8>, out: Out<'_>) {
        if self.dice.chance(self.of_thousand) {
            let link = self.medium.header_len();
            if frame.len() <= link || (link > 0 && frame[12..14] == [0x08, 0x06]) {
                return;
            }
            let at = link + self.dice.below((frame.len() - link) as u64) as usize;
            frame[at] ^= 1 << self.dice.below(8);
        }
        out(way, frame);
    }
}
