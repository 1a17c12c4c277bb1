//! All interleavings of an application that writes or reads and a lane that takes blocks back behind its back.
//!
//! The tracked cells of a block are eight bytes wide, so the models move bytes by eights. What this does not cover: more
//! than three preemptions per schedule; the mutexes on the application's side, which are `std`'s (one thread of the application
//! in each model); the tables of the pool, which are `OnceLock`s and `std`'s too.

use super::*;
use crate::primitive::{RACE, Unless, Weakness, caught, explore};
use crate::ring::handout::handout;
use std::sync::Arc as StdArc;

fn pool() -> Arc<BlockPool> {
    let pool = Arc::new(BlockPool::with_sizes([8, 16, 32], 64));
    // What loom tracks in a slab is made here: `std`'s cell hands it over in a way that loom does not see, and every model would fail by
    // that.
    let all = [8, 16, 32].map(|size| pool.take(size).expect("one of each"));
    all.into_iter().for_each(|block| pool.give(block));
    let reserved = pool.take_to_write().expect("one");
    pool.give(reserved);
    pool
}

/// Somebody else is lent a block, writes into it, and gives it back: the one that was given back last, if it is of this size.
fn lend(pool: &BlockPool) {
    let lent = pool.take(8).expect("one that is free");
    // SAFETY: loom tracks it.
    unsafe { pool.exclusive(lent, 0, 8) }.fill(9);
    pool.give(lent);
}

/// The application sends three words; the lane takes them and, whenever nothing waits, the block as well.
fn to_lane() {
    let pool = pool();
    let (pipe, mut lane) = pipe(&pool, 16, (), (), ());
    let writer = ::loom::thread::spawn(move || {
        for i in 1..=2u64 {
            assert_eq!(pipe.send(&i.to_ne_bytes()), 8);
        }
    });
    let mut expected = 1u64;
    for _ in 0..2 {
        if lane.front().len() >= 8 {
            let word: [u8; 8] = lane.front()[..8].try_into().expect("eight");
            assert_eq!(u64::from_ne_bytes(word), expected);
            lane.advance(8);
            expected += 1;
        }
        if lane.retire() {
            lend(&pool);
        }
    }
    writer.join().expect("no panic");
    while !lane.front().is_empty() {
        lane.advance(8);
    }
    assert!(lane.retire());
    assert_eq!(pool.in_use(), 0);
}

/// The lane sends two words and takes its block back as soon as they are read; the application reads.
fn to_app() {
    let pool = pool();
    let (pipe, mut lane) = pipe(&pool, 16, (), (), ());
    let reader = ::loom::thread::spawn(move || {
        let mut sum = 0;
        let mut buf = [0; 8];
        for _ in 0..2 {
            if pipe.recv(&mut buf) == 8 {
                sum += u64::from_ne_bytes(buf);
            }
        }
        (pipe, sum)
    });
    lane.fill(&1u64.to_ne_bytes());
    lane.retire();
    lane.fill(&2u64.to_ne_bytes());
    lane.retire();
    let (pipe, mut sum) = reader.join().expect("no panic");
    let mut buf = [0; 8];
    while pipe.recv(&mut buf) == 8 {
        sum += u64::from_ne_bytes(buf);
    }
    assert_eq!(sum, 3);
    assert!(lane.retire());
    assert_eq!(pool.in_use(), 0);
}

/// When a lane that keeps what it was shown gives it back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gives {
    AfterItsLastLook,
    BeforeIt,
}

/// The application sends two words, and a third that must wait for room; the lane looks at each twice, as for a retransmission, and
/// takes the block whenever nothing waits.
fn kept(gives: Gives) {
    let pool = pool();
    let (pipe, mut lane) = pipe(&pool, 16, (), (), ());
    let mut kept = lane.part().expect("the first");
    let writer = ::loom::thread::spawn(move || (1..=3u64).filter(|i| pipe.send(&i.to_ne_bytes()) == 8).count() as u64);
    let word = |kept: &KeptEnd<(), (), ()>, offset| {
        let shown: Option<[u8; 8]> = kept.bytes(offset).first_chunk().copied();
        shown.map(u64::from_ne_bytes)
    };
    let mut expected = 1;
    for _ in 0..2 {
        if let Some(first) = word(&kept, 0) {
            assert_eq!(first, expected);
            let behind = word(&kept, 8);
            assert!(behind.is_none_or(|behind| behind == expected + 1));
            let again = match gives {
                Gives::AfterItsLastLook => {
                    let again = word(&kept, 0);
                    kept.release(8);
                    again
                }
                Gives::BeforeIt => {
                    let (block, place) = kept.look(0, 0);
                    kept.release(8);
                    // SAFETY: none, which is what the model is to find out.
                    let shown = unsafe { kept.pipe().to_lane().bytes((block, place, 8)) };
                    shown.first_chunk().copied().map(u64::from_ne_bytes)
                }
            };
            assert_eq!(again, Some(expected), "what was shown has changed");
            expected += 1;
        }
        lane.retire();
    }
    let sent = writer.join().expect("no panic");
    while let Some(first) = word(&kept, 0) {
        assert_eq!(first, expected, "something was lost");
        kept.release(8);
        expected += 1;
    }
    assert_eq!(expected, sent + 1, "something was lost");
    assert!(lane.retire());
    assert_eq!(pool.in_use(), 0);
}

/// Who asks how much there is, while others write and read, hears of no more than there can be.
fn asked_meanwhile() {
    let (pipe, mut lane) = pipe(&pool(), 16, (), (), ());
    let asks = pipe.clone();
    let asker = ::loom::thread::spawn(move || {
        let (readable, writable) = (asks.readable(), asks.writable());
        assert!(readable <= 16 && writable <= 16, "{readable} to be read and room for {writable}, of 16");
    });
    let word = [7; 8];
    assert_eq!(lane.fill(&word), 8);
    assert_eq!(pipe.recv(&mut [0; 8]), 8);
    assert_eq!((pipe.send(&word), pipe.send(&word)), (8, 8));
    assert_eq!(lane.front().len(), 8);
    lane.advance(8);
    assert_eq!(pipe.send(&word), 8);
    asker.join().expect("no panic");
}

/// The reading half is on another thread than the lane, which asks how much waits there, takes the block when nothing does, and lends it
/// to somebody who writes.
fn released_elsewhere() {
    let pool = pool();
    let (pipe, mut lane) = pipe(&pool, 16, (), (), ());
    let mut kept = lane.part().expect("the first");
    let reader = ::loom::thread::spawn(move || {
        assert_eq!(pipe.send(&1u64.to_ne_bytes()), 8);
        assert_eq!(kept.bytes(0).first_chunk().copied().map(u64::from_ne_bytes), Some(1));
        kept.release(8);
        kept
    });
    let waiting = lane.waiting();
    assert!(waiting <= 8, "{waiting} wait, of 8");
    if lane.retire() {
        lend(&pool);
    }
    drop(reader.join().expect("no panic"));
    assert!(lane.retire());
    assert_eq!(pool.in_use(), 0);
}

/// When the lane of a model closes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Closes {
    WhenItsBytesAreTaken,
    WhenItIsSeen,
}

/// Eight bytes, then "close". The lane reads what it finds, then looks for notes; it must not close before the bytes.
fn close_behind_data(closes: Closes) {
    let pool = pool();
    let (pipe, mut lane) = pipe(&pool, 16, Notes::default(), (), ());
    let writer = ::loom::thread::spawn(move || {
        pipe.send(&7u64.to_ne_bytes());
        pipe.after(|at| pipe.said().push((at, ())));
    });
    let mut closed_at = None;
    if !lane.front().is_empty() {
        lane.advance(8);
    }
    if let Some((at, ())) = lane.pipe().said().take_all().pop() {
        if closes == Closes::WhenItsBytesAreTaken {
            while lane.taken() < at {
                assert!(!lane.front().is_empty(), "a note is visible before its bytes");
                lane.advance(8);
            }
        }
        closed_at = Some(lane.taken());
    }
    writer.join().expect("no panic");
    assert!(closed_at.is_none_or(|at| at == 8), "closed before the bytes that stand before it");
}

/// What the application's threads keep among themselves. The lane touches it here as the next thread would.
struct Kept(UnsafeCell<u32>);

// SAFETY: loom's cell finds the races that this allows.
unsafe impl Sync for Kept {}

/// When the lane of a model makes a conversation as new.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Renews {
    WhenNobodyHasIt,
    WhenItsBytesAreTaken,
}

/// One thread uses a conversation and lets go; the lane makes it as new, and whoever gets it next has it alone.
fn alone_again(renews: Renews) {
    let pool = pool();
    let (app, mut lane) = pipe(&pool, 16, (), Kept(UnsafeCell::new(0)), ());
    lane.take_over(app.clone()); // as if it had been on a list
    let first = ::loom::thread::spawn(move || {
        if renews == Renews::WhenItsBytesAreTaken {
            app.send(&7u64.to_ne_bytes());
        }
        // SAFETY: the lane does not touch it before it has the conversation back.
        app.app().0.with_mut(|kept| unsafe { *kept = 1 });
    });
    let is_mine = match renews {
        Renews::WhenNobodyHasIt => lane.renew(),
        Renews::WhenItsBytesAreTaken => !lane.front().is_empty(),
    };
    if is_mine {
        // SAFETY: nobody else has it; loom would say so otherwise.
        lane.pipe().app().0.with_mut(|kept| unsafe { *kept = 2 });
    }
    first.join().expect("no panic");
    while !lane.front().is_empty() {
        lane.advance(8);
    }
    assert!(lane.renew());
}

/// What the application's side remembers when a conversation is handed over for the second time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Remembers {
    Nothing,
    TheOneBefore,
}

/// A conversation that was used is made as new, says a word before it is handed over and one after, and is read by another thread.
fn handed_over(remembers: Remembers) {
    let pool = pool();
    let (app, mut lane) = pipe(&pool, 16, (), (), ());
    assert_eq!(lane.fill(&5u64.to_ne_bytes()), 8);
    assert_eq!(app.recv(&mut [0; 8]), 8);
    drop(app);
    assert!(lane.renew());
    if remembers == Remembers::TheOneBefore {
        lane.pipe().app.out.flags.unset(FRESH);
    }
    let (mut offers, takers) = handout::<AppEnd<(), (), ()>, 0>(1);
    let second = ::loom::thread::spawn(move || {
        let (app, []) = takers.take()?;
        let mut word = [0; 8];
        let mut is_known = true;
        assert_eq!(app.recv_known(&mut word, || is_known = false), 8);
        assert!(is_known, "it came with the conversation");
        assert_eq!(u64::from_ne_bytes(word), 6, "of another conversation");
        if app.recv_known(&mut word, || ()) == 8 {
            assert_eq!(u64::from_ne_bytes(word), 7);
        }
        Some(app)
    });
    assert_eq!(lane.fill(&6u64.to_ne_bytes()), 8);
    assert!(offers.offer(lane.share(), []).is_ok());
    offers.publish();
    assert_eq!(lane.fill(&7u64.to_ne_bytes()), 8);
    drop((second.join().expect("no panic"), offers));
}

/// For what memory the lane of a model tells a writer who was refused.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tells {
    OfWhatIsInReserveToo,
    OfOtherBlocks,
}

/// Others hold all blocks but one in reserve, and one conversation has written to that. Another is refused until the lane has read it and has
/// the block back; it asks, and is told, or it had the block in time.
fn waits_for_the_reserve(tells: Tells) {
    const ROOM: u32 = 1;
    const ASKS: u32 = 1;
    const HAS_WRITTEN: u32 = 2;
    let pool = pool();
    let held: Vec<_> = std::iter::from_fn(|| pool.take(8)).collect();
    let (one, lane_one) = pipe(&pool, 16, (), (), ());
    let (two, lane_two) = pipe(&pool, 16, (), (), ());
    assert_eq!(one.send(&1u64.to_ne_bytes()), 8);
    let [mut lane_one, mut lane_two] = [lane_one, lane_two].map(Unless::panicking);
    let said = Unless::panicking(Arc::new(AtomicU32::new(0)));
    let (theirs, two) = (Unless::panicking((*said).clone()), Unless::panicking(two));
    let (one, pool) = (Unless::panicking(one), Unless::panicking(pool));
    let lane = ::loom::thread::current();
    // Not joined: loom takes an unpark that meets a join for the join's own.
    let writer = ::loom::thread::spawn(move || {
        while two.send(&2u64.to_ne_bytes()) == 0 {
            two.flags().want(ROOM);
            theirs.store(ASKS, order::publish());
            lane.unpark();
            ::loom::thread::park();
        }
        theirs.store(HAS_WRITTEN, order::publish());
        lane.unpark();
    });
    assert_eq!(lane_one.front().first_chunk().copied().map(u64::from_ne_bytes), Some(1));
    lane_one.advance(8);
    lane_one.retire();
    loop {
        let has_some = pool.has_some() || tells == Tells::OfWhatIsInReserveToo && pool.has_reserve_to_write();
        match said.load(order::observe()) {
            HAS_WRITTEN => break,
            ASKS if has_some && lane_two.pipe().flags().take(ROOM) != 0 => writer.thread().unpark(),
            _ => {}
        }
        ::loom::thread::park();
    }
    assert_eq!(lane_two.front().first_chunk().copied().map(u64::from_ne_bytes), Some(2));
    lane_two.advance(8);
    assert!(lane_two.retire() && pool.has_reserve_to_write());
    held.into_iter().for_each(|block| pool.give(block));
    assert_eq!(pool.in_use(), 0);
    drop(one);
}

#[test]
fn bytes_arrive_whole_and_blocks_go_home() {
    let kept_to_the_end = || kept(Gives::AfterItsLastLook);
    for model in [
        to_lane,
        to_app,
        kept_to_the_end,
        asked_meanwhile,
        released_elsewhere,
        || close_behind_data(Closes::WhenItsBytesAreTaken),
        || alone_again(Renews::WhenNobodyHasIt),
        || handed_over(Remembers::Nothing),
        || waits_for_the_reserve(Tells::OfWhatIsInReserveToo),
    ] {
        let schedules = explore(model);
        assert!(schedules > 1, "only {schedules} schedule was explored");
    }
}

#[test]
fn a_relaxed_publication_is_caught() {
    caught(Weakness::PublishRelaxed, RACE, to_lane);
    caught(Weakness::PublishRelaxed, RACE, to_app);
    caught(Weakness::PublishRelaxed, "something was lost", || kept(Gives::AfterItsLastLook));
}

#[test]
fn a_relaxed_observation_is_caught() {
    caught(Weakness::ObserveRelaxed, RACE, to_app);
    caught(Weakness::ObserveRelaxed, "something was lost", || kept(Gives::AfterItsLastLook));
}

#[test]
fn a_release_elsewhere_that_is_not_observed_is_caught() {
    let statement = "let taken = self.taken.load(order::observe());\n        if hold";
    caught(Weakness::at("bytes/mod.rs", include_str!("mod.rs"), statement), RACE, released_elsewhere);
}

#[test]
fn a_count_that_publishes_or_observes_nothing_is_caught() {
    for weakness in [Weakness::PublishRelaxed, Weakness::ObserveRelaxed] {
        caught(weakness, RACE, || alone_again(Renews::WhenNobodyHasIt));
    }
}

#[test]
fn one_that_is_made_as_new_in_somebodys_hands_is_caught() {
    caught(Weakness::None, RACE, || alone_again(Renews::WhenItsBytesAreTaken));
}

#[test]
fn what_is_remembered_of_another_conversation_is_caught() {
    caught(Weakness::None, "left: 6\n right: 7", || handed_over(Remembers::TheOneBefore));
}

#[test]
fn a_writer_who_is_not_told_of_the_reserve_is_caught() {
    caught(Weakness::None, "deadlock", || waits_for_the_reserve(Tells::OfOtherBlocks));
}

#[test]
fn a_block_in_reserve_that_is_handed_on_unobserved_is_caught() {
    caught(Weakness::ExchangeRelaxed, RACE, || waits_for_the_reserve(Tells::OfWhatIsInReserveToo));
}

#[test]
#[should_panic(expected = "closed before the bytes")]
fn close_overtaking_data_is_caught() {
    explore(|| close_behind_data(Closes::WhenItIsSeen));
}

#[test]
fn what_is_given_back_before_the_last_look_is_caught() {
    caught(Weakness::None, RACE, || kept(Gives::BeforeIt));
}

/// One direction by itself, for models of what no conversation does.
#[derive(Clone)]
struct Lone {
    pool: Arc<BlockPool>,
    shared: StdArc<(Out, AtomicU64)>,
}

impl Lone {
    fn new() -> Self {
        Lone { pool: pool(), shared: StdArc::new((Out::new(), AtomicU64::new(0))) }
    }

    fn direction(&self) -> Direction<'_> {
        let (out, taken) = &*self.shared;
        Direction { out, taken, pool: &self.pool, limit: 24, writer_lends: false }
    }

    /// As whoever gets the next block would.
    fn lends_another(&self) -> BlockId {
        let other = self.pool.take(8).expect("there are eight");
        // SAFETY: loom tracks it.
        unsafe { self.pool.exclusive(other, 0, 8) }.fill(9);
        other
    }
}

/// Known broken: the lane gives the block back by what it remembers, not by taking it out of `hold`.
fn reclaims_by_memory() {
    let lone = Lone::new();
    let writes = lone.clone();
    let writer = ::loom::thread::spawn(move || {
        let direction = writes.direction();
        let mut writing = Writing::default();
        direction.write(&mut writing, &1u64.to_ne_bytes()[..]);
        direction.write(&mut writing, &2u64.to_ne_bytes()[..]);
    });
    let direction = lone.direction();
    let mut reading = Reading::default();
    if let Some((block, _, _)) = direction.front(&mut reading) {
        direction.advance(&mut reading, 8);
        if direction.out.produced.load(order::observe()) == 8 {
            lone.pool.give(block); // the writer may be writing behind these bytes, or link the next block to this one
            lone.pool.next(lone.lends_another()).store(77, Relaxed);
        }
    }
    writer.join().expect("no panic");
    if let Some((block, offset, _)) = direction.front(&mut reading) {
        assert!(block.0 != 77 && offset == 0, "the chain was broken");
    }
}

#[test]
fn a_block_given_back_by_memory_is_caught() {
    caught(Weakness::None, "the chain was broken", reclaims_by_memory);
}

/// When a writer who needs a larger block gives the one back that he holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Exchanges {
    WhenAllIsRead,
    Always,
}

/// A word, then two at once, which do not fit into the same block; somebody else is lent what went back, and writes into it.
fn exchanged(exchanges: Exchanges) {
    let lone = Lone::new();
    let writes = lone.clone();
    let writer = ::loom::thread::spawn(move || {
        let direction = writes.direction();
        let mut writing = Writing::default();
        assert_eq!(direction.write(&mut writing, &1u64.to_ne_bytes()), 8);
        if exchanges == Exchanges::Always {
            let held = direction.out.hold.swap(BUSY, order::exchange());
            let larger = direction.exchange(BlockId(held as u32 - 1), 16);
            direction.begin(&mut writing, own(&direction.out.produced), larger);
            direction.out.hold.store(held >> 32 << 32 | u64::from(larger.0 + 1), order::publish());
        }
        let two = [2u64.to_ne_bytes(), 3u64.to_ne_bytes()];
        assert_eq!(direction.write(&mut writing, two.as_flattened()), 16);
        writes.lends_another();
    });
    let direction = lone.direction();
    let (mut reading, mut expected) = (Reading::default(), 1);
    let mut look = || {
        while let Some((block, offset, _)) = direction.front(&mut reading) {
            // SAFETY: we are the reader.
            let word = unsafe { direction.bytes((block, offset, 8)) };
            assert_eq!(word.first_chunk().copied().map(u64::from_ne_bytes), Some(expected), "a word of another's");
            direction.advance(&mut reading, 8);
            expected += 1;
        }
    };
    look();
    writer.join().expect("no panic");
    look();
    assert_eq!(expected, 4);
}

#[test]
fn a_block_is_exchanged_when_all_is_read() {
    let schedules = explore(|| exchanged(Exchanges::WhenAllIsRead));
    assert!(schedules > 1, "only {schedules} schedule was explored");
}

#[test]
fn a_block_exchanged_with_something_in_it_is_caught() {
    caught(Weakness::None, "of another", || exchanged(Exchanges::Always));
}
