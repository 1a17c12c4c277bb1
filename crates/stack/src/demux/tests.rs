//! What is counted of segments that are for nobody.

use crate::counters::Mib;
use crate::listing::tests::World;
use laneway_proto::discard::Discard;

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
