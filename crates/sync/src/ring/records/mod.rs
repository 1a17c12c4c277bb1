//! A ring of variable-length records, written in place by one thread and read in place by another.
//!
//! # How it is used
//!
//! ```
//! let (mut producer, mut consumer) = laneway_sync::records(4096);
//! if let Some(bytes) = producer.reserve(1500) {
//!     bytes[..5].copy_from_slice(b"hello");
//!     producer.commit(5, /* meta: */ 7);
//! }
//! producer.publish(); // once per batch
//!
//! let n = consumer.poll(64);
//! for i in 0..n {
//!     assert_eq!(consumer.record(i), (&b"hello"[..], 7));
//! }
//! consumer.release(n); // once per batch
//! ```
//!
//! # Why not the obvious thing
//!
//! A queue of `Vec<u8>` costs an allocation per record and frees it on the other core, so the allocator's lists become
//! what the two cores share. A queue of descriptors into a pool needs a second ring to bring the buffers home. Here
//! the bytes lie in the ring: one copy in (the one that a device's DMA would have made), none out, and the memory comes
//! home by the consumer's index.
//!
//! # Theory
//!
//! Positions count bytes and only ever grow (modulo 2³²); the offset in the block is the position modulo the capacity,
//! which is a power of two. A record is a header of two words, `{ len: u32, kind: u32 }` and `meta: u64`, then its
//! bytes, padded to a multiple of 8. Records are contiguous: where one does not fit before the end of the block, a
//! header of kind SKIP covers the rest and the record begins at offset 0. At most half of the capacity per record, so
//! that one always fits an empty ring, wherever its indices stand.
//!
//! ```text
//!        released            published          committed
//!   ────────┼──── lent / waiting ────┼── not yet seen ──┼─── reserved ─ ─ ─ (free, until released + capacity)
//!           │ written by consumer    │ written by producer   └ private to the producer
//! ```
//!
//! # The bad interleavings
//!
//! ```text
//!   producer                                   consumer
//!   writes the record's bytes
//!   published := p + n          (Relaxed)      sees p + n, reads bytes that have not arrived      ← publish is Release,
//!                                                                                                   its load Acquire
//!                                              reads the last byte of record r
//!                                              released := r + n (Relaxed), the read drifts below
//!   sees r + n, overwrites record r            … and reads the next lap's bytes                   ← release is Release,
//!                                                                                                   its load Acquire
//!   drops: gone := true
//!                                              polls: nothing; sees gone; stops                   ← a record published
//!                                                                                                   in between is lost:
//!                                                                       ask is_closed() first, then poll once more
//! ```
//!
//! # Memory ordering
//!
//! * `published`: stored Release (after the bytes and headers), loaded Acquire by the consumer before it reads them.
//! * `released`: stored Release (after the last read of the records), loaded Acquire by the producer before it
//!   overwrites them.
//! * Each side's own index is read Relaxed by itself: from a private copy, that is, not at all.
//! * `published` says two things in one word, where the records end and how many there are: who polls learns what there is to read
//!   without a walk through the headers, of which each says where the next one is.
//! * `gone`: stored Release after the last publication, loaded Acquire: who sees it sees all that was published.

#[cfg(all(test, laneway_loom))]
mod loom;
#[cfg(all(test, not(laneway_loom)))]
mod tests;

use super::End;
use super::block::Block;
use crate::padded::Padded;
use crate::prefetch::{LINE, prefetch_line};
use crate::primitive::{Arc, AtomicBool, AtomicU64, order};
use std::cell::Cell;
use std::fmt;
use std::hint::cold_path;
use std::ops::Range;

/// How many records one poll lends at most.
pub const BATCH: usize = 64;

/// [`RecordConsumer::poll_far`] asks for so many bytes beyond the record that it looks at, line by line: a line that another core has written
/// does not bring its neighbour with it, as memory does.
const AHEAD: u32 = 1024;
/// So far before they are written are lines asked for.
const BEFORE: u32 = 512;
/// Bytes that one core has just written and has at hand.
const NEAR: u32 = 32 << 10;

const HEADER: u32 = 16;
const MIN_CAPACITY: usize = 64;
const MAX_CAPACITY: usize = 1 << 30;

/// The kind of a header, in the upper half of its first word.
const RECORD: u32 = 0;
const SKIP: u32 = 1;

struct Shared {
    producer: Padded<Published>,
    consumer: Padded<End>,
    block: Block,
}

/// The producer's [`End`], which says more.
struct Published {
    /// What [`Extent::word`] says of all that was handed over.
    extent: AtomicU64,
    /// The producer has been dropped. Set after the last hand-over.
    gone: AtomicBool,
}

/// Where records end, and how many there were before. Both grow modulo 2³².
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Extent {
    position: u32,
    count: u32,
}

impl Extent {
    #[inline(always)]
    fn word(self) -> u64 {
        u64::from(self.count) << 32 | u64::from(self.position)
    }

    #[inline(always)]
    fn of(word: u64) -> Self {
        Extent { position: word as u32, count: (word >> 32) as u32 }
    }
}

/// Bytes that a record of `len` bytes takes in the ring.
#[inline(always)]
const fn footprint(len: u32) -> u32 {
    HEADER + ((len + 7) & !7)
}

/// A ring of at least `capacity_bytes` (rounded up to a power of two; 64 B to 1 GiB), headers included.
///
/// A record takes 16 bytes more than its length, rounded up to 8.
///
/// # Panics
/// If more than 1 GiB is asked for.
pub fn records(capacity_bytes: usize) -> (RecordProducer, RecordConsumer) {
    records_from(capacity_bytes, 0)
}

/// As [`records`], with positions and the count of records starting at `start` (a multiple of 8), to test their wrap-around.
fn records_from(capacity_bytes: usize, start: u32) -> (RecordProducer, RecordConsumer) {
    assert!(capacity_bytes <= MAX_CAPACITY, "a record ring holds at most 1 GiB; {capacity_bytes} bytes were asked for");
    let capacity = capacity_bytes.max(MIN_CAPACITY).next_power_of_two();
    let none = Extent { position: start, count: start };
    let shared = Arc::new(Shared {
        producer: Padded(Published { extent: AtomicU64::new(none.word()), gone: AtomicBool::new(false) }),
        consumer: Padded(End::at(start)),
        block: Block::zeroed(capacity),
    });
    let capacity = capacity as u32;
    let producer = RecordProducer {
        shared: shared.clone(),
        capacity,
        next: start,
        extent: none.word(),
        published: none.word(),
        released_seen: start,
        room_to: start,
        granted: 0,
    };
    let consumer = RecordConsumer {
        shared,
        capacity,
        released: start,
        given_back: start,
        published_seen: none,
        lent: 0,
        far: false,
        turn: Cell::new(0),
        next: Cell::new(start),
        asked: Cell::new(start),
    };
    (producer, consumer)
}

#[cold]
#[inline(never)]
fn not_granted(len: usize, granted: u32) -> ! {
    match granted {
        0 => panic!("commit without a reservation"),
        granted => panic!("a record of {len} bytes was committed in room for {}", granted - 1),
    }
}

/// The writing side. On lines of its own: the sides of several rings often lie in one array, or beside what another thread uses.
#[repr(align(128))]
pub struct RecordProducer {
    shared: Arc<Shared>,
    capacity: u32,
    /// Where the next record begins: the end of the last committed one, or the beginning of the block, if the one that was reserved last
    /// did not fit before its end.
    next: u32,
    /// The end of the last committed record and how many there were, as the consumer will be told. In one word, since it is read as one:
    /// what was written in two would have to reach the cache first.
    extent: u64,
    /// What the consumer has been told.
    published: u64,
    /// What the consumer was last seen to have given back.
    released_seen: u32,
    /// From `next` to here the bytes are free and lie together: what fits there needs no further question. Never more than the
    /// longest record takes.
    room_to: u32,
    /// One more than the bytes that are reserved; 0: none are.
    granted: u32,
}

impl RecordProducer {
    /// The longest record that this ring takes, in bytes.
    #[inline]
    pub fn max_record(&self) -> usize {
        (self.capacity / 2 - HEADER) as usize
    }

    /// Where that lies in memory which both sides share, as addresses: the two indices, and the bytes. For instruments that
    /// look for lines which two threads should not share, and must know those which they should.
    pub fn memory(&self) -> [Range<usize>; 2] {
        let indices = std::ptr::from_ref(&*self.shared).addr();
        [indices..indices + size_of::<Shared>(), self.shared.block.memory()]
    }

    /// Room for a record of up to `len` bytes, contiguous; what it holds is what an earlier record left there.
    ///
    /// `None`: the ring is full now, or `len` is more than [`max_record`](Self::max_record). Reserving again before
    /// [`commit`](Self::commit) gives up the first reservation.
    #[inline]
    pub fn reserve(&mut self, len: usize) -> Option<&mut [u8]> {
        if len.saturating_add(HEADER as usize) > self.at_hand() as usize && !self.look_for_room(len) {
            cold_path();
            self.granted = 0;
            return None;
        }
        self.granted = len as u32 + 1;
        let at = (self.next & (self.capacity - 1)) + HEADER;
        // SAFETY: contiguous inside the block, since its footprint fits before the end, as `room_to` says (both are multiples of 8, and
        // so it is enough to compare the length). Free, so the consumer, which only touches what is published, stays away until a later
        // `publish`; the slice borrows this producer, so it is gone by then.
        Some(unsafe { self.shared.block.exclusive(at as usize, len) })
    }

    /// The bytes that are reserved, if any are: the same that [`reserve`](Self::reserve) answered with.
    #[inline]
    pub fn reserved(&mut self) -> Option<&mut [u8]> {
        let len = self.granted.checked_sub(1)?;
        self.reserve(len as usize)
    }

    /// Gives the reservation up, if there is one.
    #[inline]
    pub fn give_up(&mut self) {
        self.granted = 0;
    }

    /// So many bytes from `next` on are known to be free, and lie together.
    #[inline(always)]
    fn at_hand(&self) -> u32 {
        self.room_to.wrapping_sub(self.next)
    }

    /// Room for a record that is longer than what is at hand, which may be where the block begins anew. False: there is none.
    #[inline(never)]
    fn look_for_room(&mut self, len: usize) -> bool {
        if len > self.max_record() {
            return false;
        }
        let (skipped, need) = self.extent(len as u32);
        if !self.has_room(skipped + need) {
            return false;
        }
        let mut offset = self.next & (self.capacity - 1);
        if skipped > 0 {
            // SAFETY: a multiple of 8 inside the block, and free: `has_room` covers it.
            unsafe { self.shared.block.set_word(offset as usize, u64::from(SKIP) << 32) };
            self.next = self.next.wrapping_add(skipped);
            offset = 0;
        }
        let free = self.capacity - self.next.wrapping_sub(self.released_seen);
        self.room_to = self.next.wrapping_add(free.min(self.capacity - offset).min(self.capacity / 2));
        true
    }

    /// Whether [`reserve`](Self::reserve) would find room for a record of `len` bytes.
    #[inline]
    pub fn has_room_for(&mut self, len: usize) -> bool {
        len <= self.max_record() && {
            let (skipped, need) = self.extent(len as u32);
            self.has_room(skipped + need)
        }
    }

    /// What a record of `len` bytes would take, and before it, if it does not fit before the end of the block, the rest of that.
    #[inline(always)]
    fn extent(&self, len: u32) -> (u32, u32) {
        let to_end = self.capacity - (self.next & (self.capacity - 1));
        let need = footprint(len);
        (if need <= to_end { 0 } else { to_end }, need)
    }

    /// Makes the reserved bytes a record of `len` bytes (at most what was reserved) that carries `meta`.
    ///
    /// The consumer sees it after the next [`publish`](Self::publish).
    ///
    /// # Panics
    /// If nothing is reserved, or less than `len`.
    #[inline]
    pub fn commit(&mut self, len: usize, meta: u64) {
        if !self.try_commit(len, meta) {
            not_granted(len, self.granted);
        }
    }

    /// As [`commit`](Self::commit). `false`: nothing is reserved, or less than `len`, and nothing is done.
    #[must_use]
    #[inline]
    pub fn try_commit(&mut self, len: usize, meta: u64) -> bool {
        if len >= self.granted as usize {
            cold_path();
            return false;
        }
        self.granted = 0;
        let at = (self.next & (self.capacity - 1)) as usize;
        // SAFETY: the header lies inside the reservation's footprint: ours alone, inside the block, a multiple of 8.
        unsafe { self.shared.block.set_words(at, [len as u64 | (u64::from(RECORD) << 32), meta]) };
        self.shared.block.end_of_writes(at + HEADER as usize, len);
        let taken = footprint(len as u32);
        self.next = self.next.wrapping_add(taken);
        let count = Extent::of(self.extent).count.wrapping_add(1);
        self.extent = Extent { position: self.next, count }.word();
        self.prepare(at + taken as usize);
        true
    }

    /// Asks for two lines that later records will be written to, some way behind this offset. They have left the cache since the lap before,
    /// and a processor that waits for them with what it has written stops when it has written enough. Not beyond what is at hand: the consumer
    /// may not be done with that, and where the block begins anew is soon asked for, too.
    #[inline(always)]
    fn prepare(&self, offset: usize) {
        if self.at_hand() >= BEFORE + 2 * LINE as u32 {
            self.shared.block.prefetch_to_write(offset + BEFORE as usize);
            self.shared.block.prefetch_to_write(offset + BEFORE as usize + LINE);
        }
    }

    /// Shows the consumer all that is committed: one store, however many records.
    #[inline]
    pub fn publish(&mut self) {
        if self.published != self.extent {
            self.published = self.extent;
            self.shared.producer.extent.store(self.extent, order::publish());
        }
    }

    /// Reserve, copy, commit and publish in one. `false`: no room, nothing done.
    #[inline]
    pub fn push(&mut self, bytes: &[u8], meta: u64) -> bool {
        let Some(room) = self.reserve(bytes.len()) else {
            return false;
        };
        room.copy_from_slice(bytes);
        self.commit(bytes.len(), meta);
        self.publish();
        true
    }

    /// The consumer has been dropped: what is written now, nobody reads.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.shared.consumer.gone.load(order::observe())
    }

    /// The consumer has given back everything that was ever committed.
    #[inline]
    pub fn is_drained(&self) -> bool {
        self.shared.consumer.position.load(order::observe()) == self.position()
    }

    /// Where the last committed record ends: everything committed so far lies before it. For [`has_released`](Self::has_released).
    #[inline]
    pub fn position(&self) -> u32 {
        Extent::of(self.extent).position
    }

    /// The consumer has given back everything that was committed before this position, which must not be older than half of
    /// what positions count (2 GiB).
    #[inline]
    pub fn has_released(&self, position: u32) -> bool {
        self.shared.consumer.position.load(order::observe()).wrapping_sub(position) as i32 >= 0
    }

    #[inline(always)]
    fn has_room(&mut self, bytes: u32) -> bool {
        let used = self.next.wrapping_sub(self.released_seen);
        if used + bytes <= self.capacity {
            return true;
        }
        self.released_seen = self.shared.consumer.position.load(order::observe());
        self.next.wrapping_sub(self.released_seen) + bytes <= self.capacity
    }
}

impl Drop for RecordProducer {
    fn drop(&mut self) {
        // What was committed was meant to be seen.
        self.publish();
        self.shared.producer.gone.store(true, order::publish());
    }
}

impl fmt::Debug for RecordProducer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordProducer")
            .field("capacity", &self.capacity)
            .field("committed", &self.position())
            .field("published", &Extent::of(self.published).position)
            .finish_non_exhaustive()
    }
}

/// The reading side. On lines of its own, as the writing side is.
#[repr(align(128))]
pub struct RecordConsumer {
    shared: Arc<Shared>,
    capacity: u32,
    /// Everything before this position has been given back …
    released: u32,
    /// … and so many records.
    given_back: u32,
    /// What the producer was last seen to have published.
    published_seen: Extent,
    /// So many records from there on are lent.
    lent: usize,
    /// This poll asks for lines ahead of what is read.
    far: bool,
    /// The record whose turn it is to be read …
    turn: Cell<usize>,
    /// … and where its header is, or that of the rest of the block, if it did not fit there. This stands in the header of the record
    /// before it, and who reads them in turn need not wait for that: he has work to do with the one before.
    next: Cell<u32>,
    /// Lines have been asked for up to this position.
    asked: Cell<u32>,
}

impl RecordConsumer {
    /// Looks for records, and lends the oldest of them: at most `max`, at most [`BATCH`]. Returns how many.
    ///
    /// Starts at the oldest record that has not been given back, so records of an earlier poll that were not released
    /// are counted again.
    #[inline]
    pub fn poll(&mut self, max: usize) -> usize {
        let far = self.published_seen.position.wrapping_sub(self.released) > NEAR;
        self.look(max, far)
    }

    /// As [`poll`](Self::poll), of records that were written on another core. Each would be waited for in its turn; this asks for later
    /// ones while one is read. (So does `poll` when so much waits that the oldest has left the nearest cache.)
    #[inline]
    pub fn poll_far(&mut self, max: usize) -> usize {
        self.look(max, /* far: */ true)
    }

    /// Asks for the word that the next poll looks at. It is on its way then while something else is done.
    #[inline(always)]
    pub fn prefetch_news(&self) {
        prefetch_line(std::ptr::from_ref(&self.shared.producer));
    }

    #[inline(always)]
    fn look(&mut self, max: usize, far: bool) -> usize {
        let max = max.min(BATCH);
        let mut waiting = self.published_seen.count.wrapping_sub(self.given_back) as usize;
        if waiting < max {
            self.published_seen = Extent::of(self.shared.producer.extent.load(order::observe()));
            waiting = self.published_seen.count.wrapping_sub(self.given_back) as usize;
        }
        (self.lent, self.far) = (waiting.min(max), far);
        self.asked.set(self.released);
        self.begin_anew();
        if far {
            self.ask_ahead(self.released);
        }
        self.lent
    }

    /// The turn is the oldest record's that is lent.
    #[inline(always)]
    fn begin_anew(&self) {
        self.turn.set(0);
        self.next.set(self.released);
    }

    /// Asks for the lines behind `position` for which nobody has asked yet.
    #[inline(never)]
    fn ask_ahead(&self, position: u32) {
        // Not beyond what is published: the producer is about to write there.
        let ahead = self.published_seen.position.wrapping_sub(position).min(AHEAD);
        let mut asked = self.asked.get();
        if (asked.wrapping_sub(position) as i32) < 0 {
            asked = position; // behind a long one
        }
        while asked.wrapping_sub(position) < ahead {
            self.shared.block.prefetch((asked & (self.capacity - 1)) as usize);
            asked = asked.wrapping_add(LINE as u32);
        }
        self.asked.set(asked);
    }

    /// Where the header of the `i`-th lent record is in the block, and how long the record is.
    #[inline(always)]
    fn place(&self, i: usize) -> (usize, usize) {
        assert!(i < self.lent, "record {i} was asked for and {} are lent", self.lent);
        if i != self.turn.get() {
            self.turn_to(i);
        }
        self.take_turn()
    }

    /// For those who do not read in turn.
    #[cold]
    #[inline(never)]
    fn turn_to(&self, i: usize) {
        if i < self.turn.get() {
            self.begin_anew();
        }
        while self.turn.get() < i {
            self.take_turn();
        }
    }

    /// The record whose turn it is, which must be one that is lent. It is the next one's turn then.
    #[inline(always)]
    fn take_turn(&self) -> (usize, usize) {
        let (position, offset, len) = self.header(self.next.get());
        if self.far {
            self.ask_ahead(position);
        }
        self.turn.set(self.turn.get() + 1);
        self.next.set(position.wrapping_add(footprint(len)));
        (offset as usize, len as usize)
    }

    /// The first record at `position` or behind it, of which one must be lent: its own position, its offset, its length.
    #[inline(always)]
    fn header(&self, mut position: u32) -> (u32, u32, u32) {
        loop {
            let offset = position & (self.capacity - 1);
            // SAFETY: a record that is lent lies here or follows, so here is a header of at least one word, written before the publication
            // that we have observed, and not written again before we release that record.
            let word = unsafe { self.shared.block.word(offset as usize) };
            let (len, kind) = (word as u32, (word >> 32) as u32);
            if kind == RECORD {
                return (position, offset, len);
            }
            cold_path(); // once a lap
            position = position.wrapping_add(self.capacity - offset);
        }
    }

    /// The `i`-th lent record and what its producer attached to it.
    ///
    /// # Panics
    /// If fewer than `i + 1` records are lent.
    #[inline]
    pub fn record(&self, i: usize) -> (&[u8], u64) {
        let (at, len) = self.place(i);
        // SAFETY: inside a record that `poll` found: written before the publication that it observed, and the producer
        // stays away until `release`, which takes `&mut self` and so ends this borrow.
        unsafe { (self.shared.block.shared(at + HEADER as usize, len), self.shared.block.word(at + 8)) }
    }

    /// Gives the first `n` lent records back, with one store. What was record `n` is record 0 now.
    ///
    /// # Panics
    /// If fewer than `n` records are lent.
    #[inline]
    pub fn release(&mut self, n: usize) {
        assert!(n <= self.lent, "{n} records were released and {} are lent", self.lent);
        if n == 0 {
            return;
        }
        if cfg!(laneway_loom) {
            for i in 0..n {
                let (at, len) = self.place(i);
                self.shared.block.end_of_reads(at + HEADER as usize, len);
            }
        }
        if n != self.turn.get() {
            self.turn_to(n);
        }
        // Who reads on does so where he was.
        self.turn.set(0);
        self.released = self.next.get();
        self.lent -= n;
        self.given_back = self.given_back.wrapping_add(n as u32);
        self.shared.consumer.position.store(self.released, order::publish());
    }

    /// How many records are lent: counted by the last poll and not yet given back.
    #[inline]
    pub fn lent(&self) -> usize {
        self.lent
    }

    /// All that was published has been given back. Asks the producer's index, so not for the inner loop.
    #[inline]
    pub fn is_empty(&self) -> bool {
        Extent::of(self.shared.producer.extent.load(order::observe())).count == self.given_back
    }

    /// The producer has been dropped. It may have published before: after a `true`, poll until nothing comes.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.shared.producer.gone.load(order::observe())
    }
}

impl Drop for RecordConsumer {
    fn drop(&mut self) {
        self.shared.consumer.gone.store(true, order::publish());
    }
}

impl fmt::Debug for RecordConsumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordConsumer")
            .field("capacity", &self.capacity)
            .field("released", &self.released)
            .field("lent", &self.lent())
            .finish_non_exhaustive()
    }
}
