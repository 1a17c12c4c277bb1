//! Owns a TCP listener that threads use.

use super::TcpStream;
use super::inherited::Inherited;
use super::options::{checked_ttl, ttl_of};
use super::stack::{Inner, Stack};
use super::{each, named};
use crate::error::Why;
use crate::on_lane::BindOptions;
use laneway_stack::proto::ip::output::Marks;
use laneway_stack::threads::accept::Acceptors;
use laneway_stack::threads::desk::Desk;
use std::io;
use std::iter::FusedIterator;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

/// A TCP listener, with the methods of [`std::net::TcpListener`].
///
/// ```
/// # mod example {
/// use laneway::{TcpListener, TcpStream};
///
/// fn handle_client(stream: TcpStream) {
///     // ...
/// }
///
/// fn main() -> std::io::Result<()> {
///     let listener = TcpListener::bind("10.0.0.1:80")?;
///
///     // accept connections and process them serially
///     for stream in listener.incoming() {
///         handle_client(stream?);
/// #       break;
///     }
///     Ok(())
/// }
/// # pub fn run() -> std::io::Result<()> { main() }
/// # }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (here, there) = laneway::Device::memory_pair(1)?;
/// # let server = laneway::Stack::builder(here).address("10.0.0.1/24")?.start()?;
/// # let client = laneway::Stack::builder(there).address("10.0.0.2/24")?.start()?;
/// # std::thread::spawn(move || {
/// #     while laneway::TcpStream::connect_on(&client, "10.0.0.1:80").is_err() {
/// #         std::thread::sleep(std::time::Duration::from_millis(1));
/// #     }
/// # });
/// # let _entered = server.enter();
/// # example::run()?;
/// # Ok(())
/// # }
/// ```
///
/// Every lane has its own queue; a thread takes the oldest connection of one of them, turn about.
pub struct TcpListener(Arc<Listening>);

struct Listening {
    acceptors: Arc<Acceptors>,
    desk: Arc<Desk>,
    stack: Weak<Inner>,
    /// By those who come.
    inherited: Inherited,
}

impl Drop for Listening {
    fn drop(&mut self) {
        if self.desk.is_here() {
            self.acceptors.abandoned.store(true, Relaxed); // before the lanes have a poller look
            // First the lanes are told: once the control plane is, the name may be that of another, whom they would end.
            self.desk.unlisten(self.acceptors.id);
            if let Some(stack) = self.stack.upgrade() {
                stack.unlisten(self.acceptors.id);
            }
        }
    }
}

impl TcpListener {
    pub(super) fn new(stack: &Stack, acceptors: Arc<Acceptors>, inherited: Inherited) -> Self {
        let (desk, stack) = (stack.0.desk.clone(), Arc::downgrade(&stack.0));
        TcpListener(Arc::new(Listening { acceptors, desk, stack, inherited }))
    }

    /// Listens on the [current](Stack::current) stack. Port 0: one that is free.
    pub fn bind<A: ToSocketAddrs>(addr: A) -> io::Result<TcpListener> {
        Self::bind_on(&Stack::current()?, addr)
    }

    /// Listens on a stack. Port 0: one that is free. `SO_REUSEADDR` is set, as `std` does: the port is free again at once when the
    /// listener is closed. Its backlog is `somaxconn`.
    ///
    /// # Errors
    /// `EADDRINUSE` if the address and port are taken, `EADDRNOTAVAIL` if the address is not the stack's; others are in
    /// [the table of the crate](crate#errors).
    pub fn bind_on<A: ToSocketAddrs>(stack: &Stack, addr: A) -> io::Result<TcpListener> {
        Self::bind_with(stack, addr, BindOptions { reuse_address: true, ..BindOptions::default() })
    }

    /// As [`bind_on`](Self::bind_on), with these options and no others.
    ///
    /// ```
    /// use laneway::{BindOptions, TcpListener};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (here, _there) = laneway::Device::memory_pair(1)?;
    /// # let stack = laneway::Stack::builder(here).address("10.0.0.1/24")?.start()?;
    /// let group = BindOptions { reuse_port: true, ..BindOptions::default() };
    /// let first = TcpListener::bind_with(&stack, "10.0.0.1:80", group)?;
    /// let second = TcpListener::bind_with(&stack, "10.0.0.1:80", group)?; // each is given its share of the connections
    /// assert_eq!(first.local_addr()?, second.local_addr()?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn bind_with<A: ToSocketAddrs>(stack: &Stack, addr: A, options: BindOptions) -> io::Result<TcpListener> {
        each(addr, |addr| stack.listen(addr, options))
    }

    fn check(&self) -> io::Result<()> {
        if self.0.desk.is_here() { Ok(()) } else { Err(Why::Forked.into()) }
    }

    pub(crate) fn acceptors(&self) -> &Arc<Acceptors> {
        &self.0.acceptors
    }

    pub(crate) fn desk(&self) -> &Arc<Desk> {
        &self.0.desk
    }

    /// Where it listens.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.check()?;
        Ok(self.0.acceptors.at)
    }

    /// Another handle of the same listener.
    pub fn try_clone(&self) -> io::Result<TcpListener> {
        self.check()?;
        Ok(TcpListener(self.0.clone()))
    }

    /// Waits for a connection.
    ///
    /// # Errors
    /// `EAGAIN` if none is there and the listener is [non-blocking](Self::set_nonblocking), `ENETDOWN` if the stack has ended. What has happened to the
    /// connection meanwhile is the stream's to say.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let acceptors = &self.0.acceptors;
        let mut waits = false;
        loop {
            match self.try_accept() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // As the kernel has it: who has begun to wait goes on, whatever is set meanwhile.
                    if !waits && acceptors.nonblocking.load(Relaxed) {
                        return Err(error);
                    }
                    waits = true;
                    if self.0.desk.looks_for_newcomers(acceptors) {
                        continue;
                    }
                    let seen = acceptors.event.now();
                    acceptors.want();
                    if !acceptors.is_ready() && !self.0.desk.is_stopped() {
                        acceptors.event.sleep(seen, None);
                    }
                }
                done => return done,
            }
        }
    }

    /// Takes a connection if there is one.
    pub(crate) fn try_accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.check()?;
        if self.0.desk.is_stopped() {
            return Err(Why::Stopped.into());
        }
        let Some((newcomer, starved)) = self.0.acceptors.take() else { return Err(Why::WouldBlock.into()) };
        if let Some(lane) = starved {
            self.0.desk.refill(lane, self.0.acceptors.id);
        }
        let is_v6 = self.0.acceptors.at.is_ipv6();
        // Its lane has it already.
        newcomer.talk.app().ttl.store(self.0.acceptors.marks().hop_limit, Relaxed);
        let stream = TcpStream::new(newcomer.talk, self.0.desk.clone(), is_v6, None);
        self.0.inherited.give(&stream)?;
        Ok((stream, named(is_v6, newcomer.peer)))
    }

    /// Every connection that comes, for ever.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
    }

    /// Whether `accept` returns at once, for all handles.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.check()?;
        self.0.acceptors.nonblocking.store(nonblocking, Relaxed);
        Ok(())
    }

    /// `IP_TTL`, and over IPv6 `IPV6_UNICAST_HOPS`, of connections that come from now on, their SYN-ACKs among them: whoever takes only what no router has
    /// passed on (RFC 5082) takes these.
    ///
    /// # Errors
    /// `EINVAL` unless it is 1 to 255.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.check()?;
        self.mark(Marks { hop_limit: checked_ttl(ttl)?, ..self.0.acceptors.marks() });
        Ok(())
    }

    fn mark(&self, marks: Marks) {
        if marks != self.0.acceptors.marks() {
            self.0.acceptors.set_marks(marks);
            self.0.stack.upgrade().into_iter().for_each(|stack| stack.mark(self.0.acceptors.id, marks));
        }
    }

    /// `IP_TTL`.
    pub fn ttl(&self) -> io::Result<u32> {
        self.check()?;
        Ok(ttl_of(self.0.acceptors.marks().hop_limit, &self.0.desk))
    }

    /// A listener does not fail.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.check()?;
        Ok(None)
    }
}

impl std::fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TcpListener").field("addr", &self.0.acceptors.at).finish_non_exhaustive()
    }
}

/// Every connection that comes. Made by [`TcpListener::incoming`]; it has no end.
#[derive(Debug)]
pub struct Incoming<'a> {
    listener: &'a TcpListener,
}

impl Iterator for Incoming<'_> {
    type Item = io::Result<TcpStream>;
    fn next(&mut self) -> Option<io::Result<TcpStream>> {
        Some(self.listener.accept().map(|(stream, _)| stream))
    }
}

impl FusedIterator for Incoming<'_> {}
