//! What the end of a poll looks at, and what a lane does not begin any more when it stops.

use super::super::accept::Acceptors;
use super::super::datagram::Datagrams;
use super::super::poll::{Source, Watched, poll_list};
use super::super::words::{ENDED, Op};
use super::*;
use crate::app::App;
use crate::binding::BindOptions;
use crate::config::Config;
use crate::control::Network;
use crate::entropy::BootSecrets;
use crate::host::{Host, Seat};
use crate::runtime::Bells;
use crate::sharing::{Sharing, Site};
use laneway_device::memory::{LinkConfig, LinkRx, LinkTx, link};
use laneway_wire::flow::FlowKey;

/// A lane's server and its desk, with idle UDP sockets and listeners of these names.
fn server(names: std::ops::Range<u16>) -> Server {
    let (_, mut servers) = Desk::new(1, Bells::new(1).expect("bells"));
    let mut server = servers.remove(0);
    let at = "10.0.0.1:1".parse().expect("an address");
    for name in names {
        let side = Datagrams::new(UdpId(name), at, 1).1.remove(0);
        server.sockets.insert(name, Box::new(side));
        server.listeners.insert(name, Acceptors::new(ListenerId(name), at, 1, 1).1.remove(0));
    }
    server
}

/// News that nobody has put on the list stands for a socket that has none: who looked at it would take it.
#[test]
fn sockets_without_news_are_not_looked_at() {
    let mut server = server(0..1_000);
    let from = "10.0.0.2:2".parse().expect("an address");
    server.sockets.values_mut().for_each(|side| side.news = READ);
    for heard in [7, 7, 9] {
        if let Some(side) = server.sockets.get_mut(&heard) {
            side.news = 0;
        }
        assert_eq!(server.with_socket(UdpId(heard), |side| side.deliver(from, b"x")), Some(true));
        assert_eq!(server.with_socket(UdpId(heard), |side| side.deliver(from, b"y")), Some(true));
        assert_eq!(server.socket_news, [UdpId(heard)], "once, however much there is to tell");
        server.on_poll_end();
        assert_eq!(server.sockets[&heard].news, 0, "told");
    }
    assert_eq!(server.sockets.values().filter(|side| side.news == READ).count(), 998);
}

#[test]
fn listeners_without_news_are_not_looked_at() {
    let mut server = server(0..1_000);
    let flow = FlowKey {
        local: Address::from_v4([10, 0, 0, 1]),
        remote: Address::from_v4([10, 0, 0, 2]),
        local_port: 1,
        remote_port: 2,
    };
    let mut talks: Vec<Talk> = (0..1_000).map(|_| server.desk.conversation(0).0).collect();
    for side in server.listeners.values_mut() {
        side.stage(talks.pop().expect("one for each"), &flow);
    }
    server.listener_news.push(ListenerId(7));
    server.on_poll_end();
    assert!(server.listener_news.is_empty());
    assert!(!server.listeners[&7].has_news() && server.listeners[&7].shared.is_ready(), "offered");
    assert_eq!(server.listeners.values().filter(|side| side.has_news()).count(), 999);
}

/// Memory that is to go back, conversations that nobody needs, and whoever waits for memory: a lane that sleeps wakes for each.
#[test]
fn a_lane_wakes_for_what_is_due() {
    let lender = Lender { index: 0, id: ConnId::new(0, 0) };
    let due = |act: &dyn Fn(&mut Server)| {
        let mut server = server(0..0);
        assert_eq!(server.poll_timeout(), Instant::NEVER);
        act(&mut server);
        server.poll_timeout()
    };
    let soon = BEGAN.after_us(1_000_000);
    assert!(due(&|server| server.lenders.add(Holds::AWord, lender, BEGAN)) < soon);
    assert!(due(&|server| server.hungry.add(0, BEGAN)) < soon);
    let ended = |server: &mut Server| {
        server.stock.give(server.desk.conversation(0).1);
        server.stock.settle(BEGAN);
    };
    assert!(due(&ended) < soon);
}

type Side = (Host<LinkRx, LinkTx, Server>, Arc<Desk>);

fn one_lane() -> (Arc<Desk>, Server) {
    let (desk, mut servers) = Desk::new(1, Bells::new(1).expect("bells"));
    (desk, servers.remove(0))
}

const BEGAN: Instant = Instant::from_us(3_600_000_000);

/// Two hosts of one lane that serve threads.
fn pair() -> [Side; 2] {
    pair_of([one_lane(), one_lane()])
}

fn pair_of(lanes: [(Arc<Desk>, Server); 2]) -> [Side; 2] {
    let (first, second) = link(LinkConfig::default());
    let mut ends = [(first, "10.0.0.1/24"), (second, "10.0.0.2/24")].into_iter();
    lanes.map(|(desk, server)| {
        let ((end, ip), mut server) = (ends.next().expect("two"), Some(server));
        let network = Network { addresses: vec![ip.parse().expect("an address")], gateways: vec![] };
        let app = |_| server.take().expect("one");
        let host = Host::new(Config::default(), &network, &BootSecrets::from_seed(7), end, BEGAN, app);
        (host.expect("a host"), desk)
    })
}

/// Its blocks are those of the lane that was to open it first, and not of the one that has it.
#[test]
fn who_was_passed_on_by_another_lane_is_told_of_memory_of_that_one() {
    let (desk, mut servers) = Desk::with_pool(2, Bells::new(2).expect("bells"), 4_096);
    let second = servers.pop().expect("two");
    let [(mut host, desk), (mut far, far_desk)] = pair_of([(desk, second), one_lane()]);
    let at = "10.0.0.2:80".parse().expect("an address");
    let id = far.listen(at, 16, BEGAN).expect("nobody else does");
    let _acceptors = far_desk.listen(id, at, 16);
    let talk = desk.connect(at);
    for command in desk.take_commands(0) {
        talk.lane().lane.store(1, Relaxed);
        desk.say(1, command); // as the first lane does if the answers would not come to it
    }
    for _ in 0..4 {
        host.turn(BEGAN);
        far.turn(BEGAN);
    }
    assert_eq!(talk.lane().status.load(Relaxed), CONNECTED);
    // Others hold all blocks of a lane, those in reserve as well.
    let use_up = |lane| {
        let use_some = || {
            let (talk, end) = desk.conversation(lane);
            (talk.send(b"x") > 0).then(|| {
                while talk.send(&[0; 4_096]) > 0 {}
                (talk, end)
            })
        };
        std::iter::from_fn(use_some).collect::<Vec<_>>()
    };
    let [of_first, _of_second] = [0, 1].map(use_up);
    assert_eq!(talk.send(b"x"), 0);
    talk.flags().want(WRITE);
    desk.serve(&talk);
    host.turn(BEGAN);
    drop(of_first);
    host.turn(BEGAN.after_us(100_000));
    assert_eq!(talk.flags().get(WRITE), 0, "told");
    assert_eq!(talk.send(b"x"), 1);
}

/// What a lane's thread does when it sees that the stack stops.
fn stop(host: &mut Host<LinkRx, LinkTx, Server>) {
    let Seat { lane, app, .. } = &mut host.seats[0];
    let tables = lane.shared.enter(Site::Walk);
    app.on_stop(&mut Context { tables, local: &mut lane.local });
}

fn connections(host: &mut Host<LinkRx, LinkTx, Server>) -> usize {
    host.seats[0].lane.tables(|tables| tables.slots.len())
}

/// It would hold the stack up until the grace period is over.
#[test]
fn a_connect_of_which_a_lane_hears_as_it_stops_is_refused() {
    let [(mut host, desk), _] = pair();
    let talk = desk.connect("10.0.0.2:80".parse().expect("an address"));
    stop(&mut host);
    host.turn(BEGAN);
    assert_eq!(connections(&mut host), 0);
    assert_eq!(talk.lane().take_error(), Some(Fault::Stopped));
    assert_ne!(talk.lane().status.load(Relaxed) & GONE, 0);
}

/// What was asked for waits until it is connected, which nobody waits for any more.
#[test]
fn a_connect_that_nobody_has_answered_is_given_up_as_its_stack_stops() {
    let [(mut host, desk), _] = pair();
    let talk = desk.connect("10.0.0.2:80".parse().expect("an address"));
    host.turn(BEGAN);
    assert!(desk.note(&talk, Op::Nodelay(true)));
    host.turn(BEGAN);
    assert_eq!(connections(&mut host), 1);
    stop(&mut host);
    assert_eq!((connections(&mut host), talk.lane().take_error()), (0, Some(Fault::Stopped)));
}

/// Whom a connection's lane is to tell has the connection, and would be kept by it for ever, with the descriptor of its poller.
#[test]
fn who_is_to_be_told_by_a_lane_that_has_ended_is_not_kept() {
    for is_told_late in [false, true] {
        let [(mut host, desk), _] = pair();
        let talk = desk.connect("192.0.2.1:80".parse().expect("an address"));
        host.turn(BEGAN); // it has failed, and the lane keeps it no longer
        let (list, mut queue) = poll_list().expect("a list");
        let watch = list.watch(&desk, Source::Conversation(talk.clone()), 7, READ).expect("the first");
        let host = (!is_told_late).then_some(host); // or it ends here
        desk.watch(&watch);
        drop(host);
        queue.begin_round();
        assert_eq!(queue.pop().map(|watch| watch.key), Some(7), "it looks once more");
        let kept = Arc::downgrade(&watch);
        drop((watch, talk));
        assert!(kept.upgrade().is_none(), "told late: {is_told_late}");
    }
}

/// A lane that stops tells those of whom it knows. Of whom it was told and does not hear any more, or not yet, nobody else would see that all is over.
#[test]
fn who_is_to_be_told_of_a_listener_or_a_socket_by_a_lane_that_ends_looks_once_more() {
    for is_stopping in [true, false] {
        let [(mut host, desk), _] = pair();
        let at = "10.0.0.1:80".parse().expect("an address");
        let id = host.listen(at, 16, BEGAN).expect("nobody else does");
        let (udp, at) = host.control.bind_udp_with(at, BindOptions::default()).expect("nobody else is");
        let (acceptors, socket) = (desk.listen(id, at, 16), desk.bind_udp(udp, at));
        host.turn(BEGAN);
        if is_stopping {
            desk.stop(); // the lane is about to tell
        }
        let (list, mut queue) = poll_list().expect("a list");
        let sources = [Source::Acceptors(acceptors), Source::Datagrams((**socket).clone())];
        for (key, source) in sources.into_iter().enumerate() {
            let watch = list.watch(&desk, source, key, READ).expect("the first");
            desk.watch(&watch);
            Watched::look(&watch);
        }
        let mut found_ready = || {
            queue.begin_round();
            let looks = std::iter::from_fn(|| queue.pop());
            looks.filter(|watch| watch.source.ready() & READ != 0).map(|watch| watch.key).collect::<Vec<_>>()
        };
        let mut told = found_ready();
        if is_stopping {
            stop(&mut host);
        }
        drop(host);
        told.extend(found_ready());
        told.dedup();
        assert_eq!(told.len(), 2, "of both, whether it was said while the lane stops ({is_stopping}): {told:?}");
    }
}

/// A connection without bytes that wait ends as any other, and who waits for a new one, or for a datagram, is told before the last has ended.
#[test]
fn a_stack_that_stops_ends_what_it_can_and_tells_whoever_waits() {
    let [(mut host, desk), (mut far, far_desk)] = pair();
    let at = "10.0.0.1:80".parse().expect("an address");
    let id = host.listen(at, 16, BEGAN).expect("nobody else does");
    let acceptors = desk.listen(id, at, 16);
    let (udp, at) = host.control.bind_udp_with(at, BindOptions::default()).expect("nobody else is");
    let socket = desk.bind_udp(udp, at);
    let talk = far_desk.connect(at);
    let mut turns = |host: &mut Host<_, _, _>| {
        for _ in 0..4 {
            host.turn(BEGAN);
            far.turn(BEGAN);
        }
    };
    turns(&mut host);
    let accepted = acceptors.take().expect("it is connected").0.talk;
    let events = || [acceptors.event.now(), socket.event.now()];
    let slept = events();
    stop(&mut host);
    assert!(events().iter().zip(slept).all(|(now, then)| *now != then));
    assert!(acceptors.is_ready() && socket.ready() == READ | WRITE);
    turns(&mut host);
    assert_eq!(accepted.lane().take_error(), Some(Fault::Stopped));
    assert_eq!((talk.lane().status.load(Relaxed), talk.lane().take_error()), (CONNECTED | ENDED, None));
}

/// Who waits for a connection, or for a datagram, may do so on what the lane has not heard of as it begins to stop.
#[test]
fn listeners_and_sockets_of_which_a_lane_hears_as_it_stops_are_over() {
    let [(mut host, desk), _] = pair();
    let at = "10.0.0.1:80".parse().expect("an address");
    let id = host.listen(at, 16, BEGAN).expect("nobody else does");
    let (udp, at) = host.control.bind_udp_with(at, BindOptions::default()).expect("nobody else is");
    let (acceptors, socket) = (desk.listen(id, at, 16), desk.bind_udp(udp, at));
    let events = || [acceptors.event.now(), socket.event.now()];
    let slept = events();
    stop(&mut host);
    host.turn(BEGAN);
    assert!(events().iter().zip(slept).all(|(now, then)| *now != then), "whoever sleeps is woken");
    assert!(acceptors.is_ready() && socket.ready() == READ | WRITE);
}

/// No thread would take it: it waits for its listener to be closed, and is reset with it.
#[test]
fn who_is_connected_as_a_stack_stops_is_offered_to_nobody() {
    let [(mut host, desk), (mut far, far_desk)] = pair();
    let at = "10.0.0.1:80".parse().expect("an address");
    let id = host.listen(at, 16, BEGAN).expect("nobody else does");
    let acceptors = desk.listen(id, at, 16);
    let talk = far_desk.connect(at);
    for _ in 0..2 {
        host.turn(BEGAN);
        far.turn(BEGAN);
    }
    stop(&mut host);
    host.turn(BEGAN); // the last step of the handshake
    assert_eq!(connections(&mut host), 1);
    assert!(acceptors.take().is_none());
    host.control.unlisten(id);
    for _ in 0..2 {
        host.turn(BEGAN);
        far.turn(BEGAN);
    }
    assert_eq!(connections(&mut host), 0);
    assert_eq!(talk.lane().take_error(), Some(Fault::Reset));
}

/// The lane listens before it hears which threads are to have those that come.
#[test]
fn who_is_connected_before_threads_are_known_is_offered_to_them() {
    let [(mut host, desk), (mut far, far_desk)] = pair();
    let at = "10.0.0.1:80".parse().expect("an address");
    let id = host.listen(at, 16, BEGAN).expect("nobody else does");
    let _talk = far_desk.connect(at);
    for _ in 0..4 {
        host.turn(BEGAN);
        far.turn(BEGAN);
    }
    assert_eq!(connections(&mut host), 1);
    let acceptors = desk.listen(id, at, 16);
    host.turn(BEGAN);
    assert!(acceptors.take().is_some());
}

/// While a lane ends a conversation that it has from its list, that is not put there again, whatever is said of it.
#[test]
fn what_is_said_of_a_connection_while_its_lane_ends_it_is_heard() {
    struct OtherThread<F: FnMut()>(F);
    impl<F: FnMut()> Drop for OtherThread<F> {
        fn drop(&mut self) {
            self.0();
        }
    }
    let [(mut host, desk), _] = pair();
    let talk = desk.connect("10.0.0.2:80".parse().expect("an address"));
    host.turn(BEGAN);
    let (list, mut queue) = poll_list().expect("a list");
    let watch = list.watch(&desk, Source::Conversation(talk.clone()), 7, READ).expect("the first");
    let (its_desk, its_watch) = (desk.clone(), Arc::downgrade(&watch));
    // What is asked of a connection is dropped with it.
    let other = OtherThread(move || its_watch.upgrade().into_iter().for_each(|watch| its_desk.watch(&watch)));
    assert!(desk.note(&talk, Op::Info(Box::new(move |_| drop(other)))));
    assert!(desk.call_off(&talk));
    host.turn(BEGAN);
    queue.begin_round();
    assert_eq!(queue.pop().map(|watch| watch.key), Some(7), "it looks once more");
    let kept = Arc::downgrade(&watch);
    drop((watch, talk));
    assert!(kept.upgrade().is_none());
}

/// Its thread has called it off, and the note of that is yet to come when the answer is there: what the peer says meanwhile nobody hears.
#[test]
fn a_connect_that_is_called_off_is_not_connected() {
    let [(mut host, desk), (mut far, far_desk)] = pair();
    let at = "10.0.0.1:80".parse().expect("an address");
    let id = host.listen(at, 16, BEGAN).expect("nobody else does");
    let _acceptors = desk.listen(id, at, 16);
    let talk = far_desk.connect(at);
    far.turn(BEGAN);
    assert_eq!((connections(&mut far), talk.lane().status.fetch_or(GONE, Relaxed)), (1, 0), "it is begun");
    for _ in 0..4 {
        host.turn(BEGAN);
        far.turn(BEGAN);
    }
    assert_eq!((connections(&mut far), connections(&mut host)), (0, 0));
}
