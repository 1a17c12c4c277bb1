//! Owns the messages of neighbour discovery (RFC 4861), which travel in ICMPv6.
//!
//! The caller checks what these bytes cannot show: a hop limit of 255, the checksum, and the rules about the packet's
//! own addresses (sections 6.1 and 7.1).

use crate::error::{Layer, Malformed, Why};
use crate::ethernet::Mac;
use crate::flow::Address;

#[cfg(test)]
mod tests;

const ROUTER_SOLICIT: u8 = 133;
const ROUTER_ADVERT: u8 = 134;
const NEIGHBOUR_SOLICIT: u8 = 135;
const NEIGHBOUR_ADVERT: u8 = 136;

const SOURCE_LINK: u8 = 1;
const TARGET_LINK: u8 = 2;
const MTU: u8 = 5;

/// Bytes of a link-layer address or MTU option.
const OPTION_LEN: usize = 8;
/// Options that one message may have; a router that announces many prefixes has a dozen.
const OPTIONS_MAX: usize = 32;

/// Is an ICMPv6 message of type `kind` read here?
pub(crate) const fn is_ours(kind: u8) -> bool {
    matches!(kind, ROUTER_SOLICIT..=NEIGHBOUR_ADVERT)
}

/// The meaning of a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Message {
    /// Which routers are there?
    RouterSolicit {
        /// The sender's Ethernet address.
        source_link: Option<Mac>,
    },
    /// I am a router.
    RouterAdvert(RouterAdvert),
    /// Who has this address?
    NeighbourSolicit {
        /// The address; never multicast, mapped, unspecified or loopback.
        target: Address,
        /// The sender's Ethernet address.
        source_link: Option<Mac>,
    },
    /// I have this address.
    NeighbourAdvert {
        /// The address; never multicast, mapped, unspecified or loopback.
        target: Address,
        /// The sender is a router.
        router: bool,
        /// The sender was asked.
        solicited: bool,
        /// What was known before is out of date.
        override_entry: bool,
        /// The target's Ethernet address.
        target_link: Option<Mac>,
    },
}

/// What a router says of itself and of its link. The prefixes that it may announce are skipped: our addresses come
/// from configuration.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct RouterAdvert {
    /// The hop limit to use; 0: not said.
    pub hop_limit: u8,
    /// Addresses come by DHCPv6.
    pub managed: bool,
    /// Other configuration comes by DHCPv6.
    pub other: bool,
    /// How long it may be the default router, seconds; 0: not.
    pub lifetime_s: u16,
    /// How long a neighbour counts as reachable, milliseconds; 0: not said.
    pub reachable_ms: u32,
    /// The time between solicitations, milliseconds; 0: not said.
    pub retransmit_ms: u32,
    /// The router's Ethernet address.
    pub source_link: Option<Mac>,
    /// The link's MTU, bytes.
    pub mtu: Option<u32>,
}

const fn malformed(why: Why) -> Malformed {
    Malformed::new(Layer::Ndp, why)
}

impl Message {
    /// Checks and reads an ICMPv6 message, from its type on, whose checksum is right.
    pub fn parse(bytes: &[u8]) -> Result<Message, Malformed> {
        let Some((&[kind, code, _, _, a, b, c, d], body)) = bytes.split_first_chunk::<8>() else {
            return Err(malformed(Why::Truncated));
        };
        if code != 0 {
            return Err(malformed(Why::Field));
        }
        match kind {
            ROUTER_SOLICIT => {
                Ok(Message::RouterSolicit { source_link: Found::parse(body, &[SOURCE_LINK])?.source_link })
            }
            ROUTER_ADVERT => {
                let Some((&[r0, r1, r2, r3, t0, t1, t2, t3], options)) = body.split_first_chunk::<8>() else {
                    return Err(malformed(Why::Truncated));
                };
                let found = Found::parse(options, &[SOURCE_LINK, MTU])?;
                Ok(Message::RouterAdvert(RouterAdvert {
                    hop_limit: a,
                    managed: b & 0x80 != 0,
                    other: b & 0x40 != 0,
                    lifetime_s: u16::from_be_bytes([c, d]),
                    reachable_ms: u32::from_be_bytes([r0, r1, r2, r3]),
                    retransmit_ms: u32::from_be_bytes([t0, t1, t2, t3]),
                    source_link: found.source_link,
                    mtu: found.mtu,
                }))
            }
            NEIGHBOUR_SOLICIT | NEIGHBOUR_ADVERT => {
                let Some((target, options)) = body.split_first_chunk::<16>() else {
                    return Err(malformed(Why::Truncated));
                };
                let target = Address::from_v6(*target);
                // A mapped address would be taken for an IPv4 neighbour, of whom this protocol has nothing to say.
                if target.is_multicast() || target.is_v4() || target.is_unspecified() || target.is_loopback() {
                    return Err(malformed(Why::Field));
                }
                let used = if kind == NEIGHBOUR_SOLICIT { SOURCE_LINK } else { TARGET_LINK };
                let found = Found::parse(options, &[used])?;
                Ok(if kind == NEIGHBOUR_SOLICIT {
                    Message::NeighbourSolicit { target, source_link: found.source_link }
                } else {
                    Message::NeighbourAdvert {
                        target,
                        router: a & 0x80 != 0,
                        solicited: a & 0x40 != 0,
                        override_entry: a & 0x20 != 0,
                        target_link: found.target_link,
                    }
                })
            }
            _ => Err(malformed(Why::Operation)),
        }
    }

    /// Bytes of the message.
    #[allow(clippy::len_without_is_empty, reason = "a message is never empty")]
    pub fn len(&self) -> usize {
        let option = |present: bool| if present { OPTION_LEN } else { 0 };
        match self {
            Message::RouterSolicit { source_link } => 8 + option(source_link.is_some()),
            Message::RouterAdvert(advert) => 16 + option(advert.source_link.is_some()) + option(advert.mtu.is_some()),
            Message::NeighbourSolicit { source_link, .. } => 24 + option(source_link.is_some()),
            Message::NeighbourAdvert { target_link, .. } => 24 + option(target_link.is_some()),
        }
    }

    /// Writes [`Message::len`] bytes to the front of `buf`, the checksum field zero:
    /// [`icmpv6::Message::emit`](crate::icmpv6::Message::emit) fills it in.
    ///
    /// # Panics
    /// If `buf` is shorter.
    pub fn emit(&self, buf: &mut [u8]) {
        let kind = match *self {
            Message::RouterSolicit { source_link } => {
                buf[4..8].fill(0);
                put_link(&mut buf[8..], SOURCE_LINK, source_link);
                ROUTER_SOLICIT
            }
            Message::RouterAdvert(advert) => {
                buf[4] = advert.hop_limit;
                buf[5] = u8::from(advert.managed) << 7 | u8::from(advert.other) << 6;
                buf[6..8].copy_from_slice(&advert.lifetime_s.to_be_bytes());
                buf[8..12].copy_from_slice(&advert.reachable_ms.to_be_bytes());
                buf[12..16].copy_from_slice(&advert.retransmit_ms.to_be_bytes());
                let at = 16 + put_link(&mut buf[16..], SOURCE_LINK, advert.source_link);
                if let Some(mtu) = advert.mtu {
                    buf[at..at + 4].copy_from_slice(&[MTU, 1, 0, 0]);
                    buf[at + 4..at + 8].copy_from_slice(&mtu.to_be_bytes());
                }
                ROUTER_ADVERT
            }
            Message::NeighbourSolicit { target, source_link } => {
                buf[4..8].fill(0);
                buf[8..24].copy_from_slice(&target.octets());
                put_link(&mut buf[24..], SOURCE_LINK, source_link);
                NEIGHBOUR_SOLICIT
            }
            Message::NeighbourAdvert { target, router, solicited, override_entry, target_link } => {
                let flags = u8::from(router) << 7 | u8::from(solicited) << 6 | u8::from(override_entry) << 5;
                buf[4..8].copy_from_slice(&[flags, 0, 0, 0]);
                buf[8..24].copy_from_slice(&target.octets());
                put_link(&mut buf[24..], TARGET_LINK, target_link);
                NEIGHBOUR_ADVERT
            }
        };
        buf[..4].copy_from_slice(&[kind, 0, 0, 0]);
    }
}

/// Writes a link-layer address option, if there is an address, and says how many bytes that took.
fn put_link(buf: &mut [u8], kind: u8, link: Option<Mac>) -> usize {
    let Some(Mac(mac)) = link else { return 0 };
    buf[..2].copy_from_slice(&[kind, 1]);
    buf[2..8].copy_from_slice(&mac);
    OPTION_LEN
}

/// The options that we know.
#[derive(Default)]
struct Found {
    source_link: Option<Mac>,
    target_link: Option<Mac>,
    mtu: Option<u32>,
}

impl Found {
    /// `used`: the kinds that are specified for the message, of which each must be as it should.
    //= https://www.rfc-editor.org/rfc/rfc4861#section-4.6
    //# Nodes MUST silently discard an ND packet that contains an option with length zero.
    fn parse(mut bytes: &[u8], used: &[u8]) -> Result<Found, Malformed> {
        let mut found = Found::default();
        for _ in 0..OPTIONS_MAX {
            let (kind, len) = match *bytes {
                [] => return Ok(found),
                [_] | [_, 0, ..] => return Err(malformed(Why::OptionLength)),
                [kind, len, ..] => (kind, usize::from(len) * 8),
            };
            let Some((option, rest)) = bytes.split_at_checked(len) else {
                return Err(malformed(Why::OptionLength));
            };
            bytes = rest;
            match (kind, option) {
                (SOURCE_LINK, &[_, _, a, b, c, d, e, f]) => found.source_link = Some(Mac([a, b, c, d, e, f])),
                (TARGET_LINK, &[_, _, a, b, c, d, e, f]) => found.target_link = Some(Mac([a, b, c, d, e, f])),
                (MTU, &[_, _, _, _, a, b, c, d]) => found.mtu = Some(u32::from_be_bytes([a, b, c, d])),
                (kind, _) if used.contains(&kind) => return Err(malformed(Why::OptionLength)),
                //= https://www.rfc-editor.org/rfc/rfc4861#section-7.1.1
                //# The contents of any defined options that are not specified to be used with Neighbor Solicitation messages
                //# MUST be ignored and the packet processed as normal.
                _ => {}
            }
        }
        if bytes.is_empty() { Ok(found) } else { Err(malformed(Why::TooManyOptions)) }
    }
}
