use super::super::connection::tests::{ISS, agreed, established, text};
use super::text::{CONVERSATION, LATE_ANSWER_US, PATIENT_ANSWER_US};
use super::*;
use crate::tcp::buffer::BufferPool;
use crate::tcp::config::Config;
use crate::tcp::connection::Agreed;
use crate::tcp::nagle::Lane;
use laneway_wire::tcp::{Options, Timestamps};

const NOW: Instant = Instant::from_us(5_000_000);

fn pool() -> BufferPool {
    BufferPool::new(1 << 26)
}

/// Takes a segment in; the application reads all of its text.
fn take_in(connection: &mut Connection, seg: &Segment<'_>, size: usize, pool: &mut BufferPool, now: Instant) {
    let config = Config::default();
    let mut cx = Cx { now, config: &config, pool };
    let mut arrival = Arrival::default();
    connection.on_unexpected(seg, size, &mut cx, &mut arrival);
    connection.finish(&arrival, arrival.text.len(), &mut cx);
}

#[test]
fn what_was_merged_counts_as_the_segments_that_the_network_carried() {
    let (mut connection, mut pool) = (established(&Config::default(), NOW), pool());
    for (len, size, segments) in [(100, 100, 1), (2_500, 1_000, 3), (3_000, 1_000, 3), (0, 0, 1)] {
        let before = connection.info(NOW).segs_in;
        let payload = vec![1; len];
        let seg = text(&connection, &payload);
        take_in(&mut connection, &seg, size, &mut pool, NOW);
        assert_eq!(connection.info(NOW).segs_in - before, segments, "{len} bytes in pieces of {size}");
    }
    connection.count_superseded();
    assert_eq!(connection.info(NOW).segs_in, 9);
}

/// Who closes while he is shown text, and does not take all of it, has closed with bytes unread. They were kept for nobody, and the
/// connection with them.
#[test]
fn closed_in_the_middle_of_text_is_a_reset() {
    let config = Config::default();
    for (taken, fin, reset) in [(4, false, true), (4, true, true), (0, true, true), (10, true, false)] {
        let (mut connection, mut pool) = (established(&config, NOW), pool());
        let flags = if fin { Flags::ACK | Flags::FIN } else { Flags::ACK };
        let seg = Segment { flags, ..text(&connection, &[7; 10]) };
        let mut cx = Cx { now: NOW, config: &config, pool: &mut pool };
        let mut arrival = Arrival::default();
        connection.on_unexpected(&seg, 10, &mut cx, &mut arrival);
        connection.close(&mut cx);
        let closed = connection.finish(&arrival, taken, &mut cx);
        assert_eq!((connection.state() == State::Closed, closed), (reset, !reset), "{taken} taken");
        assert_eq!(connection.buffered(), 0);
        let plan = connection.decide::<Lane>(NOW).expect("something is said");
        assert_eq!(plan.flags.rst(), reset);
        if reset {
            let _ = connection.commit(&plan, NOW);
            assert!(connection.is_finished());
        }
    }
}

/// Until the poll ends a connection that was reset is still there. It is nobody's any more, and that is what it says.
#[test]
fn what_comes_behind_a_reset_is_for_nobody() {
    let config = Config::default();
    let (mut connection, mut pool) = (established(&config, NOW), pool());
    let mut cx = Cx { now: NOW, config: &config, pool: &mut pool };
    let ack = text(&connection, &[1; 10]);
    let reset = Segment { flags: Flags::RST, payload: &[], ..ack };
    assert_eq!(connection.on_segment(&reset, &mut cx).discard, None);
    assert_eq!(connection.state(), State::Closed);
    for (flags, discard) in [
        (Flags::ACK, Some(Discard::TcpNoConnection)),
        (Flags::ACK | Flags::FIN, Some(Discard::TcpNoConnection)),
        // An open waits for the next poll, and then it is one.
        (Flags::SYN, Some(Discard::TcpSynChallenged)),
    ] {
        let arrival = connection.on_segment(&Segment { flags, ..ack }, &mut cx);
        assert_eq!((arrival.discard, arrival.text.len()), (discard, 0), "{flags:?}");
    }
}

#[test]
fn the_urgent_pointer_moves_forward_and_never_back() {
    let (mut connection, mut pool) = (established(&Config::default(), NOW), pool());
    let mut urgent = |connection: &mut Connection, ahead| {
        let seg = Segment { flags: Flags::ACK | Flags::URG, urgent: ahead, ..text(connection, &[]) };
        take_in(connection, &seg, 0, &mut pool, NOW);
        connection.urgent_ahead()
    };
    assert_eq!(urgent(&mut connection, 0), None, "nothing is ahead");
    assert_eq!(urgent(&mut connection, 100), Some(100));
    assert_eq!(urgent(&mut connection, 40), Some(100), "an older announcement");
    assert_eq!(urgent(&mut connection, 140), Some(140));
}

/// Half a circle behind the mark it lies ahead again, if nobody has taken it away.
#[test]
fn an_urgent_mark_that_was_passed_does_not_come_back() {
    let (mut connection, mut pool) = (established(&Config::default(), NOW), pool());
    let bytes = vec![7; 50_000];
    let announce = |connection: &mut Connection, pool: &mut BufferPool| {
        let seg = Segment { flags: Flags::ACK | Flags::URG, urgent: 100, ..text(connection, &[]) };
        take_in(connection, &seg, 0, pool, NOW);
        assert_eq!(connection.urgent_ahead(), Some(100));
    };
    announce(&mut connection, &mut pool);
    for _ in 0..(1_u32 << 31) / 50_000 + 2 {
        let seg = text(&connection, &bytes);
        take_in(&mut connection, &seg, 50_000, &mut pool, NOW);
        assert_eq!(connection.urgent_ahead(), None);
        while let Some(plan) = connection.decide::<Lane>(NOW) {
            connection.commit(&plan, NOW);
        }
    }
    assert!(connection.info(NOW).bytes_received > 1 << 31);
    announce(&mut connection, &mut pool);
}

#[test]
fn more_text_of_a_run_is_taken_in_where_it_follows() {
    let (mut connection, mut pool) = (established(&Config::default(), NOW), pool());
    let config = Config::default();
    let bytes = [3; 200];
    let first = text(&connection, &bytes);
    take_in(&mut connection, &first, 200, &mut pool, NOW);
    let mut cx = Cx { now: NOW, config: &config, pool: &mut pool };
    let next = MoreText { seq: first.end(), text: &bytes, size: 100, pushed: false };
    let arrival = connection.on_more_text(&next, &mut cx).expect("it follows");
    assert_eq!(arrival.text, bytes);
    connection.finish(&arrival, 200, &mut cx);
    assert_eq!(connection.sequence().2, first.end() + 200);
    assert_eq!(connection.info(NOW).segs_in, 3);
    assert!(connection.on_more_text(&next, &mut cx).is_none(), "that was taken in");

    let next = MoreText { seq: next.seq + 200, ..next };
    let ahead = MoreText { seq: next.seq + 1, ..next };
    assert!(connection.on_more_text(&ahead, &mut cx).is_none(), "a byte is missing");
    let edge = connection.right_edge().offset_from(next.seq) as usize;
    let wide = vec![0; edge + 1];
    assert!(connection.on_more_text(&MoreText { text: &wide, ..next }, &mut cx).is_none(), "beyond the window");
    for fact in [Facts::RECEIVE_SHUT, Facts::FIN_SEEN] {
        connection.facts.set(fact);
        assert!(connection.on_more_text(&next, &mut cx).is_none());
        connection.facts.clear(fact);
    }
    assert!(connection.on_more_text(&next, &mut cx).is_some());
}

/// The peer asks, and is answered in its turn.
fn exchange(connection: &mut Connection, pool: &mut BufferPool, now: Instant) {
    let config = Config::default();
    let ask = Segment { flags: Flags::ACK | Flags::PSH, ..text(connection, b"?") };
    take_in(connection, &ask, 1, pool, now);
    connection.send(b"!", &mut Cx { now, config: &config, pool });
    while let Some(plan) = connection.decide::<Lane>(now) {
        connection.commit(&plan, now);
    }
    let heard = text(connection, &[]);
    take_in(connection, &heard, 0, pool, now);
}

#[test]
fn whoever_has_long_spoken_in_turns_is_waited_for_longer() {
    let (mut connection, mut pool) = (established(&Config::default(), NOW), pool());
    connection.rcv.quick_acks = 0;
    connection.set_answers_later(true);
    let ask_with = |connection: &mut Connection, pool: &mut BufferPool, said: &[u8]| {
        let ask = Segment { flags: Flags::ACK | Flags::PSH, ..text(connection, said) };
        take_in(connection, &ask, said.len(), pool, NOW);
        connection.delack_at.since_us(NOW)
    };
    let ask = |connection: &mut Connection, pool: &mut BufferPool| ask_with(connection, pool, b"?");
    let converse = |connection: &mut Connection, pool: &mut BufferPool, exchanges| {
        for _ in 0..exchanges {
            exchange(connection, pool, NOW);
        }
    };
    converse(&mut connection, &mut pool, CONVERSATION - 1);
    assert_eq!(ask(&mut connection, &mut pool), LATE_ANSWER_US);
    assert_eq!(ask(&mut connection, &mut pool), LATE_ANSWER_US, "it has spoken twice, and all is forgotten");
    converse(&mut connection, &mut pool, CONVERSATION + 1);
    assert_eq!(ask(&mut connection, &mut pool), PATIENT_ANSWER_US);
    // Not if there is more of it than a segment: its sender asks sooner.
    converse(&mut connection, &mut pool, CONVERSATION + 1);
    let segment = vec![b'?'; connection.rcv.mss.into()];
    assert_eq!(ask_with(&mut connection, &mut pool, &segment), PATIENT_ANSWER_US);
    converse(&mut connection, &mut pool, CONVERSATION + 1);
    let first = text(&connection, &segment);
    take_in(&mut connection, &first, segment.len(), &mut pool, NOW);
    assert_eq!(ask_with(&mut connection, &mut pool, b"?"), LATE_ANSWER_US);
}

/// What begins as a conversation is none of the streams that quick ACKs are for: what is asked next is acknowledged by its answer.
#[test]
fn an_answer_ends_the_quick_acks_of_the_start() {
    let (mut connection, mut pool) = (established(&Config::default(), NOW), pool());
    connection.set_answers_later(true);
    let ask = |connection: &mut Connection, pool: &mut BufferPool| {
        let ask = Segment { flags: Flags::ACK | Flags::PSH, ..text(connection, b"?") };
        take_in(connection, &ask, 1, pool, NOW);
        connection.decide::<Lane>(NOW)
    };
    let first = ask(&mut connection, &mut pool).expect("it is acknowledged before it is answered");
    connection.commit(&first, NOW);
    exchange(&mut connection, &mut pool, NOW);
    assert_eq!(ask(&mut connection, &mut pool), None);
    assert_eq!(connection.deadline().since_us(NOW), LATE_ANSWER_US);
}

/// A segment larger than the memory there is: a reader of small pieces would otherwise be sent all of it for each of them.
#[test]
fn as_much_is_kept_as_there_is_memory_for() {
    let config = Config::default();
    let (mut connection, mut pool) = (established(&config, NOW), BufferPool::new(2_048 + 512));
    let bytes: Vec<u8> = (0..8_960_u32).map(|n| (n / 7) as u8).collect();
    let (mut read, mut segments, mut piece) = (Vec::new(), 0, [0; 476]);
    while read.len() < bytes.len() {
        // All that is not acknowledged, again; the application reads a piece, before and after.
        let n = connection.recv(&mut piece, &mut Cx { now: NOW, config: &config, pool: &mut pool });
        read.extend_from_slice(&piece[..n]);
        let seg = text(&connection, &bytes[read.len() + connection.buffered() as usize..]);
        let mut cx = Cx { now: NOW, config: &config, pool: &mut pool };
        let mut arrival = Arrival::default();
        connection.on_unexpected(&seg, 8_960, &mut cx, &mut arrival);
        let taken = arrival.text.len().min(476);
        read.extend_from_slice(&arrival.text[..taken]);
        connection.finish(&arrival, taken, &mut cx);
        assert_eq!(connection.buffered() as usize, 2_048.min(bytes.len() - read.len()));
        segments += 1;
    }
    assert_eq!((read == bytes, segments), (true, 19), "the room that a piece left is used at once");
}

/// Whoever meets the window, but neither knows what we have sent nor where we stand, says nothing about the peer's clock: what the peer says next would
/// be refused as older than that.
#[test]
fn a_blind_segment_does_not_set_the_peer_s_clock() {
    use laneway_wire::tcp::{Options, Timestamps};
    let config = Config::default();
    for flags in [Flags::RST, Flags::SYN, Flags::ACK, Flags::PSH] {
        let agreed = Agreed { timestamps: true, ts_recent: 1_000, ..agreed() };
        let (mut connection, mut pool) = (Connection::new(&agreed, 1_500, &config, NOW), pool());
        let mut cx = Cx { now: NOW, config: &config, pool: &mut pool };
        let forged = Segment {
            seq: connection.rcv.nxt - 1_000,
            ack: connection.snd.nxt + 0x5000_0000,
            flags,
            options: Options::timestamps(Timestamps { val: 1_000 + 0x7000_0000, echo: 7 }),
            ..text(&connection, &[0; 1_460])
        };
        assert!(connection.on_segment(&forged, &mut cx).discard.is_some());
        let options = Options::timestamps(Timestamps { val: 1_001, echo: 7 });
        let honest = Segment { options, ..text(&connection, b"honest") };
        let arrival = connection.on_segment(&honest, &mut cx);
        assert_eq!((arrival.discard, arrival.text), (None, &b"honest"[..]), "after {flags:?}");
    }
}

/// Text that is refused as old is reported as come twice if it is the peer's own (RFC 2883). What has no ACK flag is nobody's (RFC 9293 section 3.10.7.4,
/// fifth), whatever stands in the field of it.
#[test]
fn what_only_a_stranger_repeats_is_not_reported() {
    let config = Config::default();
    let bad_ack = ISS + 0x5000_0000;
    for (flags, ack, is_reported) in [
        (Flags::ACK, ISS + 1, true),
        (Flags::PSH, ISS + 1, false),
        (Flags::FIN, ISS + 1, false),
        (Flags::ACK, bad_ack, false),
    ] {
        let agreed = Agreed { timestamps: true, ts_recent: 1_000, ..agreed() };
        let (mut connection, mut pool) = (Connection::new(&agreed, 1_500, &config, NOW), pool());
        let stamped = |val| Options::timestamps(Timestamps { val, echo: 7 });
        let honest = Segment { options: stamped(1_002), ..text(&connection, b"honest") };
        take_in(&mut connection, &honest, 6, &mut pool, NOW);
        let forged = Segment { flags, ack, options: stamped(1_001), ..honest };
        take_in(&mut connection, &forged, 6, &mut pool, NOW);
        assert_eq!(connection.rcv.ooo.is_some(), is_reported, "{flags:?}, {ack:?}");
    }
}

/// RFC 9406: in the second round each round trip is 20 ms longer than in the first, or it is not; and a peer without timestamps tells of neither.
#[test]
fn slow_start_slows_down_where_a_queue_grows() {
    let config = Config::default();
    let mss = 1_448;
    let grown = |second_ms: u64, timestamps: bool| {
        let (peer_mss, mut pool) = (if timestamps { 1_460 } else { mss as u16 }, pool());
        let mut connection =
            Connection::new(&Agreed { timestamps, ts_recent: 1, peer_mss, ..agreed() }, 1_500, &config, NOW);
        let mut now = NOW;
        let mut windows = Vec::new();
        for rtt_ms in [50, second_ms] {
            let from = connection.snd.una;
            connection.send(&vec![0; 100_000], &mut Cx { now, config: &config, pool: &mut pool });
            while let Some(plan) = connection.decide::<Lane>(now) {
                connection.commit(&plan, now);
            }
            let stamp = timestamps.then_some(Timestamps { val: 1, echo: now.as_ms() as u32 });
            now = now.after_us(rtt_ms * 1_000);
            for i in 1..=connection.flight() / mss {
                let options = Options { timestamps: stamp, ..Options::default() };
                let ack = Segment { ack: from + i * mss, options, ..text(&connection, &[]) };
                connection.facts.set(Facts::CWND_LIMITED);
                take_in(&mut connection, &ack, 0, &mut pool, now);
            }
            windows.push(connection.congestion.window() / mss);
        }
        windows
    };
    assert_eq!(grown(50, true), [20, 40]);
    assert_eq!(grown(70, true), [20, 31], "eight of twenty before it is seen, and a quarter of twelve");
    assert_eq!(grown(70, false), [20, 40]);
}
