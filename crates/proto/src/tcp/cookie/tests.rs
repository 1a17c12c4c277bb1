use laneway_wire::flow::Address;
use proptest::prelude::*;

use super::*;

fn flow(remote_port: u16) -> FlowKey {
    FlowKey {
        local: Address::from_v4([192, 0, 2, 1]),
        remote: Address::from_v4([198, 51, 100, 7]),
        local_port: 443,
        remote_port,
    }
}

#[test]
fn the_mss_is_rounded_down() {
    let secret = [1, 2];
    let isn = SeqNum::new(77);
    for (mss, held) in
        [(0, 64), (63, 64), (64, 64), (535, 64), (536, 536), (1459, 1440), (1460, 1460), (8000, 1460), (65535, 8940)]
    {
        let cookie = encode(&secret, &flow(1), isn, 5, mss);
        assert_eq!(decode(&secret, &flow(1), isn, cookie, 5), Some(held), "{mss}");
    }
    assert!(MSS_TABLE.is_sorted());
}

#[test]
fn numbers_of_one_four_tuple_move_forward() {
    let isn = SeqNum::new(u32::MAX - 5);
    let now = encode(&[3, 4], &flow(1), isn, 5, 1460);
    let later = encode(&[3, 4], &flow(1), isn + 10, 7, 1460);
    assert!(now.before(later));
}

#[test]
fn blind_guesses_fail() {
    // 16 of 2^32 are good; of 100 000 none should be.
    let hits = (0..100_000u32).filter(|i| {
        let guess = SeqNum::new(i.wrapping_mul(2_654_435_761));
        decode(&[9, 9], &flow(2), SeqNum::new(1), guess, 1000).is_some()
    });
    assert_eq!(hits.count(), 0);
}

#[test]
fn what_lies_beside_a_cookie_is_none() {
    let isn = SeqNum::new(77);
    for minute in 0..100 {
        let cookie = encode(&[5, 6], &flow(3), isn, minute, 1220);
        for beside in (1..=8).flat_map(|by| [cookie + by, cookie - by]) {
            assert_eq!(decode(&[5, 6], &flow(3), isn, beside, minute), None);
        }
    }
}

#[test]
fn timestamp_options_at_the_edges() {
    for now in [0, 1, 63, 64, 100, u32::MAX] {
        let options = TimestampOptions { window_scale: Some(WindowScale::new(14)), sack_permitted: true, ecn: true };
        let ts = encode_ts(now, options);
        assert_eq!(decode_ts(ts), options);
        assert!(now.wrapping_sub(ts) < 64);
    }
}

proptest! {
    #[test]
    fn round_trips_while_valid(secret in any::<[u64; 2]>(), port in any::<u16>(), isn in any::<u32>(), minute in any::<u32>(),
                               index in 0usize..8, age in 0u32..256) {
        let isn = SeqNum::new(isn);
        let cookie = encode(&secret, &flow(port), isn, minute, MSS_TABLE[index]);
        let decoded = decode(&secret, &flow(port), isn, cookie, minute.wrapping_add(age));
        prop_assert_eq!(decoded, (age <= MINUTES_VALID).then_some(MSS_TABLE[index]));
        prop_assert_eq!(is_timely(&secret, &flow(port), isn, cookie, minute.wrapping_add(age)), age <= MINUTES_VALID);
    }

    /// Nothing else decodes it. A stranger's chance is 16 in 2^32 per case, and cases are few.
    #[test]
    fn is_bound_to_everything(secret in any::<[u64; 2]>(), port in any::<u16>(), isn in any::<u32>(), minute in any::<u32>(), mss in any::<u16>(),
                              other in 1u32..) {
        let peer = SeqNum::new(isn);
        let cookie = encode(&secret, &flow(port), peer, minute, mss);
        prop_assert_eq!(decode(&[secret[0] ^ u64::from(other), secret[1]], &flow(port), peer, cookie, minute), None);
        prop_assert_eq!(decode(&secret, &flow(port ^ 1), peer, cookie, minute), None);
        prop_assert_eq!(decode(&secret, &flow(port).reversed(), peer, cookie, minute), None);
        prop_assert_eq!(decode(&secret, &flow(port), peer + other, cookie, minute), None);
        // 256 minutes later the eight bits are the same again, the hash is not.
        prop_assert_eq!(decode(&secret, &flow(port), peer, cookie, minute.wrapping_add(256)), None);
    }

    #[test]
    fn timestamps_round_trip(now in any::<u32>(), scale in prop::option::of(any::<u8>()), sack in any::<bool>(), ecn in any::<bool>()) {
        let options = TimestampOptions { window_scale: scale.map(WindowScale::new), sack_permitted: sack, ecn };
        let ts = encode_ts(now, options);
        prop_assert_eq!(decode_ts(ts), options);
        prop_assert!(now.wrapping_sub(ts) < 64, "at most 63 units old, never from the future");
    }

    #[test]
    fn any_echo_is_some_option(echo in any::<u32>()) {
        let options = decode_ts(echo);
        prop_assert!(options.window_scale.is_none_or(|scale| scale.get() <= 14));
    }
}
