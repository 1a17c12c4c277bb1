//! How frames find a queue, and how a link hears of moves.

use laneway_stack::steering::{BUCKETS, Source};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// What a ring of the link holds of the shortest frames that are sent here.
pub const CAPACITY: usize = (1 << 20) / 48;

/// A table that the very next frame goes by.
#[derive(Clone)]
pub struct AtOnce(pub Arc<[AtomicU8; BUCKETS]>);

impl Source for AtOnce {
    fn steer(&mut self, table: &[u8; BUCKETS]) -> Result<(), String> {
        self.0.iter().zip(table).for_each(|(place, queue)| place.store(*queue, Ordering::Relaxed));
        Ok(())
    }
    fn has_switched(&mut self, _: usize) -> bool {
        true
    }
    fn is_abrupt(&self) -> bool {
        true
    }
    fn capacity(&self) -> usize {
        CAPACITY
    }
}

/// The same, when the test says so.
pub struct WhenTold {
    pub table: AtOnce,
    pub told: Arc<AtomicBool>,
    pub next: Option<[u8; BUCKETS]>,
}

impl Source for WhenTold {
    fn steer(&mut self, table: &[u8; BUCKETS]) -> Result<(), String> {
        self.next = Some(*table);
        Ok(())
    }
    fn has_switched(&mut self, _: usize) -> bool {
        if !self.told.load(Ordering::Relaxed) {
            return false;
        }
        self.next.take().is_none_or(|table| self.table.steer(&table).is_ok())
    }
    fn is_abrupt(&self) -> bool {
        false
    }
}

/// How the link chooses queues.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Rss {
    /// Each sender follows the table when the reader has read.
    Follows,
    /// At once.
    AtOnce,
    /// When it is told to, which it is not.
    WhenTold,
    /// There is none: frames stay on the queue number that they were sent on, and lanes pass on what is not theirs.
    Absent,
}
