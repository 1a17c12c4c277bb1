//! Owns the verbs of an application: what it can do while it is called, about connections and datagrams that there are.
//!
//! path: `… → tcp::input → tcp::state → [application] → tcp::output → …`

use super::{ConnId, ListenerId, UdpId};
use crate::counters::Mib;
use crate::lane::Local;
use crate::tables::{Tables, Tcb, prefetch_ring};
use crate::udp::{Fate, Sender, Sending};
use laneway_proto::ip::output::Marks;
use laneway_proto::tcp::congestion::Algorithm;
use laneway_proto::tcp::{self, Connection, KeepaliveTimes, State};
use laneway_proto::time::Instant;
use laneway_wire::flow::{Address, FlowKey};
use std::net::{IpAddr, SocketAddr};

/// Of a byte of `IP_TOS`: the rest is for ECN.
const DSCP: u8 = 0b1111_1100;

/// What an application can do while it is called.
pub struct Context<'a> {
    pub(crate) tables: &'a mut Tables,
    pub(crate) local: &'a mut Local,
}

impl Context<'_> {
    /// The time of this poll.
    pub fn now(&self) -> Instant {
        self.local.now
    }

    /// The lane's number, from 0.
    pub fn lane(&self) -> usize {
        self.local.id
    }

    /// How many lanes there are.
    pub fn lanes(&self) -> usize {
        self.local.steering.lanes()
    }

    /// Says that a connection will be needed soon.
    #[inline]
    pub(crate) fn prefetch(&self, connection: ConnId) {
        self.tables.prefetch(connection);
    }

    /// Says that so many connections will be sent on that have nothing queued.
    #[inline]
    pub(crate) fn prefetch_rings(&self, n: usize) {
        if self.tables.are_far() {
            (0..n).for_each(|n| prefetch_ring(&self.tables.pool, n));
        }
    }

    /// Of a listener's backlog on this lane, so many places are the application's, which takes connections at once and hands them out.
    pub(crate) fn hands_out(&mut self, listener: ListenerId, places: usize) {
        self.tables.listeners.hands_out(listener, places);
    }

    /// Takes a finished connection from a listener's queue on this lane.
    #[inline]
    pub fn accept(&mut self, listener: ListenerId) -> Option<ConnId> {
        self.tables.counters.count(Mib::SCAccept);
        loop {
            let Some(id) = self.tables.listeners.pop(listener) else {
                self.tables.counters.count(Mib::SCAF);
                return None;
            };
            if let Some(slot) = self.tables.slot(id) {
                self.local.last_accepted = Some(id);
                slot.accepted = true;
                // What arrived before it was accepted is shown now.
                if let Tcb::Synchronized(connection) = &slot.tcb
                    && (connection.buffered() > 0 || !connection.state().can_receive())
                {
                    self.local.resumed.push(id);
                }
                return Some(id);
            }
            self.tables.listeners.passed_over(listener);
        }
    }

    /// Queues bytes; says how many were taken. Less than all: [`App::on_writable`](super::App::on_writable) will tell when to go on.
    #[inline(never)]
    pub fn send(&mut self, connection: ConnId, bytes: &[u8]) -> usize {
        let sent = self.with(connection, |c, cx| (c.is_gathering(), c.send(bytes, cx)));
        self.gathered(connection, bytes.len(), sent)
    }

    /// As [`send`](Self::send), and more will follow soon (`MSG_MORE`): a small segment at the end waits for it, for 200 ms
    /// at the most.
    pub fn send_more(&mut self, connection: ConnId, bytes: &[u8]) -> usize {
        let sent = self.with(connection, |c, cx| (c.is_gathering(), c.send_more(bytes, cx)));
        self.gathered(connection, bytes.len(), sent)
    }

    #[inline]
    fn gathered(&mut self, connection: ConnId, len: usize, sent: Option<(bool, usize)>) -> usize {
        let (gathers, taken) = sent.unwrap_or_default();
        if taken == 0 && len > 0 {
            self.refused(connection);
        }
        if gathers && taken > 0 {
            self.tables.counters.count(Mib::TcpExtTCPAutoCorking);
        }
        taken
    }

    /// From now on `keeper` has what [`send_kept`](Self::send_kept) queues, until it is acknowledged. False: there is no such
    /// connection, or it is not established yet.
    pub fn set_keeper(&mut self, connection: ConnId, keeper: Box<dyn tcp::Keeper>) -> bool {
        self.with(connection, |c, _| c.set_keeper(keeper)).is_some()
    }

    /// As [`send`](Self::send), of the next `len` bytes that the keeper has.
    #[inline]
    pub fn send_kept(&mut self, connection: ConnId, len: usize) -> usize {
        let sent = self.with(connection, |c, cx| (c.is_gathering(), c.send_kept(len, cx)));
        self.gathered(connection, len, sent)
    }

    /// As [`send`](Self::send), the last byte of it being urgent (RFC 6093: it stays in line).
    pub fn send_urgent(&mut self, connection: ConnId, bytes: &[u8]) -> usize {
        let sent = self.with(connection, |c, cx| (false, c.send_urgent(bytes, cx)));
        self.gathered(connection, bytes.len(), sent)
    }

    /// Nothing was taken. If that is for want of memory, the connection is told when there is some again.
    #[cold]
    fn refused(&mut self, id: ConnId) {
        if self.tables.connection(id).is_some_and(Connection::starves) {
            self.local.starve(self.tables, id);
        }
    }

    /// Copies bytes that were kept; says how many.
    pub fn recv(&mut self, connection: ConnId, out: &mut [u8]) -> usize {
        self.with(connection, |c, cx| c.recv(out, cx)).unwrap_or(0)
    }

    /// Bytes that are kept and wait.
    pub fn buffered(&mut self, connection: ConnId) -> usize {
        self.tables.connection(connection).map_or(0, |c| c.buffered() as usize)
    }

    /// Shows kept bytes again, in this poll or the next.
    pub fn resume(&mut self, connection: ConnId) {
        self.local.resumed.push(connection);
    }

    /// Closes our side for sending: what is queued still goes out, then FIN.
    #[inline]
    pub fn shutdown(&mut self, connection: ConnId) {
        self.with(connection, |c, _| c.shutdown());
    }

    /// Closes both ways; what is queued still goes out. An active open under way is given up. If [`App::on_data`](super::App::on_data) has left bytes, or leaves
    /// some of those that it is shown at the time, this is a reset instead (RFC 2525), and what is queued is lost.
    #[inline]
    pub fn close(&mut self, connection: ConnId) {
        if self.with(connection, |c, cx| c.close(cx)).is_none() {
            self.give_up(connection);
        }
    }

    /// Nobody is there any more for what the peer says, and `close` follows behind bytes that still come. A peer that does not take them is not
    /// waited for longer than after a `close`.
    pub(crate) fn orphan(&mut self, connection: ConnId) {
        self.with(connection, |c, cx| c.orphan(cx));
    }

    /// Closes every connection of this lane.
    pub fn close_all(&mut self) {
        let all: Vec<u32> = self.tables.slots.iter().map(|(index, _)| index).collect();
        for index in all {
            self.close(self.tables.id(index));
        }
    }

    /// Ends it with RST.
    pub fn abort(&mut self, connection: ConnId) {
        if self.with(connection, |c, cx| c.abort(cx)).is_none() {
            self.give_up(connection);
        }
    }

    /// An active open under way is forgotten; who has opened at the same time is told.
    #[inline(never)]
    fn give_up(&mut self, connection: ConnId) {
        let (index, generation) = (connection.index(), connection.generation());
        let Some(slot) = self.tables.slots.get_of(index, generation) else { return };
        let Tcb::Handshaking(handshake) = &slot.tcb else { return };
        let cx = tcp::Cx { now: self.local.now, config: &self.local.config.tcp, pool: &mut self.tables.pool };
        let Some(agreed) = handshake.give_up(&cx) else { return self.tables.remove(index) };
        // It is there for a reset, to which no MTU matters, and nobody hears of its end.
        let mut begun = Connection::new(&agreed, 1_280, cx.config, cx.now);
        begun.set_marks(handshake.marks);
        slot.establish(begun);
        slot.accepted = false;
        self.with(connection, |c, cx| c.abort(cx));
    }

    /// `TCP_CORK`: full segments leave, and the rest waits until the cork is out, for 200 ms at the most.
    pub fn set_cork(&mut self, connection: ConnId, on: bool) {
        self.with(connection, |c, _| c.set_cork(on));
    }

    /// `TCP_NODELAY`: a small segment leaves although another is unacknowledged. Off at first, as sockets have it. To ask for it pushes
    /// what a cork holds back.
    pub fn set_nodelay(&mut self, connection: ConnId, on: bool) {
        self.with(connection, |c, _| c.set_nodelay(on));
    }

    /// The application answers from another thread, later than in the turn in which it is told: an acknowledgement waits for
    /// the answer that carries it, for 1 ms and the tick of the timers that follows; for 100 ms, once seven exchanges in a row went word
    /// for word.
    pub fn set_answers_later(&mut self, connection: ConnId, on: bool) {
        self.with(connection, |c, _| c.set_answers_later(on));
    }

    /// `IP_TTL` over IPv4, `IPV6_UNICAST_HOPS` over IPv6: how many routers its packets pass from now on at the most. 0: as many as
    /// the host's (`ip_default_ttl`). Of one that is being opened its SYN, too, if it has not left yet.
    pub fn set_ttl(&mut self, connection: ConnId, ttl: u8) {
        self.mark(connection, |marks| marks.hop_limit = ttl);
    }

    /// `IP_TOS` over IPv4, `IPV6_TCLASS` over IPv6, of its packets from now on: DSCP in the upper six bits. The lower two are for ECN (RFC 3168), which is not
    /// a socket's to say of a stream. Of one that is being opened its SYN, too, if it has not left yet.
    pub fn set_tos(&mut self, connection: ConnId, tos: u8) {
        self.mark(connection, |marks| marks.dscp_ecn = tos & DSCP);
    }

    pub(crate) fn set_marks(&mut self, connection: ConnId, to: Marks) {
        if !to.is_none() {
            self.mark(connection, |marks| *marks = to);
        }
    }

    fn mark(&mut self, connection: ConnId, change: impl Fn(&mut Marks)) {
        let changed = |mut marks| {
            change(&mut marks);
            marks
        };
        if self.with(connection, |c, _| c.set_marks(changed(c.marks()))).is_none()
            && let Some(slot) = self.tables.slots.get_of(connection.index(), connection.generation())
            && let Tcb::Handshaking(handshake) = &mut slot.tcb
        {
            handshake.marks = changed(handshake.marks);
        }
    }

    /// As [`set_ttl`](Self::set_ttl), of the packets with which this lane answers whoever calls a listener, and of the connections that come of it: whoever takes
    /// only what no router has passed on (RFC 5082) takes no other SYN-ACK either.
    pub fn set_listener_ttl(&mut self, listener: ListenerId, ttl: u8) {
        self.tables.listeners.mark(listener, |marks| marks.hop_limit = ttl);
    }

    /// As [`set_tos`](Self::set_tos), of the packets with which this lane answers whoever calls a listener, and of the connections that come of it.
    pub fn set_listener_tos(&mut self, listener: ListenerId, tos: u8) {
        self.tables.listeners.mark(listener, |marks| marks.dscp_ecn = tos & DSCP);
    }

    /// `SO_SNDBUF`: so many bytes may be queued, unsent and unacknowledged together, from now on; up to `tcp_wmem`. Autotuning is over.
    pub fn set_send_buffer(&mut self, connection: ConnId, bytes: u32) {
        self.with(connection, |c, cx| c.set_send_buffer(bytes, cx.config));
    }

    /// `TCP_NOTSENT_LOWAT`: of what is queued so many bytes may not have been sent, from now on, however much is under way; 0: all of it may. Then
    /// [`send`](Self::send) takes no more, and [`on_writable`](crate::App::on_writable) says when a third of that was sent.
    pub fn set_notsent_lowat(&mut self, connection: ConnId, bytes: u32) {
        self.with(connection, |c, cx| c.set_notsent_lowat(bytes, cx.config));
    }

    /// `SO_RCVBUF`: so many bytes may wait for the application, from now on; up to `tcp_rmem`. Autotuning is over. What the window has promised is kept.
    pub fn set_receive_buffer(&mut self, connection: ConnId, bytes: u32) {
        self.with(connection, |c, cx| c.set_receive_buffer(bytes, cx));
    }

    /// `TCP_CONGESTION`: what the window is and what is being repaired stays as it is.
    pub fn set_congestion_control(&mut self, connection: ConnId, algorithm: Algorithm) {
        self.with(connection, |c, _| c.set_congestion_control(algorithm));
    }

    /// `TCP_QUICKACK`: what has come is acknowledged now, and what comes at once, until the application's first answer; or not, from now on.
    pub fn set_quickack(&mut self, connection: ConnId, on: bool) {
        self.with(connection, |c, cx| c.set_quickack(on, cx.config));
    }

    /// `TCP_KEEPIDLE`, `TCP_KEEPINTVL` and `TCP_KEEPCNT`, in place of the configuration's times; [`set_keepalive`](Self::set_keepalive) switches it on.
    pub fn set_keepalive_times(&mut self, connection: ConnId, times: KeepaliveTimes) {
        self.with(connection, |c, cx| c.set_keepalive_times(times, cx));
    }

    /// `SO_KEEPALIVE`.
    pub fn set_keepalive(&mut self, connection: ConnId, on: bool) {
        self.with(connection, |c, cx| c.set_keepalive(on, cx));
    }

    /// `TCP_USER_TIMEOUT`, in milliseconds.
    pub fn set_user_timeout_ms(&mut self, connection: ConnId, ms: u32) {
        self.with(connection, |c, _| c.set_user_timeout_ms(ms));
    }

    /// The application's own word for a connection.
    #[inline]
    pub fn token(&mut self, connection: ConnId) -> u64 {
        match self.tables.slot(connection).map(|slot| &slot.tcb) {
            Some(Tcb::Synchronized(c)) => c.token,
            Some(Tcb::Handshaking(h)) => h.token,
            None => 0,
        }
    }

    /// Sets the application's own word for a connection.
    #[inline]
    pub fn set_token(&mut self, connection: ConnId, token: u64) {
        match self.tables.slot(connection).map(|slot| &mut slot.tcb) {
            Some(Tcb::Synchronized(c)) => c.token = token,
            Some(Tcb::Handshaking(h)) => h.token = token,
            None => {}
        }
    }

    /// The flow of a connection.
    pub fn flow(&mut self, connection: ConnId) -> Option<FlowKey> {
        self.tables.slot(connection).map(|slot| *slot.key())
    }

    /// The state of a connection; CLOSED once it is gone.
    pub fn state(&mut self, connection: ConnId) -> State {
        match self.tables.slot(connection).map(|slot| &slot.tcb) {
            Some(Tcb::Synchronized(c)) => c.state(),
            Some(Tcb::Handshaking(h)) => h.state(),
            None => State::Closed,
        }
    }

    /// Looks at a connection.
    pub fn inspect<R>(&mut self, connection: ConnId, look: impl FnOnce(&Connection) -> R) -> Option<R> {
        self.tables.connection(connection).map(|c| look(c))
    }

    /// Whether the lane has been told of a socket, and can send from it.
    pub(crate) fn has_udp(&self, socket: UdpId) -> bool {
        self.local.udp.has(socket)
    }

    /// Of the sockets that are unbound at the end of this poll, those that may have `more` can send until all that was sent from them
    /// [has gone](Self::udp_has_left).
    pub(crate) fn udp_leaves(&mut self, more: impl Fn(UdpId) -> bool) {
        for &socket in self.local.unbinding.iter().filter(|socket| more(**socket)) {
            self.local.udp.leaves(socket);
        }
    }

    /// All that was sent from it has gone.
    pub(crate) fn udp_has_left(&mut self, socket: UdpId) {
        self.local.udp.has_left(socket);
    }

    /// Sends a datagram from a socket; false if it could not be queued, is longer than one can be, or is to no other host's address.
    pub fn send_datagram(&mut self, socket: UdpId, to: SocketAddr, data: &[u8]) -> bool {
        let sending = Sending { from: Address::UNSPECIFIED_V6, to, to_all: false, marks: Marks::NONE, data };
        self.local.udp.send(socket, sending, &self.local.snapshot, &mut self.tables.counters)
    }

    /// The same, and `to` may be a broadcast address as well, that of a network of ours or 255.255.255.255: all hosts beside us are meant then. Sockets
    /// of threads can do so once they have `SO_BROADCAST`. No socket of this stack hears it.
    pub fn broadcast_datagram(&mut self, socket: UdpId, to: SocketAddr, data: &[u8]) -> bool {
        let sending = Sending { from: Address::UNSPECIFIED_V6, to, to_all: true, marks: Marks::NONE, data };
        self.local.udp.send(socket, sending, &self.local.snapshot, &mut self.tables.counters)
    }

    /// The same, as the socket was when its thread sent it.
    pub(crate) fn send_datagram_as(&mut self, socket: UdpId, was: Sender, to: SocketAddr, data: &[u8]) -> bool {
        // Whether it may go to all hosts was asked when it was sent.
        let sending = Sending { from: Address::from(was.address), to, to_all: true, marks: was.marks, data };
        self.local.udp.send(socket, sending, &self.local.snapshot, &mut self.tables.counters)
    }

    /// The address of ours to which the datagram was sent that the application is just told of.
    pub(crate) fn datagram_at(&self) -> IpAddr {
        self.local.udp.arrived_at.to_ip()
    }

    /// The socket does not hear the sender of the datagram that the application is just told of.
    #[cold]
    pub(crate) fn datagram_unheard(&mut self) {
        self.local.udp.fate = Fate::Unheard;
    }

    /// The datagram that the application is just told of is lost, because nobody takes those before it.
    #[cold]
    pub(crate) fn datagram_without_room(&mut self) {
        self.local.udp.fate = Fate::NoRoom;
    }

    #[inline(always)]
    fn with<R>(&mut self, id: ConnId, act: impl FnOnce(&mut Connection, &mut tcp::Cx<'_>) -> R) -> Option<R> {
        let tables = &mut *self.tables;
        let slot = tables.slots.get_of(id.index(), id.generation())?;
        let Tcb::Synchronized(connection) = &mut slot.tcb else { return None };
        let mut cx = tcp::Cx { now: self.local.now, config: &self.local.config.tcp, pool: &mut tables.pool };
        let answer = act(connection, &mut cx);
        if !slot.touched {
            slot.touched = true;
            self.local.touched.add(id.index());
        }
        Some(answer)
    }
}
