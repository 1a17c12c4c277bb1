//! Owns the tests of the simulator: against what queueing theory and arithmetic say.

use super::*;

const COSTS: Costs = Costs { hit_ns: 1.0, transfer_ns: 100.0, grip: 0.0 };

fn scenario(cores: usize, steps: Vec<Step>) -> Scenario {
    Scenario {
        costs: COSTS,
        queue: Queue::Fifo,
        lines: vec![1],
        locks: vec![1],
        sites: 1,
        heaps: 1,
        programs: vec![Program::of(steps); cores],
    }
}

fn near(value: f64, wanted: f64, share: f64) {
    assert!((value - wanted).abs() <= share * wanted.abs(), "{value} is not {wanted} within {share}");
}

#[test]
fn work_that_is_not_shared_goes_as_many_times_as_there_are_cores() {
    for cores in [1, 7, 112] {
        let out = run(&scenario(cores, vec![Step::Work(1_000.0)]), 1, 0.0, 1e6);
        near(out.rounds_per_s(), cores as f64 * 1e6, 0.03);
        assert_eq!(out.transfers, 0);
    }
}

#[test]
fn a_line_serves_one_core_at_a_time() {
    let alone = run(&scenario(1, vec![Step::Write(0)]), 1, 1e3, 1e4);
    near(alone.rounds_per_s(), 1e9, 0.01);
    for cores in [2, 16] {
        let out = run(&scenario(cores, vec![Step::Write(0)]), 1, 1e4, 1e6);
        near(out.rounds_per_s(), 1e9 / 101.0, 0.01);
        let least = *out.rounds.iter().min().expect("cores") as f64;
        assert!(least > 0.7 * out.rounds_per_s() * 1e-3 / cores as f64, "nobody is left out: {:?}", out.rounds);
    }
}

#[test]
fn what_nobody_writes_is_read_for_nothing() {
    let out = run(&scenario(64, vec![Step::Read(0)]), 1, 1e4, 1e3);
    assert_eq!(out.transfers, 0);
    near(out.rounds_per_s(), 64.0 * 1e9, 0.02);
    let mut written = scenario(8, vec![Step::Work(500.0), Step::Read(0)]);
    written.programs[0] = Program::of(vec![Step::Work(500.0), Step::Write(0)]);
    let out = run(&written, 1, 1e5, 1e6);
    assert!(out.transfers as f64 > 0.5 * out.rounds.iter().sum::<u64>() as f64, "false sharing: {out:?}");
}

/// M/M/1 with a finite population (the machine repair model) has a closed form; holds here are constant, so the lock is
/// less of a queue than that: between the form's bounds.
#[test]
fn a_lock_is_a_queue() {
    let steps = vec![Step::Work(1_000.0), Step::Lock { group: 0, site: 0, hold_ns: 500.0 }];
    for queue in [Queue::Fifo, Queue::Barging] {
        let mut one = scenario(1, steps.clone());
        one.queue = queue;
        let out = run(&one, 1, 0.0, 1e7);
        assert_eq!((out.sites[0].contended, out.sites[0].wait_ns), (0, 0.0));
        near(out.rounds_per_s(), 1e9 / 1_501.0, 0.02);
        let mut many = scenario(20, steps.clone());
        many.queue = queue;
        let out = run(&many, 1, 1e5, 1e7);
        // Saturated: the lock and its line decide.
        near(out.rounds_per_s(), 1e9 / 600.0, 0.02);
        // Little's law: of 20 cores, 1000/600 work and one holds.
        near(out.sites[0].wait_avg_ns(), (20.0 - 1.0 - 1_000.0 / 600.0) * 600.0, 0.03);
        assert!(out.sites[0].contended_share() > 0.99);
    }
}

#[test]
fn order_is_kept_in_one_queue_and_not_in_the_other() {
    let steps = vec![Step::Work(100.0), Step::Lock { group: 0, site: 0, hold_ns: 500.0 }];
    let longest = |queue| {
        let mut many = scenario(16, steps.clone());
        many.queue = queue;
        run(&many, 1, 1e5, 1e7).sites[0].wait_max_ns
    };
    assert!(longest(Queue::Fifo) <= 15.0 * 600.0 + 1.0);
    assert!(longest(Queue::Barging) > 2.0 * longest(Queue::Fifo));
}

/// With N cores that do nothing else and turns in no order, a core's next turn comes after one other at least and N - 1 in the
/// mean, and a share q of turns changes the value: p = (1 - q) / (1 + (N - 2) q). Of the turns of a pair 1 / p are attempts
/// and one gives back, so q = 2p / (1 + p), and (2N - 3) p² + 2p = 1. That takes turns for independent, which they are not
/// quite: hence a quarter.
#[test]
fn a_loop_of_exchanges_fails_as_often_as_arithmetic_says() {
    let loop_and_give_back = vec![Step::Loop(0), Step::Write(0)];
    let out = run(&scenario(1, loop_and_give_back.clone()), 1, 0.0, 1e5);
    assert_eq!((out.retries, out.exchanges > 0), (0, true));
    for cores in [8, 32, 112] {
        let n = f64::from(2 * cores - 3);
        let p = ((1.0 + n).sqrt() - 1.0) / n;
        let out = run(&scenario(cores as usize, loop_and_give_back.clone()), 1, 1e5, 3e6);
        near(out.retries_per_op(), 1.0 / p - 1.0, 0.25);
    }
    let mut gripped = scenario(112, loop_and_give_back);
    gripped.costs.grip = 1.0;
    assert!(run(&gripped, 1, 1e5, 1e6).retries_per_op() <= 1.0, "a core that keeps the line fails once");
}

#[test]
fn work_that_is_given_is_taken_once() {
    let mut two = scenario(2, Vec::new());
    two.programs = vec![
        Program::of(vec![Step::Work(1_000.0), Step::Give(0)]),
        Program::of(vec![Step::Take(0), Step::Work(100.0)]),
    ];
    let out = run(&two, 1, 0.0, 1e7);
    assert!(out.rounds[0] - out.rounds[1] <= 1, "{:?}", out.rounds);
}

#[test]
fn a_seed_gives_one_outcome() {
    let steps = vec![Step::Work(50.0), Step::Loop(0), Step::Lock { group: 0, site: 0, hold_ns: 20.0 }];
    let one = run(&scenario(9, steps.clone()), 7, 1e4, 1e5);
    assert_eq!(one, run(&scenario(9, steps.clone()), 7, 1e4, 1e5));
    assert_ne!(one, run(&scenario(9, steps), 8, 1e4, 1e5));
}

#[test]
fn what_may_happen_happens_as_often_as_it_says() {
    let steps = vec![Step::Work(100.0), Step::Maybe(0.25), Step::Lock { group: 0, site: 0, hold_ns: 1.0 }];
    let out = run(&scenario(4, steps), 1, 0.0, 1e6);
    near(out.sites[0].count as f64 / out.rounds.iter().sum::<u64>() as f64, 0.25, 0.05);
}
