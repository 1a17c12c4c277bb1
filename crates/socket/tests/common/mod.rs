//! What several of these tests need.

#![allow(dead_code, reason = "each of them uses some of it")]

use laneway::{Device, Stack, TcpListener, TcpStream};
use std::ops::Range;
use std::process::Command;

/// Two stacks of one lane each on a link, 10.0.0.1 and 10.0.0.2.
pub fn stacks() -> (Stack, Stack) {
    let (here, there) = Device::memory_pair(1).unwrap();
    let server = Stack::builder(here).address("10.0.0.1/24").unwrap().start().unwrap();
    let client = Stack::builder(there).address("10.0.0.2/24").unwrap().start().unwrap();
    (server, client)
}

/// A connection from the second to the first, and its other end.
pub fn pair(server: &Stack, client: &Stack) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind_on(server, "10.0.0.1:0").unwrap();
    let stream = TcpStream::connect_on(client, listener.local_addr().unwrap()).unwrap();
    (stream, listener.accept().unwrap().0)
}

/// Has the lanes look at their mail and at the link until nothing is on its way. One that answers has looked.
pub fn rounds(stacks: [&Stack; 2]) {
    for _ in 0..4 {
        for stack in stacks {
            stack.counters().unwrap();
        }
    }
}

/// The seeds of a test that is given some, or those that somebody asks for.
pub fn seeds(usual: Range<u64>) -> Range<u64> {
    let Ok(asked) = std::env::var("LANEWAY_SEEDS") else { return usual };
    let range = asked.split_once("..").and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    range.unwrap_or_else(|| panic!("LANEWAY_SEEDS is {asked}, and not as 0..300 is"))
}

const INSIDE: &str = "LANEWAY_TEST_NAMESPACE";

/// True in a network namespace of the test's own. Outside of one, runs the test there.
pub fn is_inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let this = std::env::current_exe().expect("the test's own program");
    let status = Command::new("unshare")
        .arg("--net")
        .arg(this)
        .args(["--ignored", "--nocapture", "--exact", test])
        .env(INSIDE, "1")
        .status()
        .expect("unshare, of util-linux, makes the namespace");
    assert!(status.success(), "inside of the namespace it failed");
    false
}
