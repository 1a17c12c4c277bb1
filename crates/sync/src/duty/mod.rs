//! Says whose turn it is to work while the one whose work it is sleeps: who brings work to a sleeper may do it in its stead.
//!
//! # How it is used
//!
//! ```
//! use laneway_sync::duty::{Duty, Left, Relief};
//! let duty = Duty::new();
//! // The one whose work it is, before it sleeps:
//! duty.announce(); // … looks for work once more …
//! assert!(duty.sleep()); // … and from here on others may do its work
//! // Somebody who has published work:
//! assert_eq!(duty.relieve(), Relief::Taken); // … works, until it finds nothing
//! assert_eq!(duty.leave(), Left::Asleep); // nobody was woken
//! // Somebody who has published work and has no time:
//! assert!(duty.ring()); // the sleeper must be woken, by whatever it sleeps on
//! assert!(duty.resume()); // woken, it has its work back
//! ```
//!
//! # Why not the obvious thing
//!
//! A [doorbell](crate::doorbell) hands every piece of work to the sleeper: a system call, an interrupt to another core, a
//! switch of threads, and the same again for the answer. Between two threads that talk in turns that is all the time there is.
//! A lock around the work would let everyone do it, and everyone would wait for it: the bringers for each other, and the one whose
//! work it is for a bringer that lost its core. Here nobody waits. Who does not get the duty has told the one who has it that there
//! is more, and goes its way.
//!
//! # Theory
//!
//! ```text
//!                 announce            sleep
//!        AWAKE ─────────────▶ LOOKING ─────▶ ASLEEP ◀──────────────────┐
//!          ▲  ▲                  │             │  │                    │ leave
//!          │  └──── ring ────────┘    ring,    │  │ relieve            │
//!          │                          resume   │  ▼                    │
//!          ├───────────────────────────────────┘ RELIEVED ─────────────┤
//!          │                              ring │  ▲ leave              │
//!          │                                   ▼  │                    │
//!          │                                  AGAIN                    │
//!          │          leave, hand_over     resume │ (from both)        │
//!          └────────────────────────────── RECALLED
//! ```
//!
//! One party at a time has the duty: the owner in AWAKE and LOOKING, the stand-in in RELIEVED, AGAIN and RECALLED, nobody in
//! ASLEEP. It changes hands only by an exchange that says from whom to whom.
//!
//! A ringer loses no work to anyone: each state says who looks after it. AWAKE: the owner, which announces and looks before it
//! sleeps. LOOKING: the owner, whose `sleep` fails. ASLEEP: whoever takes it from there. RELIEVED: the stand-in, whose `leave` finds
//! AGAIN. AGAIN: the same. RECALLED: the owner, which the stand-in wakes.
//!
//! An owner that wakes for a reason of its own (a descriptor is ready) while another has the duty recalls it, and
//! sleeps until it is told. It is not idle meanwhile: its work is being done. One whose time has come may as well
//! [see that](Duty::is_relieved) and sleep a little longer.
//!
//! # The bad interleavings
//!
//! ```text
//!   ringer                                  who has the duty
//!   (work in the store buffer)              state := LOOKING (in the store buffer)
//!   reads AWAKE, leaves                     looks: no work; sleeps               ← both fences are needed
//!
//!                                           stand-in looks: no work
//!   work; reads RELIEVED, leaves            state := ASLEEP                      ← say AGAIN, and leave by an exchange
//!
//!   (work in the store buffer)              stand-in: AGAIN → RELIEVED
//!   reads AGAIN, leaves                     looks: no work; leaves               ← a fence after that exchange too
//!
//!   owner: its time has come                stand-in is in the middle of a turn
//!   takes its work back                     … and both work                      ← recall, and wait to be told
//! ```
//!
//! # Memory ordering
//!
//! * What belongs to the duty is handed over by the exchange that hands over the duty: Release by who gives, Acquire by who
//!   takes, hence AcqRel.
//! * LOOKING is stored Relaxed; the fence after it orders it before the owner's last look. `ring` and `relieve` begin with the
//!   same fence. AGAIN → RELIEVED is followed by it.

#[cfg(all(test, laneway_loom))]
mod loom;
#[cfg(all(test, not(laneway_loom)))]
mod tests;

use crate::padded::Padded;
use crate::primitive::{AtomicU32, order};
use std::fmt;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

const AWAKE: u32 = 0;
const LOOKING: u32 = 1;
const ASLEEP: u32 = 2;
const RELIEVED: u32 = 3;
const AGAIN: u32 = 4;
const RECALLED: u32 = 5;

/// Whose turn it is.
pub struct Duty(Padded<AtomicU32>);

/// What [`Duty::relieve`] came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relief {
    /// The caller has the duty: it works, and then [leaves](Duty::leave) or [hands over](Duty::hand_over).
    Taken,
    /// Somebody has it who will see what was published.
    Seen,
}

/// What [`Duty::leave`] came to.
#[must_use = "on all but `Asleep` something is left to do"]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left {
    /// Nobody has the duty, and the owner sleeps on.
    Asleep,
    /// The caller still has it: more work was published meanwhile.
    Again,
    /// The owner has it, and the caller must wake it.
    Owed,
}

impl Default for Duty {
    fn default() -> Self {
        Self::new()
    }
}

impl Duty {
    /// The owner's, awake.
    pub fn new() -> Self {
        Self(Padded(AtomicU32::new(AWAKE)))
    }

    #[inline]
    fn change(&self, from: u32, to: u32) -> Result<u32, u32> {
        self.0.compare_exchange(from, to, order::exchange(), Relaxed)
    }

    /// The owner's first step towards sleep. It must now look for work once more, and then [sleep](Self::sleep) or
    /// [stay](Self::stay).
    #[inline]
    pub fn announce(&self) {
        self.0.store(LOOKING, Relaxed);
        order::announce_fence();
    }

    /// The owner has found work after [`announce`](Self::announce), and stays awake.
    #[inline]
    pub fn stay(&self) {
        self.0.swap(AWAKE, order::exchange());
    }

    /// The owner has found nothing, and gives the duty away. False: somebody has rung since [`announce`](Self::announce), and it
    /// is awake. Whatever belongs to the duty must be within reach of others before this.
    #[must_use = "on false the owner has work to do"]
    #[inline]
    pub fn sleep(&self) -> bool {
        self.change(LOOKING, ASLEEP).is_ok()
    }

    /// The owner wants the duty back: it was woken, or has a reason of its own. True: it has it. False: somebody else does,
    /// and wakes it when that is over; it then asks again.
    #[must_use = "on false the duty is another's"]
    #[inline]
    pub fn resume(&self) -> bool {
        let mut state = self.0.load(Acquire);
        loop {
            let to = match state {
                AWAKE | LOOKING => return true,
                RECALLED => return false,
                ASLEEP => AWAKE,
                _ => RECALLED,
            };
            match self.change(state, to) {
                Ok(_) => return to == AWAKE,
                // The load that fails takes nothing over; the next one does.
                Err(_) => state = self.0.load(Acquire),
            }
        }
    }

    /// The owner has the duty.
    #[inline]
    pub fn is_owners(&self) -> bool {
        matches!(self.0.load(Relaxed), AWAKE | LOOKING)
    }

    /// Somebody has it who works in the owner's stead, and was not told to give it back.
    #[inline]
    pub fn is_relieved(&self) -> bool {
        matches!(self.0.load(Relaxed), RELIEVED | AGAIN)
    }

    /// Nobody has it: the owner sleeps. To be asked after a fence, if the answer is to be relied on.
    #[inline]
    pub fn is_asleep(&self) -> bool {
        self.0.load(Relaxed) == ASLEEP
    }

    /// To be called after work was published. True: the owner sleeps, and it is on the caller to wake it.
    #[must_use = "on true, the caller owes the owner a wake-up"]
    #[inline]
    pub fn ring(&self) -> bool {
        order::announce_fence();
        self.tell(/* relieves= */ false) == Some(AWAKE)
    }

    /// As [`ring`](Self::ring), by somebody who would do the work.
    #[inline]
    pub fn relieve(&self) -> Relief {
        order::announce_fence();
        match self.tell(/* relieves= */ true) {
            Some(RELIEVED) => Relief::Taken,
            _ => Relief::Seen,
        }
    }

    /// Tells whoever has the duty, or takes it from the sleeper. Says what has become of the sleeper, if there was one.
    #[inline]
    fn tell(&self, relieves: bool) -> Option<u32> {
        let mut state = self.0.load(Relaxed);
        loop {
            let to = match state {
                LOOKING => AWAKE,
                ASLEEP if relieves => RELIEVED,
                ASLEEP => AWAKE,
                RELIEVED => AGAIN,
                _ => return None,
            };
            match self.change(state, to) {
                Ok(_) => return (state == ASLEEP).then_some(to),
                Err(now) => state = now,
            }
        }
    }

    /// The stand-in has looked, found nothing, and goes.
    #[inline]
    pub fn leave(&self) -> Left {
        loop {
            match self.change(RELIEVED, ASLEEP) {
                Ok(_) => return Left::Asleep,
                Err(AGAIN) => {
                    if self.change(AGAIN, RELIEVED).is_ok() {
                        order::announce_fence();
                        return Left::Again;
                    }
                }
                Err(_) => {
                    self.hand_over();
                    return Left::Owed;
                }
            }
        }
    }

    /// The stand-in goes although there is work. It must now wake the owner.
    #[inline]
    pub fn hand_over(&self) {
        self.0.swap(AWAKE, order::exchange());
    }
}

impl fmt::Debug for Duty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = ["awake", "looking", "asleep", "relieved", "again", "recalled"];
        f.debug_tuple("Duty").field(&names[self.0.load(Relaxed) as usize % names.len()]).finish()
    }
}
