//! Two takers and a producer whose ring comes round: each value is taken once.
//!
//! What this does not cover: more than three preemptions per schedule, more than two takers, and a position that comes
//! round in 32 bits.

use super::*;
use crate::primitive::{UnsafeCell, Weakness, explore};

fn two_takers() {
    let sum_of = |taken: Option<(Arc<u32>, [u64; 1])>| {
        let (value, [note]) = taken.unwrap_or_else(|| (Arc::new(0), [0]));
        assert_eq!(u64::from(*value), note, "the note of another");
        *value
    };
    let (mut offers, takers) = handout::<Arc<u32>, 1>(2);
    offers.offer(Arc::new(1), [1]).expect("room");
    offers.offer(Arc::new(2), [2]).expect("room");
    offers.publish();
    let other = takers.clone();
    let thread = ::loom::thread::spawn(move || sum_of(other.take()));
    let mut sum = sum_of(takers.take());
    if offers.offer(Arc::new(4), [4]).is_err() {
        sum += 4;
    }
    offers.publish();
    sum += thread.join().expect("no panic");
    while let Some(taken) = takers.take() {
        sum += sum_of(Some(taken));
    }
    assert_eq!(sum, 7);
}

struct Tracked(UnsafeCell<u32>);

// SAFETY: loom's cell finds the races that this allows.
unsafe impl Sync for Tracked {}

/// The value itself arrives, and its note: they were written before they were offered.
fn arrives_whole() {
    let (mut offers, takers) = handout::<Arc<Tracked>, 1>(2);
    let thread = ::loom::thread::spawn(move || {
        let value = Arc::new(Tracked(UnsafeCell::new(0)));
        // SAFETY: nobody else has it yet.
        value.0.with_mut(|value| unsafe { *value = 7 });
        assert!(offers.offer(value, [7]).is_ok());
        offers.publish();
    });
    if let Some((value, [note])) = takers.take() {
        // SAFETY: nobody writes it any more; loom would say so otherwise.
        assert_eq!(value.0.with(|value| unsafe { *value }), 7);
        assert_eq!(note, 7);
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
