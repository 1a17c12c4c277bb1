//! Owns the frames of address resolution that we send: questions and answers, from the Ethernet header on.

use super::Request;
use crate::ethernet::{self, EtherType, HEADER_LEN, Mac};
use crate::ip::output::{self, HEADER_LEN_V6, HeaderSpec};
use laneway_wire::flow::Address;
use laneway_wire::{arp, icmpv6, ndp, protocol};

/// Room for any frame written here, bytes: a neighbour solicitation with one option.
pub const FRAME_LEN_MAX: usize = HEADER_LEN + HEADER_LEN_V6 + 32;

/// A frame that answers a neighbour's question. [`Answer::emit`] writes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    to: Mac,
    ours: Mac,
    body: Body,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Body {
    Arp(arp::Packet),
    Ndp { src: Address, dst: Address, message: ndp::Message },
}

impl Answer {
    pub(super) fn arp(asked: &arp::Packet, ours: Mac) -> Self {
        let reply = arp::Packet {
            operation: arp::Operation::Reply,
            sender_mac: ours,
            sender: asked.target,
            target_mac: asked.sender_mac,
            target: asked.sender,
        };
        Answer { to: asked.sender_mac, ours, body: Body::Arp(reply) }
    }

    pub(super) fn advert(target: Address, ours: Mac, dst: Address, to: Mac) -> Self {
        Answer { to, ours, body: Body::Ndp { src: target, dst, message: advert(target, ours, /* solicited= */ true) } }
    }

    pub(super) fn advert_to_all(target: Address, ours: Mac) -> Self {
        let to = ethernet::multicast_mac_v6(ALL_NODES.octets());
        let message = advert(target, ours, /* solicited= */ false);
        Answer { to, ours, body: Body::Ndp { src: target, dst: ALL_NODES, message } }
    }

    /// Bytes of the frame, at most [`FRAME_LEN_MAX`].
    pub fn len(&self) -> usize {
        self.body.len()
    }

    /// Never: a frame has bytes.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Writes the frame to the first [`Answer::len`] bytes of `buf`.
    ///
    /// # Panics
    /// If `buf` is shorter.
    pub fn emit(&self, buf: &mut [u8]) {
        self.body.emit(self.to, self.ours, buf);
    }
}

impl Request {
    /// Bytes of the frame, at most [`FRAME_LEN_MAX`].
    pub fn len(&self) -> usize {
        if self.target.is_v4() { HEADER_LEN + arp::LEN } else { FRAME_LEN_MAX }
    }

    /// Never: a frame has bytes.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Writes the frame to the first [`Request::len`] bytes of `buf`. `ours` and `source` are this interface's addresses;
    /// `source` is of the target's family.
    ///
    /// # Panics
    /// If `buf` is shorter.
    pub fn emit(&self, ours: Mac, source: Address, buf: &mut [u8]) {
        let (to, body) = if self.target.is_v4() {
            let request = arp::Packet {
                operation: arp::Operation::Request,
                sender_mac: ours,
                sender: source,
                target_mac: Mac([0; 6]),
                target: self.target,
            };
            (self.unicast.unwrap_or(Mac::BROADCAST), Body::Arp(request))
        } else {
            let group = solicited_node(self.target);
            let (to, dst) = match self.unicast {
                Some(mac) => (mac, self.target),
                None => (ethernet::multicast_mac_v6(group.octets()), group),
            };
            let message = ndp::Message::NeighbourSolicit { target: self.target, source_link: Some(ours) };
            (to, Body::Ndp { src: source, dst, message })
        };
        body.emit(to, ours, buf);
    }
}

impl Body {
    fn len(&self) -> usize {
        match self {
            Body::Arp(_) => HEADER_LEN + arp::LEN,
            Body::Ndp { message, .. } => HEADER_LEN + HEADER_LEN_V6 + message.len(),
        }
    }

    fn emit(&self, to: Mac, ours: Mac, buf: &mut [u8]) {
        let (header, rest) = buf[..self.len()].split_at_mut(HEADER_LEN);
        match *self {
            Body::Arp(packet) => {
                header.copy_from_slice(&ethernet::template(to, ours, EtherType::ARP));
                packet.emit(rest);
            }
            Body::Ndp { src, dst, message } => {
                header.copy_from_slice(&ethernet::template(to, ours, EtherType::IPV6));
                let spec = HeaderSpec { hop_limit: 255, ..HeaderSpec::new(src, dst, protocol::ICMPV6) };
                output::emit(&spec, rest, message.len());
                icmpv6::Message::Ndp(message).emit(&mut rest[HEADER_LEN_V6..], &src, &dst);
            }
        }
    }
}

/// `ff02::1`.
const ALL_NODES: Address = Address::from_v6([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);

/// The group in which the owner of `target` listens for questions about it (RFC 4291 section 2.7.1). A host is in one such group
/// for each of its addresses.
pub fn solicited_node(target: Address) -> Address {
    let o = target.octets();
    Address::from_v6([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, o[13], o[14], o[15]])
}

fn advert(target: Address, ours: Mac, solicited: bool) -> ndp::Message {
    let target_link = Some(ours);
    ndp::Message::NeighbourAdvert { target, router: false, solicited, override_entry: true, target_link }
}
