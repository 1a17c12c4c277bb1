//! The protocol core: what the RFCs say, and nothing else.
//!
//! No clock, no randomness, no atomics, no threads, no `unsafe`: time and secrets are arguments. Methods come in
//! four kinds: `on_*` take events in, verbs are what an application can do, `poll_*` take things out, getters look.
#![forbid(unsafe_code)]

pub mod discard;
pub mod ethernet;
pub mod icmp;
pub mod ip;
pub mod neighbour;
pub mod tcp;
pub mod time;
pub mod udp;
