//! What every way of choosing ports must do, the product's among them, whatever it costs.

use super::Ports;
use laneway_stack::entropy::{BootSecrets, Entropy, KeptKey};
use laneway_stack::ports::{Ask, Claim, Exhausted, PortChoice, PortParts, Probe};
use laneway_stack::steering::Steering;
use laneway_wire::flow::{Address, FlowKey};
use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

/// What the flow table of a lane knows, and no more than that.
#[derive(Clone, Copy)]
struct Known {
    /// `None`: the peer opened it. `Claim::NONE`: the chooser does not want to hear of it. Both are the same to the stack.
    claim: Option<Claim>,
    reusable: bool,
}

/// A lane with nothing but a flow table and a chooser.
struct Bench {
    lane: usize,
    steering: Steering,
    choice: Box<dyn PortChoice>,
    flows: HashMap<FlowKey, Known>,
    entropy: Entropy,
}

fn lanes(ports: Ports, lanes: usize, range: (u16, u16), reserved: &[u16]) -> Vec<Bench> {
    let secrets = BootSecrets::from_seed(7);
    let steering = Steering::new(secrets.steering, lanes);
    let parts =
        PortParts { range, reserved: reserved.into(), key: KeptKey::new(secrets.port), steering: steering.clone() };
    let mut make = ports.maker();
    (0..lanes)
        .map(|lane| Bench {
            lane,
            steering: steering.clone(),
            choice: make(parts.clone()),
            flows: HashMap::new(),
            entropy: Entropy::from_seed(lane as u64 + 1),
        })
        .collect()
}

fn destination(number: u8) -> (Address, u16) {
    (Address::from_v4([10, 0, 0, number]), 80)
}

impl Bench {
    fn ask<'a>(steering: &'a Steering, lane: usize, (remote, remote_port): (Address, u16), random: u64) -> Ask<'a> {
        let local = Address::from_v4([10, 0, 1, 1]);
        Ask { steering, lane, local, remote, remote_port, random }
    }

    /// An active open, as the stack's tables do it.
    fn open(&mut self, to: u8) -> Result<FlowKey, Exhausted> {
        let Bench { lane, steering, choice, flows, entropy } = self;
        let ask = Bench::ask(steering, *lane, destination(to), entropy.next_u64());
        let mut last = None;
        let grant = choice.allocate(&ask, &mut |flow| {
            last = Some(*flow);
            match flows.get(flow) {
                None => Probe::Free,
                Some(Known { reusable: true, .. }) => Probe::TimeWaitReusable,
                Some(_) => Probe::Taken,
            }
        })?;
        let flow = ask.flow(grant.port);
        assert_eq!(last, Some(flow), "the port granted is the last one asked about");
        assert!(ask.comes_home(grant.port), "replies would come to another lane");
        let before = flows.insert(flow, Known { claim: Some(grant.claim), reusable: false });
        assert!(before.is_none_or(|known| known.reusable), "{flow:?} is in use");
        Ok(flow)
    }

    fn close(&mut self, flow: &FlowKey) {
        let known = self.flows.remove(flow).expect("an open flow");
        if let Some(claim) = known.claim.filter(|claim| *claim != Claim::NONE) {
            self.choice.released(claim, flow);
        }
    }

    fn wait(&mut self, flow: &FlowKey) {
        let known = self.flows.get_mut(flow).expect("an open flow");
        known.reusable = true;
        if let Some(claim) = known.claim.filter(|claim| *claim != Claim::NONE) {
            self.choice.waits(claim, flow, true);
        }
    }

    /// As many as there are.
    fn open_all(&mut self, to: u8) -> Vec<FlowKey> {
        std::iter::from_fn(|| self.open(to).ok()).collect()
    }
}

fn each(check: impl Fn(Ports)) {
    Ports::ALL.into_iter().for_each(check);
}

#[test]
fn every_port_is_granted_once_and_a_freed_one_again() {
    each(|ports| {
        for range in [(40_000, 40_000), (40_000, 40_096), (1_024, 1_123), (65_400, 65_535)] {
            let mut bench = lanes(ports, 1, range, &[]).remove(0);
            let count = usize::from(range.1 - range.0) + 1;
            let flows = bench.open_all(1);
            let distinct: HashSet<u16> = flows.iter().map(|flow| flow.local_port).collect();
            assert_eq!((flows.len(), distinct.len()), (count, count), "{ports:?} {range:?}");
            assert!(distinct.iter().all(|port| (range.0..=range.1).contains(port)));
            for flow in flows.iter().take(3) {
                assert_eq!(bench.open(1), Err(Exhausted), "{ports:?}");
                bench.close(flow);
                assert_eq!(bench.open(1), Ok(*flow), "{ports:?}: closing one frees exactly that one");
            }
            assert_eq!(bench.open(1), Err(Exhausted), "{ports:?}");
            let tallies = bench.choice.tallies();
            assert_eq!(tallies.asks - tallies.exhausted, count as u64 + 3.min(count as u64), "{ports:?}");
        }
    });
}

#[test]
fn a_port_serves_every_destination() {
    each(|ports| {
        let mut bench = lanes(ports, 1, (40_000, 40_099), &[]).remove(0);
        for to in 1..=5 {
            assert_eq!(bench.open_all(to).len(), 100, "{ports:?}: to {to}");
        }
        let third: Vec<FlowKey> = bench.flows.keys().filter(|flow| flow.remote == destination(3).0).copied().collect();
        third.iter().for_each(|flow| bench.close(flow));
        assert_eq!(bench.open(2), Err(Exhausted), "{ports:?}");
        assert_eq!(bench.open_all(3).len(), 100, "{ports:?}");
    });
}

#[test]
fn two_lanes_share_the_range_without_a_flow_in_common() {
    each(|ports| {
        let mut both = lanes(ports, 2, (40_000, 40_499), &[]);
        let flows: Vec<Vec<FlowKey>> = both.iter_mut().map(|bench| bench.open_all(1)).collect();
        let all: HashSet<FlowKey> = flows.iter().flatten().copied().collect();
        assert_eq!((all.len(), flows[0].len() + flows[1].len()), (500, 500), "{ports:?}");
        assert!(flows.iter().all(|one| one.len() > 100), "{ports:?}: each has a share");
    });
}

#[test]
fn two_lanes_at_a_time_never_choose_the_same_and_lose_nothing() {
    each(|ports| {
        let both = lanes(ports, 2, (40_000, 40_299), &[]);
        let open: Mutex<HashSet<FlowKey>> = Mutex::default();
        let both: Vec<Bench> = std::thread::scope(|scope| {
            let threads: Vec<_> = both
                .into_iter()
                .map(|mut bench| {
                    let open = &open;
                    scope.spawn(move || {
                        let mut mine: Vec<FlowKey> = Vec::new();
                        for _ in 0..4_000 {
                            let draw = bench.entropy.next_u64();
                            if draw % 5 < 3 || mine.is_empty() {
                                if let Ok(flow) = bench.open((draw >> 8) as u8 % 3) {
                                    assert!(open.lock().expect("whole").insert(flow), "{ports:?}: {flow:?} twice");
                                    mine.push(flow);
                                }
                            } else {
                                let flow = mine.swap_remove((draw >> 16) as usize % mine.len());
                                // Given up first: from then on it may be chosen again at any time.
                                assert!(open.lock().expect("whole").remove(&flow));
                                bench.close(&flow);
                            }
                        }
                        mine.iter().for_each(|flow| bench.close(flow));
                        bench
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("no lane panics")).collect()
        });
        let again: usize = both.into_iter().map(|mut bench| bench.open_all(1).len()).sum();
        assert_eq!(again, 300, "{ports:?}: everything was given back");
    });
}

#[test]
fn time_wait_gives_way_to_a_new_flow_only_where_that_is_allowed() {
    each(|ports| {
        let mut bench = lanes(ports, 1, (40_000, 40_149), &[]).remove(0);
        let flows = bench.open_all(1);
        for flow in flows.iter().step_by(30) {
            assert_eq!(bench.open(1), Err(Exhausted), "{ports:?}");
            bench.wait(flow);
            assert_eq!(bench.open(1), Ok(*flow), "{ports:?}");
        }
        assert_eq!(bench.choice.tallies().reused, 5, "{ports:?}");
        // What was taken over is one flow, not two.
        for flow in &flows {
            bench.close(flow);
        }
        assert_eq!(bench.open_all(1).len(), 150, "{ports:?}");
    });
}

#[test]
fn flows_that_the_peer_opened_are_respected() {
    each(|ports| {
        let mut bench = lanes(ports, 1, (40_000, 40_099), &[]).remove(0);
        for port in (40_000..40_100).step_by(10) {
            let flow = Bench::ask(&bench.steering, 0, destination(1), 0).flow(port);
            bench.flows.insert(flow, Known { claim: None, reusable: false });
        }
        let flows = bench.open_all(1);
        assert_eq!(flows.len(), 90, "{ports:?}");
        assert!(flows.iter().all(|flow| flow.local_port % 10 != 0), "{ports:?}");
    });
}

#[test]
fn reserved_ports_are_left_alone_until_they_are_not() {
    each(|ports| {
        let mut bench = lanes(ports, 1, (40_000, 40_099), &[40_000, 40_099]).remove(0);
        bench.choice.reserve(40_050);
        assert_eq!(bench.open_all(1).len(), 97, "{ports:?}");
        let Bench { choice, flows, .. } = &mut bench;
        choice.unreserve(40_050, &mut |flow| flows.get(flow).and_then(|known| known.claim).unwrap_or(Claim::NONE));
        let freed = bench.open(1).map(|flow| flow.local_port);
        assert_eq!((freed, bench.open(1).is_err()), (Ok(40_050), true), "{ports:?}");
    });
}

#[test]
fn a_port_of_the_applications_choice_is_taken() {
    each(|ports| {
        let mut bench = lanes(ports, 1, (40_000, 40_099), &[]).remove(0);
        let Bench { steering, choice, flows, .. } = &mut bench;
        let ask = Bench::ask(steering, 0, destination(1), 1);
        let claim = choice.adopt(&ask, 40_042);
        let flow = ask.flow(40_042);
        flows.insert(flow, Known { claim: Some(claim), reusable: false });
        assert_eq!(bench.open_all(1).len(), 99, "{ports:?}");
        bench.close(&flow);
        assert_eq!(bench.open(1), Ok(flow), "{ports:?}");
    });
}

/// The figures that each is known for, at an occupancy of a half.
#[test]
fn each_costs_what_it_is_known_for() {
    let costs = |ports: Ports| {
        let mut bench = lanes(ports, 1, (40_000, 42_047), &[]).remove(0);
        for _ in 0..1_024 {
            bench.open(1).expect("half of the ports are free");
        }
        let before = bench.choice.tallies();
        let flows: Vec<FlowKey> = (0..8).map(|_| bench.open(1).expect("still")).collect();
        assert_eq!(flows.len(), 8);
        let after = bench.choice.tallies();
        let per_open = |now: u64, then: u64| (now - then) as f64 / 8.0;
        (
            per_open(after.locks, before.locks),
            per_open(after.probes, before.probes),
            per_open(after.flow_hashes, before.flow_hashes),
            per_open(after.shared_lines_written, before.shared_lines_written),
        )
    };
    for seed in [Ports::B0, Ports::B1] {
        let (locks, probes, hashes, lines) = costs(seed);
        assert_eq!(locks, probes, "{seed:?}: a lock for each port tried");
        assert!((1.0..40.0).contains(&probes) && hashes == 1.0 && lines >= 2.0, "{seed:?}: {probes} {hashes} {lines}");
    }
    // Every even port is taken, and each of them is tried before the first odd one.
    let (locks, probes, hashes, lines) = costs(Ports::B2);
    assert!(probes > 1_024.0 && locks == probes && hashes == probes, "{locks} {probes} {hashes}");
    assert!(lines > 256.0, "two buckets tried share a line of four: {lines}");
    let (locks, probes, hashes, lines) = costs(Ports::B3);
    assert!(probes > 1_024.0, "{probes}");
    assert_eq!((locks, hashes, lines), (1.0, 1.0, 2.0), "looking costs no lock, no hash and no write");
    let (locks, _, _, lines) = costs(Ports::Lane);
    assert_eq!((locks, lines), (0.0, 0.0), "nothing is shared");
}
