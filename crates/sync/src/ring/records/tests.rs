use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;

#[derive(Clone, Debug)]
enum Step {
    Reserve { reserve: usize, keep: usize },
    Publish,
    Poll { max: usize, release: usize, out_of_turn: Vec<usize> },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0usize..140, 0usize..140).prop_map(|(a, b)| Step::Reserve { reserve: a.max(b), keep: a.min(b) }),
        2 => Just(Step::Publish),
        3 => (0usize..70, 0usize..70, prop::collection::vec(0usize..70, 0..4))
            .prop_map(|(max, release, out_of_turn)| Step::Poll { max, release, out_of_turn }),
    ];
    prop::collection::vec(step, 1..if cfg!(miri) { 30 } else { 400 })
}

/// Bytes that tell one record from another.
fn fill(bytes: &mut [u8], seed: u64) {
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = (seed as usize).wrapping_mul(31).wrapping_add(i) as u8;
    }
}

fn contents(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fill(&mut bytes, seed);
    bytes
}

#[test]
fn room_for_a_record_is_what_reserve_finds() {
    let (mut producer, mut consumer) = records(256);
    for step in 0..200usize {
        let len = step * 37 % 140;
        let has_room = producer.has_room_for(len);
        assert_eq!(producer.reserve(len).is_some(), has_room, "a record of {len} bytes, step {step}");
        if has_room {
            producer.commit(len, 0);
            producer.publish();
        }
        if step % 3 == 0 {
            let lent = consumer.poll(2);
            assert_eq!(consumer.poll_far(2), lent);
            consumer.release(lent);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: if cfg!(miri) { 4 } else { 256 }, ..Default::default() })]

    /// Against two queues: what is committed and what is published.
    #[test]
    fn behaves_as_a_queue(
        steps in steps(),
        capacity in prop::sample::select(vec![64usize, 128, 256, 512]),
        start in prop::sample::select(vec![0u32, 8, 0u32.wrapping_sub(64), 0u32.wrapping_sub(200)]),
    ) {
        let (mut producer, mut consumer) = records_from(capacity, start);
        let mut committed = VecDeque::new();
        let mut published = VecDeque::new();
        let mut next = 0u64;
        for step in steps {
            match step {
                Step::Reserve { reserve, keep } => {
                    let fits = reserve <= producer.max_record();
                    let empty = committed.is_empty() && published.is_empty();
                    match producer.reserve(reserve) {
                        Some(room) => {
                            prop_assert!(fits);
                            prop_assert_eq!(room.len(), reserve);
                            room.fill(0xee);
                            fill(&mut room[..keep], next);
                            producer.commit(keep, next);
                            committed.push_back((contents(keep, next), next));
                            next += 1;
                        }
                        None => prop_assert!(!fits || !empty, "an empty ring takes any record"),
                    }
                }
                Step::Publish => {
                    producer.publish();
                    published.append(&mut committed);
                }
                Step::Poll { max, release, out_of_turn } => {
                    let found = consumer.poll(max);
                    prop_assert_eq!(found, published.len().min(max).min(BATCH));
                    // Sometimes none of them is looked at, sometimes a few in any order, and those again.
                    let all = if out_of_turn.len() == 3 { 0 } else { found };
                    for i in out_of_turn.into_iter().filter(|i| *i < found).chain(0..all) {
                        let (bytes, meta) = &published[i];
                        prop_assert_eq!(consumer.record(i), (&bytes[..], *meta));
                    }
                    let release = release.min(found);
                    consumer.release(release);
                    published.drain(..release);
                    prop_assert_eq!(consumer.lent(), found - release);
                    for (i, (bytes, meta)) in published.iter().enumerate().take(consumer.lent()) {
                        prop_assert_eq!(consumer.record(i), (&bytes[..], *meta));
                    }
                    prop_assert_eq!(consumer.is_empty(), published.is_empty());
                    prop_assert_eq!(producer.is_drained(), published.is_empty() && committed.is_empty());
                }
            }
        }
    }
}

#[test]
fn two_threads_lose_and_change_nothing() {
    let count = if cfg!(miri) { 200 } else { 200_000u64 };
    let (mut producer, mut consumer) = records(4096);
    let writer = std::thread::spawn(move || {
        for i in 0..count {
            let len = (i * 7919 % 1400) as usize;
            loop {
                if let Some(room) = producer.reserve(len) {
                    fill(room, i);
                    producer.commit(len, i);
                    break;
                }
                producer.publish();
                std::thread::yield_now();
            }
            if i % 5 == 0 {
                producer.publish();
            }
        }
    });
    let mut next = 0;
    while next < count {
        let n = consumer.poll(17);
        for i in 0..n {
            let (bytes, meta) = consumer.record(i);
            assert_eq!(meta, next);
            assert_eq!(bytes.len(), (next * 7919 % 1400) as usize);
            if next % 16 == 0 {
                assert_eq!(bytes, contents(bytes.len(), meta));
            }
            next += 1;
        }
        consumer.release(n);
        if n == 0 {
            std::thread::yield_now();
        }
    }
    writer.join().expect("the writer does not panic");
    assert!(consumer.is_closed());
    assert_eq!(consumer.poll(1), 0);
}

#[test]
fn committed_records_survive_their_producer() {
    let (mut producer, mut consumer) = records(256);
    producer.reserve(3).expect("room").copy_from_slice(b"abc");
    producer.commit(3, 1);
    assert_eq!(consumer.poll(8), 0, "not yet published");
    drop(producer);
    assert!(consumer.is_closed());
    assert_eq!(consumer.poll(8), 1);
    assert_eq!(consumer.record(0), (&b"abc"[..], 1));
}

#[test]
fn the_producer_learns_that_nobody_listens() {
    let (producer, consumer) = records(256);
    assert!(!producer.is_closed());
    drop(consumer);
    assert!(producer.is_closed());
}

#[test]
fn a_record_longer_than_half_of_the_ring_is_refused() {
    let (mut producer, _consumer) = records(1024);
    assert_eq!(producer.max_record(), 1024 / 2 - 16);
    assert!(producer.reserve(producer.max_record() + 1).is_none());
    assert!(producer.reserve(usize::MAX).is_none());
    assert!(producer.reserve(producer.max_record()).is_some());
}

#[test]
fn a_second_reservation_replaces_the_first() {
    let (mut producer, mut consumer) = records(128);
    for _ in 0..5 {
        producer.reserve(40).expect("room").fill(1);
        producer.reserve(2).expect("room").fill(2);
        producer.commit(2, 9);
        producer.publish();
        assert_eq!(consumer.poll(8), 1);
        assert_eq!(consumer.record(0), (&[2, 2][..], 9));
        consumer.release(1);
    }
}

#[test]
#[should_panic(expected = "commit without a reservation")]
fn a_commit_needs_a_reservation() {
    records(64).0.commit(0, 0);
}

#[test]
#[should_panic(expected = "was committed in room for")]
fn a_commit_stays_inside_its_reservation() {
    let (mut producer, _consumer) = records(1024);
    assert!(producer.reserve(4).is_some());
    producer.commit(5, 0);
}

#[test]
#[should_panic(expected = "were released and")]
fn only_what_is_lent_can_be_released() {
    records(64).1.release(1);
}

#[test]
fn what_is_reserved_can_be_asked_for_and_given_up() {
    let (mut producer, mut consumer) = records(4_096);
    assert!(producer.reserved().is_none());
    assert!(!producer.try_commit(0, 0));
    producer.reserve(10).unwrap().fill(7);
    assert_eq!(producer.reserved(), Some(&mut [7; 10][..]));
    assert!(!producer.try_commit(11, 0));
    assert!(producer.try_commit(9, 0));
    assert!(producer.reserved().is_none());
    assert!(producer.reserve(10).is_some());
    producer.give_up();
    assert!(producer.reserved().is_none());
    assert!(!producer.try_commit(10, 0));
    producer.publish();
    assert_eq!(consumer.poll(64), 1);
    assert_eq!(consumer.record(0).0, [7; 9]);
}
