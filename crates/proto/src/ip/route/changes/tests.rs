//! Changes against the definition: both tables asked for the same address.

use super::super::Prefix;
use super::*;

struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as u32) % end
    }

    /// In a small space, so that prefixes nest and touch.
    fn address(&mut self) -> Address {
        let last = self.below(256) as u8;
        if self.below(3) > 0 {
            Address::from_v4([[9, 10, 255][self.below(3) as usize], 0, self.below(2) as u8, last])
        } else {
            let mut octets = [0; 16];
            octets[0] = [0, 0x20, 0xff][self.below(3) as usize];
            octets[15] = last;
            Address::from_v6(octets)
        }
    }

    fn route(&mut self) -> Route {
        let address = self.address();
        let lens: &[u8] = if address.is_v4() { &[0, 8, 23, 25, 28, 31, 32] } else { &[0, 3, 64, 120, 124, 128] };
        let prefix = Prefix::of(address, lens[self.below(lens.len() as u32) as usize]).expect("a length");
        let mtu = [None, Some(1_400), Some(1_500)][self.below(3) as usize];
        Route { prefix, next_hop: None, interface: self.below(2), mtu, source: None }
    }

    /// A few routes come, go or change.
    fn change(&mut self, routes: &mut Vec<Route>, times: u32) {
        for _ in 0..times {
            let route = self.route();
            let at = routes.iter().position(|other| other.prefix == route.prefix);
            match (at, self.below(3)) {
                (Some(at), 0) => drop(routes.remove(at)),
                (Some(at), _) => routes[at] = route,
                (None, 0) if !routes.is_empty() => drop(routes.remove(self.below(routes.len() as u32) as usize)),
                (None, _) => routes.push(route),
            }
        }
    }
}

fn table(routes: &[Route]) -> RouteTable {
    routes.iter().fold(RouteTable::builder(), |builder, route| builder.add(*route)).build().expect("a table")
}

/// Every stretch that is named says what the new table says, and what lies in none has the route that it had.
fn agrees(before: &RouteTable, after: &RouteTable, chance: &mut Chance) -> usize {
    let changes = after.changes_since(before);
    assert_eq!(changes, after.compared_with(before), "the short way comes to the same");
    for v4 in [true, false] {
        assert!(changes.iter().filter(|change| change.stretch.v4 == v4).count() <= STRETCHES_MAX);
    }
    for _ in 0..200 {
        let dst = chance.address();
        let mut named = changes.iter().filter(|change| change.stretch.contains(dst));
        let (change, again) = (named.next(), named.next());
        assert_eq!(again, None, "no address lies in two");
        match change.map(|change| change.leads) {
            None => {
                assert_eq!(after.lookup(dst), before.lookup(dst), "{dst}");
                assert!(changes.is_renumbered() || after.find(dst) == before.find(dst), "{dst}");
            }
            Some(Leads::Route(number, route)) => {
                assert_eq!((after.find(dst), after.lookup(dst)), (Some(number), Some(&route)), "{dst}");
            }
            Some(Leads::Nowhere) => assert_eq!(after.lookup(dst), None, "{dst}"),
            Some(Leads::Various) => {}
        }
    }
    changes.iter().count()
}

#[test]
fn they_say_what_both_tables_say() {
    let mut chance = Chance(4711);
    let mut most = 0;
    for _ in 0..150 {
        let mut routes = Vec::new();
        let wanted = chance.below(40);
        chance.change(&mut routes, wanted);
        let before = table(&routes);
        assert_eq!(before.changes_since(&before.clone()), Changes::default(), "nothing changes nothing");
        let times = [1, 2, 5, 40][chance.below(4) as usize];
        chance.change(&mut routes, times);
        most = most.max(agrees(&before, &table(&routes), &mut chance));
        // The same prefixes, of some of which something else is said.
        let before = table(&routes);
        for _ in 0..routes.len().min(3) {
            let at = chance.below(routes.len() as u32) as usize;
            routes[at].mtu = [None, Some(1_400), Some(1_500)][chance.below(3) as usize];
        }
        agrees(&before, &table(&routes), &mut chance);
    }
    assert!(most > STRETCHES_MAX, "there were more than are named one by one: {most}");
}

#[test]
fn a_route_that_changes_among_a_thousand_is_one_change() {
    let net = |i: u32| Prefix::new(Address::from_v4([172, 16 + (i >> 8) as u8, i as u8, 0]), 24).expect("no host bits");
    let plain = |i| Route { prefix: net(i), next_hop: None, interface: 0, mtu: None, source: None };
    let mut routes: Vec<Route> = (0..1_000).map(plain).collect();
    let before = table(&routes);
    routes[500].mtu = Some(1_400);
    let after = table(&routes);
    let changes = after.changes_since(&before);
    let (number, inside) = (after.find(routes[500].prefix.address()), Address::from_v4([172, 17, 244, 9]));
    let [change] = changes.list[..] else { panic!("{changes:?}") };
    assert!(change.stretch.contains(inside) && !changes.is_renumbered());
    assert_eq!(change.leads, Leads::Route(number.expect("it is there"), routes[500]));
    // One that goes leaves all others as they are, but for their numbers.
    routes.remove(500);
    let changes = table(&routes).changes_since(&after);
    assert_eq!((changes.list.len(), changes.list[0].leads), (1, Leads::Nowhere));
    assert!(changes.is_renumbered());
    // All of them at once are few words as well.
    let all: Vec<Route> = routes.iter().map(|route| Route { interface: 1, ..*route }).collect();
    let changes = table(&all).changes_since(&table(&routes));
    assert_eq!(changes.list.len(), STRETCHES_MAX);
    assert_eq!(changes.list[STRETCHES_MAX - 1].leads, Leads::Various);
}

/// As many prefixes as before, and those of one family the same.
#[test]
fn what_changes_in_one_family_alone_is_seen() {
    let route = |address: Address, len| {
        let prefix = Prefix::of(address, len).expect("a length");
        Route { prefix, next_hop: None, interface: 0, mtu: None, source: None }
    };
    let v4 = |net| route(Address::from_v4([10, 0, net, 0]), 24);
    let v6 = |net| route(Address::from_v6([0x20, net, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), 16);
    let before = table(&[v4(1), v6(1)]);
    for (after, gone, come) in [(table(&[v4(1), v6(2)]), v6(1), v6(2)), (table(&[v4(2), v6(1)]), v4(1), v4(2))] {
        let changes = after.changes_since(&before);
        let leads = |to: Route| {
            let there = |change: &&Change| change.stretch.contains(to.prefix.address());
            changes.iter().find(there).map(|change| change.leads)
        };
        assert_eq!(leads(gone), Some(Leads::Nowhere));
        assert!(matches!(leads(come), Some(Leads::Route(_, route)) if route == come), "{changes:?}");
    }
}

/// Their first addresses are the same number.
#[test]
fn stretches_of_two_families_have_nothing_in_common() {
    let (v4, _) = RouteTable::default().stretch(Address::from_v4([1, 2, 3, 4]));
    let (v6, _) = RouteTable::default().stretch(Address::from_v6([0x20; 16]));
    assert!(!v6.covers(&v4) && !v4.covers(&v6) && !v6.meets(&v4) && !v4.meets(&v6));
    assert!(!v4.contains(Address::UNSPECIFIED_V6) && !v6.contains(Address::UNSPECIFIED_V4));
}

#[test]
fn a_stretch_ends_where_another_route_wins() {
    let mut chance = Chance(815);
    for _ in 0..100 {
        let mut routes = Vec::new();
        let wanted = chance.below(30);
        chance.change(&mut routes, wanted);
        let table = table(&routes);
        for _ in 0..50 {
            let dst = chance.address();
            let (stretch, number) = table.stretch(dst);
            assert!(stretch.contains(dst) && stretch.covers(&stretch) && stretch.meets(&stretch));
            assert_eq!(number, table.find(dst), "{dst}");
            for _ in 0..20 {
                let other = chance.address();
                let (beside, leads) = table.stretch(other);
                assert_eq!(stretch.contains(other), beside == stretch, "{dst} {other}");
                assert_eq!(stretch.meets(&beside), beside == stretch);
                let next = stretch.v4 == beside.v4 && stretch.last.checked_add(1) == Some(beside.first);
                assert!(!next || leads != number, "{dst} {other}: there was no need to end");
            }
        }
    }
    let (all, nobody) = RouteTable::default().stretch(Address::from_v4([1, 2, 3, 4]));
    assert_eq!((all, nobody), (Stretch { v4: true, first: 0, last: u32::MAX.into() }, None));
}
