//! Owns V3, `decomposed`: [`timewait`](super::timewait), but INFO keeps only walks over all connections stable, so everybody
//! else reads it; allocation, freeing and the counters that all share have LIST, a leaf (r286227, 2015-08-03).
//!
//! Reading a lock is writing its word: every plain segment still writes the one line that all cores write. That is what remains
//! of the wall here, and what [`epoch`](super::epoch) takes away.

use super::Site;
use super::locked::{Expiry, Locked, Mode, Rules, Watched};
use super::timewait::TimeWaitRules;

/// `decomposed`: INFO is read, and written only for walks.
pub type Decomposed<K = Watched> = Locked<DecomposedRules, K>;

/// Where `decomposed` takes INFO.
pub struct DecomposedRules;

impl Rules for DecomposedRules {
    const NAME: &'static str = "decomposed";
    const EXPIRY: Expiry = Expiry::OneByOne;
    const TIME_WAIT_APART: bool = true;
    const LIST_APART: bool = true;
    const EPOCH: bool = false;

    fn info(site: Site) -> Mode {
        match site {
            Site::Walk => Mode::Write,
            _ => TimeWaitRules::info(site).min(Mode::Read),
        }
    }
}
