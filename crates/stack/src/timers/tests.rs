//! Whoever has asked to be looked at by a time is looked at by then, whatever was asked of the slot before.

use super::*;
use proptest::prelude::*;

/// The furthest that the time lies in which a process starts: the lower 32 bits of a tick, which the wheel counts in, go round soon after it.
const STARTS: [u64; 3] = [0, 3_600_000, u32::MAX as u64 - 3_000];

fn at(tick: u64) -> Instant {
    Instant::from_us(tick * 1_000)
}

fn connection(index: u32) -> Handle {
    Handle::new(Kind::Connection, index)
}

/// All that is to be looked at by `now`, in the order of their slots.
fn due(timers: &mut Timers, now: u64, budget: usize) -> Vec<u32> {
    let mut due = Vec::new();
    while timers.expire(at(now), budget, &mut due) {}
    let mut slots: Vec<u32> = due.iter().map(|handle| handle.index()).collect();
    slots.sort_unstable();
    slots
}

/// The device was full when a connection had something to say, so nothing was armed for it; when it had its turn, its deadline was over.
#[test]
fn a_deadline_that_is_over_is_due_at_once_and_the_slot_has_its_timer_after_it() {
    for start in STARTS {
        let mut timers = Timers::new(at(start));
        assert!(due(&mut timers, start + 100, 10).is_empty());
        timers.arm(connection(3), at(start + 60));
        assert!(!timers.is_done(start + 100), "there is something to look at, in this very tick");
        assert_eq!(timers.next(), Some(at(start + 100)));
        assert_eq!(due(&mut timers, start + 100, 10), [3]);
        timers.arm(connection(3), at(start + 200));
        assert_eq!(due(&mut timers, start + 199, 10), []);
        assert_eq!(due(&mut timers, start + 200, 10), [3]);
        timers.arm(connection(3), at(start + 150));
        assert_eq!(due(&mut timers, start + 5_000, 10), [3], "over, and looked at later");
    }
}

/// The wheel looks 12.4 days ahead.
#[test]
fn a_deadline_in_thirty_days_hides_none_that_is_sooner() {
    const DAYS: u64 = 30 * 86_400_000;
    for start in STARTS {
        let mut timers = Timers::new(at(start));
        timers.arm(connection(3), at(start + DAYS));
        timers.arm(connection(3), at(start + 40));
        assert_eq!(due(&mut timers, start + 40, 10), [3]);
        timers.arm(connection(3), at(start + DAYS));
        assert!(timers.next().is_some_and(|next| next <= at(start + DAYS)));
        assert_eq!(due(&mut timers, start + DAYS, 10), [3]);
    }
}

/// A connection with keepalive that says something twice a second, for two hours.
#[test]
fn what_is_due_soon_again_and_again_leaves_nothing_of_what_is_due_late() {
    const KEEPALIVE: u64 = 7_200_000;
    for probe in [KEEPALIVE, 120_000] {
        let mut timers = Timers::new(at(STARTS[1]));
        let mut most = 0;
        for round in 0..14_400 {
            let now = STARTS[1] + round * 500;
            // Something is sent, as long as it is not acknowledged it would be sent again, and an acknowledgement is owed.
            for ahead in [KEEPALIVE, probe, 200, 40] {
                timers.arm(connection(3), at(now + ahead));
            }
            for passed in [50, 250] {
                for _ in due(&mut timers, now + passed, 10) {
                    timers.arm(connection(3), at(now + if passed == 50 { 200 } else { probe }));
                }
            }
            most = most.max(timers.wheel.len());
        }
        assert!(most < 10, "{most} entries of one slot, one of which is due at {probe} ms");
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// The deadline of a slot is so far ahead of now, or behind it.
    Deadline(u32, i64),
    /// What lived in the slot is gone; nobody tells the timers.
    Gone(u32),
    /// Time passes, and not everything need be looked at.
    Pass(u64, usize),
}

fn spans() -> impl Strategy<Value = i64> {
    // The longest is a keepalive of thirty days, which is more than the wheel looks ahead.
    prop_oneof![4 => -50i64..50, 4 => 0i64..1_000, 2 => 0i64..100_000, 1 => 0i64..30 * 86_400_000]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn no_deadline_passes_unseen(
        start in prop::sample::select(&STARTS),
        steps in prop::collection::vec(prop_oneof![
            4 => (0u32..6, spans()).prop_map(|(slot, ahead)| Step::Deadline(slot, ahead)),
            1 => (0u32..6).prop_map(Step::Gone),
            4 => (spans(), 1usize..8).prop_map(|(by, budget)| Step::Pass(by.unsigned_abs(), budget)),
        ], 1..80),
    ) {
        let mut now = start + 100;
        let mut timers = Timers::new(at(now));
        // What is true of the slots: the deadline of whoever lives there.
        let mut deadlines = [None; 6];
        for step in steps {
            match step {
                Step::Deadline(slot, ahead) => {
                    let tick = now.saturating_add_signed(ahead);
                    deadlines[slot as usize] = Some(tick);
                    timers.arm(connection(slot), at(tick));
                }
                Step::Gone(slot) => deadlines[slot as usize] = None,
                Step::Pass(by, budget) => {
                    now += by;
                    let mut looked_at = Vec::new();
                    let more = timers.expire(at(now), budget, &mut looked_at);
                    prop_assert!(looked_at.len() <= budget);
                    for handle in looked_at {
                        let deadline = &mut deadlines[handle.index() as usize];
                        match *deadline {
                            Some(tick) if tick <= now => *deadline = None,
                            Some(tick) => timers.arm(handle, at(tick)),
                            None => {}
                        }
                    }
                    let missed = deadlines.iter().flatten().any(|tick| *tick <= now);
                    prop_assert!(more || !missed, "at {now} of {deadlines:?}");
                }
            }
            let first = deadlines.iter().flatten().min();
            prop_assert!(first.is_none_or(|tick| timers.next().is_some_and(|next| next <= at(*tick.max(&now)))));
        }
    }
}
