//! Owns the answer to a thread that asks whether a datagram can go where it is to go, and from which address.
//!
//! The lane that sends it has no way to say so to the call that queued it. The routes of a stack whose sockets threads use are those
//! that it was started with, so threads look at a table of their own.

use crate::snapshot::Snapshot;
use laneway_wire::flow::Address;
use std::net::IpAddr;

/// Why a datagram cannot go there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unreachable {
    /// No route leads there, or no address of ours has its family.
    NoRoute,
    /// All hosts of a network, and the socket has not asked for that (`SO_BROADCAST`).
    Broadcast,
    /// A group.
    Multicast,
}

/// Where we send from to `to`: `bound`, or, if that is the unspecified address or one that means all hosts, what the route says. `to_all`: such
/// an address may be sent to; no route need lead there.
pub(super) fn source(world: &Snapshot, bound: IpAddr, to: IpAddr, to_all: bool) -> Result<IpAddr, Unreachable> {
    let (ours, to) = (Address::from(bound.to_canonical()), Address::from(to.to_canonical()));
    if to.is_multicast() {
        return Err(Unreachable::Multicast);
    }
    if world.addresses.means_all(&to) {
        if !to_all {
            return Err(Unreachable::Broadcast);
        }
    } else if !world.addresses.can_be_remote(&to) || world.routes.lookup(to).is_none() {
        return Err(Unreachable::NoRoute);
    }
    if !ours.is_unspecified() && !world.addresses.means_all(&ours) {
        return Ok(bound);
    }
    let source = world.source(&to).ok_or(Unreachable::NoRoute)?.to_ip();
    // A socket of both families names IPv4 addresses in the clothes of IPv6.
    Ok(match (bound, source) {
        (IpAddr::V6(_), IpAddr::V4(source)) => source.to_ipv6_mapped().into(),
        (_, source) => source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Network;

    #[test]
    fn who_can_be_reached_and_from_where() {
        use Unreachable::*;
        let addresses = ["10.0.0.2/24", "10.1.0.0/31", "fd00::2/64"].map(|cidr| cidr.parse().unwrap()).to_vec();
        let world = Network { addresses: addresses.clone(), gateways: Vec::new() }.snapshot().unwrap();
        let ask = |world: &Snapshot, bound: &str, to: &str| {
            let [bound, to] = [bound, to].map(|ip| ip.parse().unwrap());
            let to_all = |to_all| source(world, bound, to, to_all).map(|source| source.to_string());
            // Who may send to all is told the same of everybody else.
            assert!(to_all(true) == to_all(false) || to_all(false) == Err(Broadcast));
            to_all(false)
        };
        for (bound, to, answer) in [
            ("0.0.0.0", "10.0.0.1", Ok("10.0.0.2")),
            ("0.0.0.0", "10.1.0.1", Ok("10.1.0.0")),
            ("10.1.0.0", "10.0.0.1", Ok("10.1.0.0")),
            ("::", "10.0.0.1", Ok("::ffff:10.0.0.2")),
            ("::", "::ffff:10.0.0.1", Ok("::ffff:10.0.0.2")),
            ("::", "fd00::1", Ok("fd00::2")),
            ("0.0.0.0", "192.0.2.1", Err(NoRoute)),
            ("10.0.0.2", "192.0.2.1", Err(NoRoute)),
            ("::", "2001:db8::1", Err(NoRoute)),
            ("0.0.0.0", "10.0.0.255", Err(Broadcast)),
            ("0.0.0.0", "255.255.255.255", Err(Broadcast)),
            ("0.0.0.0", "224.0.0.251", Err(Multicast)),
            ("0.0.0.0", "10.0.0.2", Err(NoRoute)),
            ("0.0.0.0", "127.0.0.1", Err(NoRoute)),
            ("::", "ff02::fb", Err(Multicast)),
        ] {
            assert_eq!(ask(&world, bound, to), answer.map(str::to_owned), "from {bound} to {to}");
        }
        let to_all = |bound: &str, to: &str| {
            let source = source(&world, bound.parse().unwrap(), to.parse().unwrap(), /* to_all= */ true);
            source.map(|source| source.to_string())
        };
        for (bound, to, answer) in [
            ("0.0.0.0", "10.0.0.255", "10.0.0.2"),
            ("::", "10.0.0.255", "::ffff:10.0.0.2"),
            ("0.0.0.0", "255.255.255.255", "10.0.0.2"),
            ("10.1.0.0", "255.255.255.255", "10.1.0.0"),
            ("10.0.0.255", "255.255.255.255", "10.0.0.2"),
            ("10.0.0.255", "10.1.0.1", "10.1.0.0"),
        ] {
            assert_eq!(to_all(bound, to), Ok(answer.to_owned()), "from {bound} to {to}");
        }
        let world = Network { addresses, gateways: vec!["10.0.0.1".parse().unwrap()] }.snapshot().unwrap();
        assert_eq!(ask(&world, "0.0.0.0", "192.0.2.255"), Ok("10.0.0.2".to_owned()), "nobody here knows that network");

        // Beyond a gateway we are known by the address that is in its network, whichever was named first; and by none that ends at the link.
        let addresses = ["fe80::2/64", "10.0.0.2/24", "10.1.0.0/31", "2001:db8::2/64", "fd00::2/64"];
        for (gateways, to, by) in [
            (["10.1.0.1", "fe80::1"], "192.0.2.7", "10.1.0.0"),
            (["10.0.0.1", "fe80::1"], "192.0.2.7", "10.0.0.2"),
            (["10.0.0.1", "fe80::1"], "2001:db8:9::7", "2001:db8::2"),
            (["10.0.0.1", "fd00::1"], "2001:db8:9::7", "fd00::2"),
        ] {
            let network = Network {
                addresses: addresses.map(|cidr| cidr.parse().unwrap()).to_vec(),
                gateways: gateways.map(|gateway| gateway.parse().unwrap()).to_vec(),
            };
            let world = network.snapshot().unwrap();
            assert_eq!(ask(&world, "::", to).map(|source| source.replace("::ffff:", "")), Ok(by.to_owned()), "to {to}");
        }
    }
}
