//! Owns the oracle of memory: lanes that take turns under a trace of every access, and which lines one of them wrote and another
//! touched.
//!
//! The program says whose turn it is by writing to a mark, so the trace alone tells. Set aside are the marks; the stacks, each
//! of which is one thread's; and the rings of the in-memory device, which lie between a lane and the one at the link's other end.
//! Which memory that is, the rings themselves say, from their allocation: nothing is set aside for the function that touches it.

use super::part::{Aside, LANES, MARK_BEGIN, MARK_BYTES, MARK_END, Part, Unit, Variant};
use super::stage::STACK;
use super::{executed, tools};
use crate::bench::failure::Failure;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::ops::Range;
use std::process::Stdio;
use std::sync::{Arc, OnceLock};

const LINE: u64 = 64;
/// Above the place that a thread names as the beginning of its stack: what lies in the same few calls.
const STACK_ABOVE: u64 = 4_096;
/// Below it; a little is left, because the place is not quite the end.
const STACK_BELOW: u64 = STACK as u64 - (64 << 10);

/// What lanes did to each other's lines.
#[derive(Clone, Debug, Default)]
pub struct Shared {
    /// Operations.
    pub ops: u64,
    /// Those that nothing excuses.
    pub own: Sum,
    /// Those that are shared on purpose, as [`Aside::ALL`] has them.
    pub aside: [Sum; 2],
    /// The busiest: where first written, where touched by another lane; transfers.
    pub sites: Vec<(String, u64)>,
}

/// Lines that one lane wrote and another touched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// How many.
    pub lines: u64,
    /// How often one was written, once for each turn of a lane.
    pub written: u64,
    /// How often one would have come from another core.
    pub transfers: u64,
}

impl Sum {
    fn add(&mut self, line: &Line) {
        self.lines += 1;
        self.written += line.written;
        self.transfers += line.transfers;
    }
}

/// Where things are in the traced program.
#[derive(Clone, Debug, Default)]
struct Places {
    marks: u64,
    base: u64,
    stacks: Vec<Range<u64>>,
    /// As [`Aside::ALL`].
    aside: [Vec<Range<u64>>; 2],
}

impl Places {
    /// From what the program has said so far; `None`: not all.
    fn told(said: &str) -> Option<Places> {
        // It is said last.
        let base = tools::number(said.strip_suffix('\n')?, "base").ok()?;
        let stack = |numbers: Vec<u64>| numbers[0].saturating_sub(STACK_BELOW)..numbers[0] + STACK_ABOVE;
        let range = |numbers: Vec<u64>| Some(*numbers.first()?..*numbers.get(1)?);
        Some(Places {
            marks: tools::number(said, "marks").ok()?,
            base,
            stacks: tools::lines_of(said, "stack").map(stack).collect(),
            aside: Aside::ALL.map(|why| tools::lines_of(said, why.name()).filter_map(range).collect()),
        })
    }

    /// Why every byte of a line is shared on purpose, by its place in [`Aside::ALL`]. A counter beside a ring is not.
    fn aside(&self, line: u64) -> Option<usize> {
        let (from, to) = (line * LINE, (line + 1) * LINE);
        let holds = |all: &Vec<Range<u64>>| all.iter().any(|memory| memory.start <= from && to <= memory.end);
        self.aside.iter().position(holds)
    }
}

#[derive(Clone, Copy, Default)]
struct Line {
    /// By lane, a bit each.
    writers: u8,
    touchers: u8,
    holders: u8,
    /// Turns in which it was written; the last of them.
    written: u64,
    turn: u64,
    transfers: u64,
    /// By lane: the first instruction that wrote it, or that touched it as long as none has.
    by: [u64; LANES],
}

impl Line {
    /// One lane wrote it, and another touched it.
    fn is_shared(&self) -> bool {
        self.writers != 0 && self.touchers.count_ones() > 1
    }

    /// An instruction that wrote it, and one of another lane.
    fn instructions(&self) -> (u64, u64) {
        let writer = self.writers.trailing_zeros() as usize;
        let other = (self.touchers & !(1 << writer)).trailing_zeros() as usize;
        (self.by[writer.min(LANES - 1)], self.by[other.min(LANES - 1)])
    }
}

#[derive(Default)]
struct Trace {
    lines: HashMap<u64, Line>,
    counts: bool,
    is_over: bool,
    lane: Option<usize>,
    turn: u64,
    instruction: u64,
    /// What the present instruction has read, until it is known that it does not write it as well.
    read: Option<(usize, u64)>,
}

impl Trace {
    /// One line of the trace: `I  addr,size`, ` L addr,size`, ` S addr,size`, ` M addr,size`.
    fn line(&mut self, text: &[u8], places: &Places) {
        let [first, kind, b' ', rest @ ..] = text else { return };
        if self.is_over || !matches!((first, kind), (b'I', b' ') | (b' ', b'L' | b'S' | b'M')) {
            return;
        }
        let mut address = 0u64;
        let mut digits = rest.iter();
        for digit in digits.by_ref() {
            match (*digit as char).to_digit(16) {
                Some(value) => address = address << 4 | u64::from(value),
                None => break,
            }
        }
        if *first == b'I' {
            self.settle(None);
            self.instruction = address;
            return;
        }
        let writes = *kind != b'L';
        let mark = address.wrapping_sub(places.marks);
        if mark < (MARK_END as u64 + 1) * MARK_BYTES {
            if writes && mark.is_multiple_of(MARK_BYTES) {
                self.mark((mark / MARK_BYTES) as usize);
            }
            return;
        }
        let Some(lane) = self.lane.filter(|_| self.counts) else { return };
        if places.stacks.iter().any(|stack| stack.contains(&address)) {
            return;
        }
        let size = digits.fold(0u64, |size, digit| size * 10 + u64::from(digit.wrapping_sub(b'0').min(9)));
        for line in address / LINE..=(address + size.max(1) - 1) / LINE {
            self.settle(writes.then_some((lane, line)));
            if writes {
                self.touch(lane, line, true);
            } else {
                self.read = Some((lane, line));
            }
        }
    }

    /// An instruction that reads and writes, a locked one in particular, has its line once, to be written; valgrind tells of a load, and
    /// then of an exchange. So what was read counts as such only if the same instruction does not go on to write the same line.
    fn settle(&mut self, written: Option<(usize, u64)>) {
        if let Some((lane, line)) = self.read.take().filter(|read| Some(*read) != written) {
            self.touch(lane, line, false);
        }
    }

    fn mark(&mut self, mark: usize) {
        self.settle(None);
        self.turn += 1;
        self.lane = (mark < LANES).then_some(mark);
        self.counts |= mark == MARK_BEGIN;
        self.is_over |= self.counts && mark == MARK_END;
    }

    fn touch(&mut self, lane: usize, number: u64, writes: bool) {
        let bit = 1u8 << lane;
        let line = self.lines.entry(number).or_default();
        if line.touchers & bit == 0 || writes && line.writers & bit == 0 {
            line.by[lane] = self.instruction;
        }
        line.touchers |= bit;
        let others = line.holders & !bit;
        // To have it alone if it writes, at all if it reads: else it comes from another core.
        if others != 0 && (writes || line.holders & bit == 0) {
            line.transfers += 1;
        }
        if !writes {
            line.holders |= bit;
            return;
        }
        line.holders = bit;
        line.writers |= bit;
        if line.turn != self.turn {
            line.turn = self.turn;
            line.written += 1;
        }
    }

    /// Lines that one lane wrote and another touched: what nothing excuses, and what is shared on purpose.
    fn shared(&self, places: &Places) -> (Sum, [Sum; 2]) {
        let (mut own, mut aside) = (Sum::default(), [Sum::default(); 2]);
        for (number, line) in self.lines.iter().filter(|(_, line)| line.is_shared()) {
            places.aside(*number).map_or(&mut own, |why| &mut aside[why]).add(line);
        }
        (own, aside)
    }
}

/// Reads a trace to its end. What is no part of it is put into `complaints`.
fn read(err: impl Read, places: &OnceLock<Places>, complaints: &mut String) -> Trace {
    let (mut err, mut line) = (BufReader::with_capacity(1 << 18, err), Vec::new());
    let mut trace = Trace::default();
    loop {
        line.clear();
        match err.read_until(b'\n', &mut line) {
            Ok(1..) => {}
            _ => return trace,
        }
        if !matches!(line.first(), Some(b'I' | b' ')) && complaints.len() < 2_000 {
            complaints.push_str(&String::from_utf8_lossy(&line));
        } else if let Some(places) = places.get() {
            trace.line(line.strip_suffix(b"\n").unwrap_or(&line), places);
        }
    }
}

/// Traces operations of a variant: `(warm_up, ops)`.
pub fn count(unit: Unit, variant: Variant, (warm_up, ops): (u64, u64)) -> Result<Shared, Failure> {
    let part = Part { unit, variant, ops, warm_up, traced: true, watched: false };
    let mut command = tools::valgrind("lackey").option("--trace-mem=yes").option("--basic-counts=no").program(&part)?;
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| tools::missing("valgrind", "valgrind", &error))?;
    let (Some(mut go), Some(mut out), Some(err)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(Failure::Machine("no pipe to valgrind".into()));
    };
    // The program waits when it has said where things are, so none of its lanes' turns is read before that is known.
    let places = Arc::new(OnceLock::new());
    let known = Arc::clone(&places);
    let words = std::thread::spawn(move || {
        let (mut said, mut piece) = (String::new(), [0u8; 4096]);
        while let Ok(n @ 1..) = out.read(&mut piece) {
            said.push_str(&String::from_utf8_lossy(&piece[..n]));
            if known.get().is_none()
                && let Some(told) = Places::told(&said)
            {
                let _ = known.set(told);
                let _ = go.write_all(b"go\n");
            }
        }
        said
    });
    let mut complaints = String::new();
    let trace = read(err, &places, &mut complaints);
    let status = child.wait().map_err(|error| Failure::Machine(format!("valgrind did not end: {error}")))?;
    let said = words.join().unwrap_or_default();
    // What is shared on purpose may have been said as late as at the end.
    let Some(places) = Places::told(&said).filter(|_| status.success() && trace.is_over) else {
        return Err(Failure::Machine(format!("the trace came to no end: {said} {}", complaints.trim())));
    };
    let (own, aside) = trace.shared(&places);
    Ok(Shared { ops: tools::number(&said, "ops")?, own, aside, sites: sites(&trace, &places)? })
}

/// Sites that are told.
const SITES: usize = 16;

/// Where an instruction is. Of other objects than this program only that is told.
fn place(functions: &str) -> String {
    match executed::shown(functions) {
        unknown if unknown.starts_with('?') => "a library".to_owned(),
        known => known,
    }
}

/// By what lines that nothing excuses were written and touched, the busiest first.
fn sites(trace: &Trace, places: &Places) -> Result<Vec<(String, u64)>, Failure> {
    let mut by: HashMap<(u64, u64), u64> = HashMap::new();
    let shared = trace.lines.iter().filter(|(number, line)| line.is_shared() && places.aside(**number).is_none());
    for (_, line) in shared {
        *by.entry(line.instructions()).or_default() += line.transfers.max(1);
    }
    let mut sites: Vec<((u64, u64), u64)> = by.into_iter().collect();
    sites.sort_by_key(|(pair, transfers)| (std::cmp::Reverse(*transfers), *pair));
    sites.truncate(SITES);
    if sites.is_empty() {
        return Ok(Vec::new());
    }
    let own = std::env::current_exe().map(|path| path.display().to_string()).unwrap_or_default();
    let addresses: Vec<u64> = sites
        .iter()
        .flat_map(|((writer, other), _)| [*writer, *other])
        .map(|address| address.wrapping_sub(places.base))
        .collect();
    let names = executed::functions(&own, &addresses)?;
    let pairs = names.chunks(2).zip(&sites);
    let named = pairs.map(|(pair, (_, transfers))| {
        let [writer, other] = [0, 1].map(|i| place(pair.get(i).map_or("", String::as_str)));
        (format!("written by {writer}, touched by {other}"), *transfers)
    });
    Ok(named.collect())
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "a piece of memory is a range, and one piece is a list of one")]
mod tests {
    use super::*;

    fn places() -> Places {
        Places {
            marks: 0x10_0000,
            base: 0,
            stacks: vec![0x1f_fe00_0000..0x1f_ff00_0000],
            aside: [vec![0x9000..0x9100], vec![0xa000..0xa040]],
        }
    }

    fn traced(lines: &[String]) -> Trace {
        let mut trace = Trace::default();
        lines.iter().for_each(|line| trace.line(line.as_bytes(), &places()));
        trace
    }

    fn mark(number: usize) -> String {
        format!(" S {:x},8", places().marks + number as u64 * MARK_BYTES)
    }

    fn say(text: &str) -> String {
        text.to_owned()
    }

    /// Lines and transfers if one lane does this and another that: unexcused, the device's, the data's.
    fn touched(by_one: &str, by_other: &str, other: usize) -> [(u64, u64); 3] {
        let all =
            [mark(MARK_BEGIN), mark(0), say("I  4000,4"), say(by_one), mark(other), say(by_other), mark(MARK_END)];
        let trace = traced(&all);
        assert!(trace.is_over);
        let (own, [device, data]) = trace.shared(&places());
        [own, device, data].map(|sum| (sum.lines, sum.transfers))
    }

    #[test]
    fn a_line_is_shared_if_one_lane_writes_and_another_touches() {
        let own = |one, two, other| touched(one, two, other)[0];
        assert_eq!(own(" S 5000,8", " L 5038,8", 1), (1, 1), "another word of the same line");
        assert_eq!(own(" L 5000,8", " M 5000,8", 1), (1, 1));
        assert_eq!(own(" L 5000,8", " L 5000,8", 1), (0, 0), "nobody writes");
        assert_eq!(own(" S 5000,8", " L 5040,8", 1), (0, 0), "the next line");
        assert_eq!(own(" S 503c,8", " L 5040,8", 1), (1, 1), "across two lines");
        assert_eq!(own(" S 5000,8", " L 5000,8", 2), (1, 1), "the other end's lane");
        assert_eq!(own(" S 5000,8", " L 5000,8", super::super::part::MARK_OTHER), (0, 0), "nobody's turn");
        assert_eq!(own(" S 1ffeffff00,8", " L 1ffeffff00,8", 1), (0, 0), "a stack");
    }

    #[test]
    fn only_memory_that_is_shared_on_purpose_is_set_aside_whoever_touches_it() {
        assert_eq!(touched(" S 9040,8", " L 9040,8", 2), [(0, 0), (1, 1), (0, 0)]);
        assert_eq!(touched(" S a000,8", " L a000,8", 1), [(0, 0), (0, 0), (1, 1)]);
        // The same instruction, as in a function of the device, and a counter beside its ring.
        assert_eq!(touched(" S 9100,8", " L 9100,8", 2), [(1, 1), (0, 0), (0, 0)]);
        assert_eq!(touched(" S 8fff,2", " L 9000,1", 2), [(0, 0), (1, 1), (0, 0)], "half of it in the ring");
        let partly = Places { aside: [vec![0x9010..0x9100], vec![]], ..places() };
        assert_eq!(
            [0x9000, 0x9040].map(|at| partly.aside(at / LINE)),
            [None, Some(0)],
            "a line that is not all the device's"
        );
    }

    #[test]
    fn only_what_lies_between_the_marks_counts() {
        let all = [
            mark(0),
            say(" S 5000,8"),
            mark(1),
            say(" S 5000,8"),
            mark(MARK_BEGIN),
            mark(0),
            say(" L 5000,8"),
            mark(MARK_END),
            mark(1),
            say(" S 5000,8"),
        ];
        assert_eq!(traced(&all).shared(&places()), (Sum::default(), [Sum::default(); 2]));
    }

    #[test]
    fn a_line_written_to_and_fro_is_written_once_a_turn_and_comes_over_each_time() {
        let mut all = vec![mark(MARK_BEGIN)];
        for _ in 0..3 {
            all.extend([mark(0), say(" M 5000,8"), say(" S 5008,8"), mark(1), say(" M 5000,8")]);
        }
        let (own, _) = traced(&all).shared(&places());
        assert_eq!(own, Sum { lines: 1, written: 6, transfers: 5 });
    }

    #[test]
    fn one_instruction_has_a_line_once() {
        let transfers = |theirs: &[&str]| {
            let mut all = vec![mark(MARK_BEGIN), mark(0), say(" S 5000,8"), mark(1)];
            all.extend(theirs.iter().map(|text| say(text)));
            all.push(mark(MARK_END));
            traced(&all).shared(&places()).0.transfers
        };
        assert_eq!(transfers(&["I  4000,4", " L 5000,8", " M 5000,8"]), 1, "a locked addition");
        assert_eq!(transfers(&["I  4000,4", " L 5000,8", "I  4004,4", " M 5000,8"]), 2, "a look, and then an exchange");
        assert_eq!(transfers(&["I  4000,4", " L 5000,8", " S 6000,8"]), 1, "a copy to somewhere else");
        assert_eq!(transfers(&["I  4000,4", " L 5000,8"]), 1, "the last of all");
    }

    #[test]
    fn places_are_known_when_the_last_of_them_was_said() {
        let said = "stack 0x20000000\ndevice 0x9000 0x9100\nmarks 0x100000\nbase 0x108000\n";
        let told = Places::told(said).expect("all is said");
        assert_eq!((told.marks, told.base), (0x10_0000, 0x10_8000));
        assert_eq!(told.aside, [vec![0x9000..0x9100], vec![]]);
        assert!(told.stacks[0].contains(&0x1fff_0000) && !told.stacks[0].contains(&0x2000_1000));
        assert!(Places::told(&said[..said.len() - 3]).is_none(), "half of a line");
    }
}
