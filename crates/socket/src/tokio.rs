//! Sockets for programs that run on `tokio`.
//!
//! A runtime learns of its sockets through one descriptor: there is a [`Poller`](crate::Poller) for each runtime that has any, and a task in that
//! runtime waits for the poller's descriptor and wakes the tasks whose sockets are ready. No lane calls a waker, so no lane runs, or waits
//! for, code of the runtime's.
//!
//! Names are looked up by tokio, on a thread that may wait.
//!
//! A socket itself has no descriptor. So `try_io` and `async_io`, which are for calls of one's own on it, are not here, nor can a
//! [`TcpSocket`] be made of one.

mod driver;
mod growing;
mod listener;
mod names;
mod readiness;
mod socket;
mod split;
mod stream;
mod udp;
mod waiters;

pub use listener::TcpListener;
pub use socket::TcpSocket;
pub use split::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, WriteHalf};
pub use stream::TcpStream;
pub use udp::UdpSocket;
