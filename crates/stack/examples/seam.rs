//! What the seam costs: the same lives of connections, through [`Sharing::enter`] and on the tables directly. To be run
//! under callgrind by `crates/stack/seam.sh`; prints how many lives.
//!
//!     cargo run --release -p laneway-stack --example seam -- lane 20000

use laneway_proto::tcp::connection::Agreed;
use laneway_proto::tcp::{Config, Connection, Cx, HalfOpen};
use laneway_proto::time::Instant;
use laneway_stack::app::ListenerId;
use laneway_stack::binding::{BindOptions, Binding};
use laneway_stack::counters::Mib;
use laneway_stack::entropy::{BootSecrets, KeptKey};
use laneway_stack::paths::PathPlace;
use laneway_stack::ports::{LanePorts, PortParts};
use laneway_stack::sharing::{LaneOwned, Sharing, Site};
use laneway_stack::steering::Steering;
use laneway_stack::tables::{Handle, Kind, Tables};
use laneway_wire::flow::{Address, FlowKey};
use laneway_wire::tcp::{Flags, Options, Segment, SeqNum, UnscaledWindow, Window, WindowScale};
use std::hint::black_box;

/// What one life is made of, in the order in which a lane does it: everything that the seam covers.
struct Life {
    key: FlowKey,
    hash: u64,
    now: Instant,
    half: u32,
    index: u32,
}

impl Life {
    fn new(i: u64, secrets: &BootSecrets) -> Self {
        let remote = Address::from_v4([10, 1, (i >> 22) as u8, (i >> 14) as u8]);
        let local = Address::from_v4([10, 0, 0, 1]);
        let key = FlowKey { local, remote, local_port: 80, remote_port: 32_768 + (i & 0x3fff) as u16 };
        Life { key, hash: key.hash(&secrets.flow), now: Instant::from_us(3_600_000_000 + i * 10), half: 0, index: 0 }
    }

    /// SYN: look-up, listener, half-open entry, its timer.
    #[inline]
    fn syn(&mut self, tables: &mut Tables, config: &Config, secrets: &BootSecrets) {
        let old = tables.lookup(self.hash, &self.key);
        assert!(black_box(tables.listeners.find(&self.key.local, 80, self.hash)).is_some());
        let segment = segment(Flags::SYN);
        let cx = Cx { now: self.now, config, pool: &mut tables.pool };
        let half = HalfOpen::on_syn(&self.key, &segment, 0, None, &secrets.tcp, /* ts_offset= */ 0, &cx);
        self.half = tables.insert_half_open(self.hash, half, self.key.mix(), old);
        tables.timers.arm(Handle::new(Kind::HalfOpen, self.half), self.now.after_us(1_000_000));
    }

    /// The final ACK: look-up, promotion, accept queue and back, count.
    #[inline]
    fn established(&mut self, tables: &mut Tables, config: &Config) {
        assert_eq!(tables.lookup(self.hash, &self.key), Some(Handle::new(Kind::HalfOpen, self.half)));
        let make = || Connection::new(&agreed(self.key), 1_500, config, self.now);
        let flow = (self.hash, self.key.mix());
        let id = tables.promote(flow, self.half, PathPlace::of(&self.key), /* reuse= */ 0, make);
        tables.listeners.push(ListenerId(0), id);
        assert_eq!(tables.listeners.pop(ListenerId(0)), Some(id));
        tables.counters.count(Mib::TcpPassiveOpens);
        let handle = tables.lookup(self.hash, &self.key).expect("it was just promoted");
        self.index = handle.index();
        tables.timers.arm(handle, self.now.after_us(200_000));
    }

    /// The end: removal, or TIME_WAIT and what its turn in the queue brings.
    #[inline]
    fn end(&mut self, tables: &mut Tables, config: &Config) {
        tables.remove(self.index);
        tables.reap(self.now, config.msl_us, 64);
        tables.maintain(64);
    }
}

fn segment(flags: Flags) -> Segment<'static> {
    Segment {
        src_port: 40_000,
        dst_port: 80,
        seq: SeqNum::new(1),
        ack: SeqNum::new(0),
        flags,
        window: UnscaledWindow::new(65_535),
        urgent: 0,
        options: Options::default(),
        payload: &[],
    }
}

fn agreed(key: FlowKey) -> Agreed {
    let none = WindowScale::new(0);
    Agreed {
        key,
        iss: SeqNum::new(7),
        irs: SeqNum::new(9),
        peer_mss: 1_460,
        snd_scale: none,
        rcv_scale: none,
        sack: false,
        timestamps: false,
        ts_recent: 0,
        ts_offset: 0,
        snd_wnd: Window::new(65_535),
        rcv_adv: SeqNum::new(65_545),
        rtt_us: None,
        syn_lost: false,
        ecn: false,
    }
}

#[inline(never)]
fn counted_direct(tables: &mut Tables, lives: u64, config: &Config, secrets: &BootSecrets) {
    for i in 0..lives {
        let mut life = Life::new(i, secrets);
        life.syn(tables, config, secrets);
        life.established(tables, config);
        life.end(tables, config);
    }
}

#[inline(never)]
fn counted_through<S: Sharing>(shared: &mut S, lives: u64, config: &Config, secrets: &BootSecrets) {
    for i in 0..lives {
        let mut life = Life::new(i, secrets);
        life.syn(&mut shared.enter(Site::Input), config, secrets);
        life.established(&mut shared.enter(Site::Input), config);
        life.end(&mut shared.enter(Site::Output), config);
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let (way, lives) = (args.next().unwrap_or_default(), args.next().and_then(|n| n.parse().ok()).unwrap_or(20_000));
    let secrets = BootSecrets::from_seed(1);
    let config = Config::default();
    let make = || {
        let parts = PortParts {
            range: (32_768, 60_999),
            reserved: [].into(),
            key: KeptKey::new(secrets.port),
            steering: Steering::new(secrets.steering, 1),
        };
        let ports = Box::new(LanePorts::new(parts));
        let mut tables = Tables::new(secrets.flow, 1 << 16, 1 << 30, Instant::from_us(3_600_000_000), ports);
        let binding = Binding { address: Address::UNSPECIFIED_V4, options: BindOptions::default(), listens: true };
        tables.listeners.add(ListenerId(0), binding, 80, 4_096, 1);
        tables
    };
    match way.as_str() {
        "direct" => counted_direct(&mut make(), lives, &config, &secrets),
        "lane" => counted_through(&mut LaneOwned::spread(1, make).remove(0), lives, &config, &secrets),
        _ => {
            eprintln!("usage: seam direct|lane [LIVES]");
            std::process::exit(2);
        }
    }
    println!("lives {lives}");
}
