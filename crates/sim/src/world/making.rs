//! Owns how a world is made of a scenario: its hosts with their addresses and lanes, and the nodes between them.

use super::{Actor, Listening};
use crate::dice::Dice;
use crate::gate::Gate;
use crate::host::{self, HostParts, SharingName};
use crate::network::{Network, Node, Way};
use crate::nodes;
use crate::puppet::Puppet;
use crate::scenario::{Scenario, Segmentation};
use crate::stage::Stage;
use laneway_device::Medium;
use laneway_device::memory::{LinkConfig, Steer, link};
use laneway_proto::time::Instant;
use laneway_stack::control::Network as Addresses;
use laneway_stack::entropy::BootSecrets;
use laneway_stack::steering::Steering;
use laneway_wire::flow::Address;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// The address of a host.
pub fn address(host: usize, v4: bool) -> Address {
    let n = host as u8 + 1;
    if v4 {
        Address::from_v4([10, 0, 0, n])
    } else {
        Address::from_v6([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, n])
    }
}

fn mac(host: usize) -> [u8; 6] {
    [2, 0, 0, 0, 0, host as u8 + 1]
}

/// The link header of a frame from one host to the other.
pub(crate) fn link_header(medium: Medium, to: usize, v4: bool) -> Vec<u8> {
    if medium == Medium::Ip {
        return Vec::new();
    }
    let mut header = mac(to).to_vec();
    header.extend(mac(1 - to));
    header.extend(if v4 { [0x08, 0x00] } else { [0x86, 0xdd] });
    header
}

/// A host of the scenario, at its end of the wire.
pub(super) fn actor(
    scenario: &Scenario,
    sharing: SharingName,
    host: usize,
    now: Instant,
    stage: &Rc<RefCell<Stage>>,
) -> Actor {
    let plan = &scenario.hosts[host];
    let secrets = BootSecrets::from_seed(scenario.seed.wrapping_mul(2).wrapping_add(host as u64));
    let steering = Steering::new(secrets.steering, plan.lanes);
    let header = scenario.medium.header_len();
    let (lanes, astray) = (plan.lanes, plan.astray);
    let steer: Steer = Arc::new(move |frame: &[u8]| {
        // The device has no dice: what a frame holds is chance enough.
        if astray == 0 {
            return steering.queue_of_frame(frame, header);
        }
        let sum = frame.iter().fold(0u64, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)) >> 16;
        let right = steering.queue_of_frame(frame, header);
        if sum % 1_000 < astray { (right + (sum >> 20) as usize) % lanes } else { right }
    });
    let config = LinkConfig {
        queues: plan.lanes,
        second_queues: Some(1),
        ring_bytes: plan.ring_bytes,
        mtu: plan.mtu,
        medium: scenario.medium,
        tx_checksum: plan.offload,
        rx_checksum: plan.segmentation == Segmentation::CutsAndMerges,
        tso_max: if plan.segmentation == Segmentation::None { 0 } else { 65_535 },
        rx_super: plan.segmentation == Segmentation::CutsAndMerges,
        macs: [mac(host), [2, 0, 0, 0, 1, 0]],
        steer: [Some(steer), None],
        ..LinkConfig::default()
    };
    let (queues, mut wire) = link(config);
    let cidr =
        |v4: bool| format!("{}/{}", address(host, v4), if v4 { 24 } else { 64 }).parse().expect("an address of ours");
    let addresses = Addresses { addresses: vec![cidr(true), cidr(false)], gateways: Vec::new() };
    let puppet = |lane: usize| Puppet {
        host,
        lane,
        addresses: [0, 1].map(|h| [address(h, true), address(h, false)]),
        stage: Rc::clone(stage),
    };
    let parts = HostParts { config: plan.config.clone(), network: &addresses, secrets: &secrets, queues, now };
    let mut host_ = host::host(sharing, parts, puppet);
    let gate = plan.gated.then(|| Gate::new(&plan.config.tcp));
    gate.iter().for_each(|gate| host_.heed(&gate.alarms()));
    let listeners = scenario.listeners.iter().enumerate().filter(|(_, l)| l.host == host);
    Actor {
        host: host_,
        wire: wire.remove(0),
        gate,
        wake_us: 0,
        holes_found: 0,
        poll_delay_us: plan.poll_delay_us,
        uneven: plan.uneven.then(|| Dice::new(scenario.seed.wrapping_add(host as u64), "uneven")),
        moves: plan.moves.iter().copied().collect(),
        listeners: listeners.map(|(i, l)| (l.from_us, Listening::Begin(i))).collect(),
        knocking: Vec::new(),
    }
}

/// What lies between the hosts, from the first node to the last.
pub(super) fn network(scenario: &Scenario) -> Network {
    let path = &scenario.path;
    let dice = |purpose: &str| Dice::new(scenario.seed, purpose);
    let mut list: Vec<Box<dyn Node>> = Vec::new();
    if let Some((mtu, from_us)) = path.narrow {
        list.push(nodes::Mtu::new(scenario.medium, mtu, from_us, path.silent));
    }
    if path.split > 0 {
        list.push(nodes::Split::new(scenario.medium, path.split, dice("split")));
    }
    if path.mark > 0 {
        list.push(nodes::Mark::new(scenario.medium, path.mark, dice("mark")));
    }
    if let Some((bits_per_s, queue)) = path.bottleneck {
        list.push(nodes::Bottleneck::new(bits_per_s, queue));
    }
    list.push(nodes::Delay::new(path.delay_us, path.jitter_us, dice("delay")));
    if path.drop != [0, 0] {
        list.push(nodes::Drop::new(path.drop, dice("drop")));
    }
    if path.reorder > 0 {
        list.push(nodes::Reorder::new(path.reorder, path.reorder_us, dice("reorder")));
    }
    if path.duplicate > 0 {
        list.push(nodes::Duplicate::new(path.duplicate, path.duplicate_us, dice("duplicate")));
    }
    if path.corrupt > 0 {
        list.push(nodes::Corrupt::new(scenario.medium, path.corrupt, dice("corrupt")));
    }
    if let Some((from, until)) = path.blackout {
        list.push(nodes::Blackout::new(from, until));
    }
    if let Some(flood) = &path.flood {
        let v4 = scenario.talks.first().is_none_or(|t| t.v4);
        let ports = scenario.listeners.iter().map(|l| l.port).chain([9]).collect();
        let target = nodes::Target {
            way: Way::from_host(1 - flood.host),
            link: link_header(scenario.medium, flood.host, v4),
            address: address(flood.host, v4),
            ports,
        };
        list.push(nodes::Flood::new(target, flood, dice("flood")));
    }
    Network::new(list)
}
