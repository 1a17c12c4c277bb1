//! A socket that leaves its runtime leaves nothing of the runtime's behind.

mod common;

use laneway::tokio::TcpStream;
use std::fs;

fn descriptors() -> usize {
    let all = fs::read_dir("/proc/self/fd").unwrap();
    all.filter(|fd| fs::read_link(fd.as_ref().unwrap().path()).is_ok_and(|to| to.to_string_lossy().contains("eventfd")))
        .count()
}

/// A program that connects in a runtime of its own each time, and goes on without one.
#[test]
fn into_std_keeps_no_descriptor_of_the_runtime() {
    const MANY: usize = 50;
    let (server, client) = common::stacks();
    let listener = laneway::TcpListener::bind_on(&server, "10.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let connect = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let stream = runtime.block_on(async { TcpStream::connect_on(&client, at).await.unwrap().into_std().unwrap() });
        drop(runtime);
        (stream, listener.accept().unwrap())
    };
    let first = connect();
    common::rounds([&server, &client]);
    let before = descriptors();
    let all: Vec<_> = (0..MANY).map(|_| connect()).collect();
    common::rounds([&server, &client]);
    let more = descriptors().saturating_sub(before);
    assert!(more < MANY / 2, "{more} descriptors more for {MANY} connections that have no runtime any more");
    drop((first, all));
}
