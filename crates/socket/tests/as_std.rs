//! The same calls on the kernel's sockets and on ours: results and kinds of errors must be the same.
//!
//! Each story is a macro, run once with the types of `std::net` over the loopback and once with Laneway's over a memory link;
//! it writes down what each call said. Where the two differ on purpose the story says so, and why, by two lines.

mod common;

use common::rounds;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use std::fmt::{Debug, Write as _};
use std::io::{self, Read, Write as _};
use std::net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::time::Duration;

/// What a story's calls said.
#[derive(Default)]
struct Log(String);

impl Log {
    fn say<T: Debug>(&mut self, what: &str, result: io::Result<T>) {
        let said = match result {
            Ok(value) => format!("{value:?}"),
            // Some kinds have no name that a program could ask for.
            Err(error) if format!("{:?}", error.kind()) == "Uncategorized" => {
                format!("error: {:?}", error.raw_os_error())
            }
            Err(error) => format!("error: {:?}", error.kind()),
        };
        writeln!(self.0, "{what}: {said}").unwrap();
    }
}

/// The first line on which they do not agree, and those before it.
fn compare(ours: &str, kernel: &str) {
    let differ = ours.lines().zip(kernel.lines()).position(|(ours, kernel)| ours != kernel);
    let Some(at) = differ else { return assert_eq!(ours, kernel) };
    let before: Vec<_> = ours.lines().take(at).collect();
    let [ours, kernel] = [ours, kernel].map(|told| told.lines().nth(at).unwrap_or_default());
    panic!("{}\nours:   {ours}\nkernel: {kernel}", before.join("\n"));
}

/// What `take_error` says.
fn error_of(taken: io::Result<Option<io::Error>>) -> io::Result<Option<io::ErrorKind>> {
    taken.map(|error| error.map(|error| error.kind()))
}

/// Longer than an ACK is put off (40 ms, here and in the kernel).
const MOMENT: Duration = Duration::from_millis(60);

/// Over which of the two a story plays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Family {
    V4,
    V6,
}

impl Family {
    fn choose(self, v4: &str, v6: &str) -> IpAddr {
        match self {
            Family::V4 => v4.parse().unwrap(),
            Family::V6 => v6.parse().unwrap(),
        }
    }

    /// Some machines have no loopback of IPv6, and so nothing to compare with.
    fn is_here(self) -> bool {
        let is_here = std::net::UdpSocket::bind((self.choose("127.0.0.1", "::1"), 0)).is_ok();
        if !is_here {
            eprintln!("SKIPPED: this machine's loopback has no address of {self:?}");
        }
        is_here
    }
}

/// Where a story plays: how to make its sockets.
trait World {
    type Listener;
    type Stream;
    type Udp;
    fn family(&self) -> Family;
    /// The address of the host that listens.
    fn server(&self) -> IpAddr;
    /// The address of the host that connects.
    fn client(&self) -> IpAddr;
    fn listen_at(&self, at: SocketAddr) -> io::Result<Self::Listener>;
    fn connect<A: ToSocketAddrs>(&self, to: A) -> io::Result<Self::Stream>;
    fn connect_timeout(&self, to: SocketAddr, timeout: Duration) -> io::Result<Self::Stream>;
    fn udp_server_at(&self, at: SocketAddr) -> io::Result<Self::Udp>;
    fn udp_client_at(&self, at: SocketAddr) -> io::Result<Self::Udp>;
    /// A socket of the client for any address, with `IPV6_V6ONLY`.
    fn udp_v6_only(&self) -> Self::Udp;
    /// A non-blocking `connect`.
    fn begin_connect(&self, to: SocketAddr) -> Self::Stream;
    /// One that nobody answers, while the second part is kept.
    fn begin_connect_unanswered(&self) -> (Self::Stream, Vec<Self::Stream>);
    /// An address of the server, where nothing listens.
    fn closed(&self) -> SocketAddr;
    /// Until all that was sent has arrived, and been answered, however slow the machine is.
    fn settle(&self);

    fn listen(&self) -> Self::Listener {
        self.listen_at((self.server(), 0).into()).unwrap()
    }
    fn udp_server(&self) -> Self::Udp {
        self.udp_server_at((self.server(), 0).into()).unwrap()
    }
    fn udp_client(&self) -> Self::Udp {
        self.udp_client_at((self.client(), 0).into()).unwrap()
    }
    fn udp_any(&self) -> Self::Udp {
        self.udp_client_at((self.family().choose("0.0.0.0", "::"), 0).into()).unwrap()
    }
    /// An address that is not the host's own.
    fn foreign(&self) -> SocketAddr {
        (self.family().choose("192.0.2.1", "2001:db8::1"), 80).into()
    }
    /// How long a datagram can be.
    fn longest(&self) -> usize {
        match self.family() {
            Family::V4 => 65_507,
            Family::V6 => 65_527,
        }
    }
}

struct Kernel(Family);

impl World for Kernel {
    type Listener = std::net::TcpListener;
    type Stream = std::net::TcpStream;
    type Udp = std::net::UdpSocket;
    fn family(&self) -> Family {
        self.0
    }
    fn server(&self) -> IpAddr {
        self.0.choose("127.0.0.1", "::1")
    }
    fn client(&self) -> IpAddr {
        self.server()
    }
    fn listen_at(&self, at: SocketAddr) -> io::Result<Self::Listener> {
        std::net::TcpListener::bind(at)
    }
    fn connect<A: ToSocketAddrs>(&self, to: A) -> io::Result<Self::Stream> {
        std::net::TcpStream::connect(to)
    }
    fn connect_timeout(&self, to: SocketAddr, timeout: Duration) -> io::Result<Self::Stream> {
        std::net::TcpStream::connect_timeout(&to, timeout)
    }
    fn udp_server_at(&self, at: SocketAddr) -> io::Result<Self::Udp> {
        std::net::UdpSocket::bind(at)
    }
    fn udp_client_at(&self, at: SocketAddr) -> io::Result<Self::Udp> {
        std::net::UdpSocket::bind(at)
    }
    fn udp_v6_only(&self) -> Self::Udp {
        let socket = rustix::net::socket(AddressFamily::INET6, SocketType::DGRAM, None).unwrap();
        sockopt::set_ipv6_v6only(&socket, true).unwrap();
        rustix::net::bind(&socket, &SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0)).unwrap();
        socket.into()
    }
    fn begin_connect(&self, to: SocketAddr) -> Self::Stream {
        let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket =
            rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None);
        let socket = socket.unwrap();
        let _ = rustix::net::connect(&socket, &to); // it has begun, whatever has come of it already
        socket.into()
    }
    fn begin_connect_unanswered(&self) -> (Self::Stream, Vec<Self::Stream>) {
        // Whose queue is full says nothing to a SYN.
        let listener = self.listen();
        rustix::net::listen(&listener, 0).unwrap();
        let at = listener.local_addr().unwrap();
        let mut first: Vec<_> = (0..3).map(|_| self.begin_connect(at)).collect();
        self.settle();
        let last = self.begin_connect(at);
        first.push(std::os::fd::OwnedFd::from(listener).into());
        (last, first)
    }
    fn closed(&self) -> SocketAddr {
        // A port that was just free.
        let at = self.listen().local_addr().unwrap();
        let _udp = std::net::UdpSocket::bind(at).unwrap();
        at
    }
    fn settle(&self) {
        // What is sent through the loopback arrives within the call that sends it.
        std::thread::sleep(MOMENT);
    }
}

struct Ours {
    family: Family,
    server: laneway::Stack,
    client: laneway::Stack,
}

impl Ours {
    fn new(family: Family) -> Self {
        let (here, there) = laneway::Device::memory_pair(1).unwrap();
        let start = |device, v4, v6| {
            let builder = laneway::Stack::builder(device).address(v4).unwrap().address(v6).unwrap();
            builder.start().unwrap()
        };
        Ours {
            family,
            server: start(here, "10.0.0.1/24", "fd00::1/64"),
            client: start(there, "10.0.0.2/24", "fd00::2/64"),
        }
    }
}

impl World for Ours {
    type Listener = laneway::TcpListener;
    type Stream = laneway::TcpStream;
    type Udp = laneway::UdpSocket;
    fn family(&self) -> Family {
        self.family
    }
    fn server(&self) -> IpAddr {
        self.family.choose("10.0.0.1", "fd00::1")
    }
    fn client(&self) -> IpAddr {
        self.family.choose("10.0.0.2", "fd00::2")
    }
    fn listen_at(&self, at: SocketAddr) -> io::Result<Self::Listener> {
        laneway::TcpListener::bind_on(&self.server, at)
    }
    fn connect<A: ToSocketAddrs>(&self, to: A) -> io::Result<Self::Stream> {
        laneway::TcpStream::connect_on(&self.client, to)
    }
    fn connect_timeout(&self, to: SocketAddr, timeout: Duration) -> io::Result<Self::Stream> {
        laneway::TcpStream::connect_timeout_on(&self.client, &to, timeout)
    }
    fn udp_server_at(&self, at: SocketAddr) -> io::Result<Self::Udp> {
        laneway::UdpSocket::bind_on(&self.server, at)
    }
    fn udp_client_at(&self, at: SocketAddr) -> io::Result<Self::Udp> {
        laneway::UdpSocket::bind_on(&self.client, at)
    }
    fn udp_v6_only(&self) -> Self::Udp {
        let options = laneway::BindOptions { only_v6: true, ..Default::default() };
        laneway::UdpSocket::bind_with(&self.client, "[::]:0", options).unwrap()
    }
    fn begin_connect(&self, to: SocketAddr) -> Self::Stream {
        laneway::TcpStream::begin_connect_on(&self.client, &to).unwrap()
    }
    fn begin_connect_unanswered(&self) -> (Self::Stream, Vec<Self::Stream>) {
        let nobody = self.family.choose("10.0.0.77", "fd00::77");
        (self.begin_connect((nobody, 80).into()), Vec::new())
    }
    fn closed(&self) -> SocketAddr {
        SocketAddr::new(self.server(), 9)
    }
    fn settle(&self) {
        rounds([&self.client, &self.server]);
        std::thread::sleep(MOMENT); // what a lane has put off until later
        rounds([&self.client, &self.server]);
    }
}

/// What `std::net` does not let one set (yet).
trait Options {
    fn set_lingers(&self, linger: Option<Duration>) -> io::Result<()>;
    fn lingers(&self) -> io::Result<Option<Duration>>;
    fn set_keeps_alive(&self, keepalive: bool) -> io::Result<()>;
    fn keeps_alive(&self) -> io::Result<bool>;
    fn set_gives_up_after(&self, timeout_ms: u32) -> io::Result<()>;
    fn gives_up_after(&self) -> io::Result<u32>;
}

impl Options for std::net::TcpStream {
    fn set_lingers(&self, linger: Option<Duration>) -> io::Result<()> {
        Ok(sockopt::set_socket_linger(self, linger)?)
    }
    fn lingers(&self) -> io::Result<Option<Duration>> {
        Ok(sockopt::socket_linger(self)?)
    }
    fn set_keeps_alive(&self, keepalive: bool) -> io::Result<()> {
        Ok(sockopt::set_socket_keepalive(self, keepalive)?)
    }
    fn keeps_alive(&self) -> io::Result<bool> {
        Ok(sockopt::socket_keepalive(self)?)
    }
    fn set_gives_up_after(&self, timeout_ms: u32) -> io::Result<()> {
        Ok(sockopt::set_tcp_user_timeout(self, timeout_ms)?)
    }
    fn gives_up_after(&self) -> io::Result<u32> {
        Ok(sockopt::tcp_user_timeout(self)?)
    }
}

impl Options for laneway::TcpStream {
    fn set_lingers(&self, linger: Option<Duration>) -> io::Result<()> {
        self.set_linger(linger)
    }
    fn lingers(&self) -> io::Result<Option<Duration>> {
        self.linger()
    }
    fn set_keeps_alive(&self, keepalive: bool) -> io::Result<()> {
        self.set_keepalive(keepalive)
    }
    fn keeps_alive(&self) -> io::Result<bool> {
        self.keepalive()
    }
    fn set_gives_up_after(&self, timeout_ms: u32) -> io::Result<()> {
        self.set_tcp_user_timeout((timeout_ms > 0).then(|| Duration::from_millis(timeout_ms.into())))
    }
    fn gives_up_after(&self) -> io::Result<u32> {
        Ok(self.tcp_user_timeout()?.map_or(0, |timeout| timeout.as_millis() as u32))
    }
}

/// What a poller says: whether one can read, and write.
fn ready_for_kernel(socket: &impl AsFd) -> (bool, bool) {
    let mut asked = [PollFd::new(socket, PollFlags::IN | PollFlags::OUT)];
    poll(&mut asked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap();
    // Who waits is told of an error, whatever he waits for; our pollers have no other word for it.
    let says = |flag| asked[0].revents().intersects(flag | PollFlags::ERR);
    (says(PollFlags::IN), says(PollFlags::OUT))
}

fn ready_for_ours(socket: &impl laneway::Source) -> (bool, bool) {
    let poller = laneway::Poller::new().unwrap();
    poller.add(socket, 0, laneway::Interest::BOTH, laneway::Mode::Level).unwrap();
    let mut events = Vec::new();
    poller.wait(&mut events, Some(Duration::ZERO)).unwrap();
    events.first().map_or((false, false), |event| (event.readable, event.writable))
}

macro_rules! polled {
    ($($socket:ident)+) => {
        /// Whether one can read, and write.
        trait Polled {
            fn ready(&self) -> (bool, bool);
        }
        $(
            impl Polled for std::net::$socket {
                fn ready(&self) -> (bool, bool) {
                    ready_for_kernel(self)
                }
            }
            impl Polled for laneway::$socket {
                fn ready(&self) -> (bool, bool) {
                    ready_for_ours(self)
                }
            }
        )+
    };
}
polled!(TcpStream TcpListener UdpSocket);

/// A test that plays a story in both worlds, over IPv4 and over IPv6, or over one of them alone.
macro_rules! story {
    ($(#[$doc:meta])* $name:ident, |$world:ident, $log:ident| $story:block) => {
        story!($(#[$doc])* $name over [ipv4 V4, ipv6 V6], |$world, $log| $story);
    };
    ($(#[$doc:meta])* $name:ident over [$($over:ident $family:ident),+], |$world:ident, $log:ident| $story:block) => {
        $(#[$doc])*
        mod $name {
            use super::*;
            fn play(family: Family) {
                if !family.is_here() {
                    return;
                }
                let kernel = {
                    let ($world, mut log) = (Kernel(family), Log::default());
                    let $log = &mut log;
                    $story
                    log.0
                };
                let ours = {
                    let ($world, mut log) = (Ours::new(family), Log::default());
                    let $log = &mut log;
                    $story
                    log.0
                };
                compare(&ours, &kernel);
            }
            $(
                #[test]
                fn $over() {
                    play(Family::$family);
                }
            )+
        }
    };
}

/// A connection and its other end.
trait Pairs: World {
    fn pair(&self) -> (Self::Stream, Self::Stream);
}

impl Pairs for Kernel {
    fn pair(&self) -> (Self::Stream, Self::Stream) {
        let listener = self.listen();
        let client = self.connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }
}

impl Pairs for Ours {
    fn pair(&self) -> (Self::Stream, Self::Stream) {
        let listener = self.listen();
        let client = self.connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }
}

story!(nobody_listens, |world, log| {
    log.say("connect", world.connect(world.closed()).map(drop));
    log.say("connect in time", world.connect_timeout(world.closed(), Duration::from_secs(5)).map(drop));
    log.say("no time at all", world.connect_timeout(world.closed(), Duration::ZERO).map(drop));
});

story!(
    /// No socket can have port 0, so nobody listens there. What is sent there goes all the same, unless the call names it.
    port_zero, |world, log| {
    let nobody = SocketAddr::new(world.closed().ip(), 0);
    log.say("connect", world.connect(nobody).map(drop));
    log.say("connect in time", world.connect_timeout(nobody, Duration::from_secs(5)).map(drop));
    let socket = world.udp_client();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    log.say("send to", socket.send_to(b"x", nobody));
    log.say("connect", socket.connect(nobody));
    log.say("peer", socket.peer_addr().map(drop));
    for _ in 0..2 {
        log.say("send", socket.send(b"x"));
        world.settle();
        log.say("recv", socket.recv(&mut [0; 4]));
    }
    log.say("send to", socket.send_to(b"x", nobody));
});

story!(an_address_that_is_not_ours, |world, log| {
    log.say("listen", world.listen_at(world.foreign()).map(drop));
    log.say("bind", world.udp_server_at(world.foreign()).map(drop));
});

story!(nobody_connects_to_all_or_to_a_group, |world, log| {
    for to in
        ["255.255.255.255:9", "224.0.0.251:9", "[ff02::fb]:9", "[::ffff:255.255.255.255]:9", "[::ffff:224.0.0.251]:9"]
    {
        log.say(to, world.connect(to).map(drop));
        log.say(to, world.connect_timeout(to.parse().unwrap(), Duration::from_secs(5)).map(drop));
    }
});

/// A name with the address of either world's server or client in the place of a word, and without the port.
fn family(name: SocketAddr) -> String {
    let ip = name.ip().to_string();
    ["127.0.0.1", "10.0.0.1", "10.0.0.2"].into_iter().fold(ip, |ip, host| ip.replace(host, "host"))
}

story!(
    /// Sockets that are bound to IPv6 name everybody as IPv6 does.
    ipv4_peers_of_ipv6_sockets over [ipv4 V4], |world, log| {
    let mapped = |port: u16| {
        let host = world.closed().ip();
        SocketAddr::new(format!("::ffff:{host}").parse().unwrap(), port)
    };
    for at in ["[::]:0".parse().unwrap(), mapped(0), "[::ffff:0.0.0.0]:0".parse().unwrap()] {
        let listener = world.listen_at(at).unwrap();
        let port = listener.local_addr().unwrap().port();
        log.say("listens", listener.local_addr().map(family));
        for to in [SocketAddr::new(world.closed().ip(), port), mapped(port)] {
            let stream = world.connect(to).unwrap();
            log.say("connected", stream.local_addr().map(family));
            log.say("to", stream.peer_addr().map(family));
            let (accepted, peer) = listener.accept().unwrap();
            log.say("accepted", Ok(family(peer)));
            log.say("peer", accepted.peer_addr().map(family));
            log.say("clone's peer", accepted.try_clone().unwrap().peer_addr().map(family));
            log.say("ours", accepted.local_addr().map(family));
        }

        let socket = world.udp_server_at(at).unwrap();
        let port = socket.local_addr().unwrap().port();
        log.say("bound", socket.local_addr().map(family));
        if at != "[::]:0".parse().unwrap() {
            log.say("to IPv6", socket.send_to(b"x", "[::1]:9"));
        }
        let client = world.udp_client();
        client.send_to(b"a", SocketAddr::new(world.closed().ip(), port)).unwrap();
        let mut buf = [0; 8];
        log.say("peek", socket.peek_from(&mut buf).map(|(_, from)| family(from)));
        let (_, from) = socket.recv_from(&mut buf).unwrap();
        log.say("from", Ok(family(from)));
        for peer in [from, client.local_addr().unwrap()] {
            log.say("answer", socket.send_to(b"b", peer));
            log.say("heard", client.recv_from(&mut buf).map(|(n, from)| (n, family(from))));
            log.say("connect", socket.connect(peer));
            log.say("peer", socket.peer_addr().map(family));
            log.say("ours", socket.local_addr().map(family));
            log.say("send", socket.send(b"c"));
            log.say("heard", client.recv_from(&mut buf).map(|(n, from)| (n, family(from))));
            client.send_to(b"d", SocketAddr::new(world.closed().ip(), port)).unwrap();
            log.say("from", socket.recv_from(&mut buf).map(|(n, from)| (n, family(from))));
        }
    }
});

/// Which the kernel has, so that there is nothing to compare.
#[test]
fn there_is_no_loopback() {
    let world = Ours::new(Family::V4);
    let _listener = world.listen_at("0.0.0.0:80".parse().unwrap()).unwrap();
    let udp = world.udp_server();
    for own in ["10.0.0.1:80", "127.0.0.1:80", "[::1]:80"] {
        let connected = laneway::TcpStream::connect_on(&world.server, own).map(drop);
        assert_eq!(connected.unwrap_err().kind(), io::ErrorKind::NetworkUnreachable, "{own}");
    }
    for own in ["10.0.0.1:80", "127.0.0.1:80"] {
        assert_eq!(udp.send_to(b"x", own).unwrap_err().kind(), io::ErrorKind::NetworkUnreachable, "{own}");
    }
    for own in ["127.0.0.1:80", "[::1]:80"] {
        let listens = world.listen_at(own.parse().unwrap()).map(drop);
        assert_eq!(listens.unwrap_err().kind(), io::ErrorKind::AddrNotAvailable, "{own}");
    }
}

story!(twice_the_same_address, |world, log| {
    let first = world.listen();
    log.say("listen", world.listen_at(first.local_addr().unwrap()).map(drop));
    let udp = world.udp_server();
    log.say("bind", world.udp_server_at(udp.local_addr().unwrap()).map(drop));
    let at = first.local_addr().unwrap();
    drop(first);
    world.settle();
    log.say("listen again", world.listen_at(at).map(drop));
});

story!(a_question_and_an_answer, |world, log| {
    let (mut a, mut b) = world.pair();
    log.say(
        "names",
        Ok(a.local_addr().unwrap() == b.peer_addr().unwrap() && a.peer_addr().unwrap() == b.local_addr().unwrap()),
    );
    log.say("write", a.write(b"question"));
    let mut buf = [0; 64];
    world.settle();
    log.say("peek", b.peek(&mut buf));
    log.say("peek a little", b.peek(&mut buf[..3]));
    log.say("read a little", b.read(&mut buf[..3]));
    log.say("read nothing of what is there", b.read(&mut []));
    log.say("read the rest", b.read(&mut buf));
    log.say("do not wait", b.set_nonblocking(true));
    log.say("read nothing of nothing", b.read(&mut []));
    log.say("wait", b.set_nonblocking(false));
    log.say("write nothing", b.write(&[]));
    log.say("several pieces", b.write_vectored(&[io::IoSlice::new(b"an"), io::IoSlice::new(b"swer")]));
    let (mut x, mut y) = ([0; 2], [0; 10]);
    world.settle();
    log.say("into several", a.read_vectored(&mut [io::IoSliceMut::new(&mut x), io::IoSliceMut::new(&mut y)]));
    log.say("which are", Ok((x, y)));
});

story!(half_a_close, |world, log| {
    let (mut a, mut b) = world.pair();
    log.say("write", a.write(b"all there is"));
    log.say("shut", a.shutdown(Shutdown::Write));
    log.say("shut twice", a.shutdown(Shutdown::Write));
    log.say("write after FIN", a.write(b"more"));
    log.say("write nothing", a.write(&[]));
    log.say("no pieces", a.write_vectored(&[]));
    log.say("empty pieces", a.write_vectored(&[io::IoSlice::new(&[]), io::IoSlice::new(&[])]));
    log.say("pieces", a.write_vectored(&[io::IoSlice::new(&[]), io::IoSlice::new(b"x")]));
    let mut all = String::new();
    log.say("read to the end", b.read_to_string(&mut all));
    log.say("which is", Ok(all));
    log.say("read at the end", b.read(&mut [0; 4]));
    log.say("answer", b.write(b"answer"));
    let mut buf = [0; 16];
    log.say("hear it", a.read(&mut buf));
    drop(b);
    log.say("the end", a.read(&mut buf));
    log.say("the end again", a.read(&mut buf));
    world.settle();
    log.say("shut when all is over", a.shutdown(Shutdown::Write));
    log.say("peer's name", a.peer_addr().map(drop));
});

story!(reading_is_shut, |world, log| {
    let (mut a, mut b) = world.pair();
    log.say("shut", a.shutdown(Shutdown::Read));
    log.say("read", a.read(&mut [0; 4]));
    log.say("write still", a.write(b"abc"));
    let mut buf = [0; 8];
    log.say("hear it", b.read(&mut buf));
    log.say("both", a.shutdown(Shutdown::Both));
    log.say("write", a.write(b"abc"));
    log.say("the end", b.read(&mut buf));
});

story!(reset_by_a_drop_with_unread_bytes, |world, log| {
    let (mut a, mut b) = world.pair();
    log.say("write", a.write(b"nobody reads this"));
    world.settle();
    drop(b.try_clone().unwrap());
    log.say("still open", b.write(b"x"));
    world.settle();
    drop(b);
    world.settle();
    let mut buf = [0; 8];
    log.say("what came before", a.read(&mut buf));
    log.say("read", a.read(&mut buf));
    log.say("read again", a.read(&mut buf));
    log.say("write", a.write(b"x"));
    log.say("shut", a.shutdown(Shutdown::Both));
    log.say("peer's name", a.peer_addr().map(drop));
    log.say("our name", a.local_addr().map(drop));
    log.say("error", error_of(a.take_error()));
});

story!(reset_when_a_direction_is_shut, |world, log| {
    for how in [Shutdown::Read, Shutdown::Write, Shutdown::Both] {
        let (mut a, b) = world.pair();
        log.say("write", a.write(b"nobody reads this"));
        world.settle();
        log.say("shut", a.shutdown(how));
        world.settle();
        drop(b);
        world.settle();
        log.say("peek", a.peek(&mut [0; 4]));
        log.say("read", a.read(&mut [0; 4]));
        log.say("write", a.write(b"x"));
        log.say("error", error_of(a.take_error()));
    }
});

story!(reset_behind_what_fills_the_first_of_several, |world, log| {
    let (mut a, mut b) = world.pair();
    log.say("write", a.write(b"nobody reads this"));
    log.say("three bytes", b.write(b"abc"));
    world.settle();
    drop(b);
    world.settle();
    let (mut x, mut y) = ([0; 3], [0; 10]);
    log.say("into several", a.read_vectored(&mut [io::IoSliceMut::new(&mut x), io::IoSliceMut::new(&mut y)]));
    log.say("read", a.read(&mut y));
    log.say("read again", a.read(&mut y));
});

story!(write_after_a_reset, |world, log| {
    let (mut a, b) = world.pair();
    log.say("write", a.write(b"nobody reads this"));
    world.settle();
    drop(b);
    world.settle();
    log.say("write", a.write(b"x"));
    log.say("write again", a.write(b"x"));
    log.say("read", a.read(&mut [0; 4]));
});

story!(the_error_is_taken, |world, log| {
    let (mut a, b) = world.pair();
    log.say("write", a.write(b"nobody reads this"));
    world.settle();
    drop(b);
    world.settle();
    log.say("error", error_of(a.take_error()));
    log.say("once", error_of(a.take_error()));
    log.say("read", a.read(&mut [0; 4]));
    log.say("write", a.write(b"x"));
});

story!(write_to_one_who_has_closed, |world, log| {
    let (mut a, b) = world.pair();
    drop(b);
    world.settle();
    log.say("the end", a.read(&mut [0; 4]));
    log.say("write", a.write(b"x")); // answered by RST
    world.settle();
    log.say("write", a.write(b"x"));
    log.say("read", a.read(&mut [0; 4]));
});

story!(timeouts, |world, log| {
    let (a, b) = world.pair();
    log.say("zero", a.set_read_timeout(Some(Duration::ZERO)));
    log.say("set", a.set_read_timeout(Some(Duration::from_millis(40))));
    log.say("get", a.read_timeout());
    log.say("read", (&a).read(&mut [0; 4]));
    log.say("peek", a.peek(&mut [0; 4]));
    log.say("set", a.set_write_timeout(Some(Duration::from_millis(400))));
    let mut total = 0;
    let last = loop {
        match (&a).write(&[7; 65_536]) {
            Ok(n) => total += n,
            error => break error,
        }
    };
    log.say("a full pipe", last);
    log.say("took something first", Ok(total > 100_000));
    log.say("unset", a.set_read_timeout(None));
    log.say("get", a.read_timeout());
    drop(b);
});

story!(timeouts_from_the_shortest_to_the_longest, |world, log| {
    let (mut a, _b) = world.pair();
    log.say("shortest", a.set_read_timeout(Some(Duration::from_nanos(1))));
    log.say("get", a.read_timeout().map(|timeout| timeout.is_some()));
    log.say("read", a.read(&mut [0; 2]));
    log.say("long", a.set_read_timeout(Some(Duration::from_secs(1_000_000))));
    log.say("get", a.read_timeout());
    log.say("a clone's", a.try_clone().unwrap().read_timeout());
    log.say("longest", a.set_read_timeout(Some(Duration::MAX)));
    log.say("get", a.read_timeout());
    log.say("writes have another", a.write_timeout());
    log.say("zero", a.set_write_timeout(Some(Duration::ZERO)));
    let socket = world.udp_client();
    log.say("longest of a socket", socket.set_read_timeout(Some(Duration::MAX)));
    log.say("get", socket.read_timeout());
    log.say("zero", socket.set_write_timeout(Some(Duration::ZERO)));
    log.say("connect", world.connect_timeout(world.closed(), Duration::MAX).map(drop));
});

story!(without_waiting, |world, log| {
    let listener = world.listen();
    log.say("set", listener.set_nonblocking(true));
    log.say("accept", listener.accept().map(drop));
    let a = world.connect(listener.local_addr().unwrap()).unwrap();
    world.settle();
    let b = listener.accept().unwrap().0;
    log.say("accept again", listener.accept().map(drop));
    log.say("set", a.set_nonblocking(true));
    log.say("read", (&a).read(&mut [0; 4]));
    log.say("peek", a.peek(&mut [0; 4]));
    log.say("accepted ones wait", b.set_read_timeout(Some(Duration::from_millis(30))));
    log.say("and say so", (&b).read(&mut [0; 4]));
    let last = loop {
        match (&a).write(&[7; 65_536]) {
            Ok(_) => {}
            error => break error,
        }
    };
    log.say("a full pipe", last);
    log.say("unset", a.set_nonblocking(false));
    world.settle(); // the bytes have a way to go: what arrives after the close is answered by FIN and RST, here and there
    drop(b);
    world.settle();
    log.say("reset by unread bytes", (&a).read(&mut [0; 4]));
});

story!(options, |world, log| {
    let (a, _b) = world.pair();
    log.say("nodelay", a.nodelay());
    log.say("set", a.set_nodelay(true));
    log.say("nodelay", a.nodelay());
    log.say("a clone's", a.try_clone().unwrap().nodelay());
    let (listener, socket) = (world.listen(), world.udp_client());
    for ttl in [0, 64, 256] {
        log.say("set TTL", a.set_ttl(ttl));
        log.say("set a listener's", listener.set_ttl(ttl));
        log.say("set a socket's", socket.set_ttl(ttl));
    }
    log.say("TTL", a.ttl());
    log.say("a listener's", listener.ttl());
    log.say("a socket's", socket.ttl());
    log.say("set broadcast", socket.set_broadcast(false));
    log.say("broadcast", socket.broadcast());
    log.say("error", error_of(a.take_error()));
});

story!(a_clone_keeps_it_open, |world, log| {
    let (mut a, mut b) = world.pair();
    let mut clone = a.try_clone().unwrap();
    log.say("write", a.write(b"one"));
    drop(a);
    log.say("clone writes", clone.write(b"two"));
    world.settle();
    let mut buf = [0; 16];
    log.say("read", b.read(&mut buf));
    drop(clone);
    log.say("end", b.read(&mut buf));
});

story!(much_both_ways, |world, log| {
    let (a, b) = world.pair();
    const N: usize = 3_000_000;
    let sender = std::thread::spawn(move || {
        let data: Vec<u8> = (0..N).map(|i| (i / 251) as u8).collect();
        (&a).write_all(&data).unwrap();
        a.shutdown(Shutdown::Write).unwrap();
        let mut back = Vec::new();
        (&a).read_to_end(&mut back).unwrap();
        back == data
    });
    let mut data = Vec::new();
    log.say("read", (&b).read_to_end(&mut data));
    log.say("write", (&b).write_all(&data));
    drop(b);
    log.say("the same", Ok(sender.join().unwrap()));
});

story!(a_reader_that_waits_is_told, |world, log| {
    let (a, b) = world.pair();
    let waits = a.try_clone().unwrap();
    let reader = std::thread::spawn(move || (&waits).read(&mut [0; 4]));
    world.settle();
    log.say("shut", a.shutdown(Shutdown::Read));
    log.say("the reader", reader.join().unwrap());
    drop(b);
});

story!(an_acceptor_s_peer_left_before_it_came, |world, log| {
    let listener = world.listen();
    let mut a = world.connect(listener.local_addr().unwrap()).unwrap();
    log.say("write", a.write(b"hello"));
    drop(a);
    world.settle();
    let (mut b, _) = listener.accept().unwrap();
    let mut all = Vec::new();
    log.say("all of it", b.read_to_end(&mut all));
});

story!(bytes_for_one_who_has_shut, |world, log| {
    let (mut a, mut b) = world.pair();
    log.say("w", b.write(b"before"));
    world.settle();
    log.say("shut", a.shutdown(Shutdown::Read));
    let mut buf = [0; 8];
    log.say("peek", a.peek(&mut buf));
    log.say("read", a.read(&mut buf));
    log.say("read", a.read(&mut buf));
    log.say("w", b.write(b"after"));
    world.settle();
    log.say("peek", a.peek(&mut buf));
    log.say("read", a.read(&mut buf));
    log.say("read", a.read(&mut buf));
    log.say("shut", a.shutdown(Shutdown::Read));
    log.say("nb", a.set_nonblocking(true));
    log.say("read", a.read(&mut buf));
    log.say("w", b.write(b"unread"));
    world.settle();
    drop(a);
    world.settle();
    log.say("b", b.read(&mut buf));
    log.say("b", b.read(&mut buf));
});

story!(what_can_be_asked_after_a_reset, |world, log| {
    let (mut a, b) = world.pair();
    log.say("write", a.write(b"nobody reads this"));
    world.settle();
    let (la, pa) = (a.local_addr().unwrap(), a.peer_addr().unwrap());
    drop(b);
    world.settle();
    log.say("peer", a.peer_addr().map(|x| x == pa));
    log.say("local", a.local_addr().map(|x| x == la));
    log.say("shut r", a.shutdown(Shutdown::Read));
    log.say("shut w", a.shutdown(Shutdown::Write));
    log.say("write nothing", a.write(&[]));
    log.say("write nothing", a.write(&[]));
    log.say("read nothing", a.read(&mut []));
    log.say("peek nothing", a.peek(&mut []));
    log.say("nodelay", a.set_nodelay(true));
    log.say("nodelay", a.nodelay());
    log.say("ttl", a.set_ttl(64));
    log.say("to", a.set_read_timeout(Some(Duration::from_millis(20))));
    log.say("nb", a.set_nonblocking(true));
    log.say("read", a.read(&mut [0; 4]));
    log.say("clone", a.try_clone().map(drop));
    log.say("flush", a.flush());
    log.say("local", a.local_addr().map(|x| x == la));
});

story!(the_broken_pipe_is_taken, |world, log| {
    let (mut a, b) = world.pair();
    drop(b);
    world.settle();
    log.say("peer", a.peer_addr().map(drop));
    log.say("write", a.write(b"x"));
    world.settle();
    log.say("peer", a.peer_addr().map(drop));
    log.say("shut", a.shutdown(Shutdown::Write));
    log.say("error", error_of(a.take_error()));
    log.say("error", error_of(a.take_error()));
    log.say("write", a.write(b"x"));
    log.say("read", a.read(&mut [0; 3]));
    let (mut a, b) = world.pair();
    drop(b);
    world.settle();
    log.say("write", a.write(b"x"));
    world.settle();
    log.say("read", a.read(&mut [0; 3]));
    log.say("peek", a.peek(&mut [0; 3]));
    log.say("error", error_of(a.take_error()));
});

story!(the_second_to_close, |world, log| {
    let (mut a, b) = world.pair();
    let (la, pa) = (a.local_addr().unwrap(), a.peer_addr().unwrap());
    drop(b);
    world.settle();
    log.say("shut", a.shutdown(Shutdown::Read));
    log.say("shut", a.shutdown(Shutdown::Write));
    world.settle();
    log.say("peer", a.peer_addr().map(|x| x == pa));
    log.say("local", a.local_addr().map(|x| x == la));
    log.say("shut", a.shutdown(Shutdown::Both));
    log.say("read", a.read(&mut [0; 3]));
    log.say("write", a.write(b"x"));
    log.say("write nothing", a.write(b""));
    log.say("error", error_of(a.take_error()));
});

story!(a_listener_goes_and_some_wait, |world, log| {
    let listener = world.listen();
    let mut a = world.connect(listener.local_addr().unwrap()).unwrap();
    let mut c = world.connect(listener.local_addr().unwrap()).unwrap();
    world.settle();
    log.say("w", c.write(b"x"));
    world.settle();
    drop(listener);
    world.settle();
    log.say("read", a.read(&mut [0; 3]));
    log.say("read", a.read(&mut [0; 3]));
    log.say("write", a.write(b"x"));
    log.say("write", c.write(b"x"));
    log.say("read", c.read(&mut [0; 3]));
});

story!(incoming_without_waiting, |world, log| {
    let listener = world.listen();
    log.say("error", error_of(listener.take_error()));
    let other = listener.try_clone().unwrap();
    log.say("nb", other.set_nonblocking(true));
    log.say("incoming", listener.incoming().next().unwrap().map(drop));
    let a: Vec<_> = (0..3).map(|_| world.connect(listener.local_addr().unwrap()).unwrap()).collect();
    world.settle();
    for (i, s) in listener.incoming().take(4).enumerate() {
        log.say(
            "in",
            s.map(|s| {
                (
                    i,
                    a.iter().position(|a| a.local_addr().unwrap() == s.peer_addr().unwrap()),
                    s.nodelay().unwrap(),
                    s.read_timeout().unwrap(),
                )
            }),
        );
    }
    drop(other);
    log.say("accept", listener.accept().map(drop));
});

story!(a_writer_that_waits_is_told, |world, log| {
    // told by shutdown
    let (a, b) = world.pair();
    let w = a.try_clone().unwrap();
    let t = std::thread::spawn(move || {
        let first = (&w).write(&vec![1; 30_000_000]).map(|n| n < 30_000_000);
        (first, (&w).write(b"x"))
    });
    std::thread::sleep(Duration::from_millis(300));
    log.say("shut", a.shutdown(Shutdown::Write));
    let (first, next) = t.join().unwrap();
    log.say("first", first);
    log.say("next", next);
    drop(b);
    // told by reset
    let (a, b) = world.pair();
    let t = std::thread::spawn(move || {
        let first = (&a).write(&vec![1; 30_000_000]).map(|n| n < 30_000_000);
        (first, (&a).write(b"x"), (&a).write(b"x"), (&a).read(&mut [0; 3]))
    });
    std::thread::sleep(Duration::from_millis(300));
    drop(b);
    let (first, next, n2, r) = t.join().unwrap();
    log.say("first", first);
    log.say("next", next);
    log.say("next", n2);
    log.say("read", r);
});

story!(a_clone_shuts, |world, log| {
    let (mut a, mut b) = world.pair();
    let mut c = a.try_clone().unwrap();
    log.say("s", c.shutdown(Shutdown::Write));
    drop(c.try_clone());
    log.say("w", a.write(b"x"));
    log.say("b", b.read(&mut [0; 2]));
    log.say("b w", b.write(b"hello"));
    log.say("c", c.read(&mut [0; 2]));
    log.say("a", a.read(&mut [0; 9]));
    drop(b);
    log.say("c", c.read(&mut [0; 9]));
    world.settle();
    log.say("a w", a.write(b"x"));
    log.say("a", error_of(a.take_error()));
});

story!(two_readers_and_one_reset, |world, log| {
    let (a, b) = world.pair();
    let ts: Vec<_> = (0..2)
        .map(|_| {
            let a = a.try_clone().unwrap();
            std::thread::spawn(move || (&a).read(&mut [0; 3]))
        })
        .collect();
    (&a).write_all(b"unread").unwrap();
    world.settle();
    drop(b);
    let mut all: Vec<_> = ts.into_iter().map(|t| t.join().unwrap().map_err(|e| e.kind())).collect();
    all.sort_by_key(|x| x.is_ok());
    log.say("both", Ok(all));
});

story!(a_reset_behind_the_end, |world, log| {
    let (mut a, mut b) = world.pair();
    log.say("w", b.write(b"from b"));
    log.say("shut b", b.shutdown(Shutdown::Write));
    log.say("w", a.write(b"to b"));
    world.settle();
    drop(b); // unread
    world.settle();
    let mut buf = [0; 10];
    log.say("peek", a.peek(&mut buf));
    log.say("r", a.read(&mut buf));
    log.say("r", a.read(&mut buf));
    log.say("e", error_of(a.take_error()));
    log.say("w", a.write(b"x"));
});

story!(both_shut_both, |world, log| {
    let (mut a, mut b) = world.pair();
    log.say("both", a.shutdown(Shutdown::Both));
    log.say("both", a.shutdown(Shutdown::Both));
    log.say("r", a.read(&mut [0; 3]));
    log.say("w", a.write(b""));
    log.say("r b", b.read(&mut [0; 3]));
    log.say("peer", a.peer_addr().map(drop));
    log.say("shut b", b.shutdown(Shutdown::Both));
    world.settle();
    log.say("peer", a.peer_addr().map(drop));
    log.say("peer b", b.peer_addr().map(drop));
    log.say("local b", b.local_addr().map(drop));
    log.say("shut b", b.shutdown(Shutdown::Both));
    log.say("w b", b.write(b"x"));
    log.say("r b", b.read(&mut [0; 3]));
    log.say("e", error_of(a.take_error()));
    log.say("nd", b.set_nodelay(true));
    log.say("nd", b.nodelay());
});

story!(a_connect_that_does_not_wait, |world, log| {
    let listener = world.listen();
    let mut a = world.begin_connect(listener.local_addr().unwrap());
    world.settle();
    log.say("ready", Ok(a.ready()));
    log.say("error", error_of(a.take_error()));
    log.say("peer", a.peer_addr().map(|peer| peer == listener.local_addr().unwrap()));
    log.say("read", a.read(&mut [0; 4]));
    log.say("write", a.write(b"abc"));
    let (mut b, from) = listener.accept().unwrap();
    log.say("local", a.local_addr().map(|at| at == from));
    log.say("hear it", b.read(&mut [0; 8]));
});

story!(a_connect_that_does_not_wait_and_is_refused, |world, log| {
    let refused = || {
        let stream = world.begin_connect(world.closed());
        world.settle();
        stream
    };
    let mut a = refused();
    log.say("ready", Ok(a.ready()));
    log.say("peer", a.peer_addr().map(drop));
    log.say("error", error_of(a.take_error()));
    log.say("error", error_of(a.take_error()));
    log.say("ready", Ok(a.ready()));
    log.say("peer", a.peer_addr().map(drop));
    log.say("nodelay", a.set_nodelay(true));
    log.say("read", a.read(&mut [0; 4]));
    log.say("write", a.write(b"x"));
    log.say("shut", a.shutdown(Shutdown::Both));
    let mut a = refused();
    log.say("read nothing", a.read(&mut []));
    log.say("peek", a.peek(&mut [0; 4]));
    log.say("read", a.read(&mut [0; 4]));
    log.say("write", a.write(b"x"));
    let mut a = refused();
    log.say("write nothing", a.write(b""));
    log.say("write", a.write(b"x"));
    log.say("read", a.read(&mut [0; 4]));
    let mut a = refused();
    log.say("shut", a.shutdown(Shutdown::Write));
    log.say("wait", a.set_nonblocking(false));
    log.say("read", a.read(&mut [0; 4]));
    log.say("read", a.read(&mut [0; 4]));
    log.say("error", error_of(a.take_error()));
});

story!(a_connect_that_nobody_answers, |world, log| {
    let (mut a, _kept) = world.begin_connect_unanswered();
    world.settle();
    log.say("ready", Ok(a.ready()));
    log.say("peer", a.peer_addr().map(drop));
    log.say("ours", a.local_addr().map(|at| at.port() != 0));
    log.say("error", error_of(a.take_error()));
    log.say("read", a.read(&mut [0; 4]));
    log.say("read nothing", a.read(&mut []));
    log.say("peek", a.peek(&mut [0; 4]));
    log.say("write", a.write(b"x"));
    log.say("write nothing", a.write(b""));
    log.say("pieces", a.write_vectored(&[io::IoSlice::new(b"x"), io::IoSlice::new(b"y")]));
    log.say("nodelay", a.set_nodelay(true));
    log.say("keepalive", a.set_keeps_alive(true));
    log.say("gives up after", a.set_gives_up_after(60_000));
    log.say("ready", Ok(a.ready()));
    log.say("wait", a.set_nonblocking(false));
    log.say("for so long", a.set_read_timeout(Some(Duration::from_millis(20))));
    log.say("and so long", a.set_write_timeout(Some(Duration::from_millis(20))));
    log.say("read", a.read(&mut [0; 4]));
    log.say("write", a.write(b"x"));
    log.say("write nothing", a.write(b""));
    log.say("error", error_of(a.take_error()));
});

story!(
    /// As soon as it can.
    a_write_waits_for_a_connect, |world, log| {
    let listener = world.listen();
    let a = world.begin_connect(listener.local_addr().unwrap());
    log.say("wait", a.set_nonblocking(false));
    log.say("write", (&a).write(b"abc"));
    let (mut b, _) = listener.accept().unwrap();
    log.say("hear it", b.read(&mut [0; 8]));
    let a = world.begin_connect(world.closed());
    log.say("wait", a.set_nonblocking(false));
    log.say("write", (&a).write(b"abc"));
    log.say("write", (&a).write(b"abc"));
});

story!(one_of_several_addresses_will_do, |world, log| {
    let listener = world.listen();
    let at = listener.local_addr().unwrap();
    let nobody = SocketAddr::new(at.ip(), 0);
    log.say("none", world.connect(&[][..]).map(drop));
    log.say("the last", world.connect(&[world.closed(), nobody, at][..]).map(|a| a.peer_addr().unwrap() == at));
    log.say("no one", world.connect(&[nobody, world.closed()][..]).map(drop));
});

story!(nothing_is_asked_for_at_the_end, |world, log| {
    let (mut a, mut b) = world.pair();
    log.say("write", b.write(b"x"));
    log.say("shut", b.shutdown(Shutdown::Write));
    world.settle();
    for _ in 0..2 {
        log.say("read", a.read(&mut []));
        log.say("peek", a.peek(&mut []));
        log.say("no pieces", a.read_vectored(&mut []));
        log.say("empty pieces", a.read_vectored(&mut [io::IoSliceMut::new(&mut []), io::IoSliceMut::new(&mut [])]));
        let mut piece = [0; 4];
        log.say("pieces", a.read_vectored(&mut [io::IoSliceMut::new(&mut []), io::IoSliceMut::new(&mut piece)]));
    }
    log.say("write", a.write(b"unread"));
    world.settle();
    drop(b);
    world.settle();
    log.say("empty pieces", a.read_vectored(&mut [io::IoSliceMut::new(&mut [])]));
    log.say("read", a.read(&mut []));
    log.say("peek", a.peek(&mut []));
    log.say("read", a.read(&mut [0; 2]));
    log.say("no pieces", a.write_vectored(&[]));
    log.say("write", a.write(&[]));
});

story!(
    /// With linger 0 a drop resets, whatever is under way; of clones the last.
    linger_zero_resets, |world, log| {
    let (a, mut b) = world.pair();
    log.say("not set", a.lingers());
    log.say("set", a.set_lingers(Some(Duration::ZERO)));
    log.say("get", a.lingers());
    let mut clone = a.try_clone().unwrap();
    log.say("a clone's", clone.lingers());
    drop(a);
    log.say("still there", clone.write(b"abc"));
    world.settle();
    drop(clone);
    world.settle();
    log.say("ready", Ok(b.ready()));
    log.say("what had come", b.read(&mut [0; 8]));
    log.say("reset", b.read(&mut [0; 8]));
    log.say("and then", b.read(&mut [0; 8]));
    log.say("write", b.write(b"x"));
    // Behind a FIN.
    let (a, mut b) = world.pair();
    log.say("set", a.set_lingers(Some(Duration::ZERO)));
    log.say("shut", a.shutdown(Shutdown::Write));
    world.settle();
    drop(a);
    world.settle();
    log.say("the end", b.read(&mut [0; 8]));
    log.say("write", b.write(b"x"));
    log.say("write", b.write(b"x"));
    log.say("error", error_of(b.take_error()));
    // Taken back.
    let (mut a, mut b) = world.pair();
    log.say("set", a.set_lingers(Some(Duration::ZERO)));
    log.say("unset", a.set_lingers(None));
    log.say("get", a.lingers());
    log.say("write", a.write(b"abc"));
    drop(a);
    log.say("what was sent", b.read(&mut [0; 8]));
    log.say("the end", b.read(&mut [0; 8]));
});

story!(linger_with_bytes_to_send, |world, log| {
    const MUCH: usize = 200_000;
    for linger in [None, Some(Duration::from_secs(5)), Some(Duration::ZERO)] {
        let (a, b) = world.pair();
        log.say("set", a.set_lingers(linger));
        log.say("get", a.lingers());
        let reader = std::thread::spawn(move || {
            std::thread::sleep(MOMENT);
            let mut all = Vec::new();
            let end = (&b).read_to_end(&mut all);
            (all.len() == MUCH, end.map(drop), (&b).write(b"x").map(drop))
        });
        log.say("write", (&a).write_all(&[7; MUCH]));
        if linger == Some(Duration::ZERO) {
            world.settle();
            std::thread::sleep(MOMENT);
        }
        drop(a);
        let (is_all, end, _) = reader.join().unwrap();
        log.say("all of it", Ok(is_all));
        log.say("end", end);
    }
});

story!(an_acceptor_s_peer_has_reset, |world, log| {
    let listener = world.listen();
    for word in [&b"hello"[..], b""] {
        let mut a = world.connect(listener.local_addr().unwrap()).unwrap();
        let at = a.local_addr().unwrap();
        log.say("write", a.write(word));
        world.settle();
        log.say("set", a.set_lingers(Some(Duration::ZERO)));
        drop(a);
        world.settle();
        log.say("ready", Ok(listener.ready()));
        let accepted = listener.accept();
        log.say("accept", accepted.as_ref().map(|(_, from)| *from == at).map_err(|error| error.kind().into()));
        let Ok((mut b, _)) = accepted else { continue };
        log.say("ready", Ok(b.ready()));
        log.say("peer", b.peer_addr().map(drop));
        log.say("ours", b.local_addr().map(|at| at == listener.local_addr().unwrap()));
        log.say("nodelay", b.set_nodelay(true));
        log.say("read", b.read(&mut [0; 8]));
        log.say("read", b.read(&mut [0; 8]));
        log.say("read", b.read(&mut [0; 8]));
        log.say("write", b.write(b"x"));
    }
});

story!(options_after_the_end, |world, log| {
    for unread in [&b""[..], b"unread"] {
        let (mut a, b) = world.pair();
        log.say("write", a.write(unread));
        world.settle();
        drop(b);
        world.settle();
        log.say("shut", a.shutdown(Shutdown::Write));
        world.settle();
        for on in [true, false] {
            log.say("nodelay", a.set_nodelay(on).and_then(|()| a.nodelay()));
            log.say("keepalive", a.set_keeps_alive(on).and_then(|()| a.keeps_alive()));
        }
        log.say("gives up after", a.set_gives_up_after(1_234).and_then(|()| a.gives_up_after()));
        log.say("gives up after", a.set_gives_up_after(0).and_then(|()| a.gives_up_after()));
        log.say("linger", a.set_lingers(Some(Duration::from_secs(3))).and_then(|()| a.lingers()));
        log.say("timeout", a.set_read_timeout(Some(Duration::ZERO)));
        log.say("timeout", a.set_write_timeout(Some(Duration::from_secs(2))).and_then(|()| a.write_timeout()));
        log.say("TTL", a.set_ttl(64).and_then(|()| a.ttl()));
        log.say("do not wait", a.set_nonblocking(true));
        log.say("clone", a.try_clone().map(drop));
    }
});

story!(what_a_poller_says, |world, log| {
    let listener = world.listen();
    log.say("a listener", Ok(listener.ready()));
    let mut a = world.connect(listener.local_addr().unwrap()).unwrap();
    world.settle();
    log.say("a listener", Ok(listener.ready()));
    let mut b = listener.accept().unwrap().0;
    log.say("a listener", Ok(listener.ready()));
    log.say("a stream", Ok(a.ready()));
    b.write_all(b"x").unwrap();
    world.settle();
    log.say("with bytes", Ok(a.ready()));
    log.say("peek", a.peek(&mut [0; 4]));
    log.say("still", Ok(a.ready()));
    log.say("read", a.read(&mut [0; 4]));
    log.say("without", Ok(a.ready()));
    a.set_nonblocking(true).unwrap();
    while a.write(&[7; 65_536]).is_ok() {}
    log.say("full", Ok(a.ready()));
    a.shutdown(Shutdown::Write).unwrap();
    log.say("full and shut", Ok(a.ready()));
    a.shutdown(Shutdown::Read).unwrap();
    log.say("shut both", Ok(a.ready()));
    for how in [Shutdown::Read, Shutdown::Write, Shutdown::Both] {
        let (a, b) = world.pair();
        a.shutdown(how).unwrap();
        world.settle();
        log.say("has shut", Ok((a.ready(), b.ready())));
        drop(a);
        world.settle();
        log.say("and is gone", Ok(b.ready()));
    }
    let (mut a, b) = world.pair();
    a.write_all(b"unread").unwrap();
    world.settle();
    drop(b);
    world.settle();
    log.say("reset", Ok(a.ready()));
    log.say("error", error_of(a.take_error()));
    log.say("error is taken", Ok(a.ready()));

    let (socket, other) = (world.udp_server(), world.udp_client());
    log.say("a socket", Ok(socket.ready()));
    other.send_to(b"", socket.local_addr().unwrap()).unwrap();
    world.settle();
    log.say("an empty one", Ok(socket.ready()));
    log.say("peek", socket.peek(&mut [0; 4]));
    log.say("still", Ok(socket.ready()));
    log.say("recv", socket.recv(&mut [0; 4]));
    log.say("without", Ok(socket.ready()));
    other.connect(world.closed()).unwrap();
    other.send(b"x").unwrap();
    world.settle();
    log.say("refused", Ok(other.ready()));
    log.say("error", error_of(other.take_error()));
    log.say("error is taken", Ok(other.ready()));
});

story!(one_of_two_readers_has_the_byte, |world, log| {
    let (a, b) = world.pair();
    let (said, hear) = std::sync::mpsc::channel();
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (a, said) = (a.try_clone().unwrap(), said.clone());
            std::thread::spawn(move || said.send((&a).read(&mut [0; 4])).unwrap())
        })
        .collect();
    world.settle();
    drop(a); // the clones wait on
    for _ in 0..2 {
        (&b).write_all(b"x").unwrap();
        log.say("one", hear.recv().unwrap());
        log.say("one alone", Ok(hear.recv_timeout(MOMENT).is_err()));
    }
    readers.into_iter().for_each(|reader| reader.join().unwrap());
});

story!(who_waits_is_not_disturbed, |world, log| {
    let listener = world.listen();
    let other = listener.try_clone().unwrap();
    let acceptor = std::thread::spawn(move || other.accept().map(|(stream, _)| stream));
    world.settle();
    log.say("do not wait", listener.set_nonblocking(true));
    log.say("accept", listener.accept().map(drop));
    let at = listener.local_addr().unwrap();
    drop(listener);
    let a = world.connect(at).unwrap();
    let b = acceptor.join().unwrap().unwrap();
    let reader = {
        let b = b.try_clone().unwrap();
        std::thread::spawn(move || (&b).read(&mut [0; 4]))
    };
    world.settle();
    log.say("do not wait", b.set_nonblocking(true));
    log.say("a timeout", b.set_read_timeout(Some(Duration::from_millis(1))));
    log.say("read", (&b).read(&mut [0; 4]));
    log.say("write", (&b).write(b"x"));
    drop(b);
    world.settle();
    log.say("it waits", Ok(!reader.is_finished()));
    log.say("write", (&a).write(b"yes"));
    log.say("the reader", reader.join().unwrap());
});

story!(a_refusal_wakes_who_waits, |world, log| {
    let client = world.udp_client();
    client.connect(world.closed()).unwrap();
    let c = client.try_clone().unwrap();
    let t = std::thread::spawn(move || c.recv(&mut [0; 3]));
    world.settle();
    log.say("s", client.send(b"x"));
    log.say("t", t.join().unwrap());
    log.say("b", client.set_broadcast(false));
});

story!(datagrams, |world, log| {
    let (server, client) = (world.udp_server(), world.udp_client());
    let at = server.local_addr().unwrap();
    log.say("send without a peer", client.send(b"x"));
    log.say("no peer", client.peer_addr().map(drop));
    log.say("send_to", client.send_to(b"hello", at));
    let mut buf = [0; 64];
    world.settle();
    log.say("peek", server.peek_from(&mut buf).map(|(n, _)| n));
    log.say("peek a little", server.peek_from(&mut buf[..2]).map(|(n, _)| n));
    log.say("cut off", server.recv_from(&mut buf[..2]).map(|(n, from)| (n, from == client.local_addr().unwrap())));
    log.say("timeout", server.set_read_timeout(Some(Duration::from_millis(30))));
    log.say("the rest is gone", server.recv_from(&mut buf).map(drop));
    log.say("an empty one", client.send_to(b"", at));
    log.say("arrives", server.recv_from(&mut buf).map(|(n, _)| n));
    log.say("too long", client.send_to(&vec![0; world.longest() + 1], at));
    log.say("port 0", client.send_to(b"x", SocketAddr::new(at.ip(), 0)));
    log.say("connect", client.connect(at));
    log.say("peer", client.peer_addr().map(|peer| peer == at));
    log.say("send", client.send(b"abc"));
    log.say("recv", server.recv(&mut buf));
    log.say("zero", server.set_read_timeout(Some(Duration::ZERO)));
    log.say("do not wait", server.set_nonblocking(true));
    log.say("recv", server.recv(&mut buf));
    // Only the peer is heard.
    let stranger = world.udp_server();
    stranger.send_to(b"boo", client.local_addr().unwrap()).unwrap();
    server.send_to(b"yes", client.local_addr().unwrap()).unwrap();
    world.settle();
    log.say("hears", client.recv(&mut buf).map(|n| buf[..n].to_vec()));
});

story!(
    /// Of several things that are wrong the one is said that the kernel says.
    datagrams_with_several_faults over [ipv4 V4], |world, log| {
    let (server, six) = (world.udp_server(), world.udp_server_at("[::]:0".parse().unwrap()).unwrap());
    let at = server.local_addr().unwrap();
    let without_port = SocketAddr::new(at.ip(), 0);
    let mapped = SocketAddr::new(format!("::ffff:{}", at.ip()).parse().unwrap(), at.port());
    let (long, longer) = (&[0; 65_508][..], &[0; 65_536][..]);
    for client in [world.udp_client(), world.udp_any()] {
        for what in [b"x", long, longer] {
            log.say("nobody", client.send(what));
            log.say("no port", client.send_to(what, without_port));
            log.say("all", client.send_to(what, "255.255.255.255:9"));
            log.say("IPv6", client.send_to(what, "[::1]:9"));
            log.say("IPv6 without a port", client.send_to(what, "[::1]:0"));
            log.say("IPv4 in its clothes", client.send_to(what, mapped));
        }
        log.say("connect", client.connect("[::1]:9"));
        log.say("connect", client.connect(mapped));
        log.say("no address", client.connect(&[][..]));
        log.say("no address", client.send_to(b"x", &[][..]));
        log.say("the second will do", client.connect(&["[::1]:9".parse().unwrap(), at][..]));
        log.say("peer", client.peer_addr().map(|peer| peer == at));
        log.say("too long", client.send(long));
    }
    let client = world.udp_client().local_addr().unwrap();
    for what in [long, longer] {
        log.say("nobody", six.send(what));
        log.say("somebody", six.send_to(what, client));
    }
    log.say("no port", six.send_to(b"x", without_port));
});

story!(
    /// Bound to an address of IPv6, a socket reaches no address of IPv4, whatever its name.
    ipv4_peers_of_sockets_of_ipv6_alone over [ipv6 V6], |world, log| {
    let (server, client) = (world.udp_server(), world.udp_client());
    let at = server.local_addr().unwrap();
    let (long, longer) = (&[0; 65_508][..], &[0; 65_536][..]);
    for (name, group) in [("127.0.0.1", "224.0.0.251"), ("::ffff:127.0.0.1", "::ffff:224.0.0.251")] {
        for (ip, port) in [(name, 9), (name, 0), (group, 9)] {
            let peer = SocketAddr::new(ip.parse().unwrap(), port);
            log.say("connect", client.connect(peer));
            for what in [b"x", long, longer] {
                log.say("send", client.send_to(what, peer));
            }
            log.say("peer", client.peer_addr().map(drop));
            log.say("the second will do", client.connect(&[peer, at][..]));
            log.say("connect", client.connect(peer));
            log.say("peer", client.peer_addr().map(|peer| peer == at));
            log.say("send", client.send_to(b"x", peer));
        }
    }
    let only = world.udp_v6_only();
    for peer in ["127.0.0.1:9", "[::ffff:127.0.0.1]:9", "[::ffff:127.0.0.1]:0"] {
        log.say("connect", only.connect(peer));
        log.say("send", only.send_to(b"x", peer));
    }
    log.say("send", only.send_to(b"x", at));
    for what in [long, &[0; 65_527], &[0; 65_528], longer] {
        log.say("long", client.send(what));
        log.say("no port", client.send_to(what, SocketAddr::new(at.ip(), 0)));
        log.say("without a peer", world.udp_client().send(what));
    }
});

story!(
    /// The longest there can be, and the shortest, also into buffers without a byte.
    lengths_of_datagrams, |world, log| {
    let (server, client) = (world.udp_server(), world.udp_client());
    server.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let longest = world.longest();
    log.say("longest", client.send_to(&vec![7; longest], server.local_addr().unwrap()));
    let mut buf = vec![0; 70_000];
    log.say("recv", server.recv_from(&mut buf).map(|(n, _)| (n, buf[longest - 1], buf[longest])));
    log.say("connect", client.connect(server.local_addr().unwrap()));
    log.say("shortest", client.send(b""));
    log.say("into nothing", server.recv(&mut []));
    log.say("one byte", client.send(b"x"));
    log.say("peek into nothing", server.peek(&mut []));
    log.say("into nothing", server.recv(&mut []));
    server.set_nonblocking(true).unwrap();
    log.say("it is gone", server.recv(&mut buf));
    log.say("to peek at, too", server.peek(&mut buf));
});

story!(
    /// What was sent before the close goes out after it.
    many_datagrams_and_a_close, |world, log| {
    let (server, client) = (world.udp_server(), world.udp_client());
    server.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    for i in 0..200 {
        client.send_to(&[i; 10], server.local_addr().unwrap()).unwrap();
    }
    drop(client);
    let mut buf = [0; 20];
    log.say("recv", (0..200).map(|_| server.recv(&mut buf).map(|_| buf[0])).collect::<io::Result<Vec<_>>>());
});

story!(a_datagram_for_nobody, |world, log| {
    let client = world.udp_client();
    client.connect(world.closed()).unwrap();
    log.say("send", client.send(b"x"));
    world.settle();
    log.say("recv", client.recv(&mut [0; 4]));
    log.say("send again", client.send(b"x"));
    world.settle();
    log.say("error", error_of(client.take_error()));
});

story!(
    /// It is said to who was connected to the one who refused when he did.
    whom_a_refusal_concerns, |world, log| {
    let (client, server, closed) = (world.udp_client(), world.udp_server(), world.closed());
    let at = server.local_addr().unwrap();
    client.set_nonblocking(true).unwrap();
    log.say("without a peer", client.send_to(b"x", closed));
    world.settle();
    log.say("connect", client.connect(closed));
    log.say("recv", client.recv(&mut [0; 4]));
    log.say("send", client.send(b"x"));
    world.settle();
    log.say("connect to another", client.connect(at));
    log.say("recv", client.recv(&mut [0; 4]));
    log.say("recv", client.recv(&mut [0; 4]));
    log.say("to one who is not the peer", client.send_to(b"x", closed));
    world.settle();
    log.say("error", error_of(client.take_error()));
    log.say("connect back", client.connect(closed));
    log.say("recv", client.recv(&mut [0; 4]));
    log.say("send", client.send(b"x"));
    world.settle();
    log.say("to another", client.send_to(b"x", at));
    log.say("again", client.send_to(b"x", at));
    log.say("connect to any port", client.connect(SocketAddr::new(at.ip(), 0)));
    log.say("send", client.send_to(b"x", closed));
    world.settle();
    log.say("peek", client.peek(&mut [0; 4]));
    log.say("recv", client.recv(&mut [0; 4]));
});

story!(
    /// Said before what had come.
    a_refusal_and_a_datagram, |world, log| {
    let (client, server) = (world.udp_client(), world.udp_server());
    client.set_nonblocking(true).unwrap();
    client.connect(server.local_addr().unwrap()).unwrap();
    log.say("send", server.send_to(b"data", client.local_addr().unwrap()));
    world.settle();
    drop(server);
    world.settle();
    log.say("send", client.send(b"x"));
    world.settle();
    for _ in 0..3 {
        log.say("recv", client.recv(&mut [0; 4]));
    }
});

story!(
    /// Who is connected to port 0 hears all of its peer's ports.
    any_port_of_one_host, |world, log| {
    let (client, server) = (world.udp_client(), world.udp_server());
    let (here, at) = (client.local_addr().unwrap(), server.local_addr().unwrap());
    client.set_nonblocking(true).unwrap();
    for to in [SocketAddr::new(at.ip(), 0), at] {
        log.say("connect", client.connect(to));
        log.say("from one port", server.send_to(b"one", here));
        world.settle();
        log.say("recv", client.recv_from(&mut [0; 4]).map(|(n, from)| (n, from == at)));
        log.say("from another", world.udp_server().send_to(b"other", here));
        world.settle();
        log.say("recv", client.recv_from(&mut [0; 8]).map(|(n, from)| (n, from == at)));
    }
});

story!(a_connect_gives_a_name, |world, log| {
    let (server, client) = (world.udp_server(), world.udp_any());
    let at = server.local_addr().unwrap();
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    log.say("any", client.local_addr().map(|here| here.ip()));
    log.say("connect", client.connect(at));
    let here = client.local_addr().unwrap();
    log.say("a name", Ok((here.ip().is_unspecified(), here.port() == 0)));
    log.say("send", client.send(b"x"));
    log.say("from there", server.recv_from(&mut [0; 4]).map(|(n, from)| (n, from == here)));
    log.say("back", server.send_to(b"yes", here));
    log.say("recv", client.recv(&mut [0; 4]));
});

/// The kernel hands out what others had sent before the connect, as if the peer had. Who has connected takes it for the peer's, so ours drops it.
#[test]
fn what_came_from_others_before_a_connect_is_not_heard() {
    for family in [Family::V4, Family::V6] {
        let world = Ours::new(family);
        let (client, server) = (world.udp_client(), world.udp_server());
        client.set_nonblocking(true).unwrap();
        for from in [&world.udp_server(), &server] {
            from.send_to(&from.local_addr().unwrap().port().to_be_bytes(), client.local_addr().unwrap()).unwrap();
        }
        world.settle();
        client.connect(server.local_addr().unwrap()).unwrap();
        let mut buf = [0; 4];
        assert_eq!(client.recv(&mut buf).unwrap(), 2);
        assert_eq!(buf[..2], server.local_addr().unwrap().port().to_be_bytes());
        assert_eq!(client.recv(&mut buf).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}

/// Where a datagram cannot go, who sends it is told. What the kernel says depends on its machine's routes, so this is ours alone: what it
/// says with such routes.
#[test]
fn a_datagram_that_can_go_nowhere_is_refused() {
    let world = Ours::new(Family::V4);
    let (any, bound) = (world.udp_any(), world.udp_client());
    let kinds = |socket: &laneway::UdpSocket, to: &str| {
        let kind = |error: io::Error| error.kind();
        (socket.send_to(b"x", to).map_err(kind), socket.connect(to).map_err(kind))
    };
    for (to, kind) in [
        ("192.0.2.1:9", io::ErrorKind::NetworkUnreachable),
        ("255.255.255.255:9", io::ErrorKind::PermissionDenied),
        ("10.0.0.255:9", io::ErrorKind::PermissionDenied),
        // Groups the kernel does, and we do not.
        ("224.0.0.251:5353", io::ErrorKind::Unsupported),
    ] {
        assert_eq!(kinds(&any, to), (Err(kind), Err(kind)), "{to}");
        assert_eq!(kinds(&bound, to), (Err(kind), Err(kind)), "{to}");
    }
    // A connect that comes to nothing leaves everything as it was.
    any.connect("10.0.0.1:9").unwrap();
    any.connect("192.0.2.1:9").unwrap_err();
    assert_eq!(any.peer_addr().unwrap(), "10.0.0.1:9".parse().unwrap());
    assert_eq!(any.local_addr().unwrap().ip().to_string(), "10.0.0.2");
    assert_eq!(any.send(b"x").unwrap(), 1);
}

/// Nobody answers at all: the kernel's loopback has no such address, so this is ours alone.
#[test]
fn silence_is_a_timeout() {
    let world = Ours::new(Family::V4);
    let start = std::time::Instant::now();
    let error = world.connect_timeout("10.0.0.77:80".parse().unwrap(), Duration::from_millis(100)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert!(start.elapsed() >= Duration::from_millis(100));
    let error = world.connect("192.0.2.7:80").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NetworkUnreachable);
}

/// What a thread has entered it leaves in any order. The kernel has but one stack, so this is ours alone.
#[test]
fn stacks_are_left_in_any_order() {
    let world = Ours::new(Family::V4);
    let bind = |at: &str| laneway::UdpSocket::bind(at).map(drop).map_err(|error| error.kind());
    let (server, client) = (world.server.enter(), world.client.enter());
    assert_eq!(bind("10.0.0.2:0"), Ok(()));
    drop(server);
    assert_eq!(bind("10.0.0.2:0"), Ok(()), "the client's is the one that was entered last");
    let again = world.server.enter();
    assert_eq!(bind("10.0.0.1:0"), Ok(()));
    drop(again);
    assert_eq!(bind("10.0.0.2:0"), Ok(()));
    drop(client);
    assert!(bind("10.0.0.2:0").is_err());
}
