//! `laneway trace` against a stack that sends what a stack would.

use laneway_stack::device::Medium;
use laneway_stack::device::pcap::{Direction, PcapngWriter};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A packet to port 80.
fn packet(source: [u8; 4]) -> Vec<u8> {
    let mut packet = vec![0u8; 40];
    packet[0] = 0x45;
    packet[9] = 6;
    packet[12..16].copy_from_slice(&source);
    packet[16..20].copy_from_slice(&[10, 0, 0, 1]);
    packet[20..24].copy_from_slice(&[0xab, 0xcd, 0, 80]);
    packet
}

/// A directory for one test.
fn place(name: &str) -> PathBuf {
    let place = std::env::temp_dir().join(format!("laneway-{name}-{}", std::process::id()));
    std::fs::create_dir(&place).expect("a directory");
    place
}

/// What is captured on a lane that has seen one packet, and the lane's number there.
fn of_one_packet() -> (PcapngWriter<Vec<u8>>, u32) {
    let mut capture = PcapngWriter::new(Vec::new()).expect("a Vec takes everything");
    let interface = capture.interface("lane0", Medium::Ip).expect("a Vec takes everything");
    capture.frame_cut(interface, Direction::In, 1, &packet([10, 0, 0, 2]), 40, None).expect("a Vec takes everything");
    (capture, interface)
}

/// Agrees to one trace, sends what was captured, and is gone after whatever it does `then`.
fn stack(socket: &Path, captured: &[u8], then: impl FnOnce(&mut UnixStream) + Send + 'static) -> JoinHandle<()> {
    let listener = UnixListener::bind(socket).expect("a socket");
    let answer = [b"{\"pcapng\":true}\n", captured].concat();
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("somebody asks");
        BufReader::new(&client).read_line(&mut String::new()).expect("a question");
        client.write_all(&answer).expect("it is read");
        then(&mut client);
    })
}

/// As with other programs that write such files.
#[test]
fn a_dash_is_standard_output() {
    let place = place("dash");
    let (mut capture, interface) = of_one_packet();
    capture.statistics(interface, 2, 1, 0).expect("a Vec takes everything");
    let stack = stack(&place.join("x.sock"), capture.get_ref(), |_| {});
    let mut command = Command::new(env!("CARGO_BIN_EXE_laneway"));
    let output = command.current_dir(&place).args(["trace", "-w", "-", "--control", "x.sock"]).output();
    let output = output.expect("the program can be executed");
    stack.join().expect("somebody has asked");
    let is_there = place.join("-").exists();
    std::fs::remove_dir_all(&place).expect("it is ours");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!((&output.stdout, is_there), (capture.get_ref(), false));
}

/// A source address can look like the type of an Ethernet frame, and an Ethernet address like the beginning of a packet.
#[test]
fn what_a_frame_begins_with_is_not_guessed() {
    let sources = [[8, 0, 1, 1], [134, 221, 1, 1], [10, 0, 0, 2]];
    let mut capture = PcapngWriter::new(Vec::new()).expect("a Vec takes everything");
    for (name, link) in [("lane0", &[][..]), ("lane1", &[0x45, 0, 0, 0, 0, 40, 0, 0, 0, 6, 1, 6, 8, 0])] {
        let medium = if link.is_empty() { Medium::Ip } else { Medium::Ethernet };
        let interface = capture.interface(name, medium).expect("a Vec takes everything");
        for source in sources {
            let frame = [link, &packet(source)].concat();
            let len = frame.len() as u32;
            // Of the second there are addresses, and no ports.
            for kept in [frame.len(), link.len() + 22] {
                capture
                    .frame_cut(interface, Direction::In, 1, &frame[..kept], len, None)
                    .expect("a Vec takes everything");
            }
        }
        capture.statistics(interface, 1, 6, 0).expect("a Vec takes everything");
    }
    let place = place("trace");
    let socket = place.join("x.sock");
    let stack = stack(&socket, capture.get_ref(), |_| {});
    let output =
        Command::new(env!("CARGO_BIN_EXE_laneway")).args(["trace", "--json", "--control"]).arg(&socket).output();
    let output = output.expect("the program can be executed");
    stack.join().expect("somebody has asked");
    std::fs::remove_dir_all(&place).expect("it is ours");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stdout);
    let rows: Vec<serde_json::Value> =
        said.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect();
    assert_eq!(rows.len(), 12, "{said}");
    for (row, number) in rows.iter().zip(0..) {
        let [a, b, c, d] = sources[number / 2 % 3];
        assert_eq!((&row["src"], &row["dst"]), (&format!("{a}.{b}.{c}.{d}").into(), &"10.0.0.1".into()), "{row}");
        assert_eq!(row["dst_port"].as_u64(), (number % 2 == 0).then_some(80), "{row}");
    }
}

/// Begins to trace a stack that sends one packet and then nothing, and hangs up; what has come of it, and of its file.
fn hang_up(name: &str, command: &mut Command, then: &[&str]) -> (Child, u64) {
    let (mut capture, interface) = of_one_packet();
    let place = place(name);
    let (socket, file) = (place.join("x.sock"), place.join("x.pcapng"));
    let captured = capture.get_ref().clone();
    let begun = captured.len();
    let stack = stack(&socket, &captured, move |client| {
        let _ = client.read(&mut [0]); // until somebody wants no more
        capture.statistics(interface, 2, 1, 0).expect("a Vec takes everything");
        client.write_all(&capture.get_ref()[begun..]).expect("it is read");
    });
    let command = command.args(["trace", "--ring", "5", "-w"]).arg(&file).arg("--control").arg(&socket);
    let mut child = command.stderr(Stdio::null()).spawn().expect("the program can be executed");
    let until = Instant::now() + Duration::from_secs(10);
    while !file.exists() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    for signal in then {
        std::thread::sleep(Duration::from_millis(500));
        assert!(child.try_wait().expect("it is ours").is_none(), "it has ended before {signal}");
        let id = child.id().to_string();
        assert!(Command::new("kill").args([*signal, id.as_str()]).status().expect("there is kill(1)").success());
    }
    while child.try_wait().expect("it is ours").is_none() {
        assert!(Instant::now() < until, "it does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
    stack.join().expect("somebody has asked");
    let written = std::fs::metadata(&file).expect("it is written").len();
    std::fs::remove_dir_all(&place).expect("it is ours");
    (child, written)
}

#[test]
fn what_the_ring_holds_is_written_when_the_terminal_goes() {
    // Also where the tests themselves are to outlive a terminal.
    let hearing = ["--default-signal=HUP", env!("CARGO_BIN_EXE_laneway")];
    let (mut child, written) = hang_up("hup", Command::new("env").args(hearing), &["-HUP"]);
    assert!(child.wait().expect("it is ours").success());
    assert!(written > 100, "{written} bytes, without the packet");
}

#[test]
fn who_is_to_outlive_the_terminal_does() {
    let ignoring = ["-c", "trap '' HUP; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_laneway")];
    let (mut child, written) = hang_up("nohup", Command::new("sh").args(ignoring), &["-HUP", "-TERM"]);
    assert!(child.wait().expect("it is ours").success());
    assert!(written > 100, "{written} bytes, without the packet");
}

/// How much is missing of a trace whose stack died is not known, and its packets are kept all the same.
#[test]
fn a_stack_that_dies_leaves_a_trace_that_broke_off() {
    let (capture, _) = of_one_packet();
    let place = place("died");
    let (socket, file) = (place.join("x.sock"), place.join("x.pcapng"));
    let stack = stack(&socket, capture.get_ref(), |_| {});
    let mut command = Command::new(env!("CARGO_BIN_EXE_laneway"));
    let output = command.args(["trace", "-w"]).arg(&file).arg("--control").arg(&socket).output();
    let output = output.expect("the program can be executed");
    stack.join().expect("somebody has asked");
    let written = std::fs::read(&file).expect("it is written");
    std::fs::remove_dir_all(&place).expect("it is ours");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("1 packets, 0 or more lost") && said.contains("the stack has ended"), "{said}");
    assert_eq!(written, capture.get_ref()[..]);
}

/// What is lost is said once a second, too, and what comes behind it shows that it was not the end.
#[test]
fn a_stack_that_dies_after_a_second_leaves_a_trace_that_broke_off_too() {
    let (mut capture, interface) = of_one_packet();
    capture.statistics(interface, 2, 1, 0).expect("a Vec takes everything");
    capture.frame_cut(interface, Direction::In, 3, &packet([10, 0, 0, 3]), 40, None).expect("a Vec takes everything");
    let place = place("died-later");
    let (socket, file) = (place.join("x.sock"), place.join("x.pcapng"));
    let stack = stack(&socket, capture.get_ref(), |_| {});
    let mut command = Command::new(env!("CARGO_BIN_EXE_laneway"));
    let output = command.args(["trace", "-w"]).arg(&file).arg("--control").arg(&socket).output();
    let output = output.expect("the program can be executed");
    stack.join().expect("somebody has asked");
    std::fs::remove_dir_all(&place).expect("it is ours");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("2 packets, 0 or more lost") && said.contains("the stack has ended"), "{said}");
}

/// What it has said by its end, which is ours if it does not come.
fn ended(mut child: Child) -> Output {
    let until = Instant::now() + Duration::from_secs(20);
    while child.try_wait().expect("it is ours").is_none() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = child.kill();
    child.wait_with_output().expect("it is ours")
}

/// A reader who takes nothing does not keep it, and waits itself, perhaps, until the trace has ended.
#[test]
fn a_reader_that_takes_nothing_does_not_keep_it() {
    let (mut capture, interface) = of_one_packet();
    for at in 0..2_000 {
        capture
            .frame_cut(interface, Direction::In, at, &packet([10, 0, 0, 2]), 40, None)
            .expect("a Vec takes everything");
    }
    let place = place("takes-nothing");
    let socket = place.join("x.sock");
    let (done, wait) = channel::<()>();
    let stack = stack(&socket, capture.get_ref(), move |_| wait.iter().for_each(|()| {}));
    let mut command = Command::new(env!("CARGO_BIN_EXE_laneway"));
    let command = command.args(["trace", "--control"]).arg(&socket).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("the program can be executed");
    std::thread::sleep(Duration::from_millis(500)); // the pipe is full
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", id.as_str()]).status().expect("there is kill(1)").success());
    let output = ended(child);
    drop(done);
    stack.join().expect("somebody has asked");
    std::fs::remove_dir_all(&place).expect("it is ours");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("nobody takes the packets"), "{said}");
}

/// What it would still say is waited for for a while, and not instead of what it has said: that may be why somebody traces it.
#[test]
fn a_stack_that_hangs_does_not_take_the_ring_with_it() {
    let (capture, _) = of_one_packet();
    let place = place("hangs");
    let (socket, file) = (place.join("x.sock"), place.join("x.pcapng"));
    let (done, wait) = channel::<()>();
    let stack = stack(&socket, capture.get_ref(), move |_| wait.iter().for_each(|()| {}));
    let mut command = Command::new(env!("CARGO_BIN_EXE_laneway"));
    let command = command.args(["trace", "--ring", "5", "--count", "1", "-w"]).arg(&file).arg("--control").arg(&socket);
    let output = ended(command.stderr(Stdio::piped()).spawn().expect("the program can be executed"));
    drop(done);
    stack.join().expect("somebody has asked");
    let written = std::fs::read(&file).expect("it is written");
    std::fs::remove_dir_all(&place).expect("it is ours");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("1 packets, 0 or more lost") && said.contains("does not answer"), "{said}");
    assert_eq!(written, capture.get_ref()[..]);
}
