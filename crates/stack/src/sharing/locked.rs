//! What the historic variants have in common: shards of tables behind locks, and INFO before them.
//!
//! # What stands for what
//!
//! | FreeBSD | here |
//! |---|---|
//! | a connection's lock; from `epoch` on also the lock of its hash bucket | a lock for each *shard*: the [`Tables`] of the flows that steering gives to one lane |
//! | `ipi_lock`, INP_INFO | one lock for readers and writers, taken before a shard's where the variant's [`Rules`] say so |
//! | the list of all inpcbs, `ipi_count`, `ipi_gencnt` | a [`Census`] that every insertion and removal writes: under INFO, from `decomposed` on under LIST |
//! | the list of TIME_WAIT records | their number: under INFO, from `timewait` on under a lock of its own; the records are in the shards |
//! | accept, shutdown, close as system calls of other threads | sections of their own on the same lane: accept at once after the segment, close and shutdown when their FIN leaves |
//!
//! # Where this differs
//!
//! * Frames come to the lane that has their flow (as with RSS and one thread per queue), so a shard's lock is contended only by
//!   a scan of all shards. FreeBSD's hash and lists were one, and their lines moved between cores; here only locks, census and
//!   TIME_WAIT count do. What is contended is what was: INFO.
//! * The application runs on the lane. FreeBSD's had cores of their own, which waited for INFO too: more waiters, same lock.
//! * A connection's end is one acquisition more: it comes with the output at the end of the poll, not with the FIN's input.
//! * ICMP takes INFO to read, although `tcp_ctlinput` took it to write: here UDP comes the same way.
//! * Nothing is prefetched for a batch: looking into a shard without its lock is what a lock is there to forbid.
//! * Whether a connection is ESTABLISHED is looked up once more than FreeBSD needs, because the seam hands out tables, not
//!   connections.

use super::{Sharing, Site, sites};
use crate::ingress::Arriving;
use crate::lock_order::{Class, Held, taking};
use crate::tables::{Kind, Slot, Tables, Tcb};
use laneway_proto::tcp::State;
use laneway_proto::tcp::nagle;
use laneway_proto::time::Instant;
use laneway_sync::Padded;
use laneway_sync::bucket_lock::{BucketLock, Guard, Lock, RawLock};
use laneway_sync::epoch::{Domain, Published, Seat};
use laneway_sync::profiled_lock::Profiled;
use laneway_sync::rw_lock::{RawRwLock, Reading, RwLock, SpinRwLock, Writing};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// How INFO is taken at a site.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Mode {
    /// Not at all.
    None,
    /// For reading.
    Read,
    /// For writing.
    Write,
}

/// How TIME_WAIT records go whose wait is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expiry {
    /// All of all lanes at once, every 500 ms, under INFO: `tcp_slowtimo`.
    Scan,
    /// One at a time, as many in a poll as the product.
    OneByOne,
}

/// What one variant differs in from another.
pub trait Rules: Send + Sync + 'static {
    /// The name on the command line and in results.
    const NAME: &'static str;
    /// How TIME_WAIT is expired.
    const EXPIRY: Expiry;
    /// What is known of all TIME_WAIT records has a lock of its own.
    const TIME_WAIT_APART: bool;
    /// The list of all connections has a lock of its own, a leaf.
    const LIST_APART: bool;
    /// A shard is looked up inside an epoch.
    const EPOCH: bool;
    /// How INFO is taken.
    fn info(site: Site) -> Mode;
}

/// The locks that a variant is made of: with a profile of each site, or without.
pub trait Kit: Send + Sync + 'static {
    /// For INFO.
    type Rw: RawRwLock + Send + Sync;
    /// For everything else.
    type Mutex: RawLock + Send + Sync;
}

/// Bare locks: for rates.
pub struct Plain;
/// Locks that remember who waited for whom. Slower: two looks at the clock for each acquisition.
pub struct Watched;

impl Kit for Plain {
    type Rw = SpinRwLock;
    type Mutex = BucketLock;
}

impl Kit for Watched {
    type Rw = Profiled<SpinRwLock>;
    type Mutex = Profiled<BucketLock>;
}

/// What is known of all connections together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Census {
    /// Connections and half-open entries.
    pub connections: usize,
    /// Changes with every insertion and removal.
    pub generation: u64,
    /// TIME_WAIT records, while they have no lock of their own.
    pub time_waits: usize,
}

/// What one lock guards, on lines of its own.
type Shard<K> = Padded<Lock<Tables, <K as Kit>::Mutex>>;

/// What all lanes share.
struct World<K: Kit> {
    info: RwLock<Census, K::Rw>,
    shards: Box<[Shard<K>]>,
    time_wait: Padded<Lock<usize, K::Mutex>>,
    list: Padded<Lock<Census, K::Mutex>>,
    /// When all TIME_WAIT records are to be scanned again, in microseconds.
    scan_at: AtomicU64,
    /// Which shard has the flows of which lane.
    directory: Published<Box<[usize]>>,
}

/// `tcp_slowtimo` came round twice a second.
const SCAN_EVERY_US: u64 = 500_000;

/// One lane's way into what all share, by the rules `R`.
pub struct Locked<R, K: Kit = Watched> {
    world: Arc<World<K>>,
    lane: usize,
    seat: Seat,
    rules: PhantomData<fn() -> R>,
}

impl<R: Rules, K: Kit> Sharing for Locked<R, K> {
    type Section<'a> = Section<'a, R, K>;
    type Segmentation = nagle::Lane;
    const NAME: &'static str = R::NAME;
    const ACCEPT_APART: bool = true;

    fn spread(lanes: usize, mut make: impl FnMut() -> Tables) -> Vec<Self> {
        let (domain, _) = Domain::new(lanes);
        let world = Arc::new(World {
            info: RwLock::new("rw:info", Census::default()),
            shards: (0..lanes).map(|_| Padded(Lock::new("pcb", make()))).collect(),
            time_wait: Padded(Lock::new("timewait", 0)),
            list: Padded(Lock::new("list", Census::default())),
            scan_at: AtomicU64::new(0),
            directory: Published::new(&domain, (0..lanes).collect()),
        });
        let lane = |lane| {
            let mut seat = Domain::seat(&domain).expect("there is a seat for each lane");
            seat.online();
            Locked { world: Arc::clone(&world), lane, seat, rules: PhantomData }
        };
        (0..lanes).map(lane).collect()
    }

    fn enter(&mut self, site: Site) -> Section<'_, R, K> {
        let shard = self.shard();
        Section::enter(&self.world, shard, site)
    }

    /// The dance: a plain segment is taken in with INFO read; if its connection is not ESTABLISHED that is not enough.
    fn input(&mut self, arriving: &Arriving<'_>) -> Section<'_, R, K> {
        const SYN_FIN_RST: u8 = 0x07;
        if arriving.tcp.get(13).is_some_and(|flags| flags & SYN_FIN_RST != 0) {
            return self.enter(Site::SynFinRst);
        }
        let shard = self.shard();
        let section = Section::<R, K>::enter(&self.world, shard, Site::Input);
        if R::info(Site::NotEstablished) <= R::info(Site::Input) || is_established(&section, arriving) {
            return section;
        }
        // If that fails both locks are given back. Whatever the connection was, it is looked up again.
        section.upgrade().unwrap_or_else(|| Section::enter(&self.world, shard, Site::NotEstablished))
    }

    fn output(&mut self, index: u32) -> Section<'_, R, K> {
        let shard = self.shard();
        let section = Section::<R, K>::enter(&self.world, shard, Site::Output);
        let site = site_of(section.slots.get(index));
        section.unless(site, Site::Output, shard)
    }

    fn timers(&mut self, now: Instant) -> Section<'_, R, K> {
        let shard = self.shard();
        let section = Section::<R, K>::enter(&self.world, shard, Site::Look);
        let due = section.timers.next().is_some_and(|at| at <= now);
        section.unless(if due { Site::Timers } else { Site::Look }, Site::Look, shard)
    }

    fn reap(&mut self, now: Instant, msl_us: u64, budget: usize) -> usize {
        match R::EXPIRY {
            Expiry::Scan => self.scan(now, msl_us).min(budget - 1),
            Expiry::OneByOne => {
                let mut reaped = 0;
                while reaped < budget && self.enter(Site::Look).has_expired(now, msl_us) {
                    reaped += self.enter(Site::TimeWait).reap(now, msl_us, 1);
                }
                reaped
            }
        }
    }

    fn peek(&self) -> Option<&Tables> {
        None
    }
}

impl<R: Rules, K: Kit> Locked<R, K> {
    /// Which shard has the flows of this lane.
    #[inline]
    fn shard(&mut self) -> usize {
        if !R::EPOCH {
            return self.lane;
        }
        self.seat.quiescent(); // nothing is held from the last time
        self.world.directory.load(&self.seat.pin())[self.lane]
    }

    /// Reaps every record of every lane whose wait is over, and lets nobody have INFO meanwhile. One lane in 500 ms does.
    fn scan(&mut self, now: Instant, msl_us: u64) -> usize {
        let world = &*self.world;
        let (at, now_us) = (world.scan_at.load(Relaxed), now.as_us());
        let next = now_us + SCAN_EVERY_US;
        if now_us < at || world.scan_at.compare_exchange(at, next, Relaxed, Relaxed).is_err() {
            return 0;
        }
        let mut info = Info::<K>::take(&world.info, R::info(Site::TimeWait), Site::TimeWait);
        let mut seen = 0;
        for shard in &world.shards {
            let held = taking(Class::Pcb);
            let mut tables = shard.lock(sites::pcb(Site::TimeWait));
            let (all, before) = (tables.tw4.len() + tables.tw6.len(), tables.time_waits);
            seen += tables.reap(now, msl_us, all);
            if let Some(census) = info.census() {
                census.time_waits = census.time_waits + tables.time_waits - before;
            }
            drop(tables);
            drop(held);
        }
        seen
    }

    /// What is known of all connections together, for checks.
    pub fn census(&self) -> Census {
        let mut census = *self.world.info.read(sites::info(Site::Look));
        let list = *self.world.list.lock(sites::list());
        census.connections += list.connections;
        census.generation += list.generation;
        census.time_waits += *self.world.time_wait.lock(sites::time_wait());
        census
    }
}

/// Where the output of a connection belongs.
fn site_of(slot: Option<&Slot>) -> Site {
    match slot.map(|slot| &slot.tcb) {
        Some(Tcb::Handshaking(_)) => Site::Connect,
        Some(Tcb::Synchronized(connection)) => match connection.state() {
            State::FinWait1 | State::Closing | State::LastAck => Site::Close,
            State::Closed | State::TimeWait => Site::End,
            _ => Site::Output,
        },
        None => Site::Output,
    }
}

fn is_established(tables: &Tables, arriving: &Arriving<'_>) -> bool {
    let handle = tables
        .lookup(arriving.hash(&tables.hash_key), &arriving.key)
        .filter(|handle| handle.kind() == Kind::Connection);
    let slot = handle.and_then(|handle| tables.slots.get(handle.index()));
    matches!(slot, Some(Slot { tcb: Tcb::Synchronized(connection), .. }) if connection.state() == State::Established)
}

/// INFO, as it is held; with it, until it is given back, what notes the order of locks.
enum Info<'a, K: Kit> {
    None,
    Read { reading: Reading<'a, Census, K::Rw>, _held: Held },
    Write { census: Writing<'a, Census, K::Rw>, _held: Held },
}

impl<'a, K: Kit> Info<'a, K> {
    #[inline]
    fn take(lock: &'a RwLock<Census, K::Rw>, mode: Mode, site: Site) -> Self {
        match mode {
            Mode::None => Info::None,
            Mode::Read => {
                let _held = taking(Class::Info);
                Info::Read { reading: lock.read(sites::info(site)), _held }
            }
            Mode::Write => {
                let _held = taking(Class::Info);
                Info::Write { census: lock.write(sites::info(site)), _held }
            }
        }
    }

    fn census(&mut self) -> Option<&mut Census> {
        match self {
            Info::Write { census, .. } => Some(census),
            Info::None | Info::Read { .. } => None,
        }
    }
}

/// A shard, and what was taken before it.
pub struct Section<'a, R: Rules, K: Kit> {
    world: &'a World<K>,
    info: Info<'a, K>,
    /// `None` only in the last moments.
    shard: Option<(Guard<'a, Tables, K::Mutex>, Held)>,
    /// Connections and TIME_WAIT records when it was entered.
    before: (usize, usize),
    rules: PhantomData<fn() -> R>,
}

fn count(tables: &Tables) -> (usize, usize) {
    (tables.slots.len() + tables.half_open.len(), tables.time_waits)
}

impl<'a, R: Rules, K: Kit> Section<'a, R, K> {
    #[inline]
    fn enter(world: &'a World<K>, shard: usize, site: Site) -> Self {
        let info = Info::take(&world.info, R::info(site), site);
        let held = taking(Class::Pcb);
        let tables = world.shards[shard].lock(sites::pcb(site));
        let before = count(&tables);
        Section { world, info, shard: Some((tables, held)), before, rules: PhantomData }
    }

    /// This section, which was entered for `now`, if it will do for `wanted`; else it is left, and another is entered.
    fn unless(self, wanted: Site, now: Site, shard: usize) -> Self {
        if R::info(wanted) == R::info(now) {
            return self;
        }
        let world = self.world;
        drop(self);
        Section::enter(world, shard, wanted)
    }

    /// INFO for writing instead of reading, if nobody else reads it.
    fn upgrade(mut self) -> Option<Self> {
        let (upgraded, held) = match std::mem::replace(&mut self.info, Info::None) {
            Info::Read { reading, _held } => (reading.try_upgrade(sites::upgrade()), _held),
            other => {
                self.info = other;
                return None;
            }
        };
        match upgraded {
            Ok(writing) => {
                self.info = Info::Write { census: writing, _held: held };
                Some(self)
            }
            Err(reading) => {
                self.info = Info::Read { reading, _held: held };
                None
            }
        }
    }

    /// Tells those who keep count that there are more or fewer.
    #[cold]
    fn settle(&mut self, (connections, time_waits): (usize, usize)) {
        let (connections_before, time_waits_before) = self.before;
        let change = |census: &mut Census, whose: (bool, bool)| {
            if whose.0 {
                census.connections = census.connections + connections - connections_before;
                census.generation += 1;
            }
            if whose.1 {
                census.time_waits = census.time_waits + time_waits - time_waits_before;
            }
        };
        let (mut list, mut records) = (connections != connections_before, time_waits != time_waits_before);
        if R::TIME_WAIT_APART && records {
            let _held = taking(Class::TimeWait);
            let mut count = self.world.time_wait.lock(sites::time_wait());
            *count = *count + time_waits - time_waits_before;
            records = false;
        }
        if R::LIST_APART && list {
            let _held = taking(Class::List);
            change(&mut self.world.list.lock(sites::list()), (true, false));
            list = false;
        }
        if !list && !records {
            return;
        }
        if let Some(census) = self.info.census() {
            return change(census, (list, records));
        }
        // INFO comes before the connection: that one is given back first.
        self.shard = None;
        self.info = Info::None;
        let _held = taking(Class::Info);
        change(&mut self.world.info.write(sites::info_for_list()), (list, records));
    }
}

impl<R: Rules, K: Kit> Deref for Section<'_, R, K> {
    type Target = Tables;
    #[inline]
    fn deref(&self) -> &Tables {
        &self.shard.as_ref().expect("it is there until the end").0
    }
}

impl<R: Rules, K: Kit> DerefMut for Section<'_, R, K> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Tables {
        &mut self.shard.as_mut().expect("it is there until the end").0
    }
}

impl<R: Rules, K: Kit> Drop for Section<'_, R, K> {
    fn drop(&mut self) {
        let now = count(self);
        // In a panic nothing more is taken: it may be a wrong order that is being told.
        if now != self.before && !std::thread::panicking() {
            self.settle(now);
        }
        self.shard = None; // before INFO
    }
}
