//! Owns what the control thread publishes and lanes read: addresses, routes, neighbours. Immutable; replaced whole.

use hashbrown::HashMap;
use laneway_proto::ip::route::RouteTable;
use laneway_wire::ethernet::Mac;
use laneway_wire::flow::Address;
use std::sync::Arc;

/// One state of the world, as a lane sees it for a poll. A lane takes a newer one only between its rx batch and the
/// first look at a frame, so a frame never meets an older world than the one it was sent into.
#[derive(Clone, Default)]
pub struct Snapshot {
    /// Grows with every publication.
    pub generation: u32,
    /// Our addresses.
    pub addresses: Arc<AddressSet>,
    /// Where to send.
    pub routes: Arc<RouteTable>,
    /// Link addresses of next hops; `None` for one that did not answer.
    pub neighbours: Arc<HashMap<Address, Option<Mac>>>,
}

const DIRECT: usize = 256;

/// A set of addresses that is asked for each packet: one compare when the address is in its direct place.
pub struct AddressSet {
    direct: Box<[Address; DIRECT]>,
    all: Vec<Address>,
}

impl Default for AddressSet {
    fn default() -> Self {
        AddressSet::new(&[])
    }
}

#[inline]
pub(crate) fn mix(address: &Address) -> usize {
    let [a, b, c, d] = address.words();
    let x = (a ^ b.rotate_left(9) ^ c.rotate_left(18) ^ d).wrapping_mul(0x9e37_79b1);
    (x >> 16) as usize
}

impl AddressSet {
    /// A set of these addresses.
    pub fn new(addresses: &[Address]) -> Self {
        let mut direct = Box::new([Address::UNSPECIFIED_V6; DIRECT]);
        for address in addresses {
            direct[mix(address) % DIRECT] = *address;
        }
        let mut all = addresses.to_vec();
        all.sort_by_key(|a| a.octets());
        all.dedup();
        AddressSet { direct, all }
    }

    /// Whether this is one of ours. The unspecified address never is.
    #[inline]
    pub fn contains(&self, address: &Address) -> bool {
        (self.direct[mix(address) % DIRECT] == *address && !address.is_unspecified())
            || (self.all.len() > 1 && self.all.binary_search_by_key(&address.octets(), |a| a.octets()).is_ok())
    }

    /// Every address, sorted.
    pub fn iter(&self) -> impl Iterator<Item = &Address> {
        self.all.iter()
    }

    /// Whether an IPv6 solicited-node or all-nodes group, or an IPv4 broadcast, is one that we listen to.
    pub fn joins(&self, group: &Address) -> bool {
        if group.is_v4() {
            return group.is_broadcast();
        }
        let octets = group.octets();
        let all_nodes = octets[..2] == [0xff, 0x02] && octets[2..15].iter().all(|&b| b == 0) && octets[15] == 1;
        let solicited = octets[..13] == [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff];
        all_nodes || (solicited && self.all.iter().any(|a| !a.is_v4() && a.octets()[13..] == octets[13..]))
    }
}
