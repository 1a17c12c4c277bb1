//! Owns the timers of a synchronized connection: which there are, when the next one is due, what each one does.
//!
//! | timer | armed while | on expiry |
//! |---|---|---|
//! | retransmission (RFC 6298) | data or FIN is unacknowledged | enter loss repair, back off |
//! | loss probe, reordering (RFC 8985) | the same, instead of it, where SACK answers | ask with a tail loss probe; or take a gap for a loss |
//! | cork | a small segment waits for the cork, and nothing is in flight | send it |
//! | persist (RFC 9293 section 3.8.6.1) | data or FIN waits and the window is closed | probe with one byte, back off |
//! | delayed ACK | text is not acknowledged yet | acknowledge |
//! | keepalive | asked for | probe, then give up |
//! | FIN-WAIT-2 | an orphan waits for the peer's FIN | give up |

use super::connection::{CloseReason, Connection, Facts, Phase};
use super::nagle::Segmentation;
use super::output::Held;
use super::rtt::{PTO_MARGIN_US, RTO_MAX_US};
use super::state::State;
use super::{BufferPool, Config, Cx};
use crate::time::Instant;

/// The longest that a cork, or the announcement of more, holds a small segment back: Linux's bound.
const CORK_US: u64 = 200_000;

impl Connection {
    /// To be called when `decide` has answered `None`: arms what silence requires. Then `deadline` is right. If new data
    /// has begun to wait, the answer says what for, once until some leaves. With everything acknowledged and nothing written
    /// since, the memory of the send buffer goes back to the pool.
    #[inline(always)]
    pub fn settle<S: Segmentation>(&mut self, cx: &mut Cx<'_>) -> Option<Held> {
        self.snd.buf.give_back(cx.pool);
        let fin_waits = self.facts.has(Facts::FIN_QUEUED) && !self.facts.has(Facts::FIN_SENT);
        if self.state == State::Closed || (self.snd.queued == 0 && !fin_waits) {
            return None;
        }
        let unsent = fin_waits || self.snd.queued > self.flight();
        if !unsent {
            // Only what is lost may wait.
            let is_limited = self.phase != Phase::Open && self.repair_waits();
            if is_limited || self.sent_at == cx.now {
                self.note_use(is_limited);
            }
            return None;
        }
        self.settle_waiting::<S>(cx.now)
    }

    /// To be called instead when the caller has stopped asking `decide` before it answered `None`: it was not the congestion
    /// window that held the connection back, and so it must not grow for it (RFC 7661).
    #[inline]
    pub fn pause(&mut self) {
        self.note_use(false);
    }

    /// Whether the congestion window is what held the connection back. If it was, that is true for the round: the ACKs of what then filled the
    /// window come when there may be nothing left to send.
    #[inline(always)]
    fn note_use(&mut self, is_limited: bool) {
        if is_limited || self.facts.has(Facts::CWND_LIMITED) {
            self.note_limited(is_limited);
        }
    }

    #[inline(never)]
    fn note_limited(&mut self, is_limited: bool) {
        let is_first = self.congestion.is_first_slow_start(); // it counts rounds itself, and asks for half the window
        if is_limited {
            self.facts.set(Facts::CWND_LIMITED);
            self.snd.peak = self.snd.peak.max(self.flight());
            if !is_first {
                self.hystart.window_end = self.snd.nxt;
            }
        } else if is_first || self.snd.una.at_or_after(self.hystart.window_end) {
            self.facts.clear(Facts::CWND_LIMITED);
        }
    }

    /// Data waits.
    #[inline(never)]
    fn settle_waiting<S: Segmentation>(&mut self, now: Instant) -> Option<Held> {
        let held = self.decide_new::<S>(now).err().unwrap_or(Held::Window);
        let unarmed = self.rexmt_at == Instant::NEVER || self.facts.has(Facts::CORK_WAIT);
        if held == Held::Corked && self.rexmt_at == Instant::NEVER {
            self.facts.set(Facts::CORK_WAIT);
            self.rexmt_at = now.after_us(CORK_US);
        } else if held != Held::Corked && unarmed {
            // Nothing is in flight, so no ACK will come to restart us: the peer's window is closed.
            self.facts.clear(Facts::CORK_WAIT);
            self.facts.set(Facts::PERSIST);
            self.progress_ms = now.as_ms() as u32; // the user timeout counts from here
            self.rexmt_at = now.after_us(self.rtt.rto_us().into());
        }
        // What is lost waits for the congestion window, whatever holds back what is new.
        let repair_waits = self.phase != Phase::Open && self.repair_waits();
        self.note_use(repair_waits || matches!(held, Held::Congestion | Held::Deferred));
        let news = !self.facts.has(Facts::HELD);
        self.facts.set(Facts::HELD);
        news.then_some(held)
    }

    /// The next time at which [`on_timeout`](Self::on_timeout) has something to do. Changes with every event and verb.
    #[inline]
    pub fn deadline(&self) -> Instant {
        self.rexmt_at.min(self.delack_at).min(self.keep_at)
    }

    /// Whether [`on_timeout`](Self::on_timeout) will now take what is in flight for lost. (The same timer serves the probes of a
    /// closed window and the cork.)
    #[inline]
    pub fn is_retransmission_due(&self, now: Instant) -> bool {
        let is_due = self.rexmt_at <= now && self.flight() > 0 && !self.facts.has(Facts::PERSIST | Facts::CORK_WAIT);
        is_due && !self.asks_early(now)
    }

    /// Whether [`on_timeout`](Self::on_timeout) will now send a tail loss probe.
    #[inline]
    pub fn is_loss_probe_due(&self, now: Instant) -> bool {
        self.rexmt_at <= now && self.asks_early(now) && self.snd.wnd > 0 && self.board.is_none() && self.may_probe(now)
    }

    /// When to ask what became of what is under way: when its ACK is overdue, or a gap can no longer be mere reordering; and at the
    /// latest when the retransmission timer ends.
    pub(super) fn ask_at(&self, now: Instant) -> Instant {
        let rto_us = self.rtt.rto_us();
        if !self.may_ask_early() {
            return now.after_us(rto_us.into());
        }
        let soon_us = if self.board.is_some() {
            self.rtt.reordering_us().map(|us| us.max(PTO_MARGIN_US))
        } else if self.has_tail() {
            self.rtt.pto_us()
        } else {
            None
        };
        let left_us = u64::from(rto_us).saturating_sub(u64::from(self.idle_ms(now)) * 1_000);
        now.after_us(soon_us.map_or(left_us, |us| left_us.min(us.into())))
    }

    /// Whether the retransmission timer is not the first to ask: where reports will say what came.
    #[inline]
    pub(super) fn may_ask_early(&self) -> bool {
        self.snd.wnd > 0 && self.has_reports()
    }

    /// Whether reports would say it, if the window let anything go.
    #[inline]
    fn has_reports(&self) -> bool {
        self.phase == Phase::Open
            && self.facts.are(Facts::SACK | Facts::PERSIST | Facts::CORK_WAIT, Facts::SACK)
            && self.rtt.pto_us().is_some()
    }

    /// Enough is under way for its ACK not to be delayed. One segment alone is asked for when the retransmission timer would end, which leaves its peer
    /// as long for that as it may take.
    //= https://www.rfc-editor.org/rfc/rfc8985#section-7.2
    //# Third, when the FlightSize is one segment, the sender MAY inflate the PTO by TLP.max_ack_delay to accommodate a potentially delayed
    //# acknowledgment and reduce the risk of spurious retransmissions.
    #[inline]
    pub(super) fn has_tail(&self) -> bool {
        let mss = u32::from(self.snd.mss);
        // A full segment that carries the FIN is one.
        self.flight() > mss && (self.flight() > mss + 1 || !self.facts.has(Facts::FIN_SENT))
    }

    /// Whether the time that is over now is not the retransmission timer's. Of a steady path of more than 190 ms that is the shorter one, and what
    /// there is to ask is asked when it is over, in its place.
    //= https://www.rfc-editor.org/rfc/rfc8985#section-7.2
    //# If Now() + PTO > TCP_RTO_expiration():
    //#     PTO = TCP_RTO_expiration() - Now()
    #[inline]
    fn asks_early(&self, now: Instant) -> bool {
        self.flight() > 0 && (self.may_ask_early() || self.is_closed_early(now)) && !self.is_user_timeout_over(now)
    }

    /// Whether the ACK is overdue: that of one segment alone only when the retransmission timer ends.
    #[inline]
    fn may_probe(&self, now: Instant) -> bool {
        self.has_tail() || !self.is_early(now)
    }

    /// Whether the retransmission timer has not ended.
    #[inline]
    fn is_early(&self, now: Instant) -> bool {
        self.idle_ms(now) < self.rtt.rto_us() / 1_000
    }

    /// Whether it has not, and the window has closed over what was to be asked for.
    #[inline]
    fn is_closed_early(&self, now: Instant) -> bool {
        self.snd.wnd == 0 && self.has_reports() && self.is_early(now)
    }

    /// Who is given up is asked nothing more.
    #[inline]
    fn is_user_timeout_over(&self, now: Instant) -> bool {
        self.user_timeout_ms() > 0 && self.idle_ms(now) >= self.user_timeout_ms()
    }

    /// Time has passed. May be called early, and then does nothing. Call `decide` afterwards.
    pub fn on_timeout(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now;
        if self.state == State::Closed {
            return;
        }
        if self.delack_at <= now {
            self.delack_at = Instant::NEVER;
            self.facts.set(Facts::ACK_NOW);
        }
        if self.rexmt_at <= now {
            self.on_silence(cx);
        }
        if self.keep_at <= now && self.state != State::Closed {
            self.on_idle(cx);
        }
    }

    /// The retransmission or persist timer, or the cork's.
    fn on_silence(&mut self, cx: &mut Cx<'_>) {
        if self.facts.has(Facts::CORK_WAIT) {
            self.facts.clear(Facts::CORK_WAIT);
            self.facts.set(Facts::CORK_OVER);
            self.rexmt_at = Instant::NEVER;
            return;
        }
        if self.asks_early(cx.now) {
            return self.ask(cx);
        }
        // What silly-window avoidance has held back is sent for the first time: that is no retry.
        if !self.facts.has(Facts::PERSIST) || self.snd.wnd == 0 {
            self.retries = self.retries.saturating_add(1);
        }
        let over = if self.user_timeout_ms() > 0 {
            self.is_user_timeout_over(cx.now)
        } else if self.facts.has(Facts::RECEIVE_SHUT) {
            self.retries > cx.config.tcp_retries2.min(cx.config.tcp_orphan_retries) || self.is_pinned(cx.config)
        } else {
            self.retries > cx.config.tcp_retries2
        };
        if over {
            self.give_up(cx);
        } else if self.is_in_the_way(cx.pool) {
            self.facts.set(Facts::RESET_DUE);
            self.die(CloseReason::OutOfMemory, cx);
        } else if self.facts.has(Facts::PERSIST) {
            if self.snd.wnd == 0 {
                self.rtt.on_timeout();
            }
            self.facts.set(Facts::PROBE_DUE);
            self.rexmt_at = cx.now.after_us(self.rtt.rto_us().into());
        } else if self.flight() > 0 {
            self.enter_loss(cx);
        } else {
            self.rexmt_at = Instant::NEVER;
        }
        self.heed_user_timeout(cx.now);
    }

    /// Nothing has been heard for as long as it should take: a gap is a loss, and for what was sent last a probe asks. Either way, what follows
    /// is the retransmission timer (RFC 8985 section 7.3).
    #[cold]
    fn ask(&mut self, cx: &mut Cx<'_>) {
        if self.snd.wnd == 0 {
            // The peer has no room for a probe, and no ACK is overdue yet.
            let left_ms = (self.rtt.rto_us() / 1_000).saturating_sub(self.idle_ms(cx.now));
            self.rexmt_at = cx.now.after_us(u64::from(left_ms) * 1_000);
            return self.heed_user_timeout(cx.now);
        }
        if let Some(board) = &mut self.board {
            board.presume_lost(cx.now);
            self.enter_recovery(cx);
        } else if self.may_probe(cx.now) {
            self.enter_tail();
        } else {
            self.rexmt_at = self.ask_at(cx.now);
            return;
        }
        self.rexmt_at = cx.now.after_us(self.rtt.rto_us().into());
        self.heed_user_timeout(cx.now);
    }

    /// Whether a peer that answers every probe and opens its window for none has kept an orphan long enough. Who wants the connection waits
    /// for ever (RFC 9293 section 3.8.6.1, MUST-37); an orphan's text would be kept for a peer that may never mean to read it
    /// (RFC 6429 section 3). What was under way when it was closed, and is sent again, is such a probe too.
    fn is_pinned(&self, config: &Config) -> bool {
        self.snd.wnd == 0 && self.rtt.backoffs() >= config.tcp_orphan_retries && self.rtt.rto_us() == RTO_MAX_US
    }

    /// The user timeout may be over before the next retransmission is due.
    pub(super) fn heed_user_timeout(&mut self, now: Instant) {
        let user_timeout_ms = self.user_timeout_ms();
        if user_timeout_ms > 0 && self.rexmt_at != Instant::NEVER {
            let left_ms = user_timeout_ms.saturating_sub(self.idle_ms(now));
            self.rexmt_at = self.rexmt_at.min(now.after_us(u64::from(left_ms) * 1_000));
        }
    }

    /// The keepalive timer, or the end of an orphan.
    fn on_idle(&mut self, cx: &mut Cx<'_>) {
        if self.state == State::FinWait2 && self.facts.has(Facts::RECEIVE_SHUT) {
            return self.die(CloseReason::Normal, cx);
        }
        // In TIME-WAIT the peer may be gone, and rightly; only unread bytes keep us here.
        if !self.facts.has(Facts::KEEPALIVE) || self.state == State::TimeWait {
            self.keep_at = Instant::NEVER;
            return;
        }
        let idle_us = cx.now.since_us(self.heard_at);
        // As with the kernel's `TCP_USER_TIMEOUT`, which decides instead of the number of probes if it is set.
        let over = match self.user_timeout_ms() {
            0 => self.probes >= self.keep_probes_max(cx.config),
            limit_ms => self.probes > 0 && idle_us >= u64::from(limit_ms) * 1_000,
        };
        let due_us = self.keep_idle_us(cx.config);
        if idle_us < due_us && self.probes == 0 {
            self.keep_at = cx.now.after_us(due_us - idle_us);
        } else if self.flight() > 0 || self.snd.queued > 0 {
            // The retransmission or persist timer asks already, and it decides how long.
            self.probes = 0;
            self.keep_at = cx.now.after_us(due_us);
        } else if over {
            self.give_up(cx);
        } else {
            self.probes = self.probes.saturating_add(1); // the user timeout may be longer than so many take
            self.facts.set(Facts::PROBE_DUE);
            self.keep_at = cx.now.after_us(self.keep_interval_us(cx.config));
        }
    }

    /// Whether an orphan keeps memory that others have none of any more, for a peer that has taken nothing for three timeouts: what
    /// `tcp_check_oom` asks in the kernel, with less patience.
    fn is_in_the_way(&self, pool: &BufferPool) -> bool {
        let silences = if self.facts.has(Facts::PERSIST) { self.rtt.backoffs() } else { self.retries };
        self.facts.has(Facts::RECEIVE_SHUT) && silences >= 3 && pool.is_short() && self.snd.buf.lent_by_pool() > 0
    }

    fn give_up(&mut self, cx: &mut Cx<'_>) {
        self.facts.set(Facts::RESET_DUE);
        self.die(CloseReason::TimedOut, cx);
    }
}
