//! Owns what an application on a lane sees: the events it is told of, and the verbs it has.
//!
//! path: `… → tcp::input → tcp::state → [application] → tcp::output → …`

use crate::control::BindId;
use crate::counters::Mib;
use crate::error::Error;
use crate::lane::Local;
use crate::paths::PathPlace;
use crate::ports::{Ask, Exhausted};
use crate::tables::{Opening, Slot, Tables, Tcb, prefetch_ring};
use crate::udp::{Fate, Sending};
use laneway_proto::tcp::{self, CloseReason, Connection, Handshake, State, isn};
use laneway_proto::time::Instant;
use laneway_wire::flow::{Address, FlowKey};
use std::net::{IpAddr, SocketAddr};

/// The name of a connection on its lane. Names of connections that are gone stay harmless for ever: their verbs do nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ConnId(u64);

impl ConnId {
    pub(crate) fn new(index: u32, generation: u32) -> Self {
        ConnId(u64::from(generation) << 32 | u64::from(index))
    }
    pub(crate) fn index(self) -> u32 {
        self.0 as u32
    }
    pub(crate) fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// The name of a listener, the same on every lane.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct ListenerId(pub u16);

/// The name of a UDP socket, the same on every lane.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct UdpId(pub u16);

/// A connection that is likely to be shown bytes soon.
#[derive(Clone, Copy, Debug)]
pub struct Soon {
    /// The application's own word for it.
    pub token: u64,
    /// How many bytes, as far as its segment knows.
    pub bytes: usize,
}

/// An application that lives on a lane and runs to completion: it is called when something happened, and what it does
/// takes effect at the end of the same poll. It must not block: every connection of the lane waits for it.
///
/// In a running stack a callback about a connection that panics loses that connection (it is reset, and counted as
/// `AppPanics`), and the lane goes on; a panic in any other callback takes the stack down.
pub trait App {
    /// Once a poll, whether or not anything happened. The place to start connections.
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }
    /// Finished connections wait. Those not accepted stay in the queue, and fill it up.
    fn on_acceptable(&mut self, cx: &mut Context<'_>, listener: ListenerId) {
        while let Some(connection) = cx.accept(listener) {
            self.on_accept(cx, connection);
        }
    }
    /// A connection was accepted.
    fn on_accept(&mut self, cx: &mut Context<'_>, connection: ConnId) {
        let _ = (cx, connection);
    }
    /// An active open has succeeded.
    fn on_connect(&mut self, cx: &mut Context<'_>, connection: ConnId) {
        let _ = (cx, connection);
    }
    /// Bytes have arrived, and lie where the device put them. Says how many were taken: the rest is kept, and shown again,
    /// with everything that has come behind it, when more arrives or when [`Context::resume`] asks for it. Who closes the connection
    /// in here takes all that he is shown: with bytes unread a close is a reset (RFC 2525 section 2.17).
    fn on_data(&mut self, cx: &mut Context<'_>, connection: ConnId, data: &[u8]) -> usize;
    /// What it leaves of [`on_data`](Self::on_data) it has no room for, and it never waits until more bytes lie together: what is
    /// kept may be shown to it in pieces, and need not be moved.
    fn takes_pieces(&self) -> bool {
        false
    }
    /// These connections are likely to be shown bytes soon, and there are so many that what the application knows of them has left the caches: it
    /// can have that brought there.
    fn on_soon(&mut self, those: &[Soon]) {
        let _ = those;
    }
    /// After a short `send`, there is room again.
    fn on_writable(&mut self, cx: &mut Context<'_>, connection: ConnId) {
        let _ = (cx, connection);
    }
    /// The peer has closed its side; nothing more will arrive. Closes ours.
    fn on_peer_closed(&mut self, cx: &mut Context<'_>, connection: ConnId) {
        cx.close(connection);
    }
    /// The connection is over, and its name with it. `TIME_WAIT` is the stack's own affair. Not called for an open that the application
    /// itself closed or aborted before it had succeeded.
    fn on_closed(&mut self, cx: &mut Context<'_>, connection: ConnId, token: u64, reason: CloseReason) {
        let _ = (cx, connection, token, reason);
    }
    /// Whether a UDP socket is connected to `peer`, and hears it at the address `at` of ours; `None` if it is connected to nobody, and hears
    /// everybody where it is bound. Who is connected to somebody else, or at another address, is not asked for a datagram, and if nobody else
    /// hears it its sender is told that nobody is there.
    fn peer_is(&self, socket: UdpId, at: IpAddr, peer: SocketAddr) -> Option<bool> {
        let _ = (socket, at, peer);
        None
    }
    /// How many connections of a listener the application has taken to hand them out, and nobody has yet: they wait to be accepted as those
    /// in the listener's queue do.
    fn unclaimed(&self, listener: ListenerId) -> usize {
        let _ = listener;
        0
    }
    /// Somebody says that a datagram of this socket's did not get to where it was sent, and none will: nobody has the port
    /// ([`Refused`](CloseReason::Refused)), or a filter said no ([`HostUnreachable`](CloseReason::HostUnreachable) over IPv4,
    /// [`Prohibited`](CloseReason::Prohibited) over IPv6).
    fn on_unreachable(&mut self, cx: &mut Context<'_>, socket: UdpId, to: SocketAddr, why: CloseReason) {
        let _ = (cx, socket, to, why);
    }
    /// Once a poll, after everything was sent. The place to tell other threads what this poll has brought.
    fn on_poll_end(&mut self) {}
    /// The last poll did something of the application's own, or left something undone: poll again at once.
    fn is_busy(&self) -> bool {
        false
    }
    /// When [`on_poll`](Self::on_poll) is wanted at the latest, even if nothing happens. Asked after each poll.
    fn poll_timeout(&self) -> Instant {
        Instant::NEVER
    }
    /// The stack is stopping. What is still open after the grace period is reset; until then everything goes on as
    /// before, but no new connection comes. By default every connection is closed.
    fn on_stop(&mut self, cx: &mut Context<'_>) {
        cx.close_all();
    }
    /// A datagram has arrived. One to all hosts of a network, or to a group, arrives at each socket that is bound to where it was sent, or to any address,
    /// and is not [connected](Self::peer_is) to somebody else; any other at one.
    fn on_datagram(&mut self, cx: &mut Context<'_>, socket: UdpId, from: SocketAddr, data: &[u8]) {
        let _ = (cx, socket, from, data);
    }
}

/// An application whose kind was forgotten: the type of a stack need not name it.
impl<A: App + ?Sized> App for Box<A> {
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        (**self).on_poll(cx);
    }
    fn on_acceptable(&mut self, cx: &mut Context<'_>, listener: ListenerId) {
        (**self).on_acceptable(cx, listener);
    }
    fn on_accept(&mut self, cx: &mut Context<'_>, connection: ConnId) {
        (**self).on_accept(cx, connection);
    }
    fn on_connect(&mut self, cx: &mut Context<'_>, connection: ConnId) {
        (**self).on_connect(cx, connection);
    }
    fn on_data(&mut self, cx: &mut Context<'_>, connection: ConnId, data: &[u8]) -> usize {
        (**self).on_data(cx, connection, data)
    }
    fn takes_pieces(&self) -> bool {
        (**self).takes_pieces()
    }
    fn on_soon(&mut self, those: &[Soon]) {
        (**self).on_soon(those);
    }
    fn on_writable(&mut self, cx: &mut Context<'_>, connection: ConnId) {
        (**self).on_writable(cx, connection);
    }
    fn on_peer_closed(&mut self, cx: &mut Context<'_>, connection: ConnId) {
        (**self).on_peer_closed(cx, connection);
    }
    fn on_closed(&mut self, cx: &mut Context<'_>, connection: ConnId, token: u64, reason: CloseReason) {
        (**self).on_closed(cx, connection, token, reason);
    }
    fn peer_is(&self, socket: UdpId, at: IpAddr, peer: SocketAddr) -> Option<bool> {
        (**self).peer_is(socket, at, peer)
    }
    fn unclaimed(&self, listener: ListenerId) -> usize {
        (**self).unclaimed(listener)
    }
    fn on_unreachable(&mut self, cx: &mut Context<'_>, socket: UdpId, to: SocketAddr, why: CloseReason) {
        (**self).on_unreachable(cx, socket, to, why);
    }
    fn on_poll_end(&mut self) {
        (**self).on_poll_end();
    }
    fn is_busy(&self) -> bool {
        (**self).is_busy()
    }
    fn poll_timeout(&self) -> Instant {
        (**self).poll_timeout()
    }
    fn on_stop(&mut self, cx: &mut Context<'_>) {
        (**self).on_stop(cx);
    }
    fn on_datagram(&mut self, cx: &mut Context<'_>, socket: UdpId, from: SocketAddr, data: &[u8]) {
        (**self).on_datagram(cx, socket, from, data);
    }
}

/// The path between the two ends of an active open.
struct Ends {
    place: PathPlace,
    mtu: u32,
    ts_offset: u32,
}

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

    /// Starts an active open from a local address of the caller's choice, or the one that the route says. The port is
    /// chosen such that the replies come to this lane. [`App::on_connect`] or [`App::on_closed`] tells how it ended, unless the caller
    /// closes or aborts it before: then it is gone, and neither is called. Until it is established its other verbs do nothing, those that set
    /// an option among them: `on_connect` is the place for these.
    ///
    /// [`Error::LaneExhausted`]: this lane has no port left towards that destination, and another lane may have. With one lane
    /// it is [`Error::PortsExhausted`] at once: all are taken.
    pub fn connect(&mut self, from: Option<Address>, to: Address, port: u16, token: u64) -> Result<ConnId, Error> {
        let is_given = from.is_some();
        let from = &self.source(from, to)?;
        let ends = self.check_ends((from, is_given), to)?;
        let random = self.local.jitter.next_u64();
        let ask = Ask {
            steering: &self.local.steering,
            lane: self.local.id,
            local: *from,
            remote: to,
            remote_port: port,
            random,
        };
        let opening = self.tables.allocate(&ask, self.local.now, self.local.config.tcp_tw_reuse_delay_ms);
        let opening = opening.map_err(|Exhausted| {
            let to = SocketAddr::new(to.to_ip(), port);
            if self.local.steering.lanes() == 1 { Error::PortsExhausted(to) } else { Error::LaneExhausted(to) }
        })?;
        let key = ask.flow(opening.grant.port);
        Ok(self.open(key, &ends, opening, token, /* reuse= */ 0))
    }

    /// As [`connect`](Self::connect), from the address and port of a bound socket. Towards different destinations one port serves
    /// any number of connections.
    ///
    /// [`Error::OtherLane`]: the replies would come to that lane, or (while their bucket moves) that lane alone knows whether there is
    /// such a connection already: so it is for that lane to connect. [`Error::FlowInUse`]: there
    /// is a connection between these two ends already.
    pub fn connect_from(&mut self, bound: BindId, to: Address, port: u16, token: u64) -> Result<ConnId, Error> {
        let not_bound = || Error::Invalid("no such socket is bound; call bind first".into());
        let (binding, local_port) = self.local.bound.get(bound.0).map(|b| (b.binding, b.port)).ok_or_else(not_bound)?;
        let from = (!binding.address.is_unspecified()).then_some(binding.address);
        let is_given = from.is_some();
        let from = &self.source(from, to)?;
        let ends = self.check_ends((from, is_given), to)?;
        if !binding.takes(from) {
            return Err(Error::NetworkUnreachable(to.to_ip()));
        }
        let key = FlowKey { local: *from, remote: to, local_port, remote_port: port };
        self.local.may_begin(&key).map_err(Error::OtherLane)?;
        let ask = Ask {
            steering: &self.local.steering,
            lane: self.local.id,
            local: *from,
            remote: to,
            remote_port: port,
            random: 0,
        };
        let opening = self.tables.adopt(&ask, local_port, self.local.now, self.local.config.tcp_tw_reuse_delay_ms);
        let named = || (SocketAddr::new(from.to_ip(), local_port), SocketAddr::new(to.to_ip(), port));
        let opening = opening.ok_or_else(|| Error::FlowInUse(named().0, named().1))?;
        Ok(self.open(key, &ends, opening, token, binding.options.bits()))
    }

    /// Where to connect from: `from`, or what the route says.
    #[inline(always)]
    fn source(&mut self, from: Option<Address>, to: Address) -> Result<Address, Error> {
        match from {
            Some(from) => Ok(from),
            None => self.routed_source(to),
        }
    }

    #[inline(never)]
    fn routed_source(&mut self, to: Address) -> Result<Address, Error> {
        let path = self.local.paths.get(&self.local.snapshot, to);
        path.and_then(|path| path.source).ok_or_else(|| Error::NetworkUnreachable(to.to_ip()))
    }

    /// Whether we can reach `to` from `from`, which must be ours if it was given, and what the path is like.
    #[inline(always)]
    fn check_ends(&mut self, (from, is_given): (&Address, bool), to: Address) -> Result<Ends, Error> {
        let place = PathPlace::between(from, &to);
        // Nearly always somebody has connected between these two before, and their path knows the answer.
        match self.local.paths.to_begin(place, &self.local.snapshot, from, &to) {
            Some(path) => Ok(Ends { place, mtu: path.mtu, ts_offset: path.ts_offset }),
            None => self.check_ends_closely((*from, is_given), to),
        }
    }

    #[inline(never)]
    fn check_ends_closely(&mut self, (from, is_given): (Address, bool), to: Address) -> Result<Ends, Error> {
        let Local { paths, snapshot, .. } = &mut *self.local;
        if from.is_v4() != to.is_v4() {
            return Err(Error::Invalid(format!(
                "cannot connect from {from} to {to}: both addresses must be of one family"
            )));
        }
        if !snapshot.addresses.can_be_remote(&to) {
            return Err(Error::NetworkUnreachable(to.to_ip()));
        }
        let place = PathPlace::between(&from, &to);
        let path = paths.at(place, snapshot, &from, &to).ok_or_else(|| Error::NetworkUnreachable(to.to_ip()))?;
        if is_given && !snapshot.addresses.contains(&from) {
            return Err(Error::AddressNotAvailable(from.to_ip()));
        }
        Ok(Ends { place, mtu: path.mtu, ts_offset: path.ts_offset })
    }

    /// Begins an active open of a flow that is ours.
    #[inline(always)]
    fn open(&mut self, key: FlowKey, ends: &Ends, opening: Opening, token: u64, reuse: u8) -> ConnId {
        let now = self.local.now;
        let Opening { grant, hash, beyond } = opening;
        let secret = self.local.secrets.get().isn;
        let mut iss = isn::isn(&secret, &key, now.as_us());
        if let Some(least) = beyond
            && !iss.after(least)
        {
            iss = least + 65_536 + 2;
        }
        let config = &self.local.config.tcp;
        let tables = &mut *self.tables;
        let mss = announced_mss(ends.mtu, key.is_v4());
        let (tag, path) = (grant.claim.pack(reuse), ends.place);
        let id = tables.insert(&key, hash, || {
            let mut handshake = Handshake::connect(key, iss, ends.ts_offset, mss, now, config);
            handshake.token = token;
            let tcb = Tcb::Handshaking(handshake);
            Slot { tcb, hash, touched: true, accepted: true, tag, path }
        });
        self.local.touched.add(id.index());
        tables.counters.count(Mib::TcpActiveOpens);
        id
    }

    /// Queues bytes; says how many were taken. Less than all: [`App::on_writable`] will tell when to go on.
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
        if !self.tables.connection(id).is_some_and(Connection::starves) {
            return;
        }
        let (starving, tables) = (&mut self.local.starving, &mut *self.tables);
        if starving.len() > 2 * tables.slots.len() {
            starving.retain(|id| tables.connection(*id).is_some()); // the others have ended
        }
        starving.push_back(id);
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

    /// Closes both ways; what is queued still goes out. An active open under way is given up. If [`App::on_data`] has left bytes, or leaves
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
        slot.establish(Connection::new(&agreed, 1_280, cx.config, cx.now));
        slot.accepted = false;
        self.with(connection, |c, cx| c.abort(cx));
    }

    /// `TCP_CORK`: full segments leave, and the rest waits until the cork is out, for 200 ms at the most.
    pub fn set_cork(&mut self, connection: ConnId, on: bool) {
        self.with(connection, |c, _| c.set_cork(on));
    }

    /// `TCP_NODELAY`: a small segment leaves although another is unacknowledged. Off at first, as sockets have it.
    pub fn set_nodelay(&mut self, connection: ConnId, on: bool) {
        self.with(connection, |c, _| c.set_nodelay(on));
    }

    /// The application answers from another thread, later than in the turn in which it is told: an acknowledgement waits for
    /// the answer that carries it, for 1 ms and the tick of the timers that follows; for 100 ms, once seven exchanges in a row went word
    /// for word.
    pub fn set_answers_later(&mut self, connection: ConnId, on: bool) {
        self.with(connection, |c, _| c.set_answers_later(on));
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
        let sending = Sending { from: Address::UNSPECIFIED_V6, to, to_all: false, data };
        self.local.udp.send(socket, sending, &self.local.snapshot, &mut self.tables.counters)
    }

    /// The same, and `to` may be a broadcast address as well, that of a network of ours or 255.255.255.255: all hosts beside us are meant then. Sockets
    /// of threads can do so once they have `SO_BROADCAST`. No socket of this stack hears it.
    pub fn broadcast_datagram(&mut self, socket: UdpId, to: SocketAddr, data: &[u8]) -> bool {
        let sending = Sending { from: Address::UNSPECIFIED_V6, to, to_all: true, data };
        self.local.udp.send(socket, sending, &self.local.snapshot, &mut self.tables.counters)
    }

    /// The same, from the address that the socket had when its thread sent it.
    pub(crate) fn send_datagram_from(&mut self, socket: UdpId, from: IpAddr, to: SocketAddr, data: &[u8]) -> bool {
        // Whether it may go to all hosts was asked when it was sent.
        let sending = Sending { from: Address::from(from), to, to_all: true, data };
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

/// The MSS that we announce on a path of `mtu`.
#[inline]
pub(crate) fn announced_mss(mtu: u32, v4: bool) -> u16 {
    mtu.saturating_sub(if v4 { 40 } else { 60 }).min(65_535) as u16
}

#[cfg(test)]
mod tests;
