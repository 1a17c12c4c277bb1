//! Owns the rule that every counter which is printed is counted somewhere.

use crate::Finding;
use crate::rust_source::{code_only, words};
use crate::tree::Source;

#[cfg(test)]
mod tests;

const RULE: &str = "every name that is printed with a count is counted somewhere";

/// Where the names are listed, in which macro, and of what type they are.
const LISTS: &[(&str, &str, &str)] =
    &[("crates/proto/src/discard.rs", "discards! {", "Discard"), ("crates/stack/src/counters.rs", "mib! {", "Mib")];

/// Who counts.
const COUNTS: &[&str] = &["crates/proto/src/", "crates/stack/src/"];

/// A finding for every name of the lists that no product code uses but to read it.
pub fn check(sources: &[Source]) -> Vec<Finding> {
    let is_test = |path: &str| path.ends_with("/tests.rs") || path.contains("/tests/");
    let counting = sources.iter().filter(|source| {
        source.path.ends_with(".rs") && !is_test(&source.path) && COUNTS.iter().any(|dir| source.path.starts_with(dir))
    });
    let code: Vec<(&str, String)> = counting.map(|source| (source.path.as_str(), code_only(&source.text))).collect();
    let mut findings = Vec::new();
    for (path, list, kind) in LISTS {
        // Where the list has gone, or is called something else now, this would find nothing for ever after.
        let listing = code.iter().find(|(of, code)| of == path && code.lines().any(|line| line == *list));
        let Some((_, listing)) = listing else {
            let what =
                format!("there is no list that begins with `{list}`: say in crates/tools/src/counted.rs where it is");
            findings.push(Finding { place: (*path).to_owned(), rule: RULE, what });
            continue;
        };
        for (line, name) in names(listing, list) {
            if !code.iter().any(|(_, code)| is_counted(code, kind, name)) {
                let place = format!("{path}:{}", line + 1);
                findings.push(Finding { place, rule: RULE, what: format!("nothing counts {name}") });
            }
        }
    }
    findings
}

/// The names in the braces of a list, with their lines.
fn names<'a>(code: &'a str, list: &str) -> impl Iterator<Item = (usize, &'a str)> {
    let begins = code.lines().position(|line| line == list).map_or(usize::MAX, |line| line + 1);
    let within = code.lines().enumerate().skip(begins).take_while(|(_, line)| *line != "}");
    within.flat_map(|(number, line)| words(line).map(move |(_, word)| (number, word)))
}

/// Whether the code uses `kind::name`, and not only to ask how often it was counted.
fn is_counted(code: &str, kind: &str, name: &str) -> bool {
    let use_of = format!("{kind}::{name}");
    code.match_indices(&use_of).any(|(at, _)| {
        let (before, after) = (&code[..at], &code[at + use_of.len()..]);
        let is_whole = !after.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        is_whole && !before.ends_with("get(") && !before.ends_with("discarded(")
    })
}
