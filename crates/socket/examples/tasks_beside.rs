//! What tasks make of Laneway and of the kernel's loopback, in turns: each asks a question of 64 bytes, waits for the answer, and asks the next.
//! Servers and clients are a runtime of one worker each. Nobody has more than one message under way, so that Nagle's rule never waits.
//!
//!     cargo run --release -p laneway --features tokio --example tasks_beside -- 1 4 16 100 1000 [--json]
//!
//! Numbers are connections at a time. Each line is the mean of the turns, with the slowest and the fastest of them, so that one sees
//! how much the machine differs from itself.

#![forbid(unsafe_code)]

use laneway::{Device, Stack};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use std::io;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::runtime::{Builder, Runtime};

const QUESTION: [u8; 64] = [7; 64];
const TURN: Duration = Duration::from_millis(500);
const ROUNDS: usize = 4;
/// To one address there are not many more ports.
const CONNS_MAX: usize = 10_000;

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// A stream of either.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Stream for S {}

/// Until the other end closes.
async fn answers(mut stream: impl Stream) -> io::Result<()> {
    let mut question = QUESTION;
    while stream.read_exact(&mut question).await.is_ok() {
        stream.write_all(&question).await?;
    }
    Ok(())
}

/// How long each answer took, in nanoseconds.
async fn asks(mut stream: impl Stream) -> io::Result<Vec<u64>> {
    let (began, mut took) = (Instant::now(), Vec::new());
    let mut answer = [0; QUESTION.len()];
    while began.elapsed() < TURN {
        let asked = Instant::now();
        stream.write_all(&QUESTION).await?;
        stream.read_exact(&mut answer).await?;
        took.push(asked.elapsed().as_nanos() as u64);
    }
    Ok(took)
}

/// Answers a second, and what half of them took at the most, in microseconds.
fn turn<S: Stream>(server: &Runtime, client: &Runtime, ends: Vec<(S, S)>) -> Result<(f64, f64), Failed> {
    let began = Instant::now();
    let asking: Vec<_> = ends
        .into_iter()
        .map(|(near, far)| {
            server.spawn(answers(far));
            client.spawn(asks(near))
        })
        .collect();
    let mut took = Vec::new();
    for task in asking {
        took.extend(client.block_on(task)??);
    }
    let rate = took.len() as f64 / began.elapsed().as_secs_f64();
    took.sort_unstable();
    let p50 = took.get(took.len() / 2).ok_or("nobody has had an answer")?;
    Ok((rate, *p50 as f64 / 1e3))
}

struct Networks {
    near: Stack,
    far: Stack,
    server: Runtime,
    client: Runtime,
}

impl Networks {
    fn new() -> Result<Networks, Failed> {
        let (here, there) = Device::memory_pair(1)?;
        let far = Stack::builder(here).address("10.0.0.1/24")?.start()?;
        let near = Stack::builder(there).address("10.0.0.2/24")?.start()?;
        let runtime = || Builder::new_multi_thread().worker_threads(1).enable_all().build();
        Ok(Networks { near, far, server: runtime()?, client: runtime()? })
    }

    /// Connections, each with its two ends.
    fn ends<S>(
        &self,
        conns: usize,
        connect: impl AsyncFn() -> io::Result<S>,
        accept: impl AsyncFn() -> io::Result<S>,
    ) -> io::Result<Vec<(S, S)>> {
        (0..conns).map(|_| Ok((self.client.block_on(connect())?, self.server.block_on(accept())?))).collect()
    }

    fn laneway(&self, conns: usize) -> Result<(f64, f64), Failed> {
        use laneway::tokio::{TcpListener, TcpStream};
        let listener = self.server.block_on(TcpListener::bind_on(&self.far, "10.0.0.1:0"))?;
        let at = listener.local_addr()?;
        let connect = async || TcpStream::connect_on(&self.near, at).await;
        turn(&self.server, &self.client, self.ends(conns, connect, async || Ok(listener.accept().await?.0))?)
    }

    fn linux(&self, conns: usize) -> Result<(f64, f64), Failed> {
        use tokio::net::{TcpListener, TcpStream};
        let listener = self.server.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let at = listener.local_addr()?;
        let connect = async || TcpStream::connect(at).await;
        turn(&self.server, &self.client, self.ends(conns, connect, async || Ok(listener.accept().await?.0))?)
    }
}

/// A connection over the kernel has two descriptors of ours, and many a shell allows 1,024 unless one asks for more.
fn open_files(conns: usize) -> Result<(), Failed> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    let wanted = 2 * conns as u64 + 64;
    match maximum {
        Some(allowed) if allowed < wanted => Err(format!(
            "{conns} connections want {wanted} open files, and {allowed} are allowed; sudo prlimit --pid $$ --nofile={wanted}:{wanted}"
        )
        .into()),
        _ => Ok(()),
    }
}

fn main() -> Result<(), Failed> {
    let mut all_conns = Vec::new();
    let mut is_json = false;
    for argument in std::env::args().skip(1) {
        match argument.parse() {
            Ok(conns @ 1..=CONNS_MAX) => all_conns.push(conns),
            _ if argument == "--json" => is_json = true,
            _ => {
                eprintln!(
                    "{argument} is no number of connections from 1 to {CONNS_MAX}; usage: tasks_beside [--json] [1 4 16 …]"
                );
                std::process::exit(2);
            }
        }
    }
    if all_conns.is_empty() {
        all_conns = vec![1, 4, 16, 100, 1_000];
    }
    open_files(all_conns.iter().copied().max().unwrap_or(0))?;
    let networks = Networks::new()?;
    let mut rows = Vec::new();
    for conns in all_conns {
        let mut turns = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            turns[0].push(networks.laneway(conns)?);
            turns[1].push(networks.linux(conns)?);
        }
        for (who, turns) in ["laneway", "linux"].into_iter().zip(turns) {
            let rates = || turns.iter().map(|(rate, _)| *rate);
            let mean = |sum: f64| sum / ROUNDS as f64;
            let (rate, p50) = (mean(rates().sum()), mean(turns.iter().map(|(_, p50)| p50).sum()));
            let (least, most) = (rates().fold(f64::MAX, f64::min), rates().fold(0.0, f64::max));
            if !is_json {
                println!("{conns:>6} {who:<8} {rate:>9.0} answers/s ({least:.0} to {most:.0}), p50 {p50:.1} us");
            }
            rows.push(json!({ "who": who, "api": "tokio", "conns": conns, "ops_per_s": rate, "p50_us": p50, "rounds": rates().collect::<Vec<_>>() }));
        }
    }
    if is_json {
        println!("{:#}", json!({ "unit": "answers", "rows": rows }));
    }
    Ok(())
}
