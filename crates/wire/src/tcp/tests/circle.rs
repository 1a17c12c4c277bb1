//! The order on the circle of sequence numbers.

use super::*;

/// `SeqNum` has no order of numbers: if it had one, `Probe::<SeqNum>::has_order` would be ambiguous and this file
/// would not compile.
#[allow(dead_code, reason = "compiling is the test")]
mod no_order {
    use super::SeqNum;
    trait AmbiguousIfOrdered<A> {
        fn has_order() {}
    }
    impl<T> AmbiguousIfOrdered<()> for T {}
    struct Invalid;
    impl<T: PartialOrd> AmbiguousIfOrdered<Invalid> for T {}
    fn probe() {
        let _ = <SeqNum as AmbiguousIfOrdered<_>>::has_order;
    }
}

const HALF: u32 = 1 << 31;

proptest! {
    #[test]
    fn the_way_forward_is_ahead(at: u32, d in 1..HALF) {
        let a = SeqNum::new(at);
        let b = a + d;
        prop_assert!(a.before(b) && b.after(a) && !b.before(a) && !a.after(b));
        prop_assert!(a.at_or_before(b) && b.at_or_after(a) && !b.at_or_before(a) && !a.at_or_after(b));
        prop_assert_eq!(b.offset_from(a), d as i32);
        prop_assert_eq!(a.offset_from(b), -(d as i32));
        prop_assert_eq!((a.earliest(b), b.earliest(a)), (a, a));
        prop_assert_eq!((a.latest(b), b.latest(a)), (b, b));
        prop_assert_eq!(b - d, a);
    }

    #[test]
    fn the_order_turns_with_the_circle(a: u32, b: u32, turn: u32) {
        let (a, b) = (SeqNum::new(a), SeqNum::new(b));
        prop_assert_eq!(a.before(b), (a + turn).before(b + turn));
        prop_assert_eq!(a.at_or_before(b), (a + turn).at_or_before(b + turn));
        prop_assert_eq!(a.after(b), b.before(a));
    }

    #[test]
    fn it_is_transitive_within_half_the_circle(at: u32, d in 1..HALF / 2, e in 1..HALF / 2) {
        let a = SeqNum::new(at);
        let (b, c) = (a + d, a + d + e);
        prop_assert!(a.before(b) && b.before(c) && a.before(c));
    }

    #[test]
    fn nothing_is_before_itself(at: u32) {
        let a = SeqNum::new(at);
        prop_assert!(!a.before(a) && !a.after(a) && a.at_or_before(a) && a.at_or_after(a));
    }

    #[test]
    fn a_range_holds_its_bytes(at: u32, len in 0..HALF, d: u32) {
        let start = SeqNum::new(at);
        let range = SeqRange::new(start, start + len);
        prop_assert_eq!((range.len(), range.is_empty()), (len, len == 0));
        prop_assert_eq!(range.contains(start + d), d < len);
        prop_assert!(!range.contains(range.end));
        let backward = SeqRange::new(range.end, range.start);
        prop_assert!(backward.is_empty() && !backward.contains(start));
        prop_assert_eq!(backward.len(), 0u32);
    }
}

#[test]
fn the_far_side_of_the_circle_is_nowhere() {
    let (a, b) = (SeqNum::new(0), SeqNum::new(HALF));
    assert!(a.before(b) && b.before(a));
}
