//! No interleaving of an owner, a stand-in and a ringer loses work, or has two of them at it.
//!
//! What this does not cover: timeouts (a model has no clock; an owner that wakes by itself is one that asks for its duty right
//! after it went to sleep); more than three preemptions per schedule; more than one stand-in and one ringer at a time.

use super::*;
use crate::primitive::{Arc, RACE, Thread, UnsafeCell, Weakness, caught, current_thread, explore, park};
use crate::ring::items::{ItemConsumer, ItemProducer, items};

/// What whoever has the duty works on.
struct Body {
    from: Vec<ItemConsumer<u32>>,
    sum: u32,
}

struct Lane {
    duty: Duty,
    body: UnsafeCell<Body>,
    all: u32,
    broken: bool,
}

// SAFETY: the body is touched by whoever has the duty, which is what the model checks.
unsafe impl Send for Lane {}
// SAFETY: as above.
unsafe impl Sync for Lane {}

impl Lane {
    /// `n` parties that bring one item each.
    fn new(n: u32, broken: bool) -> (Arc<Lane>, Vec<ItemProducer<u32>>) {
        let (producers, from): (Vec<_>, Vec<_>) = (0..n).map(|_| items(1)).unzip();
        let body = UnsafeCell::new(Body { from, sum: 0 });
        let lane = Lane { duty: Duty::new(), body, all: n, broken };
        (Arc::new(lane), producers)
    }

    /// One turn: whether it found something, and whether all has come.
    fn turn(&self) -> (bool, bool) {
        self.body.with_mut(|body| {
            // SAFETY: the caller has the duty.
            let body = unsafe { &mut *body };
            let found: u32 = body.from.iter_mut().filter_map(ItemConsumer::pop).sum();
            body.sum += found;
            (found > 0, body.sum == self.all)
        })
    }

    /// The owner, until everything was done, by whomever. With `impatient` it wakes by itself as soon as it sleeps.
    fn own(&self, impatient: bool) {
        loop {
            if self.turn().1 {
                return;
            }
            self.duty.announce();
            let (found, all) = self.turn();
            if found || all {
                self.duty.stay();
                continue;
            }
            if self.duty.sleep() {
                if !impatient {
                    while !self.duty.is_owners() {
                        park(None);
                    }
                }
                while !self.duty.resume() {
                    park(None);
                }
                if impatient {
                    crate::primitive::yield_now();
                }
            }
        }
    }

    fn stand_in(&self, owner: &Thread) {
        if self.duty.relieve() != Relief::Taken {
            return;
        }
        loop {
            if self.turn().1 {
                // The model ends here, and its owner must learn of it.
                self.duty.hand_over();
                return owner.unpark();
            }
            if self.broken {
                // Known broken: leaves without looking whether more has come.
                self.duty.0.store(ASLEEP, order::publish());
                return;
            }
            match self.duty.leave() {
                Left::Asleep => return,
                Left::Again => {}
                Left::Owed => return owner.unpark(),
            }
        }
    }

    fn ring(&self, owner: &Thread) {
        if self.duty.ring() {
            owner.unpark();
        }
    }
}

fn model(stands_in: [bool; 2], impatient: bool, broken: bool) {
    let (lane, producers) = Lane::new(2, broken);
    let owner = current_thread();
    let threads: Vec<_> = producers
        .into_iter()
        .zip(stands_in)
        .map(|(mut producer, stands_in)| {
            let (lane, owner) = (lane.clone(), owner.clone());
            ::loom::thread::spawn(move || {
                producer.push(1).expect("room");
                if stands_in { lane.stand_in(&owner) } else { lane.ring(&owner) }
            })
        })
        .collect();
    lane.own(impatient);
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
}

fn one_stands_in_and_one_rings() {
    model([true, false], false, false);
}

fn both_stand_in() {
    model([true, true], false, false);
}

fn the_owner_wakes_by_itself() {
    model([true, false], true, false);
}

fn leaves_without_an_exchange() {
    model([true, false], false, true);
}

#[test]
fn no_work_is_lost_and_none_is_done_by_two() {
    for model in [one_stands_in_and_one_rings, both_stand_in, the_owner_wakes_by_itself] {
        let schedules = explore(model);
        assert!(schedules > 1, "only {schedules} schedule was explored");
    }
}

#[test]
fn a_missing_fence_is_caught() {
    caught(Weakness::NoAnnounceFence, "deadlock", one_stands_in_and_one_rings);
}

#[test]
fn an_exchange_that_hands_nothing_over_is_caught() {
    caught(Weakness::ExchangeRelaxed, RACE, one_stands_in_and_one_rings);
}

#[test]
fn a_stand_in_that_leaves_without_looking_is_caught() {
    caught(Weakness::None, "deadlock", leaves_without_an_exchange);
}
