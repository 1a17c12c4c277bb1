//! Owns the command line of `bench`.

use super::failure::Failure;
use crate::s3_ports::Ports;
use clap::{Args, ValueEnum};
use std::ops::RangeInclusive;
use std::time::Duration;

/// Connections at a time: 64 addresses have no more ports.
const CONNS_MAX: usize = 1_500_000;

/// What is done over and over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Unit {
    /// Connect, 92-byte request, 206-byte response, close
    Crr,
    /// Request and response on open connections
    Rr,
    /// Bulk data one way
    Stream,
    /// Many connections that do nothing, and what they cost
    Idle,
}

/// Who computes and verifies transport checksums.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Checksums {
    /// Both ends, in software
    Software,
    /// Nobody: the memory link vouches for its bytes, as a network card would
    Offload,
}

/// How the two ends and their lanes are shared out to cores.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Cores {
    /// Both ends on one core (one lane)
    Same,
    /// The server on one core, the client on another (one lane each)
    Split,
    /// Each core with a server and a client of its own (two lanes)
    Pairs,
    /// Each core with one lane of the server and one of the client, flows hashed over the lanes of both independently: frames cross cores (two lanes)
    Hashed,
}

/// How the lanes of one stack share their connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum SharingName {
    /// Every lane owns its connections
    Lane,
    /// One lock around nearly everything
    Global,
    /// The same, but accept does without
    Accept,
    /// The same, and TIME_WAIT has a lock of its own
    #[value(name = "timewait")]
    TimeWait,
    /// The lock is only read, but for walks over all connections
    Decomposed,
    /// A lock for each lane's connections
    Epoch,
}

/// What a packet does to the route that it uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ReferencesName {
    /// A loop of compare-exchange, in the line that packets read
    R0,
    /// The same, on a line of its own
    R1,
    /// A count without a loop, in the line that packets read
    R2,
    /// The same, on a line of its own
    R3,
    /// std::sync::Arc
    Arc,
    /// Nothing: routes are borrowed for a poll
    Lane,
}

/// How applications use the stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Api {
    /// They live on the lanes
    Lane,
    /// They have threads of their own, and sockets: a lane at each end; beside the on-lane API, both ends on one core and each on its own, and beside the kernel's sockets in the same structure
    Thread,
}

/// What else does the same work in the same run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Peer {
    /// smoltcp, both ends in one interface on one core
    Smoltcp,
    /// The kernel over loopback: epoll server on core 0, epoll client on core 1
    Linux,
}

const EXAMPLES: &str = "\
Examples:
  # Connections per second, at three loads:
  laneway-lab bench crr --conns 1,100,10000
  laneway-lab bench crr --conns 100 --peer smoltcp --peer linux
  laneway-lab bench crr --conns 1000 --lanes 2 --cores pairs
  # Local ports chosen as Linux chose them until 2024:
  laneway-lab bench crr --conns 1000 --ports b2
  laneway-lab bench rr --conns 100 --checksums offload --json
  laneway-lab bench stream --conns 1 --mtu 65535 --peer smoltcp
  laneway-lab bench idle --conns 1000000
  # A connection beside ten SYNs, ACKs, RSTs and fragments of an attack:
  laneway-lab bench crr --conns 100 --attack 10
  # 4 application threads with pollers, beside the on-lane API:
  laneway-lab bench rr --api thread --conns 9000 --peer linux
  # Ping-pong between two threads, blocking calls:
  laneway-lab bench rr --api thread --conns 1 --message 1 --peer linux
  laneway-lab bench stream --api thread --conns 1 --checksums offload --json

Every contender does its rounds in turn (A B A B …), beside a twin of ours
(laneway-aa): a difference smaller than the twin's is noise.";

/// `laneway-lab bench`
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Bench {
    /// What is done over and over
    pub unit: Unit,
    /// Connections at a time; several numbers make several measurements
    #[arg(long, value_parser = whole::<usize>(1..=CONNS_MAX), value_name = "N[,N…]", value_delimiter = ',', default_value = "100")]
    pub conns: Vec<usize>,
    /// Lanes of each stack, 1 or 2
    #[arg(long, value_parser = whole::<usize>(1..=2), value_name = "L", default_value_t = 1)]
    pub lanes: usize,
    /// Seconds of each round of each contender (not of idle, which has its own course) [default: 1]
    #[arg(long, value_parser = parse_seconds, value_name = "S")]
    pub seconds: Option<f64>,
    /// Rounds of each contender (crr, rr and stream) [default: 5]
    #[arg(long, value_parser = whole::<usize>(1..=1_000), value_name = "R")]
    pub rounds: Option<usize>,
    /// Who computes and verifies transport checksums
    #[arg(long, value_enum, default_value_t = Checksums::Software)]
    pub checksums: Checksums,
    /// Measure this beside it; may be given twice
    #[arg(long, value_enum)]
    pub peer: Vec<Peer>,
    /// How applications use the stack
    #[arg(long, value_enum, default_value_t = Api::Lane)]
    pub api: Api,
    /// Application threads, half of which serve (with --api thread) [default: 2 for one connection, else 4]
    #[arg(long, value_parser = whole::<usize>(2..=128), value_name = "N")]
    pub threads: Option<usize>,
    /// How lanes share connections
    #[arg(long, value_enum, default_value_t = SharingName::Lane)]
    pub sharing: SharingName,
    /// What a packet does to its route (crr and rr)
    #[arg(long, value_enum, default_value_t = ReferencesName::Lane)]
    pub references: ReferencesName,
    /// How clients choose local ports
    #[arg(long, value_enum, default_value_t = Ports::Lane)]
    pub ports: Ports,
    /// Maximum segment lifetime: TIME_WAIT lasts twice this
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_time_us)]
    pub msl: u64,
    /// How ends and lanes are shared out to cores [default: same for one lane, hashed for two]
    #[arg(long, value_enum)]
    pub cores: Option<Cores>,
    /// Largest IP packet in bytes
    #[arg(long, value_parser = whole::<usize>(576..=65_535), value_name = "BYTES", default_value_t = 1_500)]
    pub mtu: usize,
    /// IPv6 instead of IPv4 (ours)
    #[arg(long)]
    pub ipv6: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// A fixed number of operations in virtual time, for counting instructions
    #[arg(long, hide = true)]
    pub ops: Option<u64>,
    /// Operations before those that are counted
    #[arg(long, hide = true, requires = "ops")]
    pub warm_up: Option<u64>,
    /// Virtual microseconds of each turn: long ones make timers fire early
    #[arg(long, hide = true, requires = "ops", default_value_t = 4)]
    pub turn_us: u64,
    /// Ephemeral ports per source address
    #[arg(long, value_name = "N", hide = true)]
    pub ports_per_address: Option<u16>,
    /// Bytes of each ring of the memory link [default: a frame for each connection]
    #[arg(long, hide = true)]
    pub ring: Option<usize>,
    /// Print every counter of ours
    #[arg(long, hide = true)]
    pub counters: bool,
    /// Measure this beside it: the server attacked by so many packets for each request, of SYN, ACK, RST and fragments one each, and the
    /// same packets made, but ended in a black hole before the server, which is the rig's own share (crr, rr)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub attack: Option<u32>,
    /// Bytes of a request and of a response (rr)
    #[arg(long, value_parser = whole::<usize>(1..=65_536), value_name = "BYTES")]
    pub message: Option<usize>,
    /// Bytes of send and receive buffers, ours and smoltcp's [default: of a stream 65536, with --api thread 262144]
    #[arg(long, value_parser = whole::<u32>(2_048..=1 << 26), value_name = "BYTES")]
    pub buffer: Option<u32>,
}

impl Bench {
    /// How cores are shared out, checked against the number of lanes.
    pub fn cores(&self) -> Result<Cores, Failure> {
        let cores = match (self.lanes, self.cores) {
            (1, None) => Cores::Same,
            (2, None) => Cores::Hashed,
            (1, Some(cores @ (Cores::Same | Cores::Split))) | (2, Some(cores @ (Cores::Pairs | Cores::Hashed))) => {
                cores
            }
            (1, Some(_)) => return misuse("--cores pairs and --cores hashed need two lanes: add --lanes 2"),
            (2, Some(_)) => return misuse("--cores same and --cores split have one lane: leave --lanes out"),
            _ => return misuse(format!("--lanes must be 1 or 2, not {}", self.lanes)),
        };
        let needed = if cores == Cores::Same { 1 } else { 2 };
        let there = super::machine::cores();
        if there < needed {
            return misuse(format!(
                "two cores are needed, but this process may use {there}: leave out --lanes and --cores"
            ));
        }
        Ok(cores)
    }

    /// The smallest ring that works.
    fn ring_least(&self) -> usize {
        (8 * (self.mtu + 64)).next_power_of_two()
    }

    /// Bytes of each ring: room for what all connections may have under way at a time, one short message or two buffers of
    /// bulk data each.
    pub fn ring(&self, conns: usize) -> usize {
        let each = if self.unit == Unit::Stream { 131_072 } else { 384 };
        self.ring.unwrap_or((conns * each).next_power_of_two().clamp(self.ring_least().max(131_072), 1 << 26))
    }

    /// How long a round is, and how many there are.
    pub fn course(&self) -> (Duration, usize) {
        (Duration::from_secs_f64(self.seconds.unwrap_or(1.0)), self.rounds.unwrap_or(5))
    }

    /// What was said for nothing, for whoever may have meant something by it.
    pub fn idle_words(&self) -> Option<&'static str> {
        (self.unit == Unit::Idle && (self.seconds.is_some() || self.rounds.is_some())).then_some(
            "bench idle goes through its course once, however long that takes: --seconds and --rounds change nothing",
        )
    }

    /// Application threads for so many connections.
    pub fn threads(&self, conns: usize) -> usize {
        self.threads.unwrap_or(if conns == 1 { 2 } else { 4 })
    }

    fn check_threads(&self) -> Result<(), Failure> {
        if self.unit == Unit::Idle || self.ops.is_some() {
            return misuse("--api thread does crr, rr and stream, for a time: leave out idle and --ops");
        }
        if self.lanes != 1 || self.cores.is_some() || self.sharing != SharingName::Lane || self.ports != Ports::Lane {
            return misuse("--api thread has one lane at each end: leave out --lanes, --cores, --sharing and --ports");
        }
        if self.references != ReferencesName::Lane {
            return misuse("--api thread is measured with the product's way with routes: leave out --references");
        }
        if self.ipv6 || self.peer.contains(&Peer::Smoltcp) {
            return misuse(
                "--api thread is measured with IPv4, and smoltcp has no sockets for threads: leave out --ipv6 and --peer smoltcp",
            );
        }
        match self.threads {
            Some(n) if n % 2 != 0 => misuse(format!("--threads must be even, because half of them serve, not {n}")),
            _ => Ok(()),
        }
    }

    /// Checks what clap cannot.
    pub fn check(&self) -> Result<(), Failure> {
        if let Some(conns) = self.conns.iter().find(|conns| **conns < self.lanes) {
            return misuse(format!("--conns {conns} is less than one connection for each of {} lanes", self.lanes));
        }
        if let Some(ring) = self.ring
            && !(ring.is_power_of_two() && ring >= self.ring_least())
        {
            return misuse(format!(
                "--ring must be a power of two and at least {} for frames of {} bytes, not {ring}",
                self.ring_least(),
                self.mtu
            ));
        }
        if self.unit == Unit::Idle
            && (self.lanes != 1 || self.cores.is_some() || !self.peer.is_empty() || self.sharing != SharingName::Lane)
        {
            return misuse("bench idle has one lane and no peers: leave out --lanes, --cores, --sharing and --peer");
        }
        if self.unit != Unit::Crr && !matches!(self.sharing, SharingName::Lane | SharingName::Global) {
            return misuse("--sharing accept, timewait, decomposed and epoch are for bench crr: take lane or global");
        }
        if self.ops.is_some() {
            if self.lanes != 1 || self.cores.is_some_and(|cores| cores != Cores::Same) {
                return misuse(
                    "--ops counts what one lane at each end does, both on one core: leave out --lanes and --cores",
                );
            }
            if self.conns.len() > 1 || !self.peer.is_empty() || self.json {
                return misuse(
                    "--ops counts ours alone, at one number of connections, and prints lines: leave out --peer and --json",
                );
            }
        }
        if self.references != ReferencesName::Lane {
            if self.sharing != SharingName::Lane {
                return misuse("--references compares with the product's own sharing: leave out --sharing");
            }
            if self.ops.is_some() {
                return misuse(
                    "--ops counts the product's way with routes: leave out --references, or take laneway-lab s5",
                );
            }
            if matches!(self.unit, Unit::Stream | Unit::Idle) {
                return misuse("--references is for bench crr and bench rr");
            }
        }
        if self.attack.is_some()
            && (!matches!(self.unit, Unit::Crr | Unit::Rr)
                || self.api == Api::Thread
                || self.sharing != SharingName::Lane
                || self.references != ReferencesName::Lane
                || self.ipv6)
        {
            return misuse(
                "--attack is for bench crr and bench rr as the product does them over IPv4: leave out --api, --sharing, --references and --ipv6",
            );
        }
        if self.api == Api::Thread {
            self.check_threads()?;
        } else if self.threads.is_some() {
            return misuse("--threads are the application's: add --api thread");
        }
        if self.unit != Unit::Rr && self.message.is_some() {
            return misuse("--message is for bench rr: leave it out");
        }
        if let (Some(message), Some(buffer)) = (self.message, self.buffer)
            && message > buffer as usize
        {
            return misuse(format!(
                "--message {message} is queued whole: give --buffer at least as much, not {buffer}"
            ));
        }
        if self.ports_per_address.is_some_and(|ports| !(16..=60_000).contains(&ports)) {
            return misuse("--ports-per-address must be 16 to 60000");
        }
        self.cores().map(drop)
    }
}

fn misuse<T>(text: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::Misuse(text.into()))
}

/// A whole number of this range, which whoever gives anything else is told.
fn whole<T: TryFrom<usize>>(range: RangeInclusive<usize>) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        let right = || format!("it must be a whole number from {} to {}", range.start(), range.end());
        number.and_then(|number| T::try_from(number).ok()).ok_or_else(right)
    }
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.001..=3_600.0).contains(seconds));
    seconds.ok_or_else(|| "it must be a number of seconds from 0.001 to 3600".to_owned())
}

/// `30s`, `500ms`, `2m`; a bare number is seconds.
fn parse_time_us(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is no time; write it as 30s, 500ms or 2m");
    let (number, unit_us) = if let Some(number) = text.strip_suffix("ms") {
        (number, 1e3)
    } else if let Some(number) = text.strip_suffix('s') {
        (number, 1e6)
    } else if let Some(number) = text.strip_suffix('m') {
        (number, 60e6)
    } else {
        (text, 1e6)
    };
    let us = number.trim().parse::<f64>().map_err(|_| wrong())? * unit_us;
    if (1_000.0..=600e6).contains(&us) { Ok(us as u64) } else { Err(format!("'{text}' is out of range: 1ms to 10m")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        bench: Bench,
    }

    fn check(line: &str) -> Result<Cores, String> {
        let bench = Line::try_parse_from(format!("bench {line}").split_whitespace()).map_err(|e| e.to_string())?.bench;
        bench.check().and_then(|()| bench.cores()).map_err(|e| e.to_string())
    }

    #[test]
    fn times_have_units() {
        assert_eq!(parse_time_us("30s"), Ok(30_000_000));
        assert_eq!(parse_time_us("500ms"), Ok(500_000));
        assert_eq!(parse_time_us("2m"), Ok(120_000_000));
        assert_eq!(parse_time_us("1"), Ok(1_000_000));
        for wrong in ["", "s", "-1s", "abc", "1h", "NaN", "inf"] {
            assert!(parse_time_us(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn one_lane_is_on_one_core_by_default() {
        assert_eq!(check("crr --conns 1,10,100"), Ok(Cores::Same));
        assert_eq!(check("crr --peer smoltcp --peer linux"), Ok(Cores::Same));
    }

    #[test]
    fn what_changes_nothing_is_said() {
        for (line, is_said) in [
            ("idle", false),
            ("idle --msl 1s", false),
            ("idle --seconds 3", true),
            ("idle --rounds 2", true),
            ("crr --rounds 2", false),
        ] {
            let line =
                Line::try_parse_from(format!("bench {line}").split_whitespace()).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(line.bench.idle_words().is_some(), is_said, "{:?}", line.bench);
        }
    }

    #[test]
    fn misuse_is_refused_with_a_sentence() {
        for wrong in [
            "crr --cores pairs",
            "idle --peer linux",
            "stream --attack 10",
            "crr --attack 10 --sharing global",
            "rr --attack 10 --ipv6",
            "stream --references r0",
            "crr --references r0 --sharing global",
            "rr --threads 4",
            "rr --api thread --threads 3",
            "rr --api thread --peer smoltcp",
            "rr --api thread --references r0",
            "idle --api thread",
            "crr --ring 100",
            "rr --sharing epoch",
            "crr --message 100",
            "stream --message 100",
            "idle --message 100",
            "rr --message 65536 --buffer 2048",
            "rr --message 65536 --buffer 2048 --api thread",
            "crr --ops 100 --lanes 2",
            "crr --ops 100 --cores split",
            "crr --ops 100 --conns 1,10",
            "crr --ops 100 --peer linux",
            "crr --ops 100 --json",
        ] {
            let said = check(wrong).expect_err(wrong);
            assert!(said.starts_with("--") || said.starts_with("bench"), "{wrong}: {said}");
        }
    }

    /// Whatever is no such number, and not only what is too large.
    #[test]
    fn whoever_gives_no_such_number_is_told_the_range() {
        for (option, right) in [
            ("conns", "1 to 1500000"),
            ("lanes", "1 to 2"),
            ("rounds", "1 to 1000"),
            ("threads", "2 to 128"),
            ("mtu", "576 to 65535"),
            ("message", "1 to 65536"),
            ("buffer", "2048 to 67108864"),
        ] {
            for wrong in ["x", "1.5", "-1", "0", "99999999", "99999999999999999999"] {
                let said = check(&format!("crr --{option}={wrong}")).expect_err(option);
                assert!(said.contains(&format!("--{option}")) && said.contains(right), "--{option} {wrong}: {said}");
            }
        }
        for wrong in ["x", "0", "-1", "nan", "inf", "3601"] {
            let said = check(&format!("crr --seconds={wrong}")).expect_err(wrong);
            assert!(said.contains("from 0.001 to 3600"), "{wrong}: {said}");
        }
        assert!(check("crr --conns 1,x").is_err_and(|said| said.contains("'x'") && said.contains("1 to 1500000")));
    }

    #[test]
    fn a_ring_holds_a_frame_of_every_connection() {
        let bench = Line::try_parse_from(["bench", "crr"]).unwrap_or_else(|e| panic!("{e}")).bench;
        for conns in [1, 100, 10_000, 100_000] {
            assert!(bench.ring(conns) >= conns * 330 && bench.ring(conns).is_power_of_two());
        }
    }
}
