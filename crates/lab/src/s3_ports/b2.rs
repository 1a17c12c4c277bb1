//! Owns `b2`: `__inet_hash_connect` of Linux between 2015 (1580ab63fc9a) and 2024.
//!
//! The offset is RFC 6056's double hash: a keyed hash of the destination, and a counter out of a table shared by all,
//! indexed by that hash. From there every second port is tried, first those of the parity of the range's beginning, then
//! the others, so that `bind` finds odd ones free. For each candidate the bucket of its port is locked; if nobody uses the
//! port it is free, else the flow table is asked whether this four-tuple is. Afterwards the counter goes on by the steps
//! that were made, or by a few at random.
//!
//! `bhash` has as many buckets as Linux gives it on a machine of some size, one for each port, so its chains are all of
//! length one and are not built. Not built either: `bhash2` (2022), which would lock a second time for each port taken.

use super::common::{LINE, Lines, Lock, PortSet, Range};
use laneway_stack::ports::{Ask, Claim, Exhausted, Grant, PortChoice, PortParts, Probe, Tallies};
use laneway_wire::flow::FlowKey;
use laneway_wire::keyed_hash::HashKey;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// One for each port.
const BUCKETS: usize = 65_536;
/// `INET_TABLE_PERTURB_SIZE`.
const PERTURBATIONS: usize = 65_536;

/// `struct inet_bind_hashbucket {spinlock_t lock; struct hlist_head chain}`, and what the chain would lead to.
#[derive(Default)]
#[repr(C, align(16))]
pub struct Bucket {
    /// Guards `users`.
    pub lock: Lock,
    /// Flows that use the port.
    pub users: AtomicU32,
}

const _: () = assert!(size_of::<Bucket>() == 16);

/// What all lanes of a stack share.
pub struct BindHash {
    buckets: Box<[Bucket]>,
    perturb: Box<[AtomicU32]>,
}

impl BindHash {
    /// No port is used.
    pub fn new() -> Self {
        BindHash {
            buckets: (0..BUCKETS).map(|_| Bucket::default()).collect(),
            perturb: (0..PERTURBATIONS).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// Of a port.
    #[inline]
    pub fn bucket(&self, port: u16) -> &Bucket {
        &self.buckets[usize::from(port)]
    }

    /// Bytes that it holds.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.buckets) + size_of_val(&*self.perturb)
    }
}

/// What one lane keeps: how to order candidates, and what was counted.
pub struct Order {
    /// What may be granted at all.
    pub forbidden: PortSet,
    /// So far.
    pub tallies: Tallies,
    range: Range,
    key: HashKey,
    lines: Lines,
}

/// Where a search begins.
#[derive(Clone, Copy)]
pub struct Start {
    /// RFC 6056's F of the destination.
    pub hash: u64,
    offset: u32,
}

impl Order {
    /// A lane's.
    pub fn new(parts: &PortParts) -> Self {
        let lines = (BUCKETS * size_of::<Bucket>() + PERTURBATIONS * 4) / LINE;
        Order {
            forbidden: PortSet::of(&parts.reserved),
            tallies: Tallies::default(),
            range: Range::new(parts.range),
            key: parts.key.get(),
            lines: Lines::new(lines),
        }
    }

    /// A search begins.
    pub fn begin(&mut self, shared: &BindHash, ask: &Ask<'_>) -> Start {
        self.tallies.asks += 1;
        self.lines.begin();
        self.tallies.destination_hashes += 1;
        let hash = ask.flow(0).hash(&self.key);
        let counter = shared.perturb[hash as usize % PERTURBATIONS].load(Ordering::Relaxed);
        let offset = counter.wrapping_add((hash >> 32) as u32) % self.range.count;
        Start { hash, offset }
    }

    /// How many candidates there are.
    #[inline]
    pub fn candidates(&self) -> u32 {
        self.range.count
    }

    /// One after the other: first all of one parity, then all of the other.
    #[inline]
    pub fn candidate(&self, start: Start, number: u32) -> u16 {
        let (parity, number, of) = self.pass(number);
        let at = start.offset / 2 % of + number;
        self.range.first + (2 * (if at < of { at } else { at - of }) + parity) as u16
    }

    /// Parity, number within it, and how many it has.
    #[inline]
    fn pass(&self, number: u32) -> (u32, u32, u32) {
        let even = self.range.count.div_ceil(2);
        if number < even { (0, number, even) } else { (1, number - even, self.range.count / 2) }
    }

    /// The lock of a port's bucket is about to be taken, which writes its line.
    #[inline]
    pub fn count_lock(&mut self, port: u16) {
        self.tallies.locks += 1;
        let line = usize::from(port) * size_of::<Bucket>() / LINE;
        self.tallies.shared_lines_written += self.lines.write(line);
    }

    /// The candidate of a locked bucket is granted. A flow taken over from TIME_WAIT keeps its place among the users.
    pub fn grant(&mut self, shared: &BindHash, port: u16, said: Probe) {
        let users = &shared.bucket(port).users;
        let before = users.load(Ordering::Relaxed);
        if said == Probe::TimeWaitReusable {
            self.tallies.reused += 1;
            users.store(before.max(1), Ordering::Release);
        } else {
            users.store(before + 1, Ordering::Release);
        }
    }

    /// A search has found a port: the counter goes on.
    pub fn advance(&mut self, shared: &BindHash, start: Start, number: u32, random: u64) {
        let tried = 2 * self.pass(number).1;
        let least = 2 * (random as u32 % 8);
        let place = start.hash as usize % PERTURBATIONS;
        let counter = &shared.perturb[place];
        // As Linux does: two plain accesses; a step that is lost does no harm.
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(tried.max(least) + 2), Ordering::Relaxed);
        let line = BUCKETS * size_of::<Bucket>() / LINE + place * 4 / LINE;
        self.tallies.shared_lines_written += self.lines.write(line);
    }

    /// A port has one user more.
    pub fn bind(&mut self, shared: &BindHash, port: u16) {
        self.lines.begin();
        self.count_lock(port);
        let bucket = shared.bucket(port);
        let _held = bucket.lock.lock();
        bucket.users.store(bucket.users.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// A port has one user less.
    pub fn unbind(&mut self, shared: &BindHash, port: u16) {
        self.lines.begin();
        self.count_lock(port);
        let bucket = shared.bucket(port);
        let _held = bucket.lock.lock();
        bucket.users.store(bucket.users.load(Ordering::Relaxed).saturating_sub(1), Ordering::Release);
    }

    /// A search has ended.
    pub fn end(&mut self, probes: u64, found: Option<Grant>) -> Result<Grant, Exhausted> {
        self.tallies.probes += probes;
        self.tallies.probes_max = self.tallies.probes_max.max(probes);
        self.tallies.exhausted += u64::from(found.is_none());
        found.ok_or(Exhausted)
    }

    /// Bytes that it holds.
    pub fn bytes(&self) -> usize {
        self.lines.bytes()
    }
}

/// One lane's search, a lock for each candidate.
pub struct Scanner {
    shared: Arc<BindHash>,
    order: Order,
}

impl Scanner {
    /// A lane's.
    pub fn new(parts: PortParts, shared: Arc<BindHash>) -> Self {
        Scanner { shared, order: Order::new(&parts) }
    }
}

/// The word for every flow: its port says which bucket it is in.
fn bound() -> Claim {
    Claim::new(0)
}

impl PortChoice for Scanner {
    fn name(&self) -> &'static str {
        "b2"
    }

    fn allocate(&mut self, ask: &Ask<'_>, probe: &mut dyn FnMut(&FlowKey) -> Probe) -> Result<Grant, Exhausted> {
        let Scanner { shared, order } = self;
        let start = order.begin(shared, ask);
        let (mut probes, mut found) = (0, None);
        for number in 0..order.candidates() {
            let port = order.candidate(start, number);
            if order.forbidden.contains(port) || !ask.comes_home(port) {
                continue;
            }
            probes += 1;
            order.count_lock(port);
            let held = shared.bucket(port).lock.lock();
            // `__inet_check_established` hashes the whole flow, for every candidate anew.
            order.tallies.flow_hashes += 1;
            let said = probe(&ask.flow(port));
            if said != Probe::Taken {
                order.grant(shared, port, said);
                drop(held);
                order.advance(shared, start, number, ask.random);
                found = Some(Grant { port, claim: bound() });
                break;
            }
        }
        order.end(probes, found)
    }

    fn adopt(&mut self, _: &Ask<'_>, port: u16) -> Claim {
        self.order.bind(&self.shared, port);
        bound()
    }

    fn waits(&mut self, _: Claim, _: &FlowKey, _: bool) {}

    fn released(&mut self, _: Claim, flow: &FlowKey) {
        self.order.unbind(&self.shared, flow.local_port);
    }

    fn reserve(&mut self, port: u16) {
        self.order.forbidden.insert(port);
    }

    fn unreserve(&mut self, port: u16, _: &mut dyn FnMut(&FlowKey) -> Claim) {
        self.order.forbidden.remove(port);
    }

    fn tallies(&self) -> Tallies {
        self.order.tallies
    }

    fn bytes(&self) -> usize {
        self.shared.bytes() + self.order.bytes()
    }
}
