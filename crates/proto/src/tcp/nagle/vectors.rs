//! Owns eleven situations that every rule for the end of the queue can be asked about, each with the answer that is right.
//!
//! They are what it took twenty years to get right: the fourth is the objection that stopped the second attempt at
//! super-segments with a tail (MSS 1460, 100 bytes unacknowledged, 2000 written: how much leaves?). The product's rule
//! answers all of them; what came before is asked too, in the laboratory, and fails those that history says.

use super::Segmentation;
use crate::tcp::output::Kind;
use crate::tcp::{Agreed, BufferPool, Config, Connection, Cx};
use crate::time::Instant;
use laneway_wire::flow::{Address, FlowKey};
use laneway_wire::tcp::{Flags, Header, Options, Segment, SeqNum, UnscaledWindow, WindowScale};

/// One situation.
#[derive(Clone, Copy, Debug)]
pub struct Vector {
    /// Its number, from 1.
    pub number: u8,
    /// What happens in it.
    pub story: &'static str,
}

/// All of them, in order.
pub const ALL: [Vector; 11] = [
    Vector { number: 1, story: "NODELAY, 4096 bytes, MSS 1448: one super-segment" },
    Vector { number: 2, story: "idle, 4096 bytes: one super-segment" },
    Vector { number: 3, story: "4096 bytes again before the ACK: 2896 now, 1200 after it" },
    Vector { number: 4, story: "100 bytes unacknowledged, 2000 written: 1460 now, 540 when the rule lets them" },
    Vector { number: 5, story: "a full segment unacknowledged, 100 bytes written: sent at once" },
    Vector { number: 6, story: "corked, 4096 bytes: 2896 now, 1200 when the cork is out" },
    Vector { number: 7, story: "a small segment unacknowledged, 2000 bytes and close: all, with FIN" },
    Vector { number: 8, story: "the fourth, where sequence numbers wrap" },
    Vector { number: 9, story: "the MSS drops from 1460 to 1228 between writes: small is what is small now" },
    Vector { number: 10, story: "2000 bytes, then 100: the 100 wait, for the tail of the 2000 was small" },
    Vector { number: 11, story: "the fourth, counted: never two small segments unacknowledged" },
];

/// The vectors that rule `S` gets wrong, each with what it did instead.
pub fn failures<S: Segmentation>() -> Vec<(u8, String)> {
    ALL.iter().filter_map(|vector| check::<S>(vector.number).err().map(|why| (vector.number, why))).collect()
}

/// A connection whose peer does what it is told.
struct Rig {
    connection: Connection,
    config: Config,
    pool: BufferPool,
    now: Instant,
    iss: SeqNum,
    /// Bytes acknowledged.
    acked: u32,
}

/// What left as new data.
#[derive(Default)]
struct Out {
    /// Bytes of each packet, super-segments whole.
    packets: Vec<u32>,
    /// Bytes of each segment on the wire.
    segments: Vec<u32>,
    fin: bool,
}

impl Rig {
    fn new(mtu: u32, timestamps: bool, iss: u32) -> Self {
        let config = Config::default();
        let (now, iss) = (Instant::from_us(1_000_000), SeqNum::new(iss));
        let key = FlowKey {
            local: Address::from_v4([10, 0, 0, 1]),
            remote: Address::from_v4([10, 0, 0, 2]),
            local_port: 80,
            remote_port: 40_000,
        };
        let agreed = Agreed {
            key,
            iss,
            irs: SeqNum::new(7),
            peer_mss: 1_460,
            snd_scale: WindowScale::new(7),
            rcv_scale: WindowScale::new(7),
            sack: true,
            timestamps,
            ts_recent: 0,
            ts_offset: 0,
            snd_wnd: UnscaledWindow::new(8_192) << WindowScale::new(7),
            rcv_adv: SeqNum::new(7 + 65_536),
            rtt_us: Some(200),
            syn_lost: false,
            ecn: false,
        };
        let connection = Connection::new(&agreed, mtu, &config, now);
        Rig { connection, config, pool: BufferPool::new(1 << 24), now, iss, acked: 0 }
    }

    /// MSS 1448, with timestamps, as a LAN has it.
    fn with_timestamps() -> Self {
        Rig::new(1_500, true, 99)
    }

    /// MSS 1460.
    fn without(iss: u32) -> Self {
        Rig::new(1_500, false, iss)
    }

    fn write(&mut self, bytes: usize) {
        let mut cx = Cx { now: self.now, config: &self.config, pool: &mut self.pool };
        self.connection.send(&vec![b'x'; bytes], &mut cx);
    }

    fn close(&mut self) {
        self.connection.shutdown();
    }

    /// Everything that leaves now.
    fn out<S: Segmentation>(&mut self) -> Out {
        let mut out = Out::default();
        while let Some(plan) = self.connection.decide::<S>(self.now) {
            if plan.kind == Kind::New {
                out.packets.push(plan.len);
                let mss = u32::from(plan.mss);
                let full = plan.len / mss;
                out.segments.extend((0..full).map(|_| mss));
                out.segments.extend((plan.len % mss > 0).then_some(plan.len % mss));
                out.fin |= plan.flags.fin();
            }
            self.connection.commit(&plan, self.now);
        }
        let mut cx = Cx { now: self.now, config: &self.config, pool: &mut self.pool };
        self.connection.settle::<S>(&mut cx);
        self.now = self.now.after_us(100);
        out
    }

    /// The peer acknowledges `bytes` more.
    fn ack(&mut self, bytes: u32) {
        self.acked += bytes;
        let (_, _, rcv_nxt) = self.connection.sequence();
        let header = Header {
            src_port: 40_000,
            dst_port: 80,
            seq: rcv_nxt,
            ack: self.iss + 1 + self.acked,
            flags: Flags::ACK,
            window: UnscaledWindow::new(8_192),
            urgent: 0,
            options: Options::default(),
        };
        let mut bytes = [0; 20];
        header.emit(&mut bytes);
        let mut segment = Segment::parse(&bytes).unwrap_or_else(|_| unreachable!("a header that was emitted parses"));
        segment.options.timestamps = Some(laneway_wire::tcp::Timestamps { val: 1, echo: 1 });
        let mut cx = Cx { now: self.now, config: &self.config, pool: &mut self.pool };
        let arrival = self.connection.on_segment(&segment, &mut cx);
        self.connection.finish(&arrival, 0, &mut cx);
    }
}

fn expect(what: &str, got: &[u32], want: &[u32]) -> Result<(), String> {
    if got == want { Ok(()) } else { Err(format!("{what}: sent {got:?}, right is {want:?}")) }
}

/// Sends 100 bytes, then writes 2000: the situation of the fourth vector. The answer is what leaves of the 2000.
fn hundred_then_2000<S: Segmentation>(iss: u32) -> Result<(Rig, Out), String> {
    let mut rig = Rig::without(iss);
    rig.write(100);
    expect("the first 100", &rig.out::<S>().segments, &[100])?;
    rig.write(2_000);
    let out = rig.out::<S>();
    Ok((rig, out))
}

fn fourth<S: Segmentation>(iss: u32) -> Result<(), String> {
    let held = || -> Result<Rig, String> {
        let (rig, out) = hundred_then_2000::<S>(iss)?;
        expect("2000 behind 100", &out.segments, &[1_460])?;
        Ok(rig)
    };
    let mut rig = held()?;
    rig.ack(99);
    expect("the small segment acknowledged in part", &rig.out::<S>().segments, &[])?;
    rig.ack(1);
    expect("the small segment acknowledged", &rig.out::<S>().segments, &[540])?;
    let mut rig = held()?;
    rig.write(919);
    expect("one byte less than a full segment", &rig.out::<S>().segments, &[])?;
    rig.write(1);
    expect("a full segment", &rig.out::<S>().segments, &[1_460])?;
    let mut rig = held()?;
    rig.connection.set_nodelay(true);
    expect("TCP_NODELAY", &rig.out::<S>().segments, &[540])?;
    let mut rig = held()?;
    rig.close();
    let out = rig.out::<S>();
    expect("close", &out.segments, &[540])?;
    if out.fin { Ok(()) } else { Err("close: no FIN".into()) }
}

/// Asks rule `S` about one vector.
fn check<S: Segmentation>(number: u8) -> Result<(), String> {
    match number {
        1 => {
            let mut rig = Rig::with_timestamps();
            rig.connection.set_nodelay(true);
            rig.write(4_096);
            expect("4096 with NODELAY", &rig.out::<S>().packets, &[4_096])
        }
        2 => {
            let mut rig = Rig::with_timestamps();
            rig.write(4_096);
            expect("4096 when idle", &rig.out::<S>().packets, &[4_096])
        }
        3 => {
            let mut rig = Rig::with_timestamps();
            rig.write(4_096);
            expect("4096 when idle", &rig.out::<S>().segments, &[1_448, 1_448, 1_200])?;
            rig.write(4_096);
            expect("4096 again", &rig.out::<S>().segments, &[1_448, 1_448])?;
            rig.ack(4_096);
            expect("after the ACK", &rig.out::<S>().segments, &[1_200])
        }
        4 => fourth::<S>(1_000),
        5 => {
            let mut rig = Rig::without(1_000);
            rig.write(1_460);
            expect("a full segment", &rig.out::<S>().segments, &[1_460])?;
            rig.write(100);
            expect("100 behind it", &rig.out::<S>().segments, &[100])
        }
        6 => {
            let mut rig = Rig::with_timestamps();
            rig.connection.set_cork(true);
            rig.write(4_096);
            expect("4096 with the cork in", &rig.out::<S>().segments, &[1_448, 1_448])?;
            rig.ack(2_896);
            expect("the ACK, with the cork in", &rig.out::<S>().segments, &[])?;
            rig.connection.set_cork(false);
            expect("the cork out", &rig.out::<S>().segments, &[1_200])
        }
        7 => {
            let mut rig = Rig::without(1_000);
            rig.write(100);
            expect("the first 100", &rig.out::<S>().segments, &[100])?;
            rig.write(2_000);
            rig.close();
            let out = rig.out::<S>();
            expect("2000 and close", &out.segments, &[1_460, 540])?;
            if out.fin { Ok(()) } else { Err("2000 and close: no FIN".into()) }
        }
        8 => fourth::<S>(u32::MAX - 50),
        9 => {
            let mut rig = Rig::without(1_000);
            rig.write(1_460);
            expect("a full segment", &rig.out::<S>().segments, &[1_460])?;
            rig.connection.on_path_mtu(1_268);
            rig.write(2_000);
            // What is sent again is cut anew, and its last piece, 232 bytes, is no small segment of new data.
            expect("2000 in smaller segments", &rig.out::<S>().segments, &[1_228, 772])?;
            rig.write(2_000);
            expect("2000 again", &rig.out::<S>().segments, &[1_228])
        }
        10 => {
            let mut rig = Rig::without(1_000);
            rig.write(2_000);
            expect("2000 when idle", &rig.out::<S>().segments, &[1_460, 540])?;
            rig.write(100);
            expect("100 behind them", &rig.out::<S>().segments, &[])
        }
        _ => {
            let (_, out) = hundred_then_2000::<S>(1_000)?;
            let small = 1 + out.segments.iter().filter(|len| **len < 1_460).count();
            if small == 1 { Ok(()) } else { Err(format!("{small} small segments unacknowledged")) }
        }
    }
}
