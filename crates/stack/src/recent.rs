//! Owns where flows were found last: a look that is right nearly always, before the index is asked.
//!
//! path: `device::rx → ingress → ethernet → ip::input → [demux] → tcp::input → tcp::state → tcp::output → ip::output → egress → device::tx`
//!
//! The index needs a hash under a secret, because whoever could choose what collides in it could make it slow. Here nothing can:
//! each place holds one handle, what is found is compared with the flow, and a miss costs the look. So its hash is no secret, and
//! costs a tenth. Connections and half-open entries are noted here; a flood of SYNs from invented flows can take the places away
//! from others, which are then looked up as if there were none.

use crate::tables::Handle;
use laneway_sync::prefetch::prefetch_line;

/// Places at the most, of 8 bytes: with what else is touched for a packet they stay in a core's cache.
const PLACES_MAX: usize = 1 << 14;
const PLACES_MIN: usize = 1 << 12;
/// So many for each connection: of nine, one has its place taken by another then.
const PLACES_EACH: usize = 4;
/// Of bits, which are as many as there are places at the most.
const WORDS: usize = PLACES_MAX / 64;

/// Handles by [`FlowKey::mix`](laneway_wire::flow::FlowKey::mix).
pub struct RecentFlows {
    /// The upper half of the mix, then the handle.
    places: Box<[u64]>,
    /// For each place the keyed hash of the flow that was noted there last as half open. (A connection keeps its own; a half-open entry is to be
    /// small, and has no room for it.)
    hashes: Box<[u64]>,
    /// A bit for those under whose mix one was noted last that is half open. Strangers are told by it from whoever is on the way in: it stays at hand,
    /// where the places do not.
    half_open: Box<[u64; WORDS]>,
}

impl RecentFlows {
    /// For about so many connections.
    pub fn new(connections: usize) -> Self {
        let places = connections.saturating_mul(PLACES_EACH).clamp(PLACES_MIN, PLACES_MAX).next_power_of_two();
        let zeroed = || vec![0; places].into_boxed_slice();
        RecentFlows { places: zeroed(), hashes: zeroed(), half_open: Box::new([0; WORDS]) }
    }

    /// Asks for the line that [`find`](Self::find) will read.
    #[inline(always)]
    pub fn prefetch(&self, mix: u64) {
        prefetch_line(self.places.as_ptr().wrapping_add(mix as usize & (self.places.len() - 1)));
    }

    /// What was noted last under this mix, or under another that looks much alike.
    #[inline(always)]
    pub fn find(&self, mix: u64) -> Option<Handle> {
        let place = self.places[mix as usize & (self.places.len() - 1)];
        (place >> 32 == mix >> 32).then(|| Handle::from_raw(place as u32))
    }

    /// Notes where a flow of this mix is.
    #[inline]
    pub fn note(&mut self, mix: u64, handle: Handle) {
        self.put(mix, handle);
        let (word, bit) = bit(mix);
        self.half_open[word] &= !bit;
    }

    #[inline(always)]
    fn put(&mut self, mix: u64, handle: Handle) {
        let mask = self.places.len() - 1;
        self.places[mix as usize & mask] = mix >> 32 << 32 | u64::from(handle.raw());
    }

    /// Whether one that is half open was noted last under this mix, or under another that looks much alike.
    #[inline(always)]
    pub fn is_half_open(&self, mix: u64) -> bool {
        let (word, bit) = bit(mix);
        self.half_open[word] & bit != 0 && self.find(mix).is_some()
    }

    /// The same of one that is half open, with its keyed hash, which the next packet of its handshake needs again.
    #[inline]
    pub fn note_half_open(&mut self, mix: u64, handle: Handle, hash: u64) {
        self.put(mix, handle);
        let (word, bit) = bit(mix);
        self.half_open[word] |= bit;
        let mask = self.hashes.len() - 1;
        self.hashes[mix as usize & mask] = hash;
    }

    /// The keyed hash of a flow that is half open and has this mix and handle, if both are what was noted last. Whoever gives a handle to a flow
    /// notes it, so this is no hash of an earlier flow that had the same handle.
    #[inline(always)]
    pub fn hash_of_half_open(&self, mix: u64, handle: Handle) -> Option<u64> {
        (self.find(mix) == Some(handle)).then(|| self.hashes[mix as usize & (self.hashes.len() - 1)])
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.places) + size_of_val(&*self.hashes) + size_of_val(&*self.half_open)
    }
}

/// Where it is known whether one was noted last under this mix that is half open.
#[inline(always)]
fn bit(mix: u64) -> (usize, u64) {
    (mix as usize / 64 % WORDS, 1 << (mix % 64))
}

#[cfg(test)]
mod tests;
