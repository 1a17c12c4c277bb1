//! Owns what holds for a socket that was told nothing else.

use crate::config::Config;
use laneway_proto::tcp::congestion::Algorithm;
use laneway_proto::tcp::connection::SEND_FLOOR;
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
    /// Bytes of the send buffer of a connection that begins, and the most: `tcp_wmem`.
    pub send_buffer: (u32, u32),
    /// The same of its receive buffer: `tcp_rmem`.
    pub receive_buffer: (u32, u32),
    /// `tcp_congestion_control`.
    pub congestion_control: Algorithm,
}

impl Usual {
    /// What this configuration says.
    pub fn of(config: &Config) -> Self {
        let tcp = config.tcp.clone().bounded();
        Usual {
            ttl: config.ip_default_ttl,
            keepalive_time: Duration::from_micros(config.tcp.tcp_keepalive_time_us),
            keepalive_interval: Duration::from_micros(config.tcp.tcp_keepalive_intvl_us),
            keepalive_probes: config.tcp.tcp_keepalive_probes,
            send_buffer: (SEND_FLOOR.min(tcp.tcp_wmem), tcp.tcp_wmem),
            receive_buffer: tcp.tcp_rmem,
            congestion_control: tcp.tcp_congestion_control,
        }
    }
}
