//! Owns the fourth shape: what is kept of a connection for 2·MSL after it has closed, at most 64 bytes.
//!
//! Two record types, because most are IPv4 and an IPv6 address pair alone is 32 bytes. Rules: RFC 9293 section 3.10.7.4
//! (re-acknowledge), RFC 6191 (when a SYN may take the flow over), RFC 1337 (an RST may not).

use super::connection::{Connection, Facts};
use super::input::least_between_answers_ms;
use super::{Config, State, cookie};
use crate::discard::Discard;
use crate::time::Instant;
use laneway_wire::flow::{Address, FlowKey};
use laneway_wire::tcp::{Flags, Header, Options, Segment, SeqNum, Timestamps, UnscaledWindow};

/// What both kinds of record remember beside the flow.
#[derive(Clone, Copy, Debug)]
struct Memory {
    snd_nxt: SeqNum,
    rcv_nxt: SeqNum,
    ts_recent: u32,
    /// Milliseconds on the clock of `Instant`, wrapped: when the record was made or last restarted.
    since_ms: u32,
    window: UnscaledWindow,
    /// When something that may itself be an answer was answered last, in milliseconds, wrapped: once in 65 s it may seem to have been just now.
    answered_ms: u16,
    timestamps: bool,
    /// The flow was taken over, or the record evicted: it only waits to be reaped.
    dead: bool,
    /// The wait was started anew: the record's place in the queue is too early.
    restarted: bool,
    /// The keeper's own word.
    tag: u32,
}

impl Memory {
    /// Whether so much time has passed since this was last true.
    #[cold]
    fn answers(&mut self, least_ms: u32, now: Instant) -> bool {
        let ms = now.as_ms() as u16;
        let answers = u32::from(ms.wrapping_sub(self.answered_ms)) >= least_ms.min(u32::from(u16::MAX) / 2);
        if answers {
            self.answered_ms = ms;
        }
        answers
    }
}

/// A record of an IPv4 flow.
#[derive(Clone, Copy, Debug)]
pub struct TimeWaitV4 {
    local: [u8; 4],
    remote: [u8; 4],
    local_port: u16,
    remote_port: u16,
    memory: Parts,
}

/// A record of an IPv6 flow.
#[derive(Clone, Copy, Debug)]
pub struct TimeWaitV6 {
    key: FlowKey,
    memory: Parts,
}

const _: () = assert!(core::mem::size_of::<TimeWaitV4>() <= 40);
const _: () = assert!(core::mem::size_of::<TimeWaitV6>() <= 64);

/// What a segment does to a flow in TIME-WAIT.
#[must_use]
pub enum Outcome {
    /// Send this ACK; the wait starts again if `restart`.
    Answer {
        /// The ACK.
        header: Header,
        /// 2·MSL starts anew: the peer repeated its FIN.
        restart: bool,
    },
    /// A new connection may take the flow; its ISS must lie beyond this (RFC 6191).
    Reuse(SeqNum),
    /// Nothing.
    Ignore(Discard),
}

/// The behaviour that both records share.
pub trait TimeWait: Copy {
    /// Makes a record.
    fn from_parts(key: &FlowKey, parts: Parts) -> Self;
    /// The flow.
    fn key(&self) -> FlowKey;
    /// Whether this is its flow.
    fn is_of(&self, key: &FlowKey) -> bool;
    #[doc(hidden)]
    fn parts(&self) -> &Parts;
    #[doc(hidden)]
    fn parts_mut(&mut self) -> &mut Parts;

    /// A word that whoever keeps the record has given it.
    #[inline]
    fn tag(&self) -> u32 {
        self.parts().0.tag
    }

    /// Both ends send timestamps: in time, [`reusable`](Self::reusable) will say yes.
    #[inline]
    fn has_timestamps(&self) -> bool {
        self.parts().has_timestamps()
    }

    /// The wait is over. The age counts milliseconds that have begun, of which the first may have been as good as past: so it takes one more.
    #[inline]
    fn is_expired(&self, now: Instant, msl_us: u64) -> bool {
        u64::from(self.age_ms(now)) > 2 * msl_us / 1_000
    }

    /// Milliseconds since the record was made or restarted.
    #[inline]
    fn age_ms(&self, now: Instant) -> u32 {
        (now.as_ms() as u32).wrapping_sub(self.parts().0.since_ms)
    }

    /// Milliseconds until the wait is over; 0 once it is.
    fn left_ms(&self, now: Instant, msl_us: u64) -> u32 {
        (2 * msl_us / 1_000).saturating_sub(u64::from(self.age_ms(now))) as u32
    }

    /// The flow belongs to another connection now.
    #[inline]
    fn is_dead(&self) -> bool {
        self.parts().0.dead
    }

    /// Gives the flow up; the record is reaped in its turn.
    #[inline]
    fn kill(&mut self) {
        self.parts_mut().0.dead = true;
    }

    /// 2·MSL starts anew.
    fn restart(&mut self, now: Instant) {
        let memory = &mut self.parts_mut().0;
        memory.since_ms = now.as_ms() as u32;
        memory.restarted = true;
    }

    /// True once after a restart: the record belongs at the end of the queue.
    #[inline]
    fn take_restarted(&mut self) -> bool {
        core::mem::take(&mut self.parts_mut().0.restarted)
    }

    /// A connection of our own may take the flow over: the peer will see a newer timestamp (RFC 6191). `delay_ms` is the
    /// least age of the record. The answer is where its ISS must lie beyond.
    fn reusable(&self, now: Instant, delay_ms: u32) -> Option<SeqNum> {
        let memory = &self.parts().0;
        (memory.timestamps && self.age_ms(now) >= delay_ms.max(1)).then_some(memory.snd_nxt)
    }

    /// Whether a connection takes the flow over that began with a cookie, whoever sent that not knowing of this record: `seg` is the ACK that bears it.
    /// By RFC 6191, and as nobody asked before the SYN was answered, for both directions: either both ends' timestamps are newer than the record, or both
    /// ends' sequence numbers begin beyond it.
    ///
    /// The timestamp of a SYN-ACK with a cookie is up to [`cookie::TS_BACK_MS`] too old. So the peer is to be sent one that is newer than the record soon.
    fn yields_to_cookie(&self, seg: &Segment<'_>, ts_offset: u32) -> bool {
        let memory = &self.parts().0;
        let is_later = (seg.seq - 1).after(memory.rcv_nxt);
        match seg.options.timestamps {
            Some(ts) if memory.timestamps => {
                let theirs = ts.val.wrapping_sub(memory.ts_recent) as i32;
                let ours =
                    ts.echo.wrapping_sub(ts_offset).wrapping_add(cookie::TS_BACK_MS).wrapping_sub(memory.since_ms);
                (theirs > 0 || (theirs == 0 && is_later)) && ours as i32 >= 0
            }
            _ => is_later && (seg.ack - 1).after(memory.snd_nxt),
        }
    }

    /// A segment for this flow arrived.
    #[inline]
    fn on_segment(
        &mut self,
        seg: &Segment<'_>,
        ts_offset: impl FnOnce() -> u32,
        config: &Config,
        now: Instant,
    ) -> Outcome {
        let memory = &mut self.parts_mut().0;
        if seg.flags.rst() {
            // RFC 1337, fix F1: an RST must not end the wait.
            return Outcome::Ignore(Discard::TcpTimeWaitRst);
        }
        if seg.flags.syn() && !seg.flags.ack() {
            // RFC 6191 section 2: a newer timestamp, or one as old (or none) and a later sequence number.
            let later = seg.seq.after(memory.rcv_nxt);
            let age = match seg.options.timestamps {
                Some(ts) if memory.timestamps => ts.val.wrapping_sub(memory.ts_recent) as i32,
                // One where the old connection had none is newer than all: what is left of that has none, and is refused (RFC 7323 section 3.2).
                Some(_) if config.tcp_timestamps => 1,
                _ => 0,
            };
            if age > 0 || (age == 0 && later) {
                return Outcome::Reuse(memory.snd_nxt);
            }
        }
        if memory.timestamps
            && let Some(ts) = seg.options.timestamps
            && seg.seq_len() == 0
            && (ts.val.wrapping_sub(memory.ts_recent) as i32) < 0
        {
            return Outcome::Ignore(Discard::TcpPaws);
        }
        // Anything that occupies sequence space is acknowledged; a bare ACK at the right place is the normal end.
        if seg.seq_len() == 0 && seg.seq == memory.rcv_nxt && seg.ack.at_or_before(memory.snd_nxt) {
            return Outcome::Ignore(Discard::TcpTimeWait);
        }
        // Two ends of which each finds wrong what the other says would else answer each other until the wait is over. What carries text or a FIN
        // is no answer to an answer.
        if (seg.seq_len() == 0 || seg.flags.syn()) && !memory.answers(least_between_answers_ms(seg, config), now) {
            return Outcome::Ignore(Discard::TcpTimeWait);
        }
        let mut options = Options::default();
        if memory.timestamps {
            let val = (now.as_ms() as u32).wrapping_add(ts_offset());
            options.timestamps = Some(Timestamps { val, echo: memory.ts_recent });
        }
        let header = Header {
            src_port: seg.dst_port,
            dst_port: seg.src_port,
            seq: memory.snd_nxt,
            ack: memory.rcv_nxt,
            flags: Flags::ACK,
            window: memory.window,
            urgent: 0,
            options,
        };
        let restart = seg.flags.fin() && seg.seq + seg.seq_len() == memory.rcv_nxt;
        Outcome::Answer { header, restart }
    }
}

/// What is remembered, opaque outside this file.
#[derive(Clone, Copy, Debug)]
pub struct Parts(Memory);

impl Parts {
    /// Both ends send timestamps.
    #[inline]
    pub fn has_timestamps(&self) -> bool {
        self.0.timestamps
    }
}

impl TimeWait for TimeWaitV4 {
    #[inline]
    fn from_parts(key: &FlowKey, parts: Parts) -> Self {
        TimeWaitV4 {
            local: key.local.octets_v4(),
            remote: key.remote.octets_v4(),
            local_port: key.local_port,
            remote_port: key.remote_port,
            memory: parts,
        }
    }
    #[inline]
    fn key(&self) -> FlowKey {
        FlowKey {
            local: Address::from_v4(self.local),
            remote: Address::from_v4(self.remote),
            local_port: self.local_port,
            remote_port: self.remote_port,
        }
    }
    #[inline]
    fn is_of(&self, key: &FlowKey) -> bool {
        key.is_v4()
            && (self.local, self.remote) == (key.local.octets_v4(), key.remote.octets_v4())
            && (self.local_port, self.remote_port) == (key.local_port, key.remote_port)
    }
    #[inline]
    fn parts(&self) -> &Parts {
        &self.memory
    }
    #[inline]
    fn parts_mut(&mut self) -> &mut Parts {
        &mut self.memory
    }
}

impl TimeWait for TimeWaitV6 {
    #[inline]
    fn from_parts(key: &FlowKey, parts: Parts) -> Self {
        TimeWaitV6 { key: *key, memory: parts }
    }
    #[inline]
    fn key(&self) -> FlowKey {
        self.key
    }
    #[inline]
    fn is_of(&self, key: &FlowKey) -> bool {
        self.key == *key
    }
    #[inline]
    fn parts(&self) -> &Parts {
        &self.memory
    }
    #[inline]
    fn parts_mut(&mut self) -> &mut Parts {
        &mut self.memory
    }
}

impl Connection {
    /// What must be remembered of a connection in TIME-WAIT, with a word of whoever keeps the record; the connection itself can go once
    /// its ACK has been sent.
    #[inline]
    pub fn time_wait(&self, now: Instant, tag: u32) -> Parts {
        debug_assert_eq!(self.state, State::TimeWait);
        let window = self.shown();
        Parts(Memory {
            snd_nxt: self.snd.nxt,
            rcv_nxt: self.rcv.nxt,
            ts_recent: self.ts_recent,
            since_ms: now.as_ms() as u32,
            window,
            answered_ms: (now.as_ms() as u16).wrapping_sub(u16::MAX / 2),
            timestamps: self.facts.has(Facts::TIMESTAMPS),
            dead: false,
            restarted: false,
            tag,
        })
    }
}

#[cfg(test)]
mod tests;
