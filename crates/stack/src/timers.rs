//! Owns when things are due on a lane: as a rule one wheel entry per connection or half-open entry, lazily re-armed.
//!
//! The entry belongs to the *slot* and not to what lives in it. A connection that dies leaves its entry in the wheel,
//! and the next one in that slot finds it there, early; when it fires, the real deadline is looked up and armed. So a
//! short connection touches no timer structure at all, and nothing is ever cancelled.
//!
//! One that is late when something else is due before it stays in the wheel, and is the slot's entry again when that has fired. If
//! it were forgotten, a connection with keepalive would leave one behind for two hours each time that it sends.

use crate::tables::{Handle, Kind};
use laneway_proto::time::Instant;
use laneway_table::Wheel;

/// The furthest that the wheel is asked to look ahead, 12.4 days.
const FURTHEST: u64 = 1 << 30;

/// Entries that are remembered of a slot beside the first: a keepalive two hours away, and a retransmission or a probe in up to two minutes, as
/// an acknowledgement is due in 40 ms.
const LATER: usize = 2;

/// The wheel of one lane; its tick is a millisecond.
pub struct Timers {
    wheel: Wheel,
    /// For each slot of each kind since when deadlines are met by its valid wheel entry: since after the tick before that of the entry.
    /// None is if there is no such entry. In the unit of deadlines, so that each is compared as it is.
    armed: [Vec<Instant>; 2],
    /// The same of the entries after that one, the first of them first. Of a slot that never had more than one there may be nothing.
    later: [Vec<[Instant; LATER]>; 2],
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

/// Takes the first of the later entries.
#[inline]
fn next_of(later: &mut [Instant; LATER]) -> Instant {
    let next = std::mem::replace(&mut later[0], Instant::NEVER);
    later.rotate_left(1);
    next
}

impl Timers {
    /// An empty wheel.
    pub fn new(now: Instant) -> Self {
        Timers { wheel: Wheel::new(now.as_ms()), armed: Default::default(), later: Default::default(), done: 0 }
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
        let before = std::mem::replace(&mut armed[index], first_of(tick));
        if before != Instant::NEVER {
            self.keep(handle, before);
        }
        self.wheel.arm(handle.raw(), tick);
        if tick <= self.done {
            self.done = 0;
        }
    }

    /// An entry is not its slot's first any more. If too many are behind that one, it is forgotten, which of all of them stays in the wheel for
    /// the shortest time.
    #[inline(never)]
    fn keep(&mut self, handle: Handle, entry: Instant) {
        let later = &mut self.later[(handle.kind() == Kind::HalfOpen) as usize];
        let index = handle.index() as usize;
        if later.len() <= index {
            later.resize((index + 1).next_power_of_two(), [Instant::NEVER; LATER]);
        }
        let later = &mut later[index];
        if later[LATER - 1] == Instant::NEVER {
            later.rotate_right(1);
            later[0] = entry;
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
        let (armed, later) = (&mut self.armed, &mut self.later);
        let more = self.wheel.advance(now.as_ms(), budget, |key, tick| {
            let handle = Handle::from_raw(key);
            let (kind, index) = ((handle.kind() == Kind::HalfOpen) as usize, handle.index() as usize);
            let slot = &mut armed[kind][index];
            if *slot == first_of(tick) {
                *slot = later[kind].get_mut(index).map_or(Instant::NEVER, next_of);
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
        let armed = self.armed.iter().map(|armed| armed.capacity()).sum::<usize>();
        let later = self.later.iter().map(|later| later.capacity() * LATER).sum::<usize>();
        self.wheel.bytes() + (armed + later) * size_of::<Instant>()
    }
}

#[cfg(test)]
mod tests;
