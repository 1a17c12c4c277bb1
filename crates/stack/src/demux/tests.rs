//! What is counted of segments that are for nobody.

use crate::counters::Mib;
use crate::listing::tests::World;
use crate::paths::PathPlace;
use laneway_proto::discard::Discard;
use laneway_wire::flow::{Address, FlowKey};

/// (SYNs refused, segments for nobody, RSTs sent) by the server.
fn counted(world: &mut World) -> (u64, u64, u64) {
    let counters = world.server.counters();
    (counters.get(Mib::TcpRefused), counters.discarded(Discard::TcpNoConnection), counters.get(Mib::TcpOutRsts))
}

#[test]
fn a_connection_is_refused_once_for_each_syn_and_not_for_a_stray_segment() {
    let mut world = World::new();
    world.client.seats[0].app.to_open = 1;
    world.turn(20);
    assert_eq!(counted(&mut world), (0, 0, 0));
    world.client.seats[0].app.ports = 81..=83;
    world.client.seats[0].app.to_open = 3;
    world.turn(20);
    assert_eq!(counted(&mut world), (3, 3, 3), "nobody listens there");
    // The server forgets the connection, and what the client says on it next is for nobody; but it begins nothing.
    world.server.seats[0].lane.tables(|tables| {
        let index = tables.slots.iter().next().expect("the one that is open").0;
        tables.remove(index);
    });
    world.client.seats[0].app.to_close = 1;
    world.turn(20);
    assert_eq!(counted(&mut world), (3, 4, 4));
}

/// A flood of SYNs would take the places of the paths that connections use.
#[test]
fn who_has_sent_a_syn_has_no_path_yet() {
    let mut world = World::new();
    let key = FlowKey {
        local: Address::from_v4([10, 0, 0, 1]),
        remote: Address::from_v4([10, 0, 0, 2]),
        local_port: 80,
        remote_port: 0,
    };
    let has_path = |world: &World| {
        let local = &world.server.seats[0].lane.local;
        local.paths.known(PathPlace::of(&key), &local.snapshot, &key.local, &key.remote).is_some()
    };
    world.client.seats[0].app.to_open = 1;
    while world.server.seats[0].lane.tables(|t| t.half_open.is_empty()) {
        world.now = world.now.after_us(50);
        world.client.turn(world.now);
        world.server.turn(world.now);
    }
    assert!(!has_path(&world), "he may be a stranger whom nobody will hear of again");
    // Nor when the answer is repeated.
    world.now = world.now.after_us(1_100_000);
    world.server.turn(world.now);
    assert_eq!((world.server.counters().get(Mib::TcpRetransSegs), has_path(&world)), (1, false));
    world.turn(20);
    assert!(has_path(&world), "he has completed his handshake");
    assert_eq!(world.server.counters().get(Mib::TcpPassiveOpens), 1);
}
