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

#[test]
fn a_queue_that_is_crowded_does_not_keep_the_other_from_being_reaped() {
    let mut world = World::new();
    world.client.seats[0].app.to_open = 1;
    world.turn(20);
    world.client.seats[0].app.to_close = 1;
    world.turn(20);
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
