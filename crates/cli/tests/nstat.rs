//! `laneway nstat` between two calls: what it remembers of which stack, and where.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let place = std::env::temp_dir().join(format!("laneway-nstat-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&place);
        for directory in ["history", "a", "b"] {
            std::fs::create_dir_all(place.join(directory)).expect("a directory");
        }
        Place(place)
    }

    fn nstat(&self, socket: &Path, more: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_laneway"));
        command.arg("nstat").arg("--control").arg(socket).args(more);
        command.env("LANEWAY_RUNTIME_DIR", self.0.join("history")).output().expect("the program can be executed")
    }

    /// What it says of the one counter of a stack that is process 1, this old, and has counted this far.
    fn says(&self, socket: &str, uptime_ms: u64, value: u64) -> Option<u64> {
        let socket = self.0.join(socket);
        let stack = stack(&socket, uptime_ms, value);
        let output = self.nstat(&socket, &["--json"]);
        stack.join().expect("somebody has asked");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let said: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        said["counters"]["TcpInSegs"].as_u64()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Answers one client's two questions.
fn stack(socket: &Path, uptime_ms: u64, value: u64) -> JoinHandle<()> {
    let _ = std::fs::remove_file(socket);
    let listener = UnixListener::bind(socket).expect("a socket");
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("somebody asks");
        let mut questions = BufReader::new(client.try_clone().expect("a second handle"));
        for answer in [
            format!(
                r#"{{"laneway":"0","protocol":1,"pid":1,"device":"d","lanes":1,"uptime_ms":{uptime_ms},"sharing":"lane"}}"#
            ),
            format!(r#"{{"name":"TcpInSegs","value":{value}}}"#),
        ] {
            questions.read_line(&mut String::new()).expect("a question");
            client.write_all(format!("{answer}\n{{\"end\":true,\"rows\":1}}\n").as_bytes()).expect("it is read");
        }
    })
}

#[test]
fn a_stack_that_was_started_anew_counts_from_zero() {
    let place = Place::new("anew");
    assert_eq!(place.says("a/x.sock", 100_000, 50), Some(50));
    assert_eq!(place.says("a/x.sock", 100_100, 70), Some(20));
    // The same process number, and fewer counts; later more.
    assert_eq!(place.says("a/x.sock", 3_000, 30), Some(30));
    assert_eq!(place.says("a/x.sock", 3_000, 31), Some(1));
    assert_eq!(place.says("a/x.sock", 0, 90), Some(90));
}

#[test]
fn two_stacks_of_one_name_are_remembered_apart() {
    let place = Place::new("apart");
    assert_eq!(place.says("a/x.sock", 100_000, 50), Some(50));
    assert_eq!(place.says("b/x.sock", 100_000, 80), Some(80));
    assert_eq!(place.says("a/x.sock", 100_000, 51), Some(1));
    assert_eq!(place.says("b/x.sock", 100_000, 82), Some(2));
}

/// A day after the last call, and not while it may be asked again; nobody else's file.
#[test]
fn what_was_remembered_of_a_stack_that_is_gone_goes_after_a_day() {
    let place = Place::new("gone");
    let histories = place.0.join("history");
    let names = || {
        let files = std::fs::read_dir(&histories).expect("a directory").map(|entry| entry.expect("a file").file_name());
        files.collect::<std::collections::BTreeSet<_>>()
    };
    let grows_old = |name: &std::ffi::OsStr| {
        let long_ago = SystemTime::now() - Duration::from_secs(25 * 3_600);
        let file = std::fs::File::options().write(true).open(histories.join(name)).expect("a file");
        file.set_modified(long_ago).expect("it is ours");
    };
    place.says("a/gone.sock", 1_000, 5);
    let gone = names().pop_first().expect("a history");
    let mut crashed = gone.clone();
    crashed.push(".4711");
    place.says("b/gone.sock", 1_000, 5);
    place.says("a/there.sock", 1_000, 5);
    for other in [crashed.as_os_str(), "notes.json".as_ref()] {
        std::fs::write(histories.join(other), "{}").expect("a file");
    }
    let mut left = names();
    let young = left.iter().find(|name| name.to_string_lossy().contains("b%2Fgone")).expect("a history").clone();
    left.iter().filter(|name| **name != young).for_each(|name| grows_old(name));
    std::fs::remove_file(place.0.join("a/there.sock")).expect("it is ours");
    let _there = UnixListener::bind(place.0.join("a/there.sock")).expect("a socket");

    place.says("x.sock", 1_000, 5);
    let new = names().into_iter().find(|name| name.to_string_lossy().contains("x.sock")).expect("a history");
    assert!(left.remove(&gone) && left.remove(&crashed) && left.insert(new));
    assert_eq!(names(), left);
}

/// The place that somebody names is not made for them, and what cannot be kept leaves nothing behind.
#[test]
fn values_that_cannot_be_kept_leave_nothing() {
    let place = Place::new("kept");
    let (socket, file) = (place.0.join("x.sock"), place.0.join("a/h"));
    let asked = |shell: &str, file: &Path| {
        let answering = stack(&socket, 1, 5);
        let mut command = Command::new("sh");
        command.args([
            "-c",
            &format!("{shell} exec \"$0\" \"$@\""),
            env!("CARGO_BIN_EXE_laneway"),
            "nstat",
            "--control",
        ]);
        let output = command.arg(&socket).arg("--history").arg(file).output().expect("there is a shell");
        answering.join().expect("somebody has asked");
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && message.contains("--history"), "{:?} {message}", output.status);
    };
    asked("", &place.0.join("new/h"));
    assert!(!place.0.join("new").exists());
    // As on a full disk.
    asked("trap '' XFSZ; ulimit -f 0;", &file);
    assert_eq!(std::fs::read_dir(place.0.join("a")).expect("a directory").count(), 0);
}

/// What has no end is not read to it, and nothing gets a file in its place: as root nobody had /dev/null any more. The pipe stands for
/// that here, which is everybody's.
#[test]
fn values_are_kept_in_files_alone() {
    let place = Place::new("pipe");
    let (socket, pipe) = (place.0.join("x.sock"), place.0.join("pipe"));
    let made = Command::new("mkfifo").arg(&pipe).status().expect("coreutils are there");
    assert!(made.success());
    // Both ways, so that nobody waits for who would open the other end.
    let _ends = std::fs::File::options().read(true).write(true).open(&pipe).expect("it is ours");
    for history in [&pipe, &place.0] {
        let answering = stack(&socket, 1, 5);
        let mut command = Command::new("timeout");
        command.args(["10", env!("CARGO_BIN_EXE_laneway"), "nstat", "--control"]).arg(&socket);
        let output = command.arg("--history").arg(history).output().expect("coreutils are there");
        answering.join().expect("somebody has asked");
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{}: {message}", history.display());
        assert!(message.contains("is no file") && message.contains("another place"), "{message}");
    }
}

/// Nothing is said of what has not grown; a name that there is not is another matter.
#[test]
fn a_prefix_of_no_name_is_misuse() {
    let place = Place::new("prefix");
    let socket = place.0.join("x.sock");
    let asked = |prefixes: &[&str]| {
        let answering = stack(&socket, 1, 0);
        let output = place.nstat(&socket, prefixes);
        answering.join().expect("somebody has asked");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(asked(&["Tcp"]), (Some(0), String::new()));
    for wrong in [&["tcp"][..], &["Tcp", "Tcp*"], &["--json", "TcpInSegz"]] {
        let (code, message) = asked(wrong);
        let name = wrong.last().expect("there is one");
        assert!(code == Some(2) && message.contains(&format!("'{name}'")), "{wrong:?}: {code:?} {message}");
        assert!(message.contains("laneway nstat -az"), "{wrong:?}: {message}");
    }
    assert_eq!(std::fs::read_dir(place.0.join("history")).expect("a directory").count(), 1);
}

/// Only who is not root can have no usual place; root becomes nobody in a user namespace, and the test says so where none can be had.
#[test]
fn absolute_values_need_no_place_to_remember() {
    let place = Place::new("absolute");
    let socket = place.0.join("x.sock");
    let nobody = |arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--user", env!("CARGO_BIN_EXE_laneway"), "nstat"]).args(arguments).arg("--control").arg(&socket);
        let output = command.env_remove("LANEWAY_RUNTIME_DIR").env_remove("XDG_RUNTIME_DIR").output();
        let output = output.expect("util-linux is there");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned(), output.stdout)
    };
    let answering = stack(&socket, 1, 5);
    let (code, message, _) = nobody(&[]);
    if message.contains("unshare:") {
        return eprintln!("skipped: {message}");
    }
    answering.join().expect("somebody has asked");
    assert!(code == Some(2) && message.contains("with -a"), "{code:?} {message}");
    let answering = stack(&socket, 1, 5);
    let (code, message, said) = nobody(&["-a"]);
    answering.join().expect("somebody has asked");
    assert!(code == Some(0) && String::from_utf8_lossy(&said).contains("TcpInSegs"), "{code:?} {message}");
}
