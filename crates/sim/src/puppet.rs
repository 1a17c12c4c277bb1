//! Owns the application at each end of a world: it does what the scenario says, and tells the stage what it sees.

use crate::check::byte_stream;
use crate::scenario::{Buffers, Ending, Gathering, MS, Reading};
use crate::stage::{Action, Stage, Talk};
use laneway_proto::tcp::{CloseReason, State};
use laneway_stack::{App, ConnId, Context, ListenerId};
use laneway_wire::flow::Address;
use laneway_wire::tcp::SeqNum;
use std::cell::RefCell;
use std::rc::Rc;

/// The application of one lane.
pub struct Puppet {
    /// Its host.
    pub host: usize,
    /// Its lane.
    pub lane: usize,
    /// The addresses of both hosts, IPv4 and IPv6.
    pub addresses: [[Address; 2]; 2],
    /// What it shares with every other.
    pub stage: Rc<RefCell<Stage>>,
}

fn token(talk: usize) -> u64 {
    talk as u64 + 1
}

impl Puppet {
    fn talk(&self, cx: &mut Context<'_>, id: ConnId) -> Option<usize> {
        cx.token(id).checked_sub(1).map(|t| t as usize)
    }

    fn open(&self, cx: &mut Context<'_>, stage: &mut Stage, talk: usize) {
        let plan = &stage.talks[talk].plan;
        let to = self.addresses[1 - self.host][!plan.v4 as usize];
        let now_us = stage.now_us;
        match cx.connect(None, to, plan.port, token(talk)) {
            Ok(id) => {
                let flow = cx.flow(id);
                let t = &mut stage.talks[talk];
                t.flow = flow;
                t.opened_us = now_us;
                t.ends[0].id = Some(id);
                t.ends[0].lane = self.lane;
                if let Some(flow) = flow {
                    let before = stage.by_flow.insert(flow, talk);
                    let before = before.map(|before| &stage.talks[before]);
                    // An end of a haunted one may still be there; and what haunted it bears the same time as this, in the same millisecond.
                    let as_late = |before: &Talk| !before.is_over() || now_us < before.opened_us + MS;
                    let haunted = before.is_some_and(|before| before.rude || before.haunted && as_late(before));
                    // SYN and FIN have a number each.
                    let end_us = |before: &Talk| before.opened_us + 4 * (before.ends[0].said + 2);
                    let spent_us = before.map_or(0, |before| before.spent_us.max(end_us(before)));
                    // Taken again faster than the clock of sequence numbers: an old answer may be one to this SYN.
                    let haunted = haunted || now_us < spent_us && stage.echoes;
                    // What a device has opened over an end that is still there may have come to nothing, and that end go on as before.
                    let is_left =
                        |(t, other): (usize, &Talk)| t != talk && other.flow == Some(flow) && !other.is_over();
                    let blind =
                        before.is_some_and(|before| before.blind) && stage.talks.iter().enumerate().any(is_left);
                    let t = &mut stage.talks[talk];
                    (t.haunted, t.blind, t.spent_us) = (haunted, blind, spent_us);
                }
            }
            // All ports are taken: later.
            Err(laneway_stack::Error::LaneExhausted(_) | laneway_stack::Error::PortsExhausted(_)) => {
                let later = stage.now_us + 100_000;
                stage.at(later, self.host, self.lane, Action::Open(talk));
            }
            Err(error) => stage.find("byte_stream", format!("talk {talk}: connect says {error}")),
        }
    }

    fn begin(&self, cx: &mut Context<'_>, stage: &mut Stage, talk: usize, id: ConnId) {
        let end = stage.talks[talk].end_at(self.host);
        let t = &mut stage.talks[talk];
        t.ends[end].id = Some(id);
        t.ends[end].lane = self.lane;
        t.ends[end].open = true;
        t.ends[end].began_us = Some(stage.now_us);
        let plan = &t.plan.ends[end];
        cx.set_nodelay(id, plan.nodelay);
        cx.set_cork(id, plan.gathering == Gathering::Corked);
        if plan.keepalive {
            cx.set_keepalive(id, true);
        }
        cx.set_user_timeout_ms(id, plan.user_timeout_ms);
        self.speak(cx, stage, talk);
    }

    /// Says what is to be said now, and ends if that was all.
    fn speak(&self, cx: &mut Context<'_>, stage: &mut Stage, talk: usize) {
        let now_us = stage.now_us;
        let pattern = Rc::clone(&stage.pattern);
        let poor = stage.poor;
        let t = &mut stage.talks[talk];
        let end = t.end_at(self.host);
        let key = t.keys[end];
        let plan = t.plan.ends[end].clone();
        let e = &mut t.ends[end];
        let Some(id) = e.id.filter(|_| e.open && !e.ended && e.over.is_none()) else { return };
        if let Some(Buffers { after, send, notsent_lowat, receive, quickack }) = plan.buffers
            && after <= e.said + e.heard
            && !e.told
        {
            e.told = true;
            cx.set_send_buffer(id, send);
            cx.set_notsent_lowat(id, notsent_lowat);
            cx.set_receive_buffer(id, receive);
            cx.set_quickack(id, quickack);
        }
        let mut again_us = None;
        while e.said < plan.bytes {
            if e.speaks_at_us > now_us {
                break;
            }
            let mut until = (e.said / plan.piece + 1) * plan.piece;
            if let Some(answer) = plan.in_turn {
                let heard = e.heard / answer + (end == 0) as u64;
                until = until.min(heard * plan.piece);
            }
            let until = until.min(plan.bytes);
            if until <= e.said {
                break;
            }
            let mut full = false;
            while e.said < until && !full {
                let bytes = pattern.at(key, e.said, until - e.said);
                let more = plan.gathering == Gathering::More && until < plan.bytes;
                let mut taken = if more { cx.send_more(id, bytes) } else { cx.send(id, bytes) };
                if taken == 0 && poor && cx.state(id).can_send() {
                    taken = cx.send(id, &bytes[..bytes.len().min(512)]);
                    // Once, however often it is told to go on meanwhile.
                    if e.retries_at_us <= now_us {
                        e.retries_at_us = now_us + 50_000;
                        again_us = Some(e.retries_at_us);
                    }
                }
                e.said += taken as u64;
                full = taken < bytes.len();
            }
            if full {
                break;
            }
            if plan.pause_us > 0 && e.said < plan.bytes {
                e.speaks_at_us = now_us + plan.pause_us;
                again_us = Some(e.speaks_at_us);
            }
        }
        if let Some(at) = again_us {
            stage.at(at, self.host, self.lane, Action::Speak(talk));
        }
        self.finish(cx, stage, talk);
    }

    /// Ends its side, if the time has come.
    fn finish(&self, cx: &mut Context<'_>, stage: &mut Stage, talk: usize) {
        let t = &mut stage.talks[talk];
        let end = t.end_at(self.host);
        let plan = &t.plan.ends[end];
        let peer_bytes = t.plan.ends[1 - end].bytes;
        let e = &mut t.ends[end];
        let Some(id) = e.id.filter(|_| e.open && e.over.is_none()) else { return };
        if let Ending::Abort(after) = plan.ending
            && e.said + e.heard >= after
            && !e.gone
        {
            e.ended = true;
            e.deaf = true;
            e.gone = true;
            t.rude = true;
            return cx.abort(id);
        }
        let said = e.said == plan.bytes;
        if !e.ended && said {
            cx.set_cork(id, false);
            match plan.ending {
                Ending::HalfClose => {
                    e.ended = true;
                    cx.shutdown(id);
                }
                Ending::Close if !e.deaf => {
                    e.ended = true;
                    e.deaf = true;
                    if e.heard < peer_bytes {
                        t.rude = true;
                    }
                    return cx.close(id);
                }
                _ => {}
            }
        }
        if e.eof && said && !e.deaf {
            e.ended = true;
            e.deaf = true;
            cx.close(id);
        }
    }

    fn read(&self, cx: &mut Context<'_>, stage: &mut Stage, talk: usize) {
        let t = &stage.talks[talk];
        let end = t.end_at(self.host);
        let e = &t.ends[end];
        let Some(id) = e.id.filter(|_| e.over.is_none() && !e.deaf) else { return };
        if !matches!(t.plan.ends[end].reading, Reading::Copy(_)) {
            return cx.resume(id);
        }
        let mut buffer = [0; 3_000];
        loop {
            let n = cx.recv(id, &mut buffer);
            if n == 0 {
                break;
            }
            stage.hear(talk, self.host, &buffer[..n], n);
        }
        // If that was the last, the end is told now.
        cx.resume(id);
        self.speak(cx, stage, talk);
    }

    /// How much of `len` bytes it takes now; and when it looks again at what it leaves.
    fn appetite(&self, stage: &mut Stage, talk: usize, len: usize) -> usize {
        let now_us = stage.now_us;
        let t = &mut stage.talks[talk];
        let end = t.end_at(self.host);
        let reading = t.plan.ends[end].reading;
        let e = &mut t.ends[end];
        if now_us < e.reads_at_us {
            return 0;
        }
        let (take, again_us) = match reading {
            Reading::Eager => (len, None),
            Reading::Trickle(piece, pause_us) => (len.min(piece as usize), Some(now_us + pause_us)),
            Reading::Stall(after, for_us) if !e.stalled => {
                let before = after.saturating_sub(e.heard).min(len as u64) as usize;
                if before < len {
                    e.stalled = true;
                    (before, Some(now_us + for_us))
                } else {
                    (len, None)
                }
            }
            Reading::Stall(..) => (len, None),
            Reading::Copy(pause_us) => (0, Some(now_us + pause_us)),
        };
        if let Some(at) = again_us {
            e.reads_at_us = at;
            stage.at(at, self.host, self.lane, Action::Read(talk));
        }
        take
    }

    fn accept_all(&self, cx: &mut Context<'_>, stage: &mut Stage, listener: ListenerId) {
        while let Some(id) = cx.accept(listener) {
            let Some(flow) = cx.flow(id) else { continue };
            let (state, next) = cx.inspect(id, |c| (c.state(), c.sequence().2 - c.buffered())).unwrap_or(GONE);
            if state == State::Closed {
                continue; // its opener has reset it meanwhile; if not, that will be found there
            }
            // The same flow may have been used before, by an opener who has given up.
            let iss = next - 1 - u32::from(!state.can_receive());
            match stage.by_iss.get(&(flow.reversed(), iss.raw())).copied() {
                Some(talk) if stage.talks[talk].ends[1].id.is_none() => {
                    cx.set_token(id, token(talk));
                    self.begin(cx, stage, talk, id);
                }
                // A cookie that came back a second time.
                Some(talk) => {
                    stage.talks[talk].rude = true;
                    cx.abort(id);
                }
                None => stage.find("byte_stream", format!("{flow:?} was accepted, and nobody has opened it")),
            }
        }
    }
}

/// What is said of a connection that is not there.
const GONE: (State, SeqNum) = (State::Closed, SeqNum::new(0));

impl App for Puppet {
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        let stage = &mut *self.stage.borrow_mut();
        while let Some(action) = stage.due(self.host, self.lane) {
            match action {
                Action::Open(talk) => self.open(cx, stage, talk),
                Action::Speak(talk) => self.speak(cx, stage, talk),
                Action::Read(talk) => self.read(cx, stage, talk),
                Action::Accept(listener) => self.accept_all(cx, stage, ListenerId(listener)),
            }
        }
    }

    fn on_acceptable(&mut self, cx: &mut Context<'_>, listener: ListenerId) {
        let stage = &mut *self.stage.borrow_mut();
        let delay_us = stage.listeners[self.host].get(&listener).map_or(0, |plan| plan.accept_delay_us);
        if delay_us == 0 {
            return self.accept_all(cx, stage, listener);
        }
        let at = stage.now_us + delay_us;
        stage.at(at, self.host, self.lane, Action::Accept(listener.0));
    }

    fn on_connect(&mut self, cx: &mut Context<'_>, id: ConnId) {
        if let Some(talk) = self.talk(cx, id) {
            let stage = &mut *self.stage.borrow_mut();
            if stage.crossing {
                // Both have opened it: the first conversation of the two is the one that is held.
                let both = [0, 1].map(|end| stage.talks[end].ends[0].id);
                if self.host == 1 {
                    stage.talks[0].ends[1].id = both[1];
                    stage.talks[1].ends[0].over = Some(CloseReason::Normal);
                    cx.set_token(id, token(0));
                }
                return self.begin(cx, stage, 0, id);
            }
            self.begin(cx, stage, talk, id);
        }
    }

    fn on_data(&mut self, cx: &mut Context<'_>, id: ConnId, data: &[u8]) -> usize {
        let Some(talk) = self.talk(cx, id) else { return data.len() };
        let stage = &mut *self.stage.borrow_mut();
        let take = self.appetite(stage, talk, data.len());
        stage.hear(talk, self.host, data, take);
        if take > 0 {
            self.speak(cx, stage, talk);
        }
        take
    }

    fn on_writable(&mut self, cx: &mut Context<'_>, id: ConnId) {
        if let Some(talk) = self.talk(cx, id) {
            self.speak(cx, &mut self.stage.borrow_mut(), talk);
        }
    }

    fn on_peer_closed(&mut self, cx: &mut Context<'_>, id: ConnId) {
        let Some(talk) = self.talk(cx, id) else { return };
        let stage = &mut *self.stage.borrow_mut();
        let end = stage.talks[talk].end_at(self.host);
        if let Some(what) = byte_stream::on_eof(&stage.talks[talk], end) {
            stage.find("byte_stream", format!("talk {talk}: {what}"));
        }
        stage.talks[talk].ends[end].eof = true;
        self.finish(cx, stage, talk);
    }

    fn on_closed(&mut self, _: &mut Context<'_>, _: ConnId, token: u64, reason: CloseReason) {
        let Some(talk) = token.checked_sub(1).map(|t| t as usize) else { return };
        let stage = &mut *self.stage.borrow_mut();
        let end = stage.talks[talk].end_at(self.host);
        if let Some(what) = byte_stream::on_over(&stage.talks[talk], end, reason) {
            stage.find("byte_stream", format!("talk {talk}: {what}"));
        }
        stage.talks[talk].ends[end].over = Some(reason);
        stage.talks[talk].ends[end].over_us = Some(stage.now_us);
    }
}
