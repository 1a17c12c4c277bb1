//! Owns who can be at the other end of a connection, or of a datagram.

use laneway_wire::flow::Address;

#[cfg(test)]
mod tests;

/// Whether another host can have this address. `is_taken`: it is one of ours, or a [`directed_broadcast`] of one of our networks.
//= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.1.3
//# A host MUST silently discard an incoming datagram containing an IP source address that is invalid by the rules of this section.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.2.3
//# A TCP implementation MUST reject as an error a local OPEN call for an invalid remote IP address (e.g., a broadcast or multicast address) (MUST-46).
//# An incoming SYN with an invalid source address MUST be ignored either by TCP or by the IP layer
#[inline(always)]
pub fn can_be_remote(address: &Address, is_taken: impl FnOnce(&Address) -> bool) -> bool {
    let is_one_host = if address.is_v4() {
        // Neither "this network" nor loopback, nor of class D or E (multicast, reserved, broadcast).
        matches!(address.octets_v4()[0], 1..=126 | 128..=223)
    } else {
        !(address.is_unspecified() || address.is_multicast() || address.is_loopback())
    };
    is_one_host && !is_taken(address)
}

/// The address that means every host of the network in which `address` is, of which `len` bits name it. Networks of two hosts
/// (RFC 3021) or one have none, and IPv6 has none. Since networks have no classes (RFC 4632), this and the limited broadcast are all forms that
/// there are.
//= https://www.rfc-editor.org/rfc/rfc1122#section-3.3.6
//# A host MUST recognize any of these forms in the destination address of an incoming datagram.
pub fn directed_broadcast(address: &Address, len: u8) -> Option<Address> {
    let hosts = u32::MAX.checked_shr(len.into()).unwrap_or(0);
    let means_all = address.is_v4() && len <= 30;
    means_all.then(|| Address::from_v4((u32::from_be_bytes(address.octets_v4()) | hosts).to_be_bytes()))
}
