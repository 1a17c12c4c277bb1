//! Owns the sockets that Rust programmers know: blocking, on any thread, with the methods of `std::net`.

mod inherited;
mod keepalive;
mod late;
mod listener;
mod options;
mod poller;
mod socket;
mod stack;
mod stream;
mod udp;

pub use keepalive::TcpKeepalive;
pub use laneway_stack::proto::tcp::Info as TcpInfo;
pub use listener::{Incoming, TcpListener};
pub use poller::{Event, Interest, Mode, Poller, Source};
#[cfg(feature = "tokio")]
pub(crate) use poller::{Glance, source};
pub use socket::TcpSocket;
pub use stack::{Builder, Entered, Stack};
#[cfg(feature = "tokio")]
pub(crate) use stream::Inquiry;
pub use stream::TcpStream;
pub use udp::UdpSocket;

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// As those of `std::net`, which can be taken into [`catch_unwind`](std::panic::catch_unwind): no call that panics leaves one half done.
macro_rules! outlives_panics {
    ($($socket:ty)+) => {
        $(
            impl std::panic::UnwindSafe for $socket {}
            impl std::panic::RefUnwindSafe for $socket {}
        )+
    };
}
outlives_panics! { TcpListener TcpSocket TcpStream UdpSocket Stack }
#[cfg(feature = "tokio")]
pub(crate) use outlives_panics;

/// An address as a socket names it: to one whose own address is of IPv6, an IPv4 address wears the clothes of IPv6, as the kernel has it.
fn named(is_v6: bool, at: SocketAddr) -> SocketAddr {
    match at.ip() {
        IpAddr::V4(ip) if is_v6 => SocketAddr::new(ip.to_ipv6_mapped().into(), at.port()),
        _ => at,
    }
}

/// Tries each address until one does.
fn each<A: ToSocketAddrs, T>(addresses: A, mut act: impl FnMut(SocketAddr) -> io::Result<T>) -> io::Result<T> {
    let mut last = None;
    for address in addresses.to_socket_addrs()? {
        match act(address) {
            Ok(done) => return Ok(done),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "could not resolve to any addresses")))
}

/// What `std` says itself, so that no errno is in it.
fn no_time_at_all() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "cannot set a 0 duration timeout")
}

/// As the timeouts of `std::net`: none, or more than nothing. Kept in milliseconds, rounded up; what is longer than can be counted so, and
/// that is more than 49 days, is none. The kernel has it so, too, though it counts farther.
fn set_timeout(place: &AtomicU32, timeout: Option<Duration>) -> io::Result<()> {
    let ms = match timeout {
        None => u32::MAX,
        Some(Duration::ZERO) => return Err(no_time_at_all()),
        Some(timeout) => timeout.as_nanos().div_ceil(1_000_000).min(u32::MAX.into()) as u32,
    };
    place.store(ms, Relaxed);
    Ok(())
}

fn timeout(place: &AtomicU32) -> Option<Duration> {
    match place.load(Relaxed) {
        u32::MAX => None,
        ms => Some(Duration::from_millis(ms.into())),
    }
}

fn deadline(place: &AtomicU32) -> Option<Instant> {
    timeout(place).and_then(after)
}

/// When so much time is over. `None`: never, for it is more than can be counted.
fn after(timeout: Duration) -> Option<Instant> {
    Instant::now().checked_add(timeout)
}
