//! Who decides, for every way that a packet can come and every stage of a move; and that what is left of a bucket is found.

use super::*;
use crate::listing::tests::World;
use laneway_wire::flow::Address;

mod cookies;

#[test]
fn a_note_goes_through_a_word_beside_what_the_device_said() {
    use crate::ingress::Vouched;
    for via in [Via::Direct, Via::Asked, Via::Returned] {
        for (cookies_s, group) in [(0, false), (u8::MAX, false), (0, true), (u8::MAX, true)] {
            for beyond in [None, Some(SeqNum::new(0)), Some(SeqNum::new(u32::MAX))] {
                for vouched in [Vouched::default(), Vouched { verified: true, size: u16::MAX }] {
                    let note = Note { via, cookies_s, beyond, group };
                    let word = note.word() | vouched.word();
                    assert_eq!(Note::of(word), note);
                    let meta = Vouched::meta(word);
                    assert_eq!(meta.gso_size, vouched.size);
                    assert_eq!(meta, Vouched::meta(vouched.word()));
                }
            }
        }
    }
}

/// A table of three lanes by which every bucket moves from `from` to `to`.
fn all_move(from: u8, to: u8) -> Table {
    Table { version: 1, owner: [to; BUCKETS], previous: [from; BUCKETS] }
}

fn flow() -> FlowKey {
    let of = |last| Address::from_v4([10, 0, 0, last]);
    FlowKey { local: of(1), remote: of(2), local_port: 80, remote_port: 40_000 }
}

/// What lane `id` of three says, for (Direct, Asked, Returned), each of (something else, a SYN).
fn says(id: usize, table: Table, handed: bool, drained: bool) -> [[Decider; 2]; 3] {
    let mut world = World::new();
    let local = &mut world.server.seats[0].lane.local;
    local.id = id;
    local.steering = crate::steering::Steering::new([0x6d; 40], 3);
    local.steering.set_table(&table);
    local.moving.handed = if handed { u128::MAX } else { 0 };
    local.moving.drained = if drained { u128::MAX } else { 0 };
    [Via::Direct, Via::Asked, Via::Returned].map(|via| [false, true].map(|syn| local.decider(&flow(), via, syn)))
}

#[test]
fn every_stage_has_one_who_decides_and_no_packet_goes_back_and_forth() {
    use Decider::{Here, Lane};
    let (o, n, other) = (0, 1, 2);
    let settled = Table { version: 2, owner: [1; BUCKETS], previous: [1; BUCKETS] };
    let moving = all_move(0, 1);
    let to_n = Lane(n, Via::Direct);
    // Settled: the owner decides, however it came; all others send it there.
    assert_eq!(says(n, settled, false, false), [[Here; 2]; 3]);
    assert_eq!(says(other, settled, false, false)[0], [to_n; 2]);
    // The new owner asks the old one, but for what that has returned.
    let asks = Lane(o, Via::Asked);
    assert_eq!(says(n, moving, false, false), [[asks; 2], [asks; 2], [Here; 2]]);
    // The old owner decides as before, as long as its queue may have something left.
    assert_eq!(says(o, moving, false, false), [[Here; 2]; 3]);
    // Then SYNs go back, and it answers what is not one; what came to it by mistake goes where it belongs.
    let back = Lane(n, Via::Returned);
    assert_eq!(says(o, moving, true, false), [[to_n; 2], [Here, back], [to_n; 2]]);
    // When it has said that nothing is left, it lets nothing begin.
    assert_eq!(says(o, moving, true, true), [[to_n; 2], [back; 2], [to_n; 2]]);
    // A question that comes when all is settled is returned too, and not sent on to be asked again.
    assert_eq!(says(o, settled, false, false), [[to_n; 2], [back; 2], [to_n; 2]]);
    assert_eq!(says(other, moving, false, false)[0], [to_n; 2]);
    // If the bucket moves on meanwhile, it goes back to who has asked.
    let on = all_move(1, 2);
    assert_eq!(says(o, on, false, false)[1], [back; 2]);
    // That one decides, or has handed over.
    assert_eq!(says(n, on, false, false)[2], [Here; 2]);
    assert_eq!(says(n, on, true, false)[2], [Lane(other, Via::Direct); 2]);
}

#[test]
fn what_has_no_flow_goes_to_who_decides_without_asking() {
    let mut world = World::new();
    let local = &mut world.server.seats[0].lane.local;
    local.steering = crate::steering::Steering::new([0x6d; 40], 3);
    local.steering.set_table(&all_move(0, 1));
    assert_eq!((local.steers_to(&flow()), local.former(&flow()), local.successor(&flow())), (0, None, None));
    local.moving.handed = u128::MAX;
    assert_eq!((local.steers_to(&flow()), local.former(&flow()), local.successor(&flow())), (1, None, Some(1)));
    local.id = 1;
    local.moving.handed = 0;
    assert_eq!((local.steers_to(&flow()), local.former(&flow()), local.successor(&flow())), (1, Some(0), None));
    local.id = 2;
    assert_eq!((local.steers_to(&flow()), local.former(&flow()), local.successor(&flow())), (1, None, None));
}

#[test]
fn a_walk_stays_with_what_it_finds_until_that_is_gone() {
    let mut world = World::new();
    world.client.seats[0].app.to_open = 40;
    world.turn(50);
    let tables = |world: &mut World, look: &mut dyn FnMut(&mut Tables)| world.server.seats[0].lane.tables(|t| look(t));
    let mut walk = Walk::default();
    let odd = |key: &FlowKey| key.remote_port % 2 == 1;
    let mut left = usize::MAX;
    // The connections of odd ports go one by one: it never says that there is none while there is one.
    for _ in 0..10_000 {
        let mut found = None;
        tables(&mut world, &mut |t| {
            left = t.slots.iter().filter(|(_, slot)| odd(slot.key())).count();
            found = Some(match walk.go_on(t, 7, odd) {
                Found::One => {
                    let index = walk.next.expect("it stands there");
                    assert!(t.slots.get(index).is_some_and(|slot| odd(slot.key())));
                    t.remove(index);
                    false
                }
                Found::NotYet => false,
                Found::None => true,
            });
        });
        if found == Some(true) {
            break;
        }
    }
    assert_eq!(left, 0);
    tables(&mut world, &mut |t| assert!(!t.slots.is_empty(), "the even ones are still there"));
}

/// Connections to `world` that the client has closed, and that wait there.
fn time_waits(world: &mut World, wanted: usize) {
    world.client.seats[0].app.to_open = wanted;
    world.turn(50);
    world.client.seats[0].app.to_close = wanted;
    world.turn(50);
    assert_eq!(world.client.seats[0].lane.tables(|t| t.tw4.len()), wanted);
}

#[test]
fn a_walk_begins_with_the_oldest_record_also_where_positions_begin_anew() {
    let mut world = World::new();
    time_waits(&mut world, 1);
    let record = world.client.seats[0].lane.tables(|t| *t.tw4.front().expect("it waits").1);
    let mut queue = Fifo::starting_at(0u32.wrapping_sub(laneway_table::fifo::CHUNK as u32));
    for _ in 0..2 * laneway_table::fifo::CHUNK {
        queue.push(record);
    }
    let mut walk = Walk { part: Part::TimeWaitV4, next: None };
    assert!(matches!(walk.records(&queue, &mut 1, &|_| true), Found::One));
    assert_eq!(walk.next, Some(queue.head()), "records before position 0 were passed over");
}

/// A lane that has nothing else to do says soon after the end of a bucket's last flow that none is left.
#[test]
fn the_last_flow_of_a_bucket_is_missed_soon_after_its_end_and_not_waited_for_with_looks() {
    let mut world = World::new();
    time_waits(&mut world, 1);
    let lane = &mut world.client.seats[0].lane;
    let key = lane.tables(|t| t.tw4.front().expect("it waits").1.key());
    let (now, local) = (world.now, &mut lane.local);
    let bucket = local.steering.bucket(&key);
    local.moving.handed = 1 << bucket;
    let stage = Stage::Handed(Walk::default(), now);
    local.moving.leaving.push(Leaving { bucket, to: 1, holds: false, stage });
    let deadline = |world: &mut World| {
        let lane = &mut world.client.seats[0].lane;
        lane.local.moving.deadline(world.now, lane.shared.enter(Site::Look), &lane.local.steering)
    };
    world.turn(1);
    assert_eq!(deadline(&mut world), Instant::NEVER, "the record is there, and its end will be a turn");
    world.now = world.now.after_us(30_000_000);
    world.turn(1);
    assert!(world.client.seats[0].lane.tables(|t| t.tw4.is_empty()));
    let due = deadline(&mut world);
    assert!(due <= world.now.after_us(AGAIN_US), "nobody would look for a second");
    world.now = due;
    world.turn(1);
    assert!(world.client.seats[0].lane.local.moving.is_drained(bucket));
    assert_eq!(deadline(&mut world), Instant::NEVER);
}
