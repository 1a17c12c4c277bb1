//! Owns `b0`: the bind hash of illumos as it was in 2011, `tcps_bind_fanout`.
//!
//! `TCP_BIND_FANOUT_SIZE` is 512 and `TCP_BIND_HASH(lport)` is the port's low bits. A bucket is a pointer and a lock, 16
//! bytes, four to a cache line. `tcp_update_next_port` draws a start anywhere in the range; `tcp_bindi` then goes port by
//! port: lock the bucket, walk its chain for the port, walk the flows of that port for the very four-tuple; taken: unlock,
//! next port; free: insert under the same lock, and write the shared hint `tcps_next_port_to_try`.
//!
//! What is counted as a probe is a candidate whose bucket was locked. The flow table is asked at the end, about the one
//! that the chains say is free: it also knows flows that were opened by the peer.

use super::common::{LINE, Lines, Lock, PortSet, Range};
use super::nodes::{NIL, Nodes, Stock};
use laneway_stack::ports::{Ask, Claim, Exhausted, Grant, PortChoice, PortParts, Probe, Tallies};
use laneway_wire::flow::FlowKey;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A bucket, and how many there are: all that `b0` and `b1` differ in.
pub trait Bucket: Default + Send + Sync + 'static {
    /// On the command line and in results.
    const NAME: &'static str;
    /// A power of two.
    const BUCKETS: usize;
    /// What is in it.
    fn slot(&self) -> &Slot;
}

/// The head of a chain, and the lock that guards the chain.
#[derive(Default)]
#[repr(C)]
pub struct Slot {
    /// The node of the first port; a word of a pointer's size.
    pub head: AtomicU64,
    /// Guards `head` and every link behind it.
    pub lock: Lock,
}

/// As illumos had it: `tf_t {tcp_t *tf_tcp; kmutex_t tf_lock}`.
#[derive(Default)]
#[repr(C, align(16))]
pub struct Packed(Slot);

const _: () = assert!(size_of::<Packed>() == 16);

impl Bucket for Packed {
    const NAME: &'static str = "b0";
    const BUCKETS: usize = 512;
    fn slot(&self) -> &Slot {
        &self.0
    }
}

/// What all lanes of a stack share.
pub struct Fanout<B> {
    buckets: Box<[B]>,
    nodes: Nodes,
    hint: Hint,
}

/// `tcps_next_port_to_try`, on a line of its own here.
#[repr(align(64))]
#[derive(Default)]
struct Hint(AtomicU64);

impl<B: Bucket> Fanout<B> {
    /// Nothing is bound.
    pub fn new() -> Self {
        let buckets: Box<[B]> = (0..B::BUCKETS).map(|_| B::default()).collect();
        buckets.iter().for_each(|bucket| bucket.slot().head.store(NIL.into(), Relaxed));
        Fanout { buckets, nodes: Nodes::new(), hint: Hint::default() }
    }

    #[inline]
    fn slot(&self, port: u16) -> &Slot {
        self.buckets[usize::from(port) % B::BUCKETS].slot()
    }

    /// The first of the flows from a port. The bucket is locked.
    fn port_head(&self, slot: &Slot, port: u16) -> Option<u32> {
        let mut at = slot.head.load(Relaxed) as u32;
        while at != NIL {
            let node = self.nodes.get(at);
            if node.port() == port {
                return Some(at);
            }
            at = node.next.load(Relaxed);
        }
        None
    }

    /// The node of a flow among those of its port. The bucket is locked.
    fn find(&self, head: u32, flow: &FlowKey) -> Option<u32> {
        let mut at = head;
        while at != NIL {
            let node = self.nodes.get(at);
            if node.is(flow) {
                return Some(at);
            }
            at = node.same.load(Relaxed);
        }
        None
    }

    /// Puts a node where it belongs; says how many lines of other flows were written. The bucket is locked.
    fn insert(&self, slot: &Slot, head: Option<u32>, index: u32) -> u64 {
        let node = self.nodes.get(index);
        match head {
            Some(head) => {
                let head = self.nodes.get(head);
                node.same.store(head.same.load(Relaxed), Relaxed);
                head.same.store(index, Relaxed);
                1
            }
            None => {
                node.next.store(slot.head.load(Relaxed) as u32, Relaxed);
                slot.head.store(index.into(), Relaxed);
                0
            }
        }
    }

    /// Takes a node out; says how many lines of other flows were written. The bucket is locked.
    fn remove(&self, slot: &Slot, index: u32) -> u64 {
        let node = self.nodes.get(index);
        let (mut before, mut at) = (NIL, slot.head.load(Relaxed) as u32);
        while at != NIL && self.nodes.get(at).port() != node.port() {
            (before, at) = (at, self.nodes.get(at).next.load(Relaxed));
        }
        let same = node.same.load(Relaxed);
        if at == index {
            // The next flow of the port takes its place, or the next port does.
            let next = node.next.load(Relaxed);
            let heir = if same == NIL { next } else { same };
            if same != NIL {
                self.nodes.get(same).next.store(next, Relaxed);
            }
            match before {
                NIL => slot.head.store(heir.into(), Relaxed),
                before => self.nodes.get(before).next.store(heir, Relaxed),
            }
            return u64::from(same != NIL) + u64::from(before != NIL);
        }
        while at != NIL {
            let one = self.nodes.get(at);
            let next = one.same.load(Relaxed);
            if next == index {
                one.same.store(same, Relaxed);
                return 1;
            }
            at = next;
        }
        0
    }
}

/// One lane's way into it.
pub struct Walker<B> {
    shared: Arc<Fanout<B>>,
    range: Range,
    forbidden: PortSet,
    stock: Stock,
    lines: Lines,
    tallies: Tallies,
}

impl<B: Bucket> Walker<B> {
    /// A lane's.
    pub fn new(parts: PortParts, shared: Arc<Fanout<B>>) -> Self {
        Walker {
            shared,
            range: Range::new(parts.range),
            forbidden: PortSet::of(&parts.reserved),
            stock: Stock::default(),
            lines: Lines::new(size_of::<B>() * B::BUCKETS / LINE),
            tallies: Tallies::default(),
        }
    }

    /// The bucket of a port is about to be locked, which writes its line.
    #[inline]
    fn count_lock(&mut self, port: u16) {
        self.tallies.locks += 1;
        let line = usize::from(port) % B::BUCKETS * size_of::<B>() / LINE;
        self.tallies.shared_lines_written += self.lines.write(line);
    }

    fn bind(&mut self, flow: &FlowKey) -> u32 {
        self.lines.begin();
        self.count_lock(flow.local_port);
        let shared = &*self.shared;
        let slot = shared.slot(flow.local_port);
        let _held = slot.lock.lock();
        let index = self.stock.take(&shared.nodes, flow);
        let head = shared.port_head(slot, flow.local_port);
        self.tallies.shared_lines_written += shared.insert(slot, head, index);
        index
    }
}

impl<B: Bucket> PortChoice for Walker<B> {
    fn name(&self) -> &'static str {
        B::NAME
    }

    fn allocate(&mut self, ask: &Ask<'_>, probe: &mut dyn FnMut(&FlowKey) -> Probe) -> Result<Grant, Exhausted> {
        self.tallies.asks += 1;
        self.lines.begin();
        let before = self.tallies.probes;
        let start = (ask.random % u64::from(self.range.count)) as u32;
        let mut granted = None;
        for i in 0..self.range.count {
            let port = self.range.first + ((start + i) % self.range.count) as u16;
            if self.forbidden.contains(port) || !ask.comes_home(port) {
                continue;
            }
            self.tallies.probes += 1;
            self.count_lock(port);
            let flow = ask.flow(port);
            let shared = &*self.shared;
            let slot = shared.slot(port);
            let _held = slot.lock.lock();
            let head = shared.port_head(slot, port);
            let found = head.and_then(|head| shared.find(head, &flow));
            if found.is_some_and(|index| shared.nodes.get(index).waits.load(Relaxed) == 0) {
                continue;
            }
            self.tallies.flow_hashes += 1;
            let index = match (probe(&flow), found) {
                (Probe::Taken, _) => continue,
                (_, Some(index)) => {
                    shared.nodes.get(index).waits.store(0, Relaxed);
                    self.tallies.reused += 1;
                    index
                }
                (said, None) => {
                    self.tallies.reused += u64::from(said == Probe::TimeWaitReusable);
                    let index = self.stock.take(&shared.nodes, &flow);
                    self.tallies.shared_lines_written += shared.insert(slot, head, index);
                    index
                }
            };
            granted = Some(Grant { port, claim: Claim::new(index) });
            break;
        }
        self.tallies.probes_max = self.tallies.probes_max.max(self.tallies.probes - before);
        let Some(grant) = granted else {
            self.tallies.exhausted += 1;
            return Err(Exhausted);
        };
        self.shared.hint.0.store(u64::from(grant.port) + 1, Relaxed);
        self.tallies.shared_lines_written += 1;
        Ok(grant)
    }

    fn adopt(&mut self, ask: &Ask<'_>, port: u16) -> Claim {
        Claim::new(self.bind(&ask.flow(port)))
    }

    fn waits(&mut self, claim: Claim, _: &FlowKey, reusable: bool) {
        self.shared.nodes.get(claim.word()).waits.store(reusable.into(), Relaxed);
    }

    fn released(&mut self, claim: Claim, flow: &FlowKey) {
        self.lines.begin();
        self.count_lock(flow.local_port);
        let shared = &*self.shared;
        let slot = shared.slot(flow.local_port);
        let _held = slot.lock.lock();
        self.tallies.shared_lines_written += shared.remove(slot, claim.word());
        self.stock.give_back(claim.word());
    }

    fn reserve(&mut self, port: u16) {
        self.forbidden.insert(port);
    }

    fn unreserve(&mut self, port: u16, _: &mut dyn FnMut(&FlowKey) -> Claim) {
        self.forbidden.remove(port);
    }

    fn tallies(&self) -> Tallies {
        self.tallies
    }

    fn bytes(&self) -> usize {
        B::BUCKETS * size_of::<B>() + self.stock.bytes() + self.lines.bytes()
    }
}
