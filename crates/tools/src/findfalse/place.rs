//! Owns the search for where a Rust type is declared: rustc writes no lines for types, only for functions.
//!
//! A method's declaration names the file of its `impl`, a function the file of its module; in that file the word behind
//! `struct`, `enum` or `union` is looked for. Where the source is not at hand, the file alone is said.

use super::report::Finding;
use super::types::{Place, Types, without_arguments};
use std::rc::Rc;

/// Says where a finding's type is declared, if its debug information does not.
pub fn complete(finding: &mut Finding, types: &Types) {
    if finding.place.is_some() {
        return;
    }
    let path = without_arguments(&finding.module);
    let path = path.as_str();
    let (mut module, name) = path.rsplit_once("::").unwrap_or(("", path));
    if let Some(place) = types.files.get(finding.module.as_str()).or_else(|| types.files.get(path)) {
        finding.place = Some(at(&place.file, name));
        if finding.place.as_ref().is_some_and(|place| place.line > 0) {
            return;
        }
    }
    while !module.is_empty() {
        if let Some(place) = types.files.get(module) {
            let found = at(&place.file, name);
            if found.line > 0 || finding.place.is_none() {
                finding.place = Some(found);
            }
            return;
        }
        module = module.rsplit_once("::").map_or("", |(outer, _)| outer);
    }
}

fn at(file: &Rc<str>, name: &str) -> Place {
    let text = std::fs::read_to_string(&**file).unwrap_or_default();
    let line = text.lines().position(|line| declares(line, name)).map_or(0, |line| line as u64 + 1);
    Place { file: file.clone(), line }
}

fn declares(line: &str, name: &str) -> bool {
    let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
    while let Some(word) = words.next() {
        if matches!(word, "struct" | "enum" | "union") {
            return words.next() == Some(name);
        }
        if line.trim_start().starts_with("//") {
            return false;
        }
    }
    false
}
