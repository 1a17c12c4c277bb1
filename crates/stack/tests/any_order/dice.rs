//! Owns chance: what is drawn for the plan, and what for the acts, does not change the other.

use laneway_stack::entropy::Entropy;

pub struct Dice(Entropy);

impl Dice {
    pub fn new(seed: u64, purpose: u64) -> Dice {
        Dice(Entropy::from_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ purpose << 56))
    }

    /// A number below `n`, which is not 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.0.next_u64() % n as u64) as usize
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// One of them.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}
