use super::*;
use crate::{Device, TcpListener};
use std::io::ErrorKind;

/// Two stacks on a link, of which the first takes its time to stop, and a connection from the second to the first.
fn connected() -> ([Stack; 2], TcpStream, TcpStream) {
    let (here, there) = Device::memory_pair(1).unwrap();
    let server = Stack::builder(here).address("10.0.0.1/24").unwrap().grace(Duration::from_secs(60)).start().unwrap();
    let client = Stack::builder(there).address("10.0.0.2/24").unwrap().start().unwrap();
    let listener = TcpListener::bind_on(&server, "10.0.0.1:0").unwrap();
    let far = TcpStream::connect_on(&client, listener.local_addr().unwrap()).unwrap();
    let near = listener.accept().unwrap().0;
    ([server, client], near, far)
}

/// A reader finds nothing, and before it asks why, the last bytes come, and a reset behind them.
#[test]
fn what_came_before_a_reset_is_read_before_it() {
    let ([server, client], mut near, mut far) = connected();
    near.set_nonblocking(true).unwrap();
    let status = near.talk().lane().status.load(Acquire);
    far.write_all(b"last").unwrap();
    while near.talk().readable() == 0 {
        std::thread::yield_now();
    }
    far.set_linger(Some(Duration::ZERO)).unwrap();
    drop(far);
    while !near.talk().lane().has_error() {
        std::thread::yield_now();
    }
    let found = near.found_nothing(/* asks_for_nothing= */ false, status);
    assert_eq!(found.unwrap_err().kind(), ErrorKind::WouldBlock);
    let mut buf = [0; 8];
    assert_eq!(near.read(&mut buf).unwrap(), 4);
    assert_eq!(near.read(&mut buf).unwrap_err().kind(), ErrorKind::ConnectionReset);
    drop((server, client));
}

/// Why is said once. From then on it is over, though its peer does not read, and what was written before waits until the grace period is over.
#[test]
fn one_whose_bytes_wait_while_its_stack_stops_is_over() {
    let ([server, client], mut near, far) = connected();
    near.set_nonblocking(true).unwrap();
    let mut full_since = Instant::now();
    while full_since.elapsed() < Duration::from_millis(300) {
        if near.write(&[7; 65_536]).is_ok() {
            full_since = Instant::now();
        }
    }
    let stops = std::thread::spawn(move || server.stop());
    while !near.talk().lane().has_error() {
        std::thread::yield_now();
    }
    assert_eq!(near.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::NetworkDown);
    assert_eq!(near.read(&mut [0; 8]).unwrap(), 0);
    assert_eq!(near.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
    assert!(!stops.is_finished());
    drop(far);
    stops.join().unwrap();
    drop(client);
}

/// What it waits for may have come before it said that it waits: then nobody wakes it.
#[test]
fn who_has_what_it_would_wait_for_does_not_sleep() {
    let (_stacks, near, mut far) = connected();
    near.desk().set_look_us(0);
    far.write_all(b"x").unwrap();
    while near.talk().readable() == 0 {
        std::thread::yield_now();
    }
    let began = Instant::now();
    assert!(near.wait(READ, Some(began + Duration::from_secs(10)), |s| s.talk().readable() > 0));
    assert!(began.elapsed() < Duration::from_secs(5));
}
