//! Owns what an operator or an application did wrong, in sentences that say what would be right.

use std::fmt;
use std::net::SocketAddr;

/// A request that a stack refuses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// Another socket, or a connection that is left of one, has this address and port; with port 0: every port of the range.
    AddressInUse(SocketAddr),
    /// The address is none of the stack's.
    AddressNotAvailable(std::net::IpAddr),
    /// No route leads there, or it is the address of no other host: a group's, a network's broadcast, one of our own.
    NetworkUnreachable(std::net::IpAddr),
    /// Every ephemeral port that this lane may use towards that destination is taken. Other lanes may have some.
    LaneExhausted(SocketAddr),
    /// Every ephemeral port towards that destination is taken, on all lanes.
    PortsExhausted(SocketAddr),
    /// There is a connection between these two ends already (or one in TIME_WAIT that cannot be taken over yet).
    FlowInUse(SocketAddr, SocketAddr),
    /// Replies to that port would come to this lane, which is not the one that was asked.
    OtherLane(usize),
    /// A setting that cannot work, a number of nothing that there is, addresses that do not go together: a sentence says which.
    Invalid(String),
    /// The stack is shutting down.
    Closed,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::AddressInUse(at) if at.port() == 0 => {
                write!(f, "every port of ip_local_port_range is in use on {}; widen it, or close some sockets", at.ip())
            }
            Error::AddressInUse(at) => {
                write!(f, "{at} is in use by another socket or a connection; close it, or choose another port")
            }
            Error::AddressNotAvailable(ip) => {
                write!(f, "{ip} is not an address of this stack; add it or use one that is")
            }
            Error::NetworkUnreachable(ip) => {
                write!(
                    f,
                    "no route leads to {ip}, or it is no other host's address; add a route, or an address in its network"
                )
            }
            Error::LaneExhausted(to) => write!(
                f,
                "this lane has no free local port towards {to}; connect on another lane, from another local address, or widen ip_local_port_range"
            ),
            Error::PortsExhausted(to) => write!(
                f,
                "there is no free local port towards {to}; connect from another local address, or widen ip_local_port_range"
            ),
            Error::FlowInUse(from, to) => write!(
                f,
                "there is a connection from {from} to {to} already; close it and wait, or bind to another port"
            ),
            Error::OtherLane(lane) => {
                write!(f, "replies to this port come to lane {lane}; connect there, or bind to another port")
            }
            Error::Invalid(what) => f.write_str(what),
            Error::Closed => f.write_str("the stack is shutting down"),
        }
    }
}

impl Error {
    /// What a system call would say.
    pub fn errno(&self) -> rustix::io::Errno {
        use rustix::io::Errno;
        match self {
            Error::AddressInUse(_) => Errno::ADDRINUSE,
            Error::AddressNotAvailable(_)
            | Error::LaneExhausted(_)
            | Error::PortsExhausted(_)
            | Error::FlowInUse(..)
            | Error::OtherLane(_) => Errno::ADDRNOTAVAIL,
            Error::NetworkUnreachable(_) => Errno::NETUNREACH,
            Error::Invalid(_) => Errno::INVAL,
            Error::Closed => Errno::NETDOWN,
        }
    }
}

impl std::error::Error for Error {}
