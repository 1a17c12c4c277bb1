//! A conversation between an application and a lane: a ring of bytes in each direction, made of blocks that are there only
//! while there is something in them.
//!
//! # How it is used
//!
//! ```
//! use laneway_sync::ring::bytes::{BlockPool, pipe};
//! let pool = std::sync::Arc::new(BlockPool::new(1 << 20));
//! let (pipe, mut lane) = pipe(&pool, /* bytes in each direction */ 65_536, (), (), ());
//!
//! assert_eq!(pipe.send(b"question"), 8); // the application, on any thread
//! assert_eq!(lane.front(), b"question"); // the lane, in place …
//! lane.advance(8); // … gives it back
//! assert_eq!(lane.fill(b"answer"), 6);
//! let mut buf = [0; 16];
//! assert_eq!(pipe.recv(&mut buf), 6);
//!
//! lane.retire(); // both directions are empty:
//! assert_eq!(pool.in_use(), 0); // no memory is held
//!
//! drop(pipe); // the application is gone, and the lane has it alone:
//! assert!(lane.renew()); // it is as new, for whoever comes next
//! ```
//!
//! # Why not the obvious thing
//!
//! A ring of fixed size holds its memory when nothing is said, and a million idle conversations hold a million of them. A
//! ring that grows must be moved while the other side reads it. A queue of messages allocates per message and knows
//! no byte count to push back with. A pipe of the kernel's is a system call per side and message.
//!
//! # Theory
//!
//! A direction is an endless line of bytes, counted from 0 and never wrapping (64 bits). `produced` is how far it is
//! written, `taken` how far it is read. The bytes between lie in a chain of [blocks](BlockPool): the writer fills one and
//! links the next behind it before it publishes a byte in it; the reader gives a block back when it steps over to the next.
//!
//! So each full block has one owner. The last one is the question: both sides have it, the writer because there is room
//! in it, the reader because it stands in it. It can be taken out of the chain only when the direction is empty, and
//! the lane, which lent it, takes it, whichever side it is:
//!
//! * As writer: it sees `taken` = `produced`; the reader, then, touches nothing before more is published. The block goes
//!   back to the pool. Nobody else takes one, so it need not take it out of a word before it writes.
//! * As reader: it sees the direction empty, but the application may be about to write. Therefore the writer takes the block
//!   out of a word, `hold`, for as long as it writes, and puts it back afterwards; the lane takes it out of the same word, by
//!   a compare-exchange that fails if anything was written since it looked (the word carries the position).
//!
//! A writer that finds everything read writes at the front of the block that it holds, as if the chain began there. So a
//! conversation of short messages lives in the first lines of one block, and they stay in the cache. If what it has to write is
//! more than that block holds, it gives it back and begins in a larger one.
//!
//! After either, the next byte begins a new chain. The writer says where: `chain_start` is its position, `first` its block. A
//! reader that stands at `chain_start` goes to `first`, whatever it remembered; it stands there exactly once.
//!
//! **Who looks twice.** A lane that sends a stream wants to send it again if it is lost, and keeps it where it lies: it parts with
//! its reading half ([`LaneEnd::part`]), and what a [`KeptEnd`] has shown stays as it is until it is released there. `taken` is then
//! how far bytes were released, and not how far they were seen; the application knows no difference, and no other word is
//! shared. The blocks between are walked from the oldest on, or from where the last look was.
//!
//! A chain begins only where everything was read, so a reader looks at `chain_start` only when it has come to the end of what it
//! knew of.
//!
//! Each side keeps what it last saw of the other's index and looks again when that says full, or empty. The lines, each by who
//! writes it:
//!
//! | line | holds | written by | read by |
//! |---|---|---|---|
//! | 0 | the application's indices, flags and link; what it says beside the bytes; the count of those who hold it | the application; the lane when it takes it off a list, and before it hands it over | both |
//! | 1 | what the application's threads remember, under two mutexes, and keep among themselves | the application | the application |
//! | 2 | the lane's indices, and what it remembers | the lane | both |
//! | 3 and on | the pool, the limit, what the lane says beside the bytes | the lane, when something happens | both |
//!
//! All that a side writes for the other to see is on one line, for both directions together: who answers what it read writes one
//! line, not two. The two indices of a direction are 128 bytes apart, so they never meet in one pair of lines
//! ([`Padded`](crate::Padded) says why pairs); the beginning is aligned to one line only, because two would
//! cost a line more of each (`lined` says what a heap leaves beside a value).
//!
//! # Beginning and end
//!
//! A short conversation is: the lane makes it, says something, hands it over; the application reads, answers, and is gone; the
//! lane reads that, and has it back. If each of these steps is to cost a line at the most, then
//!
//! * it is made once, and [`renew`](LaneEnd::renew)ed by the lane when nobody else holds it and nothing waits in it. Its blocks, if they
//!   are small, stay in it.
//! * the count of those who hold it is on line 0, which the application has when it takes part and the lane when it hands over. (An
//!   `Arc` has its counts on a line before the value, and that one would go to and fro for nothing else.)
//! * what the lane has said before it hands it over goes with the address of the conversation, in whatever carries it
//!   ([`Carried`](crate::ring::handout::Carried)), so that its reader need not look at line 2.
//! * what line 1 remembers is of the conversation before. The lane does not write there; it sets `FRESH` on line 0, and the application
//!   begins anew when it finds that, under both mutexes. Whoever takes it out of a [`handout`](super::handout) clears it unseen, by an
//!   exchange: then line 0 comes over once, to be written, and not first to be read and then to be written.
//!
//! # The bad interleavings
//!
//! ```text
//!   writer                                reader
//!   writes the byte
//!   produced := 1     (Relaxed)           sees 1, reads a byte that has not arrived
//!
//!                                         sees taken = produced
//!   writes into the block, publishes
//!                                         gives the block back        ← take it out of `hold`, not out of one's memory
//!
//!   sees taken = produced, and goes back to the front of its block
//!                                         sees the byte, looks behind the last one
//!                                                                     ← `chain_start` says where: read it first, always
//!
//!                                         sees hold = (0, block)
//!   takes it, writes, puts it back
//!                                         takes it: hold = (0, block) ← the word carries the position, and it has moved
//!
//!   finds room, writes over it            sees a byte, says so, sends it again later
//!                                                                     ← `taken` moves when it needs it no more
//!
//!   needs a larger block, gives back
//!   the one that it holds                 has not read the last bytes in it
//!                                                                     ← only where everything is read, as a chain begins
//!
//!   begins anew at the front of its       remembers which block a position is in
//!   block, as everything is read                                      ← and forgets it with the last byte that it knew of
//!
//!   close                                 sees 10 bytes, takes them
//!   … after 20 bytes                      sees "close", closes        ← an end has a position; it waits for its bytes
//!
//!   its last look at a conversation
//!                                         makes it as new             ← only when the count says that nobody else holds it, and
//!                                                                       the last to let go releases what it has done
//! ```
//!
//! The last one is about what is said *beside* the bytes ([`Pipe::after`] gives the position, a
//! [`PushList`] carries it): it is pushed after the bytes are published, so whoever has taken it from the list
//! sees the bytes too, if it looks again. It is modelled here.
//!
//! # Memory ordering
//!
//! * `produced`, `taken`: stored Release after the bytes are written, or read; loaded Acquire before they are read, or
//!   their block is used again.
//! * `hold`: taken by the writer AcqRel (it sees that the lane has taken the block), put back Release; taken by the lane
//!   AcqRel.
//! * `chain_start`, `first`, the links: Relaxed. They are written before a `produced` that covers them, and not again before
//!   the reader has passed them.
//! * The count of holders: up Relaxed (who counts has it already), down Release; Acquire before it is renewed, or freed.
//! * What is reset when a conversation is renewed: Relaxed. Whatever hands it over next publishes it.
//! * What lies beside the two directions (the callers' values) brings its own.

mod held;
mod kept;
mod lined;
#[cfg(all(test, laneway_loom))]
mod loom;
mod pool;
#[cfg(all(test, not(laneway_loom)))]
mod tests;

use crate::primitive::{Arc, AtomicPtr, AtomicU32, AtomicU64, UnsafeCell, order, own};
use crate::wake::{Flags, Linked, PushList};
pub use held::{AppEnd, LaneEnd};
pub use kept::KeptEnd;
use pool::BlockId;
pub use pool::BlockPool;
use std::fmt;
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// `hold` while the writer writes.
const BUSY: u64 = u64::MAX;
/// `hold` while no block is in the chain.
const NONE: u64 = 0;
/// Of the flags: what the application's side remembers is of an earlier conversation.
const FRESH: u32 = 1 << 30;

/// What a writer shows of its direction.
#[repr(C)]
struct Out {
    produced: AtomicU64,
    /// The last block of the chain: low half of `produced` << 32 | number plus one.
    hold: AtomicU64,
    chain_start: AtomicU64,
    first: AtomicU32,
    /// The application's: what it waits for, and whether it is on a wake list. Here, on the line that the lane reads anyway.
    flags: Flags,
}

impl Out {
    fn new() -> Self {
        Out {
            produced: AtomicU64::new(0),
            hold: AtomicU64::new(NONE),
            chain_start: AtomicU64::new(0),
            first: AtomicU32::new(0),
            flags: Flags::default(),
        }
    }
}

/// What a writer remembers. Positions are low halves: a direction holds less than 2³¹ bytes.
#[derive(Default)]
struct Writing {
    taken_seen: u32,
    offset: u32,
}

/// What a reader remembers.
#[derive(Default)]
struct Reading {
    produced_seen: u32,
    block: u32,
    offset: u32,
}

/// What a lane has said before it handed a conversation over: how much, and where it begins.
#[derive(Clone, Copy, Default)]
pub(in crate::ring) struct Shown {
    bytes: u32,
    block: u32,
}

/// One direction: the writer's word, the reader's word, and where blocks come from.
#[derive(Clone, Copy)]
struct Direction<'a> {
    out: &'a Out,
    taken: &'a AtomicU64,
    pool: &'a BlockPool,
    limit: u32,
    /// Who writes is also who takes blocks back, so nobody can take one from it meanwhile.
    writer_lends: bool,
}

impl<'a> Direction<'a> {
    /// How many bytes the writer may add.
    fn room(&self, writing: &mut Writing, wished: usize) -> usize {
        let at = own(&self.out.produced) as u32;
        if (self.limit.saturating_sub(at.wrapping_sub(writing.taken_seen)) as usize) < wished {
            writing.taken_seen = self.taken.load(order::observe()) as u32;
        }
        self.limit.saturating_sub(at.wrapping_sub(writing.taken_seen)) as usize
    }

    /// The block of the byte `offset` behind the oldest, and its place there. It is written.
    fn find(&self, reading: &Reading, offset: u32) -> (BlockId, u32) {
        let begins_here = self.out.chain_start.load(Relaxed) == own(self.taken);
        let (block, mut place) =
            if begins_here { (self.out.first.load(Relaxed), offset) } else { (reading.block, reading.offset + offset) };
        let mut block = BlockId(block);
        loop {
            let size = self.pool.size(block);
            if place < size {
                return (block, place);
            }
            place -= size;
            block = BlockId(self.pool.next(block).load(Relaxed));
        }
    }

    /// Asks for the lines of the oldest bytes, if there are some. A hint: what the other side does meanwhile makes it a wrong one.
    fn prefetch_front(&self, reading: &Reading) {
        let waiting = self.out.produced.load(order::observe()).wrapping_sub(own(self.taken));
        if waiting > 0 {
            let (block, place) = self.find(reading, 0);
            self.pool.prefetch(block, place, waiting as usize);
        }
    }

    /// Asks for the lines that the next `len` bytes will be written to, if there is a block that the writer holds.
    fn prefetch_room(&self, writing: &Writing, len: usize) {
        if let Some(number) = (own(&self.out.hold) as u32).checked_sub(1) {
            let all_read = self.taken.load(Relaxed) == own(&self.out.produced);
            self.pool.prefetch_to_write(BlockId(number), if all_read { 0 } else { writing.offset }, len);
        }
    }

    /// Appends as much of `bytes` as there is room for, and says how much.
    fn write(&self, writing: &mut Writing, bytes: &[u8]) -> usize {
        let len = bytes.len().min(self.room(writing, bytes.len()));
        if len == 0 {
            return 0;
        }
        let at = own(&self.out.produced);
        let held = match self.writer_lends {
            true => own(&self.out.hold),
            // AcqRel is more than is needed by itself: what the lane did with the block comes before `taken`, or before the pool has it.
            false => self.out.hold.swap(BUSY, order::exchange()),
        };
        let mut block = match (held as u32).checked_sub(1) {
            Some(number) => {
                let mut block = BlockId(number);
                if writing.taken_seen == at as u32 || self.taken.load(order::observe()) == at {
                    // Everything is read. What is said now and then uses the same few lines again, and not the whole block.
                    writing.taken_seen = at as u32;
                    if len > self.pool.size(block) as usize {
                        block = self.exchange(block, len);
                    }
                    self.begin(writing, at, block);
                }
                block
            }
            None => {
                let reserved = || if self.writer_lends { self.pool.take_to_show() } else { self.pool.take_to_write() };
                let Some(block) = self.pool.take(len).or_else(reserved) else {
                    self.out.hold.store(NONE, order::publish());
                    return 0;
                };
                self.begin(writing, at, block);
                block
            }
        };
        let mut written = 0;
        while written < len {
            let size = self.pool.size(block);
            if writing.offset == size {
                // Who fills a block has much to say, or a reader who lags: the next one is larger. It is held from then on, and while
                // everything is read in time no other is needed, and nobody goes to the pool.
                let Some(next) = self.pool.take((len - written).max(size as usize + 1)) else { break };
                self.pool.next(block).store(next.0, Relaxed);
                block = next;
                writing.offset = 0;
                continue;
            }
            let n = (len - written).min((size - writing.offset) as usize);
            // SAFETY: inside the block. The writer has taken the last block out of `hold`, or out of the pool, so no one
            // gives it back; and the reader stays before `produced`, which these bytes are behind.
            let room = unsafe { self.pool.exclusive(block, writing.offset, n as u32) };
            room.copy_from_slice(&bytes[written..written + n]);
            written += n;
            writing.offset += n as u32;
        }
        let end = at + written as u64;
        self.out.produced.store(end, order::publish());
        self.out.hold.store((end & 0xffff_ffff) << 32 | u64::from(block.0 + 1), order::publish());
        written
    }

    /// A chain begins, at `at`, with `block`.
    fn begin(&self, writing: &mut Writing, at: u64, block: BlockId) {
        self.out.first.store(block.0, Relaxed);
        self.out.chain_start.store(at, Relaxed);
        writing.offset = 0;
    }

    /// A block in which `len` bytes lie together, for one in which they do not, if there is one. The writer has taken it out of `hold`, and
    /// everything is read: nobody looks into it before a chain begins.
    #[cold]
    fn exchange(&self, block: BlockId, len: usize) -> BlockId {
        match self.pool.take(len) {
            Some(larger) if self.pool.size(larger) > self.pool.size(block) => {
                self.pool.give(block);
                larger
            }
            Some(other) => {
                self.pool.give(other);
                block
            }
            None => block,
        }
    }

    /// Where the oldest byte lies, and how many lie together there; steps over to the next block if it must.
    fn front(&self, reading: &mut Reading) -> Option<(BlockId, u32, u32)> {
        let at = own(self.taken);
        if reading.produced_seen == at as u32 {
            reading.produced_seen = self.out.produced.load(order::observe()) as u32;
            if reading.produced_seen == at as u32 {
                return None;
            }
            // A chain begins where everything was read: before what was known of now, and nowhere within it.
            if self.out.chain_start.load(Relaxed) == at {
                reading.block = self.out.first.load(Relaxed);
                reading.offset = 0;
            }
        }
        let waiting = reading.produced_seen.wrapping_sub(at as u32);
        if reading.offset == self.pool.size(BlockId(reading.block)) {
            let full = BlockId(reading.block);
            reading.block = self.pool.next(full).load(Relaxed);
            reading.offset = 0;
            self.pool.give(full);
        }
        let block = BlockId(reading.block);
        Some((block, reading.offset, waiting.min(self.pool.size(block) - reading.offset)))
    }

    /// The reader is done with the next `n` bytes, which `front` has shown.
    fn advance(&self, reading: &mut Reading, n: u32) {
        reading.offset += n;
        self.taken.store(own(self.taken) + u64::from(n), order::publish());
    }

    /// The bytes that `front` has found.
    ///
    /// # Safety
    /// By the reader, before it advances over them.
    unsafe fn bytes(&self, (block, offset, len): (BlockId, u32, u32)) -> &'a [u8] {
        let pool: &'a BlockPool = self.pool;
        // SAFETY: published, so written and not written again before the reader has taken them; `front` has observed it.
        unsafe { pool.shared(block, offset, len) }
    }

    /// Bytes that are written and not read, as somebody sees it who may be neither the writer nor the reader. `taken` first: who has seen
    /// it then finds a `produced` that is no less.
    fn waiting(&self) -> usize {
        let taken = self.taken.load(order::observe());
        (self.out.produced.load(order::observe()) - taken) as usize
    }

    /// What the reader knows of already.
    fn known(&self, reading: &Reading) -> usize {
        reading.produced_seen.wrapping_sub(own(self.taken) as u32) as usize
    }

    /// How much of `wished` is to be taken, as [`recv_known`](Pipe::recv_known) has it.
    fn known_of(&self, reading: &Reading, wished: usize, look: impl FnOnce()) -> usize {
        match self.known(reading) {
            0 => {
                look();
                wished
            }
            known if known < wished && own(self.taken) > 0 => wished,
            known => known.min(wished),
        }
    }

    fn read(&self, reading: &mut Reading, out: &mut [u8]) -> usize {
        let mut n = 0;
        while n < out.len()
            && let Some((block, offset, len)) = self.front(reading)
        {
            let len = len.min((out.len() - n) as u32);
            // SAFETY: we are the reader.
            out[n..n + len as usize].copy_from_slice(unsafe { self.bytes((block, offset, len)) });
            self.advance(reading, len);
            n += len as usize;
        }
        n
    }

    fn peek(&self, reading: &mut Reading, out: &mut [u8]) -> usize {
        let Some((mut block, mut offset, _)) = self.front(reading) else { return 0 };
        // What `front` knew of may be less than there is.
        let produced = self.out.produced.load(order::observe()) as u32;
        let at = own(self.taken) as u32;
        let waiting = produced.wrapping_sub(at) as usize;
        // Before the first byte is taken it is not remembered: the first `recv_known` takes as little as is known.
        reading.produced_seen = if own(self.taken) == 0 { at } else { produced };
        let mut len = (self.pool.size(block) - offset).min(waiting as u32);
        let mut n = 0;
        loop {
            let take = (len as usize).min(out.len() - n);
            // SAFETY: we are the reader; below `produced`, and in blocks that only we give back.
            out[n..n + take].copy_from_slice(unsafe { self.bytes((block, offset, take as u32)) });
            n += take;
            if n == out.len() || n == waiting {
                return n;
            }
            block = BlockId(self.pool.next(block).load(Relaxed));
            offset = 0;
            len = self.pool.size(block).min((waiting - n) as u32);
        }
    }

    /// The lane, as writer, takes the last block back if everything is read.
    fn retire(&self) {
        let hold = self.out.hold.load(Relaxed);
        let empty = self.taken.load(order::observe()) == own(&self.out.produced);
        if hold != NONE && empty {
            self.out.hold.store(NONE, Relaxed);
            self.pool.give(BlockId(hold as u32 - 1));
        }
    }

    /// The lane, as reader, takes the last block back if everything is read and nobody is writing.
    fn reclaim(&self) {
        let hold = self.out.hold.load(order::observe());
        // Not as one's own: a `KeptEnd` may be on another thread, and what it looked at comes before the block is another's.
        let taken = self.taken.load(order::observe());
        if hold == NONE || hold == BUSY || self.out.produced.load(order::observe()) != taken {
            return;
        }
        // AcqRel is more than is needed by itself: the look at `hold` has observed the writer, and the pool hands over what we did.
        if self.out.hold.compare_exchange(hold, NONE, order::exchange(), Relaxed).is_ok() {
            self.pool.give(BlockId(hold as u32 - 1));
        }
    }

    /// Gives every block back; both sides are gone.
    fn clear(&self, reading: &mut Reading) {
        while let Some((_, _, len)) = self.front(reading) {
            self.advance(reading, len);
        }
        self.reclaim();
    }
}

#[repr(C, align(64))]
struct AppSide<S, K, L> {
    out: Out,
    taken: AtomicU64,
    next: AtomicPtr<Pipe<S, K, L>>,
    said: S,
    holders: AtomicU32,
    /// How far behind the beginning of its memory it [lies](lined).
    behind: u8,
    // A line further: what the lane never looks at.
    own: Own<K>,
}

/// What the application's threads have among themselves.
#[repr(C, align(64))]
struct Own<K> {
    writing: Mutex<Writing>,
    reading: Mutex<Reading>,
    kept: K,
}

#[repr(C, align(64))]
struct LaneSide<L> {
    out: Out,
    taken: AtomicU64,
    writing: UnsafeCell<Writing>,
    reading: UnsafeCell<Reading>,
    place: AtomicU32,
    // A line further: what the application looks at in every call, and what changes only when something happens.
    pool: Arc<BlockPool>,
    /// The most that any limit can be, and that of each direction.
    most: u32,
    to_lane_limit: AtomicU32,
    to_app_limit: AtomicU32,
    said: L,
}

/// A conversation, as both sides see it. Can be on a [wake list](crate::wake).
#[repr(C)]
pub struct Pipe<S, K, L> {
    app: AppSide<S, K, L>,
    lane: LaneSide<L>,
}

// SAFETY: of the fields only the two cells are not shared by themselves; they are the lane's, see `LaneEnd`.
unsafe impl<S: Send + Sync, K: Send + Sync, L: Send + Sync> Sync for Pipe<S, K, L> {}
// SAFETY: as above, and there is no thread affinity.
unsafe impl<S: Send + Sync, K: Send + Sync, L: Send + Sync> Send for Pipe<S, K, L> {}

/// A conversation with at most `limit` bytes waiting in each direction, or fewer, if that is [said](Pipe::set_send_limit). `said` is what the application's threads say to the lane
/// beside the bytes, on the line of their indices; `kept` what they keep among themselves; `lane` what the lane says.
///
/// # Panics
/// If `limit` is 0 or more than 1 GiB.
pub fn pipe<S, K, L>(
    pool: &Arc<BlockPool>,
    limit: u32,
    said: S,
    kept: K,
    lane: L,
) -> (AppEnd<S, K, L>, LaneEnd<S, K, L>) {
    assert!((1..=1 << 30).contains(&limit), "a direction holds 1 byte to 1 GiB; {limit} were asked for");
    let (at, behind) = lined::place();
    let pipe = Pipe {
        app: AppSide {
            out: Out::new(),
            taken: AtomicU64::new(0),
            next: AtomicPtr::new(ptr::null_mut()),
            said,
            holders: AtomicU32::new(1),
            behind,
            own: Own { writing: Mutex::default(), reading: Mutex::default(), kept },
        },
        lane: LaneSide {
            out: Out::new(),
            taken: AtomicU64::new(0),
            writing: UnsafeCell::new(Writing::default()),
            reading: UnsafeCell::new(Reading::default()),
            place: AtomicU32::new(0),
            pool: pool.clone(),
            most: limit,
            to_lane_limit: AtomicU32::new(limit),
            to_app_limit: AtomicU32::new(limit),
            said: lane,
        },
    };
    pipe.app.out.flags.set(FRESH);
    // SAFETY: the place is for a pipe, and nobody else has it.
    unsafe { at.write(pipe) };
    let lane = LaneEnd::new(at);
    (lane.share(), lane)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whoever panicked did so in a copy into its own buffer, before anything here was changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S, K, L> Pipe<S, K, L> {
    fn to_lane(&self) -> Direction<'_> {
        let lane = &self.lane;
        let limit = lane.to_lane_limit.load(Relaxed);
        Direction { out: &self.app.out, taken: &lane.taken, pool: &lane.pool, limit, writer_lends: false }
    }

    fn to_app(&self) -> Direction<'_> {
        let lane = &self.lane;
        let limit = lane.to_app_limit.load(Relaxed);
        Direction { out: &lane.out, taken: &self.app.taken, pool: &lane.pool, limit, writer_lends: true }
    }

    /// Where the application remembers how far it has written.
    fn writing(&self) -> MutexGuard<'_, Writing> {
        if self.app.out.flags.get(FRESH) != 0 {
            self.begin(Shown::default());
        }
        lock(&self.app.own.writing)
    }

    /// The same for reading.
    fn reading(&self) -> MutexGuard<'_, Reading> {
        if self.app.out.flags.get(FRESH) != 0 {
            self.begin(Shown::default());
        }
        lock(&self.app.own.reading)
    }

    /// Forgets what the application's side remembers of an earlier conversation, unless that was done.
    fn begin(&self, shown: Shown) {
        let (mut writing, mut reading) = (lock(&self.app.own.writing), lock(&self.app.own.reading));
        if self.app.out.flags.unset(FRESH) & FRESH != 0 {
            *writing = Writing::default();
            *reading = Reading { produced_seen: shown.bytes, block: shown.block, offset: 0 };
        }
    }

    /// What the lane has said, if nobody has begun to read.
    fn shown(&self) -> Shown {
        match self.lane.out.produced.load(order::observe()) as u32 {
            bytes if bytes > 0 && self.app.out.flags.get(FRESH) != 0 => {
                // The chain began at 0, and none begins anew before that was read.
                Shown { bytes, block: self.lane.out.first.load(Relaxed) }
            }
            _ => Shown::default(),
        }
    }

    /// Appends bytes for the lane; says how many there was room for.
    pub fn send(&self, bytes: &[u8]) -> usize {
        let mut writing = self.writing();
        self.to_lane().write(&mut writing, bytes)
    }

    /// As [`send`](Self::send), of several pieces in a row, with no other thread's bytes between them. `None`: the bytes end where they
    /// end now, says `may_go_on`, which is asked while nobody appends to them and nothing is said [behind](Self::after) them.
    ///
    /// If there is not room for a piece, `tries_again` is asked, while nobody else appends. Who says there that he waits for room, and that he
    /// tries again, finds what room there is by then, or is heard by whoever makes some.
    pub fn send_all_of(
        &self,
        pieces: &[impl std::ops::Deref<Target = [u8]>],
        may_go_on: impl FnOnce() -> bool,
        mut tries_again: impl FnMut() -> bool,
    ) -> Option<usize> {
        let mut writing = self.writing();
        if !may_go_on() {
            return None;
        }
        let mut sent = 0;
        for piece in pieces {
            let piece: &[u8] = piece;
            let mut n = self.to_lane().write(&mut writing, piece);
            if n < piece.len() && tries_again() {
                n += self.to_lane().write(&mut writing, &piece[n..]);
            }
            sent += n;
            if n < piece.len() {
                break;
            }
        }
        Some(sent)
    }

    /// Does something that belongs behind the bytes sent so far: `act` is given their number, and no byte is appended
    /// meanwhile.
    pub fn after<R>(&self, act: impl FnOnce(u64) -> R) -> R {
        let _writing = self.writing();
        act(own(&self.app.out.produced))
    }

    /// Takes bytes that the lane has sent; says how many.
    pub fn recv(&self, out: &mut [u8]) -> usize {
        let mut reading = self.reading();
        self.to_app().read(&mut reading, out)
    }

    /// As [`recv`](Self::recv), but what was known to be there before is taken without a look at whether there is more, if it fills `out`, or
    /// if it is the first that is taken: it came with the conversation. If nothing was known, `look` is called first.
    pub fn recv_known(&self, out: &mut [u8], look: impl FnOnce()) -> usize {
        let mut reading = self.reading();
        let to_app = self.to_app();
        let most = to_app.known_of(&reading, out.len(), look);
        to_app.read(&mut reading, &mut out[..most])
    }

    /// As [`recv_known`](Self::recv_known), into several pieces in a row, and no other thread has bytes that come between theirs.
    pub fn recv_known_into(&self, pieces: &mut [impl std::ops::DerefMut<Target = [u8]>], look: impl FnOnce()) -> usize {
        let mut reading = self.reading();
        let to_app = self.to_app();
        let most = to_app.known_of(&reading, pieces.iter().map(|piece| piece.len()).sum(), look);
        let mut taken = 0;
        for piece in pieces {
            let wished = piece.len().min(most - taken);
            let n = to_app.read(&mut reading, &mut piece[..wished]);
            taken += n;
            if n < piece.len() {
                break;
            }
        }
        taken
    }

    /// Copies bytes that the lane has sent, and leaves them.
    pub fn peek(&self, out: &mut [u8]) -> usize {
        let mut reading = self.reading();
        self.to_app().peek(&mut reading, out)
    }

    /// Bytes that `recv` would find now.
    #[inline]
    pub fn readable(&self) -> usize {
        self.to_app().waiting()
    }

    /// Bytes for which `send` would find room now, if the pool has blocks.
    #[inline]
    pub fn writable(&self) -> usize {
        // There may seem to wait more than may: what was taken and sent again while we looked, or the limit was lowered.
        self.send_limit().saturating_sub(self.unsent())
    }

    /// Bytes that the application has sent and that were not given back.
    #[inline]
    pub fn unsent(&self) -> usize {
        self.to_lane().waiting()
    }

    /// The most bytes of the application's that can wait.
    #[inline]
    pub fn send_limit(&self) -> usize {
        self.lane.to_lane_limit.load(Relaxed) as usize
    }

    /// The most bytes for the application that can wait.
    #[inline]
    pub fn receive_limit(&self) -> usize {
        self.lane.to_app_limit.load(Relaxed) as usize
    }

    /// Changes the former, to one byte at least and what it was [made](pipe) with at the most. What waits beyond it stays. Whoever waits for room is the
    /// caller's to wake.
    pub fn set_send_limit(&self, limit: usize) {
        self.lane.to_lane_limit.store(self.bounded(limit), Relaxed);
    }

    /// The same of the latter.
    pub fn set_receive_limit(&self, limit: usize) {
        self.lane.to_app_limit.store(self.bounded(limit), Relaxed);
    }

    fn bounded(&self, limit: usize) -> u32 {
        limit.clamp(1, self.lane.most as usize) as u32
    }

    /// What the application's threads say to the lane beside the bytes.
    #[inline]
    pub fn said(&self) -> &S {
        &self.app.said
    }

    /// What the application's threads keep among themselves. The lane has no business there: the line would travel.
    #[inline]
    pub fn app(&self) -> &K {
        &self.app.own.kept
    }

    /// What the lane says beside the bytes.
    #[inline]
    pub fn lane(&self) -> &L {
        &self.lane.said
    }

    /// A word of the lane's, on the line that it writes in every turn.
    #[inline]
    pub fn place(&self) -> &AtomicU32 {
        &self.lane.place
    }

    /// What stands on the two lines of this value that one side writes and the other reads whenever there is something to say, the
    /// application's and the lane's. For counting how often a line travels, while nobody else uses the conversation.
    pub fn lines(&self) -> [u64; 2] {
        let fold = |words: &[u64]| words.iter().fold(1, |sum: u64, word| sum.rotate_left(9) ^ word);
        let out = |out: &Out| {
            let (chain_start, first) = (out.chain_start.load(Relaxed), out.first.load(Relaxed));
            fold(&[
                out.produced.load(Relaxed),
                out.hold.load(Relaxed),
                chain_start,
                first.into(),
                out.flags.word().into(),
            ])
        };
        let app = &self.app;
        let (taken, holders) = (app.taken.load(Relaxed), app.holders.load(Relaxed));
        let first = [out(&app.out), taken, app.next.load(Relaxed).addr() as u64, holders.into()];
        [fold(&first), fold(&[out(&self.lane.out), self.lane.taken.load(Relaxed)])]
    }

    /// What the application waits for.
    #[inline]
    pub fn flags(&self) -> &Flags {
        &self.app.out.flags
    }
}

impl<S: Send + Sync, K: Send + Sync, L: Send + Sync> Linked for Pipe<S, K, L> {
    type Held = AppEnd<S, K, L>;
    #[inline]
    fn flags(&self) -> &Flags {
        &self.app.out.flags
    }
    #[inline]
    fn link(&self) -> &AtomicPtr<Self> {
        &self.app.next
    }
}

impl<S, K, L> Drop for Pipe<S, K, L> {
    fn drop(&mut self) {
        let mut reading = std::mem::take(&mut *self.reading());
        self.to_app().clear(&mut reading);
        self.lane.reading.with_mut(|cell| {
            // SAFETY: nobody else has this value any more.
            let mut reading = unsafe { std::mem::take(&mut *cell) };
            self.to_lane().clear(&mut reading);
        });
    }
}

impl<S, K, L> fmt::Debug for Pipe<S, K, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sent, filled) = (self.app.out.produced.load(Relaxed), self.lane.out.produced.load(Relaxed));
        f.debug_struct("Pipe").field("to_lane", &sent).field("to_app", &filled).finish_non_exhaustive()
    }
}

/// What is said beside the bytes, with the number of bytes that it stands behind.
///
/// An end has a position: it is acted upon when everything before it has been taken, and not when it is seen.
pub type Notes<T> = PushList<(u64, T)>;

#[cfg(not(laneway_loom))]
const _: () = {
    use std::mem::offset_of;
    type Sample = Pipe<u64, [u32; 7], [u32; 11]>;
    assert!(size_of::<Sample>() == 256, "the callers' have room for 8, 28 and 44 bytes");
    assert!(offset_of!(Sample, lane) - offset_of!(Sample, app) == 128, "in no pair of lines are both");
    type App = AppSide<u64, [u32; 7], [u32; 11]>;
    assert!(offset_of!(App, own) == 64, "what every send writes for the lane is on one line");
    assert!(offset_of!(LaneSide<[u32; 11]>, pool) == 64, "what every turn writes is on one line");
};
