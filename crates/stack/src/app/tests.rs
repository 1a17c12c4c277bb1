//! Whom an application may speak to.

use super::*;
use crate::config::Config;
use crate::control::Network;
use crate::entropy::BootSecrets;
use crate::error::Error;
use crate::host::{Host, Seat};
use crate::sharing::{Sharing, Site};
use laneway_device::memory::{LinkConfig, LinkRx, LinkTx, link};
use laneway_wire::flow::Address;
use std::net::IpAddr;

struct Nobody;
impl App for Nobody {
    fn on_data(&mut self, _: &mut Context<'_>, _: ConnId, data: &[u8]) -> usize {
        data.len()
    }
}

/// Of one lane, with two networks and a route to everywhere else.
fn host(config: Config) -> (Host<LinkRx, LinkTx, Nobody>, Instant) {
    let (queues, _) = link(LinkConfig::default());
    let addresses = ["10.0.0.1/24", "10.0.1.1/30", "fd00::1/64"].map(|cidr| cidr.parse().unwrap()).to_vec();
    let gateways = ["10.0.0.254", "fd00::fe"].map(|ip| ip.parse().unwrap()).to_vec();
    let (secrets, now) = (BootSecrets::from_seed(1), Instant::from_us(3_600_000_000));
    let network = Network { addresses, gateways };
    (Host::new(config, &network, &secrets, queues, now, |_| Nobody).unwrap(), now)
}

#[test]
fn what_is_no_other_host_is_neither_connected_to_nor_sent_to() {
    let (mut host, now) = host(Config::default());
    let socket = host.control.bind_udp_with("[::]:7".parse().unwrap(), Default::default()).unwrap().0;
    host.turn(now);
    let Seat { lane, .. } = &mut host.seats[0];
    let tables = lane.shared.enter(Site::Verb);
    let mut cx = Context { tables, local: &mut lane.local };
    let ours = ["10.0.0.1", "10.0.1.1", "fd00::1"];
    let groups = ["10.0.0.255", "10.0.1.3", "255.255.255.255", "224.0.0.251", "ff02::fb", "ff0e::1"];
    let odd = ["0.0.0.0", "127.0.0.1", "127.1.2.3", "240.0.0.1", "::", "::1"];
    for to in ours.iter().chain(&groups).chain(&odd) {
        let to: IpAddr = to.parse().unwrap();
        let from = if to.is_ipv4() { [10, 0, 0, 1].into() } else { "fd00::1".parse::<IpAddr>().unwrap() };
        for from in [None, Some(Address::from(from))] {
            let refused = cx.connect(from, to.into(), 80, 0);
            assert_eq!(refused.map(drop), Err(Error::NetworkUnreachable(to)), "from {from:?}");
        }
        assert!(!cx.send_datagram(socket, SocketAddr::new(to, 80), b"who?"), "to {to}");
    }
    for to in ["10.0.0.2", "10.0.1.2", "10.0.2.255", "192.0.2.1", "fd00::2", "2001:db8::1"] {
        let to: IpAddr = to.parse().unwrap();
        for port in [80, 0] {
            assert!(cx.connect(None, to.into(), port, 0).is_ok(), "to {to}, port {port}");
        }
        assert!(cx.send_datagram(socket, SocketAddr::new(to, 80), b"you!"), "to {to}");
    }
}

#[test]
fn a_backlog_is_no_longer_than_somaxconn() {
    for (asked, held) in [(1_000, 8), (8, 8), (3, 3)] {
        let (mut host, now) = host(Config { somaxconn: 8, ..Config::default() });
        let id = host.listen("0.0.0.0:80".parse().unwrap(), asked, now).unwrap();
        let backlog = host.seats[0].lane.tables(|t| t.listeners.at_or_after(id.0.into()).unwrap().1.backlog());
        assert_eq!(backlog, held);
    }
}
