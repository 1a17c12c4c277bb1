//! Owns what holds for a socket that was told nothing else.

use crate::config::Config;
use std::time::Duration;

/// What a stack's configuration says of each socket that was told nothing else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usual {
    /// `ip_default_ttl`.
    pub ttl: u8,
    /// `tcp_keepalive_time`.
    pub keepalive_time: Duration,
    /// `tcp_keepalive_intvl`.
    pub keepalive_interval: Duration,
    /// `tcp_keepalive_probes`.
    pub keepalive_probes: u8,
}

impl Usual {
    /// What this configuration says.
    pub fn of(config: &Config) -> Self {
        Usual {
            ttl: config.ip_default_ttl,
            keepalive_time: Duration::from_micros(config.tcp.tcp_keepalive_time_us),
            keepalive_interval: Duration::from_micros(config.tcp.tcp_keepalive_intvl_us),
            keepalive_probes: config.tcp.tcp_keepalive_probes,
        }
    }
}
