//! Of whom a socket that threads connect hears, asked as lanes do.

use super::*;
use crate::app::UdpId;
use crate::threads::datagram::Datagrams;
use std::convert::Infallible;
use std::sync::atomic::AtomicBool;

fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// From `source`, if it has no address yet.
fn connect(socket: &Datagrams, peer: SocketAddr, source: &str) {
    let source = |ours: IpAddr| Ok::<_, Infallible>(if ours.is_unspecified() { ip(source) } else { ours });
    let Ok(()) = socket.connect(peer, source);
}

#[test]
fn who_is_connected_hears_its_peer_alone() {
    for (peer, ours, strangers) in [
        ("10.0.0.2:9", "10.0.0.1", ["10.0.0.2:10", "10.0.0.3:9", "[fd00::2]:9"]),
        ("[fd00::2]:9", "fd00::1", ["[fd00::2]:10", "[fd00:0:0:1::2]:9", "10.0.0.2:9"]),
    ] {
        let (socket, _) = Datagrams::new(UdpId(1), at("[::]:7"), 1);
        let (peer, strangers) = (at(peer), strangers.map(at));
        let hears = |from| socket.heard.is(ip(ours), from);
        assert_eq!(hears(peer), None);
        connect(&socket, peer, ours);
        assert_eq!(hears(peer), Some(true));
        assert_eq!(strangers.map(hears), [Some(false); 3], "connected to {peer}");
        connect(&socket, SocketAddr::new(peer.ip(), 0), ours);
        assert_eq!(strangers.map(hears), [true, false, false].map(Some), "to any port of {peer}");
    }
}

#[test]
fn who_is_connected_hears_its_peer_at_the_address_that_was_chosen_alone() {
    let (peer, second) = (at("10.0.0.2:9"), at("10.1.0.2:9"));
    let (any, _) = Datagrams::new(UdpId(1), at("[::]:7"), 1);
    connect(&any, peer, "::ffff:10.0.0.1");
    assert_eq!(any.local(), at("[::ffff:10.0.0.1]:7"));
    let hears = |at, from| any.heard.is(ip(at), from);
    assert_eq!([hears("10.0.0.1", peer), hears("10.1.0.1", peer)], [true, false].map(Some));
    // What an address was chosen for may be another's by now, and it is still the one.
    connect(&any, second, "10.1.0.1");
    assert_eq!(any.local(), at("[::ffff:10.0.0.1]:7"));
    assert_eq!([hears("10.0.0.1", second), hears("10.1.0.1", second)], [true, false].map(Some));
    // One that was bound to an address is found by that.
    let (bound, _) = Datagrams::new(UdpId(1), at("10.0.0.1:7"), 1);
    connect(&bound, peer, "10.0.0.1");
    assert_eq!((bound.local(), bound.heard.is_from(peer)), (at("10.0.0.1:7"), Some(true)));
}

/// Lanes ask while threads connect it: nobody is heard who is neither the peer before nor the next.
#[test]
fn who_takes_another_peer_hears_no_stranger_meanwhile() {
    let (socket, _) = Datagrams::new(UdpId(1), at("0.0.0.0:7"), 1);
    let peers = ["10.0.0.2:9", "10.0.0.3:10"].map(at);
    connect(&socket, peers[0], "10.0.0.1");
    let over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for peer in peers.iter().cycle().take(200_000) {
                connect(&socket, *peer, "10.0.0.1");
            }
            over.store(true, Release);
        });
        while !over.load(Acquire) {
            assert_eq!(socket.heard.is(ip("10.0.0.1"), at("10.0.0.4:11")), Some(false));
            assert!(peers.iter().all(|peer| socket.heard.is(ip("10.0.0.5"), *peer) == Some(false)));
        }
    });
}
