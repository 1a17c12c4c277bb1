//! Owns the truth of relative links in the pages, and of paths that they name.

use crate::Finding;
use crate::tree::Source;
use std::collections::BTreeSet;
use std::path::Path;

#[cfg(test)]
mod tests;

const RULE_LINK: &str =
    "a relative link in a page leads to a file or folder of the tree, and to a heading that is there";
const RULE_NAMED: &str = "a page names only files that the tree has";

/// Looks at every link and every named path of the pages. `exists` is asked for paths from the root of the tree.
pub fn check(sources: &[Source], exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for page in sources.iter().filter(|source| source.path.ends_with(".md")) {
        for (number, line) in prose(&page.text) {
            let place = || format!("{}:{}", page.path, number + 1);
            for target in targets(line) {
                if let Err(what) = follow(page, target, sources, &exists) {
                    findings.push(Finding { place: place(), rule: RULE_LINK, what });
                }
            }
            for path in named(line) {
                if !exists(path) {
                    findings.push(Finding { place: place(), rule: RULE_NAMED, what: format!("{path} is not there") });
                }
            }
        }
    }
    findings
}

/// Asks the disk.
pub fn on_disk(root: &Path) -> impl Fn(&str) -> bool + '_ {
    move |path| root.join(path).exists()
}

/// Lines outside fenced blocks.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// `](target)` and `]: target`.
fn targets(line: &str) -> Vec<&str> {
    let mut found: Vec<&str> =
        line.match_indices("](").filter_map(|(at, _)| line[at + 2..].split(')').next()).collect();
    if line.starts_with('[')
        && let Some((_, target)) = line.split_once("]: ")
    {
        found.push(target);
    }
    found.retain(|target| !target.contains("://") && !target.starts_with("mailto:"));
    found
}

fn follow(page: &Source, target: &str, sources: &[Source], exists: &impl Fn(&str) -> bool) -> Result<(), String> {
    let (path, heading) = target.split_once('#').map_or((target, None), |(path, heading)| (path, Some(heading)));
    let path = if path.is_empty() {
        page.path.clone()
    } else {
        resolve(&page.path, path).ok_or_else(|| format!("the link {target} leads out of the tree"))?
    };
    if !exists(&path) {
        return Err(format!("the link {target} leads to {path}, which is not there"));
    }
    let (Some(heading), Some(other)) = (heading, sources.iter().find(|source| source.path == path)) else {
        return Ok(());
    };
    if path.ends_with(".md") && !headings(&other.text).contains(heading) {
        return Err(format!("{path} has no heading #{heading}"));
    }
    Ok(())
}

/// `target` as seen from `page`, as a path from the root.
fn resolve(page: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(if parts.is_empty() { ".".to_owned() } else { parts.join("/") })
}

/// The anchors of a page, as forges make them.
fn headings(text: &str) -> BTreeSet<String> {
    let heading = prose(text).filter_map(|(_, line)| line.strip_prefix('#'));
    heading
        .map(|line| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            title
                .chars()
                .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
                .map(|c| if c == ' ' { '-' } else { c })
                .collect()
        })
        .collect()
}

/// Paths from the root in code spans: those that begin with a folder of the root.
fn named(line: &str) -> Vec<&str> {
    const ROOTS: &[&str] = &["crates/", "docs/", "specs/", "fuzz/", "scripts/", ".ci/"];
    let spans = line.split('`').skip(1).step_by(2);
    spans
        .map(|span| span.split_once("::").map_or(span, |(path, _)| path).trim_end_matches('/'))
        .filter(|span| ROOTS.iter().any(|root| span.starts_with(root)) && !span.contains(['*', ' ', '<', '{', '…']))
        .collect()
}
