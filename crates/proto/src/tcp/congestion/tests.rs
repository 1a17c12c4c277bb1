use super::*;
use proptest::prelude::*;

const MSS: u32 = 1_000;

fn both() -> [Congestion; 2] {
    [Congestion::new(Algorithm::Cubic, MSS), Congestion::new(Algorithm::Reno, MSS)]
}

fn ack(now_us: u64, bytes: u32) -> Acked {
    Acked { now: Instant::from_us(now_us), bytes, in_flight: bytes, srtt_us: 1_000, is_cwnd_limited: true }
}

#[test]
fn begins_with_ten_segments() {
    // RFC 6928: min (10·MSS, max (2·MSS, 14600)).
    for (mss, window) in [(536, 5_360), (1_460, 14_600), (1_500, 14_600), (8_940, 17_880), (0, 10), (u32::MAX, 131_070)]
    {
        for algorithm in [Algorithm::Cubic, Algorithm::Reno] {
            let it = Congestion::new(algorithm, mss);
            assert_eq!(it.window(), window, "{mss}");
            assert_eq!(it.slow_start_threshold(), u32::MAX);
            assert_eq!(it.algorithm(), algorithm);
        }
    }
}

#[test]
fn slow_start_doubles_however_acks_are_cut() {
    for mut it in both() {
        it.on_ack(ack(1_000, 10_000));
        assert_eq!(it.window(), 20_000);
        for i in 0..20_000 {
            it.on_ack(ack(2_000 + i, 1));
        }
        assert_eq!(it.window(), 40_000, "splitting ACKs gains nothing");
        assert!(it.window() < it.slow_start_threshold());
    }
}

#[test]
fn a_window_that_is_not_used_does_not_grow() {
    for mut it in both() {
        let unlimited = Acked { is_cwnd_limited: false, ..ack(1_000, 5_000) };
        it.on_ack(Acked { in_flight: 5_000, ..unlimited });
        assert_eq!(it.window(), 10_000, "half of it was used");
        it.on_ack(Acked { in_flight: 5_001, ..unlimited });
        assert_eq!(it.window(), 15_000, "more than half of it, in slow start");
        it.on_congestion(Instant::ZERO, 15_000);
        it.on_recovered(Instant::ZERO);
        let avoiding = it.window();
        it.on_ack(Acked { in_flight: avoiding - 1, bytes: avoiding - 1, ..unlimited });
        assert_eq!(it.window(), avoiding, "beyond the threshold all of it must be");
    }
}

#[test]
fn stands_still_until_recovered() {
    for mut it in both() {
        it.on_congestion(Instant::ZERO, 10_000);
        let reduced = it.window();
        assert!(reduced < 10_000 && it.slow_start_threshold() == reduced);
        it.on_ack(ack(1_000, 50_000));
        assert_eq!(it.window(), reduced);
        it.on_recovered(Instant::from_us(2_000));
        for i in 0..100 {
            it.on_ack(ack(3_000 + i, 1_000));
        }
        assert!(it.window() > reduced);
    }
}

#[test]
fn slow_start_may_end_without_a_loss() {
    for mut it in both() {
        it.on_ack(ack(0, 90_000));
        assert!(it.is_first_slow_start());
        it.leave_slow_start();
        assert_eq!((it.window(), it.slow_start_threshold()), (100_000, 100_000));
        assert!(!it.is_first_slow_start());
        it.on_ack(ack(1_000, 1_000));
        assert!(it.window() < 100_100, "one segment a round from here");
        // A threshold that a loss has set is not raised.
        it.on_congestion(Instant::ZERO, 100_000);
        it.on_timeout(Instant::ZERO, 100_000);
        let threshold = it.slow_start_threshold();
        it.on_ack(ack(2_000, 1_000));
        it.leave_slow_start();
        assert!(it.slow_start_threshold() <= threshold);
    }
}

#[test]
fn is_never_reduced_below_two_segments_but_by_the_timer() {
    for mut it in both() {
        it.on_congestion(Instant::ZERO, 0);
        assert_eq!((it.window(), it.slow_start_threshold()), (2 * MSS, 2 * MSS));
        it.on_recovered(Instant::ZERO);
        it.on_timeout(Instant::ZERO, 0);
        assert_eq!((it.window(), it.slow_start_threshold()), (MSS, 2 * MSS));
    }
}

#[test]
fn the_timer_firing_again_is_the_same_loss() {
    for mut it in both() {
        it.on_ack(ack(0, 90_000));
        it.on_timeout(Instant::ZERO, 100_000);
        let threshold = it.slow_start_threshold();
        assert!(threshold >= 50_000 && it.window() == MSS);
        for _ in 0..5 {
            it.on_timeout(Instant::ZERO, 100_000);
        }
        assert_eq!(it.slow_start_threshold(), threshold, "RFC 5681 section 3.1: held constant");
        // Once something was acknowledged it is another one, measured from the window and not from old data.
        it.on_ack(ack(1_000, 9_000));
        it.on_timeout(Instant::ZERO, 100_000);
        assert!(it.slow_start_threshold() <= 7_000);
        it.on_ack(ack(2_000, 2_000));
        assert_eq!(it.window(), 3_000);
    }
}

#[test]
fn a_mistake_is_taken_back_once() {
    for mut it in both() {
        it.on_ack(ack(0, 90_000));
        it.on_congestion(Instant::ZERO, 100_000);
        it.on_timeout(Instant::ZERO, 100_000);
        it.on_ack(ack(1_000, 1_000));
        it.undo();
        assert_eq!((it.window(), it.slow_start_threshold()), (100_000, u32::MAX));
        it.on_recovered(Instant::from_us(2_000));

        it.on_congestion(Instant::ZERO, 100_000);
        it.on_recovered(Instant::ZERO);
        let reduced = it.window();
        // D-SACK may tell only after the recovery.
        it.undo();
        assert_eq!(it.window(), 100_000);
        it.on_congestion(Instant::ZERO, 100_000);
        assert_eq!(it.window(), reduced);
        it.undo();
        it.undo();
        assert_eq!(it.window(), 100_000);
    }
}

/// A mistake of the timer alone is one, too; and who has heard of it goes on at once, without an end of what was no recovery.
#[test]
fn what_was_taken_back_is_over() {
    for mut it in both() {
        it.on_ack(ack(0, 90_000));
        it.on_timeout(Instant::ZERO, 100_000);
        it.undo();
        assert_eq!(it.window(), 100_000);
        it.on_congestion(Instant::ZERO, 100_000);
        it.undo();
        it.on_ack(ack(1_000, 10_000));
        assert_eq!(it.window(), 110_000);

        // A threshold that lies higher than the one before the loss stays there.
        it.leave_slow_start();
        it.on_idle(2_000_000, 1_000_000);
        it.on_timeout(Instant::ZERO, 10_000);
        it.on_recovered(Instant::ZERO);
        let before = it.slow_start_threshold();
        (0..100).for_each(|i| it.on_ack(ack(i, 1_000)));
        it.on_congestion(Instant::ZERO, u32::MAX);
        let threshold = it.slow_start_threshold();
        it.undo();
        assert!(before < threshold && threshold == it.slow_start_threshold(), "{before} {threshold}");
    }
}

/// What has happened since stands: the window that has grown beyond the one before the loss, and the one that a pause has closed.
#[test]
fn a_mistake_that_is_told_late_takes_nothing_away_and_gives_nothing_twice() {
    for mut it in both() {
        it.on_ack(ack(0, 90_000));
        it.on_congestion(Instant::ZERO, 100_000);
        it.on_recovered(Instant::ZERO);
        for i in 1..=1_000 {
            it.on_ack(ack(i * 50_000, it.window()));
        }
        let grown = it.window();
        assert!(grown > 100_000);
        it.undo();
        assert_eq!(it.window(), grown);

        let threshold = it.slow_start_threshold();
        assert!(it.on_idle(2_000_000, 1_000_000));
        let restarted = it.window();
        it.undo();
        assert_eq!((it.window(), it.slow_start_threshold()), (restarted, threshold));
    }
}

#[test]
fn restarts_after_idling_longer_than_the_timeout() {
    for mut it in both() {
        it.on_ack(ack(0, 90_000));
        assert!(!it.on_idle(200_000, 200_000));
        assert_eq!(it.window(), 100_000);
        it.on_congestion(Instant::ZERO, 100_000);
        it.on_recovered(Instant::ZERO);
        assert!(it.on_idle(200_001, 200_000));
        assert_eq!(it.window(), 10_000);
        it.undo();
        assert_eq!(it.window(), 10_000, "a mistake of before the pause");
        it.on_timeout(Instant::ZERO, 10_000);
        it.on_idle(u64::MAX, 0);
        assert_eq!(it.window(), MSS, "the restart window is no gift");
    }
}

#[test]
fn what_was_carried_before_a_pause_is_found_again_by_slow_start() {
    for mut it in both() {
        it.on_congestion(Instant::ZERO, 10_000);
        it.on_recovered(Instant::ZERO);
        let mut now_us = 0;
        while it.window() < 100_000 {
            now_us += 100_000;
            it.on_ack(ack(now_us, it.window()));
        }
        let (carried, low) = (it.window(), it.slow_start_threshold());
        assert!(low < 10_000, "of the loss");
        it.on_idle(200_001, 200_000);
        assert_eq!((it.window(), it.slow_start_threshold()), (10_000, carried - carried / 4));
        // Another pause takes nothing more.
        it.on_idle(200_001, 200_000);
        assert_eq!(it.slow_start_threshold(), carried - carried / 4);
    }
}

#[test]
fn the_segment_size_moves_the_initial_window_only() {
    for mut it in both() {
        it.on_mss(536);
        assert_eq!(it.window(), 5_360);
        it.on_mss(1_460);
        assert_eq!(it.window(), 14_600);
        it.on_ack(ack(0, 1_460));
        it.on_mss(536);
        assert_eq!(it.window(), 16_060);
    }
    for mut it in both() {
        it.on_syn_lost();
        assert_eq!(it, Congestion::after_lost_syn(it.algorithm(), MSS));
        assert_eq!((it.window(), it.slow_start_threshold()), (MSS, u32::MAX));
        it.on_mss(1_460);
        assert_eq!(it.window(), 1_460, "still one segment");
    }
}

#[derive(Clone, Debug)]
enum Event {
    Ack(u64, u32, u32, bool),
    Congestion(u32),
    Timeout(u32),
    Recovered,
    Undo,
    Idle(u64, u32),
    Mss(u32),
    SynLost,
}

fn any_size() -> impl Strategy<Value = u32> {
    prop_oneof![0u32..100_000, any::<u32>(), Just(u32::MAX), Just(0)]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        12 => (prop_oneof![0u64..1 << 24, any::<u64>()], any_size(), any_size(), any::<bool>())
            .prop_map(|(us, bytes, srtt, limited)| Event::Ack(us, bytes, srtt, limited)),
        2 => any_size().prop_map(Event::Congestion),
        2 => any_size().prop_map(Event::Timeout),
        3 => Just(Event::Recovered),
        1 => Just(Event::Undo),
        1 => (any::<u64>(), any_size()).prop_map(|(idle, rto)| Event::Idle(idle, rto)),
        1 => any_size().prop_map(Event::Mss),
        1 => Just(Event::SynLost),
    ]
}

proptest! {
    /// Any events in any order, with time jumping: no panic, and the window stays a window.
    #[test]
    fn stays_in_bounds(mss in any_size(), events in prop::collection::vec(event(), 0..300)) {
        for algorithm in [Algorithm::Cubic, Algorithm::Reno] {
            let mut it = Congestion::new(algorithm, mss);
            let mut now = Instant::ZERO;
            for event in &events {
                let (before, threshold) = (it.window(), it.slow_start_threshold());
                match *event {
                    Event::Ack(us, bytes, srtt_us, is_cwnd_limited) => {
                        now = Instant::from_us(now.as_us().wrapping_add(us));
                        it.on_ack(Acked { now, bytes, in_flight: bytes, srtt_us, is_cwnd_limited });
                        prop_assert!(it.window() >= before);
                        if !is_cwnd_limited && (bytes <= before / 2 || before >= threshold) {
                            prop_assert_eq!(it.window(), before);
                        }
                    }
                    Event::Congestion(in_flight) => it.on_congestion(now, in_flight),
                    Event::Timeout(in_flight) => it.on_timeout(now, in_flight),
                    Event::Recovered => it.on_recovered(now),
                    Event::Undo => _ = it.undo(),
                    Event::Idle(idle_us, rto_us) => _ = it.on_idle(idle_us, rto_us),
                    Event::Mss(mss) => it.on_mss(mss),
                    Event::SynLost => it.on_syn_lost(),
                }
                prop_assert!((1..=WINDOW_MAX).contains(&it.window()), "{:?} -> {:?}", event, it);
                prop_assert!(it.slow_start_threshold() >= 2);
            }
        }
    }
}
