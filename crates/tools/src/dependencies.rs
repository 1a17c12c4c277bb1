//! Owns the truth of the page that lists the dependencies: what a manifest names is there, and what is there a manifest names.

use crate::Finding;
use crate::tree::Source;
use std::collections::BTreeMap;

#[cfg(test)]
mod tests;

/// The page.
pub const PAGE: &str = "docs/decisions/0010-dependencies.md";
const RULE: &str = "the page of dependencies lists those that the manifests have, and no others";

/// Compares the table of the page with `crates/*/Cargo.toml` and `fuzz/Cargo.toml`.
pub fn check(sources: &[Source]) -> Vec<Finding> {
    let Some(page) = sources.iter().find(|source| source.path == PAGE) else {
        return vec![Finding { place: PAGE.into(), rule: RULE, what: "the page is not there".into() }];
    };
    let listed = listed(&page.text);
    let mut findings = Vec::new();
    let mut named: BTreeMap<String, &str> = BTreeMap::new();
    for manifest in sources.iter().filter(|source| is_manifest(&source.path)) {
        match toml::from_str::<toml::Table>(&manifest.text) {
            Ok(table) => gather(&table, &mut |name| _ = named.entry(name.to_owned()).or_insert(&manifest.path)),
            Err(error) => {
                let what = format!("it cannot be read: {}", error.message());
                findings.push(Finding { place: manifest.path.clone(), rule: RULE, what });
            }
        }
    }
    for (name, path) in &named {
        if !listed.contains_key(name.as_str()) {
            findings.push(Finding { place: (*path).into(), rule: RULE, what: format!("{name} is not on {PAGE}") });
        }
    }
    for (name, line) in listed {
        if !named.contains_key(name) {
            let what = format!("{name} is in no manifest");
            findings.push(Finding { place: format!("{PAGE}:{}", line + 1), rule: RULE, what });
        }
    }
    findings
}

fn is_manifest(path: &str) -> bool {
    path == "fuzz/Cargo.toml"
        || path
            .strip_prefix("crates/")
            .and_then(|path| path.strip_suffix("/Cargo.toml"))
            .is_some_and(|c| !c.contains('/'))
}

/// Names in code spans of the table's second column, with their lines.
fn listed(page: &str) -> BTreeMap<&str, usize> {
    let rows = page.lines().enumerate().filter(|(_, line)| line.starts_with("| "));
    rows.flat_map(|(number, row)| {
        let cell = row.split('|').nth(2).unwrap_or("");
        cell.split('`').skip(1).step_by(2).map(move |name| (name, number))
    })
    .collect()
}

/// Every dependency in the tables of that kind, wherever they stand; our own crates are not meant.
fn gather(table: &toml::Table, found: &mut impl FnMut(&str)) {
    for (key, value) in table {
        let toml::Value::Table(inner) = value else { continue };
        if matches!(key.as_str(), "dependencies" | "dev-dependencies" | "build-dependencies") {
            inner
                .keys()
                .filter(|name| *name != "laneway" && !name.starts_with("laneway-"))
                .for_each(|name| found(name));
        } else if matches!(key.as_str(), "target") || key.starts_with("cfg(") {
            gather(inner, found);
        }
    }
}
