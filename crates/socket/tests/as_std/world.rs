//! The two worlds in which a story plays: how to make sockets there, and what their calls said.

use crate::common::rounds;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use std::fmt::{Debug, Write as _};
use std::os::fd::AsFd;
use std::sync::OnceLock;

pub use std::io::{self, Read, Write};
pub use std::net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr, ToSocketAddrs};
pub use std::time::Duration;

/// What a story's calls said.
#[derive(Default)]
pub struct Log(pub String);

impl Log {
    pub fn say<T: Debug>(&mut self, what: &str, result: io::Result<T>) {
        let said = match result {
            Ok(value) => format!("{value:?}"),
            Err(error) => failed(&error),
        };
        writeln!(self.0, "{what}: {said}").unwrap();
    }
}

/// A kind of error, and its number: some kinds have no name that a program could ask for, and some errors have no number.
pub fn failed(error: &io::Error) -> String {
    format!("error: {:?}, {:?}", error.kind(), error.raw_os_error())
}

/// The first line on which they do not agree, and those before it.
pub fn compare(ours: &str, kernel: &str) {
    let differ = ours.lines().zip(kernel.lines()).position(|(ours, kernel)| ours != kernel);
    let Some(at) = differ else { return assert_eq!(ours, kernel) };
    let before: Vec<_> = ours.lines().take(at).collect();
    let [ours, kernel] = [ours, kernel].map(|told| told.lines().nth(at).unwrap_or_default());
    panic!("{}\nours:   {ours}\nkernel: {kernel}", before.join("\n"));
}

/// What `take_error` says.
pub fn error_of(taken: io::Result<Option<io::Error>>) -> io::Result<Option<io::ErrorKind>> {
    taken.map(|error| error.map(|error| error.kind()))
}

/// Longer than an ACK is put off (40 ms, here and in the kernel).
pub const MOMENT: Duration = Duration::from_millis(60);

/// Over which of the two a story plays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    pub fn choose(self, v4: &str, v6: &str) -> IpAddr {
        match self {
            Family::V4 => v4.parse().unwrap(),
            Family::V6 => v6.parse().unwrap(),
        }
    }

    /// Some machines have no loopback of IPv6, and so nothing to compare with.
    pub fn is_here(self) -> bool {
        let is_here = std::net::UdpSocket::bind((self.choose("127.0.0.1", "::1"), 0)).is_ok();
        if !is_here {
            eprintln!("SKIPPED: this machine's loopback has no address of {self:?}");
        }
        is_here
    }
}

/// Where a story plays: how to make its sockets.
pub trait World {
    type Listener;
    type Stream;
    type Udp;
    fn family(&self) -> Family;
    /// The address of the host that listens, of either family.
    fn server_of(&self, family: Family) -> IpAddr;
    /// The address of the host that connects.
    fn client(&self) -> IpAddr;
    /// Another one of it; the kernel's loopback has none of IPv6.
    fn another_of_client(&self) -> IpAddr;
    /// The address that means every host of their network, which IPv6 has not.
    fn everybody(&self) -> IpAddr;
    fn listen_at(&self, at: SocketAddr) -> io::Result<Self::Listener>;
    fn connect<A: ToSocketAddrs>(&self, to: A) -> io::Result<Self::Stream>;
    fn connect_timeout(&self, to: SocketAddr, timeout: Duration) -> io::Result<Self::Stream>;
    fn udp_server_at(&self, at: SocketAddr) -> io::Result<Self::Udp>;
    fn udp_client_at(&self, at: SocketAddr) -> io::Result<Self::Udp>;
    /// A socket of the server with `SO_REUSEADDR`.
    fn udp_shared(&self, at: SocketAddr) -> Self::Udp;
    /// A socket of the client for any address, with `IPV6_V6ONLY`.
    fn udp_v6_only(&self) -> Self::Udp;
    /// A non-blocking `connect`.
    fn begin_connect(&self, to: SocketAddr) -> Self::Stream;
    /// Where nobody answers, while the second part is kept.
    fn unanswered(&self) -> (SocketAddr, Vec<Self::Stream>);
    /// An address of the server, where nothing listens.
    fn closed(&self) -> SocketAddr;
    /// Until all that was sent has arrived, and been answered, however slow the machine is; `moment` for what is put off until later.
    fn settle_for(&self, moment: Duration);

    fn settle(&self) {
        self.settle_for(MOMENT);
    }
    /// A non-blocking `connect` that nobody answers, while the second part is kept.
    fn begin_connect_unanswered(&self) -> (Self::Stream, Vec<Self::Stream>) {
        let (at, kept) = self.unanswered();
        (self.begin_connect(at), kept)
    }

    fn server(&self) -> IpAddr {
        self.server_of(self.family())
    }
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

/// Both hosts are one, which has this address on the loopback.
pub struct Kernel(pub IpAddr);

impl Kernel {
    pub fn new(family: Family) -> Self {
        Kernel(family.choose("127.0.0.1", "::1"))
    }

    /// A port where nothing listens, and that nobody is given who asks for one that is free.
    fn closed_port(&self) -> u16 {
        let refuses = |port| {
            let nobody = |kind| kind == io::ErrorKind::ConnectionRefused;
            let at = (self.0, port);
            let said = std::net::UdpSocket::bind((self.0, 0)).and_then(|udp| {
                udp.set_read_timeout(Some(MOMENT))?;
                udp.connect(at)?;
                udp.send(b"x")?;
                udp.recv(&mut [0; 4])
            });
            std::net::TcpStream::connect(at).is_err_and(|error| nobody(error.kind()))
                && said.is_err_and(|error| nobody(error.kind()))
        };
        static PORTS: [OnceLock<u16>; 2] = [OnceLock::new(), OnceLock::new()];
        let port = &PORTS[usize::from(self.0.is_ipv6())];
        *port.get_or_init(|| (9..1024).find(|port| refuses(*port)).expect("not everything is served here"))
    }
}

impl World for Kernel {
    type Listener = std::net::TcpListener;
    type Stream = std::net::TcpStream;
    type Udp = std::net::UdpSocket;
    fn family(&self) -> Family {
        if self.0.is_ipv4() { Family::V4 } else { Family::V6 }
    }
    fn server_of(&self, family: Family) -> IpAddr {
        if family == self.family() { self.0 } else { family.choose("127.0.0.1", "::1") }
    }
    fn client(&self) -> IpAddr {
        self.server()
    }
    fn another_of_client(&self) -> IpAddr {
        "127.0.0.2".parse().unwrap()
    }
    fn everybody(&self) -> IpAddr {
        "127.255.255.255".parse().unwrap()
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
    fn udp_shared(&self, at: SocketAddr) -> Self::Udp {
        let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = rustix::net::socket(family, SocketType::DGRAM, None).unwrap();
        sockopt::set_socket_reuseaddr(&socket, true).unwrap();
        rustix::net::bind(&socket, &at).unwrap();
        socket.into()
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
    fn unanswered(&self) -> (SocketAddr, Vec<Self::Stream>) {
        // Whose queue is full says nothing to a SYN.
        let listener = self.listen();
        rustix::net::listen(&listener, 0).unwrap();
        let at = listener.local_addr().unwrap();
        let mut first: Vec<_> = (0..3).map(|_| self.begin_connect(at)).collect();
        self.settle();
        first.push(std::os::fd::OwnedFd::from(listener).into());
        (at, first)
    }
    fn closed(&self) -> SocketAddr {
        SocketAddr::new(self.0, self.closed_port())
    }
    fn settle_for(&self, moment: Duration) {
        // What is sent through the loopback arrives within the call that sends it.
        std::thread::sleep(moment);
    }
}

pub struct Ours {
    family: Family,
    pub server: laneway::Stack,
    pub client: laneway::Stack,
}

impl Ours {
    pub fn new(family: Family) -> Self {
        Ours::of_lanes(1, family)
    }

    /// With so many lanes at each end.
    pub fn of_lanes(lanes: usize, family: Family) -> Self {
        let (here, there) = laneway::Device::memory_pair(lanes).unwrap();
        let start = |device, addresses: &[&str]| {
            let builder = laneway::Stack::builder(device);
            let named = addresses.iter().fold(builder, |builder, address| builder.address(address).unwrap());
            named.start().unwrap()
        };
        Ours {
            family,
            server: start(here, &["10.0.0.1/24", "fd00::1/64"]),
            client: start(there, &["10.0.0.2/24", "fd00::2/64", "10.0.0.4/24", "fd00::4/64"]),
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
    fn server_of(&self, family: Family) -> IpAddr {
        family.choose("10.0.0.1", "fd00::1")
    }
    fn client(&self) -> IpAddr {
        self.family.choose("10.0.0.2", "fd00::2")
    }
    fn another_of_client(&self) -> IpAddr {
        self.family.choose("10.0.0.4", "fd00::4")
    }
    fn everybody(&self) -> IpAddr {
        "10.0.0.255".parse().unwrap()
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
    fn udp_shared(&self, at: SocketAddr) -> Self::Udp {
        let options = laneway::BindOptions { reuse_address: true, ..Default::default() };
        laneway::UdpSocket::bind_with(&self.server, at, options).unwrap()
    }
    fn udp_v6_only(&self) -> Self::Udp {
        let options = laneway::BindOptions { only_v6: true, ..Default::default() };
        laneway::UdpSocket::bind_with(&self.client, "[::]:0", options).unwrap()
    }
    fn begin_connect(&self, to: SocketAddr) -> Self::Stream {
        laneway::TcpStream::begin_connect_on(&self.client, &to).unwrap()
    }
    fn unanswered(&self) -> (SocketAddr, Vec<Self::Stream>) {
        ((self.family.choose("10.0.0.77", "fd00::77"), 80).into(), Vec::new())
    }
    fn closed(&self) -> SocketAddr {
        SocketAddr::new(self.server(), 9)
    }
    fn settle_for(&self, moment: Duration) {
        rounds([&self.client, &self.server]);
        std::thread::sleep(moment); // what a lane has put off until later
        rounds([&self.client, &self.server]);
    }
}

/// What `std::net` does not let one set (yet).
pub trait Options {
    fn set_lingers(&self, linger: Option<Duration>) -> io::Result<()>;
    fn lingers(&self) -> io::Result<Option<Duration>>;
    fn set_keeps_alive(&self, keepalive: bool) -> io::Result<()>;
    fn keeps_alive(&self) -> io::Result<bool>;
    fn set_gives_up_after(&self, timeout_ms: u32) -> io::Result<()>;
    fn gives_up_after(&self) -> io::Result<u32>;
    /// `TCP_KEEPIDLE`, `TCP_KEEPINTVL` (in seconds) and `TCP_KEEPCNT`; the first that is refused.
    fn set_keepalive_times(&self, says: [u32; 3]) -> io::Result<()>;
    fn keepalive_times(&self) -> io::Result<[u64; 3]>;
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
    fn set_keepalive_times(&self, [idle_s, interval_s, probes]: [u32; 3]) -> io::Result<()> {
        sockopt::set_tcp_keepidle(self, Duration::from_secs(idle_s.into()))?;
        sockopt::set_tcp_keepintvl(self, Duration::from_secs(interval_s.into()))?;
        sockopt::set_tcp_keepcnt(self, probes)?;
        Ok(sockopt::set_socket_keepalive(self, true)?)
    }
    fn keepalive_times(&self) -> io::Result<[u64; 3]> {
        let [idle, interval] = [sockopt::tcp_keepidle(self)?, sockopt::tcp_keepintvl(self)?];
        Ok([idle.as_secs(), interval.as_secs(), sockopt::tcp_keepcnt(self)?.into()])
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
    fn set_keepalive_times(&self, [idle_s, interval_s, probes]: [u32; 3]) -> io::Result<()> {
        let times = laneway::TcpKeepalive::new().with_time(Duration::from_secs(idle_s.into()));
        self.set_tcp_keepalive(&times.with_interval(Duration::from_secs(interval_s.into())).with_retries(probes))
    }
    fn keepalive_times(&self) -> io::Result<[u64; 3]> {
        let [idle, interval] = [self.tcp_keepalive_time()?, self.tcp_keepalive_interval()?];
        Ok([idle.as_secs(), interval.as_secs(), self.tcp_keepalive_retries()?.into()])
    }
}

/// What a poller says: whether one can read, and write.
pub fn ready_for_kernel(socket: &impl AsFd) -> (bool, bool) {
    let mut asked = [PollFd::new(socket, PollFlags::IN | PollFlags::OUT)];
    poll(&mut asked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap();
    // Who waits is told of an error and of the end, whatever he waits for; our pollers have no other words for them.
    let says = |flag| asked[0].revents().intersects(flag | PollFlags::ERR | PollFlags::HUP);
    (says(PollFlags::IN), says(PollFlags::OUT))
}

pub fn ready_for_ours(socket: &impl laneway::Source) -> (bool, bool) {
    let poller = laneway::Poller::new().unwrap();
    poller.add(socket, 0, laneway::Interest::BOTH, laneway::Mode::Level).unwrap();
    let mut events = Vec::new();
    poller.wait(&mut events, Some(Duration::ZERO)).unwrap();
    events.first().map_or((false, false), |event| (event.readable, event.writable))
}

macro_rules! polled {
    ($($socket:ident)+) => {
        /// Whether one can read, and write.
        pub trait Polled {
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
                    let ($world, mut log) = (Kernel::new(family), Log::default());
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
pub trait Pairs: World {
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
