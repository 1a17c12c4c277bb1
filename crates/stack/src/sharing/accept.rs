//! Owns V1, `accept`: [`global`](super::global), but accept does without INFO (r261242, 2014-01-28: 52,000 to 55,000 a second).
//!
//! FreeBSD queued a connection for accept before it was whole, so accept had to wait for whoever was completing it. The fix was
//! an order: fill everything in, insert, and queue last. Here that order holds in every variant, by type: only the
//! [`ConnId`](crate::app::ConnId) of a connection in the tables can be queued. So nothing is left to be done but to take the lock away.

use super::Site;
use super::global::GlobalRules;
use super::locked::{Expiry, Locked, Mode, Rules, Watched};

/// `accept`: accept takes no INFO.
pub type Accept<K = Watched> = Locked<AcceptRules, K>;

/// Where `accept` takes INFO.
pub struct AcceptRules;

impl Rules for AcceptRules {
    const NAME: &'static str = "accept";
    const EXPIRY: Expiry = GlobalRules::EXPIRY;
    const TIME_WAIT_APART: bool = false;
    const LIST_APART: bool = false;
    const EPOCH: bool = false;

    fn info(site: Site) -> Mode {
        match site {
            Site::Accept => Mode::None,
            _ => GlobalRules::info(site),
        }
    }
}
