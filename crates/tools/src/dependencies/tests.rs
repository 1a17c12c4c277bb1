use super::*;

fn tree(manifest: &str, page: &str) -> Vec<String> {
    let source = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
    let sources = [source("crates/one/Cargo.toml", manifest), source(PAGE, page)];
    check(&sources).into_iter().map(|finding| format!("{}: {}", finding.place, finding.what)).collect()
}

const PAGE_OF_TWO: &str =
    "# Dependencies\n\n| crate | dependency | why |\n|---|---|---|\n| one | `left`, `right` | `why` |\n";

#[test]
fn what_is_listed_and_named_is_right() {
    let manifest = "[dependencies]\nleft = \"1\"\nlaneway-wire.workspace = true\n[target.'cfg(x)'.dev-dependencies]\nright = \"2\"\n";
    assert!(tree(manifest, PAGE_OF_TWO).is_empty());
}

#[test]
fn what_is_missing_on_either_side_is_found() {
    let manifest = "[dependencies]\nleft = \"1\"\n[dependencies.third]\nversion = \"3\"\n";
    assert_eq!(
        tree(manifest, PAGE_OF_TWO),
        [
            "crates/one/Cargo.toml: third is not on docs/decisions/0010-dependencies.md",
            "docs/decisions/0010-dependencies.md:5: right is in no manifest",
        ]
    );
}

#[test]
fn a_page_that_is_not_there_is_found() {
    assert_eq!(check(&[]).len(), 1);
}
