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
    all.forget(id, connection(3));
    assert!(all.has_room(id));
    assert_eq!((all.pop(id), all.pop(id)), (Some(connection(0)), Some(connection(1))));
    let left = all.remove(id);
    assert_eq!(left, [2].into_iter().chain(4..17).map(connection).collect::<VecDeque<_>>());
    assert!(!all.contains(id) && !all.has_room(id) && all.contains(other));
    assert_eq!(all.pop(id), None);
}
