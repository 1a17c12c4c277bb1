//! Owns a TCP socket that does nothing yet: what is set, and where it is bound, before it connects or listens.

use super::inherited::Inherited;
use super::options::{self, checked_ttl, ttl_of, user_timeout_ms};
use super::stack::{Inner, Stack};
use super::{TcpKeepalive, TcpListener, TcpStream, after, no_time_at_all};
use crate::error::Why;
use crate::on_lane::{BindId, BindOptions};
use laneway_stack::proto::ip::output::Marks;
use laneway_stack::threads::desk::{Desk, Opening, Origin};
use laneway_stack::threads::words::Fault;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// A TCP socket that has neither a peer nor a queue yet: for whoever chooses the address or the port to connect from, sets an option before
/// the first packet, or listens with a backlog of its own. Its options have the names that they have in `socket2`.
///
/// ```
/// use laneway::TcpSocket;
/// use std::io::{Read, Write};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (here, there) = laneway::Device::memory_pair(1)?;
/// # let server = laneway::Stack::builder(here).address("10.0.0.1/24")?.start()?;
/// # let client = laneway::Stack::builder(there).address("10.0.0.2/24")?.address("10.0.0.3/24")?.start()?;
/// let socket = TcpSocket::new_v4_on(&server);
/// socket.set_reuse_address(true)?;
/// socket.set_nodelay(true)?; // of each connection that it accepts
/// socket.bind("10.0.0.1:80".parse()?)?;
/// let listener = socket.listen(/* backlog= */ 64)?;
///
/// let socket = TcpSocket::new_v4_on(&client);
/// socket.bind("10.0.0.3:5000".parse()?)?;
/// let mut stream = socket.connect("10.0.0.1:80".parse()?)?;
/// stream.write_all(b"hello")?;
///
/// let (mut accepted, from) = listener.accept()?;
/// assert_eq!(from, "10.0.0.3:5000".parse()?);
/// assert!(accepted.nodelay()?);
/// # accepted.read_exact(&mut [0; 5])?;
/// # Ok(())
/// # }
/// ```
///
/// What it was bound to is free again when what has become of it is dropped, but for what a connection that ends still needs of it. A stack can have 65,534 bindings at a time, of
/// those that have become connections none.
pub struct TcpSocket {
    desk: Arc<Desk>,
    stack: Weak<Inner>,
    is_v6: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    options: BindOptions,
    /// `IP_BIND_ADDRESS_NO_PORT`.
    no_port: bool,
    place: Place,
    inherited: Inherited,
    /// 0: as the host's.
    ttl: u8,
}

/// Where it is.
#[derive(Default)]
enum Place {
    #[default]
    Nowhere,
    /// At an address, whose port is chosen when the peer is known.
    Address(IpAddr),
    Bound(Bound),
}

impl Place {
    /// The address that it is bound to.
    fn ip(&self) -> Option<IpAddr> {
        match self {
            Place::Nowhere => None,
            Place::Address(ip) => Some(*ip),
            Place::Bound(bound) => Some(bound.at.ip()),
        }
    }
}

/// An address and port that a socket is bound to, until this is dropped.
pub(super) struct Bound {
    /// `None`: a listener has it.
    id: Option<BindId>,
    at: SocketAddr,
    desk: Arc<Desk>,
    stack: Weak<Inner>,
}

impl Drop for Bound {
    fn drop(&mut self) {
        if let Some(id) = self.id.take()
            && self.desk.is_here()
            && let Some(stack) = self.stack.upgrade()
        {
            stack.unbind(id);
        }
    }
}

impl TcpSocket {
    /// A socket of IPv4 on the [current](Stack::current) stack.
    pub fn new_v4() -> io::Result<TcpSocket> {
        Ok(Self::new_v4_on(&Stack::current()?))
    }

    /// A socket of IPv6 on the [current](Stack::current) stack, which speaks IPv4 as well unless [`set_only_v6`](Self::set_only_v6) says otherwise.
    pub fn new_v6() -> io::Result<TcpSocket> {
        Ok(Self::new_v6_on(&Stack::current()?))
    }

    /// A socket of IPv4 on a stack.
    pub fn new_v4_on(stack: &Stack) -> TcpSocket {
        Self::new(stack, /* is_v6= */ false)
    }

    /// A socket of IPv6 on a stack.
    pub fn new_v6_on(stack: &Stack) -> TcpSocket {
        Self::new(stack, /* is_v6= */ true)
    }

    fn new(stack: &Stack, is_v6: bool) -> TcpSocket {
        TcpSocket { desk: stack.0.desk.clone(), stack: Arc::downgrade(&stack.0), is_v6, state: Mutex::default() }
    }

    fn state(&self) -> io::Result<MutexGuard<'_, State>> {
        if !self.desk.is_here() {
            return Err(Why::Forked.into());
        }
        Ok(self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn stack(&self) -> io::Result<Stack> {
        self.stack.upgrade().map(Stack).ok_or_else(|| Why::Stopped.into())
    }

    /// Of what a binding was made with nothing can be changed any more.
    fn unbound(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.state()?;
        if matches!(state.place, Place::Nowhere) { Ok(state) } else { Err(Why::Invalid.into()) }
    }

    /// `SO_REUSEADDR`. Off, unlike that of [`TcpListener::bind`].
    ///
    /// # Errors
    /// `EINVAL` once it is bound.
    pub fn set_reuse_address(&self, reuse: bool) -> io::Result<()> {
        self.unbound()?.options.reuse_address = reuse;
        Ok(())
    }

    /// `SO_REUSEADDR`.
    pub fn reuse_address(&self) -> io::Result<bool> {
        Ok(self.state()?.options.reuse_address)
    }

    /// `SO_REUSEPORT`.
    ///
    /// # Errors
    /// `EINVAL` once it is bound.
    pub fn set_reuse_port(&self, reuse: bool) -> io::Result<()> {
        self.unbound()?.options.reuse_port = reuse;
        Ok(())
    }

    /// `SO_REUSEPORT`.
    pub fn reuse_port(&self) -> io::Result<bool> {
        Ok(self.state()?.options.reuse_port)
    }

    /// `IPV6_V6ONLY`: it does not speak IPv4.
    ///
    /// # Errors
    /// `EINVAL` once it is bound, `ENOPROTOOPT` for a socket of IPv4.
    pub fn set_only_v6(&self, only_v6: bool) -> io::Result<()> {
        let mut state = self.unbound()?;
        if !self.is_v6 {
            return Err(Why::NoOption.into());
        }
        state.options.only_v6 = only_v6;
        Ok(())
    }

    /// `IPV6_V6ONLY`.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for a socket of IPv4.
    pub fn only_v6(&self) -> io::Result<bool> {
        let state = self.state()?;
        if self.is_v6 { Ok(state.options.only_v6) } else { Err(Why::Unsupported.into()) }
    }

    /// `IP_BIND_ADDRESS_NO_PORT`: a [`bind`](Self::bind) to port 0 binds the address alone, and the port is chosen when the peer is known. So one
    /// address has as many ports towards each peer as there are, and not towards all peers together.
    ///
    /// # Errors
    /// `EINVAL` once it is bound.
    pub fn set_bind_address_no_port(&self, no_port: bool) -> io::Result<()> {
        self.unbound()?.no_port = no_port;
        Ok(())
    }

    /// `IP_BIND_ADDRESS_NO_PORT`.
    pub fn bind_address_no_port(&self) -> io::Result<bool> {
        Ok(self.state()?.no_port)
    }

    /// `TCP_NODELAY`, of the connection that it becomes, or of each that it accepts.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.state()?.inherited.nodelay = nodelay;
        Ok(())
    }

    /// `TCP_NODELAY`.
    pub fn nodelay(&self) -> io::Result<bool> {
        Ok(self.state()?.inherited.nodelay)
    }

    /// `SO_KEEPALIVE` with these times, of the connection that it becomes, or of each that it accepts.
    ///
    /// # Errors
    /// `EINVAL` if one of them is [beyond](TcpKeepalive) what can be said. Then nothing is set.
    pub fn set_tcp_keepalive(&self, params: &TcpKeepalive) -> io::Result<()> {
        params.times()?;
        let mut state = self.state()?;
        state.inherited.keepalive = true;
        state.inherited.keepalive_times = Some(params.or(state.inherited.keepalive_times.unwrap_or_default()));
        Ok(())
    }

    /// `SO_KEEPALIVE`, of the connection that it becomes, or of each that it accepts, with the times of the stack's configuration unless it is
    /// [told](Self::set_tcp_keepalive) others.
    pub fn set_keepalive(&self, keepalive: bool) -> io::Result<()> {
        self.state()?.inherited.keepalive = keepalive;
        Ok(())
    }

    /// `SO_KEEPALIVE`.
    pub fn keepalive(&self) -> io::Result<bool> {
        Ok(self.state()?.inherited.keepalive)
    }

    /// `TCP_USER_TIMEOUT`, of the connection that it becomes, or of each that it accepts.
    pub fn set_tcp_user_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        let ms = user_timeout_ms(timeout)?;
        self.state()?.inherited.user_timeout = (ms > 0).then(|| Duration::from_millis(ms.into()));
        Ok(())
    }

    /// `TCP_USER_TIMEOUT`.
    pub fn tcp_user_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.state()?.inherited.user_timeout)
    }

    /// `SO_LINGER`, of the connection that it becomes, or of each that it accepts: see [`TcpStream::set_linger`].
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        self.state()?.inherited.linger = linger.map(|linger| Duration::from_secs(linger.as_secs()));
        Ok(())
    }

    /// `SO_LINGER`.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        Ok(self.state()?.inherited.linger)
    }

    /// `IP_TTL`, and over IPv6 `IPV6_UNICAST_HOPS`: how many routers its packets pass at the most, from its SYN on, or from the first answer to whoever
    /// calls it.
    ///
    /// # Errors
    /// `EINVAL` unless it is 1 to 255.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.state()?.ttl = checked_ttl(ttl)?;
        Ok(())
    }

    /// `IP_TTL`.
    pub fn ttl(&self) -> io::Result<u32> {
        Ok(ttl_of(self.state()?.ttl, &self.desk))
    }

    /// `IP_TOS`: see [`TcpStream::set_tos_v4`]. From its SYN on, and of each that it accepts: if it is a socket of IPv4, from the first answer to whoever calls it.
    pub fn set_tos_v4(&self, tos: u32) -> io::Result<()> {
        self.state()?.inherited.tos = options::dscp(tos as u8);
        Ok(())
    }

    /// `IP_TOS`.
    pub fn tos_v4(&self) -> io::Result<u32> {
        Ok(self.state()?.inherited.tos.into())
    }

    /// `IPV6_TCLASS`: see [`TcpStream::set_tclass_v6`]. From its SYN on, and of each that it accepts from the first answer to whoever calls it.
    ///
    /// # Errors
    /// `EINVAL` if it is more than 255, `ENOPROTOOPT` for a socket of IPv4.
    pub fn set_tclass_v6(&self, tclass: u32) -> io::Result<()> {
        let mut state = self.state()?;
        state.inherited.tclass = options::dscp(options::checked_tclass(self.is_v6, tclass)?);
        Ok(())
    }

    /// `IPV6_TCLASS`.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for a socket of IPv4.
    pub fn tclass_v6(&self) -> io::Result<u32> {
        let state = self.state()?;
        if self.is_v6 { Ok(state.inherited.tclass.into()) } else { Err(Why::Unsupported.into()) }
    }

    /// `SO_SNDBUF`, of the connection that it becomes, or of each that it accepts: see [`TcpStream::set_send_buffer_size`].
    pub fn set_send_buffer_size(&self, size: usize) -> io::Result<()> {
        self.state()?.inherited.send_buffer = options::send_buffer(&self.desk, size);
        Ok(())
    }

    /// `SO_SNDBUF`.
    pub fn send_buffer_size(&self) -> io::Result<usize> {
        Ok(options::size_of(self.state()?.inherited.send_buffer, self.desk.usual().send_buffer))
    }

    /// `SO_RCVBUF`, of the connection that it becomes, or of each that it accepts: see [`TcpStream::set_recv_buffer_size`].
    pub fn set_recv_buffer_size(&self, size: usize) -> io::Result<()> {
        self.state()?.inherited.receive_buffer = options::receive_buffer(&self.desk, size);
        Ok(())
    }

    /// `SO_RCVBUF`.
    pub fn recv_buffer_size(&self) -> io::Result<usize> {
        Ok(options::size_of(self.state()?.inherited.receive_buffer, self.desk.usual().receive_buffer))
    }

    /// `TCP_NOTSENT_LOWAT`, of the connection that it becomes, or of each that it accepts: see [`TcpStream::set_tcp_notsent_lowat`].
    pub fn set_tcp_notsent_lowat(&self, lowat: u32) -> io::Result<()> {
        self.state()?.inherited.notsent_lowat = lowat;
        Ok(())
    }

    /// `TCP_NOTSENT_LOWAT`.
    pub fn tcp_notsent_lowat(&self) -> io::Result<u32> {
        Ok(self.state()?.inherited.notsent_lowat)
    }

    /// `TCP_CONGESTION`, of the connection that it becomes, or of each that it accepts: see [`TcpStream::set_tcp_congestion`].
    ///
    /// # Errors
    /// `ENOENT` if none has that name.
    pub fn set_tcp_congestion(&self, name: &[u8]) -> io::Result<()> {
        let algorithm = options::algorithm(name)?;
        self.state()?.inherited.congestion = Some(algorithm);
        Ok(())
    }

    /// `TCP_CONGESTION`.
    pub fn tcp_congestion(&self) -> io::Result<Vec<u8>> {
        let algorithm = self.state()?.inherited.congestion.unwrap_or(self.desk.usual().congestion_control);
        Ok(algorithm.name().as_bytes().to_vec())
    }

    /// A socket that does nothing has nothing to fail at.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.state().map(|_| None)
    }

    /// Binds it. Port 0: one that is free.
    ///
    /// # Errors
    /// `EADDRINUSE` if the address and port are taken, `EADDRNOTAVAIL` if the address is not the stack's, `EINVAL` if it is bound already. An address of
    /// the other family: `EAFNOSUPPORT` for a socket of IPv4, `EINVAL` for one of IPv6, which takes `::ffff:10.0.0.1`.
    pub fn bind(&self, at: SocketAddr) -> io::Result<()> {
        let mut state = self.state()?;
        self.check_family(&at)?;
        if !matches!(state.place, Place::Nowhere) {
            return Err(Why::Invalid.into());
        }
        let stack = self.stack()?;
        if state.no_port && at.port() == 0 {
            if !self.desk.is_ours(at.ip().to_canonical()) {
                return Err(Why::Fault(Fault::AddressNotAvailable).into());
            }
            state.place = Place::Address(at.ip());
        } else {
            state.place = Place::Bound(self.bound(&stack, at, state.options)?);
        }
        Ok(())
    }

    fn bound(&self, stack: &Stack, at: SocketAddr, options: BindOptions) -> io::Result<Bound> {
        let (id, at) = stack.bind(at, options)?;
        Ok(Bound { id: Some(id), at, desk: self.desk.clone(), stack: self.stack.clone() })
    }

    /// As the kernel has it: an address of IPv4 is no whole one of IPv6, and one of IPv6 is of a family that a socket of IPv4 does not know.
    fn check_family(&self, at: &SocketAddr) -> io::Result<()> {
        match (self.is_v6, at.is_ipv6()) {
            (false, true) => Err(Why::Family.into()),
            (true, false) => Err(Why::Invalid.into()),
            _ => Ok(()),
        }
    }

    fn anywhere(&self) -> IpAddr {
        if self.is_v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() }
    }

    /// Where it is bound. Port 0, or an address that is unspecified: that is not settled yet.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(match &self.state()?.place {
            Place::Nowhere => SocketAddr::new(self.anywhere(), 0),
            Place::Address(ip) => SocketAddr::new(*ip, 0),
            Place::Bound(bound) => bound.at,
        })
    }

    /// Opens a connection from where it is bound, or from an address and port that are chosen.
    ///
    /// # Errors
    /// Those of [`TcpStream::connect_on`]; `EADDRNOTAVAIL`, too, if there is a connection between these two ends already, and for an address of the other family
    /// those of [`bind`](Self::bind).
    pub fn connect(self, to: SocketAddr) -> io::Result<TcpStream> {
        self.begin(&to)?.connected(None)
    }

    /// As [`connect`](Self::connect), and gives up after a time.
    ///
    /// # Errors
    /// Those of [`connect`](Self::connect); `TimedOut`, without an errno, when the time is over, and `InvalidInput` if there was none.
    pub fn connect_timeout(self, to: &SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
        if timeout.is_zero() {
            return Err(no_time_at_all());
        }
        self.begin(to)?.connected(after(timeout))
    }

    /// As [`connect`](Self::connect), and does not wait for it: see [`TcpStream::begin_connect_on`].
    pub fn begin_connect(self, to: &SocketAddr) -> io::Result<TcpStream> {
        self.begin(to)?.begun()
    }

    /// A connection that is to be opened: see [`TcpStream::begin`].
    pub(crate) fn begin(self, to: &SocketAddr) -> io::Result<TcpStream> {
        drop(self.state()?); // not in a child
        self.check_family(to)?;
        let State { options, place, inherited, ttl, .. } =
            self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let v4 = to.ip().to_canonical().is_ipv4();
        // As the kernel has it: who is bound to an address of IPv6 speaks IPv6 alone, and who is to one of IPv4 in its clothes IPv4.
        let is_at = |v4| place.ip().is_some_and(|ip| !ip.is_unspecified() && ip.to_canonical().is_ipv4() == v4);
        if v4 && (options.only_v6 || is_at(/* v4= */ false)) {
            return Err(Why::Fault(Fault::NetworkUnreachable).into());
        }
        if !v4 && is_at(/* v4= */ true) {
            return Err(Why::Family.into());
        }
        let (from, bound) = match place {
            Place::Address(ip) if !ip.is_unspecified() => (Origin::Address(ip.into()), None),
            Place::Bound(bound) => (bound.id.map_or(Origin::Anywhere, Origin::Bound), Some(Arc::new(bound))),
            Place::Address(_) | Place::Nowhere => (Origin::Anywhere, None),
        };
        let marks = Marks { hop_limit: ttl, dscp_ecn: if v4 { inherited.tos } else { inherited.tclass } };
        let talk = self.desk.open(Opening { from, to: *to, marks });
        let stream = TcpStream::new(talk, self.desk, self.is_v6, bound);
        inherited.give(&stream)?;
        Ok(stream)
    }

    /// Listens where it is bound, or at a port that is chosen. So many connections may wait to be accepted, or `somaxconn` if that is less.
    ///
    /// # Errors
    /// `EADDRINUSE` if another listens there meanwhile; those of [`bind`](Self::bind), if it is not bound.
    pub fn listen(self, backlog: u32) -> io::Result<TcpListener> {
        drop(self.state()?); // not in a child
        let stack = self.stack()?;
        let anywhere = self.anywhere();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bound = match std::mem::take(&mut state.place) {
            Place::Bound(bound) => bound,
            Place::Address(ip) => self.bound(&stack, SocketAddr::new(ip, 0), state.options)?,
            Place::Nowhere => self.bound(&stack, SocketAddr::new(anywhere, 0), state.options)?,
        };
        let id = bound.id.ok_or(Why::Invalid)?;
        let Inherited { tos, tclass, .. } = state.inherited;
        let marks = Marks { hop_limit: state.ttl, dscp_ecn: if self.is_v6 { tclass } else { tos } };
        let listener = stack.listen_on((id, bound.at), backlog, (state.inherited, marks))?;
        bound.id = None; // the listener's from now on
        Ok(listener)
    }
}

impl std::fmt::Debug for TcpSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = f.debug_struct("TcpSocket");
        if let Ok(addr) = self.local_addr() {
            out.field("addr", &addr);
        }
        out.finish_non_exhaustive()
    }
}
