//! Owns the paths of a lane: how to reach a destination, worked out once and kept until something stands against it.
//!
//! path: `device::rx → ingress → ethernet → ip::input → demux → tcp::input → tcp::state → tcp::output → ip::output → [egress] → device::tx`

mod former;

use crate::entropy::KeptKey;
use crate::mail::{LaneMail, ToControl};
use crate::mtu_news::MtuNews;
use crate::neighbours::WaitingRoom;
use crate::snapshot::{Snapshot, mix_pair_wide};
use crate::ways::{WayRef, Ways};
use former::Former;
use laneway_device::{Capabilities, Medium};
use laneway_proto::ethernet;
use laneway_proto::ip::output::{self, HeaderSpec};
use laneway_proto::ip::pmtu::{self, PathMtuCache};
use laneway_proto::ip::route::{Prefix, Route, Stretch};
use laneway_proto::tcp::isn;
use laneway_proto::time::Instant;
use laneway_sync::prefetch::LINE;
use laneway_wire::ethernet::{EtherType, Mac};
use laneway_wire::flow::{Address, FlowKey};
use laneway_wire::keyed_hash::HashKey;
use laneway_wire::protocol;

/// How to reach one destination, worked out once.
///
/// In this order: what each segment reads is in the first two lines, and paths are many where addresses are.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct Path {
    /// The link header of every packet that goes there, and the IP header of TCP segments.
    pub(crate) header: output::Template,
    pub(crate) resolved: bool,
    /// Routers cut what goes there: it carries less than is believed of any path.
    pub(crate) is_cut: bool,
    /// We may connect by it: one end is ours, and the other can be another host's.
    may_begin: bool,
    /// The generation of the snapshot for which it was last seen to hold.
    holds_for: u64,
    src: Address,
    dst: Address,
    /// In which second the next hop was last known to be alive, and the control plane told so.
    pub(crate) confirmed_in: u32,
    /// The number of the route in its table.
    pub(crate) route: u32,
    /// Largest frame that leaves without another question: none does if the next hop's address is not known, or it will be cut.
    pub(crate) carries: u32,
    /// Largest IP packet.
    pub mtu: u32,
    pub(crate) next_hop: Address,
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
        PathPlace::of_mix(mix_pair_wide(src, dst))
    }

    /// From bits that a [`tag_of_mix`] has none of.
    #[inline(always)]
    fn of_mix(mix: u64) -> Self {
        PathPlace(((mix >> 40) as usize % PATHS) as u16)
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
            is_cut: false,
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

    /// It carries IP packets of this size, if the next hop's address is known; or they are cut.
    fn carry(&mut self, mtu: u32, is_cut: bool) {
        self.mtu = mtu;
        self.is_cut = is_cut;
        self.carries = if self.resolved && !is_cut { mtu + self.header.link_len() as u32 } else { 0 };
    }

    /// Every host on the link hears what goes there.
    fn leads_to_all(&self) -> bool {
        self.header.link().first_chunk() == Some(&Mac::BROADCAST.0)
    }

    /// A packet goes to the next hop. If whom it leads to has acknowledged something it is alive: then this is not asked again within the second.
    #[inline(never)]
    pub(crate) fn report(&mut self, now: Instant, answered: bool, waiting: &mut WaitingRoom, mail: &mut LaneMail) {
        let second = second_of(now);
        if self.header.link_len() == 0 || self.leads_to_all() {
            self.confirmed_in = second; // a link without addresses, or all of its hosts: nobody asks whether a neighbour is there
        } else if answered {
            self.confirmed_in = second;
            tell(waiting, mail, now, (self.next_hop, /* alive= */ true));
        } else if self.resolved && self.used_in != second {
            self.used_in = second;
            tell(waiting, mail, now, (self.next_hop, /* alive= */ false));
        }
    }
}

/// Tells the control plane about a next hop, which is once a second at the most, however many paths lead there.
#[cold]
#[inline(never)]
fn tell(waiting: &mut WaitingRoom, mail: &mut LaneMail, now: Instant, (next_hop, alive): (Address, bool)) {
    if waiting.is_news(next_hop, alive, now) {
        mail.mention(if alive { ToControl::Confirmed(next_hop) } else { ToControl::Used(next_hop) });
    }
}

/// In which second this is. (A second of 1.05, so that nothing is divided for each packet.)
#[inline(always)]
pub(crate) fn second_of(now: Instant) -> u32 {
    (now.as_us() >> 20) as u32
}

const PATHS: usize = 1_024;

/// By which it is told whose path lies in a place, without the path: one pair of addresses in four thousand millions has another's.
#[inline(always)]
fn tag_of_mix(mix: u64) -> u32 {
    mix as u32
}

/// The number of no route.
const NO_ROUTE: u32 = u32::MAX;

/// The generation of no snapshot.
const NOTHING: u64 = u64::MAX;

/// How to reach a stranger: somebody to whom one packet goes, and of whom nothing is kept.
#[derive(Clone, Copy)]
pub struct Passing {
    way: WayRef,
    /// Who is reached so, if all are by one next hop.
    others: Option<Stretch>,
    pub(crate) next_hop: Address,
    /// Link and IP header of TCP segments to that hop from `src`, for the unspecified address.
    header: output::Template,
    src: Address,
    pub(crate) resolved: bool,
    neighbours: u64,
    pub(crate) route: u32,
    /// Largest IP packet.
    pub mtu: u32,
    /// In which second the control plane was last told that the next hop is used.
    pub(crate) used_in: u32,
}

impl Passing {
    /// A packet goes to the next hop, and nothing says whether that is alive: strangers may be all to whom anything goes by it.
    #[inline(never)]
    pub(crate) fn report(&mut self, now: Instant, waiting: &mut WaitingRoom, mail: &mut LaneMail) {
        self.used_in = second_of(now);
        if self.header.link_len() != 0 {
            tell(waiting, mail, now, (self.next_hop, /* alive= */ false));
        }
    }

    /// The headers of what goes there from `src`: to one of our addresses come most strangers, too.
    #[inline(always)]
    pub(crate) fn from(&mut self, src: &Address, hop_limit: u8) -> &output::Template {
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

/// What goes by path MTUs that nobody can verify, each kind by those that are said of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unverified {
    /// What sockets send.
    Datagrams,
    /// Answers to echo requests.
    Echoes,
}

/// Paths by destination, one place each: a miss asks for the way there again.
pub struct Paths {
    places: Box<[Path; PATHS]>,
    /// Whose they are: a stranger is asked for here, in 4 KiB that stay at hand.
    tags: Box<[u32; PATHS]>,
    /// How the last stranger was reached: most are reached like him.
    pub(crate) passing: Option<Passing>,
    ways: Ways,
    /// The generation of the snapshot that all of this goes by.
    generation: u64,
    /// Grows when neighbours may have changed.
    neighbours: u64,
    learned: PathMtuCache,
    /// The same for datagrams, of which nobody can verify what was said: segments do not go by it.
    of_datagrams: PathMtuCache,
    /// The same for answers to echo requests.
    of_echoes: PathMtuCache,
    medium: Medium,
    mac: Mac,
    mtu: u32,
    pub(crate) hop_limit: u8,
    /// The secret behind timestamp offsets.
    timestamp: KeptKey,
    /// Whose place others have taken.
    pub(crate) former: Former,
    /// Peers to whom a path was made since somebody asked.
    newcomers: Vec<Address>,
    now: Instant,
}

/// Of so many newcomers the lane remembers who they are.
const NEWCOMERS_MAX: usize = 64;

impl Paths {
    /// For a device that can do `capabilities`. `timestamp` is the secret behind timestamp offsets.
    pub fn new(capabilities: &Capabilities, hop_limit: u8, timestamp: [u64; 2]) -> Self {
        Paths {
            places: Box::new([Path::vacant(); PATHS]),
            tags: Box::new([0; PATHS]),
            passing: None,
            ways: Ways::default(),
            generation: 0,
            neighbours: 0,
            learned: PathMtuCache::new(pmtu::Config::default()),
            of_datagrams: PathMtuCache::new(pmtu::Config::default()),
            of_echoes: PathMtuCache::new(pmtu::Config::default()),
            medium: capabilities.medium,
            mac: Mac(capabilities.mac),
            mtu: capabilities.mtu.min(65_535) as u32,
            hop_limit,
            timestamp: KeptKey::new(HashKey::new(timestamp[0], timestamp[1])),
            former: Former::NONE,
            newcomers: Vec::with_capacity(NEWCOMERS_MAX),
            now: Instant::ZERO,
        }
    }

    /// With whom connections have begun to be since this was last asked: peers that we called, and those that have completed a handshake. A
    /// peer is among them now and then, and not with each connection.
    #[inline]
    pub fn newcomers(&mut self) -> impl Iterator<Item = Address> {
        self.newcomers.drain(..)
    }

    /// Whether a path leads from `src` to `dst`, or did lately: then `dst` is no stranger. Some strangers are taken for others who are remembered, the more of them
    /// there are.
    #[inline(always)]
    pub(crate) fn lead(&self, src: &Address, dst: &Address) -> bool {
        let mix = mix_pair_wide(src, dst);
        self.tags[usize::from(PathPlace::of_mix(mix).0)] == tag_of_mix(mix) || self.former.has(dst)
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

    /// The same, if it lies there and is known to hold.
    #[inline(always)]
    pub fn known(&self, place: PathPlace, snapshot: &Snapshot, src: &Address, dst: &Address) -> Option<&Path> {
        let path = &self.places[usize::from(place.0) % PATHS];
        path.is_known(snapshot, src, dst).then_some(path)
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
        self.known(place, snapshot, src, dst).filter(|path| path.may_begin)
    }

    /// What the link carries, bytes.
    pub fn mtu(&self) -> u32 {
        self.mtu
    }

    /// The path to `dst` for a packet after which none will follow. It is not kept: a flood from everywhere would put those
    /// that it makes in the places of those that connections use, and each would be worked out for one answer.
    #[inline]
    pub fn passing(&mut self, snapshot: &Snapshot, dst: Address) -> Option<&mut Passing> {
        let is_like_the_last = self.generation == snapshot.generation
            && self.learned.is_empty()
            && self.passing.as_ref().is_some_and(|last| {
                // Where neighbours may have changed no way holds.
                last.others.is_some_and(|others| others.contains(dst)) && self.ways.holds(last.way)
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
        let (route, used_in) = (number, 0);
        self.passing = Some(Passing { way, others, next_hop, header, src, resolved, neighbours, route, mtu, used_in });
        true
    }

    /// The link header of packets to a neighbour, and whether its address is known.
    fn link_to(&self, snapshot: &Snapshot, next_hop: Address) -> ([u8; ethernet::HEADER_LEN], bool) {
        let ethertype = if next_hop.is_v4() { EtherType::IPV4 } else { EtherType::IPV6 };
        let mac = match self.medium {
            Medium::Ip => Some(Mac([0; 6])),
            Medium::Ethernet if snapshot.addresses.means_all(&next_hop) => Some(Mac::BROADCAST),
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
            let is_cut = self.learned.is_cut(*dst, self.now);
            path.carry(mtu_by(route, *dst, self.mtu, &self.learned, self.now), is_cut);
            return true;
        }
        self.look_up(at, snapshot, src, dst)
    }

    #[cold]
    #[inline(never)]
    fn look_up(&mut self, at: usize, snapshot: &Snapshot, src: &Address, dst: &Address) -> bool {
        let known = Some(&self.places[at]).filter(|path| path.src == *src && path.dst == *dst);
        let former = &self.places[at];
        if known.is_none() && !former.src.is_unspecified() {
            self.former.note(&former.dst, self.now);
        }
        // Whoever has only datagrams from us is a stranger.
        self.tags[at] = if src.is_unspecified() { 0 } else { tag_of_mix(mix_pair_wide(src, dst)) };
        let (way, leads) = self.ways.find(&snapshot.routes, *dst, known.map(|path| path.way));
        // All hosts of a network of ours are on the link, whatever routes say: what is for them goes to no router.
        let beside = || Route { prefix: Prefix::default_v4(), next_hop: None, interface: 0, mtu: None, source: None };
        let leads = if snapshot.addresses.means_all(dst) { Some((NO_ROUTE, beside())) } else { leads };
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
        // A connection's: of strangers none has a path before he has completed his handshake.
        if !src.is_unspecified() && self.newcomers.len() < NEWCOMERS_MAX {
            self.newcomers.push(*dst);
        }
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
            is_cut: false,
            neighbours: self.neighbours,
            route: number,
            mtu,
            carries: 0,
            source,
            ts_offset,
            confirmed_in: before.filter(|path| path.next_hop == next_hop).map_or(0, |path| path.confirmed_in),
            used_in: before.filter(|path| path.next_hop == next_hop).map_or(0, |path| path.used_in),
        };
        path.carry(mtu, self.learned.is_cut(dst, self.now));
        path
    }

    /// A validated "packet too big": the new MTU, if it is news, or that what goes there is cut.
    pub fn on_packet_too_big(&mut self, snapshot: &Snapshot, dst: Address, mtu: u32, now: Instant) -> Option<u32> {
        self.now = now;
        let news = self.learned.on_packet_too_big(dst, mtu, self.unlearned(snapshot, dst), now)?;
        self.doubt();
        Some(news)
    }

    /// The same, said of what has no connection: nobody can tell by whom. True: it is news.
    pub fn on_unverified_too_big(
        &mut self,
        snapshot: &Snapshot,
        of: Unverified,
        (dst, mtu): (Address, u32),
        now: Instant,
    ) -> bool {
        self.now = now;
        let most = self.unlearned(snapshot, dst);
        match of {
            Unverified::Datagrams => {
                let news = self.of_datagrams.on_packet_too_big(dst, mtu, most, now).is_some();
                if news {
                    self.doubt();
                }
                news
            }
            // No path goes by it, so none is in doubt.
            Unverified::Echoes => self.of_echoes.on_packet_too_big(dst, mtu, most, now).is_some(),
        }
    }

    /// The largest answer to an echo request from there, if it is less than what the path there carries.
    pub fn echo_mtu(&self, dst: Address) -> Option<u32> {
        self.of_echoes.get(dst, self.now)
    }

    /// The largest packet to `dst` as long as nothing is known of the rest of the way.
    fn unlearned(&self, snapshot: &Snapshot, dst: Address) -> u32 {
        snapshot.routes.lookup(dst).map_or(self.mtu, |route| carried(route, self.mtu))
    }

    /// Time has passed: learned MTUs may have expired. What connections go by now where they did, `news` is told.
    pub(crate) fn on_timeout(&mut self, snapshot: &Snapshot, now: Instant, news: &mut MtuNews) {
        self.now = now;
        let mut expired = false;
        for learned in [&mut self.learned, &mut self.of_datagrams, &mut self.of_echoes] {
            if learned.poll_timeout().is_some_and(|at| at <= now) {
                learned.on_timeout(now);
                expired = true;
            }
        }
        if expired {
            self.doubt();
        }
        while self.of_datagrams.poll_forgotten().or_else(|| self.of_echoes.poll_forgotten()).is_some() {}
        while let Some(dst) = self.learned.poll_forgotten() {
            if let Some(path) = self.passing(snapshot, dst) {
                news.learn(dst, path.mtu);
            }
        }
    }

    /// Our link address.
    #[inline(always)]
    pub(crate) fn mac(&self) -> Mac {
        self.mac
    }

    /// Ethernet or bare IP.
    pub fn medium(&self) -> Medium {
        self.medium
    }
}

/// The largest packet to `dst`: what the link carries, its route allows, and is known of the rest of the way.
#[inline]
fn mtu_by(route: &Route, dst: Address, link: u32, learned: &PathMtuCache, now: Instant) -> u32 {
    let link = carried(route, link);
    learned.get(dst, now).map_or(link, |learned| learned.min(link))
}

/// The largest packet that a link carries and a route allows.
#[inline]
fn carried(route: &Route, link: u32) -> u32 {
    route.mtu.unwrap_or(link).min(link)
}

/// What a path is worked out from.
struct Found {
    way: WayRef,
    number: u32,
    next_hop: Address,
    mtu: u32,
    source: Option<Address>,
}

#[cfg(test)]
mod tests;
