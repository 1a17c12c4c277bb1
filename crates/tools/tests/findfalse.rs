//! Owns the test of `findfalse` on programs that were compiled for it: it must find what two historic systems had, and
//! nothing in what they changed it to.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/findfalse").join(name)
}

fn findfalse(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_findfalse")).args(arguments).output().expect("findfalse was built for this test")
}

fn compiled(mut command: Command, to: &Path) -> String {
    let done = command.arg("-o").arg(to).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    to.display().to_string()
}

/// `None`, and a word about it, where there is no C compiler.
fn c_program(name: &str, flags: &[&str]) -> Option<String> {
    if Command::new("cc").arg("--version").output().is_err() {
        eprintln!("skipped: there is no C compiler (cc)");
        return None;
    }
    let mut command = Command::new("cc");
    command.args(flags).arg("-O1").arg(source("seeds.c"));
    Some(compiled(command, &folder().join(name)))
}

fn rust_program(name: &str, flags: &[&str]) -> String {
    let mut command = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    command.args(["--edition", "2024"]).args(flags).arg(source("seeds.rs"));
    compiled(command, &folder().join(name))
}

struct Found {
    code: Option<i32>,
    json: Value,
}

impl Found {
    fn by(arguments: &[&str]) -> Found {
        let output = findfalse(&[&["--json"], arguments].concat());
        let json = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
        Found { code: output.status.code(), json }
    }

    fn ours(&self) -> Vec<&Value> {
        self.json["findings"].as_array().into_iter().flatten().filter(|found| found["ours"] == true).collect()
    }

    fn names(&self, rule: &str) -> Vec<&str> {
        let mut names: Vec<&str> = self
            .ours()
            .iter()
            .filter(|found| found["rule"] == rule)
            .filter_map(|found| found["name"].as_str())
            .collect();
        names.sort_unstable();
        names
    }

    fn named(&self, name: &str) -> &Value {
        self.ours()
            .into_iter()
            .find(|found| found["name"] == name)
            .unwrap_or_else(|| panic!("{name} in {:#}", self.json))
    }
}

#[test]
fn c_as_it_was_is_found() {
    let Some(program) = c_program("seeds-c", &["-g"]) else { return };
    let found = Found::by(&[&program]);
    assert_eq!(found.code, Some(1));
    assert_eq!(found.names("array"), ["counters", "tcps_bind_fanout"]);
    let fanout = found.named("tcps_bind_fanout");
    assert_eq!(
        (&fanout["size_bytes"], &fanout["total_bytes"], &fanout["per_line"]),
        (&16.into(), &8192.into(), &4.into())
    );
    assert_eq!(
        (&fanout["type"], &fanout["field"], &fanout["offset_bytes"]),
        (&"tf_t".into(), &"tf_lock".into(), &8.into())
    );
    assert!(fanout["file"].as_str().is_some_and(|file| file.ends_with("seeds.c")), "{fanout}");
    assert_eq!(fanout["line"], 20);

    let route = found.named("dst_entry.__refcnt");
    assert_eq!(route["offset_bytes"], 64);
    assert!(
        route["beside"].as_array().is_some_and(|beside| beside[0] == "lwtstate"),
        "the pointer hurts most: {route}"
    );
    let structures: Vec<&Value> = found.ours().into_iter().filter(|found| found["rule"] == "structure").collect();
    assert_eq!(structures[0]["name"], "dst_entry.__refcnt", "a reference count beside a pointer is the hottest guess");

    let maybe = &found.json["maybe"];
    assert_eq!(maybe[0]["name"], "item_locks", "{maybe}");
    assert_eq!(maybe[1], Value::Null);
}

#[test]
fn c_as_it_became_is_clean() {
    let Some(program) = c_program("seeds-c-padded", &["-g", "-DPADDED"]) else { return };
    let found = Found::by(&[&program]);
    assert_eq!(found.names("array"), [""; 0]);
    // Beside the count lie two numbers that are written with it, and no longer what others read.
    assert_eq!(found.named("dst_entry.__refcnt")["beside"], serde_json::json!(["__use", "lastuse"]));
    let reasons = folder().join("padded.allow");
    std::fs::write(
        &reasons,
        "tf.tf_lock the chain that this lock guards\ndst_entry.__refcnt cold, and written by whoever counts\n",
    )
    .expect("a file");
    let found = Found::by(&[&program, "--allow", &reasons.display().to_string()]);
    assert_eq!((found.code, &found.json["open"]), (Some(0), &0.into()), "{:#}", found.json);
}

#[test]
fn a_lock_of_ones_own_and_a_longer_line_are_options() {
    let Some(program) = c_program("seeds-c-options", &["-g", "-DPADDED"]) else { return };
    let found = Found::by(&[&program, "--lock-type", "house_lock"]);
    assert_eq!((&found.named("house")["per_line"], &found.named("house")["total_bytes"]), (&16.into(), &128.into()));
    let found = Found::by(&[&program, "--line", "128"]);
    assert_eq!(found.names("array"), ["counters", "tcps_bind_fanout"], "padded to half of such a line");
}

#[test]
fn rust_as_it_was_is_found_and_as_it_became_is_clean() {
    let found = Found::by(&[&rust_program("seeds-rust", &["-g"])]);
    assert_eq!(found.code, Some(1));
    assert_eq!(
        found.names("array"),
        [
            "seeds::packed::Fanout.buckets",
            "seeds::packed::HITS",
            "seeds::packed::Shards.boxed",
            "seeds::packed::Shards.counted",
            "seeds::packed::Shards.optional",
            "seeds::packed::Shards.vec",
        ]
    );
    assert_eq!(found.names("structure"), ["seeds::packed::Bucket.lock", "seeds::packed::Route.refcnt"]);
    let fanout = found.named("seeds::packed::Fanout.buckets");
    assert_eq!(
        (&fanout["size_bytes"], &fanout["total_bytes"], &fanout["per_line"]),
        (&16.into(), &8192.into(), &4.into())
    );
    assert_eq!(found.named("seeds::packed::Shards.vec")["total_bytes"], Value::Null, "no one can know");
    let route = found.named("seeds::packed::Route.refcnt");
    assert_eq!((&route["offset_bytes"], &route["beside"]), (&64.into(), &serde_json::json!(["lwtstate"])));
    assert!(found.ours().iter().all(|found| found["file"].as_str().is_some_and(|file| file.ends_with("seeds.rs"))));
    let foreign = found.json["findings"].as_array().into_iter().flatten().filter(|found| found["ours"] == false);
    assert!(
        foreign.into_iter().any(|found| found["name"] == "alloc::sync::ArcInner.strong"),
        "told apart, and not kept back"
    );
}

#[test]
fn without_types_it_says_which_flag_is_missing() {
    for (program, what) in [
        (rust_program("seeds-rust-bare", &["-C", "debuginfo=0", "-C", "strip=symbols"]), "debug = true"),
        (source("seeds.rs").display().to_string(), "ELF"),
        ("/no/such/program".into(), "cannot be read"),
    ] {
        let output = findfalse(&[&program]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
        assert!(said.contains(what) && said.contains(&program), "{said}");
    }
    let Some(program) = c_program("seeds-c-bare", &["-s"]) else { return };
    let output = findfalse(&[&program]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("compile with -g"), "{output:?}");
}

#[test]
fn an_exception_without_a_reason_is_misuse() {
    let program = rust_program("misuse", &["-g"]);
    for (text, what) in [
        ("a::B.c", "has no reason"),
        ("a::B.c because", "has no reason"),
        ("x one two three\nx one two three", "twice"),
    ] {
        let file = folder().join(format!("wrong{}.allow", text.len()));
        std::fs::write(&file, text).expect("a file");
        let output = findfalse(&[&program, "--allow", &file.display().to_string()]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(what) && said.contains(".allow:"), "{said}");
    }
    let file = folder().join("unused.allow");
    std::fs::write(&file, "# what follows is gone\nno::such::Type.field it was there once\n").expect("a file");
    let output = findfalse(&[&program, "--allow", &file.display().to_string()]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("no::such::Type.field matches nothing"), "{output:?}");
}
