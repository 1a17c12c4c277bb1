//! The commands, one file each.

pub mod demo;
pub mod doctor;
pub mod lab;
pub mod serve;
