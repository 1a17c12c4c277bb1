//! Owns the choice of a local port for `connect`: RFC 6056, from the slice of ports whose replies hash to this lane.

use crate::steering::Steering;
use laneway_wire::flow::{Address, FlowKey};
use laneway_wire::keyed_hash::HashKey;

/// Counters of RFC 6056 section 3.3.4, indexed by a second hash of the destination.
const PERTURBATIONS: usize = 1_024;

/// The ephemeral ports of one lane.
pub struct Ports {
    first: u16,
    count: u32,
    key: HashKey,
    perturb: Box<[u32; PERTURBATIONS]>,
    lane: usize,
}

/// Every port of the slice is taken, towards that destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exhausted;

impl Ports {
    /// The slice of `lane` of the ports `range.0..=range.1`.
    pub fn new(range: (u16, u16), key: HashKey, lane: usize) -> Self {
        let first = range.0.max(1);
        let count = u32::from(range.1.max(first) - first) + 1;
        Ports { first, count, key, perturb: Box::new([0; PERTURBATIONS]), lane }
    }

    /// A port for a new flow. `is_free` is asked of each candidate that would come home to this lane.
    pub fn allocate(
        &mut self,
        steering: &Steering,
        local: Address,
        remote: Address,
        remote_port: u16,
        step: u32,
        mut is_free: impl FnMut(&FlowKey) -> bool,
    ) -> Result<u16, Exhausted> {
        let mut key = FlowKey { local, remote, local_port: 0, remote_port };
        let hash = key.hash(&self.key);
        let perturb = &mut self.perturb[(hash >> 32) as usize % PERTURBATIONS];
        // RFC 6056 section 3.3.4: an offset that only we know for this destination, and a counter shared by few.
        let start = (hash as u32).wrapping_add(*perturb) % self.count;
        for i in 0..self.count {
            let at = start + i;
            let at = if at >= self.count { at - self.count } else { at };
            key.local_port = self.first + at as u16;
            if steering.lane(&key) == self.lane && is_free(&key) {
                *perturb = perturb.wrapping_add(i + 1 + step);
                return Ok(key.local_port);
            }
        }
        Err(Exhausted)
    }
}
