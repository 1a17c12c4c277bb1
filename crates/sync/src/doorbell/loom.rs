//! No interleaving of ringers and sleeper loses a wake-up.
//!
//! What this does not cover: timeouts (a model has no clock, here a park ends only by a ring, so a lost wake-up is a
//! deadlock that loom reports); more than three preemptions per schedule; more than two ringers; the thread handle's
//! `OnceLock`, which is `std`'s and which loom does not see into.

use super::*;
use crate::primitive::{Unless, Weakness, caught, explore};
use crate::ring::items::{ItemConsumer, ItemProducer};

/// Bell and sleeper, who may deadlock.
fn doorbell() -> (Unless<Doorbell>, Unless<Sleeper>) {
    let (bell, sleeper) = super::doorbell();
    (Unless::panicking(bell), Unless::panicking(sleeper))
}

/// A ring between two who may deadlock.
fn items<T: Send>(capacity: usize) -> (Unless<ItemProducer<T>>, Unless<ItemConsumer<T>>) {
    let (producer, consumer) = crate::ring::items::items(capacity);
    (Unless::panicking(producer), Unless::panicking(consumer))
}

/// Two items, each announced by its own ring; the consumer sleeps whenever it sees none.
fn stream() {
    let (bell, sleeper) = doorbell();
    let (mut producer, mut consumer) = items(2);
    let ringer = ::loom::thread::spawn(move || {
        for i in 0..2u32 {
            producer.push(i).expect("room");
            bell.ring();
        }
    });
    for i in 0..2u32 {
        let item = loop {
            match consumer.pop() {
                Some(item) => break item,
                None => _ = sleeper.park(None, || !consumer.is_empty()),
            }
        };
        assert_eq!(item, i);
    }
    ringer.join().expect("no panic");
}

/// Two ringers with work of their own: the sleeper finds both pieces, whoever of the two woke it.
fn two_ringers() {
    let (bell, sleeper) = doorbell();
    let (mut one, mut from_one) = items(1);
    let (mut two, mut from_two) = items(1);
    let second_bell = Unless::panicking((*bell).clone());
    let first = ::loom::thread::spawn(move || {
        one.push(1u32).expect("room");
        bell.ring();
    });
    let second = ::loom::thread::spawn(move || {
        two.push(2u32).expect("room");
        second_bell.ring();
    });
    let mut sum = 0;
    while sum != 3 {
        sum += from_one.pop().unwrap_or(0) + from_two.pop().unwrap_or(0);
        if sum != 3 {
            sleeper.park(None, || !from_one.is_empty() || !from_two.is_empty());
        }
    }
    first.join().expect("no panic");
    second.join().expect("no panic");
}

/// Known broken: looks for work before the flag is up, and not after.
fn looks_too_early() {
    let (bell, sleeper) = doorbell();
    let (mut producer, consumer) = items(1);
    let ringer = ::loom::thread::spawn(move || {
        producer.push(1u32).expect("room");
        bell.ring();
    });
    if consumer.is_empty() {
        sleeper.park(None, || false);
    }
    ringer.join().expect("no panic");
}

#[test]
fn no_wake_up_is_lost() {
    for model in [stream, two_ringers] {
        let schedules = explore(model);
        assert!(schedules > 1, "only {schedules} schedule was explored");
    }
}

#[test]
fn a_missing_fence_is_caught() {
    caught(Weakness::NoAnnounceFence, "deadlock", stream);
}

#[test]
fn a_look_before_the_announcement_is_caught() {
    caught(Weakness::None, "deadlock", looks_too_early);
}
