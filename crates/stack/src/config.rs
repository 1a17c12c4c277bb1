//! Owns what an operator may set for a whole stack.

use crate::error::Error;
use laneway_proto::tcp;

/// The settings of a stack. TCP's own are in [`tcp::Config`].
#[derive(Clone, Debug)]
pub struct Config {
    /// TCP's tunables.
    pub tcp: tcp::Config,
    /// Half-open entries per lane before SYN cookies are sent; at 0 every SYN is answered with one, except one that takes over a flow in TIME_WAIT.
    pub tcp_max_syn_backlog: usize,
    /// TIME_WAIT records per lane. Beyond it the oldest goes early, which is counted as `TcpExtTCPTimeWaitOverflow`.
    pub tcp_max_tw_buckets: usize,
    /// Least age in milliseconds of a TIME_WAIT record before our own `connect` may take its flow over. 1 s.
    pub tcp_tw_reuse_delay_ms: u32,
    /// Largest backlog: `listen` may ask for more, and gets this.
    pub somaxconn: usize,
    /// Ephemeral ports, first and last.
    pub ip_local_port_range: (u16, u16),
    /// Ports that are never chosen for `connect`, nor for a `bind` to port 0.
    pub ip_local_reserved_ports: Vec<u16>,
    /// Hop limit of what we send.
    pub ip_default_ttl: u8,
    /// Bytes of TCP buffers that one lane may lend. Not the kernel's `tcp_mem`, which is three numbers of pages for all connections of the
    /// host.
    pub lane_mem: usize,
    /// Connections that one lane's tables have room for at the start. They grow by themselves.
    pub connections: usize,
    /// Compute and verify transport checksums in software even where the device offers to.
    pub software_checksums: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            tcp: tcp::Config::default(),
            tcp_max_syn_backlog: 4_096,
            tcp_max_tw_buckets: 4_194_304,
            tcp_tw_reuse_delay_ms: 1_000,
            somaxconn: 4_096,
            ip_local_port_range: (32_768, 60_999),
            ip_local_reserved_ports: Vec::new(),
            ip_default_ttl: 64,
            lane_mem: 1 << 30,
            connections: 1_024,
            software_checksums: false,
        }
    }
}

/// More places than that no lane's tables are made with.
const CONNECTIONS_MAX: usize = 1 << 26;
/// The least buffer: a segment that every host takes (RFC 9293 section 3.7.1).
const BUFFER_MIN: u32 = 536;

impl Config {
    /// Refuses by name what a stack would stand still with, or speak as nobody can. Whatever is merely unwise is the operator's to choose.
    pub fn check(&self) -> Result<(), Error> {
        let wrong = |name: &str, what: String| Err(Error::Invalid(format!("the setting {name} {what}")));
        let (first, last) = self.ip_local_port_range;
        if first == 0 || first > last {
            return wrong(
                "ip_local_port_range",
                format!("is {first} to {last}: ports begin with 1, and the first is not above the last"),
            );
        }
        if self.ip_default_ttl == 0 {
            return wrong("ip_default_ttl", "is 0, which no packet survives: it must be 1 at least".into());
        }
        let (initial, most) = self.tcp.tcp_rmem;
        for (name, bytes) in [("tcp_rmem", initial.min(most)), ("tcp_wmem", self.tcp.tcp_wmem)] {
            if bytes < BUFFER_MIN {
                return wrong(name, format!("is {bytes}, less than a segment: it must be {BUFFER_MIN} bytes at least"));
            }
        }
        if self.lane_mem < BUFFER_MIN as usize {
            return wrong(
                "lane_mem",
                format!("is {}, too little for any buffer: it must be {BUFFER_MIN} bytes at least", self.lane_mem),
            );
        }
        if self.connections > CONNECTIONS_MAX {
            return wrong(
                "connections",
                format!(
                    "is {}: it must be {CONNECTIONS_MAX} at the most, and tables grow by themselves",
                    self.connections
                ),
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
