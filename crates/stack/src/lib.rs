//! Where the columns meet: lanes, the loop that drives them, and what lanes share. No protocol rule lives here.
//!
//! Start reading at [`worker`].
#![forbid(unsafe_code)]

pub mod accept;
pub mod app;
pub mod binding;
mod bound;
pub mod clock;
pub mod config;
pub mod control;
pub mod counters;
pub mod demux;
pub mod egress;
pub mod entropy;
pub mod error;
pub mod host;
pub mod ingress;
pub mod lane;
pub mod listing;
pub mod lock_order;
pub mod mail;
mod moving;
mod mtu_news;
pub mod neighbours;
pub mod paths;
pub mod port_set;
pub mod ports;
mod recent;
pub mod references;
pub mod runtime;
pub mod sharing;
pub mod slow_path;
pub mod snapshot;
pub mod steering;
mod strangers;
pub mod tables;
pub mod threads;
pub mod timers;
pub mod trace;
mod turns;
pub mod udp;
mod ways;
pub mod worker;

pub use laneway_device as device;
pub use laneway_proto as proto;
pub use laneway_wire as wire;

pub use app::{App, ConnId, Context, ListenerId};
pub use binding::BindOptions;
pub use config::Config;
pub use control::BindId;
pub use error::Error;
pub use lane::Lane;
