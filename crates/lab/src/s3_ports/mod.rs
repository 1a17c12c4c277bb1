//! Owns the ways of choosing a local port that came before the product's, at the product's seam
//! ([`laneway_stack::ports`]), each in good faith after the system that it is named for.
//!
//! | name | whose | how it looks for a free port |
//! |---|---|---|
//! | `b0` | illumos 2011, before | 512 packed buckets of {chain, lock}; random start, then port by port, a lock each |
//! | `b1` | illumos 2011, after | the same with 1,024 buckets of a cache line each |
//! | `b2` | Linux 2015-2024 | RFC 6056 double hash, even ports first, then odd ones; a lock each |
//! | `b3` | Linux 2025 | the same, but it looks before it locks, and hashes the destination once for all candidates |
//! | `lane` | Laneway | every lane from its own slice, with a bitmap of what is free |
//!
//! All lanes of a stack share what these share. What the stack itself demands is the same for all: a candidate whose
//! replies would come to another lane is passed over before anything is locked, and RFC 6191 decides about TIME_WAIT.

pub mod b0;
pub mod b1;
pub mod b2;
pub mod b3;
pub mod common;
pub mod nodes;
#[cfg(test)]
mod suite;

use clap::ValueEnum;
use laneway_stack::ports::{LanePorts, PortChoice, PortParts};
use std::fmt;
use std::sync::Arc;

/// A way of choosing ports, by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Ports {
    /// Each lane from its own slice, no lock (the product)
    Lane,
    /// 512 packed buckets, a lock for each port tried (illumos before 2011)
    B0,
    /// 1,024 padded buckets, a lock for each port tried (illumos since 2011)
    B1,
    /// Even ports first, a lock for each port tried (Linux until 2024)
    B2,
    /// Even ports first, looks before it locks (Linux since 2025)
    B3,
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to_possible_value().as_ref().map_or("", |value| value.get_name()))
    }
}

impl Ports {
    /// All, in the order of history and the product last.
    #[cfg(test)]
    pub const ALL: [Ports; 5] = [Ports::B0, Ports::B1, Ports::B2, Ports::B3, Ports::Lane];

    /// By its name in results.
    pub fn named(name: &str) -> Option<Ports> {
        <Ports as ValueEnum>::from_str(name, /* ignore_case= */ false).ok()
    }

    /// What makes the choosers of one stack: called once for each of its lanes, it gives all of them what they share.
    pub fn maker(self) -> Box<dyn FnMut(PortParts) -> Box<dyn PortChoice>> {
        match self {
            Ports::Lane => Box::new(|parts| Box::new(LanePorts::new(parts))),
            Ports::B0 => {
                let shared = Arc::new(b0::Fanout::<b0::Packed>::new());
                Box::new(move |parts| Box::new(b0::Walker::new(parts, Arc::clone(&shared))))
            }
            Ports::B1 => {
                let shared = Arc::new(b0::Fanout::<b1::Padded>::new());
                Box::new(move |parts| Box::new(b0::Walker::new(parts, Arc::clone(&shared))))
            }
            Ports::B2 => {
                let shared = Arc::new(b2::BindHash::new());
                Box::new(move |parts| Box::new(b2::Scanner::new(parts, Arc::clone(&shared))))
            }
            Ports::B3 => {
                let shared = Arc::new(b2::BindHash::new());
                Box::new(move |parts| Box::new(b3::Looker::new(parts, Arc::clone(&shared))))
            }
        }
    }
}
