//! Owns the invariants of absence: what certain crates must *not* contain, as ARCHITECTURE.md states them.

use crate::Finding;
use crate::rust_source::{code_only, words};
use crate::tree::Source;

#[cfg(test)]
mod tests;

const RULE_UNSAFE_PLACE: &str = "\"unsafe\" lives in sync, table's bucket, and device; nowhere else";
const RULE_UNSAFE_REASON: &str = "every unsafe block and impl says SAFETY and why, directly before it";
const RULE_FORBID: &str = "a crate without unsafe says #![forbid(unsafe_code)] in its root";
const RULE_PURE: &str = "wire and proto have no clock, no randomness, no atomics, no threads";
const RULE_NO_PROTOCOL: &str = "sync and table do not contain the words TCP, IP or port";
const RULE_NO_QUOTE: &str = "stack contains no protocol rule: where an RFC is quoted, the code is in the wrong crate";
const RULE_MACHINE: &str = "only clock.rs and entropy.rs ask the machine for time and chance";
const RULE_DEVICE: &str = "device reads wire formats only in memory/offload.rs, fault.rs and fault/mark.rs";
const RULE_PATH: &str = "a breadcrumb is a code span with the file's own name in brackets";
const RULE_OPENS: &str = "every file on the packet's path opens with the path";
const RULE_SILENT: &str =
    "nothing is said per packet: tracing is where stacks start, are asked and stop, and nowhere else";
const RULE_FINISHED: &str = "nothing is left for later in the tree: it is an issue, or it is done";

/// All of them, on one file.
pub fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(unfinished(source));
    findings.extend(protocol_words(source));
    if source.path.ends_with(".rs") {
        let code = code_only(&source.text);
        findings.extend(unsafe_place(source, &code));
        findings.extend(unsafe_reason(source, &code));
        findings.extend(forbids_unsafe(source, &code));
        findings.extend(pure(source, &code));
        findings.extend(asks_the_machine(source, &code));
        findings.extend(device_looks_inside(source, &code));
        findings.extend(says_on_the_path(source, &code));
        findings.extend(quotes(source));
        findings.extend(breadcrumb(source));
    }
    findings
}

fn at(source: &Source, line: usize, rule: &'static str, what: impl Into<String>) -> Finding {
    Finding { place: format!("{}:{}", source.path, line + 1), rule, what: what.into() }
}

fn may_hold_unsafe(path: &str) -> bool {
    const PLACES: &[&str] =
        &["crates/sync/", "crates/table/src/bucket.rs", "crates/table/src/bucket/", "crates/device/"];
    PLACES.iter().any(|place| path.starts_with(place))
}

fn unsafe_place(source: &Source, code: &str) -> Vec<Finding> {
    if may_hold_unsafe(&source.path) {
        return Vec::new();
    }
    lines_with(code, |line| words(line).any(|(_, word)| word == "unsafe"))
        .map(|line| at(source, line, RULE_UNSAFE_PLACE, "unsafe code"))
        .collect()
}

/// An `unsafe` that opens a block or an impl needs its reason in the comment above the statement, or on its own line.
fn unsafe_reason(source: &Source, code: &str) -> Vec<Finding> {
    let text: Vec<&str> = source.text.lines().collect();
    let mut findings = Vec::new();
    for (number, line) in code.lines().enumerate() {
        for (start, word) in words(line) {
            if word != "unsafe" {
                continue;
            }
            // A block may open on the next line.
            let rest = line[start + word.len()..].trim_start();
            let next = code.lines().nth(number + 1).unwrap_or("").trim_start();
            let after = if rest.is_empty() { next } else { rest };
            if (after.starts_with('{') || words(after).next().is_some_and(|(_, word)| word == "impl"))
                && !has_reason(&text, number)
            {
                findings.push(at(source, number, RULE_UNSAFE_REASON, "unsafe without a SAFETY comment"));
            }
        }
    }
    findings
}

fn has_reason(text: &[&str], number: usize) -> bool {
    let mut in_comment = false;
    for (above, line) in text[..=number].iter().rev().enumerate() {
        let line = line.trim();
        if line.contains("SAFETY:") {
            return true;
        }
        let is_comment = line.starts_with("//");
        in_comment |= is_comment;
        let ends_something = line.ends_with([';', '{', '}']) && above > 0;
        if (in_comment && !is_comment) || line.is_empty() || (!is_comment && ends_something) {
            return false;
        }
    }
    false
}

fn forbids_unsafe(source: &Source, code: &str) -> Vec<Finding> {
    let Some((name, rest)) = source.path.strip_prefix("crates/").and_then(|path| path.split_once('/')) else {
        return Vec::new();
    };
    let is_root = matches!(rest, "src/lib.rs" | "src/main.rs")
        || (rest.starts_with("src/bin/") && rest.matches('/').count() == 2);
    let forbids = code.lines().any(|line| line.trim() == "#![forbid(unsafe_code)]");
    if !is_root || forbids || matches!(name, "sync" | "table" | "device") {
        return Vec::new();
    }
    vec![at(source, 0, RULE_FORBID, "the crate's root does not forbid it")]
}

fn pure(source: &Source, code: &str) -> Vec<Finding> {
    const IMPURE: &[&str] = &[
        "std::time",
        "core::time",
        "std::thread",
        "sync::atomic",
        "thread_local!",
        "rand::",
        "getrandom",
        "static mut",
        "SystemTime",
    ];
    if !source.path.starts_with("crates/wire/src/") && !source.path.starts_with("crates/proto/src/") {
        return Vec::new();
    }
    each_of(&with_whole_paths(code), IMPURE, |line, word| at(source, line, RULE_PURE, word))
}

fn asks_the_machine(source: &Source, code: &str) -> Vec<Finding> {
    const QUESTIONS: &[&str] = &["std::time", "SystemTime", "getrandom", "RandomState", "clock_gettime"];
    let exempt = ["crates/stack/src/clock.rs", "crates/stack/src/entropy.rs"];
    let is_test = source.path.ends_with("/tests.rs");
    let is_ruled = ["crates/stack/src/", "crates/table/src/"].iter().any(|dir| source.path.starts_with(dir));
    if !is_ruled || is_test || exempt.contains(&source.path.as_str()) {
        return Vec::new();
    }
    // A length of time is not a question; what time it is, is.
    let code = with_whole_paths(code).replace("std::time::Duration", "");
    each_of(&code, QUESTIONS, |line, word| at(source, line, RULE_MACHINE, word))
}

fn device_looks_inside(source: &Source, code: &str) -> Vec<Finding> {
    let Some(file) = source.path.strip_prefix("crates/device/src/") else { return Vec::new() };
    let is_test = file.ends_with("tests.rs") || file == "testing.rs" || file.contains("/tests/");
    if is_test || matches!(file, "memory/offload.rs" | "fault.rs" | "fault/mark.rs") {
        return Vec::new();
    }
    each_of(code, &["laneway_wire"], |line, word| at(source, line, RULE_DEVICE, word))
}

/// Of the crates below the command, only these files may say anything.
fn says_on_the_path(source: &Source, code: &str) -> Vec<Finding> {
    const CRATES: &[&str] = &["wire", "proto", "sync", "table", "device", "stack", "socket"];
    const MAY: &[&str] = &[
        "crates/stack/src/runtime.rs",
        "crates/stack/src/runtime/",
        "crates/socket/src/on_lane/builder.rs",
        "crates/socket/src/control/",
    ];
    let of_a_crate = CRATES.iter().any(|name| source.path.starts_with(&format!("crates/{name}/src/")));
    if !of_a_crate || MAY.iter().any(|place| source.path.starts_with(place)) {
        return Vec::new();
    }
    each_of(code, &["tracing"], |line, word| at(source, line, RULE_SILENT, word))
}

/// In every file of the two crates, comments, tests and manifests included. An underscore separates words here.
fn protocol_words(source: &Source) -> Vec<Finding> {
    const WORDS: &[&str] = &["tcp", "ip", "port", "ports"];
    if !source.path.starts_with("crates/sync/") && !source.path.starts_with("crates/table/") {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (number, line) in source.text.lines().enumerate() {
        for word in line.split(|c: char| !c.is_alphanumeric()) {
            if WORDS.contains(&word.to_lowercase().as_str()) {
                findings.push(at(source, number, RULE_NO_PROTOCOL, format!("the word {word}")));
            }
        }
    }
    findings
}

fn quotes(source: &Source) -> Vec<Finding> {
    if !source.path.starts_with("crates/stack/") {
        return Vec::new();
    }
    each_of(&source.text, &["rfc-editor.org", "//#"], |line, word| at(source, line, RULE_NO_QUOTE, word))
}

/// The files on the packet's path, and the stations at which each of them is. The worker drives the whole path and is no station of it.
const STATIONS: &[(&str, &[&str])] = &[
    ("crates/device/src/lib.rs", &["device::rx", "device::tx"]),
    ("crates/device/src/memory/link.rs", &["device::rx", "device::tx"]),
    ("crates/device/src/tun.rs", &["device::rx", "device::tx"]),
    ("crates/proto/src/ethernet.rs", &["ethernet"]),
    ("crates/proto/src/ip/input.rs", &["ip::input"]),
    ("crates/proto/src/ip/mod.rs", &["ip::input", "ip::output"]),
    ("crates/proto/src/ip/output.rs", &["ip::output"]),
    ("crates/proto/src/tcp/input.rs", &["tcp::input"]),
    ("crates/proto/src/tcp/input/text.rs", &["tcp::input"]),
    ("crates/proto/src/tcp/mod.rs", &["tcp::input", "tcp::output"]),
    ("crates/proto/src/tcp/output.rs", &["tcp::output"]),
    ("crates/proto/src/tcp/output/build.rs", &["tcp::output"]),
    ("crates/proto/src/tcp/prediction.rs", &["tcp::input", "tcp::output"]),
    ("crates/proto/src/tcp/state.rs", &["tcp::state"]),
    ("crates/stack/src/app.rs", &["application"]),
    ("crates/stack/src/app/connect.rs", &["application"]),
    ("crates/stack/src/app/context.rs", &["application"]),
    ("crates/stack/src/demux.rs", &["demux"]),
    ("crates/stack/src/demux/cookies.rs", &["demux"]),
    ("crates/stack/src/demux/nobody.rs", &["demux"]),
    ("crates/stack/src/demux/opening.rs", &["demux"]),
    ("crates/stack/src/demux/synchronized.rs", &["demux"]),
    ("crates/stack/src/egress.rs", &["egress"]),
    ("crates/stack/src/ingress.rs", &["ingress"]),
    ("crates/stack/src/paths.rs", &["egress"]),
    ("crates/stack/src/recent.rs", &["demux"]),
    ("crates/stack/src/ways.rs", &["egress"]),
    ("crates/stack/src/worker.rs", &[]),
    ("crates/stack/src/worker/settle.rs", &["tcp::output"]),
    ("crates/wire/src/ethernet.rs", &["ethernet"]),
    ("crates/wire/src/flow.rs", &["demux"]),
    ("crates/wire/src/ipv4.rs", &["ip::input"]),
    ("crates/wire/src/ipv6.rs", &["ip::input"]),
    ("crates/wire/src/segmentation.rs", &["device::tx"]),
    ("crates/wire/src/tcp/emit.rs", &["tcp::output"]),
    ("crates/wire/src/tcp/mod.rs", &["tcp::input"]),
];

const PATH_LINE: &str = "//! path: ";

/// Brackets outside a code span would be read as a link by rustdoc; within it they are about the file's own stations, and no others.
fn breadcrumb(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in source.text.lines().enumerate() {
        let Some(path) = line.strip_prefix(PATH_LINE) else { continue };
        let in_span = path.len() > 2 && path.starts_with('`') && path.ends_with('`') && path.matches('`').count() == 2;
        let named: Vec<&str> = path.split('[').skip(1).map(|rest| rest.split(']').next().unwrap_or(rest)).collect();
        let is_here = STATIONS.iter().any(|(file, stations)| *file == source.path && named == *stations);
        if !in_span || !is_here {
            findings.push(at(source, number, RULE_PATH, path));
        }
    }
    findings
}

/// Every file on the path is there, and opens with it.
pub fn stations(sources: &[Source]) -> Vec<Finding> {
    let opens = |source: &Source| {
        source.text.lines().take_while(|line| line.starts_with("//!")).any(|line| line.starts_with(PATH_LINE))
    };
    let is_missing = |file: &str| !sources.iter().any(|source| source.path == file && opens(source));
    let missing = STATIONS.iter().filter(|(file, _)| is_missing(file));
    missing
        .map(|(file, _)| Finding { place: (*file).to_owned(), rule: RULE_OPENS, what: "no breadcrumb".into() })
        .collect()
}

fn unfinished(source: &Source) -> Vec<Finding> {
    // Written in two halves, so that this file passes its own check.
    const MARKS: &[&str] = &[
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X"),
        concat!("to", "do!"),
        concat!("un", "implemented!"),
    ];
    each_of(&source.text, MARKS, |line, mark| at(source, line, RULE_FINISHED, mark))
}

/// A finding for every line that contains one of the needles as words of their own.
fn each_of(text: &str, needles: &[&str], found: impl Fn(usize, &str) -> Finding) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in text.lines().enumerate() {
        findings
            .extend(needles.iter().filter(|needle| contains_words(line, needle)).map(|needle| found(number, needle)));
    }
    findings
}

/// The code, and at the end of each line the whole paths of what a tree of names, `use a::{b, c::d};`, names there: a path that is
/// written in pieces is no less used.
fn with_whole_paths(code: &str) -> String {
    let mut lines: Vec<String> = code.lines().map(str::to_owned).collect();
    for (start, _) in code.match_indices("use ") {
        if code[..start].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let mut number = code[..start].matches('\n').count();
        let mut outer: Vec<String> = Vec::new();
        let mut path = String::new();
        for c in code[start + "use ".len()..].chars() {
            match c {
                '{' => outer.push(path.clone()),
                ',' | '}' | ';' => {
                    if !outer.is_empty() && !path.is_empty() {
                        lines[number].extend([" ", &path, ";"]);
                    }
                    path = if c == ',' { outer.last().cloned().unwrap_or_default() } else { String::new() };
                    match c {
                        ';' => break,
                        '}' => _ = outer.pop(),
                        _ => {}
                    }
                }
                '\n' => number += 1,
                ' ' if path.is_empty() || path.ends_with(':') => {}
                c => path.push(c),
            }
        }
    }
    lines.join("\n")
}

fn contains_words(line: &str, needle: &str) -> bool {
    let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let (first, last) = (needle.chars().next(), needle.chars().next_back());
    line.match_indices(needle).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        let after = line[start + needle.len()..].chars().next();
        let grown_left = is_word(first) && is_word(before);
        let grown_right = is_word(last) && is_word(after);
        !grown_left && !grown_right
    })
}

fn lines_with(text: &str, holds: impl Fn(&str) -> bool) -> impl Iterator<Item = usize> {
    text.lines().enumerate().filter(move |(_, line)| holds(line)).map(|(number, _)| number)
}
