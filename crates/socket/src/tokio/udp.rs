//! Owns a UDP socket that tasks use.

use super::driver::Registration;
use super::growing;
use super::names::looked_up;
use super::readiness::tells_readiness;
use super::waiters::Side;
use crate::net::Stack;
use crate::on_lane::BindOptions;
use ::bytes::BufMut;
use ::tokio::io::ReadBuf;
use ::tokio::net::{ToSocketAddrs, lookup_host};
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

/// A UDP socket, with the methods of `tokio::net::UdpSocket`. Its methods take `&self`, so tasks share it in an `Arc`.
///
/// ```
/// use laneway::tokio::UdpSocket;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (here, there) = laneway::Device::memory_pair(1)?;
/// # let server = laneway::Stack::builder(here).address("10.0.0.1/24")?.start()?;
/// # let client = laneway::Stack::builder(there).address("10.0.0.2/24")?.start()?;
/// let echo = UdpSocket::bind_on(&server, "10.0.0.1:7").await?;
/// let socket = UdpSocket::bind_on(&client, "10.0.0.2:0").await?;
/// socket.connect("10.0.0.1:7").await?;
/// socket.send(b"hello").await?;
///
/// let mut buf = [0; 64];
/// let (n, from) = echo.recv_from(&mut buf).await?;
/// echo.send_to(&buf[..n], from).await?;
/// assert_eq!(socket.recv(&mut buf).await?, 5);
/// # Ok(())
/// # }
/// ```
pub struct UdpSocket {
    registration: Registration,
    inner: crate::UdpSocket,
}

impl UdpSocket {
    /// A socket on the [current](Stack::current) stack. Port 0: one that is free.
    pub async fn bind<A: ToSocketAddrs>(addr: A) -> io::Result<UdpSocket> {
        Self::bind_on(&Stack::current()?, addr).await
    }

    /// A socket on a stack. Port 0: one that is free.
    pub async fn bind_on<A: ToSocketAddrs>(stack: &Stack, addr: A) -> io::Result<UdpSocket> {
        Self::from_std(crate::UdpSocket::bind_on(stack, &looked_up(addr).await?[..])?)
    }

    /// As [`bind_on`](Self::bind_on), with socket options.
    pub async fn bind_with<A: ToSocketAddrs>(stack: &Stack, addr: A, options: BindOptions) -> io::Result<UdpSocket> {
        Self::from_std(crate::UdpSocket::bind_with(stack, &looked_up(addr).await?[..], options)?)
    }

    /// Hands a socket to the runtime that this is called in.
    pub fn from_std(socket: crate::UdpSocket) -> io::Result<UdpSocket> {
        socket.set_nonblocking(true)?;
        Ok(UdpSocket { registration: Registration::new(&socket)?, inner: socket })
    }

    /// Takes it away from the runtime. It stays non-blocking, as tokio's does, until [`set_nonblocking`](crate::UdpSocket::set_nonblocking)
    /// says otherwise.
    pub fn into_std(self) -> io::Result<crate::UdpSocket> {
        Ok(self.inner)
    }

    /// Where it is bound; of one that is bound to any address and was connected, the address that [`connect`](Self::connect) has given it.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    /// The peer that it is connected to.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.inner.peer_addr()
    }

    /// From now on this peer alone is heard, and [`send`](Self::send) sends to it: see [`UdpSocket::connect`](crate::UdpSocket::connect).
    pub async fn connect<A: ToSocketAddrs>(&self, addr: A) -> io::Result<()> {
        self.inner.connect(&looked_up(addr).await?[..])
    }

    /// Sends a datagram to the peer. It is queued when this returns, and may be lost like any other.
    pub async fn send(&self, buf: &[u8]) -> io::Result<usize> {
        self.registration.wait(Side::Writer, || self.inner.send(buf)).await
    }

    /// Sends a datagram. It is queued when this returns, and may be lost like any other.
    pub async fn send_to<A: ToSocketAddrs>(&self, buf: &[u8], target: A) -> io::Result<usize> {
        let to = lookup_host(target).await?.next();
        let to = to.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no addresses to send data to"))?;
        self.registration.wait(Side::Writer, || self.inner.send_to(buf, to)).await
    }

    /// As [`send_to`](Self::send_to), or has the task woken when there is room. Of the tasks that ask, the last is.
    pub fn poll_send_to(&self, cx: &mut Context<'_>, buf: &[u8], target: SocketAddr) -> Poll<io::Result<usize>> {
        self.registration.poll(cx, Side::Writer, || self.inner.send_to(buf, target))
    }

    /// Sends a datagram to the peer if there is room for it; `WouldBlock`: [`writable`](Self::writable) waits for it.
    pub fn try_send(&self, buf: &[u8]) -> io::Result<usize> {
        self.inner.send(buf)
    }

    /// As [`try_send`](Self::try_send), to anybody.
    pub fn try_send_to(&self, buf: &[u8], target: SocketAddr) -> io::Result<usize> {
        self.inner.send_to(buf, target)
    }

    /// As [`send`](Self::send), or has the task woken when there is room. Of the tasks that ask, the last is.
    pub fn poll_send(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.registration.poll(cx, Side::Writer, || self.inner.send(buf))
    }

    /// Takes a datagram that is there; `WouldBlock`: none is, and [`readable`](Self::readable) waits for one.
    pub fn try_recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.inner.recv(buf)
    }

    /// As [`try_recv`](Self::try_recv), and says whose it is.
    pub fn try_recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.inner.recv_from(buf)
    }

    /// As [`recv`](Self::recv), or has the task woken when there is a datagram. Of the tasks that ask, the last is.
    pub fn poll_recv(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let got = self.registration.poll(cx, Side::Reader, || self.inner.recv(buf.initialize_unfilled()));
        got.map_ok(|n| buf.advance(n))
    }

    /// As [`try_recv`](Self::try_recv), into the room that a buffer which grows has now.
    pub fn try_recv_buf<B: BufMut>(&self, buf: &mut B) -> io::Result<usize> {
        growing::read(buf, |aside| Ok((self.try_recv(aside)?, ()))).map(|(n, ())| n)
    }

    /// As [`try_recv_from`](Self::try_recv_from), into the room that a buffer which grows has now.
    pub fn try_recv_buf_from<B: BufMut>(&self, buf: &mut B) -> io::Result<(usize, SocketAddr)> {
        growing::read(buf, |aside| self.try_recv_from(aside))
    }

    /// As [`recv`](Self::recv), into the room that a buffer which grows has now.
    pub async fn recv_buf<B: BufMut>(&self, buf: &mut B) -> io::Result<usize> {
        self.registration.wait(Side::Reader, || self.try_recv_buf(buf)).await
    }

    /// As [`recv_from`](Self::recv_from), into the room that a buffer which grows has now.
    pub async fn recv_buf_from<B: BufMut>(&self, buf: &mut B) -> io::Result<(usize, SocketAddr)> {
        self.registration.wait(Side::Reader, || self.try_recv_buf_from(buf)).await
    }

    /// Waits for a datagram.
    pub async fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.registration.wait(Side::Reader, || self.inner.recv(buf)).await
    }

    /// Waits for a datagram; says how much of it fitted, and whose it is.
    pub async fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.registration.wait(Side::Reader, || self.inner.recv_from(buf)).await
    }

    /// As [`recv_from`](Self::recv_from), or has the task woken when there is a datagram. Of the tasks that ask, the last is.
    pub fn poll_recv_from(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<SocketAddr>> {
        let got = self.registration.poll(cx, Side::Reader, || self.inner.recv_from(buf.initialize_unfilled()));
        got.map_ok(|(n, from)| {
            buf.advance(n);
            from
        })
    }

    /// As [`recv`](Self::recv), and leaves it there.
    pub async fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.registration.wait(Side::Reader, || self.inner.peek(buf)).await
    }

    /// As [`recv_from`](Self::recv_from), and leaves it there.
    pub async fn peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.registration.wait(Side::Reader, || self.inner.peek_from(buf)).await
    }

    /// As [`peek`](Self::peek), or has the task woken when there is a datagram. Of the tasks that ask, the last is.
    pub fn poll_peek(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let got = self.registration.poll(cx, Side::Reader, || self.inner.peek(buf.initialize_unfilled()));
        got.map_ok(|n| buf.advance(n))
    }

    /// As [`peek_from`](Self::peek_from), or has the task woken when there is a datagram. Of the tasks that ask, the last is.
    pub fn poll_peek_from(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<SocketAddr>> {
        let got = self.registration.poll(cx, Side::Reader, || self.inner.peek_from(buf.initialize_unfilled()));
        got.map_ok(|(n, from)| {
            buf.advance(n);
            from
        })
    }

    /// As [`try_recv`](Self::try_recv), and leaves it there.
    pub fn try_peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.inner.peek(buf)
    }

    /// As [`try_recv_from`](Self::try_recv_from), and leaves it there.
    pub fn try_peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.inner.peek_from(buf)
    }

    /// Waits for a datagram, leaves it there, and says whose it is.
    pub async fn peek_sender(&self) -> io::Result<SocketAddr> {
        self.peek_from(&mut []).await.map(|(_, from)| from)
    }

    /// As [`peek_sender`](Self::peek_sender), or has the task woken when there is a datagram. Of the tasks that ask, the last is.
    pub fn poll_peek_sender(&self, cx: &mut Context<'_>) -> Poll<io::Result<SocketAddr>> {
        self.poll_peek_from(cx, &mut ReadBuf::new(&mut []))
    }

    /// As [`peek_sender`](Self::peek_sender), of a datagram that is there.
    pub fn try_peek_sender(&self) -> io::Result<SocketAddr> {
        self.try_peek_from(&mut []).map(|(_, from)| from)
    }

    /// As [`readable`](Self::readable), or has the task woken when it is. Of the tasks that ask, the last is.
    pub fn poll_recv_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_read_ready(cx)
    }

    /// As [`writable`](Self::writable), or has the task woken when it is. Of the tasks that ask, the last is.
    pub fn poll_send_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_write_ready(cx)
    }

    /// `IP_TTL`: see [`UdpSocket::set_ttl`](crate::UdpSocket::set_ttl).
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.inner.set_ttl(ttl)
    }

    /// `IP_TTL`.
    pub fn ttl(&self) -> io::Result<u32> {
        self.inner.ttl()
    }

    /// `IP_TOS`: see [`UdpSocket::set_tos_v4`](crate::UdpSocket::set_tos_v4).
    pub fn set_tos_v4(&self, tos: u32) -> io::Result<()> {
        self.inner.set_tos_v4(tos)
    }

    /// `IP_TOS`.
    pub fn tos_v4(&self) -> io::Result<u32> {
        self.inner.tos_v4()
    }

    /// `IPV6_TCLASS`: see [`UdpSocket::set_tclass_v6`](crate::UdpSocket::set_tclass_v6).
    pub fn set_tclass_v6(&self, tclass: u32) -> io::Result<()> {
        self.inner.set_tclass_v6(tclass)
    }

    /// `IPV6_TCLASS`.
    pub fn tclass_v6(&self) -> io::Result<u32> {
        self.inner.tclass_v6()
    }

    /// `SO_BROADCAST`: see [`UdpSocket::set_broadcast`](crate::UdpSocket::set_broadcast).
    pub fn set_broadcast(&self, broadcast: bool) -> io::Result<()> {
        self.inner.set_broadcast(broadcast)
    }

    /// `SO_BROADCAST`.
    pub fn broadcast(&self) -> io::Result<bool> {
        self.inner.broadcast()
    }

    /// Datagrams that found the socket's queue full and were dropped.
    pub fn dropped(&self) -> u64 {
        self.inner.dropped()
    }

    /// Why a datagram could not be delivered, if the network said so and nobody was told yet.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.inner.take_error()
    }
}

tells_readiness!(UdpSocket);

/// As [`from_std`](UdpSocket::from_std).
impl TryFrom<crate::UdpSocket> for UdpSocket {
    type Error = io::Error;

    fn try_from(socket: crate::UdpSocket) -> io::Result<UdpSocket> {
        Self::from_std(socket)
    }
}

impl std::fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}
