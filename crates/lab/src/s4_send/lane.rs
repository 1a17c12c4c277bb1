//! `lane`: the application's thread never touches the connection. What it sends goes into a ring; the lane takes it from
//! there, in the same loop in which it takes the acknowledgements in. These are the sockets of the product, as they are.

use super::sender::{PORT, TO};
use super::sink::{Answers, FarEnd, sink};
use super::{Outcome, pump};
use crate::bench::failure::Failure;
use crate::bench::machine;
use laneway::on_lane::Device;
use laneway::{Stack, TcpStream};
use laneway_device::{Queue, Rx, RxFrame};
use std::io::{ErrorKind, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// A lane that has nothing to do keeps looking for this long.
const SPIN: Duration = Duration::from_micros(50);

/// The far end, seen from the lane that sends to it: what it has heard is answered when the lane looks.
pub(super) struct FarRx {
    pub(super) far: FarEnd,
    pub(super) answers: Answers,
}

impl Rx for FarRx {
    fn poll(&mut self, max: usize) -> usize {
        self.answers.release();
        if self.answers.len() == 0 {
            self.far.answer(&mut self.answers);
        }
        self.answers.poll(max)
    }

    fn frame(&self, i: usize) -> RxFrame<'_> {
        self.answers.frame(i)
    }

    fn release(&mut self) {
        self.answers.release();
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

fn broken<E: std::fmt::Display>(what: &'static str) -> impl Fn(E) -> Failure {
    move |error| Failure::Stuck(format!("cannot {what}: {error}"))
}

/// One round: the lane on the first core, the sender on the second.
pub fn round(mtu: usize, write: usize, time: Duration, cores: usize) -> Result<Outcome, Failure> {
    let (tx, far, wire) = sink(mtu);
    let device = Device::queues(vec![Queue { rx: FarRx { far, answers: Answers::default() }, tx }.boxed()]);
    let builder = Stack::builder(device).address("10.0.0.1/24").map_err(broken("give the stack an address"))?;
    let stack = builder.spin(if cores > 1 { SPIN } else { Duration::ZERO }).pin(true).start();
    let stack = stack.map_err(broken("start a stack"))?;
    let sender = || {
        machine::pin(1 % cores);
        let to = SocketAddrV4::new(Ipv4Addr::from(TO), PORT);
        let stream = TcpStream::connect_on(&stack, to).map_err(broken("connect to the sink"))?;
        stream.set_nonblocking(true).map_err(broken("send without waiting"))?;
        let text: Vec<u8> = (0..write).map(|i| i as u8).collect();
        let began = std::cell::Cell::new(0.0);
        let send = |left: usize| match (&stream).write(&text[..left]) {
            Ok(taken) => Ok((taken, 0)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok((0, 0)),
            Err(error) => Err(broken("send")(error)),
        };
        let room = || {
            std::hint::spin_loop();
            Ok(())
        };
        let mut outcome = pump(write, time, &wire, |_| began.set(machine::process_cpu_s()), send, room)?;
        // All that this process does is this: what was not the sender was the lane.
        outcome.receiver_cpu_s = machine::process_cpu_s() - began.get() - outcome.sender_cpu_s;
        Ok(outcome)
    };
    let outcome = std::thread::scope(|scope| scope.spawn(sender).join());
    stack.stop();
    outcome.map_err(|_| Failure::Stuck("the sending thread panicked".into()))?
}
