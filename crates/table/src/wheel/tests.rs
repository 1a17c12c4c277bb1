use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// What a wheel means: a sorted map from tick to keys.
#[derive(Default)]
struct Model {
    now: u64,
    entries: BTreeMap<u64, Vec<u32>>,
}

impl Model {
    fn arm(&mut self, key: u32, at: u64) {
        let at = at.clamp(self.now, self.now + HORIZON);
        self.entries.entry(at).or_default().push(key);
    }

    fn advance(&mut self, now: u64) -> Vec<(u64, Vec<u32>)> {
        self.now = self.now.max(now);
        let later = self.entries.split_off(&(self.now + 1));
        let due = std::mem::replace(&mut self.entries, later);
        due.into_iter()
            .map(|(at, mut keys)| {
                keys.sort_unstable();
                (at, keys)
            })
            .collect()
    }
}

/// What a wheel reports up to `now`, with as many calls as the budget makes necessary.
fn advance(wheel: &mut Wheel, now: u64, budget: usize) -> Vec<(u64, Vec<u32>)> {
    let mut due: Vec<(u64, Vec<u32>)> = Vec::new();
    loop {
        let mut handled = 0;
        let more = wheel.advance(now, budget, |key, at| {
            handled += 1;
            match due.last_mut() {
                Some((last, keys)) if *last == at => keys.push(key),
                _ => due.push((at, vec![key])),
            }
        });
        assert!(handled <= budget);
        if !more {
            break;
        }
    }
    for (_, keys) in &mut due {
        keys.sort_unstable();
    }
    due
}

#[derive(Clone, Debug)]
enum Step {
    Arm { ahead: u64, count: usize },
    ArmLate(u64),
    Advance(u64),
    AdvanceToHint,
}

/// Spans of all sizes, and those around the widths of the levels.
fn spans() -> impl Strategy<Value = u64> {
    prop_oneof![
        0u64..10,
        0u64..1000,
        0u64..200_000,
        0u64..20_000_000,
        0u64..HORIZON * 2,
        (prop::sample::select(vec![8u32, 16, 24, 32]), 0u64..4).prop_map(|(bits, d)| (1 << bits) + d - 2),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn behaves_as_a_sorted_map(
        start in prop_oneof![Just(0u64), spans(), Just(u64::from(u32::MAX) - 5), any::<u32>().prop_map(|x| u64::from(x) << 13)],
        budget in prop::sample::select(vec![1usize, 3, 64, usize::MAX]),
        steps in prop::collection::vec(prop_oneof![
            4 => (spans(), prop::sample::select(vec![1usize, 1, 1, 40, 100])).prop_map(|(ahead, count)| Step::Arm { ahead, count }),
            1 => (0u64..1000).prop_map(Step::ArmLate),
            3 => spans().prop_map(Step::Advance),
            2 => Just(Step::AdvanceToHint),
        ], 1..80),
    ) {
        let mut wheel = Wheel::new(start);
        let mut model = Model { now: start, ..Model::default() };
        let mut key = 0;
        for step in steps {
            let now = model.now;
            let to = match step {
                Step::Arm { ahead, count } => {
                    for _ in 0..count {
                        wheel.arm(key, now + ahead);
                        model.arm(key, now + ahead);
                        key += 1;
                    }
                    now
                }
                Step::ArmLate(by) => {
                    wheel.arm(key, now.saturating_sub(by));
                    model.arm(key, now.saturating_sub(by));
                    key += 1;
                    now
                }
                Step::Advance(by) => now + by,
                Step::AdvanceToHint => match wheel.next_tick_hint() {
                    Some(hint) => {
                        let first = *model.entries.keys().next().expect("the wheel is not empty");
                        prop_assert!(hint <= first, "the hint {hint} is later than {first}");
                        prop_assert!(hint >= now);
                        hint
                    }
                    None => {
                        prop_assert!(model.entries.is_empty());
                        now
                    }
                },
            };
            prop_assert_eq!(advance(&mut wheel, to, budget), model.advance(to));
            prop_assert_eq!(wheel.now_tick(), model.now);
            prop_assert_eq!(wheel.len(), model.entries.values().map(Vec::len).sum::<usize>());
        }
        let end = model.now + HORIZON;
        prop_assert_eq!(advance(&mut wheel, end, budget), model.advance(end));
        prop_assert!(wheel.is_empty() && wheel.next_tick_hint().is_none());
    }

    /// Arms while a budget holds the wheel back: nothing is lost, nothing is early.
    #[test]
    fn arming_while_work_is_left_over(
        spans in prop::collection::vec(0u64..70_000, 1..200),
        budget in 1usize..20,
    ) {
        let mut wheel = Wheel::new(0);
        let mut clock = 0;
        let mut deadlines = Vec::new();
        let mut expired = 0;
        for (key, span) in (0u32..).zip(spans) {
            deadlines.push(clock + span);
            wheel.arm(key, clock + span);
            clock += span / 16;
            wheel.advance(clock, budget, |key, at| {
                expired += 1;
                assert!(at >= deadlines[key as usize] && at <= clock);
            });
        }
        while wheel.advance(clock + 70_000, budget, |_, _| expired += 1) {}
        prop_assert_eq!(expired, deadlines.len());
    }
}

#[test]
fn a_long_idle_gap_is_one_step() {
    let mut wheel = Wheel::new(0);
    assert!(!wheel.advance(u64::MAX / 2, 1, |_, _| unreachable!("it is empty")));
    assert_eq!(wheel.now_tick(), u64::MAX / 2);
    // One entry in the far end of a year-long wheel: a few dealings-out, not four billion ticks.
    wheel.arm(7, wheel.now_tick() + HORIZON);
    let mut calls = 0;
    let mut got = None;
    while wheel.advance(u64::MAX / 2 + 2 * HORIZON, 1, |key, at| got = Some((key, at))) {
        calls += 1;
    }
    assert_eq!(got, Some((7, u64::MAX / 2 + HORIZON)));
    assert!(calls <= LEVELS, "{calls} calls with a budget of one entry");
}

#[test]
fn a_steady_load_allocates_nothing() {
    let mut wheel = Wheel::new(0);
    let round = |wheel: &mut Wheel, tick: u64| {
        for i in 0..50 {
            wheel.arm(i, tick + 1 + u64::from(i) * 97 % 3000);
        }
        while wheel.advance(tick, 64, |_, _| ()) {}
    };
    for tick in 0..70_000 {
        round(&mut wheel, tick);
    }
    let bytes = wheel.bytes();
    for tick in 70_000..140_000 {
        round(&mut wheel, tick);
    }
    assert_eq!(wheel.bytes(), bytes);
}

#[test]
fn time_does_not_run_backwards() {
    let mut wheel = Wheel::new(100);
    wheel.arm(1, 150);
    assert!(!wheel.advance(50, 9, |_, _| unreachable!("not yet")));
    assert_eq!(wheel.now_tick(), 100);
    let mut got = Vec::new();
    wheel.advance(150, 9, |key, at| got.push((key, at)));
    assert_eq!(got, [(1, 150)]);
}

#[test]
fn what_a_budget_leaves_over_is_due_now() {
    let mut wheel = Wheel::new(0);
    (0..3).for_each(|key| wheel.arm(key, 10));
    wheel.arm(3, 1_000);
    assert!(wheel.advance(10, 2, |_, at| assert_eq!(at, 10)));
    assert_eq!(wheel.next_tick_hint(), Some(10), "one of them is left");
    assert!(!wheel.advance(10, 2, |_, at| assert_eq!(at, 10)));
    assert!(wheel.next_tick_hint().is_some_and(|tick| (11..=1_000).contains(&tick)));
}
