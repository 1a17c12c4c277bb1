//! `laneway-lab s1` in small: every variant makes connections, with the locks that it is known for. Seconds, and no privilege.
//! In a debug build the order of the locks is checked all the while.

use serde_json::Value;
use std::process::Command;

fn lab(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_laneway-lab")).args(arguments).output().expect("it can be run");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn every_variant_has_the_locks_that_it_is_known_for() {
    let page = std::env::temp_dir().join(format!("laneway-s1-{}.html", std::process::id()));
    let place = page.to_string_lossy().into_owned();
    let (code, out, err) = lab(&["s1", "--quick", "--json", "--report", &place]);
    assert_eq!(code, Some(0), "{err}");
    let all: Value = serde_json::from_str(&out).expect("JSON");
    let rows = all["rows"].as_array().expect("rows");
    let two = rows.iter().any(|row| row["lanes"] == 2);
    let value = |variant: &str, metric: &str, axes: &[(&str, Value)]| {
        let is = |row: &&Value| {
            row["variant"] == variant && row["metric"] == metric && axes.iter().all(|(axis, at)| row[*axis] == *at)
        };
        let row = rows.iter().find(is).unwrap_or_else(|| panic!("no {metric} of {variant} at {axes:?}"));
        row["value"].as_f64().expect("a number")
    };
    for lanes in if two { vec![1, 2] } else { vec![1] } {
        let lanes = ("lanes", Value::from(lanes));
        let taken = |variant: &str, lock: &str| {
            value(variant, "lock_acquisitions_per_conn", &[lanes.clone(), ("lock", lock.into())])
        };
        // A round may begin and end in the middle of connections, few on a busy machine, and timers fire.
        let (global, accept) = (taken("global", "rw:info"), taken("accept", "rw:info"));
        assert!((5.0..=9.5).contains(&global), "global takes INFO {global} times");
        assert!((0.2..=2.5).contains(&(global - accept)), "accept saves one of {global}, and takes {accept}");
        assert!(taken("timewait", "timewait") > 0.5 && taken("global", "timewait") == 0.0);
        assert!(taken("decomposed", "rw:info") > 3.0 && taken("decomposed", "list") > 1.0);
        assert!(taken("epoch", "rw:info") == 0.0 && taken("epoch", "pcb") > 4.0);
        for lock in ["rw:info", "pcb", "timewait", "list"] {
            assert_eq!(taken("lane", lock), 0.0, "the product takes {lock}");
        }
        for variant in ["global", "accept", "timewait", "decomposed", "epoch", "lane"] {
            assert!(value(variant, "conns_per_s", std::slice::from_ref(&lanes)) > 100.0);
            for lane in 0..lanes.1.as_u64().expect("a number") {
                let at = [lanes.clone(), ("lane", Value::from(lane))];
                let busy = value(variant, "busy_polls_share", &at);
                assert!(busy > 0.0 && busy <= 1.0, "{variant}: lane {lane} is busy in {busy} of its polls");
            }
        }
        for lane in 0..lanes.1.as_u64().expect("a number") {
            let at = [lanes.clone(), ("lane", Value::from(lane))];
            let met = (value("lane", "smtx_per_s", &at), value("lane", "cas_retries_per_s", &at));
            assert_eq!(met, (0.0, 0.0), "a lane of the product waits for nobody");
        }
        assert_eq!(value("lane", "wait_us_per_conn", std::slice::from_ref(&lanes)), 0.0);
        // A figure without its spread, and a comparison without a twin, are not believed.
        for variant in ["global", "lane", "lane-aa"] {
            for metric in ["conns_per_s", "cpu_us_per_conn", "wait_us_per_conn"] {
                let at = |end: &str| value(variant, &format!("{metric}{end}"), std::slice::from_ref(&lanes));
                assert!(at("_min") <= at("") && at("") <= at("_max"), "{variant} {metric}");
            }
        }
    }
    for variant in ["global", "accept", "timewait", "decomposed", "epoch", "lane"] {
        let wave = [("time_wait", Value::from(2_000))];
        let (most, all) = (value(variant, "reaped_per_poll_max", &wave), value(variant, "reaped", &wave));
        assert!(all >= 2_000.0, "{variant} leaves records: {all}");
        let scans = ["global", "accept"].contains(&variant);
        assert!(if scans { most >= 2_000.0 } else { most <= 64.0 }, "{variant} reaps {most} in one poll");
        assert_eq!(value(variant, "reaped", &[("time_wait", Value::from(0))]), 0.0);
        assert!(value(variant, "conn_us_p999", &wave) > 1.0, "{variant}: connections were timed");
        if !scans {
            assert_eq!(value(variant, "holds", &[("bar", "at most 64 records reaped a poll".into())]), 1.0);
        }
    }
    let html = std::fs::read_to_string(&page).expect("a page");
    let _ = std::fs::remove_file(&page);
    assert!(html.matches("</svg>").count() == 3 && html.contains("wait_total"), "three pictures, and the nine columns");
}

#[test]
fn the_page_says_of_how_many_lanes_it_shows_the_rate() {
    let page = std::env::temp_dir().join(format!("laneway-s1-one-{}.html", std::process::id()));
    let place = page.to_string_lossy().into_owned();
    let (code, _, err) =
        lab(&["s1", "--quick", "--seconds", "0.05", "--lanes", "1", "--variant", "epoch", "--report", &place]);
    assert_eq!(code, Some(0), "{err}");
    let html = std::fs::read_to_string(&page).expect("a page");
    let _ = std::fs::remove_file(&page);
    assert!(html.contains("With one lane on one core.") && !html.contains("With two lanes"), "{html}");
}

/// Who asks for one lane is not judged by two.
#[test]
fn two_lanes_are_measured_where_they_are_asked_for() {
    let (code, out, err) = lab(&["s1", "--quick", "--seconds", "0.05", "--lanes", "1", "--variant", "lane", "--json"]);
    assert_eq!(code, Some(0), "{err}");
    let all: Value = serde_json::from_str(&out).expect("JSON");
    let rows = all["rows"].as_array().expect("rows");
    let of_two = rows.iter().find(|row| row["lanes"] == 2 || row["cores"].is_string());
    assert!(rows.len() > 10 && of_two.is_none(), "{of_two:?}");
}

#[test]
fn misuse_is_answered_with_what_would_be_right() {
    let (code, _, err) = lab(&["s1", "--variant", "v7"]);
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("take one of global, accept"), "{err}");
    let (code, _, err) = lab(&["s1", "--lanes", "3"]);
    assert_eq!(code, Some(2), "{err}");
}
