use super::*;
use crate::Device;

/// A reader finds nothing, and before it asks whether the stack has stopped, the last datagram comes, and the stack stops behind it.
#[test]
fn what_came_before_the_stack_stopped_is_received() {
    let (here, there) = Device::memory_pair(1).unwrap();
    let server = Stack::builder(here).address("10.0.0.1/24").unwrap().start().unwrap();
    let client = Stack::builder(there).address("10.0.0.2/24").unwrap().start().unwrap();
    let near = UdpSocket::bind_on(&server, "10.0.0.1:0").unwrap();
    let far = UdpSocket::bind_on(&client, "10.0.0.2:0").unwrap();
    let socket = near.ticket();
    let mut looks = 0;
    let received = near.wait(READ, &socket.read_timeout_ms, || {
        looks += 1;
        if looks == 1 {
            far.send_to(b"last", near.local_addr().unwrap()).unwrap();
            while socket.ready() & READ == 0 {
                std::thread::yield_now();
            }
            server.stop().unwrap();
            return None;
        }
        socket.receive(/* peek= */ false, |_, data| data.to_vec())
    });
    assert_eq!(received.unwrap(), b"last");
    assert_eq!(near.recv(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::NetworkDown);
}

/// There may be room by the time that he has said that he wants some: then nobody tells him.
#[test]
fn who_may_not_wait_looks_again_behind_his_wish() {
    let stack = Stack::builder(Device::memory_pair(1).unwrap().0).address("10.0.0.1/24").unwrap().start().unwrap();
    let socket = UdpSocket::bind_on(&stack, "10.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    let mut looks = 0;
    let sent = socket.wait(WRITE, &socket.ticket().write_timeout_ms, || {
        looks += 1;
        (looks == 2).then_some(())
    });
    sent.unwrap();
}
