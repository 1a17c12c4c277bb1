//! Owns a TCP connection that tasks use.

#[cfg(test)]
mod tests;

use super::driver::Registration;
use super::growing;
use super::names::looked_up;
use super::readiness::tells_readiness;
use super::split::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, WriteHalf};
use super::waiters::Side;
use crate::net::{Stack, TcpInfo, TcpKeepalive};
use ::bytes::BufMut;
use ::tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use ::tokio::net::ToSocketAddrs;
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::net::{Shutdown, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// A TCP connection, with the methods of `tokio::net::TcpStream`.
///
/// ```
/// use laneway::tokio::{TcpListener, TcpStream};
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (here, there) = laneway::Device::memory_pair(1)?;
/// # let server = laneway::Stack::builder(here).address("10.0.0.1/24")?.start()?;
/// # let client = laneway::Stack::builder(there).address("10.0.0.2/24")?.start()?;
/// let listener = TcpListener::bind_on(&server, "10.0.0.1:80").await?;
/// tokio::spawn(async move {
///     let (mut stream, _) = listener.accept().await?;
///     let (mut reader, mut writer) = stream.split();
///     tokio::io::copy(&mut reader, &mut writer).await
/// });
///
/// let mut stream = TcpStream::connect_on(&client, "10.0.0.1:80").await?;
/// stream.write_all(b"hello").await?;
/// stream.shutdown().await?;
/// let mut back = String::new();
/// stream.read_to_string(&mut back).await?;
/// assert_eq!(back, "hello");
/// # Ok(())
/// # }
/// ```
pub struct TcpStream {
    registration: Registration,
    inner: crate::TcpStream,
}

impl TcpStream {
    /// Opens a connection on the [current](Stack::current) stack.
    pub async fn connect<A: ToSocketAddrs>(addr: A) -> io::Result<TcpStream> {
        Self::connect_on(&Stack::current()?, addr).await
    }

    /// Opens a connection on a stack.
    pub async fn connect_on<A: ToSocketAddrs>(stack: &Stack, addr: A) -> io::Result<TcpStream> {
        let mut last = io::Error::new(io::ErrorKind::InvalidInput, "could not resolve to any addresses");
        for addr in looked_up(addr).await? {
            match Self::connected(crate::TcpStream::begin(stack, &addr)?).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Waits until one that has begun is connected.
    pub(super) async fn connected(begun: crate::TcpStream) -> io::Result<TcpStream> {
        let mut stream = Self::from_std(begun)?;
        stream.inner.desk().begin(stream.inner.talk());
        let connected = || match stream.inner.poll_connected() {
            Ok(true) => Ok(()),
            Ok(false) => Err(io::ErrorKind::WouldBlock.into()),
            Err(error) => Err(error),
        };
        stream.registration.wait(Side::Writer, connected).await?;
        stream.inner.unbind();
        Ok(stream)
    }

    /// Hands a connection to the runtime that this is called in.
    pub fn from_std(stream: crate::TcpStream) -> io::Result<TcpStream> {
        stream.set_nonblocking(true)?; // its thread has other tasks, and does a lane's work only if they are few
        Ok(TcpStream { registration: Registration::new(&stream)?, inner: stream })
    }

    /// Takes it away from the runtime. It stays non-blocking, as tokio's does, until [`set_nonblocking`](crate::TcpStream::set_nonblocking)
    /// says otherwise.
    pub fn into_std(self) -> io::Result<crate::TcpStream> {
        let TcpStream { registration, inner } = self;
        registration.leave(&inner);
        Ok(inner)
    }

    /// The local address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.inner.peer_addr()
    }

    /// `TCP_NODELAY`.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.inner.set_nodelay(nodelay)
    }

    /// `TCP_NODELAY`.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.inner.nodelay()
    }

    /// `SO_KEEPALIVE`, with these times: see [`set_tcp_keepalive`](crate::TcpStream::set_tcp_keepalive).
    pub fn set_tcp_keepalive(&self, params: &TcpKeepalive) -> io::Result<()> {
        self.inner.set_tcp_keepalive(params)
    }

    /// `SO_KEEPALIVE`, with the times that it was [told](Self::set_tcp_keepalive), or those of the stack's configuration.
    pub fn set_keepalive(&self, keepalive: bool) -> io::Result<()> {
        self.inner.set_keepalive(keepalive)
    }

    /// `SO_KEEPALIVE`.
    pub fn keepalive(&self) -> io::Result<bool> {
        self.inner.keepalive()
    }

    /// `TCP_USER_TIMEOUT`: how long sent bytes may stay unacknowledged. `None`: as long as retransmission goes on.
    pub fn set_tcp_user_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.inner.set_tcp_user_timeout(timeout)
    }

    /// `TCP_USER_TIMEOUT`.
    pub fn tcp_user_timeout(&self) -> io::Result<Option<Duration>> {
        self.inner.tcp_user_timeout()
    }

    /// `IP_TTL`: see [`TcpStream::set_ttl`](crate::TcpStream::set_ttl).
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.inner.set_ttl(ttl)
    }

    /// `IP_TTL`.
    pub fn ttl(&self) -> io::Result<u32> {
        self.inner.ttl()
    }

    /// `SO_LINGER`: see [`TcpStream::set_linger`](crate::TcpStream::set_linger).
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        self.inner.set_linger(linger)
    }

    /// `SO_LINGER` of zero: the drop resets the connection.
    pub fn set_zero_linger(&self) -> io::Result<()> {
        self.set_linger(Some(Duration::ZERO))
    }

    /// `SO_LINGER`: see [`TcpStream::set_linger`](crate::TcpStream::set_linger).
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        self.inner.linger()
    }

    /// `TCP_INFO`: see [`TcpStream::info`](crate::TcpStream::info).
    pub async fn info(&self) -> io::Result<TcpInfo> {
        self.registration.info(&self.inner).await
    }

    /// Why the connection has failed, if it has and nobody was told yet.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.inner.take_error()
    }

    /// Waits for bytes, and leaves them there. Says how many were put into `buf`; none: no more will come.
    pub async fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.registration.wait(Side::Reader, || self.inner.try_read(buf, /* peek= */ true)).await
    }

    /// As [`peek`](Self::peek), or has the task woken when there are bytes. Of the tasks that ask, the last is.
    pub fn poll_peek(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<usize>> {
        let peek = || self.inner.try_read(buf.initialize_unfilled(), /* peek= */ true);
        self.registration.poll(cx, Side::Reader, peek).map_ok(|n| {
            buf.advance(n);
            n
        })
    }

    /// Reads what is there; `WouldBlock`: nothing is, and [`readable`](Self::readable) waits for it.
    pub fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.inner.try_read(buf, /* peek= */ false)
    }

    /// As [`try_read`](Self::try_read), into the room that a buffer which grows has now.
    pub fn try_read_buf<B: BufMut>(&self, buf: &mut B) -> io::Result<usize> {
        growing::read(buf, |aside| Ok((self.try_read(aside)?, ()))).map(|(n, ())| n)
    }

    /// As [`try_read`](Self::try_read), into several buffers, one after the other.
    pub fn try_read_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&self.inner).read_vectored(bufs)
    }

    /// Queues what there is room for; `WouldBlock`: there is none, or no memory, and [`writable`](Self::writable) waits for it.
    pub fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
        self.try_send(&[IoSlice::new(buf)])
    }

    /// As [`try_write`](Self::try_write), of several buffers, one after the other.
    pub fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        if is_nothing(bufs) { Ok(0) } else { self.try_send(bufs) }
    }

    fn try_send(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.registration.try_write(|| self.inner.ask_for_memory(), || self.inner.try_write(bufs))
    }

    /// A half to read from and one to write to, for one task.
    pub fn split(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
        (ReadHalf(self), WriteHalf(self))
    }

    /// A half to read from and one to write to, for two tasks. The drop of the second is the end of what is sent.
    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        super::split::owned(self)
    }

    pub(super) fn poll_recv(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = || self.inner.try_read(buf.initialize_unfilled(), /* peek= */ false);
        let got = self.registration.poll(cx, Side::Reader, read);
        got.map_ok(|n| buf.advance(n))
    }

    pub(super) fn poll_send(&self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let mut tried = false;
        let write = || {
            tried = true;
            self.inner.try_write(bufs)
        };
        let sent = self.registration.poll(cx, Side::Writer, write);
        if sent.is_pending() && tried {
            self.inner.ask_for_memory();
        }
        sent
    }

    pub(super) fn poll_send_vectored(&self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        if is_nothing(bufs) { Poll::Ready(Ok(0)) } else { self.poll_send(cx, bufs) }
    }

    pub(super) fn shut_down(&self) -> io::Result<()> {
        match self.inner.shutdown(Shutdown::Write) {
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()), // it is over anyway
            done => done,
        }
    }
}

/// Of pieces without a byte the kernel does not ask the socket, as of a single one it does: why that failed is left for who does.
fn is_nothing(bufs: &[IoSlice<'_>]) -> bool {
    bufs.iter().all(|buf| buf.is_empty())
}

tells_readiness!(TcpStream);

impl AsyncRead for TcpStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll_recv(cx, buf)
    }
}

impl AsyncWrite for TcpStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_send(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_send_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.shut_down())
    }
}

/// As [`from_std`](TcpStream::from_std).
impl TryFrom<crate::TcpStream> for TcpStream {
    type Error = io::Error;

    fn try_from(stream: crate::TcpStream) -> io::Result<TcpStream> {
        Self::from_std(stream)
    }
}

/// As its halves.
impl AsRef<TcpStream> for TcpStream {
    fn as_ref(&self) -> &TcpStream {
        self
    }
}

impl std::fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}
