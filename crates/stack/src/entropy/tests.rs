use super::*;
use laneway_sync::fork::in_a_child;

fn first(mut chance: Chance) -> [u64; 4] {
    std::array::from_fn(|_| chance.next_u64())
}

#[test]
fn a_seed_gives_the_same_run_and_each_lane_another() {
    let of = |seed, lane| first(Chance::new(BootSecrets::from_seed(seed).chance, lane));
    assert_eq!(of(1, 0), of(1, 0));
    assert_ne!(of(1, 0), of(2, 0));
    let all: std::collections::HashSet<u64> = (0..64).flat_map(|lane| of(1, lane)).collect();
    assert_eq!(all.len(), 64 * 4, "no lane has what another has");
}

/// Who adds a constant and mixes what comes of it with no key can be undone, value by value: each gives away the next.
#[test]
fn what_was_seen_does_not_tell_what_comes() {
    fn unshift(z: u64, by: u32) -> u64 {
        (0..64 / by).fold(z, |x, _| z ^ (x >> by))
    }
    fn inverse(odd: u64) -> u64 {
        (0..6).fold(odd, |x, _| x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x))))
    }
    let after = |seen: u64| {
        let z = unshift(seen, 31).wrapping_mul(inverse(0x94d0_49bb_1331_11eb));
        let z = unshift(z, 27).wrapping_mul(inverse(0xbf58_476d_1ce4_e5b9));
        Entropy::from_seed(unshift(z, 30)).next_u64()
    };
    let mut known = Entropy::from_seed(4_711);
    let seen = known.next_u64();
    assert_eq!(after(seen), known.next_u64(), "the small generator is as weak as it says");
    let [a, b, c, d] = first(Chance::new(BootSecrets::from_seed(1).chance, 0));
    assert!(after(a) != b && after(b) != c && after(c) != d);
}

#[test]
#[cfg(not(miri))]
fn a_child_cannot_go_on_where_its_parent_is() {
    let mut chance = Chance::new(BootSecrets::from_seed(1).chance, 0);
    chance.next_u64();
    let mut same = Chance::new(BootSecrets::from_seed(1).chance, 0);
    same.next_u64();
    let next = same.next_u64();
    assert_eq!(in_a_child(|| u8::from(chance.next_u64() == next)).expect("a child"), 0);
    assert_eq!(chance.next_u64(), next);
}
