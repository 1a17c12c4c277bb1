use super::*;
use proptest::prelude::*;

const SECRET: [u64; 2] = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];

fn flow(remote: u8, remote_port: u16) -> FlowKey {
    FlowKey {
        local: Address::from_v4([192, 0, 2, 1]),
        remote: Address::from_v4([198, 51, 100, remote]),
        local_port: 80,
        remote_port,
    }
}

#[test]
fn one_four_tuple_moves_at_the_pace_of_the_clock() {
    let key = flow(7, 4000);
    let first = isn(&SECRET, &key, 0);
    assert_eq!(isn(&SECRET, &key, 3), first);
    assert_eq!(isn(&SECRET, &key, 4), first + 1);
    // The circle takes 4.77 hours.
    assert_eq!(isn(&SECRET, &key, 4 << 32), first);
}

#[test]
fn other_tuples_and_secrets_begin_elsewhere() {
    let key = flow(7, 4000);
    let all = [
        isn(&SECRET, &key, 0),
        isn(&SECRET, &flow(7, 4001), 0),
        isn(&SECRET, &flow(8, 4000), 0),
        isn(&SECRET, &key.reversed(), 0),
        isn(&[SECRET[0], SECRET[1] ^ 1], &key, 0),
    ];
    for (i, a) in all.iter().enumerate() {
        assert!(all[i + 1..].iter().all(|b| a != b), "{all:?}");
    }
}

#[test]
fn what_follows_on_a_flow_begins_beyond_it() {
    let key = flow(7, 4000);
    let clock = isn(&SECRET, &key, 0);
    assert_eq!(isn_beyond(&SECRET, &key, 0, None), clock);
    assert_eq!(isn_beyond(&SECRET, &key, 0, Some(clock - 1)), clock, "the clock is ahead of it already");
    for ahead in [0, 1, 1 << 20, i32::MAX as u32] {
        let last = clock + ahead;
        let after = isn_beyond(&SECRET, &key, 0, Some(last));
        assert!(after.after(last + 65_535), "{ahead} bytes ahead of the clock");
    }
}

#[test]
fn timestamp_offsets_belong_to_pairs_of_hosts() {
    let (a, b) = (Address::from_v4([10, 0, 0, 1]), Address::from_v4([10, 0, 0, 2]));
    let c = Address::from_v6([0xfd; 16]);
    assert_eq!(ts_offset(&SECRET, &a, &b), ts_offset(&SECRET, &a, &b));
    assert_ne!(ts_offset(&SECRET, &a, &b), ts_offset(&SECRET, &a, &a));
    assert_ne!(ts_offset(&SECRET, &c, &b), ts_offset(&SECRET, &c, &c));
    let no_ports = FlowKey { local: a, remote: b, local_port: 0, remote_port: 0 };
    assert_ne!(ts_offset(&SECRET, &a, &b), isn(&SECRET, &no_ports, 0).raw(), "each purpose hashes for itself");
}

proptest! {
    #[test]
    fn never_moves_back(secret in any::<[u64; 2]>(), v6 in any::<[u8; 16]>(), is_v4 in any::<bool>(), port in any::<u16>(),
                        now_us in 0u64..1 << 60, later_us in 0u64..4 << 30) {
        let mut key = flow(1, port);
        if !is_v4 {
            key.local = Address::from_v6(v6);
            key.remote = Address::from_v6(v6);
        }
        // Within half the circle (2.4 hours; here one): the later number is after or at the earlier.
        prop_assert!(isn(&secret, &key, now_us + later_us).at_or_after(isn(&secret, &key, now_us)));
    }
}
