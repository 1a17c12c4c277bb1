use super::*;
use proptest::prelude::*;

fn shape(assembler: &Assembler) -> Vec<(u32, u32)> {
    assembler.ranges.iter().map(|r| (r.start, r.end)).collect()
}

fn blocks(assembler: &Assembler, rcv_nxt: u32) -> Vec<(u32, u32)> {
    let all = assembler.blocks_up_to(SeqNum::new(rcv_nxt), 4);
    all.iter().map(|b| (b.start.raw(), b.end.raw())).collect()
}

#[test]
fn one_hole_is_filled() {
    let mut it = Assembler::new();
    it.insert(100, 50).unwrap();
    it.insert(150, 50).unwrap();
    assert_eq!((it.contiguous(), it.end(), it.bytes()), (0, 200, 100));
    it.insert(0, 100).unwrap();
    assert_eq!(it.contiguous(), 200);
    assert!(blocks(&it, 0).is_empty(), "what the acknowledgment number covers is no block");
    it.advance(200);
    assert!(it.is_empty());
    assert_eq!(it.end(), 0);
}

#[test]
fn overlaps_and_neighbours_merge() {
    let mut it = Assembler::new();
    for (offset, len) in [(10, 5), (30, 5), (50, 5), (12, 20), (35, 15)] {
        it.insert(offset, len).unwrap();
    }
    assert_eq!(shape(&it), [(10, 55)]);
    it.insert(20, 5).unwrap();
    assert_eq!(shape(&it), [(10, 55)]);
    it.insert(70, 0).unwrap();
    assert_eq!(shape(&it), [(10, 55)]);
}

#[test]
fn blocks_come_most_recently_touched_first() {
    let mut it = Assembler::new();
    for offset in [100, 300, 200, 500, 400] {
        it.insert(offset, 10).unwrap();
    }
    assert_eq!(blocks(&it, 0), [(400, 410), (500, 510), (200, 210), (300, 310)]);
    // The oldest grows and is news again; a duplicate is news too, since the peer evidently missed the report.
    it.insert(110, 10).unwrap();
    assert_eq!(blocks(&it, 0)[..2], [(100, 120), (400, 410)]);
    it.insert(300, 10).unwrap();
    assert_eq!(blocks(&it, 0)[..2], [(300, 310), (100, 120)]);
    assert_eq!(it.blocks_up_to(SeqNum::new(0), 3).len(), 3);
}

#[test]
fn what_grew_long_ago_is_told_when_what_grew_lately_has_merged() {
    let mut it = Assembler::new();
    for i in 1..=20 {
        it.insert(i * 100, 50).unwrap();
    }
    it.insert(1_200, 850).unwrap();
    assert_eq!(blocks(&it, 0), [(1_200, 2_050), (100, 150), (200, 250), (300, 350)]);
    assert_eq!(it.blocks_len(4), 4);
    it.advance(1_200);
    assert!(blocks(&it, 1_200).is_empty());
    assert_eq!((it.blocks_len(4), it.bytes()), (0, 850));
}

#[test]
fn blocks_wrap_around_the_circle() {
    let mut it = Assembler::new();
    it.insert(10, 20).unwrap();
    assert_eq!(blocks(&it, u32::MAX - 14), [(u32::MAX - 4, 15)]);
}

#[test]
fn what_came_twice_is_said_first_and_once() {
    let mut it = Assembler::new();
    for offset in [100, 300, 500, 700] {
        it.insert(offset, 10).unwrap();
    }
    let repeated = SeqRange { start: SeqNum::new(90), end: SeqNum::new(95) };
    it.note_repeated(repeated);
    assert!(!it.has_reported());
    assert_eq!(blocks(&it, 1_000), [(90, 95), (1_700, 1_710), (1_500, 1_510), (1_300, 1_310)]);
    assert_eq!(it.blocks_up_to(SeqNum::new(1_000), 3).len(), 3);
    it.forget_repeated();
    assert!(it.has_reported());
    assert_eq!(blocks(&it, 1_000)[0], (1_700, 1_710));
}

#[test]
fn a_full_assembler_still_takes_data_in_order() {
    let mut it = Assembler::new();
    for i in 1..RANGES_LEAST as u32 {
        it.insert(i * 10, 1).unwrap();
    }
    assert_eq!(it.insert(5, 1), Err(Full));
    it.insert(10, 2).unwrap();
    it.insert(0, 3).unwrap();
    assert_eq!(it.len(), RANGES_LEAST);
    assert_eq!(it.contiguous(), 3);
    it.insert(0, 10_000).unwrap();
    assert_eq!(shape(&it), [(0, 10_000)]);
}

#[test]
fn who_pays_with_text_has_more_ranges() {
    let mut it = Assembler::new();
    for i in 1..=500 {
        it.insert(i * 2_000, 1_000).unwrap();
    }
    assert_eq!(it.len(), 500);
    // One byte each, beside those.
    let refused = (0..1_000).find(|i| it.insert(2_000_000 + i * 2, 1).is_err());
    assert_eq!(refused, Some(508), "a thousand in all, for half a million bytes");
    it.advance(1_500_000);
    assert_eq!(it.insert(1_500_000, 1), Err(Full), "what was delivered pays for nothing any more");
}

#[test]
fn what_does_not_fit_an_offset_is_refused() {
    let mut it = Assembler::new();
    assert_eq!(it.insert(u32::MAX, 1), Err(Full));
    assert_eq!(it.insert(u32::MAX, u32::MAX), Err(Full));
    it.insert(u32::MAX - 1, 1).unwrap();
    it.insert(0, u32::MAX).unwrap();
    assert_eq!(it.contiguous(), u32::MAX);
    it.advance(u32::MAX);
    assert!(it.is_empty());
}

#[derive(Clone, Debug)]
enum Event {
    Insert(u32, u32),
    /// Advance by what is contiguous.
    Deliver,
    /// Advance by any amount: the caller got data past the ranges.
    Advance(u32),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => (0u32..400, 0u32..20).prop_map(|(offset, len)| Event::Insert(offset, len)),
        2 => (0u32..8, 0u32..60).prop_map(|(offset, len)| Event::Insert(offset, len)),
        1 => Just(Event::Deliver),
        1 => (0u32..100).prop_map(Event::Advance),
    ]
}

proptest! {
    /// Against a bit per byte.
    #[test]
    fn agrees_with_a_bitmap(events in prop::collection::vec(event(), 0..200), isn in any::<u32>()) {
        let mut it = Assembler::new();
        let mut map = vec![false; 100_000];
        let mut nxt = 0usize;
        for event in events {
            match event {
                Event::Insert(offset, len) => {
                    let before = shape(&it);
                    let is_known = |at: &u32| map[nxt + *at as usize];
                    let start = (offset..offset + len).find(is_known);
                    let known = start.map(|start| start..(start..offset + len).find(|at| !is_known(at)).unwrap_or(offset + len));
                    prop_assert_eq!(it.known(offset, len), known);
                    let result = it.insert(offset, len);
                    if result.is_ok() {
                        map[nxt + offset as usize..][..len as usize].fill(true);
                        if len > 0 {
                            let first = it.blocks_up_to(SeqNum::new(isn), 4).iter().next();
                            let told = first.is_some_and(|b| {
                                b.contains(SeqNum::new(isn) + offset) && b.contains(SeqNum::new(isn) + (offset + len - 1))
                            });
                            prop_assert!(told || it.contiguous() >= offset + len, "the first block names the new data");
                        }
                    } else {
                        prop_assert!(offset > 0 && before.len() >= RANGES_LEAST - 1);
                        prop_assert_eq!(before, shape(&it));
                    }
                }
                Event::Deliver => {
                    let n = it.contiguous();
                    it.advance(n);
                    nxt += n as usize;
                }
                Event::Advance(n) => {
                    it.advance(n);
                    nxt += n as usize;
                }
            }
            let mut expected = vec![];
            for (i, _) in map[nxt..nxt + 1_000].iter().enumerate().filter(|(_, held)| **held) {
                match expected.last_mut() {
                    Some((_, end)) if *end == i as u32 => *end += 1,
                    _ => expected.push((i as u32, i as u32 + 1)),
                }
            }
            prop_assert_eq!(it.bytes(), expected.iter().map(|(start, end)| end - start).sum::<u32>());
            prop_assert_eq!(shape(&it), &expected[..]);
            expected.retain(|(start, _)| *start != 0);
            let told = blocks(&it, 0);
            prop_assert_eq!(told.len(), expected.len().min(4));
            prop_assert!(told.iter().all(|block| expected.contains(block)));
            prop_assert!((1..told.len()).all(|i| !told[..i].contains(&told[i])));
            prop_assert!((0..=4).all(|max| it.blocks_len(max) == it.blocks_up_to(SeqNum::new(0), max).len()));
        }
    }

    /// Any offsets at all: bounded, sorted, disjoint.
    #[test]
    fn stays_well_formed(inserts in prop::collection::vec((any::<u32>(), any::<u32>(), any::<u32>()), 0..200)) {
        let mut it = Assembler::new();
        for (offset, len, advance) in inserts {
            let _ = it.insert(offset, len >> (advance % 32));
            if advance % 7 == 0 {
                it.advance(advance);
            }
            let shape = shape(&it);
            prop_assert!(shape.len() <= RANGES_LEAST + (it.bytes() / BYTES_A_RANGE) as usize);
            prop_assert!(shape.iter().all(|(start, end)| start < end));
            prop_assert!(shape.windows(2).all(|pair| pair[0].1 < pair[1].0));
            prop_assert!(it.blocks_up_to(SeqNum::new(offset), 4).len() <= 4);
        }
    }
}
