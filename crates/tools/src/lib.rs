//! What holds the tree to its own pages: the crate edges, and the invariants of absence, of ARCHITECTURE.md.
//!
//! Every check is a function from text to [`Finding`]s, so that its tests can show it a tree that breaks the rule.
//! The two programs, `edges` and `lint-tree`, only fetch the text and print what was found.
#![forbid(unsafe_code)]

pub mod counted;
pub mod dependencies;
pub mod edges;
pub mod exceptions;
pub mod findfalse;
pub mod invariants;
pub mod links;
pub mod rust_source;
pub mod tree;

use std::fmt;
use std::process::ExitCode;

/// One place that breaks one rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Where: a path from the root of the tree, with a line if there is one.
    pub place: String,
    /// Which rule, in the words of the page that states it.
    pub rule: &'static str,
    /// What is there instead.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}\n    rule: {}", self.place, self.what, self.rule)
    }
}

/// Prints what was found; failure if anything was.
pub fn verdict(name: &str, looked_at: &str, findings: &[Finding]) -> ExitCode {
    for finding in findings {
        eprintln!("{finding}");
    }
    if findings.is_empty() {
        println!("{name}: {looked_at}, nothing found");
        ExitCode::SUCCESS
    } else {
        eprintln!("{name}: {looked_at}, {} found", findings.len());
        ExitCode::FAILURE
    }
}
