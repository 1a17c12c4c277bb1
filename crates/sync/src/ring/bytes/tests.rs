use super::*;
use crate::ring::handout::handout;
use proptest::prelude::*;
use std::collections::VecDeque;

fn tiny() -> Arc<BlockPool> {
    Arc::new(BlockPool::with_sizes([8, 16, 64], 1 << 16))
}

#[derive(Clone, Debug)]
enum Step {
    Send(usize),
    Recv(usize),
    /// Into one piece, or into two with an empty one between.
    RecvKnown(usize, usize),
    Peek(usize),
    Fill(usize),
    Take(usize),
    Retire,
    /// The application is gone; if the lane can, it makes it as new for another.
    Renew,
    /// It is handed to a thread, as one that was just made or renewed is.
    HandOver,
    /// It was on a list, and the lane takes over what the list held.
    TakeOver,
    /// The lane asks for what it will need, which changes nothing.
    LookAhead,
    /// So much may wait from now on, to the application if that is true.
    Limit(bool, usize),
}

/// What the table of lines promises, of values of which the heap was not told.
#[test]
fn lies_on_lines_of_its_own() {
    let pool = tiny();
    let pipes: Vec<_> = (0..33).map(|_| pipe(&pool, 8, (), [0u8; 100], ())).collect();
    let begins: Vec<_> = pipes.iter().map(|(app, _)| ((&raw const **app).addr(), size_of_val(&**app))).collect();
    for (n, (at, size)) in begins.iter().enumerate() {
        assert!(at.is_multiple_of(64) && size.is_multiple_of(64), "{size} bytes at {at:#x}");
        assert!(begins[..n].iter().all(|(other, _)| other.abs_diff(*at) >= *size));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: if cfg!(miri) { 4 } else { 512 }, ..Default::default() })]

    /// Against two queues, with blocks so small that chains grow, break off and begin anew all the time.
    #[test]
    fn behaves_as_two_queues_of_bytes(
        steps in prop::collection::vec(
            prop_oneof![
                (0usize..70).prop_map(Step::Send), (0usize..70).prop_map(Step::Recv), (0usize..70).prop_map(Step::Peek),
                (0usize..70).prop_map(Step::Fill), (0usize..70).prop_map(Step::Take), Just(Step::Retire),
                (0usize..70, prop_oneof![Just(0), 1usize..70]).prop_map(|(one, other)| Step::RecvKnown(one, other)),
                Just(Step::Renew), Just(Step::HandOver), Just(Step::TakeOver), Just(Step::LookAhead),
                (any::<bool>(), 0usize..110).prop_map(|(side, limit)| Step::Limit(side, limit)),
            ],
            1..if cfg!(miri) { 40 } else { 200 },
        ),
        limit in 1u32..100,
    ) {
        let pool = tiny();
        let (mut pipe, mut lane) = pipe(&pool, limit, (), (), ());
        let (mut offers, takers) = handout::<_, 0>(1);
        let (mut up, mut down, mut is_first) = (VecDeque::new(), VecDeque::new(), true);
        let mut limits = [limit as usize; 2];
        let mut next = 0u8;
        let mut bytes = |n: usize| -> Vec<u8> { (0..n).map(|_| { next = next.wrapping_add(1); next }).collect() };
        for step in steps {
            match step {
                Step::Send(n) => {
                    let data = bytes(n);
                    let sent = pipe.send(&data);
                    prop_assert_eq!(sent, n.min(limits[0].saturating_sub(up.len())));
                    up.extend(&data[..sent]);
                }
                Step::Fill(n) => {
                    let data = bytes(n);
                    let filled = lane.fill(&data);
                    prop_assert_eq!(filled, n.min(limits[1].saturating_sub(down.len())));
                    down.extend(&data[..filled]);
                }
                Step::Recv(n) => {
                    let mut out = vec![0; n];
                    let got = pipe.recv(&mut out);
                    is_first &= got == 0;
                    prop_assert_eq!(got, n.min(down.len()));
                    let expected: Vec<u8> = down.drain(..got).collect();
                    prop_assert_eq!(&out[..got], &expected[..]);
                }
                Step::RecvKnown(one, other) => {
                    let (n, mut out, mut looked) = (one + other, vec![0; one + other], false);
                    let (first, second) = out.split_at_mut(one);
                    let got = match other {
                        0 => pipe.recv_known(first, || looked = true),
                        _ => pipe.recv_known_into(&mut [first, &mut [], second], || looked = true),
                    };
                    prop_assert!(got <= n.min(down.len()));
                    prop_assert!(got > 0 || n == 0 || down.is_empty(), "what is there is found");
                    let is_all = got == n.min(down.len());
                    prop_assert!(!looked || is_all, "who looks sees all");
                    prop_assert!(is_all || is_first, "and nobody takes less who has taken before, or looked");
                    is_first &= got == 0;
                    let expected: Vec<u8> = down.drain(..got).collect();
                    prop_assert_eq!(&out[..got], &expected[..]);
                }
                Step::Renew => {
                    prop_assert!(!lane.renew() && !lane.is_alone(), "somebody has it");
                    drop(pipe);
                    prop_assert!(lane.is_alone());
                    let is_new = lane.renew();
                    prop_assert_eq!(is_new, up.is_empty() && down.is_empty());
                    is_first |= is_new;
                    if is_new {
                        limits = [limit as usize; 2];
                    }
                    pipe = lane.share();
                }
                Step::Limit(side, limit_now) => {
                    limits[usize::from(side)] = limit_now.clamp(1, limit as usize);
                    if side { pipe.set_receive_limit(limit_now) } else { pipe.set_send_limit(limit_now) }
                }
                Step::TakeOver => lane.take_over(pipe.clone()),
                Step::LookAhead => {
                    lane.prefetch_front();
                    lane.prefetch_room(100);
                }
                Step::HandOver => {
                    prop_assert!(offers.offer(pipe, []).is_ok());
                    offers.publish();
                    pipe = takers.take().expect("it was offered").0;
                }
                Step::Peek(n) => {
                    let mut out = vec![0; n];
                    let got = pipe.peek(&mut out);
                    let expected: Vec<u8> = down.iter().take(n).copied().collect();
                    prop_assert_eq!(&out[..got], &expected[..]);
                    is_first &= got == 0;
                }
                Step::Take(n) => {
                    let shown = lane.front().to_vec();
                    prop_assert_eq!(shown.is_empty(), up.is_empty());
                    let n = n.min(shown.len());
                    let expected: Vec<u8> = up.drain(..n).collect();
                    prop_assert_eq!(&shown[..n], &expected[..]);
                    lane.advance(n);
                }
                Step::Retire => {
                    let idle = lane.retire();
                    prop_assert_eq!(idle, up.is_empty() && down.is_empty());
                    if idle {
                        prop_assert_eq!(pool.in_use(), 0);
                    }
                }
            }
            prop_assert_eq!((pipe.readable(), pipe.writable()), (down.len(), limits[0].saturating_sub(up.len())));
            prop_assert_eq!((lane.unread(), lane.waiting()), (down.len(), up.len()));
        }
        drop((pipe, lane));
        prop_assert_eq!(pool.in_use(), 0, "a dropped conversation gives everything back");
    }
}

/// Bytes by their position, so that each is known wherever it is found.
fn at(position: usize) -> u8 {
    (position ^ position >> 8) as u8
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: if cfg!(miri) { 4 } else { 512 }, ..Default::default() })]

    /// One who keeps what he was shown finds it again, wherever he looks, until he gives it back.
    #[test]
    fn what_is_kept_stays(
        steps in prop::collection::vec((0u8..5, 0usize..70, 0usize..70), 1..if cfg!(miri) { 40 } else { 200 }),
        limit in 1u32..150,
    ) {
        let pool = tiny();
        let (pipe, mut lane) = pipe(&pool, limit, (), (), ());
        prop_assert_eq!(pipe.send(&[at(0)]), 1);
        prop_assert_eq!(lane.front(), [at(0)]);
        let mut kept = lane.part().expect("the first to ask");
        prop_assert!(lane.part().is_none() && lane.front().is_empty(), "there is one reading half");
        let (mut sent, mut taken) = (1, 0);
        for (kind, n, m) in steps {
            match kind {
                0 | 1 => {
                    let data: Vec<u8> = (sent..sent + n).map(at).collect();
                    let room = limit as usize - (sent - taken);
                    prop_assert_eq!(pipe.send(&data), n.min(room));
                    sent += n.min(room);
                }
                2 => {
                    let n = n.min(sent - taken);
                    kept.release(n);
                    taken += n;
                }
                3 => {
                    prop_assert_eq!(lane.retire(), sent == taken);
                    if sent == taken {
                        prop_assert_eq!(pool.in_use(), 0);
                    }
                }
                _ => {
                    // Here and there, and then all from one place on.
                    let mut offset = m;
                    while offset < sent - taken {
                        let shown = kept.bytes(offset as u32);
                        prop_assert!(!shown.is_empty() && shown.len() <= sent - taken - offset);
                        for (i, byte) in shown.iter().enumerate() {
                            prop_assert_eq!(*byte, at(taken + offset + i));
                        }
                        offset += shown.len();
                    }
                    prop_assert!(kept.bytes((sent - taken) as u32).is_empty());
                }
            }
            prop_assert_eq!((lane.sent(), kept.taken()), (sent as u64, taken as u64));
            prop_assert_eq!(pipe.writable(), limit as usize - (sent - taken));
        }
        drop((pipe, lane));
        prop_assert!(sent == taken || pool.in_use() > 0, "it has them still");
        drop(kept);
        prop_assert_eq!(pool.in_use(), 0);
    }
}

#[test]
fn idle_is_nothing() {
    let pool = Arc::new(BlockPool::new(1 << 20));
    let (pipe, mut lane) = pipe(&pool, 65_536, (), (), ());
    assert!(lane.retire());
    assert_eq!(pool.bytes(), 0, "nothing is made before something is said");
    for _ in 0..100 {
        assert_eq!(pipe.send(&[7; 100]), 100);
        assert!(!lane.retire(), "what waits is not taken away");
        lane.advance(100);
        assert!(lane.retire());
    }
    assert_eq!((pool.bytes(), pool.in_use()), (256, 0), "one block served all of it");
}

#[test]
fn much_at_once_uses_large_blocks() {
    let pool = Arc::new(BlockPool::new(1 << 20));
    let (pipe, _lane) = pipe(&pool, 1 << 18, (), (), ());
    assert_eq!(pipe.send(&vec![1; 200_000]), 200_000);
    assert_eq!(pool.bytes(), 4 * 65_536, "who fills a block gets a large one next");
}

#[test]
fn what_is_said_lies_together_where_it_can() {
    let pool = Arc::new(BlockPool::new(1 << 20));
    let (pipe, mut lane) = pipe(&pool, 1 << 18, (), (), ());
    // The block that is there is exchanged for one that holds it all, and no smaller one is fetched again.
    for (len, held) in [(100, 256), (256, 256), (257, 4_096), (100, 4_096), (5_000, 65_536), (1, 65_536)] {
        assert_eq!(pipe.send(&vec![7; len]), len);
        assert_eq!(lane.front(), vec![7; len]);
        assert_eq!(pool.in_use(), held, "for {len} bytes");
        lane.advance(len);
    }
    // Behind what is not read yet, who fills a block goes on in the next size.
    lane.retire();
    assert_eq!([pipe.send(&[1; 250]), pipe.send(&[2; 10])], [250, 10]);
    assert_eq!(pool.in_use(), 256 + 4_096);
    assert_eq!(lane.front().len(), 256);
}

#[test]
fn a_pool_without_larger_blocks_makes_do_with_several() {
    let pool = Arc::new(BlockPool::with_sizes([8, 16, 32], 32));
    let (one, _lane) = pipe(&pool, 1_000, (), (), ());
    let (two, mut lane) = pipe(&pool, 1_000, (), (), ());
    assert_eq!((one.send(&[1; 32]), one.send(&[1; 16]), one.send(&[1; 16])), (32, 16, 16));
    for len in [8, 17, 9] {
        assert_eq!(two.send(&vec![2; len]), len, "of four blocks of eight");
        let mut n = 0;
        while let piece @ 1.. = lane.front().len() {
            assert_eq!(lane.front(), vec![2; piece]);
            n += piece;
            lane.advance(piece);
        }
        assert_eq!(n, len);
    }
}

#[test]
fn a_used_up_pool_is_a_short_send() {
    let pool = Arc::new(BlockPool::with_sizes([8, 16, 32], 16));
    let (one, mut lane) = pipe(&pool, 1_000, (), (), ());
    let (two, _lane_two) = pipe(&pool, 1_000, (), (), ());
    let (three, _lane_three) = pipe(&pool, 1_000, (), (), ());
    assert_eq!(one.send(&[1; 100]), 64, "two small blocks and one of each other size are all there is");
    assert_eq!((three.send(&[3; 100]), two.send(b"x")), (16, 0), "but for one in reserve");
    assert_eq!(lane.front().len(), 32);
    lane.advance(32);
    assert_eq!(lane.front().len(), 16, "stepping over gives the first block back");
    assert_eq!(two.send(b"x"), 1);
}

#[test]
fn a_used_up_pool_has_one_in_reserve_for_what_has_come() {
    let pool = Arc::new(BlockPool::with_sizes([8, 16, 32], 16));
    let (one, mut lane_one) = pipe(&pool, 1_000, (), (), ());
    let (two, mut lane_two) = pipe(&pool, 1_000, (), (), ());
    let (three, mut lane_three) = pipe(&pool, 1_000, (), (), ());
    let (four, lane_four) = pipe(&pool, 1_000, (), (), ());
    let mut buf = [0; 100];
    // The one in reserve for what is written is another's, and is not for what comes.
    assert_eq!((one.send(&[1; 100]), four.send(&[4; 100]), pool.has_reserve_to_write()), (64, 16, false));
    assert_eq!((two.send(b"x"), pool.has_some(), pool.has_reserve()), (0, false, true));
    for round in 0..3 {
        // A block, and not a chain of them: who has one is read sooner or later, and goes on.
        assert_eq!((lane_two.fill(&[2; 100]), lane_three.fill(&[3; 100])), (16, 0), "in round {round}");
        assert_eq!((pool.in_use(), pool.has_reserve()), (96, false));
        assert_eq!((two.recv(&mut buf), lane_two.fill(&[2; 100])), (16, 16), "it is used again when it is read");
        assert_eq!((two.recv(&mut buf), lane_two.retire()), (16, true));
        assert_eq!((pool.in_use(), pool.has_reserve(), two.send(b"x")), (80, true, 0), "and goes back to where it was");
        assert_eq!(
            (lane_three.fill(&[3; 9]), three.recv(&mut buf), lane_three.retire()),
            (9, 9, true),
            "the next has it"
        );
    }
    // One that is exchanged for a larger one goes back, and so does one of which the last owner lets go.
    assert_eq!((lane_two.fill(&[2; 16]), two.recv(&mut buf)), (16, 16));
    lane_one.advance(32);
    assert_eq!((lane_one.front().len(), pool.has_some()), (16, true));
    lane_one.advance(16);
    assert_eq!((lane_one.front().len(), pool.in_use()), (8, 48));
    assert_eq!((lane_two.fill(&[2; 20]), pool.has_reserve()), (20, true));
    assert_eq!(two.recv(&mut buf), 20);
    drop((one, lane_one, two, lane_two, three, lane_three, four, lane_four));
    assert_eq!(pool.in_use(), 0);
}

/// What has come and is not read holds all memory, and who is to read it would write first.
#[test]
fn a_used_up_pool_has_one_in_reserve_for_what_is_written() {
    let pool = Arc::new(BlockPool::with_sizes([8, 16, 32], 16));
    let (one, mut lane_one) = pipe(&pool, 1_000, (), (), ());
    let (two, mut lane_two) = pipe(&pool, 1_000, (), (), ());
    let (three, mut lane_three) = pipe(&pool, 1_000, (), (), ());
    let mut buf = [0; 100];
    assert_eq!((lane_one.fill(&[1; 100]), lane_two.fill(&[2; 100])), (64, 16), "and what it has in reserve to show");
    assert_eq!((pool.has_some(), pool.has_reserve(), pool.has_reserve_to_write()), (false, false, true));
    for round in 0..3 {
        // A block, and not a chain of them: what is written is sent sooner or later, and its writer goes on.
        assert_eq!((two.send(&[2; 100]), one.send(&[1; 100]), three.send(b"x")), (16, 0, 0), "in round {round}");
        assert_eq!((pool.in_use(), pool.has_reserve_to_write()), (96, false));
        assert_eq!((lane_two.front().len(), two.send(b"x")), (16, 0));
        lane_two.advance(16);
        assert_eq!((two.send(&[2; 100]), lane_two.front()), (16, &[2; 16][..]), "it is used again when it was taken");
        lane_two.advance(16);
        assert!(!lane_two.retire(), "what has come is not read");
        assert_eq!((pool.in_use(), pool.has_reserve_to_write()), (80, true), "and it goes back to where it was");
        assert_eq!((pool.has_reserve(), lane_three.fill(b"x")), (false, 0), "which is not for what comes");
        assert_eq!((three.send(&[3; 9]), lane_three.front()), (9, &[3; 9][..]), "the next has it");
        lane_three.advance(9);
        assert!(lane_three.retire());
    }
    // With memory again each goes home, and to no other.
    assert_eq!((two.send(&[2; 9]), lane_two.front().len(), one.recv(&mut buf), two.recv(&mut buf)), (9, 9, 64, 16));
    lane_two.advance(9);
    assert!(lane_one.retire() && lane_two.retire());
    assert_eq!((pool.in_use(), pool.has_reserve(), pool.has_reserve_to_write()), (0, true, true));
    // One that holds it when there is memory exchanges it for what it needs, and one of which the last owner lets go gives it back.
    assert_eq!(
        (lane_one.fill(&[1; 100]), two.send(b"x"), lane_two.front(), one.recv(&mut buf)),
        (64, 1, &b"x"[..], 64)
    );
    lane_two.advance(1);
    assert!(lane_one.retire() && !pool.has_reserve_to_write());
    assert_eq!((two.send(&[2; 20]), pool.has_reserve_to_write()), (20, true));
    drop((one, lane_one, two, lane_two, three, lane_three));
    assert_eq!(pool.in_use(), 0);
}

/// Whose a block is, is told by its number alone.
#[test]
fn a_number_is_its_class_and_its_place() {
    let pool = Arc::new(BlockPool::with_sizes([8, 16, 32], 64));
    let taken = [8, 16, 32, 8, 16, 8].map(|len| pool.take(len).expect("there are so many"));
    assert_eq!(taken.map(|id| pool.size(id)), [8, 16, 32, 8, 16, 8]);
    let (show, write) = (pool.take_to_show(), pool.take_to_write());
    let reserved = [show, write].map(|id| id.expect("one of each"));
    assert_eq!((pool.take_to_show(), pool.take_to_write()), (None, None));
    assert!(reserved[0] != reserved[1] && reserved.iter().all(|id| id.is_reserve() && pool.size(*id) == 16));
    assert!(taken.iter().all(|id| !id.is_reserve()));
    assert_eq!(pool.in_use(), 8 * 3 + 16 * 2 + 32 + 2 * 16);
    pool.give(reserved[1]);
    assert_eq!((pool.has_reserve(), pool.has_reserve_to_write()), (false, true));
    pool.give(reserved[0]);
    assert_eq!((pool.take_to_write(), pool.take_to_show()), (Some(reserved[1]), Some(reserved[0])));
}

#[test]
fn what_is_in_reserve_is_not_kept_for_the_next() {
    let pool = Arc::new(BlockPool::with_sizes([8, 16, 32], 16));
    let (one, _lane) = pipe(&pool, 1_000, (), (), ());
    let (two, mut lane) = pipe(&pool, 1_000, (), (), ());
    assert_eq!((one.send(&[1; 100]), lane.fill(b"x"), two.recv(&mut [0; 2])), (64, 1, 1));
    drop(two);
    assert!(!pool.has_reserve() && lane.renew() && pool.has_reserve());
    let (three, mut lane) = pipe(&pool, 1_000, (), (), ());
    assert_eq!((three.send(b"x"), lane.front().len()), (1, 1));
    lane.advance(1);
    drop(three);
    assert!(!pool.has_reserve_to_write() && lane.renew() && pool.has_reserve_to_write());
}

/// What is said before it is handed over is read without a look at the lane's line; what it keeps for the next is a block for
/// each direction, and no large one.
#[test]
fn what_was_taken_over_is_given_back_in_the_end() {
    let pool = Arc::new(BlockPool::new(1 << 20));
    let (app, mut lane) = pipe(&pool, 1 << 18, (), (), ());
    for i in 0..if cfg!(miri) { 100 } else { 200_000 } {
        lane.take_over(app.clone());
        assert!(app.holders() <= 2 + 65_536, "after {i}");
        assert!(!lane.is_alone());
    }
    let other = lane.share();
    drop(app);
    assert!(!lane.is_alone() && !lane.renew(), "somebody has it");
    drop(lane);
    assert_eq!(other.holders(), 1);
    assert_eq!(Arc::strong_count(&pool), 2, "and it is freed with its last");
    drop(other);
    assert_eq!(Arc::strong_count(&pool), 1);
}

#[test]
#[should_panic(expected = "another conversation")]
fn what_holds_another_conversation_is_not_taken_over() {
    let pool = Arc::new(BlockPool::new(1 << 20));
    let (_app, mut lane) = pipe(&pool, 1 << 18, (), (), ());
    lane.take_over(pipe(&pool, 1 << 18, (), (), ()).0);
}

#[test]
fn one_is_made_as_new_for_the_next() {
    let pool = Arc::new(BlockPool::new(1 << 20));
    let (app, mut lane) = pipe(&pool, 1 << 18, (), (), ());
    let (mut offers, takers) = handout::<_, 0>(1);
    let mut given = Some(app);
    for round in 0..3u8 {
        assert_eq!(lane.fill(&[round; 100]), 100);
        offers.offer(given.take().unwrap_or_else(|| lane.share()), []).unwrap();
        offers.publish();
        let (app, []) = takers.take().unwrap();
        assert_eq!(lane.fill(b"later"), 5);
        let (mut buf, mut looks) = ([9; 200], 0);
        assert_eq!(app.recv_known(&mut buf, || looks += 1), 100);
        assert_eq!((&buf[..100], looks), (&[round; 100][..], 0), "it came with the conversation");
        assert_eq!(app.recv_known(&mut buf, || looks += 1), 5);
        assert_eq!(looks, 1, "of this it did not know");
        assert_eq!(app.send(&[1; 10_000]), 10_000);
        drop(app);
        assert!(lane.is_alone() && !lane.renew(), "something waits");
        while !lane.front().is_empty() {
            let n = lane.front().len();
            lane.advance(n);
        }
        assert!(lane.renew() && lane.beside().is_some());
        assert_eq!(pool.in_use(), 256, "what can hold a short word stays, what was large went back");
        assert_eq!((lane.taken(), lane.unread(), lane.waiting()), (0, 0, 0));
    }
    drop(lane);
    assert_eq!(pool.in_use(), 0, "one that nobody has begun with gives back what it holds");
}

#[test]
fn the_last_to_let_go_frees_it() {
    let pool = tiny();
    for lane_first in [false, true] {
        let (app, mut lane) = pipe(&pool, 100, (), Arc::new(()), ());
        let other = app.clone();
        let kept = app.app().clone();
        assert_eq!((app.send(b"x"), lane.fill(b"y")), (1, 1));
        drop(app);
        if lane_first {
            drop(lane);
            assert_eq!(Arc::strong_count(&kept), 2);
            drop(other);
        } else {
            drop(other);
            assert_eq!(Arc::strong_count(&kept), 2);
            drop(lane);
        }
        assert_eq!((Arc::strong_count(&kept), pool.in_use()), (1, 0));
    }
}

#[test]
fn notes_stand_behind_their_bytes() {
    let pool = tiny();
    let (pipe, mut lane) = pipe(&pool, 100, Notes::default(), (), ());
    pipe.send(b"first");
    pipe.after(|at| pipe.said().push((at, "close")));
    pipe.send(b"late");
    assert_eq!(pipe.said().take_all(), [(5, "close")]);
    assert_eq!(lane.front(), b"firstlat");
    lane.advance(5);
    assert_eq!(lane.taken(), 5);
}

#[test]
fn two_threads_and_a_lane_that_takes_its_blocks_back() {
    const TOTAL: usize = if cfg!(miri) { 300 } else { 400_000 };
    let pool = tiny();
    let (pipe, mut lane) = pipe(&pool, 50, (), (), ());
    let (writer, reader) = (pipe.clone(), pipe);
    let writes = std::thread::spawn(move || {
        let mut sent = 0;
        while sent < TOTAL {
            let data: Vec<u8> = (sent..TOTAL.min(sent + 23)).map(|i| i as u8).collect();
            match writer.send(&data) {
                0 => std::thread::yield_now(),
                n => sent += n,
            }
        }
    });
    let reads = std::thread::spawn(move || {
        let (mut got, mut buf) = (0, [0; 17]);
        while got < TOTAL {
            let n = reader.recv(&mut buf);
            for (i, byte) in buf[..n].iter().enumerate() {
                assert_eq!(*byte, (got + i) as u8, "byte {}", got + i);
            }
            got += n;
            if n == 0 {
                std::thread::yield_now();
            }
        }
    });
    // The lane sends back what comes.
    let mut echoed = 0;
    while echoed < TOTAL {
        let shown = lane.front().to_vec();
        let n = lane.fill(&shown);
        if n == 0 {
            lane.retire();
            std::thread::yield_now();
            continue;
        }
        lane.advance(n);
        echoed += n;
        lane.retire();
    }
    writes.join().unwrap();
    reads.join().unwrap();
    assert!(lane.retire());
    assert_eq!(pool.in_use(), 0);
}

/// While there is memory everybody is given some, also when several need a block that has to be made at the same time.
#[test]
fn a_pool_that_is_not_used_up_has_a_block_for_everyone() {
    const THREADS: usize = 8;
    const BLOCKS: usize = if cfg!(miri) { 20 } else { 300 };
    for _ in 0..if cfg!(miri) { 1 } else { 50 } {
        let pool = BlockPool::with_sizes([64, 128, 256], THREADS * BLOCKS * 64);
        let together = std::sync::Barrier::new(THREADS);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    together.wait();
                    let had = (0..BLOCKS).filter(|_| pool.take(64).is_some()).count();
                    assert_eq!(had, BLOCKS);
                });
            }
        });
        assert_eq!(pool.bytes(), THREADS * BLOCKS * 64, "none was large");
    }
}
