//! Owns a lane: one core's share of everything. A plain value, with no thread and no clock inside.
//!
//! Frames, commands and the time go in; frames and events come out. [`crate::worker::turn`] is how.

use crate::app::{ConnId, UdpId};
use crate::bound::BoundPorts;
use crate::config::Config;
use crate::counters::Counters;
use crate::entropy::{BootSecrets, Chance, Entropy, KeptKey, KeptSecrets};
use crate::listing::Page;
use crate::mail::LaneMail;
use crate::moving::Moving;
use crate::mtu_news::MtuNews;
use crate::neighbours::WaitingRoom;
use crate::paths::Paths;
use crate::sharing::{Product, Sharing, Site};
use crate::snapshot::Snapshot;
use crate::steering::Steering;
use crate::strangers::Strangers;
use crate::tables::{Handle, Tables};
use crate::trace::Tap;
use crate::turns::Turns;
use crate::udp::UdpSockets;
use crate::worker::TIMERS_MAX;
use laneway_device::{Alarms, Capabilities, CookieAnswer, Medium};
use laneway_proto::icmp::RateLimit;
use laneway_proto::ip::identification::Identifications;
use laneway_proto::ip::reassembly::{self, Reassembly};
use laneway_proto::time::Instant;
use laneway_sync::met::{self, Met};
use std::collections::VecDeque;
use std::sync::Arc;

/// A lane: what a variant of [`Sharing`] may share, and what is the lane's alone in every variant.
pub struct Lane<S: Sharing = Product> {
    pub(crate) shared: S,
    pub(crate) local: Local,
}

/// What belongs to one lane in every variant.
pub struct Local {
    pub(crate) id: usize,
    pub(crate) now: Instant,
    /// The last poll did something.
    pub(crate) busy: bool,
    pub(crate) config: Arc<Config>,
    pub(crate) secrets: KeptSecrets,
    pub(crate) hash_key: KeptKey,
    /// For what others see: identifications of IPv6, the price of ICMP messages.
    pub(crate) chance: Chance,
    /// Those of IPv4.
    pub(crate) identifications: Identifications,
    /// For the ports of active opens: which of two steps the search goes on by. A hash for each `connect` would be dear, and of this
    /// nobody sees more than that step; where the search begins is a hash under [`BootSecrets::port`].
    pub(crate) jitter: Entropy,
    pub(crate) steering: Steering,
    pub(crate) strangers: Strangers,
    pub(crate) snapshot: Snapshot,
    pub(crate) paths: Paths,
    pub(crate) bound: BoundPorts,
    /// Pages of listings that are yet to be filled.
    pub(crate) pages: VecDeque<Box<Page>>,
    /// The control plane has asked for something that takes more polls: pages, or whether a port is in use.
    pub(crate) owes_answers: bool,
    pub(crate) mtu_news: MtuNews,
    /// Buckets that move to or from this lane.
    pub(crate) moving: Moving,
    pub(crate) udp: UdpSockets,
    pub(crate) waiting: WaitingRoom,
    pub(crate) reassembly: Reassembly,
    /// Answers to echo requests have a limit of their own: whoever asks much keeps no other from being told of an error.
    pub(crate) echo_rate: RateLimit,
    pub(crate) icmp_rate: RateLimit,
    pub(crate) counters: Counters,
    /// While the lane's thread sleeps, and others may work in its stead: whom it has met until then.
    pub(crate) met_until_asleep: Option<Met>,
    pub(crate) mail: LaneMail,
    pub(crate) medium: Medium,
    /// Who looks at the packets.
    #[expect(clippy::vec_box, reason = "the box itself travels on: nothing is moved or allocated on a lane")]
    pub(crate) taps: Vec<Box<Tap>>,
    /// Leave transport checksums to the device.
    pub(crate) tx_checksum: bool,
    /// The largest IP packet that the device cuts for us; 0 if it cuts none.
    pub(crate) tso_max: usize,
    /// Believe the device that a transport checksum is right.
    pub(crate) rx_checksum: bool,
    /// Connections to settle at the end of this poll.
    pub(crate) touched: Turns,
    /// Half-open entries whose SYN-ACK found the device full, the first of them first; no more than `tcp_max_syn_backlog`.
    pub(crate) unsent: VecDeque<u32>,
    /// Some of them wait for a neighbour to answer: there is no use in turning again at once.
    pub(crate) waits_for_neighbour: bool,
    /// Connections whose kept bytes the application wants to see again.
    pub(crate) resumed: Vec<ConnId>,
    /// Connections whose applications were refused room and will hear of some without an acknowledgement: for want of memory, or because what they may have unsent
    /// was sent. In the order in which that was.
    pub(crate) starving: VecDeque<ConnId>,
    /// What the application took from a listener's queue last, in case it panics over it.
    pub(crate) last_accepted: Option<ConnId>,
    /// UDP sockets that end with this poll: what they were given to send goes out first.
    pub(crate) unbinding: Vec<UdpId>,
    pub(crate) due: Vec<Handle>,
    /// Cookies were sent lately: an ACK out of the blue may carry one.
    pub(crate) cookies_until: Instant,
    /// What tells that the device sends some, if it can.
    pub(crate) alarms: Option<Alarms>,
    /// How the device may do that for an endpoint that is overrun, and when to say so again.
    pub(crate) overrun: Option<Box<CookieAnswer>>,
    pub(crate) overrun_again: Instant,
    /// Handshakes that their callers have refused, since when.
    pub(crate) refusals: (u32, Instant),
    pub(crate) housekeeping_at: Instant,
    /// The last millisecond whose timers and TIME_WAIT records were dealt with to the end.
    pub(crate) expired_to: u64,
    /// Polls since the lane was stopped in which frames came before timers.
    pub(crate) taken_in_first: u8,
}

impl Local {
    /// Whom the lane's own thread has met, whoever asks in its stead.
    pub(crate) fn met(&self) -> Met {
        self.met_until_asleep.unwrap_or_else(met::here)
    }

    /// A connection's application is told in one of the next polls that there is room, when there is memory.
    #[cold]
    pub(crate) fn starve(&mut self, tables: &Tables, id: ConnId) {
        if self.starving.len() > 2 * tables.slots.len() {
            self.starving.retain(|id| tables.slots.is_of(id.index(), id.generation())); // the others have ended
        }
        self.starving.push_back(id);
    }
}

/// What a lane is made of.
pub struct LaneParts<S> {
    /// Its number, from 0.
    pub id: usize,
    /// Its way of sharing connections.
    pub shared: S,
    /// The settings.
    pub config: Arc<Config>,
    /// The secrets.
    pub secrets: BootSecrets,
    /// Who owns which flow.
    pub steering: Steering,
    /// What the lane's queue can do.
    pub capabilities: Capabilities,
    /// Its ends of the rings.
    pub mail: LaneMail,
    /// The first state of the world.
    pub snapshot: Snapshot,
}

impl<S: Sharing> Lane<S> {
    /// A lane that has seen nothing yet.
    pub fn new(parts: LaneParts<S>) -> Self {
        let LaneParts { id, shared, config, secrets, steering, capabilities, mail, snapshot } = parts;
        let offload = !config.software_checksums;
        let mut chance = Chance::new(secrets.chance, id);
        let jitter = Entropy::from_seed(chance.next_u64());
        let local = Local {
            id,
            now: Instant::ZERO,
            busy: false,
            secrets: KeptSecrets::new(&secrets.tcp),
            hash_key: KeptKey::new(secrets.flow),
            chance,
            identifications: Identifications::new(id, steering.lanes()),
            jitter,
            snapshot,
            paths: Paths::new(&capabilities, config.ip_default_ttl, secrets.tcp.timestamp),
            steering,
            strangers: Strangers::default(),
            bound: BoundPorts::default(),
            pages: VecDeque::new(),
            owes_answers: false,
            mtu_news: MtuNews::default(),
            moving: Moving::default(),
            udp: UdpSockets::default(),
            waiting: WaitingRoom::default(),
            reassembly: Reassembly::new(reassembly::Config::default()),
            echo_rate: RateLimit::new(1_000, 50),
            icmp_rate: RateLimit::new(1_000, 50),
            counters: Counters::default(),
            met_until_asleep: None,
            mail,
            medium: capabilities.medium,
            taps: Vec::new(),
            tx_checksum: capabilities.tx_checksum && offload,
            tso_max: if capabilities.tx_checksum && offload { capabilities.tso_max } else { 0 },
            rx_checksum: capabilities.rx_checksum && offload,
            touched: Turns::default(),
            unsent: VecDeque::new(),
            waits_for_neighbour: false,
            resumed: Vec::new(),
            starving: VecDeque::new(),
            last_accepted: None,
            unbinding: Vec::new(),
            // So that the first wave of timers calls the heap no more than others do.
            due: Vec::with_capacity(TIMERS_MAX),
            cookies_until: Instant::ZERO,
            alarms: None,
            overrun: None,
            overrun_again: Instant::ZERO,
            refusals: (0, Instant::ZERO),
            housekeeping_at: Instant::ZERO,
            expired_to: 0,
            taken_in_first: 0,
            config,
        };
        Lane { shared, local }
    }

    /// Its number.
    pub fn id(&self) -> usize {
        self.local.id
    }

    /// Its device can [answer in its stead](laneway_device::FloodGate::overrun) in a flood, and these tell that it does.
    pub fn heed(&mut self, alarms: Alarms) {
        self.local.alarms = Some(alarms);
    }

    /// How the device may do so, if the lane has asked for it since this was called last.
    pub fn take_overrun(&mut self) -> Option<Box<CookieAnswer>> {
        self.local.overrun.take()
    }

    /// Looks at the tables, for checks and listings.
    pub fn tables<R>(&mut self, look: impl FnOnce(&mut Tables) -> R) -> R {
        look(&mut self.shared.enter(Site::Control))
    }

    /// A copy of everything that it has counted.
    pub fn counters(&mut self) -> Counters {
        let mut sum = self.local.counters.clone();
        sum.merge(&self.shared.enter(Site::Control).counters);
        sum
    }
}
