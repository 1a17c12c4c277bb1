//! `laneway watch` beside a stack that does not answer every second.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::time::Duration;

/// A stack that was stopped for a second, or a reader who was: the lines that were due meanwhile are not made up for.
#[test]
fn every_line_is_about_an_interval() {
    let socket = std::env::temp_dir().join(format!("laneway-watch-{}", std::process::id()));
    let _ = std::fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket).expect("a socket");
    let stack = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("somebody asks");
        let mut questions = BufReader::new(client.try_clone().expect("a second handle"));
        let hello = r#"{"laneway":"0","protocol":1,"pid":1,"device":"d","lanes":1,"uptime_ms":1,"sharing":"lane"}"#;
        let counter = r#"{"name":"TcpPassiveOpens","value":1}"#;
        for (answer, pause_ms) in [(hello, 0), (counter, 0), (counter, 1_000), (counter, 0), (counter, 0), (counter, 0)]
        {
            questions.read_line(&mut String::new()).expect("a question");
            std::thread::sleep(Duration::from_millis(pause_ms));
            client.write_all(format!("{answer}\n{{\"end\":true,\"rows\":1}}\n").as_bytes()).expect("it is read");
        }
    });
    let output = Command::new(env!("CARGO_BIN_EXE_laneway"))
        .args(["watch", "-n", "4", "--interval", "200ms", "--json", "--control"])
        .arg(&socket)
        .output()
        .expect("the program can be executed");
    stack.join().expect("somebody has asked");
    let _ = std::fs::remove_file(&socket);
    let lines: Vec<serde_json::Value> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("each line is JSON"))
        .collect();
    let seconds: Vec<f64> = lines.iter().map(|line| line["seconds"].as_f64().expect("a number")).collect();
    assert!(seconds.len() == 4 && seconds.iter().all(|seconds| *seconds > 0.1), "{seconds:?}");
}
