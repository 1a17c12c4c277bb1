//! Profiling changes nothing about the lock beneath, and every arrival is counted once on either side.
//!
//! What this does not cover: the sums themselves, which are `std`'s atomics and which loom does not see into; the clock,
//! which stands still here.

use super::*;
use crate::bucket_lock::{BucketLock, Lock};
use crate::primitive::{Arc, RACE, Unless, Weakness, caught, explore};
use crate::site;

struct Still;

impl Clock for Still {
    fn now_ns() -> u64 {
        0
    }
}

fn add_by_two() {
    let value = Unless::panicking(Arc::new(Lock::<u32, Profiled<BucketLock, Still>>::new("model", 0)));
    let there = Unless::panicking(Arc::clone(&value));
    let other = ::loom::thread::spawn(move || *there.lock(site!("model: there")) += 1);
    *value.lock(site!("model: here")) += 1;
    other.join().expect("no panic");
    assert_eq!(*value.lock(site!("model: look")), 2);
}

#[test]
fn it_locks_as_what_it_wraps_does() {
    let schedules = explore(add_by_two);
    assert!(schedules > 1, "only {schedules} schedule was explored");
    let sum = |pick: fn(&Row) -> u64| rows().iter().filter(|row| row.why.starts_with("model:")).map(pick).sum::<u64>();
    // An arrival may still stand in a lock that nobody has given back since: never more are counted than came.
    assert!(sum(|row| row.cnt_hold) <= sum(|row| row.cnt_lock) && sum(|row| row.cnt_lock) > 0);
}

#[test]
fn a_relaxed_release_beneath_is_caught() {
    caught(Weakness::PublishRelaxed, RACE, add_by_two);
}
