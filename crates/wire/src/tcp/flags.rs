//! Owns `Flags`, the eight control bits.

use core::fmt;
use core::ops::{BitAnd, BitOr, BitOrAssign};

/// The control bits of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(u8);

impl Flags {
    /// No bit.
    pub const NONE: Flags = Flags(0);
    /// No more data from the sender.
    pub const FIN: Flags = Flags(0x01);
    /// Synchronize sequence numbers.
    pub const SYN: Flags = Flags(0x02);
    /// Reset the connection.
    pub const RST: Flags = Flags(0x04);
    /// Push function.
    pub const PSH: Flags = Flags(0x08);
    /// The acknowledgment field is significant.
    pub const ACK: Flags = Flags(0x10);
    /// The urgent pointer is significant.
    pub const URG: Flags = Flags(0x20);
    /// ECN echo (RFC 3168).
    pub const ECE: Flags = Flags(0x40);
    /// Congestion window reduced (RFC 3168).
    pub const CWR: Flags = Flags(0x80);

    /// From the byte of the header.
    #[inline]
    pub const fn from_bits(bits: u8) -> Self {
        Flags(bits)
    }

    /// As the byte of the header.
    #[inline]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Are all of `other` set?
    #[inline]
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Is any of `other` set?
    #[inline]
    pub const fn intersects(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }

    /// Both, in constants.
    #[inline]
    pub const fn union(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// Without `other`.
    #[inline]
    pub const fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }

    /// Is SYN set?
    #[inline]
    pub const fn syn(self) -> bool {
        self.contains(Flags::SYN)
    }

    /// Is ACK set?
    #[inline]
    pub const fn ack(self) -> bool {
        self.contains(Flags::ACK)
    }

    /// Is FIN set?
    #[inline]
    pub const fn fin(self) -> bool {
        self.contains(Flags::FIN)
    }

    /// Is RST set?
    #[inline]
    pub const fn rst(self) -> bool {
        self.contains(Flags::RST)
    }

    /// Is PSH set?
    #[inline]
    pub const fn psh(self) -> bool {
        self.contains(Flags::PSH)
    }

    /// Is URG set?
    #[inline]
    pub const fn urg(self) -> bool {
        self.contains(Flags::URG)
    }
}

impl BitOr for Flags {
    type Output = Flags;
    #[inline]
    fn bitor(self, other: Flags) -> Flags {
        self.union(other)
    }
}

impl BitOrAssign for Flags {
    #[inline]
    fn bitor_assign(&mut self, other: Flags) {
        *self = self.union(other);
    }
}

impl BitAnd for Flags {
    type Output = Flags;
    #[inline]
    fn bitand(self, other: Flags) -> Flags {
        Flags(self.0 & other.0)
    }
}

/// In the order in which people say them: `SYN|ACK`, `FIN|PSH|ACK`.
const NAMES: [(Flags, &str); 8] = [
    (Flags::SYN, "SYN"),
    (Flags::FIN, "FIN"),
    (Flags::RST, "RST"),
    (Flags::PSH, "PSH"),
    (Flags::ACK, "ACK"),
    (Flags::URG, "URG"),
    (Flags::ECE, "ECE"),
    (Flags::CWR, "CWR"),
];

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (flag, name) in NAMES {
            if self.contains(flag) {
                write!(f, "{separator}{name}")?;
                separator = "|";
            }
        }
        if separator.is_empty() { f.write_str("none") } else { Ok(()) }
    }
}
