//! Owns the messages of ICMP for IPv4 (RFC 792).

use crate::checksum::Sum;
use crate::error::{Layer, Malformed, Why};

#[cfg(test)]
mod tests;

/// Bytes of a message before its data.
pub const HEADER_LEN: usize = 8;

/// Codes of "destination unreachable" (RFC 792, RFC 1122 section 3.2.2.1, RFC 1812 section 5.2.7.1).
pub mod unreachable {
    /// Network unreachable.
    pub const NETWORK: u8 = 0;
    /// Host unreachable.
    pub const HOST: u8 = 1;
    /// Protocol unreachable.
    pub const PROTOCOL: u8 = 2;
    /// Port unreachable.
    pub const PORT: u8 = 3;
    /// Fragmentation needed and DF set; the message names the next hop's MTU (RFC 1191).
    pub const FRAGMENTATION_NEEDED: u8 = 4;
    /// Source route failed.
    pub const SOURCE_ROUTE_FAILED: u8 = 5;
    /// Destination network unknown.
    pub const NETWORK_UNKNOWN: u8 = 6;
    /// Communication with the network administratively prohibited.
    pub const NETWORK_PROHIBITED: u8 = 9;
    /// Communication with the host administratively prohibited.
    pub const HOST_PROHIBITED: u8 = 10;
    /// Network unreachable for this type of service.
    pub const NETWORK_FOR_SERVICE: u8 = 11;
    /// Communication administratively prohibited.
    pub const PROHIBITED: u8 = 13;
}

const ECHO_REPLY: u8 = 0;
const DESTINATION_UNREACHABLE: u8 = 3;
const ECHO_REQUEST: u8 = 8;
const TIME_EXCEEDED: u8 = 11;
const PARAMETER_PROBLEM: u8 = 12;

/// A message known to be whole, its checksum right.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    header: &'a [u8; HEADER_LEN],
    data: &'a [u8],
}

impl<'a> View<'a> {
    /// Checks `bytes`, all of which are the message.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let Some((header, data)) = bytes.split_first_chunk() else {
            return Err(Malformed::new(Layer::Icmpv4, Why::Truncated));
        };
        if !Sum::of(bytes).is_valid() {
            return Err(Malformed::new(Layer::Icmpv4, Why::Checksum));
        }
        Ok(View { header, data })
    }

    /// What the message says.
    pub fn message(&self) -> Message<'a> {
        let [kind, code, _, _, a, b, c, d] = *self.header;
        let data = self.data;
        let echo = Echo { id: u16::from_be_bytes([a, b]), seq: u16::from_be_bytes([c, d]), data };
        match (kind, code) {
            (ECHO_REQUEST, 0) => Message::EchoRequest(echo),
            (ECHO_REPLY, 0) => Message::EchoReply(echo),
            (DESTINATION_UNREACHABLE, _) => {
                Message::DestinationUnreachable { code, next_hop_mtu: u16::from_be_bytes([c, d]), quoted: data }
            }
            (TIME_EXCEEDED, _) => Message::TimeExceeded { code, quoted: data },
            (PARAMETER_PROBLEM, _) => Message::ParameterProblem { code, pointer: a, quoted: data },
            _ => Message::Other { kind, code, rest: [a, b, c, d], data },
        }
    }
}

/// An echo request, or the reply to one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Echo<'a> {
    /// Which conversation.
    pub id: u16,
    /// Which request of it.
    pub seq: u16,
    /// What the reply brings back.
    pub data: &'a [u8],
}

/// The meaning of a message. `quoted` is the packet that an error is about, from its IP header on, cut short; the
/// extension objects of RFC 4884 may follow it and are not told apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Message<'a> {
    /// Are you there?
    EchoRequest(Echo<'a>),
    /// I am.
    EchoReply(Echo<'a>),
    /// A packet could not be delivered.
    DestinationUnreachable {
        /// See [`mod@unreachable`].
        code: u8,
        /// Bytes; meaningful with [`unreachable::FRAGMENTATION_NEEDED`], and 0 from routers older than RFC 1191.
        next_hop_mtu: u16,
        /// The packet.
        quoted: &'a [u8],
    },
    /// A packet's time to live (code 0) or its reassembly time (code 1) ran out.
    TimeExceeded {
        /// Which of the two.
        code: u8,
        /// The packet.
        quoted: &'a [u8],
    },
    /// A packet's header makes no sense.
    ParameterProblem {
        /// 0: see `pointer`.
        code: u8,
        /// The byte that makes none.
        pointer: u8,
        /// The packet.
        quoted: &'a [u8],
    },
    /// Anything else, uninterpreted.
    Other {
        /// Type.
        kind: u8,
        /// Code.
        code: u8,
        /// The second word of the header.
        rest: [u8; 4],
        /// What follows.
        data: &'a [u8],
    },
}

impl<'a> Message<'a> {
    /// Checks and reads in one go.
    pub fn parse(bytes: &'a [u8]) -> Result<Message<'a>, Malformed> {
        Ok(View::new(bytes)?.message())
    }

    /// Bytes of the message.
    #[allow(clippy::len_without_is_empty, reason = "a message is never empty")]
    pub fn len(&self) -> usize {
        HEADER_LEN + self.data().len()
    }

    fn data(&self) -> &'a [u8] {
        match *self {
            Message::EchoRequest(echo) | Message::EchoReply(echo) => echo.data,
            Message::DestinationUnreachable { quoted, .. }
            | Message::TimeExceeded { quoted, .. }
            | Message::ParameterProblem { quoted, .. } => quoted,
            Message::Other { data, .. } => data,
        }
    }

    /// Writes the message and its checksum to the first [`Message::len`] bytes of `buf`.
    ///
    /// # Panics
    /// If `buf` is shorter.
    pub fn emit(&self, buf: &mut [u8]) {
        let buf = &mut buf[..self.len()];
        let (kind, code, rest) = match *self {
            Message::EchoRequest(echo) => (ECHO_REQUEST, 0, echo_rest(&echo)),
            Message::EchoReply(echo) => (ECHO_REPLY, 0, echo_rest(&echo)),
            Message::DestinationUnreachable { code, next_hop_mtu, .. } => {
                let [c, d] = next_hop_mtu.to_be_bytes();
                (DESTINATION_UNREACHABLE, code, [0, 0, c, d])
            }
            Message::TimeExceeded { code, .. } => (TIME_EXCEEDED, code, [0; 4]),
            Message::ParameterProblem { code, pointer, .. } => (PARAMETER_PROBLEM, code, [pointer, 0, 0, 0]),
            Message::Other { kind, code, rest, .. } => (kind, code, rest),
        };
        buf[..4].copy_from_slice(&[kind, code, 0, 0]);
        buf[4..8].copy_from_slice(&rest);
        buf[8..].copy_from_slice(self.data());
        let checksum = Sum::of(buf).checksum();
        buf[2..4].copy_from_slice(&checksum);
    }
}

fn echo_rest(echo: &Echo<'_>) -> [u8; 4] {
    let ([a, b], [c, d]) = (echo.id.to_be_bytes(), echo.seq.to_be_bytes());
    [a, b, c, d]
}
