//! Where a connection begins: at a port that a socket is bound to, whichever lane its answers come to, or at an address alone.

mod common;

use common::rounds;
use laneway::{Config, Device, Stack, TcpListener, TcpSocket, TcpStream};
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;

/// A server, and a client that has these ports to choose from.
fn stacks(lanes: usize, ports: (u16, u16)) -> [Stack; 2] {
    let (here, there) = Device::memory_pair(lanes).unwrap();
    let server = Stack::builder(here).address("10.0.0.1/24").unwrap().start().unwrap();
    let config = Config { ip_local_port_range: ports, ..Config::default() };
    let client = Stack::builder(there).config(config).address("10.0.0.2/24").unwrap();
    [server, client.address("10.0.0.3/24").unwrap().start().unwrap()]
}

fn at(addr: &str) -> SocketAddr {
    addr.parse().unwrap()
}

fn bound(stack: &Stack, from: &str) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4_on(stack);
    socket.bind(at(from)).map(|()| socket)
}

/// The lane that is asked first passes it on to the one to which the answers come.
#[test]
fn a_port_has_its_lane_and_is_found_there() {
    let [server, client] = stacks(3, (32_768, 60_999));
    let listener = TcpListener::bind_on(&server, "10.0.0.1:80").unwrap();
    for _ in 0..60 {
        let socket = bound(&client, "10.0.0.2:0").unwrap();
        let from = socket.local_addr().unwrap();
        let mut near = socket.connect(at("10.0.0.1:80")).unwrap();
        let (mut far, who) = listener.accept().unwrap();
        assert_eq!((near.local_addr().unwrap(), who), (from, from));
        near.write_all(b"x").unwrap();
        far.read_exact(&mut [0]).unwrap();
        // Who closes first keeps it in TIME_WAIT.
        drop(far);
        assert_eq!(near.read(&mut [0]).unwrap(), 0);
        drop(near);
        rounds([&client, &server]);
        bound(&client, &from.to_string()).unwrap();
    }
}

#[test]
fn an_address_alone_has_all_ports_towards_each_peer() {
    let [server, client] = stacks(1, (40_000, 40_003));
    let listeners = ["10.0.0.1:80", "10.0.0.1:81"].map(|at| TcpListener::bind_on(&server, at).unwrap());
    let open = |no_port, to: &TcpListener| -> io::Result<TcpStream> {
        let socket = TcpSocket::new_v4_on(&client);
        socket.set_bind_address_no_port(no_port)?;
        socket.bind(at("10.0.0.3:0"))?;
        assert_eq!(socket.local_addr()?.port() == 0, no_port);
        assert_eq!(socket.bind_address_no_port()?, no_port);
        socket.connect(to.local_addr()?)
    };
    {
        let all: Vec<_> = (0..4).map(|_| open(false, &listeners[0]).unwrap()).collect();
        assert_eq!(open(false, &listeners[1]).unwrap_err().kind(), ErrorKind::AddrInUse);
        all.iter().for_each(|stream| stream.set_linger(Some(std::time::Duration::ZERO)).unwrap());
    }
    rounds([&client, &server]);
    let all: Vec<_> = (0..8).map(|i| open(true, &listeners[i / 4]).unwrap()).collect();
    assert!(all.iter().all(|stream| stream.local_addr().unwrap().ip() == at("10.0.0.3:0").ip()));
    assert_eq!(open(true, &listeners[1]).unwrap_err().kind(), ErrorKind::AddrNotAvailable);

    let socket = TcpSocket::new_v4_on(&client);
    socket.set_bind_address_no_port(true).unwrap();
    assert_eq!(socket.bind(at("10.0.0.1:0")).unwrap_err().kind(), ErrorKind::AddrNotAvailable);
    socket.bind(at("0.0.0.0:0")).unwrap();
    assert_eq!(socket.bind(at("10.0.0.3:0")).unwrap_err().kind(), ErrorKind::InvalidInput, "it is bound already");
    assert!(socket.connect(at("10.0.0.1:82")).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused));
}

#[test]
fn a_connect_that_is_given_up_gives_the_port_up() {
    let [server, client] = stacks(2, (32_768, 60_999));
    for _ in 0..20 {
        let socket = bound(&client, "10.0.0.2:7000").unwrap();
        let waits = socket.begin_connect(&at("10.0.0.77:80")).unwrap();
        assert_eq!(bound(&client, "10.0.0.2:7000").map(drop).unwrap_err().kind(), ErrorKind::AddrInUse);
        drop(waits);
        rounds([&client, &server]);
    }
    let socket = bound(&client, "10.0.0.2:7000").unwrap();
    let soon = std::time::Duration::from_millis(20);
    assert_eq!(socket.connect_timeout(&at("10.0.0.77:80"), soon).unwrap_err().kind(), ErrorKind::TimedOut);
    rounds([&client, &server]);
    let socket = bound(&client, "10.0.0.2:7000").unwrap();
    let none = std::time::Duration::ZERO;
    assert_eq!(socket.connect_timeout(&at("10.0.0.77:80"), none).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn a_stack_that_has_ended_binds_nothing() {
    let [server, client] = stacks(1, (32_768, 60_999));
    let (socket, idle) = (bound(&client, "10.0.0.2:7000").unwrap(), TcpSocket::new_v4_on(&client));
    let to_listen = bound(&client, "10.0.0.2:7001").unwrap();
    client.stop();
    assert_eq!(idle.bind(at("10.0.0.2:0")).unwrap_err().kind(), ErrorKind::NetworkDown);
    assert_eq!(socket.connect(at("10.0.0.1:80")).unwrap_err().kind(), ErrorKind::NetworkDown);
    assert_eq!(to_listen.listen(1).map(drop).unwrap_err().kind(), ErrorKind::NetworkDown);
    assert_eq!(idle.connect(at("10.0.0.1:80")).unwrap_err().kind(), ErrorKind::NetworkDown);
    let idle = TcpSocket::new_v4_on(&server);
    drop(server);
    assert_eq!(idle.bind(at("10.0.0.1:0")).unwrap_err().kind(), ErrorKind::NetworkDown);
}

/// A socket of which nothing became has its port no longer.
#[test]
fn a_socket_that_is_dropped_gives_its_port_up() {
    let [server, client] = stacks(1, (32_768, 60_999));
    for _ in 0..3 {
        assert!(format!("{:?}", bound(&server, "10.0.0.1:80").unwrap()).contains("10.0.0.1:80"));
        rounds([&server, &client]);
        drop(bound(&server, "10.0.0.1:80").unwrap().listen(1).unwrap());
        rounds([&server, &client]);
    }
}
