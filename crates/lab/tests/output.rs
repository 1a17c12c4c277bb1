//! Who reads no more of what `laneway-lab` prints, as `| head`, makes it fail no more than it makes `laneway`.

use std::process::{Command, Stdio};

#[test]
fn who_has_closed_stdout_is_no_failure() {
    for arguments in [
        &["bench", "rr", "--conns", "1", "--rounds", "1", "--seconds", "0.02"][..],
        &["bench", "rr", "--conns", "1", "--rounds", "1", "--seconds", "0.02", "--json"],
        &["s4", "--quick", "--seconds", "0.02"],
    ] {
        let closed = || {
            let (reader, writer) = std::io::pipe().expect("a pipe");
            drop(reader);
            Stdio::from(writer)
        };
        let mut command = Command::new(env!("CARGO_BIN_EXE_laneway-lab"));
        let status = command.args(arguments).stdout(closed()).stderr(closed()).status().expect("it can be run");
        assert_eq!(status.code(), Some(0), "{arguments:?}");
    }
}

/// Where there is one core, both threads of the kernel's side share it.
#[test]
fn a_rate_per_core_is_by_the_cores_that_there_are() {
    let mut one = rustix::thread::CpuSet::new();
    one.set(0);
    rustix::thread::sched_setaffinity(None, &one).expect("there is a first core");
    let arguments = ["bench", "rr", "--conns", "1", "--rounds", "1", "--seconds", "0.05", "--peer", "linux", "--json"];
    let output = Command::new(env!("CARGO_BIN_EXE_laneway-lab")).args(arguments).output().expect("it can be run");
    let all: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let linux = all["rows"].as_array().expect("rows").iter().find(|row| row["who"] == "linux").expect("the kernel");
    assert_eq!(linux["ops_per_s_per_core"], linux["ops_per_s"]);
}

/// A rate of connections counts only beside the TIME_WAIT records that went before their time.
#[test]
fn early_evictions_are_said_of_sockets_too() {
    let few = ["--conns", "2", "--rounds", "1", "--seconds", "0.05", "--ports-per-address", "512"];
    let arguments = [&["bench", "crr", "--api", "thread"], &few[..]].concat();
    let lab = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_laneway-lab"));
        let output = command.args(&arguments).args(more).output().expect("it can be run");
        String::from_utf8(output.stdout).expect("text")
    };
    let all: serde_json::Value = serde_json::from_str(&lab(&["--json"])).expect("JSON");
    for row in all["rows"].as_array().expect("rows").iter().filter(|row| row["api"] != "on-lane") {
        assert_eq!(row["tw_evicted"], 0, "{row}");
    }
    let table = lab(&[]);
    let of_threads: Vec<&str> = table.lines().filter(|line| line.contains("application threads, half")).collect();
    assert!(
        of_threads.len() == 2 && of_threads.iter().all(|line| line.contains(" 0 TIME_WAIT records evicted early")),
        "{table}"
    );
}

/// What takes minutes is not begun for a page that has no place, and what was measured is not lost with one.
#[test]
fn a_page_without_a_place_is_refused_before_anything_is_measured() {
    let lab = |report: &str| {
        let arguments = ["s4", "--quick", "--seconds", "0.02", "--report", report];
        let mut command = Command::new(env!("CARGO_BIN_EXE_laneway-lab"));
        let output = command.args(arguments).output().expect("it can be run");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, out, err) = lab("/no/such/place/s4.html");
    assert_eq!((code, &*out), (Some(2), ""), "{err}");
    assert!(err.contains("/no/such/place/s4.html") && err.contains("another place"), "{err}");
    // Elsewhere that is standard output, which says other things here.
    let (code, out, err) = lab("-");
    assert_eq!((code, &*out), (Some(2), ""), "{err}");
    assert!(err.contains("./-"), "{err}");
    // It can be opened, and not be written.
    let (code, out, err) = lab("/dev/full");
    assert_eq!(code, Some(1), "{err}");
    assert!(out.contains("t0") && err.contains("/dev/full"), "{out}{err}");
}
