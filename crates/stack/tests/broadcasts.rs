//! Datagrams to all hosts of a network, as frames on an Ethernet: who is named as their sender, and that nobody is asked for first.

use laneway_device::memory::{LinkConfig, LinkQueue, LinkRx, LinkTx, link};
use laneway_device::{Medium, Rx, Tx};
use laneway_proto::time::Instant;
use laneway_stack::app::{App, ConnId, Context, UdpId};
use laneway_stack::config::Config;
use laneway_stack::control::Network;
use laneway_stack::entropy::BootSecrets;
use laneway_stack::host::Host;
use laneway_wire::ethernet::{EtherType, Header, Mac};
use laneway_wire::flow::Address;
use laneway_wire::ipv4;
use std::net::SocketAddr;

/// Sends what it is told to, and says whether it could.
#[derive(Default)]
struct Told {
    to_send: Vec<(UdpId, SocketAddr, bool)>,
    sent: Vec<bool>,
}

impl App for Told {
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        for (socket, to, to_all) in self.to_send.drain(..) {
            self.sent.push(match to_all {
                true => cx.broadcast_datagram(socket, to, &[7; 2_000]),
                false => cx.send_datagram(socket, to, &[7; 2_000]),
            });
        }
    }
    fn on_data(&mut self, _: &mut Context<'_>, _: ConnId, data: &[u8]) -> usize {
        data.len()
    }
}

/// A host in two networks, and the frames that it sends.
struct World {
    host: Host<LinkRx, LinkTx, Told>,
    other: Vec<LinkQueue>,
    mac: Mac,
    now: Instant,
}

impl World {
    fn new(gateway: Option<&str>) -> Self {
        let (queues, other) = link(LinkConfig { medium: Medium::Ethernet, ..LinkConfig::default() });
        let (now, mac) = (Instant::from_us(3_600_000_000), Mac(queues[0].tx.capabilities().mac));
        let addresses = ["10.0.0.1/24", "10.1.0.1/24", "fd00::1/64"].map(|cidr| cidr.parse().unwrap()).to_vec();
        let gateways = gateway.into_iter().map(|gateway| gateway.parse().unwrap()).collect();
        let secrets = BootSecrets::from_seed(1);
        let app = |_| Told::default();
        let network = Network { addresses, gateways };
        World { host: Host::new(Config::default(), &network, &secrets, queues, now, app).unwrap(), other, mac, now }
    }

    /// Binds a socket there.
    fn bind(&mut self, at: &str) -> UdpId {
        let id = self.host.control.bind_udp(at.parse().unwrap()).unwrap();
        self.host.turn(self.now);
        id
    }

    /// Sends from it, and says whether it was queued and what left of it within some seconds: senders and receivers of its packets.
    fn send(&mut self, socket: UdpId, to: &str, to_all: bool) -> (bool, Vec<(Address, Address)>) {
        let app = &mut self.host.seats[0].app;
        app.to_send.push((socket, to.parse().unwrap(), to_all));
        let mut packets = Vec::new();
        for _ in 0..50 {
            self.host.turn(self.now);
            self.now = self.now.after_us(100_000);
            let rx = &mut self.other[0].rx;
            let frames = rx.poll(64);
            for at in 0..frames {
                let bytes = rx.frame(at).bytes;
                let (header, packet) = Header::parse(bytes).unwrap();
                assert_eq!((header.dst, header.src), (Mac::BROADCAST, self.mac));
                assert_eq!(header.ethertype, EtherType::IPV4, "nobody is asked for before or after");
                let packet = ipv4::View::new(packet).unwrap();
                packets.push((packet.src(), packet.dst()));
            }
            rx.release();
        }
        (self.host.seats[0].app.sent.pop().unwrap(), packets)
    }
}

#[test]
fn what_is_for_all_hosts_goes_to_all_on_the_link() {
    let address = |text: &str| Address::from(text.parse::<std::net::IpAddr>().unwrap());
    for gateway in [None, Some("10.1.0.9")] {
        // Everybody can be reached without a route; if one leads to all the world, it says from which address.
        let for_any = if gateway.is_some() { "10.1.0.1" } else { "10.0.0.1" };
        let mut world = World::new(gateway);
        for (number, (bound, to, from)) in [
            ("0.0.0.0", "10.0.0.255", "10.0.0.1"),
            ("0.0.0.0", "10.1.0.255", "10.1.0.1"),
            ("10.1.0.1", "10.0.0.255", "10.1.0.1"),
            ("10.1.0.1", "255.255.255.255", "10.1.0.1"),
            ("0.0.0.0", "255.255.255.255", for_any),
            ("10.0.0.255", "10.1.0.255", "10.1.0.1"),
            ("255.255.255.255", "255.255.255.255", for_any),
        ]
        .into_iter()
        .enumerate()
        {
            let socket = world.bind(&format!("{bound}:{}", 5_000 + number));
            let to_all = format!("{to}:9");
            assert_eq!(world.send(socket, &to_all, /* to_all= */ false), (false, vec![]), "nobody has asked for that");
            // In two fragments.
            let packets = vec![(address(from), address(to)); 2];
            assert_eq!(world.send(socket, &to_all, true), (true, packets), "from {bound} to {to}");
        }
        let socket = world.bind("10.0.0.255:6000");
        for nobody in ["10.2.0.255:9", "10.0.0.1:9", "224.0.0.1:9", "[ff02::1]:9", "[fd00::2]:9"] {
            if gateway.is_none() || !nobody.starts_with("10.2") {
                assert_eq!(world.send(socket, nobody, true).1, vec![], "{nobody}");
            }
        }
    }
}

#[test]
fn a_socket_can_be_bound_where_a_network_of_ours_is_meant_and_no_listener_can() {
    let mut world = World::new(None);
    for (ip, is_free) in [
        ("255.255.255.255", true),
        ("10.0.0.255", true),
        ("::ffff:10.1.0.255", true),
        ("10.0.0.0", false),
        ("10.2.0.255", false),
        ("224.0.0.1", false),
        ("ff02::1", false),
    ] {
        let at = SocketAddr::new(ip.parse().unwrap(), 53);
        assert_eq!(world.host.control.bind_udp(at).is_ok(), is_free, "{ip}");
        assert!(world.host.control.listen(at, 8).is_err(), "{ip}");
    }
}
