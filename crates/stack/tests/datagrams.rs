//! UDP sockets of threads, stepped in one thread: what is said before a lane has heard of a socket is not lost.

use laneway_device::memory::{LinkConfig, LinkRx, LinkTx, link};
use laneway_proto::time::Instant;
use laneway_stack::BindOptions;
use laneway_stack::app::ListenerId;
use laneway_stack::config::Config;
use laneway_stack::control::Network;
use laneway_stack::entropy::BootSecrets;
use laneway_stack::host::Host;
use laneway_stack::runtime::Bells;
use laneway_stack::threads::desk::{Desk, UdpTicket};
use laneway_stack::threads::{COMMANDS_MAX, Server};
use std::net::SocketAddr;
use std::sync::Arc;

const BEGAN: Instant = Instant::from_us(3_600_000_000);

/// A host of one lane that serves threads.
struct Side {
    host: Host<LinkRx, LinkTx, Server>,
    desk: Arc<Desk>,
    now: Instant,
}

impl Side {
    fn pair() -> [Side; 2] {
        let (first, second) = link(LinkConfig::default());
        let mut ends = [Some(first), Some(second)].into_iter().flatten();
        ["10.0.0.1/24", "10.0.0.2/24"].map(|ip| {
            let network = Network { addresses: vec![ip.parse().unwrap()], gateways: vec![] };
            let (desk, mut servers) = Desk::new(1, Bells::new(1).unwrap());
            let (secrets, end) = (BootSecrets::from_seed(ip.len() as u64), ends.next().unwrap());
            let app = |_| servers.pop().unwrap();
            Side { host: Host::new(Config::default(), &network, &secrets, end, BEGAN, app).unwrap(), desk, now: BEGAN }
        })
    }

    fn bind(&mut self, at: &str) -> Arc<UdpTicket> {
        let (id, at) = self.host.control.bind_udp_with(at.parse().unwrap(), BindOptions::default()).unwrap();
        self.desk.bind_udp(id, at)
    }

    fn turn(&mut self, turns: usize) {
        for _ in 0..turns {
            self.host.turn(self.now);
            self.now = self.now.after_us(100);
        }
    }
}

/// What is sent now arrives, and once.
fn arrives([mut client, mut server]: [Side; 2], from: &Arc<UdpTicket>, to: &Arc<UdpTicket>) {
    assert!(from.send(to.at, b"hello"));
    client.desk.send_datagrams(from);
    for _ in 0..8 {
        client.turn(1);
        server.turn(1);
    }
    assert_eq!(received(to), Some((from.at, b"hello".to_vec())));
    assert_eq!(received(to), None);
}

fn received(ticket: &UdpTicket) -> Option<(SocketAddr, Vec<u8>)> {
    ticket.receive(false, |from, data| (from, data.to_vec()))
}

#[test]
fn a_datagram_that_comes_before_its_socket_is_delivered() {
    let [mut server, mut client] = Side::pair();
    server.turn(1);
    let from = client.bind("10.0.0.2:5000");
    client.turn(2);
    // `bind` has returned; the lane hears of the socket behind the frames of the same turn.
    let to = server.bind("10.0.0.1:53");
    arrives([client, server], &from, &to);
}

#[test]
fn what_is_sent_before_the_lane_knows_the_socket_goes_out() {
    let [mut server, mut client] = Side::pair();
    let to = server.bind("10.0.0.1:53");
    server.turn(2);
    client.turn(1);
    // More commands than a lane takes in a turn stand before the one that brings the socket.
    for _ in 0..2 * COMMANDS_MAX {
        client.desk.refill(0, ListenerId(u16::MAX));
    }
    let from = client.bind("10.0.0.2:5000");
    arrives([client, server], &from, &to);
}
