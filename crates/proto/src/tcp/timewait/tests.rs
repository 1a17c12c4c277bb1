use super::super::connection::tests::agreed;
use super::*;

const MSL_US: u64 = 30_000_000;
const NOW: Instant = Instant::from_us(500_000_000);

fn record(timestamps: bool) -> TimeWaitV4 {
    let memory = Memory {
        snd_nxt: SeqNum::new(1_000),
        rcv_nxt: SeqNum::new(9_000),
        ts_recent: 70,
        since_ms: NOW.as_ms() as u32,
        window: UnscaledWindow::new(5),
        answered_ms: (NOW.as_ms() as u16).wrapping_sub(u16::MAX / 2),
        timestamps,
        dead: false,
        restarted: false,
        tag: 0,
    };
    TimeWaitV4::from_parts(&agreed().key, Parts(memory))
}

fn segment(flags: Flags, seq: u32, ack: u32, stamp: Option<u32>) -> Segment<'static> {
    let timestamps = stamp.map(|val| Timestamps { val, echo: 0 });
    Segment {
        src_port: 2,
        dst_port: 1,
        seq: SeqNum::new(seq),
        ack: SeqNum::new(ack),
        flags,
        window: UnscaledWindow::new(1),
        urgent: 0,
        options: Options { timestamps, ..Options::default() },
        payload: &[],
    }
}

fn outcome(record: &TimeWaitV4, seg: &Segment<'_>) -> Outcome {
    { *record }.on_segment(seg, || 5, &Config::default(), NOW.after_us(1_000_000))
}

#[test]
fn the_wait_lasts_twice_the_lifetime_of_a_segment_and_is_told_in_milliseconds() {
    let record = record(true);
    assert_eq!(record.left_ms(NOW, MSL_US), 60_000);
    assert_eq!(record.left_ms(NOW.after_us(1_000_000), MSL_US), 59_000);
    assert_eq!(record.left_ms(NOW.after_us(70_000_000), MSL_US), 0);
    // Made at the end of a millisecond it has to wait for the whole of 2·MSL, too.
    assert!(!record.is_expired(NOW.after_us(60_000_000), MSL_US));
    assert!(record.is_expired(NOW.after_us(60_001_000), MSL_US));
}

#[test]
fn our_own_open_takes_the_flow_over_once_its_timestamps_are_newer() {
    let at = |ms: u64| NOW.after_us(ms * 1_000);
    assert_eq!(record(true).reusable(at(999), 1_000), None);
    assert_eq!(record(true).reusable(at(1_000), 1_000), Some(SeqNum::new(1_000)));
    // In the same millisecond its first timestamp might be the last one of the old connection.
    assert_eq!(record(true).reusable(at(0), 0), None);
    assert_eq!(record(true).reusable(at(1), 0), Some(SeqNum::new(1_000)));
    assert_eq!(record(false).reusable(at(50_000), 0), None, "nothing tells old segments from new ones");
}

#[test]
fn a_syn_takes_the_flow_over_by_its_timestamp_and_else_by_its_number() {
    let reuses = |stamps, seq, stamp| matches!(outcome(&record(stamps), &segment(Flags::SYN, seq, 0, stamp)), Outcome::Reuse(iss) if iss == SeqNum::new(1_000));
    assert!(reuses(true, 1, Some(71)), "a newer timestamp, whatever the number");
    assert!(!reuses(true, 20_000, Some(69)), "an older one, whatever the number");
    assert!(reuses(true, 9_001, Some(70)) && !reuses(true, 9_000, Some(70)), "as old: the number says");
    assert!(reuses(false, 8_999, Some(1)), "the first one, whatever the number");
    assert!(reuses(false, 9_001, None) && !reuses(false, 8_999, None), "none: the number says");
    assert!(reuses(true, 9_001, None) && !reuses(true, 8_999, None));
    assert!(!matches!(
        outcome(&record(true), &segment(Flags::SYN | Flags::ACK, 9_001, 0, Some(71))),
        Outcome::Reuse(_)
    ));
}

#[test]
fn nothing_that_is_old_or_says_nothing_new_is_answered() {
    let ignored = |seg| match outcome(&record(true), &seg) {
        Outcome::Ignore(discard) => Some(discard),
        _ => None,
    };
    assert_eq!(ignored(segment(Flags::RST, 9_000, 0, None)), Some(Discard::TcpTimeWaitRst));
    assert_eq!(ignored(segment(Flags::ACK, 9_000, 1_000, Some(69))), Some(Discard::TcpPaws));
    assert_eq!(ignored(segment(Flags::ACK, 9_000, 1_000, Some(70))), Some(Discard::TcpTimeWait));
    assert_eq!(ignored(segment(Flags::ACK, 9_000, 999, Some(71))), Some(Discard::TcpTimeWait));
    assert_eq!(ignored(segment(Flags::ACK, 9_000, 1_001, Some(71))), None, "acknowledges what was never sent");
    assert_eq!(ignored(segment(Flags::ACK, 9_001, 1_000, Some(71))), None, "stands elsewhere");
    assert_eq!(ignored(segment(Flags::FIN | Flags::ACK, 8_999, 1_000, Some(69))), None, "occupies sequence space");
}

#[test]
fn a_repeated_fin_is_acknowledged_and_starts_the_wait_anew() {
    let answer = |stamps, seq| match outcome(&record(stamps), &segment(Flags::FIN | Flags::ACK, seq, 1_000, Some(80))) {
        Outcome::Answer { header, restart } => (header, restart),
        _ => panic!("a FIN is answered"),
    };
    let (header, restart) = answer(true, 8_999);
    assert!(restart);
    assert_eq!((header.seq, header.ack, header.flags), (SeqNum::new(1_000), SeqNum::new(9_000), Flags::ACK));
    assert_eq!((header.src_port, header.dst_port, header.window), (1, 2, UnscaledWindow::new(5)));
    let val = (NOW.as_ms() + 1_000) as u32 + 5;
    assert_eq!(header.options.timestamps, Some(Timestamps { val, echo: 70 }));
    let (header, restart) = answer(false, 8_998);
    assert!(!restart, "a FIN at another place is not the one that was taken in");
    assert_eq!(header.options.timestamps, None);

    let mut record = record(true);
    record.restart(NOW.after_us(10_000_000));
    assert_eq!(record.left_ms(NOW.after_us(10_000_000), MSL_US), 60_000);
    assert!(record.take_restarted() && !record.take_restarted());
}

/// It is of its flow, and of none that is another in any one part.
fn knows_its_flow<R: TimeWait>(flow: FlowKey, other: Address, stranger: Address) {
    let record = R::from_parts(&flow, *record(true).parts());
    assert!(record.is_of(&flow));
    assert_eq!(record.key(), flow);
    let others = [
        FlowKey { local: other, ..flow },
        FlowKey { remote: other, ..flow },
        FlowKey { local_port: flow.local_port + 1, ..flow },
        FlowKey { remote_port: flow.remote_port + 1, ..flow },
        FlowKey { local: stranger, remote: stranger, ..flow },
        flow.reversed(),
    ];
    for another in others {
        assert!(!record.is_of(&another), "{another:?} is not {flow:?}");
    }
}

#[test]
fn a_record_knows_its_flow_whichever_family_it_is_of() {
    let v4 = |last| Address::from_v4([10, 0, 0, last]);
    let v6 = |last| Address::from_v6(core::array::from_fn(|i| if i == 15 { last } else { 0x20 }));
    let flow = |local, remote| FlowKey { local, remote, local_port: 1, remote_port: 2 };
    knows_its_flow::<TimeWaitV4>(flow(v4(1), v4(2)), v4(3), v6(1));
    knows_its_flow::<TimeWaitV6>(flow(v6(1), v6(2)), v6(3), v4(1));
}

#[test]
fn what_its_keeper_does_with_a_record_stays_with_it() {
    let mut kept = record(true);
    kept.parts_mut().0.tag = 7;
    assert!(kept.has_timestamps() && !record(false).has_timestamps());
    assert!(!kept.is_dead());
    kept.kill();
    assert!(kept.is_dead());
    assert_eq!(kept.tag(), 7);
    assert_eq!(kept.age_ms(NOW.after_us(3_000)), 3);
}

#[test]
fn two_that_disagree_answer_each_other_now_and_then_and_not_for_ever() {
    let of = |snd_nxt, rcv_nxt| {
        let mut record = record(false);
        (record.memory.0.snd_nxt, record.memory.0.rcv_nxt) = (SeqNum::new(snd_nxt), SeqNum::new(rcv_nxt));
        record
    };
    // Each has been told ten bytes more than the other has said.
    let mut ends = [of(1_000, 9_000), of(8_990, 990)];
    let unlimited = Config { tcp_invalid_ratelimit_us: 0, ..Config::default() };
    for (config, most) in [(Config::default(), 20), (unlimited, 50)] {
        let mut said = segment(Flags::ACK, 8_990, 990, None);
        let mut answers = 0;
        for round in 0..10_000u64 {
            let now = NOW.after_us(1_000_000 + round * 1_000);
            let heard = &mut ends[(round % 2) as usize];
            if let Outcome::Answer { header, .. } = heard.on_segment(&said, || 0, &config, now) {
                said = segment(header.flags, header.seq.raw(), header.ack.raw(), None);
                answers += 1;
            }
        }
        assert!((1..=2 * most).contains(&answers), "{answers} answers in ten seconds");
    }
    let mut record = record(false);
    for ms in 0..10 {
        let now = NOW.after_us(1_000_000 + ms * 1_000);
        let fin = segment(Flags::FIN | Flags::ACK, 8_999, 1_000, None);
        let outcome = record.on_segment(&fin, || 0, &Config::default(), now);
        assert!(matches!(outcome, Outcome::Answer { restart: true, .. }), "a FIN is answered as often as it comes");
    }
}

/// A connection that began with a cookie of somebody who did not know of the record takes the flow over if nothing that is left of the former one can be
/// taken for its own, in either direction.
#[test]
fn a_cookie_takes_the_flow_over_if_both_directions_are_newer() {
    const OFFSET: u32 = 5;
    let since = NOW.as_ms() as u32;
    // Timestamps count, where there are some: the peer's by themselves, ours less what a cookie sets them back.
    let yields = |timestamps, seq: u32, ack: u32, stamps: Option<(u32, u32)>| {
        let mut segment = segment(Flags::ACK, seq, ack, None);
        segment.options.timestamps = stamps.map(|(val, ours)| Timestamps { val, echo: ours.wrapping_add(OFFSET) });
        record(timestamps).yields_to_cookie(&segment, OFFSET)
    };
    assert!(yields(true, 1, 1, Some((71, since))));
    assert!(!yields(true, 1, 1, Some((70, since))), "the peer's is not newer");
    assert!(yields(true, 9_002, 1, Some((70, since))), "but its sequence numbers are beyond");
    assert!(!yields(true, 9_002, 1, Some((69, since))), "it is older");
    assert!(yields(true, 1, 1, Some((71, since - cookie::TS_BACK_MS))), "it may have been sent as late as that");
    assert!(!yields(true, 1, 1, Some((71, since - cookie::TS_BACK_MS - 1))));
    // Else sequence numbers.
    for (timestamps, stamps) in [(true, None), (false, None), (false, Some((71, since)))] {
        assert!(yields(timestamps, 9_002, 1_002, stamps));
        assert!(!yields(timestamps, 9_001, 1_002, stamps));
        assert!(!yields(timestamps, 9_002, 1_001, stamps));
    }
}
