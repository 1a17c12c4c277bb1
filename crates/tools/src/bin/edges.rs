//! `edges`: fails on any crate edge that ARCHITECTURE.md does not allow.
#![forbid(unsafe_code)]

use laneway_tools::{edges, tree, verdict};
use std::path::Path;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let root = tree::root();
    let mut count = 0;
    let mut findings = Vec::new();
    // The fuzz targets are a workspace of their own: they are built with another compiler.
    for manifest in ["Cargo.toml", "fuzz/Cargo.toml"] {
        let manifest = root.join(manifest);
        if !manifest.exists() {
            continue;
        }
        match metadata(&manifest).and_then(|metadata| edges::check(&metadata)) {
            Ok((edges, found)) => {
                count += edges;
                findings.extend(found);
            }
            Err(error) => {
                eprintln!("edges: {}: {error}", manifest.display());
                return ExitCode::FAILURE;
            }
        }
    }
    verdict("edges", &format!("{count} edges between crates"), &findings)
}

fn metadata(manifest: &Path) -> Result<serde_json::Value, String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(cargo);
    command.args(["metadata", "--no-deps", "--format-version", "1", "--manifest-path"]).arg(manifest);
    let output = command.output().map_err(|error| format!("cargo cannot be run: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata answered no JSON: {error}"))
}
