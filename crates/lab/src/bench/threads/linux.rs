//! Owns the kernel's sockets as a network for application threads: `std::net` over loopback, and `epoll`.

use super::super::crew::ADDRESSES;
use super::super::peer_linux::tw_evicted;
use super::net::{Net, Ready};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use rustix::time::Timespec;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

const EVENTS: usize = 1_024;
/// The most pairs of threads.
const PAIRS_MAX: usize = 64;

/// The kernel.
pub struct Kernel {
    /// The port of each pair's listener.
    ports: [AtomicU16; PAIRS_MAX],
    /// What the kernel had counted at the start.
    evicted_before: Option<u64>,
}

/// A watch of the kernel's.
pub struct Watch {
    epoll: OwnedFd,
    events: Vec<Event>,
}

impl Kernel {
    /// Nothing yet.
    pub fn new() -> Self {
        Kernel { ports: std::array::from_fn(|_| AtomicU16::new(0)), evicted_before: tw_evicted() }
    }

    /// From and to the same address of the loopback network: that spares the kernel a `bind`.
    fn at(&self, pair: usize, number: usize) -> SocketAddrV4 {
        let host = Ipv4Addr::new(127, 0, 1, 1 + (number % ADDRESSES) as u8);
        SocketAddrV4::new(host, self.ports[pair].load(Ordering::Acquire))
    }

    fn socket(flags: SocketFlags) -> Result<OwnedFd, Errno> {
        rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC | flags, None)
    }
}

fn add(watch: &Watch, socket: impl AsFd, key: usize, flags: EventFlags) -> io::Result<()> {
    Ok(epoll::add(&watch.epoll, socket, EventData::new_u64(key as u64), flags)?)
}

impl Net for Kernel {
    type Stream = TcpStream;
    type Listener = TcpListener;
    type Poller = Watch;
    const BLOCKING: &'static str = "thread, blocking";
    const POLLING: &'static str = "thread, epoll";
    const DEVICE: &'static str = "loopback";
    const LANES: usize = 0;

    fn checksums(&self) -> &'static str {
        "offload" // loopback leaves them out
    }
    fn lane_cpu_s(&self) -> Option<f64> {
        None
    }

    fn tw_evicted(&self) -> Option<u64> {
        Some(tw_evicted()? - self.evicted_before?)
    }

    fn listen(&self, pair: usize) -> io::Result<TcpListener> {
        let listener = Self::socket(SocketFlags::empty())?;
        sockopt::set_socket_reuseaddr(&listener, true)?;
        rustix::net::bind(&listener, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))?;
        rustix::net::listen(&listener, 65_535)?;
        let listener = TcpListener::from(listener);
        self.ports[pair].store(listener.local_addr()?.port(), Ordering::Release);
        Ok(listener)
    }
    fn accept(&self, listener: &TcpListener) -> io::Result<TcpStream> {
        listener.accept().map(|(stream, _)| stream)
    }
    fn accept_without_waiting(&self, listener: &TcpListener) -> io::Result<()> {
        listener.set_nonblocking(true)
    }
    fn connect(&self, pair: usize, number: usize) -> io::Result<TcpStream> {
        TcpStream::connect(self.at(pair, number))
    }
    fn begin(&self, pair: usize, number: usize) -> io::Result<TcpStream> {
        let socket = Self::socket(SocketFlags::NONBLOCK)?;
        match rustix::net::connect(&socket, &self.at(pair, number)) {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(TcpStream::from(socket)),
            Err(errno) => Err(errno.into()),
        }
    }
    fn prepare(&self, stream: &TcpStream, nonblocking: bool, resets: bool) -> io::Result<()> {
        if nonblocking {
            stream.set_nonblocking(true)?;
        }
        if resets {
            sockopt::set_socket_linger(stream, Some(Duration::ZERO))?;
        }
        stream.set_nodelay(true)
    }
    fn read(&self, mut stream: &TcpStream, buf: &mut [u8]) -> io::Result<usize> {
        stream.read(buf)
    }
    fn write(&self, mut stream: &TcpStream, buf: &[u8]) -> io::Result<usize> {
        stream.write(buf)
    }

    fn poller(&self) -> io::Result<Watch> {
        Ok(Watch { epoll: epoll::create(CreateFlags::CLOEXEC)?, events: Vec::with_capacity(EVENTS) })
    }
    fn watch_listener(&self, watch: &Watch, listener: &TcpListener, key: usize) -> io::Result<()> {
        add(watch, listener, key, EventFlags::IN)
    }
    fn watch(&self, watch: &Watch, stream: &TcpStream, key: usize, writes: bool) -> io::Result<()> {
        let room = if writes { EventFlags::OUT } else { EventFlags::empty() };
        add(watch, stream, key, EventFlags::IN | EventFlags::ET | room)
    }
    fn watch_reads(&self, _: &Watch, _: &TcpStream, _: usize) -> io::Result<()> {
        Ok(()) // room makes an edge only after there was none: it costs nothing to stay interested
    }
    fn forget(&self, _: &Watch, _: &TcpStream, _: usize) -> io::Result<()> {
        Ok(()) // the close does it
    }
    fn wait(&self, watch: &mut Watch, ready: &mut Vec<Ready>) -> io::Result<()> {
        watch.events.clear();
        let most = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        match epoll::wait(&watch.epoll, rustix::buffer::spare_capacity(&mut watch.events), Some(&most)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let writable = |flags: EventFlags| flags.contains(EventFlags::OUT) && !flags.contains(EventFlags::ERR);
        ready.extend(
            watch.events.iter().map(|event| Ready { key: event.data.u64() as usize, writable: writable(event.flags) }),
        );
        Ok(())
    }
}
