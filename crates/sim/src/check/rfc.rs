//! Property: what stands on the wire is what RFC 9293 and its companions allow, whatever the network does.
//!
//! The watcher sees each frame twice: when a host sends it, and when one reaches a host. So it knows what a sender can
//! know, and judges by that alone. Of each flow it keeps the present conversation and the one before.

mod begin;
mod ecn;
mod flow;
mod reset;
mod segment;
mod text;

use self::begin::{is_revived, on_syn, on_wake};
use self::flow::{Flow, Half, Halves, both};
use self::reset::on_reset;
use self::segment::{Cx, on_segment, reports_twice};
use super::loss::Heard;
use super::sought::Sought;
use crate::packet::Seen;
use crate::scenario::Scenario;
use laneway_proto::tcp::congestion::Algorithm;
use laneway_wire::flow::FlowKey;
use laneway_wire::tcp::SeqRange;
use std::collections::HashMap;

/// Polls and timers may be so late.
const LATE_US: u64 = 20_000;
/// What is so close together may be of two polls that follow each other.
const AT_ONCE_US: u64 = 1_000;
/// So many of the latest segments that have reached a host are remembered: it may take them in later, and in another order.
const LATELY: usize = 256;

/// What a host says in a conversation: from which byte, and how many.
pub type Said<'a> = &'a dyn Fn(usize, u64, u64) -> Vec<u8>;

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
    mtu: [u32; 2],
    /// In so many a segment may come to each host, and be taken in behind the whole of it.
    pieces: [u64; 2],
    /// A host forgets no TIME-WAIT before its time.
    patient: [bool; 2],
    /// Never twice the same.
    sent: u64,
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
            astray: [0, 1].map(|h| (hosts[h].astray > 0).then_some(2 * hosts[h].poll_delay_us + 1_000)),
            pieces: [0, 1].map(|h| if path.split > 0 && hosts[h].astray > 0 { 2 } else { 1 }),
            mtu: [0, 1].map(|h| {
                // A host that suspects its path has no other reason than silence, of which there may be enough in any world.
                let suspected = if hosts[h].config.tcp.tcp_mtu_probing { 576 } else { u32::MAX };
                path.narrow.map_or(suspected, |(mtu, _)| suspected.min(mtu as u32))
            }),
            patient: [0, 1].map(|h| hosts[h].config.tcp_max_tw_buckets > 1_000 && scenario.kind != "memory"),
            sent: 1 << 32,
        }
    }

    /// The flow as host 0 sees it.
    fn name(host: usize, key: &FlowKey) -> FlowKey {
        if host == 0 { *key } else { key.reversed() }
    }

    /// A host sends something other than TCP.
    pub fn on_other_sent(&mut self, host: usize, now_us: u64, frame: &[u8]) {
        self.sought.on_sent(host, now_us, frame);
    }

    /// A host has found out what a path carries: that is as if a router had said so.
    pub fn on_path_found(&mut self, host: usize, now_us: u64) {
        self.icmp[host] = (self.icmp[host].0 + 1, now_us);
    }

    /// Something other than TCP has reached a host.
    pub fn on_other_arrived(&mut self, host: usize, now_us: u64, frame: &[u8]) {
        self.on_path_found(host, now_us);
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
            return on_reset(flow, host, seg, self.astray[host].is_some());
        }
        if seg.flags.syn() {
            let msl_us = self.msl_us;
            let woken = seg.flags.ack() && self.patient[host];
            let found = woken.then(|| on_wake(flow, host, now_us, seg, msl_us)).flatten();
            // A cookie's timestamp carries options in its low bits, and is a little older for it. And what waits for the neighbour at several lanes may
            // go out in another order.
            let waited = now_us <= self.sought.answered_us(host) + self.late_us[host];
            let slack = 64 + if waited { 5_000 } else { 0 };
            let waits_us = self.patient[host].then_some(msl_us);
            let found = found.or(on_syn(flow, (host, now_us), seg, v4, waits_us, slack));
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
        if revived {
            // It may outlive the next use, too.
            flow.ghost[host] = flow.before[host].as_ref().map(|half| half.iss);
        }
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
        if now_us > me.said_us {
            (me.said_before_us, me.said_us) = (me.said_us, now_us);
        }
        // What has waited for the neighbour, and was lost when nobody answered, its sender has sent all the same.
        if seg.seq.after(me.top) && self.sought.was_sought(host, &seen.key.remote, me.said_before_us) {
            (me.top, me.unsaid) = (seg.seq, true);
        }
        let stream = |from: usize, len: u64| talk.map(|talk| said(talk, from as u64, len));
        let (algorithm, orderly, astray) = (self.algorithm[host], self.orderly, self.astray[host]);
        let cx = Cx { now_us, icmp, asked: icmp >= 1 << 32, algorithm, orderly, astray, mtu: self.mtu[host] };
        let marks = ecn::on_sent(me, peer, seg, seen.ecn, now_us.saturating_sub(self.late_us[host]));
        let found = on_segment(me, peer, &cx, seg, &stream).or(marks);
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
        if lately.len() > LATELY {
            lately.pop_front();
        }
        if let Some(me) = &mut flow.now[host] {
            me.heard += 1;
            me.heard_us = now_us;
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
        let again = peer.arrived.of(start, end);
        // Pieces that went astray are taken in behind the whole segment, though that came last, and then each of them is reported.
        peer.repeats += if again.is_empty() { 0 } else { self.pieces[host] };
        again.iter().for_each(|(start, end)| peer.repeated.add(*start, *end));
        peer.arrived.add(start, end);
        peer.count_forged();
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
        ecn::on_arrived(me, seg, seen.ecn, self.orderly && !late && again.is_empty());
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
            // A keepalive probe stands before what is next, and is believed in nothing.
            let is_probe = seg.seq_len() == 0 && seg.seq.before(peer.arrived_to());
            let bare = seg.seq_len() == 0 && me.may_send_to == Some(edge) && !is_probe;
            me.may_send_to = Some(me.may_send_to.map_or(edge, |old| old.latest(edge)));
            let was = me.una;
            me.una = me.una.latest(base);
            if !is_probe {
                me.last_edge = Some(edge);
                if me.edges.len() == LATELY {
                    me.edges.pop_front();
                }
                me.edges.push_back(edge);
            }
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
                let twice = usize::from(reports_twice(seg));
                let blocks = seg.options.sack.iter().skip(twice).filter(|block| block.start.after(me.una));
                let len = |block: SeqRange| block.end.offset_from(block.start).max(0) as u32;
                let total = |(bytes, count), block| (bytes + len(block), count + 1);
                let heard = Heard {
                    una: me.una,
                    was,
                    top: me.top,
                    ack: base,
                    sacked: sack.then(|| blocks.fold((0, 0), total)),
                    twice: seg.options.sack.iter().take(twice).map(|block| block.end).next(),
                    acceptable: end > before || seg.seq_len() == 0 && start >= before,
                    bare,
                    echo: seg.options.timestamps.map(|ts| ts.echo),
                    mss: peer.offer.mss,
                };
                me.repair.on_heard(&heard, now_us, self.orderly && !me.ended && !me.reset);
                if moved && self.orderly && self.astray[host].is_none() && ecn::on_acked(me, peer, seg, now_us) {
                    me.repair.on_echo(&heard, self.algorithm[host]);
                }
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

    /// A forged segment reaches a host: all that the watcher may conclude is that the host may answer, and that its text has come twice if the peer's has come.
    pub fn on_forged(&mut self, host: usize, seen: &Seen<'_>) {
        let name = Self::name(host, &seen.key.reversed());
        let flow = self.flows.entry(name).or_default();
        let seg = &seen.seg;
        flow.lately[host].push_back((seg.flags.ack().then_some(seg.ack), seg.end()));
        for halves in [&mut flow.now, &mut flow.before] {
            if let Some(me) = &mut halves[host] {
                me.heard += 1;
            }
            if let Some(peer) = &mut halves[1 - host]
                && !seg.payload.is_empty()
                && let (Some(start), Some(end)) = (peer.offset(seg.seq), peer.offset(seg.end()))
            {
                peer.forged.push((start, end));
                peer.count_forged();
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

    /// Whether a host has said something in a flow before.
    pub fn was_used(&self, host: usize, key: &FlowKey) -> bool {
        let flow = self.flows.get(&Self::name(host, key));
        flow.is_some_and(|flow| flow.now[host].is_some() || flow.before[host].is_some())
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
