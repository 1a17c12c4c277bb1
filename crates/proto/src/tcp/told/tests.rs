use super::super::connection::SEND_FLOOR;
use super::super::connection::tests::{acknowledge, agreed, established, text};
use super::*;
use crate::tcp::buffer::BufferPool;
use crate::tcp::congestion::Controller;
use crate::tcp::nagle::Lane;
use crate::time::Instant;
use laneway_wire::tcp::{Segment, SeqNum};

const NOW: Instant = Instant::from_us(5_000_000);

/// One that is told what holds anyway needs no place for it.
#[test]
fn nothing_said_is_nothing_kept() {
    let config = Config::default();
    let (mut connection, mut pool) = (established(&config, NOW), BufferPool::new(1 << 26));
    connection.set_marks(Marks::NONE);
    connection.set_user_timeout_ms(0);
    connection.set_keepalive_times(KeepaliveTimes::default(), &Cx { now: NOW, config: &config, pool: &mut pool });
    assert!(connection.told.is_none());
    connection.set_user_timeout_ms(7);
    connection.set_marks(Marks { hop_limit: 255, dscp_ecn: 0 });
    assert_eq!((connection.user_timeout_ms(), connection.marks().hop_limit), (7, 255), "both");
    connection.release(&mut pool);
    assert!(connection.told.is_none(), "whoever ends is forgotten, and not dropped");
}

#[test]
fn a_send_buffer_that_was_told_its_size_has_it() {
    let config = Config::default();
    let (mut connection, mut pool) = (established(&config, NOW), BufferPool::new(1 << 26));
    let mut cx = Cx { now: NOW, config: &config, pool: &mut pool };
    let mut queued = 0;
    for (asked, has) in [(1, SEND_BUFFER_MIN), (100_000, 100_000), (1 << 20, 1 << 20), (u32::MAX, config.tcp_wmem)] {
        connection.set_send_buffer(asked, cx.config);
        assert_eq!(connection.room(), has - queued);
        queued += connection.send(&vec![7; has as usize + 1], &mut cx) as u32;
        assert_eq!(queued, has, "asked for {asked}");
    }
    connection.set_send_buffer(5_000, cx.config);
    assert_eq!((connection.room(), connection.send(b"x", &mut cx)), (0, 0), "smaller than what is in it");
}

/// Sends what it may, and ends its turn; says whether the application hears that there is room.
fn turn(connection: &mut Connection, cx: &mut Cx<'_>) -> bool {
    while let Some(plan) = connection.decide::<Lane>(cx.now) {
        connection.commit(&plan, cx.now);
    }
    connection.settle::<Lane>(cx);
    connection.sends_off()
}

#[test]
fn so_much_may_be_unsent_however_much_is_under_way() {
    const LOWAT: usize = 4_000;
    let config = Config::default();
    let (mut connection, mut pool) = (established(&config, NOW), BufferPool::new(1 << 26));
    let mut cx = Cx { now: NOW, config: &config, pool: &mut pool };
    connection.set_notsent_lowat(LOWAT as u32, cx.config);
    connection.set_nodelay(true);
    let (bytes, cwnd) = (vec![7; 1 << 20], connection.cwnd());
    let mut written = 0;
    while written < cwnd as usize {
        assert_eq!(connection.send(&bytes, &mut cx), LOWAT);
        assert_eq!(connection.send(&bytes, &mut cx), 0, "that was all");
        written += LOWAT;
        let sends_off = turn(&mut connection, &mut cx);
        let unsent = written - connection.flight() as usize;
        assert_eq!(sends_off, unsent <= LOWAT * 2 / 3, "a third of it has gone, where {unsent} have not");
        assert!(!connection.sends_off(), "it is said once");
        if sends_off {
            assert!(connection.feed() && !connection.feed(), "to be told once");
        }
        assert_eq!(connection.room() as usize, LOWAT - unsent);
        if unsent > 0 {
            break;
        }
    }
    assert!(connection.flight() + 1_460 > cwnd, "the bound has not held it back");
    // What is acknowledged makes room for nothing but what was not sent.
    assert_eq!(connection.send(&bytes, &mut cx), connection.flight() as usize + LOWAT - written);
    let ack = Segment { ack: connection.snd.una + 3 * 1_460, ..text(&connection, &[]) };
    let arrival = connection.on_segment(&ack, &mut cx);
    connection.finish(&arrival, 0, &mut cx);
    assert!(!connection.takes_room(), "as much is unsent as before");
    assert!(turn(&mut connection, &mut cx) && connection.feed());
}

#[test]
fn the_bound_of_what_is_unsent_goes_with_the_size_of_the_buffer() {
    let config = Config::default();
    for (size_first, size, lowat, room) in [
        (true, 20_000, 5_000, 5_000),
        (false, 20_000, 5_000, 5_000),
        (true, 5_000, 20_000, 5_000),
        (false, 5_000, 20_000, 5_000),
        (true, 50_000, 0, 50_000),
        (false, 0, 1, 2 * 1_460),
        (false, 0, u32::MAX, SEND_FLOOR),
    ] {
        let (mut connection, mut pool) = (established(&config, NOW), BufferPool::new(1 << 26));
        let sized = |c: &mut Connection| {
            if size > 0 {
                c.set_send_buffer(size, &config)
            }
        };
        if size_first {
            sized(&mut connection);
        }
        connection.set_notsent_lowat(lowat, &config);
        if !size_first {
            sized(&mut connection);
        }
        let mut cx = Cx { now: NOW, config: &config, pool: &mut pool };
        assert_eq!(connection.room(), room, "{size} and {lowat}");
        assert_eq!(connection.send(&vec![7; 1 << 20], &mut cx), room as usize);
        connection.set_notsent_lowat(0, &config);
        let whole = if size > 0 { size } else { SEND_FLOOR };
        assert_eq!(connection.room(), whole - room, "without a bound");
    }
}

/// The farthest that the peer may send: by each window that we show, and none is taken back.
struct Peer {
    edge: SeqNum,
}

impl Peer {
    /// Sends text to the edge, in segments, and hears what is said to that; says how much it was.
    fn fill(&mut self, connection: &mut Connection, cx: &mut Cx<'_>) -> u32 {
        let mut sent = 0;
        while let n @ 1.. = self.edge.offset_from(connection.rcv.nxt).min(1_448) {
            let payload = vec![7; n as usize];
            let seg = text(connection, &payload);
            let arrival = connection.on_segment(&seg, cx);
            connection.finish(&arrival, 0, cx);
            assert_eq!(connection.rcv.nxt, seg.seq + n as u32, "all that was promised is kept");
            sent += n as u32;
            self.hear(connection, cx);
        }
        sent
    }

    fn hear(&mut self, connection: &mut Connection, cx: &mut Cx<'_>) {
        while let Some(plan) = connection.decide::<Lane>(cx.now) {
            connection.commit(&plan, cx.now);
            let edge = plan.window.1;
            assert!(edge.at_or_after(self.edge), "the edge moved left");
            self.edge = edge;
        }
    }
}

#[test]
fn a_receive_buffer_that_was_told_its_size_comes_to_have_it_and_breaks_no_promise() {
    let config = Config::default();
    let rounding = (1 << config.receive_scale()) - 1;
    for (asked, has) in [(1, RECEIVE_BUFFER_MIN), (20_000, 20_000), (400_000, 400_000), (u32::MAX, config.tcp_rmem.1)] {
        let (mut connection, mut pool) = (established(&config, NOW), BufferPool::new(1 << 26));
        let mut cx = Cx { now: NOW, config: &config, pool: &mut pool };
        let mut peer = Peer { edge: connection.rcv.adv };
        let promised = agreed().rcv_adv.offset_from(connection.rcv.nxt) as u32;
        connection.set_receive_buffer(asked, &cx);
        peer.hear(&mut connection, &mut cx);
        let came = peer.fill(&mut connection, &mut cx);
        assert!(came >= promised && connection.buffered() == came);
        // Read in small pieces, and filled again each time: what waits at the most is what was asked for.
        let mut most = came;
        for _ in 0..2 {
            let mut read = 0;
            while read < most {
                connection.consume(1_000, &mut cx);
                read += 1_000;
                peer.hear(&mut connection, &mut cx);
            }
            peer.fill(&mut connection, &mut cx);
            most = connection.buffered();
        }
        assert!((has - rounding - 1_448.min(has / 2)..=has).contains(&most), "asked for {asked}, and {most} wait");
    }
}

/// Autotuning would have made it larger.
#[test]
fn a_receive_buffer_that_was_told_its_size_does_not_grow() {
    let config = Config::default();
    let grown = |asked: Option<u32>| {
        let (mut connection, mut pool, mut now) = (established(&config, NOW), BufferPool::new(1 << 26), NOW);
        if let Some(asked) = asked {
            connection.set_receive_buffer(asked, &Cx { now, config: &config, pool: &mut pool });
        }
        let mut peer = Peer { edge: connection.rcv.adv };
        for _ in 0..200 {
            now = now.after_us(200);
            let mut cx = Cx { now, config: &config, pool: &mut pool };
            let came = peer.fill(&mut connection, &mut cx);
            connection.consume(came as usize, &mut cx);
            peer.hear(&mut connection, &mut cx);
        }
        connection.receive_buffer()
    };
    assert!(grown(None) > 1_000_000);
    assert_eq!(grown(Some(200_000)), 200_000);
}

/// Where there is no memory, as in autotuning: no window is too small for a segment.
#[test]
fn a_receive_buffer_that_was_told_its_size_has_room_for_some_segments() {
    let config = Config::default();
    let (mut connection, mut pool) = (established(&config, NOW), BufferPool::new(0));
    let mut cx = Cx { now: NOW, config: &config, pool: &mut pool };
    let mut peer = Peer { edge: connection.rcv.adv };
    connection.set_receive_buffer(100_000, &cx);
    // What had been promised is used up, and read at once: nothing has to be kept.
    let payload = [0; 1_448];
    for _ in 0..100 {
        let arrival = connection.on_segment(&text(&connection, &payload), &mut cx);
        assert_eq!(arrival.text.len(), payload.len());
        connection.finish(&arrival, payload.len(), &mut cx);
        peer.hear(&mut connection, &mut cx);
    }
    assert_eq!(connection.receive_buffer(), 4 * 1_448);
}

#[test]
fn what_has_come_is_acknowledged_at_once_by_who_was_told_so() {
    let config = Config { quick_acks: 0, ..Config::default() };
    let quick = Config { quick_acks: 2, ..Config::default() };
    let (mut connection, mut pool) = (established(&config, NOW), BufferPool::new(1 << 26));
    let answers = |connection: &mut Connection, pool: &mut BufferPool, comes: bool| {
        let mut cx = Cx { now: NOW, config: &config, pool };
        if comes {
            let seg = text(connection, b"x");
            let seg = Segment { flags: laneway_wire::tcp::Flags::ACK, ..seg };
            let arrival = connection.on_segment(&seg, &mut cx);
            connection.finish(&arrival, 1, &mut cx);
        }
        let plan = connection.decide::<Lane>(NOW);
        plan.is_some_and(|plan| connection.commit(&plan, NOW))
    };
    let _ = answers(&mut connection, &mut pool, true); // the window becomes wider than that of a SYN
    assert!(!answers(&mut connection, &mut pool, true), "it waits for a second segment");
    connection.set_quickack(true, &quick);
    assert!(answers(&mut connection, &mut pool, false), "what had come");
    assert!(answers(&mut connection, &mut pool, true), "what comes");
    assert!(!answers(&mut connection, &mut pool, true), "not for ever");
    connection.set_quickack(true, &quick);
    let _ = answers(&mut connection, &mut pool, false);
    connection.set_quickack(false, &quick);
    assert!(!answers(&mut connection, &mut pool, true));
    connection.set_quickack(false, &quick);
    assert!(!answers(&mut connection, &mut pool, false), "what waits goes on waiting");
}

/// Its room comes with acknowledgements, and whoever takes those in tells of it.
#[test]
fn who_was_not_told_how_much_may_be_unsent_has_no_room_because_something_was_sent() {
    let config = Config { tcp_wmem: 20_000, ..Config::default() };
    let (mut connection, mut pool, mut now) = (established(&config, NOW), BufferPool::new(1 << 26), NOW);
    let mut cx = Cx { now, config: &config, pool: &mut pool };
    assert_eq!(connection.send(&[0; 20_000], &mut cx), 20_000);
    assert_eq!(connection.send(b"x", &mut cx), 0);
    assert!(!turn(&mut connection, &mut cx));
    acknowledge(&mut connection, &config, &mut pool, &mut now);
    assert!(connection.room() > 0 && !connection.sends_off());
}

#[test]
fn another_congestion_control_goes_on_where_the_one_before_was() {
    let config = Config::default();
    let mut connection = established(&config, NOW);
    assert_eq!(connection.congestion.algorithm(), Algorithm::Cubic);
    connection.congestion.on_congestion(NOW, 100_000);
    let facts =
        |c: &Connection| (c.cwnd(), c.slow_start_threshold(), c.congestion.clone().may_grow(NOW, u32::MAX, true));
    let before = facts(&connection);
    connection.set_congestion_control(Algorithm::Reno);
    assert_eq!((connection.congestion.algorithm(), facts(&connection)), (Algorithm::Reno, before));
    assert!(!before.2, "a loss is being repaired");
    connection.congestion.on_recovered(NOW);
    // It is Reno from now on: half of the window, and not seven tenths.
    let cwnd = connection.cwnd();
    connection.congestion.on_congestion(NOW, cwnd);
    assert_eq!(connection.cwnd(), (cwnd / 2).max(2 * u32::from(connection.mss())));
    let same = connection.congestion;
    connection.set_congestion_control(Algorithm::Reno);
    assert_eq!(connection.congestion, same, "it has that already");
}
