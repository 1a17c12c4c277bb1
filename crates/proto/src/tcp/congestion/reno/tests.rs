use super::super::Acked;
use super::*;

const MSS: u32 = 1_000;

fn ack(bytes: u32) -> Acked {
    Acked { now: Instant::ZERO, bytes, in_flight: 0, srtt_us: 0, is_cwnd_limited: true }
}

fn after_loss_at(window: u32) -> Reno {
    let mut reno = Reno::new(MSS);
    reno.on_ack(ack(window - reno.window()));
    reno.on_congestion(Instant::ZERO, window);
    reno.on_recovered(Instant::ZERO);
    reno
}

#[test]
fn a_loss_halves_what_was_in_flight() {
    let reno = after_loss_at(40_000);
    assert_eq!((reno.window(), reno.slow_start_threshold()), (20_000, 20_000));
}

#[test]
fn congestion_avoidance_is_one_segment_per_window() {
    let mut reno = after_loss_at(40_000);
    for round in 1..=10 {
        let window = reno.window();
        // As segments, then the rest as crumbs: only the bytes count.
        for _ in 0..window / MSS - 1 {
            reno.on_ack(ack(MSS));
        }
        assert_eq!(reno.window(), window);
        for _ in 0..MSS {
            reno.on_ack(ack(1));
        }
        assert_eq!(reno.window(), 20_000 + round * MSS);
    }
}

#[test]
fn what_is_less_than_a_segment_costs_no_round_trip() {
    let mut reno = after_loss_at(19_999);
    assert_eq!(reno.window(), 9_999);
    for round in 1..=10 {
        for _ in 0..reno.window() / MSS {
            reno.on_ack(ack(MSS));
        }
        assert_eq!(reno.window(), 9_999 + round * MSS);
    }
}

#[test]
fn one_ack_crosses_the_threshold_and_is_counted_on_both_sides() {
    let mut reno = Reno::new(MSS);
    reno.on_timeout(Instant::ZERO, 10_000);
    assert_eq!((reno.window(), reno.slow_start_threshold()), (1_000, 5_000));
    // 4000 up to the threshold, 5000 of avoidance: a window's worth.
    reno.on_ack(ack(9_000));
    assert_eq!(reno.window(), 6_000);
    // However much one ACK covers, one segment.
    reno.on_ack(ack(1_000_000));
    assert_eq!(reno.window(), 7_000);
}

/// RFC 3465 section 2.1: what was acknowledged before a loss, or a pause, opened a window that is gone.
#[test]
fn what_was_acknowledged_before_a_loss_counts_for_nothing_behind_it() {
    let lost = |reno: &mut Reno| {
        reno.on_congestion(Instant::ZERO, 20_000);
        reno.on_recovered(Instant::ZERO);
    };
    let timed_out = |reno: &mut Reno| {
        reno.on_timeout(Instant::ZERO, 20_000);
        reno.on_ack(ack(9_000)); // up to the threshold
    };
    let paused = |reno: &mut Reno| {
        reno.on_idle(2_000_000, 1_000_000);
        reno.on_ack(ack(reno.slow_start_threshold() - reno.window()));
    };
    for happens in [&lost as &dyn Fn(&mut Reno), &timed_out, &paused] {
        let mut reno = after_loss_at(40_000);
        reno.on_ack(ack(19_999));
        happens(&mut reno);
        reno.on_ack(ack(1));
        assert_eq!(reno.window(), reno.slow_start_threshold());
    }
}

/// It is the echo of an older, larger window: it is worth a segment, and nearly another one, and no more.
#[test]
fn an_ack_of_many_windows_is_worth_two() {
    let mut reno = after_loss_at(40_000);
    reno.on_ack(ack(200_000));
    assert_eq!(reno.window(), 21_000);
    reno.on_ack(ack(1_000));
    assert_eq!(reno.window(), 22_000);
    (0..10).for_each(|_| reno.on_ack(ack(1_000)));
    assert_eq!(reno.window(), 22_000);
}
