//! Owns UDP sockets on a lane: who gets a datagram, and what waits to be sent.

use crate::app::UdpId;
use crate::counters::{Counters, Mib};
use crate::snapshot::Snapshot;
use laneway_wire::flow::Address;
use std::collections::VecDeque;
use std::net::SocketAddr;

/// Datagrams that wait for the end of the poll.
const QUEUE_MAX: usize = 256;
/// The longest payload: what fits a length field of 16 bits with the header.
const PAYLOAD_MAX: usize = 65_507;

struct Socket {
    id: UdpId,
    address: Address,
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
    pub fn bind(&mut self, id: UdpId, address: Address, port: u16) {
        self.sockets.push(Socket { id, address, port });
    }

    /// Unbinds it.
    pub fn unbind(&mut self, id: UdpId) {
        self.sockets.retain(|s| s.id != id);
    }

    /// Who gets a datagram for this address and port: an exact binding before one for any address.
    pub fn find(&self, address: &Address, port: u16) -> Option<UdpId> {
        let mut any = None;
        for socket in self.sockets.iter().filter(|s| s.port == port) {
            if socket.address == *address {
                return Some(socket.id);
            }
            if socket.address == Address::UNSPECIFIED_V6
                || (socket.address == Address::UNSPECIFIED_V4 && address.is_v4())
            {
                any = Some(socket.id);
            }
        }
        any
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
        if data.len() > PAYLOAD_MAX || self.outgoing.len() >= QUEUE_MAX {
            counters.count(Mib::UdpInErrors);
            return false;
        }
        let remote = Address::from(to.ip());
        let local = if socket.address.is_unspecified() {
            let by_route = snapshot.routes.lookup(remote).and_then(|route| route.source);
            by_route.or_else(|| snapshot.addresses.iter().find(|a| a.is_v4() == remote.is_v4()).copied())
        } else {
            Some(socket.address)
        };
        let Some(local) = local else { return false };
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
