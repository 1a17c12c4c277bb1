//! UDP sockets of threads, stepped in one thread: what is said before a lane has heard of a socket is not lost.

#[path = "datagrams/closed.rs"]
mod closed;

use laneway_device::memory::{LinkConfig, LinkRx, LinkTx, link};
use laneway_proto::discard::Discard;
use laneway_proto::time::Instant;
use laneway_stack::BindOptions;
use laneway_stack::app::{App, ConnId, Context, ListenerId, UdpId};
use laneway_stack::config::Config;
use laneway_stack::control::Network;
use laneway_stack::counters::Mib;
use laneway_stack::entropy::BootSecrets;
use laneway_stack::host::Host;
use laneway_stack::listing::{Page, States};
use laneway_stack::runtime::Bells;
use laneway_stack::threads::desk::{Desk, UdpTicket};
use laneway_stack::threads::poll::{Source, poll_list};
use laneway_stack::threads::words::{Fault, WRITE};
use laneway_stack::threads::{COMMANDS_MAX, Server};
use laneway_stack::udp::payload_max;
use rustix::time::{ClockId, clock_gettime};
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

const BEGAN: Instant = Instant::from_us(3_600_000_000);

/// A host of one lane that serves threads.
struct Side {
    host: Host<LinkRx, LinkTx, Server>,
    desk: Arc<Desk>,
    now: Instant,
}

impl Side {
    fn pair() -> [Side; 2] {
        Side::pair_of(["10.0.0.1/24", "10.0.0.2/24"])
    }

    fn pair_of(ips: [&str; 2]) -> [Side; 2] {
        Side::pair_with(ips.each_ref().map(std::slice::from_ref))
    }

    fn pair_with(ips: [&[&str]; 2]) -> [Side; 2] {
        let (first, second) = link(LinkConfig::default());
        let mut ends = [Some(first), Some(second)].into_iter().flatten();
        ips.map(|ips| {
            let addresses = ips.iter().map(|ip| ip.parse().unwrap()).collect();
            let network = Network { addresses, gateways: vec![] };
            let (desk, mut servers) = Desk::new(1, Bells::new(1).unwrap());
            let (secrets, end) = (BootSecrets::from_seed(ips[0].len() as u64), ends.next().unwrap());
            let app = |_| servers.pop().unwrap();
            Side { host: Host::new(Config::default(), &network, &secrets, end, BEGAN, app).unwrap(), desk, now: BEGAN }
        })
    }

    fn bind(&mut self, at: &str) -> Arc<UdpTicket> {
        self.bind_with(at, BindOptions::default())
    }

    fn bind_with(&mut self, at: &str, options: BindOptions) -> Arc<UdpTicket> {
        let (id, at) = self.host.control.bind_udp_with(at.parse().unwrap(), options).unwrap();
        self.desk.bind_udp(id, at)
    }

    fn turn(&mut self, turns: usize) {
        for _ in 0..turns {
            self.host.turn(self.now);
            self.now = self.now.after_us(100);
        }
    }
}

/// As a thread does it: whoever is bound to any address has 10.0.0.1 from then on.
fn connect(socket: &UdpTicket, peer: SocketAddr) {
    let any = |ours: IpAddr| if ours.is_unspecified() { "10.0.0.1".parse().unwrap() } else { ours };
    let Ok(()) = socket.connect(peer, |ours| Ok::<_, Infallible>(any(ours)));
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

/// The same of one that was connected at once: it hears its peer, and nobody else.
#[test]
fn a_datagram_that_comes_before_its_connected_socket_is_heard_if_it_is_the_peers() {
    let [mut server, mut client] = Side::pair();
    server.turn(1);
    let (peer, other) = (client.bind("10.0.0.2:5000"), client.bind("10.0.0.2:5001"));
    client.turn(2);
    let to = server.bind("10.0.0.1:53");
    connect(&to, peer.at);
    assert!(other.send(to.at, b"hello"));
    client.desk.send_datagrams(&other);
    client.turn(2); // and the server's lane finds it in the turn in which it hears of the socket
    server.turn(1);
    let counters = server.host.counters();
    assert_eq!((counters.get(Mib::UdpNoPorts), counters.get(Mib::UdpInDatagrams)), (1, 0));
    arrives([client, server], &peer, &to);
}

/// And at the address that the connect has given it, and at no other.
#[test]
fn a_datagram_that_comes_before_its_connected_socket_is_heard_at_the_address_of_that() {
    let [mut server, mut client] = Side::pair_with([&["10.0.0.1/24", "10.0.0.3/24"], &["10.0.0.2/24"]]);
    server.turn(1);
    let peer = client.bind("10.0.0.2:5000");
    client.turn(2);
    let to = server.bind("0.0.0.0:53");
    connect(&to, peer.at);
    for at in ["10.0.0.3:53", "10.0.0.1:53"] {
        assert!(peer.send(at.parse().unwrap(), b"hello"));
    }
    client.desk.send_datagrams(&peer);
    client.turn(2);
    server.turn(2);
    let counters = server.host.counters();
    assert_eq!((counters.get(Mib::UdpNoPorts), counters.get(Mib::UdpInDatagrams)), (1, 1));
    assert_eq!((received(&to).is_some(), received(&to)), (true, None));
}

/// As a server has it that gives each of its clients a socket, and one more for who is new: of a newcomer's datagram the one that was bound last
/// is asked first, and he is told that nobody is there if it was the only one.
#[test]
fn a_datagram_that_comes_before_another_s_connected_socket_is_heard_by_who_hears_everybody() {
    for is_heard in [true, false] {
        let [mut server, mut client] = Side::pair();
        let options = BindOptions { reuse_address: true, ..BindOptions::default() };
        let (peer, other) = (client.bind("10.0.0.2:5000"), client.bind("10.0.0.2:5001"));
        let hears_all = is_heard.then(|| server.bind_with("10.0.0.1:53", options));
        server.turn(2);
        client.turn(2);
        let to = server.bind_with("10.0.0.1:53", options);
        connect(&to, peer.at);
        connect(&other, to.at);
        assert!(other.send(to.at, b"hello"));
        client.desk.send_datagrams(&other);
        client.turn(2); // and the server's lane finds it in the turn in which it hears of the socket
        server.turn(1);
        client.turn(1);
        let heard = hears_all.as_deref().and_then(received);
        assert_eq!(heard.is_some(), is_heard);
        assert_eq!(other.take_fault().is_some(), !is_heard);
        assert_eq!(received(&to), None);
        let counters = server.host.counters();
        let counted = [Mib::UdpInDatagrams, Mib::UdpNoPorts].map(|mib| counters.get(mib));
        assert_eq!(counted, [u64::from(is_heard), u64::from(!is_heard)]);
    }
}

/// A lane fills one page of a listing in a poll. What it was told behind that it hears in the same poll all the same.
#[test]
fn a_datagram_that_comes_before_its_socket_is_delivered_while_somebody_lists() {
    let [mut server, mut client] = Side::pair();
    server.turn(1);
    let from = client.bind("10.0.0.2:5000");
    client.turn(2);
    for _ in 0..3 {
        server.host.control.ask_page(0, Page::new(States::ALL));
    }
    let to = server.bind("10.0.0.1:53");
    arrives([client, server], &from, &to);
}

/// The longest that there can be, in some fifty fragments.
#[test]
fn the_longest_datagram_arrives() {
    for (ips, longest) in [(["10.0.0.1/24", "10.0.0.2/24"], 65_507), (["fd00::1/64", "fd00::2/64"], 65_527)] {
        let [mut client, mut server] = Side::pair_of(ips);
        let at =
            |ip: &str, port: u16| SocketAddr::new(ip.split('/').next().unwrap().parse().unwrap(), port).to_string();
        let (from, to) = (client.bind(&at(ips[0], 9)), server.bind(&at(ips[1], 9)));
        let data = vec![7; longest];
        assert_eq!(payload_max(&to.at), longest);
        assert!(from.send(to.at, &data));
        client.desk.send_datagrams(&from);
        for _ in 0..20 {
            client.turn(1);
            server.turn(1);
        }
        assert!(received(&to) == Some((from.at, data)), "{ips:?}");
    }
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

/// The mail by which the control plane names a socket may be behind the poll that finds what was sent from it.
#[test]
fn what_is_sent_before_the_lane_has_the_socket_s_name_goes_out() {
    let [mut server, mut client] = Side::pair();
    let to = server.bind("10.0.0.1:53");
    server.turn(2);
    let before = client.bind("10.0.0.2:4999");
    let (next, at) = (UdpId(before.id.0 + 1), "10.0.0.2:5000".parse().unwrap());
    let from = client.desk.bind_udp(next, at);
    assert!(from.send(to.at, b"hello"));
    client.desk.send_datagrams(&from);
    client.turn(1);
    assert_eq!(client.host.control.bind_udp(at).unwrap(), next);
    for _ in 0..8 {
        client.turn(1);
        server.turn(1);
    }
    assert_eq!(received(&to), Some((at, b"hello".to_vec())));
}

/// Who has looked for room and found none need not have been refused any.
#[test]
fn who_waits_for_room_is_told_of_it() {
    let [_, mut client] = Side::pair();
    let from = client.bind("10.0.0.2:5000");
    client.turn(2);
    let (list, mut queue) = poll_list().unwrap();
    let watch = list.watch(&client.desk, Source::Datagrams((**from).clone()), 7, WRITE).unwrap();
    client.desk.watch(&watch);
    client.turn(1);
    let mut told = || {
        queue.begin_round();
        std::iter::from_fn(|| queue.pop()).count()
    };
    assert_eq!((told(), watch.source.look_for(WRITE)), (1, WRITE));
    while from.send("10.0.0.1:53".parse().unwrap(), &[7; 1_000]) {}
    assert_eq!(watch.source.look_for(WRITE), 0);
    client.desk.send_datagrams(&from);
    client.turn(20);
    assert_eq!((told(), watch.source.look_for(WRITE)), (1, WRITE));
}

fn all_received(ticket: &UdpTicket, of: u16) -> usize {
    std::iter::from_fn(|| received(ticket)).filter(|(from, _)| from.port() == of).count()
}

/// `SO_REUSEPORT`: the hash of the flow chooses, the same one each time.
#[test]
fn sockets_of_a_group_share_those_who_send_to_them() {
    let [mut server, mut client] = Side::pair();
    let options = BindOptions { reuse_port: true, ..BindOptions::default() };
    let group: Vec<_> = (0..3).map(|_| server.bind_with("10.0.0.1:53", options)).collect();
    let senders: Vec<_> = (0..48).map(|n| client.bind(&format!("10.0.0.2:{}", 5_000 + n))).collect();
    server.turn(4);
    client.turn(4);
    let mut shares = Vec::new();
    for _ in 0..2 {
        for sender in &senders {
            assert!(sender.send(group[0].at, b"to one of you"));
            client.desk.send_datagrams(sender);
        }
        client.turn(8);
        server.turn(8);
        let heard = |socket: &Arc<UdpTicket>| -> Vec<u16> {
            std::iter::from_fn(|| received(socket)).map(|(from, _)| from.port()).collect()
        };
        shares.push(group.iter().map(heard).collect::<Vec<_>>());
    }
    assert_eq!(shares[0].iter().map(Vec::len).sum::<usize>(), senders.len());
    assert!(shares[0].iter().all(|share| share.len() > 4), "{shares:?}");
    assert_eq!(shares[0], shares[1]);
}

#[test]
fn what_finds_its_socket_full_is_counted_as_the_kernel_does() {
    let [mut server, mut client] = Side::pair();
    let (to, from) = (server.bind("10.0.0.1:53"), client.bind("10.0.0.2:5000"));
    let mut sent = 0;
    for _ in 0..4_000 {
        sent += u64::from(from.send(to.at, &[7; 1_000]));
        client.desk.send_datagrams(&from);
        client.turn(1);
        server.turn(1);
    }
    server.turn(4);
    let counters = server.host.counters();
    let lost = to.dropped.load(Relaxed);
    assert!(lost > 0, "{sent} were sent, and there was room for them all");
    assert_eq!(counters.get(Mib::UdpRcvbufErrors), lost);
    assert_eq!(counters.get(Mib::UdpInErrors), lost);
    assert_eq!(counters.discarded(Discard::UdpQueueFull), lost);
    assert_eq!(counters.get(Mib::UdpInDatagrams), sent - lost, "what is lost has not come in");
}

/// Each copy of what is for all hosts needs room of its own: who reads nothing takes nothing from others.
#[test]
fn what_is_for_all_hosts_is_lost_for_those_alone_that_are_full() {
    let [mut server, mut client] = Side::pair();
    let options = BindOptions { reuse_address: true, ..BindOptions::default() };
    let [full, read] = ["10.0.0.255:53", "0.0.0.0:53"].map(|at| server.bind_with(at, options));
    let from = client.bind("10.0.0.2:5000");
    let (mut sent, mut heard) = (0, 0);
    for _ in 0..600 {
        sent += u64::from(from.send(full.at, &[7; 1_000]));
        client.desk.send_datagrams(&from);
        client.turn(2);
        server.turn(2);
        heard += all_received(&read, 5_000) as u64;
    }
    let counters = server.host.counters();
    let lost = full.dropped.load(Relaxed);
    assert!(lost > 0 && sent == 600 && heard == sent, "{lost} of {sent} were lost, and {heard} heard");
    let counted = [Mib::UdpRcvbufErrors, Mib::UdpInErrors, Mib::UdpInDatagrams, Mib::UdpIgnoredMulti];
    assert_eq!(counted.map(|mib| counters.get(mib)), [lost, lost, 2 * sent - lost, 0]);
    assert_eq!(all_received(&full, 5_000) as u64, sent - lost);
}

/// One that was connected before its lane has heard of it gets no copy of what a stranger sends to all.
#[test]
fn what_is_for_all_hosts_and_comes_before_its_connected_socket_is_heard_if_it_is_the_peers() {
    for (bound, peer, heard) in [
        ("10.0.0.255:53", "10.0.0.2:5000", 1),
        ("10.0.0.255:53", "10.0.0.2:5001", 0),
        ("0.0.0.0:53", "10.0.0.2:5000", 0),
    ] {
        let [mut server, mut client] = Side::pair();
        server.turn(1);
        let from = client.bind("10.0.0.2:5000");
        client.turn(2);
        let to = server.bind(bound);
        connect(&to, peer.parse().unwrap());
        assert!(from.send("10.0.0.255:53".parse().unwrap(), b"hello"));
        client.desk.send_datagrams(&from);
        client.turn(2);
        server.turn(2);
        let counters = server.host.counters();
        let counted = [Mib::UdpInDatagrams, Mib::UdpIgnoredMulti, Mib::UdpNoPorts].map(|mib| counters.get(mib));
        assert_eq!(counted, [heard, 1 - heard, 0], "bound to {bound}, connected to {peer}");
        assert_eq!(all_received(&to, 5_000) as u64, heard);
    }
}

/// As a server has it that gives each of its clients a socket: all at one port, and one more for who is new.
#[test]
fn who_is_connected_takes_its_peer_s_datagrams_and_no_others() {
    let [mut server, mut client] = Side::pair();
    let options = BindOptions { reuse_address: true, ..BindOptions::default() };
    let clients = ["10.0.0.2:5000", "10.0.0.2:5001"].map(|at| client.bind(at));
    let ours = server.bind_with("10.0.0.1:53", options);
    clients.iter().for_each(|from| connect(from, ours.at));
    connect(&ours, clients[0].at);
    let mut all_send = |server: &mut Side| {
        for from in &clients {
            assert!(from.send(ours.at, b"hello"));
            client.desk.send_datagrams(from);
        }
        for _ in 0..8 {
            client.turn(1);
            server.turn(1);
        }
        clients.each_ref().map(|from| from.take_fault() == Some(Fault::Refused))
    };
    assert_eq!(all_send(&mut server), [false, true], "nobody hears the second");
    assert_eq!(received(&ours), Some((clients[0].at, b"hello".to_vec())));
    assert_eq!(received(&ours), None);
    // Who was bound last would hear both if they were equals.
    let other = server.bind_with("10.0.0.1:53", options);
    assert_eq!(all_send(&mut server), [false, false]);
    for (socket, from) in [(&ours, &clients[0]), (&other, &clients[1])] {
        assert_eq!(received(socket), Some((from.at, b"hello".to_vec())));
        assert_eq!(received(socket), None);
    }
}

/// Sends more datagrams in one poll than may wait.
struct Flood {
    from: Option<UdpId>,
    queued: u64,
}

impl App for Flood {
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        let Some(from) = self.from.take() else { return };
        let to = "10.0.0.2:53".parse().unwrap();
        assert!(!cx.send_datagram(from, to, &[7; 70_000]), "no datagram is so long");
        self.queued = (0..1_000).map(|_| u64::from(cx.send_datagram(from, to, b"x"))).sum();
    }
    fn on_data(&mut self, _: &mut Context<'_>, _: ConnId, data: &[u8]) -> usize {
        data.len()
    }
}

#[test]
fn what_finds_no_room_on_the_way_out_is_no_error_of_what_came_in() {
    let (_peer, end) = link(LinkConfig::default());
    let network = Network { addresses: vec!["10.0.0.1/24".parse().unwrap()], gateways: vec![] };
    let app = |_| Flood { from: None, queued: 0 };
    let secrets = BootSecrets::from_seed(1);
    let mut host: Host<_, _, Flood> = Host::new(Config::default(), &network, &secrets, end, BEGAN, app).unwrap();
    let (from, _) = host.control.bind_udp_with("10.0.0.1:53".parse().unwrap(), BindOptions::default()).unwrap();
    host.turn(BEGAN);
    host.seats[0].app.from = Some(from);
    host.turn(BEGAN.after_us(100));
    let queued = host.seats[0].app.queued;
    assert!((1..1_000).contains(&queued), "{queued} were queued");
    let counters = host.counters();
    // One that is longer than a datagram can be is its sender's mistake, who hears of it.
    assert_eq!((counters.get(Mib::UdpSndbufErrors), counters.get(Mib::UdpInErrors)), (1_000 - queued, 0));
}

/// Of this thread: others that want its core take none of it.
fn processor_time() -> std::time::Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap()
}

/// A lane that has fallen behind whoever opens sockets, speaks and closes them takes no longer for its turns the farther it is behind.
#[test]
fn a_backlog_of_sockets_makes_no_turn_longer() {
    let [mut client, _server] = Side::pair();
    client.turn(1);
    let mut turn = || {
        for _ in 0..200 {
            let from = client.bind("10.0.0.1:0");
            assert!(from.send("10.0.0.2:53".parse().unwrap(), b"hello"));
            client.desk.send_datagrams(&from);
            client.desk.unbind_udp(from.id);
            client.host.control.unbind_udp(from.id);
        }
        let began = processor_time();
        client.turn(1);
        processor_time() - began
    };
    let mut quickest_of = |turns| (0..turns).map(|_| turn()).min().unwrap();
    let early = quickest_of(10);
    quickest_of(80);
    let late = quickest_of(10);
    assert!(late < 8 * early, "{early:?} in the beginning, and {late:?} with more to be done");
}
