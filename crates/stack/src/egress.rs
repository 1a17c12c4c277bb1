//! Owns the way out: which link header, which MTU, where the bytes of a packet are written.
//!
//! path: `device::rx → ingress → ethernet → ip::input → demux → tcp::input → tcp::state → tcp::output → ip::output → [egress] → device::tx`

use crate::counters::{Counters, Mib};
use crate::entropy::KeptKey;
use crate::lane::Local;
use crate::mail::{LaneMail, ToControl};
use crate::mtu_news::MtuNews;
use crate::neighbours::{Wait, WaitingRoom};
use crate::snapshot::{Snapshot, mix_pair};
use crate::ways::{WayRef, Ways};
use laneway_device::{Capabilities, Medium, PartialChecksum, Tx, TxMeta};
use laneway_proto::discard::Discard;
use laneway_proto::ethernet;
use laneway_proto::ip::fragment::Fragments;
use laneway_proto::ip::output::{self, HeaderSpec};
use laneway_proto::ip::pmtu::{self, PathMtuCache};
use laneway_proto::ip::route::{Route, Stretch};
use laneway_proto::tcp::connection::effective_mss;
use laneway_proto::tcp::output::Pieces;
use laneway_proto::tcp::{Connection, Plan, isn};
use laneway_proto::time::Instant;
use laneway_sync::prefetch::{LINE, prefetch_lines};
use laneway_wire::checksum::Sum;
use laneway_wire::ethernet::{EtherType, Mac};
use laneway_wire::flow::{Address, FlowKey};
use laneway_wire::keyed_hash::HashKey;
use laneway_wire::protocol;
use laneway_wire::segmentation::Place;
use laneway_wire::tcp::{Header, UsualSyn};
use std::hint::cold_path;

/// How a packet fared.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// It is in the device's hands, or waits for its neighbour.
    Yes,
    /// The device is full: keep it and try again next poll.
    Full,
    /// Enough waits for that neighbour already: keep it and try again next poll.
    Waiting,
    /// There is no way there. It is gone, and counted.
    Nowhere,
}

/// How to reach one destination, worked out once.
///
/// In this order: what each segment reads is in the first two lines, and paths are many where addresses are.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct Path {
    /// The link header of every packet that goes there, and the IP header of TCP segments.
    header: output::Template,
    resolved: bool,
    /// We may connect by it: one end is ours, and the other can be another host's.
    may_begin: bool,
    /// The generation of the snapshot for which it was last seen to hold.
    holds_for: u64,
    src: Address,
    dst: Address,
    /// In which second the next hop was last known to be alive, and the control plane told so.
    confirmed_in: u32,
    /// The number of the route in its table.
    route: u32,
    /// Largest frame that leaves without another question: none does if the next hop's address is not known.
    carries: u32,
    /// Largest IP packet.
    pub mtu: u32,
    next_hop: Address,
    /// In which second the control plane was last told that the next hop is used.
    used_in: u32,
    /// What it was worked out from.
    way: WayRef,
    /// The neighbours by which it is resolved or not.
    neighbours: u64,
    /// The address to send from, of a path for senders who have none yet.
    pub source: Option<Address>,
    /// What is added to our clock in timestamps between these two addresses.
    pub ts_offset: u32,
}

const _: () = assert!(
    core::mem::offset_of!(Path, next_hop) <= 2 * LINE && size_of::<Path>() == 3 * LINE,
    "what each segment reads of a path has grown beyond two lines, or what others do beyond a third"
);

/// The place of the path between two addresses, worked out once: a connection keeps its own, and looks there. What lies there may
/// be another pair's at the moment, or old; that is seen when it is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathPlace(u16);

impl PathPlace {
    /// The place of the path from `src` to `dst`.
    #[inline]
    pub fn between(src: &Address, dst: &Address) -> Self {
        PathPlace((mix_pair(src, dst) % PATHS) as u16)
    }

    /// The place of a flow's path.
    #[inline]
    pub fn of(key: &FlowKey) -> Self {
        PathPlace::between(&key.local, &key.remote)
    }
}

impl Path {
    /// What lies where there is no path: it leads nobody anywhere.
    fn vacant() -> Self {
        let nobody = Address::UNSPECIFIED_V6;
        Path {
            header: output::Template::new(&HeaderSpec::new(nobody, nobody, protocol::TCP)),
            resolved: false,
            may_begin: false,
            way: WayRef::NONE,
            holds_for: NOTHING,
            src: nobody,
            dst: nobody,
            confirmed_in: 0,
            route: 0,
            carries: 0,
            mtu: 0,
            next_hop: nobody,
            used_in: 0,
            neighbours: 0,
            source: None,
            ts_offset: 0,
        }
    }

    /// Whether it is the path from `src` to `dst`, and is known to hold.
    #[inline(always)]
    fn is_known(&self, snapshot: &Snapshot, src: &Address, dst: &Address) -> bool {
        self.holds_for == snapshot.generation && self.src == *src && self.dst == *dst
    }

    /// It carries IP packets of this size, if the next hop's address is known.
    fn carry(&mut self, mtu: u32) {
        self.mtu = mtu;
        self.carries = if self.resolved { mtu + self.header.link_len() as u32 } else { 0 };
    }

    /// A packet goes to the next hop. If whom it leads to has acknowledged something it is alive: then this is not asked again within the second.
    #[inline(never)]
    fn report(&mut self, now: Instant, answered: bool, waiting: &mut WaitingRoom, mail: &mut LaneMail) {
        let second = second_of(now);
        if self.header.link_len() == 0 {
            self.confirmed_in = second; // a link without addresses: nobody asks whether a neighbour is there
        } else if answered {
            self.confirmed_in = second;
            tell(waiting, mail, now, (self.next_hop, /* alive= */ true));
        } else if self.resolved && self.used_in != second {
            self.used_in = second;
            tell(waiting, mail, now, (self.next_hop, /* alive= */ false));
        }
    }
}

/// In which second this is. (A second of 1.05, so that nothing is divided for each packet.)
#[inline(always)]
fn second_of(now: Instant) -> u32 {
    (now.as_us() >> 20) as u32
}

const PATHS: usize = 1_024;

/// The generation of no snapshot.
const NOTHING: u64 = u64::MAX;

/// How to reach a stranger: somebody to whom one packet goes, and of whom nothing is kept.
#[derive(Clone, Copy)]
pub struct Passing {
    way: WayRef,
    /// Who is reached so, if all are by one next hop.
    others: Option<Stretch>,
    next_hop: Address,
    /// Link and IP header of TCP segments to that hop from `src`, for the unspecified address.
    header: output::Template,
    src: Address,
    resolved: bool,
    neighbours: u64,
    route: u32,
    /// Largest IP packet.
    pub mtu: u32,
}

impl Passing {
    /// The headers of what goes there from `src`: to one of our addresses come most strangers, too.
    #[inline(always)]
    fn from(&mut self, src: &Address, hop_limit: u8) -> &output::Template {
        if self.src != *src {
            self.head(src, hop_limit);
        }
        &self.header
    }

    #[inline(never)]
    fn head(&mut self, src: &Address, hop_limit: u8) {
        let nobody = if src.is_v4() { Address::UNSPECIFIED_V4 } else { Address::UNSPECIFIED_V6 };
        let spec = HeaderSpec { hop_limit, ..HeaderSpec::new(*src, nobody, protocol::TCP) };
        self.header = output::Template::new(&spec).behind(self.header.link());
        self.src = *src;
    }
}

/// Link, IP and TCP header, the last with all its options.
const HEADERS_MAX: usize = ethernet::HEADER_LEN + 40 + 60;

/// Paths by destination, one place each: a miss asks for the way there again.
pub struct Paths {
    places: Box<[Path; PATHS]>,
    /// How the last stranger was reached: most are reached like him.
    passing: Option<Passing>,
    ways: Ways,
    /// The generation of the snapshot that all of this goes by.
    generation: u64,
    /// Grows when neighbours may have changed.
    neighbours: u64,
    learned: PathMtuCache,
    /// The same for datagrams, of which nobody can verify what was said: segments do not go by it.
    of_datagrams: PathMtuCache,
    medium: Medium,
    mac: Mac,
    mtu: u32,
    hop_limit: u8,
    /// The secret behind timestamp offsets.
    timestamp: KeptKey,
    now: Instant,
}

impl Paths {
    /// For a device that can do `capabilities`. `timestamp` is the secret behind timestamp offsets.
    pub fn new(capabilities: &Capabilities, hop_limit: u8, timestamp: [u64; 2]) -> Self {
        Paths {
            places: Box::new([Path::vacant(); PATHS]),
            passing: None,
            ways: Ways::default(),
            generation: 0,
            neighbours: 0,
            learned: PathMtuCache::new(pmtu::Config::default()),
            of_datagrams: PathMtuCache::new(pmtu::Config::default()),
            medium: capabilities.medium,
            mac: Mac(capabilities.mac),
            mtu: capabilities.mtu.min(65_535) as u32,
            hop_limit,
            timestamp: KeptKey::new(HashKey::new(timestamp[0], timestamp[1])),
            now: Instant::ZERO,
        }
    }

    /// The path to `dst`; `None` if no route leads there.
    #[inline]
    pub fn get(&mut self, snapshot: &Snapshot, dst: Address) -> Option<&mut Path> {
        self.between(snapshot, &Address::UNSPECIFIED_V6, &dst)
    }

    /// The path to `dst` for packets from `src`.
    #[inline]
    pub fn between(&mut self, snapshot: &Snapshot, src: &Address, dst: &Address) -> Option<&mut Path> {
        self.at(PathPlace::between(src, dst), snapshot, src, dst)
    }

    /// The path to `dst` for packets from `src`, whose place is known.
    #[inline(always)]
    pub fn at(&mut self, place: PathPlace, snapshot: &Snapshot, src: &Address, dst: &Address) -> Option<&mut Path> {
        let at = usize::from(place.0) % PATHS;
        if !self.places[at].is_known(snapshot, src, dst) && !self.verify(at, snapshot, src, dst) {
            return None;
        }
        Some(&mut self.places[at])
    }

    /// Once for each snapshot, and for each pair of addresses that takes the place: whether there is a path, which then lies there.
    #[inline(never)]
    fn verify(&mut self, at: usize, snapshot: &Snapshot, src: &Address, dst: &Address) -> bool {
        if self.generation != snapshot.generation {
            self.adopt(snapshot);
        }
        let path = &mut self.places[at];
        if self.ways.holds(path.way) && path.src == *src && path.dst == *dst {
            path.holds_for = snapshot.generation;
            return true;
        }
        self.renew(at, snapshot, src, dst)
    }

    /// Something beside routes and snapshots is not as it was: no path is taken for what it was without being looked at again.
    fn doubt(&mut self) {
        self.ways.renew();
        for path in &mut *self.places {
            path.holds_for = NOTHING;
        }
    }

    /// The path for a new connection from `src` to `dst`, if that is known and nothing stands against it.
    #[inline(always)]
    pub fn to_begin(&self, place: PathPlace, snapshot: &Snapshot, src: &Address, dst: &Address) -> Option<&Path> {
        let path = &self.places[usize::from(place.0) % PATHS];
        (path.may_begin && path.is_known(snapshot, src, dst)).then_some(path)
    }

    /// The path to `dst` for a packet after which none will follow. It is not kept: a flood from everywhere would put those
    /// that it makes in the places of those that connections use, and each would be worked out for one answer.
    #[inline]
    pub fn passing(&mut self, snapshot: &Snapshot, dst: Address) -> Option<&mut Passing> {
        let is_like_the_last = self.generation == snapshot.generation
            && self.learned.is_empty()
            && self.passing.as_ref().is_some_and(|last| {
                last.neighbours == self.neighbours
                    && last.others.is_some_and(|others| others.contains(dst))
                    && self.ways.holds(last.way)
            });
        if !is_like_the_last && !self.find_passing(snapshot, dst) {
            return None;
        }
        self.passing.as_mut()
    }

    /// False: no route leads there.
    #[inline(never)]
    fn find_passing(&mut self, snapshot: &Snapshot, dst: Address) -> bool {
        if self.generation != snapshot.generation {
            self.adopt(snapshot);
        }
        let before = self.passing.as_ref().map(|last| last.way);
        let (way, leads) = self.ways.find(&snapshot.routes, dst, before);
        let Some((number, route)) = leads else { return false };
        let next_hop = route.next_hop(dst);
        let mtu = mtu_by(&route, dst, self.mtu, &self.learned, self.now);
        let others = route.next_hop.and_then(|_| self.ways.stretch(way));
        if let Some(last) = &mut self.passing
            && last.neighbours == self.neighbours
            && last.next_hop == next_hop
        {
            (last.way, last.others, last.route, last.mtu) = (way, others, number, mtu);
            return true;
        }
        let (link, resolved) = self.link_to(snapshot, next_hop);
        // From nobody yet.
        let src = Address::default();
        let header = output::Template::new(&HeaderSpec::new(src, src, protocol::TCP));
        let header = header.behind(&link[..self.medium.header_len()]);
        let neighbours = self.neighbours;
        self.passing = Some(Passing { way, others, next_hop, header, src, resolved, neighbours, route: number, mtu });
        true
    }

    /// The link header of packets to a neighbour, and whether its address is known.
    fn link_to(&self, snapshot: &Snapshot, next_hop: Address) -> ([u8; ethernet::HEADER_LEN], bool) {
        let ethertype = if next_hop.is_v4() { EtherType::IPV4 } else { EtherType::IPV6 };
        let mac = match self.medium {
            Medium::Ip => Some(Mac([0; 6])),
            Medium::Ethernet => snapshot.neighbours.get(&next_hop).copied().flatten(),
        };
        (ethernet::template(mac.unwrap_or(Mac([0; 6])), self.mac, ethertype), mac.is_some())
    }

    /// Goes by a newer snapshot. What that does not change stays as it is. To be told of each, so that none is missed; who has missed
    /// one looks everything up again.
    #[cold]
    #[inline(never)]
    pub fn adopt(&mut self, snapshot: &Snapshot) {
        let news = &snapshot.news;
        if news.since != self.generation {
            self.neighbours += 1;
            self.ways.forget();
        } else {
            self.ways.apply(&news.routes);
            if news.beside {
                self.neighbours += 1;
                self.ways.renew();
            }
        }
        self.generation = snapshot.generation;
    }

    #[inline(never)]
    fn renew(&mut self, at: usize, snapshot: &Snapshot, src: &Address, dst: &Address) -> bool {
        // Mostly it is a path that was known, whose route has changed in what it says and not in whom it names next.
        let path = &mut self.places[at];
        if (path.src, path.dst, path.neighbours) == (*src, *dst, self.neighbours)
            && !src.is_unspecified()
            && let Some((way, number, route)) = self.ways.again(path.way, *dst)
            && route.next_hop(*dst) == path.next_hop
        {
            (path.way, path.holds_for, path.route) = (way, snapshot.generation, number);
            path.carry(mtu_by(route, *dst, self.mtu, &self.learned, self.now));
            return true;
        }
        self.look_up(at, snapshot, src, dst)
    }

    #[cold]
    #[inline(never)]
    fn look_up(&mut self, at: usize, snapshot: &Snapshot, src: &Address, dst: &Address) -> bool {
        let known = Some(&self.places[at]).filter(|path| path.src == *src && path.dst == *dst);
        let (way, leads) = self.ways.find(&snapshot.routes, *dst, known.map(|path| path.way));
        let Some((number, route)) = leads else {
            self.places[at] = Path::vacant();
            return false;
        };
        let mtu = mtu_by(&route, *dst, self.mtu, &self.learned, self.now);
        // Nobody but datagrams goes by a path without a source.
        let datagrams = self.of_datagrams.get(*dst, self.now).filter(|_| src.is_unspecified());
        let mtu = datagrams.map_or(mtu, |learned| learned.min(mtu));
        let ours = || snapshot.addresses.iter().find(|a| a.is_v4() == dst.is_v4()).copied();
        let source = if src.is_unspecified() { route.source.or_else(ours) } else { None };
        let next_hop = route.next_hop(*dst);
        self.places[at] = self.work_out(at, snapshot, (*src, *dst), Found { way, number, next_hop, mtu, source });
        true
    }

    fn work_out(&self, at: usize, snapshot: &Snapshot, (src, dst): (Address, Address), found: Found) -> Path {
        let Found { way, number, next_hop, mtu, source } = found;
        let (link, resolved) = self.link_to(snapshot, next_hop);
        let link = &link[..self.medium.header_len()];
        let before = Some(&self.places[at]);
        let before = before.filter(|path| path.src == src && path.dst == dst && !src.is_unspecified());
        let (header, ts_offset) = before.map(|path| (path.header, path.ts_offset)).unwrap_or_else(|| {
            let mut spec =
                HeaderSpec::new(if src.is_unspecified() { source.unwrap_or(dst) } else { src }, dst, protocol::TCP);
            spec.hop_limit = self.hop_limit;
            let HashKey { k0, k1 } = self.timestamp.get();
            (output::Template::new(&spec), isn::ts_offset(&[k0, k1], &src, &dst))
        });
        let mut path = Path {
            way,
            holds_for: snapshot.generation,
            // Whenever our addresses change, all of it is worked out again.
            may_begin: snapshot.addresses.contains(&src) && snapshot.addresses.can_be_remote(&dst),
            src,
            dst,
            next_hop,
            header: header.behind(link),
            resolved,
            neighbours: self.neighbours,
            route: number,
            mtu,
            carries: 0,
            source,
            ts_offset,
            confirmed_in: before.filter(|path| path.next_hop == next_hop).map_or(0, |path| path.confirmed_in),
            used_in: before.filter(|path| path.next_hop == next_hop).map_or(0, |path| path.used_in),
        };
        path.carry(mtu);
        path
    }

    /// A validated "packet too big": the new MTU, if it is news.
    pub fn on_packet_too_big(&mut self, dst: Address, mtu: u32, now: Instant) -> Option<u32> {
        self.now = now;
        let news = self.learned.on_packet_too_big(dst, mtu, self.mtu, now)?;
        self.doubt();
        Some(news)
    }

    /// The same, said of a datagram: nobody can tell by whom. True: it is news.
    pub fn on_datagram_too_big(&mut self, dst: Address, mtu: u32, now: Instant) -> bool {
        self.now = now;
        let news = self.of_datagrams.on_packet_too_big(dst, mtu, self.mtu, now).is_some();
        if news {
            self.doubt();
        }
        news
    }

    /// Time has passed: learned MTUs may have expired. What connections go by now where they did, `news` is told.
    pub(crate) fn on_timeout(&mut self, snapshot: &Snapshot, now: Instant, news: &mut MtuNews) {
        self.now = now;
        let mut expired = false;
        for learned in [&mut self.learned, &mut self.of_datagrams] {
            if learned.poll_timeout().is_some_and(|at| at <= now) {
                learned.on_timeout(now);
                expired = true;
            }
        }
        if expired {
            self.doubt();
        }
        while self.of_datagrams.poll_forgotten().is_some() {}
        while let Some(dst) = self.learned.poll_forgotten() {
            if let Some(path) = self.passing(snapshot, dst) {
                news.learn(dst, path.mtu);
            }
        }
    }

    /// Ethernet or bare IP.
    pub fn medium(&self) -> Medium {
        self.medium
    }
}

/// The largest packet to `dst`: what the link carries, its route allows, and is known of the rest of the way.
#[inline]
fn mtu_by(route: &Route, dst: Address, link: u32, learned: &PathMtuCache, now: Instant) -> u32 {
    let link = route.mtu.unwrap_or(link).min(link);
    learned.get(dst, now).map_or(link, |learned| learned.min(link))
}

/// What a path is worked out from.
struct Found {
    way: WayRef,
    number: u32,
    next_hop: Address,
    mtu: u32,
    source: Option<Address>,
}

/// A TCP segment to be written: its flow, and how long header and payload are.
pub struct Outgoing<'a> {
    /// The flow, seen from here.
    pub key: &'a FlowKey,
    /// The place of its path.
    pub path: PathPlace,
    /// TCP header with options, bytes.
    pub header_len: usize,
    /// Payload bytes.
    pub payload_len: usize,
}

/// What knows how to write a TCP segment. (No closure: this one must become part of [`segment`], whatever its size. What leaves that
/// path takes a copy along: of what is nowhere else lent, the compiler keeps the parts in registers.)
pub trait Written: Clone {
    /// Fills it in, checksum field zero, and answers with the sum over the payload; with `offloaded` that means nothing.
    fn write(self, buf: &mut [u8], offloaded: bool) -> Sum;

    /// Whether the peer has acknowledged something within the last second: its next hop is alive (RFC 4861 section 7.3.1). Of what is no
    /// connection's nobody knows.
    #[inline(always)]
    fn is_answered(&self) -> bool {
        false
    }
}

impl Written for &Header {
    #[inline(always)]
    fn write(self, buf: &mut [u8], _: bool) -> Sum {
        self.emit(buf);
        Sum::ZERO
    }
}

impl Written for UsualSyn {
    #[inline(always)]
    fn write(self, buf: &mut [u8], _: bool) -> Sum {
        self.emit(buf);
        Sum::ZERO
    }
}

/// Sends one TCP segment, which `text` writes.
#[inline(always)]
pub fn segment<T: Tx>(local: &mut Local, tx: &mut T, out: Outgoing<'_>, text: impl Written) -> Sent {
    let Outgoing { key, path: place, header_len, payload_len } = out;
    let offloads = local.tx_checksum;
    let Some(mut path) = way(local, tx, key, place, || text.is_answered()) else { return Sent::Nowhere };
    let tcp_len = header_len + payload_len;
    let total = path.header.len() + tcp_len;
    if total > path.carries as usize {
        cold_path();
        if !path.resolved {
            let (header, next_hop) = (path.header, path.next_hop);
            return unresolved(local, &header, next_hop, (header_len, tcp_len), text.clone());
        }
        match narrowed(local, key, place, (header_len, payload_len)) {
            Some(again) => path = again,
            None => return Sent::Nowhere,
        }
    }
    let Some(buf) = tx.reserve_for(total, key) else {
        cold_path();
        local.counters.count(Mib::TxBusy);
        return Sent::Full;
    };
    let tcp = path.header.emit(buf, tcp_len);
    let (at, pseudo, octets) = (path.header.len(), path.header.pseudo(tcp_len), total - path.header.link_len());
    local.counters.count(Mib::IpOutRequests);
    local.counters.add(Mib::IpExtOutOctets, octets as u64);
    let payload = text.write(tcp, offloads);
    let meta = checksum(tcp, (header_len, payload, pseudo), offloads.then_some(at));
    tx.commit(total, meta);
    Sent::Yes
}

/// A connection sends segments that its path does not carry any more: its route says so since. It is told, and others to the same peer; this
/// segment may still get through, and if not, it is sent again as smaller ones.
#[cold]
#[inline(never)]
fn narrow(news: &mut MtuNews, key: &FlowKey, mtu: u32, (header_len, payload_len): (usize, usize)) {
    // Below the least that a connection sends, telling it changes nothing.
    let most = effective_mss(u16::MAX, mtu, key.local.is_v4(), header_len > 20);
    if payload_len > usize::from(most) {
        news.learn(key.remote, mtu);
    }
}

/// The same, and the path again.
#[cold]
#[inline(never)]
fn narrowed<'a>(local: &'a mut Local, key: &FlowKey, place: PathPlace, lens: (usize, usize)) -> Option<&'a mut Path> {
    let path = local.paths.at(place, &local.snapshot, &key.local, &key.remote)?;
    narrow(&mut local.mtu_news, key, path.mtu, lens);
    Some(path)
}

/// A segment that waits for its neighbour. It is sent later, by whoever hears of that, and no device completes it.
#[cold]
#[inline(never)]
fn unresolved(
    local: &mut Local,
    header: &output::Template,
    next_hop: Address,
    (header_len, tcp_len): (usize, usize),
    text: impl Written,
) -> Sent {
    let mut frame = vec![0; header.len() + tcp_len];
    let tcp = header.emit(&mut frame, tcp_len);
    let payload = text.write(tcp, false);
    complete(tcp, header_len, payload, header.pseudo(tcp_len));
    wait_for_neighbour(local, next_hop, &frame[header.link_len()..])
}

/// Sends a super-segment of `connection`: whole to a device that cuts, or in as few pieces as it takes; else cut here, once,
/// each piece written straight to where it leaves from. Says how many payload bytes left: not all of them, but whole
/// segments, if the device filled up on the way.
#[inline(always)]
pub fn super_segment<T: Tx>(
    local: &mut Local,
    tx: &mut T,
    (connection, path): (&Connection, PathPlace),
    plan: &Plan,
) -> (Sent, u32) {
    let (now, link_len, tso_max) = (local.now, local.medium.header_len(), local.tso_max);
    let (key, place) = (connection.key(), path);
    let answered = || connection.is_answered(now);
    let Some(mut path) = way(local, tx, key, place, answered) else { return (Sent::Nowhere, plan.len) };
    let (header_len, mss) = (usize::from(plan.header_len), usize::from(plan.mss));
    if path.header.len() - link_len + header_len + mss > path.mtu as usize {
        cold_path();
        let mtu = path.mtu;
        narrow(&mut local.mtu_news, key, mtu, (header_len, mss));
        match local.paths.at(place, &local.snapshot, &key.local, &key.remote) {
            Some(again) => path = again,
            None => return (Sent::Nowhere, plan.len),
        }
    }
    let ip_len = path.header.len() - link_len;
    let tcp_len = plan.segment_len();
    if !path.resolved || ip_len + tcp_len > tso_max {
        let path = *path;
        return in_pieces(local, tx, connection, &path, plan);
    }
    // The device cuts all of it.
    let total = link_len + ip_len + tcp_len;
    let checksum_partial = Some(PartialChecksum { start: (link_len + ip_len) as u16, offset: 16 });
    let headers = link_len + ip_len + usize::from(plan.header_len);
    let meta = TxMeta { checksum_partial, gso_size: plan.mss, header_len: headers as u16 };
    let mut head = [0; HEADERS_MAX];
    let taken = if tx.gathers(total)
        && let tcp = path.header.emit(&mut head[..headers], tcp_len)
        && let Some((first, second)) = connection.parts(plan, now, tcp)
    {
        // And takes the text from where it is queued.
        Header::fill_partial(tcp, path.header.pseudo(tcp_len));
        tx.gather([&head[..headers], first, second], meta)
    } else if let Some(buf) = tx.reserve_for(total, connection.key()) {
        let tcp = path.header.emit(buf, tcp_len);
        connection.build(plan, now, true, tcp);
        Header::fill_partial(tcp, path.header.pseudo(tcp_len));
        tx.commit(total, meta);
        true
    } else {
        false
    };
    if !taken {
        local.counters.count(Mib::TxBusy);
        return (Sent::Full, 0);
    }
    local.counters.count(Mib::IpOutRequests);
    local.counters.add(Mib::IpExtOutOctets, (ip_len + tcp_len) as u64);
    (Sent::Yes, plan.len)
}

/// A piece that is longer keeps whoever copies it busy for so long that its text comes by itself.
const FETCH_MAX: usize = 2_048;

/// Has the text of the next piece come while this one is finished: its writer was on another core, mostly.
#[inline(always)]
fn fetch(pieces: &Pieces<'_>, at: usize, len: usize) {
    if let Some((text, _)) = pieces.text(at, len) {
        prefetch_lines(text.as_ptr(), text.len().div_ceil(LINE));
    }
}

/// A super-segment that the device cannot cut, or not in one piece; or whose neighbour is not known yet.
#[inline(never)]
fn in_pieces<T: Tx>(local: &mut Local, tx: &mut T, connection: &Connection, path: &Path, plan: &Plan) -> (Sent, u32) {
    let (now, link_len, tso_max) = (local.now, local.medium.header_len(), local.tso_max);
    let ip_len = path.header.len() - link_len;
    let (header_len, mss) = (usize::from(plan.header_len), usize::from(plan.mss));
    // Whole segments only, as many as the device takes in one piece.
    let room = tso_max.saturating_sub(ip_len + header_len) / mss * mss;
    let most = if path.resolved { room.max(mss) } else { mss };
    let pieces = connection.pieces(plan, now);
    let (mut at, len) = (0, plan.len as usize);
    let mut sent = Sent::Yes;
    let mut buffer = Vec::new();
    while at < len {
        let piece = most.min(len - at);
        let place = Place { forward: at as u32, last: at + piece == len };
        let tcp_len = header_len + piece;
        let total = link_len + ip_len + tcp_len;
        let pseudo = path.header.pseudo(tcp_len);
        if !path.resolved {
            buffer.resize(total, 0);
            let tcp = path.header.emit(&mut buffer, tcp_len);
            let sum = pieces.write(place, false, tcp) + pseudo;
            tcp[16..18].copy_from_slice(&sum.checksum());
            sent = wait_for_neighbour(local, path.next_hop, &buffer[link_len..]);
            if sent != Sent::Yes {
                break;
            }
            at += piece;
            continue;
        }
        let Some(buf) = tx.reserve_for(total, connection.key()) else {
            local.counters.count(Mib::TxBusy);
            sent = Sent::Full;
            break;
        };
        let tcp = path.header.emit(buf, tcp_len);
        let sum = pieces.write(place, local.tx_checksum, tcp);
        if piece <= FETCH_MAX {
            fetch(&pieces, at + piece, piece);
        }
        let mut meta = TxMeta::default();
        if local.tx_checksum {
            Header::fill_partial(tcp, pseudo);
            meta.checksum_partial = Some(PartialChecksum { start: (link_len + ip_len) as u16, offset: 16 });
        } else {
            tcp[16..18].copy_from_slice(&(sum + pseudo).checksum());
        }
        if piece > mss {
            meta.gso_size = plan.mss;
            meta.header_len = (link_len + ip_len + header_len) as u16;
        }
        tx.commit(total, meta);
        at += piece;
    }
    if at > 0 && path.resolved {
        // It is one packet where IP is asked to send it; what a device, or this function, makes of it comes later.
        local.counters.count(Mib::IpOutRequests);
        local.counters.add(Mib::IpExtOutOctets, (ip_len + header_len + at) as u64);
    }
    (if at == len { Sent::Yes } else { sent }, if sent == Sent::Nowhere { plan.len } else { at as u32 })
}

/// The path of a flow, and news of its next hop for the control plane. Without a path the packet is counted as lost.
#[inline(always)]
fn way<'a, T: Tx>(
    local: &'a mut Local,
    tx: &mut T,
    key: &FlowKey,
    place: PathPlace,
    answered: impl FnOnce() -> bool,
) -> Option<&'a mut Path> {
    let Some(path) = local.paths.at(place, &local.snapshot, &key.local, &key.remote) else {
        let _ = no_route(&mut local.counters);
        return None;
    };
    tx.on_behalf(&local.snapshot, path.route);
    if path.confirmed_in != second_of(local.now) {
        path.report(local.now, answered(), &mut local.waiting, &mut local.mail);
    }
    Some(path)
}

/// Tells the control plane about a next hop, which is once a second at the most, however many paths lead there.
#[cold]
#[inline(never)]
fn tell(waiting: &mut WaitingRoom, mail: &mut LaneMail, now: Instant, (next_hop, alive): (Address, bool)) {
    if waiting.is_news(next_hop, alive, now) {
        mail.mention(if alive { ToControl::Confirmed(next_hop) } else { ToControl::Used(next_hop) });
    }
}

#[cold]
#[inline(never)]
fn no_route(counters: &mut Counters) -> Sent {
    counters.count(Mib::IpOutNoRoutes);
    counters.discard(Discard::IpNoRoute);
    Sent::Nowhere
}

/// Fills in the checksum of a segment with such a header length, payload and pseudo-header, or leaves it to a device, for which the
/// segment begins `at` there in the frame.
#[inline(always)]
fn checksum(tcp: &mut [u8], (header_len, payload, pseudo): (usize, Sum, Sum), at: Option<usize>) -> TxMeta {
    match at {
        None => {
            complete(tcp, header_len, payload, pseudo);
            TxMeta::default()
        }
        Some(at) => {
            Header::fill_partial(tcp, pseudo);
            let checksum_partial = Some(PartialChecksum { start: at as u16, offset: 16 });
            TxMeta { checksum_partial, ..TxMeta::default() }
        }
    }
}

#[inline(always)]
fn complete(tcp: &mut [u8], header_len: usize, payload: Sum, pseudo: Sum) {
    // Nearly every segment has a header of 32 bytes, nearly every SYN one of 40, and every reset one of 20.
    let rest = pseudo + payload;
    let sum = match (tcp.first_chunk::<32>(), tcp.first_chunk::<40>(), tcp.first_chunk::<20>()) {
        (Some(plain), ..) if header_len == 32 => rest.and_array(plain),
        (_, Some(syn), _) if header_len == 40 => rest.and_array(syn),
        (.., Some(reset)) if header_len == 20 => rest.and_array(reset),
        _ => rest + Sum::of(&tcp[..header_len]),
    };
    tcp[16..18].copy_from_slice(&sum.checksum());
}

/// Sends a segment that is a header only, of no connection: a challenge, an answer from TIME_WAIT.
#[inline(never)]
pub fn header<T: Tx>(local: &mut Local, tx: &mut T, key: &FlowKey, header: &Header) -> Sent {
    answer(local, tx, key, |_, _| *header)
}

/// Sends a segment that is a header only to somebody of whom nothing is kept: a reset, a cookie. `make` says which, by the largest packet that goes
/// there: it becomes part of this, so that what it says is not laid down before it is written.
#[inline(always)]
pub fn answer<T: Tx>(local: &mut Local, tx: &mut T, key: &FlowKey, make: impl FnOnce(&Local, u32) -> Header) -> Sent {
    let (offloads, hop_limit) = (local.tx_checksum, local.paths.hop_limit);
    let Some(path) = local.paths.passing(&local.snapshot, key.remote) else { return no_route(&mut local.counters) };
    let (mtu, route, next_hop, resolved) = (path.mtu, path.route, path.next_hop, path.resolved);
    tx.on_behalf(&local.snapshot, route);
    let header = make(local, mtu);
    let tcp_len = header.len();
    let Some(path) = local.paths.passing.as_mut().filter(|_| resolved) else {
        cold_path();
        let spec = HeaderSpec { hop_limit, ..HeaderSpec::new(key.local, key.remote, protocol::TCP) };
        return unresolved(local, &output::Template::new(&spec), next_hop, (tcp_len, tcp_len), &header);
    };
    let ahead = path.from(&key.local, hop_limit);
    let total = ahead.len() + tcp_len;
    let Some(buf) = tx.reserve_for(total, key) else {
        cold_path();
        local.counters.count(Mib::TxBusy);
        return Sent::Full;
    };
    let (tcp, pseudo) = ahead.emit_to(&key.remote, buf, tcp_len);
    let (at, octets) = (ahead.len(), total - ahead.link_len());
    header.emit_here(tcp);
    let meta = checksum(tcp, (tcp_len, Sum::ZERO, pseudo), offloads.then_some(at));
    tx.commit(total, meta);
    local.counters.count(Mib::TcpOutSegs);
    local.counters.count(Mib::IpOutRequests);
    local.counters.add(Mib::IpExtOutOctets, octets as u64);
    Sent::Yes
}

/// Sends the SYN or SYN-ACK of a flow, by a path whose place is known. Whoever has just made it has its words at hand: of one as nearly all are only
/// those are laid down.
#[inline(always)]
pub fn syn_at<T: Tx>(local: &mut Local, tx: &mut T, key: &FlowKey, path: PathPlace, header: Header) -> Sent {
    match header.usual_syn() {
        Some(syn) => usual_syn_at(local, tx, key, path, syn),
        None => any_syn_at(local, tx, key, path, header),
    }
}

#[inline(never)]
fn usual_syn_at<T: Tx>(local: &mut Local, tx: &mut T, key: &FlowKey, path: PathPlace, syn: UsualSyn) -> Sent {
    let out = Outgoing { key, path, header_len: UsualSyn::LEN, payload_len: 0 };
    segment(local, tx, out, syn)
}

/// One with other options than nearly all have.
#[inline(never)]
fn any_syn_at<T: Tx>(local: &mut Local, tx: &mut T, key: &FlowKey, path: PathPlace, header: Header) -> Sent {
    let out = Outgoing { key, path, header_len: header.len(), payload_len: 0 };
    segment(local, tx, out, &header)
}

/// Sends a whole IP packet that is not TCP's, which `write` fills in; fragmented if it is longer than the path carries. Over IPv4 routers
/// may cut it as well: what they say of it is not believed, since nothing in it can be verified, so they may not be forbidden to.
pub fn packet<T: Tx>(
    local: &mut Local,
    tx: &mut T,
    spec: &HeaderSpec,
    payload_len: usize,
    write: impl FnOnce(&mut [u8]),
) -> Sent {
    let Some(path) = local.paths.get(&local.snapshot, spec.dst) else {
        return no_route(&mut local.counters);
    };
    let mtu = path.mtu as usize;
    let mut payload = vec![0; payload_len];
    write(&mut payload);
    let id = local.chance.next_u64();
    let hop_limit = local.paths.hop_limit;
    let spec = &HeaderSpec { hop_limit, dont_fragment: false, id: id as u16, ..*spec };
    let ip_len = spec.len();
    if ip_len + payload_len <= mtu {
        let mut whole = vec![0; ip_len + payload_len];
        output::emit(spec, &mut whole, payload_len);
        whole[ip_len..].copy_from_slice(&payload);
        return raw(local, tx, spec.dst, &whole);
    }
    let Ok(mut pieces) = Fragments::new(spec, id as u32, &payload, mtu) else {
        local.counters.discard(Discard::IpNoRoute);
        return Sent::Nowhere;
    };
    while let Some(len) = pieces.next_len() {
        let mut piece = vec![0; len];
        pieces.write_next(&mut piece);
        local.counters.count(Mib::IpFragCreates);
        let sent = raw(local, tx, spec.dst, &piece);
        if sent != Sent::Yes {
            return sent;
        }
    }
    Sent::Yes
}

/// Sends an IP packet that is complete.
pub fn raw<T: Tx>(local: &mut Local, tx: &mut T, dst: Address, packet: &[u8]) -> Sent {
    let Some(path) = local.paths.get(&local.snapshot, dst) else { return no_route(&mut local.counters) };
    tx.on_behalf(&local.snapshot, path.route);
    if !path.resolved {
        let next_hop = path.next_hop;
        let sent = wait_for_neighbour(local, next_hop, packet);
        if sent == Sent::Waiting {
            local.counters.discard(Discard::NeighbourQueueFull);
        }
        return sent;
    }
    if path.confirmed_in != second_of(local.now) {
        path.report(local.now, /* answered= */ false, &mut local.waiting, &mut local.mail);
    }
    let link = path.header.link();
    let total = link.len() + packet.len();
    let Some(buf) = tx.reserve(total) else {
        local.counters.discard(Discard::TxFull);
        return Sent::Full;
    };
    let (front, rest) = buf.split_at_mut(link.len());
    front.copy_from_slice(link);
    rest.copy_from_slice(packet);
    tx.commit(total, TxMeta::default());
    local.counters.count(Mib::IpOutRequests);
    local.counters.add(Mib::IpExtOutOctets, packet.len() as u64);
    Sent::Yes
}

#[cold]
fn wait_for_neighbour(local: &mut Local, next_hop: Address, packet: &[u8]) -> Sent {
    if let Some(None) = local.snapshot.neighbours.get(&next_hop) {
        // It did not answer; ask again, but keep nothing for it.
        local.counters.discard(Discard::NeighbourUnreachable);
        let _ = local.mail.to_control.push(ToControl::Unresolved(next_hop));
        return Sent::Nowhere;
    }
    let mut waits = local.waiting.wait(next_hop, packet, local.now);
    if waits == Wait::Full {
        let gone = local.waiting.make_room(local.now);
        local.counters.discard_all(Discard::NeighbourUnreachable, gone);
        if gone > 0 {
            waits = local.waiting.wait(next_hop, packet, local.now);
        }
    }
    match waits {
        Wait::Ask => {
            let _ = local.mail.to_control.push(ToControl::Unresolved(next_hop));
            Sent::Yes
        }
        Wait::Asked => Sent::Yes,
        // A connection keeps its segment and tries again; anything else is dropped by whoever sends it.
        Wait::Full => {
            local.counters.count(Mib::TxBusy);
            local.waits_for_neighbour = true;
            Sent::Waiting
        }
    }
}

#[cfg(test)]
mod tests;
