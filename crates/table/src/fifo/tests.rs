use super::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Push(usize),
    Pop(usize),
    Change(u32),
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..Default::default() })]

    #[test]
    fn behaves_as_a_queue_with_positions(
        start in prop::sample::select(vec![0u32, 0u32.wrapping_sub(CHUNK as u32), 0u32.wrapping_sub(3 * CHUNK as u32)]),
        steps in prop::collection::vec(prop_oneof![
            (0usize..3000).prop_map(Step::Push),
            (0usize..3000).prop_map(Step::Pop),
            any::<u32>().prop_map(Step::Change),
        ], 1..20),
    ) {
        let mut fifo = Fifo::starting_at(start);
        let mut model: VecDeque<(u32, u64)> = VecDeque::new();
        let mut next = start;
        for step in steps {
            match step {
                Step::Push(n) => for _ in 0..n {
                    let position = fifo.push(u64::from(next) * 3);
                    prop_assert_eq!(position, next);
                    model.push_back((next, u64::from(next) * 3));
                    next = next.wrapping_add(1);
                },
                Step::Pop(n) => for _ in 0..n {
                    let expected = model.pop_front();
                    prop_assert_eq!(fifo.front().map(|(p, r)| (p, *r)), expected);
                    prop_assert_eq!(fifo.pop_front(), expected.map(|(_, record)| record));
                    if let Some((position, _)) = expected {
                        prop_assert_eq!(fifo.get(position), None, "it is gone");
                    }
                },
                Step::Change(which) if !model.is_empty() => {
                    let which = which as usize % model.len();
                    let (position, record) = &mut model[which];
                    *record += 1;
                    *fifo.get_mut(*position).expect("it is queued") += 1;
                    fifo.prefetch(*position);
                }
                Step::Change(_) => prop_assert_eq!(fifo.pop_front(), None),
            }
            prop_assert_eq!(fifo.len(), model.len());
            prop_assert_eq!(fifo.is_empty(), model.is_empty());
            prop_assert_eq!(fifo.get(next), None);
        }
        let all: Vec<(u32, u64)> = fifo.iter().map(|(p, r)| (p, *r)).collect();
        prop_assert_eq!(all, Vec::from(model));
    }
}

#[test]
fn a_steady_queue_allocates_nothing() {
    let mut fifo = Fifo::new();
    for i in 0..5000u32 {
        fifo.push(i);
    }
    for _ in 0..20_000 {
        fifo.push(0);
        fifo.pop_front();
    }
    let bytes = fifo.bytes();
    for _ in 0..100_000 {
        fifo.push(0);
        fifo.pop_front();
    }
    assert_eq!(fifo.bytes(), bytes);
}

#[test]
fn a_burst_gives_its_memory_back() {
    let mut fifo = Fifo::new();
    for i in 0..1_000_000u32 {
        fifo.push(i);
    }
    let peak = fifo.bytes();
    while fifo.pop_front().is_some() {}
    assert!(fifo.bytes() < peak / 10, "{} of {peak}", fifo.bytes());
}

#[test]
fn records_do_not_move() {
    let mut fifo = Fifo::new();
    let position = fifo.push(1u64);
    let address = std::ptr::from_ref(fifo.get(position).expect("queued")).addr();
    for i in 0..100_000 {
        fifo.push(i);
    }
    let now = std::ptr::from_ref(fifo.get(position).expect("queued")).addr();
    assert_eq!(now, address);
}
