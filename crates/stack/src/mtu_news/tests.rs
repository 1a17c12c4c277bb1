//! Every connection to a peer hears that the path is narrower, and no poll looks at more than its share of them.

use super::*;
use crate::listing::tests::World;
use laneway_proto::ip::route::{Prefix, Route, RouteTable};

const MANY: usize = 5_000;

/// Connections of the client whose segments are no longer than that.
fn narrow(world: &mut World, mss: u16) -> usize {
    let now = world.now;
    world.client.seats[0].lane.tables(|tables| {
        let narrow = |slot: &Slot| matches!(&slot.tcb, Tcb::Synchronized(c) if c.info(now).mss <= mss);
        tables.slots.iter().filter(|(_, slot)| narrow(slot)).count()
    })
}

fn open(many: usize) -> World {
    let mut world = World::new();
    world.client.seats[0].app.to_open = many;
    world.turn(500);
    assert_eq!(narrow(&mut world, u16::MAX), many);
    assert_eq!(narrow(&mut world, 1_000), 0);
    world
}

#[test]
fn all_hear_of_it_and_no_poll_tells_more_than_its_share() {
    let mut world = open(MANY);
    let server = Address::from_v4([10, 0, 0, 1]);
    world.client.seats[0].lane.local.mtu_news.learn(server, 1_000);
    let mut told = 0;
    for poll in 1.. {
        let turn = world.client.turn(world.now);
        let now_told = narrow(&mut world, 1_000);
        assert!(now_told - told <= LOOKS_MAX as usize, "{} in one poll", now_told - told);
        assert!(turn.busy, "a lane with a walk before it went to sleep");
        told = now_told;
        if told == MANY {
            assert_eq!(poll, MANY.div_ceil(LOOKS_MAX as usize));
            break;
        }
    }
    assert!(!world.client.seats[0].lane.local.mtu_news.is_under_way());
}

#[test]
fn what_is_learnt_during_a_walk_has_the_next_and_others_are_left_alone() {
    let mut world = open(MANY);
    let (server, other) = (Address::from_v4([10, 0, 0, 1]), Address::from_v4([10, 0, 0, 9]));
    world.client.seats[0].lane.local.mtu_news.learn(other, 600);
    world.client.turn(world.now);
    // While that walk is beyond the first connections, news comes twice, and the last word counts.
    world.client.seats[0].lane.local.mtu_news.learn(server, 1_200);
    world.client.seats[0].lane.local.mtu_news.learn(server, 1_000);
    let polls = 2 * MANY.div_ceil(LOOKS_MAX as usize);
    for _ in 0..polls {
        world.client.turn(world.now);
    }
    assert!(!world.client.seats[0].lane.local.mtu_news.is_under_way(), "two walks were not enough");
    assert_eq!((narrow(&mut world, 1_000), narrow(&mut world, 600)), (MANY, 0));
}

/// The operator knows of a tunnel that says nothing: the route to the server has an MTU from now on (RFC 9293 section 3.7.1).
#[test]
fn a_route_that_carries_less_is_heard_of_by_those_who_send_more() {
    let mut world = open(20);
    let prefix = Prefix::new(Address::from_v4([10, 0, 0, 0]), 24).expect("no host bits");
    let route = |mtu| Route { prefix, next_hop: None, interface: 0, mtu: Some(mtu), source: None };
    let table = |mtu| RouteTable::builder().add(route(mtu)).build().expect("a table");
    world.client.control.replace_routes(table(1_000)).unwrap();
    world.client.seats[0].app.to_say = 300;
    world.turn(100);
    assert_eq!(narrow(&mut world, 1_000), 0, "what they have said so far fits");
    world.client.seats[0].app.to_say = 3_000;
    world.turn(100);
    assert_eq!(narrow(&mut world, 960), 20);
    // Less than a connection ever sends at a time: nothing can be told, and no walk begins that would be the same again and again.
    world.client.control.replace_routes(table(80)).unwrap();
    world.client.seats[0].app.to_say = 3_000;
    world.turn(1_000);
    assert_eq!(narrow(&mut world, 64), 20);
    world.client.seats[0].app.to_say = 3_000;
    world.turn(1_000);
    assert!(!world.client.seats[0].lane.local.mtu_news.is_under_way());
}
