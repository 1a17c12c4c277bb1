//! Owns the list of crate edges that ARCHITECTURE.md allows, and the comparison with what `cargo metadata` says.

use crate::Finding;
use serde_json::Value;

#[cfg(test)]
mod tests;

/// Every edge that may exist between crates of this workspace, by package name without the prefix. The crate that users
/// import is `socket` here, whatever name it is published under.
pub const ALLOWED: &[(&str, &[&str])] = &[
    ("wire", &[]),
    ("sync", &[]),
    ("proto", &["wire"]),
    ("table", &["sync"]),
    ("device", &["sync", "wire"]),
    ("stack", &["proto", "wire", "table", "sync", "device"]),
    ("socket", &["stack"]),
    ("cli", &["socket", "stack"]),
    ("lab", &["socket", "stack", "table", "sync", "proto", "wire", "device", "sim"]),
    ("sim", &["proto", "wire", "stack", "device"]),
    ("conformance", &["wire", "proto", "stack", "sim"]),
    ("fuzz", &["wire", "proto", "stack"]),
    ("tools", &[]),
];

/// Packages that only the lab may use: what is slow to build must not slow `make demo` down.
const HEAVY: &[&str] = &["smoltcp", "plotters", "charming"];

/// Packages from which a crate could get what it must not have.
const ABSENT: &[(&str, &[&str])] = &[("wire", SOURCES_OF_CHANCE), ("proto", SOURCES_OF_CHANCE)];
const SOURCES_OF_CHANCE: &[&str] = &["rand", "rand_core", "getrandom", "fastrand"];

const RULE_EDGE: &str = "ARCHITECTURE.md, \"Allowed edges\": arrows only point down, and the list is complete";
const RULE_HEAVY: &str = "ARCHITECTURE.md, \"Allowed edges\": heavy dependencies live in lab only";
const RULE_ABSENT: &str = "ARCHITECTURE.md, \"Invariants of absence\": wire and proto have no clock and no randomness";

/// Looks at every dependency (normal, for tests, for build scripts, for some target) of every package in the answer of
/// `cargo metadata --no-deps`. Says how many edges inside the workspace there are, and which ones may not be.
pub fn check(metadata: &Value) -> Result<(usize, Vec<Finding>), String> {
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    let mut edges = 0;
    let mut findings = Vec::new();
    for package in packages {
        let name = package["name"].as_str().ok_or("a package without a name")?;
        let from = short(name);
        let Some((_, allowed)) = ALLOWED.iter().find(|(crate_name, _)| *crate_name == from) else {
            findings.push(Finding {
                place: manifest(package),
                rule: RULE_EDGE,
                what: format!("the crate {from} is not in the list"),
            });
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let to = dependency["name"].as_str().ok_or("a dependency without a name")?;
            let kind = match dependency["kind"].as_str() {
                None => String::new(),
                Some(kind) => format!(" ({kind}-dependency)"),
            };
            let found = |rule, what| Finding { place: manifest(package), rule, what };
            if dependency["path"].is_string() {
                edges += 1;
                let to = short(to);
                if !allowed.contains(&to) {
                    findings.push(found(RULE_EDGE, format!("{from} → {to}{kind} is not an allowed edge")));
                }
            } else if HEAVY.contains(&to) && from != "lab" {
                findings.push(found(RULE_HEAVY, format!("{from} → {to}{kind}")));
            } else if dependency["kind"].is_null()
                && ABSENT.iter().any(|(crate_name, absent)| *crate_name == from && absent.contains(&to))
            {
                findings.push(found(RULE_ABSENT, format!("{from} → {to}")));
            }
        }
    }
    Ok((edges, findings))
}

/// The package's name in the list above.
fn short(package: &str) -> &str {
    match package {
        "laneway" => "socket",
        other => other.strip_prefix("laneway-").unwrap_or(other),
    }
}

fn manifest(package: &Value) -> String {
    let path = package["manifest_path"].as_str().unwrap_or("Cargo.toml");
    // From the folder of the crate on: the same on every machine.
    let from = path.rfind("/crates/").or_else(|| path.rfind("/fuzz/"));
    from.map_or(path, |at| &path[at + 1..]).to_owned()
}
