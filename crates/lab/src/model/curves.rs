//! Owns the curves: operations a second from one core to 112, by variant, and how often a loop of compare-and-exchange fails.

use super::counts::{Counts, Touch};
use super::engine::{Costs, Outcome, Program, Queue, Scenario, Step, run};

/// The seed's machine of the route references.
pub const SEED_CORES: usize = 112;
/// What it counted there, failures for each reference taken.
pub const SEED_RETRIES: f64 = 8.0;

/// What one point of a curve says.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Point {
    /// Operations a second of all cores.
    pub ops_per_s: f64,
    /// Acquisitions that found the lock taken.
    pub contended_share: f64,
    /// Microseconds that an operation waits for locks.
    pub wait_us_per_op: f64,
    /// Lines that come from another core.
    pub transfers_per_op: f64,
}

/// So many cores doing this and nothing else.
pub fn point(counts: &Counts, cores: usize, costs: Costs) -> Point {
    let (steps, lines, locks) = counts.steps();
    let scenario = Scenario {
        costs,
        queue: Queue::Fifo,
        lines,
        sites: locks.len(),
        locks,
        heaps: 0,
        programs: vec![Program::of(steps); cores],
    };
    // As many operations of one core whatever their length, and enough of them where many cores wait for one another.
    let ns = (counts.work_ns + counts.held_ns()) * (8_000.0 / cores as f64).max(400.0);
    let out = run(&scenario, 97, ns / 8.0, ns);
    let ops = out.rounds.iter().sum::<u64>().max(1) as f64;
    let all = |of: fn(&super::engine::SiteStats) -> f64| out.sites.iter().map(of).sum::<f64>();
    let taken = all(|site| site.count as f64);
    Point {
        ops_per_s: out.rounds_per_s(),
        contended_share: if taken > 0.0 { all(|site| site.contended as f64) / taken } else { 0.0 },
        wait_us_per_op: all(|site| site.wait_ns) / ops / 1_000.0,
        transfers_per_op: out.transfers as f64 / ops,
    }
}

/// Cores that take and give back one reference and do nothing else: by a loop, or by an addition.
pub fn references_only(cores: usize, costs: Costs, touch: Touch) -> Outcome {
    let take = if touch == Touch::Loop { Step::Loop(0) } else { Step::Write(0) };
    let scenario = Scenario {
        costs,
        queue: Queue::Fifo,
        lines: vec![1],
        locks: Vec::new(),
        sites: 0,
        heaps: 0,
        programs: vec![Program::of(vec![take, Step::Write(0)]); cores],
    };
    // Some dozens of visits of each core to the line.
    let ns = cores as f64 * (costs.transfer_ns + costs.hit_ns).max(1.0) * 300.0;
    run(&scenario, 112, ns / 10.0, ns)
}

/// Failures per reference on the seed's cores.
pub fn retries(costs: Costs) -> f64 {
    references_only(SEED_CORES, costs, Touch::Loop).retries_per_op()
}

/// Where a falling function passes what the seed counted, between two bounds; `None` if it does not.
fn where_it_passes(mut low: f64, mut high: f64, retries: impl Fn(f64) -> f64) -> Option<f64> {
    if retries(low) < SEED_RETRIES || retries(high) > SEED_RETRIES {
        return None;
    }
    for _ in 0..12 {
        let middle = (low + high) / 2.0;
        if retries(middle) > SEED_RETRIES { low = middle } else { high = middle }
    }
    Some((low + high) / 2.0)
}

/// The time of a transfer at which the model's cores would fail as often as the seed's.
pub fn transfer_for_the_seed(costs: Costs) -> Option<f64> {
    // More time for a transfer, more who wait meanwhile: it rises, so it is looked for from above.
    where_it_passes(-200.0, 0.0, |minus| retries(Costs { transfer_ns: -minus, ..costs })).map(|minus| -minus)
}

/// How often the core that has the line would have to get its second try in.
pub fn grip_for_the_seed(costs: Costs) -> Option<f64> {
    where_it_passes(0.0, 1.0, |grip| retries(Costs { grip, ..costs }))
}

#[cfg(test)]
mod tests {
    use super::super::counts::{references, sharing};
    use super::*;

    const COSTS: Costs = Costs { hit_ns: 5.0, transfer_ns: 100.0, grip: 0.0 };

    fn rate(all: &[Counts], variant: &str, cores: usize) -> f64 {
        point(all.iter().find(|counts| counts.variant == variant).expect("a variant"), cores, COSTS).ops_per_s
    }

    #[test]
    fn one_lock_stops_at_its_own_rate_and_lanes_do_not_stop() {
        let all = sharing();
        let one = rate(&all, "global", 1);
        assert!((one / 52_000.0 - 1.0).abs() < 0.05, "{one}");
        // The seed had 56,000 on four cores.
        let four = rate(&all, "global", 4);
        assert!(four > one && four < 1.15 * one, "{one} {four}");
        assert!(rate(&all, "global", 64) < 1.15 * one);
        assert!(rate(&all, "lane", 16) > 0.95 * 16.0 * rate(&all, "lane", 1));
        let sixteen: Vec<f64> =
            ["global", "accept", "timewait", "decomposed", "epoch", "lane"].map(|name| rate(&all, name, 16)).to_vec();
        assert!(
            sixteen.windows(2).all(|pair| pair[1] > 0.97 * pair[0]),
            "each step helps, or does no harm: {sixteen:?}"
        );
    }

    #[test]
    fn references_get_in_each_others_way_and_a_lane_has_none() {
        let all = references();
        let [r0, r1, r2, r3, lane] = ["r0", "r1", "r2", "r3", "lane"].map(|name| rate(&all, name, 64));
        assert!(r3 > 1.5 * r0 && r3 >= r2 && r3 >= r1 && r1 >= 0.97 * r0, "{r0} {r1} {r2} {r3}");
        assert!(lane > 0.95 * 64.0 * rate(&all, "lane", 1) && lane > 3.0 * r3);
    }

    #[test]
    fn the_search_finds_what_is_there_and_nothing_where_nothing_is() {
        let line = |slope: f64| move |x: f64| 20.0 - slope * x;
        let found = where_it_passes(0.0, 10.0, line(2.0)).expect("at 6");
        assert!((found - 6.0).abs() < 0.01);
        assert_eq!(where_it_passes(0.0, 10.0, line(0.1)), None);
        let grip = grip_for_the_seed(COSTS).expect("between never and always");
        let there = retries(Costs { grip, ..COSTS });
        assert!((there / SEED_RETRIES - 1.0).abs() < 0.3, "{grip}: {there}");
    }
}
