//! Owns the identifications of IPv4 datagrams that may be cut on their way: which fragments belong together.
//!
//! A number that comes again while fragments of the first datagram are still waited for joins what does not belong together, or has both
//! refused (RFC 4963). Numbers drawn at random do so long before all are used: of 300, mostly two are the same. So they are counted, and what is
//! counted is permuted, for each pair of hosts in another way: nobody learns from the numbers that he is sent how many others were, or guesses the next.

#[cfg(test)]
mod tests;

/// Pairs of hosts with the same remainder share a count.
const PLACES: usize = 1_024;
/// There are so many numbers.
const NUMBERS: u32 = 1 << 16;

/// Those that one lane gives. No two lanes give the same ones between the same hosts.
#[derive(Debug)]
pub struct Identifications {
    given: Box<[u16]>,
    lane: u32,
    lanes: u32,
}

impl Identifications {
    /// For lane number `lane` of `lanes`.
    pub fn new(lane: usize, lanes: usize) -> Self {
        let lanes = (lanes as u32).clamp(1, NUMBERS);
        Identifications { given: vec![0; PLACES].into(), lane: lane as u32 % lanes, lanes }
    }

    /// The next one. `hash` is of both addresses and the protocol, the same on all lanes, and no stranger's to know.
    //= https://www.rfc-editor.org/rfc/rfc6864#section-4.2
    //# Sources emitting non-atomic datagrams MUST NOT repeat IPv4 ID values within one MDL for a given source address/destination
    //# address/protocol tuple.
    pub fn next(&mut self, hash: u64) -> u16 {
        let given = &mut self.given[hash as usize % PLACES];
        let number = u32::from(*given) * self.lanes + self.lane;
        *given = if number + self.lanes < NUMBERS { *given + 1 } else { 0 };
        permuted(number as u16, hash)
    }
}

/// Another number for each, by a way that only `key` tells: a Feistel network of two bytes (Luby and Rackoff, 1988).
fn permuted(number: u16, key: u64) -> u16 {
    let [mut left, mut right] = number.to_be_bytes();
    for round in 0..4 {
        let mut mixed = key.rotate_left(16 * round) ^ u64::from(right);
        mixed = (mixed ^ mixed >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (left, right) = (right, left ^ (mixed >> 56) as u8);
    }
    u16::from_be_bytes([left, right])
}
