//! Owns the repair of losses on the sending side: when to believe that something is lost, and what to send again.
//!
//! With SACK this is RFC 6675, without it NewReno (RFC 6582); after a timeout everything up to `recover` counts as lost
//! and is sent again under slow start (RFC 5681 section 3.1).
//!
//! Where what was sent last is lost, or the one ACK of it, nothing speaks for a loss. Then a tail loss probe asks (RFC 8985 section 7), long before the
//! retransmission timer would; of one segment alone, whose ACK may be delayed, when that would end. And a gap that reordering does not explain any
//! more is a loss, however little lies beyond it: so far section 6 of it, without the times at which each segment left.
//!
//! Where reordering was ever seen it is for the clock alone to say what is lost (its section 6.2).
//!
//! Where both ends use timestamps, the first ACK that acknowledges something new says whether a repair was needed: if it answers
//! what was sent before the repair began, nothing was lost, and the repair is taken back (Eifel: RFC 3522, RFC 4015). So it is if that ACK
//! comes before anything was sent again. Whether they do or not, reports that all of it has come twice say the same (RFC 3708).

use super::Cx;
use super::congestion::{Controller, initial_window};
use super::connection::{Connection, Facts, Phase};
use crate::time::Instant;
use laneway_wire::tcp::{Segment, SeqNum, SeqRange};

/// Duplicate ACKs that mean a loss (RFC 5681 section 3.2).
const DUP_THRESH: u16 = 3;
/// The clock of timestamps ticks once in so long, in microseconds.
const TIMESTAMP_TICK_US: u32 = 1_000;

impl Connection {
    /// Bytes believed to be in the network.
    #[inline]
    pub(super) fn pipe(&self) -> u32 {
        let outstanding = self.flight();
        match (self.phase, &self.board) {
            // Each of the first two duplicates says that a segment has left the network (limited transmit, RFC 3042).
            (Phase::Open | Phase::Tail, None) => {
                outstanding.saturating_sub(u32::from(self.snd.dup_acks.min(2)) * u32::from(self.snd.mss))
            }
            (Phase::Loss, None) => {
                let again = self.rexmit_nxt.offset_from(self.snd.una).max(0) as u32;
                let new = self.snd.nxt.offset_from(self.recover).max(0) as u32;
                again + new
            }
            // What is reported was not sent again, or has come.
            (Phase::Loss, Some(board)) => {
                let again = board.unsacked_between(self.snd.una, self.rexmit_nxt);
                again + board.unsacked_between(self.recover, self.snd.nxt)
            }
            (Phase::Open | Phase::Tail, Some(board)) => board.unsacked_between(self.snd.una, self.snd.nxt),
            (Phase::Recovery, Some(board)) => {
                board.pipe(self.snd.una, self.snd.nxt, self.rexmit_nxt, self.snd.mss.into())
            }
            (Phase::Recovery, None) => {
                outstanding.saturating_sub(u32::from(self.snd.dup_acks) * u32::from(self.snd.mss))
            }
        }
    }

    /// What the congestion window lets go now. In a recovery no more than has arrived in it: what is lost has made room in the window, and none in the
    /// queue that it did not fit into, where it would be lost again. Twice that while ACKs tell of no other loss (the slow start reduction bound of
    /// RFC 9937); and a first window may always be under way.
    #[inline]
    pub(super) fn window_room(&self) -> u32 {
        let pipe = self.pipe();
        let room = self.congestion.window().saturating_sub(pipe);
        match (self.phase, &self.board) {
            (Phase::Recovery, Some(board)) => {
                room.min(board.credit().max(initial_window(self.snd.mss.into()).saturating_sub(pipe)))
            }
            _ => room,
        }
    }

    /// Bytes of what is in flight that were sent again, for whoever looks.
    pub(super) fn repeated(&self) -> u32 {
        let again = self.rexmit_nxt.offset_from(self.snd.una).max(0) as u32;
        match (self.phase, &self.board) {
            (Phase::Open, _) => 0,
            // The probe is what was last in flight, unless it is new or has yet to leave.
            (Phase::Tail, _) if self.probes_tail() || self.rexmit_nxt == self.recover => 0,
            (Phase::Tail, _) => self.flight().min(self.snd.mss.into()),
            (Phase::Recovery | Phase::Loss, Some(board)) => board.unsacked_between(self.snd.una, self.rexmit_nxt),
            (Phase::Recovery | Phase::Loss, None) => again.min(self.flight()),
        }
    }

    fn note_sack(&mut self, seg: &Segment<'_>, acked: u32) -> u32 {
        if !self.facts.has(Facts::SACK) || (seg.options.sack.is_empty() && self.board.is_none()) {
            return 0;
        }
        let once = self.sent_once();
        let board = self.board.get_or_insert_default();
        let top = board.highest().unwrap_or(once);
        let missing = board.unsacked_between(once, top);
        let (known, edge) = (board.sacked_bytes(), board.lost_edge(self.snd.mss.into()));
        let newly = board.on_ack(self.snd.una, &seg.options.sack, self.snd.nxt);
        let arrived = (acked + board.sacked_bytes()).saturating_sub(known);
        // An ACK that ends one recovery may begin the next, and what has arrived up to it was the first one's.
        if self.phase != Phase::Recovery || self.snd.una.at_or_after(self.recover) {
            board.forget_recovery();
        }
        let is_safe = acked > 0 && board.lost_edge(self.snd.mss.into()) == edge;
        board.earn(if is_safe { arrived.saturating_mul(2) } else { arrived });
        if board.unsacked_between(once, top) < missing {
            self.rtt.on_reordering(); // what lies above it was reported before
        }
        board.ask_clock(self.rtt.has_seen_reordering() && self.rtt.reordering_us().is_some());
        if board.is_reneged(self.snd.una) {
            board.clear();
        }
        // In a repair nothing may be reported any more, or nothing yet, and what is missing still be late, or lost for the second time.
        let repairs = matches!(self.phase, Phase::Recovery | Phase::Loss);
        if board.is_empty() && !board.is_overdue(self.snd.una) && !repairs {
            self.board = None;
        }
        newly
    }

    /// Nothing from here on was ever sent again.
    fn sent_once(&self) -> SeqNum {
        match self.phase {
            Phase::Open => self.snd.una,
            Phase::Recovery => self.rexmit_nxt.latest(self.snd.una),
            Phase::Tail | Phase::Loss => self.snd.nxt,
        }
    }

    /// An ACK that moved SND.UNA by `acked`, while something is being repaired or suspected.
    pub(super) fn repair_on_ack(&mut self, seg: &Segment<'_>, acked: u32, cx: &mut Cx<'_>) {
        if self.phase == Phase::Open && self.board.is_some() {
            self.rtt.on_reordering(); // nothing was sent again, and the first that was missing has come
        }
        self.note_sack(seg, acked);
        self.heed_new_ack(seg, acked, cx);
        if self.phase == Phase::Open
            && let Some(board) = &mut self.board
        {
            board.watch_anew(cx.now);
        }
    }

    fn heed_new_ack(&mut self, seg: &Segment<'_>, acked: u32, cx: &mut Cx<'_>) {
        let is_first = self.facts.has(Facts::DOUBTED);
        if is_first {
            self.facts.clear(Facts::DOUBTED);
            // What was missing has come before it was sent again.
            if self.phase == Phase::Recovery && self.facts.has(Facts::FORCE) {
                self.rtt.on_impatience();
                self.take_back();
                return self.suspect(cx);
            }
            if let Some(age_us) = self.mistaken_for(seg, cx.now) {
                if self.phase == Phase::Loss {
                    self.rtt.on_sample(age_us);
                } else {
                    self.rtt.on_impatience();
                }
                return self.take_back();
            }
        }
        self.end_back_off(seg, cx.now);
        match self.phase {
            Phase::Open => {
                self.snd.dup_acks = 0;
                self.suspect(cx);
            }
            Phase::Tail => {
                self.on_probe_answered(seg, /* news= */ true, cx);
                self.suspect(cx);
            }
            Phase::Recovery | Phase::Loss if seg.ack.at_or_after(self.recover) => {
                if self.phase == Phase::Recovery {
                    self.rtt.on_patience();
                }
                self.congestion.on_recovered(cx.now);
                self.phase = Phase::Open;
                self.board = self.board.take().filter(|board| !board.is_empty());
                self.snd.dup_acks = 0;
                self.facts.clear(Facts::FORCE);
                if is_first && self.retries < DUP_THRESH as u8 {
                    // One segment was sent again, by each timeout once: fewer than three duplicates are echoes of that.
                    self.recover = seg.ack - 1;
                }
                // What was sent meanwhile may show holes already, and nothing may come any more to ask for them.
                self.suspect(cx);
            }
            Phase::Recovery => {
                if self.facts.has(Facts::SACK) && self.answers_the_repair(seg, acked, cx.now) {
                    let (recover, was_sent) = (self.recover, !self.facts.has(Facts::FORCE));
                    let board = self.board.get_or_insert_default();
                    board.presume_lost_below(recover);
                    // So it is with what had been sent again before this was sent once more: all of that is lost for the second time, at once, and
                    // not one segment of it with each round trip and for half of the window.
                    if board.take_repeated_twice() == Some(self.rexmit_nxt) && was_sent {
                        self.rexmit_nxt = seg.ack;
                    }
                }
                // A partial ACK: the segment behind it is lost too (RFC 6582 section 3.2, step 3).
                if self.board.is_none() {
                    // A segment less than it acknowledges: that one may be sent in the place of what is sent again. Where ACKs were lost it may acknowledge
                    // more than duplicates told of; then nothing of what they let go is left, and the window is what it was halved to.
                    //= https://www.rfc-editor.org/rfc/rfc6582#section-3.2
                    //# Deflate the congestion window by the amount of new data acknowledged by the Cumulative Acknowledgment field. If the partial ACK
                    //# acknowledges at least one SMSS of new data, then add back SMSS bytes to the congestion window.
                    let segments = (acked / u32::from(self.snd.mss)).min(u16::MAX.into()) as u16;
                    self.snd.dup_acks = self.snd.dup_acks.saturating_sub(segments.saturating_sub(1));
                    self.rexmit_nxt = seg.ack;
                    self.facts.set(Facts::FORCE);
                } else {
                    self.facts.clear(Facts::FORCE); // of a repair that was not lost, but late
                    if self.board.as_ref().is_some_and(|board| board.asks_clock()) {
                        self.suspect_repetition(cx);
                    }
                }
                self.rexmit_nxt = self.rexmit_nxt.latest(seg.ack);
            }
            Phase::Loss => {}
        }
    }

    /// The first ACK of something that was sent again ends the back-off, if a timestamp says how long that took. Else the next loss of the
    /// same repair, or the first after it, would be waited for as long as the whole outage was.
    fn end_back_off(&mut self, seg: &Segment<'_>, now: Instant) {
        if self.rtt.backoffs() == 0 || !self.facts.has(Facts::TIMESTAMPS) || self.facts.has(Facts::PERSIST) {
            return;
        }
        //= https://www.rfc-editor.org/rfc/rfc6298#section-3
        //# The only case when TCP can safely take RTT samples from retransmitted segments is when the TCP timestamp option
        //# [JBB92] is employed, since the timestamp option removes the ambiguity regarding which instance of the data segment
        //# triggered the acknowledgment.
        let Some(ts) = seg.options.timestamps else { return };
        // Where an ACK was lost, the one that answers the repetition may echo what was answered by the one that was lost.
        if self.is_from_before_the_repair(ts.echo) || reports_a_repetition(seg) {
            return;
        }
        // The clock of timestamps ticks in milliseconds: less than one says nothing of a shorter path. And what would be older than the timer
        // waits was not echoed in earnest.
        let age_us = self.ts_now(now).wrapping_sub(ts.echo).max(1).saturating_mul(1_000);
        if age_us < self.rtt.rto_us() {
            self.rtt.on_sample(age_us);
        }
    }

    /// A repair begins. Until an ACK says otherwise, it may be a mistake.
    fn doubt(&mut self, now: Instant) {
        self.facts.set(Facts::DOUBTED);
        self.rtt_at = now;
    }

    /// Whether the first ACK after a repair began shows that it was a mistake; then the age of what it answers, in microseconds.
    ///
    /// Not if it acknowledges all that is in flight: then perhaps only the ACKs were lost, and the path is no better for that. A
    /// D-SACK says the same for certain.
    fn mistaken_for(&self, seg: &Segment<'_>, now: Instant) -> Option<u32> {
        //= https://www.rfc-editor.org/rfc/rfc3522#section-3.2
        //# If the value of the Timestamp Echo Reply field of the acceptable ACK's Timestamps option is smaller than the value
        //# of the variable RetransmitTS, then proceed to step (5), else proceed to step (DONE).
        let echo = self.echo_of(seg)?;
        let is_mistake = self.is_from_before_the_repair(echo) && !reports_a_repetition(seg) && seg.ack != self.snd.nxt;
        let age_ms = self.ts_now(now).wrapping_sub(echo);
        is_mistake.then(|| age_ms.saturating_mul(1_000))
    }

    /// Whether what was sent again is acknowledged, and because of that: all that had left before it, and is not reported by now, is lost as well
    /// (RFC 8985 section 6.2). Where no timestamp says so, no answer comes sooner than the soonest ever did, and of what was late nothing is known but that.
    fn answers_the_repair(&self, seg: &Segment<'_>, acked: u32, now: Instant) -> bool {
        let was_repeated = (seg.ack - acked).before(self.rexmit_nxt);
        //= https://www.rfc-editor.org/rfc/rfc8985#section-6.2
        //# If RTT_since_retransmission < RACK.min_RTT:
        let least_us = self.rtt.min_rtt_us().unwrap_or(0);
        let is_late = now.since_us(self.rtt_at) < u64::from(least_us);
        was_repeated
            && match self.echo_of(seg) {
                // What is echoed tells the copies apart, unless both may have left in one tick. That the answer came a little sooner than any
                // before says nothing beside that: none had found the queue empty, and the timer alone would be left to ask again.
                Some(echo) => !self.is_from_before_the_repair(echo) && (!is_late || least_us >= TIMESTAMP_TICK_US),
                None => !is_late && !self.rtt.has_seen_reordering(),
            }
    }

    /// What is echoed left before the repair began.
    fn is_from_before_the_repair(&self, echo: u32) -> bool {
        (echo.wrapping_sub(self.ts_now(self.rtt_at)) as i32) < 0
    }

    /// So much is sent again. A timeout in a recovery goes on with it: what either has repeated is of one repair.
    pub(super) fn expect_twice(&mut self, len: u32) {
        let is_recovery = self.phase == Phase::Recovery || self.unreturned > 0;
        let len = if is_recovery { len as i32 } else { -(len as i32) };
        self.unreturned = self.unreturned.saturating_add(len).max(-i32::MAX);
    }

    /// What was sent again and has come twice was not lost. If all of it has, the repair was a mistake (RFC 3708 section 2), even if it is over by
    /// then. So a peer without timestamps is heard as well, and one that is nearer than a tick of theirs.
    #[cold]
    pub(super) fn heed_repetition(&mut self, seg: &Segment<'_>) {
        // What is not reported before a window more is acknowledged was lost, and so says nothing of a copy that comes long after.
        // (What is predicted does not ask, and so SND.UNA may have gone half of the circle since.)
        let is_over = matches!(self.phase, Phase::Open | Phase::Tail);
        if is_over && self.snd.una.offset_from(self.recover) as u32 > self.snd.max_wnd {
            self.unreturned = 0;
        }
        let Some(block) = repetition(seg) else { return };
        // The first that is heard after a timeout answers what was sent again, and not what was sent before: only ACKs were lost, and the path is no
        // better for that. Since this does not count, all of it never can.
        if self.phase == Phase::Loss && self.facts.has(Facts::DOUBTED) {
            return;
        }
        let (len, left) = (block.len(), self.unreturned.unsigned_abs());
        // Some of what comes twice was made two by the network.
        if left == 0 || len > left || block.end.after(self.rexmit_nxt.earliest(seg.ack)) {
            return;
        }
        let is_recovery = self.unreturned > 0;
        self.unreturned -= self.unreturned.signum() * len as i32;
        if len < left {
            return;
        }
        if is_recovery {
            self.rtt.on_impatience();
        }
        if matches!(self.phase, Phase::Recovery | Phase::Loss) {
            self.take_back();
        } else {
            self.widen_again();
        }
    }

    /// What was taken for a loss had made the window smaller.
    fn widen_again(&mut self) {
        if self.congestion.undo() {
            self.owe_no_cwr();
        }
    }

    /// The window becomes smaller for a loss, or a mark.
    pub(super) fn reduce(&mut self, in_flight: u32, now: Instant) {
        self.congestion.on_congestion(now, in_flight);
        self.owe_cwr();
    }

    /// Nothing was lost: sending goes on where it was, and as fast.
    pub(super) fn take_back(&mut self) {
        self.board = self.board.take().filter(|board| !board.is_empty());
        if let Some(board) = &mut self.board {
            board.presume_nothing();
        }
        self.widen_again();
        self.phase = Phase::Open;
        self.unreturned = 0;
        self.snd.dup_acks = 0;
        self.facts.clear(Facts::FORCE | Facts::DOUBTED);
    }

    /// An ACK that moved nothing while data is in flight.
    pub(super) fn on_duplicate_ack(&mut self, seg: &Segment<'_>, duplicate: bool, cx: &mut Cx<'_>) {
        let newly = self.note_sack(seg, 0);
        if self.facts.has(Facts::SACK) {
            // With SACK a duplicate is one that brings news; without news it is only a window probe or a copy.
            let news = newly > 0;
            if self.phase == Phase::Tail && (news || !self.facts.has(Facts::FORCE)) {
                self.on_probe_answered(seg, news || !duplicate, cx);
            }
            if !news {
                return;
            }
        } else if !duplicate || self.has_just_begun(cx.now) {
            return;
        }
        self.snd.dup_acks = self.snd.dup_acks.saturating_add(1);
        match self.phase {
            Phase::Open => {
                let is_noticed = self.board.as_mut().is_some_and(|board| board.watch(cx.now));
                self.suspect(cx);
                if self.phase == Phase::Open && is_noticed {
                    self.rexmt_at = self.rexmt_at.min(self.ask_at(cx.now));
                }
            }
            Phase::Tail => self.suspect(cx),
            Phase::Recovery => self.suspect_repetition(cx),
            Phase::Loss => {
                self.suspect_repetition(cx);
                // The repair begins anew with what is not reported. Some of it may be under way yet, and then comes twice.
                if self.facts.has(Facts::FORCE) {
                    self.rexmit_nxt = self.snd.una;
                }
            }
        }
    }

    /// The first hole was filled, and that segment was lost as well: what left after it has come, and enough of that. Nothing else would ask for it
    /// but the timer, while the windows let new text go.
    ///
    //= https://www.rfc-editor.org/rfc/rfc5681#section-4.3
    //# Loss in two successive windows of data, or the loss of a retransmission, should be taken as two indications of
    //# congestion and, therefore, cwnd (and ssthresh) MUST be lowered twice in this case.
    fn suspect_repetition(&mut self, cx: &mut Cx<'_>) {
        let is_filled = self.snd.una.before(self.rexmit_nxt) && !self.facts.has(Facts::FORCE);
        let (mss, patience_us) = (self.snd.mss.into(), self.rtt.reordering_us().unwrap_or(0));
        let is_lost = self.board.as_mut().is_some_and(|board| board.is_repetition_lost(mss, cx.now, patience_us));
        if is_filled && is_lost {
            self.reduce(self.flight(), cx.now);
            self.facts.set(Facts::FORCE);
            self.facts.clear(Facts::DOUBTED); // it was sent: what comes before it is sent once more may be the answer to that
            self.rtt_at = cx.now; // as far as answers go, the repair begins here
            if let Some(board) = &mut self.board {
                board.note_repeated_twice(self.rexmit_nxt);
            }
        }
    }

    /// All that is in flight has left in this very poll, and what comes in the same is older.
    ///
    //= https://www.rfc-editor.org/rfc/rfc5681#section-2
    //# (a) the receiver of the ACK has outstanding data
    fn has_just_begun(&self, now: Instant) -> bool {
        self.sent_at == now && self.sent_from.at_or_before(self.snd.una)
    }

    /// Enters fast recovery if enough speaks for a loss.
    fn suspect(&mut self, cx: &mut Cx<'_>) {
        if self.flight() == 0 {
            return;
        }
        let (is_probed, may_ask_early) = (self.phase == Phase::Tail, self.may_ask_early());
        let patience_us = self.rtt.reordering_us().unwrap_or(0);
        let lost = match &mut self.board {
            // Nothing that left two round trips before what has come is on its way still.
            Some(board) if is_probed && board.highest().is_some_and(|top| top.at_or_after(self.recover)) => {
                board.presume_all_lost();
                true
            }
            //= https://www.rfc-editor.org/rfc/rfc8985#section-6.2
            //# Otherwise, if some reordering has been observed, then RACK does not trigger fast recovery based on DupThresh.
            Some(board) if board.asks_clock() && may_ask_early => {
                board.presume_lost_after(patience_us, cx.now);
                board.is_overdue(self.snd.una)
            }
            Some(board) => self.snd.dup_acks >= DUP_THRESH || board.is_lost(self.snd.una, self.snd.mss.into()),
            // Not when the ACKs may only echo what a timeout sent twice (RFC 6582 section 3.2, step 1; its section 4.1 has a rule that guesses which).
            None => self.snd.dup_acks >= DUP_THRESH && self.snd.una != self.recover,
        };
        if lost {
            if self.facts.has(Facts::TIMING) {
                // What is timed is lost, or behind what is. An answer to what is sent again will not come sooner.
                self.rtt.on_longer(cx.now.since_us(self.rtt_at).min(u32::MAX.into()) as u32);
            }
            self.enter_recovery(cx);
        }
    }

    /// FlightSize when what is lost was sent. The ACK that tells of it may acknowledge nearly all of that: where a receiver acknowledges a whole
    /// window at once (GRO, or a lane's poll), what is still in flight then says nothing of what the path has carried. And where the window was used
    /// whole, what ACKs of this very poll have let go counts too: it would be in flight, had each had a poll of its own. What the window lets go
    /// and waits to fill a burst would not.
    pub(super) fn lately_in_flight(&self) -> u32 {
        let (flight, window) = (self.flight(), self.congestion.window());
        let most = flight.max(self.snd.peak);
        if !self.facts.has(Facts::CWND_LIMITED) {
            return most;
        }
        let let_go = most.saturating_add(most - flight);
        most.max(let_go.min(window).min(self.snd.queued).min(self.snd.wnd))
    }

    /// Something is lost, and is sent again at once.
    pub(super) fn enter_recovery(&mut self, cx: &mut Cx<'_>) {
        //= https://www.rfc-editor.org/rfc/rfc6675#section-5
        //# ssthresh = cwnd = (FlightSize / 2)
        if !self.is_in_marked_window() {
            self.reduce(self.lately_in_flight(), cx.now);
            self.doubt(cx.now);
        }
        self.rtt_at = cx.now; // doubted or not, what answers it left later
        self.phase = Phase::Recovery;
        self.recover = self.snd.nxt;
        self.rexmit_nxt = self.snd.una;
        self.unreturned = 0;
        self.facts.set(Facts::FORCE);
        self.facts.clear(Facts::TIMING);
    }

    /// An ACK is overdue: a probe is to leave. It has until [`recover`](Self::recover) moves to find out.
    pub(super) fn enter_tail(&mut self) {
        self.phase = Phase::Tail;
        self.recover = self.snd.nxt;
        self.rexmit_nxt = self.snd.una;
        self.unreturned = 0;
        self.snd.dup_acks = 0;
        self.facts.set(Facts::FORCE);
        self.rtt.on_probe();
    }

    /// Whether a tail loss probe is to leave, and has not yet.
    #[inline]
    pub(super) fn probes_tail(&self) -> bool {
        self.phase == Phase::Tail && self.facts.has(Facts::FORCE)
    }

    /// Whether more than an answer may be due: a repair, or a probe.
    #[cold]
    #[inline(never)]
    pub(super) fn repairs(&self) -> bool {
        self.phase != Phase::Tail || self.probes_tail()
    }

    /// Text has left for the first time.
    #[inline(never)]
    pub(super) fn on_new_text(&mut self, len: u32, now: Instant) {
        if let Some(board) = &mut self.board {
            board.spend(len);
        }
        if self.probes_tail() {
            self.facts.clear(Facts::FORCE);
            (self.recover, self.rexmit_nxt) = (self.snd.nxt, self.snd.nxt);
        } else if self.board.is_none() && self.has_tail() && self.may_ask_early() {
            self.rexmt_at = self.ask_at(now);
        }
    }

    /// An ACK while a probe is out, or is to leave and need not any more. `news`: it is more than a repetition of the one before it. If what was sent
    /// last was sent twice, it takes another ACK than the one of that to know whether both have come.
    fn on_probe_answered(&mut self, seg: &Segment<'_>, news: bool, cx: &Cx<'_>) {
        if self.facts.has(Facts::FORCE) {
            self.facts.clear(Facts::FORCE);
            self.phase = Phase::Open;
            return;
        }
        if self.snd.una.before(self.recover) {
            return;
        }
        let is_new_text = self.rexmit_nxt == self.recover;
        let both_came = reports_a_repetition(seg) || !news;
        if is_new_text || both_came {
            self.phase = Phase::Open;
        } else if self.snd.una.after(self.recover) {
            //= https://www.rfc-editor.org/rfc/rfc8985#section-7.4.2
            //# If the TLP sender does not receive such an indication, then it MUST assume that the original data segment, the TLP
            //# retransmission, or a corresponding ACK was lost for congestion control purposes.
            // (Unless a mark has made the window smaller since it left.)
            if !self.is_of_marked_window(self.recover) {
                self.reduce(self.lately_in_flight(), cx.now);
                self.congestion.on_recovered(cx.now);
            }
            self.phase = Phase::Open;
        }
    }

    /// The retransmission timer ran out (RFC 6298 section 5.4 to 5.7).
    pub(super) fn enter_loss(&mut self, cx: &mut Cx<'_>) {
        let in_flight = self.lately_in_flight();
        self.rtt.on_timeout();
        if self.phase != Phase::Loss || self.rexmit_nxt.after(self.snd.una) {
            self.congestion.on_timeout(cx.now, in_flight);
            self.owe_cwr();
        }
        if matches!(self.phase, Phase::Open | Phase::Tail) {
            self.unreturned = 0;
            self.doubt(cx.now);
        }
        self.phase = Phase::Loss;
        self.recover = self.snd.nxt;
        self.rexmit_nxt = self.snd.una;
        self.snd.dup_acks = 0;
        // The receiver may have thrown away what it selectively acknowledged (RFC 2018 section 8).
        self.board = None;
        self.facts.set(Facts::FORCE);
        self.facts.clear(Facts::TIMING);
        self.rexmt_at = cx.now.after_us(self.rtt.rto_us().into());
    }

    /// What should be sent again next, if anything: sequence numbers known or presumed to be lost.
    pub(super) fn next_lost(&self) -> Option<SeqRange> {
        match (self.phase, &self.board) {
            (Phase::Open | Phase::Tail, _) => None,
            (Phase::Recovery, Some(board)) => {
                let from = self.rexmit_nxt.latest(self.snd.una);
                if self.facts.has(Facts::FORCE) {
                    return Some(self.first_hole(self.snd.una));
                }
                board.next_lost(from, self.recover, self.snd.mss.into())
            }
            (Phase::Recovery, None) => {
                self.facts.has(Facts::FORCE).then_some(SeqRange { start: self.snd.una, end: self.recover })
            }
            (Phase::Loss, _) => {
                let from = self.rexmit_nxt.latest(self.snd.una);
                let hole = self.first_hole(from);
                (hole.start.before(self.recover))
                    .then_some(SeqRange { start: hole.start, end: hole.end.earliest(self.recover) })
            }
        }
    }

    /// What the peer has not reported though it has reported later bytes, and what was not sent again yet: perhaps it is lost.
    pub(super) fn next_hole(&self) -> Option<SeqRange> {
        let (Phase::Recovery, Some(board)) = (self.phase, &self.board) else { return None };
        if board.asks_clock() {
            return None; // it is more likely late
        }
        board.next_hole(self.rexmit_nxt.latest(self.snd.una), self.recover)
    }

    /// Whether something waits to be sent again: nothing but the congestion window holds that back.
    pub(super) fn repair_waits(&self) -> bool {
        self.next_lost().or_else(|| self.next_hole()).is_some()
    }

    /// The first range at or after `from` that is not selectively acknowledged.
    fn first_hole(&self, from: SeqNum) -> SeqRange {
        let end = self.snd.nxt;
        let Some(board) = &self.board else { return SeqRange { start: from, end } };
        board.next_hole(from, end).unwrap_or_else(|| {
            // Nothing missing below the highest report: what lies above it is the rest.
            SeqRange { start: board.highest().map_or(from, |top| from.latest(top)), end }
        })
    }
}

/// It reports what was received twice (D-SACK, RFC 2883 section 4.1).
fn reports_a_repetition(seg: &Segment<'_>) -> bool {
    repetition(seg).is_some()
}

/// What it reports as received twice, and acknowledges.
fn repetition(seg: &Segment<'_>) -> Option<SeqRange> {
    seg.options.sack.iter().next().filter(|block| block.start.before(seg.ack))
}

#[cfg(test)]
mod tests;
