//! `laneway trace --json` against a stack that sends what a stack would.

use laneway_stack::device::Medium;
use laneway_stack::device::pcap::{Direction, PcapngWriter};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::process::Command;

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
    }
    let answer = [b"{\"pcapng\":true}\n", &capture.get_ref()[..]].concat();
    let place = std::env::temp_dir().join(format!("laneway-trace-{}", std::process::id()));
    std::fs::create_dir(&place).expect("a directory");
    let socket = place.join("x.sock");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let stack = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("somebody asks");
        BufReader::new(&client).read_line(&mut String::new()).expect("a question");
        client.write_all(&answer).expect("it is read");
    });
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
