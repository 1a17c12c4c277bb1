//! No interleaving lets a writer in beside anybody, loses a change, or upgrades a reader that is not alone.
//!
//! What this does not cover: more than three preemptions per schedule; more than two threads; fairness.

use super::*;
use crate::primitive::{Arc, RACE, Unless, Weakness, caught, explore};
use crate::site;

fn pair() -> (Unless<Arc<RwLock<u32>>>, Unless<Arc<RwLock<u32>>>) {
    let value = Arc::new(RwLock::<u32>::new("counter", 0));
    (Unless::panicking(Arc::clone(&value)), Unless::panicking(value))
}

fn add_by_two() {
    let (value, there) = pair();
    let other = ::loom::thread::spawn(move || *there.write(site!("add")) += 1);
    *value.write(site!("add")) += 1;
    other.join().expect("no panic");
    assert_eq!(*value.read(site!("look")), 2);
}

fn look_while_another_adds() {
    let (value, there) = pair();
    let other = ::loom::thread::spawn(move || *there.write(site!("add")) += 1);
    assert!(*value.read(site!("look")) <= 1);
    other.join().expect("no panic");
}

/// Both look, and then want to change what they saw: nobody waits for ever, and no change is lost.
fn both_upgrade() {
    fn add(value: &RwLock<u32>) {
        let reading = value.read(site!("look"));
        match reading.try_upgrade(site!("upgrade")) {
            Ok(mut writing) => *writing += 1,
            Err(reading) => {
                drop(reading);
                *value.write(site!("again")) += 1;
            }
        }
    }
    let (value, there) = pair();
    let other = ::loom::thread::spawn(move || add(&there));
    add(&value);
    other.join().expect("no panic");
    assert_eq!(*value.read(site!("sum")), 2);
}

#[test]
fn alone_or_looking() {
    for model in [add_by_two, look_while_another_adds, both_upgrade] {
        let schedules = explore(model);
        assert!(schedules > 1, "only {schedules} schedule was explored");
    }
}

#[test]
fn a_relaxed_release_is_caught() {
    caught(Weakness::PublishRelaxed, RACE, look_while_another_adds);
}

#[test]
fn a_relaxed_take_is_caught() {
    caught(Weakness::ObserveRelaxed, RACE, add_by_two);
}
