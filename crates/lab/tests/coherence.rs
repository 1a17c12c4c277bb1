//! What `laneway-lab coherence` has counted, by itself: the work is done and ends, the locks are those that each variant is known
//! for. The counting from outside needs valgrind and minutes: `make coherence`.

use std::process::Command;

fn lab(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_laneway-lab")).args(arguments).output().expect("it can be run");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// What was said: operations, and locks by class.
fn part(arguments: &[&str]) -> (u64, Vec<(String, u64)>) {
    let (code, out, err) = lab(&[&["coherence-part"], arguments, &["--ops", "300", "--warm-up", "300"]].concat());
    assert_eq!(code, Some(0), "{arguments:?}: {err}");
    let number = |words: &mut std::str::SplitWhitespace<'_>| words.next().expect("a number").parse().expect("a number");
    let (mut ops, mut locks) = (0, Vec::new());
    for line in out.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("ops") => ops = number(&mut words),
            Some("lock") => locks.push((words.next().expect("a class").to_owned(), number(&mut words))),
            _ => panic!("{line}"),
        }
    }
    (ops, locks)
}

#[test]
fn the_counted_part_does_its_work_and_ends() {
    for arguments in [["crr", "lane"], ["rr", "lane"], ["threads", "lane"], ["crr", "planted-heap"]] {
        let (ops, locks) = part(&arguments);
        assert!((300..=400).contains(&ops), "{arguments:?}: {ops}");
        assert_eq!(locks, [], "{arguments:?}");
    }
}

#[test]
fn locks_are_counted_by_class() {
    let taken = |variant: &str, class: &str| {
        let (ops, locks) = part(&["crr", variant, "--watched"]);
        let of_class = locks.iter().filter(|(name, _)| name == class).map(|(_, count)| count);
        of_class.sum::<u64>() as f64 / ops as f64
    };
    let global = taken("global", "rw:info");
    assert!((5.0..=9.5).contains(&global), "global takes INFO {global} times");
    assert_eq!(taken("epoch", "rw:info"), 0.0);
    assert_eq!(part(&["crr", "lane", "--watched"]).1, [], "the product takes none");
}

#[test]
fn misuse_is_answered_with_what_would_be_right() {
    for arguments in [&["coherence", "--variant", "v7"][..], &["coherence", "--seconds", "1"]] {
        let (code, _, err) = lab(arguments);
        assert_eq!(code, Some(2), "{err}");
    }
    let (code, _, err) = lab(&["coherence-part", "threads", "epoch", "--ops", "1", "--warm-up", "1"]);
    assert!(code == Some(2) && err.contains("take lane"), "{err}");
}
