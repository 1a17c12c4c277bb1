use super::*;
use proptest::prelude::*;

const MSS: u32 = 10;

fn seq(raw: u32) -> SeqNum {
    SeqNum::new(raw)
}

fn report(ranges: &[(u32, u32)]) -> SackBlocks {
    let mut blocks = SackBlocks::default();
    for (start, end) in ranges {
        blocks.push(SeqRange::new(seq(*start), seq(*end)));
    }
    blocks
}

fn shape(board: &Scoreboard) -> Vec<(u32, u32)> {
    board.ranges.iter().map(|r| (r.start.raw(), r.end.raw())).collect()
}

#[test]
fn what_is_overdue_is_lost_however_little_has_come_after_it() {
    let mut board = Scoreboard::new();
    board.on_ack(seq(0), &report(&[(10, 20), (30, 31)]), seq(100));
    assert!(!board.is_lost(seq(0), MSS));
    board.presume_lost(Instant::ZERO);
    assert!(board.is_lost(seq(0), MSS) && board.is_lost(seq(20), MSS) && !board.is_lost(seq(31), MSS));
    assert_eq!(board.next_lost(seq(10), seq(100), MSS), Some(SeqRange::new(seq(20), seq(30))));
    assert_eq!(board.pipe(seq(0), seq(100), seq(0), MSS), 69);
    // What was sent after that is not.
    board.on_ack(seq(0), &report(&[(50, 51)]), seq(200));
    assert!(board.is_lost(seq(20), MSS) && !board.is_lost(seq(40), MSS));
    board.presume_nothing();
    assert!(!board.is_lost(seq(20), 100));
    board.presume_all_lost();
    board.clear();
    assert_eq!(board.lost_edge(MSS), None);
}

#[test]
fn where_the_clock_decides_no_number_of_reports_is_a_loss() {
    let at = |ms: u64| Instant::from_us(ms * 1_000);
    let mut board = Scoreboard::new();
    board.ask_clock(true);
    board.on_ack(seq(0), &report(&[(10, 100), (120, 130), (140, 150)]), seq(400));
    assert!(!board.is_lost(seq(0), MSS));
    assert!(board.watch(at(0)) && !board.watch(at(1)));
    board.on_ack(seq(0), &report(&[(200, 300)]), seq(400));
    // What was sent again, while 400 was next, is overdue when something later has been there for as long.
    board.note_repeated(seq(250));
    assert!(!board.is_repetition_lost(MSS, at(9), 10_000) && !board.is_lost(seq(0), MSS));
    assert!(!board.is_repetition_lost(MSS, at(10), 10_000));
    assert!(board.is_lost(seq(0), MSS) && board.is_lost(seq(130), MSS) && !board.is_lost(seq(150), MSS));
    assert!(!board.is_repetition_lost(MSS, at(19), 10_000) && !board.is_lost(seq(150), MSS));
    assert!(board.is_repetition_lost(MSS, at(20), 10_000) && board.is_lost(seq(150), MSS));
}

#[test]
fn what_was_repeated_twice_in_one_recovery_says_nothing_in_the_next() {
    let forget: [fn(&mut Scoreboard); 2] = [Scoreboard::forget_recovery, Scoreboard::clear];
    for forget in forget {
        let mut board = Scoreboard::new();
        board.note_repeated_twice(seq(100));
        forget(&mut board);
        assert_eq!(board.take_repeated_twice(), None);
    }
}

#[test]
fn a_repetition_is_lost_when_enough_of_what_left_after_it_has_come() {
    let mut board = Scoreboard::new();
    // 0..10 is lost, and is sent again when 100 is next.
    board.on_ack(seq(0), &report(&[(10, 100)]), seq(100));
    assert!(!board.is_repetition_lost(MSS, Instant::ZERO, 0), "nothing was sent again");
    board.note_repeated(seq(100));
    assert!(!board.is_repetition_lost(MSS, Instant::ZERO, 0), "all that has come left before it");
    board.on_ack(seq(0), &report(&[(10, 120)]), seq(200));
    assert!(!board.is_repetition_lost(MSS, Instant::ZERO, 0), "two segments may have overtaken it");
    board.on_ack(seq(0), &report(&[(10, 121)]), seq(200));
    assert!(board.is_repetition_lost(MSS, Instant::ZERO, 0));
    // It is sent once more. Of what leaves after that three ranges are enough, however short.
    board.note_repeated(seq(121));
    board.on_ack(seq(0), &report(&[(122, 123), (130, 131)]), seq(200));
    assert!(!board.is_repetition_lost(MSS, Instant::ZERO, 0));
    board.on_ack(seq(0), &report(&[(140, 141)]), seq(200));
    assert!(board.is_repetition_lost(MSS, Instant::ZERO, 0));
    board.clear();
    assert!(!board.is_repetition_lost(MSS, Instant::ZERO, 0));
}

#[test]
fn one_lost_segment_is_found_after_three_more() {
    let mut board = Scoreboard::new();
    // 0..10 is lost; 10.. arrive one by one.
    assert_eq!(board.on_ack(seq(0), &report(&[(10, 20)]), seq(100)), 10);
    assert_eq!(board.on_ack(seq(0), &report(&[(10, 30)]), seq(100)), 10);
    assert!(!board.is_lost(seq(0), MSS), "two segments above are reordering, perhaps");
    assert_eq!(board.pipe(seq(0), seq(100), seq(0), MSS), 80);
    assert_eq!(board.next_lost(seq(0), seq(100), MSS), None);

    assert_eq!(board.on_ack(seq(0), &report(&[(10, 40)]), seq(100)), 10);
    assert!(board.is_lost(seq(0), MSS) && board.is_lost(seq(9), MSS));
    assert!(!board.is_lost(seq(10), MSS) && !board.is_lost(seq(40), MSS));
    assert_eq!(board.next_lost(seq(0), seq(100), MSS), Some(SeqRange::new(seq(0), seq(10))));
    assert_eq!(board.pipe(seq(0), seq(100), seq(0), MSS), 60);
    // Retransmitted: it is in the network again.
    assert_eq!(board.pipe(seq(0), seq(100), seq(10), MSS), 70);
    assert_eq!(board.next_lost(seq(10), seq(100), MSS), None);

    assert_eq!(board.on_ack(seq(40), &SackBlocks::default(), seq(100)), 0);
    assert!(board.is_empty());
    assert_eq!((board.sacked_bytes(), board.highest()), (0, None));
}

#[test]
fn three_separate_reports_suffice_however_small() {
    let mut board = Scoreboard::new();
    board.on_ack(seq(0), &report(&[(1, 2), (3, 4), (5, 6)]), seq(100));
    assert!(board.is_lost(seq(0), MSS));
    assert!(!board.is_lost(seq(2), MSS));
    assert_eq!(board.lost_edge(MSS), Some(seq(1)));
    assert_eq!(board.next_hole(seq(1), seq(100)), Some(SeqRange::new(seq(2), seq(3))));
    assert_eq!(board.next_hole(seq(5), seq(100)), None);
}

#[test]
fn works_across_the_end_of_the_circle() {
    let una = u32::MAX - 14;
    let mut board = Scoreboard::new();
    let newly = board.on_ack(seq(una), &report(&[(u32::MAX - 4, 35), (45, 55)]), seq(100));
    assert_eq!(newly, 50);
    assert_eq!(board.next_lost(seq(una), seq(100), MSS), Some(SeqRange::new(seq(una), seq(una + 10))));
    assert!(board.is_sacked(seq(u32::MAX)) && board.is_sacked(seq(0)) && !board.is_sacked(seq(35)));
    assert_eq!(board.on_ack(seq(5), &SackBlocks::default(), seq(100)), 0);
    assert_eq!(shape(&board), [(5, 35), (45, 55)]);
    assert_eq!(board.sacked_bytes(), 40);
}

#[test]
fn blocks_that_cannot_be_are_ignored() {
    let mut board = Scoreboard::new();
    let bad = [
        (100, 200),                                   // below una: D-SACK
        (999, 1010),                                  // begins below una
        (1990, 2001),                                 // ends above what was sent
        (1500, 1500),                                 // empty
        (1600, 1500),                                 // backwards
        (1000 + (1 << 31) - 1, 1000 + (3 << 30) + 5), // on the far side, where each comparison alone would hold
        (5000, 6000),
    ];
    for block in bad {
        assert_eq!(board.on_ack(seq(1000), &report(&[block]), seq(2000)), 0, "{block:?}");
    }
    assert!(board.is_empty());
    assert_eq!(board.on_ack(seq(1000), &report(&[(1000, 2000)]), seq(2000)), 1000);
    assert_eq!(board.on_ack(seq(1000), &report(&[(1200, 1300)]), seq(2000)), 0);
}

#[test]
fn a_report_taken_back_is_noticed() {
    let mut board = Scoreboard::new();
    board.on_ack(seq(0), &report(&[(10, 30)]), seq(100));
    assert!(!board.is_reneged(seq(0)));
    board.on_ack(seq(10), &SackBlocks::default(), seq(100));
    assert!(board.is_reneged(seq(10)));
    board.clear();
    assert!(!board.is_reneged(seq(10)));
    assert_eq!(board.pipe(seq(10), seq(100), seq(10), MSS), 90);
}

#[test]
fn a_full_scoreboard_ignores_what_it_cannot_hold() {
    let mut board = Scoreboard::new();
    for i in 0..200u32 {
        let newly = board.on_ack(seq(0), &report(&[(i * 10 + 5, i * 10 + 8)]), seq(5000));
        assert_eq!(newly, if i < RANGES_LEAST as u32 { 3 } else { 0 });
    }
    assert_eq!(board.ranges.len(), RANGES_LEAST);
    // Merging is always possible, and makes room.
    assert_eq!(board.on_ack(seq(0), &report(&[(5, 1000)]), seq(5000)), 695);
    assert_eq!(board.on_ack(seq(0), &report(&[(1995, 2000)]), seq(5000)), 5);
    // What is long pays for more.
    for i in 0..200 {
        assert_eq!(board.on_ack(seq(0), &report(&[(6_000 + i * 1_000, 6_900 + i * 1_000)]), seq(300_000)), 900);
    }
    assert_eq!(board.sacked_bytes(), shape(&board).iter().map(|(start, end)| end - start).sum());
}

#[test]
fn pipe_ignores_reports_beyond_a_rewound_snd_nxt() {
    let mut board = Scoreboard::new();
    board.on_ack(seq(0), &report(&[(50, 80)]), seq(100));
    assert_eq!(board.pipe(seq(0), seq(20), seq(0), MSS), 0);
    assert_eq!(board.pipe(seq(0), seq(20), seq(20), MSS), 20);
    assert_eq!(board.pipe(seq(0), seq(60), seq(60), MSS), 50);
}

/// RFC 6675 section 4 to the letter: one bit per byte.
struct Model {
    base: u32,
    una: usize,
    snd_max: usize,
    sacked: Vec<bool>,
}

impl Model {
    fn ranges(&self) -> Vec<(usize, usize)> {
        let mut ranges: Vec<(usize, usize)> = vec![];
        for i in (self.una..self.snd_max).filter(|i| self.sacked[*i]) {
            match ranges.last_mut() {
                Some((_, end)) if *end == i => *end += 1,
                _ => ranges.push((i, i + 1)),
            }
        }
        ranges
    }

    fn is_lost(&self, i: usize) -> bool {
        let above: Vec<_> = self.ranges().into_iter().filter(|(start, _)| *start > i).collect();
        let bytes: usize = above.iter().map(|(start, end)| end - start).sum();
        !self.sacked[i] && (above.len() >= 3 || bytes > 2 * MSS as usize)
    }

    fn pipe(&self, snd_nxt: usize, high_rxt: usize) -> u32 {
        let mut pipe = 0;
        for i in (self.una..snd_nxt).filter(|i| !self.sacked[*i]) {
            pipe += u32::from(!self.is_lost(i)) + u32::from(i < high_rxt);
        }
        pipe
    }

    fn next_lost(&self, from: usize) -> Option<(usize, usize)> {
        let start = (from..self.snd_max).find(|i| self.is_lost(*i))?;
        let end = (start..self.snd_max).find(|i| !self.is_lost(*i)).unwrap_or(self.snd_max);
        Some((start, end))
    }

    fn seq(&self, i: usize) -> SeqNum {
        seq(self.base) + i as u32
    }
}

proptest! {
    #[test]
    fn agrees_with_the_rfc_byte_by_byte(
        base in prop_oneof![any::<u32>(), Just(u32::MAX - 60)],
        acks in prop::collection::vec((0usize..12, prop::collection::vec((0usize..120, 1usize..14), 0..4), 0usize..100, 0usize..100), 1..40),
    ) {
        let mut board = Scoreboard::new();
        let mut model = Model { base, una: 0, snd_max: 100, sacked: vec![false; 2_000] };
        for (forward, blocks, from, nxt) in acks {
            // Cumulative ACKs as an honest receiver sends them, most of the time.
            if forward > 8 {
                model.una += forward - 8;
                model.snd_max = model.una + 100;
            }
            let mut report = SackBlocks::default();
            let known = model.sacked[model.una..model.snd_max].iter().filter(|s| **s).count();
            for (offset, len) in blocks {
                let (start, end) = (model.una + offset, model.una + offset + len);
                report.push(SeqRange::new(model.seq(start), model.seq(end)));
                if end <= model.snd_max {
                    model.sacked[start..end].fill(true);
                }
            }
            let total = model.sacked[model.una..model.snd_max].iter().filter(|s| **s).count();
            let newly = board.on_ack(model.seq(model.una), &report, model.seq(model.snd_max));
            prop_assert_eq!(newly as usize, total - known);
            prop_assert_eq!(board.sacked_bytes() as usize, total);

            let as_seq: Vec<_> = model.ranges().iter().map(|(s, e)| (model.seq(*s).raw(), model.seq(*e).raw())).collect();
            prop_assert_eq!(shape(&board), as_seq);
            for i in model.una..model.snd_max {
                prop_assert_eq!(board.is_lost(model.seq(i), MSS), model.is_lost(i));
                prop_assert_eq!(board.is_sacked(model.seq(i)), model.sacked[i]);
            }
            let (from, nxt) = (model.una + from, model.una + nxt);
            prop_assert_eq!(
                board.pipe(model.seq(model.una), model.seq(nxt), model.seq(from), MSS),
                model.pipe(nxt, from)
            );
            prop_assert_eq!(
                board.next_lost(model.seq(from), model.seq(model.snd_max), MSS),
                model.next_lost(from).map(|(s, e)| SeqRange::new(model.seq(s), model.seq(e)))
            );
        }
    }

    /// Any blocks at all: bounded, inside the window, sorted, and the sum is right.
    #[test]
    fn hostile_blocks_cannot_bend_it(
        una in any::<u32>(),
        window in 0u32..1 << 30,
        acks in prop::collection::vec((0u32..1 << 28, prop::collection::vec((any::<u32>(), any::<u32>(), 0u32..32), 0..5)), 0..200),
    ) {
        let mut board = Scoreboard::new();
        let mut una = seq(una);
        for (forward, blocks) in acks {
            una += forward >> (forward % 29);
            let snd_max = una + window;
            let mut report = SackBlocks::default();
            for (start, len, shift) in blocks {
                let start = una + (start >> shift);
                report.push(SeqRange::new(start, start + (len >> shift)));
            }
            // Something sent may not be outstanding any more: keep only the invariant that snd.max never goes back.
            board.on_ack(una, &report, snd_max);
            let shape: Vec<_> = board.ranges.iter().collect();
            prop_assert!(shape.len() <= RANGES_LEAST + 1 + (board.sacked_bytes() / BYTES_A_RANGE) as usize);
            prop_assert!(shape.iter().all(|r| 0 <= r.start.offset_from(una) && r.start.before(r.end) && r.end.offset_from(una) <= window as i32));
            prop_assert!(shape.windows(2).all(|pair| pair[0].end.before(pair[1].start)));
            prop_assert_eq!(board.sacked_bytes(), shape.iter().map(|r| r.len()).sum::<u32>());
            prop_assert!(board.pipe(una, snd_max, una, MSS) <= window);
            if let Some(lost) = board.next_lost(una, snd_max, MSS) {
                prop_assert!(!lost.is_empty() && lost.end.at_or_before(snd_max));
            }
        }
    }
}
