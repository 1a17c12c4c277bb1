//! Owns a type for all variants with locks: which one it is, is said at run time. For who tries all of them and does not want a stack
//! compiled for each; what is measured is measured with types of its own.

use super::locked::{Census, Kit, Plain, Rules, Section};
use super::{Accept, Decomposed, Epoch, Global, Sharing, Site, TimeWaitApart};
use super::{accept, decomposed, epoch, global, timewait};
use crate::ingress::Arriving;
use crate::tables::Tables;
use laneway_proto::tcp::nagle;
use laneway_proto::time::Instant;
use std::ops::{Deref, DerefMut};

/// Any variant with locks.
pub enum Chosen<K: Kit = Plain> {
    /// See [`global`].
    Global(Global<K>),
    /// See [`accept`].
    Accept(Accept<K>),
    /// See [`timewait`].
    TimeWait(TimeWaitApart<K>),
    /// See [`decomposed`].
    Decomposed(Decomposed<K>),
    /// See [`epoch`].
    Epoch(Epoch<K>),
}

/// A section of the variant that was chosen.
pub enum ChosenSection<'a, K: Kit> {
    /// Of [`global`].
    Global(Section<'a, global::GlobalRules, K>),
    /// Of [`accept`].
    Accept(Section<'a, accept::AcceptRules, K>),
    /// Of [`timewait`].
    TimeWait(Section<'a, timewait::TimeWaitRules, K>),
    /// Of [`decomposed`].
    Decomposed(Section<'a, decomposed::DecomposedRules, K>),
    /// Of [`epoch`].
    Epoch(Section<'a, epoch::EpochRules, K>),
}

macro_rules! section {
    ($chosen:expr, $one:ident => $enter:expr) => {
        match $chosen {
            Chosen::Global($one) => ChosenSection::Global($enter),
            Chosen::Accept($one) => ChosenSection::Accept($enter),
            Chosen::TimeWait($one) => ChosenSection::TimeWait($enter),
            Chosen::Decomposed($one) => ChosenSection::Decomposed($enter),
            Chosen::Epoch($one) => ChosenSection::Epoch($enter),
        }
    };
}

macro_rules! whichever {
    ($kind:ident, $chosen:expr, $one:ident => $does:expr) => {
        match $chosen {
            $kind::Global($one) => $does,
            $kind::Accept($one) => $does,
            $kind::TimeWait($one) => $does,
            $kind::Decomposed($one) => $does,
            $kind::Epoch($one) => $does,
        }
    };
}

impl<K: Kit> Chosen<K> {
    /// One value per lane of the variant with this name; `None` if no variant with locks has it. `make` makes tables.
    pub fn spread_as(name: &str, lanes: usize, make: impl FnMut() -> Tables) -> Option<Vec<Self>> {
        fn all<R: Rules, K: Kit>(
            of: Vec<super::locked::Locked<R, K>>,
            one: fn(super::locked::Locked<R, K>) -> Chosen<K>,
        ) -> Vec<Chosen<K>> {
            of.into_iter().map(one).collect()
        }
        Some(match name {
            "global" => all(Global::spread(lanes, make), Chosen::Global),
            "accept" => all(Accept::spread(lanes, make), Chosen::Accept),
            "timewait" => all(TimeWaitApart::spread(lanes, make), Chosen::TimeWait),
            "decomposed" => all(Decomposed::spread(lanes, make), Chosen::Decomposed),
            "epoch" => all(Epoch::spread(lanes, make), Chosen::Epoch),
            _ => return None,
        })
    }

    /// What is known of all connections together, for checks.
    pub fn census(&self) -> Census {
        whichever!(Chosen, self, one => one.census())
    }
}

impl<K: Kit> Sharing for Chosen<K> {
    type Section<'a> = ChosenSection<'a, K>;
    type Segmentation = nagle::Lane;
    const NAME: &'static str = "chosen";
    const ACCEPT_APART: bool = true;

    /// As the first of history; [`spread_as`](Self::spread_as) makes any.
    fn spread(lanes: usize, make: impl FnMut() -> Tables) -> Vec<Self> {
        Global::spread(lanes, make).into_iter().map(Chosen::Global).collect()
    }

    fn enter(&mut self, site: Site) -> ChosenSection<'_, K> {
        section!(self, one => one.enter(site))
    }

    fn input(&mut self, arriving: &Arriving<'_>) -> ChosenSection<'_, K> {
        section!(self, one => one.input(arriving))
    }

    fn output(&mut self, index: u32) -> ChosenSection<'_, K> {
        section!(self, one => one.output(index))
    }

    fn timers(&mut self, now: Instant) -> ChosenSection<'_, K> {
        section!(self, one => one.timers(now))
    }

    fn reap(&mut self, now: Instant, msl_us: u64, budget: usize) -> usize {
        whichever!(Chosen, self, one => one.reap(now, msl_us, budget))
    }

    fn peek(&self) -> Option<&Tables> {
        whichever!(Chosen, self, one => one.peek())
    }
}

impl<K: Kit> Deref for ChosenSection<'_, K> {
    type Target = Tables;
    fn deref(&self) -> &Tables {
        whichever!(ChosenSection, self, one => one)
    }
}

impl<K: Kit> DerefMut for ChosenSection<'_, K> {
    fn deref_mut(&mut self) -> &mut Tables {
        whichever!(ChosenSection, self, one => one)
    }
}
