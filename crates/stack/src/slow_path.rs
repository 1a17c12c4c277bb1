//! Owns what is not TCP: fragments on their way to being whole, ICMP, UDP.

mod datagram;

use crate::app::{Context, UdpId};
use crate::counters::Mib;
use crate::demux::{Stage, mail_packet};
use crate::egress;
use crate::ingress::{Slower, Vouched};
use crate::lane::Local;
use crate::mail::ToControl;
use crate::moving::{Note, Via};
use crate::paths::Unverified;
use crate::tables::{Kind, Slot, Tcb};
use laneway_device::Tx;
use laneway_proto::discard::Discard;
use laneway_proto::icmp::{self, ErrorKind, IcmpError, Incoming, Problem, QuotedFlow, RateLimit};
use laneway_proto::ip::input::Packet;
use laneway_proto::ip::output::{HeaderSpec, Marks};
use laneway_proto::ip::reassembly::Reassembled;
use laneway_proto::tcp::CloseReason;
use laneway_proto::udp;
use laneway_wire::flow::{Address, FlowKey};
use laneway_wire::{ipv6, protocol};
use std::net::SocketAddr;

/// What a packet turned out to be.
pub enum Slow {
    /// It was dealt with.
    Done,
    /// A whole datagram, to be judged as if it had just arrived.
    Whole(Reassembled),
}

impl<T: Tx> Stage<'_, T> {
    /// Deals with an IP packet that is not a plain TCP segment.
    pub fn slow(&mut self, other: &Slower<'_>) -> Slow {
        let Slower { packet, bytes, vouched, problem, .. } = other;
        // Nameless are those who look for a neighbour, which no lane answers.
        if !packet.src.is_unspecified() && !self.local.snapshot.addresses.can_be_remote(&packet.src) {
            self.local.counters.discard(Discard::IpMartianSource);
            return Slow::Done;
        }
        if let Some(problem) = *problem {
            self.problem(packet, problem);
            return Slow::Done;
        }
        if let Some(fragment) = packet.fragment {
            // All fragments of a datagram meet on one lane.
            let owner = self.local.steering.lane_of_fragments(packet.src, packet.dst, fragment.id);
            if owner != self.local.id {
                mail_packet(self.local, owner, bytes, *vouched, Note::of_packet(packet));
                return Slow::Done;
            }
            if packet.protocol == protocol::TCP && !self.local.paths.lead(&packet.dst, &packet.src) {
                self.local.strangers.on_nothing();
            }
            let evicted = self.local.reassembly.evicted();
            let outcome = self.local.reassembly.on_fragment(packet, &self.local.hash_key.get(), self.local.now);
            let made_room = self.local.reassembly.evicted() - evicted;
            if made_room > 0 {
                self.local.counters.add(Mib::IpReasmFails, made_room);
                self.local.counters.discard_all(Discard::FragmentBudget, made_room as usize);
            }
            return match outcome {
                Ok(Some(whole)) => {
                    self.local.counters.count(Mib::IpReasmOKs);
                    Slow::Whole(whole)
                }
                Ok(None) => Slow::Done,
                Err(discard) => {
                    self.local.counters.count(Mib::IpReasmFails);
                    self.local.counters.discard(discard);
                    if !packet.src.is_v4()
                        && let Some(problem) = Problem::of_fragment(packet, discard)
                    {
                        self.problem(packet, problem);
                    }
                    Slow::Done
                }
            };
        }
        match (packet.protocol, packet.src.is_v4()) {
            (protocol::ICMPV4, true) | (protocol::ICMPV6, false) => self.icmp(other),
            (protocol::UDP, _) => self.udp(packet, bytes, *vouched),
            // Nothing follows, which is no error; and what follows all the same is to be ignored (RFC 8200 section 4.7).
            (protocol::NO_NEXT_HEADER, false) => {}
            _ => {
                self.local.counters.discard(Discard::IpUnknownProtocol);
                // IPv4's answer has no place for it.
                let at = ipv6::names_upper(packet.header) as u32;
                self.problem(packet, Problem::ProtocolUnreachable { at });
            }
        }
        Slow::Done
    }

    fn icmp(&mut self, message: &Slower<'_>) {
        let Slower { packet, bytes, via, is_counted, .. } = message;
        if !is_counted {
            self.local.counters.count(Mib::IcmpInMsgs);
        }
        match icmp::input(packet) {
            Ok(Incoming::EchoRequest(echo)) => {
                if !self.allowed(|local| &mut local.echo_rate) {
                    return;
                }
                let reply = icmp::echo_reply(packet, echo, self.speaker(packet).unwrap_or(packet.dst));
                self.local.counters.count(Mib::IcmpOutMsgs);
                let _ = egress::packet(self.local, self.tx, &as_the_hosts(reply.spec), reply.message_len(), |buf| {
                    reply.emit_message(buf)
                });
            }
            // No error is believed that came to a group, so of those that go on by mail none did.
            Ok(Incoming::Error(error)) => self.icmp_error(&error, bytes, *via),
            Ok(Incoming::EchoReply(_) | Incoming::Neighbour(_)) => self.local.counters.discard(Discard::IcmpIgnored),
            Err(discard) => {
                self.local.counters.count(Mib::IcmpInErrors);
                self.local.counters.discard(discard);
            }
        }
    }

    /// An ICMP error about TCP is believed only if it quotes a flow of ours and a sequence number that is in flight (RFC 5927). A datagram
    /// has no such number, so less is done for an error about one, and only if its socket exists.
    fn icmp_error(&mut self, error: &IcmpError, bytes: &[u8], via: Via) {
        let quoted = &error.quoted;
        let why = error.kind.close_reason(quoted.key.is_v4());
        if quoted.protocol == protocol::UDP
            && error.kind.is_hard()
            && let Some(why) = why
        {
            return self.udp_unreachable(&quoted.key, why, bytes);
        }
        if quoted.protocol == protocol::UDP && error.kind == ErrorKind::PacketTooBig && !quoted.key.remote.is_v4() {
            return self.udp_too_big(&quoted.key, error.mtu.unwrap_or(0), bytes);
        }
        if quoted.protocol == protocol::ICMPV6 && error.kind == ErrorKind::PacketTooBig {
            return self.narrow(Unverified::Echoes, quoted.key.remote, error.mtu.unwrap_or(0));
        }
        if quoted.protocol != protocol::TCP {
            return self.local.counters.discard(Discard::IcmpIgnored);
        }
        // Whoever is asked as the former owner looks, and does not ask on.
        let owner = self.local.steers_to(&quoted.key);
        if owner != self.local.id && via != Via::Asked {
            mail_packet(self.local, owner, bytes, Vouched::default(), Note::default());
            return;
        }
        let hash = self.tables.hash(&quoted.key);
        let handle = self.tables.lookup(hash, &quoted.key);
        if handle.is_none()
            && via != Via::Asked
            && let Some(former) = self.local.former(&quoted.key)
        {
            self.local.count_mailed(Via::Asked);
            let note = Note { via: Via::Asked, ..Note::default() };
            mail_packet(self.local, former, bytes, Vouched::default(), note);
            return;
        }
        let slot = handle.filter(|h| h.kind() == Kind::Connection).map(|h| h.index());
        let Some((index, seq)) = slot.zip(quoted.seq) else {
            return self.local.counters.discard(Discard::IcmpUnverified);
        };
        let Some(Slot { tcb, .. }) = self.tables.slots.get_mut(index) else { return };
        match tcb {
            Tcb::Handshaking(handshake) => {
                if seq != handshake.iss() {
                    return self.local.counters.discard(Discard::IcmpUnverified);
                }
                let Some(reason) = why else { return };
                if error.kind.is_hard() || handshake.on_soft_error(reason) {
                    self.fail_open(index, reason);
                }
            }
            Tcb::Synchronized(connection) => {
                let (una, nxt, _) = connection.sequence();
                if seq.before(una) || seq.at_or_after(nxt) {
                    return self.local.counters.discard(Discard::IcmpUnverified);
                }
                // Errors other than "too big" are soft on a synchronized connection (RFC 9293 section 3.9.2.2).
                if error.kind == ErrorKind::PacketTooBig {
                    self.local.learn_mtu(quoted.key.remote, error.mtu.unwrap_or(0));
                }
            }
        }
    }

    /// Nobody answers who has the address of the next hop, to which this packet of ours was to go. A connect that has come no further fails, as with
    /// the kernel: that is no stranger's word, and who waits can try another address.
    pub fn nobody_answers(&mut self, packet: &[u8]) {
        self.local.counters.discard(Discard::NeighbourUnreachable);
        let Some(QuotedFlow { key, seq: Some(seq), .. }) = icmp::flow(packet) else { return };
        let Some(handle) = self.tables.lookup(self.tables.hash(&key), &key) else { return };
        if handle.kind() == Kind::Connection
            && let Some(Slot { tcb: Tcb::Handshaking(handshake), .. }) = self.tables.slots.get_mut(handle.index())
            && handshake.iss() == seq
        {
            self.fail_open(handle.index(), CloseReason::HostUnreachable);
        }
    }

    /// An active open fails.
    fn fail_open(&mut self, index: u32, reason: CloseReason) {
        let id = self.tables.id(index);
        let Some(Slot { tcb: Tcb::Handshaking(handshake), .. }) = self.tables.slots.get_mut(index) else { return };
        let token = handshake.token;
        self.tables.remove(index);
        self.tables.counters.count(Mib::TcpAttemptFails);
        self.app.on_closed(&mut Context { tables: self.tables, local: self.local }, id, token, reason);
    }

    /// One of our datagrams was for nobody, or may not get there. The socket is looked for on the lane that has its flow; that it exists is all that
    /// can be checked.
    fn udp_unreachable(&mut self, key: &FlowKey, why: CloseReason, bytes: &[u8]) {
        let Some(socket) = self.sender_of(key, bytes) else { return };
        let to = SocketAddr::new(key.remote.to_ip(), key.remote_port);
        self.app.on_unreachable(&mut Context { tables: self.tables, local: self.local }, socket, to, why);
    }

    /// One of our datagrams is too long for its path. Over IPv4 a router cuts it; over IPv6 only we can (RFC 8201 section 4). As above, no
    /// more can be checked than that the socket exists; so datagrams alone go by it, and no path is narrower than 1,280 bytes for them.
    fn udp_too_big(&mut self, key: &FlowKey, mtu: u32, bytes: &[u8]) {
        if self.sender_of(key, bytes).is_some() {
            self.narrow(Unverified::Datagrams, key.remote, mtu);
        }
    }

    /// So much is carried of what nobody can verify. Of answers to echo requests not even a socket is known; they alone go by what is said of them.
    fn narrow(&mut self, of: Unverified, remote: Address, mtu: u32) {
        let local = &mut *self.local;
        if local.paths.on_unverified_too_big(&local.snapshot, of, (remote, mtu), local.now) {
            local.mail.mention(ToControl::UnverifiedMtu(of, remote, mtu));
        }
    }

    /// The socket that has sent a datagram of which an error speaks, if there is one. Another lane's flow is another lane's to look for.
    fn sender_of(&mut self, key: &FlowKey, bytes: &[u8]) -> Option<UdpId> {
        let owner = self.local.steers_to(key);
        if owner != self.local.id {
            mail_packet(self.local, owner, bytes, Vouched::default(), Note::default());
            return None;
        }
        let hash = self.tables.hash(key);
        let socket = self.udp_socket(key, hash);
        if socket.is_none() {
            self.local.counters.discard(Discard::IcmpUnverified);
        }
        socket
    }

    /// The socket that has a flow.
    fn udp_socket(&self, key: &FlowKey, hash: u64) -> Option<UdpId> {
        let (at, peer) = (key.local.to_ip(), SocketAddr::new(key.remote.to_ip(), key.remote_port));
        self.local.udp.find(key, hash, |socket| self.app.peer_is(socket, at, peer))
    }

    /// Gives up the datagrams that were not whole in time, and tells their senders where the first fragment had come.
    pub fn give_up_fragments(&mut self) {
        while let Some(expired) = self.local.reassembly.poll_expired(self.local.now) {
            self.local.counters.count(Mib::IpReasmFails);
            self.local.counters.discard(Discard::FragmentTimeout);
            if let Some(first) = expired.first_fragment {
                self.problem(&first.packet(), Problem::ReassemblyTimeExceeded);
            }
        }
    }

    fn problem(&mut self, packet: &Packet<'_>, problem: Problem) {
        if let Some(mut reply) = icmp::error_reply(packet, problem)
            && let Some(from) = self.speaker(packet)
            && self.allowed(|local| &mut local.icmp_rate)
        {
            reply.spec.src = from;
            self.local.counters.count(Mib::IcmpOutMsgs);
            let _ = egress::packet(self.local, self.tx, &as_the_hosts(reply.spec), reply.message_len(), |buf| {
                reply.emit_message(buf)
            });
        }
    }

    /// Who answers a packet: whom it was for, however the link has brought it; or, if it was for a group, who says anything else to that host
    /// (RFC 4443 section 2.2).
    fn speaker(&self, packet: &Packet<'_>) -> Option<Address> {
        let snapshot = &self.local.snapshot;
        if snapshot.addresses.contains(&packet.dst) { Some(packet.dst) } else { snapshot.source(&packet.src) }
    }

    fn allowed(&mut self, limit: impl FnOnce(&mut Local) -> &mut RateLimit) -> bool {
        let (random, now) = (self.local.chance.next_u64() as u32, self.local.now);
        let allowed = limit(self.local).allow(now, random);
        if !allowed {
            self.local.counters.discard(Discard::IcmpRateLimited);
        }
        allowed
    }
}

/// With no hop limit of its own.
fn as_the_hosts(spec: HeaderSpec) -> HeaderSpec {
    HeaderSpec { hop_limit: 0, ..spec }
}

/// Sends the datagrams that the application has queued in this poll.
pub fn send_datagrams<T: Tx>(local: &mut Local, tx: &mut T) {
    while let Some(out) = local.udp.outgoing.pop_front() {
        let key = laneway_wire::flow::FlowKey {
            local: out.local,
            remote: out.remote,
            local_port: out.local_port,
            remote_port: out.remote_port,
        };
        let Marks { hop_limit, dscp_ecn } = out.marks;
        let spec = HeaderSpec { hop_limit, dscp_ecn, ..HeaderSpec::new(out.local, out.remote, protocol::UDP) };
        local.counters.count(Mib::UdpOutDatagrams);
        let _ =
            egress::packet(local, tx, &spec, udp::HEADER_LEN + out.data.len(), |buf| udp::emit(&key, &out.data, buf));
    }
}

#[cfg(test)]
mod tests;
