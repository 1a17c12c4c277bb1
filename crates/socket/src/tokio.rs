//! Sockets for programs that run on `tokio`.
//!
//! A runtime learns of a stack's sockets through one descriptor: the stack keeps a [`Poller`] for each runtime
//! that uses it, and a task in that runtime waits for the poller's descriptor and wakes the tasks whose sockets are ready. No
//! lane calls a waker, so no lane runs, or waits for, code of the runtime's.

use crate::net::{Event, Interest, Mode, Poller, Source, Stack};
use ::tokio::io::unix::AsyncFd;
use ::tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use ::tokio::runtime::{Handle, Id};
use ::tokio::task::coop::consume_budget;
use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsRawFd, RawFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The tasks that wait for one socket.
#[derive(Default)]
struct Waits {
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// What the sockets of one stack in one runtime share with the task that wakes them.
struct Shared {
    poller: Arc<Poller>,
    waits: Mutex<HashMap<usize, Arc<Mutex<Waits>>>>,
    next_key: AtomicUsize,
    /// The task has ended, and its runtime with it.
    over: AtomicBool,
}

/// With the last socket the task's work ends.
impl Drop for Shared {
    fn drop(&mut self) {
        self.poller.notify();
    }
}

impl Shared {
    /// Wakes whoever waits for what has happened.
    fn wake(&self, event: &Event) {
        let Some(waits) = lock(&self.waits).get(&event.key).cloned() else { return };
        let mut waits = lock(&waits);
        let reader = if event.readable { waits.reader.take() } else { None };
        let writer = if event.writable { waits.writer.take() } else { None };
        drop(waits);
        reader.into_iter().chain(writer).for_each(Waker::wake);
    }
}

struct Descriptor(Arc<Poller>);

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// A runtime's task for one stack.
pub(crate) struct Driver {
    runtime: Id,
    shared: Weak<Shared>,
}

/// Tells the sockets when the task ends, however it does: a runtime that is dropped drops its tasks.
struct Task(Weak<Shared>);

impl Drop for Task {
    fn drop(&mut self) {
        let Some(shared) = self.0.upgrade() else { return };
        shared.over.store(true, Release);
        let all: Vec<_> = lock(&shared.waits).values().cloned().collect();
        for waits in all {
            let Waits { reader, writer } = std::mem::take(&mut *lock(&waits));
            reader.into_iter().chain(writer).for_each(Waker::wake);
        }
    }
}

/// The driver of this runtime, begun if this is the first socket. Those of runtimes that are gone are forgotten.
fn driver(stack: &Stack) -> io::Result<Arc<Shared>> {
    let runtime = Handle::try_current().map_err(io::Error::other)?;
    let mut drivers = lock(&stack.0.drivers);
    drivers.retain(|driver| driver.shared.upgrade().is_some_and(|shared| !shared.over.load(Acquire)));
    if let Some(shared) = drivers.iter().find(|d| d.runtime == runtime.id()).and_then(|d| d.shared.upgrade()) {
        return Ok(shared);
    }
    let poller = Arc::new(Poller::new()?);
    // Its successor is unsafe, because a type could close the descriptor early; ours keeps the poller that owns it.
    #[allow(deprecated)]
    let descriptor = AsyncFd::new(Descriptor(poller.clone()))?;
    let shared = Arc::new(Shared {
        poller: poller.clone(),
        waits: Mutex::default(),
        next_key: AtomicUsize::new(0),
        over: AtomicBool::new(false),
    });
    drivers.push(Driver { runtime: runtime.id(), shared: Arc::downgrade(&shared) });
    let task = Task(Arc::downgrade(&shared));
    runtime.spawn(async move {
        let mut events = Vec::new();
        loop {
            // Until nothing comes: from then on the descriptor tells. On a runtime of one thread those who were woken have
            // their turn in between, however long that is.
            while poller.wait(&mut events, Some(Duration::ZERO)).is_ok_and(|n| n > 0) {
                match task.0.upgrade() {
                    Some(shared) => events.drain(..).for_each(|event| shared.wake(&event)),
                    None => return,
                }
                consume_budget().await;
            }
            if task.0.strong_count() == 0 {
                return;
            }
            match descriptor.readable().await {
                Ok(mut ready) => ready.clear_ready(),
                Err(_) => return,
            }
        }
    });
    Ok(shared)
}

/// One socket's place with its runtime's driver.
struct Registration {
    shared: Arc<Shared>,
    waits: Arc<Mutex<Waits>>,
    key: usize,
}

impl Registration {
    fn new(shared: Arc<Shared>, source: &impl Source) -> io::Result<Self> {
        let key = shared.next_key.fetch_add(1, Relaxed);
        let waits = Arc::new(Mutex::new(Waits::default()));
        lock(&shared.waits).insert(key, waits.clone());
        let registration = Registration { shared, waits, key };
        registration.shared.poller.add(source, key, Interest::BOTH, Mode::Edge)?;
        Ok(registration)
    }

    /// Does `act`; if it would wait, has the task woken when it would not.
    fn poll<T>(
        &self,
        cx: &mut Context<'_>,
        place: impl Fn(&mut Waits) -> &mut Option<Waker>,
        mut act: impl FnMut() -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        match act() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            done => return Poll::Ready(done),
        }
        *place(&mut lock(&self.waits)) = Some(cx.waker().clone());
        // What has happened before the waker was in its place has been told to nobody.
        match act() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            done => return Poll::Ready(done),
        }
        if self.shared.over.load(Acquire) {
            return Poll::Ready(Err(io::Error::other("the runtime in which this socket was made has ended")));
        }
        Poll::Pending
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        lock(&self.shared.waits).remove(&self.key);
        self.shared.poller.forget(self.key);
    }
}

/// A TCP connection, with the methods of `tokio::net::TcpStream`.
pub struct TcpStream {
    registration: Registration,
    inner: crate::TcpStream,
}

impl TcpStream {
    /// Opens a connection on the [current](Stack::current) stack.
    pub async fn connect<A: ToSocketAddrs>(addr: A) -> io::Result<TcpStream> {
        Self::connect_on(&Stack::current()?, addr).await
    }

    /// Opens a connection on a stack. Names are looked up before this first waits.
    pub async fn connect_on<A: ToSocketAddrs>(stack: &Stack, addr: A) -> io::Result<TcpStream> {
        let addresses: Vec<SocketAddr> = addr.to_socket_addrs()?.collect();
        let mut last = io::Error::new(io::ErrorKind::InvalidInput, "could not resolve to any addresses");
        for addr in addresses {
            let stream = Self::from_std(stack, crate::TcpStream::begin(stack, &addr)?)?;
            let connected = std::future::poll_fn(|cx| {
                stream.registration.poll(
                    cx,
                    |waits| &mut waits.writer,
                    || match stream.inner.poll_connected() {
                        Ok(true) => Ok(()),
                        Ok(false) => Err(io::ErrorKind::WouldBlock.into()),
                        Err(error) => Err(error),
                    },
                )
            });
            match connected.await {
                Ok(()) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Hands a connection to the runtime that this is called in.
    pub fn from_std(stack: &Stack, stream: crate::TcpStream) -> io::Result<TcpStream> {
        stream.set_nonblocking(true)?; // its thread has other tasks, and does no lane's work
        Ok(TcpStream { registration: Registration::new(driver(stack)?, &stream)?, inner: stream })
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

    /// `SO_LINGER`: see [`TcpStream::set_linger`](crate::TcpStream::set_linger).
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        self.inner.set_linger(linger)
    }

    /// Why the connection has failed, if it has and nobody was told yet.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.inner.take_error()
    }

    fn poll_send(&self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let try_write = || {
            self.inner.announce(bufs);
            self.inner.try_write(bufs)
        };
        let sent = self.registration.poll(cx, |waits| &mut waits.writer, try_write);
        if sent.is_pending() {
            self.inner.ask_for_memory();
        }
        sent
    }
}

impl AsyncRead for TcpStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let got = self.registration.poll(
            cx,
            |waits| &mut waits.reader,
            || {
                self.inner.try_read(buf.initialize_unfilled(), /* peek= */ false)
            },
        );
        got.map_ok(|n| buf.advance(n))
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
        self.poll_send(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.inner.shutdown(Shutdown::Write) {
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Poll::Ready(Ok(())), // it is over anyway
            done => Poll::Ready(done),
        }
    }
}

impl std::fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

/// A TCP listener, with the methods of `tokio::net::TcpListener`.
pub struct TcpListener {
    registration: Registration,
    inner: crate::TcpListener,
    stack: Stack,
}

impl TcpListener {
    /// Listens on the [current](Stack::current) stack. Port 0: one that is free.
    pub async fn bind<A: ToSocketAddrs>(addr: A) -> io::Result<TcpListener> {
        Self::bind_on(&Stack::current()?, addr).await
    }

    /// Listens on a stack. Port 0: one that is free.
    pub async fn bind_on<A: ToSocketAddrs>(stack: &Stack, addr: A) -> io::Result<TcpListener> {
        Self::from_std(stack, crate::TcpListener::bind_on(stack, addr)?)
    }

    /// Hands a listener to the runtime that this is called in.
    pub fn from_std(stack: &Stack, listener: crate::TcpListener) -> io::Result<TcpListener> {
        let registration = Registration::new(driver(stack)?, &listener)?;
        Ok(TcpListener { registration, inner: listener, stack: stack.clone() })
    }

    /// Waits for a connection.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        std::future::poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// Takes a connection, or has the task woken when there is one.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        let accepted = self.registration.poll(cx, |waits| &mut waits.reader, || self.inner.try_accept());
        accepted.map(|accepted| {
            let (stream, peer) = accepted?;
            Ok((TcpStream::from_std(&self.stack, stream)?, peer))
        })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }
}

impl std::fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

#[cfg(feature = "axum")]
impl axum::serve::Listener for TcpListener {
    type Io = TcpStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        loop {
            match TcpListener::accept(self).await {
                Ok(accepted) => return accepted,
                // As axum does with the kernel's: what one connection brought with it, or a lack that may pass.
                Err(_) => ::tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        TcpListener::local_addr(self)
    }
}
