use super::*;
use crate::{Device, Stack};

fn stack() -> Stack {
    Stack::builder(Device::memory_pair(1).unwrap().0).address("10.0.0.1/24").unwrap().start().unwrap()
}

/// So many are `kept` once the lane has done what it was asked, some of it in each of its polls. It may have had no core until now.
fn settled(stack: &Stack, mut kept: impl FnMut() -> usize) -> usize {
    for _ in 0..10_000 {
        if kept() <= 2 * FEW {
            break;
        }
        stack.counters().unwrap();
    }
    kept()
}

#[test]
fn what_is_deleted_is_let_go_though_nobody_waits() {
    let stack = stack();
    let socket = UdpSocket::bind_on(&stack, "10.0.0.1:0").unwrap();
    let other = UdpSocket::bind_on(&stack, "10.0.0.1:0").unwrap();
    let poller = Poller::new().unwrap();
    poller.add(&other, 0, Interest::WRITABLE, Mode::Edge).unwrap();
    for _ in 0..100 * FEW {
        poller.add(&socket, 1, Interest::BOTH, Mode::Edge).unwrap();
        poller.delete(&socket, 1).unwrap();
    }
    let kept = settled(&stack, || Arc::strong_count(&**socket.ticket()));
    assert!(kept <= 2 * FEW, "it is kept {kept} times");
    let mut events = Vec::new();
    poller.wait(&mut events, Some(Duration::ZERO)).unwrap();
    assert_eq!(events, [Event { key: 0, readable: false, writable: true }], "the other was queued all the time");
}

#[test]
fn what_is_dropped_is_let_go_though_nobody_waits() {
    let stack = stack();
    let poller = Poller::new().unwrap();
    let dropped: Vec<_> = (0..10 * FEW)
        .map(|key| {
            let socket = UdpSocket::bind_on(&stack, "10.0.0.1:0").unwrap();
            poller.add(&socket, key, Interest::BOTH, Mode::Level).unwrap();
            Arc::downgrade(&**socket.ticket())
        })
        .collect();
    let kept = settled(&stack, || dropped.iter().filter(|socket| socket.strong_count() > 0).count());
    assert!(kept <= 2 * FEW, "{kept} are kept");
}
