//! Owns UDP sockets on a lane: who gets a datagram, and what waits to be sent.

use crate::app::UdpId;
use crate::binding::Binding;
use crate::counters::{Counters, Mib};
use crate::snapshot::Snapshot;
use laneway_proto::udp::PAYLOAD_MAX;
use laneway_wire::flow::Address;
use std::collections::VecDeque;
use std::net::SocketAddr;

/// Datagrams that wait for the end of the poll.
const QUEUE_MAX: usize = 256;
/// The longest payload of a datagram to `to`: what IPv4's length field of 16 bits leaves beside both headers. IPv6, whose field does
/// not count its own header of 40 bytes, is held to as much with that: fragments make up no more.
pub fn payload_max(to: &SocketAddr) -> usize {
    if to.ip().to_canonical().is_ipv4() { PAYLOAD_MAX } else { PAYLOAD_MAX - 20 }
}

struct Socket {
    id: UdpId,
    binding: Binding,
    port: u16,
}

/// A datagram to go out.
pub struct Outgoing {
    /// From.
    pub local: Address,
    /// From.
    pub local_port: u16,
    /// To.
    pub remote: Address,
    /// To.
    pub remote_port: u16,
    /// Bytes.
    pub data: Vec<u8>,
}

/// The sockets of one lane.
#[derive(Default)]
pub struct UdpSockets {
    sockets: Vec<Socket>,
    /// What waits to be sent.
    pub outgoing: VecDeque<Outgoing>,
}

impl UdpSockets {
    /// Binds a socket under an id that the control thread chose.
    pub fn bind(&mut self, id: UdpId, binding: Binding, port: u16) {
        self.sockets.push(Socket { id, binding, port });
    }

    /// Unbinds it.
    pub fn unbind(&mut self, id: UdpId) {
        self.sockets.retain(|s| s.id != id);
    }

    /// Whether a socket is bound under this id.
    pub(crate) fn has(&self, id: UdpId) -> bool {
        self.sockets.iter().any(|s| s.id == id)
    }

    /// Who gets a datagram for this address and port: an exact binding before one for any address of the family, before one
    /// for any of both. Of a group (`SO_REUSEPORT`) the hash of the flow chooses; of others that share an address
    /// (`SO_REUSEADDR`) the one that was bound last.
    pub fn find(&self, address: &Address, port: u16, hash: u64) -> Option<UdpId> {
        let ranked = |s: &&Socket| if s.port == port { s.binding.rank(address) } else { 0 };
        let rank = self.sockets.iter().map(|s| ranked(&s)).max().filter(|rank| *rank > 0)?;
        let best = || self.sockets.iter().filter(|s| ranked(s) == rank);
        let last = best().next_back()?;
        let group = || best().filter(|s| s.binding.options.reuse_port);
        let members = group().count() as u64;
        if members > 1 && last.binding.options.reuse_port {
            return group().nth((hash % members) as usize).map(|s| s.id);
        }
        Some(last.id)
    }

    pub(crate) fn send(
        &mut self,
        id: UdpId,
        to: SocketAddr,
        data: &[u8],
        snapshot: &Snapshot,
        counters: &mut Counters,
    ) -> bool {
        let Some(socket) = self.sockets.iter().find(|s| s.id == id) else { return false };
        if data.len() > payload_max(&to) {
            return false;
        }
        if self.outgoing.len() >= QUEUE_MAX {
            counters.count(Mib::UdpSndbufErrors);
            return false;
        }
        let remote = Address::from(to.ip());
        if !snapshot.addresses.can_be_remote(&remote) {
            return false;
        }
        let address = socket.binding.address;
        let local = if address.is_unspecified() {
            let by_route = snapshot.routes.lookup(remote).and_then(|route| route.source);
            by_route.or_else(|| snapshot.addresses.iter().find(|a| a.is_v4() == remote.is_v4()).copied())
        } else {
            Some(address)
        };
        let Some(local) = local else { return false };
        // From an address that it does not have, nobody could answer it; and one packet has one family.
        if local.is_v4() != remote.is_v4() || !socket.binding.takes(&local) {
            return false;
        }
        self.outgoing.push_back(Outgoing {
            local,
            local_port: socket.port,
            remote,
            remote_port: to.port(),
            data: data.to_vec(),
        });
        true
    }
}
