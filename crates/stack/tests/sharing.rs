//! The suite that every way of sharing passes, over the in-memory link: connections are made, used, closed and forgotten.

use laneway_device::Medium;
use laneway_device::memory::{self, LinkConfig};
use laneway_proto::tcp::CloseReason;
use laneway_proto::time::Instant;
use laneway_stack::app::{App, ConnId, Context};
use laneway_stack::config::Config;
use laneway_stack::control::Network;
use laneway_stack::counters::Mib;
use laneway_stack::entropy::BootSecrets;
use laneway_stack::host::Host;
use laneway_stack::sharing::{Accept, Decomposed, Epoch, Global, LaneOwned, Plain, Sharing, TimeWaitApart};
use laneway_stack::steering::Steering;
use laneway_wire::flow::Address;
use std::sync::Arc;

const REQUEST: [u8; 92] = [b'q'; 92];
const RESPONSE: [u8; 206] = [b'r'; 206];

/// Both sides of connect, request, response, close; the server closes first.
#[derive(Default)]
struct Crr {
    is_server: bool,
    to_start: usize,
    running: usize,
    most: usize,
    done: usize,
    bad: usize,
    received: std::collections::HashMap<ConnId, usize>,
}

impl App for Crr {
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        while self.to_start > 0 && self.running < self.most {
            cx.connect(None, Address::from_v4([10, 0, 0, 1]), 80, 7).expect("there are ports");
            self.to_start -= 1;
            self.running += 1;
        }
    }
    fn on_connect(&mut self, cx: &mut Context<'_>, id: ConnId) {
        assert_eq!(cx.send(id, &REQUEST), REQUEST.len());
    }
    fn on_data(&mut self, cx: &mut Context<'_>, id: ConnId, data: &[u8]) -> usize {
        let seen = self.received.entry(id).or_default();
        *seen += data.len();
        if self.is_server && *seen == REQUEST.len() {
            assert_eq!(cx.send(id, &RESPONSE), RESPONSE.len());
            cx.close(id);
        }
        data.len()
    }
    fn on_closed(&mut self, _: &mut Context<'_>, id: ConnId, token: u64, reason: CloseReason) {
        let seen = self.received.remove(&id).unwrap_or(0);
        let want = if self.is_server { REQUEST.len() } else { RESPONSE.len() };
        let right = reason == CloseReason::Normal && seen == want && token == if self.is_server { 0 } else { 7 };
        self.bad += usize::from(!right);
        self.done += 1;
        self.running = self.running.saturating_sub(1);
    }
}

fn crr<S: Sharing>(lanes: usize, medium: Medium, total: usize, at_once: usize) {
    let (server_secrets, client_secrets) = (BootSecrets::from_seed(1), BootSecrets::from_seed(2));
    let steer = |secrets: &BootSecrets| {
        let steering = Steering::new(secrets.steering, lanes);
        let header = medium.header_len();
        Arc::new(move |frame: &[u8]| steering.queue_of_frame(frame, header)) as memory::Steer
    };
    let link = LinkConfig {
        queues: lanes,
        medium,
        steer: [Some(steer(&server_secrets)), Some(steer(&client_secrets))],
        ..LinkConfig::default()
    };
    let (server_queues, client_queues) = memory::link(link);
    let mut now = Instant::from_us(3_600_000_000);
    let network = |ip: &str| Network { addresses: vec![ip.parse().unwrap()], gateways: vec![] };
    let mut config = Config::default();
    config.tcp.msl_us = 1_000_000;
    let mut server: Host<_, _, Crr, S> =
        Host::new(config.clone(), &network("10.0.0.1/24"), &server_secrets, server_queues, now, |_| Crr {
            is_server: true,
            ..Crr::default()
        })
        .unwrap();
    let mut client: Host<_, _, Crr, S> =
        Host::new(config, &network("10.0.0.2/24"), &client_secrets, client_queues, now, |_| Crr {
            to_start: total / lanes,
            most: at_once / lanes,
            ..Crr::default()
        })
        .unwrap();
    server.listen("0.0.0.0:80".parse().unwrap(), 1_024, now).unwrap();

    let mut turns = 0;
    while client.seats.iter().map(|s| s.app.done).sum::<usize>() < total {
        let busy = client.turn(now).busy | server.turn(now).busy;
        now = now.after_us(if busy { 5 } else { 1_000 });
        turns += 1;
        assert!(
            turns < 2_000_000,
            "no progress: client {:?}, server {:?}",
            client.counters().iter().collect::<Vec<_>>(),
            server.counters().iter().collect::<Vec<_>>()
        );
    }
    for _ in 0..100 {
        client.turn(now);
        server.turn(now);
        now = now.after_us(100);
    }
    for host in [&mut client, &mut server] {
        assert_eq!(host.seats.iter().map(|s| s.app.done).sum::<usize>(), total);
        assert_eq!(
            host.seats.iter().map(|s| s.app.bad).sum::<usize>(),
            0,
            "{:?}",
            host.counters().iter().collect::<Vec<_>>()
        );
    }
    let (c, s) = (client.counters(), server.counters());
    assert_eq!(
        c.get(Mib::TcpRetransSegs) + s.get(Mib::TcpRetransSegs),
        0,
        "client {:?} server {:?}",
        c.iter().collect::<Vec<_>>(),
        s.iter().collect::<Vec<_>>()
    );
    assert_eq!(s.get(Mib::TcpExtTW), total as u64, "the side that closes first keeps TIME_WAIT");
    // Six packets a connection: SYN, SYN-ACK, ACK+request, response+FIN, ACK+FIN, ACK.
    let packets = c.get(Mib::IpOutRequests) + s.get(Mib::IpOutRequests);
    assert_eq!(
        packets,
        6 * total as u64,
        "client {:?} server {:?}",
        c.iter().collect::<Vec<_>>(),
        s.iter().collect::<Vec<_>>()
    );

    // After 2·MSL nothing is left, and nothing leaked.
    now = now.after_us(2_100_000);
    for _ in 0..total / 32 + 100 {
        client.turn(now);
        server.turn(now);
        now = now.after_us(100);
    }
    for seat in client.seats.iter_mut().chain(&mut server.seats) {
        seat.lane.tables(|tables| {
            assert_eq!(
                (tables.flows.len(), tables.slots.len(), tables.half_open.len(), tables.time_waits, tables.pool.lent()),
                (0, 0, 0, 0, 0)
            );
        });
    }
}

macro_rules! suite {
    ($name:ident, $sharing:ty) => {
        mod $name {
            use super::*;
            #[test]
            fn one_connection() {
                crr::<$sharing>(1, Medium::Ip, 1, 1);
            }
            #[test]
            fn many_in_turn() {
                crr::<$sharing>(1, Medium::Ethernet, 3_000, 1);
            }
            #[test]
            fn many_at_once() {
                crr::<$sharing>(1, Medium::Ethernet, 20_000, 500);
            }
            #[test]
            fn two_lanes() {
                crr::<$sharing>(2, Medium::Ethernet, 20_000, 500);
            }
            #[test]
            fn four_lanes() {
                crr::<$sharing>(4, Medium::Ip, 8_000, 400);
            }
        }
    };
}

suite!(lane, LaneOwned);
suite!(global, Global);
suite!(accept, Accept);
suite!(timewait, TimeWaitApart);
suite!(decomposed, Decomposed);
suite!(epoch, Epoch);
suite!(bare_locks, Global<Plain>);
