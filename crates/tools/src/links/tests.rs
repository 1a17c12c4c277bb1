use super::*;

fn page(path: &str, text: &str) -> Source {
    Source { path: path.to_owned(), text: text.to_owned() }
}

fn check_pages(pages: &[Source]) -> Vec<String> {
    let there = |path: &str| path == "." || path == "docs" || pages.iter().any(|page| page.path == path);
    check(pages, there).into_iter().map(|finding| finding.what).collect()
}

#[test]
fn links_that_lead_somewhere_pass() {
    let readme = page(
        "README.md",
        "See [the path](docs/packet-path.md#one-syn-one-fin) and [us](#laneway).\n# Laneway\n[web](https://example.org/x)",
    );
    let path = page(
        "docs/packet-path.md",
        "## One SYN, one FIN\n[up](../README.md), [here](./packet-path.md), [docs](../docs/)",
    );
    assert_eq!(check_pages(&[readme, path]), [""; 0]);
}

#[test]
fn a_link_to_nothing_is_found() {
    let found = check_pages(&[page("docs/a.md", "[b](b.md)\n\n[c]: ../c.md\n[d](../../d.md)")]);
    assert_eq!(
        found,
        [
            "the link b.md leads to docs/b.md, which is not there",
            "the link ../c.md leads to c.md, which is not there",
            "the link ../../d.md leads out of the tree"
        ]
    );
}

#[test]
fn a_heading_that_was_renamed_is_found() {
    let found = check_pages(&[page("a.md", "# New name\n[x](#old-name)")]);
    assert_eq!(found, ["a.md has no heading #old-name"]);
}

#[test]
fn a_file_that_was_moved_is_found_by_its_name() {
    let found = check_pages(&[page("a.md", "start at `crates/stack/src/worker.rs` and `docs/` and `crates/*/src`")]);
    assert_eq!(found, ["crates/stack/src/worker.rs is not there"]);
}

#[test]
fn what_is_fenced_is_not_a_link() {
    assert_eq!(check_pages(&[page("a.md", "```\n[x](nowhere.md) `crates/nowhere`\n```\n")]), [""; 0]);
}
