//! Routes under load: every way of referring to them carries the same traffic and writes what it is said to write, and tables
//! are replaced under it without loss, and are all freed at the end.

use laneway_device::memory::{self, LinkConfig, LinkRx, LinkTx};
use laneway_device::{Medium, Queue, Tx};
use laneway_proto::ip::route::{Prefix, Route, RouteTable};
use laneway_proto::tcp::CloseReason;
use laneway_proto::time::Instant;
use laneway_stack::app::{App, ConnId, Context};
use laneway_stack::config::Config;
use laneway_stack::control::Network;
use laneway_stack::counters::Mib;
use laneway_stack::entropy::BootSecrets;
use laneway_stack::host::Host;
use laneway_stack::references::{Borrowed, ByArc, R0, R1, R2, R3, References, Tally};
use laneway_stack::sharing::LaneOwned;
use laneway_stack::steering::Steering;
use laneway_wire::flow::Address;
use std::sync::Arc;

const LANES: usize = 2;
const CONNECTIONS: usize = 16;

/// One byte there, one byte back, on connections that stay open.
#[derive(Default)]
struct Echo {
    is_client: bool,
    open: usize,
    done: usize,
    lost: usize,
}

impl App for Echo {
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        while self.is_client && self.open < CONNECTIONS / LANES {
            cx.connect(None, Address::from_v4([10, 0, 0, 1]), 7, 0).expect("there are ports");
            self.open += 1;
        }
    }
    fn on_connect(&mut self, cx: &mut Context<'_>, id: ConnId) {
        cx.send(id, b"?");
    }
    fn on_data(&mut self, cx: &mut Context<'_>, id: ConnId, data: &[u8]) -> usize {
        self.done += data.len();
        cx.send(id, data);
        data.len()
    }
    fn on_closed(&mut self, _: &mut Context<'_>, _: ConnId, _: u64, _: CloseReason) {
        self.lost += 1;
    }
}

type End<F> = Host<LinkRx, <F as References>::Outlet<LinkTx>, Echo, LaneOwned>;

struct Rig<F: References> {
    server: End<F>,
    client: End<F>,
    now: Instant,
}

impl<F: References> Rig<F> {
    fn new() -> Self {
        let secrets = [BootSecrets::from_seed(1), BootSecrets::from_seed(2)];
        let steer = |secrets: &BootSecrets| {
            let steering = Steering::new(secrets.steering, LANES);
            let header = Medium::Ethernet.header_len();
            Some(Arc::new(move |frame: &[u8]| steering.queue_of_frame(frame, header)) as memory::Steer)
        };
        let link = LinkConfig {
            queues: LANES,
            medium: Medium::Ethernet,
            steer: [steer(&secrets[0]), steer(&secrets[1])],
            ..LinkConfig::default()
        };
        let (server, client) = memory::link(link);
        let now = Instant::from_us(3_600_000_000);
        let host = |queues: Vec<Queue<LinkRx, LinkTx>>, ip: &str, secrets: &BootSecrets, is_client: bool| -> End<F> {
            let network = Network { addresses: vec![ip.parse().expect("an address")], gateways: vec![] };
            let app = |_| Echo { is_client, ..Echo::default() };
            Host::new(Config::default(), &network, secrets, F::attach(queues), now, app).expect("a host")
        };
        let mut server = host(server, "10.0.0.1/24", &secrets[0], false);
        let client = host(client, "10.0.0.2/24", &secrets[1], true);
        server.listen("0.0.0.0:7".parse().expect("an address"), 64, now).expect("nobody else listens");
        Rig { server, client, now }
    }

    fn turn(&mut self) {
        self.client.turn(self.now);
        self.server.turn(self.now);
        self.now = self.now.after_us(5);
    }

    fn done(&self) -> usize {
        self.client.seats.iter().map(|seat| seat.app.done).sum()
    }

    /// Turns until so many answers more have come.
    fn answers(&mut self, more: usize) {
        let goal = self.done() + more;
        for _ in 0..200_000 {
            if self.done() >= goal {
                return;
            }
            self.turn();
        }
        panic!("no progress: {:?}", self.client.counters().iter().collect::<Vec<_>>());
    }

    fn packets(&mut self) -> u64 {
        self.client.counters().get(Mib::IpOutRequests) + self.server.counters().get(Mib::IpOutRequests)
    }

    fn tally(&self) -> Tally {
        let mut sum = Tally::default();
        for seat in self.client.seats.iter().chain(&self.server.seats) {
            sum.merge(&F::tally(&seat.queue.tx));
        }
        sum
    }

    fn lost(&self) -> usize {
        self.client.seats.iter().chain(&self.server.seats).map(|seat| seat.app.lost).sum()
    }
}

/// What a packet writes that other lanes write as well, with this way of referring to routes.
fn writes_per_packet<F: References>() -> f64 {
    let mut rig = Rig::<F>::new();
    rig.answers(500); // everybody is known by now
    let (packets, before) = (rig.packets(), rig.tally());
    rig.answers(2_000);
    let tally = rig.tally().since(&before);
    assert_eq!((rig.lost(), tally.misfits), (0, 0));
    assert_eq!(tally.retries, 0, "nobody else was at it: both lanes are stepped by one thread");
    tally.shared_writes as f64 / (rig.packets() - packets) as f64
}

#[test]
fn a_packet_writes_two_shared_lines_with_any_count_and_none_in_the_product() {
    assert_eq!(writes_per_packet::<Borrowed>(), 0.0);
    for writes in [
        writes_per_packet::<R0>(),
        writes_per_packet::<R1>(),
        writes_per_packet::<R2>(),
        writes_per_packet::<R3>(),
        writes_per_packet::<ByArc>(),
    ] {
        assert_eq!(writes, 2.0);
    }
    let names = [Borrowed::NAME, R0::NAME, R1::NAME, R2::NAME, R3::NAME, ByArc::NAME];
    assert_eq!(names, ["lane", "r0", "r1", "r2", "r3", "arc"]);
}

/// The way to the other host, among `others` that lead elsewhere. `mtu` tells one table from another.
fn table(others: u32, mtu: u32) -> RouteTable {
    let network = |address: [u8; 4], len| Prefix::new(Address::from_v4(address), len).expect("no host bits");
    let route = |prefix, mtu| Route { prefix, next_hop: None, interface: 0, mtu, source: None };
    let mut builder = RouteTable::builder().add(route(network([10, 0, 0, 0], 24), Some(mtu)));
    for i in 0..others {
        builder = builder.add(route(network([172, 16 + (i >> 8) as u8, i as u8, 0], 24), None));
    }
    builder.build().expect("a table")
}

fn replaced_under_load<F: References>(times: usize) {
    let mut rig = Rig::<F>::new();
    rig.answers(200);
    let tables = [table(999, 1_400), table(999, 1_300)];
    let answered = rig.done();
    for i in 0..times {
        let next = &tables[i % 2];
        rig.client.control.replace_routes(next.clone()).unwrap();
        rig.server.control.replace_routes(next.clone()).unwrap();
        rig.turn();
    }
    assert!(rig.done() > answered + times, "traffic goes on: {} answers", rig.done() - answered);
    rig.answers(100);
    assert_eq!(rig.lost(), 0);
    for host in [&mut rig.client, &mut rig.server] {
        let counted = host.control.tables();
        assert_eq!((counted.retired, counted.freed), (times as u64, times as u64));
        assert_eq!(host.counters().get(Mib::IpOutNoRoutes), 0);
        assert_eq!(host.counters().get(Mib::TcpRetransSegs), 0);
    }
}

#[test]
fn tables_of_a_thousand_routes_are_replaced_each_turn_and_all_are_freed() {
    replaced_under_load::<Borrowed>(2_000);
    replaced_under_load::<R3>(300);
    replaced_under_load::<R0>(300);
}

#[test]
fn a_lane_that_does_not_look_holds_up_neither_memory_nor_the_newest_table() {
    let mut rig = Rig::<Borrowed>::new();
    rig.answers(200);
    for i in 0..5_000 {
        rig.client.control.replace_routes(table(10, 1_280 + i)).unwrap();
        rig.client.control.turn(rig.now); // and no lane has its turn
    }
    let waiting = |rig: &Rig<Borrowed>| {
        let tables = rig.client.control.tables();
        tables.retired - tables.freed
    };
    assert!(waiting(&rig) < 100, "{} tables wait for a lane that does not look", waiting(&rig));
    // A route away from the other host: the newest counts, and it is seen.
    let elsewhere = Prefix::new(Address::from_v4([192, 0, 2, 0]), 24).expect("no host bits");
    let nowhere = Route { prefix: elsewhere, next_hop: None, interface: 0, mtu: None, source: None };
    rig.client.control.replace_routes(RouteTable::builder().add(nowhere).build().expect("a table")).unwrap();
    for _ in 0..200 {
        rig.turn();
    }
    assert_eq!(waiting(&rig), 0);
    assert!(rig.client.counters().get(Mib::IpOutNoRoutes) > 0, "the newest table leads nowhere");
    let done = rig.done();
    rig.client.control.replace_routes(table(0, 1_500)).unwrap();
    rig.answers(100);
    assert!(rig.done() > done && rig.lost() == 0, "and back again");
    let foreign = Route { source: Some(Address::from_v4([10, 0, 0, 77])), ..nowhere };
    let (refused, before) = (RouteTable::builder().add(foreign).build().expect("a table"), rig.client.control.tables());
    let why = rig.client.control.replace_routes(refused).expect_err("nobody would answer to that address");
    assert!(why.to_string().starts_with("10.0.0.77 is not an address of this stack"), "{why}");
    assert_eq!(rig.client.control.tables().retired, before.retired);
}

#[test]
fn what_wraps_a_device_says_what_the_device_can_do() {
    let (queues, _other) = memory::link(LinkConfig::default());
    let bare = *queues[0].tx.capabilities();
    let wrapped = R0::attach(queues);
    assert_eq!(format!("{bare:?}"), format!("{:?}", wrapped[0].tx.capabilities()));
}
