//! Owns the order in which connections that something happened to have their turn at the end of a poll.

use laneway_sync::Padded;

/// Indices to a piece of the list.
const PIECE: usize = 32;

/// Connections by the index of their slot, each once: whoever adds one marks its slot.
///
/// Mostly all of them have had their turn when the poll ends; so this is a list that is walked and then begun anew, and not a ring. It
/// is written in every poll and mostly short, and the heap lays what is short beside what another lane has: so its pieces are on lines of
/// their own.
#[derive(Default)]
pub(crate) struct Turns {
    list: Vec<Padded<[u32; PIECE]>>,
    /// Behind the last one's place.
    end: usize,
    /// The next one's place. Those before it have had theirs.
    next: usize,
}

impl Turns {
    /// One more, behind the others.
    #[inline(always)]
    pub(crate) fn add(&mut self, index: u32) {
        match self.list.get_mut(self.end / PIECE) {
            Some(piece) => piece[self.end % PIECE] = index,
            None => self.grow(index),
        }
        self.end += 1;
    }

    /// A piece that begins with this one.
    #[cold]
    #[inline(never)]
    fn grow(&mut self, index: u32) {
        let mut piece = [0; PIECE];
        piece[0] = index;
        self.list.push(Padded(piece));
    }

    #[inline]
    fn put(&mut self, place: usize, index: u32) {
        self.list[place / PIECE][place % PIECE] = index;
    }

    #[inline]
    fn at(&self, place: usize) -> u32 {
        self.list[place / PIECE][place % PIECE]
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
        self.next += 1;
        Some(self.at(self.next - 1))
    }

    /// The one just taken could do nothing: it is the first in the next poll.
    pub(crate) fn untake(&mut self) {
        self.next -= 1;
    }

    /// The end of the poll: forgets those that have had their turn.
    #[inline]
    pub(crate) fn rest(&mut self) {
        if self.next != self.end {
            self.keep();
        }
        self.end -= self.next;
        self.next = 0;
    }

    /// Those that are left become the first.
    fn keep(&mut self) {
        for place in self.next..self.end {
            self.put(place - self.next, self.at(place));
        }
    }
}

#[cfg(test)]
mod tests;
