//! The same calls on the kernel's sockets and on ours: results and kinds of errors must be the same.
//!
//! Each story is a macro, run once with the types of `std::net` over the loopback and once with Laneway's over a memory link;
//! it writes down what each call said. What differs on purpose is a test of its own, which says why.

#[path = "../common/mod.rs"]
mod common;
#[macro_use]
mod world;

mod broadcasts;
mod bytes;
mod connects;
mod datagrams;
mod halves;
mod listeners;
mod names;
mod options;
mod rare_options;
mod resets;
mod traits;
mod unconnected;
mod waiting;
