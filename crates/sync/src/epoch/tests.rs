use super::*;
use std::sync::atomic::{AtomicBool, AtomicUsize};

/// Says when it is freed.
struct Canary(Arc<AtomicUsize>, u64);

impl Drop for Canary {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[test]
fn everything_retired_is_freed_once() {
    let freed = Arc::new(AtomicUsize::new(0));
    let (domain, mut limbo) = Domain::new(2);
    let world = Published::new(&domain, Canary(freed.clone(), 0));
    let mut seats = [Domain::seat(&domain).unwrap(), Domain::seat(&domain).unwrap()];
    assert!(Domain::seat(&domain).is_none());
    seats[0].online();
    for i in 1..=3 {
        world.publish(Canary(freed.clone(), i), &mut limbo);
    }
    assert_eq!((limbo.collect(), limbo.retired(), limbo.freed()), (0, 3, 0));
    seats[0].quiescent();
    assert_eq!((limbo.collect(), freed.load(Relaxed)), (3, 3));
    // A sleeper holds nobody up.
    seats[0].offline();
    world.publish(Canary(freed.clone(), 4), &mut limbo);
    assert_eq!(limbo.collect(), 1);
    // A guard does.
    let guard = domain.guard();
    let pinned = guard.pin();
    assert_eq!(world.load(&pinned).1, 4);
    world.publish(Canary(freed.clone(), 5), &mut limbo);
    assert_eq!(limbo.collect(), 0);
    drop(guard);
    assert_eq!(limbo.collect(), 1);
    assert_eq!(limbo.retired(), limbo.freed());
    drop(world);
    assert_eq!(freed.load(Relaxed), 6);
}

#[test]
fn what_limbo_leaves_is_freed_with_the_domain() {
    let freed = Arc::new(AtomicUsize::new(0));
    let (domain, mut limbo) = Domain::new(1);
    let world = Published::new(&domain, Canary(freed.clone(), 0));
    let mut seat = Domain::seat(&domain).unwrap();
    seat.online();
    world.publish(Canary(freed.clone(), 1), &mut limbo);
    drop(limbo);
    assert_eq!(freed.load(Relaxed), 0);
    drop((seat, world, domain));
    assert_eq!(freed.load(Relaxed), 2);
}

#[test]
#[should_panic(expected = "another domain")]
fn a_foreign_pin_is_refused() {
    let (ours, _limbo) = Domain::new(1);
    let (theirs, _limbo) = Domain::new(1);
    Published::new(&ours, 0).load(&theirs.guard().pin());
}

/// Only `online` has the fence without which a writer may not see who comes back.
#[test]
#[should_panic(expected = "reads nothing")]
fn the_end_of_a_round_wakes_nobody() {
    let (domain, mut limbo) = Domain::new(1);
    let world = Published::new(&domain, 0);
    let mut seat = Domain::seat(&domain).unwrap();
    seat.online();
    seat.offline();
    world.publish(1, &mut limbo); // so that there is an epoch that it has not seen
    seat.quiescent();
    world.load(&seat.pin());
}

#[test]
fn readers_see_whole_values_while_they_are_replaced() {
    const N: u64 = if cfg!(miri) { 30 } else { 20_000 };
    let (domain, mut limbo) = Domain::new(2);
    let world = Arc::new(Published::new(&domain, [0u64; 8]));
    let stop = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (world, stop, mut seat) = (world.clone(), stop.clone(), Domain::seat(&domain).unwrap());
            std::thread::spawn(move || {
                seat.online();
                let mut last = 0;
                while !stop.load(Relaxed) {
                    let value = world.load(&seat.pin())[..].to_vec();
                    assert!(value.iter().all(|v| *v == value[0]) && value[0] >= last);
                    last = value[0];
                    seat.quiescent();
                }
            })
        })
        .collect();
    for i in 1..=N {
        world.publish([i; 8], &mut limbo);
        limbo.collect();
    }
    stop.store(true, Relaxed);
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    limbo.collect();
    assert_eq!((limbo.retired(), limbo.freed()), (N, N));
}
