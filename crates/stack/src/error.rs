//! Owns what an operator or an application did wrong, in sentences that say what would be right.

use std::fmt;
use std::net::SocketAddr;

/// A request that a stack refuses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// Another listener has this address and port.
    AddressInUse(SocketAddr),
    /// The address is none of the stack's.
    AddressNotAvailable(std::net::IpAddr),
    /// No route leads there.
    NetworkUnreachable(std::net::IpAddr),
    /// Every ephemeral port that this lane may use towards that destination is taken.
    LaneExhausted(SocketAddr),
    /// Two addresses of one family, or an address and the peer's: the setting cannot work.
    Invalid(String),
    /// The stack is shutting down.
    Closed,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::AddressInUse(at) => {
                write!(f, "{at} is already listened on; close that listener or choose another port")
            }
            Error::AddressNotAvailable(ip) => {
                write!(f, "{ip} is not an address of this stack; add it or use one that is")
            }
            Error::NetworkUnreachable(ip) => write!(f, "no route leads to {ip}; add one, or an address in its network"),
            Error::LaneExhausted(to) => write!(
                f,
                "this lane has no free local port towards {to}; connect on another lane, from another local address, or widen ip_local_port_range"
            ),
            Error::Invalid(what) => f.write_str(what),
            Error::Closed => f.write_str("the stack is shutting down"),
        }
    }
}

impl std::error::Error for Error {}
