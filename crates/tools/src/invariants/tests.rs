//! Every check is shown a tree that breaks its rule, and one that nearly does.

use super::*;

fn found(path: &str, text: &str) -> Vec<Finding> {
    check(&Source { path: path.to_owned(), text: text.to_owned() })
}

fn rules(path: &str, text: &str) -> Vec<&'static str> {
    found(path, text).iter().map(|finding| finding.rule).collect()
}

#[test]
fn unsafe_in_the_wrong_crate_is_found_and_in_a_comment_it_is_not() {
    let planted = "// SAFETY: none\nlet x = unsafe { read(p) };\n";
    assert_eq!(rules("crates/stack/src/demux.rs", planted), [RULE_UNSAFE_PLACE]);
    assert_eq!(rules("crates/table/src/wheel/mod.rs", planted), [RULE_UNSAFE_PLACE]);
    assert_eq!(rules("fuzz/fuzz_targets/parse.rs", planted), [RULE_UNSAFE_PLACE]);
    assert_eq!(rules("crates/table/src/bucket/mod.rs", planted), [""; 0]);
    assert_eq!(rules("crates/device/src/tun.rs", planted), [""; 0]);
    assert_eq!(rules("crates/stack/src/demux.rs", "// unsafe\nlet unsafe_name = \"unsafe\";\n"), [""; 0]);
}

#[test]
fn unsafe_without_a_reason_is_found() {
    let path = "crates/sync/src/ring/mod.rs";
    assert_eq!(rules(path, "unsafe impl Send for X {}\n"), [RULE_UNSAFE_REASON]);
    assert_eq!(
        rules(path, "// SAFETY: one thread\nunsafe impl Send for X {}\nunsafe impl Sync for X {}\n"),
        [RULE_UNSAFE_REASON]
    );
    assert_eq!(rules(path, "// SAFETY: of another statement\nf();\nlet x = unsafe { g() };\n"), [RULE_UNSAFE_REASON]);
    assert_eq!(rules(path, "// because\nlet x = unsafe { g() };\n"), [RULE_UNSAFE_REASON]);
}

#[test]
fn a_reason_may_stand_above_the_statement_or_beside_the_block() {
    let path = "crates/sync/src/ring/mod.rs";
    assert_eq!(rules(path, "// SAFETY: it is ours,\n// and nobody looks.\nlet x =\n    unsafe { g() };\n"), [""; 0]);
    assert_eq!(rules(path, "x.with(|p| unsafe { g(p) }); // SAFETY: a model\n"), [""; 0]);
    assert_eq!(rules(path, "// SAFETY: one thread\n#[cfg(real)]\nunsafe impl Send for X {}\n"), [""; 0]);
    assert_eq!(rules(path, "pub unsafe fn f() {}\n"), [""; 0]);
}

#[test]
fn a_root_that_does_not_forbid_unsafe_is_found() {
    assert_eq!(rules("crates/socket/src/lib.rs", "//! Sockets.\n"), [RULE_FORBID]);
    assert_eq!(rules("crates/sim/src/bin/storm.rs", "// #![forbid(unsafe_code)]\n"), [RULE_FORBID]);
    assert_eq!(rules("crates/socket/src/lib.rs", "#![forbid(unsafe_code)]\n"), [""; 0]);
    assert_eq!(rules("crates/socket/src/stream.rs", ""), [""; 0]);
    assert_eq!(rules("crates/sync/src/lib.rs", ""), [""; 0]);
}

#[test]
fn a_clock_a_die_an_atomic_or_a_thread_in_proto_is_found() {
    for planted in [
        "use std::time::Instant;",
        "use core::sync::atomic::AtomicU32;",
        "std::thread::yield_now();",
        "let x = rand::random();",
        "getrandom::fill(&mut seed);",
        "static mut NEXT: u32 = 0;",
        "use std::sync::{Arc, atomic::AtomicU32};",
        "use std::{\n    fmt,\n    sync::{Arc, atomic as a},\n};",
        "use core::{fmt, time::Duration};",
        "pub(crate) use std::{thread, vec::Vec};",
    ] {
        assert_eq!(rules("crates/proto/src/tcp/input.rs", planted), [RULE_PURE], "{planted}");
        assert_eq!(rules("crates/wire/src/ipv4.rs", planted), [RULE_PURE], "{planted}");
        assert_eq!(rules("crates/lab/src/harness.rs", planted), [""; 0], "{planted}");
    }
    assert_eq!(
        rules("crates/proto/src/time.rs", "// unlike std::time, no clock\nlet operand = crate::time::ZERO;"),
        [""; 0]
    );
}

#[test]
fn a_clock_outside_clock_rs_is_found() {
    let planted = "let now = std::time::Instant::now();";
    assert_eq!(rules("crates/stack/src/worker.rs", planted), [RULE_MACHINE]);
    assert_eq!(rules("crates/stack/src/clock.rs", planted), [""; 0]);
    assert_eq!(rules("crates/stack/src/runtime.rs", "use std::time::Duration;"), [""; 0]);
    assert_eq!(rules("crates/table/src/slab/mod.rs", "hash: RandomState::new(),"), [RULE_MACHINE]);
    assert_eq!(rules("crates/stack/src/runtime.rs", "use std::{fmt, time::Duration};"), [""; 0]);
    let found = found("crates/stack/src/runtime.rs", "use std::{\n    fmt,\n    time::{Duration, Instant},\n};");
    assert_eq!(
        found.iter().map(|finding| finding.place.as_str()).collect::<Vec<_>>(),
        ["crates/stack/src/runtime.rs:3"]
    );
}

#[test]
fn a_device_that_reads_packets_is_found() {
    let planted = "use laneway_wire::ipv4;";
    assert_eq!(rules("crates/device/src/tun.rs", planted), [RULE_DEVICE]);
    assert_eq!(rules("crates/device/src/fault.rs", planted), [""; 0]);
    assert_eq!(rules("crates/device/src/tun/tests.rs", planted), [""; 0]);
}

#[test]
fn a_word_of_the_protocol_in_a_table_is_found_wherever_it_stands() {
    for planted in
        ["//! A map from port to lane.", "let local_port = 1;", "// of a TCP connection", "struct Ip(u32); // an IP"]
    {
        assert!(rules("crates/table/src/slab/mod.rs", planted).contains(&RULE_NO_PROTOCOL), "{planted}");
        assert!(rules("crates/sync/Cargo.toml", planted).contains(&RULE_NO_PROTOCOL), "{planted}");
    }
    assert_eq!(rules("crates/table/src/slab/mod.rs", "// skip what is important; support and transport"), [""; 0]);
    assert_eq!(rules("crates/proto/src/udp.rs", "let port = 1;"), [""; 0]);
}

#[test]
fn an_rfc_quoted_in_stack_is_found_and_one_named_is_not() {
    let planted = "//= https://www.rfc-editor.org/rfc/rfc9293#section-3.4";
    assert_eq!(rules("crates/stack/src/demux.rs", planted), [RULE_NO_QUOTE]);
    assert_eq!(rules("crates/stack/src/demux.rs", "//# An endpoint MUST"), [RULE_NO_QUOTE]);
    assert_eq!(rules("crates/stack/src/ports.rs", "// the algorithm of RFC 6056 section 3.3.4"), [""; 0]);
    assert_eq!(rules("crates/proto/src/tcp/input.rs", planted), [""; 0]);
}

#[test]
fn what_is_said_on_the_packet_path_is_found_and_where_a_stack_starts_it_is_not() {
    let planted = "tracing::trace!(\"a segment\");";
    for path in ["crates/stack/src/worker.rs", "crates/proto/src/tcp/input.rs", "crates/socket/src/net/stream.rs"] {
        assert_eq!(rules(path, planted), [RULE_SILENT], "{path}");
        assert_eq!(rules(path, "use tracing as t;"), [RULE_SILENT], "{path}");
        assert_eq!(rules(path, "// no tracing here\nlet tracing_is = \"tracing\";"), [""; 0], "{path}");
    }
    for path in ["crates/stack/src/runtime.rs", "crates/stack/src/runtime/aloud.rs", "crates/cli/src/log.rs"] {
        assert_eq!(rules(path, planted), [""; 0], "{path}");
    }
}

#[test]
fn a_breadcrumb_that_rustdoc_would_take_for_a_link_is_found() {
    let path = "crates/proto/src/tcp/input.rs";
    assert_eq!(rules(path, "//! path: demux → [tcp::input] → tcp::state"), [RULE_PATH]);
    assert_eq!(rules(path, "//! path: `demux → tcp::input → tcp::state`"), [RULE_PATH]);
    assert_eq!(rules(path, "//! path: `demux → [tcp::input] → tcp::state`"), [""; 0]);
}

#[test]
fn a_breadcrumb_that_names_another_file_is_found() {
    let (input, neither) = ("//! path: `demux → [tcp::input] → tcp::state`", "//! path: `demux → tcp::input`");
    assert_eq!(rules("crates/proto/src/tcp/state.rs", input), [RULE_PATH]);
    assert_eq!(rules("crates/proto/src/tcp/mod.rs", input), [RULE_PATH]);
    assert_eq!(rules("crates/proto/src/tcp/loss.rs", input), [RULE_PATH]);
    assert_eq!(rules("crates/wire/src/tcp/mod.rs", input), [""; 0]);
    assert_eq!(rules("crates/stack/src/worker.rs", neither), [""; 0]);
}

#[test]
fn a_file_on_the_path_that_does_not_open_with_it_is_found() {
    let all = |text: &str| -> Vec<Source> {
        STATIONS.iter().map(|(path, _)| Source { path: (*path).to_owned(), text: text.to_owned() }).collect()
    };
    let mut sources = all("//! What it owns.\n//!\n//! path: `…`\n");
    assert_eq!(stations(&sources), []);
    sources[3].text = "//! What it owns.\nfn f() {}\n//! path: `…`\n".to_owned();
    sources.pop();
    let found = stations(&sources);
    let places: Vec<&str> = found.iter().map(|finding| finding.place.as_str()).collect();
    assert_eq!(places, [STATIONS[3].0, STATIONS[STATIONS.len() - 1].0]);
}

#[test]
fn what_is_left_for_later_is_found_in_every_kind_of_file() {
    let marks =
        [concat!("TO", "DO: later"), concat!("FIX", "ME"), concat!("    to", "do!()"), concat!("un", "implemented!()")];
    for planted in marks {
        for path in ["crates/cli/src/cmd/serve.rs", "README.md", "specs/exceptions/tcp.toml", "Makefile"] {
            assert_eq!(rules(path, planted), [RULE_FINISHED], "{planted} in {path}");
        }
    }
    assert_eq!(rules("README.md", "nothing to do here; METODOS"), [""; 0]);
}

#[test]
fn a_finding_says_where() {
    assert_eq!(found("crates/proto/src/x.rs", "\nuse std::time::Instant;\n")[0].place, "crates/proto/src/x.rs:2");
}
