//! Some hundred worlds. `make storm` runs ten thousand.

use laneway_sim::{SharingName, storm};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[test]
fn some_hundred_worlds() {
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let [cookies, answered, turned_away] = &[const { AtomicU64::new(0) }; 3];
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                for seed in (thread..300).step_by(threads as usize) {
                    let verdict = storm::run(seed, false);
                    assert!(verdict.finding.is_none(), "storm --seed {seed}: {:?}", verdict.finding);
                    cookies.fetch_add(verdict.cookies, Relaxed);
                    answered.fetch_add(verdict.answered, Relaxed);
                    turned_away.fetch_add(verdict.turned_away, Relaxed);
                }
            });
        }
    });
    // A flood may excuse that a handshake fails, and must not excuse that all do.
    assert!(cookies.load(Relaxed) > 20, "{cookies:?} cookies came back");
    assert!(answered.load(Relaxed) > 1_000, "devices have answered {answered:?} SYNs");
    assert!(turned_away.load(Relaxed) > 1_000, "{turned_away:?} strangers were turned away");
}

/// A few worlds for each way of sharing; in a debug build the order of the locks is checked all the while.
/// `storm --sharing NAME` runs as many as one likes.
#[test]
fn some_worlds_of_every_sharing() {
    for sharing in SharingName::all() {
        for seed in 0..12 {
            let verdict = storm::run_shared(seed, sharing, false);
            assert!(
                verdict.finding.is_none(),
                "storm --seed {seed} --sharing {}: {:?}",
                sharing.name(),
                verdict.finding
            );
            assert!(verdict.frames > 0);
        }
    }
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

/// Who looks at no world finds nothing in it, and must not be told that all is well.
#[test]
fn a_time_that_is_none_is_refused() {
    for arguments in
        [["--minutes", "0"], ["--minutes", "-1"], ["--minutes", "nan"], ["--minutes", "1e300"], ["--threads", "0"]]
    {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_storm"));
        let output = command.args(["--seeds", "0..1"]).args(arguments).output().expect("it can be run");
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {err}");
        assert!(err.contains(arguments[0]), "{arguments:?}: {err}");
    }
}
