//! Owns what happens in a world: everything that the seed decides before time begins.
//!
//! The parameters are plain fields, so that a test can also write them down itself.

use crate::dice::Dice;
use laneway_device::Medium;
use laneway_proto::tcp::congestion::Algorithm;
use laneway_stack::Config;
use laneway_stack::steering::BUCKETS;

/// One second, in the microseconds of this crate.
pub const SECOND: u64 = 1_000_000;
/// One millisecond.
pub const MS: u64 = 1_000;

/// What a device does with super-segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Segmentation {
    /// Nothing: the lane cuts what it sends.
    None,
    /// It cuts what the lane sends.
    Cuts,
    /// It cuts what the lane sends, and merges what arrives together.
    CutsAndMerges,
}

/// How an application hands over what it says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gathering {
    /// Piece by piece.
    Plain,
    /// Each piece but the last announces another (`MSG_MORE`).
    More,
    /// With the cork in until all is said.
    Corked,
}

/// How one host is set up.
#[derive(Clone, Debug)]
pub struct HostPlan {
    /// Its settings.
    pub config: Config,
    /// Its lanes.
    pub lanes: usize,
    /// Largest packet of its link.
    pub mtu: usize,
    /// Its device finishes checksums.
    pub offload: bool,
    /// What its device does with super-segments.
    pub segmentation: Segmentation,
    /// Its device has room for so many bytes.
    pub ring_bytes: usize,
    /// It is polled up to this long after a frame has arrived.
    pub poll_delay_us: u64,
    /// Its lanes are polled in any order, and now and then one of them is left out.
    pub uneven: bool,
    /// So many of a thousand frames come to a lane of chance, whatever their flow.
    pub astray: u64,
    /// Its device answers for it in a flood.
    pub gated: bool,
    /// When, which bucket of flows, to which lane.
    pub moves: Vec<(u64, usize, usize)>,
}

/// What lies between the hosts. Rates are in thousandths.
#[derive(Clone, Debug, Default)]
pub struct PathPlan {
    /// One way, and how uneven.
    pub delay_us: u64,
    /// Up to this much more.
    pub jitter_us: u64,
    /// Lost, each way.
    pub drop: [u64; 2],
    /// Detours.
    pub reorder: u64,
    /// How long a detour is at the most.
    pub reorder_us: u64,
    /// Doubled.
    pub duplicate: u64,
    /// How late a double is at the most.
    pub duplicate_us: u64,
    /// Damaged.
    pub corrupt: u64,
    /// Speed of the bottleneck and its queue in bytes.
    pub bottleneck: Option<(u64, u64)>,
    /// The MTU of a link in the middle, and from when on.
    pub narrow: Option<(usize, u64)>,
    /// It says nothing of what it drops.
    pub silent: bool,
    /// Cut in two by somebody on the way.
    pub split: u64,
    /// Marked, of those that may be.
    pub mark: u64,
    /// Nothing passes from the one time to the other.
    pub blackout: Option<(u64, u64)>,
    /// A flood.
    pub flood: Option<FloodPlan>,
}

/// A flood against a host.
#[derive(Clone, Debug)]
pub struct FloodPlan {
    /// The host.
    pub host: usize,
    /// When it begins.
    pub from_us: u64,
    /// What lies between two packets, or two bunches of them.
    pub every_us: u64,
    /// Packets in a bunch.
    pub bunch: u64,
    /// All packets.
    pub count: u64,
}

impl PathPlan {
    /// Whether a frame that fits may be lost.
    pub fn is_lossy(&self) -> bool {
        self.drop != [0, 0] || self.corrupt > 0 || self.blackout.is_some() || self.bottleneck.is_some()
    }
    /// Whether every frame arrives, once, and in order.
    pub fn is_orderly(&self) -> bool {
        !self.is_lossy() && self.reorder == 0 && self.duplicate == 0 && self.narrow.is_none()
    }
    /// Loss of a frame by chance on its way there, or of the answer on its way back, in thousandths.
    pub fn loss(&self) -> u64 {
        self.drop[0] + self.drop[1] + 2 * self.corrupt
    }
}

/// A listener.
#[derive(Clone, Copy, Debug)]
pub struct ListenPlan {
    /// On this host.
    pub host: usize,
    /// Port.
    pub port: u16,
    /// Backlog.
    pub backlog: usize,
    /// From when on.
    pub from_us: u64,
    /// Until when.
    pub until_us: u64,
    /// It accepts only this long after it could.
    pub accept_delay_us: u64,
}

/// How an application reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reading {
    /// All that comes, at once, where it lies.
    Eager,
    /// So many bytes at a time, and a pause.
    Trickle(u64, u64),
    /// After so many bytes not at all for a while; then eagerly.
    Stall(u64, u64),
    /// Copies out what is kept, now and then.
    Copy(u64),
}

/// How an application ends its side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// Half-closes when all is said, listens on, closes at the peer's end.
    HalfClose,
    /// Closes when all is said and the peer has ended.
    AfterPeer,
    /// Closes when all is said, whatever the peer still has to say.
    Close,
    /// Aborts when so many bytes are said and read together.
    Abort(u64),
}

/// What one end of a conversation does.
#[derive(Clone, Debug)]
pub struct EndPlan {
    /// Bytes to say.
    pub bytes: u64,
    /// In pieces of this size.
    pub piece: u64,
    /// With so much time between them.
    pub pause_us: u64,
    /// Says its next piece only when as many pieces of this size have been heard (the opener: one fewer).
    pub in_turn: Option<u64>,
    /// How it listens.
    pub reading: Reading,
    /// How it ends.
    pub ending: Ending,
    /// `TCP_NODELAY`.
    pub nodelay: bool,
    /// `TCP_CORK`, `MSG_MORE`.
    pub gathering: Gathering,
    /// `SO_KEEPALIVE`.
    pub keepalive: bool,
    /// `TCP_USER_TIMEOUT`.
    pub user_timeout_ms: u32,
    /// What it is told of its buffers at some time.
    pub buffers: Option<Buffers>,
}

/// What an end is told in the middle of what it does.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// When it has said and heard so much.
    pub after: u64,
    /// `SO_SNDBUF`.
    pub send: u32,
    /// `TCP_NOTSENT_LOWAT`.
    pub notsent_lowat: u32,
    /// `SO_RCVBUF`.
    pub receive: u32,
    /// `TCP_QUICKACK`.
    pub quickack: bool,
}

/// A conversation.
#[derive(Clone, Debug)]
pub struct TalkPlan {
    /// The host that opens it.
    pub from: usize,
    /// Over IPv4, or IPv6.
    pub v4: bool,
    /// The lane that opens it.
    pub lane: usize,
    /// The port that it goes to.
    pub port: u16,
    /// When.
    pub at_us: u64,
    /// Both ends; the opener's first.
    pub ends: [EndPlan; 2],
}

/// An attacker who sees everything and is just beyond what TCP must withstand: at these times he forges one segment.
pub type AttackPlan = Vec<u64>;

/// Everything that the seed decides.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed.
    pub seed: u64,
    /// What it is about.
    pub kind: &'static str,
    /// Ethernet or bare IP.
    pub medium: Medium,
    /// The two hosts.
    pub hosts: [HostPlan; 2],
    /// What lies between them.
    pub path: PathPlan,
    /// Who listens.
    pub listeners: Vec<ListenPlan>,
    /// Who talks.
    pub talks: Vec<TalkPlan>,
    /// Two conversations that meet in the middle: a simultaneous open.
    pub crossing: bool,
    /// When the attacker strikes.
    pub attacks: AttackPlan,
    /// Virtual time in which everything must be over.
    pub limit_us: u64,
}

const BUDGET: u64 = 600_000;
/// Packets of a flood; beyond it, it is a great one.
const FLOOD_MOST: u64 = 720;

impl Scenario {
    /// Whether no frame of a flow overtakes another within a host, from lane to lane.
    pub fn is_steered(&self) -> bool {
        self.hosts.iter().all(|host| host.astray == 0)
    }

    /// The scenario of a seed.
    pub fn from_seed(seed: u64) -> Self {
        let mut dice = Dice::new(seed, "scenario");
        let kind = dice.pick(&[
            "plain",
            "plain",
            "bulk",
            "lossy",
            "lossy",
            "lossy",
            "crowd",
            "ports",
            "crossing",
            "narrow",
            "zero-window",
            "listeners",
            "flood",
            "attack",
            "attack",
            "attack-lossy",
            "blackout",
            "rude",
            "rude-lossy",
            "idle",
            "memory",
        ]);
        let medium = if dice.chance(300) { Medium::Ethernet } else { Medium::Ip };
        let mut path = path(&mut dice, kind, medium);
        let mut hosts = [host(&mut dice, kind, &path), host(&mut dice, kind, &path)];
        hosts[1].config.tcp.msl_us = hosts[0].config.tcp.msl_us;
        if hosts[0].mtu != hosts[1].mtu {
            // One link, one MTU; what differs is what a router in between lets through.
            hosts[1].mtu = hosts[0].mtu;
        }
        let crossing = kind == "crossing";
        let timestamps = hosts.iter().all(|h| h.config.tcp.tcp_timestamps);
        let mut listeners = listeners(&mut dice, kind);
        let mut talks = Vec::new();
        let count = match kind {
            "plain" => dice.between(1, 8),
            "bulk" => dice.between(1, 2),
            "crowd" => dice.between(20, 120),
            "ports" => dice.between(10, 40),
            "crossing" => 1,
            "zero-window" | "narrow" | "idle" => dice.between(1, 4),
            "flood" => dice.between(4, 20),
            _ => dice.between(1, 12),
        };
        let v4_only = dice.pick(&[Some(true), Some(true), Some(false), None]);
        let mut start = 0;
        let mut budget = BUDGET;
        for _ in 0..count {
            let from = if kind == "ports" { 0 } else { dice.below(2) as usize };
            let to: Vec<u16> = listeners.iter().filter(|l| l.host != from).map(|l| l.port).collect();
            start += match kind {
                "ports" => dice.magnitude(1, 3 * SECOND),
                "crowd" => dice.below(5 * MS),
                _ => dice.magnitude(1, SECOND) - 1,
            };
            let ends = ends(&mut dice, kind, &path, timestamps, budget / 4);
            let total = ends[0].bytes + ends[1].bytes;
            budget = budget.saturating_sub(total).max(2_000);
            talks.push(TalkPlan {
                from,
                v4: v4_only.unwrap_or_else(|| dice.chance(500)),
                lane: dice.next() as usize,
                port: dice.pick(&to),
                at_us: start,
                ends,
            });
        }
        if crossing {
            // Each host has one port, and calls the other's: the two SYNs may meet.
            let ports = [5_000, 6_000];
            for (host, port) in hosts.iter_mut().zip(ports) {
                host.config.ip_local_port_range = (port, port);
                host.lanes = 1;
            }
            let mut other = talks[0].clone();
            talks[0].from = 0;
            talks[0].port = ports[1];
            other.from = 1;
            other.port = ports[0];
            other.at_us = talks[0].at_us + dice.below(2 * path.delay_us.max(1));
            other.ends.reverse();
            talks.push(other);
            listeners.clear();
        }
        let end = talks.last().map_or(0, |t| t.at_us);
        if let Some((from, until)) = &mut path.blackout {
            *from = dice.between(0, end + SECOND);
            *until = *from + dice.magnitude(100 * MS, 300 * SECOND);
        }
        // From dice of their own, so that a seed means what it meant before there were super-segments.
        let mut dice_of_segments = Dice::new(seed, "segments");
        for host in &mut hosts {
            host.segmentation = dice_of_segments.pick(&[
                Segmentation::None,
                Segmentation::Cuts,
                Segmentation::CutsAndMerges,
                Segmentation::CutsAndMerges,
            ]);
            if host.segmentation != Segmentation::None {
                host.offload = true;
                host.config.software_checksums = false;
                host.ring_bytes = host.ring_bytes.max(1 << 19);
            }
        }
        for end in talks.iter_mut().flat_map(|talk| &mut talk.ends) {
            end.gathering = dice_of_segments.pick(&[
                Gathering::Plain,
                Gathering::Plain,
                Gathering::Plain,
                Gathering::More,
                Gathering::Corked,
            ]);
        }
        // Likewise.
        let (mut dice_of_buffers, mut dice_of_lowat) = (Dice::new(seed, "buffers"), Dice::new(seed, "lowat"));
        for end in talks.iter_mut().flat_map(|talk| &mut talk.ends) {
            let dice = &mut dice_of_buffers;
            end.buffers = dice.chance(200).then(|| Buffers {
                after: dice.below(end.bytes + 1),
                send: dice.magnitude(2_304, 300_000) as u32,
                notsent_lowat: if dice_of_lowat.chance(500) { dice_of_lowat.magnitude(1, 300_000) as u32 } else { 0 },
                receive: dice.magnitude(4 * hosts[0].mtu as u64 + 128, 300_000) as u32,
                quickack: dice.chance(500),
            });
        }
        let mut dice_of_gates = Dice::new(seed, "gates");
        for host in hosts.iter_mut().filter(|host| kind == "flood" || host.config.tcp_max_syn_backlog < 3) {
            host.gated = dice_of_gates.chance(500);
        }
        let mut dice_of_holes = Dice::new(seed, "holes");
        path.silent = path.narrow.is_some() && dice_of_holes.chance(500);
        for host in &mut hosts {
            host.config.tcp.tcp_mtu_probing = path.silent || dice_of_holes.chance(500);
        }
        let mut dice_of_marks = Dice::new(seed, "marks");
        for host in &mut hosts {
            host.config.tcp.tcp_ecn = dice_of_marks.pick(&[0, 1, 1, 2]);
        }
        if dice_of_marks.chance(300) {
            path.mark = dice_of_marks.pick(&[10, 100, 1_000]);
        }
        let mut dice_of_pieces = Dice::new(seed, "pieces");
        if dice_of_pieces.chance(100) {
            path.split = dice_of_pieces.pick(&[10, 300, 1_000]);
        }
        let mut dice_of_lanes = Dice::new(seed, "lanes");
        for host in hosts.iter_mut().filter(|host| host.lanes > 1) {
            host.uneven = dice_of_lanes.chance(500);
            host.astray = dice_of_lanes.pick(&[0, 0, 0, 100, 1_000]);
            let many = dice_of_lanes.pick(&[0, 0, 20, 200]);
            let mut a_move = || {
                let at_us = dice_of_lanes.below(end + SECOND);
                (at_us, dice_of_lanes.below(BUCKETS as u64) as usize, dice_of_lanes.below(host.lanes as u64) as usize)
            };
            host.moves = (0..many).map(|_| a_move()).collect();
            host.moves.sort_unstable();
        }
        let attacks = if kind.starts_with("attack") {
            let many = dice.between(5, 60);
            let mut at: Vec<u64> = (0..many).map(|_| dice.below(end + 3 * path.delay_us + 300 * MS)).collect();
            at.sort_unstable();
            at
        } else {
            Vec::new()
        };
        // What follows a cookie may overtake the ACK that brings it back, and is refused; then that ACK lets the acceptor in, to wait for an
        // opener who was reset. Nothing but keepalive tells it.
        let is_orderly = path.is_orderly() && hosts.iter().all(|host| host.astray == 0);
        if !is_orderly && hosts.iter().any(|host| host.config.tcp_max_syn_backlog < talks.len()) {
            talks.iter_mut().flat_map(|talk| &mut talk.ends).for_each(|end| end.keepalive = true);
        }
        Scenario { seed, kind, medium, hosts, path, listeners, talks, crossing, attacks, limit_us: 4 * 3_600 * SECOND }
    }
}

fn path(dice: &mut Dice, kind: &str, medium: Medium) -> PathPlan {
    let mut path = PathPlan { delay_us: dice.magnitude(1, 100 * MS), ..PathPlan::default() };
    if dice.chance(100) {
        path.delay_us = 0;
    }
    if dice.chance(300) {
        path.jitter_us = dice.magnitude(1, path.delay_us + 1);
    }
    let lossy = matches!(kind, "lossy" | "attack-lossy" | "rude-lossy" | "crossing" | "blackout")
        || (matches!(kind, "ports" | "flood" | "zero-window" | "narrow" | "idle" | "crowd") && dice.chance(300));
    if lossy {
        if dice.chance(800) {
            let most = dice.pick(&[10, 50, 100, 200, 300]);
            path.drop = [dice.below(most + 1), dice.below(most + 1)];
        }
        if dice.chance(500) {
            path.reorder = dice.pick(&[10, 100, 500]);
            path.reorder_us = dice.magnitude(10, 100 * MS);
        }
        if dice.chance(400) {
            path.duplicate = dice.pick(&[10, 100, 500]);
            path.duplicate_us = dice.magnitude(1, 100 * MS);
        }
        if dice.chance(400) {
            path.corrupt = dice.pick(&[1, 10, 50]);
        }
    }
    if kind == "bulk" || dice.chance(100) {
        let speed = dice.magnitude(2_000_000, 1_000_000_000);
        path.bottleneck = Some((speed, dice.magnitude(16_000, 1 << 20)));
    }
    if kind == "narrow" {
        path.narrow = Some((dice.between(1_280, 1_450) as usize, dice.pick(&[0, 0, 50 * MS])));
    }
    if kind == "blackout" {
        path.blackout = Some((0, 0));
    }
    if kind == "flood" {
        let (host, from_us) = (dice.below(2) as usize, dice.below(100 * MS));
        let (every_us, count) = (dice.magnitude(20, 5 * MS), dice.between(50, 800));
        path.flood = Some(if count > FLOOD_MOST {
            // More than a lane hears, and too many at once for it to have time between them, so that it turns strangers away.
            FloodPlan { host, from_us, every_us, bunch: 1_000 + every_us % 1_000, count: 40 * count }
        } else {
            FloodPlan { host, from_us, every_us, bunch: 1, count }
        });
    }
    let _ = medium;
    path
}

fn host(dice: &mut Dice, kind: &str, path: &PathPlan) -> HostPlan {
    let mut config = Config { connections: 64, ..Config::default() };
    let tcp = &mut config.tcp;
    tcp.msl_us = dice.pick(&[500 * MS, SECOND, 2 * SECOND]);
    tcp.tcp_window_scaling = dice.chance(800);
    tcp.tcp_timestamps = dice.chance(700);
    tcp.tcp_sack = dice.chance(700);
    tcp.tcp_congestion_control = dice.pick(&[Algorithm::Cubic, Algorithm::Reno]);
    tcp.delayed_ack_us = dice.pick(&[0, MS, 40 * MS, 200 * MS]);
    tcp.quick_acks = dice.pick(&[0, 1, 16]);
    tcp.tcp_syn_retries = dice.pick(&[3, 6]);
    tcp.tcp_synack_retries = dice.pick(&[2, 5]);
    tcp.tcp_retries2 = dice.pick(&[8, 15]);
    tcp.tcp_fin_timeout_us = dice.pick(&[5 * SECOND, 60 * SECOND]);
    tcp.tcp_keepalive_time_us = dice.pick(&[5 * SECOND, 60 * SECOND]);
    tcp.tcp_keepalive_intvl_us = dice.pick(&[SECOND, 15 * SECOND]);
    tcp.tcp_keepalive_probes = dice.pick(&[5, 9]);
    tcp.tcp_invalid_ratelimit_us = dice.pick(&[0, 500 * MS]);
    let small = kind == "zero-window" || dice.chance(250);
    if small {
        let least = dice.magnitude(1_000, 65_535) as u32;
        tcp.tcp_rmem = (least, least.max(dice.magnitude(1_000, 300_000) as u32));
    }
    if dice.chance(250) {
        tcp.tcp_wmem = dice.magnitude(1_000, 200_000) as u32;
    }
    config.tcp_tw_reuse_delay_ms = dice.pick(&[1, 100, 1_000]);
    if kind == "ports" {
        let first = dice.between(20_000, 50_000) as u16;
        config.ip_local_port_range = (first, first + dice.between(0, 6) as u16);
    }
    if kind == "flood" {
        config.tcp_max_syn_backlog = dice.pick(&[0, 1, 64, 4_096]);
    } else if dice.chance(50) {
        config.tcp_max_syn_backlog = dice.below(3) as usize;
    }
    if kind == "memory" {
        config.lane_mem = dice.magnitude(8_192, 262_144) as usize;
    }
    if kind == "crowd" && dice.chance(300) {
        config.tcp_max_tw_buckets = dice.between(1, 20) as usize;
    }
    config.connections = dice.pick(&[1, 64]);
    config.software_checksums = dice.chance(200);
    let mtu =
        if kind == "narrow" || dice.chance(700) { 1_500 } else { dice.pick(&[1_280, 1_281, 1_400, 4_000, 9_000]) };
    HostPlan {
        config,
        lanes: if kind == "ports" { 1 } else { dice.pick(&[1, 1, 2, 4]) },
        mtu,
        offload: dice.chance(300),
        segmentation: Segmentation::None,
        ring_bytes: if dice.chance(200) && path.flood.is_none() { 1 << 16 } else { 1 << 18 },
        poll_delay_us: dice.pick(&[0, 0, 10, 1_000]),
        uneven: false,
        astray: 0,
        gated: false,
        moves: Vec::new(),
    }
}

fn listeners(dice: &mut Dice, kind: &str) -> Vec<ListenPlan> {
    let mut all = Vec::new();
    for host in 0..2 {
        for port in [80, 81] {
            let mut plan = ListenPlan { host, port, backlog: 128, from_us: 0, until_us: u64::MAX, accept_delay_us: 0 };
            if kind == "listeners" {
                plan.from_us = if dice.chance(500) { 0 } else { dice.below(2 * SECOND) };
                if dice.chance(500) {
                    plan.until_us = plan.from_us + dice.magnitude(MS, 4 * SECOND);
                }
                plan.backlog = dice.pick(&[1, 128]);
            }
            if kind == "listeners" || dice.chance(100) {
                plan.accept_delay_us = dice.magnitude(1, SECOND);
            }
            all.push(plan);
        }
    }
    all
}

fn ends(dice: &mut Dice, kind: &str, path: &PathPlan, timestamps: bool, most: u64) -> [EndPlan; 2] {
    let most = if kind == "bulk" { 1 << 20 } else { most };
    let rude = kind.starts_with("rude") || kind == "attack-lossy" || (kind == "ports" && timestamps);
    let unsure = path.is_lossy()
        || path.narrow.is_some()
        || path.flood.is_some()
        || rude
        || kind == "listeners"
        || kind == "memory"
        || kind == "idle";
    let mut ends = [end(dice, kind, most, unsure), end(dice, kind, most, unsure)];
    if path.flood.is_some() || kind == "crossing" {
        // After a cookie only the opener's own bytes tell the listener that it is there.
        ends[0].bytes = ends[0].bytes.max(1);
    }
    // Each in turn: requests and responses.
    if dice.chance(300) && ends.iter().all(|e| e.bytes > 0) && kind != "crossing" {
        let rounds = dice.between(1, 20);
        let sizes = [dice.magnitude(1, 4_000), dice.magnitude(1, 4_000)];
        for i in 0..2 {
            ends[i].piece = sizes[i];
            ends[i].bytes = sizes[i] * rounds;
            ends[i].in_turn = Some(sizes[1 - i]);
        }
    }
    // Somebody has to end it.
    if ends.iter().all(|e| e.ending == Ending::AfterPeer) {
        ends[dice.below(2) as usize].ending = Ending::HalfClose;
    }
    // Closing while the peer still talks ends in a reset; that is for the rude.
    for i in 0..2 {
        if ends[i].ending == Ending::Close && !rude && (ends[1 - i].bytes > 0 || ends[i].in_turn.is_some()) {
            ends[i].ending = Ending::HalfClose;
        }
        if rude && dice.chance(150) {
            let all = ends[0].bytes + ends[1].bytes;
            ends[i].ending = Ending::Abort(dice.below(all + 1));
        }
    }
    ends
}

fn end(dice: &mut Dice, kind: &str, most: u64, unsure: bool) -> EndPlan {
    let bytes = match dice.below(10) {
        0..=1 => 0,
        2..=4 => dice.magnitude(1, 1_000.min(most)),
        5..=8 => dice.magnitude(1, 30_000.min(most)),
        _ => dice.magnitude(1, most),
    };
    let bytes = if kind == "bulk" { dice.magnitude(100_000, most) } else { bytes };
    let piece = if dice.chance(500) { bytes.max(1) } else { dice.magnitude(bytes / 200 + 1, bytes.max(2)) };
    let pause_us = match kind {
        "idle" => dice.magnitude(MS, 200 * SECOND),
        _ if dice.chance(700) => 0,
        _ => dice.magnitude(1, 50 * MS),
    };
    let reading = match (kind, dice.below(10)) {
        ("zero-window", 0..=3) => Reading::Stall(dice.below(bytes + 1), dice.magnitude(MS, 100 * SECOND)),
        ("zero-window", _) => {
            Reading::Trickle(dice.magnitude(most.min(500_000) / 300 + 1, 20_000), dice.magnitude(1, 300 * MS))
        }
        (_, 0..=6) => Reading::Eager,
        (_, 7) => Reading::Trickle(dice.magnitude(most / 300 + 1, most), dice.magnitude(1, 20 * MS)),
        (_, 8) => Reading::Stall(dice.below(bytes + 1), dice.magnitude(1, 3 * SECOND)),
        _ => Reading::Copy(dice.magnitude(1, 10 * MS)),
    };
    EndPlan {
        bytes,
        piece: piece.max(if kind == "idle" { bytes / 8 + 1 } else { 1 }),
        pause_us,
        in_turn: None,
        reading,
        ending: match dice.below(10) {
            0..=4 => Ending::HalfClose,
            5..=6 => Ending::Close,
            _ => Ending::AfterPeer,
        },
        nodelay: dice.chance(300),
        gathering: Gathering::Plain,
        keepalive: unsure || dice.chance(200),
        user_timeout_ms: if kind == "blackout" && dice.chance(300) { dice.between(1_000, 30_000) as u32 } else { 0 },
        buffers: None,
    }
}
