use super::*;

fn at(ms: u64) -> Instant {
    Instant::from_us(ms * 1_000)
}

fn seq(raw: u32) -> Option<SeqNum> {
    Some(SeqNum::new(raw))
}

#[test]
fn what_is_missing_has_its_whole_time() {
    let mut clock = GapClock::new();
    assert_eq!((clock.runs(), clock.overdue()), (false, None));
    assert_eq!(clock.end_after(10_000, at(0), seq(100)), None, "it begins");
    assert_eq!(clock.end_after(10_000, at(9), seq(500)), None);
    assert_eq!((clock.runs(), clock.overdue()), (true, None));
    // What was noticed after it had begun has no less time than the rest.
    assert_eq!(clock.end_after(10_000, at(10), seq(700)), seq(100));
    assert_eq!(clock.overdue(), seq(100));
    assert_eq!(clock.end_after(10_000, at(19), seq(900)), None);
    assert_eq!(clock.end_after(10_000, at(30), seq(900)), seq(700));
    assert_eq!(clock.overdue(), seq(700));
    clock.forgive();
    assert_eq!((clock.runs(), clock.overdue()), (true, None));
}

#[test]
fn nothing_that_is_overdue_is_in_time_again() {
    let mut clock = GapClock::new();
    clock.presume_lost(seq(300));
    clock.begin(at(0), seq(200));
    assert_eq!(clock.end(at(1), seq(200)), seq(200));
    assert_eq!(clock.overdue(), seq(300));
    // Without anything that was reported there is no gap.
    clock.begin(at(2), None);
    assert!(!clock.runs());
    // Whoever ends it before it has begun means all.
    assert_eq!(clock.end(at(3), seq(400)), seq(400));
    assert_eq!(clock.overdue(), seq(400));
}
