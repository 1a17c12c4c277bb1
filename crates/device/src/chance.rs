//! Chance by seed: the same seed gives the same run.

/// How often a network mistreats a frame. Each is in parts of a million frames, and independent of the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// The frame disappears.
    pub loss_ppm: u32,
    /// The frame arrives twice.
    pub duplicate_ppm: u32,
    /// The frame arrives after frames that were sent later.
    pub reorder_ppm: u32,
    /// One bit of the frame is flipped.
    pub corrupt_ppm: u32,
    /// A frame whose sender heeds it is marked as by a router with a full queue (ECN, RFC 3168).
    pub mark_ppm: u32,
}

/// What happens to one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fate {
    pub lost: bool,
    pub duplicated: bool,
    pub reordered: bool,
    pub corrupted: bool,
    pub marked: bool,
}

/// SplitMix64: one 64-bit word of state, passes BigCrush, and any seed is a good one. Not for secrets.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Dice(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 if `bound` is 0. The bias is below 2^-32 for the bounds used here.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    fn happens(&mut self, ppm: u32) -> bool {
        self.below(1_000_000) < u64::from(ppm)
    }

    /// Draws for each rate whatever it is, so that switching one on does not change what the others do.
    pub(crate) fn fate(&mut self, rates: &Rates) -> Fate {
        Fate {
            lost: self.happens(rates.loss_ppm),
            duplicated: self.happens(rates.duplicate_ppm),
            reordered: self.happens(rates.reorder_ppm),
            corrupted: self.happens(rates.corrupt_ppm),
            marked: self.happens(rates.mark_ppm),
        }
    }

    /// Flips one bit.
    pub(crate) fn damage(&mut self, bytes: &mut [u8]) {
        let at = self.below(bytes.len() as u64) as usize;
        let bit = self.below(8);
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 1 << bit;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_kept() {
        let mut dice = Dice::new(1);
        let rates =
            Rates { loss_ppm: 100_000, duplicate_ppm: 1_000_000, reorder_ppm: 0, corrupt_ppm: 500_000, mark_ppm: 0 };
        let (mut lost, mut corrupted) = (0, 0);
        for _ in 0..100_000 {
            let fate = dice.fate(&rates);
            assert!(fate.duplicated && !fate.reordered);
            lost += u32::from(fate.lost);
            corrupted += u32::from(fate.corrupted);
        }
        assert!((9_500..10_500).contains(&lost), "{lost}");
        assert!((49_000..51_000).contains(&corrupted), "{corrupted}");
    }

    #[test]
    fn damage_is_one_bit_and_survives_an_empty_frame() {
        let mut dice = Dice::new(2);
        let mut bytes = [0; 10];
        dice.damage(&mut bytes);
        assert_eq!(bytes.iter().map(|b| b.count_ones()).sum::<u32>(), 1);
        dice.damage(&mut []);
    }
}
