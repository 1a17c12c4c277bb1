//! Owns header prediction: the segment that was expected, taken in without asking what else it could be (Jacobson 1990, 4.3BSD-Reno);
//! and the same on the way out.
//!
//! On a connection in ESTABLISHED on which nothing is amiss nearly every segment is the next one, acknowledges something of what is
//! under way or carries text while nothing is, and says nothing else but that it is the last; and what follows our own FIN nearly
//! always acknowledges that. What happens to it is what the steps of [`input`](super::input) do, which are asked about everything that
//! is not just so. And where requests and responses take turns, nearly all that is ever said is what was just queued, in one segment,
//! and in the end the FIN; of who only receives, an acknowledgement: [`output`](super::output) would plan the same. A test does both to the same connections and compares.
//!
//! path: `device::rx → ingress → ethernet → ip::input → demux → [tcp::input] → tcp::state → [tcp::output] → ip::output → egress → device::tx`

use super::Cx;
use super::buffer::BufferPool;
use super::connection::{Connection, Facts, Phase};
use super::input::Arrival;
use super::nagle::Segmentation;
use super::output::{Kind, PLAIN_HEADER, Plan};
use super::state::State;
use laneway_wire::tcp::{Flags, Usual};

impl Connection {
    /// Whether this is the segment that was expected.
    #[inline(always)]
    pub(super) fn predicts(&self, seg: Usual<'_>) -> bool {
        const TALKING: u32 = Facts::TIMESTAMPS | Facts::PERSIST | Facts::RECEIVE_SHUT;
        const ENDING: u32 = Facts::TIMESTAMPS | Facts::PERSIST | Facts::FIN_SENT;
        let (ack, text) = (seg.ack(), seg.payload().len());
        let agrees = if self.state == State::Established {
            // It fits the window as it was last shown, which was never wider than the buffer.
            self.facts.are(TALKING, Facts::TIMESTAMPS)
                && text as i64 <= i64::from(self.rcv.adv.offset_from(self.rcv.nxt))
        } else {
            // Our FIN, which was under way, is acknowledged, and nothing is said but the peer's own, if that did not come before.
            matches!(self.state, State::FinWait1 | State::LastAck)
                && self.facts.are(ENDING, Facts::TIMESTAMPS | Facts::FIN_SENT)
                && text == 0
                && ack == self.snd.nxt
                && !(seg.flags().fin() && self.state == State::LastAck)
        };
        if !agrees {
            return false;
        }
        // What waits to be read, or beyond a gap, lies in memory that was lent for it.
        debug_assert!(self.rcv.buf.is_lent() || self.rcv.buf.is_empty() && !self.rcv.has_gap());
        self.phase == Phase::Open
            && self.snd.wnd > 0
            && self.snd.dup_acks == 0
            && self.board.is_none()
            && !self.rcv.buf.is_lent()
            && seg.flags().without(Flags::PSH | Flags::FIN) == Flags::ACK
            && seg.seq() == self.rcv.nxt
            && (seg.timestamps().val.wrapping_sub(self.ts_recent) as i32) >= 0
            // It acknowledges all that is under way, if anything is, or some of it: it is no repetition.
            && (ack == self.snd.nxt || ack.after(self.snd.una) && ack.before(self.snd.nxt))
    }

    /// Takes in a segment that it [`predicts`](Self::predicts), with `size` bytes of text in each of those that it stands for.
    #[inline(always)]
    pub(super) fn take_predicted<'a>(&mut self, seg: Usual<'a>, size: usize, cx: &mut Cx<'_>) -> Arrival<'a> {
        let mut arrival = Arrival::default();
        let (seq, ack) = (seg.seq(), seg.ack());
        if seq.at_or_before(self.rcv.acked) {
            self.ts_recent = seg.timestamps().val;
        }
        self.heard_at = cx.now;
        let acked = ack.offset_from(self.snd.una) as u32;
        if acked > 0 {
            let fin_acked = self.state != State::Established;
            let in_flight = self.count_acked(ack, acked - u32::from(fin_acked), cx);
            if !fin_acked {
                self.learn(ack, acked, in_flight, Some(seg.timestamps().echo), cx.now);
            }
            self.rearm_rexmt(ack, cx);
            if fin_acked {
                self.on_fin_acked(&mut cx.again());
            }
            arrival.acked = true;
            self.retries = 0;
        }
        if arrival.acked || self.snd.wl1.at_or_before(seq) {
            self.take_window(seg.window(), seq, ack);
        }
        self.probes = 0;
        let (flags, text) = (seg.flags(), seg.payload());
        if !text.is_empty() {
            self.note_size(size, flags.psh(), Some(seg.timestamps().echo), cx.now);
            self.note_ack_pending(text.len() as u32, flags.psh(), cx);
            arrival.text = text;
        }
        if flags.fin() {
            self.rcv.fin = seq + text.len() as u32;
        }
        self.facts.set_if(flags.fin(), Facts::FIN_SEEN);
        arrival
    }

    /// What [`decide`](Self::decide) would say if it is the usual: everything that is queued, in one segment, with nothing under way;
    /// and with it the FIN, if that follows, or the FIN alone. Nothing is left to say when that is committed: then call
    /// [`settle_usual`](Self::settle_usual).
    #[inline(always)]
    pub fn decide_usual<S: Segmentation>(&self) -> Option<Plan> {
        const ASKED: u32 = Facts::TIMESTAMPS | Facts::CORK | Facts::MORE | Facts::URGENT_OUT | Facts::WANTS_ROOM;
        const LAST: u32 = Facts::FIN_QUEUED | Facts::FIN_SENT;
        let (len, mss, fin) = (self.snd.queued, u32::from(self.snd.mss), self.facts.has(Facts::FIN_QUEUED));
        let has_to_say = len > 0 || (self.facts.are(LAST, Facts::FIN_QUEUED) && self.state != State::Closed);
        let usual = has_to_say
            && len <= mss
            && 2 * len + u32::from(fin) <= self.snd.wnd // two segments fit into it: see `segment_room`
            && self.snd.nxt == self.snd.una
            && self.facts.are(ASKED, Facts::TIMESTAMPS)
            && self.rcv.ooo.is_none();
        // Nothing is queued on a connection that is closed, nor lost where all is acknowledged.
        debug_assert!(!usual || self.state != State::Closed && matches!(self.phase, Phase::Open | Phase::Tail));
        let flags = if len > 0 { Flags::ACK | Flags::PSH } else { Flags::ACK };
        usual.then(|| Plan {
            kind: Kind::New,
            seq: self.snd.nxt,
            len,
            flags: if fin { flags | Flags::FIN } else { flags },
            header_len: PLAIN_HEADER,
            mss: self.snd.mss,
            segments: 1,
            small: len > 0 && S::notes_small(len, mss),
            usual: true,
            window: self.advertise(),
        })
    }

    /// The same of what is mostly left to say by those who only receive, and in the end: an acknowledgement, and nothing else. Nothing is left to say
    /// when that is committed.
    #[inline(always)]
    pub fn decide_usual_ack(&self) -> Option<Plan> {
        const ASKED: u32 = Facts::TIMESTAMPS | Facts::URGENT_OUT | Facts::PROBE_DUE | Facts::PERSIST;
        const LAST: u32 = Facts::FIN_QUEUED | Facts::FIN_SENT;
        let usual = self.facts.are(ASKED, Facts::TIMESTAMPS)
            && !self.facts.are(LAST, Facts::FIN_QUEUED)
            && self.snd.queued <= self.flight()
            && self.phase == Phase::Open
            && self.rcv.ooo.is_none()
            && self.state != State::Closed
            && self.ack_is_due(/* turn_is_over= */ true);
        usual.then(|| Plan {
            kind: Kind::Ack,
            seq: self.acceptable_seq(),
            len: 0,
            flags: Flags::ACK,
            header_len: PLAIN_HEADER,
            mss: self.snd.mss,
            segments: 1,
            small: false,
            usual: true,
            window: self.advertise(),
        })
    }

    /// What [`settle`](Self::settle) would do once that was committed: it is under way, and nothing holds more of it back.
    #[inline(always)]
    pub fn settle_usual(&mut self, pool: &mut BufferPool) {
        if self.snd.queued == 0 {
            self.snd.buf.give_back(pool);
        } else {
            self.pause();
        }
    }
}

#[cfg(test)]
mod tests;
