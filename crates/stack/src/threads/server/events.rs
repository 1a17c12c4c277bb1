//! Owns what the server does when the lane calls it: with each event, and once a poll.

use super::super::COMMANDS_MAX;
use super::super::accept::LaneAcceptor;
use super::super::poll::Watched;
use super::super::words::{
    CONNECTED, ENDED, FULL, Fault, GONE, Op, READ, ROOM, SHUT_WRITE, WRITE, is_over, poll_news, wake_those,
};
use super::record::Record;
use super::{ROOMIER, Server};
use crate::app::{App, ConnId, Context, ListenerId, Soon, UdpId};
use crate::udp::Sender;
use laneway_proto::tcp::CloseReason;
use laneway_proto::time::Instant;
use laneway_sync::prefetch::{prefetch_line, prefetch_line_to_write};
use laneway_sync::wake::look_fence;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering::*;

/// Datagrams that one poll sends for threads.
const DATAGRAMS_MAX: usize = 64;

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
                self.desk.send_more_datagrams(&ticket); // the next poll knows the socket
                break;
            }
            let max = DATAGRAMS_MAX - datagrams;
            let send = |was: Sender, to: SocketAddr, data: &[u8]| _ = cx.send_datagram_as(ticket.id, was, to, data);
            let n = self.with_socket(ticket.id, |side| side.drain(max, send)).unwrap_or(0);
            datagrams += n;
            if n == max {
                self.desk.send_more_datagrams(&ticket); // there may be more
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
            if bits & ROOMIER != 0 && pipe.flags().get(WRITE | ROOM) != 0 && pipe.writable() >= pipe.send_limit() / 3 {
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
            if n < data.len() && record.end.unread() < record.end.pipe().receive_limit() {
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
            is_over(record.end.pipe(), GONE); // though its bytes may wait for their peer yet
            record.watches.look(); // whatever they wait for
            // What was sent still goes out, and then a FIN.
            let at = record.end.sent();
            record.closing = true;
            record.notes.get_or_insert_default().put(at, Op::Close);
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
        CloseReason::OutOfMemory => Some(Fault::TimedOut), // what its thread had closed: then the record would be gone
        CloseReason::Aborted => Some(Fault::Stopped),      // not by its thread: then the record would be gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program does this after one, and that after another.
    #[test]
    fn each_reason_is_told_as_another_fault() {
        use CloseReason::*;
        assert_eq!(fault_of(Normal), None);
        let unreachable = [NetworkUnreachable, HostUnreachable, Prohibited];
        let faults: Vec<_> = [Reset, Refused, TimedOut, Aborted].into_iter().chain(unreachable).map(fault_of).collect();
        for (i, fault) in faults.iter().enumerate() {
            assert!(fault.is_some() && !faults[..i].contains(fault), "{faults:?}");
        }
    }
}
