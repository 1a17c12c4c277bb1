//! Of two that conflict one gets in, whoever asks at the same time; and what is taken back is free.

use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Two conflict unless both would share.
fn unless_shared(mine: bool) -> impl FnMut(&Reservation<bool>) -> bool {
    move |other| !(mine && other.value)
}

#[test]
fn who_comes_first_keeps_others_out_until_it_goes() {
    let table = ReservationTable::with_buckets(4, |key: &&str| u64::from(key.as_bytes()[0]));
    assert_eq!(table.reserve("a", 1, false, unless_shared(false)), Ok(()));
    assert_eq!(table.reserve("a", 2, false, unless_shared(false)), Err(Conflict(1)), "though it is only pending");
    assert!(table.commit(&"a", 1) && !table.commit(&"a", 2));
    assert_eq!(table.reserve("a", 2, true, unless_shared(true)), Err(Conflict(1)));
    assert_eq!(table.reserve("b", 2, true, unless_shared(true)), Ok(()));
    assert_eq!(table.release(&"a", 2), None);
    assert_eq!(table.release(&"a", 1), Some(false));
    assert_eq!(table.reserve("a", 2, true, unless_shared(true)), Ok(()));
    assert_eq!(table.reserve("a", 3, true, unless_shared(true)), Ok(()));
    assert!(table.is_reserved(&"a") && !table.is_reserved(&"c"));
}

#[test]
fn a_holder_of_two_keys_has_two_reservations_though_they_lie_in_one_bucket() {
    let table = ReservationTable::with_buckets(1, |_| 0);
    for key in [7, 8] {
        table.reserve(key, 1, key == 7, |_| true).unwrap();
    }
    let is_pending = |key| {
        let mut pending = false;
        let _ = table.reserve(key, 2, false, |other| {
            pending = other.pending;
            true
        });
        pending
    };
    assert!(table.commit(&8, 1));
    assert_eq!((is_pending(7), is_pending(8)), (true, false));
    assert_eq!(table.release(&8, 1), Some(false));
    assert!(table.is_reserved(&7) && !table.is_reserved(&8));
}

#[test]
fn a_holder_changes_only_if_nobody_minds() {
    let table = ReservationTable::with_buckets(1, |_| 0);
    table.reserve(7, 1, true, unless_shared(true)).unwrap();
    table.reserve(7, 2, true, unless_shared(true)).unwrap();
    assert_eq!(table.change(&7, 1, |other| other.value, |mine| *mine = false), Err(Conflict(2)));
    assert_eq!(table.change(&7, 1, |_| false, |mine| *mine = false), Ok(true));
    assert_eq!(table.change(&7, 2, |other| !other.value, |_| ()), Err(Conflict(1)));
    assert_eq!(table.change(&8, 1, |_| true, |_| ()), Ok(false));
    assert_eq!(table.change(&7, 1, |_| false, |mine| *mine = true), Ok(true));
    assert_eq!(table.change(&7, 2, |_| false, |mine| *mine = false), Ok(true));
    assert_eq!((table.release(&7, 1), table.release(&7, 2)), (Some(true), Some(false)), "each has its own");
}

#[test]
fn of_many_threads_that_want_one_key_one_gets_it() {
    let table = ReservationTable::with_buckets(8, |key| u64::from(*key));
    let holders = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let (table, holders) = (&table, &holders);
            scope.spawn(move || {
                for i in 0..2_000u32 {
                    let key = i % 3;
                    if table.reserve(key, thread, false, unless_shared(false)).is_ok() {
                        if key == 0 {
                            assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "two have it");
                            holders.fetch_sub(1, Ordering::SeqCst);
                        }
                        assert_eq!(table.release(&key, thread), Some(false));
                    }
                }
            });
        }
    });
    assert!((0..3).all(|key| !table.is_reserved(&key)));
}

#[test]
fn a_key_lies_where_the_callers_hash_says() {
    let asked = std::sync::Arc::new(AtomicUsize::new(0));
    let counts = asked.clone();
    let table = ReservationTable::with_buckets(4, move |key: &u64| {
        counts.fetch_add(1, Ordering::Relaxed);
        *key
    });
    for key in 0..8 {
        table.reserve(key, 1, (), |_| true).unwrap();
    }
    assert_eq!(asked.load(Ordering::Relaxed), 8);
    let filled: Vec<Vec<u64>> =
        table.buckets.iter().map(|b| b.lock().unwrap().iter().map(|(k, _)| *k).collect()).collect();
    assert_eq!(filled, [[0, 4], [1, 5], [2, 6], [3, 7]]);
}
