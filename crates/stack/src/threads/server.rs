//! Owns a lane's side of thread sockets: the application that lives on the lane and serves those on other threads. When it is called, and what it does
//! then, is in `events`; what a thread has asked for is done in `serving`, and waits in `wishes`.

mod datagrams;
mod events;
mod record;
mod serving;
#[cfg(test)]
mod tests;
mod wishes;

use self::record::Record;
use self::serving::BATCH;
use super::KEPT_MAX;
use super::accept::LaneAcceptor;
use super::datagram::LaneDatagrams;
use super::desk::{Command, Desk, Inbox, Opening, Origin, refuse};
use super::hungry::Hungry;
use super::lenders::{Holds, Lender, Lenders};
use super::stock::Stock;
use super::watches::Watches;
use super::words::{CONNECTED, Fault, GONE, NO_SLOT, READ, Talk, TalkEnd, WRITE, is_over, last_words, wake_those};
use crate::app::{ConnId, Context, ListenerId, UdpId};
use crate::error::Error;
use laneway_proto::time::Instant;
use laneway_sync::wake::look_fence;
use laneway_wire::flow::Address;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::*;

/// News that is the lane's own: there is more room to send than there was, though perhaps nobody waits for it, or it is too little.
const ROOMIER: u32 = 1 << 7;

/// How often lanes pass the wish to connect from a port on to each other: once, as a rule, and to and fro for a moment while a bucket moves.
const PASSED_MAX: usize = 64;

/// Serves thread sockets on one lane.
pub struct Server {
    desk: Arc<Desk>,
    lane: usize,
    inbox: Inbox,
    commands: VecDeque<Command>,
    /// How many of them bring a UDP socket: none, as a rule.
    late_sockets: usize,
    /// Conversations that spoke in the last poll: they are looked at without being on the list.
    kept: Vec<Talk>,
    /// Conversations that the last poll served.
    served: usize,
    /// Those that are served next; empty between polls.
    batch: Vec<Talk>,
    records: Vec<Option<Record>>,
    free: Vec<u32>,
    /// Records with news.
    news: Vec<u32>,
    /// Listeners with news, by name: of a thousand that are idle none is looked at.
    listener_news: Vec<ListenerId>,
    /// UDP sockets with news.
    socket_news: Vec<UdpId>,
    /// Those that hold blocks.
    lenders: Lenders,
    /// Those for which there was no block.
    hungry: Hungry,
    /// Conversations that ended in this poll, and whose threads must be told.
    farewells: Vec<(TalkEnd, Watches)>,
    /// Conversations that ended, for others.
    stock: Stock,
    now: Instant,
    listeners: BTreeMap<u16, LaneAcceptor>,
    sockets: BTreeMap<u16, Box<LaneDatagrams>>,
    /// Those that were closed, by name, until all that was sent from them before has gone out.
    leaving: BTreeMap<u16, Box<LaneDatagrams>>,
    busy: bool,
    /// The stack stops: nothing new begins for threads.
    stopping: bool,
}

impl Server {
    pub(super) fn new(desk: Arc<Desk>, lane: usize, inbox: Inbox) -> Self {
        Server {
            desk,
            lane,
            inbox,
            commands: VecDeque::new(),
            late_sockets: 0,
            kept: Vec::with_capacity(KEPT_MAX),
            served: 0,
            batch: Vec::with_capacity(BATCH),
            records: Vec::new(),
            free: Vec::new(),
            news: Vec::new(),
            listener_news: Vec::new(),
            socket_news: Vec::new(),
            lenders: Lenders::default(),
            hungry: Hungry::default(),
            farewells: Vec::new(),
            stock: Stock::default(),
            now: Instant::NEVER,
            listeners: BTreeMap::new(),
            sockets: BTreeMap::new(),
            leaving: BTreeMap::new(),
            busy: false,
            stopping: false,
        }
    }

    /// The record of a connection: its token is the place plus one.
    #[inline]
    fn find(&self, token: u64) -> Option<u32> {
        let index = token.checked_sub(1)? as u32;
        self.records.get(index as usize)?.as_ref().map(|_| index)
    }

    #[inline]
    fn record(&mut self, index: u32) -> Option<&mut Record> {
        self.records.get_mut(index as usize)?.as_mut()
    }

    fn insert(&mut self, end: TalkEnd, id: ConnId) -> u32 {
        let record = Record::new(end, id);
        let index = match self.free.pop() {
            Some(index) => {
                self.records[index as usize] = Some(record);
                index
            }
            None => {
                self.records.push(Some(record));
                (self.records.len() - 1) as u32
            }
        };
        if let Some(record) = self.record(index) {
            record.end.pipe().place().store(index, Relaxed);
        }
        index
    }

    /// The conversation is over for the lane; its thread is told why.
    fn remove(&mut self, index: u32, fault: Option<Fault>) {
        let Some(mut record) = self.records.get_mut(index as usize).and_then(Option::take) else { return };
        self.free.push(index);
        let talk = record.end.pipe();
        if let Some(fault) = fault {
            talk.lane().fail(fault);
        }
        talk.place().store(NO_SLOT, Relaxed);
        is_over(talk, GONE);
        if record.keeps || record.waiting() > 0 {
            record.throw_away();
        }
        self.farewells.push((record.end, record.watches));
    }

    /// As [`remove`](Self::remove), of one whose application has left: there is nobody to tell, unless somebody watches.
    fn put_away(&mut self, index: u32) {
        if self.record(index).is_some_and(|record| !record.watches.is_none()) {
            return self.remove(index, None);
        }
        let Some(record) = self.records.get_mut(index as usize).and_then(Option::take) else { return };
        self.free.push(index);
        record.end.pipe().place().store(NO_SLOT, Relaxed);
        self.stock.give(record.end);
    }

    #[inline]
    fn tell_later(&mut self, index: u32, bits: u32) {
        let Some(record) = self.records.get_mut(index as usize).and_then(Option::as_mut) else { return };
        if record.news == 0 {
            self.news.push(index);
        }
        record.news |= bits as u8;
    }

    #[inline]
    fn lend(&mut self, index: u32, now: Instant) {
        let Some(record) = self.records.get_mut(index as usize).and_then(Option::as_mut) else { return };
        let holds = if record.end.holds_more() { Holds::More } else { Holds::AWord };
        if record.lent.speaks(holds) {
            self.lenders.add(holds, Lender { index, id: record.id }, now);
        }
    }

    /// Those for which there was no block try again.
    fn feed(&mut self, cx: &mut Context<'_>) {
        for _ in 0..self.hungry.due(cx.now(), || self.desk.has_blocks()) {
            let Some(index) = self.hungry.pop() else { break };
            let Some(record) = self.record(index) else { continue };
            record.resume(cx);
            // Not the lane's own: one that another lane has passed on has blocks of that one.
            let pool = record.end.pool();
            let to_write = pool.has_some() || pool.has_reserve_to_write();
            if to_write {
                self.tell_later(index, ROOMIER);
            } else if record.waits_for_memory() {
                self.hungry.add(index, cx.now()); // what is in reserve to show what has come is not for what it would write
            }
        }
    }

    fn on_command(&mut self, cx: &mut Context<'_>, command: Command) {
        match command {
            Command::Connect { .. } if self.stopping => refuse(command),
            Command::Connect { end, opening, tried } => self.connect(cx, end, opening, tried),
            Command::Listen(side) => {
                if self.stopping {
                    side.end();
                }
                let id = side.shared.id;
                cx.hands_out(id, side.places);
                self.listeners.insert(id.0, side);
                self.offer(cx, id);
            }
            Command::Unlisten(id) => {
                let Some(mut side) = self.listeners.remove(&id.0) else { return };
                while let Some(newcomer) = side.take_back() {
                    let index = newcomer.place().load(Relaxed);
                    if let Some(connection) = self.record(index).map(|record| record.id) {
                        cx.set_token(connection, 0);
                        cx.abort(connection);
                        self.remove(index, None);
                    }
                }
                side.end();
            }
            Command::Refill(id) => self.offer(cx, id),
            Command::BindUdp(side) => {
                self.late_sockets -= 1;
                self.take_in(side);
            }
            Command::UnbindUdp(id) => {
                if let Some(side) = self.sockets.remove(&id.0) {
                    side.end();
                    self.leaving.insert(id.0, side);
                }
            }
            Command::WatchListener(id, watch) => {
                if let Some(side) = self.listeners.get_mut(&id.0) {
                    side.watches.change(watch);
                }
            }
            Command::WatchUdp(id, watch) => {
                if let Some(side) = self.sockets.get_mut(&id.0) {
                    side.watches.change(watch);
                }
            }
        }
    }

    /// Takes what threads have said. UDP sockets are there at once: to look for each among all that is to be done yet would cost more the more there
    /// is. Not so one whose name is still that of another, of whose end is among those, too; nor any behind it.
    fn hear(&mut self) {
        for command in self.desk.take_commands(self.lane) {
            match command {
                Command::BindUdp(side) if self.late_sockets == 0 && !self.sockets.contains_key(&side.shared.id.0) => {
                    self.take_in(side);
                }
                command => {
                    self.late_sockets += usize::from(matches!(command, Command::BindUdp(_)));
                    self.commands.push_back(command);
                }
            }
        }
    }

    fn connect(&mut self, cx: &mut Context<'_>, end: TalkEnd, opening: Opening, tried: usize) {
        end.pipe().lane().lane.store(self.lane as u16, Release);
        if end.pipe().lane().status.load(Acquire) & GONE != 0 {
            // Called off before it was begun.
            last_words(end.pipe());
            return self.farewells.push((end, Watches::default()));
        }
        let Opening { from, to, marks } = opening;
        let (ip, port) = (Address::from(to.ip()), to.port());
        let begun = match from {
            Origin::Anywhere => cx.connect(None, ip, port, 0),
            Origin::Address(from) => cx.connect(Some(from), ip, port, 0),
            Origin::Bound(socket) => cx.connect_from(socket, ip, port, 0),
        };
        let next = match begun {
            Err(Error::LaneExhausted(_)) if tried + 1 < self.desk.lanes() => Some((self.lane + 1) % self.desk.lanes()),
            Err(Error::OtherLane(lane)) if tried < PASSED_MAX => Some(lane),
            _ => None,
        };
        if let Some(next) = next {
            end.pipe().lane().lane.store(next as u16, Release);
            return self.desk.say(next, Command::Connect { end, opening, tried: tried + 1 });
        }
        match begun {
            Ok(id) => {
                cx.set_marks(id, marks);
                // It has a port from now on, and is asked for it before it is connected.
                cx.flow(id).into_iter().for_each(|flow| end.pipe().lane().set_flow(flow));
                let index = self.insert(end, id);
                cx.set_token(id, u64::from(index) + 1);
                self.serve(cx, index); // its thread may have given up meanwhile
            }
            Err(error) => {
                end.pipe().lane().fail(match error {
                    Error::NetworkUnreachable(_) => Fault::NetworkUnreachable,
                    Error::AddressNotAvailable(_)
                    | Error::LaneExhausted(_)
                    | Error::PortsExhausted(_)
                    | Error::OtherLane(_)
                    | Error::FlowInUse(..) => Fault::AddressNotAvailable,
                    Error::AddressInUse(_) => Fault::AddressInUse,
                    Error::Closed => Fault::Stopped,
                    _ => Fault::Invalid,
                });
                is_over(end.pipe(), GONE);
                // Who waited behind others to be begun is not on the list any more; who watches it has been said all the same.
                last_words(end.pipe());
                self.farewells.push((end, Watches::default()));
            }
        }
    }

    /// Offers finished connections to threads, as many as there is room for.
    fn offer(&mut self, cx: &mut Context<'_>, listener: ListenerId) {
        if self.stopping {
            return; // they are reset with their listener
        }
        let lane = self.lane;
        while let Some(side) = self.listeners.get_mut(&listener.0)
            && side.has_room(lane)
            && let Some(id) = cx.accept(listener)
        {
            let Some(flow) = cx.flow(id) else { continue };
            let end = self.stock.take(flow).unwrap_or_else(|| {
                let (talk, end) = self.desk.conversation(lane);
                talk.lane().set_flow(flow);
                talk.lane().status.store(CONNECTED, Release);
                end
            });
            if !side.has_news() {
                self.listener_news.push(listener);
            }
            side.stage(end.share(), &flow);
            let marks = side.shared.marks();
            let holds = end.holds();
            let index = self.insert(end, id);
            cx.set_token(id, u64::from(index) + 1);
            cx.set_answers_later(id, true);
            cx.set_marks(id, marks); // it may have come before the listener had them
            if holds {
                self.lend(index, cx.now());
            }
        }
    }

    /// Takes back the blocks of conversations in which nothing waits.
    fn sweep(&mut self, now: Instant) {
        if now < self.lenders.due() {
            return;
        }
        while let Some((list, lender)) = self.lenders.next(now) {
            // Another's by now? That one is on the list for itself.
            let Some(record) = self.record(lender.index).filter(|record| record.id == lender.id) else { continue };
            if record.lent.was_silent(list) && record.end.retire() {
                record.lent.leaves(list);
            } else {
                self.lenders.add(list, lender, now);
            }
        }
        self.lenders.settle();
    }
}

/// However a lane ends: whoever waits for it is told.
impl Drop for Server {
    fn drop(&mut self) {
        self.desk.ends(self.lane);
        self.commands.drain(..).chain(self.desk.take_commands(self.lane)).for_each(refuse);
        for index in 0..self.records.len() as u32 {
            self.remove(index, Some(Fault::Stopped));
        }
        self.listeners.values().for_each(LaneAcceptor::end);
        self.sockets.values().for_each(|side| side.end());
        look_fence();
        for (end, watches) in self.farewells.drain(..) {
            let talk = end.pipe();
            wake_those(talk.flags(), &talk.lane().event, READ | WRITE);
            last_words(talk);
            watches.look();
        }
        // Those that ended before, and of which something was said since.
        let on_list = std::iter::from_fn(|| self.inbox.woken.pop());
        self.kept.drain(..).chain(on_list).for_each(|talk| last_words(&talk));
    }
}
