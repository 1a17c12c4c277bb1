//! Owns what a connection sends: `decide` looks and returns a [`Plan`], `build` writes its bytes, `commit` remembers that
//! it left. "Tcp output routine: figure out what should be sent and send it", with the two halves apart.
//!
//! path: `device::rx → ingress → ethernet → ip::input → demux → tcp::input → tcp::state → [tcp::output] → ip::output → egress → device::tx`

use super::congestion::Controller;
use super::connection::{Connection, Facts, Phase};
use super::nagle::{self, Tail};
use super::state::State;
use crate::time::Instant;
use laneway_wire::checksum::{Sum, copy_and_sum};
use laneway_wire::tcp::{Flags, Header, Options, SackBlocks, SeqNum, Timestamps, UnscaledWindow};

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

/// One segment that should go out now. The answer of `decide` holds until the next event, verb or `commit`.
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
}

impl Plan {
    /// Bytes of the whole TCP segment.
    #[inline]
    pub fn segment_len(&self) -> usize {
        self.header_len as usize + self.len as usize
    }
}

impl Connection {
    /// What to send next; `None` until something happens. Pure: call it as often as you like.
    #[inline]
    pub fn decide(&self) -> Option<Plan> {
        if self.state == State::Closed {
            return self.decide_reset();
        }
        if self.phase != Phase::Open
            && let Some(plan) = self.decide_again()
        {
            return Some(plan);
        }
        if (!self.snd.buf.is_empty() || self.facts.has(Facts::FIN_QUEUED))
            && let Some(plan) = self.decide_new()
        {
            return Some(plan);
        }
        if self.facts.has(Facts::PROBE_DUE) {
            return Some(self.decide_probe());
        }
        self.ack_is_due().then(|| self.plan(Kind::Ack, self.acceptable_seq(), 0, Flags::ACK))
    }

    /// Straight after a `commit`: could `decide` have anything more to say? An acknowledgement has just gone out, so only
    /// data, a FIN, a repair or a probe could follow.
    #[inline]
    pub fn has_more(&self) -> bool {
        let fin_due = self.facts.has(Facts::FIN_QUEUED) && !self.facts.has(Facts::FIN_SENT);
        let unsent = self.snd.buf.len() > self.flight();
        unsent || fin_due || self.phase != Phase::Open || self.facts.has(Facts::PROBE_DUE)
    }

    fn decide_reset(&self) -> Option<Plan> {
        let flags = Flags::RST | Flags::ACK;
        self.facts.has(Facts::RESET_DUE).then_some(Plan {
            kind: Kind::Reset,
            seq: self.snd.nxt,
            len: 0,
            flags,
            header_len: 20,
        })
    }

    /// A retransmission, if something is lost and the congestion window has room.
    fn decide_again(&self) -> Option<Plan> {
        let lost = self.next_lost()?;
        let mss = u32::from(self.snd.mss);
        if !self.facts.has(Facts::FORCE) && self.pipe() + mss > self.congestion.window() {
            return None;
        }
        let offset = lost.start.offset_from(self.snd.una) as u32;
        let queued = self.snd.buf.len();
        let span = lost.end.offset_from(lost.start) as u32;
        let len = span.min(self.segment_room()).min(queued.saturating_sub(offset));
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

    /// New data, or the FIN behind it, as far as both windows allow.
    #[inline]
    fn decide_new(&self) -> Option<Plan> {
        if self.facts.has(Facts::FIN_SENT) {
            return None;
        }
        let sent = self.flight();
        let available = self.snd.buf.len() - sent;
        let fin_queued = self.facts.has(Facts::FIN_QUEUED);
        if available == 0 && !fin_queued {
            return None;
        }
        let mss = self.segment_room();
        let usable = (self.snd.una + self.snd.wnd).offset_from(self.snd.nxt).max(0) as u32;
        let len = available.min(usable).min(mss);
        if len < available.min(mss) && !self.is_worth_sending(len) {
            return None;
        }
        if len > 0 && sent > 0 {
            if self.pipe() + len > self.congestion.window() {
                return None;
            }
            let partial = len < mss && len == available;
            if partial && nagle::hold(self.tail(len, sent)) {
                return None;
            }
        }
        let last = len == available;
        // The FIN takes a number of its own. Beyond the window it would do harm: the peer would take every later ACK of
        // ours, which stands behind it, for unacceptable, and never hear of its own bytes again.
        let fin = last && fin_queued && len < usable;
        if len == 0 && !fin {
            return None;
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
        Some(self.plan(Kind::New, self.snd.nxt, len, flags))
    }

    /// Sender's silly-window avoidance (RFC 9293 section 3.8.6.2.1): a piece cut short by the peer's window goes out only
    /// if it is at least half of the largest window that the peer has ever shown.
    fn is_worth_sending(&self, len: u32) -> bool {
        len > 0 && len >= self.snd.max_wnd / 2
    }

    fn tail(&self, partial: u32, in_flight: u32) -> Tail {
        Tail {
            partial,
            in_flight,
            small_in_flight: self.snd.sml.after(self.snd.una) && self.snd.sml.at_or_before(self.snd.nxt),
            nodelay: self.facts.has(Facts::NODELAY),
            last: self.facts.has(Facts::FIN_QUEUED) || self.facts.has(Facts::URGENT_OUT),
        }
    }

    /// A keepalive has nothing to send, so it repeats a sequence number that was acknowledged: the peer must answer. A
    /// window probe is the first byte that waits, or what the window takes if only silly-window avoidance held it back.
    fn decide_probe(&self) -> Plan {
        if self.snd.buf.is_empty() {
            return self.plan(Kind::Probe, self.snd.una - 1, 0, Flags::ACK);
        }
        let len = self.snd.wnd.min(self.snd.buf.len()).min(self.segment_room()).max(1);
        self.plan(Kind::Probe, self.snd.una, len, Flags::ACK)
    }

    /// Whether an acknowledgement must go out even with nothing to carry it. Asked at the end of a poll, when the
    /// application has had its turn: had it answered, the answer would have carried it.
    #[inline]
    fn ack_is_due(&self) -> bool {
        if self.facts.has(Facts::ACK_NOW) {
            return true;
        }
        if self.facts.has(Facts::ACK_PENDING) {
            let unacked = self.rcv.nxt.offset_from(self.rcv.acked) as u32;
            if self.quick_acks > 0 || unacked >= 2 * u32::from(self.rcv.mss) {
                return true;
            }
        }
        self.window_update_is_due()
    }

    /// The application has read, and the window can open by two segments or half of the buffer.
    #[inline]
    fn window_update_is_due(&self) -> bool {
        let open = self.rcv.adv.offset_from(self.rcv.nxt).max(0) as u32;
        // The window of a SYN, which cannot be scaled, is wide enough not to be worth a segment of its own.
        if open >= (self.rcv.buf_max / 2).min(65_535) || !self.state.can_receive() {
            return false;
        }
        let (_, edge) = self.advertise();
        let step = (2 * u32::from(self.rcv.mss)).min(self.rcv.buf_max / 2);
        edge.offset_from(self.rcv.adv) >= step as i32
    }

    /// Where a pure ACK stands: at SND.NXT, but never beyond the window, into which a probe may have gone. The peer would
    /// take it for unacceptable, and with it what it acknowledges. (What the scale rounds off is no closed window.)
    #[inline]
    fn acceptable_seq(&self) -> SeqNum {
        let edge = self.snd.una + self.snd.wnd;
        if self.snd.nxt.offset_from(edge) < 1 << self.snd.scale.get() { self.snd.nxt } else { edge }
    }

    #[inline]
    fn plan(&self, kind: Kind, seq: SeqNum, len: u32, flags: Flags) -> Plan {
        Plan { kind, seq, len, flags, header_len: 20 + self.options_len() as u16 }
    }

    /// Payload that fits beside the options of the next segment.
    #[inline]
    fn segment_room(&self) -> u32 {
        let mss = u32::from(self.snd.mss);
        if self.rcv.ooo.is_none() {
            return mss;
        }
        let fixed = if self.facts.has(Facts::TIMESTAMPS) { 12 } else { 0 };
        mss.saturating_sub(self.options_len() as u32 - fixed).max(1)
    }

    #[inline]
    fn options_len(&self) -> usize {
        let timestamps = if self.facts.has(Facts::TIMESTAMPS) { 12 } else { 0 };
        if self.rcv.ooo.is_none() {
            return timestamps;
        }
        match self.sack_blocks().len() {
            0 => timestamps,
            blocks => timestamps + 4 + 8 * blocks,
        }
    }

    /// What we have beyond a gap, the newest first, as many ranges as fit beside timestamps.
    fn sack_blocks(&self) -> SackBlocks {
        let mut blocks = SackBlocks::default();
        if self.facts.has(Facts::SACK)
            && let Some(ooo) = &self.rcv.ooo
        {
            let most = if self.facts.has(Facts::TIMESTAMPS) { 3 } else { 4 };
            for block in ooo.blocks(self.rcv.nxt).iter().take(most) {
                blocks.push(block);
            }
        }
        blocks
    }

    /// Writes the segment of `plan` into `buf`, which has exactly `plan.segment_len()` bytes. The checksum field is left
    /// zero; the answer is the sum over the payload, so that the caller, who knows the addresses, completes it. With
    /// `offloaded` the device will sum, and the answer means nothing.
    #[inline]
    pub fn build(&self, plan: &Plan, now: Instant, offloaded: bool, buf: &mut [u8]) -> Sum {
        let reset = plan.kind == Kind::Reset;
        let mut options = Options::default();
        if !reset {
            if self.facts.has(Facts::TIMESTAMPS) {
                options.timestamps = Some(Timestamps { val: self.ts_now(now), echo: self.ts_recent });
            }
            if self.rcv.ooo.is_some() {
                options.sack = self.sack_blocks();
            }
        }
        let (window, _) = if reset { (UnscaledWindow::new(0), self.rcv.adv) } else { self.advertise() };
        let mut flags = plan.flags;
        let mut urgent = 0;
        if self.facts.has(Facts::URGENT_OUT) && self.snd.up.after(plan.seq) && !reset {
            flags = flags | Flags::URG;
            urgent = self.snd.up.offset_from(plan.seq).min(65_535) as u16;
        }
        let header = Header {
            src_port: self.key.local_port,
            dst_port: self.key.remote_port,
            seq: plan.seq,
            ack: self.rcv.nxt,
            flags,
            window,
            urgent,
            options,
        };
        let (head, body) = buf.split_at_mut(plan.header_len as usize);
        header.emit(head);
        if plan.len == 0 {
            return Sum::ZERO;
        }
        let offset = plan.seq.offset_from(self.snd.una).max(0) as u32;
        let (a, b) = self.snd.buf.slices(offset, plan.len);
        if b.is_empty() && !offloaded {
            return copy_and_sum(body, a);
        }
        body[..a.len()].copy_from_slice(a);
        body[a.len()..].copy_from_slice(b);
        if offloaded { Sum::ZERO } else { Sum::of(body) }
    }

    /// The segment of `plan` was handed to the device.
    #[inline]
    pub fn commit(&mut self, plan: &Plan, now: Instant) {
        if plan.kind == Kind::Reset {
            self.facts.clear(Facts::RESET_DUE);
            return;
        }
        self.tally.segs_out = self.tally.segs_out.wrapping_add(1);
        let (_, edge) = self.advertise();
        self.rcv.adv = edge;
        self.rcv.acked = self.rcv.nxt;
        if self.facts.has(Facts::ACK_NOW | Facts::ACK_PENDING) {
            self.quick_acks = self.quick_acks.saturating_sub(1);
            self.facts.clear(Facts::ACK_NOW | Facts::ACK_PENDING);
            self.delack_at = Instant::NEVER;
        }
        let fin = plan.flags.fin();
        let end = plan.seq + (plan.len + u32::from(fin));
        match plan.kind {
            Kind::New => {
                self.facts.clear(Facts::PROBE_DUE); // it asks no less
                if self.snd.nxt == self.snd.una {
                    let idle_ms = (now.as_ms() as u32).wrapping_sub(self.progress_ms);
                    self.congestion.on_idle(u64::from(idle_ms) * 1_000, self.rtt.rto_us());
                    self.progress_ms = now.as_ms() as u32;
                }
                self.snd.nxt = end;
                if plan.len > 0 && plan.len < u32::from(self.snd.mss) {
                    self.snd.sml = end;
                }
                if fin {
                    self.facts.set(Facts::FIN_SENT);
                }
                if !self.facts.has(Facts::TIMING) && self.phase == Phase::Open {
                    self.facts.set(Facts::TIMING);
                    self.rtt_seq = end;
                    self.rtt_at = now;
                }
                if self.rexmt_at == Instant::NEVER || self.facts.has(Facts::PERSIST) {
                    self.facts.clear(Facts::PERSIST);
                    self.rexmt_at = now.after_us(self.rtt.rto_us().into());
                }
            }
            Kind::Again => {
                self.rexmit_nxt = self.rexmit_nxt.latest(end);
                self.facts.clear(Facts::FORCE | Facts::TIMING);
                self.retransmitted += 1;
                self.tally.bytes_retrans += u64::from(plan.len);
                if self.rexmt_at == Instant::NEVER {
                    self.rexmt_at = now.after_us(self.rtt.rto_us().into());
                }
            }
            Kind::Probe => {
                self.facts.clear(Facts::PROBE_DUE);
                self.snd.nxt = self.snd.nxt.latest(end);
            }
            Kind::Ack | Kind::Reset => {}
        }
        if self.facts.has(Facts::URGENT_OUT) && self.snd.up.at_or_before(self.snd.una) {
            self.facts.clear(Facts::URGENT_OUT);
        }
    }
}
