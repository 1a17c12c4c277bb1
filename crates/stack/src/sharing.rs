//! THE SEAM: how the lanes of one stack share their connections, or do not.
//!
//! Every look-up, insertion and removal, half-open entries, TIME_WAIT, accept queues, timers and counters are in
//! [`Tables`], and the only way to a `Tables` is [`Sharing::enter`] and its kin. The product's choice is [`Product`], in one
//! line; any other is a type in its place and passes the same suite (`tests/sharing.rs`).
//!
//! | name | what is shared, and what guards it | file |
//! |---|---|---|
//! | `global` | one lock for nearly everything (FreeBSD until 2014) | [`global`] |
//! | `accept` | the same; `accept` does without | [`accept`] |
//! | `timewait` | the same; TIME_WAIT has a lock of its own, and is reaped one by one | [`timewait`] |
//! | `decomposed` | the lock is only read, but for walks; a leaf lock for what all share (FreeBSD 11) | [`decomposed`] |
//! | `epoch` | no such lock; each shard of connections has its own (FreeBSD 13) | [`epoch`] |
//! | `lane` | nothing | here |
//!
//! What the locked variants have in common, and how they differ from the real ones, is in [`locked`].

use crate::ingress::Arriving;
use crate::tables::Tables;
use laneway_proto::tcp::nagle::{self, Segmentation};
use laneway_proto::time::Instant;
use std::ops::DerefMut;

pub mod accept;
pub(crate) mod apart;
pub mod chosen;
pub mod decomposed;
pub mod epoch;
pub mod global;
pub mod locked;
mod sites;
pub mod timewait;

pub use accept::Accept;
pub use chosen::Chosen;
pub use decomposed::Decomposed;
pub use epoch::Epoch;
pub use global::Global;
pub use laneway_sync::profiled_lock as profile;
pub use locked::{Kit, Plain, Watched};
pub use timewait::TimeWaitApart;

/// What the product is built with: every lane owns its tables, and nothing is shared.
pub type Product = LaneOwned;

/// The names of all variants, in the order of history.
pub const NAMES: [&str; 6] = ["global", "accept", "timewait", "decomposed", "epoch", "lane"];

/// Why the tables are entered: the sites at which FreeBSD took its lock, and those at which it did not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Site {
    /// A segment with SYN, FIN or RST is taken in.
    SynFinRst,
    /// A segment is taken in whose connection is not ESTABLISHED, or that has none.
    NotEstablished,
    /// Any other segment is taken in.
    Input,
    /// What is not a plain segment: fragments, ICMP, UDP.
    Slow,
    /// The application takes connections from a listener's queue.
    Accept,
    /// The application's turn outside a segment's.
    Verb,
    /// Output of a connection at the end of a poll.
    Output,
    /// The same, and it is the SYN of an active open.
    Connect,
    /// The same, and it is the FIN after `close` or `shutdown`.
    Close,
    /// The same, and the connection ends or enters TIME_WAIT.
    End,
    /// A timer has fired, or may have.
    Timers,
    /// TIME_WAIT records whose time is over are looked for.
    TimeWait,
    /// Control: a listener comes, counters are asked for.
    Control,
    /// Control that looks at every connection: a listener goes, a path shrinks, the stack stops.
    Walk,
    /// A look at when something is due.
    Look,
}

/// A way of sharing connections between lanes.
pub trait Sharing: Send + 'static {
    /// The tables, for as long as nobody else may touch what the holder touches.
    type Section<'a>: DerefMut<Target = Tables>
    where
        Self: 'a;

    /// The rule for the end of the queue, in TCP's output.
    type Segmentation: Segmentation;

    /// The name on the command line and in results.
    const NAME: &'static str;

    /// The application accepts in a section of its own ([`Site::Accept`]), as a process that calls `accept` does, and not in
    /// that of the segment which completed the connection.
    const ACCEPT_APART: bool = false;

    /// Nobody else ever waits for the tables, so that a section may last for as many segments as there are.
    const UNSHARED: bool = false;

    /// One value per lane, each with tables of its own, made by `make`.
    fn spread(lanes: usize, make: impl FnMut() -> Tables) -> Vec<Self>
    where
        Self: Sized;

    /// Enters the tables.
    fn enter(&mut self, site: Site) -> Self::Section<'_>;

    /// Enters the tables to take a segment in.
    #[inline(always)]
    fn input(&mut self, arriving: &Arriving<'_>) -> Self::Section<'_> {
        let _ = arriving;
        self.enter(Site::Input)
    }

    /// Enters the tables for the output of one connection.
    #[inline(always)]
    fn output(&mut self, index: u32) -> Self::Section<'_> {
        let _ = index;
        self.enter(Site::Output)
    }

    /// Enters the tables to see whose time has come.
    #[inline(always)]
    fn timers(&mut self, now: Instant) -> Self::Section<'_> {
        let _ = now;
        self.enter(Site::Timers)
    }

    /// Reaps TIME_WAIT records whose wait is over; says how many it looked at. The product looks at `budget` at the most.
    #[inline(always)]
    fn reap(&mut self, now: Instant, msl_us: u64, budget: usize) -> usize {
        self.enter(Site::TimeWait).reap(now, msl_us, budget)
    }

    /// The tables, if looking at them costs nothing: for prefetching only.
    fn peek(&self) -> Option<&Tables>;
}

/// `lane`: the tables are the lane's own. Entering them is nothing at all.
pub struct LaneOwned(Tables);

impl Sharing for LaneOwned {
    type Section<'a> = &'a mut Tables;
    type Segmentation = nagle::Lane;
    const NAME: &'static str = "lane";
    const UNSHARED: bool = true;

    fn spread(lanes: usize, mut make: impl FnMut() -> Tables) -> Vec<Self> {
        (0..lanes).map(|_| LaneOwned(make())).collect()
    }

    #[inline]
    fn enter(&mut self, _: Site) -> &mut Tables {
        &mut self.0
    }

    #[inline]
    fn peek(&self) -> Option<&Tables> {
        Some(&self.0)
    }
}
