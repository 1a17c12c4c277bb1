//! Laneway: a user-space TCP/IP stack in which every core has its own lane.
//!
//! A *lane* is one thread on one core that owns a queue of the network device and every connection that hashes to it. No
//! lock and no cache line is fought over, and connections are set up, used and torn down at the rate of the core.
//!
//! Two ways to use it:
//!
//! * [`TcpListener`], [`TcpStream`], [`UdpSocket`] on a [`Stack`]: blocking, from any thread, with the methods of `std::net`.
//!   [`Poller`] waits for many of them. With the feature `tokio` there are the same for tasks.
//! * [`on_lane`]: the application lives on the lanes, as a value of a type of its own that is called when something happens.
//!
//! What a running stack is doing can be asked from outside: [`control`].
#![forbid(unsafe_code)]

pub mod control;
mod error;
mod net;
pub mod on_lane;
#[cfg(feature = "tokio")]
pub mod tokio;

pub use net::{
    Builder, Entered, Event, Incoming, Interest, Mode, Poller, Source, Stack, TcpListener, TcpStream, UdpSocket,
};
/// The snippet of the first page.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod readme {}

/// The snippets of the page for users.
#[cfg(all(doctest, feature = "tokio"))]
#[doc = include_str!("../../../docs/using.md")]
mod using {}

pub use on_lane::{BindOptions, Cidr, Config, Counters, Device, StartError};
