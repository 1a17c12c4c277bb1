//! Two takers and a producer whose ring comes round: each value is taken once, and no slot is written while it is copied.
//!
//! What this does not cover: more than three preemptions per schedule, more than two takers, and a position that comes
//! round in 32 bits.

use super::*;
use crate::primitive::{RACE, UnsafeCell, Weakness, caught, explore};

/// Two take what two were offered of, and a third value goes where the first was: on a thread of its own, so that it may come while
/// somebody is between his copy and his exchange.
fn two_takers() {
    fn sum_of(taken: Option<(Arc<u32>, [u64; 1])>) -> u32 {
        let Some((value, [note])) = taken else { return 0 };
        assert_eq!(u64::from(*value), note, "the note of another");
        *value
    }
    let (mut offers, takers) = handout::<Arc<u32>, 1>(2);
    offers.offer(Arc::new(1), [1]).expect("room");
    offers.offer(Arc::new(2), [2]).expect("room");
    offers.publish();
    let other = takers.clone();
    let taker = ::loom::thread::spawn(move || sum_of(other.take()));
    let producer = ::loom::thread::spawn(move || {
        let left = if offers.offer(Arc::new(4), [4]).is_err() { 4 } else { 0 };
        offers.publish();
        left
    });
    let mut sum = sum_of(takers.take());
    sum += taker.join().expect("no panic") + producer.join().expect("no panic");
    while let Some(taken) = takers.take() {
        sum += sum_of(Some(taken));
    }
    assert_eq!(sum, 7, "one was lost, or taken twice");
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

/// When the producer of a model writes a slot again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Writes {
    WhenItWasTaken,
    AtOnce,
}

/// A slot comes round. Loom runs a thread in the order of its program, so a copy that is finished only after the exchange is not to be
/// seen by what it copies: a cell stands for the slot, and is looked at and written where the slot is.
fn comes_round(writes: Writes) {
    let slot = Arc::new(Tracked(UnsafeCell::new(1)));
    let (mut offers, takers) = handout::<Arc<u32>, 0>(1);
    offers.offer(Arc::new(1), []).expect("room");
    offers.publish();
    let theirs = slot.clone();
    let taker = ::loom::thread::spawn(move || {
        // SAFETY: loom tracks it.
        theirs.0.with(|slot| unsafe { *slot });
        assert!(takers.take().is_some());
    });
    while writes == Writes::WhenItWasTaken && !offers.has_room(1) {
        ::loom::thread::yield_now();
    }
    // SAFETY: loom tracks it.
    slot.0.with_mut(|slot| unsafe { *slot = 2 });
    taker.join().expect("no panic");
}

#[test]
fn each_value_is_taken_once() {
    for model in [two_takers, arrives_whole, || comes_round(Writes::WhenItWasTaken)] {
        let schedules = explore(model);
        assert!(schedules > 1, "only {schedules} schedule was explored");
    }
}

#[test]
fn a_relaxed_publication_is_caught() {
    caught(Weakness::PublishRelaxed, "a value was offered before it was written", arrives_whole);
}

#[test]
fn a_slot_that_is_written_while_it_is_copied_is_caught() {
    caught(Weakness::None, RACE, || comes_round(Writes::AtOnce));
    for statement in ["position, next, order::exchange()", "self.taken_seen = self.shared.taken.load(order::observe())"]
    {
        let weakness = Weakness::at("handout/mod.rs", include_str!("mod.rs"), statement);
        caught(weakness, RACE, || comes_round(Writes::WhenItWasTaken));
    }
}
