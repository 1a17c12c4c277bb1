//! What a stack says cannot order the terminal about on which it is shown: it may be another user's program that answers.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Command, Output};

/// Clears the screen, twice, and gives the window another name.
const ORDER: &str = r"\u001b[2J\u009b2J\u001b]0;x\u0007\u007f";

/// What this command says when a stack answers its questions, one line each.
fn asked(name: &str, arguments: &[&str], answers: Vec<String>) -> Output {
    let socket: PathBuf = std::env::temp_dir().join(format!("laneway-terminal-{name}-{}", std::process::id()));
    let _ = std::fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket).expect("a socket");
    let stack = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("somebody asks");
        let mut questions = BufReader::new(client.try_clone().expect("a second handle"));
        for answer in answers {
            questions.read_line(&mut String::new()).expect("a question");
            client.write_all(format!("{answer}\n{{\"end\":true,\"rows\":1}}\n").as_bytes()).expect("it is read");
        }
    });
    let output = Command::new(env!("CARGO_BIN_EXE_laneway"))
        .args(arguments)
        .arg("--control")
        .arg(&socket)
        .output()
        .expect("the program can be executed");
    stack.join().expect("somebody has asked");
    let _ = std::fs::remove_file(&socket);
    output
}

/// It is said, and nothing of it is an order.
fn harmless(said: &[u8]) {
    let said = String::from_utf8_lossy(said);
    assert!(said.contains("[2J"), "nothing was said: {said:?}");
    assert!(!said.contains(|c: char| c.is_control() && c != '\n' && c != '\t'), "{said:?}");
}

fn hello() -> String {
    let hello = r#""protocol":1,"pid":1,"device":"d","lanes":1,"uptime_ms":1,"sharing":"lane""#;
    format!(r#"{{"laneway":"0",{hello}}}"#)
}

#[test]
fn rows_of_ss() {
    let row = format!(
        r#"{{"state":"{ORDER}","recv_q":0,"send_q":0,"local":"10.0.0.1:80","timer":{{"name":"{ORDER}","due_ms":1,"retries":1}}}}"#
    );
    for more in [&["ss"][..], &["ss", "--json"]] {
        let output = asked(more.last().unwrap_or(&"ss"), more, vec![row.clone()]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        harmless(&output.stdout);
        if more.len() > 1 {
            let row: serde_json::Value = serde_json::from_slice(&output.stdout).expect("still JSON");
            assert_eq!(row["state"], "\u{1b}[2J\u{9b}2J\u{1b}]0;x\u{7}\u{7f}", "and it says the same");
        }
    }
}

#[test]
fn names_of_counters() {
    let counter = format!(r#"{{"name":"{ORDER}","value":7}}"#);
    let output = asked("nstat", &["nstat", "-a"], vec![hello(), counter]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    harmless(&output.stdout);
}

#[test]
fn the_reason_of_a_refusal() {
    let output = asked("refused", &["ss"], vec![format!(r#"{{"error":"{ORDER}"}}"#)]);
    assert_eq!(output.status.code(), Some(1));
    harmless(&output.stderr);
}
