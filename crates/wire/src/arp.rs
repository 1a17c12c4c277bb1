//! Owns address resolution between Ethernet and IPv4 (RFC 826).

use crate::error::{Layer, Malformed, Why};
use crate::ethernet::Mac;
use crate::flow::Address;

#[cfg(test)]
mod tests;

/// Bytes of a packet for Ethernet and IPv4.
pub const LEN: usize = 28;

const HARDWARE_ETHERNET: u16 = 1;
const PROTOCOL_IPV4: u16 = 0x0800;

/// What a packet wants.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operation {
    /// Who has the target's address?
    Request,
    /// The sender has it.
    Reply,
}

/// A packet known to be whole, and about Ethernet and IPv4.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    bytes: &'a [u8; LEN],
    operation: Operation,
}

impl<'a> View<'a> {
    /// Checks the packet at the front of `bytes`; padding of the link may follow.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let malformed = |why| Err(Malformed::new(Layer::Arp, why));
        let Some(bytes) = bytes.first_chunk::<LEN>() else {
            return malformed(Why::Truncated);
        };
        let hardware = u16::from_be_bytes([bytes[0], bytes[1]]);
        let protocol = u16::from_be_bytes([bytes[2], bytes[3]]);
        if (hardware, protocol, bytes[4], bytes[5]) != (HARDWARE_ETHERNET, PROTOCOL_IPV4, 6, 4) {
            return malformed(Why::AddressType);
        }
        let operation = match u16::from_be_bytes([bytes[6], bytes[7]]) {
            1 => Operation::Request,
            2 => Operation::Reply,
            _ => return malformed(Why::Operation),
        };
        Ok(View { bytes, operation })
    }

    /// What the packet says.
    pub fn packet(&self) -> Packet {
        let b = self.bytes;
        Packet {
            operation: self.operation,
            sender_mac: Mac([b[8], b[9], b[10], b[11], b[12], b[13]]),
            sender: Address::from_v4([b[14], b[15], b[16], b[17]]),
            target_mac: Mac([b[18], b[19], b[20], b[21], b[22], b[23]]),
            target: Address::from_v4([b[24], b[25], b[26], b[27]]),
        }
    }
}

/// The meaning of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Packet {
    /// What it wants.
    pub operation: Operation,
    /// The sender's Ethernet address.
    pub sender_mac: Mac,
    /// The sender's IPv4 address; `0.0.0.0` in a probe (RFC 5227).
    pub sender: Address,
    /// The target's Ethernet address; of no meaning in a request.
    pub target_mac: Mac,
    /// The target's IPv4 address.
    pub target: Address,
}

impl Packet {
    /// Checks and reads in one go.
    pub fn parse(bytes: &[u8]) -> Result<Packet, Malformed> {
        Ok(View::new(bytes)?.packet())
    }

    /// Writes the packet to the first [`LEN`] bytes of `buf`.
    ///
    /// # Panics
    /// If `buf` is shorter.
    pub fn emit(&self, buf: &mut [u8]) {
        buf[0..2].copy_from_slice(&HARDWARE_ETHERNET.to_be_bytes());
        buf[2..4].copy_from_slice(&PROTOCOL_IPV4.to_be_bytes());
        buf[4..8].copy_from_slice(match self.operation {
            Operation::Request => &[6, 4, 0, 1],
            Operation::Reply => &[6, 4, 0, 2],
        });
        buf[8..14].copy_from_slice(&self.sender_mac.0);
        buf[14..18].copy_from_slice(&self.sender.octets_v4());
        buf[18..24].copy_from_slice(&self.target_mac.0);
        buf[24..28].copy_from_slice(&self.target.octets_v4());
    }
}
