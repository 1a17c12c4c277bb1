//! Owns the order in which connections that something happened to have their turn at the end of a poll.

/// Unused words at either end of the list: the lines between them are its own.
const APART: usize = 32;
/// Places of a list that begins.
const LEAST: usize = 64;

/// Connections by the index of their slot, each once: whoever adds one marks its slot.
///
/// Mostly all of them have had their turn when the poll ends; so this is a list that is walked and then begun anew, and not a ring. It
/// is written in every poll and mostly short, and the heap lays what is short beside what another lane has: so it begins, and ends, some way
/// inside its memory.
pub(crate) struct Turns {
    list: Vec<u32>,
    /// Behind the last one's place.
    end: usize,
    /// The next one's place. Those before it have had theirs.
    next: usize,
}

impl Default for Turns {
    fn default() -> Self {
        Turns { list: Vec::new(), end: APART, next: APART }
    }
}

impl Turns {
    /// One more, behind the others.
    #[inline(always)]
    pub(crate) fn add(&mut self, index: u32) {
        match self.list.get_mut(self.end) {
            Some(place) => *place = index,
            None => self.grow(index),
        }
        self.end += 1;
    }

    /// Twice as many places, of which this is the next.
    #[cold]
    #[inline(never)]
    fn grow(&mut self, index: u32) {
        let places = (2 * self.list.len()).max(APART + LEAST);
        self.list.reserve_exact(places + APART - self.list.len());
        self.list.resize(places, 0);
        self.list[self.end] = index;
    }

    /// How many have not had their turn.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.end - self.next
    }

    /// Whose turn it is. `None` for the last `later` of them.
    #[inline]
    pub(crate) fn take_before(&mut self, later: usize) -> Option<u32> {
        if self.len() <= later {
            return None;
        }
        let index = *self.list.get(self.next)?;
        self.next += 1;
        Some(index)
    }

    /// The one just taken could do nothing: it is the first in the next poll.
    pub(crate) fn untake(&mut self) {
        self.next -= 1;
    }

    /// The end of the poll: forgets those that have had their turn, and those that are left become the first.
    #[inline]
    pub(crate) fn rest(&mut self) {
        if self.next != self.end {
            self.list.copy_within(self.next..self.end, APART);
        }
        self.end -= self.next - APART;
        self.next = APART;
    }
}

#[cfg(test)]
mod tests;
