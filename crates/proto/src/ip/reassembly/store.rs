//! Owns where datagrams under way are kept, how one is found, and which is the oldest: places in a list, chained by hash and by age.

use super::{Datagram, Key};
use crate::time::Instant;

/// The place of a datagram that is under way.
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
    /// The oldest and the newest of each [`Age`].
    ages: [(u32, u32); 2],
    /// The first of the places without a datagram, chained like those of one hash.
    free: u32,
    len: usize,
    begun: u64,
}

/// Datagrams that are waited for equally long: their order is that of their beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Age {
    V6,
    V4,
}

#[derive(Debug)]
struct Place {
    key: Key,
    hash: u64,
    /// The next place of the same chain.
    next: u32,
    age: Age,
    /// Its neighbours in age.
    older: u32,
    newer: u32,
    /// How many had begun before.
    serial: u64,
    expires: Instant,
    datagram: Datagram,
}

impl Store {
    /// For so many datagrams.
    pub(super) fn new(most: usize) -> Self {
        let chains = vec![NONE; most.next_power_of_two()].into();
        Store { chains, places: Vec::new(), ages: [(NONE, NONE); 2], free: NONE, len: 0, begun: 0 }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.len
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

    /// Begins a datagram of a key that is not there yet, and will not be waited for beyond `expires`. It is made where it stays: what
    /// is large and must be moved there costs a flood more than all that is asked.
    pub(super) fn begin(&mut self, hash: u64, key: Key, (age, expires): (Age, Instant)) -> At {
        let at = self.free;
        let at = if at == NONE { self.further(key, age) } else { at };
        let chain = self.chain(hash);
        let (oldest, newest) = &mut self.ages[age as usize];
        let older = std::mem::replace(newest, at);
        if older == NONE {
            *oldest = at;
        } else {
            self.places[older as usize].newer = at;
        }
        let place = &mut self.places[at as usize];
        self.free = place.next;
        (place.key, place.hash, place.next) = (key, hash, self.chains[chain]);
        (place.age, place.older, place.newer) = (age, older, NONE);
        (place.serial, place.expires) = (self.begun, expires);
        self.chains[chain] = at;
        self.begun += 1;
        self.len += 1;
        At(at)
    }

    /// One place more.
    #[cold]
    fn further(&mut self, key: Key, age: Age) -> u32 {
        let datagram = Datagram::default();
        let (next, older, newer) = (NONE, NONE, NONE);
        self.places.push(Place { key, hash: 0, next, age, older, newer, serial: 0, expires: Instant::ZERO, datagram });
        (self.places.len() - 1) as u32
    }

    /// The datagram in this place.
    pub(super) fn get(&self, At(at): At) -> &Datagram {
        &self.places[at as usize].datagram
    }

    /// The same.
    pub(super) fn get_mut(&mut self, At(at): At) -> &mut Datagram {
        &mut self.places[at as usize].datagram
    }

    /// How many datagrams have begun since this one.
    pub(super) fn begun_since(&self, At(at): At) -> u64 {
        self.begun - self.places[at as usize].serial
    }

    /// The oldest of an age, and how long it is waited for.
    pub(super) fn oldest_of(&self, age: Age) -> Option<(At, Instant)> {
        let (oldest, _) = self.ages[age as usize];
        self.places.get(oldest as usize).map(|place| (At(oldest), place.expires))
    }

    /// The one that began first.
    pub(super) fn oldest(&self) -> Option<At> {
        let serial = |age: Age| {
            let (oldest, _) = self.ages[age as usize];
            self.places.get(oldest as usize).map_or((u64::MAX, NONE), |place| (place.serial, oldest))
        };
        let (_, at) = serial(Age::V6).min(serial(Age::V4));
        (at != NONE).then_some(At(at))
    }

    /// Ends it. What it leaves in its place is the caller's to take: what is not taken is there when the place is used again.
    pub(super) fn end(&mut self, At(at): At) -> &mut Datagram {
        let Place { hash, next, age, older, newer, .. } = self.places[at as usize];
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
        let (oldest, newest) = &mut self.ages[age as usize];
        match self.places.get_mut(older as usize) {
            Some(older) => older.newer = newer,
            None => *oldest = newer,
        }
        match self.places.get_mut(newer as usize) {
            Some(newer) => newer.older = older,
            None => *newest = older,
        }
        self.len -= 1;
        let place = &mut self.places[at as usize];
        place.next = std::mem::replace(&mut self.free, at);
        &mut place.datagram
    }

    /// All of them.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &Datagram> {
        [Age::V6, Age::V4].into_iter().flat_map(|age| {
            let first = self.ages[age as usize].0;
            let next = |at: &u32| self.places.get(*at as usize).map(|place| place.newer);
            std::iter::successors(Some(first), next).filter_map(|at| Some(&self.places.get(at as usize)?.datagram))
        })
    }
}
