use super::verbs::SEND_FLOOR;
use super::*;
use crate::tcp::Keeper;
use crate::tcp::buffer::BufferPool;
use crate::tcp::nagle::Lane;
use laneway_wire::flow::{Address, FlowKey};
use laneway_wire::tcp::{Flags, Options, Segment, UnscaledWindow, WindowScale};
use std::sync::Arc;

pub(in crate::tcp) const ISS: SeqNum = SeqNum::new(1_000);
const IRS: SeqNum = SeqNum::new(9_000);

pub(in crate::tcp) fn established(config: &Config, now: Instant) -> Connection {
    Connection::new(&agreed(), 1_500, config, now)
}

pub(in crate::tcp) fn agreed() -> Agreed {
    let key = FlowKey {
        local: Address::from_v4([10, 0, 0, 1]),
        remote: Address::from_v4([10, 0, 0, 2]),
        local_port: 1,
        remote_port: 2,
    };
    Agreed {
        key,
        iss: ISS,
        irs: IRS,
        peer_mss: 1_460,
        snd_scale: WindowScale::new(10),
        rcv_scale: WindowScale::new(2),
        sack: true,
        timestamps: false,
        ts_recent: 0,
        ts_offset: 0,
        snd_wnd: UnscaledWindow::new(u16::MAX) << WindowScale::new(10),
        rcv_adv: IRS + 60_000,
        rtt_us: Some(1_000),
        syn_lost: false,
        ecn: false,
    }
}

/// After a round trip, all that is in flight is acknowledged.
pub(in crate::tcp) fn acknowledge(
    connection: &mut Connection,
    config: &Config,
    pool: &mut BufferPool,
    now: &mut Instant,
) {
    *now = now.after_us(1_000);
    let all = connection.snd.nxt;
    acknowledge_to(connection, all, config, pool, *now);
}

/// What lies before `ack` is acknowledged.
pub(in crate::tcp) fn acknowledge_to(
    connection: &mut Connection,
    ack: SeqNum,
    config: &Config,
    pool: &mut BufferPool,
    now: Instant,
) {
    let ack = Segment {
        src_port: 2,
        dst_port: 1,
        seq: IRS + 1,
        ack,
        flags: Flags::ACK,
        window: UnscaledWindow::new(u16::MAX),
        urgent: 0,
        options: Options::default(),
        payload: &[],
    };
    let arrival = connection.on_segment(&ack, &mut Cx { now, config, pool });
    connection.finish(&arrival, 0, &mut Cx { now, config, pool });
}

/// Writes until nothing more is taken, sends until nothing more may leave, and has all of that acknowledged after a round trip.
fn round(connection: &mut Connection, config: &Config, pool: &mut BufferPool, now: &mut Instant) -> u32 {
    let bytes = vec![0; 1 << 16];
    while connection.send(&bytes, &mut Cx { now: *now, config, pool }) == bytes.len() {}
    while let Some(plan) = connection.decide::<Lane>(*now) {
        connection.commit(&plan, *now);
    }
    connection.settle::<Lane>(&mut Cx { now: *now, config, pool });
    let flight = connection.flight();
    acknowledge(connection, config, pool, now);
    flight
}

#[test]
fn the_send_buffer_follows_what_is_under_way() {
    let config = Config::default();
    let (mut pool, mut now) = (BufferPool::new(1 << 26), Instant::from_us(5_000_000));
    let mut connection = established(&config, now);
    assert_eq!(connection.room(), SEND_FLOOR, "before anything was under way");
    let mut flight = 0;
    for _ in 0..20 {
        flight = round(&mut connection, &config, &mut pool, &mut now);
        assert!(connection.room() <= config.tcp_wmem);
    }
    assert_eq!(flight, config.tcp_wmem, "slow start was not held up by the buffer");
    assert_eq!(connection.room(), config.tcp_wmem);
    // A path that takes one segment at a time from now on: the buffer goes back to what it began with.
    for _ in 0..60 {
        let cx = &mut Cx { now, config: &config, pool: &mut pool };
        assert_eq!(connection.send(&[0; 1_460], cx), 1_460);
        round_of_one(&mut connection, &config, &mut pool, &mut now);
    }
    assert_eq!(connection.room(), SEND_FLOOR);
}

/// Whoever was refused is not woken for each segment that is acknowledged, but when a third of the buffer is free.
#[test]
fn there_is_room_again_when_a_third_is_free() {
    let config = Config::default();
    let (mut pool, now) = (BufferPool::new(1 << 26), Instant::from_us(5_000_000));
    let mut connection = established(&config, now);
    let mut cx = Cx { now, config: &config, pool: &mut pool };
    let limit = SEND_FLOOR as usize;
    assert_eq!(connection.send(&vec![0; limit + 1], &mut cx), limit);
    while let Some(plan) = connection.decide::<Lane>(now) {
        connection.commit(&plan, now);
    }
    let mut freed = 0;
    while !connection.takes_room() {
        let ack = Segment { ack: connection.snd.una + 1_460, ..text(&connection, &[]) };
        let arrival = connection.on_segment(&ack, &mut cx);
        connection.finish(&arrival, 0, &mut cx);
        while let Some(plan) = connection.decide::<Lane>(now) {
            connection.commit(&plan, now);
        }
        freed += 1_460;
    }
    assert!((limit / 3..limit / 3 + 1_460).contains(&freed), "{freed}");
    assert!(!connection.takes_room(), "it is said once");
}

fn round_of_one(connection: &mut Connection, config: &Config, pool: &mut BufferPool, now: &mut Instant) {
    while let Some(plan) = connection.decide::<Lane>(*now) {
        connection.commit(&plan, *now);
    }
    connection.settle::<Lane>(&mut Cx { now: *now, config, pool });
    acknowledge(connection, config, pool, now);
}

/// What the peer sends next.
pub(in crate::tcp) fn text<'a>(connection: &Connection, payload: &'a [u8]) -> Segment<'a> {
    Segment {
        src_port: 2,
        dst_port: 1,
        seq: connection.rcv.nxt,
        ack: connection.snd.nxt,
        flags: Flags::ACK,
        window: UnscaledWindow::new(u16::MAX),
        urgent: 0,
        options: Options::default(),
        payload,
    }
}

/// Text arrives, of which the reader takes `takes`, in pieces of 1,460 bytes and `every_us` microseconds.
fn reads(connection: &mut Connection, pool: &mut BufferPool, now: &mut Instant, takes: impl Fn(usize) -> bool) {
    let (config, payload) = (Config::default(), [7; 1_460]);
    for i in 0..4_000 {
        *now = now.after_us(1);
        let next = text(connection, &payload);
        let mut cx = Cx { now: *now, config: &config, pool };
        let arrival = connection.on_segment(&next, &mut cx);
        let taken = if takes(i) { arrival.text.len() } else { 0 };
        connection.finish(&arrival, taken, &mut cx);
        if takes(i) {
            // In pieces: never all that lies there.
            connection.consume(connection.buffered() as usize / 2, &mut cx);
        }
        while let Some(plan) = connection.decide::<Lane>(*now) {
            connection.commit(&plan, *now);
        }
    }
}

/// Nobody reads, and the peer goes on, a byte at a time, as whoever probes a closed window does.
#[test]
fn a_closed_window_gives_way_by_what_rounding_may_have_said_and_no_further() {
    let config = Config { tcp_rmem: (4_096, 1 << 20), ..Config::default() };
    let (mut pool, mut now) = (BufferPool::new(1 << 26), Instant::from_us(5_000_000));
    let mut connection = established(&config, now);
    for _ in 0..3 {
        reads(&mut connection, &mut pool, &mut now, |_| false);
    }
    let rounding = (1 << connection.rcv.scale.get()) - 1;
    for _ in 0..1_000 {
        now = now.after_us(200_000);
        let probe = text(&connection, &[7]);
        let mut cx = Cx { now, config: &config, pool: &mut pool };
        let arrival = connection.on_segment(&probe, &mut cx);
        connection.finish(&arrival, 0, &mut cx);
        while let Some(plan) = connection.decide::<Lane>(now) {
            connection.commit(&plan, now);
        }
    }
    assert!(connection.buffered() <= connection.receive_buffer() + rounding, "{} bytes", connection.buffered());
}

#[test]
fn the_receive_buffer_grows_for_who_reads_and_not_for_who_lags() {
    let config = Config::default();
    for (lags, grows) in [(false, true), (true, false)] {
        let (mut pool, mut now) = (BufferPool::new(1 << 26), Instant::from_us(5_000_000));
        let mut connection = established(&config, now);
        reads(&mut connection, &mut pool, &mut now, |i| !lags || i % 60 == 59);
        assert_eq!(connection.receive_buffer() > config.tcp_rmem.0, grows, "lags: {lags}");
    }
}

/// A sender in slow start, 100 ms away, whose flights come in one go and are read segment by segment, is given room for each of them: the
/// window opens as fast as his flights grow, until the buffer is as large as it may be.
#[test]
fn the_window_opens_as_fast_as_slow_start() {
    let (config, payload) = (Config::default(), [7; 1_460]);
    let (mut pool, mut now) = (BufferPool::new(1 << 30), Instant::from_us(5_000_000));
    let (rcv_scale, rtt_us) = (WindowScale::new(config.receive_scale()), Some(100_000));
    let mut connection = Connection::new(&Agreed { rcv_scale, rtt_us, ..agreed() }, 1_500, &config, now);
    let mut flight = 10 * 1_460;
    while flight < config.tcp_rmem.1 / 2 {
        now = now.after_us(100_000);
        let window = connection.rcv.adv.offset_from(connection.rcv.nxt) as u32;
        assert!(window >= flight, "{window} bytes for a flight of {flight}");
        for _ in 0..flight / 1_460 {
            now = now.after_us(1);
            let next = text(&connection, &payload);
            let mut cx = Cx { now, config: &config, pool: &mut pool };
            let arrival = connection.on_segment(&next, &mut cx);
            connection.finish(&arrival, arrival.text.len(), &mut cx);
            while let Some(plan) = connection.decide::<Lane>(now) {
                connection.commit(&plan, now);
            }
        }
        flight *= 2;
    }
}

/// A probe of a closed window is under way when the path turns out to be narrower. It is no loss that would have to be repaired: when the
/// window opens all is as it was.
#[test]
fn a_narrower_path_does_not_make_a_loss_of_a_window_probe() {
    let config = Config::default();
    let (mut pool, mut now) = (BufferPool::new(1 << 26), Instant::from_us(5_000_000));
    let mut connection = Connection::new(&Agreed { timestamps: true, ..agreed() }, 1_500, &config, now);
    let window = |connection: &mut Connection, pool: &mut BufferPool, now: Instant, window: u16| {
        let timestamps = Some(laneway_wire::tcp::Timestamps { val: 1, echo: 0 });
        let ack = Segment {
            ack: connection.snd.una,
            window: UnscaledWindow::new(window),
            options: Options { timestamps, ..Options::default() },
            ..text(connection, &[])
        };
        let _ = connection.on_segment(&ack, &mut Cx { now, config: &config, pool });
    };
    window(&mut connection, &mut pool, now, 0);
    assert_eq!(connection.send(&[7; 100], &mut Cx { now, config: &config, pool: &mut pool }), 100);
    while let Some(plan) = connection.decide::<Lane>(now) {
        assert_eq!(plan.len, 0, "the window is closed");
        connection.commit(&plan, now);
    }
    connection.settle::<Lane>(&mut Cx { now, config: &config, pool: &mut pool });
    now = connection.deadline();
    connection.on_timeout(&mut Cx { now, config: &config, pool: &mut pool });
    let probe = connection.decide::<Lane>(now).expect("it is probed");
    assert_eq!((probe.kind, probe.len), (crate::tcp::output::Kind::Probe, 1));
    connection.commit(&probe, now);

    let rto_us = connection.rto_us();
    connection.on_path_mtu(1_000);
    assert_eq!((connection.phase(), connection.mss(), connection.rto_us()), (Phase::Open, 948, rto_us));
    assert_eq!(connection.decide::<Lane>(now), None, "the probe was short enough");
    window(&mut connection, &mut pool, now, u16::MAX);
    let all = connection.decide::<Lane>(now).expect("the window is open");
    assert_eq!((all.seq, all.len), (ISS + 1, 100));
}

/// Who begins to send after a silence has not been answered because of that: the next hop may be gone meanwhile (RFC 4861 section 7.3.1).
#[test]
fn silence_is_no_answer() {
    let config = Config::default();
    let (mut pool, mut now) = (BufferPool::new(1 << 26), Instant::from_us(5_000_000));
    let mut connection = established(&config, now);
    assert!(connection.is_answered(now), "the handshake was");
    now = now.after_us(60_000_000);
    assert!(!connection.is_answered(now));
    assert_eq!(connection.send(b"x", &mut Cx { now, config: &config, pool: &mut pool }), 1);
    let plan = connection.decide::<Lane>(now).expect("a byte");
    connection.commit(&plan, now);
    now = now.after_us(250_000);
    assert!(!connection.is_answered(now), "when it is sent again, nothing has come yet");
    acknowledge(&mut connection, &config, &mut pool, &mut now);
    assert!(connection.is_answered(now));
}

/// Both have said all, and the peer's last words lie unread when the application closes: TIME-WAIT is not cut short for that. The peer may
/// have to repeat its FIN, and would be answered by a reset.
#[test]
fn bytes_that_nobody_reads_do_not_end_time_wait() {
    let config = Config::default();
    let (mut pool, now) = (BufferPool::new(1 << 26), Instant::from_us(5_000_000));
    let mut connection = established(&config, now);
    connection.shutdown();
    let fin = connection.decide::<Lane>(now).expect("a FIN");
    connection.commit(&fin, now);
    let seg = Segment { flags: Flags::ACK | Flags::FIN, ..text(&connection, b"unread") };
    let mut cx = Cx { now, config: &config, pool: &mut pool };
    let arrival = connection.on_segment(&seg, &mut cx);
    assert!(connection.finish(&arrival, 0, &mut cx));
    assert_eq!((connection.state(), connection.buffered()), (State::TimeWait, 6));
    connection.close(&mut cx);
    assert_eq!((connection.state(), connection.buffered()), (State::TimeWait, 0));
    assert_eq!(pool.lent(), 0);
}

/// The window is closed and was probed, the cork is in, the window opens: what the probe carried was refused, and is the first to leave when
/// the cork is out, or when there is enough for a segment.
#[test]
fn what_a_probe_carried_is_not_left_out_behind_a_cork() {
    let config = Config::default();
    for more in [0, 2_000] {
        let (mut pool, mut now) = (BufferPool::new(1 << 26), Instant::from_us(5_000_000));
        let mut connection = established(&config, now);
        let sent = |connection: &mut Connection, pool: &mut BufferPool, now: Instant| {
            let mut sent = Vec::new();
            while let Some(plan) = connection.decide::<Lane>(now) {
                sent.push((plan.seq.offset_from(ISS + 1), plan.len));
                connection.commit(&plan, now);
            }
            connection.settle::<Lane>(&mut Cx { now, config: &config, pool });
            sent
        };
        let open = |connection: &mut Connection, pool: &mut BufferPool, now: Instant, window: u16| {
            let ack = Segment { ack: ISS + 1, window: UnscaledWindow::new(window), ..text(connection, &[]) };
            let _ = connection.on_segment(&ack, &mut Cx { now, config: &config, pool });
        };
        open(&mut connection, &mut pool, now, 0);
        connection.set_cork(true);
        assert_eq!(connection.send(&[0; 100], &mut Cx { now, config: &config, pool: &mut pool }), 100);
        sent(&mut connection, &mut pool, now);
        let mut probed = 0;
        while probed == 0 {
            now = connection.deadline();
            connection.on_timeout(&mut Cx { now, config: &config, pool: &mut pool });
            probed = sent(&mut connection, &mut pool, now).iter().filter(|(at, len)| (*at, *len) == (0, 1)).count();
        }
        open(&mut connection, &mut pool, now, 5_000);
        assert_eq!(sent(&mut connection, &mut pool, now), [], "the cork is in");
        if more == 0 {
            connection.set_cork(false);
            assert_eq!(sent(&mut connection, &mut pool, now), [(0, 100)]);
        } else {
            assert_eq!(connection.send(&[0; 2_000], &mut Cx { now, config: &config, pool: &mut pool }), 2_000);
            assert_eq!(sent(&mut connection, &mut pool, now).first(), Some(&(0, 1_460)));
        }
    }
}

#[test]
fn what_has_been_released_holds_nothing() {
    struct Owner(Arc<()>);
    impl Keeper for Owner {
        fn bytes(&self, _: u32) -> &[u8] {
            &[0]
        }
        fn release(&mut self, _: u32) {}
        fn takes_room(&mut self) -> bool {
            Arc::strong_count(&self.0) == 0
        }
    }
    let (config, now) = (Config::default(), Instant::from_us(1_000_000));
    let mut pool = BufferPool::new(1 << 20);
    let mut connection = established(&config, now);
    let owner = Arc::new(());
    let mut cx = Cx { now, config: &config, pool: &mut pool };
    assert_eq!(connection.send(&[0; 100], &mut cx), 100);
    connection.set_keeper(Box::new(Owner(owner.clone())));
    let beyond_a_gap = text(&connection, &[0; 100]);
    let _ = connection.on_segment(&Segment { seq: beyond_a_gap.seq + 10, ..beyond_a_gap }, &mut cx);
    connection.board = Some(Box::default());
    assert!(connection.rcv.ooo.is_some() && connection.memory() > 0 && cx.pool.lent() > 0);
    connection.release(cx.pool);
    assert_eq!((connection.memory(), pool.lent(), Arc::strong_count(&owner)), (0, 0, 1));
    assert!(
        matches!(connection.snd.buf, SendQueue::Own(_)) && connection.rcv.ooo.is_none() && connection.board.is_none()
    );
}

/// A timer that nobody hears would be due for ever.
#[test]
fn what_is_over_has_no_keepalive() {
    let (config, now) = (Config::default(), Instant::from_us(1_000_000));
    let mut pool = BufferPool::new(1 << 20);
    let mut connection = established(&config, now);
    let mut cx = Cx { now, config: &config, pool: &mut pool };
    connection.die(CloseReason::Normal, &mut cx);
    connection.set_keepalive(true, &cx);
    assert_eq!(connection.deadline(), Instant::NEVER);
}

/// The user timeout decides when a silent peer is given up, and may leave time for more probes than are counted.
#[test]
fn keepalive_asks_for_as_long_as_the_user_timeout_lasts() {
    let second = 1_000_000;
    let times = Config { tcp_keepalive_time_us: second, tcp_keepalive_intvl_us: second, ..Config::default() };
    let mut pool = BufferPool::new(1 << 20);
    let (mut now, mut sent) = (Instant::from_us(5 * second), 0);
    let mut connection = established(&times, now);
    connection.set_user_timeout_ms(300_000);
    connection.set_keepalive(true, &Cx { now, config: &times, pool: &mut pool });
    while connection.state() == State::Established {
        now = connection.deadline();
        connection.on_timeout(&mut Cx { now, config: &times, pool: &mut pool });
        let plan = connection.decide::<Lane>(now).expect("a probe, and in the end a reset");
        connection.commit(&plan, now);
        sent += 1;
    }
    assert_eq!((sent, now), (300, Instant::from_us(305 * second)));
}

/// As the kernel has it in `icsk_probes_out`: probes that nothing has answered, and none once something has.
#[test]
fn a_listing_says_how_many_keepalive_probes_nobody_has_answered() {
    let second = 1_000_000;
    let times = Config { tcp_keepalive_time_us: second, tcp_keepalive_intvl_us: second, ..Config::default() };
    let mut pool = BufferPool::new(1 << 20);
    let mut now = Instant::from_us(5 * second);
    let mut connection = established(&times, now);
    connection.set_keepalive(true, &Cx { now, config: &times, pool: &mut pool });
    for unanswered in 0..3 {
        let info = connection.info(now);
        assert_eq!((info.timer.map(|(name, _)| name), info.retries), (Some("keepalive"), unanswered));
        now = connection.deadline();
        connection.on_timeout(&mut Cx { now, config: &times, pool: &mut pool });
        let plan = connection.decide::<Lane>(now).expect("a probe");
        connection.commit(&plan, now);
    }
}

/// `retrans` of `ss`: how much of what was sent again is under way, and how much there was in all.
#[test]
fn a_listing_tells_repeats_that_are_under_way_from_those_that_were() {
    let config = Config::default();
    let (mut pool, mut now) = (BufferPool::new(1 << 20), Instant::from_us(5_000_000));
    let mut connection = established(&config, now);
    assert_eq!(connection.send(&[7; 2_000], &mut Cx { now, config: &config, pool: &mut pool }), 2_000);
    let mut seen = Vec::new();
    for _ in 0..3 {
        while let Some(plan) = connection.decide::<Lane>(now) {
            connection.commit(&plan, now);
        }
        connection.settle::<Lane>(&mut Cx { now, config: &config, pool: &mut pool });
        let info = connection.info(now);
        seen.push((info.phase, info.repeats_out, info.retransmitted));
        now = connection.deadline();
        connection.on_timeout(&mut Cx { now, config: &config, pool: &mut pool });
        assert!(connection.phase() != Phase::Loss || connection.info(now).repeats_out == 0, "they are taken for lost");
    }
    acknowledge(&mut connection, &config, &mut pool, &mut now);
    let info = connection.info(now);
    seen.push((info.phase, info.repeats_out, info.retransmitted));
    assert_eq!(seen, [(Phase::Open, 0, 0), (Phase::Tail, 1, 1), (Phase::Loss, 1, 2), (Phase::Open, 0, 2)]);
}
