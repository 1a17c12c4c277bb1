//! Laneway: a user-space TCP/IP stack in which every core has its own lane.
//!
//! A *lane* is one thread on one core that owns a queue of the network device and every connection that hashes to it. No
//! lock and no cache line is fought over, and connections are set up, used and torn down at the rate of the core.
//!
//! Two ways to use it:
//!
//! * [`TcpListener`], [`TcpStream`], [`UdpSocket`] on a [`Stack`]: blocking, from any thread, with the methods of `std::net`.
//!   [`TcpSocket`] is for whoever chooses where to connect from. [`Poller`] waits for many of them. With the feature `tokio` there are the same for tasks.
//! * [`on_lane`]: the application lives on the lanes, as a value of a type of its own that is called when something happens.
//!
//! What a running stack is doing can be asked from outside: [`control`].
//!
//! # Errors
//! Sockets fail with the errors of the kernel's, so that a program that tells them apart goes on doing so:
//!
//! | what has happened | errno | [`ErrorKind`](std::io::ErrorKind) |
//! |---|---|---|
//! | the peer answered a SYN with RST, or a datagram with "port unreachable" | `ECONNREFUSED` | `ConnectionRefused` |
//! | the peer sent RST; a connect that was begun was called off by `shutdown` | `ECONNRESET` | `ConnectionReset` |
//! | the peer sent RST after its FIN; a write after that, or after our own shutdown | `EPIPE` | `BrokenPipe` |
//! | the peer is silent | `ETIMEDOUT` | `TimedOut` |
//! | `connect_timeout` is over | none, as with `std` | `TimedOut` |
//! | a timeout of the socket's is over; a non-blocking call would wait | `EAGAIN` | `WouldBlock` |
//! | no route, or a router on the way has none | `ENETUNREACH` | `NetworkUnreachable` |
//! | nobody answers who has the address, of the peer or of the next hop; over IPv4 a filter said no to a SYN or a datagram | `EHOSTUNREACH` | `HostUnreachable` |
//! | a filter said no over IPv6; a datagram to all hosts of a network, without `SO_BROADCAST` | `EACCES` | `PermissionDenied` |
//! | the address is not the stack's; no local port is left | `EADDRNOTAVAIL` | `AddrNotAvailable` |
//! | the address and port are taken | `EADDRINUSE` | `AddrInUse` |
//! | arguments that do not fit together | `EINVAL` | `InvalidInput` |
//! | a timeout of no time at all; no address | none, as with `std` | `InvalidInput` |
//! | the connection is over, or there never was a peer | `ENOTCONN` | `NotConnected` |
//! | a datagram without a peer | `EDESTADDRREQ` | |
//! | a datagram that is too long | `EMSGSIZE` | |
//! | a name of a family that the socket does not speak | `EAFNOSUPPORT` | |
//! | the stack has ended | `ENETDOWN` | `NetworkDown` |
//! | this process is a child of the one that made the socket | `EBADF` | |
//! | what the stack cannot do, a datagram to a group among it | `EOPNOTSUPP` | `Unsupported` |
//! | an option that sockets of this family have not | `ENOPROTOOPT` | |
//! | no congestion control has that name | `ENOENT` | `NotFound` |
//!
//! On a lane the same is said by [`on_lane::Error`] where a verb fails, and by [`on_lane::CloseReason`] where a connection ends.
#![forbid(unsafe_code)]

pub mod control;
mod error;
mod net;
pub mod on_lane;
#[cfg(feature = "tokio")]
pub mod tokio;

pub use net::{
    Builder, Entered, Event, Incoming, Interest, Mode, Poller, Source, Stack, TcpInfo, TcpKeepalive, TcpListener,
    TcpSocket, TcpStream, UdpSocket,
};
/// The snippet of the first page.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod readme {}

/// The snippets of the page for users.
#[cfg(all(doctest, feature = "tokio"))]
#[doc = include_str!("../../../docs/using.md")]
mod using {}

pub use on_lane::{BindOptions, Cidr, Config, Counters, Device, StartError};
