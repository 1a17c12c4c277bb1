//! Owns what becomes of an application that panics: its connection is reset, and its lane goes on.
//!
//! A callback about one connection that panics loses that connection: it is reset, `AppPanics` counts it, and
//! [`App::on_closed`] tells the application of the end as of any other. The message goes where the program's panic
//! hook sends it (standard error, unless the program says otherwise). A panic in a callback that is about no one connection
//! (`on_poll`, `on_datagram`, …) leaves nothing that could be given up in its place, and takes the lane down as before.
//!
//! What the application keeps beside its connections is its own to keep in order: a panic between two steps of a change leaves
//! the first one done.

use crate::app::{App, ConnId, Context, ListenerId, Soon, UdpId};
use crate::counters::Mib;
use laneway_proto::tcp::CloseReason;
use laneway_proto::time::Instant;
use std::net::{IpAddr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// An application whose panics cost a connection, and not the lane.
pub(super) struct Guarded<A>(pub(super) A);

/// Calls back about `connection`; `lost` is the answer of a callback that panics.
#[inline]
fn guard<R>(cx: &mut Context<'_>, connection: ConnId, lost: R, act: impl FnOnce(&mut Context<'_>) -> R) -> R {
    // The stack's own values are whole: the callback has them only through the verbs of the context.
    match catch_unwind(AssertUnwindSafe(|| act(cx))) {
        Ok(answer) => answer,
        Err(_) => {
            lose(cx, connection);
            lost
        }
    }
}

#[cold]
fn lose(cx: &mut Context<'_>, connection: ConnId) {
    cx.local.counters.count(Mib::AppPanics);
    cx.abort(connection);
}

impl<A: App> App for Guarded<A> {
    fn on_acceptable(&mut self, cx: &mut Context<'_>, listener: ListenerId) {
        cx.local.last_accepted = None;
        while catch_unwind(AssertUnwindSafe(|| self.0.on_acceptable(cx, listener))).is_err() {
            cx.local.counters.count(Mib::AppPanics);
            // It was about the one that it had accepted last; those behind it are still to be accepted.
            let Some(connection) = cx.local.last_accepted.take() else { break };
            cx.abort(connection);
        }
    }
    fn on_accept(&mut self, cx: &mut Context<'_>, connection: ConnId) {
        guard(cx, connection, (), |cx| self.0.on_accept(cx, connection));
    }
    fn on_connect(&mut self, cx: &mut Context<'_>, connection: ConnId) {
        guard(cx, connection, (), |cx| self.0.on_connect(cx, connection));
    }
    #[inline]
    fn on_data(&mut self, cx: &mut Context<'_>, connection: ConnId, data: &[u8]) -> usize {
        guard(cx, connection, data.len(), |cx| self.0.on_data(cx, connection, data))
    }
    fn takes_pieces(&self) -> bool {
        self.0.takes_pieces()
    }
    #[inline]
    fn on_soon(&mut self, those: &[Soon]) {
        self.0.on_soon(those);
    }
    #[inline]
    fn on_writable(&mut self, cx: &mut Context<'_>, connection: ConnId) {
        guard(cx, connection, (), |cx| self.0.on_writable(cx, connection));
    }
    fn on_peer_closed(&mut self, cx: &mut Context<'_>, connection: ConnId) {
        guard(cx, connection, (), |cx| self.0.on_peer_closed(cx, connection));
    }
    fn on_closed(&mut self, cx: &mut Context<'_>, connection: ConnId, token: u64, reason: CloseReason) {
        guard(cx, connection, (), |cx| self.0.on_closed(cx, connection, token, reason));
    }

    #[inline]
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        self.0.on_poll(cx);
    }
    #[inline]
    fn on_poll_end(&mut self) {
        self.0.on_poll_end();
    }
    #[inline]
    fn is_busy(&self) -> bool {
        self.0.is_busy()
    }
    fn poll_timeout(&self) -> Instant {
        self.0.poll_timeout()
    }
    fn on_stop(&mut self, cx: &mut Context<'_>) {
        self.0.on_stop(cx);
    }
    fn on_datagram(&mut self, cx: &mut Context<'_>, socket: UdpId, from: SocketAddr, data: &[u8]) {
        self.0.on_datagram(cx, socket, from, data);
    }
    fn peer_is(&self, socket: UdpId, at: IpAddr, peer: SocketAddr) -> Option<bool> {
        self.0.peer_is(socket, at, peer)
    }
    fn unclaimed(&self, listener: ListenerId) -> usize {
        self.0.unclaimed(listener)
    }
    fn on_unreachable(&mut self, cx: &mut Context<'_>, socket: UdpId, to: SocketAddr, why: CloseReason) {
        self.0.on_unreachable(cx, socket, to, why);
    }
}
