use super::*;
use crate::profiled_lock::{Profiled, rows};
use crate::site;
use std::sync::atomic::{AtomicBool, Ordering};

fn upgrades_only_alone<L: RawRwLock + Sync>() {
    let value = RwLock::<u32, L>::new("upgraded", 1);
    let (one, two) = (value.read(site!("first reader")), value.read(site!("second reader")));
    let one = one.try_upgrade(site!("upgrade beside another")).map(drop).expect_err("another looks too");
    drop(two);
    let mut writing = one.try_upgrade(site!("upgrade alone")).map_err(drop).expect("nobody else looks");
    *writing += 1;
    assert!(value.raw.try_read(site!("look in vain")).is_none() && value.raw.try_write(site!("try in vain")).is_none());
    drop(writing);
    assert_eq!(*value.write(site!("afterwards")), 2);
}

#[test]
fn only_a_lone_reader_is_upgraded() {
    upgrades_only_alone::<SpinRwLock>();
    upgrades_only_alone::<Profiled<SpinRwLock>>();
}

#[test]
fn readers_see_whole_values_and_no_change_is_lost() {
    let pair = RwLock::<(u64, u64)>::new("pair", (0, 0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    let mut pair = pair.write(site!("write"));
                    pair.0 += 1;
                    pair.1 += 1;
                }
            });
            scope.spawn(|| {
                for _ in 0..20_000 {
                    let pair = pair.read(site!("read"));
                    assert_eq!(pair.0, pair.1);
                }
            });
        }
    });
    assert_eq!(*pair.read(site!("sum")), (40_000, 40_000));
}

/// Readers that follow on one another without a gap do not keep a writer out.
#[test]
fn a_writer_is_not_starved() {
    let value = RwLock::<u32>::new("wanted", 0);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    drop(value.read(site!("again and again")));
                }
            });
        }
        for _ in 0..100 {
            *value.write(site!("once")) += 1;
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(*value.read(site!("count")), 100);
}

#[test]
fn a_profile_tells_readers_from_the_upgrade() {
    let value = RwLock::<u32, Profiled<SpinRwLock>>::new("rw:example", 0);
    for _ in 0..3 {
        let reading = value.read(site!("profile: read"));
        drop(reading.try_upgrade(site!("profile: upgrade")).map_err(drop).expect("alone"));
    }
    drop(value.read(site!("profile: read and leave")));
    let count = |why| rows().into_iter().find(|row| row.why == why).map(|row| (row.count, row.cnt_lock));
    assert_eq!(count("profile: read"), Some((3, 0)));
    assert_eq!(count("profile: upgrade"), Some((3, 0)));
    assert_eq!(count("profile: read and leave"), Some((1, 0)));
}

/// Shares that are forgotten are never given back; their number must not grow into the bits beside it.
#[test]
fn one_reader_too_many_is_refused_and_no_writer_gets_in() {
    for readers in [READERS_MAX, WANTED - 1] {
        let lock = SpinRwLock(AtomicU32::new(readers));
        let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| lock.try_read(site!("one more"))));
        assert!(read.is_err(), "the share number {readers} was given out");
        assert!(lock.try_write(site!("beside readers")).is_none());
    }
    let lock = SpinRwLock(AtomicU32::new(READERS_MAX - 1));
    assert!(lock.try_read(site!("the last")).is_some());
}
