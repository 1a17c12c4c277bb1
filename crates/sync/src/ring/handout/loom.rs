//! Two takers and a producer whose ring comes round: each value is taken once.
//!
//! What this does not cover: more than three preemptions per schedule, more than two takers, and a position that comes
//! round in 32 bits.

use super::*;
use crate::primitive::{UnsafeCell, Weakness, explore};

fn two_takers() {
    let (mut offers, takers) = handout::<u32>(2);
    offers.offer(Arc::new(1)).expect("room");
    offers.offer(Arc::new(2)).expect("room");
    let other = takers.clone();
    let thread = ::loom::thread::spawn(move || other.take().map_or(0, |value| *value));
    let mut sum = takers.take().map_or(0, |value| *value);
    if offers.offer(Arc::new(4)).is_err() {
        sum += 4;
    }
    sum += thread.join().expect("no panic");
    while let Some(value) = takers.take() {
        sum += *value;
    }
    assert_eq!(sum, 7);
}

struct Tracked(UnsafeCell<u32>);

// SAFETY: loom's cell finds the races that this allows.
unsafe impl Sync for Tracked {}

/// The value itself arrives: it was written before it was offered.
fn arrives_whole() {
    let (mut offers, takers) = handout::<Tracked>(2);
    let thread = ::loom::thread::spawn(move || {
        let value = Arc::new(Tracked(UnsafeCell::new(0)));
        // SAFETY: nobody else has it yet.
        value.0.with_mut(|value| unsafe { *value = 7 });
        assert!(offers.offer(value).is_ok());
    });
    if let Some(value) = takers.take() {
        // SAFETY: nobody writes it any more; loom would say so otherwise.
        assert_eq!(value.0.with(|value| unsafe { *value }), 7);
    }
    thread.join().expect("no panic");
}

#[test]
fn each_value_is_taken_once() {
    for model in [two_takers, arrives_whole] {
        let (schedules, _) = explore(Weakness::None, model);
        assert!(schedules > 1, "only {schedules} schedule was explored");
    }
}

#[test]
fn a_relaxed_publication_is_caught() {
    assert!(explore(Weakness::PublishRelaxed, arrives_whole).1);
}
