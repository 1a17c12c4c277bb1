//! Owns a router whose queue is managed: where it would soon drop, it marks (RFC 3168 section 5).

use crate::dice::Dice;
use crate::network::{Node, Out, Way};
use crate::packet;
use laneway_device::Medium;

/// A router.
pub struct Mark {
    medium: Medium,
    of_thousand: u64,
    dice: Dice,
}

impl Mark {
    /// Marks so many of a thousand packets whose sender heeds it.
    pub fn new(medium: Medium, of_thousand: u64, dice: Dice) -> Box<Self> {
        Box::new(Mark { medium, of_thousand, dice })
    }
}

impl Node for Mark {
    fn name(&self) -> &'static str {
        "Mark"
    }
    fn take(&mut self, _: u64, way: Way, mut frame: Vec<u8>, out: Out<'_>) {
        const NOT_ECT: u8 = 0b00;
        const CE: u8 = 0b11;
        if packet::ecn(self.medium, &frame) != NOT_ECT && self.dice.chance(self.of_thousand) {
            packet::set_ecn(self.medium, &mut frame, CE);
        }
        out(way, frame);
    }
}
