//! Owns the postponing of `accept`: an application that is told later that connections wait.

use crate::app::{App, ConnId, Context, ListenerId, UdpId};
use laneway_proto::tcp::CloseReason;
use laneway_proto::time::Instant;
use std::net::{IpAddr, SocketAddr};

/// The application, but for being told that connections wait: that is only noted.
pub(crate) struct Later<'a> {
    app: &'a mut dyn App,
    /// Whose queue has grown. A segment completes one connection at the most.
    pub(crate) acceptable: Option<ListenerId>,
}

impl<'a> Later<'a> {
    pub(crate) fn new(app: &'a mut dyn App) -> Self {
        Later { app, acceptable: None }
    }
}

impl App for Later<'_> {
    fn on_acceptable(&mut self, _: &mut Context<'_>, listener: ListenerId) {
        self.acceptable = Some(listener);
    }
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        self.app.on_poll(cx);
    }
    fn on_accept(&mut self, cx: &mut Context<'_>, connection: ConnId) {
        self.app.on_accept(cx, connection);
    }
    fn on_connect(&mut self, cx: &mut Context<'_>, connection: ConnId) {
        self.app.on_connect(cx, connection);
    }
    fn on_data(&mut self, cx: &mut Context<'_>, connection: ConnId, data: &[u8]) -> usize {
        self.app.on_data(cx, connection, data)
    }
    fn takes_pieces(&self) -> bool {
        self.app.takes_pieces()
    }
    fn on_writable(&mut self, cx: &mut Context<'_>, connection: ConnId) {
        self.app.on_writable(cx, connection);
    }
    fn on_peer_closed(&mut self, cx: &mut Context<'_>, connection: ConnId) {
        self.app.on_peer_closed(cx, connection);
    }
    fn on_closed(&mut self, cx: &mut Context<'_>, connection: ConnId, token: u64, reason: CloseReason) {
        self.app.on_closed(cx, connection, token, reason);
    }
    fn peer_is(&self, socket: UdpId, at: IpAddr, peer: SocketAddr) -> Option<bool> {
        self.app.peer_is(socket, at, peer)
    }
    fn unclaimed(&self, listener: ListenerId) -> usize {
        self.app.unclaimed(listener)
    }
    fn on_unreachable(&mut self, cx: &mut Context<'_>, socket: UdpId, to: SocketAddr, why: CloseReason) {
        self.app.on_unreachable(cx, socket, to, why);
    }
    fn on_poll_end(&mut self) {
        self.app.on_poll_end();
    }
    fn is_busy(&self) -> bool {
        self.app.is_busy()
    }
    fn poll_timeout(&self) -> Instant {
        self.app.poll_timeout()
    }
    fn on_stop(&mut self, cx: &mut Context<'_>) {
        self.app.on_stop(cx);
    }
    fn on_datagram(&mut self, cx: &mut Context<'_>, socket: UdpId, from: SocketAddr, data: &[u8]) {
        self.app.on_datagram(cx, socket, from, data);
    }
}
