use super::*;
use proptest::prelude::*;
use std::{vec, vec::Vec};

/// RFC 1071 section 4.1, in the order of the wire: what every trick above must equal.
fn plain(bytes: &[u8]) -> u16 {
    let mut sum = 0u64;
    for pair in bytes.chunks(2) {
        sum += u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
    }
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn wire_order(sum: Sum) -> u16 {
    u16::from_be_bytes(sum.fold().to_ne_bytes())
}

#[test]
fn the_example_of_rfc_1071() {
    // Section 3: the words 0001 f203 f4f5 f6f7 sum to ddf2.
    let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
    assert_eq!(wire_order(Sum::of(&bytes)), 0xddf2);
    assert_eq!(Sum::of(&bytes).checksum(), (!0xddf2u16).to_be_bytes());
    assert_eq!(wire_order(Sum::of_array(&bytes)), 0xddf2);
    let [first, rest @ ..] = [[0x12, 0x34, 0xab, 0xcd], [0, 1, 0xf2, 3], [0xf4, 0xf5, 0xf6, 0xf7]];
    let cut = [first, rest[0], rest[1]].concat();
    assert_eq!(wire_order(Sum::of_array::<12>(cut.as_slice().try_into().unwrap())), plain(&cut));
}

#[test]
fn ones_are_summed_without_losing_a_carry() {
    for len in [0, 1, 2, 31, 32, 33, 1460, 65535, 1 << 20] {
        let bytes = vec![0xff; len];
        assert_eq!(wire_order(Sum::of(&bytes)), plain(&bytes), "{len} bytes of ff");
    }
}

#[test]
fn folding_keeps_both_zeroes_apart() {
    assert_eq!(Sum::ZERO.fold(), 0);
    for sum in [0xffff, 0xffff_ffff, u64::MAX, 0xffff_0000_0000_0000, 0x1_fffe] {
        assert_eq!(Sum(sum).fold(), 0xffff, "{sum:#x}");
    }
    assert!((Sum(u64::MAX) + Sum(u64::MAX)).is_valid());
    assert!(!Sum(0xfffe).is_valid() && !Sum(0x1_0000).is_valid());
}

fn any_address(v4: bool) -> BoxedStrategy<Address> {
    if v4 {
        any::<[u8; 4]>().prop_map(Address::from_v4).boxed()
    } else {
        any::<[u8; 16]>().prop_map(Address::from_v6).boxed()
    }
}

fn any_pair() -> impl Strategy<Value = (Address, Address)> {
    any::<bool>().prop_flat_map(|v4| (any_address(v4), any_address(v4)))
}

proptest! {
    #[test]
    fn the_sum_is_the_plain_sum(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert_eq!(wire_order(Sum::of(&bytes)), plain(&bytes));
        let mut copy = vec![0; bytes.len()];
        prop_assert_eq!(wire_order(copy_and_sum(&mut copy, &bytes)), plain(&bytes));
        prop_assert_eq!(copy, bytes);
    }

    #[test]
    fn a_long_copy_is_summed_whole(seed: u8, len in 4000usize..9000) {
        let bytes: Vec<u8> = (0..len).map(|i| (i as u8).wrapping_mul(seed | 1) ^ seed).collect();
        let mut copy = vec![0; len];
        prop_assert_eq!(wire_order(copy_and_sum(&mut copy, &bytes)), plain(&bytes));
        prop_assert_eq!(copy, bytes);
    }

    #[test]
    fn a_sum_may_be_cut_anywhere(bytes in prop::collection::vec(any::<u8>(), 0..300), at in any::<prop::sample::Index>()) {
        let at = at.index(bytes.len() + 1);
        let (a, b) = bytes.split_at(at);
        let b = if at % 2 == 0 { Sum::of(b) } else { Sum::of(b).swapped() };
        prop_assert_eq!((Sum::of(a) + b).fold(), Sum::of(&bytes).fold());
        prop_assert_eq!((b + Sum::of(a)).fold(), Sum::of(&bytes).fold());
    }

    #[test]
    fn a_filled_checksum_is_valid(mut bytes in prop::collection::vec(any::<u8>(), 2..300)) {
        bytes[..2].fill(0);
        let checksum = Sum::of(&bytes).checksum();
        bytes[..2].copy_from_slice(&checksum);
        prop_assert!(Sum::of(&bytes).is_valid());
    }

    #[test]
    fn valid_is_what_folds_to_all_ones(any: u64, times: u32, add in 0u64..3) {
        for sum in [any, u64::from(times) * 0xffff + add, u64::MAX - any % 3 * 0xffff - add] {
            prop_assert_eq!(Sum(sum).is_valid(), Sum(sum).fold() == 0xffff, "{:#x}", sum);
        }
    }

    #[test]
    fn addresses_before_a_segment_are_its_pseudo_header(
        src: [u8; 4], dst: [u8; 4], mut tcp in prop::collection::vec(any::<u8>(), 20..600), spoilt in 0usize..40
    ) {
        let (from, to) = (Address::from_v4(src), Address::from_v4(dst));
        tcp[16..18].fill(0);
        let sum = pseudo_header(&from, &to, 6, tcp.len() as u32) + Sum::of(&tcp);
        tcp[16..18].copy_from_slice(&sum.checksum());
        if let Some(byte) = tcp.get_mut(spoilt) && spoilt % 2 == 0 {
            *byte ^= 0x10;
        }
        let summed = [&src[..], &dst[..], &tcp[..]].concat();
        prop_assert_eq!(verify_transport_v4(6, &summed), verify_transport(&from, &to, 6, &tcp));
    }

    #[test]
    fn the_pseudo_header_is_that_of_its_family((src, dst) in any_pair(), protocol in 1u8.., len in any::<u16>()) {
        let mut bytes = Vec::new();
        if src.is_v4() {
            bytes.extend(src.octets_v4());
            bytes.extend(dst.octets_v4());
            bytes.extend([0, protocol]);
            bytes.extend(len.to_be_bytes());
        } else {
            bytes.extend(src.octets());
            bytes.extend(dst.octets());
            bytes.extend(u32::from(len).to_be_bytes());
            bytes.extend([0, 0, 0, protocol]);
        }
        prop_assert_eq!(wire_order(pseudo_header(&src, &dst, protocol, len.into())), plain(&bytes));
    }
}
