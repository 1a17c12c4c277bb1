//! THE SEAM: what a packet does to the route that it uses.
//!
//! The product's packet does nothing: a lane borrows its routes for a poll, from a table that is its own while it looks
//! ([`crate::snapshot`]). What others do is to take a reference before the packet is written and to give it back when the
//! device has it: two writes to a line that all lanes share. The ways to do so are types that wrap the device's sending
//! half, because that is where a packet of any kind comes by ([`Tx::on_behalf`]); [`Borrowed`] wraps nothing.
//!
//! | name | count | where it lies |
//! |---|---|---|
//! | `r0` | a loop of compare-exchange, never from zero | in the line that every packet reads |
//! | `r1` | the same | 128 bytes further on |
//! | `r2` | [`RcuRef`] | in the line that every packet reads |
//! | `r3` | [`RcuRef`] | 128 bytes further on |
//! | `arc` | [`std::sync::Arc`] | before the value, in its line |
//! | `lane` | none | |
//!
//! Nobody outside the lanes keeps a route: the control plane has tables and no single routes, and a socket asks the lane.
//! So the product has no use for `RcuRef` here; whoever adds such a holder finds it in [`laneway_sync::counted`].

use crate::snapshot::Snapshot;
use laneway_device::{Capabilities, Queue, Tx, TxMeta};
use laneway_proto::ip::route::{Route, RouteTable};
use laneway_sync::Padded;
use laneway_sync::counted::{CasRef, Count, Held, Shared};
use laneway_sync::epoch::{Domain, Limbo, Seat};
use laneway_sync::rcuref::RcuRef;
use laneway_wire::flow::Address;
use std::any::Any;
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// What packets did to routes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Tally {
    /// References taken, each given back again.
    pub taken: u64,
    /// Lines written that other lanes write as well: one for each taking and each giving back.
    pub shared_writes: u64,
    /// Attempts at a reference that another lane's came before.
    pub retries: u64,
    /// Packets that were longer than their route says, or whose route had been replaced while they were written.
    pub misfits: u64,
}

impl Tally {
    /// The sum of both.
    pub fn merge(&mut self, other: &Tally) {
        self.taken += other.taken;
        self.shared_writes += other.shared_writes;
        self.retries += other.retries;
        self.misfits += other.misfits;
    }

    /// What has come since an earlier look.
    #[must_use]
    pub fn since(&self, earlier: &Tally) -> Tally {
        Tally {
            taken: self.taken - earlier.taken,
            shared_writes: self.shared_writes - earlier.shared_writes,
            retries: self.retries - earlier.retries,
            misfits: self.misfits - earlier.misfits,
        }
    }
}

/// A way of referring to routes.
pub trait References: Send + 'static {
    /// The name on the command line and in results.
    const NAME: &'static str;

    /// The sending half of a device with what comes on top of it.
    type Outlet<T: Tx>: Tx;

    /// Puts it on top, for all queues of one stack.
    fn attach<R, T: Tx>(queues: Vec<Queue<R, T>>) -> Vec<Queue<R, Self::Outlet<T>>>;

    /// What has come by so far.
    fn tally<T: Tx>(outlet: &Self::Outlet<T>) -> Tally;
}

/// `lane`: routes are borrowed for a poll, and nothing is written.
pub struct Borrowed;

impl References for Borrowed {
    const NAME: &'static str = "lane";
    type Outlet<T: Tx> = T;

    fn attach<R, T: Tx>(queues: Vec<Queue<R, T>>) -> Vec<Queue<R, T>> {
        queues
    }

    fn tally<T: Tx>(_: &T) -> Tally {
        Tally::default()
    }
}

/// `r0`: as Linux until 6.4.
pub type R0 = Counted<CasRef>;
/// `r1`: the count on a line of its own.
pub type R1 = Counted<Padded<CasRef>>;
/// `r2`: the count without a loop.
pub type R2 = Counted<RcuRef>;
/// `r3`: both, as Linux since 6.4.
pub type R3 = Counted<Padded<RcuRef>>;

/// What a packet reads of its route, in one line.
#[derive(Debug)]
#[repr(C)]
pub struct Line {
    /// Where to: the router, or else the destination itself.
    next_hop: Option<Address>,
    /// Largest IP packet in bytes; 0: as the interface has it.
    mtu: u32,
    interface: u32,
    /// There is a newer table: what is under way goes on, and the next packet looks again.
    obsolete: AtomicBool,
}

/// What a packet reads ends here: with the object's domain and the count behind it there are 64 bytes in all.
const READ_MAX: usize = 48;
const _: () = {
    assert!(size_of::<Line>() <= READ_MAX);
    assert!(offset_of!(Line, mtu) < READ_MAX && offset_of!(Line, obsolete) < READ_MAX);
    // r0 and r2: whoever counts writes the line that everybody reads. r1 and r3: he writes another, and not its twin.
    assert!(Shared::<Line, CasRef>::COUNT_AT + size_of::<u32>() <= 64);
    assert!(Shared::<Line, RcuRef>::COUNT_AT + size_of::<u32>() <= 64);
    assert!(Shared::<Line, Padded<CasRef>>::COUNT_AT == 128);
    assert!(Shared::<Line, Padded<RcuRef>>::COUNT_AT == 128);
};

impl Line {
    fn new(route: &Route) -> Self {
        Line {
            next_hop: route.next_hop,
            mtu: route.mtu.unwrap_or(0),
            interface: route.interface,
            obsolete: AtomicBool::new(false),
        }
    }

    /// What every packet looks at while it has the reference.
    #[inline]
    fn suits(&self, packet_len: usize) -> bool {
        let fits = self.mtu == 0 || packet_len <= self.mtu as usize;
        std::hint::black_box((self.interface, self.next_hop.is_some()));
        fits && !self.obsolete.load(Ordering::Relaxed)
    }
}

/// A route's object in the table, and how packets keep it.
pub trait Entry: Send + Sync + Sized + 'static {
    /// The name on the command line and in results.
    const NAME: &'static str;
    /// A reference.
    type Kept: Send;
    /// In the table.
    fn new(domain: &Arc<Domain>, line: Line) -> Self;
    /// Takes a reference, and says after how many attempts in vain. `None`: the object is dying, look again.
    fn keep(&self) -> Option<(Self::Kept, u32)>;
    /// What is kept.
    fn line(kept: &Self::Kept) -> &Line;
    /// Gives it back.
    fn give_back(kept: Self::Kept, seat: &Seat);
    /// The table's own look at it.
    fn own(&self) -> &Line;
}

/// References that are counted by `C`.
pub struct Counted<C: Count>(Shared<Line, C>);

macro_rules! counted {
    ($($name:literal $count:ty),*) => {$(
        impl Entry for Counted<$count> {
            const NAME: &'static str = $name;
            type Kept = Held<Line, $count>;
            fn new(domain: &Arc<Domain>, line: Line) -> Self {
                Counted(Shared::new(domain, line))
            }
            #[inline]
            fn keep(&self) -> Option<(Self::Kept, u32)> {
                self.0.get()
            }
            #[inline]
            fn line(kept: &Self::Kept) -> &Line {
                kept
            }
            #[inline]
            fn give_back(kept: Self::Kept, seat: &Seat) {
                kept.put(&seat.pin());
            }
            fn own(&self) -> &Line {
                &self.0
            }
        }
    )*};
}

counted!("r0" CasRef, "r1" Padded<CasRef>, "r2" RcuRef, "r3" Padded<RcuRef>);

/// `arc`: a clone for each packet.
pub struct ByArc(Arc<Line>);

impl Entry for ByArc {
    const NAME: &'static str = "arc";
    type Kept = Arc<Line>;
    fn new(_: &Arc<Domain>, line: Line) -> Self {
        ByArc(Arc::new(line))
    }
    #[inline]
    fn keep(&self) -> Option<(Arc<Line>, u32)> {
        Some((Arc::clone(&self.0), 0))
    }
    #[inline]
    fn line(kept: &Arc<Line>) -> &Line {
        kept
    }
    #[inline]
    fn give_back(kept: Arc<Line>, _: &Seat) {
        drop(kept);
    }
    fn own(&self) -> &Line {
        &self.0
    }
}

impl<E: Entry> References for E {
    const NAME: &'static str = E::NAME;
    type Outlet<T: Tx> = Referring<T, E>;

    fn attach<R, T: Tx>(queues: Vec<Queue<R, T>>) -> Vec<Queue<R, Referring<T, E>>> {
        let (domain, limbo) = Domain::new(queues.len());
        let shelves = Arc::new(Shelves { domain, rare: Mutex::new(Rare { shelves: Vec::new(), limbo }) });
        let outlet = |queue: Queue<R, T>| {
            let mut seat = Domain::seat(&shelves.domain)?;
            seat.online();
            let tx = Referring {
                tx: queue.tx,
                shelves: shelves.clone(),
                seat,
                now: None,
                kept: None,
                tally: Tally::default(),
            };
            Some(Queue { rx: queue.rx, tx })
        };
        // There is a seat for each.
        queues.into_iter().map_while(outlet).collect()
    }

    fn tally<T: Tx>(outlet: &Referring<T, E>) -> Tally {
        outlet.tally
    }
}

/// The objects of one table's routes, made when the first packet wants them.
struct Shelf<E> {
    generation: u64,
    entries: Box<[OnceLock<E>]>,
}

/// The shelves of one stack.
struct Shelves<E> {
    domain: Arc<Domain>,
    rare: Mutex<Rare<E>>,
}

/// What is touched when there is a new table, and not otherwise.
struct Rare<E> {
    shelves: Vec<Arc<Shelf<E>>>,
    limbo: Limbo,
}

impl<E: Entry> Shelves<E> {
    /// The shelf of a table; the first lane that comes with a new one makes it, and what is older is obsolete from then on.
    #[cold]
    fn of(&self, generation: u64, table: &RouteTable) -> Arc<Shelf<E>> {
        let mut rare = self.rare.lock().unwrap_or_else(PoisonError::into_inner);
        rare.limbo.collect();
        if let Some(shelf) = rare.shelves.iter().find(|shelf| shelf.generation == generation) {
            return Arc::clone(shelf);
        }
        let entries = (0..table.len()).map(|_| OnceLock::new()).collect();
        let shelf = Arc::new(Shelf { generation, entries });
        for older in rare.shelves.iter().filter(|older| older.generation < generation) {
            for entry in older.entries.iter().filter_map(OnceLock::get) {
                entry.own().obsolete.store(true, Ordering::Relaxed);
            }
        }
        // Those that no lane has any more.
        rare.shelves.retain(|older| Arc::strong_count(older) > 1);
        rare.shelves.push(Arc::clone(&shelf));
        shelf
    }
}

/// A device's sending half, with a reference to its route for each packet.
pub struct Referring<T, E: Entry> {
    tx: T,
    shelves: Arc<Shelves<E>>,
    seat: Seat,
    now: Option<Arc<Shelf<E>>>,
    kept: Option<E::Kept>,
    tally: Tally,
}

impl<T: Tx, E: Entry> Referring<T, E> {
    #[inline]
    fn give_back(&mut self) {
        if let Some(kept) = self.kept.take() {
            E::give_back(kept, &self.seat);
            self.tally.shared_writes += 1;
        }
    }

    /// The packet for whose sake the reference was taken has been handed over.
    #[inline]
    fn left(&mut self, len: usize, meta: TxMeta) {
        if let Some(kept) = &self.kept {
            // The device cuts a super-packet into such as fit.
            let whole = meta.gso_size == 0;
            let packet_len = if whole { len - self.tx.capabilities().medium.header_len() } else { 0 };
            self.tally.misfits += u64::from(!E::line(kept).suits(packet_len));
        }
        self.give_back();
    }
}

impl<T: Tx, E: Entry> Tx for Referring<T, E> {
    #[inline]
    fn capabilities(&self) -> &Capabilities {
        self.tx.capabilities()
    }

    #[inline]
    fn on_behalf(&mut self, what: &dyn Any, number: u32) {
        // A packet that found no room after all.
        self.give_back();
        let Some(snapshot) = what.downcast_ref::<Snapshot>() else { return };
        if self.now.as_ref().is_none_or(|shelf| shelf.generation != snapshot.generation) {
            self.now = Some(self.shelves.of(snapshot.generation, &snapshot.routes));
        }
        let Some(place) = self.now.as_ref().and_then(|shelf| shelf.entries.get(number as usize)) else { return };
        let entry = place.get_or_init(|| {
            let route = snapshot.routes.get(number).expect("the shelf is this table's");
            E::new(&self.shelves.domain, Line::new(route))
        });
        if let Some((kept, retries)) = entry.keep() {
            self.kept = Some(kept);
            self.tally.taken += 1;
            self.tally.shared_writes += 1;
            self.tally.retries += u64::from(retries);
        }
    }

    #[inline]
    fn reserve(&mut self, len: usize) -> Option<&mut [u8]> {
        self.tx.reserve(len)
    }

    #[inline]
    fn reserve_for(&mut self, len: usize, flow: &dyn Any) -> Option<&mut [u8]> {
        self.tx.reserve_for(len, flow)
    }

    #[inline]
    fn commit(&mut self, len: usize, meta: TxMeta) {
        self.tx.commit(len, meta);
        self.left(len, meta);
    }

    #[inline]
    fn gathers(&self, len: usize) -> bool {
        self.tx.gathers(len)
    }

    #[inline]
    fn gather(&mut self, parts: [&[u8]; 3], meta: TxMeta) -> bool {
        let len = parts.iter().map(|part| part.len()).sum();
        let taken = self.tx.gather(parts, meta);
        if taken {
            self.left(len, meta);
        }
        taken
    }

    #[inline]
    fn flush(&mut self) {
        self.give_back();
        self.tx.flush();
        // The end of a poll: from before it nothing is held.
        self.seat.quiescent();
    }
}
