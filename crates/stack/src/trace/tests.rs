//! A reader beside two stacks that talk.

use super::*;
use crate::listing::tests::World;

/// What a reader keeps of a frame.
#[derive(Debug)]
struct Seen {
    out: bool,
    len: u32,
    bytes: Vec<u8>,
    at: Instant,
}

fn read(reader: &mut Reader) -> Vec<Seen> {
    let mut all = Vec::new();
    while reader.read(64, |frame| {
        all.push(Seen {
            out: frame.direction == Direction::Out,
            len: frame.len,
            bytes: frame.bytes.to_vec(),
            at: frame.at,
        });
    }) > 0
    {}
    all
}

fn begin(world: &mut World, filter: Filter, snaplen: u32) -> Reader {
    let (tap, reader) = tap(filter, snaplen);
    world.client.control.tap(0, tap);
    world.turn(1); // the mail is read in this turn, the packets are seen from the next on
    reader
}

fn conversation(world: &mut World) {
    world.client.seats[0].app.to_open = 1;
    world.turn(20);
    world.client.seats[0].app.to_close = 1;
    world.turn(20);
}

#[test]
fn every_packet_is_seen_in_order_both_ways() {
    let mut world = World::new();
    let mut reader = begin(&mut world, Filter::default(), SNAPLEN_MAX);
    let from = world.now;
    conversation(&mut world);
    let seen = read(&mut reader);
    let flags = |s: &Seen| s.bytes[20 + 13];
    let (syn, syn_ack) = (0x02, 0x12);
    assert!(seen.len() >= 7, "{seen:?}");
    assert!(seen[0].out && flags(&seen[0]) == syn);
    assert!(!seen[1].out && flags(&seen[1]) == syn_ack);
    assert_eq!(seen.iter().filter(|s| s.out && flags(s) & 1 != 0).count(), 1, "our FIN");
    assert_eq!(seen.iter().filter(|s| !s.out && flags(s) & 1 != 0).count(), 1, "their FIN");
    assert!(seen.iter().all(|s| s.len as usize == s.bytes.len() && s.at > from && s.at <= world.now));
    assert!(seen.windows(2).all(|two| two[0].at <= two[1].at));
    assert_eq!(reader.dropped(), 0);
}

#[test]
fn a_lane_that_has_much_mail_is_looked_at_all_the_same() {
    let mut world = World::new();
    for _ in 0..2_000 {
        world.client.control.request_counters(); // more than there is room for
    }
    let mut reader = begin(&mut world, Filter::default(), SNAPLEN_MAX);
    world.turn(2);
    conversation(&mut world);
    assert!(!reader.is_closed());
    assert!(read(&mut reader).len() >= 7);
}

#[test]
fn filters_and_cuts() {
    let wants = [
        (Filter { port: Some(80), ..Filter::default() }, true),
        (Filter { port: Some(81), ..Filter::default() }, false),
        (Filter { host: Some("10.0.0.1".parse().unwrap()), ..Filter::default() }, true),
        (Filter { host: Some("10.0.0.3".parse().unwrap()), ..Filter::default() }, false),
        (Filter { protocol: Some(6), ..Filter::default() }, true),
        (Filter { protocol: Some(17), ..Filter::default() }, false),
        (Filter { port: Some(80), protocol: Some(6), host: Some("10.0.0.2".parse().unwrap()) }, true),
    ];
    for (filter, some) in wants {
        let mut world = World::new();
        let mut reader = begin(&mut world, filter, 40);
        conversation(&mut world);
        let seen = read(&mut reader);
        assert_eq!(!seen.is_empty(), some, "{filter:?}");
        assert!(seen.iter().all(|s| s.bytes.len() == 40 && s.len >= 52));
    }
}

#[test]
fn what_is_not_ip_matches_only_an_empty_filter() {
    let tcp = Filter { protocol: Some(6), ..Filter::default() };
    for packet in [&[][..], &[0; 3], &[0x45; 19], &[0x60; 39], &[0xff; 64]] {
        assert!(Filter::default().wants(packet));
        assert!(!tcp.wants(packet), "{packet:?}");
    }
    // A later fragment has no ports, whatever its bytes look like; a header longer than the packet has none either.
    let mut fragment = [0x45; 40];
    fragment[6] = 0x00;
    fragment[7] = 0x10;
    fragment[9] = 6;
    assert!(tcp.wants(&fragment));
    assert!(!Filter { port: Some(0x4545), ..Filter::default() }.wants(&fragment));
    fragment[7] = 0;
    fragment[0] = 0x4f;
    assert!(!Filter { port: Some(0x4545), ..Filter::default() }.wants(&fragment));
}

#[test]
fn a_reader_that_sleeps_loses_packets_which_are_counted_and_stops_nobody() {
    let mut world = World::new();
    let mut reader = begin(&mut world, Filter::default(), SNAPLEN_MAX);
    let mut rounds = 0;
    while reader.dropped() == 0 {
        world.client.seats[0].app.to_open = 1_000;
        world.turn(60);
        world.client.seats[0].app.to_close = 1_000;
        world.turn(60);
        world.now = world.now.after_us(30_000_000);
        rounds += 1;
        assert!(rounds < 100, "a ring of {RING} bytes never fills");
    }
    let counters = world.client.counters();
    use crate::counters::Mib;
    assert_eq!(counters.get(Mib::TcpActiveOpens), rounds * 1_000);
    assert_eq!(counters.get(Mib::TcpRetransSegs), 0, "looking at packets lost some");
    let seen = read(&mut reader).len() as u64;
    assert!(seen > 10_000);
    // Read again, it goes on.
    conversation(&mut world);
    assert!(read(&mut reader).len() >= 7);
}

#[test]
fn a_tap_without_a_reader_goes_home() {
    let mut world = World::new();
    let first = begin(&mut world, Filter::default(), 100);
    let mut second = begin(&mut world, Filter::default(), 100);
    assert_eq!(world.client.seats[0].lane.local.taps.len(), 2);
    drop(first);
    world.turn(2);
    assert_eq!(world.client.seats[0].lane.local.taps.len(), 1);
    conversation(&mut world);
    assert!(!read(&mut second).is_empty());
    drop(second);
    world.turn(2);
    assert!(world.client.seats[0].lane.local.taps.is_empty());
}
