use super::*;
use crate::ring::items::items;

#[test]
fn work_at_hand_keeps_the_sleeper_awake() {
    let (_bell, sleeper) = doorbell();
    assert_eq!(sleeper.park(None, || true), Wake::Work);
}

#[test]
fn a_sleeper_wakes_when_its_time_is_up() {
    let (_bell, sleeper) = doorbell();
    let wake = sleeper.park(Some(Duration::from_millis(1)), || false);
    assert_eq!(wake, Wake::TimedOut);
}

#[test]
fn a_ring_before_the_sleep_is_no_debt() {
    let (bell, sleeper) = doorbell();
    bell.ring();
    let wake = sleeper.park(Some(Duration::from_millis(1)), || false);
    assert_eq!(wake, Wake::TimedOut, "its work would have been seen");
}

#[test]
fn a_ring_after_the_last_look_wakes() {
    let (bell, sleeper) = doorbell();
    let wake = sleeper.park(None, || {
        bell.ring();
        false
    });
    assert_eq!(wake, Wake::Rung);
}

#[test]
fn one_of_many_ringers_pays() {
    let flag = ParkFlag::new();
    assert!(!flag.take());
    flag.announce();
    assert!(flag.take());
    assert!(!flag.take());
    assert!(flag.was_taken() && flag.retract());
}

#[test]
fn a_stream_through_a_sleepy_consumer_arrives() {
    let count = if cfg!(miri) { 20 } else { 20_000u32 };
    let (bell, sleeper) = doorbell();
    let (mut producer, mut consumer) = items(4);
    let consumer = std::thread::spawn(move || {
        let mut next = 0;
        while next < count {
            match consumer.pop() {
                Some(item) => {
                    assert_eq!(item, next);
                    next += 1;
                }
                None => {
                    let wake = sleeper.park(Some(Duration::from_secs(60)), || !consumer.is_empty());
                    assert_ne!(wake, Wake::TimedOut, "a wake-up was lost");
                }
            }
        }
    });
    for i in 0..count {
        while producer.push(i).is_err() {
            std::thread::yield_now();
        }
        bell.ring();
    }
    consumer.join().expect("no wake-up was lost");
}
