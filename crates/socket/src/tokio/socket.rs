//! Owns a TCP socket of a task's that does nothing yet.

use super::{TcpListener, TcpStream};
use crate::net::Stack;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// A TCP socket that has neither a peer nor a queue yet, with the methods of `tokio::net::TcpSocket`: see [`TcpSocket`](crate::TcpSocket).
///
/// ```
/// use laneway::tokio::TcpSocket;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (here, there) = laneway::Device::memory_pair(1)?;
/// # let server = laneway::Stack::builder(here).address("10.0.0.1/24")?.start()?;
/// # let client = laneway::Stack::builder(there).address("10.0.0.2/24")?.start()?;
/// let socket = TcpSocket::new_v4_on(&server);
/// socket.set_reuseaddr(true)?;
/// socket.bind("10.0.0.1:80".parse()?)?;
/// let listener = socket.listen(/* backlog= */ 1024)?;
///
/// let socket = TcpSocket::new_v4_on(&client);
/// socket.bind("10.0.0.2:5000".parse()?)?;
/// let stream = socket.connect("10.0.0.1:80".parse()?).await?;
///
/// let (_, from) = listener.accept().await?;
/// assert_eq!(from, stream.local_addr()?);
/// assert_eq!(from, "10.0.0.2:5000".parse()?);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct TcpSocket(crate::TcpSocket);

impl TcpSocket {
    /// A socket of IPv4 on the [current](Stack::current) stack.
    pub fn new_v4() -> io::Result<TcpSocket> {
        crate::TcpSocket::new_v4().map(TcpSocket)
    }

    /// A socket of IPv6 on the [current](Stack::current) stack.
    pub fn new_v6() -> io::Result<TcpSocket> {
        crate::TcpSocket::new_v6().map(TcpSocket)
    }

    /// A socket of IPv4 on a stack.
    pub fn new_v4_on(stack: &Stack) -> TcpSocket {
        TcpSocket(crate::TcpSocket::new_v4_on(stack))
    }

    /// A socket of IPv6 on a stack.
    pub fn new_v6_on(stack: &Stack) -> TcpSocket {
        TcpSocket(crate::TcpSocket::new_v6_on(stack))
    }

    /// `SO_REUSEADDR`.
    ///
    /// # Errors
    /// `EINVAL` once it is bound.
    pub fn set_reuseaddr(&self, reuseaddr: bool) -> io::Result<()> {
        self.0.set_reuse_address(reuseaddr)
    }

    /// `SO_REUSEADDR`.
    pub fn reuseaddr(&self) -> io::Result<bool> {
        self.0.reuse_address()
    }

    /// `SO_REUSEPORT`.
    ///
    /// # Errors
    /// `EINVAL` once it is bound.
    pub fn set_reuseport(&self, reuseport: bool) -> io::Result<()> {
        self.0.set_reuse_port(reuseport)
    }

    /// `SO_REUSEPORT`.
    pub fn reuseport(&self) -> io::Result<bool> {
        self.0.reuse_port()
    }

    /// `TCP_NODELAY`, of the connection that it becomes, or of each that it accepts.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.0.set_nodelay(nodelay)
    }

    /// `TCP_NODELAY`.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.0.nodelay()
    }

    /// `SO_KEEPALIVE`, of the connection that it becomes, or of each that it accepts, with the times of the stack's configuration.
    pub fn set_keepalive(&self, keepalive: bool) -> io::Result<()> {
        self.0.set_keepalive(keepalive)
    }

    /// `SO_KEEPALIVE`.
    pub fn keepalive(&self) -> io::Result<bool> {
        self.0.keepalive()
    }

    /// `SO_LINGER` with no time: a drop resets the connection that it becomes, or each that it accepts.
    pub fn set_zero_linger(&self) -> io::Result<()> {
        self.0.set_linger(Some(Duration::ZERO))
    }

    /// `SO_LINGER`.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        self.0.linger()
    }

    /// `SO_SNDBUF`: see [`set_send_buffer_size`](crate::TcpSocket::set_send_buffer_size).
    pub fn set_send_buffer_size(&self, size: u32) -> io::Result<()> {
        self.0.set_send_buffer_size(size as usize)
    }

    /// `SO_SNDBUF`.
    pub fn send_buffer_size(&self) -> io::Result<u32> {
        self.0.send_buffer_size().map(|size| size as u32)
    }

    /// `SO_RCVBUF`: see [`set_recv_buffer_size`](crate::TcpSocket::set_recv_buffer_size).
    pub fn set_recv_buffer_size(&self, size: u32) -> io::Result<()> {
        self.0.set_recv_buffer_size(size as usize)
    }

    /// `SO_RCVBUF`.
    pub fn recv_buffer_size(&self) -> io::Result<u32> {
        self.0.recv_buffer_size().map(|size| size as u32)
    }

    /// `IP_TOS`: see [`set_tos_v4`](crate::TcpSocket::set_tos_v4).
    pub fn set_tos_v4(&self, tos: u32) -> io::Result<()> {
        self.0.set_tos_v4(tos)
    }

    /// `IP_TOS`.
    pub fn tos_v4(&self) -> io::Result<u32> {
        self.0.tos_v4()
    }

    /// `IPV6_TCLASS`: see [`set_tclass_v6`](crate::TcpSocket::set_tclass_v6).
    pub fn set_tclass_v6(&self, tclass: u32) -> io::Result<()> {
        self.0.set_tclass_v6(tclass)
    }

    /// `IPV6_TCLASS`.
    pub fn tclass_v6(&self) -> io::Result<u32> {
        self.0.tclass_v6()
    }

    /// A socket that does nothing has nothing to fail at.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.0.take_error()
    }

    /// Binds it: see [`bind`](crate::TcpSocket::bind). Port 0: one that is free.
    pub fn bind(&self, addr: SocketAddr) -> io::Result<()> {
        self.0.bind(addr)
    }

    /// Where it is bound.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Opens a connection from where it is bound, or from an address and port that are chosen: see [`connect`](crate::TcpSocket::connect).
    pub async fn connect(self, addr: SocketAddr) -> io::Result<TcpStream> {
        TcpStream::connected(self.0.begin(&addr)?).await
    }

    /// Listens where it is bound, or at a port that is chosen: see [`listen`](crate::TcpSocket::listen).
    pub fn listen(self, backlog: u32) -> io::Result<TcpListener> {
        TcpListener::from_std(self.0.listen(backlog)?)
    }
}

/// For what is not set here: options of `socket2` have their names on the one that is given.
impl From<crate::TcpSocket> for TcpSocket {
    fn from(socket: crate::TcpSocket) -> TcpSocket {
        TcpSocket(socket)
    }
}
