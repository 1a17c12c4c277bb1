//! Owns the unit of time that the protocol core is given: microseconds on one monotonic base.

/// A point in time, in microseconds since the process's monotonic base. `proto` never reads a clock: every
/// function that needs the time takes an `Instant`, so a simulator may supply any.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The base itself.
    pub const ZERO: Instant = Instant(0);
    /// A point after every other: the deadline of a timer that is not armed.
    pub const NEVER: Instant = Instant(u64::MAX);

    /// The point `us` microseconds after the base.
    #[inline]
    pub const fn from_us(us: u64) -> Self {
        Instant(us)
    }

    /// Microseconds since the base.
    #[inline]
    pub const fn as_us(self) -> u64 {
        self.0
    }

    /// Whole milliseconds since the base: the unit of TCP timestamps and of the timer wheel.
    #[inline]
    pub const fn as_ms(self) -> u64 {
        // Exact for the first centuries, and then seldom one too many: a division would ask two shifts more to be exact for ever.
        const RECIPROCAL: u128 = (1 << 64) / 1_000 + 1;
        ((self.0 as u128 * RECIPROCAL) >> 64) as u64
    }

    /// This point plus `us` microseconds, saturating.
    #[inline]
    pub const fn after_us(self, us: u64) -> Self {
        Instant(self.0.saturating_add(us))
    }

    /// Microseconds from `earlier` to this point; 0 if `earlier` is later.
    #[inline]
    pub const fn since_us(self, earlier: Instant) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

#[cfg(test)]
mod tests;
