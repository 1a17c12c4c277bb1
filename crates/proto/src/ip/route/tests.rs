use super::*;

fn v4(octets: [u8; 4]) -> Address {
    Address::from_v4(octets)
}

fn v6(text: &str) -> Address {
    Address::from(text.parse::<std::net::Ipv6Addr>().unwrap())
}

fn on_link(address: Address, len: u8, interface: u32) -> Route {
    Route { prefix: Prefix::new(address, len).unwrap(), next_hop: None, interface, mtu: None, source: None }
}

fn via(address: Address, len: u8, hop: Address, interface: u32) -> Route {
    Route { next_hop: Some(hop), ..on_link(address, len, interface) }
}

#[test]
fn the_longest_prefix_wins() {
    let gateway = v4([10, 0, 0, 1]);
    let table = RouteTable::builder()
        .add(via(v4([0; 4]), 0, gateway, 1))
        .add(on_link(v4([10, 0, 0, 0]), 24, 1))
        .add(on_link(v4([10, 0, 0, 128]), 25, 2))
        .add(on_link(v4([10, 0, 0, 200]), 32, 3))
        .add(on_link(v6("fe80::"), 10, 4))
        .add(via(v6("::"), 0, v6("fe80::1"), 4))
        .build()
        .unwrap();
    let interface = |dst| table.lookup(dst).map(|route| (route.interface, route.prefix.len()));
    assert_eq!(interface(v4([8, 8, 8, 8])), Some((1, 0)));
    assert_eq!(interface(v4([10, 0, 0, 7])), Some((1, 24)));
    assert_eq!(interface(v4([10, 0, 0, 199])), Some((2, 25)));
    assert_eq!(interface(v4([10, 0, 0, 200])), Some((3, 32)));
    assert_eq!(interface(v4([10, 0, 0, 201])), Some((2, 25)));
    assert_eq!(interface(v4([10, 0, 0, 255])), Some((2, 25)));
    assert_eq!(interface(v4([10, 0, 1, 0])), Some((1, 0)));
    assert_eq!(interface(v4([255; 4])), Some((1, 0)));
    assert_eq!(interface(v6("2001:db8::1")), Some((4, 0)));
    assert_eq!(interface(v6("fe80::9")), Some((4, 10)));
    assert_eq!(table.lookup(v4([8, 8, 8, 8])).unwrap().next_hop(v4([8, 8, 8, 8])), gateway);
    assert_eq!(table.lookup(v4([10, 0, 0, 7])).unwrap().next_hop(v4([10, 0, 0, 7])), v4([10, 0, 0, 7]));
}

#[test]
fn an_empty_table_routes_nothing() {
    let table = RouteTable::default();
    assert!(table.lookup(v4([1, 2, 3, 4])).is_none());
    assert!(table.lookup(v6("::1")).is_none());
    let table = RouteTable::builder().add(on_link(v4([10, 0, 0, 0]), 8, 0)).build().unwrap();
    assert!(table.lookup(v4([9, 255, 255, 255])).is_none());
    assert!(table.lookup(v4([11, 0, 0, 0])).is_none());
}

#[test]
fn the_builder_says_what_is_wrong() {
    let net = v4([10, 0, 0, 0]);
    assert!(matches!(Prefix::new(net, 33), Err(RouteError::PrefixTooLong { len: 33 })));
    assert!(matches!(Prefix::new(v4([10, 0, 0, 1]), 24), Err(RouteError::HostBitsSet { .. })));
    let build = |routes: &[Route]| {
        routes.iter().fold(RouteTable::builder(), |builder, route| builder.add(*route)).build().unwrap_err()
    };
    assert!(matches!(build(&[on_link(net, 8, 0), on_link(net, 8, 1)]), RouteError::Duplicate(_)));
    assert!(matches!(build(&[via(net, 8, v6("fe80::1"), 0)]), RouteError::FamilyMismatch(_)));
    for hop in [[0; 4], [127, 0, 0, 1], [224, 0, 0, 1], [255; 4]] {
        assert!(matches!(build(&[via(net, 8, v4(hop), 0)]), RouteError::NextHopUnusable(_)), "{hop:?}");
    }
    assert!(matches!(build(&[via(net, 8, v4([9, 0, 0, 1]), 0)]), RouteError::NextHopUnreachable(_)));
    // The router's network is there, but on another interface.
    assert!(matches!(
        build(&[on_link(net, 8, 0), via(v4([0; 4]), 0, v4([10, 0, 0, 1]), 1)]),
        RouteError::NextHopUnreachable(_)
    ));
    let small = Route { mtu: Some(1279), ..on_link(v6("2001:db8::"), 32, 0) };
    assert!(matches!(build(&[small]), RouteError::MtuTooSmall { mtu: 1279, .. }));
    for source in [[0; 4], [224, 0, 0, 1], [255; 4]] {
        let sourced = Route { source: Some(v4(source)), ..on_link(net, 8, 0) };
        assert!(matches!(build(&[sourced]), RouteError::SourceUnusable(_)), "{source:?}");
    }
    assert!(build(&[small]).to_string().contains("1279"));
    // The least that a link may carry is enough.
    let least = [Route { mtu: Some(MTU_MIN_V6), ..small }, Route { mtu: Some(MTU_MIN_V4), ..on_link(net, 8, 0) }];
    assert!(least.iter().fold(RouteTable::builder(), |builder, route| builder.add(*route)).build().is_ok());
}

/// Nobody needs to say that a router's link-local address is on its link; over IPv4 that says nothing, and no family's network has the other's addresses.
#[test]
fn a_router_is_a_neighbour() {
    let build = |routes: &[Route]| routes.iter().fold(RouteTable::builder(), |builder, r| builder.add(*r)).build();
    assert!(build(&[via(v6("::"), 0, v6("fe80::1"), 4)]).is_ok());
    let link_local = via(v4([0; 4]), 0, v4([169, 254, 0, 1]), 4);
    assert_eq!(build(&[link_local]).unwrap_err(), RouteError::NextHopUnreachable(v4([169, 254, 0, 1])));
    assert!(build(&[link_local, on_link(v4([169, 254, 0, 0]), 16, 4)]).is_ok());
    let everybody = on_link(v6("::"), 0, 4);
    assert!(everybody.prefix.contains(v6("2001:db8::1")) && !everybody.prefix.contains(v4([192, 0, 2, 1])));
    let beside = via(v4([0; 4]), 0, v4([192, 0, 2, 1]), 4);
    assert_eq!(build(&[beside, everybody]).unwrap_err(), RouteError::NextHopUnreachable(v4([192, 0, 2, 1])));
}

/// Against the definition: of all prefixes that contain the address, the longest.
#[test]
fn agrees_with_a_linear_search() {
    let mut state = 4711u64;
    let mut random = move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as u32
    };
    for _ in 0..200 {
        let mut routes: Vec<Route> = Vec::new();
        for interface in 0..random() % 40 {
            // A small space, so that prefixes nest and touch.
            let address = v4([10, 0, (random() % 2) as u8, random() as u8]);
            let len = [0, 8, 16, 23, 24, 26, 28, 30, 31, 32][(random() % 10) as usize];
            let prefix = Prefix::of(address, len).unwrap();
            if routes.iter().all(|route| route.prefix != prefix) {
                routes.push(Route { prefix, next_hop: None, interface, mtu: None, source: None });
            }
        }
        let table = routes.iter().fold(RouteTable::builder(), |builder, route| builder.add(*route)).build().unwrap();
        for _ in 0..300 {
            let dst = v4([9 + (random() % 3) as u8, 0, (random() % 2) as u8, random() as u8]);
            let expected =
                routes.iter().filter(|route| route.prefix.contains(dst)).max_by_key(|route| route.prefix.len());
            assert_eq!(table.lookup(dst), expected, "{dst}");
        }
    }
}
