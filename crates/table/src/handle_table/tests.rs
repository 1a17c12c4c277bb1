use super::*;
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};

#[derive(Clone, Debug)]
enum Step {
    Insert(u64),
    Remove(usize),
    RemoveAbsent(u64),
    Replace(usize),
    Maintain(usize),
}

fn steps(hashes: impl Strategy<Value = u64> + Clone) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => hashes.clone().prop_map(Step::Insert),
        3 => any::<usize>().prop_map(Step::Remove),
        1 => hashes.prop_map(Step::RemoveAbsent),
        1 => any::<usize>().prop_map(Step::Replace),
        1 => (0usize..20).prop_map(Step::Maintain),
    ];
    prop::collection::vec(step, 1..if cfg!(miri) { 60 } else { 600 })
}

/// Runs the steps on the table and on a map from handle to hash, and compares after each.
fn compare(capacity: usize, steps: Vec<Step>) {
    let mut table = HandleTable::with_capacity(capacity);
    let mut model: HashMap<u32, u64> = HashMap::new();
    let mut order: Vec<u32> = Vec::new();
    let mut next = 0;
    for step in steps {
        match step {
            Step::Insert(hash) => {
                table.insert(hash, next);
                model.insert(next, hash);
                order.push(next);
                next += 1;
            }
            Step::Remove(which) if !order.is_empty() => {
                let handle = order.swap_remove(which % order.len());
                let hash = model.remove(&handle).expect("it is in the order");
                assert!(table.remove(hash, handle));
                assert!(!table.remove(hash, handle));
            }
            Step::RemoveAbsent(hash) => assert!(!table.remove(hash, next)),
            Step::Replace(which) if !order.is_empty() => {
                let which = which % order.len();
                let hash = model.remove(&order[which]).expect("it is in the order");
                assert!(table.replace(hash, order[which], next));
                assert!(!table.replace(hash, order[which], next));
                model.insert(next, hash);
                order[which] = next;
                next += 1;
            }
            Step::Maintain(budget) => {
                let backlog = table.backlog();
                let moved = table.maintain(budget, |handle| model[&handle]);
                assert!(moved <= budget);
                assert_eq!(table.backlog(), backlog - moved);
            }
            Step::Remove(_) | Step::Replace(_) => {}
        }
        assert_eq!(table.len(), model.len());
        assert_eq!(table.is_empty(), model.is_empty());
    }
    check_all(&table, &model);
    while table.maintain(7, |handle| model[&handle]) > 0 || table.backlog() > 0 {}
    assert!(table.older.iter().all(|g| g.len == 0));
    check_all(&table, &model);
    for (&handle, &hash) in &model {
        assert!(table.remove(hash, handle));
    }
    // Nothing is left, not even a count of what passed by.
    for i in 0..=table.newest.buckets.mask() {
        let bucket = table.newest.buckets.at(i);
        assert!(bucket.occupied().first().is_none() && !bucket.overflows());
    }
}

/// Every entry is found, once, under its hash; and every hash finds exactly its entries.
fn check_all(table: &HandleTable, model: &HashMap<u32, u64>) {
    for (&handle, &hash) in model {
        assert_eq!(table.find(hash, |found| found == handle), Some(handle));
        assert!(table.candidate(hash).is_some() || table.len() > SLOTS);
        let mut offered = HashSet::new();
        assert_eq!(
            table.find(hash, |found| {
                assert!(offered.insert(found), "offered twice");
                false
            }),
            None
        );
        assert!(offered.contains(&handle));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: if cfg!(miri) { 4 } else { 256 }, ..Default::default() })]

    #[test]
    fn behaves_as_a_map(capacity in 0usize..200, steps in steps(any::<u64>())) {
        compare(capacity, steps);
    }

    /// Few hashes: long chains, full buckets, wrap-around at the end.
    #[test]
    fn behaves_as_a_map_when_hashes_collide(capacity in 0usize..200, steps in steps(0u64..3)) {
        compare(capacity, steps);
    }

    /// The same bucket, different tags; different buckets, the same tag.
    #[test]
    fn behaves_as_a_map_with_structured_hashes(
        capacity in 0usize..200,
        steps in steps((0u64..3, 0u64..3).prop_map(|(tag, bucket)| (tag << 48) | bucket.wrapping_sub(1) & 0xffff_ffff)),
    ) {
        compare(capacity, steps);
    }
}

fn spread(i: u32) -> u64 {
    {
        use std::hash::Hasher;
        let mut hasher = siphasher::sip::SipHasher13::new_with_keys(1, 2);
        hasher.write_u64(u64::from(i));
        hasher.finish()
    }
}

#[test]
fn growth_under_load_loses_nothing() {
    // As many are inserted per round as are drained, and old ones leave: what a busy lane does.
    let mut table = HandleTable::with_capacity(64);
    let (mut first, mut next) = (0u32, 0u32);
    for round in 0..4000u32 {
        for _ in 0..64 {
            table.insert(spread(next), next);
            next += 1;
        }
        for _ in 0..16 {
            assert!(table.remove(spread(first), first));
            first += 1;
        }
        table.maintain(64, spread);
        assert!(table.older.len() <= 1, "one old generation at a time");
        let probe = first + round * 7919 % (next - first);
        assert_eq!(table.find(spread(probe), |h| h == probe), Some(probe));
    }
    assert_eq!(table.len(), (next - first) as usize);
    for handle in first..next {
        assert_eq!(table.find(spread(handle), |h| h == handle), Some(handle));
    }
    for handle in (0..first).chain(next..next + 1000) {
        assert_eq!(table.find(spread(handle), |h| h == handle), None);
    }
}

#[test]
fn without_maintenance_nothing_is_lost_either() {
    let mut table = HandleTable::with_capacity(0);
    for handle in 0..100_000 {
        table.insert(spread(handle), handle);
    }
    assert!(table.older.len() > 1 && table.older.len() < 20);
    for handle in 0..100_000 {
        assert_eq!(table.find(spread(handle), |h| h == handle), Some(handle));
    }
    while table.backlog() > 0 {
        table.maintain(64, spread);
    }
    for handle in 0..100_000 {
        assert!(table.remove(spread(handle), handle));
    }
    assert!(table.is_empty());
}

#[test]
fn no_call_of_maintain_does_more_than_its_budget() {
    let mut table = HandleTable::with_capacity(0);
    for handle in 0..10_000 {
        table.insert(spread(handle), handle);
    }
    let mut calls = 0;
    while table.backlog() > 0 {
        let mut asked = 0;
        let moved = table.maintain(10, |handle| {
            asked += 1;
            spread(handle)
        });
        assert!(asked <= 10 && moved == asked);
        calls += 1;
    }
    assert!(calls > 100);
}

#[test]
fn ten_thousand_equal_hashes_are_slow_and_right() {
    let mut table = HandleTable::with_capacity(1000);
    for handle in 0..10_000 {
        table.insert(42, handle);
    }
    for handle in (0..10_000).step_by(97) {
        assert_eq!(table.find(42, |h| h == handle), Some(handle));
    }
    // The same bucket, another tag: the whole chain is searched, and the caller is not asked once.
    assert_eq!(table.find((2 << 48) | 42, |_| true), None);
    for handle in 0..10_000 {
        assert!(table.remove(42, handle));
    }
    assert_eq!(table.find(42, |_| true), None);
}

#[test]
fn a_table_of_its_capacity_does_not_grow() {
    for entries in [1, 7, 8, 1000, 100_000] {
        let mut table = HandleTable::with_capacity(entries);
        let bytes = table.bytes();
        for handle in 0..entries as u32 {
            table.insert(spread(handle), handle);
        }
        assert_eq!(table.bytes(), bytes);
        assert_eq!(table.backlog(), 0);
    }
}

#[test]
fn a_search_reads_little_more_than_one_line_at_full_load() {
    let mut table = HandleTable::with_capacity(98_304);
    let entries = table.capacity() as u32;
    for handle in 0..entries {
        table.insert(spread(handle), handle);
    }
    let overflowing = (0..=table.newest.buckets.mask()).filter(|&i| table.newest.buckets.at(i).overflows()).count();
    let share = overflowing as f64 / (table.newest.buckets.mask() + 1) as f64;
    assert!(share < 0.3, "{share} of the buckets overflow");
}

#[test]
#[should_panic(expected = "reserved")]
fn the_reserved_handle_is_refused() {
    HandleTable::with_capacity(1).insert(0, NONE);
}
