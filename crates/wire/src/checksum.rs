//! Owns the Internet checksum: the ones'-complement sum, and who has verified it.
//!
//! The sum is the same in either byte order but for a final swap (RFC 1071 section 2 (B)), so it is kept in native
//! order from the load to the store and no byte is ever swapped. It is associative (2 (A)), and 2^16 is congruent to
//! 1, so words of 32 bits may be summed in 64-bit lanes and folded once at the end (2 (C)).

use crate::flow::Address;
use core::ops::Add;

#[cfg(test)]
mod tests;

/// What is known about the transport checksum of a received packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum RxChecksum {
    /// Nothing: verify it.
    #[default]
    Unknown,
    /// The device has verified it.
    Verified,
    /// The sender left it for an offload device to complete, so the field holds a pseudo-header sum only. Nobody
    /// has verified anything: never trust it.
    Partial,
}

/// An unfolded ones'-complement sum of native-order 16-bit words; the order of additions does not matter.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum(u64);

/// Bytes copied before they are summed, so that the sum reads them from the first-level cache.
const PIECE: usize = 4096;
/// From so many bytes on vectors are worth their beginning and end.
const LONG: usize = 512;

impl Sum {
    /// The sum of nothing.
    pub const ZERO: Sum = Sum(0);

    /// The sum of `bytes`, which begin at an even offset of the whole (else see [`Sum::swapped`]). An odd last byte
    /// is padded with a zero, as RFC 1071 says.
    #[inline]
    pub fn of(bytes: &[u8]) -> Sum {
        if bytes.len() >= LONG { Sum::of_many(bytes) } else { Sum::of_few(bytes) }
    }

    /// Few bytes: one addition with carry for each eight of them, which no vector beats before it has got going.
    #[inline(always)]
    fn of_few(bytes: &[u8]) -> Sum {
        let (blocks, mut rest) = bytes.as_chunks::<64>();
        let mut sum = Sum::ZERO;
        for block in blocks {
            sum = sum.and_words(block);
        }
        if let Some((words, after)) = rest.split_first_chunk::<32>() {
            sum = sum.and_words(words);
            rest = after;
        }
        if let Some((words, after)) = rest.split_first_chunk::<16>() {
            sum = sum.and_words(words);
            rest = after;
        }
        if let Some((word, after)) = rest.split_first_chunk::<8>() {
            sum = sum.and_words(word);
            rest = after;
        }
        sum + Sum(match bytes.last_chunk::<8>() {
            Some(last) => sum_end(last, rest.len()),
            None => sum_tail(rest),
        })
    }

    /// Adds the whole 64-bit words with which `bytes` end in one chain of carries.
    #[inline(always)]
    fn and_words<const N: usize>(self, bytes: &[u8; N]) -> Sum {
        let (mut sum, mut carry) = (self.0, false);
        for word in bytes.as_rchunks::<8>().1 {
            (sum, carry) = sum.carrying_add(u64::from_ne_bytes(*word), carry);
        }
        // A sum that has just overflowed is not all ones: the last carry finds room.
        Sum(sum + u64::from(carry))
    }

    #[inline(never)]
    fn of_many(bytes: &[u8]) -> Sum {
        // The sum of whole 64-bit words modulo 2^64 beside the exact sum of their upper halves: the difference is the
        // exact sum of the lower halves. As vectors, that is a shift and two additions, where widening each half would
        // cost two shuffles and two additions.
        let (words, tail) = bytes.as_chunks::<8>();
        let (mut whole, mut upper) = (0u64, 0u64);
        for word in words {
            let word = u64::from_ne_bytes(*word);
            whole = whole.wrapping_add(word);
            upper += word >> 32;
        }
        Sum(sum_tail(tail) + whole.wrapping_sub(upper << 32) + upper)
    }

    /// The sum of a header whose length the compiler knows; no loop remains.
    #[inline(always)]
    pub fn of_array<const N: usize>(bytes: &[u8; N]) -> Sum {
        Sum::ZERO.and_array(bytes)
    }

    /// This sum and [that of such a header](Self::of_array), in one chain of carries. What is less than a word comes first, so that the words are
    /// those that end with the header: in IPv4 the last is both addresses.
    #[inline(always)]
    pub fn and_array<const N: usize>(self, bytes: &[u8; N]) -> Sum {
        const { assert!(N.is_multiple_of(2), "what comes after the first bytes would be summed swapped") };
        (self + Sum(sum_tail(bytes.as_rchunks::<8>().0))).and_words(bytes)
    }

    /// The sum of one 16-bit field, given as it is on the wire.
    #[inline]
    pub const fn of_u16(field: [u8; 2]) -> Sum {
        Sum(u16::from_ne_bytes(field) as u64)
    }

    /// The sum of an address of either family: the `ffff` in a v4-mapped one is a zero in ones' complement.
    #[inline(always)]
    pub const fn of_address(address: &Address) -> Sum {
        let [a, b, c, d] = address.words();
        Sum(a as u64 + b as u64 + c as u64 + d as u64)
    }

    /// The sum of the same bytes, had they begun at an odd offset of the whole.
    ///
    /// A swap of the bytes of each word is a multiplication by 256, and modulo 2^64 - 1 (of which 2^16 - 1 is a
    /// factor) that is a rotation.
    #[inline]
    pub const fn swapped(self) -> Sum {
        Sum(self.0.rotate_left(8))
    }

    /// The 16-bit sum in native order: 0xffff for a packet whose checksum is right. To write it uncomplemented (a
    /// partial checksum), use `to_ne_bytes`.
    #[inline]
    pub const fn fold(self) -> u16 {
        // Adding the value rotated by half puts halves plus carry into the upper half: two instructions per level.
        let s = self.0;
        let s = (s.wrapping_add(s.rotate_left(32)) >> 32) as u32;
        (s.wrapping_add(s.rotate_left(16)) >> 16) as u16
    }

    /// The checksum to write into the header: complemented, in the order of the wire.
    #[inline]
    pub const fn checksum(self) -> [u8; 2] {
        (!self.fold()).to_ne_bytes()
    }

    /// Is this the sum of bytes that carry their right checksum? Then it folds to 0xffff, as the multiples of that do but for zero, and it need not be
    /// folded to see that.
    #[inline]
    pub const fn is_valid(self) -> bool {
        // Multiplied by the inverse of an odd number modulo 2^64, its multiples, and no others, give how often they hold it.
        const MOST: u64 = u64::MAX / 0xffff;
        const INVERSE: u64 = MOST.wrapping_neg();
        self.0.wrapping_mul(INVERSE).wrapping_sub(1) < MOST
    }
}

impl Add for Sum {
    type Output = Sum;
    #[inline]
    #[allow(clippy::suspicious_arithmetic_impl, reason = "the carry goes round: ones' complement")]
    fn add(self, other: Sum) -> Sum {
        let (sum, carry) = self.0.overflowing_add(other.0);
        Sum(sum + u64::from(carry))
    }
}

/// The sum of the last `len` bytes, fewer than eight, of a word that ends with them. It asks nothing.
#[inline(always)]
fn sum_end(word: &[u8; 8], len: usize) -> u64 {
    let word = u64::from_le_bytes(*word) >> 8;
    (word >> (8 * (7 - (len & 7)))).to_le()
}

/// The sum of less than a word. Straight-line: a loop here would be unrolled for lengths that never come.
#[inline(always)]
fn sum_tail(mut bytes: &[u8]) -> u64 {
    let mut sum = 0;
    if let Some((word, rest)) = bytes.split_first_chunk::<4>() {
        sum += u64::from(u32::from_ne_bytes(*word));
        bytes = rest;
    }
    if let Some((word, rest)) = bytes.split_first_chunk::<2>() {
        sum += u64::from(u16::from_ne_bytes(*word));
        bytes = rest;
    }
    if let Some(last) = bytes.first() {
        sum += u64::from(u16::from_ne_bytes([*last, 0]));
    }
    sum
}

/// The sum of the pseudo-header before a transport header of `length` bytes, itself included (RFC 9293 section 3.1,
/// RFC 8200 section 8.1).
///
/// One formula serves both families: the `ffff` in a v4-mapped address is a zero in ones' complement, and the fields
/// that IPv6 makes wider hold zeroes there.
#[inline]
pub fn pseudo_header(src: &Address, dst: &Address, protocol: u8, length: u32) -> Sum {
    let mut sum = u64::from(u32::from_ne_bytes([0, 0, 0, protocol])) + u64::from(length.to_be());
    for word in src.words() {
        sum += u64::from(word);
    }
    for word in dst.words() {
        sum += u64::from(word);
    }
    Sum(sum)
}

/// Does the transport header and payload in `bytes` carry its right checksum?
///
/// For UDP over IPv4 ask first whether there is a checksum at all.
#[inline]
pub fn verify_transport(src: &Address, dst: &Address, protocol: u8, bytes: &[u8]) -> bool {
    // Half of all segments are a TCP header with timestamps and nothing else.
    let sum = match <&[u8; 32]>::try_from(bytes) {
        Ok(header) => Sum::of_array(header),
        Err(_) => Sum::of(bytes),
    };
    (pseudo_header(src, dst, protocol, bytes.len() as u32) + sum).is_valid()
}

/// [`verify_transport`] over IPv4 without options, where the two addresses lie before the transport header: `bytes` begin with them, and what the
/// pseudo-header has of them is summed as if it belonged to the segment.
#[inline(always)]
pub fn verify_transport_v4(protocol: u8, bytes: &[u8]) -> bool {
    const ADDRESSES: usize = 8;
    // Half of all segments are a TCP header with timestamps and nothing else.
    let sum = match <&[u8; ADDRESSES + 32]>::try_from(bytes) {
        Ok(header) => Sum::of_array(header),
        Err(_) if bytes.len() < 64 => of_bare_header(bytes),
        Err(_) => Sum::of(bytes),
    };
    let length = (bytes.len() as u32).wrapping_sub(ADDRESSES as u32);
    (sum + Sum(u64::from(u32::from_ne_bytes([0, 0, 0, protocol])) + u64::from(length.to_be()))).is_valid()
}

/// A SYN as nearly all are, a segment without options, or something else that is short.
#[inline(always)]
fn of_bare_header(bytes: &[u8]) -> Sum {
    match (<&[u8; 8 + 40]>::try_from(bytes), <&[u8; 8 + 20]>::try_from(bytes)) {
        (Ok(syn), _) => Sum::of_array(syn),
        (_, Ok(bare)) => Sum::of_array(bare),
        _ => Sum::of(bytes),
    }
}

/// Copies `src` to `dst` and sums it on the way, so that the bytes come from memory once.
///
/// A copy of a piece and then its sum, both at full width, are faster than one loop that does both.
///
/// # Panics
/// If the lengths differ: that is our own mistake.
#[inline]
pub fn copy_and_sum(dst: &mut [u8], src: &[u8]) -> Sum {
    if dst.len() != src.len() {
        lengths_differ(dst.len(), src.len());
    }
    if src.len() < LONG {
        dst.copy_from_slice(src);
        return Sum::of_few(src);
    }
    copy_and_sum_many(dst, src)
}

#[cold]
fn lengths_differ(dst: usize, src: usize) -> ! {
    panic!("copy_and_sum copies a whole slice to a slice of its length: {src} bytes do not go to {dst}");
}

#[inline(never)]
fn copy_and_sum_many(dst: &mut [u8], src: &[u8]) -> Sum {
    let mut sum = Sum::ZERO;
    for (to, from) in dst.chunks_mut(PIECE).zip(src.chunks(PIECE)) {
        to.copy_from_slice(from);
        sum = sum + Sum::of(from);
    }
    sum
}
