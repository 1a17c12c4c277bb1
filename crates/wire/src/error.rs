//! Owns `Malformed`: which layer of a packet was not what its RFC says, and why. Always the sender's fault.

use core::fmt;

/// The layer whose bytes were refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Layer {
    /// Ethernet II.
    Ethernet,
    /// Address resolution (RFC 826).
    Arp,
    /// IPv4 (RFC 791).
    Ipv4,
    /// IPv6 with its extension headers (RFC 8200).
    Ipv6,
    /// ICMP for IPv4 (RFC 792).
    Icmpv4,
    /// ICMP for IPv6 (RFC 4443).
    Icmpv6,
    /// Neighbour discovery (RFC 4861).
    Ndp,
    /// UDP (RFC 768).
    Udp,
    /// TCP (RFC 9293).
    Tcp,
}

/// What is wrong with the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Why {
    /// There are fewer bytes than the header needs.
    Truncated,
    /// The version nibble names another protocol.
    Version,
    /// The header length field is below the minimum, or beyond the end of the packet.
    HeaderLength,
    /// The total or payload length field disagrees with the bytes that arrived.
    TotalLength,
    /// The checksum does not match.
    Checksum,
    /// An option's length field is impossible.
    OptionLength,
    /// An IPv6 option that we do not know, and whose type says to discard the packet in silence (RFC 8200 4.2, `01`).
    OptionDiscard,
    /// As [`Why::OptionDiscard`], and its type asks for an ICMP parameter problem (`10`).
    OptionReport,
    /// As [`Why::OptionReport`], but no report when the destination was a multicast address (`11`).
    OptionReportUnicast,
    /// More options in one header than anybody needs.
    TooManyOptions,
    /// More extension headers than anybody needs.
    TooManyExtensions,
    /// A hop-by-hop header that is not the first header (RFC 8200 section 4.1).
    ExtensionOrder,
    /// The deprecated type 0 routing header (RFC 5095) with segments left.
    RoutingType0,
    /// A routing header with segments left: we are not a router on that path.
    RoutingHeader,
    /// A payload of more than 65535 bytes (RFC 2675), which we do not take part in.
    Jumbogram,
    /// A fragment that reaches beyond the largest possible datagram.
    FragmentLength,
    /// A fragment where only a whole datagram can be used.
    Fragmented,
    /// A hardware or protocol address type other than Ethernet and IPv4.
    AddressType,
    /// An operation or message type that is not defined.
    Operation,
    /// The payload is not the protocol that was asked for.
    Protocol,
    /// A field that must be zero, or an address that must not be multicast, is not so (RFC 4861 sections 6.1 and 7.1).
    Field,
}

/// Bytes that their sender should not have sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Malformed {
    /// Where.
    pub layer: Layer,
    /// What.
    pub why: Why,
}

impl Malformed {
    /// `layer` was refused because of `why`.
    #[inline]
    pub const fn new(layer: Layer, why: Why) -> Self {
        Malformed { layer, why }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Layer::Ethernet => "Ethernet",
            Layer::Arp => "ARP",
            Layer::Ipv4 => "IPv4",
            Layer::Ipv6 => "IPv6",
            Layer::Icmpv4 => "ICMPv4",
            Layer::Icmpv6 => "ICMPv6",
            Layer::Ndp => "neighbour discovery",
            Layer::Udp => "UDP",
            Layer::Tcp => "TCP",
        })
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Why::Truncated => "fewer bytes than the header needs",
            Why::Version => "wrong version",
            Why::HeaderLength => "impossible header length",
            Why::TotalLength => "length field disagrees with the bytes",
            Why::Checksum => "wrong checksum",
            Why::OptionLength => "impossible option length",
            Why::OptionDiscard => "unknown option that says to discard",
            Why::OptionReport => "unknown option that says to report",
            Why::OptionReportUnicast => "unknown option that says to report unless multicast",
            Why::TooManyOptions => "too many options",
            Why::TooManyExtensions => "too many extension headers",
            Why::ExtensionOrder => "hop-by-hop header not first",
            Why::RoutingType0 => "type 0 routing header with segments left",
            Why::RoutingHeader => "routing header with segments left",
            Why::Jumbogram => "jumbogram",
            Why::FragmentLength => "fragment beyond the largest datagram",
            Why::Fragmented => "fragment in place of a datagram",
            Why::AddressType => "neither Ethernet nor IPv4 addresses",
            Why::Operation => "undefined operation",
            Why::Protocol => "another protocol",
            Why::Field => "field with a forbidden value",
        })
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed {}: {}", self.layer, self.why)
    }
}

impl core::error::Error for Malformed {}
