//! Conversations that end, or never begin, while their thread still has something to say: stepped in one thread. Who watches is told.

use laneway_device::memory::{LinkConfig, LinkRx, LinkTx, link};
use laneway_proto::time::Instant;
use laneway_stack::config::Config;
use laneway_stack::control::Network;
use laneway_stack::entropy::BootSecrets;
use laneway_stack::host::Host;
use laneway_stack::runtime::Bells;
use laneway_stack::threads::desk::Desk;
use laneway_stack::threads::poll::{PollQueue, Source, poll_list};
use laneway_stack::threads::words::{Fault, GONE, Op, READ, Talk, WRITE};
use laneway_stack::threads::{COMMANDS_MAX, Server};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

/// A host of one lane that serves threads.
struct Side {
    host: Host<LinkRx, LinkTx, Server>,
    desk: Arc<Desk>,
    now: Instant,
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
            Side { host, desk, now }
        })
    }

    fn turn(&mut self) {
        self.host.turn(self.now);
        self.now = self.now.after_us(100);
    }
}

fn status(talk: &Talk) -> u32 {
    talk.lane().status.load(Acquire)
}

/// Who is to be looked at, by key.
fn looked_at(queue: &mut PollQueue) -> Vec<usize> {
    queue.begin_round();
    std::iter::from_fn(|| queue.pop()).map(|watch| watch.key).collect()
}

/// The lane drops those that it cannot begin yet from its list, though who watches them has been said.
#[test]
fn who_watches_connects_that_fail_at_once_is_told_of_each() {
    let [_, mut client] = Side::pair();
    client.turn();
    let (list, mut queue) = poll_list().unwrap();
    let nobody: SocketAddr = "10.0.0.1:0".parse().unwrap();
    let talks: Vec<Talk> = (0..3 * COMMANDS_MAX)
        .map(|key| {
            let talk = client.desk.connect(None, nobody);
            let watch = list.watch(Source::Conversation(talk.clone()), key, READ | WRITE);
            client.desk.note(&talk, Op::Watch(Some(watch)));
            talk
        })
        .collect();
    let mut told = Vec::new();
    for _ in 0..8 {
        client.turn();
        told.extend(looked_at(&mut queue));
    }
    assert!(talks.iter().all(|talk| status(talk) & GONE != 0 && talk.lane().take_error() == Some(Fault::Invalid)));
    told.sort_unstable();
    assert_eq!(told, (0..talks.len()).collect::<Vec<_>>());
}

/// The same where no lane is left that could fail it.
#[test]
fn who_watches_a_connect_that_no_lane_takes_is_told() {
    let [_, client] = Side::pair();
    let (list, mut queue) = poll_list().unwrap();
    let talk = client.desk.connect(None, "10.0.0.1:80".parse().unwrap());
    let watch = list.watch(Source::Conversation(talk.clone()), 7, WRITE);
    client.desk.note(&talk, Op::Watch(Some(watch)));
    assert_eq!(looked_at(&mut queue), []);
    drop(client.host);
    assert_eq!((talk.lane().take_error(), looked_at(&mut queue)), (Some(Fault::Stopped), vec![7]));
}
