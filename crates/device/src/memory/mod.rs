//! Networks made of memory: hosts in one process, joined by rings.
//!
//! [`link()`] joins two hosts and is the rig that everything is measured on; [`switch()`] joins many; [`impaired_link`] puts a bad
//! network between two. [`offload`] does in software what a receiver's hardware would have done.

pub mod impair;
pub mod indirection;
pub mod link;
pub mod offload;
pub mod switch;

pub use impair::{Impair, ImpairCounters, Impairments, impaired_link};
pub use indirection::Indirection;
pub use link::{LinkConfig, LinkQueue, LinkRx, LinkTx, Steer, SteerFlow, Wake, link};
pub use switch::{Switch, SwitchConfig, switch};
