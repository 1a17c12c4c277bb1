//! Owns the answers: what is written to a client for each question, piece by piece, and when it is cut off.

use super::protocol::{
    Ask, Counter, Hello, LaneRow, Last, LockRow, MeetingRow, PortsRow, STATE_FILTERS, SsRow, SteerRow, VERSION,
    states_by_name,
};
use super::server::{About, PATIENCE, is_timeout};
use laneway_stack::device::PartialChecksum;
use laneway_stack::device::pcap::{Direction, PcapngWriter};
use laneway_stack::listing::{Page, States, What};
use laneway_stack::proto::tcp::State;
use laneway_stack::proto::time::Instant as StackTime;
use laneway_stack::runtime::{Asker, Unanswered};
use laneway_stack::sharing::profile;
use laneway_stack::trace::{Filter, SNAPLEN_MAX};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// What a client takes of an answer at the least, over all of the time that is spent waiting for it, in bytes a second.
const SPEED_MIN: u64 = 256 << 10;

/// Why a client is cut off.
pub(super) enum Cut {
    /// After this sentence.
    Said(String),
    /// Without a word: it has gone, or does not read.
    Gone,
}

impl From<Unanswered> for Cut {
    fn from(why: Unanswered) -> Self {
        Cut::Said(why.to_string())
    }
}

impl From<io::Error> for Cut {
    fn from(_: io::Error) -> Self {
        Cut::Gone
    }
}

/// A lane that is busy is asked for a page this often at the most: that leaves it 97 % of its time and more.
const PACE: Duration = Duration::from_millis(2);
/// And while lanes are busy, whoever lists rests so many times as long as a piece of a page has cost him: he and the client, whom it
/// costs about as much again, have together a few per cent of a core. Being nice alone does not achieve that: a lane that
/// slept for a moment waits until the nicest thread's slice is over.
const REST: u32 = 64;
/// Rows of a piece, and not the whole page at once: the longer a lane's core is taken, the likelier do those who wait for it run out of
/// what they have to do besides.
const PIECE: usize = 32;

/// A client that waits for its first row hears this often that one is being made: it gives up on who is silent. In tests with
/// every page.
const BREATH: Duration = Duration::from_secs(if cfg!(test) { 0 } else { 3 });

/// How whoever lists gives way to lanes.
struct Manners {
    began: Instant,
    used: Duration,
}

impl Manners {
    fn new() -> Self {
        Manners { began: Instant::now(), used: processor_time() }
    }

    /// Rests for what was done since the last rest, which with the rest takes `least` at least.
    fn rest(&mut self, least: Duration) {
        let cost = processor_time().saturating_sub(self.used);
        std::thread::sleep(least.max(cost * REST).saturating_sub(self.began.elapsed()));
        *self = Manners::new();
    }
}

/// Answers one question.
pub(super) fn answer(stream: &UnixStream, asker: &Asker, about: &About, ask: &Ask) -> Result<(), Cut> {
    let mut out = Out { stream, buffer: Vec::with_capacity(1 << 16), rows: 0, taken: 0, waited: Duration::ZERO };
    match ask {
        Ask::Hello {} => out.row(&Hello {
            laneway: env!("CARGO_PKG_VERSION").into(),
            protocol: VERSION,
            pid: std::process::id(),
            device: about.device.clone(),
            lanes: asker.lanes(),
            uptime_ms: about.began.elapsed().as_millis() as u64,
            sharing: about.sharing.into(),
        }),
        Ask::Nstat {} => {
            let (counters, _) = asker.counters()?;
            for (name, value) in counters.all() {
                out.row(&Counter { name: name.into_owned(), value });
            }
        }
        Ask::Ss { states } => {
            let mut wanted = if states.is_empty() { States::ALL } else { States::NONE };
            for name in states {
                let unknown = || Cut::Said(format!("'{name}' is no state: there are {}", STATE_FILTERS.join(", ")));
                let some = states_by_name(name).ok_or_else(unknown)?;
                wanted = wanted.or(some);
            }
            listing(&mut out, asker, wanted)?;
        }
        Ask::Ports {} => {
            each_page(asker, Page::of_ports, |page, _, _| {
                for slice in &page.ports {
                    out.row(&PortsRow::from_slice(slice));
                }
                out.flush()
            })?;
        }
        Ask::Lanes {} => {
            for (lane, (counters, _)) in asker.counters_by_lane()?.iter().enumerate() {
                out.row(&LaneRow::from_counters(lane, counters));
            }
        }
        Ask::Steer {} => steer(&mut out, asker)?,
        Ask::Move { bucket, lane } => {
            asker.move_bucket(*bucket, *lane)?.map_err(|why| Cut::Said(why.to_string()))?;
            if let Some(moved) = asker.buckets()?.get(*bucket) {
                out.row(&SteerRow::of(*bucket, moved, &[]));
            }
        }
        // Kept by the locks themselves: no lane is asked.
        Ask::Locks {} => profile::rows().iter().for_each(|row| out.row(&LockRow::from_row(row))),
        Ask::Meetings {} => {
            for met in profile::meetings() {
                let wait_total = met.wait_ns as f64 / 1e3;
                out.row(&MeetingRow { waiter: met.waiter, holder: met.holder, count: met.count, wait_total });
            }
        }
        Ask::Trace { host, port, protocol, snaplen } => {
            let filter = Filter { host: *host, port: *port, protocol: *protocol };
            return trace(stream, asker, filter, snaplen.unwrap_or(SNAPLEN_MAX));
        }
    }
    out.end()
}

/// Writes a line that is not a row.
pub(super) fn last(mut stream: &UnixStream, last: &Last) -> io::Result<()> {
    let mut line = serde_json::to_vec(last)?;
    line.push(b'\n');
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&line)
}

/// Where rows go.
struct Out<'a> {
    stream: &'a UnixStream,
    buffer: Vec<u8>,
    rows: u64,
    /// Bytes that the client has taken, and how long it was waited for.
    taken: u64,
    waited: Duration,
}

impl Out<'_> {
    fn row(&mut self, row: &impl Serialize) {
        // A plain struct of plain values can be written into a vector.
        if serde_json::to_writer(&mut self.buffer, row).is_ok() {
            self.buffer.push(b'\n');
            self.rows += 1;
        }
    }

    fn flush(&mut self) -> Result<(), Cut> {
        self.taken += self.buffer.len() as u64;
        // It may be slow now and then, and not all the time: as a listing of millions has many pieces, who took each of them in the
        // last moment would keep his place for days.
        let all = PATIENCE + Duration::from_micros(self.taken.saturating_mul(1_000_000) / SPEED_MIN);
        let began = Instant::now();
        write_within(self.stream, &self.buffer, PATIENCE.min(all.saturating_sub(self.waited)))?;
        self.waited += began.elapsed();
        self.buffer.clear();
        Ok(())
    }

    fn end(mut self) -> Result<(), Cut> {
        self.flush()?;
        Ok(last(self.stream, &Last::end(self.rows))?)
    }
}

/// Writes everything within a time, however slowly the other side reads.
fn write_within(mut stream: &UnixStream, mut bytes: &[u8], patience: Duration) -> Result<(), Cut> {
    let until = Instant::now() + patience;
    while !bytes.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Cut::Gone);
        }
        stream.set_write_timeout(Some(left.max(Duration::from_millis(1))))?;
        match stream.write(bytes) {
            Ok(0) => return Err(Cut::Gone),
            Ok(n) => bytes = &bytes[n..],
            Err(error) if is_timeout(&error) || error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Err(Cut::Gone),
        }
    }
    Ok(())
}

/// Listeners first, with what waits on all lanes; then lane by lane, page by page. Nothing is kept but one page.
fn listing(out: &mut Out<'_>, asker: &Asker, wanted: States) -> Result<(), Cut> {
    // Whoever has real work goes first. Where that is refused, it is only slower.
    let _ = rustix::process::setpriority_process(None, 19);
    let mut listeners: BTreeMap<u16, SsRow> = BTreeMap::new();
    if wanted.has(State::Listen) {
        each_page(
            asker,
            || Page::new(States::NONE.with(State::Listen)),
            |page, now, _| {
                for row in &page.rows {
                    let said = SsRow::from_row(row, now);
                    let What::Listener { id, .. } = row.what else { continue };
                    // Each lane has connections of its own, and the backlog is of them all.
                    listeners.entry(id.0).and_modify(|sum| sum.recv_q += said.recv_q).or_insert(said);
                }
                Ok(())
            },
        )?;
    }
    for row in listeners.values() {
        out.row(row);
    }
    let rest = wanted.without(State::Listen);
    if rest != States::NONE {
        each_page(
            asker,
            || Page::new(rest),
            |page, now, manners| {
                for piece in page.rows.chunks(PIECE) {
                    for row in piece {
                        out.row(&SsRow::from_row(row, now));
                    }
                    out.flush()?;
                    if page.busy {
                        manners.rest(Duration::ZERO);
                    }
                }
                Ok(())
            },
        )?;
    }
    Ok(())
}

/// Every flow is looked up in a listing, because nothing is counted by bucket while packets flow. Of millions that takes longer than
/// a client waits for a row, so it hears spaces meanwhile, which every reader of JSON skips in front of one.
fn steer(out: &mut Out<'_>, asker: &Asker) -> Result<(), Cut> {
    let buckets = asker.buckets()?;
    let mut flows = vec![vec![0; asker.lanes()]; buckets.len()];
    let (stream, mut said) = (out.stream, Instant::now());
    each_page(
        asker,
        || Page::new(States::ALL.without(State::Listen)),
        |page, _, _| {
            for row in &page.rows {
                flows[asker.bucket_of(&row.flow)][usize::from(row.lane)] += 1;
            }
            if said.elapsed() >= BREATH {
                write_within(stream, b" ", PATIENCE)?;
                said = Instant::now();
            }
            Ok(())
        },
    )?;
    for (number, bucket) in buckets.iter().enumerate() {
        out.row(&SteerRow::of(number, bucket, &flows[number]));
    }
    Ok(())
}

fn each_page(
    asker: &Asker,
    first: impl Fn() -> Box<Page>,
    mut each: impl FnMut(&Page, StackTime, &mut Manners) -> Result<(), Cut>,
) -> Result<(), Cut> {
    for lane in 0..asker.lanes() {
        let mut page = first();
        loop {
            let mut manners = Manners::new();
            page = asker.page(lane, page)?;
            each(&page, asker.now(), &mut manners)?;
            if page.place.is_end() {
                break;
            }
            if page.busy {
                manners.rest(PACE);
            }
        }
    }
    Ok(())
}

/// What this thread has had of a processor.
fn processor_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// Frames read from one lane before the next has its turn.
const BATCH: usize = 256;
/// How long a trace goes on after its client has had enough, at the most.
const FINISH: Duration = Duration::from_millis(500);

/// Packets, until the client has had enough.
fn trace(stream: &UnixStream, asker: &Asker, filter: Filter, snaplen: u32) -> Result<(), Cut> {
    let mut trace = asker.trace(filter, snaplen)?;
    last(stream, &Last { pcapng: Some(true), ..Last::default() })?;
    let offset = asker.wall_offset_us();
    let wall_us = |at: StackTime| at.as_us().saturating_add_signed(offset);
    let mut file = PcapngWriter::new(Vec::with_capacity(1 << 16))?;
    let mut lanes = Vec::new();
    for lane in 0..trace.readers.len() {
        let interface = file.interface(&format!("lane{lane}"), asker.medium())?;
        lanes.push(Seen { interface, received: 0, said: (0, 0) });
    }
    let mut batch = Batch::default();
    let mut told = Instant::now();
    let mut finishing: Option<Instant> = None;
    loop {
        // A lane's frames are in order; those of several are put in order as far as they came together.
        batch.clear();
        for (reader, seen) in trace.readers.iter_mut().zip(&mut lanes) {
            seen.received += reader.read(BATCH, |frame| batch.keep(seen.interface, &frame)) as u64;
        }
        batch.frames.sort_by_key(|frame| frame.at);
        for frame in &batch.frames {
            let bytes = &batch.bytes[frame.from..frame.to];
            file.frame_cut(frame.interface, frame.direction, wall_us(frame.at), bytes, frame.len, frame.partial)?;
        }
        let idle = batch.frames.is_empty();
        if finishing.is_none() && (asks_to_end(stream)? || trace.readers.iter().all(|reader| reader.is_closed())) {
            finishing = Some(Instant::now());
        }
        // What was seen before still comes, unless ever more of it does.
        let ended = finishing.is_some_and(|since| idle || since.elapsed() > FINISH);
        if ended || told.elapsed() > Duration::from_secs(1) {
            told = Instant::now();
            for (reader, seen) in trace.readers.iter().zip(&mut lanes) {
                let news = (seen.received, reader.dropped());
                if news != seen.said || ended {
                    seen.said = news;
                    file.statistics(seen.interface, wall_us(asker.now()), news.0, news.1)?;
                }
            }
        }
        write_within(stream, file.get_ref(), PATIENCE)?;
        file.get_mut().clear();
        if ended {
            return Err(Cut::Gone); // nothing can follow a file
        }
        if idle {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// What has been said of one lane.
struct Seen {
    interface: u32,
    received: u64,
    said: (u64, u64),
}

/// Frames on their way from rings into the file.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    frames: Vec<Kept>,
}

struct Kept {
    at: StackTime,
    interface: u32,
    direction: Direction,
    len: u32,
    partial: Option<PartialChecksum>,
    from: usize,
    to: usize,
}

impl Batch {
    fn clear(&mut self) {
        self.bytes.clear();
        self.frames.clear();
    }

    fn keep(&mut self, interface: u32, frame: &laneway_stack::trace::Traced<'_>) {
        let from = self.bytes.len();
        self.bytes.extend_from_slice(frame.bytes);
        let (direction, len, partial) = (frame.direction, frame.len, frame.partial);
        self.frames.push(Kept { at: frame.at, interface, direction, len, partial, from, to: self.bytes.len() });
    }
}

/// The client has shut down its sending side: what has been seen is wanted, and no more. Anything that it says instead is
/// not understood.
fn asks_to_end(stream: &UnixStream) -> Result<bool, Cut> {
    match recv(stream, &mut [0u8; 16], RecvFlags::DONTWAIT) {
        Ok((_, 0)) => Ok(true),
        Err(Errno::AGAIN | Errno::INTR) => Ok(false),
        Ok(_) | Err(_) => Err(Cut::Gone),
    }
}
