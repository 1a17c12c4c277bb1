//! Owns a TCP connection that threads use.

mod info;
mod lingering;
mod options;
#[cfg(test)]
mod tests;

#[cfg(feature = "tokio")]
pub(crate) use self::info::Inquiry;
use super::keepalive::TcpKeepalive;
use super::late::sleep_until;
use super::options::{checked_ttl, ttl_of, user_timeout_ms};
use super::socket::Bound;
use super::stack::Stack;
use super::{after, deadline, each, named, no_time_at_all, set_timeout, timeout};
use crate::error::Why;
use laneway_stack::threads::desk::{Desk, Opening};
use laneway_stack::threads::words::{
    CALLED_OFF, CONNECTED, ENDED, FULL, GONE, KEEPALIVE, NODELAY, OPENING, OVER, Op, READ, ROOM, SHUT_READ, SHUT_WRITE,
    Talk, WRITE,
};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::time::{Duration, Instant};

/// A TCP connection, with the methods of [`std::net::TcpStream`].
///
/// ```
/// # mod example {
/// use laneway::TcpStream;
/// use std::io::prelude::*;
///
/// fn main() -> std::io::Result<()> {
///     let mut stream = TcpStream::connect("10.0.0.1:34254")?;
///
///     stream.write(&[1])?;
///     stream.read(&mut [0; 128])?;
///     Ok(())
/// } // the stream is closed here
/// # pub fn run() -> std::io::Result<()> { main() }
/// # }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (here, there) = laneway::Device::memory_pair(1)?;
/// # let server = laneway::Stack::builder(here).address("10.0.0.1/24")?.start()?;
/// # let client = laneway::Stack::builder(there).address("10.0.0.2/24")?.start()?;
/// # let listener = laneway::TcpListener::bind_on(&server, "10.0.0.1:34254")?;
/// # std::thread::spawn(move || { let s = listener.accept().unwrap().0; std::io::copy(&mut &s, &mut &s) });
/// # let _entered = client.enter();
/// # example::run()?;
/// # Ok(())
/// # }
/// ```
///
/// Clones share everything, as those of `std::net` do; the last one to be dropped closes, and with `set_linger` that drop
/// may wait. There is no file descriptor: a [`Poller`](super::Poller) waits for many.
pub struct TcpStream {
    /// Until the drop, which gives it to the lane.
    talk: Option<Talk>,
    desk: Arc<Desk>,
    /// Its addresses are named as those of IPv6, though they be of IPv4.
    is_v6: bool,
    /// Where it was bound before it was connected. From then on the port is the connection's, which needs no name of a binding for that; of one that
    /// is only begun this is given up when the lane has been told to close.
    bound: Option<Arc<Bound>>,
}

impl TcpStream {
    pub(super) fn new(talk: Talk, desk: Arc<Desk>, is_v6: bool, bound: Option<Arc<Bound>>) -> Self {
        TcpStream { talk: Some(talk), desk, is_v6, bound }
    }

    /// Opens a connection on the [current](Stack::current) stack.
    pub fn connect<A: ToSocketAddrs>(addr: A) -> io::Result<TcpStream> {
        Self::connect_on(&Stack::current()?, addr)
    }

    /// Opens a connection on a stack. Of several addresses the first that answers is taken.
    ///
    /// # Errors
    /// `ECONNREFUSED` if nobody listens there; `ETIMEDOUT` if the peer is silent through all `tcp_syn_retries`, 191 s unless they are set;
    /// `EHOSTUNREACH` after three seconds if no link address is found for it, which only Ethernet asks for; `ENETUNREACH` without a route, and to the stack's own addresses;
    /// `EADDRNOTAVAIL` if no local port is left. All others are in [the table of the crate](crate#errors). Of several addresses it is what the last one gave.
    pub fn connect_on<A: ToSocketAddrs>(stack: &Stack, addr: A) -> io::Result<TcpStream> {
        each(addr, |addr| Self::begin(stack, &addr)?.connected(None))
    }

    /// Opens a connection on the [current](Stack::current) stack, and gives up after a time.
    pub fn connect_timeout(addr: &SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
        Self::connect_timeout_on(&Stack::current()?, addr, timeout)
    }

    /// Opens a connection on a stack, and gives up after a time.
    ///
    /// # Errors
    /// Those of [`connect_on`](Self::connect_on); `TimedOut`, without an errno, when the time is over, and `InvalidInput` if there was none.
    pub fn connect_timeout_on(stack: &Stack, addr: &SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
        if timeout.is_zero() {
            return Err(no_time_at_all());
        }
        Self::begin(stack, addr)?.connected(after(timeout))
    }

    /// Begins to open a connection on a stack, and does not wait for it: what a non-blocking `connect` of the kernel's is. The
    /// stream is non-blocking. It becomes writable (see [`Poller`](super::Poller)) when the connection is established or has
    /// failed; [`take_error`](Self::take_error) and [`peer_addr`](Self::peer_addr) tell which. Until then nothing can be written, and a
    /// [`shutdown`](Self::shutdown) calls it off.
    pub fn begin_connect_on(stack: &Stack, addr: &SocketAddr) -> io::Result<TcpStream> {
        Self::begin(stack, addr)?.begun()
    }

    /// As it is for whoever does not wait until it is connected.
    pub(super) fn begun(self) -> io::Result<TcpStream> {
        self.set_nonblocking(true)?;
        self.talk().app().state.fetch_or(OPENING, Relaxed);
        self.desk.begin(self.talk());
        Ok(self)
    }

    /// Waits until it is connected.
    pub(super) fn connected(mut self, deadline: Option<Instant>) -> io::Result<TcpStream> {
        self.desk.begin(self.talk());
        while !self.poll_connected()? {
            if !self.wait(WRITE, deadline, |s| s.is_decided()) {
                // What `std` says itself, so that no errno is in it. The stream is dropped, and with it what was begun.
                return Err(io::Error::new(io::ErrorKind::TimedOut, "connection timed out"));
            }
        }
        self.unbind();
        Ok(self)
    }

    /// It is connected: see `bound`.
    pub(crate) fn unbind(&mut self) {
        self.bound = None;
    }

    /// A connection that is to be opened. Its lane is told to when the caller [waits](Self::connected) for it, or [does not](Self::begun).
    pub(crate) fn begin(stack: &Stack, addr: &SocketAddr) -> io::Result<TcpStream> {
        let desk = stack.0.desk.clone();
        if !desk.is_here() {
            return Err(Why::Forked.into());
        }
        let talk = desk.open(Opening::anywhere(*addr));
        Ok(TcpStream::new(talk, desk, addr.is_ipv6(), None))
    }

    /// Whether the connection is established; why it failed, if it did.
    pub(crate) fn poll_connected(&self) -> io::Result<bool> {
        let words = self.talk().lane();
        let status = words.status.load(Acquire);
        if status & CONNECTED != 0 {
            return Ok(true);
        }
        if status & GONE != 0 {
            return Err(words.take_error().map_or(Why::Stopped, Why::Fault).into());
        }
        Ok(false)
    }

    fn is_decided(&self) -> bool {
        self.talk().lane().status.load(Acquire) & (CONNECTED | GONE) != 0
    }

    /// Sleeps until one of `bits` may be so, unless `ready` says that it is; false if `deadline` has come.
    fn wait(&self, bits: u32, deadline: Option<Instant>, ready: impl Fn(&Self) -> bool) -> bool {
        if self.desk.looks(self.talk(), || ready(self)) {
            return true;
        }
        let event = &self.talk().lane().event;
        let seen = event.now();
        self.talk().flags().want(bits);
        ready(self) || sleep_until(deadline, |left| event.sleep(seen, left))
    }

    #[inline]
    pub(crate) fn talk(&self) -> &Talk {
        self.talk.as_ref().expect("it is there until the drop")
    }

    pub(crate) fn desk(&self) -> &Arc<Desk> {
        &self.desk
    }

    fn check(&self) -> io::Result<()> {
        if self.desk.is_here() { Ok(()) } else { Err(Why::Forked.into()) }
    }

    /// Takes what is there; `WouldBlock` if nothing is, and nothing is final.
    pub(crate) fn try_read(&self, buf: &mut [u8], peek: bool) -> io::Result<usize> {
        self.check()?;
        // The end is announced after the last byte: it must be asked for first. What is known to be there comes before either.
        let talk = self.talk();
        let mut status = 0;
        let mut look = || status = talk.lane().status.load(Acquire);
        let n = if peek {
            look();
            talk.peek(buf)
        } else {
            talk.recv_known(buf, look)
        };
        if n == 0 {
            return self.found_nothing(buf.is_empty(), status);
        }
        if !peek {
            self.after_read();
        }
        Ok(n)
    }

    /// The same, into several buffers, of which one at least has room. As the kernel has it: what another thread reads does not come between.
    fn try_read_into(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.check()?;
        let talk = self.talk();
        let mut status = 0;
        let n = talk.recv_known_into(bufs, || status = talk.lane().status.load(Acquire));
        if n == 0 {
            return self.found_nothing(/* asks_for_nothing= */ false, status);
        }
        self.after_read();
        Ok(n)
    }

    /// What a read says that has taken nothing, and saw `status` before it looked.
    #[inline]
    fn found_nothing(&self, asks_for_nothing: bool, status: u32) -> io::Result<usize> {
        let shut = self.talk().app().state.load(Relaxed) & SHUT_READ != 0;
        // As the kernel has it: to read nothing is to wait until there is something.
        let has_it = asks_for_nothing && self.talk().readable() > 0;
        if has_it || status & ENDED != 0 {
            return Ok(0);
        }
        // Before the end that its own reader has made, and behind the one that the peer has; and behind what has come meanwhile, if it was not over
        // before one looked for bytes: who waits looks again.
        if status & GONE != 0
            && let Some(fault) = self.talk().lane().take_error()
        {
            return Err(Why::Fault(fault).into());
        }
        if shut || status & (GONE | CALLED_OFF) == GONE {
            return Ok(0);
        }
        if status & CALLED_OFF != 0 {
            return Err(Why::NotConnected.into());
        }
        Err(Why::WouldBlock.into())
    }

    /// The lane may wait for the room that was made.
    fn after_read(&self) {
        laneway_stack::threads::look_fence();
        if self.talk().flags().get(FULL) != 0 && self.talk().readable() <= self.talk().receive_limit() / 3 * 2 {
            self.desk.tell(self.talk());
        }
    }

    fn read_with(&self, asks_for_nothing: bool, mut read: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
        let mut until = None;
        loop {
            match read() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let words = self.talk().app();
                    // As the kernel has it: who has begun to wait goes on, whatever is set meanwhile.
                    if until.is_none() && words.nonblocking.load(Relaxed) {
                        return Err(error);
                    }
                    let until = until.get_or_insert_with(|| deadline(&words.read_timeout_ms));
                    let has_come =
                        self.wait(READ, *until, |s| laneway_stack::threads::poll::readiness(s.talk()) & READ != 0);
                    if asks_for_nothing {
                        // As the kernel has it: who asks for nothing has waited, and has it, whatever has come or not.
                        return Ok(0);
                    }
                    if !has_come {
                        return Err(error);
                    }
                }
                done => return done,
            }
        }
    }

    /// Queues what there is room for, for a caller that has others to serve; `WouldBlock` if there is none.
    #[cfg(feature = "tokio")]
    pub(crate) fn try_write(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let n = self.queue(bufs)?;
        if n > 0 {
            self.desk.tell(self.talk());
        }
        Ok(n)
    }

    #[cfg(feature = "tokio")]
    fn queue(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.await_connected()?;
        match self.append(bufs, /* nonblocking= */ true)? {
            None => Err(self.why_over()),
            Some(0) if bufs.iter().any(|buf| !buf.is_empty()) => Err(Why::WouldBlock.into()),
            Some(n) => Ok(n),
        }
    }

    /// Nothing is written on one that is [begun](Self::begin_connect_on) before it is connected: a write waits for that, or would.
    #[inline]
    fn await_connected(&self) -> io::Result<()> {
        if self.talk().app().state.load(Relaxed) & OPENING == 0 { Ok(()) } else { self.await_decided() }
    }

    #[cold]
    fn await_decided(&self) -> io::Result<()> {
        self.check()?;
        let words = self.talk().app();
        let may_write = |s: &Self| s.is_decided() || words.state.load(Relaxed) & SHUT_WRITE != 0;
        if words.nonblocking.load(Relaxed) {
            self.talk().flags().want(ROOM); // a poller tells when it is
            if !may_write(self) {
                return Err(Why::WouldBlock.into());
            }
        }
        let until = deadline(&words.write_timeout_ms);
        while !may_write(self) {
            if !self.wait(WRITE, until, may_write) {
                return Err(Why::WouldBlock.into());
            }
        }
        words.state.fetch_and(!OPENING, Relaxed);
        Ok(())
    }

    /// Appends what there is room for; `None`: nothing can be sent any more. For who does not wait: if there is not room for all of it, a poller
    /// will tell when there is. Said before one looks for the last time, so that the lane either has made room that this finds, or sees that it is
    /// waited for; and while no other thread writes, which could else take the room between a look and the write.
    fn append(&self, bufs: &[IoSlice<'_>], nonblocking: bool) -> io::Result<Option<usize>> {
        self.check()?;
        let words = self.talk().lane();
        let is_over = || words.status.load(Acquire) & GONE != 0 || words.has_error();
        let is_open = || self.talk().app().state.load(Relaxed) & SHUT_WRITE == 0;
        let tries_again = || {
            if nonblocking {
                self.talk().flags().want(ROOM);
            }
            nonblocking
        };
        Ok(match self.talk().flags().seen(OVER) != 0 && is_over() {
            true => None,
            false => self.talk().send_all_of(bufs, is_open, tries_again),
        })
    }

    #[cold]
    fn why_over(&self) -> io::Error {
        self.talk().lane().take_error().map_or(Why::BrokenPipe, Why::Fault).into()
    }

    /// Behind a write that does not wait and found too little: if it was memory that was missing and not room, other connections hold
    /// all of it, and none of them knows of this one. The lane, once it is told, does, and tells a poller when there is some.
    fn wants_memory(&self) -> bool {
        let missing = self.talk().writable() > 0;
        if missing {
            self.talk().flags().want(ROOM);
        }
        missing
    }

    /// The same, where nothing was written, and so nothing else tells the lane.
    pub(crate) fn ask_for_memory(&self) {
        if self.wants_memory() {
            self.desk.serve(self.talk());
        }
    }

    fn write_with(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.await_connected()?;
        let (words, all) = (self.talk().app(), bufs.iter().map(|buf| buf.len()).sum());
        // As the kernel has it: what is set later is for the calls that come later.
        let nonblocking = words.nonblocking.load(Relaxed);
        // As the kernel has it: a write that may wait comes back when all is taken, or with what was taken before its time was over or
        // the connection failed. Why it failed is said to the next.
        let (mut until, mut done) = (None, 0);
        let so_far = |done, why: fn(&Self) -> io::Error| if done > 0 { Ok(done) } else { Err(why(self)) };
        loop {
            let appended = match done {
                0 => self.append(bufs, nonblocking)?,
                _ => self.append(&[behind(bufs, done)], nonblocking)?,
            };
            let Some(n) = appended else { return so_far(done, Self::why_over) };
            done += n;
            // Who may wait does the work of a lane that sleeps; who has many others to serve does not.
            if nonblocking {
                match n {
                    0 if all > 0 => self.ask_for_memory(),
                    _ => _ = done < all && self.wants_memory(),
                }
            }
            if n > 0 {
                self.desk.tell(self.talk());
            }
            if done == all {
                return Ok(done);
            }
            if nonblocking {
                return so_far(done, Self::would_wait);
            }
            if n > 0 {
                continue;
            }
            let until = until.get_or_insert_with(|| deadline(&words.write_timeout_ms));
            if self.talk().writable() > 0 {
                // There is room and no memory for it: other connections hold it all.
                if until.is_some_and(|until| Instant::now() >= until) {
                    return so_far(done, Self::would_wait);
                }
                std::thread::sleep(Duration::from_millis(1));
            } else if !self.wait(WRITE, *until, |s| laneway_stack::threads::poll::readiness(s.talk()) & WRITE != 0) {
                return so_far(done, Self::would_wait);
            }
        }
    }

    fn would_wait(&self) -> io::Error {
        Why::WouldBlock.into()
    }

    /// The local address. One that is [begun](Self::begin_connect_on) has it as soon as its lane has chosen the port: a moment later, and as
    /// a rule long before it is connected. Until then: `NotConnected`. One that was called off has the port, and no address any more.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.check()?;
        let flow = self.talk().lane().flow().ok_or(Why::NotConnected)?;
        if self.talk().lane().status.load(Acquire) & CALLED_OFF != 0 {
            let any = if self.is_v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
            return Ok(SocketAddr::new(any, flow.local_port));
        }
        Ok(named(self.is_v6, SocketAddr::new(flow.local.to_ip(), flow.local_port)))
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.check()?;
        let flow = self.talk().lane().flow().ok_or(Why::NotConnected)?;
        if self.talk().lane().status.load(Acquire) & (CONNECTED | GONE) != CONNECTED {
            return Err(Why::NotConnected.into());
        }
        Ok(named(self.is_v6, SocketAddr::new(flow.remote.to_ip(), flow.remote_port)))
    }

    /// Another handle of the same connection.
    pub fn try_clone(&self) -> io::Result<TcpStream> {
        self.check()?;
        self.talk().app().handles.fetch_add(1, Relaxed);
        Ok(TcpStream::new(self.talk().clone(), self.desk.clone(), self.is_v6, self.bound.clone()))
    }

    /// Shuts one direction, or both. What was written before still goes out, and then a FIN. One that is only
    /// [begun](Self::begin_connect_on) is called off, whatever is shut: it fails with `ConnectionReset`.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.check()?;
        let bits = match how {
            Shutdown::Read => SHUT_READ,
            Shutdown::Write => SHUT_WRITE,
            Shutdown::Both => SHUT_READ | SHUT_WRITE,
        };
        if !self.desk.call_off(self.talk()) {
            if self.talk().lane().status.load(Acquire) & GONE != 0 {
                self.talk().app().state.fetch_or(bits, Relaxed); // whoever reads finds the end all the same
                return Err(Why::NotConnected.into());
            }
            self.desk.shut(self.talk(), bits);
        }
        // The lane tells who watches, tasks among them.
        self.talk().lane().event.wake(); // threads that wait for what will not come
        Ok(())
    }

    /// Copies what has arrived, and leaves it.
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.read_with(buf.is_empty(), || self.try_read(buf, /* peek= */ true))
    }

    /// How long a read waits. `None`: for ever.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.check()?;
        set_timeout(&self.talk().app().read_timeout_ms, timeout)
    }

    /// How long a write waits. `None`: for ever.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.check()?;
        set_timeout(&self.talk().app().write_timeout_ms, timeout)
    }

    /// How long a read waits.
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        self.check()?;
        Ok(timeout(&self.talk().app().read_timeout_ms))
    }

    /// How long a write waits.
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        self.check()?;
        Ok(timeout(&self.talk().app().write_timeout_ms))
    }

    /// Whether calls return at once, for all handles.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.check()?;
        self.talk().app().nonblocking.store(nonblocking, Relaxed);
        Ok(())
    }

    /// `TCP_NODELAY`, from the next byte on.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.set_state(NODELAY, nodelay, || Op::Nodelay(nodelay))
    }

    /// `TCP_NODELAY`.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.check()?;
        Ok(self.talk().app().state.load(Relaxed) & NODELAY != 0)
    }

    /// `SO_KEEPALIVE`, with the times that it was [told](Self::set_tcp_keepalive), or those of the stack's configuration.
    pub fn set_keepalive(&self, keepalive: bool) -> io::Result<()> {
        self.set_state(KEEPALIVE, keepalive, || Op::Keepalive(keepalive))
    }

    /// `SO_KEEPALIVE`.
    pub fn keepalive(&self) -> io::Result<bool> {
        self.check()?;
        Ok(self.talk().app().state.load(Relaxed) & KEEPALIVE != 0)
    }

    /// `SO_KEEPALIVE`, with these times.
    ///
    /// # Errors
    /// `EINVAL` if one of them is [beyond](TcpKeepalive) what can be said. Then nothing is set.
    pub fn set_tcp_keepalive(&self, params: &TcpKeepalive) -> io::Result<()> {
        let times = params.times()?;
        let asked = times.or(self.talk().lane().asked.keepalive_times());
        self.ask(|| self.desk.note(self.talk(), Op::KeepaliveTimes(times)))?;
        self.talk().lane().asked.set_keepalive_times(asked);
        self.set_keepalive(true)
    }

    /// `TCP_KEEPIDLE`: how long the peer is silent before it is asked for the first time.
    pub fn tcp_keepalive_time(&self) -> io::Result<Duration> {
        self.check()?;
        Ok(own_or(self.talk().lane().asked.keepalive_times().idle_s, self.desk.usual().keepalive_time))
    }

    /// `TCP_KEEPINTVL`: how long an answer is waited for before it is asked again.
    pub fn tcp_keepalive_interval(&self) -> io::Result<Duration> {
        self.check()?;
        Ok(own_or(self.talk().lane().asked.keepalive_times().interval_s, self.desk.usual().keepalive_interval))
    }

    /// `TCP_KEEPCNT`: how often it is asked before the connection is given up.
    pub fn tcp_keepalive_retries(&self) -> io::Result<u32> {
        self.check()?;
        let own = self.talk().lane().asked.keepalive_times().probes;
        Ok(if own > 0 { own } else { self.desk.usual().keepalive_probes }.into())
    }

    /// `TCP_USER_TIMEOUT`: how long sent bytes may stay unacknowledged. `None`: as long as retransmission goes on.
    pub fn set_tcp_user_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.check()?;
        let ms = user_timeout_ms(timeout)?;
        self.ask(|| self.desk.note(self.talk(), Op::UserTimeout(ms)))?;
        self.talk().app().user_timeout_ms.store(ms, Relaxed);
        Ok(())
    }

    /// `TCP_USER_TIMEOUT`.
    pub fn tcp_user_timeout(&self) -> io::Result<Option<Duration>> {
        self.check()?;
        let ms = self.talk().app().user_timeout_ms.load(Relaxed);
        Ok((ms > 0).then(|| Duration::from_millis(ms.into())))
    }

    /// `SO_LINGER`. With zero the drop of the last handle resets the connection; with another time it waits until the peer has acknowledged all that was written, for so long at the
    /// most, if calls may wait. What is not acknowledged by then is sent all the same.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        self.check()?;
        let seconds = linger.map_or(-1, |linger| linger.as_secs().min(i32::MAX as u64) as i32);
        self.talk().app().linger_s.store(seconds, Relaxed);
        Ok(())
    }

    /// `SO_LINGER`.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        self.check()?;
        let seconds = self.talk().app().linger_s.load(Relaxed);
        Ok(u64::try_from(seconds).ok().map(Duration::from_secs))
    }

    /// `IP_TTL`, and over IPv6 `IPV6_UNICAST_HOPS`: how many routers its packets pass from now on at the most.
    ///
    /// # Errors
    /// `EINVAL` unless it is 1 to 255.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.check()?;
        let ttl = checked_ttl(ttl)?;
        self.ask(|| self.desk.note(self.talk(), Op::Ttl(ttl)))?;
        self.talk().app().ttl.store(ttl, Relaxed);
        Ok(())
    }

    /// `IP_TTL`.
    pub fn ttl(&self) -> io::Result<u32> {
        self.check()?;
        Ok(ttl_of(self.talk().app().ttl.load(Relaxed), &self.desk))
    }

    /// Why the connection has failed, if it has and nobody was told yet.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.check()?;
        Ok(self.talk().lane().take_error().map(|fault| Why::Fault(fault).into()))
    }

    fn set_state(&self, bit: u8, on: bool, op: impl Fn() -> Op) -> io::Result<()> {
        self.ask(|| self.desk.set(self.talk(), bit, on, op()))
    }

    /// Until the lane has room for one more wish. Also where calls return at once: as with the kernel, whose options wait for the socket's lock,
    /// none is refused, and nothing that the peer does is waited for.
    fn ask(&self, is_noted: impl Fn() -> bool) -> io::Result<()> {
        self.check()?;
        // Of one that is over nothing is left that it could apply to.
        while !is_noted() && self.talk().lane().status.load(Acquire) & GONE == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

fn own_or(own_s: u16, usual: Duration) -> Duration {
    if own_s > 0 { Duration::from_secs(own_s.into()) } else { usual }
}

/// What is behind the first `done` bytes: the rest of the first buffer that they do not fill.
fn behind<'a>(bufs: &'a [IoSlice<'_>], mut done: usize) -> IoSlice<'a> {
    for buf in bufs {
        match buf.get(done..) {
            Some(rest) if !rest.is_empty() => return IoSlice::new(rest),
            _ => done -= buf.len(),
        }
    }
    IoSlice::new(&[])
}

impl Drop for TcpStream {
    fn drop(&mut self) {
        if !self.desk.is_here() || self.talk().app().handles.fetch_sub(1, AcqRel) != 1 {
            return;
        }
        let words = self.talk().app();
        let (linger_s, waits) = (words.linger_s.load(Relaxed), !words.nonblocking.load(Relaxed));
        if linger_s > 0 && waits {
            self.linger_for(Duration::from_secs(linger_s.unsigned_abs().into()));
        }
        let resets = linger_s == 0;
        if let Some(talk) = self.talk.take() {
            self.desk.leave(talk, resets);
        }
    }
}

impl Read for &TcpStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.read_with(buf.is_empty(), || self.try_read(buf, /* peek= */ false))
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        // Of pieces without a byte the kernel does not ask the socket, as of a single one it does.
        if bufs.iter().all(|buf| buf.is_empty()) {
            return self.check().map(|()| 0);
        }
        self.read_with(/* asks_for_nothing= */ false, || self.try_read_into(bufs))
    }
}

impl Write for &TcpStream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.write_with(&[IoSlice::new(buf)])
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        // Of pieces without a byte the kernel does not ask the socket, as of a single one it does.
        if bufs.iter().all(|buf| buf.is_empty()) {
            return self.check().map(|()| 0);
        }
        self.write_with(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for TcpStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(bufs)
    }
}

impl Write for TcpStream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self).write(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl std::fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = f.debug_struct("TcpStream");
        if let Ok(addr) = self.local_addr() {
            out.field("addr", &addr);
        }
        if let Ok(peer) = self.peer_addr() {
            out.field("peer", &peer);
        }
        out.finish_non_exhaustive()
    }
}
