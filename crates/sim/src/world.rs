//! Owns the loop of a world: two stacks, the network between them, virtual time, and who looks on.

mod making;

pub use making::address;
pub(crate) use making::link_header;

use crate::attacker;
use crate::check::{byte_stream, liveness, no_leak, rfc};
use crate::dice::Dice;
use crate::gate::{Fate, Gate};
use crate::host::{AnyHost, SharingName};
use crate::network::Network;
use crate::offload;
use crate::packet::{self, Frame, Seen};
use crate::pattern::Pattern;
use crate::scenario::{Buffers, MS, SECOND, Scenario, Segmentation};
use crate::stage::{Finding, Stage};
use laneway_device::memory::LinkQueue;
use laneway_device::{Medium, Rx, Tx};
use laneway_proto::discard::Discard;
use laneway_proto::time::Instant;
use laneway_stack::ListenerId;
use laneway_stack::counters::Mib;
use laneway_stack::worker::Turn;
use making::{actor, network};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// The clock of every host begins here, as the product's does, in a world of four.
const HEAD_START_US: u64 = 3_600 * SECOND;

/// What a count of 32 bits begins anew at, or changes its sign, on clocks of processes that live long: microseconds, and milliseconds.
const WRAPS_US: [u64; 3] = [1 << 32, 1_000 << 31, 1_000 << 32];

/// A lane that is left out has its next turn so much later at the most, if it is not left out again.
const LAG_US: u64 = 500;

/// One host and its wire.
pub struct Actor {
    pub(crate) host: Box<dyn AnyHost>,
    wire: LinkQueue,
    gate: Option<Gate>,
    wake_us: u64,
    /// Paths that it has found to swallow what is large.
    holes_found: u64,
    poll_delay_us: u64,
    uneven: Option<Dice>,
    moves: VecDeque<(u64, usize, usize)>,
    listeners: Vec<(u64, Listening)>,
    /// Conversations for which something waits in the queue, and of which nobody here has heard yet.
    knocking: Vec<usize>,
}

enum Listening {
    Begin(usize),
    End(ListenerId),
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The seed.
    pub seed: u64,
    /// What the scenario was about.
    pub kind: &'static str,
    /// The first thing that must not be.
    pub finding: Option<Finding>,
    /// Virtual time that passed, in microseconds.
    pub virtual_us: u64,
    /// Frames that hosts sent.
    pub frames: u64,
    /// Conversations.
    pub talks: usize,
    /// Segments that were sent again.
    pub retransmitted: u64,
    /// Handshakes that began with a cookie and came about.
    pub cookies: u64,
    /// SYNs that a device has answered in a host's stead.
    pub answered: u64,
    /// Packets that were turned away, because too many of nobody known had come to nothing.
    pub turned_away: u64,
    /// Lines of the trace, if one was asked for.
    pub trace: Vec<String>,
}

/// A world.
pub struct World {
    pub(crate) scenario: Scenario,
    pub(crate) now_us: u64,
    /// When that began, on the clock of the hosts.
    begin_us: u64,
    pub(crate) actors: [Actor; 2],
    network: Network,
    pub(crate) stage: Rc<RefCell<Stage>>,
    pub(crate) rfc: rfc::Rfc,
    pattern: Rc<Pattern>,
    pub(crate) dice: Dice,
    frames: u64,
    /// SYNs that devices have answered.
    answered: u64,
    attacks: usize,
    spins: u32,
    steps: u64,
    trace: Option<Vec<String>>,
}

impl Actor {
    /// One poll of every lane in its place, and of the control plane; or, if they are uneven, of most of them in any order.
    fn turn(&mut self, now: Instant) -> Turn {
        let Some(dice) = &mut self.uneven else { return self.host.turn(now) };
        let mut all = Turn { frames: 0, busy: false, deadline: Instant::NEVER };
        let lanes = self.host.lanes();
        let first = dice.below(lanes as u64) as usize;
        let backwards = dice.chance(500);
        for i in 0..lanes {
            let lane = (first + if backwards { lanes - i } else { i }) % lanes;
            if dice.chance(250) {
                all.deadline = all.deadline.min(now.after_us(1 + dice.below(LAG_US)));
                continue;
            }
            let turn = self.host.turn_lane(lane, now);
            all.frames += turn.frames;
            all.busy |= turn.busy;
            all.deadline = all.deadline.min(turn.deadline);
        }
        let (deadline, undelivered) = self.host.turn_control(now);
        all.deadline = all.deadline.min(deadline);
        all.busy |= undelivered;
        all
    }
}

/// In most worlds some count wraps while they last. Whole milliseconds, so that clocks that tick in them do so when they would.
fn begin_us(seed: u64) -> u64 {
    let mut dice = Dice::new(seed, "begin");
    match WRAPS_US.get(dice.below(1 + WRAPS_US.len() as u64) as usize) {
        Some(wrap_us) => (wrap_us - dice.magnitude(MS, 32 * SECOND)) / MS * MS,
        None => HEAD_START_US,
    }
}

impl World {
    /// The world of a scenario; lanes share their connections as is said.
    pub fn new(scenario: Scenario, sharing: SharingName, pattern: Rc<Pattern>, trace: bool) -> Self {
        let stage = Rc::new(RefCell::new(Stage::new(&scenario, Rc::clone(&pattern))));
        let begin_us = begin_us(scenario.seed);
        let actors = [0, 1].map(|host| actor(&scenario, sharing, host, Instant::from_us(begin_us), &stage));
        let network = network(&scenario);
        let dice = Dice::new(scenario.seed, "world");
        World {
            rfc: rfc::Rfc::new(&scenario),
            scenario,
            now_us: 0,
            begin_us,
            actors,
            network,
            stage,
            pattern,
            dice,
            frames: 0,
            answered: 0,
            attacks: 0,
            spins: 0,
            steps: 0,
            trace: trace.then(Vec::new),
        }
    }

    /// Runs it until all is over, and judges.
    pub fn run(mut self) -> Verdict {
        let talks = self.scenario.talks.len();
        while !self.found() {
            if self.stage.borrow().talks.iter().all(|t| t.is_over()) && self.network.is_quiet() {
                break;
            }
            if self.now_us > self.scenario.limit_us {
                let what = liveness::describe_stall(&self.stage.borrow().talks);
                self.find("liveness", format!("not over after {} s of virtual time:{what}", self.now_us / SECOND));
                break;
            }
            self.step();
            self.steps += 1;
            if self.steps > liveness::STEPS_MAX {
                let what = liveness::describe_stall(&self.stage.borrow().talks);
                self.find("liveness", format!("not over after {} steps and {} frames:{what}", self.steps, self.frames));
            }
        }
        if !self.found() {
            self.judge_ends();
        }
        if !self.found() {
            self.settle();
        }
        let finding = self.stage.borrow().findings.first().cloned();
        let mut sum = |mib| self.actors.iter_mut().map(|a| a.host.counters().get(mib)).sum();
        let (retransmitted, cookies) = (sum(Mib::TcpRetransSegs), sum(Mib::TcpExtSyncookiesRecv));
        let turned_away = self.actors.iter_mut().map(|a| a.host.counters().discarded(Discard::TcpStranger)).sum();
        Verdict {
            seed: self.scenario.seed,
            kind: self.scenario.kind,
            finding,
            virtual_us: self.now_us,
            frames: self.frames,
            talks,
            retransmitted,
            cookies,
            answered: self.answered,
            turned_away,
            trace: self.trace.unwrap_or_default(),
        }
    }

    fn found(&self) -> bool {
        !self.stage.borrow().findings.is_empty()
    }

    pub(crate) fn find(&mut self, check: &'static str, what: String) {
        self.stage.borrow_mut().find(check, what);
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::from_us(self.begin_us + self.now_us)
    }

    pub(crate) fn trace(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>12.6} {}", self.now_us as f64 / 1e6, line()));
        }
    }

    /// What is due at this instant happens; then time moves on to the next.
    fn step(&mut self) {
        for host in 0..2 {
            self.listeners(host);
            self.moves(host);
            if self.actors[host].wake_us <= self.now_us
                || self.stage.borrow().due_us(host).is_some_and(|at| at <= self.now_us)
            {
                self.turn(host);
            }
        }
        self.network.step(self.now_us);
        for host in 0..2 {
            self.deliver(host);
        }
        while self.scenario.attacks.get(self.attacks).is_some_and(|at| *at <= self.now_us) {
            self.attacks += 1;
            attacker::strike(self);
        }
        if let Some(what) = self.rfc.on_time(self.now_us) {
            self.find("rfc", what);
        }
        self.advance();
    }

    /// One poll of a host, and what it sends goes on its way.
    pub(crate) fn turn(&mut self, host: usize) {
        let turn = self.poll(host);
        let actor = &mut self.actors[host];
        if self.scenario.hosts[host].config.tcp.tcp_mtu_probing {
            let found = actor.host.counters().get(Mib::TcpExtTCPMTUPFail);
            if found > std::mem::replace(&mut actor.holes_found, found) {
                self.rfc.on_path_found(host, self.now_us);
            }
        }
        actor.wake_us = match turn.deadline {
            _ if turn.busy => self.now_us,
            Instant::NEVER => u64::MAX,
            at => at.as_us().saturating_sub(self.begin_us).max(self.now_us + 1),
        };
        self.collect(host);
        // In a turn that is not the last of this instant a neighbour may be waited for that is asked for only in the next.
        if !turn.busy {
            self.judge_windows(host);
        }
    }

    /// Whoever has read all that has come must have said so, if the peer could believe that there is little room (RFC 9293 section 3.8.6.2.2).
    fn judge_windows(&mut self, host: usize) {
        let mut stage = self.stage.borrow_mut();
        let readers = std::mem::take(&mut stage.readers[host]);
        if self.scenario.kind == "memory" {
            return;
        }
        let plan = &self.scenario.hosts[host];
        // Less than two segments are not worth saying, and a field that is not scaled says no more than it holds. What a scaled one may be rounded by
        // has room in the buffer.
        let tcp = &plan.config.tcp;
        let least = |told: Option<Buffers>| {
            let buffer = told.map_or(tcp.tcp_rmem.0, |told| told.receive.min(tcp.tcp_rmem.0));
            let widest = buffer.saturating_sub((1 << tcp.receive_scale()) - 1);
            u64::from(widest / 2).min(65_535 - 2 * plan.mtu as u64)
        };
        let mut found = None;
        for talk in readers {
            let t = &stage.talks[talk];
            let end = t.end_at(host);
            let Some(flow) = t.flow.filter(|flow| stage.by_flow.get(flow) == Some(&talk)) else { continue };
            let e = &t.ends[end];
            if !e.open || e.deaf || e.over.is_some() || t.haunted || t.blind {
                continue;
            }
            let key = if end == 0 { flow } else { flow.reversed() };
            if let Some((arrived, open)) = self.rfc.open_window(host, &key)
                && arrived == e.heard
                && open < least(t.plan.ends[end].buffers)
            {
                found = Some(format!(
                    "host {host} has read all {arrived} bytes of talk {talk}, and tells of room for {open}"
                ));
            }
        }
        drop(stage);
        if let Some(what) = found {
            self.find("rfc", what);
        }
    }

    /// One poll of a host. A conversation whose segments come to it while a listener's queue is found full, or cookies are sent, may be
    /// the one that it happens to.
    fn poll(&mut self, host: usize) -> Turn {
        let now = self.now();
        self.stage.borrow_mut().now_us = self.now_us;
        let actor = &mut self.actors[host];
        let before = if actor.knocking.is_empty() { None } else { Some(refusals(&mut actor.host)) };
        let turn = actor.turn(now);
        if let Some(gate) = &mut actor.gate {
            actor.host.overrun().into_iter().for_each(|how| gate.overrun(now, how));
        }
        let Some(before) = before else { return turn };
        let after = refusals(&mut actor.host);
        let stage = &mut *self.stage.borrow_mut();
        for talk in &actor.knocking {
            stage.talks[*talk].overflowed |= after.0 > before.0;
            stage.talks[*talk].cookie |= after.1 > before.1;
        }
        // A lane that was left out is to have its turn soon.
        if !turn.busy && (actor.uneven.is_none() || turn.deadline > now.after_us(LAG_US)) {
            actor.knocking.clear();
        }
        turn
    }

    /// One poll of every lane of a host, whoever is left out otherwise.
    pub(crate) fn turn_all(&mut self, host: usize) {
        let uneven = self.actors[host].uneven.take();
        self.turn(host);
        self.actors[host].uneven = uneven;
    }

    /// Takes what a host has sent, and shows it to the watcher.
    fn collect(&mut self, host: usize) {
        loop {
            let wire = &mut self.actors[host].wire.rx;
            let count = wire.poll(64);
            let mut frames = Vec::with_capacity(count);
            let mut cuts_cwr = false;
            for i in 0..count {
                cuts_cwr |= offload::cuts_cwr(self.scenario.medium, &wire.frame(i));
                offload::cut(self.scenario.medium, &wire.frame(i), &mut frames);
            }
            wire.release();
            if cuts_cwr {
                self.find("rfc", format!("host {host} leaves it to its device to cut a segment with CWR"));
            }
            if count == 0 {
                return;
            }
            for frame in frames {
                self.frames += 1;
                self.on_sent(host, &frame);
                self.network.send(self.now_us, host, frame);
            }
        }
    }

    fn on_sent(&mut self, host: usize, frame: &[u8]) {
        let medium = self.scenario.medium;
        self.trace(|| format!("{host} sends    {}", packet::describe(medium, frame)));
        let most = self.scenario.hosts[host].mtu + medium.header_len();
        if frame.len() > most {
            self.find("rfc", format!("host {host} sends {} bytes on a link of {most}", frame.len()));
        }
        match packet::look(medium, frame) {
            Frame::Other => self.rfc.on_other_sent(host, self.now_us, frame),
            Frame::Bad(why) => self.find("rfc", format!("host {host} sends a frame with a bad {why}")),
            Frame::Tcp(seen) => {
                let ours = |v4| seen.key.local == address(host, v4) && seen.key.remote == address(1 - host, v4);
                if !ours(true) && !ours(false) {
                    return;
                }
                if seen.seg.flags.syn() && !seen.seg.flags.ack() {
                    let stage = &mut *self.stage.borrow_mut();
                    if let Some(talk) = stage.by_flow.get(&seen.key) {
                        stage.talks[*talk].syns[0] += 1;
                        stage.by_iss.insert((seen.key, seen.seg.seq.raw()), *talk);
                    }
                }
                let stage = self.stage.borrow();
                let pattern = &self.pattern;
                let talk = if stage.crossing {
                    Some(0)
                } else {
                    stage.by_flow.get(&seen.key).or_else(|| stage.by_flow.get(&seen.key.reversed())).copied()
                };
                // What its former use has under way may be taken for its own.
                let haunted = talk.is_some_and(|talk| stage.talks[talk].haunted || stage.talks[talk].blind);
                let said = |talk: usize, from: u64, len: u64| {
                    let talk = &stage.talks[talk];
                    pattern.at(talk.keys[talk.end_at(host)], from, len).to_vec()
                };
                let found = self.rfc.on_sent(host, self.now_us, &seen, talk, &said).filter(|_| !haunted);
                drop(stage);
                if let Some(what) = found {
                    let line = packet::describe(medium, frame);
                    self.find("rfc", format!("host {host} sends {line}: {what}"));
                }
            }
        }
    }

    /// What has arrived goes into a host's queue.
    fn deliver(&mut self, host: usize) {
        while let Some(frame) = self.network.receive(host) {
            if self.is_held_back(host, &frame) {
                continue;
            }
            // What arrives together may be merged; for who looks on it is as it was.
            let mut merged = offload::Merged::new(self.scenario.medium, frame);
            while self.scenario.hosts[host].segmentation == Segmentation::CutsAndMerges
                && let Some(next) = self.network.receive(host)
            {
                if let Err(next) = merged.push(next) {
                    self.network.put_back(host, next);
                    break;
                }
            }
            if !self.put_merged(host, &merged) {
                for frame in merged.frames().rev() {
                    self.network.put_back(host, frame);
                }
                self.actors[host].wake_us = self.actors[host].wake_us.min(self.now_us);
                break;
            }
            let medium = self.scenario.medium;
            for frame in merged.frames() {
                self.trace(|| format!("{host} receives {}", packet::describe(medium, &frame)));
                match packet::look(medium, &frame) {
                    Frame::Tcp(seen) => {
                        self.on_arrived(host, &seen);
                        let stage = self.stage.borrow();
                        let talk = stage.by_flow.get(&seen.key).copied();
                        let knocking = &mut self.actors[host].knocking;
                        knocking.extend(talk.filter(|talk| stage.talks[*talk].ends[1].id.is_none()));
                    }
                    Frame::Other => self.rfc.on_other_arrived(host, self.now_us, &frame),
                    Frame::Bad(_) => {}
                }
            }
            let delay = self.actors[host].poll_delay_us;
            let wake = self.now_us + if delay > 0 { self.dice.below(delay + 1) } else { 0 };
            self.actors[host].wake_us = self.actors[host].wake_us.min(wake);
        }
        self.actors[host].wire.tx.flush();
    }

    /// Whether a frame comes no further than to a host's device, which may have answered it.
    fn is_held_back(&mut self, host: usize, frame: &[u8]) -> bool {
        let (now, medium) = (self.now(), self.scenario.medium);
        let Some(gate) = &mut self.actors[host].gate else { return false };
        let Frame::Tcp(seen) = packet::look(medium, frame) else { return false };
        let link = link_header(medium, 1 - host, seen.key.is_v4());
        match gate.take(now, &link, &seen) {
            Fate::Passes => return false,
            Fate::Dropped => self.trace(|| format!("{host} is spared  {}", packet::describe(medium, frame))),
            Fate::Answered(answer) => {
                self.trace(|| format!("{host} need not see {}", packet::describe(medium, frame)));
                self.answered += 1;
                self.on_arrived(host, &seen);
                let talk = self.stage.borrow().by_flow.get(&seen.key).copied();
                if let Some(talk) = talk {
                    let talk = &mut self.stage.borrow_mut().talks[talk];
                    talk.cookie = true;
                    // The device does not know what the flow was used for before, and whoever looks on does not know what its host makes of it. On
                    // Ethernet that may have to ask first where its peer is: what waits meanwhile, and is lost, it has said all the same.
                    talk.used_before |= self.rfc.was_used(host, &seen.key.reversed());
                    talk.blind |= medium == Medium::Ethernet || talk.used_before;
                }
                self.frames += 1;
                self.on_sent(host, &answer);
                self.network.send(self.now_us, host, answer);
            }
        }
        true
    }

    /// A segment has come to a host, or to its device.
    fn on_arrived(&mut self, host: usize, seen: &Seen<'_>) {
        if let Some(what) = self.rfc.on_arrived(host, self.now_us, seen) {
            self.find("rfc", what);
        }
        let stage = &mut *self.stage.borrow_mut();
        if let Some(talk) = stage.by_iss.get(&(seen.key, seen.seg.seq.raw()))
            && seen.seg.flags.syn()
            && !seen.seg.flags.ack()
        {
            stage.talks[*talk].syns[1] += 1;
        }
        if let Some(talk) = stage.by_flow.get(&seen.key) {
            let follows = usize::from(!seen.seg.flags.syn());
            stage.talks[*talk].arrived_us[follows].get_or_insert(self.now_us);
        }
    }

    fn put_merged(&mut self, host: usize, merged: &offload::Merged) -> bool {
        let Some((bytes, meta)) = merged.super_packet() else { return self.put(host, merged.first()) };
        let tx = &mut self.actors[host].wire.tx;
        let Some(into) = tx.reserve(bytes.len()) else { return false };
        into.copy_from_slice(&bytes);
        tx.commit(bytes.len(), meta);
        true
    }

    /// Writes a frame to a host's device; false if it has no room. (A frame longer than the link is no frame there.)
    pub(crate) fn put(&mut self, host: usize, frame: &[u8]) -> bool {
        let tx = &mut self.actors[host].wire.tx;
        if frame.len() > tx.capabilities().frame_max() {
            return true;
        }
        let Some(into) = tx.reserve(frame.len()) else { return false };
        into.copy_from_slice(frame);
        tx.commit(frame.len(), Default::default());
        true
    }

    pub(crate) fn flush(&mut self, host: usize) {
        self.actors[host].wire.tx.flush();
    }

    fn listeners(&mut self, host: usize) {
        while let Some(at) = self.actors[host].listeners.iter().position(|(at, _)| *at <= self.now_us) {
            let (_, what) = self.actors[host].listeners.remove(at);
            let actor = &mut self.actors[host];
            match what {
                Listening::Begin(i) => {
                    let plan = self.scenario.listeners[i];
                    let any = std::net::SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, plan.port));
                    let id = actor.host.control().listen(any, plan.backlog).expect("nobody else listens there");
                    actor.listeners.push((plan.until_us.max(plan.from_us + 1), Listening::End(id)));
                    self.stage.borrow_mut().listeners[host].insert(id, plan);
                }
                Listening::End(id) => actor.host.control().unlisten(id),
            }
            // A turn reserves and asks, the next one listens.
            let uneven = self.actors[host].uneven.take();
            self.poll(host);
            self.poll(host);
            self.actors[host].uneven = uneven;
            self.actors[host].wake_us = self.now_us;
            self.collect(host);
        }
    }

    /// Flows that begin from now on belong to other lanes.
    fn moves(&mut self, host: usize) {
        let actor = &mut self.actors[host];
        while let Some((_, bucket, lane)) = actor.moves.pop_front_if(|(at, ..)| *at <= self.now_us) {
            actor.host.control().move_bucket(bucket, lane).expect("there are both, and nothing refuses");
            actor.wake_us = self.now_us;
        }
    }

    /// When something happens next.
    fn next_us(&self) -> u64 {
        let stage = self.stage.borrow();
        let hosts = (0..2).map(|host| {
            let listeners = self.actors[host].listeners.iter().map(|(at, _)| *at).min().unwrap_or(u64::MAX);
            let moves = self.actors[host].moves.front().map_or(u64::MAX, |(at, ..)| *at);
            self.actors[host].wake_us.min(stage.due_us(host).unwrap_or(u64::MAX)).min(listeners).min(moves)
        });
        let attack = self.scenario.attacks.get(self.attacks).copied().unwrap_or(u64::MAX);
        hosts.min().unwrap_or(u64::MAX).min(self.network.due_us().unwrap_or(u64::MAX)).min(attack)
    }

    fn advance(&mut self) {
        let next = self.next_us();
        if next > self.now_us {
            self.spins -= self.spins.min(if next > self.now_us + 1_000 { u32::MAX } else { 1 });
            if next == u64::MAX {
                if self.stage.borrow().talks.iter().all(|t| t.is_over()) {
                    return; // all is over, and whoever settles asks what is left
                }
                let what = liveness::describe_stall(&self.stage.borrow().talks);
                return self.find("liveness", format!("nothing will ever happen again:{what}"));
            }
            self.now_us = next;
        } else {
            self.spins += 1;
            // Polls take time, too: a host that asks again and again sees the clock move.
            if self.spins.is_multiple_of(liveness::SPINS_FREE) {
                self.now_us += 1 << (self.spins / liveness::SPINS_FREE).min(10);
            }
            if self.spins > liveness::SPINS_MAX {
                let counters = [0, 1].map(|host| {
                    self.actors[host].host.counters().iter().map(|(name, n)| format!(" {name} {n}")).collect::<String>()
                });
                let what = liveness::describe_stall(&self.stage.borrow().talks);
                self.find(
                    "liveness",
                    format!("the world spins:{what}\n  counters:{}\n  counters:{}", counters[0], counters[1]),
                );
            }
        }
    }

    fn judge_ends(&mut self) {
        let mut found = Vec::new();
        for (i, talk) in self.stage.borrow().talks.iter().enumerate() {
            if let Some(what) = liveness::judge(&self.scenario, talk) {
                found.push(("liveness", format!("talk {i}: {what}\n  {:?}", talk.plan)));
            }
            if let Some(what) = byte_stream::at_the_end(talk) {
                found.push(("byte_stream", format!("talk {i}: {what}")));
            }
        }
        for (check, what) in found {
            self.find(check, what);
        }
    }

    /// 2·MSL and every other wait pass; then nothing may be left.
    fn settle(&mut self) {
        let tcp = self.scenario.hosts.iter().map(|h| &h.config.tcp);
        let waits = tcp
            .map(|t| 2 * t.msl_us + t.tcp_fin_timeout_us + (SECOND << (t.tcp_synack_retries + 2)))
            .max()
            .unwrap_or(0);
        let until = self.now_us + waits + 250 * SECOND;
        let reopened = |world: &Self| !world.stage.borrow().talks.iter().all(|t| t.is_over());
        loop {
            let left = self.left();
            if (left.is_none() && !reopened(self)) || self.found() {
                return;
            }
            if self.now_us > until || self.next_us() == u64::MAX {
                return self.find(
                    "no_leak",
                    left.unwrap_or_else(|| "a connection that was accepted late does not end".into()),
                );
            }
            self.step();
        }
    }

    fn left(&mut self) -> Option<String> {
        for (i, actor) in self.actors.iter_mut().enumerate() {
            for lane in 0..actor.host.lanes() {
                let mut left = None;
                actor.host.tables(lane, &mut |tables| left = no_leak::left(tables));
                if let Some(what) = left {
                    return Some(format!("host {i}, lane {lane}: {what}"));
                }
            }
        }
        None
    }
}

/// How often a host has found a listener's queue full, and how many cookies it has sent.
fn refusals(host: &mut Box<dyn AnyHost>) -> (u64, u64) {
    let counters = host.counters();
    let full = counters.get(Mib::TcpExtListenOverflows) + counters.get(Mib::TcpExtListenDrops);
    (full, counters.get(Mib::TcpExtSyncookiesSent))
}
