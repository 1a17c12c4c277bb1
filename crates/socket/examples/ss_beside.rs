//! What listing connections costs those that are being made: connect, request, response, close as fast as two lanes can,
//! beside so many idle connections, in turns without and with a client that lists all of them again and again.
//!
//!     cargo run --release -p laneway --example ss_beside -- 100000 [--json]

#![forbid(unsafe_code)]

use laneway::control::{Ask, Client, ControlSocket, SsRow};
use laneway::on_lane::{Address, App, CloseReason, Config, ConnId, Context, Device, LinkConfig, Mib, Stack};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Idle connections per source address.
const PER_SOURCE: usize = 20_000;
/// Source addresses of those that come and go.
const SOURCES: u8 = 100;
/// Those under way at a time.
const AT_ONCE: usize = 100;
const TURN: Duration = Duration::from_secs(3);
const ROUNDS: usize = 5;

#[derive(Default)]
struct Tally {
    idle: AtomicU64,
    done: AtomicU64,
    go: AtomicBool,
}

struct Crr {
    is_client: bool,
    idle: usize,
    opened: usize,
    running: usize,
    source: u8,
    tally: Arc<Tally>,
}

const IDLE: u64 = 1;
const CRR: u64 = 2;

impl App for Crr {
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        if !self.is_client {
            return;
        }
        let server = Address::from_v4([10, 0, 0, 1]);
        // A few at a time, so that nothing overflows.
        let mut most = 64;
        while self.opened < self.idle && most > 0 {
            let from = Address::from_v4([10, 0, 1, (self.opened / PER_SOURCE) as u8 + 1]);
            cx.connect(Some(from), server, 80, IDLE).expect("there are ports");
            self.opened += 1;
            most -= 1;
        }
        while self.tally.go.load(Ordering::Relaxed) && self.running < AT_ONCE {
            self.source = self.source % SOURCES + 1;
            if cx.connect(Some(Address::from_v4([10, 0, 2, self.source])), server, 80, CRR).is_err() {
                return;
            }
            self.running += 1;
        }
    }
    fn on_connect(&mut self, cx: &mut Context<'_>, id: ConnId) {
        match cx.token(id) {
            IDLE => drop(self.tally.idle.fetch_add(1, Ordering::Relaxed)),
            _ => drop(cx.send(id, b"request")),
        }
    }
    fn on_data(&mut self, cx: &mut Context<'_>, id: ConnId, data: &[u8]) -> usize {
        if !self.is_client {
            cx.send(id, b"response");
            cx.close(id);
        }
        data.len()
    }
    fn on_closed(&mut self, _: &mut Context<'_>, _: ConnId, token: u64, reason: CloseReason) {
        if self.is_client && token == CRR {
            self.running -= 1;
            if reason == CloseReason::Normal {
                self.tally.done.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let json = arguments.iter().any(|a| a == "--json");
    let idle: usize = arguments.iter().find(|a| !a.starts_with('-')).map_or(Ok(100_000), |n| n.parse())?;
    let path = std::env::temp_dir().join(format!("laneway-ss-beside-{}.sock", std::process::id()));
    let tally = Arc::new(Tally::default());
    let (here, there) = Device::memory_pair_with(LinkConfig { ring_bytes: 8 << 20, ..LinkConfig::default() })?;
    let mut config = Config { connections: idle, ..Config::default() };
    config.tcp.msl_us = 1_000_000;
    let app = |is_client, idle| {
        let tally = Arc::clone(&tally);
        move |_| Crr { is_client, idle, opened: 0, running: 0, source: 0, tally: Arc::clone(&tally) }
    };
    let server = Stack::builder(here).address("10.0.0.1/16")?.config(config.clone());
    let server = server.control(ControlSocket::At(path.clone())).start(app(false, 0))?;
    server.listen("0.0.0.0:80".parse()?, 4_096)?;
    let mut client = Stack::builder(there).config(config).pin(false);
    for network in [1, 2] {
        for host in 1..=SOURCES {
            client = client.address(&format!("10.0.{network}.{host}/16"))?;
        }
    }
    let client = client.start(app(true, idle))?;
    while tally.idle.load(Ordering::Relaxed) < idle as u64 {
        std::thread::sleep(Duration::from_millis(20));
    }
    tally.go.store(true, Ordering::Relaxed);
    client.waker().wake_all();
    std::thread::sleep(Duration::from_secs(1));

    let (listing, rows, lists) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let mut ratios = Vec::new();
    let ending = AtomicBool::new(false);
    std::thread::scope(|scope| -> Result<(), Box<dyn std::error::Error>> {
        let lister = scope.spawn(|| {
            while !ending.load(Ordering::Relaxed) {
                if !listing.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
                let Ok(mut client) = Client::connect(&path) else { return };
                let ask = Ask::Ss { states: vec!["established".into()] };
                let Ok(answers) = client.ask::<SsRow>(&ask) else { return };
                for _ in answers {
                    rows.fetch_add(1, Ordering::Relaxed);
                    if !listing.load(Ordering::Relaxed) {
                        break;
                    }
                }
                lists.fetch_add(1, Ordering::Relaxed);
            }
        });
        let rate = |with: bool| {
            listing.store(with, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(50));
            let (from, began) = (tally.done.load(Ordering::Relaxed), Instant::now());
            std::thread::sleep(TURN);
            (tally.done.load(Ordering::Relaxed) - from) as f64 / began.elapsed().as_secs_f64()
        };
        for round in 0..ROUNDS {
            // A turn without on either side of the one with, so that a drift of the machine cancels out.
            let (before, with, after) = (rate(false), rate(true), rate(false));
            let ratio = with / ((before + after) / 2.0);
            ratios.push(ratio);
            if !json {
                println!("round {round}: {before:.0}/s, listing {with:.0}/s, {after:.0}/s: {ratio:.3}");
            }
        }
        listing.store(false, Ordering::Relaxed);
        ending.store(true, Ordering::Relaxed);
        let _ = lister.join();
        Ok(())
    })?;
    ratios.sort_by(f64::total_cmp);
    let median = ratios[ratios.len() / 2];
    let listed = rows.load(Ordering::Relaxed);
    let per_second = listed as f64 / (TURN.as_secs_f64() * ROUNDS as f64);
    let evicted = server.counters()?.get(Mib::TcpExtTCPTimeWaitOverflow);
    if json {
        println!(
            "{{\"metric\":\"rate_while_listing\",\"value\":{median:.4},\"unit\":\"ratio\",\"source\":\"measured\",\"idle\":{idle},\"rows_listed\":{listed},\"tw_evicted\":{evicted}}}"
        );
    } else {
        println!(
            "{idle} idle connections; {listed} rows listed, {per_second:.0} a second; TIME_WAIT evicted early: {evicted}"
        );
        println!("median rate while listing: {:.1} % of the rate without", median * 100.0);
    }
    client.stop();
    server.stop();
    Ok(())
}
