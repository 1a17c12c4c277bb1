//! What is counted of segments that are for nobody.

use crate::counters::Mib;
use crate::egress;
use crate::lane::Local;
use crate::listing::tests::World;
use crate::paths::PathPlace;
use laneway_device::{Alarms, Tx};
use laneway_proto::discard::Discard;
use laneway_proto::tcp::{Cx, isn, listen};
use laneway_proto::time::Instant;
use laneway_wire::flow::{Address, FlowKey};
use laneway_wire::tcp::{Flags, Header, Options, Segment, SeqNum, Timestamps, UnscaledWindow};
use std::sync::Arc;

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

/// A server that has a flow in TIME_WAIT, and the flow, seen from there.
fn in_time_wait() -> (World, FlowKey) {
    let mut world = World::new();
    world.client.seats[0].app.to_open = 1;
    world.turn(20);
    let key = world.server.seats[0].lane.tables(|tables| *tables.slots.iter().next().expect("the one").1.key());
    world.server.seats[0].app.to_close = 1;
    world.turn(20);
    world.client.seats[0].app.to_close = 1;
    world.turn(20);
    assert_eq!(world.server.seats[0].lane.tables(|tables| (tables.slots.len(), tables.time_waits)), (0, 1));
    (world, key)
}

/// What a client says who has had a SYN answered by the server's device at `at`, whatever his flow was.
pub(crate) fn acks_a_cookie(world: &mut World, key: &FlowKey, at: Instant) -> Header {
    let now = world.now;
    acked_a_cookie(world, key, at, now)
}

/// The same, and he said it at `now`: it comes late.
fn acked_a_cookie(world: &mut World, key: &FlowKey, at: Instant, now: Instant) -> Header {
    let client = &mut world.client.seats[0];
    let stamps = |local: &Local| isn::ts_offset(&local.secrets.get().timestamp, &key.remote, &key.local);
    let val = (now.as_ms() as u32).wrapping_add(stamps(&client.lane.local));
    let syn = Segment {
        src_port: key.remote_port,
        dst_port: key.local_port,
        seq: SeqNum::new(77),
        ack: SeqNum::new(0),
        flags: Flags::SYN,
        window: UnscaledWindow::new(1_000),
        urgent: 0,
        options: Options { timestamps: Some(Timestamps { val, echo: 0 }), ..Options::NONE },
        payload: &[],
    };
    let secrets = world.server.seats[0].lane.local.secrets.get();
    let config = world.server.seats[0].lane.local.config.tcp.clone();
    let answer = world.server.seats[0].lane.tables(|tables| {
        let cx = Cx { now: at, config: &config, pool: &mut tables.pool };
        listen::cookie_syn_ack(key, &syn, 1_460, &secrets, &cx)
    });
    let echo = answer.options.timestamps.expect("both ends have them").val;
    let ack = Header {
        src_port: syn.src_port,
        dst_port: syn.dst_port,
        seq: syn.seq + 1,
        ack: answer.seq + 1,
        flags: Flags::ACK,
        window: syn.window,
        urgent: 0,
        options: Options::timestamps(Timestamps { val, echo }),
    };
    says(world, key, ack);
    ack
}

/// The server hears this of a client, whose own connection on this flow is not asked.
pub(crate) fn says(world: &mut World, key: &FlowKey, header: Header) {
    let client = &mut world.client.seats[0];
    let sent = egress::answer(&mut client.lane.local, &mut client.queue.tx, &key.reversed(), |_, _| header);
    assert_eq!(sent, egress::Sent::Yes);
    client.queue.tx.flush();
    world.now = world.now.after_us(50);
    world.server.turn(world.now);
}

/// Those that the server hears.
pub(crate) fn alarms_of(world: &mut World) -> Alarms {
    let alarms = Alarms::default();
    world.server.seats.iter_mut().for_each(|seat| seat.lane.local.alarms = Some(alarms.clone()));
    alarms
}

/// (Connections, redeemed cookies, RSTs sent) of the server.
fn begun(world: &mut World) -> (usize, u64, u64) {
    let counters = world.server.counters();
    let open = world.server.seats[0].lane.tables(|tables| tables.slots.len());
    (open, counters.get(Mib::TcpExtSyncookiesRecv), counters.get(Mib::TcpOutRsts))
}

#[test]
fn who_was_answered_by_the_device_takes_over_a_flow_in_time_wait() {
    let (mut world, key) = in_time_wait();
    let alarms = alarms_of(&mut world);
    world.now = world.now.after_us(1_000_000);
    let at = world.now;
    acks_a_cookie(&mut world, &key, at);
    assert_eq!(begun(&mut world), (0, 0, 0), "nobody has sent cookies");

    alarms.raise();
    let before = world.server.counters().get(Mib::TcpOutSegs);
    acks_a_cookie(&mut world, &key, at);
    assert_eq!(begun(&mut world), (1, 1, 0));
    // The cookie's timestamp may be older than the record: from now on the client knows what is too old.
    assert_eq!(world.server.counters().get(Mib::TcpOutSegs) - before, 1, "he is sent an ACK at once");
}

#[test]
fn who_was_answered_before_the_wait_began_is_reset() {
    let (mut world, key) = in_time_wait();
    let alarms = alarms_of(&mut world);
    alarms.raise();
    let began = world.now;
    world.now = world.now.after_us(1_000_000);
    acks_a_cookie(&mut world, &key, Instant::from_us(began.as_us() - 100_000));
    assert_eq!(begun(&mut world), (0, 0, 1), "what is left of the former connection would be taken for his");
}

/// A client begins, and the server has heard his SYN: his flow, seen from there.
fn half_open(world: &mut World) -> FlowKey {
    world.client.seats[0].app.to_open = 1;
    while world.server.seats[0].lane.tables(|t| t.half_open.is_empty()) {
        world.now = world.now.after_us(50);
        world.client.turn(world.now);
        world.server.turn(world.now);
    }
    world.server.seats[0].lane.tables(|t| *t.half_open.iter().next().expect("the one").1.key())
}

/// A client whose first SYN came before the flood, and who has begun anew on the same flow.
#[test]
fn who_was_answered_by_the_device_takes_over_a_handshake_that_he_has_forgotten() {
    let mut world = World::new();
    let alarms = alarms_of(&mut world);
    let key = half_open(&mut world);
    world.now = world.now.after_us(1_000);
    let at = world.now;
    acks_a_cookie(&mut world, &key, at);
    assert_eq!(begun(&mut world), (0, 0, 0), "nobody has sent cookies");
    alarms.raise();
    acks_a_cookie(&mut world, &key, at);
    assert_eq!(begun(&mut world), (1, 1, 0));
    assert!(world.server.seats[0].lane.tables(|t| t.half_open.is_empty()));
}

/// What is left of a connection that began with a cookie and is over ends no handshake of the next one.
#[test]
fn who_acknowledged_a_cookie_before_he_began_anew_takes_nothing_over() {
    let mut world = World::new();
    alarms_of(&mut world).raise();
    let formerly = world.now;
    world.now = world.now.after_us(50_000);
    let key = half_open(&mut world);
    acked_a_cookie(&mut world, &key, formerly, formerly);
    assert_eq!(begun(&mut world), (0, 0, 0));
    world.turn(20);
    assert_eq!(begun(&mut world), (1, 0, 0), "his own handshake goes on");
}

/// He does not wait for an answer that cannot come, and the connection that he has forgotten ends as it would without a flood: he refuses its challenge.
#[test]
fn who_was_answered_by_the_device_and_has_forgotten_a_connection_is_reset_and_ends_it() {
    let mut world = World::new();
    let alarms = alarms_of(&mut world);
    world.client.seats[0].app.to_open = 1;
    world.turn(20);
    let key = world.server.seats[0].lane.tables(|tables| *tables.slots.iter().next().expect("the one").1.key());
    world.now = world.now.after_us(10_000_000);
    let at = world.now;
    acks_a_cookie(&mut world, &key, at);
    assert_eq!(begun(&mut world), (1, 0, 0), "nobody has sent cookies");

    world.client.seats[0].lane.tables(|tables| {
        let index = tables.slots.iter().next().expect("the one").0;
        tables.remove(index);
    });
    alarms.raise();
    world.now = world.now.after_us(10_000_000);
    let at = world.now;
    acks_a_cookie(&mut world, &key, at);
    assert_eq!(begun(&mut world), (1, 0, 1), "his is reset, and the other is not ended by it");
    world.turn(20);
    assert_eq!(begun(&mut world), (0, 0, 1), "he knows nothing of it");
}

/// Nobody who only guesses is told more than without a flood.
#[test]
fn what_a_connection_refuses_and_bears_no_cookie_is_not_reset_in_a_flood() {
    let mut world = World::new();
    alarms_of(&mut world).raise();
    world.client.seats[0].app.to_open = 1;
    world.turn(20);
    let key = world.server.seats[0].lane.tables(|tables| *tables.slots.iter().next().expect("the one").1.key());
    let ack = bare(&key, SeqNum::new(77), SeqNum::new(78), Flags::ACK);
    says(&mut world, &key, ack);
    assert_eq!(begun(&mut world), (1, 0, 0));
}

/// Nothing but these flags and numbers, from the remote end of a flow.
pub(crate) fn bare(key: &FlowKey, seq: SeqNum, ack: SeqNum, flags: Flags) -> Header {
    Header {
        src_port: key.remote_port,
        dst_port: key.local_port,
        seq,
        ack,
        flags,
        window: UnscaledWindow::new(1_000),
        urgent: 0,
        options: Options::NONE,
    }
}

/// So many handshakes are begun and refused, one each so many microseconds. Whether the server says that its endpoint is overrun.
fn is_overrun_by(world: &mut World, refusals: usize, each_us: u64) -> bool {
    let key = FlowKey {
        local: Address::from_v4([10, 0, 0, 1]),
        remote: Address::from_v4([10, 0, 0, 2]),
        local_port: 80,
        remote_port: 9,
    };
    let none = SeqNum::new(0);
    for _ in 0..refusals {
        says(world, &key, bare(&key, SeqNum::new(77), none, Flags::SYN));
        assert_eq!(world.server.seats[0].lane.tables(|t| t.half_open.len()), 1);
        says(world, &key, bare(&key, SeqNum::new(78), none, Flags::RST));
        assert_eq!(world.server.seats[0].lane.tables(|t| t.half_open.len()), 0);
        world.now = world.now.after_us(each_us - 100);
    }
    world.server.seats[0].lane.local.overrun.take().is_some()
}

#[test]
fn an_endpoint_is_overrun_by_many_refused_handshakes_in_a_short_time() {
    let overrun = |refusals, each_us, cookies: bool, alarms: bool| {
        let mut world = World::new();
        Arc::make_mut(&mut world.server.seats[0].lane.local.config).tcp.tcp_syncookies = cookies;
        if alarms {
            alarms_of(&mut world);
        }
        [is_overrun_by(&mut world, refusals, each_us), is_overrun_by(&mut world, 1, each_us)]
    };
    assert_eq!(overrun(255, 150, true, true), [false, true]);
    assert_eq!(overrun(256, 150, true, true), [true, false], "it is said once in a while");
    assert_eq!(overrun(600, 250, true, true), [false, false], "so many are no flood");
    assert_eq!(overrun(256, 150, false, true), [false, false], "nobody may be given cookies");
    assert_eq!(overrun(256, 150, true, false), [false, false], "the device cannot give any");
}

/// The device looks at the time when it answers, and a lane when its turn begins.
#[test]
fn a_cookie_of_the_minute_that_has_just_begun_is_good() {
    const MINUTE_US: u64 = 60_000_000;
    for (late_us, is_good) in [(10_000, true), (5_000_000, false)] {
        let (mut world, key) = in_time_wait();
        let alarms = alarms_of(&mut world);
        alarms.raise();
        let begins = Instant::from_us(world.now.as_us().next_multiple_of(MINUTE_US));
        world.now = Instant::from_us(begins.as_us() - late_us);
        acks_a_cookie(&mut world, &key, begins);
        assert_eq!(begun(&mut world).0, usize::from(is_good), "{late_us} us before the minute begins");
    }
}
