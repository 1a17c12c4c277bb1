use super::*;
use crate::bucket_lock::{BucketLock, Lock};
use crate::site;
use std::cell::Cell;
use std::sync::mpsc::channel;

thread_local! {
    static NOW: Cell<u64> = const { Cell::new(0) };
}

/// A clock that each test moves by hand.
struct ByHand;

impl Clock for ByHand {
    fn now_ns() -> u64 {
        NOW.get()
    }
}

fn row(why: &str) -> Row {
    rows().into_iter().find(|row| row.why == why).expect("the site was passed")
}

#[test]
fn holding_is_timed_by_site() {
    let value = Lock::<u32, Profiled<BucketLock, ByHand>>::new("by hand", 0);
    for held in [3_000, 9_000, 6_000] {
        let guard = value.lock(site!("hold for a while"));
        NOW.set(NOW.get() + held);
        drop(guard);
    }
    NOW.set(NOW.get() + 50_000); // free: not counted
    let row = row("hold for a while");
    assert_eq!((row.max_ns, row.total_ns, row.count, row.avg_ns()), (9_000, 18_000, 3, 6_000));
    assert_eq!((row.wait_max_ns, row.wait_total_ns, row.cnt_hold, row.cnt_lock), (0, 0, 0, 0));
    assert!(row.name.contains("profiled_lock/tests.rs:") && row.name.ends_with(" (by hand)"));
}

#[test]
fn a_refused_try_counts_nothing() {
    let value = Lock::<u32, Profiled<BucketLock>>::new("tried", 0);
    let guard = value.lock(site!("keep from another"));
    let tried = site!("try in vain");
    assert!(value.try_lock(tried).is_none());
    drop(guard);
    assert!(!rows().iter().any(|row| row.why == "try in vain"));
    drop(value.try_lock(tried));
    assert_eq!(row("try in vain").count, 1);
}

#[test]
fn a_wait_names_both_parties() {
    let value = Lock::<u32, Profiled<BucketLock>>::new("contended", 0);
    let (say, hear) = channel();
    std::thread::scope(|scope| {
        let guard = value.lock(site!("the holder"));
        let waiter = scope.spawn(|| {
            say.send(()).expect("heard");
            drop(value.lock(site!("the waiter")));
        });
        hear.recv().expect("said");
        // Until the waiter has been seen to wait.
        while value_arrived(&value) == 0 {
            std::thread::yield_now();
        }
        drop(guard);
        waiter.join().expect("no panic");
    });
    let (holder, waiter) = (row("the holder"), row("the waiter"));
    assert_eq!((holder.cnt_hold, holder.cnt_lock), (1, 0));
    assert_eq!((waiter.cnt_hold, waiter.cnt_lock, waiter.count), (0, 1, 1));
    assert!(waiter.wait_max_ns == waiter.wait_total_ns && holder.wait_total_ns == 0);
    let met = meetings().into_iter().find(|met| met.waiter == waiter.name).expect("they met");
    assert_eq!((met.holder, met.count, met.wait_ns), (holder.name, 1, waiter.wait_total_ns));
}

fn value_arrived(value: &Lock<u32, Profiled<BucketLock>>) -> u32 {
    value.raw().arrived.load(Relaxed)
}

#[test]
fn the_table_is_in_microseconds_and_in_the_old_order() {
    let row = Row {
        max_ns: 265_400,
        wait_max_ns: 39_477_000,
        total_ns: 4_669_994_000,
        wait_total_ns: 57_027_602_000,
        count: 840_000,
        cnt_hold: 0,
        cnt_lock: 780_171,
        name: "usrreq.c:728 (rw:info)".into(),
        why: "shutdown",
    };
    let text = Table(&[row]).to_string();
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    let columns = "max wait_max total wait_total count avg wait_avg cnt_hold cnt_lock name";
    assert_eq!(lines[0], columns.split(' ').collect::<Vec<_>>());
    assert_eq!(lines[1][..9], ["265", "39477", "4669994", "57027602", "840000", "5.6", "67", "0", "780171"]);
}

#[test]
fn threads_are_added_up() {
    let value = Lock::<u64, Profiled<BucketLock>>::new("added up", 0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..500).for_each(|_| *value.lock(site!("one of four")) += 1));
        }
    });
    let row = row("one of four");
    assert_eq!((row.count, *value.lock(site!("look"))), (2_000, 2_000));
    assert!(row.cnt_hold <= row.cnt_lock && row.max_ns <= row.total_ns);
}
