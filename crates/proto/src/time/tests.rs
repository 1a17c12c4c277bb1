use super::*;
use proptest::prelude::*;

/// A century, in microseconds.
const CENTURY: u64 = 100 * 366 * 24 * 3_600 * 1_000_000;

proptest! {
    #[test]
    fn milliseconds_are_whole_ones_for_centuries(ms in 0..5 * CENTURY / 1_000, us in 0..1_000u64) {
        prop_assert_eq!(Instant::from_us(ms * 1_000 + us).as_ms(), ms);
    }
}

#[test]
fn never_comes_after_every_millisecond() {
    assert_eq!(Instant::NEVER.as_ms(), u64::MAX / 1_000);
}
