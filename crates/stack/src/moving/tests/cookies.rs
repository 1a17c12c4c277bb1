//! The device has answered a SYN with a cookie, and the ACK comes while its bucket moves: to whichever lane, and whatever there is of
//! the flow, it is answered once, and what follows it finds what it has begun.

use super::*;
use crate::app::Context;
use crate::demux::tests::{acks_a_cookie, alarms_of, says};
use crate::entropy::BootSecrets;
use crate::steering::{Source, Steering};
use crate::tables::{Slot, Tcb};
use laneway_proto::tcp::State;
use laneway_wire::tcp::{Flags, Header};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const LANES: usize = 3;
/// Frames come to the lanes that own them.
const AS_OWNED: usize = usize::MAX;

/// What there is of the flow at the lane that its bucket is taken from.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Left {
    Nothing,
    HalfOpen,
    Record,
    /// The client has forgotten it.
    Connection,
}

/// How far the move has come.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Come {
    Announced,
    HandedOver,
    Settled,
}

/// A device that never switches.
struct Stays;

impl Source for Stays {
    fn steer(&mut self, _: &[u8; BUCKETS]) -> Result<(), String> {
        Ok(())
    }
    fn has_switched(&mut self, _: usize) -> bool {
        false
    }
    fn is_abrupt(&self) -> bool {
        false
    }
}

struct Moved {
    world: World,
    key: FlowKey,
    bucket: usize,
    from: usize,
    to: usize,
    /// Where frames come to.
    queue: Arc<AtomicUsize>,
}

/// Where a flow is at the server: the lane and the connection.
fn connections(world: &mut World, key: &FlowKey) -> Vec<(usize, u32)> {
    let seats = world.server.seats.iter_mut().enumerate();
    seats
        .flat_map(|(lane, seat)| {
            let is_it = |(index, slot): (u32, &Slot)| (slot.key() == key).then_some((lane, index));
            seat.lane.tables(|t| t.slots.iter().filter_map(is_it).collect::<Vec<_>>())
        })
        .collect()
}

/// (Half-open entries, records) of the server.
fn others(world: &mut World) -> (usize, usize) {
    let each = world.server.seats.iter_mut().map(|seat| seat.lane.tables(|t| (t.half_open.len(), t.time_waits)));
    each.fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1))
}

fn serve(world: &mut World, turns: usize) {
    for _ in 0..turns {
        world.now = world.now.after_us(50);
        world.server.turn(world.now);
    }
}

fn forget_at_the_client(world: &mut World, key: &FlowKey) {
    world.client.seats[0].lane.tables(|t| {
        let index = t.slots.iter().find(|(_, slot)| *slot.key() == key.reversed()).expect("it is there").0;
        t.remove(index);
    });
}

fn forget_at_the_server(world: &mut World, key: &FlowKey) {
    for (lane, index) in connections(world, key) {
        world.server.seats[lane].lane.tables(|t| t.remove(index));
    }
}

impl Moved {
    fn new(left: Left, come: Come) -> Moved {
        let queue = Arc::new(AtomicUsize::new(AS_OWNED));
        let steering = Steering::new(BootSecrets::from_seed(1).steering, LANES);
        let told = queue.clone();
        let mut world = World::steered(
            LANES,
            Some(Arc::new(move |frame: &[u8]| match told.load(Ordering::Relaxed) {
                AS_OWNED => steering.queue_of_frame(frame, 0),
                queue => queue,
            })),
        );
        world.client.seats[0].app.to_open = 60;
        world.turn(30);
        // Two of one bucket: the one is asked about, and the other may hold the move up.
        let keys: Vec<FlowKey> =
            world.client.seats[0].lane.tables(|t| t.slots.iter().map(|(_, slot)| slot.key().reversed()).collect());
        assert_eq!(keys.len(), 60);
        let steering = &world.server.seats[0].lane.local.steering;
        let bucket_of = |key: &FlowKey| steering.bucket(key);
        let twins = keys.iter().enumerate().find_map(|(at, one)| {
            let other = keys[at + 1..].iter().find(|other| bucket_of(other) == bucket_of(one));
            Some((*one, *other?))
        });
        let (holds, key) = twins.expect("so many flows have not 60 buckets");
        let bucket = bucket_of(&key);
        let from: usize = steering.lane(&key);
        let to = (from + 1) % LANES;
        // Whoever comes last in the bucket is what the move is about.
        match left {
            Left::Nothing | Left::HalfOpen => {
                forget_at_the_client(&mut world, &key);
                forget_at_the_server(&mut world, &key);
            }
            Left::Connection => forget_at_the_client(&mut world, &key),
            Left::Record => {
                let index = connections(&mut world, &key)[0].1;
                let lane = &mut world.server.seats[from].lane;
                let tables = lane.shared.enter(Site::Verb);
                let id = tables.id(index);
                Context { tables, local: &mut lane.local }.close(id);
                world.turn(20);
                assert_eq!(others(&mut world), (0, 1));
            }
        }
        if left != Left::Nothing || come == Come::Settled {
            forget_at_the_client(&mut world, &holds);
            forget_at_the_server(&mut world, &holds);
        }
        if left == Left::HalfOpen {
            let syn = Header {
                src_port: key.remote_port,
                dst_port: key.local_port,
                seq: SeqNum::new(5),
                ack: SeqNum::new(0),
                flags: Flags::SYN,
                window: laneway_wire::tcp::UnscaledWindow::new(1_000),
                urgent: 0,
                options: laneway_wire::tcp::Options::NONE,
            };
            says(&mut world, &key, syn);
            assert_eq!(others(&mut world), (1, 0));
        }
        if come == Come::Announced {
            world.server.control.set_source(Box::new(Stays));
        }
        world.server.control.move_bucket(bucket, to).expect("it can be moved");
        serve(&mut world, 20);
        let now = world.server.control.buckets()[bucket];
        assert_eq!((now.lane, now.from), (to, (come != Come::Settled).then_some(from)));
        let is_handed = world.server.seats[from].lane.local.moving.is_handed(bucket);
        assert_eq!(is_handed, come == Come::HandedOver);
        Moved { world, key, bucket, from, to, queue }
    }

    /// What holds the move up beside the flow itself ends.
    fn end_others(&mut self) {
        let (key, bucket) = (self.key, self.bucket);
        let lane = &mut self.world.server.seats[self.from].lane;
        let steering = lane.local.steering.clone();
        lane.tables(|t| {
            let is_other = |(index, slot): (u32, &Slot)| {
                (steering.bucket(slot.key()) == bucket && *slot.key() != key).then_some(index)
            };
            let others: Vec<u32> = t.slots.iter().filter_map(is_other).collect();
            others.into_iter().for_each(|index| t.remove(index));
        });
        self.world.now = self.world.now.after_us(10_000);
        serve(&mut self.world, 100);
    }

    /// (RSTs sent, cookies redeemed).
    fn counted(&mut self) -> (u64, u64) {
        let counters = self.world.server.counters();
        (counters.get(Mib::TcpOutRsts), counters.get(Mib::TcpExtSyncookiesRecv))
    }
}

/// Every way that the ACK can come, with the name of the case.
fn every_way(left: Left, comes: &[Come], mut look: impl FnMut(Moved, usize, String)) {
    for come in comes {
        for queue in 0..LANES {
            let mut moved = Moved::new(left, *come);
            let alarms = alarms_of(&mut moved.world);
            alarms.raise();
            moved.world.now = moved.world.now.after_us(1_000_000);
            moved.queue.store(queue, Ordering::Relaxed);
            let name = format!("{left:?}, {come:?}, from {} to {}, through {queue}", moved.from, moved.to);
            look(moved, queue, name);
        }
    }
}

#[test]
fn a_cookie_begins_one_connection_and_what_follows_finds_it() {
    for left in [Left::Nothing, Left::HalfOpen, Left::Record] {
        let comes = [Come::Announced, Come::HandedOver, Come::Settled];
        let comes = if left == Left::Nothing { &comes[..] } else { &comes[..2] };
        every_way(left, comes, |mut moved, queue, name| {
            let (key, at) = (moved.key, moved.world.now);
            let ack = acks_a_cookie(&mut moved.world, &key, at);
            serve(&mut moved.world, 6);
            let found = connections(&mut moved.world, &key);
            let settled = moved.world.server.control.buckets()[moved.bucket].from.is_none();
            let owner = if settled { moved.to } else { moved.from };
            assert_eq!(found.iter().map(|(lane, _)| *lane).collect::<Vec<_>>(), [owner], "{name}");
            assert_eq!((others(&mut moved.world), moved.counted()), ((0, 0), (0, 1)), "{name}");
            // The client closes, of which another lane hears first; and so does the application.
            let fin = Header { flags: Flags::FIN | Flags::ACK, ..ack };
            moved.queue.store((queue + 1) % LANES, Ordering::Relaxed);
            says(&mut moved.world, &key, fin);
            serve(&mut moved.world, 6);
            let state = moved.world.server.seats[owner].lane.tables(|t| match &t.slots.get(found[0].1).unwrap().tcb {
                Tcb::Synchronized(connection) => connection.state(),
                Tcb::Handshaking(_) => panic!("it is established"),
            });
            assert_eq!((state, moved.counted()), (State::LastAck, (0, 1)), "{name}");
        });
    }
}

/// What a cookie has begun at the lane that a bucket is taken from holds the move up, also where that lane has looked for flows already.
#[test]
fn a_move_does_not_settle_before_what_a_cookie_has_begun_has_ended() {
    for left in [Left::Nothing, Left::HalfOpen, Left::Record] {
        every_way(left, &[Come::HandedOver], |mut moved, _, name| {
            let (key, at) = (moved.key, moved.world.now);
            acks_a_cookie(&mut moved.world, &key, at);
            serve(&mut moved.world, 6);
            let found = connections(&mut moved.world, &key);
            moved.end_others();
            let from = |moved: &Moved| moved.world.server.control.buckets()[moved.bucket].from;
            assert_eq!((found.len(), from(&moved)), (1, Some(moved.from)), "{name}");
            forget_at_the_server(&mut moved.world, &key);
            moved.world.now = moved.world.now.after_us(10_000);
            serve(&mut moved.world, 100);
            assert_eq!(from(&moved), None, "{name}");
        });
    }
}

#[test]
fn who_has_forgotten_a_connection_is_reset_once_and_ends_it() {
    every_way(Left::Connection, &[Come::Announced, Come::HandedOver], |mut moved, _, name| {
        moved.world.now = moved.world.now.after_us(10_000_000);
        let (key, at) = (moved.key, moved.world.now);
        acks_a_cookie(&mut moved.world, &key, at);
        serve(&mut moved.world, 6);
        assert_eq!((connections(&mut moved.world, &key).len(), moved.counted()), (1, (1, 0)), "{name}");
        moved.world.turn(20);
        assert_eq!((connections(&mut moved.world, &key).len(), moved.counted()), (0, (1, 0)), "{name}");
    });
}

/// No device has answered, but one of the two lanes itself, and the other is to decide.
#[test]
fn a_cookie_of_one_lane_is_believed_by_the_other_while_the_bucket_moves_and_after() {
    for (by_former, settled) in [(true, true), (false, false)] {
        for has_sent in [true, false] {
            let mut moved = Moved::new(Left::Nothing, Come::HandedOver);
            let (key, from, to) = (moved.key, moved.from, moved.to);
            if has_sent {
                let sender = if by_former { from } else { to };
                moved.world.server.seats[sender].lane.local.cookies_until = moved.world.now.after_us(100_000_000);
            }
            if settled {
                moved.end_others();
                assert_eq!(moved.world.server.control.buckets()[moved.bucket].from, None);
            }
            moved.queue.store(to, Ordering::Relaxed);
            let at = moved.world.now;
            acks_a_cookie(&mut moved.world, &key, at);
            serve(&mut moved.world, 6);
            let found: Vec<usize> = connections(&mut moved.world, &key).iter().map(|(lane, _)| *lane).collect();
            let wanted = if has_sent { vec![if settled { to } else { from }] } else { vec![] };
            assert_eq!((found, moved.counted().0), (wanted, u64::from(!has_sent)), "settled: {settled}");
        }
    }
}
