//! Handle to value: values that never move, in chunks that are never given back.
//!
//! A value is found with two loads (its chunk, then itself) and one comparison: how many a chunk holds is part of the type. Freed slots
//! are used again last in, first out: the one freed last is the one most likely still in the cache.
//!
//! A slot is an `Option<T>`. Give `T` a niche (an enum, a `bool`, a `NonZero`, a `Box` anywhere in it), or the `Option`
//! costs a word, or a whole line if `T` is aligned to one. Align `T` itself if it should begin on a cache line.

#[cfg(test)]
mod tests;

use laneway_sync::prefetch::{LINE, prefetch_lines};
use std::fmt;
use std::mem;
use std::ops::{Index, IndexMut};

const NONE: u32 = u32::MAX;

/// Bytes of values that stay in the caches of a core by themselves. Whoever asks for their lines ahead only makes the core do so.
const NEAR: usize = 1 << 20;

/// What the slab keeps beside a slot.
#[derive(Clone, Copy)]
struct Side {
    /// How many values have left this slot.
    generation: u32,
    /// The next vacant slot, while this one is vacant.
    next_vacant: u32,
}

impl Side {
    /// The value of the slot `handle` has left it, and `vacant` is the next such slot. The answer is the first.
    #[inline(always)]
    fn vacated(&mut self, vacant: u32, handle: u32) -> u32 {
        self.generation = self.generation.wrapping_add(1);
        self.next_vacant = vacant;
        handle
    }
}

/// In one piece, so that one pointer leads to both.
struct Chunk<T, const ENTRIES: usize> {
    slots: [Option<T>; ENTRIES],
    sides: [Side; ENTRIES],
}

/// Handle to value; it grows by `ENTRIES` at a time, a power of two. See the [module](self).
pub struct Slab<T, const ENTRIES: usize = 256> {
    chunks: Vec<Box<Chunk<T, ENTRIES>>>,
    /// The vacant slot freed last, and so on.
    vacant: u32,
    /// The first slot that was never used.
    fresh: u32,
    len: usize,
}

impl<T, const ENTRIES: usize> Default for Slab<T, ENTRIES> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T, const ENTRIES: usize> Slab<T, ENTRIES> {
    /// log2 of the entries per chunk.
    const SHIFT: u32 = {
        assert!(ENTRIES.is_power_of_two() && ENTRIES <= 1 << 24, "a chunk has a power of two of slots, at most 2^24");
        ENTRIES.trailing_zeros()
    };

    /// An empty slab, without memory yet.
    pub fn new() -> Self {
        Self { chunks: Vec::new(), vacant: NONE, fresh: 0, len: 0 }
    }

    /// Allocates chunks now, so that the slab can hold `entries` without a call to the allocator.
    pub fn reserve(&mut self, entries: usize) {
        while self.chunks.len() << Self::SHIFT < entries {
            self.add_chunk();
        }
    }

    /// Number of values.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// No values.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Memory that the slab has reserved.
    pub fn bytes(&self) -> usize {
        let per_entry = size_of::<Option<T>>() + size_of::<Side>();
        (self.chunks.len() << Self::SHIFT) * per_entry + self.chunks.capacity() * size_of::<Box<Chunk<T, ENTRIES>>>()
    }

    /// Adds a value, and says how to find it. The handle is never `u32::MAX`.
    ///
    /// # Panics
    /// If the slab holds 2³² − 1 values.
    #[inline(always)]
    pub fn insert(&mut self, value: T) -> u32 {
        if self.vacant == NONE {
            self.add_vacant();
        }
        let handle = self.vacant;
        let (at, slot) = Self::split(handle);
        let chunk = &mut *self.chunks[at];
        self.vacant = chunk.sides[slot].next_vacant;
        self.len += 1;
        chunk.slots[slot] = Some(value);
        handle
    }

    /// Adds the value that `make` returns when it is told its own handle; says that, and its [`generation`](Self::generation). A large value
    /// is made where it stays: between its making and that there is nothing that could fail and would have to drop it.
    ///
    /// # Panics
    /// If the slab holds 2³² − 1 values.
    #[inline(always)]
    pub fn insert_with(&mut self, make: impl FnOnce(u32) -> T) -> (u32, u32) {
        if self.vacant == NONE {
            self.add_vacant();
        }
        let handle = self.vacant;
        let (at, slot) = Self::split(handle);
        let chunk = &mut *self.chunks[at];
        let Side { generation, next_vacant: next } = chunk.sides[slot];
        // It is vacant: there is nothing that would have to be dropped first.
        mem::forget(chunk.slots[slot].replace(make(handle)));
        self.vacant = next;
        self.len += 1;
        // Whoever adds one often adds more, and a large one, freed a while ago, comes from far.
        self.prefetch_lines(next, size_of::<T>().div_ceil(LINE));
        (handle, generation)
    }

    /// The first slot that was never used becomes one that can be.
    #[inline(never)]
    fn add_vacant(&mut self) {
        let handle = self.fresh;
        assert_ne!(handle, NONE, "a slab holds fewer than 2^32 values");
        let (at, _) = Self::split(handle);
        if at == self.chunks.len() {
            self.add_chunk();
        }
        self.fresh += 1;
        self.vacant = handle;
    }

    #[cold]
    fn add_chunk(&mut self) {
        let sides = [Side { generation: 0, next_vacant: NONE }; ENTRIES];
        self.chunks.push(Box::new(Chunk { slots: [const { None }; ENTRIES], sides }));
    }

    /// Takes a value out. Its handle will be used again, in a new generation.
    #[inline]
    pub fn remove(&mut self, handle: u32) -> Option<T> {
        let (at, slot) = Self::split(handle);
        let chunk = &mut **self.chunks.get_mut(at)?;
        let value = chunk.slots[slot].take()?;
        (self.vacant, self.len) = (chunk.sides[slot].vacated(self.vacant, handle), self.len - 1);
        Some(value)
    }

    /// Drops a value in its place, without moving it out first. `false`: there was none.
    #[inline]
    pub fn discard(&mut self, handle: u32) -> bool {
        let (at, slot) = Self::split(handle);
        let Some(chunk) = self.chunks.get_mut(at).map(Box::as_mut) else { return false };
        if chunk.slots[slot].is_none() {
            return false;
        }
        chunk.slots[slot] = None;
        (self.vacant, self.len) = (chunk.sides[slot].vacated(self.vacant, handle), self.len - 1);
        true
    }

    /// Shows `last` a value for the last time, if it has one, and then forgets it in its place: it is not dropped. So `last` leaves nothing in
    /// it that would have to be; or says `false`, and it stays. The answer is whether it has gone.
    #[inline(always)]
    pub fn forget_if(&mut self, handle: u32, last: impl FnOnce(&mut T) -> bool) -> bool {
        let (at, slot) = Self::split(handle);
        let Some(chunk) = self.chunks.get_mut(at).map(Box::as_mut) else { return false };
        if !chunk.slots[slot].as_mut().is_some_and(last) {
            return false;
        }
        mem::forget(chunk.slots[slot].take());
        (self.vacant, self.len) = (chunk.sides[slot].vacated(self.vacant, handle), self.len - 1);
        true
    }

    /// The value, if the handle has one.
    #[inline]
    pub fn get(&self, handle: u32) -> Option<&T> {
        let (at, slot) = Self::split(handle);
        self.chunks.get(at)?.slots[slot].as_ref()
    }

    /// The value, to change it, if the handle has one.
    #[inline]
    pub fn get_mut(&mut self, handle: u32) -> Option<&mut T> {
        self.slot_mut(handle)?.as_mut()
    }

    /// The same, if it is still the value that the handle had in that [`generation`](Self::generation).
    #[inline]
    pub fn get_of(&mut self, handle: u32, generation: u32) -> Option<&mut T> {
        let (at, slot) = Self::split(handle);
        let chunk = self.chunks.get_mut(at)?;
        if chunk.sides[slot].generation == generation { chunk.slots[slot].as_mut() } else { None }
    }

    /// The handle has a value, and it is still the one that it had in that [`generation`](Self::generation).
    #[inline]
    pub fn is_of(&self, handle: u32, generation: u32) -> bool {
        self.contains(handle) && self.generation(handle) == generation
    }

    /// No handle as large as this one was ever given out: walks by handle, a few at a time, end here.
    #[inline]
    pub fn end(&self) -> u32 {
        self.fresh
    }

    /// The handle has a value.
    #[inline]
    pub fn contains(&self, handle: u32) -> bool {
        self.get(handle).is_some()
    }

    /// How many values have been removed from this handle so far (modulo 2³²): tells a handle from its reuse.
    #[inline]
    pub fn generation(&self, handle: u32) -> u32 {
        let (at, slot) = Self::split(handle);
        if at < self.chunks.len() { self.chunks[at].sides[slot].generation } else { 0 }
    }

    /// Asks for the lines of a value: the first four at most; if the values are so many that it pays.
    #[inline(always)]
    pub fn prefetch(&self, handle: u32) {
        self.prefetch_lines(handle, size_of::<T>().div_ceil(LINE).clamp(1, 4));
    }

    /// Asks for the first `lines` lines of a value, if the values are so many that it pays.
    #[inline(always)]
    pub fn prefetch_lines(&self, handle: u32, lines: usize) {
        if self.len <= NEAR / size_of::<Option<T>>().max(1) {
            return;
        }
        let (at, slot) = Self::split(handle);
        if let Some(chunk) = self.chunks.get(at) {
            prefetch_lines(chunk.slots.as_ptr().wrapping_add(slot), lines);
        }
    }

    /// All values, by handle.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let slots = self.chunks.iter().flat_map(|chunk| chunk.slots.iter());
        (0..).zip(slots).filter_map(|(handle, slot)| Some((handle, slot.as_ref()?)))
    }

    /// All values, by handle, to change them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        let slots = self.chunks.iter_mut().flat_map(|chunk| chunk.slots.iter_mut());
        (0..).zip(slots).filter_map(|(handle, slot)| Some((handle, slot.as_mut()?)))
    }

    #[inline(always)]
    fn split(handle: u32) -> (usize, usize) {
        ((handle >> Self::SHIFT) as usize, handle as usize % ENTRIES)
    }

    #[inline(always)]
    fn slot_mut(&mut self, handle: u32) -> Option<&mut Option<T>> {
        let (at, slot) = Self::split(handle);
        Some(&mut self.chunks.get_mut(at)?.slots[slot])
    }
}

impl<T, const ENTRIES: usize> Index<u32> for Slab<T, ENTRIES> {
    type Output = T;

    #[inline]
    fn index(&self, handle: u32) -> &T {
        match self.get(handle) {
            Some(value) => value,
            None => no_such_value(handle),
        }
    }
}

impl<T, const ENTRIES: usize> IndexMut<u32> for Slab<T, ENTRIES> {
    #[inline]
    fn index_mut(&mut self, handle: u32) -> &mut T {
        match self.get_mut(handle) {
            Some(value) => value,
            None => no_such_value(handle),
        }
    }
}

#[cold]
#[inline(never)]
fn no_such_value(handle: u32) -> ! {
    panic!("handle {handle} has no value: it was removed, or never given out")
}

impl<T, const ENTRIES: usize> fmt::Debug for Slab<T, ENTRIES> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slab").field("len", &self.len).field("chunks", &self.chunks.len()).finish_non_exhaustive()
    }
}
