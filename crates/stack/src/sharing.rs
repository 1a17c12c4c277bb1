//! THE SEAM: how the lanes of one stack share their connections, or do not.
//!
//! Every look-up, insertion and removal, half-open entries, TIME_WAIT, accept queues, timers and counters are in
//! [`Tables`], and the only way to a `Tables` is [`Sharing::enter`]. The product's choice is [`Product`], in one line;
//! any other is a type in its place and passes the same suite (`tests/sharing.rs`).

use crate::tables::Tables;
use laneway_proto::tcp::nagle::{self, Segmentation};
use std::ops::DerefMut;
use std::sync::{Arc, Mutex, MutexGuard};

/// What the product is built with: every lane owns its tables, and nothing is shared.
pub type Product = LaneOwned;

/// Why the tables are entered: the sites at which a variant that locks would lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Site {
    /// One segment is taken in, the application's turn included.
    Input,
    /// One connection's output at the end of a poll.
    Output,
    /// Timers and TIME_WAIT.
    Timers,
    /// A verb of the application outside a segment's turn.
    Verb,
    /// Control: listeners, counters.
    Control,
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

    /// All lanes enter the same tables: what is asked of the tables is asked of the first lane alone.
    const SHARED: bool;

    /// One value per lane, of tables made by `make`.
    fn spread(lanes: usize, make: impl FnMut() -> Tables) -> Vec<Self>
    where
        Self: Sized;

    /// Enters the tables.
    fn enter(&mut self, site: Site) -> Self::Section<'_>;

    /// The tables, if looking at them costs nothing: for prefetching only.
    fn peek(&self) -> Option<&Tables>;
}

/// `lane`: the tables are the lane's own. Entering them is nothing at all.
pub struct LaneOwned(Tables);

impl Sharing for LaneOwned {
    type Section<'a> = &'a mut Tables;
    type Segmentation = nagle::Lane;
    const NAME: &'static str = "lane";
    const SHARED: bool = false;

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

/// `global`: one set of tables and one lock around everything, as FreeBSD's INP_INFO was.
pub struct Global(Arc<Mutex<Tables>>);

impl Sharing for Global {
    type Section<'a> = MutexGuard<'a, Tables>;
    type Segmentation = nagle::Lane;
    const NAME: &'static str = "global";
    const SHARED: bool = true;

    fn spread(lanes: usize, mut make: impl FnMut() -> Tables) -> Vec<Self> {
        let tables = Arc::new(Mutex::new(make()));
        (0..lanes).map(|_| Global(Arc::clone(&tables))).collect()
    }

    fn enter(&mut self, _: Site) -> MutexGuard<'_, Tables> {
        // A lane that panicked while it held the lock has left the tables between two segments: they are whole.
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn peek(&self) -> Option<&Tables> {
        None
    }
}
