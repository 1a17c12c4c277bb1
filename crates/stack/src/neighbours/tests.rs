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
        assert_eq!(room.wait(hop(number), b"packet", false, now), Wait::Ask);
    }
    room
}

#[test]
fn the_oldest_makes_room_and_the_hop_is_asked_for_once_a_second() {
    let mut room = WaitingRoom::default();
    let packet = |number: u8| vec![number; HOP_BYTES_MAX / 3 - OVERHEAD];
    assert_eq!(room.wait(hop(1), &packet(1), false, at(0)), Wait::Ask);
    assert_eq!(room.wait(hop(1), &packet(2), false, at(500)), Wait::Asked);
    assert_eq!(room.wait(hop(1), &packet(3), true, at(1_000)), Wait::Ask);
    assert_eq!(room.wait(hop(1), &packet(4), true, at(1_500)), Wait::Full { ask: false });
    assert_eq!(room.wait(hop(1), &packet(4), true, at(2_000)), Wait::Full { ask: true });
    assert_eq!(room.take_pushed_out(), 0, "who keeps his packet pushes nobody out");
    assert_eq!(room.wait(hop(1), &packet(5), false, at(2_500)), Wait::Asked);
    assert_eq!((room.take_pushed_out(), room.take_pushed_out()), (1, 0));
    let [(next_hop, packets, true)] = &room.settle(|_| Some(true))[..] else { panic!("one next hop can be reached") };
    assert_eq!((*next_hop, packets.iter().map(|packet| packet[0]).collect()), (hop(1), vec![2, 3, 5]));
    assert_eq!(room.poll_timeout(), None, "nothing waits, and nothing is due");
}

/// Anybody can have long answers sent to as many hosts as he has names for, and what that costs must not depend on him.
#[test]
fn what_strangers_make_us_keep_is_bounded_and_takes_nothing_from_a_neighbour() {
    for len in [1_500, 40, 65_535] {
        let (mut room, neighbour) = (WaitingRoom::default(), hop(1_000));
        // A neighbour's share, which came first.
        for _ in 0..5 {
            let _ = room.wait(neighbour, &[7; 1_500], false, at(0));
        }
        let mut pushed_out = 0;
        for round in 0..2 * BYTES_MAX / (len + OVERHEAD) {
            let _ = room.wait(hop(round % (HOPS_MAX - 1)), &vec![0; len], false, at(0));
            assert!(room.bytes() <= BYTES_MAX);
            pushed_out += room.take_pushed_out();
        }
        assert!(room.hops.iter().all(|waiting| waiting.bytes == waiting.packets.iter().map(|p| cost(p)).sum()));
        let waits: usize = room.hops.iter().map(|waiting| waiting.packets.len()).sum();
        assert_eq!(waits + pushed_out, 5 + 2 * BYTES_MAX / (len + OVERHEAD), "each waits or is counted");
        assert!(pushed_out > 0 && room.bytes() > BYTES_MAX - 65_535 - OVERHEAD, "{len}");
        let settled = room.settle(|hop| (*hop == neighbour).then_some(true));
        assert_eq!(settled[0].1.iter().map(Vec::len).collect::<Vec<_>>(), [1_500; 5], "{len}");
    }
}

/// Many small packets for one next hop after the other: the places of those that have gone are given back.
#[test]
fn nothing_is_kept_for_packets_that_were_pushed_out() {
    let mut room = WaitingRoom::default();
    for number in 0..HOPS_MAX {
        // Its share of all, so that it takes from all others and nothing from itself.
        let packets = (BYTES_MAX / (number + 1)).min(HOP_BYTES_MAX) / (40 + OVERHEAD);
        (0..packets).for_each(|_| _ = room.wait(hop(number), &[0; 40], false, at(0)));
    }
    let of_each = |count: fn(&Waiting) -> usize| room.hops.iter().map(count).sum::<usize>();
    let (places, waits) = (of_each(|waiting| waiting.packets.capacity()), of_each(|waiting| waiting.packets.len()));
    assert!(waits > 15_000 && places <= 4 * waits, "{places} places for {waits} packets");
}

/// One who has lost all to others is waited for no less, and makes room like anybody.
#[test]
fn a_hop_for_which_nothing_is_left_makes_room() {
    let mut room = full(at(0));
    assert!(room.hops[0].drop_oldest());
    assert!(!room.hops[0].drop_oldest());
    assert_eq!(room.make_room(at(1_000)), Some(0));
    assert_eq!(room.wait(hop(1_000), b"packet", false, at(1_000)), Wait::Ask);
}

/// Nobody may ever say that a hop did not answer: its news was lost, or it was forgotten while it was asked.
#[test]
fn who_is_never_heard_of_is_given_up() {
    let mut room = WaitingRoom::default();
    let _ = room.wait(hop(1), b"1", false, at(0));
    let _ = room.wait(hop(2), b"2", false, at(1_000));
    let _ = room.wait(hop(1), b"3", false, at(3_000));
    assert!(room.on_timeout(at(3_999)).is_empty());
    assert_eq!(room.poll_timeout(), Some(at(4_000)));
    assert_eq!(room.on_timeout(at(4_000)).len(), 2, "both of the first");
    assert_eq!(room.poll_timeout(), Some(at(5_000)));
    assert_eq!(room.settle(|_| Some(true)).len(), 1, "and the other still waits");
}

#[test]
fn strangers_whom_nobody_answers_for_make_room_after_a_second() {
    let mut room = full(at(0));
    let neighbour = hop(1_000);
    assert_eq!(room.wait(neighbour, b"packet", false, at(999)), Wait::Crowded);
    assert_eq!(room.make_room(at(999)), None);
    assert_eq!(room.make_room(at(1_000)), Some(1));
    assert_eq!(room.wait(neighbour, b"packet", false, at(1_000)), Wait::Ask);
    assert_eq!(room.wait(hop(0), b"packet", false, at(1_000)), Wait::Crowded, "the oldest went");
    assert_eq!(room.wait(hop(1), b"packet", false, at(1_000)), Wait::Ask, "and only it");
}
