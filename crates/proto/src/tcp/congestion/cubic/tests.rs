use proptest::prelude::*;

use super::super::Acked;
use super::*;

const MSS: u32 = 1_000;

/// One sender whose every segment is acknowledged, under a clock.
struct Path {
    cubic: Cubic,
    now_us: u64,
    rtt_us: u32,
}

impl Path {
    /// Recovered from a loss at a window of `segments`.
    fn after_loss_at(segments: u32, rtt_us: u32) -> Path {
        let mut path = Path { cubic: Cubic::new(MSS), now_us: 1_000_000, rtt_us };
        path.ack((segments - 10) * MSS, true);
        path.lose();
        path
    }

    fn ack(&mut self, bytes: u32, is_cwnd_limited: bool) {
        let now = Instant::from_us(self.now_us);
        self.cubic.on_ack(Acked { now, bytes, in_flight: self.cubic.window(), srtt_us: self.rtt_us, is_cwnd_limited });
    }

    fn lose(&mut self) {
        let now = Instant::from_us(self.now_us);
        self.cubic.on_congestion(now, self.cubic.window());
        self.cubic.on_recovered(now);
    }

    /// One round trip: a window of segments, evenly spaced.
    fn round(&mut self) {
        let segments = self.cubic.window() / MSS;
        let start_us = self.now_us;
        for i in 1..=segments {
            self.now_us = start_us + u64::from(self.rtt_us) * u64::from(i) / u64::from(segments);
            self.ack(MSS, true);
        }
    }

    fn segments(&self) -> f64 {
        f64::from(self.cubic.window()) / f64::from(MSS)
    }
}

/// W_cubic(t) of RFC 9438 section 4.2, in segments and seconds.
fn w_cubic(t: f64, cwnd_epoch: f64, w_max: f64) -> f64 {
    let k = ((w_max - cwnd_epoch) / 0.4).cbrt();
    0.4 * (t - k).powi(3) + w_max
}

#[test]
fn a_loss_takes_thirty_per_cent() {
    let path = Path::after_loss_at(1_000, 100_000);
    assert_eq!((path.cubic.window(), path.cubic.slow_start_threshold()), (700 * MSS, 700 * MSS));
}

#[test]
fn follows_the_curve() {
    // Windows so large, or round trips so long, that Reno would be slower throughout.
    for (segments, rtt_us) in [(1_000, 100_000), (400, 200_000), (5_000, 50_000)] {
        let mut path = Path::after_loss_at(segments, rtt_us);
        let w_max = f64::from(segments);
        // The epoch starts with the first ACK.
        path.ack(1, true);
        let start_us = path.now_us;
        let k = (w_max * 0.3 / 0.4).cbrt();
        let mut t = 0.0;
        while t < 2.0 * k {
            path.round();
            t = (path.now_us - start_us) as f64 / 1e6;
            let (have, want) = (path.segments(), w_cubic(t, 0.7 * w_max, w_max));
            // The window aims at the curve one round trip ahead, and gets there one round trip later.
            assert!((have - want).abs() < 0.012 * want + 1.0, "{segments} at {t:.1} s: {have:.1}, not {want:.1}");
        }
        assert!(path.segments() > 1.2 * w_max, "beyond the maximum the curve is convex");
    }
}

#[test]
fn is_no_slower_than_reno_on_short_paths() {
    // 40 segments and 10 ms: the curve would need three seconds to come back.
    let mut path = Path::after_loss_at(40, 10_000);
    let mut rounds = 0;
    while path.segments() < 40.0 {
        path.round();
        rounds += 1;
    }
    // 12 segments at α = 9/17 a round.
    assert!((20..=26).contains(&rounds), "{rounds}");
    // Once there, one segment a round as Reno.
    for _ in 0..20 {
        path.round();
    }
    assert!((57.0..=63.0).contains(&path.segments()), "{}", path.segments());
}

#[test]
fn what_is_less_than_a_segment_costs_no_round_trip() {
    let mut path = Path::after_loss_at(14, 1_000);
    while path.segments() < 14.0 {
        path.round();
    }
    let begin = path.cubic.window();
    assert_eq!(begin % MSS, 800);
    for round in 1..=20 {
        path.round();
        assert_eq!(path.cubic.window(), begin + round * MSS);
    }
}

#[test]
fn who_loses_early_gives_way() {
    let mut path = Path::after_loss_at(1_000, 100_000);
    assert_eq!(path.cubic.w_max, 1_000 * MSS);
    path.lose();
    // Lost again at 700, below the maximum: W_max = 700 · (1 + 0.7) / 2.
    assert_eq!((path.cubic.window(), path.cubic.w_max), (490 * MSS, 595 * MSS));
}

#[test]
fn a_pause_is_not_on_the_curve() {
    let mut steady = Path::after_loss_at(1_000, 100_000);
    let mut pausing = Path::after_loss_at(1_000, 100_000);
    for _ in 0..20 {
        steady.round();
        pausing.round();
    }
    // Ten seconds with little to send, then a short idle time.
    for _ in 0..100 {
        pausing.now_us += 100_000;
        pausing.ack(MSS, false);
    }
    pausing.now_us += 150_000;
    pausing.cubic.on_idle(150_000, 200_000);
    for _ in 0..20 {
        steady.round();
        pausing.round();
        assert!((steady.segments() - pausing.segments()).abs() < 2.0);
    }
}

#[test]
fn grows_by_half_a_window_per_round_trip_at_most() {
    let mut path = Path::after_loss_at(100, 100_000);
    path.ack(1, true);
    // A clock that jumps: the curve is at the sky.
    path.now_us += 3_600_000_000;
    path.ack(1, true);
    for _ in 0..5 {
        let before = path.segments();
        // A window's bytes, whatever the ACKs.
        let bytes = path.cubic.window();
        path.ack(bytes, true);
        assert!(path.segments() <= 1.5 * before + 1.0);
    }
}

#[test]
fn after_a_timeout_the_curve_starts_flat() {
    let mut path = Path::after_loss_at(1_000, 100_000);
    path.cubic.on_timeout(Instant::from_us(path.now_us), 700 * MSS);
    assert_eq!((path.cubic.window(), path.cubic.slow_start_threshold()), (MSS, 490 * MSS));
    // Slow start up to the threshold, exactly.
    path.ack(489 * MSS, true);
    assert_eq!(path.cubic.window(), 490 * MSS);
    path.cubic.on_recovered(Instant::from_us(path.now_us));
    path.ack(MSS, true);
    assert_eq!((path.cubic.k_ticks, path.cubic.w_max), (0, 490 * MSS));
    let start_us = path.now_us;
    for _ in 0..50 {
        path.round();
    }
    let t = (path.now_us - start_us) as f64 / 1e6;
    // Reno's share, 9/17 a round, or the curve: whichever is larger.
    let want = w_cubic(t, 490.0, 490.0).max(490.0 + 50.0 * 9.0 / 17.0);
    assert!((path.segments() - want).abs() < 0.02 * want, "{} not {want}", path.segments());
}

#[test]
fn undo_continues_where_the_curve_was() {
    let mut path = Path::after_loss_at(1_000, 100_000);
    for _ in 0..30 {
        path.round();
    }
    let window = path.cubic.window();
    let now = Instant::from_us(path.now_us);
    path.cubic.on_congestion(now, window);
    path.cubic.undo();
    path.cubic.on_recovered(now);
    assert_eq!((path.cubic.window(), path.cubic.w_max), (window, 1_000 * MSS));
    path.ack(1, true);
    let k = (f64::from(1_000 * MSS - window) / f64::from(MSS) / 0.4).cbrt();
    assert!((f64::from(path.cubic.k_ticks) / 1024.0 - k).abs() < 0.01);
}

#[test]
fn cube_roots() {
    for (n, root) in [(0, 0), (1, 1), (7, 1), (8, 2), (26, 2), (27, 3), (1 << 60, 1 << 20), ((1 << 62) - 1, 1_664_510)]
    {
        assert_eq!(cube_root(n), root, "{n}");
    }
}

proptest! {
    #[test]
    fn cube_root_is_the_floor(n in 0u64..1 << 62) {
        let root = u128::from(cube_root(n));
        prop_assert!(root.pow(3) <= u128::from(n) && u128::from(n) < (root + 1).pow(3));
    }

    /// The integers against the formula.
    #[test]
    fn climbs_as_the_formula_says(ticks in 0u64..1 << 18, mss in 1u32..=65_535) {
        let want = 0.4 * (ticks as f64 / 1024.0).powi(3) * f64::from(mss);
        prop_assert!((f64::from(climb(ticks, mss)) - want.min(f64::from(u32::MAX))).abs() <= want * 1e-6 + f64::from(mss) * 1e-6 + 1.0);
    }

    #[test]
    fn time_to_climb_is_its_inverse(bytes in 0u32..=WINDOW_MAX, mss in 64u32..=65_535) {
        let ticks = f64::from(ticks_to_climb(bytes, mss));
        let want = (f64::from(bytes) / f64::from(mss) / 0.4).cbrt() * 1024.0;
        prop_assert!((ticks - want).abs() <= 1.0 + want * 1e-9);
    }
}
