//! Owns the wall through the kernel: one client on kernel sockets, against the kernel over a veth pair and against Laneway
//! over a TUN interface, in turn; what is measured is the processor time of the whole machine.
//!
//! The command starts itself again under `unshare --net` as the client, and that starts itself in a second namespace as the
//! kernel's server. Nothing outside of them is touched, and they are gone when the command is.

use super::memory::by_name;
use super::rules::{Refined, Ruled, Split, V1, V2};
use crate::bench::failure::Failure;
use clap::Args;
use laneway_device::tun::{Prefix, Tun, TunConfig, TunRx, TunTx};
use laneway_stack::app::{App, ConnId, Context, ListenerId};
use laneway_stack::clock::Clock;
use laneway_stack::config::Config;
use laneway_stack::control::Network;
use laneway_stack::counters::Mib;
use laneway_stack::entropy::BootSecrets;
use laneway_stack::host::Host;
use laneway_stack::runtime::{Options, Runtime};
use laneway_stack::sharing::{LaneOwned, Sharing};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use rustix::time::Timespec;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// The client's addresses on the veth pair and on the TUN interface, and who answers at the other end.
const NEAR: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 97, 0, 1), Ipv4Addr::new(10, 98, 0, 1)];
const FAR: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 97, 0, 2), Ipv4Addr::new(10, 98, 0, 2)];
/// What is served: request and response, everything read, everything written.
const RR: u16 = 7_001;
const SINK: u16 = 7_002;
const SOURCE: u16 = 7_003;
/// Bytes of one call of a stream.
const CHUNK: usize = 1 << 18;
/// Ticks of /proc/stat in a second.
const TICKS: f64 = 100.0;
const WARM_UP: Duration = Duration::from_millis(200);

/// The hidden subcommand.
#[derive(Args, Clone, Debug)]
pub struct Part {
    /// Serve from a namespace of its own instead of asking
    #[arg(long)]
    serve: bool,
    #[arg(long, default_value_t = 200)]
    conns: usize,
    #[arg(long, default_value_t = 4_096)]
    message: usize,
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    #[arg(long, value_delimiter = ',')]
    variant: Vec<String>,
}

/// What one round came to.
#[derive(Clone, Copy, Default, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// Transactions per second.
    pub txns_per_s: f64,
    /// Seconds that all cores together were busy, for each second.
    pub busy: f64,
    /// Context switches of the whole machine, for each transaction.
    pub switches: f64,
    /// IP packets that the server sent, for each transaction.
    pub packets: f64,
    /// Octets of each of them.
    pub octets: f64,
    /// Longest transaction in milliseconds.
    pub longest_ms: f64,
    /// Longest of a request that is written in two parts, in milliseconds.
    pub longest_in_two_ms: f64,
    /// Bytes per second of one stream to the server, and from it.
    pub sink: f64,
    /// See `sink`.
    pub source: f64,
}

/// All rounds of one server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// `kernel`, or one of our variants.
    pub variant: String,
    /// In their order.
    pub rounds: Vec<Outcome>,
}

fn refused<E: std::fmt::Display>(what: &'static str) -> impl Fn(E) -> Failure {
    move |error| Failure::Machine(format!("cannot {what}: {error}"))
}

/// Measures, from outside of the namespaces. `None`, with the reason: this user may not make them.
pub fn measure(
    conns: usize,
    message: usize,
    seconds: f64,
    rounds: usize,
    variants: &[&str],
) -> Result<Result<Vec<Measured>, String>, Failure> {
    if !rustix::process::geteuid().is_root() {
        return Ok(Err(
            "the kernel as a peer is left out: its network namespaces need root ('sudo laneway-lab s2')".into()
        ));
    }
    let exe = std::env::current_exe().map_err(refused("find this program"))?;
    let mut command = Command::new("unshare");
    command.arg("--net").arg(exe).arg("s2-kernel").args(["--conns", &conns.to_string()]);
    command.args(["--message", &message.to_string(), "--seconds", &seconds.to_string()]);
    command.args(["--rounds", &rounds.to_string(), "--variant", &variants.join(",")]);
    let output = command.stderr(Stdio::inherit()).output().map_err(refused("start 'unshare' (util-linux)"))?;
    if !output.status.success() {
        return Err(Failure::Machine("the measurement with the kernel as a peer failed; the reason is above".into()));
    }
    serde_json::from_slice(&output.stdout).map(Ok).map_err(refused("read what the measuring process says"))
}

/// `laneway-lab s2-kernel`, inside.
pub fn run(part: &Part) -> Result<(), Failure> {
    if part.serve {
        return serve(part.message);
    }
    let mut server = KernelServer::start(part.message)?;
    let mut all: Vec<Measured> = std::iter::once("kernel")
        .chain(part.variant.iter().map(String::as_str))
        .map(|variant| Measured { variant: variant.to_owned(), rounds: Vec::new() })
        .collect();
    for _ in 0..part.rounds {
        for one in &mut all {
            let outcome = match one.variant.as_str() {
                "kernel" => round(part, FAR[0], &mut |_| server.counters())?,
                name => by_name!(name, against_ours(part))?,
            };
            one.rounds.push(outcome);
        }
    }
    drop(server);
    println!("{}", serde_json::to_string(&all).map_err(refused("write the results"))?);
    Ok(())
}

fn ip(arguments: &[&str]) -> Result<(), Failure> {
    let output = Command::new("ip").args(arguments).output().map_err(refused("start 'ip' (iproute2)"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Failure::Machine(format!("'ip {}' failed: {}", arguments.join(" "), said.trim())))
}

/// The kernel's server, in a process and a namespace of its own.
struct KernelServer {
    child: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl KernelServer {
    fn start(message: usize) -> Result<Self, Failure> {
        let exe = std::env::current_exe().map_err(refused("find this program"))?;
        let mut command = Command::new("unshare");
        command.arg("--net").arg(exe).args(["s2-kernel", "--serve", "--message", &message.to_string()]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(refused("start 'unshare' (util-linux)"))?;
        let (ask, answers) = (child.stdin.take(), child.stdout.take());
        let (Some(ask), Some(answers)) = (ask, answers) else {
            return Err(Failure::Machine("the server's process has no pipes".into()));
        };
        let mut server = KernelServer { child, ask, answers: BufReader::new(answers) };
        server.expect("here")?; // it has its namespace
        let pid = server.child.id().to_string();
        let network = format!("{}/24", NEAR[0]);
        ip(&["link", "set", "lo", "up"])?;
        ip(&["link", "add", "lwnear", "type", "veth", "peer", "name", "lwfar", "netns", &pid])?;
        ip(&["addr", "add", &network, "dev", "lwnear"])?;
        ip(&["link", "set", "lwnear", "up"])?;
        server.say("go")?;
        server.expect("ready")?;
        Ok(server)
    }

    fn say(&mut self, line: &str) -> Result<(), Failure> {
        writeln!(self.ask, "{line}").and_then(|()| self.ask.flush()).map_err(refused("talk to the server's process"))
    }

    fn hear(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(refused("hear the server's process"))?;
        Ok(line.trim().to_owned())
    }

    fn expect(&mut self, what: &str) -> Result<(), Failure> {
        let line = self.hear()?;
        if line == what { Ok(()) } else { Err(Failure::Machine(format!("the server's process says '{line}'"))) }
    }

    /// IP packets and octets that its namespace has sent.
    fn counters(&mut self) -> Result<(f64, f64), Failure> {
        self.say("counters")?;
        let line = self.hear()?;
        let mut numbers = line.split(' ').map_while(|word| word.parse().ok());
        numbers.next().zip(numbers.next()).ok_or_else(|| Failure::Machine("the server's process does not count".into()))
    }
}

impl Drop for KernelServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A number from /proc/net/snmp or netstat.
fn net_counter(file: &str, group: &str, name: &str) -> Option<f64> {
    let text = std::fs::read_to_string(file).ok()?;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(group));
    let (names, values) = (lines.next()?, lines.next()?);
    let at = names.split_whitespace().position(|word| word == name)?;
    values.split_whitespace().nth(at)?.parse().ok()
}

/// The kernel's server, from inside.
fn serve(message: usize) -> Result<(), Failure> {
    println!("here");
    let mut commands = std::io::stdin().lines();
    let _ = commands.next();
    ip(&["addr", "add", &format!("{}/24", FAR[0]), "dev", "lwfar"])?;
    ip(&["link", "set", "lwfar", "up"])?;
    let listeners = listeners().map_err(refused("listen"))?;
    std::thread::spawn(move || serve_sockets(listeners, message));
    println!("ready"); // whoever connects from now on is answered
    for command in commands.map_while(Result::ok) {
        if command == "counters" {
            let packets = net_counter("/proc/net/snmp", "Ip: ", "OutRequests").unwrap_or(0.0);
            let octets = net_counter("/proc/net/netstat", "IpExt: ", "OutOctets").unwrap_or(0.0);
            println!("{packets} {octets}");
        }
    }
    Ok(())
}

fn tcp_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)
}

fn wait(epoll: &OwnedFd, events: &mut Vec<Event>) -> Result<(), Errno> {
    events.clear();
    let most = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    match epoll::wait(epoll, rustix::buffer::spare_capacity(events), Some(&most)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// The three services, listening.
fn listeners() -> Result<Vec<(OwnedFd, u16)>, Errno> {
    let listen = |port| {
        let listener = tcp_socket()?;
        sockopt::set_socket_reuseaddr(&listener, true)?;
        rustix::net::bind(&listener, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port))?;
        rustix::net::listen(&listener, 4_096)?;
        Ok((listener, port))
    };
    [RR, SINK, SOURCE].into_iter().map(listen).collect()
}

fn serve_sockets(listeners: Vec<(OwnedFd, u16)>, message: usize) -> Result<(), Errno> {
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    let mut sockets: Vec<Option<(OwnedFd, u16, usize)>> = Vec::new();
    for (listener, port) in listeners {
        epoll::add(&epoll, &listener, EventData::new_u64(sockets.len() as u64), EventFlags::IN)?;
        sockets.push(Some((listener, port, 0)));
    }
    let mut next = sockets.len() as u64;
    let mut arrived = Vec::new();
    let mut events = Vec::with_capacity(512);
    let mut buffer = vec![b's'; CHUNK];
    let answer = vec![b'a'; message];
    loop {
        wait(&epoll, &mut events)?;
        for event in &events {
            let number = event.data.u64() as usize;
            let Some((socket, port, seen)) = sockets.get_mut(number).and_then(Option::as_mut) else { continue };
            if number < 3 {
                let port = *port;
                while let Ok(new) = rustix::net::accept_with(&*socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                    let interest = if port == SOURCE { EventFlags::OUT } else { EventFlags::IN };
                    epoll::add(&epoll, &new, EventData::new_u64(next), interest)?;
                    next += 1;
                    arrived.push(Some((new, port, 0)));
                }
                sockets.append(&mut arrived);
                continue;
            }
            let over = match *port {
                SOURCE => {
                    matches!(rustix::net::send(&*socket, &buffer, SendFlags::NOSIGNAL), Err(errno) if errno != Errno::AGAIN)
                }
                _ => match rustix::net::recv(&*socket, &mut buffer[..], RecvFlags::empty()) {
                    Ok((_, 0)) => true,
                    Ok((_, read)) if *port == RR => {
                        *seen += read;
                        let whole = *seen >= message;
                        if whole {
                            *seen -= message;
                        }
                        whole && rustix::net::send(&*socket, &answer, SendFlags::NOSIGNAL).is_err()
                    }
                    Ok(_) | Err(Errno::AGAIN) => false,
                    Err(_) => true,
                },
            };
            if over {
                sockets[number] = None;
            }
        }
    }
}

/// Our server: the same three services.
struct Ours {
    answer: Vec<u8>,
    chunk: Vec<u8>,
}

/// What a connection's word says: its service, and how much of a request has come.
fn word(service: usize, seen: usize) -> u64 {
    (service as u64) << 32 | seen as u64
}

impl Ours {
    fn pour(&self, cx: &mut Context<'_>, id: ConnId) {
        while cx.send(id, &self.chunk) == self.chunk.len() {}
    }
}

impl App for Ours {
    fn on_acceptable(&mut self, cx: &mut Context<'_>, listener: ListenerId) {
        while let Some(id) = cx.accept(listener) {
            let port = cx.flow(id).map_or(0, |flow| flow.local_port);
            let service = usize::from(port.saturating_sub(RR)).min(2);
            cx.set_token(id, word(service, 0));
            if service == 2 {
                self.pour(cx, id);
            }
        }
    }
    fn on_data(&mut self, cx: &mut Context<'_>, id: ConnId, data: &[u8]) -> usize {
        let token = cx.token(id);
        if token >> 32 == 0 {
            let mut seen = (token & 0xffff_ffff) as usize + data.len();
            while seen >= self.answer.len() {
                seen -= self.answer.len();
                cx.send(id, &self.answer);
            }
            cx.set_token(id, word(0, seen));
        }
        data.len()
    }
    fn on_writable(&mut self, cx: &mut Context<'_>, id: ConnId) {
        if cx.token(id) >> 32 == 2 {
            self.pour(cx, id);
        }
    }
}

fn against_ours<S: Sharing>(part: &Part) -> Result<Outcome, Failure> {
    let config = TunConfig {
        name: "lwlab".into(),
        offload: true,
        receive_super: true,
        addresses: vec![Prefix::new(NEAR[1], 24)],
        ..TunConfig::default()
    };
    let tun = Tun::open(&config).map_err(refused("open a TUN interface"))?;
    let network =
        Network { addresses: vec![format!("{}/24", FAR[1]).parse().map_err(Failure::Misuse)?], gateways: Vec::new() };
    let clock = Clock::start();
    let app = |_| Ours { answer: vec![b'a'; part.message], chunk: vec![b's'; CHUNK] };
    let host: Host<TunRx, TunTx, Ours, S> =
        Host::new(Config::default(), &network, &BootSecrets::from_system(), tun.queues, clock.now(), app)?;
    let runtime = Runtime::start(host, clock, Options { pin: false, spin_us: 0, ..Options::default() })
        .map_err(refused("start a lane"))?;
    for port in [RR, SINK, SOURCE] {
        runtime.listen(std::net::SocketAddr::from((FAR[1], port)), 4_096)?;
    }
    let outcome = round(part, FAR[1], &mut |_| {
        let (counters, _) = runtime.counters()?;
        Ok((counters.get(Mib::IpOutRequests) as f64, counters.get(Mib::IpExtOutOctets) as f64))
    });
    let ended = runtime.stop();
    match ended.failure {
        Some(what) => Err(Failure::Stuck(what)),
        None => outcome,
    }
}

/// Busy seconds of all cores, and context switches, since the machine started.
fn machine_stat() -> (f64, f64) {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    let cpu: Vec<f64> = fields("cpu ").split_whitespace().map_while(|word| word.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal: idle and waiting are not busy, and stolen time was somebody else's.
    let busy =
        cpu.iter().enumerate().filter(|(i, _)| ![3, 4, 7, 8, 9].contains(i)).map(|(_, ticks)| ticks).sum::<f64>();
    (busy / TICKS, fields("ctxt ").trim().parse().unwrap_or(0.0))
}

/// One server, asked for everything.
fn round(
    part: &Part,
    at: Ipv4Addr,
    counters: &mut dyn FnMut(()) -> Result<(f64, f64), Failure>,
) -> Result<Outcome, Failure> {
    let time = Duration::from_secs_f64(part.seconds);
    let asks = refused("ask the server");
    let mut client = Client::new(SocketAddrV4::new(at, RR), part.conns, part.message).map_err(&asks)?;
    client.work(WARM_UP).map_err(&asks)?;
    let (before, (busy, switches)) = (counters(())?, machine_stat());
    (client.done, client.longest) = (0, Duration::ZERO);
    let began = Instant::now();
    client.work(time).map_err(&asks)?;
    let seconds = began.elapsed().as_secs_f64();
    let ((busy_after, switches_after), after) = (machine_stat(), counters(())?);
    let done = client.done as f64;
    let longest = client.longest;
    drop(client);
    if done == 0.0 {
        return Err(Failure::Stuck(format!("the server at {at} answers nothing")));
    }
    // Few at a time, so that what they wait for is the other end and not their turn.
    let mut in_two = Client::new(SocketAddrV4::new(at, RR), 4, part.message).map_err(&asks)?;
    in_two.in_two = true;
    in_two.work(time.min(Duration::from_secs(1))).map_err(&asks)?;
    let packets = after.0 - before.0;
    Ok(Outcome {
        txns_per_s: done / seconds,
        busy: (busy_after - busy) / seconds,
        switches: (switches_after - switches) / done,
        packets: packets / done,
        octets: if packets > 0.0 { (after.1 - before.1) / packets } else { 0.0 },
        longest_ms: longest.as_secs_f64() * 1e3,
        longest_in_two_ms: in_two.longest.as_secs_f64() * 1e3,
        sink: stream(SocketAddrV4::new(at, SINK), time, false).map_err(&asks)?,
        source: stream(SocketAddrV4::new(at, SOURCE), time, true).map_err(&asks)?,
    })
}

/// Bytes per second of one stream.
fn stream(at: SocketAddrV4, time: Duration, reads: bool) -> Result<f64, Errno> {
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    rustix::net::connect(&socket, &at)?;
    let mut buffer = vec![0; CHUNK];
    let mut pass = || -> Result<usize, Errno> {
        if reads {
            rustix::net::recv(&socket, &mut buffer[..], RecvFlags::empty()).map(|(_, n)| n)
        } else {
            rustix::net::send(&socket, &buffer, SendFlags::NOSIGNAL)
        }
    };
    let began = Instant::now();
    while began.elapsed() < WARM_UP {
        pass()?;
    }
    let (began, mut bytes) = (Instant::now(), 0);
    while began.elapsed() < time {
        bytes += pass()?;
    }
    Ok(bytes as f64 / began.elapsed().as_secs_f64())
}

/// Connections of kernel sockets, each with one request under way.
struct Client {
    epoll: OwnedFd,
    conns: Vec<(OwnedFd, usize, Instant)>,
    request: Vec<u8>,
    buffer: Vec<u8>,
    in_two: bool,
    done: u64,
    longest: Duration,
    asked: bool,
}

impl Client {
    fn new(at: SocketAddrV4, conns: usize, message: usize) -> Result<Self, Errno> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let mut open = Vec::with_capacity(conns);
        for number in 0..conns {
            let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
            rustix::net::connect(&socket, &at)?;
            rustix::io::ioctl_fionbio(&socket, true)?;
            epoll::add(&epoll, &socket, EventData::new_u64(number as u64), EventFlags::IN)?;
            open.push((socket, 0, Instant::now()));
        }
        let (request, buffer) = (vec![b'q'; message], vec![0; CHUNK]);
        Ok(Client {
            epoll,
            conns: open,
            request,
            buffer,
            in_two: false,
            done: 0,
            longest: Duration::ZERO,
            asked: false,
        })
    }

    fn ask(&mut self, number: usize) -> Result<(), Errno> {
        let (socket, seen, began) = &mut self.conns[number];
        (*seen, *began) = (0, Instant::now());
        let first = if self.in_two { self.request.len() / 8 } else { 0 };
        for part in [&self.request[..first], &self.request[first..]] {
            if !part.is_empty() {
                rustix::net::send(&*socket, part, SendFlags::NOSIGNAL)?;
            }
        }
        Ok(())
    }

    fn work(&mut self, time: Duration) -> Result<(), Errno> {
        let began = Instant::now();
        if !std::mem::replace(&mut self.asked, true) {
            for number in 0..self.conns.len() {
                self.ask(number)?;
            }
        }
        let mut events = Vec::with_capacity(512);
        while began.elapsed() < time {
            wait(&self.epoll, &mut events)?;
            for event in &events {
                let number = event.data.u64() as usize;
                let (socket, seen, since) = &mut self.conns[number];
                match rustix::net::recv(&*socket, &mut self.buffer[..], RecvFlags::empty()) {
                    Ok((_, 0)) => return Err(Errno::CONNRESET),
                    Ok((_, read)) => *seen += read,
                    Err(Errno::AGAIN | Errno::INTR) => continue,
                    Err(errno) => return Err(errno),
                }
                if *seen >= self.request.len() {
                    self.done += 1;
                    self.longest = self.longest.max(since.elapsed());
                    self.ask(number)?;
                }
            }
        }
        Ok(())
    }
}
