//! Owns the first pass over a batch: bytes become checked meaning, and the flow is known before anyone needs it.
//!
//! path: `device::rx → [ingress] → ethernet → ip::input → demux → tcp::input → tcp::state → tcp::output → ip::output → egress → device::tx`

use crate::counters::Mib;
use crate::entropy::KeptKey;
use crate::lane::Local;
pub use crate::moving::Via;
use crate::tables::Handle;
use arrayvec::ArrayVec;
use laneway_device::{BATCH_MAX, Medium, RxChecksum, RxFrame, RxMeta};
use laneway_proto::discard::Discard;
use laneway_proto::ethernet::{self, Ours};
use laneway_proto::icmp::Problem;
use laneway_proto::ip::input::{self, Packet, PlainTcp};
use laneway_wire::checksum::{verify_transport, verify_transport_v4};
use laneway_wire::ethernet::{EtherType, Mac};
use laneway_wire::flow::{Address, FlowKey};
use laneway_wire::{ipv6, protocol};

/// A TCP segment that is for us, its checksum verified, on its way to its connection. Its meaning is read only when its
/// turn comes: what the first pass keeps must be small.
pub struct Arriving<'a> {
    /// Its flow, seen from here.
    pub key: FlowKey,
    /// A number that says much the same and is no secret.
    pub mix: u64,
    /// The flow's hash in the index; 0 as long as nobody needed it.
    pub hash: u64,
    /// TCP header and text.
    pub tcp: &'a [u8],
    /// The packet that it came in, for handing it to another lane.
    pub packet: &'a [u8],
    /// Bytes of text in each segment but the last, if the device made one of several; else 0.
    pub size: u16,
    /// The checksum field need not be filled in: the device vouches for the bytes.
    pub verified: bool,
    /// How it has come to this lane.
    pub via: Via,
    /// Where the flow was found last, or what the third pass saw in the index under its hash. It may have changed since, so it is
    /// verified.
    pub hint: Option<Handle>,
}

impl Arriving<'_> {
    /// The hash of its flow in the index.
    #[inline(always)]
    pub fn hash(&self, key: &KeptKey) -> u64 {
        if self.hash != 0 { self.hash } else { self.hash_now(key) }
    }

    /// Nobody needed it before: the flow was found without.
    #[inline(never)]
    fn hash_now(&self, key: &KeptKey) -> u64 {
        self.key.hash(&key.get())
    }

    /// Whether a router has marked its packet (CE, RFC 3168 section 5). Of few somebody wants to know.
    #[inline]
    pub fn is_marked(&self) -> bool {
        match *self.packet {
            [0x40..=0x4f, class, ..] => class & CE == CE,
            [0x60..=0x6f, class, ..] => class >> 4 & CE == CE,
            _ => false,
        }
    }

    /// Its PSH bit.
    #[inline]
    pub fn is_pushed(&self) -> bool {
        self.tcp.get(13).is_some_and(|flags| flags & PSH != 0)
    }

    /// Bytes of text.
    #[inline]
    pub fn text_len(&self) -> usize {
        let header = self.tcp.get(12).map_or(0, |offset| usize::from(offset >> 4) * 4);
        self.tcp.len().saturating_sub(header)
    }

    /// Its FIN bit.
    #[inline]
    pub fn is_last(&self) -> bool {
        self.tcp.get(13).is_some_and(|flags| flags & FIN != 0)
    }
}

/// Two NOPs, and the kind and length of the timestamps option (RFC 7323, appendix A).
const TIMESTAMPS: [u8; 4] = [1, 1, 8, 10];
const ACK: u8 = 0x10;
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;

/// Congestion experienced (RFC 3168 section 5).
const CE: u8 = 0b11;

/// The segments of one batch.
pub type Batch<'a> = ArrayVec<Arriving<'a>, BATCH_MAX>;

/// An IP packet that is no TCP segment: ICMP, UDP, fragments.
pub struct Slower<'a> {
    /// Its header, checked.
    pub packet: Packet<'a>,
    /// The packet as it came.
    pub bytes: &'a [u8],
    /// What the device says of the transport checksum.
    pub vouched: Vouched,
    /// How it has come to this lane.
    pub via: Via,
    /// It was dropped, and its sender is to be told of this.
    pub problem: Option<Problem>,
    /// The lane that has handed it over has counted it.
    pub is_counted: bool,
}

/// What is left to do about a packet: plain TCP went straight into the batch, and the rest was dropped and counted, or
/// mailed to the control thread.
pub type Other<'a> = Option<Slower<'a>>;

/// What the device says about a packet, where it may be believed.
#[derive(Clone, Copy, Default)]
pub struct Vouched {
    /// The transport checksum is right, or was left to an offload by a sender whose bytes never left memory.
    pub verified: bool,
    /// Bytes of text in each segment of a super-packet; else 0.
    pub size: u16,
}

impl Vouched {
    /// What a lane says to another of a packet that it hands over, in one word, of which it leaves bits 1 to 15 and 32 to 63.
    pub fn word(self) -> u64 {
        u64::from(self.verified) | u64::from(self.size) << 16
    }

    /// The inverse of [`word`](Self::word), as a device would have said it.
    pub fn meta(word: u64) -> RxMeta {
        let checksum = if word & 1 != 0 { RxChecksum::Verified } else { RxChecksum::Unknown };
        RxMeta { checksum, gso_size: (word >> 16) as u16 }
    }
}

/// Whether the segment `next` continues the one before it: then TCP takes them in as one. All but sequence number, PSH and checksum must be the same, so that nothing is lost by reading only the first
/// header; PSH ends a run.
fn continues(before: &Arriving<'_>, next: &Arriving<'_>) -> bool {
    let (Some((a, a_rest)), Some((b, b_rest))) =
        (before.tcp.split_first_chunk::<20>(), next.tcp.split_first_chunk::<20>())
    else {
        return false;
    };
    let Some(options) = (usize::from(a[12] >> 4) * 4).checked_sub(20) else { return false };
    if options > a_rest.len() || options > b_rest.len() {
        return false;
    }
    let (seq_a, seq_b) = (u32::from_be_bytes([a[4], a[5], a[6], a[7]]), u32::from_be_bytes([b[4], b[5], b[6], b[7]]));
    let len_a = (a_rest.len() - options) as u32;
    before.key == next.key
        && !before.is_marked()
        && !next.is_marked()
        && seq_a.wrapping_add(len_a) == seq_b
        && a[8..13] == b[8..13]
        && a[13] == ACK
        && b[13] & !PSH == ACK
        && a[14..16] == b[14..16]
        && a_rest[..options] == b_rest[..options]
        && len_a > 0
        && b_rest.len() > options
}

/// How many of the segments that arrived, the first with them, one turn through TCP takes in, and which of them is read: it speaks
/// for the others.
#[inline(always)]
pub fn run<'s, 'a>(arrived: &'s [Arriving<'a>]) -> Option<(&'s Arriving<'a>, &'s [Arriving<'a>], &'s [Arriving<'a>])> {
    let (first, others) = arrived.split_first()?;
    match others.first() {
        Some(next) if next.mix == first.mix => Some(long_run(arrived)),
        _ => Some((first, &[], others)),
    }
}

#[inline(never)]
fn long_run<'s, 'a>(arrived: &'s [Arriving<'a>]) -> (&'s Arriving<'a>, &'s [Arriving<'a>], &'s [Arriving<'a>]) {
    let next_is = |says: fn(&Arriving<'_>, &Arriving<'_>) -> bool| {
        arrived.windows(2).take_while(move |pair| pair[0].mix == pair[1].mix && says(&pair[0], &pair[1])).count()
    };
    let superseded = next_is(supersedes);
    if superseded > 0 {
        let (run, others) = arrived.split_at(superseded);
        return (&others[0], run, &others[1..]);
    }
    let (run, others) = arrived[1..].split_at(next_is(continues));
    (&arrived[0], run, others)
}

/// A TCP header with timestamps and nothing else.
const PLAIN_HEADER: usize = 32;

/// Whether `next` says all that `before` says: both are plain acknowledgements, and the later one acknowledges more, so that its
/// window is the one that counts. To take in that one alone is what happens where the network loses the other.
fn supersedes(before: &Arriving<'_>, next: &Arriving<'_>) -> bool {
    let (Ok(a), Ok(b)) = (<&[u8; PLAIN_HEADER]>::try_from(before.tcp), <&[u8; PLAIN_HEADER]>::try_from(next.tcp))
    else {
        return false;
    };
    let word = |of: &[u8; PLAIN_HEADER], at: usize| u32::from_be_bytes([of[at], of[at + 1], of[at + 2], of[at + 3]]);
    let grown = |at: usize| word(b, at).wrapping_sub(word(a, at)) as i32;
    before.key == next.key
        && a[12] >> 4 == (PLAIN_HEADER / 4) as u8
        && a[4..8] == b[4..8]
        && grown(8) > 0
        && a[12..14] == b[12..14]
        && a[13] == ACK
        && a[20..24] == TIMESTAMPS
        && a[20..24] == b[20..24]
        && grown(24) >= 0
}

/// Takes the link header off, and reads on. Whoever lent the frame has counted it.
#[inline(always)]
pub fn frame<'a>(
    local: &mut Local,
    frame: RxFrame<'a>,
    ours: Ours,
    recent: impl Fn(u64) -> Option<Handle> + Copy,
    batch: &mut Batch<'a>,
) -> Other<'a> {
    let len = frame.bytes.len();
    let bytes = match local.medium {
        Medium::Ethernet => {
            local.counters.add(Mib::IpExtInOctets, len.saturating_sub(ethernet::HEADER_LEN) as u64);
            ethernet::plain_v4(frame.bytes, ours)
        }
        Medium::Ip => {
            local.counters.add(Mib::IpExtInOctets, len as u64);
            Some(frame.bytes)
        }
    };
    if let Some(bytes) = bytes {
        if plain_segment(local, bytes, frame.meta, recent, batch) {
            return None;
        }
        // Nor is it what the control plane has to see.
        if matches!(bytes, [0x40..=0x4f, ..]) {
            return look_closely(local, (bytes, frame.meta), false, recent, batch);
        }
    }
    any_frame(local, frame.bytes, frame.meta, (ours.mac, recent), batch)
}

/// One with anything else, or of which anything is wrong.
#[inline(never)]
fn any_frame<'a>(
    local: &mut Local,
    frame: &'a [u8],
    meta: RxMeta,
    (ours, recent): (Mac, impl Fn(u64) -> Option<Handle> + Copy),
    batch: &mut Batch<'a>,
) -> Other<'a> {
    if local.medium == Medium::Ip {
        return look_closely(local, (frame, meta), false, recent, batch);
    }
    match ethernet::accept(frame, ours) {
        Ok((EtherType::IPV6, bytes, _)) if is_neighbour_discovery(bytes) => to_control(local, frame),
        Ok(
            (EtherType::IPV4, bytes @ [0x40..=0x4f, ..], group) | (EtherType::IPV6, bytes @ [0x60..=0x6f, ..], group),
        ) => look_closely(local, (bytes, meta), group, recent, batch),
        // Who filters by the type must have seen what we see.
        Ok((EtherType::IPV4 | EtherType::IPV6, ..)) => drop(local, Discard::IpMalformed),
        other => {
            was_no_packet(local, frame);
            match other {
                Ok((EtherType::ARP, ..)) => to_control(local, frame),
                Ok(_) => drop(local, Discard::EthernetUnknownType),
                Err(discard) => drop(local, discard),
            }
        }
    }
}

/// Reads an IP packet.
#[inline(always)]
pub fn packet<'a>(
    local: &mut Local,
    (bytes, meta): (&'a [u8], RxMeta),
    group: bool,
    recent: impl Fn(u64) -> Option<Handle> + Copy,
    batch: &mut Batch<'a>,
) -> Other<'a> {
    if !group && plain_segment(local, bytes, meta, recent, batch) {
        return None;
    }
    look_closely(local, (bytes, meta), group, recent, batch)
}

/// Nothing but TCP over IPv4, for us and as it was sent. False, with nothing done, if it is not that: a close look finds out why.
#[inline(always)]
fn plain_segment<'a>(
    local: &mut Local,
    bytes: &'a [u8],
    meta: RxMeta,
    recent: impl Fn(u64) -> Option<Handle> + Copy,
    batch: &mut Batch<'a>,
) -> bool {
    let Some(PlainTcp { src, dst, packet, tcp, summed, ports }) = input::plain_tcp(bytes) else { return false };
    let vouched = vouched(local, bytes, tcp, TCP_CHECKSUM, meta);
    let intact = vouched.verified || verify_transport_v4(protocol::TCP, summed);
    if !intact || !local.snapshot.addresses.contains_v4(dst.octets_v4()) {
        return false;
    }
    segment(local, packet, (src, dst), (tcp, ports), vouched, recent, batch);
    true
}

/// Anything but plain TCP over IPv4, and whatever is wrong with that.
#[inline(never)]
fn look_closely<'a>(
    local: &mut Local,
    (bytes, meta): (&'a [u8], RxMeta),
    group: bool,
    recent: impl Fn(u64) -> Option<Handle> + Copy,
    batch: &mut Batch<'a>,
) -> Other<'a> {
    let mut packet = match input::input(bytes, false) {
        Ok(packet) => packet,
        Err(discard) => {
            let _ = drop(local, discard);
            return refused(local, bytes, group);
        }
    };
    packet.to_group = group;
    let addresses = &local.snapshot.addresses;
    if !addresses.contains(&packet.dst) {
        if !addresses.joins(&packet.dst) {
            return drop(local, Discard::IpNotLocal);
        }
        // That all hosts of a network are meant cannot be seen from the address alone.
        packet.to_group = true;
    }
    if packet.protocol != protocol::TCP || packet.fragment.is_some() {
        let vouched = vouched(local, bytes, packet.payload, UDP_CHECKSUM, meta);
        return Some(Slower { packet, bytes, vouched, via: Via::Direct, problem: None, is_counted: false });
    }
    if packet.is_group_addressed() {
        return drop(local, Discard::TcpMalformed);
    }
    let (src, dst, tcp) = (packet.src, packet.dst, packet.payload);
    let vouched = vouched(local, bytes, tcp, TCP_CHECKSUM, meta);
    if !vouched.verified && !verify_transport(&src, &dst, protocol::TCP, tcp) {
        count_broken(local);
        return drop(local, Discard::TcpChecksum);
    }
    let Some(ports) = tcp.first_chunk() else {
        count_broken(local);
        return drop(local, Discard::TcpMalformed);
    };
    segment(local, bytes, (src, dst), (tcp, *ports), vouched, recent, batch);
    None
}

/// A segment that goes no further. It has come in all the same.
#[cold]
fn count_broken(local: &mut Local) {
    local.counters.count(Mib::TcpInSegs);
    local.counters.count(Mib::TcpInErrs);
}

/// What was dropped, if that has to be said.
#[cold]
#[inline(never)]
fn refused<'a>(local: &Local, bytes: &'a [u8], group: bool) -> Other<'a> {
    let (packet, why, at) = input::refused(bytes)?;
    let problem = Some(Problem::of_refused(why, at)?);
    let addresses = &local.snapshot.addresses;
    let ours = addresses.contains(&packet.dst) || addresses.joins(&packet.dst);
    let packet = Packet { to_group: group, ..packet };
    ours.then_some(Slower { packet, bytes, vouched: Vouched::default(), via: Via::Direct, problem, is_counted: false })
}

/// A TCP segment for us: verified.
#[inline(always)]
fn segment<'a>(
    local: &mut Local,
    packet: &'a [u8],
    (src, dst): (Address, Address),
    (tcp, ports): (&'a [u8], [u8; 4]),
    Vouched { verified, size }: Vouched,
    recent: impl Fn(u64) -> Option<Handle> + Copy,
    batch: &mut Batch<'a>,
) {
    local.counters.count(Mib::TcpInSegs);
    let ports = u32::from_be_bytes(ports);
    let (remote_port, local_port) = ((ports >> 16) as u16, ports as u16);
    let key = FlowKey { local: dst, remote: src, local_port, remote_port };
    let mix = key.mix();
    let hint = recent(mix);
    // A device lends at most a batch; the mail ring, too.
    let _ = batch.try_push(Arriving { key, mix, hash: 0, tcp, packet, size, verified, via: Via::Direct, hint });
    if size != 0 {
        count_super(local, tcp, size);
    }
}

/// TcpInSegs counts what the network carried.
#[inline(never)]
fn count_super(local: &mut Local, tcp: &[u8], size: u16) {
    local.counters.add(Mib::TcpInSegs, segments(tcp, size) - 1);
    local.counters.count(Mib::TcpInSuperSegs);
}

/// How many segments the network carried in the place of this one.
fn segments(tcp: &[u8], size: u16) -> u64 {
    if size == 0 {
        return 1;
    }
    let header = tcp.get(12).map_or(20, |offset| usize::from(offset >> 4) * 4);
    (tcp.len().saturating_sub(header) as u64).div_ceil(size.into()).max(1)
}

/// The lane that has handed this over has counted it, and it is no other one here.
#[inline]
pub fn was_counted(local: &mut Local, segment: &Arriving<'_>) {
    local.counters.take_back(Mib::TcpInSegs, segments(segment.tcp, segment.size));
    if segment.size != 0 {
        local.counters.take_back(Mib::TcpInSuperSegs, 1);
    }
}

/// Offset of the checksum in a TCP header, and in a UDP header.
const TCP_CHECKSUM: u16 = 16;
const UDP_CHECKSUM: u16 = 6;

/// What the device says of a packet whose `transport` header and text lie in it, if it may be believed. A partial checksum
/// is as good as a verified one, if it is the one that we would check: who left it to an offload was on this machine, and no
/// wire has touched the bytes since (virtio 1.2, section 5.1.6.4.2).
#[inline]
fn vouched(local: &Local, packet: &[u8], transport: &[u8], offset: u16, meta: RxMeta) -> Vouched {
    if !local.rx_checksum {
        return Vouched::default();
    }
    let verified = match meta.checksum {
        RxChecksum::Verified => true,
        RxChecksum::Unknown => false,
        RxChecksum::Partial(partial) => {
            let start = local.medium.header_len() + (transport.as_ptr().addr() - packet.as_ptr().addr());
            partial.offset == offset && usize::from(partial.start) == start
        }
    };
    Vouched { verified, size: meta.gso_size }
}

/// ICMPv6 types 133 to 137, mostly straight behind an IPv6 header.
#[inline]
fn is_neighbour_discovery(packet: &[u8]) -> bool {
    let [0x60..=0x6f, _, _, _, _, _, next, ..] = *packet else { return false };
    match next {
        protocol::ICMPV6 => matches!(packet.get(ipv6::HEADER_LEN), Some(133..=137)),
        next => ipv6::is_extension(next) && is_far_neighbour_discovery(packet),
    }
}

/// The same behind extension headers. One in a fragment is none, even if that is all of it (RFC 6980 section 5).
#[cold]
fn is_far_neighbour_discovery(packet: &[u8]) -> bool {
    let Ok(packet) = ipv6::View::new(packet) else { return false };
    packet.upper().is_ok_and(|upper| {
        upper.protocol == protocol::ICMPV6
            && upper.fragment.is_none()
            && matches!(packet.payload().get(upper.offset), Some(133..=137))
    })
}

/// A frame that was counted as an IP packet, as nearly all are, is none, or none for us.
#[cold]
fn was_no_packet(local: &mut Local, frame: &[u8]) {
    local.counters.take_back(Mib::IpInReceives, 1);
    local.counters.take_back(Mib::IpExtInOctets, frame.len().saturating_sub(ethernet::HEADER_LEN) as u64);
}

#[cold]
fn to_control<'a>(local: &mut Local, frame: &[u8]) -> Other<'a> {
    if !local.mail.pass_on(frame) {
        local.counters.discard(Discard::SteerRingFull);
    }
    None
}

#[cold]
fn drop<'a>(local: &mut Local, discard: Discard) -> Other<'a> {
    local.counters.discard(discard);
    None
}

#[cfg(test)]
mod tests;
