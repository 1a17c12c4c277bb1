//! Owns what a connection sends: `decide` looks and returns a [`Plan`], `build` writes its bytes (in `output/build.rs`), `commit` remembers that
//! it left. "Tcp output routine: figure out what should be sent and send it", with the two halves apart.
//!
//! path: `device::rx → ingress → ethernet → ip::input → demux → tcp::input → tcp::state → [tcp::output] → ip::output → egress → device::tx`

mod build;

pub use build::Pieces;

use super::congestion::{Controller, initial_window};
use super::connection::{Connection, Facts, Phase};
use super::nagle::{Segmentation, Tail};
use super::state::State;
use crate::discard::Discard;
use crate::time::Instant;
use core::hint::cold_path;
use laneway_wire::tcp::{Flags, SackBlocks, SeqNum, SeqRange, UnscaledWindow};

/// What a segment is sent for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Data or FIN for the first time.
    New,
    /// Data or FIN again.
    Again,
    /// Nothing but an acknowledgement.
    Ack,
    /// One byte into a closed window (RFC 9293 section 3.8.6.1), or a keepalive (section 3.8.4).
    Probe,
    /// RST.
    Reset,
}

/// Why new data waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Held {
    /// None does.
    Nothing,
    /// The peer's window is closed, or open by too little to be worth a segment.
    Window,
    /// The congestion window is full.
    Congestion,
    /// It may soon leave in fewer, larger pieces: the acknowledgement that is on its way will see to it.
    Deferred,
    /// A small segment is unacknowledged (Nagle, Minshall).
    Small,
    /// The application has put the cork in.
    Corked,
}

/// The most payload that leaves in one piece: what an IPv6 or IPv4 packet can say, less the largest headers.
const SUPER_MAX: u32 = 65_535 - 40 - 60;
/// Bytes of a header whose options are timestamps and nothing else. A reset has none, and SACK blocks make it longer.
pub(super) const PLAIN_HEADER: u16 = 32;
/// Segments that one ACK covers at the most, but for what the last segment taken in brought.
const STRETCH_MAX: u32 = 64;
/// Below this round trip, size costs no latency worth the name and super-segments are as large as can be; each doubling
/// of it takes half of that away (Linux's `tcp_tso_rtt_log`).
const LOW_RTT_US_LOG: u32 = 9;

/// One segment that should go out now, or a run of full ones and a last one that leave as one super-segment. The answer
/// of `decide` holds until the next event, verb or `commit`.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Why.
    pub kind: Kind,
    /// First sequence number.
    pub seq: SeqNum,
    /// Payload bytes.
    pub len: u32,
    /// Control bits.
    pub flags: Flags,
    /// Bytes of the TCP header with its options.
    pub header_len: u16,
    /// Payload bytes of each segment but the last. More than that in `len` is a super-segment, to be cut by the device or at
    /// its edge.
    pub mss: u16,
    /// How many segments it stands for.
    pub segments: u32,
    /// The last segment is a small one of new data, and Nagle's rule will want to know (SND.SML).
    pub small: bool,
    /// [`decide_usual`](Connection::decide_usual) planned it: nothing is under way or lost, all that is queued leaves, and its header says
    /// nothing out of the ordinary. Who carries it out need not ask that again.
    pub usual: bool,
    /// The window that it shows, as the header says it, and the right edge that this means.
    pub window: (UnscaledWindow, SeqNum),
}

impl Plan {
    /// Bytes of the whole TCP segment.
    #[inline]
    pub fn segment_len(&self) -> usize {
        self.header_len as usize + self.len as usize
    }

    /// Whether it has text from `nxt` on, which has not left before: a byte alone may be the one that a probe of the closed window has carried.
    #[inline]
    pub(super) fn has_text_beyond(&self, nxt: SeqNum) -> bool {
        (self.seq + self.len).after(nxt)
    }

    /// Whether it stands for more than one segment.
    #[inline]
    pub fn is_super(&self) -> bool {
        self.segments > 1
    }

    /// Its first `len` bytes, which are fewer and whole segments: all that the device had room for.
    pub fn shortened(self, len: u32) -> Plan {
        debug_assert!(len < self.len && len.is_multiple_of(self.mss.into()), "cut in the middle of a segment");
        let segments = len / u32::from(self.mss);
        Plan { len, segments, flags: self.flags.without(Flags::PSH | Flags::FIN), small: false, usual: false, ..self }
    }
}

impl Connection {
    /// What to send next; `None` until something happens. Pure: call it as often as you like.
    #[inline(always)]
    pub fn decide<S: Segmentation>(&self, now: Instant) -> Option<Plan> {
        if self.state == State::Closed {
            return if self.facts.has(Facts::RESET_DUE) { Some(self.reset()) } else { None };
        }
        let mut lost_waits = false;
        if self.phase != Phase::Open {
            if self.probes_tail() {
                return self.decide_tail::<S>();
            }
            if let Some(plan) = self.decide_again() {
                return Some(plan);
            }
            lost_waits = self.next_lost().is_some();
        }
        // What is lost may be too long for what the window has left, where a short last piece or a FIN is not. That does not overtake it.
        if !lost_waits
            && (self.snd.queued > 0 || self.facts.has(Facts::FIN_QUEUED))
            && let Ok(plan) = self.decide_new::<S>(now)
        {
            return Some(plan);
        }
        if self.phase == Phase::Recovery
            && let Some(plan) = self.decide_hole()
        {
            return Some(plan);
        }
        if self.facts.has(Facts::PROBE_DUE) {
            // What the peer waits to hear first, in a segment that it accepts: a probe lies outside of its window, and so it believes nothing that this
            // says. Two ends that probe at the same time would each give the other no answer.
            let owes = self.ack_is_due(/* turn_is_over= */ true) || self.facts.has(Facts::ACK_PENDING);
            return Some(if owes { self.bare_ack() } else { self.decide_probe() });
        }
        self.ack_is_due(/* turn_is_over= */ true).then(|| self.bare_ack())
    }

    /// An acknowledgement that is due, by itself and before anything else: for rules that do not wait for the application,
    /// and for one that has fallen too far behind. That the peer has no more to say is no reason here: an answer may follow.
    pub fn decide_ack(&self) -> Option<Plan> {
        (self.state != State::Closed && self.ack_is_due(/* turn_is_over= */ false)).then(|| self.bare_ack())
    }

    #[inline(always)]
    fn bare_ack(&self) -> Plan {
        self.plan(Kind::Ack, self.acceptable_seq(), 0, Flags::ACK)
    }

    /// Straight after a `commit`: could `decide` have anything more to say? An acknowledgement has just gone out, so only
    /// data, a FIN, a repair or a probe could follow.
    #[inline]
    pub fn has_more(&self) -> bool {
        let fin_due = self.facts.has(Facts::FIN_QUEUED) && !self.facts.has(Facts::FIN_SENT);
        let unsent = self.snd.queued > self.flight();
        unsent || fin_due || self.facts.has(Facts::PROBE_DUE) || (self.phase != Phase::Open && self.repairs())
    }

    #[cold]
    #[inline(never)]
    fn reset(&self) -> Plan {
        Plan {
            kind: Kind::Reset,
            seq: self.acceptable_seq(),
            len: 0,
            flags: Flags::RST | Flags::ACK,
            header_len: 20,
            mss: self.snd.mss,
            segments: 1,
            small: false,
            usual: false,
            window: (UnscaledWindow::new(0), self.rcv.adv),
        }
    }

    /// A retransmission, if something is lost and the congestion window has room: as much of what lies together as the
    /// window takes, for a super-segment is sent again as one.
    #[inline(never)]
    fn decide_again(&self) -> Option<Plan> {
        let lost = self.next_lost()?;
        let room = self.segment_room();
        let forced = self.facts.has(Facts::FORCE);
        let quota = self.window_room();
        if !forced && quota < u32::from(self.snd.mss) {
            return None;
        }
        // What is sent against the window, or on the word of a partial ACK, is one segment (RFC 6582, RFC 6675).
        let most = if forced { room } else { self.super_max(quota, room) };
        self.repair(lost, most)
    }

    /// At most so much of what is lost, from its beginning on.
    fn repair(&self, lost: SeqRange, most: u32) -> Option<Plan> {
        let offset = lost.start.offset_from(self.snd.una) as u32;
        let queued = self.snd.queued;
        let span = lost.end.offset_from(lost.start) as u32;
        let len = span.min(most).min(queued.saturating_sub(offset));
        let mut flags = Flags::ACK;
        if self.facts.has(Facts::FIN_SENT) && offset + len == queued && span > len {
            flags = flags | Flags::FIN;
        }
        if len == 0 && !flags.fin() {
            return None;
        }
        if len > 0 && offset + len == queued {
            flags = flags | Flags::PSH;
        }
        Some(self.plan(Kind::Again, lost.start, len, flags))
    }

    /// A tail loss probe: new text, whatever the congestion window says, or else what was sent last.
    ///
    //= https://www.rfc-editor.org/rfc/rfc8985#section-7.3
    //# When the PTO timer expires, the sender SHOULD transmit a previously unsent data segment, if the receive window allows, and
    //# increment the FlightSize accordingly.
    #[cold]
    #[inline(never)]
    fn decide_tail<S: Segmentation>(&self) -> Option<Plan> {
        let (queued, sent, room) = (self.snd.queued, self.flight(), self.segment_room());
        let fin_sent = self.facts.has(Facts::FIN_SENT);
        let waits = if fin_sent { 0 } else { queued - sent };
        let usable = (self.snd.una + self.snd.wnd).offset_from(self.snd.nxt).max(0) as u32;
        let len = waits.min(room);
        // What Nagle's rule or a cork holds back waits for what comes behind it.
        let may_leave = || len == room || self.cut_tail::<S>(len, room, /* end= */ true) == Ok(len);
        if len > 0 && len <= usable && may_leave() {
            return self.new_text::<S>(self.snd.nxt, len, waits, usable, room).ok();
        }
        let len = (sent - u32::from(fin_sent)).min(room);
        let start = self.snd.nxt - (len + u32::from(fin_sent));
        self.repair(SeqRange { start, end: self.snd.nxt }, room)
    }

    /// Where nothing is known to be lost and nothing new may leave: a segment of what the peer has not reported, for nothing else will
    /// ask whether it arrived but the timer.
    ///
    //= https://www.rfc-editor.org/rfc/rfc6675#section-4
    //# If the conditions for rules (1) and (2) fail, but there exists an unSACKed sequence number S3 that meets the criteria
    //# for detecting loss given in steps (1.a) and (1.b) above (specifically excluding (1.c)), then one segment of up to SMSS
    //# octets starting with S3 SHOULD be returned.
    #[cold]
    #[inline(never)]
    fn decide_hole(&self) -> Option<Plan> {
        let hole = self.next_hole()?;
        let room = self.segment_room();
        let has_room = self.window_room() >= u32::from(self.snd.mss);
        has_room.then(|| self.repair(hole, room)).flatten()
    }

    /// New data, or the FIN behind it, as far as both windows allow; or why not.
    #[inline(always)]
    pub(super) fn decide_new<S: Segmentation>(&self, now: Instant) -> Result<Plan, Held> {
        if self.facts.has(Facts::FIN_SENT) {
            return Err(Held::Nothing);
        }
        let sent = self.under_way();
        let available = self.snd.queued - sent;
        let fin_queued = self.facts.has(Facts::FIN_QUEUED);
        if available == 0 && !fin_queued {
            return Err(Held::Nothing);
        }
        let mss = self.segment_room();
        let from = self.snd.una + sent;
        let usable = (self.snd.una + self.snd.wnd).offset_from(from).max(0) as u32;
        let mut len = available.min(usable);
        if len < available.min(mss) && !self.is_worth_sending(len) {
            return Err(Held::Window);
        }
        if len > mss {
            len = self.new_super::<S>(now, available, usable, mss)?;
        } else if len > 0 {
            if sent > 0 && len > self.window_room() {
                return Err(Held::Congestion);
            }
            if len < mss && (sent > 0 || self.facts.has(Facts::CORK | Facts::MORE)) {
                len = self.cut_tail::<S>(len, mss, len == available)?;
            }
        }
        self.new_text::<S>(from, len, available, usable, mss)
    }

    /// So much of what is `available`, and with the last of it the FIN.
    #[inline(always)]
    fn new_text<S: Segmentation>(
        &self,
        from: SeqNum,
        len: u32,
        available: u32,
        usable: u32,
        mss: u32,
    ) -> Result<Plan, Held> {
        let last = len == available;
        // The FIN takes a number of its own. Beyond the window it would do harm: the peer would take every later ACK of
        // ours, which stands behind it, for unacceptable, and never hear of its own bytes again.
        let fin = last && self.facts.has(Facts::FIN_QUEUED) && len < usable;
        if len == 0 && !fin {
            return Err(Held::Window);
        }
        let mut flags = Flags::ACK;
        if last {
            if len > 0 {
                flags = flags | Flags::PSH;
            }
            if fin {
                flags = flags | Flags::FIN;
            }
        }
        let small = len > 0 && S::notes_small(len, mss);
        Ok(Plan { small, ..self.plan(Kind::New, from, len, flags) })
    }

    /// Sequence numbers that new data comes after: those in flight. What probes of a closed window carried was refused, and goes out again
    /// with what follows it.
    #[inline(always)]
    fn under_way(&self) -> u32 {
        if self.facts.has(Facts::PERSIST) { 0 } else { self.flight() }
    }

    /// How much leaves as one super-segment, where more than a segment is `available` and `usable` in the peer's window.
    #[inline(always)]
    fn new_super<S: Segmentation>(&self, now: Instant, available: u32, usable: u32, mss: u32) -> Result<u32, Held> {
        // Nearly always, where requests and responses take turns: nothing is under way or corked, and all of it fits with a
        // segment to spare. The same as below, without asking for the rest.
        let half = (self.congestion.window() / 2).min(SUPER_MAX);
        let fits = available <= usable && available + mss <= half && self.is_near();
        let is_free = !self.facts.has(Facts::URGENT_OUT | Facts::CORK | Facts::MORE);
        if fits && self.under_way() == 0 && is_free && !self.has_paused(now) {
            let (in_flight, small_in_flight, corked) = (0, false, false);
            let free = Tail { needed: available, mss, in_flight, small_in_flight, nodelay: false, corked, last: false };
            return Ok(S::cut(&free));
        }
        self.new_super_within::<S>(now, available, usable, mss)
    }

    /// The same, where something limits it.
    #[inline(never)]
    fn new_super_within<S: Segmentation>(
        &self,
        now: Instant,
        available: u32,
        usable: u32,
        mss: u32,
    ) -> Result<u32, Held> {
        let len = available.min(usable);
        let idle = self.under_way() == 0;
        let mut quota = if idle { self.congestion.window() } else { self.window_room() };
        if idle && self.has_paused(now) {
            quota = quota.min(initial_window(self.snd.mss.into())); // what `commit` makes of the window is too late for what leaves with it
        }
        if quota < mss && !idle {
            return Err(Held::Congestion);
        }
        let most = self.super_max(quota.max(mss), mss);
        let mut cut = len.min(most);
        if len < most {
            let partial = len % mss;
            if partial > 0 && len < available {
                // The peer's window ends here, and not the data: a fragment would only be the first of many.
                cut = len - partial;
            } else if partial > 0 {
                cut = self.cut_tail::<S>(len, mss, /* end= */ true)?;
            }
        }
        if cut > mss && !idle && self.should_defer(now, quota.min(usable), mss) {
            return Err(Held::Deferred);
        }
        Ok(cut)
    }

    /// Whether what is to leave comes after a pause for which the window restarts.
    fn has_paused(&self, now: Instant) -> bool {
        u64::from(self.idle_ms(now)) * 1_000 > self.rtt.rto_us().into()
    }

    /// Bytes that may leave in one piece, whole segments, of the `quota` that the congestion window has left (at least one
    /// segment).
    fn super_max(&self, quota: u32, mss: u32) -> u32 {
        if self.facts.has(Facts::URGENT_OUT) {
            return mss; // the urgent pointer counts from the segment that it stands in
        }
        // At most half of the window, so that there are always two on the way and the ACKs of one let the next go.
        let quota = quota.min((self.congestion.window() / 2).max(mss)).min(SUPER_MAX);
        if quota < 2 * mss {
            return mss;
        }
        quota.min(self.autosize(mss)) / mss * mss
    }

    /// About a millisecond's worth of data at the rate of the connection, at least two segments; everything on a path so
    /// short that a millisecond would be many round trips.
    fn autosize(&self, mss: u32) -> u32 {
        if self.is_near() {
            return SUPER_MAX;
        }
        let (Some(srtt_us), Some(least_us)) = (self.rtt.srtt_us(), self.rtt.min_rtt_us()) else { return SUPER_MAX };
        let near = least_us >> LOW_RTT_US_LOG;
        // 1.2 windows in a round trip: a little faster than the ACKs come back, as in Linux.
        let by_rate = u64::from(self.congestion.window()) * 1_200 / u64::from(srtt_us);
        let by_nearness = if near < 32 { SUPER_MAX >> near } else { 0 };
        (by_rate + u64::from(by_nearness)).min(SUPER_MAX.into()).max(u64::from(2 * mss)) as u32
    }

    /// A millisecond would be many round trips, or there was none yet.
    #[inline]
    pub(super) fn is_near(&self) -> bool {
        self.rtt.min_rtt_us().is_none_or(|us| us < 1 << LOW_RTT_US_LOG)
    }

    /// Whether to wait for the ACK that is on its way, because with it a larger super-segment could leave (Linux's
    /// `tcp_tso_should_defer`). `limit` is what both windows let go now. Something is in flight, so that ACK will come.
    fn should_defer(&self, now: Instant, limit: u32, mss: u32) -> bool {
        if self.phase != Phase::Open || self.facts.has(Facts::FIN_QUEUED | Facts::URGENT_OUT) {
            return false;
        }
        // Something left within the last millisecond: otherwise the application writes now and then, and waits for us.
        if now.since_us(self.sent_at) > 1_000 {
            return false;
        }
        let window = self.congestion.window();
        let full = self.autosize(mss).min((window / 2).max(mss)) / mss * mss;
        if limit >= full || limit >= window.min(self.snd.wnd) / 3 {
            return false;
        }
        // The ACK is far away if what it answers has only just left. What is being timed stands for the oldest in flight.
        let srtt_us = u64::from(self.rtt.srtt_us().unwrap_or(0));
        self.facts.has(Facts::TIMING) && now.since_us(self.rtt_at) >= srtt_us / 2
    }

    /// How much leaves of what ends in a small segment; or why none of it does. `end`: of the queue. A piece that the peer's
    /// window cut waits for the one before it too, but not for a cork.
    #[inline]
    fn cut_tail<S: Segmentation>(&self, needed: u32, mss: u32, end: bool) -> Result<u32, Held> {
        let tail = self.tail(needed, mss, end);
        match S::cut(&tail) {
            0 => Err(if tail.corked { Held::Corked } else { Held::Small }),
            cut => Ok(cut),
        }
    }

    /// Sender's silly-window avoidance (RFC 9293 section 3.8.6.2.1): a piece cut short by the peer's window goes out only
    /// if it is at least half of the largest window that the peer has ever shown.
    fn is_worth_sending(&self, len: u32) -> bool {
        len > 0 && len >= self.snd.max_wnd / 2
    }

    #[inline]
    fn tail(&self, needed: u32, mss: u32, end: bool) -> Tail {
        // A send buffer that holds no two segments: the tail becomes no larger, and the peer may be waiting for a second segment with its ACK.
        // (Linux pushes whatever has no room left behind it, past Nagle's rule as well.)
        let is_full = self.facts.has(Facts::WANTS_ROOM) && self.snd.queued < 2 * mss;
        let gathers = self.facts.has(Facts::CORK | Facts::MORE) && !self.facts.has(Facts::CORK_OVER);
        Tail {
            needed,
            mss,
            in_flight: self.under_way(),
            small_in_flight: self.snd.sml.after(self.snd.una) && self.snd.sml.at_or_before(self.snd.nxt),
            nodelay: self.facts.has(Facts::NODELAY),
            corked: end && gathers && !is_full,
            last: self.facts.has(Facts::FIN_QUEUED | Facts::URGENT_OUT),
        }
    }

    /// A keepalive has nothing to send, so it repeats a sequence number that was acknowledged: the peer must answer. A
    /// window probe is the first byte that waits. And what the window takes, if only silly-window avoidance has held it back (RFC 9293
    /// section 3.8.6.2.1), is no probe: it is text like other text.
    #[cold]
    #[inline(never)]
    fn decide_probe(&self) -> Plan {
        if !self.facts.has(Facts::PERSIST) || self.snd.queued == 0 {
            return self.plan(Kind::Probe, self.snd.una - 1, 0, Flags::ACK);
        }
        match self.snd.wnd.min(self.snd.queued).min(self.segment_room()) {
            0 => self.plan(Kind::Probe, self.snd.una, 1, Flags::ACK),
            len => {
                let flags = if len == self.snd.queued { Flags::ACK | Flags::PSH } else { Flags::ACK };
                Plan { small: true, ..self.plan(Kind::New, self.snd.una, len, flags) }
            }
        }
    }

    /// Whether an acknowledgement must go out even with nothing to carry it. Asked at the end of a poll, when the
    /// application has had its turn: had it answered, the answer would have carried it.
    ///
    /// It did not answer, and the peer has pushed: perhaps it holds the rest of its message back until it hears of this
    /// (Nagle), and the two would wait for each other until a timer ends it. The delay of RFC 9293 section 3.8.6.3 is for
    /// what is neither pushed nor a second full segment.
    #[inline]
    pub(super) fn ack_is_due(&self, turn_is_over: bool) -> bool {
        if self.facts.has(Facts::ACK_NOW) {
            return true;
        }
        if self.facts.has(Facts::ACK_PENDING) {
            let unacked = self.rcv.nxt.offset_from(self.rcv.acked) as u32;
            let pushed = turn_is_over && self.facts.has(Facts::PUSHED);
            if pushed || self.rcv.quick_acks > 0 || unacked >= 2 * u32::from(self.rcv.mss) {
                return true;
            }
        }
        self.window_update_is_due()
    }

    /// Whether so much is not acknowledged that the end of the poll is too far away: as many segments as a poll of plain
    /// frames has. A poll of super-segments has more, and without this its sender would hear nothing for all of them.
    #[inline]
    pub fn ack_is_overdue(&self) -> bool {
        self.rcv.nxt.offset_from(self.rcv.acked) as u32 >= STRETCH_MAX * u32::from(self.rcv.mss)
    }

    /// Whether the segment that was just taken in, with this for a result, lay beyond a gap, and its sender counts how often it hears so: without SACK
    /// nothing else tells it of a loss before its timer does.
    //= https://www.rfc-editor.org/rfc/rfc5681#section-3.2
    //# A TCP receiver SHOULD send an immediate duplicate ACK when an out-of-order segment arrives.
    #[inline]
    pub fn owes_duplicate(&self, discard: Option<Discard>) -> bool {
        let beyond = self.rcv.has_gap() || discard == Some(Discard::TcpMemory);
        beyond && self.facts.has(Facts::ACK_NOW) && !self.facts.has(Facts::SACK)
    }

    /// The application has read, and the window can open by two segments or half of the buffer; or, where it is open by more than a SYN can
    /// say, become twice as wide: what has waited is read in pieces, and the first of them is all that the peer would hear of for a round trip.
    #[inline]
    fn window_update_is_due(&self) -> bool {
        let open = self.rcv.adv.offset_from(self.rcv.nxt).max(0) as u32;
        let half = self.widest() / 2;
        // The window of a SYN, which cannot be scaled, is wide enough not to be worth a segment of its own.
        if open >= half || open == 65_535 || !self.state.can_receive() {
            return false;
        }
        let (_, edge) = self.advertise();
        let step = if open < 65_535 { (2 * u32::from(self.rcv.mss)).min(half) } else { open };
        edge.offset_from(self.rcv.adv) >= step as i32
    }

    /// Where a pure ACK stands, or an RST: at SND.NXT, but never beyond the window, into which a probe may have gone. The peer
    /// would take it for unacceptable, and with it what it acknowledges. (What the scale rounds off is no closed window; but
    /// one that is probed is closed, whatever the scale.)
    #[inline]
    pub(super) fn acceptable_seq(&self) -> SeqNum {
        let edge = self.snd.una + self.snd.wnd;
        let beyond = self.snd.nxt.offset_from(edge);
        let probed = beyond > 0 && self.facts.has(Facts::PERSIST) && self.snd.wnd == 0;
        if beyond < 1 << self.snd.scale.get() && !probed { self.snd.nxt } else { edge }
    }

    #[inline(always)]
    fn plan(&self, kind: Kind, seq: SeqNum, len: u32, flags: Flags) -> Plan {
        let mss = self.segment_room() as u16;
        let header_len = 20 + self.options_len() as u16;
        // Nearly always one: no division for that.
        let segments = if len <= u32::from(mss) { 1 } else { len.div_ceil(mss.into()) };
        let window = self.advertise();
        Plan { kind, seq, len, flags, header_len, mss, segments, small: false, usual: false, window }
    }

    /// Payload that fits beside the options of the next segment, and twice into the widest window that the peer has shown, as Linux has it
    /// (`tcp_bound_to_half_wnd`). The ACK of one segment may be delayed, and that of the second is not; and what they leave of the window is always
    /// worth sending (RFC 9293 section 3.8.6.2.1).
    #[inline]
    fn segment_room(&self) -> u32 {
        let mss = u32::from(self.snd.mss);
        let mss = if mss <= self.snd.max_wnd / 2 { mss } else { self.small_window_room() };
        if self.rcv.ooo.is_none() {
            return mss;
        }
        let fixed = if self.facts.has(Facts::TIMESTAMPS) { 12 } else { 0 };
        mss.saturating_sub(self.options_len() as u32 - fixed).max(1)
    }

    /// The same of a window that does not hold two full segments. One of 536 bytes or less is that of a peer with room for one small segment.
    #[cold]
    #[inline(never)]
    fn small_window_room(&self) -> u32 {
        let (mss, widest) = (u32::from(self.snd.mss), self.snd.max_wnd);
        mss.min(if widest > 536 { widest / 2 } else { widest.max(64) })
    }

    #[inline]
    fn options_len(&self) -> usize {
        let timestamps = if self.facts.has(Facts::TIMESTAMPS) { 12 } else { 0 };
        if self.rcv.ooo.is_none() {
            return timestamps;
        }
        match self.sack_blocks_len() {
            0 => timestamps,
            blocks => timestamps + 4 + 8 * blocks,
        }
    }

    /// How many [`sack_blocks`](Self::sack_blocks) there are.
    #[inline(never)]
    fn sack_blocks_len(&self) -> usize {
        match &self.rcv.ooo {
            Some(ooo) if self.facts.has(Facts::SACK) => ooo.blocks_len(self.sack_blocks_max()),
            _ => 0,
        }
    }

    /// So many fit beside the other options.
    #[inline]
    fn sack_blocks_max(&self) -> usize {
        if self.facts.has(Facts::TIMESTAMPS) { 3 } else { 4 }
    }

    /// What has come twice, and what we have beyond a gap, the newest first; as many ranges as fit beside timestamps.
    #[inline(never)]
    fn sack_blocks(&self) -> SackBlocks {
        match &self.rcv.ooo {
            Some(ooo) if self.facts.has(Facts::SACK) => ooo.blocks_up_to(self.rcv.nxt, self.sack_blocks_max()),
            _ => SackBlocks::default(),
        }
    }

    /// The segment of `plan` was handed to the device. True if it acknowledges text that nothing had acknowledged before.
    #[inline(always)]
    pub fn commit(&mut self, plan: &Plan, now: Instant) -> bool {
        if plan.kind == Kind::Reset {
            cold_path();
            self.facts.clear(Facts::RESET_DUE);
            return false;
        }
        self.tally.segs_out = self.tally.segs_out.wrapping_add(plan.segments);
        let acknowledges = self.facts.has(Facts::ACK_PENDING);
        self.rcv.adv = plan.window.1;
        self.rcv.acked = self.rcv.nxt;
        if self.facts.has(Facts::ACK_NOW | Facts::ACK_PENDING) {
            self.rcv.quick_acks = self.rcv.quick_acks.saturating_sub(1);
            self.facts.clear(Facts::ACK_NOW | Facts::ACK_PENDING | Facts::PUSHED);
            self.delack_at = Instant::NEVER;
        }
        if !plan.usual && self.rcv.ooo.is_some() {
            self.forget_repeated();
        }
        let fin = plan.flags.fin();
        let end = plan.seq + (plan.len + u32::from(fin));
        match plan.kind {
            Kind::New => {
                // (The probe of a closed window was, perhaps, and long ago.)
                if plan.usual || self.under_way() == 0 {
                    let idle_ms = self.idle_ms(now);
                    if idle_ms > 0 {
                        self.restart_window(u64::from(idle_ms) * 1_000);
                        self.progress_ms = now.as_ms() as u32;
                    }
                }
                // Beyond what was new so far, or beyond one byte of it, which a probe of the closed window has carried.
                let nxt = std::mem::replace(&mut self.snd.nxt, end);
                // Changed here, and written once.
                let mut facts = self.facts;
                if facts.has(Facts::PROBE_DUE | Facts::ASKED | Facts::HELD | Facts::CORK_OVER) {
                    if facts.has(Facts::ASKED) {
                        self.rcv.quick_acks = 0; // they are for a stream, and this is an answer: the next ACK may ride on one
                    }
                    facts = facts.spoken(plan.flags.psh());
                }
                // After the segment, and never by a retransmission: what is noted is the last small one of new data.
                if plan.small {
                    self.snd.sml = end;
                }
                if self.sent_at != now {
                    self.sent_at = now;
                    self.sent_from = plan.seq;
                }
                if fin {
                    facts.set(Facts::FIN_SENT);
                }
                if !facts.has(Facts::TIMING)
                    && (plan.usual || end.after(nxt) && matches!(self.phase, Phase::Open | Phase::Tail))
                {
                    facts.set(Facts::TIMING);
                    self.rtt_seq = end;
                    self.rtt_at = now;
                }
                if self.rexmt_at == Instant::NEVER || facts.has(Facts::PERSIST | Facts::CORK_WAIT) {
                    facts.clear(Facts::PERSIST | Facts::CORK_WAIT);
                    self.rexmt_at = now.after_us(self.rtt.rto_us().into());
                }
                self.facts = facts;
                if self.told.is_some() && plan.has_text_beyond(nxt) {
                    self.note_cwr_said();
                }
                if !plan.usual {
                    self.on_new_text(plan.len, now);
                }
            }
            Kind::Again => {
                cold_path();
                if self.phase != Phase::Tail {
                    self.rexmit_nxt = self.rexmit_nxt.latest(end);
                    self.expect_twice(plan.len);
                }
                // Of what a timeout or a narrower path has sent again, something may be lost before anything is reported.
                if self.phase == Phase::Loss && self.facts.has(Facts::SACK) {
                    self.board.get_or_insert_default();
                }
                if let Some(board) = &mut self.board {
                    board.note_repeated(self.snd.nxt);
                    board.spend(plan.len);
                }
                self.facts.clear(Facts::FORCE | Facts::TIMING);
                self.retransmitted += 1;
                self.bytes_retrans += u64::from(plan.len);
                // What is to be waited for is the answer to this, and not to what was lost (RFC 6675 section 6).
                if plan.seq == self.snd.una || self.rexmt_at == Instant::NEVER {
                    self.rexmt_at = now.after_us(self.rtt.rto_us().into());
                    self.heed_user_timeout(now);
                }
            }
            Kind::Probe => {
                cold_path();
                self.facts.clear(Facts::PROBE_DUE);
                self.snd.nxt = self.snd.nxt.latest(end);
            }
            Kind::Ack | Kind::Reset => {}
        }
        if !plan.usual && self.facts.has(Facts::URGENT_OUT) && self.snd.up.at_or_before(self.snd.una) {
            cold_path();
            self.facts.clear(Facts::URGENT_OUT);
        }
        acknowledges
    }
    /// What has come twice has been said, and is not said again.
    //= https://www.rfc-editor.org/rfc/rfc2883#section-4
    //# Each duplicate contiguous sequence of data received is reported in at most one D-SACK block.
    #[cold]
    #[inline(never)]
    fn forget_repeated(&mut self) {
        if let Some(ooo) = &mut self.rcv.ooo {
            ooo.forget_repeated();
            if ooo.is_empty() {
                self.rcv.ooo = None;
            }
        }
    }
}

#[cfg(test)]
mod tests;
