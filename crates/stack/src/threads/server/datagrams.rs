//! Owns the lane's side of UDP sockets of threads: where each is, and what was sent from it before it was closed.

use super::super::datagram::LaneDatagrams;
use super::super::desk::Command;
use super::Server;
use crate::app::{Context, UdpId};

impl Server {
    /// Which of the commands brings a socket of this name.
    fn late_socket(&self, id: UdpId) -> Option<usize> {
        let brings = |command: &Command| matches!(command, Command::BindUdp(side) if side.shared.id == id);
        if self.late_sockets == 0 { None } else { self.commands.iter().position(brings) }
    }

    /// A UDP socket that a thread has bound. The thread may wait for a datagram already: if the stack stops, none will come, and nobody else
    /// says so.
    pub(super) fn take_in(&mut self, side: Box<LaneDatagrams>) {
        if self.stopping {
            side.end();
        }
        self.sockets.insert(side.shared.id.0, side);
    }

    /// A UDP socket's side here. What is sent or comes as soon as the socket is bound may be before the command that brings it.
    pub(super) fn socket(&mut self, id: UdpId) -> Option<&mut LaneDatagrams> {
        if !self.sockets.contains_key(&id.0) {
            self.hear();
            if let Some(at) = self.late_socket(id)
                && let Some(Command::BindUdp(side)) = self.commands.remove(at)
            {
                self.late_sockets -= 1;
                self.take_in(side);
            }
        }
        self.sockets.get_mut(&id.0).map(Box::as_mut)
    }

    /// Does something with a UDP socket's side; its threads are told at the end of the poll if there is news then.
    pub(super) fn with_socket<T>(&mut self, id: UdpId, act: impl FnOnce(&mut LaneDatagrams) -> T) -> Option<T> {
        let side = self.socket(id)?;
        let had_news = side.news != 0;
        let done = act(side);
        if !had_news && side.news != 0 {
            self.socket_news.push(id);
        }
        Some(done)
    }

    /// Sends what was sent from sockets before they were closed, at most `max` datagrams; says how many.
    pub(super) fn see_off(&mut self, cx: &mut Context<'_>, max: usize) -> usize {
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
            let n = side.drain(max - sent, |was, to, data| _ = cx.send_datagram_as(id, was, to, data));
            sent += n;
            if sent < max {
                cx.udp_has_left(id);
                self.leaving.remove(&name);
            }
        }
        sent
    }

    /// Something that was sent from a UDP socket may be yet to go out.
    pub(super) fn may_send(&self, id: UdpId) -> bool {
        self.sockets.contains_key(&id.0) || self.leaving.contains_key(&id.0) || self.late_socket(id).is_some()
    }
}
