//! A connection of which little may be unsent: whoever writes is told of room when enough was sent, and not when it was acknowledged.

use laneway_device::memory::{LinkConfig, LinkRx, LinkTx, link};
use laneway_proto::time::Instant;
use laneway_stack::app::{App, ConnId, Context};
use laneway_stack::config::Config;
use laneway_stack::control::Network;
use laneway_stack::entropy::BootSecrets;
use laneway_stack::host::Host;
use laneway_wire::flow::Address;

const LOWAT: u32 = 4_000;

/// One who connects, and writes whenever there is room; or one who reads.
#[derive(Default)]
struct End {
    lowat: u32,
    connection: Option<ConnId>,
    /// How much was taken, and in how many calls something was.
    taken: usize,
    calls: u32,
}

impl End {
    fn write(&mut self, cx: &mut Context<'_>, id: ConnId) {
        while let n @ 1.. = cx.send(id, &[7; 100_000]) {
            self.taken += n;
            self.calls += 1;
        }
    }
}

impl App for End {
    fn on_poll(&mut self, cx: &mut Context<'_>) {
        if self.lowat > 0 && self.connection.is_none() {
            self.connection = cx.connect(None, Address::from_v4([10, 0, 0, 1]), 80, 0).ok();
        }
    }
    fn on_connect(&mut self, cx: &mut Context<'_>, id: ConnId) {
        cx.set_nodelay(id, true);
        cx.set_notsent_lowat(id, self.lowat);
        self.write(cx, id);
    }
    fn on_data(&mut self, _: &mut Context<'_>, _: ConnId, data: &[u8]) -> usize {
        data.len()
    }
    fn on_writable(&mut self, cx: &mut Context<'_>, id: ConnId) {
        self.write(cx, id);
    }
}

struct World {
    reader: Host<LinkRx, LinkTx, End>,
    writer: Host<LinkRx, LinkTx, End>,
    now: Instant,
}

impl World {
    fn new(lowat: u32, lane_mem: usize) -> World {
        let now = Instant::from_us(3_600_000_000);
        let (first, second) = link(LinkConfig::default());
        let host = |seed, ip: &str, queues, lowat| {
            let network = Network { addresses: vec![ip.parse().unwrap()], gateways: vec![] };
            let end = |_| End { lowat, ..End::default() };
            let config = Config { lane_mem, ..Config::default() };
            Host::new(config, &network, &BootSecrets::from_seed(seed), queues, now, end).unwrap()
        };
        let mut reader = host(1, "10.0.0.1/24", first, 0);
        reader.listen("0.0.0.0:80".parse().unwrap(), 16, now).unwrap();
        World { reader, writer: host(2, "10.0.0.2/24", second, lowat), now }
    }

    /// One turn of the writer, and of the reader if he has any. True if the writer had something to do.
    fn turn(&mut self, reads: bool) -> bool {
        self.now = self.now.after_us(10);
        let busy = self.writer.turn(self.now).busy;
        if reads {
            self.reader.turn(self.now);
        }
        busy
    }

    /// What the writer's connection has under way, and what it has not sent.
    fn sent_and_unsent(&mut self) -> (u32, u32) {
        let (id, now) = (self.writer.seats[0].app.connection.unwrap(), self.now);
        let lane = &mut self.writer.seats[0].lane;
        let info = lane.tables(|tables| tables.connection(id).unwrap().info(now));
        (info.flight, info.notsent_bytes)
    }
}

#[test]
fn what_was_sent_makes_room_before_it_is_acknowledged() {
    let mut world = World::new(LOWAT, Config::default().lane_mem);
    while world.writer.seats[0].app.calls == 0 {
        world.turn(true);
    }
    // From now on nobody acknowledges anything.
    let turns = (0..100).take_while(|_| world.turn(false)).count();
    let (sent, unsent) = world.sent_and_unsent();
    assert!((13_000..=14_600).contains(&sent), "the initial window is used, not {sent} of it");
    assert!((LOWAT * 2 / 3..=LOWAT).contains(&unsent), "{unsent}");
    assert!((3..10).contains(&turns), "told in {turns} turns, and then there is nothing to do");
    let app = &world.writer.seats[0].app;
    // What it had sent in the turn in which it was connected may be acknowledged.
    assert!((sent + unsent..=sent + unsent + LOWAT).contains(&(app.taken as u32)));
    // Then it goes on with what is acknowledged, and what is unsent is bounded all the time.
    let before = app.taken;
    for _ in 0..1_000 {
        world.turn(true);
        assert!(world.sent_and_unsent().1 <= LOWAT);
    }
    let app = &world.writer.seats[0].app;
    assert!(app.taken > before + 1_000_000, "{} more", app.taken - before);
}

/// Where there is room by the bound and no memory to fill it, nothing changes until something is acknowledged: nobody is asked again and again.
#[test]
fn who_is_refused_memory_is_not_told_of_room_all_the_time() {
    let mut world = World::new(1 << 20, 16_384);
    while world.writer.seats[0].app.calls == 0 {
        world.turn(true);
    }
    let busy = (0..200).filter(|_| world.turn(false)).count();
    let taken = world.writer.seats[0].app.taken;
    assert!((1..100_000).contains(&taken), "{taken} bytes in a pool of 16 KiB");
    assert!(busy < 10, "{busy} busy turns");
}
