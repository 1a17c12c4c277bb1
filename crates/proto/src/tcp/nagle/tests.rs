use super::*;
use crate::tcp::connection::tests::agreed;
use crate::tcp::output::{Held, Kind};
use crate::tcp::{Agreed, BufferPool, Config, Connection, Cx};
use crate::time::Instant;
use laneway_wire::tcp::{Flags, Options, Segment, SeqNum, UnscaledWindow, WindowScale};

#[test]
fn the_product_answers_every_vector() {
    assert_eq!(vectors::failures::<Lane>(), []);
}

/// Reproducible and uniform enough.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (((self.0 >> 32) * u64::from(n)) >> 32) as u32
    }
}

const ISS: u32 = u32::MAX - 20_000;
const IRS: SeqNum = SeqNum::new(9);

/// A connection, and all that its peer knows.
struct World {
    connection: Connection,
    config: Config,
    pool: BufferPool,
    now: Instant,
    /// Bytes that the application has written, and that the peer has acknowledged.
    written: u32,
    acked: u32,
    window: u32,
    /// Ends of small segments of new data that are unacknowledged, as offsets.
    small: Vec<u32>,
    /// NODELAY or CORK have been on, and what left then may be unacknowledged.
    excused: bool,
    nodelay: bool,
    cork: bool,
}

impl World {
    fn new(dice: &mut Dice) -> Self {
        let tcp_wmem = [4_096, 65_536, 524_288][dice.below(3) as usize];
        let config = Config { tcp_wmem, ..Config::default() };
        let now = Instant::from_us(5_000_000);
        let window = [500, 1_000, 3_000, 20_000, 200_000][dice.below(5) as usize];
        let agreed = Agreed {
            iss: SeqNum::new(ISS),
            irs: IRS,
            peer_mss: [536, 1_220, 1_460, 8_960][dice.below(4) as usize],
            snd_scale: WindowScale::new(2),
            rcv_scale: WindowScale::new(2),
            sack: dice.below(2) == 0,
            snd_wnd: UnscaledWindow::new((window / 4) as u16) << WindowScale::new(2),
            rcv_adv: IRS + 60_000,
            rtt_us: [None, Some(80), Some(3_000), Some(90_000)][dice.below(4) as usize],
            syn_lost: dice.below(8) == 0,
            ..agreed()
        };
        let connection = Connection::new(&agreed, 9_000, &config, now);
        let pool = BufferPool::new(1 << 26);
        World {
            connection,
            config,
            pool,
            now,
            written: 0,
            acked: 0,
            window,
            small: Vec::new(),
            excused: false,
            nodelay: false,
            cork: false,
        }
    }

    fn cx(&mut self) -> (&mut Connection, Cx<'_>) {
        (&mut self.connection, Cx { now: self.now, config: &self.config, pool: &mut self.pool })
    }

    fn step(&mut self, dice: &mut Dice) {
        self.now = self.now.after_us([0, 10, 700, 2_000, 60_000][dice.below(5) as usize]);
        match dice.below(20) {
            0..=7 => {
                let most = [1, 100, 1_460, 5_000, 40_000][dice.below(5) as usize];
                let bytes = vec![0; 1 + dice.below(most) as usize];
                let more = dice.below(16) == 0;
                let (connection, mut cx) = self.cx();
                let taken = if more { connection.send_more(&bytes, &mut cx) } else { connection.send(&bytes, &mut cx) };
                self.written += taken as u32;
                self.excused |= more;
            }
            8..=14 => {
                // What a probe carried is not there before the peer takes it: SND.NXT says what may be acknowledged.
                let most = self.connection.flight();
                let acked = if dice.below(3) == 0 { dice.below(most + 1) } else { most };
                self.acknowledge(acked, dice);
            }
            15 => {
                self.nodelay = dice.below(4) == 0;
                self.connection.set_nodelay(self.nodelay);
            }
            16 => {
                self.cork = dice.below(4) == 0;
                self.connection.set_cork(self.cork);
            }
            17 if dice.below(20) == 0 => self.connection.on_path_mtu(600 + dice.below(900)),
            17 | 18 => {
                // Two duplicate ACKs, or the clock.
                for _ in 0..dice.below(4) {
                    self.acknowledge(0, dice);
                }
            }
            _ => {
                let deadline = self.connection.deadline();
                if deadline != Instant::NEVER {
                    self.now = self.now.max(deadline);
                    let (connection, mut cx) = self.cx();
                    connection.on_timeout(&mut cx);
                }
            }
        }
        self.excused |= self.nodelay || self.cork;
        self.output();
    }

    fn acknowledge(&mut self, bytes: u32, dice: &mut Dice) {
        self.acked += bytes;
        if dice.below(6) == 0 {
            self.window = [0, 500, 1_000, 3_000, 20_000, 200_000][dice.below(6) as usize];
        }
        let (_, _, seq) = self.connection.sequence();
        let segment = Segment {
            src_port: 2,
            dst_port: 1,
            seq,
            ack: SeqNum::new(ISS) + 1 + self.acked,
            flags: Flags::ACK,
            window: UnscaledWindow::new((self.window / 4) as u16),
            urgent: 0,
            options: Options::default(),
            payload: &[],
        };
        let (connection, mut cx) = self.cx();
        let arrival = connection.on_segment(&segment, &mut cx);
        assert_eq!(arrival.discard, None, "the peer's ACK is right");
        connection.finish(&arrival, 0, &mut cx);
        let acked = self.acked;
        self.small.retain(|end| *end > acked);
    }

    fn output(&mut self) {
        let mut rounds = 0;
        while let Some(plan) = self.connection.decide::<Lane>(self.now) {
            rounds += 1;
            assert!(rounds < 10_000, "it never ends: {plan:?}");
            let mss = u32::from(plan.mss);
            let end = (plan.seq + plan.len).offset_from(SeqNum::new(ISS) + 1) as u32;
            assert!(end <= self.written, "sent what was never written");
            assert!(plan.len <= 65_435, "{plan:?}");
            if plan.kind == Kind::New {
                assert_eq!(plan.flags.psh(), end == self.written, "PSH if and only if the queue is empty");
                assert_eq!(plan.small, plan.len % mss != 0);
                assert!(
                    !plan.is_super() || !plan.small || plan.flags.psh(),
                    "a tail where the data does not end: {plan:?}"
                );
                if plan.small && !self.small.contains(&end) {
                    self.small.push(end);
                }
                if self.small.is_empty() && !self.nodelay && !self.cork {
                    self.excused = false;
                }
                assert!(self.excused || self.small.len() <= 1, "small segments unacknowledged: {:?}", self.small);
            }
            self.connection.commit(&plan, self.now);
        }
        if self.small.is_empty() && !self.nodelay && !self.cork {
            self.excused = false;
        }
        let (connection, mut cx) = self.cx();
        connection.settle::<Lane>(&mut cx);
        // Whatever waits is waited for: a timer runs, or nothing waits.
        let waits = self.written > self.acked;
        assert!(!waits || self.connection.deadline() != Instant::NEVER, "data waits and nothing will move it");
    }
}

/// With NODELAY and CORK off and no FIN, never more than one small segment of new data is unacknowledged, whatever is
/// written and acknowledged, however windows and the MSS change. `LANEWAY_NAGLE_STEPS` sets the length.
#[test]
fn one_small_segment_at_a_time() {
    let steps: u64 = std::env::var("LANEWAY_NAGLE_STEPS").map_or(1_000_000, |n| n.parse().expect("a number of steps"));
    let (mut dice, mut done, mut held) = (Dice(0x1234_5678_9abc_def1), 0, 0);
    while done < steps {
        let mut world = World::new(&mut dice);
        for _ in 0..200 {
            world.step(&mut dice);
            held += u64::from(world.connection.decide_new::<Lane>(world.now) == Err(Held::Small));
            done += 1;
            if world.connection.state() == crate::tcp::State::Closed {
                break; // nothing was acknowledged for too long
            }
        }
    }
    assert!(held > steps / 100, "the rule was hardly ever asked: {held} of {steps}");
}
