//! Owns the synchronized shape of a connection: its variables by the RFC's names, its verbs, its getters.

use super::assembler::Assembler;
use super::buffer::Ring;
use super::congestion::{Congestion, Controller};
use super::info::Tally;
use super::queue::{Keeper, SendQueue};
use super::rtt::RttEstimator;
use super::sack::Scoreboard;
use super::state::{Event, State};
use super::{BufferPool, Config, Cx};
use crate::time::Instant;
use laneway_wire::flow::FlowKey;
use laneway_wire::tcp::{SeqNum, Window, WindowScale};

/// What two ends settled in a handshake: the only thing that a [`Connection`] can be made of.
#[derive(Clone, Copy, Debug)]
pub struct Agreed {
    /// The flow, seen from here.
    pub key: FlowKey,
    /// Our initial sequence number; acknowledged.
    pub iss: SeqNum,
    /// The peer's initial sequence number.
    pub irs: SeqNum,
    /// The peer's MSS option, or the default of RFC 9293 section 3.7.1.
    pub peer_mss: u16,
    /// Scale of windows that we receive.
    pub snd_scale: WindowScale,
    /// Scale of windows that we send.
    pub rcv_scale: WindowScale,
    /// Both ends permit selective acknowledgements.
    pub sack: bool,
    /// Both ends use timestamps.
    pub timestamps: bool,
    /// The peer's latest timestamp.
    pub ts_recent: u32,
    /// What is added to our clock in timestamps of this flow.
    pub ts_offset: u32,
    /// The peer's window, already scaled.
    pub snd_wnd: Window,
    /// The right edge of the window that we have advertised.
    pub rcv_adv: SeqNum,
    /// Round-trip time of the handshake, unless it was retransmitted (Karn).
    pub rtt_us: Option<u32>,
    /// Our SYN or SYN-ACK had to be sent again.
    pub syn_lost: bool,
}

/// Why a connection came to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloseReason {
    /// Both sides closed.
    Normal,
    /// The peer reset it.
    Reset,
    /// The peer answered our SYN with a reset, or a router said that it cannot be reached.
    Refused,
    /// The peer stayed silent: retransmissions, keepalive or the user timeout ran out.
    TimedOut,
    /// The application aborted it.
    Aborted,
}

/// So many answers in a row are counted, and no more.
pub(super) const EXCHANGES_MAX: u32 = 7;

/// A set of facts about a connection, one bit each; in the bits that are left, how often in a row a word of the peer's was
/// answered before its next came, because a byte more would be a line more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Facts(u32);

/// Numbers the facts: two that shared a bit would be one.
macro_rules! facts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        #[allow(clippy::upper_case_acronyms, non_camel_case_types, reason = "each is the number of the constant of its name")]
        enum Bit {
            $($name,)*
            /// How many there are.
            All,
        }
        impl Facts {
            $($(#[$doc])* pub(super) const $name: u32 = 1 << Bit::$name as u32;)*
        }
    };
}

facts! {
    TIMESTAMPS,
    SACK,
    NODELAY,
    KEEPALIVE,
    /// An ACK must go out at the end of this poll.
    ACK_NOW,
    /// Text has arrived that is not acknowledged yet.
    ACK_PENDING,
    /// The application has closed for writing: a FIN follows the queued data.
    FIN_QUEUED,
    /// The FIN has been sent at least once.
    FIN_SENT,
    /// The place of the peer's FIN is known (`rcv.fin`).
    FIN_SEEN,
    /// The application reads no more.
    RECEIVE_SHUT,
    /// An RST has to go out.
    RESET_DUE,
    /// One segment is being timed (`rtt_seq`, `rtt_at`).
    TIMING,
    /// The next retransmission goes out whatever the congestion window says.
    FORCE,
    /// `rexmt_at` is the persist timer.
    PERSIST,
    /// A window or keepalive probe is due.
    PROBE_DUE,
    /// The application was refused room to send and waits for it.
    WANTS_ROOM,
    /// Urgent data is queued up to `snd.up`.
    URGENT_OUT,
    /// The peer has announced urgent data up to `rcv.up`.
    URGENT_IN,
    /// The send phase was limited by the congestion window when it last stopped.
    CWND_LIMITED,
    /// TCP_CORK: no small segment leaves.
    CORK,
    /// The last `send` announced more (MSG_MORE).
    MORE,
    /// `rexmt_at` is the end of the cork's 200 ms.
    CORK_WAIT,
    /// They are over: what is held leaves.
    CORK_OVER,
    /// Unacknowledged text came with PSH: its sender has no more, or holds it back until it hears of this.
    PUSHED,
    /// The application has its turn elsewhere: its answer comes soon, but not in this poll.
    ANSWERS_LATER,
    /// The peer has pushed, and nothing new was said since.
    ASKED,
    /// That data is held back has been reported.
    HELD,
    /// A repair has begun, and no ACK has said yet whether it was needed. `rtt_at` is when.
    DOUBTED,
    /// That no memory could be had to send has been reported.
    STARVED,
}

impl Facts {
    const EXCHANGE: u32 = 1 << Bit::All as u32;
    const EXCHANGES: u32 = EXCHANGES_MAX * Self::EXCHANGE;

    /// Exchanges in a row.
    #[inline]
    pub(super) fn exchanges(self) -> u32 {
        self.0 / Self::EXCHANGE
    }
    /// One more.
    #[inline]
    pub(super) fn count_exchange(&mut self) {
        if !self.are(Self::EXCHANGES, Self::EXCHANGES) {
            self.0 += Self::EXCHANGE;
        }
    }
    /// Something new was said, and with PSH, if `pushed`: what that ends. (By itself: where each turn answers at once nothing of it holds.)
    #[inline(never)]
    pub(super) fn spoken(mut self, pushed: bool) -> Facts {
        self.clear(Self::PROBE_DUE | Self::HELD); // it asks no less than a probe
        if self.has(Self::ASKED) {
            self.clear(Self::ASKED);
            self.count_exchange();
        }
        if pushed {
            self.clear(Self::CORK_OVER); // the cork is in again for what is written next
        }
        self
    }
    /// None.
    #[inline]
    pub(super) fn forget_exchanges(&mut self) {
        self.clear(Self::EXCHANGES);
    }
    #[inline]
    pub(super) fn has(self, fact: u32) -> bool {
        self.0 & fact != 0
    }
    /// Of these facts exactly `those` hold.
    #[inline]
    pub(super) fn are(self, facts: u32, those: u32) -> bool {
        self.0 & facts == those
    }
    #[inline]
    pub(super) fn set(&mut self, fact: u32) {
        self.0 |= fact;
    }
    /// The fact is set if `condition` holds. A fact known to the compiler is set in the one byte that it lies in, and whoever asks for facts next,
    /// which is for all of them, waits until that has reached the cache. This writes all of them.
    #[inline]
    pub(super) fn set_if(&mut self, condition: bool, fact: u32) {
        self.0 |= u32::from(condition) * fact;
    }
    #[inline]
    pub(super) fn clear(&mut self, fact: u32) {
        self.0 &= !fact;
    }
}

/// Which way lost segments are being repaired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Nothing is known to be lost.
    Open,
    /// Fast recovery: RFC 6675 with SACK, RFC 6582 without.
    Recovery,
    /// After a retransmission timeout: everything up to `recover` is sent again.
    Loss,
}

/// The send sequence space (RFC 9293 section 3.3.1) and its buffer, whose first byte is `una`. What begins with one value stands together, here
/// and in [`Receive`]: so a new connection is written in wide stores.
pub(super) struct Send {
    pub(super) una: SeqNum,
    pub(super) nxt: SeqNum,
    pub(super) wl2: SeqNum,
    /// End of the last sub-MSS segment of new data (Minshall's SND.SML).
    pub(super) sml: SeqNum,
    pub(super) up: SeqNum,
    pub(super) wl1: SeqNum,
    /// Right edge of the last window that was wider, and not taken, because what showed it repeats old text.
    pub(super) shown: SeqNum,
    pub(super) wnd: u32,
    pub(super) max_wnd: u32,
    /// Payload bytes of a full segment: options of every segment are already taken off.
    pub(super) mss: u16,
    /// What the peer announced: more than that it does not take, whatever the path carries.
    pub(super) peer_mss: u16,
    pub(super) scale: WindowScale,
    pub(super) buf: SendQueue,
    /// How much is in it.
    pub(super) queued: u32,
    pub(super) buf_max: u32,
    /// The most bytes that were in flight in one of the last round trips; what is long ago counts less and less.
    pub(super) peak: u32,
}

/// The receive sequence space and its buffer, whose in-order bytes end at `nxt`.
pub(super) struct Receive {
    pub(super) nxt: SeqNum,
    /// RCV.NXT of the last ACK that was sent.
    pub(super) acked: SeqNum,
    pub(super) fin: SeqNum,
    pub(super) up: SeqNum,
    /// Right edge of the advertised window. It never moves left.
    pub(super) adv: SeqNum,
    pub(super) scale: WindowScale,
    /// The peer's segment size, as seen: what "every second full-sized segment" is measured in.
    pub(super) mss: u16,
    /// The size of the last segment that was smaller, though its sender had more.
    pub(super) smaller: u16,
    pub(super) buf: Ring,
    pub(super) buf_max: u32,
    pub(super) ooo: Option<Box<Assembler>>,
    /// Autotuning: bytes read by the application since `tuned_ms`.
    pub(super) read: u32,
    pub(super) tuned_ms: u32,
    /// The round trip, smoothed, as whoever only receives can measure it; 0 before that. In milliseconds.
    pub(super) round_ms: u16,
}

/// One synchronized connection. Not shared: it belongs to one lane, and nothing in it is atomic.
pub struct Connection {
    pub(super) key: FlowKey,
    pub(super) state: State,
    pub(super) phase: Phase,
    pub(super) dup_acks: u16,
    pub(super) retries: u8,
    pub(super) probes: u8,
    pub(super) quick_acks: u8,
    pub(super) reason: CloseReason,
    pub(super) facts: Facts,
    pub(super) snd: Send,
    pub(super) rcv: Receive,
    pub(super) congestion: Congestion,
    pub(super) rtt: RttEstimator,
    pub(super) rtt_seq: SeqNum,
    /// When what is being timed left; nothing is while a repair is doubted, and then it is when that began.
    pub(super) rtt_at: Instant,
    pub(super) recover: SeqNum,
    /// What lies before this has been retransmitted in the current phase (HighRxt).
    pub(super) rexmit_nxt: SeqNum,
    pub(super) board: Option<Box<Scoreboard>>,
    pub(super) ts_recent: u32,
    pub(super) ts_recent_ms: u32,
    pub(super) ts_offset: u32,
    /// When new data last left.
    pub(super) sent_at: Instant,
    pub(super) rexmt_at: Instant,
    pub(super) delack_at: Instant,
    /// Keepalive, or the end of an orphan's FIN-WAIT-2.
    pub(super) keep_at: Instant,
    /// When the oldest unacknowledged byte was first sent, or the last progress after that.
    pub(super) progress_ms: u32,
    pub(super) heard_ms: u32,
    pub(super) challenged_ms: u32,
    pub(super) user_timeout_ms: u32,
    pub(super) retransmitted: u32,
    pub(super) tally: Tally,
    /// The application's own word for this connection.
    pub token: u64,
    /// The listener that it came from; `u32::MAX` for an active open.
    pub listener: u32,
}

/// The send buffer of a connection that has not yet had much under way: bytes.
const SEND_FLOOR: u32 = 512 << 10;

const _: () =
    assert!(core::mem::size_of::<Connection>() <= 448, "an idle connection must fit 512 bytes with its table entries");

impl Connection {
    /// A connection in ESTABLISHED, made of what the handshake settled. `path_mtu` bounds segments sent.
    #[inline(always)]
    pub fn new(agreed: &Agreed, path_mtu: u32, config: &Config, now: Instant) -> Self {
        let mut facts = Facts::default();
        if agreed.timestamps {
            facts.set(Facts::TIMESTAMPS);
        }
        if agreed.sack {
            facts.set(Facts::SACK);
        }
        let mss = effective_mss(agreed.peer_mss, path_mtu, agreed.key.is_v4(), agreed.timestamps);
        let mut rtt = RttEstimator::new();
        if let Some(sample) = agreed.rtt_us {
            rtt.on_sample(sample);
        }
        let algorithm = config.tcp_congestion_control;
        // Either is made of constants. One that was made and then changed would lie in memory, and be waited for when it is moved here.
        let congestion = if agreed.syn_lost {
            rtt.on_syn_lost();
            Congestion::after_lost_syn(algorithm, u32::from(mss))
        } else {
            Congestion::new(algorithm, u32::from(mss))
        };
        let una = agreed.iss + 1;
        let nxt = agreed.irs + 1;
        let ms = now.as_ms() as u32;
        Connection {
            key: agreed.key,
            state: State::Established,
            phase: Phase::Open,
            dup_acks: 0,
            retries: 0,
            probes: 0,
            quick_acks: config.quick_acks,
            reason: CloseReason::Normal,
            facts,
            snd: Send {
                una,
                nxt: una,
                wnd: agreed.snd_wnd.get(),
                wl1: agreed.irs,
                shown: agreed.iss,
                wl2: una,
                max_wnd: agreed.snd_wnd.get(),
                sml: una,
                up: una,
                mss,
                peer_mss: agreed.peer_mss,
                scale: agreed.snd_scale,
                buf: SendQueue::default(),
                queued: 0,
                buf_max: config.tcp_wmem,
                peak: 0,
            },
            rcv: Receive {
                nxt,
                adv: agreed.rcv_adv,
                acked: nxt,
                fin: nxt,
                up: nxt,
                scale: agreed.rcv_scale,
                mss: 536,
                smaller: 0,
                buf: Ring::default(),
                buf_max: config.tcp_rmem.0,
                ooo: None,
                read: 0,
                tuned_ms: ms,
                round_ms: 0,
            },
            congestion,
            rtt,
            rtt_seq: una,
            rtt_at: now,
            recover: agreed.iss,
            rexmit_nxt: una,
            board: None,
            ts_recent: agreed.ts_recent,
            ts_recent_ms: ms,
            ts_offset: agreed.ts_offset,
            sent_at: Instant::ZERO,
            rexmt_at: Instant::NEVER,
            delack_at: Instant::NEVER,
            keep_at: Instant::NEVER,
            progress_ms: ms,
            heard_ms: ms,
            challenged_ms: ms.wrapping_sub(u32::MAX / 2),
            user_timeout_ms: 0,
            retransmitted: 0,
            tally: Tally::default(),
            token: 0,
            listener: u32::MAX,
        }
    }

    /// As [`new`](Self::new), of a passive open that came through this listener.
    #[inline(always)]
    pub fn accepted(agreed: &Agreed, path_mtu: u32, config: &Config, now: Instant, listener: u32) -> Self {
        Connection { listener, ..Connection::new(agreed, path_mtu, config, now) }
    }

    // Verbs ----------------------------------------------------------------------------------------------------

    /// Where the bytes lie that wait to be acknowledged. With their acknowledgement that memory is free, and whoever answers it is lent it
    /// again, as what was freed last: so it can be brought into the cache when an acknowledgement is on its way.
    #[inline]
    pub fn unacknowledged(&self) -> &[u8] {
        self.snd.buf.memory()
    }

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
    fn send_limit(&self) -> u32 {
        let most = self.snd.buf_max;
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
    /// copied.
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
        if !self.is_near() {
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
        self.rcv.buf.consume(n, self.rcv.ooo.is_some(), cx.pool);
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

    /// Ends it at once: RST to the peer, everything queued is dropped.
    pub fn abort(&mut self, cx: &mut Cx<'_>) {
        if self.state.is_synchronized() && self.state != State::TimeWait {
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

    /// `TCP_NODELAY`.
    pub fn set_nodelay(&mut self, on: bool) {
        if on { self.facts.set(Facts::NODELAY) } else { self.facts.clear(Facts::NODELAY) }
    }

    /// `TCP_CORK`: full segments leave, and what is left of the data waits until the cork is out, for 200 ms at the most.
    pub fn set_cork(&mut self, on: bool) {
        if on {
            self.facts.set(Facts::CORK);
        } else {
            self.facts.clear(Facts::CORK | Facts::MORE | Facts::CORK_OVER);
        }
    }

    /// `SO_KEEPALIVE`, with the times of the configuration.
    pub fn set_keepalive(&mut self, on: bool, cx: &Cx<'_>) {
        // What is over asks nobody whether he is there: it may still be here for what is unread, and has no timer that would be heard.
        // And of an orphan in FIN-WAIT-2 that timer is the end, which nobody is left to put off.
        let is_ending = self.state == State::FinWait2 && self.facts.has(Facts::RECEIVE_SHUT);
        if matches!(self.state, State::Closed | State::TimeWait) || is_ending {
            return;
        }
        if on {
            self.facts.set(Facts::KEEPALIVE);
            self.keep_at = cx.now.after_us(cx.config.tcp_keepalive_time_us);
        } else {
            self.facts.clear(Facts::KEEPALIVE);
            self.keep_at = Instant::NEVER;
        }
    }

    /// `TCP_USER_TIMEOUT` in milliseconds; 0 means that only `tcp_retries2` counts (RFC 5482).
    pub fn set_user_timeout_ms(&mut self, ms: u32) {
        self.user_timeout_ms = ms;
    }

    /// The peer's SYN-ACK is to be acknowledged, by itself if nothing else goes out in this poll.
    #[inline]
    pub fn owe_ack(&mut self) {
        self.facts.set(Facts::ACK_NOW);
    }

    // Out ------------------------------------------------------------------------------------------------------

    /// True once, when the application was refused room to send and a third of the buffer is free again; or when its keeper says so.
    #[inline(always)]
    pub fn takes_room(&mut self) -> bool {
        let kept_room = self.snd.buf.takes_room();
        (self.facts.has(Facts::WANTS_ROOM) && self.has_room_again()) || kept_room
    }

    #[inline(never)]
    fn has_room_again(&mut self) -> bool {
        if !self.state.can_send() {
            return false;
        }
        let limit = self.send_limit();
        let room = limit.saturating_sub(self.snd.queued) >= limit / 3;
        if room {
            self.facts.clear(Facts::WANTS_ROOM);
        }
        room
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

    /// Nothing is left to do for it, and nothing to read: it can be removed.
    #[inline]
    pub fn is_finished(&self) -> bool {
        self.state == State::Closed && !self.facts.has(Facts::RESET_DUE) && self.rcv.buf.is_empty()
    }

    /// A record has been made of its TIME-WAIT, which is the flow from now on: it is only here for what the application has not read.
    pub fn end_unread(&mut self, cx: &mut Cx<'_>) {
        if let Some(State::Closed) = self.state.on(Event::Expire) {
            self.die(CloseReason::Normal, cx);
        }
    }

    /// Both sides have said all, and it is only here for what the application has not read: its flow is free.
    #[inline]
    pub fn only_waits_to_be_read(&self) -> bool {
        self.state == State::Closed && self.reason == CloseReason::Normal && !self.rcv.buf.is_empty()
    }

    // Getters --------------------------------------------------------------------------------------------------

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
        let heard_ms = (now.as_ms() as u32).wrapping_sub(self.heard_ms);
        self.idle_ms(now).max(heard_ms) < 1_000
    }

    /// Milliseconds since the peer last acknowledged something new, or sending began after a silence.
    #[inline]
    pub(super) fn idle_ms(&self, now: Instant) -> u32 {
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

    /// The slow-start threshold in bytes; `u32::MAX` before the first loss.
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
        let read = self.rcv.nxt - self.rcv.buf.len();
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

    // Inside ---------------------------------------------------------------------------------------------------

    /// Milliseconds on the clock of our timestamps.
    #[inline]
    pub(super) fn ts_now(&self, now: Instant) -> u32 {
        (now.as_ms() as u32).wrapping_add(self.ts_offset)
    }

    /// Moves to CLOSED and gives all memory back; after a normal end, all but what the application has not read yet.
    pub(super) fn die(&mut self, reason: CloseReason, cx: &mut Cx<'_>) {
        self.state = State::Closed;
        self.reason = reason;
        self.release_but_unread(cx.pool);
        if reason != CloseReason::Normal || self.facts.has(Facts::RECEIVE_SHUT) {
            self.rcv.buf.release(cx.pool);
        }
        self.rexmt_at = Instant::NEVER;
        self.delack_at = Instant::NEVER;
        self.keep_at = Instant::NEVER;
        self.facts.clear(Facts::ACK_NOW | Facts::ACK_PENDING | Facts::PUSHED | Facts::PROBE_DUE);
    }

    /// Gives the buffers back: to be called before the connection goes in any other way than by its own end. Nothing is left that would have
    /// to be dropped, so it may be forgotten as well.
    #[inline(always)]
    pub fn release(&mut self, pool: &mut BufferPool) {
        self.release_but_unread(pool);
        self.rcv.buf.release(pool);
    }

    #[inline(always)]
    fn release_but_unread(&mut self, pool: &mut BufferPool) {
        self.snd.buf.clear(pool);
        self.snd.queued = 0;
        self.rcv.ooo = None;
        self.board = None;
    }

    /// The path carries another MTU than it did: later segments fit it. If it is smaller, what is in flight is sent again in segments that
    /// do (RFC 1191 section 6.5). The caller has validated the ICMP message against `sequence()`.
    pub fn on_path_mtu(&mut self, mtu: u32) {
        let timestamps = self.facts.has(Facts::TIMESTAMPS);
        let mss = effective_mss(self.snd.peer_mss, mtu, self.key.is_v4(), timestamps);
        if mss == self.snd.mss {
            return;
        }
        let is_narrower = mss < self.snd.mss;
        self.snd.mss = mss;
        self.congestion.on_mss(u32::from(mss));
        // A probe of a closed window is sent again by its own timer, and as much of it as fits.
        if is_narrower && self.flight() > 0 && !self.facts.has(Facts::PERSIST) {
            self.phase = Phase::Loss;
            self.recover = self.snd.nxt;
            self.rexmit_nxt = self.snd.una;
            self.facts.set(Facts::FORCE);
            self.facts.clear(Facts::TIMING | Facts::DOUBTED);
        }
    }
}

/// Payload bytes of a full segment towards a peer that announced `peer_mss`, on a path of `mtu`. The MSS option speaks of
/// segments without options (RFC 6691), so the timestamps of every segment come off.
#[inline]
pub fn effective_mss(peer_mss: u16, mtu: u32, v4: bool, timestamps: bool) -> u16 {
    let by_path = mtu.saturating_sub(if v4 { 40 } else { 60 }).min(65_535) as u16;
    let options = if timestamps { 12 } else { 0 };
    // A peer that announces less than anyone needs is trying to make us send many packets.
    peer_mss.max(88).min(by_path).saturating_sub(options).max(64)
}

#[cfg(test)]
pub(super) mod tests;
