use super::super::config::Config;
use super::super::connection::Agreed;
use super::super::connection::tests::agreed;
use super::super::nagle::Lane;
use super::super::{BufferPool, Cx};
use super::*;
use crate::tcp::connection::tests::acknowledge_to;
use laneway_wire::flow::{Address, FlowKey};
use laneway_wire::tcp::{UnscaledWindow, WindowScale};

const NOW: Instant = Instant::from_us(5_000_000);

/// A sender on a path of which only it is known what it carries.
struct Sender {
    connection: Connection,
    config: Config,
    pool: BufferPool,
    now: Instant,
    carries: u32,
}

fn sender(agreed: &Agreed, link: u32, carries: u32, config: Config) -> Sender {
    let mut sender = Sender {
        connection: Connection::new(agreed, link, &config, NOW),
        config,
        pool: BufferPool::new(1 << 26),
        now: NOW,
        carries,
    };
    sender.write(100_000);
    sender
}

impl Sender {
    fn write(&mut self, bytes: usize) {
        let mut cx = Cx { now: self.now, config: &self.config, pool: &mut self.pool };
        assert_eq!(self.connection.send(&vec![0; bytes], &mut cx), bytes);
    }

    /// All that may leave does; what fits is acknowledged.
    fn go(&mut self) {
        loop {
            let una = self.connection.snd.una;
            let mut whole = una;
            while let Some(plan) = self.connection.decide::<Lane>(self.now) {
                let headers = if self.connection.key().is_v4() { 20 } else { 40 };
                let segment = u32::from(plan.mss).min(plan.len) + u32::from(plan.header_len) + headers;
                if segment <= self.carries && plan.seq.at_or_before(whole) {
                    whole = whole.latest(plan.seq + plan.len);
                }
                self.connection.commit(&plan, self.now);
            }
            self.connection.settle::<Lane>(&mut Cx { now: self.now, config: &self.config, pool: &mut self.pool });
            if whole == una {
                return;
            }
            self.now = self.now.after_us(1_000);
            acknowledge_to(&mut self.connection, whole, &self.config, &mut self.pool, self.now);
        }
    }

    /// Until the retransmission timer ends. Says what is known by that.
    fn wait(&mut self) -> Option<u32> {
        loop {
            self.now = self.connection.deadline();
            let mut cx = Cx { now: self.now, config: &self.config, pool: &mut self.pool };
            let is_due = self.connection.is_retransmission_due(self.now);
            let found = if is_due { self.connection.suspect_path(&cx) } else { None };
            self.connection.on_timeout(&mut cx);
            self.go();
            if is_due {
                return found;
            }
        }
    }

    /// What is found in so many time-outs, at the last of them.
    fn found(&mut self, within: usize) -> Option<u32> {
        self.go();
        (0..within).find_map(|_| self.wait())
    }
}

fn v6() -> Agreed {
    let [local, remote] = [1, 2].map(|last| Address::from_v6([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]));
    Agreed { key: FlowKey { local, remote, ..agreed().key }, peer_mss: 8_940, ..agreed() }
}

#[test]
fn what_a_path_carries_is_found_in_steps() {
    let jumbo = Agreed { peer_mss: 8_960, ..agreed() };
    for (agreed, link, carries, finds, timeouts) in [
        (agreed(), 1_500, 1_499, 1_280, 5),
        (agreed(), 1_500, 1_280, 1_280, 5),
        (agreed(), 1_500, 1_279, 576, 6),
        (jumbo, 9_000, 8_999, 1_500, 5),
        (jumbo, 9_000, 1_280, 1_280, 6),
        (jumbo, 9_000, 576, 576, 7),
        (v6(), 9_000, 1_499, 1_280, 6),
    ] {
        let mut sender = sender(&agreed, link, carries, Config::default());
        assert_eq!(sender.found(timeouts - 1), None, "{carries} of {link}");
        assert_eq!(sender.wait(), Some(finds), "{carries} of {link}");
        sender.go();
        assert_eq!(sender.connection.flight(), 0, "{carries} of {link}");
    }
}

#[test]
fn nothing_is_suspected_that_cannot_be() {
    let off = Config { tcp_mtu_probing: false, ..Config::default() };
    let patient = Config { tcp_retries1: 10, ..Config::default() };
    let small = Agreed { peer_mss: 500, ..agreed() };
    for (agreed, link, config) in [
        (agreed(), 1_500, off),
        (agreed(), 1_500, patient),
        (small, 1_500, Config::default()),
        (v6(), 1_280, Config::default()),
    ] {
        let mut sender = sender(&agreed, link, 0, config);
        let mss = sender.connection.mss();
        assert_eq!(sender.found(9), None);
        assert_eq!((sender.connection.mss(), sender.connection.suspicion()), (mss, None));
    }
}

/// Of what is short enough for every path, or is cut short by the peer's window, silence says nothing.
#[test]
fn short_packets_are_not_suspected() {
    for (bytes, window) in [(500, 65_535), (100_000, 500)] {
        let config = Config::default();
        let agreed = Agreed { snd_wnd: UnscaledWindow::new(window) << WindowScale::new(0), ..agreed() };
        let connection = Connection::new(&agreed, 1_500, &config, NOW);
        let mut sender = Sender { connection, config, pool: BufferPool::new(1 << 26), now: NOW, carries: 0 };
        sender.write(bytes);
        sender.go();
        for _ in 0..8 {
            sender.wait();
        }
        assert_eq!(sender.connection.suspicion(), None);
    }
}

/// An outage, in the midst of what is sent: one small segment, and large ones after that.
#[test]
fn who_is_answered_again_sends_large_segments() {
    let mut sender = sender(&agreed(), 1_500, 0, Config::default());
    assert_eq!(sender.found(5), None);
    assert_eq!(sender.connection.mss(), 536);
    sender.carries = 1_500;
    assert_eq!(sender.wait(), None);
    assert_eq!((sender.connection.mss(), sender.connection.flight()), (1_460, 0));
    // The next silence is another matter, and it begins anew.
    sender.carries = 0;
    sender.write(20_000);
    assert_eq!(sender.found(4), None);
    assert_eq!(sender.connection.mss(), 1_280 - 40);
}

/// The answer came, and nothing large was to be sent for a long time.
#[test]
fn silence_long_after_that_begins_anew() {
    let mut sender = sender(&agreed(), 1_500, 1_280, Config::default());
    assert_eq!(sender.found(4), None);
    let Some(Suspicion { answered: Some((una, since)), .. }) = sender.connection.suspicion() else {
        panic!("{:?}", sender.connection.suspicion());
    };
    assert_eq!((una, since), (sender.connection.snd.una, sender.now));
    let late = since.after_us(u64::from(TRIED_MS) * 1_000 + 1);
    let cx = Cx { now: late, config: &sender.config, pool: &mut sender.pool };
    assert_eq!(sender.connection.suspect_path(&cx), None);
    assert_eq!((sender.connection.mss(), sender.connection.suspicion()), (1_460, None));
}

/// It knows better.
#[test]
fn a_router_that_says_what_fits_is_believed() {
    let mut sender = sender(&agreed(), 1_500, 0, Config::default());
    assert_eq!(sender.found(4), None);
    assert!(sender.connection.suspicion().is_some());
    sender.connection.on_path_mtu(1_400);
    sender.carries = 1_400;
    sender.wait();
    assert_eq!((sender.connection.mss(), sender.connection.flight()), (1_360, 0));
}
