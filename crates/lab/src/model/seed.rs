//! Owns the model's test against the seed: calibrated on the lock table of FreeBSD 9.2 and on nothing else, it must say what
//! the tables of 10.0, of 10.0 with PCBGROUP and of 10.0 with the patches say.
//!
//! # The machine that is modelled
//! Four receive queues on four cores, four web server processes on four others, one lock. Receive threads always have a
//! packet (they were 100 % busy) and draw its kind by the mix of the table; a connection whose handshake is done is one piece
//! of work for a process: accept, shutdown, close, each under the lock. Holds are the table's `total / count`. Two
//! numbers are fitted, the time between two acquisitions of a receive thread and of a process, and one choice is made, who has
//! the lock next: that which is nearest to 9.2's shares and waits.
//!
//! # What is carried over
//! To 10.0: everything. To PCBGROUP: everything (its own lock is another, and was not contended). To the patches: everything but
//! the accept, which no longer takes the lock. Holds stay 9.2's: those of the predicted tables are not looked at.

use super::engine::{Costs, Outcome, Program, Queue, Scenario, Step, run};

/// The seed's tables.
const TABLES: &str = include_str!("../../seed/s1_lockprof.csv");
/// Cores that receive, and processes that serve.
const RECEIVERS: usize = 4;
const SERVERS: usize = 4;
/// Further than this from the seed is failed.
pub const WITHIN: f64 = 1.5;
/// Simulated nanoseconds of each run, and before it.
const NS: f64 = 3e7;
const WARM_UP_NS: f64 = 5e6;
/// Tables that are predicted.
pub const PREDICTED: [&str; 3] = ["10.0", "10.0+PCBGROUP", "10.0+patches"];

/// What a site is, whatever its line number in that version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// A SYN, FIN or RST comes in.
    Flagged,
    /// A segment of a connection that is not established comes in.
    Handshake,
    /// A segment for TIME_WAIT.
    TimeWait,
    /// A process calls accept.
    Accept,
    /// A process calls shutdown.
    Shutdown,
    /// A process calls close.
    Close,
}

/// In the order of the statistics.
pub const ROLES: [Role; 6] =
    [Role::Flagged, Role::Handshake, Role::TimeWait, Role::Accept, Role::Shutdown, Role::Close];

impl Role {
    /// In rows.
    pub fn name(self) -> &'static str {
        match self {
            Role::Flagged => "input: SYN, FIN, RST",
            Role::Handshake => "input: not established",
            Role::TimeWait => "input: TIME_WAIT",
            Role::Accept => "accept",
            Role::Shutdown => "shutdown",
            Role::Close => "close",
        }
    }

    /// Which site of which version it is. `None`: no role of the model (a timer, another lock).
    fn of(site: &str) -> Option<Role> {
        let (file, line) = site.rsplit_once('/').map_or(site, |(_, last)| last).split_once(':')?;
        match (file, line) {
            ("tcp_input.c", "775" | "778") => Some(Role::Flagged),
            ("tcp_input.c", "1019" | "1013") => Some(Role::Handshake),
            ("tcp_input.c", "962") => Some(Role::TimeWait),
            ("tcp_usrreq.c", "635") => Some(Role::Accept),
            ("tcp_usrreq.c", "728" | "719") => Some(Role::Shutdown),
            ("tcp_usrreq.c", "984" | "975") => Some(Role::Close),
            _ => None,
        }
    }
}

/// One row of a table, in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Site {
    /// Which.
    pub role: Role,
    /// Acquisitions.
    pub count: f64,
    /// Mean hold.
    pub hold_us: f64,
    /// Mean wait.
    pub wait_us: f64,
    /// Part that found it taken.
    pub contended: f64,
}

/// The rows of a kernel's table that have a role.
pub fn table(kernel: &str) -> Vec<Site> {
    let lines = TABLES.lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>());
    lines
        .filter(|cells| cells[0] == kernel)
        .filter_map(|cells| {
            let number = |column: usize| cells[column].parse::<f64>().ok();
            let (count, total, waited, taken) = (number(5)?, number(3)?, number(4)?, number(9)?);
            Some(Site {
                role: Role::of(cells[10])?,
                count,
                hold_us: total / count,
                wait_us: waited / count,
                contended: taken / count,
            })
        })
        .collect()
}

/// What is fitted.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Fit {
    /// Between two acquisitions of a receive thread, nanoseconds.
    pub receive_ns: f64,
    /// Between two of a process.
    pub serve_ns: f64,
    /// Who has the lock next.
    pub queue: Queue,
}

/// The kernel with the holds and the mix of `sites`, with or without the lock around accept.
fn scenario(sites: &[Site], fit: Fit, accept_locks: bool) -> Scenario {
    let site = |role: Role| sites.iter().find(|site| site.role == role);
    let lock = |role: Role| {
        let hold_ns = site(role).map_or(0.0, |site| site.hold_us * 1_000.0);
        let number = ROLES.iter().position(|one| *one == role).unwrap_or(0);
        Step::Lock { group: 0, site: number, hold_ns }
    };
    let per_connection = site(Role::Close).map_or(1.0, |site| site.count);
    let receive = [Role::Flagged, Role::Handshake, Role::TimeWait].into_iter().filter_map(|role| {
        let weight = site(role)?.count / per_connection;
        let mut steps = vec![Step::Work(fit.receive_ns), lock(role)];
        if role == Role::Handshake {
            steps.push(Step::Give(0));
        }
        Some((weight, role, steps))
    });
    // Some segments in the handshake end none: as many pieces of work come out as connections.
    let mut kinds = Vec::new();
    for (weight, role, steps) in receive {
        if role == Role::Handshake && weight > 1.0 {
            kinds.push((weight - 1.0, steps[..2].to_vec()));
            kinds.push((1.0, steps));
        } else {
            kinds.push((weight, steps));
        }
    }
    let work = Step::Work(fit.serve_ns);
    let mut serve = vec![Step::Take(0), work.clone()];
    if accept_locks {
        serve.push(lock(Role::Accept));
    }
    serve.extend([work, lock(Role::Shutdown), lock(Role::Close)]);
    let mut programs = vec![Program(kinds); RECEIVERS];
    programs.extend(vec![Program::of(serve); SERVERS]);
    Scenario {
        // Holds of the seed's table contain the transfers of its machine.
        costs: Costs { hit_ns: 0.0, transfer_ns: 0.0, grip: 0.0 },
        queue: fit.queue,
        lines: Vec::new(),
        locks: vec![1],
        sites: ROLES.len(),
        heaps: 1,
        programs,
    }
}

fn simulate(fit: Fit, accept_locks: bool) -> Outcome {
    run(&scenario(&table("9.2"), fit, accept_locks), 916, WARM_UP_NS, NS)
}

/// By which factor two numbers differ, at least 1.
fn factor(one: f64, other: f64) -> f64 {
    let ratio = one / other;
    if ratio.is_finite() && ratio > 0.0 { ratio.max(1.0 / ratio) } else { f64::INFINITY }
}

/// How far a fit is from 9.2: the sum of squared logarithms of all factors, shares and waits.
fn distance(fit: Fit) -> f64 {
    compare("9.2", &simulate(fit, true)).iter().map(|row| row.factor().ln().powi(2)).sum()
}

/// Fits to 9.2.
pub fn calibrate() -> Fit {
    let mut best: Option<(f64, Fit)> = None;
    for queue in [Queue::Fifo, Queue::Barging] {
        for receive_ns in [0.0, 500.0, 1_000.0, 2_000.0, 4_000.0, 8_000.0] {
            for serve_ns in [500.0, 2_000.0, 4_000.0, 8_000.0, 16_000.0] {
                let fit = Fit { receive_ns, serve_ns, queue };
                let far = distance(fit);
                if best.is_none_or(|(least, _)| far < least) {
                    best = Some((far, fit));
                }
            }
        }
    }
    best.map_or(Fit { receive_ns: 0.0, serve_ns: 0.0, queue: Queue::Fifo }, |(_, fit)| fit)
}

/// One number of the seed beside the model's.
#[derive(Clone, Copy, Debug)]
pub struct Compared {
    /// Of which site.
    pub role: Role,
    /// `contended_share` or `wait_avg_us`.
    pub metric: &'static str,
    /// The seed's.
    pub seed: f64,
    /// The model's.
    pub model: f64,
}

impl Compared {
    /// By which factor they differ, at least 1.
    pub fn factor(&self) -> f64 {
        factor(self.model, self.seed)
    }
    /// Within the gate.
    pub fn holds(&self) -> bool {
        self.factor() <= WITHIN
    }
}

fn compare(kernel: &str, outcome: &Outcome) -> Vec<Compared> {
    let mut rows = Vec::new();
    for site in table(kernel) {
        let Some(stats) = ROLES.iter().position(|role| *role == site.role).map(|at| outcome.sites[at]) else {
            continue;
        };
        let role = site.role;
        rows.push(Compared { role, metric: "contended_share", seed: site.contended, model: stats.contended_share() });
        rows.push(Compared { role, metric: "wait_avg_us", seed: site.wait_us, model: stats.wait_avg_ns() / 1_000.0 });
    }
    rows
}

/// What a fit says of a kernel.
pub fn predict(kernel: &str, fit: Fit) -> Vec<Compared> {
    compare(kernel, &simulate(fit, kernel != "10.0+patches"))
}

/// Waits of a connection in all its acquisitions, microseconds: the seed's and the model's.
pub fn wait_per_connection(kernel: &str, rows: &[Compared]) -> (f64, f64) {
    let sites = table(kernel);
    let connections = sites.iter().find(|site| site.role == Role::Close).map_or(1.0, |site| site.count);
    let mix = |role: Role| sites.iter().find(|site| site.role == role).map_or(0.0, |site| site.count / connections);
    let sum = |of: fn(&Compared) -> f64| {
        rows.iter().filter(|row| row.metric == "wait_avg_us").map(|row| mix(row.role) * of(row)).sum()
    };
    (sum(|row| row.seed), sum(|row| row.model))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_read_with_what_is_published_of_them() {
        let nine = table("9.2");
        assert_eq!(nine.len(), 6);
        let shutdown = nine.iter().find(|site| site.role == Role::Shutdown).expect("in the table");
        assert!((shutdown.wait_us - 67.89).abs() < 0.01 && (shutdown.contended - 0.9288).abs() < 1e-4);
        // The group's lock and the timer have no role; accept is gone with the patches.
        assert_eq!(PREDICTED.map(|kernel| table(kernel).len()), [5, 5, 4]);
        assert!(table("10.0+patches").iter().all(|site| site.role != Role::Accept));
    }

    #[test]
    fn without_the_lock_accept_waits_for_nothing_and_the_rest_for_less() {
        let fit = Fit { receive_ns: 1_000.0, serve_ns: 4_000.0, queue: Queue::Fifo };
        let (with, without) = (simulate(fit, true), simulate(fit, false));
        let at = |role| ROLES.iter().position(|one| *one == role).expect("a role");
        assert_eq!(without.sites[at(Role::Accept)].count, 0);
        assert!(with.sites[at(Role::Accept)].count > 100);
        let flagged = at(Role::Flagged);
        assert!(without.sites[flagged].wait_avg_ns() < with.sites[flagged].wait_avg_ns());
        assert!(without.rounds_per_s() > with.rounds_per_s());
    }

    #[test]
    fn a_gate_can_fail() {
        let row = |model| Compared { role: Role::Close, metric: "wait_avg_us", seed: 10.0, model };
        assert!(row(15.0).holds() && row(6.7).holds());
        assert!(!row(15.1).holds() && !row(6.6).holds() && !row(0.0).holds() && !row(f64::NAN).holds());
        // With one receive thread's worth of time between packets the lock is idle, and the gate must see it.
        let idle = Fit { receive_ns: 1e6, serve_ns: 1_000.0, queue: Queue::Fifo };
        assert!(predict("10.0", idle).iter().filter(|row| !row.holds()).count() > 5);
    }
}
