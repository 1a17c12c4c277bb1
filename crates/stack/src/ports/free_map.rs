//! Owns a set of free places that finds the next one in at most four words.
//!
//! Two levels of summary: a bit of `groups` says that a word has a free place, a bit of `top` that a group has. The search for
//! the first place at or after a start reads the start's group; if that has nothing at or after the start's word, `top`, the next
//! group that has, and then the one word that the group names. Within the start's own word it may turn back to a place before
//! the start, which saves the fifth.

/// Words that one map can have: every port, and for each of 128 classes one word that is not full.
pub(super) const WORDS_MAX: usize = 1_024 + 128;

/// The set. See the [module](self).
pub(super) struct FreeMap {
    words: Vec<u64>,
    groups: [u64; WORDS_MAX / 64],
    top: u64,
    free: u32,
}

impl FreeMap {
    /// No place is free. `words` is at most [`WORDS_MAX`].
    pub(super) fn new() -> Self {
        FreeMap { words: Vec::new(), groups: [0; WORDS_MAX / 64], top: 0, free: 0 }
    }

    /// Begins anew with this many words, none of them free.
    pub(super) fn reset(&mut self, words: usize) {
        assert!(words <= WORDS_MAX, "65,536 ports in 128 classes fill at most 1,152 words, not {words}");
        self.words.clear();
        self.words.resize(words, 0);
        self.groups = [0; WORDS_MAX / 64];
        (self.top, self.free) = (0, 0);
    }

    /// Makes the first `places` from a word on free: 64 for each word, then the rest.
    pub(super) fn fill(&mut self, mut word: usize, mut places: usize) {
        while places > 0 {
            let here = places.min(64);
            let bits = if here == 64 { u64::MAX } else { (1 << here) - 1 };
            self.free += (bits & !self.words[word]).count_ones();
            self.words[word] |= bits;
            self.groups[word / 64] |= 1 << (word % 64);
            self.top |= 1 << (word / 64);
            places -= here;
            word += 1;
        }
    }

    /// Places that are free.
    #[cfg(test)]
    pub(super) fn free(&self) -> usize {
        self.free as usize
    }

    #[cfg(test)]
    pub(super) fn is_free(&self, place: usize) -> bool {
        self.words[place / 64] >> (place % 64) & 1 != 0
    }

    /// Frees a place.
    #[inline]
    pub(super) fn set(&mut self, place: usize) {
        let word = place / 64;
        let bit = 1 << (place % 64);
        self.free += u32::from(self.words[word] & bit == 0);
        self.words[word] |= bit;
        self.groups[word / 64] |= 1 << (word % 64);
        self.top |= 1 << (word / 64);
    }

    /// Takes a place.
    #[inline]
    pub(super) fn clear(&mut self, place: usize) {
        let word = place / 64;
        let bit = 1 << (place % 64);
        self.free -= u32::from(self.words[word] & bit != 0);
        self.words[word] &= !bit;
        if self.words[word] == 0 {
            let group = word / 64;
            self.groups[group] &= !(1 << (word % 64));
            if self.groups[group] == 0 {
                self.top &= !(1 << group);
            }
        }
    }

    /// The first free place at or after `start`, turning over at the end; `read` counts the words looked at, at most four.
    #[inline]
    pub(super) fn find(&self, start: usize, read: &mut u64) -> Option<usize> {
        let (word, group) = (start / 64, start / 4_096);
        *read += 1;
        let here = self.groups[group] & u64::MAX << (word % 64);
        let word = if here != 0 {
            let next = group * 64 + here.trailing_zeros() as usize;
            if next == word {
                *read += 1;
                let bits = self.words[word];
                let later = bits & u64::MAX << (start % 64);
                let bits = if later != 0 { later } else { bits };
                return Some(word * 64 + bits.trailing_zeros() as usize);
            }
            next
        } else {
            *read += 1;
            // The shift is at most 18.
            let later = self.top & u64::MAX << (group + 1);
            let groups = if later != 0 { later } else { self.top };
            if groups == 0 {
                return None;
            }
            let group = groups.trailing_zeros() as usize;
            *read += 1;
            group * 64 + self.groups[group].trailing_zeros() as usize
        };
        *read += 1;
        Some(word * 64 + self.words[word].trailing_zeros() as usize)
    }

    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.words.capacity() * 8
    }
}
