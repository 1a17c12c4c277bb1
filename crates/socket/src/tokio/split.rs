//! Owns the two halves of a TCP connection, one to read from and one to write to.

use super::TcpStream;
use ::bytes::BufMut;
use ::tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Ready};
use std::error::Error;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// What a task reads from, lent by [`TcpStream::split`].
#[derive(Debug)]
pub struct ReadHalf<'a>(pub(super) &'a TcpStream);

/// What a task writes to, lent by [`TcpStream::split`].
#[derive(Debug)]
pub struct WriteHalf<'a>(pub(super) &'a TcpStream);

/// What a task reads from, made by [`TcpStream::into_split`].
#[derive(Debug)]
pub struct OwnedReadHalf(Arc<TcpStream>);

/// What a task writes to, made by [`TcpStream::into_split`]. With its drop the peer is told that no more will come.
///
/// ```
/// use laneway::tokio::{TcpListener, TcpStream};
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (here, there) = laneway::Device::memory_pair(1)?;
/// # let server = laneway::Stack::builder(here).address("10.0.0.1/24")?.start()?;
/// # let client = laneway::Stack::builder(there).address("10.0.0.2/24")?.start()?;
/// # let listener = TcpListener::bind_on(&server, "10.0.0.1:80").await?;
/// # tokio::spawn(async move {
/// #     let (mut stream, _) = listener.accept().await?;
/// #     let (mut reader, mut writer) = stream.split();
/// #     tokio::io::copy(&mut reader, &mut writer).await
/// # });
/// let (mut reader, mut writer) = TcpStream::connect_on(&client, "10.0.0.1:80").await?.into_split();
/// let writes = tokio::spawn(async move {
///     for _ in 0..3 {
///         writer.write_all(b"abc").await?;
///     }
///     Ok::<_, std::io::Error>(()) // dropped here: the peer reads the end
/// });
/// let mut back = String::new();
/// reader.read_to_string(&mut back).await?;
/// writes.await??;
/// assert_eq!(back, "abcabcabc");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct OwnedWriteHalf {
    stream: Arc<TcpStream>,
    ends: bool,
}

pub(super) fn owned(stream: TcpStream) -> (OwnedReadHalf, OwnedWriteHalf) {
    let stream = Arc::new(stream);
    (OwnedReadHalf(stream.clone()), OwnedWriteHalf { stream, ends: true })
}

/// The halves of two different connections, given back.
#[derive(Debug)]
pub struct ReuniteError(pub OwnedReadHalf, pub OwnedWriteHalf);

impl fmt::Display for ReuniteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("these are halves of two connections, not of one")
    }
}

impl Error for ReuniteError {}

impl OwnedReadHalf {
    /// The connection whose halves these are; if they are not of one, both come back.
    pub fn reunite(self, other: OwnedWriteHalf) -> Result<TcpStream, ReuniteError> {
        if !Arc::ptr_eq(&self.0, &other.stream) {
            return Err(ReuniteError(self, other));
        }
        other.forget();
        Ok(Arc::into_inner(self.0).expect("there are two halves, and the other is gone"))
    }
}

impl OwnedWriteHalf {
    /// As [`OwnedReadHalf::reunite`].
    pub fn reunite(self, other: OwnedReadHalf) -> Result<TcpStream, ReuniteError> {
        other.reunite(self)
    }

    /// Drops this half, and the peer is told nothing before the other is dropped, too.
    pub fn forget(mut self) {
        self.ends = false;
    }
}

impl Drop for OwnedWriteHalf {
    fn drop(&mut self) {
        if self.ends {
            // Who has no connection any more has nobody to tell.
            let _ = self.stream.shut_down();
        }
    }
}

/// Reading from, or writing to, the stream that a half refers to, and whose addresses it has.
macro_rules! by_stream {
    ($half:ty, $stream:ident => $of:expr) => {
        impl $half {
            /// The local address.
            pub fn local_addr(&self) -> io::Result<SocketAddr> {
                let $stream = self;
                $of.local_addr()
            }

            /// The peer's address.
            pub fn peer_addr(&self) -> io::Result<SocketAddr> {
                let $stream = self;
                $of.peer_addr()
            }

            /// As [`TcpStream::ready`].
            pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
                let $stream = self;
                $of.ready(interest).await
            }
        }

        impl AsRef<TcpStream> for $half {
            fn as_ref(&self) -> &TcpStream {
                let $stream = self;
                &$of
            }
        }
    };
    (read $half:ty, $stream:ident => $of:expr) => {
        by_stream!($half, $stream => $of);

        impl $half {
            /// As [`TcpStream::peek`].
            pub async fn peek(&mut self, buf: &mut [u8]) -> io::Result<usize> {
                let $stream = self;
                $of.peek(buf).await
            }

            /// As [`TcpStream::poll_peek`].
            pub fn poll_peek(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<usize>> {
                let $stream = self;
                $of.poll_peek(cx, buf)
            }

            /// As [`TcpStream::readable`].
            pub async fn readable(&self) -> io::Result<()> {
                let $stream = self;
                $of.readable().await
            }

            /// As [`TcpStream::try_read`].
            pub fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
                let $stream = self;
                $of.try_read(buf)
            }

            /// As [`TcpStream::try_read_buf`].
            pub fn try_read_buf<B: BufMut>(&self, buf: &mut B) -> io::Result<usize> {
                let $stream = self;
                $of.try_read_buf(buf)
            }

            /// As [`TcpStream::try_read_vectored`].
            pub fn try_read_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                let $stream = self;
                $of.try_read_vectored(bufs)
            }
        }

        impl AsyncRead for $half {
            fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
                let $stream = self;
                $of.poll_recv(cx, buf)
            }
        }
    };
    (write $half:ty, $stream:ident => $of:expr) => {
        by_stream!($half, $stream => $of);

        impl $half {
            /// As [`TcpStream::writable`].
            pub async fn writable(&self) -> io::Result<()> {
                let $stream = self;
                $of.writable().await
            }

            /// As [`TcpStream::try_write`].
            pub fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
                let $stream = self;
                $of.try_write(buf)
            }

            /// As [`TcpStream::try_write_vectored`].
            pub fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
                let $stream = self;
                $of.try_write_vectored(bufs)
            }
        }

        impl AsyncWrite for $half {
            fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
                let $stream = self;
                $of.poll_send(cx, &[IoSlice::new(buf)])
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                let $stream = self;
                $of.poll_send_vectored(cx, bufs)
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }

            fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                let $stream = self;
                Poll::Ready($of.shut_down())
            }
        }
    };
}

by_stream!(read ReadHalf<'_>, half => half.0);
by_stream!(read OwnedReadHalf, half => half.0);
by_stream!(write WriteHalf<'_>, half => half.0);
by_stream!(write OwnedWriteHalf, half => half.stream);
