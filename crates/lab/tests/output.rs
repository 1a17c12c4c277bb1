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
