//! Owns the product's choice of ports: RFC 6056, from the slice of ports whose replies hash to the lane, in constant time
//! from the first port to the last.
//!
//! # How a port is found
//! A destination (our address, the peer's address and port) permutes the 128 [`Classes`] of the port range; those whose bucket
//! belongs to the lane are the *rows* of its slice. A secret offset for the destination, and a counter that few destinations
//! share (RFC 6056 section 3.3.4), say where in the slice to begin. Where there is a single lane there is one class, and one row.
//!
//! * Up to 64 connections to a destination: the port there is tried, one probe. If it is in use, the destination gets an index.
//! * With an index: the first free place at or after the start ([`FreeMap`](super::free_map::FreeMap), at most four words), one probe.
//! * No free place: the *oldest* port in TIME_WAIT that RFC 6191 lets us have, from the destination's own queue, one probe.
//! * None: [`Exhausted`].
//!
//! What is a lane's is [`layout`]; who was found last, and which flows there are, [`destination`]; which places are free, [`index`].

#[cfg(test)]
mod audit;
mod destination;
mod index;
mod layout;

use super::classes::Classes;
use super::{Ask, Claim, Exhausted, Grant, PortChoice, PortParts, Probe, Slice, Tallies};
use crate::steering::Table;
use destination::{Destination, NONE, Node, Nodes, RECENT, Sought, Stage, destination_key};
use index::Index;
use laneway_table::{HandleTable, Slab};
use laneway_wire::flow::FlowKey;
use layout::{Layout, Ready, row_of};
use std::collections::{BTreeSet, VecDeque};
use std::hint::cold_path;

/// Counters of RFC 6056 section 3.3.4, indexed by a second hash of the destination. Many, because whoever shares one with a
/// destination of his own learns how often others use it.
const PERTURBATIONS: usize = 1 << 14;
/// With fewer flows than this an index is given up.
const INDEXED_MIN: u32 = 16;
/// Foreign ports looked at again in one ask.
const SECOND_LOOKS: usize = 8;
/// Numbers that a port can have.
const PORTS: usize = 1 << 16;

/// The ephemeral ports of a lane, or of all lanes that share their tables. See the head of this file.
pub struct LanePorts {
    parts: PortParts,
    /// For IPv6 and IPv4, made when first needed.
    classes: [Option<Box<Classes>>; 2],
    table: Table,
    layouts: Vec<Layout>,
    /// What was prepared for last: nearly every ask is of the same lane and family.
    ready: Option<Ready>,
    perturb: Box<[u32; PERTURBATIONS]>,
    by_hash: HandleTable,
    destinations: Slab<Destination, 64>,
    /// Where destinations were found last, by a hash that is none: what lies there is verified.
    recent: Box<[u32; RECENT]>,
    /// Those that rest, the one that did first at the front.
    resting: VecDeque<u32>,
    nodes: Nodes,
    /// Destinations that have an index, and where the hand is that looks for one to take.
    indexed: Vec<u32>,
    hand: usize,
    index_bytes: usize,
    #[allow(clippy::vec_box)] // as destinations hold them: putting one by moves a pointer
    spares: Vec<Box<Index>>,
    bound: BTreeSet<u16>,
    is_bound: Box<[u64; PORTS / 64]>,
    tallies: Tallies,
}

impl LanePorts {
    /// All free.
    pub fn new(parts: PortParts) -> Self {
        LanePorts {
            table: *parts.steering.table(),
            parts,
            classes: [None, None],
            layouts: Vec::new(),
            ready: None,
            perturb: Box::new([0; PERTURBATIONS]),
            by_hash: HandleTable::with_capacity(64),
            destinations: Slab::new(),
            recent: Box::new([NONE; RECENT]),
            resting: VecDeque::new(),
            nodes: Slab::new(),
            indexed: Vec::new(),
            hand: 0,
            index_bytes: 0,
            spares: Vec::new(),
            bound: BTreeSet::new(),
            is_bound: Box::new([0; PORTS / 64]),
            tallies: Tallies::default(),
        }
    }

    #[inline]
    fn is_bound(&self, port: u16) -> bool {
        self.is_bound[usize::from(port) / 64] >> (port % 64) & 1 != 0
    }

    /// Notes a flow that begins.
    #[inline(always)]
    fn begin(&mut self, destination: u32, port: u16) -> Claim {
        let Some(whose) = self.destinations.get_mut(destination) else { return Claim::NONE };
        let before = whose.in_use.last;
        let at = self.nodes.insert(Node { destination, port, stage: Stage::InUse, before, after: NONE });
        whose.in_use.last = at;
        match self.nodes.get_mut(before) {
            Some(before) => before.after = at,
            None => whose.in_use.first = at,
        }
        whose.flows += 1;
        if !whose.foreign.is_empty() {
            // Whoever had it before has gone: it is told of once, or its place would be free while it is still remembered.
            whose.foreign.retain(|other| *other != port);
        }
        Claim::new(at)
    }

    /// Nothing is free: perhaps a foreign flow has gone, or the oldest in TIME_WAIT is old enough.
    #[inline(never)]
    fn second_hand(&mut self, at: u32, ask: &Ask<'_>, probe: &mut dyn FnMut(&FlowKey) -> Probe) -> Option<Grant> {
        for _ in 0..SECOND_LOOKS.min(self.destinations.get(at)?.foreign.len()) {
            let foreign = &mut self.destinations.get_mut(at)?.foreign;
            let port = foreign.remove(0);
            let home = self.place(self.destinations.get(at)?, port).is_some();
            if !home || self.is_bound(port) {
                continue; // no longer ours to give; if that changes, its place is looked at anew
            }
            self.tallies.probes += 1;
            if probe(&ask.flow(port)) == Probe::Free {
                return Some(Grant { port, claim: self.begin(at, port) });
            }
            self.destinations.get_mut(at)?.foreign.push(port);
        }
        loop {
            let oldest = self.destinations.get(at)?.waiting.first;
            let port = self.nodes.get(oldest)?.port;
            if self.is_bound(port) || self.place(self.destinations.get(at)?, port).is_none() {
                // Not ours to give any more. Each is passed over once: it would be the oldest until it has waited to its end.
                self.unlink(oldest);
                self.link(oldest, Stage::Held);
                continue;
            }
            self.tallies.probes += 1;
            if probe(&ask.flow(port)) == Probe::Taken {
                return None; // too young, and all others are younger
            }
            self.tallies.reused += 1;
            self.unlink(oldest);
            self.link(oldest, Stage::InUse);
            return Some(Grant { port, claim: Claim::new(oldest) });
        }
    }

    fn choose(&mut self, ask: &Ask<'_>, probe: &mut dyn FnMut(&FlowKey) -> Probe) -> Option<Grant> {
        let layout = self.prepare(ask);
        let Sought { hash, known, twist, sparse } = self.look_up(ask);
        let (slot, offset) = ((hash >> 32) as usize % PERTURBATIONS, hash as u32);
        // Where to begin: a row of the slice and a place in it.
        let classes = self.classes(ask.local.is_v4())?;
        let mine = &self.layouts[layout];
        let rows = mine.rows(ask.local.is_v4(), twist);
        let space = u32::from(*rows.last()?);
        if space == 0 {
            return None;
        }
        let begin = offset.wrapping_add(self.perturb[slot]) % space;
        let (row, rank) = row_of(rows, begin);
        let advance = 1 + u32::from(ask.random & 7 == 0);
        if sparse {
            let port = classes.port(usize::from(mine.buckets[row] ^ twist), rank);
            if !self.is_bound(port) {
                self.tallies.probes += 1;
                if probe(&ask.flow(port)) == Probe::Free {
                    self.perturb[slot] = self.perturb[slot].wrapping_add(advance);
                    let at = known.unwrap_or_else(|| self.open(hash, destination_key(ask), twist));
                    return Some(Grant { port, claim: self.begin(at, port) });
                }
            }
        }
        let at = known.unwrap_or_else(|| self.open(hash, destination_key(ask), twist));
        if self.destinations.get(at).is_some_and(|d| d.index.is_none()) {
            self.index(at, layout);
        }
        if let Some((port, (found_row, found_rank))) = self.free_place(at, layout, (row, rank), ask, probe) {
            // The next search goes on behind it, unless it lay behind the start already.
            let rows = self.layouts[layout].rows(ask.local.is_v4(), twist);
            let ahead = (u32::from(rows[found_row]) + found_rank as u32 + space - begin) % space;
            let ahead = if ahead <= space / 2 { ahead } else { 0 };
            self.perturb[slot] = self.perturb[slot].wrapping_add(ahead + advance);
            return Some(Grant { port, claim: self.begin(at, port) });
        }
        let grant = self.second_hand(at, ask, probe);
        if self.destinations.get(at).is_some_and(|d| d.flows == 0) {
            self.rest(at);
        }
        grant
    }

    fn slice_of(&self, destination: &Destination) -> Slice {
        let lane = usize::from(destination.key.local_port);
        let layout = self.layouts.iter().find(|layout| layout.lane == lane);
        let rows = layout.map_or(&[0][..], |layout| layout.rows(destination.key.is_v4(), destination.twist));
        let owned = usize::from(rows.last().copied().unwrap_or(0));
        Slice {
            lane,
            local: destination.key.local,
            remote: destination.key.remote,
            remote_port: destination.key.remote_port,
            owned,
            in_use: (destination.flows - destination.time_waits) as usize,
            time_wait: destination.time_waits as usize,
            reserved: self.bound.iter().filter(|port| self.place(destination, **port).is_some()).count(),
            indexed: destination.index.is_some(),
        }
    }
}

impl PortChoice for LanePorts {
    fn name(&self) -> &'static str {
        "lane"
    }

    fn allocate(&mut self, ask: &Ask<'_>, probe: &mut dyn FnMut(&FlowKey) -> Probe) -> Result<Grant, Exhausted> {
        let before = self.tallies.probes;
        let Self { by_hash, destinations, .. } = self;
        by_hash.maintain(8, |at| destinations.get(at).map_or(0, |d| d.hash));
        let grant = self.choose(ask, probe);
        let tallies = &mut self.tallies;
        tallies.asks += 1;
        tallies.probes_max = tallies.probes_max.max(tallies.probes - before);
        grant.ok_or_else(|| {
            cold_path();
            tallies.exhausted += 1;
            Exhausted
        })
    }

    fn adopt(&mut self, ask: &Ask<'_>, port: u16) -> Claim {
        self.prepare(ask);
        let Sought { hash, known, twist, .. } = self.look_up(ask);
        let at = known.unwrap_or_else(|| self.open(hash, destination_key(ask), twist));
        self.take_place(at, port);
        self.begin(at, port)
    }

    fn waits(&mut self, claim: Claim, _: &FlowKey, reusable: bool) {
        let at = claim.word();
        let Some(node) = self.nodes.get(at) else { return };
        let Some(destination) = self.destinations.get(node.destination) else { return };
        let grantable = reusable && self.place(destination, node.port).is_some();
        self.unlink(at);
        self.link(at, if grantable { Stage::Waiting } else { Stage::Held });
    }

    fn released(&mut self, claim: Claim, _: &FlowKey) {
        let Some(Node { destination: whose, port, stage, before, after }) = self.nodes.remove(claim.word()) else {
            return;
        };
        let Some(destination) = self.destinations.get_mut(whose) else { return };
        destination.leave(&mut self.nodes, stage, before, after);
        destination.flows -= 1;
        if destination.index.is_none() {
            // Nearly always: few flows, or none again at one that has rested before.
            if destination.flows == 0 && !(destination.rests && destination.foreign.is_empty()) {
                self.rest(whose);
            }
            return;
        }
        if destination.flows == 0 {
            return self.rest(whose);
        }
        if destination.flows < INDEXED_MIN {
            return self.drop_index(whose);
        }
        if !self.is_bound(port) {
            self.free_place_of(whose, port);
        }
    }

    fn reserve(&mut self, port: u16) {
        if self.is_bound(port) {
            return;
        }
        self.bound.insert(port);
        self.is_bound[usize::from(port) / 64] |= 1 << (port % 64);
        for at in self.indexed.clone() {
            self.take_place(at, port);
        }
    }

    fn unreserve(&mut self, port: u16, claim_of: &mut dyn FnMut(&FlowKey) -> Claim) {
        if !self.is_bound(port) {
            return;
        }
        self.bound.remove(&port);
        self.is_bound[usize::from(port) / 64] &= !(1 << (port % 64));
        for at in self.indexed.clone() {
            let Some(destination) = self.destinations.get(at) else { continue };
            let flow = FlowKey { local_port: port, ..destination.key };
            // A flow without a claim, or with one that is of another lane's making, is found out when it is tried.
            let node = self.nodes.get(claim_of(&flow).word());
            if node.is_none_or(|node| node.destination != at) && !destination.foreign.contains(&port) {
                self.free_place_of(at, port);
            }
        }
    }

    fn tallies(&self) -> Tallies {
        // Each probe hashes its flow, and nothing else does.
        Tallies { flow_hashes: self.tallies.probes, ..self.tallies }
    }

    fn slice(&self, place: u32) -> Option<Slice> {
        let destination = self.destinations.get(place).filter(|destination| destination.flows > 0)?;
        Some(self.slice_of(destination))
    }

    fn slices_end(&self) -> u32 {
        self.destinations.end()
    }

    fn bytes(&self) -> usize {
        let classes: usize = self.classes.iter().flatten().map(|classes| classes.bytes()).sum();
        classes
            + size_of_val(&*self.perturb)
            + size_of_val(&*self.is_bound)
            + self.by_hash.bytes()
            + self.destinations.bytes()
            + size_of_val(&*self.recent)
            + self.resting.capacity() * 4
            + self.nodes.bytes()
            + self.index_bytes
    }
}
