use super::*;

const BYTES: u32 = 1_000;

/// A sender whose window is acknowledged in rounds of ten.
struct Sender {
    hystart: HyStart,
    una: SeqNum,
}

impl Sender {
    fn new() -> Self {
        let una = SeqNum::new(u32::MAX - 15_000); // the numbers wrap in the second round
        Sender { hystart: HyStart::new(una), una }
    }

    /// A round of ten ACKs, behind the last of which the next is under way. What each was worth, and whether slow start was over in it.
    fn round(&mut self, rtt_ms: [Option<u32>; 10]) -> ([u32; 10], bool) {
        let (end, mut is_over) = (self.una + 10 * BYTES, false);
        let worth = rtt_ms.map(|rtt_ms| {
            self.una = self.una + BYTES;
            let nxt = if self.una == end { end + 10 * BYTES } else { end };
            let growth = self.hystart.on_ack(self.una, nxt, BYTES, rtt_ms);
            is_over |= growth.is_over;
            growth.bytes
        });
        (worth, is_over)
    }

    fn steady(&mut self, rtt_ms: u32) -> ([u32; 10], bool) {
        self.round([Some(rtt_ms); 10])
    }
}

const FULL: [u32; 10] = [BYTES; 10];
const QUARTER: [u32; 10] = [BYTES / 4; 10];
/// What the round of the discovery is worth: the eighth sample tells.
const FOUND: [u32; 10] = [1_000, 1_000, 1_000, 1_000, 1_000, 1_000, 1_000, 250, 250, 250];

#[test]
fn goes_on_where_the_round_trip_stays() {
    let mut sender = Sender::new();
    for rtt_ms in [40, 40, 44, 42, 44, 48, 52, 56] {
        assert_eq!(sender.steady(rtt_ms), (FULL, false), "less than an eighth from one round to the next");
    }
}

#[test]
fn a_queue_slows_it_down_and_five_rounds_later_it_is_over() {
    let mut sender = Sender::new();
    assert_eq!(sender.steady(40), (FULL, false));
    assert_eq!(sender.steady(45), (FOUND, false));
    for _ in 0..3 {
        assert_eq!(sender.steady(60), (QUARTER, false));
    }
    assert_eq!(sender.steady(60), (QUARTER, true), "the rest of the second counted as a round");
}

#[test]
fn a_round_trip_that_becomes_shorter_again_was_no_queue() {
    let mut sender = Sender::new();
    sender.steady(40);
    sender.steady(60);
    assert_eq!(sender.steady(60), (QUARTER, false), "as long as what began it");
    let worth = [250, 250, 250, 250, 250, 250, 250, 1_000, 1_000, 1_000];
    assert_eq!(sender.steady(59), (worth, false));
    assert_eq!(sender.steady(66), (FOUND, false), "and is looked for as before");
    for _ in 0..3 {
        assert!(!sender.steady(66).1, "with five rounds of its own");
    }
    assert!(sender.steady(66).1);
}

#[test]
fn the_threshold_is_an_eighth_between_four_and_sixteen_milliseconds() {
    for (before, thresh) in [(0, 4), (1, 4), (32, 4), (80, 10), (128, 16), (1_000, 16), (60_000, 16)] {
        for (after, is_found) in [(before + thresh - 1, false), (before + thresh, true)] {
            let mut sender = Sender::new();
            sender.steady(before);
            assert_eq!(sender.steady(after).0[9] < BYTES, is_found, "{before} to {after} ms");
        }
    }
}

#[test]
fn the_smallest_of_a_round_counts() {
    let mut sender = Sender::new();
    sender.steady(40);
    let mut jitter = [Some(90); 10];
    jitter[3] = Some(41);
    assert_eq!(sender.round(jitter), (FULL, false));
}

#[test]
fn few_samples_say_nothing() {
    let mut few = [Some(90); 10];
    few[..3].fill(None);
    let mut sender = Sender::new();
    sender.steady(40);
    assert_eq!(sender.round(few), (FULL, false), "seven");
    assert_eq!(sender.round([None; 10]), (FULL, false));
    assert_eq!(sender.steady(1_000), (FULL, false), "and there is nothing to compare with after a round without any");
    assert_eq!(sender.steady(1_016).0, FOUND);
}

#[test]
fn what_a_peer_makes_up_is_a_long_round_trip() {
    let mut sender = Sender::new();
    sender.steady(u32::MAX);
    assert_eq!(sender.steady(u32::MAX), (FULL, false));
    sender.steady(1);
    assert_eq!(sender.steady(u32::MAX).0, FOUND);
}

/// A round that is acknowledged before anything follows goes on with what follows, and does not end anew with its first ACK.
#[test]
fn who_sends_in_bursts_has_a_round_for_each() {
    let (mut hystart, mut una) = (HyStart::new(SeqNum::new(0)), SeqNum::new(0));
    let mut burst = |rtt_ms| {
        let nxt = una + 20 * BYTES;
        let mut worth = 0;
        while una != nxt {
            una = una + BYTES;
            worth += hystart.on_ack(una, nxt, BYTES, Some(rtt_ms)).bytes;
        }
        worth
    };
    assert_eq!((burst(40), burst(42)), (20_000, 20_000));
    assert_eq!(burst(50), 8_000 + 12 * 250);
}
