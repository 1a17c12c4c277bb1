//! `laneway-lab s3` in small: every variant connects at every occupancy, and each costs what it is known for. Seconds, and no
//! privilege: where the kernel cannot be measured, that is said and the rest goes on.

use serde_json::Value;
use std::process::Command;

fn lab(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_laneway-lab")).args(arguments).output().expect("it can be run");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn rows(arguments: &[&str]) -> Vec<Value> {
    let (code, out, err) = lab(arguments);
    assert_eq!(code, Some(0), "{arguments:?}: {err}");
    let all: Value = serde_json::from_str(&out).expect("JSON");
    let rows = all["rows"].as_array().expect("rows").clone();
    for row in &rows {
        for key in ["variant", "metric", "value", "unit", "source"] {
            assert!(!row[key].is_null(), "{key} is missing in {row}");
        }
    }
    rows
}

/// The value of a metric at a place on an axis.
fn value(rows: &[Value], variant: &str, metric: &str, axis: &str, at: u64) -> f64 {
    let is = |row: &&Value| row["variant"] == variant && row["metric"] == metric && row[axis] == at;
    let row = rows.iter().find(is).unwrap_or_else(|| panic!("no {metric} of {variant} at {axis} {at}"));
    row["value"].as_f64().expect("a number")
}

#[test]
fn every_variant_connects_at_every_occupancy_and_costs_what_it_is_known_for() {
    let page = std::env::temp_dir().join(format!("laneway-s3-{}.html", std::process::id()));
    let place = page.to_string_lossy().into_owned();
    let variants = ["lane", "lane-aa", "b0", "b1", "b2", "b3"];
    let mut arguments = vec!["s3", "--quick", "--destinations", "1", "--json", "--report", &place];
    arguments.extend(["--variant", "lane,lane-aa,b0,b1,b2,b3"]);
    let rows = rows(&arguments);
    let at = |variant: &str, metric: &str, percent: u64| value(&rows, variant, metric, "occupancy", percent);
    for percent in [0, 10, 25, 50, 75, 90, 95, 99, 100] {
        for lane in ["lane", "lane-aa"] {
            assert_eq!(at(lane, "locks_per_connect", percent), 0.0);
            assert_eq!(at(lane, "shared_lines_written_per_connect", percent), 0.0);
            assert!(at(lane, "probes_max", percent) <= 2.0 && at(lane, "bitmap_words_max", percent) <= 4.0);
            assert!(at(lane, "hashes_per_connect", percent) <= 1.0);
        }
        for seed in ["b0", "b1", "b2"] {
            assert_eq!(at(seed, "locks_per_connect", percent), at(seed, "probes_per_connect", percent), "{seed}");
        }
        assert!(at("b3", "locks_per_connect", percent) <= 1.0);
        for variant in variants {
            assert!(at(variant, "p50_us", percent) > 0.0 && at(variant, "calls_per_s", percent) > 0.0);
            assert!(at(variant, "p99_us", percent) >= at(variant, "p50_us", percent));
        }
    }
    for (variant, times) in [("b0", 20.0), ("b1", 20.0), ("b2", 100.0), ("b3", 100.0)] {
        let cliff = at(variant, "probes_per_connect", 99) / at(variant, "probes_per_connect", 10);
        assert!(cliff > times, "{variant} looks for a port {cliff} times as long when they run out");
    }
    let html = std::fs::read_to_string(&page).expect("the page was written");
    let _ = std::fs::remove_file(&page);
    assert_eq!((html.matches("<svg").count(), html.matches("<pre>laneway-lab s3").count()), (5, 5));
}

#[test]
fn the_kernel_is_measured_or_it_is_said_why_not() {
    let arguments =
        ["s3", "--quick", "--variant", "kernel", "--destinations", "1", "--occupancy", "0,90,100", "--json"];
    let (code, out, err) = lab(&arguments);
    assert_eq!(code, Some(0), "{err}");
    let all: Value = serde_json::from_str(&out).expect("JSON");
    let measured = all["rows"].as_array().expect("rows");
    if err.contains("the kernel is left out") {
        assert!(measured.is_empty() && err.contains("namespace"), "{err}");
    } else {
        for percent in [0, 90, 100] {
            assert!(value(measured, "kernel", "p50_us", "occupancy", percent) > 0.0);
        }
    }
}

#[test]
fn a_server_that_is_hammered_accepts_the_same_every_second() {
    let rows = rows(&["s3", "--series", "--seconds", "2", "--range", "2048", "--variant", "lane", "--json"]);
    for second in [0, 1] {
        // 0.8 × 2048 a second; on a busy machine some of them in the next one.
        let accepts = value(&rows, "lane", "TCPaccept", "second", second);
        assert!((800.0..=2_500.0).contains(&accepts), "second {second}: {accepts}");
        let tried = value(&rows, "lane", "SCAccept", "second", second);
        assert_eq!(tried - value(&rows, "lane", "SCAF", "second", second), accepts);
        assert_eq!(value(&rows, "lane", "ListenDrop", "second", second), 0.0);
    }
    assert_eq!(value(&rows, "seed", "TCPaccept", "second", 1), 27_232.0);
    let spread = |variant: &str, metric: &str| {
        rows.iter().any(|row| row["variant"] == variant && row["metric"] == metric && row["of"].is_string())
    };
    assert!(spread("null", "cv") && spread("lane", "cv") && spread("lane", "max_over_min") && spread("seed", "cv"));
}

#[test]
fn false_sharing_is_measured_and_the_model_is_called_one() {
    let rows = rows(&["s3", "--false-sharing", "--seconds", "0.05", "--json"]);
    for variant in ["b0", "b1"] {
        assert!(value(&rows, variant, "ns_per_lock", "threads", 1) > 0.0);
    }
    let cores = rows.iter().filter(|row| row["cores"] == 24);
    assert!(cores.clone().count() == 9 && cores.clone().all(|row| row["source"] == "model"));
}

#[test]
fn ports_are_chosen_by_name_in_benchmarks_too() {
    for ports in ["lane", "b0", "b1", "b2", "b3"] {
        let (code, out, err) =
            lab(&["bench", "crr", "--conns", "10", "--ops", "300", "--warm-up", "100", "--ports", ports]);
        assert_eq!(code, Some(0), "{ports}: {err}");
        let ops = out.lines().find_map(|line| line.strip_prefix("ops ")?.parse::<u64>().ok());
        assert!(ops.is_some_and(|ops| ops >= 300), "{ports}: {out}");
    }
}

#[test]
fn misuse_is_answered_with_what_would_be_right() {
    for (arguments, says) in [
        (&["s3", "--variant", "b9"][..], "take one of lane"),
        (&["s3", "--range", "5"], "64 to 32768"),
        (&["s3", "--occupancy", "120"], "0 to 100"),
        (&["s3", "--seconds", "0", "--series"], "from 0.001 to 3600"),
        (&["s3", "--series", "--variant", "kernel"], "take one of lane"),
        (&["s3", "--false-sharing", "--seconds", "0.01", "--variant", "lane"], "leave out --variant"),
        (
            &["s3", "--report", "/no/such/place/report.html", "--false-sharing", "--seconds", "0.01"],
            "cannot write there",
        ),
        (&["bench", "crr", "--ports", "b7"], "b0"),
    ] {
        let (code, _, err) = lab(arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {err}");
        assert!(err.contains(says), "{arguments:?}: {err}");
    }
}
