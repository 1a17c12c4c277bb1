//! Owns the form of `specs/exceptions`: every deviation from an RFC is quoted, said and reasoned, and names code that is there.

use crate::Finding;
use crate::tree::Source;
use toml::{Table, Value};

#[cfg(test)]
mod tests;

const RULE: &str = "specs/exceptions: each entry has target, level, quote, what, why and code, and the code is there";

/// What every entry has. `target` is the section, `quote` its sentence, `level` the word of RFC 2119 that it uses.
const FIELDS: &[&str] = &["target", "level", "quote", "what", "why", "code"];
const LEVELS: &[&str] = &["MUST", "SHOULD", "MAY", "none"];

/// Looks at every file of exceptions; says how many entries they have.
pub fn check(sources: &[Source], exists: impl Fn(&str) -> bool) -> (usize, Vec<Finding>) {
    let mut entries = 0;
    let mut findings = Vec::new();
    let is_exceptions =
        |source: &&Source| source.path.starts_with("specs/exceptions/") && source.path.ends_with(".toml");
    for source in sources.iter().filter(is_exceptions) {
        let mut found = |what: String| findings.push(Finding { place: source.path.clone(), rule: RULE, what });
        let table = match source.text.parse::<Table>() {
            Ok(table) => table,
            Err(error) => {
                found(error.to_string());
                continue;
            }
        };
        let Some(exceptions) = table.get("exception").and_then(Value::as_array) else {
            found("no [[exception]]".to_owned());
            continue;
        };
        for (number, exception) in exceptions.iter().enumerate() {
            entries += 1;
            let field = |name: &str| exception.get(name).and_then(Value::as_str).unwrap_or("").trim();
            for name in FIELDS.iter().filter(|name| field(name).is_empty()) {
                found(format!("entry {} has no {name}", number + 1));
            }
            if !field("target").starts_with("https://www.rfc-editor.org/rfc/rfc") {
                found(format!("entry {}: {:?} is no section of an RFC", number + 1, field("target")));
            }
            if !LEVELS.contains(&field("level")) {
                found(format!("entry {}: the level {:?} is none of {LEVELS:?}", number + 1, field("level")));
            }
            if !exists(field("code")) {
                found(format!("entry {}: {} is not there", number + 1, field("code")));
            }
        }
    }
    (entries, findings)
}
