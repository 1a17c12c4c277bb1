//! Owns the tunables of TCP, under the kernel's names where the kernel has one.

use super::buffer::LARGEST;
use super::congestion::Algorithm;

/// What an operator may set. Times in microseconds, sizes in bytes.
#[derive(Clone, Debug)]
pub struct Config {
    /// Maximum segment lifetime; a TIME_WAIT record lives for twice this (RFC 9293 section 3.4.2). 30 s.
    pub msl_us: u64,
    /// Retransmissions of a SYN before `connect` gives up: the kernel's name and meaning, and not its default. 7, which is
    /// 191 s (1 s, doubled up to 64 s): R2 of a SYN must be three minutes at least (RFC 9293 section 3.8.3, MUST-23). The kernel's
    /// 6 are 127 s; set it for programs that rely on that. A program that has a time-out of its own gives up sooner either way.
    pub tcp_syn_retries: u8,
    /// Retransmissions of a SYN-ACK before a half-open entry is dropped. 5, which is 63 s, as the kernel's: the three minutes are
    /// those of an open that somebody asked for, and this entry a stranger made us keep.
    pub tcp_synack_retries: u8,
    /// Retransmissions of data that were not answered before something is thought to be wrong with the path (R1 of RFC 9293 section 3.8.3). 3.
    pub tcp_retries1: u8,
    /// Whether a path that swallows large packets without a word is found by that, and smaller ones are sent (RFC 4821 section 7.7): 1 of the
    /// kernel's values 0 to 2. On; the kernel's default is off.
    pub tcp_mtu_probing: bool,
    /// Retransmissions of data before a connection is given up (R2 of RFC 9293 section 3.8.3). 15.
    pub tcp_retries2: u8,
    /// The same of a connection that the application has closed: nobody is left who could give it up. And when the peer's window has been
    /// closed for so many probes that they have become two minutes apart, that is enough, too, whether it answers them or not. 8,
    /// which is what the kernel's 0 means.
    pub tcp_orphan_retries: u8,
    /// How long a closed connection waits in FIN-WAIT-2 for the peer's FIN. 60 s.
    pub tcp_fin_timeout_us: u64,
    /// Idle time before the first keepalive probe, on connections that ask for keepalive. 2 h.
    pub tcp_keepalive_time_us: u64,
    /// Time between keepalive probes. 75 s.
    pub tcp_keepalive_intvl_us: u64,
    /// Unanswered probes before the connection is given up. 9.
    pub tcp_keepalive_probes: u8,
    /// Receive buffer: initial and largest size that autotuning may reach. At most [`buffer::LARGEST`](super::buffer::LARGEST), which is
    /// the largest piece that is lent: more would be a window that cannot be kept.
    pub tcp_rmem: (u32, u32),
    /// Send buffer: the largest size that autotuning may reach, in bytes unacknowledged and unsent. It follows what is in
    /// flight. At most [`buffer::LARGEST`](super::buffer::LARGEST).
    pub tcp_wmem: u32,
    /// Longest delay of an ACK. 40 ms (RFC 9293 section 3.8.6.3 allows 500 ms).
    pub delayed_ack_us: u64,
    /// Segments acknowledged at once at the start of a connection, so that slow start is not slowed.
    pub quick_acks: u8,
    /// Congestion control for new connections.
    pub tcp_congestion_control: Algorithm,
    /// Offer and accept window scaling (RFC 7323).
    pub tcp_window_scaling: bool,
    /// Offer and accept timestamps (RFC 7323).
    pub tcp_timestamps: bool,
    /// Offer and accept selective acknowledgements (RFC 2018).
    pub tcp_sack: bool,
    /// Whether connections heed what routers mark (RFC 3168): 0 none, 1 all of which both ends want it, 2 those whose peer asks for it. 2.
    pub tcp_ecn: u8,
    /// Answer with SYN cookies when the half-open cache is full.
    pub tcp_syncookies: bool,
    /// Least time between two ACKs that answer invalid segments of one connection. 500 ms. Between two that answer ACKs with nothing in
    /// them it is 200 ms at the least, whatever is set: two confused ends would else answer each other for ever.
    pub tcp_invalid_ratelimit_us: u64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            msl_us: 30_000_000,
            tcp_syn_retries: 7,
            tcp_synack_retries: 5,
            tcp_retries1: 3,
            tcp_mtu_probing: true,
            tcp_retries2: 15,
            tcp_orphan_retries: 8,
            tcp_fin_timeout_us: 60_000_000,
            tcp_keepalive_time_us: 7_200_000_000,
            tcp_keepalive_intvl_us: 75_000_000,
            tcp_keepalive_probes: 9,
            tcp_rmem: (131_072, 6_291_456),
            tcp_wmem: 2 << 20,
            delayed_ack_us: 40_000,
            quick_acks: 16,
            tcp_congestion_control: Algorithm::Cubic,
            tcp_window_scaling: true,
            tcp_timestamps: true,
            tcp_sack: true,
            tcp_ecn: 2,
            tcp_syncookies: true,
            tcp_invalid_ratelimit_us: 500_000,
        }
    }
}

impl Config {
    /// The same, with buffers that are no larger than what can be lent.
    #[must_use]
    pub fn bounded(self) -> Config {
        let (initial, most) = self.tcp_rmem;
        let most = most.min(LARGEST as u32);
        Config { tcp_rmem: (initial.min(most), most), tcp_wmem: self.tcp_wmem.min(LARGEST as u32), ..self }
    }

    /// The window in a SYN or SYN-ACK: unscaled, so at most 65,535.
    #[inline]
    pub fn initial_window(&self) -> u16 {
        self.tcp_rmem.0.min(65_535) as u16
    }

    /// The window scale we offer: the smallest that can describe the largest receive buffer.
    #[inline]
    pub fn receive_scale(&self) -> u8 {
        if !self.tcp_window_scaling {
            return 0;
        }
        // Each bit of how often the largest window is more than the field can say halves it once.
        let beyond = self.tcp_rmem.1.saturating_sub(1) / 65_535;
        (u32::BITS - beyond.leading_zeros()).min(14) as u8
    }
}

#[cfg(test)]
mod tests;
