//! Owns what connections cost that do nothing: memory per end, the time of a request on one of many, and the memory of
//! TIME_WAIT records, index included.

use super::crew::{ADDRESSES, Client, Crew, Load, Server, Shape, Work, build, counters, introduce};
use super::crr::{Crr, REQUEST, RESPONSE};
use super::failure::Failure;
use super::latency::Stopwatch;
use super::machine;
use super::options::Checksums;
use super::report::{Idle, Report};
use laneway_proto::tcp::CloseReason;
use laneway_proto::time::Instant;
use laneway_stack::app::{App, ConnId, Context};
use laneway_stack::counters::Mib;
use laneway_stack::entropy::Entropy;
use laneway_stack::sharing::LaneOwned;

/// Requests on connections chosen at random.
const REQUESTS: usize = 10_000;
/// Connections that are opening at a time.
const OPENING_MAX: u64 = 1_000;
/// TIME_WAIT records that are made.
const RECORDS: usize = 1_000_000;
/// Connections under way while they are made.
const RECORDS_AT_ONCE: usize = 1_000;
/// Nearly all ports, so that few records are taken over before there are enough.
const WIDE_PORTS: (u16, u16) = (1_024, 65_535);

/// Connections that are opened and left alone, until they are asked for.
#[derive(Clone)]
struct Still;

impl Work for Still {
    type Server = StillServer;
    type Client = StillClient;

    fn server(&self) -> StillServer {
        StillServer
    }
    fn client(&self, load: Load) -> StillClient {
        let open = vec![None; load.target];
        StillClient {
            load,
            open,
            chance: Entropy::from_seed(4_711),
            to_ask: 0,
            asked: None,
            answered: 0,
            stopwatch: Stopwatch::timing_all(),
        }
    }
}

struct StillServer;

impl Server for StillServer {}

impl App for StillServer {
    fn on_data(&mut self, cx: &mut Context<'_>, id: ConnId, data: &[u8]) -> usize {
        if data.len() < REQUEST.len() {
            return 0;
        }
        cx.send(id, &RESPONSE);
        data.len()
    }
}

struct StillClient {
    load: Load,
    /// Written once at the start and once for each connection: its own memory is no part of what is measured.
    open: Vec<Option<ConnId>>,
    chance: Entropy,
    to_ask: usize,
    asked: Option<(ConnId, u64)>,
    answered: usize,
    stopwatch: Stopwatch,
}

impl Client for StillClient {
    fn load(&mut self) -> &mut Load {
        &mut self.load
    }
}

impl App for StillClient {
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        self.load.open_missing(cx);
        if self.to_ask > 0 && self.asked.is_none() {
            let at = (self.chance.next_u64() % self.load.established.max(1)) as usize;
            if let Some(id) = self.open[at] {
                self.to_ask -= 1;
                self.asked = Some((id, self.stopwatch.start()));
                cx.send(id, &REQUEST);
            }
        }
    }
    fn on_connect(&mut self, _: &mut Context<'_>, id: ConnId) {
        self.open[self.load.established as usize] = Some(id);
        self.load.established += 1;
    }
    fn on_data(&mut self, _: &mut Context<'_>, id: ConnId, data: &[u8]) -> usize {
        if data.len() < RESPONSE.len() {
            return 0;
        }
        if let Some((_, started)) = self.asked.take_if(|(asked, _)| *asked == id) {
            self.stopwatch.stop(started);
            self.answered += 1;
        }
        data.len()
    }
    fn on_closed(&mut self, _: &mut Context<'_>, _: ConnId, _: u64, _: CloseReason) {
        self.load.running -= 1;
        self.load.failed += 1;
    }
}

/// Time that runs on.
struct Wall(std::time::Instant);

impl Wall {
    fn now(&self) -> Instant {
        Instant::from_us(3_600_000_000 + self.0.elapsed().as_micros() as u64)
    }
}

/// Opens `shape.conns` connections and measures them, then the records.
pub fn run(shape: &Shape, report: &mut Report) -> Result<(), Failure> {
    machine::pin(0);
    report.add_idle(&connections(shape)?);
    for ipv6 in [false, true] {
        report.add_idle(&records(shape, ipv6)?);
    }
    Ok(())
}

fn checksums(shape: &Shape) -> &'static str {
    match shape.checksums {
        Checksums::Software => "software",
        Checksums::Offload => "offload",
    }
}

fn connections(shape: &Shape) -> Result<Idle, Failure> {
    let wall = Wall(std::time::Instant::now());
    let fixed_shape = Shape { conns: 1, ring_bytes: shape.ring_bytes.min(1 << 22), ..shape.clone() };
    // Everything as for one connection: tables and slabs have to grow, and their growth is counted.
    let mut crews: Vec<Crew<Still, LaneOwned>> = build(&Still, &fixed_shape, wall.now())?;
    for app in crews[0].client_apps() {
        app.open = vec![None; shape.conns];
        // Touched now, so that it is not counted later.
        app.open.iter_mut().for_each(|slot| *slot = std::hint::black_box(None));
    }
    introduce(&mut crews, |crews| crews[0].turn(wall.now()))?;
    let crew = &mut crews[0];
    let mut established = crew.loads().map(|load| load.established).sum::<u64>();
    let (fixed_tables, fixed_resident) = (crew.table_bytes(), machine::resident_bytes());

    let bar = super::progress(shape.conns);
    bar.set_message("connections are opened");
    let began = std::time::Instant::now();
    let mut idle_turns = 0_u64;
    while established < shape.conns as u64 {
        // One from each address before there are many: the server does not know their link addresses yet.
        let more = if established < ADDRESSES as u64 { ADDRESSES as u64 - established } else { OPENING_MAX };
        crew.loads().for_each(|load| load.target = shape.conns.min((established + more) as usize));
        for _ in 0..64 {
            crew.turn(wall.now());
        }
        let now_established = crew.loads().map(|load| load.established).sum();
        idle_turns = if now_established > established { 0 } else { idle_turns + 1 };
        established = now_established;
        bar.set_position(established);
        if idle_turns > 1_000_000 {
            return Err(Failure::stuck(&counters(&mut crews)));
        }
    }
    let opened_s = began.elapsed().as_secs_f64();
    // Until every timer of the handshakes has come and gone.
    let settle = std::time::Instant::now();
    while settle.elapsed().as_millis() < 1_500 {
        crew.turn(wall.now());
    }
    let (tables, resident) = (crew.table_bytes(), machine::resident_bytes());
    let ends = 2.0 * shape.conns as f64;
    let by_tables = (tables - fixed_tables) as f64 / ends;
    let by_resident = (resident.saturating_sub(fixed_resident)) as f64 / ends;

    bar.set_message("requests on connections chosen at random");
    crew.client_apps().for_each(|app| app.to_ask = REQUESTS);
    let asking = std::time::Instant::now();
    while crew.client_apps().any(|app| app.answered < REQUESTS) {
        crew.turn(wall.now());
        if asking.elapsed().as_secs() > 60 {
            return Err(Failure::stuck(&counters(&mut crews)));
        }
    }
    let after_requests = (crew.table_bytes() - fixed_tables) as f64 / ends;
    bar.finish_and_clear();
    let histogram = crew.client_apps().next().map(|app| app.stopwatch.take());
    let us = histogram.map(|all| [0.5, 0.99, 0.999].map(|quantile| all.value_at_quantile(quantile) as f64 / 1e3));
    let failed: u64 = crew.loads().map(|load| load.failed).sum();
    let all = crew.counters();
    let mut remarks = format!(
        "{} connections, both ends in this process, opened in {opened_s:.1} s: {by_tables:.0} bytes per end by the tables' own count beyond the fixed {fixed_tables} of both, {by_resident:.0} by resident memory; {after_requests:.0} by the tables after {REQUESTS} requests; {} retransmitted, {} cookies, {failed} failed",
        shape.conns,
        all.get(Mib::TcpRetransSegs),
        all.get(Mib::TcpExtSyncookiesSent),
    );
    if shape.counters {
        remarks += &format!("; {:?}", all.iter().collect::<Vec<_>>());
    }
    Ok(Idle {
        who: "laneway",
        checksums: checksums(shape),
        conns: shape.conns,
        ops_per_s: shape.conns as f64 / opened_s,
        us,
        bytes_per_conn: by_tables,
        tw_evicted: Some(0),
        failed,
        remarks,
    })
}

fn records(shape: &Shape, ipv6: bool) -> Result<Idle, Failure> {
    let wall = Wall(std::time::Instant::now());
    // Long enough that none expires meanwhile.
    let shape = Shape {
        conns: RECORDS_AT_ONCE,
        ports: WIDE_PORTS,
        msl_us: shape.msl_us.max(120_000_000),
        ipv6,
        presized: false,
        ..shape.clone()
    };
    let mut crews: Vec<Crew<Crr, LaneOwned>> = build(&Crr, &shape, wall.now())?;
    let (fixed_records, fixed_index) = crews[0].time_wait_bytes();
    introduce(&mut crews, |crews| crews[0].turn(wall.now()))?;
    let crew = &mut crews[0];
    let bar = super::progress(RECORDS);
    bar.set_message(if ipv6 { "TIME_WAIT records, IPv6" } else { "TIME_WAIT records, IPv4" });
    let began = std::time::Instant::now();
    loop {
        for _ in 0..64 {
            crew.turn(wall.now());
        }
        let (live, _) = crew.time_waits();
        bar.set_position(live as u64);
        if live >= RECORDS {
            break;
        }
        if began.elapsed().as_secs() > 100 {
            return Err(Failure::stuck(&counters(&mut crews)));
        }
    }
    bar.finish_and_clear();
    // What is under way ends, nothing new begins.
    crew.loads().for_each(|load| load.target = 0);
    while crew.loads().any(|load| load.running > 0) {
        crew.turn(wall.now());
    }
    let took_s = began.elapsed().as_secs_f64();
    let (live, queued) = crew.time_waits();
    let (records, index) = crew.time_wait_bytes();
    let (records, index) = (records - fixed_records, index - fixed_index);
    let evicted = crew.counters().get(Mib::TcpExtTCPTimeWaitOverflow);
    let failed = crew.loads().map(|load| load.failed).sum();
    let per_record = (records + index) as f64 / live as f64;
    let family = if ipv6 { "IPv6" } else { "IPv4" };
    let mib = |bytes: f64| bytes / 1_048_576.0;
    let remarks = format!(
        "TIME_WAIT, {family}: {live} records ({queued} queued): {:.1} MiB of records and {:.1} MiB of index, {:.1} MiB for 1,000,000",
        mib(records as f64),
        mib(index as f64),
        mib(per_record * 1e6),
    );
    let who = if ipv6 { "time-wait-v6" } else { "time-wait-v4" };
    Ok(Idle {
        who,
        checksums: checksums(&shape),
        conns: live,
        ops_per_s: live as f64 / took_s,
        us: None,
        bytes_per_conn: per_record,
        tw_evicted: Some(evicted),
        failed,
        remarks,
    })
}
