//! Owns what ICMP told us about the path to a destination (RFC 1191, RFC 8201): a bounded cache that forgets.
//!
//! The caller has already checked that the message quotes a packet it really sent; here the *value* is judged. The cache is
//! asked when a connection starts or a message arrives, not per packet.

use crate::time::Instant;
use laneway_wire::flow::Address;
use std::collections::{BTreeMap, VecDeque};

#[cfg(test)]
mod tests;

/// The limits of a [`PathMtuCache`].
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Destinations remembered at most; the one that would expire first makes room.
    pub entries_max: usize,
    /// How long an estimate is believed, microseconds (RFC 1191 section 6.3, RFC 8201 section 5.3: ten minutes).
    pub expire_us: u64,
    /// The least that an IPv4 message can bring the estimate to, bytes (the kernel's `net.ipv4.route.min_pmtu`). Of a path that carries less,
    /// routers are to cut what is sent.
    pub floor_v4: u32,
    /// Messages believed per second, all destinations together, with a burst of the same size.
    pub updates_per_s_max: u32,
}

impl Default for Config {
    fn default() -> Self {
        Config { entries_max: 1024, expire_us: 600 * 1_000_000, floor_v4: 552, updates_per_s_max: 128 }
    }
}

/// The least MTU of an IPv6 path (RFC 8200 section 5), bytes.
pub const FLOOR_V6: u32 = 1280;

/// Path MTUs by destination.
#[derive(Debug)]
pub struct PathMtuCache {
    config: Config,
    entries: BTreeMap<[u32; 4], Entry>,
    /// Every entry once per update, in the order of expiry; a record whose time is not its entry's is stale.
    expiry: VecDeque<(Instant, Address)>,
    /// Those of which nothing is known any more, and nobody was told yet.
    forgotten: Vec<Address>,
    /// Updates that may still be believed, in millionths.
    credit: u64,
    refilled: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    mtu: u32,
    /// The path carries less than that.
    is_cut: bool,
    expires: Instant,
}

impl PathMtuCache {
    /// An empty cache.
    pub fn new(config: Config) -> Self {
        PathMtuCache {
            config,
            entries: BTreeMap::new(),
            expiry: VecDeque::new(),
            forgotten: Vec::new(),
            credit: u64::from(config.updates_per_s_max) * 1_000_000,
            refilled: Instant::ZERO,
        }
    }

    /// The path MTU to `dst` in bytes, if something was learnt and is still believed; else the link's MTU holds.
    pub fn get(&self, dst: Address, now: Instant) -> Option<u32> {
        let entry = self.entries.get(&dst.words())?;
        (entry.expires > now).then_some(entry.mtu)
    }

    /// Whether less was learnt than an estimate can be (`lock` in the kernel's routes): what goes there over IPv4 must not forbid to be cut.
    pub fn is_cut(&self, dst: Address, now: Instant) -> bool {
        self.entries.get(&dst.words()).is_some_and(|entry| entry.is_cut && entry.expires > now)
    }

    /// A validated "packet too big" or "fragmentation needed" for `dst`. `mtu` is what the message says, or [`plateau_below`] what it quotes
    /// when the router is older than RFC 1191. `link_mtu` is what holds without the cache. Returns the new path MTU if it became less, or if what
    /// is as long will be [cut](Self::is_cut) from now on.
    pub fn on_packet_too_big(&mut self, dst: Address, mtu: u32, link_mtu: u32, now: Instant) -> Option<u32> {
        let current = self.get(dst, now).unwrap_or(link_mtu);
        let is_cut = dst.is_v4() && mtu < self.config.floor_v4.min(current);
        let mtu = if is_cut {
            self.config.floor_v4.min(current)
        } else if dst.is_v4() {
            mtu
        } else {
            //= https://www.rfc-editor.org/rfc/rfc8201#section-4
            //# If a node receives a Packet Too Big message reporting a next-hop MTU that is less than the IPv6 minimum link MTU,
            //# it must discard it.
            if mtu < FLOOR_V6 {
                return None;
            }
            mtu
        };
        //= https://www.rfc-editor.org/rfc/rfc8201#section-4
        //# A node must not increase its estimate of the Path MTU in response to the contents of a Packet Too Big message.
        let is_news = mtu < current || (is_cut && !self.is_cut(dst, now));
        if !is_news || !self.take_credit(now) {
            return None;
        }
        self.on_timeout(now);
        let expires = now.after_us(self.config.expire_us);
        self.entries.insert(dst.words(), Entry { mtu, is_cut, expires });
        self.expiry.push_back((expires, dst));
        while self.entries.len() > self.config.entries_max || self.expiry.len() > 2 * self.config.entries_max + 1 {
            self.forget_first();
        }
        Some(mtu)
    }

    /// Forgets what is no longer believed. Call at or after [`PathMtuCache::poll_timeout`]; earlier is harmless.
    pub fn on_timeout(&mut self, now: Instant) {
        while let Some((at, _)) = self.expiry.front()
            && *at <= now
        {
            self.forget_first();
        }
    }

    /// A destination that was forgotten since this was asked last: what the link carries holds again, which whoever was told otherwise should
    /// hear (RFC 1191 section 6.3). To be asked until it says `None`, after `on_timeout`.
    pub fn poll_forgotten(&mut self) -> Option<Address> {
        self.forgotten.pop()
    }

    /// When something has to be forgotten next. Changes after `on_packet_too_big` and `on_timeout`.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.expiry.front().map(|(at, _)| *at)
    }

    /// The number of destinations remembered.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn forget_first(&mut self) {
        if let Some((at, dst)) = self.expiry.pop_front()
            && self.entries.get(&dst.words()).is_some_and(|entry| entry.expires == at)
        {
            self.entries.remove(&dst.words());
            self.forgotten.push(dst);
        }
    }

    fn take_credit(&mut self, now: Instant) -> bool {
        const ONE: u64 = 1_000_000;
        let rate = u64::from(self.config.updates_per_s_max);
        let earned = now.since_us(self.refilled).saturating_mul(rate);
        self.credit = self.credit.saturating_add(earned).min(rate * ONE);
        self.refilled = now;
        let enough = self.credit >= ONE;
        if enough {
            self.credit -= ONE;
        }
        enough
    }
}

/// What may fit where `sent` bytes did not: RFC 1191 section 7.1 has the MTUs that links are likely to have. For routers that do not say. It is that
/// packet that counts and not what is believed by now: each of a flight may be answered, and those behind the first say nothing new.
pub fn plateau_below(sent: u32) -> u32 {
    const PLATEAUS: [u32; 10] = [32000, 17914, 8166, 4352, 2002, 1492, 1006, 508, 296, 68];
    PLATEAUS.into_iter().find(|plateau| *plateau < sent).unwrap_or(68)
}
