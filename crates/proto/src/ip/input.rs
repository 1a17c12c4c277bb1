//! Owns the checks that a host makes on an IP packet before any transport looks at it (RFC 1122 section 3.2.1, RFC 8200).
//!
//! path: `device::rx → ingress → ethernet → [ip::input] → demux → tcp::input → tcp::state → tcp::output → ip::output → egress → device::tx`
//!
//! Two ways lead straight through: IPv4 without options, and IPv6 without extension headers. All else branches off early.

use crate::discard::Discard;
use laneway_wire::checksum::Sum;
use laneway_wire::error::{Malformed, Why};
use laneway_wire::flow::Address;
use laneway_wire::{ipv4, ipv6, protocol};

#[cfg(test)]
mod tests;

/// An IP packet that may be given to a transport; the caller still has to ask whether `dst` is one of this host's addresses.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The sender: never multicast, broadcast or loopback. Unspecified only in ICMPv6, for neighbour discovery.
    pub src: Address,
    /// The destination: never unspecified or loopback; may be multicast or broadcast.
    pub dst: Address,
    /// The protocol of `payload`; in a fragment, of the datagram.
    pub protocol: u8,
    /// Time to live or hop limit, as it arrived.
    pub hop_limit: u8,
    /// The two ECN bits (RFC 3168).
    pub ecn: u8,
    /// Everything before `payload`: the IP header with options or extension headers.
    pub header: &'a [u8],
    /// What the packet carries, trimmed to the length that IP states.
    pub payload: &'a [u8],
    /// Where `payload` belongs in a larger datagram; `None` when the packet is whole.
    pub fragment: Option<FragmentInfo>,
    /// Whether the link delivered it to a group, or it is for all hosts of one of our networks. Not seen from here, so [`input`] says `false`; the
    /// caller knows.
    pub to_group: bool,
}

/// Where a fragment belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FragmentInfo {
    /// Which datagram (16 bits in IPv4, 32 in IPv6).
    pub id: u32,
    /// Bytes of the datagram's payload before this fragment's.
    pub offset: u32,
    /// Whether there are fragments after this one.
    pub more: bool,
}

impl Packet<'_> {
    /// Whether the packet went to more than one host: no error may answer it, and no TCP segment comes this way.
    #[inline]
    pub fn is_group_addressed(&self) -> bool {
        self.to_group || self.dst.is_multicast() || self.dst.is_broadcast()
    }
}

/// Reads and judges one IP packet of either version.
///
/// `header_checksum_verified` says that the device has already verified an IPv4 header's checksum.
//= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.1.7
//# A host MUST NOT discard a datagram just because it was received with TTL less than 2.
#[inline(always)]
pub fn input(bytes: &[u8], header_checksum_verified: bool) -> Result<Packet<'_>, Discard> {
    match bytes.first() {
        Some(0x40..=0x4f) => v4(bytes, header_checksum_verified),
        Some(0x60..=0x6f) => v6(bytes),
        _ => Err(Discard::IpMalformed),
    }
}

/// IPv4. Options are summed and skipped: none of them means anything to a host that does not forward, but that a packet is not yet where it is to go.
#[inline(always)]
fn v4(bytes: &[u8], verified: bool) -> Result<Packet<'_>, Discard> {
    let view = if verified { ipv4::View::new_checksum_verified(bytes) } else { ipv4::View::new(bytes) };
    let view = view.map_err(discard_of)?;
    let (src, dst) = (view.src(), view.dst());
    if is_martian_v4(src.octets_v4()[0], dst.octets_v4()[0]) {
        return Err(Discard::IpMartianSource);
    }
    if view.has_incomplete_source_route() {
        return Err(Discard::IpNotLocal);
    }
    let fragment = view.is_fragment().then(|| {
        let header = view.header();
        FragmentInfo {
            id: u32::from(header.id),
            offset: u32::from(header.fragment_offset),
            more: header.more_fragments,
        }
    });
    Ok(Packet {
        src,
        dst,
        protocol: view.protocol(),
        hop_limit: view.ttl(),
        ecn: view.ecn(),
        header: view.header_bytes(),
        payload: view.payload(),
        fragment,
        to_group: false,
    })
}

/// A packet that is nothing but TCP over IPv4.
#[derive(Clone, Copy, Debug)]
pub struct PlainTcp<'a> {
    /// The sender.
    pub src: Address,
    /// The destination.
    pub dst: Address,
    /// The packet, trimmed to the length that IP states.
    pub packet: &'a [u8],
    /// TCP header and text.
    pub tcp: &'a [u8],
    /// Both addresses as they lie in the IP header, and behind them `tcp`: what the checksum of TCP covers, but for two numbers.
    pub summed: &'a [u8],
    /// The sender's port and the receiver's, as they come on the wire.
    pub ports: [u8; 4],
}

/// What nearly every packet is: IPv4 without options, whole, carrying TCP, and in order. `None` says nothing bad: look
/// closely then, with [`input`].
#[inline(always)]
pub fn plain_tcp(bytes: &[u8]) -> Option<PlainTcp<'_>> {
    // From the identification to the checksum: that there are more fragments, which of them this is, and the protocol.
    const ASKED: u64 = u64::from_ne_bytes([0, 0, 0x3f, 0xff, 0, 0xff, 0, 0]);
    const WHOLE_TCP: u64 = u64::from_ne_bytes([0, 0, 0, 0, 0, protocol::TCP, 0, 0]);
    let header = bytes.first_chunk::<20>()?;
    let ([version, _, l0, l1], [middle, addresses]) = header.as_rchunks::<8>() else { return None };
    if *version != 0x45 || u64::from_ne_bytes(*middle) & ASKED != WHOLE_TCP {
        return None;
    }
    // With a TCP header at least.
    let total_len = usize::from(u16::from_be_bytes([*l0, *l1]));
    if total_len < 40 || total_len > bytes.len() {
        return None;
    }
    let (packet, summed, tcp) = (&bytes[..total_len], &bytes[12..total_len], &bytes[20..total_len]);
    let (&src, &dst) = (addresses.first_chunk()?, addresses.last_chunk()?);
    if !Sum::of_array(header).is_valid() || is_martian_v4(header[12], header[16]) {
        return None;
    }
    let (src, dst) = (Address::from_v4(src), Address::from_v4(dst));
    Some(PlainTcp { src, dst, packet, tcp, summed, ports: *tcp.first_chunk()? })
}

/// From the first bytes of the addresses alone: "this network" and loopback at either end, and a source of class D or E
/// (multicast, reserved, broadcast).
//= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.1.3
//# A host MUST silently discard an incoming datagram containing an IP source address that is invalid by the rules of this section.
#[inline(always)]
fn is_martian_v4(src: u8, dst: u8) -> bool {
    // 0 wraps to 255, so that one comparison refuses 0 and 224 to 255.
    (src.wrapping_sub(1) >= 223) | (src == 127) | (dst == 127) | (dst == 0)
}

/// IPv6: only what is neither TCP, UDP nor ICMPv6 walks extension headers.
#[inline(never)]
fn v6(bytes: &[u8]) -> Result<Packet<'_>, Discard> {
    let view = ipv6::View::new(bytes).map_err(discard_of)?;
    let packet = fixed(&view);
    if is_martian_v6(&packet.src, &packet.dst) {
        return Err(Discard::IpMartianSource);
    }
    match packet.protocol {
        protocol::TCP | protocol::UDP => nameless(packet),
        protocol::ICMPV6 => Ok(packet),
        _ => v6_with_extensions(bytes, packet),
    }
}

/// What the fixed header says.
#[inline(always)]
fn fixed<'a>(view: &ipv6::View<'a>) -> Packet<'a> {
    Packet {
        src: view.src(),
        dst: view.dst(),
        protocol: view.next_header(),
        hop_limit: view.hop_limit(),
        ecn: view.ecn(),
        header: view.header_bytes(),
        payload: view.payload(),
        fragment: None,
        to_group: false,
    }
}

/// Multicast and loopback sources, destinations that are no address, and IPv4 in disguise: inside this stack `::ffff:0:0/96`
/// *is* IPv4, so a packet that carries it over IPv6 could pass for a flow it has nothing to do with (RFC 4942 section 2.2).
#[inline(always)]
fn is_martian_v6(src: &Address, dst: &Address) -> bool {
    src.is_v4() | dst.is_v4() | src.is_multicast() | src.is_loopback() | dst.is_loopback() | dst.is_unspecified()
}

/// The unspecified source is for hosts that look for an address (ICMPv6); a transport has nobody to answer there.
#[inline(always)]
fn nameless(packet: Packet<'_>) -> Result<Packet<'_>, Discard> {
    if packet.src.is_unspecified() { Err(Discard::IpMartianSource) } else { Ok(packet) }
}

/// The rest of IPv6: extension headers, fragments, protocols that nobody here speaks.
#[cold]
#[inline(never)]
fn v6_with_extensions<'a>(bytes: &'a [u8], packet: Packet<'a>) -> Result<Packet<'a>, Discard> {
    let upper = ipv6::walk(packet.protocol, packet.payload).map_err(discard_of)?;
    let (Some(header), Some(payload)) =
        (bytes.get(..ipv6::HEADER_LEN + upper.offset), packet.payload.get(upper.offset..))
    else {
        return Err(Discard::Ipv6ExtensionHeader);
    };
    let packet =
        Packet { protocol: upper.protocol, header, payload, fragment: upper.fragment.and_then(info_of), ..packet };
    if packet.protocol == protocol::ICMPV6 { Ok(packet) } else { nameless(packet) }
}

/// An IPv6 packet that [`input`] has refused for what its extension headers hold, as far as it can be read, with what it was refused for and where
/// in it that stands: its sender may have to be told (RFC 8200 sections 4.2 and 4.4).
#[cold]
#[inline(never)]
pub fn refused(bytes: &[u8]) -> Option<(Packet<'_>, Why, usize)> {
    let view = ipv6::View::new(bytes).ok()?;
    let (why, at) = ipv6::refused(view.next_header(), view.payload())?;
    let (src, dst) = (view.src(), view.dst());
    (!is_martian_v6(&src, &dst)).then(|| (fixed(&view), why, at))
}

/// What the fragment header says; an atomic fragment (RFC 6946) is whole, whatever it is called.
fn info_of(fragment: ipv6::Fragment) -> Option<FragmentInfo> {
    let ipv6::Fragment { id, offset, more } = fragment;
    (!fragment.is_atomic()).then_some(FragmentInfo { id, offset, more })
}

#[cold]
fn discard_of(malformed: Malformed) -> Discard {
    match malformed.why {
        Why::Checksum => Discard::IpChecksum,
        Why::RoutingType0 | Why::RoutingHeader => Discard::Ipv6RoutingHeader,
        Why::OptionLength
        | Why::OptionDiscard
        | Why::OptionReport
        | Why::OptionReportUnicast
        | Why::TooManyOptions
        | Why::TooManyExtensions
        | Why::ExtensionOrder => Discard::Ipv6ExtensionHeader,
        _ => Discard::IpMalformed,
    }
}
