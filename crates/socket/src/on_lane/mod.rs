//! Applications that live on a lane: called when something happened, run to completion, gone until the next event.
//!
//! # A server and its client in one process
//!
//! ```
//! use laneway::on_lane::{Address, App, ConnId, Context, Device, Stack};
//! use std::sync::mpsc;
//!
//! /// Sends back what arrives.
//! struct Echo;
//!
//! impl App for Echo {
//!     fn on_data(&mut self, cx: &mut Context<'_>, connection: ConnId, data: &[u8]) -> usize {
//!         cx.send(connection, data) // what does not fit is kept, and shown again after `resume`
//!     }
//!     fn on_writable(&mut self, cx: &mut Context<'_>, connection: ConnId) {
//!         cx.resume(connection);
//!     }
//! }
//!
//! /// Sends a line, and hands on what comes back.
//! struct Ask {
//!     started: bool,
//!     answers: mpsc::Sender<Vec<u8>>,
//! }
//!
//! impl App for Ask {
//!     fn on_poll(&mut self, cx: &mut Context<'_>) {
//!         if !self.started {
//!             self.started = true;
//!             cx.connect(None, Address::from_v4([10, 0, 0, 1]), 7, 0).expect("a free port");
//!         }
//!     }
//!     fn on_connect(&mut self, cx: &mut Context<'_>, connection: ConnId) {
//!         cx.send(connection, b"hello");
//!     }
//!     fn on_data(&mut self, cx: &mut Context<'_>, connection: ConnId, data: &[u8]) -> usize {
//!         self.answers.send(data.to_vec()).expect("somebody listens");
//!         cx.close(connection);
//!         data.len()
//!     }
//! }
//!
//! # fn main() -> Result<(), laneway::on_lane::StartError> {
//! let (here, there) = Device::memory_pair(/* lanes of each */ 1)?;
//! let server = Stack::builder(here).address("10.0.0.1/24")?.start(|_lane| Echo)?;
//! server.listen("0.0.0.0:7".parse().unwrap(), 128)?;
//!
//! let (answers, answer) = mpsc::channel();
//! let client = Stack::builder(there)
//!     .address("10.0.0.2/24")?
//!     .start(move |_lane| Ask { started: false, answers: answers.clone() })?;
//! assert_eq!(answer.recv().unwrap(), b"hello");
//! client.stop();
//! server.stop();
//! # Ok(())
//! # }
//! ```
//!
//! # Run to completion
//! Each lane has an [`App`] value of its own. The lane's loop takes a batch of frames in, calls the application for what
//! they mean, and sends at the end of the same poll what is then due: the ACK rides on the answer, and the FIN on its last
//! segment. There is no other thread, so there is nothing to lock; what a callback costs, every connection of the lane
//! waits for. Never block in one.
//!
//! # Receiving without a copy
//! [`App::on_data`] is shown the bytes where the device put them. It answers how many it took: none is fine. What it
//! leaves is copied into the connection's receive buffer, fills its window, and is shown again when more arrives or
//! [`Context::resume`] asks for it. **Take what is incomplete into a buffer of your own**: kept bytes may lie in two
//! pieces, and the second is shown only after the first is taken.
//!
//! # Sending
//! [`Context::send`] copies into the connection's send buffer and says how many bytes fitted. After a short one
//! [`App::on_writable`] is called as soon as a third of the buffer is free.
//!
//! # Connections
//! A [`ConnId`] is a plain number. It names one connection for ever: verbs on one that is gone do nothing. For state of
//! your own, each connection carries a word ([`Context::token`]): an index into a vector of yours, for example. Once
//! tables have grown to the number of connections in use, neither opening nor closing one allocates memory.
//!
//! A connection ends with [`App::on_closed`], called once for each that was accepted or whose open was begun, whatever the reason; with
//! one exception: an open still under way that the application itself closes or aborts is gone at once, and neither [`App::on_connect`] nor
//! [`App::on_closed`] follows. `TIME_WAIT` is the stack's own affair and comes after that.
//!
//! # Lanes
//! A flow's lane is chosen by a keyed hash of its addresses and ports. [`Context::connect`] chooses a local port whose
//! answers come home to the calling lane. Lanes never wait for each other; an application that wants to talk across
//! lanes brings channels of its own and [`Waker`].

mod addresses;
mod builder;
mod device;
mod stack;
mod start_error;

pub use addresses::{check_addresses, check_gateways, check_host_addresses, contains, other_usable};
pub use builder::{Builder, References, Sharing};
pub use device::Device;
pub use laneway_stack::app::{App, ConnId, Context, ListenerId, Soon, UdpId};
pub use laneway_stack::binding::BindOptions;
pub use laneway_stack::config::Config;
pub use laneway_stack::control::{BindId, Bucket, Cidr};
pub use laneway_stack::counters::{Counters, Mib};
pub use laneway_stack::device::fault::Rates;
pub use laneway_stack::device::memory::LinkConfig;
pub use laneway_stack::device::tun::TunError;
pub use laneway_stack::device::{AnyQueue, Medium, Queue, Rx, Tx};
pub use laneway_stack::error::Error;
pub use laneway_stack::ports::{Slice, Tallies};
pub use laneway_stack::proto::discard::Discard;
pub use laneway_stack::proto::ip::route::{Prefix, Route, RouteError, RouteTable, RouteTableBuilder};
pub use laneway_stack::proto::tcp::KeepaliveTimes;
pub use laneway_stack::proto::tcp::congestion::Algorithm;
pub use laneway_stack::proto::tcp::{CloseReason, Config as TcpConfig, State};
pub use laneway_stack::proto::time::Instant;
pub use laneway_stack::wire::flow::{Address, FlowKey};
pub use stack::{Ended, Stack, Waker};
pub use start_error::StartError;

#[cfg(test)]
mod tests;
