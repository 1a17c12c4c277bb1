use super::*;
use crate::{Device, Stack, UdpSocket};
use std::time::Duration;

fn stack() -> Stack {
    Stack::builder(Device::memory_pair(1).unwrap().0).address("10.0.0.1/24").unwrap().start().unwrap()
}

/// A socket, and its place with the driver of the runtime that this is called in.
fn registered(stack: &Stack) -> (Registration, UdpSocket) {
    let socket = UdpSocket::bind_on(stack, "10.0.0.1:0").unwrap();
    (Registration::new(&socket).unwrap(), socket)
}

/// With it goes the poller and its descriptor; the next socket has another.
#[tokio::test]
async fn a_task_ends_with_the_last_socket() {
    let stack = stack();
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let others = tasks();
    for _ in 0..3 {
        let (first, last) = (registered(&stack), registered(&stack));
        drop(first);
        ::tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(tasks(), others + 1);
        drop(last);
        let until = std::time::Instant::now() + Duration::from_secs(10);
        while tasks() > others {
            assert!(std::time::Instant::now() < until, "it waits for nobody");
            ::tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

#[test]
fn runtimes_that_are_gone_are_forgotten() {
    const RUNTIMES: usize = 100;
    let stack = stack();
    for _ in 0..RUNTIMES {
        let runtime = ::tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { drop(registered(&stack)) });
    }
    assert!(lock(&DRIVERS).len() < RUNTIMES / 2);
}

fn later<T>() -> io::Result<T> {
    Err(io::ErrorKind::WouldBlock.into())
}

/// What it would wait for comes after its first look, and before its waker is in its place: nobody will wake it.
#[tokio::test]
async fn who_waits_looks_again() {
    let (stack, mut looks) = (stack(), 0);
    let (registration, _socket) = registered(&stack);
    let mut look = || {
        looks += 1;
        if looks % 2 == 1 { later() } else { Ok(looks) }
    };
    let polled = poll_fn(|cx| Poll::Ready(registration.poll(cx, Side::Reader, &mut look))).await;
    assert!(matches!(polled, Poll::Ready(Ok(2))));
    let waited = ::tokio::time::timeout(Duration::from_secs(10), registration.wait(Side::Writer, look)).await;
    assert_eq!(waited.expect("it is there").unwrap(), 4);
}

/// A program that waits for a moment, again and again, leaves nothing behind of all those times.
#[tokio::test]
async fn who_waits_no_longer_is_forgotten() {
    let stack = stack();
    let (registration, _socket) = registered(&stack);
    for _ in 0..100 {
        let moment = Duration::from_micros(10);
        ::tokio::time::timeout(moment, registration.wait(Side::Reader, later::<()>)).await.unwrap_err();
        let readable = registration.ready(tokio_io::Interest::READABLE);
        ::tokio::time::timeout(moment, readable).await.unwrap_err();
    }
    assert_eq!(lock(&registration.waits).tell(Side::Reader).count(), 0);
}

/// Nor does a socket that is dropped, though another of the same runtime stays.
#[tokio::test]
async fn a_socket_that_is_dropped_is_forgotten() {
    let stack = stack();
    let (stays, _socket) = registered(&stack);
    (0..100).for_each(|_| drop(registered(&stack)));
    assert_eq!(lock(&stays.shared.waits).len(), 1);
    assert_eq!(format!("{:?}", stays.shared.poller), "Poller { watched: 1, .. }");
}
