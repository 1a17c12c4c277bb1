//! One test per script under `scripts/`, named after it. Those under `scripts/known_failures` must fail: one that passes
//! has been repaired, and belongs with the others.

use libtest_mimic::{Arguments, Trial};
use std::path::{Path, PathBuf};

fn main() {
    let args = Arguments::from_args();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
    let mut paths = Vec::new();
    collect(&root, &mut paths);
    paths.sort();
    assert!(!paths.is_empty(), "no scripts under {}", root.display());
    let trials = paths.into_iter().map(|path| trial(&root, path)).collect();
    libtest_mimic::run(&args, trials).exit();
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the scripts are there").flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, paths);
        } else if path.extension().is_some_and(|e| e == "pkt") {
            paths.push(path);
        }
    }
}

fn trial(root: &Path, path: PathBuf) -> Trial {
    let name = path.strip_prefix(root).unwrap_or(&path).with_extension("").display().to_string();
    let file = format!("scripts/{name}.pkt");
    Trial::test(name.clone(), move || {
        // Who cannot be read has not failed: nothing was tried.
        let script = laneway_conformance::read_file(&path, &file)?;
        match (laneway_conformance::run(&script), name.starts_with("known_failures")) {
            (Ok(()), true) => Err("this passes now: move it out of known_failures".into()),
            (Err(_), true) | (Ok(()), false) => Ok(()),
            (Err(e), false) => Err(e.into()),
        }
    })
}
