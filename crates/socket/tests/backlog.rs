//! How many connections wait until somebody accepts them.

use laneway::on_lane::Config;
use laneway::{Device, Stack, TcpListener, TcpStream};
use std::time::Duration;

/// The kernel's have one more than the backlog, ours 16 more on each lane; all of them are there to be accepted.
#[test]
fn about_as_many_wait_as_the_backlog_says() {
    for backlog in [1, 100] {
        let (here, there) = Device::memory_pair(1).unwrap();
        let config = Config { somaxconn: backlog, ..Config::default() };
        let server = Stack::builder(here).address("10.0.0.1/24").unwrap().config(config).start().unwrap();
        let client = Stack::builder(there).address("10.0.0.2/24").unwrap().start().unwrap();
        let listener = TcpListener::bind_on(&server, "10.0.0.1:80").unwrap();
        let at = listener.local_addr().unwrap();
        let connect = || TcpStream::connect_timeout_on(&client, &at, Duration::from_millis(500));
        let mut waiting = Vec::new();
        while let Ok(stream) = connect() {
            waiting.push(stream);
            assert!(waiting.len() <= backlog + 16, "more wait than may");
        }
        assert_eq!(waiting.len(), backlog + 16);
        // There is room again for each that is taken.
        for _ in 0..3 {
            (0..waiting.len()).for_each(|_| drop(listener.accept().unwrap()));
            waiting = (0..waiting.len()).map(|_| connect().unwrap()).collect();
        }
    }
}

#[test]
fn a_backlog_without_an_end_is_one_that_can_be_had() {
    let (here, there) = Device::memory_pair(1).unwrap();
    let config = Config { somaxconn: usize::MAX, ..Config::default() };
    let server = Stack::builder(here).address("10.0.0.1/24").unwrap().config(config).start().unwrap();
    let client = Stack::builder(there).address("10.0.0.2/24").unwrap().start().unwrap();
    let listener = TcpListener::bind_on(&server, "10.0.0.1:80").unwrap();
    let connect = |_| TcpStream::connect_on(&client, listener.local_addr().unwrap()).unwrap();
    let waiting: Vec<TcpStream> = (0..64).map(connect).collect();
    waiting.iter().for_each(|_| drop(listener.accept().unwrap()));
}
