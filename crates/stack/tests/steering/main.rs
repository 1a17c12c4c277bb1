//! Steering buckets move under load: over a link whose senders follow the table, and over one that switches at once with
//! frames still in the old queue, as the kernel's TUN does. Nothing is lost, nothing is overtaken, and every move ends.

mod load;
mod packets;
mod source;
mod spy;
mod world;

use laneway_device::{BATCH_MAX, Tx, TxMeta};
use laneway_proto::discard::Discard;
use laneway_proto::ip::output::{self, HeaderSpec};
use laneway_stack::config::Config;
use laneway_stack::counters::Mib;
use laneway_stack::error::Error;
use laneway_stack::steering::BUCKETS;
use laneway_stack::tables::Tcb;
use laneway_wire::flow::{Address, FlowKey};
use laneway_wire::protocol;
use laneway_wire::tcp::Flags;
use load::{CLIENT, SERVER};
use packets::{bare, syn_in_fragments, too_big};
use source::Rss;
use std::sync::atomic::Ordering;
use world::{World, bucket, inject, one, one_that_comes_to, open, pause, put, received, say};

/// Moves so many buckets of both ends under load, some of them again before they have settled.
fn move_under_load(lanes: usize, rss: Rss, moves: usize, cookies: bool) {
    let mut config = Config::default();
    config.tcp.msl_us = 20_000;
    if cookies {
        config.tcp_max_syn_backlog = 0;
    }
    let mut world = World::new(lanes, rss, &config);
    let total = 1_500;
    let clients = world.ends[1].seats.len();
    for seat in &mut world.ends[1].seats {
        (seat.app.streams, seat.app.short, seat.app.at_once) = (12 / clients, total / clients, 30 / clients);
    }
    let mut turns = 0;
    let (mut moved, mut again) = (0, 0);
    while world.ends[1].seats.iter().map(|seat| seat.app.done).sum::<usize>() < total / clients * clients
        || moved < moves
    {
        world.some_turns(turns);
        turns += 1;
        if turns % 8 == 0 && moved < moves {
            let end = world.chance.next_u64() as usize % 2;
            // One right after the other: no lane has heard of the first when the second is asked for.
            for _ in 0..2 {
                let bucket = world.chance.next_u64() as usize % BUCKETS;
                let lane = world.chance.next_u64() as usize % world.ends[end].seats.len();
                let was = world.ends[end].control.buckets()[bucket];
                world.ends[end].control.move_bucket(bucket, lane).expect("it can be moved");
                moved += usize::from(was.lane != lane && was.then != Some(lane));
                again += usize::from(was.from.is_some() && was.lane != lane);
            }
        }
        assert!(turns < 40_000, "no progress after {moved} moves: {:?}", world.check());
    }
    assert!(lanes == 2 || again > 0, "none was moved again while it moved");
    world.check();
    let rounds: usize = world.ends[1].seats.iter().map(|seat| seat.app.rounds).sum();
    assert!(rounds > 100, "the streams have gone on: {rounds} rounds");
    let [server, client] = world.check();
    let opened = (total / clients * clients + 12 / clients * clients) as u64;
    assert_eq!((server.get(Mib::TcpPassiveOpens), client.get(Mib::TcpActiveOpens)), (opened, opened));
    let noticed = (server.get(Mib::SteerAsked), server.get(Mib::SteerReturned));
    assert!(noticed.0 > 0 && noticed.1 > 0, "moves were noticed: {noticed:?} {:?}", world.ends[0].control.buckets());
    if cookies {
        assert!(server.get(Mib::TcpExtSyncookiesRecv) > 0);
    }
    assert!(!world.is_settled(), "the streams hold up the moves of their buckets");
    // When they have ended, everything settles.
    world.ends[1].seats.iter_mut().for_each(|seat| seat.app.ending = true);
    let mut turns = 0;
    while !world.is_settled() {
        world.turn(1);
        turns += 1;
        assert!(turns < 20_000, "some move does not end: {:?}", world.ends[0].control.buckets());
    }
    world.turn(500);
    world.check();
    for end in 0..2 {
        for lane in 0..world.ends[end].seats.len() {
            assert_eq!(world.flows(end, lane), (0, 0, 0), "nothing is left over");
        }
    }
}

#[test]
fn a_hundred_moves_under_load_over_a_link_that_follows() {
    move_under_load(2, Rss::Follows, 100, false);
}

#[test]
fn a_hundred_moves_under_load_over_a_link_that_switches_at_once() {
    move_under_load(2, Rss::AtOnce, 100, false);
}

#[test]
fn a_hundred_moves_between_three_lanes_over_a_link_that_switches_at_once() {
    move_under_load(3, Rss::AtOnce, 100, false);
}

#[test]
fn a_hundred_moves_between_three_lanes_that_get_frames_at_random() {
    move_under_load(3, Rss::Absent, 100, false);
}

#[test]
fn a_hundred_moves_between_three_lanes_while_handshakes_are_cookies() {
    move_under_load(3, Rss::Follows, 100, true);
}

/// The new owner of a bucket sends the cookie, and the former one decides about the ACK for it, as about all that finds nothing while it
/// has a flow of the bucket left. It has sent no cookie for minutes.
#[test]
fn a_cookie_of_the_new_owner_is_believed_by_the_old_one() {
    let mut config = Config::default();
    config.tcp.msl_us = 20_000;
    config.tcp_max_syn_backlog = 0;
    let mut world = World::new(2, Rss::Follows, &config);
    for seat in &mut world.ends[1].seats {
        (seat.app.streams, seat.app.pausing) = (12, true);
    }
    world.turn(500);
    assert!(world.flows(0, 0).0 > 0, "some streams are the first lane's, and hold up the moves of their buckets");
    world.now = world.now.after_us(130_000_000);
    for bucket in 0..BUCKETS {
        world.ends[0].control.move_bucket(bucket, 1).expect("it can be moved");
    }
    world.turn(2_000);
    assert!(world.ends[0].control.buckets().iter().all(|bucket| bucket.lane == 1), "all are the second lane's");
    assert!(!world.is_settled());
    let asked = world.sum(Mib::SteerAsked);
    for seat in &mut world.ends[1].seats {
        (seat.app.short, seat.app.at_once) = (400, 20);
    }
    world.turn(8_000);
    let [server, _] = world.check();
    assert!(server.get(Mib::SteerAsked) > asked, "some came to buckets that move");
    assert_eq!((server.get(Mib::TcpPassiveOpens), world.ends[1].seats[0].app.done), (24 + 800, 400));
}

/// A lane that is given more than it can take keeps up with the flows of a bucket that it gives away as with the others: it
/// reads what its queue held, however long the queue stays full.
#[test]
fn a_bucket_leaves_a_lane_whose_queue_is_never_empty() {
    let mut world = World::new(2, Rss::AtOnce, &Config::default());
    let (bound, number) = one(&mut world, 20_007);
    open(&mut world, bound);
    let from: usize = world.steering[0].indirection()[number].into();
    // Datagrams for nobody, that come to the same queue before and after.
    let header = HeaderSpec::new(Address::from_v4(CLIENT), Address::from_v4([10, 0, 0, 9]), protocol::UDP);
    let mut datagram = [0; 28];
    output::emit(&header, &mut datagram, 8);
    let stays = |bucket: usize| bucket != number && usize::from(world.steering[0].indirection()[bucket]) == from;
    let port = (1..u16::MAX).find(|port| {
        datagram[20..22].copy_from_slice(&port.to_be_bytes());
        stays(world.steering[0].bucket_of_frame(&datagram, 0))
    });
    port.expect("every second one");
    let flood = |world: &mut World, frames: usize| {
        let tx = &mut world.ends[1].seats[0].queue.tx.inner;
        for _ in 0..frames {
            if let Some(frame) = tx.reserve(datagram.len()) {
                frame.copy_from_slice(&datagram);
                tx.commit(datagram.len(), TxMeta::default());
            }
        }
        tx.flush();
    };
    let rounds = |world: &World| world.ends[1].seats.iter().map(|seat| seat.app.rounds).sum::<usize>();
    flood(&mut world, 128);
    world.ends[0].control.move_bucket(number, 1 - from).unwrap();
    let mut in_tenths = [0; 10];
    for tenth in &mut in_tenths {
        let before = rounds(&world);
        for _ in 0..1_000 {
            flood(&mut world, 64);
            world.ends.iter_mut().for_each(|end| _ = end.turn(world.now));
            world.now = world.now.after_us(100);
        }
        *tenth = rounds(&world) - before;
    }
    assert_eq!(bucket(&world, number), (1 - from, Some(from), None), "the connection is still there");
    assert!(in_tenths.iter().all(|rounds| *rounds > 10), "round trips in each tenth of a second: {in_tenths:?}");
    world.check_but_probes(1); // the queue fills, and the first answer behind it is late
}

/// Of a flow 36 segments lie in the old owner's queue, behind as many of another, and it takes 64 in a poll; 4 more lie in the new
/// owner's, which mails them at once.
#[test]
fn what_the_new_owner_mails_waits_for_what_is_in_the_queue() {
    let mut world = World::new(2, Rss::AtOnce, &Config::default());
    let (other, stays) = one(&mut world, 20_004);
    let from: usize = world.steering[0].indirection()[stays].into();
    open(&mut world, other);
    let of = Address::from_v4;
    let key = |port| FlowKey { local: of(SERVER), remote: of(CLIENT), local_port: 7, remote_port: port };
    let beside =
        |port: &u16| world.steering[0].bucket(&key(*port)) != stays && world.steering[0].lane(&key(*port)) == from;
    let port = (20_005..).find(beside).expect("every second one");
    let (bound, number) = one(&mut world, port);
    open(&mut world, bound);
    world.turn(500); // the window has grown
    world.ends[1].seats.iter_mut().for_each(|seat| seat.app.pausing = true);
    world.turn(50);
    let say = |world: &mut World, bytes: usize| {
        world.ends[1].seats.iter_mut().for_each(|seat| seat.app.burst = bytes);
        world.ends[1].turn(world.now);
    };
    world.ends[0].control.move_bucket(number, 1 - from).unwrap();
    for seat in &mut world.ends[0].seats {
        seat.turn(world.now);
    }
    let sent = world.ends[1].counters().get(Mib::TcpOutSegs);
    say(&mut world, 36 * 1_448);
    world.ends[0].control.turn(world.now); // every lane has answered, and the device switches
    say(&mut world, 4 * 1_448);
    world.now = world.now.after_us(2_000);
    world.ends[0].seats[1 - from].turn(world.now);
    let asked = world.ends[0].counters().get(Mib::SteerAsked);
    let received = |world: &mut World| world.ends[0].seats[from].app.seen.values().sum::<usize>();
    let before = received(&mut world);
    world.ends[0].seats[from].turn(world.now);
    let taken = received(&mut world) - before;
    let sent = world.ends[1].counters().get(Mib::TcpOutSegs) - sent;
    assert_eq!(
        (sent, asked, taken),
        (80, 4, 64 * 1_448),
        "what was in the queue was more than one poll takes, and comes first"
    );
    world.turn(200);
    assert_eq!(received(&mut world) - before, 80 * 1_448);
    world.check();
}

#[test]
fn a_second_move_waits_for_the_drain() {
    let mut world = World::new(2, Rss::Follows, &Config::default());
    let (bound, number) = one(&mut world, 20_000);
    open(&mut world, bound);
    let from = world.steering[0].indirection()[number].into();
    let to = 1 - from;
    assert_eq!((world.flows(0, from).0, world.flows(0, to).0), (1, 0));
    world.ends[0].control.move_bucket(number, to).unwrap();
    world.turn(1_000);
    assert_eq!(bucket(&world, number), (to, Some(from), None), "the connection is still there");
    world.ends[0].control.move_bucket(number, from).unwrap();
    world.turn(1_000);
    assert_eq!(bucket(&world, number), (to, Some(from), Some(from)));
    let rounds = |world: &World| world.ends[1].seats.iter().map(|seat| seat.app.rounds).sum::<usize>();
    let before = rounds(&world);
    world.turn(1_000);
    assert!(rounds(&world) > before && world.flows(0, from).0 == 1, "it stays where it is, and lives");
    // It ends, and with it the first move and then the second.
    world.ends[1].seats.iter_mut().for_each(|seat| seat.app.ending = true);
    world.turn(2_000);
    assert_eq!(bucket(&world, number), (from, None, None));
    assert_eq!(world.ends[0].control.move_bucket(number, from), Ok(()), "moving it to where it is does nothing");
    assert_eq!(bucket(&world, number), (from, None, None));
    for (bucket, lane, says) in [(128, 0, "0 to 127"), (0, 2, "0 to 1")] {
        let refused = world.ends[0].control.move_bucket(bucket, lane).unwrap_err().to_string();
        assert!(refused.contains(says), "{refused}");
    }
    world.check();
}

/// The server closes, and keeps the record; its bucket moves; the client comes from the same port again.
#[test]
fn a_record_of_the_old_owner_is_asked_before_a_syn_takes_its_flow_over() {
    let mut world = World::new(2, Rss::Follows, &Config::default());
    let (bound, number) = one(&mut world, 20_001);
    let from: usize = world.steering[0].indirection()[number].into();
    let to = 1 - from;
    open(&mut world, bound);
    // The client says no more, and then the server closes.
    world.ends[1].seats.iter_mut().for_each(|seat| seat.app.pausing = true);
    world.turn(20);
    world.ends[0].seats.iter_mut().for_each(|seat| (seat.app.pausing, seat.app.ending) = (true, true));
    world.turn(20);
    assert_eq!((world.flows(0, from), world.flows(0, to)), ((0, 0, 1), (0, 0, 0)), "the server waits");
    world.ends[0].control.move_bucket(number, to).unwrap();
    world.turn(1_000);
    assert_eq!(bucket(&world, number), (to, Some(from), None), "the record holds it up");
    let record = |world: &mut World| {
        world.ends[0].seats[from].lane.tables(|t| t.tw4.front().map(|(_, record)| *record)).expect("it is there")
    };
    use laneway_proto::tcp::TimeWait;
    let beyond = record(&mut world).reusable(world.now.after_us(60_000_000), 1).expect("both ends send timestamps");
    open(&mut world, bound);
    assert_eq!(world.flows(0, to), (1, 0, 0), "the flow is with the new owner");
    assert_eq!(world.flows(0, from).2, 0, "the record has ended");
    let begun = world.ends[0].seats[to].lane.tables(|t| {
        let slot = t.slots.iter().next().expect("it is there").1;
        match &slot.tcb {
            Tcb::Synchronized(connection) => connection.sequence().0,
            Tcb::Handshaking(_) => panic!("it is established"),
        }
    });
    assert!(begun.after(beyond), "it begins beyond what the record remembers");
    let counters = world.ends[0].counters();
    assert_eq!((counters.get(Mib::TcpExtTWRecycled), counters.get(Mib::SteerReturned)), (1, 1));
    world.turn(100);
    assert_eq!(bucket(&world, number), (to, None, None), "and so has the move");
    world.check();
}

/// While a bucket of the client moves, only its former owner may open flows of it from a bound port, and nobody chooses its ports.
#[test]
fn the_former_owner_opens_what_a_bound_port_asks_for() {
    let mut world = World::new(2, Rss::Follows, &Config::default());
    let (bound, _) = one(&mut world, 20_002);
    let of = Address::from_v4;
    let key = FlowKey { local: of(CLIENT), remote: of(SERVER), local_port: 20_002, remote_port: 7 };
    let number = world.steering[1].bucket(&key);
    let from: usize = world.steering[1].indirection()[number].into();
    // Something that holds the move up.
    let hold = FlowKey { local_port: 0, ..key };
    let port = (20_003..).find(|port| world.steering[1].bucket(&FlowKey { local_port: *port, ..hold }) == number);
    let (holds, _) = one(&mut world, port.expect("one in 128"));
    open(&mut world, holds);
    world.ends[1].control.move_bucket(number, 1 - from).unwrap();
    world.turn(200);
    world.ends[1].seats[1 - from].app.from = Some(bound);
    world.turn(1);
    assert_eq!(world.ends[1].seats[1 - from].app.refused.take(), Some(Error::OtherLane(from)));
    open(&mut world, bound);
    assert_eq!(world.flows(1, from).0, 2, "it was opened where the bucket was");
    let rounds = |world: &World| world.ends[1].seats[from].app.rounds;
    let before = rounds(&world);
    world.turn(500);
    assert!(rounds(&world) > before + 2, "and its replies find it");
    // Neither lane chooses a port of the bucket.
    for seat in &mut world.ends[1].seats {
        (seat.app.short, seat.app.at_once) = (3_000, 50);
    }
    let mut busy = true;
    while busy {
        world.turn(1);
        for lane in 0..2 {
            let steering = &world.steering[1];
            world.ends[1].seats[lane].lane.tables(|t| {
                let chosen = t.slots.iter().filter(|(_, slot)| slot.key().remote_port == 80);
                let mut buckets = chosen.map(|(_, slot)| steering.bucket(slot.key()));
                assert!(buckets.all(|bucket| bucket != number), "a port of a moving bucket was chosen");
            });
        }
        busy = world.ends[1].seats.iter().any(|seat| seat.app.done < 3_000);
    }
    assert!(world.sum(Mib::SteerAsked) > 0);
    world.check();
}

/// A SYN that comes while frames are still put into the old owner's queue is accepted there, and what follows it does not overtake it.
#[test]
fn the_old_owner_decides_until_every_source_has_switched() {
    let mut world = World::new(2, Rss::WhenTold, &Config::default());
    let (bound, number) = one(&mut world, 20_006);
    let from: usize = world.steering[0].indirection()[number].into();
    let to = 1 - from;
    world.ends[0].control.move_bucket(number, to).unwrap();
    world.turn(50);
    assert_eq!(bucket(&world, number), (to, Some(from), None), "every lane goes by the table, and the source does not");
    open(&mut world, bound);
    assert_eq!((world.flows(0, from).0, world.flows(0, to)), (1, (0, 0, 0)));
    assert_eq!(world.ends[0].counters().get(Mib::SteerAsked), 0, "nobody else had a say in it");
    world.turn(500); // the window has grown
    pause(&mut world);
    let before = received(&world, from);
    say(&mut world, 20);
    world.ends[0].seats[from].turn(world.now);
    world.told.store(true, Ordering::Relaxed);
    world.ends[0].control.turn(world.now);
    say(&mut world, 20);
    for lane in [to, from] {
        world.ends[0].seats[lane].turn(world.now);
    }
    assert_eq!(received(&world, from) - before, 40 * 1_448);
    assert_eq!(world.ends[0].counters().get(Mib::SteerAsked), 20, "the latter came to the new owner");
    world.turn(200);
    world.check();
}

/// Frames come to a lane that is neither owner. What it has mailed to the old one is there before anything goes by way of the new one.
#[test]
fn a_third_lane_goes_by_the_table_when_what_it_mailed_has_been_read() {
    let mut world = World::new(3, Rss::Absent, &Config::default());
    let (third, from, to) = (2, 1, 0); // the old owner reads the new one's mail before the third's
    let (bound, number) = one_that_comes_to(&mut world, third, from);
    open(&mut world, bound);
    assert_eq!(world.flows(0, from).0, 1);
    world.turn(500); // the window has grown
    pause(&mut world);
    let before = received(&world, from);
    say(&mut world, 30);
    world.ends[0].seats[third].turn(world.now);
    world.ends[0].control.move_bucket(number, to).unwrap();
    for lane in [third, to] {
        world.ends[0].seats[lane].turn(world.now);
    }
    say(&mut world, 4);
    for lane in [third, to] {
        world.ends[0].seats[lane].turn(world.now);
    }
    assert_eq!(received(&world, from), before, "the old owner is behind");
    assert_eq!(world.ends[0].counters().get(Mib::SteerAsked), 0, "and nothing goes another way meanwhile");
    world.ends[0].seats[from].turn(world.now);
    assert_eq!(received(&world, from) - before, 34 * 1_448);
    say(&mut world, 4);
    for lane in [third, to, from] {
        world.ends[0].seats[lane].turn(world.now);
    }
    assert_eq!(received(&world, from) - before, 38 * 1_448);
    assert_eq!(world.ends[0].counters().get(Mib::SteerAsked), 4, "then it goes by way of the new owner");
    world.turn(200);
    world.check();
}

/// A bucket has settled, and moves on at once, when its first owner comes to what the second had asked it about before. That one decides
/// yet: of what began with the third the second would know nothing, and refuse what follows.
#[test]
fn what_was_asked_before_a_bucket_moved_on_goes_back_to_who_asked() {
    let mut world = World::new(3, Rss::Absent, &Config::default());
    let (first, second, third) = (0, 1, 2);
    let of = Address::from_v4;
    let key = |port| FlowKey { local: of(SERVER), remote: of(CLIENT), local_port: 7, remote_port: port };
    let port = (20_300..).find(|port| world.steering[0].lane(&key(*port)) == first).expect("every third one");
    let number = world.steering[0].bucket(&key(port));
    let seats = |world: &mut World, lanes: &[usize]| {
        for lane in lanes {
            world.ends[0].seats[*lane].turn(world.now);
        }
        world.ends[0].control.turn(world.now);
    };
    world.ends[0].control.move_bucket(number, second).unwrap();
    world.ends[0].control.move_bucket(number, third).unwrap();
    seats(&mut world, &[first, second, third]);
    // The first lane has handed it over, and none of its flows is left: so it says, but nobody has heard of it yet.
    for _ in 0..2 {
        world.ends[0].seats[first].turn(world.now);
    }
    assert_eq!(bucket(&world, number), (second, Some(first), Some(third)));
    // More than a lane takes from another in one poll, and then a SYN.
    let is_beside = |port: &u16| world.steering[0].bucket(&key(*port)) == number;
    let others: Vec<u16> = (1..20_300).filter(is_beside).take(BATCH_MAX).collect();
    for other in others {
        put(&mut world, second, &bare(&key(other), Flags::RST));
    }
    world.ends[0].seats[second].turn(world.now);
    put(&mut world, second, &bare(&key(port), Flags::SYN));
    world.ends[0].seats[second].turn(world.now);
    assert_eq!(world.ends[0].counters().get(Mib::SteerAsked), BATCH_MAX as u64 + 1);
    world.ends[0].control.turn(world.now);
    assert_eq!(bucket(&world, number), (second, None, Some(third)));
    seats(&mut world, &[first, second, third]);
    assert_eq!(bucket(&world, number), (third, Some(second), None));
    let asked = [first, second, third].map(|lane| world.flows(0, lane).1);
    assert_eq!(asked, [0, 0, 0], "the first lane has yet to come to the SYN");
    for lane in [first, third, second] {
        world.ends[0].seats[lane].turn(world.now);
    }
    let begun = [first, second, third].map(|lane| world.flows(0, lane).1);
    assert_eq!(begun, [0, 1, 0], "the second lane decides until it has handed the bucket over");
}

/// What is about a flow and not from it, and what has no ports, may come to any lane: to the old owner, the new one, or a third.
#[test]
fn icmp_errors_and_fragments_find_what_has_stayed() {
    let (from, to) = (1, 0);
    for queue in 0..3 {
        let mut world = World::new(3, Rss::Absent, &Config::default());
        let (bound, number) = one_that_comes_to(&mut world, 2, from);
        open(&mut world, bound);
        world.turn(200);
        pause(&mut world);
        world.ends[0].control.move_bucket(number, to).unwrap();
        world.turn(200);
        assert_eq!(bucket(&world, number), (to, Some(from), None));
        let asked = |world: &mut World| world.ends[0].counters().get(Mib::SteerAsked);
        // A SYN in fragments is one for a connection that there is: it begins nothing, and is not refused.
        let key = world.ends[0].seats[from].lane.tables(|t| *t.slots.iter().next().expect("it is there").1.key());
        let before = asked(&mut world);
        for id in 0..12 {
            for piece in syn_in_fragments(&key, id) {
                inject(&mut world, queue, &piece);
            }
        }
        let counters = world.ends[0].counters();
        assert_eq!((counters.get(Mib::IpReasmOKs), counters.get(Mib::TcpOutRsts)), (12, 0));
        assert!(asked(&mut world) > before, "the new owner did not know it");
        let flows = [0, 1, 2].map(|lane| world.flows(0, lane));
        assert_eq!((flows[from], flows[to], flows[2]), ((1, 0, 0), (0, 0, 0), (0, 0, 0)));
        world.turn(50);
        // Something of the server's is under way, and too big.
        say(&mut world, 4);
        for _ in 0..6 {
            world.ends[0].turn(world.now);
        }
        let look = |world: &mut World| {
            world.ends[0].seats[from].lane.tables(|t| match &t.slots.iter().next().expect("it is there").1.tcb {
                Tcb::Synchronized(connection) => (connection.sequence(), connection.mss()),
                Tcb::Handshaking(_) => panic!("it is established"),
            })
        };
        let ((una, nxt, _), mss) = look(&mut world);
        assert!(una.before(nxt) && mss == 1_448, "the client has acknowledged nothing: {una:?} {nxt:?}");
        let before = asked(&mut world);
        inject(&mut world, queue, &too_big(&key, una.raw(), 1_000));
        assert_eq!(look(&mut world).1, 1_000 - 52, "it was heard of by the connection, through lane {queue}");
        assert_eq!(world.ends[0].counters().discarded(Discard::IcmpUnverified), 0);
        assert_eq!(asked(&mut world) - before, 1, "by the new owner, through lane {queue}");
        let all = received(&world, from);
        world.turn(2_000);
        let heard: usize = world.ends[1].seats[2].app.seen.values().sum();
        assert_eq!(heard, all, "all of it has come back");
        assert!(world.ends.iter().flat_map(|end| &end.seats).all(|seat| seat.app.wrong.is_empty()));
    }
}
