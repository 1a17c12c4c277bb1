//! Owns our own sockets as a network for application threads: two stacks of one lane each, joined by a memory link.

use super::super::crew::{ADDRESSES, End, Shape};
use super::super::failure::Failure;
use super::super::machine;
use super::super::options::Checksums;
use super::net::{Net, Ready};
use laneway::on_lane::{Cidr, LinkConfig};
use laneway::{Device, Event, Interest, Mode, Poller, Stack, TcpListener, TcpStream};
use laneway_device::Medium;
use laneway_stack::counters::{Counters, Mib};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Mutex;
use std::time::Duration;

/// The listener of the first pair of threads.
const PORT: u16 = 80;

/// Two stacks.
pub struct Laneway {
    server: Stack,
    client: Stack,
    checksums: Checksums,
    /// All that both have counted is asked for.
    tells_counters: bool,
    lanes: Vec<i32>,
    /// Spare vectors of events, one for each thread that waits.
    events: Mutex<Vec<Vec<Event>>>,
}

fn at(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, host as u8)
}

impl Laneway {
    /// Two running stacks, which sleep while nobody uses them.
    pub fn new(shape: &Shape) -> Result<Self, Failure> {
        let offload = shape.checksums == Checksums::Offload;
        let link = LinkConfig {
            queues: 1,
            medium: Medium::Ip,
            mtu: shape.mtu,
            ring_bytes: shape.ring_bytes,
            tx_checksum: offload,
            rx_checksum: offload,
            tso_max: if shape.segmentation { 65_535 } else { 0 },
            rx_super: shape.segmentation,
            ..LinkConfig::default()
        };
        let refused = |error: laneway::StartError| Failure::Misuse(error.to_string());
        let (here, there) = Device::memory_pair_with(link).map_err(refused)?;
        let before = machine::threads("lane-");
        // The server has many addresses, so that the client never runs out of ports.
        let servers = (1..=ADDRESSES).map(|host| Cidr { address: IpAddr::V4(at(host)), prefix: 24 });
        let server = servers.fold(Stack::builder(here), |builder, cidr| builder.cidr(cidr));
        let server = server.config(shape.config(End::Server)).start().map_err(refused)?;
        let client = Stack::builder(there).cidr(Cidr { address: at(200).into(), prefix: 24 });
        let client = client.config(shape.config(End::Client)).start().map_err(refused)?;
        let lanes = Self::find_lanes(&before)?;
        let (checksums, tells_counters) = (shape.checksums, shape.counters);
        Ok(Laneway { server, client, checksums, tells_counters, lanes, events: Mutex::default() })
    }

    /// The threads of our two lanes: a thread has its name a moment after it was started.
    fn find_lanes(before: &[i32]) -> Result<Vec<i32>, Failure> {
        for _ in 0..1_000 {
            let lanes: Vec<i32> = machine::threads("lane-").into_iter().filter(|id| !before.contains(id)).collect();
            if lanes.len() == 2 {
                return Ok(lanes);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(Failure::Machine("the threads of the lanes are not listed in /proc/self/task".into()))
    }

    /// What both stacks have counted.
    fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        [&self.server, &self.client].iter().filter_map(|stack| stack.counters().ok()).for_each(|one| sum.merge(&one));
        sum
    }

    fn sum(&self, mib: Mib) -> u64 {
        self.counters().get(mib)
    }

    fn server_at(pair: usize, number: usize) -> SocketAddr {
        SocketAddr::new(at(1 + number % ADDRESSES).into(), PORT + pair as u16)
    }
}

impl Net for Laneway {
    type Stream = TcpStream;
    type Listener = TcpListener;
    type Poller = Poller;
    const BLOCKING: &'static str = "thread, blocking";
    const POLLING: &'static str = "thread, poller";
    const DEVICE: &'static str = "memory";
    const LANES: usize = 2;

    fn checksums(&self) -> &'static str {
        match self.checksums {
            Checksums::Software => "software",
            Checksums::Offload => "offload",
        }
    }
    fn lane_cpu_s(&self) -> Option<f64> {
        let stood_in = self.sum(Mib::StandInUs) as f64 * 1e-6;
        Some(machine::threads_cpu_s(&self.lanes) + stood_in)
    }
    fn tw_evicted(&self) -> Option<u64> {
        Some(self.sum(Mib::TcpExtTCPTimeWaitOverflow))
    }
    fn remarks(&self) -> String {
        let memory = [&self.server, &self.client].map(|stack| stack.memory().map_or(0, |(_, blocks)| blocks));
        let all = self.counters();
        let mut remarks = format!(
            "; blocks: {} KiB at the servers, {} KiB at the clients; threads stood in for lanes {} times",
            memory[0] >> 10,
            memory[1] >> 10,
            all.get(Mib::StandIns)
        );
        if self.tells_counters {
            remarks += &format!("; {:?}", all.iter().collect::<Vec<_>>());
        }
        remarks
    }

    fn listen(&self, pair: usize) -> io::Result<TcpListener> {
        TcpListener::bind_on(&self.server, SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), PORT + pair as u16))
    }
    fn accept(&self, listener: &TcpListener) -> io::Result<TcpStream> {
        listener.accept().map(|(stream, _)| stream)
    }
    fn accept_without_waiting(&self, listener: &TcpListener) -> io::Result<()> {
        listener.set_nonblocking(true)
    }
    fn connect(&self, pair: usize, number: usize) -> io::Result<TcpStream> {
        TcpStream::connect_on(&self.client, Self::server_at(pair, number))
    }
    fn begin(&self, pair: usize, number: usize) -> io::Result<TcpStream> {
        TcpStream::begin_connect_on(&self.client, &Self::server_at(pair, number))
    }
    fn prepare(&self, stream: &TcpStream, nonblocking: bool, resets: bool) -> io::Result<()> {
        if nonblocking {
            stream.set_nonblocking(true)?;
        }
        if resets {
            stream.set_linger(Some(Duration::ZERO))?;
        }
        stream.set_nodelay(true)
    }
    fn read(&self, mut stream: &TcpStream, buf: &mut [u8]) -> io::Result<usize> {
        stream.read(buf)
    }
    fn write(&self, mut stream: &TcpStream, buf: &[u8]) -> io::Result<usize> {
        stream.write(buf)
    }

    fn poller(&self) -> io::Result<Poller> {
        Poller::new()
    }
    fn watch_listener(&self, poller: &Poller, listener: &TcpListener, key: usize) -> io::Result<()> {
        poller.add(listener, key, Interest::READABLE, Mode::Level)
    }
    fn watch(&self, poller: &Poller, stream: &TcpStream, key: usize, writes: bool) -> io::Result<()> {
        poller.add(stream, key, if writes { Interest::BOTH } else { Interest::READABLE }, Mode::Edge)
    }
    fn watch_reads(&self, poller: &Poller, _: &TcpStream, key: usize) -> io::Result<()> {
        poller.modify(key, Interest::READABLE, Mode::Edge)
    }
    fn forget(&self, poller: &Poller, stream: &TcpStream, key: usize) -> io::Result<()> {
        poller.delete(stream, key)
    }
    fn wait(&self, poller: &mut Poller, ready: &mut Vec<Ready>) -> io::Result<()> {
        let spare = |all: &Mutex<Vec<Vec<Event>>>| all.lock().ok().and_then(|mut all| all.pop());
        let mut events = spare(&self.events).unwrap_or_default();
        let waited = poller.wait(&mut events, Some(Duration::from_millis(20)));
        ready.extend(events.drain(..).map(|event| Ready { key: event.key, writable: event.writable }));
        if let Ok(mut all) = self.events.lock() {
            all.push(events);
        }
        waited.map(drop)
    }
}
