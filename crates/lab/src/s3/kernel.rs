//! Owns the same measurement of this machine's kernel: a network namespace of its own, loopback in it, a process that
//! listens and one that connects, because a process may not open as many files as both ends need.
//!
//! The command starts itself again under `unshare --net` as [`client`], and that starts itself as [`serve`]. Nothing outside
//! of the namespace is touched, and it is gone when they are.

use super::occupancy::{Closing, histogram, share};
use crate::bench::failure::Failure;
use crate::bench::machine;
use crate::wall::rows::{Row, Rows};
use clap::{Args, ValueEnum};
use laneway_stack::entropy::Entropy;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::Timespec;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

/// The port of every destination; below the ephemeral ones.
const PORT: u16 = 80;
/// The first ephemeral port, as for ours.
const FIRST: u32 = 32_768;
/// Files that are left for everything else.
const SPARE_FILES: u64 = 256;
/// Connects between two looks at whether they have succeeded.
const FILL_BATCH: usize = 64;
/// The same while they are timed.
const BATCH: usize = 8;
/// A handshake over loopback takes microseconds.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Ports; fewer if both ends could not be open files.
    pub range: u32,
    /// Addresses that listen.
    pub destinations: usize,
    /// In percent.
    pub levels: Vec<u32>,
    /// Connects timed at each.
    pub samples: usize,
    /// But no longer than this at each.
    pub time: Duration,
    /// Which connection makes room.
    pub closing: Closing,
}

/// The hidden subcommand.
#[derive(Args, Clone, Debug)]
pub struct Part {
    /// Listen instead of connecting
    #[arg(long)]
    serve: bool,
    #[arg(long, default_value_t = 1_024)]
    range: u32,
    #[arg(long, default_value_t = 1)]
    destinations: usize,
    #[arg(long, value_delimiter = ',')]
    levels: Vec<u32>,
    #[arg(long, default_value_t = 100)]
    samples: usize,
    /// Milliseconds for the samples of each occupancy
    #[arg(long, default_value_t = 1_000)]
    time: u64,
    #[arg(long, value_enum, default_value_t = Closing::Random)]
    closing: Closing,
}

/// One occupancy, from process to process.
#[derive(Serialize, Deserialize)]
struct Level {
    percent: u32,
    p50_ns: u64,
    p99_ns: u64,
    mean_ns: f64,
    samples: usize,
    refused: usize,
}

/// What one process hands to the other.
#[derive(Serialize, Deserialize)]
struct Answer {
    range: u32,
    levels: Vec<Level>,
}

fn machine_says<E: std::fmt::Display>(what: &'static str) -> impl Fn(E) -> Failure {
    move |error| Failure::Machine(format!("cannot {what}: {error}"))
}

/// Measures the kernel; the rows say how many ports it had.
pub fn measure(asked: &Asked, rows: &mut Rows) -> Result<(), Failure> {
    let answer = in_a_namespace(asked)?;
    if answer.range < asked.range {
        rows.remark(format!(
            "the kernel has {} ports and not {}: towards {} destinations a process may not open more files ('ulimit -Hn')",
            answer.range, asked.range, asked.destinations
        ));
    }
    if let Some(level) = answer.levels.iter().find(|level| level.percent == 100 && level.refused < level.samples) {
        let (refused, asked) = (level.refused, level.samples);
        return Err(Failure::Stuck(format!("with all ports taken {refused} of {asked} connects were refused")));
    }
    for level in &answer.levels {
        let mut push = |metric: &str, value: f64, unit: &str| {
            let row = Row::measured("kernel", metric, value, unit).at("occupancy", level.percent);
            rows.push(row.at("destinations", asked.destinations).at("range", answer.range as usize));
        };
        push("p50_us", level.p50_ns as f64 / 1e3, "us");
        push("p99_us", level.p99_ns as f64 / 1e3, "us");
        push("calls_per_s", 1e9 / level.mean_ns.max(1.0), "calls/s");
    }
    Ok(())
}

fn in_a_namespace(asked: &Asked) -> Result<Answer, Failure> {
    let this = std::env::current_exe().map_err(machine_says("find this program"))?;
    let levels: Vec<String> = asked.levels.iter().map(u32::to_string).collect();
    let mut last = String::new();
    // As root; else where users may have namespaces of their own.
    for how in [&["--net"][..], &["--user", "--map-root-user", "--net"][..]] {
        let mut command = Command::new("unshare");
        command.args(how).arg("--").arg(&this).arg("s3-kernel");
        command.args(["--range", &asked.range.to_string(), "--destinations", &asked.destinations.to_string()]);
        command.args(["--levels", &levels.join(","), "--samples", &asked.samples.to_string()]);
        command.args(["--time", &asked.time.as_millis().to_string()]);
        if let Some(closing) = asked.closing.to_possible_value() {
            command.args(["--closing", closing.get_name()]);
        }
        let done = command.stdin(Stdio::null()).output().map_err(machine_says("execute unshare (of util-linux)"))?;
        if done.status.success() {
            return serde_json::from_slice(&done.stdout).map_err(machine_says("read what the kernel's part measured"));
        }
        last = String::from_utf8_lossy(&done.stderr).trim().replace('\n', "; ");
        if !last.starts_with("unshare:") {
            break;
        }
    }
    Err(Failure::Machine(format!("{last}; a network namespace of its own needs root or user namespaces")))
}

/// The part of a process in the namespace.
pub fn run(part: &Part) -> Result<(), Failure> {
    if part.serve { serve() } else { client(part) }
}

fn files_max() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(1 << 20);
    // What the operator allows at the most is ours for the asking.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: limit.maximum });
    most.saturating_sub(SPARE_FILES) as usize
}

/// Prepares the namespace, connects and measures. The result goes to stdout.
fn client(part: &Part) -> Result<(), Failure> {
    let up = Command::new("ip")
        .args(["link", "set", "lo", "up"])
        .status()
        .map_err(machine_says("execute ip (of iproute2)"))?;
    if !up.success() {
        return Err(Failure::Machine("cannot bring loopback up in a namespace of its own".into()));
    }
    let range = part.range.min((files_max() / part.destinations.max(1)) as u32 & !1);
    let set = |path: &str, value: String| {
        std::fs::write(path, value).map_err(|error| Failure::Machine(format!("cannot write {path}: {error}")))
    };
    set("/proc/sys/net/ipv4/ip_local_port_range", format!("{FIRST} {}", FIRST + range - 1))?;
    set("/proc/sys/net/core/somaxconn", "65535".into())?;
    let mut server = Server::start()?;
    machine::pin(0);
    let mut client = Client {
        open: (0..part.destinations).map(|_| VecDeque::new()).collect(),
        next: 0,
        closing: part.closing,
        entropy: Entropy::from_seed(5),
    };
    let mut levels = Vec::new();
    for &percent in &part.levels {
        levels.push(client.level(percent, range as usize, part)?);
    }
    drop(client);
    server.stop();
    let answer = serde_json::to_string(&Answer { range, levels }).map_err(machine_says("write what was measured"))?;
    println!("{answer}");
    Ok(())
}

/// The process that listens; it ends when its stdin does.
struct Server {
    child: Child,
    stdin: Option<ChildStdin>,
}

impl Server {
    fn start() -> Result<Self, Failure> {
        let this = std::env::current_exe().map_err(machine_says("find this program"))?;
        let mut child = Command::new(this)
            .args(["s3-kernel", "--serve"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(machine_says("execute this program again"))?;
        let stdin = child.stdin.take();
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).map_err(machine_says("hear of the server"))?;
        }
        let server = Server { child, stdin };
        if line.trim() == "listening" { Ok(server) } else { Err(Failure::Machine("the server did not listen".into())) }
    }

    fn stop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Client {
    /// Towards each destination, the newest at the end.
    open: Vec<VecDeque<OwnedFd>>,
    next: usize,
    closing: Closing,
    entropy: Entropy,
}

/// How a connect ended.
enum Ended {
    Open,
    Refused,
}

impl Client {
    fn connect(&mut self) -> Result<(Ended, u64), Failure> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)
            .map_err(machine_says("open a socket"))?;
        // A reset when it is closed: nobody is left in TIME_WAIT.
        sockopt::set_socket_linger(&socket, Some(Duration::ZERO)).map_err(machine_says("set SO_LINGER"))?;
        let at = SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, self.next as u8 + 1), PORT);
        let began = Instant::now();
        let done = rustix::net::connect(&socket, &at);
        let ns = began.elapsed().as_nanos() as u64;
        let number = self.next;
        self.next = (self.next + 1) % self.open.len();
        match done {
            Ok(()) | Err(Errno::INPROGRESS) => {
                self.open[number].push_back(socket);
                Ok((Ended::Open, ns))
            }
            Err(Errno::ADDRNOTAVAIL) => Ok((Ended::Refused, ns)),
            Err(errno) => Err(Failure::Machine(format!("cannot connect over loopback: {errno}"))),
        }
    }

    /// The newest connection of each destination is established, and so are those before it.
    fn settle(&self) -> Result<(), Failure> {
        for socket in self.open.iter().filter_map(VecDeque::back) {
            let mut watched = [PollFd::new(socket, PollFlags::OUT)];
            let most = Timespec { tv_sec: HANDSHAKE_MAX.as_secs() as i64, tv_nsec: 0 };
            rustix::event::poll(&mut watched, Some(&most)).map_err(machine_says("wait for a handshake"))?;
            if !watched[0].revents().contains(PollFlags::OUT) || watched[0].revents().contains(PollFlags::ERR) {
                return Err(Failure::Machine("a handshake over loopback did not end".into()));
            }
        }
        Ok(())
    }

    fn count(&self) -> usize {
        self.open.iter().map(VecDeque::len).sum()
    }

    fn close_to(&mut self, base: usize) {
        while self.count() > base {
            let longest = (0..self.open.len()).max_by_key(|number| self.open[*number].len()).unwrap_or(0);
            drop(self.closing.choose(&mut self.open[longest], &mut self.entropy));
        }
    }

    fn level(&mut self, percent: u32, range: usize, part: &Part) -> Result<Level, Failure> {
        let base = share(range, percent) * self.open.len();
        let room = range * self.open.len() - base;
        while self.count() < base {
            for _ in 0..FILL_BATCH.min(base - self.count()) {
                if let (Ended::Refused, _) = self.connect()? {
                    return Err(Failure::Machine(format!("refused with {} of {base} connections open", self.count())));
                }
            }
            self.settle()?;
        }
        let mut ns = histogram();
        let (mut sum, mut refused, mut done) = (0, 0, 0);
        let (began, time) = (Instant::now(), Duration::from_millis(part.time));
        while done < part.samples && (done == 0 || began.elapsed() < time) {
            let left = part.samples - done;
            let batch = left.min(if room == 0 { BATCH } else { BATCH.min((room / 4).max(1)) });
            for _ in 0..batch {
                let (ended, took) = self.connect()?;
                ns.saturating_record(took.max(1));
                sum += took;
                refused += usize::from(matches!(ended, Ended::Refused));
            }
            self.settle()?;
            self.close_to(base);
            done += batch;
        }
        Ok(Level {
            percent,
            p50_ns: ns.value_at_quantile(0.5),
            p99_ns: ns.value_at_quantile(0.99),
            mean_ns: sum as f64 / done.max(1) as f64,
            samples: done,
            refused,
        })
    }
}

const LISTENER: u64 = u64::MAX;
const PARENT: u64 = u64::MAX - 1;

/// Accepts whatever comes, and closes what the peer has closed.
fn serve() -> Result<(), Failure> {
    files_max();
    machine::pin(1.min(machine::cores() - 1));
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let listener = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)
        .and_then(|listener| {
            sockopt::set_socket_reuseaddr(&listener, true)?;
            rustix::net::bind(&listener, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, PORT))?;
            rustix::net::listen(&listener, 65_535)?;
            Ok(listener)
        })
        .map_err(machine_says("listen"))?;
    println!("listening");
    accept_all(&listener).map_err(machine_says("serve"))
}

fn accept_all(listener: &OwnedFd) -> Result<(), Errno> {
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    let stdin = std::io::stdin();
    epoll::add(&epoll, listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    epoll::add(&epoll, &stdin, EventData::new_u64(PARENT), EventFlags::IN | EventFlags::HUP)?;
    let mut events: Vec<Event> = Vec::with_capacity(512);
    let mut open: Vec<Option<OwnedFd>> = Vec::new();
    let mut free: Vec<usize> = Vec::new();
    loop {
        events.clear();
        match epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        for event in &events {
            match event.data.u64() {
                LISTENER => {
                    while let Ok(socket) =
                        rustix::net::accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)
                    {
                        let number = free.pop().unwrap_or_else(|| {
                            open.push(None);
                            open.len() - 1
                        });
                        epoll::add(&epoll, &socket, EventData::new_u64(number as u64), EventFlags::IN)?;
                        open[number] = Some(socket);
                    }
                }
                PARENT => {
                    // Nothing is ever sent: the end of it is the end of the parent.
                    if matches!(std::io::stdin().read(&mut [0; 1]), Ok(0) | Err(_)) {
                        return Ok(());
                    }
                }
                number => {
                    open[number as usize] = None; // closes
                    free.push(number as usize);
                }
            }
        }
    }
}
