//! All interleavings of one producer and one consumer over a ring that wraps.
//!
//! What this does not cover: more than three preemptions per schedule; more than a handful of records; the contents of
//! slices *while* they are held (the model sees their first and last touch, word by word, which is enough to find two
//! accesses that are not ordered); real store buffers of a machine weaker than loom's C11 model.

use super::*;
use crate::primitive::{RACE, Weakness, caught, explore};

/// Three records of 16 bytes through a ring of 64: each wraps, the third waits for the first to be released.
fn wrapping_stream() {
    let (mut producer, mut consumer) = records(64);
    let writer = ::loom::thread::spawn(move || {
        for i in 0..3u64 {
            while !producer.push(&[i as u8; 12], i) {
                ::loom::thread::yield_now();
            }
        }
    });
    let mut next = 0;
    while next < 3 {
        let n = consumer.poll(8);
        for i in 0..n {
            let (bytes, meta) = consumer.record(i);
            assert_eq!((bytes, meta), (&[next as u8; 12][..], next));
            next += 1;
        }
        consumer.release(n);
        if n == 0 {
            ::loom::thread::yield_now();
        }
    }
    writer.join().expect("no panic");
    assert!(consumer.is_closed());
}

/// Two records, one publication: the consumer sees none or both.
fn one_publication() {
    let (mut producer, mut consumer) = records(128);
    let writer = ::loom::thread::spawn(move || {
        for i in 0..2u64 {
            producer.reserve(8).expect("room").fill(i as u8);
            producer.commit(8, i);
        }
        producer.publish();
    });
    let seen = consumer.poll(8);
    assert!(seen == 0 || seen == 2, "{seen} of a batch of two");
    writer.join().expect("no panic");
    assert_eq!(consumer.poll(8), 2);
}

/// Who sees the end of the producer sees all that it published.
fn closing() {
    let (mut producer, mut consumer) = records(64);
    let writer = ::loom::thread::spawn(move || {
        producer.reserve(8).expect("room").fill(7);
        producer.commit(8, 7);
    });
    if consumer.is_closed() {
        assert_eq!(consumer.poll(8), 1);
        assert_eq!(consumer.record(0), (&[7; 8][..], 7));
    }
    writer.join().expect("no panic");
}

#[test]
fn records_arrive_whole_and_in_order() {
    for model in [wrapping_stream, one_publication, closing] {
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

#[test]
fn a_weak_end_is_caught() {
    caught(Weakness::PublishRelaxed, "left: 0\n right: 1", closing);
    caught(Weakness::ObserveRelaxed, "left: 0\n right: 1", closing);
}
