//! What the end of a poll looks at.

use super::super::accept::Acceptors;
use super::super::datagram::Datagrams;
use super::*;
use crate::runtime::Bells;
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
