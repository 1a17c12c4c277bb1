use super::*;
use crate::epoch::Domain;
use std::sync::atomic::AtomicUsize;

fn at(value: u32) -> RcuRef {
    RcuRef(AtomicU32::new(value))
}

#[test]
fn references_are_counted_down_to_the_last() {
    let (domain, _limbo) = Domain::new(0);
    let guard = domain.guard();
    let count = RcuRef::new(1);
    assert!(count.get() && count.get());
    assert_eq!(count.read(), 3);
    assert!(!count.put(&guard.pin()) && !count.put(&guard.pin()));
    assert!(!count.is_dead() && count.read() == 1);
    assert!(count.put(&guard.pin()));
    assert!(count.is_dead() && count.read() == 0);
    assert!(!count.get() && count.is_dead());
}

#[test]
fn the_last_put_can_be_overtaken_by_a_get() {
    let (domain, _limbo) = Domain::new(0);
    let guard = domain.guard();
    // Another's put has come as far as NOREF, and has not yet declared it dead.
    let count = at(NOREF);
    assert_eq!((count.read(), count.is_dead()), (0, false));
    assert!(count.get());
    assert_eq!(count.read(), 1);
    assert!(count.put(&guard.pin()), "the reviver's is now the last");
}

#[test]
fn a_dead_one_stays_dead_however_often_it_is_asked_for() {
    let count = at(DEAD);
    for _ in 0..1_000 {
        assert!(!count.get());
    }
    assert!(count.is_dead());
    // As many at once as fit between the marker and the edge of its zone cannot revive it.
    let edge = at(NOREF - 1);
    assert!(!edge.get(), "NOREF is reached by a get only out of the dead zone");
    assert!(edge.is_dead());
}

#[test]
fn too_many_references_leak_and_are_never_freed() {
    let (domain, _limbo) = Domain::new(0);
    let guard = domain.guard();
    let count = RcuRef::new(MAXREF + 1);
    assert!(count.get(), "saturated, but alive");
    for _ in 0..1_000 {
        assert!(!count.put(&guard.pin()));
    }
    assert!(count.get() && !count.is_dead());
}

#[test]
#[cfg_attr(debug_assertions, should_panic(expected = "that nobody had"))]
fn one_put_too_many_is_said_aloud() {
    let (domain, _limbo) = Domain::new(0);
    let count = at(DEAD);
    assert!(!count.put(&domain.guard().pin()));
    assert!(count.is_dead());
}

#[test]
#[should_panic(expected = "begins with")]
fn nothing_is_not_a_beginning() {
    let _ = RcuRef::new(0);
}

#[test]
fn of_many_threads_one_is_told() {
    const THREADS: usize = 4;
    for _ in 0..200 {
        let (domain, _limbo) = Domain::new(0);
        let count = RcuRef::new(THREADS as u32);
        let told = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let guard = domain.guard();
                    for _ in 0..100 {
                        assert!(count.get());
                        assert!(!count.put(&guard.pin()));
                    }
                    told.fetch_add(usize::from(count.put(&guard.pin())), Relaxed);
                });
            }
        });
        assert_eq!((told.load(Relaxed), count.read(), count.is_dead()), (1, 0, true));
    }
}
