//! Owns a UDP socket that threads use.

#[cfg(test)]
mod tests;

use super::late::sleep_until;
use super::options::{checked_tclass, checked_ttl, ttl_of};
use super::stack::{Inner, Stack};
use super::{deadline, each, named, set_timeout, timeout};
use crate::error::Why;
use crate::on_lane::BindOptions;
use laneway_stack::threads::desk::{Desk, UdpTicket};
use laneway_stack::threads::words::{Fault, READ, ROOM, WRITE};
use laneway_stack::udp::payload_max;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// A UDP socket, with the methods of [`std::net::UdpSocket`].
///
/// ```
/// # mod example {
/// use laneway::UdpSocket;
///
/// fn main() -> std::io::Result<()> {
///     {
///         let socket = UdpSocket::bind("10.0.0.1:34254")?;
///
///         // Receives a single datagram message on the socket. If `buf` is too small to hold
///         // the message, it will be cut off.
///         let mut buf = [0; 10];
///         let (amt, src) = socket.recv_from(&mut buf)?;
///
///         // Redeclare `buf` as slice of the received data and send reverse data back to origin.
///         let buf = &mut buf[..amt];
///         buf.reverse();
///         socket.send_to(buf, &src)?;
///     } // the socket is closed here
///     Ok(())
/// }
/// # pub fn run() -> std::io::Result<()> { main() }
/// # }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (here, there) = laneway::Device::memory_pair(1)?;
/// # let server = laneway::Stack::builder(here).address("10.0.0.1/24")?.start()?;
/// # let client = laneway::Stack::builder(there).address("10.0.0.2/24")?.start()?;
/// # let other = laneway::UdpSocket::bind_on(&client, "10.0.0.2:0")?;
/// # other.set_read_timeout(Some(std::time::Duration::from_millis(10)))?;
/// # let peer = std::thread::spawn(move || {
/// #     let mut back = [0; 10];
/// #     loop {
/// #         other.send_to(b"abc", "10.0.0.1:34254").unwrap();
/// #         if other.recv(&mut back).is_ok_and(|n| n == 3) { return back; }
/// #     }
/// # });
/// # let _entered = server.enter();
/// # example::run()?;
/// # assert_eq!(&peer.join().unwrap()[..3], b"cba");
/// # Ok(())
/// # }
/// ```
///
/// A flow's datagrams come in order; between flows that live on different lanes there is no order.
pub struct UdpSocket(Arc<Bound>);

struct Bound {
    ticket: Arc<UdpTicket>,
    desk: Arc<Desk>,
    stack: Weak<Inner>,
    /// `IPV6_V6ONLY` was asked for.
    only_v6: bool,
}

impl Drop for Bound {
    fn drop(&mut self) {
        if self.desk.is_here() {
            self.ticket.abandoned.store(true, Relaxed); // before the lanes have a poller look
            // First the lanes are told to send what they were given, then to forget the socket.
            self.desk.unbind_udp(self.ticket.id);
            if let Some(stack) = self.stack.upgrade() {
                stack.unbind_udp(self.ticket.id);
            }
        }
    }
}

impl UdpSocket {
    pub(super) fn new(stack: &Stack, ticket: Arc<UdpTicket>, only_v6: bool) -> Self {
        UdpSocket(Arc::new(Bound { ticket, desk: stack.0.desk.clone(), stack: Arc::downgrade(&stack.0), only_v6 }))
    }

    /// A socket on the [current](Stack::current) stack. Port 0: one that is free.
    pub fn bind<A: ToSocketAddrs>(addr: A) -> io::Result<UdpSocket> {
        Self::bind_on(&Stack::current()?, addr)
    }

    /// A socket on a stack. Port 0: one that is free. At a broadcast address, 255.255.255.255 or that of a network of the stack, it hears what is sent
    /// to all, and sends from an address of the stack's.
    pub fn bind_on<A: ToSocketAddrs>(stack: &Stack, addr: A) -> io::Result<UdpSocket> {
        Self::bind_with(stack, addr, BindOptions::default())
    }

    /// As [`bind_on`](Self::bind_on), with socket options.
    pub fn bind_with<A: ToSocketAddrs>(stack: &Stack, addr: A, options: BindOptions) -> io::Result<UdpSocket> {
        each(addr, |addr| stack.bind_udp(addr, options))
    }

    pub(crate) fn ticket(&self) -> &Arc<UdpTicket> {
        &self.0.ticket
    }

    pub(crate) fn desk(&self) -> &Arc<Desk> {
        &self.0.desk
    }

    fn check(&self) -> io::Result<()> {
        if self.0.desk.is_here() { Ok(()) } else { Err(Why::Forked.into()) }
    }

    /// Does `act` until it does not have to wait any more.
    fn wait<T>(&self, bits: u32, timeout: &AtomicU32, mut act: impl FnMut() -> Option<T>) -> io::Result<T> {
        let (mut until, mut announced) = (None, false);
        let socket = &self.0.ticket;
        loop {
            self.check()?;
            if let Some(fault) = socket.take_fault() {
                return Err(Why::Fault(fault).into());
            }
            // What had come before the stack stopped is received, so that is asked for first; what is sent nobody would take any more.
            let is_over = socket.gone.load(Acquire) || self.0.desk.is_stopped();
            if bits & WRITE != 0 && is_over {
                return Err(Why::Stopped.into());
            }
            if let Some(done) = act() {
                return Ok(done);
            }
            if is_over {
                return Err(Why::Stopped.into());
            }
            // As the kernel has it: who has begun to wait goes on, whatever is set meanwhile.
            if until.is_none() && socket.nonblocking.load(Relaxed) {
                if bits & WRITE != 0 && !announced {
                    // A poller will tell when there is room. Said before one looks again, so that the lane either has made room
                    // that the look finds, or sees that it is waited for.
                    announced = true;
                    socket.want(ROOM);
                    continue;
                }
                return Err(Why::WouldBlock.into());
            }
            let until = until.get_or_insert_with(|| deadline(timeout));
            if self.0.desk.looks_for_datagrams(socket, bits) {
                continue;
            }
            let seen = socket.event.now();
            socket.want(bits);
            if socket.ready() & bits == 0 && !sleep_until(*until, |left| socket.event.sleep(seen, left)) {
                return Err(Why::WouldBlock.into());
            }
        }
    }

    fn receive(&self, buf: &mut [u8], peek: bool) -> io::Result<(usize, SocketAddr)> {
        let socket = &self.0.ticket;
        self.wait(READ, &socket.read_timeout_ms, || {
            socket.receive(peek, |from, data| {
                let n = data.len().min(buf.len());
                buf[..n].copy_from_slice(&data[..n]);
                (n, named(socket.at.is_ipv6(), from))
            })
        })
    }

    fn transmit(&self, buf: &[u8], to: SocketAddr) -> io::Result<usize> {
        // In the order in which the kernel asks.
        self.check()?;
        self.check_field(buf)?;
        self.check_name(&to)?;
        self.check_reach(&to)?;
        if to.port() == 0 {
            return Err(Why::Invalid.into());
        }
        self.source(self.0.ticket.local().ip(), &to)?;
        check_length(buf, &to)?;
        self.queue(buf, to)
    }

    fn queue(&self, buf: &[u8], to: SocketAddr) -> io::Result<usize> {
        let socket = &self.0.ticket;
        self.wait(WRITE, &socket.write_timeout_ms, || socket.send(to, buf).then_some(()))?;
        self.0.desk.send_datagrams(socket);
        Ok(buf.len())
    }

    /// Waits for a datagram; says how much of it fitted, and whose it is.
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.receive(buf, false)
    }

    /// As [`recv_from`](Self::recv_from), and leaves it there.
    pub fn peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.receive(buf, true)
    }

    /// Sends a datagram to one host, or, after [`set_broadcast`](Self::set_broadcast), to all. It is queued when this returns, and may be lost like
    /// any other.
    pub fn send_to<A: ToSocketAddrs>(&self, buf: &[u8], addr: A) -> io::Result<usize> {
        let to = addr.to_socket_addrs()?.next();
        let to = to.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no addresses to send data to"))?;
        self.transmit(buf, to)
    }

    /// From now on this peer alone is heard, and [`send`](Self::send) sends to it. What others had sent before is received all the same.
    ///
    /// A socket that is bound to any address is given the one that the route to the peer says: [`local_addr`](Self::local_addr) names it, whatever is
    /// sent comes from it, and nothing is heard any more that is sent to another. As with the kernel it keeps that address when it is connected to
    /// another peer; and the port stays taken for any address, as it was bound.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (device, _link) = laneway::Device::memory_pair(1)?;
    /// # let stack = laneway::Stack::builder(device).address("10.0.0.1/24")?.address("10.1.0.1/24")?.start()?;
    /// let socket = laneway::UdpSocket::bind_on(&stack, "0.0.0.0:5000")?;
    /// socket.connect("10.1.0.2:53")?;
    /// assert_eq!(socket.local_addr()?, "10.1.0.1:5000".parse()?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `ENETUNREACH` without a route, `EACCES` for a broadcast address without [`set_broadcast`](Self::set_broadcast), `EAFNOSUPPORT` for a peer of a family that the socket does not
    /// speak; all as the kernel has it. The socket stays as it was.
    pub fn connect<A: ToSocketAddrs>(&self, addr: A) -> io::Result<()> {
        self.check()?;
        each(addr, |peer| {
            self.check_name(&peer)?;
            // One of IPv6 alone refuses the name of an IPv4 address; in the clothes of IPv6 it is one that cannot be reached.
            if self.is_v6_only() && peer.is_ipv4() {
                return Err(Why::Family.into());
            }
            self.check_reach(&peer)?;
            self.0.ticket.connect(peer, |ours| self.source(ours, &peer))
        })
    }

    /// A socket of IPv4 takes no name of IPv6, and be it that of an IPv4 address.
    fn check_name(&self, peer: &SocketAddr) -> io::Result<()> {
        if self.0.ticket.at.is_ipv4() && peer.is_ipv6() { Err(Why::Family.into()) } else { Ok(()) }
    }

    /// It speaks IPv6 alone: it was asked to, or is bound to an address of IPv6 that is no IPv4 address in its clothes.
    fn is_v6_only(&self) -> bool {
        let ours = self.0.ticket.at.ip();
        self.0.only_v6 || !ours.is_unspecified() && ours.to_canonical().is_ipv6()
    }

    fn check_reach(&self, peer: &SocketAddr) -> io::Result<()> {
        let is_v4 = peer.ip().to_canonical().is_ipv4();
        if self.is_v6_only() && is_v4 { Err(Why::Fault(Fault::NetworkUnreachable).into()) } else { Ok(()) }
    }

    /// What does not fit into UDP's length field, whoever it is for, is the first thing that the kernel's sockets of IPv4 refuse.
    fn check_field(&self, buf: &[u8]) -> io::Result<()> {
        if self.0.ticket.at.is_ipv4() && buf.len() > 0xffff { Err(Why::TooLong.into()) } else { Ok(()) }
    }

    /// Which address it sends from to `peer`, if it has the address `ours`. One with an IPv4 address, and be it in the clothes of IPv6, says nothing
    /// to IPv6; to IPv4 one that a connect has given an address of IPv6 says something from another.
    fn source(&self, ours: IpAddr, peer: &SocketAddr) -> io::Result<IpAddr> {
        let theirs = peer.ip().to_canonical();
        let ours = match ours.to_canonical() {
            IpAddr::V4(_) if theirs.is_ipv6() => return Err(Why::Family.into()),
            IpAddr::V6(_) if theirs.is_ipv4() => self.0.ticket.at.ip(),
            _ => ours,
        };
        let to_all = self.0.ticket.broadcast.load(Relaxed);
        Ok(self.0.desk.source(ours, theirs, to_all).map_err(Why::from)?)
    }

    /// Sends a datagram to the peer.
    pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
        self.check()?;
        self.check_field(buf)?;
        let peer = self.0.ticket.peer().ok_or(Why::NoPeer)?;
        check_length(buf, &peer)?;
        self.queue(buf, peer) // it was found that it can go there when the socket was connected
    }

    /// Waits for a datagram.
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.receive(buf, false).map(|(n, _)| n)
    }

    /// Waits for a datagram, and leaves it there.
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.receive(buf, true).map(|(n, _)| n)
    }

    /// Where it is bound; of one that is bound to any address and was connected, the address that [`connect`](Self::connect) has given it.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.check()?;
        Ok(self.0.ticket.local())
    }

    /// The peer that it is connected to.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.check()?;
        // A peer without a port is sent to, and refuses what it gets; the kernel does not name it.
        let peer = self.0.ticket.peer().filter(|peer| peer.port() != 0).ok_or(Why::NotConnected)?;
        Ok(named(self.0.ticket.at.is_ipv6(), peer))
    }

    /// Another handle of the same socket.
    pub fn try_clone(&self) -> io::Result<UdpSocket> {
        self.check()?;
        Ok(UdpSocket(self.0.clone()))
    }

    /// How long `recv` waits. `None`: for ever.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.check()?;
        set_timeout(&self.0.ticket.read_timeout_ms, timeout)
    }

    /// How long `send` waits. `None`: for ever.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.check()?;
        set_timeout(&self.0.ticket.write_timeout_ms, timeout)
    }

    /// How long `recv` waits.
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        self.check()?;
        Ok(timeout(&self.0.ticket.read_timeout_ms))
    }

    /// How long `send` waits.
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        self.check()?;
        Ok(timeout(&self.0.ticket.write_timeout_ms))
    }

    /// Whether calls return at once, for all handles.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.check()?;
        self.0.ticket.nonblocking.store(nonblocking, Relaxed);
        Ok(())
    }

    /// Datagrams that found the socket's queue full and were dropped.
    pub fn dropped(&self) -> u64 {
        self.0.ticket.dropped.load(Relaxed)
    }

    /// `IP_TTL`, and over IPv6 `IPV6_UNICAST_HOPS`: how many routers a datagram passes at the most that is sent from now on.
    ///
    /// # Errors
    /// `EINVAL` unless it is 1 to 255.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.check()?;
        self.0.ticket.ttl.store(checked_ttl(ttl)?, Relaxed);
        Ok(())
    }

    /// `IP_TTL`.
    pub fn ttl(&self) -> io::Result<u32> {
        self.check()?;
        Ok(ttl_of(self.0.ticket.ttl.load(Relaxed), &self.0.desk))
    }

    /// `IP_TOS` of datagrams that are sent from now on over IPv4: DSCP in the upper six bits of a byte, and ECN (RFC 3168) in the lower two.
    pub fn set_tos_v4(&self, tos: u32) -> io::Result<()> {
        self.check()?;
        self.0.ticket.tos.store(tos as u8, Relaxed);
        Ok(())
    }

    /// `IP_TOS`.
    pub fn tos_v4(&self) -> io::Result<u32> {
        self.check()?;
        Ok(self.0.ticket.tos.load(Relaxed).into())
    }

    /// `IPV6_TCLASS`: the same over IPv6.
    ///
    /// # Errors
    /// `EINVAL` if it is more than 255, `ENOPROTOOPT` for a socket of IPv4.
    pub fn set_tclass_v6(&self, tclass: u32) -> io::Result<()> {
        self.check()?;
        let tclass = checked_tclass(self.0.ticket.at.is_ipv6(), tclass)?;
        self.0.ticket.tclass.store(tclass, Relaxed);
        Ok(())
    }

    /// `IPV6_TCLASS`.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for a socket of IPv4.
    pub fn tclass_v6(&self) -> io::Result<u32> {
        self.check()?;
        if !self.0.ticket.at.is_ipv6() {
            return Err(Why::Unsupported.into());
        }
        Ok(self.0.ticket.tclass.load(Relaxed).into())
    }

    /// `SO_BROADCAST`: whether it may send to all hosts of a network, at 255.255.255.255 or at the broadcast address of one of the stack's networks, and
    /// be connected to such an address. To receive what others send there nothing need be set.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (here, there) = laneway::Device::memory_pair(1)?;
    /// # let stack = laneway::Stack::builder(here).address("10.0.0.1/24")?.start()?;
    /// # let other = laneway::Stack::builder(there).address("10.0.0.2/24")?.start()?;
    /// let listens = laneway::UdpSocket::bind_on(&other, "10.0.0.255:6000")?;
    /// let asks = laneway::UdpSocket::bind_on(&stack, "0.0.0.0:6001")?;
    /// asks.set_broadcast(true)?;
    /// asks.send_to(b"who is there?", "10.0.0.255:6000")?;
    /// let (_, from) = listens.recv_from(&mut [0; 64])?;
    /// assert_eq!(from, "10.0.0.1:6001".parse()?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_broadcast(&self, broadcast: bool) -> io::Result<()> {
        self.check()?;
        self.0.ticket.broadcast.store(broadcast, Relaxed);
        Ok(())
    }

    /// `SO_BROADCAST`.
    pub fn broadcast(&self) -> io::Result<bool> {
        self.check()?;
        Ok(self.0.ticket.broadcast.load(Relaxed))
    }

    /// Why a datagram did not get to the peer, if nobody was told yet.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.check()?;
        Ok(self.0.ticket.take_fault().map(|fault| Why::Fault(fault).into()))
    }
}

fn check_length(buf: &[u8], to: &SocketAddr) -> io::Result<()> {
    if buf.len() > payload_max(to) { Err(Why::TooLong.into()) } else { Ok(()) }
}

impl std::fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UdpSocket").field("addr", &self.0.ticket.at).finish_non_exhaustive()
    }
}
