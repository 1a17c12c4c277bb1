//! A thread that keeps what `enter` gave for as long as it lives.

mod common;

use laneway::{Entered, Stack, UdpSocket};
use std::cell::RefCell;
use std::process::Command;

thread_local! {
    static HERE: RefCell<Option<Entered>> = const { RefCell::new(None) };
}

const INSIDE: &str = "LANEWAY_TEST_ENTERED";

/// Inside: the end of such a thread, which would take the process with it.
#[test]
fn a_thread_ends_that_has_entered_for_ever() {
    if std::env::var_os(INSIDE).is_none() {
        let this = std::env::current_exe().unwrap();
        let done =
            Command::new(this).args(["--exact", "a_thread_ends_that_has_entered_for_ever"]).env(INSIDE, "1").output();
        let done = done.unwrap();
        assert!(done.status.success(), "{} {}", done.status, String::from_utf8_lossy(&done.stderr));
        return;
    }
    let (server, _client) = common::stacks();
    let at = |stack: &Stack| {
        HERE.with_borrow_mut(|here| *here = Some(stack.enter()));
        UdpSocket::bind("10.0.0.1:0").unwrap();
    };
    std::thread::scope(|scope| scope.spawn(|| at(&server)).join().unwrap());
}
