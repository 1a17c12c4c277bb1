//! Owns the proof that Laneway speaks TCP as the RFCs say: scripts in packetdrill's notation, and what runs them.
//!
//! A script is a connection seen from the wire. The runner plays the peer and the application at once, against a real
//! host with one lane on a memory link, in virtual time, so an hour of silence costs nothing.
//!
//! ```text
//! // RFC 9293 section 3.5: the three-way handshake.
//! +0   socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
//! +0   listen(3, 1) = 0
//! +0   < S 0:0(0) win 65535 <mss 1460,sackOK,TS val 1 ecr 0,nop,wscale 7>
//! +0   > S. 0:0(0) ack 1 <mss 1460,sackOK,TS val 100 ecr 1,nop,wscale 7>
//! +.1  < . 1:1(0) ack 1 win 257 <nop,nop,TS val 101 ecr 100>
//! +0   accept(3, ..., ...) = 4
//! ```
//!
//! # What is as in packetdrill
//! - Times: `+.1` after the event before, `1.5` since the start, `+.2~+.3` a range, `*` whenever. An outbound packet may be
//!   `--tolerance_usecs` (2000) early or late.
//! - `<` is what the peer sends, `>` what we must send: flags (`S F R P . U E W`), `seq:end(length)`, `ack`, `win`, `urg`,
//!   options. `win` and `urg` of `>` are compared if they are written; `<...>` accepts any options. No-operation padding is
//!   not compared: no RFC says where it goes.
//! - Sequence numbers count from where the script's SYN says; our timestamps from the first that the script expects.
//! - Whatever we send and the script does not expect is a failure, as soon as time moves on.
//! - `icmp unreachable frag_needed mtu 1200 [1:1461(1460)]` and its kin quote a segment of ours.
//!
//! # What is Laneway's own
//! - Calls are the verbs of the on-lane API, each made in a poll of its own: `listen`, `accept`, `connect`, `write` (`send`
//!   with `MSG_OOB` or `MSG_MORE`), `read`, `shutdown`, `close`, `abort`, `setsockopt`.
//! - `&` for a time: in the same poll as the line before. Packets come first, then the calls, as on a lane.
//! - The application takes bytes as they come, as a lane's does; `read` checks what it took. After `hold(4)` it takes
//!   nothing but what `read` asks for, and the window closes.
//! - `#2` after the arrow: the same script, another connection, from the peer's port 50002.
//! - `state(4) = ESTABLISHED`, `cwnd(4) = 14600`, `urgent(4) = 1`, `counter(TcpExtTW) = 1`, `half_open() = 0`,
//!   `time_waits() = 1` look inside. `idle()` only lets time pass. `anew()`: our next SYN starts a new sequence space, which
//!   must lie beyond the old one.
//! - `--tcp_sack=0` and the like at the top set what `Config` has under that name; `--tcp_rmem` both
//!   sizes of the buffer, `--tcp_rmem_max` behind it the larger alone; `--ip_version=ipv6`, `--mtu=1280`, `--remote_isn=5`
//!   where the peer's numbers start on the circle (by default such that every script crosses zero).
//!
//! Payload is never written down: each byte follows from its place in the stream, and both directions are checked.
#![forbid(unsafe_code)]

mod app;
mod frame;
pub mod packet;
pub mod parser;
pub mod runner;
pub mod script;

pub use parser::parse;
pub use runner::run;
pub use script::Script;

use std::path::Path;

/// Reads one script, which errors call by this name. The error is ready to be printed.
pub fn read_file(path: &Path, name: &str) -> Result<Script, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{name}: cannot be read: {e}"))?;
    parse(name, &text)
}

/// Reads and runs one script. The error is ready to be printed: file, line, what was expected, what came.
pub fn run_file(path: &Path, name: &str) -> Result<(), String> {
    run(&read_file(path, name)?)
}
