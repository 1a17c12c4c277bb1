//! Owns the order in which connections that something happened to have their turn at the end of a poll.

/// Connections by the index of their slot, each once: whoever adds one marks its slot.
///
/// Mostly all of them have had their turn when the poll ends; so this is a list that is walked and then begun anew, and not a ring.
#[derive(Default)]
pub(crate) struct Turns {
    list: Vec<u32>,
    /// The next one's place. Those before it have had theirs.
    next: usize,
}

impl Turns {
    /// One more, behind the others.
    #[inline]
    pub(crate) fn add(&mut self, index: u32) {
        self.list.push(index);
    }

    /// How many have not had their turn.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.list.len() - self.next
    }

    /// Whose turn it is.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<u32> {
        let index = *self.list.get(self.next)?;
        self.next += 1;
        Some(index)
    }

    /// The one just taken could do nothing: it is the first in the next poll.
    pub(crate) fn untake(&mut self) {
        self.next -= 1;
    }

    /// The end of the poll: forgets those that have had their turn.
    #[inline]
    pub(crate) fn rest(&mut self) {
        if self.next == self.list.len() {
            self.list.clear();
        } else {
            self.list.drain(..self.next);
        }
        self.next = 0;
    }
}

#[cfg(test)]
mod tests;
