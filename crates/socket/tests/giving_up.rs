//! Who gives up is through with it: nothing of what was begun goes on, and what was asked for of the lane the lane knows.

mod common;

use laneway::on_lane::{self, App, ConnId, Context, Mib};
use laneway::{Config, Device, Stack, TcpStream, UdpSocket};
use std::io::{Read, Write};
use std::time::Duration;

#[test]
fn a_connect_whose_time_is_over_asks_no_more() {
    let (_server, client) = common::stacks();
    let nobody = "10.0.0.3:80".parse().unwrap();
    let error = TcpStream::connect_timeout_on(&client, &nobody, Duration::from_millis(50)).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    // A SYN is sent again after a second.
    std::thread::sleep(Duration::from_millis(1_200));
    let counters = client.counters().unwrap();
    assert_eq!((counters.get(Mib::TcpActiveOpens), counters.get(Mib::ConnectRetries)), (1, 0));
}

/// Its lane stands still as soon as somebody speaks, so that nobody is answered.
struct Standing;

impl App for Standing {
    fn on_data(&mut self, _: &mut Context<'_>, _: ConnId, data: &[u8]) -> usize {
        std::thread::sleep(Duration::from_secs(2));
        data.len()
    }
}

#[test]
fn a_user_timeout_is_the_lane_s() {
    let (here, there) = Device::memory_pair(1).unwrap();
    let server = on_lane::Stack::builder(here).address("10.0.0.1/24").unwrap().start(|_| Standing).unwrap();
    server.listen("10.0.0.1:80".parse().unwrap(), 16).unwrap();
    let client = Stack::builder(there).address("10.0.0.2/24").unwrap().start().unwrap();
    let mut stream = TcpStream::connect_on(&client, "10.0.0.1:80").unwrap();
    stream.set_tcp_user_timeout(Some(Duration::from_millis(300))).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(1_800))).unwrap();
    stream.write_all(b"is anybody there?").unwrap();
    let error = stream.read(&mut [0]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(110), "ETIMEDOUT, and not {error}");
}

/// Less than a millisecond is not for ever, and more than can be counted is not at once.
#[test]
fn times_beyond_what_is_counted_are_the_shortest_and_the_longest() {
    let (server, client) = common::stacks();
    let (stream, _other) = common::pair(&server, &client);
    stream.set_tcp_user_timeout(Some(Duration::from_nanos(1))).unwrap();
    assert_eq!(stream.tcp_user_timeout().unwrap(), Some(Duration::from_millis(1)));
    stream.set_linger(Some(Duration::from_secs(1 << 32))).unwrap();
    assert_eq!(stream.linger().unwrap(), Some(Duration::from_secs(i32::MAX as u64)));
}

/// However much is asked of a lane that has ended, nobody waits for it.
#[test]
fn options_of_a_connection_whose_stack_has_stopped_are_set_at_once() {
    let (server, client) = common::stacks();
    let (stream, _other) = common::pair(&server, &client);
    client.stop().unwrap();
    for i in 0..1_000 {
        stream.set_nodelay(i % 2 == 0).unwrap();
        stream.set_tcp_user_timeout(Some(Duration::from_millis(i))).unwrap();
    }
    assert!(!stream.nodelay().unwrap());
}

#[test]
fn the_hop_limit_is_the_stack_s_until_it_is_set() {
    let (device, _link) = Device::memory_pair(1).unwrap();
    let config = Config { ip_default_ttl: 17, ..Config::default() };
    let stack = Stack::builder(device).address("10.0.0.1/24").unwrap().config(config).start().unwrap();
    let socket = UdpSocket::bind_on(&stack, "10.0.0.1:0").unwrap();
    assert_eq!(socket.ttl().unwrap(), 17);
    socket.set_ttl(64).unwrap();
    assert_eq!(socket.ttl().unwrap(), 64);
}
