//! Owns a lane's side of thread sockets: the application that lives on the lane and serves those on other threads.

#[cfg(test)]
mod tests;

use super::accept::LaneAcceptor;
use super::datagram::LaneDatagrams;
use super::desk::{Command, Desk, Inbox, refuse};
use super::hungry::Hungry;
use super::kept::{self, Kept};
use super::lenders::{Holds, Lender, Lenders, Lent};
use super::stock::Stock;
use super::watches::Watches;
use super::words::{
    CONNECTED, Conversation, ENDED, FULL, Fault, GONE, LEFT, NO_SLOT, Op, READ, RESETS, ROOM, Talk, TalkEnd, WRITE,
    is_over, last_words, poll_news, wake_those,
};
use super::{COMMANDS_MAX, KEPT_MAX, SERVED_MAX};
use crate::app::{App, ConnId, Context, ListenerId, UdpId};
use crate::error::Error;
use laneway_proto::tcp::{CloseReason, State};
use laneway_proto::time::Instant;
use laneway_sync::prefetch::prefetch_line;
use laneway_sync::wake::{look_fence, release};
use laneway_wire::flow::Address;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;

/// Conversations that are looked at together.
const BATCH: usize = 16;
/// Datagrams that one poll sends for threads.
const DATAGRAMS_MAX: usize = 64;

/// News that is the lane's own: there is more room to send than there was, though perhaps nobody waits for it, or it is too little.
const ROOMIER: u32 = 1 << 7;

/// A connection that a thread has.
struct Record {
    end: TalkEnd,
    id: ConnId,
    watches: Watches,
    /// What was asked for behind bytes that have not been taken yet.
    #[expect(clippy::box_collection, reason = "one word while there is none, which is nearly always")]
    notes: Option<Box<VecDeque<(u64, Op)>>>,
    /// What threads are to be told at the end of the poll.
    news: u8,
    /// Whether it is on the lists of those that hold blocks.
    lent: Lent,
    /// The application is gone, and only the bytes before its close remain to be sent.
    closing: bool,
    /// The ring keeps what is sent until it is acknowledged.
    keeps: bool,
    /// How many of its thread's bytes the connection has.
    queued: u64,
    /// How many had been given back when it was last served, modulo 2³²: a ring does not hold that many.
    seen: u32,
}

const _: () = assert!(size_of::<Record>() == 64, "as long as a line: serving a connection fetches no second one");

impl Record {
    /// Bytes that the connection does not have yet.
    #[inline]
    fn waiting(&self) -> usize {
        (self.end.sent() - self.queued) as usize
    }

    /// Has the connection show what the ring had no room for, if there is some now.
    #[inline]
    fn resume(&self, cx: &mut Context<'_>) {
        let pipe = self.end.pipe();
        if pipe.flags().get(FULL) != 0 && self.end.unread() <= pipe.limit() / 3 * 2 {
            pipe.flags().take(FULL);
            cx.resume(self.id);
        }
    }

    /// Its thread waits to write although there is room: there was no block for what it would have written.
    #[inline]
    fn waits_for_memory(&self) -> bool {
        let pipe = self.end.pipe();
        pipe.flags().get(WRITE | ROOM) != 0
            && pipe.writable() >= pipe.limit() / 3
            && pipe.lane().status.load(Relaxed) & CONNECTED != 0
    }
}

/// Serves thread sockets on one lane.
pub struct Server {
    desk: Arc<Desk>,
    lane: usize,
    inbox: Inbox,
    commands: VecDeque<Command>,
    /// The first of them waits for its second poll.
    waits: bool,
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
    busy: bool,
}

impl Server {
    pub(super) fn new(desk: Arc<Desk>, lane: usize, inbox: Inbox) -> Self {
        Server {
            desk,
            lane,
            inbox,
            commands: VecDeque::new(),
            waits: false,
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
            busy: false,
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
        let taken = end.taken();
        let record = Record {
            end,
            id,
            watches: Watches::default(),
            notes: None,
            news: 0,
            lent: Lent::default(),
            closing: false,
            keeps: false,
            queued: taken,
            seen: taken as u32,
        };
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
        let Some(record) = self.records.get_mut(index as usize).and_then(Option::take) else { return };
        self.free.push(index);
        let talk = record.end.pipe();
        if let Some(fault) = fault {
            talk.lane().fail(fault);
        }
        talk.place().store(NO_SLOT, Relaxed);
        is_over(talk, GONE);
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
        for _ in 0..self.hungry.due(cx.now(), || self.desk.has_blocks(self.lane)) {
            let Some(index) = self.hungry.pop() else { break };
            let Some(record) = self.record(index) else { continue };
            record.resume(cx);
            self.tell_later(index, ROOMIER);
        }
    }

    /// Does for one connection whatever its thread has asked for. True if nothing is left to do: false also if the connection
    /// has no room for more, and goes on by itself when it has.
    fn serve(&mut self, cx: &mut Context<'_>, index: u32) -> bool {
        let Some(record) = self.records.get_mut(index as usize).and_then(Option::as_mut) else { return false };
        let id = record.id;
        // Before notes and bytes are looked at: it says that there are no more.
        let left = record.end.pipe().flags().seen(LEFT | RESETS);
        let mut aborts = false;
        if !record.end.pipe().said().is_empty() {
            let notes = record.end.pipe().said().take_all();
            record.end.pipe().lane().noted.fetch_add(notes.len() as u16, Release);
            let mut is_shut = false;
            for (at, op) in notes {
                is_shut |= matches!(op, Op::Shutdown | Op::ShutRead);
                match op {
                    Op::Watch(watch) => record.watches.change(watch),
                    Op::Abort => aborts = true,
                    Op::ShutRead => {}
                    // Bytes that nobody will read are thrown away, and their sender hears of it at once.
                    Op::Close if record.end.unread() > 0 => aborts = true,
                    op => {
                        record.closing |= matches!(op, Op::Close);
                        record.notes.get_or_insert_default().push_back((at, op));
                    }
                }
            }
            if is_shut {
                // Whoever waits for what will not come may be another than who has shut it.
                record.watches.look();
            }
        }
        if left != 0 {
            record.closing = true;
            aborts |= left & RESETS != 0 || record.end.unread() > 0;
        }
        if aborts {
            cx.set_token(id, 0);
            cx.abort(id);
            if left != 0 {
                self.put_away(index)
            } else {
                self.remove(index, None)
            }
            return false;
        }
        if record.closing && record.waiting() > 0 {
            cx.orphan(id);
        }
        let goes_on = if left == 0 { !record.closing } else { record.waiting() > 0 };
        let (mut sent, mut all) = (0, true);
        loop {
            let taken = record.queued;
            let mut until = usize::MAX;
            if let Some(notes) = &mut record.notes {
                match notes.front() {
                    // It is still being opened: what was asked for waits until there is something that it can be said to. Unless it is to end,
                    // and nothing is left to be said on it.
                    Some((_, op)) if !matches!(op, Op::Close) && goes_on && is_opening(cx, id) => {
                        all = false;
                        break; // `on_connect` goes on
                    }
                    Some((at, _)) if *at <= taken => {
                        let op = notes.pop_front().map(|(_, op)| op);
                        if matches!(op, Some(Op::Close)) {
                            cx.set_token(id, 0);
                            cx.close(id);
                            self.remove(index, None);
                            return false;
                        }
                        op.into_iter().for_each(|op| apply(cx, id, op));
                        continue;
                    }
                    Some((at, _)) => until = (*at - taken) as usize,
                    None => record.notes = None,
                }
            }
            if !record.keeps && record.waiting() >= kept::STREAM {
                record.keeps = keep(cx, id, &mut record.end);
            }
            let (n, len) = if record.keeps {
                let len = record.waiting().min(until);
                (if len == 0 { 0 } else { cx.send_kept(id, len) }, len)
            } else {
                let front = record.end.front();
                let front = &front[..front.len().min(until)];
                let (n, len) = (if front.is_empty() { 0 } else { cx.send(id, front) }, front.len());
                if n > 0 {
                    record.end.advance(n);
                }
                (n, len)
            };
            if left != 0 && (len == 0 || n == 0 && cannot_send(cx, id)) {
                cx.set_token(id, 0);
                cx.close(id);
                self.put_away(index);
                return false;
            }
            if len == 0 {
                break;
            }
            record.queued += n as u64;
            sent += n;
            if n < len {
                all = false;
                break; // `on_writable` goes on
            }
        }
        let taken = record.end.taken() as u32;
        let is_roomier = taken != std::mem::replace(&mut record.seen, taken);
        record.resume(cx);
        if is_roomier {
            self.tell_later(index, ROOMIER);
        } else if sent == 0 && record.waits_for_memory() {
            self.hungry.add(index, cx.now());
        }
        if sent > 0 {
            self.lend(index, cx.now());
        }
        all
    }

    /// Serves those that were kept, and those on the list; says how many.
    fn serve_all(&mut self, cx: &mut Context<'_>) -> usize {
        let mut served = 0;
        let mut kept = std::mem::take(&mut self.kept);
        kept.retain(|talk| {
            let index = self.place(talk);
            if index.is_some_and(|index| self.has_work(index) && self.serve(cx, index)) {
                served += 1;
                return true;
            }
            release(&**talk);
            served += usize::from(self.serve_released(cx, talk, index));
            false
        });
        // Where many are served, each of them has little to say, and looking at all of them again would cost more than the list.
        let keeps = self.served <= KEPT_MAX;
        let mut batch = std::mem::take(&mut self.batch);
        while served < SERVED_MAX {
            // In passes, as packets are: by the time one is served, its lines are on their way.
            while batch.len() < BATCH
                && let Some(talk) = self.inbox.woken.pop_and_keep()
            {
                prefetch_line(talk.place());
                prefetch_line(talk.lane());
                batch.push(talk);
            }
            if batch.is_empty() {
                break;
            }
            for talk in &batch {
                if let Some(record) = self.records.get(talk.place().load(Relaxed) as usize) {
                    prefetch_line(record);
                }
            }
            for talk in &batch {
                if let Some(Some(record)) = self.records.get(talk.place().load(Relaxed) as usize) {
                    cx.prefetch(record.id);
                }
            }
            for talk in batch.drain(..) {
                served += 1;
                let index = self.place(&talk);
                if keeps && kept.len() < KEPT_MAX && index.is_some_and(|index| self.serve(cx, index)) {
                    kept.push(talk);
                    continue;
                }
                release(&*talk);
                self.serve_released(cx, &talk, index);
            }
        }
        self.batch = batch;
        self.kept = kept;
        self.served = served;
        served
    }

    /// Looks at a conversation after it was released: what was published before was not pushed. True if there was something.
    fn serve_released(&mut self, cx: &mut Context<'_>, talk: &Talk, index: Option<u32>) -> bool {
        match index {
            // One who was kept and asks for memory is not put on the list for that.
            Some(index) if self.has_work(index) || self.record(index).is_some_and(|r| r.waits_for_memory()) => {
                self.serve(cx, index);
                true
            }
            Some(_) => false,
            // Perhaps it was handed to another lane meanwhile.
            None if usize::from(talk.lane().lane.load(Acquire)) != self.lane => {
                self.desk.serve(talk);
                false
            }
            // It ended before the lane knew who watches it: the farewell reached nobody.
            None if talk.lane().status.load(Relaxed) & GONE != 0 => {
                last_words(talk);
                false
            }
            None => false,
        }
    }

    /// Where this lane keeps a conversation, if it does.
    #[inline]
    fn place(&self, talk: &Conversation) -> Option<u32> {
        if usize::from(talk.lane().lane.load(Acquire)) != self.lane {
            return None;
        }
        let index = talk.place().load(Relaxed);
        (index != NO_SLOT).then_some(index)
    }

    /// Its thread has said something that was not looked at.
    #[inline]
    fn has_work(&self, index: u32) -> bool {
        let Some(Some(record)) = self.records.get(index as usize) else { return false };
        let pipe = record.end.pipe();
        // That it has read is said by the list alone, and one who is kept is not put on it again.
        let has_read = || pipe.flags().get(FULL) != 0 && record.end.unread() <= pipe.limit() / 3 * 2;
        let has_left = || !record.closing && pipe.flags().seen(LEFT) != 0;
        record.waiting() > 0 || !pipe.said().is_empty() || has_left() || has_read()
    }

    /// The next command, unless it is to wait for the next poll. The control thread tells the lane of a socket before anybody can use
    /// it, but that may have been after this poll took its mail; and what was sent before the socket was closed is to go out.
    fn next_command(&mut self, cx: &mut Context<'_>) -> Option<Command> {
        let is_early = match self.commands.front()? {
            Command::UnbindUdp(id) => !cx.has_udp(*id),
            _ => false,
        };
        // Once: it may be unbound already, and then nobody tells of it again.
        self.waits = is_early && !self.waits;
        if self.waits { None } else { self.commands.pop_front() }
    }

    fn on_command(&mut self, cx: &mut Context<'_>, command: Command) {
        match command {
            Command::Connect { end, from, to, tried } => self.connect(cx, end, from, to, tried),
            Command::Listen(side) => {
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
            Command::BindUdp(side) => _ = self.sockets.insert(side.shared.id.0, side),
            Command::UnbindUdp(id) => {
                if let Some(mut side) = self.sockets.remove(&id.0) {
                    // What was sent before the socket was closed still goes out, as far as one poll can take it.
                    side.drain(DATAGRAMS_MAX, |to, data| _ = cx.send_datagram(id, to, data));
                    side.end();
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

    /// A UDP socket's side here. What is sent or comes as soon as the socket is bound may be before the command that brings it.
    fn socket(&mut self, id: UdpId) -> Option<&mut LaneDatagrams> {
        if !self.sockets.contains_key(&id.0) {
            self.commands.extend(self.desk.take_commands(self.lane));
            let brings = |command: &Command| matches!(command, Command::BindUdp(side) if side.shared.id == id);
            let at = self.commands.iter().position(brings)?;
            if let Some(Command::BindUdp(side)) = self.commands.remove(at) {
                self.sockets.insert(id.0, side);
            }
        }
        self.sockets.get_mut(&id.0).map(Box::as_mut)
    }

    /// Does something with a UDP socket's side; its threads are told at the end of the poll if there is news then.
    fn with_socket<T>(&mut self, id: UdpId, act: impl FnOnce(&mut LaneDatagrams) -> T) -> Option<T> {
        let side = self.socket(id)?;
        let had_news = side.news != 0;
        let done = act(side);
        if !had_news && side.news != 0 {
            self.socket_news.push(id);
        }
        Some(done)
    }

    fn connect(&mut self, cx: &mut Context<'_>, end: TalkEnd, from: Option<Address>, to: SocketAddr, tried: usize) {
        end.pipe().lane().lane.store(self.lane as u16, Release);
        match cx.connect(from, Address::from(to.ip()), to.port(), 0) {
            Ok(id) => {
                // It has a port from now on, and is asked for it before it is connected.
                cx.flow(id).into_iter().for_each(|flow| end.pipe().lane().set_flow(flow));
                let index = self.insert(end, id);
                cx.set_token(id, u64::from(index) + 1);
                self.serve(cx, index); // its thread may have given up meanwhile
            }
            Err(Error::LaneExhausted(_)) if tried + 1 < self.desk.lanes() => {
                let next = (self.lane + 1) % self.desk.lanes();
                end.pipe().lane().lane.store(next as u16, Release);
                self.desk.say(next, Command::Connect { end, from, to, tried: tried + 1 });
            }
            Err(error) => {
                end.pipe().lane().fail(match error {
                    Error::NetworkUnreachable(_) => Fault::NetworkUnreachable,
                    Error::AddressNotAvailable(_)
                    | Error::LaneExhausted(_)
                    | Error::PortsExhausted(_)
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
            let holds = end.holds();
            let index = self.insert(end, id);
            cx.set_token(id, u64::from(index) + 1);
            cx.set_answers_later(id, true);
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

/// From now on the connection sends out of the ring. False: there is none yet that could.
#[cold]
fn keep(cx: &mut Context<'_>, id: ConnId, end: &mut TalkEnd) -> bool {
    cx.state(id).is_synchronized() && end.part().is_some_and(|half| cx.set_keeper(id, Box::new(Kept::new(half))))
}

/// It is not connected yet.
fn is_opening(cx: &mut Context<'_>, id: ConnId) -> bool {
    let state = cx.state(id);
    !state.is_synchronized() && state != State::Closed
}

/// It was connected, and takes no more bytes: there is a FIN behind those that it has.
#[cold]
fn cannot_send(cx: &mut Context<'_>, id: ConnId) -> bool {
    let state = cx.state(id);
    state.is_synchronized() && !state.can_send()
}

fn apply(cx: &mut Context<'_>, id: ConnId, op: Op) {
    match op {
        Op::Nodelay(on) => cx.set_nodelay(id, on),
        Op::Keepalive(on) => cx.set_keepalive(id, on),
        Op::UserTimeout(ms) => cx.set_user_timeout_ms(id, ms),
        Op::Shutdown => cx.shutdown(id),
        // These were dealt with when they came.
        Op::Close | Op::Abort | Op::ShutRead | Op::Watch(_) => {}
    }
}

impl App for Server {
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        self.now = cx.now();
        self.commands.extend(self.desk.take_commands(self.lane));
        let mut commands = 0;
        while commands < COMMANDS_MAX
            && let Some(command) = self.next_command(cx)
        {
            self.on_command(cx, command);
            commands += 1;
        }
        let served = self.serve_all(cx);
        let mut datagrams = 0;
        while datagrams < DATAGRAMS_MAX
            && let Some(ticket) = self.inbox.woken_udp.pop()
        {
            let is_early = !cx.has_udp(ticket.id);
            if self.socket(ticket.id).is_none() {
                continue;
            }
            if is_early {
                self.desk.send_datagrams(&ticket); // the next poll knows the socket
                break;
            }
            let max = DATAGRAMS_MAX - datagrams;
            let send = |to: SocketAddr, data: &[u8]| _ = cx.send_datagram(ticket.id, to, data);
            let n = self.with_socket(ticket.id, |side| side.drain(max, send)).unwrap_or(0);
            datagrams += n;
            if n == max {
                self.desk.send_datagrams(&ticket); // there may be more
            }
        }
        self.sweep(cx.now());
        self.feed(cx);
        self.stock.shrink(cx.now());
        self.busy = commands + served + datagrams + self.kept.len() > 0;
    }

    fn on_poll_end(&mut self) {
        let others = self.listener_news.len() + self.socket_news.len();
        if self.news.is_empty() && self.farewells.is_empty() && others == 0 {
            return self.stock.settle(self.now);
        }
        // One that has ended meanwhile has told everybody already.
        for id in &self.listener_news {
            self.listeners.get_mut(&id.0).into_iter().for_each(LaneAcceptor::publish);
        }
        look_fence(); // one for all that this poll has published
        for (i, &index) in self.news.iter().enumerate() {
            // What those that come later will need is fetched meanwhile: the record, and then what it leads to.
            if let Some(Some(later)) = self.news.get(i + 4).and_then(|later| self.records.get(*later as usize)) {
                prefetch_line(later.end.pipe().flags());
                later.watches.first().into_iter().for_each(|watch| prefetch_line(Arc::as_ptr(watch)));
            }
            let Some(Some(record)) = self.records.get_mut(index as usize) else { continue };
            let mut bits = u32::from(std::mem::take(&mut record.news));
            let pipe = record.end.pipe();
            // Asked behind the fence, and not when the room came about: who says that he waits looks for it behind one of his own.
            if bits & ROOMIER != 0 && pipe.flags().get(WRITE | ROOM) != 0 && pipe.writable() >= pipe.limit() / 3 {
                bits |= WRITE;
            }
            bits &= READ | WRITE;
            if bits == 0 {
                continue;
            }
            wake_those(pipe.flags(), &pipe.lane().event, bits);
            if !record.watches.is_none() {
                record.watches.tell(poll_news(pipe.flags(), bits));
            }
        }
        self.news.clear();
        for (end, watches) in self.farewells.drain(..) {
            let talk = end.pipe();
            wake_those(talk.flags(), &talk.lane().event, READ | WRITE);
            watches.look();
            self.stock.give(end);
        }
        for id in self.listener_news.drain(..) {
            self.listeners.get_mut(&id.0).into_iter().for_each(LaneAcceptor::tell);
        }
        for id in self.socket_news.drain(..) {
            self.sockets.get_mut(&id.0).into_iter().for_each(|side| side.tell());
        }
        self.stock.settle(self.now);
    }

    fn is_busy(&self) -> bool {
        self.busy || !self.commands.is_empty()
    }

    fn poll_timeout(&self) -> Instant {
        self.lenders.due().min(self.stock.due()).min(self.hungry.deadline())
    }

    fn on_acceptable(&mut self, cx: &mut Context<'_>, listener: ListenerId) {
        self.offer(cx, listener);
    }

    fn on_connect(&mut self, cx: &mut Context<'_>, connection: ConnId) {
        let Some(index) = self.find(cx.token(connection)) else { return cx.abort(connection) };
        if let Some(record) = self.record(index) {
            record.end.pipe().lane().status.fetch_or(CONNECTED, Release);
        }
        cx.set_answers_later(connection, true);
        self.tell_later(index, READ | WRITE);
        self.serve(cx, index);
    }

    fn on_data(&mut self, cx: &mut Context<'_>, connection: ConnId, data: &[u8]) -> usize {
        let Some(index) = self.find(cx.token(connection)) else {
            cx.abort(connection);
            return data.len();
        };
        let Some(record) = self.record(index) else { return 0 };
        if record.closing {
            // Its thread has left; these bytes nobody will read.
            cx.set_token(connection, 0);
            cx.abort(connection);
            self.remove(index, None);
            return data.len();
        }
        let mut n = record.end.fill(data);
        if n < data.len() {
            record.end.pipe().flags().want(FULL);
            n += record.end.fill(&data[n..]); // its thread may have read before it could know
            if n < data.len() && record.end.unread() < record.end.pipe().limit() {
                self.hungry.add(index, cx.now());
            }
        }
        self.tell_later(index, READ);
        self.lend(index, cx.now());
        n
    }

    /// What the conversation's ring has no room for.
    fn takes_pieces(&self) -> bool {
        true
    }

    fn on_writable(&mut self, cx: &mut Context<'_>, connection: ConnId) {
        if let Some(index) = self.find(cx.token(connection)) {
            self.serve(cx, index);
        }
    }

    fn on_peer_closed(&mut self, cx: &mut Context<'_>, connection: ConnId) {
        let Some(index) = self.find(cx.token(connection)) else { return cx.close(connection) };
        if let Some(record) = self.record(index) {
            record.end.pipe().lane().status.fetch_or(ENDED, Release);
        }
        self.tell_later(index, READ);
    }

    fn on_closed(&mut self, _: &mut Context<'_>, _: ConnId, token: u64, reason: CloseReason) {
        let Some(index) = self.find(token) else { return };
        let ended = self.record(index).is_some_and(|r| r.end.pipe().lane().status.load(Relaxed) & ENDED != 0);
        let fault = match reason {
            CloseReason::Normal => None,
            CloseReason::Reset if ended => Some(Fault::BrokenPipe),
            CloseReason::Reset => Some(Fault::Reset),
            CloseReason::Refused => Some(Fault::Refused),
            CloseReason::TimedOut => Some(Fault::TimedOut),
            CloseReason::Aborted => Some(Fault::Stopped), // not by its thread: then the record would be gone
        };
        self.remove(index, fault);
    }

    fn on_stop(&mut self, cx: &mut Context<'_>) {
        self.desk.stop();
        for index in 0..self.records.len() as u32 {
            let Some(record) = self.record(index) else { continue };
            record.end.pipe().lane().fail(Fault::Stopped);
            is_over(record.end.pipe(), 0);
            record.watches.look(); // whatever they wait for
            // What was sent still goes out, and then a FIN.
            let at = record.end.sent();
            record.closing = true;
            record.notes.get_or_insert_default().push_back((at, Op::Close));
            self.tell_later(index, READ | WRITE);
            self.serve(cx, index);
        }
        self.listeners.values().for_each(LaneAcceptor::end);
        self.sockets.values().for_each(|side| side.end());
    }

    fn on_datagram(&mut self, cx: &mut Context<'_>, socket: UdpId, from: SocketAddr, data: &[u8]) {
        if self.with_socket(socket, |side| side.deliver(from, data)) == Some(false) {
            cx.datagram_without_room();
        }
    }

    fn peer_is(&self, socket: UdpId, peer: SocketAddr) -> Option<bool> {
        self.sockets.get(&socket.0)?.shared.heard.is(peer)
    }

    fn on_unreachable(&mut self, _: &mut Context<'_>, socket: UdpId, to: SocketAddr) {
        self.with_socket(socket, |side| side.refuse(to));
    }
}

/// However a lane ends: whoever waits for it is told.
impl Drop for Server {
    fn drop(&mut self) {
        self.desk.stop();
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
    }
}
