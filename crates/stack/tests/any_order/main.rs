//! Two hosts whose threads do whatever threads may do, in any order: they listen and stop, connect, call it off, accept, write, read, shut, leave,
//! bind and unbind, while buckets move from lane to lane, and memory and rings are small. What is done is chance, out of a seed, and stepped in
//! one thread. The network loses nothing, so at the end it can be said what must be: all that was said was heard, nobody lost a
//! connection without a cause, whoever waited was told, and when all have left nothing is left of them.
//!
//! A seed that fails is named, with how to run it again:
//!
//! ```text
//! LANEWAY_SEEDS=4711..4712 cargo test -p laneway-stack --test any_order
//! ```

mod acts;
mod dice;
mod ledger;
mod left;
mod party;
mod plan;
mod side;
mod tally;
mod world;

use plan::Plan;
use std::ops::Range;
use tally::Tally;
use world::World;

/// Seeds where nobody asks for others.
const SEEDS: Range<u64> = 0..300;
/// So many do everything that there is to be done.
const MANY: u64 = 100;

fn seeds() -> Range<u64> {
    let Ok(asked) = std::env::var("LANEWAY_SEEDS") else { return SEEDS };
    let range = asked.split_once("..").and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    range.unwrap_or_else(|| panic!("LANEWAY_SEEDS is {asked}, and not as 0..300 is"))
}

fn run(seed: u64) -> Tally {
    let mut world = World::new(Plan::from_seed(seed));
    world.act();
    world.settle();
    world.judge();
    world.leave();
    world.finish()
}

#[test]
fn all_that_was_said_is_heard_and_nothing_is_left() {
    let (mut all, mut failed) = (Tally::default(), Vec::new());
    for seed in seeds() {
        match std::panic::catch_unwind(|| run(seed)) {
            Ok(tally) => all.add(&tally),
            Err(_) => {
                eprintln!("seed {seed}: LANEWAY_SEEDS={seed}..{} runs it again\n", seed + 1);
                failed.push(seed);
            }
        }
    }
    println!("{all:?}");
    assert!(failed.is_empty(), "of the seeds {:?} these failed: {failed:?}", seeds());
    if seeds().end.saturating_sub(seeds().start) >= MANY {
        assert_eq!(all.never_seen(), [""; 0], "a run in which that does not happen says nothing of it: {all:?}");
    }
}

#[test]
fn a_seed_is_one_run() {
    for seed in [3, 4] {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}
