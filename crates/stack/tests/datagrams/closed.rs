//! What was sent from a socket before it was closed, and who has its port next.

use super::*;

/// As the drop of a socket has it: first the lanes are told, then the control plane.
fn close(side: &mut Side, ticket: &UdpTicket) {
    side.desk.unbind_udp(ticket.id);
    side.host.control.unbind_udp(ticket.id);
}

/// Also where the lane hears of the one and of the other behind the frame that is for the second.
#[test]
fn who_has_the_port_of_one_that_was_closed_hears_its_peer() {
    for group in [false, true] {
        let options = BindOptions { reuse_port: group, ..BindOptions::default() };
        for port in 5_000..5_008 {
            let [mut server, mut client] = Side::pair();
            let from = client.bind(&format!("10.0.0.2:{port}"));
            let first = server.bind_with("10.0.0.1:53", options);
            if !group {
                connect(&first, from.at);
            }
            server.turn(2);
            client.turn(2);
            close(&mut server, &first);
            let second = server.bind_with("10.0.0.1:53", options);
            arrives([client, server], &from, &second);
        }
    }
}

#[test]
fn what_was_sent_before_a_close_goes_out_though_the_lane_has_much_to_do_first() {
    let [mut server, mut client] = Side::pair();
    let to = server.bind("10.0.0.1:53");
    let from = client.bind("10.0.0.2:5000");
    server.turn(2);
    client.turn(2);
    for _ in 0..200 {
        assert!(from.send(to.at, b"hello"));
    }
    client.desk.send_datagrams(&from);
    for _ in 0..3 * COMMANDS_MAX {
        client.desk.refill(0, ListenerId(u16::MAX));
    }
    close(&mut client, &from);
    for _ in 0..20 {
        client.turn(1);
        server.turn(1);
    }
    assert_eq!(all_received(&to, 5_000), 200);
}

/// Of many a poll sends some; its lane does not sleep before it has sent all.
#[test]
fn a_lane_sleeps_when_what_was_sent_before_a_close_has_gone() {
    let [mut server, mut client] = Side::pair();
    let to = server.bind("10.0.0.1:53");
    let from = client.bind("10.0.0.2:5000");
    server.turn(2);
    client.turn(2);
    (0..200).for_each(|_| assert!(from.send(to.at, b"hello")));
    client.desk.send_datagrams(&from);
    close(&mut client, &from);
    while client.host.turn(client.now).busy {}
    server.turn(20);
    assert_eq!(all_received(&to, 5_000), 200);
}

/// They have the lane's queue of a poll together.
#[test]
fn what_was_sent_from_many_sockets_before_they_were_closed_goes_out() {
    let [mut server, mut client] = Side::pair();
    let to = server.bind("10.0.0.1:53");
    let all: Vec<_> = (0..8).map(|n| client.bind(&format!("10.0.0.2:{}", 5_000 + n))).collect();
    server.turn(2);
    client.turn(2);
    for from in &all {
        for _ in 0..60 {
            assert!(from.send(to.at, b"hello"));
        }
        client.desk.send_datagrams(from);
        close(&mut client, from);
    }
    for _ in 0..40 {
        client.turn(1);
        server.turn(1);
    }
    assert_eq!(std::iter::from_fn(|| received(&to)).count(), 480);
}

#[test]
fn what_was_sent_before_a_close_does_not_wait_for_one_who_sends_all_the_time() {
    let [mut server, mut client] = Side::pair();
    let to = server.bind("10.0.0.1:53");
    let (from, other) = (client.bind("10.0.0.2:5000"), client.bind("10.0.0.2:5001"));
    server.turn(2);
    client.turn(2);
    for _ in 0..200 {
        assert!(from.send(to.at, b"hello"));
    }
    client.desk.send_datagrams(&from);
    close(&mut client, &from);
    let mut heard = 0;
    for _ in 0..40 {
        (0..100).for_each(|_| _ = other.send(to.at, b"x"));
        client.desk.send_datagrams(&other);
        client.turn(1);
        server.turn(2);
        heard += all_received(&to, 5_000);
    }
    assert_eq!(heard, 200);
}
