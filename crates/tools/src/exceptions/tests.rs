use super::*;

const WHOLE: &str = r#"
[[exception]]
target = "https://www.rfc-editor.org/rfc/rfc6298#section-2"
level = "SHOULD"
quote = "Whenever RTO is computed, if it is less than 1 second, then the RTO SHOULD be rounded up to 1 second."
what = "200 ms"
why = "as Linux"
code = "crates/proto/src/tcp/rtt.rs"
"#;

fn whats(text: &str) -> Vec<String> {
    let source = Source { path: "specs/exceptions/tcp.toml".to_owned(), text: text.to_owned() };
    let (_, findings) = check(&[source], |path| path == "crates/proto/src/tcp/rtt.rs");
    findings.into_iter().map(|finding| finding.what).collect()
}

#[test]
fn a_whole_entry_passes_and_is_counted() {
    let source = Source { path: "specs/exceptions/tcp.toml".to_owned(), text: WHOLE.repeat(2) };
    assert_eq!(check(&[source], |_| true), (2, vec![]));
}

#[test]
fn an_entry_without_a_reason_is_found() {
    assert_eq!(whats(&WHOLE.replace("why = \"as Linux\"\n", "")), ["entry 1 has no why"]);
    assert_eq!(whats(&WHOLE.replace("as Linux", " ")), ["entry 1 has no why"]);
}

#[test]
fn an_entry_whose_code_has_moved_is_found() {
    assert_eq!(
        whats(&WHOLE.replace("tcp/rtt.rs", "tcp/rto.rs")),
        ["entry 1: crates/proto/src/tcp/rto.rs is not there"]
    );
}

#[test]
fn what_is_no_section_no_level_or_no_toml_is_found() {
    assert_eq!(whats(&WHOLE.replace("https://www.rfc-editor.org/rfc/rfc6298", "RFC 6298")).len(), 1);
    assert_eq!(whats(&WHOLE.replace("SHOULD\"", "OUGHT\"")).len(), 1);
    assert_eq!(whats("[[exception]").len(), 1);
    assert_eq!(whats(""), ["no [[exception]]"]);
}
