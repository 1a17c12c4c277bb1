//! Owns the product's choice of ports.

use super::{Ask, Claim, Exhausted, Grant, PortChoice, PortParts, Probe, Tallies};
use laneway_wire::flow::FlowKey;

/// Counters of RFC 6056 section 3.3.4, indexed by a second hash of the destination.
const PERTURBATIONS: usize = 1_024;

/// The ephemeral ports of a lane.
pub struct LanePorts {
    parts: PortParts,
    count: u32,
    perturb: Box<[u32; PERTURBATIONS]>,
    bound: Vec<u16>,
    tallies: Tallies,
}

impl LanePorts {
    /// All free.
    pub fn new(parts: PortParts) -> Self {
        let count = u32::from(parts.range.1.max(parts.range.0) - parts.range.0) + 1;
        LanePorts {
            parts,
            count,
            perturb: Box::new([0; PERTURBATIONS]),
            bound: Vec::new(),
            tallies: Tallies::default(),
        }
    }
}

impl PortChoice for LanePorts {
    fn name(&self) -> &'static str {
        "lane"
    }

    fn allocate(&mut self, ask: &Ask<'_>, probe: &mut dyn FnMut(&FlowKey) -> Probe) -> Result<Grant, Exhausted> {
        self.tallies.asks += 1;
        let hash = ask.flow(ask.lane as u16).hash(&self.parts.key);
        let perturb = &mut self.perturb[(hash >> 32) as usize % PERTURBATIONS];
        // RFC 6056 section 3.3.4: an offset that only we know for this destination, and a counter shared by few.
        let start = (hash as u32).wrapping_add(*perturb) % self.count;
        for i in 0..self.count {
            let port = self.parts.range.0 + ((start + i) % self.count) as u16;
            if !ask.comes_home(port) || self.bound.contains(&port) || self.parts.reserved.contains(&port) {
                continue;
            }
            if probe(&ask.flow(port)) != Probe::Taken {
                *perturb = perturb.wrapping_add(i + 1 + u32::from(ask.random.is_multiple_of(8)));
                return Ok(Grant { port, claim: Claim::NONE });
            }
        }
        self.tallies.exhausted += 1;
        Err(Exhausted)
    }

    fn adopt(&mut self, _: &Ask<'_>, _: u16) -> Claim {
        Claim::NONE
    }

    fn waits(&mut self, _: Claim, _: &FlowKey, _: bool) {}

    fn released(&mut self, _: Claim, _: &FlowKey) {}

    fn reserve(&mut self, port: u16) {
        self.bound.push(port);
    }

    fn unreserve(&mut self, port: u16, _: &mut dyn FnMut(&FlowKey) -> Probe) {
        self.bound.retain(|bound| *bound != port);
    }

    fn tallies(&self) -> Tallies {
        self.tallies
    }

    fn bytes(&self) -> usize {
        size_of_val(&*self.perturb)
    }
}
