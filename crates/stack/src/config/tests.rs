use super::*;
use crate::app::{App, ConnId, Context};
use crate::binding::BindOptions;
use crate::control::Network;
use crate::entropy::BootSecrets;
use crate::host::Host;
use laneway_device::memory::{LinkConfig, LinkRx, LinkTx, link};
use laneway_proto::time::Instant;

struct Nobody;
impl App for Nobody {
    fn on_data(&mut self, _: &mut Context<'_>, _: ConnId, data: &[u8]) -> usize {
        data.len()
    }
}

const NOW: Instant = Instant::from_us(3_600_000_000);

fn host(change: impl FnOnce(&mut Config)) -> Result<Host<LinkRx, LinkTx, Nobody>, Error> {
    let mut config = Config::default();
    change(&mut config);
    let network = Network { addresses: vec!["10.0.0.1/24".parse().unwrap()], gateways: vec![] };
    let (queues, _) = link(LinkConfig::default());
    Host::new(config, &network, &BootSecrets::from_seed(1), queues, NOW, |_| Nobody)
}

/// Each would be a stack that stands still, or that speaks as nobody can.
#[test]
fn what_nothing_could_be_done_with_is_refused_by_name() {
    type Change = fn(&mut Config);
    let senseless: [(&str, Change); 8] = [
        ("ip_local_port_range", |c| c.ip_local_port_range = (0, 9)),
        ("ip_local_port_range", |c| c.ip_local_port_range = (40_001, 40_000)),
        ("ip_default_ttl", |c| c.ip_default_ttl = 0),
        ("tcp_rmem", |c| c.tcp.tcp_rmem = (0, 1 << 20)),
        ("tcp_rmem", |c| c.tcp.tcp_rmem = (1 << 20, 0)),
        ("tcp_wmem", |c| c.tcp.tcp_wmem = 0),
        ("lane_mem", |c| c.lane_mem = 0),
        ("connections", |c| c.connections = usize::MAX),
    ];
    for (name, change) in senseless {
        let Err(Error::Invalid(said)) = host(change) else { panic!("{name} is taken") };
        assert!(said.starts_with(&format!("the setting {name} ")), "{said}");
    }
    assert!(host(|_| ()).is_ok());
}

/// A backlog without an end is the longest that there is.
#[test]
fn as_many_may_wait_as_can_be_counted() {
    let mut host = host(|config| config.somaxconn = usize::MAX).unwrap();
    let (id, _) = host.listen_with("10.0.0.1:80".parse().unwrap(), usize::MAX, BindOptions::default(), NOW).unwrap();
    assert!(host.seats[0].lane.tables(|tables| tables.listeners.has_room(id)));
}
