//! Owns when things are due on a lane: one wheel entry per connection or half-open entry, lazily re-armed.
//!
//! The entry belongs to the *slot* and not to what lives in it. A connection that dies leaves its entry in the wheel,
//! and the next one in that slot finds it there, early; when it fires, the real deadline is looked up and armed. So a
//! short connection touches no timer structure at all, and nothing is ever cancelled.

use crate::tables::{Handle, Kind};
use laneway_proto::time::Instant;
use laneway_table::Wheel;

/// The furthest that the wheel is asked to look ahead, 12.4 days.
const FURTHEST: u64 = 1 << 30;

/// The wheel of one lane; its tick is a millisecond.
pub struct Timers {
    wheel: Wheel,
    /// For each slot of each kind since when deadlines are met by its valid wheel entry: since after the tick before that of the entry.
    /// None is if there is no such entry. In the unit of deadlines, so that each is compared as it is.
    armed: [Vec<Instant>; 2],
    /// The tick up to which everything has been expired.
    done: u64,
}

/// The tick by which a deadline is over: rounded up.
#[inline(always)]
fn tick_of(deadline: Instant) -> u64 {
    deadline.as_us().saturating_add(999) / 1_000
}

/// The earliest deadline that is over by a tick and not by the one before.
#[inline(always)]
fn first_of(tick: u64) -> Instant {
    Instant::from_us((tick * 1_000).saturating_sub(999))
}

impl Timers {
    /// An empty wheel.
    pub fn new(now: Instant) -> Self {
        Timers { wheel: Wheel::new(now.as_ms()), armed: [Vec::new(), Vec::new()], done: 0 }
    }

    /// Makes sure that the slot is looked at by `deadline` at the latest.
    #[inline(always)]
    pub fn arm(&mut self, handle: Handle, deadline: Instant) {
        let armed = &self.armed[(handle.kind() == Kind::HalfOpen) as usize];
        // Nearly always there is an entry, and it is early enough. `NEVER`, where there is none, comes after every deadline.
        if armed.get(handle.index() as usize).is_none_or(|since| deadline < *since) {
            self.arm_sooner(handle, deadline);
        }
    }

    /// The same by a tick: a millisecond since the base.
    #[inline(always)]
    pub fn arm_tick(&mut self, handle: Handle, tick: u64) {
        self.arm(handle, Instant::from_us(tick * 1_000));
    }

    /// The slot has no entry in the wheel yet, or one that is too late.
    #[inline(never)]
    fn arm_sooner(&mut self, handle: Handle, deadline: Instant) {
        if deadline == Instant::NEVER {
            return; // of a slot that was never armed
        }
        // What is over already is due as of now: that is where the wheel files it, and what it says when it reports it. What is
        // further away than the wheel looks is looked at before its time, and armed again.
        let now = self.wheel.now_tick();
        let tick = tick_of(deadline).clamp(now, now + FURTHEST);
        let armed = &mut self.armed[(handle.kind() == Kind::HalfOpen) as usize];
        let index = handle.index() as usize;
        if armed.len() <= index {
            armed.resize((index + 1).next_power_of_two(), Instant::NEVER);
        }
        if armed[index] <= first_of(tick) {
            return; // it is over, and was armed for now
        }
        armed[index] = first_of(tick);
        self.wheel.arm(handle.raw(), tick);
        if tick <= self.done {
            self.done = 0;
        }
    }

    /// Whether everything up to this tick has been looked at.
    #[inline]
    pub fn is_done(&self, tick: u64) -> bool {
        self.done == tick
    }

    /// Collects up to `budget` slots to look at. A slot comes out at most once, and must be armed again if something in
    /// it is still to come.
    pub fn expire(&mut self, now: Instant, budget: usize, due: &mut Vec<Handle>) -> bool {
        if now.as_ms() == self.done {
            return false;
        }
        let armed = &mut self.armed;
        let more = self.wheel.advance(now.as_ms(), budget, |key, tick| {
            let handle = Handle::from_raw(key);
            let slot = &mut armed[(handle.kind() == Kind::HalfOpen) as usize][handle.index() as usize];
            if *slot == first_of(tick) {
                *slot = Instant::NEVER;
                due.push(handle);
            }
        });
        self.done = if more { 0 } else { now.as_ms() };
        more
    }

    /// When to look again, at the latest.
    pub fn next(&self) -> Option<Instant> {
        self.wheel.next_tick_hint().map(|tick| Instant::from_us(tick * 1_000))
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.wheel.bytes() + self.armed.iter().map(|armed| armed.capacity() * size_of::<Instant>()).sum::<usize>()
    }
}

#[cfg(test)]
mod tests;
