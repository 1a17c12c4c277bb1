//! Owns how long an operation took: one of 61 is timed, so that timing costs next to nothing.

use super::machine;
use hdrhistogram::Histogram;
use std::time::Instant;

/// One operation of this many is timed. A prime: connections take their turns in order, and with a divisor of their number it would
/// always be the same few that are timed.
const EVERY: u64 = 61;
/// Longer ones are counted as this long, in nanoseconds.
const MOST_NS: u64 = 100_000_000_000;

/// Times a sample of operations.
#[derive(Clone)]
pub struct Stopwatch {
    base: Instant,
    /// What had passed when it was stopped last: time in which others work does not count.
    held_ns: u64,
    every: u64,
    /// It goes by the thread's processor time.
    of_processor: bool,
    begun: u64,
    histogram: Histogram<u64>,
}

impl Stopwatch {
    /// A stopwatch that times a sample.
    pub fn sampling() -> Self {
        Self::new(EVERY)
    }

    /// A stopwatch that times every operation.
    pub fn timing_all() -> Self {
        Self::new(1)
    }

    /// A stopwatch that times every operation by the processor time of the thread, which does all of it and never sleeps: what
    /// other programs take of the core meanwhile is not in it.
    pub fn of_processor() -> Self {
        Stopwatch { of_processor: true, ..Self::new(1) }
    }

    /// A stopwatch that times nothing and reads no clock, for runs that count instructions.
    pub fn off() -> Self {
        Self::new(u64::MAX)
    }

    fn new(every: u64) -> Self {
        let histogram =
            Histogram::new_with_bounds(1, MOST_NS, 3).expect("1 ns to 100 s in three digits is a valid histogram");
        Stopwatch { base: Instant::now(), held_ns: 0, every, of_processor: false, begun: 0, histogram }
    }

    /// An operation begins. The answer goes to [`stop`](Self::stop) when it ends; 0 means that this one is not timed.
    #[inline]
    pub fn start(&mut self) -> u64 {
        self.begun += 1;
        if self.begun < self.every {
            return 0;
        }
        self.begun = 0;
        self.read()
    }

    /// An operation ends.
    #[inline]
    pub fn stop(&mut self, started: u64) {
        if started != 0 {
            self.record(started);
        }
    }

    #[cold]
    fn read(&self) -> u64 {
        if self.of_processor {
            return machine::thread_cpu_ns();
        }
        self.base.elapsed().as_nanos() as u64
    }

    #[cold]
    fn record(&mut self, started: u64) {
        let took = self.read().saturating_sub(started);
        self.histogram.saturating_record(took.max(1));
    }

    /// Time stands still …
    pub fn hold(&mut self) {
        self.held_ns = self.read();
    }

    /// … until it goes on.
    pub fn go_on(&mut self) {
        let now = Instant::now();
        self.base = now.checked_sub(std::time::Duration::from_nanos(self.held_ns)).unwrap_or(now);
    }

    /// Takes what was timed so far, and begins anew.
    pub fn take(&mut self) -> Histogram<u64> {
        let empty = Histogram::new_from(&self.histogram);
        std::mem::replace(&mut self.histogram, empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_connection_is_timed_sooner_or_later() {
        for conns in [1usize, 64, 100, 128, 1_000, 1_024] {
            let (mut stopwatch, mut timed) = (Stopwatch::sampling(), vec![false; conns]);
            for turn in 0..conns * EVERY as usize {
                timed[turn % conns] |= stopwatch.start() != 0;
            }
            assert!(timed.iter().all(|timed| *timed), "of {conns} connections");
        }
    }
}
