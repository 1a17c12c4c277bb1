//! Owns the kernel as a contender: TCP over loopback, an epoll server on core 0, an epoll client on core 1.
//!
//! It gets 64 addresses (of 127/8) too, so that it never runs out of ports, and the server closes first.

use super::contender::{Account, Contender, Round, Share};
use super::crew::ADDRESSES;
use super::crr::{REQUEST, RESPONSE};
use super::failure::Failure;
use super::latency::Stopwatch;
use super::machine;
use super::options::Unit;
use super::stream::MEBIBYTE;
use hdrhistogram::Histogram;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use rustix::time::Timespec;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const LISTENER: u64 = u64::MAX;
const EVENTS: usize = 512;
/// Bytes that are read or written in one call of a stream.
const CHUNK: usize = 65_536;
/// Descriptors that are left for everything else.
const SPARE_FILES: u64 = 256;

/// Where a round is.
const STARTING: u8 = 0;
const MEASURING: u8 = 1;
const ENDING: u8 = 2;

/// Linux, doing one kind of work.
pub struct Linux {
    unit: Unit,
    conns: usize,
    request: Vec<u8>,
    response: Vec<u8>,
    stopwatch: Stopwatch,
    /// What was timed in the rounds that are over.
    latency: Option<Histogram<u64>>,
    overflows: Option<u64>,
    failed: u64,
}

fn refused(what: &str, errno: Errno) -> Failure {
    Failure::Machine(format!("--peer linux: cannot {what}: {errno}"))
}

impl Linux {
    /// How many connections it can have here: both ends of each are files of this process.
    pub fn conns_max() -> usize {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let most = limit.maximum.unwrap_or(1 << 20);
        // What the operator allows at the most is ours for the asking.
        let _ = rustix::process::setrlimit(
            rustix::process::Resource::Nofile,
            rustix::process::Rlimit { current: Some(most), maximum: limit.maximum },
        );
        (most.saturating_sub(SPARE_FILES) / 2) as usize
    }

    /// Nothing is opened before the first round.
    pub fn new(unit: Unit, conns: usize, message: Option<usize>) -> Self {
        let (request, response) = match message {
            Some(bytes) if unit == Unit::Rr => (vec![b'q'; bytes], vec![b'r'; bytes]),
            _ => (REQUEST.to_vec(), RESPONSE.to_vec()),
        };
        let stopwatch = Stopwatch::sampling();
        Linux { unit, conns, request, response, stopwatch, latency: None, overflows: None, failed: 0 }
    }

    fn work(&mut self, time: Duration) -> Result<Round, Failure> {
        let listener = rustix::net::socket_with(
            AddressFamily::INET,
            SocketType::STREAM,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )
        .and_then(|listener| {
            sockopt::set_socket_reuseaddr(&listener, true)?;
            rustix::net::bind(&listener, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))?;
            rustix::net::listen(&listener, 65_535)?;
            Ok(listener)
        })
        .map_err(|errno| refused("listen on a port of its own choice", errno))?;
        let at = rustix::net::getsockname(&listener)
            .and_then(SocketAddrV4::try_from)
            .map_err(|errno| refused("find its own address", errno))?;
        let phase = AtomicU8::new(STARTING);
        let received = AtomicU64::new(0);
        let (unit, request, response) = (self.unit, self.request.len(), self.response.clone());
        let (server, client) = std::thread::scope(|scope| {
            let server = scope.spawn(|| {
                machine::pin(0);
                Server { unit, request, response, phase: &phase, received: &received }.run(listener)
            });
            let client = scope.spawn(|| {
                machine::pin(1.min(machine::cores() - 1));
                let done = self.client(at, time, &phase, &received);
                phase.store(ENDING, Ordering::Release);
                done
            });
            (server.join(), client.join())
        });
        let panicked = |_| Failure::Stuck("a thread of --peer linux panicked".into());
        let server = server.map_err(panicked)?.map_err(|errno| refused("serve", errno))?;
        let client = client.map_err(panicked)?.map_err(|errno| refused("connect", errno))?;
        Ok(Round {
            shares: vec![Share { cpu_s: server, wall_s: client.wall_s, ..Share::default() }, client],
            packets: None,
            lane_cpu_s: None,
        })
    }

    fn client(
        &mut self,
        at: SocketAddrV4,
        time: Duration,
        phase: &AtomicU8,
        received: &AtomicU64,
    ) -> Result<Share, Errno> {
        let mut client = Client {
            unit: self.unit,
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            at,
            sockets: (0..self.conns).map(|_| None).collect(),
            next_address: 0,
            request: &self.request,
            response: self.response.len(),
            stopwatch: &mut self.stopwatch,
            ops: 0,
            failed: 0,
            established: 0,
            buffer: vec![b's'; CHUNK],
        };
        for i in 0..self.conns {
            client.connect(i)?;
            // Not so many at once that SYNs are dropped.
            if i % 256 == 255 {
                client.turn()?;
            }
        }
        // Everything is open, or has been, before the clock starts.
        while client.established < self.conns as u64 {
            client.turn()?;
        }
        let settle = Instant::now();
        while settle.elapsed() < Duration::from_millis(50) {
            client.turn()?;
        }
        phase.store(MEASURING, Ordering::Release);
        client.stopwatch.take();
        let (ops, failed, bytes) = (client.ops, client.failed, received.load(Ordering::Relaxed));
        let (began, cpu) = (Instant::now(), machine::thread_cpu_s());
        while began.elapsed() < time {
            client.turn()?;
        }
        let (wall_s, cpu_s) = (began.elapsed().as_secs_f64(), machine::thread_cpu_s() - cpu);
        phase.store(ENDING, Ordering::Release);
        let done = match self.unit {
            Unit::Stream => (received.load(Ordering::Relaxed) - bytes) as f64 / MEBIBYTE as f64,
            _ => (client.ops - ops) as f64,
        };
        let failed = client.failed - failed;
        drop(client);
        self.failed += failed;
        let timed = self.stopwatch.take();
        match &mut self.latency {
            Some(all) => all.add(timed).expect("histograms of one kind"),
            None => self.latency = Some(timed),
        }
        Ok(Share { ops: done, wall_s, cpu_s, ..Share::default() })
    }
}

/// The events of one wait of at most 20 ms.
fn wait(epoll: &OwnedFd, events: &mut Vec<Event>) -> Result<(), Errno> {
    events.clear();
    match epoll::wait(epoll, rustix::buffer::spare_capacity(events), Some(&Timespec { tv_sec: 0, tv_nsec: 20_000_000 }))
    {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno),
    }
}

struct Server<'a> {
    unit: Unit,
    request: usize,
    response: Vec<u8>,
    phase: &'a AtomicU8,
    received: &'a AtomicU64,
}

impl Server<'_> {
    /// Serves until the round is over; the processor time of its measured part.
    fn run(&self, listener: OwnedFd) -> Result<f64, Errno> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        let mut events = Vec::with_capacity(EVENTS);
        let mut buffer = vec![0; CHUNK];
        let mut open: Vec<Option<(OwnedFd, usize)>> = Vec::new();
        let mut free: Vec<usize> = Vec::new();
        let (mut measuring, mut cpu) = (false, 0.0);
        loop {
            wait(&epoll, &mut events)?;
            match self.phase.load(Ordering::Acquire) {
                MEASURING if !measuring => (measuring, cpu) = (true, machine::thread_cpu_s()),
                ENDING => return Ok(machine::thread_cpu_s() - cpu),
                _ => {}
            }
            for event in &events {
                let number = event.data.u64();
                if number == LISTENER {
                    while let Ok(socket) =
                        rustix::net::accept_with(&listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)
                    {
                        let _ = sockopt::set_tcp_nodelay(&socket, true);
                        // Often the request is there already; then nothing needs to be watched.
                        let Some(seen) = self.serve(&socket, 0, &mut buffer) else { continue };
                        let number = free.pop().unwrap_or_else(|| {
                            open.push(None);
                            open.len() - 1
                        });
                        epoll::add(&epoll, &socket, EventData::new_u64(number as u64), EventFlags::IN)?;
                        open[number] = Some((socket, seen));
                    }
                } else if let Some((socket, seen)) = open.get_mut(number as usize).and_then(Option::as_mut) {
                    match self.serve(socket, *seen, &mut buffer) {
                        Some(now_seen) => *seen = now_seen,
                        None => {
                            open[number as usize] = None; // closes
                            free.push(number as usize);
                        }
                    }
                }
            }
        }
    }

    /// Reads, and answers what is whole. `None`: to be closed.
    fn serve(&self, socket: &OwnedFd, seen: usize, buffer: &mut [u8]) -> Option<usize> {
        let read = match rustix::net::recv(socket, &mut *buffer, RecvFlags::empty()) {
            Ok((_, 0)) => return None,
            Ok((_, read)) => read,
            Err(Errno::AGAIN | Errno::INTR) => return Some(seen),
            Err(_) => return None,
        };
        if self.unit == Unit::Stream {
            self.received.fetch_add(read as u64, Ordering::Relaxed);
            return Some(0);
        }
        let seen = seen + read;
        if seen < self.request {
            return Some(seen);
        }
        let sent = rustix::net::send(socket, &self.response, SendFlags::NOSIGNAL);
        (self.unit == Unit::Rr && sent.is_ok_and(|sent| sent == self.response.len())).then_some(seen - self.request)
    }
}

/// One connection of the client.
struct Open {
    socket: OwnedFd,
    asked: bool,
    answered: usize,
    started: u64,
}

struct Client<'a> {
    unit: Unit,
    epoll: OwnedFd,
    at: SocketAddrV4,
    sockets: Vec<Option<Open>>,
    next_address: usize,
    request: &'a [u8],
    response: usize,
    stopwatch: &'a mut Stopwatch,
    ops: u64,
    failed: u64,
    established: u64,
    buffer: Vec<u8>,
}

impl Client<'_> {
    fn connect(&mut self, i: usize) -> Result<(), Errno> {
        let started = self.stopwatch.start();
        let socket = rustix::net::socket_with(
            AddressFamily::INET,
            SocketType::STREAM,
            SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
            None,
        )?;
        sockopt::set_tcp_nodelay(&socket, true)?;
        // From and to the same address of the loopback network: that spares the kernel a bind().
        let both = Ipv4Addr::new(127, 0, 1, 1 + self.next_address as u8);
        self.next_address = (self.next_address + 1) % ADDRESSES;
        match rustix::net::connect(&socket, &SocketAddrV4::new(both, self.at.port())) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(errno) => return Err(errno),
        }
        epoll::add(
            &self.epoll,
            socket.as_fd(),
            EventData::new_u64(i as u64),
            EventFlags::IN | EventFlags::OUT | EventFlags::ET,
        )?;
        self.sockets[i] = Some(Open { socket, asked: false, answered: 0, started });
        Ok(())
    }

    fn turn(&mut self) -> Result<(), Errno> {
        let mut events = Vec::with_capacity(EVENTS);
        wait(&self.epoll, &mut events)?;
        for event in &events {
            let (i, flags) = (event.data.u64() as usize, event.flags);
            if self.unit == Unit::Stream {
                self.fill(i, flags);
            } else {
                self.talk(i, flags)?;
            }
        }
        Ok(())
    }

    fn fill(&mut self, i: usize, flags: EventFlags) {
        let Some(open) = &mut self.sockets[i] else { return };
        if !flags.contains(EventFlags::OUT) {
            return;
        }
        if !open.asked {
            open.asked = true;
            self.established += 1;
        }
        // Until it is full; a lone stream must not starve the clock, so at most a while.
        for _ in 0..64 {
            if rustix::net::send(&open.socket, &self.buffer, SendFlags::NOSIGNAL).is_err() {
                return;
            }
        }
        // It may have room still, and an edge will not come again: ask for one.
        let _ =
            epoll::modify(&self.epoll, &open.socket, EventData::new_u64(i as u64), EventFlags::OUT | EventFlags::ET);
    }

    fn talk(&mut self, i: usize, flags: EventFlags) -> Result<(), Errno> {
        let Some(open) = &mut self.sockets[i] else { return Ok(()) };
        if !open.asked && flags.contains(EventFlags::OUT) && !flags.contains(EventFlags::ERR) {
            open.asked = true;
            self.established += 1;
            let _ = rustix::net::send(&open.socket, self.request, SendFlags::NOSIGNAL);
        }
        if !flags.intersects(EventFlags::IN | EventFlags::ERR | EventFlags::HUP) {
            return Ok(());
        }
        loop {
            match rustix::net::recv(&open.socket, &mut self.buffer[..], RecvFlags::empty()) {
                Ok((_, 0)) => break,
                Ok((_, read)) => {
                    open.answered += read;
                    if open.answered < self.response {
                        continue;
                    }
                    if self.unit == Unit::Rr {
                        self.stopwatch.stop(open.started);
                        self.ops += 1;
                        open.answered = 0;
                        open.started = self.stopwatch.start();
                        let _ = rustix::net::send(&open.socket, self.request, SendFlags::NOSIGNAL);
                        return Ok(());
                    }
                }
                Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
                Err(_) => {
                    self.failed += 1;
                    break;
                }
            }
        }
        // The server has closed.
        if open.answered == self.response {
            self.stopwatch.stop(open.started);
            self.ops += 1;
        }
        self.sockets[i] = None;
        self.connect(i)
    }
}

/// TIME_WAIT records that the kernel did not keep, for want of room, since it started.
pub fn tw_evicted() -> Option<u64> {
    tcp_ext("TCPTimeWaitOverflow")
}

/// A counter of the kernel's `TcpExt` line.
fn tcp_ext(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/net/netstat").ok()?;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("TcpExt: "));
    let (names, values) = (lines.next()?, lines.next()?);
    let at = names.split(' ').position(|word| word == name)?;
    values.split(' ').nth(at)?.parse().ok()
}

impl Contender for Linux {
    fn who(&self) -> &str {
        "linux"
    }
    fn api(&self) -> &'static str {
        "epoll"
    }
    fn device(&self) -> &'static str {
        "loopback"
    }
    fn checksums(&self) -> &'static str {
        "offload" // loopback leaves them out
    }
    fn lanes(&self) -> usize {
        1
    }
    fn cores(&self) -> Option<usize> {
        Some(machine::cores_for(2))
    }
    fn warm_up(&mut self) -> Result<(), Failure> {
        self.overflows = tw_evicted();
        self.work(Duration::from_millis(200))?;
        (self.latency, self.failed) = (None, 0);
        Ok(())
    }
    fn round(&mut self, time: Duration) -> Result<Round, Failure> {
        self.work(time)
    }
    fn account(&mut self) -> Account {
        let evicted = tw_evicted().zip(self.overflows).map(|(now, then)| now - then);
        let remarks = format!(
            "{ADDRESSES} addresses; TIME_WAIT records that the kernel did not keep: {} (its tcp_max_tw_buckets)",
            evicted.unwrap_or(0)
        );
        Account {
            latency: self.latency.take().filter(|all| !all.is_empty()),
            bytes_per_conn: None,
            tw_evicted: evicted,
            failed: self.failed,
            remarks,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As of everybody else: percentiles of the last round alone would stand beside those of all rounds.
    #[test]
    fn what_is_timed_is_of_all_rounds() {
        let mut linux = Linux::new(Unit::Rr, 1, None);
        linux.warm_up().expect("loopback");
        let rounds: Vec<Round> = (0..4).map(|_| linux.round(Duration::from_millis(60)).expect("loopback")).collect();
        let ops: f64 = rounds.iter().map(Round::ops).sum();
        let timed = linux.account().latency.map_or(0, |all| all.len());
        // One of 61, and at each end of a round one that is not whole.
        assert!(timed as f64 >= ops / 61.0 - 2.0 * rounds.len() as f64, "{timed} of {ops}");
    }
}
