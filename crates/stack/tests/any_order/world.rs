//! Owns time, the link, and what must be true when nothing new begins any more.

use crate::dice::Dice;
use crate::ledger::{Ledger, NUMBER};
use crate::left;
use crate::party::Party;
use crate::plan::Plan;
use crate::side::Side;
use crate::tally::Tally;
use laneway_device::memory::{self, Indirection, Steer};
use laneway_proto::time::Instant;
use laneway_stack::control::Network;
use laneway_stack::counters::Mib;
use laneway_stack::entropy::BootSecrets;
use laneway_stack::host::Host;
use laneway_stack::runtime::Bells;
use laneway_stack::steering::Steering;
use laneway_stack::threads::desk::Desk;
use laneway_stack::threads::words::{CONNECTED, ENDED, Fault, GONE};
use laneway_stack::worker::Turn;
use std::net::IpAddr;
use std::sync::Arc;

/// Between two turns while there is something to do, and else.
const BUSY_US: u64 = 50;
const IDLE_US: u64 = 1_000;
/// Things that one side does in a turn, at the most.
const ACTS_MAX: usize = 3;
/// Turns after which hosts to which nothing happens must be at rest. Few need a tenth.
const TURNS_MAX: usize = 200_000;

pub struct World {
    plan: Plan,
    sides: [Side; 2],
    ledger: Ledger,
    dice: Dice,
    now: Instant,
}

impl World {
    pub fn new(plan: Plan) -> World {
        let now = Instant::from_us(3_600_000_000);
        let secrets = [0, 1].map(|end| BootSecrets::from_seed(2 * plan.seed + end));
        let steering = [0, 1].map(|end: usize| Steering::new(secrets[end].steering, plan.lanes));
        let tables = [0, 1].map(|end: usize| Indirection::new(steering[end].indirection(), plan.lanes));
        let mut link = plan.link();
        if plan.steers {
            link.steer = steering.map(|steering| {
                let steer: Steer = Arc::new(move |frame: &[u8]| steering.bucket_of_frame(frame, 0));
                Some(steer)
            });
            link.tables = tables.clone().map(Some);
        }
        let (first, second) = memory::link(link);
        let mut queues = [Some(first), Some(second)];
        let sides = [0, 1].map(|end: usize| {
            let ip = IpAddr::from([10, 0, 0, 1 + end as u8]);
            let network = Network { addresses: vec![format!("{ip}/24").parse().unwrap()], gateways: vec![] };
            let bells = Bells::new(plan.lanes).unwrap();
            let (desk, servers) = Desk::with_pool(plan.lanes, bells, plan.block_bytes);
            let mut servers = servers.into_iter();
            let queues = queues[end].take().unwrap();
            let app = |_| servers.next().unwrap();
            let mut host = Host::new(plan.config.clone(), &network, &secrets[end], queues, now, app).unwrap();
            if plan.steers {
                host.control.set_source(Box::new(tables[end].clone()));
            }
            Side::new(host, desk, ip, end, plan.config.somaxconn)
        });
        let dice = Dice::new(plan.seed, 2);
        World { sides, ledger: Ledger::new(plan.has_cookies()), dice, now, plan }
    }

    /// Threads do whatever comes into their heads.
    pub fn act(&mut self) {
        for _ in 0..self.plan.turns {
            let ips = [self.sides[1].ip, self.sides[0].ip];
            let mut busy = false;
            for (side, other) in self.sides.iter_mut().zip(ips) {
                for _ in 0..self.dice.below(ACTS_MAX + 1) {
                    side.act(&mut self.dice, &mut self.ledger, other, self.now);
                }
            }
            for side in &mut self.sides {
                if !self.plan.uneven {
                    busy |= side.host.turn(self.now).busy;
                    continue;
                }
                for seat in &mut side.host.seats {
                    // Of one that has no turn nobody knows whether it is.
                    busy |= self.dice.one_in(3) || seat.turn(self.now).busy;
                }
                if !self.dice.one_in(3) {
                    side.host.control.turn(self.now);
                }
            }
            self.now = self.now.after_us(if busy { BUSY_US } else { IDLE_US });
        }
    }

    /// Nothing new begins, and what there is goes on until nothing is left to do.
    pub fn settle(&mut self) {
        self.sides.iter_mut().for_each(|side| side.end(&mut self.ledger));
        self.rest();
    }

    /// All leave, and what is left of them goes in time.
    pub fn leave(&mut self) {
        self.sides.iter_mut().for_each(|side| side.leave(&mut self.ledger));
        self.rest();
    }

    /// Lets both hosts run, and time go on to whatever is due next, until nothing is.
    fn rest(&mut self) {
        let mut idle = false;
        for _ in 0..TURNS_MAX {
            let mut acted = false;
            for side in &mut self.sides {
                acted |= side.attend(&mut self.ledger);
            }
            let [a, b] = self.sides.each_mut().map(|side: &mut Side| -> Turn { side.host.turn(self.now) });
            let was_idle = std::mem::replace(&mut idle, !acted && a.frames + b.frames == 0 && !a.busy && !b.busy);
            let due = a.deadline.min(b.deadline);
            let next = self.now.after_us(BUSY_US);
            // What one has sent in this turn the other finds in the next.
            self.now = match idle && was_idle {
                true if due == Instant::NEVER => return,
                true => next.max(due),
                false => next,
            };
        }
        panic!("never at rest: {:?}", self.plan);
    }

    /// What must be true of every connection that somebody still has, when nothing is left to do.
    pub fn judge(&mut self) {
        let parties = self.sides.iter_mut().flat_map(|side| &mut side.parties);
        parties.for_each(|party| party.failed = party.talk.lane().take_error());
        for side in &self.sides {
            for party in &side.parties {
                let peer = self.ledger.peer(party.voice).and_then(|peer| self.party(peer));
                if let Some(fault) = self.fault(party, peer) {
                    let peer = peer.map_or("nobody who is there".into(), |peer| peer.describe(&self.ledger));
                    panic!("{fault}:\n  {}\n  with {peer}\n  {:?}", party.describe(&self.ledger), self.plan);
                }
            }
        }
    }

    fn party(&self, voice: usize) -> Option<&Party> {
        self.sides.iter().flat_map(|side| &side.parties).find(|party| party.voice == voice)
    }

    /// What is wrong with one end of a connection; of the other is known only that it is there.
    fn fault(&self, party: &Party, peer: Option<&Party>) -> Option<&'static str> {
        let voice = &self.ledger.voices[party.voice];
        // Who said less than his number, and to whom nothing was said, may be heard by anybody.
        let heard = match self.ledger.peer(party.voice) {
            Some(peer) => self.ledger.voices[peer].heard,
            None if voice.said < NUMBER => voice.said,
            None => 0,
        };
        let (is_over, has_failed) = (party.has(GONE), party.failed.is_some());
        let is_second = has_failed && self.plan.has_cookies();
        let are_both_there = peer.is_some() && !is_second;
        let is_possible = [Fault::Refused, Fault::Reset, Fault::BrokenPipe, Fault::AddressNotAvailable]
            .map(Some)
            .contains(&party.failed);
        let faults = [
            (!is_over && !party.has(CONNECTED), "a connect has had no answer"),
            (!is_over && !party.mute && party.to_say > 0, "who waits to write was never told"),
            (!is_over && heard < voice.said, "not all that was said was heard"),
            (!is_over && has_failed, "it failed, and is not over"),
            (has_failed && !is_possible, "it failed in a way for which there was no cause"),
            (peer.is_some_and(|peer| peer.has(GONE) != is_over), "it is over for one of the two"),
            (are_both_there && is_over && has_failed, "it failed, and both are there"),
            (are_both_there && is_over && heard < voice.said, "it is over, and not all that was said was heard"),
            (peer.is_some_and(|peer| !peer.has(ENDED | GONE)) && party.mute, "an end was not told of"),
        ];
        faults.into_iter().find_map(|(is_so, what)| is_so.then_some(what))
    }

    /// Nothing is left of anybody. What happened meanwhile.
    pub fn finish(mut self) -> Tally {
        let mut all = Tally::default();
        for side in &mut self.sides {
            let counters = side.host.counters();
            side.tally.asked = counters.get(Mib::SteerAsked);
            side.tally.refused = counters.get(Mib::TcpRefused);
            side.tally.reset = counters.get(Mib::TcpEstabResets);
            side.tally.cookies = counters.get(Mib::TcpExtSyncookiesRecv);
            side.tally.fragmented = counters.get(Mib::IpReasmOKs);
            all.add(&side.tally);
            left::assert_nothing(side, self.now);
        }
        all
    }
}
