use super::*;

const NOW: Instant = Instant::from_us(5_000_000);

fn v4(last: u8) -> Address {
    Address::from_v4([192, 0, 2, last])
}

fn v6(last: u8) -> Address {
    let mut octets = [0x20; 16];
    octets[15] = last;
    Address::from_v6(octets)
}

#[test]
fn an_estimate_only_shrinks_and_is_forgotten() {
    let mut cache = PathMtuCache::new(Config::default());
    assert_eq!(cache.get(v4(1), NOW), None);
    assert_eq!(cache.on_packet_too_big(v4(1), 1400, 1500, NOW), Some(1400));
    assert_eq!(cache.on_packet_too_big(v4(1), 1450, 1500, NOW), None);
    assert_eq!(cache.on_packet_too_big(v4(1), 1500, 1500, NOW), None);
    assert_eq!(cache.get(v4(1), NOW), Some(1400));
    assert_eq!(cache.get(v4(2), NOW), None);
    let later = cache.poll_timeout().unwrap();
    assert_eq!(later.since_us(NOW), 600_000_000);
    assert_eq!(cache.get(v4(1), later), None);
    cache.on_timeout(later);
    assert!(cache.is_empty() && cache.poll_timeout().is_none());
}

/// Nor is it what the link carries that is to become more.
#[test]
fn no_more_than_the_link_carries_is_ever_learnt() {
    let mut cache = PathMtuCache::new(Config::default());
    for to in [v4(1), v6(1)] {
        assert_eq!(cache.on_packet_too_big(to, 1_500, 1_500, NOW), None);
        assert_eq!(cache.on_packet_too_big(to, 9_000, 1_500, NOW), None);
    }
    assert!(cache.is_empty());
}

#[test]
fn a_renewed_estimate_outlives_its_first_record() {
    let mut cache = PathMtuCache::new(Config::default());
    cache.on_packet_too_big(v4(1), 1400, 1500, NOW);
    let renewed = NOW.after_us(1_000_000);
    cache.on_packet_too_big(v4(1), 1300, 1500, renewed);
    cache.on_timeout(NOW.after_us(600_000_000));
    assert_eq!(cache.get(v4(1), NOW.after_us(600_000_000)), Some(1300));
}

#[test]
fn floors_hold() {
    let mut cache = PathMtuCache::new(Config::default());
    assert_eq!(cache.on_packet_too_big(v4(1), 68, 1500, NOW), Some(552));
    assert_eq!(cache.on_packet_too_big(v6(1), 1279, 1500, NOW), None);
    assert_eq!(cache.on_packet_too_big(v6(1), 0, 1500, NOW), None);
    assert_eq!(cache.on_packet_too_big(v6(1), 1280, 1500, NOW), Some(1280));
}

/// Whatever becomes of the estimate: without that nothing would get through.
#[test]
fn what_is_too_long_for_a_path_below_the_floor_may_be_cut() {
    let mut cache = PathMtuCache::new(Config::default());
    let of = |cache: &PathMtuCache, to| (cache.get(to, NOW), cache.is_cut(to, NOW));
    assert_eq!(cache.on_packet_too_big(v4(1), 552, 1_500, NOW), Some(552));
    assert_eq!(of(&cache, v4(1)), (Some(552), false), "that much it carries");
    assert_eq!(cache.on_packet_too_big(v4(1), 551, 1_500, NOW), Some(552));
    assert_eq!(of(&cache, v4(1)), (Some(552), true));
    assert_eq!(cache.on_packet_too_big(v4(1), 296, 1_500, NOW), None, "that is known");
    assert_eq!(cache.on_packet_too_big(v4(2), 296, 400, NOW), Some(400));
    assert_eq!(of(&cache, v4(2)), (Some(400), true), "no link carries more than it does");
    assert_eq!(cache.on_packet_too_big(v4(3), 400, 400, NOW), None);
    assert_eq!(of(&cache, v4(3)), (None, false));
    assert!(!cache.is_cut(v4(1), cache.poll_timeout().unwrap()), "it is forgotten with the rest");
}

#[test]
fn a_router_that_does_not_say_means_the_next_plateau() {
    let mut cache = PathMtuCache::new(Config::default());
    let mut refuse = |sent| cache.on_packet_too_big(v4(1), plateau_below(sent), 1500, NOW);
    assert_eq!(refuse(1500), Some(1492));
    assert_eq!(refuse(1500), None, "it left before that was known");
    assert_eq!(refuse(1492), Some(1006));
    assert_eq!(refuse(1006), Some(552));
    assert_eq!((refuse(552), refuse(0)), (None, None));
}

#[test]
fn entries_and_records_are_bounded() {
    let config = Config { entries_max: 8, updates_per_s_max: 1_000_000, ..Config::default() };
    let mut cache = PathMtuCache::new(config);
    for round in 0..50u32 {
        for last in 0..20 {
            cache.on_packet_too_big(v4(last), 1400 - round, 1500, NOW);
        }
    }
    assert_eq!(cache.len(), 8);
    assert!(cache.expiry.len() <= 17);
    // Every entry still has a record that will expire it.
    cache.on_timeout(Instant::NEVER);
    assert!(cache.is_empty());
}

#[test]
fn a_flood_of_messages_is_not_believed() {
    let mut cache = PathMtuCache::new(Config::default());
    let believed = |cache: &mut PathMtuCache, now| {
        (0..=255u8).filter(|last| cache.on_packet_too_big(v6(*last), 1280, 1500, now).is_some()).count()
    };
    assert_eq!(believed(&mut cache, NOW), 128);
    assert_eq!(believed(&mut cache, NOW), 0);
    assert_eq!(believed(&mut cache, NOW.after_us(500_000)), 64);
}

/// One destination whose MTU becomes less again and again leaves no record behind for each time.
#[test]
fn records_are_bounded_however_often_one_estimate_shrinks() {
    let mut cache = PathMtuCache::new(Config { entries_max: 4, ..Config::default() });
    for i in 0..100 {
        let now = NOW.after_us(u64::from(i) * 100_000);
        assert_eq!(cache.on_packet_too_big(v4(1), 1400 - i, 1500, now), Some(1400 - i));
        assert!(cache.expiry.len() <= 9, "{} records of one destination", cache.expiry.len());
    }
    assert_eq!(cache.get(v4(1), NOW.after_us(10_000_000)), Some(1301));
}
