use super::*;

const LISTED: &str = "discards! {\n    /// Used up.\n    IpHopLimit,\n    /// Full.\n    UdpQueueFull,\n}\n";

fn found(path: &str, text: &str) -> Vec<String> {
    let source = |path: &str, text: &str| Source { path: path.to_owned(), text: text.to_owned() };
    let nothing = source("crates/stack/src/counters.rs", "mib! {\n}\n");
    let sources = [source("crates/proto/src/discard.rs", LISTED), nothing, source(path, text)];
    check(&sources).into_iter().map(|finding| format!("{} {}", finding.place, finding.what)).collect()
}

const BOTH: [&str; 2] = [
    "crates/proto/src/discard.rs:3 nothing counts IpHopLimit",
    "crates/proto/src/discard.rs:5 nothing counts UdpQueueFull",
];

#[test]
fn a_name_that_nothing_counts_is_found() {
    assert_eq!(found("crates/stack/src/udp.rs", "counters.discard(Discard::UdpQueueFull);"), BOTH[..1]);
    let both = "counters.discard(Discard::UdpQueueFull);\nreturn Err(Discard::IpHopLimit);";
    assert_eq!(found("crates/stack/src/udp.rs", both), [""; 0]);
}

#[test]
fn what_only_reads_tests_or_speaks_of_it_does_not_count() {
    for text in [
        "// Discard::UdpQueueFull, Discard::IpHopLimit",
        "f(\"Discard::UdpQueueFull Discard::IpHopLimit\");",
        "counters.discarded(Discard::UdpQueueFull) + counters.discarded(Discard::IpHopLimit)",
        "counters.discard(Discard::UdpQueueFuller)",
    ] {
        assert_eq!(found("crates/stack/src/udp.rs", text), BOTH, "{text}");
    }
    let counts = "counters.discard(Discard::UdpQueueFull);";
    assert_eq!(found("crates/stack/src/udp/tests.rs", counts), BOTH);
    assert_eq!(found("crates/stack/tests/udp.rs", counts), BOTH);
}

#[test]
fn a_list_that_is_not_found_is() {
    for heads in [["discard! {", "mib! {"], ["discards! {", "counters! {"]] {
        let paths = ["crates/proto/src/discard.rs", "crates/stack/src/counters.rs"];
        let lists = [0, 1].map(|i| Source { path: paths[i].to_owned(), text: format!("{}\n}}\n", heads[i]) });
        assert_eq!(check(&lists).len(), 1, "{heads:?}");
        assert_eq!(check(&lists[..1]).len() + check(&lists[1..]).len(), 3, "{heads:?}");
    }
}
