//! Owns whether a frame is for us, and the header that goes before each packet to one neighbour.
//!
//! path: `device::rx → ingress → [ethernet] → ip::input → demux → tcp::input → tcp::state → tcp::output → ip::output → egress → device::tx`

use crate::discard::Discard;
use laneway_wire::ethernet::Header;
pub use laneway_wire::ethernet::{EtherType, HEADER_LEN, Mac};

/// Takes the link header off `frame`: what it carries, the bytes after the header (padding included), and whether it was sent
/// to a group (multicast or broadcast) rather than to `ours`.
///
/// A type that nobody here speaks is the caller's to discard: it dispatches on the type anyway.
#[inline]
pub fn accept(frame: &[u8], ours: Mac) -> Result<(EtherType, &[u8], bool), Discard> {
    let Some((header, payload)) = frame.split_first_chunk::<HEADER_LEN>() else {
        return Err(Discard::EthernetMalformed);
    };
    let [d0, d1, d2, d3, d4, d5, s0, s1, _, _, _, _, t0, t1] = *header;
    let multicast = Mac([d0, d1, d2, d3, d4, d5]).is_multicast();
    // One word holds the destination, and is compared without the two bytes behind that.
    let for_us = u64::from_le_bytes([d0, d1, d2, d3, d4, d5, s0, s1]) << 16 == word(ours) << 16;
    if !for_us && !multicast {
        return Err(Discard::EthernetNotForUs);
    }
    Ok((EtherType(u16::from_be_bytes([t0, t1])), payload, multicast))
}

/// A link address of ours.
#[derive(Clone, Copy, Debug)]
pub struct Ours {
    /// As it is.
    pub mac: Mac,
    /// As [`plain_v4`] compares it: the upper six bytes of a word.
    upper: u64,
}

impl Ours {
    /// It is no group's; should it be set to one, nothing is plain, because what is compared ends in zeros, and `accept` sees to that.
    #[inline]
    pub fn new(mac: Mac) -> Self {
        Ours { mac, upper: if mac.is_multicast() { 1 } else { word(mac) << 16 } }
    }
}

/// What `frame` carries, if it is what nearly every frame is: sent to `ours` and nobody else, with a packet of IPv4. `None` says nothing bad: look
/// closely then, with [`accept`].
#[inline(always)]
pub fn plain_v4(frame: &[u8], ours: Ours) -> Option<&[u8]> {
    let (header, payload) = frame.split_first_chunk::<HEADER_LEN>()?;
    let [d0, d1, d2, d3, d4, d5, s0, s1, _, _, _, _, ethertype @ ..] = *header;
    let for_us = u64::from_le_bytes([d0, d1, d2, d3, d4, d5, s0, s1]) << 16 == ours.upper;
    (for_us && ethertype == EtherType::IPV4.0.to_be_bytes()).then_some(payload)
}

#[inline]
fn word(Mac([a, b, c, d, e, f]): Mac) -> u64 {
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

/// The header from `src` to `dst` as bytes, made once per neighbour and copied before each packet.
#[inline]
pub const fn template(dst: Mac, src: Mac, ethertype: EtherType) -> [u8; HEADER_LEN] {
    Header { dst, src, ethertype }.to_bytes()
}

/// The group address of an IPv6 multicast address (RFC 2464 section 7).
pub const fn multicast_mac_v6(octets: [u8; 16]) -> Mac {
    Mac([0x33, 0x33, octets[12], octets[13], octets[14], octets[15]])
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const PEER: Mac = Mac([2, 0, 0, 0, 0, 2]);

    fn frame(dst: Mac) -> Vec<u8> {
        [&template(dst, PEER, EtherType::IPV4)[..], b"data"].concat()
    }

    #[test]
    fn takes_what_is_for_us_or_for_all() {
        assert_eq!(accept(&frame(OURS), OURS), Ok((EtherType::IPV4, &b"data"[..], false)));
        assert_eq!(accept(&frame(Mac::BROADCAST), OURS), Ok((EtherType::IPV4, &b"data"[..], true)));
        let group = multicast_mac_v6([0xff; 16]);
        assert_eq!(accept(&frame(group), OURS), Ok((EtherType::IPV4, &b"data"[..], true)));
    }

    #[test]
    fn what_is_plain_is_what_a_close_look_finds() {
        let good = frame(OURS);
        assert_eq!(plain_v4(&good, Ours::new(OURS)), Some(&b"data"[..]));
        for (at, value) in (0..good.len()).flat_map(|at| (0..=255).map(move |value| (at, value))) {
            let mut other = good.clone();
            other[at] = value;
            for ours in [OURS, Mac::BROADCAST] {
                let close = accept(&other, ours).ok().filter(|found| (found.0, found.2) == (EtherType::IPV4, false));
                assert_eq!(plain_v4(&other, Ours::new(ours)), close.map(|found| found.1), "byte {at} is {value}");
            }
        }
        for len in 0..HEADER_LEN {
            assert_eq!(plain_v4(&good[..len], Ours::new(OURS)), None);
        }
    }

    #[test]
    fn refuses_the_rest() {
        assert_eq!(accept(&frame(PEER), OURS), Err(Discard::EthernetNotForUs));
        for len in 0..HEADER_LEN {
            assert_eq!(accept(&frame(OURS)[..len], OURS), Err(Discard::EthernetMalformed));
        }
    }
}
