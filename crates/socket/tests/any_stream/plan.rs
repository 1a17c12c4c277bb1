//! Owns what a seed decides: the link, the memory, and how each end goes about it.

use crate::dice::Dice;
use crate::turns;
use laneway::Config;
use laneway::on_lane::{LinkConfig, Rates};
use laneway_stack::proto::tcp::congestion::Algorithm;
use std::time::Duration;

/// All of one setting.
#[derive(Debug)]
pub struct Plan {
    pub seed: u64,
    pub lanes: usize,
    mtu: usize,
    pub offloads: bool,
    rates: Rates,
    pub config: Config,
    pub pairs: Vec<Pair>,
}

/// A connection: how many bytes each end says, and how.
#[derive(Debug)]
pub struct Pair {
    pub says: [usize; 2],
    pub manners: [Manner; 2],
    /// Which end hears no more after so many bytes, if one does. It leaves when it has said all.
    pub leaves: Option<(usize, usize)>,
    /// They speak in turns, so often. Otherwise each says all that it has to say, whatever it hears.
    pub rounds: Option<usize>,
    /// Chance of their own.
    pub seed: u64,
}

/// How an end goes about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Manner {
    /// Two threads, which wait in their calls.
    Blocking,
    /// The same, with time-outs that mostly are over too soon.
    Impatient(Duration),
    /// One thread, which does what can be done, and waits for what its poller tells when things change.
    Edge,
    /// The same, of a poller that tells as long as it is so.
    Level,
    /// A task of tokio's that speaks and listens in turns, and goes from runtime to runtime.
    Task,
    /// A task that speaks, and one that listens.
    Tasks,
}

impl Plan {
    pub fn from_seed(seed: u64) -> Plan {
        let mut dice = Dice::new(seed);
        let parts = |dice: &mut Dice, most: usize| if dice.one_in(3) { 0 } else { dice.below(most) as u32 };
        let rates = match dice.one_in(4) {
            true => Rates::default(),
            false => Rates {
                loss_ppm: parts(&mut dice, 15_000),
                duplicate_ppm: parts(&mut dice, 15_000),
                reorder_ppm: parts(&mut dice, 100_000),
                corrupt_ppm: parts(&mut dice, 5_000),
                mark_ppm: Dice::new(seed ^ 0xce).pick(&[0, 0, 100_000]),
            },
        };
        let mut config = Config::default();
        if dice.one_in(2) {
            let first = 4_096 << dice.below(5);
            config.tcp.tcp_rmem = (first, first << dice.below(5));
            config.tcp.tcp_wmem = 4_096 << dice.below(8);
        }
        if dice.one_in(4) {
            config.lane_mem = dice.pick(&[20_000, 60_000, 200_000, 1 << 20]);
        }
        let loses = rates.loss_ppm > 0 || rates.corrupt_ppm > 0;
        // Without them nothing ends the back-off while much is sent again (RFC 6298 section 5), and each loss is waited for twice as long as the one
        // before it.
        config.tcp.tcp_timestamps = loses || !dice.one_in(4);
        config.tcp.tcp_sack = !dice.one_in(4);
        config.tcp.tcp_window_scaling = !dice.one_in(4);
        config.tcp.tcp_congestion_control = dice.pick(&[Algorithm::Cubic, Algorithm::Cubic, Algorithm::Reno]);
        config.tcp.tcp_ecn = Dice::new(seed ^ 0xec).pick(&[0, 1, 2]);
        // Where something is lost, it is waited for.
        let (most, rounds_max) = if rates == Rates::default() { (4 << 20, 4_000) } else { (300_000, 50) };
        // An RST is sent once; where that is lost, the other may wait for a long time before he asks again. And who hears no more holds what he was
        // sent; where memory is scarce, all wait for him.
        let may_leave = !loses && config.lane_mem == Config::default().lane_mem;
        let pairs = (0..1 + dice.below(4)).map(|_| Pair::from(&mut dice, most, rounds_max, may_leave)).collect();
        Plan {
            seed,
            lanes: dice.pick(&[1, 1, 2, 3]),
            mtu: dice.pick(&[576, 1_280, 1_500, 1_500, 9_000]),
            offloads: dice.one_in(3),
            rates,
            config,
            pairs,
        }
    }

    /// Whether something that is sent may not arrive.
    pub fn loses(&self) -> bool {
        self.rates.loss_ppm > 0 || self.rates.corrupt_ppm > 0
    }

    /// What an end does to each frame that passes it. Only one damages: two bits in one frame can be such that no checksum shows it.
    pub fn rates(&self, end: usize) -> Rates {
        let corrupt_ppm = if end == 0 { self.rates.corrupt_ppm } else { 0 };
        Rates { corrupt_ppm, ..self.rates }
    }

    pub fn link(&self) -> LinkConfig {
        let link = LinkConfig { queues: self.lanes, mtu: self.mtu, ..LinkConfig::default() };
        if self.offloads { link.with_offloads() } else { link }
    }
}

impl Pair {
    fn from(dice: &mut Dice, most: usize, rounds_max: usize, may_leave: bool) -> Pair {
        let says = |dice: &mut Dice| match dice.below(4) {
            0 => dice.below(10),
            1 => dice.below(3_000),
            _ => dice.below(most),
        };
        let manner = |dice: &mut Dice| match dice.below(7) {
            0..2 => Manner::Blocking,
            2 => Manner::Impatient(Duration::from_micros(1 + dice.below(20_000) as u64)),
            3 => Manner::Edge,
            4 => Manner::Level,
            5 => Manner::Task,
            _ => Manner::Tasks,
        };
        let rounds = dice.one_in(3).then(|| 1 + dice.below(rounds_max));
        let says = match rounds {
            Some(rounds) => [0, 1].map(|side| turns::says(rounds, side)),
            None => [says(dice), says(dice)],
        };
        let leaver = dice.below(2);
        Pair {
            says,
            manners: [manner(dice), manner(dice)],
            leaves: (may_leave && rounds.is_none() && dice.one_in(3))
                .then(|| (leaver, dice.below(1 + says[1 - leaver]))),
            rounds,
            seed: dice.below(usize::MAX) as u64,
        }
    }
}
