//! All interleavings of one producer and one consumer over a ring that wraps.
//!
//! What this does not cover: more than three preemptions per schedule; more than a handful of items; real store buffers
//! of a machine weaker than loom's C11 model.

use super::*;
use crate::primitive::{RACE, Weakness, caught, explore};

/// Three items through two slots: the third waits for the first to be taken.
fn wrapping_stream() {
    let (mut producer, mut consumer) = items(2);
    let writer = ::loom::thread::spawn(move || {
        for i in 0..3u32 {
            let mut item = Box::new(i);
            while let Err(back) = producer.push(item) {
                item = back;
                ::loom::thread::yield_now();
            }
        }
    });
    for i in 0..3u32 {
        loop {
            if let Some(item) = consumer.pop() {
                assert_eq!(*item, i);
                break;
            }
            ::loom::thread::yield_now();
        }
    }
    writer.join().expect("no panic");
    assert!(consumer.is_closed());
}

/// One side goes while the other works: each item is dropped once (loom's own `Arc` reports leaks).
fn leaving() {
    let item = Arc::new(());
    let (mut producer, mut consumer) = items(4);
    let mine = item.clone();
    let writer = ::loom::thread::spawn(move || {
        producer.push(mine.clone()).expect("room");
        producer.stage(mine).expect("room");
    });
    drop(consumer.pop());
    drop(consumer);
    writer.join().expect("no panic");
    drop(item);
}

#[test]
fn items_arrive_whole_and_in_order() {
    for model in [wrapping_stream, leaving] {
        let schedules = explore(model);
        assert!(schedules > 1, "only {schedules} schedule was explored");
    }
}

#[test]
fn a_relaxed_publication_is_caught() {
    caught(Weakness::PublishRelaxed, RACE, wrapping_stream);
}

#[test]
fn a_relaxed_observation_is_caught() {
    caught(Weakness::ObserveRelaxed, RACE, wrapping_stream);
}
