//! Owns the synchronized shape of a connection: its variables by the RFC's names, from its making to its end. Its verbs and what it says of
//! itself are in its folder.

use super::assembler::Assembler;
use super::buffer::Ring;
use super::congestion::{Congestion, Controller, HyStart};
use super::info::Tally;
use super::queue::SendQueue;
use super::rtt::RttEstimator;
use super::sack::Scoreboard;
use super::state::State;
use super::told::Told;
use super::{BufferPool, Config, Cx};
use crate::time::Instant;
use laneway_wire::flow::FlowKey;
use laneway_wire::tcp::{SeqNum, Window, WindowScale};

mod facts;
mod getters;
mod verbs;

pub(super) use facts::{EXCHANGES_MAX, Facts};
pub use verbs::SEND_FLOOR;

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
    /// Round-trip time of the handshake. If it was retransmitted, only a timestamp tells it (Karn).
    pub rtt_us: Option<u32>,
    /// Our SYN or SYN-ACK had to be sent again.
    pub syn_lost: bool,
    /// Both ends heed what routers mark (RFC 3168). Few do, so a connection is [told](Connection::use_ecn) when it is made.
    pub ecn: bool,
}

/// Why a connection came to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloseReason {
    /// Both sides closed.
    Normal,
    /// The peer reset it.
    Reset,
    /// The peer answered our SYN with a reset, or with the word that nobody has the port.
    Refused,
    /// Before there was a connection: no way leads to the peer's network, a router says.
    NetworkUnreachable,
    /// The same of the peer itself; or nobody answers who has the address of the next hop.
    HostUnreachable,
    /// A filter said no to our SYN.
    Prohibited,
    /// The peer stayed silent: retransmissions, keepalive or the user timeout ran out.
    TimedOut,
    /// The application had closed it, and its peer took nothing for a while in which memory for others had run out.
    OutOfMemory,
    /// The application aborted it.
    Aborted,
}

/// Which way lost segments are being repaired.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Nothing is known to be lost.
    Open,
    /// Nothing is, but a tail loss probe has gone out, and what became of it is not known (RFC 8985 section 7).
    Tail,
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
    /// ACKs in a row that acknowledged nothing new.
    pub(super) dup_acks: u16,
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
    /// Segments that are still acknowledged at once, each by itself.
    pub(super) quick_acks: u8,
    /// The peer's segment size, as seen: what "every second full-sized segment" is measured in.
    pub(super) mss: u16,
    /// The size of the last segment that was smaller, though its sender had more.
    pub(super) smaller: u16,
    pub(super) buf: Ring,
    pub(super) buf_max: u32,
    /// What lies beyond a gap, and what has come twice; if there is either.
    pub(super) ooo: Option<Box<Assembler>>,
    /// Autotuning: bytes read by the application since `tuned_ms`.
    pub(super) read: u32,
    pub(super) tuned_ms: u32,
    /// The round trip, smoothed, as whoever only receives can measure it; 0 before that. In milliseconds.
    pub(super) round_ms: u16,
}

impl Receive {
    /// Whether text lies in the buffer beyond a gap.
    #[inline]
    pub(super) fn has_gap(&self) -> bool {
        self.ooo.as_ref().is_some_and(|ooo| !ooo.is_empty())
    }
}

/// A value that is always there. An enum that holds a connection tells by it whether it does, and need not look further than the first line for that.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Here {
    Yes,
}

/// One synchronized connection. Not shared: it belongs to one lane, and nothing in it is atomic.
///
/// First stands what is asked for when a segment is on its way, then what each segment asks for, at the end of that the [controller](Congestion). What only losses
/// and long lives need is behind it, on a line by itself that mostly is not fetched.
#[repr(C)]
pub struct Connection {
    /// The application's own word for this connection.
    pub token: u64,
    pub(super) state: State,
    pub(super) phase: Phase,
    pub(super) reason: CloseReason,
    pub(super) retries: u8,
    pub(super) probes: u8,
    here: Here,
    /// The listener that it came from; `u16::MAX` for an active open.
    pub listener: u16,
    pub(super) snd: Send,
    pub(super) key: FlowKey,
    pub(super) facts: Facts,
    pub(super) rcv: Receive,
    pub(super) tally: Tally,
    /// When what is being timed left; nothing is while a repair is doubted, and then it is when that began.
    pub(super) rtt_at: Instant,
    pub(super) board: Option<Box<Scoreboard>>,
    /// When new data last left.
    pub(super) sent_at: Instant,
    /// When the peer last said something acceptable. No count of milliseconds, which would begin anew after seven weeks.
    pub(super) heard_at: Instant,
    pub(super) rexmt_at: Instant,
    pub(super) delack_at: Instant,
    /// Keepalive, or the end of an orphan's FIN-WAIT-2.
    pub(super) keep_at: Instant,
    /// What few are told.
    pub(super) told: Option<Box<Told>>,
    pub(super) rtt: RttEstimator,
    pub(super) rtt_seq: SeqNum,
    pub(super) ts_recent: u32,
    pub(super) ts_offset: u32,
    /// The first that left at `sent_at`.
    pub(super) sent_from: SeqNum,
    /// When the oldest unacknowledged byte was first sent, or the last progress after that.
    pub(super) progress_ms: u32,
    pub(super) congestion: Congestion,
    pub(super) hystart: HyStart,
    pub(super) recover: SeqNum,
    /// What lies before this has been retransmitted in the current phase (HighRxt).
    pub(super) rexmit_nxt: SeqNum,
    /// How much the last repair has sent again that is not reported as come twice, below zero if a timeout began it; 0 if there was none, or it was taken
    /// back.
    pub(super) unreturned: i32,
    pub(super) challenged_ms: u32,
    pub(super) retransmitted: u32,
    /// Bytes sent again.
    pub(super) bytes_retrans: u64,
}

const _: () =
    assert!(core::mem::size_of::<Connection>() <= 448, "an idle connection must fit 512 bytes with its table entries");

/// The controller's window and the clock behind it are the last that most segments ask for; a table's own 16 bytes before that fill six lines.
const _: () = assert!(core::mem::offset_of!(Connection, congestion) + 32 + 16 == 6 * 64);

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
            retries: 0,
            probes: 0,
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
                dup_acks: 0,
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
                quick_acks: config.quick_acks,
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
            hystart: HyStart::new(una),
            rtt,
            rtt_seq: una,
            rtt_at: now,
            recover: agreed.iss,
            rexmit_nxt: una,
            unreturned: 0,
            board: None,
            ts_recent: agreed.ts_recent,
            ts_offset: agreed.ts_offset,
            sent_at: Instant::ZERO,
            sent_from: una,
            heard_at: now,
            rexmt_at: Instant::NEVER,
            delack_at: Instant::NEVER,
            keep_at: Instant::NEVER,
            progress_ms: ms,
            challenged_ms: ms.wrapping_sub(u32::MAX / 2),
            retransmitted: 0,
            bytes_retrans: 0,
            tally: Tally::default(),
            token: 0,
            here: Here::Yes,
            listener: u16::MAX,
            told: None,
        }
    }

    /// As [`new`](Self::new), of a passive open that came through this listener.
    #[inline(always)]
    pub fn accepted(agreed: &Agreed, path_mtu: u32, config: &Config, now: Instant, listener: u16) -> Self {
        Connection { listener, ..Connection::new(agreed, path_mtu, config, now) }
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
        self.told = None; // only now: its last packet may be a reset, and is marked as the others were
    }

    #[inline(always)]
    fn release_but_unread(&mut self, pool: &mut BufferPool) {
        self.snd.buf.clear(pool);
        self.snd.queued = 0;
        self.rcv.ooo = None;
        self.board = None;
    }

    /// The path carries another MTU than it did: later segments fit it. If it is smaller, what is in flight and may not fit is sent again in
    /// segments that do (RFC 1191 section 6.5). The caller has validated the ICMP message against `sequence()`.
    pub fn on_path_mtu(&mut self, mtu: u32) {
        self.forget_suspicion();
        let is_narrower = self.carries(mtu);
        // What fits was not dropped for its size, and most connections of a path may have nothing else under way. (So it is with the probe of a
        // closed window, a byte that has a timer of its own.)
        if is_narrower && self.flight() > u32::from(self.snd.mss) {
            // The window becomes no smaller for this. If all of it comes twice, what an older loss has made smaller stays so.
            if matches!(self.phase, Phase::Open | Phase::Tail) {
                self.unreturned = 0;
                self.congestion.confirm();
            }
            self.phase = Phase::Loss;
            self.recover = self.snd.nxt;
            self.rexmit_nxt = self.snd.una;
            self.facts.set(Facts::FORCE);
            self.facts.clear(Facts::TIMING | Facts::DOUBTED);
        }
    }

    /// Segments are as large from now on as fit this MTU. True: they were larger.
    pub(super) fn carries(&mut self, mtu: u32) -> bool {
        let timestamps = self.facts.has(Facts::TIMESTAMPS);
        let (mss, before) = (effective_mss(self.snd.peer_mss, mtu, self.key.is_v4(), timestamps), self.snd.mss);
        if mss != before {
            self.snd.mss = mss;
            self.congestion.on_mss(u32::from(mss));
        }
        mss < before
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
