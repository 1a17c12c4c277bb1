//! Who watches what ends, or what never begins.

use super::*;

/// The lane drops those that it cannot begin yet from its list, though who watches them has been said.
#[test]
fn who_watches_connects_that_fail_at_once_is_told_of_each() {
    let [_, mut client] = Side::pair();
    client.turn();
    let (list, mut queue) = poll_list().unwrap();
    let nowhere: SocketAddr = "127.0.0.1:80".parse().unwrap();
    let talks: Vec<Talk> = (0..3 * COMMANDS_MAX)
        .map(|key| {
            let talk = client.desk.connect(nowhere);
            let watch = list.watch(&client.desk, Source::Conversation(talk.clone()), key, READ | WRITE).unwrap();
            client.desk.watch(&watch);
            talk
        })
        .collect();
    let mut told = Vec::new();
    for _ in 0..8 {
        client.turn();
        told.extend(looked_at(&mut queue));
    }
    let failed = Some(Fault::NetworkUnreachable);
    assert!(talks.iter().all(|talk| status(talk) & GONE != 0 && talk.lane().take_error() == failed));
    told.sort_unstable();
    assert_eq!(told, (0..talks.len()).collect::<Vec<_>>());
}

/// The same where no lane is left that could fail it.
#[test]
fn who_watches_a_connect_that_no_lane_takes_is_told() {
    let [_, client] = Side::pair();
    let (list, mut queue) = poll_list().unwrap();
    let talk = client.desk.connect("10.0.0.1:80".parse().unwrap());
    let watch = list.watch(&client.desk, Source::Conversation(talk.clone()), 7, WRITE).unwrap();
    client.desk.watch(&watch);
    assert_eq!(looked_at(&mut queue), []);
    drop(client.host);
    assert_eq!((talk.lane().take_error(), looked_at(&mut queue)), (Some(Fault::Stopped), vec![7]));
}

/// A lane that dies is told by nobody that it stops.
#[test]
fn whoever_waits_for_a_lane_that_dies_is_told() {
    let [mut near, mut far] = Side::pair();
    let acceptors = near.listen();
    let mut sides = [near, far];
    let [talk, _far] = connected(&mut sides, &acceptors);
    [near, far] = sides;
    let at = "10.0.0.1:53".parse().unwrap();
    let (id, at) = near.host.control.bind_udp_with(at, BindOptions::default()).unwrap();
    let socket = near.desk.bind_udp(id, at);
    let (list, mut queue) = poll_list().unwrap();
    let sources = [
        Source::Conversation(talk.clone()),
        Source::Acceptors(acceptors.clone()),
        Source::Datagrams((**socket).clone()),
    ];
    for (key, source) in sources.into_iter().enumerate() {
        near.desk.watch(&list.watch(&near.desk, source, key, READ).unwrap());
    }
    near.turn();
    looked_at(&mut queue);
    talk.flags().want(READ);
    acceptors.want();
    socket.want(READ);
    let events = || [talk.lane().event.now(), acceptors.event.now(), socket.event.now()];
    let slept = events();
    drop(near.host);
    assert!(events().iter().zip(slept).all(|(now, then)| *now != then), "who sleeps is woken");
    let mut told = looked_at(&mut queue);
    told.sort_unstable();
    assert_eq!(told, [0, 1, 2]);
    assert_eq!((status(&talk) & GONE, talk.lane().take_error()), (GONE, Some(Fault::Stopped)));
    assert!(acceptors.is_ready() && near.desk.is_stopped());
    assert_eq!(socket.ready(), READ | WRITE);
    drop(far);
}

/// Nothing may happen to the socket for long: until then its lane would keep the poller, and the poller's descriptor.
#[test]
fn who_watches_no_longer_is_not_kept() {
    let mut sides = Side::pair();
    let acceptors = sides[0].listen();
    let [near, _far] = connected(&mut sides, &acceptors);
    let (id, at) = sides[0].host.control.bind_udp_with("10.0.0.1:53".parse().unwrap(), BindOptions::default()).unwrap();
    let socket = sides[0].desk.bind_udp(id, at);
    let (list, mut queue) = poll_list().unwrap();
    for source in [Source::Conversation(near), Source::Acceptors(acceptors), Source::Datagrams((**socket).clone())] {
        let watch = list.watch(&sides[0].desk, source, 7, READ).unwrap();
        sides[0].desk.watch(&watch);
        sides[0].turn();
        assert_eq!(looked_at(&mut queue), [7]);
        watch.forget();
        sides[0].desk.unwatch(&watch.source);
        sides[0].turn();
        assert_eq!(Arc::strong_count(&watch), 1);
    }
}

/// The lane looked at it without a list when it ended, and so nothing that is said to it is put on one.
#[test]
fn who_begins_to_watch_one_that_has_ended_is_told() {
    let mut sides = Side::pair();
    let acceptors = sides[0].listen();
    let [near, far] = connected(&mut sides, &acceptors);
    assert_eq!(near.send(b"a word"), 6);
    sides[0].desk.serve(&near);
    sides[0].turn();
    assert!(sides[0].desk.note(&near, Op::Nodelay(true)));
    sides[1].desk.note(&far, Op::Abort);
    sides[1].turn();
    sides[0].turn();
    assert_eq!(status(&near) & GONE, GONE);
    let (list, mut queue) = poll_list().unwrap();
    let watch = list.watch(&sides[0].desk, Source::Conversation(near.clone()), 7, READ).unwrap();
    sides[0].desk.watch(&watch);
    sides[0].turn();
    assert_eq!(looked_at(&mut queue), [7]);
    assert_eq!(Arc::strong_count(&watch), 1, "and it is not kept");
}
