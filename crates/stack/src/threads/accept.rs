//! Owns the hand-over of new connections to threads: a ring per lane, from which whoever comes first takes with one
//! exchange. What is in a ring is a whole connection: it was established, has its conversation, and its lane serves it.

use super::patience::{CameOver, Patience};
use super::watches::Watches;
use super::words::{Event, READ, Talk, wake_those};
use crate::app::ListenerId;
use laneway_proto::ip::output::Marks;
use laneway_sync::padded::Padded;
use laneway_sync::ring::handout::{Offers, Takers, handout};
use laneway_sync::wake::{Flags, look_fence};
use laneway_wire::flow::{Address, FlowKey};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicUsize, Ordering::*};

/// Who the peer is, in words: a thread that accepts is told, and so it goes with the connection.
type Peer = [u64; 3];

fn peer(flow: &FlowKey) -> Peer {
    let [a, b, c, d] = flow.remote.words().map(u64::from);
    [a << 32 | b, c << 32 | d, flow.remote_port.into()]
}

fn address([ab, cd, port]: Peer) -> SocketAddr {
    let mut octets = [0; 16];
    let words = [ab >> 32, ab, cd >> 32, cd].map(|word| (word as u32).to_ne_bytes());
    octets.as_chunks_mut().0.copy_from_slice(&words);
    SocketAddr::new(Address::from_v6(octets).to_ip(), port as u16)
}

/// A connection that is established and served: a thread's, from here on.
pub struct Newcomer {
    /// The connection.
    pub talk: Talk,
    /// Who is at the other end.
    pub peer: SocketAddr,
}

/// A listener, as threads see it.
pub struct Acceptors {
    /// Its name on every lane.
    pub id: ListenerId,
    /// Where it listens.
    pub at: SocketAddr,
    /// Its rings, by lane.
    rings: Box<[Takers<Talk, 3>]>,
    /// Lanes that found their ring full and wait for room in it.
    starved: Box<[AtomicBool]>,
    pub(super) takes: Padded<Takes>,
    flags: Flags,
    /// What acceptors sleep on.
    pub event: Event,
    /// `IP_TTL` of connections that come, and `IP_TOS` or `IPV6_TCLASS`: see [`set_marks`](Self::set_marks).
    hop_limit: AtomicU8,
    dscp_ecn: AtomicU8,
    /// Calls return at once.
    pub nonblocking: AtomicBool,
    /// Its last handle was dropped.
    pub abandoned: AtomicBool,
    /// How many watch it.
    pub(super) watches: AtomicU16,
    /// The stack has ended.
    gone: AtomicBool,
}

/// What those write who accept, and no lane looks at.
#[derive(Default)]
pub(super) struct Takes {
    /// Where the next search begins, so that no lane's connections wait behind another's.
    next: AtomicUsize,
    pub(super) came_over: CameOver,
    pub(super) patience: Patience,
}

/// A lane's side of a listener.
pub(super) struct LaneAcceptor {
    pub(super) shared: Arc<Acceptors>,
    offers: Offers<Talk, 3>,
    /// How many it holds: those of the backlog that wait here. The others wait with the lane.
    pub(super) places: usize,
    /// Established in this poll. They are offered at its end, with what came for them meanwhile.
    staged: Vec<(Talk, Peer)>,
    /// Something was published since threads were last told.
    news: bool,
    pub(super) watches: Watches,
}

impl Acceptors {
    /// A listener and each lane's side of it.
    pub(super) fn new(id: ListenerId, at: SocketAddr, lanes: usize, backlog: usize) -> (Arc<Self>, Vec<LaneAcceptor>) {
        // Half of what may wait on a lane, as rings have it. The lane has room for a burst while places here are made free again.
        let places = 1 << (backlog.div_ceil(lanes).saturating_add(16) / 2).ilog2().min(16);
        let (offers, takers): (Vec<_>, Vec<_>) = (0..lanes).map(|_| handout(places)).unzip();
        let shared = Arc::new(Acceptors {
            id,
            at,
            rings: takers.into(),
            starved: (0..lanes).map(|_| AtomicBool::new(false)).collect(),
            takes: Padded::default(),
            flags: Flags::default(),
            event: Event::default(),
            hop_limit: AtomicU8::new(0),
            dscp_ecn: AtomicU8::new(0),
            nonblocking: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            watches: AtomicU16::new(0),
            gone: AtomicBool::new(false),
        });
        let side = |offers| LaneAcceptor {
            shared: shared.clone(),
            offers,
            places,
            staged: Vec::new(),
            news: false,
            watches: Watches::default(),
        };
        let sides = offers.into_iter().map(side).collect();
        (shared, sides)
    }

    /// Marks of the packets to whoever calls.
    pub fn marks(&self) -> Marks {
        Marks { hop_limit: self.hop_limit.load(Relaxed), dscp_ecn: self.dscp_ecn.load(Relaxed) }
    }

    /// Marks of the packets of connections that come from now on. What answers those who call is the lanes' matter
    /// ([`Runtime::mark`](crate::runtime::Runtime::mark)).
    pub fn set_marks(&self, marks: Marks) {
        self.hop_limit.store(marks.hop_limit, Relaxed);
        self.dscp_ecn.store(marks.dscp_ecn, Relaxed);
    }

    /// Takes the oldest connection of some lane. The second part of the answer is a lane that has waited for this room.
    pub fn take(&self) -> Option<(Newcomer, Option<usize>)> {
        let lanes = self.rings.len();
        let first = self.takes.next.fetch_add(1, Relaxed);
        (0..lanes).map(|i| first.wrapping_add(i) % lanes).find_map(|lane| {
            let (talk, peer) = self.rings[lane].take()?;
            self.takes.came_over.note(lane);
            look_fence();
            let starved = self.starved[lane].load(Relaxed) && self.starved[lane].swap(false, AcqRel);
            talk.app().begin();
            Some((Newcomer { talk, peer: address(peer) }, starved.then_some(lane)))
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
        let values = self.staged.len() + 1;
        if self.offers.has_room(values) {
            return true;
        }
        self.shared.starved[lane].store(true, Relaxed);
        look_fence();
        self.offers.has_room(values)
    }

    /// A connection for threads, at the end of the poll. There is room for it.
    pub(super) fn stage(&mut self, talk: Talk, flow: &FlowKey) {
        self.staged.push((talk, peer(flow)));
    }

    /// Something is to be offered.
    pub(super) fn has_news(&self) -> bool {
        !self.staged.is_empty()
    }

    /// Offers what was staged. Threads are to be [told](Self::tell), after a fence.
    pub(super) fn publish(&mut self) {
        if self.staged.is_empty() {
            return;
        }
        for (talk, peer) in self.staged.drain(..) {
            let _ = self.offers.offer(talk, peer);
        }
        self.offers.publish();
        self.news = true;
    }

    /// How many no thread has taken.
    pub(super) fn unclaimed(&self) -> usize {
        self.offers.published()
    }

    /// Takes back one that no thread has taken.
    pub(super) fn take_back(&mut self) -> Option<Talk> {
        self.publish();
        self.offers.take_back().map(|(talk, _)| talk)
    }

    /// No connection will come any more.
    pub(super) fn end(&self) {
        self.shared.end();
        self.watches.look();
    }

    /// Tells threads what was offered. The caller has fenced.
    pub(super) fn tell(&mut self) {
        if std::mem::take(&mut self.news) {
            wake_those(&self.shared.flags, &self.shared.event, READ);
            self.watches.tell(READ);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::desk::Desk;
    use super::*;
    use crate::runtime::Bells;

    /// Who comes over one lane all the time does not keep those of another waiting.
    #[test]
    fn lanes_take_turns() {
        let (desk, _servers) = Desk::new(2, Bells::new(2).expect("bells"));
        let (acceptors, mut sides) = Acceptors::new(ListenerId(0), "10.0.0.1:80".parse().expect("an address"), 2, 64);
        let flow = |remote_port| FlowKey {
            local: Address::from_v4([10, 0, 0, 1]),
            remote: Address::from_v4([10, 0, 0, 2]),
            local_port: 80,
            remote_port,
        };
        for (lane, side) in sides.iter_mut().enumerate() {
            for port in 0..4 {
                side.stage(desk.conversation(lane).0, &flow(100 * lane as u16 + port));
            }
            side.publish();
        }
        let taken: Vec<u16> = std::iter::from_fn(|| acceptors.take()).map(|(one, _)| one.peer.port()).collect();
        assert_eq!(taken, [0, 100, 1, 101, 2, 102, 3, 103]);
    }
}
