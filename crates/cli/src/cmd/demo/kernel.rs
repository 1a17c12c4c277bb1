//! Owns the kernel's half of the demo: the same work over its loopback, with epoll, both ends in one thread.

use super::ours::thread_cpu;
use super::{REQUEST, RESPONSE, Tally};
use crate::open_files;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, accept_with, bind, connect, ipproto, listen, recv,
    send, socket_with, sockopt,
};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

/// Ports of one address are soon used up by TIME_WAIT; the loopback network has sixteen million addresses.
const ADDRESSES: u8 = 250;
/// The token of listening sockets.
const LISTENER: u64 = u64::MAX;

struct Conn {
    fd: OwnedFd,
    is_server: bool,
    seen: usize,
}

/// One core's share.
pub struct Pair {
    epoll: OwnedFd,
    listener: OwnedFd,
    port: u16,
    net: u8,
    next: u8,
    conns: Vec<Option<Conn>>,
    free: Vec<usize>,
    most: usize,
    running: usize,
    done: u64,
    failed: u64,
}

/// Lets this process open as many files as the turns need: two sockets for each connection, and what every program has.
/// Otherwise: how many are needed, and how many may be had.
pub fn make_room(cores: usize, conns: usize) -> Result<(), (u64, u64)> {
    let needed = (cores * (2 * conns + 4) + 64) as u64;
    match open_files::raise() {
        Some(most) if most < needed => Err((needed, most)),
        _ => Ok(()),
    }
}

fn say(what: &'static str) -> impl Fn(Errno) -> String {
    move |error| format!("{what}: {error}")
}

impl Pair {
    /// A listening socket and what watches it.
    pub fn new(core: usize, conns: usize) -> Result<Self, String> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let listener =
            socket_with(AddressFamily::INET, SocketType::STREAM, flags, Some(ipproto::TCP)).map_err(say("socket"))?;
        sockopt::set_socket_reuseaddr(&listener, true).map_err(say("SO_REUSEADDR"))?;
        bind(&listener, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)).map_err(say("bind"))?;
        listen(&listener, 4_096).map_err(say("listen"))?;
        let name = rustix::net::getsockname(&listener).map_err(say("getsockname"))?;
        let port = SocketAddrV4::try_from(name).map_err(say("getsockname"))?.port();
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(say("epoll"))?;
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN).map_err(say("epoll"))?;
        let net = (core % 200) as u8 + 1;
        Ok(Pair {
            epoll,
            listener,
            port,
            net,
            next: 0,
            conns: Vec::new(),
            free: Vec::new(),
            most: conns,
            running: 0,
            done: 0,
            failed: 0,
        })
    }

    /// Makes connections for so long, and lets the last ones end.
    pub fn run(&mut self, turn: Duration) -> Result<Tally, String> {
        (self.done, self.failed) = (0, 0);
        let (begin, cpu) = (Instant::now(), thread_cpu());
        while begin.elapsed() < turn {
            while self.running < self.most {
                self.open()?;
            }
            self.poll()?;
        }
        let tally = Tally {
            done: self.done,
            failed: self.failed,
            seconds: begin.elapsed().as_secs_f64(),
            cpu_seconds: thread_cpu() - cpu,
        };
        let patience = Instant::now();
        while self.running > 0 && patience.elapsed() < Duration::from_secs(2) {
            self.poll()?;
        }
        Ok(tally)
    }

    fn watch(&mut self, fd: OwnedFd, is_server: bool, flags: EventFlags) -> Result<(), String> {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.conns.push(None);
            self.conns.len() - 1
        });
        epoll::add(&self.epoll, &fd, EventData::new_u64(slot as u64), flags).map_err(say("epoll"))?;
        self.conns[slot] = Some(Conn { fd, is_server, seen: 0 });
        Ok(())
    }

    fn open(&mut self) -> Result<(), String> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let fd =
            socket_with(AddressFamily::INET, SocketType::STREAM, flags, Some(ipproto::TCP)).map_err(say("socket"))?;
        self.next = self.next % ADDRESSES + 1;
        let to = SocketAddrV4::new(Ipv4Addr::new(127, self.net, self.next, 1), self.port);
        match connect(&fd, &to) {
            // Over the loopback the handshake is over before connect returns, though it may say otherwise.
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(format!("connect: {error}")),
        }
        self.running += 1;
        match send(&fd, &[b'q'; REQUEST], SendFlags::NOSIGNAL) {
            Ok(REQUEST) => self.watch(fd, /* is_server: */ false, EventFlags::IN),
            Err(Errno::AGAIN) => self.watch(fd, /* is_server: */ false, EventFlags::IN | EventFlags::OUT),
            _ => {
                self.failed += 1;
                self.running -= 1;
                Ok(())
            }
        }
    }

    fn poll(&mut self) -> Result<(), String> {
        let mut events: Vec<Event> = Vec::with_capacity(256);
        let timeout = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
        match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(format!("epoll: {error}")),
        }
        for event in events {
            match event.data.u64() {
                LISTENER => self.accept()?,
                slot => self.ready(slot as usize, event.flags)?,
            }
        }
        Ok(())
    }

    fn accept(&mut self) -> Result<(), String> {
        loop {
            match accept_with(&self.listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(fd) => self.serve_at_once(fd)?,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::CONNABORTED | Errno::INTR) => {}
                Err(error) => return Err(format!("accept: {error}")),
            }
        }
    }

    /// The request is usually there already: then epoll need not be troubled.
    fn serve_at_once(&mut self, fd: OwnedFd) -> Result<(), String> {
        let mut buffer = [0; 512];
        match recv(&fd, &mut buffer, RecvFlags::empty()) {
            Ok((_, REQUEST)) => {
                if send(&fd, &[b'r'; RESPONSE], SendFlags::NOSIGNAL) != Ok(RESPONSE) {
                    self.failed += 1;
                }
                Ok(()) // dropped, and closed by that
            }
            Err(Errno::AGAIN) => self.watch(fd, /* is_server: */ true, EventFlags::IN),
            _ => {
                self.failed += 1;
                Ok(())
            }
        }
    }

    fn ready(&mut self, slot: usize, flags: EventFlags) -> Result<(), String> {
        let Some(conn) = self.conns.get_mut(slot).and_then(Option::as_mut) else { return Ok(()) };
        if flags.contains(EventFlags::OUT) && !conn.is_server {
            let sent = send(&conn.fd, &[b'q'; REQUEST], SendFlags::NOSIGNAL) == Ok(REQUEST);
            let modified =
                epoll::modify(&self.epoll, &conn.fd, EventData::new_u64(slot as u64), EventFlags::IN).is_ok();
            if !sent || !modified {
                self.end(slot, /* is_right: */ false);
                return Ok(());
            }
        }
        let mut buffer = [0; 512];
        loop {
            let Some(conn) = self.conns.get_mut(slot).and_then(Option::as_mut) else { return Ok(()) };
            match recv(&conn.fd, &mut buffer, RecvFlags::empty()) {
                Ok((_, 0)) => {
                    let is_right = !conn.is_server && conn.seen == RESPONSE;
                    self.end(slot, is_right);
                }
                Ok((_, n)) => {
                    conn.seen += n;
                    if conn.is_server && conn.seen == REQUEST {
                        let sent = send(&conn.fd, &[b'r'; RESPONSE], SendFlags::NOSIGNAL) == Ok(RESPONSE);
                        self.end(slot, sent);
                    }
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(_) => self.end(slot, /* is_right: */ false),
            }
        }
    }

    fn end(&mut self, slot: usize, is_right: bool) {
        let Some(conn) = self.conns[slot].take() else { return };
        self.free.push(slot);
        if !conn.is_server {
            self.running -= 1;
            self.done += u64::from(is_right);
        }
        self.failed += u64::from(!is_right);
    }
}
