//! Owns a run by its seed alone. A panic inside a run is a finding like any other.

use crate::host::SharingName;
use crate::pattern::Pattern;
use crate::scenario::Scenario;
use crate::stage::Finding;
use crate::world::{Verdict, World};
use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};
use std::rc::Rc;

thread_local! {
    static PATTERN: Rc<Pattern> = Rc::new(Pattern::default());
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs the world of a seed.
pub fn run(seed: u64, trace: bool) -> Verdict {
    run_shared(seed, SharingName::LANE, trace)
}

/// The same, with lanes that share their connections in another way. The world is the same, what happens in it may be another:
/// whoever waits for less acts earlier.
pub fn run_shared(seed: u64, sharing: SharingName, trace: bool) -> Verdict {
    run_scenario(Scenario::from_seed(seed), sharing, trace)
}

/// Runs a scenario.
pub fn run_scenario(scenario: Scenario, sharing: SharingName, trace: bool) -> Verdict {
    let pattern = PATTERN.with(Rc::clone);
    let (seed, kind, talks) = (scenario.seed, scenario.kind, scenario.talks.len());
    let run = panic::catch_unwind(AssertUnwindSafe(|| World::new(scenario, sharing, pattern, trace).run()));
    run.unwrap_or_else(|_| {
        let what = PANIC.with(|p| p.borrow_mut().take()).unwrap_or_else(|| "a panic".into());
        let finding = Some(Finding { check: "panic", what, at_us: 0 });
        Verdict {
            seed,
            kind,
            finding,
            virtual_us: 0,
            frames: 0,
            talks,
            retransmitted: 0,
            cookies: 0,
            answered: 0,
            turned_away: 0,
            trace: Vec::new(),
        }
    })
}

/// Keeps panics inside runs from being printed: their message becomes the finding.
pub fn catch_panics() {
    panic::set_hook(Box::new(|info| PANIC.with(|p| *p.borrow_mut() = Some(info.to_string().replace('\n', " ")))));
}
