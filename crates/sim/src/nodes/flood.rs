//! Owns an attacker who sees nothing: he floods a host with SYN, ACK, RST and rubbish from addresses that are not his.

use crate::dice::Dice;
use crate::network::{Node, Out, Way};
use crate::packet;
use crate::scenario::FloodPlan;
use laneway_wire::flow::Address;
use laneway_wire::tcp::{Flags, Header, Options, SeqNum, Timestamps, UnscaledWindow, WindowScale};

/// What he floods.
pub struct Target {
    /// The way to the host.
    pub way: Way,
    /// Its link header, as a neighbour would write it.
    pub link: Vec<u8>,
    /// Its address.
    pub address: Address,
    /// Ports worth trying.
    pub ports: Vec<u16>,
}

/// A flood of so many packets, evenly spread, by themselves or in bunches.
pub struct Flood {
    target: Target,
    every_us: u64,
    bunch: u64,
    left: u64,
    next_us: u64,
    dice: Dice,
}

impl Flood {
    /// What is planned.
    pub fn new(target: Target, plan: &FloodPlan, dice: Dice) -> Box<Self> {
        let FloodPlan { host: _, from_us, every_us, bunch, count } = *plan;
        Box::new(Flood { target, every_us, bunch, left: count, next_us: from_us, dice })
    }

    fn packet(&mut self) -> Vec<u8> {
        let dice = &mut self.dice;
        let host = dice.between(50, 250) as u8;
        let src = if self.target.address.is_v4() {
            Address::from_v4([10, 0, 0, host])
        } else {
            let mut octets = self.target.address.octets();
            octets[15] = host;
            Address::from_v6(octets)
        };
        let flags = match dice.below(10) {
            0..=5 => Flags::SYN,
            6 => Flags::ACK,
            7 => Flags::RST,
            8 => Flags::SYN | Flags::ACK,
            _ => Flags::from_bits(dice.next() as u8),
        };
        let options = Options {
            mss: flags.syn().then(|| dice.next() as u16),
            window_scale: dice.chance(500).then(|| WindowScale::new(dice.below(15) as u8)),
            sack_permitted: dice.chance(500),
            timestamps: dice.chance(500).then(|| Timestamps { val: dice.next() as u32, echo: dice.next() as u32 }),
            ..Options::default()
        };
        let header = Header {
            src_port: dice.next() as u16,
            dst_port: dice.pick(&self.target.ports),
            seq: SeqNum::new(dice.next() as u32),
            ack: SeqNum::new(dice.next() as u32),
            flags,
            window: UnscaledWindow::new(dice.next() as u16),
            urgent: 0,
            options,
        };
        let payload = vec![0xff; if dice.chance(100) { 32 } else { 0 }];
        packet::tcp(&self.target.link, src, self.target.address, &header, &payload)
    }
}

impl Node for Flood {
    fn name(&self) -> &'static str {
        "Flood"
    }
    fn take(&mut self, _: u64, way: Way, frame: Vec<u8>, out: Out<'_>) {
        out(way, frame);
    }
    fn step(&mut self, now_us: u64, out: Out<'_>) {
        while self.left > 0 && self.next_us <= now_us {
            let bunch = self.bunch.min(self.left);
            for _ in 0..bunch {
                let frame = self.packet();
                out(self.target.way, frame);
            }
            self.left -= bunch;
            self.next_us += self.every_us;
        }
    }
    fn due_us(&self) -> Option<u64> {
        (self.left > 0).then_some(self.next_us)
    }
}
