//! Owns a TCP listener that tasks use.

use super::TcpStream;
use super::driver::Registration;
use super::names::looked_up;
use super::waiters::Side;
use crate::net::Stack;
use crate::on_lane::BindOptions;
use ::tokio::net::ToSocketAddrs;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

/// A TCP listener, with the methods of `tokio::net::TcpListener`.
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
///     while let Ok((mut stream, peer)) = listener.accept().await {
///         tokio::spawn(async move { stream.write_all(peer.ip().to_string().as_bytes()).await });
///     }
/// });
///
/// let mut said = String::new();
/// TcpStream::connect_on(&client, "10.0.0.1:80").await?.read_to_string(&mut said).await?;
/// assert_eq!(said, "10.0.0.2");
/// # Ok(())
/// # }
/// ```
pub struct TcpListener {
    registration: Registration,
    inner: crate::TcpListener,
}

impl TcpListener {
    /// Listens on the [current](Stack::current) stack. Port 0: one that is free.
    pub async fn bind<A: ToSocketAddrs>(addr: A) -> io::Result<TcpListener> {
        Self::bind_on(&Stack::current()?, addr).await
    }

    /// Listens on a stack. Port 0: one that is free.
    pub async fn bind_on<A: ToSocketAddrs>(stack: &Stack, addr: A) -> io::Result<TcpListener> {
        Self::from_std(crate::TcpListener::bind_on(stack, &looked_up(addr).await?[..])?)
    }

    /// As [`bind_on`](Self::bind_on), with these options and no others: see [`TcpListener::bind_with`](crate::TcpListener::bind_with).
    pub async fn bind_with<A: ToSocketAddrs>(stack: &Stack, addr: A, options: BindOptions) -> io::Result<TcpListener> {
        Self::from_std(crate::TcpListener::bind_with(stack, &looked_up(addr).await?[..], options)?)
    }

    /// Hands a listener to the runtime that this is called in.
    pub fn from_std(listener: crate::TcpListener) -> io::Result<TcpListener> {
        Ok(TcpListener { registration: Registration::new(&listener)?, inner: listener })
    }

    /// Takes it away from the runtime. It stays non-blocking, as tokio's does, until [`set_nonblocking`](crate::TcpListener::set_nonblocking)
    /// says otherwise.
    pub fn into_std(self) -> io::Result<crate::TcpListener> {
        self.inner.set_nonblocking(true)?;
        Ok(self.inner)
    }

    /// Waits for a connection. Any number of tasks may wait; each connection is one task's.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let accepted = self.registration.wait(Side::Reader, || self.inner.try_accept()).await;
        taken(accepted)
    }

    /// Takes a connection, or has the task woken when there is one. Of the tasks that ask, the last is.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        self.registration.poll(cx, Side::Reader, || self.inner.try_accept()).map(taken)
    }

    /// Where it listens.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    /// `IP_TTL`: see [`TcpListener::set_ttl`](crate::TcpListener::set_ttl).
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.inner.set_ttl(ttl)
    }

    /// `IP_TTL`.
    pub fn ttl(&self) -> io::Result<u32> {
        self.inner.ttl()
    }
}

fn taken(accepted: io::Result<(crate::TcpStream, SocketAddr)>) -> io::Result<(TcpStream, SocketAddr)> {
    let (stream, peer) = accepted?;
    Ok((TcpStream::from_std(stream)?, peer))
}

/// As [`from_std`](TcpListener::from_std).
impl TryFrom<crate::TcpListener> for TcpListener {
    type Error = io::Error;

    fn try_from(listener: crate::TcpListener) -> io::Result<TcpListener> {
        Self::from_std(listener)
    }
}

impl std::fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

/// What a handler asks for by `ConnectInfo<SocketAddr>`, axum has for its own listeners and for those that were given a tap:
///
/// ```
/// use axum::extract::ConnectInfo;
/// use axum::serve::ListenerExt;
/// use axum::{Router, routing::get};
/// use laneway::tokio::{TcpListener, TcpStream};
/// use std::net::SocketAddr;
/// # use tokio::io::{AsyncReadExt, AsyncWriteExt};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (here, there) = laneway::Device::memory_pair(1)?;
/// # let server = laneway::Stack::builder(here).address("10.0.0.1/24")?.start()?;
/// # let client = laneway::Stack::builder(there).address("10.0.0.2/24")?.start()?;
/// let app = Router::new().route("/", get(|ConnectInfo(peer): ConnectInfo<SocketAddr>| async move { peer.to_string() }));
/// let listener = TcpListener::bind_on(&server, "10.0.0.1:80").await?.tap_io(|_| {});
/// # tokio::spawn(async move {
/// axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await
/// # });
/// # let mut stream = TcpStream::connect_on(&client, "10.0.0.1:80").await?;
/// # stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await?;
/// # let mut said = String::new();
/// # stream.read_to_string(&mut said).await?;
/// # assert!(said.ends_with(&stream.local_addr()?.to_string()), "{said}");
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "axum")]
impl axum::serve::Listener for TcpListener {
    type Io = TcpStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        loop {
            match TcpListener::accept(self).await {
                Ok(accepted) => return accepted,
                // As axum does with the kernel's: what one connection brought with it, or a lack that may pass.
                Err(_) => ::tokio::time::sleep(std::time::Duration::from_millis(100)).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        TcpListener::local_addr(self)
    }
}
