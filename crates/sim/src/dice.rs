//! Owns chance: everything random in a world comes from here, and here from the seed.

/// A generator of its own for each purpose, so that what one part of a world draws does not change another's luck.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The generator of `purpose` in the world of `seed`.
    pub fn new(seed: u64, purpose: &str) -> Self {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x4c61_6e65_7761_7921);
        for byte in purpose.bytes() {
            dice.0 ^= u64::from(byte) << 17;
            dice.next();
        }
        dice
    }

    /// The next 64 bits (splitmix64).
    #[allow(clippy::should_implement_trait)] // an iterator that never ends is none
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is not 0.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// A number from `low` to `high`, both possible.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// A number from `low` (at least 1) to `high`, each order of magnitude as likely as the next.
    pub fn magnitude(&mut self, low: u64, high: u64) -> u64 {
        let bits = |n: u64| 64 - n.leading_zeros() as u64;
        let width = self.between(bits(low), bits(high));
        let top = 1u64 << (width - 1);
        self.between(top, top * 2 - 1).clamp(low, high)
    }

    /// True `of_thousand` times in a thousand.
    pub fn chance(&mut self, of_thousand: u64) -> bool {
        self.below(1_000) < of_thousand
    }

    /// One of them.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}
