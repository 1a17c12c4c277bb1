use super::*;
use crate::site;
use std::sync::Arc;

#[test]
fn a_bucket_has_its_line_for_itself() {
    assert_eq!(size_of::<Bucket<[u8; 60]>>(), 64);
    assert_eq!(size_of::<Bucket<[u8; 61]>>(), 128);
    let pair = [Bucket::<u32>::new("pair", 0), Bucket::new("pair", 1)];
    assert_eq!((&raw const pair[1]).addr() - (&raw const pair[0]).addr(), 64);
}

#[test]
fn whoever_has_it_is_alone() {
    let value = Arc::new(Lock::<(u64, u64)>::new("pair", (0, 0)));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let value = Arc::clone(&value);
            std::thread::spawn(move || {
                for _ in 0..2_000 {
                    let mut pair = value.lock(site!("add"));
                    pair.0 += 1;
                    pair.1 += 1;
                    assert_eq!(pair.0, pair.1);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    assert_eq!(*value.lock(site!("look")), (8_000, 8_000));
}

#[test]
fn a_held_lock_is_refused_and_a_dropped_guard_frees_it() {
    let mut value = Lock::<u8>::new("byte", 1);
    let guard = value.lock(site!("hold"));
    assert!(value.try_lock(site!("try")).is_none());
    drop(guard);
    *value.try_lock(site!("try")).expect("free") = 2;
    assert_eq!(*value.get_mut(), 2);
}

#[test]
fn a_panic_frees_it() {
    let value = Lock::<u8>::new("byte", 1);
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _guard = value.lock(site!("panic"));
        panic!("while it is held");
    }));
    assert!(outcome.is_err() && value.try_lock(site!("after")).is_some());
}

/// What of a type is `Sync`, and `Send`, asked so that "no" is an answer too: the trait's constant counts where the type's own does not
/// apply.
struct Asked<T>(std::marker::PhantomData<T>);

trait No {
    const IS_SYNC: bool = false;
    const IS_SEND: bool = false;
}

impl<T> No for Asked<T> {}

impl<T: Sync> Asked<T> {
    const IS_SYNC: bool = true;
}

impl<T: Send> Asked<T> {
    const IS_SEND: bool = true;
}

/// A guard that is shared gives `&T` to several threads.
#[test]
fn a_guard_is_shared_only_if_its_value_may_be() {
    use std::cell::Cell;
    let answers = [
        Asked::<Lock<Cell<u32>>>::IS_SYNC,
        Asked::<Guard<u32>>::IS_SYNC,
        Asked::<Guard<Cell<u32>>>::IS_SYNC, // two threads would write the cell at once
    ];
    assert_eq!(answers, [true, true, false]);
    // It is given back where it was taken.
    assert_eq!([Asked::<Lock<u32>>::IS_SEND, Asked::<Guard<u32>>::IS_SEND], [true, false]);
}
