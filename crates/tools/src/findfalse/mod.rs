//! Owns the search for false sharing in the types of a program: what `findfalse` looks at, and the order of its steps.
//!
//! A processor moves memory between cores in lines. A lock or an atomic number is written by many cores; whatever else
//! lies in its line is taken from them each time, although nobody wrote *it*. Two shapes of a program's data do this, and
//! both can be read from its debug information alone:
//!
//! - **arrays** whose elements hold a lock or an atomic, are smaller than a line, and together are larger than one: the
//!   rule of `::findfalse` (B. Cantrill, "Postmortem Object Type Identification", 2003);
//! - **structures** in which a lock or an atomic lies in one line with fields that others only read: a reference count
//!   beside the pointers that each packet follows.
//!
//! Debug information says how things lie, not which thread touches them. So a finding is a question, and the answer is
//! either a changed layout or a line with a reason in the list of exceptions ([`allow`]).

pub mod allow;
pub mod dwarf;
pub mod locks;
pub mod place;
pub mod report;
pub mod rules;
pub mod types;

use std::path::Path;

/// What to look for.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Bytes of a cache line: 64, or 128 where lines are fetched in pairs.
    pub line: u64,
    /// Names of types that are locks besides the well-known ones.
    pub lock_types: Vec<String>,
    /// Crates whose name begins so are ours. Empty: those that were not built from a registry or the toolchain.
    pub ours: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { line: 64, lock_types: Vec::new(), ours: Vec::new() }
    }
}

/// Looks at one program. The error is a sentence for its user.
pub fn look(binary: &Path, settings: &Settings) -> Result<report::Report, String> {
    let types = dwarf::read(binary)?;
    let mut report = rules::check(&types, settings);
    report.findings.iter_mut().for_each(|finding| place::complete(finding, &types));
    report.binary = binary.display().to_string();
    Ok(report)
}
