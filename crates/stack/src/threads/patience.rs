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
    /// As of one of which nothing is known.
    pub(super) fn renew(&self) {
        self.0.store(FIRST, Relaxed);
    }
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

    fn get(&self) -> usize {
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
    fn looks_over(&self, lane: usize, Patience(patience): &Patience, mut ready: impl FnMut() -> bool) -> bool {
        let most_us = self.look_us();
        if most_us == 0 {
            return false;
        }
        let before = patience.load(Relaxed);
        // Several threads may count at once, and then one of them is not counted: nothing depends on it.
        if before < PROBE_EVERY - 1 {
            patience.store(before + 1, Relaxed);
            return false;
        }
        if self.is_awake(lane) && awake::is_here() {
            return false;
        }
        let began = self.now();
        let is_late = || self.now().since_us(began) >= most_us.into();
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
        let after = match (seen, before) {
            (true, before) => (before + 1).clamp(WORTH, WORTH_MAX),
            (false, WORTH_MAX..) => WORTH_MAX - 1,
            (false, before) if before > WORTH => before - 1,
            (false, _) => 0,
        };
        patience.store(after, Relaxed);
        seen
    }
}
