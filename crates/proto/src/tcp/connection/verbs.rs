//! Owns what the application does with a connection, and the lane on its behalf.

use super::{CloseReason, Connection, Facts};
use crate::tcp::buffer::Ring;
use crate::tcp::queue::Keeper;
use crate::tcp::state::{Event, State};
use crate::tcp::{Cx, KeepaliveTimes};
use crate::time::Instant;

/// The send buffer of a connection that has not yet had much under way: bytes.
pub const SEND_FLOOR: u32 = 512 << 10;

impl Connection {
    /// Queues bytes to be sent, as many as the send buffer has room and the pool has memory for; says how many. The rest is
    /// the caller's: [`takes_room`](Self::takes_room) tells when there is room again, and if not a byte was taken,
    /// [`starves`](Self::starves) whether it is memory that is missing.
    #[inline]
    pub fn send(&mut self, bytes: &[u8], cx: &mut Cx<'_>) -> usize {
        self.facts.clear(Facts::MORE);
        self.queue(bytes, cx)
    }

    /// Like [`send`](Self::send), and more will follow soon (`MSG_MORE`): a small segment at the end waits for it, for
    /// 200 ms at the most.
    pub fn send_more(&mut self, bytes: &[u8], cx: &mut Cx<'_>) -> usize {
        self.facts.set(Facts::MORE);
        self.queue(bytes, cx)
    }

    /// What the send buffer holds at the most: what was under way at once in the last rounds, and as much again to follow it.
    /// More would only be memory that has fallen out of the cache by the time it is sent.
    #[inline]
    pub(super) fn send_limit(&self) -> u32 {
        match &self.told {
            Some(told) if told.send_buffer | told.notsent_lowat > 0 => self.told_limit(told),
            _ => self.autotuned(self.snd.buf_max),
        }
    }

    #[inline]
    pub(in crate::tcp) fn autotuned(&self, most: u32) -> u32 {
        self.snd.peak.saturating_mul(2).clamp(SEND_FLOOR.min(most), most)
    }

    #[inline]
    fn queue(&mut self, bytes: &[u8], cx: &mut Cx<'_>) -> usize {
        if !self.state.can_send() || self.facts.has(Facts::FIN_QUEUED) {
            return 0;
        }
        let most = SEND_FLOOR.min(self.snd.buf_max) as usize;
        let mut take = bytes.len();
        // Nearly always there is room whatever was under way.
        if self.snd.queued as usize + take > most {
            take = take.min(self.send_limit().saturating_sub(self.snd.queued) as usize);
        }
        let taken = self.snd.buf.push_some(&bytes[..take], cx.pool);
        self.snd.queued += taken as u32;
        if taken < bytes.len() {
            self.facts.set(Facts::WANTS_ROOM);
        }
        taken
    }

    /// From now on `keeper` has what [`send_kept`](Self::send_kept) queues, until it is acknowledged. What was queued before goes
    /// first.
    pub fn set_keeper(&mut self, keeper: Box<dyn Keeper>) {
        if self.state != State::Closed {
            self.snd.buf.set_keeper(keeper);
        }
    }

    /// Like [`send`](Self::send), of the next `n` bytes that the keeper has. Towards a peer that acknowledges within half a
    /// millisecond they stay with it. On a longer path they would hold up whoever wants the memory that they lie in, and are
    /// copied; and where what is unsent [is bounded](Connection::set_notsent_lowat), because that memory is for what waits then.
    pub fn send_kept(&mut self, n: usize, cx: &mut Cx<'_>) -> usize {
        self.facts.clear(Facts::MORE);
        if !self.state.can_send() || self.facts.has(Facts::FIN_QUEUED) {
            return 0;
        }
        let room = self.send_limit().saturating_sub(self.snd.queued);
        let kept = self.snd.buf.keep(room.min(n.min(u32::MAX as usize) as u32));
        self.snd.queued += kept;
        let taken = kept as usize;
        if taken < n {
            self.facts.set(Facts::WANTS_ROOM);
        }
        if !self.is_near() || self.unsent_max().is_some() {
            self.snd.buf.absorb(cx.pool);
        }
        taken
    }

    /// Like [`send`](Self::send), the last byte of it being urgent (RFC 9293 section 3.8.5, RFC 6093).
    pub fn send_urgent(&mut self, bytes: &[u8], cx: &mut Cx<'_>) -> usize {
        let taken = self.send(bytes, cx);
        if taken > 0 {
            self.snd.up = self.snd.una + self.snd.queued;
            self.facts.set(Facts::URGENT_OUT);
        }
        taken
    }

    /// Moves unread bytes so that [`readable`](Self::readable) has all of them. False: it had.
    pub fn straighten(&mut self) -> bool {
        self.rcv.buf.straighten()
    }

    /// Takes the whole receive buffer out, so that the application can look at it while it uses its other verbs. Give
    /// it back with [`return_readable`](Self::return_readable) before the next event.
    pub fn lend_readable(&mut self) -> Ring {
        core::mem::take(&mut self.rcv.buf)
    }

    /// Gives the lent buffer back, of which the application has read `consumed` bytes.
    pub fn return_readable(&mut self, ring: Ring, consumed: usize, cx: &mut Cx<'_>) {
        self.rcv.buf = ring;
        if self.state == State::Closed && self.reason != CloseReason::Normal {
            return self.rcv.buf.release(cx.pool);
        }
        self.consume(consumed, cx);
        if self.facts.has(Facts::RECEIVE_SHUT) && !self.rcv.buf.is_empty() {
            self.close_unread(cx);
        }
    }

    /// The application has read `n` of the buffered bytes.
    pub fn consume(&mut self, n: usize, cx: &mut Cx<'_>) {
        let n = (n as u32).min(self.rcv.buf.len());
        self.rcv.buf.consume(n, self.rcv.has_gap(), cx.pool);
        self.on_read(n, cx);
    }

    /// Copies buffered bytes out; says how many.
    pub fn recv(&mut self, out: &mut [u8], cx: &mut Cx<'_>) -> usize {
        let n = out.len().min(self.rcv.buf.len() as usize);
        let (a, b) = self.rcv.buf.slices(0, n as u32);
        out[..a.len()].copy_from_slice(a);
        out[a.len()..n].copy_from_slice(b);
        self.consume(n, cx);
        n
    }

    /// Half-close: what is queued is still sent, then FIN. Reading goes on.
    pub fn shutdown(&mut self) {
        if let Some(next) = self.state.on(Event::Close) {
            self.state = next;
            self.facts.set(Facts::FIN_QUEUED);
        }
    }

    /// Close both ways: what is queued is still sent, then FIN; text that still arrives is answered with RST. Unread
    /// bytes mean that the peer's data is being thrown away, and then the connection is reset (RFC 2525 section 2.17).
    pub fn close(&mut self, cx: &mut Cx<'_>) {
        self.orphan(cx);
        self.shutdown();
        if self.state == State::FinWait2 {
            self.keep_at = cx.now.after_us(cx.config.tcp_fin_timeout_us);
        }
    }

    /// The application has gone, and its last bytes are still to come from where it left them: as [`close`](Self::close), but for
    /// the FIN, which follows with a `close` behind those bytes.
    pub fn orphan(&mut self, cx: &mut Cx<'_>) {
        if !self.rcv.buf.is_empty() {
            return self.close_unread(cx);
        }
        self.facts.set(Facts::RECEIVE_SHUT);
    }

    /// Closed with bytes unread. Where both sides have said all and heard all, that is nobody's business: above all TIME-WAIT is not
    /// cut short for it, since the peer may have to repeat its FIN.
    fn close_unread(&mut self, cx: &mut Cx<'_>) {
        if !matches!(self.state, State::TimeWait | State::Closed) {
            return self.abort(cx);
        }
        self.rcv.buf.release(cx.pool);
        self.facts.set(Facts::RECEIVE_SHUT);
    }

    /// Ends it at once: RST to the peer, everything queued is dropped. In TIME-WAIT, and where nothing but the acknowledgement of our FIN is missing,
    /// without a word (RFC 9293 section 3.10.5): nothing is lost, and the peer's end would be called a reset.
    pub fn abort(&mut self, cx: &mut Cx<'_>) {
        let is_over = match self.state {
            State::TimeWait => true,
            State::Closing | State::LastAck => {
                self.facts.has(Facts::FIN_SENT) && self.snd.queued == 0 && self.rcv.buf.is_empty()
            }
            _ => false,
        };
        if self.state.is_synchronized() && !is_over {
            self.facts.set(Facts::RESET_DUE);
        }
        self.die(CloseReason::Aborted, cx);
    }

    /// Whether the application answers later than in the turn in which it is told, from a thread of its own. What was pushed
    /// is then not acknowledged at the end of the turn, but when the answer leaves, or after 1 ms; after 100 ms, once the two
    /// ends have long spoken in turns.
    pub fn set_answers_later(&mut self, on: bool) {
        if on { self.facts.set(Facts::ANSWERS_LATER) } else { self.facts.clear(Facts::ANSWERS_LATER) }
    }

    /// `TCP_NODELAY`. As the kernel has it, to ask for it pushes what a cork holds back; for what is written next the cork is in again.
    pub fn set_nodelay(&mut self, on: bool) {
        if !on {
            return self.facts.clear(Facts::NODELAY);
        }
        self.facts.set(Facts::NODELAY);
        if self.facts.has(Facts::CORK | Facts::MORE) && self.snd.queued > self.flight() {
            self.facts.set(Facts::CORK_OVER);
        }
    }

    /// `TCP_CORK`: full segments leave, and what is left of the data waits until the cork is out, for 200 ms at the most.
    pub fn set_cork(&mut self, on: bool) {
        if on {
            self.facts.set(Facts::CORK);
        } else {
            self.facts.clear(Facts::CORK | Facts::MORE | Facts::CORK_OVER);
        }
    }

    /// `SO_KEEPALIVE`, with the times of the configuration, or [its own](Self::set_keepalive_times).
    pub fn set_keepalive(&mut self, on: bool, cx: &Cx<'_>) {
        // Who asks for what he has does not put it off: how long the peer has been silent by now counts, and so does each probe.
        let is_so = self.facts.has(Facts::KEEPALIVE) == on;
        if !self.takes_keepalive() || is_so {
            return;
        }
        if on {
            self.facts.set(Facts::KEEPALIVE);
            self.keep_at = cx.now.after_us(self.keep_idle_us(cx.config));
        } else {
            self.facts.clear(Facts::KEEPALIVE);
            self.keep_at = Instant::NEVER;
        }
    }

    /// What is over asks nobody whether he is there: it may still be here for what is unread, and has no timer that would be heard. And of an
    /// orphan in FIN-WAIT-2 that timer is the end, which nobody is left to put off.
    fn takes_keepalive(&self) -> bool {
        let is_ending = self.state == State::FinWait2 && self.facts.has(Facts::RECEIVE_SHUT);
        !matches!(self.state, State::Closed | State::TimeWait) && !is_ending
    }

    /// `TCP_KEEPIDLE`, `TCP_KEEPINTVL` and `TCP_KEEPCNT`. As the kernel has it, a new idle time holds for the silence that there has been, and
    /// the other two from the next probe on.
    pub fn set_keepalive_times(&mut self, times: KeepaliveTimes, cx: &Cx<'_>) {
        self.tell(|told| told.keepalive = times.or(told.keepalive));
        if times.idle_s > 0 && self.facts.has(Facts::KEEPALIVE) && self.takes_keepalive() {
            self.keep_at = self.heard_at.after_us(self.keep_idle_us(cx.config)).max(cx.now);
        }
    }

    /// The peer's SYN-ACK is to be acknowledged, by itself if nothing else goes out in this poll.
    #[inline]
    pub fn owe_ack(&mut self) {
        self.facts.set(Facts::ACK_NOW);
    }

    /// True once, when the application was refused room to send and a third of the buffer is free again; or when its keeper says so.
    #[inline(always)]
    pub fn takes_room(&mut self) -> bool {
        let kept_room = self.snd.buf.takes_room();
        (self.facts.has(Facts::WANTS_ROOM) && self.has_room_again()) || kept_room
    }

    #[inline(never)]
    fn has_room_again(&mut self) -> bool {
        let room = self.has_some_room();
        if room {
            self.facts.clear(Facts::WANTS_ROOM);
        }
        room
    }

    /// As much as is worth a word to whoever waits for it.
    pub(in crate::tcp) fn has_some_room(&self) -> bool {
        let limit = self.send_limit();
        let enough = self.unsent_max().map_or(limit, |unsent| limit.min(unsent)) / 3;
        self.state.can_send() && limit.saturating_sub(self.snd.queued) >= enough
    }

    /// True once, when the application was refused everything for want of memory while nothing is queued: no acknowledgement
    /// will come and make room. Call [`feed`](Self::feed) when the pool has some again.
    pub fn starves(&mut self) -> bool {
        let starves = self.facts.are(Facts::WANTS_ROOM | Facts::STARVED | Facts::FIN_QUEUED, Facts::WANTS_ROOM)
            && self.snd.queued == 0
            && self.state.can_send();
        if starves {
            self.facts.set(Facts::STARVED);
        }
        starves
    }

    /// The pool has memory again. True if the application still waits for room and should hear of it.
    pub fn feed(&mut self) -> bool {
        self.facts.clear(Facts::STARVED);
        self.takes_room()
    }

    /// A record has been made of its TIME-WAIT, which is the flow from now on: it is only here for what the application has not read.
    pub fn end_unread(&mut self, cx: &mut Cx<'_>) {
        if let Some(State::Closed) = self.state.on(Event::Expire) {
            self.die(CloseReason::Normal, cx);
        }
    }
}
