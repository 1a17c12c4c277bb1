//! Owns chance: a seed is one row of numbers.

use laneway_stack::entropy::Entropy;

pub struct Dice(Entropy);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        // The steps between seeds are not those within a row, or neighbours would have the same row.
        Dice(Entropy::from_seed(Entropy::from_seed(seed).next_u64()))
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

    /// One of them, each as often as its number says.
    pub fn weigh<T: Copy>(&mut self, of: &[(usize, T)]) -> T {
        let mut at = self.below(of.iter().map(|(weight, _)| weight).sum());
        for (weight, one) in of {
            match at.checked_sub(*weight) {
                None => return *one,
                Some(rest) => at = rest,
            }
        }
        unreachable!("it is below their sum")
    }
}
