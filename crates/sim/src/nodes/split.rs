//! Owns a middlebox that cuts segments anew: what leaves is the same text in other pieces, whose bounds no sender has chosen.

use crate::dice::Dice;
use crate::network::{Node, Out, Way};
use crate::packet::{self, Frame, Seen};
use laneway_device::Medium;
use laneway_wire::tcp::{Flags, Header};

/// A middlebox.
pub struct Split {
    medium: Medium,
    of_thousand: u64,
    dice: Dice,
}

impl Split {
    /// Cuts so many of a thousand segments with text in two.
    pub fn new(medium: Medium, of_thousand: u64, dice: Dice) -> Box<Self> {
        Box::new(Split { medium, of_thousand, dice })
    }
}

impl Node for Split {
    fn name(&self) -> &'static str {
        "Split"
    }
    fn take(&mut self, _: u64, way: Way, frame: Vec<u8>, out: Out<'_>) {
        let Frame::Tcp(Seen { key, seg, ecn, .. }) = packet::look(self.medium, &frame) else { return out(way, frame) };
        let is_plain = !seg.flags.syn() && !seg.flags.urg() && !seg.flags.rst();
        if !is_plain || seg.payload.len() < 2 || !self.dice.chance(self.of_thousand) {
            return out(way, frame);
        }
        let at = self.dice.between(1, seg.payload.len() as u64 - 1) as usize;
        let (first, rest) = seg.payload.split_at(at);
        let link = &frame[..self.medium.header_len()];
        let whole = Header {
            src_port: seg.src_port,
            dst_port: seg.dst_port,
            seq: seg.seq,
            ack: seg.ack,
            flags: seg.flags,
            window: seg.window,
            urgent: 0,
            options: seg.options,
        };
        // What ends the text, or the stream, is said of its last piece, and CWR of the first (RFC 3168 section 6.1.2).
        let begins = Header { flags: seg.flags.without(Flags::PSH | Flags::FIN), ..whole };
        let ends = Header { seq: seg.seq + at as u32, flags: seg.flags.without(Flags::CWR), ..whole };
        for (header, text) in [(begins, first), (ends, rest)] {
            let mut piece = packet::tcp(link, key.local, key.remote, &header, text);
            packet::set_ecn(self.medium, &mut piece, ecn);
            out(way, piece);
        }
    }
}
