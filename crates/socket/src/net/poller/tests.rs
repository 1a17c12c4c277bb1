use super::*;
use crate::{Device, Stack};
use std::sync::atomic::AtomicUsize;

fn stack() -> Stack {
    Stack::builder(Device::memory_pair(1).unwrap().0).address("10.0.0.1/24").unwrap().start().unwrap()
}

/// Has the lane do what it was asked: it looks at its mail and at that of its threads in one poll.
fn settle(stack: &Stack) {
    (0..4).for_each(|_| _ = stack.counters().unwrap());
}

/// So many are `kept` once the lane has done much of what it was asked, some of it in each of its polls. It may have had no core until now.
fn settled(stack: &Stack, mut kept: impl FnMut() -> usize) -> usize {
    for _ in 0..10_000 {
        if kept() <= 2 * FEW {
            break;
        }
        settle(stack);
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

/// By its lane, too, though nothing happens to the socket: the lane would keep the poller's descriptor with it.
#[test]
fn what_is_deleted_is_let_go_by_its_lane() {
    let stack = stack();
    let socket = UdpSocket::bind_on(&stack, "10.0.0.1:0").unwrap();
    let poller = Poller::new().unwrap();
    poller.add(&socket, 1, Interest::READABLE, Mode::Edge).unwrap();
    settle(&stack);
    poller.wait(&mut Vec::new(), Some(Duration::ZERO)).unwrap();
    let watch = lock(&poller.watched).by_key[&1].clone();
    poller.delete(&socket, 1).unwrap();
    settle(&stack);
    assert_eq!(Arc::strong_count(&watch), 1);
}

/// Before the wait, while it looks, or while it sleeps; and nothing is left of it for the next.
#[test]
fn a_notify_is_heard_once_whenever_it_comes() {
    const ROUNDS: usize = 50_000;
    let (poller, long, short) = (Poller::new().unwrap(), Duration::from_secs(20), Duration::from_millis(50));
    let waits = |timeout| {
        let began = Instant::now();
        poller.wait(&mut Vec::new(), Some(timeout)).unwrap();
        began.elapsed()
    };
    let heard = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                assert!(waits(long) < long / 2, "round {round}");
                heard.store(round, Release);
            }
        });
        for round in 1..=ROUNDS {
            // Some come while it looks, some while it falls asleep, and some when it sleeps.
            (0..round % 64).for_each(|_| std::hint::spin_loop());
            if round % 5_000 == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            let began = Instant::now();
            poller.notify();
            let mut looks = 0;
            while heard.load(Acquire) < round {
                assert!(began.elapsed() < long, "round {round}");
                looks += 1;
                if looks % 1_000 == 0 { std::thread::yield_now() } else { std::hint::spin_loop() }
            }
        }
    });
    assert!(waits(short) >= short);
}
