//! Owns SYN cookies: a half-open connection held in its own SYN-ACK instead of in memory (RFC 4987 section 3.6).
//!
//! Pure functions. The layout is nearly Linux's: the cookie is
//!
//! ```text
//! base(flow) + peer's ISN + minute · 2²⁴ + body(flow, peer's ISN, minute, index of the MSS) · 2³ mod 2²⁴ + index of the MSS
//! ```
//!
//! so that the numbers of one four-tuple move on as those of `tcp::isn` do, 2²⁴ a minute, and never slower than the
//! peer's. `base` is secret: of the 2³² numbers that a forger can try, 16 are accepted at a time.
//!
//! Linux adds the index to a body that does not depend on it. Then the numbers after a cookie are cookies, too, of another MSS, and an old
//! segment that acknowledges a few bytes more than the SYN-ACK (the FIN of one who was answered in a word) begins a connection.
//!
//! Nothing is remembered of a cookie that was redeemed. While the connection that it made lives, or waits in TIME-WAIT, a second copy
//! of the ACK is a segment of that flow. After that, until the cookie is too old, it makes a second connection where the first
//! began: whoever can copy packets could as well have sent them, and an ACK that the network doubled is within a minute or two of its
//! first copy. So a cookie is good for no longer than a handshake may need.

use laneway_wire::flow::FlowKey;
use laneway_wire::tcp::{SeqNum, WindowScale};

use super::isn::{Purpose, hash_flow, hash_flow_and};

/// The values of the peer's MSS that a cookie can hold, ascending. The one at or below the real value is taken. The first
/// is the smallest that anybody means; 536 and 1220 are the defaults of IPv4 and IPv6 (RFC 9293 section 3.7.1); then
/// tunnels, PPPoE, Ethernet over IPv6 and IPv4, and jumbo frames.
pub const MSS_TABLE: [u16; 8] = [64, 536, 1220, 1360, 1400, 1440, 1460, 8940];

/// A cookie is accepted in the minute in which it was made and the one after it: for 1 to 2 minutes, as Linux's.
pub const MINUTES_VALID: u32 = 1;

const BODY_BITS: u32 = 24;
const BODY_MASK: u32 = (1 << BODY_BITS) - 1;
const INDEX_BITS: u32 = MSS_TABLE.len().ilog2();
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;

/// The initial sequence number of the SYN-ACK for a SYN with the sequence number `peer_isn` and the MSS option `mss`.
/// `now_minute` counts minutes on any base and may wrap.
#[inline(always)]
pub fn encode(secret: &[u64; 2], key: &FlowKey, peer_isn: SeqNum, now_minute: u32, mss: u16) -> SeqNum {
    let index = MSS_TABLE.partition_point(|value| *value <= mss).saturating_sub(1) as u32;
    base(secret, key, peer_isn) + ((now_minute << BODY_BITS) | body(secret, key, peer_isn, now_minute, index))
}

/// The MSS of the connection that the final ACK of a handshake completes; `None` if the cookie is not ours, not for
/// this flow, or too old. `cookie` is the segment's acknowledgment number less one, `peer_isn` its sequence number less
/// one.
#[inline(always)]
pub fn decode(secret: &[u64; 2], key: &FlowKey, peer_isn: SeqNum, cookie: SeqNum, now_minute: u32) -> Option<u16> {
    let (plain, age) = open(secret, key, peer_isn, cookie, now_minute);
    if age > MINUTES_VALID {
        return None;
    }
    let index = plain & INDEX_MASK;
    let good = plain & BODY_MASK == body(secret, key, peer_isn, now_minute.wrapping_sub(age), index);
    good.then_some(MSS_TABLE[index as usize])
}

/// Whether that says the time of a cookie that is not too old, which of random numbers one in 128 does: half of what [`decode`] asks.
#[inline(always)]
pub fn is_timely(secret: &[u64; 2], key: &FlowKey, peer_isn: SeqNum, cookie: SeqNum, now_minute: u32) -> bool {
    open(secret, key, peer_isn, cookie, now_minute).1 <= MINUTES_VALID
}

/// What is left of a cookie without its base, and its age in minutes.
#[inline(always)]
fn open(secret: &[u64; 2], key: &FlowKey, peer_isn: SeqNum, cookie: SeqNum, now_minute: u32) -> (u32, u32) {
    let plain = cookie.raw().wrapping_sub(base(secret, key, peer_isn).raw());
    (plain, now_minute.wrapping_sub(plain >> BODY_BITS) & 0xff)
}

#[inline(always)]
fn base(secret: &[u64; 2], key: &FlowKey, peer_isn: SeqNum) -> SeqNum {
    peer_isn + hash_flow(secret, Purpose::CookieBase, key) as u32
}

#[inline(always)]
fn body(secret: &[u64; 2], key: &FlowKey, peer_isn: SeqNum, minute: u32, index: u32) -> u32 {
    let more = u64::from(peer_isn.raw()) << 32 | u64::from(minute << INDEX_BITS | index);
    ((hash_flow_and(secret, Purpose::CookieBody, key, more) as u32) << INDEX_BITS | index) & BODY_MASK
}

/// What a cookie has no room for, and the low bits of the SYN-ACK's timestamp carry: the peer echoes them.
///
/// They are not authenticated. A peer that changes them changes what it offered itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TimestampOptions {
    /// The peer's window scale option.
    pub window_scale: Option<WindowScale>,
    /// The peer's SACK-permitted option.
    pub sack_permitted: bool,
    /// Both ends heed what routers mark (RFC 3168).
    pub ecn: bool,
}

const SCALE_MASK: u32 = 0x0f;
/// Stands for "no window scale option": scales end at 14 (RFC 7323 section 2.3).
const SCALE_NONE: u32 = 0x0f;
const SACK_BIT: u32 = 0x10;
const ECN_BIT: u32 = 0x20;
const OPTION_BITS: u32 = 6;
const OPTION_MASK: u32 = (1 << OPTION_BITS) - 1;
/// A timestamp that carries options may be so much older than the time at which it is sent, in milliseconds.
pub const TS_BACK_MS: u32 = OPTION_MASK;

/// The timestamp of the SYN-ACK: `options` in the low six bits of the latest such value not after `ts_now`, so that
/// the next segment's timestamp is not an older one. `ts_now` is the clock in the unit of our timestamps, without the
/// connection's offset; the offset is added after this, and taken off before [`decode_ts`].
#[inline]
pub fn encode_ts(ts_now: u32, options: TimestampOptions) -> u32 {
    let scale = options.window_scale.map_or(SCALE_NONE, |scale| u32::from(scale.get()).min(14));
    let bit = |set: bool, bit: u32| if set { bit } else { 0 };
    let bits = scale | bit(options.sack_permitted, SACK_BIT) | bit(options.ecn, ECN_BIT);
    let back = ts_now.wrapping_sub(bits) & OPTION_MASK;
    ts_now.wrapping_sub(back)
}

/// What [`encode_ts`] put into the timestamp that the peer now echoes.
pub fn decode_ts(ts_echo: u32) -> TimestampOptions {
    let scale = ts_echo & SCALE_MASK;
    TimestampOptions {
        window_scale: (scale != SCALE_NONE).then(|| WindowScale::new(scale as u8)),
        sack_permitted: ts_echo & SACK_BIT != 0,
        ecn: ts_echo & ECN_BIT != 0,
    }
}

#[cfg(test)]
mod tests;
