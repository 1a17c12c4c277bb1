use super::*;
use proptest::prelude::*;

#[test]
fn before_any_sample_the_timeout_is_one_second() {
    let rtt = RttEstimator::new();
    assert_eq!(rtt.rto_us(), 1_000_000);
    assert_eq!((rtt.srtt_us(), rtt.min_rtt_us(), rtt.rttvar_us()), (None, None, 0));
}

#[test]
fn first_sample_sets_everything() {
    let mut rtt = RttEstimator::new();
    rtt.on_sample(400_000);
    assert_eq!(rtt.srtt_us(), Some(400_000));
    assert_eq!(rtt.rttvar_us(), 200_000);
    // SRTT + 4·RTTVAR.
    assert_eq!(rtt.rto_us(), 1_200_000);
}

#[test]
fn a_probe_waits_for_two_round_trips_and_a_gap_for_a_quarter() {
    let mut rtt = RttEstimator::new();
    assert_eq!((rtt.pto_us(), rtt.reordering_us()), (None, None), "nothing was measured");
    rtt.on_sample(40_000);
    let both = (Some(90_000), Some(10_000));
    assert_eq!((rtt.pto_us(), rtt.reordering_us()), both);
    // Not until a round trip was measured again.
    rtt.on_probe();
    assert_eq!((rtt.pto_us(), rtt.reordering_us()), (None, None));
    rtt.on_sample(40_000);
    assert_eq!((rtt.pto_us(), rtt.reordering_us()), both);
    rtt.on_timeout();
    assert_eq!((rtt.pto_us(), rtt.reordering_us()), (None, None), "nobody answers");
    rtt.on_sample(40_000);
    assert_eq!((rtt.pto_us(), rtt.reordering_us()), both);
}

#[test]
fn whoever_sees_reordering_learns_to_wait() {
    let mut rtt = RttEstimator::new();
    rtt.on_sample(40_000);
    let gap_ms = |rtt: &RttEstimator| rtt.reordering_us().unwrap() / 1_000;
    assert_eq!((rtt.has_seen_reordering(), gap_ms(&rtt)), (false, 10));
    rtt.on_patience();
    assert!(!rtt.has_seen_reordering());
    rtt.on_reordering();
    assert_eq!((rtt.has_seen_reordering(), gap_ms(&rtt)), (true, 10));
    let longer = [20, 30, 40, 40].map(|_| {
        rtt.on_impatience();
        gap_ms(&rtt)
    });
    assert_eq!(longer, [20, 30, 40, 40], "a round trip at the most");
    rtt.on_reordering();
    assert_eq!(gap_ms(&rtt), 40);
    // Sixteen losses for each mistake, down to what it was at first.
    let shorter = [30, 20, 10, 10].map(|_| {
        (0..16).for_each(|_| rtt.on_patience());
        gap_ms(&rtt)
    });
    assert_eq!(shorter, [30, 20, 10, 10]);
    assert!(rtt.has_seen_reordering());
}

#[test]
fn later_samples_are_smoothed() {
    let mut rtt = RttEstimator::new();
    rtt.on_sample(100_000);
    rtt.on_sample(180_000);
    // RTTVAR = 3/4·50 + 1/4·|100 - 180| = 57.5 ms, with the old SRTT; SRTT = 7/8·100 + 1/8·180 = 110 ms.
    assert_eq!(rtt.srtt_us(), Some(110_000));
    assert_eq!(rtt.rttvar_us(), 57_500);
    assert_eq!(rtt.rto_us(), 110_000 + 4 * 57_500);
    assert_eq!(rtt.min_rtt_us(), Some(100_000));
}

#[test]
fn a_round_trip_that_is_much_longer_counts_as_soon_as_it_is_told() {
    let mut rtt = RttEstimator::new();
    rtt.on_longer(100_000);
    assert_eq!(rtt, RttEstimator::new(), "nothing was measured");
    rtt.on_sample(100_000);
    let before = rtt;
    for told in [0, 1_000, 112_500, 2 * before.rto_us(), u32::MAX] {
        rtt.on_longer(told);
        assert_eq!(rtt, before, "{told} us: no longer than by an eighth, or beyond belief");
    }
    // It follows a queue that doubles the round trip within one, and stops where it has caught up.
    for told in (100_000..200_000).step_by(1_000) {
        rtt.on_longer(told);
    }
    (0..100).for_each(|_| rtt.on_longer(200_000));
    assert!(rtt.srtt_us().is_some_and(|srtt| srtt * 9 / 8 >= 199_000) && rtt.rto_us() > 350_000, "{rtt:?}");
    // Who is waited for longer than ever is not asked how long he took.
    rtt.on_timeout();
    let before = rtt;
    rtt.on_longer(300_000);
    assert_eq!(rtt, before);
}

#[test]
fn a_steady_path_keeps_room_for_a_delayed_ack() {
    let mut rtt = RttEstimator::new();
    for _ in 0..1_000 {
        rtt.on_sample(300_000);
    }
    assert_eq!(rtt.srtt_us(), Some(300_000));
    assert_eq!(rtt.rto_us(), 500_000);
}

#[test]
fn backing_off_doubles_up_to_two_minutes_and_ends_with_an_answer() {
    let mut rtt = RttEstimator::new();
    let mut seen = vec![];
    for _ in 0..9 {
        seen.push(rtt.rto_us() / 1_000_000);
        rtt.on_timeout();
    }
    assert_eq!(seen, [1, 2, 4, 8, 16, 32, 64, 120, 120]);
    for _ in 0..1_000 {
        rtt.on_timeout();
    }
    assert_eq!(rtt.rto_us(), RTO_MAX_US);

    let mut with_sample = rtt;
    with_sample.on_sample(1_000);
    assert_eq!(with_sample.rto_us(), 201_000);
    rtt.on_window_open();
    assert_eq!(rtt.rto_us(), 1_000_000);
    assert_eq!(rtt.backoffs(), 0);
}

#[test]
fn after_a_lost_syn_data_starts_at_three_seconds_unless_measured() {
    let mut rtt = RttEstimator::new();
    rtt.on_timeout();
    rtt.on_syn_lost();
    assert_eq!(rtt.rto_us(), 3_000_000);
    rtt.on_sample(10_000);
    assert_eq!(rtt.rto_us(), 210_000);
    rtt.on_syn_lost();
    assert_eq!(rtt.rto_us(), 210_000);
}

proptest! {
    /// Against RFC 6298 in floating point, whatever the samples.
    #[test]
    fn follows_the_rfc(samples in prop::collection::vec(prop_oneof![1u32..5_000, 1u32..2_000_000, any::<u32>()], 1..200)) {
        let mut rtt = RttEstimator::new();
        let mut model: Option<(f64, f64)> = None;
        for sample in samples {
            rtt.on_sample(sample);
            let r = f64::from(sample.clamp(1, RTO_MAX_US));
            let (srtt, rttvar) = match model {
                None => (r, r / 2.0),
                Some((srtt, rttvar)) => (0.875 * srtt + 0.125 * r, 0.75 * rttvar + 0.25 * (srtt - r).abs()),
            };
            model = Some((srtt, rttvar));
            // Each step truncates less than one unit of 1/8 and 1/4 µs, and the gains sum what is left.
            prop_assert!((f64::from(rtt.srtt_us().unwrap()) - srtt).abs() <= 4.0);
            prop_assert!((f64::from(rtt.rttvar_us()) - rttvar).abs() <= 8.0);
            let rto = (srtt + (4.0 * rttvar).max(200_000.0)).min(120e6);
            prop_assert!((f64::from(rtt.rto_us()) - rto).abs() <= 40.0);
        }
    }

    /// Bounds hold after any history.
    #[test]
    fn stays_in_bounds(events in prop::collection::vec((0u8..3, any::<u32>()), 0..300)) {
        let mut rtt = RttEstimator::new();
        for (event, sample) in events {
            match event {
                0 => rtt.on_sample(sample),
                1 => rtt.on_timeout(),
                _ => rtt.on_window_open(),
            }
            prop_assert!((RTO_MARGIN_US..=RTO_MAX_US).contains(&rtt.rto_us()));
            prop_assert!(rtt.srtt_us().is_none_or(|srtt| (1..=RTO_MAX_US).contains(&srtt)));
        }
    }
}

/// Whatever a configuration says of how often.
#[test]
fn a_syn_is_waited_for_up_to_64_seconds() {
    let waits: Vec<u64> = [0, 1, 6, 7, 64, u8::MAX].map(|retries| syn_timeout_us(retries) / 1_000_000).into();
    assert_eq!(waits, [1, 2, 64, 64, 64, 64]);
}
