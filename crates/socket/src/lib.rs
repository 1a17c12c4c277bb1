//! Laneway: a user-space TCP/IP stack in which every core has its own lane.
//!
//! A *lane* is one thread on one core that owns a queue of the network device and every connection that hashes to it. No
//! lock and no cache line is fought over, and connections are set up, used and torn down at the rate of the core.
//!
//! What a running stack is doing can be asked from outside: [`control`].
//!
//! The API is [`on_lane`]: the application lives on the lanes, as a value of a type of its own that is called when
//! something happens.
#![forbid(unsafe_code)]

pub mod control;
pub mod on_lane;
