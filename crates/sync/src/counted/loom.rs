//! No interleaving of [`CasRef`] frees an object under somebody's hands, or twice, or not at all; a count that comes back from
//! zero is caught, and so is a `put` without Release.
//!
//! What this does not cover: more than two threads; the grace period, which is the epoch's; [`RcuRef`], which has models of
//! its own.

use super::*;
use crate::primitive::{RACE, Unless, UnsafeCell, Weakness, caught, explore};

struct Object {
    count: CasRef,
    /// Torn down by writing: a reader that still looks is a race that loom reports.
    text: UnsafeCell<u32>,
    ends: AtomicU32,
}

fn object() -> Unless<Arc<Object>> {
    let object = Object { count: CasRef::one(), text: UnsafeCell::new(1), ends: AtomicU32::new(0) };
    Unless::panicking(Arc::new(object))
}

impl Object {
    fn look(&self) {
        // SAFETY: a reference is held; that nobody tears down meanwhile is what the model is for.
        self.text.with(|text| assert_eq!(unsafe { *text }, 1));
    }

    fn put(&self, witness: &Pinned<'_>) {
        if self.count.put(witness) {
            self.ends.fetch_add(1, Relaxed);
            // SAFETY: nobody has a reference, and nobody can get one.
            self.text.with_mut(|text| unsafe { *text = 0 });
        }
    }

    fn get(&self, from_zero: bool) -> bool {
        if from_zero {
            self.count.0.fetch_add(1, Relaxed);
            return true;
        }
        self.count.get().is_some()
    }
}

/// The witness is for the compiler: there is no memory to be freed here. It is taken before anything else, because taking it
/// orders whatever came before.
fn witnessed(then: impl FnOnce(&Pinned<'_>)) {
    let (domain, _limbo) = Domain::new(0);
    let guard = domain.guard();
    then(&guard.pin());
}

fn get_against_the_last_put(from_zero: bool) {
    let object = object();
    let there = Unless::panicking(Arc::clone(&object));
    let reader = ::loom::thread::spawn(move || {
        witnessed(|witness| {
            if there.get(from_zero) {
                there.look();
                there.put(witness);
            }
        });
    });
    witnessed(|witness| object.put(witness));
    reader.join().expect("no panic");
    assert_eq!(object.ends.load(Relaxed), 1, "torn down once");
}

#[test]
fn one_tears_down_and_after_everybody() {
    let schedules = explore(|| get_against_the_last_put(false));
    assert!(schedules > 1, "only {schedules} schedule was explored");
}

#[test]
fn a_count_that_comes_back_from_nought_is_caught() {
    caught(Weakness::None, RACE, || get_against_the_last_put(true));
}

#[test]
fn a_relaxed_put_is_caught() {
    caught(Weakness::PublishRelaxed, RACE, || get_against_the_last_put(false));
}
