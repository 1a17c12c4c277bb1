//! Packets that are about a flow and not from it.

use crate::load::{CLIENT, SERVER};
use laneway_proto::ip::fragment::Fragments;
use laneway_proto::ip::output::{self, HeaderSpec};
use laneway_wire::checksum::{Sum, pseudo_header};
use laneway_wire::flow::{Address, FlowKey};
use laneway_wire::icmpv4::{Message, unreachable};
use laneway_wire::protocol;
use laneway_wire::tcp::Flags;

pub fn spec(protocol: u8) -> HeaderSpec {
    HeaderSpec::new(Address::from_v4(CLIENT), Address::from_v4(SERVER), protocol)
}

/// "Fragmentation needed", about a segment of the server's that carried `seq`.
pub fn too_big(key: &FlowKey, seq: u32, mtu: u16) -> Vec<u8> {
    let mut quoted = vec![0; 28];
    output::emit(&HeaderSpec::new(key.local, key.remote, protocol::TCP), &mut quoted, 1_480);
    quoted[20..22].copy_from_slice(&key.local_port.to_be_bytes());
    quoted[22..24].copy_from_slice(&key.remote_port.to_be_bytes());
    quoted[24..28].copy_from_slice(&seq.to_be_bytes());
    let code = unreachable::FRAGMENTATION_NEEDED;
    let message = Message::DestinationUnreachable { code, next_hop_mtu: mtu, quoted: &quoted };
    let spec = spec(protocol::ICMPV4);
    let mut packet = vec![0; spec.len() + message.len()];
    output::emit(&spec, &mut packet, message.len());
    message.emit(&mut packet[spec.len()..]);
    packet
}

/// A segment of the flow with these flags, and nothing else.
pub fn bare(key: &FlowKey, flags: Flags) -> Vec<u8> {
    let mut segment = [0; 20];
    segment[0..2].copy_from_slice(&key.remote_port.to_be_bytes());
    segment[2..4].copy_from_slice(&key.local_port.to_be_bytes());
    (segment[12], segment[13]) = (5 << 4, flags.bits());
    let sum = pseudo_header(&key.remote, &key.local, protocol::TCP, segment.len() as u32) + Sum::of(&segment);
    segment[16..18].copy_from_slice(&sum.checksum());
    let spec = spec(protocol::TCP);
    let mut packet = vec![0; spec.len() + segment.len()];
    output::emit(&spec, &mut packet, segment.len());
    packet[spec.len()..].copy_from_slice(&segment);
    packet
}

/// A SYN of the flow with so much text that it comes in fragments.
pub fn syn_in_fragments(key: &FlowKey, id: u16) -> Vec<Vec<u8>> {
    let mut segment = vec![0; 1_020];
    segment[0..2].copy_from_slice(&key.remote_port.to_be_bytes());
    segment[2..4].copy_from_slice(&key.local_port.to_be_bytes());
    (segment[12], segment[13]) = (5 << 4, 2);
    let sum = pseudo_header(&key.remote, &key.local, protocol::TCP, segment.len() as u32) + Sum::of(&segment);
    segment[16..18].copy_from_slice(&sum.checksum());
    let spec = HeaderSpec { dont_fragment: false, id, ..spec(protocol::TCP) };
    let mut pieces = Fragments::new(&spec, id.into(), &segment, 576).expect("it may be fragmented");
    std::iter::from_fn(|| {
        let mut piece = vec![0; pieces.next_len()?];
        pieces.write_next(&mut piece);
        Some(piece)
    })
    .collect()
}
