use super::TcpStream;
use crate::{Device, Stack};
use std::io::{ErrorKind, IoSlice, Read};
use std::thread;
use std::time::{Duration, Instant};
use tokio::time::timeout;

fn stacks() -> (Stack, Stack) {
    let (here, there) = Device::memory_pair(1).unwrap();
    let server = Stack::builder(here).address("10.0.0.1/24").unwrap().start().unwrap();
    let client = Stack::builder(there).address("10.0.0.2/24").unwrap().start().unwrap();
    (server, client)
}

/// There was room when a task looked, and another handle has filled it to the last byte before the task wrote: so nobody but this task wants room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_was_late_is_told_of_room() {
    let (server, client) = stacks();
    let listener = crate::TcpListener::bind_on(&server, "10.0.0.1:0").unwrap();
    let stream = crate::TcpStream::connect_on(&client, listener.local_addr().unwrap()).unwrap();
    let mut far = listener.accept().unwrap().0;
    let near = TcpStream::from_std(stream).unwrap();
    let talk = near.inner.talk();

    let (mut sent, mut full_since) = (0, Instant::now());
    while full_since.elapsed() < Duration::from_millis(100) {
        let n = talk.send(&vec![7; talk.writable()]);
        if n > 0 {
            (sent, full_since) = (sent + n, Instant::now());
            near.inner.desk().serve(talk);
        }
        thread::sleep(Duration::from_millis(1));
    }
    let late =
        near.registration.try_write(|| near.inner.ask_for_memory(), || near.inner.try_write(&[IoSlice::new(b"x")]));
    assert_eq!(late.unwrap_err().kind(), ErrorKind::WouldBlock);
    far.read_exact(&mut vec![0; sent]).unwrap();
    while talk.writable() < talk.send_limit() {
        thread::sleep(Duration::from_millis(1));
    }
    timeout(Duration::from_secs(5), near.writable()).await.expect("it is told").unwrap();
    assert_eq!(near.try_write(b"x").unwrap(), 1);
}

/// It was refused, and before it has said that it wants room there is some: nobody will tell it of that.
#[tokio::test]
async fn who_is_not_refused_twice_can_write_on() {
    let (server, client) = stacks();
    let listener = crate::TcpListener::bind_on(&server, "10.0.0.1:0").unwrap();
    let near = TcpStream::connect_on(&client, listener.local_addr().unwrap()).await.unwrap();
    let mut tries = 0;
    let written = near.registration.try_write(
        || panic!("it has what it wants"),
        || {
            tries += 1;
            if tries == 1 { Err(ErrorKind::WouldBlock.into()) } else { near.inner.try_write(&[IoSlice::new(b"x")]) }
        },
    );
    assert_eq!(written.unwrap(), 1);
    timeout(Duration::from_secs(5), near.writable()).await.expect("there is room").unwrap();
}

#[tokio::test]
async fn of_several_addresses_the_first_that_answers_is_taken() {
    let (server, client) = stacks();
    let listener = crate::TcpListener::bind_on(&server, "10.0.0.1:0").unwrap();
    let (closed, open) = ("10.0.0.1:9".parse().unwrap(), listener.local_addr().unwrap());
    let near = TcpStream::connect_on(&client, &[closed, open][..]).await.unwrap();
    assert_eq!(near.peer_addr().unwrap(), open);
    let refused = TcpStream::connect_on(&client, &["127.0.0.1:9".parse().unwrap(), closed][..]).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "what the last one gave");
}
