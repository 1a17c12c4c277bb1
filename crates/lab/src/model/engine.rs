//! Owns the simulator: cores that run programs of steps, lines that one core at a time may write, locks with queues.
//!
//! Events in the order of their time, no threads, no clock, chance from a seed: the same input gives the same output.
//!
//! # What a line costs
//! A core that wrote a line last, and from which nobody has read it since, writes it again for [`Costs::hit_ns`]. Anybody else
//! waits for its turn and then [`Costs::transfer_ns`]. Turns come in no order: hardware promises none, and strict order would
//! make cores march in step, in which a loop of compare-and-exchange fails four times as often. To read what the core has a
//! valid copy of costs a load; else it is a transfer like a write's, but the copy stays valid until the next write.
//!
//! # What a lock costs
//! Its line, then the hold, then it is handed to one of those who wait ([`Queue`]).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Times of the machine.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Costs {
    /// An operation on a line that is there.
    pub hit_ns: f64,
    /// A line comes from the core that wrote it.
    pub transfer_ns: f64,
    /// How often a core whose compare-and-exchange failed tries again before the line is taken away: 0 never (each attempt
    /// waits for its turn), 1 always.
    pub grip: f64,
}

/// Who has a lock next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queue {
    /// Whoever waits longest.
    Fifo,
    /// Any of those who wait: what spinning without order comes to.
    Barging,
}

/// What a core does next.
#[derive(Clone, Debug)]
pub enum Step {
    /// Nothing shared, for so many nanoseconds.
    Work(f64),
    /// An unconditional atomic operation on one of the lines of a group.
    Write(usize),
    /// A read of one of the lines of a group.
    Read(usize),
    /// A loop of compare-and-exchange on one of the lines of a group until it succeeds.
    Loop(usize),
    /// A lock of a group, held so many nanoseconds, for a site of the statistics.
    Lock {
        /// Which.
        group: usize,
        /// For which row of the statistics.
        site: usize,
        /// Nanoseconds, without the transfer of the lock itself.
        hold_ns: f64,
    },
    /// The next step happens with this probability.
    Maybe(f64),
    /// One more piece of work for whoever takes it.
    Give(usize),
    /// Waits until there is a piece.
    Take(usize),
}

/// What a core repeats: one of some sequences, by weight.
#[derive(Clone, Debug)]
pub struct Program(pub Vec<(f64, Vec<Step>)>);

impl Program {
    /// Always the same.
    pub fn of(steps: Vec<Step>) -> Self {
        Program(vec![(1.0, steps)])
    }
}

/// What is simulated.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Times.
    pub costs: Costs,
    /// Who has a lock next.
    pub queue: Queue,
    /// Lines that are alike, by group: each visit goes to one of them at random.
    pub lines: Vec<usize>,
    /// Locks that are alike, by group.
    pub locks: Vec<usize>,
    /// Rows of the statistics.
    pub sites: usize,
    /// Heaps of work, given and taken.
    pub heaps: usize,
    /// One for each core.
    pub programs: Vec<Program>,
}

/// What happened at a site, in nanoseconds.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct SiteStats {
    /// Acquisitions.
    pub count: u64,
    /// Of those, how many found it taken.
    pub contended: u64,
    /// Sum of waits.
    pub wait_ns: f64,
    /// Longest wait.
    pub wait_max_ns: f64,
}

impl SiteStats {
    /// Mean wait of all acquisitions, contended or not, as the seed's `wait_avg`.
    pub fn wait_avg_ns(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.wait_ns / self.count as f64 }
    }
    /// How many of all found it taken, as the seed's `cnt_lock / count`.
    pub fn contended_share(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.contended as f64 / self.count as f64 }
    }
}

/// What came out.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// Rounds that each core has finished.
    pub rounds: Vec<u64>,
    /// Simulated seconds.
    pub seconds: f64,
    /// By site.
    pub sites: Vec<SiteStats>,
    /// Transfers of lines, those of locks included.
    pub transfers: u64,
    /// Compare-and-exchanges that failed.
    pub retries: u64,
    /// Those that succeeded.
    pub exchanges: u64,
}

impl Outcome {
    /// Rounds a second of all cores.
    pub fn rounds_per_s(&self) -> f64 {
        self.rounds.iter().sum::<u64>() as f64 / self.seconds
    }
    /// Failed attempts for each that succeeded.
    pub fn retries_per_op(&self) -> f64 {
        self.retries as f64 / self.exchanges.max(1) as f64
    }
}

/// Picoseconds: small enough that a sum of hits keeps its fractions, and an order without surprises.
type Time = u64;

fn time(ns: f64) -> Time {
    (ns * 1_000.0).round().max(0.0) as Time
}

#[derive(Clone, Default)]
struct Line {
    owner: Option<usize>,
    /// Somebody else has a copy.
    copied: bool,
    busy: bool,
    waiting: Vec<usize>,
    version: u64,
    /// The version of each core's copy, 0 none.
    seen: Vec<u64>,
}

#[derive(Clone, Default)]
struct Lock {
    holder: Option<usize>,
    last: Option<usize>,
    waiting: VecDeque<(usize, Time)>,
}

struct Core {
    sequence: usize,
    at: usize,
    rounds: u64,
    /// The lock that it holds or waits for, with the site and the hold.
    lock: Option<(usize, usize, Time)>,
    /// The line that it waits for or is being served by, and for what.
    asked: Option<(usize, Ask)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ask {
    Write,
    Read,
    /// The plain look with which a loop begins.
    Look,
    Exchange,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Goes,
    Releases,
    Served,
}

struct Machine<'a> {
    scenario: &'a Scenario,
    chance: u64,
    events: BinaryHeap<Reverse<(Time, u64, usize, Kind)>>,
    ordinal: u64,
    lines: Vec<Line>,
    first_line: Vec<usize>,
    locks: Vec<Lock>,
    first_lock: Vec<usize>,
    heaps: Vec<(u64, VecDeque<usize>)>,
    cores: Vec<Core>,
    out: Outcome,
}

fn starts(groups: &[usize]) -> Vec<usize> {
    groups.iter().scan(0, |sum, count| Some(std::mem::replace(sum, *sum + count))).collect()
}

/// Runs for so many simulated nanoseconds after `warm_up_ns` that do not count.
pub fn run(scenario: &Scenario, seed: u64, warm_up_ns: f64, ns: f64) -> Outcome {
    let cores = scenario.programs.len();
    let mut machine = Machine {
        scenario,
        chance: seed | 1,
        events: BinaryHeap::new(),
        ordinal: 0,
        lines: vec![Line { seen: vec![0; cores], version: 1, ..Line::default() }; scenario.lines.iter().sum()],
        first_line: starts(&scenario.lines),
        locks: vec![Lock::default(); scenario.locks.iter().sum()],
        first_lock: starts(&scenario.locks),
        heaps: vec![(0, VecDeque::new()); scenario.heaps],
        cores: Vec::new(),
        out: Outcome {
            rounds: vec![0; cores],
            seconds: ns * 1e-9,
            sites: vec![SiteStats::default(); scenario.sites],
            transfers: 0,
            retries: 0,
            exchanges: 0,
        },
    };
    for core in 0..cores {
        let sequence = machine.choose(core);
        machine.cores.push(Core { sequence, at: 0, rounds: 0, lock: None, asked: None });
        // Not all at once.
        let begin = machine.random() % 1_000;
        machine.at(begin, core, Kind::Goes);
    }
    machine.until(time(warm_up_ns));
    let before: Vec<u64> = machine.cores.iter().map(|core| core.rounds).collect();
    let fresh = Outcome {
        rounds: Vec::new(),
        sites: vec![SiteStats::default(); scenario.sites],
        transfers: 0,
        retries: 0,
        exchanges: 0,
        ..machine.out
    };
    machine.out = fresh;
    machine.until(time(warm_up_ns + ns));
    machine.out.rounds = machine.cores.iter().zip(before).map(|(core, before)| core.rounds - before).collect();
    machine.out
}

impl Machine<'_> {
    /// xorshift64*.
    fn random(&mut self) -> u64 {
        self.chance ^= self.chance >> 12;
        self.chance ^= self.chance << 25;
        self.chance ^= self.chance >> 27;
        self.chance.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11
    }

    fn fraction(&mut self) -> f64 {
        self.random() as f64 / (1u64 << 53) as f64
    }

    fn one_of(&mut self, count: usize) -> usize {
        if count <= 1 { 0 } else { (self.random() % count as u64) as usize }
    }

    fn choose(&mut self, core: usize) -> usize {
        let sequences = &self.scenario.programs[core].0;
        let sum: f64 = sequences.iter().map(|(weight, _)| weight).sum();
        let mut left = if sequences.len() == 1 { 0.0 } else { self.fraction() * sum };
        for (number, (weight, _)) in sequences.iter().enumerate() {
            left -= weight;
            if left < 0.0 {
                return number;
            }
        }
        sequences.len() - 1
    }

    fn at(&mut self, time: Time, core: usize, kind: Kind) {
        self.ordinal += 1;
        self.events.push(Reverse((time, self.ordinal, core, kind)));
    }

    fn until(&mut self, end: Time) {
        while let Some(Reverse((now, _, core, kind))) = self.events.peek().copied() {
            if now > end {
                break;
            }
            self.events.pop();
            match kind {
                Kind::Goes => self.go(core, now),
                Kind::Releases => {
                    self.release(core, now);
                    self.go(core, now);
                }
                Kind::Served => self.served(core, now),
            }
        }
    }

    /// The next step of a core that has nothing under way.
    fn go(&mut self, core: usize, mut now: Time) {
        let program = &self.scenario.programs[core].0;
        loop {
            let state = &self.cores[core];
            let Some(step) = program[state.sequence].1.get(state.at) else {
                self.cores[core].rounds += 1;
                self.cores[core].at = 0;
                self.cores[core].sequence = self.choose(core);
                if program.iter().all(|(_, steps)| steps.is_empty()) {
                    return;
                }
                // A round that takes no time must not stop the clock.
                now += 1;
                continue;
            };
            self.cores[core].at += 1;
            match *step {
                // Exponential, so that cores do not march in step; the mean is what was asked for.
                Step::Work(ns) => {
                    let spread = -(1.0 - self.fraction()).ln();
                    return self.at(now + time(ns * spread), core, Kind::Goes);
                }
                Step::Write(group) => return self.ask(core, group, Ask::Write, now),
                Step::Read(group) => return self.ask(core, group, Ask::Read, now),
                Step::Loop(group) => return self.ask(core, group, Ask::Look, now),
                Step::Lock { group, site, hold_ns } => {
                    let lock = self.first_lock[group] + self.one_of(self.scenario.locks[group]);
                    self.cores[core].lock = Some((lock, site, time(hold_ns)));
                    self.out.sites[site].count += 1;
                    if self.locks[lock].holder.is_some() {
                        self.out.sites[site].contended += 1;
                        self.locks[lock].waiting.push_back((core, now));
                        return;
                    }
                    return self.grant(core, now);
                }
                Step::Maybe(probability) => {
                    if self.fraction() >= probability {
                        self.cores[core].at += 1;
                    }
                }
                Step::Give(heap) => match self.heaps[heap].1.pop_front() {
                    Some(waiting) => self.at(now, waiting, Kind::Goes),
                    None => self.heaps[heap].0 += 1,
                },
                Step::Take(heap) => {
                    if self.heaps[heap].0 == 0 {
                        self.heaps[heap].1.push_back(core);
                        return;
                    }
                    self.heaps[heap].0 -= 1;
                }
            }
        }
    }

    fn ask(&mut self, core: usize, group: usize, ask: Ask, now: Time) {
        let line = self.first_line[group] + self.one_of(self.scenario.lines[group]);
        self.queue(core, line, ask, now);
    }

    fn queue(&mut self, core: usize, number: usize, ask: Ask, now: Time) {
        self.cores[core].asked = Some((number, ask));
        let line = &mut self.lines[number];
        let is_current = line.seen[core] == line.version || line.owner == Some(core);
        if matches!(ask, Ask::Read | Ask::Look) && is_current {
            // A plain load of a copy that is there asks nobody.
            line.seen[core] = line.version;
            if ask == Ask::Look {
                return self.queue(core, number, Ask::Exchange, now);
            }
            self.cores[core].asked = None;
            return self.at(now + time(self.scenario.costs.hit_ns.min(1.0)), core, Kind::Goes);
        }
        if line.busy {
            line.waiting.push(core);
        } else {
            self.serve(core, number, now);
        }
    }

    /// The line comes to a core.
    fn serve(&mut self, core: usize, number: usize, now: Time) {
        let costs = self.scenario.costs;
        let Some((_, ask)) = self.cores[core].asked else { return };
        let line = &mut self.lines[number];
        line.busy = true;
        let writes = matches!(ask, Ask::Write | Ask::Exchange);
        let is_there = line.owner == Some(core) && !line.copied;
        self.out.transfers += u64::from(!is_there);
        if writes {
            line.owner = Some(core);
        }
        line.copied = !writes;
        let ns = if is_there { costs.hit_ns } else { costs.transfer_ns + if writes { costs.hit_ns } else { 0.0 } };
        self.at(now + time(ns), core, Kind::Served);
    }

    /// A core has had the line: what it did takes effect, the line goes on, and so does the core.
    fn served(&mut self, core: usize, now: Time) {
        let Some((number, ask)) = self.cores[core].asked.take() else { return };
        let grip = self.scenario.costs.grip;
        let found = self.lines[number].version;
        let is_fresh = self.lines[number].seen[core] == found;
        let mut again = false;
        match ask {
            Ask::Read | Ask::Look => self.lines[number].seen[core] = found,
            Ask::Write => self.written(core, number),
            Ask::Exchange => {
                self.lines[number].seen[core] = found;
                let grips = !is_fresh && grip > 0.0 && self.fraction() < grip;
                self.out.retries += u64::from(!is_fresh);
                again = !is_fresh && !grips;
                if !again {
                    self.out.exchanges += 1;
                    self.written(core, number);
                }
            }
        }
        let waiting = self.lines[number].waiting.len();
        self.lines[number].busy = false;
        if waiting > 0 {
            let chosen = self.one_of(waiting);
            let next = self.lines[number].waiting.swap_remove(chosen);
            self.serve(next, number, now);
        }
        if again || ask == Ask::Look {
            self.queue(core, number, Ask::Exchange, now);
        } else {
            self.go(core, now);
        }
    }

    fn written(&mut self, core: usize, number: usize) {
        let line = &mut self.lines[number];
        line.version += 1;
        line.seen[core] = line.version;
    }

    fn grant(&mut self, core: usize, now: Time) {
        let Some((lock, _, hold)) = self.cores[core].lock else { return };
        let costs = self.scenario.costs;
        let lock = &mut self.locks[lock];
        let is_there = lock.last == Some(core);
        lock.holder = Some(core);
        lock.last = Some(core);
        self.out.transfers += u64::from(!is_there);
        let fetch = time(if is_there { costs.hit_ns } else { costs.transfer_ns });
        self.at(now + fetch + hold, core, Kind::Releases);
    }

    fn release(&mut self, core: usize, now: Time) {
        let Some((lock, ..)) = self.cores[core].lock.take() else { return };
        self.locks[lock].holder = None;
        let waiting = self.locks[lock].waiting.len();
        if waiting == 0 {
            return;
        }
        let chosen = match self.scenario.queue {
            Queue::Fifo => 0,
            Queue::Barging => self.one_of(waiting),
        };
        let Some((next, since)) = self.locks[lock].waiting.remove(chosen) else { return };
        if let Some((_, site, _)) = self.cores[next].lock {
            let wait = (now - since) as f64 / 1_000.0;
            let site = &mut self.out.sites[site];
            site.wait_ns += wait;
            site.wait_max_ns = site.wait_max_ns.max(wait);
        }
        self.grant(next, now);
    }
}

#[cfg(test)]
mod tests;
