//! `laneway-lab s5` in small: every variant carries the traffic, writes what it is said to write, and every table is freed.

use std::process::Command;

fn lab(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_laneway-lab")).args(arguments).output().expect("it can be run");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn every_variant_carries_the_traffic_and_routes_may_be_replaced_under_it() {
    let (code, out, err) = lab(&["s5", "--all", "--quick", "--json", "--conns", "8"]);
    assert_eq!(code, Some(0), "{err}");
    let all: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    let rows = all["rows"].as_array().expect("rows");
    let value = |variant: &str, metric: &str| {
        let row = rows.iter().find(|row| row["variant"] == variant && row["metric"] == metric);
        row.unwrap_or_else(|| panic!("no {metric} of {variant}"))["value"].as_f64().expect("a number")
    };
    for variant in ["r0", "r1", "r2", "r3", "arc", "lane", "lane-aa"] {
        assert!(value(variant, "requests_per_s") > 1.0 && value(variant, "ops_per_s") > 1.0, "{variant}");
        for metric in ["requests_per_s", "times_r0", "ops_per_s"] {
            let [least, middle, most] = ["_min", "", "_max"].map(|end| value(variant, &format!("{metric}{end}")));
            assert!(least <= middle && middle <= most, "{variant} {metric}: {least} {middle} {most}");
        }
        let writes = value(variant, "shared_writes_per_packet");
        assert_eq!(writes, if variant.starts_with("lane") { 0.0 } else { 2.0 }, "{variant}");
    }
    for variant in ["r2", "r3", "arc", "lane"] {
        assert_eq!(value(variant, "retries_per_op"), 0.0, "{variant} has no loop");
    }
    assert_eq!(value("seed r3", "memtier_score"), 22_888.0);
    if std::thread::available_parallelism().map_or(1, usize::from) > 1 {
        let replaced = "lane, routes replaced";
        assert!(value(replaced, "tables_retired") > 10.0);
        assert_eq!(value(replaced, "tables_retired"), value(replaced, "tables_freed"));
    }
}

#[test]
fn misuse_is_answered_with_what_would_be_right() {
    for (arguments, says) in [
        (&["s5", "--variant", "r9"][..], "take one of r0"),
        (&["s5", "--ratio", "100"], "1:100"),
        (&["s5", "--routes", "5000"], "1 to 1000"),
        (&["s5", "--flap", "0"], "1 to 1000000"),
        (&["s5", "--quick", "--seconds", "0.01", "--flap", "10", "--variant", "r0"], "leave out --variant"),
        (&["model", "--gates", "--seconds", "0.01", "--variant", "lane"], "--variant"),
        (&["memcached", "--tun", "x"], "--addr 10.9.0.2/24"),
        (&["memcached", "--tun", "x", "--addr", "10.9.0.2/24", "--references", "r9"], "take one of r0"),
    ] {
        let (code, _, err) = lab(arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {err}");
        assert!(err.contains(says), "{arguments:?}: {err}");
    }
}
