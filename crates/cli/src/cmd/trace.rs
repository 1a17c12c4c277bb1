//! `laneway trace`: the packets of a running stack, as pcapng.

use crate::ask::{Out, Which};
use crate::failure::{self, Failure};
use crate::parse;
use crate::signals::{self, Event};
use laneway::control::{Ask, Client};
use laneway_stack::trace::peek;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::net::{IpAddr, Shutdown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Shows the packets of a running stack: as pcapng for any analyser, or a JSON object each.
///
/// Ends with Ctrl-C or after --count packets; a stack that hangs then is waited for 5 s. A reader that is too slow loses
/// packets and never slows the stack down; how many it lost is said at the end, and written into the file.
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub struct Args {
    /// Write here; - is standard output [default: -]
    #[arg(short = 'w', long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Only packets from or to this address.
    #[arg(long, value_name = "ADDRESS", value_parser = parse::address)]
    host: Option<IpAddr>,
    /// Only packets from or to this port.
    #[arg(long, value_name = "PORT", value_parser = parse::number::<u16>(0..=65_535))]
    port: Option<u16>,
    /// Only this protocol.
    #[arg(long, value_name = "PROTO", value_parser = protocol)]
    proto: Option<u8>,
    /// Keep so many bytes of each packet.
    #[arg(short, long, value_name = "BYTES", default_value_t = 262_144, value_parser = parse::number::<u32>(1..=262_144))]
    snaplen: u32,
    /// End after so many packets.
    #[arg(short, long, value_name = "N", value_parser = parse::number::<u64>(1..=u64::MAX))]
    count: Option<u64>,
    /// Keep the last N packets in memory, and write them at the end.
    #[arg(long, value_name = "N", value_parser = parse::number::<u32>(1..=10_000_000))]
    ring: Option<u32>,
    #[command(flatten)]
    which: Which,
    /// Say each packet as a JSON object per line.
    #[arg(long)]
    json: bool,
}

const EXAMPLE: &str = "Examples:\n  laneway trace --port 80 -w web.pcapng\n  laneway trace --proto tcp --snaplen 96 | tshark -r -\n  laneway trace --ring 10000 -w last.pcapng  # Ctrl-C when it has happened\n  laneway trace --json --count 10";

fn protocol(text: &str) -> Result<u8, String> {
    match text {
        "tcp" => Ok(6),
        "udp" => Ok(17),
        "icmp" => Ok(1),
        "icmp6" | "icmpv6" => Ok(58),
        _ => text.parse().map_err(|_| "it is tcp, udp, icmp, icmp6 or a number from 0 to 255".to_owned()),
    }
}

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;
/// So long nothing may come from a stack that was asked for the end: it is stuck then, and what has come already is kept without what it
/// would still have said.
const STUCK: Duration = Duration::from_secs(5);
/// A block longer than this cannot be one of ours.
const BLOCK_MAX: usize = 1 << 20;

/// Shows packets until there is a reason to end.
pub fn run(mut args: Args) -> Result<(), Failure> {
    if args.write.is_some() && args.json {
        return Err(Failure::Misuse("-w writes pcapng, and --json is something else: choose one".into()));
    }
    args.write = args.write.filter(|path| path != Path::new("-"));
    if args.write.is_none() && !args.json && io::stdout().is_terminal() {
        return Err(Failure::Misuse(
            "pcapng is nothing for a terminal: write it into a file with -w FILE, pipe it on, or ask for --json".into(),
        ));
    }
    let client = Client::connect(args.which.path()?)?;
    let ask = Ask::Trace { host: args.host, port: args.port, protocol: args.proto, snaplen: Some(args.snaplen) };
    let mut packets = client.trace(&ask)?;
    // Not before the stack has agreed: else a file of last time would be gone for nothing.
    let mut sink = Sink::open(&args)?;
    let handle = packets.handle().map_err(failed)?;
    let (events, heard) = std::sync::mpsc::channel();
    signals::listen(events.clone()).map_err(|error| Failure::Failed(format!("signals cannot be heard: {error}")))?;
    let mut seen = Seen::default();
    let came = Arc::clone(&seen.blocks);
    std::thread::spawn(move || {
        if !heard.iter().any(|event| event == Event::End) {
            return;
        }
        let _ = handle.shutdown(Shutdown::Write); // what has been seen still comes
        wait_until_still(&came);
        let _ = handle.shutdown(Shutdown::Both);
        // Now nothing more comes, and what has come is written, or nobody takes it.
        wait_until_still(&came);
        failure::say(format_args!("laneway: the trace broke off: nobody takes the packets"));
        std::process::exit(1);
    });
    let copied = copy(&mut packets, &mut sink, &mut seen, args.count, || drop(events.send(Event::End)));
    // However it ended, what has come is what somebody wanted to see: the ring, and what is not written yet.
    let ended = sink.end(&seen.blocks);
    let dropped: u64 = seen.dropped.values().sum();
    let is_whole = copied.is_ok() && seen.is_whole();
    let lost = if is_whole { dropped.to_string() } else { format!("{dropped} or more") };
    failure::say(format_args!("{} packets, {lost} lost because this reader was too slow", seen.packets));
    copied.and(ended)?;
    match is_whole {
        true => Ok(()),
        false => Err(Failure::Failed("the trace broke off: the stack has ended, or does not answer".into())),
    }
}

/// Until nothing has gone on for a while.
fn wait_until_still(came: &AtomicU64) {
    let mut before = None;
    while before != Some(came.load(Relaxed)) {
        before = Some(came.load(Relaxed));
        std::thread::sleep(STUCK);
    }
}

/// What has come.
#[derive(Default)]
struct Seen {
    packets: u64,
    /// Blocks of all kinds, those of a ring once more when it is written: for who looks whether anything goes on.
    blocks: Arc<AtomicU64>,
    /// Lanes that were named.
    lanes: usize,
    /// How many each lane says it has lost.
    dropped: BTreeMap<u32, u64>,
    /// Lanes of which that was the last that came. Once a second it is said in passing, too, and packets go on.
    done: BTreeSet<u32>,
}

impl Seen {
    /// Whether the stack has come to the end of its story, which is what each lane has lost.
    fn is_whole(&self) -> bool {
        self.done.len() >= self.lanes.max(1)
    }
}

/// Takes what comes until it ends; when there are enough packets, somebody shall be told.
fn copy(
    from: &mut impl Read,
    sink: &mut Sink,
    seen: &mut Seen,
    count: Option<u64>,
    enough: impl Fn(),
) -> Result<(), Failure> {
    let mut block = Vec::new();
    while read_block(from, &mut block)? {
        seen.blocks.fetch_add(1, Relaxed);
        match word(&block, 0) {
            PACKET if count.is_some_and(|count| seen.packets >= count) => {}
            PACKET => {
                seen.packets += 1;
                seen.done.remove(&word(&block, 8));
                sink.packet(&block)?;
                if count == Some(seen.packets) {
                    enough();
                }
            }
            STATISTICS => {
                seen.dropped.insert(word(&block, 8), missing(&block));
                seen.done.insert(word(&block, 8));
                sink.other(&block)?;
            }
            kind => {
                seen.lanes += usize::from(kind == INTERFACE);
                sink.other(&block)?;
            }
        }
    }
    Ok(())
}

fn failed(error: io::Error) -> Failure {
    Failure::Failed(format!("the trace broke off: {error}"))
}

fn word(block: &[u8], at: usize) -> u32 {
    block.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// Reads one block of pcapng; false at the end.
fn read_block(from: &mut impl Read, block: &mut Vec<u8>) -> Result<bool, Failure> {
    block.clear();
    block.resize(8, 0);
    match from.read(&mut block[..1]) {
        Ok(0) => return Ok(false),
        Ok(_) => {}
        Err(error) => return Err(failed(error)),
    }
    from.read_exact(&mut block[1..]).map_err(failed)?;
    let len = word(block, 4) as usize;
    if !(12..=BLOCK_MAX).contains(&len) || !len.is_multiple_of(4) {
        return Err(Failure::Failed("the trace broke off: what the stack sends is no pcapng".into()));
    }
    block.resize(len, 0);
    from.read_exact(&mut block[8..]).map_err(failed)?;
    Ok(true)
}

/// `isb_ifdrop` of a statistics block.
fn missing(block: &[u8]) -> u64 {
    let mut at = 20;
    while at + 4 <= block.len().saturating_sub(4) {
        let (code, len) = (word(block, at) & 0xffff, (word(block, at) >> 16) as usize);
        match code {
            0 => break,
            5 => return block.get(at + 4..).and_then(<[u8]>::first_chunk).map_or(0, |b| u64::from_le_bytes(*b)),
            _ => at += 4 + len.next_multiple_of(4),
        }
    }
    0
}

/// Where packets go.
struct Sink {
    out: Form,
    /// The last packets, if only those are wanted.
    ring: Option<(usize, VecDeque<Vec<u8>>)>,
    /// What was last said of each interface, to be said behind them.
    statistics: BTreeMap<u32, Vec<u8>>,
}

enum Form {
    Pcapng(Box<dyn Write>),
    /// With what the frames of each interface begin with.
    Json(Out, Vec<Link>),
}

/// What a frame begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Link {
    Ip,
    Ethernet,
    /// Something that the stack of another version may know.
    Other,
}

impl Link {
    /// `LinkType` of an interface description.
    fn of(block: &[u8]) -> Link {
        match word(block, 8) & 0xffff {
            1 => Link::Ethernet,
            101 => Link::Ip,
            _ => Link::Other,
        }
    }

    /// The IP packet in a frame; empty if there is none.
    fn packet(self, frame: &[u8]) -> &[u8] {
        match (self, frame.get(12..14)) {
            (Link::Ip, _) => frame,
            (Link::Ethernet, Some([0x08, 0x00] | [0x86, 0xdd])) => &frame[14..],
            _ => &[],
        }
    }
}

impl Sink {
    fn open(args: &Args) -> Result<Self, Failure> {
        let ring = args.ring.map(|most| (most as usize, VecDeque::new()));
        let out = match (&args.write, args.json) {
            (Some(path), _) => {
                let file = File::create(path).map_err(|error| {
                    Failure::Misuse(format!("{} cannot be written: {error}; choose another place", path.display()))
                })?;
                Form::Pcapng(Box::new(io::BufWriter::with_capacity(1 << 16, file)))
            }
            (None, true) => Form::Json(Out::new(), Vec::new()),
            // In small pieces, so that whoever reads sees packets when they come.
            (None, false) => Form::Pcapng(Box::new(io::LineWriter::with_capacity(1 << 16, io::stdout()))),
        };
        Ok(Sink { out, ring, statistics: BTreeMap::new() })
    }

    fn packet(&mut self, block: &[u8]) -> Result<(), Failure> {
        match &mut self.ring {
            Some((most, ring)) => {
                // A block that leaves the ring is used again for the one that comes.
                let mut kept = if ring.len() == *most { ring.pop_front().unwrap_or_default() } else { Vec::new() };
                kept.clear();
                kept.extend_from_slice(block);
                ring.push_back(kept);
                Ok(())
            }
            None => self.out.packet(block),
        }
    }

    fn other(&mut self, block: &[u8]) -> Result<(), Failure> {
        // How many are missing is said behind the packets of the ring, and there once.
        if self.ring.is_some() && word(block, 0) == STATISTICS {
            self.statistics.insert(word(block, 8), block.to_vec());
            return Ok(());
        }
        self.out.other(block)
    }

    fn end(mut self, blocks: &AtomicU64) -> Result<(), Failure> {
        for block in self.ring.take().into_iter().flat_map(|(_, ring)| ring) {
            self.out.packet(&block)?;
            blocks.fetch_add(1, Relaxed);
        }
        for block in self.statistics.values() {
            self.out.other(block)?;
        }
        match self.out {
            Form::Pcapng(mut out) => out.flush().or_else(broken),
            Form::Json(mut out, _) => out.flush(),
        }
    }
}

impl Form {
    fn packet(&mut self, block: &[u8]) -> Result<(), Failure> {
        match self {
            Form::Pcapng(out) => out.write_all(block).or_else(broken),
            Form::Json(out, links) => {
                let link = links.get(word(block, 8) as usize).copied().unwrap_or(Link::Other);
                out.line(describe(block, link))?;
                out.flush()
            }
        }
    }

    fn other(&mut self, block: &[u8]) -> Result<(), Failure> {
        match self {
            Form::Pcapng(out) => {
                out.write_all(block).or_else(broken)?;
                // The beginning goes out at once, so that whoever reads knows what it is.
                if word(block, 0) == SECTION_HEADER { Ok(()) } else { out.flush().or_else(broken) }
            }
            Form::Json(_, links) => {
                match word(block, 0) {
                    SECTION_HEADER => links.clear(),
                    INTERFACE => links.push(Link::of(block)),
                    _ => {}
                }
                Ok(())
            }
        }
    }
}

/// Somebody who reads no more is no failure.
fn broken(error: io::Error) -> Result<(), Failure> {
    if error.kind() == io::ErrorKind::BrokenPipe {
        std::process::exit(0);
    }
    Err(Failure::Failed(format!("the packets cannot be written: {error}")))
}

/// A packet in JSON: when, where, which way, how long, between whom.
fn describe(block: &[u8], link: Link) -> serde_json::Value {
    let us = u64::from(word(block, 12)) << 32 | u64::from(word(block, 16));
    let (captured, len) = (word(block, 20) as usize, word(block, 24));
    let packet = link.packet(block.get(28..28 + captured).unwrap_or(&[]));
    let flags = block.get(28 + captured.next_multiple_of(4)..).map_or(0, |rest| word(rest, 4));
    let mut said = json!({
        "time_us": us,
        "lane": word(block, 8),
        "direction": if flags & 3 == 1 { "in" } else { "out" },
        "len": len,
    });
    if let Some(peek) = peek(packet) {
        said["protocol"] = peek.protocol.into();
        said["src"] = json!(peek.addresses[0]);
        said["dst"] = json!(peek.addresses[1]);
        if let Some([src, dst]) = peek.ports {
            said["src_port"] = src.into();
            said["dst_port"] = dst.into();
        }
    }
    said
}

#[cfg(test)]
mod tests;
