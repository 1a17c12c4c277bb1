//! Owns how many ICMP messages we send per second.
//!
//! A plain token bucket tells an attacker who spoofs addresses how many of its probes drew an answer: it fills the bucket itself
//! and counts what is left (SAD DNS, CVE-2020-25705). So what one message costs is drawn at random: nothing, one or two, one on average.

use crate::time::Instant;

/// A token bucket with a random price.
#[derive(Clone, Copy, Debug)]
pub struct RateLimit {
    rate_per_s: u32,
    burst: u32,
    /// Tokens in millionths; a price of two may leave a debt, else the average price would be less than one.
    credit: i64,
    refilled: Instant,
}

const ONE: i64 = 1_000_000;

impl RateLimit {
    /// `rate_per_s` messages a second on average, after up to about `burst` at once. Starts full.
    pub const fn new(rate_per_s: u32, burst: u32) -> Self {
        RateLimit { rate_per_s, burst, credit: burst as i64 * ONE, refilled: Instant::ZERO }
    }

    /// Whether a message may be sent now. `random` is fresh from the caller's generator at every call.
    pub fn allow(&mut self, now: Instant, random: u32) -> bool {
        let earned = now.since_us(self.refilled).saturating_mul(u64::from(self.rate_per_s));
        self.refilled = self.refilled.max(now);
        let earned = i64::try_from(earned).unwrap_or(i64::MAX);
        self.credit = self.credit.saturating_add(earned).min(i64::from(self.burst) * ONE);
        if self.credit < ONE {
            return false;
        }
        let price = (u64::from(random) * 3) >> 32;
        self.credit -= price as i64 * ONE;
        true
    }
}

impl Default for RateLimit {
    /// The kernel's `icmp_msgs_per_sec` and `icmp_msgs_burst`.
    fn default() -> Self {
        RateLimit::new(1000, 50)
    }
}
