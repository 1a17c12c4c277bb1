//! A device that wraps a device and mistreats what passes: loss, duplication, reordering, damage, by seed.
//!
//! Before it damages anything it finishes what was left to offloads: checksums are completed and super-packets cut. Otherwise a flipped
//! bit would be covered by a checksum that is computed later, and one loss would be the loss of forty segments.
//!
//! It has no clock. A reordered frame is held until one to three more have passed, or as many polls or flushes if none come.
//! For delay and rates see [`crate::memory::Impair`].

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use crate::chance::{Dice, Fate};
use crate::memory::offload;
use crate::{BATCH_MAX, Capabilities, FloodGate, Medium, Queue, Rx, RxChecksum, RxFrame, RxMeta, Tx, TxMeta};

mod mark;

pub use crate::chance::Rates;
pub(crate) use mark::mark;

/// What happens in each direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultConfig {
    /// To frames that the wrapped device receives.
    pub rx: Rates,
    /// To frames that it is given to send.
    pub tx: Rates,
}

/// What has happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounters {
    /// Frames that disappeared.
    pub lost: u64,
    /// Frames that were doubled.
    pub duplicated: u64,
    /// Frames that were held back.
    pub reordered: u64,
    /// Frames with a flipped bit.
    pub corrupted: u64,
    /// Frames that were marked (ECN).
    pub marked: u64,
    /// Frames that the device inside had no room for after all.
    pub full: u64,
}

/// Wraps both halves of a queue. The same seed gives the same faults to the same frames.
pub fn wrap<R: Rx, T: Tx>(queue: Queue<R, T>, config: FaultConfig, seed: u64) -> Queue<FaultRx<R>, FaultTx<T>> {
    let capabilities = *queue.tx.capabilities();
    Queue {
        rx: FaultRx {
            inner: queue.rx,
            medium: capabilities.medium,
            mill: Mill::new(config.rx, capabilities.medium, seed),
            lent: 0,
        },
        tx: FaultTx {
            inner: queue.tx,
            buffer: vec![0; capabilities.frame_max()].into(),
            // Another sequence than the receiver's, from the same seed.
            mill: Mill::new(config.tx, capabilities.medium, !seed),
        },
    }
}

#[derive(Debug)]
struct Held {
    bytes: Vec<u8>,
    meta: RxMeta,
    /// How many more frames, polls or flushes pass before this one may.
    turns: u32,
}

/// Where frames go in whole and come out mistreated.
#[derive(Debug)]
struct Mill {
    rates: Rates,
    medium: Medium,
    dice: Dice,
    /// To be passed on, in this order.
    ready: VecDeque<Held>,
    /// Out of order.
    held: Vec<Held>,
    spare: Vec<Vec<u8>>,
    counters: FaultCounters,
}

impl Mill {
    fn new(rates: Rates, medium: Medium, seed: u64) -> Self {
        Mill {
            rates,
            medium,
            dice: Dice::new(seed),
            ready: VecDeque::new(),
            held: Vec::new(),
            spare: Vec::new(),
            counters: FaultCounters::default(),
        }
    }

    /// Takes in one plain frame of `len` bytes, which `write` writes.
    fn take(&mut self, len: usize, mut meta: RxMeta, write: &mut dyn FnMut(&mut [u8])) {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.resize(len, 0);
        write(&mut bytes);
        let Fate { lost, duplicated, reordered, corrupted, marked } = self.dice.fate(&self.rates);
        if lost {
            self.counters.lost += 1;
            self.spare.push(bytes);
            return self.turn();
        }
        if marked && mark(self.medium, &mut bytes) {
            self.counters.marked += 1;
        }
        if duplicated {
            self.counters.duplicated += 1;
            let mut copy = self.spare.pop().unwrap_or_default();
            copy.clone_from(&bytes);
            self.ready.push_back(Held { bytes: copy, meta, turns: 0 });
        }
        if corrupted {
            self.counters.corrupted += 1;
            self.dice.damage(&mut bytes);
            // No hardware vouches for these bytes.
            meta.checksum = RxChecksum::Unknown;
        }
        if reordered {
            self.counters.reordered += 1;
            self.turn();
            let turns = 1 + self.dice.below(3) as u32;
            self.held.push(Held { bytes, meta, turns });
        } else {
            self.ready.push_back(Held { bytes, meta, turns: 0 });
            self.turn();
        }
    }

    /// One more has passed: those whose time has come follow it.
    fn turn(&mut self) {
        for held in &mut self.held {
            held.turns = held.turns.saturating_sub(1);
        }
        self.ready.extend(self.held.extract_if(.., |held| held.turns == 0));
    }

    /// Forgets the first `n` ready ones, and keeps their memory.
    fn discard(&mut self, n: usize) {
        for held in self.ready.drain(..n) {
            if self.spare.len() < 2 * BATCH_MAX {
                self.spare.push(held.bytes);
            }
        }
    }
}

/// A receiving half that mistreats. Made by [`wrap`].
#[derive(Debug)]
pub struct FaultRx<R> {
    inner: R,
    medium: Medium,
    mill: Mill,
    /// How many of the ready frames are lent.
    lent: usize,
}

impl<R> FaultRx<R> {
    /// What has happened so far.
    pub fn counters(&self) -> FaultCounters {
        self.mill.counters
    }
}

impl<R: Rx> Rx for FaultRx<R> {
    fn poll(&mut self, max: usize) -> usize {
        self.release();
        let max = max.min(BATCH_MAX);
        if self.mill.ready.len() < max {
            let count = self.inner.poll(max);
            for i in 0..count {
                let RxFrame { bytes, meta } = self.inner.frame(i);
                // Also where the device vouches for the bytes: over what only it knows to be right, damage may look so.
                let checksum_partial = offload::unfinished(self.medium, bytes, meta.checksum);
                let checksum = match meta.checksum {
                    RxChecksum::Partial(_) => RxChecksum::Unknown,
                    known => known,
                };
                // Cutting computes checksums, so nobody needs to vouch for them.
                let checksum = if meta.gso_size == 0 { checksum } else { RxChecksum::Unknown };
                let work = TxMeta { checksum_partial, gso_size: meta.gso_size, header_len: 0 };
                let mill = &mut self.mill;
                offload::finish(self.medium, bytes, &work, |len, write| {
                    mill.take(len, RxMeta { checksum, gso_size: 0 }, write)
                });
            }
            self.inner.release();
            if count == 0 {
                self.mill.turn();
            }
        }
        self.lent = self.mill.ready.len().min(max);
        self.lent
    }

    fn frame(&self, i: usize) -> RxFrame<'_> {
        assert!(i < self.lent, "frame {i} of {} lent", self.lent);
        let held = &self.mill.ready[i];
        RxFrame { bytes: &held.bytes, meta: held.meta }
    }

    fn release(&mut self) {
        self.mill.discard(self.lent);
        self.lent = 0;
    }

    /// The wrapped device's. A frame that is held back does not make it readable: poll now and then.
    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.inner.readiness()
    }

    fn aside(&self) -> Option<BorrowedFd<'_>> {
        self.inner.aside()
    }

    fn floodgate(&mut self) -> Option<&mut dyn FloodGate> {
        self.inner.floodgate()
    }

    fn failed(&self) -> Option<&str> {
        self.inner.failed()
    }
}

/// A sending half that mistreats. Made by [`wrap`].
#[derive(Debug)]
pub struct FaultTx<T> {
    inner: T,
    buffer: Box<[u8]>,
    mill: Mill,
}

impl<T> FaultTx<T> {
    /// What has happened so far.
    pub fn counters(&self) -> FaultCounters {
        self.mill.counters
    }
}

impl<T: Tx> FaultTx<T> {
    fn pass_on(&mut self) {
        for held in &self.mill.ready {
            match self.inner.reserve(held.bytes.len()) {
                Some(into) => {
                    into.copy_from_slice(&held.bytes);
                    self.inner.commit(held.bytes.len(), TxMeta::default());
                }
                None => self.mill.counters.full += 1,
            }
        }
        self.mill.discard(self.mill.ready.len());
    }
}

impl<T: Tx> Tx for FaultTx<T> {
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn reserve(&mut self, len: usize) -> Option<&mut [u8]> {
        self.inner.reserve(len)?;
        Some(&mut self.buffer[..len])
    }

    fn commit(&mut self, len: usize, meta: TxMeta) {
        let mill = &mut self.mill;
        let medium = self.inner.capabilities().medium;
        offload::finish(medium, &self.buffer[..len], &meta, |len, write| mill.take(len, RxMeta::default(), write));
        self.pass_on();
    }

    fn flush(&mut self) {
        self.mill.turn();
        self.pass_on();
        self.inner.flush();
    }
}

#[cfg(test)]
mod tests;
