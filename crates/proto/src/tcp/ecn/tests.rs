use super::super::config::Config;
use super::super::connection::tests::{acknowledge_to, agreed};
use super::super::nagle::Lane;
use super::super::{BufferPool, Cx};
use super::*;
use crate::time::Instant;

const NOW: Instant = Instant::from_us(5_000_000);

/// A sender whose whole window is under way.
fn sender(ecn: bool) -> (Connection, BufferPool, Config) {
    let (config, mut pool) = (Config::default(), BufferPool::new(1 << 26));
    let mut connection = Connection::new(&agreed(), 1_500, &config, NOW);
    if ecn {
        connection.use_ecn();
    }
    let mut cx = Cx { now: NOW, config: &config, pool: &mut pool };
    assert_eq!(connection.send(&[0; 100_000], &mut cx), 100_000);
    leave(&mut connection);
    connection.settle::<Lane>(&mut cx);
    (connection, pool, config)
}

/// What may leave does. Says what of it was marked ECT, and said CWR.
fn leave(connection: &mut Connection) -> Vec<(u8, Flags)> {
    let mut said = Vec::new();
    while let Some(plan) = connection.decide::<Lane>(NOW) {
        said.push((connection.marks_of(&plan).dscp_ecn, connection.notes_of(&plan)));
        connection.commit(&plan, NOW);
    }
    said
}

#[test]
fn who_does_not_use_it_heeds_nothing() {
    let (mut connection, mut pool, config) = sender(false);
    let cwnd = connection.cwnd();
    connection.heed_echo(false, &Cx { now: NOW, config: &config, pool: &mut pool });
    connection.heed_mark(Flags::ACK, true);
    assert_eq!((connection.cwnd(), connection.uses_ecn(), connection.told.is_none()), (cwnd, false, true));
    let all = connection.snd.nxt;
    acknowledge_to(&mut connection, all, &config, &mut pool, NOW);
    assert!(leave(&mut connection).iter().all(|said| *said == (0, Flags::NONE)));
}

/// The application's word about the other bits holds, and about these two does not.
#[test]
fn marks_of_the_application_are_beside_it() {
    let (mut connection, mut pool, config) = sender(true);
    connection.set_marks(Marks { hop_limit: 9, dscp_ecn: 0b1011_1011 });
    let all = connection.snd.nxt;
    acknowledge_to(&mut connection, all, &config, &mut pool, NOW);
    let plan = connection.decide::<Lane>(NOW).expect("there is more");
    assert_eq!(connection.marks_of(&plan), Marks { hop_limit: 9, dscp_ecn: 0b1011_1010 });
    let again = Plan { kind: Kind::Again, ..plan };
    assert_eq!(connection.marks_of(&again), Marks { hop_limit: 9, dscp_ecn: 0b1011_1000 });
}

#[test]
fn a_window_is_reduced_once_and_its_loss_does_not_reduce_it_again() {
    let (mut connection, mut pool, config) = sender(true);
    let before = connection.flight();
    let mut cx = Cx { now: NOW, config: &config, pool: &mut pool };
    connection.heed_echo(false, &cx);
    let reduced = connection.cwnd();
    assert_eq!(reduced, before * 7 / 10);
    connection.heed_echo(false, &cx);
    connection.enter_recovery(&mut cx);
    assert_eq!(connection.cwnd(), reduced);
    // When all of that is acknowledged, the peer does not know yet that it was heeded; once more is, an echo is another's.
    let all = connection.snd.nxt;
    acknowledge_to(&mut connection, all, &config, &mut pool, NOW);
    assert_eq!(connection.cwnd(), reduced);
    let first = leave(&mut connection);
    assert_eq!(first[0], (ECT_0, Flags::CWR));
    assert!(first[1..].iter().all(|said| *said == (ECT_0, Flags::NONE)));
    connection.heed_echo(true, &Cx { now: NOW, config: &config, pool: &mut pool });
    assert_eq!(connection.cwnd(), reduced);
    acknowledge_to(&mut connection, all + 1, &config, &mut pool, NOW);
    connection.heed_echo(true, &Cx { now: NOW, config: &config, pool: &mut pool });
    assert!(connection.cwnd() < reduced);
}

/// What says CWR has left in the smaller window. If it is lost, that is another loss.
#[test]
fn a_loss_of_what_left_later_reduces_the_window_again() {
    let (mut connection, mut pool, config) = sender(true);
    connection.heed_echo(false, &Cx { now: NOW, config: &config, pool: &mut pool });
    let (all, reduced) = (connection.snd.nxt, connection.cwnd());
    acknowledge_to(&mut connection, all, &config, &mut pool, NOW);
    assert_eq!(leave(&mut connection)[0], (ECT_0, Flags::CWR));
    let under_way = connection.flight();
    connection.enter_recovery(&mut Cx { now: NOW, config: &config, pool: &mut pool });
    assert!(connection.cwnd() < reduced, "{} of {under_way} under way", connection.cwnd());
    // The peer goes on with its echo until what says CWR has come.
    let cwnd = connection.cwnd();
    connection.heed_echo(false, &Cx { now: NOW, config: &config, pool: &mut pool });
    assert_eq!(connection.cwnd(), cwnd);
}

/// Nothing was lost after all: the window is as large as before, and nobody is told that it became smaller. What a mark has made smaller stays so.
#[test]
fn a_mistake_is_taken_back_and_a_mark_is_not() {
    for is_marked in [false, true] {
        let (mut connection, mut pool, config) = sender(true);
        let (before, all) = (connection.cwnd(), connection.snd.nxt);
        let mut cx = Cx { now: NOW, config: &config, pool: &mut pool };
        connection.enter_recovery(&mut cx);
        let reduced = connection.cwnd();
        if is_marked {
            connection.heed_echo(false, &cx);
        }
        connection.take_back();
        assert_eq!(connection.cwnd(), if is_marked { reduced } else { before });
        acknowledge_to(&mut connection, all, &config, &mut pool, NOW);
        let said = if is_marked { Flags::CWR } else { Flags::NONE };
        assert_eq!(leave(&mut connection)[0], (ECT_0, said));
        // And it grows again.
        let cwnd = connection.cwnd();
        for _ in 0..2 {
            let all = connection.snd.nxt;
            acknowledge_to(&mut connection, all, &config, &mut pool, NOW);
            leave(&mut connection);
        }
        assert!(connection.cwnd() > cwnd, "marked: {is_marked}");
    }
}

/// A window that a mark has made smaller is not widened by a report that a former repair was a mistake.
#[test]
fn what_comes_twice_does_not_undo_a_mark() {
    let (mut connection, mut pool, config) = sender(true);
    let cx = Cx { now: NOW, config: &config, pool: &mut pool };
    connection.heed_echo(false, &cx);
    let reduced = connection.cwnd();
    assert!(!connection.congestion.undo());
    assert_eq!(connection.cwnd(), reduced);
}

/// A peer that sends much, and says in all of it what its text has not yet been answered by.
#[test]
fn who_has_nothing_under_way_hears_no_echo() {
    let (mut connection, mut pool, config) = sender(true);
    while connection.flight() > 0 {
        let all = connection.snd.nxt;
        acknowledge_to(&mut connection, all, &config, &mut pool, NOW);
        leave(&mut connection);
    }
    let cwnd = connection.cwnd();
    connection.heed_echo(false, &Cx { now: NOW, config: &config, pool: &mut pool });
    assert_eq!(connection.cwnd(), cwnd);
    connection.heed_echo(true, &Cx { now: NOW, config: &config, pool: &mut pool });
    assert!(connection.cwnd() < cwnd, "of what was just acknowledged");
    let reduced = connection.cwnd();
    connection.heed_echo(true, &Cx { now: NOW, config: &config, pool: &mut pool });
    assert_eq!(connection.cwnd(), reduced);
}

/// What was heeded long ago does not lie ahead again half a circle later.
#[test]
fn what_was_heeded_is_forgotten() {
    let (mut connection, mut pool, config) = sender(true);
    connection.heed_echo(false, &Cx { now: NOW, config: &config, pool: &mut pool });
    let all = connection.snd.nxt;
    acknowledge_to(&mut connection, all, &config, &mut pool, NOW);
    leave(&mut connection);
    assert_eq!(connection.ecn().and_then(|ecn| ecn.heeded_to), Some(all));
    let all = connection.snd.nxt;
    acknowledge_to(&mut connection, all, &config, &mut pool, NOW);
    leave(&mut connection);
    assert_eq!(connection.ecn().and_then(|ecn| ecn.heeded_to), None);
}

/// A repair has made the window smaller for what is under way, whatever was marked of it: the peer is told so.
#[test]
fn who_repairs_has_a_smaller_window_already() {
    let (mut connection, mut pool, config) = sender(true);
    let mut cx = Cx { now: NOW, config: &config, pool: &mut pool };
    connection.enter_recovery(&mut cx);
    let reduced = connection.cwnd();
    connection.heed_echo(false, &cx);
    assert_eq!((connection.cwnd(), connection.has_heeded_mark()), (reduced, true));
}

/// RFC 3168 section 6.1.2: a mark makes no window wider. Where the SYN was lost the first is one segment, and of that and of one of a segment and a half
/// an echo must not make two.
#[test]
fn a_mark_does_not_widen_a_window_of_one_segment() {
    let (config, mut pool) = (Config::default(), BufferPool::new(1 << 26));
    let lost = super::super::connection::Agreed { syn_lost: true, ..agreed() };
    let mut connection = Connection::new(&lost, 1_500, &config, NOW);
    connection.use_ecn();
    let mut cx = Cx { now: NOW, config: &config, pool: &mut pool };
    assert_eq!(connection.send(&[0; 100_000], &mut cx), 100_000);
    leave(&mut connection);
    connection.settle::<Lane>(&mut cx);
    let before = connection.cwnd();
    assert_eq!((before, connection.flight()), (1_460, 1_460), "one segment is under way");
    connection.heed_echo(false, &cx);
    assert!(connection.cwnd() <= before, "{} of {before}", connection.cwnd());
}

/// What a tail loss probe finds out to have been lost had left in the window that a mark has made smaller already: that is one event of one window
/// (RFC 3168 section 6.1.2), as it is where a recovery finds it.
#[test]
fn a_tail_of_a_marked_window_does_not_reduce_it_again() {
    for is_marked in [false, true] {
        let (config, mut pool) = (Config::default(), BufferPool::new(1 << 26));
        let mut connection = Connection::new(&agreed(), 1_500, &config, NOW);
        connection.use_ecn();
        let mut cx = Cx { now: NOW, config: &config, pool: &mut pool };
        assert_eq!(connection.send(&[0; 14_600], &mut cx), 14_600);
        leave(&mut connection);
        connection.settle::<Lane>(&mut cx);
        let (all, before) = (connection.snd.nxt, connection.cwnd());
        if is_marked {
            connection.heed_echo(false, &cx);
            assert!(connection.cwnd() < before);
        }
        // All but the last is acknowledged, which a probe repeats, and then that.
        acknowledge_to(&mut connection, all - 1_460, &config, &mut pool, NOW);
        connection.enter_tail();
        assert_eq!(leave(&mut connection).len(), 1);
        acknowledge_to(&mut connection, all, &config, &mut pool, NOW);
        assert_eq!(connection.phase(), Phase::Tail, "did both come?");
        let reduced = connection.cwnd();
        let mut cx = Cx { now: NOW, config: &config, pool: &mut pool };
        assert_eq!(connection.send(&[0; 2_920], &mut cx), 2_920);
        leave(&mut connection);
        let all = connection.snd.nxt;
        acknowledge_to(&mut connection, all, &config, &mut pool, NOW);
        assert_eq!(connection.phase(), Phase::Open, "one of them was lost");
        assert_eq!(connection.cwnd() < reduced, !is_marked, "{} of {reduced}, marked: {is_marked}", connection.cwnd());
    }
}
