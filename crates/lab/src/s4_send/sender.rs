//! Owns the one connection that all variants send on: the application on the lane, and the stack that it lives in.

use super::sink::{Answers, SinkTx};
use laneway_device::Queue;
use laneway_proto::tcp::CloseReason;
use laneway_proto::time::Instant;
use laneway_stack::app::{App, ConnId, Context};
use laneway_stack::config::Config;
use laneway_stack::control::{Cidr, Network};
use laneway_stack::entropy::BootSecrets;
use laneway_stack::error::Error;
use laneway_stack::host::Host;
use laneway_stack::worker::Turn;
use laneway_wire::flow::Address;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Where the sink is thought to be.
pub const TO: [u8; 4] = [10, 0, 0, 2];
/// nuttcp's port.
pub const PORT: u16 = 5_101;

/// What the application of the lane and the thread that sends know of each other.
#[derive(Default)]
pub struct Signs {
    /// After a short write there is room again.
    pub writable: AtomicBool,
    /// The connection is there.
    pub connected: AtomicBool,
    /// It ended, which it should not.
    pub broken: AtomicBool,
}

/// Opens one connection, and gives it what it is told to.
pub struct Sender {
    signs: Arc<Signs>,
    connection: Option<ConnId>,
    /// Bytes to give to the connection in this turn; what it did not take is still here afterwards.
    pub wanted: usize,
    text: Arc<[u8]>,
}

impl App for Sender {
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        if self.connection.is_none() {
            match cx.connect(None, Address::from_v4(TO), PORT, 0) {
                Ok(connection) => self.connection = Some(connection),
                Err(_) => self.signs.broken.store(true, Ordering::Release),
            }
        }
        if let Some(connection) = self.connection
            && self.wanted > 0
        {
            self.wanted -= cx.send(connection, &self.text[..self.wanted]);
        }
    }

    fn on_connect(&mut self, _: &mut Context<'_>, _: ConnId) {
        self.signs.connected.store(true, Ordering::Release);
    }

    fn on_data(&mut self, _: &mut Context<'_>, _: ConnId, data: &[u8]) -> usize {
        data.len()
    }

    fn on_writable(&mut self, _: &mut Context<'_>, _: ConnId) {
        self.signs.writable.store(true, Ordering::Release);
    }

    fn on_closed(&mut self, _: &mut Context<'_>, _: ConnId, _: u64, _: CloseReason) {
        self.signs.broken.store(true, Ordering::Release);
    }
}

/// A stack of one lane with one connection to the sink: the connection, its buffers, its timers, and whatever is below.
pub struct Stack {
    host: Host<Answers, SinkTx, Sender>,
}

impl Stack {
    /// Nothing has been sent yet: the first turn connects.
    pub fn new(tx: SinkTx, signs: Arc<Signs>, write: usize, now: Instant) -> Result<Stack, Error> {
        let network =
            Network { addresses: vec![Cidr { address: [10, 0, 0, 1].into(), prefix: 24 }], gateways: Vec::new() };
        let text: Arc<[u8]> = (0..write).map(|i| i as u8).collect();
        let queues = vec![Queue { rx: Answers::default(), tx }];
        let app = |_| Sender { signs: Arc::clone(&signs), connection: None, wanted: 0, text: Arc::clone(&text) };
        let host = Host::new(Config::default(), &network, &BootSecrets::from_system(), queues, now, app)?;
        Ok(Stack { host })
    }

    /// `send`: copies up to `bytes` into the connection and puts out what may go. Says how many were taken.
    pub fn send(&mut self, bytes: usize, now: Instant) -> usize {
        self.host.seats[0].app.wanted = bytes;
        self.host.turn(now);
        bytes - std::mem::take(&mut self.host.seats[0].app.wanted)
    }

    /// Takes in what the far end said, and puts out what may then go.
    pub fn input(&mut self, answers: &mut Answers, now: Instant) -> Turn {
        self.host.seats[0].queue.rx.take_from(answers);
        let mut turn = self.host.turn(now);
        while self.host.seats[0].queue.rx.len() > 0 {
            turn = self.host.turn(now);
        }
        turn
    }
}
