//! Asking a running stack what it is doing, and answering: a Unix stream socket on which questions and answers are lines
//! of JSON. The commands `laneway ss`, `nstat`, `watch`, `lanes`, `locks`, `steer` and `trace` are built on this, and so can your program be.
//!
//! A stack answers if it was told to: [`Builder::control`](crate::Builder::control), and the same of a stack with
//! applications [on its lanes](crate::on_lane::Builder::control). Whoever may connect to the socket is its owner or root, and nobody who connects can hold up the stack: lanes fill bounded pages between two
//! batches of frames, a thread apart waits for the client, and one that is slow, silent or talks nonsense is cut off.
//!
//! ```
//! use laneway::control::{Ask, Client, Counter, ControlSocket};
//! use laneway::on_lane::{App, ConnId, Context, Device, Stack};
//!
//! struct Idle;
//! impl App for Idle {
//!     fn on_data(&mut self, _: &mut Context<'_>, _: ConnId, data: &[u8]) -> usize {
//!         data.len()
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (device, _other_end) = Device::memory_pair(1)?;
//! let path = std::env::temp_dir().join(format!("laneway-doc-{}.sock", std::process::id()));
//! let stack = Stack::builder(device)
//!     .address("10.0.0.1/24")?
//!     .control(ControlSocket::At(path.clone()))
//!     .start(|_lane| Idle)?;
//!
//! let mut client = Client::connect(&path)?;
//! let counters: Vec<Counter> = client.ask(&Ask::Nstat {})?.collect::<Result<_, _>>()?;
//! assert!(counters.iter().any(|counter| counter.name == "TcpActiveOpens"));
//! stack.stop();
//! # Ok(())
//! # }
//! ```
//!
//! The protocol, for clients in other languages, is described in `docs/control-socket.md`.

mod answer;
mod client;
mod place;
mod protocol;
mod server;

pub use client::{Answers, AskError, Client, Packets};
pub use place::{ControlSocket, FindError, directory, find};
pub use protocol::{
    Ask, Counter, Hello, LaneRow, LockRow, MeetingRow, PortsRow, STATE_FILTERS, SsInfo, SsRow, SsTimer, SteerRow,
    VERSION, state_name, states_by_name,
};
pub use server::OpenError;
pub(crate) use server::{About, Claimed, ControlServer};

#[cfg(test)]
mod tests;
