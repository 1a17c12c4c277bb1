//! Owns the identity of a flow: `Address`, `FlowKey`, and the Toeplitz hash by which flows are steered.
//!
//! path: `device::rx → ingress → ethernet → ip::input → [demux] → tcp::input → tcp::state → tcp::output → ip::output → egress → device::tx`

use crate::keyed_hash::HashKey;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

#[cfg(test)]
mod tests;

/// An IP address of either family in 16 bytes; IPv4 is held v4-mapped (`::ffff:a.b.c.d`, RFC 4291 section 2.5.5.2).
///
/// The words hold the bytes of the wire in their order (`u32::from_ne_bytes`), so that reading, comparing and summing
/// an address never swaps bytes. A v4-mapped address that arrives *inside* an IPv6 packet would be mistaken for
/// IPv4; the protocol core refuses such packets (RFC 4942 section 2.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Address([u32; 4]);

/// The third word of every v4-mapped address: bytes `00 00 ff ff`.
const MAPPED: u32 = u32::from_ne_bytes([0, 0, 0xff, 0xff]);

impl Address {
    /// `::`, the IPv6 "no address".
    pub const UNSPECIFIED_V6: Address = Address([0; 4]);
    /// `0.0.0.0`, the IPv4 "no address".
    pub const UNSPECIFIED_V4: Address = Address::from_v4([0; 4]);

    /// From the four bytes of an IPv4 address.
    #[inline]
    pub const fn from_v4(octets: [u8; 4]) -> Self {
        Address([0, 0, MAPPED, u32::from_ne_bytes(octets)])
    }

    /// From the sixteen bytes of an IPv6 address.
    #[inline]
    pub const fn from_v6(o: [u8; 16]) -> Self {
        Address([
            u32::from_ne_bytes([o[0], o[1], o[2], o[3]]),
            u32::from_ne_bytes([o[4], o[5], o[6], o[7]]),
            u32::from_ne_bytes([o[8], o[9], o[10], o[11]]),
            u32::from_ne_bytes([o[12], o[13], o[14], o[15]]),
        ])
    }

    /// Is this an IPv4 address?
    #[inline]
    pub const fn is_v4(&self) -> bool {
        // One word of 64 bits: to compare each half is two branches more wherever this is asked.
        pair(self.0[0], self.0[1]) == 0 && self.0[2] == MAPPED
    }

    /// The last four bytes: the address, if it is an IPv4 address.
    #[inline]
    pub const fn octets_v4(&self) -> [u8; 4] {
        self.0[3].to_ne_bytes()
    }

    /// All sixteen bytes (IPv4: v4-mapped), in the order of the wire.
    #[inline]
    pub const fn octets(&self) -> [u8; 16] {
        let [a, b, c, d] =
            [self.0[0].to_ne_bytes(), self.0[1].to_ne_bytes(), self.0[2].to_ne_bytes(), self.0[3].to_ne_bytes()];
        [a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3], c[0], c[1], c[2], c[3], d[0], d[1], d[2], d[3]]
    }

    /// The bytes of the wire as four words in native order.
    #[inline]
    pub const fn words(&self) -> [u32; 4] {
        self.0
    }

    /// All of it in one word, for hashes that need not be secret. An IPv4 address is that word.
    #[inline(always)]
    pub const fn folded(&self) -> u32 {
        let [a, b, c, d] = self.0;
        a ^ b.rotate_left(9) ^ (c ^ MAPPED).rotate_left(18) ^ d
    }

    /// The same in two words.
    #[inline(always)]
    pub const fn folded_wide(&self) -> u64 {
        let [low, high] = self.pairs();
        low ^ high
    }

    #[inline(always)]
    const fn pairs(&self) -> [u64; 2] {
        let [a, b, c, d] = self.0;
        [pair(a, b), pair(c, d)]
    }

    /// `0.0.0.0` or `::`.
    #[inline]
    pub const fn is_unspecified(&self) -> bool {
        self.0[0] == 0 && self.0[1] == 0 && self.0[3] == 0 && (self.0[2] == 0 || self.0[2] == MAPPED)
    }

    /// `224.0.0.0/4` or `ff00::/8`.
    #[inline]
    pub const fn is_multicast(&self) -> bool {
        if self.is_v4() { self.octets_v4()[0] & 0xf0 == 0xe0 } else { self.0[0].to_ne_bytes()[0] == 0xff }
    }

    /// `127.0.0.0/8` or `::1`.
    #[inline]
    pub const fn is_loopback(&self) -> bool {
        if self.is_v4() {
            self.octets_v4()[0] == 127
        } else {
            self.0[0] == 0 && self.0[1] == 0 && self.0[2] == 0 && self.0[3] == u32::from_ne_bytes([0, 0, 0, 1])
        }
    }

    /// `255.255.255.255`, the limited broadcast. A network's own broadcast is not seen from the address alone.
    #[inline]
    pub const fn is_broadcast(&self) -> bool {
        self.is_v4() && self.0[3] == u32::MAX
    }

    /// `169.254.0.0/16` or `fe80::/10`.
    #[inline]
    pub const fn is_link_local(&self) -> bool {
        if self.is_v4() {
            let [a, b, ..] = self.octets_v4();
            a == 169 && b == 254
        } else {
            let [a, b, ..] = self.0[0].to_ne_bytes();
            a == 0xfe && b & 0xc0 == 0x80
        }
    }

    /// As the standard library's type; a v4-mapped address comes out as IPv4.
    #[inline]
    pub const fn to_ip(&self) -> IpAddr {
        if self.is_v4() {
            let [a, b, c, d] = self.octets_v4();
            IpAddr::V4(Ipv4Addr::new(a, b, c, d))
        } else {
            IpAddr::V6(Ipv6Addr::from_octets(self.octets()))
        }
    }
}

impl From<Ipv4Addr> for Address {
    #[inline]
    fn from(ip: Ipv4Addr) -> Self {
        Address::from_v4(ip.octets())
    }
}

impl From<Ipv6Addr> for Address {
    #[inline]
    fn from(ip: Ipv6Addr) -> Self {
        Address::from_v6(ip.octets())
    }
}

impl From<IpAddr> for Address {
    #[inline]
    fn from(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(ip) => ip.into(),
            IpAddr::V6(ip) => ip.into(),
        }
    }
}

impl From<Address> for IpAddr {
    #[inline]
    fn from(address: Address) -> Self {
        address.to_ip()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.to_ip(), f)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.to_ip(), f)
    }
}

/// The four-tuple of a flow, seen from this host: `local` is ours, `remote` is the peer's.
#[derive(Clone, Copy, Eq)]
pub struct FlowKey {
    /// Our address.
    pub local: Address,
    /// The peer's address.
    pub remote: Address,
    /// Our port.
    pub local_port: u16,
    /// The peer's port.
    pub remote_port: u16,
}

const _: () = assert!(size_of::<FlowKey>() == 36, "a flow key is two addresses and two ports, no padding");

impl PartialEq for FlowKey {
    /// In few words, the ports as one: who asks has looked where the flow should be, and nearly always it is there.
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        let differs = |a: &Address, b: &Address| {
            let (a, b) = (a.pairs(), b.pairs());
            (a[0] ^ b[0]) | (a[1] ^ b[1])
        };
        // Both ports as they lie in memory: one word.
        let ports = |key: &FlowKey| u32::from(key.local_port) | u32::from(key.remote_port) << 16;
        ports(self) == ports(other) && differs(&self.local, &other.local) | differs(&self.remote, &other.remote) == 0
    }
}

impl core::hash::Hash for FlowKey {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        (self.local, self.remote, self.ports()).hash(state);
    }
}

impl FlowKey {
    /// Is this a flow over IPv4? (Both ends have one family, so one of them answers for both.)
    #[inline]
    pub const fn is_v4(&self) -> bool {
        self.local.is_v4()
    }

    /// The same flow as its other end sees it.
    #[inline]
    pub const fn reversed(&self) -> FlowKey {
        FlowKey { local: self.remote, remote: self.local, local_port: self.remote_port, remote_port: self.local_port }
    }

    /// Both ports. The second comes first: as they lie in memory they would be read as one word, and whoever has just put a key together
    /// has written two, which a processor must finish before it can read them so.
    #[inline(always)]
    const fn ports(&self) -> u64 {
        self.remote_port as u64 | (self.local_port as u64) << 16
    }

    /// The key as whole words for a keyed hash, and how many of them are used: 2 for IPv4, 5 for IPv6.
    ///
    /// The two families cannot collide, since a hash over words takes in how many there are.
    #[inline]
    pub const fn hash_words(&self) -> ([u64; 5], usize) {
        let (l, r) = (self.local.0, self.remote.0);
        let ports = self.ports();
        if self.is_v4() {
            ([pair(l[3], r[3]), ports, 0, 0, 0], 2)
        } else {
            ([pair(l[0], l[1]), pair(l[2], l[3]), pair(r[0], r[1]), pair(r[2], r[3]), ports], 5)
        }
    }

    /// The keyed hash under which the flow is found.
    #[inline(always)]
    pub fn hash(&self, key: &HashKey) -> u64 {
        match self.hash_words_v4() {
            Some((ends, ports)) => key.sip13_tail(&[ends], ports, 4),
            None => self.hash_v6(key),
        }
    }

    /// The words of an IPv4 flow, of which the second has four bytes.
    #[inline(always)]
    pub const fn hash_words_v4(&self) -> Option<(u64, u64)> {
        if !self.is_v4() {
            return None;
        }
        Some((pair(self.local.0[3], self.remote.0[3]), self.ports()))
    }

    /// A number that hardly two flows share, quick and no secret: for places where whatever is found is compared with the flow,
    /// because anyone can make flows that do.
    #[inline(always)]
    pub const fn mix(&self) -> u64 {
        // Both in the order in which they come in the header of what arrives: there each is one word.
        let ports = self.local_port as u64 | (self.remote_port as u64) << 16;
        let ends = pair(self.remote.folded(), self.local.folded());
        // Both halves of the product: its lower bits know nothing of the upper bits of what was multiplied, where the last
        // number of an IPv4 address is.
        let product = (ends ^ ports.wrapping_mul(0xd6e8_feb8_6659_fd93)) as u128 * 0x9e37_79b9_7f4a_7c15;
        product as u64 ^ (product >> 64) as u64
    }

    #[inline(never)]
    fn hash_v6(&self, key: &HashKey) -> u64 {
        key.sip13_words(&self.hash_words().0)
    }
}

#[inline]
const fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

impl fmt::Debug for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = |address: Address, port| core::net::SocketAddr::new(address.to_ip(), port);
        write!(f, "{} ↔ {}", end(self.local, self.local_port), end(self.remote, self.remote_port))
    }
}

/// The Toeplitz hash of a received packet of `flow`, as receive-side scaling computes it.
///
/// The input is in the *received packet's* order: source (remote) address, destination (local) address, source port,
/// destination port; 12 bytes for IPv4, 36 for IPv6. This one needs no table and is slow; see [`ToeplitzTable`].
pub fn toeplitz(key: &[u8; 40], flow: &FlowKey) -> u32 {
    let (input, len) = toeplitz_input(flow);
    toeplitz_bytes(key, &input[..len])
}

/// The Toeplitz hash of up to 36 bytes of input, bit by bit. Bytes past the 36th are not looked at.
pub const fn toeplitz_bytes(key: &[u8; 40], input: &[u8]) -> u32 {
    // The 32 key bits that begin at the input bit at hand; each step shifts in the next key bit.
    let mut window = u32::from_be_bytes([key[0], key[1], key[2], key[3]]);
    let mut hash = 0;
    let mut i = 0;
    while i < input.len() && i < 36 {
        let mut bit = 0;
        while bit < 8 {
            if input[i] & (0x80 >> bit) != 0 {
                hash ^= window;
            }
            window = window << 1 | (key[i + 4] >> (7 - bit)) as u32 & 1;
            bit += 1;
        }
        i += 1;
    }
    hash
}

/// The bytes that the Toeplitz hash runs over, and how many of them there are (12 or 36).
#[inline]
fn toeplitz_input(flow: &FlowKey) -> ([u8; 36], usize) {
    let mut input = [0; 36];
    let len = if flow.is_v4() {
        input[0..4].copy_from_slice(&flow.remote.octets_v4());
        input[4..8].copy_from_slice(&flow.local.octets_v4());
        8
    } else {
        input[0..16].copy_from_slice(&flow.remote.octets());
        input[16..32].copy_from_slice(&flow.local.octets());
        32
    };
    input[len..len + 2].copy_from_slice(&flow.remote_port.to_be_bytes());
    input[len + 2..len + 4].copy_from_slice(&flow.local_port.to_be_bytes());
    (input, len + 4)
}

/// A Toeplitz key unrolled to one table per input byte: a hash is then 12 (IPv4) or 36 (IPv6) loads. Only the lowest byte of the hash is
/// there, which is all that an indirection table of up to 256 buckets goes by.
///
/// 9 KiB; box it or build it in a `static`. IPv4 touches the first 3 KiB only.
#[derive(Clone)]
pub struct ToeplitzTable {
    of_byte: [[u8; 256]; 36],
}

impl ToeplitzTable {
    /// Unrolls `key`. The hash is linear over XOR, so each entry is one bit's entry and an earlier entry.
    pub const fn new(key: &[u8; 40]) -> Self {
        let mut of_byte = [[0; 256]; 36];
        let mut i = 0;
        while i < 36 {
            let mut value = 1usize;
            while value < 256 {
                let lowest = value & value.wrapping_neg();
                of_byte[i][value] = if value == lowest {
                    window_at(key, i * 8 + 7 - lowest.trailing_zeros() as usize) as u8
                } else {
                    of_byte[i][lowest] ^ of_byte[i][value ^ lowest]
                };
                value += 1;
            }
            i += 1;
        }
        ToeplitzTable { of_byte }
    }

    /// The lowest byte of the hash of a received packet of `flow`, as [`toeplitz`] has it with this table's key.
    #[inline]
    pub fn low_byte(&self, flow: &FlowKey) -> u8 {
        let ([a, b], [c, d]) = (flow.remote_port.to_be_bytes(), flow.local_port.to_be_bytes());
        let ports = [a, b, c, d];
        if flow.is_v4() {
            self.over(0, flow.remote.octets_v4()) ^ self.over(4, flow.local.octets_v4()) ^ self.over(8, ports)
        } else {
            self.over(0, flow.remote.octets()) ^ self.over(16, flow.local.octets()) ^ self.over(32, ports)
        }
    }

    /// What these bytes add, standing at `from` in the input.
    #[inline(always)]
    fn over<const N: usize>(&self, from: usize, bytes: [u8; N]) -> u8 {
        let tables = &self.of_byte[from..from + N];
        tables.iter().zip(bytes).fold(0, |hash, (table, byte)| hash ^ table[usize::from(byte)])
    }
}

impl fmt::Debug for ToeplitzTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The key can be read off the table, and it may be secret.
        f.write_str("ToeplitzTable(..)")
    }
}

/// The 32 bits of `key` that begin at its bit `bit` (0 to 287).
const fn window_at(key: &[u8; 40], bit: usize) -> u32 {
    let byte = bit / 8;
    let five = (key[byte] as u64) << 32
        | (key[byte + 1] as u64) << 24
        | (key[byte + 2] as u64) << 16
        | (key[byte + 3] as u64) << 8
        | key[byte + 4] as u64;
    (five >> (8 - bit % 8)) as u32
}
