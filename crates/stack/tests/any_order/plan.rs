//! Owns what a seed decides before time begins.

use crate::dice::Dice;
use laneway_device::memory::LinkConfig;
use laneway_proto::tcp;
use laneway_stack::config::Config;

/// More than anybody needs.
const MUCH: usize = 256 << 20;
/// So few half-open entries that there are cookies.
const COOKIES_FROM: usize = 2;

/// How a world is set up. Both hosts are alike.
#[derive(Debug)]
pub struct Plan {
    pub seed: u64,
    pub lanes: usize,
    /// The link steers by a table that follows the moves; else what a lane is sent may be another's.
    pub steers: bool,
    /// Lanes, and the control plane, now and then have no turn.
    pub uneven: bool,
    pub offloads: bool,
    pub ring_bytes: usize,
    /// Of each size of block a lane's conversations may hold so many bytes.
    pub block_bytes: usize,
    pub config: Config,
    /// Turns in which something is done.
    pub turns: usize,
}

impl Plan {
    pub fn from_seed(seed: u64) -> Plan {
        let mut dice = Dice::new(seed, 1);
        let mut tcp = tcp::Config { msl_us: 500_000, ..tcp::Config::default() };
        if dice.one_in(4) {
            (tcp.tcp_rmem, tcp.tcp_wmem) = ((4_096, 8_192), 4_096);
        }
        // Blocks are scarce, or buffers, or both, or neither.
        let (block_bytes, lane_mem) =
            dice.pick(&[(MUCH, MUCH), (64 << 10, MUCH), (MUCH, 100_000), (64 << 10, 100_000)]);
        let config = Config {
            tcp,
            lane_mem,
            somaxconn: dice.pick(&[4, 64]),
            tcp_max_syn_backlog: dice.pick(&[COOKIES_FROM, 4_096]),
            ip_local_port_range: dice.pick(&[(40_000, 40_200), (32_768, 60_999)]),
            ..Config::default()
        };
        Plan {
            seed,
            lanes: 1 + dice.below(3),
            steers: !dice.one_in(3),
            uneven: dice.one_in(3),
            offloads: dice.one_in(2),
            ring_bytes: if dice.one_in(3) { 16 << 10 } else { 1 << 20 },
            block_bytes,
            config,
            turns: 200 + dice.below(800),
        }
    }

    /// Whoever connects may be given a cookie. An ACK that comes late, when what it has opened was reset already, opens it a second time at a
    /// listener that shares the port: nothing is known any more of the first, and the one who sent it resets it when he hears of it.
    pub fn has_cookies(&self) -> bool {
        self.config.tcp_max_syn_backlog == COOKIES_FROM
    }

    /// The link, but for how it steers.
    pub fn link(&self) -> LinkConfig {
        let link = LinkConfig { queues: self.lanes, ring_bytes: self.ring_bytes, ..LinkConfig::default() };
        // A ring has room for a super-segment, or there are none.
        if self.offloads && self.ring_bytes > 1 << 17 { link.with_offloads() } else { link }
    }
}
