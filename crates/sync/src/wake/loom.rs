//! No work is forgotten, whoever looks when; a sleeper that waits for space is woken.
//!
//! What this does not cover: more than three preemptions per schedule; more than two producers; timeouts. A sleeper is a
//! thread that parks, and a lost wake-up a deadlock that loom reports.

use super::*;
use crate::primitive::{Unless, Weakness, caught, explore};

/// When the consumer of a model clears SCHEDULED.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Clears {
    BeforeReading,
    AfterReading,
    /// It was kept, and is released between two looks.
    BetweenReadings,
}

/// Two pieces of work for one item. The consumer looks until the list is empty and the producer has ended; then all of the
/// work must have been seen.
fn two_pieces(clears: Clears) {
    let (list, mut woken) = wake_list::<Job<AtomicU32>>();
    let job = Arc::new(Job::new(AtomicU32::new(0)));
    let theirs = job.clone();
    let producer = ::loom::thread::spawn(move || {
        for work in 1..=2 {
            theirs.store(work, Relaxed);
            list.push(&theirs);
        }
        list
    });
    let mut seen = 0;
    let mut look = |woken: &mut Woken<Job<AtomicU32>>| {
        while let Some(item) = woken.next() {
            if clears == Clears::BeforeReading {
                item.flags().clear();
            }
            seen = item.load(Relaxed);
            if clears != Clears::BeforeReading {
                release(&*item);
            }
            if clears == Clears::BetweenReadings {
                seen = item.load(Relaxed);
            }
        }
    };
    look(&mut woken);
    let list = producer.join().expect("no panic");
    look(&mut woken);
    drop(list);
    assert_eq!(seen, 2, "work that nobody looked at");
}

/// Two producers push items of their own at the same time.
fn two_producers() {
    let (list, mut woken) = wake_list::<Job<AtomicU32>>();
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let list = list.clone();
            ::loom::thread::spawn(move || {
                let job = Arc::new(Job::new(AtomicU32::new(0)));
                job.store(1, Relaxed);
                list.push(&job);
            })
        })
        .collect();
    let mut sum = 0;
    sum += woken.pop().map_or(0, |job| job.load(Relaxed));
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    while let Some(job) = woken.pop() {
        sum += job.load(Relaxed);
    }
    assert_eq!(sum, 2);
}

/// When the sleeper of a model looks for space again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Looks {
    AgainAfterWanting,
    OnlyBefore,
}

/// One waits for space, the other makes some.
fn want_space(looks: Looks) {
    const SPACE: u32 = 1;
    let shared = Unless::panicking(Arc::new((Flags::default(), AtomicU32::new(0))));
    let sleeper = ::loom::thread::current();
    let theirs = Unless::panicking((*shared).clone());
    // Not joined: loom takes an unpark that meets a join for the join's own.
    ::loom::thread::spawn(move || {
        let (flags, space) = &**theirs;
        space.store(1, Relaxed);
        look_fence();
        if flags.take(SPACE) == SPACE {
            sleeper.unpark();
        }
    });
    let (flags, space) = &**shared;
    while space.load(Relaxed) == 0 {
        flags.want(SPACE);
        if looks == Looks::AgainAfterWanting && space.load(Relaxed) != 0 {
            break;
        }
        ::loom::thread::park();
    }
}

/// An item that can push itself, and so holds its list.
struct Own(WakeList<Job<Own>>);

/// How the consumer of a model leaves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaves {
    TheListClosed,
    TheListEmpty,
}

/// The consumer leaves while an item is pushed. Whatever came first, nobody but its owner holds the item then.
fn leave(leaves: Leaves) {
    let (list, woken) = wake_list::<Job<Own>>();
    let job = Unless::panicking(Arc::new(Job::new(Own(list))));
    let theirs = Unless::panicking((*job).clone());
    let producer = ::loom::thread::spawn(move || {
        theirs.0.push(&theirs);
    });
    match leaves {
        Leaves::TheListClosed => drop(woken),
        Leaves::TheListEmpty => {
            free(woken.head.take_all());
            std::mem::forget(woken);
        }
    }
    producer.join().expect("no panic");
    assert_eq!(Arc::strong_count(&job), 1, "an item on a list that nobody takes from");
}

#[test]
fn nothing_is_forgotten() {
    let models = [
        || two_pieces(Clears::BeforeReading),
        || two_pieces(Clears::BetweenReadings),
        two_producers,
        || want_space(Looks::AgainAfterWanting),
        || leave(Leaves::TheListClosed),
    ];
    for model in models {
        let schedules = explore(model);
        assert!(schedules > 1, "only {schedules} schedule was explored");
    }
}

#[test]
#[should_panic(expected = "work that nobody looked at")]
fn clearing_after_reading_is_caught() {
    explore(|| two_pieces(Clears::AfterReading));
}

#[test]
#[should_panic(expected = "an item on a list that nobody takes from")]
fn a_list_that_is_left_empty_is_caught() {
    explore(|| leave(Leaves::TheListEmpty));
}

#[test]
fn a_relaxed_flag_is_caught() {
    caught(Weakness::ExchangeRelaxed, "work that nobody looked at", || two_pieces(Clears::BeforeReading));
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_want_that_is_not_looked_at_again_is_caught() {
    explore(|| want_space(Looks::OnlyBefore));
}

#[test]
fn a_want_without_its_fence_is_caught() {
    caught(Weakness::NoAnnounceFence, "deadlock", || want_space(Looks::AgainAfterWanting));
}
