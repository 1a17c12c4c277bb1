//! Owns the bytes that TCP keeps: a ring per direction, lent from a pool while there is something in it.
//!
//! The heap lays the rings of several lanes side by side, so each has unused bytes before and behind it: no two share a
//! cache line. (Aligned memory would have to be cleared when it is made; this comes cleared, and page by page.)
//!
//! An idle connection holds no ring. Rings come in power-of-two size classes from free lists that are last in, first
//! out, so a short connection writes into memory that is still in the cache, and no heap call is made after warm-up.

/// Size classes: 512 B, then times four.
const CLASSES: usize = 8;
const SMALLEST: usize = 512;

/// Unused bytes at either end of a ring's memory: with them it touches no line that others touch.
const APART: usize = 64;
const _: () = assert!((2 * APART).is_power_of_two() && 2 * APART < SMALLEST);

/// The largest ring: 8 MiB.
pub const LARGEST: usize = SMALLEST << (2 * (CLASSES - 1));

const fn class_bytes(class: usize) -> usize {
    SMALLEST << (2 * class)
}

#[inline(never)]
fn class_of(bytes: usize) -> Option<usize> {
    // Each class is two binary digits longer than the one before it.
    let digits = usize::BITS - (bytes.saturating_sub(1) / SMALLEST).leading_zeros();
    let class = digits.div_ceil(2) as usize;
    (class < CLASSES).then_some(class)
}

/// Free rings by size, and how many bytes are out. `lane_mem` of one lane.
#[derive(Debug)]
pub struct BufferPool {
    free: [Vec<Box<[u8]>>; CLASSES],
    lent: usize,
    quota: usize,
    kept: usize,
}

impl BufferPool {
    /// A pool that lends at most `quota` bytes at a time.
    pub fn new(quota: usize) -> Self {
        BufferPool { free: Default::default(), lent: 0, quota, kept: 0 }
    }

    /// Bytes lent now.
    pub fn lent(&self) -> usize {
        self.lent
    }

    /// Bytes kept on free lists.
    pub fn kept(&self) -> usize {
        self.kept
    }

    /// Whether there is anything left to lend.
    #[inline]
    pub fn has_some(&self) -> bool {
        self.lent + SMALLEST <= self.quota
    }

    /// Whether less than a sixteenth of what may be lent is left: hardly anybody who asks for a large ring is given one.
    pub(super) fn is_short(&self) -> bool {
        self.lent > self.quota - self.quota / 16
    }

    /// The bytes of the `n`th ring after the next one of the smallest, if it was lent before: whoever knows that so many will be asked for can
    /// have them brought into the cache meanwhile.
    #[inline]
    pub fn upcoming(&self, n: usize) -> Option<&[u8]> {
        self.free[0].iter().nth_back(n).map(|memory| &memory[APART..])
    }

    /// Whether half of what may be lent is left when a ring for so many bytes is.
    fn can_spare(&self, bytes: usize) -> bool {
        class_of(bytes).is_some_and(|class| self.lent + class_bytes(class) <= self.quota / 2)
    }

    /// The largest ring that it could lend now.
    pub(super) fn largest(&self) -> usize {
        let left = self.quota.saturating_sub(self.lent);
        (0..CLASSES).map(class_bytes).rev().find(|size| *size <= left).unwrap_or(0)
    }

    /// The largest ring that it could lend now for text beyond a gap.
    pub(super) fn largest_spare(&self) -> usize {
        (0..CLASSES).map(class_bytes).rev().find(|size| self.can_spare(*size)).unwrap_or(0)
    }

    #[inline]
    fn take(&mut self, bytes: usize) -> Option<Box<[u8]>> {
        let class = if bytes <= SMALLEST { 0 } else { class_of(bytes)? };
        let size = class_bytes(class);
        if self.lent + size > self.quota {
            return None;
        }
        self.lent += size;
        match self.free[class].pop() {
            Some(memory) => {
                self.kept -= size;
                Some(memory)
            }
            None => {
                self.make_room();
                Some(fresh(size))
            }
        }
    }

    /// What is kept of other sizes goes back to the system where it would be more than the quota together with what is lent.
    #[cold]
    #[inline(never)]
    fn make_room(&mut self) {
        for class in (0..CLASSES).rev() {
            while self.lent + self.kept > self.quota && self.free[class].pop().is_some() {
                self.kept -= class_bytes(class);
            }
        }
    }

    #[inline]
    fn give(&mut self, memory: Box<[u8]>) {
        let size = memory.len() - 2 * APART;
        self.lent -= size;
        if size > SMALLEST {
            return self.give_large(memory, size);
        }
        self.kept += size;
        self.free[0].push(memory);
    }

    /// Large rings are returned to the system once a quarter of the quota lies idle.
    #[inline(never)]
    fn give_large(&mut self, memory: Box<[u8]>, size: usize) {
        if self.kept <= self.quota / 4 {
            self.kept += size;
            self.free[class_of(size).unwrap_or(0)].push(memory);
        }
    }
}

#[cold]
#[inline(never)]
fn fresh(size: usize) -> Box<[u8]> {
    vec![0; APART + size + APART].into_boxed_slice()
}

/// A byte ring: `len` bytes in order from `start`, and room behind them for bytes that came too early.
#[derive(Debug, Default)]
pub struct Ring {
    /// Empty, or with [`APART`] at either end.
    memory: Box<[u8]>,
    start: u32,
    len: u32,
}

impl Ring {
    /// Bytes in order.
    #[inline]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// No bytes in order.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Memory is lent to it: something is in it, in order or beyond.
    #[inline]
    pub(super) fn is_lent(&self) -> bool {
        !self.memory.is_empty()
    }

    /// Bytes of memory lent to this ring.
    #[inline]
    pub fn lent(&self) -> usize {
        // None, or a power of two with both ends beside it, which are the bit that is taken away.
        self.memory.len() & !(2 * APART)
    }

    /// The bytes that are oldest, and those behind them as far as the memory goes; nothing of them is looked at. Empty without memory.
    #[inline]
    pub(super) fn memory(&self) -> &[u8] {
        self.memory.get(APART + self.place(0)..).unwrap_or_default()
    }

    #[inline]
    fn place(&self, offset: u32) -> usize {
        // The memory is a power of two, or empty (then nothing is ever placed).
        (self.start.wrapping_add(offset) & (self.lent() as u32).wrapping_sub(1)) as usize
    }

    /// Makes room for `needed` bytes from the start. False, with nothing changed, if the pool has none to lend.
    #[must_use]
    #[inline]
    fn reserve(&mut self, needed: usize, extent: u32, pool: &mut BufferPool) -> bool {
        if needed <= self.lent() {
            return true;
        }
        if self.memory.is_empty() {
            // Nothing to keep: what is written first to a ring lent anew.
            let Some(memory) = pool.take(needed) else { return false };
            self.memory = memory;
            self.start = 0;
            return true;
        }
        self.enlarge(needed, extent, pool)
    }

    #[inline(never)]
    fn enlarge(&mut self, needed: usize, extent: u32, pool: &mut BufferPool) -> bool {
        let Some(mut larger) = pool.take(needed) else { return false };
        // Bytes beyond `len` may be out-of-order text: `extent` says how far they reach.
        let keep = (self.len + extent).min(self.lent() as u32);
        let (a, b) = self.slices(0, keep);
        let (first, second) = larger[APART..].split_at_mut(a.len());
        first.copy_from_slice(a);
        second[..b.len()].copy_from_slice(b);
        pool.give(core::mem::replace(&mut self.memory, larger));
        self.start = 0;
        true
    }

    /// `len` bytes from `offset`, as at most two slices. The range must lie within the lent memory.
    #[inline]
    pub fn slices(&self, offset: u32, len: u32) -> (&[u8], &[u8]) {
        match self.together(offset, len) {
            Some(all) => (all, &[]),
            None => self.slices_around(self.place(offset), len),
        }
    }

    /// `len` bytes from `offset`, within the lent memory, unless the ring begins anew among them.
    #[inline]
    pub fn together(&self, offset: u32, len: u32) -> Option<&[u8]> {
        let (at, len) = (self.place(offset), len as usize);
        if at + len + 2 * APART > self.memory.len() {
            return None;
        }
        self.memory.get(APART + at..APART + at + len)
    }

    /// In two pieces, the second where the ring begins anew.
    #[inline(never)]
    fn slices_around(&self, at: usize, len: u32) -> (&[u8], &[u8]) {
        if len == 0 {
            return (&[], &[]); // there may be no memory
        }
        let first = (self.lent() - at).min(len as usize);
        (&self.memory[APART + at..APART + at + first], &self.memory[APART..APART + len as usize - first])
    }

    /// The bytes in order that lie together at the front.
    #[inline]
    pub fn front(&self) -> &[u8] {
        self.slices(0, self.len).0
    }

    /// Moves bytes so that those in order lie together, and whatever waits beyond them where it did. False: they lay together.
    pub fn straighten(&mut self) -> bool {
        if self.front().len() == self.len as usize {
            return false;
        }
        let at = self.place(0);
        let end = APART + self.lent();
        self.memory[APART..end].rotate_left(at);
        self.start = 0;
        true
    }

    #[inline]
    fn write_at(&mut self, offset: u32, bytes: &[u8]) {
        let at = self.place(offset);
        if at + bytes.len() + 2 * APART > self.memory.len() {
            return self.write_around(at, bytes);
        }
        self.memory[APART + at..APART + at + bytes.len()].copy_from_slice(bytes);
    }

    /// In two pieces, the second where the ring begins anew.
    #[inline(never)]
    fn write_around(&mut self, at: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return; // there may be no memory
        }
        let first = (self.lent() - at).min(bytes.len());
        self.memory[APART + at..APART + at + first].copy_from_slice(&bytes[..first]);
        self.memory[APART..APART + bytes.len() - first].copy_from_slice(&bytes[first..]);
    }

    /// Appends `bytes` in order; false, with nothing changed, if there is no memory. `extent`: how many bytes beyond
    /// the ordered ones hold out-of-order text that must survive a move (0 for a send ring).
    #[must_use]
    #[inline]
    pub fn push(&mut self, bytes: &[u8], extent: u32, pool: &mut BufferPool) -> bool {
        if bytes.is_empty() {
            return true;
        }
        if !self.reserve(self.len as usize + bytes.len(), extent, pool) {
            return false;
        }
        self.write_at(self.len, bytes);
        self.len += bytes.len() as u32;
        true
    }

    /// As [`push`](Self::push), of as many of `bytes` as there is memory for; says how many.
    #[inline]
    pub fn push_some(&mut self, bytes: &[u8], extent: u32, pool: &mut BufferPool) -> usize {
        if self.push(bytes, extent, pool) { bytes.len() } else { self.push_part(bytes, extent, pool) }
    }

    #[cold]
    fn push_part(&mut self, bytes: &[u8], extent: u32, pool: &mut BufferPool) -> usize {
        let most = self.lent().max(pool.largest());
        let part = (most - self.len as usize).min(bytes.len());
        if self.push(&bytes[..part], extent, pool) { part } else { 0 }
    }

    /// Writes `bytes` at `gap` bytes beyond the ordered ones, where they wait for the gap to fill. For that a pool lends no more than half
    /// of what it has: a peer can take much memory so with one byte, and have nobody read it.
    #[must_use]
    pub fn put(&mut self, gap: u32, bytes: &[u8], extent: u32, pool: &mut BufferPool) -> bool {
        let needed = self.len as usize + gap as usize + bytes.len();
        if needed > self.lent() && !pool.can_spare(needed) || !self.reserve(needed, extent, pool) {
            return false;
        }
        self.write_at(self.len + gap, bytes);
        true
    }

    /// `n` bytes that were [`put`](Self::put) are now in order.
    pub fn extend(&mut self, n: u32) {
        debug_assert!((self.len + n) as usize <= self.lent(), "extended over memory that was never lent");
        self.len += n;
    }

    /// Drops `n` bytes from the front of a ring in which nothing waits. The memory stays, for what comes next.
    #[inline]
    pub fn drop_front(&mut self, n: u32) {
        self.len -= n.min(self.len);
        self.start = if self.len == 0 { 0 } else { self.start.wrapping_add(n) };
    }

    /// Drops `n` bytes from the front. With nothing left, in order or waiting, the memory goes back to the pool.
    #[inline]
    pub fn consume(&mut self, n: u32, waiting: bool, pool: &mut BufferPool) {
        let n = n.min(self.len);
        self.start = self.start.wrapping_add(n);
        self.len -= n;
        if self.len == 0 && !waiting {
            self.release(pool);
        }
    }

    /// Gives the memory back.
    #[inline]
    pub fn release(&mut self, pool: &mut BufferPool) {
        if !self.memory.is_empty() {
            pool.give(core::mem::take(&mut self.memory));
        }
        self.start = 0;
        self.len = 0;
    }
}

#[cfg(test)]
mod tests;
