//! Owns what a segment does to a synchronized connection: RFC 9293 section 3.10.7.4, step by step. Text and FIN, the last two, are in
//! `input/text.rs`.
//!
//! path: `device::rx → ingress → ethernet → ip::input → demux → [tcp::input] → tcp::state → tcp::output → ip::output → egress → device::tx`

mod text;

pub use text::MoreText;

use super::congestion::Controller;
use super::connection::{CloseReason, Connection, Facts, Phase};
use super::rtt::RTO_MARGIN_US;
use super::state::{Event, State};
use super::{Config, Cx};
use crate::discard::Discard;
use crate::time::Instant;
use core::hint::cold_path;
use core::ops::ControlFlow::{self, Break, Continue};
use laneway_wire::tcp::{Flags, Segment, SeqNum, UnscaledWindow, Usual};

/// No probe without text comes sooner after the one before: it is what a sender waits at the least before it repeats itself.
const PROBE_LEAST_US: u64 = RTO_MARGIN_US as u64;
/// How long after one answer to what is not acceptable the next may follow, in milliseconds. What carries nothing may be such an answer itself, of a
/// peer who finds ours as wrong: it is limited even if the operator wants no limit, to what a peer that probes may want answered.
pub(super) fn least_between_answers_ms(seg: &Segment<'_>, config: &Config) -> u32 {
    let least_us = config.tcp_invalid_ratelimit_us;
    let is_bare = seg.seq_len() == 0 && !seg.flags.rst();
    ((if is_bare { least_us.max(PROBE_LEAST_US) } else { least_us }) / 1_000) as u32
}

/// What a segment brought. The application is shown `text` (then [`Connection::finish`] must be called with what it took)
/// and, if `readable`, what [`Connection::readable`] has.
#[derive(Default)]
pub struct Arrival<'a> {
    /// New text in order, still lying in the frame. Empty if it had to be buffered behind older text.
    pub text: &'a [u8],
    /// Buffered text has grown.
    pub readable: bool,
    /// Bytes of ours were acknowledged.
    pub acked: bool,
    /// Why the segment, or the rest of it, went no further.
    pub discard: Option<Discard>,
    /// It was discarded, and is answered by a challenge ACK (RFC 5961).
    pub challenged: bool,
    /// A router has marked its packet (CE, RFC 3168). Whoever takes it in says so before.
    pub is_marked: bool,
}

/// How a step ends: with the proof that it held, or with the end of the segment.
pub(super) type Step<T> = ControlFlow<Option<Discard>, T>;

/// How many segments the network carried for so many bytes of text, `size` in each.
#[inline(never)]
fn carried(bytes: usize, size: usize) -> u32 {
    bytes.div_ceil(size.max(1)).max(1) as u32
}

// The tokens: each is made in the step that it is named after, and the next step takes nothing else, so the steps cannot be reordered.
struct InWindow<'s, 'a>(&'s Segment<'a>);
struct NotReset<'s, 'a>(&'s Segment<'a>);
struct NotSyn<'s, 'a>(&'s Segment<'a>);
struct Acceptable<'s, 'a>(&'s Segment<'a>);

/// How long a peer's timestamp is remembered: half of the circle of a clock that counts microseconds. RFC 7323 section 5.4 has none that is faster than a millisecond,
/// of which half a circle is 24 days, but there are such peers (Linux since 6.7), and nothing old is under way after four minutes.
const TS_RECENT_LIFE_US: u64 = 1 << 31;

impl Connection {
    /// Takes in one segment. Afterwards call [`finish`](Self::finish), always, then `decide` until it answers `None`.
    #[inline]
    pub fn on_segment<'a>(&mut self, seg: &Segment<'a>, cx: &mut Cx<'_>) -> Arrival<'a> {
        let mut arrival = Arrival::default();
        self.on_unexpected(seg, 0, cx, &mut arrival);
        arrival
    }

    /// [`on_segment`](Self::on_segment) for one that is as nearly all are, if it is the one that was expected: what it brought. `None`: nothing has
    /// happened, and [`on_unexpected`](Self::on_unexpected) is to be called with all that it says. `size` as there.
    #[inline(always)]
    pub fn on_expected<'a>(&mut self, seg: Usual<'a>, size: usize, cx: &mut Cx<'_>) -> Option<Arrival<'a>> {
        if !self.predicts(seg) {
            return None;
        }
        let size = self.count_segment(seg.payload(), size);
        Some(self.take_predicted(seg, size, cx))
    }

    /// [`on_segment`](Self::on_segment) for what a device or a lane made of several segments that arrived together: each but
    /// the last had `size` bytes of text; 0: it is one. What it brought is written to `arrival`, which is to be new.
    #[inline]
    pub fn on_unexpected<'a>(&mut self, seg: &Segment<'a>, size: usize, cx: &mut Cx<'_>, arrival: &mut Arrival<'a>) {
        let size = self.count_segment(seg.payload, size);
        if let Break(discard) = self.segment_arrives(seg, size, cx, arrival) {
            arrival.discard = discard;
        }
    }

    /// Counts what the network carried for this text, `size` bytes in each or, if that is 0, all in one. Says how large each was: what "every
    /// second full-sized segment" is measured in is that, and not what it was merged to.
    #[inline(always)]
    fn count_segment(&mut self, text: &[u8], size: usize) -> usize {
        if size == 0 {
            self.tally.segs_in = self.tally.segs_in.wrapping_add(1);
            return text.len();
        }
        let size = size.min(text.len());
        self.tally.segs_in = self.tally.segs_in.wrapping_add(carried(text.len(), size));
        size
    }

    /// An ACK has arrived of which a later one, that was taken in, says everything.
    #[inline]
    pub fn count_superseded(&mut self) {
        self.tally.segs_in = self.tally.segs_in.wrapping_add(1);
    }

    /// RFC 9293 section 3.10.7.4, in its order.
    #[inline(always)]
    pub(super) fn segment_arrives<'a>(
        &mut self,
        seg: &Segment<'a>,
        size: usize,
        cx: &mut Cx<'_>,
        arrival: &mut Arrival<'a>,
    ) -> Step<()> {
        if self.state == State::Closed && self.reason == CloseReason::Reset && seg.flags.ack() && !seg.flags.syn() {
            cold_path();
            return Break(Some(Discard::TcpNoConnection)); // it waits to be removed; who still believes in it should know
        }
        let seg = self.check_sequence(seg, cx, arrival)?; // first (and PAWS, RFC 7323)
        let seg = self.check_reset(seg, cx, arrival)?; // second
        let seg = self.check_syn(seg, cx, arrival)?; // fourth: the third, security, is obsolete
        let seg = self.process_ack(seg, cx, arrival)?; // fifth
        self.note_urgent(&seg); // sixth
        self.accept_text(&seg, size, cx, arrival) // seventh; the eighth, FIN, is `finish`
    }

    /// First: is it in the window, and is it not an old duplicate?
    #[inline(always)]
    fn check_sequence<'s, 'a>(
        &mut self,
        seg: &'s Segment<'a>,
        cx: &Cx<'_>,
        arrival: &mut Arrival<'a>,
    ) -> Step<InWindow<'s, 'a>> {
        if self.facts.has(Facts::TIMESTAMPS) {
            match seg.options.timestamps {
                Some(ts) => {
                    if (ts.val.wrapping_sub(self.ts_recent) as i32) < 0
                        && !seg.flags.rst()
                        && !self.ts_recent_is_stale(cx.now)
                    {
                        cold_path();
                        //= https://www.rfc-editor.org/rfc/rfc7323#section-5.3
                        //# If the segment is not acceptable, then the receiver SHOULD send an acknowledgment in reply
                        self.answer_invalid(seg, cx, arrival);
                        return Break(Some(Discard::TcpPaws));
                    }
                }
                None if !seg.flags.rst() => {
                    cold_path();
                    // A peer that was restarted may not use them any more. Unanswered, it would not get in.
                    if seg.flags.syn() {
                        return self.challenge_syn(seg, cx, arrival);
                    }
                    //= https://www.rfc-editor.org/rfc/rfc7323#section-3.2
                    //# If a non-<RST> segment is received without a TSopt, a TCP SHOULD silently drop the segment.
                    return Break(Some(Discard::TcpPaws));
                }
                None => {}
            }
        }
        // Everything up to the right edge is acceptable, the edge itself included: a peer that filled our window sends
        // its pure ACKs from exactly there, and they must be heard.
        let end = seg.seq + seg.seq_len();
        if end.before(self.rcv.nxt)
            || seg.seq.after(self.right_edge().latest(self.rcv.nxt))
            || self.is_old_text(seg, end)
        {
            cold_path();
            if self.stands_before_its_probe(seg) {
                return Continue(InWindow(seg));
            }
            if self.is_repeated(seg, end) {
                self.facts.set(Facts::ACK_NOW);
                return Continue(InWindow(seg)); // no further than to `accept_text`
            }
            if !seg.flags.rst() {
                self.answer_invalid(seg, cx, arrival);
            }
            return Break(Some(Discard::TcpOutOfWindow));
        }
        Continue(InWindow(seg))
    }

    /// RFC 7323 section 5.3, R3, and only of a segment whose acknowledgement is acceptable, too, as the kernel has it: whoever met the window
    /// with a timestamp of his own choice would else have all that the peer says refused as old. And so would, by itself, what was overtaken by
    /// a repetition: of text that we have only that which ends where we stand is heard.
    ///
    //= https://www.rfc-editor.org/rfc/rfc7323#section-4.3
    //# SEG.TSval >= TS.Recent and SEG.SEQ <= Last.ACK.sent
    #[inline]
    fn note_timestamp(&mut self, seg: &Segment<'_>) {
        if self.facts.has(Facts::TIMESTAMPS)
            && let Some(ts) = seg.options.timestamps
            && seg.seq.at_or_before(self.rcv.acked)
            && (seg.seq + seg.seq_len()).at_or_after(self.rcv.nxt)
        {
            self.ts_recent = ts.val;
        }
    }

    /// The timestamp of ours that it echoes, where both ends have agreed on timestamps.
    //= https://www.rfc-editor.org/rfc/rfc7323#section-3.2
    //# If a TSopt is received on a connection where TSopt was not negotiated in the initial three-way handshake, the TSopt MUST be
    //# ignored and the packet processed normally.
    #[inline(always)]
    pub(super) fn echo_of(&self, seg: &Segment<'_>) -> Option<u32> {
        seg.options.timestamps.filter(|_| self.facts.has(Facts::TIMESTAMPS)).map(|ts| ts.echo)
    }

    /// Text that ends exactly where we stand is a duplicate of what we have; without text it is the ordinary ACK.
    #[inline]
    fn is_old_text(&self, seg: &Segment<'_>, end: SeqNum) -> bool {
        end == self.rcv.nxt && seg.seq_len() > 0
    }

    /// Text that we have, and that the peer may repeat because it has not heard our ACK: it is from no further back than a window. What it says beside
    /// its text is heard, as the BSDs hear it. It acknowledges; and if it ends where we stand, the ACK that answers it must not echo a transmission
    /// before, or the peer takes the time between the two for a round trip, and waits for longer with each ACK that is lost.
    #[inline(never)]
    fn is_repeated(&self, seg: &Segment<'_>, end: SeqNum) -> bool {
        let is_old =
            seg.seq_len() > 0 && end.at_or_before(self.rcv.nxt) && !seg.flags.intersects(Flags::RST | Flags::SYN);
        is_old && seg.seq.at_or_after(self.rcv.nxt - self.rcv.buf_max)
    }

    /// Of a segment before the window: it is a pure ACK of something new, by a peer that has probed our window with a byte. Until it knows that the
    /// byte was taken it stands before it. Had we probed its window, too, we would say so from where it does not hear us either, and no ACK would ever
    /// be heard again.
    #[inline(never)]
    fn stands_before_its_probe(&self, seg: &Segment<'_>) -> bool {
        let is_pure = seg.seq_len() == 0 && seg.flags.ack() && !seg.flags.rst();
        let is_new = seg.ack.after(self.snd.una) && seg.ack.at_or_before(self.snd.nxt);
        is_pure && is_new && seg.seq + 1 == self.rcv.nxt
    }

    /// Second: RST (RFC 5961 section 3). Only an exact hit resets; one in the window is challenged.
    #[inline(always)]
    fn check_reset<'s, 'a>(
        &mut self,
        seg: InWindow<'s, 'a>,
        cx: &mut Cx<'_>,
        arrival: &mut Arrival<'a>,
    ) -> Step<NotReset<'s, 'a>> {
        let seg = seg.0;
        if !seg.flags.rst() {
            return Continue(NotReset(seg));
        }
        cold_path();
        if seg.seq == self.rcv.nxt {
            let reason = match self.state {
                // Both had already said all, and all of ours was heard: the reset takes nothing away.
                State::Closing | State::LastAck if self.snd.queued == 0 => CloseReason::Normal,
                // It is over, and only unread bytes keep it: RFC 1337, fix F1, and no second end.
                State::TimeWait | State::Closed => return Break(Some(Discard::TcpTimeWaitRst)),
                _ => CloseReason::Reset,
            };
            self.die(reason, cx);
            return Break(None);
        }
        arrival.challenged = self.challenge(seg, cx);
        Break(Some(Discard::TcpRstChallenged))
    }

    /// Fourth: SYN in a synchronized state (RFC 5961 section 4).
    #[inline(always)]
    fn check_syn<'s, 'a>(
        &mut self,
        seg: NotReset<'s, 'a>,
        cx: &Cx<'_>,
        arrival: &mut Arrival<'a>,
    ) -> Step<NotSyn<'s, 'a>> {
        let seg = seg.0;
        if seg.flags.syn() {
            cold_path();
            return self.challenge_syn(seg, cx, arrival);
        }
        Continue(NotSyn(seg))
    }

    fn challenge_syn<T>(&mut self, seg: &Segment<'_>, cx: &Cx<'_>, arrival: &mut Arrival<'_>) -> Step<T> {
        //= https://www.rfc-editor.org/rfc/rfc5961#section-4.2
        //# If the SYN bit is set, irrespective of the sequence number, TCP MUST send an ACK (also referred to as
        //# challenge ACK) to the remote peer
        arrival.challenged = self.challenge(seg, cx);
        Break(Some(Discard::TcpSynChallenged))
    }

    /// Fifth: ACK.
    #[inline(always)]
    fn process_ack<'s, 'a>(
        &mut self,
        seg: NotSyn<'s, 'a>,
        cx: &mut Cx<'_>,
        arrival: &mut Arrival<'a>,
    ) -> Step<Acceptable<'s, 'a>> {
        let seg = seg.0;
        if !seg.flags.ack() {
            cold_path();
            return Break(Some(Discard::TcpNoAck));
        }
        if seg.ack.after(self.snd.nxt) {
            cold_path();
            arrival.challenged = self.challenge(seg, cx);
            return Break(Some(Discard::TcpAckInvalid));
        }
        if seg.ack.before(self.snd.una) {
            cold_path();
            if seg.ack.before(self.oldest_ack()) {
                arrival.challenged = self.challenge(seg, cx);
                return Break(Some(Discard::TcpAckInvalid));
            }
            self.heard_at = cx.now;
            self.note_timestamp(seg);
            return Continue(Acceptable(seg)); // an old duplicate: its text may still be new
        }
        // Only now: what says less than this could come from anyone, and is no sign of life.
        self.heard_at = cx.now;
        self.note_timestamp(seg);
        let window = (seg.window << self.snd.scale).get();
        if self.unreturned != 0 {
            cold_path();
            self.heed_repetition(seg);
        }
        if seg.ack.after(self.snd.una) {
            self.on_new_ack(seg, cx);
            arrival.acked = true;
        } else if (self.flight() > 0 || self.phase == Phase::Tail) && !self.facts.has(Facts::PERSIST) {
            // (What answers a probe of a closed window says nothing of a loss.)
            //= https://www.rfc-editor.org/rfc/rfc5681#section-2
            //# (e) the advertised window in the incoming acknowledgment equals the
            //# advertised window in the last incoming acknowledgment.
            let same_window = window == self.snd.wnd || seg.ack + window == self.snd.shown;
            let duplicate = seg.payload.is_empty() && same_window && !seg.flags.fin();
            self.on_duplicate_ack(seg, duplicate, cx);
        }
        // The window is taken from the newest segment only, so that a reordered one cannot shrink it.
        // What acknowledges something new is newer than all before it, even if it repeats old text, whose number is low: its
        // window belongs to its ACK, and the one before it, counted from the new SND.UNA, would reach too far.
        // The numbers of two window updates may be the same. If SND.NXT lies beyond the narrower, that one was overtaken: a
        // window's right edge does not move left; except to say that it is closed, which is heard from whoever says it.
        if arrival.acked
            || self.snd.wl1.before(seg.seq)
            || (self.snd.wl1 == seg.seq
                && self.snd.wl2.at_or_before(seg.ack)
                && (window >= self.flight().min(self.snd.wnd) || window == 0))
        {
            if window != 0 && (self.snd.wnd == 0 || self.facts.has(Facts::PERSIST)) {
                self.on_window_open(cx.now);
            }
            self.take_window(seg.window, seg.seq, seg.ack);
        } else if window > self.snd.wnd {
            cold_path();
            self.snd.shown = seg.ack + window; // what shows the same again is no update of it
        }
        // Only progress, or a peer that answers probes of its closed window, resets the count towards giving up. What was under way
        // when it was closed, and is sent again, is such a probe too.
        //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6.1
        //# As long as the receiving TCP peer continues to send acknowledgments in response to the probe segments, the sending
        //# TCP peer MUST allow the connection to stay open (MUST-37).
        let is_closed = self.snd.wnd == 0 && self.flight() > 0;
        if arrival.acked || is_closed || self.facts.has(Facts::PERSIST) {
            self.retries = 0;
        }
        self.probes = 0;
        if seg.flags.contains(Flags::ECE) {
            self.heed_echo(arrival.acked, cx);
        }
        if self.state == State::Closed {
            return Break(None); // LAST-ACK was waiting for just this
        }
        Continue(Acceptable(seg))
    }

    /// A peer whose window was closed, or probed, shows one: it answers.
    #[cold]
    #[inline(never)]
    fn on_window_open(&mut self, now: Instant) {
        self.retries = 0;
        if self.snd.wnd > 0 {
            return;
        }
        self.rtt.on_window_open();
        // However long probes have waited for one another: what silly-window avoidance holds back waits for one timeout from here, and so does what
        // was under way when the window was closed.
        if self.rexmt_at != Instant::NEVER {
            self.rexmt_at = self.rexmt_at.min(now.after_us(self.rtt.rto_us().into()));
        }
        if self.facts.has(Facts::PERSIST) {
            self.restart_window(now.since_us(self.sent_at));
            self.progress_ms = now.as_ms() as u32;
        }
    }

    /// The window that a segment shows is the one that counts.
    #[inline(always)]
    pub(super) fn take_window(&mut self, shown: UnscaledWindow, seq: SeqNum, ack: SeqNum) {
        let window = (shown << self.snd.scale).get();
        self.snd.wnd = window;
        self.snd.wl1 = seq;
        self.snd.wl2 = ack;
        self.snd.max_wnd = self.snd.max_wnd.max(window);
    }

    /// SND.UNA moves, by so many bytes and perhaps our FIN. Says how much was under way before.
    #[inline(always)]
    pub(super) fn count_acked(&mut self, ack: SeqNum, bytes: u32, cx: &Cx<'_>) -> u32 {
        let in_flight = self.flight();
        debug_assert!(ack.at_or_before(self.snd.nxt), "more was acknowledged than is under way");
        self.snd.una = ack;
        self.tally.bytes_acked += u64::from(bytes);
        // Its memory is given back in `settle`: mostly the application sends again before that.
        self.snd.buf.drop_front(bytes);
        self.snd.queued -= bytes.min(self.snd.queued);
        self.progress_ms = cx.now.as_ms() as u32;
        in_flight
    }

    /// What the ACK of `acked` bytes tells of the path: how long a round trip takes, and that more may be under way. `echo` is the timestamp that
    /// came with it. That of our FIN is not asked: whoever has said all waits for no round trip any more, and for no window.
    #[inline(always)]
    pub(super) fn learn(&mut self, ack: SeqNum, acked: u32, in_flight: u32, echo: Option<u32>, now: Instant) {
        if self.facts.has(Facts::TIMING) && ack.at_or_after(self.rtt_seq) {
            self.rtt.on_round_trip(self.rtt_at, now);
            self.facts.clear(Facts::TIMING);
            self.snd.peak = in_flight.max(self.snd.peak - self.snd.peak / 8);
        }
        let (limited, lately) = (self.facts.has(Facts::CWND_LIMITED), in_flight.max(self.snd.peak));
        if self.phase != Phase::Recovery && self.congestion.may_grow(now, lately, limited) {
            self.grow_window(ack, acked, echo, now);
        }
    }

    /// The window grows for what was acknowledged. (By itself: most ACKs find it unused.)
    #[inline(never)]
    fn grow_window(&mut self, ack: SeqNum, acked: u32, echo: Option<u32>, now: Instant) {
        // After a timeout it is one segment, whatever was marked before.
        if self.phase != Phase::Loss && self.has_heeded_mark() {
            return;
        }
        let mut bytes = acked;
        if self.phase == Phase::Loss {
            bytes = bytes.min(self.sent_since_loss(ack - acked, ack));
        }
        let rtt_ms = echo.map(|echo| self.ts_now(now).wrapping_sub(echo));
        if let Some(rtt_ms) = rtt_ms {
            self.rtt.on_longer(rtt_ms.saturating_mul(1_000));
        }
        if self.congestion.is_first_slow_start() {
            let growth = self.hystart.on_ack(ack, self.snd.nxt, bytes, rtt_ms);
            if growth.is_over {
                self.congestion.leave_slow_start();
            }
            bytes = growth.bytes;
        }
        self.congestion.grow(now, bytes, self.rtt.srtt_us().unwrap_or(0));
    }

    /// How much of what lies between was sent since the retransmission timer ended. The rest left the network before that, and may be a
    /// window's worth that had waited for one segment; a window is not opened for it a second time (RFC 5681 section 3.1).
    #[cold]
    fn sent_since_loss(&self, from: SeqNum, to: SeqNum) -> u32 {
        let again = self.rexmit_nxt.earliest(to).offset_from(from).max(0);
        let new = to.offset_from(self.recover).max(0);
        (again + new) as u32
    }

    /// The retransmission timer, after something new was acknowledged.
    #[inline(always)]
    pub(super) fn rearm_rexmt(&mut self, ack: SeqNum, cx: &Cx<'_>) {
        //= https://www.rfc-editor.org/rfc/rfc6298#section-5
        //# When an ACK is received that acknowledges new data, restart the retransmission timer
        self.rexmt_at = if ack == self.snd.nxt { Instant::NEVER } else { self.ask_at(cx.now) };
    }

    /// SND.UNA moves: time it, count it, repair, and see whether it was our FIN.
    #[inline(always)]
    fn on_new_ack(&mut self, seg: &Segment<'_>, cx: &mut Cx<'_>) {
        let now = cx.now;
        let acked = seg.ack.offset_from(self.snd.una) as u32;
        let fin_acked = self.facts.has(Facts::FIN_SENT) && seg.ack == self.snd.nxt;
        let progress_ms = self.progress_ms;
        let in_flight = self.count_acked(seg.ack, acked - u32::from(fin_acked), cx);
        if !fin_acked {
            self.learn(seg.ack, acked, in_flight, self.echo_of(seg), now);
        }
        if self.phase != Phase::Open || self.snd.dup_acks != 0 || self.board.is_some() || !seg.options.sack.is_empty() {
            cold_path();
            self.repair_on_ack(seg, acked, cx);
            self.doubt_suspicion(now);
        }

        self.rearm_rexmt(seg.ack, cx);
        if self.facts.has(Facts::PERSIST) {
            cold_path();
            self.on_probe_taken(seg, progress_ms, now);
        }

        if fin_acked {
            self.on_fin_acked(cx);
        }
    }

    /// What was acknowledged last was our FIN.
    #[inline]
    pub(super) fn on_fin_acked(&mut self, cx: &mut Cx<'_>) {
        let Some(next) = self.state.on(Event::AckOfFin) else { return };
        self.state = next;
        match next {
            State::Closed => self.die(CloseReason::Normal, cx),
            State::FinWait2 if self.facts.has(Facts::RECEIVE_SHUT) => {
                self.keep_at = cx.now.after_us(cx.config.tcp_fin_timeout_us);
            }
            _ => {}
        }
    }

    /// What a probe of a closed window carried was taken. If the window is still closed, that says no more than an answer without it would: a peer
    /// that takes text byte by byte has neither the probes come faster, nor one who waits for progress wait for longer.
    fn on_probe_taken(&mut self, seg: &Segment<'_>, progress_ms: u32, now: Instant) {
        let still_waits = self.snd.queued > 0 || self.facts.has(Facts::FIN_QUEUED);
        if seg.window == UnscaledWindow::new(0) && still_waits {
            self.progress_ms = progress_ms;
            self.rexmt_at = now.after_us(self.rtt.rto_us().into());
            return self.heed_user_timeout(now);
        }
        self.facts.clear(Facts::PERSIST);
        self.rtt.on_window_open();
        // While the window was closed no text but that of probes left.
        self.restart_window(now.since_us(self.sent_at));
    }

    /// Nothing has left for so long, and no ACK may say any more what the path carries.
    //= https://www.rfc-editor.org/rfc/rfc5681#section-4.1
    //# Therefore, a TCP SHOULD set cwnd to no more than RW before beginning transmission if the TCP has not sent data in an
    //# interval exceeding the retransmission timeout.
    pub(super) fn restart_window(&mut self, idle_us: u64) {
        if self.congestion.on_idle(idle_us, self.rtt.rto_us()) {
            self.snd.peak = 0; // what was under way before says nothing of what will be
        }
    }

    /// Sixth: the urgent pointer (RFC 6093: it points behind the last urgent byte, which stays in line).
    #[inline(always)]
    fn note_urgent(&mut self, seg: &Acceptable<'_, '_>) {
        let seg = seg.0;
        if seg.flags.urg() && self.state.can_receive() {
            cold_path();
            let up = seg.seq + u32::from(seg.urgent);
            if up.after(self.rcv.nxt) && (!self.facts.has(Facts::URGENT_IN) || up.after(self.rcv.up)) {
                self.rcv.up = up;
                self.facts.set(Facts::URGENT_IN);
            }
        }
    }

    /// Whether `ack` is what a segment of this connection's peer may acknowledge, an old one perhaps. If not, it speaks of another connection.
    pub fn may_be_acknowledged(&self, ack: SeqNum) -> bool {
        ack.at_or_before(self.snd.nxt) && ack.at_or_after(self.oldest_ack())
    }

    /// The least that an old segment of the peer's may acknowledge.
    fn oldest_ack(&self) -> SeqNum {
        //= https://www.rfc-editor.org/rfc/rfc5961#section-5.2
        //# The ACK value is considered acceptable only if it is in the range of
        //# ((SND.UNA - MAX.SND.WND) <= SEG.ACK <= SND.NXT).
        // That may reach back to before our first byte, which no peer acknowledges: only who guesses would.
        let heard = self.tally.bytes_acked + u64::from(self.facts.has(Facts::FIN_SENT));
        self.snd.una - u64::from(self.snd.max_wnd).min(heard) as u32
    }

    /// An ACK for a segment that is not acceptable. One without text is answered only so often, or two confused ends
    /// would answer each other for ever.
    fn answer_invalid(&mut self, seg: &Segment<'_>, cx: &Cx<'_>, arrival: &mut Arrival<'_>) {
        if seg.payload.is_empty() && !seg.flags.intersects(Flags::FIN) {
            arrival.challenged = self.challenge(seg, cx) && seg.flags.syn(); // a challenge is what answers SYN, RST and ACK
        } else {
            // Refused as old, and overtaken by its own repetition: nothing else tells the peer that this was needless. (Not of who only guesses.)
            let end = (seg.seq + seg.seq_len()).earliest(self.rcv.nxt);
            let is_peers = seg.flags.ack() && self.may_be_acknowledged(seg.ack);
            if is_peers && self.is_repeated(seg, end) && seg.seq.before(end) {
                self.note_repeated(seg.seq, end);
            }
            self.facts.set(Facts::ACK_NOW);
        }
    }

    /// A challenge ACK, limited per connection: a shared limit would tell an attacker about others (CVE-2016-5696).
    /// True if it is not too soon for one.
    fn challenge(&mut self, seg: &Segment<'_>, cx: &Cx<'_>) -> bool {
        let ms = cx.now.as_ms() as u32;
        let least = least_between_answers_ms(seg, cx.config);
        let sent = ms.wrapping_sub(self.challenged_ms) >= least;
        if sent {
            self.challenged_ms = ms;
            self.facts.set(Facts::ACK_NOW);
        }
        sent
    }

    /// After so long a silence the remembered timestamp proves nothing any more (RFC 7323 section 5.5).
    fn ts_recent_is_stale(&self, now: Instant) -> bool {
        now.since_us(self.heard_at) > TS_RECENT_LIFE_US
    }
}

#[cfg(test)]
mod tests;
