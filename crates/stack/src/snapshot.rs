//! Owns what the control thread publishes and lanes read: addresses, routes, neighbours. Immutable; replaced whole.

use hashbrown::HashMap;
use laneway_proto::ip::remote;
use laneway_proto::ip::route::{Changes, RouteTable};
use laneway_wire::ethernet::Mac;
use laneway_wire::flow::Address;
use std::sync::Arc;

/// One state of the world, as a lane sees it for a poll. A lane takes a newer one only between its rx batch and the
/// first look at a frame, so a frame never meets an older world than the one it was sent into.
#[derive(Clone, Default)]
pub struct Snapshot {
    /// Grows with every publication.
    pub generation: u64,
    /// Our addresses.
    pub addresses: Arc<AddressSet>,
    /// Where to send.
    pub routes: Arc<RouteTable>,
    /// Link addresses of next hops; `None` for one that did not answer.
    pub neighbours: Arc<HashMap<Address, Option<Mac>>>,
    /// What of this is new.
    pub news: Arc<News>,
}

impl Snapshot {
    /// The address of ours by which we speak to `to` if nobody has chosen another: that of the route there, for whoever is beside us in one network
    /// need know no way to another one of ours.
    pub fn source(&self, to: &Address) -> Option<Address> {
        let any = || self.addresses.iter().find(|address| address.is_v4() == to.is_v4()).copied();
        self.routes.lookup(*to).and_then(|route| route.source).or_else(any)
    }

    /// Makes this the one that is published after `before`, and says what is new in it.
    pub fn follow(&mut self, before: &Snapshot) {
        let same = Arc::ptr_eq(&self.routes, &before.routes);
        let routes = if same { Changes::default() } else { self.routes.changes_since(&before.routes) };
        let beside =
            !Arc::ptr_eq(&self.addresses, &before.addresses) || !Arc::ptr_eq(&self.neighbours, &before.neighbours);
        self.news = Arc::new(News { since: before.generation, routes, beside });
        self.generation = before.generation + 1;
    }
}

/// What a snapshot has that the one published before it has not. A lane that knows that one need not look at what is as it was.
#[derive(Default)]
pub struct News {
    /// The generation of the one before.
    pub since: u64,
    /// Where other routes lead than before.
    pub routes: Changes,
    /// Addresses or neighbours may have changed.
    pub beside: bool,
}

/// A set of addresses that is asked for each packet: an open-addressed table at most a quarter full. On lines of its own: with each
/// snapshot that is published the control thread writes the count beside it of those who have it.
#[repr(align(128))]
pub struct AddressSet {
    places: Box<[Address]>,
    /// Those of IPv4 among them again, as four bytes: nearly every packet asks for one of these. 0 is an empty place.
    places_v4: Box<[u32]>,
    /// One of these; 0 if there is none.
    first_v4: u32,
    all: Vec<Address>,
    /// The same with the broadcast addresses of our networks: what no other host has.
    taken: Box<[Address]>,
    /// Those of IPv4 among them, as four bytes: every packet that belongs to no flow asks for one of these.
    taken_v4: Box<[u32]>,
}

impl Default for AddressSet {
    fn default() -> Self {
        AddressSet::new(&[])
    }
}

/// A place for an address in a small table. Not secret: both tables are of our own addresses and paths.
#[inline]
fn mix(address: &Address) -> usize {
    (u64::from(address.folded()).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize
}

/// A place for a pair of addresses.
#[inline]
pub(crate) fn mix_pair(a: &Address, b: &Address) -> usize {
    (mix_pair_wide(a, b) >> 40) as usize
}

/// What that is made of.
#[inline]
pub(crate) fn mix_pair_wide(a: &Address, b: &Address) -> u64 {
    // Both halves of the product, because the lower one's bits know nothing of the upper ones of what was multiplied.
    let both = a.folded_wide().rotate_left(32) ^ b.folded_wide();
    let product = u128::from(both) * 0x9e37_79b9_7f4a_7c15;
    product as u64 ^ (product >> 64) as u64
}

/// Marks an empty place: no host has the unspecified address.
const EMPTY: Address = Address::UNSPECIFIED_V6;

/// A table of these addresses, no two of which are the same.
fn spread(all: &[Address]) -> Box<[Address]> {
    let mut places = vec![EMPTY; (all.len() * 4).next_power_of_two().max(16)].into_boxed_slice();
    for address in all {
        let mut at = mix(address) & (places.len() - 1);
        while places[at] != EMPTY {
            at = (at + 1) & (places.len() - 1);
        }
        places[at] = *address;
    }
    places
}

#[inline]
fn is_in(places: &[Address], address: &Address) -> bool {
    let mask = places.len() - 1;
    let mut at = mix(address) & mask;
    loop {
        // There is always an empty place, so this ends.
        let place = &places[at & mask];
        if place == address {
            return *address != EMPTY;
        }
        if *place == EMPTY {
            return false;
        }
        at += 1;
    }
}

/// A table of the IPv4 addresses among these.
fn spread_v4(all: &[Address]) -> Box<[u32]> {
    let all: Vec<[u8; 4]> = all.iter().filter(|address| address.is_v4()).map(Address::octets_v4).collect();
    let mut places = vec![0; (all.len() * 4).next_power_of_two().max(16)].into_boxed_slice();
    for octets in all {
        let mut at = mix_v4(octets) & (places.len() - 1);
        while places[at] != 0 {
            at = (at + 1) & (places.len() - 1);
        }
        places[at] = word_v4(octets);
    }
    places
}

/// An IPv4 address as the table has it.
#[inline(always)]
fn word_v4(octets: [u8; 4]) -> u32 {
    u32::from_ne_bytes(octets)
}

/// A place for an IPv4 address.
#[inline]
fn mix_v4(octets: [u8; 4]) -> usize {
    (u64::from(word_v4(octets)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize
}

#[inline(always)]
fn is_in_v4(places: &[u32], octets: [u8; 4]) -> bool {
    let (word, mask) = (word_v4(octets), places.len() - 1);
    let mut at = mix_v4(octets);
    loop {
        // There is always an empty place, so this ends.
        let place = places[at & mask];
        if place == word || place == 0 {
            return place != 0;
        }
        at += 1;
    }
}

impl AddressSet {
    /// A set of these addresses.
    pub fn new(addresses: &[Address]) -> Self {
        let mut all = addresses.to_vec();
        all.retain(|address| !address.is_unspecified());
        all.sort_by_key(|a| a.octets());
        all.dedup();
        let places = spread(&all);
        let places_v4 = spread_v4(&all);
        let first_v4 = all.iter().find(|address| address.is_v4()).map_or(0, |address| word_v4(address.octets_v4()));
        AddressSet { taken: places.clone(), taken_v4: places_v4.clone(), places, places_v4, first_v4, all }
    }

    /// A set of the addresses that we have in these networks, each with the length of its prefix.
    pub fn in_networks(networks: &[(Address, u8)]) -> Self {
        let addresses: Vec<Address> = networks.iter().map(|(address, _)| *address).collect();
        let mut set = AddressSet::new(&addresses);
        let broadcasts = networks.iter().filter_map(|(address, len)| remote::directed_broadcast(address, *len));
        let mut taken: Vec<Address> = set.all.iter().copied().chain(broadcasts).collect();
        taken.sort_by_key(|a| a.octets());
        taken.dedup();
        (set.taken, set.taken_v4) = (spread(&taken), spread_v4(&taken));
        set
    }

    /// Whether this is one of ours. The unspecified address never is.
    #[inline]
    pub fn contains(&self, address: &Address) -> bool {
        match address.is_v4() {
            true => self.contains_v4(address.octets_v4()),
            false => is_in(&self.places, address),
        }
    }

    /// The same for IPv4.
    #[inline(always)]
    pub fn contains_v4(&self, octets: [u8; 4]) -> bool {
        // Most hosts have one, others a few, each in the place where it is looked for first; and 0 is no address.
        let (word, first) = (word_v4(octets), mix_v4(octets) & (self.places_v4.len() - 1));
        word != 0 && (word == self.first_v4 || word == self.places_v4[first] || self.is_another_v4(octets))
    }

    #[inline(never)]
    fn is_another_v4(&self, octets: [u8; 4]) -> bool {
        is_in_v4(&self.places_v4, octets)
    }

    /// Whether another host can have this address.
    #[inline(always)]
    pub fn can_be_remote(&self, address: &Address) -> bool {
        remote::can_be_remote(address, |address| match address.is_v4() {
            true => is_in_v4(&self.taken_v4, address.octets_v4()),
            false => is_in(&self.taken, address),
        })
    }

    /// Whether this means every host of a network of ours: 255.255.255.255, or the network's own broadcast address. None of our addresses does.
    pub fn means_all(&self, address: &Address) -> bool {
        // What no other host has, and we have not either, is the broadcast address of a network of ours.
        let is_taken = || is_in_v4(&self.taken_v4, address.octets_v4());
        address.is_v4() && (address.is_broadcast() || is_taken()) && !self.contains(address)
    }

    /// Every address, sorted.
    pub fn iter(&self) -> impl Iterator<Item = &Address> {
        self.all.iter()
    }

    /// Whether an IPv6 solicited-node or all-nodes group, or an IPv4 broadcast, is one that we listen to. It is none of our own addresses.
    pub fn joins(&self, group: &Address) -> bool {
        if group.is_v4() {
            return self.means_all(group);
        }
        let octets = group.octets();
        let all_nodes = octets[..2] == [0xff, 0x02] && octets[2..15].iter().all(|&b| b == 0) && octets[15] == 1;
        let solicited = octets[..13] == [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff];
        all_nodes || (solicited && self.all.iter().any(|a| !a.is_v4() && a.octets()[13..] == octets[13..]))
    }
}

#[cfg(test)]
mod tests;
