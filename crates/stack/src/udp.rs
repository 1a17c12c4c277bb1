//! Owns UDP sockets on a lane: who gets a datagram, and what waits to be sent.

#[cfg(test)]
mod tests;

use crate::app::UdpId;
use crate::binding::{Binding, RANK_MAX};
use crate::counters::{Counters, Mib};
use crate::snapshot::Snapshot;
use laneway_proto::ip::output::Marks;
use laneway_proto::udp::PAYLOAD_MAX;
use laneway_wire::flow::{Address, FlowKey};
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

/// Datagrams that wait for the end of the poll.
const QUEUE_MAX: usize = 256;
/// The longest payload of a datagram to `to`: what the length field of 16 bits leaves beside the header of UDP, and that of IPv4, which it
/// counts as well.
pub fn payload_max(to: &SocketAddr) -> usize {
    if to.ip().to_canonical().is_ipv4() { PAYLOAD_MAX - 20 } else { PAYLOAD_MAX }
}

struct Socket {
    id: UdpId,
    binding: Binding,
    /// It is about to be unbound, and until then sends what it has to say: what comes is for whoever has its port by now.
    is_closed: bool,
}

/// What an application makes of a datagram that it is told of.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Fate {
    /// It takes it.
    #[default]
    Taken,
    /// Those before it fill the socket.
    NoRoom,
    /// The socket does not hear who has sent it.
    Unheard,
}

/// What a socket of threads was when a datagram was sent from it.
#[derive(Clone, Copy)]
pub(crate) struct Sender {
    /// Where it was bound, or what connecting it had made of that.
    pub(crate) address: IpAddr,
    pub(crate) marks: Marks,
}

/// What an application has a socket send.
pub(crate) struct Sending<'a> {
    /// The address that the socket has been given since it was bound; if it is none of ours for `to`, that to which it is bound, or the one that the
    /// route says.
    pub(crate) from: Address,
    pub(crate) to: SocketAddr,
    /// That may be a broadcast address.
    pub(crate) to_all: bool,
    pub(crate) marks: Marks,
    pub(crate) data: &'a [u8],
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
    /// Of its packet.
    pub marks: Marks,
    /// Bytes.
    pub data: Vec<u8>,
}

/// The sockets of one lane.
#[derive(Default)]
pub struct UdpSockets {
    /// Those of each port, in the order in which they were bound: a datagram asks no others.
    by_port: BTreeMap<u16, Vec<Socket>>,
    /// The port of each, by name.
    ports: BTreeMap<u16, u16>,
    /// Those from which more may be sent after they are unbound, by name: with the port, once they are.
    leaving: BTreeMap<u16, Option<(u16, Socket)>>,
    /// What waits to be sent.
    pub outgoing: VecDeque<Outgoing>,
    /// To which address the datagram was sent that the application is just told of.
    pub(crate) arrived_at: Address,
    /// What the application has made of it.
    pub(crate) fate: Fate,
}

impl UdpSockets {
    /// Binds a socket under an id that the control thread chose.
    pub fn bind(&mut self, id: UdpId, binding: Binding, port: u16) {
        self.ports.insert(id.0, port);
        self.by_port.entry(port).or_default().push(Socket { id, binding, is_closed: false });
    }

    /// From now on it hears nothing.
    pub(crate) fn close(&mut self, id: UdpId) {
        let sockets = self.ports.get(&id.0).and_then(|port| self.by_port.get_mut(port));
        if let Some(socket) = sockets.and_then(|sockets| sockets.iter_mut().find(|s| s.id == id)) {
            socket.is_closed = true;
        }
    }

    /// Unbinds it.
    pub fn unbind(&mut self, id: UdpId) {
        let Some(port) = self.ports.remove(&id.0) else { return };
        let Some(sockets) = self.by_port.get_mut(&port) else { return };
        let socket = sockets.iter().position(|s| s.id == id).map(|at| sockets.remove(at));
        if let Some(leaving) = self.leaving.get_mut(&id.0) {
            *leaving = socket.map(|socket| (port, socket));
        }
        if sockets.is_empty() {
            self.by_port.remove(&port);
        }
    }

    /// Lets a socket send until it [has left](Self::has_left), though it is about to be unbound. It hears nothing then.
    pub(crate) fn leaves(&mut self, id: UdpId) {
        if self.has(id) {
            self.leaving.insert(id.0, None);
        }
    }

    /// All that was sent from it has gone.
    pub(crate) fn has_left(&mut self, id: UdpId) {
        self.leaving.remove(&id.0);
    }

    fn sender(&self, id: UdpId) -> Option<(u16, &Socket)> {
        let Some(&port) = self.ports.get(&id.0) else {
            return self.leaving.get(&id.0)?.as_ref().map(|(port, socket)| (*port, socket));
        };
        Some((port, self.by_port.get(&port)?.iter().find(|s| s.id == id)?))
    }

    /// Whether one can send from a socket under this id.
    pub(crate) fn has(&self, id: UdpId) -> bool {
        self.sender(id).is_some()
    }

    /// Who gets a datagram of this flow: who is connected to its sender before who hears everybody (`peer_is` knows, of the flow's two
    /// addresses; see [`App::peer_is`](crate::app::App::peer_is)); of these an exact binding before one for any address of the family, before one
    /// for any of both. Of a group (`SO_REUSEPORT`) the hash of the flow chooses; of others that share an address
    /// (`SO_REUSEADDR`) the one that was bound last.
    pub fn find(&self, flow: &FlowKey, hash: u64, peer_is: impl Fn(UdpId) -> Option<bool>) -> Option<UdpId> {
        let sockets = self.by_port.get(&flow.local_port)?;
        let ranked = |s: &&Socket| match s.binding.rank(&flow.local) {
            _ if s.is_closed => 0,
            0 => 0,
            rank => match peer_is(s.id) {
                None => rank,
                Some(true) => RANK_MAX + rank,
                Some(false) => 0,
            },
        };
        let rank = sockets.iter().map(|s| ranked(&s)).max().filter(|rank| *rank > 0)?;
        let best = || sockets.iter().filter(|s| ranked(s) == rank);
        let last = best().next_back()?;
        let group = || best().filter(|s| s.binding.options.reuse_port);
        let members = group().count() as u64;
        if members > 1 && last.binding.options.reuse_port {
            return group().nth((hash % members) as usize).map(|s| s.id);
        }
        Some(last.id)
    }

    /// Who gets a copy of a datagram to more than one host: of the sockets on its port, from the `place`th on, the next that is bound to where it was
    /// sent, or to any address, and is not connected to somebody else (`peer_is` knows). Neither a group nor who was bound last comes first.
    pub fn next_copy(
        &self,
        flow: &FlowKey,
        place: &mut usize,
        peer_is: impl Fn(UdpId) -> Option<bool>,
    ) -> Option<UdpId> {
        let others = self.by_port.get(&flow.local_port)?.get(*place..)?;
        let hears = |s: &Socket| !s.is_closed && s.binding.takes(&flow.local) && peer_is(s.id) != Some(false);
        let at = others.iter().position(hears)?;
        *place += at + 1;
        Some(others[at].id)
    }

    pub(crate) fn send(
        &mut self,
        id: UdpId,
        Sending { from, to, to_all, marks, data }: Sending<'_>,
        snapshot: &Snapshot,
        counters: &mut Counters,
    ) -> bool {
        let Some((port, socket)) = self.sender(id) else { return false };
        if data.len() > payload_max(&to) {
            return false;
        }
        if self.outgoing.len() >= QUEUE_MAX {
            counters.count(Mib::UdpSndbufErrors);
            return false;
        }
        let remote = Address::from(to.ip());
        let means_all = |address: &Address| snapshot.addresses.means_all(address);
        let can_go = snapshot.addresses.can_be_remote(&remote) || to_all && means_all(&remote);
        if !can_go {
            return false;
        }
        let is_ours = |address: &Address| address.is_v4() == remote.is_v4() && snapshot.addresses.contains(address);
        let address = socket.binding.address;
        let hears_all = means_all(&address);
        let local = if is_ours(&from) {
            Some(from)
        } else if address.is_unspecified() || hears_all {
            snapshot.source(&remote)
        } else {
            Some(address)
        };
        let Some(local) = local else { return false };
        // From an address that it does not have, nobody could answer it; and one packet has one family.
        let has = if hears_all { local.is_v4() } else { socket.binding.takes(&local) };
        if local.is_v4() != remote.is_v4() || !has {
            return false;
        }
        self.outgoing.push_back(Outgoing {
            local,
            local_port: port,
            remote,
            remote_port: to.port(),
            marks,
            data: data.to_vec(),
        });
        true
    }
}
