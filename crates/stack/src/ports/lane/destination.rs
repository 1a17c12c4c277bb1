//! Owns the destinations that a lane has ports towards, and the flows of each: where a destination is found, in which of its two lists a flow is, and
//! how it rests.
//!
//! A destination whose last flow has gone rests: its index goes, and it itself stays until [`RESTING_MAX`] others have gone to rest
//! after it. Who connects again and again to the same few finds them, and mostly without a hash, where they were found last.
//!
//! Flows that a peer opened have no node. They lie on ports that are bound, and so are kept out; only a listener that has gone
//! leaves some behind. Such a port looks free, the probe says it is not, and the destination remembers it as *foreign* until
//! there is nothing else left to try.

use super::LanePorts;
use super::index::Index;
use super::layout::twist_of;
use crate::ports::Ask;
use crate::snapshot::mix_pair;
use laneway_table::Slab;
use laneway_wire::flow::FlowKey;

/// Up to so many flows a destination is probed without an index.
const UNINDEXED_MAX: u32 = 64;
/// Destinations without a flow that are remembered.
const RESTING_MAX: usize = 256;
/// Places to look for a destination before it is hashed.
pub(super) const RECENT: usize = 256;
/// No node.
pub(super) const NONE: u32 = u32::MAX;

/// In which list a node is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// A connection.
    InUse,
    /// TIME_WAIT that must be sat out: no timestamps to tell old from new, not a port of the slice, or bound by somebody when its turn had come. In
    /// the list of those in use.
    Held,
    /// TIME_WAIT that may be taken over in time.
    Waiting,
}

/// A flow that was granted.
pub(super) struct Node {
    pub(super) destination: u32,
    pub(super) port: u16,
    pub(super) stage: Stage,
    pub(super) before: u32,
    pub(super) after: u32,
}

/// Both ends of a list of nodes.
#[derive(Clone, Copy)]
pub(super) struct List {
    pub(super) first: u32,
    pub(super) last: u32,
}

pub(super) const EMPTY: List = List { first: NONE, last: NONE };

pub(super) struct Destination {
    /// The lane is where the local port would be.
    pub(super) key: FlowKey,
    pub(super) hash: u64,
    /// H0: what the classes are permuted by.
    pub(super) twist: u8,
    pub(super) flows: u32,
    pub(super) time_waits: u32,
    pub(super) in_use: List,
    pub(super) waiting: List,
    pub(super) index: Option<Box<Index>>,
    /// Ports that the flow table says are taken, and not by us.
    pub(super) foreign: Vec<u16>,
    /// It is in the queue of those that rest, though it may be in use again.
    pub(super) rests: bool,
}

impl Destination {
    /// The ask is for a port towards it.
    #[inline(always)]
    pub(super) fn is_meant(&self, ask: &Ask<'_>) -> bool {
        let Ask { lane, local, remote, remote_port, .. } = ask;
        usize::from(self.key.local_port) == *lane
            && self.key.remote_port == *remote_port
            && (self.key.local, self.key.remote) == (*local, *remote)
    }

    /// What an ask wants to know of it; `at` is where it is.
    #[inline(always)]
    pub(super) fn found(&self, at: u32) -> Sought {
        let sparse = self.index.is_none() && self.flows <= UNINDEXED_MAX;
        Sought { hash: self.hash, known: Some(at), twist: self.twist, sparse }
    }

    /// A node that stood between these two leaves the list of its stage.
    #[inline]
    pub(super) fn leave(&mut self, nodes: &mut Nodes, stage: Stage, before: u32, after: u32) {
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

pub(super) type Nodes = Slab<Node, 1_024>;

/// A destination as an ask finds it.
pub(super) struct Sought {
    pub(super) hash: u64,
    /// Where it is, if it is known.
    pub(super) known: Option<u32>,
    pub(super) twist: u8,
    /// It has few flows, and no index.
    pub(super) sparse: bool,
}

impl LanePorts {
    #[inline]
    pub(super) fn find(&self, hash: u64, key: &FlowKey) -> Option<u32> {
        self.by_hash.find(hash, |at| self.destinations.get(at).is_some_and(|d| d.key == *key))
    }

    /// The destination of an ask, known or not.
    #[inline(always)]
    pub(super) fn look_up(&mut self, ask: &Ask<'_>) -> Sought {
        let place = (mix_pair(&ask.local, &ask.remote) ^ usize::from(ask.remote_port)) % RECENT;
        let recent = self.recent[place];
        match self.destinations.get(recent) {
            Some(destination) if destination.is_meant(ask) => destination.found(recent),
            _ => self.look_further(ask, place),
        }
    }

    #[inline(never)]
    pub(super) fn look_further(&mut self, ask: &Ask<'_>, place: usize) -> Sought {
        let key = destination_key(ask);
        let hash = key.hash(&self.parts.key.get());
        self.tallies.destination_hashes += 1;
        let known = self.find(hash, &key);
        self.recent[place] = known.unwrap_or(NONE);
        match known.and_then(|at| Some(self.destinations.get(at)?.found(at))) {
            Some(sought) => sought,
            None => Sought { hash, known: None, twist: twist_of(ask), sparse: true },
        }
    }

    pub(super) fn open(&mut self, hash: u64, key: FlowKey, twist: u8) -> u32 {
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
    pub(super) fn rest(&mut self, at: u32) {
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
    pub(super) fn forget_oldest(&mut self) {
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

    /// Puts a node at the end of the list of its stage.
    #[inline]
    pub(super) fn link(&mut self, at: u32, stage: Stage) {
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
    pub(super) fn unlink(&mut self, at: u32) {
        let Some(&Node { destination, stage, before, after, .. }) = self.nodes.get(at) else { return };
        let Some(destination) = self.destinations.get_mut(destination) else { return };
        destination.leave(&mut self.nodes, stage, before, after);
    }
}

/// A destination as the chooser knows it: the lane stands where the local port would.
#[inline]
pub(super) fn destination_key(ask: &Ask<'_>) -> FlowKey {
    FlowKey { local: ask.local, remote: ask.remote, local_port: ask.lane as u16, remote_port: ask.remote_port }
}
