//! Owns what an interface that exists already says of itself: the kernel's addresses on it, by netlink, from which ours
//! follow; its MTU stays what it is, and what it routes is the kernel's affair.

use super::Interface;
use crate::failure::Failure;
use laneway::on_lane::{Cidr, check_addresses, check_host_addresses, other_usable};
use laneway_stack::device::tun::{TunError, check_name};
use nix::net::if_::InterfaceFlags;
use std::net::IpAddr;

/// An address of the kernel's on an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// The kernel's end.
    pub host: Cidr,
    /// The other end, of a point-to-point address.
    pub peer: Option<IpAddr>,
}

/// The kernel's addresses on the interface of this name, without those of the link itself.
pub fn found(name: &str) -> Vec<Found> {
    // Without the list there is nothing to take over, and the command line has to say it.
    let Ok(all) = nix::ifaddrs::getifaddrs() else { return Vec::new() };
    let mut found = Vec::new();
    for interface in all.filter(|interface| interface.interface_name == name) {
        let (Some(address), Some(mask)) = (interface.address, interface.netmask) else { continue };
        let other = interface.destination;
        if let (Some(ip), Some(mask)) = (address.as_sockaddr_in(), mask.as_sockaddr_in()) {
            let host = Cidr { address: ip.ip().into(), prefix: mask.ip().to_bits().leading_ones() as u8 };
            let peer = other.and_then(|other| other.as_sockaddr_in().map(|ip| IpAddr::from(ip.ip())));
            found.push(Found { host, peer: peer.filter(|peer| *peer != host.address) });
        } else if let (Some(ip), Some(mask)) = (address.as_sockaddr_in6(), mask.as_sockaddr_in6())
            && !ip.ip().is_unicast_link_local()
        {
            let host = Cidr { address: ip.ip().into(), prefix: mask.ip().to_bits().leading_ones() as u8 };
            let peer = other.and_then(|other| other.as_sockaddr_in6().map(|ip| IpAddr::from(ip.ip())));
            found.push(Found { host, peer: peer.filter(|peer| *peer != host.address) });
        }
    }
    found
}

/// Ours, of an address of the kernel's: its other end, or the first usable address beside it.
fn ours(found: &Found) -> Option<Cidr> {
    match found.peer {
        Some(peer) => beside(&found.host, peer),
        None => other_usable(&found.host, &[found.host.address]),
    }
}

/// The other end, in the smallest network in which both are hosts. `ip address add A peer B` names none: each end is alone in its
/// own, and the stack would know no way to the kernel.
fn beside(host: &Cidr, peer: IpAddr) -> Option<Cidr> {
    let in_network = |prefix| {
        let (ours, theirs) = (Cidr { address: peer, prefix }, Cidr { address: host.address, prefix });
        (check_addresses(&[ours]).is_ok() && check_host_addresses(&[ours], &[theirs], &[]).is_ok()).then_some(ours)
    };
    (0..=host.prefix).rev().find_map(in_network)
}

/// Fills in the addresses that neither the command line nor the file has given. The answer is a sentence about it, if
/// something was filled in.
pub fn complete(interface: &mut Interface) -> Result<Option<String>, Failure> {
    let Some(tun) = interface.tun.clone() else {
        return Err(Failure::Misuse(
            "a stack needs an interface: give its name with --tun NAME, or as `tun` in the configuration's [interface]"
                .into(),
        ));
    };
    check_whole_name(&tun)?;
    if !interface.addr.is_empty() {
        return Ok(None);
    }
    check_kind(&tun)?;
    complete_from(interface, &tun, &found(&tun))
}

/// Whether an interface can have this name, and whoever asks the stack will know it: with `%d` the kernel would choose another.
pub fn check_whole_name(tun: &str) -> Result<(), Failure> {
    check_name(tun).map_err(|error| Failure::Misuse(error.to_string()))?;
    if tun.contains('%') {
        return Err(Failure::Misuse(format!(
            "'{tun}' leaves a part of the name to the kernel, and then nobody knows how the stack is called: write it in full, without '%'"
        )));
    }
    Ok(())
}

/// The addresses of an interface that is certainly no TUN interface say nothing of ours.
fn check_kind(tun: &str) -> Result<(), Failure> {
    let Ok(all) = nix::ifaddrs::getifaddrs() else { return Ok(()) };
    let foreign = InterfaceFlags::IFF_LOOPBACK | InterfaceFlags::IFF_BROADCAST;
    match all.filter(|interface| interface.interface_name == tun).any(|interface| interface.flags.intersects(foreign)) {
        true => Err(Failure::Misuse(TunError::Foreign(tun.to_owned()).to_string())),
        false => Ok(()),
    }
}

fn complete_from(interface: &mut Interface, tun: &str, found: &[Found]) -> Result<Option<String>, Failure> {
    for one in found {
        let Some(ours) = ours(one) else { continue };
        interface.addr.push(ours);
        if interface.host_addr.iter().all(|host| host.address != one.host.address) {
            interface.host_addr.push(one.host);
        }
    }
    if interface.addr.is_empty() {
        return Err(Failure::Misuse(format!(
            "a stack needs an address, and the interface {tun} has none to go by: give one with --addr ADDRESS/BITS, or as `addr` in the configuration's [interface]"
        )));
    }
    let list = |all: &[Cidr]| all.iter().map(Cidr::to_string).collect::<Vec<_>>().join(", ");
    Ok(Some(format!(
        "the interface {tun} has {}: so the stack's end is {}",
        list(&interface.host_addr),
        list(&interface.addr)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cidr(text: &str) -> Cidr {
        text.parse().expect("an address")
    }

    #[test]
    fn our_addresses_follow_from_the_kernels() {
        let mut interface = Interface::default();
        let found = [
            Found { host: cidr("10.9.0.1/24"), peer: None },
            Found { host: cidr("10.8.0.1/32"), peer: Some("10.8.0.2".parse().expect("an address")) },
            Found { host: cidr("10.7.0.3/32"), peer: Some("10.7.0.4".parse().expect("an address")) },
            Found { host: cidr("10.6.0.1/24"), peer: Some("10.6.0.9".parse().expect("an address")) },
            Found { host: cidr("fd08::1/128"), peer: Some("fd08::2".parse().expect("an address")) },
            Found { host: cidr("fd09::1/64"), peer: None },
        ];
        let said = complete_from(&mut interface, "lw0", &found).expect("addresses").expect("a sentence");
        // 10.7.0.3 is all hosts of the four addresses before 10.7.0.4.
        let ours = ["10.9.0.2/24", "10.8.0.2/30", "10.7.0.4/29", "10.6.0.9/24", "fd08::2/126", "fd09::2/64"];
        assert_eq!(interface.addr, ours.map(cidr));
        assert_eq!(interface.host_addr, found.map(|one| one.host));
        check_host_addresses(&interface.addr[1..2], &interface.host_addr[1..2], &[]).expect("it is beside the stack");
        assert!(said.contains("lw0 has 10.9.0.1/24"), "{said}");
    }

    #[test]
    fn an_interface_without_addresses_is_said() {
        let nothing = complete_from(&mut Interface::default(), "lw0", &[]).expect_err("nothing to go by");
        assert!(nothing.to_string().contains("--addr"), "{nothing}");
        let alone = Found { host: cidr("10.9.0.1/32"), peer: None };
        assert!(complete_from(&mut Interface::default(), "lw0", &[alone]).is_err());
    }
}
