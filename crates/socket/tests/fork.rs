//! A child has the memory of its parent and none of its threads: every call says so.
//!
//! Alone in its program: a child of a program with threads may do little, and this one does no more than it must.

mod common;

use laneway::{Device, Poller, Stack, TcpListener, TcpSocket, TcpStream, UdpSocket};
use laneway_stack::threads::fork::in_a_child;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{Read, Write};
use std::time::Duration;

#[test]
fn every_call_in_a_child_says_ebadf() {
    let (here, there) = Device::memory_pair(1).unwrap();
    let server = Stack::builder(here).address("10.0.0.1/24").unwrap().start().unwrap();
    let client = Stack::builder(there).address("10.0.0.2/24").unwrap().start().unwrap();
    let listener = TcpListener::bind_on(&server, "10.0.0.1:80").unwrap();
    let mut stream = TcpStream::connect_on(&client, "10.0.0.1:80").unwrap();
    let mut other = listener.accept().unwrap().0;
    let udp = UdpSocket::bind_on(&server, "10.0.0.1:53").unwrap();
    let poller = Poller::new().unwrap();
    let idle = TcpSocket::new_v4_on(&client);

    poller.add(&udp, 2, laneway::Interest::READABLE, laneway::Mode::Level).unwrap();

    // When the lane has taken notice of it, and had it look. From here on its descriptor tells.
    common::rounds([&client, &server]);
    assert_eq!(poller.wait(&mut Vec::new(), Some(Duration::ZERO)).unwrap(), 0);

    let sockets = (&server, &client, &listener, &udp, &poller, &idle);
    let first_wrong = in_a_child(|| {
        let (server, client, listener, udp, poller, idle) = sockets;
        let badly = |error: std::io::Error| error.raw_os_error() == Some(9);
        let mut buf = [0; 4];
        [
            (&stream).read(&mut buf).is_err_and(badly),
            (&stream).write(b"x").is_err_and(badly),
            stream.peek(&mut buf).is_err_and(badly),
            stream.shutdown(std::net::Shutdown::Both).is_err_and(badly),
            stream.set_nodelay(true).is_err_and(badly),
            stream.local_addr().is_err_and(badly),
            stream.try_clone().is_err_and(badly),
            listener.accept().is_err_and(badly),
            udp.recv(&mut buf).is_err_and(badly),
            udp.send_to(b"x", "10.0.0.2:1").is_err_and(badly),
            udp.send_to(b"x", "10.0.0.2:0").is_err_and(badly),
            udp.send(b"x").is_err_and(badly),
            (&stream).write_vectored(&[]).is_err_and(badly),
            (&stream).read_vectored(&mut []).is_err_and(badly),
            TcpStream::connect_on(client, "10.0.0.1:80").is_err_and(badly),
            TcpListener::bind_on(server, "10.0.0.1:81").is_err_and(badly),
            idle.set_nodelay(true).is_err_and(badly),
            idle.local_addr().is_err_and(badly),
            idle.bind(([10, 0, 0, 2], 0).into()).is_err_and(badly),
            TcpSocket::new_v4_on(client).connect(([10, 0, 0, 1], 80).into()).is_err_and(badly),
            TcpSocket::new_v4_on(client).listen(8).is_err_and(badly),
            poller.add(listener, 1, laneway::Interest::READABLE, laneway::Mode::Level).is_err_and(badly),
            poller.modify(2, laneway::Interest::BOTH, laneway::Mode::Level).is_err_and(badly),
            poller.delete(udp, 2).is_err_and(badly),
            poller.wait(&mut Vec::new(), Some(Duration::ZERO)).is_err_and(badly),
            server.stop().is_none(),
            {
                poller.notify(); // of the parent's descriptor
                true
            },
        ]
        .iter()
        .position(|right| !right)
        .map_or(0, |at| at as u8 + 1)
    });
    assert_eq!(first_wrong.unwrap(), 0, "the number of the first call that did not say EBADF");

    // The parent has noticed nothing.
    let mut told = [PollFd::new(&poller, PollFlags::IN)];
    assert_eq!(poll(&mut told, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap(), 0);
    stream.write_all(b"still here").unwrap();
    let mut buf = [0; 10];
    other.read_exact(&mut buf).unwrap();
    assert_eq!(&buf, b"still here");
}
