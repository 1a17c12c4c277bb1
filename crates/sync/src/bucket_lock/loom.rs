//! No interleaving lets two in at once, or shows one of them what the other had not yet written.
//!
//! What this does not cover: more than three preemptions per schedule; more than two threads (two waiters that give way to each
//! other have no last schedule); and fairness, of which there is none.

use super::*;
use crate::primitive::{Arc, RACE, Unless, Weakness, caught, explore};
use crate::site;

/// Each adds one, by a read and a write that another could come between.
fn add_by_two() {
    let value = Unless::panicking(Arc::new(Lock::<u32>::new("counter", 0)));
    let there = Unless::panicking(Arc::clone(&value));
    let other = ::loom::thread::spawn(move || *there.lock(site!("add")) += 1);
    *value.lock(site!("add")) += 1;
    other.join().expect("no panic");
    assert_eq!(*value.lock(site!("look")), 2);
}

/// A look without waiting sees a whole value or none.
fn try_lock() {
    let value = Unless::panicking(Arc::new(Lock::<(u32, u32)>::new("pair", (0, 0))));
    let there = Unless::panicking(Arc::clone(&value));
    let writer = ::loom::thread::spawn(move || {
        let mut pair = there.lock(site!("write"));
        pair.0 = 1;
        pair.1 = 1;
    });
    if let Some(pair) = value.try_lock(site!("look")) {
        assert_eq!(pair.0, pair.1);
    }
    writer.join().expect("no panic");
}

#[test]
fn one_at_a_time() {
    for model in [add_by_two, try_lock] {
        let schedules = explore(model);
        assert!(schedules > 1, "only {schedules} schedule was explored");
    }
}

#[test]
fn a_relaxed_release_is_caught() {
    caught(Weakness::PublishRelaxed, RACE, add_by_two);
}

#[test]
fn a_relaxed_take_is_caught() {
    caught(Weakness::ObserveRelaxed, RACE, add_by_two);
}
