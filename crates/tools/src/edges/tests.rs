use super::*;
use serde_json::json;

fn package(name: &str, dependencies: Value) -> Value {
    let folder = short(name);
    json!({ "name": name, "manifest_path": format!("/somewhere/crates/{folder}/Cargo.toml"), "dependencies": dependencies })
}

fn inside(name: &str, kind: Value) -> Value {
    json!({ "name": name, "kind": kind, "path": "/somewhere" })
}

fn outside(name: &str, kind: Value) -> Value {
    json!({ "name": name, "kind": kind })
}

fn findings(packages: &[Value]) -> Vec<Finding> {
    check(&json!({ "packages": packages })).expect("well-formed").1
}

#[test]
fn what_is_allowed_passes_and_is_counted() {
    let stack = package(
        "laneway-stack",
        json!([
            inside("laneway-wire", Value::Null),
            inside("laneway-proto", Value::Null),
            outside("hashbrown", Value::Null)
        ]),
    );
    let socket = package("laneway", json!([inside("laneway-stack", Value::Null)]));
    let (edges, findings) = check(&json!({ "packages": [stack, socket] })).expect("well-formed");
    assert_eq!((edges, findings), (3, vec![]));
}

#[test]
fn an_arrow_that_points_up_is_named_with_its_rule() {
    let found = findings(&[package("laneway-proto", json!([inside("laneway-stack", Value::Null)]))]);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].what, "proto → stack is not an allowed edge");
    assert_eq!(found[0].place, "crates/proto/Cargo.toml");
    assert!(found[0].rule.contains("Allowed edges"));
}

#[test]
fn an_edge_that_only_tests_have_is_an_edge() {
    let found = findings(&[package("laneway-table", json!([inside("laneway-wire", json!("dev"))]))]);
    assert_eq!(found[0].what, "table → wire (dev-dependency) is not an allowed edge");
}

#[test]
fn a_crate_that_nobody_listed_is_named() {
    let found = findings(&[package("laneway-shortcut", json!([]))]);
    assert_eq!(found[0].what, "the crate shortcut is not in the list");
}

#[test]
fn heavy_dependencies_are_for_the_lab() {
    let heavy = json!([outside("smoltcp", Value::Null)]);
    assert_eq!(findings(&[package("laneway-lab", heavy.clone())]), []);
    assert_eq!(findings(&[package("laneway-cli", heavy)])[0].what, "cli → smoltcp");
}

#[test]
fn proto_gets_no_dice_but_its_tests_may_throw_them() {
    let found = findings(&[package("laneway-proto", json!([outside("rand", Value::Null)]))]);
    assert_eq!(found[0].what, "proto → rand");
    assert_eq!(findings(&[package("laneway-proto", json!([outside("rand", json!("dev"))]))]), []);
}

#[test]
fn nonsense_is_an_error_and_not_a_pass() {
    assert!(check(&json!({})).is_err());
    assert!(check(&json!({ "packages": [{}] })).is_err());
}

/// What is left of a list when every crate that needs nothing more is taken away, again and again: the circles, and what stands on
/// them.
fn circles<'a>(list: &[(&'a str, &[&'a str])]) -> Vec<&'a str> {
    let mut left: Vec<_> = list.to_vec();
    loop {
        let names: Vec<&str> = left.iter().map(|(name, _)| *name).collect();
        left.retain(|(_, needs)| needs.iter().any(|need| names.contains(need)));
        if left.len() == names.len() {
            return names;
        }
    }
}

#[test]
fn the_list_mentions_only_crates_that_it_has_and_has_no_circle() {
    for (from, allowed) in ALLOWED {
        for to in *allowed {
            assert!(ALLOWED.iter().any(|(name, _)| name == to), "{from} points at {to}, which is not listed");
        }
    }
    assert_eq!(circles(ALLOWED), [""; 0]);
}

#[test]
fn a_circle_of_any_length_is_found() {
    assert_eq!(circles(&[("a", &["b"]), ("b", &["c"]), ("c", &[])]), [""; 0]);
    assert_eq!(circles(&[("a", &["b"]), ("b", &["a"])]), ["a", "b"]);
    assert_eq!(circles(&[("a", &["b"]), ("b", &["c"]), ("c", &["a", "d"]), ("d", &[])]), ["a", "b", "c"]);
}

/// `a→b` and `a→{b,c}` in the code spans of ARCHITECTURE.md's list.
#[test]
fn the_page_and_the_program_have_the_same_list() {
    let page = include_str!("../../../../ARCHITECTURE.md");
    let section = page.split("\n## ").find(|section| section.starts_with("Allowed edges")).expect("the section");
    let mut written = std::collections::BTreeSet::new();
    for span in section.split('`').skip(1).step_by(2) {
        if let Some((from, to)) = span.split_once('→') {
            let to = to.trim_matches(['{', '}']);
            written.extend(to.split(',').map(|to| (from, to)));
        }
    }
    let allowed = ALLOWED.iter().flat_map(|(from, to)| to.iter().map(|to| (*from, *to))).collect();
    assert_eq!(written, allowed);
}
