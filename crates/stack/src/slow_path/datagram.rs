//! Owns what becomes of a UDP datagram that has arrived: which sockets get it, and as what it is counted.
//!
//! Every lane knows every UDP socket, so the lane that owns a datagram's flow finds all who are to have it, and nothing of it goes to
//! other lanes. One to all hosts of a network, or to a group, is copied once for each socket that hears it, as the kernel does it
//! (`__udp4_lib_mcast_deliver`): into what room that socket has, or not at all. Nobody waits, and nothing is kept here. How many copies
//! there can be is how many sockets the application has bound to one port.

use crate::app::{Context, UdpId};
use crate::counters::Mib;
use crate::demux::{Stage, mail_packet};
use crate::ingress::Vouched;
use crate::moving::{Note, Via};
use crate::udp::Fate;
use laneway_device::Tx;
use laneway_proto::discard::Discard;
use laneway_proto::icmp::Problem;
use laneway_proto::ip::input::Packet;
use laneway_proto::udp::{self, Datagram};
use laneway_wire::checksum::RxChecksum;
use std::net::SocketAddr;

impl<T: Tx> Stage<'_, T> {
    pub(super) fn udp(&mut self, packet: &Packet<'_>, bytes: &[u8], vouched: Vouched) {
        let checksum = if vouched.verified { RxChecksum::Verified } else { RxChecksum::Unknown };
        let datagram = match udp::input(packet, checksum) {
            Ok(datagram) => datagram,
            Err(discard) => {
                self.local.counters.count(Mib::UdpInErrors);
                return self.local.counters.discard(discard);
            }
        };
        let owner = self.local.steers_to(&datagram.key);
        if owner != self.local.id {
            self.local.count_mailed(Via::Direct);
            mail_packet(self.local, owner, bytes, vouched, Note::of_packet(packet));
            return;
        }
        // By what is written on it: one to our address may have come to all on the link, and is for one socket all the same.
        if self.local.snapshot.addresses.contains(&datagram.key.local) {
            self.hand_to_one(packet, &datagram);
        } else {
            self.hand_to_each(&datagram);
        }
    }

    fn hand_to_one(&mut self, packet: &Packet<'_>, datagram: &Datagram<'_>) {
        let hash = datagram.key.hash(&self.local.hash_key.get());
        let mut deaf = None;
        // Whom a socket hears that the lane has only just heard of is known once it was asked: then it is another's, if another hears it.
        while let Some(socket) = self.udp_socket(&datagram.key, hash).filter(|socket| deaf != Some(*socket)) {
            if self.hand(socket, datagram) {
                return;
            }
            deaf = Some(socket);
        }
        self.local.counters.count(Mib::UdpNoPorts);
        self.local.counters.discard(Discard::UdpNoPort);
        self.problem(packet, Problem::PortUnreachable);
    }

    /// All hosts hear it, or a group, so whoever has sent it is told nothing.
    fn hand_to_each(&mut self, datagram: &Datagram<'_>) {
        let (key, from) = (&datagram.key, sender(datagram));
        let (at, mut place, mut is_heard) = (key.local.to_ip(), 0, false);
        while let Some(socket) = self.local.udp.next_copy(key, &mut place, |socket| self.app.peer_is(socket, at, from))
        {
            is_heard |= self.hand(socket, datagram);
        }
        if !is_heard {
            self.local.counters.count(Mib::UdpIgnoredMulti);
            self.local.counters.discard(Discard::UdpNoPort);
        }
    }

    /// Gives it to a socket; false if that does not hear its sender.
    fn hand(&mut self, socket: UdpId, datagram: &Datagram<'_>) -> bool {
        (self.local.udp.arrived_at, self.local.udp.fate) = (datagram.key.local, Fate::default());
        let mut context = Context { tables: self.tables, local: self.local };
        self.app.on_datagram(&mut context, socket, sender(datagram), datagram.payload);
        match self.local.udp.fate {
            Fate::Taken => self.local.counters.count(Mib::UdpInDatagrams),
            // It has come in for nobody.
            Fate::NoRoom => {
                self.local.counters.count(Mib::UdpInErrors);
                self.local.counters.count(Mib::UdpRcvbufErrors);
                self.local.counters.discard(Discard::UdpQueueFull);
            }
            Fate::Unheard => return false,
        }
        true
    }
}

fn sender(datagram: &Datagram<'_>) -> SocketAddr {
    SocketAddr::new(datagram.key.remote.to_ip(), datagram.key.remote_port)
}
