//! The commands, one file each.

pub mod config;
pub mod demo;
pub mod doctor;
pub mod lab;
pub mod lanes;
pub mod locks;
pub mod nstat;
pub mod serve;
pub mod ss;
pub mod steer;
pub mod trace;
pub mod watch;
