use super::*;
use std::collections::HashSet;

const HASH: u64 = 0x1234_5678_9abc_def0;

#[test]
fn none_comes_again_before_all_were_given() {
    for lanes in [1, 2, 3, 7] {
        let mut all = HashSet::new();
        for lane in 0..lanes {
            let mut given = Identifications::new(lane, lanes);
            let share = 65_536 / lanes;
            assert!((0..share).all(|_| all.insert(given.next(HASH))), "lane {lane} of {lanes}");
        }
    }
}

#[test]
fn they_go_on_for_ever() {
    let mut given = Identifications::new(2, 3);
    let first: Vec<u16> = (0..21_845).map(|_| given.next(HASH)).collect();
    assert!(first.iter().all(|number| *number == given.next(HASH)));
}

#[test]
fn nothing_tells_the_next_one_or_those_of_other_hosts() {
    let thousand = |hash| {
        let mut given = Identifications::new(0, 1);
        (0..1_000).map(|_| given.next(hash)).collect::<Vec<u16>>()
    };
    let one = thousand(HASH);
    let steps: HashSet<u16> = one.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
    assert!(steps.len() > 900, "they follow in {} different steps", steps.len());
    for bit in 0..64 {
        let other = thousand(HASH ^ 1 << bit);
        let same = one.iter().zip(&other).filter(|(a, b)| a == b).count();
        assert!(same < 20, "{same} are the same if bit {bit} is another");
    }
}
