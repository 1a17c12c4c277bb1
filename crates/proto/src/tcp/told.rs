//! Owns what a connection was told that few are told: it has a place for that only once there is something.

use super::congestion::Algorithm;
use super::connection::{Connection, Facts};
use super::keepalive::KeepaliveTimes;
use super::{Config, Cx};
use crate::ip::output::Marks;

/// What only few connections are told, each value as of one that was told nothing.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Told {
    /// Of its packets.
    pub(super) marks: Marks,
    /// Of keepalive.
    pub(super) keepalive: KeepaliveTimes,
    /// `TCP_USER_TIMEOUT` in milliseconds; 0: only `tcp_retries2` counts.
    pub(super) user_timeout_ms: u32,
    /// The size of the send buffer; 0: as autotuning has it.
    pub(super) send_buffer: u32,
    /// That of the receive buffer.
    pub(super) receive_buffer: u32,
}

/// The least that a buffer is made, in bytes of text. The kernel's is no smaller: what it says is twice that, because it counts what is around the text as well.
pub const SEND_BUFFER_MIN: u32 = 2_304;
/// The same of a receive buffer.
pub const RECEIVE_BUFFER_MIN: u32 = 1_152;

impl Connection {
    /// What it was told.
    pub(super) fn told(&self) -> Told {
        self.told.as_deref().copied().unwrap_or_default()
    }

    /// Tells it something.
    #[cold]
    pub(super) fn tell(&mut self, say: impl FnOnce(&mut Told)) {
        let mut told = self.told();
        say(&mut told);
        match &mut self.told {
            Some(place) => **place = told,
            None if told == Told::default() => {}
            None => self.told = Some(Box::new(told)),
        }
    }

    /// Marks of its packets from now on.
    pub fn set_marks(&mut self, marks: Marks) {
        self.tell(|told| told.marks = marks);
    }

    /// Whether its packets may have marks: it was told something.
    #[inline(always)]
    pub fn may_be_marked(&self) -> bool {
        self.told.is_some()
    }

    /// Marks of its packets.
    pub fn marks(&self) -> Marks {
        match &self.told {
            None => Marks::NONE,
            Some(told) => told.marks,
        }
    }

    /// `SO_SNDBUF`: so many bytes may be queued, unsent and unacknowledged together, from now on; between [`SEND_BUFFER_MIN`] and `tcp_wmem`. Autotuning is over.
    pub fn set_send_buffer(&mut self, bytes: u32, config: &Config) {
        let bytes = bytes.clamp(SEND_BUFFER_MIN.min(config.tcp_wmem), config.tcp_wmem);
        self.tell(|told| told.send_buffer = bytes);
        self.snd.buf_max = bytes;
    }

    /// `SO_RCVBUF`: so many bytes may wait for the application, from now on; between [`RECEIVE_BUFFER_MIN`] and `tcp_rmem`. Autotuning is over. What the
    /// window has promised so far is kept: it becomes narrower as that is used up.
    pub fn set_receive_buffer(&mut self, bytes: u32, cx: &Cx<'_>) {
        let most = cx.config.tcp_rmem.1;
        let bytes = bytes.clamp(RECEIVE_BUFFER_MIN.min(most), most);
        self.tell(|told| told.receive_buffer = bytes);
        self.keep_to(bytes, cx);
    }

    /// `TCP_CONGESTION`.
    pub fn set_congestion_control(&mut self, algorithm: Algorithm) {
        self.congestion.hand_over(algorithm);
    }

    /// `TCP_QUICKACK`: what comes is acknowledged at once, as it is when a connection begins, and what has come is. Not for ever: with the first answer of the
    /// application the next acknowledgement may ride on one again. Or not, from now on.
    pub fn set_quickack(&mut self, on: bool, config: &Config) {
        self.rcv.quick_acks = if on { config.quick_acks } else { 0 };
        if on && self.facts.has(Facts::ACK_PENDING) {
            self.facts.set(Facts::ACK_NOW);
        }
    }

    /// `TCP_USER_TIMEOUT` in milliseconds; 0: only `tcp_retries2` counts.
    #[inline(always)]
    pub(super) fn user_timeout_ms(&self) -> u32 {
        match &self.told {
            None => 0,
            Some(told) => told.user_timeout_ms,
        }
    }

    /// `TCP_USER_TIMEOUT` in milliseconds; 0 means that only `tcp_retries2` counts (RFC 5482).
    pub fn set_user_timeout_ms(&mut self, ms: u32) {
        self.tell(|told| told.user_timeout_ms = ms);
    }
}

#[cfg(test)]
mod tests;
