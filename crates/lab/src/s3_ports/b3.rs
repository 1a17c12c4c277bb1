//! Owns `b3`: [`b2`](super::b2) with what Linux changed in 2025 ("tcp: scale connect() under pressure", "tcp: even faster
//! connect() under stress").
//!
//! The order of the candidates is the same. But a candidate's bucket is first looked at without its lock (86c2bc293b81), and
//! if somebody uses the port, the table of established flows is searched without a lock too (ae9d5b19b322): a taken port
//! costs reads only. And the port enters that table's hash by addition (9544d60a2605, d4438ce68bf1), so that the
//! destination is hashed once and each candidate costs an addition. Only what looks free is locked, and looked at again.
//!
//! The table here is the lane's own, because every flow of a lane comes home to it; Linux's is shared, and read with RCU.

use super::b2::{BindHash, Order};
use laneway_stack::ports::{Ask, Claim, Exhausted, Grant, PortChoice, PortParts, Probe, Tallies};
use laneway_table::{HandleTable, Slab};
use laneway_wire::flow::FlowKey;
use laneway_wire::keyed_hash::HashKey;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Spreads neighbouring ports over the table.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
/// Entries moved to a larger table at each call.
const MAINTAIN: usize = 16;

/// A flow in the table.
struct Flow {
    key: FlowKey,
    hash: u64,
    /// In TIME_WAIT, and RFC 6191 may allow to take it over.
    waits: bool,
}

/// One lane's search, which looks before it locks.
pub struct Looker {
    shared: Arc<BindHash>,
    order: Order,
    key: HashKey,
    flows: Slab<Flow, 1_024>,
    index: HandleTable,
}

/// The hash of a flow, of its destination's and its port.
#[inline]
fn with_port(destination: u64, port: u16) -> u64 {
    destination.wrapping_add(u64::from(port).wrapping_mul(ODD))
}

impl Looker {
    /// A lane's.
    pub fn new(parts: PortParts, shared: Arc<BindHash>) -> Self {
        Looker {
            shared,
            order: Order::new(&parts),
            key: parts.key.get(),
            flows: Slab::new(),
            index: HandleTable::with_capacity(1_024),
        }
    }

    fn insert(&mut self, key: FlowKey, hash: u64) -> Claim {
        let at = self.flows.insert(Flow { key, hash, waits: false });
        self.index.insert(hash, at);
        let Looker { flows, index, .. } = self;
        if index.backlog() > 0 {
            index.maintain(MAINTAIN, |at| flows.get(at).map_or(0, |flow| flow.hash));
        }
        Claim::new(at)
    }
}

impl PortChoice for Looker {
    fn name(&self) -> &'static str {
        "b3"
    }

    fn allocate(&mut self, ask: &Ask<'_>, probe: &mut dyn FnMut(&FlowKey) -> Probe) -> Result<Grant, Exhausted> {
        let Looker { shared, order, flows, index, .. } = self;
        let start = order.begin(shared, ask);
        let (mut probes, mut found) = (0, None);
        for number in 0..order.candidates() {
            let port = order.candidate(start, number);
            if order.forbidden.contains(port) || !ask.comes_home(port) {
                continue;
            }
            probes += 1;
            let flow = ask.flow(port);
            let hash = with_port(start.hash, port);
            let mut ours = None;
            if shared.bucket(port).users.load(Ordering::Acquire) != 0 {
                ours = index.find(hash, |at| flows.get(at).is_some_and(|one| one.key == flow));
                if ours.is_some_and(|at| flows.get(at).is_some_and(|one| !one.waits)) {
                    continue;
                }
            }
            order.count_lock(port);
            let held = shared.bucket(port).lock.lock();
            order.tallies.flow_hashes += 1;
            let said = probe(&flow);
            if said == Probe::Taken {
                continue;
            }
            order.grant(shared, port, said);
            drop(held);
            order.advance(shared, start, number, ask.random);
            found = Some((port, flow, hash, ours));
            break;
        }
        let found = found.map(|(port, flow, hash, ours)| {
            let claim = match ours {
                Some(at) => {
                    self.flows.get_mut(at).into_iter().for_each(|one| one.waits = false);
                    Claim::new(at)
                }
                None => self.insert(flow, hash),
            };
            Grant { port, claim }
        });
        self.order.end(probes, found)
    }

    fn adopt(&mut self, ask: &Ask<'_>, port: u16) -> Claim {
        self.order.bind(&self.shared, port);
        self.order.tallies.destination_hashes += 1;
        let hash = with_port(ask.flow(0).hash(&self.key), port);
        self.insert(ask.flow(port), hash)
    }

    fn waits(&mut self, claim: Claim, _: &FlowKey, reusable: bool) {
        self.flows.get_mut(claim.word()).into_iter().for_each(|one| one.waits = reusable);
    }

    fn released(&mut self, claim: Claim, flow: &FlowKey) {
        self.order.unbind(&self.shared, flow.local_port);
        if let Some(one) = self.flows.remove(claim.word()) {
            self.index.remove(one.hash, claim.word());
        }
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
        self.shared.bytes() + self.order.bytes() + self.index.bytes() + self.flows.len() * size_of::<Flow>()
    }
}
