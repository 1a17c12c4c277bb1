//! Conversations that end, or never begin, while their thread still has something to say: stepped in one thread. Who watches is told,
//! what was said is counted, and nothing is left behind.

#[path = "endings/watched.rs"]
mod watched;

use laneway_device::memory::{LinkConfig, LinkRx, LinkTx, link};
use laneway_proto::tcp::State;
use laneway_proto::time::Instant;
use laneway_stack::BindOptions;
use laneway_stack::app::{ListenerId, UdpId};
use laneway_stack::config::Config;
use laneway_stack::control::Network;
use laneway_stack::counters::Mib;
use laneway_stack::entropy::BootSecrets;
use laneway_stack::host::Host;
use laneway_stack::listing::{Page, Row, States, What};
use laneway_stack::runtime::Bells;
use laneway_stack::threads::accept::Acceptors;
use laneway_stack::threads::desk::Desk;
use laneway_stack::threads::poll::{PollQueue, Source, poll_list};
use laneway_stack::threads::words::{
    CALLED_OFF, CONNECTED, Fault, GONE, NODELAY, Op, READ, SHUT_READ, SHUT_WRITE, Talk, WRITE,
};
use laneway_stack::threads::{COMMANDS_MAX, NOTES_MAX, SERVED_MAX, Server};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// A host of one lane that serves threads.
struct Side {
    host: Host<LinkRx, LinkTx, Server>,
    desk: Arc<Desk>,
    now: Instant,
    /// Time from turn to turn.
    step_us: u64,
}

impl Side {
    fn pair() -> [Side; 2] {
        let now = Instant::from_us(3_600_000_000);
        let (first, second) = link(LinkConfig::default());
        let mut ends = [Some(first), Some(second)].into_iter().flatten();
        ["10.0.0.1/24", "10.0.0.2/24"].map(|ip| {
            let network = Network { addresses: vec![ip.parse().unwrap()], gateways: vec![] };
            let (desk, mut servers) = Desk::new(1, Bells::new(1).unwrap());
            let end = ends.next().unwrap();
            let app = |_| servers.pop().unwrap();
            let host = Host::new(Config::default(), &network, &BootSecrets::from_seed(7), end, now, app).unwrap();
            Side { host, desk, now, step_us: 100 }
        })
    }

    fn turn(&mut self) {
        self.host.turn(self.now);
        self.now = self.now.after_us(self.step_us);
    }

    fn listen(&mut self) -> Arc<Acceptors> {
        let at = "10.0.0.1:80".parse().unwrap();
        let options = BindOptions { reuse_address: true, ..BindOptions::default() };
        let (id, at) = self.host.listen_with(at, 16, options, self.now).unwrap();
        self.desk.listen(id, at, 16)
    }
}

/// Turns of both until something is so.
fn until(sides: &mut [Side; 2], mut is_so: impl FnMut() -> bool) {
    for _ in 0..1_000 {
        if is_so() {
            return;
        }
        sides.iter_mut().for_each(Side::turn);
    }
    panic!("it never came to that");
}

fn status(talk: &Talk) -> u32 {
    talk.lane().status.load(Acquire)
}

/// A connection, as the thread of either side has it: the listener's first.
fn connected(sides: &mut [Side; 2], acceptors: &Acceptors) -> [Talk; 2] {
    let far = sides[1].desk.connect(acceptors.at);
    let mut near = None;
    until(sides, || {
        near = near.take().or_else(|| acceptors.take().map(|(newcomer, _)| newcomer.talk));
        near.is_some() && status(&far) & CONNECTED != 0
    });
    [near.unwrap(), far]
}

/// Who is to be looked at, by key.
fn looked_at(queue: &mut PollQueue) -> Vec<usize> {
    queue.begin_round();
    std::iter::from_fn(|| queue.pop()).map(|watch| watch.key).collect()
}

/// However it ended, and whatever is asked of it: nobody waits for what it would do.
#[test]
fn what_is_asked_of_a_lane_that_has_ended_is_over() {
    let [Side { host, desk, .. }, _] = Side::pair();
    let at: SocketAddr = "10.0.0.1:80".parse().unwrap();
    let early = desk.connect(at);
    early.flags().want(WRITE);
    let seen = early.lane().event.now();
    drop(host);
    assert_ne!(early.lane().event.now(), seen, "who sleeps is woken");
    for talk in [early, desk.connect(at)] {
        assert_eq!((status(&talk), talk.lane().take_error()), (GONE, Some(Fault::Stopped)));
    }
    assert!(desk.listen(ListenerId(1), at, 16).is_ready());
    assert_eq!(desk.bind_udp(UdpId(1), at).ready(), READ | WRITE);
}

/// The lane hears of that before it has begun to connect, and has nothing yet that it could close.
#[test]
fn who_leaves_before_his_connect_is_begun_leaves_nothing() {
    let [_, mut client] = Side::pair();
    client.turn();
    let nowhere: SocketAddr = "127.0.0.1:80".parse().unwrap();
    let _others: Vec<Talk> = (0..COMMANDS_MAX).map(|_| client.desk.connect(nowhere)).collect();
    let talk = client.desk.connect("10.0.0.1:80".parse().unwrap());
    client.desk.leave(talk, /* resets= */ false);
    (0..3).for_each(|_| client.turn());
    assert_eq!(client.host.seats[0].lane.tables(|tables| tables.flows.len()), 0);
}

/// What was asked for waits until it is connected; who leaves does not.
#[test]
fn who_leaves_a_connect_that_nobody_answers_leaves_nothing() {
    let [_, mut client] = Side::pair();
    let talk = client.desk.connect("10.0.0.1:80".parse().unwrap());
    client.turn();
    assert!(client.desk.note(&talk, Op::Nodelay(true)));
    client.turn();
    let flows = |client: &mut Side| client.host.seats[0].lane.tables(|tables| tables.flows.len());
    assert_eq!(flows(&mut client), 1);
    client.desk.leave(talk, /* resets= */ false);
    client.turn();
    assert_eq!(flows(&mut client), 0);
}

/// It is handed out with the blocks that lie in it, and if nothing is said they go back all the same.
#[test]
fn a_conversation_that_is_used_again_holds_no_memory_for_long() {
    let mut sides = Side::pair();
    sides.iter_mut().for_each(|side| side.step_us = 1_000);
    let acceptors = sides[0].listen();
    let held = |sides: &[Side; 2]| sides[0].desk.block_bytes_in_use();
    let [near, far] = connected(&mut sides, &acceptors);
    assert_eq!(near.send(b"a word"), 6);
    sides[0].desk.serve(&near);
    until(&mut sides, || far.readable() == 6);
    sides[1].desk.leave(far, /* resets= */ true);
    until(&mut sides, || status(&near) & GONE != 0);
    sides[0].desk.leave(near, /* resets= */ false);
    sides[0].turn();
    let _talks = connected(&mut sides, &acceptors);
    assert!(held(&sides) > 0);
    (0..1_000).for_each(|_| sides.iter_mut().for_each(Side::turn));
    assert_eq!(held(&sides), 0);
}

/// Its lane takes what it is asked for with its next turn, so more than a bounded number is not said before. What ends the connection is never
/// refused, and holds at once, though nobody answers.
#[test]
fn what_is_asked_for_is_bounded_and_the_end_comes_all_the_same() {
    let [_, mut client] = Side::pair();
    let talk = client.desk.connect("10.0.0.1:80".parse().unwrap());
    client.turn();
    let mut toggles = (0..1_000).map(|i| (i % 2 == 0, Op::Nodelay(i % 2 == 0)));
    let noted = toggles.position(|(on, op)| !client.desk.set(&talk, NODELAY, on, op));
    assert_eq!(noted, Some(usize::from(NOTES_MAX)));
    assert!(!client.desk.note(&talk, Op::Keepalive(true)));
    let flows = |client: &mut Side| client.host.seats[0].lane.tables(|tables| tables.flows.len());
    assert_eq!(flows(&mut client), 1);
    assert!(client.desk.call_off(&talk));
    client.turn();
    assert_eq!(flows(&mut client), 0);
}

/// Of many who speak at once a poll looks at some; its lane does not sleep before it has looked at all.
#[test]
fn a_lane_sleeps_when_it_has_heard_all() {
    let [_, mut client] = Side::pair();
    let nowhere: SocketAddr = "127.0.0.1:80".parse().unwrap();
    let talks: Vec<Talk> = (0..2 * SERVED_MAX).map(|_| client.desk.connect(nowhere)).collect();
    while client.host.turn(client.now).busy {}
    talks.iter().for_each(|talk| assert!(client.desk.note(talk, Op::Nodelay(true))));
    while client.host.turn(client.now).busy {}
    let heard = |talk: &&Talk| talk.lane().noted.load(Relaxed) == 1;
    assert_eq!(talks.iter().filter(heard).count(), talks.len());
}

/// Whoever says it again, and again, says nothing new.
#[test]
fn what_is_shut_is_shut_once() {
    let mut sides = Side::pair();
    let acceptors = sides[0].listen();
    let [near, _far] = connected(&mut sides, &acceptors);
    let noted = || near.app().noted.load(Relaxed);
    let before = noted();
    for bits in [SHUT_WRITE, SHUT_WRITE, SHUT_READ, SHUT_READ, SHUT_READ | SHUT_WRITE] {
        sides[0].desk.shut(&near, bits);
    }
    assert_eq!(noted() - before, 2);
}

/// Whether its lane has not begun it yet, waits for an answer, or has one before it hears of the end: to its thread it is over at once, who
/// watches is told, and nothing is left of it.
#[test]
fn a_connect_that_is_called_off_leaves_nothing() {
    for (what, others, near_turns, far_turns) in [
        ("not begun", 0, 0, 0),
        ("not begun in the poll in which its lane hears of the end", COMMANDS_MAX, 0, 0),
        ("not answered", 0, 1, 0),
        ("answered", 0, 1, 1),
    ] {
        let mut sides = Side::pair();
        let acceptors = sides[0].listen();
        let _first = connected(&mut sides, &acceptors); // each knows where the other is
        let nowhere: SocketAddr = "127.0.0.1:80".parse().unwrap();
        let _others: Vec<Talk> = (0..others).map(|_| sides[1].desk.connect(nowhere)).collect();
        let talk = sides[1].desk.connect(acceptors.at);
        let (list, mut queue) = poll_list().unwrap();
        sides[1].desk.watch(&list.watch(&sides[1].desk, Source::Conversation(talk.clone()), 7, READ).unwrap());
        (0..near_turns).for_each(|_| sides[1].turn());
        (0..far_turns).for_each(|_| sides[0].turn());
        looked_at(&mut queue); // as everybody who begins to watch does
        assert_eq!(status(&talk), 0, "{what}");
        assert!(sides[1].desk.call_off(&talk), "{what}");
        assert!(!sides[1].desk.call_off(&talk), "{what}: it is over");
        assert_eq!((status(&talk), talk.lane().take_error()), (GONE | CALLED_OFF, Some(Fault::Reset)), "{what}");
        (0..10).for_each(|_| sides.iter_mut().rev().for_each(Side::turn));
        assert_eq!((status(&talk) & GONE, looked_at(&mut queue)), (GONE, vec![7]), "{what}");
        assert_eq!(sides[1].host.counters().get(Mib::TcpActiveOpens), 1 + near_turns, "{what}");
        for side in &mut sides {
            assert_eq!(side.host.seats[0].lane.tables(|tables| tables.flows.len()), 1, "{what}: the first is left");
        }
    }
}

/// What is asked of a connection that has ended is asked of nobody, but it counts as heard: its conversation is used again, and the
/// next thread may ask as much as any.
#[test]
fn what_is_said_after_the_end_does_not_bind_the_next_connection() {
    let mut sides = Side::pair();
    let acceptors = sides[0].listen();
    let mut places = Vec::new();
    for life in 0..2 * NOTES_MAX {
        let [near, far] = connected(&mut sides, &acceptors);
        assert!(sides[0].desk.note(&near, Op::Nodelay(true)), "life {life}: too much is asked already");
        sides[0].turn();
        sides[1].desk.note(&far, Op::Abort);
        until(&mut sides, || status(&near) & GONE != 0);
        sides[0].desk.note(&near, Op::Nodelay(false));
        places.push(std::ptr::from_ref(&*near).addr());
        sides[0].desk.leave(near, /* resets= */ false);
        sides[0].turn();
    }
    places.dedup();
    assert_eq!(places.len(), 1, "it is the same conversation each time");
}

/// Bytes behind the FIN have nowhere to go. They must not keep the connection when its thread has left.
#[test]
fn bytes_behind_the_end_do_not_keep_a_connection() {
    let mut sides = Side::pair();
    let acceptors = sides[0].listen();
    let [near, far] = connected(&mut sides, &acceptors);
    sides[0].desk.note(&near, Op::Shutdown);
    assert_eq!(near.send(b"too late"), 8);
    sides[0].desk.serve(&near);
    (0..10).for_each(|_| sides.iter_mut().for_each(Side::turn));
    assert!(sides[0].desk.block_bytes_in_use() > 0);
    sides[0].desk.leave(near, /* resets= */ false);
    (0..10).for_each(|_| sides.iter_mut().for_each(Side::turn));
    assert_eq!(sides[0].desk.block_bytes_in_use(), 0, "the lane still has the conversation");
    assert_eq!(far.readable(), 0);
}

/// As whoever opens many does: what they are to be like is said to all of them at once, before the first is connected.
#[test]
fn what_is_asked_for_before_a_connection_is_there_holds_when_it_is() {
    let mut sides = Side::pair();
    let acceptors = sides[0].listen();
    let at = acceptors.at;
    let talks: Vec<Talk> = (0..2).map(|_| sides[1].desk.connect(at)).collect();
    for _ in 0..2 {
        sides[1].turn(); // each has its SYN out
    }
    assert!(sides[1].desk.note(&talks[0], Op::Nodelay(true)));
    assert!(sides[1].desk.note(&talks[0], Op::Shutdown));
    sides[1].turn(); // nobody has answered yet
    until(&mut sides, || talks.iter().all(|talk| status(talk) & CONNECTED != 0));
    sides.iter_mut().for_each(Side::turn);
    let side = &mut sides[1];
    side.host.control.ask_page(0, Page::new(States::ALL));
    side.turn();
    side.turn();
    let page = side.host.control.take_pages().pop().expect("one was asked for");
    let info =
        |row: &Row| if let What::Synchronized(info) = &row.what { Some((info.nodelay, info.state)) } else { None };
    let mut found: Vec<_> = page.rows.iter().filter_map(info).collect();
    found.sort();
    assert_eq!(found, [(false, State::Established), (true, State::FinWait2)]);
}

/// How long a peer is waited for has nothing to do with the bytes that wait for it: who says so only when they do is heard before they have gone.
#[test]
fn a_user_timeout_holds_for_bytes_that_wait_already() {
    for (leaves, asks) in [(false, &[3_000][..]), (true, &[3_000]), (false, &[0, 3_000]), (false, &[3_000, 0])] {
        let mut sides = Side::pair();
        // On so long a path bytes are copied, and TCP has room for some of them.
        sides.iter_mut().for_each(|side| side.step_us = 1_000);
        let acceptors = sides[0].listen();
        let [near, far] = connected(&mut sides, &acceptors);
        // The peer answers every probe, and its thread reads nothing.
        for _ in 0..1_000 {
            far.send(&[7; 65_536]);
            sides[1].desk.serve(&far);
            sides.iter_mut().for_each(Side::turn);
        }
        for ms in asks {
            assert!(sides[1].desk.note(&far, Op::UserTimeout(*ms)));
        }
        if leaves {
            sides[1].desk.leave(far.clone(), /* resets= */ false);
        }
        for _ in 0..20_000 {
            sides.iter_mut().for_each(Side::turn);
        }
        let ends = asks.ends_with(&[3_000]);
        let alive = sides[1].host.seats[0].lane.tables(|tables| tables.slots.len());
        assert_eq!(alive, usize::from(!ends), "20 s later, asked for {asks:?}, left: {leaves}");
        if ends && !leaves {
            assert_eq!(far.lane().take_error(), Some(Fault::TimedOut));
        }
        drop(near);
    }
}
