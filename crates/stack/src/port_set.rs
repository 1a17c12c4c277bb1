//! Owns a set of ports: a bit for each of the 65,536.

/// A set of ports.
#[derive(Clone, PartialEq, Eq)]
pub struct PortSet(Box<[u64; 1_024]>);

impl PortSet {
    /// None.
    pub fn new() -> Self {
        PortSet(Box::new([0; 1_024]))
    }

    /// Adds one.
    pub fn insert(&mut self, port: u16) {
        self.0[usize::from(port >> 6)] |= 1 << (port & 63);
    }

    /// Whether it is in the set.
    pub fn contains(&self, port: u16) -> bool {
        self.0[usize::from(port >> 6)] & 1 << (port & 63) != 0
    }

    /// Adds all of another set.
    pub fn merge(&mut self, other: &PortSet) {
        for (word, more) in self.0.iter_mut().zip(other.0.iter()) {
            *word |= more;
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }
}

impl Default for PortSet {
    fn default() -> Self {
        PortSet::new()
    }
}

impl std::fmt::Debug for PortSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PortSet({} ports)", self.len())
    }
}

#[cfg(test)]
mod tests;
