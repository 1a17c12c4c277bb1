//! Owns the connections of a lane and the one index over their four shapes.

mod at_hand;
mod records;

pub(crate) use at_hand::{prefetch_far_line, prefetch_ring};
pub use records::position;

use crate::accept::Listeners;
use crate::app::ConnId;
use crate::counters::Counters;
use crate::entropy::KeptKey;
use crate::paths::PathPlace;
use crate::ports::{Ask, Claim, Exhausted, Grant, PortChoice, Probe};
use crate::recent::RecentFlows;
use crate::timers::Timers;
use laneway_proto::tcp::{BufferPool, Connection, HalfOpen, Handshake, TimeWait, TimeWaitV4, TimeWaitV6};
use laneway_proto::time::Instant;
use laneway_sync::prefetch::LINE;
use laneway_table::{Fifo, HandleTable, Slab};
use laneway_wire::flow::FlowKey;
use laneway_wire::keyed_hash::HashKey;
use laneway_wire::tcp::SeqNum;
use std::mem::{forget, needs_drop, offset_of, replace};

/// Which shape a handle leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A [`Tcb`].
    Connection,
    /// A [`TimeWaitV4`].
    TimeWaitV4,
    /// A [`TimeWaitV6`].
    TimeWaitV6,
    /// A [`HalfOpen`]. The last of four, because the index keeps one word for itself, which is the last of this kind: these are not so
    /// many, but the positions of queues come round to each number.
    HalfOpen,
}

/// What the index holds: a shape, and where in that shape's store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handle(u32);

const INDEX_BITS: u32 = 30;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;

const _: () = assert!(
    (Kind::HalfOpen as u32) << INDEX_BITS | INDEX_MASK == laneway_table::handle_table::NONE,
    "the word that the index keeps for itself is the last of a kind of which there are never so many"
);

impl Handle {
    /// A handle; `index` keeps its low 30 bits.
    #[inline]
    pub fn new(kind: Kind, index: u32) -> Self {
        Handle((kind as u32) << INDEX_BITS | (index & INDEX_MASK))
    }
    /// The shape.
    #[inline]
    pub fn kind(self) -> Kind {
        match self.0 >> INDEX_BITS {
            0 => Kind::Connection,
            1 => Kind::TimeWaitV4,
            2 => Kind::TimeWaitV6,
            _ => Kind::HalfOpen,
        }
    }
    /// Slot, or the low bits of a queue position.
    #[inline]
    pub fn index(self) -> u32 {
        self.0 & INDEX_MASK
    }
    /// As the table and the wheel keep it.
    #[inline]
    pub fn raw(self) -> u32 {
        self.0
    }
    /// Back from `raw`.
    #[inline]
    pub fn from_raw(raw: u32) -> Self {
        Handle(raw)
    }
}

/// A transmission control block: an active open under way, or a synchronized connection.
#[allow(clippy::large_enum_variant)] // one slab for both, so that a connection keeps its slot when it is established
pub enum Tcb {
    /// SYN-SENT or SYN-RECEIVED.
    Handshaking(Handshake),
    /// ESTABLISHED and later.
    Synchronized(Connection),
}

impl Tcb {
    /// When something is due next.
    #[inline]
    pub fn deadline(&self) -> Instant {
        match self {
            Tcb::Handshaking(handshake) => handshake.deadline(),
            Tcb::Synchronized(connection) => connection.deadline(),
        }
    }
}

/// A slot of the slab: seven lines, of which the first has what every look asks for.
#[repr(C, align(64))]
pub struct Slot {
    /// Hash of its flow.
    pub hash: u64,
    /// The word of whoever chose our port, and `SO_REUSEADDR` and `SO_REUSEPORT` of the socket that it came from: [packed](Claim::pack), as
    /// a record keeps them, so that there is no hole before what lives here. It would be written in other pieces with one.
    pub(crate) tag: u32,
    /// Where the path of its packets lies.
    pub path: PathPlace,
    /// It is on its lane's list of connections to settle at the end of the poll.
    pub touched: bool,
    /// The application has it: accepted, or its own.
    pub accepted: bool,
    /// What lives here.
    pub tcb: Tcb,
}

const SLOT_LINES: usize = 7;
/// Those that most segments ask for: what only losses and long lives need is on the last, see [`Connection`].
const NEAR_LINES: usize = 6;
const _: () = assert!(offset_of!(Slot, tcb) == 16);
const _: () = assert!(size_of::<Option<Slot>>() == SLOT_LINES * LINE);

/// Everything about connections that a sharing variant shares or does not.
pub struct Tables {
    /// Flow hash to [`Handle`].
    pub flows: HandleTable,
    /// Where connections were found last.
    pub(crate) recent: RecentFlows,
    /// Key of the flow hash.
    pub hash_key: KeptKey,
    /// Handshaking and synchronized.
    pub slots: Slab<Slot>,
    /// SYN-RECEIVED of passive opens.
    pub half_open: Slab<HalfOpen>,
    /// TIME-WAIT, in the order of expiry.
    pub tw4: Fifo<TimeWaitV4>,
    /// The same for IPv6.
    pub tw6: Fifo<TimeWaitV6>,
    /// Ring memory.
    pub pool: BufferPool,
    /// Deadlines.
    pub timers: Timers,
    /// Listeners and their accept queues.
    pub listeners: Listeners,
    /// Who chooses local ports.
    pub ports: Box<dyn PortChoice>,
    /// Counts.
    pub counters: Counters,
    /// Live TIME_WAIT records (records taken over or evicted are in the queues but not counted).
    pub time_waits: usize,
    /// Those that were taken over or evicted and are in the queues yet, of IPv4 and of IPv6.
    dead: [usize; 2],
}

impl Tables {
    /// Empty tables with room for `connections`, lending at most `lane_mem` bytes of buffers.
    pub fn new(
        hash_key: HashKey,
        connections: usize,
        lane_mem: usize,
        now: Instant,
        ports: Box<dyn PortChoice>,
    ) -> Self {
        Tables {
            flows: HandleTable::with_capacity(connections),
            recent: RecentFlows::new(connections),
            hash_key: KeptKey::new(hash_key),
            slots: Slab::new(),
            half_open: Slab::new(),
            tw4: Fifo::new(),
            tw6: Fifo::new(),
            pool: BufferPool::new(lane_mem),
            timers: Timers::new(now),
            listeners: Listeners::default(),
            ports,
            counters: Counters::default(),
            time_waits: 0,
            dead: [0; 2],
        }
    }

    /// The hash of a flow.
    #[inline]
    pub fn hash(&self, key: &FlowKey) -> u64 {
        key.hash(&self.hash_key.get())
    }

    /// What there is of this flow.
    #[inline]
    pub fn lookup(&self, hash: u64, key: &FlowKey) -> Option<Handle> {
        self.flows.find(hash, |raw| self.is_flow(Handle(raw), key)).map(Handle)
    }

    /// Chooses the local port of an active open, with the hash of the new flow and, if it takes a TIME_WAIT record over, that
    /// record and where the new ISS must lie beyond. The record is given up.
    #[inline(always)]
    pub fn allocate(&mut self, ask: &Ask<'_>, now: Instant, delay_ms: u32) -> Result<Opening, Exhausted> {
        let mut last = None;
        let Tables { ports, flows, slots, half_open, tw4, tw6, hash_key, .. } = self;
        let shapes = Shapes { slots, half_open, tw4, tw6 };
        let grant = ports.allocate(ask, &mut |key| {
            let hash = key.hash(&hash_key.get());
            let found = flows.find(hash, |raw| shapes.is_flow(Handle(raw), key)).map(Handle);
            let over = found.and_then(|handle| Some((handle, shapes.reusable(handle, now, delay_ms)?)));
            last = Some((key.local_port, hash, over));
            match (found, over) {
                (None, _) => Probe::Free,
                (Some(_), Some(_)) => Probe::TimeWaitReusable,
                (Some(_), None) => Probe::Taken,
            }
        })?;
        let Some((port, hash, over)) = last else { return Err(Exhausted) };
        debug_assert_eq!(port, grant.port, "the port that is granted is the last one asked about");
        if let Some((handle, _)) = over {
            self.take_over(hash, handle);
        }
        Ok(Opening { grant, hash, beyond: over.map(|(_, least)| least) })
    }

    /// Takes a flow whose port the application chose; nothing if it is in use.
    pub fn adopt(&mut self, ask: &Ask<'_>, port: u16, now: Instant, delay_ms: u32) -> Option<Opening> {
        let key = ask.flow(port);
        let hash = self.hash(&key);
        let mut beyond = None;
        if let Some(handle) = self.lookup(hash, &key) {
            let Tables { slots, half_open, tw4, tw6, .. } = self;
            beyond = Some(Shapes { slots, half_open, tw4, tw6 }.reusable(handle, now, delay_ms)?);
            self.give_up(hash, handle);
        }
        let claim = self.ports.adopt(ask, port);
        Some(Opening { grant: Grant { port, claim }, hash, beyond })
    }

    /// A port is not bound any more.
    pub(crate) fn unreserve(&mut self, port: u16) {
        let Tables { ports, flows, slots, half_open, tw4, tw6, hash_key, .. } = self;
        let shapes = Shapes { slots, half_open, tw4, tw6 };
        ports.unreserve(port, &mut |key| {
            let found = flows.find(key.hash(&hash_key.get()), |raw| shapes.is_flow(Handle(raw), key));
            found.map_or(Claim::NONE, |raw| shapes.claim(Handle(raw)))
        });
    }

    /// Whether a handle leads to this flow.
    #[inline(always)]
    pub(crate) fn is_flow(&self, handle: Handle, key: &FlowKey) -> bool {
        let Tables { slots, half_open, tw4, tw6, .. } = self;
        Shapes { slots, half_open, tw4, tw6 }.is_flow(handle, key)
    }

    /// Adds a connection to be, of the flow with this key and hash.
    #[inline(always)]
    pub fn insert(&mut self, key: &FlowKey, hash: u64, make: impl FnOnce() -> Slot) -> ConnId {
        let (index, generation) = self.slots.insert_with(|_| make());
        self.recent.note(key.mix(), Handle::new(Kind::Connection, index));
        self.flows.insert(hash, Handle::new(Kind::Connection, index).raw());
        ConnId::new(index, generation)
    }

    /// Turns a half-open entry, whose flow has this [`mix`](FlowKey::mix), into a connection, in the same place of the index. `reuse`: the
    /// options that it keeps of its listener.
    #[inline(always)]
    pub fn promote(
        &mut self,
        (hash, mix): (u64, u64),
        half: u32,
        path: PathPlace,
        reuse: u8,
        make: impl FnOnce() -> Connection,
    ) -> ConnId {
        self.half_open.discard(half);
        let (index, generation) = self.slots.insert_with(|_| {
            let tcb = Tcb::Synchronized(make());
            Slot { tcb, hash, touched: false, accepted: false, tag: Claim::NONE.pack(reuse), path }
        });
        let replaced = self.flows.replace(
            hash,
            Handle::new(Kind::HalfOpen, half).raw(),
            Handle::new(Kind::Connection, index).raw(),
        );
        self.recent.note(mix, Handle::new(Kind::Connection, index));
        debug_assert!(replaced, "a half-open entry was not in the index");
        ConnId::new(index, generation)
    }

    /// Removes a connection and gives its memory back.
    #[inline]
    pub fn remove(&mut self, index: u32) {
        let Tables { slots, flows, ports, pool, .. } = self;
        slots.forget_if(index, |slot| {
            let claim = slot.claim();
            if claim != Claim::NONE {
                ports.released(claim, slot.key());
            }
            flows.remove(slot.hash, Handle::new(Kind::Connection, index).raw());
            slot.release(pool);
            true
        });
    }

    /// Takes a connection that is over out of the index, but keeps it: whoever was its peer may begin anew, and so may we from its port.
    pub fn free_flow(&mut self, index: u32) {
        let Tables { slots, flows, ports, .. } = self;
        let Some(slot) = slots.get_mut(index) else { return };
        flows.remove(slot.hash, Handle::new(Kind::Connection, index).raw());
        let claim = slot.take_claim();
        if claim != Claim::NONE {
            ports.released(claim, slot.key());
        }
    }

    /// Adds a half-open entry, whose flow has this [`mix`](FlowKey::mix), in the place of a TIME_WAIT record if the flow had one.
    #[inline(always)]
    pub fn insert_half_open(&mut self, hash: u64, half: HalfOpen, mix: u64, over: Option<Handle>) -> u32 {
        let index = self.half_open.insert(half);
        let new = Handle::new(Kind::HalfOpen, index);
        self.recent.note_half_open(mix, new, hash);
        match over {
            Some(old) => {
                // The flow is the peer's now.
                self.end_time_wait(old);
                self.flows.replace(hash, old.raw(), new.raw());
            }
            None => self.flows.insert(hash, new.raw()),
        }
        index
    }

    /// Drops a half-open entry.
    pub fn remove_half_open(&mut self, index: u32) {
        if let Some(half) = self.half_open.remove(index) {
            let hash = half.key().hash(&self.hash_key.get());
            self.flows.remove(hash, Handle::new(Kind::HalfOpen, index).raw());
        }
    }

    /// Moves index entries to a larger table, a few at a time.
    #[inline]
    pub fn maintain(&mut self, budget: usize) {
        if self.flows.backlog() == 0 {
            return;
        }
        let Tables { flows, slots, half_open, tw4, tw6, hash_key, .. } = self;
        flows.maintain(budget, |raw| {
            let handle = Handle(raw);
            let key = match handle.kind() {
                Kind::Connection => return slots.get(handle.index()).map_or(0, |slot| slot.hash),
                Kind::HalfOpen => half_open.get(handle.index()).map(|half| *half.key()),
                Kind::TimeWaitV4 => tw4.get(position(tw4, handle)).map(TimeWait::key),
                Kind::TimeWaitV6 => tw6.get(position(tw6, handle)).map(TimeWait::key),
            };
            key.map_or(0, |key| key.hash(&hash_key.get()))
        });
    }

    /// The name of what is in a slot now.
    #[inline]
    pub fn id(&self, index: u32) -> ConnId {
        ConnId::new(index, self.slots.generation(index))
    }

    /// The slot of a connection, if it still is that connection's.
    #[inline]
    pub fn slot(&mut self, id: ConnId) -> Option<&mut Slot> {
        self.slots.get_of(id.index(), id.generation())
    }

    /// The synchronized connection of that name.
    #[inline]
    pub fn connection(&mut self, id: ConnId) -> Option<&mut Connection> {
        match self.slot(id)? {
            Slot { tcb: Tcb::Synchronized(connection), .. } => Some(connection),
            _ => None,
        }
    }

    /// Bytes that the tables and everything in them hold.
    pub fn bytes(&self) -> usize {
        self.flows.bytes()
            + self.recent.bytes()
            + self.slots.bytes()
            + self.half_open.bytes()
            + self.tw4.bytes()
            + self.tw6.bytes()
            + self.timers.bytes()
            + self.pool.lent()
            + self.pool.kept()
            + self.ports.bytes()
    }
}

/// An active open that has a port.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// The port.
    pub grant: Grant,
    /// The hash of the new flow.
    pub hash: u64,
    /// The flow was in TIME_WAIT: the new ISS must lie beyond this (RFC 6191).
    pub beyond: Option<SeqNum>,
}

/// The four shapes, where the index leads to.
struct Shapes<'a> {
    slots: &'a Slab<Slot>,
    half_open: &'a Slab<HalfOpen>,
    tw4: &'a Fifo<TimeWaitV4>,
    tw6: &'a Fifo<TimeWaitV6>,
}

impl Shapes<'_> {
    #[inline(always)]
    fn is_flow(&self, handle: Handle, key: &FlowKey) -> bool {
        match handle.kind() {
            Kind::Connection => self.slots.get(handle.index()).is_some_and(|slot| slot.key() == key),
            Kind::HalfOpen => self.half_open.get(handle.index()).is_some_and(|half| half.key() == key),
            Kind::TimeWaitV4 => {
                self.tw4.get(position(self.tw4, handle)).is_some_and(|tw| !tw.is_dead() && tw.is_of(key))
            }
            Kind::TimeWaitV6 => {
                self.tw6.get(position(self.tw6, handle)).is_some_and(|tw| !tw.is_dead() && tw.is_of(key))
            }
        }
    }

    fn claim(&self, handle: Handle) -> Claim {
        let tag = match handle.kind() {
            Kind::Connection => return self.slots.get(handle.index()).map_or(Claim::NONE, Slot::claim),
            Kind::HalfOpen => return Claim::NONE,
            Kind::TimeWaitV4 => self.tw4.get(position(self.tw4, handle)).map(TimeWait::tag),
            Kind::TimeWaitV6 => self.tw6.get(position(self.tw6, handle)).map(TimeWait::tag),
        };
        tag.map_or(Claim::NONE, |tag| Claim::unpack(tag).0)
    }

    /// If this is a TIME_WAIT record that our own `connect` may take over: where the new ISS must lie beyond.
    fn reusable(&self, handle: Handle, now: Instant, delay_ms: u32) -> Option<SeqNum> {
        match handle.kind() {
            Kind::TimeWaitV4 => self.tw4.get(position(self.tw4, handle))?.reusable(now, delay_ms),
            Kind::TimeWaitV6 => self.tw6.get(position(self.tw6, handle))?.reusable(now, delay_ms),
            Kind::Connection | Kind::HalfOpen => None,
        }
    }
}

impl Slot {
    /// The handshake has ended well. It holds nothing that would have to be dropped: the connection is laid down over it.
    #[inline(always)]
    pub(crate) fn establish(&mut self, connection: Connection) {
        const { assert!(!needs_drop::<Handshake>()) };
        forget(replace(&mut self.tcb, Tcb::Synchronized(connection)));
    }

    /// Gives its memory back; nothing that has to be dropped is left.
    #[inline(always)]
    fn release(&mut self, pool: &mut BufferPool) {
        if let Tcb::Synchronized(connection) = &mut self.tcb {
            connection.release(pool);
        }
    }

    /// The word of whoever chose our port, which is another's to give back from now on.
    fn take_claim(&mut self) -> Claim {
        let claim = self.claim();
        self.tag = Claim::NONE.pack(self.reuse());
        claim
    }

    /// The word of whoever chose our port.
    #[inline]
    fn claim(&self) -> Claim {
        Claim::unpack(self.tag).0
    }

    /// `SO_REUSEADDR` and `SO_REUSEPORT` of the socket that it came from.
    pub(crate) fn reuse(&self) -> u8 {
        Claim::unpack(self.tag).1
    }

    /// The flow, as long as it is this one's: not when that is over, and at most yet to be read.
    pub fn flow(&self) -> Option<&FlowKey> {
        match &self.tcb {
            Tcb::Synchronized(connection) if connection.is_finished() || connection.only_waits_to_be_read() => None,
            _ => Some(self.key()),
        }
    }

    /// The flow.
    #[inline]
    pub fn key(&self) -> &FlowKey {
        match &self.tcb {
            Tcb::Handshaking(handshake) => handshake.key(),
            Tcb::Synchronized(connection) => connection.key(),
        }
    }
}
