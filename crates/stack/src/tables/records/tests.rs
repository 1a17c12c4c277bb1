//! Records of both families beside each other.

use super::*;
use crate::listing::tests::World;
use laneway_wire::flow::FlowKey;
use std::net::Ipv6Addr;

const MSL_US: u64 = 10_000_000;

fn key(n: u32) -> FlowKey {
    let remote = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, (n >> 16) as u16, n as u16);
    let local = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 1, 0, 1);
    FlowKey { local: local.into(), remote: remote.into(), local_port: 80, remote_port: 40_000 }
}

/// The record of a connection over IPv4, and so many like it over IPv6.
fn records(tables: &mut Tables, n: u32) -> Vec<(u64, Handle)> {
    let parts = *tables.tw4.front().expect("there is one over IPv4").1.parts();
    let record = |n| {
        let hash = tables.hash(&key(n));
        let handle = Handle::new(Kind::TimeWaitV6, tables.tw6.push(TimeWaitV6::from_parts(&key(n), parts)));
        tables.flows.insert(hash, handle.raw());
        tables.count_record(usize::MAX);
        (hash, handle)
    };
    (0..n).map(record).collect()
}

/// A client with one record, over IPv4.
fn with_a_record() -> World {
    let mut world = World::new();
    world.client.seats[0].app.to_open = 1;
    world.turn(20);
    world.client.seats[0].app.to_close = 1;
    world.turn(20);
    world
}

#[test]
fn a_queue_that_is_crowded_does_not_keep_the_other_from_being_reaped() {
    let mut world = with_a_record();
    let mut now = world.now;
    world.client.seats[0].lane.tables(|tables| {
        let all = records(tables, 3 * CROWDED as u32);
        // All but a few are taken over. The first is not, so the others wait behind it.
        all[10..].iter().for_each(|(hash, handle)| tables.give_up(*hash, *handle));
        assert_eq!(tables.time_waits, 11);
        let before = tables.tw6.len();
        let mut looked_at = 0;
        while tables.has_expired(now, MSL_US) {
            looked_at += tables.reap(now, MSL_US, 64);
            assert!(looked_at < 2 * before, "{looked_at} looks, and {} records are left of {before}", tables.tw6.len());
        }
        assert!(tables.tw6.len() <= 10 + CROWDED, "{} records, of which ten are alive", tables.tw6.len());
        assert_eq!((tables.time_waits, tables.flows.len()), (11, 11));

        now = now.after_us(2 * MSL_US + 2_000);
        while tables.has_expired(now, MSL_US) {
            tables.reap(now, MSL_US, 64);
        }
        assert_eq!((tables.time_waits, tables.flows.len(), tables.tw4.len(), tables.tw6.len()), (0, 0, 0, 0));
        assert_eq!(tables.dead, [0, 0]);
    });
}

/// One whose wait begins anew is the youngest, and those behind it do not wait for its end.
#[test]
fn a_record_that_begins_anew_holds_nobody_up() {
    let mut world = with_a_record();
    let now = world.now;
    world.client.seats[0].lane.tables(|tables| {
        let all = records(tables, 3);
        tables.restart_time_wait(all[0].1, now.after_us(MSL_US));
        let later = now.after_us(2 * MSL_US + 2_000);
        while tables.has_expired(later, MSL_US) && tables.reap(later, MSL_US, 64) > 0 {}
        assert_eq!((tables.time_waits, tables.tw6.len()), (1, 1));
        // It is found where it is now.
        assert!(tables.lookup(all[0].0, &key(0)).is_some_and(|handle| handle != all[0].1));
        tables.reap(later.after_us(MSL_US), MSL_US, 64);
        assert_eq!((tables.time_waits, tables.flows.len()), (0, 0));
    });
}

/// Over the cap the oldest of those that are alive goes, and with it who was taken over before: they are not counted among the dead any more.
#[test]
fn the_oldest_that_is_alive_makes_room() {
    let mut world = with_a_record();
    world.client.seats[0].lane.tables(|tables| {
        let all = records(tables, 10);
        all[..5].iter().for_each(|(hash, handle)| tables.give_up(*hash, *handle));
        assert_eq!((tables.time_waits, tables.dead), (6, [0, 5]));
        tables.time_waits -= 1;
        tables.count_record(5);
        assert_eq!((tables.time_waits, tables.tw6.len(), tables.dead), (5, 4, [0, 0]));
        assert!(tables.lookup(all[5].0, &key(5)).is_none() && tables.lookup(all[6].0, &key(6)).is_some());
    });
}

/// Whoever has yet to read what came on a connection that only waits gives nothing back of it when he has: its port is the record's.
#[test]
fn the_port_of_what_is_still_to_be_read_is_the_record_s() {
    let mut world = World::with_unread();
    world.client.seats[0].app.to_close = 1;
    world.turn(5);
    world.server.seats[0].app.to_close = 1;
    world.turn(20);
    world.client.seats[0].lane.tables(|tables| {
        let waiting =
            |tables: &Tables| (0..tables.ports.slices_end()).find_map(|at| tables.ports.slice(at)).map(|s| s.time_wait);
        let unread = (0..64).find(|index| tables.slots.get(*index).is_some()).expect("nobody has read");
        assert_eq!((tables.tw4.len(), waiting(tables)), (1, Some(1)));
        tables.remove(unread);
        assert_eq!((tables.tw4.len(), waiting(tables)), (1, Some(1)));
    });
}
