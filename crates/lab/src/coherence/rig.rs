//! Owns what is counted: two lanes of a server and two of a client, steered by Toeplitz, in virtual time.

use super::part::{Aside, Plant, aside, is_traced, ready};
use super::planted::planted;
use super::stage::{Actor, Stage};
use crate::bench::crew::{self, Crew, Load, Shape, Work, build_on, introduce};
use crate::bench::failure::Failure;
use crate::bench::options::{Checksums, Cores, ReferencesName};
use crate::s3_ports::Ports;
use laneway_proto::time::Instant;
use laneway_stack::sharing::{LaneOwned, Sharing};

/// Virtual microseconds of a turn: long enough that timers, too, have come round when the count begins.
pub const TURN_US: u64 = 1_000;
/// Turns without an end after which something must be wrong, for each operation.
pub const TURNS_PER_OP: u64 = 20_000;
/// Ephemeral ports of each address: few, so that every tuple comes round soon.
const PORTS: u16 = 16;
/// Connections at a time.
pub const CONNS: usize = 32;
/// So many times more at a time for half of the warm-up.
const PEAK: usize = 4;
/// Virtual time begins here.
pub const BEGIN: Instant = Instant::from_us(3_600_000_000);

/// The client is always the product.
type Lanes<W, S> = Crew<W, S, LaneOwned>;

impl<W: Work, S: Sharing> Actor for Lanes<W, S> {
    fn settle(&mut self) {
        Crew::settle(self);
    }
    fn turn(&mut self, now: Instant) {
        self.turn_lanes(now);
    }
}

fn shape() -> Shape {
    Shape {
        conns: CONNS,
        cores: Cores::Hashed,
        checksums: Checksums::Software,
        mtu: 1_500,
        msl_us: 30_000_000,
        ports: (5_000, 5_000 + (PORTS - 1)),
        choice: Ports::Lane,
        ring_bytes: 131_072,
        counters: false,
        buffer: None,
        ipv6: false,
        presized: true,
        is_virtual: true,
        segmentation: false,
        references: ReferencesName::Lane,
        attack: 0,
        attack_arrives: false,
    }
}

/// Server lanes, then client lanes, and who controls them.
struct Rig<W: Work, S: Sharing> {
    lanes: Vec<Lanes<W, S>>,
    controls: Vec<Lanes<W, S>>,
    stage: Stage<Lanes<W, S>>,
    now: Instant,
}

impl<W: Work, S: Sharing> Rig<W, S> {
    fn new(work: &W, plant: Option<Plant>) -> Result<Self, Failure> {
        let change = |link| match plant {
            Some(plant) => planted(plant, link),
            None => link,
        };
        let crews: Vec<Lanes<W, S>> = build_on(work, &shape(), BEGIN, &change)?;
        crews.iter().flat_map(Crew::device_memory).for_each(|memory| aside(Aside::Device, memory));
        let (mut servers, mut clients, mut controls) = (Vec::new(), Vec::new(), Vec::new());
        for crew in crews {
            let [server, client, control] = crew.apart();
            servers.push(server);
            clients.push(client);
            controls.push(control);
        }
        servers.append(&mut clients);
        let stage = if is_traced() { Stage::apart(servers.len())? } else { Stage::here() };
        Ok(Rig { lanes: servers, controls, stage, now: BEGIN })
    }

    fn introduce(&mut self) -> Result<(), Failure> {
        let Rig { lanes, controls, stage, now } = self;
        introduce(lanes, |lanes| turn(lanes, controls, stage, now))
    }

    fn ops(&mut self) -> u64 {
        self.lanes.iter_mut().map(Crew::ops).sum()
    }

    /// Warms up, half of it with more connections at a time than ever again: what keeps room for the busiest moment so far
    /// has it then.
    fn warm_up(&mut self, ops: u64) -> Result<(), Failure> {
        let targets: Vec<usize> = self.loads().map(|load| load.target).collect();
        self.loads().for_each(|load| load.target *= PEAK);
        self.run(ops / 2)?;
        self.loads().zip(targets).for_each(|(load, target)| load.target = target);
        self.run(ops / 2)?;
        Ok(())
    }

    fn loads(&mut self) -> impl Iterator<Item = &mut Load> {
        self.lanes.iter_mut().flat_map(Crew::loads)
    }

    /// Until so many operations more are done; says how many were.
    fn run(&mut self, ops: u64) -> Result<u64, Failure> {
        let before = self.ops();
        for _ in 0..TURNS_PER_OP * (ops + 100) {
            let done = self.ops() - before;
            if done >= ops {
                return Ok(done);
            }
            turn(&mut self.lanes, &mut self.controls, &mut self.stage, &mut self.now);
        }
        Err(Failure::stuck(&crew::counters(&mut self.lanes)))
    }
}

fn turn<W: Work, S: Sharing>(
    lanes: &mut [Lanes<W, S>],
    controls: &mut [Lanes<W, S>],
    stage: &mut Stage<Lanes<W, S>>,
    now: &mut Instant,
) {
    *now = now.after_us(TURN_US);
    stage.step(lanes, *now);
    controls.iter_mut().for_each(|control| control.turn_control(*now));
}

/// Does `ops` operations after a warm-up, and says how many they became. `begins` and `ends` are called around them.
pub fn run<W: Work, S: Sharing>(
    work: &W,
    plant: Option<Plant>,
    (warm_up, ops): (u64, u64),
    begins: impl FnOnce(),
    ends: impl FnOnce(),
) -> Result<u64, Failure> {
    let mut rig = Rig::<W, S>::new(work, plant)?;
    ready()?;
    rig.introduce()?;
    rig.warm_up(warm_up)?;
    rig.stage.counts = true;
    begins();
    let done = rig.run(ops)?;
    ends();
    Ok(done)
}
