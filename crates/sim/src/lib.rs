//! A deterministic world under virtual time: two stacks, a list of nodes between them, applications that do what people do,
//! an attacker, and checkers that look on. A seed decides everything, so a seed is a bug report: `storm --seed 4711`.
//!
//! Start reading at [`world::World::run`]; [`scenario`] says what can happen, [`check`] what must hold.
#![forbid(unsafe_code)]

pub mod attacker;
pub mod check;
pub mod dice;
pub mod gate;
pub mod host;
pub mod network;
pub mod nodes;
pub mod offload;
pub mod packet;
pub mod pattern;
pub mod puppet;
pub mod scenario;
pub mod stage;
pub mod storm;
pub mod world;

pub use host::SharingName;
pub use scenario::Scenario;
pub use world::{Verdict, World};
