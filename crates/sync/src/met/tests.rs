use super::*;
use crate::bucket_lock::{BucketLock, Lock, RawLock};
use crate::counted::{CasRef, Count};
use crate::epoch::Domain;
use crate::profiled_lock::Profiled;
use crate::rw_lock::{RwLock, SpinRwLock};
use crate::site;
use std::sync::Barrier;
use std::time::Duration;

/// Runs `want` on another thread while `held` is alive here, and for 20 ms after that thread began; says what it has met.
fn of_a_waiter<G>(held: G, want: impl FnOnce() + Send) -> Met {
    let start = Barrier::new(2);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let before = here();
            start.wait();
            want();
            here().since(&before)
        });
        start.wait();
        std::thread::sleep(Duration::from_millis(20));
        drop(held);
        waiter.join().expect("no panic")
    })
}

fn of_a_lock<L: RawLock + Sync>() -> Met {
    let lock = Lock::<u32, L>::new("met", 0);
    let met = of_a_waiter(lock.lock(site!("hold")), || *lock.lock(site!("want")) += 1);
    assert_eq!(*lock.lock(site!("look")), 1);
    met
}

#[test]
fn a_wait_is_one_contended_acquisition_however_long_it_is() {
    let one = Met { contended: 1, retries: 0 };
    assert_eq!(of_a_lock::<BucketLock>(), one);
    assert_eq!(of_a_lock::<Profiled<BucketLock>>(), one, "a lock around a lock counts once");
    let list = RwLock::<u32, SpinRwLock>::new("met", 0);
    assert_eq!(of_a_waiter(list.write(site!("hold")), || assert_eq!(*list.read(site!("want")), 0)), one);
    assert_eq!(of_a_waiter(list.read(site!("hold")), || *list.write(site!("want")) += 1), one);
    let list = RwLock::<u32, Profiled<SpinRwLock>>::new("met", 0);
    assert_eq!(of_a_waiter(list.read(site!("hold")), || *list.write(site!("want")) += 1), one);
}

#[test]
fn who_meets_nobody_counts_nothing() {
    let before = here();
    let (lock, list) = (Lock::<u32>::new("alone", 0), RwLock::<u32>::new("alone", 0));
    for _ in 0..100 {
        *lock.lock(site!("alone")) += 1;
        let reading = list.read(site!("alone"));
        *reading.try_upgrade(site!("alone")).unwrap_or_else(|_| panic!("nobody else reads")) += 1;
    }
    assert!(lock.try_lock(site!("alone")).is_some());
    assert_eq!(here().since(&before), Met::default());
}

#[test]
fn retries_are_those_that_the_count_tells() {
    let (domain, _limbo) = Domain::new(2);
    let count = CasRef::one();
    let told: Vec<(u64, u64)> = std::thread::scope(|scope| {
        let counting = |_| {
            scope.spawn(|| {
                let mut seat = Domain::seat(&domain).expect("one for each");
                seat.online();
                let (before, mut told) = (here(), 0);
                for _ in 0..50_000 {
                    told += u64::from(count.get().expect("it is alive"));
                    count.put(&seat.pin());
                }
                (told, here().since(&before).retries)
            })
        };
        [0, 1].map(counting).into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    for (told, met) in told {
        assert_eq!(told, met);
    }
}
