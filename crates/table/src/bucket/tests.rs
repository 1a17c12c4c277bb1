use super::*;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]
    #[test]
    fn vector_and_portable_comparison_agree(tags in prop::array::uniform10(0u16..4), tag in 0u16..4) {
        prop_assert_eq!(equal_tags(&tags, tag), equal_tags_portable(&tags, tag));
    }

    #[test]
    fn every_bit_of_a_tag_counts(tag: u16, slot in 0..SLOTS, bit in 0..16u32) {
        let mut tags = [tag ^ (1 << bit); SLOTS];
        tags[slot] = tag;
        prop_assert_eq!(equal_tags(&tags, tag), 1 << slot);
    }

    #[test]
    fn no_hash_has_the_empty_tag(hash: u64) {
        prop_assert_ne!(tag_of(hash), EMPTY);
    }
}

#[test]
fn the_zero_hash_has_a_tag() {
    assert_ne!(tag_of(0), EMPTY);
}

#[test]
fn buckets_begin_on_a_line_and_are_empty() {
    for count in [1, 2, 3, 100, 1 << 12] {
        let buckets = Buckets::zeroed(count);
        assert!(buckets.mask() + 1 >= count);
        for i in 0..=buckets.mask() {
            assert!(std::ptr::from_ref(buckets.at(i)).addr().is_multiple_of(64));
            assert_eq!(buckets.at(i).vacant().count(), SLOTS);
            assert_eq!(buckets.at(i).occupied().count(), 0);
            assert!(!buckets.at(i).overflows());
        }
    }
}

#[test]
fn a_saturated_overflow_count_stays() {
    let mut buckets = Buckets::zeroed(1);
    let bucket = buckets.at_mut(0);
    for _ in 0..70_000 {
        bucket.count_passed();
    }
    for _ in 0..70_000 {
        bucket.uncount_passed();
    }
    assert!(bucket.overflows());
}

/// The kernel writes `hg` beside memory that was asked for in huge pages.
#[cfg(all(target_os = "linux", not(miri)))]
#[test]
fn a_large_array_asks_for_huge_pages() {
    if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
        return; // this kernel has none, and refuses the hint
    }
    let (large, small) = (Buckets::zeroed((8 << 20) / 64), Buckets::zeroed(1));
    assert!(flags_at(large.address(large.mask() / 2).addr()).contains(" hg"));
    assert!(large.at(large.mask()).occupied().count() == 0, "and it is zeroed all the same");
    assert!(!flags_at(small.address(0).addr()).contains(" hg"), "who has a few connections pays for a few pages");
}

/// What the kernel says of the memory at this address.
#[cfg(all(target_os = "linux", not(miri)))]
fn flags_at(address: usize) -> String {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("Linux has it");
    let mut inside = false;
    for line in maps.lines() {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        if let Some((from, to)) = range
            && let (Ok(from), Ok(to)) = (usize::from_str_radix(from, 16), usize::from_str_radix(to, 16))
        {
            inside = (from..to).contains(&address);
        }
        if inside && line.starts_with("VmFlags:") {
            return line.to_string();
        }
    }
    panic!("no mapping holds {address:#x}");
}
