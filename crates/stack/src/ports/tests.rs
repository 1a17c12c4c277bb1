//! The product's choice against a model of the flow table: exact, unique, exhaustible, unpredictable, and what it costs.

use super::*;
use crate::entropy::{BootSecrets, Entropy, KeptKey};
use crate::steering::BUCKETS;
use proptest::prelude::*;
use std::collections::{HashMap, HashSet, VecDeque};

/// How a flow table would know a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Known {
    /// Ours.
    Active(Claim),
    /// Ours, in TIME_WAIT since.
    Waits(Claim, u64),
    /// The peer opened it.
    Passive,
}

/// A flow table, and a chooser that works on it.
struct Model {
    ports: LanePorts,
    flows: HashMap<FlowKey, Known>,
    steering: Steering,
    range: (u16, u16),
    reserved: Vec<u16>,
    bound: HashSet<u16>,
    entropy: Entropy,
    now: u64,
    delay: u64,
}

impl Model {
    fn new(seed: u64, lanes: usize, range: (u16, u16), reserved: &[u16]) -> Self {
        let secrets = BootSecrets::from_seed(seed);
        let steering = Steering::new(secrets.steering, lanes);
        let parts =
            PortParts { range, reserved: reserved.into(), key: KeptKey::new(secrets.port), steering: steering.clone() };
        Model {
            ports: LanePorts::new(parts),
            flows: HashMap::new(),
            steering,
            range,
            reserved: reserved.to_vec(),
            bound: HashSet::new(),
            entropy: Entropy::from_seed(seed),
            now: 1_000_000,
            delay: 1_000,
        }
    }

    fn probe(flows: &HashMap<FlowKey, Known>, flow: &FlowKey, now: u64, delay: u64) -> Probe {
        match flows.get(flow) {
            None => Probe::Free,
            Some(Known::Waits(_, since)) if now - since >= delay => Probe::TimeWaitReusable,
            Some(_) => Probe::Taken,
        }
    }

    fn open(&mut self, to: Address, port: u16, lane: usize) -> Option<FlowKey> {
        let Self { ports, flows, steering, entropy, now, delay, .. } = self;
        let ask = Ask { steering, lane, local: us(to), remote: to, remote_port: port, random: entropy.next_u64() };
        let mut last = None;
        let grant = ports.allocate(&ask, &mut |flow| {
            last = Some(flow.local_port);
            Self::probe(flows, flow, *now, *delay)
        });
        let Ok(grant) = grant else { return None };
        assert_eq!(last, Some(grant.port), "the granted port was the last one asked about");
        let flow = ask.flow(grant.port);
        assert!(ask.comes_home(grant.port), "the reply comes to the lane that asks");
        assert!((self.range.0..=self.range.1).contains(&grant.port));
        assert!(!self.bound.contains(&grant.port) && !self.reserved.contains(&grant.port), "a reserved port");
        match self.flows.insert(flow, Known::Active(grant.claim)) {
            None => {}
            Some(Known::Waits(claim, since)) => {
                assert!(self.now - since >= self.delay, "a flow in TIME_WAIT returned too early");
                assert_eq!(claim, grant.claim, "the claim goes on");
            }
            Some(other) => panic!("{flow:?} was in use already: {other:?}"),
        }
        Some(flow)
    }

    fn close(&mut self, flow: &FlowKey) {
        match self.flows.remove(flow) {
            Some(Known::Active(claim) | Known::Waits(claim, _)) => self.ports.released(claim, flow),
            Some(Known::Passive) | None => {}
        }
    }

    fn wait(&mut self, flow: &FlowKey) {
        if let Some(Known::Active(claim)) = self.flows.get(flow).copied() {
            self.flows.insert(*flow, Known::Waits(claim, self.now));
            self.ports.waits(claim, flow, true);
        }
    }

    fn unbind(&mut self, port: u16) {
        let Self { ports, flows, bound, .. } = self;
        bound.remove(&port);
        ports.unreserve(port, &mut |flow| match flows.get(flow) {
            Some(Known::Active(claim) | Known::Waits(claim, _)) => *claim,
            Some(Known::Passive) | None => Claim::NONE,
        });
    }

    fn audit(&self, to: Address, port: u16, lane: usize) {
        let ask = Ask { steering: &self.steering, lane, local: us(to), remote: to, remote_port: port, random: 0 };
        self.ports.audit(&ask);
    }

    /// Whether some port could be had.
    fn could(&self, to: Address, port: u16, lane: usize) -> bool {
        let ask = Ask { steering: &self.steering, lane, local: us(to), remote: to, remote_port: port, random: 0 };
        (self.range.0..=self.range.1)
            .filter(|p| !self.bound.contains(p) && !self.reserved.contains(p) && ask.comes_home(*p))
            .any(|p| match self.flows.get(&ask.flow(p)) {
                None => true,
                Some(Known::Waits(_, since)) => self.now - since >= self.delay,
                Some(_) => false,
            })
    }
}

fn us(peer: Address) -> Address {
    if peer.is_v4() { Address::from_v4([10, 0, 0, 1]) } else { Address::from_v6([0xfd; 16]) }
}

fn peer(i: u32) -> Address {
    Address::from_v4([10, 1 + (i >> 16) as u8, (i >> 8) as u8, i as u8])
}

/// An owner for each bucket that is not the one which their number would suggest.
fn lopsided(lanes: usize) -> [u8; BUCKETS] {
    std::array::from_fn(|bucket| ((bucket * 7 + bucket / 9) % (lanes + 1)).min(lanes - 1) as u8)
}

/// Every port of the whole range towards one destination, over all lanes; then none; and one more for each that is closed.
fn all_ports(lanes: usize, indirection: Option<[u8; BUCKETS]>, to: Address) {
    let mut model = Model::new(3, lanes, (1_024, 65_535), &[]);
    if let Some(indirection) = indirection {
        model.steering = model.steering.clone().with_indirection(indirection);
    }
    let mut seen = HashSet::new();
    for lane in 0..lanes {
        while let Some(flow) = model.open(to, 80, lane) {
            assert!(seen.insert(flow.local_port), "two lanes chose one four-tuple");
        }
        model.audit(to, 80, lane);
    }
    assert_eq!(seen.len(), 64_512);
    let mut entropy = Entropy::from_seed(9);
    let mut open: Vec<FlowKey> = model.flows.keys().copied().collect();
    open.sort_by_key(|flow| flow.local_port);
    for _ in 0..1_000 {
        let flow = open[entropy.next_u64() as usize % open.len()];
        model.close(&flow);
        let lane = model.steering.lane(&flow);
        assert_eq!(model.open(to, 80, lane), Some(flow), "closing one frees exactly that one");
        assert_eq!(model.open(to, 80, lane), None);
    }
    let tallies = model.ports.tallies();
    assert!(tallies.words_max <= 4 && tallies.probes_max <= 2, "{tallies:?}");
    for flow in open {
        model.close(&flow);
    }
    assert_eq!(model.ports.indexes(), (0, 0), "nothing is kept of a destination that is not in use");
}

#[test]
fn all_64512_ports_of_one_lane() {
    all_ports(1, None, peer(1));
    all_ports(1, None, Address::from_v6([0x20; 16]));
}

#[test]
fn all_64512_ports_of_two_and_three_lanes() {
    all_ports(2, None, peer(1));
    all_ports(3, None, peer(2));
    all_ports(2, Some(lopsided(2)), peer(3));
    all_ports(3, Some(lopsided(3)), Address::from_v6([0x21; 16]));
}

#[test]
fn a_moved_bucket_is_honoured_while_connections_are_open() {
    let mut model = Model::new(4, 2, (32_768, 60_999), &[]);
    let first: Vec<FlowKey> = (0..2_000).map(|i| model.open(peer(1), 80, i % 2).unwrap()).collect();
    model.steering = model.steering.clone().with_indirection(lopsided(2));
    for i in 0..2_000 {
        model.open(peer(1), 80, i % 2).unwrap(); // `open` asserts whose it is, and that it was free
    }
    for flow in &first {
        model.close(flow);
    }
    for lane in 0..2 {
        model.audit(peer(1), 80, lane);
        while model.open(peer(1), 80, lane).is_some() {}
        assert!(!model.could(peer(1), 80, lane));
    }
}

/// The cost of one connect at each occupancy.
#[test]
fn the_price_is_the_same_from_the_first_port_to_the_last() {
    let total = 28_232;
    let mut model = Model::new(5, 1, (32_768, 60_999), &[]);
    let mut open = Vec::new();
    for percent in [0, 10, 25, 50, 75, 90, 95, 99] {
        while open.len() < total * percent / 100 {
            open.push(model.open(peer(1), 80, 0).unwrap());
        }
        let before = model.ports.tallies();
        for _ in 0..5_000 {
            if !open.is_empty() {
                let gone = open.swap_remove(model.entropy.next_u64() as usize % open.len());
                model.close(&gone);
            }
            let flow = model.open(peer(1), 80, 0).unwrap();
            if percent == 0 {
                model.close(&flow);
            } else {
                open.push(flow);
            }
        }
        let after = model.ports.tallies();
        assert_eq!(after.probes - before.probes, 5_000, "one probe each at {percent} %");
        assert_eq!(after.flow_hashes - before.flow_hashes, 5_000, "one hash each at {percent} %");
        assert!(after.words - before.words <= 4 * 5_000);
        assert_eq!((after.locks, after.shared_lines_written), (0, 0));
        assert!(after.words_max <= 4 && after.probes_max <= 2, "{after:?}");
        model.audit(peer(1), 80, 0);
    }
}

#[test]
fn the_oldest_port_in_time_wait_comes_first_and_only_when_nothing_is_free() {
    let mut model = Model::new(6, 1, (40_000, 40_999), &[]);
    let mut order = VecDeque::new();
    let mut free = 1_000;
    for _ in 0..600 {
        let flow = model.open(peer(1), 80, 0).unwrap();
        model.now += 1;
        model.wait(&flow);
        order.push_back(flow);
        free -= 1;
    }
    model.now += 5_000;
    for _ in 0..free {
        let flow = model.open(peer(1), 80, 0).unwrap();
        assert!(!order.contains(&flow), "a port in TIME_WAIT, though others are free");
    }
    // A wait that began anew is the youngest.
    let again = order.remove(10).unwrap();
    let Some(Known::Waits(claim, _)) = model.flows.get(&again).copied() else { panic!("it waits") };
    model.flows.insert(again, Known::Waits(claim, model.now));
    model.ports.waits(claim, &again, true);
    for expected in &order {
        assert_eq!(model.open(peer(1), 80, 0), Some(*expected), "first in, first out");
    }
    assert_eq!(model.open(peer(1), 80, 0), None, "the last one is too young");
    model.now += model.delay;
    assert_eq!(model.open(peer(1), 80, 0), Some(again));
    let tallies = model.ports.tallies();
    assert!(tallies.probes_max <= 2 && tallies.words_max <= 4, "{tallies:?}");
    assert_eq!(tallies.reused, 600);
    // Without timestamps it is sat out.
    let Some(Known::Active(claim)) = model.flows.get(&again).copied() else { panic!("it is open") };
    model.flows.insert(again, Known::Waits(claim, model.now));
    model.ports.waits(claim, &again, false);
    model.now += 10 * model.delay;
    assert_eq!(model.open(peer(1), 80, 0), None);
    model.close(&again);
    assert_eq!(model.open(peer(1), 80, 0), Some(again));
}

/// They wait at the front, as the oldest, as soon as those between them have been used again.
#[test]
fn ports_in_time_wait_that_are_another_lanes_by_now_do_not_hide_those_behind_them() {
    let mut model = Model::new(6, 2, (40_000, 40_999), &[]);
    while let Some(flow) = model.open(peer(1), 80, 0) {
        model.wait(&flow);
    }
    let moved = std::array::from_fn(|bucket| if bucket < 32 { 1 } else { bucket as u8 % 2 });
    model.steering = model.steering.clone().with_indirection(moved);
    for _ in 0..2_000 {
        model.now += model.delay;
        assert!(model.could(peer(1), 80, 0));
        let flow = model.open(peer(1), 80, 0).expect("a port that has waited for long enough");
        model.wait(&flow);
    }
    // Of these ports nothing was forgotten.
    let all: Vec<FlowKey> = model.flows.keys().copied().collect();
    all.iter().for_each(|flow| model.close(flow));
    assert_eq!((0..model.ports.slices_end()).find_map(|place| model.ports.slice(place)), None);
}

#[test]
fn memory_for_indexes_is_bounded() {
    let mut model = Model::new(7, 1, (1_024, 65_535), &[]);
    let destinations = 2_500;
    let mut first = Vec::new();
    for round in 0..70 {
        for i in 0..destinations {
            let flow = model.open(peer(i), 80, 0).unwrap();
            if round == 0 {
                first.push(flow);
            }
        }
    }
    let (indexes, bytes) = model.ports.indexes();
    assert!(bytes <= 16 << 20 && indexes > 1_000, "{indexes} indexes hold {bytes} bytes");
    for (i, flow) in (0..).zip(&first) {
        model.close(flow);
        model.open(peer(i), 80, 0).unwrap();
        if i % 100 == 0 {
            model.audit(peer(i), 80, 0);
        }
    }
}

/// Nor does it take memory to ask in vain: a destination without a flow is remembered as one that rests.
#[test]
fn destinations_that_no_port_is_free_for_are_forgotten() {
    let mut model = Model::new(7, 1, (40_000, 40_003), &[]);
    (40_000..=40_003).for_each(|port| model.ports.reserve(port));
    assert!((0..2_000).all(|i| model.open(peer(i), 80, 0).is_none()));
    let remembered = model.ports.slices_end();
    assert!(remembered < 400, "{remembered} destinations");
}

#[test]
fn ports_that_are_bound_or_reserved_are_kept_out_and_come_back() {
    let mut model = Model::new(8, 1, (40_000, 40_199), &[40_007, 40_008]);
    model.ports.reserve(40_001);
    model.bound.insert(40_001);
    let mut open = Vec::new();
    while let Some(flow) = model.open(peer(1), 80, 0) {
        open.push(flow);
    }
    assert_eq!(open.len(), 197);
    model.unbind(40_001);
    assert_eq!(model.open(peer(1), 80, 0).map(|flow| flow.local_port), Some(40_001));
    // Bound while it is in use: it is not given again when it becomes free, until it is unbound.
    let used = open[5];
    model.ports.reserve(used.local_port);
    model.bound.insert(used.local_port);
    model.close(&used);
    assert_eq!(model.open(peer(1), 80, 0), None);
    // A flow that a peer opened to it outlives the binding.
    model.flows.insert(used, Known::Passive);
    model.unbind(used.local_port);
    assert_eq!(model.open(peer(1), 80, 0), None);
    model.flows.remove(&used);
    assert_eq!(model.open(peer(1), 80, 0), Some(used));
    let slices: Vec<Slice> = (0..model.ports.slices_end()).filter_map(|place| model.ports.slice(place)).collect();
    assert_eq!(slices.len(), 1);
    let slice = &slices[0];
    assert_eq!((slice.owned, slice.in_use, slice.time_wait, slice.reserved), (198, 198, 0, 0));
}

#[test]
fn a_key_under_which_all_ports_hash_alike_is_dull_and_harmless() {
    let secrets = BootSecrets::from_seed(1);
    for lanes in [1, 2] {
        let steering = Steering::new([0; 40], lanes);
        let parts = PortParts {
            range: (1, 65_535),
            reserved: [].into(),
            key: KeptKey::new(secrets.port),
            steering: steering.clone(),
        };
        let mut ports = LanePorts::new(parts);
        let mut used = HashSet::new();
        for i in 0..70_000u64 {
            let ask =
                Ask { steering: &steering, lane: 0, local: us(peer(1)), remote: peer(1), remote_port: 80, random: i };
            let granted = ports.allocate(&ask, &mut |flow| {
                if used.contains(&flow.local_port) { Probe::Taken } else { Probe::Free }
            });
            match granted {
                Ok(grant) => assert!(used.insert(grant.port)),
                Err(Exhausted) => break,
            }
        }
        assert_eq!(used.len(), 65_535);
        let ask =
            Ask { steering: &steering, lane: lanes, local: us(peer(1)), remote: peer(1), remote_port: 80, random: 0 };
        assert_eq!(ports.allocate(&ask, &mut |_| Probe::Free), Err(Exhausted), "this lane owns nothing");
    }
}

/// Somebody who has us connect to addresses of his own, 100,000 times, and then wants to know the port of the next connection to
/// another destination. Whatever he derives from what he has seen, it is right no more often than chance says.
#[test]
fn what_a_guesser_sees_does_not_tell_him_the_next_port_elsewhere() {
    const PORTS: usize = 512;
    const VICTIMS: u32 = 100_000;
    let range = (33_000, 33_000 + PORTS as u16 - 1);
    let mut model = Model::new(10, 1, range, &[]);
    let mut seen = vec![0u32; 65_536];
    let mut last = [0u16; 16];
    let mut guesses_right = [0u32; 6];
    let mut victims = vec![0u32; 65_536];
    let mut previous_victim = range.0;
    let guess_in = |port: u16| range.0 + (port - range.0) % PORTS as u16;
    for i in 0..100_000u32 {
        let own = i % 16;
        let flow = model.open(Address::from_v4([203, 0, 113, own as u8]), 80, 0).unwrap();
        seen[usize::from(flow.local_port)] += 1;
        last[own as usize] = flow.local_port;
        model.close(&flow);
    }
    let commonest = (range.0..=range.1).max_by_key(|port| seen[usize::from(*port)]).unwrap();
    let rarest = (range.0..=range.1).min_by_key(|port| seen[usize::from(*port)]).unwrap();
    for i in 0..VICTIMS {
        // He goes on looking, right before.
        let own = i % 16;
        let flow = model.open(Address::from_v4([203, 0, 113, own as u8]), 80, 0).unwrap();
        let step = flow.local_port.wrapping_sub(last[own as usize]);
        last[own as usize] = flow.local_port;
        model.close(&flow);
        let guesses = [
            commonest,
            rarest,
            flow.local_port,
            guess_in(flow.local_port.wrapping_add(1).max(range.0)),
            guess_in(flow.local_port.wrapping_add(step).max(range.0)),
            previous_victim,
        ];
        let victim = model.open(peer(i), 443, 0).unwrap();
        for (right, guess) in guesses_right.iter_mut().zip(guesses) {
            *right += u32::from(guess == victim.local_port);
        }
        previous_victim = victim.local_port;
        victims[usize::from(victim.local_port)] += 1;
        model.close(&victim);
    }
    // 2/ports would be 390 of 100,000; chance is 195, with a deviation of 14.
    let bar = 2 * VICTIMS / PORTS as u32;
    for (which, right) in guesses_right.iter().enumerate() {
        assert!(*right <= bar, "guess {which} was right {right} times of {VICTIMS}, and {bar} is the bar");
    }
    // Nor is any port so common that guessing it always would pay.
    let most = (range.0..=range.1).map(|port| victims[usize::from(port)]).max().unwrap();
    assert!(most <= bar, "one port came {most} times");
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Open(u8, u8),
    Close(u16),
    Wait(u16),
    Adopt(u8, u16),
    Bind(u16),
    Unbind(u16),
    Passive(u8, u16),
    Later(u16),
    Move(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (any::<u8>(), any::<u8>()).prop_map(|(to, lane)| Step::Open(to, lane)),
        4 => any::<u16>().prop_map(Step::Close),
        4 => any::<u16>().prop_map(Step::Wait),
        1 => (any::<u8>(), any::<u16>()).prop_map(|(to, port)| Step::Adopt(to, port)),
        1 => any::<u16>().prop_map(Step::Bind),
        1 => any::<u16>().prop_map(Step::Unbind),
        1 => (any::<u8>(), any::<u16>()).prop_map(|(to, port)| Step::Passive(to, port)),
        1 => (0..2_000u16).prop_map(Step::Later),
        1 => any::<bool>().prop_map(Step::Move),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Two destinations, one to three lanes, 300 ports: whatever happens, a port that could be had is had, none is had twice, and
    /// none that must not be had is had (`Model::open` asserts the latter two).
    #[test]
    fn the_index_is_exact_whatever_happens(seed: u64, lanes in 1usize..4, steps in prop::collection::vec(step(), 1..1_200)) {
        let range = (50_000, 50_299);
        let mut model = Model::new(seed, lanes, range, &[50_010, 50_011, 50_200]);
        let mut flows: Vec<FlowKey> = Vec::new();
        let mut passive = false;
        for (i, step) in steps.into_iter().enumerate() {
            match step {
                Step::Open(to, lane) => {
                    let (to, lane) = (peer(u32::from(to) % 8 / 7), usize::from(lane) % lanes);
                    match model.open(to, 80, lane) {
                        Some(flow) => flows.push(flow),
                        None => prop_assert!(passive || !model.could(to, 80, lane), "there was a port"),
                    }
                }
                Step::Close(which) if !flows.is_empty() => {
                    let flow = flows.swap_remove(usize::from(which) % flows.len());
                    model.close(&flow);
                }
                Step::Wait(which) if !flows.is_empty() => {
                    let flow = flows[usize::from(which) % flows.len()];
                    model.wait(&flow);
                }
                Step::Adopt(to, port) => {
                    let (to, port) = (peer(u32::from(to) % 2), range.0 + port % 300);
                    let flow = FlowKey { local: us(to), remote: to, local_port: port, remote_port: 80 };
                    if !model.flows.contains_key(&flow) {
                        let steering = model.steering.clone();
                        let ask = Ask { steering: &steering, lane: steering.lane(&flow), local: us(to), remote: to, remote_port: 80, random: 0 };
                        let claim = model.ports.adopt(&ask, port);
                        model.flows.insert(flow, Known::Active(claim));
                        flows.push(flow);
                    }
                }
                Step::Bind(port) => {
                    model.ports.reserve(range.0 + port % 300);
                    model.bound.insert(range.0 + port % 300);
                }
                Step::Unbind(which) => {
                    if let Some(port) = model.bound.iter().copied().nth(usize::from(which) % model.bound.len().max(1)) {
                        model.unbind(port);
                    }
                }
                Step::Passive(to, port) => {
                    let to = peer(u32::from(to) % 2);
                    let flow = FlowKey { local: us(to), remote: to, local_port: range.0 + port % 300, remote_port: 80 };
                    // Its wait for the port to be free again may take a few asks.
                    passive |= model.flows.entry(flow).or_insert(Known::Passive) == &Known::Passive;
                }
                Step::Later(by) => model.now += u64::from(by),
                Step::Move(lopsidedly) => {
                    let usual = std::array::from_fn(|bucket| (bucket % lanes) as u8);
                    let indirection = if lopsidedly { lopsided(lanes) } else { usual };
                    model.steering = model.steering.clone().with_indirection(indirection);
                    flows.retain(|flow| model.flows.contains_key(flow));
                }
                Step::Close(_) | Step::Wait(_) => {}
            }
            if i % 64 == 0 {
                for lane in 0..lanes {
                    model.audit(peer(0), 80, lane);
                }
            }
        }
    }
}
