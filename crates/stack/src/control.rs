//! Owns the control plane of a stack: addresses, routes, neighbours, who listens where. A plain value, like a lane:
//! [`Control::turn`] is one poll; in the product a thread of its own calls it.

use crate::counters::{Counters, Mib};
use crate::error::Error;
use crate::listing::Page;
use crate::mail::{ControlMail, ToControl, ToLane};
use crate::snapshot::{AddressSet, Snapshot};
use crate::trace::Tap;
use hashbrown::HashMap;
use laneway_proto::discard::Discard;
use laneway_proto::ethernet;
use laneway_proto::icmp::{self, Incoming};
use laneway_proto::ip::input;
use laneway_proto::ip::route::{Prefix, Route, RouteTable};
use laneway_proto::neighbour::{self, NeighbourCache};
use laneway_proto::time::Instant;
use laneway_wire::ethernet::{EtherType, Mac};
use laneway_wire::flow::Address;
use std::net::IpAddr;
use std::sync::Arc;

mod binds;
mod moves;

use binds::Binds;
pub use binds::{BindId, PortRange};
pub use moves::Bucket;
use moves::Moves;

/// Route tables that were replaced and are still in some lane's hands, at the most: whoever replaces faster than lanes look
/// gets his newest table published when they have looked.
const TABLES_MAX: usize = 64;
/// Lanes that could not be told are told again after so long, in microseconds.
const AGAIN_US: u64 = 100;

/// Messages taken from one lane in one turn, so that no lane's flood starves another's.
const REPORTS_MAX: usize = 64;

/// An address of ours with the network that it is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cidr {
    /// The address.
    pub address: IpAddr,
    /// Length of the network prefix, in bits.
    pub prefix: u8,
}

impl std::str::FromStr for Cidr {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let right = "write it as ADDRESS/BITS, for example 10.0.0.2/24 or fd00::2/64";
        let (address, prefix) =
            text.split_once('/').ok_or_else(|| format!("'{text}' has no prefix length; {right}"))?;
        let address: IpAddr = address.parse().map_err(|_| format!("'{address}' is no IP address; {right}"))?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.parse::<u8>().ok().filter(|bits| *bits <= most);
        let prefix = prefix
            .ok_or_else(|| format!("the prefix length of '{text}' must be a number from 0 to {most}; {right}"))?;
        Ok(Cidr { address, prefix })
    }
}

impl std::fmt::Display for Cidr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// What a stack is told about the network that it is in.
#[derive(Clone, Debug, Default)]
pub struct Network {
    /// Our addresses; each makes its network reachable, and any of IPv6 the link-local one.
    pub addresses: Vec<Cidr>,
    /// Where everything else goes, one gateway per family.
    pub gateways: Vec<IpAddr>,
}

impl Network {
    /// The first state of the world, which lanes are made with.
    pub fn snapshot(&self) -> Result<Snapshot, Error> {
        let networks = self.addresses.iter().map(|cidr| (Address::from(cidr.address), cidr.prefix));
        let networks: Vec<(Address, u8)> = networks.collect();
        let mut builder = RouteTable::builder();
        let mut seen = Vec::new();
        for cidr in &self.addresses {
            let address = Address::from(cidr.address);
            let prefix = Prefix::of(address, cidr.prefix).map_err(|e| Error::Invalid(e.to_string()))?;
            if seen.contains(&(prefix.address(), prefix.len(), address.is_v4())) {
                continue; // a second address in the same network needs no second route
            }
            seen.push((prefix.address(), prefix.len(), address.is_v4()));
            builder = builder.add(Route { prefix, next_hop: None, interface: 0, mtu: None, source: Some(address) });
        }
        // On every link, whatever else is (RFC 4861 section 5.1): no router may hand on what is for there.
        let link_local = Address::from_v6([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let ours = || networks.iter().map(|(address, _)| *address).filter(|address| !address.is_v4());
        if ours().next().is_some() && !seen.contains(&(link_local, 10, false)) {
            let prefix = Prefix::of(link_local, 10).map_err(|e| Error::Invalid(e.to_string()))?;
            let source = ours().find(Address::is_link_local);
            builder = builder.add(Route { prefix, next_hop: None, interface: 0, mtu: None, source });
        }
        for gateway in &self.gateways {
            let next_hop = Address::from(*gateway);
            let source = self.source_beyond(next_hop);
            let prefix = if next_hop.is_v4() { Prefix::default_v4() } else { Prefix::default_v6() };
            builder = builder.add(Route { prefix, next_hop: Some(next_hop), interface: 0, mtu: None, source });
        }
        let routes = builder.build().map_err(|e| Error::Invalid(e.to_string()))?;
        Ok(Snapshot {
            generation: 1,
            addresses: Arc::new(AddressSet::in_networks(&networks)),
            routes: Arc::new(routes),
            neighbours: Arc::default(),
            news: Arc::default(),
        })
    }

    /// The address by which we speak to those beyond a gateway: the one in its network, since no router need know others; and over IPv6 none that
    /// ends at the link, as long as there is another.
    fn source_beyond(&self, gateway: Address) -> Option<Address> {
        let same = self.addresses.iter().filter(|cidr| cidr.address.is_ipv4() == gateway.is_v4());
        let least = |cidr: &&Cidr| {
            let ours = Address::from(cidr.address);
            let beside = Prefix::of(ours, cidr.prefix).is_ok_and(|network| network.contains(gateway));
            // Of several networks that the gateway is in, the smallest: its route is the one that leads there.
            (!ours.is_v4() && ours.is_link_local(), if beside { u8::MAX - cidr.prefix } else { u8::MAX })
        };
        same.min_by_key(least).map(|cidr| Address::from(cidr.address))
    }
}

/// What became of route tables.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Tables {
    /// Replaced by others.
    pub retired: u64,
    /// Freed, of those.
    pub freed: u64,
    /// Put before the lanes; what was replaced before that could be is passed over.
    pub published: u64,
}

/// What lanes have counted, and the bytes of their tables, added up.
pub(crate) fn sum(lanes: &[(Counters, usize)]) -> (Counters, usize) {
    let mut sum = (Counters::default(), 0);
    for (counters, bytes) in lanes {
        sum.0.merge(counters);
        sum.1 += bytes;
    }
    sum
}

/// The control plane of one stack.
pub struct Control {
    mail: Vec<ControlMail>,
    snapshot: Snapshot,
    /// What was published last.
    published: Snapshot,
    neighbours: NeighbourCache,
    version: u64,
    /// Route tables that were replaced: kept until no lane has them, so that they are freed here and not on a lane.
    replaced: Vec<Arc<RouteTable>>,
    tables: Tables,
    /// The snapshot is newer than what was published.
    unpublished: bool,
    /// Lanes whose mail was full when a snapshot was published.
    untold: Vec<bool>,
    /// The latest snapshot names next hops that did not answer.
    failed_published: bool,
    /// When there is something to do even if no lane reports.
    due: Instant,
    mac: Mac,
    binds: Binds,
    moves: Moves,
    /// What the control plane itself has counted.
    own: Counters,
    /// Counters asked for: one place per lane.
    counters: Vec<Option<(Counters, usize)>>,
    /// Pages of listings that lanes have filled and nobody has taken yet.
    #[expect(clippy::vec_box, reason = "the box itself travels on: nothing is moved or allocated on a lane")]
    pages: Vec<Box<Page>>,
}

impl Control {
    /// For lanes at the other ends of `mail`, on a device with the link address `mac`. `ports` is where `bind` to port 0 chooses.
    pub fn new(mail: Vec<ControlMail>, snapshot: Snapshot, mac: [u8; 6], ports: PortRange) -> Self {
        let lanes = mail.len();
        Control {
            mail,
            published: snapshot.clone(),
            snapshot,
            neighbours: NeighbourCache::new(neighbour::Config::default()),
            version: 0,
            replaced: Vec::new(),
            tables: Tables::default(),
            unpublished: false,
            untold: vec![false; lanes],
            failed_published: false,
            due: Instant::ZERO,
            mac: Mac(mac),
            binds: Binds::new(ports),
            moves: Moves::new(lanes),
            own: Counters::default(),
            counters: vec![None; lanes],
            pages: Vec::new(),
        }
    }

    /// Lanes that have not yet taken all of their mail: whoever wakes lanes wakes these.
    pub fn undelivered(&self) -> impl Iterator<Item = usize> + '_ {
        self.mail.iter().enumerate().filter(|(_, mail)| !mail.to_lane.is_drained()).map(|(lane, _)| lane)
    }

    /// Some lane has reported something that [`turn`](Self::turn) has not yet looked at.
    pub fn has_mail(&self) -> bool {
        self.mail.iter().any(|mail| !mail.from_lane.is_empty())
    }

    /// Asks every lane for its counters; they are complete when [`counters`](Self::counters) answers.
    pub fn request_counters(&mut self) {
        self.counters.iter_mut().for_each(|c| *c = None);
        for mail in &mut self.mail {
            mail.tell(ToLane::ReportCounters);
        }
    }

    /// What the control plane itself has counted: what it discards.
    pub fn own_counters(&self) -> &Counters {
        &self.own
    }

    /// What each lane has counted and the bytes that its tables hold, once every lane has answered.
    pub fn counters_by_lane(&self) -> Option<Vec<(Counters, usize)>> {
        self.counters.iter().cloned().collect()
    }

    /// The sum of them.
    pub fn counters(&self) -> Option<(Counters, usize)> {
        self.counters_by_lane().map(|lanes| sum(&lanes))
    }

    /// Has a lane fill a page; [`take_pages`](Self::take_pages) gives it back.
    pub fn ask_page(&mut self, lane: usize, page: Box<Page>) {
        if let Some(mail) = self.mail.get_mut(lane) {
            mail.tell(ToLane::List(page));
        }
    }

    /// The pages that have come back.
    pub fn take_pages(&mut self) -> Vec<Box<Page>> {
        std::mem::take(&mut self.pages)
    }

    /// Shows a lane's packets to a tap, until its reader is dropped.
    pub fn tap(&mut self, lane: usize, tap: Box<Tap>) {
        if let Some(mail) = self.mail.get_mut(lane) {
            mail.tell(ToLane::Tap(tap));
        }
    }

    /// One poll. The answer is when the next one is due if no lane says anything.
    pub fn turn(&mut self, now: Instant) -> Instant {
        let mut heard = false;
        for lane in 0..self.mail.len() {
            for _ in 0..REPORTS_MAX {
                let Some(report) = self.mail[lane].from_lane.pop() else { break };
                heard = true;
                self.on_report(lane, report, now);
            }
        }
        for mail in &mut self.mail {
            mail.tell_kept();
        }
        if self.is_behind() {
            self.publish_routes();
        }
        if self.moves.is_under_way() {
            self.move_on();
        }
        if now < self.due && !heard {
            return self.next(now);
        }
        self.neighbours.on_timeout(now);
        while let Some(request) = self.neighbours.poll_transmit() {
            if let Some(source) = self.snapshot.source(&request.target) {
                let mut frame = vec![0; request.len()];
                request.emit(self.mac, source, &mut frame);
                self.transmit(frame, if source.is_v4() { EtherType::ARP } else { EtherType::IPV6 });
            }
        }
        self.publish_neighbours();
        self.due = if self.failed_published { now } else { self.neighbours.poll_timeout().unwrap_or(Instant::NEVER) };
        self.next(now)
    }

    /// Lanes have yet to be told of something, or to give something back.
    fn is_behind(&self) -> bool {
        let keeps = self.mail.iter().any(ControlMail::keeps);
        self.unpublished || !self.replaced.is_empty() || self.untold.contains(&true) || keeps
    }

    fn next(&self, now: Instant) -> Instant {
        let again = if self.is_behind() { now.after_us(AGAIN_US) } else { Instant::NEVER };
        self.due.min(again).min(self.moves.due(now))
    }

    /// Puts other routes in the place of all that there are. Packets from the next poll of each lane on go by them; packets
    /// under way go on. Routes that were replaced are freed when no lane has them any more: [`tables`](Self::tables) counts.
    ///
    /// It may be called as often as one likes: what lanes have not yet seen is passed over for what is newer. A route whose source is no address of
    /// ours is refused, and with it all of them.
    pub fn replace_routes(&mut self, routes: RouteTable) -> Result<(), Error> {
        let is_foreign = |source: &Address| !self.snapshot.addresses.contains(source);
        let foreign = routes.iter().filter_map(|route| route.source).find(is_foreign);
        if let Some(foreign) = foreign {
            return Err(Error::AddressNotAvailable(foreign.into()));
        }
        self.replaced.push(std::mem::replace(&mut self.snapshot.routes, Arc::new(routes)));
        self.tables.retired += 1;
        self.unpublished = true;
        self.publish_routes();
        Ok(())
    }

    /// How many route tables were replaced, and how many of those are freed.
    pub fn tables(&self) -> Tables {
        self.tables
    }

    fn publish_routes(&mut self) {
        let before = self.replaced.len();
        // Whoever else had it has dropped it, and cannot come by it again: nobody lends it any more.
        self.replaced.retain(|table| Arc::strong_count(table) > 1);
        self.tables.freed += (before - self.replaced.len()) as u64;
        if self.unpublished && self.replaced.len() <= TABLES_MAX {
            self.tables.published += 1;
            self.publish();
        } else if self.untold.contains(&true) {
            self.tell(|untold| untold);
        }
    }

    fn on_report(&mut self, lane: usize, report: ToControl, now: Instant) {
        match report {
            ToControl::Frame(frame) => self.on_frame(&frame, now),
            ToControl::Used(next_hop) => {
                let _ = self.neighbours.lookup(now, next_hop);
            }
            ToControl::Confirmed(next_hop) => self.neighbours.confirm(next_hop, now),
            ToControl::PathMtu(remote, mtu) => self.tell_others(lane, || ToLane::PathMtu(remote, mtu)),
            ToControl::UnverifiedMtu(of, remote, mtu) => {
                self.tell_others(lane, || ToLane::UnverifiedMtu(of, remote, mtu));
            }
            ToControl::Surveyed { id, in_use, census } => self.on_surveyed(id, in_use, census),
            ToControl::Listening(id) => self.on_listening(id.0),
            ToControl::GoesBy(version) => self.on_goes_by(lane, version),
            ToControl::Drained { bucket, cookies_until } => self.on_drained(lane, bucket, cookies_until),
            ToControl::Counters(mut counters, bytes) => {
                // What the control plane discards came by some lane; it is told with the first one's.
                if lane == 0 {
                    counters.merge(&self.own);
                }
                self.counters[lane] = Some((*counters, bytes));
            }
            ToControl::Page(page) => self.pages.push(page),
            ToControl::TapDone(tap) => drop(tap),
            ToControl::Replaced(snapshot) => drop(snapshot),
        }
    }

    /// What one lane has learnt, and others would learn by themselves.
    fn tell_others(&mut self, lane: usize, news: impl Fn() -> ToLane) {
        for (_, mail) in self.mail.iter_mut().enumerate().filter(|(other, _)| *other != lane) {
            let _ = mail.to_lane.push(news());
        }
    }

    /// ARP and neighbour discovery.
    fn on_frame(&mut self, frame: &[u8], now: Instant) {
        let Ok((ethertype, bytes, group)) = ethernet::accept(frame, self.mac) else { return };
        match self.answer(ethertype, bytes, group, now) {
            Ok(Some(answer)) => {
                let mut reply = vec![0; answer.len()];
                answer.emit(&mut reply);
                self.transmit(reply, ethertype);
            }
            Ok(None) => {}
            Err(discard) => self.own.discard(discard),
        }
    }

    /// What a question of ARP or neighbour discovery is answered with. Whatever it says is learnt.
    fn answer(
        &mut self,
        ethertype: EtherType,
        bytes: &[u8],
        group: bool,
        now: Instant,
    ) -> Result<Option<neighbour::Answer>, Discard> {
        let addresses = Arc::clone(&self.snapshot.addresses);
        let is_local = |address: Address| addresses.contains(&address);
        if ethertype == EtherType::ARP {
            return self.neighbours.on_arp(bytes, self.mac, is_local, now);
        }
        let mut packet = input::input(bytes, false)?;
        packet.to_group = group;
        if !addresses.contains(&packet.dst) && !addresses.joins(&packet.dst) {
            return Err(Discard::IpNotLocal);
        }
        self.own.count(Mib::IcmpInMsgs);
        match icmp::input(&packet).inspect_err(|_| self.own.count(Mib::IcmpInErrors))? {
            Incoming::Neighbour(message) => self.neighbours.on_ndp(&packet, &message, self.mac, is_local, now),
            _ => Ok(None),
        }
    }

    /// Frames of our own leave through the first lane. Those of neighbour discovery are packets of IP, and messages of ICMP (RFC 4861 section 4); those
    /// of ARP are neither.
    fn transmit(&mut self, frame: Vec<u8>, ethertype: EtherType) {
        let octets = frame.len().saturating_sub(ethernet::HEADER_LEN);
        let sent = self.mail.first_mut().is_some_and(|mail| mail.to_lane.push(ToLane::Transmit(frame)).is_ok());
        if sent && ethertype == EtherType::IPV6 {
            self.own.count(Mib::IcmpOutMsgs);
            self.own.count(Mib::IpOutRequests);
            self.own.add(Mib::IpExtOutOctets, octets as u64);
        }
    }

    fn publish_neighbours(&mut self) {
        // A next hop that was asked for in vain is published as such, once, so that nothing waits for it.
        let mut failed: Vec<Address> = std::iter::from_fn(|| self.neighbours.poll_failed()).collect();
        failed.retain(|hop| self.neighbours.peek(*hop).is_none());
        if self.neighbours.version() == self.version && failed.is_empty() && !self.failed_published {
            return;
        }
        self.failed_published = !failed.is_empty();
        let mut neighbours: HashMap<Address, Option<Mac>> =
            self.neighbours.iter().map(|(ip, mac)| (ip, Some(mac))).collect();
        for hop in failed {
            neighbours.insert(hop, None);
        }
        if neighbours == *self.snapshot.neighbours {
            self.version = self.neighbours.version();
            return;
        }
        self.version = self.neighbours.version();
        self.snapshot.neighbours = Arc::new(neighbours);
        self.publish();
    }

    fn publish(&mut self) {
        self.snapshot.follow(&self.published);
        self.published = self.snapshot.clone();
        self.unpublished = false;
        self.tell(|_| true);
    }

    /// Sends the newest snapshot. A lane whose mail is full gets it, or a newer one, in a later turn.
    fn tell(&mut self, whom: impl Fn(bool) -> bool) {
        for (mail, untold) in self.mail.iter_mut().zip(&mut self.untold) {
            if whom(*untold) {
                *untold = mail.to_lane.push(ToLane::Snapshot(Box::new(self.snapshot.clone()))).is_err();
            }
        }
    }
}
