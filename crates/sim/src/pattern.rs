//! Owns what applications say to each other: bytes that tell where they belong.
//!
//! Each direction of each conversation reads one long table of random bytes from a place of its own, so any byte that is
//! lost, doubled, moved or mixed up with another conversation's is seen at once, and comparing costs a `memcmp`.

use crate::dice::Dice;

/// A prime, so that no segment size divides it.
const PERIOD: usize = 65_521;
/// The longest slice that can be had in one piece.
pub const SLICE_MAX: usize = 65_536;

/// The table; the same in every world.
pub struct Pattern(Box<[u8]>);

impl Default for Pattern {
    fn default() -> Self {
        let mut dice = Dice::new(0, "pattern");
        let mut table: Vec<u8> = (0..PERIOD).map(|_| dice.next() as u8).collect();
        while table.len() < PERIOD + SLICE_MAX {
            let more = (PERIOD + SLICE_MAX - table.len()).min(PERIOD);
            table.extend_from_within(..more);
        }
        Pattern(table.into_boxed_slice())
    }
}

impl Pattern {
    /// At most `len` bytes of stream `key` from `offset`.
    pub fn at(&self, key: u32, offset: u64, len: u64) -> &[u8] {
        let start = (u64::from(key).wrapping_add(offset) % PERIOD as u64) as usize;
        &self.0[start..start + (len as usize).min(SLICE_MAX)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_has_no_seams() {
        let pattern = Pattern::default();
        let whole: Vec<u8> = pattern.at(7, 65_000, 2_000).to_vec();
        let parts: Vec<u8> = (0..2_000).map(|i| pattern.at(7, 65_000 + i, 1)[0]).collect();
        assert_eq!(whole, parts);
        assert_ne!(pattern.at(7, 0, 64), pattern.at(8, 0, 64));
        assert_ne!(pattern.at(7, 0, 64), pattern.at(7, 1, 64));
    }
}
