//! Owns the part of `coherence` that runs under valgrind: which variant does what, and what it tells the oracle that traces it.

use super::{rig, threads};
use crate::bench::crew::Work;
use crate::bench::failure::Failure;
use crate::bench::{crr, rr};
use clap::{Args, ValueEnum};
use laneway_stack::sharing::profile;
use laneway_stack::sharing::{Accept, Decomposed, Epoch, Global, LaneOwned, Plain, Sharing, TimeWaitApart, Watched};
use std::io::Write as _;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What is planted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plant {
    /// A counter that all lanes write, without a locked instruction.
    Counter,
    /// A locked instruction, on memory that nobody shares.
    Lock,
    /// A call of the heap.
    Heap,
}

/// What is counted: how lanes share, or what is planted in `lane`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Variant {
    /// One lock around nearly everything
    Global,
    /// The same, but accept does without
    Accept,
    /// The same, and TIME_WAIT has a lock of its own
    Timewait,
    /// The lock is only read, but for walks over all connections
    Decomposed,
    /// A lock for each lane's connections
    Epoch,
    /// Every lane owns its connections
    Lane,
    /// As lane, and all lanes write one counter
    PlantedCounter,
    /// As lane, and something locks
    PlantedLock,
    /// As lane, and something calls the heap
    PlantedHeap,
}

impl Variant {
    /// In the order of history; then what must be found.
    pub const ALL: [Variant; 9] = [
        Variant::Global,
        Variant::Accept,
        Variant::Timewait,
        Variant::Decomposed,
        Variant::Epoch,
        Variant::Lane,
        Variant::PlantedCounter,
        Variant::PlantedLock,
        Variant::PlantedHeap,
    ];

    /// On the command line and in rows.
    pub fn name(self) -> &'static str {
        match self {
            Variant::Global => "global",
            Variant::Accept => "accept",
            Variant::Timewait => "timewait",
            Variant::Decomposed => "decomposed",
            Variant::Epoch => "epoch",
            Variant::Lane => "lane",
            Variant::PlantedCounter => "planted-counter",
            Variant::PlantedLock => "planted-lock",
            Variant::PlantedHeap => "planted-heap",
        }
    }

    /// What is planted in it.
    pub fn plant(self) -> Option<Plant> {
        match self {
            Variant::PlantedCounter => Some(Plant::Counter),
            Variant::PlantedLock => Some(Plant::Lock),
            Variant::PlantedHeap => Some(Plant::Heap),
            _ => None,
        }
    }

    /// Whether it serves requests on open connections here: the first and the last do everything, all make connections.
    pub fn has(self, unit: Unit) -> bool {
        match unit {
            Unit::Crr => true,
            Unit::Rr => matches!(self, Variant::Global | Variant::Lane),
            Unit::Threads => self == Variant::Lane,
        }
    }
}

/// What an operation is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Unit {
    /// Connect, request, response, close
    Crr,
    /// Request and response
    Rr,
    /// As crr, served by a thread of the application
    Threads,
}

impl Unit {
    /// On the command line.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Crr => "crr",
            Unit::Rr => "rr",
            Unit::Threads => "threads",
        }
    }

    /// In the names of metrics.
    pub fn per(self) -> &'static str {
        if self == Unit::Rr { "request" } else { "conn" }
    }
}

/// A fixed number of operations.
#[derive(Args, Clone, Debug)]
pub struct Part {
    /// What one is
    pub unit: Unit,
    /// How lanes share
    pub variant: Variant,
    /// How many
    #[arg(long)]
    pub ops: u64,
    /// How many before
    #[arg(long)]
    pub warm_up: u64,
    /// Somebody traces memory: say where things are, and wait for a line of input before the first connection
    #[arg(long)]
    pub traced: bool,
    /// With locks that count themselves, by class
    #[arg(long)]
    pub watched: bool,
}

/// Room between two marks, in words: they must not share a line.
const APART: usize = 16;
/// Whose turn it is: written, and so seen in a trace of memory.
static MARKS: [AtomicU64; (MARK_END + 1) * APART] = [const { AtomicU64::new(0) }; (MARK_END + 1) * APART];
/// Lanes whose turns are told apart. For crr and rr: of the server, then of the client. For threads: the lane, the application.
pub const LANES: usize = 4;
/// Nobody's turn that counts.
pub const MARK_OTHER: usize = 4;
/// The count begins.
pub const MARK_BEGIN: usize = 5;
/// It is over.
pub const MARK_END: usize = 6;
/// Bytes from one mark to the next.
pub const MARK_BYTES: u64 = (APART * size_of::<u64>()) as u64;

/// Says that it is somebody's turn.
#[inline(always)]
pub fn mark(number: usize) {
    MARKS[number * APART].store(1, Ordering::Relaxed);
}

/// Whether anybody wants to know where things are.
static TRACED: AtomicBool = AtomicBool::new(false);

/// Whether lanes need threads of their own, so that the trace shows what is theirs.
pub fn is_traced() -> bool {
    TRACED.load(Ordering::Relaxed)
}

fn tell(line: impl FnOnce() -> String) {
    if is_traced() {
        println!("{}", line());
    }
}

/// Says where the calling thread's stack begins, for as long as the caller runs. It is nobody else's.
#[inline(never)]
pub fn stack_begins() {
    let here = 0u8;
    tell(|| format!("stack {:#x}", std::ptr::from_ref(&here).addr()));
}

/// Why memory is shared on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Aside {
    /// It is the link between the two ends.
    Device,
    /// It is the bytes that application and lane hand to each other.
    Data,
}

impl Aside {
    /// Both.
    pub const ALL: [Aside; 2] = [Aside::Device, Aside::Data];

    /// In what the part says, and in rows.
    pub fn name(self) -> &'static str {
        if self == Aside::Device { "device" } else { "data" }
    }
}

/// Says that this memory is shared on purpose, by whoever has allocated it.
pub fn aside(why: Aside, memory: Range<usize>) {
    tell(|| format!("{} {:#x} {:#x}", why.name(), memory.start, memory.end));
}

/// Everything has been said; waits until whoever traces has read it.
pub fn ready() -> Result<(), Failure> {
    if is_traced() {
        println!("marks {:#x}", std::ptr::from_ref(&MARKS[0]).addr());
        println!("base {:#x}", base());
        let flushed = std::io::stdout().flush().and_then(|()| std::io::stdin().read_line(&mut String::new()));
        flushed.map_err(|error| Failure::Machine(format!("nobody traces this: {error}")))?;
    }
    Ok(())
}

/// Runs it.
pub fn run(part: &Part) -> Result<(), Failure> {
    TRACED.store(part.traced, Ordering::Relaxed);
    stack_begins();
    if !part.variant.has(part.unit) {
        let (variant, unit) = (part.variant.name(), part.unit.name());
        return Err(Failure::Misuse(format!("{variant} is not counted with {unit}; take lane")));
    }
    let ops = match part.unit {
        Unit::Threads => threads::run((part.warm_up, part.ops), || mark(MARK_BEGIN), || mark(MARK_END))?,
        Unit::Rr if part.variant == Variant::Global => counted::<_, Global<Plain>>(part, &rr::Rr::new(None))?,
        Unit::Rr => counted::<_, LaneOwned>(part, &rr::Rr::new(None))?,
        Unit::Crr if part.watched => match part.variant {
            Variant::Global => watched::<Global<Watched>>(part)?,
            Variant::Accept => watched::<Accept<Watched>>(part)?,
            Variant::Timewait => watched::<TimeWaitApart<Watched>>(part)?,
            Variant::Decomposed => watched::<Decomposed<Watched>>(part)?,
            Variant::Epoch => watched::<Epoch<Watched>>(part)?,
            _ => watched::<LaneOwned>(part)?,
        },
        Unit::Crr => match part.variant {
            Variant::Global => counted::<_, Global<Plain>>(part, &crr::Crr)?,
            Variant::Accept => counted::<_, Accept<Plain>>(part, &crr::Crr)?,
            Variant::Timewait => counted::<_, TimeWaitApart<Plain>>(part, &crr::Crr)?,
            Variant::Decomposed => counted::<_, Decomposed<Plain>>(part, &crr::Crr)?,
            Variant::Epoch => counted::<_, Epoch<Plain>>(part, &crr::Crr)?,
            _ => counted::<_, LaneOwned>(part, &crr::Crr)?,
        },
    };
    println!("ops {ops}");
    Ok(())
}

fn counted<W: Work, S: Sharing>(part: &Part, work: &W) -> Result<u64, Failure> {
    let plant = part.variant.plant();
    rig::run::<W, S>(work, plant, (part.warm_up, part.ops), || mark(MARK_BEGIN), || mark(MARK_END))
}

/// How often locks were taken, by class. The class is what stands in parentheses behind the place.
fn watched<S: Sharing>(part: &Part) -> Result<u64, Failure> {
    let (mut seen, ends) = (Vec::new(), profile::rows);
    let ops = rig::run::<_, S>(&crr::Crr, None, (part.warm_up, part.ops), profile::reset, || seen = ends())?;
    for row in seen {
        let class = row.name.rsplit_once('(').map_or("?", |(_, class)| class.trim_end_matches(')'));
        println!("lock {class} {}", row.count);
    }
    Ok(ops)
}

/// Where this program lies in memory, less where it believes to lie: 0 if that cannot be known.
fn base() -> u64 {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let own = std::env::current_exe().map(|path| path.display().to_string()).unwrap_or_default();
    let line = maps.lines().find(|line| line.ends_with(&own));
    line.and_then(|line| u64::from_str_radix(line.split('-').next()?, 16).ok()).unwrap_or(0)
}
