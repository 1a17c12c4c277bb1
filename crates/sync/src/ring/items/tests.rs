use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::Arc;

#[derive(Clone, Debug)]
enum Step {
    Stage,
    Publish,
    Push,
    Pop,
    Peek,
    Drain(usize),
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: if cfg!(miri) { 4 } else { 256 }, ..Default::default() })]

    /// Against two queues: what is staged and what is published.
    #[test]
    fn behaves_as_a_queue(
        steps in prop::collection::vec(
            prop_oneof![
                Just(Step::Stage), Just(Step::Publish), Just(Step::Push),
                Just(Step::Pop), Just(Step::Peek), (0usize..6).prop_map(Step::Drain),
            ],
            1..if cfg!(miri) { 30 } else { 300 },
        ),
        capacity in 1usize..9,
        start in prop::sample::select(vec![0u32, u32::MAX, u32::MAX - 5]),
    ) {
        let (mut producer, mut consumer) = items_from::<Box<u32>>(capacity, start);
        let capacity = producer.capacity();
        let (mut staged, mut published) = (VecDeque::new(), VecDeque::new());
        let mut next = 0;
        for step in steps {
            let full = staged.len() + published.len() == capacity;
            match step {
                Step::Stage | Step::Push => {
                    let push = matches!(step, Step::Push);
                    let outcome = if push {
                        producer.push(Box::new(next))
                    } else {
                        producer.stage(Box::new(next))
                    };
                    prop_assert_eq!(outcome.is_err(), full);
                    if outcome.is_ok() {
                        staged.push_back(Box::new(next));
                    }
                    if push {
                        published.append(&mut staged);
                    }
                    next += 1;
                }
                Step::Publish => {
                    producer.publish();
                    published.append(&mut staged);
                }
                Step::Pop => prop_assert_eq!(consumer.pop(), published.pop_front()),
                Step::Peek => prop_assert_eq!(consumer.peek(), published.front()),
                Step::Drain(max) => {
                    let mut got = Vec::new();
                    let n = consumer.drain(max, |item| got.push(item));
                    prop_assert_eq!(n, max.min(published.len()));
                    prop_assert_eq!(got, published.drain(..n).collect::<Vec<_>>());
                }
            }
            prop_assert_eq!(consumer.is_empty(), published.is_empty());
            prop_assert_eq!(producer.is_drained(), published.is_empty() && staged.is_empty());
        }
    }
}

#[test]
fn what_nobody_took_is_dropped_once() {
    let item = Arc::new(());
    let (mut producer, mut consumer) = items(8);
    for _ in 0..6 {
        producer.push(item.clone()).expect("room");
    }
    producer.stage(item.clone()).expect("room");
    drop(consumer.pop());
    drop(consumer);
    assert!(producer.is_closed());
    drop(producer);
    assert_eq!(Arc::strong_count(&item), 1);
}

#[test]
fn a_panicking_drain_neither_loses_nor_doubles() {
    let item = Arc::new(());
    let (mut producer, mut consumer) = items(8);
    for _ in 0..6 {
        producer.push(item.clone()).expect("room");
    }
    let mut taken = 0;
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        consumer.drain(8, |_| {
            taken += 1;
            assert!(taken < 3, "on purpose");
        })
    }));
    assert!(outcome.is_err());
    assert_eq!(Arc::strong_count(&item), 1 + 6 - 3);
    assert_eq!(consumer.drain(8, drop), 3);
    assert_eq!(Arc::strong_count(&item), 1);
}

#[test]
fn two_threads_keep_the_order() {
    let count = if cfg!(miri) { 300 } else { 500_000u32 };
    let (mut producer, mut consumer) = items(64);
    let writer = std::thread::spawn(move || {
        for i in 0..count {
            let mut item = Box::new(i);
            while let Err(back) = producer.push(item) {
                item = back;
                std::thread::yield_now();
            }
        }
    });
    let mut next = 0;
    while next < count {
        let n = consumer.drain(16, |item| {
            assert_eq!(*item, next);
            next += 1;
        });
        if n == 0 {
            std::thread::yield_now();
        }
    }
    writer.join().expect("the writer does not panic");
    assert!(consumer.is_closed() && consumer.pop().is_none());
}
