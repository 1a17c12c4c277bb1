//! `laneway-lab s2` in small, in memory: every rule carries transactions, and every row says what it is.

use serde_json::Value;
use std::process::Command;

fn lab(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_laneway-lab")).args(arguments).output().expect("it can be run");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn every_rule_has_its_packets_and_every_figure_its_spread_and_its_machine() {
    let small = ["--quick", "--seconds", "0.05", "--conns", "20", "--no-kernel", "--no-instructions"];
    let page = std::env::temp_dir().join(format!("laneway-s2-{}.html", std::process::id()));
    let place = page.to_string_lossy().into_owned();
    let (code, out, err) = lab(&[&["s2", "--json", "--report", &place], &small[..]].concat());
    assert_eq!(code, Some(0), "{err}");
    let all: Value = serde_json::from_str(&out).expect("JSON");
    let rows = all["rows"].as_array().expect("rows");
    let value = |variant: &str, metric: &str| {
        let is = |row: &&Value| row["variant"] == variant && row["metric"] == metric && row["sockets"].is_null();
        let row = rows.iter().find(is).unwrap_or_else(|| panic!("no {metric} of {variant}"));
        row["value"].as_f64().expect("a number")
    };
    for (variant, packets) in [("split", 3.0), ("refined", 2.0), ("lane", 1.0), ("before", 3.0), ("after", 2.0)] {
        assert!((value(variant, "ip_packets_per_txn") - packets).abs() < 0.05, "{variant}");
    }
    for variant in ["split", "v1", "v2", "refined", "lane", "lane-aa"] {
        for metric in ["txns_per_s", "cpu_us_per_txn"] {
            let [least, middle, most] = ["_min", "", "_max"].map(|end| value(variant, &format!("{metric}{end}")));
            assert!(0.0 < least && least <= middle && middle <= most, "{variant} {metric}: {least} {middle} {most}");
        }
    }
    for row in rows {
        let is_seed = row["variant"] == "before" || row["variant"] == "after";
        assert_eq!(row["machine"].is_string(), is_seed, "{row}");
        assert!(!is_seed || row["source"] == "measured", "{row}");
    }
    let html = std::fs::read_to_string(&page).expect("a page");
    let _ = std::fs::remove_file(&page);
    assert!(err.contains("through the kernel microseconds and switches are those of the whole machine"), "{err}");
    let is_bar = |name: &str| html.lines().any(|line| line == name);
    assert!(is_bar("lane, memory") && is_bar("lane, memory, blocking"), "each bar has a name of its own");
}

/// What was measured before is given out, and that something failed is told at the end.
#[test]
fn a_kernel_that_cannot_be_measured_takes_nothing_else_away() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_laneway-lab"));
    // Without `unshare`.
    command.env("PATH", "/nonexistent").args(["s2", "--quick", "--seconds", "0.05", "--conns", "20", "--json"]);
    let output = command.arg("--no-instructions").output().expect("it can be run");
    let err = String::from_utf8_lossy(&output.stderr);
    let is_root = rustix::process::geteuid().is_root();
    assert_eq!(output.status.code(), Some(i32::from(is_root)), "{err}");
    assert!(err.contains(if is_root { "unshare" } else { "need root" }), "{err}");
    let all: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(all["rows"].as_array().is_some_and(|rows| rows.len() > 20));
}
