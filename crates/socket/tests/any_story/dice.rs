//! Owns chance: a seed is one row of numbers.

pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        // The steps between seeds are not those within a row, or neighbours would have the same row.
        Dice(mix(seed))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `n`, which is not 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
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

/// SplitMix64's.
fn mix(z: u64) -> u64 {
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}
