//! Owns packets in packetdrill's notation. All numbers are the script's: where they lie on the circle is the runner's affair.

use laneway_wire::tcp::Flags;
use std::fmt;

/// A packet as a script names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Packet {
    /// A TCP segment.
    Tcp(TcpPacket),
    /// An ICMP error.
    Icmp(IcmpPacket),
}

/// A TCP segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TcpPacket {
    /// Which of the script's connections.
    pub flow: u16,
    /// What the IP header says of marks: 0 nothing, or ECT(1), ECT(0), CE (RFC 3168 section 5).
    pub ecn: u8,
    /// Control bits.
    pub flags: Flags,
    /// First sequence number.
    pub seq: u32,
    /// Payload bytes.
    pub len: u32,
    /// Acknowledgment number; meaningful with ACK.
    pub ack: u32,
    /// Window field as it stands on the wire; `None`: not compared.
    pub window: Option<u16>,
    /// Urgent pointer; `None`: not compared, and 0 when sent.
    pub urgent: Option<u16>,
    /// Options in order; `None`: any.
    pub options: Option<Vec<TcpOption>>,
}

/// One TCP option.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TcpOption {
    /// End of the list.
    Eol,
    /// Padding.
    Nop,
    /// Maximum segment size.
    Mss(u16),
    /// Window scale.
    Scale(u8),
    /// SACK permitted.
    SackOk,
    /// SACK blocks.
    Sack(Vec<(u32, u32)>),
    /// Timestamps.
    Timestamps(u32, u32),
    /// Bytes as they are, kind and length included; for options that are unknown or broken.
    Raw(Vec<u8>),
}

/// An ICMP error that quotes one of our segments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IcmpPacket {
    /// Which of the script's connections is quoted.
    pub flow: u16,
    /// What it says.
    pub kind: IcmpKind,
    /// Quoted sequence number.
    pub seq: u32,
    /// Payload length of the quoted segment.
    pub len: u32,
}

/// What an ICMP error says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IcmpKind {
    /// Too big for a link; the MTU of that link.
    TooBig(u32),
    /// Destination unreachable.
    Unreachable(Unreachable),
    /// Hop limit used up.
    TimeExceeded,
}

/// What cannot be reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unreachable {
    /// Its network: there is no route.
    Net,
    /// The host itself.
    Host,
    /// The protocol, which nobody there speaks.
    Protocol,
    /// The port.
    Port,
    /// What this code means, which each family has its own of.
    Code(u8),
}

impl IcmpKind {
    /// Type and code (RFC 792; RFC 4443).
    pub fn type_and_code(self, v4: bool) -> (u8, u8) {
        use Unreachable::*;
        match (self, v4) {
            (IcmpKind::TooBig(_), true) => (3, 4),
            (IcmpKind::TooBig(_), false) => (2, 0),
            (IcmpKind::TimeExceeded, true) => (11, 0),
            (IcmpKind::TimeExceeded, false) => (3, 0),
            (IcmpKind::Unreachable(Code(code)), true) => (3, code),
            (IcmpKind::Unreachable(Code(code)), false) => (1, code),
            (IcmpKind::Unreachable(Net), true) => (3, 0),
            (IcmpKind::Unreachable(Net), false) => (1, 0),
            (IcmpKind::Unreachable(Host), true) => (3, 1),
            (IcmpKind::Unreachable(Host), false) => (1, 3),
            (IcmpKind::Unreachable(Protocol), true) => (3, 2),
            (IcmpKind::Unreachable(Protocol), false) => (4, 1), // a header that is not known
            (IcmpKind::Unreachable(Port), true) => (3, 3),
            (IcmpKind::Unreachable(Port), false) => (1, 4),
        }
    }
}

const LETTERS: [(Flags, char); 8] = [
    (Flags::SYN, 'S'),
    (Flags::FIN, 'F'),
    (Flags::RST, 'R'),
    (Flags::PSH, 'P'),
    (Flags::URG, 'U'),
    (Flags::ECE, 'E'),
    (Flags::CWR, 'W'),
    (Flags::ACK, '.'),
];

/// What a script calls the values of [`TcpPacket::ecn`], as packetdrill does.
const CODEPOINTS: [&str; 4] = ["[noecn]", "[ect1]", "[ect0]", "[ce]"];

/// The value that has this name.
pub fn codepoint(name: &str) -> Option<u8> {
    (0..).zip(CODEPOINTS).find_map(|(value, its)| (its == name).then_some(value))
}

/// The flags that letters name; `None` if one of them is no flag.
pub fn flags(letters: &str) -> Option<Flags> {
    let mut all = Flags::NONE;
    for letter in letters.chars() {
        let (flag, _) = LETTERS.iter().find(|(_, l)| *l == letter)?;
        all |= *flag;
    }
    Some(all)
}

impl fmt::Display for TcpPacket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.flow != 0 {
            write!(f, "#{} ", self.flow)?;
        }
        if self.ecn != 0 {
            write!(f, "{} ", CODEPOINTS[usize::from(self.ecn % 4)])?;
        }
        for (flag, letter) in LETTERS {
            if self.flags.contains(flag) {
                write!(f, "{letter}")?;
            }
        }
        if self.flags == Flags::NONE {
            f.write_str("-")?;
        }
        write!(f, " {}:{}({})", self.seq, self.seq.wrapping_add(self.len), self.len)?;
        if self.flags.ack() {
            write!(f, " ack {}", self.ack)?;
        }
        if let Some(window) = self.window {
            write!(f, " win {window}")?;
        }
        if let Some(urgent) = self.urgent {
            write!(f, " urg {urgent}")?;
        }
        match &self.options {
            None => f.write_str(" <...>"),
            Some(options) if options.is_empty() => Ok(()),
            Some(options) => {
                let texts: Vec<String> = options.iter().map(TcpOption::to_string).collect();
                write!(f, " <{}>", texts.join(","))
            }
        }
    }
}

impl fmt::Display for TcpOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TcpOption::Eol => f.write_str("eol"),
            TcpOption::Nop => f.write_str("nop"),
            TcpOption::Mss(mss) => write!(f, "mss {mss}"),
            TcpOption::Scale(scale) => write!(f, "wscale {scale}"),
            TcpOption::SackOk => f.write_str("sackOK"),
            TcpOption::Timestamps(val, ecr) => write!(f, "TS val {val} ecr {ecr}"),
            TcpOption::Sack(blocks) => {
                f.write_str("sack")?;
                blocks.iter().try_for_each(|(from, to)| write!(f, " {from}:{to}"))
            }
            TcpOption::Raw(bytes) => {
                f.write_str("raw ")?;
                bytes.iter().try_for_each(|b| write!(f, "{b:02x}"))
            }
        }
    }
}

impl fmt::Display for IcmpPacket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            IcmpKind::TooBig(mtu) => write!(f, "icmp too_big mtu {mtu}")?,
            IcmpKind::Unreachable(Unreachable::Code(code)) => write!(f, "icmp unreachable code {code}")?,
            IcmpKind::Unreachable(Unreachable::Net) => f.write_str("icmp unreachable net_unreachable")?,
            IcmpKind::Unreachable(Unreachable::Host) => f.write_str("icmp unreachable host_unreachable")?,
            IcmpKind::Unreachable(Unreachable::Protocol) => f.write_str("icmp unreachable protocol_unreachable")?,
            IcmpKind::Unreachable(Unreachable::Port) => f.write_str("icmp unreachable port_unreachable")?,
            IcmpKind::TimeExceeded => f.write_str("icmp time_exceeded")?,
        }
        write!(f, " [{}:{}({})]", self.seq, self.seq.wrapping_add(self.len), self.len)
    }
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Packet::Tcp(tcp) => tcp.fmt(f),
            Packet::Icmp(icmp) => icmp.fmt(f),
        }
    }
}

impl TcpPacket {
    /// What is wrong with `got`, if this is what was expected. Timestamps may differ by `slack` milliseconds.
    pub fn difference(&self, got: &TcpPacket, slack: u32) -> Option<String> {
        let mut wrong = Vec::new();
        let mut compare = |what: &str, differs: bool| {
            if differs {
                wrong.push(what.to_owned());
            }
        };
        compare("connection", self.flow != got.flow);
        compare("ECN codepoint", self.ecn != got.ecn);
        compare("flags", self.flags != got.flags);
        compare("sequence number", self.seq != got.seq);
        compare("length", self.len != got.len);
        compare("acknowledgment", self.flags.ack() && got.flags.ack() && self.ack != got.ack);
        compare("window", self.window.is_some() && self.window != got.window);
        compare("urgent pointer", self.urgent.is_some() && self.urgent != got.urgent);
        if let (Some(want), Some(have)) = (&self.options, &got.options) {
            let mut have: Vec<&TcpOption> =
                have.iter().filter(|o| **o != TcpOption::Nop && **o != TcpOption::Eol).collect();
            for option in want.iter().filter(|o| **o != TcpOption::Nop && **o != TcpOption::Eol) {
                match have.iter().position(|h| option.matches(h, slack)) {
                    Some(at) => {
                        have.swap_remove(at);
                    }
                    None => wrong.push(format!("option '{option}' is missing")),
                }
            }
            wrong.extend(have.iter().map(|extra| format!("option '{extra}' was not expected")));
        }
        (!wrong.is_empty()).then(|| wrong.join(", "))
    }
}

impl TcpOption {
    fn matches(&self, got: &TcpOption, slack: u32) -> bool {
        match (self, got) {
            (TcpOption::Timestamps(val, ecr), TcpOption::Timestamps(got_val, got_ecr)) => {
                (val.wrapping_sub(*got_val) as i32).unsigned_abs() <= slack && ecr == got_ecr
            }
            _ => self == got,
        }
    }
}
