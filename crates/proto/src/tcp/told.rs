//! Owns what a connection was told that few are told, or has found out as few do: it has a place for that only once there is something.

use super::black_hole::Suspicion;
use super::congestion::Algorithm;
use super::connection::{Connection, Facts};
use super::ecn::Ecn;
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
    /// How much of what is queued may not have been sent; 0: all of it.
    pub(super) notsent_lowat: u32,
    /// Then, what the send buffer may grow to.
    pub(super) send_max: u32,
    /// That of the receive buffer.
    pub(super) receive_buffer: u32,
    /// Nobody has told this: what its silence may mean.
    pub(super) suspicion: Option<Suspicion>,
    /// Nor this: of marks.
    pub(super) ecn: Ecn,
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
        self.bound_queue(config);
    }

    /// `TCP_NOTSENT_LOWAT`: of what is queued so many bytes may not have been sent, from now on, however much is under way; 0: all of it may. Two segments always may, so
    /// that none is small for want of more. Whoever is refused more than that has [room again](Self::sends_off) when a third of it has been sent.
    pub fn set_notsent_lowat(&mut self, bytes: u32, config: &Config) {
        self.tell(|told| (told.notsent_lowat, told.send_max) = (bytes, if bytes > 0 { config.tcp_wmem } else { 0 }));
        self.bound_queue(config);
    }

    /// So much may be queued whatever is under way; of more it is asked what [the bound](Self::send_limit) is.
    fn bound_queue(&mut self, config: &Config) {
        let Told { send_buffer, notsent_lowat, .. } = self.told();
        let most = if send_buffer > 0 { send_buffer } else { config.tcp_wmem };
        self.snd.buf_max = if notsent_lowat > 0 { most.min(notsent_lowat) } else { most };
    }

    /// The bound of one that was told something of it.
    #[cold]
    pub(super) fn told_limit(&self, told: &Told) -> u32 {
        let Told { send_buffer, send_max, .. } = *told;
        let size = if send_buffer > 0 { send_buffer } else { self.autotuned(send_max) };
        self.unsent_max().map_or(size, |unsent| size.min(self.flight().saturating_add(unsent)))
    }

    /// So much may be unsent, if it was told that.
    pub(super) fn unsent_max(&self) -> Option<u32> {
        let lowat = self.told.as_ref()?.notsent_lowat;
        (lowat > 0).then(|| lowat.max(2 * u32::from(self.snd.mss)))
    }

    /// True once, when the application was refused room and has some again for no other reason than that enough [was sent](Self::set_notsent_lowat): no
    /// acknowledgement has made it. Call [`feed`](Self::feed) when the application can hear of it.
    #[inline]
    pub fn sends_off(&mut self) -> bool {
        self.facts.are(Facts::WANTS_ROOM | Facts::STARVED, Facts::WANTS_ROOM) && self.has_sent_enough()
    }

    #[inline(never)]
    fn has_sent_enough(&mut self) -> bool {
        let enough = self.unsent_max().is_some() && self.has_some_room();
        if enough {
            self.facts.set(Facts::STARVED);
        }
        enough
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
