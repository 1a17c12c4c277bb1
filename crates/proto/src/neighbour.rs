//! Owns which link address belongs to which next hop: the state machine of RFC 4861 section 7.3, for IPv6 and, since ARP has
//! none of its own, for IPv4 as well.
//!
//! ```text
//!              lookup                  solicited answer
//!   (none) ─────────────▶ INCOMPLETE ────────────────────▶ REACHABLE ◀──────────────┐
//!                          │      ▲                          │    ▲                 │
//!               3 requests,│      │ lookup      reachable_us │    │ confirm         │ solicited answer,
//!               no answer  ▼      │                 is over  ▼    │                 │ confirm
//!                          FAILED ◀──┐                     STALE ─┼─ lookup ─▶ DELAY ─ 5 s ─▶ PROBE
//!                                    └────────────────────────────┴── 3 requests, no answer ────┘
//! ```
//!
//! What a peer says unasked is believed with care: it may change or create an entry only when it speaks to us (its packet
//! targets one of our addresses) or when an entry exists already, and it never makes an entry REACHABLE.
//!
//! Entries are bounded. When the cache is full a clock hand looks at 32 slots and the least useful entry makes room, so a
//! scan of the subnet costs a bounded time per packet and drives out unanswered entries before answered ones. One request a second is
//! sent per next hop: whoever is given up was asked a second ago, and is asked at once when it is looked up again. Packets that wait for an
//! answer are the caller's to keep, at most three, until [`NeighbourCache::poll_failed`] names their next hop.

use crate::discard::Discard;
use crate::ip::input::Packet;
use crate::time::Instant;
use laneway_wire::arp;
use laneway_wire::ethernet::Mac;
use laneway_wire::flow::Address;
use laneway_wire::ndp::Message;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

mod frames;
#[cfg(test)]
mod tests;

pub use frames::{Answer, FRAME_LEN_MAX, solicited_node};

/// What may be set about neighbours. Times in microseconds; the names in parentheses are the RFC's.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Entries held at most (the kernel's `gc_thresh3`).
    pub entries_max: usize,
    /// How long a confirmation holds (ReachableTime). 30 s for every entry: the RFC asks for a draw between 0.5 and
    /// 1.5 times that, and nobody draws here.
    pub reachable_us: u64,
    /// From first use of a stale entry to the first probe (DELAY_FIRST_PROBE_TIME).
    pub delay_us: u64,
    /// Between two requests to one next hop (RETRANS_TIMER), and before giving up.
    pub retransmit_us: u64,
    /// Requests before giving up (MAX_MULTICAST_SOLICIT, MAX_UNICAST_SOLICIT).
    pub requests_max: u8,
    /// For how long after a change another link address is not believed unasked (the kernel's `locktime`).
    pub lock_us: u64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            entries_max: 1024,
            reachable_us: 30_000_000,
            delay_us: 5_000_000,
            retransmit_us: 1_000_000,
            requests_max: 3,
            lock_us: 1_000_000,
        }
    }
}

/// A question to send: an ARP request or a neighbour solicitation. [`Request::emit`] writes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Whose link address is asked for.
    pub target: Address,
    /// The link address to confirm; `None` asks everybody.
    pub unicast: Option<Mac>,
}

/// The RFC's state, with what exists in that state only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Asked, not answered.
    Incomplete { requests: u8 },
    /// Confirmed at that time; whether it still holds is worked out when asked.
    Reachable { mac: Mac, confirmed: Instant },
    /// Believed until used.
    Stale { mac: Mac },
    /// Used while stale: hoping for an upper layer's confirmation.
    Delay { mac: Mac },
    /// Asking the known address whether it is still there.
    Probe { mac: Mac, requests: u8 },
    /// Gave up, when no answer had come for as long as there is between two requests.
    Failed,
}

impl State {
    fn mac(&self) -> Option<Mac> {
        match *self {
            State::Reachable { mac, .. } | State::Stale { mac } | State::Delay { mac } | State::Probe { mac, .. } => {
                Some(mac)
            }
            State::Incomplete { .. } | State::Failed => None,
        }
    }

    /// How readily an entry makes room for another: least first.
    fn worth(&self) -> u8 {
        match self {
            State::Failed => 0,
            State::Incomplete { .. } => 1,
            State::Stale { .. } => 2,
            State::Delay { .. } | State::Probe { .. } | State::Reachable { .. } => 3,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    ip: Address,
    state: State,
    /// When the timer for `state` runs out; `NEVER` while there is none.
    deadline: Instant,
    /// When the link address was last set or changed.
    changed: Instant,
    /// When a packet was last sent there.
    used: Instant,
}

/// The neighbours on one interface.
#[derive(Debug)]
pub struct NeighbourCache {
    config: Config,
    slots: Vec<Entry>,
    index: BTreeMap<[u32; 4], u32>,
    /// Of every entry with a timer, when it runs out.
    timers: BTreeSet<(Instant, u32)>,
    /// Questions to send, oldest first; at most one per entry is added per `retransmit_us`.
    requests: VecDeque<Request>,
    /// Next hops given up, which somebody may have packets for.
    failed: VecDeque<Address>,
    /// Where the search for room goes on.
    hand: usize,
    /// The slot that the last lookup found: most packets go to one gateway.
    last: u32,
    version: u64,
}

impl NeighbourCache {
    /// An empty cache.
    pub fn new(config: Config) -> Self {
        NeighbourCache {
            config,
            slots: Vec::new(),
            index: BTreeMap::new(),
            timers: BTreeSet::new(),
            requests: VecDeque::new(),
            failed: VecDeque::new(),
            hand: 0,
            last: 0,
            version: 0,
        }
    }

    /// The link address of next hop `ip`, which must be a unicast address on the link, because a packet is to be sent there now.
    /// `None`: a request is out or about to go, and the packet is to be kept (at most three per next hop). See
    /// [`NeighbourCache::poll_transmit`].
    #[inline]
    pub fn lookup(&mut self, now: Instant, ip: Address) -> Option<Mac> {
        if let Some(entry) = self.slots.get_mut(self.last as usize)
            && entry.ip == ip
            && let State::Reachable { mac, confirmed } = entry.state
            && now.since_us(confirmed) < self.config.reachable_us
        {
            entry.used = now;
            return Some(mac);
        }
        self.lookup_slow(now, ip)
    }

    fn lookup_slow(&mut self, now: Instant, ip: Address) -> Option<Mac> {
        let Some(slot) = self.find(ip) else {
            let slot = self.create(ip, now);
            self.solicit(slot, now);
            return None;
        };
        self.last = slot;
        let entry = &mut self.slots[slot as usize];
        entry.used = now;
        match entry.state {
            State::Reachable { mac, confirmed } if now.since_us(confirmed) >= self.config.reachable_us => {
                self.set(slot, State::Delay { mac }, now.after_us(self.config.delay_us), now);
            }
            State::Stale { mac } => self.set(slot, State::Delay { mac }, now.after_us(self.config.delay_us), now),
            State::Failed => self.solicit(slot, now),
            State::Reachable { .. } | State::Delay { .. } | State::Probe { .. } | State::Incomplete { .. } => {}
        }
        self.slots[slot as usize].state.mac()
    }

    /// What is known about `ip`, without using it: no state changes and nothing is asked.
    pub fn peek(&self, ip: Address) -> Option<Mac> {
        self.find(ip).and_then(|slot| self.slots[slot as usize].state.mac())
    }

    /// An upper layer made forward progress with `ip` as its next hop (RFC 4861 section 7.3.1): no need to probe.
    pub fn confirm(&mut self, ip: Address, now: Instant) {
        if let Some(slot) = self.find(ip)
            && let Some(mac) = self.slots[slot as usize].state.mac()
        {
            self.slots[slot as usize].used = now; // what was acknowledged went there
            self.set(slot, State::Reachable { mac, confirmed: now }, Instant::NEVER, now);
        }
    }

    /// The next question to send. Changes after `lookup` and `on_timeout`; call until `None`.
    pub fn poll_transmit(&mut self) -> Option<Request> {
        self.requests.pop_front()
    }

    /// The next of those that were asked in vain, or forgotten while they were asked: what waits for it is to be dropped (RFC 4861
    /// section 7.2.2). Changes after `lookup` and `on_timeout`; call until `None`.
    pub fn poll_failed(&mut self) -> Option<Address> {
        self.failed.pop_front()
    }

    /// When `on_timeout` has to be called next. Changes after every `&mut` call.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Asks again, probes and gives up, wherever the time for it has come. Early calls are harmless.
    pub fn on_timeout(&mut self, now: Instant) {
        // Every deadline set here lies after `now`, so the loop sees each entry once.
        while let Some(&(at, slot)) = self.timers.first()
            && at <= now
        {
            match self.slots[slot as usize].state {
                State::Incomplete { requests } if requests < self.config.requests_max => self.solicit(slot, now),
                State::Delay { mac } => self.probe(slot, mac, 0, now),
                State::Probe { mac, requests } if requests < self.config.requests_max => {
                    self.probe(slot, mac, requests, now)
                }
                State::Incomplete { .. } | State::Probe { .. } => {
                    self.set(slot, State::Failed, Instant::NEVER, now);
                    self.give_up(slot);
                }
                State::Reachable { .. } | State::Stale { .. } | State::Failed => {
                    unreachable!("only states that wait for something have a timer")
                }
            }
        }
    }

    /// Every neighbour with a known link address.
    pub fn iter(&self) -> impl Iterator<Item = (Address, Mac)> {
        self.slots.iter().filter_map(|entry| Some((entry.ip, entry.state.mac()?)))
    }

    /// Changes whenever a link address becomes known, another one, or unknown: when it is the same as before, so is every copy.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The number of entries, unanswered ones included.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// An ARP packet arrived: `bytes` follow the Ethernet header. `ours` is this interface's link address, `is_local` knows its IP addresses.
    pub fn on_arp(
        &mut self,
        bytes: &[u8],
        ours: Mac,
        is_local: impl Fn(Address) -> bool,
        now: Instant,
    ) -> Result<Option<Answer>, Discard> {
        let packet = arp::Packet::parse(bytes).map_err(|_| Discard::ArpMalformed)?;
        let arp::Packet { operation, sender_mac: mac, sender, target, .. } = packet;
        if !mac.is_unicast() || sender.is_multicast() || sender.is_broadcast() || sender.is_loopback() {
            return Err(Discard::ArpMalformed);
        }
        if is_local(sender) {
            // Our own broadcast may come back to us; from anybody else it must not change what others know.
            return if mac == ours { Ok(None) } else { Err(Discard::NeighbourConflict) };
        }
        let speaks_to_us = is_local(target);
        let was_asked = operation == arp::Operation::Reply && speaks_to_us && self.is_waiting_for(sender);
        if was_asked {
            self.confirm_as(sender, mac, now);
        } else if !sender.is_unspecified() {
            // A reply that nobody asked for is no reason for a new entry.
            let creates = speaks_to_us && operation == arp::Operation::Request;
            self.learn(Heard { ip: sender, mac, creates, lock_us: self.config.lock_us }, now);
        }
        let answers = speaks_to_us && operation == arp::Operation::Request;
        Ok(answers.then(|| Answer::arp(&packet, ours)))
    }

    /// A message of neighbour discovery arrived in `packet`. `ours` is this interface's link address, `is_local` knows its IP addresses.
    pub fn on_ndp(
        &mut self,
        packet: &Packet<'_>,
        message: &Message,
        ours: Mac,
        is_local: impl Fn(Address) -> bool,
        now: Instant,
    ) -> Result<Option<Answer>, Discard> {
        //= https://www.rfc-editor.org/rfc/rfc4861#section-7.1.1
        //# The IP Hop Limit field has a value of 255, i.e., the packet could not possibly have been forwarded by a router.
        if packet.hop_limit != 255 || packet.fragment.is_some() {
            return Err(Discard::NeighbourMalformed);
        }
        match *message {
            Message::NeighbourSolicit { target, source_link } => {
                self.on_ns(packet, target, source_link, ours, is_local, now)
            }
            Message::NeighbourAdvert { target, solicited, override_entry, target_link, .. } => {
                // The source is an address of who has sent it (RFC 4861 section 4.4); only a question may come from none.
                if packet.src.is_unspecified() || packet.dst.is_multicast() && solicited || !is_link(target_link) {
                    return Err(Discard::NeighbourMalformed);
                }
                if is_local(target) {
                    return Err(Discard::NeighbourConflict);
                }
                self.on_na(Advert { target, solicited, override_entry, target_link }, now);
                Ok(None)
            }
            // Routes come from configuration; of a router's own words only its link address counts.
            Message::RouterAdvert(advert) => {
                if packet.src.is_v4() || !packet.src.is_link_local() || !is_link(advert.source_link) {
                    return Err(Discard::NeighbourMalformed);
                }
                if let Some(mac) = advert.source_link {
                    self.learn(Heard { ip: packet.src, mac, creates: false, lock_us: 0 }, now);
                }
                Ok(None)
            }
            Message::RouterSolicit { .. } => Err(Discard::IcmpIgnored),
        }
    }

    /// RFC 4861 section 7.2.3: a neighbour asks for one of our addresses.
    fn on_ns(
        &mut self,
        packet: &Packet<'_>,
        target: Address,
        source_link: Option<Mac>,
        ours: Mac,
        is_local: impl Fn(Address) -> bool,
        now: Instant,
    ) -> Result<Option<Answer>, Discard> {
        let nameless = packet.src.is_unspecified();
        if !is_link(source_link) || nameless && (source_link.is_some() || packet.dst != frames::solicited_node(target))
        {
            return Err(Discard::NeighbourMalformed);
        }
        if !is_local(target) {
            return Ok(None);
        }
        if nameless {
            // Somebody wants to know whether the address is free (RFC 4862 section 5.4): everybody hears that it is not.
            return Ok(Some(Answer::advert_to_all(target, ours)));
        }
        if is_local(packet.src) {
            return if source_link == Some(ours) { Ok(None) } else { Err(Discard::NeighbourConflict) };
        }
        if let Some(mac) = source_link {
            self.learn(Heard { ip: packet.src, mac, creates: true, lock_us: 0 }, now);
        }
        match source_link {
            Some(mac) => Ok(Some(Answer::advert(target, ours, packet.src, mac))),
            // It did not say where the answer should go. If we do not know, we ask; it will repeat its question.
            None => Ok(self.lookup(now, packet.src).map(|mac| Answer::advert(target, ours, packet.src, mac))),
        }
    }

    /// RFC 4861 section 7.2.5: what an advertisement changes. (The router flag concerns router lists, which we do not keep.)
    fn on_na(&mut self, advert: Advert, now: Instant) {
        //= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.5
        //# If no entry exists, the advertisement SHOULD be silently discarded.
        let Some(slot) = self.find(advert.target) else {
            return;
        };
        let state = self.slots[slot as usize].state;
        let Some(known) = state.mac() else {
            // Incomplete: any address is better than none. Failed: there is no entry any more.
            if let (State::Incomplete { .. }, Some(mac)) = (state, advert.target_link) {
                let state =
                    if advert.solicited { State::Reachable { mac, confirmed: now } } else { State::Stale { mac } };
                self.set(slot, state, Instant::NEVER, now);
            }
            return;
        };
        let mac = advert.target_link.unwrap_or(known);
        if mac != known && !advert.override_entry {
            if let State::Reachable { .. } = state {
                self.set(slot, State::Stale { mac: known }, Instant::NEVER, now);
            }
        } else if advert.solicited {
            self.set(slot, State::Reachable { mac, confirmed: now }, Instant::NEVER, now);
        } else if mac != known {
            self.set(slot, State::Stale { mac }, Instant::NEVER, now);
        }
    }

    /// Whether a request to `ip` is out.
    fn is_waiting_for(&self, ip: Address) -> bool {
        self.find(ip).is_some_and(|slot| {
            matches!(self.slots[slot as usize].state, State::Incomplete { .. } | State::Probe { .. })
        })
    }

    /// `ip` answered from `mac`.
    fn confirm_as(&mut self, ip: Address, mac: Mac, now: Instant) {
        if let Some(slot) = self.find(ip) {
            self.set(slot, State::Reachable { mac, confirmed: now }, Instant::NEVER, now);
        }
    }

    /// A neighbour told us its link address without being asked (an ARP packet, the source option of a solicitation).
    fn learn(&mut self, heard: Heard, now: Instant) {
        let slot = match self.find(heard.ip) {
            Some(slot) => slot,
            None if heard.creates => self.create(heard.ip, now),
            None => return,
        };
        let entry = &self.slots[slot as usize];
        let believed = match entry.state.mac() {
            Some(known) => known != heard.mac && now.since_us(entry.changed) >= heard.lock_us,
            None => true,
        };
        if believed {
            self.set(slot, State::Stale { mac: heard.mac }, Instant::NEVER, now);
        }
    }

    /// Sends the next of the questions that create an entry.
    fn solicit(&mut self, slot: u32, now: Instant) {
        let entry = &self.slots[slot as usize];
        let requests = match entry.state {
            State::Incomplete { requests } => requests,
            _ => 0,
        };
        let request = Request { target: entry.ip, unicast: None };
        self.ask(request);
        let state = State::Incomplete { requests: requests.saturating_add(1) };
        self.set(slot, state, now.after_us(self.config.retransmit_us), now);
    }

    /// Sends the next of the questions that keep an entry.
    fn probe(&mut self, slot: u32, mac: Mac, requests: u8, now: Instant) {
        let request = Request { target: self.slots[slot as usize].ip, unicast: Some(mac) };
        self.ask(request);
        let state = State::Probe { mac, requests: requests.saturating_add(1) };
        self.set(slot, state, now.after_us(self.config.retransmit_us), now);
    }

    fn ask(&mut self, request: Request) {
        // Only a caller that does not poll, or a flood that recreates entries, gets here with a full queue: the question
        // counts as lost on the way and is repeated with the next timer.
        if self.requests.len() < self.config.entries_max {
            self.requests.push_back(request);
        }
    }

    fn give_up(&mut self, slot: u32) {
        // Only a caller that does not poll gets here with a full queue.
        if self.failed.len() < self.config.entries_max {
            self.failed.push_back(self.slots[slot as usize].ip);
        }
    }

    fn find(&self, ip: Address) -> Option<u32> {
        self.index.get(&ip.words()).copied()
    }

    /// The one place where an entry changes: keeps timers, version and change time in step with the state.
    fn set(&mut self, slot: u32, state: State, deadline: Instant, now: Instant) {
        let entry = &mut self.slots[slot as usize];
        if entry.deadline != deadline {
            self.timers.remove(&(entry.deadline, slot));
            if deadline != Instant::NEVER {
                self.timers.insert((deadline, slot));
            }
            entry.deadline = deadline;
        }
        if entry.state.mac() != state.mac() {
            entry.changed = now;
            self.version += 1;
        }
        entry.state = state;
    }

    /// A slot for `ip`, which has none yet, in the state "failed": the caller sets the true one.
    fn create(&mut self, ip: Address, now: Instant) -> u32 {
        let entry = Entry { ip, state: State::Failed, deadline: Instant::NEVER, changed: now, used: now };
        let slot = if self.slots.len() < self.config.entries_max.max(1) {
            self.slots.push(entry);
            self.slots.len() - 1
        } else {
            let slot = self.least_useful();
            if matches!(self.slots[slot].state, State::Incomplete { .. }) {
                self.give_up(slot as u32);
            }
            self.set(slot as u32, State::Failed, Instant::NEVER, now);
            self.index.remove(&self.slots[slot].ip.words());
            self.slots[slot] = entry;
            slot
        };
        self.index.insert(ip.words(), slot as u32);
        slot as u32
    }

    /// Of the next 32 slots under the hand, the one to give up.
    fn least_useful(&mut self) -> usize {
        const LOOKED_AT: usize = 32;
        let all = self.slots.len();
        let start = self.hand;
        self.hand = (start + LOOKED_AT) % all;
        (start..start + LOOKED_AT.min(all))
            .map(|at| at % all)
            .min_by_key(|at| (self.slots[*at].state.worth(), self.slots[*at].used))
            .unwrap_or(0)
    }
}

/// What a neighbour said about itself, unasked.
#[derive(Clone, Copy)]
struct Heard {
    ip: Address,
    mac: Mac,
    /// The packet asks for one of our addresses, so we may soon have to answer: reason enough for a new entry.
    creates: bool,
    /// For how long after a change another link address is not believed.
    lock_us: u64,
}

/// What a neighbour advertisement says.
struct Advert {
    target: Address,
    solicited: bool,
    override_entry: bool,
    target_link: Option<Mac>,
}

/// Whether a link address, if there is one, can be that of one station.
fn is_link(mac: Option<Mac>) -> bool {
    mac.is_none_or(|mac| mac.is_unicast())
}
