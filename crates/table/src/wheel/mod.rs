//! Deadlines: a hierarchical timing wheel (Varghese and Lauck 1987) whose entries are keys.
//!
//! One tick is whatever the caller says. Four levels of 256 slots: a slot of level 0 is one tick wide, of level 1 256
//! ticks, and so on; together they reach 2³² − 1 ticks ahead. To arm is to put eight bytes into a slot. When time
//! reaches a slot of an upper level, its entries are dealt out to lower ones, so an entry is moved at most three times.
//!
//! # There is no cancel
//!
//! The owner of a key remembers its true deadline. When an entry expires that is stale (the deadline was moved, or the
//! owner is gone), he ignores it or arms again. So the common case, a deadline that is pushed back again and again,
//! costs the wheel nothing at all; the rule that keeps the wheel small is *one entry per key*: arm only if no entry
//! would expire in time.
//!
//! ```
//! use laneway_table::Wheel;
//!
//! let mut wheel = Wheel::new(/* now_tick= */ 100);
//! let mut deadline = 150; // of key 7, as its owner knows it
//! wheel.arm(7, deadline);
//! deadline = 400; // pushed back: the wheel is not told
//!
//! let mut rings = Vec::new();
//! for now in [200, 400] {
//!     let mut due = Vec::new();
//!     while wheel.advance(now, /* budget= */ 64, |key, _| due.push(key)) {}
//!     for key in due {
//!         if now < deadline { wheel.arm(key, deadline) } else { rings.push((key, now)) }
//!     }
//! }
//! assert_eq!(rings, [(7, 400)]);
//! ```
//!
//! # Bounds
//!
//! * [`Wheel::advance`] handles at most `budget` entries, dealing out included; what is left waits for the next call, and
//!   time, for the wheel, stands still until then.
//! * A gap of any length with nothing in it is crossed in one step: bitmaps say which slot is next.
//! * Entries lie in nodes of 31 that are shared by all slots and used again: memory is proportional to the entries, plus
//!   a node for each slot in use; in a steady state nothing is allocated, and nothing ever moves.

#[cfg(test)]
mod tests;

use std::fmt;

const LEVELS: usize = 4;
const SLOTS: usize = 256;
const NONE: u32 = u32::MAX;

/// Entries per node: with its two words, four cache lines.
const NODE: usize = 31;
/// Nodes per block of the pool (64 KiB).
const BLOCK: usize = 256;

/// The furthest deadline that fits, in ticks from now.
pub const HORIZON: u64 = u32::MAX as u64;

/// Where entries wait whose time has come but which the budget left over: one list per level, and one for what was
/// armed too late.
const DUE_LISTS: usize = LEVELS + 1;
const ARMED_LATE: usize = LEVELS;

#[derive(Clone, Copy, Default)]
struct Entry {
    key: u32,
    /// The lower half of its tick. It is never more than 2³² − 1 ahead, nor behind, so that is enough.
    tick: u32,
}

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Node {
    next: u32,
    len: u32,
    entries: [Entry; NODE],
}

const _: () = assert!(size_of::<Node>() == 256);

/// Nodes that are handed out and come back; they never move.
struct Pool {
    blocks: Vec<Vec<Node>>,
    vacant: u32,
    fresh: u32,
}

impl Pool {
    #[inline(always)]
    fn at(&mut self, node: u32) -> &mut Node {
        &mut self.blocks[node as usize / BLOCK][node as usize % BLOCK]
    }

    /// An empty node that points to `next`.
    #[inline]
    fn take(&mut self, next: u32) -> u32 {
        if self.vacant != NONE {
            let index = self.vacant;
            let node = self.at(index);
            let vacant = node.next;
            node.next = next;
            node.len = 0;
            self.vacant = vacant;
            return index;
        }
        self.take_fresh(next)
    }

    #[cold]
    fn take_fresh(&mut self, next: u32) -> u32 {
        let index = self.fresh;
        assert_ne!(index, NONE, "a wheel holds fewer than 2^32 nodes");
        if index as usize / BLOCK == self.blocks.len() {
            self.blocks.push(Vec::with_capacity(BLOCK));
        }
        self.blocks[index as usize / BLOCK].push(Node { next, len: 0, entries: [Entry::default(); NODE] });
        self.fresh += 1;
        index
    }

    #[inline]
    fn give_back(&mut self, index: u32) {
        let vacant = self.vacant;
        self.at(index).next = vacant;
        self.vacant = index;
    }

    /// Adds an entry to the list that starts at `head`; returns where it starts now.
    #[inline(always)]
    fn push(&mut self, head: u32, entry: Entry) -> u32 {
        if head != NONE {
            let node = self.at(head);
            if let Some(place) = node.entries.get_mut(node.len as usize) {
                *place = entry;
                node.len += 1;
                return head;
            }
        }
        let new = self.take(head);
        let node = self.at(new);
        node.entries[0] = entry;
        node.len = 1;
        new
    }
}

/// One level: its slots' lists, and which of them are not empty.
struct Level {
    heads: [u32; SLOTS],
    used: [u64; SLOTS / 64],
}

impl Level {
    /// How far from slot `from` the next non-empty slot is, going round: 1 to 256 (`from` itself comes last).
    #[inline]
    fn distance_to_next(&self, from: usize) -> Option<u64> {
        let start = (from + 1) % SLOTS;
        let (word, bit) = (start / 64, start % 64);
        let here = self.used[word] >> bit;
        if here != 0 {
            return Some(1 + u64::from(here.trailing_zeros()));
        }
        for i in 1..=self.used.len() {
            let bits = self.used[(word + i) % self.used.len()];
            if bits != 0 {
                let slot = 64 * ((word + i) % self.used.len()) + bits.trailing_zeros() as usize;
                return Some(1 + ((slot + SLOTS - start) % SLOTS) as u64);
            }
        }
        None
    }
}

/// A timing wheel. See the [module](self).
pub struct Wheel {
    /// The tick that was reached: what is due then has been moved to `due`, and what lies beyond is in the levels.
    now: u64,
    len: usize,
    due: [u32; DUE_LISTS],
    levels: Box<[Level; LEVELS]>,
    pool: Pool,
}

impl Wheel {
    /// A wheel that starts at `now_tick`.
    pub fn new(now_tick: u64) -> Self {
        let level = || Level { heads: [NONE; SLOTS], used: [0; SLOTS / 64] };
        Self {
            now: now_tick,
            len: 0,
            due: [NONE; DUE_LISTS],
            levels: Box::new([level(), level(), level(), level()]),
            pool: Pool { blocks: Vec::new(), vacant: NONE, fresh: 0 },
        }
    }

    /// Number of entries, stale ones included.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// No entries.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The tick that the wheel has reached: behind the caller's clock while [`advance`](Self::advance) leaves work over.
    #[inline]
    pub fn now_tick(&self) -> u64 {
        self.now
    }

    /// Memory that the wheel has reserved.
    pub fn bytes(&self) -> usize {
        self.pool.blocks.len() * BLOCK * size_of::<Node>()
            + size_of::<[Level; LEVELS]>()
            + self.pool.blocks.capacity() * size_of::<Vec<Node>>()
    }

    /// Lets `key` expire at `at_tick`. In the past: at the next [`advance`](Self::advance), as of now. Beyond the
    /// [`HORIZON`]: there, which is too early, and the owner arms again.
    #[inline]
    pub fn arm(&mut self, key: u32, at_tick: u64) {
        self.len += 1;
        let ahead = at_tick.saturating_sub(self.now).min(HORIZON) as u32;
        let entry = Entry { key, tick: (self.now as u32).wrapping_add(ahead) };
        if ahead == 0 {
            self.due[ARMED_LATE] = self.pool.push(self.due[ARMED_LATE], entry);
        } else {
            self.place(entry, ahead);
        }
    }

    /// Puts an entry that is `ahead` > 0 ticks ahead into its slot.
    #[inline(always)]
    fn place(&mut self, entry: Entry, ahead: u32) {
        // The width of a level's slots is a power of 256, so the level is the number of the highest byte in use.
        let level = ahead.ilog2() as usize / 8;
        let slot = (entry.tick >> (8 * level)) as usize % SLOTS;
        let level = &mut self.levels[level];
        level.used[slot / 64] |= 1 << (slot % 64);
        level.heads[slot] = self.pool.push(level.heads[slot], entry);
    }

    /// Lets time pass until `now_tick` and reports what expires, tick by tick, in no order within a tick: at most
    /// `budget` entries are handled. `true`: some of what is due is left; call again.
    ///
    /// `expired` gets the key and the tick for which it was armed (or the tick at which it was armed, if that was later).
    /// Time does not go backwards: an earlier `now_tick` than the last is as good as the last.
    pub fn advance(&mut self, now_tick: u64, budget: usize, mut expired: impl FnMut(u32, u64)) -> bool {
        let mut budget = budget;
        loop {
            if !self.handle_due(&mut budget, &mut expired) {
                return true;
            }
            match self.next_event() {
                Some(tick) if tick <= now_tick => self.enter(tick),
                _ => {
                    self.now = self.now.max(now_tick);
                    return false;
                }
            }
        }
    }

    /// Expires or deals out what is due; `false` if the budget did not suffice.
    #[inline]
    fn handle_due(&mut self, budget: &mut usize, expired: &mut impl FnMut(u32, u64)) -> bool {
        for list in 0..DUE_LISTS {
            while self.due[list] != NONE {
                let index = self.due[list];
                loop {
                    let node = self.pool.at(index);
                    let Some(last) = node.len.checked_sub(1) else {
                        break;
                    };
                    if *budget == 0 {
                        return false;
                    }
                    *budget -= 1;
                    let entry = node.entries[last as usize];
                    node.len = last;
                    match entry.tick.wrapping_sub(self.now as u32) {
                        0 => {
                            self.len -= 1;
                            expired(entry.key, self.now);
                        }
                        ahead => self.place(entry, ahead),
                    }
                }
                self.due[list] = self.pool.at(index).next;
                self.pool.give_back(index);
            }
        }
        true
    }

    /// The next tick at which a slot must be emptied.
    #[inline]
    fn next_event(&self) -> Option<u64> {
        let mut next = None;
        for (level, slots) in self.levels.iter().enumerate() {
            let shift = 8 * level;
            let here = self.now >> shift;
            if let Some(distance) = slots.distance_to_next(here as usize % SLOTS) {
                let tick = (here + distance) << shift;
                next = Some(next.map_or(tick, |next: u64| next.min(tick)));
            }
        }
        next
    }

    /// Moves on to `tick` and makes due what its slots hold. Nothing is due before.
    #[inline]
    fn enter(&mut self, tick: u64) {
        self.now = tick;
        for level in 0..LEVELS {
            let shift = 8 * level;
            if tick & ((1 << shift) - 1) != 0 {
                break;
            }
            let slot = (tick >> shift) as usize % SLOTS;
            let slots = &mut self.levels[level];
            slots.used[slot / 64] &= !(1 << (slot % 64));
            self.due[level] = std::mem::replace(&mut slots.heads[slot], NONE);
        }
    }

    /// A tick before which nothing expires: `None` if the wheel is empty. It may be early (at that tick, entries are
    /// only dealt out), never late. Ask after [`advance`](Self::advance).
    #[inline]
    pub fn next_tick_hint(&self) -> Option<u64> {
        if self.due != [NONE; DUE_LISTS] {
            return Some(self.now);
        }
        self.next_event()
    }
}

impl fmt::Debug for Wheel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wheel")
            .field("now", &self.now)
            .field("len", &self.len)
            .field("next_tick_hint", &self.next_tick_hint())
            .finish_non_exhaustive()
    }
}
