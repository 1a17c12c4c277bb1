//! Owns what a connection says of itself. Nothing here changes anything.

use super::{CloseReason, Connection, Facts, Phase};
use crate::tcp::congestion::Controller;
use crate::tcp::state::State;
use crate::time::Instant;
use laneway_wire::flow::FlowKey;
use laneway_wire::tcp::SeqNum;

impl Connection {
    /// Where the bytes lie that wait to be acknowledged. With their acknowledgement that memory is free, and whoever answers it is lent it
    /// again, as what was freed last: so it can be brought into the cache when an acknowledgement is on its way.
    #[inline]
    pub fn unacknowledged(&self) -> &[u8] {
        self.snd.buf.memory()
    }

    /// Bytes that arrived in order and were not taken at once, as far as they lie together.
    #[inline]
    pub fn readable(&self) -> &[u8] {
        self.rcv.buf.front()
    }

    /// Bytes in order that wait for the application.
    #[inline]
    pub fn buffered(&self) -> u32 {
        self.rcv.buf.len()
    }

    /// Nothing is left to do for it, and nothing to read: it can be removed.
    #[inline]
    pub fn is_finished(&self) -> bool {
        self.state == State::Closed && !self.facts.has(Facts::RESET_DUE) && self.rcv.buf.is_empty()
    }

    /// Both sides have said all, and it is only here for what the application has not read: its flow is free.
    #[inline]
    pub fn only_waits_to_be_read(&self) -> bool {
        self.state == State::Closed && self.reason == CloseReason::Normal && !self.rcv.buf.is_empty()
    }

    /// The flow.
    #[inline]
    pub fn key(&self) -> &FlowKey {
        &self.key
    }

    /// The state, by the RFC's name.
    #[inline]
    pub fn state(&self) -> State {
        self.state
    }

    /// Why it ended, once it is CLOSED.
    pub fn reason(&self) -> CloseReason {
        self.reason
    }

    /// It ended otherwise than by its FINs while it was ESTABLISHED or in CLOSE-WAIT: a reset, a time-out or an abort, before its
    /// own side was closed (`tcpEstabResets` of RFC 4022).
    pub fn was_cut_off(&self) -> bool {
        self.state == State::Closed && self.reason != CloseReason::Normal && !self.facts.has(Facts::FIN_QUEUED)
    }

    /// How losses are being repaired at the moment.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Payload bytes of a full segment.
    pub fn mss(&self) -> u16 {
        self.snd.mss
    }

    /// The application has closed both ways, and wants to hear nothing more of the peer.
    #[inline]
    pub fn is_receive_shut(&self) -> bool {
        self.facts.has(Facts::RECEIVE_SHUT)
    }

    /// Whether the peer has shown within the last second that our packets reach it, as what it acknowledges does
    /// (RFC 4861 section 7.3.1). It was heard, too: progress is counted anew where sending begins after silence.
    #[inline]
    pub fn is_answered(&self, now: Instant) -> bool {
        self.idle_ms(now) < 1_000 && now.since_us(self.heard_at) < 1_000_000
    }

    /// Milliseconds since the peer last acknowledged something new, or sending began after a silence.
    #[inline]
    pub(in crate::tcp) fn idle_ms(&self, now: Instant) -> u32 {
        (now.as_ms() as u32).wrapping_sub(self.progress_ms)
    }

    /// Bytes that `send` would take now.
    pub fn room(&self) -> u32 {
        if self.state.can_send() { self.send_limit().saturating_sub(self.snd.queued) } else { 0 }
    }

    /// Sequence numbers sent and not acknowledged.
    #[inline]
    pub fn flight(&self) -> u32 {
        self.snd.nxt.offset_from(self.snd.una) as u32
    }

    /// Whether bytes wait that no rule holds back: the device was full, or the poll in which they were written goes on.
    /// What is written now leaves together with them (Linux calls that auto-corking).
    #[inline]
    pub fn is_gathering(&self) -> bool {
        // Where requests and responses take turns nothing is queued when the next is written.
        self.snd.queued > 0 && self.snd.queued > self.flight() && !self.facts.has(Facts::HELD | Facts::FIN_SENT)
    }

    /// Bytes queued and not acknowledged.
    pub fn queued(&self) -> u32 {
        self.snd.queued
    }

    /// SND.UNA, SND.NXT and RCV.NXT.
    pub fn sequence(&self) -> (SeqNum, SeqNum, SeqNum) {
        (self.snd.una, self.snd.nxt, self.rcv.nxt)
    }

    /// The congestion window in bytes.
    pub fn cwnd(&self) -> u32 {
        self.congestion.window()
    }

    /// The slow-start threshold in bytes; `u32::MAX` until a loss, a mark or a queue has ended slow start.
    pub fn slow_start_threshold(&self) -> u32 {
        self.congestion.slow_start_threshold()
    }

    /// Smoothed round-trip time, once there is a sample.
    pub fn srtt_us(&self) -> Option<u32> {
        self.rtt.srtt_us()
    }

    /// The retransmission timeout now in force.
    pub fn rto_us(&self) -> u32 {
        self.rtt.rto_us()
    }

    /// Segments retransmitted so far.
    pub fn retransmitted(&self) -> u32 {
        self.retransmitted
    }

    /// Size that autotuning has given to the receive buffer.
    pub fn receive_buffer(&self) -> u32 {
        self.rcv.buf_max
    }

    /// Bytes until the end of the peer's urgent data, if there is any ahead (RFC 6093: it is delivered in line).
    pub fn urgent_ahead(&self) -> Option<u32> {
        // The peer's FIN has a number, and is no byte.
        let fin = u32::from(!self.state.can_receive());
        let read = self.rcv.nxt - (self.rcv.buf.len() + fin);
        (self.facts.has(Facts::URGENT_IN) && self.rcv.up.after(read)).then(|| self.rcv.up.offset_from(read) as u32)
    }

    /// Bytes of buffer memory that it holds.
    pub fn memory(&self) -> usize {
        self.snd.buf.lent() + self.rcv.buf.lent()
    }

    /// The peer has closed and everything before its FIN has been read.
    pub fn is_at_end(&self) -> bool {
        self.rcv.buf.is_empty() && !self.state.can_receive()
    }

    /// Milliseconds on the clock of our timestamps.
    #[inline]
    pub(in crate::tcp) fn ts_now(&self, now: Instant) -> u32 {
        (now.as_ms() as u32).wrapping_add(self.ts_offset)
    }
}
