//! Sockets for programs that run on `tokio`.
//!
//! A runtime learns of a stack's sockets through one descriptor: the stack keeps a [`Poller`](crate::Poller) for each runtime
//! that uses it, and a task in that runtime waits for the poller's descriptor and wakes the tasks whose sockets are ready. No
//! lane calls a waker, so no lane runs, or waits for, code of the runtime's.

mod driver;
mod listener;
mod readiness;
mod split;
mod stream;
mod udp;
mod waiters;

pub(crate) use driver::Drivers;
pub use listener::TcpListener;
pub use split::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, WriteHalf};
pub use stream::TcpStream;
pub use udp::UdpSocket;
