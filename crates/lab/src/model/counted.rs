//! Owns what a file says of the variants: rows as `s1` or `coherence` print them, instead of the documents' counts.
//!
//! What is taken: `lock_acquisitions_per_conn` and `lock_held_share` by `lock`, `shared_lines_written_per_conn`,
//! `instructions_per_conn`, and `conns_per_s` by `lanes`, of one lane for the work and of both for the gate. Of what is counted for a
//! connection, that of one lane: a lane that waits for the other looks at its locks meanwhile, which no connection needs.

use super::counts::{Counts, LockUse, SEED_CONNECTION_NS, Touch, line, lock};
use crate::bench::failure::Failure;
use crate::s1::{INFO, LIST, SHARD, TIME_WAIT};
use serde_json::Value;
use std::path::Path;

/// Time of an instruction where a file counts instructions and measured no rate.
const NS_PER_INSTRUCTION: f64 = 0.3;
/// Who reads a lock writes its line twice: when he comes and when he goes.
const WRITES_PER_READER: f64 = 2.0;

/// Who takes a class of locks.
enum Whose {
    /// All lanes the same one, by this name in the model.
    All(&'static str),
    /// Each lane its own: what is held is work, and nobody waits.
    Lane,
}

fn whose(class: &str) -> Option<Whose> {
    match class {
        INFO => Some(Whose::All("info")),
        TIME_WAIT => Some(Whose::All("time_wait")),
        LIST => Some(Whose::All("list")),
        SHARD => Some(Whose::Lane),
        _ => None,
    }
}

/// A row of a variant.
struct Said<'a> {
    metric: &'a str,
    value: f64,
    lanes: Option<u64>,
    lock: Option<&'a str>,
}

fn said<'a>(rows: &'a [Value], variant: &str) -> Vec<Said<'a>> {
    let is_ours = |row: &&Value| {
        // An application with a thread of its own is another measurement, and a model is not fed with a model.
        row["variant"] == *variant && row["source"] != "model" && row.get("app").is_none_or(|app| app == "lane")
    };
    let said = |row: &'a Value| {
        let value = row["value"].as_f64().filter(|value| value.is_finite() && *value >= 0.0)?;
        Some(Said { metric: row["metric"].as_str()?, value, lanes: row["lanes"].as_u64(), lock: row["lock"].as_str() })
    };
    rows.iter().filter(is_ours).filter_map(said).collect()
}

/// Replaces what the file counts. The answer: how many numbers were taken.
pub fn read(file: &Path, all: &mut [Counts]) -> Result<usize, Failure> {
    let misuse = |why: String| Failure::Misuse(format!("--counts {}: {why}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| misuse(format!("it cannot be read: {error}")))?;
    let rows: Value = serde_json::from_str(&text)
        .map_err(|error| misuse(format!("this is no JSON ({error}); give what --json printed")))?;
    let Some(rows) = rows["rows"].as_array() else {
        return Err(misuse("there is no list \"rows\"; give what --json printed".into()));
    };
    let mut taken = 0;
    for counts in all.iter_mut() {
        let said = said(rows, &counts.variant);
        taken += take(counts, &said).map_err(|why| misuse(format!("{}: {why}", counts.variant)))?;
    }
    if taken == 0 {
        return Err(misuse("no row counts one of the variants; give the rows of s1 or coherence".into()));
    }
    Ok(taken)
}

fn take(counts: &mut Counts, said: &[Said<'_>]) -> Result<usize, String> {
    let first = |metric: &str| said.iter().find(|row| row.metric == metric).map(|row| row.value);
    let rate = |lanes| said.iter().find(|row| row.metric == "conns_per_s" && row.lanes == Some(lanes));
    let measured = [1, 2].map(|lanes| rate(lanes).map(|row| row.value).filter(|rate| *rate > 0.0));
    let whole = measured[0]
        .map(|rate| 1e9 / rate)
        .or(first("instructions_per_conn").map(|instructions| instructions * NS_PER_INSTRUCTION));
    let acquired: Vec<&Said<'_>> = said.iter().filter(|row| row.metric == "lock_acquisitions_per_conn").collect();
    let mut taken = 0;
    if let Some(fewest) = acquired.iter().map(|row| row.lanes).min_by_key(|lanes| lanes.unwrap_or(2)) {
        let whole = whole.ok_or(
            "its locks are counted, and not how long a connection takes on one core; give the rows of s1 with one lane",
        )?;
        let known = std::mem::take(&mut counts.locks);
        for row in acquired.into_iter().filter(|row| row.lanes == fewest) {
            let class = row.lock.ok_or("a row counts acquisitions and does not say of what (axis \"lock\")")?;
            let held = said
                .iter()
                .find(|held| held.metric == "lock_held_share" && held.lock == row.lock && held.lanes == fewest)
                .map(|held| held.value);
            acquisitions(counts, &known, class, row.value, held, whole)?;
            taken += 1;
        }
    }
    if let Some(written) = first("shared_lines_written_per_conn") {
        // A lock writes its own line; what is left is written without one.
        let known = counts.locks.iter().map(|lock| lock.per_op).chain(counts.lines.iter().map(|line| line.per_op));
        let left = written - known.sum::<f64>();
        if left > 0.0 {
            counts.lines.push(line("shared", Touch::Write, left));
        }
        taken += 1;
    }
    if let Some(whole) = whole {
        let held = counts.held_ns();
        if held > whole {
            return Err(format!("locks are held for {held:.0} ns of a connection that takes {whole:.0} ns"));
        }
        counts.work_ns = whole - held;
        taken += 1;
    }
    counts.measured = measured;
    Ok(taken)
}

/// Takes over how often a class is taken, and for how much of a connection that takes `whole` nanoseconds it is held.
fn acquisitions(
    counts: &mut Counts,
    known: &[LockUse],
    class: &str,
    per_op: f64,
    held_share: Option<f64>,
    whole: f64,
) -> Result<(), String> {
    let name = match whose(class) {
        Some(Whose::All(name)) => name,
        Some(Whose::Lane) => return Ok(()),
        None => {
            let classes = crate::s1::CLASSES.join(", ");
            return Err(format!("the model knows no locks of the class {class}; it knows {classes}"));
        }
    };
    // Where the documents have readers, whom nobody keeps waiting, there is no lock but its line.
    if let Some(read) = counts.lines.iter_mut().find(|line| line.line == name) {
        read.per_op = WRITES_PER_READER * per_op;
        return Ok(());
    }
    if per_op == 0.0 {
        return Ok(());
    }
    let documents = known.iter().find(|lock| lock.class == name);
    let documents = documents.map(|lock| lock.per_op * lock.hold_ns / SEED_CONNECTION_NS);
    let share = held_share.or(documents).ok_or(format!(
        "it takes {class}, and neither the file nor the documents say for how long; give rows with lock_held_share"
    ))?;
    counts.locks.push(lock(name, per_op, share * whole / per_op, 1));
    Ok(())
}

#[cfg(test)]
mod tests;
