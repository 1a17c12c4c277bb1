//! What listing connections costs those that are being made: connect, request, response, close as fast as two lanes can,
//! beside so many idle connections, in turns without, with and without a client that lists all of them again and again.
//!
//!     cargo run --release -p laneway --example ss_beside -- 1000000 [--json]
//!
//! One figure counts: the rate while listing, divided by the mean of the turns without before and after it, the median over
//! all rounds; it shall be 0.95 at least, and the exit code is 1 if it is not. Beside it stands what the same division gives for two
//! turns without: how much of the figure is the machine's own unrest. A turn in which nothing was listed is no measurement
//! but an error, and in the end one whole listing must show every connection that is there. The listing client gives way
//! to others (nice 19), as `laneway ss` does.

#![forbid(unsafe_code)]

use laneway::control::{Ask, Client, ControlSocket, SsRow};
use laneway::on_lane::{Address, App, CloseReason, Config, ConnId, Context, Device, LinkConfig, Mib, Stack};
use std::path::Path;
use std::process::ExitCode;
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
/// The rate while listing shall be so much of the rate without.
const BAR: f64 = 0.95;
/// Without a new idle connection for so long, there will be none.
const PATIENCE: Duration = Duration::from_secs(30);

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

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// Rows of one listing, until it ends or is not wanted any more.
fn list(path: &Path, wanted: impl Fn() -> bool, rows: &AtomicU64) -> Result<(), Failed> {
    let mut client = Client::connect(path)?;
    for row in client.ask::<SsRow>(&Ask::Ss { states: vec!["established".into()] })? {
        row?;
        rows.fetch_add(1, Ordering::Relaxed);
        if !wanted() {
            break;
        }
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<ExitCode, Failed> {
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
    let (mut seen, mut since) = (0, Instant::now());
    while seen < idle as u64 {
        std::thread::sleep(Duration::from_millis(20));
        let now = tally.idle.load(Ordering::Relaxed);
        if now > seen {
            (seen, since) = (now, Instant::now());
        } else if since.elapsed() > PATIENCE {
            return Err(format!("only {seen} of {idle} idle connections could be made").into());
        }
    }
    tally.go.store(true, Ordering::Relaxed);
    client.waker().wake_all();
    std::thread::sleep(Duration::from_secs(1));

    let (listing, rows, ending) = (AtomicBool::new(false), AtomicU64::new(0), AtomicBool::new(false));
    let wanted = || listing.load(Ordering::Relaxed);
    let (mut ratios, mut noise) = (Vec::new(), Vec::new());
    let measured = std::thread::scope(|scope| -> Result<(), Failed> {
        let lister = scope.spawn(|| -> Result<(), Failed> {
            let _ = rustix::process::setpriority_process(None, 19);
            while !ending.load(Ordering::Relaxed) {
                if wanted() {
                    list(&path, wanted, &rows)?;
                } else {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            Ok(())
        });
        // Connections a second, and rows listed meanwhile.
        let rate = |with: bool| {
            listing.store(with, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(100));
            let (done, listed, began) =
                (tally.done.load(Ordering::Relaxed), rows.load(Ordering::Relaxed), Instant::now());
            std::thread::sleep(TURN);
            let rate = (tally.done.load(Ordering::Relaxed) - done) as f64 / began.elapsed().as_secs_f64();
            (rate, rows.load(Ordering::Relaxed) - listed)
        };
        let mut rounds = || -> Result<(), Failed> {
            for round in 0..ROUNDS {
                // A turn without on either side of the one with, so that a drift of the machine cancels out.
                let ((before, _), (with, listed), (after, stray)) = (rate(false), rate(true), rate(false));
                // The client may have had no processor when it was told to end: a page may still come.
                if listed == 0 || stray > 256 || before == 0.0 || after == 0.0 {
                    return Err(format!(
                        "round {round} is no measurement: {before:.0}/s, listing {with:.0}/s and {listed} rows, then {after:.0}/s and {stray} rows"
                    )
                    .into());
                }
                ratios.push(with / ((before + after) / 2.0));
                noise.push(after / before);
                if !json {
                    println!(
                        "round {round}: {before:.0}/s, listing {with:.0}/s ({:.0} rows/s), {after:.0}/s: {:.3}; without against without {:.3}",
                        listed as f64 / TURN.as_secs_f64(),
                        ratios[round],
                        noise[round]
                    );
                }
            }
            Ok(())
        };
        let rounds = rounds();
        listing.store(false, Ordering::Relaxed);
        ending.store(true, Ordering::Relaxed);
        match lister.join() {
            Ok(listed) => listed.map_err(|error| format!("the listing failed: {error}"))?,
            Err(_) => return Err("the listing client panicked".into()),
        }
        rounds
    });
    measured?;
    let whole = AtomicU64::new(0);
    list(&path, || true, &whole)?;
    let whole = whole.into_inner();
    if whole < idle as u64 {
        return Err(format!("a whole listing showed {whole} of {idle} idle connections").into());
    }
    let (figure, noise) = (median(ratios), median(noise));
    let held = figure >= BAR;
    let evicted = server.counters()?.get(Mib::TcpExtTCPTimeWaitOverflow);
    let slow = server.counters()?.get(Mib::PollsSlow);
    if json {
        println!(
            "{{\"metric\":\"rate_while_listing\",\"value\":{figure:.4},\"unit\":\"ratio\",\"source\":\"measured\",\"bar\":{BAR},\"held\":{held},\"without_against_without\":{noise:.4},\"idle\":{idle},\"rows_listed\":{},\"polls_slow\":{slow},\"tw_evicted\":{evicted}}}",
            rows.load(Ordering::Relaxed)
        );
    } else {
        println!(
            "{idle} idle connections; a whole listing has {whole} rows; polls over 10 ms: {slow}; TIME_WAIT evicted early: {evicted}"
        );
        println!("without against without: {noise:.3}");
        println!(
            "CRR rate with ss running / without: {figure:.3} (bar {BAR}: {})",
            if held { "held" } else { "NOT held" }
        );
    }
    client.stop();
    server.stop();
    Ok(if held { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
