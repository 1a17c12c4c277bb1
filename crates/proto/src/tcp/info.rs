//! Owns what a connection tells about itself to whoever lists connections: a copy, as `TCP_INFO` is one.

use super::connection::{Connection, Facts, Phase};
use super::state::State;
use crate::time::Instant;

/// What a connection counts for the sake of those who look at it. Nothing in the protocol depends on it.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Tally {
    /// Bytes of ours that the peer has acknowledged, without SYN and FIN.
    pub(super) bytes_acked: u64,
    /// Bytes of the peer's that arrived in order.
    pub(super) bytes_received: u64,
    /// Segments taken in, as the network carried them: of one that was made of several, each.
    pub(super) segs_in: u32,
    /// Segments handed to the device, likewise.
    pub(super) segs_out: u32,
}

/// A copy of what is known about a synchronized connection. Names and meanings as in Linux's `tcp_info`; times in
/// microseconds unless the name says otherwise, sizes in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// The state.
    pub state: State,
    /// How losses are being repaired.
    pub phase: Phase,
    /// Both ends use timestamps.
    pub timestamps: bool,
    /// Both ends permit selective acknowledgements.
    pub sack: bool,
    /// ECN.
    pub ecn: bool,
    /// `TCP_NODELAY`.
    pub nodelay: bool,
    /// Scales of the peer's windows and of ours.
    pub wscale: (u8, u8),
    /// Name of the congestion controller.
    pub congestion: &'static str,
    /// Bytes in order that the application has not read.
    pub unread: u32,
    /// Bytes queued and not acknowledged.
    pub queued: u32,
    /// Of those, the ones that were not sent yet.
    pub notsent_bytes: u32,
    /// Retransmission timeout now in force.
    pub rto_us: u32,
    /// Smoothed round trip, once there is a sample.
    pub srtt_us: Option<u32>,
    /// Mean deviation of the round trip; 0 without a sample.
    pub rttvar_us: u32,
    /// The smallest round trip seen.
    pub min_rtt_us: Option<u32>,
    /// Payload of a full segment sent.
    pub mss: u16,
    /// The peer's segment size, as seen.
    pub rcv_mss: u16,
    /// Congestion window.
    pub cwnd: u32,
    /// Slow-start threshold; `u32::MAX` until a loss, a mark or a queue (HyStart++) has ended slow start.
    pub ssthresh: u32,
    /// Sequence numbers sent and not acknowledged.
    pub flight: u32,
    /// The window that the peer offers.
    pub snd_wnd: u32,
    /// The receive buffer that autotuning has given.
    pub rcv_space: u32,
    /// Bytes sent, those sent again included.
    pub bytes_sent: u64,
    /// Bytes sent again.
    pub bytes_retrans: u64,
    /// Bytes acknowledged.
    pub bytes_acked: u64,
    /// Bytes received in order.
    pub bytes_received: u64,
    /// Segments sent.
    pub segs_out: u32,
    /// Segments received.
    pub segs_in: u32,
    /// Segments sent again.
    pub retransmitted: u32,
    /// Of those, the ones that are under way (`retrans_out`).
    pub repeats_out: u32,
    /// Milliseconds since the peer last acknowledged something new, or since sending began anew after a pause.
    pub last_progress_ms: u32,
    /// Milliseconds since anything was heard of the peer.
    pub last_heard_ms: u32,
    /// The timer that is due next: `on`, `persist` or `keepalive`, as `ss -o` names them.
    pub timer: Option<(&'static str, Instant)>,
    /// How often in a row that timer has fired without an answer.
    pub retries: u8,
}

impl Connection {
    /// Everything that a listing shows.
    pub fn info(&self, now: Instant) -> Info {
        let ms = now.as_ms() as u32;
        let has = |fact| self.facts.has(fact);
        let retransmit = if has(Facts::PERSIST) { "persist" } else { "on" };
        let (timer, retries) = if self.rexmt_at != Instant::NEVER {
            (Some((retransmit, self.rexmt_at)), self.rtt.backoffs())
        } else if self.keep_at != Instant::NEVER {
            (Some((if has(Facts::KEEPALIVE) { "keepalive" } else { "timewait" }, self.keep_at)), self.probes)
        } else {
            (None, 0)
        };
        let bytes_retrans = self.bytes_retrans;
        // A FIN in flight occupies a sequence number and is no byte.
        let fin = u32::from(has(Facts::FIN_SENT) && self.flight() > 0);
        Info {
            state: self.state,
            phase: self.phase,
            timestamps: has(Facts::TIMESTAMPS),
            sack: has(Facts::SACK),
            ecn: self.uses_ecn(),
            nodelay: has(Facts::NODELAY),
            wscale: (self.snd.scale.get(), self.rcv.scale.get()),
            congestion: self.congestion.algorithm().name(),
            unread: self.rcv.buf.len(),
            queued: self.snd.queued,
            notsent_bytes: self.snd.queued.saturating_sub(self.flight()),
            rto_us: self.rtt.rto_us(),
            srtt_us: self.rtt.srtt_us(),
            rttvar_us: self.rtt.rttvar_us(),
            min_rtt_us: self.rtt.min_rtt_us(),
            mss: self.snd.mss,
            rcv_mss: self.rcv.mss,
            cwnd: self.cwnd(),
            ssthresh: self.slow_start_threshold(),
            flight: self.flight(),
            snd_wnd: self.snd.wnd,
            rcv_space: self.rcv.buf_max,
            bytes_sent: self.tally.bytes_acked + u64::from(self.flight().saturating_sub(fin)) + bytes_retrans,
            bytes_retrans,
            bytes_acked: self.tally.bytes_acked,
            bytes_received: self.tally.bytes_received,
            segs_out: self.tally.segs_out,
            segs_in: self.tally.segs_in,
            retransmitted: self.retransmitted,
            repeats_out: self.repeated().div_ceil(self.snd.mss.into()),
            last_progress_ms: ms.wrapping_sub(self.progress_ms),
            last_heard_ms: (now.since_us(self.heard_at) / 1_000) as u32,
            timer,
            retries,
        }
    }
}
