//! Owns the input of the curves: what one operation of each variant does to lines and locks, by the documents.

use super::engine::Step;

/// One connection on one core of the seed: 52,000 a second, of it nine tenths under the lock (four of five packets, and the calls).
pub const SEED_CONNECTION_NS: f64 = 1e9 / 52_000.0;
const SEED_SERIAL: f64 = 0.9;

/// A lock that an operation takes.
#[derive(Clone, PartialEq, Debug)]
pub struct LockUse {
    /// Its name.
    pub class: String,
    /// Acquisitions.
    pub per_op: f64,
    /// Nanoseconds of each.
    pub hold_ns: f64,
    /// How many there are of it.
    pub alike: usize,
}

/// What is done to a line without a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Touch {
    /// An unconditional atomic operation.
    Write,
    /// A compare-and-exchange until it succeeds.
    Loop,
    /// A read.
    Read,
}

/// A line that an operation touches.
#[derive(Clone, PartialEq, Debug)]
pub struct LineUse {
    /// Which: the same name is the same line.
    pub line: String,
    /// How.
    pub touch: Touch,
    /// How often.
    pub per_op: f64,
}

/// One operation of a variant.
#[derive(Clone, PartialEq, Debug)]
pub struct Counts {
    /// By the name that it has everywhere.
    pub variant: String,
    /// Nanoseconds in which nothing is shared.
    pub work_ns: f64,
    /// Locks.
    pub locks: Vec<LockUse>,
    /// Lines.
    pub lines: Vec<LineUse>,
    /// Measured operations a second on one and on two cores, for the gate.
    pub measured: [Option<f64>; 2],
}

impl Counts {
    /// One round of a core: locks and lines spread over the work.
    pub fn steps(&self) -> (Vec<Step>, Vec<usize>, Vec<usize>) {
        let mut names: Vec<&str> = Vec::new();
        let mut uses: Vec<(f64, Step)> = Vec::new();
        for (number, lock) in self.locks.iter().enumerate() {
            uses.push((lock.per_op, Step::Lock { group: number, site: number, hold_ns: lock.hold_ns }));
        }
        for line in &self.lines {
            let group = names.iter().position(|name| *name == line.line).unwrap_or_else(|| {
                names.push(&line.line);
                names.len() - 1
            });
            let step = match line.touch {
                Touch::Write => Step::Write(group),
                Touch::Loop => Step::Loop(group),
                Touch::Read => Step::Read(group),
            };
            uses.push((line.per_op, step));
        }
        let visits: f64 = uses.iter().map(|(per_op, _)| per_op.ceil()).sum();
        let slice = self.work_ns / (visits + 1.0);
        let mut steps = vec![Step::Work(slice)];
        // In turn, as a connection meets them, not one kind after the other.
        let most = uses.iter().map(|(per_op, _)| per_op.ceil() as usize).max().unwrap_or(0);
        for turn in 0..most {
            for (per_op, step) in &uses {
                let left = per_op - turn as f64;
                if left <= 0.0 {
                    continue;
                }
                if left < 1.0 {
                    steps.push(Step::Maybe(left));
                }
                steps.push(step.clone());
                steps.push(Step::Work(slice));
            }
        }
        (steps, vec![1; names.len()], self.locks.iter().map(|lock| lock.alike).collect())
    }

    /// Nanoseconds under its locks.
    pub fn held_ns(&self) -> f64 {
        self.locks.iter().map(|lock| lock.per_op * lock.hold_ns).sum()
    }
}

/// A lock.
pub fn lock(class: &str, per_op: f64, hold_ns: f64, alike: usize) -> LockUse {
    LockUse { class: class.to_owned(), per_op, hold_ns, alike }
}

/// A line.
pub fn line(line: &str, touch: Touch, per_op: f64) -> LineUse {
    LineUse { line: line.to_owned(), touch, per_op }
}

/// Whatever is not under a lock is work: all variants do the same on one core.
fn connection(variant: &str, locks: Vec<LockUse>, lines: Vec<LineUse>) -> Counts {
    let held: f64 = locks.iter().map(|lock| lock.per_op * lock.hold_ns).sum();
    Counts { variant: variant.to_owned(), work_ns: SEED_CONNECTION_NS - held, locks, lines, measured: [None; 2] }
}

/// Ways of sharing connections, of a connection each. Acquisitions are those of the seed's tables (7.16 of 9.2, of which one
/// is accept's and 0.41 are TIME_WAIT's); what is held how long behind `decomposed` is an assumption: no document says it.
pub fn sharing() -> Vec<Counts> {
    let hold = SEED_SERIAL * SEED_CONNECTION_NS / 7.16;
    // Accept holds a sixth of the others' time (0.96 of 30.2 microseconds a connection).
    let accept = 0.032 * SEED_SERIAL * SEED_CONNECTION_NS;
    let rest = (SEED_SERIAL * SEED_CONNECTION_NS - accept) / 6.16;
    vec![
        connection("global", vec![lock("info", 7.16, hold, 1)], vec![]),
        connection("accept", vec![lock("info", 6.16, rest, 1)], vec![]),
        connection("timewait", vec![lock("info", 5.75, rest, 1), lock("time_wait", 2.0, 100.0, 1)], vec![]),
        connection(
            "decomposed",
            vec![lock("list", 2.0, 200.0, 1), lock("bucket", 4.0, 200.0, 1_024)],
            // The read side of what was the lock: entered and left by five packets and three calls.
            vec![line("info", Touch::Write, 16.0)],
        ),
        connection("epoch", vec![lock("bucket", 2.0, 200.0, 1_024), lock("listener", 2.0, 100.0, 1)], vec![]),
        connection("lane", vec![], vec![]),
    ]
}

/// What a packet does besides its route reference, nanoseconds: an assumption.
const PACKET_NS: f64 = 1_000.0;

/// Ways of holding a route, of a packet each: taken, given back, and two fields read that lie beside the count or not.
pub fn references() -> Vec<Counts> {
    let of = |variant: &str, lines| Counts {
        variant: variant.to_owned(),
        work_ns: PACKET_NS,
        locks: vec![],
        lines,
        measured: [None; 2],
    };
    let beside = || line("count", Touch::Read, 2.0);
    let apart = || line("route", Touch::Read, 2.0);
    let (take, give) = (|touch| line("count", touch, 1.0), || line("count", Touch::Write, 1.0));
    vec![
        of("r0", vec![take(Touch::Loop), beside(), give()]),
        of("r1", vec![take(Touch::Loop), apart(), give()]),
        of("r2", vec![take(Touch::Write), beside(), give()]),
        of("r3", vec![take(Touch::Write), apart(), give()]),
        of("arc", vec![take(Touch::Write), beside(), give()]),
        of("lane", vec![apart()]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_of_sharing_takes_as_long_on_one_core() {
        for counts in sharing() {
            assert!((counts.work_ns + counts.held_ns() - SEED_CONNECTION_NS).abs() < 1.0, "{counts:?}");
            assert!(counts.work_ns > 0.0);
        }
    }

    #[test]
    fn a_round_has_as_many_visits_as_were_counted() {
        let (steps, lines, locks) = sharing()[0].steps();
        assert_eq!(steps.iter().filter(|step| matches!(step, Step::Lock { .. })).count(), 8);
        let maybe: Vec<f64> =
            steps.iter().filter_map(|step| if let Step::Maybe(p) = step { Some(*p) } else { None }).collect();
        assert!(maybe.len() == 1 && (maybe[0] - 0.16).abs() < 1e-9);
        assert_eq!((lines.len(), locks), (0, vec![1]));
        let (steps, lines, _) = references()[0].steps();
        assert_eq!((steps.iter().filter(|step| matches!(step, Step::Read(_))).count(), lines), (2, vec![1]));
    }
}
