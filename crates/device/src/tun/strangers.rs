//! Owns the second queue of a lane, in which the SYNs of strangers wait: when it is looked at, and how much of the lane's time what it holds may take.
//!
//! A SYN from an address that has never completed a handshake may be anybody's, and a flood of them comes from addresses of nobody. The
//! [steering program](crate::steering_ebpf) puts them in a queue by themselves. So no frame of a client that is known waits behind a flood or
//! is lost where the flood has filled a queue, and what the lane does not take of it costs the lane nothing: the kernel drops
//! it where it was sent.
//!
//! While nobody else has anything for the lane, strangers have all of its time; else a part of it at the most
//! ([`Share`]). That is more SYNs than there are new clients, and far less than a flood can bring.

use crate::steering_ebpf::Peers;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// A lane whose own queue is never empty looks at that of strangers each time after so many polls.
const POLLS: u32 = 8;
/// Frames of strangers that are taken at once while others have something for the lane, who wait for these.
const FEW: usize = 16;

/// The queue of strangers of one lane.
pub(super) struct Strangers {
    pub(super) file: File,
    peers: Peers,
    told: Told,
    share: Share,
    start: Instant,
    /// Something waits in it, as far as is known.
    is_due: bool,
    /// Polls since it was looked at, and whether frames have come from others meanwhile.
    polls: u32,
    others: bool,
    /// What was lent last: when it was looked for, how many frames of strangers, how many of all.
    lent: Option<(u64, usize, usize)>,
}

impl Strangers {
    /// While others are served, strangers have one part in `parts` of the time.
    pub(super) fn new(file: File, peers: Peers, parts: u32) -> Self {
        Strangers {
            file,
            peers,
            told: Told::default(),
            share: Share::new(parts),
            start: Instant::now(),
            is_due: false,
            polls: 0,
            others: false,
            lent: None,
        }
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// So many frames may be taken, if there is room for `room`, now that others have sent `own`.
    pub(super) fn allowance(&mut self, own: usize, room: usize) -> usize {
        self.polls += 1;
        self.others |= own > 0;
        if room == 0 || (self.polls < POLLS && !(self.is_due && own == 0)) {
            return 0;
        }
        self.polls = 0;
        let now = self.now_ns();
        self.share.grow(now, std::mem::take(&mut self.others));
        match (self.share.is_open, self.share.is_crowded(now)) {
            (false, _) => 0,
            (true, false) => room,
            (true, true) => room.min(FEW),
        }
    }

    /// So many frames were taken, and `all` are lent.
    pub(super) fn taken(&mut self, theirs: usize, all: usize) {
        self.is_due = theirs > 0;
        self.lent = (theirs > 0).then_some((self.share.at, theirs, all));
    }

    /// What was lent is done with.
    pub(super) fn released(&mut self) {
        if let Some((since, theirs, all)) = self.lent.take() {
            self.share.spend((self.now_ns() - since) * theirs as u64 / all as u64);
        }
    }

    /// This address is no stranger's.
    pub(super) fn vouch(&mut self, peer: IpAddr) {
        if self.told.is_news(peer, self.start.elapsed().as_secs()) {
            self.peers.vouch(peer);
        }
    }

    /// Something waits.
    pub(super) fn wait(&mut self) {
        self.is_due = true;
    }

    /// How long they are left alone, from now on.
    pub(super) fn rest(&self) -> Duration {
        if self.share.is_open {
            return Duration::ZERO;
        }
        Duration::from_nanos((self.share.at + self.share.opens_in_ns()).saturating_sub(self.now_ns()))
    }
}

/// For so long after a frame of somebody else's, others are served.
const CROWDED_NS: u64 = 10_000_000;
/// Time that strangers may have saved up.
const MOST_NS: i64 = 2_000_000;
/// Time that must be saved up before strangers are served again.
const LEAST_NS: i64 = 250_000;

/// What strangers have of a lane's time, in nanoseconds of a clock that the caller reads.
#[derive(Debug)]
struct Share {
    parts: u64,
    saved: i64,
    at: u64,
    /// When somebody else was served last.
    others_at: Option<u64>,
    is_open: bool,
}

impl Share {
    fn new(parts: u32) -> Self {
        Share { parts: parts.max(1).into(), saved: MOST_NS, at: 0, others_at: None, is_open: true }
    }

    fn is_crowded(&self, now: u64) -> bool {
        self.others_at.is_some_and(|at| now.saturating_sub(at) < CROWDED_NS)
    }

    /// Time has passed, in which somebody else was served or not.
    fn grow(&mut self, now: u64, others: bool) {
        if others {
            self.others_at = Some(now);
        }
        let passed = now.saturating_sub(self.at) / if self.is_crowded(now) { self.parts } else { 1 };
        self.at = now;
        self.saved = self.saved.saturating_add_unsigned(passed).min(MOST_NS);
        self.is_open = self.saved >= if self.is_open { 1 } else { LEAST_NS };
    }

    /// Strangers were served for so long. More than could be saved up is not owed: then the lane was kept from its core, and not by them.
    fn spend(&mut self, ns: u64) {
        self.saved = self.saved.saturating_sub_unsigned(ns).max(-MOST_NS);
    }

    /// When it opens again, at the latest.
    fn opens_in_ns(&self) -> u64 {
        (LEAST_NS.saturating_sub(self.saved).max(1) as u64).saturating_mul(self.parts)
    }
}

/// Bits of [`Told`].
const BITS: usize = 1 << 17;
/// So many addresses are remembered before all are forgotten.
const TOLD_MAX: usize = BITS / 4;
/// After so many seconds they are forgotten in any case: the kernel may have forgotten one, too.
const TOLD_S: u64 = 60;

/// Of whom the kernel was told lately, as a set of bits: of a few it is believed by mistake, until it has forgotten all.
struct Told {
    bits: Box<[u64; BITS / 64]>,
    hash: RandomState,
    len: usize,
    since_s: u64,
}

impl Default for Told {
    fn default() -> Self {
        Told { bits: Box::new([0; BITS / 64]), hash: RandomState::new(), len: 0, since_s: 0 }
    }
}

impl Told {
    fn is_news(&mut self, peer: IpAddr, now_s: u64) -> bool {
        let age_s = now_s.saturating_sub(self.since_s);
        if age_s >= TOLD_S || (self.len >= TOLD_MAX && age_s > 0) {
            // With another key, so that nobody is mistaken for the same one twice.
            *self = Told { since_s: now_s, ..Told::default() };
        }
        let hash = self.hash.hash_one(peer) as usize % BITS;
        let (word, bit) = (&mut self.bits[hash / 64], 1 << (hash % 64));
        let is_news = *word & bit == 0 && self.len < TOLD_MAX;
        if is_news {
            *word |= bit;
            self.len += 1;
        }
        is_news
    }
}

#[cfg(test)]
mod tests;
