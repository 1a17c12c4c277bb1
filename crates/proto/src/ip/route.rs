//! Owns the choice of the next hop: longest prefix match over a table that never changes once it is built.
//!
//! Prefixes either nest or do not meet at all, so a set of prefixes cuts the address space into at most 2n + 1 ranges in each of
//! which one route wins. The builder computes those ranges; a lookup is one binary search over their first addresses,
//! whatever the lengths of the prefixes. A new table is published whole; nobody ever sees half a change.

use core::fmt;
use laneway_wire::flow::Address;

mod changes;
#[cfg(test)]
mod tests;

pub use changes::{Change, Changes, Leads, Stretch};

/// The smallest MTU an IPv4 link may have (RFC 791 section 3.2), bytes.
pub const MTU_MIN_V4: u32 = 68;
/// The smallest MTU an IPv6 link may have (RFC 8200 section 5), bytes.
pub const MTU_MIN_V6: u32 = 1280;

/// A set of addresses that agree in their first `len` bits. Host bits are zero, by construction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Prefix {
    address: Address,
    len: u8,
}

impl Prefix {
    /// The prefix `address/len`, `len` counted in the address's own family (at most 32 or 128).
    pub fn new(address: Address, len: u8) -> Result<Self, RouteError> {
        let width = width(&address);
        if len > width {
            return Err(RouteError::PrefixTooLong { len });
        }
        if bits(&address) & host_mask(width, len) != 0 {
            return Err(RouteError::HostBitsSet { address, len });
        }
        Ok(Prefix { address, len })
    }

    /// The prefix of length `len` that `address` lies in: the connected network of an interface address.
    pub fn of(address: Address, len: u8) -> Result<Self, RouteError> {
        let width = width(&address);
        if len > width {
            return Err(RouteError::PrefixTooLong { len });
        }
        let network = from_bits(address.is_v4(), bits(&address) & !host_mask(width, len));
        Ok(Prefix { address: network, len })
    }

    /// `0.0.0.0/0`.
    pub const fn default_v4() -> Self {
        Prefix { address: Address::from_v4([0; 4]), len: 0 }
    }

    /// `::/0`.
    pub const fn default_v6() -> Self {
        Prefix { address: Address::from_v6([0; 16]), len: 0 }
    }

    /// The first address of the prefix.
    #[inline]
    pub const fn address(&self) -> Address {
        self.address
    }

    /// The number of leading bits that count.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a prefix length, not a size")]
    pub const fn len(&self) -> u8 {
        self.len
    }

    /// Whether `address` is of the same family and lies in the prefix.
    #[inline]
    pub fn contains(&self, address: Address) -> bool {
        let width = width(&self.address);
        self.address.is_v4() == address.is_v4() && bits(&address) & !host_mask(width, self.len) == bits(&self.address)
    }

    fn first(&self) -> u128 {
        bits(&self.address)
    }

    fn last(&self) -> u128 {
        bits(&self.address) | host_mask(width(&self.address), self.len)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

/// One line of the routing table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// The destinations it is for.
    pub prefix: Prefix,
    /// The router to hand packets to; `None` means that the destination itself is on the link.
    pub next_hop: Option<Address>,
    /// The interface, by the number the stack gave it.
    pub interface: u32,
    /// The MTU of this route in bytes, when it is less than the interface's.
    pub mtu: Option<u32>,
    /// The local address to prefer as the source.
    pub source: Option<Address>,
}

impl Route {
    /// The neighbour that gets a packet for `dst`.
    #[inline]
    pub fn next_hop(&self, dst: Address) -> Address {
        self.next_hop.unwrap_or(dst)
    }
}

/// What an operator got wrong about a route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RouteError {
    /// A prefix longer than its family's addresses.
    PrefixTooLong {
        /// The length given.
        len: u8,
    },
    /// An address with bits beyond the prefix.
    HostBitsSet {
        /// The address given.
        address: Address,
        /// The length given.
        len: u8,
    },
    /// Two routes for one prefix.
    Duplicate(Prefix),
    /// Next hop or source of another family than the prefix.
    FamilyMismatch(Prefix),
    /// A next hop that cannot be a router: unspecified, multicast, loopback or broadcast.
    NextHopUnusable(Address),
    /// A next hop that no on-link route of the same interface reaches.
    NextHopUnreachable(Address),
    /// A source address that cannot be one of a host's own.
    SourceUnusable(Address),
    /// An MTU below the least that the family allows.
    MtuTooSmall {
        /// The prefix of the route.
        prefix: Prefix,
        /// The MTU given, bytes.
        mtu: u32,
    },
}

impl fmt::Display for RouteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RouteError::PrefixTooLong { len } => {
                write!(f, "prefix length {len} is longer than the address (at most 32 for IPv4, 128 for IPv6)")
            }
            RouteError::HostBitsSet { address, len } => {
                write!(f, "{address}/{len} has bits set beyond its prefix; write the network address")
            }
            RouteError::Duplicate(prefix) => {
                write!(f, "there are two routes for {prefix}; keep one")
            }
            RouteError::FamilyMismatch(prefix) => {
                write!(f, "the route for {prefix} has a next hop or source of the other IP version")
            }
            RouteError::NextHopUnusable(hop) => {
                write!(f, "{hop} cannot be a next hop; name a unicast address of a router")
            }
            RouteError::NextHopUnreachable(hop) => write!(
                f,
                "next hop {hop} is on no directly connected network of its interface; add that network's route too"
            ),
            RouteError::SourceUnusable(source) => {
                write!(f, "{source} cannot be a source address; name a unicast address of this host")
            }
            RouteError::MtuTooSmall { prefix, mtu } => write!(
                f,
                "MTU {mtu} of the route for {prefix} is below the least allowed ({MTU_MIN_V4} for IPv4, {MTU_MIN_V6} for IPv6)"
            ),
        }
    }
}

impl std::error::Error for RouteError {}

/// Marks a range that no route covers.
const NO_ROUTE: u32 = u32::MAX;

/// A routing table. Immutable: build another one to change it.
#[derive(Clone, Debug, Default)]
pub struct RouteTable {
    routes: Box<[Route]>,
    v4: Ranges<u32>,
    v6: Ranges<u128>,
}

/// The address space of one family, cut at every place where the winning route changes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Ranges<N> {
    /// First address of each range, ascending. Apart from the winners, so that a search touches keys only.
    starts: Box<[N]>,
    /// Which route wins in each range, or [`NO_ROUTE`].
    winners: Box<[u32]>,
}

impl<N: Copy + Ord> Ranges<N> {
    #[inline]
    fn find(&self, address: N) -> Option<u32> {
        let after = self.starts.partition_point(|start| *start <= address);
        let winner = *self.winners.get(after.checked_sub(1)?)?;
        (winner != NO_ROUTE).then_some(winner)
    }
}

impl RouteTable {
    /// Starts an empty table.
    pub fn builder() -> RouteTableBuilder {
        RouteTableBuilder::default()
    }

    /// The route with the longest prefix that contains `dst`. O(log n).
    #[inline]
    pub fn lookup(&self, dst: Address) -> Option<&Route> {
        self.get(self.find(dst)?)
    }

    /// Its number, for [`get`](Self::get). O(log n).
    #[inline]
    pub fn find(&self, dst: Address) -> Option<u32> {
        if dst.is_v4() {
            self.v4.find(u32::from_be_bytes(dst.octets_v4()))
        } else {
            self.v6.find(u128::from_be_bytes(dst.octets()))
        }
    }

    /// The route of this number.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&Route> {
        self.routes.get(number as usize)
    }

    /// All routes, longest prefixes first within a family.
    pub fn iter(&self) -> impl Iterator<Item = &Route> {
        self.routes.iter()
    }

    /// The number of routes.
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// Whether there is no route at all.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }
}

/// Collects routes, says what is wrong with them, and makes a [`RouteTable`].
#[derive(Clone, Debug, Default)]
pub struct RouteTableBuilder {
    routes: Vec<Route>,
}

impl RouteTableBuilder {
    /// Adds a route. What can be judged from this route alone is judged in [`RouteTableBuilder::build`] as well, so that
    /// the order of additions does not matter.
    #[expect(clippy::should_implement_trait, reason = "the builder's verb")]
    pub fn add(mut self, route: Route) -> Self {
        self.routes.push(route);
        self
    }

    /// Checks every route and builds the table. The error names the first route that is wrong.
    pub fn build(self) -> Result<RouteTable, RouteError> {
        let mut routes = self.routes;
        for route in &routes {
            check(route)?;
        }
        // Longest first within a family; on equal length by address, so that duplicates meet.
        routes.sort_by_key(|route| {
            let prefix = &route.prefix;
            (!prefix.address.is_v4(), u8::MAX - prefix.len, prefix.first())
        });
        for pair in routes.windows(2) {
            if pair[0].prefix == pair[1].prefix {
                return Err(RouteError::Duplicate(pair[0].prefix));
            }
        }
        for route in &routes {
            check_reachable(route, &routes)?;
        }
        Ok(RouteTable {
            v4: ranges(&routes, /* v4= */ true, |bits| bits as u32),
            v6: ranges(&routes, /* v4= */ false, |bits| bits),
            routes: routes.into_boxed_slice(),
        })
    }
}

/// What can be said about a route without knowing the others.
fn check(route: &Route) -> Result<(), RouteError> {
    let v4 = route.prefix.address.is_v4();
    let others = [route.next_hop, route.source];
    if others.into_iter().flatten().any(|address| address.is_v4() != v4) {
        return Err(RouteError::FamilyMismatch(route.prefix));
    }
    if let Some(hop) = route.next_hop
        && (hop.is_unspecified() || hop.is_multicast() || hop.is_loopback() || hop.is_broadcast())
    {
        return Err(RouteError::NextHopUnusable(hop));
    }
    if let Some(source) = route.source
        && (source.is_unspecified() || source.is_multicast() || source.is_broadcast())
    {
        return Err(RouteError::SourceUnusable(source));
    }
    let least = if v4 { MTU_MIN_V4 } else { MTU_MIN_V6 };
    if let Some(mtu) = route.mtu
        && mtu < least
    {
        return Err(RouteError::MtuTooSmall { prefix: route.prefix, mtu });
    }
    Ok(())
}

/// A router must be a neighbour. IPv6 link-local routers are, on every link, with no route to say so.
fn check_reachable(route: &Route, all: &[Route]) -> Result<(), RouteError> {
    let Some(hop) = route.next_hop else {
        return Ok(());
    };
    let link_local_v6 = !hop.is_v4() && hop.is_link_local();
    let reached = all
        .iter()
        .any(|other| other.next_hop.is_none() && other.interface == route.interface && other.prefix.contains(hop));
    if link_local_v6 || reached { Ok(()) } else { Err(RouteError::NextHopUnreachable(hop)) }
}

/// Cuts the address space of one family into ranges with one winner each.
fn ranges<N>(routes: &[Route], v4: bool, narrow: impl Fn(u128) -> N) -> Ranges<N> {
    let mut order: Vec<(u128, u8, u32)> = routes
        .iter()
        .enumerate()
        .filter(|(_, route)| route.prefix.address.is_v4() == v4)
        .map(|(index, route)| (route.prefix.first(), route.prefix.len, index as u32))
        .collect();
    // By first address, wider prefixes first: a parent always comes before its children.
    order.sort_unstable();

    let mut cuts: Vec<(u128, u32)> = vec![(0, NO_ROUTE)];
    let mut open: Vec<(u128, u32)> = Vec::new(); // (last address, route): the prefixes around the current place
    let cut = |cuts: &mut Vec<(u128, u32)>, start: u128, winner: u32| match cuts.last_mut() {
        Some(last) if last.0 == start => last.1 = winner,
        Some(last) if last.1 == winner => {}
        _ => cuts.push((start, winner)),
    };
    let end_of_space = if v4 { u128::from(u32::MAX) } else { u128::MAX };
    let close = |cuts: &mut Vec<(u128, u32)>, open: &mut Vec<(u128, u32)>, before: Option<u128>| {
        while let Some(&(last, _)) = open.last()
            && before.is_none_or(|start| last < start)
        {
            open.pop();
            let outer = open.last().map_or(NO_ROUTE, |(_, winner)| *winner);
            if last != end_of_space {
                cut(cuts, last + 1, outer);
            }
        }
    };
    for (start, _, index) in order {
        close(&mut cuts, &mut open, Some(start));
        cut(&mut cuts, start, index);
        open.push((routes[index as usize].prefix.last(), index));
    }
    close(&mut cuts, &mut open, None);
    Ranges {
        starts: cuts.iter().map(|(start, _)| narrow(*start)).collect(),
        winners: cuts.iter().map(|(_, winner)| *winner).collect(),
    }
}

fn width(address: &Address) -> u8 {
    if address.is_v4() { 32 } else { 128 }
}

/// The address as a number, in its own family's width.
fn bits(address: &Address) -> u128 {
    if address.is_v4() {
        u128::from(u32::from_be_bytes(address.octets_v4()))
    } else {
        u128::from_be_bytes(address.octets())
    }
}

fn from_bits(v4: bool, bits: u128) -> Address {
    if v4 { Address::from_v4((bits as u32).to_be_bytes()) } else { Address::from_v6(bits.to_be_bytes()) }
}

/// Ones in the last `width - len` bits.
fn host_mask(width: u8, len: u8) -> u128 {
    match width - len {
        128 => u128::MAX,
        free => (1 << free) - 1,
    }
}
