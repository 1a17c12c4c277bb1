//! Who gets a datagram, told in one walk over all sockets, and the index by port must say the same; and from which address one leaves.

use super::*;
use crate::binding::BindOptions;
use crate::snapshot::AddressSet;
use proptest::prelude::*;

/// What is said of `find`, word for word: the best rank of all; of those a member of the group, or the one that was bound last.
fn told(
    all: &[(UdpId, Binding, u16)],
    flow: &FlowKey,
    hash: u64,
    peer_is: impl Fn(UdpId) -> Option<bool>,
) -> Option<UdpId> {
    let rank = |(id, binding, port): &(UdpId, Binding, u16)| match (binding.rank(&flow.local), peer_is(*id)) {
        (0, _) | (_, Some(false)) => 0,
        _ if *port != flow.local_port => 0,
        (rank, None) => rank,
        (rank, Some(true)) => RANK_MAX + rank,
    };
    let best = all.iter().map(rank).max().filter(|best| *best > 0)?;
    let all: Vec<_> = all.iter().filter(|socket| rank(socket) == best).collect();
    let group: Vec<_> = all.iter().filter(|(_, binding, _)| binding.options.reuse_port).collect();
    let last = all.last()?;
    Some(match group.len() {
        members if members > 1 && last.1.options.reuse_port => group[(hash % members as u64) as usize].0,
        _ => last.0,
    })
}

/// What is said of copies: each who is bound there, or to any address, and not connected to somebody else.
fn told_all(all: &[(UdpId, Binding, u16)], flow: &FlowKey, peer_is: impl Fn(UdpId) -> Option<bool>) -> Vec<UdpId> {
    let hears = |(id, binding, port): &&(UdpId, Binding, u16)| {
        *port == flow.local_port && binding.takes(&flow.local) && peer_is(*id).unwrap_or(true)
    };
    all.iter().filter(hears).map(|(id, ..)| *id).collect()
}

fn address(which: u8) -> Address {
    match which {
        0 => Address::UNSPECIFIED_V6,
        1 => Address::UNSPECIFIED_V4,
        2 => Address::from_v4([10, 0, 0, 1]),
        3 => Address::from_v4([10, 0, 1, 1]),
        // All hosts of the first network.
        4 => Address::from_v4([10, 0, 0, 255]),
        _ => Address::from_v6([0xfd; 16]),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn the_index_by_port_finds_whom_a_walk_over_all_finds(
        steps in prop::collection::vec((0..6u8, 1..4u16, any::<[bool; 3]>(), 0..4u8), 1..24),
        flows in prop::collection::vec((2..6u8, 1..4u16, any::<u64>(), any::<[u8; 3]>()), 1..24),
    ) {
        let (mut sockets, mut all) = (UdpSockets::default(), Vec::new());
        for (name, (at, port, [reuse_address, reuse_port, only_v6], unbinds)) in steps.into_iter().enumerate() {
            let binding = Binding { address: address(at), options: BindOptions { reuse_address, reuse_port, only_v6 }, listens: false };
            let id = UdpId(name as u16);
            sockets.bind(id, binding, port);
            all.push((id, binding, port));
            if unbinds == 0 {
                let (gone, ..) = all.remove(all.len() / 2);
                sockets.unbind(gone);
                prop_assert!(!sockets.has(gone));
            } else if unbinds == 1 {
                // It is still there to send, and hears nothing.
                let (closed, ..) = all.remove(all.len() / 2);
                sockets.close(closed);
                prop_assert!(sockets.has(closed));
            }
        }
        prop_assert!(all.iter().all(|(id, ..)| sockets.has(*id)));
        for (at, port, hash, connected) in flows {
            let flow = FlowKey { local: address(at), remote: address(at), local_port: port, remote_port: 9 };
            let peer_is = |id: UdpId| connected.contains(&(id.0 as u8)).then_some(id.0.is_multiple_of(2));
            prop_assert_eq!(sockets.find(&flow, hash, peer_is), told(&all, &flow, hash, peer_is));
            let mut place = 0;
            let copies = std::iter::from_fn(|| sockets.next_copy(&flow, &mut place, peer_is));
            prop_assert_eq!(copies.collect::<Vec<_>>(), told_all(&all, &flow, peer_is));
        }
    }
}

/// What goes to one family leaves from an address of that family which is ours: the one that the socket was given, or that it is bound to, or that of the
/// route. Where there is none of these nothing leaves.
#[test]
fn a_datagram_leaves_from_an_address_of_ours_in_its_family() {
    let (here, six) = (address(2), address(5));
    let snapshot = Snapshot {
        addresses: std::sync::Arc::new(AddressSet::in_networks(&[(here, 24), (address(3), 24), (six, 64)])),
        ..Snapshot::default()
    };
    let mut counters = Counters::default();
    let any = Address::UNSPECIFIED_V6;
    let (to_four, to_six) = ("10.0.0.2:7", "[fd00::2]:7");
    for (bound, given, to, from) in [
        (any, any, to_four, Some(here)),
        (any, any, to_six, Some(six)),
        (any, address(3), to_four, Some(address(3))),
        // It was given one, for another peer.
        (any, address(3), to_six, Some(six)),
        (any, six, to_four, Some(here)),
        // It had that once.
        (any, Address::from_v4([10, 0, 0, 9]), to_four, Some(here)),
        (here, any, to_four, Some(here)),
        (here, any, to_six, None),
        (six, any, to_four, None),
        (six, any, to_six, Some(six)),
    ] {
        let mut sockets = UdpSockets::default();
        sockets.bind(UdpId(1), Binding { address: bound, options: BindOptions::default(), listens: false }, 53);
        let sending = Sending { from: given, to: to.parse().unwrap(), to_all: false, marks: Marks::NONE, data: &[7] };
        let leaves = sockets.send(UdpId(1), sending, &snapshot, &mut counters);
        let left = sockets.outgoing.pop_front().map(|datagram| datagram.local);
        assert_eq!((leaves, left), (from.is_some(), from), "bound to {bound:?}, given {given:?}, to {to}");
    }
}

/// What a length field can say, and no byte more: IPv4's counts its own header, in whichever writing the address is.
#[test]
fn no_datagram_is_longer_than_its_family_can_say() {
    let snapshot = Snapshot {
        addresses: std::sync::Arc::new(AddressSet::in_networks(&[(address(2), 24), (address(5), 64)])),
        ..Snapshot::default()
    };
    let mut sockets = UdpSockets::default();
    let any = Address::UNSPECIFIED_V6;
    sockets.bind(UdpId(1), Binding { address: any, options: BindOptions::default(), listens: false }, 53);
    let data = vec![7; 65_528];
    for (to, most) in [("10.0.0.2:7", 65_507), ("[::ffff:10.0.0.2]:7", 65_507), ("[fd00::2]:7", 65_527)] {
        for (len, leaves) in [(most, true), (most + 1, false)] {
            let sending =
                Sending { from: any, to: to.parse().unwrap(), to_all: false, marks: Marks::NONE, data: &data[..len] };
            assert_eq!(sockets.send(UdpId(1), sending, &snapshot, &mut Counters::default()), leaves, "{len} to {to}");
        }
    }
    assert_eq!(sockets.outgoing.len(), 3);
}
