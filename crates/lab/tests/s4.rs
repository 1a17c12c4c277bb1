//! `laneway-lab s4` in small: every variant gets text through, and every row says what it is.

use std::process::Command;

fn lab(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_laneway-lab")).args(arguments).output().expect("it can be run");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn every_variant_gets_text_through() {
    let (code, out, err) = lab(&["s4", "--quick", "--seconds", "0.1", "--json"]);
    assert_eq!(code, Some(0), "{err}");
    let all: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    let value = |variant: &str, metric: &str| {
        let rows = all["rows"].as_array().expect("rows").iter();
        let row = rows.clone().find(|row| row["variant"] == variant && row["metric"] == metric);
        row.unwrap_or_else(|| panic!("no {metric} of {variant}"))["value"].as_f64().expect("a number")
    };
    // What timing decides is not counted: it comes out differently everywhere.
    for row in all["rows"].as_array().expect("rows") {
        let is_counted = row["source"] == "counted";
        assert!(!is_counted || row["metric"] == "line_transfers_per_send", "{row}");
    }
    for variant in ["t0", "t1", "lane", "lane-aa"] {
        assert!(value(variant, "mbit_s") > 1.0 && value(variant, "cpu_us_per_packet") > 0.0);
        let [least, middle, most] = ["_min", "", "_max"].map(|end| value(variant, &format!("mbit_s{end}")));
        assert!(least <= middle && middle <= most, "{variant}: {least} {middle} {most}");
        let met = value(variant, "contended_locks_per_send");
        let has_row = |metric: &str| {
            let rows = all["rows"].as_array().expect("rows");
            rows.iter().any(|row| row["variant"] == variant && row["metric"] == metric)
        };
        if variant.starts_with("lane") {
            assert!(met == 0.0 && !has_row("send_wait_share"), "{variant} met {met} locks that were held");
        } else {
            let share = value(variant, "send_wait_share");
            assert!((0.0..=1.0).contains(&share), "{variant} waits for {share} of its time");
        }
        // Every second segment is acknowledged, and a single one where the far end turned to something else; of those at the
        // edges of so short a time one end may be missing.
        let acks = value(variant, "acks_per_mb");
        assert!((100.0..=1_000.0).contains(&acks), "{variant}: {acks} acknowledgements per megabyte");
    }
}

/// The far end takes what the link does: a segment is as large as `--mtu` says, above a cable's 1500 too.
#[test]
fn packets_are_as_large_as_was_asked_for() {
    for (mtu, text) in [("1280", 1_228.0), ("9000", 8_948.0)] {
        let (code, out, err) =
            lab(&["s4", "--quick", "--seconds", "0.1", "--mtu", mtu, "--variant", "t0,lane", "--json"]);
        assert_eq!(code, Some(0), "{err}");
        let all: serde_json::Value = serde_json::from_str(&out).expect("JSON");
        for variant in ["t0", "lane"] {
            let cost = |metric: &str| {
                let rows = all["rows"].as_array().expect("rows");
                let row = rows.iter().find(|row| row["variant"] == variant && row["metric"] == metric);
                row.expect("a row")["value"].as_f64().expect("a number")
            };
            // Of one round: what is left of the two is octets a packet. The last of a call is smaller.
            let octets = 1_000.0 * cost("cpu_us_per_packet") / cost("cpu_us_per_kb");
            assert!((0.85 * text..=text + 1.0).contains(&octets), "{variant} at {mtu}: {octets} octets a packet");
        }
    }
}

/// With its options: without them another picture comes out.
#[test]
fn a_page_names_the_command_that_repeats_it() {
    let page = std::env::temp_dir().join(format!("laneway-s4-{}.html", std::process::id()));
    let place = page.to_string_lossy().into_owned();
    let arguments = ["s4", "--quick", "--seconds", "0.05", "--variant", "t0,t1", "--mtu", "1280", "--report", &place];
    let (code, _, err) = lab(&arguments);
    assert_eq!(code, Some(0), "{err}");
    let html = std::fs::read_to_string(&page).expect("a page");
    let _ = std::fs::remove_file(&page);
    let command = format!("<pre>laneway-lab {}</pre>", arguments.join(" "));
    assert_eq!(html.matches(&command).count(), 2, "{html}");
}

#[test]
fn misuse_is_answered_with_what_would_be_right() {
    let (code, _, err) = lab(&["s4", "--variant", "t7"]);
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("take one of t0"), "{err}");
    let (code, _, err) = lab(&["s4", "--mtu", "100"]);
    assert_eq!(code, Some(2), "{err}");
}
