//! Who reads no more of what `laneway-lab` prints, as `| head`, makes it fail no more than it makes `laneway`.

use std::process::{Command, Stdio};

#[test]
fn who_has_closed_stdout_is_no_failure() {
    for arguments in [
        &["bench", "rr", "--conns", "1", "--rounds", "1", "--seconds", "0.02"][..],
        &["bench", "rr", "--conns", "1", "--rounds", "1", "--seconds", "0.02", "--json"],
        &["s4", "--quick", "--seconds", "0.02"],
    ] {
        let closed = || {
            let (reader, writer) = std::io::pipe().expect("a pipe");
            drop(reader);
            Stdio::from(writer)
        };
        let mut command = Command::new(env!("CARGO_BIN_EXE_laneway-lab"));
        let status = command.args(arguments).stdout(closed()).stderr(closed()).status().expect("it can be run");
        assert_eq!(status.code(), Some(0), "{arguments:?}");
    }
}

/// What takes minutes is not begun for a page that has no place, and what was measured is not lost with one.
#[test]
fn a_page_without_a_place_is_refused_before_anything_is_measured() {
    let lab = |report: &str| {
        let arguments = ["s4", "--quick", "--seconds", "0.02", "--report", report];
        let mut command = Command::new(env!("CARGO_BIN_EXE_laneway-lab"));
        let output = command.args(arguments).output().expect("it can be run");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, out, err) = lab("/no/such/place/s4.html");
    assert_eq!((code, &*out), (Some(2), ""), "{err}");
    assert!(err.contains("/no/such/place/s4.html") && err.contains("another place"), "{err}");
    // Elsewhere that is standard output, which says other things here.
    let (code, out, err) = lab("-");
    assert_eq!((code, &*out), (Some(2), ""), "{err}");
    assert!(err.contains("./-"), "{err}");
    // It can be opened, and not be written.
    let (code, out, err) = lab("/dev/full");
    assert_eq!(code, Some(1), "{err}");
    assert!(out.contains("t0") && err.contains("/dev/full"), "{out}{err}");
}
