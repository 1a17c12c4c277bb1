use super::*;
use crate::{Device, Stack, UdpSocket};

fn stack() -> Stack {
    Stack::builder(Device::memory_pair(1).unwrap().0).address("10.0.0.1/24").unwrap().start().unwrap()
}

fn registration(stack: &Stack) -> Registration {
    Registration::new(&UdpSocket::bind_on(stack, "10.0.0.1:0").unwrap()).unwrap()
}

/// With it goes the poller and its descriptor; the next socket has another.
#[tokio::test]
async fn a_task_ends_with_the_last_socket() {
    let stack = stack();
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let others = tasks();
    for _ in 0..3 {
        let (first, last) = (registration(&stack), registration(&stack));
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
        runtime.block_on(async { drop(registration(&stack)) });
    }
    assert!(lock(&DRIVERS).len() < RUNTIMES / 2);
}
