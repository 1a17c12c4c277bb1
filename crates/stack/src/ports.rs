//! THE SEAM of ports: who chooses the local port of an active open, and how the chooser learns what became of it.
//!
//! A lane asks once per active open. The product's answer is [`LanePorts`]; any other is a value in its place, handed to
//! [`Host::new_with`](crate::host::Host::new_with), and sees the same calls. Why it is drawn here, and what it costs, is in
//! `docs/decisions/0014-ports-seam.md`.
//!
//! # The life of a claim
//! ```text
//! allocate ─┐                   ┌─▶ released          given up, refused, reset, closed, timed out
//!           ├─▶ Claim ──────────┤
//! adopt ────┘      ▲            └─▶ waits ─▶ released  TIME_WAIT, until reaped, evicted, or taken over by the peer
//!                  └── granted over its own TIME_WAIT record: the claim goes on, nothing is told
//! ```
//! Flows that a peer opened have no claim ([`Claim::NONE`]) and are never told of: a server pays nothing for any of this.

mod classes;
mod free_map;
mod lane;

pub use lane::LanePorts;

use crate::entropy::KeptKey;
use crate::steering::Steering;
use laneway_wire::flow::{Address, FlowKey};
use std::sync::Arc;

/// What an active open asks for.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Who owns which flow.
    pub steering: &'a Steering,
    /// The lane that asks, and to which the replies must come.
    pub lane: usize,
    /// Our address.
    pub local: Address,
    /// The peer's.
    pub remote: Address,
    /// The peer's port.
    pub remote_port: u16,
    /// 64 bits that were not used before (not secret).
    pub random: u64,
}

impl Ask<'_> {
    /// The flow that a port would make.
    #[inline]
    pub fn flow(&self, local_port: u16) -> FlowKey {
        FlowKey { local: self.local, remote: self.remote, local_port, remote_port: self.remote_port }
    }

    /// Whether replies to this port would come to the lane that asks, and no other lane can have a flow from it.
    #[inline]
    pub fn comes_home(&self, local_port: u16) -> bool {
        self.steering.may_choose(&self.flow(local_port), self.lane)
    }
}

/// What the flow table says of a candidate. Asking computes the flow's hash, once; a grant right after it is inserted under it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Probe {
    /// No such flow.
    Free,
    /// In TIME_WAIT, and old enough that RFC 6191 lets an active open of our own take it over.
    TimeWaitReusable,
    /// In use.
    Taken,
}

/// The chooser's own word for a flow that it granted: 30 bits, kept with the flow through all of its shapes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Claim(u32);

impl Claim {
    /// The flow is none of the chooser's business.
    pub const NONE: Claim = Claim(Claim::MASK);
    /// The largest word.
    pub const MAX: u32 = Claim::MASK - 1;
    const MASK: u32 = (1 << 30) - 1;

    /// A claim; `word` is at most [`MAX`](Self::MAX).
    #[inline]
    pub fn new(word: u32) -> Self {
        debug_assert!(word <= Claim::MAX, "a claim has 30 bits");
        Claim(word & Claim::MASK)
    }
    /// The word.
    #[inline]
    pub fn word(self) -> u32 {
        self.0
    }
    /// Packs two bits beside it, for records that have 32.
    #[inline]
    pub(crate) fn pack(self, two_bits: u8) -> u32 {
        self.0 | u32::from(two_bits) << 30
    }
    #[inline]
    pub(crate) fn unpack(packed: u32) -> (Self, u8) {
        (Claim(packed & Claim::MASK), (packed >> 30) as u8)
    }
}

/// A port, and the chooser's word for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// The port. The last [`Probe`] of the call was of it, and did not say [`Probe::Taken`].
    pub port: u16,
    /// Comes back in [`PortChoice::waits`] and [`PortChoice::released`].
    pub claim: Claim,
}

/// Every port that the asking lane may use towards that destination is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exhausted;

/// What choosing has cost, since the start. A chooser counts what it does; what it does not do stays 0.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tallies {
    /// Ports asked for.
    pub asks: u64,
    /// Asks that found none.
    pub exhausted: u64,
    /// Locks taken.
    pub locks: u64,
    /// Candidates that the flow table was asked about.
    pub probes: u64,
    /// Flow hashes computed: the probes' own, and whatever the chooser hashes whole flows for besides.
    pub flow_hashes: u64,
    /// Hashes of a destination (RFC 6056's F).
    pub destination_hashes: u64,
    /// Words of bitmaps read to find a port.
    pub words: u64,
    /// The most of them in one ask.
    pub words_max: u64,
    /// The most probes in one ask.
    pub probes_max: u64,
    /// Cache lines written that other cores write too.
    pub shared_lines_written: u64,
    /// Grants over a TIME_WAIT record.
    pub reused: u64,
    /// Indexes made anew from the list of claims.
    pub rebuilt: u64,
}

impl Tallies {
    /// Adds another chooser's; the maxima become the larger ones.
    pub fn merge(&mut self, other: &Tallies) {
        self.asks += other.asks;
        self.exhausted += other.exhausted;
        self.locks += other.locks;
        self.probes += other.probes;
        self.flow_hashes += other.flow_hashes;
        self.destination_hashes += other.destination_hashes;
        self.words += other.words;
        self.words_max = self.words_max.max(other.words_max);
        self.probes_max = self.probes_max.max(other.probes_max);
        self.shared_lines_written += other.shared_lines_written;
        self.reused += other.reused;
        self.rebuilt += other.rebuilt;
    }
}

/// One destination as one lane sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slice {
    /// The lane.
    pub lane: usize,
    /// Our address.
    pub local: Address,
    /// The peer's address.
    pub remote: Address,
    /// The peer's port.
    pub remote_port: u16,
    /// Ports of the range whose replies come to this lane.
    pub owned: usize,
    /// Of those, in use by connections.
    pub in_use: usize,
    /// Of those, in TIME_WAIT.
    pub time_wait: usize,
    /// Of those, kept out by `bind`.
    pub reserved: usize,
    /// An index of the free ones exists (made above 64 connections).
    pub indexed: bool,
}

/// Chooses local ports.
pub trait PortChoice: Send {
    /// The name on the command line and in results.
    fn name(&self) -> &'static str;

    /// A port for a new flow whose replies come to the lane that asks. `probe` asks the flow table about a candidate; the
    /// one that is granted must be the last one asked about.
    ///
    /// A port whose probe said [`Probe::TimeWaitReusable`] may be granted: its record then ends without a word, so a chooser
    /// that had given it a claim gives that claim again or forgets it by itself.
    fn allocate(&mut self, ask: &Ask<'_>, probe: &mut dyn FnMut(&FlowKey) -> Probe) -> Result<Grant, Exhausted>;

    /// A flow from a port of the application's choice: it is in use from now on. The flow table has agreed.
    fn adopt(&mut self, ask: &Ask<'_>, port: u16) -> Claim;

    /// The flow of a claim has gone into TIME_WAIT, or its wait has begun anew. `reusable`: RFC 6191 may allow it to be taken
    /// over, once it is old enough.
    fn waits(&mut self, claim: Claim, flow: &FlowKey, reusable: bool);

    /// The flow of a claim is gone.
    fn released(&mut self, claim: Claim, flow: &FlowKey);

    /// Somebody has bound this port: it must not be granted any more.
    fn reserve(&mut self, port: u16);

    /// Nobody has it bound any more. `claim_of` tells the claim of a flow, if it exists and has one.
    fn unreserve(&mut self, port: u16, claim_of: &mut dyn FnMut(&FlowKey) -> Claim);

    /// What it has cost so far.
    fn tallies(&self) -> Tallies;

    /// The destination at a place, if one is there that is in use: for listings, in constant time. A destination keeps its
    /// place for as long as it is in use.
    fn slice(&self, place: u32) -> Option<Slice> {
        let _ = place;
        None
    }

    /// All destinations are at places before this one.
    fn slices_end(&self) -> u32 {
        0
    }

    /// Bytes that it holds.
    fn bytes(&self) -> usize;
}

/// What a chooser is made of.
#[derive(Clone, Debug)]
pub struct PortParts {
    /// `ip_local_port_range`: first and last.
    pub range: (u16, u16),
    /// `ip_local_reserved_ports`: never granted.
    pub reserved: Arc<[u16]>,
    /// The secret of RFC 6056.
    pub key: KeptKey,
    /// Who owns which flow.
    pub steering: Steering,
}

#[cfg(test)]
mod tests;
