//! `lint-tree`: checks the invariants of absence, that every counter is counted, the pages' links, the form of the exceptions, and the
//! page of dependencies.
#![forbid(unsafe_code)]

use laneway_tools::{counted, dependencies, exceptions, invariants, links, tree, verdict};
use std::process::ExitCode;

fn main() -> ExitCode {
    let root = tree::root();
    let sources = match tree::read(&root) {
        Ok(sources) => sources,
        Err(error) => {
            eprintln!("lint-tree: {}: {error}", root.display());
            return ExitCode::FAILURE;
        }
    };
    let mut findings: Vec<_> = sources.iter().flat_map(invariants::check).collect();
    findings.extend(counted::check(&sources));
    findings.extend(invariants::stations(&sources));
    findings.extend(links::check(&sources, links::on_disk(&root)));
    let (entries, found) = exceptions::check(&sources, links::on_disk(&root));
    findings.extend(found);
    findings.extend(dependencies::check(&sources));
    verdict("lint-tree", &format!("{} files, {entries} exceptions", sources.len()), &findings)
}
