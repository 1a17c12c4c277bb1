//! Owns the question what holds already of what an interface shall have. Anybody may ask it.

use std::io;

use super::netlink::{Message, NLM_F_REQUEST, attribute};
use super::{IFA_ADDRESS, IFA_LOCAL, Prefix, RT_TABLE_MAIN, RTA_DST, RTA_OIF, RTM_GETADDR, RTM_GETROUTE, RTN_UNICAST};
use super::{family, octets};

/// `sizeof(struct ifaddrmsg)`.
const IFADDRMSG_LEN: usize = 8;
/// `sizeof(struct rtmsg)`.
const RTMSG_LEN: usize = 12;

/// Whether the interface has this address, with this network behind it.
pub(super) fn address(index: u32, prefix: &Prefix) -> io::Result<bool> {
    let mut message = Message::new(RTM_GETADDR, NLM_F_REQUEST);
    message.bytes(&[family(prefix.address), 0, 0, 0]);
    message.bytes(&index.to_ne_bytes());
    let ours = octets(prefix.address);
    // No network is asked for. There may be another end all the same.
    let is_alone = usize::from(prefix.len) == 8 * ours.len();
    message.any(|body| {
        let Some((head, attributes)) = body.split_at_checked(IFADDRMSG_LEN) else { return false };
        // `IFA_ADDRESS` is the other end's address where there is one. It says where the network is.
        let at = attribute(attributes, IFA_ADDRESS);
        let local = attribute(attributes, IFA_LOCAL).or(at);
        head[..2] == [family(prefix.address), prefix.len]
            && head[4..8] == index.to_ne_bytes()
            && local == Some(&ours)
            && (is_alone || at.is_some_and(|at| network(at, prefix.len) == network(&ours, prefix.len)))
    })
}

/// Whether the kernel finds this network directly behind the interface.
pub(super) fn route(index: u32, prefix: &Prefix) -> io::Result<bool> {
    let mut message = Message::new(RTM_GETROUTE, NLM_F_REQUEST);
    message.bytes(&[family(prefix.address), 0, 0, 0]);
    message.bytes(&[0; 8]);
    message.attribute(RTA_OIF, &index.to_ne_bytes());
    let ours = network(&octets(prefix.address), prefix.len);
    message.any(|body| {
        let Some((head, attributes)) = body.split_at_checked(RTMSG_LEN) else { return false };
        // A default route has no destination.
        let to = attribute(attributes, RTA_DST).map_or_else(|| vec![0; ours.len()], <[u8]>::to_vec);
        head[..2] == [family(prefix.address), prefix.len]
            && (head[4], head[7]) == (RT_TABLE_MAIN, RTN_UNICAST)
            && attribute(attributes, RTA_OIF) == Some(&index.to_ne_bytes())
            && to == ours
    })
}

/// An address without the bits that name the host.
fn network(octets: &[u8], len: u8) -> Vec<u8> {
    let of = |(i, byte): (usize, &u8)| {
        let kept = usize::from(len).saturating_sub(8 * i).min(8);
        byte & (0xff00 >> kept) as u8
    };
    octets.iter().enumerate().map(of).collect()
}
