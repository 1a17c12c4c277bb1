//! A socket that leaves its runtime leaves nothing of the runtime's behind.

mod common;

use laneway::tokio::TcpStream;

/// A program that connects in a runtime of its own each time, and goes on without one.
#[test]
fn into_std_keeps_no_descriptor_of_the_runtime() {
    let (server, client) = common::stacks();
    let listener = laneway::TcpListener::bind_on(&server, "10.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    common::assert_no_eventfd_is_kept([&server, &client], || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let stream = runtime.block_on(async { TcpStream::connect_on(&client, at).await.unwrap().into_std().unwrap() });
        drop(runtime);
        (stream, listener.accept().unwrap())
    });
}
