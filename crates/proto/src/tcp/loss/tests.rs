use super::super::connection::tests::{agreed, established, text};
use super::*;
use crate::tcp::buffer::BufferPool;
use crate::tcp::config::Config;
use crate::tcp::congestion::Algorithm;
use crate::tcp::connection::Agreed;
use crate::tcp::nagle::Lane;
use crate::tcp::output::Kind;
use laneway_wire::tcp::{Options, SackBlocks, Timestamps, UnscaledWindow, WindowScale};

const NOW: Instant = Instant::from_us(5_000_000);
const MSS: u32 = 1_460;

/// A connection, the time, and what both need. Places are counted from the first byte that it sends.
struct Rig {
    connection: Connection,
    config: Config,
    pool: BufferPool,
    now: Instant,
    first: SeqNum,
}

impl Rig {
    fn new(connection: Connection) -> Rig {
        let first = connection.snd.una;
        Rig { connection, config: Config::default(), pool: BufferPool::new(1 << 26), now: NOW, first }
    }

    /// Writes so many bytes and sends what may leave: what, from where, how much.
    fn write(&mut self, bytes: u32) -> Vec<(Kind, u32, u32)> {
        let cx = &mut Cx { now: self.now, config: &self.config, pool: &mut self.pool };
        assert_eq!(self.connection.send(&vec![0; bytes as usize], cx), bytes as usize);
        self.sent()
    }

    fn sent(&mut self) -> Vec<(Kind, u32, u32)> {
        let mut sent = Vec::new();
        while let Some(plan) = self.connection.decide::<Lane>(self.now) {
            sent.push((plan.kind, plan.seq.offset_from(self.first) as u32, plan.len));
            self.connection.commit(&plan, self.now);
        }
        self.connection.settle::<Lane>(&mut Cx { now: self.now, config: &self.config, pool: &mut self.pool });
        sent
    }

    /// The peer acknowledges up to there, and reports these ranges.
    fn hear(&mut self, ack: u32, reported: &[(u32, u32)]) -> Vec<(Kind, u32, u32)> {
        self.take(ack, reported);
        self.sent()
    }

    /// The same, with more to come in this poll before anything leaves.
    fn take(&mut self, ack: u32, reported: &[(u32, u32)]) {
        self.take_stamped(ack, reported, None);
    }

    /// The same, with a timestamp.
    fn take_stamped(&mut self, ack: u32, reported: &[(u32, u32)], timestamps: Option<Timestamps>) {
        let mut sack = SackBlocks::default();
        for (from, to) in reported {
            sack.push(SeqRange::new(self.first + *from, self.first + *to));
        }
        let options = Options { sack, timestamps, ..Options::default() };
        let window = UnscaledWindow::new(u16::MAX);
        let seg = Segment { ack: self.first + ack, window, options, ..text(&self.connection, &[]) };
        let cx = &mut Cx { now: self.now, config: &self.config, pool: &mut self.pool };
        let arrival = self.connection.on_segment(&seg, cx);
        self.connection.finish(&arrival, 0, cx);
    }

    fn pass(&mut self, us: u64) {
        self.now = self.now.after_us(us);
    }
}

/// Two segments of ten are lost, and one is behind the second of them: too little for it to count as lost. But nothing else may leave,
/// and so it is sent again, and not when the timer ends (RFC 6675 section 4, rule 3).
#[test]
fn the_last_hole_does_not_wait_for_the_timer() {
    let mut rig = Rig::new(established(&Config::default(), NOW));
    rig.write(10 * MSS);
    rig.pass(1_000);
    let mut again = Vec::new();
    for i in 1..8 {
        again.extend(rig.hear(0, &[(MSS, (i + 1) * MSS)]));
    }
    again.extend(rig.hear(0, &[(9 * MSS, 10 * MSS), (MSS, 8 * MSS)]));
    rig.pass(1_000);
    again.extend(rig.hear(8 * MSS, &[(9 * MSS, 10 * MSS)]));
    assert_eq!(again, [(Kind::Again, 0, MSS), (Kind::Again, 8 * MSS, MSS)]);
    rig.hear(10 * MSS, &[]);
    assert_eq!(rig.connection.phase(), Phase::Open);
}

/// The same where segments are so small that no number of them is two full ones.
#[test]
fn the_last_hole_of_small_segments_does_not_wait_either() {
    let mut rig = Rig::new(established(&Config::default(), NOW));
    rig.connection.set_nodelay(true);
    for _ in 0..10 {
        assert_eq!(rig.write(100).len(), 1);
    }
    rig.pass(1_000);
    let mut again = rig.hear(0, &[(100, 200)]);
    for i in 3..10 {
        again.extend(rig.hear(0, &[(300, (i + 1) * 100), (100, 200)]));
    }
    assert_eq!(again, [(Kind::Again, 0, 100), (Kind::Again, 200, 100)]);
}

/// What is new goes before what is perhaps lost (rule 2 before rule 3).
#[test]
fn new_text_leaves_before_a_hole_that_nobody_calls_lost() {
    let mut rig = Rig::new(established(&Config::default(), NOW));
    rig.connection.rtt.on_reordering(); // so that the repair may have come before what had left before it
    rig.write(10 * MSS);
    rig.write(2 * MSS);
    rig.pass(1_000);
    let mut sent = Vec::new();
    for i in 1..8 {
        sent.extend(rig.hear(0, &[(MSS, (i + 1) * MSS)]));
    }
    sent.extend(rig.hear(0, &[(9 * MSS, 10 * MSS), (MSS, 8 * MSS)]));
    sent.extend(rig.hear(8 * MSS, &[(9 * MSS, 10 * MSS)]));
    let places: Vec<u32> = sent.iter().map(|(_, place, _)| *place).collect();
    let (new, hole) = (places.iter().rposition(|p| *p >= 10 * MSS), places.iter().position(|p| *p == 8 * MSS));
    assert!(new.is_some() && hole.is_none_or(|hole| Some(hole) > new), "{sent:?}");
}

/// The timer waits for the answer to what was sent again, not for that to what was lost: on a path of 300 ms it would end 100 ms
/// before that can come, and take the window away.
#[test]
fn the_timer_starts_anew_with_a_fast_retransmission() {
    const RTT_US: u64 = 300_000;
    let agreed = Agreed { rtt_us: Some(RTT_US as u32), ..agreed() };
    let mut rig = Rig::new(Connection::new(&agreed, 1_500, &Config::default(), NOW));
    for _ in 0..60 {
        rig.connection.rtt.on_sample(RTT_US as u32);
    }
    rig.write(10 * MSS);
    rig.pass(RTT_US);
    let again: Vec<_> = (1..10).flat_map(|i| rig.hear(0, &[(MSS, (i + 1) * MSS)])).collect();
    assert_eq!(again, [(Kind::Again, 0, MSS)]);
    assert!(rig.connection.deadline() > rig.now.after_us(RTT_US + 100_000), "the answer comes after a round trip");
    // Who gives the peer only so long gives it no longer for this.
    rig.connection.set_user_timeout_ms(400);
    rig.connection.phase = Phase::Recovery;
    rig.connection.facts.set(Facts::FORCE);
    rig.sent();
    assert_eq!(rig.connection.deadline(), NOW.after_us(400_000), "100 ms are left of them");
}

/// A poll brings the ACK of what was in flight, and copies of it. What the application says in the same poll leaves before those are looked at,
/// and it is not missed in them.
#[test]
fn copies_of_an_ack_do_not_repeat_what_left_in_the_same_poll() {
    let agreed = Agreed { sack: false, ..agreed() };
    let mut rig = Rig::new(Connection::new(&agreed, 1_500, &Config::default(), NOW));
    rig.write(MSS);
    rig.pass(1_000);
    assert_eq!(rig.write(MSS), [(Kind::New, MSS, MSS)]);
    for _ in 0..4 {
        assert_eq!(rig.hear(MSS, &[]), []);
    }
    rig.pass(1_000);
    let again: Vec<_> = (0..3).flat_map(|_| rig.hear(MSS, &[])).collect();
    assert_eq!(again, [(Kind::Again, MSS, MSS)], "three that come later say that it is lost");
}

/// A window of forty segments is under way, from the 30th on.
fn forty_under_way() -> Rig {
    let mut rig = Rig::new(established(&Config::default(), NOW));
    for (from, to) in [(0, 10), (10, 30), (30, 70)] {
        assert_eq!(bytes(&rig.write((to - from) * MSS)), (to - from) * MSS);
        rig.pass(1_000);
        if to < 70 {
            rig.hear(to * MSS, &[]);
        }
    }
    rig
}

fn bytes(sent: &[(Kind, u32, u32)]) -> u32 {
    sent.iter().map(|(_, _, len)| len).sum()
}

/// Of forty segments the queue before a slow line had room for each third. Its window falls by three with each report, and one has left the
/// queue: no more than that is sent again, or it would not fit either.
fn two_thirds_lost() -> Rig {
    let mut rig = forty_under_way();
    let (mut arrived, mut again) = (0, 0);
    for third in (32..70).step_by(3) {
        let blocks = [third, third - 3, third - 6].map(|at| (at * MSS, (at + 1) * MSS));
        let known = ((third - 32) / 3 + 1).min(3) as usize;
        again += bytes(&rig.hear(30 * MSS, &blocks[..known]));
        arrived += MSS;
        assert!(again <= arrived, "{again} bytes again for {arrived} that arrived");
    }
    assert!(again >= 8 * MSS, "nor is anybody silent");
    rig.pass(1_000);
    rig
}

#[test]
fn what_did_not_fit_is_not_sent_again_faster_than_the_rest_arrives() {
    // What comes first shows that no more was lost than was known: now it is sent twice as fast, until the window is full.
    assert_eq!(bytes(&two_thirds_lost().hear(33 * MSS, &[])), 4 * MSS, "for two");
    // Not if more is known to be lost by the same report, nor before what comes first has come.
    assert_eq!(bytes(&two_thirds_lost().hear(33 * MSS, &[(68 * MSS, 70 * MSS)])), 3 * MSS, "for three");
    assert_eq!(bytes(&two_thirds_lost().hear(30 * MSS, &[(31 * MSS, 33 * MSS)])), MSS, "for one");
}

/// One segment of forty was lost, and while that was repaired more has arrived than could be sent. Of what was, next to nothing arrives: to repair that,
/// no more is sent than a first window and what has arrived since, whether its loss is told by the ACK that ends the one repair or by the next.
#[test]
fn what_arrived_in_one_repair_lets_nothing_go_in_the_next() {
    for is_told_at_once in [true, false] {
        let mut rig = forty_under_way();
        let again: Vec<_> = (31..70).flat_map(|at| rig.hear(30 * MSS, &[(31 * MSS, (at + 1) * MSS)])).collect();
        assert_eq!(again, [(Kind::Again, 30 * MSS, MSS)]);
        let new = bytes(&rig.write(40 * MSS)) / MSS;
        assert!(new > 24, "{new} segments in a window that was of forty");
        rig.pass(1_000);
        let end = 70 + new;
        let blocks = [(end - 2, end), (end - 5, end - 4), (end - 8, end - 7)].map(|(from, to)| (from * MSS, to * MSS));
        let sent = if is_told_at_once {
            bytes(&rig.hear(70 * MSS, &blocks))
        } else {
            rig.hear(70 * MSS, &blocks[2..]);
            assert_eq!(rig.connection.phase(), Phase::Open);
            bytes(&rig.hear(70 * MSS, &blocks))
        };
        assert_eq!(rig.connection.phase(), Phase::Recovery);
        assert!((MSS..=10 * MSS).contains(&sent), "{sent} bytes, told at once: {is_told_at_once}");
    }
}

/// A window of ten segments is under way, and reordering was seen before.
fn ten_that_may_be_late() -> Rig {
    let mut rig = Rig::new(established(&Config::default(), NOW));
    rig.connection.rtt.on_reordering();
    rig.write(10 * MSS);
    rig.pass(1_000);
    rig
}

/// Where reordering was seen it is for the clock to say what is lost, and a hole that it does not call lost is not sent again because nothing else may leave.
#[test]
fn the_last_hole_waits_where_it_may_be_late() {
    let mut rig = ten_that_may_be_late();
    assert_eq!(rig.hear(0, &[(MSS, 8 * MSS)]), []);
    rig.pass(300);
    assert_eq!(rig.hear(0, &[(9 * MSS, 10 * MSS), (MSS, 8 * MSS)]), [(Kind::Again, 0, MSS)]);
    rig.pass(300);
    assert_eq!(rig.hear(8 * MSS, &[(9 * MSS, 10 * MSS)]), [(Kind::Again, 8 * MSS, MSS)], "now it is too late");
}

/// When the first gap is filled, what is missing still is missing from then on: it has one time, and not two.
#[test]
fn the_next_gap_has_its_own_time() {
    let mut rig = ten_that_may_be_late();
    let mut again = rig.hear(0, &[(MSS, 2 * MSS)]);
    rig.pass(200);
    again.extend(rig.hear(2 * MSS, &[(3 * MSS, 4 * MSS)]));
    rig.pass(200);
    again.extend(rig.hear(2 * MSS, &[(3 * MSS, 5 * MSS)]));
    assert_eq!(again, [], "it may be late");
    rig.pass(100);
    assert_eq!(
        rig.hear(2 * MSS, &[(3 * MSS, 6 * MSS)]),
        [(Kind::Again, 2 * MSS, MSS)],
        "a quarter of a round trip later"
    );
}

/// Each time that what was taken for lost comes before it was sent again, a gap has longer by a quarter of a round trip, up to a whole one. Sixteen
/// repairs that were needed take one such quarter back, and the first stays.
#[test]
fn a_gap_has_longer_after_each_mistake() {
    let mut rig = Rig::new(established(&Config::default(), NOW));
    let (mut end, window) = (0, rig.connection.congestion);
    let mut repair = |is_late: bool| {
        rig.connection.congestion = window;
        rig.write(10 * MSS);
        rig.pass(1_000);
        rig.take(end, &[(end + MSS, end + 5 * MSS)]);
        rig.pass(rig.connection.rtt.srtt_us().map_or(1_000, u64::from)); // as long as any gap may last
        rig.take(end, &[(end + MSS, end + 6 * MSS)]);
        assert_eq!(rig.connection.phase(), Phase::Recovery);
        if !is_late {
            assert_eq!(bytes(&rig.sent()), MSS);
            rig.pass(1_000);
        }
        end += 10 * MSS;
        rig.hear(end, &[]);
        assert_eq!(rig.connection.phase(), Phase::Open);
        let rtt = &rig.connection.rtt;
        (rtt.reordering_us().unwrap_or(0) * 64).div_ceil(rtt.srtt_us().unwrap_or(1))
    };
    let late: Vec<u32> = (0..5).map(|_| repair(true)).collect();
    assert_eq!(late, [16, 32, 48, 64, 64]);
    let lost: Vec<u32> = (0..64).map(|_| repair(false)).collect();
    assert!(lost.iter().take(48).copied().eq((16..64).rev()), "{lost:?}");
    assert!(lost[48..].iter().all(|left| *left == 16), "{lost:?}");
}

/// Two segments were sent again. A report that three came twice is of what the network made two of, and takes nothing back.
#[test]
fn a_repetition_of_more_than_was_repeated_says_nothing() {
    let mut rig = Rig::new(established(&Config::default(), NOW));
    rig.write(10 * MSS);
    let before = rig.connection.congestion.window();
    rig.pass(1_000);
    let mut again = rig.hear(0, &[(3 * MSS, 9 * MSS), (MSS, 2 * MSS)]);
    again.extend(rig.hear(0, &[(3 * MSS, 10 * MSS), (MSS, 2 * MSS)]));
    assert_eq!(again, [(Kind::Again, 0, MSS), (Kind::Again, 2 * MSS, MSS)]);
    rig.pass(1_000);
    rig.hear(10 * MSS, &[]);
    rig.hear(10 * MSS, &[(0, 3 * MSS)]);
    assert!(rig.connection.congestion.window() < before);
    rig.hear(10 * MSS, &[(0, MSS)]);
    assert!(rig.connection.congestion.window() < before);
    rig.hear(10 * MSS, &[(2 * MSS, 3 * MSS)]);
    assert_eq!(rig.connection.congestion.window(), before, "both have come twice");
}

/// Three segments are lost, and all three once more. When the first of them is acknowledged the others, which had left before it, are sent at
/// once: one of them with each round trip would take as long as the timer, and half of the window each.
#[test]
fn what_was_lost_twice_is_sent_at_once() {
    let agreed = Agreed { rtt_us: Some(200), ..agreed() };
    let mut rig = Rig::new(Connection::new(&agreed, 1_500, &Config::default(), NOW));
    rig.write(10 * MSS);
    rig.write(20 * MSS);
    let mut under_way: std::collections::VecDeque<u32> = (0..10).collect();
    let (mut times, mut top) = ([0; 3], 3);
    while let Some(at) = under_way.pop_front() {
        rig.pass(100);
        if at < 3 {
            times[at as usize] += 1;
            if times[at as usize] == 3 {
                break;
            }
            continue;
        }
        top = top.max(at + 1);
        for (_, from, len) in rig.hear(0, &[(3 * MSS, top * MSS)]) {
            under_way.extend((from / MSS)..(from + len) / MSS);
        }
    }
    assert_eq!(times, [3, 2, 2], "the timer was not needed");
    let sent = rig.hear(MSS, &[(3 * MSS, top * MSS)]);
    assert_eq!(sent[0], (Kind::Again, MSS, 2 * MSS));
    assert_eq!(rig.connection.phase(), Phase::Recovery);
}

/// One segment of ten is late, and sent again. That it has come twice takes the recovery back if it is said soon, and not if it is said of a copy that the
/// network made, long after.
#[test]
fn what_comes_twice_long_after_takes_nothing_back() {
    for (windows_x4, is_taken_back) in [(0, true), (3, true), (5, false), (20, false)] {
        let mut rig = Rig::new(established(&Config::default(), NOW));
        rig.hear(0, &[]);
        let more = rig.connection.snd.max_wnd / MSS * windows_x4 / 4;
        rig.write(10 * MSS);
        let before = rig.connection.congestion.window();
        rig.pass(1_000);
        assert_eq!(rig.hear(0, &[(MSS, 4 * MSS)]), [(Kind::Again, 0, MSS)]);
        rig.pass(1_000);
        rig.hear(10 * MSS, &[]);
        let after = rig.connection.congestion.window();
        assert!(after < before, "{after} of {before}");
        for i in 0..more {
            rig.write(MSS);
            rig.pass(1_000);
            rig.hear((11 + i) * MSS, &[]);
        }
        assert_eq!(rig.connection.congestion.window(), after, "one segment at a time asks for no more");
        rig.hear((10 + more) * MSS, &[(0, MSS)]);
        let window = rig.connection.congestion.window();
        assert_eq!(window, if is_taken_back { before } else { after }, "{more} segments later");
        assert_eq!(rig.connection.unreturned, 0);
    }
}

/// So it is if more than half of the circle was acknowledged meanwhile, all of it as predicted.
#[test]
fn what_comes_twice_takes_nothing_back_from_the_other_side_of_the_circle() {
    for gib in [1, 3] {
        let mut rig = Rig::new(established(&Config::default(), NOW));
        rig.write(10 * MSS);
        rig.pass(1_000);
        assert_eq!(rig.hear(0, &[(MSS, 4 * MSS)]), [(Kind::Again, 0, MSS)]);
        rig.pass(1_000);
        rig.hear(10 * MSS, &[]);
        assert_eq!(rig.connection.unreturned, MSS as i32, "it was lost");
        let after = rig.connection.congestion.window();
        // Where the repair was is so far behind.
        let Connection { recover, rexmit_nxt, .. } = &mut rig.connection;
        (*recover, *rexmit_nxt) = (*recover - (gib << 30), *rexmit_nxt - (gib << 30));
        rig.hear(10 * MSS, &[(8 * MSS, 9 * MSS)]);
        assert_eq!(rig.connection.congestion.window(), after, "{gib} GiB later");
    }
}

/// What waits for the ACK that is about to come, because more can leave together with it, waits for the congestion window: that is in use, and grows.
#[test]
fn a_window_that_is_spared_for_a_moment_is_in_use() {
    let config = Config { tcp_congestion_control: Algorithm::Reno, ..Config::default() };
    let mut rig = Rig::new(established(&config, NOW));
    rig.connection.congestion.leave_slow_start();
    assert_eq!(bytes(&rig.write(8 * MSS)), 8 * MSS);
    rig.pass(600);
    assert_eq!(rig.write(20 * MSS), [], "of ten there is room for two");
    rig.pass(400);
    assert_eq!(bytes(&rig.hear(8 * MSS, &[])), 10 * MSS);
    rig.pass(1_000);
    rig.hear(10 * MSS, &[]);
    assert_eq!(rig.connection.congestion.window(), 11 * MSS, "ten were acknowledged");
}

/// It is in use, and has not been under way: a loss halves what was, and what ACKs of the same poll have let go beside it.
#[test]
fn a_window_that_is_spared_is_not_what_was_under_way() {
    let config = Config { tcp_congestion_control: Algorithm::Reno, ..Config::default() };
    for acked in [0, 2] {
        let mut rig = Rig::new(established(&config, NOW));
        assert_eq!(bytes(&rig.write(8 * MSS)), 8 * MSS);
        rig.pass(600);
        assert_eq!(rig.write(20 * MSS), [], "of ten there is room for two");
        rig.take(acked * MSS, &[]);
        assert_eq!(rig.connection.congestion.window(), (10 + acked) * MSS);
        rig.hear(acked * MSS, &[((acked + 1) * MSS, (acked + 5) * MSS)]);
        assert_eq!(rig.connection.phase(), Phase::Recovery);
        assert_eq!(rig.connection.congestion.window(), (8 + acked) / 2 * MSS);
    }
}

/// What a probe has sent again is, once it has left; one that carries new text has sent nothing again.
#[test]
fn only_what_a_probe_repeats_counts_as_repeated() {
    for unsent in [0, 2] {
        let mut rig = Rig::new(established(&Config::default(), NOW));
        rig.write((10 + unsent) * MSS);
        rig.now = rig.connection.deadline();
        let cx = &mut Cx { now: rig.now, config: &rig.config, pool: &mut rig.pool };
        rig.connection.on_timeout(cx);
        assert_eq!((rig.connection.phase(), rig.connection.repeated()), (Phase::Tail, 0));
        let (kind, place) = if unsent > 0 { (Kind::New, 10 * MSS) } else { (Kind::Again, 9 * MSS) };
        assert_eq!(rig.sent(), [(kind, place, MSS)]);
        assert_eq!(rig.connection.repeated(), if unsent > 0 { 0 } else { MSS });
    }
}

/// A loss of long ago was one, and its window stays as small as it became. A path that is called narrower than it is has what is in flight sent again, all of
/// which comes twice: that takes nothing back, since nothing became smaller for it.
#[test]
fn what_a_narrower_path_repeats_does_not_undo_an_older_loss() {
    let agreed = Agreed {
        snd_scale: WindowScale::new(0),
        snd_wnd: UnscaledWindow::new(u16::MAX) << WindowScale::new(0),
        ..agreed()
    };
    let mut rig = Rig::new(Connection::new(&agreed, 1_500, &Config::default(), NOW));
    rig.write(10 * MSS);
    let before = rig.connection.congestion.window();
    rig.pass(1_000);
    assert_eq!(rig.hear(0, &[(MSS, 4 * MSS)]), [(Kind::Again, 0, MSS)]);
    rig.pass(1_000);
    rig.hear(10 * MSS, &[]);
    assert!(rig.connection.congestion.window() < before, "it was lost");
    // Much more than a window is acknowledged meanwhile, one segment at a time: the window is not used and does not grow.
    let mut at = 10;
    for _ in 0..60 {
        rig.write(MSS);
        rig.pass(1_000);
        at += 1;
        rig.hear(at * MSS, &[]);
    }
    let window = rig.connection.congestion.window();
    let threshold = rig.connection.slow_start_threshold();
    assert!(window < before && threshold < before);
    rig.write(4 * MSS);
    rig.connection.on_path_mtu(1_400);
    let again = rig.sent();
    assert_eq!(bytes(&again), 4 * MSS);
    rig.pass(1_000);
    // All of the originals have come, and then all that repeats them.
    rig.hear((at + 4) * MSS, &[]);
    rig.hear((at + 4) * MSS, &[(at * MSS, (at + 4) * MSS)]);
    assert_eq!(rig.connection.slow_start_threshold(), threshold, "the loss is forgotten");
}

/// Timestamps were not agreed on, and come all the same: whoever took them out of one SYN and not of what follows makes the peer echo that of our SYN for
/// ever. They say nothing (RFC 7323 section 3.2: "the TSopt MUST be ignored and the packet processed normally"): neither that a loss was none, nor how
/// long a round trip takes.
#[test]
fn timestamps_that_were_not_agreed_on_say_nothing() {
    let outcome = |echo: Option<u32>| {
        let mut rig = Rig::new(established(&Config::default(), NOW));
        assert!(!rig.connection.facts.has(Facts::TIMESTAMPS));
        let stamped = |rig: &mut Rig, ack: u32, reported: &[(u32, u32)]| {
            rig.take_stamped(ack, reported, echo.map(|echo| Timestamps { val: 7, echo }));
            rig.sent()
        };
        rig.write(20 * MSS);
        for i in 1..6 {
            rig.pass(1_000);
            stamped(&mut rig, i * MSS, &[]);
        }
        let srtt = rig.connection.rtt.srtt_us();
        // The next one is lost.
        rig.pass(1_000);
        assert_eq!(stamped(&mut rig, 5 * MSS, &[(6 * MSS, 10 * MSS)]).first(), Some(&(Kind::Again, 5 * MSS, MSS)));
        rig.pass(1_000);
        stamped(&mut rig, 10 * MSS, &[]);
        (rig.connection.phase(), rig.connection.congestion.window(), rig.connection.slow_start_threshold(), srtt)
    };
    // Our clock says 5,000 and more.
    assert_eq!(outcome(Some(4_990)), outcome(None));
}
