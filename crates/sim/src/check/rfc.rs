//! Property: what stands on the wire is what RFC 9293 and its companions allow, whatever the network does.
//!
//! The watcher sees each frame twice: when a host sends it, and when one reaches a host. So it knows what a sender can
//! know, and judges by that alone. Of each flow it keeps the present conversation and the one before.

use super::loss::{Heard, Repair, Sent};
use super::silly::Told;
use super::sought::Sought;
use crate::packet::Seen;
use crate::scenario::Scenario;
use laneway_proto::tcp::congestion::Algorithm;
use laneway_wire::flow::FlowKey;
use laneway_wire::tcp::{Segment, SeqNum, SeqRange, Timestamps};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Polls and timers may be so late.
const LATE_US: u64 = 20_000;
/// Records begin and end by a clock of milliseconds.
const TICK_US: u64 = 1_000;
/// No retransmission timer may be shorter: the floor, less one tick.
const RTO_LEAST_US: u64 = 198_000;

/// What a SYN offered.
#[derive(Clone, Copy, Debug, Default)]
struct Offer {
    mss: u32,
    scale: Option<u8>,
    sack: bool,
    timestamps: bool,
}

/// Bytes of a stream that have reached the other host, as offsets from the SYN.
#[derive(Clone, Debug, Default)]
struct Arrived {
    /// Everything below has.
    contiguous: u32,
    /// Beyond that: start to end, disjoint and not adjacent.
    early: BTreeMap<u32, u32>,
}

impl Arrived {
    fn add(&mut self, mut start: u32, mut end: u32) {
        while let Some((&s, &e)) = self.early.range(..=end).next_back()
            && e >= start
        {
            self.early.remove(&s);
            start = start.min(s);
            end = end.max(e);
        }
        if start <= self.contiguous {
            self.contiguous = self.contiguous.max(end);
            while let Some((&s, &e)) = self.early.first_key_value()
                && s <= self.contiguous
            {
                self.contiguous = self.contiguous.max(e);
                self.early.remove(&s);
            }
        } else {
            self.early.insert(start, end);
        }
    }

    fn has(&self, start: u32, end: u32) -> bool {
        end <= self.contiguous || self.early.range(..=start).next_back().is_some_and(|(_, e)| *e >= end)
    }
}

/// What one host has said on a flow, and what of it has been heard.
#[derive(Clone, Debug)]
struct Half {
    iss: SeqNum,
    offer: Offer,
    /// One past the last sequence number sent.
    top: SeqNum,
    /// Where the FIN is.
    fin: Option<SeqNum>,
    /// Highest right edge that it has advertised.
    edge: Option<SeqNum>,
    /// Highest acknowledgement that it has sent.
    acked: Option<SeqNum>,
    /// Latest timestamp that it has sent, and the latest that has reached the other.
    ts_sent: Option<u32>,
    ts_first: Option<u32>,
    ts_arrived: Option<u32>,
    /// What has reached the other.
    arrived: Arrived,
    /// Right edge and acknowledgement, as far as this host can know of the other's.
    may_send_to: Option<SeqNum>,
    una: SeqNum,
    /// When that moved last.
    una_us: u64,
    /// How many segments have reached it that acknowledge this, and when the last three of them that say nothing else.
    says_una: u32,
    repeats_us: [Option<u64>; 3],
    /// Right edge by the last that it heard: it may have been taken back, or seem so to who hears an old segment last.
    last_edge: Option<SeqNum>,
    /// Segments of this flow that have reached this host.
    heard: u64,
    /// It has sent something without SYN.
    talks: bool,
    /// Its SYN-ACK has reached the opener, who believes in the first one.
    answered: bool,
    /// Another SYN-ACK that has reached the opener, whose lanes may hand on to each other what comes first, and so see it last.
    rival: Option<Box<Half>>,
    /// Its SYN-ACK was a cookie, which a late ACK has brought back after the flow was taken again.
    revived: bool,
    /// It owes an acknowledgement since then.
    owes_since_us: Option<u64>,
    /// The last retransmission of what is oldest: which, when, how long after the one before, what was heard by then.
    again: Option<Again>,
    /// When it first acknowledged the peer's FIN: it is in TIME_WAIT then, or will be.
    fin_heard_us: Option<u64>,
    /// Segments heard when the first text was sent.
    heard_at_first: Option<u64>,
    /// It has sent an RST.
    reset: bool,
    /// An RST has reached it.
    ended: bool,
    /// Its FIN went out before the peer's was acknowledged: it will keep TIME_WAIT.
    closes_first: bool,
    /// The largest text that it has sent in a segment, with the options.
    widest: u32,
    /// What it does about losses.
    repair: Repair,
    /// What it tells of its window.
    told: Told,
    /// The other's TS.Recent (RFC 7323 section 4.3), up to when it acknowledges the FIN.
    ts_recent: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Again {
    seq: SeqNum,
    at_us: u64,
    /// The timer was started with it: it was the first in flight, or it was the timer that sent it.
    timed: bool,
    /// Since the one before, which the timer had sent too.
    gap_us: Option<u64>,
    heard: u64,
}

impl Half {
    fn new(seg: &Segment<'_>, v4: bool) -> Self {
        let options = &seg.options;
        Half {
            iss: seg.seq,
            offer: Offer {
                mss: options.mss.map_or(if v4 { 536 } else { 1_220 }, u32::from),
                scale: options.window_scale.map(|s| s.get()),
                sack: options.sack_permitted,
                timestamps: options.timestamps.is_some(),
            },
            top: seg.seq + 1,
            fin: None,
            edge: None,
            acked: None,
            ts_sent: None,
            ts_first: options.timestamps.map(|ts| ts.val),
            ts_arrived: None,
            arrived: Arrived::default(),
            may_send_to: None,
            una: seg.seq,
            una_us: 0,
            says_una: 0,
            repeats_us: [None; 3],
            last_edge: None,
            heard: 0,
            talks: false,
            answered: false,
            rival: None,
            revived: false,
            owes_since_us: None,
            again: None,
            fin_heard_us: None,
            heard_at_first: None,
            reset: false,
            ended: false,
            closes_first: false,
            widest: 0,
            repair: Repair::default(),
            told: Told::new(seg),
            ts_recent: options.timestamps.map(|ts| ts.val),
        }
    }

    /// A sequence number of this stream as an offset from the SYN; `None` if it cannot be of it.
    fn offset(&self, seq: SeqNum) -> Option<u32> {
        let offset = seq.offset_from(self.iss);
        (offset >= 0 && seq.at_or_before(self.top)).then_some(offset as u32)
    }

    fn arrived_to(&self) -> SeqNum {
        self.iss + self.arrived.contiguous
    }
}

type Halves = [Option<Half>; 2];

/// One 4-tuple.
#[derive(Default)]
struct Flow {
    now: Halves,
    before: Halves,
    /// The conversations that these are.
    talk_now: Option<usize>,
    talk_before: Option<usize>,
    /// A half-open entry that an old duplicate of a SYN has made at this host: nobody will ever complete it.
    ghost: [Option<SeqNum>; 2],
    /// What has lately reached each host: acknowledgement, and end, as a reset would have to quote them.
    lately: [VecDeque<(Option<SeqNum>, SeqNum)>; 2],
}

/// What a host says in a conversation: from which byte, and how many.
pub type Said<'a> = &'a dyn Fn(usize, u64, u64) -> Vec<u8>;

/// What else there is to know of a segment that a host sends.
struct Cx {
    now_us: u64,
    icmp: u64,
    /// An ICMP message may have asked for it.
    asked: bool,
    algorithm: Algorithm,
    /// See [`Rfc`].
    orderly: bool,
    /// See [`Rfc`].
    astray: Option<u64>,
    /// See [`Rfc`].
    mtu: u32,
}

/// The watcher.
pub struct Rfc {
    flows: HashMap<FlowKey, Flow>,
    msl_us: u64,
    /// Text in order must be acknowledged within this time: what each host is set to, which is at most what
    /// RFC 9293 section 3.8.6.3 allows.
    ack_within_us: [u64; 2],
    /// ICMP messages that have reached each host, and when the last one was: they may make it send again.
    icmp: [(u64, u64); 2],
    sought: Sought,
    owing: Vec<FlowKey>,
    /// How late each host's polls may be.
    late_us: [u64; 2],
    algorithm: [Algorithm; 2],
    /// Nothing overtakes or is forged.
    orderly: bool,
    /// What reaches a host may come to another lane than its flow's, and is taken in only after what that lane sends next: at most so much
    /// later.
    astray: [Option<u64>; 2],
    /// No link between the hosts takes less.
    mtu: u32,
    /// A host forgets no TIME-WAIT before its time.
    patient: [bool; 2],
    /// Never twice the same.
    sent: u64,
}

fn both(halves: &Halves) -> Option<(&Half, &Half)> {
    Some((halves[0].as_ref()?, halves[1].as_ref()?))
}

impl Rfc {
    /// Nothing seen yet, of a world like this.
    pub fn new(scenario: &Scenario) -> Self {
        let hosts = &scenario.hosts;
        let late_us = [0, 1].map(|h| hosts[h].poll_delay_us + LATE_US);
        let ack_within_us = [0, 1].map(|h| hosts[h].config.tcp.delayed_ack_us.min(500_000) + late_us[h]);
        let msl_us = hosts[0].config.tcp.msl_us;
        let path = &scenario.path;
        Rfc {
            flows: HashMap::new(),
            msl_us,
            ack_within_us,
            icmp: [(0, 0); 2],
            sought: Sought::default(),
            owing: Vec::new(),
            late_us,
            algorithm: [0, 1].map(|h| hosts[h].config.tcp.tcp_congestion_control),
            orderly: path.reorder == 0 && path.duplicate == 0 && scenario.is_steered() && scenario.attacks.is_empty(),
            astray: [0, 1].map(|h| (hosts[h].astray > 0).then_some(2 * hosts[h].poll_delay_us + TICK_US)),
            mtu: path.narrow.map_or(u32::MAX, |(mtu, _)| mtu as u32),
            patient: [0, 1].map(|h| hosts[h].config.tcp_max_tw_buckets > 1_000 && scenario.kind != "memory"),
            sent: 1 << 32,
        }
    }

    /// The flow as host 0 sees it.
    fn name(host: usize, key: &FlowKey) -> FlowKey {
        if host == 0 { *key } else { key.reversed() }
    }

    /// A host sends something other than TCP.
    pub fn on_other_sent(&mut self, host: usize, frame: &[u8]) {
        self.sought.on_sent(host, frame);
    }

    /// Something other than TCP has reached a host.
    pub fn on_other_arrived(&mut self, host: usize, now_us: u64, frame: &[u8]) {
        self.icmp[host] = (self.icmp[host].0 + 1, now_us);
        self.sought.on_arrived(host, now_us, frame);
    }

    /// A host sends a segment. `talk`: what the flow is used for now.
    pub fn on_sent(
        &mut self,
        host: usize,
        now_us: u64,
        seen: &Seen<'_>,
        talk: Option<usize>,
        said: Said<'_>,
    ) -> Option<String> {
        // What comes within the same polls as an ICMP message may be its doing.
        let (count, at_us) = self.icmp[host];
        let icmp = if now_us < at_us + 5_000 { self.sent } else { count };
        self.sent += 1 << 32;
        let v4 = seen.key.is_v4();
        let flow = self.flows.entry(Self::name(host, &seen.key)).or_default();
        let seg = &seen.seg;
        if seg.flags.rst() {
            return on_reset(flow, host, seg);
        }
        if seg.flags.syn() {
            let msl_us = self.msl_us;
            let woken = seg.flags.ack() && self.patient[host];
            let found = woken.then(|| on_wake(flow, host, now_us, seg, msl_us)).flatten();
            // A cookie's timestamp carries options in its low bits, and is a little older for it. And what waits for the neighbour at several lanes may
            // go out in another order.
            let waited = now_us <= self.sought.answered_us(host) + self.late_us[host];
            let slack = 64 + if waited { 5_000 } else { 0 };
            let found = found.or(on_syn(flow, (host, now_us), seg, v4, msl_us, slack));
            if !seg.flags.ack() {
                flow.talk_now = talk;
            }
            return found;
        }
        if !seg.flags.ack() {
            return Some("neither SYN nor RST nor ACK".into());
        }
        if seg.seq_len() == 0 && flow.ghost[host].is_some_and(|iss| seg.seq == iss + 1) {
            return None;
        }
        // A cookie that comes back a second time makes a connection that stands where the first one began.
        let is_second = |half: &Half| half.iss + 1 == seg.seq && (half.ended || half.reset || half.fin.is_some());
        if seg.seq_len() == 0
            && let Some(me) = flow.now[host].as_mut().filter(|half| is_second(half))
        {
            me.owes_since_us = None;
            return None;
        }
        let revived = is_revived(flow, host, seg);
        let (halves, talk) = if flow.now[host].is_some() && !revived {
            (&mut flow.now, flow.talk_now)
        } else {
            (&mut flow.before, flow.talk_before)
        };
        let [a, b] = halves;
        let (me, peer) = if host == 0 { (a, b) } else { (b, a) };
        let me = me.as_mut()?;
        if let Some(rival) = peer.as_mut().and_then(|peer| peer.rival.take())
            && !me.talks
            && seg.ack == rival.iss + 1
        {
            *peer = Some(*rival);
        }
        me.talks = true;
        me.revived |= revived;
        me.owes_since_us = None;
        let peer = peer.as_ref()?;
        let stream = |from: usize, len: u64| talk.map(|talk| said(talk, from as u64, len));
        let (algorithm, orderly, astray) = (self.algorithm[host], self.orderly, self.astray[host]);
        let cx = Cx { now_us, icmp, asked: icmp >= 1 << 32, algorithm, orderly, astray, mtu: self.mtu };
        let found = on_segment(me, peer, &cx, seg, &stream);
        if peer.fin.is_some_and(|fin| seg.ack.after(fin)) {
            me.fin_heard_us.get_or_insert(now_us);
        }
        found
    }

    /// A segment reaches a host; it may be old, or forged.
    pub fn on_arrived(&mut self, host: usize, now_us: u64, seen: &Seen<'_>) -> Option<String> {
        let name = Self::name(host, &seen.key.reversed());
        let flow = self.flows.entry(name).or_default();
        let seg = &seen.seg;
        let lately = &mut flow.lately[host];
        lately.push_back((seg.flags.ack().then_some(seg.ack), seg.end()));
        if lately.len() > 64 {
            lately.pop_front();
        }
        if let Some(me) = &mut flow.now[host] {
            me.heard += 1;
        }
        if let Some(me) = &mut flow.before[host] {
            me.heard += 1;
        }
        let is_of = |halves: &Halves| halves[1 - host].as_ref().is_some_and(|peer| peer.offset(seg.seq).is_some());
        let late = !is_of(&flow.now) && is_of(&flow.before);
        let [a, b] = if late { &mut flow.before } else { &mut flow.now };
        let (me, peer) = if host == 0 { (a, b) } else { (b, a) };
        if seg.flags.rst() {
            // It may be the end, and then nothing is owed any more.
            if let Some(me) = me {
                me.owes_since_us = None;
                me.ended = true;
            }
            return None;
        }
        let peer = peer.as_mut()?;
        // A SYN may have two answers, one of them a cookie. Its opener believes in the one that comes first.
        if let Some(me) = me.as_mut()
            && seg.flags.syn()
            && seg.flags.ack()
            && !me.talks
            && seg.ack == me.iss + 1
        {
            if !peer.answered {
                if seg.seq != peer.iss {
                    *peer = Half::new(seg, seen.key.is_v4());
                }
                peer.answered = true;
            } else if seg.seq != peer.iss && self.astray[host].is_some() {
                let mut rival = Half::new(seg, seen.key.is_v4());
                (rival.answered, rival.ts_arrived) = (true, rival.ts_first);
                rival.arrived.add(0, 1);
                peer.rival = Some(Box::new(rival));
            }
        }
        let start = peer.offset(seg.seq)?;
        let end = peer.offset(seg.end())?;
        if seg.flags.syn() && start != 0 {
            return None;
        }
        let before = peer.arrived.contiguous;
        let newest = peer.arrived.early.last_key_value().map_or(before, |(_, end)| *end);
        peer.arrived.add(start, end);
        //= https://www.rfc-editor.org/rfc/rfc7323#section-4.3
        //# (2)  If: SEG.TSval >= TS.Recent and SEG.SEQ <= Last.ACK.sent, then SEG.TSval is copied to TS.Recent; otherwise, it is ignored.
        if let (Some(ts), Some(last)) = (seg.options.timestamps, &mut peer.ts_recent)
            && (ts.val.wrapping_sub(*last) as i32) > 0
            && me.as_ref().is_some_and(|me| {
                me.fin_heard_us.is_none() && me.acked.is_some_and(|acked| seg.seq.at_or_before(acked))
            })
        {
            *last = ts.val;
        }
        if let Some(ts) = seg.options.timestamps
            && peer.ts_arrived.is_none_or(|last| ts.val.wrapping_sub(last) as i32 > 0)
        {
            peer.ts_arrived = Some(ts.val);
        }
        let Some(me) = me else { return None };
        // What comes a second time, or to another lane, teaches it nothing.
        if !seg.payload.is_empty() {
            me.told.on_text(seg, self.orderly && !late && start >= newest);
        }
        // The peer's window, as this host now can know it.
        let scale = match (seg.flags.syn(), me.offer.scale, peer.offer.scale) {
            (false, Some(_), Some(scale)) => scale,
            _ => 0,
        };
        let base = if seg.flags.ack() { seg.ack } else { me.iss + 1 };
        if me.offset(base).is_some() {
            let edge = base + (u32::from(seg.window.raw()) << scale);
            // (A keepalive probe stands before what is next, and is believed in nothing.)
            let bare = seg.seq_len() == 0 && me.may_send_to == Some(edge) && seg.seq.at_or_after(peer.arrived_to());
            me.may_send_to = Some(me.may_send_to.map_or(edge, |old| old.latest(edge)));
            let was = me.una;
            me.una = me.una.latest(base);
            me.last_edge = Some(edge);
            let moved = me.una != was;
            if moved {
                (me.una_us, me.says_una, me.repeats_us) = (now_us, 0, [None; 3]);
            }
            me.says_una += u32::from(base == me.una);
            // Which of those that say it is taken in first, and is no repetition then, is open where frames go astray.
            if base == me.una && (bare || moved && seg.seq_len() == 0) {
                me.repeats_us = [me.repeats_us[1], me.repeats_us[2], Some(now_us)];
            }
            if !late && !seg.flags.syn() {
                let sack = me.offer.sack && peer.offer.sack;
                let blocks = seg.options.sack.iter().filter(|block| block.start.after(me.una));
                let len = |block: SeqRange| block.end.offset_from(block.start).max(0) as u32;
                let total = |(bytes, count), block| (bytes + len(block), count + 1);
                let heard = Heard {
                    una: me.una,
                    was,
                    top: me.top,
                    ack: base,
                    sacked: sack.then(|| blocks.fold((0, 0), total)),
                    acceptable: end > before || seg.seq_len() == 0 && start >= before,
                    bare,
                    echo: seg.options.timestamps.map(|ts| ts.echo),
                    mss: peer.offer.mss,
                };
                me.repair.on_heard(&heard, now_us, self.orderly && !me.ended && !me.reset);
                if me.repair.known_since_us == Some(now_us) {
                    self.owing.push(name);
                }
            }
        }
        // Text with an acknowledgement that is too old need not be believed (RFC 5961 section 5.2).
        let fresh = seg.ack.at_or_after(me.una);
        if !late
            && fresh
            && peer.arrived.contiguous > before
            && !seg.payload.is_empty()
            && me.talks
            && !me.ended
            && me.fin.is_none()
            && me.owes_since_us.is_none()
        {
            me.owes_since_us = Some(now_us);
            self.owing.push(name);
        }
        None
    }

    /// A forged segment reaches a host: all that the watcher may conclude is that the host may answer.
    pub fn on_forged(&mut self, host: usize, seen: &Seen<'_>) {
        let name = Self::name(host, &seen.key.reversed());
        let flow = self.flows.entry(name).or_default();
        let seg = &seen.seg;
        flow.lately[host].push_back((seg.flags.ack().then_some(seg.ack), seg.end()));
        for halves in [&mut flow.now, &mut flow.before] {
            if let Some(me) = &mut halves[host] {
                me.heard += 1;
            }
        }
    }

    /// Time passes: who owes an acknowledgement for too long?
    pub fn on_time(&mut self, now_us: u64) -> Option<String> {
        let mut found = None;
        let (flows, within, sought) = (&mut self.flows, &self.ack_within_us, &self.sought);
        self.owing.retain(|name| {
            let Some(flow) = flows.get_mut(name) else { return false };
            let mut owes = false;
            for (host, me) in flow.now.iter_mut().enumerate() {
                let Some(me) = me.as_mut().filter(|me| !me.reset && !me.ended) else { continue };
                if sought.is_sought(host, if host == 0 { &name.remote } else { &name.local }) {
                    // It may have been said, and be lost with what waits for the neighbour.
                    (me.repair.known_since_us, me.owes_since_us) = (None, None);
                }
                if let Some(since) = me.repair.known_since_us {
                    owes = true;
                    if now_us > since + self.late_us[host] {
                        let una = me.una.raw();
                        found =
                            Some(format!("{name:?}: host {host} knows that {una} is lost, and does not send it again"));
                    }
                }
                let Some(since) = me.owes_since_us else { continue };
                owes = true;
                if now_us > since + within[host] {
                    found = Some(format!(
                        "{name:?}: host {host} has not acknowledged text for {} ms (RFC 9293 section 3.8.6.3)",
                        (now_us - since) / 1_000
                    ));
                }
            }
            owes
        });
        found
    }

    /// Bytes of text that have reached a host in order, and how many more it has told the peer that it takes. `None` once the peer's end
    /// is among them, or while what the host says may wait for its neighbour.
    pub fn open_window(&self, host: usize, key: &FlowKey) -> Option<(u64, u64)> {
        let flow = self.flows.get(&Self::name(host, key))?;
        let (me, peer) = (flow.now[host].as_ref()?, flow.now[1 - host].as_ref()?);
        if self.sought.is_sought(host, &key.remote) {
            return None;
        }
        // A keepalive probe of who has said nothing but FIN looks like a second cookie's, and what it says of the window is not noted.
        let clear = me.fin != Some(me.iss + 1) && !me.reset && !me.ended && !peer.reset;
        let edge = me.edge.filter(|_| me.talks && clear)?;
        let arrived = peer.arrived_to();
        if peer.fin.is_some_and(|fin| arrived.after(fin)) || peer.arrived.contiguous == 0 {
            return None;
        }
        Some((u64::from(peer.arrived.contiguous) - 1, edge.offset_from(arrived).max(0) as u64))
    }

    /// The first timestamp that a host has sent in a flow's present conversation, for forgeries.
    pub fn first_timestamp(&self, host: usize, key: &FlowKey) -> Option<u32> {
        self.flows.get(&Self::name(host, key))?.now[host].as_ref()?.ts_first
    }

    /// The latest timestamp of a host's present conversation that has reached the other, for forgeries.
    pub fn latest_timestamp(&self, host: usize, key: &FlowKey) -> Option<u32> {
        self.flows.get(&Self::name(host, key))?.now[host].as_ref()?.ts_arrived
    }

    /// Whether a flow's two ends use timestamps now.
    pub fn uses_timestamps(&self, host: usize, key: &FlowKey) -> bool {
        let flow = self.flows.get(&Self::name(host, key));
        flow.and_then(|f| both(&f.now)).is_some_and(|(a, b)| a.offer.timestamps && b.offer.timestamps)
    }
}

/// Whether a host says this in the use of a flow before this one. Who keeps nothing of the cookies that it sends (RFC 4987 section 3.6) cannot
/// know that the opener has given one up meanwhile, and has been sent another: the one whose ACK comes first begins a connection. That
/// can be only one of which nothing was said before the flow was taken again, and only while nothing is said in the present use.
fn is_revived(flow: &Flow, host: usize, seg: &Segment<'_>) -> bool {
    let (Some(now), Some(before)) = (&flow.now[host], &flow.before[host]) else { return false };
    let is_of = |half: &Half| half.offset(seg.seq).is_some_and(|offset| offset > 0);
    let answers = |half: &Half| half.acked.is_some() && !half.talks;
    (before.revived || answers(before)) && answers(now) && !is_of(now) && is_of(before)
}

/// A SYN is answered, and whoever answers it should be in TIME-WAIT: is it one that may end that?
fn on_wake(flow: &Flow, host: usize, now_us: u64, seg: &Segment<'_>, msl_us: u64) -> Option<String> {
    let halves = if flow.now[host].is_some() { &flow.now } else { &flow.before };
    let (me, peer) = (halves[host].as_ref()?, halves[1 - host].as_ref()?);
    let fin = me.fin.filter(|_| me.closes_first && !me.reset && !me.ended && !peer.reset)?;
    // It keeps time in milliseconds.
    let waits = |since_us: u64| now_us + 2_000 < since_us + 2 * msl_us;
    if !me.una.after(fin) || !me.fin_heard_us.is_some_and(waits) {
        return None;
    }
    let later = (seg.ack - 1).after(peer.top);
    let age = match (seg.options.timestamps, peer.ts_recent) {
        (Some(ts), Some(last)) if me.offer.timestamps && peer.offer.timestamps => ts.echo.wrapping_sub(last) as i32,
        _ => 0,
    };
    //= https://www.rfc-editor.org/rfc/rfc6191#section-2
    (age < 0 || (age == 0 && !later)).then(|| {
        let was = peer.top.raw();
        format!(
            "TIME-WAIT is given up for a SYN at {}, when {was} was heard before: {age} ms since",
            (seg.ack - 1).raw()
        )
    })
}

/// An RST must be where its receiver expects it, or quote what it answers (RFC 9293 section 3.5.3).
fn on_reset(flow: &mut Flow, host: usize, seg: &Segment<'_>) -> Option<String> {
    let answers = |(ack, end): &(Option<SeqNum>, SeqNum)| match ack {
        Some(ack) => seg.seq == *ack && !seg.flags.ack(),
        None => seg.seq.raw() == 0 && seg.flags.ack() && seg.ack == *end,
    };
    // At SND.NXT; which is the first again if a cookie has come back a second time. Or at the end of the window, if that lies before: what a
    // probe carried was refused, or the window was taken back.
    let refused = |h: &Half| h.last_edge == Some(seg.seq) && seg.seq.before(h.top);
    let ours =
        |half: &Option<Half>| half.as_ref().is_some_and(|h| seg.seq == h.top || seg.seq == h.iss + 1 || refused(h));
    // What is over here may begin again where an old acknowledgement stands that looks like a cookie's, and be given up there.
    let over = |half: &Half| half.ended || half.reset || half.fin.is_some();
    let was_over = flow.now[host].as_ref().is_some_and(over);
    let begun_again = |(ack, _): &(Option<SeqNum>, SeqNum)| seg.flags.ack() && *ack == Some(seg.seq);
    for halves in [&mut flow.now, &mut flow.before] {
        if let Some(me) = &mut halves[host] {
            me.owes_since_us = None;
            me.reset = true;
        }
    }
    if was_over && flow.lately[host].iter().any(begun_again) {
        return None;
    }
    if flow.lately[host].iter().any(answers) || ours(&flow.now[host]) || ours(&flow.before[host]) {
        return None;
    }
    Some(format!(
        "RST with seq {} answers nothing, and is not at {:?}",
        seg.seq.raw(),
        flow.now[host].as_ref().map(|h| h.top.raw())
    ))
}

fn on_syn(
    flow: &mut Flow,
    (host, now_us): (usize, u64),
    seg: &Segment<'_>,
    v4: bool,
    msl_us: u64,
    slack: i32,
) -> Option<String> {
    if !seg.payload.is_empty() || seg.flags.fin() {
        return Some("a SYN with text or FIN".into());
    }
    if seg.flags.ack() {
        // A SYN-ACK for what we know of; or for an old duplicate, which its receiver will refuse.
        let again = flow.now[host].as_ref().is_some_and(|old| old.iss != seg.seq);
        let believed = flow.now[host].as_ref().is_some_and(|old| old.answered);
        let settled = |peer: &Half| again && (peer.talks || believed);
        let known = flow.now[1 - host].as_ref().is_some_and(|peer| seg.ack == peer.iss + 1 && !settled(peer));
        if !known {
            flow.ghost[host] = Some(seg.seq);
            return None;
        }
    }
    let mut found = None;
    let fresh = match &flow.now[host] {
        None => true,
        // The same number again, unless the flow was given up and taken again within one tick of the clock of numbers.
        Some(old) if old.iss == seg.seq && (seg.flags.ack() || !old.talks) => false,
        // Cookies and forgotten half-open entries: another number for the same SYN, before anything was said.
        Some(old) if seg.flags.ack() && old.top == old.iss + 1 && !old.talks => true,
        // A second answer to a SYN, after the first was forgotten: its opener has believed in neither.
        Some(_) if seg.flags.ack() => {
            if let Some(peer) = &mut flow.now[1 - host] {
                peer.acked = None;
                peer.edge = None;
                peer.may_send_to = None;
            }
            true
        }
        Some(_) => {
            flow.before = std::mem::take(&mut flow.now);
            flow.talk_before = flow.talk_now.take();
            true
        }
    };
    if fresh {
        //= https://www.rfc-editor.org/rfc/rfc6191#section-2
        let new = Half::new(seg, v4);
        if let (Some(old), Some(peer)) = (&flow.before[host], &flow.before[1 - host])
            && old.fin.is_some()
            && peer.fin.is_some()
            && old.fin_heard_us.is_some_and(|since_us| now_us + TICK_US < since_us + 2 * msl_us)
            && seg.seq.before(old.top)
            && old.closes_first
            && !old.reset
            && !peer.reset
        {
            found = Some(format!(
                "the flow is used again at {}, before the end of its former use {}",
                seg.seq.raw(),
                old.top.raw()
            ));
        }
        flow.now[host] = Some(new);
    }
    let [a, b] = &mut flow.now;
    let (me, peer) = if host == 0 { (a, b) } else { (b, a) };
    if let Some(me) = me {
        let base = match peer {
            Some(peer) if seg.flags.ack() => {
                if !peer.offer.sack && seg.options.sack_permitted
                    || peer.offer.scale.is_none() && seg.options.window_scale.is_some()
                    || !peer.offer.timestamps && seg.options.timestamps.is_some()
                {
                    found = Some("a SYN-ACK with an option that the SYN did not have".into());
                }
                Some(peer.iss + 1)
            }
            _ => None,
        };
        if let Some(base) = base {
            let edge = base + u32::from(seg.window.raw());
            // After its FIN this is the answer to an old duplicate of the SYN, by one who has forgotten what came of the first.
            let known = me.edge.filter(|_| me.fin.is_none());
            me.edge = Some(known.map_or(edge, |old| old.latest(edge)));
            me.acked = Some(base);
            if me.fin.is_none() {
                found = found.or(me.told.on_window(base, seg.window.raw(), 0));
            }
        }
        if let Some(what) = timestamps(me, peer.as_ref(), seg.options.timestamps, slack) {
            found = found.or(Some(what));
        }
    }
    found
}

/// `slack`: it may be so many milliseconds older than one before it.
fn timestamps(me: &mut Half, peer: Option<&Half>, ts: Option<Timestamps>, slack: i32) -> Option<String> {
    let ts = ts?;
    if let Some(last) = me.ts_sent
        && (ts.val.wrapping_sub(last) as i32) < -slack
    {
        return Some(format!("timestamp {} after {last}: they must not run backwards", ts.val));
    }
    me.ts_sent =
        Some(me.ts_sent.map_or(ts.val, |last| if ts.val.wrapping_sub(last) as i32 > 0 { ts.val } else { last }));
    if let Some(peer) = peer
        && let Some(latest) = peer.ts_arrived
        && ts.echo != 0
        && (ts.echo.wrapping_sub(latest) as i32) > 0
    {
        return Some(format!("timestamp echo {} beyond the latest that has arrived, {latest}", ts.echo));
    }
    None
}

fn on_segment(
    me: &mut Half,
    peer: &Half,
    cx: &Cx,
    seg: &Segment<'_>,
    stream: &dyn Fn(usize, u64) -> Option<Vec<u8>>,
) -> Option<String> {
    let scale = match (me.offer.scale, peer.offer.scale) {
        (Some(mine), Some(_)) => mine,
        _ => 0,
    };
    let with_timestamps = me.offer.timestamps && peer.offer.timestamps;
    let with_sack = me.offer.sack && peer.offer.sack;
    let options = &seg.options;
    if with_timestamps != options.timestamps.is_some() && me.talks {
        return Some(format!("timestamps were {}agreed", if with_timestamps { "" } else { "not " }));
    }
    if let Some(what) = timestamps(me, Some(peer), options.timestamps, 0) {
        return Some(what);
    }
    // Acknowledgement: of what has arrived, and never back.
    let arrived = peer.arrived_to();
    if seg.ack.after(arrived) {
        return Some(format!("acknowledges {}, but only {} has arrived", seg.ack.raw(), arrived.raw()));
    }
    if let Some(last) = me.acked
        && seg.ack.before(last)
    {
        return Some(format!("acknowledges {} after {}", seg.ack.raw(), last.raw()));
    }
    me.acked = Some(seg.ack);
    // Window: its right edge never moves left, but for what the scale rounds off (RFC 7323 section 2.4).
    let edge = seg.ack + (u32::from(seg.window.raw()) << scale);
    if let Some(old) = me.edge
        && old.offset_from(edge) >= 1 << scale
    {
        return Some(format!("the window shrinks from {} to {}", old.raw(), edge.raw()));
    }
    me.edge = Some(me.edge.map_or(edge, |old| old.latest(edge)));
    // (After the peer's FIN it tells of nothing any more.)
    if peer.fin.is_none_or(|fin| seg.ack.at_or_before(fin))
        && let Some(what) = me.told.on_window(seg.ack, seg.window.raw(), scale)
    {
        return Some(what);
    }
    // Selective acknowledgements: of what has arrived, beyond the cumulative one.
    for block in options.sack.iter() {
        if !with_sack {
            return Some("SACK was not agreed".into());
        }
        let range = peer.offset(block.start).zip(peer.offset(block.end));
        let right =
            range.is_some_and(|(start, end)| start < end && peer.arrived.has(start, end)) && block.start.after(seg.ack);
        if !right {
            return Some(format!(
                "SACK {}..{} of what has not arrived (ack {})",
                block.start.raw(),
                block.end.raw(),
                seg.ack.raw()
            ));
        }
    }
    on_text(me, peer, cx, seg, stream)
}

fn on_text(
    me: &mut Half,
    peer: &Half,
    cx: &Cx,
    seg: &Segment<'_>,
    stream: &dyn Fn(usize, u64) -> Option<Vec<u8>>,
) -> Option<String> {
    let len = seg.payload.len() as u32;
    let end = seg.end();
    if len == 0 && !seg.flags.fin() {
        // A pure ACK stands at SND.NXT, which is SND.UNA again while a probe is taken for refused; a keepalive one before it.
        if seg.seq != me.top && seg.seq.after(me.una) {
            return Some(format!("an ACK at {}, when {} was sent", seg.seq.raw(), me.top.raw()));
        }
        return None;
    }
    let Some(from) = seg.seq.offset_from(me.iss + 1).try_into().ok().filter(|_| seg.seq.at_or_before(me.top)) else {
        return Some(format!("text at {}, but {} was sent", seg.seq.raw(), me.top.raw()));
    };
    if len > 0 {
        let limit = peer.offer.mss.saturating_sub(options_len(seg));
        if len > limit {
            return Some(format!("{len} bytes in a segment, but the peer takes {limit}"));
        }
        if let Some(want) = stream(from, len.into())
            && want != seg.payload
        {
            return Some(format!("bytes {from}..{} of the stream are not what was said", from + len as usize));
        }
        let Some(edge) = me.may_send_to else { return Some("text before any window".into()) };
        let beyond = (seg.seq + len).offset_from(edge);
        if beyond > 1 || (beyond == 1 && len != 1) {
            return Some(format!("text up to {} beyond the window's edge {}", (seg.seq + len).raw(), edge.raw()));
        }
        // What ends the queue is pushed. With nothing in flight the override timer, which runs no shorter than another, may send a small piece.
        // A full one is as large as one before it was: a cookie does not keep all of what the peer takes.
        let full = me.widest.min(cx.mtu.saturating_sub(60)).saturating_sub(options_len(seg));
        me.widest = me.widest.max(len + options_len(seg));
        let may_be_override = seg.seq == me.una && cx.now_us >= me.una_us + RTO_LEAST_US;
        if len < full
            && seg.seq == me.top
            && !seg.flags.psh()
            && !seg.flags.fin()
            && peer.told.is_fragment(len)
            && !may_be_override
        {
            return Some(format!("{len} bytes in a segment, when {full} would fill it and more waits"));
        }
        if let Some(fin) = me.fin
            && (seg.seq + len).after(fin)
        {
            return Some("text beyond the FIN".into());
        }
        // RFC 6928: nothing but the initial window before anything is heard of it.
        let heard_at_first = *me.heard_at_first.get_or_insert(me.heard);
        // What has reached another lane of the host may be taken in only after the first flight, and then looks like a duplicate or two.
        let most = (10 + if cx.orderly { 0 } else { 2 }) * peer.offer.mss.max(536);
        if me.heard == heard_at_first && (seg.seq + len).offset_from(me.iss + 1) as u32 > most {
            return Some("more than the initial window before the first acknowledgement".into());
        }
    }
    if seg.flags.fin() {
        let at = end - 1;
        if me.fin.is_some_and(|fin| fin != at) || (me.fin.is_none() && at.before(me.top)) {
            return Some(format!(
                "FIN at {}, when it was at {:?} and {} was sent",
                at.raw(),
                me.fin.map(SeqNum::raw),
                me.top.raw()
            ));
        }
        if me.fin.is_none() {
            me.closes_first = peer.fin.is_none_or(|fin| seg.ack.at_or_before(fin));
        }
        me.fin = Some(at);
    }
    let Cx { now_us, icmp, asked, algorithm, astray, .. } = *cx;
    let mut found = if seg.seq.before(me.top) { on_again(me, peer, cx, seg) } else { None };
    let sent = Sent {
        seq: seg.seq,
        end,
        una: me.una,
        top: me.top,
        heard: me.heard + icmp,
        mss: peer.offer.mss,
        ts: seg.options.timestamps.map(|ts| ts.val),
        timed: seg.seq.before(me.top)
            && me.again.is_some_and(|again| again.seq == seg.seq && again.at_us == now_us && again.gap_us.is_some()),
        asked,
        behind: astray.is_some_and(|late_us| now_us <= me.una_us + late_us),
    };
    found = found.or(me.repair.on_sent(&sent, algorithm));
    if seg.seq == me.una && !seg.seq.before(me.top) {
        me.again = Some(Again { seq: seg.seq, at_us: now_us, timed: true, gap_us: None, heard: me.heard + icmp });
    }
    me.top = me.top.latest(end);
    found
}

/// The oldest is sent again. With nothing heard in between it was the timer, which backs off (RFC 6298 section 5.5).
///
/// Or three duplicate ACKs, if all of them came before it was sent and were taken in thereafter: to their receiver there was something in flight
/// that they do not acknowledge, and more RFC 5681 section 2 does not ask for.
fn on_again(me: &mut Half, peer: &Half, cx: &Cx, seg: &Segment<'_>) -> Option<String> {
    if seg.seq != me.una {
        return None;
    }
    let now_us = cx.now_us;
    let heard = me.heard + cx.icmp;
    let mut now = Again { seq: seg.seq, at_us: now_us, timed: false, gap_us: None, heard };
    let mut found = None;
    let with_sack = me.offer.sack && peer.offer.sack;
    let lately = me.repeats_us[0].is_some_and(|at_us| now_us <= at_us + LATE_US);
    let repeated = lately && me.says_una > 3 && !with_sack;
    if let Some(last) = me.again
        && last.seq == seg.seq
        && last.heard == heard
        && !(repeated && cx.astray.is_some())
    {
        now.timed = true;
        if last.timed {
            let gap = now_us - last.at_us;
            now.gap_us = Some(gap);
            if gap < RTO_LEAST_US {
                found = Some(format!("sent again after {gap} µs, and nothing was heard"));
            } else if let Some(before) = last.gap_us
                && gap < before + before / 2
                && gap < 115_000_000
            {
                found = Some(format!("the retransmission timer does not back off: {gap} µs after {before} µs"));
            }
        }
    }
    me.again = Some(now);
    found
}

fn options_len(seg: &Segment<'_>) -> u32 {
    seg.options.len() as u32
}
