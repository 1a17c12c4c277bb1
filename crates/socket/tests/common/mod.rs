//! What several of these tests need.

#![allow(dead_code, reason = "each of them uses some of it")]

use laneway::{Device, Stack, TcpListener, TcpStream};

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
