//! Owns the reasons for which a packet is dropped. Dropping is not an error: it is a value that is counted.

macro_rules! discards {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Why a packet went no further. Each name has a counter of its own on every lane.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        #[repr(u8)]
        pub enum Discard { $($(#[$doc])* $name),* }

        impl Discard {
            /// Every reason, in counter order.
            pub const ALL: &'static [Discard] = &[$(Discard::$name),*];
            /// The name under which the reason is counted and printed.
            pub const fn name(self) -> &'static str {
                match self { $(Discard::$name => stringify!($name)),* }
            }
        }
    };
}

discards! {
    /// The Ethernet header is cut short.
    EthernetMalformed,
    /// Addressed to another station.
    EthernetNotForUs,
    /// An EtherType that nobody here speaks.
    EthernetUnknownType,
    /// ARP that does not parse.
    ArpMalformed,
    /// An IPv4 or IPv6 header that does not parse.
    IpMalformed,
    /// The IPv4 header checksum is wrong.
    IpChecksum,
    /// The source address cannot be a sender (multicast, broadcast, loopback on the wire, one of ours).
    IpMartianSource,
    /// The destination is none of our addresses.
    IpNotLocal,
    /// No route to the destination of something we wanted to send.
    IpNoRoute,
    /// IPv6 routing header with segments left, of type 0 (RFC 5095) or any other.
    Ipv6RoutingHeader,
    /// Too many or unknown IPv6 extension headers.
    Ipv6ExtensionHeader,
    /// A protocol nobody here speaks.
    IpUnknownProtocol,
    /// A fragment that overlaps another: its datagram is refused whole.
    FragmentOverlap,
    /// A first fragment too small to hold the transport header.
    FragmentTiny,
    /// A fragment beyond the largest datagram, or of a length that cannot be.
    FragmentMalformed,
    /// The reassembly budget is used up.
    FragmentBudget,
    /// A datagram whose fragments did not all come in time.
    FragmentTimeout,
    /// An ICMP message that does not parse, or whose checksum is wrong.
    IcmpMalformed,
    /// An ICMP error that quotes no flow of ours, or a sequence number never sent.
    IcmpUnverified,
    /// An ICMP message over the rate that we answer.
    IcmpRateLimited,
    /// An ICMP type that we ignore.
    IcmpIgnored,
    /// Neighbour discovery that breaks RFC 4861 section 7.1.
    NeighbourMalformed,
    /// The neighbour did not answer; packets waiting for it are dropped.
    NeighbourUnreachable,
    /// Too much waited for a neighbour, or for all of them.
    NeighbourQueueFull,
    /// A UDP datagram that does not parse.
    UdpMalformed,
    /// The UDP checksum is wrong.
    UdpChecksum,
    /// No UDP socket on that port, or none that wants what was sent to all hosts.
    UdpNoPort,
    /// The UDP socket's queue is full.
    UdpQueueFull,
    /// A TCP segment that does not parse.
    TcpMalformed,
    /// The TCP checksum is wrong.
    TcpChecksum,
    /// No connection and no listener: answered with RST.
    TcpNoConnection,
    /// Outside the receive window (RFC 9293 section 3.10.7.4, first step).
    TcpOutOfWindow,
    /// An old timestamp (RFC 7323 section 5, PAWS).
    TcpPaws,
    /// An RST that is not at exactly RCV.NXT: challenged (RFC 5961 section 3).
    TcpRstChallenged,
    /// A SYN on a synchronized connection: challenged (RFC 5961 section 4).
    TcpSynChallenged,
    /// An ACK of something never sent, or far too old (RFC 5961 section 5).
    TcpAckInvalid,
    /// A segment without ACK where one must be.
    TcpNoAck,
    /// Data after our side was closed for reading, or beyond FIN.
    TcpDataAfterClose,
    /// Out-of-order data that the reassembly ranges cannot describe.
    TcpAssemblerFull,
    /// No memory for received data: the lane has lent all its buffers (the setting `lane_mem`).
    TcpMemory,
    /// The half-open cache is full and cookies are off, or the SYN is not acceptable.
    TcpSynDropped,
    /// A SYN, or the final ACK of a handshake, met a full accept queue.
    TcpListenOverflow,
    /// An ACK that carried no valid cookie.
    TcpCookieInvalid,
    /// While strangers had used up their part of the lane's time: a SYN, a fragment, or a segment of no flow, of somebody who is not known.
    TcpStranger,
    /// A segment that TIME_WAIT answered or ignored.
    TcpTimeWait,
    /// An RST in TIME_WAIT, ignored (RFC 1337).
    TcpTimeWaitRst,
    /// The device's transmit ring was full and the packet can be sent again later.
    TxFull,
    /// The mail ring to another lane was full; or the one to the control plane, for a frame of ARP or neighbour discovery.
    SteerRingFull,
    /// Somebody else on the link claims one of our addresses (RFC 5227, RFC 4862).
    NeighbourConflict,
}
