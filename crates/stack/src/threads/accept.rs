//! Owns the hand-over of new connections to threads: a ring per lane, from which whoever comes first takes with one
//! exchange. What is in a ring is a whole connection: it was established, has its conversation, and its lane serves it.

use super::poll::{Watch, Watched};
use super::words::{Conversation, Event, READ, wake_those};
use crate::app::ListenerId;
use laneway_sync::ring::handout::{Offers, Takers, handout};
use laneway_sync::wake::{Flags, look_fence};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

/// A connection that is established and served, and that no thread has yet.
pub struct Newcomer(pub(super) Arc<Conversation>);

impl Newcomer {
    /// The thread's, from here on.
    pub fn conversation(&self) -> Arc<Conversation> {
        self.0.clone()
    }
}

/// A listener, as threads see it.
pub struct Acceptors {
    /// Its name on every lane.
    pub id: ListenerId,
    /// Where it listens.
    pub at: SocketAddr,
    /// Its rings, by lane.
    rings: Box<[Takers<Newcomer>]>,
    /// Lanes that found their ring full and wait for room in it.
    starved: Box<[AtomicBool]>,
    /// Where the next search begins, so that no lane's connections wait behind another's.
    next: AtomicUsize,
    flags: Flags,
    /// What acceptors sleep on.
    pub event: Event,
    /// Calls return at once.
    pub nonblocking: AtomicBool,
    /// The stack has ended.
    gone: AtomicBool,
}

/// A lane's side of a listener.
pub(super) struct LaneAcceptor {
    pub(super) shared: Arc<Acceptors>,
    pub(super) offers: Offers<Newcomer>,
    pub(super) watch: Option<Arc<Watch>>,
    /// Something was offered since threads were last told.
    pub(super) news: bool,
}

impl Acceptors {
    /// A listener and each lane's side of it.
    pub(super) fn new(id: ListenerId, at: SocketAddr, lanes: usize, backlog: usize) -> (Arc<Self>, Vec<LaneAcceptor>) {
        let (offers, takers): (Vec<_>, Vec<_>) =
            (0..lanes).map(|_| handout((backlog.div_ceil(lanes) + 16).min(1 << 16))).unzip();
        let shared = Arc::new(Acceptors {
            id,
            at,
            rings: takers.into(),
            starved: (0..lanes).map(|_| AtomicBool::new(false)).collect(),
            next: AtomicUsize::new(0),
            flags: Flags::default(),
            event: Event::default(),
            nonblocking: AtomicBool::new(false),
            gone: AtomicBool::new(false),
        });
        let sides =
            offers.into_iter().map(|offers| LaneAcceptor { shared: shared.clone(), offers, watch: None, news: false });
        let sides = sides.collect();
        (shared, sides)
    }

    /// Takes the oldest connection of some lane. The second part of the answer is a lane that has waited for this room.
    pub fn take(&self) -> Option<(Arc<Newcomer>, Option<usize>)> {
        let lanes = self.rings.len();
        let first = self.next.fetch_add(1, Relaxed);
        (0..lanes).map(|i| first.wrapping_add(i) % lanes).find_map(|lane| {
            let newcomer = self.rings[lane].take()?;
            look_fence();
            let starved = self.starved[lane].load(Relaxed) && self.starved[lane].swap(false, AcqRel);
            Some((newcomer, starved.then_some(lane)))
        })
    }

    /// A connection waits, or none will ever come.
    pub fn is_ready(&self) -> bool {
        self.gone.load(Acquire) || self.rings.iter().any(|ring| !ring.is_empty())
    }

    /// No connection will come any more.
    pub(super) fn end(&self) {
        self.gone.store(true, Release);
        self.event.wake();
    }

    /// Says that the caller waits; it looks once more before it sleeps.
    pub fn want(&self) {
        self.flags.want(READ);
    }
}

impl LaneAcceptor {
    /// Room for one more. If not, the lane is told when there is.
    pub(super) fn has_room(&mut self, lane: usize) -> bool {
        if self.offers.has_room() {
            return true;
        }
        self.shared.starved[lane].store(true, Relaxed);
        look_fence();
        self.offers.has_room()
    }

    /// No connection will come any more.
    pub(super) fn end(&self) {
        self.shared.end();
        self.watch.iter().for_each(Watched::look);
    }

    /// Tells threads what was offered. The caller has fenced.
    pub(super) fn tell(&mut self) {
        if std::mem::take(&mut self.news) {
            wake_those(&self.shared.flags, &self.shared.event, READ);
            if let Some(watch) = &self.watch {
                Watched::tell(watch, READ);
            }
        }
    }
}
