//! A child has a handle of its parent's stack and none of the threads: no call waits for them, and nothing of the parent's goes with the handle.
//!
//! Alone in its program, as `fork` is.

use laneway::control::ControlSocket;
use laneway::on_lane::{App, ConnId, Context, Device, Error, Mib, Stack, UdpId};
use laneway_stack::threads::fork::in_a_child;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

struct Sink;
impl App for Sink {
    fn on_data(&mut self, _: &mut Context<'_>, _: ConnId, data: &[u8]) -> usize {
        data.len()
    }
}

#[test]
fn a_child_waits_for_no_thread_of_its_parent_s() {
    let (here, there) = Device::memory_pair(1).unwrap();
    let at = std::env::temp_dir().join(format!("laneway-fork-{}.sock", std::process::id()));
    let first = Stack::builder(here).address("10.0.0.1/24").unwrap().control(ControlSocket::At(at.clone()));
    let [first, second] = [first, Stack::builder(there).address("10.0.0.2/24").unwrap()]
        .map(|builder| Mutex::new(Some(builder.start(|_| Sink).unwrap())));

    // It is copied with the rest of the memory: what becomes of it there is nothing to us.
    let (tell, told) = channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            let first_wrong = in_a_child(|| {
                let [first, second] = [&first, &second].map(|stack| stack.lock().unwrap().take().unwrap());
                let right = [
                    matches!(first.counters(), Err(Error::Closed)),
                    matches!(first.listen("10.0.0.1:80".parse().unwrap(), 8), Err(Error::Closed)),
                    matches!(first.bind_udp("10.0.0.1:53".parse().unwrap()), Err(Error::Closed)),
                    matches!(first.buckets(), Err(Error::Closed)),
                    {
                        first.unbind_udp(UdpId(0));
                        drop(first);
                        second.stop().counters.get(Mib::IpInReceives) == 0
                    },
                ];
                right.iter().position(|right| !right).map_or(0, |at| at as u8 + 1)
            });
            tell.send(first_wrong).unwrap();
        });
        let first_wrong = told.recv_timeout(Duration::from_secs(20));
        // One that waits would be waited for.
        let Ok(first_wrong) = first_wrong else { std::process::exit(1) };
        assert_eq!(first_wrong.unwrap(), 0, "the number of the first call that was answered otherwise");
    });

    // The parent has noticed nothing.
    assert!(at.exists(), "its control socket is there");
    for stack in [first, second] {
        let stack = stack.into_inner().unwrap().unwrap();
        stack.counters().unwrap();
        assert_eq!(stack.stop().failure, None);
    }
    assert!(!at.exists());
}
