//! What a device can do for a lane that strangers flood with SYNs: keep them apart, and answer them where they are sent.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A queue's side of it. A device without one has [none](crate::Rx::floodgate).
pub trait FloodGate {
    /// For so long from now on what waits [aside](crate::Rx::aside) is not looked at, and need wake nobody.
    fn rests(&self) -> Duration;

    /// Something waits [aside](crate::Rx::aside).
    fn look_aside(&mut self);

    /// This peer has completed a handshake with us. A device that keeps the SYNs of strangers apart takes his from now on with everything else.
    fn vouch(&mut self, peer: IpAddr);

    /// An endpoint is overrun: there is no room for those who call it. From now on and for a short while the device may answer SYNs to it as this says,
    /// on every queue, and they are not seen here. A lane that still sends cookies says so again.
    fn overrun(&mut self, how: &CookieAnswer);

    /// What tells a lane that this has been said, on whichever queue.
    fn alarms(&self) -> Alarms;

    /// SYNs that the device has answered since this was asked last, by whichever queue.
    fn answered(&mut self) -> u64;
}

/// Tells whether an endpoint has been said to be overrun: then acknowledgments of cookies may come that no lane has sent. A clone is told
/// of all that its original has not heard.
#[derive(Clone, Debug, Default)]
pub struct Alarms {
    count: Arc<AtomicU64>,
    heard: u64,
}

impl Alarms {
    /// There is another one. To be said before the first SYN is answered.
    pub fn raise(&self) {
        self.count.fetch_add(1, Ordering::Release);
    }

    /// Whether there has been one since this was asked last.
    pub fn heard(&mut self) -> bool {
        let count = self.count.load(Ordering::Acquire);
        std::mem::replace(&mut self.heard, count) != count
    }
}

/// How SYNs to one endpoint are to be answered: with a SYN cookie, as `laneway_proto::tcp::cookie` makes it.
#[derive(Clone)]
pub struct CookieAnswer {
    /// Ours.
    pub address: IpAddr,
    /// Ours.
    pub port: u16,
    /// The key of cookies.
    pub cookie_secret: [u64; 2],
    /// The key of timestamp offsets.
    pub timestamp_secret: [u64; 2],
    /// The lane's clock at the moment that this is said, in microseconds.
    pub now_us: u64,
    /// The values of the peer's MSS that a cookie can hold, ascending.
    pub mss_table: [u16; 8],
    /// Announced to the peer, in bytes.
    pub mss: u16,
    /// Announced to the peer, in bytes.
    pub window: u16,
    /// Our window scale; none if nobody's is accepted.
    pub window_scale: Option<u8>,
    /// Whether timestamps are accepted. Without them there is neither scale nor SACK.
    pub timestamps: bool,
    /// Whether selective acknowledgments are.
    pub sack: bool,
    /// Whether who heeds what routers mark (RFC 3168) is told that we do, too. That needs timestamps as well.
    pub ecn: bool,
    /// Of the answer, as its listener wishes it.
    pub hop_limit: u8,
    /// The same: DSCP in the upper six bits.
    pub traffic_class: u8,
}

impl std::fmt::Debug for CookieAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Both keys are secrets.
        f.debug_struct("CookieAnswer").field("address", &self.address).field("port", &self.port).finish_non_exhaustive()
    }
}
