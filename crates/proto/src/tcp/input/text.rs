//! Owns what becomes of a segment's text: the seventh step of RFC 9293 section 3.10.7.4, and the eighth, FIN, which waits for all text before it.
//!
//! path: `device::rx → ingress → ethernet → ip::input → demux → [tcp::input] → tcp::state → tcp::output → ip::output → egress → device::tx`

use super::{Acceptable, Arrival, Step};
use crate::discard::Discard;
use crate::tcp::Cx;
use crate::tcp::connection::{Connection, EXCHANGES_MAX, Facts};
use crate::tcp::state::{Event, State};
use core::hint::cold_path;
use core::ops::ControlFlow::{Break, Continue};
use laneway_wire::tcp::{SeqNum, SeqRange};

/// An application with a thread of its own has so long to answer before what was pushed is acknowledged without it, in
/// microseconds. Short: its peer may hold the rest of its message back until then (Nagle).
pub(super) const LATE_ANSWER_US: u64 = 1_000;
/// The same where each side has waited for the other's word so far: nothing is held back there, and the answer will come. Less than
/// the shortest time after which a sender repeats itself.
pub(super) const PATIENT_ANSWER_US: u64 = 100_000;
/// So many exchanges in a row make a conversation.
pub(super) const CONVERSATION: u32 = EXCHANGES_MAX;

/// The text of a segment that was merged into the one before it.
#[derive(Clone, Copy, Debug)]
pub struct MoreText<'a> {
    /// Where it begins.
    pub seq: SeqNum,
    /// The text itself, not empty.
    pub text: &'a [u8],
    /// Bytes of text in each of the segments that it stands for; 0, if it is one.
    pub size: usize,
    /// It had PSH.
    pub pushed: bool,
}

impl Connection {
    /// Seventh: text.
    #[inline(always)]
    pub(super) fn accept_text<'a>(
        &mut self,
        seg: &Acceptable<'_, 'a>,
        size: usize,
        cx: &mut Cx<'_>,
        arrival: &mut Arrival<'a>,
    ) -> Step<()> {
        let seg = seg.0;
        if seg.payload.is_empty() && !seg.flags.fin() {
            return Continue(());
        }
        if (seg.seq + seg.seq_len()).at_or_before(self.rcv.nxt) {
            cold_path();
            self.note_repeated(seg.seq, seg.seq + seg.seq_len());
            return Break(Some(Discard::TcpOutOfWindow)); // `check_sequence` has answered
        }
        //= https://www.rfc-editor.org/rfc/rfc3168#section-6.1.5
        //# the TCP data receiver SHOULD ignore the ECN field on arriving data packets that are outside of the receiver's current
        //# window
        if self.told.is_some() && !seg.payload.is_empty() {
            self.heed_mark(seg.flags, arrival.is_marked);
        }
        if !self.state.can_receive() {
            cold_path();
            // What is newer than all that we have is beyond its FIN.
            return Break((!seg.payload.is_empty()).then_some(Discard::TcpDataAfterClose));
        }
        if self.facts.has(Facts::RECEIVE_SHUT) && (seg.seq + seg.payload.len() as u32).after(self.rcv.nxt) {
            cold_path();
            // Nobody will ever read this: the peer should know (RFC 9293 section 3.6.1).
            self.abort(cx);
            return Break(Some(Discard::TcpDataAfterClose));
        }
        // Trim to the window.
        let mut seq = seg.seq;
        let mut text = seg.payload;
        let old = self.rcv.nxt.offset_from(seq);
        if old > 0 {
            cold_path();
            let old = (old as usize).min(text.len());
            text = &text[old..];
            seq = seq + old as u32;
            self.note_repeated(seg.seq, seq);
        }
        let room =
            self.right_edge().offset_from(seq).min(self.most_ahead() - seq.offset_from(self.rcv.nxt)).max(0) as usize;
        let cut = text.len() > room;
        if cut {
            cold_path();
            text = &text[..room];
            self.facts.set(Facts::ACK_NOW);
        }
        if seg.flags.fin() && !cut {
            self.rcv.fin = seq + text.len() as u32;
            self.facts.set(Facts::FIN_SEEN);
        }
        if !text.is_empty() {
            self.note_size(size, seg.flags.psh(), self.echo_of(seg), cx.now);
            self.note_ack_pending(text.len() as u32, seg.flags.psh(), cx);
        }
        if seq == self.rcv.nxt {
            if self.rcv.buf.is_empty() && !self.rcv.has_gap() {
                arrival.text = text;
                return Continue(());
            }
            return self.buffer_text(text, cx, arrival);
        }
        self.keep_early_text(seq, text, cx)
    }

    /// More text of a run that was merged: it follows, in the sequence space and in the header of its segment, on what was
    /// just taken in by [`on_segment`](Self::on_segment) and [`finish`](Self::finish), so that nothing is left of steps one to six.
    /// `None` if the run is broken here (the application closed, text had to be kept, the window ends): then the segment must
    /// be taken in for itself.
    #[inline]
    pub fn on_more_text<'a>(&mut self, more: &MoreText<'a>, cx: &mut Cx<'_>) -> Option<Arrival<'a>> {
        let MoreText { seq, text, size, pushed } = *more;
        let follows = seq == self.rcv.nxt
            && self.state == State::Established
            && !self.facts.has(Facts::RECEIVE_SHUT | Facts::FIN_SEEN)
            && self.rcv.ooo.is_none()
            && self.rcv.buf.is_empty()
            && self.right_edge().offset_from(seq) >= text.len() as i32;
        if !follows {
            return None;
        }
        let size = self.count_segment(text, size);
        self.note_size(size, pushed, None, cx.now);
        self.note_ack_pending(text.len() as u32, pushed, cx);
        Some(Arrival { text, ..Arrival::default() })
    }

    /// Text in order that has to queue behind unread text, or fills a gap. What the pool cannot hold was not received: the peer
    /// will send it again.
    fn buffer_text<'a>(&mut self, text: &'a [u8], cx: &mut Cx<'_>, arrival: &mut Arrival<'a>) -> Step<()> {
        let extent = self.early_extent();
        let mut grown = self.rcv.buf.push_some(text, extent, cx.pool) as u32;
        if grown < text.len() as u32 {
            self.clamp_window(cx.pool.largest());
            if grown == 0 {
                return Break(Some(Discard::TcpMemory));
            }
        }
        if self.rcv.has_gap() {
            self.note_known(0, text.len() as u32);
        }
        let to_fin = if self.facts.has(Facts::FIN_SEEN) { self.rcv.fin.offset_from(self.rcv.nxt + grown) } else { -1 };
        if let Some(ooo) = &mut self.rcv.ooo {
            ooo.advance(grown);
            let mut filled = ooo.contiguous();
            // What has come from beyond the FIN belongs to no stream. Taken in, it would hide that the peer has closed.
            let ends = (0..=filled as i32).contains(&to_fin);
            if ends {
                filled = to_fin as u32;
            }
            if filled > 0 {
                ooo.advance(filled);
                self.rcv.buf.extend(filled);
                grown += filled;
            }
            if ooo.is_empty() && ooo.has_reported() || ends && !ooo.is_empty() {
                self.rcv.ooo = None;
            }
            // A gap that closes, wholly or in part, is news that the sender should have at once (RFC 5681 section 4.2).
            self.facts.set(Facts::ACK_NOW);
        }
        self.rcv.nxt = self.rcv.nxt + grown;
        self.tally.bytes_received += u64::from(grown);
        arrival.readable = grown > 0;
        Continue(())
    }

    /// Text beyond a gap: kept in the ring, and answered with a duplicate ACK.
    fn keep_early_text(&mut self, seq: SeqNum, text: &[u8], cx: &mut Cx<'_>) -> Step<()> {
        self.facts.set(Facts::ACK_NOW);
        if text.is_empty() {
            return Continue(());
        }
        let gap = seq.offset_from(self.rcv.nxt) as u32;
        let extent = self.early_extent();
        if !self.rcv.buf.put(gap, text, extent, cx.pool) {
            self.clamp_window(cx.pool.largest_spare());
            return Break(Some(Discard::TcpMemory));
        }
        self.note_known(gap, text.len() as u32);
        let ooo = self.rcv.ooo.get_or_insert_default();
        match ooo.insert(gap, text.len() as u32) {
            Ok(()) => Continue(()),
            Err(_) => Break(Some(Discard::TcpAssemblerFull)),
        }
    }

    /// Of the `len` bytes that begin `gap` beyond RCV.NXT, what is there already comes for the second time.
    fn note_known(&mut self, gap: u32, len: u32) {
        if let Some(known) = self.rcv.ooo.as_ref().and_then(|ooo| ooo.known(gap, len)) {
            self.note_repeated(self.rcv.nxt + known.start, self.rcv.nxt + known.end);
        }
    }

    /// These sequence numbers have come a second time. The next ACK says so, and then their sender knows that it has repeated what was not lost.
    //= https://www.rfc-editor.org/rfc/rfc2883#section-4
    //# A D-SACK block is only used to report a duplicate contiguous sequence of data received by the receiver in the most
    //# recent packet.
    #[cold]
    #[inline(never)]
    pub(super) fn note_repeated(&mut self, start: SeqNum, end: SeqNum) {
        if self.facts.has(Facts::SACK) && start != end {
            self.rcv.ooo.get_or_insert_default().note_repeated(SeqRange { start, end });
        }
    }

    /// How far early text reaches beyond RCV.NXT.
    fn early_extent(&self) -> u32 {
        self.rcv.ooo.as_ref().map_or(0, |ooo| ooo.end())
    }

    /// Completes the segment: of `arrival.text` the application has taken `consumed` bytes; the rest is buffered. Then the
    /// eighth step: FIN. True if the peer has now closed, and the application should hear of it.
    #[inline(always)]
    pub fn finish(&mut self, arrival: &Arrival<'_>, consumed: usize, cx: &mut Cx<'_>) -> bool {
        let text = arrival.text;
        if !text.is_empty() && self.state != State::Closed {
            let consumed = consumed.min(text.len());
            let rest = &text[consumed..];
            if !rest.is_empty() && self.facts.has(Facts::RECEIVE_SHUT) {
                cold_path();
                // Closed while it was shown this, with the rest of it unread: as in `close`. Nobody would ever read it.
                self.abort(&mut cx.again());
                return false;
            }
            // Of a segment larger than the pool has room for, what fits: or a reader of small pieces would be sent all of it again
            // for each of them, with a back-off in between.
            let kept = consumed + self.rcv.buf.push_some(rest, 0, cx.pool);
            if kept < text.len() {
                self.clamp_window(cx.pool.largest());
            }
            self.rcv.nxt = self.rcv.nxt + kept as u32;
            self.tally.bytes_received += kept as u64;
            if consumed > 0 {
                self.on_read(consumed as u32, cx);
            }
        }
        if !self.facts.has(Facts::FIN_SEEN) || self.rcv.fin != self.rcv.nxt {
            return false;
        }
        let Some(next) = self.state.on(Event::Fin) else { return false };
        self.state = next;
        self.rcv.nxt = self.rcv.nxt + 1;
        self.facts.set(Facts::ACK_NOW);
        true
    }

    /// So much text, which is not taken in yet, is to be acknowledged.
    #[inline(always)]
    pub(in crate::tcp) fn note_ack_pending(&mut self, len: u32, pushed: bool, cx: &Cx<'_>) {
        let mut wait_us = cx.config.delayed_ack_us;
        // Changed here, and written once.
        let mut facts = self.facts;
        if pushed && !facts.has(Facts::ANSWERS_LATER) {
            facts.set(Facts::PUSHED);
        } else if pushed {
            if facts.has(Facts::ASKED) {
                facts.forget_exchanges(); // it speaks again before it was answered: perhaps it had held that back
            }
            facts.set(Facts::ASKED);
            // Who has sent more than one segment asks soon what became of it (RFC 8985 section 7.2).
            let is_short = self.rcv.nxt.offset_from(self.rcv.acked) as u32 + len <= self.rcv.mss.into();
            wait_us = if is_short && facts.exchanges() >= CONVERSATION { PATIENT_ANSWER_US } else { LATE_ANSWER_US };
        }
        facts.set(Facts::ACK_PENDING);
        self.facts = facts;
        // `NEVER`, unless one is pending already.
        self.delack_at = self.delack_at.min(cx.now.after_us(wait_us));
    }
}
