//! An application that answers from a thread of its own, some turns after it was asked: its answer carries the
//! acknowledgement. If no answer comes, the peer hears of its bytes after a millisecond, or the tick of the timers that follows.

use laneway_device::memory::{LinkConfig, LinkRx, LinkTx, link};
use laneway_proto::time::Instant;
use laneway_stack::app::{App, ConnId, Context};
use laneway_stack::config::Config;
use laneway_stack::control::Network;
use laneway_stack::counters::Mib;
use laneway_stack::entropy::BootSecrets;
use laneway_stack::host::Host;
use laneway_wire::flow::Address;

const ROUNDS: u32 = 100;
const MESSAGE: &[u8] = b"message";

/// Asks, or answers after some turns.
#[derive(Default)]
struct End {
    asks: bool,
    /// Turns between being asked and answering; 0: in the same one. `None`: never.
    after: Option<u32>,
    says_so: bool,
    connection: Option<ConnId>,
    due: Option<u32>,
    heard: u32,
}

impl App for End {
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        if self.asks && self.connection.is_none() {
            self.connection = cx.connect(None, Address::from_v4([10, 0, 0, 1]), 80, 0).ok();
        }
        if let (Some(turns), Some(id)) = (self.due, self.connection) {
            self.due = turns.checked_sub(1);
            if turns == 0 {
                cx.send(id, MESSAGE);
            }
        }
    }
    fn on_accept(&mut self, cx: &mut Context<'_>, id: ConnId) {
        self.connection = Some(id);
        cx.set_nodelay(id, true);
        cx.set_answers_later(id, self.says_so);
    }
    fn on_connect(&mut self, cx: &mut Context<'_>, id: ConnId) {
        cx.set_nodelay(id, true);
        cx.send(id, MESSAGE);
    }
    fn on_data(&mut self, cx: &mut Context<'_>, id: ConnId, data: &[u8]) -> usize {
        self.heard += 1;
        if self.asks && self.heard < ROUNDS {
            cx.send(id, MESSAGE);
        } else if !self.asks {
            self.due = self.after;
        }
        data.len()
    }
}

type World = [Host<LinkRx, LinkTx, End>; 2];

fn world(after: Option<u32>, says_so: bool, now: Instant) -> World {
    let (first, second) = link(LinkConfig::default());
    let host = |seed, ip: &str, queues, asks| {
        let network = Network { addresses: vec![ip.parse().unwrap()], gateways: vec![] };
        let end = |_| End { asks, after, says_so, ..End::default() };
        Host::new(Config::default(), &network, &BootSecrets::from_seed(seed), queues, now, end).unwrap()
    };
    let mut server = host(1, "10.0.0.1/24", first, false);
    server.listen("0.0.0.0:80".parse().unwrap(), 16, now).unwrap();
    [server, host(2, "10.0.0.2/24", second, true)]
}

/// Turns of 10 µs; says what the server acknowledged with nothing to carry it.
fn run(world: &mut World, now: &mut Instant, turns: u32) -> u64 {
    for _ in 0..turns {
        world.iter_mut().for_each(|host| _ = host.turn(*now));
        *now = now.after_us(10);
    }
    world[0].counters().get(Mib::TcpAcksPure)
}

#[test]
fn an_answer_some_turns_later_carries_the_acknowledgement() {
    let pure_acks = |says_so| {
        let mut now = Instant::from_us(3_600_000_000);
        let mut world = world(Some(5), says_so, now);
        let acks = run(&mut world, &mut now, 20 * ROUNDS);
        assert_eq!(world[1].seats[0].app.heard, ROUNDS);
        acks
    };
    let (prompt, later) = (pure_acks(false), pure_acks(true));
    assert!(prompt >= u64::from(ROUNDS), "who does not say so acknowledges each: {prompt}");
    assert!(later <= 20, "only those at the start of the connection are left: {later}");
}

/// The client speaks once, unasked.
fn speaks(world: &mut World) {
    let client = &mut world[1].seats[0].app;
    (client.heard, client.due) = (ROUNDS, Some(0));
}

#[test]
fn without_an_answer_the_peer_hears_soon() {
    let mut now = Instant::from_us(3_600_000_000);
    let mut world = world(Some(0), true, now);
    run(&mut world, &mut now, 20 * ROUNDS); // past the start, in which everything is acknowledged at once
    world[0].seats[0].app.after = None;
    let before = run(&mut world, &mut now, 0);
    speaks(&mut world);
    assert_eq!(run(&mut world, &mut now, 9_000), before, "after so many answers it waits for one more");
    assert_eq!(run(&mut world, &mut now, 1_500), before + 1, "for 100 ms, and the tick that follows");
    // Now it has spoken twice without an answer: it may have held the second back.
    speaks(&mut world);
    assert_eq!(run(&mut world, &mut now, 50), before + 1, "it waits for an answer");
    assert_eq!(run(&mut world, &mut now, 250), before + 2, "for a millisecond, and the tick that follows");
}
