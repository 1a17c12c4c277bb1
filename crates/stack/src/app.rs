//! Owns what an application on a lane is told: the events, and the names by which it speaks of what they are about. Its verbs are those of
//! [`Context`].
//!
//! path: `… → tcp::input → tcp::state → [application] → tcp::output → …`

mod connect;
mod context;

pub(crate) use connect::announced_mss;
pub use context::Context;

use laneway_proto::tcp::CloseReason;
use laneway_proto::time::Instant;
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

#[cfg(test)]
mod tests;
