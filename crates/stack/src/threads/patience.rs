//! Owns how long a thread looks for what it waits for before it sleeps.
//!
//! To fall asleep and to be woken costs a thread several microseconds, and whoever wakes it one more; an answer that comes sooner is
//! better waited for awake. Whether it does, each socket remembers: after each wait that ended while the thread still looked, it
//! is a little more worth it, after each other a little less, and from then on only every [`PROBE_EVERY`]th wait finds out
//! whether that has changed.

use super::accept::{Acceptors, Takes};
use super::datagram::Datagrams;
use super::desk::Desk;
use super::words::{Conversation, READ};
use crate::runtime::awake;
use laneway_proto::time::Instant;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::*};

/// How long a thread looks, in microseconds, unless the builder of its stack says otherwise: what it costs to be woken.
pub(super) const LOOK_US: u32 = 20;
/// Of the waits of those for whom it was not worth it, every so many'th looks all the same.
const PROBE_EVERY: u8 = 32;
/// From here on it is worth it.
const WORTH: u8 = PROBE_EVERY;
const WORTH_MAX: u8 = WORTH + 8;
/// Of a socket of which nothing is known.
const FIRST: u8 = WORTH + 4;
/// Looks between two looks at the clock.
const LOOKS: u32 = 16;

/// What looking before sleeping has been worth to those who wait for a socket.
pub(super) struct Patience(AtomicU8);

impl Default for Patience {
    /// Of one of which nothing is known.
    fn default() -> Self {
        Patience(AtomicU8::new(FIRST))
    }
}

impl Patience {
    /// What it is, if one is to look. Several threads may count at once, and then one of them is not counted: nothing depends on it.
    pub(super) fn tries(&self) -> Option<u8> {
        let now = self.0.load(Relaxed);
        let tries = now >= PROBE_EVERY - 1;
        if !tries {
            self.0.store(now + 1, Relaxed);
        }
        tries.then_some(now)
    }

    /// It was `before` the look, which has been worth it or not.
    fn learns(&self, before: u8, seen: bool) {
        let after = match (seen, before) {
            (true, before) => (before + 1).clamp(WORTH, WORTH_MAX),
            (false, WORTH_MAX..) => WORTH_MAX - 1,
            (false, before) if before > WORTH => before - 1,
            (false, _) => 0,
        };
        self.0.store(after, Relaxed);
    }

    /// As of one of which nothing is known.
    pub(super) fn renew(&self) {
        self.0.store(FIRST, Relaxed);
    }
}

/// A look that is under way.
#[derive(Clone, Copy)]
pub struct Look {
    lane: usize,
    began: Instant,
    /// What the patience was.
    pub(super) before: u8,
}

/// The lane over which the last of something came that may come over any: over which the next will most likely come, too.
#[derive(Default)]
pub(super) struct CameOver(AtomicUsize);

impl CameOver {
    pub(super) fn lane(lane: usize) -> Self {
        CameOver(AtomicUsize::new(lane))
    }

    /// What is so already is not written again.
    pub(super) fn note(&self, lane: usize) {
        if self.0.load(Relaxed) != lane {
            self.0.store(lane, Relaxed);
        }
    }

    pub(super) fn get(&self) -> usize {
        self.0.load(Relaxed)
    }
}

impl Desk {
    /// Looks whether something is `ready`, for a moment, if that has been worth it. True: it is. False: the caller sleeps, after it
    /// has looked once more in the way of [`Flags`](laneway_sync::wake::Flags).
    ///
    /// Nobody looks where there is but one core, or where the lane is awake and this core is one that a lane waits for.
    pub fn looks(&self, talk: &Conversation, ready: impl FnMut() -> bool) -> bool {
        self.looks_over(usize::from(talk.lane().lane.load(Relaxed)), &talk.app().patience, ready)
    }

    /// The same for a connection to accept.
    pub fn looks_for_newcomers(&self, listener: &Acceptors) -> bool {
        let Takes { came_over, patience, .. } = &*listener.takes;
        self.looks_over(came_over.get(), patience, || listener.is_ready() || self.is_stopped())
    }

    /// The same for one of `bits` of a UDP socket.
    pub fn looks_for_datagrams(&self, socket: &Datagrams, bits: u32) -> bool {
        let lane = if bits == READ { socket.came_over.get() } else { socket.lane };
        self.looks_over(lane, &socket.patience, || socket.ready() & bits != 0)
    }

    /// The same for whatever comes over that lane.
    fn looks_over(&self, lane: usize, patience: &Patience, ready: impl FnMut() -> bool) -> bool {
        let look = patience.tries().and_then(|before| self.begin_look(lane, before));
        look.and_then(|look| self.go_on(look, patience, u64::MAX, ready)).unwrap_or(false)
    }

    /// Begins to look over that lane, with the patience there was before. `None`: nobody looks here, or he would be in a lane's way.
    pub(super) fn begin_look(&self, lane: usize, before: u8) -> Option<Look> {
        let looks = self.look_us() > 0 && !(self.is_awake(lane) && awake::is_here());
        looks.then(|| Look { lane, before, began: self.now() })
    }

    /// Looks on for so many microseconds at the most. Whether something is ready; `None`: not yet, and there is time left.
    pub(super) fn go_on(
        &self,
        look: Look,
        patience: &Patience,
        us: u64,
        mut ready: impl FnMut() -> bool,
    ) -> Option<bool> {
        let Look { lane, before, began } = look;
        let most_us = u64::from(self.look_us());
        let end_us = self.now().since_us(began).saturating_add(us).min(most_us);
        let is_late = || self.now().since_us(began) >= end_us;
        let seen = loop {
            // While the lane sleeps, what is to come comes sooner if its work is done here.
            let mut seen = false;
            let minded = self.mind(lane, || {
                seen = ready();
                seen || is_late()
            });
            if minded {
                break seen;
            }
            if (0..LOOKS).any(|_| {
                std::hint::spin_loop();
                ready()
            }) {
                break true;
            }
            if is_late() {
                break false;
            }
        };
        if !seen && end_us < most_us {
            return None;
        }
        patience.learns(before, seen);
        Some(seen)
    }
}
