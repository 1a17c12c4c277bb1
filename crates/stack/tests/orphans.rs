//! Conversations that their thread has left while bytes of it wait, before a peer that answers every probe and reads nothing: stepped in one thread,
//! in virtual time. Nobody waits for them, so they are not kept for ever.

use laneway_device::memory::{LinkConfig, link};
use laneway_proto::time::Instant;
use laneway_stack::app::{App, ConnId, Context};
use laneway_stack::config::Config;
use laneway_stack::control::Network;
use laneway_stack::entropy::BootSecrets;
use laneway_stack::host::Host;
use laneway_stack::runtime::Bells;
use laneway_stack::threads::Server;
use laneway_stack::threads::desk::Desk;

/// Takes nothing of what it is told.
struct Deaf;

impl App for Deaf {
    fn on_data(&mut self, _: &mut Context<'_>, _: ConnId, _: &[u8]) -> usize {
        0
    }
}

#[test]
fn who_was_left_with_bytes_that_wait_ends_although_probes_are_answered() {
    for most in [500_000, usize::MAX] {
        let mut now = Instant::from_us(3_600_000_000);
        let (first, second) = link(LinkConfig::default());
        let network = |ip: &str| Network { addresses: vec![ip.parse().unwrap()], gateways: vec![] };
        let secrets = BootSecrets::from_seed;
        let app = |_| Deaf;
        let mut far: Host<_, _, Deaf> =
            Host::new(Config::default(), &network("10.0.0.1/24"), &secrets(1), first, now, app).unwrap();
        far.listen("0.0.0.0:80".parse().unwrap(), 16, now).unwrap();
        let (desk, mut servers) = Desk::new(1, Bells::new(1).unwrap());
        let app = |_| servers.pop().unwrap();
        let mut near: Host<_, _, Server> =
            Host::new(Config::default(), &network("10.0.0.2/24"), &secrets(2), second, now, app).unwrap();
        let mut run = |near: &mut Host<_, _, Server>, turns: usize, us: u64| {
            for _ in 0..turns {
                now = now.after_us(us);
                near.turn(now);
                far.turn(now);
            }
        };
        let talk = desk.connect("10.0.0.1:80".parse().unwrap());
        run(&mut near, 20, 1_000);
        let mut written = 0;
        for _ in 0..1_000 {
            written += talk.send(&vec![7; 65_536.min(most - written)]);
            desk.serve(&talk);
            run(&mut near, 2, 1_000);
        }
        // More than TCP itself has room for, unless it is less than that.
        assert!(written == most || written > 700_000, "{written} bytes were taken");
        desk.leave(talk, false);
        run(&mut near, 10, 1_000);
        let lent = |near: &mut Host<_, _, Server>| {
            near.seats[0].lane.tables(|tables| (tables.slots.len(), tables.pool.lent()))
        };
        assert_eq!(lent(&mut near).0, 1, "it goes on for a while");
        run(&mut near, 15 * 600, 100_000);
        assert_eq!(lent(&mut near), (0, 0), "a quarter of an hour after {written} bytes");
        assert_eq!(desk.block_bytes_in_use(), 0);
    }
}
