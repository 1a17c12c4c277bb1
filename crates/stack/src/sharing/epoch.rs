//! Owns V4, `epoch`: [`decomposed`](super::decomposed) without INFO. Where a connection is to be found is read inside an epoch,
//! and its shard (its lock and that of its bucket, in one) is all that is taken (r335015, 2018, and what followed).
//!
//! What remains are LIST and the TIME_WAIT count: FreeBSD takes one mutex of the whole protocol for every insertion and removal
//! to this day. A walk takes shards one by one.

use super::Site;
use super::locked::{Expiry, Locked, Mode, Rules, Watched};

/// `epoch`: no INFO.
pub type Epoch<K = Watched> = Locked<EpochRules, K>;

/// `epoch` takes no INFO.
pub struct EpochRules;

impl Rules for EpochRules {
    const NAME: &'static str = "epoch";
    const EXPIRY: Expiry = Expiry::OneByOne;
    const TIME_WAIT_APART: bool = true;
    const LIST_APART: bool = true;
    const EPOCH: bool = true;

    fn info(_: Site) -> Mode {
        Mode::None
    }
}
