//! Owns the first pass over a batch: bytes become checked meaning, and the flow's hash is known before anyone needs it.
//!
//! path: device::rx → [ingress] → ethernet → ip::input → demux → tcp::input → tcp::state → tcp::output → ip::output → egress → device::tx

use crate::counters::Mib;
use crate::lane::Local;
use crate::mail::ToControl;
use crate::tables::hash_flow;
use laneway_device::{Medium, RxChecksum, RxFrame};
use laneway_proto::discard::Discard;
use laneway_proto::ethernet;
use laneway_proto::ip::input::{self, Packet};
use laneway_wire::checksum::verify_transport;
use laneway_wire::ethernet::{EtherType, Mac};
use laneway_wire::flow::FlowKey;
use laneway_wire::protocol;
use laneway_wire::tcp::Segment;

/// A TCP segment that is for us, checked, and on its way to its connection.
pub struct Arriving<'a> {
    /// Its flow, seen from here.
    pub key: FlowKey,
    /// The flow's hash.
    pub hash: u64,
    /// What it says.
    pub segment: Segment<'a>,
    /// The packet that it came in, for handing it to another lane.
    pub packet: &'a [u8],
}

/// What a frame turned out to be.
pub enum Ingress<'a> {
    /// TCP.
    Tcp(Arriving<'a>),
    /// Everything else of IP: ICMP, UDP, fragments.
    Other(Packet<'a>, &'a [u8]),
    /// Nothing, or nothing more: it was dropped and counted, or mailed to the control thread.
    Done,
}

/// Takes the link header off, and reads on.
#[inline]
pub fn frame<'a>(local: &mut Local, frame: RxFrame<'a>, ours: Mac) -> Ingress<'a> {
    local.counters.count(Mib::IpInReceives);
    local.counters.add(Mib::IpExtInOctets, frame.bytes.len() as u64);
    if local.medium == Medium::Ip {
        return packet(local, frame.bytes, frame.meta.checksum, false);
    }
    match ethernet::accept(frame.bytes, ours) {
        Ok((EtherType::IPV4 | EtherType::IPV6, bytes, group)) => {
            if is_neighbour_discovery(bytes) {
                return to_control(local, frame.bytes);
            }
            packet(local, bytes, frame.meta.checksum, group)
        }
        Ok((EtherType::ARP, ..)) => to_control(local, frame.bytes),
        Ok(_) => drop(local, Discard::EthernetUnknownType),
        Err(discard) => drop(local, discard),
    }
}

/// Reads an IP packet.
#[inline]
pub fn packet<'a>(local: &mut Local, bytes: &'a [u8], checksum: RxChecksum, group: bool) -> Ingress<'a> {
    let mut packet = match input::input(bytes, false) {
        Ok(packet) => packet,
        Err(discard) => return drop(local, discard),
    };
    let addresses = &local.snapshot.addresses;
    if !addresses.contains(&packet.dst) && !addresses.joins(&packet.dst) {
        return drop(local, Discard::IpNotLocal);
    }
    packet.link_broadcast = group;
    if packet.protocol != protocol::TCP || packet.fragment.is_some() {
        return Ingress::Other(packet, bytes);
    }
    if group || packet.dst.is_multicast() || packet.dst.is_broadcast() {
        return drop(local, Discard::TcpMalformed);
    }
    let verified = local.rx_checksum && checksum == RxChecksum::Verified;
    if !verified && !verify_transport(&packet.src, &packet.dst, protocol::TCP, packet.payload) {
        local.counters.count(Mib::TcpInErrs);
        return drop(local, Discard::TcpChecksum);
    }
    let segment = match Segment::parse(packet.payload) {
        Ok(segment) => segment,
        Err(_) => {
            local.counters.count(Mib::TcpInErrs);
            return drop(local, Discard::TcpMalformed);
        }
    };
    local.counters.count(Mib::TcpInSegs);
    let key = FlowKey { local: packet.dst, remote: packet.src, local_port: segment.dst_port, remote_port: segment.src_port };
    let hash = hash_flow(&local.hash_key, &key);
    Ingress::Tcp(Arriving { key, hash, segment, packet: bytes })
}

/// ICMPv6 types 133 to 137 straight behind an IPv6 header.
#[inline]
fn is_neighbour_discovery(packet: &[u8]) -> bool {
    matches!(packet, [0x60..=0x6f, ..]) && packet.get(6) == Some(&protocol::ICMPV6) && matches!(packet.get(40), Some(133..=137))
}

#[cold]
fn to_control<'a>(local: &mut Local, frame: &[u8]) -> Ingress<'a> {
    if local.mail.to_control.push(ToControl::Frame(frame.to_vec())).is_err() {
        local.counters.discard(Discard::SteerRingFull);
    }
    Ingress::Done
}

#[cold]
fn drop<'a>(local: &mut Local, discard: Discard) -> Ingress<'a> {
    local.counters.discard(discard);
    Ingress::Done
}
