//! Owns the messages of ICMP for IPv6 (RFC 4443); those of neighbour discovery are in [`ndp`].

use crate::checksum::{Sum, pseudo_header, verify_transport};
use crate::error::{Layer, Malformed, Why};
use crate::flow::Address;
use crate::icmpv4::Echo;
use crate::{ndp, protocol};

#[cfg(test)]
mod tests;

/// Bytes of a message before its data.
pub const HEADER_LEN: usize = 8;

/// Codes of "destination unreachable" (RFC 4443 section 3.1).
pub mod unreachable {
    /// No route to the destination.
    pub const NO_ROUTE: u8 = 0;
    /// Communication administratively prohibited.
    pub const PROHIBITED: u8 = 1;
    /// Beyond the scope of the source address.
    pub const BEYOND_SCOPE: u8 = 2;
    /// Address unreachable.
    pub const ADDRESS: u8 = 3;
    /// Port unreachable.
    pub const PORT: u8 = 4;
    /// Of what is prohibited: the source address failed an ingress or egress policy.
    pub const POLICY: u8 = 5;
    /// Of what is prohibited: the route is there to reject.
    pub const REJECTED: u8 = 6;
}

/// Codes of "parameter problem" (RFC 4443 section 3.4).
pub mod parameter {
    /// Erroneous header field.
    pub const HEADER_FIELD: u8 = 0;
    /// Unrecognized next header.
    pub const NEXT_HEADER: u8 = 1;
    /// Unrecognized option.
    pub const OPTION: u8 = 2;
    /// The first fragment does not hold all headers (RFC 7112 section 5).
    pub const FIRST_FRAGMENT: u8 = 3;
}

const DESTINATION_UNREACHABLE: u8 = 1;
const PACKET_TOO_BIG: u8 = 2;
const TIME_EXCEEDED: u8 = 3;
const PARAMETER_PROBLEM: u8 = 4;
const ECHO_REQUEST: u8 = 128;
const ECHO_REPLY: u8 = 129;

/// Type and code of the answer to an echo request.
pub const ECHO_REPLY_BEGINS: [u8; 2] = [ECHO_REPLY, 0];

/// A message known to be whole, its checksum right.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    header: &'a [u8; HEADER_LEN],
    data: &'a [u8],
    bytes: &'a [u8],
}

impl<'a> View<'a> {
    /// Checks `bytes`, all of which are the message, sent from `src` to `dst`.
    pub fn new(bytes: &'a [u8], src: &Address, dst: &Address) -> Result<Self, Malformed> {
        let Some((header, data)) = bytes.split_first_chunk() else {
            return Err(Malformed::new(Layer::Icmpv6, Why::Truncated));
        };
        if !verify_transport(src, dst, protocol::ICMPV6, bytes) {
            return Err(Malformed::new(Layer::Icmpv6, Why::Checksum));
        }
        Ok(View { header, data, bytes })
    }

    /// What the message says. Only neighbour discovery has more that can be wrong.
    pub fn message(&self) -> Result<Message<'a>, Malformed> {
        let [kind, code, _, _, a, b, c, d] = *self.header;
        let data = self.data;
        let word = u32::from_be_bytes([a, b, c, d]);
        let echo = Echo { id: u16::from_be_bytes([a, b]), seq: u16::from_be_bytes([c, d]), data };
        Ok(match (kind, code) {
            (ECHO_REQUEST, 0) => Message::EchoRequest(echo),
            (ECHO_REPLY, 0) => Message::EchoReply(echo),
            (DESTINATION_UNREACHABLE, _) => Message::DestinationUnreachable { code, quoted: data },
            // The receiver ignores the code (RFC 4443 section 3.2).
            (PACKET_TOO_BIG, _) => Message::PacketTooBig { mtu: word, quoted: data },
            (TIME_EXCEEDED, _) => Message::TimeExceeded { code, quoted: data },
            (PARAMETER_PROBLEM, _) => Message::ParameterProblem { code, pointer: word, quoted: data },
            (kind, _) if ndp::is_ours(kind) => Message::Ndp(ndp::Message::parse(self.bytes)?),
            _ => Message::Other { kind, code, rest: [a, b, c, d], data },
        })
    }
}

/// The meaning of a message. `quoted` is the packet that an error is about, from its IP header on, cut short; the
/// extension objects of RFC 4884 may follow it and are not told apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message<'a> {
    /// Are you there?
    EchoRequest(Echo<'a>),
    /// I am.
    EchoReply(Echo<'a>),
    /// A packet could not be delivered.
    DestinationUnreachable {
        /// See [`mod@unreachable`].
        code: u8,
        /// The packet.
        quoted: &'a [u8],
    },
    /// A packet did not fit a link.
    PacketTooBig {
        /// Bytes that would have.
        mtu: u32,
        /// The packet.
        quoted: &'a [u8],
    },
    /// A packet's hop limit (code 0) or its reassembly time (code 1) ran out.
    TimeExceeded {
        /// Which of the two.
        code: u8,
        /// The packet.
        quoted: &'a [u8],
    },
    /// A packet's headers make no sense.
    ParameterProblem {
        /// See [`parameter`].
        code: u8,
        /// The byte that makes none.
        pointer: u32,
        /// The packet.
        quoted: &'a [u8],
    },
    /// Neighbour discovery.
    Ndp(ndp::Message),
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
    pub fn parse(bytes: &'a [u8], src: &Address, dst: &Address) -> Result<Message<'a>, Malformed> {
        View::new(bytes, src, dst)?.message()
    }

    /// Bytes of the message.
    #[allow(clippy::len_without_is_empty, reason = "a message is never empty")]
    pub fn len(&self) -> usize {
        match self {
            Message::Ndp(message) => message.len(),
            _ => HEADER_LEN + self.data().len(),
        }
    }

    fn data(&self) -> &'a [u8] {
        match *self {
            Message::EchoRequest(echo) | Message::EchoReply(echo) => echo.data,
            Message::DestinationUnreachable { quoted, .. }
            | Message::PacketTooBig { quoted, .. }
            | Message::TimeExceeded { quoted, .. }
            | Message::ParameterProblem { quoted, .. } => quoted,
            Message::Other { data, .. } => data,
            Message::Ndp(_) => &[],
        }
    }

    /// Writes the message, sent from `src` to `dst`, and its checksum to the first [`Message::len`] bytes of `buf`.
    ///
    /// # Panics
    /// If `buf` is shorter.
    pub fn emit(&self, buf: &mut [u8], src: &Address, dst: &Address) {
        let buf = &mut buf[..self.len()];
        let (kind, code, rest) = match *self {
            Message::EchoRequest(echo) => (ECHO_REQUEST, 0, echo_rest(&echo)),
            Message::EchoReply(echo) => (ECHO_REPLY, 0, echo_rest(&echo)),
            Message::DestinationUnreachable { code, .. } => (DESTINATION_UNREACHABLE, code, [0; 4]),
            Message::PacketTooBig { mtu, .. } => (PACKET_TOO_BIG, 0, mtu.to_be_bytes()),
            Message::TimeExceeded { code, .. } => (TIME_EXCEEDED, code, [0; 4]),
            Message::ParameterProblem { code, pointer, .. } => (PARAMETER_PROBLEM, code, pointer.to_be_bytes()),
            Message::Other { kind, code, rest, .. } => (kind, code, rest),
            Message::Ndp(message) => {
                message.emit(buf);
                return fill_checksum(buf, src, dst);
            }
        };
        buf[..4].copy_from_slice(&[kind, code, 0, 0]);
        buf[4..8].copy_from_slice(&rest);
        buf[8..].copy_from_slice(self.data());
        fill_checksum(buf, src, dst);
    }
}

fn fill_checksum(buf: &mut [u8], src: &Address, dst: &Address) {
    let pseudo = pseudo_header(src, dst, protocol::ICMPV6, buf.len() as u32);
    let checksum = (pseudo + Sum::of(buf)).checksum();
    buf[2..4].copy_from_slice(&checksum);
}

fn echo_rest(echo: &Echo<'_>) -> [u8; 4] {
    let ([a, b], [c, d]) = (echo.id.to_be_bytes(), echo.seq.to_be_bytes());
    [a, b, c, d]
}
