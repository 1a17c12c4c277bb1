//! Owns what ICMP says to us and what we say by it: echoes, errors about packets of ours, errors about packets of others.
//!
//! An error that arrives is a claim by somebody who need not even be on the path. Here it is reduced to a kind and the flow it
//! quotes; the owner of that flow believes it only if the quoted sequence number is in flight (RFC 5927). An error that we send is
//! decided first ([`error_reply`] may say no) and written later ([`Reply::emit`]).

use crate::discard::Discard;
use crate::ip::input::Packet;
use crate::ip::output::{self, HeaderSpec};
use crate::ip::pmtu::plateau_below;
use crate::tcp::CloseReason;
use laneway_wire::error::Why;
use laneway_wire::flow::{Address, FlowKey};
use laneway_wire::icmpv4::Echo;
use laneway_wire::tcp::SeqNum;
use laneway_wire::{icmpv4, icmpv6, ipv6, ndp, protocol};

mod rate_limit;
#[cfg(test)]
mod tests;

pub use rate_limit::RateLimit;

/// What an ICMP message wants of us.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Incoming<'a> {
    /// Answer with [`echo_reply`].
    EchoRequest(Echo<'a>),
    /// Somebody answered an echo request.
    EchoReply(Echo<'a>),
    /// Something happened to a packet that is said to be ours.
    Error(IcmpError),
    /// For [`crate::neighbour::NeighbourCache::on_ndp`].
    Neighbour(ndp::Message),
}

/// An error about a packet that this host is said to have sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IcmpError {
    /// What happened.
    pub kind: ErrorKind,
    /// To whose packet.
    pub quoted: QuotedFlow,
    /// With [`ErrorKind::PacketTooBig`]: what would have fitted, bytes; from routers older than RFC 1191 a guess.
    pub mtu: Option<u32>,
}

/// The flow that an error quotes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QuotedFlow {
    /// TCP or UDP; or ICMPv6, if it is our answer to an echo request, which has no ports.
    pub protocol: u8,
    /// Seen from this host: the quoted source is `local`.
    pub key: FlowKey,
    /// The quoted sequence number, if the protocol has one.
    pub seq: Option<SeqNum>,
}

/// What happened to a packet, for both versions of IP.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ErrorKind {
    /// No route.
    NetworkUnreachable,
    /// The last router got no answer from the host.
    HostUnreachable,
    /// The host does not speak the protocol.
    ProtocolUnreachable,
    /// Nobody listens.
    PortUnreachable,
    /// Some link was too narrow.
    PacketTooBig,
    /// A filter said no.
    Prohibited,
    /// A filter said no to all of a network (IPv4 alone has a word for it).
    NetworkProhibited,
    /// The hop limit was used up on the way.
    HopLimitExceeded,
    /// Not all fragments came in time.
    ReassemblyTimeExceeded,
    /// Some header made no sense to somebody.
    ParameterProblem,
}

impl ErrorKind {
    /// Whether RFC 1122 section 4.2.3.9 asks TCP to abort for it. (RFC 5461: not once the connection is established.)
    #[inline]
    pub const fn is_hard(self) -> bool {
        use ErrorKind::{NetworkProhibited, PortUnreachable, Prohibited, ProtocolUnreachable};
        matches!(self, ProtocolUnreachable | PortUnreachable | Prohibited | NetworkProhibited)
    }

    /// What it makes of the open, or the datagram, that it is about, in the words that the kernel has for it. `None`: it says nothing of whether that
    /// can get there.
    pub const fn close_reason(self, is_v4: bool) -> Option<CloseReason> {
        match self {
            ErrorKind::PortUnreachable | ErrorKind::ProtocolUnreachable => Some(CloseReason::Refused),
            ErrorKind::NetworkUnreachable | ErrorKind::NetworkProhibited => Some(CloseReason::NetworkUnreachable),
            ErrorKind::Prohibited if !is_v4 => Some(CloseReason::Prohibited),
            ErrorKind::HostUnreachable | ErrorKind::Prohibited | ErrorKind::HopLimitExceeded => {
                Some(CloseReason::HostUnreachable)
            }
            ErrorKind::PacketTooBig | ErrorKind::ReassemblyTimeExceeded | ErrorKind::ParameterProblem => None,
        }
    }
}

/// The flow of a packet of ours, if it is TCP, UDP or an answer to an echo request over IPv6, and no later fragment.
pub fn flow(packet: &[u8]) -> Option<QuotedFlow> {
    quoted_v4(packet).or_else(|| quoted_v6(packet))
}

/// Checks an ICMP message and says what it wants. `packet` is whole, of protocol ICMP over IPv4 or ICMPv6 over IPv6, and for us.
pub fn input<'a>(packet: &Packet<'a>) -> Result<Incoming<'a>, Discard> {
    if packet.fragment.is_some() {
        return Err(Discard::IcmpMalformed);
    }
    match (packet.protocol, packet.src.is_v4()) {
        (protocol::ICMPV4, true) => input_v4(packet),
        (protocol::ICMPV6, false) => input_v6(packet),
        // ICMP for IPv4 inside IPv6, or the other way round.
        _ => Err(Discard::IcmpMalformed),
    }
}

fn input_v4<'a>(packet: &Packet<'a>) -> Result<Incoming<'a>, Discard> {
    use icmpv4::{Message, unreachable};
    let message = Message::parse(packet.payload).map_err(|_| Discard::IcmpMalformed)?;
    let (kind, quoted, mtu) = match message {
        //= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.2.6
        //# An ICMP Echo Request destined to an IP broadcast or IP multicast address MAY be silently discarded.
        Message::EchoRequest(_) if packet.is_group_addressed() => return Err(Discard::IcmpIgnored),
        Message::EchoRequest(echo) => return Ok(Incoming::EchoRequest(echo)),
        Message::EchoReply(echo) => return Ok(Incoming::EchoReply(echo)),
        Message::DestinationUnreachable { code, next_hop_mtu, quoted } => {
            let kind = match code {
                unreachable::NETWORK | unreachable::NETWORK_UNKNOWN | unreachable::NETWORK_FOR_SERVICE => {
                    ErrorKind::NetworkUnreachable
                }
                unreachable::PROTOCOL => ErrorKind::ProtocolUnreachable,
                unreachable::PORT => ErrorKind::PortUnreachable,
                unreachable::FRAGMENTATION_NEEDED => ErrorKind::PacketTooBig,
                unreachable::NETWORK_PROHIBITED => ErrorKind::NetworkProhibited,
                unreachable::HOST_PROHIBITED | unreachable::PROHIBITED => ErrorKind::Prohibited,
                _ => ErrorKind::HostUnreachable,
            };
            //= https://www.rfc-editor.org/rfc/rfc1191#section-5
            //# the greatest plateau value that is less than the returned Total Length field
            let mtu = if next_hop_mtu == 0 { plateau_below(total_len(quoted)) } else { next_hop_mtu.into() };
            (kind, quoted, mtu)
        }
        Message::TimeExceeded { code: 0, quoted } => (ErrorKind::HopLimitExceeded, quoted, 0),
        Message::TimeExceeded { quoted, .. } => (ErrorKind::ReassemblyTimeExceeded, quoted, 0),
        Message::ParameterProblem { quoted, .. } => (ErrorKind::ParameterProblem, quoted, 0),
        Message::Other { .. } => return Err(Discard::IcmpIgnored),
    };
    error(packet, kind, quoted_v4(quoted), mtu)
}

fn input_v6<'a>(packet: &Packet<'a>) -> Result<Incoming<'a>, Discard> {
    use icmpv6::{Message, View, parameter, unreachable};
    let view = View::new(packet.payload, &packet.src, &packet.dst).map_err(|_| Discard::IcmpMalformed)?;
    // Once the checksum is right, only neighbour discovery has more that can be wrong.
    let message = view.message().map_err(|_| Discard::NeighbourMalformed)?;
    let (kind, quoted, mtu) = match message {
        //= https://www.rfc-editor.org/rfc/rfc4291#section-2.5.2
        //# The unspecified address must not be used as the destination address of IPv6 packets or in IPv6 Routing headers.
        Message::EchoRequest(_) if packet.src.is_unspecified() => return Err(Discard::IcmpIgnored),
        Message::EchoRequest(echo) => return Ok(Incoming::EchoRequest(echo)),
        Message::EchoReply(echo) => return Ok(Incoming::EchoReply(echo)),
        Message::Ndp(message) => return Ok(Incoming::Neighbour(message)),
        Message::DestinationUnreachable { code, quoted } => {
            let kind = match code {
                unreachable::NO_ROUTE => ErrorKind::NetworkUnreachable,
                unreachable::PROHIBITED | unreachable::POLICY | unreachable::REJECTED => ErrorKind::Prohibited,
                unreachable::PORT => ErrorKind::PortUnreachable,
                _ => ErrorKind::HostUnreachable,
            };
            (kind, quoted, 0)
        }
        Message::PacketTooBig { mtu, quoted } => (ErrorKind::PacketTooBig, quoted, mtu),
        Message::TimeExceeded { code: 0, quoted } => (ErrorKind::HopLimitExceeded, quoted, 0),
        Message::TimeExceeded { quoted, .. } => (ErrorKind::ReassemblyTimeExceeded, quoted, 0),
        Message::ParameterProblem { code: parameter::NEXT_HEADER, quoted, .. } => {
            (ErrorKind::ProtocolUnreachable, quoted, 0)
        }
        Message::ParameterProblem { quoted, .. } => (ErrorKind::ParameterProblem, quoted, 0),
        Message::Other { .. } => return Err(Discard::IcmpIgnored),
    };
    error(packet, kind, quoted_v6(quoted), mtu)
}

/// An error goes to whoever sent the quoted packet, and we send from single addresses only.
fn error<'a>(
    packet: &Packet<'_>,
    kind: ErrorKind,
    quoted: Option<QuotedFlow>,
    mtu: u32,
) -> Result<Incoming<'a>, Discard> {
    match quoted {
        Some(quoted) if quoted.key.local == packet.dst && !packet.is_group_addressed() => {
            let mtu = (kind == ErrorKind::PacketTooBig).then_some(mtu);
            Ok(Incoming::Error(IcmpError { kind, quoted, mtu }))
        }
        _ => Err(Discard::IcmpUnverified),
    }
}

/// How long a quoted IPv4 packet was.
fn total_len(bytes: &[u8]) -> u32 {
    match bytes {
        [_, _, l0, l1, ..] => u16::from_be_bytes([*l0, *l1]).into(),
        _ => 0,
    }
}

/// The flow of a quoted IPv4 packet. It is cut short, so its length and checksum say nothing.
fn quoted_v4(bytes: &[u8]) -> Option<QuotedFlow> {
    let fixed = bytes.first_chunk::<20>()?;
    let header_len = usize::from(fixed[0] & 0xf) * 4;
    let is_first = u16::from_be_bytes([fixed[6], fixed[7]]) & 0x1fff == 0;
    if fixed[0] >> 4 != 4 || header_len < fixed.len() || !is_first {
        return None;
    }
    let src = Address::from_v4([fixed[12], fixed[13], fixed[14], fixed[15]]);
    let dst = Address::from_v4([fixed[16], fixed[17], fixed[18], fixed[19]]);
    quoted_flow(src, dst, fixed[9], bytes.get(header_len..)?)
}

/// The flow of a quoted IPv6 packet.
fn quoted_v6(bytes: &[u8]) -> Option<QuotedFlow> {
    let (fixed, rest) = bytes.split_first_chunk::<{ ipv6::HEADER_LEN }>()?;
    if fixed[0] >> 4 != 6 {
        return None;
    }
    let src = Address::from_v6(core::array::from_fn(|i| fixed[8 + i]));
    let dst = Address::from_v6(core::array::from_fn(|i| fixed[24 + i]));
    // We send no such packets, and a flow over IPv4 must not be named by them.
    if src.is_v4() || dst.is_v4() {
        return None;
    }
    let upper = ipv6::walk(fixed[6], rest).ok()?;
    if upper.fragment.is_some_and(|fragment| fragment.offset != 0) {
        return None;
    }
    quoted_flow(src, dst, upper.protocol, rest.get(upper.offset..)?)
}

/// RFC 792 promises 64 bits of the transport header: ports, and TCP's sequence number.
fn quoted_flow(src: Address, dst: Address, protocol: u8, bytes: &[u8]) -> Option<QuotedFlow> {
    let &[s0, s1, d0, d1, q0, q1, q2, q3] = bytes.first_chunk()?;
    let (mut local_port, mut remote_port) = (u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1]));
    let seq = match protocol {
        protocol::TCP => Some(SeqNum::new(u32::from_be_bytes([q0, q1, q2, q3]))),
        protocol::UDP => None,
        protocol::ICMPV6 if !src.is_v4() && [s0, s1] == icmpv6::ECHO_REPLY_BEGINS => {
            (local_port, remote_port) = (0, 0);
            None
        }
        _ => return None,
    };
    Some(QuotedFlow { protocol, key: FlowKey { local: src, remote: dst, local_port, remote_port }, seq })
}

/// What is wrong with somebody's packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Problem {
    /// Nobody listens on the port.
    PortUnreachable,
    /// Nobody here speaks the protocol; `at` is where in the packet its number stands (IPv6 names the place).
    ProtocolUnreachable {
        /// Byte offset from the IP header.
        at: u32,
    },
    /// A filter said no.
    Prohibited,
    /// It does not fit where it has to go next (a tunnel, a relay): these many bytes would.
    PacketTooBig {
        /// Bytes of an IP packet.
        mtu: u32,
    },
    /// Its hop limit is used up and it has further to go.
    HopLimitExceeded,
    /// The fragments did not all come in time.
    ReassemblyTimeExceeded,
    /// A header field makes no sense.
    ParameterProblem {
        /// Byte offset of the field from the IP header.
        at: u32,
    },
    /// An IPv6 option that we do not know, and whose type asks for this.
    UnknownOption {
        /// Byte offset of its type from the IP header.
        at: u32,
        /// Also if the packet went to a group.
        of_groups: bool,
    },
    /// The first fragment does not hold all headers (IPv6).
    IncompleteHeaders,
}

impl Problem {
    /// What is to be said of an IPv6 packet that was refused for this, which stands `at` bytes from its beginning. `None`: nothing.
    pub fn of_refused(why: Why, at: usize) -> Option<Problem> {
        let at = at as u32;
        match why {
            //= https://www.rfc-editor.org/rfc/rfc8200#section-4.2
            //# discard the packet and, regardless of whether or not the packet's Destination Address was a multicast address, send an
            //# ICMP Parameter Problem, Code 2, message to the packet's Source Address
            Why::OptionReport => Some(Problem::UnknownOption { at, of_groups: true }),
            Why::OptionReportUnicast => Some(Problem::UnknownOption { at, of_groups: false }),
            //= https://www.rfc-editor.org/rfc/rfc8200#section-4.4
            //# If Segments Left is non-zero, the node must discard the packet and send an ICMP Parameter Problem, Code 0,
            //# message to the packet's Source Address, pointing to the unrecognized Routing Type.
            Why::RoutingType0 | Why::RoutingHeader => Some(Problem::ParameterProblem { at }),
            //= https://www.rfc-editor.org/rfc/rfc8200#section-4
            //# The same action should be taken if a node encounters a Next Header value of zero in any header other than an IPv6
            //# header.
            Why::ExtensionOrder => Some(Problem::ProtocolUnreachable { at }),
            _ => None,
        }
    }

    /// What is to be said of a fragment over IPv6 that was discarded. `None`: nothing.
    pub fn of_fragment(packet: &Packet<'_>, discard: Discard) -> Option<Problem> {
        let is_cut = packet.fragment.is_some_and(|fragment| fragment.more) && !packet.payload.len().is_multiple_of(8);
        match discard {
            //= https://www.rfc-editor.org/rfc/rfc8200#section-4.5
            //# If the length of a fragment, as derived from the fragment packet's Payload Length field, is not a multiple of 8
            //# octets and the M flag of that fragment is 1, then that fragment must be discarded and an ICMP Parameter Problem,
            //# Code 0, message should be sent to the source of the fragment, pointing to the Payload Length field of the
            //# fragment packet.
            Discard::FragmentMalformed if is_cut => Some(Problem::ParameterProblem { at: 4 }),
            //= https://www.rfc-editor.org/rfc/rfc8200#section-4.5
            //# then that fragment should be discarded and an ICMP Parameter Problem, Code 3, message should be sent to the source
            //# of the fragment, with the Pointer field set to zero.
            Discard::FragmentTiny => Some(Problem::IncompleteHeaders),
            _ => None,
        }
    }
}

/// An ICMP message to send: decided, not yet written.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'a> {
    /// The IP header to go before it. A caller that has to fragment the packet sets `id` and clears `dont_fragment`.
    pub spec: HeaderSpec,
    body: Body<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Body<'a> {
    Echo(Echo<'a>),
    /// The two parts of the packet that is quoted.
    Error {
        problem: Problem,
        header: &'a [u8],
        payload: &'a [u8],
    },
}

/// The reply to an echo request that came in `packet`. `local` is the address to reply from when the request went to a group. The
/// caller limits the rate.
pub fn echo_reply<'a>(packet: &Packet<'_>, echo: Echo<'a>, local: Address) -> Reply<'a> {
    //= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.2.6
    //# The IP source address in an ICMP Echo Reply MUST be the same as the specific-destination address
    let from = if packet.is_group_addressed() { local } else { packet.dst };
    Reply { spec: HeaderSpec { dscp_ecn: class(packet), ..spec(from, packet.src) }, body: Body::Echo(echo) }
}

/// The traffic class of a packet (RFC 2474), without the marks of congestion: nobody here would heed those that a reply were to get.
fn class(packet: &Packet<'_>) -> u8 {
    const ECN: u8 = 3;
    let dscp_ecn = match *packet.header {
        [_, tos, ..] if packet.src.is_v4() => tos,
        [first, second, ..] => first << 4 | second >> 4,
        _ => 0,
    };
    dscp_ecn & !ECN
}

/// The error that answers `packet`, or `None` where none may (RFC 1122 section 3.2.2, RFC 4443 section 2.4 (e)): never about an
/// ICMP error, a packet to a group (but for an IPv6 option that wants it: then the caller chooses the source), a later fragment, or a
/// source that is not one host. The caller limits the rate.
pub fn error_reply<'a>(packet: &Packet<'a>, problem: Problem) -> Option<Reply<'a>> {
    let later_fragment = packet.fragment.is_some_and(|fragment| fragment.offset != 0);
    let of_groups = matches!(problem, Problem::UnknownOption { of_groups: true, .. });
    let to_group = packet.is_group_addressed() && !of_groups;
    if to_group || packet.src.is_unspecified() || later_fragment || is_icmp_error(packet) {
        return None;
    }
    let (header, payload) = (packet.header, packet.payload);
    Some(Reply { spec: spec(packet.dst, packet.src), body: Body::Error { problem, header, payload } })
}

fn spec(src: Address, dst: Address) -> HeaderSpec {
    HeaderSpec::new(src, dst, if src.is_v4() { protocol::ICMPV4 } else { protocol::ICMPV6 })
}

/// The type of a redirect over IPv6, which counts as no error. (Over IPv4 it does.)
const REDIRECT_V6: u8 = 137;

/// Whether the packet is itself an ICMP error or a redirect, or could be one: only known queries are not. (Of the ICMP of its own version: the other's is a
/// protocol that nobody speaks.)
fn is_icmp_error(packet: &Packet<'_>) -> bool {
    let (mut protocol, mut message) = (packet.protocol, packet.payload);
    let v4 = packet.src.is_v4();
    // In a fragment the headers that are for the destination alone still stand before it.
    if !v4 {
        let Some((upper, offset)) = ipv6::skip(protocol, message) else { return true };
        (protocol, message) = (upper, message.get(offset..).unwrap_or_default());
    }
    match (protocol, v4) {
        // Router discovery, timestamps, information and mask: the queries of RFC 792 and its successors.
        (protocol::ICMPV4, true) => !matches!(message.first(), Some(0 | 8 | 9 | 10 | 13..=18)),
        //= https://www.rfc-editor.org/rfc/rfc4443#section-2.4
        //# An ICMPv6 redirect message [IPv6-DISC].
        (protocol::ICMPV6, false) => message.first().is_none_or(|kind| *kind < 128 || *kind == REDIRECT_V6),
        _ => false,
    }
}

impl Reply<'_> {
    /// Bytes of the IP packet.
    pub fn len(&self) -> usize {
        self.spec.len() + self.message_len()
    }

    /// Never: a packet has bytes.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Bytes of the ICMP message alone.
    pub fn message_len(&self) -> usize {
        let data = match self.body {
            Body::Echo(echo) => echo.data.len(),
            Body::Error { header, payload, .. } => {
                (header.len() + payload.len()).min(quoted_max(self.spec.src.is_v4()))
            }
        };
        icmpv4::HEADER_LEN + data
    }

    /// Writes the IP packet to the first [`Reply::len`] bytes of `buf`.
    ///
    /// # Panics
    /// If `buf` is shorter.
    pub fn emit(&self, buf: &mut [u8]) {
        let (header, message) = buf[..self.len()].split_at_mut(self.spec.len());
        output::emit(&self.spec, header, message.len());
        self.emit_message(message);
    }

    /// Writes the ICMP message alone to the first [`Reply::message_len`] bytes of `buf`, for a caller that fragments it.
    ///
    /// # Panics
    /// If `buf` is shorter.
    pub fn emit_message(&self, buf: &mut [u8]) {
        let HeaderSpec { src, dst, .. } = self.spec;
        let v4 = src.is_v4();
        match self.body {
            Body::Echo(echo) if v4 => icmpv4::Message::EchoReply(echo).emit(buf),
            Body::Echo(echo) => icmpv6::Message::EchoReply(echo).emit(buf, &src, &dst),
            Body::Error { problem, header, payload } => {
                // An error is rare and limited; it can afford to gather its two parts.
                let mut gathered = [0; QUOTED_MAX_V6];
                let quoted = gather(&mut gathered[..quoted_max(v4)], header, payload);
                if v4 { error_v4(problem, quoted).emit(buf) } else { error_v6(problem, quoted).emit(buf, &src, &dst) }
            }
        }
    }
}

fn error_v4(problem: Problem, quoted: &[u8]) -> icmpv4::Message<'_> {
    use icmpv4::{Message, unreachable};
    let code = match problem {
        Problem::PortUnreachable => unreachable::PORT,
        Problem::ProtocolUnreachable { .. } => unreachable::PROTOCOL,
        Problem::Prohibited => unreachable::PROHIBITED,
        Problem::PacketTooBig { mtu } => {
            let next_hop_mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
            return Message::DestinationUnreachable { code: unreachable::FRAGMENTATION_NEEDED, next_hop_mtu, quoted };
        }
        Problem::HopLimitExceeded => return Message::TimeExceeded { code: 0, quoted },
        Problem::ReassemblyTimeExceeded => return Message::TimeExceeded { code: 1, quoted },
        Problem::ParameterProblem { at } | Problem::UnknownOption { at, .. } => {
            return Message::ParameterProblem { code: 0, pointer: u8::try_from(at).unwrap_or(u8::MAX), quoted };
        }
        Problem::IncompleteHeaders => return Message::ParameterProblem { code: 0, pointer: 0, quoted },
    };
    Message::DestinationUnreachable { code, next_hop_mtu: 0, quoted }
}

fn error_v6(problem: Problem, quoted: &[u8]) -> icmpv6::Message<'_> {
    use icmpv6::{Message, parameter, unreachable};
    let code = match problem {
        Problem::PortUnreachable => unreachable::PORT,
        Problem::ProtocolUnreachable { at } => {
            return Message::ParameterProblem { code: parameter::NEXT_HEADER, pointer: at, quoted };
        }
        Problem::Prohibited => unreachable::PROHIBITED,
        Problem::PacketTooBig { mtu } => return Message::PacketTooBig { mtu, quoted },
        Problem::HopLimitExceeded => return Message::TimeExceeded { code: 0, quoted },
        Problem::ReassemblyTimeExceeded => return Message::TimeExceeded { code: 1, quoted },
        Problem::ParameterProblem { at } => {
            return Message::ParameterProblem { code: parameter::HEADER_FIELD, pointer: at, quoted };
        }
        Problem::UnknownOption { at, .. } => {
            return Message::ParameterProblem { code: parameter::OPTION, pointer: at, quoted };
        }
        Problem::IncompleteHeaders => {
            return Message::ParameterProblem { code: parameter::FIRST_FRAGMENT, pointer: 0, quoted };
        }
    };
    Message::DestinationUnreachable { code, quoted }
}

/// RFC 1812 section 4.3.2.3: the error is at most 576 bytes, so that it is never fragmented.
const QUOTED_MAX_V4: usize = 576 - 20 - 8;
/// RFC 4443 section 2.4 (c): as much as fits the least IPv6 MTU.
const QUOTED_MAX_V6: usize = 1280 - 40 - 8;

const fn quoted_max(v4: bool) -> usize {
    if v4 { QUOTED_MAX_V4 } else { QUOTED_MAX_V6 }
}

/// As much of `a` and then `b` as there is room for.
fn gather<'b>(room: &'b mut [u8], a: &[u8], b: &[u8]) -> &'b [u8] {
    let from_a = a.len().min(room.len());
    let from_b = b.len().min(room.len() - from_a);
    room[..from_a].copy_from_slice(&a[..from_a]);
    room[from_a..from_a + from_b].copy_from_slice(&b[..from_b]);
    &room[..from_a + from_b]
}
