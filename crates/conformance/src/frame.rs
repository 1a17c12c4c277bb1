//! Owns the step between a script's numbers and bytes on the wire, both ways. Headers are written and read by hand here,
//! so that a mistake of the stack's own builder or parser cannot hide itself.

use crate::packet::{IcmpKind, IcmpPacket, TcpOption, TcpPacket};
use laneway_wire::checksum::{Sum, pseudo_header, verify_transport};
use laneway_wire::flow::Address;
use laneway_wire::tcp::Flags;

/// Who talks to whom.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// The host that is tested.
    pub local: Address,
    /// The peer that the script plays.
    pub remote: Address,
}

/// Where the numbers of one connection lie on the circle.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// Our port.
    pub local_port: u16,
    /// The peer's.
    pub remote_port: u16,
    /// What is added to the script's numbers of ours; known from our first SYN on.
    pub local_base: Option<u32>,
    /// What is added to the script's numbers of the peer's.
    pub remote_base: u32,
    /// What is added to the script's timestamps of ours; known from the first expected one on.
    pub timestamp_base: Option<u32>,
    /// The script's number of our SYN.
    pub iss: u32,
    /// The script's number of the peer's SYN.
    pub irs: Option<u32>,
}

/// A segment of ours as it came, with live numbers.
#[derive(Clone, Debug)]
pub struct Live {
    /// Source port.
    pub local_port: u16,
    /// Destination port.
    pub remote_port: u16,
    /// With live numbers; the flow is not known yet.
    pub packet: TcpPacket,
    /// The bytes.
    pub payload: Vec<u8>,
}

/// The byte at `offset` of a stream.
pub fn pattern(offset: u32) -> u8 {
    let mixed = offset ^ (offset >> 8) ^ (offset >> 17);
    (mixed as u8).wrapping_mul(167).wrapping_add(13)
}

impl Flow {
    /// The bytes of a segment of the peer's.
    pub fn encode(&self, packet: &TcpPacket, ends: &Ends) -> Vec<u8> {
        let local_base = self.local_base.unwrap_or(0);
        let mut options = Vec::new();
        for option in packet.options.iter().flatten() {
            match option {
                TcpOption::Eol => options.push(0),
                TcpOption::Nop => options.push(1),
                TcpOption::Mss(mss) => options.extend([&[2, 4][..], &mss.to_be_bytes()].concat()),
                TcpOption::Scale(scale) => options.extend([3, 3, *scale]),
                TcpOption::SackOk => options.extend([4, 2]),
                TcpOption::Sack(blocks) => {
                    options.extend([5, 2 + 8 * blocks.len() as u8]);
                    for edge in blocks.iter().flat_map(|(from, to)| [from, to]) {
                        options.extend(edge.wrapping_add(local_base).to_be_bytes());
                    }
                }
                TcpOption::Timestamps(val, ecr) => {
                    options.extend([8, 10]);
                    options.extend(val.to_be_bytes());
                    options.extend(ecr.wrapping_add(self.timestamp_base.unwrap_or(0)).to_be_bytes());
                }
                TcpOption::Raw(bytes) => options.extend(bytes),
            }
        }
        options.resize(options.len().next_multiple_of(4), 0);
        let ack = if packet.flags.ack() { packet.ack.wrapping_add(local_base) } else { 0 };
        let mut tcp = Vec::new();
        tcp.extend(self.remote_port.to_be_bytes());
        tcp.extend(self.local_port.to_be_bytes());
        tcp.extend(packet.seq.wrapping_add(self.remote_base).to_be_bytes());
        tcp.extend(ack.to_be_bytes());
        tcp.extend([(((20 + options.len()) / 4) << 4) as u8, packet.flags.bits()]);
        tcp.extend(packet.window.unwrap_or(0).to_be_bytes());
        tcp.extend([0, 0]);
        tcp.extend(packet.urgent.unwrap_or(0).to_be_bytes());
        tcp.extend(options);
        let text = packet.seq.wrapping_add(u32::from(packet.flags.syn()));
        let start = text.wrapping_sub(self.irs.unwrap_or(0).wrapping_add(1));
        tcp.extend((0..packet.len).map(|i| pattern(start.wrapping_add(i))));
        let sum = pseudo_header(&ends.remote, &ends.local, 6, tcp.len() as u32) + Sum::of(&tcp);
        tcp[16..18].copy_from_slice(&sum.checksum());
        ip(&ends.remote, &ends.local, 6, packet.ecn, &tcp)
    }

    /// The bytes of an ICMP error that quotes a segment of ours.
    pub fn encode_icmp(&self, icmp: &IcmpPacket, ends: &Ends) -> Vec<u8> {
        let mut quoted = Vec::new();
        quoted.extend(self.local_port.to_be_bytes());
        quoted.extend(self.remote_port.to_be_bytes());
        quoted.extend(icmp.seq.wrapping_add(self.local_base.unwrap_or(0)).to_be_bytes());
        quoted.extend([0, 0, 0, 0, 0x50, 0x10, 0, 0, 0, 0, 0, 0]);
        quoted.resize(20 + icmp.len as usize, 0);
        let mut quoted = ip(&ends.local, &ends.remote, 6, 0, &quoted);
        let v4 = ends.local.is_v4();
        quoted.truncate(if v4 { 28 } else { 100 });
        let (kind, code) = icmp.kind.type_and_code(v4);
        let word = match icmp.kind {
            IcmpKind::TooBig(mtu) if v4 => mtu & 0xffff,
            IcmpKind::TooBig(mtu) => mtu,
            IcmpKind::Unreachable(_) | IcmpKind::TimeExceeded => 0,
        };
        let mut message = vec![kind, code, 0, 0];
        message.extend(word.to_be_bytes());
        message.extend(quoted);
        let mut sum = Sum::of(&message);
        if !v4 {
            sum = sum + pseudo_header(&ends.remote, &ends.local, 58, message.len() as u32);
        }
        message[2..4].copy_from_slice(&sum.checksum());
        ip(&ends.remote, &ends.local, if v4 { 1 } else { 58 }, 0, &message)
    }

    /// A segment of ours in the script's numbers.
    pub fn in_script(&self, live: &Live, flow: u16) -> TcpPacket {
        let mut packet = live.packet.clone();
        packet.flow = flow;
        let unanchored = if packet.flags.syn() { packet.seq } else { 0 };
        packet.seq = packet.seq.wrapping_sub(self.local_base.unwrap_or(unanchored));
        if packet.flags.ack() {
            packet.ack = packet.ack.wrapping_sub(self.remote_base);
        }
        for option in packet.options.iter_mut().flatten() {
            match option {
                TcpOption::Timestamps(val, _) => *val = val.wrapping_sub(self.timestamp_base.unwrap_or(0)),
                TcpOption::Sack(blocks) => blocks.iter_mut().for_each(|(from, to)| {
                    *from = from.wrapping_sub(self.remote_base);
                    *to = to.wrapping_sub(self.remote_base);
                }),
                _ => {}
            }
        }
        packet
    }

    /// Where in our stream the first payload byte of a segment of ours lies; `seq` in the script's numbers.
    pub fn stream_offset(&self, seq: u32) -> u32 {
        seq.wrapping_sub(self.iss.wrapping_add(1))
    }
}

fn ip(src: &Address, dst: &Address, protocol: u8, ecn: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    if src.is_v4() {
        packet.extend([0x45, ecn]);
        packet.extend((20 + payload.len() as u16).to_be_bytes());
        packet.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
        packet.extend(src.octets_v4());
        packet.extend(dst.octets_v4());
        let sum = Sum::of(&packet).checksum();
        packet[10..12].copy_from_slice(&sum);
    } else {
        packet.extend([0x60, ecn << 4, 0, 0]);
        packet.extend((payload.len() as u16).to_be_bytes());
        packet.extend([protocol, 64]);
        packet.extend(src.octets());
        packet.extend(dst.octets());
    }
    packet.extend(payload);
    packet
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn long(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Reads a packet of ours, as strictly as the most careful peer would. `is_cut`: over IPv4 routers are to cut it, and else they may not.
pub fn decode(bytes: &[u8], ends: &Ends, is_cut: bool) -> Result<Live, String> {
    let v4 = ends.local.is_v4();
    let header = if v4 { 20 } else { 40 };
    if bytes.len() < header + 20 {
        return Err(format!("a packet of {} bytes is too short for IP and TCP", bytes.len()));
    }
    let (head, tcp) = bytes.split_at(header);
    let (wants, total, protocol) =
        if v4 { (0x45, usize::from(word(head, 2)), head[9]) } else { (0x60, 40 + usize::from(word(head, 4)), head[6]) };
    let addresses = if v4 {
        head[12..16] == ends.local.octets_v4() && head[16..20] == ends.remote.octets_v4()
    } else {
        head[8..24] == ends.local.octets() && head[24..40] == ends.remote.octets()
    };
    if head[0] != wants || total != bytes.len() || !addresses {
        return Err(format!("the IP header is wrong: {head:02x?} before {} bytes", tcp.len()));
    }
    // (An IPv6 header that begins with anything but 60 00 00 00 bears a traffic class or a flow label.)
    let (hops, class) = if v4 { (head[8], u32::from(head[1])) } else { (head[7], long(head, 0) & 0x0fff_ffff) };
    let (ecn, class) = if v4 { (class & 3, class >> 2) } else { (class >> 20 & 3, class & 0x0fcf_ffff) };
    if hops != 64 || class != 0 {
        return Err(format!("the IP header has {hops} hops left and the class {class:#x}: {head:02x?}"));
    }
    if protocol != 6 {
        return Err(format!("a packet of protocol {protocol}, which scripts cannot expect: {bytes:02x?}"));
    }
    if v4 && !Sum::of(head).is_valid() {
        return Err("the checksum of the IPv4 header is wrong".into());
    }
    //= https://www.rfc-editor.org/rfc/rfc1191#section-3
    //# sends all datagrams on that path with the DF bit set
    let (fragment, wants) = (word(head, 6), if is_cut { 0 } else { 0x4000 });
    if v4 && fragment != wants {
        return Err(format!(
            "the fragment field must be {wants:#06x}, which is don't-fragment or nothing: {fragment:#06x}"
        ));
    }
    if !verify_transport(&ends.local, &ends.remote, 6, tcp) {
        return Err("the TCP checksum is wrong".into());
    }
    let data = usize::from(tcp[12] >> 4) * 4;
    if data < 20 || data > tcp.len() || tcp[12] & 0x0f != 0 {
        return Err(format!("the data offset {:#04x} is wrong", tcp[12]));
    }
    let flags = Flags::from_bits(tcp[13]);
    let packet = TcpPacket {
        flow: 0,
        ecn: ecn as u8,
        flags,
        seq: long(tcp, 4),
        len: (tcp.len() - data) as u32,
        ack: long(tcp, 8),
        window: Some(word(tcp, 14)),
        urgent: flags.urg().then(|| word(tcp, 18)),
        options: Some(options(&tcp[20..data])?),
    };
    if !flags.urg() && word(tcp, 18) != 0 {
        return Err("an urgent pointer without URG".into());
    }
    Ok(Live { local_port: word(tcp, 0), remote_port: word(tcp, 2), packet, payload: tcp[data..].to_vec() })
}

fn options(mut bytes: &[u8]) -> Result<Vec<TcpOption>, String> {
    let mut all = Vec::new();
    while let Some(kind) = bytes.first() {
        if *kind <= 1 {
            all.push(if *kind == 0 { TcpOption::Eol } else { TcpOption::Nop });
            bytes = &bytes[1..];
            continue;
        }
        let len = bytes.get(1).map_or(0, |len| usize::from(*len));
        if len < 2 || len > bytes.len() {
            return Err(format!("an option of kind {kind} and length {len} in {} bytes", bytes.len()));
        }
        let (option, rest) = bytes.split_at(len);
        all.push(match (kind, len) {
            (2, 4) => TcpOption::Mss(word(option, 2)),
            (3, 3) => TcpOption::Scale(option[2]),
            (4, 2) => TcpOption::SackOk,
            (8, 10) => TcpOption::Timestamps(long(option, 2), long(option, 6)),
            (5, _) if len >= 10 && (len - 2).is_multiple_of(8) => {
                TcpOption::Sack((2..len).step_by(8).map(|at| (long(option, at), long(option, at + 4))).collect())
            }
            _ => TcpOption::Raw(option.to_vec()),
        });
        bytes = rest;
    }
    Ok(all)
}
