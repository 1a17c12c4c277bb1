//! Owns time: the only place that asks the machine for it. `sim` supplies its own.

use laneway_proto::time::Instant;

/// Microseconds since the process's monotonic base, the same for every lane.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    base: std::time::Instant,
}

impl Clock {
    /// A clock that starts now, an hour after its zero: arithmetic about the past never meets the beginning.
    pub fn start() -> Self {
        Clock { base: std::time::Instant::now() }
    }

    /// The time.
    #[inline]
    pub fn now(&self) -> Instant {
        Instant::from_us(Self::HEAD_START_US + self.base.elapsed().as_micros() as u64)
    }

    /// Microseconds since 1970, for captures only: it may be set, and then jumps.
    pub fn wall_us() -> u64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(0, |since| since.as_micros() as u64)
    }

    /// The monotonic base lies this far before the start.
    pub const HEAD_START_US: u64 = 3_600_000_000;
}
