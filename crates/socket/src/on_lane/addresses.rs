//! Owns which addresses a stack, its gateways and the kernel's end of its interface can have.

use super::{Cidr, StartError};
use laneway_stack::control::Network;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether a stack can have these addresses; the error is what [`Builder::start`](super::Builder::start) would say.
pub fn check_addresses(addresses: &[Cidr]) -> Result<(), StartError> {
    for (i, cidr) in addresses.iter().enumerate() {
        check_own(cidr)?;
        if addresses[..i].iter().any(|other| other.address == cidr.address) {
            return Err(StartError::Misuse(format!("the address {} is given twice: remove one", cidr.address)));
        }
    }
    Ok(())
}

/// Whether the kernel's end of a TUN interface can have the addresses `host`, beside a stack with these; without gateways
/// of its own the stack takes them for gateways. The error is what [`Builder::start`](super::Builder::start) would say.
pub fn check_host_addresses(addresses: &[Cidr], host: &[Cidr], gateways: &[IpAddr]) -> Result<(), StartError> {
    if let Some(both) = host.iter().find(|host| addresses.iter().any(|ours| ours.address == host.address)) {
        return Err(StartError::Misuse(format!(
            "{} is given to both ends of the interface: the stack and the kernel need different ones",
            both.address
        )));
    }
    if !gateways.is_empty() {
        return Ok(());
    }
    let gateways = host_gateways(host);
    if let Some(away) = gateways.iter().find(|ip| !is_beside(addresses, **ip)) {
        return Err(StartError::Misuse(format!(
            "{away} cannot be the kernel's end of the interface, because it is in no network of the stack's ({}): choose an address that is",
            networks(addresses)
        )));
    }
    check_gateways(addresses, &gateways)
}

/// Whether a stack with these addresses can have these gateways; without addresses it is not known which it reaches. The
/// error is what [`Builder::start`](super::Builder::start) would say.
pub fn check_gateways(addresses: &[Cidr], gateways: &[IpAddr]) -> Result<(), StartError> {
    for (i, gateway) in gateways.iter().enumerate() {
        if let Some(other) = gateways[..i].iter().find(|other| other.is_ipv4() == gateway.is_ipv4()) {
            return Err(StartError::Misuse(format!(
                "{other} and {gateway} cannot both be the gateway: a stack has one of each family, so leave one out"
            )));
        }
        if !is_beside(addresses, *gateway) {
            return Err(StartError::Misuse(format!(
                "{gateway} cannot be the gateway, because it is in no network of the stack's ({}): choose an address that is",
                networks(addresses)
            )));
        }
        let own = addresses.iter().any(|cidr| cidr.address == *gateway).then_some("it is the stack's own address");
        let network = addresses.iter().find(|cidr| contains(cidr, *gateway));
        let here = Cidr { address: *gateway, prefix: network.map_or(u8::MAX, |network| network.prefix) };
        if let Some(why) = own.or_else(|| no_host(&here)) {
            return Err(StartError::Misuse(format!(
                "{gateway} cannot be the gateway, because {why}: choose the address of a router beside the stack"
            )));
        }
    }
    if !addresses.is_empty() {
        Network { addresses: addresses.to_vec(), gateways: gateways.to_vec() }.snapshot()?;
    }
    Ok(())
}

/// Whether a stack with these addresses reaches this one on its link; without addresses it is not known.
fn is_beside(addresses: &[Cidr], ip: IpAddr) -> bool {
    // A router of IPv6 may be known by the address that it has on the link alone.
    let is_on_link = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    addresses.is_empty() || is_on_link || addresses.iter().any(|cidr| contains(cidr, ip))
}

/// These networks, for a sentence.
fn networks(addresses: &[Cidr]) -> String {
    addresses.iter().map(Cidr::to_string).collect::<Vec<_>>().join(", ")
}

/// The gateways of a stack that was given none: the kernel's end, one of each family.
pub(super) fn host_gateways(host: &[Cidr]) -> Vec<IpAddr> {
    let first = |v4: bool| host.iter().map(|host| host.address).find(|ip| ip.is_ipv4() == v4);
    first(true).into_iter().chain(first(false)).collect()
}

/// What cannot be an address of a host.
fn check_own(cidr: &Cidr) -> Result<(), StartError> {
    // A gateway may be known by it; and a kernel that forwards has it itself, so that nothing sent to it would come here.
    let anycast = is_routers(cidr).then_some("it is the anycast address of its network's routers");
    no_host(cidr).or(anycast).map_or(Ok(()), |why| {
        Err(StartError::Misuse(format!(
            "{cidr} cannot be the stack's address, because {why}: choose a host's address, for example 10.0.0.2/24 or fd00::2/64"
        )))
    })
}

/// Why an address of a network is none of a host's.
fn no_host(cidr: &Cidr) -> Option<&'static str> {
    Some(match cidr.address {
        ip if ip.is_unspecified() => "it means any address",
        ip if ip.is_loopback() => "it is the loopback address, which never leaves a host",
        ip if ip.is_multicast() => "it names a group",
        IpAddr::V4(Ipv4Addr::BROADCAST) => "it means every host",
        // What comes from there is taken for nobody's.
        IpAddr::V4(ip) if matches!(ip.octets()[0], 0 | 240..) => {
            "no host has an address of its range, which is reserved"
        }
        IpAddr::V4(ip) if cidr.prefix <= 30 && ip == first_v4(ip, cidr.prefix) => "it is the name of its network",
        IpAddr::V4(ip) if cidr.prefix <= 30 && ip == last_v4(ip, cidr.prefix) => {
            "it is the broadcast address of its network"
        }
        IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some() => "it is an IPv4 address in disguise: write it as IPv4",
        _ => return None,
    })
}

/// Whether it is the address that all routers of its network have (RFC 4291 section 2.6.1). Of two addresses both are hosts (RFC 6164).
fn is_routers(cidr: &Cidr) -> bool {
    matches!(cidr.address, IpAddr::V6(ip) if cidr.prefix < 127 && ip.to_bits() & !mask_v6(cidr.prefix) == 0)
}

fn mask_v4(prefix: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0)
}

fn first_v4(ip: Ipv4Addr, prefix: u8) -> Ipv4Addr {
    Ipv4Addr::from_bits(ip.to_bits() & mask_v4(prefix))
}

fn last_v4(ip: Ipv4Addr, prefix: u8) -> Ipv4Addr {
    Ipv4Addr::from_bits(ip.to_bits() | !mask_v4(prefix))
}

fn mask_v6(prefix: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(prefix.min(128))).unwrap_or(0)
}

/// Whether an address lies in the network of another.
pub fn contains(network: &Cidr, address: IpAddr) -> bool {
    match (network.address, address) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()) & mask_v4(network.prefix) == 0,
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()) & mask_v6(network.prefix) == 0,
        _ => false,
    }
}

pub(super) fn same_network(a: &Cidr, b: &Cidr) -> bool {
    a.prefix == b.prefix && contains(a, b.address)
}

/// The first address of a network that a host may have and that is not `taken`: what the kernel's end of a TUN interface
/// gets. `None` if there is none.
///
/// ```
/// use laneway::on_lane::{other_usable, Cidr};
/// let ours: Cidr = "10.0.0.1/30".parse().unwrap();
/// assert_eq!(other_usable(&ours, &[ours.address]).unwrap().to_string(), "10.0.0.2/30");
/// ```
pub fn other_usable(network: &Cidr, taken: &[IpAddr]) -> Option<Cidr> {
    let prefix = network.prefix;
    // More are never needed than are taken already, and one.
    let candidates: Vec<IpAddr> = match network.address {
        IpAddr::V4(ip) => {
            let (first, last) = (first_v4(ip, prefix).to_bits(), last_v4(ip, prefix).to_bits());
            // RFC 3021: of two addresses both are hosts.
            let (first, last) = if prefix >= 31 { (first, last) } else { (first + 1, last - 1) };
            (first..=last).take(taken.len() + 1).map(|bits| Ipv4Addr::from_bits(bits).into()).collect()
        }
        IpAddr::V6(ip) => {
            let (first, last) = (ip.to_bits() & mask_v6(prefix), ip.to_bits() | !mask_v6(prefix));
            let first = first + u128::from(is_routers(&Cidr { address: Ipv6Addr::from_bits(first).into(), prefix }));
            (first..=last).take(taken.len() + 1).map(|bits| Ipv6Addr::from_bits(bits).into()).collect()
        }
    };
    candidates.into_iter().find(|ip| !taken.contains(ip)).map(|address| Cidr { address, prefix })
}
