//! What is freed is not being looked at, whoever comes, sleeps or moves on when.
//!
//! The value's life is a tracked cell: the reader reads it while pinned, the drop writes it, and loom reports the two
//! if nothing orders them.
//!
//! What this does not cover: more than one reader with rounds and one guard; more than three preemptions per schedule.

use super::*;
use crate::primitive::{RACE, Unless, UnsafeCell, Weakness, caught, explore};

struct Tracked(UnsafeCell<u32>);

// SAFETY: loom's cell finds the races that this allows.
unsafe impl Sync for Tracked {}

impl Tracked {
    fn new(value: u32) -> Self {
        Tracked(UnsafeCell::new(value))
    }

    fn look(&self) -> u32 {
        // SAFETY: loom tracks it.
        self.0.with(|value| unsafe { *value })
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        // SAFETY: loom tracks it.
        self.0.with_mut(|value| unsafe { *value = 99 });
    }
}

/// A reader comes online, looks, passes a round, looks, and leaves; meanwhile the value is replaced.
fn rounds() {
    let (domain, mut limbo) = Domain::new(1);
    let world = Arc::new(Published::new(&domain, Tracked::new(1)));
    let (theirs, mut seat) = (world.clone(), Domain::seat(&domain).expect("free"));
    let reader = ::loom::thread::spawn(move || {
        seat.online();
        assert!(theirs.load(&seat.pin()).look() < 3);
        seat.quiescent();
        assert!(theirs.load(&seat.pin()).look() < 3);
        seat.offline();
    });
    world.publish(Tracked::new(2), &mut limbo);
    limbo.collect();
    reader.join().expect("no panic");
    limbo.collect();
    assert_eq!((limbo.retired(), limbo.freed()), (1, 1));
}

/// A reader that is awake passes a round and then looks. Meanwhile the value is replaced: who says that he has seen the new epoch
/// must see the new value.
fn looks_after_a_round() {
    let (domain, mut limbo) = Domain::new(1);
    let world = Arc::new(Published::new(&domain, Tracked::new(1)));
    let (theirs, mut seat) = (world.clone(), Domain::seat(&domain).expect("free"));
    seat.online();
    let reader = ::loom::thread::spawn(move || {
        seat.quiescent();
        assert!(theirs.load(&seat.pin()).look() < 3);
        seat.offline();
    });
    world.publish(Tracked::new(2), &mut limbo);
    limbo.collect();
    reader.join().expect("no panic");
}

/// A reader looks, sleeps, and is awake again before the writer has seen that it slept.
fn wakes_again() {
    let (domain, mut limbo) = Domain::new(1);
    let world = Arc::new(Published::new(&domain, Tracked::new(1)));
    let theirs = world.clone();
    let mut seat = Unless::panicking(Domain::seat(&domain).expect("free"));
    seat.online();
    let reader = ::loom::thread::spawn(move || {
        assert!(theirs.load(&seat.pin()).look() < 3);
        seat.offline();
        seat.online();
        seat
    });
    world.publish(Tracked::new(2), &mut limbo);
    limbo.collect();
    drop(reader.join().expect("no panic"));
}

/// A foreign thread under a guard.
fn guarded() {
    let (domain, mut limbo) = Domain::new(0);
    let world = Arc::new(Published::new(&domain, Tracked::new(1)));
    let (theirs, there) = (world.clone(), domain.clone());
    let reader = ::loom::thread::spawn(move || {
        let guard = there.guard();
        assert!(theirs.load(&guard.pin()).look() < 3);
    });
    world.publish(Tracked::new(2), &mut limbo);
    limbo.collect();
    reader.join().expect("no panic");
    limbo.collect();
    assert_eq!(limbo.freed(), 1);
}

/// Known broken: a reader that keeps what it loaded over the end of its round. The borrow checker refuses it of `Pinned`, so
/// the round is ended behind its back.
fn keeps_over_a_round() {
    let (domain, mut limbo) = Domain::new(1);
    let world = Arc::new(Published::new(&domain, Tracked::new(1)));
    let (theirs, mut seat) = (world.clone(), Domain::seat(&domain).expect("free"));
    let reader = ::loom::thread::spawn(move || {
        seat.online();
        let pinned = seat.pin();
        let seen = theirs.load(&pinned);
        seat.word().store(seat.domain.epoch.load(order::observe()), order::publish());
        seen.look();
    });
    world.publish(Tracked::new(2), &mut limbo);
    limbo.collect();
    reader.join().expect("no panic");
}

#[test]
fn nothing_is_freed_under_a_reader() {
    for model in [rounds, looks_after_a_round, wakes_again, guarded] {
        let schedules = explore(model);
        assert!(schedules > 1, "only {schedules} schedule was explored");
    }
}

#[test]
fn a_missing_fence_is_caught() {
    caught(Weakness::NoAnnounceFence, RACE, rounds);
}

#[test]
fn an_epoch_that_comes_before_its_value_is_caught() {
    let epoch = Weakness::at("epoch/mod.rs", include_str!("mod.rs"), "epoch.store(epoch, order::publish())");
    caught(epoch, RACE, looks_after_a_round);
}

#[test]
fn a_return_that_hides_a_sleep_is_caught() {
    let statement = "self.word().store(now, order::publish());\n        order::announce_fence();";
    caught(Weakness::at("epoch/mod.rs", include_str!("mod.rs"), statement), RACE, wakes_again);
}

#[test]
fn a_relaxed_end_of_round_is_caught() {
    caught(Weakness::PublishRelaxed, RACE, rounds);
}

#[test]
fn a_reference_kept_over_a_round_is_caught() {
    caught(Weakness::None, RACE, keeps_over_a_round);
}
