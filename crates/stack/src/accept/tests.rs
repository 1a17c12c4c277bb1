//! Listeners that come and go on one port, each with an address of its own: whoever is left is found.

use super::*;
use crate::binding::BindOptions;

const ANY: Address = Address::UNSPECIFIED_V4;

fn address(last: u8) -> Address {
    Address::from_v4([10, 0, 0, last])
}

fn binding(address: Address) -> Binding {
    Binding { address, options: BindOptions::default(), listens: true }
}

/// Listeners on port 80 of these addresses, named by their last byte.
fn listeners(lasts: &[u8]) -> Listeners {
    let mut listeners = Listeners::default();
    for last in lasts {
        listeners.add(ListenerId((*last).into()), binding(address(*last)), 80, 1, 1);
    }
    listeners
}

#[test]
fn whoever_goes_takes_nobody_along() {
    for gone in 1..=4 {
        let mut all = listeners(&[1, 2, 3, 4]);
        assert!(all.remove(ListenerId(gone.into())).is_empty());
        for last in 1..=4 {
            let found = all.find(&address(last), 80, 0);
            assert_eq!(found, (last != gone).then_some(ListenerId(last.into())), "{last}, without {gone}");
        }
        // Its name and its place are free again.
        all.add(ListenerId(gone.into()), binding(ANY), 80, 1, 1);
        assert_eq!(all.find(&address(gone), 80, 0), Some(ListenerId(gone.into())));
        for last in (1..=4).filter(|last| *last != gone) {
            all.remove(ListenerId(last.into()));
            assert_eq!(all.find(&address(last), 80, 0), Some(ListenerId(gone.into())), "any address");
        }
        assert_eq!(all.find(&address(1), 81, 0), None);
    }
}

#[test]
fn a_queue_holds_its_share_and_goes_with_its_listener() {
    let (id, other) = (ListenerId(1), ListenerId(2));
    let mut all = listeners(&[1, 2]);
    let connection = |n| ConnId::new(n, 0);
    for n in 0..17 {
        assert!(all.has_room(id));
        all.push(id, connection(n));
    }
    assert!(!all.has_room(id) && all.has_room(other), "a backlog of 1, and 16");
    all.forget(id, |_| unreachable!("too few have ended"));
    assert!(all.has_room(id));
    all.push(id, connection(17));
    assert!(!all.has_room(id));
    assert_eq!((all.pop(id), all.pop(id)), (Some(connection(0)), Some(connection(1))));
    let left = all.remove(id);
    assert_eq!(left, (2..18).map(connection).collect::<VecDeque<_>>());
    assert!(!all.contains(id) && !all.has_room(id) && all.contains(other));
    assert_eq!(all.pop(id), None);
}

#[test]
fn places_of_those_that_have_ended_are_others_and_nobody_is_counted_twice() {
    let id = ListenerId(1);
    let mut all = listeners(&[1]);
    let queued = |all: &Listeners| all.at_or_after(1).map(|(_, listener)| listener.queued());
    // The later ones end, over and over: the queue grows with none of them.
    for n in 0..17 {
        all.push(id, ConnId::new(n, 0));
    }
    for generation in 1..1_000 {
        for n in 4..17 {
            let lives = |index, of| index < 4 || index > n && of + 1 == generation;
            all.forget(id, |connection| lives(connection.index(), connection.generation()));
        }
        assert_eq!(queued(&all), Some(4));
        for n in 4..17 {
            assert!(all.has_room(id));
            all.push(id, ConnId::new(n, generation));
        }
        assert!(!all.has_room(id));
    }
    // The first of them ends, and is met when it is its turn.
    all.forget(id, |_| unreachable!("too few have ended"));
    assert_eq!((all.pop(id), queued(&all)), (Some(ConnId::new(0, 0)), Some(15)));
    all.passed_over(id);
    assert_eq!(queued(&all), Some(16));
}

/// The peer of all that wait in a long queue ends them one by one.
#[test]
fn the_work_for_one_that_ends_does_not_grow_with_the_queue() {
    const ALL: u32 = 60_000;
    let id = ListenerId(1);
    let mut all = Listeners::default();
    all.add(id, binding(ANY), 80, ALL as usize, 1);
    (0..ALL).for_each(|n| _ = all.push(id, ConnId::new(n, 0)));
    let looks = std::cell::Cell::new(0);
    for ended in (0..ALL).rev() {
        all.forget(id, |connection| {
            looks.set(looks.get() + 1);
            connection.index() < ended
        });
    }
    assert!(looks.get() <= 2 * ALL, "{} looks for {ALL} that have ended", looks.get());
    assert_eq!(all.pop(id), None);
}
