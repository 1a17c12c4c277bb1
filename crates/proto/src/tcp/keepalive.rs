//! Owns when a connection asks a silent peer whether it is there (RFC 9293 section 3.8.4): the configuration's times, or its own.

use super::config::Config;
use super::connection::Connection;

/// A connection's own times of keepalive, in the units of the kernel's socket options. What is 0 is not said: that stays as it is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct KeepaliveTimes {
    /// `TCP_KEEPIDLE`: seconds of silence before the first probe.
    pub idle_s: u16,
    /// `TCP_KEEPINTVL`: seconds between probes.
    pub interval_s: u16,
    /// `TCP_KEEPCNT`: probes without an answer before the connection is given up.
    pub probes: u8,
}

/// The longest, and the most, that the kernel takes.
impl KeepaliveTimes {
    /// Of `TCP_KEEPIDLE`, in seconds.
    pub const IDLE_MAX_S: u16 = 32_767;
    /// Of `TCP_KEEPINTVL`, in seconds.
    pub const INTERVAL_MAX_S: u16 = 32_767;
    /// Of `TCP_KEEPCNT`.
    pub const PROBES_MAX: u8 = 127;

    /// These, and where they say nothing those.
    #[must_use]
    pub fn or(self, those: Self) -> Self {
        let KeepaliveTimes { idle_s, interval_s, probes } = self;
        KeepaliveTimes {
            idle_s: if idle_s > 0 { idle_s } else { those.idle_s },
            interval_s: if interval_s > 0 { interval_s } else { those.interval_s },
            probes: if probes > 0 { probes } else { those.probes },
        }
    }
}

fn own_or_us(own_s: u16, configured_us: u64) -> u64 {
    if own_s > 0 { u64::from(own_s) * 1_000_000 } else { configured_us }
}

impl Connection {
    /// Silence before the first probe.
    pub(super) fn keep_idle_us(&self, config: &Config) -> u64 {
        own_or_us(self.told().keepalive.idle_s, config.tcp_keepalive_time_us)
    }

    /// Between probes.
    pub(super) fn keep_interval_us(&self, config: &Config) -> u64 {
        own_or_us(self.told().keepalive.interval_s, config.tcp_keepalive_intvl_us)
    }

    /// Probes that may go unanswered.
    pub(super) fn keep_probes_max(&self, config: &Config) -> u8 {
        match self.told().keepalive.probes {
            0 => config.tcp_keepalive_probes,
            own => own,
        }
    }
}
