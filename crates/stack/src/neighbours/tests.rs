//! A waiting room, in which nobody is left.

use super::*;

fn hop(number: usize) -> Address {
    Address::from_v4([10, 0, (number >> 8) as u8, number as u8])
}

fn at(ms: u64) -> Instant {
    Instant::ZERO.after_us(ms * 1_000)
}

fn full(now: Instant) -> WaitingRoom {
    let mut room = WaitingRoom::default();
    for number in 0..HOPS_MAX {
        assert_eq!(room.wait(hop(number), b"packet", now), Wait::Ask);
    }
    room
}

#[test]
fn three_packets_wait_and_the_hop_is_asked_for_once_a_second() {
    let mut room = WaitingRoom::default();
    assert_eq!(room.wait(hop(1), b"1", at(0)), Wait::Ask);
    assert_eq!(room.wait(hop(1), b"2", at(500)), Wait::Asked);
    assert_eq!(room.wait(hop(1), b"3", at(1_000)), Wait::Ask);
    assert_eq!(room.wait(hop(1), b"4", at(1_500)), Wait::Full { ask: false });
    assert_eq!(room.wait(hop(1), b"4", at(2_000)), Wait::Full { ask: true });
    let settled = room.settle(|_| Some(true));
    assert_eq!(settled, vec![(hop(1), vec![b"1".to_vec(), b"2".to_vec(), b"3".to_vec()], true)]);
    assert_eq!(room.poll_timeout(), None, "nothing waits, and nothing is due");
}

/// Nobody may ever say that a hop did not answer: its news was lost, or it was forgotten while it was asked.
#[test]
fn who_is_never_heard_of_is_given_up() {
    let mut room = WaitingRoom::default();
    let _ = room.wait(hop(1), b"1", at(0));
    let _ = room.wait(hop(2), b"2", at(1_000));
    let _ = room.wait(hop(1), b"3", at(3_000));
    assert_eq!(room.on_timeout(at(3_999)), 0);
    assert_eq!(room.poll_timeout(), Some(at(4_000)));
    assert_eq!(room.on_timeout(at(4_000)), 2, "both of the first");
    assert_eq!(room.poll_timeout(), Some(at(5_000)));
    assert_eq!(room.settle(|_| Some(true)).len(), 1, "and the other still waits");
}

#[test]
fn strangers_whom_nobody_answers_for_make_room_after_a_second() {
    let mut room = full(at(0));
    let neighbour = hop(1_000);
    assert_eq!(room.wait(neighbour, b"packet", at(999)), Wait::Crowded);
    assert_eq!(room.make_room(at(999)), 0);
    assert_eq!(room.make_room(at(1_000)), 1);
    assert_eq!(room.wait(neighbour, b"packet", at(1_000)), Wait::Ask);
    assert_eq!(room.wait(hop(0), b"packet", at(1_000)), Wait::Crowded, "the oldest went");
    assert_eq!(room.wait(hop(1), b"packet", at(1_000)), Wait::Ask, "and only it");
}
