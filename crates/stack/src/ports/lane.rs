//! Owns the product's choice of ports: RFC 6056, from the slice of ports whose replies hash to the lane, in constant time
//! from the first port to the last.
//!
//! # How a port is found
//! A destination (our address, the peer's address and port) permutes the 128 [`Classes`] of the port range; those whose bucket
//! belongs to the lane are the *rows* of its slice. A secret offset for the destination, and a counter that few destinations
//! share (RFC 6056 section 3.3.4), say where in the slice to begin.
//!
//! * Up to 64 connections to a destination: the port there is tried, one probe. If it is in use, the destination gets an index.
//! * With an index: the first free place at or after the start ([`FreeMap`], at most four words), one probe.
//! * No free place: the *oldest* port in TIME_WAIT that RFC 6191 lets us have, from the destination's own queue, one probe.
//! * None: [`Exhausted`].
//!
//! # How the index stays exact
//! Every flow that was granted here has a [`Node`], whose number is its claim. The node is in one of its destination's two
//! lists: of flows in use, or of those in TIME_WAIT in the order of their age. A place is free when no node and no `bind` has it;
//! [`released`](PortChoice::released) frees it, with no hash and no search. An index can therefore be thrown away at any time and
//! made again from the lists, in one step per flow of that destination. That bounds memory: all indexes of a lane together
//! hold at most [`INDEX_BYTES`]; beyond it one that was not used lately goes.
//!
//! # Destinations that rest
//! A destination whose last flow has gone rests: its index goes, and it itself stays until [`RESTING_MAX`] others have gone to rest
//! after it. Who connects again and again to the same few finds them, and mostly without a hash, where they were found last.
//!
//! Flows that a peer opened have no node. They lie on ports that are bound, and so are kept out; only a listener that has gone
//! leaves some behind. Such a port looks free, the probe says it is not, and the destination remembers it as *foreign* until
//! there is nothing else left to try.

use super::classes::Classes;
use super::free_map::FreeMap;
use super::{Ask, Claim, Exhausted, Grant, PortChoice, PortParts, Probe, Slice, Tallies};
use crate::snapshot::mix_pair;
use crate::steering::{BUCKETS, Steering, Table};
use laneway_table::{HandleTable, Slab};
use laneway_wire::flow::FlowKey;
use std::collections::{BTreeSet, VecDeque};
use std::hint::cold_path;

/// Counters of RFC 6056 section 3.3.4, indexed by a second hash of the destination. Many, because whoever shares one with a
/// destination of his own learns how often others use it.
const PERTURBATIONS: usize = 1 << 14;
/// Up to so many flows a destination is probed without an index.
const UNINDEXED_MAX: u32 = 64;
/// With fewer flows than this an index is given up.
const INDEXED_MIN: u32 = 16;
/// Memory for the indexes of one lane.
const INDEX_BYTES: usize = 16 << 20;
/// Indexes kept for the next destination that needs one.
const SPARES: usize = 4;
/// Foreign ports looked at again in one ask.
const SECOND_LOOKS: usize = 8;
/// Destinations without a flow that are remembered.
const RESTING_MAX: usize = 256;
/// Places to look for a destination before it is hashed.
const RECENT: usize = 256;
/// Numbers that a port can have.
const PORTS: usize = 1 << 16;
/// No node.
const NONE: u32 = u32::MAX;
/// No row.
const NOT_MINE: u8 = u8::MAX;

/// In which list a node is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// A connection.
    InUse,
    /// TIME_WAIT that must be sat out: no timestamps to tell old from new, not a port of the slice, or bound by somebody when its turn had come. In
    /// the list of those in use.
    Held,
    /// TIME_WAIT that may be taken over in time.
    Waiting,
}

/// A flow that was granted.
struct Node {
    destination: u32,
    port: u16,
    stage: Stage,
    before: u32,
    after: u32,
}

/// Both ends of a list of nodes.
#[derive(Clone, Copy)]
struct List {
    first: u32,
    last: u32,
}

const EMPTY: List = List { first: NONE, last: NONE };

/// The places of one destination that are free.
struct Index {
    free: FreeMap,
    /// The word at which each row begins, and at last how many there are.
    rows: Vec<u16>,
    /// Most words that a row has.
    widest: usize,
    /// Place of the destination in the list of those that have one.
    at: usize,
    /// Used since the hand last came by.
    used: bool,
}

struct Destination {
    /// The lane is where the local port would be.
    key: FlowKey,
    hash: u64,
    /// H0: what the classes are permuted by.
    twist: u8,
    flows: u32,
    time_waits: u32,
    in_use: List,
    waiting: List,
    index: Option<Box<Index>>,
    /// Ports that the flow table says are taken, and not by us.
    foreign: Vec<u16>,
    /// It is in the queue of those that rest, though it may be in use again.
    rests: bool,
}

impl Destination {
    /// The ask is for a port towards it.
    #[inline(always)]
    fn is_meant(&self, ask: &Ask<'_>) -> bool {
        let Ask { lane, local, remote, remote_port, .. } = ask;
        usize::from(self.key.local_port) == *lane
            && self.key.remote_port == *remote_port
            && (self.key.local, self.key.remote) == (*local, *remote)
    }

    /// What an ask wants to know of it; `at` is where it is.
    #[inline(always)]
    fn found(&self, at: u32) -> Sought {
        let sparse = self.index.is_none() && self.flows <= UNINDEXED_MAX;
        Sought { hash: self.hash, known: Some(at), twist: self.twist, sparse }
    }

    /// A node that stood between these two leaves the list of its stage.
    #[inline]
    fn leave(&mut self, nodes: &mut Nodes, stage: Stage, before: u32, after: u32) {
        let list = if stage == Stage::Waiting { &mut self.waiting } else { &mut self.in_use };
        self.time_waits -= u32::from(stage != Stage::InUse);
        match nodes.get_mut(before) {
            Some(node) => node.after = after,
            None => list.first = after,
        }
        match nodes.get_mut(after) {
            Some(node) => node.before = before,
            None => list.last = before,
        }
    }
}

type Nodes = Slab<Node, 1_024>;

/// Which buckets are a lane's.
struct Layout {
    lane: usize,
    buckets: Vec<u8>,
    row_of: [u8; BUCKETS],
    /// For IPv6 and IPv4, for each twist, how many ports there are before each row, and in all.
    before: [Option<Box<[u16]>>; 2],
}

impl Layout {
    /// How many ports of a slice come before each of its rows, and at last in all.
    #[inline]
    fn rows(&self, v4: bool, twist: u8) -> &[u16] {
        let stride = self.buckets.len() + 1;
        let all = self.before[usize::from(v4)].as_deref().unwrap_or(&[]);
        let begin = usize::from(twist) * stride;
        all.get(begin..begin + stride).unwrap_or(&[0])
    }

    #[cold]
    fn count(&mut self, v4: bool, classes: &Classes) {
        let mut before = Vec::with_capacity(BUCKETS * (self.buckets.len() + 1));
        for twist in 0..BUCKETS {
            let mut sum = 0;
            before.push(0);
            for bucket in &self.buckets {
                sum += classes.len(usize::from(*bucket) ^ twist) as u16;
                before.push(sum);
            }
        }
        self.before[usize::from(v4)] = Some(before.into_boxed_slice());
    }
}

/// For whom everything is there, and which layout is theirs.
#[derive(Clone, Copy)]
struct Ready {
    lane: usize,
    v4: bool,
    layout: usize,
}

/// A destination as an ask finds it.
struct Sought {
    hash: u64,
    /// Where it is, if it is known.
    known: Option<u32>,
    twist: u8,
    /// It has few flows, and no index.
    sparse: bool,
}

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

    /// Everything that depends on who owns which bucket and on the family is there; the answer is the lane's layout.
    #[inline(always)]
    fn prepare(&mut self, ask: &Ask<'_>) -> usize {
        // A single lane owns everything, whatever moves.
        if ask.steering.lanes() > 1 && ask.steering.table().version != self.table.version {
            self.moved(ask.steering);
        }
        let v4 = ask.local.is_v4();
        match self.ready {
            Some(ready) if ready.lane == ask.lane && ready.v4 == v4 => ready.layout,
            _ => self.prepare_for(ask.lane, v4),
        }
    }

    #[inline(never)]
    fn prepare_for(&mut self, lane: usize, v4: bool) -> usize {
        if self.classes[usize::from(v4)].is_none() {
            self.make_classes(v4);
        }
        let at = match self.layouts.iter().position(|layout| layout.lane == lane) {
            Some(layout) => layout,
            None => self.lay_out(lane),
        };
        if self.layouts[at].before[usize::from(v4)].is_none()
            && let Some(classes) = self.classes[usize::from(v4)].as_deref()
        {
            self.layouts[at].count(v4, classes);
        }
        self.ready = Some(Ready { lane, v4, layout: at });
        at
    }

    #[cold]
    fn make_classes(&mut self, v4: bool) {
        let PortParts { range, reserved, steering, .. } = &self.parts;
        self.classes[usize::from(v4)] = Some(Box::new(Classes::new(steering, v4, *range, reserved)));
    }

    /// Buckets have moved between lanes: every slice is another one now.
    #[cold]
    fn moved(&mut self, steering: &Steering) {
        self.table = *steering.table();
        self.layouts.clear();
        self.ready = None;
        while let Some(destination) = self.indexed.last().copied() {
            self.drop_index(destination);
        }
    }

    #[cold]
    fn lay_out(&mut self, lane: usize) -> usize {
        let mut layout = Layout { lane, buckets: Vec::new(), row_of: [NOT_MINE; BUCKETS], before: [None, None] };
        for (bucket, owner) in self.table.owner.iter().enumerate() {
            // Of one that moves, its former owner may still have flows: its ports are nobody's until those are gone.
            if usize::from(*owner) == lane && !self.table.is_moving(bucket) {
                layout.row_of[bucket] = layout.buckets.len() as u8;
                layout.buckets.push(bucket as u8);
            }
        }
        self.layouts.push(layout);
        self.layouts.len() - 1
    }

    #[inline]
    fn classes(&self, v4: bool) -> Option<&Classes> {
        self.classes[usize::from(v4)].as_deref()
    }

    #[inline]
    fn find(&self, hash: u64, key: &FlowKey) -> Option<u32> {
        self.by_hash.find(hash, |at| self.destinations.get(at).is_some_and(|d| d.key == *key))
    }

    /// The destination of an ask, known or not.
    #[inline(always)]
    fn look_up(&mut self, ask: &Ask<'_>) -> Sought {
        let place = (mix_pair(&ask.local, &ask.remote) ^ usize::from(ask.remote_port)) % RECENT;
        let recent = self.recent[place];
        match self.destinations.get(recent) {
            Some(destination) if destination.is_meant(ask) => destination.found(recent),
            _ => self.look_further(ask, place),
        }
    }

    #[inline(never)]
    fn look_further(&mut self, ask: &Ask<'_>, place: usize) -> Sought {
        let key = destination_key(ask);
        let hash = key.hash(&self.parts.key.get());
        self.tallies.destination_hashes += 1;
        let known = self.find(hash, &key);
        self.recent[place] = known.unwrap_or(NONE);
        match known.and_then(|at| Some(self.destinations.get(at)?.found(at))) {
            Some(sought) => sought,
            None => Sought { hash, known: None, twist: ask.steering.bucket(&ask.flow(0)) as u8, sparse: true },
        }
    }

    fn open(&mut self, hash: u64, key: FlowKey, twist: u8) -> u32 {
        let at = self.destinations.insert(Destination {
            key,
            hash,
            twist,
            flows: 0,
            time_waits: 0,
            in_use: EMPTY,
            waiting: EMPTY,
            index: None,
            foreign: Vec::new(),
            rests: false,
        });
        self.by_hash.insert(hash, at);
        at
    }

    /// A destination has no flow any more.
    #[inline]
    fn rest(&mut self, at: u32) {
        self.drop_index(at);
        let Some(destination) = self.destinations.get_mut(at) else { return };
        if !destination.foreign.is_empty() {
            destination.foreign = Vec::new();
        }
        if !destination.rests {
            destination.rests = true;
            self.resting.push_back(at);
            self.forget_oldest();
        }
    }

    /// Of those that rest, more than are remembered, the oldest is forgotten, unless it is in use again.
    #[inline(never)]
    fn forget_oldest(&mut self) {
        if self.resting.len() <= RESTING_MAX {
            return;
        }
        let Some(oldest) = self.resting.pop_front() else { return };
        let Some(destination) = self.destinations.get_mut(oldest) else { return };
        destination.rests = false;
        if destination.flows == 0 {
            let hash = destination.hash;
            self.destinations.discard(oldest);
            self.by_hash.remove(hash, oldest);
        }
    }

    /// The row of a port in a destination's slice, and its place there; nothing if it may not be granted to this lane at all.
    #[inline]
    fn place(&self, destination: &Destination, port: u16) -> Option<(usize, usize)> {
        let (class, rank) = self.classes(destination.key.is_v4())?.place(port)?;
        let lane = usize::from(destination.key.local_port);
        let layout = self.layouts.iter().find(|layout| layout.lane == lane)?;
        let row = layout.row_of[class ^ usize::from(destination.twist)];
        (row != NOT_MINE).then_some((usize::from(row), rank))
    }

    /// The same as a place in the index.
    #[inline]
    fn place_in(&self, index: &Index, destination: &Destination, port: u16) -> Option<usize> {
        let (row, rank) = self.place(destination, port)?;
        Some(usize::from(*index.rows.get(row)?) * 64 + rank)
    }

    /// Makes the index of a destination from its lists.
    #[cold]
    fn index(&mut self, at: u32, layout: usize) {
        self.tallies.rebuilt += 1;
        let spare = self.spares.pop();
        let Some(destination) = self.destinations.get(at) else { return };
        let Some(classes) = self.classes(destination.key.is_v4()) else { return };
        let len = |bucket: &u8| classes.len(usize::from(bucket ^ destination.twist));
        let buckets = &self.layouts[layout].buckets;
        let words = buckets.iter().map(|bucket| len(bucket).div_ceil(64)).sum();
        let mut index = spare.unwrap_or_else(|| {
            Box::new(Index { free: FreeMap::new(), rows: Vec::new(), widest: 0, at: 0, used: true })
        });
        index.free.reset(words);
        index.rows.clear();
        index.widest = classes.longest().div_ceil(64).max(1);
        let mut word = 0;
        for bucket in buckets {
            index.rows.push(word as u16);
            index.free.fill(word, len(bucket));
            word += len(bucket).div_ceil(64);
        }
        index.rows.push(word as u16);
        for list in [destination.in_use, destination.waiting] {
            let mut next = list.first;
            while let Some(node) = self.nodes.get(next) {
                if let Some(place) = self.place_in(&index, destination, node.port) {
                    index.free.clear(place);
                }
                next = node.after;
            }
        }
        for port in self.bound.iter().chain(&destination.foreign) {
            if let Some(place) = self.place_in(&index, destination, *port) {
                index.free.clear(place);
            }
        }
        index.used = true;
        index.at = self.indexed.len();
        self.index_bytes += index.bytes();
        self.indexed.push(at);
        if let Some(destination) = self.destinations.get_mut(at) {
            destination.index = Some(index);
        }
        while self.index_bytes > INDEX_BYTES && self.indexed.len() > 1 {
            self.evict_index(at);
        }
    }

    /// Takes the index of a destination that was not used since the hand last came by.
    fn evict_index(&mut self, but: u32) {
        for _ in 0..=2 * self.indexed.len() {
            self.hand = if self.hand + 1 < self.indexed.len() { self.hand + 1 } else { 0 };
            let at = self.indexed[self.hand];
            let index = self.destinations.get_mut(at).and_then(|d| d.index.as_mut());
            let used = index.is_some_and(|index| std::mem::take(&mut index.used));
            if at != but && !used {
                return self.drop_index(at);
            }
        }
    }

    fn drop_index(&mut self, at: u32) {
        let Some(index) = self.destinations.get_mut(at).and_then(|d| d.index.take()) else { return };
        self.index_bytes -= index.bytes();
        self.indexed.swap_remove(index.at);
        if let Some(moved) = self.indexed.get(index.at)
            && let Some(other) = self.destinations.get_mut(*moved).and_then(|d| d.index.as_mut())
        {
            other.at = index.at;
        }
        if self.spares.len() < SPARES {
            self.spares.push(index);
        }
    }

    /// Puts a node at the end of the list of its stage.
    #[inline]
    fn link(&mut self, at: u32, stage: Stage) {
        let Some(node) = self.nodes.get_mut(at) else { return };
        let Some(destination) = self.destinations.get_mut(node.destination) else { return };
        let list = if stage == Stage::Waiting { &mut destination.waiting } else { &mut destination.in_use };
        let last = std::mem::replace(&mut list.last, at);
        (node.before, node.after, node.stage) = (last, NONE, stage);
        destination.time_waits += u32::from(stage != Stage::InUse);
        match self.nodes.get_mut(last) {
            Some(last) => last.after = at,
            None => list.first = at,
        }
    }

    /// Takes a node out of its list.
    #[inline]
    fn unlink(&mut self, at: u32) {
        let Some(&Node { destination, stage, before, after, .. }) = self.nodes.get(at) else { return };
        let Some(destination) = self.destinations.get_mut(destination) else { return };
        destination.leave(&mut self.nodes, stage, before, after);
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

    /// A place that the index says is free. Those of them that are not ours to give are remembered.
    #[inline(never)]
    fn free_place(
        &mut self,
        at: u32,
        layout: usize,
        (row, rank): (usize, usize),
        ask: &Ask<'_>,
        probe: &mut dyn FnMut(&FlowKey) -> Probe,
    ) -> Option<(u16, (usize, usize))> {
        let Self { destinations, classes, layouts, tallies, .. } = self;
        let destination = destinations.get_mut(at)?;
        let classes = classes[usize::from(ask.local.is_v4())].as_deref()?;
        let buckets = &layouts[layout].buckets;
        let index = destination.index.as_mut()?;
        index.used = true;
        let mut words = 0;
        let start = usize::from(*index.rows.get(row)?) * 64 + rank;
        let found = loop {
            let Some(place) = index.free.find(start, &mut words) else { break None };
            index.free.clear(place);
            // No row has more words than the widest, so the guess is never too far.
            let mut row = place / 64 / index.widest;
            while usize::from(index.rows[row + 1]) <= place / 64 {
                row += 1;
            }
            let rank = place - usize::from(index.rows[row]) * 64;
            let port = classes.port(usize::from(buckets[row] ^ destination.twist), rank);
            tallies.probes += 1;
            if probe(&ask.flow(port)) == Probe::Free {
                break Some((port, (row, rank)));
            }
            destination.foreign.push(port);
        };
        tallies.words += words;
        tallies.words_max = tallies.words_max.max(words);
        found
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

/// The row of a slice that holds its `begin`-th port, and its place there: `rows` says how many there are before each, and at last in all.
/// They are about equally long, so it lies near its share of them.
#[inline]
fn row_of(rows: &[u16], begin: u32) -> (usize, usize) {
    let (count, space) = (rows.len() - 1, u32::from(rows[rows.len() - 1]));
    let mut row = (begin * count as u32 / space) as usize;
    // Nearly always it is that one or one beside it, at random: to branch on which would be to guess.
    row -= usize::from(u32::from(rows[row]) > begin);
    row += usize::from(u32::from(rows[row + 1]) <= begin);
    while u32::from(rows[row]) > begin {
        row -= 1;
    }
    while u32::from(rows[row + 1]) <= begin {
        row += 1;
    }
    (row, begin as usize - usize::from(rows[row]))
}

/// A destination as the chooser knows it: the lane stands where the local port would.
#[inline]
fn destination_key(ask: &Ask<'_>) -> FlowKey {
    FlowKey { local: ask.local, remote: ask.remote, local_port: ask.lane as u16, remote_port: ask.remote_port }
}

impl Index {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.free.bytes() + self.rows.capacity() * 2
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

impl LanePorts {
    /// The place of a port in a destination's index, if it has both.
    fn place_of(&self, at: u32, port: u16) -> Option<usize> {
        let destination = self.destinations.get(at)?;
        self.place_in(destination.index.as_deref()?, destination, port)
    }

    fn take_place(&mut self, at: u32, port: u16) {
        if let Some(place) = self.place_of(at, port)
            && let Some(index) = self.destinations.get_mut(at).and_then(|d| d.index.as_mut())
        {
            index.free.clear(place);
        }
    }

    fn free_place_of(&mut self, at: u32, port: u16) {
        if let Some(place) = self.place_of(at, port)
            && let Some(index) = self.destinations.get_mut(at).and_then(|d| d.index.as_mut())
        {
            index.free.set(place);
        }
    }
}

/// What a test wants to see.
#[cfg(test)]
impl LanePorts {
    /// Free places of a destination by its index, by its lists, and the two lists' lengths.
    pub(super) fn audit(&self, ask: &Ask<'_>) -> Option<usize> {
        let key = destination_key(ask);
        let destination = self.destinations.get(self.find(key.hash(&self.parts.key.get()), &key)?)?;
        let slice = self.slice_of(destination);
        let mut seen = [0; 2];
        let mut taken = std::collections::HashSet::new();
        for (list, seen) in [destination.in_use, destination.waiting].into_iter().zip(&mut seen) {
            let (mut next, mut before) = (list.first, NONE);
            while let Some(node) = self.nodes.get(next) {
                assert_eq!(node.before, before, "lists lead back the way they lead on");
                assert!(taken.insert(node.port), "one flow, one node");
                *seen += 1;
                (before, next) = (next, node.after);
            }
            assert_eq!(list.last, before);
        }
        assert_eq!(seen[0] + seen[1], destination.flows as usize);
        let index = destination.index.as_deref()?;
        taken.extend(&self.bound);
        taken.extend(&destination.foreign);
        let kept = taken.iter().filter(|port| self.place(destination, **port).is_some()).count();
        assert_eq!(index.free.free(), slice.owned - kept, "the index is exact");
        for port in &taken {
            if let Some(place) = self.place_in(index, destination, *port) {
                assert!(!index.free.is_free(place));
            }
        }
        Some(index.free.free())
    }

    pub(super) fn indexes(&self) -> (usize, usize) {
        (self.indexed.len(), self.index_bytes)
    }
}
