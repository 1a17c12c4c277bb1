//! Owns a passive open before it is a connection: a SYN becomes a half-open entry of at most 64 bytes, or a cookie.

use super::connection::Agreed;
use super::handshake::echoed_us;
use super::rtt::syn_timeout_us;
use super::{Config, Cx, cookie, isn};
use crate::discard::Discard;
use crate::time::Instant;
use core::hint::cold_path;
use laneway_wire::flow::FlowKey;
use laneway_wire::tcp::{Flags, Header, Options, Segment, SeqNum, Timestamps, UnscaledWindow, WindowScale};

/// Secrets of one boot; arguments, as everything random is.
#[derive(Clone, Copy, Debug)]
pub struct Secrets {
    /// For initial sequence numbers (RFC 6528).
    pub isn: [u64; 2],
    /// For timestamp offsets.
    pub timestamp: [u64; 2],
    /// For SYN cookies.
    pub cookie: [u64; 2],
}

/// A SYN that we have answered, waiting for the final ACK of the handshake.
#[derive(Clone, Copy)]
pub struct HalfOpen {
    key: FlowKey,
    iss: SeqNum,
    irs: SeqNum,
    ts_recent: u32,
    ts_offset: u32,
    /// When the SYN-ACK is sent again, in milliseconds on the clock of `Instant`.
    retry_at_ms: u32,
    /// The listener it came through.
    pub listener: u16,
    peer_mss: u16,
    scales: Scales,
    retries: u8,
    flags: u8,
}

/// The window scales of both ends in one byte: neither is more than 14.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Scales(u8);

impl Scales {
    /// The peer offers none, so neither end has one. For both: 15 would be the peer's.
    const NONE: Scales = Scales(0x0f);

    /// The peer has offered its own, and we announce ours.
    #[inline]
    fn new(peers: WindowScale, ours: WindowScale) -> Self {
        Scales(peers.get() | ours.get() << 4)
    }
    #[inline]
    fn peers(self) -> WindowScale {
        WindowScale::new(if self == Self::NONE { 0 } else { self.0 & 0x0f })
    }
    #[inline]
    fn ours(self) -> WindowScale {
        WindowScale::new(self.0 >> 4)
    }
}

const TIMESTAMPS: u8 = 1;
const SACK: u8 = 2;
/// A challenge has been sent since the last SYN-ACK.
const CHALLENGED: u8 = 4;
/// The SYN-ACK was sent again because the SYN was: which of the two is answered nobody knows.
const REPEATED: u8 = 8;
/// The peer heeds marks, and so do we.
const ECN: u8 = 16;

const _: () = assert!(core::mem::size_of::<HalfOpen>() <= 64);

/// What a segment does to a half-open entry.
#[must_use]
pub enum Outcome {
    /// The three-way handshake is complete: the entry becomes a connection, which is shown the same segment.
    Established(Agreed),
    /// The peer repeats its SYN: send the SYN-ACK again.
    Repeat,
    /// A challenge: an ACK of what we expect.
    Challenge,
    /// The peer has taken its SYN back: drop the entry.
    Reset,
    /// An ACK of something we never sent is answered by RST.
    Unacceptable,
    /// Nothing.
    Ignore(Discard),
}

/// The options that we offer in a SYN; timestamps are added by the caller, who knows the clock.
#[inline]
pub(super) fn offer(config: &Config, mss: u16, scale: WindowScale) -> Options {
    Options {
        mss: Some(mss),
        window_scale: config.tcp_window_scaling.then_some(scale),
        sack_permitted: config.tcp_sack,
        ..Options::default()
    }
}

impl HalfOpen {
    /// A SYN for a listener. `least` is the end of the sequence space of an earlier connection on the same flow that may
    /// still have segments in the network: the new one starts beyond it (RFC 6191). `ts_offset` is that of
    /// [`isn::ts_offset`] for the flow's two addresses.
    #[inline(always)]
    pub fn on_syn(
        key: &FlowKey,
        seg: &Segment<'_>,
        listener: u16,
        least: Option<SeqNum>,
        secrets: &Secrets,
        ts_offset: u32,
        cx: &Cx<'_>,
    ) -> Self {
        let iss = isn::isn_beyond(&secrets.isn, key, cx.now.as_us(), least);
        let mut flags = 0;
        if seg.options.timestamps.is_some() && cx.config.tcp_timestamps {
            flags |= TIMESTAMPS;
        }
        if seg.options.sack_permitted && cx.config.tcp_sack {
            flags |= SACK;
        }
        if asks_for_ecn(seg.flags) && cx.config.tcp_ecn > 0 {
            flags |= ECN;
        }
        let scales = match seg.options.window_scale {
            Some(scale) if cx.config.tcp_window_scaling => {
                Scales::new(scale, WindowScale::new(cx.config.receive_scale()))
            }
            _ => Scales::NONE,
        };
        HalfOpen {
            key: *key,
            iss,
            irs: seg.seq,
            ts_recent: seg.options.timestamps.map_or(0, |ts| ts.val),
            ts_offset,
            retry_at_ms: cx.now.after_us(1_000_000).as_ms() as u32,
            listener,
            peer_mss: seg.options.mss.unwrap_or(if key.is_v4() { 536 } else { 1220 }),
            scales,
            retries: 0,
            flags,
        }
    }

    /// The flow.
    #[inline]
    pub fn key(&self) -> &FlowKey {
        &self.key
    }

    /// Our initial sequence number.
    pub fn iss(&self) -> SeqNum {
        self.iss
    }

    /// When the SYN-ACK is due again.
    #[inline]
    pub fn retry_at_ms(&self) -> u32 {
        self.retry_at_ms
    }

    /// How often the SYN-ACK has been sent again.
    pub fn retries(&self) -> u8 {
        self.retries
    }

    /// The SYN-ACK was not answered in time. True: send it again; false: give up.
    pub fn on_timeout(&mut self, cx: &Cx<'_>) -> bool {
        if self.retries >= cx.config.tcp_synack_retries {
            return false;
        }
        self.retries += 1;
        self.flags &= !CHALLENGED;
        self.retry_at_ms = cx.now.after_us(syn_timeout_us(self.retries)).as_ms() as u32;
        true
    }

    /// A SYN-ACK was sent before.
    #[inline]
    pub fn is_repeated(&self) -> bool {
        self.retries > 0 || self.flags & REPEATED != 0
    }

    /// The SYN-ACK.
    #[inline]
    pub fn syn_ack(&self, mss: u16, cx: &Cx<'_>) -> Header {
        let mut options = Options {
            mss: Some(mss),
            window_scale: (self.scales != Scales::NONE).then_some(self.scales.ours()),
            sack_permitted: self.flags & SACK != 0,
            ..Options::default()
        };
        if self.flags & TIMESTAMPS != 0 {
            let val = (cx.now.as_ms() as u32).wrapping_add(self.ts_offset);
            options.timestamps = Some(Timestamps { val, echo: self.ts_recent });
        }
        let mut header = syn_ack(&self.key, self.iss, self.irs, options, cx);
        if self.flags & ECN != 0 {
            header.flags = header.flags | Flags::ECE;
        }
        header
    }

    /// The ACK that answers something unacceptable; one at the most between two SYN-ACKs, so that nobody can make us
    /// send many.
    pub fn challenge(&mut self, cx: &Cx<'_>) -> Option<Header> {
        if self.flags & CHALLENGED != 0 {
            return None;
        }
        self.flags |= CHALLENGED;
        let mut options = Options::default();
        if self.flags & TIMESTAMPS != 0 {
            //= https://www.rfc-editor.org/rfc/rfc7323#section-3.2
            //# Once TSopt has been successfully negotiated, that is both <SYN> and <SYN,ACK> contain TSopt, the TSopt
            //# MUST be sent in every non-<RST> segment for the duration of the connection
            let val = (cx.now.as_ms() as u32).wrapping_add(self.ts_offset);
            options.timestamps = Some(Timestamps { val, echo: self.ts_recent });
        }
        // The window that the SYN-ACK has shown, in the units that hold without SYN; rounded so that it does not shrink.
        let window = u32::from(cx.config.initial_window()).div_ceil(1 << self.scales.ours().get()) as u16;
        Some(Header {
            src_port: self.key.local_port,
            dst_port: self.key.remote_port,
            seq: self.iss + 1,
            ack: self.irs + 1,
            flags: Flags::ACK,
            window: UnscaledWindow::new(window),
            urgent: 0,
            options,
        })
    }

    /// Its SYN-ACK goes out again, for an [`Outcome::Repeat`]: no round trip is measured by it (RFC 6298 section 3). It does not count as a loss,
    /// for a network may have repeated the SYN.
    ///
    /// Who has asked for ECN, and does not any more when it repeats its SYN, has doubts whether the network lets that through (RFC 3168 section 6.1.1.1).
    ///
    /// Its timestamp is the one that is echoed from now on: who takes a round trip from that would else take his own time-out for one.
    //= https://www.rfc-editor.org/rfc/rfc7323#section-4.3
    //# SEG.TSval >= TS.Recent and SEG.SEQ <= Last.ACK.sent
    pub fn note_repeat(&mut self, syn: Flags, timestamps: Option<Timestamps>) {
        self.flags |= REPEATED;
        if !asks_for_ecn(syn) {
            self.flags &= !ECN;
        }
        if let Some(ts) = timestamps
            && self.flags & TIMESTAMPS != 0
            && ts.val.wrapping_sub(self.ts_recent) as i32 > 0
        {
            self.ts_recent = ts.val;
        }
    }

    /// Whether the SYN was sent after this segment, as the peer's timestamps have it (RFC 7323 section 5): then what the segment says is of a former use of
    /// the flow.
    #[inline]
    pub fn is_after(&self, seg: &Segment<'_>) -> bool {
        self.flags & TIMESTAMPS != 0
            && seg.options.timestamps.is_some_and(|ts| (ts.val.wrapping_sub(self.ts_recent) as i32) < 0)
    }

    /// A segment for this flow arrived in SYN-RECEIVED (RFC 9293 section 3.10.7.4).
    #[inline(always)]
    pub fn on_segment(&self, seg: &Segment<'_>, cx: &Cx<'_>) -> Outcome {
        let window = u32::from(cx.config.initial_window());
        let expected = self.irs + 1;
        let in_window = seg.seq.at_or_after(expected) && seg.seq.before(expected + window);
        if seg.flags.rst() {
            cold_path();
            return match (seg.seq == expected, in_window) {
                (true, _) => Outcome::Reset,
                (false, true) => Outcome::Challenge,
                _ => Outcome::Ignore(Discard::TcpOutOfWindow),
            };
        }
        if seg.flags.syn() {
            cold_path();
            return if seg.seq == self.irs && !seg.flags.ack() { Outcome::Repeat } else { Outcome::Challenge };
        }
        if self.flags & TIMESTAMPS != 0 {
            match seg.options.timestamps {
                Some(_) if !self.is_after(seg) => {}
                Some(_) => {
                    cold_path();
                    return Outcome::Challenge; // RFC 7323 section 5.3, R1
                }
                None => {
                    cold_path();
                    return Outcome::Ignore(Discard::TcpPaws); // RFC 7323 section 3.2
                }
            }
        }
        // So stands the ACK of a peer that has filled the window, of which the text was lost.
        let at_edge = seg.seq == expected + window;
        if !in_window && !at_edge {
            cold_path();
            //= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.4
            //# If an incoming segment is not acceptable, an acknowledgment should be sent in reply
            return Outcome::Challenge;
        }
        if !seg.flags.ack() {
            cold_path();
            return Outcome::Ignore(Discard::TcpNoAck);
        }
        if seg.ack != self.iss + 1 {
            cold_path();
            return Outcome::Unacceptable;
        }
        let snd_scale = self.scales.peers();
        // The SYN-ACK went out so long before it was due again.
        let sent_ms = self.retry_at_ms.wrapping_sub((syn_timeout_us(self.retries) / 1_000) as u32);
        let rtt_ms = (cx.now.as_ms() as u32).wrapping_sub(sent_ms).min(60_000);
        let mut rtt_us = Some((rtt_ms * 1_000).max(100));
        if self.retries > 0 || self.flags & REPEATED != 0 {
            cold_path();
            let echo = seg.options.timestamps.map(|ts| ts.echo).filter(|_| self.flags & TIMESTAMPS != 0);
            rtt_us = echoed_us(echo, self.ts_offset, cx.now);
        }
        Outcome::Established(Agreed {
            key: self.key,
            iss: self.iss,
            irs: self.irs,
            peer_mss: self.peer_mss,
            snd_scale,
            rcv_scale: self.scales.ours(),
            sack: self.flags & SACK != 0,
            timestamps: self.flags & TIMESTAMPS != 0,
            ts_recent: self.ts_recent, // that of this segment is taken when the connection is shown it
            ts_offset: self.ts_offset,
            snd_wnd: seg.window << snd_scale,
            rcv_adv: expected + window,
            rtt_us,
            syn_lost: self.retries > 0,
            ecn: self.flags & ECN != 0,
        })
    }
}

/// Whether a SYN says that whoever sends it heeds marks.
//= https://www.rfc-editor.org/rfc/rfc3168#section-6.1.1
//# We call a SYN packet with the ECE and CWR flags set an "ECN-setup SYN packet"
#[inline(always)]
fn asks_for_ecn(syn: Flags) -> bool {
    syn.contains(Flags::ECE | Flags::CWR)
}

#[inline(always)]
fn syn_ack(key: &FlowKey, iss: SeqNum, irs: SeqNum, options: Options, cx: &Cx<'_>) -> Header {
    Header {
        src_port: key.local_port,
        dst_port: key.remote_port,
        seq: iss,
        ack: irs + 1,
        flags: Flags::SYN | Flags::ACK,
        window: UnscaledWindow::new(cx.config.initial_window()),
        urgent: 0,
        options,
    }
}

/// The SYN-ACK of a SYN that we keep no state for: everything needed later is in its sequence number and timestamp.
#[inline(always)]
pub fn cookie_syn_ack(key: &FlowKey, seg: &Segment<'_>, mss: u16, secrets: &Secrets, cx: &Cx<'_>) -> Header {
    let peer_mss = seg.options.mss.unwrap_or(if key.is_v4() { 536 } else { 1220 });
    let iss = cookie::encode(&secrets.cookie, key, seg.seq, minute(cx.now), peer_mss);
    let mut options = offer(cx.config, mss, WindowScale::new(cx.config.receive_scale()));
    let mut flags = Flags::SYN | Flags::ACK;
    match seg.options.timestamps {
        Some(ts) if cx.config.tcp_timestamps => {
            // Scale, SACK and ECN survive in the low bits of our timestamp, which the final ACK echoes.
            let kept = cookie::TimestampOptions {
                window_scale: seg.options.window_scale.filter(|_| cx.config.tcp_window_scaling),
                sack_permitted: seg.options.sack_permitted && cx.config.tcp_sack,
                ecn: asks_for_ecn(seg.flags) && cx.config.tcp_ecn > 0,
            };
            if kept.ecn {
                flags = flags | Flags::ECE;
            }
            options.sack_permitted = kept.sack_permitted;
            options.window_scale = options.window_scale.filter(|_| kept.window_scale.is_some());
            let offset = isn::ts_offset(&secrets.timestamp, &key.local, &key.remote);
            let val = cookie::encode_ts(cx.now.as_ms() as u32, kept).wrapping_add(offset);
            options.timestamps = Some(Timestamps { val, echo: ts.val });
        }
        _ => {
            options.sack_permitted = false;
            options.window_scale = None;
        }
    }
    Header { flags, ..syn_ack(key, iss, seg.seq, options, cx) }
}

/// Whoever gives a cookie in our place has the time of that moment, and who redeems it that of the beginning of his poll, which may have been so long ago:
/// a cookie of the minute that has begun meanwhile is a good one.
const COOKIE_AHEAD_US: u64 = 100_000;

/// The final ACK of a handshake that we kept no state for: valid only if it carries a cookie of ours.
#[inline(always)]
pub fn on_cookie_ack(key: &FlowKey, seg: &Segment<'_>, secrets: &Secrets, cx: &Cx<'_>) -> Option<Agreed> {
    if seg.flags.intersects(Flags::SYN | Flags::RST) || !seg.flags.ack() {
        return None;
    }
    let iss = seg.ack - 1;
    let irs = seg.seq - 1;
    let peer_mss = cookie::decode(&secrets.cookie, key, irs, iss, minute(cx.now.after_us(COOKIE_AHEAD_US)))?;
    let ts_offset = isn::ts_offset(&secrets.timestamp, &key.local, &key.remote);
    let kept = seg
        .options
        .timestamps
        .filter(|_| cx.config.tcp_timestamps)
        .map(|ts| (ts, cookie::decode_ts(ts.echo.wrapping_sub(ts_offset))));
    let scale = kept.and_then(|(_, kept)| kept.window_scale);
    let none = WindowScale::new(0);
    let snd_scale = scale.unwrap_or(none);
    Some(Agreed {
        key: *key,
        iss,
        irs,
        peer_mss,
        snd_scale,
        rcv_scale: if scale.is_some() { WindowScale::new(cx.config.receive_scale()) } else { none },
        sack: kept.is_some_and(|(_, kept)| kept.sack_permitted),
        timestamps: kept.is_some(),
        ts_recent: kept.map_or(0, |(ts, _)| ts.val),
        ts_offset,
        snd_wnd: seg.window << snd_scale,
        rcv_adv: irs + 1 + u32::from(cx.config.initial_window()),
        rtt_us: None,
        syn_lost: false,
        ecn: cx.config.tcp_ecn > 0 && kept.is_some_and(|(_, kept)| kept.ecn),
    })
}

/// Whether an ACK with these numbers may be one that [`on_cookie_ack`] takes: of those that are not, one in 128.
#[inline]
pub fn may_bear_cookie(key: &FlowKey, seq: SeqNum, ack: SeqNum, secrets: &Secrets, now: Instant) -> bool {
    cookie::is_timely(&secrets.cookie, key, seq - 1, ack - 1, minute(now.after_us(COOKIE_AHEAD_US)))
}

#[inline]
fn minute(now: Instant) -> u32 {
    (now.as_us() / 60_000_000) as u32
}

/// Milliseconds, wrapped to 32 bits, compared on the circle: is `at` due at `now`?
#[inline]
pub fn is_due(at_ms: u32, now: Instant) -> bool {
    (now.as_ms() as u32).wrapping_sub(at_ms) as i32 >= 0
}

#[cfg(test)]
mod tests;
