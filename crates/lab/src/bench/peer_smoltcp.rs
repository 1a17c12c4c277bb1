//! Owns smoltcp as a contender: both ends in one interface on one core, frames in buffers that are used again.
//!
//! smoltcp keeps no TIME_WAIT for us (a socket that reaches it listens again at once), draws its initial sequence numbers
//! without a key, and has one source address. All of that is in its favour.

use super::contender::{Account, Contender, Round, Share};
use super::crr::{REQUEST, RESPONSE};
use super::failure::Failure;
use super::latency::Stopwatch;
use super::machine;
use super::options::{Checksums, Unit};
use super::stream::MEBIBYTE;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::Duration;

/// Send and receive buffer of a socket where nothing else is asked for, and no message is longer.
const BUFFER: usize = 4_096;
const PORT: u16 = 80;
const HERE: IpAddress = IpAddress::v4(127, 0, 0, 1);
const FIRST_PORT: u16 = 1_024;

/// What is sent comes back. Buffers are full-sized, initialised once, and used again: no heap call per packet.
struct Loopback {
    queue: RefCell<VecDeque<Frame>>,
    free: RefCell<Vec<Box<[u8]>>>,
    sent: Cell<u64>,
    mtu: usize,
    checksums: Checksums,
}

struct Frame {
    bytes: Box<[u8]>,
    len: usize,
}

struct Rx<'a>(&'a Loopback, Frame);
struct Tx<'a>(&'a Loopback);

impl Device for Loopback {
    type RxToken<'a> = Rx<'a>;
    type TxToken<'a> = Tx<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Rx<'_>, Tx<'_>)> {
        let frame = self.queue.get_mut().pop_front()?;
        Some((Rx(self, frame), Tx(self)))
    }
    fn transmit(&mut self, _: Instant) -> Option<Tx<'_>> {
        Some(Tx(self))
    }
    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = self.mtu;
        if self.checksums == Checksums::Offload {
            capabilities.checksum = ChecksumCapabilities::ignored();
        }
        capabilities
    }
}

impl RxToken for Rx<'_> {
    #[inline]
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        let answer = read(&self.1.bytes[..self.1.len]);
        self.0.free.borrow_mut().push(self.1.bytes);
        answer
    }
}

impl TxToken for Tx<'_> {
    #[inline]
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        let spare = self.0.free.borrow_mut().pop();
        let mut bytes = spare.unwrap_or_else(|| vec![0; self.0.mtu].into());
        let answer = write(&mut bytes[..len]);
        self.0.queue.borrow_mut().push_back(Frame { bytes, len });
        self.0.sent.set(self.0.sent.get() + 1);
        answer
    }
}

/// What a client socket is doing.
#[derive(Clone, Copy, Default)]
struct Dialogue {
    started: u64,
    asked: usize,
    answered: usize,
}

/// smoltcp, doing one kind of work.
pub struct Smoltcp {
    unit: Unit,
    conns: usize,
    checksums: Checksums,
    request: Vec<u8>,
    response: Vec<u8>,
    /// What a stream sends over and over.
    text: Vec<u8>,
    buffer: usize,
    interface: Interface,
    device: Loopback,
    sockets: SocketSet<'static>,
    clients: Vec<(SocketHandle, Dialogue)>,
    servers: Vec<(SocketHandle, Dialogue)>,
    next_port: u16,
    stopwatch: Stopwatch,
    elapsed_us: i64,
    ops: u64,
    bytes: u64,
}

impl Smoltcp {
    /// Everything that `conns` connections need, listening and not yet connected.
    pub fn new(
        unit: Unit,
        conns: usize,
        checksums: Checksums,
        mtu: usize,
        message: Option<usize>,
        buffer: Option<u32>,
    ) -> Self {
        let (request, response) = match message {
            Some(bytes) if unit == Unit::Rr => (vec![b'q'; bytes], vec![b'r'; bytes]),
            _ => (REQUEST.to_vec(), RESPONSE.to_vec()),
        };
        let mut device =
            Loopback { queue: RefCell::default(), free: RefCell::default(), sent: Cell::new(0), mtu, checksums };
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = 4_711;
        let mut interface = Interface::new(config, &mut device, Instant::ZERO);
        interface
            .update_ip_addrs(|addresses| addresses.push(IpCidr::new(HERE, 8)).expect("there is room for one address"));
        let buffer = buffer.map_or(BUFFER.max(request.len()).max(response.len()), |bytes| bytes as usize);
        let mut sockets = SocketSet::new(Vec::with_capacity(2 * conns));
        let mut socket = || {
            let mut socket = Socket::new(SocketBuffer::new(vec![0; buffer]), SocketBuffer::new(vec![0; buffer]));
            socket.set_nagle_enabled(false);
            (sockets.add(socket), Dialogue::default())
        };
        let clients: Vec<_> = (0..conns).map(|_| socket()).collect();
        let servers: Vec<_> = (0..conns).map(|_| socket()).collect();
        for (server, _) in &servers {
            sockets.get_mut::<Socket>(*server).listen(PORT).expect("a new socket can listen");
        }
        Smoltcp {
            unit,
            conns,
            checksums,
            request,
            response,
            text: vec![b's'; 16_384],
            buffer,
            interface,
            device,
            sockets,
            clients,
            servers,
            next_port: FIRST_PORT,
            stopwatch: Stopwatch::sampling(),
            elapsed_us: 1_000_000,
            ops: 0,
            bytes: 0,
        }
    }

    /// One poll of the interface, and a look at every socket.
    #[inline]
    fn turn(&mut self, now: Instant) {
        self.interface.poll(now, &mut self.device, &mut self.sockets);
        match self.unit {
            Unit::Crr => self.crr(),
            Unit::Rr => self.rr(),
            Unit::Stream | Unit::Idle => self.stream(),
        }
    }

    #[inline]
    fn connect(&mut self, i: usize) {
        let (handle, dialogue) = &mut self.clients[i];
        let socket = self.sockets.get_mut::<Socket>(*handle);
        *dialogue = Dialogue { started: self.stopwatch.start(), ..Dialogue::default() };
        let port = self.next_port;
        self.next_port = if port == u16::MAX { FIRST_PORT } else { port + 1 };
        socket.connect(self.interface.context(), (HERE, PORT), port).expect("a closed socket can connect");
    }

    fn crr(&mut self) {
        let mut scratch = [0; BUFFER];
        for (handle, _) in &self.servers {
            let socket = self.sockets.get_mut::<Socket>(*handle);
            match socket.state() {
                State::Established if socket.recv_queue() >= REQUEST.len() => {
                    let _ = socket.recv_slice(&mut scratch);
                    let _ = socket.send_slice(&RESPONSE);
                    socket.close();
                }
                State::TimeWait | State::Closed => {
                    socket.abort();
                    socket.listen(PORT).expect("a closed socket can listen");
                }
                _ => {}
            }
        }
        for i in 0..self.clients.len() {
            let (handle, dialogue) = &mut self.clients[i];
            let socket = self.sockets.get_mut::<Socket>(*handle);
            match socket.state() {
                State::Established if dialogue.asked == 0 => {
                    dialogue.asked = socket.send_slice(&REQUEST).unwrap_or(0);
                }
                State::CloseWait => {
                    dialogue.answered += socket.recv_slice(&mut scratch).unwrap_or(0);
                    socket.close();
                }
                State::Closed => {
                    if dialogue.answered == RESPONSE.len() {
                        self.stopwatch.stop(dialogue.started);
                        self.ops += 1;
                        self.bytes += (REQUEST.len() + RESPONSE.len()) as u64;
                    }
                    self.connect(i);
                }
                _ => {}
            }
        }
    }

    fn rr(&mut self) {
        let mut scratch = [0; 65_536];
        for (handle, dialogue) in &mut self.servers {
            let socket = self.sockets.get_mut::<Socket>(*handle);
            if socket.can_recv() {
                dialogue.asked += socket.recv_slice(&mut scratch).unwrap_or(0);
                if dialogue.asked >= self.request.len() {
                    dialogue.asked -= self.request.len();
                    dialogue.answered = self.response.len();
                }
            }
            if dialogue.answered > 0 {
                let from = self.response.len() - dialogue.answered;
                dialogue.answered -= socket.send_slice(&self.response[from..]).unwrap_or(0);
            }
        }
        for i in 0..self.clients.len() {
            let (handle, dialogue) = &mut self.clients[i];
            let socket = self.sockets.get_mut::<Socket>(*handle);
            if socket.state() == State::Closed {
                self.connect(i);
                continue;
            }
            if socket.can_recv() {
                dialogue.answered += socket.recv_slice(&mut scratch).unwrap_or(0);
                if dialogue.answered == self.response.len() {
                    self.stopwatch.stop(dialogue.started);
                    self.ops += 1;
                    self.bytes += (self.request.len() + self.response.len()) as u64;
                    *dialogue = Dialogue { started: self.stopwatch.start(), ..Dialogue::default() };
                }
            }
            if dialogue.asked < self.request.len() && socket.can_send() {
                dialogue.asked += socket.send_slice(&self.request[dialogue.asked..]).unwrap_or(0);
            }
        }
    }

    fn stream(&mut self) {
        for (handle, _) in &self.servers {
            let socket = self.sockets.get_mut::<Socket>(*handle);
            // A buffer that wraps has two parts.
            while socket.can_recv() {
                self.bytes += socket.recv(|data| (data.len(), data.len())).unwrap_or(0) as u64;
            }
        }
        for i in 0..self.clients.len() {
            let socket = self.sockets.get_mut::<Socket>(self.clients[i].0);
            if socket.state() == State::Closed {
                self.connect(i);
                continue;
            }
            while socket.can_send() && socket.send_slice(&self.text).is_ok_and(|sent| sent > 0) {}
        }
        self.ops = self.bytes / MEBIBYTE;
    }

    fn work(&mut self, time: Duration) -> Round {
        let (ops, packets) = (self.ops, self.device.sent.get());
        self.stopwatch.go_on();
        let (began, cpu, base) = (std::time::Instant::now(), machine::thread_cpu_s(), self.elapsed_us);
        loop {
            let elapsed = began.elapsed();
            self.elapsed_us = base + elapsed.as_micros() as i64;
            if elapsed >= time {
                break;
            }
            self.turn(Instant::from_micros(self.elapsed_us));
        }
        self.stopwatch.hold();
        let share = Share {
            ops: (self.ops - ops) as f64,
            wall_s: began.elapsed().as_secs_f64(),
            cpu_s: machine::thread_cpu_s() - cpu,
            ..Share::default()
        };
        Round { shares: vec![share], packets: Some(self.device.sent.get() - packets), lane_cpu_s: None }
    }
}

impl Contender for Smoltcp {
    fn who(&self) -> &str {
        "smoltcp"
    }
    fn api(&self) -> &'static str {
        "smoltcp"
    }
    fn device(&self) -> &'static str {
        "memory"
    }
    fn checksums(&self) -> &'static str {
        match self.checksums {
            Checksums::Software => "software",
            Checksums::Offload => "offload",
        }
    }
    fn lanes(&self) -> usize {
        1
    }
    fn warm_up(&mut self) -> Result<(), Failure> {
        self.round(Duration::from_millis(300))?;
        self.stopwatch.take();
        Ok(())
    }
    fn round(&mut self, time: Duration) -> Result<Round, Failure> {
        // On the same core as ours.
        let round = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                machine::pin(0);
                self.work(time)
            });
            thread.join()
        });
        let round = round.map_err(|_| Failure::Stuck("smoltcp panicked".into()))?;
        if round.ops() == 0.0 {
            return Err(Failure::Stuck(format!(
                "smoltcp did nothing in {time:?} at {} connections; give it more --seconds",
                self.conns
            )));
        }
        Ok(round)
    }
    fn account(&mut self) -> Account {
        let bytes = 2 * self.buffer + size_of::<Socket>();
        let latency = self.stopwatch.take();
        let remarks = format!(
            "one source address, buffers of {} bytes, no TIME_WAIT, initial sequence numbers without a key",
            self.buffer
        );
        Account {
            latency: Some(latency).filter(|all| !all.is_empty()),
            bytes_per_conn: Some(bytes as f64),
            tw_evicted: None,
            failed: 0,
            remarks,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As ours has: else what is compared is how often a buffer must be emptied.
    #[test]
    fn its_buffers_hold_a_message() {
        let buffer = |message, asked| Smoltcp::new(Unit::Rr, 1, Checksums::Software, 1_500, message, asked).buffer;
        assert_eq!([buffer(None, None), buffer(Some(20_000), None)], [BUFFER, 20_000]);
        assert_eq!(buffer(Some(20_000), Some(65_536)), 65_536);
    }
}
