//! Owns the first pass over a batch: bytes become checked meaning, and the flow's hash is known before anyone needs it.
//!
//! path: `device::rx → [ingress] → ethernet → ip::input → demux → tcp::input → tcp::state → tcp::output → ip::output → egress → device::tx`

use crate::counters::Mib;
use crate::lane::Local;
use crate::mail::ToControl;
use crate::tables::Handle;
use arrayvec::ArrayVec;
use laneway_device::{BATCH_MAX, Medium, RxChecksum, RxFrame};
use laneway_proto::discard::Discard;
use laneway_proto::ethernet;
use laneway_proto::ip::input::{self, Packet};
use laneway_wire::checksum::verify_transport;
use laneway_wire::ethernet::{EtherType, Mac};
use laneway_wire::flow::{Address, FlowKey};
use laneway_wire::protocol;

/// A TCP segment that is for us, its checksum verified, on its way to its connection. Its meaning is read only when its
/// turn comes: what the first pass keeps must be small.
pub struct Arriving<'a> {
    /// Its flow, seen from here.
    pub key: FlowKey,
    /// The flow's hash.
    pub hash: u64,
    /// TCP header and text.
    pub tcp: &'a [u8],
    /// The packet that it came in, for handing it to another lane.
    pub packet: &'a [u8],
    /// What the second pass saw in the index under this hash. It may have changed since, so it is verified.
    pub hint: Option<Handle>,
}

/// The segments of one batch.
pub type Batch<'a> = ArrayVec<Arriving<'a>, BATCH_MAX>;

/// An IP packet that is no TCP segment, and its bytes: ICMP, UDP, fragments. Plain TCP goes straight into the batch, and
/// the rest was dropped and counted, or mailed to the control thread.
pub type Other<'a> = Option<(Packet<'a>, &'a [u8])>;

/// Takes the link header off, and reads on.
#[inline]
pub fn frame<'a>(local: &mut Local, frame: RxFrame<'a>, ours: Mac, batch: &mut Batch<'a>) -> Other<'a> {
    local.counters.count(Mib::IpInReceives);
    local.counters.add(Mib::IpExtInOctets, frame.bytes.len() as u64);
    if local.medium == Medium::Ip {
        return packet(local, frame.bytes, frame.meta.checksum, false, batch);
    }
    match ethernet::accept(frame.bytes, ours) {
        Ok((EtherType::IPV4 | EtherType::IPV6, bytes, group)) => {
            if is_neighbour_discovery(bytes) {
                return to_control(local, frame.bytes);
            }
            packet(local, bytes, frame.meta.checksum, group, batch)
        }
        Ok((EtherType::ARP, ..)) => to_control(local, frame.bytes),
        Ok(_) => drop(local, Discard::EthernetUnknownType),
        Err(discard) => drop(local, discard),
    }
}

/// Reads an IP packet.
#[inline]
pub fn packet<'a>(
    local: &mut Local,
    bytes: &'a [u8],
    checksum: RxChecksum,
    group: bool,
    batch: &mut Batch<'a>,
) -> Other<'a> {
    if let Some((src, dst, tcp)) = input::plain_tcp(bytes)
        && !group
        && local.snapshot.addresses.contains(&dst)
    {
        segment(local, bytes, (src, dst), tcp, checksum, batch);
        return None;
    }
    look_closely(local, bytes, checksum, group, batch)
}

/// Anything but plain TCP over IPv4, and whatever is wrong with that.
#[inline(never)]
fn look_closely<'a>(
    local: &mut Local,
    bytes: &'a [u8],
    checksum: RxChecksum,
    group: bool,
    batch: &mut Batch<'a>,
) -> Other<'a> {
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
        return Some((packet, bytes));
    }
    if group || packet.dst.is_multicast() || packet.dst.is_broadcast() {
        return drop(local, Discard::TcpMalformed);
    }
    segment(local, bytes, (packet.src, packet.dst), packet.payload, checksum, batch);
    None
}

/// A TCP segment for us: verified, and its flow hashed.
#[inline]
fn segment<'a>(
    local: &mut Local,
    packet: &'a [u8],
    (src, dst): (Address, Address),
    tcp: &'a [u8],
    checksum: RxChecksum,
    batch: &mut Batch<'a>,
) {
    let verified = local.rx_checksum && checksum == RxChecksum::Verified;
    if !verified && !verify_transport(&src, &dst, protocol::TCP, tcp) {
        local.counters.count(Mib::TcpInErrs);
        return local.counters.discard(Discard::TcpChecksum);
    }
    let Some(&[s0, s1, d0, d1]) = tcp.first_chunk() else {
        local.counters.count(Mib::TcpInErrs);
        return local.counters.discard(Discard::TcpMalformed);
    };
    local.counters.count(Mib::TcpInSegs);
    let (remote_port, local_port) = (u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1]));
    let key = FlowKey { local: dst, remote: src, local_port, remote_port };
    let hash = key.hash(&local.hash_key);
    // A device lends at most a batch; the mail ring, too.
    let _ = batch.try_push(Arriving { key, hash, tcp, packet, hint: None });
}

/// ICMPv6 types 133 to 137 straight behind an IPv6 header.
#[inline]
fn is_neighbour_discovery(packet: &[u8]) -> bool {
    matches!(packet, [0x60..=0x6f, ..])
        && packet.get(6) == Some(&protocol::ICMPV6)
        && matches!(packet.get(40), Some(133..=137))
}

#[cold]
fn to_control<'a>(local: &mut Local, frame: &[u8]) -> Other<'a> {
    if local.mail.to_control.push(ToControl::Frame(frame.to_vec())).is_err() {
        local.counters.discard(Discard::SteerRingFull);
    }
    None
}

#[cold]
fn drop<'a>(local: &mut Local, discard: Discard) -> Other<'a> {
    local.counters.discard(discard);
    None
}
