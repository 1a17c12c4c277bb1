//! Paths that are kept while the world changes, against paths that are looked up in the newest world.

use super::*;
use crate::entropy::Entropy;
use crate::snapshot::AddressSet;
use hashbrown::HashMap;
use laneway_proto::ip::route::{Prefix, RouteTable};
use laneway_sync::fork::in_a_child;
use std::sync::Arc;

const LINK: Capabilities = Capabilities {
    medium: Medium::Ethernet,
    mtu: 1_500,
    tx_checksum: false,
    tso_max: 0,
    rx_checksum: false,
    mac: [2, 0, 0, 0, 0, 1],
};

fn paths() -> Paths {
    Paths::new(&LINK, 64, [1, 2])
}

fn v4(octets: [u8; 4]) -> Address {
    Address::from_v4(octets)
}

fn v6(last: u8) -> Address {
    let mut octets = [0; 16];
    (octets[0], octets[1], octets[15]) = (0xfd, 0, last);
    Address::from_v6(octets)
}

fn table(routes: &[Route]) -> RouteTable {
    routes.iter().fold(RouteTable::builder(), |builder, route| builder.add(*route)).build().expect("a table")
}

/// Everything that a packet reads of a path.
fn facts(path: Option<&mut Path>) -> Option<impl PartialEq + std::fmt::Debug + use<>> {
    path.map(|path| {
        let mut header = vec![0; path.header.len()];
        path.header.emit(&mut header, 100);
        let Path { next_hop, resolved, may_begin, route, carries, mtu, source, ts_offset, .. } = *path;
        (next_hop, header, resolved, may_begin, route, (carries, mtu), source, ts_offset)
    })
}

/// A world in which anything may change, and how much has changed so far.
struct World {
    chance: Entropy,
    routes: Vec<Route>,
    addresses: Vec<Address>,
    neighbours: HashMap<Address, Option<Mac>>,
    newest: Snapshot,
}

impl World {
    fn new() -> Self {
        let mut newest = Snapshot::default();
        newest.follow(&Snapshot::default());
        let addresses = vec![v4([10, 0, 0, 1]), v6(1)];
        World { chance: Entropy::from_seed(4_711), routes: Vec::new(), addresses, neighbours: HashMap::new(), newest }
    }

    fn below(&mut self, end: u64) -> u64 {
        self.chance.next_u64() % end
    }

    /// In a small space, so that prefixes nest and touch, and neighbours are met again.
    fn address(&mut self) -> Address {
        let last = self.below(64) as u8;
        if self.below(4) == 0 { v6(last) } else { v4([10, 0, self.below(3) as u8, last]) }
    }

    fn route(&mut self) -> Route {
        let address = self.address();
        let lens: &[u8] = if address.is_v4() { &[0, 8, 23, 24, 28, 30, 32] } else { &[0, 16, 124, 128] };
        let len = lens[self.below(lens.len() as u64) as usize];
        let mtu = [None, None, Some(1_400), Some(1_300)][self.below(4) as usize];
        let source = self.addresses.iter().find(|a| a.is_v4() == address.is_v4()).copied();
        let source = source.filter(|_| self.below(2) == 0);
        Route { prefix: Prefix::of(address, len).expect("a length"), next_hop: None, interface: 0, mtu, source }
    }

    /// Some routes get a gateway that some other route reaches.
    fn gateways(&mut self) {
        for at in 0..self.routes.len() {
            let hop = self.address();
            let family = self.routes[at].prefix.address().is_v4();
            let reached = |route: &Route| route.next_hop.is_none() && route.prefix.contains(hop);
            let chosen = self.below(3) == 0 && hop.is_v4() == family;
            let others = self.routes.iter().enumerate().any(|(other, route)| other != at && reached(route));
            self.routes[at].next_hop = (chosen && others).then_some(hop);
        }
        // Whose gateway is behind a gateway now has none.
        let on_link: Vec<Prefix> = self.routes.iter().filter(|r| r.next_hop.is_none()).map(|r| r.prefix).collect();
        for route in &mut self.routes {
            route.next_hop = route.next_hop.filter(|hop| on_link.iter().any(|prefix| prefix.contains(*hop)));
        }
    }

    fn change_routes(&mut self, times: u64) {
        for _ in 0..times {
            let route = self.route();
            let at = self.routes.iter().position(|other| other.prefix == route.prefix);
            match (at, self.below(3)) {
                (Some(at), 0) => drop(self.routes.remove(at)),
                (Some(at), _) => self.routes[at] = route,
                (None, 0) if !self.routes.is_empty() => drop(self.routes.pop()),
                (None, _) => self.routes.push(route),
            }
        }
        self.gateways();
        self.newest.routes = Arc::new(table(&self.routes));
    }

    /// Something happens, and is published.
    fn change(&mut self) {
        let before = self.newest.clone();
        match self.below(10) {
            0..=4 => self.change_routes(1),
            5 => self.change_routes(30),
            6 => {
                let hop = self.address();
                let news = [None, Some(Some(Mac([2, 0, 0, 0, 0, 9]))), Some(None)][self.below(3) as usize];
                match news {
                    Some(mac) => drop(self.neighbours.insert(hop, mac)),
                    None => drop(self.neighbours.remove(&hop)),
                }
                self.newest.neighbours = Arc::new(self.neighbours.clone());
            }
            7 => {
                let address = match self.below(4) {
                    0 => v4([10, 0, 0, 1]),
                    1 => v6(1),
                    _ => self.address(),
                };
                match self.addresses.iter().position(|other| *other == address) {
                    Some(at) => drop(self.addresses.remove(at)),
                    None if self.addresses.len() > 4 => drop(self.addresses.remove(0)),
                    None => self.addresses.push(address),
                }
                self.newest.addresses = Arc::new(AddressSet::new(&self.addresses));
            }
            _ => {}
        }
        self.newest.follow(&before);
    }
}

#[test]
fn what_is_kept_is_what_would_be_looked_up() {
    let mut world = World::new();
    let mut kept = paths();
    let (mut now, mut learned) = (Instant::from_us(1_000_000), Vec::new());
    let (mut same, mut missed, mut begun) = (0, 0, 0);
    let pairs: Vec<(Address, Address)> = (0..60)
        .map(|_| {
            let dst = world.address();
            let own = if dst.is_v4() { v4([10, 0, 0, 1]) } else { v6(1) };
            (if world.below(4) == 0 { Address::UNSPECIFIED_V6 } else { own }, dst)
        })
        .collect();
    for _ in 0..1_000 {
        // Up to three snapshots come before the next packet, and a lane may have missed some of them.
        for _ in 0..1 + world.below(3) {
            world.change();
            match world.below(8) {
                0 => missed += 1,
                _ => kept.adopt(&world.newest),
            }
        }
        now = now.after_us(1_000_000);
        if world.below(40) == 0 {
            let (_, dst) = pairs[world.below(60) as usize];
            let mtu = 1_280 + world.below(100) as u32;
            let _ = kept.on_packet_too_big(&world.newest, dst, mtu, now);
            learned.push((world.newest.clone(), dst, mtu, now));
        }
        kept.on_timeout(&world.newest, now, &mut MtuNews::default());
        let mut fresh = paths();
        for (newest, dst, mtu, at) in &learned {
            fresh.on_timeout(&world.newest, *at, &mut MtuNews::default());
            let _ = fresh.on_packet_too_big(newest, *dst, *mtu, *at);
        }
        fresh.on_timeout(&world.newest, now, &mut MtuNews::default());
        for _ in 0..20 {
            let (src, dst) = pairs[world.below(60) as usize];
            let place = usize::from(PathPlace::between(&src, &dst).0);
            let before = Some(kept.places[place].way).filter(|way| *way != WayRef::NONE);
            let is = facts(kept.between(&world.newest, &src, &dst));
            assert_eq!(is, facts(fresh.between(&world.newest, &src, &dst)), "from {src} to {dst}");
            same += usize::from(
                before.is_some() && before == Some(kept.places[place].way).filter(|way| *way != WayRef::NONE),
            );
            let may = kept.to_begin(PathPlace::between(&src, &dst), &world.newest, &src, &dst).is_some();
            let ours = &world.newest.addresses;
            assert_eq!(may, ours.contains(&src) && ours.can_be_remote(&dst) && is.is_some());
            begun += usize::from(may);
        }
        // So is what is kept for strangers, and it takes nobody's place.
        let ways = |paths: &Paths| paths.places.iter().map(|path| path.way).collect::<Vec<_>>();
        let before = ways(&kept);
        for _ in 0..5 {
            let dst = world.address();
            let is = kept
                .passing(&world.newest, dst)
                .map(|p| (p.next_hop, p.header.link().to_vec(), p.resolved, p.route, p.mtu));
            let path = fresh.get(&world.newest, dst);
            let expected = path.map(|p| (p.next_hop, p.header.link().to_vec(), p.resolved, p.route, p.mtu));
            assert_eq!(is, expected, "to the stranger {dst}");
        }
        assert!(before == ways(&kept));
    }
    assert!(same > 3_000 && missed > 100, "{same} looks found what was kept, {missed} snapshots were missed");
    assert!((1_000..19_000).contains(&begun), "{begun} of 20,000 might have begun a connection");
}

/// Whoever is answered in passing is answered by way of the link address that his gateway has now, and not of the one that it had for the last.
#[test]
fn strangers_are_answered_where_their_gateway_is_now() {
    let (gateway, stranger) = (v4([10, 0, 0, 2]), v4([192, 0, 2, 9]));
    let on_link = Prefix::of(gateway, 24).expect("a length");
    let link = Route { prefix: on_link, next_hop: None, interface: 0, mtu: None, source: None };
    let beyond = Route { prefix: Prefix::default_v4(), next_hop: Some(gateway), ..link };
    let (mut kept, mut newest) = (paths(), Snapshot::default());
    newest.follow(&Snapshot::default());
    newest.addresses = Arc::new(AddressSet::new(&[v4([10, 0, 0, 1])]));
    newest.routes = Arc::new(table(&[link, beyond]));
    for mac in [None, Some(Mac([2, 0, 0, 0, 0, 7])), Some(Mac([2, 0, 0, 0, 0, 8]))] {
        let before = newest.clone();
        newest.neighbours = Arc::new(HashMap::from_iter([(gateway, mac)]));
        newest.follow(&before);
        let path = kept.passing(&newest, stranger).expect("a route");
        assert_eq!(path.resolved.then(|| path.header.link()[..6].to_vec()), mac.map(|mac| mac.0.to_vec()));
    }
}

/// Who has no address yet sends from the one that the route prefers, and else from the first that is ours and of its family; and no more at a time
/// than the link carries, whatever the route says, nor than is said of datagrams since.
#[test]
fn who_has_no_address_goes_by_what_the_route_says() {
    let (preferred, far) = (v4([10, 0, 1, 1]), v4([10, 0, 1, 9]));
    let lies_in = |address, source, mtu| {
        let prefix = Prefix::of(address, 24).expect("a length");
        Route { prefix, next_hop: None, interface: 0, mtu, source }
    };
    let mut newest = Snapshot::default();
    newest.follow(&Snapshot::default());
    newest.addresses = Arc::new(AddressSet::new(&[v6(1), v4([10, 0, 0, 1]), preferred]));
    newest.routes =
        Arc::new(table(&[lies_in(far, Some(preferred), Some(9_000)), lies_in(v4([10, 0, 0, 9]), None, None)]));
    let mut kept = paths();
    let says = |kept: &mut Paths, dst| kept.get(&newest, dst).map(|path| (path.source, path.mtu));
    assert_eq!(says(&mut kept, far), Some((Some(preferred), 1_500)));
    assert_eq!(says(&mut kept, v4([10, 0, 0, 9])), Some((Some(v4([10, 0, 0, 1])), 1_500)));
    assert!(kept.on_unverified_too_big(&newest, Unverified::Datagrams, (far, 1_300), Instant::from_us(1)));
    assert_eq!(says(&mut kept, far), Some((Some(preferred), 1_300)));
}

/// The table of the lab's flapping: the network in use, and others that nobody is in.
fn flapping(mtu: u32, unused: u32) -> Arc<RouteTable> {
    let of = |octets, len| Prefix::new(v4(octets), len).expect("no host bits");
    let route = |prefix, mtu| Route { prefix, next_hop: None, interface: 0, mtu: Some(mtu), source: None };
    let mut routes = vec![route(of([10, 0, 0, 0], 16), mtu)];
    routes.extend((0..999u32).map(|i| route(of([172, 16 + (i >> 8) as u8, i as u8, 0], 24), unused)));
    Arc::new(table(&routes))
}

#[test]
fn a_path_asks_the_table_neither_when_others_change_nor_when_its_own_route_does() {
    let mut now = Snapshot { routes: flapping(1_500, 1_500), ..Snapshot::default() };
    now.follow(&Snapshot::default());
    let mut paths = paths();
    let (src, dst) = (v4([10, 0, 0, 1]), v4([10, 0, 7, 7]));
    let place = PathPlace::between(&src, &dst);
    let way = |paths: &mut Paths, now: &Snapshot| {
        let path = paths.at(place, now, &src, &dst).expect("a route");
        (path.way, path.mtu)
    };
    let first = way(&mut paths, &now);
    assert_eq!(first.1, 1_500);
    // Each table is taken away before anyone could look: what comes with it must do.
    let publish = |now: &mut Snapshot, routes: Arc<RouteTable>, paths: &mut Paths| {
        let before = now.clone();
        now.routes = routes;
        now.follow(&before);
        let without = Snapshot { routes: Arc::default(), ..now.clone() };
        paths.adopt(&without);
        without
    };
    let without = publish(&mut now, flapping(1_500, 1_400), &mut paths);
    assert_eq!(way(&mut paths, &without), first, "every route but its own has changed");
    for mtu in [1_400, 1_300, 1_400] {
        let without = publish(&mut now, flapping(mtu, mtu), &mut paths);
        let (again, seen) = way(&mut paths, &without);
        assert!(seen == mtu && again != first.0);
    }
    // Its network is split: the halves are looked up.
    let of = |octets, len| Prefix::new(v4(octets), len).expect("no host bits");
    let half = Route { prefix: of([10, 0, 0, 0], 17), next_hop: None, interface: 0, mtu: Some(1_280), source: None };
    let whole = Route { prefix: of([10, 0, 0, 0], 16), mtu: Some(1_400), ..half };
    let before = now.clone();
    now.routes = Arc::new(table(&[half, whole]));
    now.follow(&before);
    assert_eq!(way(&mut paths, &now).1, 1_280);
}

#[test]
fn next_hops_are_confirmed_once_a_second_however_often_routes_are_replaced() {
    let mut now = Snapshot { routes: flapping(1_500, 1_500), ..Snapshot::default() };
    now.neighbours = Arc::new(HashMap::from_iter([(v4([10, 0, 7, 7]), Some(Mac([2, 0, 0, 0, 0, 9])))]));
    now.follow(&Snapshot::default());
    let mut paths = paths();
    let (src, dst) = (v4([10, 0, 0, 1]), v4([10, 0, 7, 7]));
    paths.between(&now, &src, &dst).expect("a route").confirmed_in = 77;
    for mtu in [1_400, 1_300] {
        let before = now.clone();
        now.routes = flapping(mtu, 1_500);
        now.follow(&before);
        let path = paths.between(&now, &src, &dst).expect("a route");
        assert_eq!((path.mtu, path.confirmed_in, path.resolved), (mtu, 77, true));
    }
    let before = now.clone();
    now.neighbours = Arc::default();
    now.follow(&before);
    assert!(!paths.between(&now, &src, &dst).expect("a route").resolved);
}

/// A child that works a path out anew has another offset: it has not the secret.
#[test]
#[cfg(not(miri))]
fn a_child_learns_no_timestamp_offset() {
    let prefix = Prefix::of(v4([10, 0, 0, 0]), 8).expect("a length");
    let mut world = World::new();
    let route = Route { prefix, next_hop: None, interface: 0, mtu: None, source: None };
    world.newest.routes = Arc::new(table(&[route]));
    let (from, to) = (v4([10, 0, 0, 1]), v4([10, 0, 0, 2]));
    let offset = |paths: &mut Paths| paths.between(&world.newest, &from, &to).map(|path| path.ts_offset);
    let mut ours = paths();
    let known = offset(&mut ours).expect("a path");
    let mut others = paths();
    let same = in_a_child(|| u8::from(offset(&mut others) == Some(known))).expect("a child");
    assert_eq!((same, offset(&mut others)), (0, Some(known)));
}

/// RFC 8201 section 4: what is said of a path makes it no wider. It cannot say more than the route does.
#[test]
fn what_is_wider_than_the_route_is_no_news() {
    let (link, peer) = (v4([10, 0, 0, 0]), v4([10, 0, 0, 9]));
    let route =
        Route { prefix: Prefix::new(link, 24).unwrap(), next_hop: None, interface: 0, mtu: Some(1_400), source: None };
    let mut world = Snapshot { routes: Arc::new(table(&[route])), ..Snapshot::default() };
    world.follow(&Snapshot::default());
    let now = Instant::from_us(1_000_000);
    let mut paths = paths();
    for (said, news) in [(1_450, None), (1_400, None), (1_006, Some(1_006)), (900, Some(900))] {
        assert_eq!(paths.on_packet_too_big(&world, peer, said, now), news, "{said}");
    }
    assert!(!paths.on_unverified_too_big(&world, Unverified::Datagrams, (v4([10, 0, 0, 8]), 1_450), now));
}

/// Everybody is on the link.
fn anywhere() -> Snapshot {
    let route = Route { prefix: Prefix::default_v4(), next_hop: None, interface: 0, mtu: None, source: None };
    Snapshot { routes: Arc::new(table(&[route])), ..Snapshot::default() }
}

/// Who is only answered, or sent a datagram, is a stranger; whoever a connection leads to is none, and for a while not even when his path has made
/// room for another's.
#[test]
fn whoever_a_connection_has_led_to_is_no_stranger() {
    let (mut paths, snapshot) = (paths(), anywhere());
    let (us, also_us) = (v4([10, 0, 0, 1]), v4([10, 0, 0, 9]));
    let peer = |i: u32| Address::from_v4((0x0a01_0000 + i).to_be_bytes());
    assert!(paths.get(&snapshot, peer(0)).is_some() && paths.passing(&snapshot, peer(0)).is_some());
    assert!(!paths.lead(&us, &peer(0)));
    let peers = 2 * PATHS as u32;
    for i in 0..peers {
        assert!(!paths.lead(&us, &peer(i)) || i > 100, "{i}: few are taken for others");
        assert!(paths.between(&snapshot, &us, &peer(i)).is_some());
        assert!(paths.lead(&us, &peer(i)));
    }
    assert!((0..peers).all(|i| paths.lead(&us, &peer(i))));
    // Of those who still have a path it is known from where.
    let have_one = (0..peers).filter(|i| !paths.lead(&also_us, &peer(*i))).count();
    assert!((PATHS / 2..=PATHS).contains(&have_one), "{have_one}");
}

/// Who is only answered, or sent a datagram, is no newcomer; whoever is one is so until his path has made room for another's.
#[test]
fn whoever_a_connection_leads_to_is_a_newcomer_once() {
    let (mut paths, snapshot) = (paths(), anywhere());
    let (us, them) = (v4([10, 0, 0, 1]), v4([10, 0, 0, 2]));
    let newcomers = |paths: &mut Paths| paths.newcomers().collect::<Vec<_>>();
    assert!(paths.get(&snapshot, them).is_some() && paths.passing(&snapshot, them).is_some());
    assert_eq!(newcomers(&mut paths), []);
    for _ in 0..2 {
        assert!(paths.between(&snapshot, &us, &them).is_some());
    }
    assert_eq!(newcomers(&mut paths), [them]);
    assert!(paths.between(&snapshot, &us, &them).is_some());
    assert_eq!(newcomers(&mut paths), [], "it was said");
    for i in 0..=255 {
        assert!(paths.between(&snapshot, &us, &v4([10, 0, 1, i])).is_some());
    }
    assert_eq!(newcomers(&mut paths).len(), NEWCOMERS_MAX, "of more nobody remembers");
}

/// What is said of a path holds on it at once, known as it is; and what is said of datagrams, of which nobody can tell by whom, never for a connection.
#[test]
fn a_path_that_is_known_is_as_narrow_as_was_said_since() {
    let route = Route { prefix: Prefix::default_v4(), next_hop: None, interface: 0, mtu: None, source: None };
    let mut world = Snapshot { routes: Arc::new(table(&[route])), ..Snapshot::default() };
    world.follow(&Snapshot::default());
    let (us, them, now) = (v4([10, 0, 0, 1]), v4([10, 0, 0, 2]), Instant::from_us(1_000_000));
    let mut paths = paths();
    let mtus = |paths: &mut Paths| {
        let connections = paths.between(&world, &us, &them).expect("a path").mtu;
        (connections, paths.get(&world, them).expect("a path").mtu)
    };
    assert_eq!(mtus(&mut paths), (1_500, 1_500));
    assert!(paths.on_unverified_too_big(&world, Unverified::Datagrams, (them, 1_300), now));
    assert_eq!(mtus(&mut paths), (1_500, 1_300));
    assert_eq!(paths.on_packet_too_big(&world, them, 1_400, now), Some(1_400));
    assert_eq!(mtus(&mut paths), (1_400, 1_300));
    // Nor for one that is looked up only now; and the least of all that was said counts for both.
    let other = paths.between(&world, &v4([10, 0, 0, 7]), &them).expect("a path").mtu;
    assert_eq!(other, 1_400);
    assert_eq!(paths.on_packet_too_big(&world, them, 1_200, now), Some(1_200));
    assert_eq!(mtus(&mut paths), (1_200, 1_200));
}

/// `ip_default_ttl` is of connections, too.
#[test]
fn what_goes_by_a_path_lives_as_long_as_was_said() {
    let all = |prefix| Route { prefix, next_hop: None, interface: 0, mtu: None, source: None };
    let routes = Arc::new(table(&[all(Prefix::default_v4()), all(Prefix::default_v6())]));
    let mut world = Snapshot { routes, ..Snapshot::default() };
    world.follow(&Snapshot::default());
    for (us, them, at) in [(v4([10, 0, 0, 1]), v4([10, 0, 0, 2]), 8), (v6(1), v6(2), 7)] {
        let mut paths = Paths::new(&LINK, 7, [1, 2]);
        let path = paths.between(&world, &us, &them).expect("a path");
        let mut header = vec![0; path.header.len()];
        path.header.emit(&mut header, 100);
        assert_eq!(header[path.header.link_len() + at], 7, "to {them}");
    }
}
