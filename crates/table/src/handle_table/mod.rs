//! Hash to handle: a table that knows neither keys nor values.
//!
//! The caller keeps the keys, beside the values, in whatever the handles stand for; the table keeps ten tagged handles
//! per 64-byte bucket. A look-up reads one line of the table, and the line of the one entity that it was for. The
//! design is that of F14 (Facebook's hash table) with linear probing over whole buckets:
//!
//! * An entry lives in its *home* bucket, or, if that is full, in the next one with room.
//! * Each full bucket that it passed counts it in `overflow`; when the entry goes, the counts go down again. So a search
//!   ends at the first bucket with `overflow == 0`, there are no tombstones, and churn never degrades the table.
//! * An overflow count that reaches 65535 stays there; from then on searches pass that bucket, which is slower and right.
//!
//! # Load and probe length
//!
//! At most four fifths of the slots are in use. With a good hash the home bucket then overflows for about two buckets
//! in seven, at the fullest moment, and a search reads 1.3 lines on average; a table just grown is half as full, and
//! reads 1.01. (Three quarters would make that one in seven, and a million entries half as large again.) A search never reads more buckets than there are. Whoever can choose hashes can make all of them collide,
//! and each search linear in the number of his entries: so the hash must be keyed, with a key that he does not know.
//!
//! # Growth
//!
//! A table that is full enough gets a second generation, of twice the size, and *no entry moves*: new ones go to the
//! new generation, searches ask the new and then the old, and [`HandleTable::maintain`] drains the old one, so many
//! entries per call. If the caller inserts faster than it drains, a third generation begins, and so on: nothing is ever
//! lost and nothing ever happens in one go; the price is one more line per search and generation, of which there are
//! never more than the logarithm of the size.

#[cfg(test)]
mod tests;

use crate::bucket::{Bucket, Buckets, SLOTS, tag_of};
use laneway_sync::prefetch::prefetch_line;
use std::fmt;

/// The handle that no entry may have.
pub const NONE: u32 = u32::MAX;

/// Hash to handle. See the [module](self).
pub struct HandleTable {
    /// Where new entries go.
    newest: Generation,
    /// Generations that are being drained, oldest first. Nearly always empty.
    older: Vec<Generation>,
    /// The bucket of the oldest generation at which draining goes on.
    drained_to: usize,
    len: usize,
}

impl HandleTable {
    /// Room for `entries` without growth.
    pub fn with_capacity(entries: usize) -> Self {
        Self { newest: Generation::with_limit(entries), older: Vec::new(), drained_to: 0, len: 0 }
    }

    /// Number of entries.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// No entries.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of entries that fit before the table grows.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.newest.limit
    }

    /// Memory that the table has reserved. The operating system hands it out as it is touched.
    pub fn bytes(&self) -> usize {
        self.newest.buckets.bytes()
            + self.older.iter().map(|g| g.buckets.bytes()).sum::<usize>()
            + self.older.capacity() * size_of::<Generation>()
    }

    /// Entries that wait to be moved to the newest generation: [`maintain`](Self::maintain) has work.
    pub fn backlog(&self) -> usize {
        self.len - self.newest.len
    }

    /// Asks for the line that [`find`](Self::find) will read.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        prefetch_line(self.newest.buckets.address(hash as usize));
        if !self.older.is_empty() {
            self.prefetch_older(hash);
        }
    }

    #[cold]
    fn prefetch_older(&self, hash: u64) {
        for generation in &self.older {
            prefetch_line(generation.buckets.address(hash as usize));
        }
    }

    /// The first handle whose tag matches, unverified: good enough to prefetch what it stands for.
    #[inline(always)]
    pub fn candidate(&self, hash: u64) -> Option<u32> {
        let found = self.newest.candidate(hash);
        if found.is_some() || self.older.is_empty() {
            return found;
        }
        self.candidate_older(hash)
    }

    #[cold]
    fn candidate_older(&self, hash: u64) -> Option<u32> {
        self.older.iter().rev().find_map(|g| g.candidate(hash))
    }

    /// The handle with this hash of which `is` says that it is the one.
    #[inline]
    pub fn find(&self, hash: u64, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        let found = self.newest.find(hash, &mut is);
        if found.is_some() || self.older.is_empty() {
            return found;
        }
        self.find_older(hash, &mut is)
    }

    #[cold]
    fn find_older(&self, hash: u64, is: &mut impl FnMut(u32) -> bool) -> Option<u32> {
        self.older.iter().rev().find_map(|g| g.find(hash, is))
    }

    /// Adds an entry. The caller has made sure that its key is not there yet.
    ///
    /// # Panics
    /// If `handle` is [`NONE`].
    #[inline]
    pub fn insert(&mut self, hash: u64, handle: u32) {
        assert_ne!(handle, NONE, "this handle is reserved: it means `none`");
        if self.len >= self.newest.limit {
            self.grow();
        }
        self.newest.insert(hash, handle);
        self.len += 1;
    }

    /// Takes the entry out. `false`: there is no such entry.
    #[inline]
    pub fn remove(&mut self, hash: u64, handle: u32) -> bool {
        let removed = self.newest.remove(hash, handle) || self.remove_older(hash, handle);
        self.len -= usize::from(removed);
        removed
    }

    /// Gives the entry another handle, in its place. `false`: there is no such entry.
    ///
    /// # Panics
    /// If `new` is [`NONE`].
    #[inline]
    pub fn replace(&mut self, hash: u64, old: u32, new: u32) -> bool {
        assert_ne!(new, NONE, "this handle is reserved: it means `none`");
        self.newest.replace(hash, old, new) || self.replace_older(hash, old, new)
    }

    #[cold]
    fn remove_older(&mut self, hash: u64, handle: u32) -> bool {
        self.older.iter_mut().rev().any(|g| g.remove(hash, handle))
    }

    #[cold]
    fn replace_older(&mut self, hash: u64, old: u32, new: u32) -> bool {
        self.older.iter_mut().rev().any(|g| g.replace(hash, old, new))
    }

    /// Moves up to `budget` entries from the oldest generation to the newest, visiting at most as many buckets. Returns
    /// how many moved. Call it every so often (each poll, say); it costs nothing when there is nothing to do.
    ///
    /// `hash_of` must return the hash with which the handle was inserted.
    #[inline]
    pub fn maintain(&mut self, budget: usize, hash_of: impl FnMut(u32) -> u64) -> usize {
        if self.older.is_empty() {
            return 0;
        }
        self.drain(budget, hash_of)
    }

    #[cold]
    fn drain(&mut self, budget: usize, mut hash_of: impl FnMut(u32) -> u64) -> usize {
        let mut moved = 0;
        for _ in 0..budget {
            let Some(oldest) = self.older.first_mut() else {
                break;
            };
            while moved < budget
                && let Some(slot) = oldest.buckets.at(self.drained_to).occupied().first()
            {
                let handle = oldest.buckets.at(self.drained_to).handle(slot);
                let hash = hash_of(handle);
                oldest.vacate(hash, self.drained_to, slot);
                self.newest.insert(hash, handle);
                moved += 1;
            }
            if oldest.len == 0 {
                self.older.remove(0);
                self.drained_to = 0;
            } else if moved == budget {
                break;
            } else {
                // Its entries are gone and none comes back: only the newest generation is inserted into.
                self.drained_to += 1;
            }
        }
        moved
    }

    #[cold]
    fn grow(&mut self) {
        let next = Generation::with_buckets(2 * (self.newest.buckets.mask() + 1));
        let full = std::mem::replace(&mut self.newest, next);
        if full.len > 0 {
            self.older.push(full);
        }
    }
}

impl fmt::Debug for HandleTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandleTable")
            .field("len", &self.len)
            .field("capacity", &self.capacity())
            .field("generations", &(1 + self.older.len()))
            .field("backlog", &self.backlog())
            .finish()
    }
}

/// One table of fixed size.
struct Generation {
    buckets: Buckets,
    len: usize,
    /// How many entries it may hold: four fifths of its slots, so there is always a vacant one to be found.
    limit: usize,
}

impl Generation {
    fn with_limit(entries: usize) -> Self {
        Self::with_buckets(entries.saturating_mul(5).div_ceil(4 * SLOTS))
    }

    fn with_buckets(count: usize) -> Self {
        let buckets = Buckets::zeroed(count);
        let limit = (buckets.mask() + 1) * SLOTS * 4 / 5;
        Self { buckets, len: 0, limit }
    }

    #[inline(always)]
    fn candidate(&self, hash: u64) -> Option<u32> {
        let bucket = self.buckets.at(hash as usize);
        let slot = bucket.matching(tag_of(hash)).first()?;
        Some(bucket.handle(slot))
    }

    #[inline(always)]
    fn find(&self, hash: u64, is: &mut impl FnMut(u32) -> bool) -> Option<u32> {
        let tag = tag_of(hash);
        let mut bucket = self.buckets.at(hash as usize);
        let mut passed = 0;
        loop {
            for slot in bucket.matching(tag) {
                let handle = bucket.handle(slot);
                if is(handle) {
                    return Some(handle);
                }
            }
            if !bucket.overflows() {
                return None;
            }
            bucket = self.next(hash, &mut passed)?;
        }
    }

    /// The bucket after the `passed`-th from home; none once all have been seen.
    #[inline]
    fn next(&self, hash: u64, passed: &mut usize) -> Option<&Bucket> {
        *passed += 1;
        (*passed <= self.buckets.mask()).then(|| self.buckets.at((hash as usize).wrapping_add(*passed)))
    }

    /// The bucket (index not yet reduced) and slot of an entry.
    #[inline(always)]
    fn locate(&self, hash: u64, handle: u32) -> Option<(usize, usize)> {
        let tag = tag_of(hash);
        let mut at = hash as usize;
        let mut passed = 0;
        loop {
            let bucket = self.buckets.at(at);
            for slot in bucket.matching(tag) {
                if bucket.handle(slot) == handle {
                    return Some((at, slot));
                }
            }
            // Nearly always it was at home, and nothing was asked before.
            if !bucket.overflows() || passed == self.buckets.mask() {
                return None;
            }
            passed += 1;
            at = at.wrapping_add(1);
        }
    }

    #[inline(always)]
    fn insert(&mut self, hash: u64, handle: u32) {
        let tag = tag_of(hash);
        let mut at = hash as usize;
        let mut passed = 0;
        loop {
            let bucket = self.buckets.at_mut(at);
            if let Some(slot) = bucket.vacant().first() {
                bucket.fill(slot, tag, handle);
                self.len += 1;
                return;
            }
            bucket.count_passed();
            assert!(passed < self.buckets.mask(), "a generation is never more than four fifths full");
            passed += 1;
            at = at.wrapping_add(1);
        }
    }

    #[inline]
    fn remove(&mut self, hash: u64, handle: u32) -> bool {
        let Some((at, slot)) = self.locate(hash, handle) else {
            return false;
        };
        self.vacate(hash, at, slot);
        true
    }

    /// Empties the slot, and takes its entry off the counts of the buckets between its home and it.
    #[inline(always)]
    fn vacate(&mut self, hash: u64, at: usize, slot: usize) {
        self.buckets.at_mut(at).clear(slot);
        self.len -= 1;
        let distance = at.wrapping_sub(hash as usize) & self.buckets.mask();
        for passed in 0..distance {
            self.buckets.at_mut((hash as usize).wrapping_add(passed)).uncount_passed();
        }
    }

    #[inline]
    fn replace(&mut self, hash: u64, old: u32, new: u32) -> bool {
        let Some((at, slot)) = self.locate(hash, old) else {
            return false;
        };
        self.buckets.at_mut(at).set_handle(slot, new);
        true
    }
}
