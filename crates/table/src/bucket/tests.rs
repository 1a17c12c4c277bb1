use super::*;
use proptest::prelude::*;

proptest! {
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
