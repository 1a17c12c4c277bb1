//! Owns an active open, from the SYN until both ends are [`Agreed`]: SYN-SENT, and SYN-RECEIVED of a simultaneous open.

use super::connection::{Agreed, CloseReason};
use super::listen::offer;
use super::rtt::syn_timeout_us;
use super::state::{Event, State};
use super::{Config, Cx};
use crate::discard::Discard;
use crate::ip::output::Marks;
use crate::time::Instant;
use core::hint::cold_path;
use laneway_wire::flow::FlowKey;
use laneway_wire::tcp::{Flags, Header, Segment, SeqNum, Timestamps, UnscaledWindow, Window, WindowScale};

/// So many times a SYN is sent again whatever routers say: for fifteen seconds.
const SOFT_RETRIES: u8 = 4;

/// An active open under way.
pub struct Handshake {
    key: FlowKey,
    retries: u8,
    due: bool,
    /// The SYN has gone out again behind a reset, before its time.
    again: bool,
    iss: SeqNum,
    ts_offset: u32,
    /// The MSS that we announce.
    mss: u16,
    /// Of its packets, and of those of the connection that it becomes.
    pub marks: Marks,
    /// What the peer's SYN said, in a simultaneous open.
    peer: Option<PeerSyn>,
    /// Why it may be in vain, as somebody on the way has said.
    soft: Option<CloseReason>,
    sent_at: Instant,
    deadline: Instant,
    /// The application's own word, carried over to the connection.
    pub token: u64,
}

const _: () = assert!(core::mem::size_of::<Handshake>() <= 96);

#[derive(Clone, Copy)]
struct PeerSyn {
    irs: SeqNum,
    mss: u16,
    scale: Option<WindowScale>,
    sack: bool,
    timestamp: Option<u32>,
    window: u16,
}

/// What a segment did to the handshake.
#[must_use]
pub enum Outcome {
    /// Nothing changed, or a SYN-ACK is due: ask `decide`.
    Waiting(Option<Discard>),
    /// The two ends agree; the connection owes the peer an ACK.
    Established(Agreed),
    /// It is over.
    Failed(CloseReason),
    /// The segment belongs to something else and is answered by RST (RFC 9293 section 3.10.7.3, first step). Then ask `decide`.
    Unacceptable,
}

impl Handshake {
    /// Starts an active open. `iss` and `ts_offset` come from `isn`; `mss` is what we announce for this path.
    #[inline(always)]
    pub fn connect(key: FlowKey, iss: SeqNum, ts_offset: u32, mss: u16, now: Instant) -> Self {
        Handshake {
            key,
            retries: 0,
            due: true,
            again: false,
            iss,
            ts_offset,
            mss,
            marks: Marks::NONE,
            peer: None,
            soft: None,
            sent_at: now,
            deadline: Instant::NEVER,
            token: 0,
        }
    }

    /// The flow.
    #[inline]
    pub fn key(&self) -> &FlowKey {
        &self.key
    }

    /// SYN-SENT or SYN-RECEIVED.
    pub fn state(&self) -> State {
        if self.peer.is_none() { State::SynSent } else { State::SynReceived }
    }

    /// Our initial sequence number: what an ICMP error must quote to be believed.
    pub fn iss(&self) -> SeqNum {
        self.iss
    }

    /// The header of a segment to send now, if one is due. Call `commit` when it has gone.
    #[inline]
    pub fn decide(&self, cx: &Cx<'_>) -> Option<Header> {
        if !self.due {
            return None;
        }
        let mut options = offer(cx.config, self.mss, WindowScale::new(cx.config.receive_scale()));
        let mut flags = Flags::SYN;
        let mut ack = SeqNum::new(0);
        let mut echo = 0;
        // Who gets no answer may be behind something that drops what it does not know (RFC 3168 section 6.1.1.1).
        if cx.config.tcp_ecn == 1 && !self.is_repeated() && self.peer.is_none() {
            flags = flags | Flags::ECE | Flags::CWR;
        }
        if let Some(peer) = &self.peer {
            flags = flags | Flags::ACK;
            ack = peer.irs + 1;
            options.sack_permitted &= peer.sack;
            options.window_scale = options.window_scale.filter(|_| peer.scale.is_some());
            echo = peer.timestamp.unwrap_or(0);
        }
        if cx.config.tcp_timestamps && self.peer.is_none_or(|p| p.timestamp.is_some()) {
            let val = (cx.now.as_ms() as u32).wrapping_add(self.ts_offset);
            options.timestamps = Some(Timestamps { val, echo });
        }
        let window = UnscaledWindow::new(cx.config.initial_window());
        Some(Header {
            src_port: self.key.local_port,
            dst_port: self.key.remote_port,
            seq: self.iss,
            ack,
            flags,
            window,
            urgent: 0,
            options,
        })
    }

    /// The segment was handed to the device.
    #[inline]
    pub fn commit(&mut self, cx: &Cx<'_>) {
        self.due = false;
        if self.retries == 0 {
            self.sent_at = cx.now;
        }
        // `NEVER`, unless this repeats an answer.
        self.deadline = self.deadline.min(cx.now.after_us(syn_timeout_us(self.retries)));
    }

    /// When `on_timeout` has something to do.
    #[inline]
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// How often the SYN has been sent again.
    pub fn retries(&self) -> u8 {
        self.retries
    }

    /// What was sent last was not the first.
    pub fn is_repeated(&self) -> bool {
        self.retries > 0 || self.again
    }

    /// The SYN is about to be sent again.
    pub fn has_retry_due(&self) -> bool {
        self.due && self.retries > 0
    }

    /// Somebody on the way has said why the SYN did not get through. That may be over by the next SYN (RFC 9293 section 3.9.2.2: a soft error); whoever has
    /// sent several, and is told so again, has waited long enough. True if so (4.3BSD's `tcp_notify`).
    pub fn on_soft_error(&mut self, why: CloseReason) -> bool {
        self.soft.replace(why).is_some() && self.retries >= SOFT_RETRIES
    }

    /// Time has passed. `Some` if the peer has stayed silent for too long.
    pub fn on_timeout(&mut self, cx: &Cx<'_>) -> Option<CloseReason> {
        if self.deadline > cx.now {
            return None;
        }
        if self.retries >= cx.config.tcp_syn_retries {
            return Some(self.soft.unwrap_or(CloseReason::TimedOut));
        }
        self.retries += 1;
        self.due = true;
        self.deadline = Instant::NEVER;
        None
    }

    /// A segment arrived (RFC 9293 section 3.10.7.3 and, in SYN-RECEIVED, 3.10.7.4).
    #[inline(always)]
    pub fn on_segment(&mut self, seg: &Segment<'_>, cx: &Cx<'_>) -> Outcome {
        // first: is the ACK of our SYN?
        let acks_us = seg.flags.ack() && seg.ack == self.iss + 1;
        if seg.flags.ack() && !acks_us {
            cold_path();
            if seg.flags.rst() {
                return Outcome::Waiting(Some(Discard::TcpAckInvalid));
            }
            // The peer believes in a connection that is not ours. The reset ends it, and a SYN behind that gets in (RFC 9293 section 3.5.1, figure 9):
            // at once, and not when its time has come. Once: if that did not help, the next waits.
            if self.peer.is_none() && !self.again {
                self.again = true;
                self.due = true;
            }
            return Outcome::Unacceptable;
        }
        // second: RST. Without an ACK of our SYN anyone could have sent it; in SYN-RECEIVED it must be where we stand
        // (RFC 5961 section 3.2), for one that was sent before the peer's SYN may still be on its way.
        if seg.flags.rst() {
            cold_path();
            return match self.peer.map(|peer| seg.seq.offset_from(peer.irs + 1)) {
                None if acks_us => Outcome::Failed(CloseReason::Refused),
                None => Outcome::Waiting(Some(Discard::TcpAckInvalid)),
                Some(0) => Outcome::Failed(CloseReason::Refused),
                // Elsewhere in the window it is challenged, as another SYN is: by what answered the first.
                Some(ahead) if 0 < ahead && ahead < i32::from(cx.config.initial_window()) => {
                    self.due = true;
                    Outcome::Waiting(Some(Discard::TcpRstChallenged))
                }
                Some(_) => Outcome::Waiting(Some(Discard::TcpOutOfWindow)),
            };
        }
        if let Some(peer) = self.peer
            && !seg.flags.syn()
        {
            cold_path();
            // SYN-RECEIVED of a simultaneous open: the ACK of our SYN-ACK, or text that has overtaken it.
            let ahead = seg.seq.offset_from(peer.irs + 1);
            if !acks_us || !(0..=i32::from(cx.config.initial_window())).contains(&ahead) {
                return Outcome::Waiting(Some(Discard::TcpOutOfWindow));
            }
            return Outcome::Established(self.agree(peer, seg, Event::AckOfSyn, cx));
        }
        // fourth: SYN
        if !seg.flags.syn() {
            cold_path();
            return Outcome::Waiting(Some(Discard::TcpNoAck));
        }
        let peer = PeerSyn {
            irs: seg.seq,
            mss: seg.options.mss.unwrap_or(if self.key.is_v4() { 536 } else { 1220 }),
            scale: seg.options.window_scale,
            sack: seg.options.sack_permitted,
            timestamp: seg.options.timestamps.map(|ts| ts.val),
            window: seg.window.raw(),
        };
        if acks_us {
            return Outcome::Established(self.agree(peer, seg, Event::SynAck, cx));
        }
        cold_path(); // a simultaneous open
        // Another SYN is answered as the first was, which serves as the challenge of RFC 5961 section 4: it may be old, or anyone's. A peer that has
        // really begun anew resets what it did not mean. The timer begins anew with the first alone: who repeats his would have it never end.
        match &mut self.peer {
            None => {
                debug_assert_eq!(self.state().on(Event::Syn), Some(State::SynReceived));
                self.peer = Some(peer);
                self.deadline = Instant::NEVER;
            }
            // The same again: its timestamp is the one that is echoed (RFC 7323 section 4.3).
            Some(first) if first.irs == peer.irs => {
                if let (Some(known), Some(newer)) = (&mut first.timestamp, peer.timestamp)
                    && newer.wrapping_sub(*known) as i32 >= 0
                {
                    *known = newer;
                }
            }
            Some(_) => {}
        }
        self.due = true;
        Outcome::Waiting(None)
    }

    /// The application gives it up. `Some` if the peer has sent his SYN, and may believe that they are connected: what a connection is made of that
    /// resets him (RFC 9293 section 3.10.5).
    pub fn give_up(&self, cx: &Cx<'_>) -> Option<Agreed> {
        Some(self.agreed(self.peer?, cx))
    }

    /// What follows is the connection's: this ends as it is.
    #[inline(always)]
    fn agree(&self, peer: PeerSyn, seg: &Segment<'_>, event: Event, cx: &Cx<'_>) -> Agreed {
        debug_assert_eq!(self.state().on(event), Some(State::Established));
        let mut agreed = self.agreed(peer, cx);
        if !seg.flags.syn() {
            agreed.snd_wnd = seg.window << agreed.snd_scale;
        }
        if seg.flags.contains(Flags::ECE) {
            agreed.ecn = agrees_to_ecn(seg.flags, cx.config);
        }
        if agreed.rtt_us.is_none() {
            cold_path();
            let echo = seg.options.timestamps.map(|ts| ts.echo).filter(|_| agreed.timestamps);
            agreed.rtt_us = echoed_us(echo, self.ts_offset, cx.now);
        }
        agreed
    }

    /// What both ends have said, the window as the peer's SYN has it.
    #[inline(always)]
    fn agreed(&self, peer: PeerSyn, cx: &Cx<'_>) -> Agreed {
        let scaling = peer.scale.is_some() && cx.config.tcp_window_scaling;
        let none = WindowScale::new(0);
        // Of two that opened at once each has sent its SYN again, in its SYN-ACK (RFC 6298 section 3).
        let sent_once = !self.is_repeated() && self.peer.is_none();
        Agreed {
            key: self.key,
            iss: self.iss,
            irs: peer.irs,
            peer_mss: peer.mss.min(self.mss),
            snd_scale: if scaling { peer.scale.unwrap_or(none) } else { none },
            rcv_scale: if scaling { WindowScale::new(cx.config.receive_scale()) } else { none },
            sack: peer.sack && cx.config.tcp_sack,
            timestamps: peer.timestamp.is_some() && cx.config.tcp_timestamps,
            ts_recent: peer.timestamp.unwrap_or(0),
            ts_offset: self.ts_offset,
            // A window in a segment with SYN is never scaled.
            snd_wnd: Window::new(peer.window.into()),
            rcv_adv: peer.irs + 1 + u32::from(cx.config.initial_window()),
            rtt_us: sent_once.then(|| cx.now.since_us(self.sent_at).min(u32::MAX.into()) as u32),
            syn_lost: self.retries > 0,
            ecn: false, // what a SYN-ACK says of it is read where that is
        }
    }
}

/// Whether it is a SYN-ACK that agrees to heed marks, which we have asked for.
//= https://www.rfc-editor.org/rfc/rfc3168#section-6.1.1
//# a SYN-ACK packet with only the ECE flag set but the CWR flag not set
#[cold]
fn agrees_to_ecn(flags: Flags, config: &Config) -> bool {
    config.tcp_ecn == 1 && flags.contains(Flags::SYN | Flags::ECE) && !flags.contains(Flags::CWR)
}

/// How long ago that left whose timestamp is echoed, in microseconds; the clock of timestamps ticks in milliseconds.
/// Where a SYN or SYN-ACK was sent more than once nothing else tells (RFC 6298 section 3). What is older than any of them was not echoed in earnest.
#[cold]
#[inline(never)]
pub(super) fn echoed_us(echo: Option<u32>, ts_offset: u32, now: Instant) -> Option<u32> {
    let age_ms = (now.as_ms() as u32).wrapping_add(ts_offset).wrapping_sub(echo?);
    (age_ms <= (syn_timeout_us(u8::MAX) / 1_000) as u32).then(|| age_ms.max(1) * 1_000)
}
