//! Some hundred worlds. `make storm` runs ten thousand.

use laneway_sim::storm;

#[test]
fn some_hundred_worlds() {
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                for seed in (thread..300).step_by(threads as usize) {
                    let verdict = storm::run(seed, false);
                    assert!(verdict.finding.is_none(), "storm --seed {seed}: {:?}", verdict.finding);
                }
            });
        }
    });
}

#[test]
fn a_seed_is_a_run() {
    for seed in [1, 7, 40, 200] {
        let [a, b] = [storm::run(seed, true), storm::run(seed, true)];
        assert!(!a.trace.is_empty());
        assert_eq!(a.trace, b.trace, "seed {seed} is not the same run twice");
        assert_eq!((a.virtual_us, a.frames), (b.virtual_us, b.frames));
    }
}
