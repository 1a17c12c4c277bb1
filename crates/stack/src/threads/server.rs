//! Owns a lane's side of thread sockets: the application that lives on the lane and serves those on other threads.

mod record;
mod serving;
#[cfg(test)]
mod tests;

use self::record::Record;
use self::serving::BATCH;
use super::accept::LaneAcceptor;
use super::datagram::LaneDatagrams;
use super::desk::{Command, Desk, Inbox, refuse};
use super::hungry::Hungry;
use super::lenders::{Holds, Lender, Lenders};
use super::poll::Watched;
use super::stock::Stock;
use super::watches::Watches;
use super::words::{
    CONNECTED, ENDED, FULL, Fault, GONE, NO_SLOT, Op, READ, ROOM, SHUT_WRITE, Talk, TalkEnd, WRITE, is_over,
    last_words, poll_news, wake_those,
};
use super::{COMMANDS_MAX, KEPT_MAX};
use crate::app::{App, ConnId, Context, ListenerId, Soon, UdpId};
use crate::error::Error;
use laneway_proto::tcp::CloseReason;
use laneway_proto::time::Instant;
use laneway_sync::prefetch::{prefetch_line, prefetch_line_to_write};
use laneway_sync::wake::look_fence;
use laneway_wire::flow::Address;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::*;

/// Datagrams that one poll sends for threads.
const DATAGRAMS_MAX: usize = 64;

/// News that is the lane's own: there is more room to send than there was, though perhaps nobody waits for it, or it is too little.
const ROOMIER: u32 = 1 << 7;

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
        let mut for_all = false;
        let has_some = || {
            for_all = self.desk.has_blocks(self.lane);
            for_all || self.desk.has_reserve(self.lane)
        };
        for _ in 0..self.hungry.due(cx.now(), has_some) {
            let Some(index) = self.hungry.pop() else { break };
            let Some(record) = self.record(index) else { continue };
            record.resume(cx);
            if for_all {
                self.tell_later(index, ROOMIER);
            } else if record.waits_for_memory() {
                self.hungry.add(index, cx.now()); // what is in reserve is not for what it would write
            }
        }
    }

    fn on_command(&mut self, cx: &mut Context<'_>, command: Command) {
        match command {
            Command::Connect { .. } if self.stopping => refuse(command),
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
            Command::BindUdp(side) => {
                self.late_sockets -= 1;
                self.sockets.insert(side.shared.id.0, side);
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
                    self.sockets.insert(side.shared.id.0, side);
                }
                command => {
                    self.late_sockets += usize::from(matches!(command, Command::BindUdp(_)));
                    self.commands.push_back(command);
                }
            }
        }
    }

    /// Which of the commands brings a socket of this name.
    fn late_socket(&self, id: UdpId) -> Option<usize> {
        let brings = |command: &Command| matches!(command, Command::BindUdp(side) if side.shared.id == id);
        if self.late_sockets == 0 { None } else { self.commands.iter().position(brings) }
    }

    /// A UDP socket's side here. What is sent or comes as soon as the socket is bound may be before the command that brings it.
    fn socket(&mut self, id: UdpId) -> Option<&mut LaneDatagrams> {
        if !self.sockets.contains_key(&id.0) {
            self.hear();
            if let Some(at) = self.late_socket(id)
                && let Some(Command::BindUdp(side)) = self.commands.remove(at)
            {
                self.late_sockets -= 1;
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

    /// Sends what was sent from sockets before they were closed, at most `max` datagrams; says how many.
    fn see_off(&mut self, cx: &mut Context<'_>, max: usize) -> usize {
        let (mut sent, mut from) = (0, 0);
        while sent < max
            && let Some((&name, side)) = self.leaving.range_mut(from..).next()
        {
            from = name + 1; // the last name is nobody's
            // It was closed before the lane has heard of it: the control plane told so, though not yet in this poll.
            let id = side.shared.id;
            if !cx.has_udp(id) {
                continue;
            }
            let n = side.drain(max - sent, |from, to, data| _ = cx.send_datagram_from(id, from, to, data));
            sent += n;
            if sent < max {
                cx.udp_has_left(id);
                self.leaving.remove(&name);
            }
        }
        sent
    }

    /// Something that was sent from a UDP socket may be yet to go out.
    fn may_send(&self, id: UdpId) -> bool {
        self.sockets.contains_key(&id.0) || self.leaving.contains_key(&id.0) || self.late_socket(id).is_some()
    }

    fn connect(&mut self, cx: &mut Context<'_>, end: TalkEnd, from: Option<Address>, to: SocketAddr, tried: usize) {
        end.pipe().lane().lane.store(self.lane as u16, Release);
        if end.pipe().lane().status.load(Acquire) & GONE != 0 {
            // Called off before it was begun.
            last_words(end.pipe());
            return self.farewells.push((end, Watches::default()));
        }
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

impl App for Server {
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        self.now = cx.now();
        self.hear();
        let mut commands = 0;
        while commands < COMMANDS_MAX
            && let Some(command) = self.commands.pop_front()
        {
            self.on_command(cx, command);
            commands += 1;
        }
        let served = self.serve_all(cx);
        // Half of a poll is theirs, so that those who send all the time do not keep them for ever.
        let mut datagrams = self.see_off(cx, DATAGRAMS_MAX / 2);
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
            let send = |from: IpAddr, to: SocketAddr, data: &[u8]| _ = cx.send_datagram_from(ticket.id, from, to, data);
            let n = self.with_socket(ticket.id, |side| side.drain(max, send)).unwrap_or(0);
            datagrams += n;
            if n == max {
                self.desk.send_datagrams(&ticket); // there may be more
            }
        }
        // The control plane has given up the names of those that were closed; their ports they need until they have left.
        cx.udp_leaves(|id| self.may_send(id));
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
                later.watches.first().into_iter().for_each(Watched::prefetch);
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
        if let Some(record) = self.record(index)
            && record.end.pipe().lane().status.fetch_or(CONNECTED, Release) & GONE != 0
        {
            // Called off, and the note of it may be on its way yet: nobody is shown what comes until then.
            cx.set_token(connection, 0);
            cx.abort(connection);
            return self.remove(index, None);
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
        if n > 0 {
            // Who is refused has said nothing: the block of the other direction goes back if it is idle.
            self.tell_later(index, READ);
            self.lend(index, cx.now());
        }
        n
    }

    /// The record, the lines of the conversation that it leads to, and the block that those lead to, each once the one before it has come.
    fn on_soon(&mut self, those: &[Soon]) {
        let places = || those.iter().map(|soon| (soon.token.wrapping_sub(1) as usize, soon.bytes));
        for (place, _) in places() {
            if let Some(record) = self.records.get(place) {
                prefetch_line_to_write(record);
            }
        }
        for (place, _) in places() {
            if let Some(Some(record)) = self.records.get(place) {
                let talk = record.end.pipe();
                prefetch_line_to_write(talk.place());
                prefetch_line(talk.lane());
                prefetch_line(talk.flags());
            }
        }
        for (place, bytes) in places() {
            if let Some(Some(record)) = self.records.get_mut(place) {
                record.end.prefetch_room(bytes);
            }
        }
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
        // As the kernel has it: the peer had said all, and who had not can say nothing to him any more.
        let breaks_pipe = |record: &mut Record| {
            let talk = record.end.pipe();
            talk.lane().status.load(Relaxed) & ENDED != 0 && talk.app().state.load(Relaxed) & SHUT_WRITE == 0
        };
        let fault = match reason {
            CloseReason::Reset if self.record(index).is_some_and(breaks_pipe) => Some(Fault::BrokenPipe),
            _ => fault_of(reason),
        };
        self.remove(index, fault);
    }

    fn on_stop(&mut self, cx: &mut Context<'_>) {
        self.desk.stop();
        self.stopping = true;
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
        // Of one that the lane did not know yet it could not say whom it hears, and it may have a peer already.
        let is_new = !self.sockets.contains_key(&socket.0);
        if is_new && self.socket(socket).is_some_and(|side| side.is_deaf_to(cx.datagram_at(), from)) {
            return cx.datagram_unheard();
        }
        if self.with_socket(socket, |side| side.deliver(from, data)) == Some(false) {
            cx.datagram_without_room();
        }
    }

    fn peer_is(&self, socket: UdpId, at: IpAddr, peer: SocketAddr) -> Option<bool> {
        self.sockets.get(&socket.0)?.shared.heard.is(at, peer)
    }

    fn unclaimed(&self, listener: ListenerId) -> usize {
        self.listeners.get(&listener.0).map_or(0, LaneAcceptor::unclaimed)
    }

    fn on_unreachable(&mut self, _: &mut Context<'_>, socket: UdpId, to: SocketAddr, why: CloseReason) {
        if let Some(fault) = fault_of(why) {
            self.with_socket(socket, |side| side.fail(to, fault));
        }
    }
}

/// What a thread is told that waits for it.
fn fault_of(reason: CloseReason) -> Option<Fault> {
    match reason {
        CloseReason::Normal => None,
        CloseReason::Reset => Some(Fault::Reset),
        CloseReason::Refused => Some(Fault::Refused),
        CloseReason::NetworkUnreachable => Some(Fault::NetworkUnreachable),
        CloseReason::HostUnreachable => Some(Fault::HostUnreachable),
        CloseReason::Prohibited => Some(Fault::Prohibited),
        CloseReason::TimedOut => Some(Fault::TimedOut),
        CloseReason::Aborted => Some(Fault::Stopped), // not by its thread: then the record would be gone
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
