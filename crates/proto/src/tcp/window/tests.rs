use super::super::connection::tests::{agreed, established, text};
use super::*;
use crate::discard::Discard;
use crate::tcp::buffer::BufferPool;
use crate::tcp::config::Config;
use crate::tcp::connection::Agreed;
use crate::tcp::nagle::Lane;
use laneway_wire::tcp::{Flags, Options, Segment, Timestamps, WindowScale};
use std::collections::VecDeque;

const NOW: Instant = Instant::from_us(5_000_000);

/// Takes a segment in; the application reads all of its text. Says how many segments that is answered by.
fn take_in(
    connection: &mut Connection,
    seg: &Segment<'_>,
    config: &Config,
    pool: &mut BufferPool,
    now: Instant,
) -> u32 {
    let mut cx = Cx { now, config, pool };
    let arrival = connection.on_segment(seg, &mut cx);
    connection.finish(&arrival, arrival.text.len(), &mut cx);
    let mut answers = 0;
    while let Some(plan) = connection.decide::<Lane>(now) {
        answers += 1;
        connection.commit(&plan, now);
    }
    answers
}

/// The path of the sender becomes narrower: every second segment of those that fit it is acknowledged, and not every thirteenth.
#[test]
fn what_is_a_full_segment_is_learned_anew() {
    // (A buffer that grows is news, too, and no answer to a second segment.)
    let config = Config { quick_acks: 0, tcp_rmem: (131_072, 131_072), ..Config::default() };
    let (mut connection, mut pool) = (established(&config, NOW), BufferPool::new(1 << 26));
    let mut acks = [0, 0];
    for (phase, size) in [(0, 8_948); 4].into_iter().chain([(1, 1_448); 8]) {
        let payload = vec![0; size];
        let seg = Segment { flags: Flags::ACK, ..text(&connection, &payload) };
        acks[phase] += take_in(&mut connection, &seg, &config, &mut pool, NOW);
    }
    assert_eq!(acks[0], 2);
    assert!(acks[1] >= 3, "{} for eight segments", acks[1]);
}

/// A stream into a connection whose handshake told no round trip: its buffer grows as that of another, by what its segments answer.
#[test]
fn who_only_receives_finds_out_how_far_the_sender_is() {
    let config = Config::default();
    let grown = |rtt_us: Option<u32>, timestamps: bool| {
        let agreed = Agreed { rtt_us, timestamps, ..agreed() };
        let (mut connection, mut pool) = (Connection::new(&agreed, 1_500, &config, NOW), BufferPool::new(1 << 26));
        let mut now = NOW;
        for _ in 0..20_000 {
            now = now.after_us(100);
            // It answers what we said 50 ms ago.
            let echo = (now.as_ms() as u32).wrapping_sub(50);
            let timestamps = timestamps.then_some(Timestamps { val: now.as_ms() as u32, echo });
            let options = Options { timestamps, ..Default::default() };
            let seg = Segment { options, ..text(&connection, &[7; 1_448]) };
            take_in(&mut connection, &seg, &config, &mut pool, now);
        }
        connection.receive_buffer()
    };
    let near = grown(Some(50_000), false);
    assert!(near > 500_000, "14.5 MB/s over 50 ms: {near} bytes");
    for (rtt_us, timestamps) in [(None, true), (Some(1_000), true), (None, false)] {
        let found = grown(rtt_us, timestamps);
        assert!(found >= near, "{found} bytes where the handshake said {rtt_us:?}, with timestamps: {timestamps}");
    }
}

/// Half of the memory is lent for text beyond a gap, so whoever is asked for more than that has what he sends behind a loss refused, and without SACK and
/// timestamps waits longer each time.
#[test]
fn the_window_asks_for_no_more_than_can_be_kept_beyond_a_gap() {
    let config = Config { tcp_rmem: (32_768, 32_768), ..Config::default() };
    let (mut connection, mut pool) = (established(&config, NOW), BufferPool::new(60_000));
    let payload = [7; 1_000];
    let early = Segment { seq: connection.sequence().2 + 20_000, ..text(&connection, &payload) };
    let arrival = connection.on_segment(&early, &mut Cx { now: NOW, config: &config, pool: &mut pool });
    assert_eq!(arrival.discard, Some(Discard::TcpMemory));
    assert_eq!(connection.receive_buffer(), 8_192);
    let early = Segment { seq: connection.sequence().2 + 7_000, ..early };
    let arrival = connection.on_segment(&early, &mut Cx { now: NOW, config: &config, pool: &mut pool });
    assert_eq!(arrival.discard, None);
}

/// So many segments arrive, and nobody reads.
fn leave_unread(connection: &mut Connection, segments: u32, pool: &mut BufferPool, config: &Config, now: Instant) {
    for _ in 0..segments {
        let seg = text(connection, &[7; 1_448]);
        let mut cx = Cx { now, config, pool };
        let arrival = connection.on_segment(&seg, &mut cx);
        connection.finish(&arrival, 0, &mut cx);
        while let Some(plan) = connection.decide::<Lane>(now) {
            connection.commit(&plan, now);
        }
    }
}

/// A thread that was away takes what has waited in pieces. The sender hears of the first, and of more than that before its text comes: else it would have
/// no more than one piece's room for a round trip.
#[test]
fn a_window_that_opens_in_pieces_is_told_as_it_becomes_twice_as_wide() {
    let config = Config { tcp_rmem: (1 << 20, 1 << 20), ..Config::default() };
    let agreed = Agreed { rcv_scale: WindowScale::new(7), rcv_adv: agreed().irs + 65_536, ..agreed() };
    let (mut connection, mut pool) = (Connection::new(&agreed, 1_500, &config, NOW), BufferPool::new(1 << 26));
    assert_eq!(connection.decide::<Lane>(NOW), None, "what the SYN said is enough for a beginning");
    leave_unread(&mut connection, 700, &mut pool, &config, NOW);
    assert_eq!(connection.buffered(), 700 * 1_448);
    let (mut updates, mut read) = (0, 0);
    loop {
        let n = connection.recv(&mut [0; 65_536], &mut Cx { now: NOW, config: &config, pool: &mut pool });
        if n == 0 {
            break;
        }
        read += n as i32;
        while let Some(plan) = connection.decide::<Lane>(NOW) {
            updates += 1;
            connection.commit(&plan, NOW);
        }
    }
    let told = connection.rcv.adv.offset_from(connection.rcv.nxt);
    assert!(told >= read / 2, "{told} bytes of {read}");
    assert!(updates <= 6, "{updates} updates");
}

/// A thread that comes every few milliseconds finds more than a quarter of its buffer full, and empties it: the next flight is twice as large, and has room.
#[test]
fn who_comes_now_and_then_is_no_reader_who_lags() {
    let config = Config::default();
    let agreed = Agreed { rtt_us: Some(100_000), rcv_scale: WindowScale::new(7), ..agreed() };
    let (mut connection, mut pool) = (Connection::new(&agreed, 1_500, &config, NOW), BufferPool::new(1 << 26));
    let mut now = NOW;
    for _ in 0..8 {
        let window = connection.rcv.adv.offset_from(connection.rcv.nxt) as u32;
        leave_unread(&mut connection, window / 1_448, &mut pool, &config, now);
        let mut at = now;
        while connection.buffered() > 0 {
            let mut out = vec![0; window as usize / 2];
            connection.recv(&mut out, &mut Cx { now: at, config: &config, pool: &mut pool });
            while let Some(plan) = connection.decide::<Lane>(at) {
                connection.commit(&plan, at);
            }
            at = at.after_us(20_000);
        }
        now = now.after_us(100_000);
    }
    let window = connection.rcv.adv.offset_from(connection.rcv.nxt);
    assert!(window > 2_000_000, "{window} bytes after eight flights");
}

const SIZE: u32 = 1_448;

/// A sender in slow start, 20 ms away over a line that carries so many bytes in a millisecond, and one who asks for no window: how many bytes have come
/// from either after half a second.
struct Paced {
    bytes_a_ms: u32,
    /// Sent, and not yet on the line; and what the line could have carried of it.
    waiting: u32,
    budget: u32,
    sent: u32,
    arrived: u32,
    /// Segments of each millisecond on their way, and ACKs on theirs: what has arrived, and the right edge.
    there: VecDeque<u32>,
    back: VecDeque<(u32, u32)>,
}

impl Paced {
    fn new(bytes_a_ms: u32) -> Paced {
        let (there, back) = (vec![0; 20].into(), vec![(0, 65_535); 20].into());
        Paced { bytes_a_ms, waiting: 0, budget: 0, sent: 0, arrived: 0, there, back }
    }

    /// A millisecond. `take` is handed what arrives in it, in segments, and says where the right edge is.
    fn pass(&mut self, take: impl FnOnce(u32) -> u32) {
        let (acked, edge) = self.back.pop_front().expect("an ACK for each millisecond");
        // So many bytes more than at the beginning as were acknowledged.
        let most = (acked + 10 * SIZE + acked).min(edge);
        let sends = most.saturating_sub(self.sent) / SIZE;
        self.sent += sends * SIZE;
        self.waiting += sends * SIZE;
        self.budget += self.bytes_a_ms;
        let leave = self.waiting.min(self.budget) / SIZE;
        self.waiting -= leave * SIZE;
        self.budget = if self.waiting == 0 { 0 } else { self.budget - leave * SIZE };
        self.there.push_back(leave);
        let come = self.there.pop_front().unwrap_or(0);
        self.arrived += come * SIZE;
        let edge = take(come);
        self.back.push_back((self.arrived, edge));
    }
}

/// Where a line sets the pace, what a sender in slow start has under way grows all through the round trip, and not at its beginning alone.
#[test]
fn slow_start_at_the_pace_of_a_line_is_not_held_back() {
    let config = Config::default();
    for mbit in [20, 50, 100, 200, 400] {
        let agreed = Agreed { rtt_us: Some(40_000), rcv_scale: WindowScale::new(7), ..agreed() };
        let (mut connection, mut pool) = (Connection::new(&agreed, 1_500, &config, NOW), BufferPool::new(1 << 26));
        let first = connection.rcv.nxt;
        let (mut ours, mut free) = (Paced::new(mbit * 125), Paced::new(mbit * 125));
        for ms in 0..500 {
            let now = NOW.after_us(ms * 1_000);
            ours.pass(|come| {
                for _ in 0..come {
                    let seg = Segment { flags: Flags::ACK, ..text(&connection, &[7; SIZE as usize]) };
                    take_in(&mut connection, &seg, &config, &mut pool, now);
                }
                connection.rcv.adv.offset_from(first) as u32
            });
            free.pass(|_| u32::MAX);
        }
        let (came, would) = (u64::from(ours.arrived), u64::from(free.arrived));
        assert!(came * 100 >= would * 98, "{mbit} Mbit/s: {came} bytes of {would}");
    }
}
