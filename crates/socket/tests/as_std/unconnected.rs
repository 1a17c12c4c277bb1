//! Sockets that do nothing yet: where they are bound, and what those that come of them have of what was set.

use crate::world::*;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A socket of the kernel's with the names of ours.
pub struct KernelSocket {
    socket: OwnedFd,
}

impl AsFd for KernelSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl KernelSocket {
    fn new(is_v6: bool) -> Self {
        let family = if is_v6 { AddressFamily::INET6 } else { AddressFamily::INET };
        let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        KernelSocket { socket }
    }
    fn set_reuse_address(&self, reuse: bool) -> io::Result<()> {
        Ok(sockopt::set_socket_reuseaddr(&self.socket, reuse)?)
    }
    fn reuse_address(&self) -> io::Result<bool> {
        Ok(sockopt::socket_reuseaddr(&self.socket)?)
    }
    fn set_reuse_port(&self, reuse: bool) -> io::Result<()> {
        Ok(sockopt::set_socket_reuseport(&self.socket, reuse)?)
    }
    fn reuse_port(&self) -> io::Result<bool> {
        Ok(sockopt::socket_reuseport(&self.socket)?)
    }
    fn set_only_v6(&self, only_v6: bool) -> io::Result<()> {
        Ok(sockopt::set_ipv6_v6only(&self.socket, only_v6)?)
    }
    fn only_v6(&self) -> io::Result<bool> {
        Ok(sockopt::ipv6_v6only(&self.socket)?)
    }
    fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        Ok(sockopt::set_tcp_nodelay(&self.socket, nodelay)?)
    }
    fn nodelay(&self) -> io::Result<bool> {
        Ok(sockopt::tcp_nodelay(&self.socket)?)
    }
    fn set_keepalive(&self, keepalive: bool) -> io::Result<()> {
        Ok(sockopt::set_socket_keepalive(&self.socket, keepalive)?)
    }
    fn keepalive(&self) -> io::Result<bool> {
        Ok(sockopt::socket_keepalive(&self.socket)?)
    }
    fn set_tcp_keepalive(&self, _minute: &laneway::TcpKeepalive) -> io::Result<()> {
        sockopt::set_tcp_keepidle(&self.socket, Duration::from_secs(60))?;
        sockopt::set_tcp_keepcnt(&self.socket, 3)?;
        self.set_keepalive(true)
    }
    fn set_tcp_user_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        let ms = timeout.map_or(0, |timeout| timeout.as_millis() as u32);
        Ok(sockopt::set_tcp_user_timeout(&self.socket, ms)?)
    }
    fn tcp_user_timeout(&self) -> io::Result<Option<Duration>> {
        let ms = sockopt::tcp_user_timeout(&self.socket)?;
        Ok((ms > 0).then(|| Duration::from_millis(ms.into())))
    }
    fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        Ok(sockopt::set_socket_linger(&self.socket, linger)?)
    }
    fn linger(&self) -> io::Result<Option<Duration>> {
        Ok(sockopt::socket_linger(&self.socket)?)
    }
    fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        // As `std` has it; see `any_ttl_is_one_that_ours_takes` in the options.
        Ok(sockopt::set_ip_ttl(&self.socket, ttl)?)
    }
    fn ttl(&self) -> io::Result<u32> {
        Ok(sockopt::ip_ttl(&self.socket)?)
    }
    fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(sockopt::socket_error(&self.socket)?.err().map(Into::into))
    }
    pub fn bind(&self, at: SocketAddr) -> io::Result<()> {
        Ok(rustix::net::bind(&self.socket, &at)?)
    }
    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(rustix::net::getsockname(&self.socket)?.try_into()?)
    }
    pub fn connect(self, to: SocketAddr) -> io::Result<TcpStream> {
        rustix::net::connect(&self.socket, &to)?;
        Ok(self.socket.into())
    }
    fn begin_connect(self, to: &SocketAddr) -> io::Result<TcpStream> {
        rustix::io::ioctl_fionbio(&self.socket, true)?;
        match rustix::net::connect(&self.socket, to) {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(self.socket.into()),
            Err(error) => Err(error.into()),
        }
    }
    pub fn listen(self, backlog: u32) -> io::Result<TcpListener> {
        rustix::net::listen(&self.socket, backlog as i32)?;
        Ok(self.socket.into())
    }
}

/// Who makes such sockets.
pub trait Unconnected: World {
    type Socket;
    /// One of the host that connects.
    fn socket_of(&self, family: Family) -> Self::Socket;
    /// One of the host that listens.
    fn server_socket(&self) -> Self::Socket;

    fn socket(&self) -> Self::Socket {
        self.socket_of(self.family())
    }
    fn from(&self) -> SocketAddr {
        (self.client(), 0).into()
    }
}

impl Unconnected for Kernel {
    type Socket = KernelSocket;
    fn socket_of(&self, family: Family) -> KernelSocket {
        KernelSocket::new(family == Family::V6)
    }
    fn server_socket(&self) -> KernelSocket {
        self.socket()
    }
}

impl Unconnected for Ours {
    type Socket = laneway::TcpSocket;
    fn socket_of(&self, family: Family) -> laneway::TcpSocket {
        match family {
            Family::V4 => laneway::TcpSocket::new_v4_on(&self.client),
            Family::V6 => laneway::TcpSocket::new_v6_on(&self.client),
        }
    }
    fn server_socket(&self) -> laneway::TcpSocket {
        match self.family() {
            Family::V4 => laneway::TcpSocket::new_v4_on(&self.server),
            Family::V6 => laneway::TcpSocket::new_v6_on(&self.server),
        }
    }
}

story!(a_port_to_connect_from, |world, log| {
    let listener = world.listen();
    let socket = world.socket();
    log.say("not bound", socket.local_addr());
    log.say("bind", socket.bind(world.from()));
    let at = socket.local_addr().unwrap();
    log.say("bound", Ok((at.ip() == world.client(), at.port() > 0)));
    log.say("bind again", socket.bind(world.from()));
    log.say("error", error_of(socket.take_error()));
    let mut near = socket.connect(listener.local_addr().unwrap()).unwrap();
    log.say("ours", Ok(near.local_addr().unwrap() == at));
    let (mut far, from) = listener.accept().unwrap();
    log.say("theirs", Ok((from == at, far.peer_addr().unwrap() == at)));
    log.say("write", near.write(b"hello"));
    let mut said = [0; 5];
    log.say("read", far.read_exact(&mut said).map(|()| said));
    // The port is the connection's, as long as there is a handle of it.
    let clone = near.try_clone().unwrap();
    drop(near);
    log.say("taken", world.socket().bind(at));
    drop(clone);
    let mut rest = Vec::new();
    log.say("the end", far.read_to_end(&mut rest));
    drop(far);
    world.settle();
    // It rests.
    log.say("rests", world.socket().bind(at));
    let again = world.socket();
    log.say("reuse", again.set_reuse_address(true));
    log.say("rests", again.bind(at));
});

story!(a_port_for_many_peers, |world, log| {
    let listeners = [world.listen(), world.listen()];
    let at = |i: usize| listeners[i].local_addr().unwrap();
    let bound = |from| {
        let socket = world.socket();
        log_free(socket.set_reuse_address(true));
        socket.bind(from).map(|()| socket)
    };
    let first = bound(world.from()).unwrap();
    let from = first.local_addr().unwrap();
    let (second, third) = (bound(from).unwrap(), bound(from).unwrap());
    log.say("without reuse", world.socket().bind(from));
    let a = first.connect(at(0)).unwrap();
    log.say("the same two ends", second.connect(at(0)).map(drop));
    let b = third.connect(at(1)).unwrap();
    log.say("one port", Ok(a.local_addr().unwrap() == b.local_addr().unwrap()));
    log.say("both come", Ok([0, 1].map(|i| listeners[i].accept().unwrap().1 == from)));
    log.say("a listener", bound(from).unwrap().listen(8).map(drop));
});

story!(where_one_is_refused, |world, log| {
    let socket = world.socket();
    log.say("bind", socket.bind(world.foreign()));
    log.say("bind", socket.bind(world.from()));
    let at = socket.local_addr().unwrap();
    log.say("connect", socket.connect(world.closed()).map(drop));
    world.settle();
    log.say("free again", world.socket().bind(at));
    let socket = world.socket();
    log.say("unbound", socket.connect(world.closed()).map(drop));
});

story!(any_address_to_connect_from, |world, log| {
    let listener = world.listen();
    let socket = world.socket();
    log.say("bind", socket.bind((world.family().choose("0.0.0.0", "::"), 0).into()));
    let at = socket.local_addr().unwrap();
    log.say("any", Ok((at.ip(), at.port() > 0)));
    let near = socket.connect(listener.local_addr().unwrap()).unwrap();
    log.say("ours", Ok(near.local_addr().unwrap() == (world.client(), at.port()).into()));
    log.say("theirs", Ok(listener.accept().unwrap().1 == near.local_addr().unwrap()));
});

story!(an_address_of_several over [ipv4 V4], |world, log| {
    let listener = world.listen();
    let socket = world.socket();
    log.say("bind", socket.bind((world.another_of_client(), 0).into()));
    let near = socket.connect(listener.local_addr().unwrap()).unwrap();
    log.say("ours", Ok(near.local_addr().unwrap().ip() == world.another_of_client()));
    log.say("theirs", Ok(listener.accept().unwrap().1 == near.local_addr().unwrap()));
});

story!(families, |world, log| {
    let (v4, v6) = (SocketAddr::from(([127, 0, 0, 1], 0)), SocketAddr::new(Ipv6Addr::LOCALHOST.into(), 0));
    let other = if world.family() == Family::V4 { v6 } else { v4 };
    log.say("bind", world.socket().bind(other));
    log.say("connect", world.socket().connect(other).map(drop));
    let socket = world.socket();
    log.say("only IPv6", socket.only_v6());
    log.say("set", socket.set_only_v6(true));
    log.say("only IPv6", socket.only_v6());
    if world.family() == Family::V6 {
        log.say("bind in other clothes", socket.bind(SocketAddr::new(Ipv4Addr::LOCALHOST.to_ipv6_mapped().into(), 0)));
        let mapped = |at: IpAddr, port| match at {
            IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), port),
            IpAddr::V6(_) => unreachable!("one of IPv4"),
        };
        let server = world.server_of(Family::V4);
        let listener = world.listen_at((server, 0).into()).unwrap();
        let to = mapped(server, listener.local_addr().unwrap().port());
        log.say("connect in other clothes", socket.connect(to).map(drop));
        let near = world.socket().connect(to).unwrap();
        log.say("peer", Ok(near.peer_addr().unwrap() == to));
        log.say("accept", Ok(listener.accept().unwrap().1.port() == near.local_addr().unwrap().port()));
    }
});

// Where it is bound says which family it speaks, whichever it names.
story!(bound_to_one_family over [ipv6 V6], |world, log| {
    let (listener, server) = (world.listen(), world.server_of(Family::V4));
    let of_v4 = world.listen_at((server, 0).into()).unwrap();
    let IpAddr::V4(server) = server else { unreachable!("one of IPv4") };
    let peers = [
        listener.local_addr().unwrap(),
        SocketAddr::new(server.to_ipv6_mapped().into(), of_v4.local_addr().unwrap().port()),
    ];
    let any = [Ipv6Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED.to_ipv6_mapped()].map(IpAddr::from);
    for from in [world.client(), any[0], any[1]] {
        for to in peers {
            let socket = world.socket();
            log.say("bind", socket.bind((from, 0).into()));
            log.say("connect", socket.connect(to).map(drop));
        }
    }
});

story!(what_a_connection_has_of_its_socket, |world, log| {
    let listener = world.listen();
    let socket = world.socket();
    log.say("at first", Ok((socket.nodelay().unwrap(), socket.keepalive().unwrap(), socket.linger().unwrap())));
    log.say("at first", Ok((socket.tcp_user_timeout().unwrap(), socket.ttl().unwrap())));
    log.say("at first", Ok((socket.reuse_address().unwrap(), socket.reuse_port().unwrap())));
    log.say("nodelay", socket.set_nodelay(true));
    log.say("keepalive", socket.set_tcp_keepalive(&minute()));
    log.say("linger", socket.set_linger(Some(Duration::from_secs(3))));
    log.say("user timeout", socket.set_tcp_user_timeout(Some(Duration::from_millis(1234))));
    for ttl in [0, 256, 77] {
        log.say("ttl", socket.set_ttl(ttl));
    }
    log.say("now", Ok((socket.nodelay().unwrap(), socket.keepalive().unwrap(), socket.linger().unwrap())));
    log.say("now", Ok((socket.tcp_user_timeout().unwrap(), socket.ttl().unwrap())));
    let near = socket.connect(listener.local_addr().unwrap()).unwrap();
    log.say("nodelay", near.nodelay());
    log.say("keepalive", near.keeps_alive());
    log.say("times", near.keepalive_times());
    log.say("linger", near.lingers());
    log.say("user timeout", near.gives_up_after());
    log.say("ttl", near.ttl());
});

story!(what_those_have_that_come_to_a_socket, |world, log| {
    let socket = world.server_socket();
    log.say("reuse", socket.set_reuse_address(true));
    log.say("reuse", socket.reuse_address());
    log.say("nodelay", socket.set_nodelay(true));
    log.say("keepalive", socket.set_tcp_keepalive(&minute()));
    log.say("linger", socket.set_linger(Some(Duration::from_secs(3))));
    log.say("user timeout", socket.set_tcp_user_timeout(Some(Duration::from_millis(1234))));
    log.say("ttl", socket.set_ttl(77));
    log.say("bind", socket.bind((world.server(), 0).into()));
    let at = socket.local_addr().unwrap();
    let listener = socket.listen(8).unwrap();
    log.say("where it was bound", Ok(listener.local_addr().unwrap() == at));
    log.say("ttl", listener.ttl());
    let _near = world.connect(at).unwrap();
    let (far, _) = listener.accept().unwrap();
    log.say("nodelay", far.nodelay());
    log.say("keepalive", far.keeps_alive());
    log.say("times", far.keepalive_times());
    log.say("linger", far.lingers());
    log.say("user timeout", far.gives_up_after());
    log.say("ttl", far.ttl());
});

story!(keepalive_that_was_switched_off_again, |world, log| {
    let (listener, socket) = (world.listen(), world.socket());
    log.say("set", socket.set_tcp_keepalive(&minute()));
    log.say("off", socket.set_keepalive(false));
    let near = socket.connect(listener.local_addr().unwrap()).unwrap();
    log.say("keepalive", near.keeps_alive());
    log.say("times", near.keepalive_times());
});

story!(listening_without_a_name, |world, log| {
    let listener = world.server_socket().listen(8).unwrap();
    let at = listener.local_addr().unwrap();
    log.say("at", Ok((at.ip(), at.port() > 0)));
    let near = world.connect((world.server(), at.port())).unwrap();
    log.say("accept", Ok(listener.accept().unwrap().1.port() == near.local_addr().unwrap().port()));
    drop(listener);
    world.settle();
    log.say("refused", world.connect((world.server(), at.port())).map(drop));
});

story!(a_group_that_shares_a_port, |world, log| {
    let member = |at: SocketAddr| {
        let socket = world.server_socket();
        log_free(socket.set_reuse_port(true));
        socket.bind(at).and_then(|()| socket.listen(8))
    };
    let first = member((world.server(), 0).into()).unwrap();
    let at = first.local_addr().unwrap();
    log.say("another", member(at).map(drop));
    log.say("a stranger", world.server_socket().bind(at));
});

story!(a_connect_from_a_port_that_does_not_wait, |world, log| {
    let listener = world.listen();
    let socket = world.socket();
    log.say("bind", socket.bind(world.from()));
    let at = socket.local_addr().unwrap();
    let near = socket.begin_connect(&listener.local_addr().unwrap()).unwrap();
    world.settle();
    log.say("writable", Ok(near.ready().1));
    log.say("error", error_of(near.take_error()));
    log.say("ours", Ok(near.local_addr().unwrap() == at));
    log.say("read", (&near).read(&mut [0; 8]));
    log.say("theirs", Ok(listener.accept().unwrap().1 == at));
});

/// What the kernel's is told, too.
fn minute() -> laneway::TcpKeepalive {
    laneway::TcpKeepalive::new().with_time(Duration::from_secs(60)).with_retries(3)
}

/// What must be so for the story to go on.
fn log_free(set: io::Result<()>) {
    set.unwrap();
}

/// The kernel lets it be set, and looks at it as it looks at the port the next time. Here a binding is what it was made with, and who
/// sets it too late is told.
#[test]
fn what_a_binding_was_made_with_stays() {
    let world = Ours::new(Family::V6);
    let socket = world.socket();
    socket.set_only_v6(true).unwrap();
    socket.bind(world.from()).unwrap();
    for set in [socket.set_reuse_address(true), socket.set_reuse_port(true), socket.set_only_v6(false)] {
        assert_eq!(set.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
    assert_eq!(socket.set_bind_address_no_port(true).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert!(socket.only_v6().unwrap());
}
