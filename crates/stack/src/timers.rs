//! Owns when things are due on a lane: one wheel entry per connection or half-open entry, lazily re-armed.
//!
//! The entry belongs to the *slot* and not to what lives in it. A connection that dies leaves its entry in the wheel,
//! and the next one in that slot finds it there, early; when it fires, the real deadline is looked up and armed. So a
//! short connection touches no timer structure at all, and nothing is ever cancelled.

use crate::tables::{Handle, Kind};
use laneway_proto::time::Instant;
use laneway_table::Wheel;

const UNARMED: u32 = u32::MAX;
/// A quarter of the circle on which ticks are compared, 12.4 days: so far may a deadline be over, and still be told from what is armed.
const FURTHEST: u64 = 1 << 30;

/// The wheel of one lane; its tick is a millisecond.
pub struct Timers {
    wheel: Wheel,
    /// For each slot of each kind the tick of its valid wheel entry.
    armed: [Vec<u32>; 2],
    /// The tick up to which everything has been expired.
    done: u64,
}

#[inline(always)]
fn tick_of(deadline: Instant) -> u64 {
    // Rounded up.
    deadline.as_us().saturating_add(999) / 1_000
}

impl Timers {
    /// An empty wheel.
    pub fn new(now: Instant) -> Self {
        Timers { wheel: Wheel::new(now.as_ms()), armed: [Vec::new(), Vec::new()], done: 0 }
    }

    /// Makes sure that the slot is looked at by `deadline` at the latest.
    #[inline(always)]
    pub fn arm(&mut self, handle: Handle, deadline: Instant) {
        if deadline != Instant::NEVER {
            self.arm_tick(handle, tick_of(deadline));
        }
    }

    /// The same by a tick: a millisecond since the base.
    #[inline(always)]
    pub fn arm_tick(&mut self, handle: Handle, tick: u64) {
        let armed = &self.armed[(handle.kind() == Kind::HalfOpen) as usize];
        let index = handle.index() as usize;
        // Ticks of a process fit 32 bits for seven weeks; the comparison is on the circle.
        let is_early_enough = |armed: u32| armed != UNARMED && (tick as u32).wrapping_sub(armed) as i32 >= 0;
        if !armed.get(index).is_some_and(|armed| is_early_enough(*armed)) {
            self.arm_sooner(handle, tick);
        }
    }

    /// The slot has no entry in the wheel yet, or one that is too late.
    #[inline(never)]
    fn arm_sooner(&mut self, handle: Handle, tick: u64) {
        // What is over already is due as of now: that is where the wheel files it, and what it says when it reports it. What is
        // further away than ticks can be compared is looked at before its time, and armed again.
        let now = self.wheel.now_tick();
        let tick = tick.clamp(now, now + FURTHEST);
        let armed = &mut self.armed[(handle.kind() == Kind::HalfOpen) as usize];
        let index = handle.index() as usize;
        if armed.len() <= index {
            armed.resize((index + 1).next_power_of_two(), UNARMED);
        }
        if armed[index] != UNARMED && u64::from(armed[index].wrapping_sub(now as u32)) <= tick - now {
            return; // it was early enough, but for the circle
        }
        armed[index] = if tick as u32 == UNARMED { UNARMED - 1 } else { tick as u32 };
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
            let short = if tick as u32 == UNARMED { UNARMED - 1 } else { tick as u32 };
            if *slot == short {
                *slot = UNARMED;
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
        self.wheel.bytes() + self.armed.iter().map(|a| a.capacity() * 4).sum::<usize>()
    }
}

#[cfg(test)]
mod tests;
