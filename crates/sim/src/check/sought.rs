//! Owns whom a host has asked for on its link without having heard of them since: what it says to them may wait for an answer, and is
//! lost if there is none (RFC 4861 section 7.2.2; ARP has taken the same rule).

use laneway_wire::flow::Address;
use laneway_wire::icmpv6::Message;
use laneway_wire::ndp::Message::{NeighbourAdvert, NeighbourSolicit};
use laneway_wire::{arp, ethernet, ipv6, protocol};
use std::collections::{HashMap, HashSet};

/// By host.
#[derive(Default)]
pub struct Sought {
    neighbours: [HashSet<Address>; 2],
    /// When each was asked for last.
    asked_us: [HashMap<Address, u64>; 2],
    /// When one of them was heard of last.
    answered_us: [u64; 2],
}

impl Sought {
    /// A host sends what is not TCP.
    pub fn on_sent(&mut self, host: usize, now_us: u64, frame: &[u8]) {
        if let Some((_, Some(target))) = read(frame) {
            self.asked_us[host].insert(target, now_us);
            self.neighbours[host].insert(target);
        }
    }

    /// Something other than TCP has reached a host.
    pub fn on_arrived(&mut self, host: usize, now_us: u64, frame: &[u8]) {
        if let Some((speaker, _)) = read(frame)
            && self.neighbours[host].remove(&speaker)
        {
            self.answered_us[host] = now_us;
        }
    }

    /// When a host last heard of a neighbour that it sought.
    pub fn answered_us(&self, host: usize) -> u64 {
        self.answered_us[host]
    }

    /// Whether a host has asked for a neighbour since then: some of what it has said since may have been lost unseen.
    pub fn was_sought(&self, host: usize, neighbour: &Address, since_us: u64) -> bool {
        self.asked_us[host].get(neighbour).is_some_and(|at_us| *at_us >= since_us)
    }

    /// Whether a host waits for a word of this neighbour.
    pub fn is_sought(&self, host: usize, neighbour: &Address) -> bool {
        self.neighbours[host].contains(neighbour)
    }
}

/// Of ARP and neighbour discovery: who tells of his link address, and whom he asks for.
fn read(frame: &[u8]) -> Option<(Address, Option<Address>)> {
    let (header, rest) = frame.split_at_checked(ethernet::HEADER_LEN)?;
    if header[12..] == [0x08, 0x06] {
        let packet = arp::Packet::parse(rest).ok()?;
        return Some((packet.sender, (packet.operation == arp::Operation::Request).then_some(packet.target)));
    }
    let packet = (header[12..] == [0x86, 0xdd]).then(|| ipv6::View::new(rest).ok())??;
    if packet.next_header() != protocol::ICMPV6 {
        return None;
    }
    match Message::parse(packet.payload(), &packet.src(), &packet.dst()).ok()? {
        Message::Ndp(NeighbourSolicit { target, .. }) => Some((packet.src(), Some(target))),
        Message::Ndp(NeighbourAdvert { target, .. }) => Some((target, None)),
        _ => None,
    }
}
