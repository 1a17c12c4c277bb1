use super::super::connection::tests::{acknowledge, agreed, established};
use super::*;
use crate::tcp::Cx;
use crate::tcp::buffer::BufferPool;
use crate::tcp::config::Config;
use crate::tcp::nagle::Lane;

const NOW: Instant = Instant::from_us(5_000_000);
const MSS: u32 = 1_460;

fn pool() -> BufferPool {
    BufferPool::new(1 << 26)
}

/// A connection whose handshake took so long, in microseconds.
fn far(rtt_us: Option<u32>) -> Connection {
    Connection::new(&crate::tcp::Agreed { rtt_us, ..agreed() }, 1_500, &Config::default(), NOW)
}

fn write(connection: &mut Connection, bytes: &[u8], pool: &mut BufferPool, now: Instant) {
    let config = Config::default();
    assert_eq!(connection.send(bytes, &mut Cx { now, config: &config, pool }), bytes.len());
}

#[test]
fn what_is_cut_off_a_super_segment_takes_its_last_flags_along() {
    let (mut connection, mut pool) = (far(None), pool());
    write(&mut connection, &[0; 5_000], &mut pool, NOW);
    connection.shutdown();
    let plan = connection.decide::<Lane>(NOW).expect("there is something to send");
    assert_eq!((plan.len, plan.segments), (5_000, 4));
    assert!(plan.flags.psh() && plan.flags.fin() && plan.small);
    let front = plan.shortened(2 * MSS);
    assert_eq!((front.len, front.segments, front.seq), (2 * MSS, 2, plan.seq));
    assert_eq!(front.flags, Flags::ACK);
    assert!(!front.small);
    // What was not taken leaves next, and only then is all said.
    connection.commit(&front, NOW);
    assert!(connection.has_more());
    let rest = connection.decide::<Lane>(NOW).expect("the rest");
    assert_eq!((rest.len, rest.flags), (5_000 - 2 * MSS, plan.flags));
    connection.commit(&rest, NOW);
    assert!(!connection.has_more(), "its FIN is out");
    assert_eq!(connection.decide::<Lane>(NOW), None);
}

#[test]
fn a_fin_by_itself_is_something_to_send() {
    let (mut connection, mut pool) = (far(None), pool());
    write(&mut connection, b"x", &mut pool, NOW);
    let plan = connection.decide::<Lane>(NOW).expect("a byte");
    connection.commit(&plan, NOW);
    assert!(!connection.has_more());
    connection.shutdown();
    assert!(connection.has_more());
    let fin = connection.decide::<Lane>(NOW).expect("the FIN");
    assert_eq!((fin.len, fin.flags), (0, Flags::ACK | Flags::FIN));
    connection.commit(&fin, NOW);
    assert!(!connection.has_more());
}

#[test]
fn a_super_segment_is_a_millisecond_long_and_longer_on_a_short_path() {
    assert!(far(None).is_near() && far(Some(511)).is_near());
    assert!(!far(Some(512)).is_near());
    assert_eq!(far(Some(511)).autosize(MSS), SUPER_MAX);
    let window = far(None).cwnd();
    for (rtt, nearness) in [(512, SUPER_MAX / 2), (2_048, SUPER_MAX / 16), (100_000, 0)] {
        let by_rate = (u64::from(window) * 1_200 / u64::from(rtt)) as u32;
        let expected = (by_rate + nearness).clamp(2 * MSS, SUPER_MAX);
        assert_eq!(far(Some(rtt)).autosize(MSS), expected, "a path of {rtt} us");
    }
}

#[test]
fn a_piece_waits_for_the_acknowledgement_that_is_about_to_come_and_for_no_other() {
    // Of a window of ten segments four are free; half of it is five.
    let deferring = |configure: &dyn Fn(&mut Connection)| {
        let (mut connection, mut pool) = (far(Some(400)), pool());
        write(&mut connection, &[0; 6 * MSS as usize], &mut pool, NOW);
        while let Some(plan) = connection.decide::<Lane>(NOW) {
            connection.commit(&plan, NOW);
        }
        configure(&mut connection);
        connection
    };
    let usual = deferring(&|_| {});
    let limit = 3 * MSS;
    assert!(usual.should_defer(NOW.after_us(200), limit, MSS), "half of a round trip has passed");
    assert!(!usual.should_defer(NOW.after_us(199), limit, MSS), "it has only just left");
    assert!(!usual.should_defer(NOW.after_us(200), 5 * MSS, MSS), "as large as it can become");
    assert!(!usual.should_defer(NOW.after_us(200), 4 * MSS, MSS), "more than a third of the window");
    let far = NOW.after_us(1_000);
    assert!(usual.should_defer(far, limit, MSS), "what was sent a millisecond ago");
    assert!(!usual.should_defer(far.after_us(1), limit, MSS), "who writes now and then is not held up");
    let fin = deferring(&|connection| connection.facts.set(Facts::FIN_QUEUED));
    assert!(!fin.should_defer(NOW.after_us(200), limit, MSS), "the last of it");
    let untimed = deferring(&|connection| connection.facts.clear(Facts::TIMING));
    assert!(!untimed.should_defer(NOW.after_us(200), limit, MSS), "nothing says when it will come");
}

#[test]
fn parts_are_the_segment_that_build_writes() {
    let (mut connection, mut pool) = (far(None), pool());
    let bytes: Vec<u8> = (0..9_000u32).map(|i| i as u8).collect();
    write(&mut connection, &bytes, &mut pool, NOW);
    let plan = connection.decide::<Lane>(NOW).expect("a super-segment");
    let mut whole = vec![0; plan.segment_len()];
    connection.build(&plan, NOW, true, &mut whole);
    let mut head = [0xff; 60];
    let (first, second) = connection.parts(&plan, NOW, &mut head).expect("it lies in two places at the most");
    let parts = [&head[..plan.header_len.into()], first, second].concat();
    assert_eq!(parts, whole);
    assert!(parts.ends_with(&bytes[..plan.len as usize]));
}

#[test]
fn after_a_pause_the_window_is_what_it_was_at_the_start() {
    let (config, mut pool, mut now) = (Config::default(), pool(), NOW);
    let mut connection = established(&config, now);
    let begun = connection.cwnd();
    // Windows full are sent and acknowledged until all is out.
    connection.send(&vec![0; 1 << 19], &mut Cx { now, config: &config, pool: &mut pool });
    while connection.queued() > 0 {
        while let Some(plan) = connection.decide::<Lane>(now) {
            connection.commit(&plan, now);
        }
        connection.settle::<Lane>(&mut Cx { now, config: &config, pool: &mut pool });
        acknowledge(&mut connection, &config, &mut pool, &mut now);
    }
    let grown = connection.cwnd();
    assert!(grown > 4 * begun, "{begun} bytes became {grown}");
    for (pause_us, window) in [(1_000, grown), (10_000_000, begun)] {
        now = now.after_us(pause_us);
        write(&mut connection, b"x", &mut pool, now);
        let plan = connection.decide::<Lane>(now).expect("a byte");
        connection.commit(&plan, now);
        assert_eq!(connection.cwnd(), window, "after {pause_us} us");
        acknowledge(&mut connection, &config, &mut pool, &mut now);
    }
}
