//! Owns a device that answers for a host in a flood: what the program does that the kernel is given for a TUN interface
//! (`laneway_device`'s `cookies_ebpf`), with the stack's own arithmetic in the place of that program's.

use crate::packet::{self, Seen};
use crate::scenario::SECOND;
use laneway_device::{Alarms, CookieAnswer};
use laneway_proto::tcp::listen::{self, Secrets};
use laneway_proto::tcp::{BufferPool, Config, Cx};
use laneway_proto::time::Instant;
use laneway_wire::flow::FlowKey;
use laneway_wire::tcp::{Flags, SeqNum};
use std::collections::HashMap;
use std::net::IpAddr;

/// For so long an endpoint counts as overrun after a lane has said so.
const LASTS_US: u64 = 2 * SECOND;

/// A device between the network and a host.
pub struct Gate {
    alarms: Alarms,
    config: Config,
    pool: BufferPool,
    /// Which endpoints are overrun, until when, and how they are answered for.
    overrun: HashMap<(IpAddr, u16), (Instant, CookieAnswer)>,
    /// What a RST would say that refuses the last answer to a flow.
    answered: HashMap<FlowKey, SeqNum>,
}

/// What becomes of a segment.
pub enum Fate {
    /// The host sees it.
    Passes,
    /// It is answered, and the host does not see it.
    Answered(Vec<u8>),
    /// Nobody sees it.
    Dropped,
}

impl Gate {
    /// Of a host with these settings.
    pub fn new(config: &Config) -> Self {
        Gate {
            alarms: Alarms::default(),
            config: config.clone().bounded(),
            pool: BufferPool::new(1 << 16),
            overrun: HashMap::new(),
            answered: HashMap::new(),
        }
    }

    /// What lanes are to hear.
    pub fn alarms(&self) -> Alarms {
        self.alarms.clone()
    }

    /// A lane says that an endpoint is overrun.
    pub fn overrun(&mut self, now: Instant, how: CookieAnswer) {
        self.alarms.raise();
        self.overrun.insert((how.address, how.port), (now.after_us(LASTS_US), how));
    }

    /// A segment comes from the network, `link` being the link header of an answer.
    pub fn take(&mut self, now: Instant, link: &[u8], seen: &Seen<'_>) -> Fate {
        let (key, seg) = (seen.key.reversed(), &seen.seg);
        let Some((until, how)) = self.overrun.get(&(key.local.to_ip(), key.local_port)) else { return Fate::Passes };
        if *until < now {
            return Fate::Passes;
        }
        if seg.flags.contains(Flags::RST) && self.answered.get(&key) == Some(&seg.seq) {
            self.answered.remove(&key);
            return Fate::Dropped;
        }
        let is_plain_syn = seg.flags.syn() && !seg.flags.intersects(Flags::ACK | Flags::RST | Flags::FIN);
        if !is_plain_syn || !seg.payload.is_empty() {
            return Fate::Passes;
        }
        let secrets = Secrets { isn: [0; 2], timestamp: how.timestamp_secret, cookie: how.cookie_secret };
        let cx = Cx { now, config: &self.config, pool: &mut self.pool };
        let header = listen::cookie_syn_ack(&key, seg, how.mss, &secrets, &cx);
        self.answered.insert(key, header.ack);
        Fate::Answered(packet::tcp(link, key.local, key.remote, &header, &[]))
    }
}
