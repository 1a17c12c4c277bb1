//! Tens of thousands of sockets are bound: what one more costs, and what it costs to connect from one and to give one up, is what it was for the first.

use laneway_device::memory::{self, LinkConfig, LinkRx, LinkTx};
use laneway_proto::time::Instant;
use laneway_stack::Config;
use laneway_stack::app::{App, ConnId, Context};
use laneway_stack::binding::BindOptions;
use laneway_stack::control::{BindId, Network};
use laneway_stack::entropy::BootSecrets;
use laneway_stack::host::Host;
use laneway_wire::flow::Address;
use std::net::SocketAddr;
use std::time::Duration;

const ALL: u16 = 30_000;
/// What is measured at a time.
const SOME: usize = 250;
const NOW: Instant = Instant::from_us(3_600_000_000);

/// Connects from the sockets that it is given.
#[derive(Default)]
struct Client {
    from: Vec<BindId>,
}

impl App for Client {
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        for bound in self.from.drain(..) {
            let id = cx.connect_from(bound, Address::from_v4([10, 0, 0, 2]), 80, 0).expect("nothing stands in its way");
            cx.abort(id);
        }
    }
    fn on_data(&mut self, _: &mut Context<'_>, _: ConnId, data: &[u8]) -> usize {
        data.len()
    }
}

type Stack = Host<LinkRx, LinkTx, Client>;

fn took(what: impl FnOnce()) -> Duration {
    let started = std::time::Instant::now();
    what();
    started.elapsed()
}

/// Of several times that it took the first of the sockets, and the last, the shortest: others use this machine, too.
fn assert_alike(what: &str, took: &[Duration]) {
    let least = |some: &[Duration]| some.iter().min().copied().unwrap_or_default();
    let (first, last) = (least(&took[..4]), least(&took[took.len() - 4..]));
    assert!(last < 10 * first, "{what}: {SOME} of them took {first:?}, and {last:?} where there are {ALL}");
}

#[test]
fn one_of_many_costs_what_one_of_few_does() {
    let (queues, _there) = memory::link(LinkConfig::default());
    let network = Network { addresses: vec!["10.0.0.1/24".parse().unwrap()], gateways: vec![] };
    let secrets = BootSecrets::from_seed(1);
    let mut host: Stack = Host::new(Config::default(), &network, &secrets, queues, NOW, |_| Client::default()).unwrap();
    let at = |n: u16| SocketAddr::from(([10, 0, 0, 1], 1_024 + n));
    let ports: Vec<u16> = (0..ALL).collect();

    let (mut bound, mut binds, mut connects) = (Vec::new(), Vec::new(), Vec::new());
    for some in ports.chunks(SOME) {
        let from = bound.len();
        let bind = |n: &u16| host.bind(at(*n), BindOptions::default(), NOW).unwrap().0;
        binds.push(took(|| bound.extend(some.iter().map(bind))));
        host.seats[0].app.from = bound[from..].to_vec();
        connects.push(took(|| _ = host.seats[0].turn(NOW)));
    }
    let mut unbinds = Vec::new();
    for some in bound.chunks(SOME) {
        some.iter().for_each(|id| host.control.unbind(*id));
        unbinds.push(took(|| _ = host.seats[0].turn(NOW)));
    }
    unbinds.reverse(); // the last had nobody beside them
    while host.turn(NOW).busy {}

    let mut sockets = Vec::new();
    let mut udp_binds = Vec::new();
    for some in ports.chunks(SOME) {
        udp_binds.push(took(|| sockets.extend(some.iter().map(|n| host.control.bind_udp(at(*n)).unwrap()))));
        while host.turn(NOW).busy {}
    }
    assert_alike("to bind", &binds);
    assert_alike("to connect", &connects);
    assert_alike("to unbind", &unbinds);
    assert_alike("to bind a UDP socket", &udp_binds);
}
