//! Owns two hosts of our own stack with a memory link between them: one that connects, one that listens at every
//! destination. One lane each, both turned by the thread that measures.

use crate::s3_ports::Ports;
use laneway_device::memory::{self, LinkConfig, LinkRx, LinkTx};
use laneway_proto::time::Instant;
use laneway_stack::app::App;
use laneway_stack::config::Config;
use laneway_stack::control::{Cidr, Network};
use laneway_stack::entropy::BootSecrets;
use laneway_stack::error::Error;
use laneway_stack::host::Host;
use laneway_wire::flow::Address;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The port of every destination.
pub const PORT: u16 = 80;
/// Destinations that there can be.
pub const DESTINATIONS_MAX: usize = 200;

/// What a rig is to be like.
pub struct Plan {
    /// How the client chooses its ports.
    pub ports: Ports,
    /// From which.
    pub range: (u16, u16),
    /// Addresses of the server.
    pub destinations: usize,
    /// What both hosts are told besides.
    pub config: Config,
    /// Every secret is drawn from this.
    pub seed: u64,
}

/// Both ends.
pub struct Rig<S, C> {
    /// Listens.
    pub server: Host<LinkRx, LinkTx, S>,
    /// Connects.
    pub client: Host<LinkRx, LinkTx, C>,
}

/// The address of a destination.
pub fn destination(number: usize) -> Address {
    Address::from_v4([10, 0, 0, number as u8 + 1])
}

/// Builds both, and returns when all destinations listen.
pub fn build<S: App, C: App>(plan: &Plan, now: Instant, server: S, client: C) -> Result<Rig<S, C>, Error> {
    let (server_queues, client_queues) = memory::link(LinkConfig { ring_bytes: 1 << 20, ..LinkConfig::default() });
    let network = |subnet: u8, count: usize| Network {
        addresses: (0..count)
            .map(|host| Cidr { address: Ipv4Addr::new(10, 0, subnet, host as u8 + 1).into(), prefix: 16 })
            .collect(),
        gateways: Vec::new(),
    };
    let mut config = plan.config.clone();
    config.ip_local_port_range = plan.range;
    let secrets = |end| BootSecrets::from_seed(plan.seed.wrapping_mul(2) + end);
    let (mut server, mut client) = (Some(server), Some(client));
    let mut server =
        Host::new(config.clone(), &network(0, plan.destinations), &secrets(0), server_queues, now, |_| {
            server.take().expect("one lane")
        })?;
    let client = Host::new_with(config, &network(1, 1), &secrets(1), client_queues, now, plan.ports.maker(), |_| {
        client.take().expect("one lane")
    })?;
    for number in 0..plan.destinations {
        let at = SocketAddr::new(IpAddr::from(destination(number)), PORT);
        server.listen(at, 4_096, now)?;
    }
    Ok(Rig { server, client })
}
