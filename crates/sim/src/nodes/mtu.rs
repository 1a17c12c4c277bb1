//! Owns a router in the middle whose next link is narrow: it drops what does not fit, and says so by ICMP, or stays silent.

use crate::network::{Node, Out, Way};
use laneway_device::Medium;
use laneway_proto::icmp::{self, Problem};
use laneway_proto::ip::input;

/// A narrow link.
pub struct Mtu {
    medium: Medium,
    mtu: usize,
    /// Packets shorter than this always pass: what every path carries.
    from_us: u64,
    silent: bool,
}

impl Mtu {
    /// From `from_us` on, only IP packets of at most `mtu` bytes fit. `silent`: nobody is told of others.
    pub fn new(medium: Medium, mtu: usize, from_us: u64, silent: bool) -> Box<Self> {
        Box::new(Mtu { medium, mtu, from_us, silent })
    }
}

impl Node for Mtu {
    fn name(&self) -> &'static str {
        "Mtu"
    }
    fn take(&mut self, now_us: u64, way: Way, frame: Vec<u8>, out: Out<'_>) {
        let link = self.medium.header_len();
        if now_us < self.from_us || frame.len() <= link + self.mtu {
            return out(way, frame);
        }
        if self.silent {
            return;
        }
        let Ok(packet) = input::input(&frame[link..], false) else { return };
        let problem = Problem::PacketTooBig { mtu: self.mtu as u32 };
        let Some(reply) = icmp::error_reply(&packet, problem) else { return };
        let mut answer = vec![0; link + reply.len()];
        if link > 0 {
            answer[0..6].copy_from_slice(&frame[6..12]);
            answer[6..12].copy_from_slice(&frame[0..6]);
            answer[12..14].copy_from_slice(&frame[12..14]);
        }
        reply.emit(&mut answer[link..]);
        out(way.back(), answer);
    }
}
