//! The same events on two connections: one predicts, the other asks every step.

use super::super::connection::Agreed;
use super::super::connection::tests::agreed;
use super::*;
use crate::tcp::buffer::BufferPool;
use crate::tcp::config::Config;
use crate::tcp::nagle::Lane;
use crate::time::Instant;
use core::ops::ControlFlow::Break;
use laneway_wire::tcp::{Options, SackBlocks, Segment, SeqRange, Timestamps, UnscaledWindow};
use proptest::prelude::*;

/// What happens next; numbers choose among a few that matter.
#[derive(Clone, Debug)]
enum Event {
    Segment {
        seq: u8,
        ack: u8,
        len: u8,
        flags: u8,
        ts: u8,
        window: u8,
        taken: u8,
        sack: bool,
    },
    Send(u16),
    /// And nothing after it.
    Last(u16),
    More(u16),
    Urgent,
    Cork(bool),
    Read,
    Wait(u32),
    Shutdown,
}

fn event() -> impl Strategy<Value = Event> {
    let segment = (0u8..12, 0u8..12, 0u8..6, 0u8..16, 0u8..12, 0u8..6, 0u8..6, any::<bool>());
    prop_oneof![
        8 => segment.prop_map(|(seq, ack, len, flags, ts, window, taken, sack)| Event::Segment { seq, ack, len, flags, ts, window, taken, sack }),
        4 => (0u16..4_000).prop_map(Event::Send),
        1 => (0u16..2_000).prop_map(Event::Last),
        1 => (0u16..2_000).prop_map(Event::More),
        1 => Just(Event::Urgent),
        1 => any::<bool>().prop_map(Event::Cork),
        1 => Just(Event::Read),
        2 => (0u32..400_000).prop_map(Event::Wait),
        1 => Just(Event::Shutdown),
    ]
}

/// Everything that a segment, in or out, may change.
fn facts(c: &Connection, now: Instant) -> String {
    format!(
        "{:?}",
        (
            (c.state, c.phase, c.snd.dup_acks, c.retries, c.probes, c.rcv.quick_acks, c.facts, c.reason),
            (c.snd.una, c.snd.nxt, c.snd.wnd, c.snd.wl1, c.snd.wl2, c.snd.max_wnd, c.snd.sml, c.snd.queued, c.snd.peak),
            (c.rcv.nxt, c.rcv.adv, c.rcv.acked, c.rcv.fin, c.rcv.mss, c.rcv.buf.len(), c.rcv.buf_max, c.rcv.read),
            (c.congestion, c.hystart, c.rtt, c.rtt_seq, c.rtt_at, c.recover, c.rexmit_nxt, c.ts_recent),
            (c.sent_at, c.sent_from, c.rexmt_at, c.delack_at, c.keep_at, c.progress_ms, c.heard_at, c.challenged_ms),
            (c.board.is_some(), c.pipe(), c.deadline(), c.decide::<Lane>(now), c.info(now)),
        )
    )
}

/// The way of everything that is not predicted.
fn ask_every_step<'a>(c: &mut Connection, seg: &Segment<'a>, cx: &mut Cx<'_>, arrival: &mut Arrival<'a>) {
    let size = seg.payload.len();
    c.tally.segs_in = c.tally.segs_in.wrapping_add(1);
    if let Break(discard) = c.segment_arrives(seg, size, cx, arrival) {
        arrival.discard = discard;
    }
}

/// Writes the segment of a plan and commits it; says both, but for how it was planned.
fn carry_out(c: &mut Connection, plan: Plan, now: Instant) -> String {
    let mut bytes = vec![0; plan.segment_len()];
    let sum = c.build(&plan, now, false, &mut bytes).fold();
    let news = c.commit(&plan, now);
    format!("{:?}{bytes:?}{sum}{news}", Plan { usual: false, ..plan })
}

/// One connection, and whether it predicts.
struct Side {
    connection: Connection,
    pool: BufferPool,
    config: Config,
    predicts: bool,
}

impl Side {
    fn new(predicts: bool, sack: bool, narrow: bool, now: Instant) -> Side {
        let config = Config {
            tcp_rmem: if narrow { (1_000, 1_000) } else { (20_000, 40_000) },
            tcp_keepalive_time_us: 100_000,
            tcp_keepalive_intvl_us: 50_000,
            ..Config::default()
        };
        let rcv_adv = agreed().irs + 1 + config.tcp_rmem.0;
        let agreed = Agreed { timestamps: true, ts_recent: 100, sack, rcv_adv, ..agreed() };
        let mut connection = Connection::new(&agreed, 1_500, &config, now);
        let mut pool = BufferPool::new(1 << 22);
        connection.set_keepalive(true, &Cx { now, config: &config, pool: &mut pool });
        Side { connection, pool, config, predicts }
    }

    /// Says what is left of the arrival and what was sent, and how much of both had been predicted.
    fn happen(&mut self, event: &Event, now: Instant) -> (String, usize) {
        let Side { connection: c, pool, config, predicts } = self;
        let mut cx = Cx { now, config, pool };
        let (mut said, mut predicted) = (String::new(), 0);
        match *event {
            Event::Segment { seq, ack, len, flags, ts, window, taken, sack } => {
                let payload = [7; 1_448];
                let len = [0, 0, 10, 500, 1_448, 1_448][usize::from(len)];
                let mut blocks = SackBlocks::default();
                if sack && c.flight() > 1 {
                    blocks.push(SeqRange { start: c.snd.nxt - 1, end: c.snd.nxt });
                }
                let seg = Segment {
                    src_port: 2,
                    dst_port: 1,
                    seq: match seq {
                        0 => c.rcv.nxt - 5,
                        1 => c.rcv.nxt + 300,
                        2 => c.rcv.adv - 3,
                        _ => c.rcv.nxt,
                    },
                    ack: match ack {
                        0 => c.snd.una - 7,
                        1 => c.snd.nxt + 1,
                        2..=4 => c.snd.una,
                        5 => c.snd.una + c.flight() / 2,
                        _ => c.snd.nxt,
                    },
                    flags: match flags {
                        0 => Flags::ACK | Flags::FIN,
                        1 => Flags::ACK | Flags::URG,
                        2 => Flags::RST,
                        3 => Flags::SYN | Flags::ACK,
                        4 => Flags::PSH,
                        5..=10 => Flags::ACK,
                        _ => Flags::ACK | Flags::PSH,
                    },
                    window: UnscaledWindow::new([0, 1, 20, 200, 6_000, 65_535][usize::from(window)]),
                    urgent: 3,
                    options: Options {
                        timestamps: (ts > 0).then(|| Timestamps {
                            val: c.ts_recent.wrapping_add([0, 1, 0, 5, u32::MAX][usize::from(ts).min(4)]),
                            echo: 0,
                        }),
                        sack: blocks,
                        ..Options::default()
                    },
                    payload: &payload[..len],
                };
                let header = seg.to_header();
                let mut bytes = vec![0; header.len()];
                header.emit(&mut bytes);
                bytes.extend_from_slice(seg.payload);
                predicted = usize::from(Usual::of(&bytes).is_some_and(|usual| c.predicts(usual)));
                let mut arrival = Arrival::default();
                if *predicts {
                    // As a lane does.
                    match Usual::of(&bytes).and_then(|usual| c.on_expected(usual, 0, &mut cx)) {
                        Some(brought) => arrival = brought,
                        None => c.on_unexpected(&seg, 0, &mut cx, &mut arrival),
                    }
                } else {
                    ask_every_step(c, &seg, &mut cx, &mut arrival);
                }
                said = format!("{:?}", (arrival.text.len(), arrival.readable, arrival.acked, arrival.discard));
                let taken = arrival.text.len() * usize::from(taken) / 5;
                said += &format!("{:?}", c.finish(&arrival, taken, &mut cx));
            }
            Event::Send(n) => drop(c.send(&vec![1; n.into()], &mut cx)),
            Event::Last(n) => {
                c.send(&vec![4; n.into()], &mut cx);
                c.shutdown();
            }
            Event::More(n) => drop(c.send_more(&vec![2; n.into()], &mut cx)),
            Event::Urgent => drop(c.send_urgent(&[3], &mut cx)),
            Event::Cork(on) => c.set_cork(on),
            Event::Read => c.consume(10_000, &mut cx),
            Event::Wait(_) => c.on_timeout(&mut cx),
            Event::Shutdown => c.shutdown(),
        }
        if *predicts && let Some(plan) = c.decide_usual::<Lane>() {
            said += &carry_out(c, plan, now);
            c.settle_usual(pool);
            assert!(!c.has_more());
            return (said + "None", predicted + 1);
        }
        if *predicts && let Some(plan) = c.decide_usual_ack() {
            said += &carry_out(c, plan, now);
            assert!(!c.has_more());
        }
        while let Some(plan) = c.decide::<Lane>(now) {
            said += &carry_out(c, plan, now);
        }
        let held = c.settle::<Lane>(&mut Cx { now, config, pool });
        (said + &format!("{held:?}"), predicted)
    }
}

/// Runs events on both, and says how many segments were predicted, in and out.
fn compare(sack: bool, narrow: bool, events: &[Event]) -> usize {
    let mut now = Instant::from_us(10_000_000);
    let [mut one, mut other] = [true, false].map(|predicts| Side::new(predicts, sack, narrow, now));
    let mut count = 0;
    for event in events {
        now = now.after_us(if let Event::Wait(us) = event { u64::from(*us) } else { 37 });
        let (said, predicted) = one.happen(event, now);
        let (expected, _) = other.happen(event, now);
        assert_eq!(said, expected, "{event:?}");
        assert_eq!(facts(&one.connection, now), facts(&other.connection, now), "{event:?}");
        count += predicted;
    }
    count
}

proptest! {
    #[test]
    fn what_is_predicted_is_what_every_step_would_do(
        sack in any::<bool>(),
        narrow in any::<bool>(),
        events in prop::collection::vec(event(), 1..60),
    ) {
        compare(sack, narrow, &events);
    }
}

#[test]
fn requests_and_responses_are_predicted() {
    let segment = |ack: u8| Event::Segment { seq: 9, ack, len: 2, flags: 15, ts: 2, window: 5, taken: 5, sack: false };
    let events: Vec<Event> = (0..20).flat_map(|_| [segment(9), Event::Send(200)]).collect();
    assert_eq!(compare(true, false, &events), 40);
    // A stream: acknowledgements one way, text the other.
    let text = Event::Segment { seq: 9, ack: 3, len: 5, flags: 7, ts: 3, window: 5, taken: 5, sack: false };
    let ack = Event::Segment { seq: 9, ack: 9, len: 0, flags: 7, ts: 3, window: 5, taken: 5, sack: false };
    let events: Vec<Event> =
        (0..20).flat_map(|_| [text.clone(), text.clone(), Event::Send(3_000), ack.clone()]).collect();
    assert_eq!(compare(true, false, &events), 60);
}

/// A window that was closed ends the back-off when it opens, though nothing waits for it.
#[test]
fn what_opens_a_closed_window_is_not_predicted() {
    let said =
        |ack: u8, window: u8| Event::Segment { seq: 9, ack, len: 2, flags: 7, ts: 1, window, taken: 5, sack: false };
    let closed = [Event::Send(1), Event::Wait(201_000), said(9, 0)];
    assert_eq!(compare(false, false, &[closed.as_slice(), &[said(2, 1)]].concat()), compare(false, false, &closed));
}

/// The peer's last segment, and our FIN when nothing else is left to say.
#[test]
fn the_end_of_a_conversation_is_predicted() {
    let last = Event::Segment { seq: 9, ack: 9, len: 2, flags: 0, ts: 2, window: 5, taken: 5, sack: false };
    assert_eq!(compare(true, false, &[Event::Send(200), last.clone(), Event::Shutdown]), 3);
    assert_eq!(compare(true, false, &[Event::Send(200), last, Event::Last(200)]), 3);
}

/// What follows our FIN: its acknowledgement, with the peer's own FIN or after that.
#[test]
fn the_acknowledgement_of_our_fin_is_predicted() {
    let said = |ack: u8, len: u8, flags: u8| Event::Segment {
        seq: 9,
        ack,
        len,
        flags,
        ts: 2,
        window: 5,
        taken: 5,
        sack: false,
    };
    let (ack, fin) = (said(9, 0, 7), said(9, 0, 0));
    // FIN-WAIT-1, with a FIN and without; LAST-ACK.
    assert_eq!(compare(true, false, &[Event::Last(200), fin.clone()]), 2);
    assert_eq!(compare(true, false, &[Event::Last(200), ack.clone()]), 2);
    assert_eq!(compare(true, false, &[fin.clone(), Event::Last(200), ack]), 3);
    // Where both ends were said there is no third; where our FIN is not acknowledged yet, or text comes, it is no end.
    assert_eq!(compare(true, false, &[fin.clone(), Event::Last(200), fin.clone()]), 2);
    assert_eq!(compare(true, false, &[Event::Last(200), said(5, 0, 0)]), 1);
    assert_eq!(compare(true, false, &[Event::Last(200), said(9, 2, 0)]), 1);
    assert_eq!(compare(true, false, &[Event::Last(200), fin.clone(), fin]), 2);
}

/// What was acknowledged selectively is forgotten when all is acknowledged: that is no plain acknowledgement.
#[test]
fn nothing_is_predicted_while_a_scoreboard_stands() {
    let ack = |ack: u8, sack: bool| Event::Segment { seq: 9, ack, len: 0, flags: 7, ts: 2, window: 5, taken: 0, sack };
    assert_eq!(compare(true, false, &[Event::Send(3_000), ack(5, true), ack(9, false)]), 0);
    assert_eq!(compare(true, false, &[Event::Send(3_000), ack(5, false), ack(9, false)]), 2);
}

/// The FIN takes a place in the peer's window too.
#[test]
fn a_fin_that_does_not_fit_the_window_waits() {
    let narrow = Event::Segment { seq: 9, ack: 9, len: 2, flags: 15, ts: 2, window: 1, taken: 5, sack: false };
    let said = [1, 1_023, 1_024, 1_025, 1_400].map(|n| compare(true, false, &[narrow.clone(), Event::Last(n)]));
    assert!(said.contains(&1) && said.contains(&2), "some were too long, some not: {said:?}");
}
