//! Owns UDP sockets of threads: a ring of datagrams from each lane, and one to the lane that sends for the socket.
//!
//! A flow's datagrams come over one lane and stay in order; between flows there is no order. What finds its ring full is
//! dropped and counted, as the network would have done.

use super::heard::Heard;
use super::patience::{CameOver, Patience};
use super::watches::Watches;
use super::words::{Event, Fault, READ, ROOM, WRITE, wake_those};
use crate::app::UdpId;
use crate::udp::Sender;
use laneway_proto::ip::output::Marks;
use laneway_sync::ring::records::{RecordConsumer, RecordProducer, records};
use laneway_sync::wake::Flags;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of datagrams that may wait from one lane.
const RECEIVE: usize = 256 * 1024;
/// Bytes of datagrams that may wait to be sent.
const SEND: usize = 256 * 1024;
/// While fewer wait than this, a send need not wait: the longest datagram fits, wherever the ring begins anew.
const ROOMY: usize = SEND / 4;
/// Address and port before the payload.
pub(super) const HEADER: usize = 18;
/// Before these, in what is sent, the address that it comes from and its marks.
const SENDER: usize = 18;

/// A UDP socket, as threads see it.
pub struct Datagrams {
    /// Its name on every lane.
    pub id: UdpId,
    /// Where it is bound.
    pub at: SocketAddr,
    /// The lane that sends for it: one, so that what it sends stays in order.
    pub lane: usize,
    from_lanes: Box<[Mutex<RecordConsumer>]>,
    next: AtomicUsize,
    to_lane: Mutex<RecordProducer>,
    /// Bytes that wait to be sent, by which readers of `ready` know without the lock.
    queued: AtomicUsize,
    flags: Flags,
    /// What threads sleep on.
    pub event: Event,
    pub(super) patience: Patience,
    pub(super) came_over: CameOver,
    /// What its threads did last was to send.
    spoke: AtomicBool,
    /// Datagrams that found no room.
    pub dropped: AtomicU64,
    /// What was said of a datagram to the peer that it was connected to then: a [`Fault`], or 0.
    fault: AtomicU16,
    ends: Mutex<Ends>,
    /// The same for lanes, which take no lock.
    pub(super) heard: Heard,
    /// It may send to all hosts of a network: `SO_BROADCAST`.
    pub broadcast: AtomicBool,
    /// `IP_TTL`; 0: as the host's.
    pub ttl: AtomicU8,
    /// `IP_TOS`, …
    pub tos: AtomicU8,
    /// … and `IPV6_TCLASS`.
    pub tclass: AtomicU8,
    /// Calls return at once.
    pub nonblocking: AtomicBool,
    /// Milliseconds, as in [`super::words::AppWords`].
    pub read_timeout_ms: AtomicU32,
    /// The same for writes.
    pub write_timeout_ms: AtomicU32,
    /// Its last handle was dropped.
    pub abandoned: AtomicBool,
    /// How many watch it.
    pub(super) watches: AtomicU16,
    /// The stack has ended.
    pub gone: AtomicBool,
}

/// What connecting it has made of a socket.
#[derive(Default)]
struct Ends {
    /// The peer that it is connected to.
    peer: Option<SocketAddr>,
    /// The address of ours that the first connect has chosen, if it is bound to any. (The kernel's `inet_rcv_saddr`, where `SOCK_BINDADDR_LOCK` is not set.)
    chosen: Option<IpAddr>,
}

/// A lane's side of a UDP socket.
pub(super) struct LaneDatagrams {
    pub(super) shared: Arc<Datagrams>,
    to_app: RecordProducer,
    /// What threads have sent, on the lane that sends for it.
    pub(super) outgoing: Option<RecordConsumer>,
    pub(super) watches: Watches,
    /// What there is to tell at the end of the poll: [`READ`], [`WRITE`], and [`ROOM`] if a drain has made some.
    pub(super) news: u32,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An address as records have it: one of IPv4 in the clothes of IPv6.
pub(super) fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

fn write_address(to: &mut [u8], address: SocketAddr) {
    to[..16].copy_from_slice(&octets(address.ip()));
    to[16..HEADER].copy_from_slice(&address.port().to_be_bytes());
}

fn read_address(from: &[u8]) -> Option<(SocketAddr, &[u8])> {
    let (header, payload) = from.split_first_chunk::<HEADER>()?;
    let ip = Ipv6Addr::from(*header.first_chunk::<16>()?);
    let port = u16::from_be_bytes([header[16], header[17]]);
    Some((SocketAddr::new(ip.to_canonical(), port), payload))
}

impl Datagrams {
    pub(super) fn new(id: UdpId, at: SocketAddr, lanes: usize) -> (Arc<Self>, Vec<LaneDatagrams>) {
        let (to_app, from_lanes): (Vec<_>, Vec<_>) = (0..lanes)
            .map(|_| {
                let (producer, consumer) = records(RECEIVE);
                (producer, Mutex::new(consumer))
            })
            .unzip();
        let (to_lane, outgoing) = records(SEND);
        let lane = usize::from(id.0) % lanes;
        let shared = Arc::new(Datagrams {
            id,
            at,
            lane,
            from_lanes: from_lanes.into(),
            next: AtomicUsize::new(0),
            to_lane: Mutex::new(to_lane),
            queued: AtomicUsize::new(0),
            flags: Flags::default(),
            event: Event::default(),
            patience: Patience::default(),
            came_over: CameOver::lane(lane),
            spoke: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
            fault: AtomicU16::new(0),
            ends: Mutex::default(),
            heard: Heard::default(),
            broadcast: AtomicBool::new(false),
            ttl: AtomicU8::new(0),
            tos: AtomicU8::new(0),
            tclass: AtomicU8::new(0),
            nonblocking: AtomicBool::new(false),
            read_timeout_ms: AtomicU32::new(u32::MAX),
            write_timeout_ms: AtomicU32::new(u32::MAX),
            abandoned: AtomicBool::new(false),
            watches: AtomicU16::new(0),
            gone: AtomicBool::new(false),
        });
        let mut outgoing = Some(outgoing);
        let sides = to_app.into_iter().enumerate().map(|(i, to_app)| LaneDatagrams {
            shared: shared.clone(),
            to_app,
            outgoing: if i == lane { outgoing.take() } else { None },
            watches: Watches::default(),
            news: 0,
        });
        let sides = sides.collect();
        (shared, sides)
    }

    /// Shows the oldest datagram of some lane to `see`, and takes it away unless `peek`.
    pub fn receive<R>(&self, peek: bool, mut see: impl FnMut(SocketAddr, &[u8]) -> R) -> Option<R> {
        let lanes = self.from_lanes.len();
        let first = self.next.load(Relaxed);
        for i in 0..lanes {
            let at = first.wrapping_add(i) % lanes;
            let mut ring = lock(&self.from_lanes[at]);
            while ring.poll(1) == 1 {
                let answer = read_address(ring.record(0).0).map(|(from, payload)| see(from, payload));
                if answer.is_none() || !peek {
                    ring.release(1);
                }
                if answer.is_some() {
                    self.came_over.note(at);
                    self.spoke.store(false, Relaxed);
                    // Who has peeked means this one when he receives, whatever comes over other lanes until then.
                    self.next.store(if peek { at } else { at + 1 }, Relaxed);
                    return answer;
                }
            }
        }
        None
    }

    /// Queues a datagram, from the address that it has now; false if there is no room now.
    pub fn send(&self, to: SocketAddr, data: &[u8]) -> bool {
        let source = octets(self.local().ip());
        let len = SENDER + HEADER + data.len();
        let mut ring = lock(&self.to_lane);
        let Some(room) = ring.reserve(len) else { return false };
        let (front, rest) = room.split_at_mut(SENDER);
        front[..16].copy_from_slice(&source);
        let class = if to.ip().to_canonical().is_ipv4() { &self.tos } else { &self.tclass };
        [front[16], front[17]] = [self.ttl.load(Relaxed), class.load(Relaxed)];
        write_address(rest, to);
        rest[HEADER..].copy_from_slice(data);
        self.queued.fetch_add(len, Relaxed);
        ring.commit(len, 0);
        ring.publish();
        true
    }

    /// Whoever sends now has sent twice in a row, and will most likely not wait for what comes of it.
    pub(super) fn has_much_to_say(&self) -> bool {
        let spoke = self.spoke.load(Relaxed);
        if !spoke {
            self.spoke.store(true, Relaxed);
        }
        spoke
    }

    /// Which of [`READ`] and [`WRITE`] would not have to wait.
    pub fn ready(&self) -> u32 {
        let over = self.gone.load(Acquire) || self.fault.load(Acquire) != 0;
        let readable = over || self.from_lanes.iter().any(|ring| !lock(ring).is_empty());
        let writable = over || self.queued.load(Relaxed) < ROOMY;
        (u32::from(readable) * READ) | (u32::from(writable) * WRITE)
    }

    /// Why a datagram did not get to a connected peer; said once, though it be connected to another by now.
    pub fn take_fault(&self) -> Option<Fault> {
        (self.fault.load(Relaxed) != 0).then(|| Fault::from_code(self.fault.swap(0, AcqRel)))?
    }

    /// The stack has ended: nothing will come any more, and nothing goes.
    pub(super) fn end(&self) {
        self.gone.store(true, Release);
        self.event.wake();
    }

    /// Says that the caller waits; it looks once more before it sleeps.
    pub fn want(&self, bits: u32) {
        self.flags.want(bits);
    }

    /// Connects it to a peer. `source` says from which address one that has this address sends there. If it is bound to any, that is its own
    /// from now on, and stays so when it is connected to others.
    pub fn connect<E>(&self, peer: SocketAddr, source: impl FnOnce(IpAddr) -> Result<IpAddr, E>) -> Result<(), E> {
        // As those that come are named: an IPv4 address is the same in the clothes of IPv6, and a scope is not looked at.
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        let mut ends = lock(&self.ends);
        let source = source(ends.chosen.unwrap_or(self.at.ip()))?;
        if ends.chosen.is_none() && is_any(self.at.ip()) && !is_any(source) {
            ends.chosen = Some(source);
        }
        ends.peer = Some(peer);
        self.heard.set(ends.chosen, peer);
        Ok(())
    }

    /// Its peer.
    pub fn peer(&self) -> Option<SocketAddr> {
        lock(&self.ends).peer
    }

    /// Its name: where it is bound, or, if that is any address and it was connected, the one that was chosen then.
    pub fn local(&self) -> SocketAddr {
        SocketAddr::new(lock(&self.ends).chosen.unwrap_or(self.at.ip()), self.at.port())
    }
}

/// The unspecified address, of IPv4 also in the clothes of IPv6.
fn is_any(ip: IpAddr) -> bool {
    ip.to_canonical().is_unspecified()
}

impl LaneDatagrams {
    /// Whether it is connected to somebody else, or hears its peer at another address than `at`.
    pub(super) fn is_deaf_to(&self, at: IpAddr, from: SocketAddr) -> bool {
        self.shared.heard.is(at, from) == Some(false)
    }

    /// A datagram has arrived; false if there was no room.
    pub(super) fn deliver(&mut self, from: SocketAddr, data: &[u8]) -> bool {
        self.news |= READ;
        let Some(room) = self.to_app.reserve(HEADER + data.len()) else {
            self.shared.dropped.fetch_add(1, Relaxed);
            return false;
        };
        write_address(room, from);
        room[HEADER..].copy_from_slice(data);
        self.to_app.commit(HEADER + data.len(), 0);
        self.to_app.publish();
        true
    }

    /// What is sent to that address does not get there. It concerns who is connected to it; who is not, or becomes so later, does not hear of it.
    pub(super) fn fail(&mut self, peer: SocketAddr, fault: Fault) {
        if self.shared.heard.is_from(peer) == Some(true) {
            self.shared.fault.store(fault as u16, Release);
            self.news |= READ | WRITE;
        }
    }

    /// Hands what threads have sent to `send`, at most `max`, each with what its socket was then; says how many.
    pub(super) fn drain(&mut self, max: usize, mut send: impl FnMut(Sender, SocketAddr, &[u8])) -> usize {
        let Some(ring) = &mut self.outgoing else { return 0 };
        let n = ring.poll(max);
        let mut bytes = 0;
        for i in 0..n {
            let (record, _) = ring.record(i);
            bytes += record.len();
            if let Some((source, rest)) = record.split_first_chunk::<16>()
                && let Some((&[hop_limit, dscp_ecn], rest)) = rest.split_first_chunk()
                && let Some((to, data)) = read_address(rest)
            {
                let marks = Marks { hop_limit, dscp_ecn };
                send(Sender { address: Ipv6Addr::from(*source).to_canonical(), marks }, to, data);
            }
        }
        ring.release(n);
        // Until then there is no news: whoever waits for room would find too little, and there is a drain to come.
        if n > 0 && self.shared.queued.fetch_sub(bytes, Relaxed) - bytes < ROOMY {
            self.news |= ROOM;
        }
        n
    }

    /// The socket is over.
    pub(super) fn end(&self) {
        self.shared.end();
        self.watches.look();
    }

    /// Tells threads. The caller has fenced.
    pub(super) fn tell(&mut self) {
        let news = std::mem::take(&mut self.news);
        if news == 0 {
            return;
        }
        let (flags, room, news) = (&self.shared.flags, news & ROOM != 0, news & !ROOM);
        wake_those(flags, &self.shared.event, if room { news | WRITE } else { news });
        if !self.watches.is_none() {
            // A poller hears of room if it, or a send that does not wait, has found too little.
            let asked = room && flags.take(ROOM) != 0;
            self.watches.tell(if asked { news | WRITE } else { news });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_peeked_is_what_is_received() {
        let (shared, mut lanes) = Datagrams::new(UdpId(0), "10.0.0.1:1".parse().unwrap(), 2);
        let from = "10.0.0.2:2".parse().unwrap();
        let take = |peek| shared.receive(peek, |_, data| data.to_vec()).unwrap();
        assert!(lanes[1].deliver(from, b"four"));
        assert_eq!(take(/* peek= */ true), b"four");
        assert!(lanes[0].deliver(from, b"longer"));
        assert_eq!(take(true), b"four");
        assert_eq!(take(false), b"four");
        assert_eq!(take(false), b"longer");
    }

    /// What comes over one lane all the time does not keep that of another waiting.
    #[test]
    fn lanes_take_turns() {
        let (shared, mut lanes) = Datagrams::new(UdpId(0), "10.0.0.1:1".parse().unwrap(), 2);
        let from = "10.0.0.2:2".parse().unwrap();
        for data in [b"a", b"b", b"c"] {
            assert!(lanes.iter_mut().all(|lane| lane.deliver(from, data)));
        }
        let all: Vec<u8> = std::iter::from_fn(|| shared.receive(false, |_, data| data[0])).collect();
        assert_eq!(all, *b"aabbcc");
    }

    /// There is nothing to wait for any more, in either direction: who is told of that finds it so.
    #[test]
    fn one_whose_stack_has_ended_is_ready() {
        let (shared, lanes) = Datagrams::new(UdpId(0), "10.0.0.1:1".parse().unwrap(), 1);
        while shared.send("10.0.0.2:2".parse().unwrap(), &[7; 10_000]) {}
        assert_eq!(shared.ready(), 0);
        lanes[0].end();
        assert_eq!(shared.ready(), READ | WRITE);
    }
}
