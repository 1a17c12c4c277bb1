//! Owns where datagrams under way are kept, and how one is found: places in a list, chained by hash.

use super::{Datagram, Key};

/// The place of a datagram. It may hold another by now: its serial tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct At(u32);

/// The end of a chain.
const NONE: u32 = u32::MAX;

/// Datagrams by key, as many at the most as it was made for.
#[derive(Debug)]
pub(super) struct Store {
    /// The first place of each chain; a power of two of them, at least as many as datagrams.
    chains: Box<[u32]>,
    places: Vec<Place>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Place {
    key: Key,
    hash: u64,
    /// The next place of the same chain.
    next: u32,
    datagram: Option<Datagram>,
}

impl Store {
    /// For so many datagrams.
    pub(super) fn new(most: usize) -> Self {
        Store { chains: vec![NONE; most.next_power_of_two()].into(), places: Vec::new(), free: Vec::new() }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    fn chain(&self, hash: u64) -> usize {
        hash as usize & (self.chains.len() - 1)
    }

    /// Where the datagram of `key` is.
    pub(super) fn find(&self, hash: u64, key: &Key) -> Option<At> {
        let mut at = self.chains[self.chain(hash)];
        while let Some(place) = self.places.get(at as usize) {
            if place.hash == hash && place.key == *key {
                return Some(At(at));
            }
            at = place.next;
        }
        None
    }

    /// Keeps a datagram of a key that is not there yet.
    pub(super) fn insert(&mut self, hash: u64, key: Key, datagram: Datagram) -> At {
        let chain = self.chain(hash);
        let place = Place { key, hash, next: self.chains[chain], datagram: Some(datagram) };
        let at = match self.free.pop() {
            Some(at) => {
                self.places[at as usize] = place;
                at
            }
            None => {
                self.places.push(place);
                (self.places.len() - 1) as u32
            }
        };
        self.chains[chain] = at;
        At(at)
    }

    /// The datagram in this place.
    pub(super) fn get(&self, at: At) -> Option<&Datagram> {
        self.places.get(at.0 as usize)?.datagram.as_ref()
    }

    /// The same.
    pub(super) fn get_mut(&mut self, at: At) -> Option<&mut Datagram> {
        self.places.get_mut(at.0 as usize)?.datagram.as_mut()
    }

    /// Takes it out.
    pub(super) fn remove(&mut self, At(at): At) -> Option<Datagram> {
        let place = self.places.get_mut(at as usize)?;
        let datagram = place.datagram.take()?;
        let (hash, next) = (place.hash, place.next);
        let chain = self.chain(hash);
        if self.chains[chain] == at {
            self.chains[chain] = next;
        } else {
            let mut before = self.chains[chain];
            while self.places[before as usize].next != at {
                before = self.places[before as usize].next;
            }
            self.places[before as usize].next = next;
        }
        self.free.push(at);
        Some(datagram)
    }

    /// All of them.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &Datagram> {
        self.places.iter().filter_map(|place| place.datagram.as_ref())
    }
}
