//! Owns the reading of the tree: every text file that belongs to the project.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A file of the project.
#[derive(Clone, Debug)]
pub struct Source {
    /// Path from the root, with slashes.
    pub path: String,
    /// What it says.
    pub text: String,
}

/// Folders that hold what was made and not written.
const MADE: &[&str] =
    &[".git", "target", "out", "corpus", "corpus-new", "artifacts", "coverage", "proptest-regressions"];

/// The root of the workspace that this program was built from, or the present folder if that is a workspace.
pub fn root() -> PathBuf {
    let here = PathBuf::from(".");
    if here.join("crates/tools").is_dir() { here } else { Path::new(env!("CARGO_MANIFEST_DIR")).join("../..") }
}

/// Every text file under `root`, sorted by path.
pub fn read(root: &Path) -> io::Result<Vec<Source>> {
    let mut sources = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let path = entry.path();
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let kind = entry.file_type()?;
            if kind.is_dir() && !MADE.contains(&name) {
                folders.push(path);
            } else if kind.is_file() && is_text(name) {
                let text = fs::read_to_string(&path)?;
                let path = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().replace('\\', "/");
                sources.push(Source { path, text });
            }
        }
    }
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(sources)
}

fn is_text(name: &str) -> bool {
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    matches!(extension, "rs" | "md" | "toml" | "sh" | "pkt" | "snap" | "py") || matches!(name, "Makefile" | "run")
}
