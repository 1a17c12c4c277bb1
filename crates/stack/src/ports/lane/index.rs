//! Owns the indexes: which places of a destination's slice are free.
//!
//! Every flow that was granted here has a [`Node`](super::destination::Node), whose number is its claim. The node is in one of its destination's two
//! lists: of flows in use, or of those in TIME_WAIT in the order of their age. A place is free when no node and no `bind` has it;
//! [`released`](crate::ports::PortChoice::released) frees it, with no hash and no search. An index can therefore be thrown away at any time and
//! made again from the lists, in one step per flow of that destination. That bounds memory: all indexes of a lane together
//! hold at most [`INDEX_BYTES`]; beyond it one that was not used lately goes.

use super::LanePorts;
use super::destination::Destination;
use crate::ports::free_map::FreeMap;
use crate::ports::{Ask, Probe};
use laneway_wire::flow::FlowKey;

/// Memory for the indexes of one lane.
const INDEX_BYTES: usize = 16 << 20;
/// Indexes kept for the next destination that needs one.
const SPARES: usize = 4;

/// The places of one destination that are free.
pub(super) struct Index {
    pub(super) free: FreeMap,
    /// The word at which each row begins, and at last how many there are.
    pub(super) rows: Vec<u16>,
    /// Most words that a row has.
    pub(super) widest: usize,
    /// Place of the destination in the list of those that have one.
    pub(super) at: usize,
    /// Used since the hand last came by.
    pub(super) used: bool,
}

impl Index {
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.free.bytes() + self.rows.capacity() * 2
    }
}

impl LanePorts {
    /// Where a port of the slice stands in an index; nothing if it may not be granted to this lane at all.
    #[inline]
    pub(super) fn place_in(&self, index: &Index, destination: &Destination, port: u16) -> Option<usize> {
        let (row, rank) = self.place(destination, port)?;
        Some(usize::from(*index.rows.get(row)?) * 64 + rank)
    }

    /// Makes the index of a destination from its lists.
    #[cold]
    pub(super) fn index(&mut self, at: u32, layout: usize) {
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
    pub(super) fn evict_index(&mut self, but: u32) {
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

    pub(super) fn drop_index(&mut self, at: u32) {
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

    /// A place that the index says is free. Those of them that are not ours to give are remembered.
    #[inline(never)]
    pub(super) fn free_place(
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

    /// The place of a port in a destination's index, if it has both.
    pub(super) fn place_of(&self, at: u32, port: u16) -> Option<usize> {
        let destination = self.destinations.get(at)?;
        self.place_in(destination.index.as_deref()?, destination, port)
    }

    pub(super) fn take_place(&mut self, at: u32, port: u16) {
        if let Some(place) = self.place_of(at, port)
            && let Some(index) = self.destinations.get_mut(at).and_then(|d| d.index.as_mut())
        {
            index.free.clear(place);
        }
    }

    pub(super) fn free_place_of(&mut self, at: u32, port: u16) {
        if let Some(place) = self.place_of(at, port)
            && let Some(index) = self.destinations.get_mut(at).and_then(|d| d.index.as_mut())
        {
            index.free.set(place);
        }
    }
}
