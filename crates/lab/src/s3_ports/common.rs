//! Owns what several of the old ways need: a small lock, a count of distinct lines written, ports that are out of bounds.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a cache line.
pub const LINE: usize = 64;
/// Looks at a taken lock before the processor is given to somebody else: the holder may wait for this very core.
const SPINS: u32 = 128;

/// A lock of one word, as a kernel's adaptive mutex or spin lock is: one atomic exchange to take it, one store to give it
/// back. It guards by convention what its neighbours in memory hold, all of it atomic itself and used relaxed; taking it
/// acquires and giving it back releases.
#[derive(Default)]
pub struct Lock(AtomicU64);

impl Lock {
    /// Takes it; gives it back when the guard goes.
    #[inline]
    pub fn lock(&self) -> Held<'_> {
        if self.0.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.wait();
        }
        Held(self)
    }

    #[cold]
    fn wait(&self) {
        loop {
            for _ in 0..SPINS {
                // Reading first keeps the line shared among those who wait.
                if self.0.load(Ordering::Relaxed) == 0
                    && self.0.compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
                {
                    return;
                }
                std::hint::spin_loop();
            }
            std::thread::yield_now();
        }
    }
}

/// The lock is ours.
pub struct Held<'a>(&'a Lock);

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.0.store(0, Ordering::Release);
    }
}

/// Which lines of something shared were written during one call: each counts once.
pub struct Lines {
    /// For each line, the number of the last call that wrote it.
    written_in: Vec<u32>,
    call: u32,
}

impl Lines {
    /// Of something that is `lines` lines long.
    pub fn new(lines: usize) -> Self {
        Lines { written_in: vec![0; lines], call: 0 }
    }

    /// A new call.
    #[inline]
    pub fn begin(&mut self) {
        self.call = self.call.wrapping_add(1);
        if self.call == 0 {
            // After four thousand million calls the old numbers come round.
            self.written_in.fill(0);
            self.call = 1;
        }
    }

    /// A line is written: 1 if it is the first time in this call.
    #[inline]
    pub fn write(&mut self, line: usize) -> u64 {
        let first = self.written_in[line] != self.call;
        self.written_in[line] = self.call;
        u64::from(first)
    }

    /// Bytes that it holds.
    pub fn bytes(&self) -> usize {
        self.written_in.len() * 4
    }
}

/// A bit for each port.
pub struct PortSet(Vec<u64>);

impl PortSet {
    /// With these in it.
    pub fn of(ports: &[u16]) -> Self {
        let mut set = PortSet(vec![0; 65_536 / 64]);
        ports.iter().for_each(|port| set.insert(*port));
        set
    }

    /// Puts one in.
    pub fn insert(&mut self, port: u16) {
        self.0[usize::from(port) / 64] |= 1 << (port % 64);
    }

    /// Takes one out.
    pub fn remove(&mut self, port: u16) {
        self.0[usize::from(port) / 64] &= !(1 << (port % 64));
    }

    /// Whether it is in.
    #[inline]
    pub fn contains(&self, port: u16) -> bool {
        self.0[usize::from(port) / 64] >> (port % 64) & 1 == 1
    }
}

/// Ports from the first to the last, as a start and a number.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// The first.
    pub first: u16,
    /// How many.
    pub count: u32,
}

impl Range {
    /// Both ends included.
    pub fn new((first, last): (u16, u16)) -> Self {
        let first = first.max(1);
        Range { first, count: u32::from(last.max(first) - first) + 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_excludes() {
        let lock = Lock::default();
        let shared = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let _held = lock.lock();
                        let seen = shared.load(Ordering::Relaxed);
                        shared.store(seen + 1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(shared.load(Ordering::Relaxed), 40_000);
    }

    #[test]
    fn a_line_counts_once_a_call() {
        let mut lines = Lines::new(4);
        lines.call = u32::MAX - 1;
        for _ in 0..3 {
            lines.begin();
            let written: u64 = [0, 1, 0, 1, 3].map(|line| lines.write(line)).into_iter().sum();
            assert_eq!(written, 3);
        }
    }

    #[test]
    fn a_set_of_ports_has_an_edge_at_each_end() {
        let mut set = PortSet::of(&[0, 65_535, 64]);
        assert!(set.contains(0) && set.contains(65_535) && set.contains(64) && !set.contains(63));
        set.remove(64);
        assert!(!set.contains(64));
    }
}
