//! Misuse of the command line: one clear sentence that says what to do, and exit code 2. Nothing here needs a privilege.

use laneway_stack::device::Medium;
use laneway_stack::device::pcap::{Direction, PcapngWriter};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn laneway(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_laneway")).args(arguments).output().expect("the program can be executed")
}

/// Exit code 2, and a message on stderr that contains all of these.
fn refused(arguments: &[&str], says: &[&str]) {
    let output = laneway(arguments);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
    for part in says {
        assert!(message.contains(part), "{arguments:?}: {part:?} is not in {message}");
    }
    assert!(!message.contains("panicked"), "{arguments:?}: {message}");
}

fn serve(more: &[&str]) -> Vec<&'static str> {
    let mut arguments = vec!["serve", "/", "--tun", "lwmisuse0"];
    arguments.extend(more.iter().map(|s| &*String::leak((*s).to_owned())));
    arguments
}

#[test]
fn arguments_that_cannot_be() {
    refused(&[], &["Usage"]);
    refused(&["frobnicate"], &["frobnicate"]);
    refused(&["serve"], &["DIR"]);
    refused(&serve(&[]), &["--addr"]);
    refused(&serve(&["--addr", "10.0.0.2"]), &["no prefix length", "10.0.0.2/24"]);
    refused(&serve(&["--addr", "10.0.0.299/24"]), &["no IP address"]);
    refused(&serve(&["--addr", "10.0.0.2/33"]), &["0 to 32"]);
    refused(&serve(&["--addr", "fd00::2/129"]), &["0 to 128"]);
    refused(&serve(&["--addr", "10.77.1.0/24"]), &["name of its network", "choose"]);
    refused(&serve(&["--addr", "10.77.1.255/24"]), &["broadcast", "choose"]);
    refused(&serve(&["--addr", "224.0.0.1/24"]), &["group", "choose"]);
    refused(&serve(&["--addr", "10.77.1.2/24", "--addr", "10.77.1.2/24"]), &["given twice", "remove"]);
    refused(&serve(&["--addr", "10.77.1.2/32"]), &["second address", "choose"]);
    refused(&serve(&["--addr", "10.77.1.2/24", "--host-addr", "10.77.1.2/24"]), &["both ends"]);
    let says = ["10.79.0.1 cannot be the kernel's end", "in no network of the stack's", "choose"];
    refused(&serve(&["--addr", "10.77.1.2/24", "--host-addr", "10.79.0.1/24"]), &says);
    refused(&serve(&["--addr", "10.77.1.2/24", "--gateway", "10.77.1.2"]), &["the stack's own", "choose"]);
    refused(&serve(&["--addr", "10.77.1.2/24", "--gateway", "10.77.1.255"]), &["broadcast", "choose"]);
    refused(&serve(&["--addr", "10.77.1.2/24", "--seed", "7"]), &["--fault"]);
    refused(&serve(&["--addr", "127.0.0.5/8"]), &["overlaps", "interface lo", "choose"]);
    refused(&serve(&["--addr", "10.77.1.2/24", "--port", "0"]), &["port"]);
    refused(&serve(&["--addr", "10.77.1.2/24", "--port", "70000"]), &["port"]);
    refused(&serve(&["--addr", "10.77.1.2/24", "--lanes", "0"]), &["1 to 256"]);
    for bytes in ["1279", "65536", "many"] {
        let says = ["1280 to 65535", "the kernel takes the IPv6 addresses"];
        refused(&serve(&["--addr", "10.77.1.2/24", "--mtu", bytes]), &says);
    }
    refused(&serve(&["--addr", "10.77.1.2/24", "--msl", "soon"]), &["no duration", "30s"]);
    refused(&serve(&["--addr", "10.77.1.2/24", "--msl", "0s"]), &["--msl", "from 10ms to 600s"]);
    refused(&serve(&["--addr", "10.77.1.2/24", "--msl", "11m"]), &["--msl", "from 10ms to 600s"]);
    refused(&serve(&["--addr", "10.77.1.2/24", "--spin", "2s"]), &["--spin", "from 0s to 1s"]);
    refused(&serve(&["--addr", "10.77.1.2/24", "--fault", "loss=1"]), &["no percentage", "loss=1%"]);
    refused(&serve(&["--addr", "10.77.1.2/24", "--fault", "fire=1%"]), &["no fault"]);
    refused(&serve(&["--addr", "10.77.1.2/24", "--fault", "loss=1%, loss=2%"]), &["'loss' is given twice"]);
    refused(&serve(&["--addr", "10.77.1.2/24", "--sharing", "none"]), &["lane", "global", "decomposed"]);
    refused(&["demo", "--cores", "0"], &["1 or more"]);
    refused(&["watch", "-n", "0"], &["--count", "1 or more"]);
    refused(&["lanes", "-n", "0"], &["--count", "1 or more"]);
    refused(&["demo", "--cores", "100000"], &["may use"]);
    refused(&["demo", "--msl", "0s"], &["--msl", "from 10ms to 600s"]);
    refused(&["demo", "--conns", "0"], &["conns"]);
    refused(&["demo", "--seconds", "0"], &["--seconds", "from 0.01 to 60"]);
    refused(&["demo", "--pcap", "-"], &["'-' for '--pcap", "./-", "/dev/stdout"]);
    refused(&serve(&["--addr", "10.77.1.2/24", "--pcap", "-"]), &["'-' for '--pcap", "./-", "/dev/stdout"]);
    refused(&["demo", "--pcap", "/no/such/place/x.pcapng", "--seconds", "0.01"], &["/no/such/place", "another place"]);
}

/// A value below zero is a wrong value, and no option that nobody knows; what is no number is told what would be right, too.
#[test]
fn numbers_that_cannot_be() {
    for (arguments, says) in [
        (serve(&["--port", "-1"]), "from 1 to 65535"),
        (serve(&["--lanes", "-1"]), "from 1 to 256"),
        (serve(&["--mtu", "-1"]), "from 1280 to 65535"),
        (serve(&["--msl", "-1"]), "30s"),
        (serve(&["--msl", "-1s"]), "30s"),
        (serve(&["--spin", "-1us"]), "50us"),
        (serve(&["--seed", "-1"]), "0 or more"),
        (vec!["demo", "--conns", "-1"], "from 1 to 20000"),
        (vec!["demo", "--cores", "-1"], "1 or more"),
        (vec!["demo", "--rounds", "-1"], "from 1 to 100"),
        (vec!["demo", "--seconds", "-1"], "from 0.01 to 60"),
        (vec!["watch", "-n", "-1"], "1 or more"),
        (vec!["watch", "--interval", "-1s"], "500ms"),
        (vec!["lanes", "-n", "-1"], "1 or more"),
        (vec!["trace", "--port", "-1"], "from 0 to 65535"),
        (vec!["trace", "--snaplen", "-1"], "from 1 to 262144"),
        (vec!["trace", "--count", "-1"], "1 or more"),
        (vec!["trace", "--ring", "-1"], "from 1 to 10000000"),
        (vec!["steer", "--move", "-1=0"], "17=1"),
        (vec!["watch", "-n", "many"], "1 or more"),
        (vec!["trace", "--port", "http"], "from 0 to 65535"),
        (vec!["demo", "--conns", "1.5"], "from 1 to 20000"),
        (vec!["demo", "--seconds", "long"], "from 0.01 to 60"),
        (vec!["demo", "--seconds", "nan"], "from 0.01 to 60"),
        (vec!["trace", "--host", "localhost"], "10.9.0.1"),
        (serve(&["--gateway", "10.77.1.1/24"]), "10.9.0.1"),
        (serve(&["--seed", "18446744073709551616"]), "from 0 to 18446744073709551615"),
        (vec!["demo", "--cores", "99999999999999999999"], "from 1 to 18446744073709551615"),
    ] {
        refused(&arguments, &[says]);
    }
}

/// The exit code is right even where nobody hears what is said.
#[test]
fn who_has_closed_stderr_gets_the_code_all_the_same() {
    for arguments in [&["ss", "--control", "/no/such.sock"][..], &["config", "check", "/no/such.toml"]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_laneway"));
        let status = command.args(arguments).stderr(writer).status().expect("the program can be executed");
        assert_eq!(status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn directories_that_cannot_be_served() {
    let serve = |dir: &str| {
        vec![
            "serve".to_owned(),
            dir.to_owned(),
            "--tun".into(),
            "lwmisuse1".into(),
            "--addr".into(),
            "10.77.1.2/24".into(),
        ]
    };
    let refused = |dir: &str, says: &[&str]| {
        let arguments = serve(dir);
        refused(&arguments.iter().map(String::as_str).collect::<Vec<_>>(), says);
    };
    refused("/no/such/directory", &["/no/such/directory does not exist"]);
    refused("/etc/passwd", &["is not a directory"]);
}

#[test]
fn names_that_cannot_be() {
    for name in ["", "a-name-that-is-too-long", "a/b", "a b"] {
        refused(&["serve", "/", "--tun", name, "--addr", "10.77.1.2/24"], &["1 to 15 bytes"]);
        refused(&["serve", "/", "--tun", name], &["1 to 15 bytes"]);
    }
    // The kernel would choose the name, and the control socket would bear another.
    refused(&["serve", "/", "--tun", "lw%d", "--addr", "10.77.1.2/24"], &["in full"]);
    // It has addresses, which are no stack's.
    refused(&["serve", "/", "--tun", "lo"], &["lo is no TUN interface", "another name"]);
}

#[test]
fn help_has_an_example_and_is_no_misuse() {
    for command in [
        "demo", "serve", "doctor", "bench", "lab", "ss", "nstat", "watch", "lanes", "locks", "trace", "config", "steer",
    ] {
        let output = laneway(&[command, "--help"]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        let examples = text.split_once("Example").map_or(&*text, |(_, examples)| examples);
        assert!(examples.contains("laneway"), "{command} has no example: {text}");
        // Only root may ask root's stack.
        let mut after = examples.lines().skip_while(|line| !line.contains("sudo laneway serve")).skip(1);
        let refused = after.find(|line| line.trim_start().starts_with("laneway "));
        assert!(refused.is_none(), "{command}: {refused:?} asks a stack of root's");
    }
    assert_eq!(laneway(&["--version"]).status.code(), Some(0));
}

/// Asking a stack when there is none, several, or one that is somebody else's.
#[test]
fn stacks_that_cannot_be_asked() {
    let place = std::env::temp_dir().join(format!("laneway-misuse-{}", std::process::id()));
    std::fs::create_dir(&place).expect("a directory");
    let ask = |arguments: &[&str], says: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_laneway"))
            .args(arguments)
            .env("LANEWAY_RUNTIME_DIR", &place)
            .output()
            .expect("the program can be executed");
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        for part in says {
            assert!(message.contains(part), "{arguments:?}: {part:?} is not in {message}");
        }
    };
    let datagrams = place.join("datagrams");
    let _datagrams = UnixDatagram::bind(&datagrams).expect("a socket");
    let datagrams = datagrams.to_str().expect("a plain name");
    const LONG: &str = "a-name-that-is-longer-than-a-socket-can-have-and-than-any-interface-ever-had-in-the-kernel-or-out-of-it-if-it-has-108";
    let commands: &[&[&str]] = &[
        &["ss"],
        &["ss", "--ports"],
        &["nstat"],
        &["watch", "-n", "1"],
        &["lanes", "-n", "1"],
        &["locks"],
        &["trace", "--json"],
        &["steer"],
    ];
    for command in commands {
        ask(command, &["no stack is running", "laneway serve"]);
        let with = |more: &[&'static str]| [*command, more].concat();
        ask(&with(&["--name", "lw7"]), &["no stack answers", "lw7.sock"]);
        ask(&with(&["--name", "../x"]), &["cannot be the name"]);
        ask(&with(&["--control", "/no/such.sock"]), &["no stack answers at /no/such.sock"]);
        ask(&with(&["--control", "/x", "--name", "y"]), &["cannot be used with"]);
        // No socket can be there, and a socket of another kind is no stack's.
        for path in [&*"/tmp/x".repeat(50), "/dev/null/x.sock", datagrams] {
            ask(&with(&["--control", path.to_owned().leak()]), &["no stack answers at", path]);
        }
        ask(&with(&["--name", LONG]), &["no stack answers at", LONG]);
    }
    let listeners: Vec<_> =
        ["a", "b"].map(|name| UnixListener::bind(place.join(format!("{name}.sock"))).expect("a socket")).into();
    for command in commands {
        ask(command, &["2 stacks are running", "--name", "a, b"]);
    }
    drop(listeners);
    ask(&["ss"], &["no stack is running"]);
    ask(&["ss", "--state", "asleep"], &["asleep", "established"]);
    ask(&["ss", "-a", "-l"], &["cannot be used with"]);
    ask(&["watch", "--interval", "1ms"], &["100ms"]);
    ask(&["lanes", "--interval", "1ms"], &["100ms"]);
    ask(&["locks", "--who", "--callers"], &["cannot be used with"]);
    ask(&["trace", "--port", "70000"], &["70000"]);
    ask(&["trace", "--proto", "quic"], &["tcp, udp, icmp"]);
    ask(&["trace", "--snaplen", "0"], &["snaplen"]);
    ask(&["trace", "-w", "x.pcapng", "--json"], &["choose one"]);
    ask(&["steer", "--move", "17"], &["'17' has no '='", "17=1"]);
    ask(&["steer", "--move", "128=0"], &["no bucket 128", "0 to 127"]);
    ask(&["steer", "--lanes", "--move", "1=0"], &["cannot be used with"]);
    std::fs::remove_dir_all(&place).expect("it is ours");
}

#[test]
fn configurations_that_cannot_be() {
    let file = std::env::temp_dir().join(format!("laneway-misuse-{}.toml", std::process::id()));
    let path = file.to_str().expect("a plain name");
    std::fs::write(&file, "[sysctl]\ntcp_fin_timeuot = 3\ntcp_sack = 7\n").expect("a file");
    let says = ["tcp_fin_timeuot", "did you mean 'tcp_fin_timeout'?", ":2:", "tcp_sack must be true or false"];
    refused(&["config", "check", path], &says);
    refused(&["config", "show", "--config", path], &says);
    refused(&["demo", "--config", path], &says);
    refused(&serve(&["--addr", "10.77.1.2/24", "--config", path]), &says);
    std::fs::write(&file, b"# a caf\xe9\n").expect("a file");
    refused(&["config", "check", path], &[&format!("{path}:1: "), "no UTF-8"]);
    std::fs::write(&file, b"[interface]\nname = \"caf\xe9\"\n").expect("a file");
    refused(&serve(&["--config", path]), &[&format!("{path}:2: "), "save the file"]);
    refused(&["config", "check", "/no/such.toml"], &["/no/such.toml cannot be read"]);
    refused(&["config", "check", "/dev/zero"], &["/dev/zero cannot be read", "1048576 bytes", "name another"]);
    refused(&["config"], &["Usage"]);
    std::fs::write(&file, "[interface]\naddr = \"10.77.1.2/32\"\nlanes = 2\n[sysctl]\nmsl = \"1s\"\n").expect("a file");
    let output = laneway(&["config", "show", "--config", path, "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let rows: Vec<serde_json::Value> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("each line is JSON"))
        .collect();
    let row = |name: &str| rows.iter().find(|row| row["name"] == name).expect("a row");
    assert_eq!((&row("msl")["value"], &row("msl")["from"]), (&"1s".into(), &format!("{path}:5").into()));
    // Each value is what JSON has for such a one, and what nobody has said is nothing.
    for (name, value) in [
        ("addr", serde_json::json!(["10.77.1.2/32"])),
        ("lanes", 2.into()),
        ("mtu", serde_json::Value::Null),
        ("tcp_sack", true.into()),
        ("somaxconn", 4_096.into()),
        ("tcp_rmem", serde_json::json!([131_072, 6_291_456])),
        ("ip_local_reserved_ports", "".into()),
    ] {
        assert_eq!(row(name)["value"], value, "{name}");
    }
    assert_eq!(laneway(&["config", "check", path]).status.code(), Some(0));
    // What is shown can be a file again, and says the same.
    let shown = laneway(&["config", "show", "--config", path]).stdout;
    std::fs::write(&file, &shown).expect("a file");
    let again = laneway(&["config", "show", "--config", path]);
    let values = |text: &[u8]| -> Vec<String> {
        let lines = String::from_utf8_lossy(text);
        let value = |line: &str| line.rsplit_once(" # ").map_or(line, |(value, _from)| value).trim().to_owned();
        lines.lines().map(value).collect()
    };
    assert_eq!(values(&again.stdout), values(&shown), "{}", String::from_utf8_lossy(&again.stderr));
    std::fs::write(&file, "[interface]\naddr = \"10.77.1.2/32\"\n").expect("a file");
    // What the file says of the interface is held to the same rules as the command line.
    refused(&serve(&["--config", path]), &["second address", "choose", &format!("addr ({path}:2)")]);
    std::fs::write(&file, "[interface]\naddr = \"10.77.1.2/24\"\nhost_addr = \"10.77.1.2/24\"\n").expect("a file");
    refused(&serve(&["--config", path]), &[&format!("{path}:3"), "both ends of the interface"]);
    std::fs::write(&file, "[interface]\nhost_addr = \"10.77.1.2/24\"\n").expect("a file");
    let theirs = format!("the configuration has said host_addr ({path}:2)");
    refused(&serve(&["--addr", "10.77.1.2/24", "--config", path]), &["10.77.1.2", &theirs]);
    refused(&["serve", "/", "--addr", "10.77.1.2/24"], &["--tun NAME"]);
    std::fs::remove_file(&file).expect("it is ours");
}

/// A name needs not be text for whoever says it.
#[test]
fn names_of_files_are_any_bytes() {
    let name = std::ffi::OsStr::from_bytes(b"/no/such/\xff.toml");
    let output = Command::new(env!("CARGO_BIN_EXE_laneway")).args(["config", "check", "--json"]).arg(name).output();
    let output = output.expect("the program can be executed");
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((output.status.code(), &said["file"]), (Some(2), &"/no/such/\u{fffd}.toml".into()));
}

/// The log goes to stderr, and a wish for one that cannot be understood is refused before anything is done.
#[test]
fn logs_that_cannot_be_and_one_that_can() {
    let with = |value: &str, arguments: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_laneway"))
            .args(arguments)
            .env("LANEWAY_LOG", value)
            .output()
            .expect("the program can be executed")
    };
    for (value, says) in [("wran", "did you mean 'warn'?"), ("laneway=loud", "'loud'"), ("hyper=debug", "no target")] {
        let output = with(value, &["config", "show"]);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{value}: {message}");
        assert!(output.stdout.is_empty(), "{value}");
        assert_eq!(message.lines().count(), 1, "{value}: {message}");
        for part in ["LANEWAY_LOG", says, "off, error, warn, info, debug, trace", "LANEWAY_LOG=info"] {
            assert!(message.contains(part), "{value}: {part:?} is not in {message}");
        }
    }
    let file = std::env::temp_dir().join(format!("laneway-log-{}.toml", std::process::id()));
    std::fs::write(&file, "[sysctl]\nmsl = \"1s\"\n").expect("a file");
    let demo = ["demo", "--cores", "1", "--rounds", "1", "--seconds", "0.02", "--json", "--config"];
    let demo = [&demo[..], &[file.to_str().expect("a plain name")]].concat();
    let output = with("laneway=info,laneway_stack=debug", &demo);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("INFO") && said.contains("the configuration is loaded"), "{said}");
    serde_json::from_slice::<serde_json::Value>(&output.stdout).expect("the log is not in the way of the answer");
    // Nothing is said per packet, and thousands went to and fro.
    assert!(said.lines().count() < 20, "{said}");
    let silent = with("off", &demo);
    assert_eq!(
        (silent.status.code(), silent.stderr.len()),
        (Some(0), 0),
        "{}",
        String::from_utf8_lossy(&silent.stderr)
    );
    std::fs::remove_file(&file).expect("it is ours");
}

#[test]
fn doctor_says_it_in_json() {
    let output = laneway(&["doctor", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let lines: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let lines = lines.as_array().expect("an array");
    assert!(lines.len() > 8);
    for line in lines {
        let state = line["state"].as_str().expect("a state");
        assert!(["good", "limited", "missing"].contains(&state));
        assert_eq!(
            state == "good",
            line["fix"].is_null(),
            "what is not good has a fix, and what is good needs none: {line}"
        );
    }
}

#[test]
fn a_short_demo_ends_well_and_is_captured() {
    let capture: PathBuf = std::env::temp_dir().join(format!("laneway-demo-{}.pcapng", std::process::id()));
    let path = capture.to_str().expect("a plain name");
    let output = laneway(&["demo", "--cores", "1", "--rounds", "1", "--seconds", "0.5", "--json", "--pcap", path]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(said["rows"][0]["who"], "laneway");
    assert_eq!(said["rows"][1]["who"], "linux");
    assert!(said["rows"][0]["done"].as_u64() > Some(10) && said["rows"][1]["done"].as_u64() > Some(10), "{said}");
    assert_eq!(said["laneway"]["tw_evicted"], 0);
    assert!(std::fs::metadata(&capture).expect("a capture").len() > 1_000);
    let _ = std::fs::remove_file(&capture);
}

/// A file that may grow no further is as a full disk: its writer hears of it, and the program goes on.
#[test]
fn a_capture_longer_than_files_may_be_ends_no_program() {
    let capture = std::env::temp_dir().join(format!("laneway-longest-{}.pcapng", std::process::id()));
    let demo = "ulimit -f 64; exec \"$0\" demo --cores 1 --rounds 1 --seconds 0.2 --pcap \"$1\"";
    let mut command = Command::new("sh");
    let command = command.args(["-c", demo, env!("CARGO_BIN_EXE_laneway")]).arg(&capture);
    let output = command.output().expect("a shell");
    std::fs::remove_file(&capture).expect("it is ours");
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{}: {message}", output.status);
    assert!(message.contains("the capture could not be written") && message.contains("File too large"), "{message}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("Linux loopback"), "{message}");
}

/// A demonstration of nothing is no success.
#[test]
fn a_demo_without_a_connection_fails() {
    let file = std::env::temp_dir().join(format!("laneway-no-ports-{}.toml", std::process::id()));
    std::fs::write(&file, "[sysctl]\nip_local_port_range = [5000, 5001]\nip_local_reserved_ports = \"5000-5001\"\n")
        .expect("a file");
    let path = file.to_str().expect("a plain name");
    let output = laneway(&["demo", "--alone", "--cores", "1", "--rounds", "1", "--seconds", "0.1", "--config", path]);
    std::fs::remove_file(&file).expect("it is ours");
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("no connection") && message.contains("--config"), "{message}");
}

/// A shell usually allows 1,024 open files, and its user may have more.
#[test]
fn a_demo_with_many_connections_needs_no_other_shell() {
    let with = |limit: &str, conns: &str| {
        let script = format!("ulimit {limit} && exec \"$0\" \"$@\"");
        let demo = ["demo", "--cores", "1", "--rounds", "1", "--seconds", "0.3", "--json", "--conns", conns];
        let mut shell = Command::new("sh");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_laneway")]).args(demo).output().expect("there is a shell")
    };
    let output = with("-Sn 128", "200");
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{message}");
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(said["rows"][1]["done"].as_u64() > Some(0), "{said}");
    // Those that ended behind a turn are no part of its rate, and of all that were made they are.
    let (records, made) = (said["laneway"]["tw_peak"].as_u64(), said["laneway"]["connections"].as_u64());
    assert!(records > Some(0) && records <= made, "{said}");
    let output = with("-n 128", "200");
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("may have 128") && message.contains("--conns"), "{message}");
}

/// What needs a privilege says which, and what to do. As root the same command would work, so it is not tried.
#[test]
fn a_missing_privilege_is_said() {
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs");
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    if effective.is_some_and(|set| set & (1 << 12) != 0) {
        // Root can still drop it: `setpriv` is part of util-linux, which every system has.
        let output = Command::new("setpriv")
            .args([
                "--bounding-set=-net_admin",
                "--inh-caps=-net_admin",
                "--reuid=65534",
                "--clear-groups",
                env!("CARGO_BIN_EXE_laneway"),
            ])
            .args(["serve", "/", "--tun", "lwmisuse2", "--addr", "10.77.1.2/24"])
            .output();
        let Ok(output) = output else { return };
        let message = String::from_utf8_lossy(&output.stderr);
        if message.contains("setpriv:") {
            return; // the program lies where that user may not go
        }
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains("CAP_NET_ADMIN") || message.contains("/dev/net/tun"), "{message}");
        return;
    }
    refused(&serve(&["--addr", "10.77.1.2/24"]), &["run as root"]);
}

/// An interface that is there need not be made once more. Needs to be root, and where nobody is nothing is tried.
#[test]
fn an_interface_of_somebody_else_is_said() {
    let script = "ip tuntap add dev lwmisuse3 mode tun multi_queue user 4242 && \
                  exec setpriv --bounding-set=-net_admin --inh-caps=-net_admin \"$0\" serve / --tun lwmisuse3 --addr 10.77.1.2/24";
    let output = Command::new("unshare").args(["--net", "sh", "-c", script, env!("CARGO_BIN_EXE_laneway")]).output();
    let output = output.expect("util-linux is there");
    let message = String::from_utf8_lossy(&output.stderr);
    if !message.contains("laneway:") || message.contains("/dev/net/tun") {
        return;
    }
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("lwmisuse3 was not made for this user") && message.contains("another name"), "{message}");
}

/// What the kernel has itself it hands to nobody. Needs to be root, and where nobody is nothing is tried.
#[test]
fn an_address_of_the_kernel_on_the_same_interface_is_said() {
    let script = "ip tuntap add dev lwmisuse4 mode tun multi_queue && ip addr add 10.77.1.2/24 dev lwmisuse4 && \
                  ip addr add fd77::2/64 dev lwmisuse4 && \
                  exec timeout 10 \"$0\" serve / --tun lwmisuse4 --control none --addr";
    for address in ["10.77.1.2/24", "fd77::2/64"] {
        let script = format!("{script} {address}");
        let output =
            Command::new("unshare").args(["--net", "sh", "-c", &script, env!("CARGO_BIN_EXE_laneway")]).output();
        let output = output.expect("util-linux is there");
        let message = String::from_utf8_lossy(&output.stderr);
        if !message.contains("laneway:") || message.contains("/dev/net/tun") {
            return;
        }
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains("the kernel has it itself, on lwmisuse4: choose another"), "{message}");
    }
}

/// `setcap` replaces what was granted before, so every line that needs it says the same whole command.
#[test]
fn the_doctor_grants_everything_by_one_command() {
    let doctor = env!("CARGO_BIN_EXE_laneway");
    // Without a privilege `setpriv` cannot take any away, and there is none to take.
    let dropped = Command::new("setpriv").args(["--bounding-set=-all", doctor, "doctor", "--json"]).output();
    let output = match dropped {
        Ok(output) if output.status.success() => output,
        _ => laneway(&["doctor", "--json"]),
    };
    let lines: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let fix_of = |check: &str| {
        let line =
            lines.as_array().expect("an array").iter().find(|line| line["check"] == check).expect("it is checked");
        line["fix"].as_str().map(str::to_owned)
    };
    let fixes = ["CAP_NET_ADMIN", "steering eBPF", "SYN cookies in eBPF"].map(fix_of);
    let command = format!("sudo setcap cap_net_admin,cap_bpf+ep {doctor}");
    for fix in fixes.into_iter().flatten() {
        assert!(fix.ends_with(&command), "{fix}");
    }
}

/// What the doctor says of `check` in a network of its own, where these settings have been made first; none if there can be none, which is said.
fn doctor_after(settings: &str, check: &str) -> Option<serde_json::Value> {
    let script = format!("{settings} && exec \"$0\" doctor --json");
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--net", "sh", "-c", &script, env!("CARGO_BIN_EXE_laneway")]);
    let output = command.output().expect("util-linux is there");
    let message = String::from_utf8_lossy(&output.stderr);
    if message.contains("unshare:") {
        assert!(std::env::var_os("CI").is_none(), "skipped: {message}");
        eprintln!("skipped: {message}");
        return None;
    }
    let lines: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).expect("an array of JSON");
    Some(lines.into_iter().find(|line| line["check"] == check).expect("it is checked"))
}

/// A container whose network has no IPv6 has it switched off, and `serve` then gives no interface such an address. Needs a network namespace, and says so
/// where none can be had.
#[test]
fn the_doctor_says_whether_ipv6_is_switched_off() {
    for (off, state, fix) in [(0, "good", None), (1, "limited", Some("sysctl -w net.ipv6.conf.default.disable_ipv6=0"))]
    {
        let settings = format!("echo {off} > /proc/sys/net/ipv6/conf/default/disable_ipv6");
        let Some(line) = doctor_after(&settings, "IPv6") else { return };
        assert_eq!(line["state"], state, "{line}");
        assert_eq!(fix.is_none(), line["fix"].is_null(), "{line}");
        assert!(fix.is_none_or(|fix| line["fix"].as_str().is_some_and(|says| says.contains(fix))), "{line}");
    }
}

/// Both families are forwarded, or not all that is said of it is true. Needs a network namespace, and says so where none can be had.
#[test]
fn the_doctor_asks_both_families_whether_they_are_forwarded() {
    for (v4, v6, state, says) in [
        (0, 0, "limited", "off"),
        (1, 0, "limited", "on for IPv4 alone"),
        (0, 1, "limited", "on for IPv6 alone"),
        (1, 1, "good", "on:"),
    ] {
        let settings =
            format!("cd /proc/sys/net && echo {v4} > ipv4/ip_forward && echo {v6} > ipv6/conf/all/forwarding");
        let Some(line) = doctor_after(&settings, "IP forwarding") else { return };
        assert_eq!(line["state"], state, "{v4} {v6}: {line}");
        assert!(line["found"].as_str().is_some_and(|found| found.starts_with(says)), "{v4} {v6}: {line}");
    }
}

/// A standard output that nobody reads: `| true`, when `true` has ended.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

/// Somebody who reads no more is no failure.
#[test]
fn nobody_needs_to_read_what_is_said() {
    let demo: &[&str] = &["demo", "--cores", "1", "--rounds", "1", "--seconds", "0.02", "--alone"];
    let json = [demo, &["--json"]].concat();
    let help: [&[&str]; 3] = [&["--help"], &["ss", "--help"], &["--version"]];
    for arguments in [&["doctor"][..], &["doctor", "--json"], demo, &json, &["lab", "--help"], &["config", "show"]]
        .iter()
        .chain(&help)
    {
        let output = Command::new(env!("CARGO_BIN_EXE_laneway")).args(*arguments).stdout(closed()).output();
        let output = output.expect("the program can be executed");
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*message), (Some(0), ""), "{arguments:?}");
    }
}

/// Nor is a full disk a success.
#[test]
fn what_cannot_be_written_is_said() {
    for arguments in [&["--help"][..], &["ss", "--help"], &["config", "check", "--help"], &["--version"], &["doctor"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("every Linux has it");
        let output = Command::new(env!("CARGO_BIN_EXE_laneway")).args(arguments).stdout(full).output();
        let output = output.expect("the program can be executed");
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {message}");
        assert!(message.contains("the output cannot be written"), "{arguments:?}: {message}");
    }
}

/// Neither its first words nor its counters end a server. Needs a network namespace, and where none can be had nothing is tried.
#[test]
fn a_server_goes_on_when_nobody_reads_what_it_says() {
    let place = std::env::temp_dir().join(format!("laneway-unread-{}", std::process::id()));
    std::fs::create_dir(&place).expect("a directory");
    let socket = place.join("x.sock");
    let mut server = Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", env!("CARGO_BIN_EXE_laneway"), "serve"])
        .arg(&place)
        .env("LANEWAY_LOG", "warn,laneway_stack::runtime::aloud=error") // that another program has the core is no news here
        .args(["--tun", "lwunread0", "--addr", "10.77.1.2/24", "--lanes", "1", "--control"])
        .arg(&socket)
        .stdout(closed())
        .stderr(Stdio::piped())
        .spawn()
        .expect("util-linux is there");
    let answers = || {
        let mut ask = Command::new(env!("CARGO_BIN_EXE_laneway"));
        let ask = ask.args(["nstat", "--noupdate", "--control"]).arg(&socket).output();
        ask.expect("the program can be executed").status.success()
    };
    let began = Instant::now();
    while !answers() && server.try_wait().expect("it is ours").is_none() && began.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = server.id().to_string();
    for signal in ["-USR1", "-USR1", "-TERM"] {
        std::thread::sleep(Duration::from_millis(100));
        let _ = Command::new("kill").args([signal, &pid]).status();
    }
    let output = server.wait_with_output().expect("it is ours");
    std::fs::remove_dir_all(&place).expect("it is ours");
    let message = String::from_utf8_lossy(&output.stderr);
    if message.contains("unshare:") || message.contains("/dev/net/tun") || message.contains("CAP_NET_ADMIN") {
        return;
    }
    assert_eq!((output.status.code(), &*message), (Some(0), ""));
}

/// What a stack answers that refuses, or dies while it is watched, costs nobody what was there before or has come already.
#[test]
fn a_trace_that_is_refused_or_breaks_off_loses_nothing() {
    let place = std::env::temp_dir().join(format!("laneway-broken-trace-{}", std::process::id()));
    std::fs::create_dir(&place).expect("a directory");
    let (socket, file) = (place.join("x.sock"), place.join("x.pcapng"));
    // A stack that answers one question with these bytes, and is gone.
    let trace = |answer: &[u8], more: &[&str]| {
        let listener = UnixListener::bind(&socket).expect("a socket");
        let answer = answer.to_vec();
        let stack = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().expect("somebody asks");
            BufReader::new(&client).read_line(&mut String::new()).expect("a question");
            client.write_all(&answer).expect("it is read");
        });
        let mut command = Command::new(env!("CARGO_BIN_EXE_laneway"));
        command.arg("trace").arg("--control").arg(&socket).arg("-w").arg(&file).args(more);
        let output = command.output().expect("the program can be executed");
        stack.join().expect("somebody has asked");
        std::fs::remove_file(&socket).expect("it is ours");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    std::fs::write(&file, "of last time").expect("a file");
    let (code, message) = trace(b"{\"error\":\"four are watching already\"}\n", &[]);
    assert!(code == Some(1) && message.contains("four are watching"), "{code:?} {message}");
    assert_eq!(std::fs::read(&file).expect("it is there"), b"of last time");

    let mut writer = PcapngWriter::new(Vec::new()).expect("a Vec takes everything");
    let interface = writer.interface("lane0", Medium::Ip).expect("a Vec takes everything");
    for at_us in 0..5 {
        writer.frame(interface, Direction::In, at_us, &[0x45; 40], None).expect("a Vec takes everything");
        writer.statistics(interface, at_us, 9, 0x4444).expect("a Vec takes everything");
    }
    let whole = writer.get_ref().clone();
    let cut = [b"{\"pcapng\":true}\n", &whole[..whole.len() - 3]].concat();
    for (more, kept) in [(&["--ring", "2"][..], 2), (&[], 5)] {
        let (code, message) = trace(&cut, more);
        assert!(code == Some(1) && message.contains("the trace broke off"), "{code:?} {message}");
        let written = std::fs::read(&file).expect("it is there");
        let packets = written.windows(40).filter(|window| *window == [0x45; 40]).count();
        assert!(packets == kept && written.len() < whole.len(), "{packets} packets");
        let missing = |window: &&[u8]| **window == [0x44, 0x44, 0, 0, 0, 0, 0, 0];
        assert_eq!(written.windows(8).filter(missing).count(), if more.is_empty() { 4 } else { 1 });
        let behind = written.windows(40).rposition(|window| window == [0x45; 40]).expect("a packet");
        let last = written[behind..].windows(8).filter(missing).count();
        assert_eq!(last, usize::from(!more.is_empty()), "how many are missing is said behind the packets of a ring");
    }
    std::fs::remove_dir_all(&place).expect("it is ours");
}
